"""``trace``: the Python function is the graph.

The first call runs eagerly and is recorded. From then on, by default, Python runs again and each op is matched with the
recording while a compiled program does the work; with ``without_host=True`` Python does not run at all. A call with
other arguments, or after something that the recording depends on has changed (``depends.py``), is recorded anew, and
several recordings are kept; one that cannot be replayed runs its body each time and says so. Arguments of other sizes
are no reason to record anew, as long as the function did not decide anything by them: shapes are tensors inside a
traced call (``symbolic_shape``), and a program is made for each set of sizes.
"""

from __future__ import annotations

import contextlib
import functools
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from .. import _size as _size
from ..core import _core
from ..core._core import TraceError as TraceError
from ..core._habits import check_keywords
from ..core._trace_option import set_symbolic_shape as set_symbolic_shape
from ..core._warn import warn_once
from ..core.tensor.utils import KindError
from ..module import Module
from ..tensor import Tensor
from .conditional import settle
from .config import DTRConfig, GraphOptimizationConfig, SublinearMemoryConfig
from .depends import HELD, TARGET, Entry, Name, function_names, grad_plan, positions, random_states
from .dump import CompGraphDumpResult as CompGraphDumpResult
from .dump import dump
from .listing import OpInfo, VarInfo, listing
from .paths import CallPaths
from .tree import CannotRebuild, ResultPlan, flatten


def is_tracing() -> bool:
    """Whether a traced function is being recorded or matched right now.

    >>> is_tracing()
    False
    """
    return _core.is_tracing()


class _Open(threading.local):
    """What this thread is recording."""

    refresh: list[tuple[Callable[[], None], Any]] | None = None
    notes: dict[int, Any] | None = None
    grads: dict[int, Any] | None = None


_open = _Open()


@contextlib.contextmanager
def _recording_into(
    refresh: list[tuple[Callable[[], None], Any]] | None, notes: dict[int, Any] | None, grads: dict[int, Any] | None
) -> Iterator[None]:
    before = _open.refresh, _open.notes, _open.grads
    _open.refresh, _open.notes, _open.grads = refresh, notes, grads
    _core.set_notes(notes, grads)
    try:
        yield
    finally:
        _open.refresh, _open.notes, _open.grads = before
        _core.set_notes(*before[1:])


class exclude_from_trace(contextlib.ContextDecorator):
    """Ops inside run outside the record and may differ from call to call; what they give is fed to what follows.

    With ``without_host=True`` Python then runs on every call.

    >>> calls = []
    >>> @trace
    ... def f(x):
    ...     with exclude_from_trace():
    ...         calls.append(0)
    ...         if len(calls) % 2 == 0:
    ...             x = -x
    ...     return x * 1
    >>> [f(Tensor([1.0])).item() for _ in range(4)]
    [1.0, -1.0, 1.0, -1.0]
    """

    # No generator: frames of contextlib would pass for the user's line.
    def __init__(self) -> None:
        self._inside: list[tuple[int, Any]] = []

    def __enter__(self) -> None:
        token = _core.exclude_begin()
        aside = _recording_into(None, None, None)
        aside.__enter__()
        self._inside.append((token, aside))

    def __exit__(self, *error: Any) -> None:
        token, aside = self._inside.pop()
        aside.__exit__(None, None, None)
        _core.exclude_end(token)


def on_replay(fn: Callable[[], None], by: Any = None) -> None:
    """Runs ``fn`` before each replay of the call this thread is recording: it brings tensors made from host numbers
    (a learning rate, a loss scale) up to date. The tensors must be state of their owner, made outside the recording
    (``with untraced():``). Where ``fn`` goes by nothing but ``by`` (numbers in tuples, lists and dicts), it is not
    called as long as nothing in there has been assigned."""
    if _open.refresh is not None:
        _open.refresh.append((fn, by))


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """Tensors made inside are state that a recording captures, not constants of it."""
    token = _core.pause_trace()
    try:
        yield
    finally:
        _core.resume_trace(token)


_HOST = "the body runs in any case"  # no reason to tell
OUTER_GRADIENTS = "gradients are recorded outside of it; backward inside the function would be compiled as well"

#: Recordings a trace keeps; the one used longest ago goes.
MAX_RECORDINGS = 32


def _copied(cls: type[trace], state: dict[str, Any]) -> trace:
    made: trace = _core.TraceBase.__new__(cls)
    made.__dict__.update(state)
    return made


