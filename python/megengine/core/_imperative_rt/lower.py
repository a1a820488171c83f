"""What each of the original's op classes means, said with the functions of this package.

A rule takes the op and its input tensors and returns a tensor or a tuple. Everything here runs through dispatch, so it
is differentiated and traced like any other code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import functional as F
from ...tensor import Tensor
from .._core import UserError, ops
from ..tensor import indexing
from ..tensor.utils import convert_inputs, make_shape_tuple
from . import lower_index, lower_training, lower_vision  # noqa: F401 - they fill RULES too
from .opdef import OpDef
from .ops import _INVALID_AXIS
from .rules import INT_MAX, RULES, Rule, hw, rule


def apply(op: OpDef, *inputs: Any) -> tuple[Tensor, ...]:
    """Run an op of ``megengine.core.ops.builtin``; always a tuple.

    >>> from megengine.core.ops import builtin
    >>> apply(builtin.Reduce(mode="sum", axis=0, keepdim=False), mge.tensor([1.0, 2.0]))[0].item()
    3.0
    """
    if not isinstance(op, OpDef):
        raise TypeError(f"apply: needs an op of megengine.core.ops.builtin first; got {type(op).__name__}.")
    run = RULES.get(type(op).__name__)
    if run is None:
        raise NotImplementedError(f"apply: {type(op).__name__} is not there yet.")
    if type(op).__name__ not in ("Elemwise", "ElemwiseMultiType"):
        for x in inputs:
            if not isinstance(x, Tensor):
                raise TypeError(f"py_apply expects tensor as inputs; {type(op).__name__} got {type(x).__name__}.")
    out = run(op, *inputs)
    return tuple(out) if isinstance(out, (tuple, list)) else (out,)


# ---- elementwise


def _where0(cond: Any, value: Any) -> Any:
    return ops.where(cond, value, ops.fill_like(value, value=0.0))


def _rmulh(x: Any, y: Any) -> Any:
    """The high half of the doubled product, rounded half up. The product needs twice the bits: done on the host."""
    bits = x.dtype.itemsize * 8
    wide = x.numpy().astype(np.int64) * y.numpy().astype(np.int64)
    info = np.iinfo(x.dtype)
    return Tensor(np.clip((wide + (1 << (bits - 2))) >> (bits - 1), info.min, info.max), dtype=x.dtype, device=x.device)


def _like(x: Any, *others: Any) -> Any:
    """The dtype that 0/1 results of comparisons take: that of the operands."""
    return next((v.dtype for v in (x, *others) if isinstance(v, Tensor)), np.dtype("float32"))


def _fast_slope(x: Any) -> Any:
    x2 = x * x
    return ((-48.0 * x2) / (3.0 + x2) + 27.0 + x2) / (3.0 + x2) / 9.0


ELEMWISE: dict[str, Callable[..., Any]] = {
    "RELU": ops.relu,
    "ABS": ops.abs,
    "ACOS": ops.acos,
    "ASIN": ops.asin,
    "CEIL": ops.ceil,
    "COS": ops.cos,
    "EXP": ops.exp,
    "EXPM1": ops.expm1,
    "FLOOR": ops.floor,
    "LOG": ops.log,
    "LOG1P": ops.log1p,
    "NEGATE": ops.neg,
    "SIGMOID": ops.sigmoid,
    "SIN": ops.sin,
    "TANH": ops.tanh,
    "ABS_GRAD": lambda x, y: ops.where(x > 0, y, -y),
    "ADD": ops.add,
    "FLOOR_DIV": ops.floor_div,
    "MAX": ops.maximum,
    "MIN": ops.minimum,
    "MOD": ops.mod,
    "MUL": ops.mul,
    "POW": ops.pow,
    "SIGMOID_GRAD": lambda x, y: x * (1 - x) * y,
    "SUB": ops.sub,
    "SWITCH_GT0": lambda x, y: _where0(x > 0, y),
    "TANH_GRAD": lambda x, y: (1 - x * x) * y,
    "TRUE_DIV": ops.div,
    "LOG_SUM_EXP": ops.logaddexp,
    "LT": lambda x, y: ops.lt(x, y).astype(_like(x, y)),
    "LEQ": lambda x, y: ops.le(x, y).astype(_like(x, y)),
    "EQ": lambda x, y: ops.eq(x, y).astype(_like(x, y)),
    "SHL": ops.left_shift,
    "SHR": ops.right_shift,
    "COND_LEQ_MOV": lambda x, y, z: _where0(x <= y, z),
    "FUSE_MUL_ADD3": lambda a, b, c: a * b + c,
    "FUSE_MUL_ADD4": lambda a, b, c, d: a * b + c * d,
    "FUSE_ADD_RELU": lambda x, y: ops.relu(x + y),
    "FUSE_ADD_SIGMOID": lambda x, y: ops.sigmoid(x + y),
    "FUSE_ADD_TANH": lambda x, y: ops.tanh(x + y),
    "FAST_TANH": lambda x: x * (27.0 + x * x) / (27.0 + 9.0 * (x * x)),
    "FAST_TANH_GRAD": lambda x, y: _fast_slope(x) * y,
    "ROUND": ops.round,
    "RMULH": _rmulh,
    "ATAN2": ops.atan2,
    "ERF": ops.erf,
    "ERFINV": lambda x: ops.erfinv(x),
    "ERFC": lambda x: ops.erfc(x),
    "ERFCINV": lambda x: ops.erfcinv(x),
    "H_SWISH": ops.hswish,
    "H_SWISH_GRAD": ops.hswish_grad,
    "FUSE_ADD_H_SWISH": lambda x, y: ops.hswish(x + y),
    "NOT": ops.logical_not,
    "AND": ops.logical_and,
    "OR": ops.logical_or,
    "XOR": ops.logical_xor,
    "SILU": ops.silu,
    "SILU_GRAD": ops.silu_grad,
    "GELU": ops.gelu,
    "GELU_GRAD": ops.gelu_grad,
    "COND_LT_MOV": lambda x, y, z: _where0(x < y, z),
    "NEQ": lambda x, y: ops.ne(x, y).astype(_like(x, y)),
    "ISNAN": lambda x: ops.isnan(x).astype(x.dtype),
    "ISINF": lambda x: ops.isinf(x).astype(x.dtype),
    "SINH": ops.sinh,
    "COSH": ops.cosh,
    "ASINH": ops.asinh,
    "ACOSH": ops.acosh,
    "ATANH": ops.atanh,
    "TAN": ops.tan,
    "ASINH_GRAD": lambda x, y: y / ops.sqrt(x * x + 1.0),
    "ACOSH_GRAD": lambda x, y: y / ops.sqrt(x * x - 1.0),
    "ATANH_GRAD": lambda x, y: y / (1.0 - x * x),
    "PRELU": lambda x, y: ops.where(x > 0, x, x * y),
    "CLIP": lambda x, lo, hi: ops.minimum(ops.maximum(x, lo), hi),
    "PRELU_GRAD": lambda x, dy, w: ops.where(x >= 0, dy, dy * w),
    "SOFTPLUS": ops.softplus,
    "SOFTPLUS_GRAD": lambda x, y: ops.sigmoid(x) * y,
    "RELU6": ops.relu6,
    "RELU6_GRAD": ops.relu6_grad,
    "HSIGMOID": ops.hsigmoid,
    "HSIGMOID_GRAD": lambda x, y: _where0(ops.abs(x) < 3.0, y / 6.0),
    "LOGSIGMOID": ops.logsigmoid,
    "SQRT": ops.sqrt,
    "SQUARE": ops.square,
    "SIGN": ops.sign,
}


_TERNARY = ("COND_LEQ_MOV", "COND_LT_MOV", "FUSE_MUL_ADD3", "CLIP", "PRELU_GRAD")
_UNARY_AFTER_GRAD = """FAST_TANH ROUND ERF ERFINV ERFC ERFCINV H_SWISH NOT SILU GELU ISNAN ISINF SINH COSH ASINH ACOSH
ATANH TAN SOFTPLUS RELU6 HSIGMOID LOGSIGMOID SQRT SQUARE SIGN""".split()
_FIRST_BINARY = list(ELEMWISE).index("ABS_GRAD")


def _arity(at: int, mode: str) -> int:
    if mode == "FUSE_MUL_ADD4":
        return 4
    if mode in _TERNARY:
        return 3
    return 1 if at < _FIRST_BINARY or mode in _UNARY_AFTER_GRAD else 2


ARITY = {mode: _arity(at, mode) for at, mode in enumerate(ELEMWISE)}


@rule("Elemwise")
def _elemwise(op: Any, *x: Any) -> Any:
    mode = op.mode.members()[0]
    if len(x) != ARITY[mode]:
        raise UserError(f"Elemwise {mode}: needs {ARITY[mode]} inputs; got {len(x)}.")
    return ELEMWISE[mode](*(x if all(isinstance(v, Tensor) for v in x) else convert_inputs(*x)))


_BOOL_MODES: dict[str, Callable[..., Any]] = {
    "EQ": ops.eq,
    "NEQ": ops.ne,
    "LT": ops.lt,
    "LEQ": ops.le,
    "ISNAN": ops.isnan,
    "ISINF": ops.isinf,
}


@rule("ElemwiseMultiType")
def _elemwise_multi_type(op: Any, *x: Any) -> Any:
    mode = op.mode.members()[0]
    if mode in _BOOL_MODES:
        return _BOOL_MODES[mode](*x)
    if mode.startswith(("FUSE_MUL_ADD3_INT16XF32", "FUSE_MUL_ADD3_UINT8")):
        return x[0].astype("float32") * x[1] + x[2]
    if mode == "MUL_INT16XF32XF32":
        return x[0].astype("float32") * x[1]
    if mode == "FUSE_MUL_ADD3_INT16X32X32X32":
        return x[0].astype("int32") * x[1] + x[2]
    raise NotImplementedError(f"ElemwiseMultiType: {mode} arrives with the quantised ops.")


_REDUCE = {"SUM": "sum", "PRODUCT": "prod", "MIN": "min", "MAX": "max", "MEAN": "mean"}


@rule("Reduce")
def _reduce(op: Any, x: Tensor, target: Tensor | None = None) -> Tensor:
    mode = op.mode.members()[0]
    if mode == "SUM_SQR":
        x, mode = ops.square(x), "SUM"
    if target is not None:
        shape = make_shape_tuple(target)
        lead = x.ndim - len(shape)
        axes = [*range(lead), *(i + lead for i, n in enumerate(shape) if n == 1 and x.shape[i + lead] != 1)]
        return ops.reduce(x, mode=_REDUCE[mode], axes=tuple(axes), keepdims=False).reshape(shape) if axes else x
    if op.axis == INT_MAX:
        y = ops.reduce(x, mode=_REDUCE[mode], axes=(), keepdims=False)
        return y
    return ops.reduce(x, mode=_REDUCE[mode], axes=(op.axis,), keepdims=bool(op.keepdim))


@rule("TypeCvt")
def _type_cvt(op: Any, x: Tensor) -> Tensor:
    return x.astype(op.dtype)


# ---- linear algebra, convolution, pooling

RULES["MatrixInverse"] = lambda op, x: F.matinv(x)
RULES["Dot"] = lambda op, a, b: F.dot(a, b)
RULES["SVD"] = lambda op, x: F.svd(x, op.full_matrices, op.compute_uv)


@rule("MatrixMul")
def _matmul(op: Any, a: Tensor, b: Tensor) -> Tensor:
    return F.matmul(a, b, bool(op.transposeA), bool(op.transposeB), op.compute_mode.members()[0].lower())


RULES["BatchedMatrixMul"] = _matmul


def _groups(op: Any, weight: Tensor) -> int:
    return weight.shape[0] if op.sparse == "GROUP" else 1


def _conv(fn: Callable[..., Tensor]) -> Rule:
    def run(op: Any, x: Tensor, weight: Tensor, *rest: Tensor) -> Tensor:
        return fn(
            x,
            weight,
            *rest,
            stride=hw(op, "stride"),
            padding=hw(op, "pad"),
            dilation=hw(op, "dilate"),
            groups=_groups(op, weight),
        )

    return run


def _conv_transpose(fn: Callable[..., Tensor]) -> Rule:
    def run(op: Any, weight: Tensor, dy: Tensor, shape: Tensor | None = None) -> Tensor:
        stride, pad, dilate = hw(op, "stride"), hw(op, "pad"), hw(op, "dilate")
        extra: Any = 0
        if shape is not None:
            sizes = make_shape_tuple(shape)[-len(stride) :]
            kernel = weight.shape[-len(stride) :]
            least = [
                (n - 1) * s - 2 * p + d * (k - 1) + 1
                for n, s, p, d, k in zip(dy.shape[-len(stride) :], stride, pad, dilate, kernel)
            ]
            extra = tuple(a - b for a, b in zip(sizes, least))
        return fn(
            dy, weight, stride=stride, padding=pad, output_padding=extra, dilation=dilate, groups=_groups(op, weight)
        )

    return run


RULES["Convolution"] = _conv(F.conv2d)
RULES["Convolution3D"] = _conv(F.conv3d)
RULES["ConvolutionBackwardData"] = _conv_transpose(F.conv_transpose2d)
RULES["Convolution3DBackwardData"] = _conv_transpose(F.conv_transpose3d)
RULES["DeformableConv"] = _conv(F.deformable_conv2d)


@rule("GroupLocal")
def _group_local(op: Any, x: Tensor, weight: Tensor) -> Tensor:
    return F.local_conv2d(x, weight, stride=hw(op, "stride"), padding=hw(op, "pad"), dilation=hw(op, "dilate"))


RULES["RegionRestrictedConvolution"] = _conv(F.region_restricted_conv)


@rule("Pooling")
def _pooling(op: Any, x: Tensor) -> Tensor:
    args = {"kernel_size": hw(op, "window"), "stride": hw(op, "stride"), "padding": hw(op, "pad")}
    if op.mode == "MAX":
        return F.max_pool2d(x, **args)
    return F.avg_pool2d(x, **args, mode=op.mode.members()[0].lower())


@rule("AdaptivePooling")
def _adaptive_pooling(op: Any, x: Tensor, shape: Tensor | None = None) -> Tensor:
    sizes = make_shape_tuple(op.shape if shape is None else shape)
    size: Any = sizes * 2 if len(sizes) == 1 else sizes
    return F.adaptive_max_pool2d(x, size) if op.mode == "MAX" else F.adaptive_avg_pool2d(x, size)


@rule("Images2Neibs")
def _images2neibs(op: Any, x: Tensor) -> Tensor:
    return F.sliding_window(x, hw(op, "window"), hw(op, "pad"), hw(op, "stride"), hw(op, "dilate"))


@rule("SlidingWindowTranspose")
def _sliding_window_transpose(op: Any, x: Tensor) -> Tensor:
    return F.sliding_window_transpose(
        x,
        (op.out_h, op.out_w),
        hw(op, "window"),
        hw(op, "pad"),
        hw(op, "stride"),
        hw(op, "dilate"),
    )


# ---- normalisation


@rule("BatchNorm")
def _batch_norm(op: Any, x: Tensor, scale: Tensor, bias: Tensor, *stats: Tensor) -> Sequence[Tensor]:
    if op.fwd_mode == "INFERENCE":
        y = ops.batch_norm_infer(x, scale, bias, *stats, eps=op.epsilon)
        none = F.zeros((0,))
        return (*stats, none, none, F.zeros((0,), dtype="uint8"), y)
    y, mean, var, rstd = ops.batch_norm_train(x, scale, bias, eps=op.epsilon)
    reserve = F.zeros((0,), dtype="uint8")
    if not stats:
        return mean, rstd, reserve, y
    n = x.size // x.shape[1]
    moved = [
        old * (1 - op.avg_factor) + new.detach() * op.avg_factor
        for old, new in zip(stats, (mean, var * (n / max(n - 1, 1))))
    ]
    return (*moved, mean, rstd, reserve, y)


@rule("LayerNorm")
def _layer_norm(op: Any, x: Tensor, *affine: Tensor) -> Sequence[Tensor]:
    w, b = affine if affine else (None, None)
    n_axes = int(op.normalized_dim)
    if w is None or b is None:
        shape = x.shape[x.ndim - n_axes :]
        w, b = F.ones(shape), F.zeros(shape)
    y, mean, rstd = ops.layer_norm(x, w, b, n_axes=n_axes, eps=op.eps)
    rows = x.shape[: x.ndim - n_axes]
    return y, mean.reshape(*rows), rstd.reshape(*rows)


@rule("GroupNorm")
def _group_norm(op: Any, x: Tensor, *affine: Tensor) -> Sequence[Tensor]:
    w, b = affine if affine else (None, None)
    y = F.nn.group_norm(x, op.group, bool(affine), w, b, op.eps)
    rows = x.astype("float32").reshape(x.shape[0], op.group, -1)
    mean = rows.mean(2)
    return y, mean, 1.0 / F.sqrt(F.var(rows, 2) + op.eps)


@rule("InstanceNorm")
def _instance_norm(op: Any, x: Tensor, *affine: Tensor) -> Sequence[Tensor]:
    w, b = affine if affine else (None, None)
    y = F.nn.instance_norm(x, bool(affine), w, b, op.eps)
    rows = x.astype("float32").reshape(x.shape[0], x.shape[1], -1)
    return y, rows.mean(2), 1.0 / F.sqrt(F.var(rows, 2) + op.eps)


@rule("GeneralNorm")
def _general_norm(op: Any, x: Tensor, *affine: Tensor) -> Sequence[Tensor]:
    w, b = affine if affine else (None, None)
    axes = list(range(op.axis_start, op.axis_end))
    y = F.nn.general_norm(x, axes, bool(affine), w, b, op.eps)
    return y, x.mean(axes), 1.0 / F.sqrt(F.var(x, axes) + op.eps)


RULES["LRN"] = lambda op, x: F.nn.local_response_norm(x, op.n, op.k, op.alpha, op.beta)
RULES["Softmax"] = lambda op, x: ops.softmax(x, axis=op.axis)

# ---- selection and order


@rule("IndexingOneHot")
def _indexing_one_hot(op: Any, x: Tensor, index: Tensor) -> Tensor:
    return F.nn.indexing_one_hot(x, index, op.axis, keepdims=True)


@rule("IndexingSetOneHot")
def _indexing_set_one_hot(op: Any, x: Tensor, index: Tensor, value: Tensor) -> Tensor:
    v = ops.squeeze(value, axes=(op.axis,)) if value.ndim == x.ndim else value
    return ops.set_one_hot(x, index, v, axis=op.axis)


RULES["Argmax"] = lambda op, x: ops.argmax(x, axis=op.axis, keepdims=True)
RULES["Argmin"] = lambda op, x: ops.argmin(x, axis=op.axis, keepdims=True)
RULES["Argsort"] = lambda op, x: F.sort(x, op.order == "DESCENDING")
RULES["CondTake"] = lambda op, x, mask: F.cond_take(mask, x)
RULES["NonZero"] = lambda op, x: F.transpose(F.non_zero(x), (1, 0))


@rule("TopK")
def _top_k(op: Any, x: Tensor, k: Tensor) -> Any:
    count = int(k.item())
    values, index = F.topk(
        x, abs(count), descending=count < 0, kth_only=op.mode == "KTH_ONLY", no_sort=op.mode == "VALUE_IDX_NOSORT"
    )
    return values if op.mode == "KTH_ONLY" else (values, index)


@rule("Cumsum")
def _cumsum(op: Any, x: Tensor) -> Tensor:
    axis = 0 if op.axis == INT_MAX else op.axis
    return ops.cumsum(x, axis=axis, exclusive=bool(op.exclusive), reverse=bool(op.reverse))


RULES["Where"] = lambda op, mask, x, y: ops.where(mask, x, y)


@rule("WhereBackward")
def _where_backward(op: Any, dz: Tensor, mask: Tensor) -> Sequence[Tensor]:
    zero = F.zeros_like(dz)
    return ops.where(mask, dz, zero), ops.where(mask, zero, dz)


@rule("MaskedFill")
def _masked_fill(op: Any, x: Tensor, mask: Tensor) -> Tensor:
    return indexing._masked_fill(x, mask, Tensor(op.value, dtype=x.dtype, device=x.device))


# ---- making


@rule("Fill")
def _fill(op: Any, shape: Tensor) -> Tensor:
    return F.full(shape, op.value, dtype=op.dtype or "float32", device=op.comp_node)


RULES["FillLike"] = lambda op, x: ops.fill_like(x, value=float(op.value))
RULES["Diag"] = lambda op, x: F.diag(x, op.k)
RULES["Cross"] = lambda op, a, b: F.cross(a, b, op.axisa, op.axisb, op.axisc)
RULES["MeshGrid"] = lambda op, *xs: F.meshgrid(*xs, indexing=op.indexing)


@rule("Eye")
def _eye(op: Any, shape: Tensor) -> Tensor:
    sizes = make_shape_tuple(shape)
    return Tensor(np.eye(sizes[0], sizes[-1], op.k), op.dtype, op.comp_node, is_const=True)


@rule("Linspace")
def _linspace(op: Any, start: Tensor, stop: Tensor, num: Tensor) -> Tensor:
    count = int(num.item())
    last = stop if op.endpoint else start + (stop - start) * ((count - 1) / max(count, 1))
    return F.linspace(start, last, count, device=op.comp_node)


@rule("GetVarShape")
def _get_var_shape(op: Any, *xs: Tensor) -> Tensor:
    shape = np.broadcast_shapes(*(x._tuple_shape for x in xs))
    if op.axis != _INVALID_AXIS:
        return Tensor([shape[op.axis]], dtype="int32", device=xs[0].device, is_const=True)
    return Tensor(np.array(shape, dtype=np.int32), device=xs[0].device, is_const=True)


# ---- shapes

RULES["Concat"] = lambda op, *xs: F.concat(xs, op.axis, op.comp_node)
RULES["Stack"] = lambda op, *xs: F.stack(xs, op.axis, op.comp_node)
RULES["Broadcast"] = lambda op, x, *shape: F.broadcast_to(x, shape[0] if shape else tuple(op.shape))
RULES["Reshape"] = lambda op, x, *shape: x.reshape(shape[0] if shape else tuple(op.shape))
RULES["PixelShuffle"] = lambda op, x: F.nn.pixel_shuffle(x, op.factor)
RULES["Identity"] = lambda op, x: ops.copy(x)
RULES["FastpathCopy"] = lambda op, x: ops.copy(x)
RULES["Copy"] = lambda op, x: x.to(op.comp_node)
RULES["Borrow"] = lambda op, x: x.to(op.comp_node)


@rule("Split")
def _split(op: Any, x: Tensor, *sizes: Tensor) -> Any:
    if not sizes:
        return F.split(x, op.nsections, op.axis)
    lengths = [int(s.item()) for s in sizes]
    return F.split(x, [int(c) for c in np.cumsum(lengths)[:-1]], op.axis)


@rule("Dimshuffle")
def _dimshuffle(op: Any, x: Tensor) -> Tensor:
    return x.transpose(*("x" if p < 0 else p for p in op.pattern))


@rule("AddAxis")
def _add_axis(op: Any, x: Tensor) -> Tensor:
    for a in op.axis:
        x = ops.expand_dims(x, axes=(a,))
    return x


@rule("RemoveAxis")
def _remove_axis(op: Any, x: Tensor) -> Tensor:
    for a in op.axis:
        x = ops.squeeze(x, axes=(a,))
    return x


@rule("PixelShuffleBackward")
def _pixel_unshuffle(op: Any, x: Tensor) -> Tensor:
    r, (*lead, c, h, w) = op.factor, x.shape
    n = len(lead)
    y = x.reshape(*lead, c, h // r, r, w // r, r)
    order = (*range(n + 1), n + 2, n + 4, n + 1, n + 3)
    return ops.transpose(y, perm=order).reshape(*lead, c * r * r, h // r, w // r)


@rule("Padding")
def _padding(op: Any, x: Tensor) -> Tensor:
    width = [(getattr(op, f"front_offset_dim{i}"), getattr(op, f"back_offset_dim{i}")) for i in range(x.ndim)]
    return F.nn.pad(x, width, op.padding_mode.members()[0], op.padding_val)


# ---- random numbers, checks, updates


def _generator(op: Any) -> Any:
    from .rng_handles import generator_of

    return generator_of(op.handle)


RULES["UniformRNG"] = lambda op, shape: _generator(op).uniform(0, 1, make_shape_tuple(shape)).astype(op.dtype)
RULES["GaussianRNG"] = lambda op, shape: (
    _generator(op).normal(op.mean, op.std, make_shape_tuple(shape)).astype(op.dtype)
)
RULES["GammaRNG"] = lambda op, shape, scale: _generator(op).gamma(shape, scale)
RULES["BetaRNG"] = lambda op, alpha, beta: _generator(op).beta(alpha, beta)
RULES["PoissonRNG"] = lambda op, lam: _generator(op).poisson(lam)
RULES["ExponentialRNG"] = lambda op, rate: _generator(op).exponential(rate)
RULES["MultinomialRNG"] = lambda op, x: _generator(op).multinomial(x, op.num_samples, op.replacement)
RULES["PermutationRNG"] = lambda op, n: _generator(op).permutation(int(n.item()), dtype=str(op.dtype))


@rule("ShuffleRNG")
def _shuffle(op: Any, x: Tensor) -> Sequence[Tensor]:
    order = _generator(op).permutation(x.shape[0])
    return ops.take(x, order, axis=0), order


@rule("Dropout")
def _dropout(op: Any, x: Tensor) -> Sequence[Tensor]:
    cell = _generator(op)._cell()
    y, mask, state = ops.dropout(x, cell, p=op.drop_prob)
    cell._reset(state)
    return y, mask


@rule("CheckNonFinite")
def _check_non_finite(op: Any, *xs: Tensor) -> Sequence[Tensor]:
    scaled = [x * op.scale for x in xs]
    return (*scaled, F.math._check_non_finite([Tensor(s) for s in scaled]))


RULES["AssertEqual"] = lambda op, a, b, *e: F.utils._assert_equal(a, b, maxerr=op.maxerr, verbose=op.verbose)


@rule("InplaceAdd")
def _inplace_add(op: Any, dest: Tensor, delta: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    dest._reset(dest * alpha + delta * beta)
    return dest


@rule("ParamPackSplit")
def _param_pack_split(op: Any, x: Tensor) -> Sequence[Tensor]:
    return [x[int(op.offsets[2 * i]) : int(op.offsets[2 * i + 1])].reshape(tuple(s)) for i, s in enumerate(op.shapes)]


@rule("ParamPackConcat")
def _param_pack_concat(op: Any, *xs: Tensor) -> Tensor:
    *tensors, _ = xs
    parts: list[Tensor] = []
    at = 0
    for i, t in enumerate(tensors):
        begin, end = int(op.offsets[2 * i]), int(op.offsets[2 * i + 1])
        if begin > at:
            parts.append(F.zeros((begin - at,), dtype=str(t.dtype)))
        parts.append(t.reshape(-1))
        at = end
    return F.concat(parts)


@rule("Barrier")
def _barrier(op: Any, *xs: Tensor) -> Sequence[Tensor]:
    return [F.zeros((0,), dtype="int32", device=op.comp_node) for _ in range(op.nr_outputs)]
