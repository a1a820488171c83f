"""TracedModule, and how a module becomes one."""

from __future__ import annotations

import sys
from collections import OrderedDict, UserDict
from collections.abc import Callable, Iterable
from copy import copy, deepcopy
from inspect import FullArgSpec
from types import FunctionType
from typing import Any

from .. import module as M
from .. import random
from ..core._imperative_rt.opdef import OpDef
from ..module.module import Module
from ..tensor import Tensor
from . import known
from .builder import TracedModuleBuilder as TracedModuleBuilder
from .builder import _input_names, _state, make_builder
from .checker import TracedModuleChecker
from .expr import _with_constants
from .filters import BaseFilter as BaseFilter
from .filters import ExprFilter as ExprFilter
from .filters import ExprFilterCallFunction as ExprFilterCallFunction
from .filters import ExprFilterCallMethod as ExprFilterCallMethod
from .filters import ExprFilterExprId as ExprFilterExprId
from .filters import NodeFilter as NodeFilter
from .filters import NodeFilterName as NodeFilterName
from .filters import NodeFilterNodeId as NodeFilterNodeId
from .filters import NodeFilterType as NodeFilterType
from .flatten import flatten_graph
from .graph import InternalGraph as InternalGraph
from .graph import _EndPoints
from .module_tracer import (
    active_module_tracer,
    checking,
    module_tracer,
    patched,
    paused,
    set_active_module_tracer,
    trace_apply,
)
from .naming import NameSpace as NameSpace
from .node import Node
from .pytree import TreeDef, _is_const_leaf, tree_flatten
from .serialization import pack_module, unpack_module
from .tm_config import _get_default_checker
from .utils import _argspec, _convert_kwargs_to_args

__all__ = [
    "BaseFilter",
    "ExprFilter",
    "ExprFilterCallFunction",
    "ExprFilterCallMethod",
    "ExprFilterExprId",
    "InternalGraph",
    "NameSpace",
    "NodeFilter",
    "NodeFilterName",
    "NodeFilterNodeId",
    "NodeFilterType",
    "TracedModule",
    "TracedModuleBuilder",
    "cpp_apply_module_trace",
    "register_as_builtin",
    "trace_module",
    "wrap",
]


class _Values(UserDict[Node, Any]):
    """The values of nodes. No dict: the tensors in it are no part of the module."""


