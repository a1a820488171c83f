"""Tensor and Parameter: construction, methods, protocols, indexing. NumPy is the judge."""

from __future__ import annotations

import copy
import gc
import io
import math
import pickle
import weakref

import numpy as np
import pytest
from functional_helpers import X

import megengine as mge
import megengine.functional as F
import megengine.tensor as T
from megengine import Parameter, Tensor, tensor
from megengine.core.tensor.dtype import qint8, quint8

pytestmark = pytest.mark.asan_subset

RNG = np.random.default_rng(0)


def check(got: Tensor, want: np.ndarray, rtol: float = 1e-6) -> None:
    """Same shape and values; float results within ``rtol``."""
    assert isinstance(got, Tensor)
    assert got.shape == want.shape
    if want.dtype.kind == "f":
        np.testing.assert_allclose(got.numpy(), want, rtol=rtol, atol=1e-6)
    else:
        np.testing.assert_array_equal(got.numpy(), want)


# ---- construction


def test_module_attribute_is_the_class():
    assert T is Tensor is mge.tensor
    from megengine.tensor import Parameter as P

    assert P is Parameter


@pytest.mark.parametrize(
    "data, dtype, shape",
    [
        (1, "int32", ()),
        (1.5, "float32", ()),
        (True, "bool", ()),
        ([1, 2], "int32", (2,)),
        ([1, 2.5], "float32", (2,)),
        ([True, False], "bool", (2,)),
        ([], "float32", (0,)),
        (None, "float32", (0,)),
        (np.arange(3, dtype="int64"), "int32", (3,)),
        (np.zeros((2, 3)), "float32", (2, 3)),
        (np.zeros(2, dtype="uint8"), "uint8", (2,)),
        (np.zeros(2, dtype="uint16"), "uint16", (2,)),
        (np.zeros((0, 3), dtype="float16"), "float16", (0, 3)),
        (np.float64(2.5), "float32", ()),
        ([[1, 2], [3, 4]], "int32", (2, 2)),
    ],
)
def test_construction_takes_dtype_from_data(data, dtype, shape):
    x = Tensor(data)
    assert (x.dtype, x.shape) == (np.dtype(dtype), shape)


def test_construction_with_dtype_casts_data_but_not_tensors():
    assert Tensor([1.9, -1.9], dtype="int32").tolist() == [1, -1]
    x = Tensor([1.0])
    with pytest.raises(RuntimeError):
        Tensor(x, dtype="int32")
    with pytest.raises(RuntimeError):
        Tensor(x, device="cpu0:1")
    assert Tensor(x, dtype="float32").tolist() == [1.0]


@pytest.mark.parametrize("bad", [np.zeros(1, "uint32"), np.zeros(1, "uint64"), np.array(["a"]), np.array([object()])])
def test_unsupported_data_is_refused(bad):
    with pytest.raises(RuntimeError, match="not supported"):
        Tensor(bad)


def test_bad_calls_of_the_constructor_are_runtime_errors():
    with pytest.raises(RuntimeError):
        Tensor([1.0], wrong=1)
    with pytest.raises(RuntimeError):
        Tensor()


def test_noncontiguous_data_is_copied():
    a = np.arange(12).reshape(3, 4).T[::2]
    check(Tensor(a), a.astype("int32"))
    b = np.broadcast_to(np.float32(3), (2, 3))
    check(Tensor(b), np.full((2, 3), 3.0))


@pytest.mark.parametrize("dtype", ["int64", "float32", "int16", "complex64"])
def test_data_at_an_odd_address(dtype):
    """Of a file, for example: words are not read there, which the sanitizer watches."""
    a = np.frombuffer(bytes(1 + 8 * 30), dtype, offset=1).reshape(2, 5, -1)
    assert not a.flags.aligned
    for view in (a, a[:, ::2], a.transpose(2, 0, 1), a[:, :0]):
        np.testing.assert_array_equal(Tensor(view).numpy(), view)


def test_name_is_not_inherited():
    x = Tensor([1.0], name="w")
    assert x.name == "w"
    assert Tensor(x).name == ""


def test_source_array_and_tensor_are_independent():
    a = np.ones(3, dtype="float32")
    x = Tensor(a)
    a[0] = 7
    assert x.tolist() == [1, 1, 1]


