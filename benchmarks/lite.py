"""Inference of networks at batch 1 through Lite, beside ONNX Runtime, OpenVINO, ncnn and MNN.

    python benchmarks/lite.py --lite-python .venv-bench-lite/bin/python [--threads 1,2] [--rounds 3] [--only vgg16]
        [--peers onnxruntime,openvino] [--options enable_winograd4] [--seconds 1]

Every cell is a process of its own, peers take turns, and a cell is the least of all forwards of all rounds. Outputs are
compared before times are printed. Beside the time: the first result from the start of the process, and its peak of
memory. The row "empty" is one relu of one element: what a call costs.
"""

from __future__ import annotations

import argparse
import compileall
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

from peers import absolute, environment, show

HERE = pathlib.Path(__file__).parent
WANTED = 1.15  # times the best rival
NETS = ("resnet18", "resnet50", "mobilenet_v2", "shufflenet_v2", "vgg16", "transformer", "lstm", "empty")
RIVALS = ("onnxruntime", "openvino", "ncnn", "mnn")


def ask(name: str, python: str, script: str, *args: str, threads: int) -> str | None:
    """The last line that a process prints; None where it fails."""
    env = environment(name, threads)
    done = subprocess.run([python, str(HERE / script), *args], env=env, capture_output=True, text=True, cwd=HERE)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no output"]
        print(f"{name} {' '.join(args[:3])}: {last[0]}", file=sys.stderr)
        return None
    return done.stdout.splitlines()[-1] if done.stdout else ""


def far(a: list[float], b: list[float]) -> float:
    """The largest difference over the largest value."""
    return max(abs(x - y) for x, y in zip(a, b, strict=True)) / max(1e-6, max(map(abs, a)))


def best(rounds: list[dict[str, Any]], what: str) -> float:
    return min(float(r[what]) for r in rounds)


def compile_package() -> None:
    """As installers do: a package that was staged for this run would be compiled at each start of a process."""
    found = importlib.util.find_spec("megenginelite")
    if found and found.origin:
        compileall.compile_dir(pathlib.Path(found.origin).parent, quiet=1)


def table(
    lite_python: str,
    rounds: int,
    threads: list[int],
    only: str = "",
    peers: str = "",
    options: str = "",
    seconds: float = 1.0,
) -> None:
    nets = only.split(",") if only else list(NETS)
    rivals = peers.split(",") if peers else list(RIVALS)
    chosen = [o for o in options.split(",") if o]
    compile_package()
    with tempfile.TemporaryDirectory() as folder:
        for net in nets:
            if (
                ask("mge", sys.executable, "lite_mge.py", "dump", net, f"{folder}/{net}.mge", *chosen, threads=2)
                is None
            ):
                sys.exit(f"lite: {net} could not be dumped.")
            if lite_python:
                ask("rivals", lite_python, "lite_onnx.py", "make", net, folder, threads=2)
        for count in threads:
            head(
                f"Lite, batch 1, float32, {count} thread{'s' * (count > 1)}, {rounds} rounds, "
                f"{' '.join(chosen) or 'default options'}, load {os.getloadavg()[0]:.2f}, {WANTED}x wanted"
            )
            for net in nets:
                seen: Seen = {}
                for _ in range(rounds):
                    measure(net, folder, lite_python, rivals, count, seconds, seen)
                row(net, seen)


Seen = dict[str, list[dict[str, Any]]]  # by peer what each of its runs said


def measure(
    net: str, folder: str, lite_python: str, rivals: list[str], threads: int, seconds: float, seen: Seen
) -> None:
    """One more run of every peer."""
    tail = (str(threads), str(seconds))
    lines = {
        "ours": ask("mge", sys.executable, "lite_mge.py", "run", net, f"{folder}/{net}.mge", *tail, threads=threads)
    }
    for rival in rivals if lite_python else []:
        lines[rival] = ask(rival, lite_python, "lite_onnx.py", "run", rival, net, folder, *tail, threads=threads)
    for who, line in lines.items():
        if line:
            seen.setdefault(who, []).append(json.loads(line))


def head(title: str) -> None:
    print(f"\n{title}\n")
    print(
        f"| {'network':13} | {'ours':>9} | {'best rival':>22} | faster by |        | first result | peak MB |"
        f" {'others: time, first result, peak MB'} |"
    )
    print(f"| {'-' * 13} | {'-' * 9} | {'-' * 22} | --------- | ------ | ------------ | ------- | --- |")


def row(net: str, seen: Seen, wanted: float = WANTED) -> None:
    seen = dict(seen)
    ours = seen.pop("ours")
    for who, results in list(seen.items()):
        error = far(ours[0]["values"], results[0]["values"])
        if error > 1e-3:
            print(f"{who} {net}: outputs differ by {error:.1e}; left out", file=sys.stderr)
            del seen[who]
    mine = best(ours, "least")
    best_text, ratio = "-", float("nan")
    others = sorted(seen, key=lambda who: best(seen[who], "least"))
    if others:
        least = best(seen[others[0]], "least")
        best_text, ratio = f"{others[0]} {show(least)}", least / mine
    rest = "; ".join(
        f"{who} {show(best(seen[who], 'least'))}, {show(best(seen[who], 'first'))}, {best(seen[who], 'peak'):.0f}"
        for who in others
    )
    verdict = "" if not others or ratio >= wanted else "MISSED"
    print(
        f"| {net:13} | {show(mine):>9} | {best_text:>22} | {ratio:8.2f}x | {verdict:6} | "
        f"{show(best(ours, 'first')):>12} | {best(ours, 'peak'):7.0f} | {rest} |",
        flush=True,
    )


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--lite-python", type=absolute, default="", help="interpreter that has the rivals")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--threads", default="1,2")
    ap.add_argument("--only", default="", help=", ".join(NETS))
    ap.add_argument("--peers", default="", help=", ".join(RIVALS))
    ap.add_argument("--options", default="", help="of dump, with commas between them")
    ap.add_argument("--seconds", type=float, default=1.0, help="that each process measures")
    a = ap.parse_args()
    print(time.strftime("%Y-%m-%d"))
    table(a.lite_python, a.rounds, [int(t) for t in a.threads.split(",")], a.only, a.peers, a.options, a.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
