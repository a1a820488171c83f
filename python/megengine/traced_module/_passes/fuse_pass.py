"""Batch normalisation into convolutions, and constants that follow each other into one."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import functional as F
from ... import module as M
from ...logger import get_logger
from ...tensor import Parameter, Tensor
from ...utils.bn_fusion import fold_weight_bias
from ..expr import CallFunction, Expr, is_call_function, is_call_module, is_call_tensor_method
from ..utils import assign_attr
from .pass_base import BackwardPass, ForwardPass, register_pass
from .utils import as_array, constant, get_const_value, is_const_arg, method_call, only_user

logger = get_logger(__name__)


def conv_weights(expr: Expr) -> tuple[Any, Any] | None:
    """Weight and bias of a convolution whose both are known; None for other expressions."""
    if is_call_module(expr, M.Conv2d):
        conv = expr.inputs[0].owner  # type: ignore[attr-defined]
        return (conv.weight, conv.bias) if type(conv) is M.Conv2d else None
    if is_call_function(expr, F.conv2d):
        named = expr.named_args
        weight, bias = get_const_value(named["weight"]), get_const_value(named["bias"])
        if isinstance(weight, Tensor) and (named["bias"] is None or isinstance(bias, Tensor)):
            return weight, bias
    return None


def set_conv_weights(expr: Any, weight: Tensor, bias: Any) -> bool:
    """Give a convolution other weights; whether that was possible."""
    graph: Any = expr.top_graph
    if isinstance(expr, CallFunction):
        args, kwargs = expr.unflatten_args(expr.inputs)
        new = [*args]
        new[1] = constant(graph, weight, expr)
        new[2] = None if bias is None else constant(graph, bias, expr)
        expr._replace_args(tuple(new), kwargs)
        return True
    node = expr.inputs[0]
    conv = node.owner
    if len(node.users) > 1 or not hasattr(node.expr, "name") or _shared(graph, conv):
        return False  # others call it with the weights it has
    fused = M.Conv2d(
        conv.in_channels,
        conv.out_channels,
        conv.kernel_size,
        conv.stride,
        conv.padding,
        conv.dilation,
        conv.groups,
        bias=bias is not None,
        conv_mode=conv.conv_mode,
        compute_mode=conv.compute_mode,
        padding_mode=conv.padding_mode,
    )
    fused.weight = Parameter(weight)
    fused.bias = None if bias is None else Parameter(bias)
    fused.training, fused.name = conv.training, conv.name
    fused.__dict__.update(_name=conv._name, _short_name=conv._short_name)
    assign_attr(fused, node.expr.inputs[0].owner, node.expr.name)
    return True


def _shared(graph: Any, module: Any) -> bool:
    """Whether a module is called from several places."""
    calls = 0
    for expr in graph._root.exprs():
        if is_call_module(expr) and expr.inputs[0].owner is module:
            calls += 1
    return calls > 1


@register_pass("FuseConvBn")
class FuseConvBn(BackwardPass):
    """A convolution and the batch normalisation that follows become one convolution."""

    def run_transform(self, expr: Expr) -> Expr:
        """Put a batch normalisation into the convolution before it."""
        known = _normalization(expr)
        if known is None:
            return expr
        inp, gamma, beta, mean, var, eps = known
        conv = inp.expr
        weights = conv_weights(conv) if only_user(inp) else None
        if weights is None:
            return expr
        weight, bias = fold_weight_bias(weights[0], weights[1], gamma, beta, mean, var, eps)
        if bias is not None and weights[1] is not None:
            bias = bias.reshape(weights[1]._tuple_shape)
        return conv if set_conv_weights(conv, Tensor(weight), Tensor(bias)) else expr


def _normalization(expr: Expr) -> tuple[Any, ...] | None:
    """Input and parameters of a batch normalisation by running statistics."""
    if is_call_module(expr, M.BatchNorm2d):
        bn = expr.inputs[0].owner  # type: ignore[attr-defined]
        if type(bn) is not M.BatchNorm2d or not bn.track_running_stats:
            return None
        if bn.training:
            logger.warning(f"FuseConvBn: {expr.inputs[0].qualname} is in training mode and stays; call eval() first")
            return None
        gamma, beta = (bn.weight, bn.bias) if bn.affine else (None, None)
        return (expr.inputs[1], *_filled(gamma, beta, bn.running_mean), bn.running_mean, bn.running_var, bn.eps)
    if is_call_function(expr, F.batch_norm):
        named = expr.named_args
        names = ("weight", "bias", "running_mean", "running_var")
        gamma, beta, mean, var = (get_const_value(named[n]) for n in names)
        given = all(named[n] is None or isinstance(get_const_value(named[n]), Tensor) for n in names)
        if named["training"] or mean is None or var is None or not given:
            return None
        return (named["inp"], *_filled(gamma, beta, mean), mean, var, named["eps"])
    return None


def _filled(gamma: Any, beta: Any, like: Any) -> tuple[Tensor, Tensor]:
    shape = like._tuple_shape
    ones, zeros = np.ones(shape, "float32"), np.zeros(shape, "float32")
    return (Tensor(ones) if gamma is None else gamma), (Tensor(zeros) if beta is None else beta)


@register_pass("FuseAddMul")
class FuseAddMul(ForwardPass):
    """Constants that are added and multiplied one after the other: ``(x * a + b) * c`` becomes ``x * (a c) + b c``."""

    required_pass = ("NormElemWise",)
    run_once = False

    def run_transform(self, expr: Expr) -> Expr:
        """Put an addition or multiplication together with the one before it."""
        if not _is_affine(expr):
            return expr
        x, c = expr.args
        before = x.expr
        if not _is_affine(before) or not only_user(x):
            return expr
        inner, b = before.args
        graph: Any = expr.top_graph
        first, then = before.method, expr.method  # type: ignore[attr-defined]
        if first == then:  # x + b + c, x * b * c
            value = as_array_of(b) + as_array_of(c) if then == "__add__" else as_array_of(b) * as_array_of(c)
            return method_call(graph, then, (inner, _constant(graph, value, expr, x)), expr)  # type: ignore[no-any-return]
        if first == "__add__":  # (x + b) * c
            scaled = method_call(graph, "__mul__", (inner, c), expr)
            shift = as_array_of(b) * as_array_of(c)
            new = (scaled.outputs[0], _constant(graph, shift, scaled, x))
            return method_call(graph, "__add__", new, scaled)  # type: ignore[no-any-return]
        return expr


def _is_affine(expr: Expr) -> bool:
    if not is_call_tensor_method(expr, ("__add__", "__mul__")) or len(expr.args) != 2:
        return False
    x, c = expr.args
    same = getattr(expr.outputs[0], "_shape", None) == getattr(x, "_shape", ())  # the constant does not widen it
    return same and is_const_arg(c) and not is_const_arg(x)


def as_array_of(value: Any) -> Any:
    """A constant argument in float64."""
    return as_array(get_const_value(value))


def _constant(graph: Any, value: Any, before: Expr, like: Any) -> Any:
    """A number, or a node for an array."""
    if value.ndim == 0:
        return float(value)
    return constant(graph, Tensor(value.astype(like.dtype or "float32")), before)