# ---- properties


def test_properties():
    x = Tensor(np.zeros((2, 3, 4), dtype="float32"))
    assert (x.shape, x.ndim, x.size, x._tuple_shape) == ((2, 3, 4), 3, 24, (2, 3, 4))
    assert x.T.shape == (4, 3, 2)
    assert x.grad is None and x.name == ""
    assert Tensor(1.0).size == 1 and isinstance(Tensor(1.0).size, int)
    assert Tensor(np.zeros((2, 0))).size == 0
    assert x.device == "xpux" and x.device == x.device and str(x.device) == "xpux:0"


def test_requires_grad_is_reserved():
    x = Tensor([1.0])
    for f in (
        lambda: x.requires_grad,
        lambda: setattr(x, "requires_grad", True),
        lambda: delattr(x, "requires_grad"),
    ):
        with pytest.raises(AttributeError, match="requires_grad is reserved for future use"):
            f()


def test_qparams_are_made_on_first_use():
    x = Tensor([1.0])
    assert x.qparams is x.qparams
    assert x.qparams.scale is None and x.qparams.mode.name == "SYMMERTIC"
    assert Tensor([1.0]).qparams is not x.qparams


def test_user_attributes_and_weak_references():
    x = Tensor([1.0])
    x.tag = "a"
    assert x.tag == "a"
    ref = weakref.ref(x)
    del x
    gc.collect()
    assert ref() is None


def test_hash_is_identity():
    a, b = Tensor([1.0]), Tensor([1.0])
    assert len({a: 1, b: 2}) == 2 and hash(a) == id(a)


def test_a_bad_call_of_the_constructor_is_of_both_kinds():
    for kind in (TypeError, RuntimeError):
        with pytest.raises(kind, match="missing required argument 'data'"):
            Tensor()
        with pytest.raises(kind, match="'foo' is an invalid keyword argument"):
            Parameter([1.0], foo=1)


# ---- methods


def test_item_and_tolist():
    x = Tensor([[1, 2], [3, 4]])
    assert x.item(1, 0) == 3 and type(x.item(1, 0)) is int
    assert Tensor([[5.0]]).item() == 5.0
    assert x.tolist() == [[1, 2], [3, 4]] and Tensor(2.0).tolist() == 2.0
    with pytest.raises(ValueError):
        x.item()


def test_numpy_is_read_only():
    a = Tensor([1.0, 2.0]).numpy()
    with pytest.raises(ValueError):
        a[0] = 5
    assert Tensor(1.0).numpy().shape == ()


@pytest.mark.parametrize(
    "shape, pattern, want",
    [
        ((2, 3, 4), (2, 0, 1), (4, 2, 3)),
        ((2, 3), ("x", 1, "x", 0), (1, 3, 1, 2)),
        ((2, 1, 3), (2, 0), (3, 2)),
        ((2, 1, 3), (0, "x", 2), (2, 1, 3)),
        ((2, 3), (-1, 0, 1), (1, 2, 3)),
        ((1, 1), (), (1, 1)),
    ],
)
def test_transpose_patterns(shape, pattern, want):
    a = RNG.standard_normal(shape).astype("float32")
    x = Tensor(a)
    assert x.transpose(*pattern).shape == want
    if pattern:
        assert x.transpose(pattern).shape == want
        assert x.transpose(list(pattern)).shape == want
    axes = [p for p in pattern if p != "x" and p >= 0]
    if len(axes) == len(shape) == len(pattern):
        check(x.transpose(*pattern), a.transpose(*pattern))


def test_transpose_errors():
    with pytest.raises(IndexError):
        Tensor(1.0).transpose(0)
    with pytest.raises(RuntimeError):
        Tensor(np.zeros((2, 3))).transpose(0, 0)
    with pytest.raises(RuntimeError):
        Tensor(np.zeros((2, 3))).transpose(0)  # axis 1 has size 3 and cannot be dropped
    assert Tensor(1.0).transpose().shape == ()


def test_flatten():
    x = Tensor(np.arange(24).reshape(2, 3, 4))
    assert x.flatten().shape == (24,)
    assert x.flatten(1).shape == (2, 12)
    assert x.flatten(0, 1).shape == (6, 4)
    assert x.flatten(-2, -1).shape == (2, 12)
    assert Tensor(3.0).flatten().shape == (1,)
    with pytest.raises(RuntimeError):
        x.flatten(2, 1)


