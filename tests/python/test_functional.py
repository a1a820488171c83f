"""megengine.functional and megengine.random against NumPy in float64; F.nn is in test_functional_nn.py."""

from __future__ import annotations

import math

import numpy as np
import pytest
from functional_helpers import RNG, X, check, grad_of, gradcheck, rand, same

import megengine as mge
import megengine.functional as F
from megengine import Tensor, tensor
from megengine.autodiff import GradManager

# ---- elemwise

UNARY = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "ceil": np.ceil,
    "cos": np.cos,
    "cosh": np.cosh,
    "exp": np.exp,
    "expm1": np.expm1,
    "floor": np.floor,
    "log": np.log,
    "log1p": np.log1p,
    "neg": np.negative,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "square": np.square,
    "tan": np.tan,
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf),
    "round": lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5),
}
BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "floor_div": np.floor_divide,
    "pow": np.power,
    "mod": np.fmod,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "atan2": np.arctan2,
    "logaddexp": np.logaddexp,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}
DOMAIN = {
    "acos": (-0.9, 0.9),
    "asin": (-0.9, 0.9),
    "atanh": (-0.9, 0.9),
    "acosh": (1.1, 3),
    "log": (0.1, 3),
    "sqrt": (0.1, 3),
}


def test_every_elemwise_function_is_covered():
    logic = {"logical_and", "logical_or", "logical_xor", "logical_not", "left_shift", "right_shift", "clip"}
    assert set(F.elemwise.__all__) == set(UNARY) | set(BINARY) | logic
    counts = [len(m.__all__) for m in (F.elemwise, F.math, F.tensor, F.nn)]
    assert counts == [48, 22, 35, 48]


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,), (2, 0, 3)])
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, shape):
    lo, hi = DOMAIN.get(name, (-0.9, 2))
    a = rand(*shape, lo=lo, hi=hi)
    with np.errstate(all="ignore"):
        want = UNARY[name](a.astype("float64")) if a.size else a
    check(getattr(F, name)(Tensor(a)), want)


@pytest.mark.parametrize("shapes", [((), ()), ((3,), ()), ((2, 1), (1, 3)), ((0,), ()), ((2, 0, 3), (3,))])
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, shapes):
    a, b = (rand(*s, lo=0.5, hi=3) for s in shapes)
    want = BINARY[name](a.astype("float64"), b.astype("float64"))
    got = getattr(F, name)(Tensor(a), Tensor(b))
    check(got, want)
    check(getattr(F, name)(Tensor(a), b), want)
    assert (got.dtype == np.bool_) == (want.dtype == np.bool_)


@pytest.mark.parametrize(
    "name", sorted(set(F.elemwise.__all__) - {"erf", "logical_and", "logical_or", "logical_xor", "logical_not"})
)
def test_int_input_is_accepted(name):
    x, y = Tensor([1, 2, 3]), Tensor([1, 1, 2])
    f = getattr(F, name)
    y = f(x, y) if name in BINARY or name.endswith("shift") else f(x, 0) if name == "clip" else f(x)
    assert y.shape == (3,)


def test_scalars_are_accepted():
    assert F.abs(-3.0).shape == () and F.abs(-3.0).item() == 3.0
    assert F.add(1, 2).item() == 3
    assert F.logical_or(True, False).item() is True


def test_integer_rules():
    assert F.floor_div(Tensor([7, -7]), 2).tolist() == [3, -4]
    assert F.mod(Tensor([7, -7]), 3).tolist() == [1, 2]
    assert F.pow(Tensor([2]), 3).dtype == np.float32
    assert F.round(Tensor([2, 3])).dtype == np.int32
    assert F.left_shift(Tensor([1, 2]), 3).tolist() == [8, 16]
    assert F.right_shift(Tensor([-8, 9]), 1).tolist() == [-4, 4]
    u = Tensor(np.array([3], "uint16"))
    assert (u * u).dtype == np.uint16


def test_logical_functions():
    a, b = Tensor([True, True, False]), Tensor([True, False, False])
    assert F.logical_and(a, b).tolist() == [True, False, False]
    assert F.logical_or(a, b).tolist() == [True, True, False]
    assert F.logical_xor(a, b).tolist() == [False, True, False]
    assert F.logical_not(a).tolist() == [False, False, True]
    with pytest.raises((RuntimeError, TypeError)):
        F.logical_and(Tensor([1]), Tensor([0]))


