"""What NumPy's pickles describe, made by our own hands: plain kinds only, and never more elements than data.

The type of everything that comes from the file is looked at before it is compared or printed: an ``==`` or a ``repr``
could be one that the program wrote.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..core.tensor import dtype as _dtype
from .machine import LARGE, Damaged, Machine, Pending, Refused

_PLAIN = re.compile(r"[<>=|]?(b1|i[1248]|u[1248]|f[248]|c8|c16|[Mm]8|O8?|[SU][0-9]{1,9})")
_UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as")
#: Scalar types beyond NumPy's, and the largest number of those that hold odd numbers only.
_OWN: dict[type, tuple[np.dtype[Any], int]] = {
    _dtype.bfloat16.type: (_dtype.bfloat16, 0),
    _dtype.intb1.type: (_dtype.intb1, 1),
    _dtype.intb2.type: (_dtype.intb2, 3),
    _dtype.intb4.type: (_dtype.intb4, 15),
}
_FOREIGN: Literal["<", ">"] = ">" if sys.byteorder == "little" else "<"
_ELEMENTS = 1 << 48  # in all axes that are not empty; an empty array has no data to hold its shape against


def _text(x: Any) -> str:
    """A string, which files of Python 2 have as bytes."""
    if type(x) is bytes:
        x = x.decode("ascii")
    if type(x) is not str:
        raise Damaged(f"a {type(x).__name__} where a text belongs")
    return x


def plain_dtype(spec: Any) -> np.dtype[Any]:
    """The dtype that a string or a scalar type names."""
    if isinstance(spec, type):
        if spec in _OWN:
            return _OWN[spec][0]
        spec = np.dtype(spec).str if issubclass(spec, np.generic) else spec.__name__
    spec = _text(spec)
    if not _PLAIN.fullmatch(spec):
        raise Refused(f"the file has an array of {spec!r:.40}; load makes those of numbers, text, times and objects")
    dtype: np.dtype[Any] = np.dtype(spec)
    return dtype


class DtypeStub(Pending):
    """``numpy.dtype(spec, align, copy)``."""

    __slots__ = ("_dtype",)

    def __init__(self, machine: Machine, args: tuple[Any, ...]) -> None:
        super().__init__()
        if not 1 <= len(args) <= 3:
            raise Damaged(f"numpy.dtype of {len(args)} arguments")
        self._dtype = plain_dtype(args[0])

    def value(self) -> np.dtype[Any]:
        """In the byte order of this machine, where nothing was said."""
        return self._dtype

    def build(self, machine: Machine, state: Any) -> np.dtype[Any]:
        """With the byte order and the notes that the state holds."""
        dtype = self._dtype
        if type(state) is not tuple or not 8 <= len(state) <= 9 or type(state[0]) is not int:
            raise Damaged("the state of a dtype has not the parts it should have")
        version, order, sub, names, fields, size = state[:6]
        if not (sub is None and names is None and fields is None):
            raise Refused("the file has an array with fields; save each as an array of its own")
        order = _text(order)
        if version != len(state) - 5 or order not in ("<", ">", "=", "|") or type(size) is not int:
            raise Damaged("the state of a dtype has not the parts it should have")
        if size not in (-1, dtype.itemsize):
            raise Damaged(f"a dtype {dtype} of {size} bytes")
        if dtype.type in _OWN:
            return dtype
        notes = state[8] if len(state) == 9 else None
        if dtype.kind in "Mm" and type(notes) is tuple and len(notes) == 2:
            notes, unit = notes
            dtype = np.dtype(f"{dtype.kind}8{_unit(unit)}")
        if order == _FOREIGN:  # native dtypes are NumPy's own objects, never their copies
            dtype = dtype.newbyteorder(_FOREIGN)
        return dtype if notes is None else _noted(dtype, notes)


def _unit(unit: Any) -> str:
    if type(unit) is not tuple or len(unit) != 4 or any(type(n) is not int for n in unit[1:]):
        raise Damaged("a unit of time has not the parts it should have")
    name, count = _text(unit[0]), unit[1]
    if name == "generic":
        return ""
    if name not in _UNITS or not 0 < count < 1 << 31 or unit[2:] != (1, 1):
        raise Damaged(f"a unit of time {count} {name!r:.10}")
    return f"[{count}{name}]"


def _noted(dtype: np.dtype[Any], notes: Any) -> np.dtype[Any]:
    """A quantised dtype: an integer one with a scale in its metadata."""
    if type(notes) is dict and not notes:
        return dtype
    mgb = notes.get("mgb_dtype") if type(notes) is dict and len(notes) == 1 else None
    if type(mgb) is not dict or type(mgb.get("name")) is not str:
        raise Refused("the file has a dtype with metadata that is not that of a quantised type")
    meta = _dtype._builtin_quant_dtypes_by_cname.get(mgb["name"])
    scale, zero, axis = mgb.get("scale"), mgb.get("zero_point"), mgb.get("axis")
    if meta is not None and meta.np_dtype_str == dtype.name and axis is not None:
        return _per_channel(meta, scale, zero, axis, mgb.get("span", 1))
    if meta is None or meta.np_dtype_str != dtype.name or not isinstance(scale, (float, int, np.floating)):
        raise Damaged(f"a quantised dtype {mgb['name']!r:.40} without a scale, or held by {dtype}")
    if not (zero is None or isinstance(zero, (int, np.integer))):
        raise Damaged(f"a zero point that is a {type(zero).__name__}")
    return _dtype.create_quantized_dtype(meta, scale, zero)


def _per_channel(meta: _dtype.QuantDtypeMeta, scale: Any, zero: Any, axis: Any, span: Any) -> np.dtype[Any]:
    good = type(scale) is tuple and all(type(s) is float for s in scale) and type(axis) is int and type(span) is int
    if not good or not (zero is None or type(zero) is tuple and all(type(z) is int for z in zero)):
        raise Damaged("a dtype quantised per channel without its lists of scales and zero points")
    return _dtype.create_quantized_dtype(meta, scale, zero, axis, span)


class ArrayStub(Pending):
    """``_reconstruct(ndarray, (0,), b"b")`` or ``ndarray((0,), "b")``, which a state fills."""

    __slots__ = ()

    def value(self) -> Any:
        """There is none before the state came."""
        raise Damaged("an array without its data")

    def build(self, machine: Machine, state: Any) -> npt.NDArray[Any]:
        """The array."""
        if type(state) is not tuple or not 4 <= len(state) <= 5 or type(state[-2]) not in (bool, int):
            raise Damaged("the state of an array has not the parts it should have")
        shape, dtype, fortran, data = state[-4:]
        array = make_array(machine, dtype, shape, "F" if fortran else "C", data)
        if type(data) is bytes and len(data) >= LARGE:
            machine.forget(state, data)
        return array


def make_array(machine: Machine, dtype: Any, shape: Any, order: Literal["C", "F"], data: Any) -> npt.NDArray[Any]:
    """An array that owns a copy of ``data``, which must be as long as the shape says."""
    if type(shape) is not tuple or any(type(d) is not int or d < 0 for d in shape) or not isinstance(dtype, np.dtype):
        raise Damaged("an array whose shape or dtype is none")
    count = math.prod(shape)
    if math.prod(d for d in shape if d) > _ELEMENTS:
        raise Damaged(f"an array of {len(shape)} axes with more elements than memory can hold")
    if dtype.hasobject:
        if type(data) is not list or len(data) != count:
            raise Damaged(f"an array of {count} objects that are not there")
        machine.spend(count)
        objects: npt.NDArray[Any] = np.full(count, None, dtype=object)
        for i, x in enumerate(data):
            objects[i] = x
        objects = objects.reshape(shape, order=order)
        machine.own(objects, machine.height(data))
        return objects
    if type(data) is str:
        data = data.encode("latin1")
    if type(data) not in (bytes, bytearray) or len(data) != count * dtype.itemsize or (count and not data):
        raise Damaged(f"an array of {count} elements of {dtype} with data of another length")
    if not count:
        return np.zeros(shape, dtype)
    machine.spend(len(data))
    array = np.frombuffer(data, dtype)
    _check_elements(array)
    return array.reshape(shape, order=order).copy(order="K")


def _check_elements(array: npt.NDArray[Any]) -> None:
    """Refuse bytes that no element of the dtype has: NumPy takes them on trust."""
    dtype = array.dtype
    top = _OWN[dtype.type][1] if dtype.type in _OWN else 0
    if dtype.kind == "b":
        bad = array.view(np.uint8) > 1
    elif dtype.kind == "U":
        bad = array.view(np.dtype("u4").newbyteorder(dtype.byteorder)) > 0x10FFFF
    elif top:
        small = array.view(np.int8)
        bad = (small % 2 == 0) | (small > top) | (small < -top)
    else:
        return
    if bad.any():
        raise Damaged(f"values that no {dtype} has")


def _begins_empty(shape: Any, code: Any) -> bool:
    """Whether an array is made as NumPy makes those that a state fills."""
    return type(shape) is tuple and len(shape) == 1 and type(shape[0]) is int and not shape[0] and _text(code) == "b"


def reconstruct(machine: Machine, args: tuple[Any, ...]) -> ArrayStub:
    """``numpy.core.multiarray._reconstruct``."""
    if len(args) != 3 or args[0] is not np.ndarray or not _begins_empty(*args[1:]):
        raise Refused("the file makes an array that is not one of numpy.ndarray")
    return ArrayStub()


def ndarray(machine: Machine, args: tuple[Any, ...]) -> ArrayStub:
    """``numpy.ndarray``, which only makes the empty array that a state fills."""
    if len(args) != 2 or not _begins_empty(*args):
        raise Refused("the file calls numpy.ndarray, which gives out memory that was never written")
    return ArrayStub()


def frombuffer(machine: Machine, args: tuple[Any, ...]) -> npt.NDArray[Any]:
    """``numpy.core.numeric._frombuffer``, of protocol 5."""
    data, dtype, shape, order = args
    order = _text(order)
    if order not in ("C", "F"):
        raise Damaged(f"an array in order {order!r:.10}")
    array = make_array(machine, dtype, shape, order, data)  # type: ignore[arg-type]
    if len(data) >= LARGE:
        machine.forget(args, data)
    return array


def scalar(machine: Machine, args: tuple[Any, ...]) -> Any:
    """``numpy.core.multiarray.scalar``."""
    dtype, data = args
    if not isinstance(dtype, np.dtype) or dtype.hasobject:
        raise Refused("the file has a NumPy scalar that is no number, text or time")
    if dtype.itemsize == 0 and type(data) in (bytes, str) and not data:
        return dtype.type()
    return make_array(machine, dtype, (), "C", data)[()]


_SCALAR_OF: dict[str, type] = {"b": bool, "i": int, "u": int, "f": float, "c": complex, "U": str, "S": bytes}


def scalar_of(kind: type[np.generic]) -> Callable[[Machine, tuple[Any, ...]], Any]:
    """A NumPy scalar type called with the Python value of one of its scalars, as megengine.save writes them."""
    takes = _SCALAR_OF.get(np.dtype(kind).kind)

    def make(machine: Machine, args: tuple[Any, ...]) -> Any:
        if len(args) != 1 or type(args[0]) is not takes:
            raise Refused(f"the file calls numpy.{kind.__name__} with something else than a scalar of its kind")
        if isinstance(args[0], (str, bytes)):
            machine.spend(4 * len(args[0]))
        return kind(args[0])

    return make
