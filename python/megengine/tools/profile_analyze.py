"""Which ops of a profile take the time: the slowest, by type or by name, with operations and bytes per second.

The profile is the JSON of ``trace(profiling=True).get_profile()``, of ``load_network_and_run --profile``, of Lite's
``enable_profile_performance``, or of the original.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Any

from ..utils._table import table
from ..utils.profile_analyzer import NonExistNum, OprProfRst, ProfileAnalyzer, Record, TimeFuncHelper
from ._command import Parser, UsageError, existing, run

_COLUMNS = ("time", "computation", "flops", "memory", "bandwidth", "opr_id")


def _parser() -> Parser:
    p = Parser("profile_analyze", __doc__)
    p.add_argument("dump", help="the profile, a JSON file")
    p.add_argument("-t", "--top", type=int, default=3, help="how many ops to print")
    p.add_argument("--type", action="append", help="only ops of this type; may be repeated")
    p.add_argument("--aggregate-by", choices=["type"], help="several ops become one row")
    p.add_argument("--opr-name", help="only ops whose name matches this regular expression")
    p.add_argument("--input-dtype", type=str, help="only ops with an input of this dtype")
    p.add_argument("--top-end-key", choices=["end", "kern"], default="end",
                   help="time until the op ended, or until its kernel began (waiting alone)")  # fmt: skip
    p.add_argument("--aggregate", choices=["max", "min", "sum", "mean"], help="how times become one")
    p.add_argument("--order-by", default="time", help=f"a column of {', '.join(_COLUMNS)}; + before it: least first")
    p.add_argument("--copy-time", action="store_true", help="also print time spent in copies")
    p.add_argument("--min-time", type=float, default=float("-inf"), help="leave out what took less")
    p.add_argument("--max-time", type=float, default=float("inf"), help="leave out what took more")
    p.add_argument("--show-host", action="store_true", help="also the times of the host")
    p.add_argument("--dump-only-opr", action="store_true", help="only name, type and id: to compare two profiles")
    p.add_argument("--confluence", "--wiki", action="store_true", help="tables as a wiki reads them")
    p.add_argument("--print-only", choices=["summary", "device", "host"], help="only this part")
    return p


def main(passed_args: Sequence[str] | None = None) -> int:
    """The command; gives the exit status."""
    args = _parser().parse_args(passed_args)
    with open(existing(args.dump), encoding="utf-8") as f:
        try:
            profile = json.load(f)
        except ValueError as e:
            raise UsageError(f"{args.dump} is no JSON: {e}") from None
    if not isinstance(profile, dict) or not {"graph_exec", "profiler"} <= set(profile):
        raise UsageError(f"{args.dump} is no profile: it has no graph_exec and profiler")
    if args.order_by.removeprefix("+").lower() not in _COLUMNS:
        raise UsageError(f"--order-by: there is no column {args.order_by}; there are {', '.join(_COLUMNS)}")
    if args.aggregate_by and not args.aggregate:
        raise UsageError("--aggregate-by needs --aggregate max, min, sum or mean")
    try:
        name = re.compile(args.opr_name or "")
    except re.error as e:
        raise UsageError(f"--opr-name: {args.opr_name!r} is no regular expression: {e}") from None
    wanted, seen = set(args.type or ()), set()

    def keep(op: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
        seen.add(op["type"])
        dtypes = {_dtype(v) for v in inputs if v}
        return (not wanted or op["type"] in wanted) and bool(name.search(op["name"])) and (
            not args.input_dtype or args.input_dtype.lower() in dtypes
        )  # fmt: skip

    whole, chosen = ProfileAnalyzer(profile), ProfileAnalyzer(profile, keep)
    if wanted - seen:
        raise UsageError(
            f"--type: the profile has no {', '.join(sorted(wanted - seen))}; it has {', '.join(sorted(seen))}"
        )
    totals = {kind: _total(whole, kind) for kind in ("device", "host")}
    draw = _wiki if args.confluence else table
    if args.print_only in (None, "summary"):
        rows = [["total device time", f"{totals['device']:.6g}"], ["total host time", f"{totals['host']:.6g}"]]
        if args.copy_time:
            rows += _copies(whole)
        print(draw([["", "seconds"], *rows]), end="\n\n")
    for kind in ("device", "host"):
        if args.print_only not in (None, kind) or (kind == "host" and not args.show_host and args.print_only != "host"):
            continue
        records = chosen.select(
            TimeFuncHelper.eval_time_func(kind, args.top_end_key, max),
            lambda op, kind=kind: _between(op, kind, args),
            aggregate=args.aggregate,
            aggregate_by=args.aggregate_by,
            sort_by=args.order_by.lower(),
            top_k=args.top,
        )
        if args.dump_only_opr:
            print("\n".join(" ".join(str(v) for v in r.info.values()) for r in records))
        else:
            print(draw(_rows(records, kind, totals[kind])), end="\n\n")
    return 0


def _dtype(var: dict[str, Any]) -> str:
    layout = (var.get("mem_plan") or {}).get("layout") or {}
    return str(var.get("dtype") or layout.get("dtype") or "").lower()


def _total(p: ProfileAnalyzer, kind: str) -> float:
    records = p.select(TimeFuncHelper.eval_time_func(kind, "end", max), aggregate=sum)
    return float(records[0].time) if records else 0.0


def _between(op: OprProfRst, kind: str, args: Any) -> bool:
    time = TimeFuncHelper.eval_time_func(kind, args.top_end_key, max)(op)
    return time is None or args.min_time <= time <= args.max_time


def _copies(p: ProfileAnalyzer) -> list[list[str]]:
    records = p.select(
        TimeFuncHelper.eval_time_func("device", "end", max), lambda op: "copy" in op.opr_info["type"].lower()
    )
    return [["copies", f"{sum(r.time for r in records):.6g}"], ["number of copies", str(len(records))]]


def _scaled(value: Any, units: Sequence[str], base: int) -> str:
    if isinstance(value, NonExistNum):
        return str(value)
    n, k = float(value), 0
    while n >= base and k < len(units) - 1:
        n, k = n / base, k + 1
    return f"{n:.2f} {units[k]}"


def _rows(records: list[Record], kind: str, total: float) -> list[list[Any]]:
    flo, byte = ["", "K", "M", "G", "T"], ["byte", "KiB", "MiB", "GiB", "TiB"]
    head = ["#", f"{kind} self time", "share", "cumulative", "share", "operator info", "computation", "FLOPS", "memory"]
    rows: list[list[Any]] = [[*head, "bandwidth", "in_shapes", "out_shapes"]]
    cumulative = 0.0

    def shapes(given: Any) -> str:
        return " ".join("{" + ",".join(map(str, s)) + "}" for s in given) if given else ""

    def share(time: float) -> str:
        return f"{time / total:.1%}" if total else ""

    for i, r in enumerate(records):
        cumulative += r.time
        rows.append(
            [
                f"#{i}", f"{r.time:.6g}", share(r.time), f"{cumulative:.6g}", share(cumulative),
                " ".join(str(v) for v in r.info.values()), _scaled(r.computation, [u + "FLO" for u in flo], 1000),
                _scaled(r.flops, [u + "FLOPS" for u in flo], 1000), _scaled(r.memory, byte, 1024),
                _scaled(r.bandwidth, [b + "/s" for b in byte], 1024), shapes(r.in_shapes), shapes(r.out_shapes),
            ]
        )  # fmt: skip
    return rows


def _wiki(rows: Sequence[Sequence[Any]]) -> str:
    lines = ["| " + " | ".join(str(c) for c in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


if __name__ == "__main__":
    sys.exit(run("profile_analyze", main))
