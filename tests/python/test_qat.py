"""megengine.module.qat: the layers against their float ones and against NumPy, gradients, statistics, repr."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.quantization as Q
from megengine import amp
from megengine.autodiff import GradManager, checkpoint
from megengine.module import qat

Make = Callable[[], Any]
IMAGE, ROWS = (2, 4, 7, 7), (6, 4)

#: layer, shape of its input
LAYERS: dict[str, tuple[Make, Any]] = {
    "conv": (lambda: M.Conv2d(4, 6, 3, padding=1), IMAGE),
    "conv-reflect": (lambda: M.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), IMAGE),
    "conv-replicate": (lambda: M.Conv2d(4, 6, 3, padding=1, padding_mode="replicate", bias=False), IMAGE),
    "conv-groups": (lambda: M.Conv2d(4, 6, 3, stride=2, groups=2), IMAGE),
    "conv-depthwise": (lambda: M.ConvRelu2d(4, 4, 3, dilation=2, groups=4), IMAGE),
    "conv-relu": (lambda: M.ConvRelu2d(4, 6, 1), IMAGE),
    "transpose": (lambda: M.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1), IMAGE),
    "transpose-relu-groups": (lambda: M.ConvTransposeRelu2d(4, 6, 2, groups=2, bias=False), IMAGE),
    "conv-bn": (lambda: M.ConvBn2d(4, 6, 3, padding=1), IMAGE),
    "conv-bn-groups": (lambda: M.ConvBn2d(4, 6, 3, groups=2, bias=False), IMAGE),
    "conv-bn-relu": (lambda: M.ConvBnRelu2d(4, 6, 3), IMAGE),
    "conv-bn-plain": (lambda: M.ConvBnRelu2d(4, 6, 3, affine=False), IMAGE),
    "transpose-bn": (lambda: M.ConvTransposeBn2d(4, 6, 3), IMAGE),
    "transpose-bn-relu-groups": (lambda: M.ConvTransposeBnRelu2d(4, 6, 2, groups=2, bias=False), IMAGE),
    "linear": (lambda: M.Linear(4, 5), ROWS),
    "linear-relu": (lambda: M.LinearRelu(4, 5, bias=False), ROWS),
    "linear-bn": (lambda: M.LinearBn1d(4, 5), ROWS),
    "linear-bn-relu": (lambda: M.LinearBnRelu1d(4, 5, bias=False), ROWS),
    "product": (lambda: M.BatchMatMulActivation(2, 4, 3), (2, 4, 5)),
    "product-relu": (lambda: M.BatchMatMulActivation(2, 4, 3, bias=False, nonlinear_mode="relu"), (2, 4, 5)),
    "quant": (M.QuantStub, ROWS),
}
each_layer = pytest.mark.parametrize("name", LAYERS)


class Holder(M.Module):
    """The root is never replaced."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.layer(*args, **kwargs)


def build(name: str, seed: int = 0) -> tuple[Any, np.ndarray]:
    """A float layer with parameters and statistics that are not their first ones."""
    make, shape = LAYERS[name]
    layer, rng = Holder(make()), np.random.RandomState(seed)
    for key, t in layer.named_tensors():
        value = rng.standard_normal(t.shape) * 0.3
        t._reset(mge.tensor((np.abs(value) + 0.5 if "bn.weight" in key or "var" in key else value).astype(np.float32)))
    return layer, rng.standard_normal(shape).astype(np.float32)


def simulated(name: str, **kwargs: Any) -> tuple[Any, np.ndarray]:
    layer, x = build(name)
    return Q.quantize_qat(layer, **kwargs), x


def gradients(layer: Any, x: np.ndarray) -> dict[str, np.ndarray]:
    t = mge.tensor(x)
    with GradManager().attach([t, *layer.parameters()]) as gm:
        y = layer(t)
        gm.backward(y, mge.tensor(np.random.RandomState(8).standard_normal(y.shape).astype(np.float32)))
    found = {k: p.grad.numpy() for k, p in layer.named_parameters() if p.grad is not None}
    return {"y": y.numpy(), "x": t.grad.numpy(), **found}


@each_layer
@pytest.mark.parametrize("training", [True, False])
def test_without_simulation_it_is_the_float_layer(name: str, training: bool) -> None:
    """Results, gradients and running statistics."""
    plain, x = build(name)
    plain.train(training)
    layer = Q.quantize_qat(plain, inplace=False)
    layer.train(training)
    Q.disable_fake_quant(layer)
    got, want = gradients(layer, x), gradients(plain, x)
    assert set(got) == set(want)
    for key, value in want.items():
        np.testing.assert_allclose(got[key], value, rtol=2e-5, atol=5e-6, err_msg=key)
    state = layer.state_dict()
    for key, value in plain.state_dict().items():
        np.testing.assert_allclose(state[key], value, rtol=1e-5, atol=1e-6, err_msg=key)


