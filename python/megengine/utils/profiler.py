"""What a program does and when: ops, scopes and memory as a timeline for chrome://tracing or ui.perfetto.dev.

>>> import tempfile
>>> from megengine.utils.profiler import Profiler, scope
>>> folder = tempfile.mkdtemp()
>>> with Profiler(folder) as p, scope("forward"):
...     y = mge.tensor([1.0, 2.0]) * 2
>>> [e["name"] for e in p.events() if e["ph"] == "X"]
['mul']

Eager programs and compiled ones (``jit.trace``) are recorded alike. When no profiler runs, nothing is recorded and
nothing is paid.
"""

from __future__ import annotations

import atexit
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager
from types import TracebackType
from typing import Any, ClassVar, TypeVar
from weakref import WeakSet

from ..core import _core
from ..core._warn import warn_once
from ..core.files import replacing
from ..logger import get_logger
from ..module import Module

__all__ = ["Profiler", "is_profiling", "merge_trace_events", "profile", "profile_timeline", "scope"]

_F = TypeVar("_F", bound=Callable[..., Any])
_running: Profiler | None = None
_stopped: WeakSet[Profiler] = WeakSet()
_logger = get_logger(__name__)


class Profiler(ContextDecorator):
    """Records everything that runs between ``start`` and ``stop``; ``dump`` writes it to ``<path>/<pid>.<format>``.

    Also a context manager, which writes at the end of the block, and a decorator of functions. What was not dumped is
    written when the profiler is forgotten and at exit. Only one runs at a time: starting another one stops the first.

    Args:
        path: the folder to write to.
        format: ``"chrome_timeline.json"`` (ops by thread, scopes, memory) or ``"memory_flow.svg"`` (memory over time).
        formats: several of them.
        with_backtrace: accepted: the line of the program that called it is always beside an op.
        with_scopes: a scope for every module that is called.
        sample_rate: look at the memory after every so many ops; 0 is after each.
        profile_device, num_tensor_watch, enable_cupti: of devices with queues of their own; accepted on the CPU.
    """

    CHROME_TIMELINE = "chrome_timeline.json"
    MEMORY_FLOW = "memory_flow.svg"

    valid_options: ClassVar[dict[str, int]] = {
        "sample_rate": 0,
        "profile_device": 1,
        "num_tensor_watch": 10,
        "enable_cupti": 0,
    }
    valid_formats: ClassVar[set[str]] = {CHROME_TIMELINE, MEMORY_FLOW}

    def __init__(
        self,
        path: str = "profile",
        format: str = "chrome_timeline.json",
        formats: list[str] | None = None,
        with_backtrace: bool = False,
        with_scopes: bool = False,
        **kwargs: Any,
    ) -> None:
        formats = [format] if formats is None else [formats] if isinstance(formats, str) else list(formats)
        for one in formats:
            assert one in self.valid_formats, (
                f"Profiler: unknown format {one!r}. There are {', '.join(sorted(self.valid_formats))}."
            )
        for option, value in kwargs.items():
            if option not in self.valid_options:
                raise TypeError(
                    f"Profiler: unknown option {option!r}. There are {', '.join(sorted(self.valid_options))}."
                )
            if option == "enable_cupti" and value:
                raise NotImplementedError(
                    "Profiler: enable_cupti needs a GPU build, which there is not. Leave it at 0."
                )
        self._path = os.fspath(path)
        self._formats = formats
        self._options = {**self.valid_options, **kwargs}
        self._with_scopes = with_scopes
        self._pid = os.getpid()
        self._lanes: list[Any] | None = None
        self._written = True
        if with_backtrace:
            warn_once(
                "Profiler(with_backtrace)",
                "Profiler: each op is recorded with the line that called it, not with the whole stack.",
                UserWarning,
            )

    # ---- running

    def start(self) -> Profiler:
        """Begin to record; what was recorded before is forgotten."""
        global _running
        if _running is not None:
            _running.stop()
        self._pid = os.getpid()
        self._lanes, self._written = None, True
        self._origin = _core.profile_clock()
        if self._with_scopes:
            self._call_before = Module.__call__
            Module.__call__ = _with_scope(self._call_before)  # type: ignore[method-assign]
        _core.start_profile()
        _running = self
        return self

    def stop(self) -> None:
        """End recording. What is queued is waited for and recorded."""
        global _running
        if _running is not self:
            return
        _core.stop_profile()
        _running = None
        if self._with_scopes:
            Module.__call__ = self._call_before  # type: ignore[method-assign]
        self._lanes = _core.profile_events()
        self._written = False
        _stopped.add(self)

    def step(self) -> Profiler:
        """One step of the program is over: stop, and begin anew."""
        if _running is self:
            self.stop()
            self.dump()
        return self.start()

    def dump(self) -> None:
        """Write what was recorded; stops first."""
        self.stop()
        if self._lanes is None:
            raise RuntimeError("Profiler.dump: nothing was recorded. Call start first.")
        self._written = True
        os.makedirs(self._path, exist_ok=True)
        for one in self._formats:
            text = json.dumps(self.timeline()) if one == self.CHROME_TIMELINE else self._svg()
            path = self.format_path(self._path, self._pid, one)
            with replacing(path) as f:
                f.write(text.encode())
            _logger.info("profiling results written to %s", path)

    def __enter__(self) -> Profiler:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
        self._write_if_wanted()

    def __call__(self, function: _F) -> _F:
        """The function, recorded at each call."""
        return super().__call__(function)

    def _write_if_wanted(self) -> None:
        if not self._written and self._pid == os.getpid():  # a forked child has it, too
            self.dump()

    def __del__(self) -> None:
        if not getattr(self, "_written", True):
            self._write_if_wanted()

    # ---- where to

    @property
    def path(self) -> str:
        """The first file that ``dump`` writes."""
        return self.format_path(self._path, self._pid, self._formats[0])

    @property
    def directory(self) -> str:
        """The folder of the files."""
        return self._path

    @property
    def formats(self) -> list[str]:
        """What ``dump`` writes."""
        return list(self._formats)

    def format_path(self, path: str, pid: int, format: str) -> str:
        """The file of a process in a folder."""
        return os.path.join(path, f"{pid}.{format}")

    # ---- what

    def events(self) -> list[dict[str, Any]]:
        """What was recorded, as events of the Chrome trace format: times in microseconds since ``start``."""
        return [e for e in self.timeline()["traceEvents"] if e["ph"] != "M"]

    def timeline(self) -> dict[str, Any]:
        """The whole timeline, as it is written."""
        if self._lanes is None:
            raise RuntimeError("Profiler: nothing was recorded, or recording goes on. Call start, then stop.")
        events: list[dict[str, Any]] = []
        every = max(int(self._options["sample_rate"]), 1)
        for name, thread, dropped, recorded in self._lanes:
            if not recorded:
                continue
            here = {"pid": self._pid, "tid": thread}
            title = f"{name}, {dropped} events dropped" if dropped else name
            events.append({"name": "thread_name", "ph": "M", **here, "args": {"name": title}})
            scopes: list[tuple[int, int, str, str]] = []
            for i, (what, is_scope, begin, end, path, line, tensors, device, allocated) in enumerate(recorded):
                begin = max(begin, self._origin)  # of a scope that was open already
                if is_scope:
                    scopes.append((begin, end, what, path))
                    continue
                args = {"scope": path, "line": line, "tensors": tensors}
                events.append(
                    {
                        "name": what,
                        "cat": "op",
                        "ph": "X",
                        "ts": (begin - self._origin) / 1e3,
                        "dur": (end - begin) / 1e3,
                        **here,
                        "args": {k: v for k, v in args.items() if v},
                    }
                )
                if device and i % every == 0:
                    at = (end - self._origin) / 1e3
                    counter = {"name": f"{device} memory", "ph": "C", "ts": at, "pid": self._pid}
                    events.append({**counter, "args": {"allocated": allocated}})
            events += self._scope_events(scopes, here)
        return _trace_file(events, self._pid, "megengine")

    def _scope_events(self, scopes: list[tuple[int, int, str, str]], here: dict[str, int]) -> list[dict[str, Any]]:
        """Scopes of a lane as pairs of events, each inside the one around it."""
        out: list[dict[str, Any]] = []
        open_: list[tuple[int, str]] = []

        def close_until(time: float) -> None:
            while open_ and open_[-1][0] <= time:
                end, name = open_.pop()
                out.append({"name": name, "cat": "scope", "ph": "E", "ts": (end - self._origin) / 1e3, **here})

        for begin, end, name, path in sorted(scopes, key=lambda s: (s[0], -s[1])):
            close_until(begin)
            at = {"ts": (begin - self._origin) / 1e3, **here}
            out.append({"name": name, "cat": "scope", "ph": "B", **at, "args": {"scope": path}})
            open_.append((min(end, open_[-1][0]) if open_ else end, name))
        close_until(float("inf"))
        return out

    def _svg(self) -> str:
        points = sorted((e["ts"], e["args"]["allocated"]) for e in self.events() if e["ph"] == "C")
        last, most = (points[-1][0], max(b for _, b in points)) if points else (1.0, 1)
        width, height = 1200, 400
        path, y = f"M0,{height}", float(height)
        for ts, allocated in points:
            x = ts / (last or 1) * width
            path += f" L{x:.2f},{y:.2f}"
            y = height - allocated / (most or 1) * height
            path += f" L{x:.2f},{y:.2f}"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height + 40}">'
            f"<title>memory of process {self._pid}</title>"
            f'<path d="{path} L{width},{y:.2f} L{width},{height} Z" fill="#8ab4f8" stroke="#1a73e8"/>'
            f'<text x="4" y="14" font-size="14">{most / 1e6:.3f} MB</text>'
            f'<text x="4" y="{height + 24}" font-size="14">0 to {last / 1e3:.3f} ms</text></svg>\n'
        )


