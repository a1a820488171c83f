"""astype to and from quantised dtypes, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine.core.tensor import dtype as dt

X = np.concatenate([np.random.RandomState(3).uniform(-20, 20, 500), [0.0, 1e9, -1e9, 0.25, -0.25]]).astype("float32")
KINDS = [
    (dt.qint8(0.07), -128, 127, 0),
    (dt.quint8(0.1, 128), 0, 255, 128),
    (dt.quint8(0.031, 7), 0, 255, 7),
    (dt.qint32(1e-3), -(2**31), 2**31 - 1, 0),
    (dt.qint4(1.7), -8, 7, 0),
    (dt.quint4(2.1, 7), 0, 15, 7),
    (dt.qint1(0.3), 0, 1, 0),
]


def away(x) -> np.ndarray:
    """C's round of float32, in float64."""
    x = np.asarray(x, dtype="float32").astype("float64")
    return np.sign(x) * np.floor(np.abs(x) + 0.5)


@pytest.mark.parametrize("kind", KINDS, ids=[str(k[0].metadata["mgb_dtype"]) for k in KINDS])
def test_there_and_back(kind) -> None:
    dtype, lo, hi, zero = kind
    scale = np.float32(dt.get_scale(dtype))
    stored = np.clip(away(X / scale) + zero, lo, hi)
    q = mge.tensor(X).astype(dtype)
    assert dt.is_quantize(q.dtype) and dt.get_scale(q.dtype) == dt.get_scale(dtype)
    np.testing.assert_array_equal(q.numpy().astype("float64"), stored)
    back = q.astype("float32")
    assert back.dtype == np.float32
    np.testing.assert_allclose(back.numpy(), (stored - zero) * scale, rtol=1e-6)
    np.testing.assert_array_equal(q.astype(dtype).numpy(), q.numpy())


@pytest.mark.parametrize("kind", KINDS, ids=[str(k[0].metadata["mgb_dtype"]) for k in KINDS])
def test_an_array_of_quantised_numbers_is_taken_as_one(kind) -> None:
    """Its dtype says so; the numbers came back as plain integers, 146 for 1.8."""
    dtype, _, _, zero = kind
    q = mge.tensor(X[:50]).astype(dtype)
    for again in (mge.tensor(q.numpy()), mge.Parameter(q.numpy())):
        assert dt.is_quantize(again.dtype) and dt.get_scale(again.dtype) == dt.get_scale(dtype)
        np.testing.assert_array_equal(again.astype("float32").numpy(), q.astype("float32").numpy())
    scale = np.float32(dt.get_scale(dtype))
    other = mge.tensor(q.numpy(), dtype="int32")  # as named
    assert other.dtype == np.int32
    np.testing.assert_allclose((other.numpy() - zero) * scale, q.astype("float32").numpy(), rtol=1e-6)
    assert mge.tensor(np.arange(3, dtype="int8")).dtype.metadata is None


def test_arrays_of_the_converters_make_quantised_tensors() -> None:
    x = np.array([1.8, 0.4, 1.0, -2.2], "float32")
    for to, dtype in ((dt.convert_to_qint8, dt.qint8(0.1)), (dt.convert_to_quint8, dt.quint8(0.1, 128))):
        np.testing.assert_allclose(mge.tensor(to(x, dtype)).astype("float32").numpy(), x, rtol=1e-6)


def test_between_scales_and_from_integers() -> None:
    q = mge.tensor(X[:500]).astype(dt.qint8(0.5))
    r = q.astype(dt.qint8(1.0))
    np.testing.assert_array_equal(r.numpy(), np.clip(away(q.numpy() * np.float32(0.5)), -128, 127))
    assert mge.tensor([1, 2, 3]).astype(dt.qint32(0.5)).numpy().tolist() == [2, 4, 6]
    assert q.astype("int32").dtype == np.int32


def test_half_and_not_a_number() -> None:
    h = mge.tensor(np.array([0.5, 1.5, -0.5], "float16")).astype(dt.qint8(1.0))
    assert h.numpy().tolist() == [1, 2, -1]  # halves go away from zero
    assert mge.tensor([float("nan"), float("inf")]).astype(dt.qint8(1.0)).numpy().tolist() == [-128, 127]


@pytest.mark.parametrize("dtype", [dt.qint8(0.1), dt.quint8(0.1, 3), dt.qint32(0.1)], ids=lambda d: d.name)
@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64", "float16", "float32", "float64", "bool"])
def test_made_from_other_dtypes_than_its_carrier(dtype, kind) -> None:
    """The bytes of float32 were once taken for the integers, and int8 read beyond its end for qint32."""
    for data in (np.array([0, 1, 2, 100]).astype(kind), np.array([0, 1, 2, 100]).astype(kind).tolist()):
        x = mge.Tensor(data, dtype=dtype)
        assert x.dtype == dtype and x.numpy().tolist() == np.asarray(data).astype("int32").tolist()


