"""Dtypes beyond NumPy's: quantised types as NumPy dtypes with metadata, and the helpers around them.

A quantised dtype is an integer NumPy dtype whose metadata holds ``{"mgb_dtype": {"name", "scale"[, "zero_point"]}}``;
real = scale * (q - zero_point). Per channel, scale and zero_point are tuples and ``axis`` says which axis they count.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _core

_Meta = namedtuple("_Meta", ["name", "cname", "np_dtype_str", "qmin", "qmax", "is_unsigned"])


class QuantDtypeMeta(_Meta):
    """What a quantised type stores: its names, the integers that carry it and the range they may take.

    There is one object for each: copies, and those from files, are the object itself, so ``is`` tells whether two are
    the same type.
    """

    __slots__ = ()

    def __new__(
        cls, name: str, cname: str | None, np_dtype_str: str, qmin: int, qmax: int, is_unsigned: bool | None = None
    ) -> QuantDtypeMeta:
        if is_unsigned is None:
            is_unsigned = np_dtype_str[0] == "u"
        made = super().__new__(cls, name, cname, np_dtype_str, qmin, qmax, is_unsigned)
        return _metas.setdefault(made, made)

    def __copy__(self) -> QuantDtypeMeta:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> QuantDtypeMeta:
        return self


_metas: dict[QuantDtypeMeta, QuantDtypeMeta] = {}
_builtin_quant_dtypes: dict[str, QuantDtypeMeta] = {
    m.name: m
    for m in (
        QuantDtypeMeta("quint8", "Quantized8Asymm", "uint8", 0, 255),
        QuantDtypeMeta("qint8", "QuantizedS8", "int8", -128, 127),
        QuantDtypeMeta("qint8_narrow", "QuantizedS8", "int8", -127, 127),
        QuantDtypeMeta("quint4", "Quantized4Asymm", "uint8", 0, 15),
        QuantDtypeMeta("qint4", "QuantizedS4", "int8", -8, 7),
        QuantDtypeMeta("qint1", "QuantizedS1", "int8", 0, 1),
        QuantDtypeMeta("qint32", "QuantizedS32", "int32", -(2**31), 2**31 - 1),
        QuantDtypeMeta("quint2", None, "uint8", 0, 3),
        QuantDtypeMeta("qint2", None, "int8", -2, 1),
    )
}
_builtin_quant_dtypes_by_cname = {
    m.cname: m for m in _builtin_quant_dtypes.values() if m.cname and m.name != "qint8_narrow"
}

#: NumPy holds, prints and casts these; arithmetic on arrays of them gives float64.
bfloat16 = _core.numpy_dtype("bfloat16")
#: ``intb1`` … ``intb4`` take the odd numbers from -(2**bits - 1) to 2**bits - 1, and raise ValueError for others.
intb1 = _core.numpy_dtype("intb1")
intb2 = _core.numpy_dtype("intb2")
intb4 = _core.numpy_dtype("intb4")


def _mgb(dtype: Any) -> dict[str, Any] | None:
    metadata = dtype.metadata if isinstance(dtype, np.dtype) else None
    return metadata.get("mgb_dtype") if metadata is not None else None


def get_dtype_bit(dtype_name: str) -> int:
    """Bits of one element of a named dtype.

    >>> from megengine.core.tensor.dtype import get_dtype_bit
    >>> get_dtype_bit("float32"), get_dtype_bit("qint4"), get_dtype_bit("bool")
    (32, 4, 1)
    """
    if dtype_name == "bool":
        return 1
    digits = "".join(c for c in dtype_name if c.isdigit())
    if not digits:
        raise ValueError(f"get_dtype_bit: no width in dtype name {dtype_name!r}.")
    return int(digits)


def is_lowbit(dtype: Any) -> bool:
    """Whether ``dtype`` is intb1, intb2 or intb4."""
    return any(dtype is d for d in (intb1, intb2, intb4))


def is_bfloat16(dtype: Any) -> bool:
    """Whether ``dtype`` is bfloat16."""
    return dtype is bfloat16


def is_differentible_dtype(dtype: Any) -> bool:
    """Whether gradients are defined for ``dtype``: a floating-point type."""
    return np.dtype(dtype).kind == "f" or is_bfloat16(dtype)


def is_quantize(dtype: Any) -> bool:
    """Whether ``dtype`` is a quantised type.

    >>> from megengine.core.tensor.dtype import is_quantize, qint8
    >>> is_quantize(qint8(0.1)), is_quantize(np.dtype("int8"))
    (True, False)
    """
    meta = _mgb(dtype)
    return meta is not None and "scale" in meta


def get_scale(dtype: Any) -> Any:
    """The scale of a quantised dtype: a float, or a float32 array with one per channel."""
    meta = _mgb(dtype)
    if meta is None or "scale" not in meta:
        raise _core.UserError(f"get_scale: {dtype!r} is not a quantised dtype.")
    return np.array(meta["scale"], dtype="float32") if "axis" in meta else float(meta["scale"])


def get_zero_point(dtype: Any) -> Any:
    """The zero point of an asymmetric quantised dtype: an int, or an int32 array with one per channel."""
    meta = _mgb(dtype)
    if meta is None or meta["name"] not in ("Quantized8Asymm", "Quantized4Asymm"):
        raise _core.UserError(f"get_zero_point: {dtype!r} has no zero point; only quint8 and quint4 have one.")
    return np.array(meta["zero_point"], dtype="int32") if "axis" in meta else int(meta["zero_point"])


def get_axis(dtype: Any) -> int | None:
    """The axis whose channels have a scale each; None where the whole tensor has one.

    >>> from megengine.core.tensor.dtype import get_axis, qint8
    >>> get_axis(qint8([0.1, 0.2], axis=0)), get_axis(qint8(0.1))
    (0, None)
    """
    meta = _mgb(dtype)
    return meta.get("axis") if meta is not None else None


def is_dtype_equal(a: Any, b: Any) -> bool:
    """Whether two dtypes are the same, scale and zero point included.

    >>> from megengine.core.tensor.dtype import is_dtype_equal, qint8
    >>> is_dtype_equal(qint8(0.1), qint8(0.1)), is_dtype_equal(qint8(0.1), np.dtype("int8"))
    (True, False)
    """
    return np.dtype(a) == np.dtype(b) and _mgb(a) == _mgb(b)


def _zero_points(meta: QuantDtypeMeta, zp: Any, count: int) -> tuple[int, ...]:
    values = np.broadcast_to(np.asarray(0 if zp is None else zp), (count,))
    if zp is None or np.any(values != np.round(values)) or np.any(values < meta.qmin) or np.any(values > meta.qmax):
        raise ValueError(
            f"create_quantized_dtype: {meta.name} needs an integer zero point from {meta.qmin} to {meta.qmax}; "
            f"got {zp!r}."
        )
    return tuple(int(v) for v in values)


def create_quantized_dtype(
    dtype_meta: QuantDtypeMeta, scale: Any, zp: Any, axis: int | None = None, span: int = 1
) -> np.dtype[Any]:
    """The NumPy dtype of quantised values with this scale and zero point.

    With ``axis``, ``scale`` (and ``zp``) have one entry per channel: per index of that axis, or of the ``span`` axes
    from it taken together (a grouped weight has its output channels in two axes).

    >>> from megengine.core.tensor.dtype import _builtin_quant_dtypes, create_quantized_dtype, get_scale
    >>> get_scale(create_quantized_dtype(_builtin_quant_dtypes["qint8"], 0.5, None))
    0.5
    """
    if dtype_meta.cname is None:
        raise ValueError(f"create_quantized_dtype: {dtype_meta.name} exists only as a range; no tensor can hold it.")
    scales = np.ravel(np.asarray(scale, dtype="float64"))
    if axis is None and np.size(scale) != 1:
        raise ValueError(
            f"create_quantized_dtype: {scales.size} scales need the axis whose channels they belong to; give axis=0, "
            "for example."
        )
    mgb: dict[str, Any] = {"name": dtype_meta.cname}
    mgb["scale"] = float(scales[0]) if axis is None else tuple(float(np.float32(v)) for v in scales)
    if dtype_meta.is_unsigned:
        zeros = _zero_points(dtype_meta, zp, scales.size)
        mgb["zero_point"] = zeros[0] if axis is None else zeros
    elif zp is not None:
        raise ValueError(f"create_quantized_dtype: {dtype_meta.name} is symmetric and takes no zero point; got {zp!r}.")
    if axis is not None:
        mgb["axis"] = int(axis)
        if span != 1:
            mgb["span"] = int(span)
    dtype: np.dtype[Any] = np.dtype(dtype_meta.np_dtype_str, metadata={"mgb_dtype": mgb})
    return dtype


def quint8(scale: Any, zero_point: Any, axis: int | None = None) -> np.dtype[Any]:
    """8 bits, asymmetric: q in 0..255."""
    return create_quantized_dtype(_builtin_quant_dtypes["quint8"], scale, zero_point, axis)


def qint8(scale: Any, axis: int | None = None) -> np.dtype[Any]:
    """8 bits, symmetric: q in -128..127. With ``axis``, one scale per channel."""
    return create_quantized_dtype(_builtin_quant_dtypes["qint8"], scale, None, axis)


def qint32(scale: Any, axis: int | None = None) -> np.dtype[Any]:
    """32 bits, symmetric: biases of quantised layers."""
    return create_quantized_dtype(_builtin_quant_dtypes["qint32"], scale, None, axis)


def quint4(scale: Any, zero_point: Any, axis: int | None = None) -> np.dtype[Any]:
    """4 bits, asymmetric: q in 0..15."""
    return create_quantized_dtype(_builtin_quant_dtypes["quint4"], scale, zero_point, axis)


def qint4(scale: Any, axis: int | None = None) -> np.dtype[Any]:
    """4 bits, symmetric: q in -8..7."""
    return create_quantized_dtype(_builtin_quant_dtypes["qint4"], scale, None, axis)


def qint1(scale: float) -> np.dtype[Any]:
    """1 bit: q in 0..1."""
    return create_quantized_dtype(_builtin_quant_dtypes["qint1"], scale, None)


def _along(values: Any, mgb: dict[str, Any], arr: npt.NDArray[Any], kind: str) -> npt.NDArray[Any]:
    """Scales or zero points in a shape that broadcasts against ``arr``."""
    v = np.asarray(values, dtype=kind)
    if v.ndim == 0:
        return v
    axis, span = mgb["axis"], mgb.get("span", 1)
    shape = [n if axis <= i < axis + span else 1 for i, n in enumerate(arr.shape)]
    return v.reshape(shape)


def _round_away(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """C's round: halves away from zero, as the engine rounds."""
    whole = np.trunc(x)
    with np.errstate(invalid="ignore"):
        out: npt.NDArray[Any] = whole + np.where(np.abs(x - whole) >= 0.5, np.copysign(1, x), 0)
    return out


