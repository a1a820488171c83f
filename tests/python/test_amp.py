"""amp: which dtype every op gives under autocast (as MegEngine 1.13 does), values, state, scaling of gradients."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Parameter, Tensor, amp, config
from megengine.autodiff import GradManager
from megengine.core import _core
from megengine.core._core import ops
from megengine.core._imperative_rt import core2
from megengine.core.tensor.dtype import is_bfloat16
from megengine.jit import trace

RNG = np.random.default_rng(0)


def full(*shape: int) -> Tensor:
    return Tensor(RNG.uniform(0.1, 0.9, shape).astype("float32"))


def half(*shape: int) -> Tensor:
    return full(*shape).astype("float16")


@pytest.fixture(autouse=True)
def _state_is_left_as_it_was():
    yield
    assert (amp.enabled, amp.low_prec_dtype, amp.high_prec_dtype) == (False, "float16", "float32")
    assert config._compute_mode == "default"
    assert _core.mode_word() == 0


# ---- the policy

HIGH = [
    *(getattr(F, n) for n in "exp log expm1 log1p acos asin atan cos sin tan asinh atanh sinh cosh sqrt".split()),
    lambda x: F.acosh(x + 1),
    F.softplus,
    F.nn.hsigmoid,
    F.logsigmoid,
    lambda x: x / x,
    lambda x: x / 2,
    lambda x: 2 / x,
    lambda x: x**2,
    lambda x: 2**x,
    lambda x: x**x,
    lambda x: F.div(x, x),
    lambda x: F.pow(x, x),
    lambda x: F.logsoftmax(x, 0),
    lambda x: F.logsumexp(x, 0),
    lambda x: F.logaddexp(x, x),
    lambda x: F.atan2(x, x),
    lambda x: F.std(x, 0),
    lambda x: F.norm(x),
    lambda x: x.mean(),
    lambda x: F.layer_norm(x, (4,), False),
    lambda x: F.nn.group_norm(x.reshape(1, 4, 1, 1), 2, False),
    lambda x: F.nn.cross_entropy(x.reshape(2, 2), Tensor([0, 1])),
]
SAME = [
    *(getattr(F, n) for n in "tanh sigmoid relu abs square floor hswish silu gelu leaky_relu relu6".split()),
    lambda x: x // x,
    lambda x: x + x,
    lambda x: x * 2,
    lambda x: x.sum(),
    lambda x: x.max(),
    lambda x: F.softmax(x, 0),
    lambda x: F.maximum(x, x),
    lambda x: F.clip(x, 0, 1),
    lambda x: F.dot(x, x),
    lambda x: F.max_pool2d(x.reshape(1, 1, 2, 2), 2),
    lambda x: F.nn.instance_norm(x.reshape(1, 1, 2, 2), False),
]
LOW = [
    lambda c: F.matmul(c(3, 4), full(4, 5)),
    lambda c: c(3, 4) @ full(4, 5),
    lambda c: F.matmul(c(2, 3, 4), c(2, 4, 5)),
    lambda c: F.matmul(c(3, 4), c(4)),
    lambda c: F.conv1d(c(1, 3, 5), full(2, 3, 3), full(1, 2, 1)),
    lambda c: F.conv2d(c(1, 3, 5, 5), full(2, 3, 3, 3), full(1, 2, 1, 1)),
    lambda c: F.conv_transpose2d(c(1, 3, 5, 5), full(3, 2, 3, 3), full(1, 2, 1, 1)),
    lambda c: F.linear(c(2, 3), full(4, 3)),
    lambda c: F.linear(c(2, 3), full(4, 3), full(4)),
    lambda c: F.linear(c(3), full(4, 3), full(4)),
    lambda c: F.batch_norm(c(4, 3, 2, 2), *(full(1, 3, 1, 1) for _ in range(4)), training=True),
    lambda c: F.batch_norm(c(4, 3, 2, 2), *(full(1, 3, 1, 1) for _ in range(4))),
    lambda c: M.BatchNorm1d(3)(c(4, 3)),
]


@pytest.mark.parametrize("i", range(len(HIGH)))
def test_sensitive_ops_work_in_high_precision(i):
    for x in (full(4), half(4)):
        with amp.autocast():
            y = HIGH[i](x)
        assert y.dtype == np.float32
        want = HIGH[i](x.astype("float32")).numpy()
        if i < 15:  # one op: exact
            np.testing.assert_array_equal(y.numpy(), want)
        else:  # parts that are not sensitive, x + 1 for one, were done in half precision
            np.testing.assert_allclose(y.numpy(), want, rtol=2e-3)


@pytest.mark.parametrize("i", range(len(SAME)))
def test_other_ops_take_what_comes(i):
    for x in (full(4), half(4)):
        with amp.autocast():
            y = SAME[i](x)
        assert y.dtype == x.dtype


@pytest.mark.parametrize("low", ["float16", "bfloat16"])
@pytest.mark.parametrize("i", range(len(LOW)))
def test_products_work_in_low_precision(i, low):
    for make in (full, half):
        with amp.autocast(low_prec_dtype=low):
            y = LOW[i](make)
        assert is_bfloat16(y.dtype) if low == "bfloat16" else y.dtype == np.float16


def test_values_of_products():
    x, w, b = full(4, 3, 8, 8), full(5, 3, 3, 3), full(1, 5, 1, 1)
    with amp.autocast():
        y, z = F.conv2d(x, w, b), F.matmul(x.reshape(12, 64), x.reshape(12, 64), transpose_b=True)
    want = F.conv2d(*(t.astype("float16") for t in (x, w, b)), compute_mode="float32")
    np.testing.assert_array_equal(y.numpy(), want.numpy())
    a = x.numpy().reshape(12, 64).astype("float16").astype("float64")
    np.testing.assert_allclose(z.numpy(), (a @ a.T).astype("float16"), rtol=2e-3)


def test_batch_norm_keeps_its_statistics_in_high_precision():
    x = half(8, 3, 2, 2)
    cast, plain = M.BatchNorm2d(3), M.BatchNorm2d(3)
    with amp.autocast():
        y = cast(x)
    z = plain(x.astype("float32"))
    assert y.dtype == np.float16 and cast.running_var.dtype == np.float32
    np.testing.assert_array_equal(cast.running_var.numpy(), plain.running_var.numpy())
    np.testing.assert_array_equal(y.numpy(), z.numpy().astype("float16"))


def test_builtin_ops_and_elemwise_layers_cast_too():
    from megengine.core._imperative_rt.core2 import apply
    from megengine.core.ops import builtin

    x = half(4)
    with amp.autocast():
        (y,) = apply(builtin.Elemwise(mode="EXP"), x)
        (z,) = apply(builtin.Elemwise(mode="ADD"), x, x)
        assert y.dtype == np.float32 and z.dtype == np.float16
        assert M.Elemwise("true_div")(x, x).dtype == np.float32 and M.Elemwise("add")(x, x).dtype == np.float16
    assert apply(builtin.Elemwise(mode="EXP"), x)[0].dtype == np.float16


def test_integers_are_left_alone():
    i = Tensor([1, 2, 3])
    with amp.autocast():
        assert (i + i).dtype == np.int32 and F.relu(i).dtype == np.int32 and (i / i).dtype == np.float32
        assert F.exp(i).dtype == np.float32


def test_updates_in_place():
    x = half(3)
    same = x
    with amp.autocast():
        x /= 2.0
    assert x is same and x.dtype == np.float32
    y = full(2, 2)
    with amp.autocast():
        y @= full(2, 2)
    assert y.dtype == np.float16


# ---- without autocast


def test_norms_give_the_dtype_of_the_input():
    x = half(4, 4, 2, 2)
    assert M.BatchNorm2d(4)(x).dtype == np.float16
    bn = M.BatchNorm2d(4)
    bn.eval()
    assert bn(x).dtype == np.float16
    for m in (M.LayerNorm(2), M.GroupNorm(2, 4), M.InstanceNorm(4)):
        assert m(x).dtype == np.float16
    assert M.LayerNorm(2, affine=False)(x).dtype == np.float16


# ---- state


def test_nesting():
    with amp.autocast(low_prec_dtype="bfloat16"):
        assert amp.enabled and amp.low_prec_dtype == "bfloat16" and config._compute_mode == "float32"
        with amp.autocast(enabled=False):  # does not switch the outer one off
            assert amp.enabled and amp.low_prec_dtype == "bfloat16"
        with amp.autocast():
            assert amp.low_prec_dtype == "float16"
        assert amp.enabled and amp.low_prec_dtype == "bfloat16"
    assert not amp.enabled
    with pytest.raises(KeyError), amp.autocast():
        raise KeyError
    one = amp.autocast()
    with one, one:
        assert amp.enabled


def test_decorator_and_properties():
    @amp.autocast()
    def product(x):
        """doc"""
        return x @ x

    assert product(full(2, 2)).dtype == np.float16 and product.__doc__ == "doc" and not amp.enabled
    assert (full(2, 2) @ full(2, 2)).dtype == np.float32
    amp.enabled = True
    amp.low_prec_dtype = "bfloat16"
    try:
        assert core2._get_amp_dtype_autocast() and core2._get_amp_low_prec_dtype() == "bfloat16"
        assert is_bfloat16((full(2, 2) @ full(2, 2)).dtype)
    finally:
        core2._set_amp_dtype_autocast(False)
        core2._set_amp_low_prec_dtype("float16")
    assert core2._get_amp_high_prec_dtype() == "float32"


def test_bad_dtypes_change_nothing():
    for bad in ({"low_prec_dtype": "int8"}, {"high_prec_dtype": "float99"}):
        with pytest.raises(RuntimeError, match="must be one of float16, bfloat16, float32"):
            with amp.autocast(**bad):
                pass
    with pytest.raises(RuntimeError):
        amp.low_prec_dtype = "foo"


def test_nothing_is_replaced_while_it_is_on():
    plain = ops.exp, Tensor.__truediv__, dict(vars(Tensor))
    with amp.autocast():
        assert (ops.exp, Tensor.__truediv__, dict(vars(Tensor))) == plain


def test_the_registry_says_what_casts():
    kinds = {kind: {n for n in _core.op_names() if _core.op_info(n)["amp"] == kind} for kind in ("low", "high", "norm")}
    assert kinds["low"] == {"matmul", "conv2d", "conv2d_dx"}
    assert kinds["norm"] == {"batch_norm_train", "batch_norm_infer"}
    assert {"div", "pow", "softmax_xent", "layer_norm", "sqrt"} <= kinds["high"]
    assert not {"tanh", "softmax", "gelu", "add"} & kinds["high"]


def test_the_state_is_one_number():
    words = {_core.mode_word()}
    for kwargs in ({}, {"low_prec_dtype": "bfloat16"}, {"low_prec_dtype": "float32"}, {"high_prec_dtype": "float16"}):
        with amp.autocast(**kwargs):
            words.add(_core.mode_word())
            with amp.autocast(**kwargs):
                assert _core.mode_word() in words
    with config._override(compute_mode="float32"):
        words.add(_core.mode_word())
        assert config._compute_mode == "float32"
    assert len(words) == 6
    before = _core.mode_word()
    _core.set_mode_word(0xFFFFFFFF & ~_core.mode_word() & 0xFF)  # bits that are not settings are not taken
    try:
        assert not _core.is_tracing() and not _core.is_recording()
        assert (full(2) + full(2)).format == "default"
    finally:
        _core.set_mode_word(before)


def test_the_private_module_of_the_original():
    from megengine.core.tensor import amp as private

    assert private._enabled is False and private._high_prec_dtype == "float32"
    with amp.autocast(low_prec_dtype="bfloat16"):
        assert private._enabled is True and private._low_prec_dtype == "bfloat16"
    private._enabled = True
    try:
        assert amp.enabled
    finally:
        private._enabled = False


# ---- threads


def test_autocast_is_of_one_thread():
    other = []

    def look():
        y = full(2, 2) @ full(2, 2)
        other.append((amp.enabled, config._compute_mode, y.dtype, (half(2) / 2).dtype))

    with amp.autocast():
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        assert (full(2, 2) @ full(2, 2)).dtype == np.float16
    assert other == [(False, "default", np.float32, np.float16)]


def test_threads_with_settings_of_their_own():
    """One decorated function in many threads, some inside a block with another dtype."""
    x, barrier, wrong = full(8, 8), threading.Barrier(4), []

    @amp.autocast()
    def product():
        barrier.wait()
        return x @ x

    def work(i):
        for _ in range(20):
            with amp.autocast(enabled=i % 2 == 1, low_prec_dtype="bfloat16"):
                before = _core.mode_word()
                inner = product().dtype
                outer = (x @ x).dtype
                if inner != np.float16 or _core.mode_word() != before:
                    wrong.append((i, inner))
                if (is_bfloat16(outer) if i % 2 else outer == np.float32) is False:
                    wrong.append((i, outer))
            if _core.mode_word() != 0:
                wrong.append((i, _core.mode_word()))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


class _Precision(mge.data.dataset.Dataset):
    def __init__(self):
        pass

    def __len__(self):
        return 2

    def __getitem__(self, i):
        return np.array([(full(2, 2) @ full(2, 2)).dtype.itemsize, int(amp.enabled)])


def test_workers_of_a_loader_start_clean():
    loader = mge.data.DataLoader(_Precision(), mge.data.SequentialSampler(_Precision(), 1), num_workers=1)
    with amp.autocast():
        assert [b.tolist() for b in loader] == [[[4, 0]], [[4, 0]]]


def test_backward_in_another_thread_than_the_block():
    """A thread that differentiates for itself is not touched by the block of the one that started it."""
    grads = []

    def train():
        w = Parameter(full(3, 3))
        with GradManager().attach([w]) as gm:
            gm.backward((full(2, 3) @ w).sum())
        grads.append(w.grad.dtype)

    with amp.autocast():
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
    assert grads == [np.float32]


# ---- what rules emit


def test_gradients_are_not_cast_again():
    """Backward inside the block gives the bits of backward outside of it: the rules name their dtypes themselves."""

    def grad(inside):
        x, w = Tensor(np.linspace(0.2, 2, 6, dtype="float32")), Parameter(np.linspace(1, 2, 36).reshape(6, 6))
        gm = GradManager().attach([x, w])
        with gm:
            with amp.autocast():
                y = F.relu((x / 3 + F.tanh(x)).reshape(1, 6) @ w)
                if inside:
                    gm.backward(y.sum())
            if not inside:
                gm.backward(y.sum())
        return x.grad.numpy(), w.grad.numpy()

    for a, b in zip(grad(True), grad(False)):
        np.testing.assert_array_equal(a, b)


def test_recording_does_not_change_dtypes():
    """An op that is recorded as its parts gives what it gives unrecorded, though a part (div) is sensitive."""
    for f in (lambda x: F.softmax(x, 0), lambda x: F.nn.instance_norm(x.reshape(1, 2, 2, 1), False)):
        x = half(4)
        with amp.autocast():
            plain = f(x)
            with GradManager().attach([x]):
                recorded = f(x)
        assert plain.dtype == recorded.dtype == np.float16
        np.testing.assert_array_equal(plain.numpy(), recorded.numpy())


def test_a_custom_backward_is_the_users_code():
    class Square(mge.autodiff.Function):
        def forward(self, x):
            self.x = x
            return x * x

        def backward(self, dy):
            self.seen = (self.x.reshape(2, 2) @ self.x.reshape(2, 2)).dtype
            return dy * 2 * self.x

    f, x = Square(), full(4)
    with amp.autocast(), GradManager().attach([x]) as gm:
        gm.backward(f(x).sum())
    assert f.seen == np.float16 and x.grad.dtype == np.float32


def test_numbers_beside_a_tensor_are_rounded_once():
    x = half(5)
    with amp.autocast():
        got = [x / 3.3, 3.3 / x, ops.div(x, 3.3), ops.pow(x, 1.1), x**1.1]
    wide = x.astype("float32")
    want = [wide / 3.3, 3.3 / wide, ops.div(wide, 3.3), ops.pow(wide, 1.1), wide**1.1]
    for a, b in zip(got, want):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_functions_that_autocast_does_not_name_only_promote():
    x, w = full(2, 3), full(3, 4)
    with amp.autocast():
        assert ops.matmul.uncast(x, w).dtype == np.float32 and ops.matmul(x, w).dtype == np.float16
        assert M.RNNCell(3, 2)(x).dtype == np.float32
        assert F.local_conv2d(full(1, 1, 3, 3), full(1, 2, 2, 1, 2, 2, 5)).dtype == np.float32


def test_state_keeps_its_dtype():
    """An optimizer's update inside the block is no op of the forward pass."""
    w = Parameter(full(3))
    opt, gm = mge.optimizer.Adam([w], lr=0.1), GradManager().attach([w])
    with amp.autocast(), gm:
        gm.backward((w**2).sum())
        opt.step()
    assert w.dtype == np.float32


