"""megengine.experimental: training with scaled weights."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.autodiff import GradManager
from megengine.experimental import get_scaled_model
from megengine.experimental.weight_scaler import get_norm_mod_value


class Net(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv0 = M.Conv2d(3, 4, 3)
        self.conv1 = M.ConvRelu2d(4, 4, 1)
        self.bn = M.BatchNorm2d(4)
        self.fc = M.Linear(4, 2)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        x = self.bn(self.conv1(self.conv0(x)))
        return self.fc(F.mean(x, axis=(2, 3)))


def outputs(net: M.Module, x: mge.Tensor) -> dict[str, np.ndarray[Any, Any]]:
    seen: dict[str, np.ndarray[Any, Any]] = {}
    hooks = [
        m.register_forward_hook(lambda m, i, o, name=name: seen.__setitem__(name, o.numpy()))
        for name, m in net.named_modules()
        if name
    ]
    net(x)
    for h in hooks:
        h.remove()
    return seen


def test_scales_cancel_in_the_batch_norm() -> None:
    net = Net()
    for p in net.parameters():
        p[...] = np.random.default_rng(1).standard_normal(p.shape).astype("float32")
    x = mge.tensor(np.random.default_rng(2).standard_normal((2, 3, 6, 6)).astype("float32"))
    plain = copy.deepcopy(net)
    scaled = get_scaled_model(net, {"conv0": ("CONST", 2), "conv1": ("CONST", 4)}, (2, 3, 6, 6))
    assert scaled is net and isinstance(net.conv0, M.Conv2d)
    assert (net.conv0.weight_scale, net.conv0.bias_scale) == (2, 2)
    assert (net.conv1.weight_scale, net.conv1.bias_scale) == (4, 8)
    want, got = outputs(plain, x), outputs(net, x)
    np.testing.assert_allclose(got["conv0"], 2 * want["conv0"], rtol=1e-6)
    np.testing.assert_allclose(got["conv1"], 8 * want["conv1"], rtol=1e-5)
    np.testing.assert_allclose(got["fc"], want["fc"], rtol=1e-3, atol=1e-5)
    for n in (plain, net):
        n.eval()
        n.load_state_dict(plain.state_dict())
    for name, value in outputs(plain, x).items():
        np.testing.assert_array_equal(outputs(net, x)[name], value)
    assert set(net.state_dict()) == set(plain.state_dict())


def test_a_norm_is_reached_by_a_power_of_two() -> None:
    w = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype("float32")
    for target in (0.3, 1.0, 10.0, 1000.0):
        scale = get_norm_mod_value(mge.tensor(w), target).item()
        assert np.log2(scale) == int(np.log2(scale))
        assert scale * np.linalg.norm(w) <= target < 2 * scale * np.linalg.norm(w)


def test_scaled_layers_are_trained_copied_and_saved() -> None:
    net = get_scaled_model(Net(), {"conv0": ("NORM", 100.0)}, (2, 3, 6, 6))
    assert {"conv0.weight_scale", "conv0.bias_scale"} <= set(net.state_dict())
    twin = copy.deepcopy(net)
    gm = GradManager().attach(twin.parameters())
    with gm:
        gm.backward(twin(mge.tensor(np.ones((2, 3, 6, 6), "float32"))).sum())
    assert all(p.grad is not None for p in twin.parameters())
    assert "conv0.weight_scale" not in dict(net.named_parameters())


def test_what_is_refused_and_warned_about() -> None:
    with pytest.raises(ValueError, match="input_shape is required"):
        get_scaled_model(Net(), {"conv0": ("CONST", 2)})
    with pytest.raises(ValueError, match="no Conv2d or Linear called conv9; it has conv0, conv1, fc"):
        get_scaled_model(Net(), {"conv9": ("CONST", 2)}, (2, 3, 6, 6))
    with pytest.warns(UserWarning, match="no BatchNorm2d follows fc"):
        net = get_scaled_model(Net(), {"fc": ("CONST", 3)}, (2, 3, 6, 6))
    assert net.fc.weight_scale == 3
