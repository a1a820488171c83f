"""The original's op classes and ``apply``: fields, enums, equality, and what each op gives, against NumPy."""

from __future__ import annotations

import copy
import inspect
import math
import pickle

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import tensor
from megengine.autodiff import GradManager
from megengine.core._core import op_class_info
from megengine.core._imperative_rt import OpDef
from megengine.core._imperative_rt.core2 import apply
from megengine.core._imperative_rt.ops import OPS
from megengine.core.ops import builtin
from megengine.jit import trace

RNG = np.random.RandomState(0)
X = RNG.uniform(-3, 3, (3, 4)).astype("float32")
Y = RNG.uniform(-3, 3, (3, 4)).astype("float32")
Z = RNG.uniform(-3, 3, (3, 4)).astype("float32")
IMAGE = RNG.uniform(-1, 1, (2, 3, 6, 6)).astype("float32")

erf = np.vectorize(math.erf)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def cdf(x):
    return 0.5 * (1 + erf(x / math.sqrt(2)))


#: What NumPy says, for modes whose name is not a NumPy function of the same meaning.
MODES = {
    "RELU": lambda x: np.maximum(x, 0),
    "NEGATE": lambda x: -x,
    "SIGMOID": sigmoid,
    "ABS_GRAD": lambda x, y: np.where(x > 0, y, -y),
    "ADD": lambda x, y: x + y,
    "FLOOR_DIV": lambda x, y: np.floor(x / y),
    "MAX": np.maximum,
    "MIN": np.minimum,
    "MOD": np.fmod,
    "MUL": lambda x, y: x * y,
    "SIGMOID_GRAD": lambda x, y: x * (1 - x) * y,
    "SUB": lambda x, y: x - y,
    "SWITCH_GT0": lambda x, y: np.where(x > 0, y, 0),
    "TANH_GRAD": lambda x, y: (1 - x * x) * y,
    "TRUE_DIV": lambda x, y: x / y,
    "LOG_SUM_EXP": np.logaddexp,
    "LT": lambda x, y: (x < y).astype(float),
    "LEQ": lambda x, y: (x <= y).astype(float),
    "EQ": lambda x, y: (x == y).astype(float),
    "NEQ": lambda x, y: (x != y).astype(float),
    "COND_LEQ_MOV": lambda x, y, z: np.where(x <= y, z, 0),
    "COND_LT_MOV": lambda x, y, z: np.where(x < y, z, 0),
    "FUSE_MUL_ADD3": lambda a, b, c: a * b + c,
    "FUSE_MUL_ADD4": lambda a, b, c, d: a * b + c * d,
    "FUSE_ADD_RELU": lambda x, y: np.maximum(x + y, 0),
    "FUSE_ADD_SIGMOID": lambda x, y: sigmoid(x + y),
    "FUSE_ADD_TANH": lambda x, y: np.tanh(x + y),
    "FAST_TANH": lambda x: x * (27 + x * x) / (27 + 9 * x * x),
    "FAST_TANH_GRAD": lambda x, y: (
        y * ((27 + 3 * x * x) * (27 + 9 * x * x) - 18 * x * x * (27 + x * x)) / (27 + 9 * x * x) ** 2
    ),
    "ROUND": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "ATAN2": np.arctan2,
    "ERF": erf,
    "ERFC": np.vectorize(math.erfc),
    "H_SWISH": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "H_SWISH_GRAD": lambda x, y: np.where(x < -3, 0, np.where(x > 3, y, (2 * x + 3) / 6 * y)),
    "FUSE_ADD_H_SWISH": lambda x, y: (x + y) * np.clip(x + y + 3, 0, 6) / 6,
    "SILU": lambda x: x * sigmoid(x),
    "SILU_GRAD": lambda x, y: y * sigmoid(x) * (1 + x * (1 - sigmoid(x))),
    "GELU": lambda x: x * cdf(x),
    "GELU_GRAD": lambda x, y: y * (cdf(x) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)),
    "ISNAN": np.isnan,
    "ISINF": np.isinf,
    "ASINH_GRAD": lambda x, y: y / np.sqrt(x * x + 1),
    "PRELU": lambda x, y: np.where(x > 0, x, x * y),
    "CLIP": lambda x, lo, hi: np.minimum(np.maximum(x, lo), hi),
    "PRELU_GRAD": lambda x, dy, w: np.where(x >= 0, dy, dy * w),
    "SOFTPLUS": lambda x: np.logaddexp(x, 0),
    "SOFTPLUS_GRAD": lambda x, y: y * sigmoid(x),
    "RELU6": lambda x: np.clip(x, 0, 6),
    "RELU6_GRAD": lambda x, y: np.where((x > 0) & (x < 6), y, 0),
    "HSIGMOID": lambda x: np.clip(x + 3, 0, 6) / 6,
    "HSIGMOID_GRAD": lambda x, y: np.where(np.abs(x) < 3, y / 6, 0),
    "LOGSIGMOID": lambda x: -np.logaddexp(-x, 0),
    "ASINH": np.arcsinh,
}
SAME_NAME = "ABS CEIL COS EXP EXPM1 FLOOR SIN TANH SINH COSH TAN SQUARE SIGN".split()
INSIDE = {  # modes of a limited domain: (function, lowest, highest)
    "ACOS": (np.arccos, -1, 1),
    "ASIN": (np.arcsin, -1, 1),
    "ATANH": (np.arctanh, -0.9, 0.9),
    "ACOSH": (np.arccosh, 1.1, 4),
    "LOG": (np.log, 0.1, 4),
    "LOG1P": (np.log1p, -0.9, 4),
    "SQRT": (np.sqrt, 0, 4),
}
OTHER = {"POW", "SHL", "SHR", "RMULH", "NOT", "AND", "OR", "XOR", "ERFINV", "ERFCINV", "ACOSH_GRAD", "ATANH_GRAD"}