# ---- training


@pytest.mark.parametrize("low", ["float16", "bfloat16"])
@pytest.mark.parametrize("traced", [False, True])
def test_training_under_autocast_follows_float32(traced, low):
    def run(enabled):
        mge.random.seed(0)
        net = M.Sequential(M.Conv2d(3, 8, 3), M.BatchNorm2d(8), M.ReLU(), M.AdaptiveAvgPool2d(1))
        head = M.Linear(8, 4)
        params = [*net.parameters(), *head.parameters()]
        gm, opt = GradManager().attach(params), mge.optimizer.SGD(params, lr=0.1)
        scaler = amp.GradScaler()

        def step(x, t):
            with amp.autocast(enabled, low_prec_dtype=low), gm:
                loss = F.nn.cross_entropy(head(net(x).reshape(16, 8)), t)
                gm.backward(loss)
            opt.step().clear_grad()
            return loss

        f = mge.jit.trace(step) if traced else step
        rng = np.random.default_rng(1)
        t = Tensor(rng.integers(0, 4, 16).astype("int32"))
        x = Tensor(rng.standard_normal((16, 3, 6, 6)).astype("float32"))
        losses = [f(x, t).item() for _ in range(20)]
        assert all(p.dtype == np.float32 for p in params) and scaler.scale_factor == 16.0
        return losses

    cast, plain = run(True), run(False)
    assert plain[-1] < plain[0] and not np.array_equal(cast, plain)
    np.testing.assert_allclose(cast, plain, rtol=0.05 if low == "bfloat16" else 0.01)


