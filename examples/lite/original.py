"""A model file that MegEngine 1.13 wrote, run in four ways, each compared with the output that was recorded with it.

    python examples/lite/original.py [MODEL.mge]

The model is a LeNet; beside it lies MODEL.npz with its input and what the original computed. The C and C++ programs are
run_model of this folder, compiled here.
"""

from __future__ import annotations

import argparse
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile

import numpy as np
import numpy.typing as npt

import megenginelite as lite

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MODEL = ROOT / "tests/data/original/lenet.v2.mge"
TOLERANCE = 2e-5  # of the file: kernels add up in another order than the original's
Array = npt.NDArray[np.float32]


def run(*command: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"failed: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def tool(name: str) -> str:
    for folder in (pathlib.Path(sysconfig.get_path("scripts")), ROOT / "build/dev/bin", ROOT / "build/release/bin"):
        if (folder / name).is_file():
            return str(folder / name)
    return shutil.which(name) or sys.exit(f"{name} was not found; run `make build` first")


def compiled(source: pathlib.Path, out: pathlib.Path) -> pathlib.Path:
    """A program built with the headers and the library of Lite."""
    library = next((pathlib.Path(lite.__file__).parent / "libs").glob("liblite*.so"))
    compiler = ["cc", "-std=c11"] if source.suffix == ".c" else ["c++", "-std=c++14"]
    run(*compiler, "-O1", source, f"-I{ROOT / 'include'}", library, f"-Wl,-rpath,{library.parent}", "-o", out)
    return out


def by_load_and_run(model: pathlib.Path, x: Array, folder: pathlib.Path) -> Array:
    np.save(folder / "x.npy", x)
    run(tool("load_and_run"), model, "--input", f"data:{folder / 'x.npy'}", "--iter=1", "--out_npy", folder)
    return np.load(folder / "logits.npy")


def by_c(model: pathlib.Path, x: Array, folder: pathlib.Path) -> Array:
    x.tofile(folder / "x.bin")
    program = compiled(HERE / "c/run_model.c", folder / "run_model_c")
    run(program, model, "data", folder / "x.bin", "logits", folder / "logits.bin")
    return np.fromfile(folder / "logits.bin", np.float32).reshape(len(x), -1)


def by_cpp(model: pathlib.Path, x: Array, folder: pathlib.Path) -> Array:
    """One sample at a time: the program prints the ten values of its output, nine digits each, which is all of them."""
    program = compiled(HERE / "cpp/run_model.cpp", folder / "run_model_cpp")
    rows = []
    for sample in x:
        sample.tofile(folder / "x.bin")
        rows.append([np.float32(v) for v in run(program, model, folder / "x.bin").split(":")[1].split()])
    return np.array(rows, np.float32)


def by_python(model: pathlib.Path, x: Array, folder: pathlib.Path) -> Array:
    net = lite.LiteNetwork()
    net.load(model)
    net.get_io_tensor("data").set_data_by_copy(x)
    net.forward()
    net.wait()
    return net.get_io_tensor("logits").to_numpy()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=pathlib.Path, default=MODEL, help="with a .npz of what it computes")
    model = parser.parse_args().model
    if not model.with_suffix(".npz").exists():
        parser.error(f"there is no {model.with_suffix('.npz')} beside the model")
    recorded = np.load(model.with_suffix(".npz"))
    x, want = recorded["case0.in.data"], recorded["case0.file.logits"]
    print(f"{model.name}, written and run by MegEngine 1.13, beside what it computed:")
    same = True
    with tempfile.TemporaryDirectory() as folder:
        ways = {"load_and_run": by_load_and_run, "C": by_c, "C++": by_cpp, "Python": by_python}
        for name, way in ways.items():
            got = way(model, x, pathlib.Path(folder))
            error = float(np.max(np.abs(got - want) / np.maximum(np.abs(want), 1)))
            same &= got.shape == want.shape and error <= TOLERANCE
            print(f"  {name:<14} {'equal' if error <= TOLERANCE else 'DIFFERENT'}, largest error {error:.1e}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
