"""Enums and plain structs, laid out as in ``lite-c``."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

__all__ = [
    "LiteAlgoSelectStrategy",
    "LiteBackend",
    "LiteConfig",
    "LiteDataType",
    "LiteDeviceType",
    "LiteExtraConfig",
    "LiteIO",
    "LiteIOType",
    "LiteLayout",
    "LiteLogLevel",
    "LiteNetworkIO",
    "LiteOptions",
    "LiteTensorDesc",
    "LiteTensorPhase",
    "MAX_DIM",
    "MisuseError",
    "ctype_to_lite_dtypes",
    "lite_dtype_2_numpy",
]

MAX_DIM = 7


class MisuseError(RuntimeError, TypeError, AssertionError):
    """A Python argument that no function of Lite takes: what it is to programs, and what MegEngine's raise."""


class _Named(IntEnum):
    def __str__(self) -> str:  # as Python 3.10 and MegEngine print them; later ones print the number
        return f"{type(self).__name__}.{self.name}"

    def __format__(self, spec: str) -> str:
        return format(int(self), spec)


class LiteBackend(_Named):
    LITE_DEFAULT = 0


class LiteDeviceType(_Named):
    LITE_CPU = 0
    LITE_CUDA = 1
    LITE_ATLAS = 3
    LITE_NPU = 4
    LITE_CAMBRICON = 5
    LITE_DEVICE_DEFAULT = 7


class LiteDataType(_Named):
    LITE_FLOAT = 0
    LITE_HALF = 1
    LITE_INT = 2
    LITE_INT16 = 3
    LITE_INT8 = 4
    LITE_UINT8 = 5
    LITE_UINT = 6
    LITE_UINT16 = 7
    LITE_INT64 = 8
    LITE_FLOAT64 = 100
    LITE_BOOL = 101
    LITE_BFLOAT16 = 102
    LITE_COMPLEX64 = 103


class LiteTensorPhase(_Named):
    LITE_IO = 0
    LITE_INPUT = 1
    LITE_OUTPUT = 2


class LiteIOType(_Named):
    LITE_IO_VALUE = 0
    LITE_IO_SHAPE = 1


class LiteAlgoSelectStrategy(_Named):
    LITE_ALGO_HEURISTIC = 1
    LITE_ALGO_PROFILE = 2
    LITE_ALGO_REPRODUCIBLE = 4
    LITE_ALGO_OPTIMIZED = 8


class LiteLogLevel(_Named):
    DEBUG = 0
    INFO = 1
    WARN = 2
    ERROR = 3


_NUMPY: dict[LiteDataType, type[np.generic]] = {
    LiteDataType.LITE_FLOAT: np.float32,
    LiteDataType.LITE_HALF: np.float16,
    LiteDataType.LITE_INT: np.int32,
    LiteDataType.LITE_INT16: np.int16,
    LiteDataType.LITE_INT8: np.int8,
    LiteDataType.LITE_UINT8: np.uint8,
    LiteDataType.LITE_UINT: np.uint32,
    LiteDataType.LITE_UINT16: np.uint16,
    LiteDataType.LITE_INT64: np.int64,
    LiteDataType.LITE_FLOAT64: np.float64,
    LiteDataType.LITE_BOOL: np.bool_,
    LiteDataType.LITE_BFLOAT16: np.uint16,  # NumPy alone has no bfloat16: its bits
    LiteDataType.LITE_COMPLEX64: np.complex64,
}
_BY_NAME: dict[str, LiteDataType] = {
    np.dtype(t).name: d for d, t in _NUMPY.items() if d is not LiteDataType.LITE_BFLOAT16
}
_BY_NAME["pybfloat16"] = LiteDataType.LITE_BFLOAT16  # what megengine teaches NumPy


def lite_dtype_2_numpy(dtype: LiteDataType) -> type[np.generic]:
    """The NumPy type of ``dtype``.

    >>> lite_dtype_2_numpy(LiteDataType.LITE_HALF)
    <class 'numpy.float16'>
    """
    return _NUMPY[LiteDataType(dtype)]


