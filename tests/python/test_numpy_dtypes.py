"""bfloat16, intb1, intb2 and intb4 as NumPy dtypes. The judge is arithmetic on the bits, in plain NumPy."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine import Tensor, tensor
from megengine.core.tensor import dtype as dt
from megengine.core.tensor.dtype import bfloat16, intb1, intb2, intb4, is_bfloat16, is_lowbit

pytestmark = pytest.mark.asan_subset

LOW_BIT = {1: intb1, 2: intb2, 4: intb4}
ALL = [bfloat16, *LOW_BIT.values()]
NUMBERS = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "q", "f2", "f4", "f8", "g"]


def odd(bits: int) -> np.ndarray:
    return np.arange(1 - 2**bits, 2**bits, 2)


def names(dtype: np.dtype) -> str:
    return dtype.name


def bits_of(values: np.ndarray) -> np.ndarray:
    """The bfloat16 nearest to each float64, ties to even, found by search among all finite ones."""
    every = np.arange(0x7F80, dtype="uint32")  # the non-negative ones, in order
    numbers = (every << 16).view("float32").astype("float64")
    magnitude = np.abs(values)
    above = np.minimum(np.searchsorted(numbers, magnitude), len(every) - 1)
    below = np.maximum(above - 1, 0)
    up, down = numbers[above] - magnitude, magnitude - numbers[below]
    take_above = (up < down) | ((up == down) & (every[above] % 2 == 0))
    found = np.where(take_above, every[above], every[below])
    found = np.where(magnitude >= numbers[-1] + (numbers[-1] - numbers[-2]) / 2, 0x7F80, found)
    return (found | np.where(np.signbit(values), 0x8000, 0)).astype("uint16")


# ---- what they are


@pytest.mark.parametrize("dtype", ALL, ids=names)
def test_dtype_object(dtype) -> None:
    assert dtype.kind == "V" and dtype.itemsize == (2 if dtype is bfloat16 else 1) and dtype.isnative
    assert dtype == dtype.type and np.dtype(dtype.type) is dtype and issubclass(dtype.type, np.generic)
    assert dtype != np.dtype(f"V{dtype.itemsize}") and dtype not in [d for d in ALL if d is not dtype]
    assert is_bfloat16(dtype) == (dtype is bfloat16) and is_lowbit(dtype) == (dtype is not bfloat16)
    assert repr(dtype) == f"dtype({dtype.type.__name__})"


@pytest.mark.parametrize("dtype", ALL, ids=names)
def test_copies_are_the_same_object(dtype) -> None:
    for twin in (pickle.loads(pickle.dumps(dtype)), copy.copy(dtype), copy.deepcopy(dtype)):
        assert twin is dtype
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        a = np.array([[1, -1], [1, 1]], dtype=dtype)
        b = pickle.loads(pickle.dumps(a, protocol))
        assert b.dtype is dtype and b.tolist() == a.tolist()
        assert pickle.loads(pickle.dumps(a[0, 1], protocol)) == -1


@pytest.mark.parametrize("dtype", ALL, ids=names)
def test_pickles_of_megengine(dtype) -> None:
    """MegEngine 1.13 writes the same, with other flags in the state. A file must not change the dtype of all arrays."""
    pickled = b"cnumpy\ndtype\n(cmegengine.core._imperative_rt\n%b\nI00\nI01\ntR(I3\nV%b\nNNNI%d\nI%d\nI%d\ntb."
    before = dtype.flags, dtype.byteorder, dtype.itemsize
    for order, size, flags in ((b"<", dtype.itemsize, 112), (b">", 1000, -1)):
        got = pickle.loads(pickled % (dtype.type.__name__.encode(), order, size, size, flags))
        assert got is dtype and (dtype.flags, dtype.byteorder, dtype.itemsize) == before


# ---- bfloat16


def test_every_bfloat16_survives() -> None:
    every = np.arange(2**16, dtype="uint32")
    numbers = (every << 16).view("float32")
    a = every.astype("uint16").view(bfloat16)
    np.testing.assert_array_equal(a.astype("float32"), numbers)
    with np.errstate(invalid="ignore"):  # signalling NaN
        np.testing.assert_array_equal(a.astype("float64"), numbers.astype("float64"))
    back = numbers.astype(bfloat16).view("uint16")
    nan = np.isnan(numbers)
    np.testing.assert_array_equal(back[~nan], every[~nan])
    assert np.isnan(back[nan].view(bfloat16).astype("float32")).all()


@pytest.mark.parametrize("kind", ["f4", "f8", "g"])
def test_rounds_to_nearest_even(kind) -> None:
    rng = np.random.default_rng(0)
    every = (np.arange(0x7F80, dtype="uint32") << 16).view("float32").astype("float64")
    ties = (every[:-1] + every[1:]) / 2
    with np.errstate(over="ignore"):
        random = np.exp(rng.uniform(-100, 89, 20000)) * rng.choice([-1, 1], 20000)
        values = np.concatenate([ties, -ties, random, [0.0, -0.0, 3.3e38, 3.4e38, np.inf, -np.inf]]).astype(kind)
        np.testing.assert_array_equal(values.astype(bfloat16).view("uint16"), bits_of(values.astype("f8")))


def test_float64_is_rounded_once() -> None:
    """Through float32 these would become ties, and go the other way."""
    tie = 1 + 2.0**-8
    values = np.array([tie + 2.0**-40, tie - 2.0**-40, 3 * 2.0**-8 + 1 - 2.0**-40, -tie - 2.0**-40, 1e-300])
    assert values.astype(bfloat16).tolist() == [1 + 2.0**-7, 1.0, 1 + 2.0**-7, -1 - 2.0**-7, 0.0]
    assert np.array([2**40 + 2**32 + 1, 2**40 + 2**32]).astype(bfloat16).tolist() == [2.0**40 + 2.0**33, 2.0**40]


def test_nan_stays_nan_and_keeps_its_sign() -> None:
    quiet, signalling = 0x7FC00000, 0x7F800001  # the payload of the second lies in the bits that are cut off
    bits = np.array([quiet, signalling, 0xFF800001], "uint32").view("float32").astype(bfloat16).view("uint16")
    assert bits.tolist() == [0x7FC0, 0x7FC0, 0xFFC0]


@pytest.mark.parametrize("kind", NUMBERS)
def test_bfloat16_casts(kind) -> None:
    values = np.array([0, 1, 2, 3, 100, 127]).astype(kind)
    a = values.astype(bfloat16)
    np.testing.assert_array_equal(a.view("uint16"), values.astype("float32").view("uint32") >> 16)
    np.testing.assert_array_equal(a.astype(kind), values)
    assert a.astype(kind).dtype == np.dtype(kind)
    fractions = np.array([2.75, 0.25], bfloat16)
    np.testing.assert_array_equal(fractions.astype(kind), np.array([2.75, 0.25], "f4").astype(kind))


def test_strided_swapped_and_object_casts() -> None:
    a = np.array([1.5, -2.5, 3.0, 4.0], bfloat16)
    np.testing.assert_array_equal(a[::-2].astype("f4"), [4.0, -2.5])
    assert (
        a.byteswap().tobytes() == a.view("uint16").byteswap().tobytes()
        and a.byteswap().byteswap().tolist() == a.tolist()
    )
    assert a.astype(object).tolist() == [1.5, -2.5, 3.0, 4.0]
    np.testing.assert_array_equal(np.array([1, 2.5], object).astype(bfloat16).astype("f4"), [1, 2.5])
    swapped = a.astype(bfloat16.newbyteorder(">"))
    assert swapped.tolist() == a.tolist() and swapped.tobytes() == a.byteswap().tobytes()
    assert Tensor(swapped).tolist() == a.tolist()
    odd_address = np.frombuffer(b"\0" + a.tobytes(), dtype=np.uint8)[1:].view(bfloat16)
    assert odd_address.tolist() == a.tolist() and odd_address.astype("f8").tolist() == a.tolist()


def test_bfloat16_arange() -> None:
    np.testing.assert_array_equal(np.arange(-1, 3, 0.5, dtype=bfloat16).astype("f4"), np.arange(-1, 3, 0.5))


def test_bfloat16_prints_numbers() -> None:
    a = np.array([1.5, -2.25, np.inf, np.nan], bfloat16)
    assert repr(a) == "array([1.5, -2.25, inf, nan], dtype=pybfloat16)" and str(a[0]) == "1.5"
    assert f"{a[1]:.1f}" == "-2.2"


@pytest.mark.parametrize("bad", ["a", "1", None, [1], b"1", 1j, object()], ids=repr)
def test_bfloat16_takes_numbers_only(bad) -> None:
    a = np.zeros(2, bfloat16)
    with pytest.raises(ValueError, match="bfloat16: needs a number; got "):
        a[0] = bad
    with pytest.raises(ValueError, match="bfloat16: needs a number; got "):
        bfloat16.type(bad)
    assert a.tolist() == [0, 0]


@pytest.mark.parametrize("bad", [np.complex64(1), np.str_("1")], ids=repr)
def test_bfloat16_refuses_other_numpy_scalars(bad) -> None:
    with pytest.raises(ValueError, match="bfloat16: needs a number; got "):
        bfloat16.type(bad)
    with pytest.raises(TypeError, match="[Cc]annot cast"):
        np.array([1, bad]).astype(bfloat16)


# ---- low-bit integers


@pytest.mark.parametrize("bits", LOW_BIT)
@pytest.mark.parametrize("kind", ["i1", "i2", "i4", "i8", "f2", "f4", "f8"])
def test_low_bit_values(bits, kind) -> None:
    values = odd(bits).astype(kind)
    a = values.astype(LOW_BIT[bits])
    np.testing.assert_array_equal(a.view("int8"), odd(bits))
    np.testing.assert_array_equal(a.astype(kind), values)
    assert a.tolist() == odd(bits).tolist() and all(type(v) is int for v in a.tolist())
    assert np.array(odd(bits).tolist(), LOW_BIT[bits]).tolist() == odd(bits).tolist()


@pytest.mark.parametrize("bits", LOW_BIT)
def test_low_bit_arange_wraps(bits) -> None:
    top = 2**bits - 1
    np.testing.assert_array_equal(np.arange(-top, top + 2, 2, dtype=LOW_BIT[bits]).view("int8"), odd(bits))
    np.testing.assert_array_equal(np.arange(top - 2, -top - 2, -2, dtype=LOW_BIT[bits]).view("int8"), odd(bits)[-2::-1])
    got = np.arange(-1, -1 + 2 * 40, 2, dtype=LOW_BIT[bits]).view("int8")
    np.testing.assert_array_equal(got, np.resize(np.roll(odd(bits), 1 - 2 ** (bits - 1)), 40))


@pytest.mark.parametrize("bits", LOW_BIT)
def test_low_bit_refuses_other_values(bits) -> None:
    dtype, top = LOW_BIT[bits], 2**bits - 1
    message = f"intb{bits}: takes the odd numbers from -{top} to {top}; got "
    for bad in (0, 2, -2, top + 2, -top - 2, 255, 2**40):
        with pytest.raises(ValueError, match=f"{message}{bad}"):
            np.array([1, bad], dtype)
        with pytest.raises(ValueError, match=f"{message}{bad}"):
            np.array([1, bad]).astype(dtype)
        with pytest.raises(ValueError, match=message):
            dtype.type(bad)
    for bad in (np.nan, np.inf, -np.inf, 0.5, top + 1.0):
        with pytest.raises(ValueError, match=message):
            np.array([bad]).astype(dtype)
    with pytest.raises(ValueError, match=f"intb{bits}: needs a small int"):
        np.array([2**80], dtype)
    for bad in ("1", None, 1.0, 1j):
        with pytest.raises(ValueError, match=f"intb{bits}: needs an int; got {bad!r}"):
            np.array([bad], dtype)
    a = np.ones(3, dtype)
    with pytest.raises(ValueError):
        a[1:] = [1, 0]
    with pytest.raises(ValueError):
        a[2] = 4
    assert a.tolist() == [1, 1, 1]


# ---- arrays in NumPy's hands


@pytest.mark.parametrize("dtype", ALL, ids=names)
def test_arithmetic_is_float64(dtype) -> None:
    a = np.array([1, -1, 1], dtype)
    for got, want in ((a + a, [2, -2, 2]), (a * 2, [2, -2, 2]), (-a, [-1, 1, -1]), (a.sum(), 1), (a @ a, 3)):
        assert got.dtype == np.float64
        np.testing.assert_array_equal(got, want)
    assert (
        np.array_equal(a, a) and (a == 1).tolist() == [True, False, True] and (a < 0).tolist() == [False, True, False]
    )


@pytest.mark.parametrize("dtype", ALL, ids=names)
def test_order_and_truth(dtype) -> None:
    a = np.array([1, -1, 1, -1, -1], dtype)
    assert np.sort(a).tolist() == [-1, -1, -1, 1, 1] and a.argsort(kind="stable").tolist() == [1, 3, 4, 0, 2]
    assert a.argmax() == 0 and a.argmin() == 1 and np.unique(a).tolist() == [-1, 1]
    assert np.nonzero(np.array([1, -1], dtype))[0].tolist() == [0, 1] and a.all()
    assert np.zeros(2, dtype).nonzero()[0].tolist() == []


def test_nan_in_order() -> None:
    a = np.array([2, np.nan, -1, np.nan], bfloat16)
    assert a.argmax() == a.argmin() == 1
    np.testing.assert_array_equal(np.sort(a).astype("f4"), [-1, 2, np.nan, np.nan])


@pytest.mark.parametrize("dtype", ALL, ids=names)
def test_scalars(dtype) -> None:
    one, minus = np.array([1, -1], dtype)
    assert type(one) is dtype.type and one.dtype is dtype and one == 1 and one > minus and bool(one)
    assert float(minus) == -1.0 and int(minus) == -1 and hash(one) == hash(1) and {one: 2}[1] == 2
    assert dtype.type(1) == one and dtype.type(one) == one and one + 1 == 2.0
    a = np.array([1, 1], dtype)
    a[0] = minus
    assert a.tolist() == [-1, 1] and np.array([one, minus]).dtype is dtype
    with pytest.raises(TypeError):
        dtype.type()
    with pytest.raises(TypeError, match="no keyword"):
        dtype.type(value=1)
    with pytest.raises(TypeError, match="immutable"):
        dtype.type.__float__ = None


@pytest.mark.parametrize("dtype", ALL, ids=names)
def test_shapes_and_copies(dtype) -> None:
    a = np.array([[1, -1, 1], [-1, -1, 1]], dtype)
    for got, want in (
        (a.T, [[1, -1], [-1, -1], [1, 1]]),
        (np.concatenate([a, a])[1:3], [[-1, -1, 1], [1, -1, 1]]),
        (a[[1, 0], ::2], [[-1, 1], [1, 1]]),
        (a[a.astype("f4") < 0], [-1, -1, -1]),
        (np.full(2, -1, dtype), [-1, -1]),
        (np.ones(2, dtype), [1, 1]),
        (np.frombuffer(a.tobytes(), dtype), [1, -1, 1, -1, -1, 1]),
    ):
        assert got.dtype is dtype and got.tolist() == want


# ---- tensors


@pytest.mark.parametrize("dtype", ALL, ids=names)
def test_tensor_and_back(dtype) -> None:
    a = np.array([[1, -1, 1], [-1, -1, 1]], dtype)
    for x in (Tensor(a), Tensor(a.T.copy().T), Tensor(a.tolist(), dtype=dtype), Tensor(a.tolist(), dtype=dtype.type)):
        assert x.dtype is dtype and x.numpy().dtype is dtype and x.tolist() == a.tolist()
    assert Tensor(a[0, 1]).item() == -1 and Tensor(1, dtype=dtype).dtype is dtype
    np.testing.assert_array_equal(np.asarray(Tensor(a), dtype="float32"), a.astype("float32"))
    assert Tensor(a, dtype="int32").tolist() == a.tolist()


@pytest.mark.parametrize("dtype", ALL, ids=names)
def test_tensor_moves(dtype) -> None:
    x = Tensor(np.array([[1, -1, 1], [-1, -1, 1]], dtype))
    v = np.array(x.tolist())
    for got, want in (
        (x.reshape(3, 2), v.reshape(3, 2)),
        (F.transpose(x, (1, 0)), v.T),
        (x[1, ::2], v[1, ::2]),
        (F.concat([x, x]), np.concatenate([v, v])),
        (F.copy(x), v),
        (x.to("cpu1"), v),
        (copy.deepcopy(x), v),
        (pickle.loads(pickle.dumps(x)), v),
    ):
        assert got.dtype is dtype and got.tolist() == want.tolist()
    x[0, :2] = [-1, 1]
    assert x[0].tolist() == [-1, 1, 1]


@pytest.mark.parametrize("dtype", ALL, ids=names)
def test_files(dtype, tmp_path) -> None:
    a = np.array([1, -1], dtype)
    path = str(tmp_path / "a.pkl")
    mge.save({"array": a, "tensor": Tensor(a), "dtype": dtype, "scalar": a[1]}, path)
    got = mge.load(path)  # the safe loader
    assert got["array"].dtype is got["tensor"].dtype is got["dtype"] is dtype and got["scalar"] == -1
    assert got["array"].tolist() == got["tensor"].tolist() == [1, -1]


@pytest.mark.parametrize("bits", LOW_BIT)
def test_low_bit_tensors_only_hold_values(bits) -> None:
    x = Tensor([1, -1], dtype=LOW_BIT[bits])
    assert repr(x) == f"Tensor([1 -1], dtype=pyintb{bits}, device=xpux:0)"
    with pytest.raises(ValueError, match=f"intb{bits}: takes the odd numbers"):
        Tensor(np.zeros(2, LOW_BIT[bits]))  # NumPy makes zeros of anything
    with pytest.raises(ValueError, match=f"intb{bits}: takes the odd numbers"):
        Tensor([1, 2], dtype=LOW_BIT[bits])
    with pytest.raises(TypeError, match="no common dtype"):
        x + 1
    with pytest.raises(ValueError, match="a list has no dtype"):
        x + [1, 2]
    with pytest.raises(TypeError, match="numpy"):
        x.astype("float32")
    with pytest.raises(NotImplementedError, match="cannot be filled"):
        F.zeros((2,), dtype=LOW_BIT[bits])


def test_low_bit_dtypes() -> None:
    for bits, kind in ((1, dt.intb1), (2, dt.intb2), (4, dt.intb4)):
        top = 2**bits - 1
        odd = np.arange(-top, top + 1, 2)
        assert odd.astype(kind).astype("int32").tolist() == odd.tolist()
        assert pickle.loads(pickle.dumps(kind)) is kind
        with pytest.raises(ValueError):
            np.array([2], dtype=kind)
    assert np.arange(1, 9, 2, dtype=dt.intb2).tolist() == [1, 3, -3, -1]
    assert pickle.loads(pickle.dumps(dt.bfloat16)) is dt.bfloat16
    assert tensor([1.0, 2.5]).astype(dt.bfloat16).numpy().dtype == dt.bfloat16
