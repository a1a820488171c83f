"""One recording serves all sizes: every function and common networks, eager beside both kinds of trace, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.optimizer import SGD

MODES: dict[str, dict[str, Any]] = {"host": {"symbolic": True}, "replay": {"without_host": True}}
N_SIZES = 6
Arrays = list[Any]

_rng = np.random.default_rng(0)


def f32(*shape: int) -> Any:
    return _rng.standard_normal(shape).astype("float32")


def ints(high: int, *shape: int) -> Any:
    return _rng.integers(0, high, shape).astype("int32")


def boxes(n: int) -> Any:
    start = _rng.uniform(0, 8, (n, 2))
    return np.concatenate([start, start + _rng.uniform(1, 6, (n, 2))], axis=1).astype("float32")


def rois(n: int, images: int) -> Any:
    return np.concatenate([ints(images, n, 1).astype("float32"), boxes(n)], axis=1)


@dataclass(frozen=True)
class Case:
    name: str
    fn: Callable[..., Any]
    inputs: Callable[[int], Arrays]  # of the call with number 0 .. N_SIZES - 1
    grad: bool = True
    recordings: int = 1
    why: str = ""  # for more than one recording


def vector(i: int) -> Arrays:
    return [f32(i + 2)]


def matrix(i: int) -> Arrays:
    return [f32(i + 2, 2 * i + 3)]


def two_matrices(i: int) -> Arrays:
    return [f32(i + 2, 2 * i + 3), f32(i + 2, 2 * i + 3)]


def cube(i: int) -> Arrays:
    return [f32(i + 1, 4, i + 5)]


def image(i: int) -> Arrays:
    return [f32(1 + i % 3, 4, 6 + i, 8 + 2 * i)]


def square(i: int) -> Arrays:
    n = i + 2
    return [f32(n, n) + 3 * n * np.eye(n, dtype="float32")]


def _set(key: Callable[[Tensor], Any], value: Callable[[Tensor], Any]) -> Callable[..., Tensor]:
    def fn(x: Tensor, *rest: Tensor) -> Tensor:
        y = x * 1
        y[key(*rest) if rest else key(x)] = value(x)
        return y

    return fn


def _add_at(x: Tensor, m: Tensor) -> Tensor:
    y = x * 1
    y[m] += 1
    return y


W = {name: mge.Parameter(f32(*shape)) for name, shape in {
    "conv1d": (5, 4, 3), "conv2d": (6, 4, 3, 3), "group": (2, 3, 2, 3, 3), "depth": (4, 1, 1, 3, 3),
    "conv3d": (5, 2, 2, 3, 3), "up2d": (4, 5, 3, 3), "up3d": (2, 3, 2, 3, 3), "c4": (4,), "m1": (1, 4, 1, 1),
    "offset": (18, 4, 3, 3), "mask": (9, 4, 3, 3), "w53": (5, 3), "b5": (5,), "table": (11, 3), "trans": (3, 3),
    "v10": (1, 10, 1, 1),
}.items()}  # fmt: skip
MEAN, VAR = Tensor(np.zeros((1, 4, 1, 1), "float32")), Tensor(np.ones((1, 4, 1, 1), "float32"))


def _deformable(x: Tensor) -> Tensor:
    offset, mask = F.conv2d(x, W["offset"], padding=1), F.conv2d(x, W["mask"], padding=1)
    return F.deformable_conv2d(x, W["conv2d"], offset, mask, padding=1)


def _batch_norm(x: Tensor) -> Any:
    return F.batch_norm(x, MEAN, VAR, W["m1"], W["m1"], training=True, inplace=False)


def _warp(x: Tensor) -> Tensor:
    shift = Tensor([[[1.0, 0.1, 1.0], [0.2, 1.0, 0.5], [0.0, 0.0, 1.0]]])
    mat = F.broadcast_to(shift, (x.shape[0], 3, 3))
    return F.vision.warp_perspective(x, mat, (x.shape[2] // 2, x.shape[3] - 1))


def _warp_affine(x: Tensor) -> Tensor:
    mat = F.broadcast_to(Tensor([[[1.0, 0.1, 1.0], [0.2, 1.0, 0.5]]]), (x.shape[0], 2, 3))
    return F.vision.warp_affine(x, mat, (5, x.shape[3]), format="NCHW")


def _scatter(x: Tensor, index: Tensor, source: Tensor) -> Tensor:
    return F.scatter(x * 1, 1, index, source)


def _shuffled(x: Tensor) -> Tensor:
    y = x * 1
    mge.random.shuffle(y)
    return y


TENSOR = [
    Case("reshape", lambda x: F.reshape(x, (x.shape[0], 2, -1)), cube),
    Case("reshape_back", lambda x: (x.reshape(-1) * 2).reshape(x.shape), cube),
    Case("flatten", lambda x: F.flatten(x, 1), cube),
    Case("broadcast_to", lambda x: F.broadcast_to(x, (3, *x.shape)), matrix),
    Case("broadcast_none", lambda x: F.broadcast_to(x, (3, None, None)), matrix),
    Case("broadcast_shape", lambda x, y: F.broadcast_to(x, y.shape), lambda i: [f32(1, i + 2), f32(3, i + 2)]),
    Case("expand_squeeze", lambda x: F.squeeze(F.expand_dims(x, [0, 2]), [0, 2]), matrix),
    Case("repeat", lambda x: F.repeat(x, 3, axis=1), cube),
    Case("repeat_flat", lambda x: F.repeat(x, 2), matrix),
    Case("repeat_size", lambda x: F.repeat(x, x.shape[1], axis=0), matrix),
    Case("tile", lambda x: F.tile(x, (2, 1, 3)), matrix),
    Case("tile_size", lambda x: F.tile(x, (x.shape[0], 2)), matrix),
    Case("roll", lambda x: F.roll(x, (1, -2), (0, 1)), matrix),
    Case("roll_flat", lambda x: F.roll(x, 3), matrix),
    Case("split", lambda x: F.split(x, 3, axis=1), cube),
    Case("split_at", lambda x: F.split(x, [1, x.shape[1] - 1], axis=1), cube),
    Case("concat", lambda x, y: F.concat([x, y, x], axis=1), lambda i: [f32(i + 1, 3), f32(i + 1, i + 2)]),
    Case("stack", lambda x, y: F.stack([x, y], axis=1), two_matrices),
    Case("meshgrid", lambda x, y: F.meshgrid(x, y), lambda i: [f32(i + 2), f32(2 * i + 1)]),
    Case("arange", lambda x: F.arange(4, x.shape[-1] * 8 + 4, 8) + x, vector),
    Case("arange_n", lambda x: F.arange(x.shape[0], dtype="int32"), vector, grad=False),
    Case("arange_by", lambda x: F.arange(x.shape[0], -1, -2), vector, grad=False),
    Case("linspace", lambda x: F.linspace(0, 1, x.shape[0]) * x, vector),
    Case("linspace_to", lambda x: F.linspace(0, x.shape[0] - 1, x.shape[0]) * x, vector),
    Case("full", lambda x: F.full((x.shape[1], 2), 3.0), matrix, grad=False),
    Case("full_value", lambda x, v: F.full(x.shape, v), lambda i: [f32(i + 1, 2), f32()], grad=False),
    Case("zeros_ones", lambda x: F.zeros(x.shape) + F.ones((x.shape[0], 1)) + x, matrix),
    Case("like", lambda x: F.zeros_like(x) + F.ones_like(x) * F.full_like(x, 2.5) * x, matrix),
    Case("full_like_tensor", lambda x, v: F.full_like(x, v), lambda i: [f32(i + 1, 2), f32()], grad=False),
    Case("eye", lambda x: F.eye(x.shape[0]) + F.eye(x.shape[0], x.shape[0]) * x, square),
    Case("diag", lambda x: F.diag(x, 1), vector),
    Case("diag_below", lambda x: F.diag(x, -2), vector),
    Case("diag_of", lambda x: F.diag(x, 1), matrix),
    Case("diag_of_below", lambda x: F.diag(x, -1), matrix),
    Case("swapaxes", lambda x: F.swapaxes(x, 0, 2), cube),
    Case("transpose", lambda x: F.transpose(x, (2, "x", 0, 1)), cube),
    Case("cumsum", lambda x: F.cumsum(x, 1), cube),
    Case("where", lambda x, y: F.where(x > y, x, y), two_matrices),
    Case("where_alone", lambda x: F.where(x > 0), matrix, grad=False),
    Case("non_zero", lambda x: F.non_zero(x > 0), matrix, grad=False),
    Case("non_zero_tuple", lambda x: F.non_zero(x > 0, as_tuple=True), matrix, grad=False),
    Case("cond_take", lambda x: F.cond_take(x > 0, x), matrix),
    Case("gather", lambda x, i: F.gather(x, 1, i), lambda i: [f32(i + 2, 5), ints(5, i + 2, 3)]),
    Case("scatter", _scatter, lambda i: [f32(i + 2, 5), ints(1, i + 2, 1) + i % 5, f32(i + 2, 1)]),
    Case("size", lambda x: x.reshape(x.size), cube),
    Case("T", lambda x: x.T * 2, matrix),
    Case("where_size", lambda x: F.where(x > 0, x.shape[0], x), matrix, grad=False),
    Case("iterate", lambda x: sum(list(x)), lambda i: [f32(3, i + 2)], grad=False),
    Case(
        "squeeze",
        lambda x: F.squeeze(x).sum(axis=-1),
        lambda i: [f32(1 + i % 2, 2, 3 + i)],
        grad=False,
        recordings=2,
        why="how many axes are left depends on sizes",
    ),
]

INDEX = [
    Case("mask", lambda x: x[x > 0], matrix),
    Case("mask_sum", lambda x: x[x > 0].sum(), matrix),
    Case("mask_rows", lambda x: x[x.sum(axis=1) > 0], matrix),
    Case("mask_2_of_3", lambda x: x[x.sum(axis=2) > 0], cube),
    Case("mask_last", lambda x, m: x[:, m], lambda i: [f32(3, i + 4), ints(2, i + 4) > 0]),
    Case("mask_dots", lambda x, m: x[..., m], lambda i: [f32(3, 2, i + 4), ints(2, i + 4) > 0]),
    Case("mask_of_mask", lambda x: x[x > 0][:, None].reshape(-1)[::2], matrix),
    Case("masks_chained", lambda x: (lambda y: y[y < 1])(x[x > 0]), matrix),
    Case("rows", lambda x, k: x[k], lambda i: [f32(i + 2, 3), ints(i + 2, 4)]),
    Case("pairs", lambda x, k, j: x[k, j], lambda i: [f32(i + 2, 3), ints(i + 2, i + 1), ints(3, i + 1)]),
    Case("pair_apart", lambda x, k, j: x[k, :, j], lambda i: [f32(i + 2, 3, 4), ints(i + 2, 5), ints(4, 5)]),
    Case("list", lambda x: x[[0, -1]], matrix),
    Case("list_and_slice", lambda x: x[1:, [0, -1, 1]], matrix),
    Case("slices", lambda x: x[1:, ::-2], matrix),
    Case("ints", lambda x: x[-1, 1:], matrix),
    Case("to_n", lambda x, n: x[:n], lambda i: [f32(9, 3), np.int32(i + 1)]),
    Case("to_half", lambda x: x[: x.shape[0] // 2, x.shape[1] // 2 :], matrix),
    Case("at_size", lambda x: x[x.shape[0] - 1], matrix),
    Case("at_tensor", lambda x, n: x[n], lambda i: [f32(i + 2, 3), np.int32(i)]),
    Case("set_mask", _set(lambda x: x > 0, lambda x: 0), matrix),
    Case("set_mask_rows", _set(lambda x: x.sum(axis=1) > 0, lambda x: 0), matrix),
    Case("set_mask_rows_value", _set(lambda x: x.sum(axis=1) > 0, lambda x: x[0]), matrix),
    Case("set_mask_last", _set(lambda m: (Ellipsis, m), lambda x: 0), lambda i: [f32(3, i + 4), ints(2, i + 4) > 0]),
    Case("set_slice", _set(lambda x: (slice(1, None), slice(None, None, 2)), lambda x: 3), matrix),
    Case("set_slice_value", _set(lambda x: (0, slice(1, None)), lambda x: x[1, 1:]), matrix),
    Case("set_rows", _set(lambda k: k, lambda x: x[0]), lambda i: [f32(i + 2, 3), np.arange(i + 1, dtype="int32")]),
    Case(
        "set_pairs", _set(lambda k: (k, k), lambda x: 7), lambda i: [f32(i + 2, i + 3), np.arange(i + 1, dtype="int32")]
    ),
    Case("add_mask", _add_at, lambda i: [f32(i + 2, 3), ints(2, i + 2, 3) > 0]),
    Case("add_rows", _add_at, lambda i: [f32(i + 2, 3), np.arange(i + 1, dtype="int32")]),
]

MATH = [
    Case("elementwise", lambda x, y: F.exp(x) * y + F.maximum(x, y) / 2, two_matrices),
    Case("broadcast", lambda x, y: x * y + y, lambda i: [f32(i + 1, 1, 3), f32(4, 3)]),
    Case(
        "reduce",
        lambda x: (
            x.sum(axis=1),
            x.mean(),
            x.max(axis=0),
            x.min(axis=(0, 1)),
            x.std() if hasattr(x, "std") else x.sum(),
        ),
        cube,
    ),
    Case("var_std", lambda x: (F.var(x, axis=1), F.std(x), F.prod(x, axis=0)), cube),
    Case("norm", lambda x: F.norm(x, 2, axis=1) + F.norm(x, 1, axis=1), matrix),
    Case("normalize", lambda x: F.normalize(x, axis=1), matrix),
    Case("argmax", lambda x: (F.argmax(x, axis=1), F.argmin(x, axis=0)), matrix, grad=False),
    Case("matmul", lambda x: F.matmul(x, x, transpose_b=True), cube),
    Case("matmul_vector", lambda x, v: (F.matmul(x, v), F.matmul(v, x.T)), lambda i: [f32(3, i + 2), f32(i + 2)]),
    Case("dot", lambda x, y: F.dot(x, y), lambda i: [f32(i + 2), f32(i + 2)]),
    Case("cross", lambda x, y: F.cross(x, y), lambda i: [f32(i + 2, 3), f32(i + 2, 3)]),
    Case("svd", lambda x: F.svd(x)[1], lambda i: [f32(i + 2, 3, 2)], grad=False),
    Case("matinv", lambda x: F.matinv(x), square),
    Case("sort", lambda x: F.sort(x), matrix),
    Case("argsort", lambda x: F.argsort(x, descending=True), matrix, grad=False),
    Case("topk", lambda x: F.topk(x, 2), matrix),
    Case("topk_most", lambda x: F.topk(x, 5), matrix),
    Case("topk_size", lambda x: F.topk(x, x.shape[1] // 2), matrix),
    Case("topk_kth", lambda x: F.topk(x, 2, kth_only=True), matrix),
    Case("einsum", lambda x, y: F.einsum("ij,kj->ik", x, y), two_matrices),
    Case("einsum_trace", lambda x: F.einsum("ii->i", x), square),
    Case("clip", lambda x: F.clip(x, -0.5, 0.5), matrix),
    Case("topk_accuracy", lambda x, t: F.topk_accuracy(x, t, 2), lambda i: [f32(i + 2, 5), ints(5, i + 2)], grad=False),
    Case("mean_by_size", lambda x: x.sum() / x.shape[0] + x.shape[1] * x, matrix),
]

NN = [
    Case("conv1d", lambda x: F.conv1d(x, W["conv1d"], padding=1), cube),
    Case("conv2d", lambda x: F.conv2d(x, W["conv2d"], stride=2, padding=1), image),
    Case("conv2d_group", lambda x: F.conv2d(x, W["group"], groups=2), image),
    Case("conv2d_depth", lambda x: F.conv2d(x, W["depth"], padding=1, groups=4), image),
    Case("conv3d", lambda x: F.conv3d(x, W["conv3d"], padding=1), lambda i: [f32(1 + i % 2, 2, i + 2, 4, i + 3)]),
    Case("conv_transpose2d", lambda x: F.conv_transpose2d(x, W["up2d"], stride=2, output_padding=1), image),
    Case(
        "conv_transpose3d",
        lambda x: F.conv_transpose3d(x, W["up3d"], stride=2),
        lambda i: [f32(1 + i % 2, 2, i + 2, 4, i + 3)],
    ),
    Case("deformable_conv2d", _deformable, image),
    Case("max_pool2d", lambda x: F.max_pool2d(x, 3, 2, 1), image),
    Case("avg_pool2d", lambda x: F.avg_pool2d(x, 2, 2, 1), image),
    Case("mean_by_sizes", lambda x: F.sum(x, (2, 3)) / (x.shape[2] * x.shape[3]), image),
    Case("avg_pool2d_all", lambda x: F.avg_pool2d(x, (x.shape[2], x.shape[3])), image),
    Case("max_pool2d_all", lambda x: F.max_pool2d(x, x.shape[2:]), image),
    Case("adaptive_avg", lambda x: F.adaptive_avg_pool2d(x, (2, 3)), image),
    Case("adaptive_max", lambda x: F.adaptive_max_pool2d(x, 2), image),
    Case("adaptive_size", lambda x: F.adaptive_avg_pool2d(x, (x.shape[2] // 2, 1)), image),
    Case("batch_norm", _batch_norm, image),
    Case("batch_norm_2d", lambda x: F.batch_norm(x, training=True), lambda i: [f32(i + 2, 4)]),
    Case("batch_norm_infer", lambda x: F.batch_norm(x, MEAN, VAR, W["m1"], W["m1"]), image),
    Case("batch_norm_infer_1d", lambda x: F.batch_norm(x, MEAN, VAR), cube),
    Case("layer_norm", lambda x: F.layer_norm(x, 4, True, W["c4"], W["c4"]), lambda i: [f32(i + 1, i + 2, 4)]),
    Case("layer_norm_plain", lambda x: F.layer_norm(x, x.shape[1:], False), cube),
    Case("group_norm", lambda x: F.group_norm(x, 2, True, W["c4"], W["c4"]), image),
    Case("instance_norm", lambda x: F.instance_norm(x, True, W["c4"], W["c4"]), image),
    Case("general_norm", lambda x: F.general_norm(x, 1, True, W["c4"], W["c4"]), cube),
    Case("local_response_norm", lambda x: F.local_response_norm(x, 3), image),
    Case("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), image),
    Case("pad", lambda x: F.nn.pad(x, ((0, 0), (1, 0), (2, 1))), cube),
    Case("pad_edge", lambda x: F.nn.pad(x, ((0, 0), (1, 0), (2, 1)), "replicate"), cube),
    Case("pad_reflect", lambda x: F.nn.pad(x, ((0, 0), (1, 2), (3, 1)), "reflect"), cube),
    Case(
        "pad_to_multiple",
        lambda x: F.nn.pad(x, ((0, 0), (0, 0), (0, (-x.shape[2]) % 4), (0, (-x.shape[3]) % 4))),
        image,
    ),
    Case("sliding_window", lambda x: F.sliding_window(x, 3, 1, 2), image),
    Case(
        "sliding_window_transpose",
        lambda x: F.sliding_window_transpose(F.sliding_window(x, 2), (x.shape[2], x.shape[3]), 2),
        image,
    ),
    Case("softmax", lambda x: F.softmax(x, axis=1) + F.logsoftmax(x, axis=2), cube),
    Case("logsumexp", lambda x: F.logsumexp(x, axis=1), cube),
    Case("softmax_axes", lambda x: F.softmax(x, axis=(1, 2)), cube),
    Case("linear", lambda x: F.linear(x, W["w53"], W["b5"]), lambda i: [f32(i + 1, i + 2, 3)]),
    Case("linear_vector", lambda x: F.linear(x, W["w53"], W["b5"]), lambda i: [f32(i + 1, 3)]),
    Case("dropout", lambda x: F.dropout(x, 0.4), matrix),
    Case("one_hot", lambda k: F.one_hot(k, 5), lambda i: [ints(5, i + 1, 2)], grad=False),
    Case("one_hot_size", lambda k, x: F.one_hot(k, x.shape[1]), lambda i: [ints(3, i + 1), f32(2, i + 3)], grad=False),
    Case("embedding", lambda k: F.embedding(k, W["table"]), lambda i: [ints(11, i + 1, 2 * i + 1)], grad=False),
    Case("indexing_one_hot", lambda x, k: F.indexing_one_hot(x, k), lambda i: [f32(i + 2, i + 3), ints(i + 3, i + 2)]),
    Case(
        "activations",
        lambda x: F.relu(x) + F.sigmoid(x) + F.gelu(x) + F.silu(x) + F.leaky_relu(x, 0.1) + F.prelu(x, W["m1"]),
        image,
    ),
]

LOSS = [
    Case("cross_entropy", lambda x, t: F.loss.cross_entropy(x, t), lambda i: [f32(i + 2, 5), ints(5, i + 2)]),
    Case(
        "cross_entropy_smooth",
        lambda x, t: F.loss.cross_entropy(x, t, label_smooth=0.1),
        lambda i: [f32(i + 2, i + 5), ints(5, i + 2)],
    ),
    Case(
        "cross_entropy_map",
        lambda x, t: F.loss.cross_entropy(x, t),
        lambda i: [f32(2, 3, i + 2, i + 1), ints(3, 2, i + 2, i + 1)],
    ),
    Case(
        "cross_entropy_p",
        lambda x, t: F.loss.cross_entropy(F.softmax(x, 1), t, with_logits=False, label_smooth=0.2),
        lambda i: [f32(i + 2, i + 5), ints(5, i + 2)],
    ),
    Case("l1_mse", lambda x, y: F.loss.l1_loss(x, y) + F.loss.square_loss(x, y), two_matrices),
    Case("bce", lambda x, y: F.loss.binary_cross_entropy(x, F.sigmoid(y)), two_matrices),
    Case("hinge", lambda x, y: F.loss.hinge_loss(x, F.sign(y)), two_matrices),
    Case(
        "ctc",
        lambda p, n, t, m: F.loss.ctc_loss(F.softmax(p, 2), n, t, m),
        lambda i: [
            f32(i + 5, i + 2, 4),
            np.full(i + 2, i + 4, "int32"),
            ints(3, i + 2, 2) + 1,
            np.full(i + 2, 2, "int32"),
        ],
    ),
]

VISION = [
    Case("interpolate_size", lambda x: F.vision.interpolate(x, (7, 5)), image),
    Case("interpolate_like", lambda x: F.vision.interpolate(x[:, :, ::2], x.shape[2:]), image),
    Case("interpolate_2", lambda x: F.vision.interpolate(x, scale_factor=2), image),
    Case("interpolate_half", lambda x: F.vision.interpolate(x, scale_factor=0.5, align_corners=True), image),
    Case("interpolate_pair", lambda x: F.vision.interpolate(x, scale_factor=(1.5, 0.25)), image),
    Case("interpolate_nearest", lambda x: F.vision.interpolate(x, scale_factor=2.0, mode="nearest"), image),
    Case("interpolate_bicubic", lambda x: F.vision.interpolate(x, scale_factor=1.25, mode="bicubic"), image),
    Case("interpolate_linear", lambda x: F.vision.interpolate(x, scale_factor=3, mode="linear"), cube),
    Case("interpolate_odd", lambda x: F.vision.interpolate(x, scale_factor=1.1), image),
    Case("resize", lambda x: F.vision.resize(x, (x.shape[2] // 2, 9)), image),
    Case("roi_align", lambda x, r: F.vision.roi_align(x, r, 3), lambda i: [f32(2, 3, 8 + i, 9), rois(i + 1, 2)]),
    Case(
        "roi_pooling", lambda x, r: F.vision.roi_pooling(x, r, (2, 3)), lambda i: [f32(2, 3, 8 + i, 9), rois(i + 1, 2)]
    ),
    Case(
        "psroi",
        lambda x, r: F.deformable_psroi_pooling(x, r, F.zeros((r.shape[0], 2, 2, 2)), False, 2, 2, 2, 2, 1.0),
        lambda i: [f32(2, 3, 8 + i, 9), rois(i + 1, 2)],
    ),
    Case("nms", lambda b, s: F.vision.nms(b, s, 0.3), lambda i: [boxes(5 + 3 * i), f32(5 + 3 * i)], grad=False),
    Case(
        "nms_max",
        lambda b, s: F.vision.nms(b, s, 0.5, max_output=7),
        lambda i: [boxes(5 + 3 * i), f32(5 + 3 * i)],
        grad=False,
    ),
    Case("remap", lambda x, m: F.vision.remap(x, m), lambda i: [f32(2, 3, 5 + i, 7), np.abs(f32(2, i + 2, 4, 2)) * 2]),
    Case("warp_perspective", _warp, image),
    Case("warp_affine", _warp_affine, image),
    Case(
        "correlation",
        lambda x, y: F.vision.correlation(x, y, max_displacement=1, pad_size=1),
        lambda i: [f32(1, 2, i + 4, 5), f32(1, 2, i + 4, 5)],
    ),
    Case("flip_rot", lambda x: F.vision.rot90(F.vision.flip(x)), image),
    Case("cvt_color", lambda x: F.vision.cvt_color(x, "RGB2GRAY"), lambda i: [f32(1, i + 2, 4, 3)]),
    Case("rotate", lambda x: F.vision.rotate(x, 30.0), image),
]

RANDOM = [
    Case("uniform", lambda x: mge.random.uniform(size=x.shape) + x, matrix),
    Case("normal", lambda x: mge.random.normal(0, 1, (x.shape[0], 3)), matrix, grad=False),
    Case("gamma", lambda x: mge.random.gamma(F.abs(x) + 1, 2.0, size=(2,)), matrix, grad=False),
    Case("gamma_size", lambda x: mge.random.gamma(2.0, 1.0, size=(x.shape[0],)), matrix, grad=False),
    Case("beta", lambda x: mge.random.beta(F.abs(x) + 1, F.abs(x) + 2), matrix, grad=False),
    Case("poisson", lambda x: mge.random.poisson(F.abs(x) + 1), matrix, grad=False),
    Case("exponential", lambda x: mge.random.exponential(F.abs(x) + 1, size=(2,)), matrix, grad=False),
    Case("multinomial", lambda x: mge.random.multinomial(F.abs(x), 2), matrix, grad=False),
    Case("multinomial_again", lambda x: mge.random.multinomial(F.abs(x), 4, replacement=True), matrix, grad=False),
    Case("permutation", lambda x: mge.random.permutation(x.shape[0]), matrix, grad=False),
    Case("permutation_rows", lambda x: mge.random.permutation(x), matrix, grad=False),
    Case("shuffle", _shuffled, matrix, grad=False),
]


def _some(x: Tensor) -> Tensor:
    """Rows of a tensor: how many depends on values."""
    return x[x.reshape(x.shape[0], -1)[:, 0] > -0.5]


def table(i: int) -> Arrays:
    return [np.concatenate([np.ones((3, 4), "float32"), f32(4 + i, 4)])]


def counted(i: int) -> Arrays:
    return [f32(4), np.int32(i + 1)]


LATE = [  # sizes that depend on values
    Case("late_sum", lambda x: _some(x).sum(axis=0), table),
    Case("late_mean", lambda x: x[x > 0].mean(), table),
    Case("late_none", lambda x: F.concat([x[x > 9], x.reshape(-1)]), table),
    Case("late_topk", lambda x: F.topk(_some(x)[:, 0], 2), table),
    Case("late_sort", lambda x: F.sort(x[x > 0]), table),
    Case("late_roll", lambda x: F.roll(_some(x), 2, 0), table),
    Case("late_stack", lambda x: F.stack([_some(x), _some(x) * 2]), table),
    Case("late_tile", lambda x: F.tile(_some(x), (2, 1)), table),
    Case("late_one_hot", lambda k: F.one_hot(k[k > 0], 5), lambda i: [ints(5, 3 + i)], grad=False),
    Case(
        "late_cross_entropy",
        lambda x, t: F.loss.cross_entropy(x[t > 0], t[t > 0]),
        lambda i: [f32(4 + i, 5), ints(4, 4 + i) + 1],
    ),
    Case("late_layer_norm", lambda x: F.layer_norm(_some(x), 4, True, W["c4"], W["c4"]), table),
    Case("late_group_norm", lambda x: F.group_norm(_some(x).reshape(-1, 4, 1, 1), 2, True, W["c4"], W["c4"]), table),
    Case("late_batch_norm_infer", lambda x: F.batch_norm(_some(x), MEAN, VAR, W["m1"], W["m1"]), table),
    Case("late_softmax", lambda x: F.softmax(_some(x), axis=1), table),
    Case("late_matmul", lambda x: F.matmul(_some(x), _some(x), transpose_b=True), table),
    Case("late_arange", lambda x: F.arange(_some(x).shape[0]) * 2, table, grad=False),
    Case("late_zeros", lambda x: F.zeros(_some(x).shape) + _some(x), table),
    Case("late_cond_take", lambda x: F.cond_take(_some(x) < 1, _some(x)), table),
    Case("repeat_tensor", lambda x, n: F.repeat(x, n), counted),
    Case("broadcast_tensor", lambda x, n: F.broadcast_to(x, (n, 4)), counted),
    Case("zeros_tensor", lambda x, n: F.zeros((n, 4)) + x, counted),
    Case("arange_tensor", lambda x, n: F.arange(n), counted, grad=False),
]

CASES = {c.name: c for c in TENSOR + INDEX + MATH + NN + LOSS + VISION + RANDOM + LATE}


def _list(y: Any) -> list[Any]:
    return list(y) if isinstance(y, (list, tuple)) else [y]


def _with_gradients(fn: Callable[..., Any]) -> Callable[..., list[Any]]:
    """Results, and gradients of all that has any."""

    def run(*args: Tensor) -> list[Any]:
        inner = [a * 1 if a.dtype == np.float32 else a for a in args]
        wanted = [a for a in inner if a.dtype == np.float32]
        manager = GradManager()
        manager.attach(wanted)
        with manager:
            out = _list(fn(*inner))
            ys = [y for y in out if y.dtype == np.float32]
            manager.backward(ys, [F.cos(y.detach()) for y in ys])
        return out + [a.grad for a in wanted if a.grad is not None]

    return run


def _recordings(t: Any) -> int:
    return sum(map(len, t._entries.values()))


def _compare(fn: Callable[..., Any], inputs: Callable[[int], Arrays], mode: str, order: Sequence[int]) -> int:
    traced = trace(fn, **MODES[mode])
    for i in order:
        arrays = inputs(i)
        results = []
        for call in (fn, traced):
            mge.random.seed(i)
            results.append([y.numpy() for y in _list(call(*(Tensor(a) for a in arrays)))])
        want, got = results
        assert len(want) == len(got)
        for k, (a, b) in enumerate(zip(want, got)):
            assert a.shape == b.shape, f"call {i}, result {k}: {b.shape} instead of {a.shape}"
            assert np.array_equal(a, b, equal_nan=a.dtype.kind == "f"), f"call {i}, result {k} differs"
    return _recordings(traced)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_forward(name: str, mode: str) -> None:
    case = CASES[name]
    n = _compare(case.fn, case.inputs, mode, range(N_SIZES))
    assert n == case.recordings, case.why


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c.grad and c not in LATE])
def test_gradients(name: str, mode: str) -> None:
    case = CASES[name]
    n = _compare(_with_gradients(case.fn), case.inputs, mode, range(N_SIZES))
    assert n == case.recordings, case.why


# ---- networks


class Residual(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = M.ConvBn2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.second = M.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm = M.BatchNorm2d(8)
        self.short = M.Conv2d(3, 8, 1, stride=2)
        self.head = M.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm(self.second(F.relu(self.first(x)))) + self.short(x))
        y = F.max_pool2d(y, 3, 1, 1)
        return self.head(F.flatten(F.avg_pool2d(y, y.shape[2:]), 1))


class Mobile(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide = M.ConvBn2d(3, 12, 1)
        self.depth = M.ConvBn2d(12, 12, 3, stride=2, padding=1, groups=12)
        self.narrow = M.ConvBn2d(12, 6, 1)
        self.squeeze, self.excite = M.Linear(12, 4), M.Linear(4, 12)
        self.pool = M.AdaptiveAvgPool2d(1)
        self.head = M.Linear(6, 5)
        self.drop = M.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu6(self.depth(F.relu6(self.wide(x))))
        scale = F.sigmoid(self.excite(F.relu(self.squeeze(y.mean(axis=(2, 3))))))
        y = self.narrow(y * scale.reshape(y.shape[0], -1, 1, 1))
        return self.head(self.drop(self.pool(y).reshape(x.shape[0], -1)))


class Encoder(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = M.Embedding(20, 8)
        self.attend = M.MultiHeadAttention(8, 2, attn_dropout=0.1)
        self.norm1, self.norm2 = M.LayerNorm(8), M.LayerNorm(8)
        self.up, self.down = M.Linear(8, 16), M.Linear(16, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        n, length = tokens.shape
        place = F.broadcast_to(F.arange(length, dtype="int32"), (n, length))
        x = self.embed(tokens) + self.embed(place)
        y, _ = self.attend(x, x, x, is_causal=True)
        x = self.norm1(x + y)
        heads = F.transpose(x.reshape(n, length, 2, -1), (0, 2, 1, 3))
        scores = F.softmax(F.matmul(heads, heads, transpose_b=True), axis=-1)
        mixed = F.transpose(F.matmul(scores, heads), (0, 2, 1, 3)).reshape(n, length, -1)
        return self.down(F.gelu(self.up(self.norm2(x + mixed)))).mean(axis=1)


class Recurrent(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = M.Embedding(20, 6)
        self.lstm = M.LSTM(6, 4, num_layers=2, bidirectional=True, batch_first=True)
        self.cell = M.RNNCell(8, 3)
        self.head = M.Linear(3, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        y, (h, _) = self.lstm(self.embed(tokens))
        return self.head(self.cell(y[:, -1] + F.concat([h[0], h[1]], axis=1)))


class Unet(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = M.ConvBn2d(3, 6, 3, padding=1)
        self.deep = M.ConvBn2d(6, 8, 3, padding=1)
        self.join = M.Conv2d(14, 6, 3, padding=1)
        self.norm = M.GroupNorm(2, 6)
        self.turn = M.ConvTranspose2d(6, 5, 2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        a = F.relu(self.down(x))
        b = F.relu(self.deep(F.max_pool2d(a, 2)))
        b = F.vision.interpolate(b, scale_factor=2)
        b = F.nn.pad(b, ((0, 0), (0, 0), (0, a.shape[2] - b.shape[2]), (0, a.shape[3] - b.shape[3])))
        y = F.relu(self.norm(self.join(F.concat([a, b], axis=1))))
        return self.turn(F.vision.interpolate(y, x.shape[2:])).mean(axis=(2, 3))


class Detector(M.Module):
    """Scores and boxes on a grid of anchors; the best are kept, in evaluation by non-maximum suppression."""

    def __init__(self) -> None:
        super().__init__()
        self.body = M.Conv2d(3, 6, 3, stride=2, padding=1)
        self.score, self.box = M.Conv2d(6, 1, 1), M.Conv2d(6, 4, 1)
        self.refine = M.Linear(6 * 4, 5)

    def forward(self, x: Tensor) -> Any:
        y = F.relu(self.body(x[:1]))
        h, w = y.shape[2:]
        gx, gy = F.meshgrid(F.arange(w) * 2, F.arange(h) * 2)
        centre = F.stack([gx.reshape(-1), gy.reshape(-1)], axis=1)
        delta = F.transpose(self.box(y).reshape(4, -1), (1, 0))
        size = F.exp(delta[:, 2:]) * 4
        boxes = F.concat([centre + delta[:, :2] - size, centre + delta[:, :2] + size], axis=1)
        scores = F.sigmoid(self.score(y).reshape(-1))
        best, index = F.topk(scores, 12)
        boxes = boxes[index]
        if self.training:
            return self._regions(y, boxes).mean(axis=0, keepdims=True) + best.mean()
        keep = best > 0.3
        boxes, best = boxes[keep], best[keep]
        chosen = F.vision.nms(boxes, best, 0.6)
        boxes = boxes[chosen]
        return self._regions(y, boxes), boxes, best[chosen]

    def _regions(self, y: Tensor, boxes: Tensor) -> Tensor:
        rois = F.concat([F.zeros((boxes.shape[0], 1)), boxes.detach()], axis=1)
        return self.refine(F.flatten(F.vision.roi_align(y, rois, 2, spatial_scale=0.5), 1))


def picture(i: int) -> Any:
    return f32(1 + i % 4, 3, 10 + 2 * i, 12 + (i * 5) % 7)


def words(i: int) -> Any:
    return ints(20, 1 + i % 4, 3 + i)


NETWORKS: dict[str, tuple[type[M.Module], Callable[[int], Any]]] = {
    "residual": (Residual, picture),
    "mobile": (Mobile, picture),
    "encoder": (Encoder, words),
    "lstm": (Recurrent, words),
    "unet": (Unet, picture),
    "detector": (Detector, picture),
}


def _made(kind: type[M.Module]) -> M.Module:
    mge.random.seed(7)
    return kind()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NETWORKS)
def test_network_evaluates(name: str, mode: str) -> None:
    kind, make = NETWORKS[name]
    net = _made(kind)
    net.eval()
    assert _compare(lambda x: net(x), lambda i: [make(i)], mode, range(N_SIZES)) <= 2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NETWORKS)
def test_network_trains(name: str, mode: str) -> None:
    """Loss and weights after each step, over calls of different sizes."""
    kind, make = NETWORKS[name]

    def step_of(net: M.Module) -> Callable[..., Tensor]:
        manager = GradManager().attach(net.parameters())
        optimizer = SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)

        def step(x: Tensor, label: Tensor) -> Tensor:
            with manager:
                logits = net(x)
                loss = F.loss.cross_entropy(logits, label[: logits.shape[0]], label_smooth=0.1)
                manager.backward(loss)
            optimizer.step().clear_grad()
            return loss

        return step

    eager, net = _made(kind), _made(kind)
    step, traced = step_of(eager), trace(step_of(net), **MODES[mode])
    for i in range(N_SIZES):
        x = make(i)
        label = ints(5, x.shape[0])
        losses = []
        for call in (step, traced):
            mge.random.seed(i)
            losses.append(call(Tensor(x), Tensor(label)).numpy())
        assert np.array_equal(*losses), i
        for (key, a), (_, b) in zip(eager.named_tensors(), net.named_tensors()):
            assert np.array_equal(a.numpy(), b.numpy()), (i, key)
    assert _recordings(traced) <= 2
