"""Augmentation layers against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import megengine.functional as F
import megengine.module as M
from megengine import Tensor

V = M.vision
RNG = np.random.default_rng(0)


def or_skip(f):
    """The result, or a skip while the function below is not there."""
    try:
        return f()
    except NotImplementedError as e:
        pytest.skip(str(e))


@pytest.mark.parametrize(
    "make, mean, std",
    [
        (lambda **k: V.AdditiveGaussianNoise(1.0, 2.0, **k), 1.0, 2.0),
        (lambda **k: V.AdditiveLaplaceNoise(1.0, 2.0, **k), 1.0, 2.0 * 2**0.5),
        (lambda **k: V.AdditivePoissonNoise(3.0, **k), 3.0, 3**0.5),
    ],
    ids=["gaussian", "laplace", "poisson"],
)
def test_noise(make, mean, std):
    x = F.zeros((4, 3, 64, 64))
    noise = make(per_channel=True, seed=5)
    a = or_skip(lambda: noise(x).numpy())
    assert abs(a.mean() - mean) < 0.06 and abs(a.std() - std) < 0.06 and np.isfinite(a).all()
    assert not np.array_equal(a[:, 0], a[:, 1]) and not np.array_equal(noise(x).numpy(), a)
    noise.seed = 5  # starts anew
    np.testing.assert_array_equal(noise(x).numpy(), a)
    shared = make(seed=5)
    b = shared(x).numpy()
    np.testing.assert_array_equal(b[:, 0], b[:, 1])
    assert not shared.per_channel
    with pytest.raises(RuntimeError, match=r"needs \(N, C, H, W\)"):
        shared(F.zeros((3,)))


def np_filter(x, kernel, mode="reflect"):
    kh, kw = kernel.shape
    padded = np.pad(x, ((0, 0), (0, 0), (kh // 2,) * 2, (kw // 2,) * 2), mode=mode)
    out = np.zeros(x.shape)
    for i in range(kh):
        for j in range(kw):
            out += kernel[i, j] * padded[:, :, i : i + x.shape[2], j : j + x.shape[3]]
    return out


IDENTITY = np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0]])


def test_emboss_and_sharpen():
    x = RNG.uniform(0, 1, (2, 3, 6, 7)).astype("float32")
    s, a = 0.7, 0.3
    relief = np.array([[-1 - s, -s, 0], [-s, 1, s], [0, s, 1 + s]])
    want = np_filter(x, (1 - a) * IDENTITY + a * relief)
    np.testing.assert_allclose(V.Emboss(a, s)(Tensor(x)).numpy(), want, rtol=1e-4, atol=1e-5)
    edges = np.full((3, 3), -1.0)
    edges[1, 1] = 8 + s
    want = np_filter(x, (1 - a) * IDENTITY + a * edges)
    np.testing.assert_allclose(V.Sharpen(a, s)(Tensor(x)).numpy(), want, rtol=1e-4, atol=1e-5)
    drawn = V.Sharpen((0.0, 1.0), (0.5, 1.0), seed=1)
    assert not np.array_equal(drawn(Tensor(x)).numpy(), drawn(Tensor(x)).numpy())
    byte = Tensor((x * 255).astype("uint8"))
    y = V.Sharpen(1.0, 2.0)(byte)
    assert y.dtype == np.uint8  # clipped, not wrapped around
    want = np.clip(np_filter(byte.numpy().astype("float64"), edges - 0 + IDENTITY * (2 - s)), 0, 255)
    assert np.abs(y.numpy() - want).max() <= 1
    assert V.Emboss(a, s)(Tensor(x.astype("float16"))).dtype == np.float16
    for bad in ("x", (1, 0), (1, 2, 3), True):
        with pytest.raises(ValueError, match="a number or a range"):
            V.Emboss(bad, 1.0)
    with pytest.raises(RuntimeError):
        V.Emboss(a, s)(Tensor(x[0]))


@pytest.mark.parametrize("border, mode", [("REPLICATE", "edge"), ("REFLECT_101", "reflect"), ("CONSTANT", "constant")])
def test_gaussian_blur(border, mode):
    x = RNG.uniform(0, 1, (2, 3, 8, 9)).astype("float32")

    def line(k, sigma):
        g = np.exp(-((np.arange(k) - k // 2) ** 2) / (2 * sigma**2))
        return g / g.sum()

    got = V.GaussianBlur((3, 5), 1.5, 0.8, border)(Tensor(x)).numpy()
    want = np_filter(x, np.outer(line(3, 0.8), line(5, 1.5)), mode)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    default = V.GaussianBlur(5, border_mode=border)(Tensor(x)).numpy()
    np.testing.assert_allclose(default, np_filter(x, np.outer(line(5, 1.1), line(5, 1.1)), mode), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="odd"):
        V.GaussianBlur(4)
    with pytest.raises(NotImplementedError, match="WRAP"):
        V.GaussianBlur(3, border_mode="WRAP")


def test_contrast():
    x = RNG.integers(0, 256, (2, 3, 5, 5)).astype("uint8")
    got = V.LinearContrast(1.5)(Tensor(x)).numpy()
    want = np.clip(np.floor(127 + 1.5 * (x.astype("float64") - 127) + 0.5), 0, 255)
    assert got.dtype == np.uint8
    np.testing.assert_array_equal(got, want)
    f = RNG.uniform(0, 1, (2, 3, 5, 5)).astype("float32")
    np.testing.assert_allclose(V.LinearContrast(0.5)(Tensor(f)).numpy(), 0.5 + 0.5 * (f - 0.5), rtol=1e-5)
    y = V.LinearContrast((0.5, 2.0), per_channel=True, seed=0)(Tensor(f)).numpy()
    factors = ((y - 0.5) / (f - 0.5)).reshape(6, 25)
    np.testing.assert_allclose(factors, factors[:, :1] * np.ones((1, 25)), rtol=1e-2)
    assert len(np.unique(factors[:, 0].round(3))) == 6 and factors.min() > 0.49 and factors.max() < 2.01


def test_mixup():
    a, b = RNG.uniform(0, 1, (2, 8, 3, 4, 4)).astype("float32")
    ones, zeros = F.ones((8, 2)), F.zeros((8, 2))
    data, label = or_skip(lambda: V.Mixup(1.0, seed=3)(Tensor(a), ones, Tensor(b), zeros))
    part = label.numpy()[:, 0]
    assert (part >= 0).all() and (part <= 1).all() and len(np.unique(part)) == 8
    p = part.reshape(8, 1, 1, 1)
    np.testing.assert_allclose(data.numpy(), a * p + b * (1 - p), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError):
        V.Mixup(0)


def test_geometry():
    x = RNG.uniform(0, 1, (2, 4, 5, 3)).astype("float32")
    t = Tensor(x)
    np.testing.assert_array_equal(V.Flip()(t).numpy(), x[:, ::-1, ::-1])
    np.testing.assert_array_equal(V.Flip(vertical=False)(t).numpy(), x[:, :, ::-1])
    np.testing.assert_array_equal(V.RandomHorizontalFlip(1.0)(t).numpy(), x[:, :, ::-1])
    np.testing.assert_array_equal(V.RandomVerticalFlip(1.0)(t).numpy(), x[:, ::-1])
    assert V.RandomVerticalFlip(0.0)(t) is t
    flip = V.RandomHorizontalFlip(0.5, seed=0)
    seen = [flip(t) is t for _ in range(60)]
    assert 10 < sum(seen) < 50
    np.testing.assert_array_equal(V.Rot90()(t).numpy(), np.rot90(x, -1, (1, 2)))
    np.testing.assert_array_equal(V.Rot90(False)(t).numpy(), np.rot90(x, 1, (1, 2)))
    with pytest.raises(ValueError):
        V.RandomVerticalFlip(2)


def test_layers_call_their_functions():
    x = Tensor(RNG.uniform(0, 1, (1, 3, 6, 6)).astype("float32"))
    y = or_skip(lambda: V.Resize((3, 4))(x))
    np.testing.assert_array_equal(y.numpy(), F.vision.resize(x, (3, 4), imode="bilinear").numpy())
    np.testing.assert_array_equal(or_skip(lambda: V.Rotate(30.0)(x)).numpy(), F.vision.rotate(x, 30.0).numpy())
    place = RNG.uniform(0, 5, (1, 4, 4, 2)).astype("float32")
    want = or_skip(lambda: F.vision.remap(x, Tensor(place)))
    np.testing.assert_array_equal(V.Remap()(x, Tensor(place)).numpy(), want.numpy())
    two = V.Remap()(x, Tensor(place[..., 0]), Tensor(place[..., 1]))
    np.testing.assert_array_equal(two.numpy(), want.numpy())