def run(op, *arrays):
    return [y.numpy() for y in apply(op, *(tensor(a) for a in arrays))]


def test_all_86_modes_are_there_and_tested() -> None:
    names = builtin.Elemwise.Mode.names
    assert len(names) == 86
    assert set(names) == set(MODES) | set(SAME_NAME) | set(INSIDE) | OTHER


@pytest.mark.parametrize("mode", [*MODES, *SAME_NAME])
def test_elemwise_modes(mode: str) -> None:
    fn = MODES.get(mode) or getattr(np, {"ABS": "abs"}.get(mode, mode.lower()))
    arity = getattr(fn, "nin", None) or len(inspect.signature(getattr(fn, "pyfunc", fn)).parameters)
    inputs = (X, Y, Z, X[::-1].copy())[:arity]
    (got,) = run(builtin.Elemwise(mode), *inputs)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, fn(*(a.astype("float64") for a in inputs)), rtol=2e-5, atol=2e-5)
    with pytest.raises(RuntimeError, match=f"Elemwise {mode}: needs"):
        run(builtin.Elemwise(mode), *inputs, X)


@pytest.mark.parametrize("mode", INSIDE)
def test_elemwise_modes_of_a_limited_domain(mode: str) -> None:
    fn, lo, hi = INSIDE[mode]
    x = np.linspace(lo, hi, 17, dtype="float32")
    np.testing.assert_allclose(run(builtin.Elemwise(mode), x)[0], fn(x.astype("float64")), rtol=2e-5, atol=2e-5)


def test_elemwise_modes_of_other_domains() -> None:
    i, j = np.array([5, -7, 2**30], "int32"), np.array([1, 2, 2**30], "int32")
    b, c = np.array([True, True, False]), np.array([True, False, False])
    assert run(builtin.Elemwise("SHL"), i[:2], j[:2])[0].tolist() == [10, -28]
    assert run(builtin.Elemwise("SHR"), i[:2], j[:2])[0].tolist() == [2, -2]
    assert run(builtin.Elemwise("RMULH"), i, j)[0].tolist() == [0, 0, 2**29]
    for mode, fn in (("AND", np.logical_and), ("OR", np.logical_or), ("XOR", np.logical_xor)):
        np.testing.assert_array_equal(run(builtin.Elemwise(mode), b, c)[0], fn(b, c))
    np.testing.assert_array_equal(run(builtin.Elemwise("NOT"), b)[0], ~b)
    x = np.array([0.1, -0.7, 0.3], "float32")
    np.testing.assert_allclose(erf(run(builtin.Elemwise("ERFINV"), x)[0]), x, rtol=1e-6)
    np.testing.assert_allclose(1 - erf(run(builtin.Elemwise("ERFCINV"), 1 + x)[0]), 1 + x, rtol=1e-6)
    np.testing.assert_allclose(run(builtin.Elemwise("POW"), np.abs(X), Y)[0], np.abs(X) ** Y, rtol=1e-5)
    np.testing.assert_allclose(run(builtin.Elemwise("ATANH_GRAD"), x, x)[0], x / (1 - x * x), rtol=1e-6)
    np.testing.assert_allclose(
        run(builtin.Elemwise("ACOSH_GRAD"), 2 + x, x)[0], x / np.sqrt((2 + x) ** 2 - 1), rtol=1e-6
    )


def test_numbers_beside_tensors() -> None:
    assert apply(builtin.Elemwise("add"), 1, 2)[0].item() == 3
    h = tensor(np.ones(2, "float16"))
    assert apply(builtin.Elemwise("mul"), h, 1.5)[0].dtype == np.float16
    with pytest.raises(TypeError, match="expects tensor as inputs"):
        apply(builtin.Reduce(), 1.0)
    with pytest.raises(TypeError, match="needs an op"):
        apply("add", h)  # type: ignore[arg-type]


# ---- classes


def test_names_of_classes_and_enums() -> None:
    assert builtin.Elemwise.__module__ == "megengine.core._imperative_rt.ops"
    assert builtin.Elemwise.Mode.__qualname__ == "Elemwise.Mode"
    assert issubclass(builtin.Elemwise, OpDef)
    assert repr(builtin.Elemwise.Mode.ADD) == "Elemwise.Mode.ADD" and repr(builtin.Elemwise("add")) == "ADD"
    assert repr(builtin.Reshape()) == "Reshape"
    assert set(OPS) <= set(builtin.__all__)


def test_enums_equal_their_names() -> None:
    mode = builtin.Elemwise.Mode.ADD
    assert mode == "ADD" and "add" == mode and mode != "SUB" and mode != 3
    assert builtin.Elemwise(mode).mode is mode
    with pytest.raises(RuntimeError, match="one of RELU, ABS"):
        builtin.Elemwise("nope")
    both = builtin.Convolution(strategy=("HEURISTIC", "PROFILE")).strategy
    assert both == builtin.Convolution.Strategy.HEURISTIC | builtin.Convolution.Strategy.PROFILE
    assert both & "PROFILE" == "PROFILE" and not both & "REPRODUCIBLE"


@pytest.mark.parametrize(
    ("enum", "name"),
    [
        (builtin.CvtColor.Mode, "YCrCb2RGB"),
        (builtin.Reduce.DataType, "FLOAT_IO16xC32"),
        (builtin.Convolution3D.DataType, "FLOAT_IO16xC32"),
        (builtin.ElemwiseMultiType.Mode, "ROUND_SHR_SATURATE_IXxI8xI16"),
    ],
)
def test_enum_names_keep_their_small_letters(enum, name: str) -> None:
    member = getattr(enum, name)
    assert member == name and str(member).endswith(f".{name}")
    assert enum.of(name.lower()) == member == enum.of(name.upper())


