"""What is patched while a module is traced, and where calls are written down.

Nothing is patched otherwise: functions and methods are exchanged when a trace begins and put back when it ends.
Tensors are tied to nodes by the scope of the graph that is being written, so a tensor that is known elsewhere but was
not handed in is noticed.
"""

from __future__ import annotations

import functools
import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .. import random
from ..core._imperative_rt import core2
from ..core._imperative_rt.ops import OPS
from ..module.module import Module
from ..tensor import Tensor
from . import known
from .expr import Apply, CallFunction, CallMethod, Constant, Expr, GetAttr
from .node import ModuleNode, Node, NodeMixin, TensorNode
from .pytree import _is_const_leaf, tree_flatten
from .tm_config import _get_expr_checker
from .utils import _convert_kwargs_to_args

#: Names of the methods and attributes of a tensor that are known, as programs ask for them.
BUILTIN_ARRAY_METHOD = [name for name in known.METHODS if name not in ("detach", "to")]
BUILTIN_TENSOR_WRAP_METHOD = (
    "T to size shape detach device dtype grad item ndim numpy qparams set_value reset_zero requires_grad _reset "
    "_isscalar _tuple_shape"
).split()

if TYPE_CHECKING:
    from .checker import TracedModuleChecker
    from .graph import InternalGraph

__all__ = [
    "NotExist",
    "PatchedFn",
    "Patcher",
    "active_module_tracer",
    "get_tensor_wrapable_method",
    "module_tracer",
    "set_active_module_tracer",
]

_local = threading.local()


def active_module_tracer() -> Any:
    """The tracer of this thread, or None."""
    return getattr(_local, "tracer", None)


def set_active_module_tracer(tracer: Any) -> None:
    """Set the tracer of this thread; None stops writing down."""
    _local.tracer = tracer


def current_tracer() -> module_tracer:
    """The tracer of this thread; an error where there is none."""
    tracer = active_module_tracer()
    if tracer is None:
        raise RuntimeError(
            "no module is being traced here. Nodes can be computed with inside `with graph.insert_exprs():`."
        )
    return tracer  # type: ignore[no-any-return]


@contextmanager
def paused() -> Iterator[None]:
    """Nothing is written down inside."""
    before = active_module_tracer()
    set_active_module_tracer(None)
    try:
        yield
    finally:
        set_active_module_tracer(before)


class _Stale:
    """In place of a node: the value of the tensor changed where this graph cannot see it."""

    def __init__(self, where: str) -> None:
        self.where = where


class _Scope:
    """The graph that is being written, and the nodes of tensors and builders in it."""

    def __init__(self, graph: InternalGraph) -> None:
        self.graph = graph
        self.nodes: dict[int, tuple[Any, Any]] = {}  # id -> object, kept alive, and its node


