"""safetensors files: round trips, the layout byte by byte, and files that lie."""

from __future__ import annotations

import io
import json
import os

import numpy as np
import pytest

import megengine as mge
import megengine.module as M
from megengine import Parameter, Tensor, safetensors
from megengine.core.tensor.dtype import bfloat16, convert_from_bfloat16, convert_to_bfloat16, is_bfloat16, qint8
from megengine.safetensors import SafetensorsError

DTYPES = "float64 float32 float16 int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool".split()


def raw(header, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


# ---- round trips


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 3), (2, 3, 4)])
def test_arrays_come_back(dtype, shape):
    a = (np.random.default_rng(0).uniform(0, 3, shape)).astype(dtype)
    got = safetensors.load(safetensors.save({"a": a}))["a"]
    assert got.dtype == a.dtype and got.shape == a.shape
    np.testing.assert_array_equal(got, a)
    got[...] = 0  # a copy of its own, not a view of the file


def test_odd_arrays():
    a = np.arange(12, dtype="float32").reshape(3, 4)
    got = safetensors.load(safetensors.save({"t": a.T, "step": a[:, ::2], "big": a.astype(">f4"), "one": a[1, 1]}))
    np.testing.assert_array_equal(got["t"], a.T)
    np.testing.assert_array_equal(got["step"], a[:, ::2])
    np.testing.assert_array_equal(got["big"], a)
    assert got["one"].shape == () and got["one"] == 5 and got["big"].dtype.isnative


def test_tensors_and_devices():
    data = safetensors.save({"p": Parameter([1.0, 2.0]), "t": Tensor(np.arange(3)), "h": np.ones(2, "float64")})
    arrays = safetensors.load(data)
    assert isinstance(arrays["p"], np.ndarray) and arrays["t"].dtype == np.int32
    tensors = safetensors.load(data, device="cpu0")
    assert all(type(t) is Tensor and t.device == "cpu0" for t in tensors.values())
    assert tensors["h"].dtype == np.float32 and tensors["p"].tolist() == [1, 2]


def test_bfloat16():
    a = convert_to_bfloat16(np.array([1.0, -2.5, 3e38], "float32"))
    data = safetensors.save({"a": a})
    assert b'"BF16"' in data
    got = safetensors.load(data)["a"]
    assert is_bfloat16(got.dtype) and got.dtype == bfloat16
    np.testing.assert_array_equal(convert_from_bfloat16(got), convert_from_bfloat16(a))
    assert safetensors.load(safetensors.save({"a": a[1:2].reshape(())}))["a"].shape == ()


def test_a_module_and_its_optimizer_go_on(tmp_path):
    path = tmp_path / "net.safetensors"
    net = M.Sequential(M.Conv2d(3, 4, 3), M.BatchNorm2d(4))
    safetensors.save_file(net.state_dict(), path, {"epoch": "7", "Größe": "ü"})
    other = M.Sequential(M.Conv2d(3, 4, 3), M.BatchNorm2d(4))
    other.load_state_dict(safetensors.load_file(str(path)))
    for k, v in net.state_dict().items():
        np.testing.assert_array_equal(v, other.state_dict()[k])
    assert safetensors.load_metadata(path) == {"epoch": "7", "Größe": "ü"}
    assert os.listdir(tmp_path) == ["net.safetensors"]


def test_files_and_positions():
    f = io.BytesIO()
    f.write(b"prefix")
    safetensors.save_file({"a": np.arange(3)}, f)
    f.seek(6)
    assert safetensors.load_file(f)["a"].tolist() == [0, 1, 2]


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.safetensors"
    safetensors.save_file({"a": np.arange(3)}, path)
    with pytest.raises(TypeError):
        safetensors.save_file({"a": object()}, path)
    assert safetensors.load_file(path)["a"].tolist() == [0, 1, 2] and len(os.listdir(tmp_path)) == 1


# ---- the layout


def test_layout():
    data = safetensors.save({"b": np.arange(2, dtype="int8"), "a": np.ones(1, "float32")}, {"k": "v"})
    length = int.from_bytes(data[:8], "little")
    assert length % 8 == 0
    assert json.loads(data[8 : 8 + length]) == {
        "__metadata__": {"k": "v"},
        "a": entry("F32", [1], [0, 4]),  # wide elements first: all data is aligned
        "b": entry("I8", [2], [4, 6]),
    }
    assert data[8 + length :] == np.float32(1).tobytes() + b"\x00\x01"
    assert safetensors.save({}) == raw({}, length=8)[:8] + b"{}      " and safetensors.load(safetensors.save({})) == {}


def test_a_file_written_by_hand():
    data = np.array([1.5, -2.0], "<f4").tobytes() + np.array([[7]], "<i8").tobytes()
    got = safetensors.load(raw({"x": entry(), "y": entry("I64", [1, 1], [8, 16])}, data))
    assert got["x"].tolist() == [1.5, -2.0] and got["y"].tolist() == [[7]]


