"""One network, the same integers everywhere: QAT in evaluation mode, quantised modules, their trace, the file, Lite.

Each layer is built with random parameters, observes data, and is then compared in five forms over shapes and ranges. No
value may differ: comparisons are of bytes.
"""

from __future__ import annotations

import io
import pathlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.quantization as Q
from megengine import amp
from megengine.autodiff import GradManager
from megengine.jit import trace
from megenginelite import LiteNetwork

Make = Callable[[], Any]
SYM, ASYM = Q.QuantMode.SYMMERTIC, Q.QuantMode.ASYMMERTIC


class Net(M.Module):
    """A layer between stubs; several inputs for those that take them."""

    def __init__(self, layer: Any, inputs: int = 1, **kwargs: Any) -> None:
        super().__init__()
        self.stubs = [M.QuantStub() for _ in range(inputs)]
        self.layer, self.kwargs = layer, kwargs
        self.dequant = M.DequantStub()

    def forward(self, *xs: Any) -> Any:
        xs = tuple(stub(x) for stub, x in zip(self.stubs, xs, strict=True))
        y = self.layer(list(xs), **self.kwargs) if isinstance(self.layer, CONCAT) else self.layer(*xs)
        return self.dequant(y)


CONCAT = (M.Concat, M.qat.Concat, M.quantized.Concat)
#: name: layer, shapes of its inputs
LAYERS: dict[str, tuple[Make, list[tuple[int, ...]]]] = {
    "conv": (lambda: M.Conv2d(3, 8, 3, padding=1), [(2, 3, 9, 9)]),
    "conv-1x1": (lambda: M.ConvRelu2d(16, 8, 1, bias=False), [(1, 16, 7, 5)]),
    "conv-wide": (lambda: M.Conv2d(48, 16, 3, padding=1), [(1, 48, 8, 8)]),
    "conv-deep": (lambda: M.Conv2d(512, 4, 3, padding=1), [(1, 512, 4, 4)]),  # sums above 2^24
    "conv-strided": (
        lambda: M.ConvRelu2d(4, 6, (3, 5), stride=(2, 1), padding=(1, 2), dilation=(1, 2)),
        [(2, 4, 11, 17)],
    ),
    "conv-groups": (lambda: M.Conv2d(8, 12, 3, groups=4), [(2, 8, 6, 6)]),
    "conv-depthwise": (lambda: M.ConvRelu2d(16, 16, 3, padding=1, groups=16), [(1, 16, 9, 9)]),
    "conv-reflect": (lambda: M.Conv2d(3, 4, 3, padding=2, padding_mode="reflect"), [(1, 3, 6, 6)]),
    "conv-replicate": (lambda: M.Conv2d(3, 4, 3, padding=2, padding_mode="replicate"), [(1, 3, 6, 6)]),
    "conv-bn": (lambda: M.ConvBn2d(3, 8, 3), [(2, 3, 8, 8)]),
    "conv-bn-relu": (lambda: M.ConvBnRelu2d(6, 8, 3, groups=2, bias=False), [(2, 6, 8, 8)]),
    "transpose": (lambda: M.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1), [(1, 4, 5, 5)]),
    "transpose-relu": (lambda: M.ConvTransposeRelu2d(4, 6, 2, groups=2, bias=False), [(1, 4, 5, 5)]),
    "transpose-bn": (lambda: M.ConvTransposeBn2d(4, 6, 3), [(1, 4, 5, 5)]),
    "transpose-bn-relu": (lambda: M.ConvTransposeBnRelu2d(4, 6, 2, stride=2, groups=2), [(1, 4, 5, 5)]),
    "linear": (lambda: M.Linear(17, 9), [(5, 17)]),
    "linear-relu": (lambda: M.LinearRelu(33, 5, bias=False), [(4, 33)]),
    "linear-long": (lambda: M.Linear(5000, 3), [(2, 5000)]),
    "linear-3d": (lambda: M.Linear(7, 4), [(2, 3, 7)]),
    "linear-bn": (lambda: M.LinearBn1d(6, 5), [(8, 6)]),
    "linear-bn-relu": (lambda: M.LinearBnRelu1d(6, 5), [(8, 6)]),
    "product": (lambda: M.BatchMatMulActivation(2, 8, 5), [(2, 8, 7)]),
    "product-relu": (lambda: M.BatchMatMulActivation(3, 4, 5, bias=False, nonlinear_mode="relu"), [(3, 4, 6)]),
    "add": (lambda: M.Elemwise("add"), [(2, 3, 7), (2, 3, 7)]),
    "add-relu": (lambda: M.Elemwise("fuse_add_relu"), [(40, 9), (40, 9)]),
    "mul": (lambda: M.Elemwise("mul"), [(40, 9), (40, 9)]),
    "sub": (lambda: M.Elemwise("sub"), [(40, 9), (40, 9)]),
    "relu": (lambda: M.Elemwise("relu"), [(40, 9)]),
    "sigmoid": (lambda: M.Elemwise("sigmoid"), [(40, 9)]),
    "max": (lambda: M.Elemwise("max"), [(40, 9), (40, 9)]),
    "concat": (M.Concat, [(2, 3, 5), (2, 4, 5)]),
    "stubs": (M.Identity, [(50, 7)]),
}
#: spread of the data, and what is seen of it: wide data saturates, narrow data leaves few levels
RANGES = {"plain": (1.0, 1.0), "saturated": (3.0, 0.4), "tiny": (1e-4, 1.0), "coarse": (1.0, 40.0)}


