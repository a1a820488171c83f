"""Mistakes on the way from a float network to integers."""

from __future__ import annotations

import numpy as np
from mistake import mistake

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.quantization as Q

X = mge.Tensor(np.ones((2, 3, 8, 8), "float32"))


class Mine(M.Conv2d):
    pass


def simulated(*layers, seen=True, **kwargs):
    net = Q.quantize_qat(M.Sequential(*layers), **kwargs)
    if seen:
        net(X)
    net.eval()
    return net


@mistake(ValueError, "QConfig", "observer instance", "functools.partial(MinMaxObserver")
def an_observer_instead_of_its_maker():
    Q.QConfig(Q.MinMaxObserver(), None, None, None)


@mistake(ValueError, "unknown dtype: int8", "qint8")
def a_plain_dtype():
    Q.FakeQuantize("int8")


@mistake(KeyError, "quantize_qat", "Mine", "subclass of Conv2d", "mapping=", "disable_quantize")
def a_subclass_that_nothing_is_said_of():
    Q.quantize_qat(M.Sequential(Mine(3, 4, 1)))


@mistake(RuntimeWarning, "quantize_qat", "nothing", "Linear", "root", "Sequential")
def a_layer_as_the_root():
    Q.quantize_qat(M.Linear(2, 2))


@mistake(RuntimeWarning, "quantize", "nothing", "Sequential", "quantize_qat comes first")
def integers_without_simulation():
    Q.quantize(M.Sequential(M.Linear(2, 2)))


@mistake(RuntimeWarning, "quantize", "no data reached this Sequential", "training mode")
def integers_before_any_data():
    Q.quantize(simulated(M.QuantStub(), M.Conv2d(3, 4, 1), seen=False))


@mistake(ValueError, "inp must be quantised", "float32", "qint8")
def no_stub_before_the_first_layer():
    net = Q.quantize(simulated(M.Conv2d(3, 4, 1)))
    net(X)


@mistake(ValueError, "only support inference")
def training_of_integers():
    net = Q.quantize(simulated(M.QuantStub(), M.Conv2d(3, 4, 1)))
    net.train()
    net(X)


@mistake(ValueError, "apply_easy_quant", "QuantStub", "ExponentialMovingAverageObserver", "easyquant_qconfig")
def a_search_without_scales_that_can_be_set():
    net = simulated(M.QuantStub())
    Q.apply_easy_quant(net, X)


@mistake(ValueError, "ConvBn2d", "running statistics", "track_running_stats=True", "disable_quantize")
def folding_what_is_not_kept():
    net = simulated(M.ConvBn2d(3, 4, 1, track_running_stats=False), seen=False)
    net(X)


@mistake(AssertionError, "dtype is not equal", "qint8", "quint8")
def parameters_of_another_dtype():
    Q.FakeQuantize("qint8")(X, Q.create_qparams(dtype_meta="quint8", scale=0.1))


@mistake(ValueError, "fake_quant_tensor", "scale", "QParams")
def simulation_without_a_scale():
    Q.fake_quant_tensor(X, Q.create_qparams(dtype_meta="qint8"))


@mistake(ValueError, "fake_quant", "[2,3,8,8]", "[3]", "broadcast")
def a_scale_per_channel_in_the_wrong_shape():
    Q.fake_quant_tensor(X, Q.create_qparams(dtype_meta="qint8", scale=F.ones((3,))))
