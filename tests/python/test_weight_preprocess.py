"""Weights brought into the order of their kernels when a program is compiled: same bits, any number of threads."""

from __future__ import annotations

import pathlib
import re

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.jit import trace


class Net(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.deep = M.Conv2d(3, 32, 3, 2, 1), M.Conv2d(32, 32, 3, 1, 1, groups=32)
        self.wide, self.square, self.bn = M.Conv2d(32, 96, 1), M.Conv2d(96, 96, 3, 1, 1), M.BatchNorm2d(96)
        self.fc = M.Linear(96, 10)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        x = F.relu6(self.wide(F.hswish(self.deep(F.silu(self.stem(x))))))
        return self.fc(F.mean(F.relu(self.bn(self.square(x)) + x), axis=(2, 3)))


def compiled(net: M.Module, level: int) -> trace:
    return trace(lambda x: net(x), symbolic=True, without_host=True, capture_as_const=True, opt_level=level)


@pytest.fixture
def net() -> Net:
    mge.random.seed(3)
    net = Net()
    net.eval()
    return net


def test_level_3_prepares_weights_with_the_same_bits(net: Net) -> None:
    x = mge.tensor(np.random.RandomState(1).uniform(-1, 1, (2, 3, 40, 44)).astype("float32"))
    want = net(x).numpy()
    plain, prepared = compiled(net, 2), compiled(net, 3)
    for _ in range(3):
        assert plain(x).numpy().tobytes() == want.tobytes() == prepared(x).numpy().tobytes()
    assert "of them prepared" in prepared.report() and "of them prepared" not in plain.report()


def test_another_number_of_threads(net: Net) -> None:
    x = mge.tensor(np.random.RandomState(2).uniform(-1, 1, (1, 3, 64, 64)).astype("float32"))
    want = net(x).numpy()
    prepared = compiled(net, 3)
    assert prepared(x).numpy().tobytes() == want.tobytes() == prepared(x).numpy().tobytes()
    before = mge.device.get_num_threads()
    try:
        for threads in (1, 2, 3):
            mge.device.set_num_threads(threads)
            assert prepared(x).numpy().tobytes() == want.tobytes()
    finally:
        mge.device.set_num_threads(before)


def test_activations_are_part_of_their_convolutions(net: Net) -> None:
    x = mge.tensor(np.zeros((1, 3, 40, 40), "float32"))
    f = compiled(net, 2)
    for _ in range(2):
        f(x).numpy()
    report = f.report()
    assert sorted(set(re.findall(r'act="(\w+)"', report))) == ["hswish", "relu", "relu6", "silu"]
    assert not re.findall(r"^ *\d+ (?:simd_elementwise|interp_fused) ", report, re.M)


def test_lite_prepares_weights_of_a_mapped_file(tmp_path: pathlib.Path) -> None:
    """By default, with the eager bits; several networks and several sizes share what was prepared."""
    from megenginelite import LiteNetwork

    mge.random.seed(5)
    wide, one, strided = M.Conv2d(64, 256, 3, 1, 1), M.Conv2d(256, 256, 1), M.Conv2d(256, 256, 3, 2, 1)
    net = M.Sequential(wide, M.ReLU(), one, M.ReLU(), strided)
    net.eval()
    small = np.random.RandomState(1).uniform(-1, 1, (1, 64, 14, 14)).astype("float32")
    large = np.random.RandomState(2).uniform(-1, 1, (2, 64, 17, 20)).astype("float32")
    f = trace(lambda x: net(x), symbolic=True, capture_as_const=True)
    f(mge.tensor(small))
    path = str(tmp_path / "net.mge")
    f.dump(path, arg_names=["x"], output_names=["y"])
    first, second = LiteNetwork(), LiteNetwork()
    first.load(path)
    second.share_weights_with(first)
    for data in (small, large, small):
        want = net(mge.tensor(data)).numpy()
        for lite in (first, second):
            lite.get_io_tensor("x").set_data_by_copy(data)
            lite.forward()
            lite.wait()
            assert lite.get_io_tensor("y").to_numpy().tobytes() == want.tobytes()


def test_winograd4_is_accepted_and_in_effect_anyway(tmp_path: pathlib.Path) -> None:
    from megenginelite import LiteNetwork

    mge.random.seed(6)
    net = M.Sequential(M.Conv2d(64, 64, 3, 1, 1), M.ReLU(), M.Conv2d(64, 64, 3, 1, 1))
    net.eval()
    data = np.random.RandomState(1).uniform(-1, 1, (1, 64, 40, 40)).astype("float32")
    f = trace(lambda x: net(x), symbolic=True, capture_as_const=True)
    want = f(mge.tensor(data)).numpy()
    f.dump(str(tmp_path / "net.mge"), arg_names=["x"], output_names=["y"], enable_winograd4=True)
    lite = LiteNetwork()
    lite.load(str(tmp_path / "net.mge"))
    lite.get_io_tensor("x").set_data_by_copy(data)
    lite.forward()
    lite.wait()
    got = lite.get_io_tensor("y").to_numpy()
    assert got.tobytes() == want.tobytes()


def test_in_lite(net: Net, tmp_path: pathlib.Path) -> None:
    from megenginelite import LiteConfig, LiteNetwork, LiteOptions

    data = np.random.RandomState(4).uniform(-1, 1, (1, 3, 40, 40)).astype("float32")
    want = net(mge.tensor(data)).numpy()
    f = compiled(net, 2)
    f(mge.tensor(data))
    f.dump(str(tmp_path / "net.mge"), arg_names=["x"], output_names=["y"])
    options = LiteOptions()
    options.weight_preprocess = 1
    lite = LiteNetwork(config=LiteConfig(option=options))
    lite.load(str(tmp_path / "net.mge"))
    lite.get_io_tensor("x").set_data_by_copy(data)
    for _ in range(2):
        lite.forward()
        lite.wait()
        assert lite.get_io_tensor("y").to_numpy().tobytes() == want.tobytes()