class module_tracer:
    """One run of ``trace_module`` or of ``insert_exprs``."""

    _opaque_types: ClassVar[set[type]] = set()

    def __init__(self) -> None:
        self._scopes: list[_Scope] = []
        self._left: list[_Scope] = []  # scopes that are closed
        self.builders: dict[int, Any] = {}
        self.checker: TracedModuleChecker | None = None
        self._literals: dict[int, Tensor] = {}
        self.approximate = False  # the graph may differ from the module in the last bits
        #: The tensors that were there before; unknown where some are frozen out of sight.
        self._before: dict[int, weakref.ref[Tensor]] | None = None
        if not gc.get_freeze_count():
            self._before = {id(t): weakref.ref(t) for t in gc.get_objects() if issubclass(type(t), Tensor)}

    def was_before(self, tensor: Tensor) -> bool:
        """Whether a tensor was there before the trace."""
        if self._before is None:
            return True
        found = self._before.get(id(tensor))
        return found is not None and found() is tensor

    def takes_nodes(self) -> bool:
        """Whether calls are made with nodes and give nodes, as inside ``insert_exprs``."""
        return False

    def place(self, expr: Expr) -> None:
        """Say where the next expression goes; it is appended unless a subclass knows better."""

    def stand_in(self, node: TensorNode) -> Tensor:
        """A tensor that is tied to a node."""
        raise RuntimeError(f"{node} is a node; nodes are computed with inside graph.insert_exprs().")

    def builder_of(self, node: ModuleNode) -> Any:
        """What stands for the module of a node."""
        raise RuntimeError(f"{node} is a node; nodes are computed with inside graph.insert_exprs().")

    def builder_for(self, mod: Any) -> Any:
        """The one object that stands for a module in this trace."""
        from .builder import make_builder

        found = self.builders.get(id(mod))
        if found is None:
            found = self.builders[id(mod)] = make_builder(mod)
        return found

    @classmethod
    def register_as_builtin(cls, mod: type) -> type:
        """Do not look into modules of this class."""
        assert isinstance(mod, type) and issubclass(mod, Module), (
            f"register_as_builtin: needs a class of modules; got {mod!r}."
        )
        cls._opaque_types.add(mod)
        return mod

    @classmethod
    def is_builtin(cls, mod: Any) -> bool:
        """Whether a module is kept as it is."""
        return type(mod) in cls._opaque_types

    # ---- scopes

    def push_scope(self, graph: InternalGraph) -> None:
        """Begin to write a graph."""
        self._scopes.append(_Scope(graph))

    def pop_scope(self) -> None:
        """Go on with the graph around it."""
        self._left.append(self._scopes.pop())

    def current_scope(self) -> InternalGraph:
        """The graph that is being written."""
        return self._scopes[-1].graph

    def top_scope(self) -> InternalGraph:
        """The graph of the root module."""
        return self._scopes[0].graph

    def current_constant_cache(self) -> dict[int, Any]:
        """Constants of the graph that is being written, by the id of the tensor."""
        found = self._scopes[-1].nodes.items()
        return {i: n for i, (_, n) in found if isinstance(n, Node) and isinstance(n.expr, Constant)}

    def note_wrapped(self, value: Any) -> None:
        """Tie an object to the node it was given (``NodeMixin.wrap``)."""
        node = vars(value).pop(NodeMixin._KEY)
        self._scopes[-1].nodes[id(value)] = (value, node)
        if self.checker is not None and isinstance(value, Tensor):
            with paused():
                self.checker.record_node2value(node, Tensor(value))

    def find_node(self, value: Any) -> Any:
        """The node of a tensor or builder in this graph, or None."""
        entry = self._scopes[-1].nodes.get(id(value))
        return None if entry is None else entry[1]

    def literal(self, tensor: Tensor) -> None:
        """Note a tensor that was made from data in forward."""
        self._literals[id(tensor)] = tensor

    def node_of(self, value: Any) -> Node:
        """The node of a tensor or builder; a tensor from outside becomes a constant.

        Raises:
            RuntimeError: for a tensor that depends on what is traced in a way that the graph does not show.
        """
        node = self.find_node(value)
        if isinstance(node, _Stale):
            raise RuntimeError(
                f"trace_module: a tensor of shape {value._tuple_shape} was changed in place by {node.where}, which "
                "got it as an argument, and is used after that. Let that module return it instead."
            )
        if node is not None:
            return node  # type: ignore[no-any-return]
        if isinstance(value, Module) and not isinstance(value, NodeMixin):
            raise RuntimeError(
                f"trace_module: a {type(value).__name__} is used that is no attribute of the traced module; its "
                "parameters could not be kept. Assign it to an attribute in __init__."
            )
        for scope in (*self._scopes, *self._left):
            entry = scope.nodes.get(id(value))
            if entry is None or entry[0] is not value:
                continue
            if isinstance(value, Tensor) and isinstance(entry[1], Node) and isinstance(entry[1].expr, Constant):
                break
            kind = f"tensor of shape {value._tuple_shape}" if isinstance(value, Tensor) else "module"
            raise RuntimeError(
                f"trace_module: a {kind} that belongs to {scope.graph.qualname} is used in "
                f"{self.current_scope().qualname} without being handed over. Pass it as an argument, or return it."
            )
        else:
            if not self.was_before(value) and id(value) not in self._literals:
                raise RuntimeError(
                    f"trace_module: a tensor of shape {getattr(value, '_tuple_shape', None)} was computed in "
                    f"{self.current_scope().qualname} by something that is not recorded; it would be frozen to this "
                    "value. Decorate the function that computes it with megengine.traced_module.wrap."
                )
        if not isinstance(value, Tensor):
            raise RuntimeError(f"trace_module: a {type(value).__name__} cannot be used here.")
        made = Constant.make(value)
        NodeMixin.wrap(value, made)
        return made  # type: ignore[no-any-return]

    def mark_stale(self, value: Tensor, where: str) -> None:
        """Say that a tensor changed behind the back of this graph."""
        self._scopes[-1].nodes[id(value)] = (value, _Stale(where))


# ---- recording


