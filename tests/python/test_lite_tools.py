"""load_and_run, mge_model and the C example as programs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import megenginelite as lite
from megenginelite.base import find_library

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/data/lite"
MODEL = DATA / "net_v1.mge"
BIN = ROOT / "build/dev/bin"
PIXELS = (np.arange(128, dtype="float32") % 17 / 16 - 0.5).reshape(2, 1, 8, 8)


def program(name: str, *args: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    result = subprocess.run([BIN / name, *map(str, args)], capture_output=True, text=True, timeout=120)
    assert result.returncode == code, result.stdout + result.stderr
    return result


def run(*args: object, code: int = 0) -> str:
    result = program("load_and_run", *args, code=code)
    return result.stdout if code == 0 else result.stderr


def expected(pixels: np.ndarray = PIXELS) -> np.ndarray:
    net = lite.LiteNetwork()
    net.load(MODEL)
    net.get_io_tensor("data").set_data_by_copy(pixels)
    net.forward()
    net.wait()
    return net.get_io_tensor("logits").to_numpy()


@pytest.fixture
def pixels(tmp_path: Path) -> Path:
    np.save(tmp_path / "data.npy", PIXELS)
    return tmp_path / "data.npy"


def test_timing_text(pixels: Path) -> None:
    out = run(MODEL, "--input", f"data:{pixels}", "--iter=3", "--warmup-iter", 2)
    assert re.search(r"^load model: \d+\.\d{3}ms$", out, re.M)
    assert "run testcase: 1" in out
    assert re.search(r"^=== prepare: \d+\.\d{3}ms; going to warmup$", out, re.M)
    assert len(re.findall(r"^warm up \d  \d+\.\d{3}ms$", out, re.M)) == 2
    assert len(re.findall(r"^iter \d/3: e2e=\d+\.\d{3} ms \(host=\d+\.\d{3} ms\)$", out, re.M)) == 3
    fields = " ".join(rf"{f}=\d+\.\d{{3}} ms" for f in ("time", "avg_time", "standard_deviation", "min", "max"))
    assert re.search(f"^=== finished test #0: {fields}$", out, re.M)
    assert re.search(r"^=== total time: \d+\.\d{3}ms$", out, re.M)


def test_exact_outputs(pixels: Path, tmp_path: Path) -> None:
    run(
        MODEL,
        f"--input=data:{pixels}",
        "--out_npy",
        tmp_path / "out",
        "--bin_out_dump",
        tmp_path / "bin",
        "--multithread=2",
    )
    want = expected()
    got = np.load(tmp_path / "out/logits.npy")
    assert got.dtype == want.dtype
    assert got.tobytes() == want.tobytes()
    raw = (tmp_path / "bin/run0-var0").read_bytes()
    head = np.frombuffer(raw[:40], "uint32")
    assert list(head[1:]) == [0, 7, 2, 5, 0, 0, 0, 0, 0]
    assert raw[40 + head[0] :] == want.tobytes()


def test_input_forms(tmp_path: Path) -> None:
    out = tmp_path / "out"
    json_file = tmp_path / "in.json"
    entry = {"shape": [2, 1, 8, 8], "type": "float32", "raw": PIXELS.ravel().tolist()}
    json_file.write_text(json.dumps({"data": entry}))
    run(MODEL, "--input", json_file, "--out_npy", out)
    assert np.load(out / "logits.npy").tobytes() == expected().tobytes()
    run(MODEL, "--input", "data:" + str(PIXELS[:1].tolist()), "--out_npy", out)
    assert np.load(out / "logits.npy").tobytes() == expected(PIXELS[:1]).tobytes()
    run(MODEL, "--input", "data:{5,1,8,8}", "--out_npy", out)
    ones = np.frombuffer(b"\x01" * 5 * 256, "float32").reshape(5, 1, 8, 8)
    assert np.load(out / "logits.npy").tobytes() == expected(ones).tobytes()
    (tmp_path / "x.pgm").write_bytes(b"P5 8 8 255\n" + bytes(64))
    assert "is float32[2,1,8,8] in the model; its tensor is uint8[1,8,8,1]" in run(
        MODEL, "--input", f"data:{tmp_path}/x.pgm", code=1
    )


def test_batch_size(tmp_path: Path, pixels: Path) -> None:
    # `bias` is [1,5] and would become [4,5]: both inputs are repeated, as the flag says.
    run(MODEL, "--input", f"data:{pixels}", "--batch_size", 4, "--out_npy", tmp_path / "out")
    got = np.load(tmp_path / "out/logits.npy")
    assert got.tobytes() == np.concatenate([expected(), expected()]).tobytes()


def test_verify_stored_cases(tmp_path: Path) -> None:
    out = run(MODEL, "--verify", "--iter=1")
    assert out.count(" ok\n") == 5
    assert "=== verified 2 test cases: ok" in out
    assert "run testcase: 2" in run(MODEL, "--iter=1")  # stored inputs are the default
    stripped = tmp_path / "small.mge"
    program("mge_model", "strip", MODEL, stripped)
    assert stripped.stat().st_size < MODEL.stat().st_size
    assert "the model has no test cases" in run(stripped, "--verify", code=1)
    text = (DATA / "net_v1.txt").read_text().replace("%logits = add %5", "%logits = sub %5")
    (tmp_path / "other.txt").write_text(text)
    program("mge_model", "make", tmp_path / "other.txt", tmp_path / "other.mge", 1)


def test_model_info_and_dumps(tmp_path: Path) -> None:
    out = run(MODEL, "--model-info", "--io_dump", tmp_path / "io.txt", "--iter=1")
    assert out.count("| INPUT  | data                     | {2,1,8,8}            | float32  |") == 2
    assert "{max_pool2d}" in (tmp_path / "io.txt").read_text()
    assert "owner_opr" in run(MODEL, "--io_dump_stdout", "--iter=1")
    assert "conv2d_fused" in run(MODEL, "--verbose", "--iter=1")
    assert "output prob float32[2,5]: [" in run(MODEL, "--print_outputs", "--iter=1")


def test_parallel_copies() -> None:
    out = run(MODEL, "--thread=3", "--iter=5", "--input", "data:{2,1,8,8}")
    assert len(re.findall(r"^\[thread \d\] === finished", out, re.M)) == 3


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--itre=3"], r"no flag --itre\. Did you mean --iter"),
        (["--iter=abc"], "takes a whole number; got 'abc'"),
        (["--iter=0"], "must be 1 or more"),
        (["--tensorrt"], "--tensorrt is not supported in this build yet"),
        (["--fast-run"], "not supported in this build yet"),
        (["--enable_nchw88", "--enable_nchw44"], "only one may be on; got enable_nchw44 and enable_nchw88"),
        (["--multithread=2", "--multithread_default=2"], "exclude each other"),
        (["--input", "[1]"], "names no input|does not fit|conv2d"),
        (["--input", "nope:[1]"], "no input 'nope'; its inputs are data, bias"),
        (["--input", "data:/nowhere.npy"], "cannot open"),
        (["--input", "data:{2,3,8,8}"], "conv2d: input has 3 channels.*\n  in conv2d.*\n.*net.py:21"),
        (["second.mge"], "one model file is needed; got 2"),
    ],
)
def test_bad_usage(args: list[str], text: str) -> None:
    assert re.search(text, run(MODEL, *args, code=1))


def test_bad_models(tmp_path: Path) -> None:
    for name, data, text in (
        ("empty.mge", b"", "the file is empty"),
        ("zip.mge", b"PK\x03\x04" + bytes(50), "zip archive"),
        ("v2.mge", bytes(8) + b"mgv2" + bytes(50), "damaged: the buffer does not verify"),
        ("cut.mge", MODEL.read_bytes()[:-1], "cut off"),
    ):
        (tmp_path / name).write_bytes(data)
        assert text in run(tmp_path / name, code=1)
    assert "one model file is needed" in run(code=1)


def test_help_and_version() -> None:
    assert "--input TEXT" in run("--help")
    assert run("--version").strip().startswith(lite.version)


def test_model_text_round_trip(tmp_path: Path) -> None:
    program("mge_model", "make", DATA / "net_v1.txt", tmp_path / "again.mge")
    shown = program("mge_model", "show", tmp_path / "again.mge").stdout
    assert "%logits = add %5, %bias : f32[2,5]" in shown
    assert "usage" in program("mge_model", "what", code=1).stderr


def test_c_example(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = find_library().parent
    exe = tmp_path / "run_model"
    build = [
        compiler,
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        ROOT / "examples/lite_c/run_model.c",
        f"-I{ROOT}/include",
    ]
    subprocess.run([*build, f"-L{folder}", "-llite", f"-Wl,-rpath,{folder}", "-o", exe], check=True)
    pixels = np.concatenate([PIXELS, PIXELS[:1]])
    pixels.tofile(tmp_path / "in.bin")
    args = [exe, MODEL, "data", tmp_path / "in.bin", "logits", tmp_path / "out.bin"]
    out = subprocess.run(args, check=True, capture_output=True, text=True).stdout
    assert out.startswith("logits [3,5]:")
    assert (tmp_path / "out.bin").read_bytes() == expected(pixels).tobytes()
    args[4] = "logit"
    failed = subprocess.run(args, capture_output=True, text=True)
    assert failed.returncode == 1
    assert "Outputs: logits, prob" in failed.stderr