def test_clip():
    a = rand(5, lo=-9, hi=9)
    check(F.clip(Tensor(a), 0, 6), np.clip(a, 0, 6))
    check(F.clip(Tensor(a), -6, 0), np.clip(a, -6, 0))
    check(F.clip(Tensor(a), lower=0), np.maximum(a, 0))
    check(F.clip(Tensor(a), upper=Tensor(0.0)), np.minimum(a, 0))
    assert F.clip(Tensor([1.0]), 5, 2).item() == np.clip(1.0, 5, 2)  # the upper bound is applied last
    with pytest.raises(AssertionError):
        F.clip(Tensor(a))


def test_maximum_of_equal_inputs_has_gradient_one():
    x = Tensor([1.0, 2.0])
    with GradManager().attach(x) as gm:
        gm.backward(F.maximum(x, x))
    assert x.grad.tolist() == [1.0, 1.0]


# ---- math


def test_var_and_std():
    a = rand(3, 4)
    for axis in (None, 0, -1, (0, 1)):
        check(F.var(Tensor(a), axis), a.astype("float64").var(axis=axis))
        check(F.std(Tensor(a), axis), a.astype("float64").std(axis=axis))
    check(F.var(Tensor(a), 1, keepdims=True), a.astype("float64").var(axis=1, keepdims=True))
    gradcheck(lambda x: F.var(x, axis=1), rand(2, 3))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_argmax(name):
    a = rand(3, 4, 5)
    f, g = getattr(F, name), getattr(np, name)
    for axis in (None, 0, 1, -1):
        got = f(Tensor(a), axis)
        assert got.dtype == np.int32
        check(got, g(a, axis=axis))
    assert f(Tensor(a), 1, keepdims=True).shape == (3, 1, 5)
    nan = np.array([[1.0, np.nan, 0.0], [np.inf, np.inf, np.inf]], "float32")
    check(f(Tensor(nan), 1), g(nan, axis=1))
    assert f(Tensor(a), (1, 2)).shape == (3,)


@pytest.mark.parametrize("ord", [None, 0, 1, 2, 3, math.inf, -math.inf, 0.5])
def test_norm(ord):
    a = rand(3, 4)
    want = np.linalg.norm(a.astype("float64"), ord=ord, axis=1)
    check(F.norm(Tensor(a), ord, axis=1), want)
    check(F.norm(Tensor(a[0]), ord), np.linalg.norm(a[0].astype("float64"), ord=ord))
    check(F.norm(Tensor(a), ord, axis=1, keepdims=True), want[:, None])


def test_norm_needs_an_axis_for_matrices():
    with pytest.raises(TypeError):
        F.norm(Tensor(rand(2, 3)))


def test_normalize():
    a = rand(3, 4)
    check(F.normalize(Tensor(a), axis=1), a / np.linalg.norm(a.astype("float64"), axis=1, keepdims=True))
    assert F.normalize(Tensor(np.zeros(3, "float32"))).tolist() == [0, 0, 0]


