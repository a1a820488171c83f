"""Rows of op_cases.py for order and for picking and placing by index."""

from __future__ import annotations

from typing import Any

import numpy as np
import reference_index as ref
from op_case import NO_GRAD, OpCase, Shape, distinct, draw, ordered

CASES: list[OpCase] = []

# ---- order
for label, shape, axis in [("last", (3, 7), -1), ("middle", (2, 5, 3), 1), ("long", (2, 700), 1), ("one", (4, 1), 1)]:
    for down in (False, True):
        tag = f"{label}-{'down' if down else 'up'}"
        small = label != "long"
        CASES += [
            OpCase("sort", ref.sort, distinct(shape), {"axis": axis, "descending": down}, label=tag, grad=small, grad2=small),
            *(
                OpCase("topk", ref.topk, distinct(shape), {"k": k, "axis": axis, "descending": down, "sorted": s},
                       label=f"{tag}-{k}{'' if s else '-unsorted'}", grad=small and k > 0, grad2=small and k > 0, lite=k > 0)
                for k in ((0, 1, 3) if label != "one" else (1,)) for s in (True, False)
            ),
        ]  # fmt: skip
CASES += [
    OpCase("topk", ref.topk, distinct((2, 900)), {"k": k, "axis": 1, "descending": True, "sorted": True}, label=f"long-{k}", **NO_GRAD)
    for k in (32, 33, 500, 900)
]  # fmt: skip


def _nonzero(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    found = np.flatnonzero(x)
    index = np.zeros(x.size, np.int32)
    index[: len(found)] = found
    return index, np.asarray(len(found), np.int32)


CASES += [
    OpCase("nonzero", _nonzero, make, label=label, **NO_GRAD)
    for label, make in (
        ("int", lambda rng: [rng.randint(-1, 2, (4, 5)).astype(np.int32)]),
        ("bool", lambda rng: [rng.randint(0, 2, (7,)).astype(np.bool_)]),
        ("float", lambda rng: [np.array([0.0, -0.0, 1.5, -2.0, 0.0])]),
        ("none", lambda rng: [np.zeros((0, 3), np.int32)]),
        ("scalar", lambda rng: [np.array(3, np.int32)]),
    )
]
CASES += [
    OpCase(
        "unravel",
        lambda x, shape: np.stack(np.unravel_index(x, shape)).astype(np.int32),
        lambda rng: [rng.randint(0, 60, (7,)).astype(np.int32)],
        {"shape": (3, 4, 5)},
        **NO_GRAD,
    )
]
CASES.append(
    OpCase("sort", ref.sort, lambda rng: [rng.randint(-3, 4, (4, 50)).astype(np.int32)], {"axis": 1, "descending": True}, label="ties", **NO_GRAD)
)  # fmt: skip


def places(*shape: int, size: int) -> Any:
    return lambda rng: [rng.randint(-size, size, shape).astype(np.int32)]


for label, xs, index, axis in [("first", (4, 3), (6, 2), 0), ("middle", (2, 5, 3), (2, 4, 3), 1)]:
    CASES += [
        OpCase("gather", ref.gather, ordered(draw([xs]), places(*index, size=xs[axis])), {"axis": axis}, label=label),
        OpCase("gather_bwd", ref.gather_bwd, ordered(draw([index]), places(*index, size=xs[axis])), {"axis": axis, "x_shape": xs}, label=label),
    ]  # fmt: skip

# ---- indexing by several arrays: x, index shapes, axes, at
for label, xs, shapes, axes, at in [
    ("matrix", (4, 5), [(6,), (6,)], (0, 1), 0),
    ("rows", (4, 5, 3), [(2, 1), (3,)], (0, 1), 0),
    ("outer", (2, 4, 5, 3), [(3,), (3,)], (1, 2), 1),
    ("apart", (4, 2, 5), [(3,), (2, 3)], (0, 2), 0),
    ("swapped", (4, 5), [(3,), ()], (1, 0), 0),
    ("inside", (4, 2, 5), [(3,)], (1,), 1),
]:
    take = {"axes": axes, "at": at}
    where = [places(*s, size=xs[a]) for s, a in zip(shapes, axes)]
    indices = [np.zeros(s, np.int32) for s in shapes]
    region = ref.index_get(np.zeros(xs), *indices, **take).shape
    CASES += [
        OpCase("index_get", ref.index_get, ordered(draw([xs]), *where), take, label=label),
        OpCase("index_get_last", ref.index_get_last, ordered(draw([xs]), *where), take, label=label),
        OpCase("index_set", ref.index_set, ordered(draw([xs, region]), *where), take, label=label),
        OpCase("index_incr", ref.index_incr, ordered(draw([xs, region]), *where), take, label=label),
    ]


# ---- one position along an axis
for label, xs, axis in [("last", (3, 7), 1), ("middle", (2, 5, 3), 1), ("first", (4, 3), 0)]:
    lab = tuple(d for i, d in enumerate(xs) if i != axis)

    def labels(rng: np.random.RandomState, most: int = xs[axis], lab: Shape = lab) -> list[np.ndarray]:
        return [rng.randint(0, most, lab).astype(np.int32)]

    CASES += [
        OpCase("indexing_one_hot", ref.indexing_one_hot, ordered(draw([xs]), labels), {"axis": axis}, label=label),
        OpCase("set_one_hot", ref.set_one_hot, ordered(draw([xs]), labels, draw([lab])), {"axis": axis}, label=label),
    ]  # fmt: skip
CASES += [
    OpCase(
        "take",
        ref.take,
        ordered(draw([(5, 3)]), lambda rng: [np.array([[0, 4], [2, 2]], np.int32)]),
        {"axis": 0},
        label="rows",
    ),
    OpCase(
        "take",
        ref.take,
        ordered(draw([(2, 5, 3)]), lambda rng: [np.array([4, 0, 4], np.int32)]),
        {"axis": 1},
        label="middle",
    ),
    OpCase(
        "wrap_index",
        lambda i, size, **_: np.where(i < 0, i + size, i),
        lambda rng: [np.array([[0, -1, 4], [-5, 2, 2]], np.int32)],
        {"size": 5},
        **NO_GRAD,
    ),
    OpCase("check_range", lambda x, **_: x, draw([(3, 4)]), {"low": -2.0, "high": 2.0}),
    OpCase(
        "take_bwd",
        ref.take_bwd,
        ordered(draw([(2, 2, 3)]), lambda rng: [np.array([[0, 4], [2, 2]], np.int32)]),
        {"axis": 0, "x_shape": (5, 3)},
    ),
]