def test_reshape_forms():
    x = Tensor(np.arange(6))
    for args in (
        (2, 3),
        ((2, 3),),
        ([2, -1],),
        (np.array([2, 3]),),
        (Tensor([2, 3]),),
        (Tensor(2), 3),
        ((2, Tensor(3)),),
    ):
        assert x.reshape(*args).shape == (2, 3)
    assert Tensor(np.zeros((10, 0))).reshape(0).shape == (0,)
    assert Tensor(np.zeros((100, 0, 1))).reshape(100, 0, 10).shape == (100, 0, 10)
    with pytest.raises(RuntimeError):
        x.reshape(-1, -1)
    with pytest.raises(RuntimeError):
        x.reshape(4, -1)


def test_astype():
    x = Tensor([1.7, -1.7])
    assert x.astype("float32") is x and x.astype(dtype="float32") is x
    assert x.astype(dtype="int8").dtype == np.int8
    assert x.astype("int32").tolist() == [1, -1]
    assert x.astype("float64").dtype == np.float64 and x.astype(np.int64).dtype == np.int64
    assert x.astype(bool).tolist() == [True, True]
    assert Tensor(1.5).astype("float16").shape == ()
    with pytest.raises(ValueError):
        x.astype("nonsense")


REDUCE_AXES = [None, 0, 1, -1, (0, 1), (-1, 0), [1]]


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool", "uint8", "float16"])
@pytest.mark.parametrize("axis", REDUCE_AXES)
@pytest.mark.parametrize("name", ["sum", "prod", "min", "max", "mean"])
def test_reductions_match_numpy(name, axis, dtype):
    a = RNG.integers(0, 3, (3, 4)).astype(dtype)
    x = Tensor(a)
    np_axis = tuple(axis) if isinstance(axis, list) else axis
    wide = a.astype("float64") if name == "mean" or dtype == "float16" else a
    if name in ("sum", "prod") and dtype == "bool":
        wide = a.astype("int32")
    for keepdims in (False, True):
        if axis is None and keepdims:
            with pytest.raises(AssertionError):
                getattr(x, name)(axis, keepdims)
            continue
        got = getattr(x, name)(axis, keepdims)
        want = np.asarray(getattr(wide, name)(axis=np_axis, keepdims=keepdims))
        assert got.shape == want.shape
        np.testing.assert_allclose(got.numpy().astype("float64"), want.astype("float64"), rtol=1e-3)
    kept = getattr(x, name)(axis).dtype
    if name == "mean":
        assert kept == np.float32
    elif dtype == "bool":
        assert kept == (np.int32 if name in ("sum", "prod") else np.bool_)
    else:
        assert kept == a.dtype


def test_reduction_edge_cases():
    empty = Tensor(np.zeros((0,), "float32"))
    assert empty.sum().item() == 0 and empty.prod().item() == 1 and math.isnan(empty.mean().item())
    assert empty.max().item() == -math.inf and empty.min().item() == math.inf
    with pytest.raises(RuntimeError):
        empty.astype("int32").max()
    x = Tensor([[1.0, 2.0]])
    with pytest.raises(AssertionError):
        x.sum(axis=(-1, 1))
    with pytest.raises(ValueError):
        x.sum(axis=2)
    with pytest.raises(AssertionError):
        x.sum(axis=2)
    assert x.sum(axis=()).tolist() == [[1.0, 2.0]]
    assert x.sum().ndim == 0 and x.sum(axis=1).shape == (1,)
    nan = Tensor([1.0, float("nan"), 3.0])
    assert math.isnan(nan.max().item()) and math.isnan(nan.min().item())


@pytest.mark.parametrize("name", ["sum", "prod", "min", "max", "mean"])
def test_a_number_reduces_along_the_axis_it_does_not_have(name):
    number = np.float32(2.5)
    for axis in (0, -1):
        check(getattr(Tensor(number), name)(axis=axis), np.asarray(number))
        assert getattr(Tensor(number), name)(axis=axis, keepdims=True).tolist() == [2.5]
    for axis in (1, -2, (0,)):
        with pytest.raises(ValueError, match="out of range for a tensor with 0 dimensions"):
            getattr(Tensor(number), name)(axis=axis)