class TracedModule(Module):
    """A module whose forward is a graph that can be looked at, changed, saved and run without the original code.

    Made by ``trace_module``.

    Args:
        is_top: it is the root.
        argdef_graph_map: a graph for each form of arguments.
        argdef_outdef_map: the form of the results for each form of arguments.
        is_qat: it came from a quantisation-aware module, whose parts stay together.
    """

    argdef_graph_map: Any = None
    argdef_outdef_map: Any = None

    def __init__(
        self,
        is_top: bool,
        argdef_graph_map: dict[TreeDef, InternalGraph],
        argdef_outdef_map: dict[TreeDef, TreeDef],
        is_qat: bool = False,
    ) -> None:
        super().__init__()
        self.argdef_graph_map = argdef_graph_map
        self.argdef_outdef_map = argdef_outdef_map
        self._is_top = is_top
        self.watch_points: list[Node] = []
        self.watch_node_value: Any = _Values()
        self.end_points: list[Node] = []
        self.is_qat = is_qat
        self.argspec: FullArgSpec | None = None

    # ---- running

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the original module computes.

        Raises:
            AssertionError: for arguments of a form that was not traced; constants are part of the form.
        """
        if self.argspec is not None:
            args, kwargs = _convert_kwargs_to_args(self.argspec, args, kwargs, is_bounded=True)
        leaves, form = tree_flatten(((self, *args), kwargs))
        graph = self.argdef_graph_map.get(form)
        if graph is None:
            known_forms = "\n".join(f"forward({f._args_kwargs_repr()})" for f in self.argdef_graph_map)
            raise AssertionError(
                f"support input args kwargs format: \n{known_forms}, but get: \n{form._args_kwargs_repr()}"
            )
        inputs = [x for x in leaves if not _is_const_leaf(x)]
        if self.watch_points or self.end_points:
            return self._run_watched(graph, form, inputs)
        return self._results(form, graph.interpret(*inputs))

    def _results(self, form: TreeDef, values: list[Any]) -> Any:
        out = self.argdef_outdef_map[form]
        return out.unflatten(values if out.num_leaves == len(values) else _with_constants(out, values))

    def _run_watched(self, graph: InternalGraph, form: TreeDef, inputs: list[Any]) -> Any:
        nodes = [*self.watch_points, *self.end_points]
        for node in nodes:
            assert node.top_graph is not None
            node.top_graph._rst.clear()
        outputs: Any = None
        try:
            outputs = self._results(form, graph.interpret(*inputs))
        except _EndPoints:
            pass
        found = {n: n.top_graph._rst.get(n, []) for n in nodes if n.top_graph is not None}
        kept = {n: v[0] if len(v) == 1 else v for n, v in found.items() if n in self.watch_points}
        self.watch_node_value = _Values(kept)
        if not self.end_points:
            return outputs
        missing = [n for n in self.end_points if not found.get(n)]
        assert not missing, f"set_end_points: {missing} got no value in this call."
        return [found[n][-1] for n in self.end_points]

    def set_watch_points(self, nodes: Any) -> None:
        """Keep the values of nodes in ``watch_node_value`` when the module runs; those of submodules too."""
        self.watch_points = self._own_nodes(nodes, "set_watch_points")
        for node in self.watch_points:
            node.top_graph._watch_point.append(node)  # type: ignore[union-attr]

    def clear_watch_points(self) -> None:
        """Keep no values any more."""
        for graph in self._all_graphs():
            graph._watch_point = []
            graph._rst.clear()
        self.watch_points, self.watch_node_value = [], _Values()

    def set_end_points(self, nodes: Any) -> None:
        """Return the values of these nodes as a list, and stop as soon as they are there."""
        self.end_points = self._own_nodes(nodes, "set_end_points")
        for node in self.end_points:
            node.top_graph._end_point.append(node)  # type: ignore[union-attr]

    def clear_end_points(self) -> None:
        """Return what the module returns."""
        for graph in self._all_graphs():
            graph._end_point = []
            graph._rst.clear()
        self.end_points = []

    def _own_nodes(self, nodes: Any, who: str) -> list[Node]:
        assert self._is_top, f"{who}: only the root of a traced module can do this."
        found = list(nodes) if isinstance(nodes, Iterable) and not isinstance(nodes, Node) else [nodes]
        graphs = {id(g) for g in self._all_graphs()}
        for node in found:
            inside = isinstance(node, Node) and node.top_graph is not None and id(node.top_graph) in graphs
            assert inside, f"{who}: {node!r} is no node of this module."
        return found

    # ---- graphs

    @property
    def graph(self) -> InternalGraph:
        """The graph, where there is one."""
        assert len(self.argdef_graph_map) == 1, (
            f"graph: this module has {len(self.argdef_graph_map)} graphs, one for each form of arguments; "
            "argdef_graph_map has them all."
        )
        found: InternalGraph = next(iter(self.argdef_graph_map.values()))
        return found

    def _all_graphs(self) -> list[InternalGraph]:
        return [g for m in self.modules() if isinstance(m, TracedModule) for g in m.argdef_graph_map.values()]

    def flatten(self) -> TracedModule:
        """The same module with the graphs of submodules written into its own; parameters are shared.

        >>> from megengine.traced_module import trace_module
        >>> tm = trace_module(M.Sequential(M.Sequential(M.ReLU())), F.ones(3))
        >>> print(str(tm.flatten().graph).expandtabs(2))
        Sequential.Graph (self, inp) {
          %2: _0__0 = getattr(self, "0.0") -> (ReLU)
          %3: _0_out = _0__0(inp, )
          return _0_out
        }
        """
        new = copy(self)
        new.argdef_graph_map = {}
        new.argdef_outdef_map = dict(self.argdef_outdef_map)
        new.watch_points, new.watch_node_value, new.end_points = [], _Values(), []
        for form, graph in self.argdef_graph_map.items():
            flat = flatten_graph(graph)
            new.argdef_graph_map[form] = flat
            flat._update_ref(new, None, None)
            flat.compile()
            flat._reset_ids()
        return new

    def __copy__(self) -> TracedModule:
        """Another module over the same parameters, submodules and graphs."""
        new = object.__new__(type(self))
        state = dict(vars(self))
        state["_modules"] = list(self._modules)
        state["_forward_hooks"], state["_forward_pre_hooks"] = OrderedDict(), OrderedDict()
        new.__dict__.update(state)
        return new

    def __deepcopy__(self, memo: dict[int, Any]) -> TracedModule:
        new = object.__new__(type(self))
        memo[id(self)] = new
        for key, value in vars(self).items():
            if key == "argdef_graph_map":
                value = {f: deepcopy(g, memo) for f, g in value.items()}
            elif key in ("argdef_outdef_map", "argspec"):
                value = copy(value)
            elif key in ("watch_points", "end_points"):
                value = []
            elif key == "watch_node_value":
                value = _Values()
            else:
                value = deepcopy(value, memo)
            new.__dict__[key] = value
        if new._is_top:
            new._update_ref()
        return new

    # ---- references and files

    def _update_ref(self) -> None:
        """Point all graphs at the modules they belong to, this one being the root."""
        for graph in self.argdef_graph_map.values():
            _update_graph(graph, self, None, None, set())

    def _trace_state(self) -> dict[str, Any]:
        kept = ("training", "end_points", "watch_points")
        state: dict[str, Any] = {k: self.__dict__[k] for k in ("training",)}
        state["points"] = tuple(n._id for k in kept[1:] for n in self.__dict__[k])
        state["graphs"] = tuple(str(g) for g in self.argdef_graph_map.values())
        return state

    def __getstate__(self) -> dict[str, Any]:
        return pack_module(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        unpack_module(self, state)


def _update_graph(graph: InternalGraph, owner: Any, top: Any, parent: Any, seen: set[int]) -> None:
    from .expr import CallMethod

    if id(graph) in seen:
        return
    seen.add(id(graph))
    graph._update_ref(owner, top, parent)
    for expr in graph._exprs:
        if isinstance(expr, CallMethod) and expr.method == "__call__":
            below = expr.graph
            if below is not None:
                _update_graph(below, expr.inputs[0].owner, top or graph, graph, seen)  # type: ignore[attr-defined]


# ---- what is not looked into


def _register_all_builtin_modules() -> None:
    for package in (M, *(sys.modules.get(f"{M.__name__}.{n}") for n in ("qat", "quantized", "external"))):
        for name, value in tuple(vars(package).items()) if package is not None else ():
            if not name.startswith("_") and isinstance(value, type) and issubclass(value, Module):
                if value not in (Module, M.Sequential) and value.__module__.startswith("megengine."):
                    module_tracer.register_as_builtin(value)
    for where in ("observer", "fake_quant"):
        package = sys.modules.get(f"megengine.quantization.{where}")
        for value in tuple(vars(package).values()) if package is not None else ():
            if isinstance(value, type) and issubclass(value, Module) and value is not Module:
                module_tracer.register_as_builtin(value)
    from .fake_quant import FakeQuantize

    module_tracer.register_as_builtin(FakeQuantize)


def register_as_builtin(mod_cls: type[Module]) -> type[Module]:
    """Keep modules of this class as they are: a trace records their call and does not look inside.

    >>> from megengine.traced_module import register_as_builtin, trace_module
    >>> @register_as_builtin
    ... class Swish(M.Module):
    ...     def forward(self, x):
    ...         return x * F.sigmoid(x)
    >>> "Swish" in str(trace_module(M.Sequential(Swish()), F.ones(2)).graph)
    True
    """
    return module_tracer.register_as_builtin(mod_cls)


_user_modules: list[type[Module]] = []


def wrap(func: Callable[..., Any]) -> Callable[..., Any]:
    """Record calls of a function as one expression, and do not look inside. For functions at the top of a file.

    Graphs that call it can be loaded where a function of the same module and name is wrapped.

    >>> from megengine.traced_module import wrap
    >>> @wrap
    ... def scaled(x):
    ...     return x * 2
    """
    if not isinstance(func, FunctionType):
        raise TypeError(f"wrap: needs a function that is written in Python; got {func!r}.")
    if "<locals>" in func.__qualname__ or "." in func.__qualname__:
        raise NotImplementedError(
            f"wrap: {func.__qualname__} must be called at the top level of a module: a function inside another, or a "
            "method, has no name that a file could keep."
        )
    known.register_function(func)
    return func


def cpp_apply_module_trace(opdef: OpDef, *args: Any) -> Any:
    """Run a primitive op; while a module is traced it is written down."""
    return trace_apply(opdef, *args)


# ---- tracing


class _Kept:
    """The values of a module's tensors and the state of the generator, put back when tracing has run forward."""

    def __init__(self, mod: Module) -> None:
        self._tensors = [(t, Tensor(t)) for t in mod.tensors()]
        self._random = random.get_rng_state()

    def restore(self) -> None:
        for tensor, value in self._tensors:
            tensor._reset(value)
        random.set_rng_state(self._random)


