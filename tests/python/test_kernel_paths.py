"""Shapes that kernels treat apart: the bits of the general way, and NumPy's numbers."""

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine.autodiff import GradManager

rng = np.random.RandomState(7)


def normal(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("transpose_b", (False, True))
@pytest.mark.parametrize("transpose_a", (False, True))
@pytest.mark.parametrize("m, k", ((32, 1), (33, 7), (100, 257), (1000, 31), (64, 1500)))
def test_one_column_has_the_bits_of_a_column_among_others(m: int, k: int, transpose_a: bool, transpose_b: bool) -> None:
    a, b = normal(3, m, k), normal(3, k, 5)

    def product(columns: int) -> np.ndarray:
        x, y = a.swapaxes(1, 2) if transpose_a else a, b[:, :, :columns]
        y = np.ascontiguousarray(y.swapaxes(1, 2) if transpose_b else y)
        return F.matmul(mge.Tensor(x), mge.Tensor(y), transpose_a=transpose_a, transpose_b=transpose_b).numpy()

    one = product(1)
    assert one.tobytes() == np.ascontiguousarray(product(5)[:, :, :1]).tobytes()
    np.testing.assert_allclose(one, a.astype(np.float64) @ b[:, :, :1].astype(np.float64), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("m, n, k", ((3, 1, 3), (3, 3, 3), (2, 2, 2), (1, 1, 7), (4, 3, 4), (1, 48, 1), (2, 5, 4)))
@pytest.mark.parametrize("transpose_a, transpose_b", ((False, False), (True, False), (False, True), (True, True)))
def test_tiny_products_of_a_batch_have_the_bits_of_single_ones(
    m: int, n: int, k: int, transpose_a: bool, transpose_b: bool
) -> None:
    a, b = normal(*((50, k, m) if transpose_a else (50, m, k))), normal(*((50, n, k) if transpose_b else (50, k, n)))
    a[3], b[4] = -0.0, np.inf
    how = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    whole = F.matmul(mge.Tensor(a), mge.Tensor(b), **how).numpy()
    single = np.stack([F.matmul(mge.Tensor(x), mge.Tensor(y), **how).numpy() for x, y in zip(a, b, strict=True)])
    np.testing.assert_array_equal(whole, single)
    assert (np.signbit(whole) == np.signbit(single))[~np.isnan(whole)].all()
    shared = F.matmul(mge.Tensor(a), mge.Tensor(b[0]), **how).numpy()
    np.testing.assert_array_equal(
        shared[:3], np.stack([F.matmul(mge.Tensor(x), mge.Tensor(b[0]), **how).numpy() for x in a[:3]])
    )


@pytest.mark.parametrize("h, w", ((1, 1), (7, 7), (13, 5), (3, 16), (2, 17), (1, 40), (33, 31)))
def test_pooling_of_a_whole_image_joins_columns_in_order(h: int, w: int) -> None:
    x = normal(2, 5, h, w)
    columns = x[:, :, 0].copy()
    for row in range(1, h):
        columns += x[:, :, row]
    total = columns[..., 0].copy()
    for column in range(1, w):
        total += columns[..., column]
    want = (total / np.float32(h * w))[..., None, None]
    t = mge.Tensor(x)
    gm = GradManager().attach([t])
    with gm:
        y = F.adaptive_avg_pool2d(t, 1)
        gy = normal(2, 5, 1, 1)
        gm.backward(y, mge.Tensor(gy))
    if (h, w) != (2, 2):
        assert y.numpy().tobytes() == want.tobytes()
    assert t.grad.numpy().tobytes() == np.broadcast_to(gy / np.float32(h * w), x.shape).tobytes()
    x[1, 2, h // 2, w // 2] = np.nan
    np.testing.assert_array_equal(F.adaptive_max_pool2d(mge.Tensor(x), 1).numpy(), x.max((2, 3), keepdims=True))


@pytest.mark.parametrize("dtype", ("float32", "int32", "float16", "uint8"))
@pytest.mark.parametrize(
    "n, k", ((5, 1), (9, 2), (64, 15), (300, 3), (300, 74), (4000, 32), (4000, 33), (4000, 999), (10, 10))
)
@pytest.mark.parametrize("order", ("random", "rising", "falling", "equal"))
def test_topk_is_the_head_of_a_stable_sort(n: int, k: int, dtype: str, order: str) -> None:
    x = {
        "random": rng.randint(-9, 9, (3, n)) * 10.0 + rng.randint(0, 3, (3, n)),
        "rising": np.arange(3 * n) % 200.0,
        "falling": -np.arange(3 * n) % 200.0,
        "equal": np.zeros(3 * n),
    }[order].reshape(3, n)
    x = (x % 251 if dtype == "uint8" else x).astype(dtype)
    if dtype[0] == "f" and n > 8:
        x[0, 1], x[1, 2], x[2, 3], x[2, 4] = np.nan, -0.0, -np.inf, np.inf
    for descending in (False, True):
        number = x.astype(np.float64)
        number[np.isnan(number)] = np.inf  # NaN counts as the largest; an infinity before it stays before it
        place = np.lexsort((np.isnan(x), number) if not descending else (~np.isnan(x), -number), axis=-1)[:, :k]
        values, index = F.topk(mge.Tensor(x), k, descending=descending)
        np.testing.assert_array_equal(index.numpy(), place)
        np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, place, -1))


@pytest.mark.parametrize("dtype", ("uint8", "int16", "float16", "float32", "int32", "float64", "int64", "bool"))
def test_fills_of_every_size_and_dtype(dtype: str) -> None:
    for n in (0, 1, 3, 1023, 1024, 1025, 4096, 5000, 70001):
        got = F.full((n,), 1, dtype=dtype).numpy()
        assert got.dtype == dtype and got.shape == (n,) and (got == 1).all()
        assert (F.zeros((n,), dtype=dtype).numpy() == 0).all()


def test_exponentials_that_vanish() -> None:
    x = np.concatenate([np.linspace(-112, -80, 100_003), [-1e9, -np.inf, -104, -103.98, -103.9]]).astype(np.float32)
    want = np.exp(x.astype(np.float64)).astype(np.float32)
    got = F.exp(mge.Tensor(x)).numpy()
    steps = np.abs(got.view(np.int32).astype(np.int64) - want.view(np.int32))
    assert steps.max() <= 1 and (got[x < -104] == 0).all() and not np.signbit(got).any()
    masked = np.where(np.arange(len(x)) % 2, np.float32(-1e9), rng.standard_normal(len(x)).astype(np.float32))
    number = np.exp(masked.astype(np.float64) - masked.max())
    np.testing.assert_allclose(F.softmax(mge.Tensor(masked)).numpy(), number / number.sum(), rtol=2e-6)
    assert np.isnan(F.exp(mge.Tensor(np.array([np.nan, -200], np.float32))).numpy()).tolist() == [True, False]