ctype_to_lite_dtypes: dict[type[ctypes._SimpleCData[Any]], LiteDataType] = {
    ctypes.c_float: LiteDataType.LITE_FLOAT,
    ctypes.c_int: LiteDataType.LITE_INT,
    ctypes.c_uint: LiteDataType.LITE_UINT,
    ctypes.c_int16: LiteDataType.LITE_INT16,
    ctypes.c_uint16: LiteDataType.LITE_UINT16,
    ctypes.c_int8: LiteDataType.LITE_INT8,
    ctypes.c_uint8: LiteDataType.LITE_UINT8,
    ctypes.c_int64: LiteDataType.LITE_INT64,
    ctypes.c_double: LiteDataType.LITE_FLOAT64,
    ctypes.c_bool: LiteDataType.LITE_BOOL,
}


def _to_lite_dtype(dtype: LiteDataType | npt.DTypeLike) -> LiteDataType:
    if isinstance(dtype, LiteDataType):
        return dtype
    name = np.dtype(dtype).name
    if name not in _BY_NAME:
        raise RuntimeError(f"lite: NumPy type {name} has no LiteDataType; it must be one of {', '.join(_BY_NAME)}.")
    return _BY_NAME[name]


class _Struct(ctypes.Structure):
    """Prints as the dict of its fields, as MegEngine's does; numbers that stand for something by their names."""

    _shown: ClassVar[dict[str, Callable[[Any], Any]]] = {}

    def __repr__(self) -> str:
        fields = (str(f[0]).lstrip("_") for f in self._fields_)
        return str({f: self._shown[f](getattr(self, f)) if f in self._shown else getattr(self, f) for f in fields})


class LiteOptions(_Struct):
    """Switches of the loader; ``docs/lite.md`` says which have an effect."""

    weight_preprocess: int
    fuse_preprocess: int
    fake_next_exec: int
    var_sanity_check_first_run: int
    const_shape: int
    force_dynamic_alloc: int
    force_output_dynamic_alloc: int
    force_output_use_user_specified_memory: int
    no_profiling_on_shape_change: int
    jit_level: int
    comp_node_seq_record_level: int
    graph_opt_level: int
    async_exec_level: int
    enable_nchw44: int
    enable_nchw44_dot: int
    enable_nchw88: int
    enable_nhwcd4: int
    enable_nchw4: int
    enable_nchw32: int
    enable_nchw64: int

    _fields_: ClassVar = [
        (name, ctypes.c_int)
        for name in (
            "weight_preprocess",
            "fuse_preprocess",
            "fake_next_exec",
            "var_sanity_check_first_run",
            "const_shape",
            "force_dynamic_alloc",
            "force_output_dynamic_alloc",
            "force_output_use_user_specified_memory",
            "no_profiling_on_shape_change",
            "jit_level",
            "comp_node_seq_record_level",
            "graph_opt_level",
            "async_exec_level",
            "enable_nchw44",
            "enable_nchw44_dot",
            "enable_nchw88",
            "enable_nhwcd4",
            "enable_nchw4",
            "enable_nchw32",
            "enable_nchw64",
        )
    ]

    _shown: ClassVar = {f[0]: bool for f in _fields_ if not f[0].endswith("_level")}

    def __init__(self) -> None:
        super().__init__(var_sanity_check_first_run=1, graph_opt_level=2, async_exec_level=1)


