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
# example: arguments, tolerance of the loss relative to the first one
EXAMPLES = {
    "digits_lenet": (["--steps", "50", "--train-only"], 2e-3),
    "resnet18": (["--steps", "20"], 2e-2),
    "transformer_lm": (["--steps", "50"], 2e-3),
}


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


def main() -> None:
    results: dict[str, Any] = {}
    for name, (_, tol) in EXAMPLES.items():
        runs = {}
        for device in ("gpu0", "cpu0"):
            try:
                done = subprocess.run(
                    [sys.executable, __file__, name, device], capture_output=True, text=True, timeout=60
                )
                text = done.stdout + done.stderr
                rows = [line for line in done.stdout.splitlines() if line.startswith("ROW ")]
                runs[device] = json.loads(rows[0][4:]) if rows else {"losses": [], "said": text[-1500:], "s": 0}
                if not rows or runs[device]["said"]:
                    print(text[-2500:])
            except subprocess.TimeoutExpired:
                runs[device] = {"losses": [], "said": "more than 60 s", "s": 60}
        gpu, cpu = runs["gpu0"], runs["cpu0"]
        pairs = list(zip(gpu["losses"], cpu["losses"], strict=False))
        worst = max((abs(a - b) / max(abs(cpu["losses"][0]), 1e-9) for a, b in pairs), default=float("nan"))
        results[name] = {
            "steps": len(pairs), "worst": worst, "tolerance": tol, "ok": bool(pairs) and worst <= tol,
            "gpu": gpu["losses"][:3] + gpu["losses"][-1:], "cpu": cpu["losses"][:3] + cpu["losses"][-1:],
            "gpu s": round(gpu["s"], 2), "cpu s": round(cpu["s"], 2), "said": gpu["said"] or cpu["said"],
        }  # fmt: skip
        print(name, json.dumps(results[name]))
        (OUT / "examples.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        child(*sys.argv[1:])
    else:
        main()
