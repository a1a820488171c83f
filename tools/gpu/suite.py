"""The repository's own tests with another default device: tools/gpu/suite.py [seconds]

Files are processes of their own, several at a time; one that loses its device, or dies, has a successor that goes on
behind the test it happened in. A test that fails because the device refuses an op by name is counted apart, and so are
those that are about the host (HOST below, with the reason). What is found is in $OUT/suite.json.
"""

from __future__ import annotations

import fnmatch
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
amp any_size autodiff bfloat16 builtin_ops builtin_ops_traced checkpoint complex conv ctc distributions dtr
error_lines failed_steps format functional functional_nn fused_training graph_nodes interpreter linalg module
module_attention module_layers module_recurrent module_stats module_vision negative number_programs numbers numpy_dtypes
numpy_operands optimizer order_and_index original_facts original_more partial_trace primitives program_errors programs
qat quantization quantization_ops quantized_dtypes quantized_ops random random_programs resume safetensors serialization
size_programs small_shapes symbolic tensor threads trace trace_attack trace_bad_behaviour trace_depends trace_errors
trace_keys trace_memory trace_mutations trace_programs trace_properties trace_sizes traced_module traced_module_graph
traced_module_training utils vision write
""".split()
REFUSED = ("no gpu kernel", "no fake kernel", "Copy it to cpu0 first", "copy the operands to")
LOST = ("is lost to this process", "is lost. Tensors on other")
# What cannot hold by a device, and why. Patterns of file::test.
HOST: dict[str, tuple[str, ...]] = {
    "expects the name of the default device of the host in a text or a file": (
        "bfloat16::test_repr_shows_numbers", "numpy_dtypes::test_low_bit_tensors_only_hold_values*",
        "tensor::test_properties", "tensor::test_format", "tensor::test_repr", "tensor::test_to",
        "tensor::test_pickles", "builtin_ops::test_random_handles",
        "random::test_parameters_say_where_the_global_generator_draws"),
    "names cpu0 for some of its tensors and leaves the others to the default": (
        "graph_nodes::test_a_graph_is_made_and_run", "primitives::test_forward_matches_numpy?copy_to-stream*",
        "program_errors::test_an_argument_that_failed_does_not_take_state_along*"),
    "expects IndexError from the call; by a device an index is found out when the result is read, as AsyncError in the "
    "words of the part": (
        "ctc::test_ctc_loss_gradient_and_checks", "order_and_index::test_index_errors", "vision::test_regions",
        "error_lines::test_a_failure_names_op_inputs_and_line?a_region-*",
        "error_lines::test_a_failure_names_op_inputs_and_line?a_transcript-*",
        "error_lines::test_a_gradient_that_fails_has_the_line_of_its_op",
        "primitives::test_a_bad_label_is_an_error_in_parts_too",
        "primitives::test_bad_lengths_and_weights_are_errors_in_parts_too",
        "primitives::test_an_error_of_a_part_names_the_op_that_was_called",
        "program_errors::test_an_index_out_of_range_in_a_traced_call*", "random::test_multinomial_refuses_bad_weights",
        "trace::test_kernel_time_error_names_op_and_line"),
    "expects that a step which fails in a kernel has assigned nothing; by a device the failure is known when the "
    "assignments are queued behind it, and what they assign tells of it": (
        "failed_steps::test_a_bad_value_leaves_state_alone*",),
    "sets a limit for, or counts, the memory of the host": (
        "checkpoint::test_memory_goes_down", "checkpoint::test_the_plan_of_a_traced_step_needs_less_memory*",
        "error_lines::test_memory_is_wanted_by_ops_that_were_written",
        "failed_steps::test_no_memory_leaves_state_alone*",
        "program_errors::test_out_of_memory_names_the_op_at_the_peak*",
        "trace_memory::test_recording_lets_go_of_what_eager_lets_go_of",
        "trace_memory::test_a_traced_step_needs_no_more_than_an_eager_one*", "trace_memory::test_the_page_about_memory",
        "trace_memory::test_cheap_ops_are_computed_again_rather_than_failing*",
        *(f"negative::test_bent_calls_are_clear_errors?{op}?"
          for op in ("broadcast_to", "conv3d", "eye", "full", "resize_bwd"))),
    "expects the fused kernels of the CPU by name": (
        "fused_training::*", "trace::test_graph_text_shows_locations_and_fusion_keeps_them",
        "trace::test_a_region_with_results_and_a_reduction_has_the_bits_of_eager"),
    "compares with the CPU to the bit: the oracle, lite or a fake device": (
        "primitives::test_the_switch_hides_the_kernels_of_composites", "random_programs::*",
        "programs::test_a_traced_module_is_flattened_and_shipped",
        "programs::test_preprocessing_and_sizes_go_into_the_file",
        "size_programs::test_a_file_of_many_sizes_is_eager_or_says_why_not",
        "trace::test_evaluation_graph_runs_in_lite_with_the_same_bits"),
    "is about the host: its threads, its clock, a forked process, a program that is not in the package": (
        "interpreter::test_long_work_lets_other_threads_run*", "amp::test_workers_of_a_loader_start_clean",
        "error_lines::test_a_failure_names_op_inputs_and_line?*-load_and_run?",
        *(f"negative::test_bent_calls_are_clear_errors?{op}?" for op in ("erfinv", "erfcinv"))),
}  # fmt: skip


def host_only(test: str) -> str:
    name = test.removeprefix("tests/python/test_").replace(".py::", "::")
    return next((why for why, names in HOST.items() for n in names if fnmatch.fnmatchcase(name, n)), "")


def rows_of(path: pathlib.Path) -> list[dict[str, str]]:
    """The last word of each test."""
    if not path.exists():
        return []
    return list({row["id"]: row for row in map(json.loads, path.read_text().splitlines())}.values())


def run(name: str, end: float) -> dict[str, Any]:
    path, begin = OUT / "suite" / f"{name}.jsonl", time.perf_counter()
    env = {**os.environ, "MGE_TEST_DEVICE": DEVICE, "MGE_TEST_REPORT": str(path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"]
    command += ["-p", "suite_plugin", f"tests/python/test_{name}.py"]
    path.unlink(missing_ok=True)
    said, processes = "not begun", 0
    while (left := end - time.monotonic()) > 5:
        done, said = len(rows_of(path)), ""
        processes += 1
        try:
            ended = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=left)
        except subprocess.TimeoutExpired:
            said = "not finished in its time"
            break
        rows = rows_of(path)
        if ended.returncode < 0 and rows and rows[-1]["outcome"] == "begun":
            with path.open("a") as out:
                text = f"the process died of signal {-ended.returncode}\n" + ended.stderr[-1500:]
                out.write(json.dumps({"id": rows[-1]["id"], "outcome": "failed", "text": text}) + "\n")
        elif not any(text in row["text"] for row in rows[done:] for text in LOST):
            if ended.returncode not in (0, 1, 5):
                said = f"exit {ended.returncode}: " + (ended.stdout + ended.stderr)[-800:]
            break
        if len(rows) == done:
            said = "no test comes to an end"
            break
    return {"name": name, "said": said, "rows": rows_of(path), "seconds": time.perf_counter() - begin,
            "processes": processes}  # fmt: skip


def main() -> None:
    end = time.monotonic() + float(sys.argv[1] if len(sys.argv) > 1 else 220)
    (OUT / "suite").mkdir(parents=True, exist_ok=True)
    files = [f for f in FILES if (ROOT / f"tests/python/test_{f}.py").exists()]
    files.sort(key=lambda f: -(ROOT / f"tests/python/test_{f}.py").stat().st_size)
    if only := os.environ.get("ONLY"):
        files = [f for f in files if f in only.split(",")]
    result: dict[str, Any] = {"device": DEVICE, "files": len(files), "passed": 0, "skipped": 0, "refused": {},
                              "host": {}, "failed": {}, "broken": {}, "lost": 0, "died": 0}  # fmt: skip
    seconds: dict[str, float] = {}
    with ThreadPoolExecutor(int(os.environ.get("WORKERS", "14"))) as pool:
        for found in pool.map(lambda f: run(f, end), files):
            seconds[found["name"]] = round(found["seconds"], 1)
            if found["said"]:
                result["broken"][found["name"]] = found["said"]
            for row in found["rows"]:
                if row["outcome"] == "begun":
                    row["text"] = "it did not end"
                result["lost"] += any(text in row["text"] for text in LOST)
                result["died"] += "the process died of signal" in row["text"]
                if row["outcome"] in ("passed", "skipped"):
                    result[row["outcome"]] += 1
                elif any(text in row["text"] for text in REFUSED):
                    result["refused"][row["id"]] = row["text"][-700:]
                elif why := host_only(row["id"]):
                    result["host"][row["id"]] = why
                else:
                    result["failed"][row["id"]] = row["text"][-700:]
            (OUT / "suite.json").write_text(json.dumps({**result, "seconds": seconds}, indent=1))
    counts = {k: result[k] if isinstance(result[k], int) else len(result[k]) for k in
              ("files", "passed", "skipped", "refused", "host", "failed", "lost", "died", "broken")}  # fmt: skip
    print(json.dumps(counts))
    print("slowest:", sorted(seconds.items(), key=lambda kv: -kv[1])[:8])
    for name, said in result["broken"].items():
        print("BROKEN", name, said[-300:])
    for name, said in list(result["failed"].items()):
        print("FAILED", name, "|", said.strip().splitlines()[-1][:200] if said.strip() else "")


if __name__ == "__main__":
    main()