class LiteConfig(_Struct):
    """How a network is loaded."""

    has_compression: int
    device_id: int
    device_type: int
    backend: int
    options: LiteOptions
    auto_optimize_inference: int

    _fields_: ClassVar = [
        ("has_compression", ctypes.c_int),
        ("device_id", ctypes.c_int),
        ("device_type", ctypes.c_int),
        ("backend", ctypes.c_int),
        ("_bare_model_cryption_name", ctypes.c_char_p),
        ("options", LiteOptions),
        ("auto_optimize_inference", ctypes.c_int),
        ("_discrete_input_name", ctypes.c_char_p),
    ]
    _shown: ClassVar = {"has_compression": bool, "device_type": LiteDeviceType, "backend": LiteBackend}
    use_loader_dynamic_param = 0  # of operators in libraries of others, which take none here

    def __init__(
        self, device_type: LiteDeviceType = LiteDeviceType.LITE_CPU, option: LiteOptions | None = None
    ) -> None:
        if not isinstance(device_type, int):
            raise TypeError(f"LiteConfig: device_type must be a LiteDeviceType, as LITE_CPU; got {device_type!r}.")
        super().__init__(device_type=int(device_type), options=LiteOptions() if option is None else option)

    @property
    def bare_model_cryption_name(self) -> str:
        """The name of the method a bare model is encrypted with; empty when it is not."""
        return _text(self._bare_model_cryption_name)

    @bare_model_cryption_name.setter
    def bare_model_cryption_name(self, name: str | bytes) -> None:
        self._bare_model_cryption_name = _bytes(name)

    @property
    def discrete_input_name(self) -> str:
        return _text(self._discrete_input_name)

    @discrete_input_name.setter
    def discrete_input_name(self, name: str | bytes) -> None:
        self._discrete_input_name = _bytes(name)


class LiteExtraConfig(_Struct):
    disable_configure_by_model_info: int
    _fields_: ClassVar = [("disable_configure_by_model_info", ctypes.c_int)]
    _shown: ClassVar = {"disable_configure_by_model_info": bool}

    def __init__(self, disable_model_config: bool = False) -> None:
        super().__init__(disable_configure_by_model_info=int(disable_model_config))


def _text(value: bytes | None) -> str:
    """A name in a model, which need not be UTF-8; ``_bytes`` is the way back."""
    return "" if value is None else value.decode("utf-8", "surrogateescape")


def _bytes(name: str | bytes) -> bytes:
    if not isinstance(name, (str, bytes)):  # ctypes would take a number for an address
        raise MisuseError(f"lite: a name is a str or bytes; got {name!r}.")
    return name.encode("utf-8", "surrogateescape") if isinstance(name, str) else name


class LiteLayout(_Struct):
    """A shape and a data type.

    >>> layout = LiteLayout([2, 3], "float16")
    >>> layout.shapes, layout.dtype, layout.ndim
    ([2, 3], <class 'numpy.float16'>, 2)
    """

    ndim: int
    data_type: int
    _fields_: ClassVar = [
        ("_shapes", ctypes.c_size_t * MAX_DIM),
        ("ndim", ctypes.c_size_t),
        ("data_type", ctypes.c_int),
    ]
    _shown: ClassVar = {"data_type": lambda t: lite_dtype_2_numpy(LiteDataType(t))}

    def __init__(self, shape: Sequence[int] | None = None, dtype: LiteDataType | npt.DTypeLike | None = None) -> None:
        super().__init__()
        if shape is not None:
            self.shapes = shape
        self.data_type = int(LiteDataType.LITE_FLOAT if dtype is None else _to_lite_dtype(dtype))

    @property
    def shapes(self) -> list[int]:
        return [int(d) for d in self._shapes[: self.ndim]]

    @shapes.setter
    def shapes(self, shape: Sequence[int]) -> None:
        if isinstance(shape, (str, bytes)) or not isinstance(shape, Iterable):
            raise MisuseError(f"LiteLayout: a shape is a list of integers; got {shape!r}.")
        dims = [int(d) for d in shape]
        if len(dims) > MAX_DIM:
            raise MisuseError(f"lite: a layout has at most {MAX_DIM} dimensions; got {len(dims)}.")
        if any(d < 0 for d in dims):
            raise RuntimeError(f"lite: dimensions are 0 or more; got {dims}.")
        self._shapes[:] = dims + [0] * (MAX_DIM - len(dims))
        self.ndim = len(dims)

    @property
    def dtype(self) -> type[np.generic]:
        return lite_dtype_2_numpy(LiteDataType(self.data_type))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LiteLayout):
            return NotImplemented
        return self.shapes == other.shapes and self.data_type == other.data_type

    def __hash__(self) -> int:
        return hash((tuple(self.shapes), self.data_type))

    def _text(self) -> str:
        """For messages: ``float32[2,3]``."""
        return f"{np.dtype(self.dtype).name}[{','.join(map(str, self.shapes))}]"