def array_comparator(lhs: Any, rhs: Any) -> bool:
    """Whether all elements of two arrays are equal.

    >>> array_comparator(np.zeros(3), 0)
    True
    """
    return bool(np.all(lhs == rhs))


class trace(CallPaths, _core.TraceBase):
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

    without_host = False
    check_external = True
    _late: Sequence[Tensor] = ()  # arguments that come after the results which do not need them

    if TYPE_CHECKING:  # what a decorated function is, so that editors know dump and its like

        @overload
        def __new__(cls, function: Callable[..., Any], *args: Any, **kwargs: Any) -> trace: ...

        @overload
        def __new__(cls, **kwargs: Any) -> Callable[[Callable[..., Any]], trace]: ...  # type: ignore[misc]

        def __new__(cls, *args: Any, **kwargs: Any) -> Any: ...

    else:

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            check_keywords("trace", kwargs, cls.__init__)
            if not args:
                return functools.partial(cls, **kwargs)
            return super().__new__(cls)

    def __init__(
        self,
        function: Callable[..., Any] | None = None,  # left out in @trace(...), which never comes here
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
        for option, config in (("sublinear_memory_config", sublinear_memory_config), ("dtr_config", dtr_config)):
            if config is not None:
                raise NotImplementedError(
                    f"trace: {option} is not implemented; leave it out. megengine.autodiff.checkpoint(fn) computes "
                    "again instead of keeping."
                )
        if not callable(function):
            raise TypeError(f"trace: needs a callable, the function to record; got a {type(function).__name__}.")
        if isinstance(symbolic, (Tensor, np.ndarray, tuple, list)):
            raise TypeError(
                f"trace: symbolic must be a bool; got a {type(symbolic).__name__}. trace(function, ...) takes options; "
                "the arguments of the function go into its first call, which is recorded."
            )
        self.__wrapped__: Any = function
        self._symbolic = bool(symbolic or record_only)
        self._capture_as_const = bool(capture_as_const or record_only)
        self._record_only = bool(record_only)
        self._imperative = bool(imperative)
        self._profiling = profiling
        if opt_level not in range(4) or isinstance(opt_level, (bool, float)):
            raise ValueError(f"trace: opt_level is 0, 1, 2 or 3; got {opt_level!r}.")
        self._opt_level = opt_level
        if graph_opt_config is None:
            graph_opt_config = GraphOptimizationConfig()
        elif not isinstance(graph_opt_config, GraphOptimizationConfig):
            raise TypeError(f"trace: graph_opt_config is a GraphOptimizationConfig; got {graph_opt_config!r}.")
        self._graph_opt = graph_opt_config._options()
        self.without_host = without_host
        self.symbolic_shape = symbolic_shape
        self.traced = False
        self._tries: set[bytes] = set()
        self._told: set[str] = set()
        self._last: Entry | None = None
        self._last_args: list[Tensor] = []
        self._last_keys: list[str] = []  # of those that came by keyword
        name = getattr(function, "__name__", type(function).__name__)
        self.__name__ = name
        self.__doc__ = getattr(function, "__doc__", None)

    def __reduce__(self) -> Any:
        """Copies and pickles start without recordings."""
        fresh: dict[str, Any] = {
            "_last": None,
            "_last_args": [],
            "_last_keys": [],
            "_told": set(),
            "_tries": set(),
            "traced": False,
        }
        return _copied, (type(self), {**self.__dict__, **fresh})

    def _trace_state(self) -> list[Any]:
        """What a recording depends on that sees this function: not what this one has recorded meanwhile."""
        return [self.__wrapped__]

    def _record_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call that none of the recordings can serve; those that one can never get here."""
        if self.third_party_backend and self.traced:
            return self.compile_and_exec(*args, **kwargs)
        if self._capture_as_const and not self.without_host:
            for a in args:
                if not isinstance(a, Tensor):
                    raise KindError(
                        f"trace: {self.__name__}: Only support tensor type args when capture_as_const is enabled; "
                        f"got a {type(a).__name__}. Make it a Tensor, a global, or a keyword argument."
                    )
        key, tensors, held, strict, any_size = self._call_key(args, kwargs)
        if self.without_host and not strict:
            self._tell(OUTER_GRADIENTS)
        recording = _core.Recording(
            self._opt_level, self._capture_as_const, strict, any_size, self._graph_opt, symbolic=self._symbolic,
            record_only=self._record_only, imperative=self._imperative,
        )  # fmt: skip
        if self._profiling:
            recording.watch(True)
        return self._record(key, recording, held, args, kwargs, tensors, strict)

    def _record(
        self,
        key: bytes,
        recording: _core.Recording,
        held: list[Any],
        args: Any,
        kwargs: Any,
        tensors: list[Tensor],
        strict: bool,
    ) -> Any:
        entry = Entry(recording)
        entry.held = held
        notes: dict[int, Any] = {}
        grads: dict[int, tuple[Tensor, Tensor | None]] = {}
        before = [Name(*name) for name in function_names(self.__wrapped__, held)]
        reached = [o for name in before for o in name.deep[HELD]]
        draws, moving = (random_states(), positions(reached)) if strict else (None, [])
        with _recording_into(entry.refresh, notes, grads):
            # Also what other objects refer to: its attributes may be read without calling it.
            noted: set[int] = set()
            for obj in (*held, *(name.value for name in before), *reached):
                if id(obj) in noted or not hasattr(type(obj), "_trace_state"):
                    continue
                for part in obj.modules() if isinstance(obj, Module) else (obj,):
                    noted.add(id(part))
                    _core.note_use(part)
        outside = [t for note in (*notes.values(), *(name.deep for name in before)) for t in note[HELD]]
        outside = [t for t in outside if isinstance(t, Tensor)]
        recording.record_begin([*tensors, *self._late])
        keys_before = _size.Size.keys
        _core.traced_shapes(recording.any_size)
        try:
            with _recording_into(entry.refresh, notes, grads):
                result = self.__wrapped__(*args, **kwargs)
            reason = self._finish(entry, result, tensors, grads, strict)
        except BaseException:
            recording.record_abort()
            if self._symbolic or self._record_only:  # gradients that were never computed
                for tensor, was in grads.values():
                    tensor._grad = was
            settle()
            raise
        finally:
            _core.traced_shapes(None)
        settle()
        self._last, self._last_args = entry, tensors if self._capture_as_const else []
        keys = {id(t): key for key, t in kwargs.items() if isinstance(t, Tensor)}
        by_place = len(self._call_key(args, {})[1]) if keys else 0
        self._last_keys = [keys.get(id(t), "") if i >= by_place else "" for i, t in enumerate(self._last_args)]
        self.traced = True
        reason = reason or recording.host_only
        kept, other = self._still_true(before if strict else (), notes.values())
        if strict:
            if moving != positions(reached):
                reason = reason or "the function uses an iterator or a generator of random numbers"
            if draws != random_states():
                reason = reason or "the function draws random numbers of NumPy or Python, not of megengine.random"
            reason = reason or self._changed_arguments(key, args, kwargs, tensors)
            reason = reason or other
            if not reason:
                entry.host_only = False
            elif self._first_try(key):
                return result
            else:
                entry.eager = not recording.boundaries
                self._tell(reason)
        elif _size.Size.keys != keys_before and self._first_try(key + repr([t._tuple_shape for t in tensors]).encode()):
            return result
        elif recording.host_only:  # a call like it may take other ops
            entry.eager = not recording.boundaries
        classes = {type(note[TARGET]) for note in notes.values()}
        entry.notes = kept + [
            _core.note(c, None, True, True) for c in classes if not c.__module__.startswith("megengine.")
        ]
        recording.pin_arguments(outside)
        if not self.third_party_backend and self._keep(key, entry, MAX_RECORDINGS):
            self._warn(
                f"trace: {self.__name__} was recorded more than {MAX_RECORDINGS} times for different arguments or "
                "states; the recording used longest ago is dropped each time. Pass numbers that change as Tensors."
            )
        return result

    def _first_try(self, key: bytes) -> bool:
        """Whether a call is to be recorded once more: what a first call sets up (a cache, a buffer made when it is
        needed) is there the next time."""
        if key in self._tries:
            return False
        if len(self._tries) >= MAX_RECORDINGS:
            self._tries.clear()
        self._tries.add(key)
        return True

    def _finish(
        self,
        entry: Entry,
        result: Any,
        tensors: list[Tensor],
        grads: dict[int, tuple[Tensor, Tensor | None]],
        strict: bool,
    ) -> str:
        """Ends the recording with the results a replay has to give; the reason why there can be none."""
        recording = entry.recording
        if self._capture_as_const:
            entry.result_tree = flatten(result, entry.result_tensors)
            recording.record_end(entry.result_tensors)
            if strict:
                entry.result = ResultPlan(result, (), lambda t: True, tensors=entry.result_tensors).result
            if any(tensor._grad is not was for tensor, was in grads.values()):
                return "gradients are set under capture_as_const=True"
            return "" if strict else _HOST
        positions = {id(t) for t in tensors}
        entry.grads = [pair for pair in grads.values() if not recording.is_inside(pair[0])]
        foreign = [pair for pair in entry.grads if id(pair[0]) in positions]
        entry.grads = [pair for pair in entry.grads if id(pair[0]) not in positions]
        if not strict:
            recording.record_end([])
            return _HOST
        reason = "the gradient of an argument is read or set" if foreign else ""
        try:
            owners = {id(was): tensor for tensor, was in entry.grads if was is not None}
            plan = ResultPlan(result, tensors, recording.is_inside, owners)
        except CannotRebuild as e:
            plan, reason = ResultPlan(None, (), recording.is_inside), reason or str(e)
        for tensor, was in entry.grads:
            now = tensor._grad
            if now is not was:
                entry.new_grads.append((tensor, grad_plan(plan, now, recording)))
        recording.record_end(plan.tensors)
        entry.result = plan.result
        return reason

    def _changed_arguments(self, key: bytes, args: Any, kwargs: Any, tensors: list[Tensor]) -> str:
        try:
            now, same, *_ = self._call_key(args, kwargs)
        except TypeError:  # by something that has no key
            now, same = b"", []
        if now != key or any(a is not b for a, b in zip(same, tensors)):
            return "the function changes the structure, the values or the types of its arguments"
        return ""

    def _still_true(
        self, before: Sequence[Name], notes: Iterable[tuple[Any, ...]]
    ) -> tuple[list[tuple[Any, ...]], str]:
        """The notes that the call itself has not made untrue, and what it has assigned otherwise."""
        kept: list[tuple[Any, ...]] = []
        reason = ""
        for name in before:
            if _core.notes_hold([name.deep], True):
                kept.append(name.deep)
            elif not _core.notes_hold([name.shallow], True):
                reason = f"the function assigns {name.label}"
            elif name.only_grew():  # somebody's log
                kept.append(name.shallow)
            elif isinstance(name.value, (list, dict, set)):
                reason = f"the function changes {name.label}, a {type(name.value).__name__}"
            else:
                kept.append(name.shallow)
                self._warn(
                    f"trace: {self.__name__} changes attributes of {name.label}, which with without_host=True happens "
                    "in calls that are recorded, not in those that are replayed."
                )
        for note in notes:
            if _core.notes_hold([note], True):
                kept.append(note)
            else:
                reason = reason or f"the call changes attributes of a {type(note[TARGET]).__name__}"
        return kept, reason

    def _tell(self, reason: str) -> None:
        """Says that Python runs although it was asked not to."""
        self._warn(f"trace: {self.__name__} runs Python on each call in spite of without_host=True: {reason}.")

    def _warn(self, text: str) -> None:
        """Says something once, at the user's line."""
        if text not in self._told:
            self._told.add(text)
            warn_once(text, text)

    def graph_text(self) -> str:
        """The recorded graph in text form (for bug reports)."""
        return self._require_recording("graph_text").recording.text(self._capture_as_const)

    @property
    def ops(self) -> list[OpInfo]:
        """The ops of the last recorded call; empty before the first.

        >>> f = trace(lambda x: F.relu(x) + 1)
        >>> f(mge.tensor([1.0])).item(), [op.type for op in f.ops]
        (2.0, ['RELU', 'ADD'])
        """
        return listing(self._last.recording if self._last else None)[0]

    @property
    def vars(self) -> list[VarInfo]:
        """The variables that they read and make."""
        return listing(self._last.recording if self._last else None)[1]

    def get_profile(self) -> dict[str, Any]:
        """Graph and times of the last run of the compiled program, as plain data: ``graph_exec`` and ``profiler``.

        Needs ``profiling=True`` and a second call, which is the first that a program computes.
        """
        if not self._profiling:
            raise ValueError(f"get_profile: {self.__name__} is not profiled; make the trace with profiling=True.")
        return dict(json.loads(self._require_recording("get_profile").recording.profile()))

    def report(self) -> str:
        """Memory plan and instructions of the compiled programs."""
        return self._require_recording("report").recording.report()

    def _require_recording(self, who: str) -> Entry:
        if self._last is None:
            raise ValueError(
                f"{who}: {self.__name__} has not been called yet, so there is nothing recorded. Call it once."
            )
        return self._last

    dump = dump
