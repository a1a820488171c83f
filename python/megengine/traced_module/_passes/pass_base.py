"""What a pass is, and how it goes over the graphs of a module."""

from __future__ import annotations

import copy
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from ..expr import Expr, is_call_module
from ..graph import InternalGraph
from ..traced_module import TracedModule

_MOST = 100  # times that a pass goes over a graph
_REGISTERED: dict[str, type[BasePass]] = {}


def register_pass(name: str) -> Callable[[type[BasePass]], type[BasePass]]:
    """A class decorated with it is the pass of that name."""

    def register(cls: type[BasePass]) -> type[BasePass]:
        cls.name = name
        _REGISTERED[name] = cls
        return cls

    return register


def get_registered_pass(pass_name: str) -> type[BasePass]:
    """The pass of a name."""
    if pass_name not in _REGISTERED:
        raise AssertionError(f"optimize: there is no pass {pass_name!r}; there are {', '.join(sorted(_REGISTERED))}.")
    return _REGISTERED[pass_name]


class PassContext:
    """Which passes are left out, and what else they are told.

    Args:
        disabled_pass: names of passes.
        pass_config: values that passes look up by name.
    """

    def __init__(self, disabled_pass: Iterable[str] | None = None, pass_config: dict[str, Any] | None = None) -> None:
        self._disabled_pass: set[str] = set()
        self._config = dict(pass_config or {})
        self._handle: dict[str, Any] = {}
        if disabled_pass:
            self.add_diabled_pass(disabled_pass)

    def add_diabled_pass(self, passes: Iterable[str] | str) -> None:
        """Leave passes out. The spelling is the API's."""
        for name in [passes] if isinstance(passes, str) else passes:
            self._disabled_pass.add(name if isinstance(name, str) else name.name)

    def pass_enabled(self, pas: Any) -> bool:
        """Whether a pass, or the one of a name, is not left out."""
        return (pas if isinstance(pas, str) else pas.name) not in self._disabled_pass


_default = PassContext()


def get_default_pass_context() -> PassContext:
    """What passes are run with unless told otherwise."""
    return _default


class BasePass(metaclass=ABCMeta):
    """A rewrite that goes over all graphs of a module, submodules first, until nothing changes."""

    name = ""
    run_once = True  # over each graph
    required_pass: tuple[str, ...] = ()  # passes that run before it

    def __init__(self) -> None:
        self.pass_ctx = get_default_pass_context()

    def __call__(self, module: TracedModule, pass_ctx: PassContext | None = None) -> TracedModule:
        assert isinstance(module, TracedModule), f"{self.name}: needs a TracedModule; got {type(module).__name__}."
        self.pass_ctx = pass_ctx or get_default_pass_context()
        return self.apply_optimization(module, self.pass_ctx)

    def apply_optimization(self, module: TracedModule, pass_ctx: PassContext) -> TracedModule:
        """Run what it requires, then itself, on the module as it is."""
        for needed in self.required_pass:
            if pass_ctx.pass_enabled(needed):
                get_registered_pass(needed)()(module, pass_ctx)
        for graph in self._graphs(module):
            self.before_visit_graph(graph)
            for _ in range(1 if self.run_once else _MOST):
                if not self.visit_graph(graph):
                    break
            graph.compile()
        module._update_ref()
        return module

    def _graphs(self, module: TracedModule) -> list[InternalGraph]:
        return [g for top in module.argdef_graph_map.values() for g in reversed(list(top._graphs()))]

    @abstractmethod
    def visit_graph(self, graph: InternalGraph) -> bool:
        """Go over a graph once; whether anything changed."""

    def before_visit_graph(self, graph: InternalGraph) -> None:  # noqa: B027
        """Called with each graph before the pass goes over it."""

    def run_transform(self, expr: Expr) -> Expr:
        """Rewrite around an expression; what stands for it afterwards."""
        return expr

    def _visit(self, graph: InternalGraph, exprs: Iterable[Expr]) -> bool:
        changed = False
        for expr in exprs:
            if expr not in graph._exprs or (is_call_module(expr) and expr.graph is not None):  # type: ignore[attr-defined]
                continue
            new = self.run_transform(expr)
            if new is expr:
                continue
            if len(new.outputs) == len(expr.outputs):
                graph.replace_node({a: b for a, b in zip(expr.outputs, new.outputs) if a is not b})
            changed = True
        if changed:
            graph.compile()
        return changed


class ForwardPass(BasePass):
    """A pass that goes from the first expression to the last."""

    def visit_graph(self, graph: InternalGraph) -> bool:
        return self._visit(graph, tuple(graph._exprs))


class BackwardPass(BasePass):
    """A pass that goes from the last expression to the first."""

    def visit_graph(self, graph: InternalGraph) -> bool:
        return self._visit(graph, tuple(reversed(graph._exprs)))


def copied(module: TracedModule) -> TracedModule:
    """A module that a pass may change."""
    return copy.deepcopy(module)
