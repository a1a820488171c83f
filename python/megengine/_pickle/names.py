"""What a file may name, and what is made of it."""

from __future__ import annotations

import re
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from ..core.tensor import dtype as _dtype
from ..core.tensor.qparams import LSQParams, QParams, QuantMode
from ..distributed.group import Group
from ..module.module import Module
from ..tensor import Parameter, Tensor
from . import arrays
from .machine import NOT_DATA, Damaged, Global, Machine, Refused

Make = Callable[[Machine, tuple[Any, ...]], Any]


def _check(args: tuple[Any, ...], what: str, *kinds: tuple[type, ...]) -> None:
    """Raises unless there are as many arguments as kinds, or fewer, each of one of its types."""
    if len(args) > len(kinds) or any(type(a) not in k for a, k in zip(args, kinds)):
        got = ", ".join(type(a).__name__ for a in args)
        raise Refused(f"the file calls {what} with ({got}), which no pickle of one does")


_NONE = type(None)

# ---- plain containers and values


def _bytes_of(m: Machine, args: tuple[Any, ...]) -> bytes:
    """bytes as pickle protocols below 3 write them: ``_codecs.encode(text, "latin1")``."""
    _check(args, "_codecs.encode", (str,), (str,))
    if args[1:] != ("latin1",):
        raise Refused("the file encodes text as something else than latin1")
    m.spend(len(args[0]))
    return bytes(args[0].encode("latin1"))


def _bytearray(m: Machine, args: tuple[Any, ...]) -> bytearray:
    _check(args, "bytearray", (bytes, str), (str,))
    m.spend(len(args[0]) if args else 0)
    if args and type(args[0]) is str:
        return bytearray(args[0].encode("latin1"))
    return bytearray(*args[:1])


def _empty_bytes(m: Machine, args: tuple[Any, ...]) -> bytes:
    _check(args, "bytes")
    return b""


def _set(m: Machine, args: tuple[Any, ...]) -> set[Any]:
    _check(args, "set", (list,))
    items = args[0] if args else []
    m.spend(4 * len(items))
    m.check_keys(items)
    out: set[Any] = m.own(set(items), m.height(items), cyclic=True)
    return out


def _frozenset(m: Machine, args: tuple[Any, ...]) -> frozenset[Any]:
    _check(args, "frozenset", (list,))
    items = list(args[0]) if args else []
    m.spend(4 * len(items))
    m.check_keys(items)
    height, weight = m.settle(items)
    out: frozenset[Any] = m.own(frozenset(items), height, weight)
    return out


def _plain(kind: Any, name: str, *kinds: tuple[type, ...]) -> Make:
    def make(m: Machine, args: tuple[Any, ...]) -> Any:
        _check(args, name, *kinds)
        return kind(*args)

    return make


def _mapping(kind: Any, name: str, *kinds: tuple[type, ...]) -> Make:
    """A subclass of dict; its items come in later opcodes, or as the only argument in old files."""

    def make(m: Machine, args: tuple[Any, ...]) -> Any:
        if args and type(args[0]) in (list, dict) and args[0]:
            _check(args, name, (list, dict))
            pairs = args[0].items() if type(args[0]) is dict else args[0]
            if any(type(p) not in (tuple, list) or len(p) != 2 for p in pairs):
                raise Damaged(f"{name} of things that are no pairs")
            m.spend(4 * len(pairs))
            keys, values = [p[0] for p in pairs], [p[1] for p in pairs]
            m.check_keys(keys)
            made = m.own(kind(), m.height(args[0]), cyclic=kind is OrderedDict)
            for key, value in zip(keys, values):
                made[key] = value
            return made
        _check(args, name, *kinds)
        return m.own(kind(*args), cyclic=kind is OrderedDict)

    return make


_FACTORIES = (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, OrderedDict)


