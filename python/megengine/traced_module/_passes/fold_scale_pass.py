"""Constant factors are moved back into the weights they can be part of."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import functional as F
from ... import module as M
from ...tensor import Tensor
from ..expr import Expr, is_call_function, is_call_module, is_call_tensor_method
from ..node import TensorNode
from .fuse_pass import as_array_of, conv_weights, set_conv_weights
from .pass_base import BackwardPass, register_pass
from .utils import constant, is_const_arg, only_user

_POSITIVE_FUNCTIONS = (F.relu, F.leaky_relu, F.max_pool2d, F.adaptive_max_pool2d)
_LINEAR_FUNCTIONS = (F.avg_pool2d, F.adaptive_avg_pool2d)
_POSITIVE_MODULES = (M.ReLU, M.LeakyReLU, M.MaxPool2d, M.AdaptiveMaxPool2d)
_LINEAR_MODULES = (M.AvgPool2d, M.AdaptiveAvgPool2d, M.Identity)
_MOVES = (F.flatten, F.reshape, F.transpose, F.squeeze, F.expand_dims)
_MOVE_METHODS = ("reshape", "flatten", "transpose")


@register_pass("BackwardFoldScale")
class BackwardFoldScale(BackwardPass):
    """``conv(x) * scale`` becomes a convolution with scaled weights, also behind activations, pooling and sums."""

    required_pass = ("AttrToConstant", "NormElemWise")
    run_once = True

    def run_transform(self, expr: Expr) -> Expr:
        """Move the factor of a multiplication back."""
        if not is_call_tensor_method(expr, "__mul__") or len(expr.args) != 2:
            return expr
        x, c = expr.args
        if not isinstance(x, TensorNode) or not is_const_arg(c) or is_const_arg(x):
            return expr
        if x._shape != expr.outputs[0]._shape:  # type: ignore[attr-defined]
            return expr
        scale = _per_channel(as_array_of(c), x._shape)
        if scale is None or not _can(x, scale):
            return expr
        _fold(x, scale)
        made: Expr = x.expr
        return made


def _per_channel(scale: Any, shape: Any) -> Any:
    """A factor as a number or one number per channel; None for other factors."""
    if scale.size == 1:
        return scale.reshape(())
    if shape is None or len(shape) != 4 or scale.ndim != 4 or scale.shape != (1, shape[1], 1, 1):
        return None
    return scale.reshape(-1)


def _can(node: Any, scale: Any) -> bool:
    """Whether everything that makes a node can take the factor."""
    if not only_user(node):
        return False
    expr = node.expr
    if conv_weights(expr) is not None:
        return not is_call_module(expr) or len(expr.inputs[0].users) == 1
    positive = bool(np.all(scale > 0))
    if is_call_function(expr, _POSITIVE_FUNCTIONS) or is_call_module(expr, _POSITIVE_MODULES):
        return positive and _can(_source(expr), scale)
    if is_call_function(expr, _LINEAR_FUNCTIONS) or is_call_module(expr, _LINEAR_MODULES):
        return _can(_source(expr), scale)
    if is_call_function(expr, _MOVES) or is_call_tensor_method(expr, _MOVE_METHODS):
        return scale.ndim == 0 and _can(_source(expr), scale)
    if is_call_tensor_method(expr, ("__add__", "__mul__")) and len(expr.args) == 2:
        x, c = expr.args
        if not isinstance(x, TensorNode) or x._shape != node._shape or is_const_arg(x):
            return False
        if is_const_arg(c):
            return expr.method == "__mul__" or _can(x, scale)
        return expr.method == "__add__" and c is not x and c._shape == node._shape and _can(x, scale) and _can(c, scale)
    return False


def _source(expr: Any) -> Any:
    return next((n for n in expr.inputs if isinstance(n, TensorNode)), None)


def _fold(node: Any, scale: Any) -> None:
    expr = node.expr
    weights = conv_weights(expr)
    graph: Any = expr.top_graph
    if weights is not None:
        weight, bias = weights
        w = weight.numpy()
        out = (-1, *(1,) * (w.ndim - 1)) if w.ndim == 4 else (w.shape[0], -1, *(1,) * (w.ndim - 2))
        new = (w.astype("float64") * (scale if scale.ndim == 0 else scale.reshape(out))).astype(w.dtype)
        shift = None
        if bias is not None:
            b = bias.numpy()
            shift = Tensor(
                (b.astype("float64") * (scale if scale.ndim == 0 else scale.reshape(b.shape))).astype(b.dtype)
            )
        done = set_conv_weights(expr, Tensor(new), shift)
        assert done, f"BackwardFoldScale: the weights of {expr} could not be set."
    elif is_call_tensor_method(expr, ("__add__", "__mul__")) and is_const_arg(expr.args[1]):
        x, c = expr.args
        value = as_array_of(c) * (scale if scale.ndim == 0 else scale.reshape(1, -1, 1, 1))
        args = (x, float(value) if value.ndim == 0 else constant(graph, Tensor(value.astype("float32")), expr))
        expr._replace_args(args, {})
        if expr.method == "__add__":
            _fold(x, scale)
    elif is_call_tensor_method(expr, "__add__"):
        for part in expr.args:
            _fold(part, scale)
    else:
        _fold(_source(expr), scale)
