"""megengine.quantization: parameters, observers against NumPy, fake-quant modules, configurations, conversion."""

from __future__ import annotations

import copy
import io
import math
import pathlib
import pickle
import subprocess
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
import reference as ref

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.quantization as Q
from megengine.autodiff import GradManager
from megengine.core.tensor.dtype import QuantDtypeMeta, get_scale, get_zero_point
from megengine.jit import trace
from megengine.module import qat
from megengine.quantization.quantize import hook_qat_module
from megengine.quantization.utils import LSQParams, Round, lsq_forward, tqt_forward

ASYM, SYM = Q.QuantMode.ASYMMERTIC, Q.QuantMode.SYMMERTIC
RANGES = {"qint8": (-128, 127), "qint8_narrow": (-127, 127), "quint8": (0, 255), "qint4": (-8, 7), "quint4": (0, 15)}


def numbers(seed: int, shape: tuple[int, ...] = (4, 3, 5), spread: float = 1.0) -> np.ndarray:
    return (np.random.RandomState(seed).standard_normal(shape) * spread).astype(np.float32)


# ---- parameters
def test_qparams_compare_update_and_print() -> None:
    a = Q.create_qparams(SYM, "qint8", scale=mge.tensor(0.5))
    assert a == Q.create_qparams(dtype_meta="qint8", scale=mge.tensor(0.5))
    assert a != Q.create_qparams(dtype_meta="qint8", scale=mge.tensor(0.25))
    assert a != Q.create_qparams(dtype_meta="qint8_narrow", scale=mge.tensor(0.5))
    assert a != LSQParams(SYM, a.dtype_meta, 0.5, None, 1.0)
    assert a != 1
    channels = Q.create_qparams(dtype_meta="qint8", scale=mge.tensor([0.5, 0.25]))
    assert channels == Q.create_qparams(dtype_meta="qint8", scale=np.float32([0.5, 0.25])) != a
    b = Q.create_qparams(mode=None)
    b.update(a)
    assert b == a and b.dtype_meta is a.dtype_meta
    assert repr(b).startswith("QParams(mode=QuantMode.SYMMERTIC, dtype_meta=QuantDtypeMeta(name='qint8'")
    t = mge.tensor([1.0])
    assert t.qparams.scale is None and t.qparams is t.qparams


def test_a_dtype_of_the_same_contents_is_the_same_object() -> None:
    meta = Q.create_qparams(dtype_meta="qint8").dtype_meta
    assert pickle.loads(pickle.dumps(meta)) is meta
    assert QuantDtypeMeta("mine", None, "int8", -3, 3) is QuantDtypeMeta("mine", None, "int8", -3, 3)


def test_round_passes_its_gradient() -> None:
    x = mge.tensor([0.4, 0.5, -1.5])
    with GradManager().attach(x) as gm:
        y = Round()(x)
        gm.backward((y * mge.tensor([1.0, 2.0, 3.0])).sum())
    assert y.tolist() == [0.0, 1.0, -2.0] and x.grad.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize("per_channel", [False, True])
def test_fake_quant_tensor_is_the_formula(dtype: str, per_channel: bool) -> None:
    x = numbers(0)
    scale = np.float32([[[0.03], [0.1], [0.02]]]) if per_channel else np.float32(0.03)
    zero = np.float32(3)
    lo, hi = RANGES[dtype]
    for mode in (SYM, ASYM):
        q = Q.create_qparams(mode, dtype, mge.tensor(scale), mge.tensor(zero))
        want = ref.fake_quant(x / np.float32(1), scale, zero * (mode is ASYM), lo, hi)
        np.testing.assert_allclose(Q.fake_quant_tensor(mge.tensor(x), q).numpy(), want, rtol=1e-6, atol=1e-7)


def test_a_disabled_fake_quant_calls_what_a_subclass_says() -> None:
    class Noisy(Q.FakeQuantize):
        def normal_forward(self, inp: mge.Tensor, qparams: Any = None) -> mge.Tensor:
            return inp + 1

    x = mge.tensor([1.0, 2.0])
    assert Q.FakeQuantize("qint8").normal_forward(x) is x
    assert Noisy("qint8", enable=False)(x).tolist() == [2, 3]


