"""Draw a graph as dot, PNG or PDF, from the JSON of a profile, of ``graph.json``, or of ``Graph._to_json``."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from ..core.files import replacing
from ._command import Parser, UsageError, existing, run


def main(argv: Sequence[str] | None = None) -> int:
    """The command; gives the exit status."""
    parser = Parser("draw_graph", __doc__)
    parser.add_argument("-i", "--input", required=True, help="the graph, a JSON file")
    parser.add_argument("-o", "--output", required=True, help="file to write")
    parser.add_argument("-d", "--dest-nodes", help="ids, with commas between: only what these need")
    parser.add_argument("--end-vars-from", help="file with the ids of variables behind which nothing is drawn")
    parser.add_argument("--profile", help="a profile of this graph: times are written beside ops")
    parser.add_argument("--prune-dangling-vars", action="store_true", help="leave out variables that nobody reads")
    parser.add_argument("--opr-attr", action="append", default=[], metavar="X", help="write this attribute beside ops")
    parser.add_argument("--depth", type=int, help="only so many ops back from the end")
    parser.add_argument(
        "--output-format", choices=["dot", "png", "pdf"], default="dot", help="dot is text; the others need graphviz"
    )
    args = parser.parse_args(argv)
    graph = _graph(args.input)
    times = _times(args.profile) if args.profile else {}
    stop = set()
    if args.end_vars_from:
        with open(existing(args.end_vars_from), encoding="utf-8") as f:
            stop = set(f.read().replace(",", " ").split())
    dest = [d.strip() for d in args.dest_nodes.split(",") if d.strip()] if args.dest_nodes else None
    text = dot(graph, dest, stop, times, args.prune_dangling_vars, args.opr_attr, args.depth)
    if args.output_format == "dot":
        with replacing(args.output) as f:
            f.write(text.encode())
        return 0
    program = shutil.which("dot")
    if program is None:
        raise UsageError(f"--output-format {args.output_format} needs graphviz: apt-get install graphviz, or use dot")
    done = subprocess.run([program, f"-T{args.output_format}"], input=text.encode(), capture_output=True)
    if done.returncode:
        raise UsageError(f"graphviz failed: {done.stderr.decode(errors='replace').strip().splitlines()[-1:]}")
    with replacing(args.output) as f:
        f.write(done.stdout)
    return 0


def _json(path: str) -> Any:
    with open(existing(path), encoding="utf-8") as f:
        try:
            return json.load(f)
        except ValueError as e:
            raise UsageError(f"{path} is no JSON: {e}") from None


def _graph(path: str) -> dict[str, Any]:
    data = _json(path)
    graph = data.get("graph_exec", data) if isinstance(data, dict) else None
    if not isinstance(graph, dict) or "operator" not in graph or "var" not in graph:
        raise UsageError(f"{path} is no graph: it has no operator and var")
    return graph


def _times(path: str) -> dict[str, float]:
    data = _json(path)
    if not isinstance(data, dict) or "profiler" not in data:
        raise UsageError(f"{path} is no profile: it has no profiler")
    return {k: max(t["end"] - t["start"] for t in v.values()) for k, v in data["profiler"]["device"].items() if v}


def dot(
    graph: dict[str, Any],
    dest: Sequence[str] | None = None,
    stop: set[str] | None = None,
    times: dict[str, float] | None = None,
    prune: bool = False,
    attrs: Sequence[str] = (),
    depth: int | None = None,
) -> str:
    """The graph as text for graphviz: ops are boxes, variables ovals."""
    ops, variables = graph["operator"], graph["var"]
    maker = {v: k for k, op in ops.items() for v in op["output"]}
    readers = {v for op in ops.values() for v in op["input"]}
    if dest is None:
        ends = [k for k, op in ops.items() if not any(v in readers for v in op["output"])]
    else:
        for d in dest:
            if d not in ops and d not in variables:
                raise UsageError(f"--dest-nodes: the graph has no node {d}")
        ends = [d if d in ops else maker[d] for d in dest if d in ops or d in maker]
    kept: dict[str, int] = {}
    todo = [(k, 1) for k in ends]
    while todo:
        key, far = todo.pop()
        if kept.get(key, 1 << 30) <= far or (depth is not None and far > depth):
            continue
        kept[key] = far
        todo += [(maker[v], far + 1) for v in ops[key]["input"] if v in maker and v not in (stop or ())]
    lines = ["digraph graph_ {", '  node [fontname="sans-serif", fontsize=10];']
    shown: set[str] = set()
    for key in (k for k in ops if k in kept):
        op = ops[key]
        extra = {**(op.get("extra") or {}), **((op.get("extra") or {}).get("attrs") or {})}
        rows = [op["name"], op["type"]] + [f"{a}: {extra[a]}" for a in attrs if a in extra]
        if times and key in times:
            rows.append(f"{times[key] * 1e6:.1f} us")
        lines.append(f'  "o{key}" [shape=box, label={_quoted(rows)}];')
        for v in op["input"]:
            shown.add(v)
            lines.append(f'  "v{v}" -> "o{key}";')
        for v in op["output"]:
            if v in readers or not prune:
                shown.add(v)
                lines.append(f'  "o{key}" -> "v{v}";')
    for v in sorted(shown, key=lambda s: (len(s), s)):
        var = variables.get(v, {"name": v})
        shape = var.get("shape") or ((var.get("mem_plan") or {}).get("layout") or {}).get("shape")
        rows = [var["name"]] + ([f"{var.get('dtype', '')} {shape}".strip()] if shape is not None else [])
        lines.append(f'  "v{v}" [shape=ellipse, label={_quoted(rows)}];')
    return "\n".join([*lines, "}", ""])


def _quoted(rows: Sequence[Any]) -> str:
    text = "\\n".join(str(r).replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") for r in rows)
    return f'"{text}"'


if __name__ == "__main__":
    sys.exit(run("draw_graph", main))
