"""Rows of op_cases.py for images, regions and boxes."""

from __future__ import annotations

from typing import Any

import numpy as np
import reference_vision as ref
from op_case import NO_GRAD, OpCase, distinct, draw, ordered

CASES: list[OpCase] = []


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
        CASES += [
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
        CASES += [
            OpCase("resize", ref.resize, draw([xs]), {**a, "size": size}, label=tag),
            OpCase("resize_bwd", ref.resize_bwd, draw([(*xs[:2], *size)]), {**a, "x_size": xs[2:]}, label=tag),
        ]  # fmt: skip
ROIS = np.array([[0, 0.3, 0.7, 4.2, 3.9], [1, 1, 1, 2, 2], [1, -2, 0, 7, 9], [0, 3.4, 2.2, 3.3, 2.1]])
for biggest in (False, True):
    for aligned in (False, True):
        a = {"size": (2, 3), "samples": (2, 1), "scale": 0.8, "aligned": aligned, "max": biggest}
        tag = f"{'max' if biggest else 'mean'}{'-aligned' if aligned else ''}"
        CASES += [
            OpCase("roi_align", ref.roi_align, ordered(distinct((2, 2, 4, 5)), lambda rng: [ROIS]), a, label=tag, wrt=(0,)),
            OpCase("roi_align_bwd", ref.roi_align_bwd, ordered(distinct((2, 2, 4, 5)), lambda rng: [ROIS], draw([(4, 2, 2, 3)])), a, label=tag, wrt=(2,), grad=not biggest, grad2=not biggest),
        ]  # fmt: skip
    a = {"size": (2, 3), "scale": 0.8, "max": biggest}
    tag = "max" if biggest else "mean"
    CASES += [
        OpCase("roi_pooling", ref.roi_pooling, ordered(distinct((2, 2, 4, 5)), lambda rng: [ROIS]), a, label=tag, wrt=(0,)),
        OpCase("roi_pooling_bwd", ref.roi_pooling_bwd, ordered(distinct((2, 2, 4, 5)), lambda rng: [ROIS], draw([(4, 2, 2, 3)])), a, label=tag, wrt=(2,), grad=not biggest, grad2=not biggest),
    ]  # fmt: skip


def boxes(rng: np.random.RandomState) -> list[np.ndarray]:
    corner = rng.uniform(0, 10, (20, 2))
    return [np.concatenate([corner, corner + rng.uniform(2, 6, (20, 2))], 1), rng.permutation(20) / 20]


CASES += [
    OpCase("nms", ref.nms, boxes, {"iou_thresh": 0.3, "max_output": most}, label=str(most), lite=most > 0, **NO_GRAD) for most in (0, 3, 20)
]  # fmt: skip


# ---- bytes
def byte_table(x: Any, table: Any, axis: int = -1, to_nchw: bool = False) -> Any:
    rows = np.zeros_like(x, int)
    if len(table) > 1:
        rows += np.arange(len(table)).reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])
    y = table[rows, x.astype(int)]
    return y.transpose(0, 3, 1, 2) if to_nchw else y


def bytes_and_table(shape: tuple[int, ...], rows: int) -> Any:
    return lambda rng: [rng.randint(0, 256, shape).astype(np.uint8), rng.uniform(-2, 2, (rows, 256))]


for tag, shape, rows, a in [
    ("nchw", (2, 5, 7, 3), 3, {"to_nchw": True}), ("nhwc", (2, 5, 7, 3), 3, {}), ("axis1", (2, 3, 50), 3, {"axis": 1}),
    ("shared", (2, 5, 7, 3), 1, {"to_nchw": True}), ("scalar", (), 1, {}), ("empty", (2, 0, 3), 3, {}),
]:  # fmt: skip
    CASES.append(OpCase("byte_table", byte_table, bytes_and_table(shape, rows), a, label=tag, **NO_GRAD))
