"""Rows of op_cases.py for order, indexing by arrays and linear algebra."""

from __future__ import annotations

from typing import Any

import numpy as np
import reference_more as ref
from op_cases import NO_GRAD, OpCase, distinct, draw, ordered

MORE_CASES: list[OpCase] = []

# ---- order
for label, shape, axis in [("last", (3, 7), -1), ("middle", (2, 5, 3), 1), ("long", (2, 700), 1), ("one", (4, 1), 1)]:
    for down in (False, True):
        tag = f"{label}-{'down' if down else 'up'}"
        small = label != "long"
        MORE_CASES += [
            OpCase("sort", ref.sort, distinct(shape), {"axis": axis, "descending": down}, label=tag, grad=small, grad2=False),
            *(
                OpCase("topk", ref.topk, distinct(shape), {"k": k, "axis": axis, "descending": down, "sorted": s},
                       label=f"{tag}-{k}{'' if s else '-unsorted'}", grad=small and k > 0, grad2=False, lite=k > 0)
                for k in ((0, 1, 3) if label != "one" else (1,)) for s in (True, False)
            ),
        ]  # fmt: skip
MORE_CASES += [
    OpCase("topk", ref.topk, distinct((2, 900)), {"k": k, "axis": 1, "descending": True, "sorted": True}, label=f"long-{k}", **NO_GRAD)
    for k in (32, 33, 500, 900)
]  # fmt: skip
MORE_CASES.append(
    OpCase("sort", ref.sort, lambda rng: [rng.randint(-3, 4, (4, 50)).astype(np.int32)], {"axis": 1, "descending": True}, label="ties", **NO_GRAD)
)  # fmt: skip


def places(*shape: int, size: int) -> Any:
    return lambda rng: [rng.randint(-size, size, shape).astype(np.int32)]


for label, xs, index, axis in [("first", (4, 3), (6, 2), 0), ("middle", (2, 5, 3), (2, 4, 3), 1)]:
    MORE_CASES += [
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
    MORE_CASES += [
        OpCase("index_get", ref.index_get, ordered(draw([xs]), *where), take, label=label),
        OpCase("index_get_last", ref.index_get_last, ordered(draw([xs]), *where), take, label=label),
        OpCase("index_set", ref.index_set, ordered(draw([xs, region]), *where), take, label=label),
        OpCase("index_incr", ref.index_incr, ordered(draw([xs, region]), *where), take, label=label),
    ]


# ---- linear algebra
def well_conditioned(*shape: int) -> Any:
    return lambda rng: [rng.uniform(-1, 1, shape) + 3 * np.eye(shape[-2], shape[-1])]


def spread(*shape: int) -> Any:
    """Matrices with singular values well apart, so that their vectors are stable."""

    def make(rng: np.random.RandomState) -> list[np.ndarray]:
        u, _, vh = np.linalg.svd(rng.uniform(-1, 1, shape), full_matrices=False)
        return [u * (3.0 - 0.7 * np.arange(min(shape[-2:]))) @ vh]

    return make


MORE_CASES += [
    OpCase("matinv", np.linalg.inv, well_conditioned(*s), label="x".join(map(str, s))) for s in [(1, 1), (4, 4), (2, 3, 3)]
]  # fmt: skip
for s in [(3, 3), (4, 2), (2, 4), (2, 3, 4)]:
    name = "x".join(map(str, s))
    MORE_CASES += [
        OpCase("svd", ref.svd, spread(*s), {"full_matrices": False}, label=name, grad2=s == (3, 3)),
        OpCase("svd", ref.svd, spread(*s), {"full_matrices": True}, label=name + "-full", outs=(0,), grad2=False),
    ]
MORE_CASES.append(
    OpCase("eye", lambda rows, cols, k, dtype: np.eye(rows, cols, k, dtype), draw([]), {"rows": 3, "cols": 4, "k": 1, "dtype": "float32"}, lite=False, **NO_GRAD)
)  # fmt: skip

MORE_ELSEWHERE = {
    "rng_gamma": "random: test_random.py checks moments, distribution, determinism and thread independence",
    "rng_poisson": "random: test_random.py",
    "rng_multinomial": "random: test_random.py",
    "rng_permutation": "random: test_random.py",
}
