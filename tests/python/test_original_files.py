"""Model files of MegEngine 1.13's own formats: read, run, and written again (tests/data/original, ADR 0039)."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megenginelite as lite
from megengine.core import _core
from megengine.jit import trace

FOLDER = Path(__file__).parents[1] / "data/original"
INDEX = {e["file"]: e for e in json.loads((FOLDER / "index.json").read_text())}
INPUT, OUTPUT = lite.LiteTensorPhase.LITE_INPUT, lite.LiteTensorPhase.LITE_OUTPUT


def run(model: bytes | Path, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    net = lite.LiteNetwork()
    net.load(str(model) if isinstance(model, Path) else io.BytesIO(model))
    for name in net.get_all_input_name():
        net.get_io_tensor(name, INPUT).set_data_by_copy(np.ascontiguousarray(inputs[name]))
    net.forward()
    net.wait()
    return {name: net.get_io_tensor(name, OUTPUT).to_numpy() for name in net.get_all_output_name()}


def check(model: bytes, name: str) -> None:
    entry = INDEX[name]
    data = np.load((FOLDER / name).with_suffix(".npz"))
    for k in range(entry["cases"]):
        got = run(model, {key.split(".", 2)[2]: data[key] for key in data if key.startswith(f"case{k}.in.")})
        assert len(got) == len(entry["outputs"])
        for (own, value), described in zip(got.items(), entry["outputs"], strict=True):
            # A file without names gives its outputs in order.
            out = own if f"case{k}.{entry['reference']}.{own}" in data else described["name"]
            want = data[f"case{k}.{entry['reference']}.{out}"]
            assert value.shape == want.shape, out
            if entry["tol"] == "random":
                continue
            a, b = value.astype("float64"), want.astype("float64")
            error = np.abs(a - b) / np.maximum(np.maximum(np.abs(a), np.abs(b)), 1)
            error[np.abs(a - b) <= 1.01 * (entry["step"] or {}).get(out, 0)] = 0
            assert np.max(error, initial=0) <= entry["tol"], out


@pytest.mark.parametrize("name", INDEX)
def test_a_file_gives_its_outputs(name: str) -> None:
    check((FOLDER / name).read_bytes(), name)


WRITTEN = [n for n in INDEX if INDEX[n]["tol"] != "random" and not INDEX[n]["wrapper"] and n != "rnn_layers.v2.mge"]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", WRITTEN)
def test_a_file_written_again_gives_its_outputs(name: str, version: int) -> None:
    model = _core.to_original((FOLDER / name).read_bytes(), version)
    assert model[:8] == b"MGBC\0\0\0\0" if version == 1 else model[8:12] == b"mgv2"
    check(model, name)


def test_cases_of_a_wrapped_file_are_tests_of_the_model() -> None:
    graph = _core.Graph((FOLDER / "mlp.v2test.mge").read_bytes())
    assert [name for name, _ in graph.outputs] == ["prob"]
    assert [graph.value(v)[0] for v in graph.inputs] == ["data"]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", ["mlp.v1test.mge", "mlp.v2test.mge"])
def test_cases_are_written_again(name: str, version: int) -> None:
    model = _core.to_original((FOLDER / name).read_bytes(), version)
    assert model[:12] == b"mgbtest0\1\0\0\0"
    check(model, name)
    again = _core.to_original(model, version)
    assert again[-2000:] == model[-2000:], "the case at the end is the same"


@pytest.mark.parametrize("from_path", [False, True])
def test_large_weights_of_a_wrapped_file_stay(from_path: bool, tmp_path: Path) -> None:
    """The graph begins at byte 12, so it is decoded from a copy, which the weights must not point into."""
    net = M.Linear(64, 256)
    x = np.random.default_rng(0).standard_normal((2, 64)).astype("float32")
    traced = trace(lambda x: F.relu(net(x)), symbolic=True, capture_as_const=True)
    want = traced(mge.tensor(x)).numpy()
    path = tmp_path / "wrapped.mge"
    traced.dump(str(path), arg_names=["x"], dump_format="FBS_V2", input_data=["#rand(0, 1)"], silent=True)
    model = path.read_bytes()
    assert model.startswith(b"mgbtest0")
    (got,) = run(path if from_path else model, {"x": x}).values()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_all_operators_that_are_not_known_are_named_at_once() -> None:
    model = bytearray((FOLDER / "mlp.v2keep.mge").read_bytes())
    for name in (b"MatrixMulV2", b"Softmax"):
        at = 0
        while (at := model.find(name, at + 1)) >= 0:
            model[at] = ord("Z")
    with pytest.raises(NotImplementedError, match=r"cannot run: ZatrixMulV2@1 x3, Zoftmax@2 x1\."):
        _core.Graph(bytes(model))


def test_the_oldest_format() -> None:
    """MGBS: the gradient of a convolution's weight (stride 2, padding 1), five filters that see the same image."""
    model = (FOLDER / "convolution-backward-filter.mge").read_bytes()
    image = np.random.default_rng(0).standard_normal((8, 1, 32, 32)).astype("float32")
    (got,) = run(model, {"arg_0": image}).values()
    padded = np.pad(image[:, 0], ((0, 0), (1, 1), (1, 1)))
    want = np.array([[padded[:, i : i + 31 : 2, j : j + 31 : 2].sum() for j in range(3)] for i in range(3)])
    assert got.shape == (5, 1, 3, 3)
    np.testing.assert_allclose(got, np.broadcast_to(want, got.shape), rtol=1e-4, atol=1e-3)