def _convert_to(arr: npt.NDArray[Any], dtype: np.dtype[Any], kind: str) -> npt.NDArray[Any]:
    meta = _builtin_quant_dtypes[kind]
    if not isinstance(arr, np.ndarray):
        raise ValueError(f"convert_to_{kind}: needs an ndarray; got {type(arr).__name__}.")
    mgb = _mgb(dtype)
    if mgb is None or mgb["name"] != meta.cname:
        raise ValueError(f"convert_to_{kind}: needs a {kind} dtype; got {dtype!r}.")
    scale = _along(mgb["scale"], mgb, arr, "float32")
    zero = _along(mgb.get("zero_point", 0), mgb, arr, "float64")
    q = _round_away(arr.astype(np.float32) / scale).astype(np.float64) + zero
    q = np.where(np.isnan(q), meta.qmin, np.clip(q, meta.qmin, meta.qmax))
    out: npt.NDArray[Any] = q.astype(dtype)
    return out


def _convert_from(arr: npt.NDArray[Any], kind: str) -> npt.NDArray[Any]:
    meta = _builtin_quant_dtypes[kind]
    mgb = _mgb(arr.dtype) if isinstance(arr, np.ndarray) else None
    if mgb is None or mgb["name"] != meta.cname:
        raise ValueError(f"convert_from_{kind}: needs an ndarray of a {kind} dtype; got {arr!r:.80}.")
    scale = _along(mgb["scale"], mgb, arr, "float32")
    zero = _along(mgb.get("zero_point", 0), mgb, arr, "int64")
    out: npt.NDArray[Any] = (arr.astype(np.int64) - zero).astype(np.float32) * scale
    return out