def observer(cls: Any, dtype: str, mode: Any = SYM) -> Any:
    return partial(cls, dtype=dtype, mode=mode)


def asymmetric() -> Any:
    return Q.QConfig(
        observer(Q.MinMaxObserver, "qint8_narrow"),
        observer(Q.MinMaxObserver, "quint8", ASYM),
        partial(Q.FakeQuantize, dtype="qint8_narrow"),
        partial(Q.FakeQuantize, dtype="quint8"),
    )


def learnt() -> Any:
    return Q.QConfig(None, None, partial(Q.LSQ, dtype="qint8_narrow"), partial(Q.LSQ, dtype="qint8"))


def build(name: str, qconfig: Any, seed: int, spread: float, seen: float) -> tuple[Any, list[np.ndarray]]:
    """A QAT network in evaluation mode that has seen data of a part of the range it will get."""
    make, shapes = LAYERS[name]
    rng = np.random.RandomState(seed)
    net = Net(make(), len(shapes), **({"axis": 1} if name == "concat" else {}))
    for key, t in net.named_tensors():
        value = rng.standard_normal(t.shape) * 0.4
        t._reset(mge.tensor((np.abs(value) + 0.3 if "bn.weight" in key or "var" in key else value).astype(np.float32)))
    xs = [(rng.standard_normal(s) * spread * (i + 1)).astype(np.float32) for i, s in enumerate(shapes)]
    Q.quantize_qat(net, qconfig=Q.min_max_fakequant_qconfig if qconfig in LEARNT else qconfig)
    net.eval()
    Q.enable_observer(net)
    net(*(mge.tensor(x * np.float32(seen)) for x in xs))
    Q.disable_observer(net)
    if qconfig in LEARNT:
        Q.reset_qconfig(net, qconfig)
        net.eval()
    return net, xs


def by_lite(model: bytes, xs: list[np.ndarray]) -> np.ndarray:
    net = LiteNetwork()
    net.load(io.BytesIO(model))
    for i, x in enumerate(xs):
        net.get_io_tensor(f"x{i}").set_data_by_copy(x)
    net.forward()
    net.wait()
    return net.get_io_tensor("y").to_numpy().copy()


def forms(net: Any, xs: list[np.ndarray]) -> dict[str, np.ndarray]:
    """What each form of a network in evaluation mode gives."""
    tensors = [mge.tensor(x) for x in xs]

    def call(*args: Any) -> Any:
        return net(*args)

    replayed = trace(without_host=True)(call)
    dumped = trace(capture_as_const=True)(call)
    found = {"eager": net(*tensors).numpy()}
    for _ in range(3):
        found["trace"] = replayed(*tensors).numpy()
    dumped(*tensors)
    file = io.BytesIO()
    dumped.dump(file, arg_names=[f"x{i}" for i in range(len(xs))], output_names=["y"])
    found["lite"] = by_lite(file.getvalue(), xs)
    return found


def compare(net: Any, xs: list[np.ndarray]) -> int:
    """Compares all forms; how many values."""
    simulated = forms(net, xs)
    integer = forms(Q.quantize(net, inplace=False), xs)
    want = simulated["eager"]
    for who, found in (("QAT", simulated), ("int8", integer)):
        for form, got in found.items():
            differing = int((got != want).sum())
            assert got.shape == want.shape and differing == 0, (who, form, differing, want.size)
    return want.size