@each_layer
def test_the_result_is_made_of_integers(name: str) -> None:
    layer, x = simulated(name)
    for training in (True, False):
        layer.train(training)
        y = layer(mge.tensor(x))
        scale = float(y.qparams.scale.item())
        q = y.numpy() / scale
        assert np.abs(q - np.round(q)).max() < 1e-4 and q.min() >= -128.001 and q.max() <= 127.001
        assert y.qparams == layer.layer.get_activation_qparams()


@each_layer
def test_simulation_is_near_the_float_layer(name: str) -> None:
    plain, x = build(name)
    layer = Q.quantize_qat(plain, inplace=False)
    for net in (plain, layer):
        net.eval()
    want = plain(mge.tensor(x)).numpy()
    Q.enable_observer(layer)
    layer(mge.tensor(x))
    Q.disable_observer(layer)
    assert np.abs(layer(mge.tensor(x)).numpy() - want).max() <= 0.05 * max(1.0, np.abs(want).max())


def test_linear_is_the_formula() -> None:
    """Weights, bias and result rounded as the integers will be; gradients as if nothing were."""
    layer, x = simulated("linear", qconfig=Q.min_max_fakequant_qconfig)
    stub = Q.quantize_qat(M.Sequential(M.QuantStub()), qconfig=Q.min_max_fakequant_qconfig)
    linear = layer.layer

    def fake(v: np.ndarray, s: np.ndarray, lo: float, hi: float) -> np.ndarray:
        q = np.clip(np.copysign(np.floor(np.abs(v / s) + 0.5), v), lo, hi)
        return (q * s).astype(np.float32)

    sx = np.float32(np.abs(x).max()) / np.float32(127.5)
    sw = np.float32(np.abs(linear.weight.numpy()).max()) / np.float32(127)
    xq, wq = fake(x, sx, -128, 127), fake(linear.weight.numpy(), sw, -127, 127)
    bq = fake(linear.bias.numpy(), sx * sw, -(2**31), 2**31 - 1)
    y = xq @ wq.T + bq
    sy = np.float32(np.abs(y).max()) / np.float32(127.5)
    dy = np.random.RandomState(8).standard_normal(y.shape).astype(np.float32)
    t = mge.tensor(x)
    with GradManager().attach([t, linear.weight, linear.bias]) as gm:
        got = layer(stub(t))
        gm.backward(got, mge.tensor(dy))
    np.testing.assert_allclose(got.numpy(), fake(y, sy, -128, 127), atol=1.01 * sy)
    assert np.mean(np.abs(got.numpy() - fake(y, sy, -128, 127)) > 1e-5) < 0.1
    passed = dy * (np.abs(np.floor(np.abs(y / sy) + 0.5)) <= 127 + (y < 0))
    inside = np.floor(np.abs(x / sx) + 0.5) <= 127 + (x < 0)
    np.testing.assert_allclose(t.grad.numpy(), (passed @ wq) * inside, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(linear.weight.grad.numpy(), passed.T @ xq, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(linear.bias.grad.numpy(), passed.sum(0), rtol=1e-4, atol=1e-5)


def test_elemwise_and_concat() -> None:
    a, b = (np.random.RandomState(s).standard_normal((2, 3)).astype(np.float32) for s in range(2))
    for method, want in (("add", a + b), ("mul", a * b), ("fuse_add_relu", np.maximum(a + b, 0))):
        layer = Q.quantize_qat(Holder(M.Elemwise(method)))
        assert layer.layer.weight_observer is None
        y = layer(mge.tensor(a), mge.tensor(b))
        np.testing.assert_allclose(y.numpy(), want, atol=0.51 * y.qparams.scale.item())
    layer = Q.quantize_qat(Holder(M.Concat()))
    y = layer([mge.tensor(a), mge.tensor(b)], axis=1)
    np.testing.assert_allclose(y.numpy(), np.concatenate([a, b], 1), atol=0.51 * y.qparams.scale.item())
    stub = Q.quantize_qat(Holder(M.DequantStub()))
    t = mge.tensor(a)
    assert stub(t) is t and stub.layer.act_observer is None


@pytest.mark.parametrize("name", [n for n in LAYERS if "bn" in n and "plain" not in n])
def test_folding_with_the_statistics_of_the_batch(name: str) -> None:
    """approx=False: without simulation the same as batch normalisation in training mode."""
    plain, x = build(name)
    layer = Q.quantize_qat(plain, inplace=False).layer
    layer.set_fake_quant(False)
    calc = next(getattr(layer, n) for n in dir(layer) if n.startswith("calc_") and n.endswith("_bn_qat"))
    got = calc(mge.tensor(x), approx=False)
    want = plain.layer(mge.tensor(x))
    got = F.relu(got) if "relu" in name else got
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(layer.bn.running_mean.numpy(), plain.layer.bn.running_mean.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(layer.bn.running_var.numpy(), plain.layer.bn.running_var.numpy(), rtol=1e-5, atol=1e-6)


def test_a_normalisation_factor_of_zero_gives_no_nan() -> None:
    plain, x = build("conv-bn")
    plain.layer.bn.weight[:, 1] = 0.0
    layer = Q.quantize_qat(plain)
    got = gradients(layer, x)
    assert all(np.isfinite(v).all() for v in got.values())


def test_statistics_that_are_not_kept_cannot_be_folded() -> None:
    layer = Q.quantize_qat(Holder(M.ConvBn2d(4, 6, 3, track_running_stats=False)))
    with pytest.raises(ValueError, match="ConvBn2d: batch normalisation without running statistics cannot be folded"):
        layer(mge.tensor(np.zeros(IMAGE, np.float32)))


def test_autocast_simulates_in_float32() -> None:
    layer, x = simulated("conv-bn-relu")
    with amp.autocast():
        y = layer(mge.tensor(x))
    assert y.dtype == np.float32 and np.isfinite(y.numpy()).all()


@pytest.mark.parametrize("nested", [False, True])
def test_a_part_that_runs_again_simulates_what_it_did_at_first(nested: bool) -> None:
    """Statistics and ranges move from the first run to the second; one layer is called twice."""

    def run(again: bool) -> dict[str, np.ndarray]:
        layer = Q.quantize_qat(Holder(M.ConvBnRelu2d(4, 4, 3, padding=1)))
        rng = np.random.RandomState(0)
        for p in layer.parameters():
            p._reset(mge.tensor((rng.standard_normal(p.shape) * 0.3 + 0.5).astype(np.float32)))
        once = checkpoint(layer) if again and nested else layer
        twice = checkpoint(lambda t: once(once(t) * 3)) if again else (lambda t: once(once(t) * 3))
        t = mge.tensor(rng.standard_normal(IMAGE).astype(np.float32))
        with GradManager().attach([t, *layer.parameters()]) as gm:
            gm.backward(F.mean(twice(t) ** 2))
        grads = {"grad " + k: p.grad.numpy() for k, p in layer.named_parameters()}
        return {**layer.state_dict(), "x": t.grad.numpy(), **grads}

    want = run(False)
    for key, value in run(True).items():
        np.testing.assert_array_equal(value, want[key], err_msg=key)


def test_a_scale_per_channel_is_simulated() -> None:
    """Weights with a scale for each filter, set by hand."""
    layer, x = simulated("conv", qconfig=Q.min_max_fakequant_qconfig)
    layer(mge.tensor(x))
    Q.reset_qconfig(layer, Q.passive_qconfig)
    conv = layer.layer
    scale = np.abs(conv.weight.numpy()).max((1, 2, 3), keepdims=True) / np.float32(127)
    conv.weight_observer.set_qparams(Q.create_qparams(dtype_meta="qint8_narrow", scale=mge.tensor(scale)))
    w = conv.apply_quant_weight(conv.weight)
    want = np.round(conv.weight.numpy() / scale) * scale
    np.testing.assert_allclose(w.numpy(), want, rtol=1e-5)
    stub = Q.quantize_qat(M.Sequential(M.QuantStub()))
    assert layer(stub(mge.tensor(x))).shape == (2, 6, 7, 7)


def test_repr_says_qat() -> None:
    net = Q.quantize_qat(M.Sequential(M.QuantStub(), M.Conv2d(3, 4, 3), M.LinearBn1d(2, 3), M.DequantStub()))
    assert (
        repr(net)
        == """Sequential(
  (0): QAT.QuantStub(
    (act_observer): ExponentialMovingAverageObserver()
    (act_fake_quant): FakeQuantize()
  )
  (1): QAT.Conv2d(
    3, 4, kernel_size=(3, 3)
    (act_observer): ExponentialMovingAverageObserver()
    (act_fake_quant): FakeQuantize()
    (weight_observer): MinMaxObserver()
    (weight_fake_quant): FakeQuantize()
  )
  (2): QAT.LinearBn1d(
    (linear): Linear(in_features=2, out_features=3, bias=True)
    (bn): BatchNorm1d(3, eps=1e-05, momentum=0.9, affine=True, track_running_stats=True)
    (act_observer): ExponentialMovingAverageObserver()
    (act_fake_quant): FakeQuantize()
    (weight_observer): MinMaxObserver()
    (weight_fake_quant): FakeQuantize()
  )
  (3): QAT.DequantStub()
)"""
    )


def test_the_names_are_those_of_the_float_layers() -> None:
    names = set(qat.__all__) - {"QATModule"}
    assert names == set(M.quantized.__all__) - {"QuantizedModule"} and names <= set(M.__all__)
    assert all(issubclass(getattr(qat, n), qat.QATModule) for n in names)
