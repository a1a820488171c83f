"""``trace``: the Python function is the graph.

The first call runs eagerly and is recorded. From then on, by default, Python runs again and each op is matched with the
recording while a compiled program does the work; with ``without_host=True`` Python does not run at all. A call whose
arguments have other shapes, dtypes or structure is recorded anew; each signature keeps its own program. A result whose
size depends on values (``x[mask]``, ``F.non_zero``) ends the recording: Python runs on every call, the program does the
work up to there, and the rest runs eagerly.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

from ..core import _core
from ..tensor import Tensor
from .config import DTRConfig, GraphOptimizationConfig, SublinearMemoryConfig

CompGraphDumpResult = collections.namedtuple(
    "CompGraphDumpResult", ["nr_opr", "tot_bytes", "tensor_value_bytes", "content_hash", "inputs", "outputs", "params"]
)

_INFERENCE_OPTIONS = {
    "enable_io16xc32", "enable_ioc16", "enable_hwcd4", "enable_nchw4", "enable_nchw88", "enable_nchw44",
    "enable_nchw44_dot",    "enable_nchw32", "enable_chwn4", "enable_nchw64", "enable_fuse_conv_bias_nonlinearity",
    "enable_fuse_conv_bias_with_z",
    "enable_fuse_preprocess", "enable_fuse_grain",
}  # fmt: skip


def is_tracing() -> bool:
    """Whether a traced function is being recorded or matched right now.

    >>> is_tracing()
    False
    """
    return _core.is_tracing()


@contextlib.contextmanager
def exclude_from_trace() -> Iterator[None]:
    """Ops inside run outside the record and may differ from call to call."""
    token = _core.pause_trace()
    try:
        yield
    finally:
        _core.resume_trace(token)


class _Leaf:
    """Stands for the i-th tensor in a flattened structure."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Leaf) and other.index == self.index

    def __hash__(self) -> int:
        return hash(("leaf", self.index))


def _flatten(obj: Any, tensors: list[Tensor]) -> Any:
    """Replaces tensors in nested tuples, lists and dicts by leaves; other objects stay."""
    if isinstance(obj, Tensor):
        tensors.append(obj)
        return _Leaf(len(tensors) - 1)
    if isinstance(obj, tuple) and hasattr(obj, "_fields"):
        return type(obj)(*(_flatten(o, tensors) for o in obj))
    if isinstance(obj, (tuple, list)):
        return type(obj)(_flatten(o, tensors) for o in obj)
    if isinstance(obj, Mapping):
        return {k: _flatten(v, tensors) for k, v in obj.items()}
    return obj


