"""Reductions of matrices that lie the other way round: the same bits as of a row-major copy, and close to NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F

MODES = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "prod": np.prod}
#: Shapes in memory, and the axes that turn them around.
SHAPES = [
    ((300, 70), (1, 0)),
    ((1, 17), (1, 0)),
    ((17, 16), (1, 0)),
    ((65, 2100), (1, 0)),
    ((2100, 65), (1, 0)),
    ((129, 128), (1, 0)),
    ((3, 130, 33), (0, 2, 1)),
    ((33, 5, 130), (2, 0, 1)),
    ((4, 40, 5, 6), (0, 3, 1, 2)),
    ((2, 3, 4, 5), (3, 1, 2, 0)),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_same_bits_as_of_a_copy(mode: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(5)
    x = (rng.standard_normal(shape) if mode != "prod" else rng.uniform(0.97, 1.03, shape)).astype(np.float32)
    turned, copied = F.transpose(mge.Tensor(x), axes), mge.Tensor(np.ascontiguousarray(x.transpose(axes)))
    for axis in range(len(shape)):
        got = getattr(F, mode)(turned, axis).numpy()
        np.testing.assert_array_equal(got.view(np.int32), getattr(F, mode)(copied, axis).numpy().view(np.int32))
        right = MODES[mode](x.transpose(axes).astype(np.float64), axis=axis)
        np.testing.assert_allclose(got, right, rtol=2e-5, atol=2e-4)


def test_nan_and_zeros_of_both_signs() -> None:
    x = np.zeros((70, 50), np.float32)
    x[::3] = -0.0
    x[5, 7] = x[60, 7] = np.nan
    x[9, 9] = np.inf
    turned, copied = F.transpose(mge.Tensor(x), (1, 0)), mge.Tensor(np.ascontiguousarray(x.T))
    for mode in MODES:
        for axis in (0, 1):
            got, want = (getattr(F, mode)(t, axis).numpy().view(np.int32) for t in (turned, copied))
            np.testing.assert_array_equal(got, want)


def test_a_part_of_a_matrix_and_a_mirrored_one() -> None:
    x = np.random.default_rng(6).standard_normal((90, 80)).astype(np.float32)
    t = mge.Tensor(x)
    for cut, same in ((t[3:70, 5:60], x[3:70, 5:60]), (t[::-1], x[::-1]), (t[::2, 1::3], x[::2, 1::3])):
        for axis in (0, 1):
            want = F.sum(mge.Tensor(np.ascontiguousarray(same.T)), axis).numpy()
            np.testing.assert_array_equal(F.sum(F.transpose(cut, (1, 0)), axis).numpy(), want)


@pytest.mark.parametrize("symbolic", [False, True])
def test_in_a_program(symbolic: bool) -> None:
    x = np.random.default_rng(7).standard_normal((130, 100)).astype(np.float32)
    body = lambda t: [F.sum(F.transpose(t, (1, 0)), axis) for axis in (0, 1)]  # noqa: E731
    f = mge.jit.trace(body, symbolic=symbolic, without_host=symbolic)
    for _ in range(3):
        for got, want in zip(f(mge.Tensor(x)), body(mge.Tensor(x)), strict=True):
            np.testing.assert_array_equal(got.numpy(), want.numpy())
