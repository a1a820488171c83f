"""The repository's own tests with another default device: tools/gpu/suite.py [seconds]

Files are processes of their own, several at a time. A test that fails because the device refuses an op by name is
counted apart. What is found is in $OUT/suite.json.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = pathlib.Path(os.environ.get("OUT", "."))
DEVICE = os.environ.get("MGE_TEST_DEVICE", "gpu0")
# Whatever computes by the default device. Not: files and tools, processes, devices by name, lite, the CPU's kernels.
FILES = """
amp any_size async autodiff bfloat16 builtin_ops builtin_ops_traced checkpoint complex conv ctc distributions dtr
error_lines failed_steps format functional functional_nn fused_training graph_nodes interpreter linalg module
module_attention module_layers module_recurrent module_stats module_vision negative number_programs numbers numpy_dtypes
numpy_operands optimizer order_and_index original_facts original_more partial_trace primitives program_errors programs
qat quantization quantization_ops quantized_dtypes quantized_ops random random_programs resume safetensors serialization
size_programs small_shapes symbolic tensor threads trace trace_attack trace_bad_behaviour trace_depends trace_errors
trace_keys trace_memory trace_mutations trace_programs trace_properties trace_sizes traced_module traced_module_graph
traced_module_training utils vision write
""".split()
REFUSED = ("no gpu kernel", "no fake kernel", "Copy it to cpu0 first", "copy the operands to")


def run(name: str, end: float) -> dict[str, Any]:
    path, begin = OUT / "suite" / f"{name}.jsonl", time.perf_counter()
    left = end - time.monotonic()
    if left < 5:
        return {"name": name, "said": "not begun", "rows": [], "seconds": 0.0}
    env = {**os.environ, "MGE_TEST_DEVICE": DEVICE, "MGE_TEST_REPORT": str(path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"]
    command += ["-p", "suite_plugin", f"tests/python/test_{name}.py"]
    path.unlink(missing_ok=True)
    said = ""
    try:
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=left)
        if done.returncode not in (0, 1):
            said = f"exit {done.returncode}: " + (done.stdout + done.stderr)[-800:]
    except subprocess.TimeoutExpired:
        said = "not finished in its time"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {"name": name, "said": said, "rows": rows, "seconds": time.perf_counter() - begin}


def main() -> None:
    end = time.monotonic() + float(sys.argv[1] if len(sys.argv) > 1 else 220)
    (OUT / "suite").mkdir(parents=True, exist_ok=True)
    files = [f for f in FILES if (ROOT / f"tests/python/test_{f}.py").exists()]
    files.sort(key=lambda f: -(ROOT / f"tests/python/test_{f}.py").stat().st_size)
    if only := os.environ.get("ONLY"):
        files = [f for f in files if f in only.split(",")]
    result: dict[str, Any] = {"device": DEVICE, "files": len(files), "passed": 0, "skipped": 0, "refused": {},
                              "failed": {}, "broken": {}}  # fmt: skip
    seconds: dict[str, float] = {}
    with ThreadPoolExecutor(int(os.environ.get("WORKERS", "14"))) as pool:
        for found in pool.map(lambda f: run(f, end), files):
            seconds[found["name"]] = round(found["seconds"], 1)
            if found["said"]:
                result["broken"][found["name"]] = found["said"]
            for row in found["rows"]:
                if row["outcome"] in ("passed", "skipped"):
                    result[row["outcome"]] += 1
                    continue
                kind = "refused" if any(r in row["text"] for r in REFUSED) else "failed"
                result[kind][row["id"]] = row["text"][-700:]
            (OUT / "suite.json").write_text(json.dumps({**result, "seconds": seconds}, indent=1))
    counts = {k: result[k] if isinstance(result[k], int) else len(result[k]) for k in
              ("files", "passed", "skipped", "refused", "failed", "broken")}  # fmt: skip
    print(json.dumps(counts))
    print("slowest:", sorted(seconds.items(), key=lambda kv: -kv[1])[:8])
    for name, said in result["broken"].items():
        print("BROKEN", name, said[-300:])
    for name, said in list(result["failed"].items()):
        print("FAILED", name, "|", said.strip().splitlines()[-1][:200] if said.strip() else "")


if __name__ == "__main__":
    main()