def test_fake_quant_needs_a_range_and_a_scale() -> None:
    with pytest.raises(ValueError, match="fake_quant_tensor: needs a dtype_meta and a scale; got QParams"):
        Q.fake_quant_tensor(mge.tensor([1.0]), Q.create_qparams())


def test_bias_is_simulated_only_between_symmetric_8_bit_tensors() -> None:
    bias = mge.tensor(numbers(1, (1, 4, 1, 1)))

    def tensor(dtype: str, mode: Any = SYM, scale: Any = 0.01) -> Any:
        t = mge.tensor([1.0])
        t.qparams.update(Q.create_qparams(mode, dtype, mge.tensor(scale)))
        return t

    y = Q.fake_quant_bias(bias, tensor("qint8"), tensor("qint8_narrow"))
    s = np.float32(0.01) * np.float32(0.01)
    np.testing.assert_allclose(y.numpy(), ref.round_half_away(bias.numpy() / s) * s, rtol=1e-6)
    assert y.qparams.dtype_meta.name == "qint32" and y.qparams.scale.item() == pytest.approx(1e-4)
    assert Q.fake_quant_bias(None, tensor("qint8"), tensor("qint8")) is None
    for x, w in (
        (tensor("quint8", ASYM), tensor("qint8")),
        (tensor("qint8"), tensor("quint8")),
        (mge.tensor([1.0]), tensor("qint8")),
    ):
        assert Q.fake_quant_bias(bias, x, w) is bias
    channels = tensor("qint8_narrow", scale=np.float32([0.01, 0.02, 0.03, 0.04]).reshape(4, 1, 1, 1))
    y = Q.fake_quant_bias(bias, tensor("qint8"), channels)
    s = np.float32(0.01) * np.float32([0.01, 0.02, 0.03, 0.04]).reshape(1, 4, 1, 1)
    np.testing.assert_allclose(y.numpy(), ref.round_half_away(bias.numpy() / s) * s, rtol=1e-6)


# ---- observers
def scale_of(low: float, high: float, mode: Any, dtype: str) -> tuple[float, float | None]:
    lo, hi = RANGES[dtype]
    low, high = min(low, 0.0), max(high, 0.0)
    if mode is SYM:
        return max(max(-low, high) / ((hi - lo) / 2), 1e-5), None
    scale = max((high - low) / (hi - lo), 1e-5)
    return scale, lo - float(ref.round_half_away(np.float64(low / scale)))


def check(observer: Any, low: float, high: float, mode: Any, dtype: str) -> None:
    q = observer.get_qparams()
    scale, zero = scale_of(low, high, mode, dtype)
    assert q.mode is mode and q.dtype_meta is observer.dtype
    assert q.scale.item() == pytest.approx(scale, rel=1e-6)
    assert (q.zero_point is None) == (zero is None) and (zero is None or q.zero_point.item() == zero)
    made = observer.get_quantized_dtype()
    assert get_scale(made) == q.scale.item() and (zero is None or get_zero_point(made) == zero)


@pytest.mark.parametrize("mode, dtype", [(SYM, "qint8"), (SYM, "qint8_narrow"), (SYM, "qint4"), (ASYM, "quint8")])
@pytest.mark.parametrize("sync", [False, True])
def test_min_max_and_moving_average(mode: Any, dtype: str, sync: bool) -> None:
    data = [numbers(s, spread=1 + s) for s in range(4)]
    observer = (Q.SyncMinMaxObserver if sync else Q.MinMaxObserver)(mode, dtype=dtype)
    for x in data:
        t = mge.tensor(x)
        assert observer(t) is t
    check(observer, min(x.min() for x in data), max(x.max() for x in data), mode, dtype)

    cls = Q.SyncExponentialMovingAverageObserver if sync else Q.ExponentialMovingAverageObserver
    observer = cls(momentum=0.7, mode=mode, dtype=dtype)
    low = high = 0.0
    for i, x in enumerate(data):
        keep = 0.7 if i else 0.0
        low, high = low * keep + (1 - keep) * x.min(), high * keep + (1 - keep) * x.max()
        observer(mge.tensor(x))
    check(observer, low, high, mode, dtype)
    observer.set_momentum(0.5)
    observer(mge.tensor(data[0]))
    check(observer, low * 0.5 + 0.5 * data[0].min(), high * 0.5 + 0.5 * data[0].max(), mode, dtype)


