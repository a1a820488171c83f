"""The training examples on a GPU and on the CPU: the losses of both, step by step."""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

OUT = pathlib.Path(os.environ.get("OUT", "."))
# example: arguments, and how far a loss may be from the CPU's, relative to the first: in the first two steps, in all.
# Batch normalisation over 16 images makes a last bit grow tenfold with every step, on one device as between two: the
# report has the difference between two sets of CPU kernels beside it.
EXAMPLES: dict[str, tuple[list[str], float, float]] = {
    "digits_lenet": (["--steps", "50", "--train-only"], 1e-5, 1e-4),
    "resnet18": (["--steps", "20"], 1e-3, 1e-1),
    "transformer_lm": (["--steps", "50"], 1e-5, 1e-4),
}
DEVICES = {"gpu": ("gpu0", "0"), "cpu": ("cpu0", "0"), "other kernels": ("cpu0", "1")}  # MGB_USE_MEGDNN_DBG


def child(name: str, device: str) -> None:
    import training

    losses: list[float] = []
    original = training.run

    def run(options: Any, *args: Any, **parts: Any) -> list[float]:
        losses.extend(original(options, *args, **parts))
        return losses

    training.run = run  # type: ignore[assignment]
    began = time.perf_counter()
    said = ""
    try:
        importlib.import_module(name).main([*EXAMPLES[name][0], "--device", device, "--out", str(OUT / "pictures")])
    except (Exception, SystemExit) as e:
        import traceback

        traceback.print_exc(limit=6)
        said = f"{type(e).__name__}: {e}"
    row = {"name": name, "device": device, "losses": losses, "said": said, "s": time.perf_counter() - began}
    print("ROW " + json.dumps(row), flush=True)


def run_one(name: str, device: str, kernels: str) -> dict[str, Any]:
    env = {**os.environ, "MGB_USE_MEGDNN_DBG": kernels}
    try:
        done = subprocess.run(
            [sys.executable, __file__, name, device], capture_output=True, text=True, timeout=40, env=env
        )
    except subprocess.TimeoutExpired:
        return {"losses": [], "said": "more than 40 s", "s": 40}
    rows = [line for line in done.stdout.splitlines() if line.startswith("ROW ")]
    text = (done.stdout + done.stderr)[-2500:]
    row: dict[str, Any] = json.loads(rows[0][4:]) if rows else {"losses": [], "said": text, "s": 0}
    if row["said"]:
        print(text)
    return row


def apart(a: list[float], b: list[float]) -> list[float]:
    return [abs(x - y) / max(abs(b[0]), 1e-9) for x, y in zip(a, b, strict=False)]


def main() -> None:
    results: dict[str, Any] = {}
    for name, (_, first, most) in EXAMPLES.items():
        runs = {kind: run_one(name, *how) for kind, how in DEVICES.items()}
        losses = {kind: r["losses"] for kind, r in runs.items()}
        differences = apart(losses["gpu"], losses["cpu"])
        early, worst = max(differences[:2], default=float("nan")), max(differences, default=float("nan"))
        results[name] = {
            "steps": len(differences), "early": early, "worst": worst, "allowed": [first, most],
            "ok": bool(differences) and early <= first and worst <= most,
            "other kernels": max(apart(losses["other kernels"], losses["cpu"]), default=float("nan")),
            "gpu": losses["gpu"][:3] + losses["gpu"][-1:], "cpu": losses["cpu"][:3] + losses["cpu"][-1:],
            "s": {kind: round(r["s"], 2) for kind, r in runs.items()},
            "said": runs["gpu"]["said"] or runs["cpu"]["said"],
        }  # fmt: skip
        print(name, json.dumps(results[name]))
        (OUT / "examples.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        child(*sys.argv[1:])
    else:
        main()
