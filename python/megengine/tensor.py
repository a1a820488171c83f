"""Tensor and Parameter. Construction, operators and basic indexing are in C (``core._core``); the rest is here."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from .core import _core, _habits
from .core._core import CompNode, TensorBase, ops
from .core._habits import unexpected
from .core._trace_option import use_symbolic_shape
from .core._warn import warn_once
from .core.tensor import indexing
from .core.tensor.dtype import is_bfloat16
from .core.tensor.qparams import QParams, create_qparams
from .core.tensor.utils import ArgumentError, _normalize_axis, axes_of, make_shape_tuple
from .device import _valid_device, get_default_device
from .logger import get_logger

__all__ = ["Parameter", "Tensor", "as_device", "get_default_device", "get_logger", "tensor", "use_symbolic_shape"]

Axis = int | Sequence[int] | None


class ArrayMethodMixin:
    """What an array type gets for free from ``shape``, ``dtype``, ``numpy``, ``astype`` and ``reshape``."""

    __slots__ = ()
    #: Above ndarray's, so that ``array + tensor`` is left to the tensor.
    __array_priority__ = 1001

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of every axis."""
        raise NotImplementedError

    @property
    def _tuple_shape(self) -> tuple[int, ...]:
        raise NotImplementedError

    @property
    def ndim(self) -> int:
        """The number of axes."""
        raise NotImplementedError

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        raise NotImplementedError

    def numpy(self) -> npt.NDArray[Any]:
        """The value as a read-only NumPy array."""
        raise NotImplementedError

    def astype(self, dtype: Any) -> Tensor:
        """The value cast to ``dtype``; the tensor itself when it has that dtype."""
        raise NotImplementedError

    def reshape(self, *args: Any) -> Tensor:
        """The same elements in another shape; one size may be -1."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """The number of elements.

        >>> mge.tensor([[1, 2, 3]]).size, mge.tensor(1.0).size
        (3, 1)
        """
        n = 1
        for d in self.shape:
            n *= d
        return n

    @property
    def T(self) -> Tensor:
        """The tensor with its axes reversed.

        >>> mge.tensor([[1, 2, 3]]).T.shape
        (3, 1)
        """
        return self.transpose()

    def item(self, *args: Any) -> Any:
        """The only element as a Python number; with ``args`` the element at that index.

        >>> mge.tensor([[1, 2], [3, 4]]).item(1, 0)
        3
        """
        if args:
            try:
                return self[args if len(args) > 1 else args[0]].item()  # type: ignore[index]
            except IndexError as e:
                raise _core.OpIndexError(f"item{args}: {e} for a tensor of shape {self.shape}.") from None
        value = self.numpy()
        try:
            return value.item()
        except ValueError:
            shape = self._tuple_shape
            raise ArgumentError(
                f"item: needs one element; a tensor of shape {shape} has {math.prod(shape)}. x.tolist() and x.numpy() "
                "give all, x[i].item() one."
            ) from None

    def tolist(self) -> Any:
        """The value as nested lists, or a Python number.

        >>> mge.tensor([[1, 2], [3, 4]]).tolist()
        [[1, 2], [3, 4]]
        """
        return self.numpy().tolist()

    def transpose(self, *args: Any) -> Tensor:
        """Reorder the axes; without arguments reverse them.

        Args:
            args: for each axis of the result the axis it comes from, or ``"x"`` for a new axis of size 1. A negative
                number means ``"x"`` too. Axes of size 1 that are not named are dropped.

        >>> x = mge.tensor(np.zeros((2, 1, 3)))
        >>> x.transpose(2, 0, 1).shape, x.transpose(2, "x", 0).shape
        ((3, 2, 1), (3, 1, 2))
        """
        ndim = self.ndim
        if not args:
            return ops.transpose(self, perm=tuple(range(ndim - 1, -1, -1)))
        if len(args) == 1 and isinstance(args[0], (list, tuple, range, np.ndarray, TensorBase)):
            given = args[0]
            args = tuple(given.numpy() if isinstance(given, TensorBase) else given)
        if ndim == 0:
            if not args:
                return ops.copy(self)
            raise IndexError(f"transpose: a 0-d tensor has no axes to reorder; got {args}.")
        new: list[int] = []
        perm: list[int] = []
        for i, a in enumerate(args):
            if a == "x" or (a != "x" and int(a) < 0):
                new.append(i)
                continue
            if int(a) >= ndim or int(a) in perm:
                raise _core.UserError(
                    f"transpose: {args} must name each axis of {self._tuple_shape}, 0..{ndim - 1}, at most once."
                )
            perm.append(int(a))
        x: Any = self
        if len(perm) < ndim:
            dropped = tuple(i for i in range(ndim) if i not in perm)
            try:
                x = ops.squeeze(x, axes=dropped)
            except ValueError:
                shape = self._tuple_shape
                axis = next(i for i in dropped if shape[i] != 1)
                two = f"; F.swapaxes(x, {perm[0]}, {perm[1]}) exchanges two" if len(perm) == 2 else ""
                raise _core.UserError(
                    f"transpose: {args} leaves out axis {axis} of {shape}, whose size {shape[axis]} is not 1. Name all "
                    f"axes of 0..{ndim - 1}{two}."
                ) from None
            perm = [p - sum(d < p for d in dropped) for p in perm]
        x = ops.transpose(x, perm=tuple(perm)) if perm != list(range(len(perm))) or x is self else x
        return ops.expand_dims(x, axes=tuple(new)) if new else x

    def flatten(self, start_axis: int = 0, end_axis: int = -1, **other: NoReturn) -> Tensor:
        """Merge the axes from ``start_axis`` to ``end_axis`` into one.

        >>> mge.tensor(np.zeros((2, 3, 4))).flatten(1).shape
        (2, 12)
        """
        if other:
            raise unexpected("flatten", other, ArrayMethodMixin.flatten)
        return _core.ops.flatten(self, start=start_axis, end=end_axis)

    def _reduce(self, mode: str, axis: Axis, keepdims: bool) -> Tensor:
        if axis is None:
            if keepdims:
                raise AssertionError(f"{mode}: keepdims=True needs an axis. Name all axes to keep them all.")
            return ops.reduce(self, mode=mode)
        if type(axis) is int:
            ndim = self.ndim
            if ndim == 0 and axis in (0, -1):  # the only element has an axis to reduce, as in NumPy
                return ops.reduce(ops.expand_dims(self, axes=(0,)), mode=mode, axes=(0,), keepdims=keepdims)
            axes: tuple[int, ...] = (axis if 0 <= axis < ndim else _normalize_axis(ndim, axis, False, mode),)
        else:
            axes = tuple(_normalize_axis(self.ndim, axes_of(axis, mode), False, mode))
            if not axes:  # no axis named: nothing is reduced, but the dtype rules hold
                one = ops.expand_dims(self, axes=(0,))
                return ops.reduce(one, mode=mode, axes=(0,))
        return ops.reduce(self, mode=mode, axes=axes, keepdims=keepdims)

    def sum(self, axis: Axis = None, keepdims: bool = False, **other: NoReturn) -> Tensor:
        """The sum over ``axis``, or over everything.

        >>> mge.tensor([[1, 2], [3, 4]]).sum(axis=0)
        Tensor([4 6], dtype=int32, device=xpux:0)
        """
        if other:
            raise unexpected("sum", other, ArrayMethodMixin.sum)
        if axis is None and not keepdims:
            return ops.reduce(self, mode="sum")
        return self._reduce("sum", axis, keepdims)

    def prod(self, axis: Axis = None, keepdims: bool = False, **other: NoReturn) -> Tensor:
        """The product over ``axis``, or over everything.

        >>> mge.tensor([[1, 2], [3, 4]]).prod().item()
        24
        """
        if other:
            raise unexpected("prod", other, ArrayMethodMixin.prod)
        if axis is None and not keepdims:
            return ops.reduce(self, mode="prod")
        return self._reduce("prod", axis, keepdims)

    def min(self, axis: Axis = None, keepdims: bool = False, **other: NoReturn) -> Tensor:
        """The smallest element along ``axis``, or of all; NaN wins.

        >>> mge.tensor([[1, 2], [3, 4]]).min(axis=1).tolist()
        [1, 3]
        """
        if other:
            raise unexpected("min", other, ArrayMethodMixin.min)
        if axis is None and not keepdims:
            return ops.reduce(self, mode="min")
        return self._reduce("min", axis, keepdims)

    def max(self, axis: Axis = None, keepdims: bool = False, **other: NoReturn) -> Tensor:
        """The largest element along ``axis``, or of all; NaN wins.

        >>> mge.tensor([[1, 2], [3, 4]]).max(axis=1).tolist()
        [2, 4]
        """
        if other:
            raise unexpected("max", other, ArrayMethodMixin.max)
        if axis is None and not keepdims:
            return ops.reduce(self, mode="max")
        return self._reduce("max", axis, keepdims)

    def mean(self, axis: Axis = None, keepdims: bool = False, **other: NoReturn) -> Tensor:
        """The mean over ``axis``, or over everything, in float32 for integers and float16.

        >>> mge.tensor([[1, 2], [3, 4]]).mean().item()
        2.5
        """
        if other:
            raise unexpected("mean", other, ArrayMethodMixin.mean)
        if axis is None and not keepdims:
            return ops.reduce(self, mode="mean")
        return self._reduce("mean", axis, keepdims)

    def _broadcast(self, *shape: Any) -> Tensor:
        return ops.broadcast_to(self, shape=make_shape_tuple(*shape))


class _GivenName:
    """The tensor's own name, until a module that holds the tensor writes another into its dict."""

    def __get__(self, tensor: Tensor | None, owner: type) -> str:
        return tensor.name or "" if tensor is not None else ""