def test_gradients_have_the_dtype_of_the_parameters():
    w, b, x = Parameter(full(3, 3)), Parameter(full(3)), full(2, 3)
    with amp.autocast(), GradManager().attach([w, b]) as gm:
        gm.backward(F.relu(F.linear(x, w, b)).mean())
    assert w.grad.dtype == np.float32 and b.grad.dtype == np.float32
    np.testing.assert_allclose(w.grad.numpy(), np.tile(x.numpy().sum(0) / 6, (3, 1)), rtol=5e-3)


# ---- GradScaler


def test_scaler():
    scaler, w = amp.GradScaler(init_scale=8.0), Parameter([1.0, 2.0])
    gm = GradManager().attach([w])
    with gm:
        scaler.backward(gm, (w * 3).sum())
    assert w.grad.tolist() == [3, 3] and scaler._growth_tracker == 1 and scaler.scale_factor == 8
    w.grad = None
    with gm:
        scaler.backward(gm, (w * float("inf")).sum())
    assert w.grad is None and scaler.scale_factor == 4 and scaler._growth_tracker == 0
    with gm:
        scaler.backward(gm, (w * 3).sum(), unscale_grad=False)
    assert w.grad.tolist() == [12, 12] and scaler._growth_tracker == 0
    assert scaler.unscale(iter([w])) is scaler and w.grad.tolist() == [3, 3]
    scaler.update()
    assert scaler._growth_tracker == 1
    scaler.update(3)
    assert scaler.scale_factor == 3.0


