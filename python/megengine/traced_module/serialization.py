"""How traced modules are kept in files, and how those of other versions are read.

A file holds no code: functions and classes are pairs of module and name, which are looked up among those that graphs
may call (``known``) and modules that are not looked into. Loaders bring calls of older versions up to date.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..module.module import Module
from ..tensor import Tensor
from ..version import __version__
from . import known
from .expr import Apply, CallFunction, CallMethod, Expr
from .utils import _argspec, _convert_kwargs_to_args

if TYPE_CHECKING:
    from .traced_module import TracedModule

__all__ = [
    "load_apply_expr",
    "load_call_module_expr",
    "load_call_tensor_method_expr",
    "load_functional",
    "register_functional_loader",
    "register_module_loader",
    "register_opdef_loader",
    "register_tensor_method_loader",
]

Loader = Callable[[Any], None]
OPDEF_LOADER: dict[Any, Loader] = {}
FUNCTIONAL_LOADER: dict[tuple[str, str], Loader] = {}
TENSORMETHOD_LOADER: dict[str, Loader] = {}
MODULE_LOADER: dict[tuple[str, str], Loader] = {}


def _registering(table: dict[Any, Loader], keys: tuple[Any, ...]) -> Callable[[Loader], Loader]:
    def register(loader: Loader) -> Loader:
        for key in keys:
            assert key not in table, f"a loader for {key} is registered already"
            table[key] = loader
        return loader

    return register


def register_opdef_loader(*opdefs: Any) -> Callable[[Loader], Loader]:
    """A function decorated with it is called with every expression of a file that applies one of these ops."""
    return _registering(OPDEF_LOADER, opdefs)


def register_functional_loader(*funcs: tuple[str, str]) -> Callable[[Loader], Loader]:
    """A function decorated with it is called with every expression of a file that calls one of these functions, given
    as (module, name). It may change the expression and insert others."""
    return _registering(FUNCTIONAL_LOADER, funcs)


def register_module_loader(*module_types: tuple[str, str]) -> Callable[[Loader], Loader]:
    """A function decorated with it is called with every expression of a file that calls a module of one of these
    classes, given as (module, name)."""
    return _registering(MODULE_LOADER, module_types)


def register_tensor_method_loader(*methods: str) -> Callable[[Loader], Loader]:
    """A function decorated with it is called with every expression of a file that calls one of these methods."""
    return _registering(TENSORMETHOD_LOADER, methods)


def _replace_args_kwargs(expr: Expr, new_args: tuple[Any, ...], new_kwargs: dict[str, Any]) -> None:
    if (new_args, new_kwargs) != expr.unflatten_args(expr.inputs):
        expr._replace_args(tuple(new_args), dict(new_kwargs))


def _older(expr: Any) -> bool:
    return getattr(expr, "version", None) != __version__


def load_functional(expr: Any) -> None:
    """Bring a call of a function up to date."""
    assert isinstance(expr, CallFunction)
    pair = getattr(expr, "_pair", None) or known.function_pair(expr.func)
    loader = FUNCTIONAL_LOADER.get(pair) or FUNCTIONAL_LOADER.get(known.function_pair(expr.func))
    if loader is not None:
        loader(expr)
    if _older(expr) and _argspec(expr.func) is not None:
        args, kwargs = expr.unflatten_args(expr.inputs)
        _replace_args_kwargs(expr, *_convert_kwargs_to_args(expr.func, args, kwargs))


def load_call_module_expr(expr: Any) -> None:
    """Bring a call of a module up to date."""
    assert isinstance(expr, CallMethod)
    kind = expr.inputs[0].module_type  # type: ignore[attr-defined]
    loader = MODULE_LOADER.get((kind.__module__, kind.__qualname__))
    if loader is not None:
        loader(expr)


def load_call_tensor_method_expr(expr: Any) -> None:
    """Bring a call of a method up to date."""
    assert isinstance(expr, CallMethod)
    loader = TENSORMETHOD_LOADER.get(expr.method)
    if loader is not None:
        loader(expr)
    if _older(expr) and expr.method not in known._SPECS:
        args, kwargs = expr.unflatten_args(expr.inputs)
        _replace_args_kwargs(expr, *_convert_kwargs_to_args(known.method_spec(expr.method), args, kwargs))


def load_apply_expr(expr: Any) -> None:
    """Bring an op up to date."""
    assert isinstance(expr, Apply)
    loader = OPDEF_LOADER.get(type(expr.opdef))
    if loader is not None:
        loader(expr)


def _load_expr(expr: Expr) -> None:
    if isinstance(expr, CallFunction):
        load_functional(expr)
    elif isinstance(expr, CallMethod) and expr.method == "__call__":
        load_call_module_expr(expr)
    elif isinstance(expr, CallMethod):
        load_call_tensor_method_expr(expr)
    elif isinstance(expr, Apply):
        load_apply_expr(expr)


# ---- modules that were not looked into


class _ModuleState:
    """A module in a file: its class as a pair of names, and its attributes."""

    _states: weakref.WeakKeyDictionary[Module, _ModuleState] = weakref.WeakKeyDictionary()

    def __init__(self, module: Any, state: Any, version: str) -> None:
        self.module = module
        self.state = state
        self.version = version
        self._made: Module | None = None
        self._source: Any = None

    @classmethod
    def get_module_state(cls, module: Module) -> _ModuleState:
        """The one object for a module, so that a file has it once."""
        found = cls._states.get(module)
        if found is None:
            kind = type(module)
            found = cls._states[module] = cls((kind.__module__, kind.__qualname__), None, __version__)
            found._source = weakref.ref(module)
        return found

    def __getstate__(self) -> dict[str, Any]:
        source = None if self._source is None else self._source()
        state = self.state if source is None else pack_attributes(source)
        return {"module": self.module, "state": state, "version": self.version}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({"_made": None, "_source": None, **state})

    def to_module(self) -> Module:
        """The module, made when first asked for."""
        if self._made is None:
            cls = find_module_class(*self.module)
            made: Any = object.__new__(cls)
            self._made = made
            state = {k: unpack_value(v) for k, v in self.state.items()}
            made.__setstate__(state)
        return self._made


def find_module_class(module: Any, name: Any) -> type[Module]:
    """The class that a file names, among modules that are not looked into."""
    from .module_tracer import module_tracer
    from .traced_module import _register_all_builtin_modules

    _register_all_builtin_modules()
    found: Any = sys.modules.get(module) if type(module) is str and type(name) is str else None
    for part in name.split(".") if found is not None else ():
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    if isinstance(found, type) and found in module_tracer._opaque_types:
        return found
    raise TypeError(
        f"a traced module of the file has a part of class {module}.{name}, which is not known here. Import it and call "
        "megengine.traced_module.register_as_builtin with it before loading."
    )


def pack_attributes(module: Module) -> dict[str, Any]:
    """The attributes of a module as they go into a file."""
    from .pytree import tree_flatten
    from .traced_module import TracedModule
    from .utils import _check_value

    out: dict[str, Any] = {}
    for name, value in vars(module).items():
        if name in ("_forward_hooks", "_forward_pre_hooks") and value:
            raise AssertionError(f"{type(module).__name__} has hooks, which no file can keep. Remove them to save it.")
        # MegEngine packs the parts of traced modules; what a part is made of stands in it as it is.
        out[name] = packed = pack_value(value) if isinstance(module, TracedModule) else value
        if packed is value and not isinstance(value, (Module, Tensor)) and name not in _GRAPHS:
            _check_value(value, f"{type(module).__name__}.{name}", tree_flatten)
    return out


_GRAPHS = ("argdef_graph_map", "argdef_outdef_map", "watch_points", "watch_node_value", "end_points", "argspec")


def pack_value(value: Any) -> Any:
    """A module as its state; other values as they are."""
    from .traced_module import TracedModule

    if isinstance(value, Module) and not isinstance(value, TracedModule):
        return _ModuleState.get_module_state(value)
    if type(value) in (list, tuple):
        packed = [pack_value(v) for v in value]
        return value if all(a is b for a, b in zip(packed, value)) else type(value)(packed)
    if type(value) is dict:
        packed_dict = {k: pack_value(v) for k, v in value.items()}
        return value if all(packed_dict[k] is value[k] for k in value) else packed_dict
    return value


def unpack_value(value: Any) -> Any:
    """The reverse of ``pack_value``."""
    if isinstance(value, _ModuleState):
        return value.to_module()
    if type(value) in (list, tuple) and any(isinstance(v, (_ModuleState, list, tuple, dict)) for v in value):
        return type(value)(unpack_value(v) for v in value)
    if type(value) is dict and any(isinstance(v, (_ModuleState, list, tuple, dict)) for v in value.values()):
        return {k: unpack_value(v) for k, v in value.items()}
    return value


def pack_module(module: TracedModule) -> dict[str, Any]:
    """The state of a traced module."""
    from .pytree import USER_REGISTERED_CONTAINER_TYPE, USER_REGISTERED_LEAF_TYPE

    state = pack_attributes(module)
    state.update(watch_points=[], watch_node_value={}, end_points=[])
    if module._is_top:
        state["dump_info"] = {
            "version": __version__,
            "register_type": _pairs(USER_REGISTERED_LEAF_TYPE),
            "register_container_type": _pairs(USER_REGISTERED_CONTAINER_TYPE),
            "register_mdule": [],
            "register_function": known.registered_functions(),
        }
    return state


def _pairs(kinds: list[type]) -> list[tuple[str, str]]:
    return [(k.__module__, k.__qualname__) for k in kinds]


def unpack_module(module: TracedModule, state: dict[str, Any]) -> None:
    """Give a traced module its state."""
    from .traced_module import _Values

    state = dict(state)
    state.pop("dump_info", None)
    for name in ("argdef_graph_map", "argdef_outdef_map"):
        state.setdefault(name, {})
    state.setdefault("argspec", None)
    module.__dict__.update({k: v if k in _GRAPHS else unpack_value(v) for k, v in state.items()})
    module.__dict__.update(watch_points=[], watch_node_value=_Values(), end_points=[])
    if "_short_name" not in state:
        module.__dict__.update(_short_name=state.get("_name"), _name=None)
    _attach(module)


def _attach(module: TracedModule) -> None:
    """Tie graphs to modules and run the loaders on them."""
    from . import compat as _compat
    from .traced_module import TracedModule

    del _compat
    for graph in module.argdef_graph_map.values():
        graph._update_ref(module, None, None)
    for graph in module.argdef_graph_map.values():
        for expr in tuple(graph._exprs):
            _load_expr(expr)
    if module._is_top:
        module._update_ref()
        for m in module.modules():
            if isinstance(m, TracedModule):
                for graph in m.argdef_graph_map.values():
                    graph._reset_ids()
        for graph in module.argdef_graph_map.values():
            graph._reset_ids()
