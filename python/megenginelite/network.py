"""Networks: load a model, bind tensors by name, run."""

from __future__ import annotations

import atexit
import ctypes
import errno
import os
import sys
import warnings
import weakref
from collections.abc import Callable
from io import BufferedIOBase, RawIOBase
from typing import Any, NoReturn

from .base import call, fail, function, lib, raised
from .struct import (
    LiteAlgoSelectStrategy,
    LiteBackend,
    LiteConfig,
    LiteDataType,
    LiteDeviceType,
    LiteExtraConfig,
    LiteIO,
    LiteIOType,
    LiteLayout,
    LiteLogLevel,
    LiteNetworkIO,
    LiteOptions,
    LiteTensorPhase,
    MisuseError,
    _bytes,
    _LiteNetworkIO,
    _text,
    lite_dtype_2_numpy,
)
from .tensor import LiteTensor, LiteTensorConcat

__all__ = [  # with what the original's module of this name has
    "LiteAlgoSelectStrategy",
    "LiteAsyncCallback",
    "LiteBackend",
    "LiteConfig",
    "LiteDataType",
    "LiteDeviceType",
    "LiteExtraConfig",
    "LiteFinishCallback",
    "LiteIO",
    "LiteIOType",
    "LiteLayout",
    "LiteLogLevel",
    "LiteNetwork",
    "LiteNetworkIO",
    "LiteOptions",
    "LiteStartCallback",
    "LiteTensor",
    "LiteTensorConcat",
    "LiteTensorPhase",
    "get_model_io_info",
    "lite_dtype_2_numpy",
    "start_finish_callback",
    "wrap_async_callback",
]


class ModelNotFoundError(FileNotFoundError, RuntimeError):
    """There is no such file: an error of Lite's, and what Python calls it."""


_Handle = ctypes.c_void_p
_int_p = ctypes.POINTER(ctypes.c_int)
_size_p = ctypes.POINTER(ctypes.c_size_t)
_handle_p = ctypes.POINTER(ctypes.c_void_p)
_char_pp = ctypes.POINTER(ctypes.c_char_p)
_io_p = ctypes.POINTER(LiteIO)
LiteAsyncCallback = ctypes.CFUNCTYPE(ctypes.c_int)
LiteStartCallback = LiteFinishCallback = ctypes.CFUNCTYPE(ctypes.c_int, _io_p, _handle_p, ctypes.c_size_t)
_forward, _wait = function("forward", _Handle), function("wait", _Handle)

IoCallback = Callable[[dict[LiteIO, LiteTensor]], Any]


def _io_arguments(ios: Any, tensors: Any, size: int, keep: Any) -> dict[LiteIO, LiteTensor]:
    arguments: dict[LiteIO, LiteTensor] = {}
    for i in range(size):
        io = LiteIO(ios[i].name, bool(ios[i].is_host), ios[i].io_type, LiteLayout())
        io.config_layout = ios[i].config_layout
        arguments[io] = LiteTensor._wrap(_Handle(tensors[i]), keep)
    return arguments


def start_finish_callback(func: IoCallback) -> Any:
    """``func({LiteIO: LiteTensor})`` as the C function that ``LITE_set_start_callback`` and its like take.

    ``LiteNetwork.set_start_callback`` and ``set_finish_callback`` do this themselves. Keep the result as long as the
    network may call it.
    """

    def run(ios: Any, tensors: Any, size: int) -> int:
        return _guarded(lambda: func(_io_arguments(ios, tensors, size, None)))

    return LiteStartCallback(run)


def wrap_async_callback(func: Callable[[], Any]) -> Any:
    """``func()`` as the C function that ``LITE_set_async_callback`` takes; ``async_with_callback`` does it itself."""
    return LiteAsyncCallback(lambda: _guarded(func))


def _check_network(who: str, network: Any) -> None:
    if not isinstance(network, LiteNetwork):
        raise MisuseError(f"LiteNetwork.{who}: needs a LiteNetwork; got a {type(network).__name__}.")


def _check_callable(who: str, callback: Any) -> None:
    if not callable(callback):
        raise MisuseError(f"LiteNetwork.{who}: needs a function; got {callback!r}.")


def _guarded(body: Callable[[], Any]) -> int:
    try:
        body()
    except BaseException as error:  # C code is on the stack: the call that waits for it fails, with this as its cause
        raised.error = error
        return -1
    return 0