def _defaultdict(m: Machine, args: tuple[Any, ...]) -> Any:
    if len(args) > 1 or (args and args[0] is not None and not any(args[0] is f for f in _FACTORIES)):
        raise Refused("the file has a defaultdict that would call something else than a plain type")
    return m.own(defaultdict(*args))


def _deque(m: Machine, args: tuple[Any, ...]) -> Any:
    _check(args, "deque", (tuple, list), (int, _NONE))
    if args and args[0]:
        raise Refused("the file makes a deque that no pickle of one makes")
    return m.own(deque(*args))


# ---- tensors


def _tensor(kind: type[Tensor]) -> Make:
    def make(m: Machine, args: tuple[Any, ...]) -> Tensor:
        if not args:  # files of MegEngine 1.1 and before hold everything in the state
            made = kind([])
        else:
            made = _tensor_of(m, kind, *args[:3])
            if len(args) > 6:
                _check(args[6:], kind.__name__, (str,))
                if args[6] not in ("default", "nchw", "nhwc"):
                    raise Damaged(f"a {kind.__name__} in the memory format {args[6][:40]!r}")
                if args[6] != "default":
                    made.format = args[6]
        m.own(made, weight=1)
        return made

    return make


def _tensor_of(m: Machine, kind: type[Tensor], data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    if type(data) is not np.ndarray or data.dtype.kind not in "biufcV" or not (device is None or type(device) is str):
        raise Damaged(f"a {kind.__name__} of a {type(data).__name__} on a {type(device).__name__}")
    if dtype is not None and not isinstance(dtype, np.dtype):
        dtype = arrays.plain_dtype(dtype)
    # The device is mapped before anything is made on it: this machine may not have the one in the file.
    if device is not None and Tensor.dmap_callback is not None:
        device = Tensor.dmap_callback(device)
    m.spend(data.size * max(data.itemsize, 0 if dtype is None else dtype.itemsize))
    return kind(data, dtype, device)


def _tensor_state(m: Machine, tensor: Tensor, state: Any) -> None:
    """What ``Tensor.__setstate__`` takes, looked at first."""
    if type(state) is not dict or not set(state) <= {"data", "device", "dtype", "qdict", "qparams"}:
        raise Damaged("a tensor's state that is none")
    if "data" in state:
        tensor._reset(_tensor_of(m, Tensor, state["data"], state.get("dtype"), state.get("device")))
    kept = {k: v for k, v in state.items() if k.startswith("q")}
    known = type(kept.get("qparams")) in (QParams, LSQParams, _NONE)
    if "qdict" in kept and type(kept["qdict"]) is not dict or not known:
        raise Damaged("quantisation parameters that are none")
    tensor.__setstate__(kept)


def _quant_mode(m: Machine, args: tuple[Any, ...]) -> QuantMode:
    _check(args, "QuantMode", (int,))
    return QuantMode(*args)


def _qparams(kind: Any) -> Make:
    def make(m: Machine, args: tuple[Any, ...]) -> QParams:
        made: QParams = m.own(kind(*(None,) * len(kind.__slots__)))
        if args:
            _qparams_state(m, made, dict(zip(kind.__slots__, args)))
        return made

    return make


def _qparams_state(m: Machine, q: QParams, state: Any) -> None:
    slots = state[1] if type(state) is tuple and len(state) == 2 else state
    if type(slots) is not dict or not set(slots) <= set(type(q).__slots__):
        raise Damaged("quantisation parameters that are none")
    kinds = {"mode": (QuantMode, _NONE), "dtype_meta": (_dtype.QuantDtypeMeta, _NONE)}
    for key, value in slots.items():
        number = value is None or isinstance(value, (int, float, np.generic, np.ndarray, Tensor))
        if not (type(value) in kinds[key] if key in kinds else number):
            raise Damaged(f"quantisation parameters whose {key} is a {type(value).__name__}")
        setattr(q, key, value)


# ---- groups of processes, which synchronised layers keep


def _group(m: Machine, args: tuple[Any, ...]) -> Group:
    _check(args, "Group")
    made: Group = m.own(Group.__new__(Group))
    return made


def _group_state(m: Machine, group: Group, state: Any) -> None:
    ranks = state.get("proc_ranks") if type(state) is dict else 0
    if ranks is not None and not (type(ranks) is list and all(type(r) is int for r in ranks)):
        raise Damaged("a group of processes whose ranks are none")
    group.__setstate__({"proc_ranks": ranks})


# ---- modules


def _names_in(place: Any) -> Any:
    """The names that a module or class defines, past its ``__getattribute__`` and ``__getattr__``, which may import."""
    if issubclass(type(place), ModuleType):
        return object.__getattribute__(place, "__dict__")
    return type.__getattribute__(place, "__dict__") if issubclass(type(place), type) else {}


#: Modules of this package that are imported when first used, and whose classes networks consist of.
_OWN = frozenset(
    f"megengine.module.{kind}.{part}"
    for kind in ("qat", "quantized")
    for part in (
        *("batch_matmul_activation", "concat", "conv", "conv_bn", "conv_transpose_bn", "elemwise"),
        *("linear", "linear_bn", "quant_dequant"),
    )
) | {"megengine.quantization.fake_quant", "megengine.quantization.observer"}


def _module_class(module: str, name: str) -> type | None:
    """The class of that name in a module that the program has imported; found without running anything."""
    if module in _OWN:  # code of ours, which runs nothing of the file
        import_module(module)
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = _names_in(found).get(part)
    return found if issubclass(type(found), type) and Module in found.__mro__ else None


def _attribute(cls: type, name: str) -> Any:
    """What a class and its bases have under a name; nothing is called."""
    return next((vars(c)[name] for c in cls.__mro__ if name in vars(c)), None)


#: What would run with what is in the file; a class must have it from here.
_RUN_BY_LOADING = {
    "__new__": vars(object)["__new__"],
    "__setstate__": vars(Module)["__setstate__"],
    "__getattribute__": vars(object)["__getattribute__"],
    "__class__": vars(object)["__class__"],
    "__del__": None,
}


def _module(cls: type) -> Make:
    text = f"{cls.__module__}.{cls.__qualname__}"

    def make(m: Machine, args: tuple[Any, ...]) -> Any:
        for method, usual in _RUN_BY_LOADING.items():
            if _attribute(cls, method) is not usual:
                raise Refused(f"{text} has a {method} of its own, which load does not call")
        if args:
            raise Refused(f"{text} is made with arguments, which load does not do")
        return m.own(object.__new__(cls), cyclic=True)

    return make


def _reconstructor(m: Machine, args: tuple[Any, ...]) -> Any:
    """``copyreg._reconstructor(cls, object, None)``, by which protocols 0 and 1 make objects."""
    if len(args) != 3 or args[1] is not object or args[2] is not None:
        raise Refused("the file makes an object of a plain type with a class of its own")
    if args[0] is Group:
        return _group(m, ())
    if not isinstance(args[0], type) or Module not in args[0].__mro__:
        raise Refused("the file makes an object of a class that is no Module")
    return _module(args[0])(m, ())


def _module_state(m: Machine, module: Module, state: Any) -> None:
    """Attributes from a dict: data beside the methods of the class, never in their place."""
    text = f"{type(module).__module__}.{type(module).__qualname__}"
    if type(state) is not dict or any(type(k) is not str for k in state):
        raise Refused(f"the state of {text} is not a dict of attributes")
    for key, value in state.items():
        if isinstance(_attribute(type(module), key), (FunctionType, classmethod, staticmethod, property)):
            raise Refused(f"the file replaces {key!r:.40} of {text}, which is part of the class")
        if key in ("_forward_hooks", "_forward_pre_hooks") and (type(value) is not OrderedDict or value):
            raise Refused(f"the file adds hooks to {text}; remove them before saving")
    Module.__setstate__(module, state)


def _function(module: str, name: str) -> Any:
    """A function of ``megengine.functional``, which modules keep as their activation."""
    if not (module == _FUNCTIONAL or module in _FUNCTIONS) or name.startswith("_") or module not in sys.modules:
        return None
    found = _names_in(sys.modules[module]).get(name)
    return found if isinstance(found, FunctionType) and found.__module__ in _FUNCTIONS else None


_FUNCTIONAL = "megengine.functional"
#: Where functions of tensors are; other modules of the package change settings or run libraries.
_FUNCTIONS = frozenset(
    f"{_FUNCTIONAL}.{m}" for m in "attention conv elemwise loss math nn normalization tensor vision".split()
)

# ---- the table

_TABLE: dict[tuple[str, str], tuple[Any, Make | None]] = {
    ("collections", "OrderedDict"): (OrderedDict, _mapping(OrderedDict, "OrderedDict", (list, dict))),
    ("collections", "Counter"): (Counter, _mapping(Counter, "Counter", (list, dict))),
    ("collections", "defaultdict"): (defaultdict, _defaultdict),
    ("collections", "deque"): (deque, _deque),
    ("builtins", "bytes"): (bytes, _empty_bytes),
    ("builtins", "bytearray"): (bytearray, _bytearray),
    ("builtins", "set"): (set, _set),
    ("builtins", "frozenset"): (frozenset, _frozenset),
    ("builtins", "complex"): (complex, _plain(complex, "complex", (float, int), (float, int))),
    ("builtins", "range"): (range, _plain(range, "range", (int,), (int,), (int,))),
    ("builtins", "slice"): (slice, _plain(slice, "slice", (int, _NONE), (int, _NONE), (int, _NONE))),
    ("builtins", "Ellipsis"): (..., None),
    **{("builtins", t.__name__): (t, None) for t in (bool, int, float, str, list, tuple, dict, object)},
    ("_codecs", "encode"): (NOT_DATA, _bytes_of),
    ("numpy", "ndarray"): (np.ndarray, arrays.ndarray),
    ("numpy", "dtype"): (np.dtype, arrays.DtypeStub),
}
for _package in ("numpy.core", "numpy._core"):
    _TABLE[f"{_package}.multiarray", "_reconstruct"] = (NOT_DATA, arrays.reconstruct)
    _TABLE[f"{_package}.multiarray", "scalar"] = (NOT_DATA, arrays.scalar)
    _TABLE[f"{_package}.numeric", "_frombuffer"] = (NOT_DATA, arrays.frombuffer)
for _code in "?bBhHiIlLqQefdFDSUMm":
    _type = np.dtype(_code).type
    _TABLE["numpy", _type.__name__] = (_type, arrays.scalar_of(_type))
_TABLE["numpy", "bool_"] = (np.bool_, arrays.scalar_of(np.bool_))
_ARRAYS = frozenset(_TABLE)
_TABLE["megengine.tensor", "Tensor"] = (Tensor, _tensor(Tensor))
_TABLE["megengine.tensor", "Parameter"] = (Parameter, _tensor(Parameter))
_TABLE["megengine.core.tensor.dtype", "QuantDtypeMeta"] = (
    _dtype.QuantDtypeMeta,
    _plain(_dtype.QuantDtypeMeta, "QuantDtypeMeta", (str,), (str, _NONE), (str,), (int,), (int,), (bool, _NONE)),
)
for _place in ("megengine.core.tensor.qparams", "megengine.quantization.utils"):
    _TABLE[_place, "QParams"] = (QParams, _qparams(QParams))
    _TABLE[_place, "LSQParams"] = (LSQParams, _qparams(LSQParams))
    _TABLE[_place, "QuantMode"] = (QuantMode, _quant_mode)
for _d in (_dtype.bfloat16, _dtype.intb1, _dtype.intb2, _dtype.intb4):
    _TABLE[_d.type.__module__, _d.type.__name__] = (_d.type, None)

_TABLE["megengine.distributed.group", "Group"] = (Group, _group)
for _place in ("copyreg", "copy_reg"):
    _TABLE[_place, "_reconstructor"] = (NOT_DATA, _reconstructor)

#: Packages that know how to make what files of theirs name: prefix -> how to get (find, build by type).
_EXTENSIONS: dict[str, Callable[[], tuple[Callable[[str, str], Global | None], dict[type, Any]]]] = {}
_BUILD: dict[type, Callable[[Machine, Any, Any], None]] = {}
_FIND: list[Callable[[str, str], Global | None]] = []


def extend(prefix: str, load: Callable[[], tuple[Callable[[str, str], Global | None], dict[type, Any]]]) -> None:
    """Let a package of ours say what its files may name; ``load`` is called when a file first names it."""
    _EXTENSIONS[prefix] = load


def _extended(module: str, name: str) -> Global | None:
    for prefix in [p for p in _EXTENSIONS if module.startswith(p)]:
        find, builders = _EXTENSIONS.pop(prefix)()
        _FIND.append(find)
        _BUILD.update(builders)
    for find in _FIND:
        found = find(module, name)
        if found is not None:
            return found
    return None


#: Modules of Python's library that ``values`` knows.
_OF_PYTHON = frozenset("argparse types pathlib pathlib._local datetime decimal fractions".split())

#: Names of Python 2's __builtin__, which protocols below 3 write.
_PYTHON_2 = {"xrange": "range", "long": "int", "unicode": "str"}


def _known(module: str, name: str) -> Global | None:
    if module == "__builtin__":
        module, name = "builtins", _PYTHON_2.get(name, name)
    entry = _TABLE.get((module, name))
    if entry is None and module in _OF_PYTHON:  # imported when a file first names one
        from . import values

        _TABLE.update(values.TABLE)
        _BUILD.update(values.BUILD)
        entry = _TABLE.get((module, name))
    return None if entry is None else Global(f"{module}.{name}", *entry)


def find(module: str, name: str) -> Global:
    """What a checkpoint may name: data, and modules whose class the program has imported."""
    known = _known(module, name) or _extended(module, name)
    if known is not None:
        return known
    function = _function(module, name)
    if function is not None:
        return Global(f"{module}.{name}", function)
    cls = _module_class(module, name)
    if cls is not None:
        return Global(f"{module}.{name}", cls, _module(cls))
    raise Refused(_unknown(module, name))


def find_arrays(module: str, name: str) -> Global:
    """What a file of arrays may name: not even tensors."""
    known = _known(module, name)
    if known is None or tuple(known.text.rsplit(".", 1)) not in _ARRAYS:
        raise Refused(f"the file wants to import {_short(module, name)}, which is not an array or a plain container")
    return known


def _short(module: str, name: str) -> str:
    return re.sub(r"[^\w.<>]", "?", f"{module}.{name}"[:120])


def _unknown(module: str, name: str) -> str:
    state = "imported but has no such class" if module in sys.modules else "not imported"
    return (
        f"the file wants to import {_short(module, name)}, which is not a tensor, an array or a plain container. If it "
        f"is a Module of yours, import its class before loading ({_short(module, '')[:-1]} is {state})"
    )


def build(machine: Machine, obj: Any, state: Any) -> None:
    """Give an object its state."""
    kind = type(obj)
    if kind in _BUILD:
        _BUILD[kind](machine, obj, state)
    elif kind in (Tensor, Parameter):
        _tensor_state(machine, obj, state)
    elif kind in (QParams, LSQParams):
        _qparams_state(machine, obj, state)
    elif kind is Group:
        _group_state(machine, obj, state)
    elif Module in kind.__mro__:
        _module_state(machine, obj, state)
    elif state is not None:
        raise Refused(f"the file gives a {kind.__name__} attributes, which it cannot have")
