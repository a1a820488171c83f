"""Saving and loading Python objects that hold tensors.

Files are pickles with MegEngine's layout. ``load`` is safe by default: it makes tensors, NumPy arrays and plain
containers and refuses to import anything else, so a file from a stranger cannot run code.
"""

from __future__ import annotations

import os
import pickle
import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import IO, Any

import numpy as np

from .core.files import replacing
from .core.tensor import dtype as _dtype
from .core.tensor.qparams import QParams, QuantMode
from .device import _valid_device
from .device import get_default_device as get_default_device
from .tensor import Parameter, Tensor
from .utils.max_recursion_limit import max_recursion_limit

__all__ = ["load", "save"]

MapLocation = str | dict[str, str] | Callable[[str], str] | None


def save(obj: Any, f: str | IO[bytes], pickle_module: Any = pickle, pickle_protocol: int = 4) -> None:
    """Write an object to a file.

    Args:
        obj: tensors, arrays, and containers of them; ``Module.state_dict()`` is the usual case.
        f: a path, or an object with ``write``.
        pickle_module: what does the pickling.
        pickle_protocol: the pickle protocol.

    A file that is already there is replaced when everything has been written, so a failure leaves it as it was.

    >>> import io
    >>> f = io.BytesIO()
    >>> mge.save({"w": mge.tensor([1.0, 2.0])}, f)
    """
    if hasattr(f, "write"):
        with max_recursion_limit():
            pickle_module.dump(obj, f, protocol=pickle_protocol)
        return
    assert isinstance(f, (str, bytes, os.PathLike)), f"save: needs a path or an object with write; got {f!r}."
    with replacing(f) as out, max_recursion_limit():
        pickle_module.dump(obj, out, protocol=pickle_protocol)


class dmap:
    """Maps the devices of tensors while a file is loaded.

    >>> from megengine.serialization import dmap
    >>> with dmap({"gpu0": "cpu0"}):
    ...     mge.Tensor.dmap_callback("gpu0:0")
    'cpu0'
    """

    def __init__(self, map_location: MapLocation) -> None:
        self._map = _device_map(map_location)

    def __enter__(self) -> dmap:
        self._before = Tensor.dmap_callback
        Tensor.dmap_callback = staticmethod(self._map) if self._map is not None else None
        return self

    def __exit__(self, *_: object) -> None:
        Tensor.dmap_callback = self._before


def _device_map(map_location: MapLocation) -> Callable[[str], str] | None:
    if map_location is None or callable(map_location):
        return map_location
    if isinstance(map_location, str):
        name = map_location
        return lambda _: name
    assert isinstance(map_location, dict), (
        f"map_location should be str, dict or function: a device name or names; got {map_location!r}."
    )
    for name in (*map_location, *map_location.values()):
        assert _valid_device(name), f"map_location: bad device name {name!r}. Examples: cpu0, gpu0, xpux."
    table = map_location
    # "gpu0:2" is looked up as written, then as its device "gpu0".
    return lambda dev: table.get(dev, table.get(dev.split(":")[0], dev))


class _Frozen(type):
    """Classes that a file cannot change: pickles may set attributes on whatever they name, classes included."""

    def __setattr__(cls, name: str, value: Any) -> None:
        raise pickle.UnpicklingError(f"load: the file wants to change the class {cls.__name__}.")


def _stand_in(real: Any) -> Any:
    """A frozen class that stands for ``real``, a class or function written in Python, while unpickling."""

    class StandIn(metaclass=_Frozen):
        def __new__(cls, *args: Any) -> Any:
            return real(*args) if args else real.__new__(real)

    return StandIn


class _LoadTensor(metaclass=_Frozen):
    """Stands for Tensor while unpickling, so that a stored device name is mapped before anything is made on it."""

    _cls: type[Tensor] = Tensor

    def __new__(cls, *args: Any) -> Tensor:  # type: ignore[misc]
        if not args:
            return cls._cls([])  # files of MegEngine 1.1 and before hold everything in the state
        data = args[0]
        dtype = args[1] if len(args) > 1 else None
        device = args[2] if len(args) > 2 else None
        if device is not None and Tensor.dmap_callback is not None:
            device = Tensor.dmap_callback(str(device))
        new = cls._cls(data, dtype, device)
        if len(args) > 6 and args[6] != "default":
            new.format = args[6]
        return new


class _LoadParameter(_LoadTensor):
    _cls = Parameter


