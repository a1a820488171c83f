"""Writing into a graph that is there: nodes are computed with as if they were tensors.

Behind every node is a stand-in, a tensor of zeros of its shape, so shapes and structures come from running the call.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core._imperative_rt.ops import OPS
from ..functional.tensor import zeros
from ..tensor import Tensor
from .builder import _state
from .expr import Apply, Constant, Expr, GetAttr, is_apply_def, is_call_tensor_method
from .graph import InternalGraph
from .known import ORIGINAL
from .module_tracer import (
    _call_method,
    _record,
    active_module_tracer,
    current_tracer,
    module_tracer,
    patched,
    paused,
    set_active_module_tracer,
)
from .node import ModuleNode, NodeMixin, TensorNode


class _InsertTracer(module_tracer):
    def __init__(self, graph: InternalGraph, after: Expr | None) -> None:
        super().__init__()
        self._before = None  # any tensor may be used as a constant
        self.graph = graph
        self.after = after
        self.made: list[Expr] = []
        self._fakes: dict[int, Tensor] = {}
        self.push_scope(graph)

    def takes_nodes(self) -> bool:
        return len(self._scopes) == 1

    def place(self, expr: Expr) -> None:
        """After what it needs, or after the expression that was given; constants and attributes go along."""
        graph = self.graph
        loose = [n.expr for n in expr.inputs if isinstance(n.expr, (GetAttr, Constant)) and n.expr in self.made]
        firm = [n.expr for n in expr.inputs if n.expr not in loose]
        at = -1
        for e in (*firm, *([self.after] if self.after is not None else ())):
            if e in graph._exprs:
                at = max(at, graph._exprs.index(e))
        if self.after is not None and self.made:
            at = max(at, *(graph._exprs.index(e) for e in self.made))
        for e in loose:
            where = graph._exprs.index(e)
            if len(e.outputs[0].users) <= 1:  # nobody else needs it earlier
                del graph._exprs[where]
                at += where > at
                graph._exprs.insert(at, e)
            else:
                at = max(at, where)
        graph._cursor = at + 1
        self.made.append(expr)

    def stand_in(self, node: TensorNode) -> Tensor:
        fake = self._fakes.get(id(node))
        if fake is None:
            if node.top_graph is not self.graph:
                raise AssertionError(f"insert_exprs: {node} is a node of another graph than {self.graph._name}.")
            if node.value is None and node._shape is None:
                raise RuntimeError(f"insert_exprs: the shape of {node} is not known. Set its shape and dtype.")
            fake = self._known(node)
            with paused():
                if node.value is not None:
                    fake = Tensor(node.value)
                elif fake is None:
                    fake = zeros(node._shape or (), dtype=node._dtype or "float32", device=node._device)
            self._fakes[id(node)] = fake
            self._scopes[0].nodes[id(fake)] = (fake, node)
        return fake

    def _known(self, node: TensorNode) -> Tensor | None:
        """The value of what is computed from shapes alone: sizes must be right for calls to run."""
        expr = node.expr
        if is_apply_def(expr, OPS["GetVarShape"]):
            return Tensor(np.array(expr.inputs[0]._shape, "int32"))
        if node._dtype != np.int32 or not expr.inputs or len(expr.outputs) != 1 or not is_call_tensor_method(expr):
            return None
        values = [self._known(n) if isinstance(n, TensorNode) else None for n in expr.inputs]
        if any(v is None for v in values):
            return None
        with paused():
            found: Tensor = expr.interpret(*values)[0]
        return found

    def note_wrapped(self, value: Any) -> None:
        super().note_wrapped(value)
        node = self._scopes[-1].nodes[id(value)][1]
        if isinstance(node, TensorNode) and self.takes_nodes():
            self._fakes[id(node)] = value

    def builder_of(self, node: ModuleNode) -> Any:
        mod = node.owner
        if mod is None:
            raise RuntimeError(f"insert_exprs: the module of {node} is gone.")
        builder = self.builder_for(mod)
        if not _state(builder).qualname:
            _state(builder).qualname = node.qualname
        self._scopes[-1].nodes[id(builder)] = (builder, node)
        return builder


class InsertExprs:
    """The context of ``InternalGraph.insert_exprs``."""

    def __init__(self, graph: InternalGraph, expr: Expr | None) -> None:
        if expr is not None and expr.top_graph is not graph:
            raise AssertionError(f"insert_exprs: {expr} is not in {graph._name}.")
        self.graph = graph
        self.after = expr if expr is not None and expr in graph._exprs else None

    def __enter__(self) -> InsertExprs:
        if active_module_tracer() is not None:
            raise RuntimeError("insert_exprs: a module is being traced already.")
        self._patches = patched()
        self._patches.__enter__()
        self.tracer = _InsertTracer(self.graph, self.after)
        set_active_module_tracer(self.tracer)
        return self

    def __exit__(self, kind: Any, *rest: Any) -> None:
        tracer, graph = self.tracer, self.graph
        graph._cursor = None
        try:
            if kind is not None:
                for expr in reversed(tracer.made):
                    if expr in graph._exprs:
                        graph._drop(expr)
            else:
                self._build(tracer, graph)
        finally:
            set_active_module_tracer(None)
            self._patches.__exit__(None, None, None)
        if kind is None:
            owner = graph._root._module()
            owner._update_ref()

    def _build(self, tracer: _InsertTracer, graph: InternalGraph) -> None:
        """Traced modules in place of modules that were called here for the first time."""
        from .traced_module import TracedModule, _compile
        from .utils import assign_attr

        for expr in tracer.made:
            if not isinstance(expr, GetAttr) or not isinstance(expr.outputs[0], ModuleNode):
                continue
            base: Any = expr.inputs[0]
            mod = expr.outputs[0].owner
            builder = tracer.builders.get(id(mod))
            if builder is None or isinstance(mod, TracedModule) or tracer.is_builtin(mod):
                continue
            if _state(builder).argdef_graph_map:
                built = builder.build()
                assign_attr(built, base.owner, expr.name)
                built._update_ref()
                _compile(built)


def inserting(node: Any) -> bool:
    """Whether nodes of this graph are being computed with."""
    tracer = active_module_tracer()
    return isinstance(tracer, _InsertTracer) and tracer.takes_nodes() and node.top_graph is tracer.graph


def insert_shape(node: TensorNode) -> Any:
    """A node for the shape."""
    sizes = lambda x: (Tensor(np.array(x._tuple_shape, "int32"), device=x.device),)  # noqa: E731
    return _record(Apply(OPS["GetVarShape"]()), (node,), {}, sizes)[0]


def insert_attribute(node: ModuleNode, name: str) -> Any:
    """A node for an attribute of a module."""
    if not inserting(node):
        raise AttributeError(
            f"{type(node).__name__} has no attribute {name!r}; attributes of its module are nodes inside "
            "graph.insert_exprs()."
        )
    tracer = current_tracer()
    builder = tracer.builder_of(node)
    value = getattr(builder, name)
    if isinstance(value, Tensor) or isinstance(value, NodeMixin):
        return tracer.node_of(value)
    return value


def insert_module_call(node: ModuleNode, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Nodes for the results of a module."""
    from .module_tracer import _stand_ins, _to_nodes

    if not inserting(node):
        raise RuntimeError(f"{node} is a node; it can be called inside graph.insert_exprs().")
    tracer = current_tracer()
    builder = tracer.builder_of(node)
    args, kwargs = _stand_ins((args, kwargs))
    out = builder(*args, **kwargs)
    leaves = out
    return leaves if _holds_nodes(leaves) else _to_nodes(leaves)


def _holds_nodes(values: Any) -> bool:
    from .node import Node
    from .pytree import tree_flatten

    return any(isinstance(x, Node) for x in tree_flatten(values)[0])


def _method(name: str) -> Any:
    def method(self: TensorNode, *args: Any, **kwargs: Any) -> Any:
        if not inserting(self):
            raise RuntimeError(f"{self} is a node; it can be computed with inside graph.insert_exprs().")
        return _call_method(name, ORIGINAL[name], self, args, kwargs)

    method.__name__ = name
    return method


_SKIP = {"__eq__", "__ne__"}
for _name in ORIGINAL:
    if _name not in _SKIP:
        setattr(TensorNode, _name, _method(_name))
setattr(TensorNode, "T", property(lambda self: self.transpose()))  # noqa: B010
