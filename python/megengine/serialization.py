"""Saving and loading Python objects that hold tensors.

Files are pickles with MegEngine's layout. ``load`` is safe by default: it makes tensors, NumPy arrays, plain containers
and modules whose class the program has imported, and refuses anything else, so a file from a stranger cannot run code.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import IO, Any

from . import _pickle
from .core.files import replacing
from .device import _valid_device
from .device import get_default_device as get_default_device
from .tensor import Parameter, Tensor
from .utils.max_recursion_limit import max_recursion_limit

__all__ = ["load", "save"]

MapLocation = str | dict[str, str] | Callable[[str], str] | None


def save(obj: Any, f: Any, pickle_module: Any = pickle, pickle_protocol: int = 4) -> None:
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
            _pickle.dump(obj, f, pickle_module, pickle_protocol)
        return
    assert isinstance(f, (str, bytes, os.PathLike)), f"save: needs a path or an object with write; got {f!r}."
    with replacing(f) as out, max_recursion_limit():
        _pickle.dump(obj, out, pickle_module, pickle_protocol)


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


class _LoadTensor:
    """Stands for Tensor in a full unpickler, so that a stored device name is mapped before anything is made on it."""

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


_TENSORS: dict[tuple[str, str], Any] = {
    ("megengine.tensor", "Tensor"): _LoadTensor,
    ("megengine.tensor", "Parameter"): _LoadParameter,
}


def _mapping_unpickler(pickle_module: Any) -> Any:
    """The full unpickler of ``pickle_module``, with Tensor replaced by its stand-in."""

    class Unpickler(pickle_module.Unpickler):  # type: ignore[misc]
        def find_class(self, module: str, name: str) -> Any:
            return _TENSORS.get((module, name)) or super().find_class(module, name)

    return Unpickler


#: How files begin that are no pickles, and what they are.
_FOREIGN: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "a zip archive, as torch.save and numpy.savez write them"),
    (b"\x93NUMPY", "an array of numpy.save; numpy.load reads it"),
    (b"\x89MGE", "a model written by dump; megengine.utils.network and Lite read it"),
    (b"MGBC", "a model written by dump; megengine.utils.network and Lite read it"),
    (b"mgbtest0", "a model with test cases, written by dump"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x1f\x8b", "compressed with gzip; unpack it first"),
    (b"version https://git-lfs", "a pointer of git-lfs to the real file; git lfs pull fetches it"),
    (b"<", "a page of a web server or other markup; the download went wrong"),
)


def _what_it_is(head: bytes) -> str:
    """What a file is that begins like this, where that is known not to be a checkpoint."""
    for begin, what in _FOREIGN:
        if head.startswith(begin):
            return what
    if head[4:12].endswith(b"mgv2"):
        return "a model written by dump; megengine.utils.network and Lite read it"
    return "a safetensors file, it seems; megengine.safetensors reads it" if head[8:9] == b"{" else ""


def _load_safely(f: IO[bytes]) -> Any:
    name = getattr(f, "name", None)
    name = os.fsdecode(name) if isinstance(name, (str, bytes)) else "the file"
    machine = _pickle.Machine(f, _pickle.find, _pickle.build)
    try:
        return machine.load()
    except pickle.UnpicklingError as e:
        head = machine.head + f.read(32 - len(machine.head))
        begins = head[:1] == pickle.PROTO
        what = _what_it_is(head)
        if what and not begins:
            text = f"load: {name} is not a checkpoint: it is {what}. load reads what megengine.save writes."
        elif isinstance(e, _pickle.Refused):
            trust = "If you trust where the file comes from, load it with trust=True, which runs any code."
            text = f"load: {name}: {e}. {trust}"
        elif begins:
            damage = "cut short" if isinstance(e, EOFError) else "damaged"
            text = f"load: {name} is a {damage} checkpoint: at byte {machine.position}, {e}. Take another copy of it."
        else:
            begin = f"it begins with {head!r}" if head else "it is empty"
            text = f"load: {name} is not a checkpoint: {begin} ({e}). load reads what megengine.save writes."
        raise type(e)(text) from e.__cause__


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
            return _load_safely(f)
        if hasattr(pickle_module, "Unpickler"):
            return _mapping_unpickler(pickle_module)(f).load()
        return pickle_module.load(f)
