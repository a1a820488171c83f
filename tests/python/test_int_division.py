"""Quotients, remainders and shifts of int32 in vectors: as in 64 bits, stored in 32."""

from __future__ import annotations

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F

LOW, HIGH = np.iinfo(np.int32).min, np.iinfo(np.int32).max
SPECIAL = [LOW, LOW + 1, -65537, -65536, -46341, -3, -2, -1, 0, 1, 2, 3, 31, 32, 33, 63, 64, 65536, HIGH - 1, HIGH]


def pairs() -> tuple[np.ndarray, np.ndarray]:
    """All pairs of numbers at which something changes, then random ones of every size; no whole number of vectors."""
    rng = np.random.default_rng(11)
    a, b = (x.ravel() for x in np.meshgrid(SPECIAL, SPECIAL))
    x, y = (rng.integers(LOW, HIGH, 20011, endpoint=True) >> rng.integers(0, 32, 20011) for _ in range(2))
    near = x // np.where(y == 0, 1, y) * y + rng.integers(-1, 2, 20011)  # quotients beside whole numbers
    near = np.clip(near, LOW, HIGH)
    return (np.concatenate([a, x, near]).astype(np.int32), np.concatenate([b, y, y]).astype(np.int32))


def wrapped(x: np.ndarray) -> np.ndarray:
    return x.astype(np.int64).astype(np.int32)


def floor_div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(b == 0, 0, a // np.where(b == 0, 1, b))


def mod(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(b == 0, 0, a - floor_div(a, b) * b)


def left(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where((b < 0) | (b > 63), 0, a << np.clip(b, 0, 63))


def right(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a >> np.where((b < 0) | (b > 63), 63, b)


OPS = {
    "//": (lambda a, b: a // b, floor_div),
    "%": (lambda a, b: a % b, mod),
    "<<": (lambda a, b: a << b, left),
    ">>": (lambda a, b: a >> b, right),
}


@pytest.mark.parametrize("name", OPS)
def test_as_in_64_bits(name: str) -> None:
    ours, right_answer = OPS[name]
    a, b = pairs()
    want = wrapped(right_answer(a.astype(np.int64), b.astype(np.int64)))
    np.testing.assert_array_equal(ours(mge.Tensor(a), mge.Tensor(b)).numpy(), want)
    # int64 takes the other way
    wide = ours(mge.Tensor(a.astype(np.int64)), mge.Tensor(b.astype(np.int64))).numpy()
    np.testing.assert_array_equal(wide.astype(np.int32), want)


@pytest.mark.parametrize("name", OPS)
def test_one_number_for_all_and_strides(name: str) -> None:
    ours, right_answer = OPS[name]
    a, b = pairs()
    for number in (7, -7, 1, -1, 31, 0):
        want = wrapped(right_answer(a.astype(np.int64), np.int64(number)))
        np.testing.assert_array_equal(ours(mge.Tensor(a), number).numpy(), want)
    want = wrapped(right_answer(a[::3].astype(np.int64), b[::-3].astype(np.int64)))
    np.testing.assert_array_equal(ours(mge.Tensor(a)[::3], mge.Tensor(b)[::-3]).numpy(), want)


def test_fused_with_others() -> None:
    a, b = pairs()
    f = mge.jit.trace(lambda x, y: (x // y) * 3 + x % y, symbolic=True)
    x, y = a.astype(np.int64), b.astype(np.int64)
    want = wrapped(floor_div(x, y) * 3 + mod(x, y))
    for _ in range(2):
        np.testing.assert_array_equal(f(mge.Tensor(a), mge.Tensor(b)).numpy(), want)
    assert F.floor_div(mge.Tensor([7]), mge.Tensor([-2])).numpy() == -4