@pytest.mark.parametrize("k", [-1, 0, 1, 5])
def test_eye_moves_its_diagonal(k: int) -> None:
    (got,) = apply(builtin.Eye(k=k, comp_node="xpux"), tensor([2, 3]))
    np.testing.assert_array_equal(got.numpy(), np.eye(2, 3, k))


@pytest.mark.parametrize("name", sorted(OPS))
def test_every_op_copies_pickles_and_compares(name: str) -> None:
    op = OPS[name]()
    for twin in (copy.copy(op), copy.deepcopy(op), pickle.loads(pickle.dumps(op)), OPS[name](**op.__getstate__())):
        assert twin == op and hash(twin) == hash(op) and twin.__getstate__() == op.__getstate__()
    assert op.scope == "" and op != builtin.Identity(scope="x") or name == "Identity"
    with pytest.raises(TypeError, match="no parameter"):
        OPS[name](nonsense=1)
    with pytest.raises(AttributeError, match="no parameter"):
        op.nonsense = 1


def test_fields_take_part_in_equality() -> None:
    assert builtin.Reduce("sum", 0) == builtin.Reduce(mode="SUM", axis=0) != builtin.Reduce("sum", 1)
    assert builtin.NMSKeep(0.5, 3) != builtin.NMSKeep(0.5, 4)
    assert builtin.UniformRNG(seed=1) == builtin.UniformRNG(seed=2)  # the seed is no part of what an op is
    op = builtin.Reduce()
    op.axis = 2
    assert op == builtin.Reduce(axis=2)
    assert builtin.TypeCvt("int32").dtype == np.dtype("int32")
    with pytest.raises(TypeError, match="given twice"):
        builtin.Reduce("sum", mode="max")
    with pytest.raises(TypeError, match="at most"):
        builtin.CondTake(1, 2)


# ---- what ops give


def test_reduce_and_casts() -> None:
    for mode, fn in (("SUM", np.sum), ("PRODUCT", np.prod), ("MIN", np.min), ("MAX", np.max), ("MEAN", np.mean)):
        np.testing.assert_allclose(run(builtin.Reduce(mode, 1), X)[0], fn(X, 1, keepdims=True), rtol=1e-5)
        np.testing.assert_allclose(run(builtin.Reduce(mode, 0, keepdim=False), X)[0], fn(X, 0), rtol=1e-5)
    np.testing.assert_allclose(run(builtin.Reduce("SUM_SQR", 0), X)[0], (X * X).sum(0, keepdims=True), rtol=1e-5)
    assert run(builtin.Reduce("SUM"), X)[0].shape == ()
    np.testing.assert_allclose(run(builtin.Reduce("SUM"), X, np.array([1, 4]))[0], X.sum(0, keepdims=True), rtol=1e-5)
    assert run(builtin.TypeCvt("int32"), X)[0].dtype == np.int32


def test_shape_ops() -> None:
    shape = np.array([2, 6])
    np.testing.assert_array_equal(run(builtin.Reshape(), X, shape)[0], X.reshape(2, 6))
    np.testing.assert_array_equal(run(builtin.Reshape(shape=[4, 3]), X)[0], X.reshape(4, 3))
    np.testing.assert_array_equal(run(builtin.Broadcast(), X[:1], np.array([3, 4]))[0], np.broadcast_to(X[:1], (3, 4)))
    np.testing.assert_array_equal(run(builtin.Dimshuffle([1, -1, 0]), X)[0], X.T[:, None])
    assert run(builtin.AddAxis([0, 1]), X)[0].shape == (1, 1, 3, 4)
    assert run(builtin.RemoveAxis([0, 0]), X[None, None])[0].shape == (3, 4)
    np.testing.assert_array_equal(run(builtin.Concat(axis=1), X, Y)[0], np.concatenate([X, Y], 1))
    np.testing.assert_array_equal(run(builtin.Stack(axis=1), X, Y)[0], np.stack([X, Y], 1))
    for got, want in zip(run(builtin.Split(1, 3), X), np.array_split(X, 3, 1)):
        np.testing.assert_array_equal(got, want)
    assert [y.shape for y in run(builtin.Split(1), X, np.array(1), np.array(3))] == [(3, 1), (3, 3)]
    assert run(builtin.GetVarShape(), X)[0].tolist() == [3, 4]
    assert run(builtin.GetVarShape(axis=1), X)[0].tolist() == [4]
    assert run(builtin.GetVarShape(), X[:1], X)[0].tolist() == [3, 4]
    for got, want in zip(run(builtin.MeshGrid("ij"), X[0], Y[0]), np.meshgrid(X[0], Y[0], indexing="ij")):
        np.testing.assert_array_equal(got, want)
    pad = builtin.Padding(front_offset_dim0=1, back_offset_dim1=2, padding_val=7.0)
    np.testing.assert_array_equal(run(pad, X)[0], np.pad(X, ((1, 0), (0, 2)), constant_values=7))
    a, b = run(builtin.ParamPackSplit([0, 4, 4, 12], [(2, 2), (8,)]), X.reshape(-1))
    assert a.shape == (2, 2) and b.shape == (8,)
    shuffled = run(builtin.PixelShuffle(2), IMAGE[:, :1].repeat(4, 1))[0]
    np.testing.assert_array_equal(run(builtin.PixelShuffleBackward(2), shuffled)[0], IMAGE[:, :1].repeat(4, 1))