# ---- operators


def test_results_of_parameters_are_tensors():
    p = Parameter([1.0, 2.0])
    for y in (p + 1, -p, p[0], p.reshape(2, 1), p.astype("int32"), p.sum(), F.relu(p), p.detach()):
        assert type(y) is Tensor


def test_in_place_operators_keep_the_object_and_may_change_the_dtype():
    x = Tensor([1, 2])
    y, old = x, x.detach()
    x += 1
    assert x is y and y.tolist() == [2, 3] and old.tolist() == [1, 2]
    x /= 2
    assert x is y and x.dtype == np.float32
    x @= Tensor(np.ones((2, 3), "float32"))
    assert x.shape == (3,)


def test_none_operand():
    with pytest.raises(TypeError, match="the operand is None and is not supported."):
        Tensor([1.0]) + None


def test_list_and_array_operands():
    x = Tensor([3, -3, 5])
    assert (x // [1, 2, 1]).tolist() == [3, -2, 5]
    assert (x / 2).dtype == np.float32
    f = Tensor([1.0], dtype="float32")
    h = np.ones(1, "float16")
    for y in (f + h, h + f, f + Tensor(h), np.float16(1) * f):
        assert isinstance(y, Tensor) and y.dtype == np.float32
    assert isinstance(np.ones(2) - Tensor([1.0, 2.0]), Tensor)


@pytest.mark.parametrize("a, b", [((), ()), ((), (3,)), ((2, 1), (1, 3)), ((0,), ()), ((2, 0, 3), (3,))])
def test_operators_broadcast_like_numpy(a, b):
    x, y = RNG.uniform(1, 2, a).astype("float32"), RNG.uniform(1, 2, b).astype("float32")
    for f in (
        lambda p, q: p + q,
        lambda p, q: p - q,
        lambda p, q: p * q,
        lambda p, q: p / q,
        lambda p, q: p**q,
        lambda p, q: p < q,
        lambda p, q: p == q,
    ):
        check(f(Tensor(x), Tensor(y)), np.asarray(f(x, y)), rtol=1e-5)


def test_matmul_operator():
    a, b = RNG.standard_normal((2, 3)).astype("float32"), RNG.standard_normal(3).astype("float32")
    check(Tensor(a) @ Tensor(b), a @ b, 1e-5)
    check(Tensor(b) @ Tensor(a.T.copy()), b @ a.T, 1e-5)
    check(Tensor(b) @ Tensor(b), np.asarray(b @ b), 1e-5)


def test_unary_protocols():
    x = Tensor([2.5, -2.5])
    assert round(x).tolist() == [3, -3]
    assert math.floor(x).tolist() == [2, -3] and math.ceil(x).tolist() == [3, -2]
    assert abs(x).tolist() == [2.5, 2.5] and (-x).tolist() == [-2.5, 2.5] and (+x).tolist() == [2.5, -2.5]


# ---- protocols


def test_scalar_conversions():
    x = Tensor([[2.5]])
    assert (int(x), float(x), bool(x), complex(x)) == (2, 2.5, True, 2.5 + 0j)
    assert list(range(5))[Tensor(3)] == 3
    with pytest.raises((ValueError, TypeError)):
        bool(Tensor([1.0, 2.0]))
    with pytest.raises(NotImplementedError):
        math.trunc(Tensor(1.5))
    with pytest.raises(NotImplementedError):
        assert 1.0 in Tensor([1.0])


def test_len_and_iteration():
    x = Tensor([[1, 2], [3, 4]])
    assert len(x) == 2
    assert [y.tolist() for y in x] == [[1, 2], [3, 4]]
    with pytest.raises(TypeError, match="ndim is 0"):
        len(Tensor(1))
    with pytest.raises(TypeError):
        iter(Tensor(1)).__next__()


def test_format():
    assert f"{Tensor(1.23456):.2f}" == "1.23"
    assert f"{Tensor([1.0])}" == "Tensor([1.], device=xpux:0)"


def test_repr():
    assert repr(Tensor([1.0, 2.0])) == "Tensor([1. 2.], device=xpux:0)"
    assert repr(Parameter(3, device="cpu0")) == "Parameter(3, dtype=int32, device=cpu0:0)"
    assert repr(Tensor([1 / 3])) == "Tensor([0.3333], device=xpux:0)"
    assert repr(Tensor([True])) == "Tensor([ True], dtype=bool, device=xpux:0)"


def test_numpy_ufuncs_return_tensors():
    x = Tensor([1.0, 4.0], device="cpu0")
    y = np.add(x, np.array([1.0, 1.0]))
    assert type(y) is Tensor and y.device == "cpu0" and y.tolist() == [2, 5] and y.dtype == np.float32
    assert type(np.sqrt(x)) is Tensor and np.sqrt(x).tolist() == [1, 2]


def test_array_protocol():
    x = Tensor([1.0, 2.0])
    assert np.asarray(x).dtype == np.float32
    b = np.array(x)
    b[0] = 9
    assert x.tolist() == [1, 2]
    assert np.asarray(x, dtype="int32").tolist() == [1, 2]
    if int(np.__version__.split(".")[0]) >= 2:
        with pytest.raises(ValueError):
            np.asarray(x, dtype="int32", copy=False)


# ---- copy and pickle


def test_getnewargs_layout():
    x = Tensor([1.0], device="cpu0", name="w")
    value, *rest = x.__getnewargs__()
    assert isinstance(value, np.ndarray)
    assert rest == [np.dtype("float32"), "cpu0:0", False, False, None, "default"]
    assert x.__getstate__() == {}
    q = x.qparams
    assert x.__getstate__() == {"qparams": q}


@pytest.mark.parametrize("cls", [Tensor, Parameter])
@pytest.mark.parametrize("how", [lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy])
def test_copies_keep_class_value_and_device_and_drop_the_rest(cls, how):
    x = cls(np.arange(6, dtype="int8").reshape(2, 3), device="cpu0", name="w")
    x.tag, x.grad = "t", Tensor([1.0])
    y = how(x)
    assert type(y) is cls and y.dtype == np.int8 and y.device == "cpu0" and y.tolist() == x.tolist()
    assert y.name == "" and y.grad is None and not hasattr(y, "tag")
    y += 1
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_copy_shares_qparams_and_deepcopy_does_not():
    x = Tensor([1.0])
    x.qparams.scale = 0.5
    assert copy.copy(x).qparams is x.qparams
    deep = copy.deepcopy(x)
    assert deep.qparams is not x.qparams and deep.qparams.scale == 0.5
    assert pickle.loads(pickle.dumps(x)).qparams.scale == 0.5


def test_deepcopy_keeps_sharing_inside_one_structure():
    x = Tensor([1.0])
    a, b = copy.deepcopy([x, x])
    assert a is b and a is not x


def test_old_pickle_states():
    x = Tensor([0.0])
    x.__setstate__({"data": np.array([1, 2], "int8"), "device": "cpu0", "dtype": np.int8})
    assert x.tolist() == [1, 2] and x.dtype == np.int8 and x.device == "cpu0:0"
    x.__setstate__({"qdict": {"mode": None, "scale": 0.5}})
    assert x.qparams.scale == 0.5


def test_quantised_tensors_keep_their_raw_values():
    for dtype in (qint8(0.5), quint8(0.25, 128)):
        x = Tensor(np.array([1, 2, 3], dtype=dtype.name), dtype=dtype)
        assert x.dtype == dtype and x.dtype.metadata == dtype.metadata
        assert x.numpy().tolist() == [1, 2, 3]
        y = pickle.loads(pickle.dumps(x))
        assert y.dtype.metadata == dtype.metadata and y.numpy().tolist() == [1, 2, 3]


# ---- assignment as a whole


def test_reset_and_friends():
    x, y = Tensor([1.0]), Tensor([[2, 3]])
    x._reset(y)
    assert x.tolist() == [[2, 3]] and x.dtype == np.int32
    x._reset([4.7])
    assert x.tolist() == [4] and x.dtype == np.int32
    with pytest.deprecated_call():
        x.set_value(Tensor([1.5]))
    assert x.tolist() == [1.5]
    with pytest.deprecated_call():
        x.reset_zero()
    assert x.tolist() == [0.0]
    x[...] = Tensor([[True]])
    assert x.shape == (1,) and x.dtype == np.float32 and x.item() == 1.0


def test_to():
    x = Tensor([1.0, 2.0])
    y = x.to("cpu0")
    assert y.device == "cpu0" and y.tolist() == [1, 2] and y is not x
    assert x.to("xpux").device == x.device
    with pytest.raises(ValueError):
        x.to("nowhere")


def test_format_property():
    x = Tensor(np.zeros((1, 2, 3, 4)))
    assert x.format == "default"
    x.format = "nhwc"
    assert x.format == "nhwc" and x.shape == (1, 2, 3, 4)
    assert copy.copy(x).format == copy.deepcopy(x).format == "nhwc"
    with pytest.raises(ValueError):
        x.format = "chwn"
    with pytest.raises(RuntimeError):
        Tensor([1.0]).format = "nhwc"


# ---- indexing

A = RNG.standard_normal((4, 5, 6)).astype("float32")
KEYS = [
    0,
    -1,
    (1, 2, 3),
    slice(1, 3),
    slice(None, None, -2),
    (slice(100, 200),),
    (slice(-10, 3, 2),),
    (Ellipsis, 1),
    (None, slice(None), None, 2),
    (slice(None, None, -1), slice(None, None, -2)),
    [0, 2],
    [],
    [-1, 0],
    np.array([[0, 1], [2, 3]]),
    (slice(None), [1, 3]),
    (slice(None), slice(None), np.array([0, 0, -1])),
    ([0, 1], [2, 3]),
    ([0, 1], slice(None), [2, 3]),
    ([[0], [1]], [2, 3]),
    (0, [1, 2]),
    ([1, 2], 0),
    (None, [1, 2]),
    (Ellipsis, [1, 2], slice(1, 4)),
    A > 0,
    (A > 0)[:, :, 0],
    (slice(None), A[0] > 0),
    (A[:, 0, 0] > -9, [0, 1, 2, 3]),
    [True, False, True, False],
    True,
    False,
    (slice(None), None, [0, 1]),
    range(2),
    (slice(None), range(0, 5, 2)),
    (True, None),
    np.array(2),
    (np.array(1), np.array(2), np.array(3)),
    (np.array(1), slice(None), np.array(-1)),
]


def name_of(key) -> str:
    return str(key).replace("\n", "")[:40]


def to_tensors(key):
    """The same index with arrays as tensors."""
    if isinstance(key, np.ndarray):
        return Tensor(key)
    return tuple(to_tensors(k) for k in key) if isinstance(key, tuple) else key


@pytest.mark.parametrize("key", KEYS, ids=name_of)
def test_getitem_matches_numpy(key):
    x = Tensor(A)
    check(x[key], A[key])
    check(x[to_tensors(key)], A[key])


@pytest.mark.parametrize("key", KEYS, ids=name_of)
def test_setitem_matches_numpy(key):
    region = A[key]
    for value in (np.float32(7), RNG.standard_normal(region.shape).astype("float32")):
        want = A.copy()
        want[key] = value
        x = Tensor(A)
        x[key] = Tensor(value)
        check(x, want)
        x = Tensor(A)
        x[to_tensors(key)] = value
        check(x, want)


def test_setitem_last_of_equal_positions_wins():
    x = Tensor(np.zeros(3, "float32"))
    x[[1, 1]] = Tensor([5.0, 6.0])
    assert x.tolist() == [0, 6, 0]


def test_setitem_casts_and_broadcasts_the_value():
    x = Tensor(np.zeros((2, 3), "int32"))
    x[0] = 1.9
    assert x.tolist() == [[1, 1, 1], [0, 0, 0]]
    x[:, [0, 2]] = Tensor([[5.0], [6.0]])
    assert x.tolist() == [[5, 1, 5], [6, 0, 6]]
    x[x > 4] = False
    assert x.tolist() == [[0, 1, 0], [0, 0, 0]]


def test_setitem_does_not_write_through():
    x = Tensor([[1, 2], [3, 4]])
    x[0][1] = 9
    assert x.tolist() == [[1, 2], [3, 4]]


def test_indexing_by_tensors():
    x = Tensor(np.arange(10))
    assert x[Tensor(2) : Tensor(5)].tolist() == [2, 3, 4]
    assert x[Tensor([1, -1])].tolist() == [1, 9]
    assert x[Tensor([[0, 1], [2, 3]])].tolist() == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    "key, error",
    [
        ((Ellipsis, Ellipsis), IndexError),
        ((0, 0, 0, 0), IndexError),
        (7, IndexError),
        ([7], IndexError),
        ([7], RuntimeError),
        ([0.5], ValueError),
        (np.array([0.5]), RuntimeError),
        (np.zeros((2, 2), bool), IndexError),
        (np.zeros((2, 2), bool), RuntimeError),
        (([0], 0, 0, 0), RuntimeError),
    ],
    ids=name_of,
)
def test_index_errors(key, error):
    with pytest.raises(error):
        Tensor(A)[key]


