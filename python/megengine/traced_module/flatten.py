"""One graph in place of the graphs of a module and its submodules."""

from __future__ import annotations

from copy import copy
from typing import Any

from .expr import CallMethod, Expr, GetAttr
from .graph import InternalGraph
from .node import Node


def flatten_graph(graph: InternalGraph) -> InternalGraph:
    """A copy of a graph with every call of a traced module replaced by what it calls.

    Modules of quantisation-aware training stay whole: what they do is quantised as one.
    """
    flat = InternalGraph(graph._name, graph._qualname)
    nodes: dict[int, Node] = {}
    for node in graph._inputs:
        expr = copy(node.expr)
        nodes[id(node)] = twin = _twin(node, expr)
        twin._name = flat._namespace.create_unique_name(node.name, twin)
        flat._add_input(twin)
    # The names of the root stay as they are; those that come from below get out of their way.
    for top in graph._exprs:
        for node in top.outputs:
            flat._namespace.associate_name_with_obj(node.name, node)
    _inline(flat, graph, nodes, "")
    flat._outputs = [nodes[id(n)] for n in graph._outputs]
    return flat


def _twin(node: Node, expr: Expr) -> Node:
    new = copy(node)
    new.expr, new._id, new._name = expr, None, None
    expr._id = None
    expr.outputs.append(new)
    return new


def _inline(flat: InternalGraph, graph: InternalGraph, nodes: dict[int, Node], prefix: str) -> None:
    """Append the expressions of a graph; ``nodes`` has those of its inputs and gets those it makes."""
    for expr in graph._exprs:
        callee = expr.graph if isinstance(expr, CallMethod) else None
        owner: Any = expr.inputs[0].owner if callee is not None else None  # type: ignore[attr-defined]
        if callee is None or owner.is_qat:
            _append(flat, expr, nodes, prefix)
            continue
        below: dict[int, Node] = {id(i): nodes[id(n)] for i, n in zip(callee._inputs, expr.inputs)}
        came = {id(n) for n in below.values()}
        _inline(flat, callee, below, f"{prefix}{expr.inputs[0].name}_")
        for out, inner in zip(expr.outputs, callee._outputs):
            result = below[id(inner)]
            nodes[id(out)] = result
            if id(result) not in came:
                # It is known by the name of what the module returned.
                came.add(id(result))
                flat._namespace.free_name(result.name)
                _name(flat, result, out, prefix)


def _append(flat: InternalGraph, expr: Expr, nodes: dict[int, Node], prefix: str) -> None:
    new = copy(expr)
    new.inputs = [nodes[id(n)] for n in expr.inputs]
    if isinstance(new, GetAttr):
        above = new.inputs[0].expr
        if isinstance(above, GetAttr):  # one step from the root
            new.inputs, new.name = [above.inputs[0]], f"{above.name}.{new.name}"
    for node in new.inputs:
        node.users.append(new)
    for node in expr.outputs:
        nodes[id(node)] = twin = _twin(node, new)
        _name(flat, twin, node, prefix)
    new._id = None
    flat._insert(new)


def _name(flat: InternalGraph, new: Node, old: Node, prefix: str) -> None:
    if prefix:
        new._name = flat._namespace.create_unique_name(prefix + old.name, new)
    else:
        new._name = old._name
        flat._namespace.associate_name_with_obj(old.name, new)