MATMUL = [
    ((2, 3), (3, 4)),
    ((3,), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((5, 1, 2, 3), (6, 3, 4)),
    ((3,), (5, 3, 4)),
    ((5, 2, 3), (3,)),
    ((2, 0), (0, 3)),
    ((0, 3), (3, 2)),
]


@pytest.mark.parametrize("a, b", MATMUL)
def test_matmul(a, b):
    x, y = rand(*a), rand(*b)
    check(F.matmul(Tensor(x), Tensor(y)), x.astype("float64") @ y)
    if len(a) >= 2 and len(b) >= 2:
        xt, yt = np.swapaxes(x, -1, -2).copy(), np.swapaxes(y, -1, -2).copy()
        check(F.matmul(Tensor(xt), Tensor(yt), transpose_a=True, transpose_b=True), x.astype("float64") @ y)


def test_matmul_errors():
    with pytest.raises(AssertionError):
        F.matmul(Tensor(1.0), Tensor([1.0]))
    with pytest.raises(RuntimeError, match="inner sizes differ"):
        F.matmul(Tensor(rand(2, 3)), Tensor(rand(4, 5)))


def test_dot_and_cross():
    a, b = rand(4), rand(4)
    check(F.dot(Tensor(a), Tensor(b)), np.dot(a.astype("float64"), b))
    check(F.dot(Tensor(2.0), Tensor(b)), 2 * b.astype("float64").sum())
    with pytest.raises(ValueError):
        F.dot(Tensor(a), Tensor(rand(3)))
    p, q = rand(5, 3), rand(5, 3)
    check(F.cross(Tensor(p), Tensor(q)), np.cross(p.astype("float64"), q))
    check(F.cross(Tensor(p.T.copy()), Tensor(q), axisa=0), np.cross(p.astype("float64"), q))
    check(F.cross(Tensor(p), Tensor(q), axisc=0), np.cross(p.astype("float64"), q, axisc=0))
    check(F.cross(Tensor(a[:2]), Tensor(b[:3])), np.cross([a[0], a[1], 0.0], b[:3].astype("float64")))


def test_isnan_isinf_sign():
    a = np.array([1.0, np.nan, np.inf, -np.inf, 0.0], "float32")
    assert F.isnan(Tensor(a)).tolist() == np.isnan(a).tolist()
    assert F.isinf(Tensor(a)).tolist() == np.isinf(a).tolist()
    assert F.isnan(Tensor([1, 2])).tolist() == [False, False]
    assert F.isnan(Tensor(1)).shape == ()
    assert F.sign(Tensor([-2, 0, 3])).tolist() == [-1, 0, 1]


def test_check_non_finite():
    x, y = Tensor([1.0, 2.0]), Tensor([float("inf")])
    flag = F.math._check_non_finite([x], 0.5)
    assert flag.item() == 0 and flag.dtype == np.int32 and flag.shape == () and x.tolist() == [0.5, 1.0]
    assert F.math._check_non_finite([x, y]).item() == 1


# ---- tensor


def test_arange_and_linspace():
    for args in ((5,), (2, 7), (0, 1, 0.3), (5, 0, -2), (3, 3), (5, 2)):
        check(F.arange(*args), np.arange(*args))
    assert F.arange(3).dtype == np.float32 and F.arange(3, dtype="int32").dtype == np.int32
    check(F.arange(Tensor(1), Tensor(4)), np.arange(1, 4))
    check(F.linspace(3, 10, 5), np.linspace(3, 10, 5))
    check(F.linspace(3, 10, 1), np.linspace(3, 10, 1))
    check(F.linspace(Tensor(0.0), Tensor(1.0), Tensor(3)), np.linspace(0, 1, 3))
    with pytest.raises(ValueError):
        F.arange(0, 5, 0)


def test_eye_full_zeros_ones():
    check(F.eye(3), np.eye(3))
    for shape in ([3, 4], (3, 4), Tensor([3, 4])):
        check(F.eye(shape), np.eye(3, 4))
    check(F.eye(Tensor([3])), np.eye(3))
    assert F.eye(2, dtype="bool").dtype == np.bool_
    for value in (1, 1.5, True):
        assert F.full((2,), value).dtype == Tensor(value).dtype
    check(F.full((2, 3), Tensor(4)), np.full((2, 3), 4))
    assert F.full((), 3.0).shape == ()
    assert F.zeros((2, 0)).shape == (2, 0) and F.zeros(3).shape == (3,)
    for shape in (2, Tensor(2), Tensor([2]), (2,), [2]):
        check(F.ones(shape), np.ones(2))
    assert F.zeros((2,), dtype="int32", device="cpu0").device == "cpu0"
    assert F.zeros_like(Tensor(1)).shape == () and F.ones_like(Tensor([1, 2])).tolist() == [1, 1]
    assert F.full_like(Tensor([1.5]), 2).dtype == np.float32


def test_broadcast_to():
    a = rand(3, 1)
    check(F.broadcast_to(Tensor(a), (2, 3, 4)), np.broadcast_to(a, (2, 3, 4)))
    check(F.broadcast_to(Tensor(a), (2, None, 4)), np.broadcast_to(a, (2, 3, 4)))
    with pytest.raises(ValueError):
        F.broadcast_to(Tensor(a), (-1, 3, 4))
    with pytest.raises(ValueError):
        F.broadcast_to(Tensor(a), (None, 3, 4))
    with pytest.raises(RuntimeError):
        F.broadcast_to(Tensor(a), (2, 5))
    with pytest.raises(RuntimeError):
        F.broadcast_to(Tensor(a), (3,))


def test_concat_and_stack():
    a, b = rand(2, 3), rand(2, 3)
    for axis in (0, 1, -1):
        check(F.concat([Tensor(a), Tensor(b)], axis), np.concatenate([a, b], axis))
        check(F.stack([Tensor(a), Tensor(b)], axis), np.stack([a, b], axis))
    check(F.concat([Tensor(a)]), a)
    assert F.concat([Tensor([1]), Tensor([1.5])]).dtype == np.float32
    with pytest.raises(ValueError):
        F.stack([Tensor(a), Tensor(rand(3))])
    with pytest.raises(RuntimeError):
        F.concat([Tensor(a), Tensor(rand(2, 4))], axis=0)
    with pytest.raises((RuntimeError, ValueError)):
        F.concat([Tensor(a), Tensor(b, device="cpu0:1")])
    joined = F.concat([Tensor(a), Tensor(b, device="cpu0:1")], device="cpu0")
    assert joined.device == "cpu0"


def test_split():
    a = rand(20, 3)
    assert [x.shape[0] for x in F.split(Tensor(a), 3)] == [7, 7, 6]
    for n in (1, 4, 20):
        for got, want in zip(F.split(Tensor(a), n), np.array_split(a, n)):
            check(got, want)
    for got, want in zip(F.split(Tensor(a), [2, 5], axis=0), np.split(a, [2, 5])):
        check(got, want)
    assert [x.shape for x in F.split(Tensor(np.zeros((2, 0))), [1])] == [(1, 0), (1, 0)]
    with pytest.raises(ValueError, match=r"Invalid nsplits_or_secions: \[3, 2, 5\]"):
        F.split(Tensor(a), [3, 2, 5])
    with pytest.raises(ValueError):
        F.split(Tensor(a[:2]), 4)
    with pytest.raises(ValueError):
        F.split(Tensor(a), 0)


def test_expand_dims_squeeze_swapaxes():
    a = rand(2, 3)
    for axis in (0, 1, 2, -1, (0, 2), [1, -1]):
        want = np.expand_dims(a, tuple(axis) if isinstance(axis, list) else axis)
        check(F.expand_dims(Tensor(a), axis), want)
    assert F.expand_dims(Tensor(1.0), 0).shape == (1,)
    for axis in (1, -2, (1, 2)):
        with pytest.raises(RuntimeError):
            F.expand_dims(Tensor(1.0), axis)
    b = rand(1, 2, 1)
    check(F.squeeze(Tensor(b)), b.squeeze())
    check(F.squeeze(Tensor(b), 0), b.squeeze(0))
    check(F.squeeze(Tensor(b), (0, -1)), b.squeeze((0, -1)))
    assert F.squeeze(Tensor(rand(1, 1))).shape == ()
    with pytest.raises(RuntimeError):
        F.squeeze(Tensor(b), 1)
    check(F.swapaxes(Tensor(b), 0, -2), b.swapaxes(0, -2))
    check(F.transpose(Tensor(a), (1, 0)), a.T)


def test_repeat_tile_roll_cumsum():
    a = rand(2, 3)
    for axis in (None, 0, 1):
        check(F.repeat(Tensor(a), 3, axis), np.repeat(a, 3, axis))
    check(F.repeat(Tensor(2.0), 3), np.repeat(2.0, 3))
    for reps in ((2, 3), (1, 1), (2, 1, 3), (0, 1), 2):
        check(F.tile(Tensor(a), reps), np.tile(a, reps))
    for shift, axis in ((1, None), (-2, 0), (100, 1), ((1, 2), (0, 1)), (-100, -1), (3, ())):
        check(F.roll(Tensor(a), shift, axis) if axis != () else Tensor(a), np.roll(a, shift, axis) if axis != () else a)
    check(F.roll(Tensor(np.zeros((0, 3))), 1, 0), np.zeros((0, 3)))
    for axis in (0, 1, -1):
        check(F.cumsum(Tensor(a), axis), a.astype("float64").cumsum(axis))
    check(F.cumsum(Tensor(np.arange(100)), 0), np.arange(100).cumsum())
    assert F.cumsum(Tensor([1, 2]), 0).dtype == np.int32
    check(F.cumsum(Tensor(np.zeros((0,))), 0), np.zeros(0))
    gradcheck(lambda x: F.cumsum(x, 1), rand(2, 5))
    gradcheck(lambda x: F.tile(x, (2, 2)), rand(2, 2))
    gradcheck(lambda x: F.repeat(x, 2, 1), rand(2, 2))


def test_meshgrid_and_diag():
    a, b, c = np.arange(3), np.arange(4), np.arange(2)
    for indexing in ("xy", "ij"):
        for arrays in ((a,), (a, b), (a, b, c)):
            got = F.meshgrid(*map(Tensor, arrays), indexing=indexing)
            for g, w in zip(got, np.meshgrid(*arrays, indexing=indexing)):
                check(g, w)
    m = rand(3, 4)
    for k in (-2, -1, 0, 1, 3):
        check(F.diag(Tensor(m), k), np.diag(m, k))
        check(F.diag(Tensor(m[0]), k), np.diag(m[0], k))
    gradcheck(lambda x: F.diag(x, 1), rand(3))


def test_where():
    m = np.array([[True, False], [False, True]])
    a, b = rand(2, 2), rand(2, 2)
    check(F.where(Tensor(m), Tensor(a), Tensor(b)), np.where(m, a, b))
    check(F.where(Tensor(m), Tensor(a[0]), 0.0), np.where(m, a[0], 0))
    assert F.where(Tensor(True), Tensor(1.0), Tensor(2.0)).shape == ()
    got = F.where(Tensor(m))
    assert [g.tolist() for g in got] == [w.tolist() for w in np.where(m)]
    with pytest.raises(ValueError):
        F.where(Tensor([1, 0]), Tensor([1.0, 2.0]), Tensor([1.0, 2.0]))
    with pytest.raises(TypeError):
        F.where(Tensor(m), "a", Tensor(a))


def test_non_zero_and_cond_take():
    a = np.array([[0, 1], [2, 0]])
    assert F.non_zero(Tensor(a)).tolist() == np.argwhere(a).tolist()
    assert [x.tolist() for x in F.non_zero(Tensor(a), as_tuple=True)] == [[0, 1], [1, 0]]
    v, i = F.cond_take(Tensor(a > 0), Tensor(a))
    assert v.tolist() == [1, 2] and i.tolist() == [1, 2] and i.dtype == np.int32
    v, i = F.cond_take(Tensor(np.zeros(0, bool)), Tensor(np.zeros(0, "float32")))
    assert v.shape == i.shape == (0,)
    with pytest.raises(ValueError):
        F.cond_take(Tensor([True]), Tensor([1.0, 2.0]))


def test_gather_and_scatter():
    a = rand(3, 4)
    for axis in (0, 1, -1):
        index = RNG.integers(0, 3, (3, 4) if axis else (2, 4))
        check(F.gather(Tensor(a), axis, Tensor(index)), np.take_along_axis(a, index, axis))
    gradcheck(lambda x: F.gather(x, 1, Tensor([[0, 0, 1]])), rand(2, 3)[:1])
    with pytest.raises(ValueError):
        F.gather(Tensor(a), 0, Tensor([0]))
    index = np.array([[2, 0, 1, 1], [0, 1, 2, 0]])
    src = rand(2, 4)
    want = a.copy()
    np.put_along_axis(want, index, src, 0)
    x = Tensor(a)
    y = F.scatter(x, 0, Tensor(index), Tensor(src))
    assert y is x
    check(x, want)
    with pytest.raises(ValueError):
        F.scatter(x, 0, Tensor(index), Tensor(src[:1]))


def test_indexing_is_differentiable():
    gradcheck(lambda x: x[[0, 2, 0]], rand(3, 2))
    gradcheck(lambda x: x[[0, 1], [1, 0]], rand(2, 2))

    def assign(x, v):
        y = F.copy(x)
        y[[1, 0]] = v
        return y

    gradcheck(assign, rand(3, 2), rand(2, 2))

    def masked(x):
        y = F.copy(x)
        y[Tensor([True, False, True])] = 0.0
        return y

    gradcheck(masked, rand(3, 2))


def test_flip_and_rot90():
    x = rand(2, 3, 4, 1)
    check(F.vision.flip(Tensor(x)), x[:, ::-1, ::-1])
    check(F.vision.flip(Tensor(x), vertical=False), x[:, :, ::-1])
    check(F.vision.rot90(Tensor(x)), np.rot90(x, -1, (1, 2)))
    check(F.vision.rot90(Tensor(x), clockwise=False), np.rot90(x, 1, (1, 2)))


def test_assert_equal():
    x = Tensor([1.0, 100.0])
    assert F.utils._assert_equal(x, x + 1e-5) is x
    with pytest.raises(RuntimeError):
        F.utils._assert_equal(x, x + 1)


@pytest.mark.parametrize(
    "options", [{}, {"symbolic": True}, {"without_host": True}, {"symbolic": True, "capture_as_const": True}]
)
def test_assert_equal_in_a_trace(options):
    want = mge.tensor([2.0, 4.0])
    f = mge.jit.trace(lambda x: F.utils._assert_equal(x * 2, want, maxerr=1e-3) + 1, **options)
    for _ in range(3):
        assert f(mge.tensor([1.0, 2.0001])).tolist() == pytest.approx([3.0, 5.0002])
        for bad in (2.5, float("nan"), float("inf")):
            with pytest.raises(RuntimeError, match="_assert_equal"):
                f(mge.tensor([1.0, bad])).numpy()


# ---- random


def test_random_distributions():
    mge.random.seed(1)
    u = mge.random.uniform(2, 4, size=(20000,)).numpy()
    assert u.dtype == np.float32 and u.min() > 2 and u.max() <= 4 and abs(u.mean() - 3) < 0.02
    z = mge.random.normal(1, 2, size=(100, 200)).numpy()
    assert z.shape == (100, 200) and abs(z.mean() - 1) < 0.05 and abs(z.std() - 2) < 0.05
    e = mge.random.exponential(2.0, size=(20000,)).numpy()
    assert abs(e.mean() - 0.5) < 0.02 and e.min() >= 0
    assert mge.random.uniform().shape == (1,) and mge.random.normal(size=(0, 2)).shape == (0, 2)
    with pytest.raises(AssertionError):
        mge.random.uniform(1, 0)


def test_random_generators():
    a, b = mge.random.RNG(seed=5), mge.random.RNG(seed=5, device="cpu0")
    x, y = a.normal(size=(7,)), b.normal(size=(7,))
    np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-6)
    assert y.device == "cpu0"
    assert (a.normal(size=(7,)).numpy() != x.numpy()).any()
    big = mge.random.RNG(seed=2**40 + 3).uniform(size=(3,)).numpy()
    assert (big != mge.random.RNG(seed=3).uniform(size=(3,)).numpy()).any()