PRESETS = {
    "ema": Q.ema_fakequant_qconfig,
    "asymmetric": asymmetric(),
    "per-channel": Q.per_channel_fakequant_qconfig,
    "tqt": Q.tqt_qconfig,
    "lsq": learnt(),
}
LEARNT = (PRESETS["tqt"], PRESETS["lsq"])


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", LAYERS)
def test_every_form_gives_the_same_integers(name: str, preset: str) -> None:
    if preset == "per-channel" and name in ("transpose-relu", "transpose-bn-relu"):
        with pytest.raises(NotImplementedError, match="with groups=2 has one scale for its"):
            build(name, PRESETS[preset], 0, 1.0, 1.0)
        return
    for seed, (spread, seen) in enumerate(RANGES.values()):
        net, xs = build(name, PRESETS[preset], seed, spread, seen)
        assert compare(net, xs) > 0


def test_the_integers_are_not_trivial() -> None:
    """What the table draws reaches both ends of the range and most values between."""
    net, xs = build("conv", PRESETS["ema"], 1, *RANGES["saturated"])
    q = np.round(net(mge.tensor(xs[0])).numpy() / net.layer.get_activation_qparams().scale.item())
    assert q.min() == -128 and q.max() == 127 and len(np.unique(q)) > 100


def test_sums_beyond_what_float32_holds() -> None:
    """All integers at their ends: the sum is above 2^24, where a float sum would lose its last bits."""
    net, _ = build("conv-deep", PRESETS["ema"], 0, 1.0, 1.0)
    net.layer.weight._reset(F.abs(net.layer.weight) * 0 + 0.4)
    x = np.full((1, 512, 4, 4), 3.0, np.float32)
    x[0, ::7] = 2.9
    net.train()
    net(mge.tensor(x))
    net.eval()
    assert compare(net, [x]) == 64


def test_gradients_in_evaluation_mode_are_those_of_the_float_product() -> None:
    net, xs = build("conv", PRESETS["ema"], 0, 1.0, 1.0)
    x = mge.tensor(xs[0])
    want = net(x).numpy()
    with GradManager().attach([x, net.layer.weight, net.layer.bias]) as gm:
        y = net(x)
        gm.backward(y.sum())
    np.testing.assert_array_equal(y.numpy(), want)
    found = [t.grad.numpy() for t in (x, net.layer.weight, net.layer.bias)]
    net.layer.training = False
    for part in (net.layer.weight_fake_quant, net.layer.act_fake_quant):
        part.disable()
    x.grad = net.layer.weight.grad = net.layer.bias.grad = None
    with GradManager().attach([x, net.layer.weight, net.layer.bias]) as gm:
        gm.backward(net(x).sum())
    for got, t in zip(found, (x, net.layer.weight, net.layer.bias), strict=True):
        np.testing.assert_allclose(got, t.grad.numpy(), rtol=0.05, atol=0.3)