def test_scaler_grows():
    scaler = amp.GradScaler(init_scale=4.0, growth_interval=2)
    seen = []
    for _ in range(5):
        scaler.update()
        seen.append((scaler.scale_factor, scaler._growth_tracker))
    assert seen == [(4, 1), (8, 0), (8, 1), (16, 0), (16, 1)]
    other = amp.GradScaler()
    other.load_state_dict(scaler.state_dict())
    assert other.state_dict() == scaler.state_dict()
    assert set(scaler.state_dict()) == {
        "scale_factor", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"
    }  # fmt: skip


def test_scaler_that_never_changes():
    scaler, w = amp.GradScaler(init_scale=4.0, growth_interval=0), Parameter([1.0])
    gm = GradManager().attach([w])
    with gm:
        scaler.backward(gm, w * float("inf"))
    assert np.isinf(w.grad.item()) and scaler.scale_factor == 4  # nothing is checked
    scaler.update(7.0)
    assert scaler.scale_factor == 4


def test_scaler_with_given_and_several_gradients():
    scaler, w = amp.GradScaler(), Parameter([1.0, 2.0])
    gm = GradManager().attach([w])
    with gm:
        scaler.backward(gm, w * 2, dy=Tensor([1.0, 3.0]))
    assert w.grad.tolist() == [2, 6]
    w.grad = None
    with gm:
        scaler.backward(gm, [w * 2, w * 3])
    assert w.grad.tolist() == [5, 5]


