"""Passes over constants, and into the forms that other passes look for."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import functional as F
from ...core._imperative_rt.ops import OPS
from ...tensor import Tensor
from ..expr import (
    CallFunction,
    Constant,
    Expr,
    is_apply_def,
    is_call_function,
    is_call_module,
    is_call_tensor_method,
    is_constant,
    is_getattr,
)
from ..node import TensorNode
from .pass_base import BackwardPass, ForwardPass, register_pass
from .utils import constant, get_const_value, is_const_arg, method_call


def _as_constant(expr: Expr, value: Tensor, name: str = "") -> Expr:
    graph: Any = expr.top_graph
    new = Constant(value, name)
    graph._cursor = graph._exprs.index(expr)
    graph._insert(new)
    graph._cursor = None
    return new


@register_pass("AttrToConstant")
class AttrToConstant(BackwardPass):
    """Tensors that are attributes become constants of the graph."""

    def run_transform(self, expr: Expr) -> Expr:
        """Exchange a ``getattr`` of a tensor."""
        if not is_getattr(expr) or not isinstance(expr.outputs[0], TensorNode):
            return expr
        value = get_const_value(expr)
        return expr if value is None else _as_constant(expr, value, expr.outputs[0].name)


@register_pass("FixInputShape")
class FixInputShape(BackwardPass):
    """Shapes become those that the module was traced with."""

    def run_transform(self, expr: Expr) -> Expr:
        """Exchange the shape of a tensor for a constant."""
        if not is_apply_def(expr, OPS["GetVarShape"]):
            return expr
        shape = expr.inputs[0]._shape  # type: ignore[attr-defined]
        return expr if shape is None else _as_constant(expr, Tensor(np.array(shape, "int32")))


@register_pass("FlodConstant")
class FlodConstant(ForwardPass):
    """What is computed from constants alone is computed now. The spelling is the API's."""

    required_pass = ("AttrToConstant",)
    run_once = False

    def run_transform(self, expr: Expr) -> Expr:
        """Exchange a call whose inputs are all constants."""
        if len(expr.outputs) != 1 or is_constant(expr) or is_getattr(expr) or is_call_module(expr):
            return expr
        if not all(is_constant(n.expr) for n in expr.inputs) or _draws(expr):
            return expr
        value = expr.interpret(*(n.expr.value for n in expr.inputs))[0]
        return _as_constant(expr, value) if isinstance(value, Tensor) else expr


def _draws(expr: Expr) -> bool:
    """Whether an expression gives another result each time."""
    if isinstance(expr, CallFunction):
        return expr.func.__module__.startswith("megengine.random") or expr.func is F.dropout
    return is_apply_def(expr) and bool(expr.opdef._effect)  # type: ignore[attr-defined]


_FUNCTIONS = {F.add: "__add__", F.sub: "__sub__", F.mul: "__mul__", F.div: "__truediv__", F.neg: "__neg__"}
_TURNED = {"__radd__": "__add__", "__rmul__": "__mul__", "__iadd__": "__add__", "__imul__": "__mul__"}


@register_pass("NormElemWise")
class NormElemWise(BackwardPass):
    """Sums and products are written in one way: ``x + c`` and ``x * c``, the constant last."""

    required_pass = ("FlodConstant",)
    run_once = False

    def run_transform(self, expr: Expr) -> Expr:
        """Write an elementwise call in the one way."""
        graph: Any = expr.top_graph
        if is_call_function(expr) and expr.func in _FUNCTIONS:  # type: ignore[attr-defined]
            args = tuple(expr.named_args.values())
            if isinstance(args[0], TensorNode):
                return method_call(graph, _FUNCTIONS[expr.func], args, expr)  # type: ignore[no-any-return, attr-defined]
            return expr
        if not is_call_tensor_method(expr):
            return expr
        method, args = expr.method, expr.args  # type: ignore[attr-defined]
        if method == "__neg__":
            return method_call(graph, "__mul__", (args[0], -1.0), expr) if _is_float(args[0]) else expr
        if method in _TURNED:
            return method_call(graph, _TURNED[method], args, expr)  # type: ignore[no-any-return]
        if len(args) != 2 or not _is_float(args[0]):
            return expr
        if method in ("__add__", "__mul__") and is_constant(args[0].expr) and isinstance(args[1], TensorNode):
            if not is_constant(args[1].expr):
                return method_call(graph, method, (args[1], args[0]), expr)  # type: ignore[no-any-return]
        if method in ("__sub__", "__isub__") and is_const_arg(args[1]):
            return method_call(graph, "__add__", (args[0], _turned(graph, args[1], expr, _minus)), expr)  # type: ignore[no-any-return]
        if method in ("__truediv__", "__itruediv__") and is_const_arg(args[1]):
            return method_call(graph, "__mul__", (args[0], _turned(graph, args[1], expr, _inverse)), expr)  # type: ignore[no-any-return]
        return expr


def _is_float(node: Any) -> bool:
    return isinstance(node, TensorNode) and node.dtype is not None and np.dtype(node.dtype).kind == "f"


def _minus(x: Any) -> Any:
    return -x


def _inverse(x: Any) -> Any:
    return 1.0 / x


def _turned(graph: Any, value: Any, expr: Expr, how: Any) -> Any:
    """A constant as its opposite or inverse."""
    known = get_const_value(value)
    return constant(graph, how(known), expr) if isinstance(known, Tensor) else how(known)