def test_assignment_errors():
    x = Tensor(A)
    with pytest.raises(ValueError, match="cannot copy tensor with shape"):
        x[:] = np.zeros(4, "float32")
    with pytest.raises(ValueError, match="cannot copy tensor with shape"):
        x[[0, 1]] = np.zeros((3, 5, 6), "float32")
    with pytest.raises(IndexError):
        x[np.zeros((3,), bool)] = 1.0


def test_a_bool_adds_an_axis_to_a_number():
    number = np.array(3.0, "float32")
    for key in (True, False, (True, None), (Ellipsis, True)):
        check(Tensor(number)[key], number[key])
    x = Tensor(3.0)
    x[False] = 4.0
    assert x.shape == () and x.item() == 3
    x[True] = 5.0
    assert x.shape == () and x.item() == 5


def test_indexing_of_empty_axes():
    x = Tensor(np.zeros((0, 3), "float32"))
    assert x[:, 1].shape == (0,) and x[0:0].shape == (0, 3) and x[:, [0, 2]].shape == (0, 2)


# ---- what programs written for MegEngine rely on


def test_construction_narrows_to_32_bits() -> None:
    assert tensor(np.arange(3)).dtype == np.int32 and tensor(np.arange(3.0)).dtype == np.float32
    assert tensor([1, 2]).dtype == np.int32 and tensor(True).dtype == np.bool_ and tensor([1, 2.0]).dtype == np.float32
    for bad in ({"dtype": "int32"}, {"device": "cpu0:1"}):
        with pytest.raises(RuntimeError):
            tensor(tensor([1.0]), **bad)
    assert tensor(tensor([1.0], name="a")).name == ""
    for bad in (np.arange(3, dtype="uint32"), "abc", np.array([object()])):
        with pytest.raises(RuntimeError):
            tensor(bad)