def _trace_file(events: list[dict[str, Any]], pid: int, process: str) -> dict[str, Any]:
    """Events as a file for viewers: in the order they begin, what holds others before them."""
    about = [{"name": "process_name", "ph": "M", "pid": pid, "args": {"name": process}}]
    about += [e for e in events if e["ph"] == "M"]
    timed = sorted((e for e in events if e["ph"] != "M"), key=lambda e: e["ts"])  # pairs keep their order
    return {"traceEvents": about + timed, "displayTimeUnit": "ns", "metadata": {"pid": pid}}


def profile_timeline(profile: dict[str, Any], pid: int = 0) -> dict[str, Any]:
    """The timeline of a profile of a graph: Lite's ``enable_profile_performance``, ``trace.get_profile()``.

    A lane for each device with every op, its shapes and the line that called it, and a counter of the bytes of the
    memory plan that are alive. Times are those of the last run.
    """
    graph, profiler = profile["graph_exec"], profile["profiler"]
    variables, events = graph["var"], []
    lanes: dict[str, int] = {}

    def tensors(ids: list[str]) -> str:
        known = [variables[v] for v in ids if v in variables]
        return " ".join(f"{v['dtype']}[{','.join(map(str, v['shape']))}]" for v in known if v.get("shape") is not None)

    changes: dict[int, int] = {}
    for chunk in graph["mem_chunk"].values():
        if chunk.get("kind") in ("arena", "workspace"):
            changes[max(chunk["first"], 0)] = changes.get(max(chunk["first"], 0), 0) + chunk["size"]
            changes[chunk["last"] + 1] = changes.get(chunk["last"] + 1, 0) - chunk["size"]
    alive = 0
    for step, key in enumerate(graph["comp_seq"]):
        alive += changes.get(step, 0)
        op = graph["operator"][key]
        extra = op.get("extra") or {}
        place = extra.get("location") or {}
        for device, times in profiler["device"].get(key, {}).items():
            lane = lanes.setdefault(device, len(lanes) + 1)
            begin, end = times["start"] * 1e6, times["end"] * 1e6
            args = {
                "name": op["name"],
                "scope": extra.get("scope"),
                "line": f"{place['file']}:{place['line']}" if place.get("file") else None,
                "kernel": extra.get("kernel"),
                "tensors": f"{tensors(op['input'])} -> {tensors(op['output'])}",
            }
            events.append(
                {
                    "name": op["type"], "cat": "op", "ph": "X", "ts": begin, "dur": end - begin, "pid": pid,
                    "tid": lane, "args": {k: v for k, v in args.items() if v},
                }
            )  # fmt: skip
            counter = {"name": f"{device} memory", "ph": "C", "ts": begin, "pid": pid}
            events.append({**counter, "args": {"allocated": alive}})
    for device, lane in lanes.items():
        events.append({"name": "thread_name", "ph": "M", "pid": pid, "tid": lane, "args": {"name": device}})
    return _trace_file(events, pid, "model")


