"""Files of MegEngine's own formats, both ways: networks of examples/ written in them, and every file of a folder read
here and written again, run by MegEngine 1.13's Lite and GraphInference and compared.

    python benchmarks/original_files.py --mge13-python PYTHON [--files FOLDER] [--only NAME] [--v1]

The folder holds NAME.mge beside NAME.npz with arrays caseK.in.INPUT and caseK.file.OUTPUT (tests/data/original has
some). Exits with 1 when a file does not run there or an output differs by more than the tolerance.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "examples"))

# Run by MegEngine's interpreter: MODEL INPUTS.npz OUTPUTS.npz ENGINE.
OTHER_SIDE = """
import sys
sys.tracebacklimit = 0
import numpy as np
model, given, out, engine = sys.argv[1:]
data = dict(np.load(given))
result = {}
if engine == "lite":
    import megenginelite as lite
    net = lite.LiteNetwork()
    net.load(model)
    for name in net.get_all_input_name():
        net.get_io_tensor(name, lite.LiteTensorPhase.LITE_INPUT).set_data_by_copy(np.ascontiguousarray(data[name]))
    net.forward()
    net.wait()
    for name in net.get_all_output_name():
        result[name] = net.get_io_tensor(name, lite.LiteTensorPhase.LITE_OUTPUT).to_numpy()
else:
    from megengine.utils.comp_graph_tools import GraphInference
    result = {k: np.array(v) for k, v in GraphInference(model).run(inp_dict=data).items()}