def _bytes_of(text: str, encoding: str = "latin1") -> bytes:
    """bytes as pickle protocols below 3 write them."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"load: refuses to decode with {encoding!r}.")
    return text.encode("latin1")


def _numpy_internal(name: str) -> Any:
    """A function that NumPy's own pickles name; the module moved in NumPy 2."""
    from importlib import import_module

    package = "numpy._core" if np.__version__ >= "2" else "numpy.core"
    return getattr(import_module(f"{package}.{'numeric' if name == '_frombuffer' else 'multiarray'}"), name)


_TENSORS: dict[tuple[str, str], Any] = {
    ("megengine.tensor", "Tensor"): _LoadTensor,
    ("megengine.tensor", "Parameter"): _LoadParameter,
}
_PLAIN: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("collections", "defaultdict"): defaultdict,
    ("collections", "deque"): deque,
    ("collections", "Counter"): _stand_in(Counter),
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _stand_in(_bytes_of),
    ("megengine.core.tensor.dtype", "QuantDtypeMeta"): _stand_in(_dtype.QuantDtypeMeta),
    ("megengine.core.tensor.qparams", "QParams"): _stand_in(QParams),
    ("megengine.core.tensor.qparams", "QuantMode"): _stand_in(QuantMode),
    ("megengine.quantization.utils", "QParams"): _stand_in(QParams),
    ("megengine.quantization.utils", "QuantMode"): _stand_in(QuantMode),
}
for _d in (_dtype.bfloat16, _dtype.intb1, _dtype.intb2, _dtype.intb4):
    _PLAIN[_d.type.__module__, _d.type.__name__] = _d.type
for _t in (bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, slice, range):
    _PLAIN["builtins", _t.__name__] = _t
_NUMPY_MODULE = re.compile(r"^numpy\.(core|_core)\.(multiarray|numeric)$")
_NUMPY_FUNCTIONS = ("_reconstruct", "scalar", "_frombuffer")


class _SafeUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        known = _TENSORS.get((module, name)) or _PLAIN.get((module, name))
        if known is not None:
            return known
        if _NUMPY_MODULE.match(module) and name in _NUMPY_FUNCTIONS:
            return _numpy_internal(name)
        raise pickle.UnpicklingError(
            f"load: the file wants to import {module}.{name}, which is not a tensor, an array or a plain container. "
            "If you trust where the file comes from, load it with trust=True."
        )


def _mapping_unpickler(pickle_module: Any) -> Any:
    """The full unpickler of ``pickle_module``, with Tensor replaced by its stand-in."""

    class Unpickler(pickle_module.Unpickler):  # type: ignore[misc]
        def find_class(self, module: str, name: str) -> Any:
            return _TENSORS.get((module, name)) or super().find_class(module, name)

    return Unpickler


def load(f: Any, map_location: MapLocation = None, pickle_module: Any = None, *, trust: bool = False) -> Any:
    """Read an object written by ``save`` or by MegEngine.

    Args:
        f: a path, or an object with ``read``.
        map_location: where tensors go: a device name for all, a dict from stored to wanted names, a function from
            name to name, or None to keep what is stored.
        pickle_module: a module that unpickles anything, run in full; None is the safe loader.
        trust: unpickle anything, which can run any code that the file's author chose.

    >>> import io
    >>> f = io.BytesIO()
    >>> mge.save({"w": mge.tensor([1.0, 2.0])}, f)
    >>> _ = f.seek(0)
    >>> mge.load(f, map_location="cpu0")
    {'w': Tensor([1. 2.], device=cpu0:0)}
    """
    if not hasattr(f, "read"):
        assert isinstance(f, (str, bytes, os.PathLike)), f"load: needs a path or an object with read; got {f!r}."
        with open(f, "rb") as opened:
            return load(opened, map_location, pickle_module, trust=trust)
    if pickle_module is None and trust:
        pickle_module = pickle
    with dmap(map_location), max_recursion_limit():
        if pickle_module is None:
            try:
                return _SafeUnpickler(f).load()
            except (TypeError, AttributeError, LookupError, ValueError, OverflowError) as e:
                if isinstance(e, RuntimeError):  # ours already, and about the device or the data
                    raise
                name = getattr(f, "name", "the file")
                raise pickle.UnpicklingError(
                    f"load: {name} is damaged, or was not written by save ({type(e).__name__}: {e})."
                ) from e
        if hasattr(pickle_module, "Unpickler"):
            return _mapping_unpickler(pickle_module)(f).load()
        return pickle_module.load(f)