# ---- files that lie


GOOD = {"x": entry()}
EIGHT = bytes(8)


@pytest.mark.parametrize(
    "data, text",
    [
        (b"", "too few"),
        (b"\x01\x00", "too few"),
        (raw(GOOD, EIGHT, length=2**63), "does not fit"),
        (raw(GOOD, EIGHT, length=200), "does not fit"),
        (b"\x80\x04\x95" + bytes(30), "does not fit"),  # a pickle
        (raw(b"[1,2]"), "does not start with"),
        (raw(b'{"x":'), "not JSON"),
        (raw(b'{"\xff":1}'), "not JSON"),
        (raw(b'{"x":' + b"[" * 100000 + b"]" * 100000 + b"}"), "not JSON|needs exactly"),
        (raw(b'{"x":' + json.dumps(entry()).encode() + b',"x":' + json.dumps(entry()).encode() + b"}", EIGHT), "twice"),
        (raw({"x": 3}), "needs exactly"),
        (raw({"x": {**entry(), "more": 1}}, EIGHT), "needs exactly"),
        (raw({"x": entry(dtype="F8_E4M3", shape=[8])}, EIGHT), "dtype 'F8_E4M3'; known are"),
        (raw({"x": entry(dtype=["F32"])}, EIGHT), "has dtype"),
        (raw({"x": entry(shape=[-2])}, EIGHT), "not a list of sizes"),
        (raw({"x": entry(shape=[2.0])}, EIGHT), "not a list of sizes"),
        (raw({"x": entry(shape=[True, 2])}, EIGHT), "not a list of sizes"),
        (raw({"x": entry(offsets=[0])}, EIGHT), "not two positions"),
        (raw({"x": entry(offsets=[-8, 0])}, EIGHT), "not two positions"),
        (raw({"x": entry(offsets=[8, 0])}, EIGHT), "takes 8 bytes.*span -8"),
        (raw({"x": entry(offsets=[0, 4])}, EIGHT), "takes 8 bytes as F32 .2.*span 4"),
        (raw({"x": entry(shape=[2**62, 2**62])}, EIGHT), "takes"),
        (raw({"x": entry(), "y": entry(offsets=[4, 12])}, bytes(12)), "overlaps"),
        (raw({"x": entry(), "y": entry(offsets=[12, 20])}, bytes(20)), "4 unused bytes"),
        (raw({"x": entry(offsets=[8, 16])}, bytes(16)), "8 unused bytes"),
        (raw(GOOD, bytes(7)), "cut short"),
        (raw(GOOD, bytes(9)), "not accounted for"),
        (raw({"__metadata__": {"a": 1}}), "strings to strings"),
        (raw({"__metadata__": []}), "strings to strings"),
        (raw({"x": entry("BOOL", [1], [0, 1])}, b"\x02"), "other than 0 and 1"),
    ],
)
def test_bad_files(data, text):
    with pytest.raises(SafetensorsError, match=text):
        safetensors.load(data)


def test_every_cut_and_every_flipped_header_byte_is_an_error_or_a_valid_file():
    data = safetensors.save({"a": np.arange(6, dtype="float32").reshape(2, 3), "b": np.ones(2, "int8")})
    for cut in range(len(data)):
        with pytest.raises(SafetensorsError):
            safetensors.load(data[:cut])
    length = int.from_bytes(data[:8], "little")
    for i in range(8 + length):
        changed = bytearray(data)
        changed[i] ^= 0x11
        try:
            safetensors.load(bytes(changed))  # another name or dtype of the same size is a valid file
        except SafetensorsError:
            pass


# ---- what cannot be written


@pytest.mark.parametrize(
    "bad, text",
    [
        ({"a": [1, 2]}, "must be a tensor or an array; got list"),
        ({"a": {"b": np.ones(2)}}, "flat names"),
        ({3: np.ones(2)}, "names must be strings"),
        ({"__metadata__": np.ones(2)}, "names must be strings"),
        ({"a": np.array(["x"])}, "cannot hold"),
        ({"a": np.ones(2, "complex64")}, "cannot hold"),
        ({"a": np.array([object()])}, "cannot hold"),
        ({"a": np.ones(2, "int8").astype(qint8(0.1))}, "quantised"),
    ],
    ids=str,
)
def test_what_cannot_be_written(bad, text):
    with pytest.raises(TypeError, match=text):
        safetensors.save(bad)
    with pytest.raises(TypeError, match="metadata must map strings to strings"):
        safetensors.save({}, {"a": 1})


def test_agrees_with_the_stored_checkpoint():
    from pathlib import Path

    state = mge.load(str(Path(__file__).parent.parent / "data" / "checkpoints" / "module_state.pkl"))
    got = safetensors.load(safetensors.save(state))
    assert set(got) == set(state)
    for k, v in state.items():
        np.testing.assert_array_equal(got[k], v)
