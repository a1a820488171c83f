"""What the page shows, made from the JSON of ``src/plan/describe.h``: the graph as written, as it runs, its memory."""

from __future__ import annotations

import math
from typing import Any

Json = dict[str, Any]
#: Bits of an element in memory; 8 where nothing is said.
_BITS = {
    **dict.fromkeys(("float64", "int64", "complex64"), 64),
    **dict.fromkeys(("float32", "int32", "qint32"), 32),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16", "qint16"), 16),
    **dict.fromkeys(("quint4", "qint4"), 4),
}
_PROVIDERS = {"ImmutableTensor", "SharedDeviceTensor", "ParamProvider", "VolatileSharedDeviceTensor"}
_INPUTS = {"Host2DeviceCopy", "InputCallback"}


def page_data(title: str, source: str, described: Json, runs: int = 0) -> Json:
    """The data of a page. ``described`` is ``{written, program, origin}``; ``program`` may be None."""
    program = described.get("program")
    written, ids = _view(described["written"], {})
    views: Json = {"written": written, "run": None}
    memory, fused = None, []
    summary = _summary(written, source)
    if program is not None:
        exec_, times = program["graph_exec"], _times(program["profiler"])
        run, run_ids = _view(exec_, times)
        views["run"] = run
        memory = _memory(exec_, run, run_ids)
        origin = {int(k): v for k, v in (described.get("origin") or {}).items()}
        fused = _clusters(written, ids, run, run_ids, origin)
        summary["instructions"] = len(exec_["comp_seq"])
        summary["time"] = sum(times.values())
        summary["runs"] = program["profiler"].get("runs", 0) or runs if times else 0
    return {
        "title": title,
        "summary": summary,
        "views": views,
        "memory": memory,
        "fused": fused,
        "why": described.get("why", ""),
    }


def _times(profiler: Json) -> dict[str, float]:
    """Seconds of each op: the mean of all runs, or the last one where there is no mean."""
    if "average" in profiler:
        return dict(profiler["average"])
    out: dict[str, float] = {}
    for op, devices in profiler.get("device", {}).items():
        out[op] = max(t["end"] - t["start"] for t in devices.values())
    return out


def _path(scope: str, backward: bool, op: str) -> list[str]:
    """Modules from the outermost in; those known by a number alone with the name of what holds them."""
    if op.endswith("_update") and not scope:
        return ["optimizer"]
    parts: list[str] = []
    for part in scope.split(".") if scope else []:
        parts.append(f"{parts[-1]}.{part}" if part.isdigit() and parts else part)
    return ["backward", *parts] if backward and parts[:1] != ["backward"] else parts