def test_a_whole_network() -> None:
    """Layers after each other, with what keeps integers in between: max pooling, relu, flattening."""

    class Whole(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.quant, self.dequant = M.QuantStub(), M.DequantStub()
            self.conv, self.relu, self.pool = M.Conv2d(3, 8, 3, padding=1), M.ReLU(), M.MaxPool2d(2)
            self.left, self.right = M.ConvBnRelu2d(8, 8, 3, padding=1), M.ConvBn2d(8, 8, 1)
            self.join, self.cat = M.Elemwise("fuse_add_relu"), M.Concat()
            self.up = M.ConvTransposeRelu2d(16, 4, 2, stride=2)
            self.fc1, self.fc2 = M.LinearBnRelu1d(4 * 64, 24), M.Linear(24, 5)

        def forward(self, x: Any) -> Any:
            x = self.pool(self.relu(self.conv(self.quant(x))))
            x = self.join(self.left(x), self.right(x))
            x = F.max_pool2d(self.up(self.cat([x, self.relu(x)], axis=1)), 1)
            return self.dequant(self.fc2(self.fc1(F.flatten(x, 1))))

    for preset in ("ema", "asymmetric"):
        net, rng = Whole(), np.random.RandomState(3)
        data = [rng.standard_normal((4, 3, 8, 8)).astype(np.float32) for _ in range(3)]
        Q.quantize_qat(net, qconfig=PRESETS[preset])
        gm, opt = GradManager().attach(net.parameters()), mge.optimizer.SGD(net.parameters(), 0.05)
        for x in data:
            with gm:
                gm.backward(F.mean(net(mge.tensor(x)) ** 2))
            opt.step().clear_grad()
        net.eval()
        for x in data:
            assert compare(net, [x]) == 20


def test_a_scale_per_filter() -> None:
    for name, axes in (("conv", (1, 2, 3)), ("conv-groups", (2, 3, 4)), ("transpose", (0, 2, 3)), ("linear", (1,))):
        net, xs = build(name, PRESETS["ema"], 0, 1.0, 1.0)
        Q.reset_qconfig(net, Q.passive_qconfig)
        net.eval()
        layer = net.layer
        scale = np.abs(layer.weight.numpy()).max(axes, keepdims=True) / np.float32(127)
        layer.weight_observer.set_qparams(Q.create_qparams(dtype_meta="qint8_narrow", scale=mge.tensor(scale)))
        assert compare(net, xs) > 0


def test_the_page_shows_what_works() -> None:
    page = (pathlib.Path(__file__).parents[2] / "docs" / "quantization.md").read_text()
    first = page.split("```python\n")[1].split("```")[0]
    images = mge.tensor(np.random.RandomState(0).standard_normal((2, 3, 8, 8)).astype(np.float32))
    names: dict[str, Any] = {"images": images}
    before, after = first.split("Q.quantize(net)")
    exec(before, names)
    want = names["net"](images).numpy()
    exec("Q.quantize(net)" + after, names)
    np.testing.assert_array_equal(names["net"](images).numpy(), want)


def test_a_replay_goes_on_with_other_ranges() -> None:
    """Scales are state, not numbers of the recording; asymmetric zero points too."""
    for preset in ("ema", "asymmetric"):
        net, (x,) = build("conv-bn", PRESETS[preset], 0, 1.0, 1.0)
        t = mge.tensor(x)
        replayed = trace(without_host=True)(lambda t, net=net: net(t))
        for _ in range(3):
            before = replayed(t).numpy()
        for key, value in net.named_tensors():
            if key.endswith(("max_val", "min_val")):
                value._reset(value * 0.7)
        want = net(t).numpy()
        assert not np.array_equal(want, before)
        for _ in range(2):
            np.testing.assert_array_equal(replayed(t).numpy(), want)


def test_evaluation_under_autocast_keeps_the_integers() -> None:
    net, (x,) = build("conv-bn-relu", PRESETS["ema"], 0, 1.0, 1.0)
    t = mge.tensor(x)
    want = net(t).numpy()
    with amp.autocast(), GradManager().attach(net.parameters()) as gm:
        y = net(t)
        gm.backward(y.sum())
    np.testing.assert_array_equal(y.numpy(), want)
    assert all(p.grad is not None and p.grad.dtype == np.float32 for p in net.parameters())


def test_a_tensor_that_was_assigned_to_is_not_taken_for_integers() -> None:
    """Values between two integers must not be rounded by the layer after."""
    net, (x,) = build("linear", PRESETS["ema"], 0, 1.0, 1.0)
    stub, layer = net.stubs[0], net.layer
    for change in ("set", "add", "reset"):
        t = stub(mge.tensor(x))
        assert t._simulated
        step = t.qparams.scale.item()
        if change == "set":
            t[0] = 0.4 * step
        elif change == "add":
            t += 0.4 * step
        else:
            t._reset(t + 0.4 * step)
        assert not t._simulated
        plain = mge.tensor(t.numpy())
        w = layer.apply_quant_weight(layer.weight)
        bias = layer.apply_quant_bias(layer.bias, t, w)
        want = layer.apply_quant_activation(layer.calc_linear(plain, w, bias))
        np.testing.assert_array_equal(layer(t).numpy(), want.numpy())


def test_nothing_and_one_row() -> None:
    net, _ = build("conv", PRESETS["ema"], 0, 1.0, 1.0)
    for n in (net, Q.quantize(net, inplace=False)):
        assert n(mge.tensor(np.zeros((0, 3, 9, 9), np.float32))).shape == (0, 8, 9, 9)
    net, (x,) = build("linear", PRESETS["ema"], 0, 1.0, 1.0)
    assert compare(net, [x[0]]) == 9