def test_synchronised_observers_take_the_range_of_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has seen -9 and 9; each call reduces its least and largest value once over WORLD."""
    asked: list[Any] = []

    def reduce(best: Any, other: float) -> Any:
        return lambda x, group: asked.append(group) or best(x, mge.tensor(other))

    monkeypatch.setattr(mge.distributed, "is_distributed", lambda: True)
    monkeypatch.setattr(mge.distributed.functional, "all_reduce_min", reduce(F.minimum, -9.0))
    monkeypatch.setattr(mge.distributed.functional, "all_reduce_max", reduce(F.maximum, 9.0))
    for cls in (Q.SyncMinMaxObserver, Q.SyncExponentialMovingAverageObserver):
        observer = cls()
        observer(mge.tensor([1.0, 2.0]))
        assert (observer.min_val.item(), observer.max_val.item()) == (-9.0, 9.0)
        assert asked == [mge.distributed.WORLD] * 2
        observer.disable()
        observer(mge.tensor([100.0]))
        assert observer.max_val.item() == 9.0 and len(asked) == 2
        asked.clear()


def test_a_range_for_each_filter() -> None:
    conv, fc = M.Conv2d(4, 6, 3, groups=2), M.Linear(3, 5)
    net = Q.quantize_qat(M.Sequential(conv, fc), qconfig=Q.per_channel_fakequant_qconfig)
    for layer, axes in ((net[0], (2, 3, 4)), (net[1], (1,))):
        layer.apply_quant_weight(layer.weight)
        w = layer.weight.numpy()
        want = np.maximum(np.abs(w).max(axes, keepdims=True) / np.float32(127), 1e-5)
        np.testing.assert_allclose(layer.get_weight_qparams().scale.numpy(), want, rtol=1e-6)
        dtype = layer.get_weight_dtype()
        np.testing.assert_allclose(get_scale(dtype), want.ravel(), rtol=1e-6)
    again = Q.quantize_qat(
        M.Sequential(M.Conv2d(4, 6, 3, groups=2), M.Linear(3, 5)), qconfig=Q.per_channel_fakequant_qconfig
    )
    again.load_state_dict(net.state_dict())
    assert again[0].get_weight_qparams() == net[0].get_weight_qparams()
    with pytest.raises(ValueError, match="per_channel=True is for the weight of a layer"):
        Q.MinMaxObserver(per_channel=True)(mge.tensor([1.0]))
    with pytest.raises(NotImplementedError, match="HistogramObserver: has one histogram"):
        Q.HistogramObserver(per_channel=True)


def test_zero_is_always_in_the_range_and_the_scale_never_below_eps() -> None:
    observer = Q.MinMaxObserver(ASYM, dtype="quint8")
    observer(mge.tensor([2.0, 5.0]))
    assert (
        observer.get_qparams().scale.item() == pytest.approx(5 / 255) and observer.get_qparams().zero_point.item() == 0
    )
    observer = Q.MinMaxObserver(eps=1e-3)
    observer(mge.tensor([0.0]))
    assert observer.get_qparams().scale.item() == pytest.approx(1e-3)


def test_eval_stops_observers_and_train_lets_them_go_on() -> None:
    net = Q.quantize_qat(M.Sequential(M.QuantStub()))
    observer = net[0].act_observer
    net(mge.tensor([1.0]))
    net.eval()
    assert not observer.enabled
    net(mge.tensor([9.0]))
    assert observer.max_val.item() == 1.0
    net.train()
    assert observer.enabled
    Q.disable_observer(net)
    net(mge.tensor([9.0]))
    assert observer.max_val.item() == 1.0
    Q.enable_observer(net)
    net(mge.tensor([9.0]))
    assert observer.max_val.item() == pytest.approx(1.8)


def test_observers_look_at_half_precision_in_float32() -> None:
    observer = Q.MinMaxObserver()
    observer(mge.tensor(np.float16([60000.0])))
    assert observer.max_val.dtype == np.float32 and observer.max_val.item() == 60000.0


def rebinned(counts: np.ndarray, low: float, high: float, new_low: float, new_high: float) -> np.ndarray:
    """Each old bin cut into 128 parts, each part put where it begins."""
    bins = len(counts)
    part = (high - low) / bins / 128
    out = np.zeros(bins)
    width = (new_high - new_low) / bins
    for b in range(bins):
        for p in range(128):
            middle = low + (b * 128 + p + 0.5) * part
            out[min(int((middle - new_low) / width), bins - 1)] += counts[b] / 128
    return out


def l2_error(counts: np.ndarray, low: float, width: float, first: int, last: int, levels: int) -> float:
    """The integral of (x - middle of its level)^2 over each bin, numerically."""
    begin, level, total = low + first * width, (last - first + 1) * width / levels, 0.0
    for b, n in enumerate(counts):
        if n:
            xs = low + (b + (np.arange(400) + 0.5) / 400) * width
            at = np.clip(np.floor((xs - begin) / level), 0, levels - 1)
            total += n * np.mean((xs - (begin + (at + 0.5) * level)) ** 2)
    return total


def test_histogram_grows_and_cuts_like_a_slow_reference() -> None:
    bins, levels = 64, 16
    observer = Q.HistogramObserver(bins=bins, mode=SYM, dtype="qint4")
    first, second = numbers(0, (500,)), numbers(1, (500,), 2.0)
    observer(mge.tensor(first))
    np.testing.assert_array_equal(observer.histogram.numpy(), np.histogram(first, bins)[0])
    low, high = float(observer.min_val.item()), float(observer.max_val.item())
    counts = observer.histogram.numpy()
    observer(mge.tensor(second))
    new_low, new_high = float(observer.min_val.item()), float(observer.max_val.item())
    assert new_low <= second.min() and new_high >= second.max()
    want = rebinned(counts, low, high, new_low, new_high) + np.histogram(second, bins, (new_low, new_high))[0]
    got = observer.histogram.numpy()
    assert got.sum() == pytest.approx(1000)
    np.testing.assert_allclose(np.cumsum(got), np.cumsum(want), atol=2.0)  # a part lies on one side or the other

    width = (new_high - new_low) / bins
    best = Q.observer.Histogram(got, new_low, new_high)
    for a, b in ((0, bins - 1), (3, bins - 5), (10, 40)):
        assert best._error(a, b, levels) == pytest.approx(l2_error(got, new_low, width, a, b, levels), rel=2e-2)
    begin, end = best.best_range(levels)
    a, b = round((begin - new_low) / width), round((end - new_low) / width) - 1
    here = l2_error(got, new_low, width, a, b, levels)
    assert here < l2_error(got, new_low, width, 0, bins - 1, levels)
    scale = observer.get_qparams().scale.item()
    assert scale == pytest.approx(max(-begin, end) / 7.5, rel=1e-5)


def test_histogram_cuts_off_what_is_rare() -> None:
    x = np.concatenate([numbers(0, (20000,)), np.float32([10.0])])
    plain, clever = Q.MinMaxObserver(dtype="qint4"), Q.HistogramObserver(dtype="qint4")
    for o in (plain, clever):
        o(mge.tensor(x))
    few, many = clever.get_qparams().scale.item(), plain.get_qparams().scale.item()
    assert few < many / 2

    def error(scale: float) -> float:
        return float(np.mean((ref.fake_quant(x.astype(np.float64), scale, 0, -8, 7) - x) ** 2))

    assert error(few) < error(many)


def test_histogram_of_little() -> None:
    observer = Q.HistogramObserver()
    assert observer.get_qparams().scale.item() == pytest.approx(1e-5)
    observer(mge.tensor(np.zeros((0, 3), np.float32)))
    observer(mge.tensor([2.0, 2.0]))
    assert observer.get_qparams().scale.item() == pytest.approx(2 / 127.5, rel=0.01)
    observer(mge.tensor([-1.0, 2.0]))
    assert observer.histogram.numpy().sum() == 4
    observer.eval()  # calibration in evaluation mode goes on
    observer(mge.tensor([4.0]))
    assert observer.histogram.numpy().sum() == pytest.approx(5)
    observer.disable()
    observer(mge.tensor([4.0]))
    assert observer.histogram.numpy().sum() == pytest.approx(5)


def test_passive_observer_takes_a_copy() -> None:
    observer = Q.PassiveObserver("qint8")
    assert observer.get_qparams() is None
    with pytest.raises(ValueError, match="PassiveObserver: has no scale yet. Run data"):
        observer.get_quantized_dtype()
    q = Q.create_qparams(dtype_meta="qint8", scale=mge.tensor(0.5))
    observer.set_qparams(q)
    observer.scale = 0.25
    assert q.scale.item() == 0.5 and observer.orig_scale == 0.5 and observer.get_qparams().scale.item() == 0.25
    with pytest.raises(AssertionError, match="the scale must be above 0; got 0"):
        observer.scale = 0
    with pytest.raises(AssertionError, match="input qparams' dtype is not equal to self.dtype"):
        observer.set_qparams(Q.create_qparams(dtype_meta="quint8", scale=1.0))
    with pytest.raises(AssertionError, match="Can not get an initialized scale"):
        observer.set_qparams(Q.create_qparams(dtype_meta="qint8"))


def test_mistakes_with_dtypes() -> None:
    with pytest.raises(ValueError, match="unknown dtype: int8, only support quint8, qint8"):
        Q.MinMaxObserver(dtype="int8")
    with pytest.raises(ValueError, match="dtype must be a name or a QuantDtypeMeta; got int"):
        Q.FakeQuantize(8)
    with pytest.raises(TypeError, match="abstract"):
        Q.Observer("qint8")  # type: ignore[abstract]
    with pytest.raises(AssertionError, match="needs the qparams of an observer"):
        Q.FakeQuantize("qint8")(mge.tensor([1.0]))
    with pytest.raises(AssertionError, match="only symmetric quantization is supported by TQT"):
        Q.TQT("qint8").set_qparams(Q.create_qparams(ASYM, "qint8", mge.tensor(1.0)))
    with pytest.raises(ValueError, match="QConfig must not receive observer instance"):
        Q.QConfig(Q.MinMaxObserver(), None, None, None)


# ---- fake-quant modules
def test_tqt_and_lsq_begin_with_a_scale_and_learn_it() -> None:
    x = numbers(2, (4, 6))
    tqt = Q.TQT("qint8")
    tqt.set_qparams(Q.create_qparams(dtype_meta="qint8", scale=mge.tensor(0.125)))
    assert tqt.scale.item() == -3.0 and tqt.get_qparams().scale.item() == 0.125
    np.testing.assert_array_equal(tqt(mge.tensor(x)).numpy(), tqt_forward(-128, 127, mge.tensor(x), tqt.scale).numpy())

    lsq = Q.LSQ("quint8")
    lsq.set_qparams(LSQParams(ASYM, lsq.dtype, mge.tensor(0.25), mge.tensor(7.0), mge.tensor(0.1)))
    q = lsq.get_qparams()
    assert (q.scale.item(), q.zero_point.item(), q.mode) == (0.25, 7.0, ASYM)
    assert q.grad_scale.item() == pytest.approx(0.1)
    want = lsq_forward(0, 255, mge.tensor(x), mge.tensor(0.25), mge.tensor(7.0))
    np.testing.assert_array_equal(lsq(mge.tensor(x)).numpy(), want.numpy())
    for module, parameter in ((tqt, tqt.scale), (lsq, lsq.step_size)):
        with GradManager().attach(list(module.parameters())) as gm:
            gm.backward(F.mean((module(mge.tensor(x)) - mge.tensor(x)) ** 2))
        assert parameter.grad is not None and np.isfinite(parameter.grad.item())
        module.disable()
        t = mge.tensor(x)
        assert module(t) is t
    lsq.set_qparams(Q.create_qparams(SYM, "quint8", mge.tensor(1e-7)))
    assert lsq.step_size.item() == 0.0 and lsq.get_qparams().scale.item() == pytest.approx(1e-5)


# ---- conversion
class Shared(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = M.Linear(4, 4)
        self.second = self.first
        self.parts = [M.Linear(4, 4), {"deep": M.ConvBn2d(3, 3, 1)}]
        self.left = M.Linear(4, 2)
        self.left.disable_quantize()
        self.quant = M.QuantStub(name="q")

    def forward(self, x: Any) -> Any:
        return self.left(self.parts[0](self.second(self.first(self.quant(x)))))


def test_quantize_qat_replaces_each_layer_once_wherever_it_is() -> None:
    net = Shared()
    weight = net.first.weight
    other = Q.quantize_qat(net, inplace=False)
    assert type(net.first) is M.Linear and type(other.first) is qat.Linear
    assert Q.quantize_qat(net) is net
    assert type(net.first) is qat.Linear and net.second is net.first and net.first.weight is weight
    assert type(net.parts[0]) is qat.Linear and type(net.parts[1]["deep"]) is qat.ConvBn2d
    assert type(net.parts[1]["deep"].conv) is M.Conv2d  # inside of a layer that is replaced
    assert type(net.left) is M.Linear and net.quant.name == "q"
    assert net(mge.tensor(numbers(0, (2, 4)))).shape == (2, 2)
    first = net.first
    Q.quantize_qat(net, qconfig=Q.min_max_fakequant_qconfig)  # again: new observers, the same layers
    assert net.first is first and type(first.act_observer) is Q.MinMaxObserver
    with pytest.warns(RuntimeWarning, match="quantize_qat: nothing in this Linear was replaced; the root is not"):
        root = Q.quantize_qat(M.Linear(2, 2))
    assert type(root) is M.Linear  # the root is never replaced


def test_layers_of_ones_own_need_a_mapping() -> None:
    class Mine(M.Conv2d):
        pass

    class MineQAT(qat.Conv2d):
        pass

    net = M.Sequential(Mine(2, 2, 1), M.ReLU())
    with pytest.raises(KeyError, match=r"quantize_qat: Mine is a subclass of Conv2d.*mapping=\{Mine: \.\.\.\}"):
        Q.quantize_qat(net, inplace=False)
    Q.quantize_qat(net, mapping={Mine: MineQAT})
    assert type(net[0]) is MineQAT and net[0].weight_observer is not None


def test_a_float_layer_of_ones_own_gets_a_qat_class() -> None:
    class Scale(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = mge.Parameter(np.float32([2.0]))

        def forward(self, x: Any) -> Any:
            return x * self.factor

    class ScaleQAT(Scale, qat.QATModule):
        def forward(self, x: Any) -> Any:
            return self.apply_quant_activation(x * self.apply_quant_weight(self.factor))

        @classmethod
        def from_float_module(cls, float_module: Any) -> Any:
            made = cls()
            made.factor = float_module.factor
            return made

    net = Q.quantize_qat(M.Sequential(M.QuantStub(), Scale()), mapping={Scale: ScaleQAT})
    x = numbers(3)
    y = net(mge.tensor(x))
    assert type(net[1]) is ScaleQAT and np.abs(y.numpy() - 2 * x).max() < 0.1


@pytest.mark.parametrize("name", [n for n in Q.__all__ if isinstance(getattr(Q, n), Q.QConfig)])
def test_every_preset_trains(name: str) -> None:
    net = Q.quantize_qat(
        M.Sequential(M.QuantStub(), M.ConvBnRelu2d(3, 4, 3), M.Conv2d(4, 2, 1), M.DequantStub()),
        qconfig=getattr(Q, name),
    )
    if "passive" in name or "easy" in name:
        Q.quantize_qat(net, qconfig=Q.min_max_fakequant_qconfig)
        net(mge.tensor(numbers(0, (2, 3, 6, 6))))
        Q.reset_qconfig(net, getattr(Q, name))
    x = mge.tensor(numbers(0, (2, 3, 6, 6)))
    gm = GradManager().attach(net.parameters())
    with gm:
        gm.backward(F.mean(net(x) ** 2))
    assert all(p.grad is not None and np.isfinite(p.grad.numpy()).all() for p in net.parameters())
    if name != "calibration_qconfig":
        levels = np.unique(np.round(net(x).numpy() / float(net[2].get_activation_qparams().scale.item()), 3))
        assert np.allclose(levels, np.round(levels))


def test_reset_qconfig_hands_scales_on() -> None:
    net = Q.quantize_qat(M.Sequential(M.QuantStub(), M.Linear(4, 4)), qconfig=Q.min_max_fakequant_qconfig)
    net(mge.tensor(numbers(0, (8, 4))))
    act, weight = net[1].get_activation_qparams().scale.item(), net[1].get_weight_qparams().scale.item()
    Q.reset_qconfig(net, Q.passive_qconfig)
    assert (net[1].act_observer.scale.item(), net[1].weight_observer.scale.item()) == (act, weight)
    learnt = Q.reset_qconfig(net, Q.tqt_qconfig, inplace=False)
    assert learnt[1].act_fake_quant.scale.item() == pytest.approx(math.log2(act), rel=1e-6)
    assert type(net[1].act_fake_quant) is Q.FakeQuantize
    lsq = Q.QConfig(None, None, partial(Q.LSQ, dtype="qint8_narrow"), partial(Q.LSQ, dtype="qint8"))
    Q.reset_qconfig(net, lsq)
    assert net[1].get_weight_qparams().scale.item() == pytest.approx(weight, rel=1e-5)


def test_switching_simulation_off_gives_the_float_network() -> None:
    float_net = M.Sequential(M.QuantStub(), M.Linear(4, 4), M.DequantStub())
    net = Q.quantize_qat(float_net, inplace=False)
    x = mge.tensor(numbers(0, (8, 4)))
    assert not np.array_equal(net(x).numpy(), float_net(x).numpy())
    Q.disable_fake_quant(net)
    np.testing.assert_array_equal(net(x).numpy(), float_net(x).numpy())
    Q.enable_fake_quant(net)
    assert not np.array_equal(net(x).numpy(), float_net(x).numpy())


def test_hooks_see_every_qat_layer() -> None:
    net = Q.quantize_qat(M.Sequential(M.QuantStub(), M.Linear(4, 4), M.ReLU()))
    seen: list[str] = []
    handles = hook_qat_module(net, lambda m, inputs, outputs: seen.append(type(m).__name__))
    net(mge.tensor(numbers(0, (2, 4))))
    assert seen == ["QuantStub", "Linear"]
    for h in handles:
        h.remove()
    net(mge.tensor(numbers(0, (2, 4))))
    assert len(seen) == 2


def test_easy_quant_searches_scales_that_fit_better() -> None:
    class Net(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.quant, self.conv, self.cat = M.QuantStub(), M.ConvRelu2d(3, 4, 3), M.Concat()
            self.product = M.BatchMatMulActivation(4, 8, 5)  # whose batch cannot be doubled

        def forward(self, x: Any) -> Any:
            x = self.conv(self.quant(x))
            x = self.cat([x, x * x], axis=1)
            return self.product(F.flatten(x, 2))

    x = mge.tensor(numbers(0, (4, 3, 6, 6)))
    mge.random.seed(5)
    net = Net()
    want = net(x).numpy()
    Q.quantize_qat(net, qconfig=Q.calibration_qconfig)
    net(x)
    with pytest.raises(
        ValueError, match="apply_easy_quant: needs scales that can be set, but Concat has a MinMaxObserver"
    ):
        Q.apply_easy_quant(net, x)
    Q.reset_qconfig(net, Q.easyquant_qconfig)

    def cosine() -> float:
        y = net(x).numpy()
        return float((y * want).sum() / np.sqrt((y * y).sum() * (want * want).sum()))

    before, was = cosine(), net.conv.training
    Q.apply_easy_quant(net, x, 0.7, 1.3, 25)
    assert cosine() > before - 1e-4 and net.conv.training == was and "forward" not in vars(net.conv)
    factors = np.linspace(0.7, 1.3, 25)
    for observer in (net.quant.act_observer, net.conv.weight_observer, net.conv.act_observer, net.cat.act_observer):
        assert np.isclose(observer.scale.item() / observer.orig_scale, factors, rtol=1e-5).any()


# ---- state
def test_observed_ranges_are_state() -> None:
    def build() -> Any:
        return Q.quantize_qat(M.Sequential(M.QuantStub(), M.ConvBn2d(3, 4, 1), M.DequantStub()))

    a, b = build(), build()
    x = mge.tensor(numbers(0, (2, 3, 4, 4)))
    a(x)
    assert {k for k in a.state_dict() if k.startswith("0.")} == {
        f"0.act_observer.{n}" for n in ("max_val", "min_val", "momentum", "runtime_momentum")
    }
    b.load_state_dict(a.state_dict())
    for other in (b, copy.deepcopy(a), saved(a)):
        a.eval()
        other.eval()
        np.testing.assert_array_equal(a(x).numpy(), other(x).numpy())
    again = saved(a)
    Q.reset_qconfig(again, Q.easyquant_qconfig)  # dtypes from a file are those of this program


def saved(net: Any) -> Any:
    file = io.BytesIO()
    mge.save(net, file)
    file.seek(0)
    return mge.load(file)


@pytest.mark.parametrize("preset", ["ema_fakequant_qconfig", "tqt_qconfig"])
@pytest.mark.parametrize("without_host", [False, True])
def test_a_traced_step_observes_and_learns_like_an_eager_one(preset: str, without_host: bool) -> None:
    data = [mge.tensor(numbers(s, (2, 3, 6, 6), 1 + 0.5 * s)) for s in range(6)]

    def run(traced: bool) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
        mge.random.seed(7)
        net = Q.quantize_qat(
            M.Sequential(M.QuantStub(), M.ConvBnRelu2d(3, 4, 3), M.Conv2d(4, 2, 1), M.DequantStub()),
            qconfig=getattr(Q, preset),
        )
        gm, opt = GradManager().attach(net.parameters()), mge.optimizer.SGD(net.parameters(), 0.05, momentum=0.9)

        def step(x: Any) -> Any:
            with gm:
                loss = F.mean((net(x) - 1) ** 2)
                gm.backward(loss)
            opt.step().clear_grad()
            return loss

        call = trace(without_host=without_host)(step) if traced else step
        return [call(x).numpy() for x in data], net.state_dict()

    losses, state = run(False)
    traced_losses, traced_state = run(True)
    np.testing.assert_array_equal(traced_losses, losses)
    for key, value in state.items():
        np.testing.assert_array_equal(traced_state[key], value, err_msg=key)


def test_networks_that_megengine_pickled() -> None:
    """QAT networks of four kinds and an integer one, written by MegEngine 1.13 with their results."""
    folder = pathlib.Path(__file__).parents[1] / "data" / "checkpoints"
    program = f"import megengine as mge\nprint(sorted(mge.load({str(folder / 'qatmodules.pkl')!r})))"  # imports nothing
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "['ema', 'int8', 'lsq', 'passive', 'tqt']", done.stderr
    with np.load(folder / "qatmodules.npz") as arrays:
        for name, net in mge.load(folder / "qatmodules.pkl").items():
            np.testing.assert_array_equal(net(mge.tensor(arrays["in"])).numpy(), arrays[name], err_msg=name)


def test_three_packages_name_the_same_layers() -> None:
    from megengine.module import qat, quantized
    from megengine.quantization.quantize import _get_convert_dict, _get_quantable_module_names

    names = _get_quantable_module_names()
    to_qat, to_quantized = _get_convert_dict()
    assert [getattr(M, n) for n in names] == list(to_qat) and len(names) == 17
    assert [getattr(qat, n) for n in names] == list(to_qat.values()) == list(to_quantized)
    assert [getattr(quantized, n) for n in names] == list(to_quantized.values())


def test_observers_of_files_that_do_not_say_per_channel() -> None:
    """MegEngine 1.13 has no such attribute: training went on until the first batch."""
    net = Q.quantize_qat(M.Sequential(M.Linear(3, 2)), qconfig=Q.min_max_fakequant_qconfig)
    for o in (net[0].weight_observer, net[0].act_observer):
        del o.__dict__["per_channel"]
    file = io.BytesIO()
    mge.save(net, file)
    file.seek(0)
    again, x = mge.load(file), mge.tensor([[1.0, -2.0, 0.5]])
    np.testing.assert_array_equal(again(x).numpy(), net(x).numpy())
    assert not again[0].act_observer.per_channel and again[0].act_observer.has_seen()