def test_indexing_ops() -> None:
    items = [(0, True, True, False, False), (1, False, False, False, True)]
    one, three, two = np.array(1), np.array(3), np.array(2)
    np.testing.assert_array_equal(run(builtin.Subtensor(items), X, one, three, two)[0], X[1:3, 2])
    fixed = builtin.Subtensor(items, [(1, 3, 1, 0), (0, 0, 0, 2)])
    np.testing.assert_array_equal(run(fixed, X)[0], X[1:3, 2])
    want = X.copy()
    want[1:3, 2] = [7, 8]
    np.testing.assert_array_equal(run(builtin.SetSubtensor(items), X, np.float32([7, 8]), one, three, two)[0], want)
    want[1:3, 2] += X[1:3, 2]
    np.testing.assert_allclose(run(builtin.IncrSubtensor(items), X, np.float32([7, 8]), one, three, two)[0], want)
    vec, at = [(0, False, False, False, True)], np.array([2, 0, 2])
    np.testing.assert_array_equal(run(builtin.IndexingMultiAxisVec(vec), X, at)[0], X[at])
    want = X.copy()
    np.add.at(want, at, Y)
    np.testing.assert_allclose(run(builtin.IndexingIncrMultiAxisVec(vec), X, Y, at)[0], want, rtol=1e-6)
    sliced = [(0, True, True, False, False), (1, False, False, False, True)]
    want = X.copy()
    np.add.at(want[1:3].T, at, Y[:2, :3].T)
    got = run(builtin.IndexingIncrMultiAxisVec(sliced), X, Y[:2, :3], one, three, at)[0]
    np.testing.assert_allclose(got, want, rtol=1e-6)
    want = X.copy()
    want[2] += Y[0]
    np.testing.assert_allclose(run(builtin.IndexingIncrMultiAxisVec(vec), X, Y[0], two)[0], want, rtol=1e-6)
    np.testing.assert_array_equal(
        run(builtin.IndexingOneHot(1, 2), X, np.array([0, 3, 1]))[0][:, 0], X[range(3), [0, 3, 1]]
    )
    (put,) = run(builtin.IndexingSetOneHot(1, 2), X, np.array([0, 3, 1]), np.float32([[5], [6], [7]]))
    assert put[range(3), [0, 3, 1]].tolist() == [5, 6, 7]
    value, place = run(builtin.CondTake(), X, X > 0)
    np.testing.assert_array_equal(value, X[X > 0])
    np.testing.assert_array_equal(place, np.flatnonzero(X > 0))
    np.testing.assert_array_equal(run(builtin.NonZero(), X > 0)[0], np.stack(np.nonzero(X > 0)))
    np.testing.assert_array_equal(run(builtin.MaskedFill(value=2.0), X, X > 0)[0], np.where(X > 0, 2, X))
    np.testing.assert_array_equal(run(builtin.MaskedFill(value=2.0), X, X[:, 0] > 0)[0][X[:, 0] > 0], 2)
    with pytest.raises(IndexError, match="does not match the leading axes"):
        run(builtin.MaskedFill(), X, X[:2] > 0)
    np.testing.assert_array_equal(run(builtin.Where(), X > 0, X, Y)[0], np.where(X > 0, X, Y))
    assert run(builtin.Argmax(1), X)[0].shape == (3, 1)
    np.testing.assert_allclose(run(builtin.Cumsum(0), X)[0], X.cumsum(0) - X, rtol=1e-5, atol=1e-6)


def test_making_and_checking() -> None:
    np.testing.assert_array_equal(run(builtin.Fill(3, "float32", "xpux"), np.array([2, 3]))[0], np.full((2, 3), 3.0))
    np.testing.assert_array_equal(run(builtin.FillLike(2), X)[0], np.full_like(X, 2))
    np.testing.assert_allclose(
        run(builtin.Linspace(comp_node="xpux"), np.float32(0), np.float32(1), np.array(3))[0], [0, 0.5, 1]
    )
    np.testing.assert_array_equal(run(builtin.Eye(dtype="int32"), np.array([2, 3]))[0], np.eye(2, 3))
    assert apply(builtin.Copy(comp_node="cpu0:1"), tensor(X))[0].device == "cpu0:1"
    scaled, flag = run(builtin.CheckNonFinite(scale=2.0), X)
    np.testing.assert_array_equal(scaled, X * 2)
    assert flag.item() == 0 and run(builtin.CheckNonFinite(), np.float32([np.inf]))[1].item() == 1
    dest = tensor([1.0, 2.0])
    assert apply(builtin.InplaceAdd(), dest, tensor([1.0, 1.0]), tensor(2.0), tensor(3.0))[0] is dest
    assert dest.tolist() == [5, 7]
    assert len(apply(builtin.Barrier("xpux", 2), tensor(X))) == 2
    with pytest.raises(NotImplementedError, match="TensorRTRuntime"):
        apply(builtin.TensorRTRuntime(), tensor(X))


