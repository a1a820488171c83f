"""Integer products and other ops on quantised tensors, against sums in NumPy's int64; 0 differing values allowed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine import jit
from megengine.core import _core
from megengine.core._imperative_rt.core2 import apply
from megengine.core.ops import builtin
from megengine.core.tensor import dtype as dt

RNG = np.random.RandomState(11)


def away(x) -> np.ndarray:
    """C's round of float32, in float64."""
    x = np.asarray(x, dtype="float32").astype("float64")
    return np.sign(x) * np.floor(np.abs(x) + 0.5)


def meta_of(dtype) -> dt.QuantDtypeMeta:
    return dt._builtin_quant_dtypes_by_cname[dtype.metadata["mgb_dtype"]["name"]]


def zero_of(dtype):
    return np.asarray(dtype.metadata["mgb_dtype"].get("zero_point", 0))


def stored(x, dtype) -> np.ndarray:
    """Real float32 numbers as the integers of a dtype with one scale."""
    m = meta_of(dtype)
    q = np.clip(away(x / np.float32(dt.get_scale(dtype))) + zero_of(dtype), m.qmin, m.qmax)
    return np.where(np.isnan(q), m.qmin, q).astype("int64")


def along(values, ndim, axis) -> np.ndarray:
    v = np.asarray(values)
    return v if v.ndim == 0 else v.reshape([-1 if i == axis else 1 for i in range(ndim)])


def full_range(shape, dtype, seed=0) -> np.ndarray:
    """Integers of the whole range of a dtype, its ends among them."""
    m = meta_of(dtype)
    q = np.random.RandomState(seed).randint(m.qmin, m.qmax + 1, shape)
    flat = q.reshape(-1)
    flat[: min(2, flat.size)] = [m.qmin, m.qmax][: min(2, flat.size)]
    return q


def conv_sums(x, w, stride, pad, dilate, groups) -> np.ndarray:
    """x [N,C,H,W], w [O,C/g,kh,kw] in int64."""
    n, c, h, wd = x.shape
    o, cg, kh, kw = w.shape
    x = np.pad(x, ((0, 0), (0, 0), (pad[0],) * 2, (pad[1],) * 2))
    oh = (h + 2 * pad[0] - dilate[0] * (kh - 1) - 1) // stride[0] + 1
    ow = (wd + 2 * pad[1] - dilate[1] * (kw - 1) - 1) // stride[1] + 1
    y = np.zeros((n, o, oh, ow), "int64")
    og = o // groups
    for g, r, s in itertools.product(range(groups), range(kh), range(kw)):
        rows = slice(r * dilate[0], r * dilate[0] + (oh - 1) * stride[0] + 1, stride[0])
        cols = slice(s * dilate[1], s * dilate[1] + (ow - 1) * stride[1] + 1, stride[1])
        part = x[:, g * cg : (g + 1) * cg, rows, cols]
        y[:, g * og : (g + 1) * og] += np.einsum("nchw,oc->nohw", part, w[g * og : (g + 1) * og, :, r, s])
    return y


def finished(acc, product, out, relu=False) -> np.ndarray:
    """What sums become: themselves, real numbers, or another quantised type."""
    if out is None:
        return np.maximum(acc, 0) if relu else acc
    v = acc.astype("float32") * product.astype("float32")
    v = np.maximum(v, 0) if relu else v
    return v if out == "float32" else stored(v, out)


def check(f, want, *inputs) -> None:
    """Eager with every tier of kernels, and traced, give exactly `want`, or what it gives with the same kernels."""
    for tier in (2, 1, 0):
        _core.set_option("kernel_tier", tier)
        try:
            got = f(*inputs).numpy()
            expected = np.asarray(want() if callable(want) else want).astype("float64")
        finally:
            _core.set_option("kernel_tier", 0)
        np.testing.assert_array_equal(got.astype("float64"), expected, f"tier {tier}")
    traced = jit.trace(f, symbolic=True)
    for _ in range(2):
        np.testing.assert_array_equal(traced(*inputs).numpy().astype("float64"), expected, "traced")


