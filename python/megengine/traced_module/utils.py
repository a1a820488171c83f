"""Helpers: attributes by dotted path, arguments in their written order, containers of modules."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, MutableMapping, MutableSequence
from functools import lru_cache
from inspect import FullArgSpec
from types import FunctionType
from typing import Any

from ..module.module import Module

__all__ = ["assign_attr", "get_subattr", "replace_container_with_module_container"]


def get_subattr(module: Any, target: str) -> Any:
    """What is at a dotted path below a module; the module itself for an empty one.

    >>> from megengine.traced_module.utils import get_subattr
    >>> get_subattr(M.Sequential(M.Sequential(M.ReLU())), "0.0")
    ReLU()
    """
    for part in target.split(".") if target else ():
        module = getattr(module, part)
    return module


def assign_attr(obj: Any, module: Module, target: str) -> None:
    """Set what is at a dotted path below a module.

    >>> from megengine.traced_module.utils import assign_attr
    >>> net = M.Sequential(M.Sequential(M.ReLU()))
    >>> assign_attr(M.GELU(), net, "0.0")
    >>> net[0][0]
    GELU()
    """
    *prefix, name = target.split(".")
    setattr(get_subattr(module, ".".join(prefix)), name, obj)


@lru_cache(maxsize=4096)
def _argspec(func: Any) -> FullArgSpec | None:
    """The parameters of a function, a bound method without its self; None where Python does not know them."""
    try:
        return inspect.getfullargspec(func)
    except TypeError:
        return None


def _convert_kwargs_to_args(
    func: Callable[..., Any] | FullArgSpec, args: tuple[Any, ...], kwargs: dict[str, Any], is_bounded: bool = False
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call with positional ones by position and all defaults filled in.

    Args:
        func: a function or its parameters.
        args: positional arguments.
        kwargs: keyword arguments.
        is_bounded: the first parameter is ``self`` and is not among ``args``.
    """
    if isinstance(func, FullArgSpec):
        spec, name = func, "function"
    else:
        found = _argspec(func)
        if found is None:
            return args, kwargs
        spec, name = found, func.__qualname__.split("<locals>.")[-1] if hasattr(func, "__qualname__") else "function"
    names = spec.args[1:] if is_bounded else spec.args
    kwargs = dict(kwargs)
    values = list(args[: len(names)])
    rest = tuple(args[len(names) :])
    for given in names[: len(values)]:
        if given in kwargs:
            raise TypeError(f"{name} got multiple values for argument {given}")
    defaults = dict(zip(spec.args[::-1], (spec.defaults or ())[::-1]))
    missing = []
    for param in names[len(values) :]:
        if param in kwargs:
            values.append(kwargs.pop(param))
        elif param in defaults:
            values.append(defaults[param])
        else:
            missing.append(param)
    if missing:
        raise TypeError(f"{name} missing required positional arguments: {', '.join(missing)}")
    new: dict[str, Any] = {}
    for param in spec.kwonlyargs:
        if param in kwargs:
            new[param] = kwargs.pop(param)
        elif param in (spec.kwonlydefaults or {}):
            new[param] = (spec.kwonlydefaults or {})[param]
        else:
            raise TypeError(f"{name} missing required keyword-only argument: {param}")
    if kwargs and spec.varkw is None:
        raise TypeError(f"{name} got an unexpected keyword argument {next(iter(kwargs))}")
    new.update(kwargs)
    return tuple(values) + rest, new


def keep_attribute(module: Module, name: str, value: Any) -> None:
    """Set an attribute to something that has its name from another module already."""
    module.__dict__[name] = value
    if isinstance(value, Module) and name not in module._modules:
        module._modules.append(name)


class _ModuleContainer(Module):
    """What stands for a list or a dict of modules in a traced module."""

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{type(self).__name__} holds modules and cannot be called.")


