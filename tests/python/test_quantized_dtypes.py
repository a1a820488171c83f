"""astype to and from quantised dtypes, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import megengine as mge
from megengine.core.tensor import dtype as dt

X = np.concatenate([np.random.RandomState(3).uniform(-20, 20, 500), [0.0, 1e9, -1e9, 0.25, -0.25]]).astype("float32")
KINDS = [
    (dt.qint8(0.07), -128, 127, 0),
    (dt.quint8(0.1, 128), 0, 255, 128),
    (dt.quint8(0.031, 7), 0, 255, 7),
    (dt.qint32(1e-3), -(2**31), 2**31 - 1, 0),
]


@pytest.mark.parametrize("kind", KINDS, ids=[str(k[0].metadata["mgb_dtype"]) for k in KINDS])
def test_there_and_back(kind) -> None:
    dtype, lo, hi, zero = kind
    scale = np.float32(dt.get_scale(dtype))
    stored = np.clip(np.round(X / scale).astype("float64") + zero, lo, hi)
    q = mge.tensor(X).astype(dtype)
    assert dt.is_quantize(q.dtype) and dt.get_scale(q.dtype) == dt.get_scale(dtype)
    np.testing.assert_array_equal(q.numpy().astype("float64"), stored)
    back = q.astype("float32")
    assert back.dtype == np.float32
    np.testing.assert_allclose(back.numpy(), (stored - zero) * scale, rtol=1e-6)
    np.testing.assert_array_equal(q.astype(dtype).numpy(), q.numpy())


def test_between_scales_and_from_integers() -> None:
    q = mge.tensor(X[:500]).astype(dt.qint8(0.5))
    r = q.astype(dt.qint8(1.0))
    np.testing.assert_array_equal(r.numpy(), np.clip(np.round(q.numpy() * np.float32(0.5)), -128, 127))
    assert mge.tensor([1, 2, 3]).astype(dt.qint32(0.5)).numpy().tolist() == [2, 4, 6]
    assert q.astype("int32").dtype == np.int32


def test_half_and_not_a_number() -> None:
    h = mge.tensor(np.array([0.5, 1.5, -0.5], "float16")).astype(dt.qint8(1.0))
    assert h.numpy().tolist() == [0, 2, 0]  # halves go to even
    assert mge.tensor([float("nan"), float("inf")]).astype(dt.qint8(1.0)).numpy().tolist() == [-128, 127]


@pytest.mark.parametrize("dtype", [dt.qint8(0.1), dt.quint8(0.1, 3), dt.qint32(0.1)], ids=lambda d: d.name)
@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64", "float16", "float32", "float64", "bool"])
def test_made_from_other_dtypes_than_its_carrier(dtype, kind) -> None:
    """The bytes of float32 were once taken for the integers, and int8 read beyond its end for qint32."""
    for data in (np.array([0, 1, 2, 100]).astype(kind), np.array([0, 1, 2, 100]).astype(kind).tolist()):
        x = mge.Tensor(data, dtype=dtype)
        assert x.dtype == dtype and x.numpy().tolist() == np.asarray(data).astype("int32").tolist()


def test_packed_dtypes_say_what_is_missing() -> None:
    with pytest.raises(NotImplementedError, match="quantize: quint4"):
        mge.tensor([1.0]).astype(dt.quint4(0.5, 8))


def test_quantised_dtype_arguments() -> None:
    for bad in ((0.05, 0.233), (0.02, 777), (0.02, -1)):
        with pytest.raises(ValueError):
            dt.quint8(*bad)
    with pytest.raises(ValueError):
        dt.quint4(0.02, 18)
