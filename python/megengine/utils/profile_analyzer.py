"""Questions to a profile: ``trace(profiling=True).get_profile()``, Lite's ``enable_profile_performance``.

>>> from megengine.utils.profile_analyzer import ProfileAnalyzer, TimeFuncHelper
>>> op = {"node_type": "operator", "id": "0", "name": "y", "type": "add", "input": ["1"], "output": ["2"]}
>>> profile = {
...     "graph_exec": {"operator": {"0": op}, "var": {}},
...     "profiler": {
...         "device": {"0": {"cpu0": {"start": 1.0, "kern": 1.0, "end": 1.5}}},
...         "host": {},
...         "opr_footprint": {"0": {"memory": 8, "computation": 2, "in_shapes": [], "out_shapes": []}},
...     },
... }
>>> (add,) = ProfileAnalyzer(profile).select(TimeFuncHelper.eval_time_func("device", "end", max))
>>> add.time, add.flops, add.bandwidth
(0.5, 4.0, 16.0)
"""

from __future__ import annotations

import collections
import functools
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["NonExistNum", "OprProfRst", "ProfileAnalyzer", "Record", "TimeFuncHelper"]


class NonExistNum:
    """Stands where a number is missing: greater than every number, and what is added to it is all there is."""

    def __truediv__(self, other: Any) -> NonExistNum:
        return self

    def __add__(self, other: Any) -> Any:
        return other

    __radd__ = __add__

    def __neg__(self) -> NonExistNum:
        return self

    def __gt__(self, other: Any) -> bool:
        return not isinstance(other, NonExistNum)

    def __ge__(self, other: Any) -> bool:
        return True

    def __lt__(self, other: Any) -> bool:
        return False

    def __le__(self, other: Any) -> bool:
        return isinstance(other, NonExistNum)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NonExistNum)

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return "N/A"

    __repr__ = __str__


class OprProfRst:
    """What a profile says of one op.

    Args:
        entry: the op, from ``graph_exec.operator``.
    """

    opr_info: OrderedDict[str, Any] | None = None
    """name, type and id"""
    time_dict: defaultdict[str, list[Any]] | None = None
    """per kind ("device", "host") a list of {where: {start, kern, end}}"""
    footprint: defaultdict[str, Any] | None = None
    """flops, bytes and shapes"""

    def __init__(self, entry: dict[str, Any]) -> None:
        assert isinstance(entry, dict), f"OprProfRst: an op of graph_exec is a dict; got {type(entry).__name__}."
        self.opr_info = collections.OrderedDict((key, entry[key]) for key in ("name", "type", "id"))
        self.time_dict = collections.defaultdict(list)
        self.footprint = collections.defaultdict(NonExistNum)

    def update_device_prof_info(self, dev_time: dict[str, Any]) -> None:
        """Times on devices, by device."""
        assert isinstance(dev_time, dict), f"OprProfRst: times are a dict; got {type(dev_time).__name__}."
        assert self.time_dict is not None
        self.time_dict["device"].append(dict(dev_time))

    def update_host_prof_info(self, host_time: dict[str, Any]) -> None:
        """Times on the host, by thread."""
        assert isinstance(host_time, dict), f"OprProfRst: times are a dict; got {type(host_time).__name__}."
        assert self.time_dict is not None
        self.time_dict["host"].append(dict(host_time))

    def update_footprint(self, footprint: dict[str, Any]) -> None:
        """Flops, bytes and shapes."""
        assert isinstance(footprint, dict), f"OprProfRst: a footprint is a dict; got {type(footprint).__name__}."
        assert self.footprint is not None
        self.footprint.update(footprint)


class Record:
    """One answer: an op, or several as one.

    Args:
        time: seconds, by the time function that was asked for.
        info: name, type and id of the op; type and count of several.
        footprint: ``"computation"``, ``"memory"``, ``"in_shapes"``, ``"out_shapes"``.
    """

    def __init__(self, time: float, info: dict[str, Any], footprint: dict[str, Any]) -> None:
        assert isinstance(footprint, dict), f"Record: a footprint is a dict; got {type(footprint).__name__}."
        self.time = time
        self.info = collections.OrderedDict(info)
        self.computation = self._number(footprint.get("computation"))
        self.memory = self._number(footprint.get("memory"))
        self.in_shapes = footprint.get("in_shapes")
        self.in_layouts = footprint.get("in_layouts")
        self.out_shapes = footprint.get("out_shapes")
        self.flops = self._rate(self.computation)
        self.bandwidth = self._rate(self.memory)
        id = self.info.get("id")
        self.opr_id = int(id) if isinstance(id, str) and id.isdigit() else id

    @staticmethod
    def _number(value: Any) -> Any:
        return NonExistNum() if value is None else value

    def _rate(self, amount: Any) -> Any:
        if isinstance(amount, NonExistNum):
            return amount
        return amount / self.time if self.time else float("inf") if amount else 0.0

    def get_column_by_name(self, name: str | None = None) -> Any:
        """A column of the table; the time when none is named."""
        return getattr(self, "time" if name is None else name)