_asynchronous: weakref.WeakSet[LiteNetwork] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):  # runs of the parent end there
    os.register_at_fork(after_in_child=_asynchronous.clear)


@atexit.register
def _finish() -> None:
    """Runs that are under way when the program ends are waited for: their callbacks need the interpreter."""
    for network in list(_asynchronous):
        if network._ran and network._network.value is not None and _wait(network._network):
            error = network._error or lib.LITE_get_last_error().decode("utf-8", "replace")
            print(f"megenginelite: an error that nobody read: {error!s}", file=sys.stderr)


class LiteNetwork:
    """A network.

    >>> net = LiteNetwork()
    >>> net.load("lenet.mge")                                        # doctest: +SKIP
    >>> net.get_io_tensor("data").set_data_by_copy(image)            # doctest: +SKIP
    >>> net.forward()                                                # doctest: +SKIP
    >>> net.wait()                                                   # doctest: +SKIP
    >>> net.get_io_tensor(net.get_output_name(0)).to_numpy()         # doctest: +SKIP

    Threads may share a network: calls of ``forward`` follow each other. Its inputs and outputs are shared as well, so
    threads that each want their own results use a network each (``share_weights_with``).
    """

    def __init__(self, config: LiteConfig | None = None, io: LiteNetworkIO | None = None) -> None:
        self._network = _Handle()
        # C has one function for each kind of callback as long as the network lives, for a thread may be in the middle
        # of a run; it calls whatever was set last.
        self._functions: dict[str, Any] = {}
        self._callbacks: dict[str, Callable[..., Any]] = {}
        self._held: dict[int, Any] = {}  # memory of the caller that a tensor of this network looks at, by handle
        self._error: BaseException | None = None
        self._ran = False  # whether outputs have values
        if config is not None and not isinstance(config, LiteConfig):
            raise TypeError(f"LiteNetwork: config must be a LiteConfig; got {config!r}. net.load(path) reads a model.")
        self.config = LiteConfig() if config is None else config
        self.network_io = LiteNetworkIO() if io is None else io
        call(
            "make_network",
            [_handle_p, LiteConfig, _LiteNetworkIO],
            ctypes.byref(self._network),
            self.config,
            self.network_io._to_c(),
        )

    def __del__(self) -> None:
        network = getattr(self, "_network", None)
        if network is not None and network.value is not None:
            call("destroy_network", [_Handle], network)
            network.value = None

    def _call(self, name: str, argtypes: list[Any] | None = None, *args: Any) -> None:
        """The C function ``name`` on this network; what a callback raised comes out as it was raised."""
        self._error = None
        if function(name, _Handle, *(argtypes or ()))(self._network, *args):
            self._fail()

    def _fail(self) -> NoReturn:
        error, self._error = self._error, None
        if error is not None:
            raise error
        fail()

    def _get_int(self, name: str) -> int:
        value = ctypes.c_int()
        self._call(name, [_int_p], ctypes.byref(value))
        return value.value

    # ---- loading

    def load(self, file: str | os.PathLike[str] | BufferedIOBase | RawIOBase) -> None:
        """A file name, or an open binary file that is read to its end."""
        if isinstance(file, (BufferedIOBase, RawIOBase)):
            data = file.read() or b""
            self._call("load_model_from_mem", [ctypes.c_char_p, ctypes.c_size_t], data, len(data))
        elif isinstance(file, (str, bytes, os.PathLike)):
            if isinstance(file, bytes) and file.find(0) >= 0:
                raise MisuseError(
                    "LiteNetwork.load: needs a path or an open binary file; got the bytes of a model. Give io.BytesIO."
                )
            if not os.path.exists(file):
                raise ModelNotFoundError(
                    errno.ENOENT, f"LiteNetwork.load: {os.strerror(errno.ENOENT)}", os.fspath(file)
                )
            self._call("load_model_from_path", [ctypes.c_char_p], os.fsencode(file))
        else:
            raise MisuseError(f"LiteNetwork.load: needs a path or an open binary file; got a {type(file).__name__}.")
        self._forget()
        self._warn_of_names()

    def _forget(self) -> None:
        """There is another model now: tensors of the one before are not of this network."""
        self._held.clear()
        self._ran = False

    def _warn_of_names(self) -> None:
        """A name that the model does not have configures nothing; it may be meant when many models share one."""
        for kind, given, there in (
            ("input", self.network_io.inputs, self.get_all_input_name()),
            ("output", self.network_io.outputs, self.get_all_output_name()),
        ):
            for io in given:
                if io.name not in there:
                    warnings.warn(
                        f"LiteNetworkIO names {kind} {io.name!r}, which the model does not have; its {kind}s are "
                        f"{', '.join(there)}.",
                        RuntimeWarning,
                        stacklevel=3,
                    )

    def extra_configure(self, extra_config: LiteExtraConfig) -> None:
        self._call("extra_configure", [LiteExtraConfig], extra_config)

    def share_weights_with(self, src_network: LiteNetwork) -> None:
        """Become a loaded network with the weights of another and memory of its own."""
        _check_network("share_weights_with", src_network)
        self._call("shared_weight_with_network", [_Handle], src_network._network)
        self._forget()

    def share_runtime_memroy(self, src_network: LiteNetwork) -> None:
        _check_network("share_runtime_memroy", src_network)
        self._call("share_runtime_memroy", [_Handle], src_network._network)

    # ---- running

    # Beside these two a small network shows what a call costs: they go to C without a detour.
    def forward(self) -> None:
        self._error = None
        if _forward(self._network):
            self._fail()
        self._ran = True

    def wait(self) -> None:
        self._error = None
        if _wait(self._network):
            self._fail()

    # ---- inputs and outputs

    def get_io_tensor(self, name: str | bytes, phase: LiteTensorPhase = LiteTensorPhase.LITE_IO) -> LiteTensor:
        if not isinstance(name, (str, bytes)):
            raise MisuseError(
                f"LiteNetwork.get_io_tensor: name must be a str; got a {type(name).__name__}. get_input_name(0) and "
                "get_output_name(0) give names by number."
            )
        out = _Handle()
        self._call(
            "get_io_tensor", [ctypes.c_char_p, ctypes.c_int, _handle_p], _bytes(name), int(phase), ctypes.byref(out)
        )
        tensor = LiteTensor._wrap(out, self)
        name = _text(_bytes(name))
        tensor._output = name if phase != LiteTensorPhase.LITE_INPUT and name in self.get_all_output_name() else None
        return tensor

    def get_discrete_tensor(
        self, name: str, n_idx: int, phase: LiteTensorPhase = LiteTensorPhase.LITE_INPUT
    ) -> LiteTensor:
        out = _Handle()
        types = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int, _handle_p]
        self._call("get_discrete_tensor", types, _bytes(name), n_idx, int(phase), ctypes.byref(out))
        return LiteTensor._wrap(out, self)

    def _name(self, function: str, index: int) -> str:
        out = ctypes.c_char_p()
        self._call(function, [ctypes.c_size_t, _char_pp], index, ctypes.byref(out))
        return _text(out.value)

    def _all_names(self, function: str) -> list[str]:
        count = ctypes.c_size_t()
        self._call(function, [_size_p, _char_pp], ctypes.byref(count), None)
        names = (ctypes.c_char_p * count.value)()
        self._call(function, [_size_p, _char_pp], ctypes.byref(count), names)
        return [_text(n) for n in names]

    def get_input_name(self, index: int) -> str:
        return self._name("get_input_name", index)

    def get_output_name(self, index: int) -> str:
        return self._name("get_output_name", index)

    def get_all_input_name(self) -> list[str]:
        return self._all_names("get_all_input_name")

    def get_all_output_name(self) -> list[str]:
        return self._all_names("get_all_output_name")

    # ---- settings

    def is_cpu_inplace_mode(self) -> bool:
        return bool(self._get_int("is_cpu_inplace_mode"))

    def enable_cpu_inplace_mode(self) -> None:
        self._call("set_cpu_inplace_mode")

    def use_tensorrt(self) -> None:
        self._call("use_tensorrt")

    @property
    def device_id(self) -> int:
        return self._get_int("get_device_id")

    @device_id.setter
    def device_id(self, device_id: int) -> None:
        self._call("set_device_id", [ctypes.c_int], device_id)

    @property
    def stream_id(self) -> int:
        return self._get_int("get_stream_id")

    @stream_id.setter
    def stream_id(self, stream_id: int) -> None:
        self._call("set_stream_id", [ctypes.c_int], stream_id)

    @property
    def threads_number(self) -> int:
        """How many threads compute; to be set before load."""
        value = ctypes.c_size_t()
        self._call("get_cpu_threads_number", [_size_p], ctypes.byref(value))
        return value.value

    @threads_number.setter
    def threads_number(self, nr_threads: int) -> None:
        if not isinstance(nr_threads, int):
            raise MisuseError(f"LiteNetwork.threads_number: must be an int; got {nr_threads!r}.")
        self._call("set_cpu_threads_number", [ctypes.c_size_t], nr_threads)

    def set_network_algo_workspace_limit(self, size_limit: int) -> None:
        self._call("set_network_algo_workspace_limit", [ctypes.c_size_t], size_limit)

    def set_network_algo_policy(
        self,
        policy: LiteAlgoSelectStrategy | int,
        shared_batch_size: int = 0,
        binary_equal_between_batch: bool = False,
    ) -> None:
        self._call("set_network_algo_policy", [ctypes.c_int], int(policy))
        types = [ctypes.c_uint, ctypes.c_int]
        self._call("set_network_algo_fastrun_config", types, shared_batch_size, int(binary_equal_between_batch))

    # ---- callbacks

    def _guard(self, body: Callable[[], Any]) -> int:
        try:
            body()
        except BaseException as error:  # C code is on the stack: it must come out of the Python call that is waiting
            self._error = error
            return -1
        return 0

    def async_with_callback(self, async_callback: Callable[[], Any]) -> None:
        """From now on forward returns at once, and the callback runs on another thread when the outputs are there."""
        _check_callable("async_with_callback", async_callback)
        self._callbacks["async"] = async_callback
        _asynchronous.add(self)
        function = LiteAsyncCallback(lambda: self._guard(self._callbacks["async"]))
        self._call("set_async_callback", [LiteAsyncCallback], self._functions.setdefault("async", function))

    def _set_io_callback(self, which: str, callback: IoCallback) -> None:
        _check_callable(f"set_{which}_callback", callback)

        def run(ios: Any, tensors: Any, size: int) -> int:
            def body() -> None:
                self._callbacks[which](_io_arguments(ios, tensors, size, self))

            return self._guard(body)

        self._callbacks[which] = callback
        function = self._functions.setdefault(which, LiteStartCallback(run))
        self._call(f"set_{which}_callback", [LiteStartCallback], function)

    def set_start_callback(self, start_callback: IoCallback) -> None:
        """Called with the inputs, {LiteIO: LiteTensor}, before each run."""
        self._set_io_callback("start", start_callback)

    def set_finish_callback(self, finish_callback: IoCallback) -> None:
        """Called with the outputs after each run."""
        self._set_io_callback("finish", finish_callback)

    # ---- looking inside

    def enable_profile_performance(self, profile_file: str | os.PathLike[str]) -> None:
        self._call("enable_profile_performance", [ctypes.c_char_p], os.fsencode(profile_file))

    def io_txt_dump(self, txt_file: str | os.PathLike[str]) -> None:
        """Before load: every value of the graph goes to this file at each run."""
        self._call("enable_io_txt_dump", [ctypes.c_char_p], os.fsencode(txt_file))

    def io_bin_dump(self, bin_dir: str | os.PathLike[str]) -> None:
        self._call("enable_io_bin_dump", [ctypes.c_char_p], os.fsencode(bin_dir))

    def get_static_memory_alloc_info(self, log_dir: str | os.PathLike[str] = "logs/test") -> None:
        self._call("get_static_memory_alloc_info", [ctypes.c_char_p], os.fsencode(log_dir))

    def enable_global_layout_transform(self) -> None:
        self._call("enable_global_layout_transform")

    def dump_layout_transform_model(self, model_file: str | os.PathLike[str]) -> None:
        self._call("dump_layout_transform_model", [ctypes.c_char_p], os.fsencode(model_file))


def get_model_io_info(model_path: str | os.PathLike[str], config: LiteConfig | None = None) -> LiteNetworkIO:
    """The inputs and outputs of a model file, with their layouts, without making a network of it."""
    c = _LiteNetworkIO()
    types = [ctypes.c_char_p, LiteConfig, ctypes.POINTER(_LiteNetworkIO)]
    settings = LiteConfig() if config is None else config
    call("get_model_io_info_by_path", types, os.fsencode(model_path), settings, ctypes.byref(c))

    def copy(ios: Any, size: int) -> list[LiteIO]:
        out = []
        for i in range(size):
            layout = LiteLayout(ios[i].config_layout.shapes, ios[i].config_layout.dtype)
            layout.data_type = ios[i].config_layout.data_type
            out.append(LiteIO(ios[i].name, bool(ios[i].is_host), ios[i].io_type, layout))
        return out

    return LiteNetworkIO(copy(c.inputs, c.input_size), copy(c.outputs, c.output_size))
