"""Facts of the API that programs written for MegEngine rely on, with NumPy as the judge where it can be."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.random as rand
from megengine import Parameter, Tensor, tensor
from megengine.autodiff import GradManager
from megengine.core._core import AsyncError
from megengine.core.tensor import dtype as dt
from megengine.jit import trace

X = np.arange(12, dtype="float32").reshape(3, 4) - 4


def same(got: Tensor, want: np.ndarray) -> None:
    assert got.shape == want.shape, (got.shape, want.shape)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-6)


def grad_of(fn, x: np.ndarray) -> np.ndarray:
    t = tensor(x)
    gm = GradManager().attach([t])
    with gm:
        gm.backward(fn(t).sum())
    return t.grad.numpy()


# ---- tensors


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
    with pytest.raises(TypeError, match="^the operand is None and is not supported.$"):
        tensor([1.0]) + None


def test_devices_compare_with_names() -> None:
    assert tensor([1]).device == "xpux" and str(tensor([1], device="cpu0:1").device) == "cpu0:1"


def test_numpy_functions_and_operands() -> None:
    x = tensor(X, device="cpu0:1")
    for got in (np.sin(x), np.add(x, 1), X + x, np.float32(2) * x):
        assert isinstance(got, Tensor) and got.device == "cpu0:1"
    same(np.sin(x), np.sin(X))
    h = tensor(np.ones(3, "float16"))
    for got in (h + tensor(np.ones(3, "float32")), h + np.ones(3, "float32"), np.ones(3, "float32") - h):
        assert got.dtype == np.float32 and isinstance(got, Tensor)
    assert (tensor([1, 2, 3]) // [1, 2, 1]).tolist() == [1, 1, 3]
    assert (tensor([1, 2]) / 2).dtype == np.float32 and (tensor([-7, 7]) // 2).tolist() == [-4, 3]
    u = tensor(np.array([3, 4], "uint16"))
    assert (u * u).dtype == np.uint16


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


def test_scalars_stay_scalars() -> None:
    s = tensor(2.0)
    for y in (
        s.sum(),
        s + 1,
        s.astype("int32"),
        s.transpose(),
        F.where(tensor(True), s, s),
        F.squeeze(tensor([[1.0]])),
    ):
        assert y.shape == () and y.ndim == 0
    assert tensor([[1, 2]]).sum(axis=1).ndim == 1
    assert rand.permutation(tensor(7)).shape == (1,)


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


@pytest.mark.parametrize("shape", [(0,), (2, 0, 3)])
def test_empty_tensors_everywhere(shape) -> None:
    x = tensor(np.zeros(shape, "float32"))
    skip = {"logical_and", "logical_or", "logical_xor", "logical_not", "left_shift", "right_shift", "clip"}
    binary = """add sub mul div floor_div pow mod logaddexp maximum minimum atan2 equal not_equal less less_equal
    greater greater_equal""".split()
    for name in F.elemwise.__all__:
        if name in skip:
            continue
        fn = getattr(F.elemwise, name)
        got = fn(x, x) if name in binary else fn(x)
        assert got.shape == shape, name
        if name in binary:
            assert fn(x, 1.0).shape == shape
    assert x.sum().item() == 0 and x.prod().item() == 1
    assert F.matmul(tensor(np.zeros((2, 0))), tensor(np.zeros((0, 3)))).tolist() == [[0] * 3] * 2
    assert F.roll(x, 1).shape == shape and F.reshape(tensor(np.zeros((10, 0))), (0,)).shape == (0,)
    assert F.reshape(tensor(np.zeros((100, 0, 1))), (100, 0, 10)).shape == (100, 0, 10)
    assert rand.uniform(size=(0, 2)).shape == (0, 2) and rand.permutation(0).shape == (0,)
    for v in F.cond_take(x > 0, x):
        assert v.shape == (0,)


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


# ---- shapes


def test_split() -> None:
    assert [p.shape[0] for p in F.split(F.arange(20), 3)] == [7, 7, 6]
    with pytest.raises(ValueError, match=r"Invalid nsplits_or_secions: \[3, 2, 5\]"):
        F.split(F.arange(20), [3, 2, 5])
    with pytest.raises(ValueError):
        F.split(F.arange(2), 4)


def test_broadcast_to() -> None:
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


# ---- indexing


@pytest.mark.parametrize("key", [
    np.s_[None, 0], np.s_[[0, 2], 1:], np.s_[..., [1, 1, 0]], np.s_[[0, 1], [1, 2]], np.s_[::-1, ::-2], np.s_[[]],
    np.s_[np.array([[0, 1], [2, 0]])], np.s_[[True, False, True]], np.s_[:, [True, False, True, True]], np.s_[100:200],
    np.s_[-10:2:2], np.s_[None, [0, 1], None, 1], np.s_[[0, 1], None, [1, 2]], np.s_[X > 0], np.s_[-1, ..., -1],
    np.s_[np.array([True, False, True]), ..., 1], np.s_[np.array([[-1], [0]]), np.array([0, 1])], np.s_[True],
    np.s_[False],
])  # fmt: skip
def test_index_forms_agree_with_numpy(key) -> None:
    same(tensor(X)[key], X[key])
    y, want = tensor(X), X.copy()
    y[key] = 7
    want[key] = 7
    same(y, want)


def test_index_errors() -> None:
    x = tensor(X)
    for key in (np.s_[..., ...], np.s_[0, 0, 0], np.s_[X[:2] > 0]):
        with pytest.raises(IndexError):
            x[key]
    with pytest.raises(ValueError):
        x[:] = np.ones(3)
    b = tensor(np.ones((2, 2), bool))
    b[np.array([[True, False], [False, True]])] = False
    assert b.tolist() == [[False, True], [True, False]]
    assert x[tensor(0) : tensor(2), tensor(1)].tolist() == X[0:2, 1].tolist()


# ---- dtypes


def test_quantised_dtype_arguments() -> None:
    for bad in ((0.05, 0.233), (0.02, 777), (0.02, -1)):
        with pytest.raises(ValueError):
            dt.quint8(*bad)
    with pytest.raises(ValueError):
        dt.quint4(0.02, 18)


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


# ---- functions


def test_losses() -> None:
    label = np.array([0, 1, 2], "int32")
    base = F.nn.cross_entropy(tensor(X), tensor(label)).item()
    assert F.nn.cross_entropy(tensor(X), label, axis=-1).item() == base
    for bad in ("MEAN", "max"):
        with pytest.raises(ValueError):
            F.nn.cross_entropy(tensor(X), label, reduction=bad)
    smooth = F.nn.cross_entropy(tensor(X), label, label_smooth=0.1, reduction="none").mean().item()
    assert smooth == pytest.approx(F.nn.cross_entropy(tensor(X), label, label_smooth=0.1).item(), rel=1e-6)
    wide = F.nn.cross_entropy(tensor([[150.0, -150.0]]), tensor([1]))
    assert wide.item() == pytest.approx(300)
    assert F.nn.hinge_loss(tensor([[1.0, 2.0], [0.5, 0.5]]), tensor([[-1.0, -1.0], [1.0, 1.0]])).item() == 3.0


def test_dropout_mask_is_the_gradient_mask() -> None:
    x = tensor(np.ones((100,), "float32"))
    gm = GradManager().attach([x])
    with gm:
        y = F.dropout(x, 0.4)
        gm.backward(y.sum())
    np.testing.assert_array_equal(x.grad.numpy(), y.numpy())
    assert F.dropout(tensor(1.0), 0.5).shape == ()
    mge.random.seed(3)
    a = F.dropout(x, 0.4).numpy()
    mge.random.seed(3)
    np.testing.assert_array_equal(F.dropout(x, 0.4).numpy(), a)


def test_pads_and_pools() -> None:
    for mode, np_mode in (("CONSTANT", "constant"), ("EDGE", "edge"), ("REFLECT", "reflect"), ("replicate", "edge")):
        same(F.nn.pad(tensor(X), ((1, 2),), mode), np.pad(X, ((1, 2), (0, 0)), np_mode))
    image = np.arange(16, dtype="float32").reshape(1, 1, 4, 4)
    same(F.adaptive_max_pool2d(tensor(image), 2), image[:, :, 1::2, 1::2])
    assert grad_of(lambda x: F.adaptive_max_pool2d(x, 2), image).sum() == 4


def test_ones_eye_full_take_tensors() -> None:
    assert F.ones(tensor(2)).shape == (2,) and F.ones(tensor([2, 3])).shape == (2, 3)
    assert F.eye([10, 20]).shape == (10, 20) and F.eye(tensor([30])).shape == (30, 30) and F.eye((2, 3)).shape == (2, 3)
    assert F.eye(2, dtype="bool").dtype == np.bool_
    for v in (1, 1.0, True):
        assert F.full((2,), v).dtype == tensor(v).dtype
    assert F.one_hot(tensor([[0, 1]]), 3).dtype == np.int32


def test_devices_are_not_mixed() -> None:
    a, b = tensor([1.0], device="cpu0"), tensor([1.0], device="cpu0:1")
    for fn in (F.concat, F.stack):
        with pytest.raises((ValueError, RuntimeError)):
            fn([a, b])
        assert fn([a, b], device="cpu0:1").device == "cpu0:1"


def test_conv_with_zero_strides_and_mixed_floats() -> None:
    base = np.random.RandomState(0).uniform(-1, 1, (1, 3, 5, 5)).astype("float32")
    wide = np.broadcast_to(base, (4, 3, 5, 5))
    w = np.ones((2, 3, 3, 3), "float32")
    same(F.conv2d(tensor(wide), tensor(w))[0], F.conv2d(tensor(base), tensor(w)).numpy()[0])
    half = F.conv2d(tensor(base.astype("float16")), tensor(w))
    want = F.conv2d(tensor(base.astype("float16").astype("float32")), tensor(w))
    assert half.dtype == np.float32
    np.testing.assert_array_equal(half.numpy(), want.numpy())


def test_batch_norm_statistics() -> None:
    bn = M.BatchNorm2d(3)
    x = np.random.RandomState(1).normal(2, 3, (4, 3, 5, 5)).astype("float32")
    bn(tensor(x))
    same(bn.running_var.reshape(-1), 0.9 + 0.1 * x.var((0, 2, 3), ddof=1))
    bn.eval()
    a, b = bn(tensor(x)).numpy(), bn(tensor(x)).numpy()
    np.testing.assert_array_equal(a, b)
    bn.train()
    assert bn(tensor(np.zeros((0, 3, 2, 2)))).shape == (0, 3, 2, 2)


def test_transposed_convolution_sizes() -> None:
    x, w = tensor(np.zeros((2, 16, 5, 8), "float32")), tensor(np.zeros((16, 4, 3, 5), "float32"))
    y = F.conv_transpose2d(x, w, stride=(2, 1), padding=(4, 2), output_padding=(1, 0), dilation=(2, 1))
    assert y.shape == (2, 4, (5 - 1) * 2 - 8 + 2 * 2 + 1 + 1, 8 - 1 - 4 + 4 + 1)


def test_flip_and_rot90_are_nhwc() -> None:
    a = np.arange(24, dtype="float32").reshape(1, 2, 3, 4)
    same(F.vision.flip(tensor(a)), a[:, ::-1, ::-1])
    same(F.vision.rot90(tensor(a)), np.rot90(a, -1, (1, 2)))


def test_random_means_and_streams() -> None:
    for draw, mean, std in (
        (lambda g: g.uniform(2, 4, (10000,)), 3, 2 / 12**0.5),
        (lambda g: g.normal(3, 2, (10000,)), 3, 2),
        (lambda g: g.exponential(2.0, (10000,)), 0.5, 0.5),
    ):
        a, b = rand.RNG(seed=5, device="cpu0"), rand.RNG(seed=5, device="cpu0:1")
        x, y = draw(a), draw(b)
        assert y.device == "cpu0:1" and np.allclose(x.numpy(), y.numpy(), atol=1e-6)
        assert abs(x.numpy().mean() - mean) < 0.1 and abs(x.numpy().std() - std) < 0.1
    assert sorted(rand.permutation(1000).tolist()) == list(range(1000))


def test_memory_statistics_of_one_tensor() -> None:
    mge._full_sync()
    mge.coalesce_free_memory()
    mge.reset_max_memory_stats()
    before = mge.get_max_allocated_memory()
    x = F.arange(1024)
    mge._full_sync()
    assert 4096 <= mge.get_max_allocated_memory() - before <= 8192 and x.shape == (1024,)


def test_every_way_of_running_keeps_scalar_shapes() -> None:
    def f(x):
        return x.sum(), x.max(axis=0), (x > 0).astype("int32").sum(), x.mean() * 2

    want = [y.shape for y in f(tensor(X))]
    for symbolic in (False, True):
        g = trace(symbolic=symbolic)(f)
        for _ in range(3):
            got = g(tensor(X))
            assert [y.shape for y in got] == want
            for a, b in zip(got, f(tensor(X))):
                np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_async_level_is_checked() -> None:
    with pytest.raises(AssertionError):
        mge.config.async_level = 3
    with pytest.raises(RuntimeError):
        F.reshape(tensor(X), tensor([5, 5]))


# ---- what the functions take and refuse


def test_two_numbers_compare_as_python_does() -> None:
    assert F.equal(1, 1) is True and F.less(2, 1) is False and F.greater_equal(1, 2.0) is False
    np.testing.assert_array_equal(F.greater(np.array([1, 2]), tensor([2, 1])).numpy(), [False, True])
    assert F.not_equal([1, 2], tensor([1, 3])).numpy().tolist() == [False, True]


def test_activations_have_old_names_too() -> None:
    for name in ("relu", "relu6", "sigmoid", "hsigmoid", "hswish"):
        assert getattr(F.elemwise, name)(tensor(X)).numpy().tolist() == getattr(F, name)(tensor(X)).numpy().tolist()
        assert name not in F.elemwise.__all__


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "max", "min", "var", "std"])
def test_scalars_reduce_along_their_only_axis(name: str) -> None:
    for axis in (0, -1):
        got = getattr(F, name)(tensor(3.0), axis=axis)
        assert got.shape == () and got.item() == (0.0 if name in ("var", "std") else 3.0)
    with pytest.raises(IndexError):
        getattr(F, name)(tensor(3.0), axis=1)


def test_scalars_count_as_vectors_of_one() -> None:
    same(F.concat([tensor(1.0), tensor([2.0, 3.0]), tensor(4.0)]), np.array([1, 2, 3, 4], "float32"))
    same(F.diag(tensor(2.0)), np.array([[2.0]]))
    same(F.cumsum(tensor(2.0), 0), np.cumsum(np.float32(2.0), 0))
    assert F.transpose(tensor(2.0), ()).shape == () and F.softmax(tensor(2.0)).item() == 1.0
    np.testing.assert_array_equal(grad_of(lambda x: F.concat([x, x * 2]), np.array(3.0, "float32")), 3.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: F.sum(tensor(X), axis=(0, 2)),
        lambda: F.argmax(tensor(X), axis=2),
        lambda: F.swapaxes(tensor(X), 0, 2),
        lambda: F.split(tensor(X), 2, axis=2),
        lambda: F.repeat(tensor(X), 2, axis=2),
        lambda: F.roll(tensor(X), 1, axis=2),
        lambda: F.gather(tensor(X), 2, tensor([[0]])),
    ],
)
def test_a_missing_axis_is_every_kind_of_error(call) -> None:
    for kind in (AssertionError, IndexError, RuntimeError, ValueError):
        with pytest.raises(kind, match="axis 2 is out of range for a tensor with 2 dimensions"):
            call()


@pytest.mark.parametrize(
    ("kinds", "call"),
    [
        ((AssertionError, ValueError), lambda: F.pad(tensor(X), ((1, 1),), "wrap")),
        ((AssertionError, RuntimeError), lambda: F.pixel_shuffle(tensor(X), 2)),
        ((AssertionError, RuntimeError), lambda: F.pixel_shuffle(F.ones((4, 1, 1)), 0)),
        ((AssertionError,), lambda: F.conv1d(F.ones((1, 4)), F.ones((1, 1, 2)))),
        ((AssertionError,), lambda: F.conv1d(F.ones((1, 1, 4)), F.ones((1, 1, 2)), F.ones(1))),
        ((AssertionError,), lambda: F.repeat(tensor(X), 0)),
        ((AssertionError,), lambda: F.repeat(tensor(X), 1.5)),
        ((AssertionError,), lambda: F.vision.nms(F.ones((2, 5)), F.ones(2), 0.5)),
        ((AssertionError,), lambda: F.vision.roi_align(F.ones((1, 1, 4, 4)), F.ones((1, 5)), 2, mode="sum")),
        ((AssertionError,), lambda: F.vision.roi_pooling(F.ones((1, 1, 4, 4)), F.ones((1, 5)), 2, mode="sum")),
        ((AssertionError,), lambda: F.squeeze(F.ones((1, 1, 3)), (0, 0))),
        ((RuntimeError,), lambda: F.vision.remap(F.ones((1, 1, 4, 4)), F.ones((1, 2, 2, 2)), interp_mode="sum")),
        ((RuntimeError,), lambda: F.stack([F.ones(2), F.ones(3)])),
        ((RuntimeError,), lambda: F.topk(tensor(X), 0)),
        ((RuntimeError,), lambda: F.eye([1, 2, 3])),
        ((RuntimeError,), lambda: F.meshgrid(tensor(X))),
        ((RuntimeError,), lambda: F.meshgrid(F.ones(2), F.ones(2), indexing="yx")),
        ((RuntimeError,), lambda: F.dot(F.ones(2), F.ones(3))),
        ((RuntimeError,), lambda: F.linspace(0, 1, 2.5)),
        ((RuntimeError,), lambda: F.linspace(0, 1, -1)),
        ((RuntimeError,), lambda: F.arange(0, 5, 0)),
        ((RuntimeError,), lambda: F.tile(tensor(X), (2, -1))),
        ((RuntimeError,), lambda: F.cond_take(tensor([True]), F.ones(2))),
        ((RuntimeError,), lambda: F.gather(F.ones((2, 3)), 0, F.zeros((2, 4), dtype="int32"))),
        ((RuntimeError,), lambda: F.avg_pool2d(F.ones((1, 1, 4, 4)), 2, mode="sum")),
        ((ValueError,), lambda: F.scatter(F.zeros((2, 3)), 1, F.zeros((1, 4), dtype="int32"), F.ones((1, 4)))),
        ((TypeError,), lambda: F.zeros("a")),
        ((TypeError,), lambda: F.ones(None)),
        ((TypeError,), lambda: F.sum(tensor(X), axis=1.0)),
        ((TypeError,), lambda: F.where(np.array([True]), F.ones(1), F.ones(1))),
    ],
)
def test_broken_rules_have_the_kinds_of_error_programs_catch(kinds, call) -> None:
    for kind in kinds:
        with pytest.raises(kind):
            call()


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


def test_leaky_gradients_at_zero_are_those_of_positive_numbers() -> None:
    x = np.array([0.0, 3.0, -1.0], "float32")
    np.testing.assert_allclose(grad_of(lambda t: F.leaky_relu(t, 0.25), x), [1.0, 1.0, 0.25])
    np.testing.assert_allclose(grad_of(lambda t: F.prelu(t, tensor([0.25])), x), [1.0, 1.0, 0.25])


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_pools_of_bytes_are_bytes(dtype: str) -> None:
    x = np.array([[1, 2, 5, 6], [3, 5, 7, 8]], dtype).reshape(1, 1, 2, 4)
    assert F.max_pool2d(tensor(x), 2).dtype == np.dtype(dtype) == F.avg_pool2d(tensor(x), 2).dtype
    assert F.max_pool2d(tensor(x), 2).numpy().tolist() == [[[[5, 8]]]]
    assert F.avg_pool2d(tensor(x), 2).numpy().tolist() == [[[[3, 7]]]]  # 2.75 and 6.5: halves away from zero


def test_modes_in_capitals() -> None:
    x = F.arange(16).reshape(1, 1, 4, 4)
    same(F.avg_pool2d(x, 3, 2, 1, mode="AVERAGE"), F.avg_pool2d(x, 3, 2, 1, mode="average").numpy())
    same(F.vision.interpolate(x, (8, 8), mode="BILINEAR"), F.vision.interpolate(x, (8, 8)).numpy())


def test_errors_on_purpose() -> None:
    with pytest.raises(AsyncError) as caught:
        F.utils._simulate_error().numpy()
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize(
    ("fn", "value"),
    [
        (lambda x: F.concat([x, x]), 2.0),
        (lambda x: F.softmax(x), 2.0),
        (lambda x: F.transpose(x, ()), 2.0),
        (lambda x: F.sum(x, axis=0), 2.0),
        (lambda x: F.diag(x), 2.0),
        (lambda x: F.cumsum(x, 0), 2.0),
        (lambda x: F.leaky_relu(x), [-1.0, 0.0, 1.0]),
        (lambda x: F.norm(x, 0), [-1.0, 0.0, 1.0]),
        (lambda x: F.equal(x, 0), [-1.0, 0.0, 1.0]),
    ],
)
@pytest.mark.parametrize("symbolic", [False, True])
def test_traces_agree_on_small_shapes(fn, value, symbolic: bool) -> None:
    x = tensor(value)
    want, run = fn(x), trace(fn, symbolic=symbolic)
    for _ in range(3):
        got = run(x)
        assert got.shape == want.shape and got.dtype == want.dtype
        np.testing.assert_array_equal(got.numpy(), want.numpy())


# ---- arrays beside tensors


@pytest.mark.parametrize(
    "tensor, array, want",
    [
        ("float16", "uint8", "float16"),
        ("float16", "float32", "float32"),
        ("float16", "bool", "float16"),
        ("int32", "uint8", "int32"),
        ("int32", "bool", "int32"),
        ("int32", "float16", "float32"),
        ("int8", "uint8", "int16"),
        ("int8", "int16", "int16"),
        ("int16", "uint8", "int16"),
        ("uint8", "bool", "uint8"),
        ("bool", "int8", "float32"),
    ],
)
def test_an_array_takes_a_dtype_that_goes_with_the_tensor(tensor: str, array: str, want: str) -> None:
    # The results of MegEngine 1.13, for arrays and for NumPy scalars.
    x, a = mge.Tensor(np.array([1, 0], tensor)), np.array([1, 1], array)
    for other in (a, a[0]):
        for y in (x + other, F.maximum(x, other)):
            assert y.dtype == np.dtype(want)
            np.testing.assert_array_equal(y.numpy() > 0, [True, True])
    assert (x == a).dtype == np.bool_


def test_arrays_that_do_not_go_with_the_tensor() -> None:
    with pytest.raises(TypeError, match="sign"):
        mge.Tensor([1], dtype="uint8") + np.array([1], "int8")
    wide = mge.Tensor([1], dtype="int32") + np.array([2.5])  # float64, which MegEngine refuses
    assert wide.dtype == np.float32 and wide.item() == 3.5


def test_dtypes_by_numpys_codes() -> None:
    for code, name in (("f4", "float32"), ("<i4", "int32"), ("u1", "uint8"), ("single", "float32"), ("f2", "float16")):
        assert mge.Tensor([1], dtype=code).dtype == np.dtype(name)
        assert mge.Tensor([1.0]).astype(code).dtype == np.dtype(name)
    assert F.zeros(2, dtype="f4").dtype == np.float32 and F.full(2, 1, dtype="i4").dtype == np.int32
    with pytest.raises(TypeError, match="'nope' is not a dtype; known: bool"):
        mge.Tensor([1], dtype="nope")


def test_a_subclass_may_have_an_init() -> None:
    class Scaled(mge.Parameter):
        def __new__(cls, data: object, scale: float = 1.0) -> Scaled:
            return super().__new__(cls, data)

        def __init__(self, data: object, scale: float = 1.0) -> None:
            super().__init__(data)
            self.scale = scale

    x = Scaled([1.0, 2.0], scale=3.0)
    assert x.scale == 3.0 and x.numpy().tolist() == [1.0, 2.0]


def test_bool_arrays_in_logic_and_devices_beside_none() -> None:
    x = mge.Tensor([True, False])
    assert (x & np.array([True, True])).tolist() == [True, False]
    assert (x | np.array([True, True])).tolist() == [True, True]
    with pytest.raises(TypeError, match="two bool tensors"):
        x & 1
    assert (x.device == None) is False and x.device != None  # noqa: E711