def _record(expr: Expr, args: tuple[Any, ...], kwargs: dict[str, Any], run: Callable[..., Any]) -> Any:
    """Write a call down, run it, and tie the results to nodes."""
    tracer = current_tracer()
    nodes = tracer.takes_nodes()
    if nodes:
        args, kwargs = _stand_ins((args, kwargs))
    expr._set_call(args, kwargs)
    graph = tracer.current_scope()
    tracer_insert(tracer, graph, expr)
    state = random.get_rng_state() if tracer.checker is not None else None
    try:
        with paused():
            outputs = run(*args, **kwargs)
    except BaseException:
        graph._drop(expr)
        raise
    expr.add_outputs(outputs)
    if tracer.checker is not None:
        tracer.checker._check_call(expr, outputs, state)
    return _to_nodes(outputs) if nodes else outputs


def tracer_insert(tracer: module_tracer, graph: InternalGraph, expr: Expr) -> None:
    """Put an expression where it belongs."""
    if tracer.takes_nodes():
        tracer.place(expr)
    graph._insert(expr)


def _stand_ins(values: Any) -> Any:
    """Tensors in place of nodes, tied to them."""
    tracer = current_tracer()
    leaves, form = tree_flatten(values)
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, TensorNode):
            leaves[i] = tracer.stand_in(leaf)
        elif isinstance(leaf, ModuleNode):
            leaves[i] = tracer.builder_of(leaf)
    return form.unflatten(leaves)


def _to_nodes(outputs: Any) -> Any:
    tracer = current_tracer()
    leaves, form = tree_flatten(outputs)
    return form.unflatten([x if _is_const_leaf(x) else tracer.node_of(x) for x in leaves])


def trace_apply(opdef: Any, *inputs: Any) -> Any:
    """``apply``, written down."""
    if active_module_tracer() is None:
        return _apply(opdef, *inputs)
    return _record(Apply(opdef), inputs, {}, lambda *args: _apply(opdef, *args))