class Tensor(TensorBase, ArrayMethodMixin):
    """A multi-dimensional array, with gradients recorded by a GradManager.

    Args:
        data: numbers, nested lists, a NumPy array or a tensor. Without ``dtype`` int64 becomes int32, where the
            numbers fit, and float64 float32.
        dtype: the element type, kept as named; None takes it from ``data``.
        device: where it lives; None is the default device.
        is_const: a trace bakes the value in.
        no_cache: never share storage with another tensor.
        name: used in dumped graphs.
        format: ``"default"``, ``"nchw"`` or ``"nhwc"``.

    >>> mge.tensor([[1.0, 2.0]]) * 2
    Tensor([[2. 4.]], device=xpux:0)
    """

    _grad: Tensor | None = None  # behind ``grad``, which GradManager.backward fills
    _attached = False  # to some GradManager, at some time
    _grad_dropped = False  # by a GradScaler, at some time
    #: Maps device names while a file is loaded.
    dmap_callback: Callable[[str], str] | None = None

    _name = _GivenName()
    _short_name = ""
    _prefix: str | None = None

    _qparams: QParams | None = None
    _integers: Tensor | None = None  # the value that was rounded to those that ``qparams`` says

    @property
    def _simulated(self) -> bool:
        """Whether the values are those of integers: rounded to them, and not assigned to since."""
        return self._integers is not None and _core.same_value(self, self._integers)

    def _mark_simulated(self) -> None:
        self._integers = Tensor(self)

    @property
    def qparams(self) -> QParams:
        """Quantisation parameters, made on first use."""
        if self._qparams is None:
            self._qparams = create_qparams()
        return self._qparams

    @qparams.setter
    def qparams(self, qparams: QParams) -> None:
        self._qparams = qparams

    def _no_requires_grad(self, value: Any = None) -> NoReturn:
        raise AttributeError(
            "requires_grad is reserved for future use; a tensor gets a gradient when it is attached: "
            "GradManager().attach(x)."
        )

    requires_grad = property(_no_requires_grad, _no_requires_grad, _no_requires_grad)

    def to(self, device: str | CompNode, *, _borrow: bool = False) -> Tensor:
        """A copy on ``device``; gradients flow back to the device of this tensor.

        >>> mge.tensor([1.0]).to("cpu1") + mge.tensor([2.0], device="cpu1")
        Tensor([3.], device=cpu1:0)
        """
        if isinstance(device, str):
            if not _valid_device(device):
                raise ValueError(f"to: bad device name {device!r}. Examples: cpu0, gpu0, xpux, cpu0:1.")
        elif isinstance(device, (np.dtype, type)):
            raise TypeError(f"to: needs a device; got the dtype {np.dtype(device)}. x.astype(dtype) converts.")
        node = as_device(device)
        if node == self.device:
            return ops.copy(self)
        borrow = _borrow and node.memory_node == self.device.memory_node
        return ops.copy_to(self, device=node.logical_name, borrow=borrow)

    def set_value(self, value: Any) -> None:
        """Deprecated: another value, of any shape and dtype."""
        warnings.warn("Tensor.set_value is deprecated; use x[...] = value", DeprecationWarning, stacklevel=2)
        self._reset(value)

    def reset_zero(self) -> None:
        """Deprecated: the same as ``self[...] = 0``."""
        warnings.warn("Tensor.reset_zero is deprecated; use x *= 0", DeprecationWarning, stacklevel=2)
        self._reset(ops.fill_like(self, value=0.0))

    def _drop(self) -> None:
        """Say that the value may be freed and computed again; the engine keeps it."""

    def _dev_tensor(self) -> DeviceTensorND:
        """The value alone, as ``InputNode.set_value`` of a graph takes it."""
        return DeviceTensorND(self.detach())

    def _isscalar(self) -> bool:
        return self.ndim == 0

    # ---- Python and NumPy protocols

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if _core.is_recording() and _core.is_tracked((self,)):
            warn_once(
                "numpy",
                "NumPy reads a tensor whose gradient is being recorded; what it computes has no gradient. Use "
                "functions of megengine.functional (F.exp for np.exp, F.concat for np.concatenate), or x.detach() if "
                "it is meant.",
            )
        value = self.numpy()
        if dtype is not None and value.dtype != np.dtype(dtype):
            if copy is False:
                raise ValueError(f"cannot view a {value.dtype} tensor as {np.dtype(dtype)} without a copy.")
            return value.astype(dtype)
        return value.copy() if copy else value

    def __array_wrap__(self, array: npt.NDArray[Any], context: Any = None, return_scalar: bool = False) -> Tensor:
        wide = self.dtype.itemsize == 8 and np.dtype(array.dtype).itemsize == 8  # who has 64 bits keeps them
        return Tensor(array, array.dtype if wide else None, self.device)

    def __iter__(self) -> Iterator[Tensor]:
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d tensor; x.item() is its value, x.reshape(1) has an axis.")
        for i in range(len(self)):
            yield self[i]

    def __reversed__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self) - 1, -1, -1))

    def __contains__(self, item: Any) -> bool:
        raise NotImplementedError("`in` on a tensor; use (x == item).numpy().any()")

    def __trunc__(self) -> int:
        raise NotImplementedError("math.trunc on a tensor; use int(x) or x.astype('int32')")

    def __round__(self, ndigits: int | None = None) -> Tensor:
        """To ``ndigits`` decimals, whole numbers by default; halves go away from zero.

        >>> round(mge.tensor([1.256, -2.5]), 2), round(mge.tensor([1250, -1249]), -2).tolist()
        (Tensor([ 1.26 -2.5 ], device=xpux:0), [1300, -1200])
        """
        if ndigits is None:
            return ops.round(self)
        digits = operator.index(ndigits)
        if self.dtype.kind in "iub":
            return _round_whole(self, 10**-digits) if digits < 0 else ops.copy(self)
        x = self if self.dtype.itemsize >= 4 else self.astype("float32")
        if abs(digits) > 37:  # float32 ends there
            return ops.copy(self) if digits > 0 else ops.fill_like(self, value=0.0)
        scaled = x * 10.0**digits if digits >= 0 else x / 10.0**-digits
        y = ops.round(scaled) / 10.0**digits if digits >= 0 else ops.round(scaled) * 10.0**-digits
        return ops.where(ops.isinf(scaled), x, y).astype(self.dtype)

    def __complex__(self) -> complex:
        return complex(self.item())

    def __format__(self, spec: str) -> str:
        if spec and self.ndim == 0:
            return format(self.item(), spec)
        try:
            return format(str(self), spec)
        except ValueError:
            raise TypeError(
                f"unsupported format string {spec!r} passed to Tensor.__format__ of shape {self._tuple_shape}; it is "
                "for one number."
            ) from None

    def __repr__(self) -> str:
        value = self.numpy()
        with np.printoptions(precision=4):  # which NumPy heeds for its own dtypes
            text = str(value.astype("float32") if is_bfloat16(value.dtype) else value)
        name = self.dtype.name
        dtype = "" if name == "float32" else f", dtype={name}"
        return f"{type(self).__name__}({text}{dtype}, device={self.device.logical_name})"

    # ---- copying and pickling; the layout is that of MegEngine's files

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (self.numpy(), self.dtype, self.device.logical_name, False, False, None, self.format)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.format == "default":
            return super().__reduce_ex__(protocol)
        return type(self), self.__getnewargs__(), self.__getstate__() or None  # the constructor sets the label

    def __getstate__(self) -> dict[str, Any]:
        return {} if self._qparams is None else {"qparams": self._qparams}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        if "data" in state:  # files of MegEngine 1.1 and before
            device = state.pop("device", None)
            mapped = Tensor.dmap_callback
            if mapped is not None and device is not None:
                device = mapped(str(device))
            self._reset(Tensor(state.pop("data"), state.pop("dtype", None), device))
        if "qdict" in state:
            old = state.pop("qdict")
            self._qparams = create_qparams(
                old.get("mode"), old.get("dtype_meta"), old.get("scale"), old.get("zero_point")
            )
        if "qparams" in state:
            self._qparams = state.pop("qparams")

    def __copy__(self) -> Tensor:
        return self._twin(self._qparams)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        from copy import deepcopy

        new = self._twin(deepcopy(self._qparams, memo))
        memo[id(self)] = new
        return new

    def _twin(self, qparams: QParams | None) -> Tensor:
        new = type(self)(ops.copy(self.detach()))  # a value of its own: a trace tells tensors apart by their values
        new.format = self.format
        if qparams is not None:
            new._qparams = qparams
        return new

    def __dlpack__(
        self,
        stream: int | None = None,
        *,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The tensor as a DLPack capsule that shares its memory; ``torch.from_dlpack(x)`` and NumPy call this."""
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"__dlpack__: the tensor is on {self.device}; device {tuple(dl_device)} was asked for.")
        source = ops.copy(self) if copy else self
        return _core.to_dlpack(source) if stream is None or stream < 0 else _core.to_dlpack(source, stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        """(1, 0): CPU memory; (2, n): that of CUDA device n."""
        kind = str(self.device)
        return (2, int(kind[3:].partition(":")[0])) if kind.startswith("gpu") else (1, 0)


def _round_whole(x: Tensor, unit: int) -> Tensor:
    """Integers to multiples of ``unit``."""
    if unit > 2**62:
        return ops.fill_like(x, value=0.0)
    wide = x.astype("int64")
    rest = ops.abs(wide) % unit
    up = ops.where(rest * 2 >= unit, unit - rest, -rest)
    return (wide + up * ops.sign(wide)).astype(x.dtype)


class Parameter(Tensor):
    """A tensor that a Module trains.

    >>> mge.Parameter([1.0, 2.0])
    Parameter([1. 2.], device=xpux:0)
    """


class DeviceTensorND(Tensor):
    """The value of a tensor on its device, for graphs made by hand."""

    @property
    def comp_node(self) -> CompNode:
        """Where it is."""
        return self.device


tensor = Tensor


def as_device(obj: Any) -> CompNode:
    """The device that a name, a device or a tensor stands for; None is the default device.

    >>> from megengine.tensor import as_device
    >>> str(as_device("cpu0"))
    'cpu0:0'
    """
    if obj is None:
        return CompNode(get_default_device())
    if isinstance(obj, CompNode):
        return obj
    if isinstance(obj, str):
        return CompNode(obj)
    device = getattr(obj, "device", None)
    if isinstance(device, CompNode):
        return device
    if type(obj).__name__ in ("dtype", "DType"):
        raise TypeError(f"a device is needed; got the dtype {obj}. x.astype('float32') converts a tensor.")
    raise TypeError(f"as_device: needs a device name, a device or a tensor; got {type(obj).__name__}.")


_habits.explain_attributes(Tensor, _habits.TENSOR, not_set=("data",))
_core.set_tensor_type(Tensor)
_core.set_index_hooks(indexing.getitem, indexing.setitem)