def test_the_class_is_reached_through_the_module_name() -> None:
    import megengine.tensor as T

    assert T is Tensor and mge.tensor is Tensor


def test_none_as_an_operand() -> None:
    with pytest.raises(TypeError, match="^add: the operand is None and is not supported.$"):
        tensor([1.0]) + None


def test_pickles() -> None:
    x = tensor(X)
    assert [type(a) for a in x.__getnewargs__()[3:]] == [bool, bool, type(None), str]
    assert x.__getnewargs__()[2] == "xpux:0" and x.__getstate__() == {}
    p = Parameter([1.0])
    for twin in (copy.copy(p), copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert type(twin) is Parameter and twin.tolist() == [1.0]
    p.qparams.scale = tensor(0.5)
    assert copy.copy(p).qparams is p.qparams and copy.deepcopy(p).qparams is not p.qparams
    f = io.BytesIO()
    mge.save({"p": p}, f)
    f.seek(0)
    assert type(mge.load(f, map_location="cpu0:1")["p"]) is Parameter


def test_a_subclass_may_have_an_init() -> None:
    class Scaled(mge.Parameter):
        def __new__(cls, data: object, scale: float = 1.0) -> Scaled:
            return super().__new__(cls, data)

        def __init__(self, data: object, scale: float = 1.0) -> None:
            super().__init__(data)
            self.scale = scale

    x = Scaled([1.0, 2.0], scale=3.0)
    assert x.scale == 3.0 and x.numpy().tolist() == [1.0, 2.0]