def _with_scope(call: Callable[..., Any]) -> Callable[..., Any]:
    """How modules are called while their names are wanted."""

    def scoped(self: Module, *inputs: Any, **kwargs: Any) -> Any:
        with scope(self.name or self._short_name or type(self).__name__):
            return call(self, *inputs, **kwargs)

    return scoped


@contextmanager
def scope(name: str) -> Iterator[None]:
    """Ops in this block belong to ``name``: in a timeline, and in the messages of errors.

    >>> from megengine.utils.profiler import scope
    >>> with scope("loss"):
    ...     y = mge.tensor([1.0]) * 2
    """
    _core.push_scope(name)
    try:
        yield
    finally:
        _core.pop_scope(name)


def profile(*args: Any, **kwargs: Any) -> Any:
    """A decorator: ``@profile``, or ``@profile(path=…)`` with the arguments of ``Profiler``."""
    if len(args) == 1 and not kwargs and callable(args[0]):
        return Profiler()(args[0])
    return Profiler(*args, **kwargs)


def is_profiling() -> bool:
    """Whether a profiler runs.

    >>> from megengine.utils.profiler import is_profiling
    >>> is_profiling()
    False
    """
    return _running is not None


def merge_trace_events(directory: str) -> None:
    """Put the timelines of all processes in a folder into ``merge.chrome_timeline.json``, side by side."""
    pattern = re.compile(r"\d+\." + re.escape(Profiler.CHROME_TIMELINE))
    events: list[Any] = []
    names = sorted(n for n in os.listdir(directory) if pattern.fullmatch(n))
    if not names:
        raise FileNotFoundError(f"merge_trace_events: {directory} has no <pid>.{Profiler.CHROME_TIMELINE}.")
    for name in names:
        with open(os.path.join(directory, name), encoding="utf-8") as f:
            events += json.load(f)["traceEvents"]
    merged = os.path.join(directory, f"merge.{Profiler.CHROME_TIMELINE}")
    with replacing(merged) as out:
        out.write(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}).encode())


def _write_the_rest() -> None:
    last = _running
    if last is not None:
        last.stop()
    for p in list(_stopped):
        p._write_if_wanted()


atexit.register(_write_the_rest)
