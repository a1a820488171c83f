"""3x3 convolutions of stride 1 with many channels go through transformed tiles: values, gradients, and the same bits
in every mode."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.autodiff import GradManager
from megengine.core import _core
from megengine.jit import trace


def float64_conv(x: np.ndarray, w: np.ndarray, dy: np.ndarray, pad: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Output and both gradients, tap by tap."""
    x, w, dy = (v.astype("float64") for v in (x, w, dy))
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    oh, ow = dy.shape[2:]
    y, dx, dw = np.zeros(dy.shape), np.zeros(padded.shape), np.zeros(w.shape)
    for r in range(3):
        for s in range(3):
            window = padded[:, :, r : r + oh, s : s + ow]
            y += np.einsum("nchw,oc->nohw", window, w[:, :, r, s])
            dx[:, :, r : r + oh, s : s + ow] += np.einsum("nohw,oc->nchw", dy, w[:, :, r, s])
            dw[:, :, r, s] = np.einsum("nchw,nohw->oc", window, dy)
    return y, dx[:, :, pad : pad + x.shape[2], pad : pad + x.shape[3]], dw


def arrays(n: int, c: int, h: int, w: int, o: int, pad: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    shapes = (n, c, h, w), (o, c, 3, 3), (n, o, h + 2 * pad - 2, w + 2 * pad - 2)
    x, weight, dy = (rng.standard_normal(s).astype("float32") for s in shapes)
    return x, weight, dy


def conv_with_gradients(x: np.ndarray, w: np.ndarray, dy: np.ndarray, pad: int) -> list[np.ndarray]:
    tx, tw = mge.Tensor(x), mge.Tensor(w)
    gm = GradManager().attach([tx, tw])
    with gm:
        y = F.conv2d(tx, tw, padding=pad)
        gm.backward(y, mge.Tensor(dy))
    return [y.numpy(), tx.grad.numpy(), tw.grad.numpy()]


SHAPES = [(2, 32, 14, 14, 48, 1), (1, 48, 17, 15, 32, 0), (3, 64, 9, 12, 64, 2), (1, 32, 40, 60, 32, 1)]


@pytest.mark.asan_subset
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients(shape: tuple[int, ...]) -> None:
    x, w, dy = arrays(*shape)
    got = conv_with_gradients(x, w, dy, shape[-1])
    # The forward pass has tiles of 4x4 (docs/numerics.md), the gradients of 2x2.
    for mine, exact, bound in zip(got, float64_conv(x, w, dy, shape[-1]), (3e-6, 1e-6, 1e-6), strict=True):
        assert np.abs(mine - exact).max() <= bound * np.abs(exact).max()


def integers_are_exact(outputs: slice) -> None:
    rng = np.random.default_rng(5)
    for shape in SHAPES:
        x, w, dy = (rng.integers(-4, 5, a.shape).astype("float32") for a in arrays(*shape))
        pad = shape[-1]
        found = zip(conv_with_gradients(x, w, dy, pad)[outputs], float64_conv(x, w, dy, pad)[outputs], strict=True)
        for mine, exact in found:
            np.testing.assert_array_equal(mine, exact)


def test_gradients_of_small_integers_are_exact() -> None:
    integers_are_exact(slice(1, 3))


@pytest.mark.parametrize("largest", ("2", "0"))
def test_small_integers_are_exact_with_smaller_tiles(largest: str) -> None:
    # The setting is one of the process.
    code = "from test_conv_tiles import integers_are_exact; integers_are_exact(slice(0, 3))"
    env = {**os.environ, "MGE_WINOGRAD": largest}
    subprocess.run([sys.executable, "-c", code], env=env, cwd=pathlib.Path(__file__).parent, check=True)


def test_a_wrong_size_of_tiles_is_said_and_not_used() -> None:
    code = "import megengine.functional as F; F.conv2d(F.ones((1, 32, 20, 20)), F.ones((32, 32, 3, 3))).numpy()"
    env = {**os.environ, "MGE_WINOGRAD": "6"}
    done = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True)
    assert "MGE_WINOGRAD: expected 4, 2 or 0" in done.stderr and "'6'" in done.stderr


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_threads_and_batches_do_not_change_bits(shape: tuple[int, ...]) -> None:
    x, w, dy = arrays(*shape)
    before = _core.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            _core.set_num_threads(threads)
            results.append(conv_with_gradients(x, w, dy, shape[-1]))
    finally:
        _core.set_num_threads(before)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
    twice = np.concatenate([x, x])
    y = F.conv2d(mge.Tensor(twice), mge.Tensor(w), padding=shape[-1]).numpy()
    np.testing.assert_array_equal(y, np.concatenate([results[0][0]] * 2))


def test_traced_and_fused_have_the_bits_of_eager() -> None:
    class Net(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.bn = M.Conv2d(32, 64, 3, padding=1), M.BatchNorm2d(64)
            self.last = M.Conv2d(64, 32, 3, padding=1)

        def forward(self, x: mge.Tensor) -> mge.Tensor:
            y = F.relu(self.bn(self.conv(x)))
            return F.relu(self.last(y) + x)

    net = Net()
    x = mge.Tensor(np.random.default_rng(1).standard_normal((2, 32, 16, 18)).astype("float32"))
    net(x)  # statistics that are not those of a new layer
    net.eval()
    want = net(x).numpy()
    for symbolic in (False, True):
        traced = trace(lambda v: net(v), symbolic=symbolic)
        for _ in range(3):
            np.testing.assert_array_equal(traced(x).numpy(), want)