def test_networks() -> None:
    w = RNG.uniform(-1, 1, (4, 3, 3, 3)).astype("float32")
    conv = builtin.Convolution(pad_h=1, pad_w=1, stride_h=2, stride_w=2)
    np.testing.assert_array_equal(
        run(conv, IMAGE, w)[0], F.conv2d(tensor(IMAGE), tensor(w), stride=2, padding=1).numpy()
    )
    back = builtin.ConvolutionBackwardData(pad_h=1, pad_w=1, stride_h=2, stride_w=2)
    dy = run(conv, IMAGE, w)[0]
    assert run(back, w, dy, np.array(IMAGE.shape))[0].shape == IMAGE.shape
    np.testing.assert_allclose(run(builtin.MatrixMul(transposeB=True), X, Y)[0], X @ Y.T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(run(builtin.Dot(), X[0], Y[0])[0], X[0] @ Y[0], rtol=1e-5)
    pool = builtin.Pooling("AVERAGE", pad_h=1, pad_w=1, window_h=3, window_w=3)
    np.testing.assert_array_equal(run(pool, IMAGE)[0], F.avg_pool2d(tensor(IMAGE), 3, 2, 1, mode="average").numpy())
    np.testing.assert_array_equal(
        run(builtin.AdaptivePooling("MAX"), IMAGE, np.array([2, 3]))[0],
        F.adaptive_max_pool2d(tensor(IMAGE), (2, 3)).numpy(),
    )
    y, mean, rstd = run(builtin.LayerNorm(affine=False, normalized_dim=1, normalized_size=4), X)
    np.testing.assert_allclose(mean, X.mean(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(y, (X - X.mean(1, keepdims=True)) * rstd[:, None], rtol=1e-4, atol=1e-5)
    ones, zeros = np.ones((1, 3, 1, 1), "float32"), np.zeros((1, 3, 1, 1), "float32")
    out = run(builtin.BatchNorm("DIM_1C11", "TRAINING", 1e-5, 0.1), IMAGE, ones, zeros, zeros, ones)
    np.testing.assert_allclose(out[0].reshape(-1), 0.1 * IMAGE.mean((0, 2, 3)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(out[1].reshape(-1), 0.9 + 0.1 * IMAGE.var((0, 2, 3), ddof=1), rtol=1e-4)
    np.testing.assert_allclose(out[-1].mean((0, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(run(builtin.Softmax(1), X)[0].sum(1), 1, rtol=1e-5)


NHWC = IMAGE.transpose(0, 2, 3, 1).copy()
ROIS = np.float32([[0, 0.5, 0, 4, 4.5], [1, 1, 1, 3, 5]])
MATS = np.float32([[[1, 0.1, 0.5], [0, 0.9, 0.2], [0.01, 0.02, 1]], [[0.8, 0, 0.5], [0.1, 1, 0.2], [0, 0.02, 1]]])
PLACES = RNG.uniform(-1, 6, (2, 4, 3, 2)).astype("float32")
SIZE = np.array([4, 3])


#: op, its inputs, the function that says the same (each tested against NumPy where it is defined).
IMAGE_OPS = {
    "ROIAlign": (
        builtin.ROIAlign("AVERAGE", "NCHW", 0.5, 0.5, 2, 3, 2, 1),
        (IMAGE, ROIS),
        lambda x, r: F.vision.roi_align(x, r, (2, 3), "average", 0.5, (2, 1)),
    ),
    "ROIAlign max": (
        builtin.ROIAlign("MAX", pooled_height=2, pooled_width=2),
        (IMAGE, ROIS),
        lambda x, r: F.vision.roi_align(x, r, 2, "max", aligned=False),
    ),
    "ROIAlign offset": (
        builtin.ROIAlign("AVERAGE", offset=0.25, pooled_height=2, pooled_width=2),
        (IMAGE, ROIS),
        lambda x, r: F.vision.roi_align(x, r + tensor([0, 0.25, 0.25, 0.25, 0.25]), 2, "average", aligned=True),
    ),
    "ROIPooling": (
        builtin.ROIPooling("AVERAGE", 0.5),
        (IMAGE, ROIS, np.array([2, 3])),
        lambda x, r, _: F.vision.roi_pooling(x, r, (2, 3), "average", 0.5),
    ),
    "DeformablePSROIPooling": (
        builtin.DeformablePSROIPooling(False, 1.0, 0.1, 2, 2, 2, 2),
        (IMAGE, ROIS, RNG.uniform(-1, 1, (2, 2, 2, 2)).astype("float32")),
        lambda x, r, t: F.deformable_psroi_pooling(x, r, t, False, 2, 2, 2, 2, 1.0, 0.1),
    ),
    "Correlation": (
        builtin.Correlation(kernel_size=3, max_displacement=2, stride2=2, pad_size=2, is_multiply=False),
        (IMAGE, IMAGE[::-1].copy()),
        lambda a, b: F.vision.correlation(a, b, 3, 2, 1, 2, 2, False),
    ),
    "WarpPerspective": (
        builtin.WarpPerspective("NEAREST", "CONSTANT", "NCHW", 2.0),
        (IMAGE, MATS, SIZE),
        lambda x, m, _: F.vision.warp_perspective(x, m, (4, 3), None, "constant", 2.0, interp_mode="nearest"),
    ),
    "WarpPerspective of chosen images": (
        builtin.WarpPerspective(format="NHWC"),
        (NHWC, MATS, np.array([1, 1]), SIZE),
        lambda x, m, i, _: F.vision.warp_perspective(x, m, (4, 3), i, format="NHWC"),
    ),
    "WarpAffine": (
        builtin.WarpAffine(border_mode="WRAP"),
        (NHWC, MATS[:, :2], SIZE),
        lambda x, m, _: F.vision.warp_affine(x, m, (4, 3), "wrap"),
    ),
    "Remap": (
        builtin.Remap(border_type="CONSTANT", scalar=3.0),
        (NHWC, PLACES),
        lambda x, p: F.vision.remap(x.transpose(0, 3, 1, 2), p, "constant", 3.0).transpose(0, 2, 3, 1),
    ),
    "Remap NCHW": (builtin.Remap(format="NCHW"), (IMAGE, PLACES), F.vision.remap),
    "Resize": (builtin.Resize(), (NHWC, SIZE), lambda x, _: F.vision.resize(x, (4, 3), "NHWC")),
    "Resize cubic": (
        builtin.Resize("CUBIC", "NCHW"),
        (IMAGE, SIZE),
        lambda x, _: F.vision.resize(x, (4, 3), imode="bicubic"),
    ),
    "Resize3D": (
        builtin.Resize3D(format="NCDHW", align_corners=True),
        (IMAGE[None], np.array([3, 4, 5])),
        lambda x, _: F.vision.interpolate(x, (3, 4, 5), mode="trilinear", align_corners=True),
    ),
    "Rotate": (builtin.Rotate(), (NHWC,), lambda x: tensor(np.rot90(x.numpy(), -1, (1, 2)))),
    "Rotate back": (builtin.Rotate(False), (NHWC,), lambda x: tensor(np.rot90(x.numpy(), 1, (1, 2)))),
    "Flip": (builtin.Flip(True, False), (NHWC,), lambda x: tensor(x.numpy()[:, ::-1])),
    "Flip nothing": (builtin.Flip(), (NHWC,), lambda x: x),
    "CvtColor": (builtin.CvtColor("BGR2GRAY"), (NHWC,), lambda x: F.vision.cvt_color(x, "BGR2GRAY")),
    "GaussianBlur": (
        builtin.GaussianBlur("REFLECT_101", 3, 5, 1.0, 2.0),
        (NHWC,),
        lambda x: M.GaussianBlur((3, 5), 1.0, 2.0, "REFLECT_101")(x.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1),
    ),
}


@pytest.mark.parametrize("case", IMAGE_OPS)
def test_image_ops(case: str) -> None:
    op, inputs, same = IMAGE_OPS[case]
    want = same(*(tensor(a) for a in inputs)).numpy()
    np.testing.assert_allclose(run(op, *inputs)[0], want, rtol=1e-5, atol=1e-6)


def test_image_ops_refuse_what_is_not_there() -> None:
    with pytest.raises(NotImplementedError, match="format must be NCHW; got NHWC"):
        run(builtin.ROIAlign(format="NHWC"), NHWC, ROIS)
    with pytest.raises(NotImplementedError, match="needs format NCDHW and imode LINEAR; got NDHWC"):
        run(builtin.Resize3D(), IMAGE[None], np.array([3, 4, 5]))
    with pytest.raises(ValueError, match="needs boxes"):
        run(builtin.NMSKeep(0.5, 3), IMAGE[0, 0])


def test_samples_behind_deformable_pooling_are_counted() -> None:
    inside = np.float32([[0, 0, 0, 3, 3]])
    op = builtin.DeformablePSROIPooling(True, 1.0, 0.1, 2, 2, 1, 3)
    mean, count = run(op, IMAGE, inside, np.zeros((1, 2, 1, 1), "float32"))
    assert mean.shape == (1, 3, 2, 2) and (count == 9).all()
    # A region that begins 2 pixels left of the image: the first of 3 samples at -2.5, -1.5 and -0.5 counts no more.
    _, count = run(op, IMAGE, np.float32([[0, -2, 0, 3, 3]]), np.zeros((1, 2, 1, 1), "float32"))
    assert count[0, 0].tolist() == [[3, 9], [3, 9]]


def test_nms_keep() -> None:
    boxes = np.float32([[[0, 0, 4, 4], [0, 0, 4, 3.9], [5, 5, 9, 9]], [[0, 0, 1, 1], [2, 2, 3, 3], [4, 4, 5, 5]]])
    index, count = run(builtin.NMSKeep(0.5, 3), boxes)
    assert index.tolist() == [[0, 2, 2], [0, 1, 2]] and count.tolist() == [2, 3]  # as MegEngine 1.13 prints them
    index, count = run(builtin.NMSKeep(0.5, 2), boxes)
    assert index.tolist() == [[0, 2], [0, 1]] and count.tolist() == [2, 2]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_backward_ops_of_warps(layout: str) -> None:
    image = IMAGE if layout == "NCHW" else NHWC
    x, mat = tensor(image), tensor(MATS)
    dy = RNG.uniform(-1, 1, (2, 3, 4, 3) if layout == "NCHW" else (2, 4, 3, 3)).astype("float32")
    gm = GradManager().attach([x, mat])
    with gm:
        gm.backward(F.vision.warp_perspective(x, mat, (4, 3), format=layout), tensor(dy))
    args = {"format": layout}
    np.testing.assert_array_equal(run(builtin.WarpPerspectiveBackwardData(**args), MATS, dy, image)[0], x.grad.numpy())
    np.testing.assert_array_equal(run(builtin.WarpPerspectiveBackwardMat(**args), image, MATS, dy)[0], mat.grad.numpy())


def test_mesh_indexing() -> None:
    v = RNG.uniform(-1, 1, (4, 5, 6)).astype("float32")
    items = [(0, False, False, False, True), (2, False, False, False, True)]
    i, j = np.array([3, 1]), np.array([0, 2, 2])
    np.testing.assert_array_equal(run(builtin.MeshIndexing(items), v, i, j)[0], v[i][:, :, j])
    sliced = [(0, False, False, False, True), (1, True, True, False, False)]
    np.testing.assert_array_equal(run(builtin.MeshIndexing(sliced), v, i, np.array(1), np.array(4))[0], v[i, 1:4])
    value = RNG.uniform(-1, 1, (2, 5, 3)).astype("float32")
    want = v.copy()
    want[np.ix_(i, range(5), j[:2])] = value[..., :2]
    np.testing.assert_array_equal(run(builtin.SetMeshIndexing(items), v, value[..., :2].copy(), i, j[:2])[0], want)
    want = v.copy()
    np.add.at(want, np.ix_(i, range(5), j), value)
    np.testing.assert_allclose(run(builtin.IncrMeshIndexing(items), v, value, i, j)[0], want, rtol=1e-6)
    with pytest.raises(ValueError, match="positions along axis 0 need one dimension"):
        run(builtin.MeshIndexing(items), v, i[None], j)


def test_mesh_indexing_with_a_row_for_each_image() -> None:
    v = RNG.uniform(-1, 1, (4, 5, 6)).astype("float32")
    items = [(1, False, False, False, True), (2, False, False, False, True)]
    i = np.array([[0, 1], [2, 3], [4, 4], [1, 0]])
    j = np.array([[0, 1, 2], [2, 3, 4], [4, 4, 5], [1, 0, 5]])
    at = (np.arange(4)[:, None, None], i[:, :, None], j[:, None, :])
    np.testing.assert_array_equal(run(builtin.BatchedMeshIndexing(items), v, i, j)[0], v[at])
    last = [(2, False, False, False, True)]
    np.testing.assert_array_equal(
        run(builtin.BatchedMeshIndexing(last), v, j)[0], np.take_along_axis(v, j[:, None, :].repeat(5, 1), 2)
    )
    value = RNG.uniform(-1, 1, (4, 2, 3)).astype("float32")
    want = v.copy()
    np.add.at(want, at, value)
    np.testing.assert_allclose(run(builtin.BatchedIncrMeshIndexing(items), v, value, i, j)[0], want, rtol=1e-6)
    want = v.copy()
    want[at] = value
    np.testing.assert_array_equal(run(builtin.BatchedSetMeshIndexing(items), v, value, i, j)[0], want)
    with pytest.raises(ValueError, match="axis 0 counts the images"):
        run(builtin.BatchedMeshIndexing([(0, False, False, False, True)]), v, i)


def test_recurrent_cells() -> None:
    def gates(n):
        w, u, b, c = (RNG.uniform(-1, 1, s).astype("float32") for s in ((n, 4), (n, 2), n, n))
        return (X, w, b, hidden, u, c), X @ w.T + b + hidden @ u.T + c

    hidden, memory = RNG.uniform(-1, 1, (2, 3, 2)).astype("float32")
    inputs, want = gates(2)
    for mode, fn in (("IDENTITY", lambda x: x), ("RELU", lambda x: np.maximum(x, 0)), ("TANH", np.tanh)):
        np.testing.assert_allclose(run(builtin.RNNCell(mode), *inputs)[0], fn(want), rtol=1e-5, atol=1e-6)
    inputs, want = gates(8)
    h, c, kept = run(builtin.LSTMCell(), *inputs, memory)
    i, f, g, o = np.split(want, 4, axis=1)
    c_want = sigmoid(f) * memory + sigmoid(i) * np.tanh(g)
    np.testing.assert_allclose(c, c_want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(h, sigmoid(o) * np.tanh(c_want), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(kept, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrent_networks(bidirectional: bool) -> None:
    x = RNG.uniform(-1, 1, (5, 3, 4)).astype("float32")
    h, c = RNG.uniform(-1, 1, (2, 4 if bidirectional else 2, 3, 2)).astype("float32")
    net = M.LSTM(4, 2, num_layers=2, bidirectional=bidirectional)
    op = builtin.LSTM(2, bidirectional, True, 2)
    y, last_h, last_c, _ = run(op, x, h, c, net._flatten_weights.numpy().reshape(-1))
    want, (want_h, want_c) = net(tensor(x), (tensor(h), tensor(c)))
    for got, ref in ((y, want), (last_h, want_h), (last_c, want_c)):
        np.testing.assert_array_equal(got, ref.numpy())
    rnn = M.RNN(4, 2, num_layers=2, bidirectional=bidirectional, bias=False, nonlinearity="relu")
    op = builtin.RNN(2, bidirectional, False, 2, nonlineMode="RELU")
    y, last, _ = run(op, x, h, rnn._flatten_weights.numpy().reshape(-1))
    want, want_h = rnn(tensor(x), tensor(h))
    np.testing.assert_array_equal(y, want.numpy())
    np.testing.assert_array_equal(last, want_h.numpy())
    with pytest.raises(NotImplementedError, match="proj_size 1"):
        run(builtin.LSTM(proj_size=1), x, h, c, x)


@pytest.mark.parametrize("correct, decay, adapt", [(True, 0.01, False), (False, 0.0, True), (True, 0.0, False)])
def test_lamb_update(correct: bool, decay: float, adapt: bool) -> None:
    m, v, w, g = X, np.abs(Y), Z, Y
    new_m, new_v, new_w = run(builtin.LAMBUpdate(0.9, 0.99, 3, 0.1, decay, 1e-6, correct, adapt), m, v, w, g)
    want_m, want_v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    fix_m, fix_v = (1 - 0.9**3, 1 - 0.99**3) if correct else (1, 1)
    move = (want_m / fix_m) / (np.sqrt(want_v / fix_v) + 1e-6) + decay * w
    trust = np.linalg.norm(w) / np.linalg.norm(move) if adapt or decay else 1
    for got, want in ((new_m, want_m), (new_v, want_v), (new_w, w - 0.1 * trust * move)):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_fused_and_backward_ops_of_networks() -> None:
    w, b = (RNG.uniform(-1, 1, s).astype("float32") for s in ((4, 3, 3, 3), (1, 4, 1, 1)))
    conv = F.conv2d(tensor(IMAGE), tensor(w), padding=1).numpy()
    z = RNG.uniform(-1, 1, conv.shape).astype("float32")
    args = {"pad_h": 1, "pad_w": 1, "dtype": "float32"}
    got = run(builtin.ConvBias("RELU", **args), IMAGE, w, b)[0]
    np.testing.assert_allclose(got, np.maximum(conv + b, 0), rtol=1e-6)
    got = run(builtin.ConvBias("SIGMOID", **args), IMAGE, w, b, z)[0]
    np.testing.assert_allclose(got, sigmoid(conv + b + z), rtol=1e-5)
    with pytest.raises(NotImplementedError, match="takes floating-point tensors; got int8"):
        run(builtin.ConvBias(), IMAGE.astype("int8"), w.astype("int8"))

    x, dy = IMAGE.astype("float64"), RNG.uniform(-1, 1, IMAGE.shape)
    axes, n = (0, 2, 3), IMAGE.size / 3
    mean, rstd = x.mean(axes, keepdims=True), 1 / np.sqrt(x.var(axes, keepdims=True) + 1e-5)
    scale = np.float32([1.5, 0.5, 2]).reshape(1, 3, 1, 1)
    hat = (x - mean) * rstd
    dbias, dscale = dy.sum(axes, keepdims=True), (dy * hat).sum(axes, keepdims=True)
    wanted = (dscale, dbias, scale * rstd * (dy - dbias / n - hat * dscale / n))
    inputs = [a.astype("float32") for a in (x, dy, mean, rstd, scale)]
    for got, want in zip(run(builtin.BatchNormBackward("DIM_1C11"), *inputs, np.zeros(0, "uint8")), wanted):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)

    region = (RNG.uniform(size=(2, 6, 6)) > 0.5).astype("int32")
    weight, args = RNG.uniform(-1, 1, (3, 1, 1, 3, 3)).astype("float32"), {"pad_h": 1, "pad_w": 1, "sparse": "GROUP"}
    y = run(builtin.RegionRestrictedConvolution(**args), IMAGE, weight, region, region)[0]
    dy = RNG.uniform(-1, 1, y.shape).astype("float32")
    dx = run(builtin.RegionRestrictedConvolutionBackwardData(**args), weight, dy, region, region)[0]
    np.testing.assert_allclose((dx * IMAGE).sum(), (dy * y).sum(), rtol=1e-4)  # linear in x: its own adjoint


@pytest.mark.parametrize("mask", ["none", "causal", "given"])
def test_multi_head_attention(mask: str) -> None:
    n, length, width, heads = 2, 3, 8, 2
    q, k, v = RNG.uniform(-1, 1, (3, n, length, width)).astype("float32")
    packed = RNG.uniform(-1, 1, 4 * width * width + 4 * width).astype("float32")
    hidden = {"none": None, "causal": np.triu(np.full((length, length), -np.inf, "float32"), 1)}
    hidden["given"] = RNG.uniform(-1, 1, (n * heads, length, length)).astype("float32")
    kind = {"none": "NO_MASK", "causal": "DEFAULT_MASK", "given": "USER_DEFINED_MASK"}[mask]
    op = builtin.MultiHeadAttn(
        heads,
        **dict.fromkeys(("embeding_size", "k_size", "v_size"), width),
        **dict.fromkeys(("qproj_size", "kproj_size", "vproj_size", "oproj_size"), width),
        **dict.fromkeys(("qbias", "kbias", "vbias", "obias"), True),
        sm_scaler=0.3,
        attn_mask_type=kind,
        tensor_combination_type="ONLY_MASK" if mask == "given" else "NONE",
    )
    out, seen, _, _ = run(op, q, k, v, packed, *([hidden[mask]] if mask == "given" else []))

    ws = packed[: 4 * width * width].reshape(4, width, width).astype("float64")
    bs = packed[4 * width * width :].reshape(4, width)

    def split(x, i):
        return (x @ ws[i] + bs[i]).reshape(n, length, heads, -1).transpose(0, 2, 1, 3)

    scores = split(q, 0) @ split(k, 1).transpose(0, 1, 3, 2) * 0.3
    if hidden[mask] is not None:
        scores = scores + hidden[mask].reshape(-1, heads if mask == "given" else 1, length, length)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    joined = (weights @ split(v, 2)).transpose(0, 2, 1, 3).reshape(n, length, width)
    np.testing.assert_allclose(seen, weights.reshape(n * heads, length, length), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(out, joined @ ws[3] + bs[3], rtol=1e-4, atol=1e-5)
    with pytest.raises(NotImplementedError, match="takes no bias_k"):
        run(builtin.MultiHeadAttn(add_zero_attn=True), q, k, v, packed)


def test_gradients_and_traces_go_through() -> None:
    x = tensor(X)
    gm = GradManager().attach([x])
    with gm:
        (y,) = apply(builtin.Elemwise("mul"), x, x)
        gm.backward(apply(builtin.Reduce("sum"), y)[0])
    np.testing.assert_allclose(x.grad.numpy(), 2 * X, rtol=1e-6)

    @trace(symbolic=True)
    def f(x):
        (y,) = apply(builtin.Elemwise("FUSE_ADD_RELU"), x, x)
        return apply(builtin.Subtensor([(0, True, False, False, False)]), y, tensor(1, is_const=True))[0]

    for _ in range(3):
        np.testing.assert_array_equal(f(tensor(X)).numpy(), np.maximum(X + X, 0)[1:])


def test_random_handles() -> None:
    from megengine.core._imperative_rt import ops as rt

    a, b = rt.new_rng_handle(mge.tensor(1).device, 7), rt.new_rng_handle(mge.tensor(1).device, 7)
    shape = tensor([100])
    x, y = (apply(builtin.UniformRNG(handle=h), shape)[0].numpy() for h in (a, b))
    np.testing.assert_array_equal(x, y)
    assert not np.array_equal(x, apply(builtin.UniformRNG(handle=a), shape)[0].numpy())
    assert rt.get_rng_handle_compnode(a) == "xpux"
    rt.delete_rng_handle(a)
    with pytest.raises(RuntimeError, match="no generator"):
        apply(builtin.GaussianRNG(handle=a), shape)
    rt.set_global_rng_seed(5)
    assert rt.get_global_rng_seed() == 5
    kept, mask = apply(builtin.Dropout(0.5), F.ones(100))
    assert set(np.unique(kept.numpy())) == {0.0, 2.0} and mask.size >= 13


#: Ops that need hardware or vendors' libraries, or several processes.
WITHOUT_RULE = {
    *("AtlasRuntime", "CambriconRuntime", "MagicMindRuntime", "TensorRTRuntime", "ExternOpr", "NvOf"),
    *("CollectiveComm", "RemoteRecv", "RemoteSend"),
}


def test_every_op_has_a_rule_or_is_known_to_have_none() -> None:
    assert {name for name in OPS if op_class_info(name)["absent"]} == WITHOUT_RULE