def test_a_shared_gradient_is_divided_once():
    scaler = amp.GradScaler(init_scale=4.0)
    a, b = Parameter([1.0]), Parameter([2.0])
    a.grad = b.grad = Tensor([8.0])
    scaler.unscale([a, b])
    assert a.grad.item() == 2.0 and b.grad.item() == 2.0
    with GradManager().attach([a, b]) as gm:
        a.grad = b.grad = None
        scaler.backward(gm, (a + b) * 3)
    assert a.grad.item() == 3.0 and b.grad.item() == 3.0


@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
def test_one_bad_gradient_drops_all(bad):
    scaler = amp.GradScaler()
    a, b, c = Parameter([1.0]), Parameter(np.ones(100, "float16")), Parameter([1.0])
    a.grad, b.grad = Tensor([1.0]), Tensor(np.array([1.0] * 99 + [bad], "float16"))
    scaler.unscale([a, b, c])
    assert a.grad is None and b.grad is None and c.grad is None and scaler._found_non_finite


# ---- what is not named


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_heavy_16_bit_ops_are_float32_rounded_and_keep_their_bits_in_a_trace(dtype):
    rng = np.random.RandomState(0)
    x = Tensor(rng.randn(2, 32, 14, 14).astype("float32")).astype(dtype)
    w = Tensor((rng.randn(48, 32, 3, 3) * 0.1).astype("float32")).astype(dtype)
    d = Tensor((rng.randn(48, 1, 1, 3, 3)).astype("float32")).astype(dtype)
    b = Tensor(rng.randn(1, 48, 1, 1).astype("float32")).astype(dtype)

    def net(x, w, d, b):
        half, small = Tensor(0.5, dtype=x.dtype), Tensor(0.01, dtype=x.dtype)  # numbers would make bfloat16 float32
        y = F.relu(F.conv2d(x, w, b, padding=1))
        y = F.max_pool2d(F.conv2d(y, d, padding=1, groups=48) * half, 2)
        return F.softmax(F.matmul(y.reshape(2, 48, 49), y.reshape(2, 48, 49), transpose_b=True) * small, axis=-1)

    eager = net(x, w, d, b)
    want = net(*(t.astype("float32") for t in (x, w, d, b))).numpy()
    assert eager.dtype == x.dtype
    ulp = 2.0**-10 if dtype == "float16" else 2.0**-7
    np.testing.assert_allclose(eager.astype("float32").numpy(), want, atol=8 * ulp * want.max())
    traced = trace(symbolic=True)(net)
    for _ in range(2):
        np.testing.assert_array_equal(traced(x, w, d, b).astype("float32").numpy(), eager.astype("float32").numpy())


