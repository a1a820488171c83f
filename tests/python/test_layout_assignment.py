"""Memory orders are assigned for whole programs: the bits of eager mode whatever is asked for, and reports."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

import numpy as np
import pytest
from shufflenet import ShuffleNetV2

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import config
from megengine.autodiff import GradManager
from megengine.core import _core
from megengine.jit import GraphOptimizationConfig, trace
from megengine.optimizer import SGD

ORDERS = ("local", "cost", "channels-last")


def image(*shape: int, seed: int = 0) -> mge.Tensor:
    return mge.Tensor(np.random.default_rng(seed).standard_normal(shape, dtype=np.float32))


def compiled(net: Any, *args: mge.Tensor, **options: Any) -> tuple[Any, dict[str, Any]]:
    """The result of the program, and what the program says of itself."""
    f = trace(lambda *a: net(*a), symbolic=True, without_host=True, capture_as_const=True, **options)
    f(*args)
    y = f(*args)
    return y, json.loads(f._last.recording.profile())["graph_exec"]


def copied(program: dict[str, Any]) -> list[int]:
    """Bytes of each copy."""
    ops = [program["operator"][i] for i in program["comp_seq"]]
    return [4 * int(np.prod(program["var"][o["input"][0]]["shape"])) for o in ops if o["type"] == "copy"]


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("late", [False, True])
def test_shufflenet_has_the_bits_of_eager_in_any_order(late: bool, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mge.random.seed(1)
    net = ShuffleNetV2(late, (24, 48, 96, 192, 64), 10)
    net.eval()
    x = image(batch, 3, 64, 64)
    want = net(x).numpy()
    for order in ORDERS:
        monkeypatch.setenv("MGE_MEMORY_ORDER", order)
        y, program = compiled(net, x)
        assert y.numpy().tobytes() == want.tobytes(), order
        (report,) = program["programs"]
        assert report["copies"] == len(copied(program)) and report["copy_bytes"] == sum(copied(program))
        orders = [v["mem_plan"]["order"] for v in program["var"].values() if v["mem_plan"]]
        assert orders.count("channels-last") == report["channels_last"]
        # A first layer may answer channels-last by itself; nothing else is reordered where each kernel decides alone.
        assert (report["reordered"] > 0) == (order != "local")
        assert report["channels_last"] > 0 or order == "local"


@pytest.mark.parametrize("dtype", ["float32", "int32", "float16"])
@pytest.mark.parametrize("shape", [(1, 1, 5, 4), (2, 3, 4, 5), (1, 8, 3, 3), (2, 29, 7, 5), (1, 58, 9, 1), (3, 20, 6)])
def test_joined_channels_that_are_shuffled_are_written_once(shape: tuple[int, ...], dtype: str) -> None:
    rng, (n, c, *rest) = np.random.default_rng(4), shape
    tables = {  # in either memory order, and as a part of something larger
        "plain": lambda a, b: (a, b),
        "last": lambda a, b: tuple(F.transpose(t, (0, len(shape) - 1, *range(1, len(shape) - 1))) for t in (a, b)),
        "parts": lambda a, b: (F.concat([a, b], axis=1)[:, :c], b),
    }
    for name, made in tables.items():
        given = (n, *rest, c) if name == "last" else shape
        x, y = (rng.integers(-99, 99, given).astype(dtype) for _ in range(2))

        def net(a: mge.Tensor, b: mge.Tensor, made: Any = made) -> mge.Tensor:
            y = F.concat(list(made(a + a, b + b)), axis=1).reshape(n, 2, c, *rest)
            turned = F.transpose(y, (0, 2, 1, *range(3, y.ndim)))
            return turned.reshape(n, 2 * c, *rest) + 1

        want = np.stack([np.moveaxis(2 * v, -1, 1) if name == "last" else 2 * v for v in (x, y)], axis=2)
        got, program = compiled(net, mge.Tensor(x), mge.Tensor(y))
        np.testing.assert_array_equal(got.numpy(), want.reshape(n, 2 * c, *rest) + 1)
        kinds = [program["operator"][i]["type"] for i in program["comp_seq"]]
        if dtype != "float16" and c > 1:
            assert "transpose" not in kinds, (name, kinds)


def test_a_training_step_has_the_bits_of_eager_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = image(2, 3, 32, 32), mge.Tensor(np.arange(2, dtype=np.int32))

    def steps(traced: bool) -> list[bytes]:
        mge.random.seed(5)
        net = ShuffleNetV2(False, (8, 16, 32, 64, 32), 5)
        params = list(net.parameters())
        gm, opt = GradManager().attach(params), SGD(params, lr=0.1, momentum=0.9)

        def run(x: mge.Tensor, y: mge.Tensor) -> mge.Tensor:
            with gm:
                loss = F.nn.cross_entropy(net(x), y)
                gm.backward(loss)
            opt.step().clear_grad()
            return loss

        call = trace(run, symbolic=True, without_host=True) if traced else run
        losses = [call(x, y).numpy().tobytes() for _ in range(3)]
        return losses + [p.numpy().tobytes() for p in params]

    want = steps(False)
    for order in ORDERS:
        monkeypatch.setenv("MGE_MEMORY_ORDER", order)
        assert steps(True) == want, order


def test_a_transposed_weight_is_converted_once() -> None:
    w = image(1, 24, 40, 40, seed=2)
    conv = M.Conv2d(64, 24, 1)

    def net(x: mge.Tensor) -> mge.Tensor:
        return F.relu(conv(x)) + F.relu(F.transpose(w, (0, 1, 3, 2)))

    x = image(1, 64, 40, 40)
    want = net(x).numpy()
    y, program = compiled(net, x)
    assert y.numpy().tobytes() == want.tobytes()
    (report,) = program["programs"]
    assert report["const_bytes"] >= report["converted_bytes"]


def test_measured_times_decide_and_are_kept(tmp_path: pathlib.Path) -> None:
    before = _core.tuning_file()
    _core.set_tuning_file(str(tmp_path / "choices.tsv"))
    config.benchmark_kernel = True
    try:
        pool, conv = M.MaxPool2d(3, 2, 1), M.Conv2d(16, 64, 1)
        x = image(1, 16, 20, 20)
        want = conv(pool(x)).numpy()
        y, _ = compiled(lambda v: conv(pool(v)), x)
        np.testing.assert_allclose(y.numpy(), want, rtol=1e-4, atol=1e-5)
        text = (tmp_path / "choices.tsv").read_text()
        assert "time of simd_max_pool2d max_pool2d" in text
        _core.set_tuning_file(_core.tuning_file())  # forgotten in memory, found on disk
        measured = _core.tuning_stats()["measured"]
        compiled(lambda v: conv(pool(v)), x)
        assert _core.tuning_stats()["measured"] == measured
    finally:
        config.benchmark_kernel = False
        _core.set_tuning_file(before)


def deployed(tmp_path: pathlib.Path, **options: bool) -> tuple[pathlib.Path, np.ndarray, np.ndarray]:
    mge.random.seed(7)
    net = M.Sequential(M.MaxPool2d(2), M.Conv2d(3, 64, 3, padding=1), M.ReLU(), M.Conv2d(64, 64, 1), M.AvgPool2d(2))
    net.eval()
    x = image(1, 3, 32, 32)
    f = trace(lambda data: net(data), symbolic=True, capture_as_const=True)
    want = f(x).numpy()
    f.dump(tmp_path / "net.mge", arg_names=["data"], **options)
    return tmp_path / "net.mge", x.numpy(), want


def lite(path: pathlib.Path, x: np.ndarray, **options: bool) -> np.ndarray:
    from megenginelite import LiteConfig, LiteNetwork, LiteOptions

    asked = LiteOptions()
    for name, on in options.items():
        setattr(asked, name, on)
    network = LiteNetwork(LiteConfig(option=asked))
    network.load(str(path))
    network.get_io_tensor("data").set_data_by_copy(x)
    network.forward()
    network.wait()
    return np.array(network.get_io_tensor(network.get_all_output_name()[0]).to_numpy())


@pytest.mark.parametrize("option", ["enable_nhwc", "enable_nchw44", "enable_nchw88", "enable_nchw44_dot"])
def test_options_of_a_cpu(
    option: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    path, x, want = deployed(tmp_path, **{option: True})
    monkeypatch.setenv("MGE_DUMP_IR", "after:assign_layouts")
    assert lite(path, x).tobytes() == want.tobytes()
    text = capfd.readouterr().err
    if option == "enable_nhwc":
        assert "max_pool2d" in text and "row-major" not in text.partition("max_pool2d")[2].partition("\n")[0]
    else:
        assert "of them prepared" in text
        path, x, want = deployed(tmp_path)
        assert lite(path, x, **{option: True}).tobytes() == want.tobytes()
        assert "of them prepared" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("option", "whose"),
    [
        ("enable_nchw4", "dot products of CUDA"),
        ("enable_nchw32", "tensor cores of CUDA"),
        ("enable_nchw64", "tensor cores of CUDA"),
        ("enable_nhwcd4", "images of OpenCL"),
    ],
)
def test_options_of_other_devices(option: str, whose: str, tmp_path: pathlib.Path) -> None:
    path, x, want = deployed(tmp_path)
    with pytest.raises(RuntimeError, match=f"lite: {option} is a layout for {whose}.*Leave it out"):
        lite(path, x, **{option: True})
    for keyword in {option, option.replace("nhwcd4", "hwcd4")}:  # dump has the original's spelling, too
        with pytest.warns(RuntimeWarning, match=f"dump: {keyword} is written into the file .* layout for {whose}"):
            path, x, want = deployed(tmp_path, **{keyword: True})
        assert lite(path, x).tobytes() == want.tobytes()  # loaded where it has no meaning: by cost


def test_transpositions_inside_fused_regions() -> None:
    def net(x: mge.Tensor, y: mge.Tensor, b: mge.Tensor) -> mge.Tensor:
        return F.tanh(F.transpose(F.exp(x) * b, (1, 0)) + y)

    x, y, b = image(40, 70), image(70, 40), image(70)
    want = net(x, y, b).numpy()
    kernels = {}
    for on in (None, False, True):
        options = GraphOptimizationConfig()
        options.jit_fuse_dimshuffle = on
        got, program = compiled(net, x, y, b, graph_opt_config=options)
        assert got.numpy().tobytes() == want.tobytes()
        kernels[on] = [program["operator"][i]["type"] for i in program["comp_seq"]]
    assert kernels[None] == kernels[False] == ["fused", "fused"]
    assert kernels[True] == ["fused"]


def test_the_environment_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGE_MEMORY_ORDER", "nchw")
    with pytest.raises(ValueError, match="MGE_MEMORY_ORDER: expected cost, channels-last or local; got 'nchw'"):
        compiled(F.relu, image(2, 3))
    assert os.environ["MGE_MEMORY_ORDER"] == "nchw"
