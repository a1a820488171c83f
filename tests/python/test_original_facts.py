"""Facts of MegEngine 1.13 that programs meet, measured there: numbers, names and what is accepted."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megenginelite as lite
from megengine import Tensor
from megengine.autodiff import Function, GradManager
from megengine.core import _core
from megengine.core.autodiff.grad import Grad
from megengine.core.ops import builtin
from megengine.data import DataLoader, StreamSampler
from megengine.data.dataset import StreamDataset
from megengine.data.transform import Transform
from megengine.jit import SublinearMemoryConfig, trace

# ---- topk


@pytest.mark.parametrize("shape", [(6,), (3, 5)])
@pytest.mark.parametrize("k", [-1, -2, -4, 1, 3])
@pytest.mark.parametrize("descending, kth_only, no_sort", itertools.product((True, False), repeat=3))
def test_topk_of_a_negative_k_turns_the_direction(shape, k, descending, kth_only, no_sort):
    x = np.random.RandomState(0).permutation(int(np.prod(shape))).reshape(shape).astype("int32")
    falling = descending == (k > 0)
    order = np.argsort(-x if falling else x, axis=-1)[..., : abs(k)]
    for fn in (F.topk, trace(symbolic=True, without_host=True)(F.topk), trace(symbolic=False)(F.topk)):
        for _ in range(2):
            y, i = fn(Tensor(x), k, descending, kth_only, no_sort)
            if kth_only:
                assert i.tolist() == order[..., -1].tolist()
                assert y.tolist() == np.take_along_axis(x, order, -1)[..., -1].tolist()
            else:
                want = np.sort(order, -1) if no_sort else order
                got = np.sort(i.numpy(), -1) if no_sort else i.numpy()
                assert got.tolist() == want.tolist()
                assert y.tolist() == np.take_along_axis(x, i.numpy(), -1).tolist()


def test_topk_warns_when_k_is_larger_than_a_row():
    for k, want in ((5, [3.0, 2.0, 1.0]), (-5, [1.0, 2.0, 3.0])):
        with pytest.warns(RuntimeWarning, match=rf"topk: k is {k}, but the rows of \(3,\) have 3 elements"):
            assert F.topk(Tensor([1.0, 3.0, 2.0]), k)[0].tolist() == want
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        F.topk(Tensor([1.0, 3.0, 2.0]), 3)
    with pytest.raises(ValueError, match="k must not be 0"):
        F.topk(Tensor([1.0]), 0)


# ---- Function


class Scale(Function):
    """x * factor, where factor is kept on the instance by forward."""

    def __init__(self, extra: tuple = ()) -> None:
        self.extra = extra

    def forward(self, x: Tensor, factor: Tensor) -> Tensor:
        self.kept = (x, factor)
        return x * factor

    def backward(self, dy: Tensor) -> tuple:
        x, factor = self.kept
        return (dy * factor, dy * x, *self.extra)


def test_gradients_past_the_inputs_must_be_none():
    for extra in ((None,), (None, None)):
        x, f = Tensor([2.0]), Tensor([3.0])
        with GradManager().attach([x, f]) as gm:
            gm.backward(Scale(extra)(x, f))
        assert (x.grad.item(), f.grad.item()) == (3.0, 2.0)
    for extra in ((Tensor([1.0]),), (None, Tensor([1.0]))):
        x = Tensor([2.0])
        with GradManager().attach(x) as gm, pytest.raises(ValueError, match="returned .* gradients for 2 inputs"):
            gm.backward(Scale(extra)(x, x * 2))


def test_wrong_shapes_from_backward_are_refused():
    class Wrong(Function):
        def __init__(self, shape: tuple[int, ...]) -> None:
            self.shape = shape

        def forward(self, x: Tensor) -> Tensor:
            return x * 1

        def backward(self, dy: Tensor) -> Tensor:
            return F.ones(self.shape)

    for shape in ((1,), (3, 2), (6,), (2, 3, 1), ()):
        x = Tensor(np.zeros((2, 3), "float32"))
        text = r"Function.backward: gradient 0 has shape .* but input 0 has \[2,3\]"
        with GradManager().attach(x) as gm, pytest.raises(ValueError, match=text):
            gm.backward(Wrong(shape)(x).sum())
    for given, back in (((), (1,)), ((1,), ()), ((1, 1), (1,))):  # one element is one element
        x = Tensor(np.zeros(given, "float32"))
        with GradManager().attach(x) as gm:
            gm.backward(Wrong(back)(x).sum())
        assert x.grad.shape == given


@pytest.mark.parametrize("mode", [lambda f: f, trace(symbolic=False), trace(symbolic=True, without_host=True)])
def test_one_instance_of_a_function_may_be_called_twice(mode):
    x = Tensor([2.0])
    gm = GradManager().attach(x)

    @mode
    def step() -> Tensor:
        with gm:
            fn = Scale()
            a = fn(x, Tensor([3.0]))
            b = fn(a, Tensor([5.0]))
            fn(x.detach(), Tensor([7.0]))  # nobody asks for its gradient, but it keeps something, too
            gm.backward(a + b)
        return x.grad

    for _ in range(3):
        x.grad = None
        assert step().item() == 3.0 + 15.0


def test_what_backward_notes_on_the_instance_stays_there():
    class Notes(Function):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2

        def backward(self, dy: Tensor) -> Tensor:
            self.seen = dy.item()
            return dy * 2

    fn, x = Notes(), Tensor([1.0])
    for _ in range(2):
        with GradManager().attach(x) as gm:
            gm.backward(fn(x) * 4)
        assert fn.seen == 4.0
    import pickle

    assert pickle.loads(pickle.dumps(Scale())).extra == ()


# ---- autodiff


def test_dy_is_broadcast_where_it_fits():
    def grad(shape: tuple[int, ...]) -> list[float]:
        x = Tensor([1.0, 2.0])
        with GradManager().attach(x) as gm:
            gm.backward(x * 2, F.ones(shape))
        return x.grad.tolist()

    assert grad((1,)) == grad(()) == [2.0, 2.0]
    with pytest.raises(ValueError, match=r"backward: y has shape \[2\] but dy \[3\]"):
        grad((3,))


def test_integers_have_gradients_among_themselves():
    from megengine.core._imperative_rt.core2 import apply

    def grads(fn, *arrays: np.ndarray) -> list:
        xs = [Tensor(a) for a in arrays]
        got: dict[int, Tensor] = {}
        with Grad() as g:
            for i, x in enumerate(xs):
                g.wrt(x, callback=lambda v, i=i: got.__setitem__(i, v))
            y = fn(*xs)
            g(y, F.ones_like(y))
        assert all(v.dtype == y.dtype for v in got.values())
        return [got[i].tolist() if i in got else None for i in range(len(xs))]

    x, v = np.array([[1, 2], [3, 4]]), np.array([9, 9])
    index = Tensor([0, 1])
    assert grads(lambda a, b: apply(builtin.IndexingSetOneHot(axis=1), a, index, b)[0], x, v) == [
        [[0, 1], [1, 0]],
        [1, 1],
    ]
    assert grads(lambda a: apply(builtin.IndexingOneHot(axis=1), a, index)[0], x) == [[[1, 0], [0, 1]]]
    assert grads(lambda a: a[:, 1] * 3, x) == [[[0, 3], [0, 3]]]
    assert grads(lambda a, b: F.concat([a.reshape(-1), b])[1:], x, v) == [[[0, 1], [1, 1]], [1, 1]]
    t, seen = Tensor([2, 3]), []
    with Grad().wrt(t, callback=seen.append) as g:  # integers do not reach floats
        y = (t * 0.5).sum()
        g(y, F.ones_like(y))
    assert not seen


# ---- functions


def ctc(steps: int, classes: int, label: list[int]) -> Tensor:
    p = Tensor(np.full((steps, 1, classes), 1 / classes, "float32"))
    return F.nn.ctc_loss(p, Tensor([steps]), Tensor([label]), Tensor([len(label)]), reduction="sum")


@pytest.mark.parametrize(
    "steps, classes, label, want",
    [(2, 3, [1, 1], 87.04887), (3, 3, [1, 1, 1], 87.45433), (4, 3, [1, 1, 1], 87.859795), (1, 2, [1, 1], 86.6434),
     (5, 4, [2, 2, 2, 2], 89.415985)],
)  # fmt: skip
def test_ctc_loss_of_an_impossible_alignment_is_finite(steps, classes, label, want):
    np.testing.assert_allclose(ctc(steps, classes, label).item(), want, rtol=1e-6)
    _core.set_option("primitives_only", 1)
    try:
        np.testing.assert_allclose(ctc(steps, classes, label).item(), want, rtol=1e-6)
    finally:
        _core.set_option("primitives_only", 0)


def test_a_batch_with_an_impossible_alignment_stays_trainable():
    p = Tensor(np.full((2, 2, 3), 1 / 3, "float32"))
    with GradManager().attach(p) as gm:
        gm.backward(F.nn.ctc_loss(p, Tensor([2, 2]), Tensor([[1, 1], [1, 2]]), Tensor([2, 2])))
    assert np.isfinite(p.grad.numpy()).all() and p.grad.numpy()[:, 0].any() == 0 and p.grad.numpy()[:, 1].any()
    zero = Tensor(np.array([[[0.0, 1.0, 0.0]]], "float32"))
    assert np.isfinite(F.nn.ctc_loss(zero, Tensor([1]), Tensor([[2]]), Tensor([1])).item())


def test_deformable_psroi_pooling_takes_rows_that_are_left_over():
    rng = np.random.RandomState(0)
    x, trans = Tensor(rng.rand(1, 5, 7, 7).astype("float32")), rng.rand(24, 2, 7, 7).astype("float32")
    args = (Tensor([[0.0, 1.0, 1.0, 5.0, 5.0]]),), (False, 7, 7, 7, 4, 1.0, 0.1)
    many = F.deformable_psroi_pooling(x, *args[0], Tensor(trans), *args[1])
    one = F.deformable_psroi_pooling(x, *args[0], Tensor(trans[:1]), *args[1])
    assert many.shape == (1, 5, 7, 7) and many.numpy().tobytes() == one.numpy().tobytes()
    two = Tensor([[0.0, 1.0, 1.0, 5.0, 5.0]] * 2)
    with pytest.raises(ValueError, match="for 2 rois"):
        F.deformable_psroi_pooling(x, two, Tensor(trans[:1]), *args[1])


def test_warp_affine_of_nhwc_rounds_positions():
    x = np.arange(27, dtype="float32").reshape(1, 3, 3, 3)
    mat = np.array([[[1.26666667, 0.6, -83.33333333], [-0.33333333, 1, 66.66666667]]], "float32")
    want = (
        [[7.875, 8.875, 9.875], [8.90625, 9.90625, 10.90625]],
        [[18.75, 19.75, 20.75], [14.90625, 15.90625, 16.90625]],
    )
    for fn in (F.vision.warp_affine, trace(symbolic=True)(F.vision.warp_affine)):
        assert fn(Tensor(x), Tensor(mat), (2, 2), border_mode="wrap").numpy()[0].tolist() == list(want)
    t, m = Tensor(x), Tensor(mat)
    with GradManager().attach([t, m]) as gm:
        gm.backward(F.vision.warp_affine(t, m, (2, 2), border_mode="wrap").sum())
    assert np.abs(m.grad.numpy()).sum() > 0 and t.grad.numpy().sum() == pytest.approx(12, rel=1e-5)


def _seen(x: np.ndarray, mat: np.ndarray, height: int, width: int, parts: int | None) -> np.ndarray:
    """(H, W, C) through a 3 x 3 matrix in float64, 0.5 around it; positions in steps of 1 / ``parts``."""
    want = np.zeros((height, width, x.shape[2]))
    for i, j in itertools.product(range(height), range(width)):
        place = mat.astype("float64") @ [j, i, 1]
        px, py = place[:2] / place[2] if parts is None else np.rint(place[:2] / place[2] * parts) / parts
        x0, y0 = int(np.floor(px)), int(np.floor(py))
        for dy, dx in itertools.product((0, 1), (0, 1)):
            weight = (py - y0 if dy else 1 - py + y0) * (px - x0 if dx else 1 - px + x0)
            inside = 0 <= y0 + dy < x.shape[0] and 0 <= x0 + dx < x.shape[1]
            want[i, j] += weight * (x[y0 + dy, x0 + dx] if inside else 0.5)
    return want


@pytest.mark.parametrize("channels", [1, 3, 4, 5])
def test_warps_of_nhwc_go_in_steps_for_up_to_three_channels(channels):
    x = np.random.RandomState(channels).rand(1, 8, 10, channels).astype("float32")
    mat = np.array([[[1, 0.1, 0.3], [-0.05, 0.9, 0.2], [0.001, 0, 1]]], "float32")
    parts = 32 if channels <= 3 else None
    for fn in (F.vision.warp_perspective, trace(symbolic=True)(F.vision.warp_perspective)):
        got = fn(Tensor(x), Tensor(mat), (7, 9), border_mode="constant", border_val=0.5, format="NHWC").numpy()
        np.testing.assert_allclose(got[0], _seen(x[0], mat[0], 7, 9, parts), atol=1e-5)
    if channels > 3:  # those of warp_affine are rounded otherwise: the test above
        affine = np.concatenate([mat[0, :2], [[0, 0, 1]]])
        got = F.vision.warp_affine(Tensor(x), Tensor(mat[:, :2]), (7, 9), border_mode="constant", border_val=0.5)
        np.testing.assert_allclose(got.numpy()[0], _seen(x[0], affine, 7, 9, None), atol=1e-5)


def test_sliding_window_transpose_adds_window_after_window():
    rng = np.random.RandomState(1)
    (kh, kw), (sh, sw), (dh, dw), (ph, pw), (height, width) = (3, 2), (2, 1), (1, 2), (1, 0), (6, 7)
    full = np.zeros((2, 3, height + 2 * ph, width + 2 * pw), "float32")
    oh, ow = (full.shape[2] - dh * (kh - 1) - 1) // sh + 1, (full.shape[3] - dw * (kw - 1) - 1) // sw + 1
    x = (rng.rand(2, 3, oh, ow, kh, kw) * 10.0 ** rng.randint(-6, 6, (2, 3, oh, ow, kh, kw))).astype("float32")
    for i, j in itertools.product(range(oh), range(ow)):
        rows, columns = slice(i * sh, i * sh + dh * (kh - 1) + 1, dh), slice(j * sw, j * sw + dw * (kw - 1) + 1, dw)
        full[:, :, rows, columns] += x[:, :, i, j]
    got = F.sliding_window_transpose(Tensor(x), (height, width), (kh, kw), (ph, pw), (sh, sw), (dh, dw))
    assert got.numpy().tobytes() == full[:, :, ph : ph + height, pw : pw + width].tobytes()


def test_a_float_tensor_is_no_shape():
    for fn in (lambda s: F.reshape(F.zeros(6), s), lambda s: F.broadcast_to(Tensor([1.0]), s), F.zeros):
        with pytest.raises(RuntimeError, match="sizes must be integers; got a tensor of float32"):
            fn(Tensor([2.0, 3.0]))


def test_simulated_errors_come_late_or_at_once():
    old = mge.config.async_level
    try:
        for level in (1, 2):
            mge.config.async_level = level
            x = F.utils._simulate_error()
            with pytest.raises(mge.core._imperative_rt.core2.AsyncError) as e:
                x.numpy()
            assert isinstance(e.value.__cause__, RuntimeError)
            assert (Tensor([1.0]) + 1).item() == 2.0
        mge.config.async_level = 0
        with pytest.raises(RuntimeError):
            F.utils._simulate_error()
        assert (Tensor([1.0]) + 1).item() == 2.0
    finally:
        mge.config.async_level = old


def test_generators_take_tensors_by_any_name_of_their_device():
    for device in ("xpu0", "cpu0", "xpux"):
        rng = mge.random.RNG(seed=1, device=device)
        x = Tensor([1, 2, 3], device="xpux")
        assert sorted(rng.permutation(x).tolist()) == [1, 2, 3]
        rng.shuffle(x)
        assert sorted(x.tolist()) == [1, 2, 3]
    with pytest.raises(AssertionError, match="cpu1"):
        mge.random.RNG(seed=1, device="cpu1").permutation(x)


class _Numbers(StreamDataset):
    def __init__(self) -> None: ...

    def __iter__(self):
        yield from np.arange(6, dtype="float32")


class _Failing(Transform):
    def apply(self, input):
        raise RuntimeError("a bad transform")


@pytest.mark.parametrize("parallel", [True, False])
def test_errors_of_transforms_name_the_worker(parallel):
    loader = DataLoader(_Numbers(), StreamSampler(2), transform=_Failing(), num_workers=2, parallel_stream=parallel)
    with pytest.raises(RuntimeError, match="(?s)Caught RuntimeError in DataLoader worker process.*a bad transform"):
        list(loader)


def test_private_names_that_programs_use():
    from megengine.core._imperative_rt import Logger, OperatorNodeConfig
    from megengine.core._wrap import Device
    from megengine.core.tensor import amp
    from megengine.functional.elemwise import Elemwise

    assert Elemwise is builtin.Elemwise and Elemwise.Mode.ADD == "ADD" and F.elemwise.Elemwise.Mode is Elemwise.Mode
    assert OperatorNodeConfig(name="a").name == "a" and not amp._enabled
    old = Logger.set_log_level(Logger.LogLevel.Error)
    assert Logger.set_log_level(old) == Logger.LogLevel.Error
    assert Device("cpu0").to_c() == "cpu0" and Device(Device()).logical_name == Device(None).logical_name
    assert Tensor([1.0], device=Device("cpu1").to_c()).device == "cpu1" and hash(Device("cpu0")) == hash(Device("cpu0"))
    with pytest.raises(AttributeError, match="elemwise"):
        F.elemwise.NoSuchThing  # noqa: B018


# ---- what is accepted, and which errors it raises


def test_errors_of_indices_are_those_of_numpy_and_of_the_original():
    x = Tensor(np.zeros((2, 3), "float32"))
    for wrong in ((0, 0, 0), (2,), (Ellipsis, -4)):
        for kind in (IndexError, RuntimeError):
            with pytest.raises(kind):
                x[wrong]
    for index in (0, (0, slice(1, None)), [0, 1], Tensor([True, False])):
        for kind in (ValueError, RuntimeError):
            with pytest.raises(kind, match="cannot copy tensor with shape"):
                x[index] = Tensor(np.ones((4, 5), "float32"))
    assert x.numpy().tolist() == [[0.0] * 3] * 2


def test_the_parts_of_complex_numbers_broadcast():
    column, row = np.array([[1.0], [2.0]], "float32"), np.array([3.0, 4.0], "float32")
    np.testing.assert_array_equal(F.complex(Tensor(column), Tensor(row)).numpy(), column + 1j * row)
    np.testing.assert_array_equal(F.complex(Tensor(row), 1.0).numpy(), row + 1j)
    np.testing.assert_array_equal(F.complex(1.0, Tensor(row)).numpy(), 1 + 1j * row)


def test_an_index_of_one_hot_may_be_a_list():
    assert F.indexing_one_hot(Tensor([[1.0, 2.0], [3.0, 4.0]]), [1, 0]).tolist() == [2.0, 3.0]


def test_a_model_that_is_not_there_is_an_error_of_both_kinds(tmp_path):
    for kind in (FileNotFoundError, RuntimeError):
        with pytest.raises(kind, match=r"LiteNetwork.load: No such file or directory: .*none\.mge"):
            lite.LiteNetwork().load(tmp_path / "none.mge")


def test_sublinear_config_keeps_its_megabytes():
    assert (SublinearMemoryConfig(lb_memory_mb=3).lb_memory_mb, SublinearMemoryConfig().lb_memory_mb) == (3, 0)
    with pytest.raises(AssertionError, match="lb_memory_mb must be greater or equal to zero; got -1"):
        SublinearMemoryConfig(lb_memory_mb=-1)