def test_what_autocast_does_not_name_only_promotes():
    x, w = full(2, 4, 6, 6), full(4, 4, 3, 3)
    offset, mask = full(2, 18, 4, 4), full(2, 9, 4, 4)
    rows, steps = full(2, 3), full(5, 2, 3)
    local = M.LocalConv2d(4, 4, 6, 6, 3)
    cells = M.RNNCell(3, 4), M.LSTMCell(3, 4), M.RNN(3, 4), M.LSTM(3, 4)
    mat = Tensor(np.eye(3, dtype="float32")[None])
    calls = [
        lambda: local(x),
        lambda: F.deformable_conv2d(x, w, offset, mask),
        lambda: cells[0](rows),
        lambda: cells[1](rows)[0],
        lambda: cells[2](steps)[0],
        lambda: cells[3](steps)[0],
        lambda: F.vision.warp_perspective(x[:1], mat, (2, 2)),
    ]
    for call in calls:
        want = call()
        with amp.autocast():
            got = call()
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got.numpy(), want.numpy())


# ---- GradScaler in a trace: a gradient that may be None


def _scaled_step(look):
    w = Parameter([1.0, 2.0])
    gm, scaler = GradManager().attach([w]), amp.GradScaler()

    @mge.jit.trace
    def step(x):
        with gm:
            scaler.backward(gm, (w * x).sum())
        found = look(w)
        w.grad = None
        return found

    step(Tensor([1.0, 2.0]))