class _ModuleList(_ModuleContainer, MutableSequence):  # type: ignore[type-arg]
    """A list of modules, each an attribute named by its index."""

    def __init__(self, modules: Any = ()) -> None:
        super().__init__()
        self.num = 0
        for m in modules:
            self.append(m)

    @staticmethod
    def _ikey(idx: int) -> str:
        return str(idx)

    def _at(self, idx: int) -> int:
        if not -self.num <= idx < self.num:
            raise IndexError(f"list index out of range: {idx} of {self.num} modules")
        return idx + self.num if idx < 0 else idx

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            return [getattr(self, self._ikey(i)) for i in range(*idx.indices(self.num))]
        return getattr(self, self._ikey(self._at(int(idx))))

    def __setitem__(self, idx: Any, mod: Any) -> None:
        keep_attribute(self, self._ikey(self._at(int(idx))), mod)

    def __delitem__(self, idx: Any) -> None:
        at = self._at(int(idx))
        for i in range(at, self.num - 1):
            self[i] = self[i + 1]
        delattr(self, self._ikey(self.num - 1))
        self.num -= 1

    def __len__(self) -> int:
        return self.num

    def insert(self, idx: int, mod: Any) -> None:
        """Put a module before the one at ``idx``."""
        at = min(max(idx + self.num if idx < 0 else idx, 0), self.num)
        self.num += 1
        for i in range(self.num - 1, at, -1):
            keep_attribute(self, self._ikey(i), getattr(self, self._ikey(i - 1)))
        keep_attribute(self, self._ikey(at), mod)


class _ModuleDict(_ModuleContainer, MutableMapping):  # type: ignore[type-arg]
    """A dict of modules, each an attribute named by its key."""

    def __init__(self, modules: Any = ()) -> None:
        super().__init__()
        self._module_keys: list[str] = []
        for key, m in dict(modules).items():
            self[key] = m

    def __getitem__(self, key: str) -> Any:
        if key not in self._module_keys:
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, mod: Any) -> None:
        if not isinstance(key, str):
            raise TypeError(f"a dict of modules needs str keys to be traced; got {key!r}.")
        if key not in self._module_keys:
            self._module_keys.append(key)
        keep_attribute(self, key, mod)

    def __delitem__(self, key: str) -> None:
        self._module_keys.remove(key)
        delattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._module_keys))

    def __len__(self) -> int:
        return len(self._module_keys)

    __hash__ = Module.__hash__


def replace_container_with_module_container(container: Any) -> tuple[bool, Any]:
    """Whether a list, tuple or dict holds modules, and then a container that is a module itself.

    >>> from megengine.traced_module.utils import replace_container_with_module_container
    >>> replace_container_with_module_container([M.ReLU()])
    (True, _ModuleList(
      (0): ReLU()
    ))
    >>> replace_container_with_module_container([1])
    (False, None)
    """
    return _replace(container, (Module,))


def _replace(container: Any, kinds: tuple[type, ...]) -> tuple[bool, Any]:
    is_dict = isinstance(container, dict)
    if not is_dict and not isinstance(container, (list, tuple)):
        return False, None
    items = dict(container) if is_dict else dict(enumerate(container))
    held: dict[Any, Any] = {}
    for key, value in items.items():
        if isinstance(value, kinds):
            held[key] = value
        elif isinstance(value, (list, tuple, dict)):
            found, inner = _replace(value, kinds)
            if found:
                held[key] = inner
    if not held:
        return False, None
    if len(held) != len(items):
        raise ValueError(
            "Can not trace the module that uses the same container to store Module and Non-Module objects. Keep them "
            f"in two containers; this one holds {', '.join(sorted({type(v).__name__ for v in items.values()}))}."
        )
    return True, _ModuleDict(held) if is_dict else _ModuleList(held.values())


def _check_obj_attr(obj: Any, who: str = "") -> bool:
    """Whether all attributes are values that a traced module can keep in a file; raises where not."""
    from .pytree import tree_flatten

    for name, value in vars(obj).items():
        _check_value(value, f"{who or type(obj).__name__}.{name}", tree_flatten)
    return True


def _check_value(value: Any, where: str, tree_flatten: Callable[[Any], Any]) -> None:
    try:
        tree_flatten(value)
    except AssertionError as e:
        if isinstance(value, FunctionType) and value.__module__.startswith("megengine.functional."):
            return  # kept by name
        raise AssertionError(f"attribute {where}: {e}") from None


_check_builtin_module_attr = _check_obj_attr