def test_permutation_and_shuffle():
    mge.random.seed(0)
    p = mge.random.permutation(100)
    assert p.dtype == np.int32 and sorted(p.tolist()) == list(range(100)) and p.tolist() != list(range(100))
    assert mge.random.permutation(0).shape == (0,)
    assert mge.random.permutation(5, dtype="float32").dtype == np.float32
    assert mge.random.permutation(Tensor(7)).shape == (1,)
    x = Tensor(np.arange(12, dtype="float32").reshape(6, 2))
    y = Tensor(x)
    with GradManager().attach(x) as gm:
        z = F.copy(x)
        mge.random.shuffle(z)
        gm.backward(z * Tensor([[1.0, 2.0]]))
    assert sorted(z.tolist()) == y.tolist() and x.grad.tolist() == [[1.0, 2.0]] * 6


@pytest.mark.parametrize(("axes", "shape"), [([0, 0], (1, 1, 2)), ([1, 1], (2, 1, 1)), ([-1, -1], (2, 1, 1))])
def test_expand_dims_takes_an_axis_twice(axes: list[int], shape: tuple[int, ...]) -> None:
    assert F.expand_dims(mge.Tensor([1.0, 2.0]), axes).shape == shape


# ---- what functions take and refuse


def test_reductions_of_bools_and_integers() -> None:
    b = np.array([[True, False], [True, True]])
    for name in ("sum", "prod", "min", "max", "mean"):
        for axis in (None, 0, 1):
            got = getattr(F, name)(tensor(b), axis)
            np.testing.assert_allclose(got.numpy().astype(float), getattr(b, name)(axis).astype(float), rtol=1e-6)
    assert F.mean(tensor([1, 2])).dtype == np.float32 and F.mean(tensor(np.ones(2, "float16"))).dtype == np.float32
    assert F.sum(tensor(np.array([250, 10], "uint8"))).item() == 4
    with pytest.raises(AssertionError):
        F.sum(tensor(np.ones((2, 3, 4))), axis=(-1, 2))