@pytest.mark.parametrize("n", [0, 1, 2, 7, 8, 33])
@pytest.mark.parametrize("dtype, lo, hi", [(dt.qint4(0.5), -8, 7), (dt.quint4(0.5, 8), 0, 15)], ids=["qint4", "quint4"])
def test_four_bits_lie_two_to_a_byte(dtype, lo, hi, n) -> None:
    data = np.random.RandomState(n).randint(lo, hi + 1, n)
    x = mge.Tensor(data, dtype=dtype)
    assert x.dtype == dtype and x.numpy().tolist() == data.tolist()
    assert x.reshape(-1, 1).numpy().ravel().tolist() == data.tolist()
    assert x[::-1].numpy().tolist() == data[::-1].tolist()
    assert F.concat([x, x[:1]]).numpy().tolist() == [*data.tolist(), *data[:1].tolist()]
    assert x.astype("float32").astype(dtype).numpy().tolist() == data.tolist()


def test_four_bits_take_no_more() -> None:
    for bad in ([8], [-9]):
        with pytest.raises(ValueError, match="qint4, which holds -8 to 7"):
            mge.Tensor(np.array(bad), dtype=dt.qint4(1.0))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("kind", ["qint8", "quint8", "qint32", "qint4", "quint4"])
def test_per_channel_against_numpy(kind, axis) -> None:
    rng = np.random.RandomState(5)
    x = rng.uniform(-9, 9, (3, 4, 5)).astype("float32")
    n = x.shape[axis]
    scale = rng.uniform(0.03, 0.7, n).astype("float32")
    meta = dt._builtin_quant_dtypes[kind]
    zero = rng.randint(meta.qmin, meta.qmax + 1, n) if meta.is_unsigned else None
    dtype = dt.create_quantized_dtype(meta, scale, zero, axis)
    shape = [n if i == axis else 1 for i in range(3)]
    s, z = scale.reshape(shape), 0 if zero is None else zero.reshape(shape)
    want = np.clip(away(x / s) + z, meta.qmin, meta.qmax)
    q = mge.tensor(x).astype(dtype)
    np.testing.assert_array_equal(q.numpy(), want)
    np.testing.assert_array_equal(getattr(dt, f"convert_to_{kind}")(x, dtype), want)
    assert dt.is_dtype_equal(q.dtype, dtype) and dt.get_axis(q.dtype) == axis
    np.testing.assert_array_equal(dt.get_scale(q.dtype), scale)
    real = (want - z).astype("float32") * s
    np.testing.assert_array_equal(q.astype("float32").numpy(), real)
    moved = q.transpose(2, 0, 1)
    assert dt.get_axis(moved.dtype) == (axis + 1) % 3
    np.testing.assert_array_equal(moved.astype("float32").numpy(), real.transpose(2, 0, 1))
    if kind.endswith("8"):
        flat = q.reshape(3, 4, 5, 1)
        np.testing.assert_array_equal(flat.astype("float32").numpy(), real[..., None])
        with pytest.raises(NotImplementedError, match="per channel"):
            q[1:2]


def test_channels_that_a_reshape_parts_are_refused() -> None:
    q = mge.tensor(np.ones((4, 6), "float32")).astype(dt.qint8([0.1] * 4, axis=0))
    assert dt.get_axis(q.reshape(4, 2, 3).dtype) == 0
    assert dt.get_axis(q.reshape(1, 4, 6).dtype) == 1
    assert q.reshape(2, 2, 6).dtype.metadata["mgb_dtype"]["span"] == 2
    with pytest.raises(ValueError, match="parts the channels"):
        q.reshape(24)
    with pytest.raises(ValueError, match="4 channels along axis 1"):
        mge.tensor(np.ones((4, 6), "float32")).astype(dt.qint8([0.1] * 4, axis=1))
    with pytest.raises(ValueError, match="need the axis"):
        dt.qint8([0.1, 0.2])


@pytest.mark.parametrize("dtype", [dt.qint8(0.1), dt.quint4(0.1, 3), dt.qint8([0.1, 0.3], axis=1), dt.qint32(0.1)])
def test_saved_and_loaded(dtype, tmp_path) -> None:
    x = mge.tensor(np.arange(6, dtype="float32").reshape(3, 2) / 10).astype(dtype)
    mge.save({"x": x}, str(tmp_path / "x"))
    y = mge.load(str(tmp_path / "x"))["x"]
    assert dt.is_dtype_equal(y.dtype, x.dtype)
    np.testing.assert_array_equal(y.numpy(), x.numpy())


def test_quantised_dtype_arguments() -> None:
    for bad in ((0.05, 0.233), (0.02, 777), (0.02, -1)):
        with pytest.raises(ValueError):
            dt.quint8(*bad)
    with pytest.raises(ValueError):
        dt.quint4(0.02, 18)


def test_a_zero_point_beyond_int32_is_refused() -> None:
    """It was another one: the lower 32 bits of it."""
    note = {"mgb_dtype": {"name": "Quantized8Asymm", "scale": 0.5, "zero_point": 2**32 + 5}}
    with pytest.raises(ValueError, match="the zero point 4294967301 of a quantised dtype does not fit int32"):
        mge.tensor(np.zeros(3, np.dtype("uint8", metadata=note)))
