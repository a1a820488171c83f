"""No number becomes another one unseen: 64-bit values, constants, integer products, empty reductions, casts.

Each test names what was lost before. Functions run eagerly, matched by a trace, replayed without Python and from a
dumped file; NumPy is the judge.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine import Parameter, Tensor
from megengine.autodiff import GradManager
from megengine.core.tensor.dtype import bfloat16
from megengine.jit import trace
from megengine.utils.comp_graph_tools import GraphInference

BIG = 2**53 + 1  # no double
I64 = "int64"


def dumped(fn: Callable[..., Tensor], *arrays: np.ndarray) -> np.ndarray:
    """The result of the file that ``fn`` is dumped to."""
    traced = trace(symbolic=True, capture_as_const=True)(fn)
    traced(*(Tensor(a, a.dtype) for a in arrays))
    file = io.BytesIO()
    traced.dump(file, arg_names=[f"x{i}" for i in range(len(arrays))], output_names=["y"])
    file.seek(0)
    return GraphInference(file).run(*arrays)["y"]


def everywhere(fn: Callable[..., Tensor], *arrays: Any, dump: bool = True) -> Iterator[np.ndarray]:
    """What ``fn`` gives in every way to run it."""
    given = [np.asarray(a) for a in arrays]

    def call(f: Callable[..., Tensor]) -> np.ndarray:
        return f(*(Tensor(a, a.dtype) for a in given)).numpy()

    yield call(fn)
    for options in ({"symbolic": False}, {"symbolic": True}, {"symbolic": True, "without_host": True}):
        traced = trace(**options)(fn)
        for _ in range(3):
            yield call(traced)
    if dump:
        yield dumped(fn, *given)


def agree(fn: Callable[..., Tensor], want: Any, *arrays: Any, dtype: Any = None, dump: bool = True) -> None:
    want = np.asarray(want)
    for got in everywhere(fn, *arrays, dump=dump):
        assert got.dtype == (want.dtype if dtype is None else np.dtype(dtype)), got.dtype
        assert got.shape == want.shape and got.tolist() == want.tolist(), (got, want)


def i64(*values: int) -> np.ndarray:
    return np.array(values, "int64")


# ---- tensors from data


@pytest.mark.parametrize("data", [2**40, [2**40], np.array([2**40]), np.int64(2**40), [[1], [-(2**31) - 1]]])
def test_int64_data_that_int32_does_not_hold_is_refused_by_value(data):
    value = str(np.asarray(data).reshape(-1)[-1])
    with pytest.raises(ValueError, match=f'{value}.*does not fit int32.*dtype="int64"'):
        Tensor(data)
    kept = Tensor(data, dtype=I64)
    assert kept.dtype == np.int64 and kept.tolist() == np.asarray(data).tolist()


def test_data_that_fits_is_narrowed_as_before():
    assert Tensor([2**31 - 1, -(2**31)]).tolist() == [2**31 - 1, -(2**31)]
    for data, dtype in ((3, "int32"), ([3], "int32"), (np.arange(3), "int32"), (0.5, "float32"), ([0.5], "float32")):
        assert Tensor(data).dtype == dtype
    assert Tensor(np.arange(6).reshape(2, 3)[:, ::-2]).tolist() == [[2, 0], [5, 3]]


@pytest.mark.parametrize("data", [BIG, [BIG], np.array([BIG]), np.array([[BIG, 1]])[:, ::-1]])
def test_named_dtypes_are_kept(data):
    x = Tensor(data, dtype=I64)
    assert x.dtype == np.int64 and x.tolist() == np.asarray(data).tolist()
    assert x.astype(I64).dtype == np.int64 and x.astype("int64").tolist() == x.tolist()
    assert Parameter(data, dtype=I64).tolist() == x.tolist()
    third = Tensor([1 / 3], dtype="float64")
    assert third.astype("float64").item() == 1 / 3 and Tensor(1 / 3, dtype="float64").item() == 1 / 3
    assert Tensor([3]).astype("float64").dtype == np.float64 and Tensor([3.0]).astype("int64").dtype == np.int64


@pytest.mark.parametrize(
    "data, dtype", [(300, "int8"), ([300], "int8"), (-1, "uint8"), (np.array([70000]), "uint16"), (2**63, I64),
                    (np.array([3e9]), "int32"), (float("nan"), "int32"), ([np.inf], I64), (1e10, "int32")]
)  # fmt: skip
def test_a_named_dtype_refuses_what_it_does_not_hold(data, dtype):
    with pytest.raises((ValueError, OverflowError, TypeError), match="does not fit|too large|not supported"):
        Tensor(data, dtype=dtype)


def test_what_no_integer_holds_is_not_sent_to_int64():
    for data in (float("nan"), [np.inf], 1e30, 2**64):
        with pytest.raises((ValueError, TypeError), match="No integer dtype holds it; take float64|not supported"):
            Tensor(data, dtype="int32")


def test_casts_of_arrays_and_tensors_still_wrap_and_truncate():
    assert Tensor([300]).astype("uint8").item() == 44
    assert Tensor([2.75, -2.75], dtype="int32").tolist() == [2, -2]
    assert Tensor(np.array([255.9]), dtype="uint8").item() == 255


def test_big_endian_arrays_are_converted():
    for dtype in (">f4", ">f8", ">i4", ">i8", ">i2", ">u2", ">f2", ">c8", "<f4"):
        assert Tensor(np.array([1, 2], dtype)).numpy().tolist() == [1, 2]
    swapped = np.array([1.5, 2], bfloat16).astype(bfloat16.newbyteorder(">"))
    assert Tensor(swapped).dtype == bfloat16 and Tensor(swapped).tolist() == [1.5, 2.0]


def test_complex_numbers_are_complex64():
    for data in (1j, [1 + 2j], np.array([1j]), np.complex64(1j)):
        x = Tensor(data)
        assert x.dtype == np.complex64 and x.numpy().tolist() == np.asarray(data).tolist()
    assert F.full((2,), 1j).numpy().tolist() == [1j, 1j]
    with pytest.raises(TypeError, match=r"complex data cannot become float32. Take its .real"):
        Tensor(np.array([1j]), dtype="float32")


def test_a_float_that_becomes_infinite_is_warned_of():
    with pytest.warns(RuntimeWarning, match='1e\\+300 is infinite in float32; dtype="float64" holds it'):
        assert Tensor(1e300).item() == np.inf
    with pytest.warns(RuntimeWarning, match="overflow"):  # NumPy's own words
        assert Tensor(np.array([1e300])).item() == np.inf
    with pytest.warns(RuntimeWarning, match="70000 is infinite in float16"):
        assert (Tensor([1.0], dtype="float16") + 70000).item() == np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Tensor(float("inf")).item() == np.inf and Tensor(1e300, dtype="float64").item() == 1e300
        assert (Tensor([0.0]) - 3.4e38).item() < -3.3e38


def test_dlpack_and_safetensors_do_not_cut_int64():
    from megengine import safetensors
    from megengine.utils.dlpack import from_dlpack

    assert from_dlpack(np.arange(3)).tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="from_dlpack: int64 data must lie in.*got 1099511627776"):
        from_dlpack(i64(1, 2**40)).numpy()
    data = safetensors.save({"w": i64(2**40)})
    with pytest.raises(ValueError, match="safetensors: 'w': .*1099511627776.*device=None"):
        safetensors.load(data, device="cpu0")
    assert safetensors.load(data)["w"].item() == 2**40


# ---- Python numbers beside tensors


OPERATIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "add": (lambda x: x + 2**40, lambda x: x + 2**40),
    "radd": (lambda x: 2**40 + x, lambda x: 2**40 + x),
    "sub": (lambda x: BIG - x, lambda x: BIG - x),
    "eq": (lambda x: x == BIG, lambda x: x == BIG),
    "ne": (lambda x: x != 2**40, lambda x: x != 2**40),
    "less": (lambda x: x < BIG, lambda x: x < BIG),
    "clip": (lambda x: F.clip(x, -1, BIG - 1), lambda x: np.clip(x, -1, BIG - 1)),
    "where": (lambda x: F.where(x > 0, x, 2**41), lambda x: np.where(x > 0, x, 2**41)),
    "maximum": (lambda x: F.maximum(x, BIG), lambda x: np.maximum(x, BIG)),
    "floor_div": (lambda x: x // (2**33 + 1), lambda x: x // (2**33 + 1)),
    "mod": (lambda x: x % (2**33 + 1), lambda x: x % (2**33 + 1)),
    "full_like": (lambda x: F.full_like(x, BIG) + x, lambda x: BIG + x),
    "list": (lambda x: x + [BIG, 1, 2**40, 3], lambda x: x + np.array([BIG, 1, 2**40, 3])),
    "array": (lambda x: x * i64(3, 5, 7, 2**20), lambda x: x * i64(3, 5, 7, 2**20)),
    "numpy": (lambda x: x + np.int64(BIG), lambda x: x + BIG),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_int64_beside_python_numbers_is_exact(name):
    ours, numpys = OPERATIONS[name]
    x = i64(BIG, 2**40, -(2**62), 5)
    agree(ours, numpys(x), x, dump=name not in ("eq", "ne", "less"))
    agree(lambda t: ours(t).astype("int64"), numpys(x).astype("int64"), x)


def test_numbers_that_a_tensor_does_not_hold_are_refused():
    for bad in (
        lambda: Tensor([1]) + 2**31,
        lambda: Tensor([1]) + np.int64(2**41),
        lambda: Tensor([1]) + [2**41],
        lambda: Tensor([1]) + np.array([2**41]),
        lambda: Tensor([1], dtype="uint8") == 300,
        lambda: Tensor([1], dtype="uint8") + -1,
        lambda: Tensor([1], dtype=I64) + 2**64,
        lambda: F.full((1,), 2**40),
        lambda: F.full((1,), 300, dtype="uint8"),
        lambda: F.full_like(Tensor([1], dtype="int8"), 200),
    ):
        with pytest.raises(ValueError, match="does not fit"):
            bad()
    x = Tensor([1], dtype="uint8")
    with pytest.raises(ValueError, match="256 does not fit uint8"):
        x[0] = 256
    with pytest.raises(ValueError, match=f"{BIG} does not fit int32"):
        Tensor([1, 2])[0] = BIG
    y = Tensor([1, 2], dtype=I64)
    y[0] = BIG
    assert y.tolist() == [BIG, 2]


def test_ints_of_any_size_beside_floats():
    assert (Tensor([1.0]) + 2**40).item() == np.float32(2**40)
    assert (Tensor([1.0]) * 2**100).item() == np.float32(2.0**100)
    assert (Tensor([1.0], dtype="float64") + 2**53).item() == 2.0**53


def test_numbers_in_where_follow_what_is_selected():
    mask = Tensor([True, False])
    assert F.where(mask, Tensor([1, 2], dtype="uint8"), 7).dtype == np.uint8
    assert F.where(mask, Tensor([1.0, 2.0], dtype="float16"), 0.5).dtype == np.float16
    assert F.where(mask, 1, 2.5).tolist() == [1.0, 2.5]


def test_full_keeps_every_bit():
    for value, dtype in ((BIG, I64), (-BIG, I64), (np.int64(BIG), I64), (1 / 3, "float64"), (True, "bool")):
        zero = np.zeros(1, "float32")

        def filled(x: Tensor, value: Any = value, dtype: Any = dtype) -> Tensor:
            return F.full((2,), value, dtype=dtype)

        agree(filled, np.full((2,), value, dtype), zero, dump=False)
    assert F.full((1,), 2**31 - 1).item() == 2**31 - 1
    assert F.arange(BIG, BIG + 2, dtype=I64).tolist() == [BIG, BIG + 1]


def test_bfloat16_beside_a_number_stays_bfloat16():
    x = Tensor([1.0, 2.0], dtype=bfloat16)
    for y in (
        x + 1,
        2 * x,
        x / 3,
        x**2,
        F.clip(x, 0, 1.5),
        F.maximum(x, 1.5),
        x + [1, 2],
        x + 0.5,
        F.where(x > 1, x, 0),
    ):
        assert y.dtype == bfloat16, y.dtype
    assert (x > 1).tolist() == [False, True]
    assert (x + Tensor([1.0])).dtype == np.float32 and (x + np.float32(1)).dtype == np.float32
    assert (x + 1).numpy().astype("float32").tolist() == [2.0, 3.0]


def test_bools_beside_bool_tensors():
    x = np.array([True, False])
    for ours in (lambda t: t & True, lambda t: True & t, lambda t: t | False, lambda t: t ^ True, lambda t: False | t):
        assert ours(Tensor(x)).tolist() == ours(x).tolist()
    y = Tensor(x)
    y &= False
    assert y.tolist() == [False, False]
    with pytest.raises(TypeError, match="need two bool tensors"):
        Tensor(x) & 1


def test_clip_with_crossed_bounds_is_numpys():
    x = np.array([0.0, 1.5, 3.0, np.nan], "float32")
    for got in everywhere(lambda t: F.clip(t, 2.0, 1.0), x):
        np.testing.assert_array_equal(got, np.clip(x, 2.0, 1.0))


# ---- integer products


def wrapped(a: np.ndarray, b: np.ndarray, dtype: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.matmul(a.astype(dtype), b.astype(dtype))


@pytest.mark.parametrize("dtype, result", [("int32", "int32"), (I64, I64), ("int8", "int32"), ("uint8", "int32"),
                                           ("int16", "int32"), ("uint16", "int32"), ("bool", "int32")])  # fmt: skip
@pytest.mark.parametrize("shapes", [((1, 1), (1, 1)), ((3, 5), (5, 2)), ((2, 3, 70), (70, 4)), ((2, 0), (0, 3))])
def test_integer_products_are_exact(dtype, result, shapes):
    rng = np.random.RandomState(0)
    info = np.iinfo(dtype) if dtype != "bool" else None
    a, b = (
        rng.randint(0, 2, s).astype("bool") if info is None else rng.randint(info.min, info.max, s, dtype=dtype)
        for s in shapes
    )
    agree(lambda x, y: F.matmul(x, y), wrapped(a, b, result), a, b)
    turned = np.ascontiguousarray(np.swapaxes(b, -1, -2))
    agree(lambda x, y: F.matmul(x, y, transpose_b=True), wrapped(a, b, result), a, turned)
    agree(lambda x, y: x @ y, wrapped(a, b, result), a, b)


def test_what_products_are_made_of_is_exact_too():
    a, b = np.array([[16777217, 3]]), np.array([[1, 2], [5, 7]])
    x, y = Tensor(a), Tensor(b)
    assert F.matmul(x, y).tolist() == (a @ b).tolist() and (x @ y).dtype == np.int32
    assert F.linear(x, y, Tensor([1, 2])).tolist() == (a @ b.T + [1, 2]).tolist()
    assert F.dot(x[0], y[0]).item() == a[0] @ b[0] and F.einsum("ij,jk->ik", x, y).tolist() == (a @ b).tolist()
    assert F.matmul(x[0], y).tolist() == (a[0] @ b).tolist()
    assert F.matmul(Tensor([[1]], dtype="uint8"), Tensor([[-1]], dtype="int8")).tolist() == [[-1]]
    assert F.matmul(x, y.astype("float32")).dtype == np.float32
    assert F.matmul(x.astype(I64), y).dtype == np.int64
    assert (x @ Tensor(np.ones((2, 200), "int32"))).tolist() == [[16777220] * 200]


def test_the_mean_of_integers_is_taken_of_the_integers():
    for dtype in ("int32", I64):
        x = np.array([[2**30, -(2**30) + 1], [7, 2**24 + 1]], dtype)
        agree(lambda t: F.mean(t, axis=1), x.mean(axis=1).astype("float32"), x)
        agree(lambda t: (t + t).mean(axis=1), (x + x).mean(axis=1).astype("float32"), x)


def test_what_is_computed_from_integers_does_not_wrap_on_the_way():
    big = np.array([2**16, 2**16 + 1, -3], "int32")
    np.testing.assert_allclose(F.norm(Tensor(big)).item(), np.linalg.norm(big), rtol=1e-6)
    np.testing.assert_allclose(F.norm(Tensor(big), ord=3).item(), np.linalg.norm(big, 3), rtol=1e-6)
    for dtype in ("int32", I64):
        x = np.array([[2**30, 2**30 + 1], [5, 7]], dtype)
        assert F.var(Tensor(x, dtype), axis=1).tolist() == [0.25, 1.0]
        assert F.std(Tensor(x, dtype), axis=1).tolist() == [0.5, 1.0]
    small, other = Tensor([1, 200], dtype="uint8"), Tensor([2, 100], dtype="uint8")
    assert F.nn.l1_loss(small, other).item() == 50.5 and F.nn.square_loss(small, other).item() == 5000.5
    assert F.nn.hinge_loss(Tensor([[2**20]]), Tensor([[-(2**20)]])).item() == 2.0**40
    assert F.logsumexp(Tensor([[-(2**31), 2**31 - 1]]), 1).item() == 2.0**31
    assert F.logsumexp(Tensor(np.zeros((0, 2), "int32")), 0).tolist() == [-np.inf, -np.inf]


# ---- reductions over nothing


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_reductions_over_an_empty_axis_give_their_identity(dtype):
    x = np.zeros((0, 3), dtype)
    wants = {"sum": 0, "prod": 1, "max": -np.inf, "min": np.inf, "mean": np.nan, "std": np.nan, "var": np.nan}
    for name, want in wants.items():
        fn = getattr(F, name)
        for axis, shape in ((0, (3,)), (None, ()), (1, (0,))):
            for got in everywhere(lambda t, fn=fn, axis=axis: fn(t, axis=axis), x, dump=False):
                np.testing.assert_array_equal(got, np.full(shape, want, got.dtype))
    for got in everywhere(lambda t: F.logsumexp(t, axis=0), x, dump=False):
        np.testing.assert_array_equal(got, np.full(3, -np.inf))
    assert F.norm(Tensor(x), ord=np.inf, axis=0).tolist() == [0.0] * 3
    assert F.norm(Tensor(x), axis=0).tolist() == [0.0] * 3
    t = Tensor(x.astype("float32"))
    with GradManager().attach(t) as gm:
        gm.backward(F.max(t, axis=0))
    assert t.grad.shape == (0, 3)


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool"])
def test_integers_have_no_extreme_of_nothing(name, dtype):
    with pytest.raises(ValueError, match=f'{name} over no elements has no value in {dtype}.*astype\\("float32"\\)'):
        getattr(F, name)(Tensor(np.zeros((0, 3), dtype)), axis=0)
    assert getattr(F, name)(Tensor(np.zeros((0, 3), dtype)), axis=1).shape == (0,)
    for fn in (F.argmax, F.argmin):
        with pytest.raises(ValueError, match="axis 0 has no elements"):
            fn(Tensor(np.zeros((0, 3), dtype)), axis=0)


# ---- assignment and rounding


def test_ellipsis_assignment_writes_into_the_tensor():
    def assigned(x: Tensor, value: Any) -> Tensor:
        x = x + 0
        x[...] = value
        return x

    x = np.array([[1, 2, 3], [4, 5, 6]], "int32")
    for value in (7.5, np.array([1.5, 2.5, 3.5]), [[9], [8]], np.float32(2)):
        want = x.copy()
        want[...] = value
        agree(lambda t, value=value: assigned(t, value), want, x)
        agree(lambda t, value=value: assigned(t, Tensor(value)), want, x)
    for shape in ((2,), (3, 2), (2, 2, 3)):
        with pytest.raises(ValueError, match="cannot copy tensor with shape"):
            assigned(Tensor(x), Tensor(np.zeros(shape, "float32")))
    t = Tensor(x)
    t[...] = Tensor(x * 2)
    assert t.dtype == np.int32 and t.tolist() == (x * 2).tolist()
    p = Parameter([1.0, 2.0])
    p[...] = 3
    assert type(p) is Parameter and p.tolist() == [3.0, 3.0]


def test_ellipsis_assignment_keeps_gradients():
    x, y = Tensor([1.0, 2.0]), Tensor(3.0)
    with GradManager().attach([x, y]) as gm:
        z = x * 2
        z[...] = y
        gm.backward((z * Tensor([1.0, 10.0])).sum())
    assert y.grad.item() == 11.0 and (x.grad is None or x.grad.tolist() == [0.0, 0.0])


def test_round_to_digits():
    x = np.array([1.256, -2.5, 1234.5678, 3e38, 0.005], "float32")
    for digits in (0, 1, 2, 3, -1, -2):
        agree(lambda t, digits=digits: round(t, digits), round(Tensor(x), digits).numpy(), x)
        if digits in (1, 2, 3):
            np.testing.assert_allclose(
                round(Tensor(x[:3]), digits).numpy(), np.round(x[:3].astype("f8"), digits), rtol=1e-6
            )
    assert round(Tensor(x), 2)[3].item() == x[3] and np.isfinite(round(Tensor(x), 30).numpy()).all()
    assert round(Tensor([2.5])).item() == 3.0 and round(Tensor([2.44], dtype="float16"), 1).dtype == np.float16
    for value in (1250, -1250, 1249, 99, 0):
        half_up = int(np.sign(value)) * ((abs(value) + 50) // 100 * 100)
        assert round(Tensor([value]), -2).item() == half_up and round(Tensor([value]), 2).item() == value
    assert round(Tensor([200], dtype="uint8"), -3).item() == 0


# ---- positions


def test_int64_positions_are_not_cut_to_32_bits():
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    good, bad = Tensor([0, 1], dtype=I64), Tensor([0, 2**32], dtype=I64)
    readers: dict[str, Callable[[Tensor], Tensor]] = {
        "index": lambda i: x[i],
        "column": lambda i: x[:, i],
        "pairs": lambda i: x[i, i],
        "gather": lambda i: F.gather(x, 0, i.reshape(1, 2)),
        "embedding": lambda i: F.embedding(i, x),
        "one_hot": lambda i: F.one_hot(i, 2),
        "indexing_one_hot": lambda i: F.indexing_one_hot(x, i),
        "cross_entropy": lambda i: F.nn.cross_entropy(x, i),
        "scatter": lambda i: F.scatter(x + 0, 0, i.reshape(1, 2), F.ones((1, 2))),
    }
    for name, fn in readers.items():
        np.testing.assert_array_equal(fn(good).numpy(), fn(good.astype("int32")).numpy(), name)
        for mode in (lambda f: f, trace(symbolic=False), trace(symbolic=True), trace(symbolic=True, without_host=True)):
            traced = mode(fn)
            traced(good).numpy()
            traced(good).numpy()
            with pytest.raises((IndexError, ValueError, RuntimeError), match="4294967296"):
                traced(bad).numpy()
    y = Tensor([1.0, 2.0])
    with pytest.raises((IndexError, RuntimeError), match="4294967296"):
        y[Tensor([2**32], dtype=I64)] = 0
        y.numpy()


def test_cross_entropy_refuses_labels_that_are_no_integers():
    x = np.zeros((2, 3), "float32")
    agree(lambda p, t: F.nn.cross_entropy(p, t, reduction="none"), np.log(np.full(2, 3, "float32")), x,
          np.array([0.0, 2.0], "float32"))  # fmt: skip
    for bad, match in (([0.5, 1.0], "label must be whole numbers; got 0.5 at position 0"), ([0.0, 3.0], "label 3")):
        for mode in (lambda f: f, trace(symbolic=False), trace(symbolic=True, without_host=True)):
            fn = mode(lambda p, t: F.nn.cross_entropy(p, t))
            fn(Tensor(x), Tensor([0.0, 1.0])).numpy()
            fn(Tensor(x), Tensor([0.0, 1.0])).numpy()
            with pytest.raises((ValueError, RuntimeError, IndexError), match=match):
                fn(Tensor(x), Tensor(bad)).numpy()


def test_binary_cross_entropy_refuses_what_is_no_probability():
    p, y = np.array([0.25, 0.5], "float32"), np.array([0.0, 1.0], "float32")
    want = np.float32(-(np.log(0.75) + np.log(0.5)) / 2)
    for got in everywhere(lambda a, b: F.nn.binary_cross_entropy(a, b, with_logits=False), p, y):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    for mode in (lambda f: f, trace(symbolic=False), trace(symbolic=True, without_host=True)):
        fn = mode(lambda a, b: F.nn.binary_cross_entropy(a, b, with_logits=False))
        logits = mode(lambda a, b: F.nn.binary_cross_entropy(a, b))
        for f in (fn, logits):
            f(Tensor(p), Tensor(y)).numpy()
            f(Tensor(p), Tensor(y)).numpy()
            with pytest.raises(
                (ValueError, RuntimeError), match="binary_cross_entropy: label must lie in .*got 2 at position 1"
            ):
                f(Tensor(p), Tensor([0.0, 2.0])).numpy()
        with pytest.raises((ValueError, RuntimeError), match="pred must lie in 0.*1.*got 1.5 .*with_logits=True"):
            fn(Tensor([0.5, 1.5]), Tensor(y)).numpy()
    with pytest.raises(ValueError, match="label must lie in .*got -1"):
        F.nn.binary_cross_entropy(Tensor(p), -1)
    x = Tensor(p)
    with GradManager().attach(x) as gm:
        gm.backward(F.nn.binary_cross_entropy(x, Tensor(y), with_logits=False))
    np.testing.assert_allclose(x.grad.numpy(), [0.5 / 0.75, -0.5 / 0.5], rtol=1e-6)


# ---- sizes that are values


def test_traced_repeats_and_unsorted_cuts_agree_with_eager_mode():
    x = np.arange(5, dtype="float32")
    for traced in (trace(symbolic=False), trace(symbolic=True)):
        repeat = traced(lambda t, n: F.repeat(t, n))
        for n in (1, 2, 3):
            assert repeat(Tensor(x), Tensor(n)).tolist() == np.repeat(x, n).tolist()
        for n in (0, -1):
            with pytest.raises(ValueError, match=f"repeat: repeats must lie in 1..2147483647; got {n}"):
                repeat(Tensor(x), Tensor(n)).numpy()
        split = traced(lambda t, a, b: F.concat(F.split(t, [a, b])[::-1]))
        for a, b in ((1, 3), (0, 5), (2, 2)):
            want = np.concatenate(np.split(x, [a, b])[::-1])
            assert split(Tensor(x), Tensor(a), Tensor(b)).tolist() == want.tolist()
        for a, b in ((3, 1), (1, 6), (7, 8)):
            with pytest.raises((ValueError, IndexError, RuntimeError)):
                split(Tensor(x), Tensor(a), Tensor(b)).numpy()
    for bad in ([3, 1], [1, 6]):
        with pytest.raises(ValueError, match="Invalid nsplits_or_secions"):
            F.split(Tensor(x), bad)
    for n in (0, -1):
        with pytest.raises(ValueError, match=f"at least 1; got {n}"):
            F.repeat(Tensor(x), Tensor(n))


def test_graph_inference_takes_the_dtype_of_the_model():
    assert dumped(lambda x: x + 1, i64(BIG)).tolist() == [BIG + 1]
    traced = trace(symbolic=True, capture_as_const=True)(lambda x: x + 1)
    traced(Tensor([1]))
    file = io.BytesIO()
    traced.dump(file, arg_names=["x"], output_names=["y"])
    file.seek(0)
    net = GraphInference(file)
    assert net.run(i64(3))["y"].tolist() == [4]
    with pytest.raises(ValueError, match="input 'x' is int32, which does not hold 1099511627776"):
        net.run(i64(2**40))


def test_numpy_functions_keep_64_bits():
    x = Tensor([BIG], dtype=I64)
    assert np.add(x, 1).dtype == np.int64 and np.add(x, 1).tolist() == [BIG + 1]
    assert np.add(Tensor([1]), 1).dtype == np.int32


def test_a_tensor_of_int64_is_saved_and_copied_as_it_is():
    import copy
    import pickle

    x = Tensor([BIG], dtype=I64)
    for y in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert y.dtype == np.int64 and y.item() == BIG
    file = io.BytesIO()
    mge.save({"x": x}, file)
    file.seek(0)
    assert mge.load(file)["x"].item() == BIG
