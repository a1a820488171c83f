"""megengine.functional.nn, losses and metrics against NumPy in float64; gradients of what is composed in Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
from functional_helpers import RNG, X, check, grad_of, gradcheck, rand, same

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor, tensor
from megengine.autodiff import GradManager
from megengine.core._core import ops
from megengine.device import get_num_threads, set_num_threads

# ---- nn: activations


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "sigmoid": sigmoid,
    "hsigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "hswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "silu": lambda x: x * sigmoid(x),
    "gelu": lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "softplus": lambda x: np.logaddexp(x, 0),
    "logsigmoid": lambda x: -np.logaddexp(-x, 0),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name):
    a = rand(4, 5, lo=-8, hi=8)
    check(getattr(F, name)(Tensor(a)), ACTIVATIONS[name](a.astype("float64")), rtol=2e-5)
    gradcheck(getattr(F, name), rand(3) + 0.01)


def test_prelu():
    a, w = rand(2, 3, 2, 2), rand(1, 3, 1, 1)
    check(F.prelu(Tensor(a), Tensor(w)), np.where(a > 0, a, a.astype("float64") * w))
    gradcheck(F.prelu, rand(2, 3), rand(1, 3))


def np_softmax(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def test_softmax_family():
    a = rand(2, 3, 4, lo=-50, hi=50)
    d = a.astype("float64")
    for axis in (0, 1, -1):
        check(F.softmax(Tensor(a), axis), np_softmax(d, axis))
        check(F.logsoftmax(Tensor(a), axis), np.log(np_softmax(d, axis)), atol=1e-4)
        check(F.logsumexp(Tensor(a), axis), np.log(np.exp(d).sum(axis)))
        check(F.logsumexp(Tensor(a), axis, keepdims=True), np.log(np.exp(d).sum(axis, keepdims=True)))
    check(F.softmax(Tensor(a)), np_softmax(d, 0))
    check(F.softmax(Tensor(a[0])), np_softmax(d[0], 1))
    check(F.softmax(Tensor(a), [1, 2]), np_softmax(d, (1, 2)))
    check(F.logsoftmax(Tensor(a), (1, 2)), np.log(np_softmax(d, (1, 2))), atol=1e-4)
    check(F.logsumexp(Tensor(a), (0, 2)), np.log(np.exp(d).sum((0, 2))))
    one = rand(2, 3, 1, 4)
    check(F.logsumexp(Tensor(one), 1), np.log(np.exp(one.astype("float64")).sum(1)))
    minus = Tensor(np.full((2, 2), -np.inf, "float32"))
    assert F.logsumexp(minus, 1).tolist() == [-math.inf, -math.inf]
    gradcheck(lambda x: F.logsumexp(x, 1), rand(2, 3))
    gradcheck(lambda x: F.softmax(x, [0, 1]), rand(2, 3))


# ---- nn: convolution and pooling


def np_conv2d(x, w, stride=(1, 1), pad=(0, 0), dilate=(1, 1), groups=1):
    """Written for clarity: w is [O, C/g, kh, kw]."""
    n, c, h, width = x.shape
    o, cg, kh, kw = w.shape
    x = np.pad(x.astype("float64"), ((0, 0), (0, 0), (pad[0],) * 2, (pad[1],) * 2))
    oh = (h + 2 * pad[0] - dilate[0] * (kh - 1) - 1) // stride[0] + 1
    ow = (width + 2 * pad[1] - dilate[1] * (kw - 1) - 1) // stride[1] + 1
    y = np.zeros((n, o, oh, ow))
    for k in range(o):
        g = k // (o // groups)
        part = x[:, g * cg : (g + 1) * cg]
        for i in range(oh):
            for j in range(ow):
                top, left = i * stride[0], j * stride[1]
                window = part[:, :, top : top + dilate[0] * kh : dilate[0], left : left + dilate[1] * kw : dilate[1]]
                y[:, k, i, j] = (window[:, :, :kh, :kw] * w[k]).sum((1, 2, 3))
    return y


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"stride": 2},
        {"padding": 1},
        {"stride": (2, 1), "padding": (1, 2)},
        {"dilation": 2, "padding": 2},
        {"groups": 2},
        {"groups": 2, "padding": 1, "stride": 2},
    ],
    ids=str,
)
def test_conv2d(attrs):
    groups = attrs.get("groups", 1)
    x, w, b = rand(2, 4, 6, 7), rand(6, 4 // groups, 3, 3), rand(1, 6, 1, 1)
    pair = lambda v: (v, v) if isinstance(v, int) else v  # noqa: E731
    want = np_conv2d(
        x,
        w,
        pair(attrs.get("stride", 1)),
        pair(attrs.get("padding", 0)),
        pair(attrs.get("dilation", 1)),
        groups,
    )
    weight = w if groups == 1 else w.reshape(groups, 6 // groups, 4 // groups, 3, 3)
    check(F.conv2d(Tensor(x), Tensor(weight), **attrs), want, atol=1e-4)
    check(F.conv2d(Tensor(x), Tensor(weight), Tensor(b), **attrs), want + b, atol=1e-4)


def test_conv2d_errors():
    x, w = Tensor(rand(1, 4, 5, 5)), Tensor(rand(2, 4, 3, 3))
    with pytest.raises(RuntimeError, match="channels"):
        F.conv2d(Tensor(rand(1, 3, 5, 5)), w)
    with pytest.raises(NotImplementedError):
        F.conv2d(x, w, conv_mode="convolution")
    with pytest.raises(AssertionError):
        F.conv2d(x, w, stride=0)
    with pytest.raises(RuntimeError, match=r"conv3d: input must be \[N,C,D,H,W\]"):
        F.conv3d(x, w)


def test_conv1d():
    x, w, b = rand(2, 4, 9), rand(6, 4, 3), rand(1, 6, 1)
    want = np_conv2d(x[..., None], w[..., None], (2, 1), (1, 0))[..., 0]
    check(F.conv1d(Tensor(x), Tensor(w), Tensor(b), stride=2, padding=1), want + b, atol=1e-4)
    wg = rand(6, 2, 3)
    want = np_conv2d(x[..., None], wg[..., None], groups=2)[..., 0]
    check(F.conv1d(Tensor(x), Tensor(wg.reshape(2, 3, 2, 3)), groups=2), want, atol=1e-4)


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"stride": 2},
        {"stride": 2, "output_padding": 1},
        {"padding": 1},
        {"dilation": 2},
        {"groups": 2},
        {"stride": (1, 3), "output_padding": (0, 2)},
    ],
    ids=str,
)
def test_conv_transpose2d_is_the_adjoint_of_conv2d(attrs):
    groups = attrs.get("groups", 1)
    x = rand(2, 4, 5, 6)
    w = rand(4, 3, 3, 3) if groups == 1 else rand(groups, 2, 3, 3, 3)
    y = F.conv_transpose2d(Tensor(x), Tensor(w), **attrs)
    pair = lambda v: (v, v) if isinstance(v, int) else v  # noqa: E731
    s, p, d, op = (
        pair(attrs.get(k, v)) for k, v in (("stride", 1), ("padding", 0), ("dilation", 1), ("output_padding", 0))
    )
    size = tuple((n - 1) * s[i] - 2 * p[i] + d[i] * 2 + 1 + op[i] for i, n in enumerate((5, 6)))
    assert y.shape == (2, 3 * groups, *size)
    # <conv_transpose(x), v> == <x, conv(v)>
    v = rand(*y.shape)
    flat = w if groups == 1 else w.reshape(4, 3, 3, 3)
    back = np_conv2d(v, flat, s, p, d, groups)[:, :, :5, :6]
    np.testing.assert_allclose((y.numpy().astype("float64") * v).sum(), (x * back).sum(), rtol=1e-4)


def test_conv_transpose2d_shapes_and_bias():
    y = F.conv_transpose2d(F.ones((20, 16, 50, 100)), F.ones((16, 33, 3, 5)), stride=(2, 1), padding=(4, 2))
    assert y.shape == (20, 33, 93, 100)
    b = rand(1, 3, 1, 1)
    x, w = rand(1, 2, 3, 3), rand(2, 3, 2, 2)
    plain = F.conv_transpose2d(Tensor(x), Tensor(w)).numpy()
    check(F.conv_transpose2d(Tensor(x), Tensor(w), Tensor(b)), plain + b)
    with pytest.raises(AssertionError):
        F.conv_transpose2d(Tensor(x), Tensor(w), output_padding=1)


def np_pool(x, k, s, p, mode):
    n, c, h, w = x.shape
    oh, ow = (h + 2 * p[0] - k[0]) // s[0] + 1, (w + 2 * p[1] - k[1]) // s[1] + 1
    y = np.zeros((n, c, oh, ow))
    for i in range(oh):
        for j in range(ow):
            t, left = i * s[0] - p[0], j * s[1] - p[1]
            win = x[:, :, max(t, 0) : t + k[0], max(left, 0) : left + k[1]].astype("float64")
            if mode == "max":
                y[:, :, i, j] = win.max((2, 3))
            elif mode == "average":
                y[:, :, i, j] = win.sum((2, 3)) / (k[0] * k[1])
            else:
                y[:, :, i, j] = win.mean((2, 3))
    return y


@pytest.mark.parametrize("k, s, p", [((2, 2), (2, 2), (0, 0)), ((3, 3), (2, 2), (1, 1)), ((3, 2), (1, 3), (1, 0))])
def test_pooling(k, s, p):
    x = rand(2, 3, 7, 8)
    check(F.max_pool2d(Tensor(x), k, s, p), np_pool(x, k, s, p, "max"))
    check(F.avg_pool2d(Tensor(x), k, s, p), np_pool(x, k, s, p, "exclude"))
    check(F.avg_pool2d(Tensor(x), k, s, p, mode="average"), np_pool(x, k, s, p, "average"))


def test_pooling_defaults_and_errors():
    x = rand(1, 1, 4, 4)
    check(F.max_pool2d(Tensor(x), 2), np_pool(x, (2, 2), (2, 2), (0, 0), "max"))
    with pytest.raises(ValueError):
        F.avg_pool2d(Tensor(x), 2, mode="sum")


@pytest.mark.parametrize("oshp", [2, (2, 3), [1, 1], (7, 8)])
def test_adaptive_pooling(oshp):
    x = rand(2, 3, 7, 8)
    oh, ow = (oshp, oshp) if isinstance(oshp, int) else oshp
    s = (7 // oh, 8 // ow)
    k = (7 - (oh - 1) * s[0], 8 - (ow - 1) * s[1])
    check(F.adaptive_max_pool2d(Tensor(x), oshp), np_pool(x, k, s, (0, 0), "max"))
    check(F.adaptive_avg_pool2d(Tensor(x), oshp), np_pool(x, k, s, (0, 0), "exclude"))
    check(F.adaptive_avg_pool2d(Tensor(x), Tensor([oh, ow])), np_pool(x, k, s, (0, 0), "exclude"))
    with pytest.raises(RuntimeError):
        F.adaptive_avg_pool2d(Tensor(x), 9)


def test_sliding_window_and_its_adjoint():
    x = rand(2, 3, 6, 7)
    y = F.sliding_window(Tensor(x), (3, 2), padding=(1, 0), stride=(2, 1), dilation=(1, 2))
    p = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0)))
    assert y.shape == (2, 3, 3, 5, 3, 2)
    for i, j, a, b in ((0, 0, 0, 0), (2, 4, 2, 1), (1, 3, 0, 1)):
        np.testing.assert_array_equal(y.numpy()[:, :, i, j, a, b], p[:, :, 2 * i + a, j + 2 * b])
    v = rand(*y.shape)
    back = F.sliding_window_transpose(Tensor(v), (6, 7), (3, 2), (1, 0), (2, 1), (1, 2))
    assert back.shape == x.shape
    np.testing.assert_allclose((y.numpy() * v).sum(), (x * back.numpy()).sum(), rtol=1e-4)
    with pytest.raises(AssertionError):
        F.sliding_window_transpose(Tensor(v), (9, 9), (3, 2))


# ---- nn: normalisation


@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5), (2, 3, 4, 5)])
def test_batch_norm_training(shape):
    x, w, b = rand(*shape), rand(3), rand(3)
    d = x.astype("float64")
    axes = tuple(i for i in range(len(shape)) if i != 1)
    line = (1, 3) + (1,) * (len(shape) - 2)
    mean, var = d.mean(axes), d.var(axes)
    want = (d - mean.reshape(line)) / np.sqrt(var + 1e-5).reshape(line) * w.reshape(line) + b.reshape(line)
    rm, rv = Tensor(np.zeros((1, 3, 1, 1), "float32")), Tensor(np.ones((1, 3, 1, 1), "float32"))
    y = F.batch_norm(Tensor(x), rm, rv, Tensor(w.reshape(1, 3, 1, 1)), Tensor(b), training=True)
    check(y, want, rtol=1e-4, atol=1e-5)
    n = x.size // 3
    np.testing.assert_allclose(rm.numpy().reshape(-1), 0.1 * mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(rv.numpy().reshape(-1), 0.9 + 0.1 * var * n / (n - 1), rtol=1e-4)
    rm2, rv2 = rm.numpy().copy(), rv.numpy().copy()
    y1 = F.batch_norm(Tensor(x), rm, rv, Tensor(w), Tensor(b), training=False)
    y2 = F.batch_norm(Tensor(x), rm, rv, Tensor(w), Tensor(b), training=False)
    np.testing.assert_array_equal(y1.numpy(), y2.numpy())
    np.testing.assert_array_equal(rm.numpy(), rm2)
    rm2, rv2 = rm2.astype("float64").reshape(line), rv2.astype("float64").reshape(line)
    want = (d - rm2) / np.sqrt(rv2 + 1e-5) * w.reshape(line) + b.reshape(line)
    check(y1, want, rtol=1e-4, atol=1e-5)


def test_batch_norm_forms():
    x = Tensor(rand(4, 3, 2, 2))
    rm, rv = Tensor(np.zeros((1, 3, 1, 1), "float32")), Tensor(np.ones((1, 3, 1, 1), "float32"))
    y, m, v = F.batch_norm(x, rm, rv, training=True, inplace=False)
    assert rm.numpy().sum() == 0 and m.numpy().sum() != 0
    y, m, v = F.batch_norm(x, rm, None, training=True, inplace=False)
    assert v is None and isinstance(m, Tensor)
    assert isinstance(F.batch_norm(x, training=True, inplace=False), Tensor)
    with pytest.raises(AssertionError):
        F.batch_norm(x)
    empty = Tensor(np.zeros((0, 3, 2, 2), "float32"))
    assert F.batch_norm(empty, rm, rv, training=True).shape == (0, 3, 2, 2)
    assert rm.numpy().sum() == 0
    one = Tensor(np.zeros((3,), "float32"))
    F.batch_norm(x, one, Tensor(np.ones(3, "float32")), training=True)
    assert one.shape == (3,) and one.numpy().any()


def test_layer_group_instance_general_norm():
    x = rand(2, 6, 3, 4)
    d = x.astype("float64")

    def normal(v, axes):
        return (v - v.mean(axes, keepdims=True)) / np.sqrt(v.var(axes, keepdims=True) + 1e-5)

    tol = {"rtol": 1e-4, "atol": 1e-5}
    w, b = rand(3, 4), rand(3, 4)
    check(F.layer_norm(Tensor(x), (3, 4), False), normal(d, (2, 3)), **tol)
    check(F.layer_norm(Tensor(x), (3, 4), True, Tensor(w), Tensor(b)), normal(d, (2, 3)) * w + b, **tol)
    check(F.layer_norm(Tensor(x), 4, False), normal(d, (3,)), **tol)
    g = normal(d.reshape(2, 3, -1), (2,)).reshape(x.shape)
    c, e = rand(6), rand(6)
    check(F.group_norm(Tensor(x), 3, False), g, **tol)
    check(F.group_norm(Tensor(x), 3, True, Tensor(c), Tensor(e)), g * c[:, None, None] + e[:, None, None], **tol)
    check(F.instance_norm(Tensor(x), False), normal(d, (2, 3)), **tol)
    for axes in (1, (1, 3), (0, 2), (-1,)):
        at = (axes,) if isinstance(axes, int) else axes
        check(F.general_norm(Tensor(x), axes, False), normal(d, at), **tol)
    w, b = rand(6, 4), rand(6, 4)
    want = normal(d, (1, 3)) * w[:, None] + b[:, None]
    check(F.general_norm(Tensor(x), (1, 3), True, Tensor(w), Tensor(b)), want, **tol)
    with pytest.raises(AssertionError):
        F.general_norm(Tensor(x), (3, 1), False)
    with pytest.raises(AssertionError):
        F.group_norm(Tensor(x), 4, False)
    with pytest.raises(RuntimeError):
        F.layer_norm(Tensor(x), (4, 3), False)
    gradcheck(lambda v: F.general_norm(v, 0, False), rand(3, 2))


def test_local_response_norm():
    x = rand(2, 6, 2, 2)
    d = x.astype("float64")
    want = np.zeros_like(d)
    for c in range(6):
        near = d[:, max(c - 2, 0) : c + 3]
        want[:, c] = d[:, c] * (2.0 + 1e-4 * (near**2).sum(1)) ** -0.75
    check(F.local_response_norm(Tensor(x)), want)
    with pytest.raises(ValueError):
        F.local_response_norm(Tensor(x), 4)


# ---- nn: the rest


def test_linear():
    x, w, b = rand(4, 3), rand(2, 3), rand(2)
    check(F.linear(Tensor(x), Tensor(w), Tensor(b)), x.astype("float64") @ w.T + b)
    check(F.linear(Tensor(x[0]), Tensor(w)), x[0].astype("float64") @ w.T)
    check(F.linear(Tensor(rand(2, 4, 3)), Tensor(w)).sum() * 0, 0.0)


def test_dropout():
    mge.random.seed(3)
    x = F.ones((10000,))
    with GradManager().attach(x) as gm:
        y = F.dropout(x, 0.3)
        gm.backward(y)
    v = y.numpy()
    assert set(np.unique(v)) == {np.float32(0), np.float32(1 / 0.7)}
    assert abs((v == 0).mean() - 0.3) < 0.02
    np.testing.assert_array_equal(x.grad.numpy(), v)
    z = F.dropout(x, 0.3)
    assert (z.numpy() != v).any()
    mge.random.seed(3)
    np.testing.assert_array_equal(F.dropout(x, 0.3).numpy(), v)
    assert F.dropout(x, 0.3, training=False) is x and F.dropout(x, 0.0) is x
    assert F.dropout(Tensor(1.0), 0.5).shape == ()
    with pytest.raises(AssertionError):
        F.dropout(x, 1.0)


@pytest.mark.parametrize("without_host", [False, True])
def test_traced_dropout_draws_anew_on_each_call(without_host):
    x = F.ones((100,))
    drop = mge.jit.trace(lambda x: F.dropout(x, 0.5), without_host=without_host)
    values = [drop(x).numpy() for _ in range(4)]
    assert all((a != b).any() for a, b in zip(values, values[1:]))
    mge.random.seed(11)
    want = [F.dropout(x, 0.5).numpy() for _ in range(2)]
    mge.random.seed(11)
    for w in want:
        np.testing.assert_array_equal(drop(x).numpy(), w)


def test_one_hot_embedding_indexing_one_hot():
    i = RNG.integers(0, 4, (2, 3))
    check(F.one_hot(Tensor(i), 4), np.eye(4)[i])
    assert F.one_hot(Tensor(i), 4).dtype == np.int32
    w = rand(5, 3)
    check(F.embedding(Tensor(i), Tensor(w)), w[i])
    for kwargs in ({"padding_idx": 0}, {"max_norm": 1.0}, {"norm_type": 2.0}):
        with pytest.raises(ValueError):
            F.embedding(Tensor(i), Tensor(w), **kwargs)
    x = rand(2, 4, 3)
    check(F.indexing_one_hot(Tensor(x), Tensor(i)), np.take_along_axis(x, i[:, None], 1)[:, 0])
    check(F.indexing_one_hot(Tensor(x), Tensor(i), keepdims=True), np.take_along_axis(x, i[:, None], 1))
    j = RNG.integers(0, 3, (2, 4))
    check(
        F.indexing_one_hot(Tensor(x), Tensor(j.astype("float32")), axis=-1),
        np.take_along_axis(x, j[..., None], 2)[..., 0],
    )


@pytest.mark.parametrize(
    "mode, np_mode", [("constant", "constant"), ("EDGE", "edge"), ("replicate", "edge"), ("REFLECT", "reflect")]
)
def test_pad(mode, np_mode):
    x = rand(3, 4, 5)
    full = ((1, 2), (0, 1), (3, 0))
    for widths in (full, full[:1], ((0, 0),)):
        padded = widths + ((0, 0),) * (3 - len(widths))
        check(F.pad(Tensor(x), widths, mode), np.pad(x, padded, mode=np_mode))
    check(F.pad(Tensor(x), full, constant_value=5), np.pad(x, full, constant_values=5))
    gradcheck(lambda v: F.pad(v, ((1, 1), (2, 1)), mode), rand(2, 3))


def test_pad_errors():
    with pytest.raises(ValueError):
        F.pad(Tensor([1.0]), ((1, 1),), "wrap")
    with pytest.raises(ValueError):
        F.pad(Tensor([1.0]), ((1, 1), (1, 1)))
    with pytest.raises(ValueError):
        F.pad(Tensor([1.0]), ((-1, 1),))


@pytest.mark.parametrize("lead", [(), (2,), (2, 3), (1, 2, 2, 2)])
def test_pixel_shuffle(lead):
    x = np.arange(np.prod((*lead, 8, 3, 2)), dtype="float32").reshape(*lead, 8, 3, 2)
    y = F.pixel_shuffle(Tensor(x), 2)
    assert y.shape == (*lead, 2, 6, 4)
    want = x.reshape(-1, 2, 2, 2, 3, 2).transpose(0, 1, 4, 2, 5, 3).reshape(y.shape)
    check(y, want)


# ---- loss and metric


def np_xent(x, t):
    z = x - x.max(1, keepdims=True)
    logp = z - np.log(np.exp(z).sum(1, keepdims=True))
    return -np.take_along_axis(logp, np.expand_dims(t, 1), 1)[:, 0], logp


def test_cross_entropy():
    x, t = rand(6, 4, lo=-150, hi=150), RNG.integers(0, 4, 6)
    want, logp = np_xent(x.astype("float64"), t)
    check(F.loss.cross_entropy(Tensor(x), Tensor(t)), want.mean())
    check(F.nn.cross_entropy(Tensor(x), t), want.mean())
    check(F.loss.cross_entropy(Tensor(x), Tensor(t), axis=-1, reduction="sum"), want.sum())
    check(F.loss.cross_entropy(Tensor(x), Tensor(t), reduction="none"), want, atol=1e-4)
    check(F.loss.cross_entropy(Tensor(x), Tensor(t), 1, True, 0, "none"), want, atol=1e-4)
    s = 0.1
    smooth = (1 - s) * want - s * logp.mean(1)
    check(F.loss.cross_entropy(Tensor(x), Tensor(t), label_smooth=s, reduction="none"), smooth, atol=1e-4)
    p = np_softmax(rand(6, 4).astype("float64"), 1).astype("float32")
    wantp = -np.log(p.astype("float64"))[np.arange(6), t]
    check(F.loss.cross_entropy(Tensor(p), Tensor(t), with_logits=False), wantp.mean())
    x4, t4 = rand(2, 3, 4, 5), RNG.integers(0, 3, (2, 4, 5))
    check(F.loss.cross_entropy(Tensor(x4), Tensor(t4), reduction="none"), np_xent(x4.astype("float64"), t4)[0])
    with pytest.raises(AssertionError):
        F.loss.cross_entropy(Tensor(x), Tensor(x))
    for bad in ("MEAN", "max"):
        with pytest.raises(ValueError):
            F.loss.cross_entropy(Tensor(x), Tensor(t), reduction=bad)
    gradcheck(lambda v: F.loss.cross_entropy(v, Tensor([1, 0]), label_smooth=0.1), rand(2, 3))
    gradcheck(lambda v: F.loss.cross_entropy(v, Tensor([1, 0])), rand(2, 3))


def test_cross_entropy_label_out_of_range():
    with pytest.raises((RuntimeError, IndexError), match="7"):
        F.loss.cross_entropy(Tensor(rand(1, 4)), Tensor([7])).numpy()


def test_other_losses():
    x, y = rand(3, 4), rand(3, 4)
    d = x.astype("float64") - y
    check(F.loss.l1_loss(Tensor(x), Tensor(y)), np.abs(d).mean())
    check(F.loss.l1_loss(Tensor(x), Tensor(y), "none"), np.abs(d))  # positional reduction counts
    check(F.loss.square_loss(Tensor(x), Tensor(y), reduction="sum"), (d**2).sum())
    t = RNG.integers(0, 2, (3, 4)).astype("float32")
    big = rand(3, 4, lo=-100, hi=100)
    want = np.logaddexp(0, big.astype("float64")) - big.astype("float64") * t
    check(F.loss.binary_cross_entropy(Tensor(big), Tensor(t), reduction="none"), want, atol=1e-5)
    p = sigmoid(rand(3, 4).astype("float64")).astype("float32")
    want = -(t * np.log(p.astype("float64")) + (1 - t) * np.log1p(-p.astype("float64")))
    check(F.loss.binary_cross_entropy(Tensor(p), Tensor(t), with_logits=False), want.mean())
    label = np.where(t > 0, 1.0, -1.0)
    hinge = np.maximum(1 - x.astype("float64") * label, 0)
    check(F.loss.hinge_loss(Tensor(x), Tensor(label)), hinge.sum(1).mean())
    check(F.loss.hinge_loss(Tensor(x), Tensor(label), "L2", "sum"), (hinge**2).sum())
    check(F.loss.hinge_loss(Tensor(x), Tensor(label), "l2", "sum"), (hinge**2).sum())
    with pytest.raises(AssertionError, match="norm must be L1 or L2; got 'L3'"):
        F.loss.hinge_loss(Tensor(x), Tensor(label), "L3")


def test_topk_accuracy():
    x, t = RNG.integers(0, 4, (50, 6)).astype("float32"), RNG.integers(0, 6, 50)
    order = np.argsort(-x, axis=1, kind="stable")
    want = [(order[:, :k] == t[:, None]).any(1).mean() for k in (1, 3, 6)]
    got = F.topk_accuracy(Tensor(x), Tensor(t), (1, 3, 6))
    assert [round(g.item(), 5) for g in got] == [round(w, 5) for w in want]
    assert F.topk_accuracy(Tensor(x), Tensor(t)).shape == ()
    assert isinstance(F.topk_accuracy(Tensor(x), Tensor(t), (2,)), Tensor)


# ---- attention


def np_attention(q, k, v, w, heads, mask=None):
    wq, wk, wv, wo, bq, bk, bv, bo = w
    q, k, v = q @ wq + bq, k @ wk + bk, v @ wv + bv
    n, length, e = q.shape
    split = lambda x: x.reshape(n, -1, heads, e // heads).transpose(0, 2, 1, 3)  # noqa: E731
    q, k, v = split(q), split(k), split(v)
    s = q @ k.transpose(0, 1, 3, 2) / math.sqrt(e // heads)
    if mask is not None:
        s = s + mask
    p = np_softmax(s, -1)
    return (p @ v).transpose(0, 2, 1, 3).reshape(n, length, e) @ wo + bo, p


def test_multi_head_attention():
    n, length, source, e, heads = 2, 3, 4, 8, 2
    q, k, v = (rand(n, s, e).astype("float64") for s in (length, source, source))
    parts = [rand(e, e).astype("float64") for _ in range(4)] + [rand(e).astype("float64") for _ in range(4)]
    flat = Tensor(np.concatenate([p.reshape(-1) for p in parts]))
    common = {"qbias": True, "kbias": True, "vbias": True, "obias": True}
    args = (Tensor(q), Tensor(k), Tensor(v), e, heads, 0.0, 0.0, flat)
    want, weights = np_attention(q, k, v, parts, heads)
    y, w = F.multi_head_attention(*args, **common)
    check(y, want, rtol=1e-4, atol=1e-4)
    assert w is None
    y, w = F.multi_head_attention(*args, **common, need_weights=True)
    check(w, weights.reshape(n * heads, length, source), rtol=1e-4)
    y, w = F.multi_head_attention(*args, **common, need_weights=True, average_attn_weights=True)
    check(w, weights.mean(1), rtol=1e-4)
    hide = np.zeros((length, source), bool)
    hide[0, 1] = hide[2, 3] = True
    want, _ = np_attention(q, k, v, parts, heads, np.where(hide, -np.inf, 0))
    check(F.multi_head_attention(*args, **common, attn_mask=Tensor(hide))[0], want, rtol=1e-4, atol=1e-4)
    keys = np.array([[False, True, False, False], [False, False, False, True]])
    want, _ = np_attention(q, k, v, parts, heads, np.where(keys, -np.inf, 0)[:, None, None])
    check(F.multi_head_attention(*args, **common, key_padding_mask=Tensor(keys))[0], want, rtol=1e-4, atol=1e-4)
    causal = np.triu(np.full((length, length), -np.inf), 1)
    want, _ = np_attention(q, q, q, parts, heads, causal)
    same = (Tensor(q), Tensor(q), Tensor(q), *args[3:])
    check(F.multi_head_attention(*same, **common, is_causal=True)[0], want, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="io_weight_bias"):
        F.multi_head_attention(*args[:-1], flat[:10], **common)


@pytest.mark.parametrize("width", (1024, 1021))
@pytest.mark.parametrize("op", ("softmax", "logsoftmax", "layer_norm"))
def test_large_results_have_the_bits_of_small_ones(op: str, width: int) -> None:
    """From 32 MB on results are written past the cache, in whole lines where rows allow it."""
    scale = np.linspace(-1, 1, width, dtype=np.float32)
    run = {
        "softmax": lambda x: F.softmax(x, 1),
        "logsoftmax": lambda x: F.logsoftmax(x, 1),
        "layer_norm": lambda x: F.layer_norm(x, (width,), True, Tensor(scale), Tensor(scale)),
    }[op]
    x = np.random.default_rng(1).standard_normal((8400, width), dtype=np.float32)
    whole = run(Tensor(x)).numpy()
    assert whole.nbytes >= 32 << 20
    for rows in np.split(np.arange(8400), 8):
        np.testing.assert_array_equal(whole[rows], run(Tensor(x[rows])).numpy())


@pytest.mark.parametrize("shape", ((4096, 2064), (3000, 2801)))
def test_large_transposed_copies(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    np.testing.assert_array_equal(F.flatten(Tensor(x).transpose(1, 0)).numpy(), x.T.reshape(-1))


@pytest.mark.parametrize("rows, width, outs", [(3, 7, 5), (40, 1300, 70), (300, 300, 400), (1, 64, 33), (4, 700, 1000)])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_bias_of_a_product_is_added_after_the_sum(rows: int, width: int, outs: int, threads: int) -> None:
    # The same bits as two ops: small, several blocks of the sum, a library's product, few rows.
    rng = np.random.default_rng(rows)
    x, w, b = (Tensor(rng.standard_normal(s).astype("float32")) for s in [(rows, width), (outs, width), (outs,)])
    before = get_num_threads()
    set_num_threads(threads)
    fused, split = F.linear(x, w, b).numpy(), (F.matmul(x, w, transpose_b=True) + b).numpy()
    set_num_threads(before)
    np.testing.assert_array_equal(fused, split)
    want = x.numpy().astype("float64") @ w.numpy().astype("float64").T + b.numpy()
    np.testing.assert_allclose(fused, want, atol=1e-6 * width, rtol=1e-5)


def test_a_bias_that_broadcasts() -> None:
    x, w = Tensor(np.ones((2, 3), "float32")), Tensor(np.ones((4, 3), "float32"))
    assert F.linear(x, w, Tensor([1.0])).tolist() == [[4.0] * 4] * 2
    assert F.linear(x, w, Tensor(np.ones((2, 1), "float32"))).shape == (2, 4)
    with pytest.raises(ValueError, match=r"matmul: bias must have shape \[4\]"):
        ops.matmul(x, w, Tensor([1.0, 2.0]), tb=True)


# ---- what functions take and refuse


def test_arguments_of_losses() -> None:
    label = np.array([0, 1, 2], "int32")
    base = F.nn.cross_entropy(tensor(X), tensor(label)).item()
    assert F.nn.cross_entropy(tensor(X), label, axis=-1).item() == base
    for bad in ("MEAN", "max"):
        with pytest.raises(ValueError):
            F.nn.cross_entropy(tensor(X), label, reduction=bad)
    smooth = F.nn.cross_entropy(tensor(X), label, label_smooth=0.1, reduction="none").mean().item()
    assert smooth == pytest.approx(F.nn.cross_entropy(tensor(X), label, label_smooth=0.1).item(), rel=1e-6)
    wide = F.nn.cross_entropy(tensor([[150.0, -150.0]]), tensor([1]))
    assert wide.item() == pytest.approx(300)
    assert F.nn.hinge_loss(tensor([[1.0, 2.0], [0.5, 0.5]]), tensor([[-1.0, -1.0], [1.0, 1.0]])).item() == 3.0


def test_dropout_mask_is_the_gradient_mask() -> None:
    x = tensor(np.ones((100,), "float32"))
    gm = GradManager().attach([x])
    with gm:
        y = F.dropout(x, 0.4)
        gm.backward(y.sum())
    np.testing.assert_array_equal(x.grad.numpy(), y.numpy())
    assert F.dropout(tensor(1.0), 0.5).shape == ()
    mge.random.seed(3)
    a = F.dropout(x, 0.4).numpy()
    mge.random.seed(3)
    np.testing.assert_array_equal(F.dropout(x, 0.4).numpy(), a)


def test_pads_and_pools() -> None:
    for mode, np_mode in (("CONSTANT", "constant"), ("EDGE", "edge"), ("REFLECT", "reflect"), ("replicate", "edge")):
        same(F.nn.pad(tensor(X), ((1, 2),), mode), np.pad(X, ((1, 2), (0, 0)), np_mode))
    image = np.arange(16, dtype="float32").reshape(1, 1, 4, 4)
    same(F.adaptive_max_pool2d(tensor(image), 2), image[:, :, 1::2, 1::2])
    assert grad_of(lambda x: F.adaptive_max_pool2d(x, 2), image).sum() == 4


def test_conv_with_zero_strides_and_mixed_floats() -> None:
    base = np.random.RandomState(0).uniform(-1, 1, (1, 3, 5, 5)).astype("float32")
    wide = np.broadcast_to(base, (4, 3, 5, 5))
    w = np.ones((2, 3, 3, 3), "float32")
    same(F.conv2d(tensor(wide), tensor(w))[0], F.conv2d(tensor(base), tensor(w)).numpy()[0])
    half = F.conv2d(tensor(base.astype("float16")), tensor(w))
    want = F.conv2d(tensor(base.astype("float16").astype("float32")), tensor(w))
    assert half.dtype == np.float32
    np.testing.assert_array_equal(half.numpy(), want.numpy())


def test_batch_norm_statistics() -> None:
    bn = M.BatchNorm2d(3)
    x = np.random.RandomState(1).normal(2, 3, (4, 3, 5, 5)).astype("float32")
    bn(tensor(x))
    same(bn.running_var.reshape(-1), 0.9 + 0.1 * x.var((0, 2, 3), ddof=1))
    bn.eval()
    a, b = bn(tensor(x)).numpy(), bn(tensor(x)).numpy()
    np.testing.assert_array_equal(a, b)
    bn.train()
    assert bn(tensor(np.zeros((0, 3, 2, 2)))).shape == (0, 3, 2, 2)


def test_transposed_convolution_sizes() -> None:
    x, w = tensor(np.zeros((2, 16, 5, 8), "float32")), tensor(np.zeros((16, 4, 3, 5), "float32"))
    y = F.conv_transpose2d(x, w, stride=(2, 1), padding=(4, 2), output_padding=(1, 0), dilation=(2, 1))
    assert y.shape == (2, 4, (5 - 1) * 2 - 8 + 2 * 2 + 1 + 1, 8 - 1 - 4 + 4 + 1)


def test_leaky_gradients_at_zero_are_those_of_positive_numbers() -> None:
    x = np.array([0.0, 3.0, -1.0], "float32")
    np.testing.assert_allclose(grad_of(lambda t: F.leaky_relu(t, 0.25), x), [1.0, 1.0, 0.25])
    np.testing.assert_allclose(grad_of(lambda t: F.prelu(t, tensor([0.25])), x), [1.0, 1.0, 0.25])


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_pools_of_bytes_are_bytes(dtype: str) -> None:
    x = np.array([[1, 2, 5, 6], [3, 5, 7, 8]], dtype).reshape(1, 1, 2, 4)
    assert F.max_pool2d(tensor(x), 2).dtype == np.dtype(dtype) == F.avg_pool2d(tensor(x), 2).dtype
    assert F.max_pool2d(tensor(x), 2).numpy().tolist() == [[[[5, 8]]]]
    assert F.avg_pool2d(tensor(x), 2).numpy().tolist() == [[[[3, 7]]]]  # 2.75 and 6.5: halves away from zero


def test_modes_in_capitals() -> None:
    x = F.arange(16).reshape(1, 1, 4, 4)
    same(F.avg_pool2d(x, 3, 2, 1, mode="AVERAGE"), F.avg_pool2d(x, 3, 2, 1, mode="average").numpy())
    same(F.vision.interpolate(x, (8, 8), mode="BILINEAR"), F.vision.interpolate(x, (8, 8)).numpy())


def test_activations_have_old_names_too() -> None:
    for name in ("relu", "relu6", "sigmoid", "hsigmoid", "hswish"):
        assert getattr(F.elemwise, name)(tensor(X)).numpy().tolist() == getattr(F, name)(tensor(X)).numpy().tolist()
        assert name not in F.elemwise.__all__


def test_topk_accuracy_of_more_than_there_is():
    for bad in (0, 5, (1, 9), ()):
        with pytest.raises(RuntimeError, match="from 1 to the number of classes"):
            F.topk_accuracy(Tensor(rand(3, 4)), Tensor([0, 1, 2]), bad)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(4, 6), (3, 700), (2, 3, 2, 2), (2, 3, 5, 7), (1, 5, 40, 40)], ids=str)
def test_batch_norm_of_16_bits_rounds_each_step(shape: tuple[int, ...], dtype: str) -> None:
    x = Tensor(rand(*shape)).astype(dtype)
    stat = (1, shape[1]) + (1,) * (len(shape) - 2)
    mean, w, b = (Tensor(rand(*stat)).astype(dtype) for _ in range(3))
    var = Tensor(np.abs(rand(*stat)) + 0.1).astype(dtype)
    scale = w / F.sqrt(var + 1e-5)
    want = x * scale + (b - mean * scale)
    for turned in (x, F.copy(x.transpose(1, 0, *range(2, x.ndim))).transpose(1, 0, *range(2, x.ndim))):
        got = ops.batch_norm_infer(turned, *(t.reshape(-1) for t in (w, b, mean, var)), eps=1e-5)
        assert got.dtype == x.dtype
        np.testing.assert_array_equal(got.astype("float32").numpy(), want.astype("float32").numpy())


def test_padding_makes_nothing_but_its_result() -> None:
    """Once what was filled was copied before the tensor was put in."""
    x = Tensor(np.ones((500, 1000), "float32"))
    for pad in (lambda: F.pad(x, ((1, 1), (2, 2))), lambda: F.diag(x[0])):
        size = pad().size * 4
        mge.reset_max_memory_stats()
        before = mge.get_max_allocated_memory()
        y = pad()
        assert mge.get_max_allocated_memory() - before < 1.2 * size
        del y
