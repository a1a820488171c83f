"""What stands for a module while its forward is traced."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from ..module.module import Module
from ..tensor import Tensor
from .expr import CallMethod, GetAttr, Input
from .graph import InternalGraph
from .known import qat_module
from .module_tracer import _record, current_tracer, paused, traced_function, tracer_insert
from .node import ModuleNode, NodeMixin, TensorNode
from .pytree import TreeDef, _is_const_leaf, tree_flatten
from .utils import _argspec, _convert_kwargs_to_args, _replace, keep_attribute


class _State:
    """What a builder knows; kept apart so that its attributes are those of the module."""

    def __init__(self, builder: Any, mod: Any) -> None:
        self.builder = builder
        self.mod = mod
        self.temp: dict[str, Any] = {}  # attributes that forward has set
        self.used: dict[str, Any] = {}  # builders and tensors that were asked for
        self.containers: dict[str, tuple[Any, Any]] = {}
        self.argdef_graph_map: dict[TreeDef, InternalGraph] = {}
        self.argdef_outdef_map: dict[TreeDef, TreeDef] = {}
        self.built: Any = None
        self.qualname = ""

    # ---- attributes

    def attribute(self, name: str, value: Any) -> Any:
        """An attribute of the module as forward gets to see it."""
        tracer = current_tracer()
        if isinstance(value, Module):
            child = tracer.builder_for(value)
        elif isinstance(value, Tensor):
            self._getattr(name, value, TensorNode)
            self.used[name] = value
            return value
        elif isinstance(value, (list, tuple, dict)):
            container = self._container(name, value)
            if container is None:
                return value
            child = tracer.builder_for(container)
        else:
            return _patched(value)
        self._getattr(name, child, ModuleNode)
        self.used[name] = child
        return child

    def _getattr(self, name: str, value: Any, kind: Any) -> None:
        tracer = current_tracer()
        node: Any = tracer.node_of(self.builder)
        # self.a.b is one step from the module whose forward runs.
        expr = node.expr
        if isinstance(expr, GetAttr):
            node, name = expr.inputs[0], f"{expr.name}.{name}"
        made = GetAttr(node, kind, name)
        if kind is ModuleNode:
            from .traced_module import TracedModule

            mod = _state(value).mod
            opaque = tracer.is_builtin(mod) and not isinstance(mod, TracedModule)
            made.outputs[0].module_type = type(mod) if opaque else Module  # type: ignore[attr-defined]
            _state(value).qualname = _state(value).qualname or f"{node.qualname}.{name}"
        tracer_insert(tracer, tracer.current_scope(), made)
        NodeMixin.wrap(value, made.outputs[0])

    def _container(self, name: str, value: Any) -> Any:
        """The module that stands for a list, tuple or dict of modules or tensors; None for other contents."""
        known = self.containers.get(name)
        items = list(value.values()) if isinstance(value, dict) else list(value)
        if known is not None and len(known[0]) == len(items) and all(a is b for a, b in zip(known[0], items)):
            return known[1]
        found, container = _replace(value, (Module, Tensor))
        if not found:
            return None
        self.containers[name] = (items, container)
        return container

    # ---- calls

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the module, and write the call down."""
        tracer = current_tracer()
        mod = self.mod
        forward = type(mod).forward
        if not (_argspec(forward) is None or "forward" in vars(mod)):
            try:
                args, kwargs = _convert_kwargs_to_args(forward, args, kwargs, is_bounded=True)
            except TypeError:
                with paused():
                    mod(*args, **kwargs)  # says it better
                raise
        kwargs = dict(sorted(kwargs.items()))
        expr = CallMethod(tracer.node_of(self.builder))
        if tracer.is_builtin(mod):
            return _record(expr, (self.builder, *args), kwargs, lambda _, *a, **k: mod(*_real(a), **_real(k)))
        return self._call_traced(tracer, expr, args, kwargs)

    def _call_traced(self, tracer: Any, expr: CallMethod, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        expr._set_call((self.builder, *args), kwargs)
        outer = tracer.current_scope()
        expr._id = outer._new_id(0)
        graph, outputs, form = self.trace(args, kwargs, outer)
        known = self.argdef_graph_map.get(expr.arg_def)
        if known is None:
            name = outer._namespace.create_unique_name(graph._name, graph)
            graph._name = graph._namespace.name = name
            self.argdef_graph_map[expr.arg_def] = graph
            self.argdef_outdef_map[expr.arg_def] = form
        elif signature(known) != signature(graph):
            raise RuntimeError(
                f"trace_module: {self.qualname} is called twice with arguments of the same form, {expr.arg_def}, but "
                "computes something else the second time; a traced module has one graph for a form. What differs must "
                "be an argument."
            )
        tracer_insert(tracer, outer, expr)
        expr.add_outputs(outputs)
        if tracer.checker is not None:
            tracer.checker._check_call(expr, outputs, None)
        return outputs

    def trace(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], outer: InternalGraph | None
    ) -> tuple[InternalGraph, Any, TreeDef]:
        """Run forward and write its graph."""
        tracer = current_tracer()
        graph = InternalGraph(self.qualname.replace(".", "_") or "graph", self.qualname)
        if outer is not None:
            graph._top = _weak(outer._root)
        leaves, form = tree_flatten((args, kwargs))
        names = _input_names(self.mod, args, kwargs)
        tracer.push_scope(graph)
        try:
            node = Input.make(ModuleNode, "self", self.qualname)
            NodeMixin.wrap(self.builder, node)
            inputs: list[tuple[Any, Any]] = []
            for i, leaf in enumerate(leaves):
                if _is_const_leaf(leaf):
                    continue
                if isinstance(leaf, Tensor) and any(leaf is other for other, _ in inputs):
                    with paused():
                        leaf = leaves[i] = Tensor(leaf)  # given twice: two arguments all the same
                kind = NodeMixin.get_wrapped_type(leaf)
                node = Input.make(kind, names[i])
                if kind is ModuleNode:
                    node.module_type = type(_state(leaf).mod)
                NodeMixin.wrap(leaf, node)
                inputs.append((leaf, node))
            args, kwargs = form.unflatten(leaves)
            outputs = self._run(args, kwargs)
            results, out_form = tree_flatten(outputs)
            for x in results:
                if not isinstance(x, Tensor) and x is not None:
                    raise AssertionError(
                        f"doesn't support {type(x)} in return values, MUST use Tensor or use "
                        f'"register_supported_type" method to register self-defined type; {self.qualname} returned '
                        f"{x!r:.100}."
                    )
            graph._outputs = [tracer.node_of(x) for x in results if x is not None]
            changed = [leaf for leaf, n in inputs if isinstance(leaf, Tensor) and _rewritten(tracer, leaf, n)]
        finally:
            tracer.pop_scope()
        for leaf in changed:
            if tracer._scopes and tracer.find_node(leaf) is not None:
                tracer.mark_stale(leaf, self.qualname)
        return graph, outputs, out_form

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        mod, builder = self.mod, self.builder
        for hook in tuple(mod._forward_pre_hooks.values()):
            changed = hook(builder, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        own = vars(mod).get("forward")
        outputs = own(*args, **kwargs) if own is not None else type(mod).forward(builder, *args, **kwargs)
        for hook in tuple(mod._forward_hooks.values()):
            changed = hook(builder, args, outputs)
            if changed is not None:
                outputs = changed
        return outputs

    # ---- the result

    def build(self) -> Any:
        """The module with traced modules below it: itself if it was not looked into."""
        from .traced_module import TracedModule

        tracer = current_tracer()
        if self.built is not None:
            return self.built
        if tracer.is_builtin(self.mod) and not isinstance(self.mod, TracedModule):
            self.built = self.mod
            return self.mod
        made = TracedModule(False, self.argdef_graph_map, self.argdef_outdef_map, _is_qat(self.mod))
        self.built = made
        for name in ("training", "quantize_disabled", "_name", "_short_name"):
            made.__dict__[name] = getattr(self.mod, name)
        for name, value in self.used.items():
            keep_attribute(made, name, value if isinstance(value, Tensor) else _state(value).build())
        return made


def _weak(graph: InternalGraph) -> Any:
    import weakref

    return weakref.ref(graph)


def _rewritten(tracer: Any, leaf: Tensor, node: Any) -> bool:
    """Whether a tensor that came in was changed in place."""
    now = tracer.find_node(leaf)
    while now is not node and now is not None:
        expr = now.expr
        if isinstance(expr, CallMethod) and (expr.method == "__setitem__" or expr.method.startswith("__i")):
            if expr.method not in ("__invert__",):
                return True
        # A function that gave its argument back.
        now = expr.inputs[0] if expr.inputs else None
    return False


def _is_qat(mod: Any) -> bool:
    if getattr(mod, "is_qat", None) is True:
        return True
    base = qat_module()
    return base is not None and isinstance(mod, base)


def signature(graph: InternalGraph) -> Any:
    """What a graph computes, without names and numbers."""
    place: dict[int, int] = {}
    rows: list[Any] = []
    for expr in (*(n.expr for n in graph._inputs), *graph._exprs):
        row: list[Any] = [type(expr), [place[id(n)] for n in expr.inputs]]
        for key in ("method", "func", "opdef", "arg_def", "const_val", "out_def"):
            if key in vars(expr):
                row.append(vars(expr)[key] if key != "const_val" else str(vars(expr)[key]))
        if isinstance(expr, GetAttr):
            row.append(expr.name)
        rows.append(row)
        for node in expr.outputs:
            place[id(node)] = len(place)
    return rows, [place[id(n)] for n in graph._outputs]


def _input_names(mod: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """A name for every leaf of the arguments: that of the parameter, with a number inside containers."""
    graphs = vars(mod).get("argdef_graph_map")
    if isinstance(graphs, dict) and graphs:  # a TracedModule knows how its arguments were called
        leaves, form = tree_flatten(((mod, *args), kwargs))
        nodes = iter(graphs[form]._inputs if form in graphs else ())
        return [getattr(next(nodes, None), "name", "args") if not _is_const_leaf(x) else "" for x in leaves][1:]
    spec = _argspec(type(mod).forward)
    params = [] if spec is None else spec.args[1:]
    names: list[str] = []

    def one(value: Any, name: str) -> None:
        leaves, form = tree_flatten(value)
        if form.children_defs or not leaves:
            names.extend(f"{name}_{i}" for i in range(len(leaves)))
        else:
            names.append(name)

    for value, name in zip(args, params):
        one(value, name)
    rest = args[len(params) :]
    if rest:
        one(rest, (spec.varargs if spec is not None else None) or "args")
    only = set(spec.kwonlyargs) if spec is not None else set()
    extra = (spec.varkw if spec is not None else None) or "kwargs"
    count = 0
    for key, value in kwargs.items():
        if key in only or key in params:
            one(value, key)
            continue
        leaves, _ = tree_flatten(value)
        names.extend(f"{extra}_{count + i}" for i in range(len(leaves)))
        count += len(leaves)
    return names


def _real(values: Any) -> Any:
    """Values with modules in place of what stands for them."""
    leaves, form = tree_flatten(values)
    if not any(isinstance(x, TracedModuleBuilder) for x in leaves):
        return values
    return form.unflatten([_state(x).mod if isinstance(x, TracedModuleBuilder) else x for x in leaves])


def _patched(value: Any) -> Any:
    """A function kept as an attribute, as the trace wants it called."""
    if isinstance(value, functools.partial):
        return functools.partial(traced_function(value.func), *value.args, **value.keywords)
    return traced_function(value)


def _state(builder: Any) -> _State:
    state: _State = object.__getattribute__(builder, "_builder_state")
    return state


class TracedModuleBuilder(NodeMixin):
    """Stands for a module in its own forward: attributes, calls and ``super()`` work as on the module.

    Args:
        mod: the module.
        is_top_module: it is the root of the trace.
    """

    __module__ = "megengine.traced_module.traced_module"
    nodes: Any = ()  # of the module, in every graph

    def __new__(cls, mod: Any, is_top_module: bool = False) -> Any:
        """An object of a class that is also a subclass of the module's."""
        kind: Any = type(mod)
        return object.__new__(_builder_class(kind))

    def __init__(self, mod: Any, is_top_module: bool = False) -> None:
        object.__setattr__(self, "_builder_state", _State(self, mod))
        object.__setattr__(self, "_is_top", is_top_module)

    def build(self) -> Any:
        """The traced module."""
        return _state(self).build()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _state(self).call(args, kwargs)

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__") or name in _OWN:
            return object.__getattribute__(self, name)
        state = _state(self)
        if name == "_mod":
            return state.mod
        if name in state.temp:
            return state.temp[name]
        attributes = vars(state.mod)
        if name in attributes:
            return state.attribute(name, attributes[name])
        return _patched(object.__getattribute__(self, name))

    def __setattr__(self, name: str, value: Any) -> None:
        state = _state(self)
        old = vars(state.mod).get(name)
        if isinstance(old, (Module, Tensor)) or isinstance(value, Module):
            kind = "module" if isinstance(old, Module) or isinstance(value, Module) else "tensor"
            raise AssertionError(
                f"trace_module: forward of {type(state.mod).__name__} assigns the {kind} attribute {name!r}; a traced "
                "module keeps the modules and tensors that it began with. Use a local variable."
            )
        state.temp[name] = value

    def __delattr__(self, name: str) -> None:
        state = _state(self)
        if name not in state.temp:
            raise AssertionError(f"trace_module: forward deletes the attribute {name!r}, which a graph cannot do.")
        del state.temp[name]

    def _flatten(self, **kwargs: Any) -> Iterator[Any]:
        """What ``children``, ``named_parameters`` and their like go through."""
        keyed = {**kwargs, "with_key": True}
        parent = kwargs.get("with_parent", False)
        for key, *_ in _state(self).mod._flatten(**keyed):
            prefix = kwargs.get("prefix") or ""
            path = key[len(prefix) + 1 :] if prefix else key
            found: Any = self
            above: Any = self
            for part in path.split("."):
                above, found = found, found[_index(found, part)] if _is_container(found) else getattr(found, part)
            item = ([key] if kwargs.get("with_key") else []) + [found] + ([above] if parent else [])
            yield tuple(item) if len(item) > 1 else found

    def __repr__(self) -> str:
        return f"TracedModuleBuilder({_state(self).mod!r})"


_OWN = frozenset({"build", "_builder_state", "nodes", "_is_top", "_flatten", "_record_wrapped_nodes"})


def _is_container(value: Any) -> bool:
    return isinstance(value, (list, tuple, dict))


def _index(value: Any, part: str) -> Any:
    return part if isinstance(value, dict) else int(part)


@functools.cache
def _builder_class(cls: Any) -> type:
    def original(name: str) -> Callable[..., Any]:
        return getattr(TracedModuleBuilder, name)  # type: ignore[no-any-return]

    names = ("__call__", "__getattribute__", "__setattr__", "__delattr__", "__repr__")
    return type("TracedModuleBuilder", (TracedModuleBuilder, cls), {n: original(n) for n in names})


def _with_fixed_parts(mod: Any) -> Any:
    """A QAT module whose observers and fake-quant modules a file can name: others become a fixed fake quantisation."""
    from .fake_quant import FakeQuantize

    tracer = current_tracer()
    new: Any = None
    for which, qparams in (("weight", mod.get_weight_qparams), ("act", mod.get_activation_qparams)):
        observer, fake_quant = getattr(mod, f"{which}_observer"), getattr(mod, f"{which}_fake_quant")
        if all(part is None or tracer.is_builtin(part) for part in (observer, fake_quant)):
            continue
        with paused():
            found = qparams()
        part = fake_quant if fake_quant is not None else observer
        fixed = FakeQuantize(part.dtype, enable=fake_quant is not None and fake_quant.enabled)
        fixed.set_qparams(found)
        if new is None:
            new = object.__new__(type(mod))
            new.__dict__.update(mod.__dict__)
        new.__dict__.update({f"{which}_observer": None, f"{which}_fake_quant": fixed})
        tracer.approximate = True
    return mod if new is None else new


def make_builder(mod: Any, is_top: bool = False) -> Any:
    """A builder for a module."""
    qat = qat_module()
    if qat is not None and isinstance(mod, qat) and not is_top:
        mod = _with_fixed_parts(mod)
    builder = TracedModuleBuilder.__new__(TracedModuleBuilder, mod)
    TracedModuleBuilder.__init__(builder, mod, is_top)
    return builder