np.savez(out, **result)
"""


def networks() -> Iterator[tuple[str, Callable[..., object], dict[str, np.ndarray]]]:
    """Name, the function to trace, its inputs."""
    import digits_lenet
    import quantize_resnet
    import resnet18
    import transformer_lm

    import megengine as mge
    import megengine.functional as F
    import megengine.module as M
    import megengine.quantization as Q

    rng = np.random.default_rng(5)
    mge.random.seed(3)

    def images(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype("float32")

    def case(
        name: str, net: M.Module, **inputs: np.ndarray
    ) -> tuple[str, Callable[..., object], dict[str, np.ndarray]]:
        net.eval()
        return name, (lambda *x: net(*x)), inputs

    yield case("digits_lenet", digits_lenet.LeNet(), image=images(2, 1, 8, 8))
    yield case("resnet18", resnet18.ResNet18(), image=images(1, 3, 64, 64))
    yield case("quantize_resnet", quantize_resnet.SmallResNet(3), image=images(2, 3, 48, 48))
    yield case("transformer_lm", transformer_lm.TransformerLM(), words=rng.integers(0, 16, (2, 12), "int32"))

    small = quantize_resnet.SmallResNet(1)
    Q.quantize_qat(small, qconfig=Q.ema_fakequant_qconfig)
    small.train()
    for _ in range(2):
        small(mge.tensor(images(8, 1, 16, 16)))
    small.eval()
    yield case("quantize_resnet QAT", small, image=images(2, 1, 16, 16))
    Q.quantize(small)
    yield case("quantize_resnet int8", small, image=images(2, 1, 16, 16))

    lstm = M.LSTM(6, 8, num_layers=2)
    yield "lstm", (lambda x: lstm(x)[0]), {"x": images(5, 2, 6)}

    def ops(x: mge.Tensor, y: mge.Tensor) -> list[mge.Tensor]:
        s = F.sort(x)[0]
        t = F.topk(x, 2, descending=True)
        return [
            F.softmax(x, 1),
            F.where(x > y, x, y),
            F.concat([s, t[0]], 1),
            x[:, ::-1] @ y.transpose(1, 0),
            F.gelu(x) + F.sqrt(F.abs(y)) * F.sign(x),
            F.reshape(x, (-1, 2)).mean(0),
            F.argmax(x, 1),
            F.clip(x, -0.5, 0.5),
        ]

    yield "ops", ops, {"x": images(3, 4), "y": images(3, 4)}


def dumped(
    fn: Callable[..., object], inputs: dict[str, np.ndarray], version: int
) -> tuple[bytes, dict[str, np.ndarray]]:
    import io

    import megengine as mge
    from megengine.core import _core
    from megengine.jit import trace

    traced = trace(fn, symbolic=True, capture_as_const=True)
    out = traced(*[mge.tensor(v) for v in inputs.values()])
    values = out if isinstance(out, list | tuple) else [out]
    names = [f"out{i}" for i in range(len(values))]
    file = io.BytesIO()
    traced.dump(file, arg_names=list(inputs), output_names=names, optimize_for_inference=False)
    return _core.to_original(file.getvalue(), version), {n: np.asarray(v) for n, v in zip(names, values, strict=True)}


def difference(got: np.ndarray, want: np.ndarray) -> float:
    if got.size != want.size:
        return float("inf")
    a, b = got.astype("float64").ravel(), want.astype("float64").ravel()
    return float(np.max(np.abs(a - b) / np.maximum(np.maximum(np.abs(a), np.abs(b)), 1), initial=0))


def run_there(python: str, model: bytes, inputs: dict[str, np.ndarray], engine: str) -> dict[str, np.ndarray]:
    with tempfile.TemporaryDirectory() as d:
        folder = pathlib.Path(d)
        (folder / "model.mge").write_bytes(model)
        np.savez(folder / "in.npz", **inputs)
        command = [
            python,
            "-c",
            OTHER_SIDE,
            str(folder / "model.mge"),
            str(folder / "in.npz"),
            str(folder / "out.npz"),
            engine,
        ]
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}  # our packages have the names of its own
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
        if done.returncode:
            told = [x for x in done.stderr.splitlines() if "assertion" in x or "Error: " in x or "extra message" in x]
            raise RuntimeError(" ".join(told[:2]) or f"exit {done.returncode}")
        return dict(np.load(folder / "out.npz"))


def files(
    folder: pathlib.Path, version: int
) -> Iterator[tuple[str, bytes, dict[str, np.ndarray], dict[str, np.ndarray], float]]:
    """Files read here and written again: name, bytes, inputs, outputs, tolerance."""
    from megengine.core import _core

    index = (
        {e["file"]: e for e in json.loads((folder / "index.json").read_text())}
        if (folder / "index.json").exists()
        else {}
    )
    for path in sorted(folder.glob("*.mge")):
        e = index.get(path.name, {})
        if e.get("tol") == "random" or e.get("wrapper") or not path.with_suffix(".npz").exists():
            continue
        data = np.load(path.with_suffix(".npz"))
        kind = "file" if any(".file." in k for k in data) else "eager"
        tolerance = max(float(e.get("tol", 2e-5)), 2e-5, *(2 * s for s in (e.get("step") or {"": 0.0}).values()))
        try:
            model = _core.to_original(path.read_bytes(), version)
        except Exception as error:
            print(f"{path.name:32} cannot be written: {str(error).splitlines()[0]}", *str(error).splitlines()[1:4])
            yield path.name, b"", {}, {}, 0
            continue
        for case in range(int(e.get("cases", 1))):
            want = {k.split(".", 2)[2]: data[k] for k in data if k.startswith(f"case{case}.{kind}.")}
            given = {k.split(".", 2)[2]: data[k] for k in data if k.startswith(f"case{case}.in.")}
            yield path.name + (f" {case}" if case else ""), model, given, want, tolerance


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mge13-python", required=True, help="an interpreter that has MegEngine 1.13 and its Lite")
    parser.add_argument("--files", type=pathlib.Path, default=HERE.parent / "tests/data/original")
    parser.add_argument("--only", help="cases whose name holds this text")
    parser.add_argument("--v1", action="store_true", help='write the first format ("FBS"), not the second')
    options = parser.parse_args()
    version = 1 if options.v1 else 2
    cases: list[tuple[str, bytes, dict[str, np.ndarray], dict[str, np.ndarray], float]] = []
    for name, fn, inputs in networks():
        if not options.only or options.only in name:
            model, want = dumped(fn, inputs, version)
            # Where a sum of integers lies between two steps, either may be taken.
            cases.append((name, model, inputs, want, 0.05 if "int8" in name or "QAT" in name else 1e-4))
    failed = 0
    for name, model, inputs, want, tolerance in [*cases, *files(options.files, version)]:
        if options.only and options.only not in name:
            continue
        if not model:
            failed += 1
            continue
        line = f"{name:32}"
        for engine in ("lite", "graph"):
            try:
                got = run_there(options.mge13_python, model, inputs, engine)
                # Its loader makes one of equal operators, so that of equal outputs one name is left. A file without
                # names gives its outputs in order.
                named = {k: want[k] for k in got if k in want} or dict(zip(got, want.values(), strict=False))
                merged = len(want) - len(named)
                worst = max((difference(got[k], v) for k, v in named.items()), default=0.0)
                good = worst <= tolerance
                line += f"  {engine} {'ok' if good else 'DIFFERS'} {worst:.2g}"
                line += f" ({merged} equal outputs merged)" if merged else ""
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                # It has no bool, and its Python side no float16.
                good = "unsupport dtype in lite" in str(error) or (engine == "lite" and str(error) == "KeyError: 1")
                line += f"  {engine} {'skipped' if good else 'FAILED'}: {str(error)[:300]}"
            failed += not good
        print(line, flush=True)
    print(f"{failed} failures" if failed else "all agree")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
