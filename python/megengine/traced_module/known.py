"""The functions and methods that a graph may call: by these names they are written to files and found again."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from functools import cache
from inspect import FullArgSpec
from types import FunctionType, ModuleType
from typing import Any

from .. import functional as F
from .. import random
from ..tensor import Tensor
from .utils import _argspec

_ROOT = "megengine.functional"
#: Modules whose public functions are recorded as calls, the defining ones last so that they win.
MODULES = ("loss", "metric", "vision", "elemwise", "math", "tensor", "nn", "quantized", "distributed")
#: Where the original keeps what we keep elsewhere: files and printed graphs use its names.
_HOME = {"_einsum": f"{_ROOT}.math", **dict.fromkeys(("conv", "normalization", "attention"), f"{_ROOT}.nn")}
#: Functions of other packages, by the module that files name.
_wrapped: dict[tuple[str, str], Callable[..., Any]] = {}


def _function_modules() -> Iterator[ModuleType]:
    for name in MODULES:
        module = getattr(F, name, None) or sys.modules.get(f"{_ROOT}.{name}")
        if isinstance(module, ModuleType):
            yield module
    yield F


def _is_function(name: str, value: Any) -> bool:
    if name.startswith("_") or not isinstance(value, FunctionType):
        return False
    home = value.__module__
    return home.startswith(_ROOT + ".") and home.rsplit(".")[-1] not in ("utils", "debug_param", "external", "inplace")


def functions() -> dict[int, Callable[..., Any]]:
    """The functions that are recorded, by their id."""
    found: dict[int, Callable[..., Any]] = {}
    for module in _function_modules():
        for name, value in vars(module).items():
            if _is_function(name, value):
                found[id(value)] = value
    for func in (*_wrapped.values(), *simulations().values()):
        found[id(func)] = func
    return found


def simulations() -> dict[tuple[str, str], Callable[..., Any]]:
    """The functions by which QAT modules simulate quantisation, where they have been imported."""
    found: dict[tuple[str, str], Callable[..., Any]] = {}
    utils = sys.modules.get("megengine.quantization.utils")
    for name in ("fake_quant_bias", "fake_quant_tensor", "lsq_forward", "tqt_forward") if utils is not None else ():
        found["megengine.quantization.utils", name] = getattr(utils, name)
    qat = qat_module()
    if qat is not None:
        func = SIMULATE or vars(qat)[_SIMULATE]
        found[func.__module__, func.__qualname__] = func
    return found


_SIMULATE = "_apply_fakequant_with_observer"
#: The method itself; while modules are traced, that of the class is another.
SIMULATE: Callable[..., Any] | None = None


def qat_module() -> Any:
    """The base of QAT modules, where it has been imported."""
    found = sys.modules.get("megengine.module.qat.module")
    return None if found is None else found.QATModule


def random_functions() -> dict[str, Callable[..., Any]]:
    """The functions of ``megengine.random`` that draw; they are methods of the generator."""
    return {name: getattr(random, name) for name in _DRAWS if hasattr(random, name)}


_DRAWS = ("beta", "exponential", "gamma", "multinomial", "normal", "permutation", "poisson", "shuffle", "uniform")


class RandomFunction:
    """A function of ``megengine.random`` under its public name."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = "megengine.random.rng"
        self.__signature__ = inspect.signature(getattr(random, name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(random, self.__name__)(*args, **kwargs)

    def __reduce__(self) -> Any:
        return random_function, (self.__name__,)


@cache
def random_function(name: str) -> RandomFunction:
    """The one object for a function of ``megengine.random``."""
    return RandomFunction(name)


def register_function(func: Callable[..., Any]) -> None:
    """Let graphs call a function of the user."""
    _wrapped[func.__module__, func.__qualname__] = func


def registered_functions() -> list[tuple[str, str]]:
    """Those of the user."""
    return list(_wrapped)


def user_globals() -> list[dict[str, Any]]:
    """Where those were written."""
    return [func.__globals__ for func in _wrapped.values() if isinstance(func, FunctionType)]


def function_pair(func: Callable[..., Any]) -> tuple[str, str]:
    """The module and the name that stand for a function in files."""
    module, name = func.__module__, getattr(func, "__qualname__", func.__name__)
    if module.startswith(_ROOT + "."):
        module = _HOME.get(module.rsplit(".")[-1], module)
    return module, name


def find_function(module: Any, name: Any) -> Callable[..., Any] | None:
    """The function that a file names, among those that graphs may call; None for any other."""
    if type(module) is not str or type(name) is not str:
        return None
    if (module, name) in _wrapped:
        return _wrapped[module, name]
    if (module, name) in simulations():
        return simulations()[module, name]
    if module in ("megengine.random", "megengine.random.rng") and name in _DRAWS:
        return random_function(name)
    if module == _ROOT or module.startswith(_ROOT + "."):
        last = module.rsplit(".")[-1]
        if last not in (*MODULES, *_HOME, "functional"):
            return None
        home = F if last == "functional" else getattr(F, last, None)
        for place in (home, getattr(F, "nn", None), F):
            found = vars(place).get(name) if isinstance(place, ModuleType) else None
            if found is not None and _is_function(name, found):
                return found  # type: ignore[no-any-return]
    return None


#: Methods of Tensor that are recorded; each gives tensors.
BINARY = tuple("add sub mul matmul truediv floordiv mod pow lshift rshift and or xor".split())
UNARY_METHODS = ("__neg__", "__pos__", "__abs__", "__invert__", "__round__", "__floor__", "__ceil__")
BINARY_METHODS = (
    *(f"__{m}__" for m in ("lt", "le", "gt", "ge", "eq", "ne")),
    *(f"__{side}{m}__" for side in ("", "r", "i") for m in BINARY),
)
ARRAY_METHODS = ("transpose", "astype", "reshape", "_broadcast", "flatten", "sum", "prod", "min", "max", "mean")
OTHER_METHODS = ("__getitem__", "__setitem__", "detach", "to")
METHODS = (*UNARY_METHODS, *BINARY_METHODS, *ARRAY_METHODS, *OTHER_METHODS)


def _spec(*args: str, varargs: str | None = None, defaults: Any = None) -> FullArgSpec:
    return FullArgSpec(list(args), varargs, None, defaults, [], None, {})


#: Parameters of methods that are written in C.
_SPECS = {
    **dict.fromkeys(UNARY_METHODS, _spec("self")),
    **dict.fromkeys(BINARY_METHODS, _spec("self", "value")),
    "__getitem__": _spec("self", "index"),
    "__setitem__": _spec("self", "index", "value"),
    "__new__": _spec("cls", "data", varargs="args"),
    "__round__": _spec("self", "ndigits", defaults=(None,)),
    "astype": _spec("self", "dtype"),
    "reshape": _spec("self", varargs="args"),
    "_broadcast": _spec("self", varargs="args"),
    "detach": _spec("self"),
}


#: The methods themselves; while a module is traced, those of the class are others.
ORIGINAL = {name: getattr(Tensor, name) for name in METHODS if hasattr(Tensor, name)}


def method_spec(method: str) -> FullArgSpec:
    """The parameters of a method of Tensor."""
    spec = _SPECS.get(method)
    if spec is None:
        found = _argspec(ORIGINAL[method]) if method in ORIGINAL else None
        spec = found if found is not None else _spec("self", varargs="args")
    return spec


def has_method(method: Any) -> bool:
    """Whether a graph from a file may call a method of this name on a tensor."""
    return type(method) is str and (method in ORIGINAL or method == "__new__")
