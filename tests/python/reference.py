"""What the ops mean, in NumPy, written for clarity and computed in the dtype they are given (float64 in the tests)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

erf = np.vectorize(math.erf, otypes=[np.float64])
erfc = np.vectorize(math.erfc, otypes=[np.float64])


def erfcinv(q):
    """By halving the interval until it cannot be halved."""
    lo, hi = np.full(np.shape(q), -30.0), np.full(np.shape(q), 30.0)
    for _ in range(200):
        mid = (lo + hi) / 2
        above = erfc(mid) > q
        lo, hi = np.where(above, mid, lo), np.where(above, hi, mid)
    return (lo + hi) / 2


def erfinv(x):
    return np.copysign(erfcinv(1 - np.abs(x)), x)


def cumsum(x, axis, exclusive=False, reverse=False):
    x = np.flip(x, axis) if reverse else x
    y = np.cumsum(x, axis, dtype=x.dtype)
    y = y - x if exclusive else y
    return np.flip(y, axis) if reverse else y


def cumprod(x, axis, reverse=False):
    return np.flip(np.cumprod(np.flip(x, axis), axis), axis) if reverse else np.cumprod(x, axis)


def affine_scan(a, b, axis, reverse=False):
    a, b = np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0)
    y, last = np.zeros_like(b), 0.0
    for i in reversed(range(len(b))) if reverse else range(len(b)):
        last = y[i] = a[i] * last + b[i]
    return np.moveaxis(y, 0, axis)


def round_half_away(x: np.ndarray) -> np.ndarray:
    return np.trunc(x + np.copysign(0.5, x))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + erf(x / math.sqrt(2)))


def gelu_grad(x: np.ndarray, gy: np.ndarray) -> np.ndarray:
    return gy * (0.5 * (1 + erf(x / math.sqrt(2))) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi))


def windows(size: int, kernel: int, stride: int, pad: int, dilate: int = 1) -> int:
    return (size + 2 * pad - dilate * (kernel - 1) - 1) // stride + 1


def _taps(x_shape, w_shape, stride, pad, dilate, groups):
    """Yields the indices of every product of a convolution: image, channels, place, tap, source."""
    n, c, h, w = x_shape
    kh, kw = w_shape[-2:]
    oc = w_shape[0] * (w_shape[1] if len(w_shape) == 5 else 1)
    oh, ow = windows(h, kh, stride[0], pad[0], dilate[0]), windows(w, kw, stride[1], pad[1], dilate[1])
    for i in range(n):
        for o in range(oc):
            g = o // (oc // groups)
            for ci in range(c // groups):
                for y in range(oh):
                    for z in range(ow):
                        for a in range(kh):
                            for b in range(kw):
                                sy, sx = y * stride[0] - pad[0] + a * dilate[0], z * stride[1] - pad[1] + b * dilate[1]
                                if 0 <= sy < h and 0 <= sx < w:
                                    yield i, o, ci, g * (c // groups) + ci, y, z, a, b, sy, sx


def conv2d(x, w, bias=None, stride=(1, 1), pad=(0, 0), dilate=(1, 1), groups=1):
    flat = w.reshape(-1, *w.shape[-3:])
    oh = windows(x.shape[2], w.shape[-2], stride[0], pad[0], dilate[0])
    ow = windows(x.shape[3], w.shape[-1], stride[1], pad[1], dilate[1])
    y = np.zeros((x.shape[0], flat.shape[0], oh, ow), x.dtype)
    for i, o, ci, c, r, s, a, b, sy, sx in _taps(x.shape, w.shape, stride, pad, dilate, groups):
        y[i, o, r, s] += x[i, c, sy, sx] * flat[o, ci, a, b]
    return y if bias is None else y + bias


def conv2d_dx(gy, w, x_shape=(), stride=(1, 1), pad=(0, 0), dilate=(1, 1), groups=1):
    flat = w.reshape(-1, *w.shape[-3:])
    gx = np.zeros(x_shape, gy.dtype)
    for i, o, ci, c, r, s, a, b, sy, sx in _taps(x_shape, w.shape, stride, pad, dilate, groups):
        gx[i, c, sy, sx] += gy[i, o, r, s] * flat[o, ci, a, b]
    return gx


def conv2d_dw(x, gy, w_shape=(), stride=(1, 1), pad=(0, 0), dilate=(1, 1), groups=1):
    gw = np.zeros((gy.shape[1], *w_shape[-3:]), gy.dtype)
    for i, o, ci, c, r, s, a, b, sy, sx in _taps(x.shape, w_shape, stride, pad, dilate, groups):
        gw[o, ci, a, b] += gy[i, o, r, s] * x[i, c, sy, sx]
    return gw.reshape(w_shape)


def conv2d_fused(x, w, *extras, has_bias=False, has_scale=False, has_add=False, act="none", **conv):
    rest = list(extras)
    y = conv2d(x, w, rest.pop(0) if has_bias else None, **conv)
    if has_scale:
        y = y * rest.pop(0)
        y = y + rest.pop(0)
    if has_add:
        y = y + rest.pop(0)
    return NORM_ACTS[act][0](y)


def _taps3(x_shape, w_shape, stride, pad, dilate, groups):
    """Yields slices: output channel, its channels of x, tap, part of y, part of x."""
    oc = w_shape[0] * (w_shape[1] if len(w_shape) == 6 else 1)
    cg = w_shape[-4]
    k = w_shape[-3:]
    out = [windows(x_shape[2 + i], k[i], stride[i], pad[i], dilate[i]) for i in range(3)]
    for o in range(oc):
        c0 = o // (oc // groups) * cg
        for tap in np.ndindex(*k):
            ys, xs = [], []
            for i in range(3):
                at = np.arange(out[i]) * stride[i] - pad[i] + tap[i] * dilate[i]
                ok = (at >= 0) & (at < x_shape[2 + i])
                ys.append(np.arange(out[i])[ok])
                xs.append(at[ok])
            yield o, slice(c0, c0 + cg), tap, ys, xs


def _at(a, rows, columns):
    """The block of a [N, C.., D, H, W] at three lists of positions."""
    return a[(..., *np.ix_(*columns))] if rows is None else a[:, rows][(..., *np.ix_(*columns))]


def conv3d(x, w, stride=(1, 1, 1), pad=(0, 0, 0), dilate=(1, 1, 1), groups=1):
    flat = w.reshape(-1, *w.shape[-4:])
    out = tuple(windows(x.shape[2 + i], w.shape[-3 + i], stride[i], pad[i], dilate[i]) for i in range(3))
    y = np.zeros((x.shape[0], flat.shape[0], *out), x.dtype)
    for o, cs, tap, ys, xs in _taps3(x.shape, w.shape, stride, pad, dilate, groups):
        part = np.einsum("ncdhw,c->ndhw", _at(x, cs, xs), flat[(o, slice(None), *tap)])
        y[(slice(None), o, *np.ix_(*ys))] += part
    return y


def conv3d_dx(gy, w, x_shape=(), stride=(1, 1, 1), pad=(0, 0, 0), dilate=(1, 1, 1), groups=1):
    flat = w.reshape(-1, *w.shape[-4:])
    gx = np.zeros(x_shape, gy.dtype)
    for o, cs, tap, ys, xs in _taps3(x_shape, w.shape, stride, pad, dilate, groups):
        part = gy[(slice(None), o, *np.ix_(*ys))]
        gx[:, cs][(..., *np.ix_(*xs))] += np.einsum("ndhw,c->ncdhw", part, flat[(o, slice(None), *tap)])
    return gx


def conv3d_dw(x, gy, w_shape=(), stride=(1, 1, 1), pad=(0, 0, 0), dilate=(1, 1, 1), groups=1):
    gw = np.zeros((gy.shape[1], *w_shape[-4:]), gy.dtype)
    for o, cs, tap, ys, xs in _taps3(x.shape, w_shape, stride, pad, dilate, groups):
        part = gy[(slice(None), o, *np.ix_(*ys))]
        gw[(o, slice(None), *tap)] += np.einsum("ncdhw,ndhw->c", _at(x, cs, xs), part)
    return gw.reshape(w_shape)


# ---- vision


def _pool_windows(shape, kernel, stride, pad):
    stride = stride or kernel
    for r in range(windows(shape[2], kernel[0], stride[0], pad[0])):
        for s in range(windows(shape[3], kernel[1], stride[1], pad[1])):
            y0, x0 = r * stride[0] - pad[0], s * stride[1] - pad[1]
            yield r, s, max(y0, 0), min(y0 + kernel[0], shape[2]), max(x0, 0), min(x0 + kernel[1], shape[3])


def _pool_out(shape, kernel, stride, pad):
    stride = stride or kernel
    return (
        *shape[:2],
        windows(shape[2], kernel[0], stride[0], pad[0]),
        windows(shape[3], kernel[1], stride[1], pad[1]),
    )


def max_pool2d(x, kernel=(2, 2), stride=(), pad=(0, 0)):
    y = np.zeros(_pool_out(x.shape, kernel, stride, pad), x.dtype)
    for r, s, a, b, c, d in _pool_windows(x.shape, kernel, stride, pad):
        y[:, :, r, s] = x[:, :, a:b, c:d].max((2, 3))
    return y


def _argmax_positions(x, kernel, stride, pad):
    for r, s, a, b, c, d in _pool_windows(x.shape, kernel, stride, pad):
        flat = x[:, :, a:b, c:d].reshape(*x.shape[:2], -1).argmax(2)
        yield r, s, a + flat // (d - c), c + flat % (d - c)


def max_pool2d_bwd(x, y, gy, kernel=(2, 2), stride=(), pad=(0, 0)):
    gx = np.zeros_like(x)
    n, c = np.ogrid[: x.shape[0], : x.shape[1]]
    for r, s, py, px in _argmax_positions(x, kernel, stride, pad):
        np.add.at(gx, (n, c, py, px), gy[:, :, r, s])
    return gx


def max_pool2d_take(x, y, v, kernel=(2, 2), stride=(), pad=(0, 0)):
    out = np.zeros_like(y)
    n, c = np.ogrid[: x.shape[0], : x.shape[1]]
    for r, s, py, px in _argmax_positions(x, kernel, stride, pad):
        out[:, :, r, s] = v[n, c, py, px]
    return out


def avg_pool2d(x, kernel=(2, 2), stride=(), pad=(0, 0), include_pad=False):
    y = np.zeros(_pool_out(x.shape, kernel, stride, pad), x.dtype)
    for r, s, a, b, c, d in _pool_windows(x.shape, kernel, stride, pad):
        count = kernel[0] * kernel[1] if include_pad else (b - a) * (d - c)
        y[:, :, r, s] = x[:, :, a:b, c:d].sum((2, 3)) / count
    return y


def avg_pool2d_bwd(gy, x_shape=(), kernel=(2, 2), stride=(), pad=(0, 0), include_pad=False):
    gx = np.zeros(x_shape, gy.dtype)
    for r, s, a, b, c, d in _pool_windows(x_shape, kernel, stride, pad):
        count = kernel[0] * kernel[1] if include_pad else (b - a) * (d - c)
        gx[:, :, a:b, c:d] += gy[:, :, r, s][:, :, None, None] / count
    return gx


def _bn_axes(x):
    return tuple(i for i in range(x.ndim) if i != 1)


def _per_channel(v, x):
    """Stats come as (1,C,1,1) (or fewer ones); shapes them for broadcasting over x."""
    return np.reshape(v, [1, -1] + [1] * (x.ndim - 2))


def batch_norm_train(x, w, b, eps=1e-5):
    mean, var = x.mean(_bn_axes(x)), x.var(_bn_axes(x))
    rstd = 1 / np.sqrt(var + eps)
    y = (x - _per_channel(mean, x)) * _per_channel(rstd, x) * _per_channel(w, x) + _per_channel(b, x)
    stat = (1, x.shape[1]) + (1,) * (w.ndim - 2)
    return y, mean.reshape(stat), var.reshape(stat), rstd.reshape(stat)


def batch_norm_bwd(x, gy, w, mean, rstd):
    m, r = _per_channel(mean, x), _per_channel(rstd, x)
    xhat = (x - m) * r
    axes = _bn_axes(x)
    n = x.size // x.shape[1]
    gb, gw = gy.sum(axes), (gy * xhat).sum(axes)
    gx = _per_channel(w, x) * r / n * (n * gy - _per_channel(gb, x) - xhat * _per_channel(gw, x))
    return gx, gw.reshape(w.shape), gb.reshape(w.shape)


NORM_ACTS = {  # value and slope
    "none": (lambda y: y, np.ones_like),
    "relu": (lambda y: np.maximum(y, 0), lambda y: (y > 0) * 1.0),
    "relu6": (lambda y: np.clip(y, 0, 6), lambda y: ((y > 0) & (y < 6)) * 1.0),
    "hswish": (
        lambda y: y * np.clip(y + 3, 0, 6) / 6,
        lambda y: np.where(y < -3, 0, np.where(y > 3, 1, (2 * y + 3) / 6)),
    ),
    "silu": (lambda y: y / (1 + np.exp(-y)), lambda y: (1 + np.exp(-y) * (1 + y)) / (1 + np.exp(-y)) ** 2),
}


def batch_norm_fused(x, w, b, add=0, eps=1e-5, has_add=False, act="none"):
    y, *stats = batch_norm_train(x, w, b, eps)
    return NORM_ACTS[act][0](y + add), *stats


def batch_norm_fused_bwd(x, gy, w, mean, rstd, b, act="none"):
    y = (x - _per_channel(mean, x)) * _per_channel(rstd, x) * _per_channel(w, x) + _per_channel(b, x)
    return batch_norm_bwd(x, gy * NORM_ACTS[act][1](y), w, mean, rstd)


def batch_norm_infer(x, w, b, mean, var, eps=1e-5):
    scale = w / np.sqrt(var + eps)
    return x * _per_channel(scale, x) + _per_channel(b - mean * scale, x)


def layer_norm(x, w=None, b=None, n_axes=1, eps=1e-5):
    axes = tuple(range(x.ndim - n_axes, x.ndim))
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    rstd = 1 / np.sqrt(var + eps)
    y = (x - mean) * rstd
    if w is not None:
        y = y * w + b
    return y, mean, rstd


def layer_norm_bwd(x, gy, mean, rstd, w=None, n_axes=1):
    axes = tuple(range(x.ndim - n_axes, x.ndim))
    lead = tuple(range(x.ndim - n_axes))
    xhat = (x - mean) * rstd
    g = gy if w is None else gy * w
    gx = rstd * (g - g.mean(axes, keepdims=True) - xhat * (g * xhat).mean(axes, keepdims=True))
    return gx, (gy * xhat).sum(lead), gy.sum(lead)


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def softmax_bwd(y, gy, axis=-1):
    return y * (gy - (gy * y).sum(axis, keepdims=True))


def logsoftmax(x, axis=-1):
    s = x - x.max(axis, keepdims=True)
    return s - np.log(np.exp(s).sum(axis, keepdims=True))


def logsoftmax_bwd(y, gy, axis=-1):
    return gy - np.exp(y) * gy.sum(axis, keepdims=True)


def one_hot_index(x, index, axis):
    return np.expand_dims(index, axis)


def softmax_xent(x, label, axis=1):
    p = softmax(x, axis)
    picked = np.take_along_axis(logsoftmax(x, axis), one_hot_index(x, label, axis), axis)
    return -np.squeeze(picked, axis), p


def softmax_xent_bwd(p, label, gloss, axis=1):
    hot = np.zeros_like(p)
    np.put_along_axis(hot, one_hot_index(p, label, axis), 1.0, axis)
    return (p - hot) * np.expand_dims(gloss, axis)


def matmul(a, b, bias=0, ta=False, tb=False):
    return np.matmul(np.swapaxes(a, -1, -2) if ta else a, np.swapaxes(b, -1, -2) if tb else b) + bias


def matmul_fused(a, b, *extras, has_bias=False, steps="", **product):
    """``steps`` is a list of calls in the product ``y`` and the numbers of further operands."""
    rest = list(extras)
    y = matmul(a, b, rest.pop(0) if has_bias else 0, **product)
    calls = {"add": np.add, "mul": np.multiply, "tanh": np.tanh, "tanh_grad": lambda t, g: g * (1 - t * t)}
    for step in steps.split():
        name, args = step.rstrip(")").split("(")
        y = calls[name](*(y if k == "y" else rest[int(k)] for k in args.split(",")))
    return y


def reduce(x, mode="sum", axes=(), keepdims=False):
    return getattr(np, mode)(x, axis=tuple(axes) or None, keepdims=keepdims)


def slice_key(x, axes, starts, stops, steps):
    key = [slice(None)] * x.ndim
    for a, s, e, t in zip(axes, starts, stops, steps, strict=True):
        key[a] = slice(s, None if t < 0 and e < 0 else e, t)
    return tuple(key)


def slice_(x, **a):
    return x[slice_key(x, **a)]


def set_slice(x, v, **a):
    y = x.copy()
    y[slice_key(x, **a)] = v
    return y


def with_hyper(step, names, kept):
    """An optimizer step whose numbers come as an array, after its inputs, and that can be skipped."""

    def run(*args, **attrs):
        *inputs, hyper, skip = args
        if skip:
            old = tuple(inputs[i] for i in kept)
            return old if len(old) > 1 else old[0]
        return step(*inputs, **dict(zip(names, hyper)), **attrs)

    return run


def sgd_update(w, g, lr, weight_decay=0.0):
    return w - lr * (g + weight_decay * w)


def sgd_momentum_update(w, g, lr, m, momentum=0.9, weight_decay=0.0, nesterov=False):
    g = g + weight_decay * w
    m = momentum * m + g
    return w - lr * (g + momentum * m if nesterov else m), m


def adam_update(w, g, m, v, lr, t, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, decoupled=False):
    if not decoupled:
        g = g + weight_decay * w
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    delta = (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + eps)
    if decoupled:
        delta = delta + weight_decay * w
    return w - lr * delta, m, v


def adagrad_update(w, g, s, lr, t, lr_decay=0.0, eps=1e-10, weight_decay=0.0):
    g = g + weight_decay * w
    s = s + g * g
    return w - lr / (1 + (t - 1) * lr_decay) * g / np.sqrt(s + eps), s


def adadelta_update(w, g, s, d, lr, rho=0.9, eps=1e-6, weight_decay=0.0):
    g = g + weight_decay * w
    s = rho * s + (1 - rho) * g * g
    delta = np.sqrt(d + eps) / np.sqrt(s + eps) * g
    return w - lr * delta, s, rho * d + (1 - rho) * delta * delta


def lamb_direction(w, g, m, v, t, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, bias_correction=True):
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    c1, c2 = (1 - beta1**t, 1 - beta2**t) if bias_correction else (1, 1)
    return m / c1 / (np.sqrt(v / c2) + eps) + weight_decay * w, m, v


# ---- simulated quantisation
def fake_quant(x: Any, scale: Any, zero: Any, qmin: float, qmax: float) -> np.ndarray:
    q = round_half_away(x / scale) + zero
    return (np.clip(q, qmin, qmax) - zero) * scale


def quantisable(shapes: Any, learnt: str) -> Any:
    """Arguments of fake_quant, tqt or lsq whose x / scale keeps away from halves."""
    x_shape, s_shape, z_shape = shapes

    def make(rng: np.random.RandomState) -> list[np.ndarray]:
        exponent = rng.uniform(-3, 1, s_shape)
        if np.broadcast_shapes(x_shape, s_shape) != x_shape:
            exponent = np.ones(s_shape)  # x meets every scale: all must be the same
        steps = rng.randint(-12, 12, x_shape) + rng.uniform(-0.45, 0.45, x_shape)
        x = np.asarray(steps * (2.0 if np.all(exponent == 1) else 2.0**exponent))
        zero = rng.randint(-3, 3, z_shape).astype(np.float64)
        if learnt == "exponent":
            return [x, np.asarray(exponent)]
        return [x, np.asarray(2.0**exponent), zero, *([np.asarray(0.1)] if learnt == "step" else [])]

    return make