@pytest.mark.parametrize("look", [lambda w: w.grad.sum(), lambda w: w.grad * 2, lambda w: -w.grad, lambda w: w.grad[0]])
def test_using_a_gradient_that_may_be_none_names_the_line_and_ways_out(look):
    with pytest.raises(mge.jit.TraceError, match=r"GradScaler finds an overflow.*outside the trace") as e:
        _scaled_step(look)
    assert "test_amp.py" in str(e.value)


def test_clipping_gradients_of_which_some_may_be_none_is_refused():
    w, v = Parameter([1.0]), Parameter([1.0])
    gm, scaler = GradManager().attach([w, v]), amp.GradScaler()

    @mge.jit.trace
    def step(x):
        with gm:
            scaler.backward(gm, (w * v * x).sum(), unscale_grad=False)
        scaler.unscale([w])
        mge.optimizer.clip_grad_norm([w, v], 1.0)

    with pytest.raises(NotImplementedError, match="clip_grad_norm: some of the gradients.*Unscale all of them"):
        step(Tensor([1.0]))


def test_private_setters_return_what_was_set_before():
    from megengine.core.tensor import amp as private
    from megengine.core.tensor import utils

    assert core2._set_amp_dtype_autocast(True) is False and private._get_amp_dtype_autocast() is True
    assert private._set_amp_dtype_autocast(False) is True
    assert core2._set_amp_low_prec_dtype("bfloat16") == "float16"
    assert private._set_amp_low_prec_dtype("float16") == "bfloat16"
    assert core2._set_amp_high_prec_dtype("float32") == core2._get_amp_high_prec_dtype() == "float32"
    assert core2._set_convert_inputs(False) is True and utils._get_convert_inputs() is False
    assert utils._set_convert_inputs(True) is False