TYPES = [
    (dt.qint8(0.037), dt.qint8(0.11)),
    (dt.quint8(0.05, 128), dt.qint8(0.02)),
    (dt.quint8(0.05, 3), dt.quint8(0.02, 250)),
    (dt.qint4(0.3), dt.qint4(0.7)),
    (dt.quint4(0.3, 9), dt.qint4(0.7)),
    (dt.qint8(0.25), dt.qint4(0.5)),
]
NAMES = [f"{meta_of(a).name}-{meta_of(b).name}" for a, b in TYPES]
#: x, weight, stride, padding, dilation, groups
CONVS = [
    ((1, 1, 1, 1), (1, 1, 1, 1), 1, 0, 1, 1),
    ((2, 3, 7, 9), (5, 3, 3, 3), 1, 1, 1, 1),
    ((1, 16, 8, 8), (33, 16, 1, 1), 1, 0, 1, 1),
    ((2, 4, 9, 6), (6, 4, 3, 2), (2, 1), (0, 2), (1, 2), 1),
    ((1, 6, 5, 5), (2, 2, 3, 3, 3), 1, 1, 1, 2),
    ((2, 8, 6, 6), (8, 1, 1, 3, 3), 1, 1, 1, 8),
    ((1, 40, 14, 14), (24, 40, 3, 3), 2, 1, 1, 1),
]


def two(v):
    return (v, v) if isinstance(v, int) else v


@pytest.mark.parametrize("case", CONVS, ids=lambda c: "x".join(map(str, c[0])) + "_" + "x".join(map(str, c[1])))
@pytest.mark.parametrize("types", TYPES, ids=NAMES)
@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
def test_convolution(types, case, bias) -> None:
    xs, ws, stride, pad, dilate, groups = case
    xt, wt = types
    qx, qw = full_range(xs, xt, 1), full_range(ws, wt, 2)
    out = ws[0] * ws[1] if len(ws) == 5 else ws[0]
    acc = conv_sums(
        qx - zero_of(xt), (qw - zero_of(wt)).reshape(out, *ws[-3:]), two(stride), two(pad), two(dilate), groups
    )
    product = np.float32(dt.get_scale(xt)) * np.float32(dt.get_scale(wt))
    b = None
    if bias:
        b = np.random.RandomState(3).randint(-3000, 3000, (1, out, 1, 1))
        acc = acc + b
        b = mge.Tensor(b, dtype=dt.qint32(float(product)))
    x, w = mge.Tensor(qx, dtype=xt), mge.Tensor(qw, dtype=wt)
    spread = float(np.abs(acc).max() * product) or 1.0
    for kind, relu in itertools.product(
        [None, "float32", dt.qint8(spread / 90), dt.quint8(spread / 200, 100), dt.qint4(spread / 6)], [False, True]
    ):
        check(
            lambda x, w, kind=kind, relu=relu: F.quantized.conv_bias_activation(
                x, w, b, kind, stride, pad, dilate, groups, "relu" if relu else "identity"
            ),
            finished(acc, product, kind, relu),
            x,
            w,
        )


@pytest.mark.parametrize("grouped", [False, True], ids=["dense", "grouped"])
def test_convolution_with_a_scale_per_channel(grouped) -> None:
    xt = dt.quint8(0.05, 17)
    ws = (2, 3, 2, 3, 3) if grouped else (6, 4, 3, 3)
    scale = RNG.uniform(0.001, 0.2, 6).astype("float32")
    wt = dt.create_quantized_dtype(dt._builtin_quant_dtypes["qint8"], scale, None, 0, 2 if grouped else 1)
    qx, qw = full_range((2, 4, 6, 5), xt, 1), full_range(ws, wt, 2)
    groups = 2 if grouped else 1
    acc = conv_sums(qx - 17, qw.reshape(6, *ws[-3:]), (1, 1), (1, 1), (1, 1), groups)
    product = along(np.float32(0.05) * scale, 4, 1)
    bias = RNG.uniform(-3, 3, (1, 6, 1, 1)).astype("float32")
    acc = acc + away(bias / product)
    x, w, b = mge.Tensor(qx, dtype=xt), mge.Tensor(qw, dtype=wt), mge.tensor(bias)
    for kind in (None, "float32", dt.qint8(0.4)):
        check(
            lambda x, w, kind=kind: F.quantized.conv_bias_activation(x, w, b, kind, padding=1, groups=groups),
            finished(acc, product, kind),
            x,
            w,
        )
    y = F.quantized.conv_bias_activation(x, w, b, padding=1, groups=groups)
    assert dt.get_axis(y.dtype) == 1
    np.testing.assert_array_equal(y.astype("float32").numpy(), finished(acc, product, "float32"))