@pytest.mark.parametrize("name", [n for n in F.elemwise.__all__ if n != "erf" and not n.startswith("logical")])
def test_elementwise_functions_take_integers(name: str) -> None:
    fn, x = getattr(F.elemwise, name), tensor([1, 2], dtype="int32")
    try:
        fn(x)
    except (TypeError, AssertionError):
        fn(x, x)


def test_argmax_of_infinities_and_nan() -> None:
    for v in (np.inf, -np.inf):
        a = np.full((2, 3), v, "float32")
        assert F.argmax(tensor(a), 1).tolist() == [0, 0] and F.argmin(tensor(a), 1).tolist() == [0, 0]
    n = np.array([1, np.nan, 3], "float32")
    assert np.isnan(F.max(tensor(n)).item()) and np.isnan(F.min(tensor(n)).item())
    assert F.argmax(tensor(n)).item() == np.argmax(n) and F.argmin(tensor(n)).item() == np.argmin(n)


def test_split_counts_and_refusals() -> None:
    assert [p.shape[0] for p in F.split(F.arange(20), 3)] == [7, 7, 6]
    with pytest.raises(ValueError, match=r"Invalid nsplits_or_secions: \[3, 2, 5\]"):
        F.split(F.arange(20), [3, 2, 5])
    with pytest.raises(ValueError):
        F.split(F.arange(2), 4)


