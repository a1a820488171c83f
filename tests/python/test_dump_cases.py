"""``dump(input_data=…)``: test cases inside a model file."""

from __future__ import annotations

import importlib
import io
import logging
import struct
import subprocess
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import megengine.functional as F
from megengine import Tensor
from megengine.jit import trace

ROOT = Path(__file__).parent.parent.parent
TOOLS, FUZZ = ROOT / "build" / "dev" / "bin", ROOT / "tools" / "fuzz"
X = np.arange(6, dtype="float32").reshape(2, 3)


def run(*args: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([TOOLS / "load_and_run", *map(str, args)], capture_output=True, text=True, check=False)


def traced(fn: Any, *args: Any) -> Any:
    f = trace(fn, symbolic=True, capture_as_const=True)
    f(*(Tensor(a) for a in args))
    return f


@pytest.fixture
def files(tmp_path: Path) -> Path:
    np.save(tmp_path / "a.npy", X)
    np.save(tmp_path / "b.npy", np.full((2, 3), 3, "float32"))
    np.save(tmp_path / "long.npy", np.ones((4, 3), "float32"))
    np.save(tmp_path / "ints.npy", X.astype("int64"))
    np.save(tmp_path / "flat.npy", np.ones(3, "float32"))
    (tmp_path / "list.txt").write_text(f"{tmp_path}/a.npy\n\n#rand(0, 1)\n")
    return tmp_path


@pytest.mark.parametrize(
    ("specs", "cases"),
    [
        (["{}/a.npy"], 1),
        (["arg_0:{}/a.npy", "{}/long.npy"], 2),
        (["{}/ints.npy"], 1),
        (["#rand(0, 1)"], 1),
        (["#rand(-1,1,4,3)", "#rand(0,255,5,...)"], 2),
        (["@{}/list.txt", "#rand(0,1)"], 3),
    ],
)
def test_cases_of_one_input(files: Path, specs: list[str], cases: int) -> None:
    path = files / "m.mge"
    f = traced(lambda x: F.exp(x * 0.01) * 2, X)
    result = f.dump(path, input_data=[s.format(files) for s in specs])
    assert result.inputs == ["arg_0"] and result.outputs == ["MUL[1]"]
    done = run(path, "--verify")
    assert done.returncode == 0 and f"verified {cases} test cases: ok" in done.stdout, done.stdout + done.stderr


def test_cases_of_two_inputs(files: Path) -> None:
    path = files / "m.mge"
    f = traced(lambda a, b: {"sum": a + b, "product": a * b}, X, X)
    f.dump(path, input_data=[f"arg_0:{files}/a.npy;arg_1:{files}/b.npy", "#rand(0,1)"])
    done = run(path, "--verify")
    assert done.returncode == 0 and done.stdout.count(" ok\n") == 5, done.stdout


def test_a_case_finds_another_result(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a case expects is compared, up to maxerr."""
    path = files / "m.mge"
    traced(lambda x: x * 2, X).dump(path, input_data=[f"{files}/b.npy"], maxerr=0.25)
    data = path.read_bytes()
    six = struct.pack("<f", 6.0) * 6
    assert data.count(six) == 1
    monkeypatch.syspath_prepend(FUZZ)
    reseal = importlib.import_module("_common").reseal
    for value, code in ((7.0, 0), (9.0, 1)):
        path.write_bytes(reseal(data.replace(six, struct.pack("<f", value) * 6)))
        done = run(path, "--verify")
        assert done.returncode == code, done.stdout + done.stderr
    assert "maximum error 0.5, allowed 0.25: element 0 is 6, expected 9 DIFFERENT" in done.stdout


def test_no_assert(files: Path) -> None:
    path = files / "m.mge"
    traced(lambda x: x * 2, X).dump(path, input_data=[f"{files}/a.npy"], no_assert=True)
    shown = subprocess.run([TOOLS / "mge-lite", "show", path], capture_output=True, text=True, check=True).stdout
    assert "test case 'case0': 1 inputs, 0 outputs" in shown
    assert run(path).returncode == 0


def test_repeat_transform_and_silence(files: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = files / "m.mge"
    f = traced(lambda x: x * 2, X)
    with caplog.at_level(logging.INFO):
        f.dump(path, input_data=[f"{files}/a.npy"], repeat=3, input_transform="data + np.ones(3)", silent=True)
        assert not caplog.records
    assert run(path, "--verify").returncode == 0
    want = (np.repeat(X, 3, axis=0) + 1).astype("float32")
    assert want.tobytes() in path.read_bytes() and (want * 2).tobytes() in path.read_bytes()


def test_a_transform_that_fails(files: Path) -> None:
    f = traced(lambda x: x * 2, X)
    with pytest.raises(ValueError, match=r"input_transform 'x \* 2' failed: NameError.*expression over `data`"):
        f.dump(files / "m.mge", input_data=[f"{files}/a.npy"], input_transform="x * 2")
    assert not (files / "m.mge").exists()


def png(array: np.ndarray[Any, Any]) -> bytes:
    """An RGB image as a PNG file."""
    rows = b"".join(b"\0" + row.tobytes() for row in array)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", array.shape[1], array.shape[0], 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("shape", [(1, 3, 4, 5), (1, 4, 5, 3)], ids=["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_an_image(files: Path, shape: tuple[int, ...], dtype: str) -> None:
    pytest.importorskip("cv2")
    rgb = np.random.RandomState(0).randint(0, 255, (4, 5, 3)).astype("uint8")
    (files / "i.png").write_bytes(png(rgb))
    bgr = rgb[:, :, ::-1]
    path = files / "m.mge"
    f = traced(lambda x: x.astype("float32") * 2, np.zeros(shape, dtype))
    f.dump(path, input_data=[f"{files}/i.png"])
    want = (bgr.transpose(2, 0, 1) if shape[1] == 3 else bgr)[None].astype("float32") * 2
    assert want.tobytes() in path.read_bytes()
    assert run(path, "--verify").returncode == 0
    f = traced(lambda x: x.astype("float32") * 2, np.zeros((1, 3, 8, 8), dtype))
    with pytest.raises(ValueError, match=r"i.png is 4 x 5, and the input 8 x 8. resize_input=True"):
        f.dump(path, input_data=[f"{files}/i.png"])
    f.dump(path, input_data=[f"{files}/i.png"], resize_input=True)
    assert run(path, "--verify").returncode == 0


def test_what_cannot_be_a_case(files: Path) -> None:
    f, two = traced(lambda x: x * 2, X), traced(lambda a, b: a + b, X, X)

    def case(model: Any, *specs: str, **options: Any) -> None:
        model.dump(io.BytesIO(), input_data=[s.replace("{}", str(files)) for s in specs], **options)

    with pytest.raises(AssertionError, match="testcases can not be empty"):
        case(f)
    with pytest.raises(TypeError, match="input_data is a list of cases; got the text"):
        f.dump(io.BytesIO(), input_data="#rand(0,1)")
    with pytest.raises(AssertionError, match=r"required inputs: \['arg_0', 'arg_1'\]; data paths"):
        case(two, "arg_0:{}/a.npy")
    with pytest.raises(AssertionError, match=r"required inputs: \['arg_0', 'arg_1'\]; data paths"):
        case(two, "{}/a.npy")
    with pytest.raises(KeyError, match="zzz"):
        case(two, "arg_0:{}/a.npy;zzz:{}/b.npy")
    with pytest.raises(AssertionError, match="bad spec #rand"):
        case(two, "#rand")
    with pytest.raises(ValueError, match="should be numbers"):
        case(f, "#rand(a,b)")
    with pytest.raises(FileNotFoundError):
        case(f, "{}/none.npy")
    with pytest.raises(AssertionError, match=r"shapes mismatch: arg_0 has shape \(2, 3\), .* gives \(3,\)"):
        case(f, "{}/flat.npy")
    with pytest.raises(ValueError, match="is an image, and the input has shape"):
        case(f, "{}/list.txt")
    ints = traced(lambda x: x + 1, np.zeros((2, 3), "int32"))
    np.save(files / "half.npy", X + 0.5)
    with pytest.raises(ValueError, match="has values that arg_0, which is int32, does not hold"):
        case(ints, "{}/half.npy")
