"""Rows of op_cases.py for order, indexing by arrays, linear algebra, 3-D convolution and vision."""

from __future__ import annotations

from typing import Any

import numpy as np
import reference_more as ref
from op_cases import NO_GRAD, OpCase, away_from, distinct, draw, ordered
from reference import windows

MORE_CASES: list[OpCase] = []

# ---- order
for label, shape, axis in [("last", (3, 7), -1), ("middle", (2, 5, 3), 1), ("long", (2, 700), 1), ("one", (4, 1), 1)]:
    for down in (False, True):
        tag = f"{label}-{'down' if down else 'up'}"
        small = label != "long"
        MORE_CASES += [
            OpCase("sort", ref.sort, distinct(shape), {"axis": axis, "descending": down}, label=tag, grad=small, grad2=small),
            *(
                OpCase("topk", ref.topk, distinct(shape), {"k": k, "axis": axis, "descending": down, "sorted": s},
                       label=f"{tag}-{k}{'' if s else '-unsorted'}", grad=small and k > 0, grad2=small and k > 0, lite=k > 0)
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
        OpCase("svd", ref.svd, spread(*s), {"full_matrices": False}, label=name),
        OpCase("svd", ref.svd, spread(*s), {"full_matrices": True}, label=name + "-full", outs=(0,)),
    ]
MORE_CASES.append(
    OpCase("eye", lambda rows, cols, k, dtype: np.eye(rows, cols, k, dtype), draw([]), {"rows": 3, "cols": 4, "k": 1, "dtype": "float32"}, lite=False, **NO_GRAD)
)  # fmt: skip

# ---- 3-D convolution
for label, xs, ws, a in [
    ("3x3x3", (2, 2, 4, 3, 5), (3, 2, 3, 3, 3), {"pad": (1, 1, 1)}),
    ("stride", (1, 2, 5, 6, 4), (2, 2, 2, 3, 1), {"stride": (2, 3, 1), "pad": (1, 0, 0)}),
    ("dilate", (1, 1, 5, 5, 6), (2, 1, 2, 2, 3), {"dilate": (2, 3, 2), "pad": (1, 1, 2)}),
    ("groups", (1, 4, 3, 3, 3), (2, 1, 2, 2, 2, 2), {"groups": 2}),
    ("1x1x1", (2, 3, 2, 2, 2), (2, 3, 1, 1, 1), {}),
]:
    n_out = ws[0] * (ws[1] if len(ws) == 6 else 1)
    full: dict[str, Any] = {"stride": (1, 1, 1), "pad": (0, 0, 0), "dilate": (1, 1, 1), "groups": 1, **a}
    ys = (xs[0], n_out) + tuple(
        windows(xs[2 + i], ws[-3 + i], full["stride"][i], full["pad"][i], full["dilate"][i]) for i in range(3)
    )
    MORE_CASES += [
        OpCase("conv3d", ref.conv3d, draw([xs, ws]), full, label=label),
        OpCase("conv3d_dx", ref.conv3d_dx, draw([ys, ws]), {**full, "x_shape": xs}, label=label),
        OpCase("conv3d_dw", ref.conv3d_dw, draw([xs, ys]), {**full, "w_shape": ws}, label=label),
    ]  # fmt: skip


# ---- vision
def positions(n: int, oh: int, ow: int) -> Any:
    """Inside and outside a small image, away from whole and half pixels, where derivatives jump."""

    def make(rng: np.random.RandomState) -> list[np.ndarray]:
        return [rng.randint(-5, 9, (n, oh, ow, 2)) + rng.choice([0.15, 0.3, 0.7, 0.85], (n, oh, ow, 2))]

    return make


for mode in ("replicate", "reflect", "reflect_101", "wrap", "constant"):
    for nearest in (False, True):
        tag = f"{mode}-{'nearest' if nearest else 'linear'}"
        where = {"border": mode, "nearest": nearest}
        MORE_CASES += [
            OpCase("remap", ref.remap, ordered(draw([(2, 2, 3, 4)]), positions(2, 3, 2)), {**where, "value": 0.7}, label=tag),
            OpCase("remap_dx", ref.remap_dx, ordered(draw([(2, 2, 3, 2)]), positions(2, 3, 2)), {**where, "x_shape": (2, 2, 3, 4)}, label=tag),
            OpCase("remap_dmap", ref.remap_dmap, ordered(draw([(2, 2, 3, 4)]), positions(2, 3, 2), draw([(2, 2, 3, 2)])), {**where, "value": 0.7}, label=tag, grad=not nearest, grad2=not nearest),
        ]  # fmt: skip
for mode, corners in [("linear", False), ("linear", True), ("cubic", False), ("nearest", False)]:
    for label, xs, size in [
        ("1d", (2, 3, 5), (8,)),
        ("2d", (2, 2, 4, 5), (7, 3)),
        ("3d", (1, 2, 3, 4, 2), (2, 5, 5)),
        ("one", (1, 1, 3, 3), (1, 1)),
    ]:
        a = {"mode": mode, "align_corners": corners}
        tag = f"{label}-{mode}{'-corners' if corners else ''}"
        MORE_CASES += [
            OpCase("resize", ref.resize, draw([xs]), {**a, "size": size}, label=tag),
            OpCase("resize_bwd", ref.resize_bwd, draw([(*xs[:2], *size)]), {**a, "x_size": xs[2:]}, label=tag),
        ]  # fmt: skip
ROIS = np.array([[0, 0.3, 0.7, 4.2, 3.9], [1, 1, 1, 2, 2], [1, -2, 0, 7, 9], [0, 3.4, 2.2, 3.3, 2.1]])
for biggest in (False, True):
    for aligned in (False, True):
        a = {"size": (2, 3), "samples": (2, 1), "scale": 0.8, "aligned": aligned, "max": biggest}
        tag = f"{'max' if biggest else 'mean'}{'-aligned' if aligned else ''}"
        MORE_CASES += [
            OpCase("roi_align", ref.roi_align, ordered(distinct((2, 2, 4, 5)), lambda rng: [ROIS]), a, label=tag, wrt=(0,)),
            OpCase("roi_align_bwd", ref.roi_align_bwd, ordered(distinct((2, 2, 4, 5)), lambda rng: [ROIS], draw([(4, 2, 2, 3)])), a, label=tag, wrt=(2,), grad=not biggest, grad2=not biggest),
        ]  # fmt: skip
    a = {"size": (2, 3), "scale": 0.8, "max": biggest}
    tag = "max" if biggest else "mean"
    MORE_CASES += [
        OpCase("roi_pooling", ref.roi_pooling, ordered(distinct((2, 2, 4, 5)), lambda rng: [ROIS]), a, label=tag, wrt=(0,)),
        OpCase("roi_pooling_bwd", ref.roi_pooling_bwd, ordered(distinct((2, 2, 4, 5)), lambda rng: [ROIS], draw([(4, 2, 2, 3)])), a, label=tag, wrt=(2,), grad=not biggest, grad2=not biggest),
    ]  # fmt: skip


def boxes(rng: np.random.RandomState) -> list[np.ndarray]:
    corner = rng.uniform(0, 10, (20, 2))
    return [np.concatenate([corner, corner + rng.uniform(2, 6, (20, 2))], 1), rng.permutation(20) / 20]


MORE_CASES += [
    OpCase("nms", ref.nms, boxes, {"iou_thresh": 0.3, "max_output": most}, label=str(most), lite=most > 0, **NO_GRAD) for most in (0, 3, 20)
]  # fmt: skip


# ---- sequences
def sequences(rng: np.random.RandomState) -> list[np.ndarray]:
    p = rng.uniform(0.1, 1, (4, 3, 3))
    i32 = np.int32
    return [p / p.sum(-1, keepdims=True), np.array([4, 3, 4], i32), np.array([[0, 2], [2, 2], [2, 0]], i32), np.array([2, 2, 1], i32)]  # fmt: skip


MORE_CASES += [
    OpCase("ctc_loss", ref.ctc_loss, sequences, {"blank": 1}),
    OpCase("ctc_loss_bwd", ref.ctc_loss_bwd, ordered(sequences, draw([(3,)])), {"blank": 1}),
]
for mode, count in [("tanh", 1), ("relu", 1), ("lstm", 4)]:
    for reverse in (False, True):
        for label, (steps, n, h) in [("", (3, 2, 5)), ("one", (1, 3, 17))]:
            a = {"mode": mode, "reverse": reverse}
            tag = f"{mode}{'-reverse' if reverse else ''}{'-' + label if label else ''}"
            seq, wide, state = (steps, n, h), (steps, n, count * h), (n, h)
            lstm = mode == "lstm"
            MORE_CASES += [
                OpCase("recurrence", ref.recurrence, draw([wide, (count * h, h), *[state] * (2 if lstm else 1)], -1, 1), a, label=tag, outs=(0, 1, 2) if lstm else (0,)),
                OpCase("recurrence_bwd", ref.recurrence_bwd, away_from([0], [(count * h, h), seq, seq, *([wide, seq, state, seq] if lstm else [])], -1, 1), a, label=tag),
            ]  # fmt: skip
MORE_CASES += [
    OpCase("recurrence_bwd", ref.recurrence_bwd, draw([(8, 2), (3, 2, 2), (3, 2, 2), (3, 2, 8), (3, 2, 2), (2, 2), (3, 2, 2), (3, 2, 8)], -1, 1), {"mode": "lstm", "reverse": False}, label="gates")
]  # fmt: skip


def skipped(state: np.ndarray, n: int) -> np.ndarray:
    words = state.view(np.uint32).astype(np.uint64)
    counter = (int(words[2]) | int(words[3]) << 32) + (n + 3) // 4
    return np.array([words[0], words[1], counter & 0xFFFFFFFF, counter >> 32 & 0xFFFFFFFF], np.uint32).view(np.int32)


MORE_CASES += [
    OpCase("rng_skip", skipped, lambda rng: [np.array([7, 1, -3, 5], np.int32)], {"n": n}, label=str(n), **NO_GRAD)
    for n in (0, 1, 9, 2**30)
]

MORE_ELSEWHERE = {
    "complex": "complex64 has no float64 to differentiate in: test_complex.py",
    "real": "test_complex.py",
    "imag": "test_complex.py",
    "rng_gamma": "random: test_random.py checks moments, distribution, determinism and thread independence",
    "rng_poisson": "random: test_random.py",
    "rng_multinomial": "random: test_random.py",
    "rng_permutation": "random: test_random.py",
}