@pytest.mark.parametrize("types", TYPES, ids=NAMES)
@pytest.mark.parametrize("groups, channelled", [(1, False), (2, False), (1, True)])
def test_transposed_convolution(types, groups, channelled) -> None:
    """It is the adjoint of the convolution: <y, conv(x)> is summed the other way round."""
    xt, wt = types
    cin, cout = 4, 6
    ws = (cin, cout, 3, 2) if groups == 1 else (groups, cin // groups, cout // groups, 3, 2)
    if channelled:
        scales = np.linspace(0.1, 0.6, cout, dtype="float32")
        m = meta_of(wt)
        wt = dt.create_quantized_dtype(m, scales, [7] * cout if m.is_unsigned else None, 1)
    qx, qw = full_range((2, cin, 5, 4), xt, 4), full_range(ws, wt, 5)
    x = qx - zero_of(xt)
    w = (qw - along(zero_of(wt), len(ws), 1)).reshape(cin, cout // groups, 3, 2)
    stride, pad, extra = (2, 1), (1, 0), (1, 0)
    h, wd = (5 - 1) * 2 - 2 + 2 + 1 + 1, (4 - 1) + 1 + 1
    acc = np.zeros((2, cout, h, wd), "int64")
    for c, o, i, j, r, s in itertools.product(
        range(cin), range(cout // groups), range(5), range(4), range(3), range(2)
    ):
        yy, xx = i * stride[0] - pad[0] + r, j * stride[1] - pad[1] + s
        if 0 <= yy < h and 0 <= xx < wd:
            acc[:, c // (cin // groups) * (cout // groups) + o, yy, xx] += x[:, c, i, j] * w[c, o, r, s]
    product = along(np.float32(dt.get_scale(xt)) * np.asarray(dt.get_scale(wt), "float32"), 4, 1)
    b = np.random.RandomState(8).uniform(-20, 20, (1, cout, 1, 1)).astype("float32")
    acc = acc + away(b / product)
    tx, tw, tb = mge.Tensor(qx, dtype=xt), mge.Tensor(qw, dtype=wt), mge.tensor(b)
    for kind in (None, "float32", dt.qint8(0.9)):
        check(
            lambda x, w, kind=kind: F.quantized.conv_transpose2d(x, w, tb, kind, stride, pad, extra, 1, groups),
            finished(acc, product, kind),
            tx,
            tw,
        )


@pytest.mark.parametrize("types", TYPES, ids=NAMES)
@pytest.mark.parametrize("ta, tb", itertools.product([False, True], [False, True]))
@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 5, 7), (17, 33, 65), (2, 130, 64)])
def test_matmul(types, ta, tb, sizes) -> None:
    at, bt = types
    m, n, k = sizes
    qa, qb = full_range((2, m, k), at, 1), full_range((k, n), bt, 2)
    acc = (qa - zero_of(at)) @ (qb - zero_of(bt))
    product = np.float32(dt.get_scale(at)) * np.float32(dt.get_scale(bt))
    bias = np.random.RandomState(3).randint(-900, 900, n)
    a = mge.Tensor(qa.swapaxes(1, 2) if ta else qa, dtype=at)
    b = mge.Tensor(qb.T if tb else qb, dtype=bt)
    t = mge.Tensor(bias, dtype=dt.qint32(float(product)))
    for kind, relu in itertools.product([None, "float32", dt.qint8(float(product) * 37)], [False, True]):
        mode = "relu" if relu else "identity"
        check(
            lambda a, b, kind=kind, mode=mode: F.quantized.matmul(a, b, t, kind, ta, tb, mode),
            finished(acc + bias, product, kind, relu),
            a,
            b,
        )
    check(lambda a, b: F.matmul(a, b, transpose_a=ta, transpose_b=tb), acc, a, b)


def test_matmul_with_a_scale_per_channel() -> None:
    scale = np.linspace(0.01, 0.3, 5, dtype="float32")
    qa, qw = full_range((4, 6), dt.qint8(1.0), 1), full_range((5, 6), dt.qint8(1.0), 2)
    a, w = mge.Tensor(qa, dtype=dt.qint8(0.1)), mge.Tensor(qw, dtype=dt.qint8(scale, axis=0))
    product = np.float32(0.1) * scale
    check(
        lambda a, w: F.quantized.matmul(a, w, dtype="float32", transpose_b=True),
        finished(qa @ qw.T, product, "float32"),
        a,
        w,
    )
    check(lambda a, w: F.linear(a, w), qa @ qw.T, a, w)
    # the other way round channels are rows
    bias = np.linspace(-3, 3, 5, dtype="float32")
    rows = along(product, 2, 0)
    want = finished(qw @ qa.T + away(bias[:, None] / rows), rows, "float32")
    check(lambda w, a: F.quantized.matmul(w, a, mge.tensor(bias[:, None]), "float32", transpose_b=True), want, w, a)


def test_integers_multiply_into_int32() -> None:
    a = RNG.randint(-128, 128, (5, 300)).astype("int8")
    b = RNG.randint(-128, 128, (300, 4)).astype("int8")
    y = F.matmul(mge.tensor(a), mge.tensor(b))
    assert y.dtype == np.int32
    np.testing.assert_array_equal(y.numpy(), a.astype("int64") @ b.astype("int64"))


def test_extremes_do_not_saturate_on_the_way() -> None:
    """Products of the ends of the range, many of them: what pairs of 16-bit sums would clip."""
    n = 4096
    for xt, xv in ((dt.qint8(0.1), -128), (dt.quint8(0.1, 0), 255), (dt.quint8(0.1, 255), 0)):
        x = mge.Tensor(np.full((1, n), xv), dtype=xt)
        for wv in (-128, 127):
            w = mge.Tensor(np.full((3, n), wv), dtype=dt.qint8(0.1))
            want = np.full((1, 3), (xv - int(zero_of(xt))) * wv * n)
            check(lambda x, w: F.quantized.matmul(x, w, transpose_b=True), want, x, w)
            check(
                lambda x, w: F.quantized.conv_bias_activation(
                    x.reshape(1, n // 4, 2, 2), w.reshape(3, n // 4, 2, 2), None
                ),
                want.reshape(1, 3, 1, 1),
                x,
                w,
            )


def test_sums_that_can_leave_32_bits_are_refused() -> None:
    x = mge.Tensor(np.zeros((1, 200000)), dtype=dt.qint8(0.1))
    with pytest.raises(ValueError, match="can leave 32 bits"):
        F.quantized.matmul(x, x, transpose_b=True)


def test_the_bias_saturates() -> None:
    x = mge.Tensor(np.full((1, 100), 127), dtype=dt.qint8(1.0))
    for end in (2**31 - 1, -(2**31)):
        b = mge.Tensor(np.array([end]), dtype=dt.qint32(1.0))
        y = F.quantized.matmul(x, x, b, transpose_b=True)
        assert y.item() == min(end + 127 * 127 * 100, 2**31 - 1)


def test_batched_convolution() -> None:
    xt, wt, ot = dt.qint8(0.1), dt.qint8(0.2), dt.qint8(1.5)
    qx, qw = full_range((3, 4, 5, 5), xt, 1), full_range((3, 2, 4, 3, 3), wt, 2)
    b = RNG.randint(-500, 500, (1, 2, 1, 1))
    acc = np.concatenate([conv_sums(qx[i : i + 1], qw[i], (1, 1), (1, 1), (1, 1), 1) for i in range(3)]) + b
    product = np.float32(0.1) * np.float32(0.2)
    bias = mge.Tensor(b, dtype=dt.qint32(float(product)))
    check(
        lambda x, w: F.quantized.batch_conv_bias_activation(x, w, bias, ot, padding=1),
        finished(acc, product, ot),
        mge.Tensor(qx, dtype=xt),
        mge.Tensor(qw, dtype=wt),
    )


@pytest.mark.parametrize("mode", ["sigmoid", "h_swish"])
def test_other_activations_are_those_of_the_real_value(mode) -> None:
    xt, ot = dt.qint8(0.05), dt.qint8(0.02)
    q = full_range((1, 2, 4, 4), xt, 1)
    x, w = mge.Tensor(q, dtype=xt), mge.Tensor(np.full((1, 2, 1, 1), 7), dtype=xt)
    real = F.quantized.conv_bias_activation(x, w, None, "float32")
    want = stored((F.sigmoid if mode == "sigmoid" else F.nn.hswish)(real).numpy(), ot)
    check(lambda x, w: F.quantized.conv_bias_activation(x, w, None, ot, nonlinear_mode=mode), want, x, w)


QUANT = [dt.qint8(0.1), dt.quint8(0.1, 77), dt.qint32(0.01), dt.qint4(0.5), dt.quint4(0.5, 3)]
#: Ops that move elements: on tensors and on arrays.
MOVES = {
    "reshape": (lambda x: x.reshape(4, 6), lambda q: q.reshape(4, 6)),
    "transpose": (lambda x: x.transpose(2, 0, 1), lambda q: q.transpose(2, 0, 1)),
    "slice": (lambda x: x[1:, ::-2], lambda q: q[1:, ::-2]),
    "index": (lambda x: x[:, mge.tensor([2, 0])], lambda q: q[:, [2, 0]]),
    "concat": (lambda x: F.concat([x, x], 1), lambda q: np.concatenate([q, q], 1)),
    "stack": (lambda x: F.stack([x, x]), lambda q: np.stack([q, q])),
    "split": (lambda x: F.split(x, 2, axis=2)[1], lambda q: np.split(q, 2, 2)[1]),
    "broadcast": (lambda x: F.broadcast_to(x, (5, 2, 3, 4)), lambda q: np.broadcast_to(q, (5, 2, 3, 4))),
    "repeat": (lambda x: F.repeat(x, 2, axis=0), lambda q: np.repeat(q, 2, 0)),
    "flatten": (lambda x: F.flatten(x, 1), lambda q: q.reshape(2, 12)),
    "squeeze": (lambda x: F.squeeze(F.expand_dims(x, 0), 0), lambda q: q),
    "where": (lambda x: F.where(x > 0, x, x), lambda q: q),
    "copy": (lambda x: F.copy(x), lambda q: q),
}


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("dtype", QUANT, ids=lambda d: meta_of(d).name)
def test_moves_keep_integers_and_dtype(name, dtype) -> None:
    q = full_range((2, 3, 4), dtype, 6)
    if name == "where" and meta_of(dtype).name == "qint32":
        q = q // 256  # real numbers in float32
    f, ref = MOVES[name]
    x = mge.Tensor(q, dtype=dtype)
    assert dt.is_dtype_equal(f(x).dtype, dtype)
    check(f, ref(q), x)


REALS = {
    "relu": (F.relu, lambda v: np.maximum(v, 0)),
    "exp": (F.exp, None),
    "add": (lambda x: x + x, lambda v: v + v),
    "add_number": (lambda x: x + 0.3, lambda v: v + np.float32(0.3)),
    "mul": (lambda x: x * x, lambda v: v * v),
    "maximum": (lambda x: F.maximum(x, x[:, ::-1]), lambda v: np.maximum(v, v[:, ::-1])),
    "max_pool": (lambda x: F.max_pool2d(x, 2), lambda v: v.reshape(2, 3, 2, 2, 3, 2).max((3, 5))),
    "max": (lambda x: x.max(axis=1), lambda v: v.max(1)),
    "sum": (lambda x: x.sum(axis=1), None),
    "pad": (
        lambda x: F.pad(x, ((0, 0), (0, 0), (1, 2), (0, 1))),
        lambda v: np.pad(v, ((0, 0), (0, 0), (1, 2), (0, 1))),
    ),
    "zeros_like": (F.zeros_like, np.zeros_like),
}


@pytest.mark.parametrize("name", REALS)
@pytest.mark.parametrize("dtype", [dt.qint8(0.1), dt.quint8(0.1, 77), dt.qint4(0.5)], ids=lambda d: meta_of(d).name)
def test_other_ops_see_real_numbers(name, dtype) -> None:
    q = full_range((2, 3, 4, 6), dtype, 9)
    x = mge.Tensor(q, dtype=dtype)
    f, ref = REALS[name]
    real = (q - zero_of(dtype)).astype("float32") * np.float32(dt.get_scale(dtype))
    assert dt.is_dtype_equal(f(x).dtype, dtype)
    check(f, lambda: stored(ref(real) if ref else f(mge.tensor(real)).numpy(), dtype), x)


def enlarged(q: np.ndarray) -> np.ndarray:
    """Twice as high and wide: a quarter and three quarters of two neighbours each way."""
    for axis in (2, 3):
        a = np.moveaxis(q, axis, 0)
        before, after = np.concatenate([a[:1], a[:-1]]), np.concatenate([a[1:], a[-1:]])
        q = np.moveaxis(
            np.stack([0.25 * before + 0.75 * a, 0.75 * a + 0.25 * after], 1).reshape(-1, *a.shape[1:]), 0, axis
        )
    return q


MEANS = {
    "avg_pool": (lambda x: F.avg_pool2d(x, 2), lambda q: q.reshape(2, 3, 2, 2, 3, 2).mean((3, 5))),
    "resize": (lambda x: F.vision.interpolate(x, scale_factor=2), enlarged),
}


@pytest.mark.parametrize("name", MEANS)
@pytest.mark.parametrize("scale", [0.0313, 0.1, 0.7])
@pytest.mark.parametrize("kind", ["qint8", "quint8", "qint4"])
def test_means_are_taken_of_integers_so_that_halves_are_exact(name, scale, kind) -> None:
    dtype = {"qint8": dt.qint8(scale), "quint8": dt.quint8(scale, 77), "qint4": dt.qint4(scale)}[kind]
    q = full_range((2, 3, 4, 6), dtype, 9)
    f, ref = MEANS[name]
    mean = ref(q.astype("float64") - zero_of(dtype))
    halves = np.abs(mean - np.trunc(mean)) == 0.5
    assert halves.sum() > 2
    want = np.trunc(mean + np.copysign(0.5, mean)) + zero_of(dtype)
    x = mge.Tensor(q, dtype=dtype)
    check(f, lambda: want.astype(q.dtype), x)


MODES = [n for n in builtin.ElemwiseMultiType.Mode.names if n[0] == "Q"]


@pytest.mark.parametrize("name", MODES)
def test_multi_type_modes_are_those_of_elemwise_on_real_numbers(name) -> None:
    """Of operands that differ in dtype and scale."""
    kinds = [dt.qint8(0.031), dt.quint8(0.017, 90), dt.qint4(0.2)]
    for n in (1, 2, 3, 4):
        values = [full_range((5, 7), kind, i) for i, kind in enumerate((kinds * 2)[:n])]
        real = [
            mge.tensor((v - zero_of(k)).astype("float32") * np.float32(dt.get_scale(k)))
            for v, k in zip(values, kinds * 2)
        ]
        try:
            apply(builtin.Elemwise(name[1:]), *real)
        except ValueError:
            continue  # takes another number of operands
        out = dt.qint8(0.05)
        with np.errstate(all="ignore"):
            check(
                lambda *x, out=out: apply(builtin.ElemwiseMultiType(name, out), *x)[0],
                lambda real=real, out=out: stored(apply(builtin.Elemwise(name[1:]), *real)[0].numpy(), out),
                *[mge.Tensor(v, dtype=k) for v, k in zip(values, kinds * 2)],
            )
        return
    pytest.fail(f"{name} takes none of 1 to 4 operands")


def test_fixed_point_modes() -> None:
    """As MegEngine 1.13 answers."""

    def run(mode, *operands):
        return apply(builtin.ElemwiseMultiType(mode), *[mge.tensor(np.array(v, d)) for v, d in operands])[0]

    x = [5, 6, 7, -5, -6, -7, 2, -2, 1, -1, 3, -3, 100000, -100000]
    y = run("ROUND_SHR_SATURATE_IXxI8xI8", (x, "int32"), ([2], "int8"))
    assert y.dtype == np.int8 and y.numpy().tolist() == [1, 2, 2, -1, -2, -2, 1, -1, 0, 0, 1, -1, 127, -128]
    y = run("ROUND_SHR_SATURATE_IXxI8xI16", (x, "int32"), ([0], "int8"))
    assert y.dtype == np.int16 and y.numpy().tolist() == [*x[:-2], 32767, -32768]
    x = [1, 2, 3, -1, -2, -3, 5, -5, 127, -128]
    y = run("FUSE_MUL_ADD3_IXxF32xF32xI8", (x, "int8"), ([0.5], "float32"), ([0.0], "float32"))
    assert y.numpy().tolist() == [0, 1, 2, 0, -1, -2, 2, -2, 64, -64]
    for bits, kind in ((32, "int32"), (16, "int16")):
        mode = f"FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT{bits}x{bits}x{bits}x8"
        operands = ([5, -5, 1000, -1000, 3, -3, 7, -7], kind), ([0], kind), ([1 << (bits - 2)], kind)
        y = run(mode, *operands, ([1], "int8"), ([-100], "int8"), ([90], "int8"))
        assert y.numpy().tolist() == [2, -1, 90, -100, 1, -1, 2, -2]


@pytest.mark.parametrize("kind", ["per tensor", "per channel", "4 bits"])
def test_dumped_and_run_by_lite(kind, tmp_path) -> None:
    """Constants, attributes and inputs of every kind of quantisation through a file."""
    wt = {"per tensor": dt.qint8(0.02), "per channel": dt.qint8([0.01, 0.02, 0.03], axis=0), "4 bits": dt.qint4(0.2)}
    w = mge.tensor(RNG.uniform(-2, 2, (3, 2, 3, 3)).astype("float32")).astype(wt[kind])
    x = mge.tensor(RNG.uniform(-1, 1, (1, 2, 5, 5)).astype("float32"))

    @jit.trace(symbolic=True, capture_as_const=True)
    def f(x):
        q = x.astype(dt.quint8(0.01, 128))
        y = F.quantized.conv_bias_activation(q, w, None, dt.qint4(0.3) if kind == "4 bits" else dt.qint8(0.05))
        return F.relu(y).astype("float32")

    want = f(x).numpy()
    path = str(tmp_path / "m.mge")
    f.dump(path, arg_names=["x"])
    from megenginelite import LiteNetwork

    net = LiteNetwork()
    net.load(path)
    net.get_io_tensor("x").set_data_by_copy(x.numpy())
    net.forward()
    net.wait()
    np.testing.assert_array_equal(net.get_io_tensor(net.get_all_output_name()[0]).to_numpy(), want)


def test_results_that_are_no_real_numbers_stay() -> None:
    x = mge.Tensor(np.array([3, 9, -4]), dtype=dt.qint8(0.1))
    assert F.argmax(x).item() == 1 and (x > 0).numpy().tolist() == [True, True, False]


def test_two_quantised_dtypes_do_not_mix() -> None:
    x = mge.tensor([1.0]).astype(dt.qint8(0.1))
    for y in (x.astype(dt.qint8(0.2)), x.astype(dt.quint8(0.1, 1))):
        with pytest.raises(RuntimeError, match="differ"):
            x + y
        with pytest.raises((RuntimeError, TypeError), match="differ"):
            F.concat([x, y])


def test_mistakes_are_named() -> None:
    x = mge.tensor(np.ones((1, 2, 4, 4), "float32"))
    q = x.astype(dt.qint8(0.1))
    w = q[:, :, :1, :1]
    for bad, match in [
        (lambda: F.quantized.conv_bias_activation(x, w, None), "inp must be quantised"),
        (
            lambda: F.quantized.conv_bias_activation(q, w, x[:, :1, :1, :1].astype(dt.qint32(0.5))),
            "scale of the product",
        ),
        (lambda: F.quantized.conv_bias_activation(q, w, None, nonlinear_mode="gelu"), "nonlinear_mode"),
        (lambda: F.quantized.conv_bias_activation(q.astype(dt.qint32(0.1)), w, None), "8 bits or less"),
        (lambda: x.astype(dt.qint8(0.0)), "scale"),
        (lambda: x.astype(dt.qint8(1e-60)), "scale"),
    ]:
        with pytest.raises((ValueError, TypeError, RuntimeError), match=match):
            bad()