def _view(exec_: Json, times: dict[str, float]) -> tuple[Json, dict[str, int]]:
    """One graph as the page draws it, and where each op of the JSON is in it."""
    values: list[Json] = []
    index: dict[str, int] = {}

    def value(name: str, dtype: str, shape: list[int], kind: str) -> int:
        size = -(-_BITS.get(dtype, 8) * math.prod(shape) // 8)
        values.append({"name": name, "dtype": dtype, "shape": shape, "kind": kind, "bytes": size})
        return len(values) - 1

    for key, var in exec_["var"].items():
        shape, dtype = var.get("shape"), var.get("dtype")
        if shape is None:  # a file of the original says it where memory was planned
            layout = (var.get("mem_plan") or {}).get("layout", {})
            known = var.get("static_infer_tags", {}).get("SHAPE", {}).get("inferred_result")
            shape, dtype = layout.get("shape", known or []), str(layout.get("dtype", "float32")).lower()
        index[key] = value(var["name"], str(dtype), shape, var.get("kind", "result"))
    nodes: list[Json] = []
    where: dict[str, int] = {}
    starts = _starts(exec_)

    def node(op: str, name: str, kind: str, ins: list[int], outs: list[int], **more: Any) -> int:
        nodes.append({"op": op, "name": name, "kind": kind, "path": [], "ins": ins, "outs": outs, "instr": -1, **more})
        return len(nodes) - 1

    copies: dict[str, list[Json]] = {}
    for op in exec_["operator"].values():
        if op["type"] == "copy" and "for" in (op.get("extra") or {}):
            copies.setdefault(op["extra"]["for"], []).append(op)
    for key in _order(exec_):
        op = exec_["operator"][key]
        extra = op.get("extra") or {}
        outs = [index[v] for v in op["output"] if v in index]
        if op["type"] in _PROVIDERS:
            for v in outs:
                values[v]["kind"] = "const" if op["type"] == "ImmutableTensor" else "var"
            continue
        if op["type"] in _INPUTS and not op["input"]:
            where[key] = node("input", op["name"], "input", [], outs)
            continue
        ins = [index[v] for v in op["input"] if v in index]
        loc = extra.get("location") or {}
        at = extra.get("instruction", -1)
        placed = {
            "scope": extra.get("scope", ""),
            "path": _path(extra.get("scope", ""), loc.get("note") == "backward", op["type"]),
            "back": loc.get("note") == "backward",
            "file": loc.get("file", ""),
            "line": loc.get("line", 0),
            "func": loc.get("function", ""),
        }
        if op["type"] == "copy" and "for" in extra:
            continue  # drawn before what it is for
        for copy in copies.get(key, []):
            source = [index[v] for v in copy["input"] if v in index]
            bytes_ = values[source[0]]["bytes"] if source else 0
            moved = value("other layout", *_type_of(values, source), "result")
            about = copy["extra"]
            where[copy["id"]] = node(
                "copy", "other layout", "copy", source, [moved], flops=0, bytes=2 * bytes_, est=about["estimate"],
                time=times.get(copy["id"]), kernel=about["kernel"], **placed,
            )  # fmt: skip
            nodes[-1]["instr"] = starts[about.get("program", 0)] + about["instruction"]
            ins = [moved if source and v == source[0] else v for v in ins]
        planned = "instruction" in extra
        kind = "view" if planned and at < 0 else "op"
        where[key] = node(
            op["type"], op["name"], kind, ins, outs, attrs=extra.get("attrs", {}), flops=extra.get("flops") or 0,
            bytes=0 if kind == "view" else extra.get("bytes", 0), est=extra.get("estimate") or 0,
            time=times.get(key), kernel=extra.get("kernel") or "", **placed,
        )  # fmt: skip
        if "steps" in extra:
            nodes[-1]["steps"] = [{"op": s["op"], "args": s["args"]} for s in extra["steps"]]
            nodes[-1]["results"] = extra["results"]
        if at >= 0:
            nodes[-1]["instr"] = starts[extra.get("program", 0)] + at
    names = exec_.get("output_names", [])
    for k, v in enumerate(exec_.get("outputs", [])):
        if v in index:
            node("output", names[k] if k < len(names) else values[index[v]]["name"], "output", [index[v]], [])
    return {"nodes": nodes, "values": values}, where


def _type_of(values: list[Json], which: list[int]) -> tuple[str, list[int]]:
    return (values[which[0]]["dtype"], values[which[0]]["shape"]) if which else ("float32", [])


def _order(exec_: Json) -> list[str]:
    """Ops so that each comes after what it reads: as they stand, but providers first."""
    ops = exec_["operator"]
    first = [k for k, op in ops.items() if not op["input"]]
    sequence = [k for k in exec_["comp_seq"] if k in ops and ops[k]["input"]]
    seen = {*first, *sequence}
    if all(int(a) < int(b) for a, b in zip(sequence, sequence[1:])) or not sequence:
        return first + [k for k in ops if k not in set(first)]
    # Views have no place in the sequence of instructions: the order of the graph has them, too.
    rest = [k for k in ops if k not in seen]
    return first + ([k for k in ops if k not in set(first)] if rest else sequence)


def _starts(exec_: Json) -> list[int]:
    """The number of the first instruction of each program."""
    starts = [0]
    for program in exec_.get("programs", []):
        starts.append(starts[-1] + program["instructions"])
    return starts


def _summary(view: Json, source: str) -> Json:
    constants = [v for v in view["values"] if v["kind"] in ("const", "var")]
    return {
        "source": source,
        "ops": sum(n["kind"] in ("op", "view") for n in view["nodes"]),
        "flops": sum(n.get("flops", 0) for n in view["nodes"]),
        "params": sum(math.prod(v["shape"]) for v in constants),
        "param_bytes": sum(v["bytes"] for v in constants),
        "state": any(n["op"].endswith("_update") for n in view["nodes"]),  # of an optimizer, counted with them
    }


def _memory(exec_: Json, run: Json, ids: dict[str, int]) -> Json | None:
    """Buffers of all arenas, one arena above the other."""
    chunks = [c for c in exec_["mem_chunk"].values() if c.get("kind") in ("arena", "workspace")]
    reports = exec_.get("programs", [])
    if not chunks or not reports:
        return None
    starts = _starts(exec_)
    sizes: dict[tuple[int, int], int] = {}
    for c in chunks:
        key = (c["program"], c["arena"])
        sizes[key] = max(sizes.get(key, 0), c["address"] + c["size"])
    base, at = {}, 0
    for key in sorted(sizes):
        base[key] = at
        at += sizes[key]
    holds: dict[str, list[str]] = {}
    for key, var in exec_["var"].items():
        if var.get("mem_plan"):
            holds.setdefault(var["mem_plan"]["mem_chunk_id"], []).append(key)
    position = {key: i for i, key in enumerate(exec_["var"])}
    maker = {v: i for i, n in enumerate(run["nodes"]) for v in n["outs"]}
    running = {n["instr"]: i for i, n in enumerate(run["nodes"]) if n["instr"] >= 0}
    buffers: list[Json] = []
    for c in chunks:
        inside = [position[k] for k in holds.get(c["id"], [])]
        first = starts[c["program"]] + max(c["first"], 0)
        node = next((maker[v] for v in inside if v in maker), running.get(first, -1))
        for v in inside:
            run["values"][v]["buffer"] = len(buffers)
        label = run["nodes"][node]["op"] if node >= 0 else "workspace"
        buffers.append(
            {
                "kind": c["kind"],
                "address": base[c["program"], c["arena"]] + c["address"],
                "bytes": c["size"],
                "first": first,
                "last": starts[c["program"]] + c["last"],
                "node": node,
                "label": f"workspace of {label}" if c["kind"] == "workspace" else label,
                "values": [_tensor(run["values"][v]) for v in inside],
            }
        )
    buffers = [b for b in buffers if b["bytes"]]
    for k, b in enumerate(buffers):  # numbers as they are now
        for v in run["nodes"][b["node"]]["outs"] if b["node"] >= 0 and b["kind"] == "arena" else []:
            if "buffer" in run["values"][v]:
                run["values"][v]["buffer"] = k
    total = {k: sum(r[k] for r in reports) for k in ("lower_bound", "sum_bytes", "const_bytes", "output_bytes")}
    return {
        "arena": at,
        "lower": total["lower_bound"],
        "sum": total["sum_bytes"],
        "consts": total["const_bytes"],
        "outputs": total["output_bytes"],
        "strategy": ", ".join(sorted({str(r["strategy"]) for r in reports if r["strategy"]})),
        "steps": [run["nodes"][running[t]]["op"] if t in running else "" for t in range(starts[-1])],
        "buffers": buffers,
    }


def _tensor(value: Json) -> Json:
    return {"name": value["name"], "type": f"{value['dtype']} {'×'.join(map(str, value['shape'])) or 'scalar'}"}


# ---- which ops became one


def _clusters(
    written: Json, ids: dict[str, int], run: Json, run_ids: dict[str, int], origin: dict[int, int]
) -> list[Json]:
    """Ops of the written graph by the op that computes them in the compiled one; times go with them."""
    owner: dict[int, int] = {}  # written -> run
    maker = {v: i for i, n in enumerate(written["nodes"]) for v in n["outs"]}
    by_run = {i: int(key) for key, i in run_ids.items()}
    for i, node in enumerate(run["nodes"]):
        start = ids.get(str(origin.get(by_run.get(i, -1), -1)))
        if start is None:
            continue
        if "steps" in node:
            for one in _match(node, start, written["nodes"], maker):
                owner.setdefault(one, i)
        owner.setdefault(start, i)
    _put_inside(written, run, owner, maker)
    members: dict[int, list[int]] = {}
    for i, r in owner.items():
        members.setdefault(r, []).append(i)
    for r, list_ in members.items():
        list_.sort()
        most = max(list_, key=lambda i: written["nodes"][i].get("flops") or 0)
        for i in list_:
            node = written["nodes"][i]
            node["kernel"], node["instr"] = run["nodes"][r].get("kernel", ""), run["nodes"][r]["instr"]
            if run["nodes"][r]["kind"] == "view":
                node["kind"] = "view"
        written["nodes"][most]["time"] = run["nodes"][r].get("time")
        written["nodes"][most]["est"] = run["nodes"][r].get("est")
    for i, node in enumerate(written["nodes"]):
        if node["kind"] == "op" and i not in owner and origin:
            node["gone"] = True
    out = []
    for r, node in enumerate(run["nodes"]):
        mine = members.get(r, [])
        steps = len(node["steps"]) if "steps" in node else len(mine)
        if steps < 2:
            continue
        made = sum(written["values"][v]["bytes"] for i in mine for v in written["nodes"][i]["outs"])
        kept = sum(run["values"][v]["bytes"] for v in node["outs"])
        out.append({"node": r, "members": mine, "steps": steps, "saved": max(0, made - kept)})
    return out


def _put_inside(written: Json, run: Json, owner: dict[int, int], maker: dict[int, int]) -> None:
    """What follows a fused product or norm, or goes before it alone, and is gone, was put into its kernel."""
    readers: dict[int, list[int]] = {}
    for i, node in enumerate(written["nodes"]):
        for v in node["ins"]:
            readers.setdefault(v, []).append(i)

    def takes(r: int, node: Json) -> bool:
        at = run["nodes"][r]
        return "fused" in at["op"] and "steps" not in at and bool(at.get("back")) == bool(node.get("back"))

    gone = [i for i, n in enumerate(written["nodes"]) if n["kind"] == "op" and i not in owner]
    gone = [i for i in gone if not _constant(written["nodes"][i], written["values"])]
    for i in gone:
        node = written["nodes"][i]
        before = [owner[maker[v]] for v in node["ins"] if maker.get(v) in owner]
        inside = [r for r in before if takes(r, node)]
        if inside:
            owner[i] = max(inside)
    for i in reversed(gone):
        node = written["nodes"][i]
        after = {owner.get(r, -1) for v in node["outs"] for r in readers.get(v, [])}
        if i not in owner and len(after) == 1 and -1 not in after and takes(next(iter(after)), node):
            owner[i] = next(iter(after))


def _constant(node: Json, values: list[Json]) -> bool:
    return all(values[v]["kind"] == "const" for v in node["ins"])


def _match(fused: Json, start: int, nodes: list[Json], maker: dict[int, int]) -> set[int]:
    """The ops that the steps of a fused op were, found backwards from the one it took its place from."""
    steps = fused["steps"]
    found: set[int] = set()
    last = [k for k, s in enumerate(steps) if s["op"] == nodes[start]["op"]]
    todo = [(last[-1], start)] if last else []
    while todo:
        k, i = todo.pop()
        if i in found or steps[k]["op"] != nodes[i]["op"]:
            continue
        found.add(i)
        for arg, v in zip(steps[k]["args"], nodes[i]["ins"]):
            if arg.startswith("t") and v in maker:
                todo.append((int(arg[1:]), maker[v]))
    return found