def test_broadcast_to_none_and_refusals() -> None:
    v = tensor([1.0, 2.0, 3.0])
    same(F.broadcast_to(v, (2, None)), np.broadcast_to(v.numpy(), (2, 3)))
    for bad, kind in (((2, -1), ValueError), ((None, 1, 2, 3), ValueError), ((2, 4), RuntimeError), ((), RuntimeError)):
        with pytest.raises(kind):
            F.broadcast_to(v, bad)


def test_expand_dims_and_reshape_arguments() -> None:
    for axis in (1, -2, (1, 2)):
        with pytest.raises(RuntimeError):
            F.expand_dims(tensor(1.0), axis)
    same(F.expand_dims(tensor(X), (0, 3)), np.expand_dims(X, (0, 3)))
    for shape in ((2, tensor(6)), (np.int64(2), 6), np.array([2, 6]), tensor([2, 6]), (tensor(2), -1)):
        assert tensor(X).reshape(shape).shape == (2, 6)


def test_clip_bounds_of_zero_count() -> None:
    same(F.clip(tensor(X), 0, 6), np.clip(X, 0, 6))
    same(F.clip(tensor(X), -6, 0), np.clip(X, -6, 0))


def test_gradient_of_equal_maximum() -> None:
    assert grad_of(lambda x: F.maximum(x, x), np.ones(3, "float32")).tolist() == [1, 1, 1]


