"""Helpers of passes."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from ...tensor import Tensor
from ..expr import CallMethod, Constant, Expr, GetAttr, is_constant
from ..node import Node, TensorNode


def get_const_value(expr: Any, fall_back: Any = None) -> Any:
    """The value of a constant: of an expression, a node, or a plain number; ``fall_back`` for anything else."""
    value = expr
    if isinstance(value, Node):
        value = value.expr
    if isinstance(value, Expr):
        if is_constant(value):
            value = value.value  # type: ignore[attr-defined]
        elif isinstance(value, GetAttr) and isinstance(value.outputs[0], TensorNode):
            owner = value.inputs[0].owner  # type: ignore[attr-defined]
            value = None if owner is None else value.interpret(owner)[0]
        else:
            return fall_back
    return value if isinstance(value, (Tensor, int, float, bool, np.ndarray, np.generic)) else fall_back


def is_const_arg(value: Any) -> bool:
    """Whether an argument is a number, or a node with a constant value."""
    return get_const_value(value, _NOTHING) is not _NOTHING


_NOTHING = object()


def as_array(value: Any) -> np.ndarray[Any, Any]:
    """A constant in float64, so that products of constants are rounded once."""
    array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
    return array.astype("float64")


def constant(graph: Any, value: Any, before: Expr) -> TensorNode:
    """A node for a constant, put before an expression."""
    expr = Constant(value if isinstance(value, Tensor) else Tensor(value))
    graph._cursor = graph._exprs.index(before)
    graph._insert(expr)
    graph._cursor = None
    return expr.outputs[0]  # type: ignore[return-value]


def insert_call(graph: Any, expr: Any, args: tuple[Any, ...], kwargs: dict[str, Any], like: Expr) -> Any:
    """Put a call after ``like``, with results of the same kind."""
    expr._set_call(args, kwargs)
    graph._cursor = graph._exprs.index(like) + 1
    expr.out_def = like.out_def
    for node in like.outputs:
        twin = TensorNode(expr, None, None, node._shape, node._dtype, node._qparams, node._device)  # type: ignore[attr-defined]
        expr.outputs.append(twin)
    graph._insert(expr)
    graph._cursor = None
    return expr


def method_call(graph: Any, method: str, args: tuple[Any, ...], like: Expr) -> Any:
    """``args[0].method(*args[1:])`` after an expression, with results of the same kind."""
    return insert_call(graph, CallMethod(args[0], method), args, {}, like)


def only_user(node: Node) -> bool:
    """Whether one expression uses a node, and it is no result."""
    graph = node.top_graph
    return len(node.users) == 1 and (graph is None or not any(n is node for n in graph._outputs))


def refer(graph: Any, node: Any) -> None:
    """Point a node at its graph."""
    node._top_graph = weakref.ref(graph)