def convert_to_quint8(arr: npt.NDArray[Any], q: np.dtype[Any]) -> npt.NDArray[Any]:
    """Quantise a float array: clip(round(arr / scale) + zero_point).

    >>> from megengine.core.tensor.dtype import convert_to_quint8, quint8
    >>> convert_to_quint8(np.array([0.0, 0.5, 99.0]), quint8(0.1, 128)).tolist()
    [128, 133, 255]
    """
    return _convert_to(arr, q, "quint8")


def convert_from_quint8(arr: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The real numbers that a quint8 array stands for."""
    return _convert_from(arr, "quint8")


def convert_to_qint8(arr: npt.NDArray[Any], q: np.dtype[Any]) -> npt.NDArray[Any]:
    """Quantise a float array: clip(round(arr / scale))."""
    return _convert_to(arr, q, "qint8")


def convert_from_qint8(arr: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The real numbers that a qint8 array stands for."""
    return _convert_from(arr, "qint8")


def convert_to_qint32(arr: npt.NDArray[Any], q: np.dtype[Any]) -> npt.NDArray[Any]:
    """Quantise a float array: clip(round(arr / scale))."""
    return _convert_to(arr, q, "qint32")


def convert_from_qint32(arr: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The real numbers that a qint32 array stands for."""
    return _convert_from(arr, "qint32")


def convert_to_quint4(arr: npt.NDArray[Any], q: np.dtype[Any]) -> npt.NDArray[Any]:
    """Quantise a float array: clip(round(arr / scale) + zero_point)."""
    return _convert_to(arr, q, "quint4")


def convert_from_quint4(arr: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The real numbers that a quint4 array stands for."""
    return _convert_from(arr, "quint4")


def convert_to_qint4(arr: npt.NDArray[Any], q: np.dtype[Any]) -> npt.NDArray[Any]:
    """Quantise a float array: clip(round(arr / scale))."""
    return _convert_to(arr, q, "qint4")


def convert_from_qint4(arr: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The real numbers that a qint4 array stands for."""
    return _convert_from(arr, "qint4")


def convert_to_qint1(arr: npt.NDArray[Any], q: np.dtype[Any]) -> npt.NDArray[Any]:
    """Quantise a float array: clip(round(arr / scale))."""
    return _convert_to(arr, q, "qint1")


def convert_from_qint1(arr: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The real numbers that a qint1 array stands for."""
    return _convert_from(arr, "qint1")


def convert_to_bfloat16(arr: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A float array in bfloat16, rounded to nearest even; NaN stays NaN.

    >>> from megengine.core.tensor.dtype import convert_from_bfloat16, convert_to_bfloat16
    >>> convert_from_bfloat16(convert_to_bfloat16(np.array([1.0, 3.14159], dtype="float32")))
    array([1.      , 3.140625], dtype=float32)
    """
    return np.asarray(arr).astype(bfloat16)


def convert_from_bfloat16(arr: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The float32 values of a bfloat16 array."""
    if not is_bfloat16(arr.dtype):
        raise ValueError(f"convert_from_bfloat16: needs a bfloat16 array; got {arr.dtype}.")
    return arr.astype(np.float32)


#: What a product of 16-bit values is kept in; made by the engine alone.
_builtin_quant_dtypes_by_name = {
    **_builtin_quant_dtypes,
    "qint16": QuantDtypeMeta("qint16", "QuantizedS16", "int16", -32768, 32767),
}


def _quant_dtype(name: str, scale: Any, zero_point: Any, axis: int | None = None, span: int = 1) -> np.dtype[Any]:
    """How the engine's quantised types look to NumPy."""
    meta = _builtin_quant_dtypes_by_name[name]
    return create_quantized_dtype(meta, scale, zero_point if meta.is_unsigned else None, axis, span)


_core.set_quant_hook(_quant_dtype)
