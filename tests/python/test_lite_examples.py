"""examples/lite: every program is built and run, and gives what eager mode gives."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megenginelite.base import find_library

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples/lite"
DATA = np.random.default_rng(3).standard_normal((3, 3, 8, 8)).astype("float32")
PIXELS = np.random.default_rng(4).integers(0, 256, (1, 12, 20, 3), "uint8")
TWO = ("c", "cpp", "python")


def run(*command: object) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The models of make_models.py and files to feed them."""
    out = tmp_path_factory.mktemp("examples")
    run(sys.executable, EXAMPLES / "make_models.py", out)
    DATA.tofile(out / "in.bin")
    (out / "photo.ppm").write_bytes(b"P6\n20 12\n255\n" + PIXELS.tobytes())
    return out


@pytest.fixture(scope="module")
def expected() -> dict[str, np.ndarray]:
    sys.path.insert(0, str(EXAMPLES))
    import make_models

    mge.random.seed(7)
    net = make_models.Classifier()
    net.eval()
    logits = net(mge.Tensor(DATA))
    return {"logits": logits.numpy(), "prob": F.softmax(logits, axis=1).numpy()}


def line(name: str, values: np.ndarray) -> str:
    shape = ",".join(map(str, values.shape))
    return f"{name} [{shape}]: " + " ".join(f"{v:.9g}" for v in values.flat[:10])


def program(language: str, name: str, folder: pathlib.Path) -> list[object]:
    """The command that runs an example, which is compiled when it is asked for first."""
    if language == "python":
        names = {"async": "async_run", "profile": "profile_run"}
        return [sys.executable, EXAMPLES / "python" / f"{names.get(name, name)}.py"]
    out = folder / f"{name}_{language}"
    if not out.exists():
        library = find_library().parent
        compiler = ["cc", "-std=c11", "-D_GNU_SOURCE"] if language == "c" else ["c++", "-std=c++14"]
        flags = ["-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'include'}", "-pthread"]
        source = EXAMPLES / language / f"{name}.{language}"
        run(*compiler, *flags, source, f"-L{library}", "-llite", f"-Wl,-rpath,{library}", "-o", out)
    return [out]


def test_every_example_is_tested_and_listed() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    built = (EXAMPLES / "CMakeLists.txt").read_text()
    tested = pathlib.Path(__file__).read_text()
    for path in EXAMPLES.glob("*/*.*"):
        if path.stem != "common" and path.suffix in (".c", ".cpp", ".py"):
            assert f"`{path.parent.name}/{path.name}`" in listed
            assert path.suffix == ".py" or path.stem in built
            assert f'"{path.stem.removesuffix("_run")}"' in tested


@pytest.mark.parametrize("language", ["cpp", "python"])
@pytest.mark.parametrize("name", ["run_model", "zero_copy"])
def test_all_outputs(language: str, name: str, folder: pathlib.Path, expected: dict[str, np.ndarray]) -> None:
    out = run(*program(language, name, folder), folder / "classifier.mge", folder / "in.bin")
    assert out.splitlines() == [line(n, v) for n, v in expected.items()]


def test_exact_bytes_from_c(folder: pathlib.Path, expected: dict[str, np.ndarray]) -> None:
    out = folder / "prob.bin"
    run(*program("c", "run_model", folder), folder / "classifier.mge", "data", folder / "in.bin", "prob", out)
    assert out.read_bytes() == expected["prob"].tobytes()


@pytest.mark.parametrize("language", TWO)
def test_async(language: str, folder: pathlib.Path, expected: dict[str, np.ndarray]) -> None:
    out = run(*program(language, "async", folder), folder / "classifier.mge", folder / "in.bin").splitlines()
    assert out[0] == line("logits", expected["logits"])
    assert language == "c" or out[1] == "callbacks saw 1 inputs and 2 outputs"


@pytest.mark.parametrize("language", TWO)
def test_threads(language: str, folder: pathlib.Path, expected: dict[str, np.ndarray]) -> None:
    out = run(*program(language, "threads", folder), folder / "classifier.mge", folder / "in.bin").splitlines()
    rows = 2 if language == "c" else 3
    assert out == [line("logits", expected["logits"][i : i + 1]) for i in range(rows)]


@pytest.mark.parametrize("language", ["cpp", "python"])
def test_shapes(language: str, folder: pathlib.Path, expected: dict[str, np.ndarray]) -> None:
    out = run(*program(language, "shapes", folder), folder / "classifier.mge", folder / "in.bin").splitlines()
    assert out[:3] == [line("logits", expected["logits"][: n + 1]) for n in range(3)]
    assert out[3].startswith("as expected: ")


def test_images(folder: pathlib.Path) -> None:
    out = [run(*program(n, "image", folder), folder / "image.mge", folder / "photo.ppm") for n in ("cpp", "python")]
    assert out[0] == out[1] and out[0].startswith("prob [1,5]: ")
    got = run(ROOT / "build/dev/bin/load_and_run", folder / "image.mge", "--input", folder / "photo.ppm", "--iter=1",
              "--out_npy", folder)  # fmt: skip
    assert "avg_time=" in got and line("prob", np.load(folder / "prob.npy")) + "\n" == out[0]


@pytest.mark.parametrize("language", TWO)
def test_profile(language: str, folder: pathlib.Path) -> None:
    out = folder / f"told_{language}"
    assert "ms each" in run(*program(language, "profile", folder), folder / "classifier.mge", out)
    assert set(os.listdir(out)) == {"profile.json", "graph.json", "StaticMemoryInfo.json"}
    assert "profiler" in json.loads((out / "profile.json").read_text())


@pytest.mark.parametrize("language", TWO)
def test_encrypted(language: str, folder: pathlib.Path, expected: dict[str, np.ndarray]) -> None:
    key = bytes(range(31, -1, -1)).hex()
    words = ["encrypt", folder / "classifier.mge", folder / "classifier.aes", "--cryption=AES_default"]
    run(ROOT / "build/dev/bin/mge-lite", *words, f"--key={key}")
    out = run(*program(language, "encrypted", folder), folder / "classifier.aes", folder / "in.bin")
    assert out == line("logits", expected["logits"]) + "\n"


def test_packed(folder: pathlib.Path, expected: dict[str, np.ndarray]) -> None:
    out = run(*program("cpp", "packed", folder), folder / "classifier.mge", folder / "in.bin").splitlines()
    assert out[0].startswith("2 threads, ") and json.loads(out[0][11:])["labels"][3] == "fish"
    assert out[1] == line("logits", expected["logits"])


@pytest.mark.parametrize("language", TWO)
def test_mistakes(language: str, folder: pathlib.Path) -> None:
    name = "threads"
    for arguments, text in (([], "usage: "), ([folder / "in.bin", folder / "in.bin"], "in.bin")):
        done = subprocess.run([*program(language, name, folder), *arguments], capture_output=True, text=True)
        assert done.returncode == 1 and text in done.stderr


def test_a_file_of_the_original_in_four_ways() -> None:
    """The end of `make demo`."""
    out = run(sys.executable, EXAMPLES / "original.py")
    assert out.count(" equal, largest error ") == 4
