"""Show where static memory goes in TensorBoard: the graph with each op's memory, the peak, and what is alive at it.

The folder read is what ``load_network_and_run --get-static-mem-info`` or Lite's ``get_static_memory_alloc_info`` wrote.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from ._command import Parser, UsageError, existing, run


def main(argv: Sequence[str] | None = None) -> int:
    """The command; gives the exit status."""
    parser = Parser("graph_info_analyze", __doc__)
    parser.add_argument("-i", "--input", required=True, help="folder with graph.json and StaticMemoryInfo.json")
    parser.add_argument("-o", "--output", required=True, help="folder for TensorBoard")
    args = parser.parse_args(argv)
    folder = existing(args.input, "folder")
    graph, info = (_read(os.path.join(folder, name)) for name in ("graph.json", "StaticMemoryInfo.json"))
    if "operator" not in graph or "chunk" not in info:
        raise UsageError(
            f"{folder} holds no graph.json and StaticMemoryInfo.json as get_static_memory_alloc_info writes"
        )
    from ..utils.tensorboard import SummaryWriterExtend

    facts = analyze(info)
    with SummaryWriterExtend(args.output) as writer:
        _write_graph(writer, graph, facts)
        for name in ("PEAK_MEMORY_SIZE", "WEIGHT_MEMORY_SIZE", "ALL_MEMORY_SIZE"):
            writer.add_text(name, [f"{facts[name]} ({facts[name] / 2**20:.3f} MiB)"])
            writer.add_scalar(name, facts[name])
        writer.add_text("PEAK_MEMORY_OPR_LIST", [f"{k}: {v}" for k, v in facts["peak_oprs"]] or ["none"])
        writer.add_text(
            "PEAK_MEMORY_CHUNKS", [f"{size} bytes at {at}, made by {op}" for size, at, op in facts["peak_chunks"]]
        )
        for time, alive in enumerate(facts["alive"]):
            writer.add_scalar("STATIC_MEMORY_ALIVE", alive, time)
    print(f"peak {facts['PEAK_MEMORY_SIZE']:,} bytes at {', '.join(n for _, n in facts['peak_oprs']) or 'no op'}; "
          f"weights {facts['WEIGHT_MEMORY_SIZE']:,} bytes. tensorboard --logdir {args.output}")  # fmt: skip
    return 0


def _read(path: str) -> Any:
    with open(existing(path), encoding="utf-8") as f:
        try:
            return json.load(f)
        except ValueError as e:
            raise UsageError(f"{path} is no JSON: {e}") from None


def analyze(info: dict[str, Any]) -> dict[str, Any]:
    """Sums, the curve of what is alive, and the ops at its peak."""
    chunks = [{k: v if k == "type" else int(v) for k, v in c.items()} for c in info["chunk"].values()]
    static = [c for c in chunks if c["type"] == "static_mem"]
    weights = sum(c["logic_addr_end"] - c["logic_addr_begin"] for c in chunks if c["type"] == "weight_mem")
    n = len(info.get("opr", {}))
    alive = [0] * (n + 1)
    for c in static:
        alive[min(c["time_begin"], n)] += c["logic_addr_end"] - c["logic_addr_begin"]
        alive[min(c["time_end"], n)] -= c["logic_addr_end"] - c["logic_addr_begin"]
    for t in range(1, n + 1):
        alive[t] += alive[t - 1]
    peak = max((c["logic_addr_end"] for c in static), default=0)
    most = max(alive, default=0)
    names = {int(k): v["name"] for k, v in info.get("opr", {}).items()}
    times = [t for t, bytes_ in enumerate(alive) if bytes_ == most and most]
    at_peak = [c for c in static if times and c["time_begin"] <= times[0] < c["time_end"]]
    return {
        "PEAK_MEMORY_SIZE": peak,
        "WEIGHT_MEMORY_SIZE": weights,
        "ALL_MEMORY_SIZE": peak + weights,
        "alive": alive[:n],
        "peak_oprs": [(t, names.get(t, "")) for t in times],
        "peak_chunks": sorted(
            (
                (c["logic_addr_end"] - c["logic_addr_begin"], c["logic_addr_begin"], names.get(c["time_begin"], ""))
                for c in at_peak
            ),
            reverse=True,
        ),
    }


def _write_graph(writer: Any, graph: dict[str, Any], facts: dict[str, Any]) -> None:
    variables, maker = graph["var"], {v: k for k, op in graph["operator"].items() for v in op["output"]}
    peak = {name for _, name in facts["peak_oprs"]}
    label = {k: f"{op['name'].replace('.', '/')}_{k}" for k, op in graph["operator"].items()}
    for key, op in graph["operator"].items():
        inputs = [label[maker[v]] for v in op["input"] if v in maker]
        outputs = [variables[v] for v in op["output"] if v in variables]
        shapes = [v.get("shape") or ((v.get("mem_plan") or {}).get("layout") or {}).get("shape", []) for v in outputs]
        attributes = {"at_peak": "yes"} if op["name"] in peak else {}
        for v in outputs:
            plan = v.get("mem_plan")
            if plan:
                attributes["chunk"] = plan["mem_chunk_id"]
        writer.add_node_raw(label[key], op["type"], inputs, shapes, None, attributes)
    writer.add_graph_by_node_raw_list()


if __name__ == "__main__":
    sys.exit(run("graph_info_analyze", main))