class ProfileAnalyzer:
    """A profile that can be asked.

    Args:
        obj: the profile, ``{"graph_exec": …, "profiler": …}``.
        opr_filter: called with (op, its input variables, its output variables); ops it is false for are left out.
    """

    def __init__(self, obj: dict[str, Any], opr_filter: Callable[..., Any] = lambda opr, inp, out: True) -> None:
        exec_, profiler = obj["graph_exec"], obj["profiler"]
        variables = exec_["var"]
        ops = {}
        for id, entry in exec_["operator"].items():
            inputs = [variables.get(v) for v in entry.get("input", [])]
            outputs = [variables.get(v) for v in entry.get("output", [])]
            if opr_filter(entry, inputs, outputs):
                ops[id] = OprProfRst(entry)
        for kind, add in (
            ("device", OprProfRst.update_device_prof_info),
            ("host", OprProfRst.update_host_prof_info),
            ("opr_footprint", OprProfRst.update_footprint),
        ):
            for id, entry in profiler[kind].items():
                if id in ops:
                    add(ops[id], entry)
        self._opr_set = ops

    def _aggregate(self, records: list[Record], aop: str | Callable[..., Any], atype: str | None) -> list[Record]:
        if aop is None:
            assert atype is None, "must specify aggregate op"
            return records
        function = getattr(np, aop) if isinstance(aop, str) else aop
        groups: dict[Any, list[Record]] = {}
        for r in records:
            groups.setdefault("all" if atype is None else r.info[atype], []).append(r)
        out = []
        for name, members in groups.items():
            info = collections.OrderedDict([(atype or "type", name), ("count", len(members)), ("id", "N/A")])
            sums = {}
            for key in ("computation", "memory"):
                known = [v for v in (getattr(r, key) for r in members) if not isinstance(v, NonExistNum)]
                sums[key] = function(known) if known else None
            sums["in_shapes"] = sums["out_shapes"] = None
            out.append(Record(function([r.time for r in members]), info, sums))
        return out

    def _sort(self, records: list[Record], sort_by: str) -> list[Record]:
        if sort_by is None:
            return records
        up = sort_by.startswith("+")
        name = sort_by.removeprefix("+")

        def compare(a: Record, b: Record) -> int:
            x, y = a.get_column_by_name(name), b.get_column_by_name(name)
            return int(x > y) - int(x < y)

        return sorted(records, key=functools.cmp_to_key(compare), reverse=not up)

    def select(
        self,
        time_func: Callable[[OprProfRst], float | None],
        opr_filter: Callable[..., Any] = lambda opr: True,
        aggregate: Callable[..., Any] | None = None,
        aggregate_by: str | None = None,
        sort_by: str | None = None,
        top_k: int = 0,
    ) -> list[Record]:
        """Ops that were timed, as records.

        Args:
            time_func: the time of an op (``TimeFuncHelper`` makes some); those it has none for are left out.
            opr_filter: called with each ``OprProfRst``; those it is false for are left out.
            aggregate: several become one: a function of a list of numbers, or the name of NumPy's.
            aggregate_by: which become one: those that agree in this (``"type"``); all when None.
            sort_by: a column, most first; with ``+`` before it least first.
            top_k: how many; 0 is all.
        """
        records = []
        for op in self._opr_set.values():
            time = time_func(op) if opr_filter(op) else None
            if time is None:
                continue
            assert op.opr_info is not None and op.footprint is not None
            records.append(Record(time, op.opr_info, op.footprint))
        records = self._sort(self._aggregate(records, aggregate, aggregate_by), sort_by)  # type: ignore[arg-type]
        return records[:top_k] if top_k else records


class TimeFuncHelper:
    """Functions that give the time of an op."""

    @staticmethod
    def _times(prof_type: str, opr_prof: OprProfRst) -> list[dict[str, float]]:
        assert opr_prof.time_dict is not None
        return [times for entry in opr_prof.time_dict.get(prof_type, []) for times in entry.values()]

    @staticmethod
    def _eval_time(prof_type: str, end_key: str, func: Callable[..., Any], opr_prof: OprProfRst) -> Any:
        times = TimeFuncHelper._times(prof_type, opr_prof)
        return func([t[end_key] - t["start"] for t in times]) if times else None

    @staticmethod
    def eval_time_func(prof_type: str, end_key: str, func: Callable[..., Any]) -> Any:
        """How long: from its start to ``end_key``; ``func`` makes one of the times of several devices.

        ``"end"`` is when it was done, ``"kern"`` when its kernel began: waiting alone.
        """
        return functools.partial(TimeFuncHelper._eval_time, prof_type, end_key, func)

    @staticmethod
    def _min_start(prof_type: str, end_key: str, func: Callable[..., Any], opr_prof: OprProfRst) -> Any:
        times = TimeFuncHelper._times(prof_type, opr_prof)
        return min(t["start"] for t in times) if times else None

    @staticmethod
    def min_start_func(prof_type: str, end_key: str, func: Callable[..., Any]) -> Any:
        """When it started first."""
        return functools.partial(TimeFuncHelper._min_start, prof_type, end_key, func)

    @staticmethod
    def _max_end(prof_type: str, end_key: str, func: Callable[..., Any], opr_prof: OprProfRst) -> Any:
        times = TimeFuncHelper._times(prof_type, opr_prof)
        return max(t["end"] for t in times) if times else None

    @staticmethod
    def max_end_func(prof_type: str, end_key: str, func: Callable[..., Any]) -> Any:
        """When it ended last."""
        return functools.partial(TimeFuncHelper._max_end, prof_type, end_key, func)