def test_ones_eye_full_take_tensors() -> None:
    assert F.ones(tensor(2)).shape == (2,) and F.ones(tensor([2, 3])).shape == (2, 3)
    assert F.eye([10, 20]).shape == (10, 20) and F.eye(tensor([30])).shape == (30, 30) and F.eye((2, 3)).shape == (2, 3)
    assert F.eye(2, dtype="bool").dtype == np.bool_
    for v in (1, 1.0, True):
        assert F.full((2,), v).dtype == tensor(v).dtype
    assert F.one_hot(tensor([[0, 1]]), 3).dtype == np.int32


def test_full_broadcasts_its_value() -> None:
    same(F.full((2, 2), [1.5, 2.5]), np.full((2, 2), [1.5, 2.5]))
    got = F.full((2, 2), np.array([1, 2]))
    assert got.dtype == np.int32 and got.numpy().tolist() == [[1, 2], [1, 2]]
    assert F.full((2,), [1.5, 2.5], dtype="int32").numpy().tolist() == [1, 2]


def test_norms_of_integers_and_counts() -> None:
    count = F.norm(tensor(X[0]), 0)
    assert count.dtype == np.int32 and count.item() == np.linalg.norm(X[0], 0)
    size = F.norm(tensor([3, -4, 0]), 1)
    assert size.dtype == np.float32 and size.item() == 7.0


@pytest.mark.parametrize("name", ["float", "double", "half", "long", "int", "f4", "float16"])
def test_made_tensors_take_the_dtypes_that_casts_take(name: str) -> None:
    want = mge.Tensor([1.0]).astype(name).dtype
    for made in (F.zeros((2,), dtype=name), F.ones((2,), dtype=name), F.full((2,), 1, dtype=name)):
        assert made.dtype == want
