"""Tensors: memory of the library, seen from Python as NumPy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .base import call
from .struct import (
    LiteDataType,
    LiteDeviceType,
    LiteIOType,
    LiteLayout,
    LiteTensorDesc,
    MisuseError,
    lite_dtype_2_numpy,
)

__all__ = [
    "LiteDataType",
    "LiteDeviceType",
    "LiteIOType",
    "LiteLayout",
    "LiteTensor",
    "LiteTensorConcat",
    "lite_dtype_2_numpy",
]

_Handle = ctypes.c_void_p
_int_p = ctypes.POINTER(ctypes.c_int)
_size_p = ctypes.POINTER(ctypes.c_size_t)
_handle_p = ctypes.POINTER(ctypes.c_void_p)


class _Memory:
    """Lets NumPy see memory of a tensor and keeps the tensor alive while an array looks at it."""

    def __init__(self, owner: LiteTensor, address: int, layout: LiteLayout) -> None:
        self._owner = owner
        self.__array_interface__ = {
            "data": (address, False),
            "shape": tuple(layout.shapes),
            "typestr": np.dtype(layout.dtype).str,
            "version": 3,
        }


_Pointers: Any = (
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_wchar_p,
    ctypes._Pointer,
    type(ctypes.byref(ctypes.c_int())),
)
_Buffers = (bytes, bytearray, memoryview)
_CTypes: Any = (*_Pointers, ctypes._SimpleCData, ctypes.Array, ctypes.Structure, ctypes.Union)


def _check_data(who: str, data: Any, copied: bool) -> None:
    """Raises for what people give in place of memory: a number is no address, and lists have none of their own."""
    if isinstance(data, (np.ndarray, *_Buffers, *_CTypes)) or (
        copied and (isinstance(data, (list, tuple)) or _is_number(data))
    ):
        return
    way = " Give x.numpy()." if hasattr(data, "numpy") else ""
    some = "a NumPy array, a list, bytes or a ctypes object" if copied else "a NumPy array, bytes or a ctypes object"
    raise MisuseError(f"LiteTensor.{who}: needs {some}; got a {type(data).__name__}.{way}")


def _check_tensor(who: str, tensor: Any) -> None:
    if not isinstance(tensor, LiteTensor):
        raise MisuseError(f"lite: {who}: needs a LiteTensor; got a {type(tensor).__name__}.")


def _is_number(data: Any) -> bool:
    return bool(np.isscalar(data)) and not isinstance(data, (str, *_Buffers))


def _bytes_at(who: str, data: Any, length: int) -> int:
    """How many bytes there are behind a ctypes object; of a pointer only the caller knows."""
    size = 0 if isinstance(data, _Pointers) else ctypes.sizeof(data)
    if not size and not length:
        raise MisuseError(f"lite: {who}: a pointer needs the number of bytes that it points to.")
    if size and length > size:
        raise MisuseError(f"lite: {who}: {length} bytes of an object that has {size}.")
    return length or size


def _as_array(who: str, data: Any, length: int) -> npt.NDArray[np.uint8]:
    """The bytes of a buffer or behind a ctypes object, without a copy."""
    if isinstance(data, _Buffers):
        raw = np.frombuffer(data, np.uint8)
        if length > raw.size:
            raise MisuseError(f"lite: {who}: {length} bytes of an object that has {raw.size}.")
        return raw[: length or raw.size]
    length = _bytes_at(who, data, length)
    address = ctypes.cast(data, ctypes.c_void_p).value if isinstance(data, _Pointers) else ctypes.addressof(data)
    if not address:
        raise MisuseError(f"lite: {who}: got a null pointer.")
    return np.ctypeslib.as_array((ctypes.c_uint8 * length).from_address(address))


def _nbytes(layout: LiteLayout) -> int:
    return int(np.prod(layout.shapes, dtype=np.int64)) * np.dtype(layout.dtype).itemsize


class LiteTensor:
    """A tensor of Lite. One made here is its own; ``LiteNetwork.get_io_tensor`` gives those of a network.

    >>> t = LiteTensor(LiteLayout([2, 2], "float32"))
    >>> t.set_data_by_copy([[1, 2], [3, 4]])
    >>> t.to_numpy()
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    """

    def __init__(
        self,
        layout: LiteLayout | None = None,
        device_type: LiteDeviceType = LiteDeviceType.LITE_CPU,
        device_id: int = 0,
        is_pinned_host: bool = False,
        shapes: Sequence[int] | None = None,
        dtype: LiteDataType | npt.DTypeLike | None = None,
        physic_construct: bool = True,
    ) -> None:
        self._tensor = _Handle()
        self._owned = False
        self._keep: Any = None  # the network this tensor belongs to
        self._data: Any = None  # memory of the caller that the tensor looks at
        self._output: str | None = None  # its name, if a network fills it
        if not physic_construct:
            return
        if layout is not None and not isinstance(layout, LiteLayout):
            raise TypeError(
                f"LiteTensor: layout must be a LiteLayout; got a {type(layout).__name__}. LiteTensor(shapes=x.shape, "
                "dtype=x.dtype) makes room, set_data_by_copy(x) fills it."
            )
        if layout is None:
            layout = LiteLayout(shapes, dtype) if shapes is not None else LiteLayout(dtype=dtype)
        desc = LiteTensorDesc(int(is_pinned_host), layout, int(device_type), device_id)
        call("make_tensor", [LiteTensorDesc, _handle_p], desc, ctypes.byref(self._tensor))
        self._owned = True

    @classmethod
    def _wrap(cls, handle: ctypes.c_void_p, keep: Any, owned: bool = False) -> LiteTensor:
        tensor = cls(physic_construct=False)
        tensor._tensor = handle
        tensor._keep = keep
        tensor._owned = owned
        return tensor

    def __del__(self) -> None:
        if getattr(self, "_owned", False):
            self._owned = False
            call("destroy_tensor", [_Handle], self._tensor)

    def _hold(self, data: Any) -> None:
        """Keep memory that the tensor looks at. A tensor of a network outlives this object, so the network keeps it."""
        self._data = data
        held = getattr(self._keep, "_held", None)
        if held is not None:
            held[self._tensor.value] = data

    def _get_int(self, name: str) -> int:
        value = ctypes.c_int()
        call(name, [_Handle, _int_p], self._tensor, ctypes.byref(value))
        return value.value

    # ---- what it is

    @property
    def layout(self) -> LiteLayout:
        layout = LiteLayout()
        call("get_tensor_layout", [_Handle, ctypes.POINTER(LiteLayout)], self._tensor, ctypes.byref(layout))
        return layout

    @layout.setter
    def layout(self, layout: LiteLayout | Sequence[int]) -> None:
        if not isinstance(layout, LiteLayout):
            layout = LiteLayout(layout, LiteDataType(self.layout.data_type))
        call("set_tensor_layout", [_Handle, LiteLayout], self._tensor, layout)

    @property
    def is_pinned_host(self) -> bool:
        return bool(self._get_int("is_pinned_host"))

    @property
    def device_type(self) -> LiteDeviceType:
        return LiteDeviceType(self._get_int("get_tensor_device_type"))

    @property
    def device_id(self) -> int:
        return self._get_int("get_tensor_device_id")

    @property
    def is_continue(self) -> bool:
        """Its elements lie one after the other."""
        return bool(self._get_int("is_memory_continue"))

    @property
    def nbytes(self) -> int:
        value = ctypes.c_size_t()
        call("get_tensor_total_size_in_byte", [_Handle, _size_p], self._tensor, ctypes.byref(value))
        return value.value

    def update(self) -> None:
        """Refresh cached fields; nothing is cached here."""

    # ---- changing it

    def _check_writable(self) -> None:
        """Memory that is only read may be an input; it may be a mapped file, to write to which ends the process."""
        held = getattr(self._keep, "_held", None)
        data = self._data if held is None else held.get(self._tensor.value)
        while isinstance(data, LiteTensor):
            data = data._data
        if isinstance(data, np.ndarray) and not data.flags.writeable:
            raise RuntimeError("lite: the tensor looks at a read-only array, which cannot be written to; copy it.")

    def fill_zero(self) -> None:
        self._check_writable()
        call("tensor_fill_zero", [_Handle], self._tensor)

    def share_memory_with(self, src_tensor: LiteTensor) -> None:
        """From now on both are the same memory."""
        _check_tensor("share_memory_with", src_tensor)
        call("tensor_share_memory_with", [_Handle, _Handle], self._tensor, src_tensor._tensor)
        self._hold(src_tensor)

    def copy_from(self, src_tensor: LiteTensor) -> None:
        _check_tensor("copy_from", src_tensor)
        self._check_writable()
        call("tensor_copy", [_Handle, _Handle], self._tensor, src_tensor._tensor)

    def reshape(self, shape: Sequence[int]) -> None:
        """At most one dimension may be -1."""
        dims = (ctypes.c_int * len(shape))(*shape)
        call("tensor_reshape", [_Handle, _int_p, ctypes.c_int], self._tensor, dims, len(shape))

    def slice(self, start: Sequence[int], end: Sequence[int], step: Sequence[int] | None = None) -> LiteTensor:
        """A view of the leading axes that shares memory."""
        if len(start) != len(end) or (step is not None and len(step) != len(start)):
            raise MisuseError(f"lite: slice needs as many starts as ends and steps; got {start}, {end} and {step}.")
        array = ctypes.c_size_t * len(start)
        out = _Handle()
        steps = None if step is None else array(*step)
        call(
            "tensor_slice",
            [_Handle, _size_p, _size_p, _size_p, ctypes.c_size_t, _handle_p],
            self._tensor,
            array(*start),
            array(*end),
            steps,
            len(start),
            ctypes.byref(out),
        )
        return LiteTensor._wrap(out, self, owned=True)

    # ---- data in and out

    def get_ctypes_memory(self) -> ctypes.c_void_p:
        """The address of its first element; allocated when it was not."""
        address = ctypes.c_void_p()
        call("get_tensor_memory", [_Handle, _handle_p], self._tensor, ctypes.byref(address))
        return address

    def _check_host(self) -> None:
        if self.device_type != LiteDeviceType.LITE_CPU and not self.is_pinned_host:
            raise RuntimeError("lite: only memory of the CPU can be shared; copy the tensor to one first.")

    def set_data_by_share(self, data: Any, length: int = 0, layout: LiteLayout | None = None) -> None:
        """Use the caller's memory: a contiguous NumPy array or a ctypes object.

        An array brings its shape and type; but one that has as many elements in another number of dimensions, as a
        flat one, is memory for the layout that the tensor has. It is kept alive as long as the tensor uses it.
        """
        self._check_host()
        _check_data("set_data_by_share", data, copied=False)
        if isinstance(data, _Buffers):
            data, layout = _as_array("set_data_by_share", data, length), self.layout if layout is None else layout
        if isinstance(data, np.ndarray):
            if self._output is not None and not data.flags.writeable:
                raise RuntimeError(f"lite: output {self._output!r} cannot be written into a read-only array; copy it.")
            if not data.flags.c_contiguous:
                raise MisuseError("lite: only a contiguous array can be shared; use np.ascontiguousarray or copy it.")
            if not data.dtype.isnative:
                raise MisuseError("lite: the bytes of the array are in another machine's order; copy it.")
            layout = self._layout_for(data) if layout is None else layout
            address: Any = ctypes.c_void_p(data.ctypes.data)
            length = data.nbytes
        else:
            if layout is None:
                layout = self.layout
            pointer = isinstance(data, _Pointers)
            if not pointer or length:  # of a pointer without a length the caller knows that there is enough
                length = _bytes_at("set_data_by_share", data, length)
            else:
                length = _nbytes(layout)
            address = ctypes.cast(data, ctypes.c_void_p) if pointer else ctypes.c_void_p(ctypes.addressof(data))
        wanted = _nbytes(layout)
        if length < wanted:
            raise MisuseError(f"lite: {length} bytes of memory cannot hold {layout._text()}, which takes {wanted}.")
        call("reset_tensor", [_Handle, LiteLayout, ctypes.c_void_p], self._tensor, layout, address)
        self._hold(data)

    def _layout_for(self, data: npt.NDArray[Any]) -> LiteLayout:
        own, given = LiteLayout(data.shape or [1], data.dtype), self.layout
        flat = given.ndim != data.ndim and given.data_type == own.data_type and _nbytes(given) == data.nbytes
        return given if given.ndim and flat else own

    def set_data_by_copy(self, data: Any, data_length: int = 0, layout: LiteLayout | None = None) -> None:
        """Copy values in: a NumPy array, a list (taken as the tensor's type), bytes or a ctypes object.

        Bytes fill the layout; fewer of them, where a length or a layout is given, its beginning. A flat list fills the
        tensor in its layout, with zeros behind it; arrays and nested lists bring their shape.
        """
        _check_data("set_data_by_copy", data, copied=True)
        chosen = layout is not None or data_length > 0
        if layout is not None:
            self.layout = layout
        if isinstance(data, (list, tuple)) or _is_number(data):
            data = np.array(data, dtype=self.layout.dtype)
            here = self.layout
            if data.ndim == 1 and here.ndim and data.size <= np.prod(here.shapes):
                data = np.pad(data, (0, int(np.prod(here.shapes)) - data.size)).reshape(here.shapes)  # in their order
            elif layout is None:
                self.layout = data.shape or [1]
        if not isinstance(data, np.ndarray):
            whole = self.nbytes
            if layout is not None and isinstance(data, _Pointers):
                data_length = data_length or whole
            raw = _as_array("set_data_by_copy", data, data_length)
            if raw.size > whole or (raw.size < whole and not chosen):
                raise MisuseError(f"lite: {self.layout._text()} takes {whole} bytes; got {raw.size}.")
            if raw.size < whole:  # what is behind them stays
                values = self.to_numpy()
                values.reshape(-1).view(np.uint8)[: raw.size] = raw
                raw = values
            other = LiteTensor(self.layout)
            other.set_data_by_share(raw, layout=self.layout)
            self.copy_from(other)
            return
        target = LiteLayout(data.shape or [1], data.dtype) if layout is None and self.is_continue else self.layout
        source = np.ascontiguousarray(data, data.dtype.newbyteorder("="))
        if source.nbytes != _nbytes(target):
            raise MisuseError(
                f"lite: {target._text()} takes {_nbytes(target)} bytes; the array {data.shape} has {data.nbytes}."
            )
        # The library copies: it knows whether another thread gives the tensor other memory meanwhile.
        other = LiteTensor(target)
        other.set_data_by_share(source, layout=target)
        self.copy_from(other)

    def get_data_by_share(self) -> npt.NDArray[Any]:
        """An array that looks at the tensor's memory. It changes with the tensor, and must not outlive a new layout."""
        self._check_host()
        if not self.is_continue:
            raise RuntimeError("lite: the memory of this tensor is not contiguous; use to_numpy.")
        layout = self.layout
        address = self.get_ctypes_memory().value or 0
        if self.nbytes == 0:
            return np.empty(layout.shapes, layout.dtype)
        return np.asarray(_Memory(self, address, layout))

    def to_numpy(self) -> npt.NDArray[Any]:
        """A copy of the values."""
        if self._output is not None and not self._keep._ran and self._data is None:
            raise RuntimeError(
                f"lite: output {self._output!r} has no value yet. Call forward() and wait() before it is read."
            )
        layout = self.layout
        out = np.empty(layout.shapes if layout.ndim else 0, layout.dtype)
        if not layout.ndim:
            return out
        whole = LiteTensor(layout)
        whole.set_data_by_share(out, layout=layout)
        whole.copy_from(self)
        return out

    def __repr__(self) -> str:
        try:
            about = ("layout", "device_type", "device_id", "is_pinned_host")
            return str({name: getattr(self, name) for name in about})
        except RuntimeError as e:  # not made yet, or of a network that is gone
            return f"LiteTensor({e})"


def LiteTensorConcat(
    tensors: Sequence[LiteTensor],
    dim: int,
    device_type: LiteDeviceType = LiteDeviceType.LITE_DEVICE_DEFAULT,
    device_id: int = -1,
) -> LiteTensor:
    """A new tensor with ``tensors`` one after the other along ``dim``."""
    for tensor in tensors:
        _check_tensor("LiteTensorConcat", tensor)
    handles = (_Handle * len(tensors))(*[t._tensor for t in tensors])
    out = _Handle()
    call(
        "tensor_concat",
        [_handle_p, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int, _handle_p],
        handles,
        len(tensors),
        dim,
        int(device_type),
        device_id,
        ctypes.byref(out),
    )
    return LiteTensor._wrap(out, None, owned=True)