def dumped(fn: object, *inputs: np.ndarray) -> tuple[bytes, list[np.ndarray]]:
    traced = trace(fn, symbolic=True, capture_as_const=True)
    out = traced(*map(mge.tensor, inputs))
    file = io.BytesIO()
    traced.dump(file, arg_names=[f"x{i}" for i in range(len(inputs))], optimize_for_inference=False)
    return file.getvalue(), [np.asarray(v) for v in (out if isinstance(out, list | tuple) else [out])]


X = np.random.default_rng(1).standard_normal((3, 4)).astype("float32")
IMAGE = np.random.default_rng(2).standard_normal((2, 3, 8, 8)).astype("float32")


@pytest.mark.parametrize(
    "fn, inputs",
    [
        (lambda x: F.softmax(x, 1) @ x.transpose(1, 0), (X,)),
        (lambda x: [x[1], x[:, ::-2], x[:, 1:3].sum(), F.argmax(x, 1)], (X,)),
        (lambda x: F.concat([F.sort(x)[0], F.topk(x, 2, descending=True)[0]], 1), (X,)),
        (lambda x: F.where(x > 0, F.gelu(x), F.sqrt(F.abs(x))), (X,)),
        (lambda x: F.flatten(F.max_pool2d(x, 2), 1).mean(1, keepdims=True), (IMAGE,)),
        (lambda x: F.nn.interpolate(x, scale_factor=2), (IMAGE,)),
        (lambda x: F.matmul(x, x.transpose(0, 1, 3, 2)), (IMAGE,)),
        (lambda x: x[mge.tensor([2, 0]), mge.tensor([1, 3])], (X,)),
        (lambda x: F.stack([x, x * 2], 1).max(axis=(0, 2)), (X,)),
        (lambda x: F.broadcast_to(F.expand_dims(x, 1), (3, 2, 4)) % 0.7, (X,)),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_what_is_traced_can_be_written_and_read(fn: object, inputs: tuple[np.ndarray, ...], version: int) -> None:
    model, want = dumped(fn, *inputs)
    got = run(_core.to_original(model, version), {f"x{i}": v for i, v in enumerate(inputs)})
    for a, b in zip(got.values(), want, strict=True):
        np.testing.assert_allclose(a.ravel(), b.ravel(), rtol=2e-5, atol=2e-6)


def test_a_module_can_be_written_and_read_at_other_sizes() -> None:
    net = M.Sequential(M.Conv2d(3, 4, 3, padding=1), M.BatchNorm2d(4), M.ReLU(), M.AdaptiveAvgPool2d(1))
    net.eval()
    model, _ = dumped(lambda x: F.flatten(net(x), 1), IMAGE)
    other = np.concatenate([IMAGE, IMAGE * 0.5])
    got = run(_core.to_original(model), {"x0": other})
    want = F.flatten(net(mge.tensor(other)), 1).numpy()
    np.testing.assert_allclose(next(iter(got.values())), want, rtol=2e-5, atol=2e-6)


def test_ops_that_the_format_lacks_are_all_named_with_their_lines() -> None:
    model, _ = dumped(lambda x: F.loss.ctc_loss(x, mge.tensor([3]), mge.tensor([1]), mge.tensor([1])), X[:, None, :])
    with pytest.raises(NotImplementedError, match=r"(?s)cannot hold these ops:.*ctc_loss.*test_original_files.py"):
        _core.to_original(model)


@pytest.mark.parametrize("name", ["mlp.v1.mge", "mlp.v2keep.mge", "mlp.v2test.mge"])
def test_a_file_cut_off_anywhere_is_refused(name: str) -> None:
    good = (FOLDER / name).read_bytes()
    for size in [*range(64), *range(64, len(good), 97)]:
        with pytest.raises(RuntimeError):
            lite.LiteNetwork().load(io.BytesIO(good[:size]))
