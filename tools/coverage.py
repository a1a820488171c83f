#!/usr/bin/env python3
"""docs/coverage.md from the op registry: kernels, dtypes that run, gradient. `tools/coverage.py --check` compares."""

from __future__ import annotations

import argparse
import collections
import difflib
import pathlib
import sys
import warnings

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "python"))

import op_cases  # noqa: E402
import op_gradients  # noqa: E402
import primitives  # noqa: E402

from megengine.core import _core  # noqa: E402
from megengine.core.tensor.dtype import bfloat16  # noqa: E402

CASES, ELSEWHERE = op_cases.CASES, op_cases.ELSEWHERE
DTYPES = {
    "f32": "float32", "f64": "float64", "f16": "float16", "bf16": bfloat16, "i8": "int8", "u8": "uint8", "i16": "int16",
    "u16": "uint16", "i32": "int32", "bool": "bool",
}  # fmt: skip
HEAD = """# Ops

Made by `tools/coverage.py` from the op registry; not edited by hand.
*kind*: what a device must bring. `elementwise`: one scalar body serves all devices; `primitive`: needs a kernel, with
the reason; `composite`: has a decomposition into the others, so its kernels are for speed.
*kernels*: in the order they are tried, `ref` last.
*dtypes*: of the floating or first inputs, for which a test row of the op runs.
*gradient*: `yes`: the op has a vjp rule; `by parts`: it is written out in ops that have one; – with a reason where it
takes floats. Gradients are checked in float64 against finite differences, in first and second order unless said.

"""


def runs(case, dtype) -> bool:
    tensors = []
    for a in case.inputs(np.random.RandomState(0)):
        t = _core.exact_tensor(a)
        if a.dtype == np.float64 or (a.dtype == np.int32 and not any_float(case)):
            t = t if dtype == "float64" and a.dtype == np.float64 else t.astype("float32").astype(dtype)
            if dtype == "float64" and a.dtype != np.float64:
                return False
        tensors.append(t)
    try:
        getattr(_core.ops, case.name)(*tensors, **case.attrs)
        _core.sync()
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return False
    return True


def any_float(case) -> bool:
    return any(a.dtype == np.float64 for a in case.inputs(np.random.RandomState(0)))


def gradient(name: str, info) -> str:
    """What the table says of an op's gradient."""
    if name in op_gradients.NO_GRADIENT:
        return f"– {op_gradients.NO_GRADIENT[name]}"
    if not info["has_vjp"] and (not info["has_decompose"] or "no_grad" in info["traits"]):
        return "–"
    notes = [f"not by {i}: {why}" for (op, i), why in op_gradients.CONSTANT_INPUTS.items() if op == name]
    if name in op_gradients.NO_SECOND_ORDER:
        notes.append(f"first order; {op_gradients.NO_SECOND_ORDER[name]}")
    return "; ".join(["yes" if info["has_vjp"] else "by parts", *notes])


def kind(name: str, info) -> str:
    """What the table says a device must bring for an op."""
    if info["has_decompose"]:
        return "composite"
    if "elementwise" in info["traits"]:
        return "elementwise"
    return f"primitive: {primitives.PRIMITIVES[name]}"


def table() -> str:
    rows, kinds = [], collections.Counter()
    for name in sorted(_core.op_names()):
        info = _core.op_info(name)
        cases = [c for c in CASES if c.name == name]
        ok = [short for short, d in DTYPES.items() if any(runs(c, d) for c in cases)]
        grad = gradient(name, info)
        where = "" if cases else f" ({ELSEWHERE[name].split(':')[0]})"
        inputs = ", ".join(info["inputs"])
        what = kind(name, info)
        kinds[what.split(":")[0]] += 1
        kernels, dtypes = ", ".join(info["kernels"]), " ".join(ok) or "–"
        rows.append(f"| `{name}`{where} | {what} | {inputs} | {kernels} | {dtypes} | {grad} |")
    head = "| op | kind | inputs | kernels | dtypes | gradient |\n| --- | --- | --- | --- | --- | --- |\n"
    counts = ", ".join(f"{n} {k}" for k, n in sorted(kinds.items()))
    return HEAD + f"{len(rows)} ops: {counts}.\n\n" + head + "\n".join(rows) + "\n"


def main() -> int:
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--check", action="store_true", help="fail when docs/coverage.md is not what this would write")
    check = args.parse_args().check
    warnings.simplefilter("ignore")
    path, text = ROOT / "docs" / "coverage.md", table()
    if check:
        differs = list(difflib.unified_diff(path.read_text().splitlines(), text.splitlines(), lineterm="", n=0))
        if differs:
            print("docs/coverage.md is out of date; tools/coverage.py writes it anew.", *differs[2:], sep="\n")
        return 1 if differs else 0
    path.write_text(text)
    print(f"{path.relative_to(ROOT)}: {text.count(chr(10)) - HEAD.count(chr(10)) - 4} ops")
    return 0


if __name__ == "__main__":
    sys.exit(main())
