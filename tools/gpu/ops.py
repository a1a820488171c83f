"""The conformance grid on a GPU against the CPU: each case passed, refused by name, or failed; and its gradients.

A child process runs the cases and writes a line for each. When a case takes the device or the process with it, another
one goes on behind it.
"""

from __future__ import annotations

import collections
import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

import numpy as np

OUT = pathlib.Path(os.environ.get("OUT", "."))
DEVICE = os.environ.get("GPU_CHECK_DEVICE", "gpu0")
BITS = ("elementwise",)  # traits of ops that give the CPU's bits
LIMIT = float(os.environ.get("GPU_CHECK_OPS_S", "165"))


def seeded(case: Any) -> list[np.ndarray]:
    return case.inputs(np.random.RandomState(len(case.id) * 7 + 1))


def narrow(arrays: list[np.ndarray]) -> list[np.ndarray]:
    return [a.astype(np.float32) if a.dtype == np.float64 else a for a in arrays]


def to_bits(case: Any) -> bool:
    from megengine.core import _core

    return (
        case.name.startswith("rng_")
        or case.name == "typecvt"
        or any(t in BITS for t in _core.op_info(case.name)["traits"])
    )


def compare(got: list[np.ndarray], want: list[np.ndarray], tol: float, exact: bool) -> None:
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype, f"{g.dtype}{g.shape}, not {w.dtype}{w.shape}"
        if exact or w.dtype.kind not in "fc":
            if g.tobytes() == w.tobytes():
                continue
            both_nan = np.isnan(g) & np.isnan(w) if w.dtype.kind in "fc" else False
            if not np.all((g == w) | both_nan):
                raise AssertionError(f"bits differ, by at most {np.abs(g.astype('f8') - w.astype('f8')).max():.3g}")
        else:
            np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), rtol=tol, atol=tol)


def forward(case: Any, arrays: list[np.ndarray], device: str) -> list[np.ndarray]:
    import megengine as mge
    from megengine.core import _core

    mge.set_default_device(device)
    out = getattr(_core.ops, case.name)(*(mge.Tensor(a, device=device) for a in arrays), **case.attrs)
    return [o.numpy().copy() for o in (out if isinstance(out, tuple) else (out,))]


def gradients(case: Any, arrays: list[np.ndarray], device: str) -> list[np.ndarray]:
    import megengine as mge
    from megengine.core import _core

    mge.set_default_device(device)
    wide = seeded(case)
    wrt = [i for i, a in enumerate(wide) if a.dtype == np.float64 and (case.wrt is None or i in case.wrt)]
    tensors = [mge.Tensor(a, device=device) for a in arrays]
    grads: dict[int, Any] = {}
    s = _core.GradSession()
    s.start()
    try:
        for i in wrt:
            s.attach(tensors[i], lambda g, i=i: grads.__setitem__(i, g))
        out = getattr(_core.ops, case.name)(*tensors, **case.attrs)
        outs = out if isinstance(out, tuple) else (out,)
        rng = np.random.RandomState(3)
        total = None
        for i, o in enumerate(outs):
            if (case.outs is None or i in case.outs) and o.dtype.kind == "f":
                w = mge.Tensor(rng.uniform(0.5, 1.5, o.shape).astype(o.dtype), device=o.device)
                term = _core.ops.reduce(o * w, mode="sum")
                total = term if total is None else total + term
        s.backward([total], [mge.Tensor(np.ones((), np.float32), device=total.device)])
    finally:
        s.stop()
    return [grads[i].numpy().copy() for i in sorted(grads)]


def run_case(case: Any, kind: str) -> dict[str, Any]:
    arrays = narrow(seeded(case))
    fn = forward if kind == "forward" else gradients
    want = fn(case, arrays, "cpu0")
    begin = time.perf_counter()
    try:
        got = fn(case, arrays, DEVICE)
        tol = max(case.tol, 1e-5) * (5 if kind == "forward" else 20)
        compare(got, want, tol, to_bits(case) and kind == "forward")
        outcome, said = "passed", ""
    except NotImplementedError as e:
        outcome, said = "refused", str(e).split("\n")[0]
    except Exception as e:
        text = f"{type(e).__name__}: {e}"
        refused = "no gpu kernel" in text or "NotImplemented" in text
        outcome, said = ("refused" if refused else "failed"), text[:400]
    return {"id": case.id, "op": case.name, "kind": kind, "outcome": outcome, "said": said,
            "s": round(time.perf_counter() - begin, 4)}  # fmt: skip


def cases() -> list[tuple[Any, str]]:
    from op_cases import CASES

    mine = [c for c in CASES if not c.name.startswith("dist_") and not (c.name == "copy_to" and c.attrs.get("borrow"))]
    return [(c, "forward") for c in mine] + [(c, "gradient") for c in mine if c.grad]


def child(first: int, path: str) -> None:
    with open(path, "a") as log:
        for i, (case, kind) in enumerate(cases()):
            if i < first:
                continue
            log.write(json.dumps({"begin": i, "id": case.id, "kind": kind}) + "\n")
            log.flush()
            row = run_case(case, kind)
            log.write(json.dumps({"end": i, **row}) + "\n")
            log.flush()
            if "is lost" in row["said"] or "illegal" in row["said"].lower():
                os._exit(3)


def main() -> None:
    path = OUT / "ops.jsonl"
    path.unlink(missing_ok=True)
    begin, first, all_cases = time.monotonic(), 0, cases()
    crashes = 0
    while first < len(all_cases) and crashes < 25:
        left = LIMIT - (time.monotonic() - begin)
        if left < 5:
            break
        try:
            rc = subprocess.run([sys.executable, __file__, str(first), str(path)], timeout=left).returncode
        except subprocess.TimeoutExpired:
            break
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        if rc == 0:
            break
        crashes += 1
        last = lines[-1] if lines else {"begin": first}
        if "begin" in last:  # it took the process with it
            case, kind = all_cases[last["begin"]]
            row = {"end": last["begin"], "id": case.id, "op": case.name, "kind": kind, "outcome": "failed",
                   "said": f"the process ended with {rc}", "s": 0}  # fmt: skip
            with path.open("a") as log:
                log.write(json.dumps(row) + "\n")
            first = last["begin"] + 1
        else:
            first = last["end"] + 1
    rows = [r for r in map(json.loads, path.read_text().splitlines()) if "end" in r]
    summary: dict[str, Any] = {"cases": len(all_cases), "run": len(rows), "crashes": crashes}
    for kind in ("forward", "gradient"):
        summary[kind] = dict(collections.Counter(r["outcome"] for r in rows if r["kind"] == kind))
    by_op: dict[str, dict[str, str]] = {"refused": {}, "failed": {}}
    for r in rows:
        if r["outcome"] in by_op:
            by_op[r["outcome"]].setdefault(f"{r['op']} ({r['kind']})", f"{r['id']}: {r['said']}")
    summary.update(by_op)
    (OUT / "ops.json").write_text(json.dumps(summary, indent=1))
    for op, said in by_op["refused"].items():
        print(f"refused {op}: {said[:200]}")
    for op, said in by_op["failed"].items():
        print(f"FAILED {op}: {said[:300]}")
    print(json.dumps({k: v for k, v in summary.items() if k not in by_op}))
    path.unlink()


if __name__ == "__main__":
    if len(sys.argv) == 3:
        child(int(sys.argv[1]), sys.argv[2])
    else:
        main()
