"""docs/gpu.md from what the stages of tools/gpu_check.sh have left: tools/gpu/report.py FOLDER > docs/gpu.md"""

from __future__ import annotations

import collections
import json
import pathlib
import sys
from typing import Any

HEAD = pathlib.Path(__file__).with_name("gpu_head.md")


def read(folder: pathlib.Path, name: str) -> dict[str, Any]:
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def number(v: float) -> str:
    return f"{v:,.0f}" if abs(v) >= 100 else f"{v:.3g}"


def smoke(r: dict[str, Any]) -> list[str]:
    out = ["## First checks", "", "| check | outcome |", "| --- | --- |"]
    for name, row in r.items():
        said = str(row["said"]).split("\n")[0].replace("|", "/")[:160]
        out.append(f"| {name.replace('_', ' ')} | {'fine' if row['ok'] else 'not fine'}: {said} |")
    return [*out, ""]


def ops(r: dict[str, Any]) -> list[str]:
    out = ["## Conformance", "", f"{r['run']} of {r['cases']} cases were run against the CPU.", ""]
    out += ["| | passed | refused by name | failed |", "| --- | --- | --- | --- |"]
    for kind in ("forward", "gradient"):
        c = r.get(kind, {})
        out.append(f"| {kind} | {c.get('passed', 0)} | {c.get('refused', 0)} | {c.get('failed', 0)} |")
    for title in ("refused", "failed"):
        if r.get(title):
            out += ["", f"{title.capitalize()}, by op:", ""]
            out += [f"- {op}: {said.splitlines()[0][:200]}" for op, said in sorted(r[title].items())]
    return [*out, ""]


def examples(r: dict[str, Any]) -> list[str]:
    out = [
        "## Examples",
        "",
        "Differences of a loss are relative to the first loss; batch normalisation over few images",
    ]
    out += ["makes them grow, between two sets of CPU kernels as between two devices.", ""]
    out.append(
        "| example | steps | first and last loss, gpu0 | cpu0 | in the first two steps | in all | two CPU kernels |"
    )
    out.append("| --- | --- | --- | --- | --- | --- | --- |")
    for name, e in r.items():
        if not e["steps"]:
            out.append(f"| {name} | 0 | {e['said'].splitlines()[-1][:120] if e['said'] else ''} | | | | |")
            continue
        gpu, cpu = (f"{e[k][0]:.5f}, {e[k][-1]:.5f}" for k in ("gpu", "cpu"))
        first, most = e["allowed"]
        out.append(
            f"| {name} | {e['steps']} | {gpu} | {cpu} | {e['early']:.1e} (allowed {first:.0e}) "
            f"| {e['worst']:.1e} (allowed {most:.0e}) | {e['other kernels']:.1e} |"
        )
    return [*out, ""]


def suite(r: dict[str, Any]) -> list[str]:
    out = ["## The tests, by this device", ""]
    out += [f"`tools/gpu/suite.py`: {r['files']} files of `tests/python`, `{r['device']}` the default device.", ""]
    kinds = ("passed", "skipped", "refused", "host", "failed", "lost", "died")
    count = {k: r[k] if isinstance(r[k], int) else len(r[k]) for k in kinds}
    out += ["| passed | skipped | refused by name | about the host | failed | lost the device | killed the process |"]
    out += ["| --- | --- | --- | --- | --- | --- | --- |", "| " + " | ".join(str(count[k]) for k in kinds) + " |", ""]
    out += [f"- about the host: {n}: {why}" for why, n in collections.Counter(r["host"].values()).items()]
    for title in ("failed", "broken"):
        for name, said in r[title].items():
            out.append(f"- {title}: {name}: {(said.strip().splitlines() or [''])[-1][:160]}")
    return [*out, ""]


def times(r: dict[str, Any]) -> list[str]:
    out = ["## Times", "", "| what | figure |", "| --- | --- |"]
    for name, row in r.items():
        if "top" in row:
            continue
        why = row.get("said", "").strip().split("\n")[-1][:160]
        said = ", ".join(f"{number(v)} {k}" for k, v in row.items() if k != "said") or f"not run: {why}"
        out.append(f"| {name} | {said} |")
    for name, row in r.items():
        if "top" in row:
            sums = f"{row['total ms']:.1f} ms in {row['launches']} launches, timed one by one"
            out += ["", f"**{name.capitalize()}** ({sums}):", ""]
            out += [f"- {line}" for line in row["top"]]
    return [*out, ""]


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    out = [HEAD.read_text() if HEAD.exists() else "# CUDA\n"]
    for name, make in (("smoke", smoke), ("ops", ops), ("examples", examples), ("suite", suite), ("times", times)):
        if found := read(folder, name):
            out += make(found)
    table = folder / "scaling.log"
    if table.exists():
        out += ["## CPU, by threads", "", "```", table.read_text().strip()[-4000:], "```", ""]
    print("\n".join(out).rstrip())


if __name__ == "__main__":
    main()