def _copied(values: Any) -> Any:
    leaves, form = tree_flatten(values)
    return form.unflatten([deepcopy(x) if isinstance(x, Tensor) else x for x in leaves])


def trace_module(mod: Module, *args: Any, **kwargs: Any) -> Any:
    """Run a module with these arguments and make a TracedModule of what it does.

    Submodules of ``megengine.module`` are kept whole and shared with the original; others become TracedModules. Python
    control flow is followed once: what does not depend on tensors is part of the graph as it was. The values of
    parameters and buffers are left as they were.

    Args:
        mod: the module.
        args: positional arguments of its forward: tensors, and structures of tensors and constants.
        kwargs: keyword arguments.

    >>> from megengine.traced_module import trace_module
    >>> class Net(M.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.fc = M.Linear(3, 2)
    ...
    ...     def forward(self, x):
    ...         return F.relu(self.fc(x)) + 1
    >>> print(str(trace_module(Net(), F.ones((1, 3))).graph).expandtabs(2))
    Net.Graph (self, x) {
      %2: fc = getattr(self, "fc") -> (Linear)
      %3: fc_out = fc(x, )
      %4: relu_out = nn.relu(fc_out, )
      %5: add_out = relu_out.__add__(1, )
      return add_out
    }
    """
    if not isinstance(mod, Module):
        raise AssertionError(f"trace_module: needs a Module; got a {type(mod).__name__}.")
    if active_module_tracer() is not None:
        raise RuntimeError("trace_module: a module is being traced already in this thread.")
    _register_all_builtin_modules()
    if module_tracer.is_builtin(mod):
        return mod
    spec = _argspec(type(mod).forward)
    if isinstance(mod, TracedModule):
        spec = mod.argspec
    if spec is not None:
        args, kwargs = _convert_kwargs_to_args(spec, args, kwargs, is_bounded=True)
    kwargs = dict(sorted(kwargs.items()))
    _check_arguments(mod, args, kwargs)
    kept = _Kept(mod)
    tracer = module_tracer()
    if checking():
        tracer.checker = TracedModuleChecker(tracer)
    builder = make_builder(mod, True)
    tracer.builders[id(mod)] = builder
    state = _state(builder)
    state.qualname = getattr(mod, "_name", None) or type(mod).__name__
    if isinstance(mod, TracedModule) and mod.argdef_graph_map:
        state.qualname = next(iter(mod.argdef_graph_map.values())).qualname
    given = _copied((args, kwargs))
    with patched():
        set_active_module_tracer(tracer)
        try:
            _, form = tree_flatten(((builder, *given[0]), given[1]))
            graph, outputs, out_form = state.trace(given[0], given[1], None)
            state.argdef_graph_map[form] = graph
            state.argdef_outdef_map[form] = out_form
            made = builder.build()
        finally:
            set_active_module_tracer(None)
            kept.restore()
    made._is_top = True
    made.argspec = spec
    made._update_ref()
    _compile(made)
    for graph in made.argdef_graph_map.values():
        graph._reset_ids()
    if _get_default_checker():
        with paused():
            again = _copied((args, kwargs))
            try:
                results = made(*again[0], **again[1])
                if not tracer.approximate:
                    TracedModuleChecker(tracer).check_net_outputs(results, outputs)
            finally:
                kept.restore()
    return made


def _check_arguments(mod: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    _input_names(mod, args, kwargs)  # raises for what cannot be an argument
    for leaf in tree_flatten((args, kwargs))[0]:
        if isinstance(leaf, Module):
            raise TypeError(f"trace_module: a {type(leaf).__name__} is an argument; make it an attribute of the net.")


def _compile(made: TracedModule) -> None:
    """Drop what is not needed, in all graphs."""
    for m in made.modules():
        if isinstance(m, TracedModule):
            for graph in m.argdef_graph_map.values():
                graph.compile()
