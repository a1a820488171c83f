#!/usr/bin/env python3
"""Runs models on another machine, emulated, and compares their bits with those of this one.

tools/machines.py build/lite-aarch64                 # the files of tests/data/original
tools/machines.py build/lite-aarch64 --nets resnet18 mobilenet_v2    # and networks of the inference table

Both sides choose kernels for the same machine (MGE_MACHINE) and without oneDNN, so what docs/numerics.md says of two
instruction sets is what is seen: elementwise ops, reductions and products have the same bits, and so has whatever is
made of them. Each file must also give the outputs that MegEngine stored beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

Arrays = dict[str, np.ndarray]
ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests/data/original"
# Sums whose order follows the width of vectors (docs/numerics.md); all else has the same bits.
CLOSE = {
    "mlp": "softmax",
    "attention": "softmax",
    "attention_layer": "softmax",
    "image_softmax": "softmax",
    "reduce_zoo": "softmax",
    "norm_zoo": "normalisation",
}
MACHINE = "l1=32768,l2=1048576,l3=8388608,gflops=32"


def there(build: Path) -> list[str]:
    """load_and_run of that build, by the emulator that its toolchain file names."""
    toolchain = re.search(r"^CMAKE_TOOLCHAIN_FILE:\w+=(.+)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE)
    found = toolchain and re.search(r"CMAKE_CROSSCOMPILING_EMULATOR ([^)]+)\)", Path(toolchain[1]).read_text())
    programs = [p for p in (build / "bin").glob("load_and_run*") if p.suffix in ("", ".exe")]
    if not programs:
        raise SystemExit(f"{build}/bin: no load_and_run there. Build it first.")
    return [*(found[1].split(";") if found else []), str(programs[0])]


def here(build: Path, program: Path) -> list[str]:
    """load_and_run of this machine. Kernels of Windows stop at SSE4, so it gets a CPU that has no more."""
    return [*(["qemu-x86_64", "-cpu", "Westmere"] if build.name == "lite-windows" else []), str(program)]


def run(command: list[str], model: Path, inputs: Arrays) -> Arrays:
    """The outputs, by name."""
    with tempfile.TemporaryDirectory() as folder:
        out, given = Path(folder) / "out", []
        out.mkdir()
        for i, (name, value) in enumerate(inputs.items()):
            np.save(Path(folder) / f"{i}.npy", value)
            given.append(f"{name}:{folder}/{i}.npy")
        feed = ["--input", ";".join(given)] if given else []
        options = ["--iter", "1", "--warmup_iter", "0", "--out_npy", str(out)]
        environment = {**os.environ, "MGE_MACHINE": MACHINE, "MGB_USE_MEGDNN_DBG": "1", "WINEDEBUG": "-all"}
        whole = [*command, str(model), *feed, *options]
        said = Path(folder) / "said"  # no pipe: the services that Wine leaves behind would keep it open
        with said.open("wb") as to:
            ran = subprocess.run(whole, env=environment, stdout=to, stderr=to, timeout=600, check=False)
        if ran.returncode:
            raise SystemExit(f"{' '.join(whole)}: status {ran.returncode}\n{said.read_text(errors='replace')[-2500:]}")
        return {p.stem: np.load(p) for p in sorted(out.glob("*.npy"))}


def difference(a: np.ndarray, b: np.ndarray) -> float:
    x, y = a.astype("float64"), b.astype("float64")
    both = np.isnan(x) & np.isnan(y) | (x == y)
    return float(np.max(np.where(both, 0, np.abs(x - y) / np.maximum(np.maximum(np.abs(x), np.abs(y)), 1)), initial=0))


def golden(entry: dict[str, object], k: int) -> tuple[Arrays, Arrays]:
    """What case k feeds, and what MegEngine gave."""
    data = np.load((FOLDER / str(entry["file"])).with_suffix(".npz"))
    inputs = {key.split(".", 2)[2]: data[key] for key in data if key.startswith(f"case{k}.in.")}
    start = f"case{k}.{entry['reference']}."
    return inputs, {key[len(start) :]: data[key] for key in data if key.startswith(start)}


def dumped(net: str, folder: Path) -> tuple[Path, Arrays]:
    model = folder / f"{net}.mge"
    dump = [sys.executable, str(ROOT / "benchmarks/lite_mge.py"), "dump", net, str(model)]
    subprocess.run(dump, check=True, stdout=subprocess.DEVNULL)
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from lite_nets import image

    return model, {"data": image(net)}


@dataclass
class Case:
    """A model, what is fed, and what must come out of it, within `tol`; an output may have a quantisation step."""

    name: str
    model: Path
    inputs: Arrays
    wanted: Arrays = field(default_factory=dict)
    tol: float = 0
    steps: dict[str, float] = field(default_factory=dict)


def cases(nets: list[str], folder: Path) -> Iterator[Case]:
    for entry in json.loads((FOLDER / "index.json").read_text()):
        for k in range(entry["cases"]):
            inputs, wanted = golden(entry, k)
            known = entry["tol"] != "random"
            model, tol = FOLDER / entry["file"], entry["tol"] if known else 0
            yield Case(entry["file"], model, inputs, wanted if known else {}, tol, entry["step"] or {})
    for net in nets:
        yield Case(net, *dumped(net, folder))


def complaints(case: Case, ours: Arrays, theirs: Arrays) -> Iterator[str]:
    apart = {out: difference(a, theirs[out]) for out, a in ours.items() if a.tobytes() != theirs[out].tobytes()}
    if apart and (case.name.split(".")[0] not in CLOSE or max(apart.values()) > 1e-5):
        yield f"other bits: {', '.join(f'{out} by {by:.1e}' for out, by in apart.items())}"
    for out, want in case.wanted.items():
        got = theirs.get(out, next(iter(theirs.values())) if len(theirs) == 1 else None)
        far = got is None or got.shape != want.shape or difference(got, want) > case.tol + 1.01 * case.steps.get(out, 0)
        if far:
            yield f"{out} is not what MegEngine gave"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--beside", type=Path, default=ROOT / "build/dev/bin/load_and_run", help="that of this machine")
    parser.add_argument("--nets", nargs="*", default=[], help="networks of benchmarks/lite_nets.py")
    args = parser.parse_args()
    far, near = there(args.build), here(args.build, args.beside)
    wrong = total = 0
    close: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(args.nets, Path(folder)):
            theirs, ours = run(far, case.model, case.inputs), run(near, case.model, case.inputs)
            total += 1
            if any(a.tobytes() != theirs[out].tobytes() for out, a in ours.items()):
                close.append(case.name)
            for complaint in complaints(case, ours, theirs):
                wrong += 1
                print(f"{case.name}: {complaint}")
    print(f"{total - len(close)} of {total} runs have the bits of this machine; others: {', '.join(close) or 'none'}")
    sys.exit(1 if wrong or not total else 0)


if __name__ == "__main__":
    main()