def _unflatten(tree: Any, tensors: Sequence[Tensor]) -> Any:
    if isinstance(tree, _Leaf):
        return tensors[tree.index]
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(_unflatten(o, tensors) for o in tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(_unflatten(o, tensors) for o in tree)
    if isinstance(tree, dict):
        return {k: _unflatten(v, tensors) for k, v in tree.items()}
    return tree


def _static_key(tree: Any) -> Any:
    """A hashable stand-in for everything in the arguments that is no tensor."""
    if isinstance(tree, _Leaf):
        return ("leaf", tree.index)
    if isinstance(tree, (tuple, list)):
        return (type(tree).__name__, *(_static_key(o) for o in tree))
    if isinstance(tree, dict):
        return ("dict", *((k, _static_key(v)) for k, v in tree.items()))
    if isinstance(tree, (int, float, str, bytes, bool, type(None))):
        return (type(tree).__name__, tree)
    return id(tree)


class _Entry:
    """One recording and what is needed to call it again."""

    def __init__(self, recording: _core.Recording, result_tree: Any) -> None:
        self.recording = recording
        self.result_tree = result_tree
        self.result_tensors: list[Tensor] = []
        self.refresh: list[Callable[[], None]] = []


class _Open(threading.local):
    """What this thread is recording."""

    refresh: list[Callable[[], None]] | None = None


_open = _Open()


def on_replay(fn: Callable[[], None]) -> None:
    """Runs ``fn`` before each replay of the call this thread is recording: it brings tensors made from host numbers
    (a learning rate, a loss scale) up to date. The tensors must be state of their owner, made outside the recording
    (``with untraced():``)."""
    if _open.refresh is not None:
        _open.refresh.append(fn)


def depends_on(obj: Any) -> None:
    """The call this thread is recording depends on the state of ``obj``; costs nothing when it records nothing.

    The state is what ``obj._trace_state()`` returns (plain values, lists and dicts by value, tensors and other objects
    by identity), or else its attributes. It is compared again when ``_core.bump_mutation()`` was called since, or on
    every call if the class says ``_trace_volatile = True``; when it differs, the call is recorded anew.
    """
    _core.note_use(obj)


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """Tensors made inside are state that a recording captures, not constants of it."""
    token = _core.pause_trace()
    try:
        yield
    finally:
        _core.resume_trace(token)


class trace:
    """Records a function and runs it as a compiled program.

    >>> import numpy as np
    >>> from megengine import Tensor
    >>> @trace(without_host=True)
    ... def f(x):
    ...     return x * 2 + 1
    >>> f(Tensor([1.0, 2.0])).numpy()
    array([3., 5.], dtype=float32)
    >>> f(Tensor([3.0, 4.0])).numpy()
    array([7., 9.], dtype=float32)
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if not args:
            return functools.partial(cls, **kwargs)
        return super().__new__(cls)

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        symbolic: bool = False,
        capture_as_const: bool = False,
        record_only: bool = False,
        sublinear_memory_config: SublinearMemoryConfig | None = None,
        dtr_config: DTRConfig | None = None,
        profiling: bool = False,
        opt_level: int = 2,
        graph_opt_config: GraphOptimizationConfig | None = None,
        symbolic_shape: bool = True,
        without_host: bool = False,
        imperative: bool = False,
    ) -> None:
        if profiling:
            raise NotImplementedError("trace: profiling=True arrives with the profiler; leave it out for now.")
        self.__wrapped__ = function
        self._symbolic = symbolic or record_only
        self._capture_as_const = capture_as_const or record_only
        self._record_only = record_only
        self._opt_level = opt_level
        self._imperative = imperative
        self.without_host = without_host
        self.sublinear_memory_config = sublinear_memory_config
        self.dtr_config = dtr_config
        self.graph_opt_config = graph_opt_config
        self.symbolic_shape = symbolic_shape
        self.traced = False
        self.check_external = True
        self.third_party_backend = False
        self._entries: dict[Any, _Entry] = {}
        self._last: _Entry | None = None
        self._last_args: list[Tensor] = []
        name = getattr(function, "__name__", type(function).__name__)
        self.__name__ = name
        self.__doc__ = getattr(function, "__doc__", None)

    def __get__(self, obj: Any, owner: type | None = None) -> Any:
        return self if obj is None else functools.partial(self, obj)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _core.is_tracing():  # inside another trace this is an ordinary function
            return self.__wrapped__(*args, **kwargs)
        if self._capture_as_const:
            for a in args:
                assert isinstance(a, Tensor), "Only support tensor type args when capture_as_const is enabled"
        tensors: list[Tensor] = []
        tree = _flatten((args, kwargs), tensors)
        key = (_static_key(tree), tuple((t.shape, t.dtype.num, str(t.device)) for t in tensors))
        entry = self._entries.get(key)
        if entry is None:
            return self._record(key, args, kwargs, tensors)
        if self.without_host and not entry.recording.is_cut:
            for fn in entry.refresh:
                fn()
            return _unflatten(entry.result_tree, entry.recording.replay(tensors))
        return self._match(entry, args, kwargs, tensors)

    def _record(self, key: Any, args: Any, kwargs: Any, tensors: list[Tensor]) -> Any:
        recording = _core.Recording(self._opt_level, self._capture_as_const)
        notes: dict[int, Any] = {}
        recording.record_begin(tensors)
        _open.refresh = refresh = []
        _core.set_notes(notes, None)
        try:
            result = self.__wrapped__(*args, **kwargs)
            outs: list[Tensor] = []
            result_tree = _flatten(result, outs)
            recording.record_end(outs)
        except BaseException:
            recording.record_abort()
            raise
        finally:
            _open.refresh = None
            _core.set_notes(None, None)
        entry = _Entry(recording, result_tree)
        entry.refresh = refresh
        entry.result_tensors = outs if self._capture_as_const else []
        self._entries[key] = entry
        self._last, self._last_args = entry, tensors if self._capture_as_const else []
        self.traced = True
        return result

    def _match(self, entry: _Entry, args: Any, kwargs: Any, tensors: list[Tensor]) -> Any:
        entry.recording.match_begin(tensors)
        try:
            result = self.__wrapped__(*args, **kwargs)
        except BaseException:
            entry.recording.match_abort()
            raise
        entry.recording.match_end()
        return result

    def graph_text(self) -> str:
        """The recorded graph in text form (for bug reports)."""
        return self._require_recording().recording.text(self._capture_as_const)

    def report(self) -> str:
        """Memory plan and instructions of the compiled programs."""
        return self._require_recording().recording.report()

    def _require_recording(self) -> _Entry:
        if self._last is None:
            raise ValueError("trace: the function has not been called yet, so there is nothing recorded.")
        return self._last

    def dump(
        self,
        file: str | os.PathLike[str] | IO[bytes],
        *,
        arg_names: Sequence[str] | str | None = None,
        output_names: Sequence[str] | str | None = None,
        append: bool = False,
        keep_var_name: int = 1,
        keep_opr_name: bool = False,
        keep_param_name: bool = False,
        keep_opr_priority: bool = False,
        no_change_graph: bool = False,
        strip_info_file: Any = None,
        append_json: bool = False,
        optimize_for_inference: bool = True,
        user_info: Any = None,
        enable_metadata: bool = True,
        input_data: Any = None,
        repeat: int = 1,
        silent: bool = False,
        no_assert: bool = False,
        maxerr: float = 1e-4,
        resize_input: bool = False,
        input_transform: Any = None,
        dump_format: str | None = None,
        model_version: int = 2,
        compat_older_version: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Writes the traced function as a model file that Lite runs.

        Needs ``capture_as_const=True`` and one earlier call. Parameters become constants of the file.
        """
        if not self._capture_as_const:
            raise ValueError("you must specify capture_as_const=True at __init__ to use dump")
        entry = self._require_recording()
        unknown = sorted(set(kwargs) - _INFERENCE_OPTIONS)
        if unknown:
            raise ValueError(f"unknown options: {unknown}")
        for name, value in (
            ("dump_format", dump_format),
            ("input_data", input_data),
            ("strip_info_file", strip_info_file),
        ):
            if value is not None:
                raise NotImplementedError(f"dump: {name} is not supported yet; the native format is always written.")
        n_args, n_out = len(self._last_args), len(entry.result_tensors)
        if n_out == 0:
            raise ValueError("the traced function without return values cannot be dumped, return the tensors to keep")
        if isinstance(entry.result_tree, dict):
            if output_names is not None:
                raise TypeError("output_names cannot be given when the function returns a dict; its keys are the names")
            outs: list[str] = [""] * n_out
            for k, leaf in entry.result_tree.items():
                outs[leaf.index] = k
        else:
            given = [output_names] if isinstance(output_names, str) else list(output_names or [])
            outs = given or [t.name or f"out{i}" for i, t in enumerate(entry.result_tensors)]
        names = [arg_names] if isinstance(arg_names, str) else list(arg_names or [])
        ins = names or [t.name or f"arg_{i}" for i, t in enumerate(self._last_args)]
        if len(ins) != n_args:
            raise ValueError(f"dump: {len(ins)} arg_names for {n_args} arguments")
        if len(outs) != n_out:
            raise ValueError(f"dump: {len(outs)} output_names for {n_out} outputs")
        info: dict[str, str] = {}
        if enable_metadata and user_info is not None:
            info["user_info"] = str(user_info)
        data, stats = _core.dump_model(entry.recording, ins, outs, optimize_for_inference and not no_change_graph, info)
        if hasattr(file, "write"):
            file.write(data)
        else:
            with open(file, "ab" if append else "wb") as f:
                f.write(data)
        return CompGraphDumpResult(
            stats["n_ops"], len(data), stats["weight_bytes"], stats["content_hash"], ins, outs, stats["params"]
        )
