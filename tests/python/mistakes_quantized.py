"""Mistakes with quantised tensors."""

from __future__ import annotations

import numpy as np
from mistake import ALL, mistake

import megengine as mge
import megengine.functional as F
import megengine.module.quantized as QM
from megengine.core.tensor import dtype as dt

X = mge.Tensor(np.ones((1, 2, 4, 4), "float32"))
Q = X.astype(dt.qint8(0.1))
W = Q[:, :, :1, :1]


@mistake(RuntimeError, "conv_bias_activation", "inp must be quantised", "float32", "astype", modes=ALL)
def a_float_input_of_a_quantised_convolution():
    F.quantized.conv_bias_activation(X, W, None)


@mistake(ValueError, "bias", "scale of the product", "0.5", modes=ALL)
def a_bias_of_another_scale():
    F.quantized.conv_bias_activation(Q, W, X[:, :1, :1, :1].astype(dt.qint32(0.5)))


@mistake(ValueError, "nonlinear_mode", "gelu", "identity, relu, sigmoid, h_swish")
def an_activation_that_is_not_there():
    F.quantized.conv_bias_activation(Q, W, None, nonlinear_mode="gelu")


@mistake(TypeError, "8 bits or less", "qint32", modes=ALL)
def sums_as_operands():
    F.quantized.matmul(Q[0, 0].astype(dt.qint32(0.1)), Q[0, 0])


@mistake(TypeError, "add", "qint8(0.1,0)", "qint8(0.2,0)", "differ", "astype", modes=ALL)
def two_scales_in_one_sum():
    Q + X.astype(dt.qint8(0.2))


@mistake(TypeError, "concat", "differ", "astype", modes=ALL)
def two_scales_joined():
    F.concat([Q, X.astype(dt.qint8(0.2))])


@mistake(ValueError, "scales", "axis", "axis=0")
def scales_without_their_axis():
    dt.qint8([0.1, 0.2])


@mistake(ValueError, "2 channels along axis 0", "[1,2,4,4]", modes=ALL)
def channels_of_another_axis():
    X.astype(dt.qint8([0.1, 0.2], axis=0))


@mistake(NotImplementedError, "slice", "per channel", "astype", modes=ALL)
def a_slice_of_channels():
    X.astype(dt.qint8([0.1, 0.2], axis=1))[:, :1]


@mistake(ValueError, "reshape", "parts the channels", "astype", modes=ALL)
def a_reshape_across_channels():
    X.astype(dt.qint8([0.1, 0.2], axis=1)).reshape(-1)


@mistake(ValueError, "scale", "above 0", "got 0")
def a_scale_of_nothing():
    X.astype(dt.qint8(0.0))


@mistake(ValueError, "9", "qint4", "-8 to 7")
def more_than_four_bits():
    mge.Tensor(np.array([9]), dtype=dt.qint4(1.0))


@mistake(ValueError, "200000 products", "leave 32 bits")
def a_sum_too_long():
    long = mge.Tensor(np.zeros((1, 200000)), dtype=dt.qint8(1.0))
    F.quantized.matmul(long, long, transpose_b=True)


@mistake(ValueError, "Quantized.Linear", "no weight", "from_qat_module")
def a_quantised_layer_made_by_hand():
    layer = QM.Linear()
    layer.eval()
    layer(Q[0, 0])


@mistake(ValueError, "Quantized.Elemwise", "'gelu'", "Known", "relu")
def a_function_without_a_quantised_form():
    QM.Elemwise("gelu")
