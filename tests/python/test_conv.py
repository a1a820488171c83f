"""3-D, local, region-restricted and deformable convolutions against loops in NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import reference as ref
from functional_helpers import check, gradcheck, rand
from reference import windows

import megengine.functional as F
import megengine.module as M
from megengine import Tensor
from megengine.core import _core


@pytest.mark.parametrize(
    "xs, ws, attrs",
    [
        ((2, 4, 5, 6, 7), (3, 4, 3, 3, 3), {"padding": 1}),
        ((1, 4, 6, 6, 6), (2, 3, 2, 2, 2, 3), {"groups": 2, "stride": 2, "padding": (0, 1, 1)}),
        ((1, 2, 7, 7, 7), (5, 2, 2, 3, 2), {"dilation": (2, 1, 3), "stride": (1, 2, 1)}),
        ((2, 20, 8, 12, 12), (24, 20, 3, 3, 3), {"padding": 1}),  # several chunks of columns
    ],
)
def test_conv3d(xs, ws, attrs):
    x, w = rand(*xs), rand(*ws)
    three = {k: v if isinstance(v, tuple) else (v,) * 3 for k, v in attrs.items() if k != "groups"}
    names = {"stride": ("stride", 1), "pad": ("padding", 0), "dilate": ("dilation", 1)}
    full = {k: three.get(name, (least,) * 3) for k, (name, least) in names.items()} | {"groups": attrs.get("groups", 1)}
    want = ref.conv3d(x.astype("float64"), w.astype("float64"), **full)
    b = rand(1, want.shape[1], 1, 1, 1)
    check(F.conv3d(Tensor(x), Tensor(w), **attrs), want, rtol=1e-4, atol=1e-4)
    check(F.conv3d(Tensor(x), Tensor(w), Tensor(b), **attrs), want + b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("groups", [1, 2])
def test_conv3d_bits_do_not_depend_on_threads(groups):
    x, gy = Tensor(rand(2, 8, 6, 14, 14)), Tensor(rand(2, 6, 6, 14, 14))
    shape = (6, 8, 3, 3, 3) if groups == 1 else (2, 3, 4, 3, 3, 3)
    w = Tensor(rand(*shape))
    at = {"pad": (1, 1, 1), "groups": groups}
    before = _core.get_num_threads()
    results = []
    try:
        for threads in (1, 2):
            _core.set_num_threads(threads)
            outs = (
                _core.ops.conv3d(x, w, **at),
                _core.ops.conv3d_dx(gy, w, x_shape=x.shape, **at),
                _core.ops.conv3d_dw(x, gy, w_shape=shape, **at),
            )
            results.append([o.numpy().tobytes() for o in outs])
    finally:
        _core.set_num_threads(before)
    assert results[0] == results[1]


def test_conv_transpose3d_is_the_adjoint():
    x, w, b = rand(1, 3, 3, 2, 3), rand(3, 2, 2, 3, 2), rand(1, 2, 1, 1, 1)
    y = F.conv_transpose3d(Tensor(x), Tensor(w), Tensor(b), stride=2, padding=1, output_padding=(1, 0, 1))
    shape = (1, 2, 2 * 2 - 2 + 2 + 1, 2 - 2 + 3, 2 * 2 - 2 + 2 + 1)
    want = ref.conv3d_dx(x.astype("float64"), w.astype("float64"), x_shape=shape, stride=(2, 2, 2), pad=(1, 1, 1))
    check(y, want + b, atol=1e-5)
    with pytest.raises(AssertionError, match="must be below stride"):
        F.conv_transpose3d(Tensor(x), Tensor(w), output_padding=1)
    with pytest.raises(RuntimeError, match="5 dimensions"):
        F.conv_transpose3d(Tensor(rand(1, 3, 3, 3)), Tensor(w))


def test_conv3d_errors():
    x = Tensor(rand(1, 4, 3, 3, 3))
    with pytest.raises(RuntimeError, match="conv3d: input has 4 channels but weight expects 3"):
        F.conv3d(x, Tensor(rand(2, 3, 1, 1, 1)))
    with pytest.raises(RuntimeError, match=r"kernel 5x1x1 \(dilated 5x1x1\) is larger than the padded input 3x3x3"):
        F.conv3d(x, Tensor(rand(2, 4, 5, 1, 1)))
    with pytest.raises(AssertionError):
        F.conv3d(x, Tensor(rand(2, 4, 1, 1, 1)), stride=0)
    with pytest.raises(ValueError, match=r"conv3d: pad takes one or three ints; got \[1,1\]"):
        _core.ops.conv3d(x, Tensor(rand(2, 4, 1, 1, 1)), pad=(1, 1))


@pytest.mark.parametrize(
    ("x", "w", "order", "groups"),
    [
        ((2, 64, 20, 20), (32, 64, 3, 3), (1, 0, 2, 3), 1),  # transformed tiles
        ((2, 64, 9, 9), (1, 3, 3, 1, 64), (4, 0, 3, 1, 2), 64),  # one filter for each channel
        ((2, 512, 4, 4), (64, 512, 1, 1), (1, 0, 2, 3), 1),  # a product
        ((8, 32, 20, 20), (3, 3, 32, 48), (2, 3, 0, 1), 1),
    ],
)
def test_a_transposed_convolution_takes_a_weight_that_is_a_view(x, w, order, groups):
    """Adjoint kernels on channels-last memory read a weight that is a view as if it were row-major."""
    image, view = Tensor(rand(*x)), F.transpose(Tensor(rand(*w)), order)
    whole = Tensor(np.ascontiguousarray(view.numpy()))
    pad = view.shape[-1] // 2
    got = F.conv_transpose2d(image, view, padding=pad, groups=groups)
    want = F.conv_transpose2d(image, whole, padding=pad, groups=groups)
    np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_local_conv2d():
    x, w = rand(2, 4, 6, 5), rand(2, 3, 3, 2, 2, 3, 3)
    y = F.local_conv2d(Tensor(x), Tensor(w), stride=(2, 1))
    want = np.zeros((2, 6, 3, 3))
    for n, g, i, j, o in itertools.product(range(2), range(2), range(3), range(3), range(3)):
        seen = x[n, 2 * g : 2 * g + 2, 2 * i : 2 * i + 2, j : j + 3].astype("float64")
        want[n, 3 * g + o, i, j] = (seen * w[g, i, j, :, :, :, o]).sum()
    check(y, want, atol=1e-5)
    gradcheck(lambda a, b: F.local_conv2d(a, b, padding=1), rand(1, 2, 2, 2), rand(1, 2, 2, 2, 3, 3, 1))
    with pytest.raises(RuntimeError, match="does not fit windows"):
        F.local_conv2d(Tensor(x), Tensor(w))


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_region_restricted_conv(dtype):
    rng = np.random.RandomState(0)
    x, w = rand(2, 4, 5, 5), rand(2, 3, 2, 3, 3)
    rin, rout = rng.randint(0, 3, (2, 5, 5)).astype(dtype), rng.randint(0, 3, (2, 3, 3)).astype(dtype)
    y = F.region_restricted_conv(
        Tensor(x), Tensor(w), Tensor(rin, dtype), Tensor(rout, dtype), stride=2, padding=1, groups=2
    )
    want = np.zeros((2, 6, 3, 3))
    for n, o, i, j, a, b in itertools.product(range(2), range(6), range(3), range(3), range(3), range(3)):
        r, c = 2 * i - 1 + a, 2 * j - 1 + b
        if 0 <= r < 5 and 0 <= c < 5 and rin[n, r, c] == rout[n, i, j]:
            g = o // 3
            want[n, o, i, j] += (x[n, 2 * g : 2 * g + 2, r, c].astype("float64") * w[g, o % 3, :, a, b]).sum()
    check(y, want, atol=1e-5)
    with pytest.raises(RuntimeError, match="the weight must be"):
        F.region_restricted_conv(Tensor(x), Tensor(rand(6, 4, 3, 3)), Tensor(rin, dtype), Tensor(rout, dtype))
    with pytest.raises(RuntimeError, match="rin must be"):
        F.region_restricted_conv(
            Tensor(x), Tensor(w), Tensor(rin, dtype), Tensor(rin, dtype), stride=2, padding=1, groups=2
        )


def bilinear(plane, y, x):
    """0 outside, pixel by pixel."""
    total, y0, x0 = 0.0, int(np.floor(y)), int(np.floor(x))
    for r, c in itertools.product((y0, y0 + 1), (x0, x0 + 1)):
        if 0 <= r < plane.shape[0] and 0 <= c < plane.shape[1]:
            total += float(plane[r, c]) * (1 - abs(y - r)) * (1 - abs(x - c))
    return total


def deformable(x, w, offset, mask, stride, pad, dilate, groups):
    n, c, h, wd = x.shape
    o, cg, kh, kw = w.reshape(-1, *w.shape[-3:]).shape
    flat = w.reshape(o, cg, kh, kw)
    oh, ow = windows(h, kh, stride, pad, dilate), windows(wd, kw, stride, pad, dilate)
    parts = offset.shape[1] // (2 * kh * kw)
    y = np.zeros((n, o, oh, ow))
    for b, i, j, a, e, ch in itertools.product(range(n), range(oh), range(ow), range(kh), range(kw), range(c)):
        part, tap = ch // (c // parts), a * kw + e
        at = (part * kh * kw + tap) * 2
        py = i * stride - pad + a * dilate + offset[b, at, i, j]
        px = j * stride - pad + e * dilate + offset[b, at + 1, i, j]
        v = bilinear(x[b, ch], py, px) * mask[b, part * kh * kw + tap, i, j]
        for q in range(o):
            if q // (o // groups) == ch // cg:
                y[b, q, i, j] += v * flat[q, ch % cg, a, e]
    return y


@pytest.mark.parametrize("parts, groups, stride, pad, dilate", [(1, 1, 1, 1, 1), (2, 1, 2, 1, 1), (2, 2, 1, 2, 2)])
def test_deformable_conv2d(parts, groups, stride, pad, dilate):
    x = rand(2, 4, 5, 6)
    w = rand(2, 4, 3, 3) if groups == 1 else rand(groups, 1, 4 // groups, 3, 3)
    oh, ow = windows(5, 3, stride, pad, dilate), windows(6, 3, stride, pad, dilate)
    offset, mask = rand(2, 18 * parts, oh, ow), rand(2, 9 * parts, oh, ow, lo=0, hi=1)
    y = F.deformable_conv2d(Tensor(x), Tensor(w), Tensor(offset), Tensor(mask), None, stride, pad, dilate, groups)
    want = deformable(x, w, offset, mask, stride, pad, dilate, groups)
    check(y, want, atol=1e-4)


def test_deformable_conv2d_gradients_and_errors():
    x, w, mask = rand(1, 2, 4, 4), rand(1, 2, 2, 2), rand(1, 4, 2, 2, lo=0, hi=1)
    offset = np.random.RandomState(0).choice([-0.7, -0.3, 0.2, 0.6], (1, 8, 2, 2)).astype("float32")
    gradcheck(lambda a, b, c, d: F.deformable_conv2d(a, b, c, d, stride=2), x, w, offset, mask)
    with pytest.raises(RuntimeError, match="the offset must be"):
        F.deformable_conv2d(Tensor(x), Tensor(w), Tensor(offset), Tensor(mask))
    with pytest.raises(RuntimeError, match="the mask must be"):
        F.deformable_conv2d(Tensor(x), Tensor(w), Tensor(offset), Tensor(mask[:, :3]), stride=2)
    assert M.DeformableConv2d(2, 3, 2, stride=2)(Tensor(x), Tensor(offset), Tensor(mask)).shape == (1, 3, 2, 2)


def psroi(x, rois, trans, no_trans, part, ph, pw, samples, scale, std):
    k, c, h, w = len(rois), *x.shape[1:]
    classes = 1 if no_trans else trans.shape[1] // 2
    y = np.zeros((k, c, ph, pw))
    for r, ch, i, j in itertools.product(range(k), range(c), range(ph), range(pw)):
        x0, y0 = np.floor(rois[r, 1:3] + 0.5) * scale - 0.5
        x1, y1 = (np.floor(rois[r, 3:5] + 0.5) + 1) * scale - 0.5
        rw, rh = max(x1 - x0, 0.1), max(y1 - y0, 0.1)
        dx = dy = 0.0
        if not no_trans:
            cls = ch // (c // classes)
            a, b = i * part // ph, j * part // pw
            dx, dy = trans[r, 2 * cls, a, b] * std, trans[r, 2 * cls + 1, a, b] * std
        total, count = 0.0, 0
        for a, b in itertools.product(range(samples), range(samples)):
            px = x0 + j * rw / pw + dx * rw + b * rw / pw / samples
            py = y0 + i * rh / ph + dy * rh + a * rh / ph / samples
            if px < -0.5 or px > w - 0.5 or py < -0.5 or py > h - 0.5:
                continue
            total += bilinear(x[int(rois[r, 0]), ch], np.clip(py, 0, h - 1), np.clip(px, 0, w - 1))
            count += 1
        y[r, ch, i, j] = total / count if count else 0
    return y


@pytest.mark.parametrize("no_trans", [False, True])
def test_deformable_psroi_pooling(no_trans):
    x = rand(2, 4, 6, 7)
    rois = np.array([[0, 0.3, 0.7, 6.2, 5.9], [1, 1, 1, 3, 4], [1, 5, 5, 20, 20], [0, 2.6, 2.2, 2.6, 2.2]], "float32")
    trans = rand(4, 4, 2, 2)
    args = (no_trans, 2, 3, 2, 3, 0.8, 0.1)
    y = F.deformable_psroi_pooling(Tensor(x), Tensor(rois), Tensor(trans), *args)
    check(y, psroi(x, rois, trans, *args), atol=1e-5)