def _record_function(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if func is _apply:
        return trace_apply(*args, **kwargs)
    try:
        args, kwargs = _convert_kwargs_to_args(func, args, kwargs)
    except TypeError:
        func(*args, **kwargs)  # says it better
        raise
    from .builder import _real

    def run(*a: Any, **k: Any) -> Any:
        return func(*_real(a), **_real(k))

    return _record(CallFunction(func), args, dict(sorted(kwargs.items())), run)


_apply = core2.apply


class PatchedFn:
    """A function or attribute that was exchanged.

    Args:
        frame_dict: where it is: the dict of a module, or a class.
        name: its name there.
    """

    def __init__(self, frame_dict: Any, name: str) -> None:
        self.frame_dict = frame_dict
        self.name = name
        names = frame_dict if isinstance(frame_dict, dict) else vars(frame_dict)
        self.origin_fn = names.get(name, NotExist)

    def set_func(self, func: Any) -> None:
        """Put something in its place; ``NotExist`` takes it away."""
        if isinstance(self.frame_dict, dict):
            if func is NotExist:
                self.frame_dict.pop(self.name, None)
            else:
                self.frame_dict[self.name] = func
        elif func is NotExist:
            delattr(self.frame_dict, self.name)
        else:
            setattr(self.frame_dict, self.name, func)

    def __enter__(self) -> PatchedFn:
        return self

    def __exit__(self, *_: object) -> None:
        self.set_func(self.origin_fn)


class NotExist:
    """In place of an attribute that a class did not have itself."""


class Patcher:
    """Exchanges functions and methods, and puts them back.

    Args:
        wrap_fn: called with a function, gives what takes its place.
    """

    def __init__(self, wrap_fn: Callable[[Any], Any]) -> None:
        self.wrap_fn = wrap_fn
        self.patched: list[PatchedFn] = []

    def patch_method(self, cls: type, name: str, wrap_fn: Callable[[Any], Any]) -> None:
        """Exchange a method of a class, its own or inherited."""
        self._patch(cls, name, wrap_fn(getattr(cls, name)))

    def patch_function(self, frame_dict: dict[str, Any], fn: str, wrap_fn: Callable[[Any], Any]) -> None:
        """Exchange a name in the dict of a module."""
        self._patch(frame_dict, fn, wrap_fn(frame_dict[fn]))

    def patch_cls(self, cls: type) -> None:
        """Exchange all public methods of a class."""
        for name, value in tuple(vars(cls).items()):
            if not name.startswith("_") and callable(value):
                self.patch_method(cls, name, self.wrap_fn)

    def patch_module(self, module: ModuleType) -> None:
        """Exchange all public functions of a module."""
        for name, value in tuple(vars(module).items()):
            if not name.startswith("_") and known._is_function(name, value):
                self.patch_function(vars(module), name, self.wrap_fn)

    def auto_patch(self, frame_dict: dict[str, Any], table: dict[int, Any]) -> None:
        """Exchange every name in a dict whose value is in the table by its id."""
        for name, value in tuple(frame_dict.items()):
            new = table.get(id(value))
            if new is not None and new.__wrapped__ is value:
                self._patch(frame_dict, name, new)

    def _patch(self, place: Any, name: str, new: Any) -> None:
        entry = PatchedFn(place, name)
        self.patched.append(entry)
        entry.set_func(new)

    def __enter__(self) -> Patcher:
        return self

    def __exit__(self, *_: object) -> None:
        while self.patched:
            entry = self.patched.pop()
            entry.set_func(entry.origin_fn)


# ---- what is put in the place of what


def _wrap_function(func: Callable[..., Any], real: Callable[..., Any] | None = None) -> Callable[..., Any]:
    real = real or func

    @functools.wraps(func, updated=())
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if active_module_tracer() is None:
            return func(*args, **kwargs)
        return _record_function(real, args, kwargs)

    wrapper.__dict__.update(__wrapped__=func, _origin_fn=real)
    return wrapper


def _call_method(name: str, original: Callable[..., Any], self: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    tracer = current_tracer()
    if name == "__setitem__" or (name[:3] == "__i" and name in known.BINARY_METHODS):
        return _record_in_place(tracer, name, original, self, args, kwargs)
    if name not in known._SPECS:
        args, kwargs = _convert_kwargs_to_args(known.method_spec(name), (self, *args), kwargs)
        args = args[1:]
    elif kwargs:
        args, kwargs = _convert_kwargs_to_args(known.method_spec(name), (self, *args), kwargs)
        args = args[1:]
    return _record(CallMethod(_any_node(self), name), (self, *args), dict(kwargs), original)


def _any_node(value: Any) -> Node:
    return value if isinstance(value, Node) else current_tracer().node_of(value)


def _record_in_place(
    tracer: module_tracer, name: str, original: Any, self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A method that changes its tensor: in the graph a new value, which the tensor stands for from now on."""
    node = _any_node(self)
    if isinstance(node.expr, GetAttr):
        raise RuntimeError(
            f"trace_module: {node.qualname} is changed in place ({name.strip('_')}) in forward; a graph has no state "
            "of its own, so the change would be lost. Compute with a copy: x = self.x * 1."
        )

    def run(target: Any, *rest: Any, **more: Any) -> Any:
        got = original(target, *rest, **more)
        return target if got is None or got is NotImplemented else got

    if tracer.takes_nodes():
        if name == "__setitem__":
            raise TypeError("insert_exprs: assignment to a part of a node; F.where and F.scatter give a new one.")
        return _record(CallMethod(node, name), (self, *args), kwargs, run)
    out = _record(CallMethod(node, name), (self, *args), kwargs, run)
    return None if name == "__setitem__" else out


def _wrap_method(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if active_module_tracer() is None:
            return original(self, *args, **kwargs)
        return _call_method(name, original, self, args, kwargs)

    wrapper.__name__ = name
    wrapper.__wrapped__ = original  # type: ignore[attr-defined]
    return wrapper


def _traced_shape(self: Tensor) -> Any:
    """The shape as a tensor that the graph computes from the input."""
    tracer = active_module_tracer()
    if tracer is None or self.ndim == 0 or tracer.find_node(self) is None:
        return self._tuple_shape
    sizes = lambda x: (Tensor(np.array(x._tuple_shape, "int32"), device=x.device),)  # noqa: E731
    return _record(Apply(OPS["GetVarShape"]()), (self,), {}, sizes)[0]


def _traced_size(self: Tensor) -> Any:
    shape = self.shape
    return shape.prod() if isinstance(shape, Tensor) else int(np.prod(shape, dtype=np.int64))


def _wrap_init(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        original(self, *args, **kwargs)
        tracer = active_module_tracer()
        if tracer is None:
            return
        data = args[0] if args else kwargs.get("data")
        if isinstance(data, Tensor) and tracer.find_node(data) is not None:
            rest = {k: v for k, v in kwargs.items() if k != "data" and v is not None}
            expr = CallMethod(type(self), "__new__")
            _record(expr, (type(self), data, *args[1:]), rest, lambda *a, **k: self)
        elif not isinstance(data, Tensor) or id(data) in tracer._literals or tracer.was_before(data):
            tracer.literal(self)

    wrapper.__wrapped__ = original  # type: ignore[attr-defined]
    return wrapper


def _wrap_call(original: Callable[..., Any]) -> Callable[..., Any]:
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        tracer = active_module_tracer()
        if tracer is not None and next(iter(self.tensors()), None) is not None:
            tracer.node_of(self)  # raises: it is no attribute of a traced module
        return original(self, *args, **kwargs)

    __call__.__wrapped__ = original  # type: ignore[attr-defined]
    return __call__


def _wrap_custom(original: Callable[..., Any]) -> Callable[..., Any]:
    def __call__(self: Any, *args: Any) -> Any:
        if active_module_tracer() is not None:
            name = type(self).__name__
            raise NotImplementedError(
                f"trace_module: autodiff.Function {name} has a gradient of its own, which a graph cannot keep. Call it "
                f"in a function decorated with megengine.traced_module.wrap."
            )
        return original(self, *args)

    __call__.__wrapped__ = original  # type: ignore[attr-defined]
    return __call__


def _wrap_simulation(original: Callable[..., Any]) -> Callable[..., Any]:
    """The step that all QAT modules share is one call, with the observer and the fake-quant module as arguments."""

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if active_module_tracer() is None or not isinstance(self, NodeMixin):
            return original(self, *args, **kwargs)
        return _record_function(original, (self, *args), kwargs)

    wrapper.__dict__["__wrapped__"] = original
    return wrapper


def _wrap_product(original: Callable[..., Any]) -> Callable[..., Any]:
    """Inside a QAT module of the user's the product of simulated values is written down, not that of integers."""

    def wrapper(self: Any, inp: Any, weight: Any, bias: Any, product: Any, integers: Any) -> Any:
        if active_module_tracer() is None or not isinstance(self, NodeMixin):
            return original(self, inp, weight, bias, product, integers)
        current_tracer().approximate = True
        return product(inp, weight, self.apply_quant_bias(bias, inp, weight))  # type: ignore[attr-defined]

    wrapper.__dict__["__wrapped__"] = original
    return wrapper


def get_tensor_wrapable_method() -> list[str]:
    """The names of Tensor that can be used on nodes inside ``insert_exprs``."""
    return ["T", "size", "shape", "device", "dtype", "ndim", "qparams", *known.ORIGINAL]


# ---- the patches of the process

_lock = threading.RLock()
_users = 0
_patcher: Patcher | None = None
_table: dict[int, Callable[..., Any]] = {}


def traced_function(func: Any) -> Any:
    """What takes the place of a function while modules are traced."""
    if _users == 0:
        return func
    found = _table.get(id(func))
    return found if found is not None else func


def _make_table() -> dict[int, Callable[..., Any]]:
    known.SIMULATE = None
    table = {i: _wrap_function(f) for i, f in known.functions().items()}
    for name, func in known.random_functions().items():
        public = known.random_function(name)
        table[id(public)] = _wrap_function(public)
        # The bound method that the package exports is another object each time it is looked up.
        table[id(vars(random)[name])] = _wrap_function(vars(random)[name], public)
        del func
    table[id(_apply)] = _wrap_function(_apply)
    return table


@contextmanager
def patched() -> Iterator[None]:
    """Functions, methods of Tensor and calls of modules are recorded by threads that have a tracer."""
    global _users, _patcher
    with _lock:
        if _users == 0:
            _patcher = _apply_patches()
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                assert _patcher is not None
                _patcher.__exit__()
                _patcher = None
                _table.clear()


def _apply_patches() -> Patcher:
    from ..autodiff.function import Function

    _table.update(_make_table())
    patcher = Patcher(_wrap_function)
    spaces = [vars(m) for m in tuple(sys.modules.values()) if isinstance(m, ModuleType)]
    spaces += known.user_globals()  # of programs that are run without being a module
    for names in {id(names): names for names in spaces}.values():
        if isinstance(names, dict) and names is not globals() and names is not vars(known):
            patcher.auto_patch(names, _table)
    for name, original in known.ORIGINAL.items():
        patcher._patch(Tensor, name, _wrap_method(name, original))
    patcher._patch(Tensor, "shape", property(_traced_shape))
    patcher._patch(Tensor, "size", property(_traced_size))
    patcher._patch(Tensor, "__init__", _wrap_init(Tensor.__init__))
    patcher._patch(Module, "__call__", _wrap_call(Module.__call__))
    patcher._patch(Function, "__call__", _wrap_custom(Function.__call__))
    qat = known.qat_module()
    if qat is not None:
        known.SIMULATE = vars(qat)[known._SIMULATE]
        patcher._patch(qat, known._SIMULATE, _wrap_simulation(known.SIMULATE))
        if "_calc_qat" in vars(qat):
            patcher._patch(qat, "_calc_qat", _wrap_product(vars(qat)["_calc_qat"]))
    return patcher


def checking() -> bool:
    """Whether every expression is to be run twice."""
    return _get_expr_checker()