class LiteTensorDesc(_Struct):
    is_pinned_host: int
    layout: LiteLayout
    device_type: int
    device_id: int
    _fields_: ClassVar = [
        ("is_pinned_host", ctypes.c_int),
        ("layout", LiteLayout),
        ("device_type", ctypes.c_int),
        ("device_id", ctypes.c_int),
    ]


class LiteIO(_Struct):
    """One input or output of a network, by name."""

    is_host: int
    io_type: int
    config_layout: LiteLayout
    _fields_: ClassVar = [
        ("_name", ctypes.c_char_p),
        ("is_host", ctypes.c_int),
        ("io_type", ctypes.c_int),
        ("config_layout", LiteLayout),
    ]
    _shown: ClassVar = {"is_host": bool, "io_type": LiteIOType}

    def __init__(
        self,
        name: str | bytes,
        is_host: bool = True,
        io_type: LiteIOType = LiteIOType.LITE_IO_VALUE,
        layout: LiteLayout | None = None,
    ) -> None:
        super().__init__(is_host=int(is_host), io_type=int(io_type))
        self.name = name
        if layout is not None:
            self.config_layout = layout

    @property
    def name(self) -> str:
        return _text(self._name)

    @name.setter
    def name(self, name: str | bytes) -> None:
        self._name = _bytes(name)

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LiteIO) and self.name == other.name


class _LiteNetworkIO(ctypes.Structure):
    inputs: Any
    outputs: Any
    input_size: int
    output_size: int
    _fields_: ClassVar = [
        ("inputs", ctypes.POINTER(LiteIO)),
        ("outputs", ctypes.POINTER(LiteIO)),
        ("input_size", ctypes.c_size_t),
        ("output_size", ctypes.c_size_t),
    ]


class LiteNetworkIO:
    """The inputs and outputs a network is configured with: LiteIO, or lists of its arguments."""

    def __init__(
        self,
        inputs: Iterable[LiteIO | Sequence[Any]] | None = None,
        outputs: Iterable[LiteIO | Sequence[Any]] | None = None,
    ) -> None:
        for name, given in (("inputs", inputs), ("outputs", outputs)):
            if isinstance(given, (str, bytes, LiteIO)):
                raise MisuseError(
                    f"LiteNetworkIO: {name} is a list of LiteIO, or of names; got {given!r}. Write [{given!r}]."
                )
        self.inputs = [_make_io(io) for io in inputs or ()]
        self.outputs = [_make_io(io) for io in outputs or ()]

    def add_input(
        self,
        obj: LiteIO | str,
        is_host: bool = True,
        io_type: LiteIOType = LiteIOType.LITE_IO_VALUE,
        layout: LiteLayout | None = None,
    ) -> None:
        self.inputs.append(obj if isinstance(obj, LiteIO) else LiteIO(obj, is_host, io_type, layout))

    def add_output(
        self,
        obj: LiteIO | str,
        is_host: bool = True,
        io_type: LiteIOType = LiteIOType.LITE_IO_VALUE,
        layout: LiteLayout | None = None,
    ) -> None:
        self.outputs.append(obj if isinstance(obj, LiteIO) else LiteIO(obj, is_host, io_type, layout))

    def _to_c(self) -> _LiteNetworkIO:
        inputs = (LiteIO * len(self.inputs))(*self.inputs)
        outputs = (LiteIO * len(self.outputs))(*self.outputs)
        c = _LiteNetworkIO()
        c.inputs = ctypes.cast(inputs, ctypes.POINTER(LiteIO))
        c.outputs = ctypes.cast(outputs, ctypes.POINTER(LiteIO))
        c.input_size = len(self.inputs)
        c.output_size = len(self.outputs)
        return c

    def __repr__(self) -> str:
        return str({"inputs": self.inputs, "outputs": self.outputs})


def _make_io(io: LiteIO | Sequence[Any]) -> LiteIO:
    if not isinstance(io, (LiteIO, str, bytes, list, tuple)):
        raise MisuseError(
            f"LiteNetworkIO: an input or output is a LiteIO, its name, or a list of its arguments; got {io!r}."
        )
    return io if isinstance(io, LiteIO) else LiteIO(*([io] if isinstance(io, (str, bytes)) else io))
