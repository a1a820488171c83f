"""Optimizers against their rules written in NumPy float64; groups, state, schedules, clipping."""

from __future__ import annotations

import math

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Parameter, Tensor
from megengine.autodiff import GradManager
from megengine.optimizer import (
    LAMB,
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    AdamW,
    LAMBFp16,
    LRScheduler,
    MultiStepLR,
    Optimizer,
    clip_grad_norm,
    clip_grad_value,
)
from megengine.optimizer.optimizer import required

pytestmark = pytest.mark.asan_subset

RNG = np.random.default_rng(0)


class NumpySGD:
    def __init__(self, lr, momentum=0.0, nesterov=False, weight_decay=0.0):
        self.lr, self.mu, self.nesterov, self.wd, self.v = lr, momentum, nesterov, weight_decay, 0.0

    def __call__(self, w, g):
        g = g + self.wd * w
        if not self.mu:
            return w - self.lr * g
        self.v = self.mu * self.v + g
        return w - self.lr * (g + self.mu * self.v if self.nesterov else self.v)


class NumpyAdam:
    def __init__(self, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, decoupled=False):
        self.lr, self.b, self.eps, self.wd, self.decoupled = lr, betas, eps, weight_decay, decoupled
        self.m = self.v = 0.0
        self.t = 0

    def ratio(self, w, g):
        self.t += 1
        if not self.decoupled:
            g = g + self.wd * w
        self.m = self.b[0] * self.m + (1 - self.b[0]) * g
        self.v = self.b[1] * self.v + (1 - self.b[1]) * g**2
        return (self.m / (1 - self.b[0] ** self.t)) / (np.sqrt(self.v / (1 - self.b[1] ** self.t)) + self.eps)

    def __call__(self, w, g):
        delta = self.ratio(w, g)
        if self.decoupled:
            delta = delta + self.wd * w
        return w - self.lr * delta


class NumpyAdagrad:
    def __init__(self, lr=1e-2, lr_decay=0.0, eps=1e-10, weight_decay=0.0):
        self.lr, self.decay, self.eps, self.wd, self.s, self.t = lr, lr_decay, eps, weight_decay, 0.0, 0

    def __call__(self, w, g):
        self.t += 1
        g = g + self.wd * w
        self.s = self.s + g**2
        return w - self.lr / (1 + (self.t - 1) * self.decay) * g / np.sqrt(self.s + self.eps)


class NumpyAdadelta:
    def __init__(self, lr=1.0, rho=0.9, eps=1e-6, weight_decay=0.0):
        self.lr, self.rho, self.eps, self.wd, self.s, self.a = lr, rho, eps, weight_decay, 0.0, 0.0

    def __call__(self, w, g):
        g = g + self.wd * w
        self.s = self.rho * self.s + (1 - self.rho) * g**2
        delta = np.sqrt(self.a + self.eps) / np.sqrt(self.s + self.eps) * g
        self.a = self.rho * self.a + (1 - self.rho) * delta**2
        return w - self.lr * delta


class NumpyLAMB:
    def __init__(self, lr, betas=(0.9, 0.999), eps=1e-8, bias_correction=True, weight_decay=0.0, always_adapt=False):
        self.adam = NumpyAdam(lr, betas, eps, 0.0)
        self.correct, self.wd, self.always = bias_correction, weight_decay, always_adapt

    def __call__(self, w, g):
        r = self.adam.ratio(w, g)
        if not self.correct:
            r = self.adam.m / (np.sqrt(self.adam.v) + self.adam.eps)
        r = r + self.wd * w
        trust = 1.0
        if self.always or self.wd > 0:
            a, b = np.linalg.norm(w), np.linalg.norm(r)
            trust = a / b if a > 0 and b > 0 else 1.0
        return w - self.adam.lr * trust * r


CASES = [
    (SGD, NumpySGD, {"lr": 0.1}),
    (SGD, NumpySGD, {"lr": 0.1, "weight_decay": 0.1}),
    (SGD, NumpySGD, {"lr": 0.1, "momentum": 0.9}),
    (SGD, NumpySGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    (Adam, NumpyAdam, {"lr": 0.1}),
    (Adam, NumpyAdam, {"lr": 0.1, "betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.1}),
    (AdamW, lambda **k: NumpyAdam(**{"weight_decay": 1e-2, **k}, decoupled=True), {"lr": 0.1}),
    (AdamW, lambda **k: NumpyAdam(**k, decoupled=True), {"lr": 0.1, "weight_decay": 0.3}),
    (Adagrad, NumpyAdagrad, {}),
    (Adagrad, NumpyAdagrad, {"lr": 0.1, "lr_decay": 0.5, "weight_decay": 0.1}),
    (Adadelta, NumpyAdadelta, {}),
    (Adadelta, NumpyAdadelta, {"lr": 0.5, "rho": 0.5, "weight_decay": 0.1}),
    (LAMB, NumpyLAMB, {"lr": 0.1}),
    (LAMB, NumpyLAMB, {"lr": 0.1, "weight_decay": 0.1}),
    (LAMB, NumpyLAMB, {"lr": 0.1, "always_adapt": True, "bias_correction": False}),
]


@pytest.mark.parametrize("shape", [(), (3, 5)])
@pytest.mark.parametrize("cls, rule, kwargs", CASES, ids=lambda v: v.__name__ if isinstance(v, type) else str(v))
def test_rule(cls, rule, kwargs, shape):
    w = RNG.uniform(0.5, 2, shape)
    p, q = Parameter(w.astype("float32")), Parameter(w.astype("float32"))
    opt = cls([p, q], **kwargs)
    numpy_rule = rule(**kwargs)
    for i in range(8):
        if i == 4:  # a new learning rate is followed
            for group in opt.param_groups:
                group["lr"] = 0.03
            getattr(numpy_rule, "adam", numpy_rule).lr = 0.03
        g = RNG.uniform(-1, 1, shape)
        p.grad = Tensor(g.astype("float32"))
        assert opt.step() is opt
        w = np.asarray(numpy_rule(w, g))
        np.testing.assert_allclose(p.numpy(), w, rtol=2e-4, atol=1e-5)
        np.testing.assert_array_equal(p.grad.numpy(), g.astype("float32"))
    assert p.shape == shape and type(p) is Parameter
    assert (q.numpy() != p.numpy()).any()  # no gradient: not touched


def test_lamb_fp16_keeps_a_float32_copy():
    p = Parameter(np.ones(4, "float16"))
    opt = LAMBFp16([p], lr=1e-4)
    p.grad = Tensor(np.ones(4, "float16"))
    for _ in range(3):
        opt.step()
    assert p.dtype == np.float16
    np.testing.assert_allclose(opt._state[p]["param_fp32"].numpy(), 1 - 3e-4, rtol=1e-5)


HALF_CASES = [(c, k) for c, _, k in CASES if k.get("lr", 0) <= 0.1]


@pytest.mark.parametrize("cls, kwargs", HALF_CASES, ids=lambda v: v.__name__ if isinstance(v, type) else str(v))
def test_float16_parameters_stay_float16(cls, kwargs):
    w, grads = RNG.uniform(0.5, 2, (3, 5)), RNG.uniform(-1, 1, (4, 3, 5))
    half, full = Parameter(w.astype("float16")), Parameter(w.astype("float16").astype("float32"))
    for p, dtype in ((half, "float16"), (full, "float32")):
        opt = cls([p], **kwargs)
        for g in grads:
            p.grad = Tensor(g.astype("float16").astype(dtype))
            opt.step()
        assert p.dtype == np.dtype(dtype) and p.grad.dtype == np.dtype(dtype)
    np.testing.assert_allclose(half.numpy(), full.numpy(), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("cls", [SGD, Adam, AdamW, Adagrad, Adadelta, LAMB])
def test_a_learning_rate_of_zero_changes_nothing(cls):
    w = RNG.uniform(0.5, 2, (3, 5)).astype("float32")
    p = Parameter(w)
    opt = cls([p], lr=0)
    for _ in range(3):
        p.grad = Tensor(np.ones((3, 5), "float32"))
        opt.step()
    np.testing.assert_array_equal(p.numpy(), w)


def test_negative_hyper_parameters_name_the_value():
    p = Parameter([1.0])
    for cls, error in ((SGD, AssertionError), (Adam, ValueError), (AdamW, ValueError), (LAMB, ValueError)):
        with pytest.raises(error, match="-0.5"):
            cls([p], lr=-0.5)
    for kwargs in ({"lr": -1}, {"lr_decay": -1}, {"eps": -1}, {"weight_decay": -1}):
        with pytest.raises(AssertionError, match="-1"):
            Adagrad([p], **kwargs)
    for kwargs in ({"lr": -1}, {"rho": 2}, {"eps": -1}, {"weight_decay": -1}):
        with pytest.raises(AssertionError):
            Adadelta([p], **kwargs)


def test_lr_may_be_a_tensor():
    p = Parameter([1.0])
    opt = SGD([p], lr=0.5)
    lr = Tensor(0.25)
    opt.param_groups[0]["lr"] = lr
    p.grad = Tensor([1.0])
    opt.step()
    assert p.item() == 0.75
    lr[...] = Tensor(0.5)
    opt.step()
    assert p.item() == 0.25
    opt.param_groups[0]["lr"] = 0.125
    opt.step()
    assert p.item() == 0.125 and lr.item() == 0.5


def test_unchanged_lr_makes_no_new_tensor():
    p = Parameter([1.0])
    opt = SGD([p], lr=0.5)
    cell = opt._lr(opt.param_groups[0])
    p.grad = Tensor([1.0])
    opt.step().step()
    assert opt._lr(opt.param_groups[0]) is cell
    opt.param_groups[0]["lr"] = 0.25
    opt.step()
    assert opt._lr(opt.param_groups[0]) is cell and cell.item() == 0.25


def test_two_parameters_made_from_one_value_stay_apart():
    a = Parameter([1.0])
    b = Parameter(a)
    opt = SGD([a], lr=0.5)
    a.grad = Tensor([1.0])
    opt.step()
    assert a.item() == 0.5 and b.item() == 1.0


def test_earlier_values_are_not_overwritten():
    p = Parameter(np.ones(1000, "float32"))
    opt = Adam([p], lr=0.1)
    p.grad = F.ones((1000,))
    before, view = p.detach(), p[10:20]
    array = p.numpy()
    opt.step()
    assert (before.numpy() == 1).all() and (view.numpy() == 1).all() and (array == 1).all() and (p.numpy() < 1).all()


# ---- groups


def test_groups_have_their_own_hyper_parameters():
    p, q = Parameter([1.0]), Parameter([1.0])
    opt = SGD([{"params": [p]}, {"params": q, "lr": 0.25}], lr=0.5)
    p.grad, q.grad = Tensor([1.0]), Tensor([1.0])
    opt.step()
    assert (p.item(), q.item()) == (0.5, 0.75)
    opt.clear_grad()
    assert p.grad is None and q.grad is None
    r = Parameter([1.0])
    opt.add_param_group({"params": [r], "lr": 0.125})
    r.grad = Tensor([1.0])
    opt.step()
    assert r.item() == 0.875 and p.item() == 0.5


def test_a_group_added_later_has_state():
    p, q = Parameter([1.0]), Parameter([1.0])
    opt = Adam([p], lr=0.5)
    opt.add_param_group({"params": [q]})
    q.grad = Tensor([3.0])
    opt.step()
    assert abs(q.item() - 0.5) < 1e-6


def test_construction_errors():
    p = Parameter([1.0])
    for bad, error in (
        ([], ValueError),
        (3, TypeError),
        ([Tensor([1.0])], TypeError),
        ([p, {"params": [p]}], TypeError),
        ([{"params": {p}}], TypeError),
    ):
        with pytest.raises(error):
            SGD(bad, lr=0.1)
    with pytest.raises(AssertionError):
        SGD([p, p], lr=0.1)
    with pytest.raises(AssertionError):
        SGD([{"params": [p]}, {"params": [p]}], lr=0.1)
    with pytest.raises(AssertionError, match="param group must be a dict"):
        SGD([p], lr=0.1).add_param_group([p])
    for kwargs in ({"lr": -1}, {"lr": 1, "momentum": -1}, {"lr": 1, "weight_decay": -1}, {"lr": 1, "nesterov": True}):
        with pytest.raises(AssertionError):
            SGD([p], **kwargs)
    for kwargs in ({"lr": -1}, {"lr": 1, "weight_decay": -1}, {"lr": 1, "betas": (1.0, 0.9)}):
        for cls in (Adam, AdamW, LAMB):
            with pytest.raises(ValueError):
                cls([p], **kwargs)

    class Needs(Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": required})

        def _create_state(self, group): ...
        def _updates(self, group): ...

    with pytest.raises(ValueError, match="required optimizer parameter lr"):
        Needs([p])
    Needs([{"params": [p], "lr": 1.0}])


def test_things_that_are_elsewhere():
    opt = SGD([Parameter([1.0])], lr=0.1)
    with pytest.raises(NotImplementedError, match="GradManager"):
        opt.backward(None)
    with pytest.raises(NotImplementedError):
        opt.bcast_param()
    opt.param_groups[0]["params"] = set(opt.param_groups[0]["params"])
    with pytest.raises(TypeError):
        opt.step()


def test_zero_grad_is_deprecated():
    p = Parameter([1.0])
    p.grad = Tensor([2.0])
    with pytest.deprecated_call():
        SGD([p], lr=0.1).zero_grad()
    assert p.grad.tolist() == [0.0]


# ---- state


def train(net, opt, steps, seed):
    rng = np.random.default_rng(seed)
    gm = GradManager().attach(net.parameters())
    for _ in range(steps):
        with gm:
            gm.backward((net(Tensor(rng.standard_normal((4, 3)).astype("float32"))) ** 2).mean())
        opt.step().clear_grad()


@pytest.mark.parametrize(
    "make",
    [
        lambda p: SGD(p, lr=0.1, momentum=0.9),
        lambda p: Adam(p, lr=0.1),
        lambda p: Adagrad(p, lr=0.1),
        lambda p: Adadelta(p),
        lambda p: LAMB(p, lr=0.1, weight_decay=0.1),
    ],
)
@pytest.mark.parametrize("keep_var", [False, True])
def test_training_goes_on_from_a_state_dict(make, keep_var):
    a = M.Linear(3, 2)
    opt_a = make(a.parameters())
    train(a, opt_a, 3, 1)
    b = M.Linear(3, 2)
    b.load_state_dict(a.state_dict())
    opt_b = make(b.parameters())
    opt_b.load_state_dict(opt_a.state_dict(keep_var))
    train(a, opt_a, 3, 2)
    train(b, opt_b, 3, 2)
    np.testing.assert_array_equal(a.weight.numpy(), b.weight.numpy())


def test_saving_to_a_file_and_going_on_is_bit_equal(tmp_path):
    for make in (lambda p: Adam(p, lr=0.1), lambda p: SGD(p, lr=0.1, momentum=0.9), lambda p: LAMB(p, lr=0.1)):
        a = M.Linear(3, 2)
        opt_a = make(a.parameters())
        schedule = MultiStepLR(opt_a, [2, 5])
        train(a, opt_a, 3, 1)
        schedule.step()
        path = str(tmp_path / "checkpoint.pkl")
        mge.save({"net": a.state_dict(), "opt": opt_a.state_dict(), "schedule": schedule.state_dict()}, path)
        b = M.Linear(3, 2)
        opt_b = make(b.parameters())
        other = MultiStepLR(opt_b, [1])
        saved = mge.load(path)
        b.load_state_dict(saved["net"])
        opt_b.load_state_dict(saved["opt"])
        other.load_state_dict(saved["schedule"])
        for net, opt, sched in ((a, opt_a, schedule), (b, opt_b, other)):
            sched.step()
            train(net, opt, 3, 2)
        np.testing.assert_array_equal(a.weight.numpy(), b.weight.numpy())
        assert opt_a.param_groups[0]["lr"] == opt_b.param_groups[0]["lr"]


def test_state_dict_layout():
    p, q = Parameter([1.0]), Parameter([1.0, 2.0])
    opt = Adam([{"params": [p]}, {"params": [q], "lr": 0.5}], lr=0.1)
    s = opt.state_dict()
    assert [g["params"] for g in s["param_groups"]] == [[0], [1]]
    assert s["param_groups"][1]["lr"] == 0.5 and "params" in s["param_groups"][0]
    assert set(s["state"]) == {0, 1} and set(s["state"][0]) == {"exp_avg", "exp_avg_sq", "step"}
    assert s["state"][1]["exp_avg"].shape == (2,) and s["state"][0]["step"].shape == ()


def test_a_state_of_another_shape_changes_nothing():
    small, large = M.Linear(2, 3), M.Linear(2, 4)
    for cls, options in ((Adam, {}), (SGD, {"momentum": 0.9})):
        opt, other = cls(small.parameters(), lr=0.1, **options), cls(large.parameters(), lr=0.5, **options)
        before = opt.state_dict()
        with pytest.raises(
            ValueError, match=r"of parameter 0 has shape \(4,\), the parameter needs \(3,\)\. .*another"
        ):
            opt.load_state_dict(other.state_dict())
        assert opt.param_groups[0]["lr"] == 0.1 and str(opt.state_dict()) == str(before)
    state = opt.state_dict()
    for wrong, text in (
        ({}, "the state nothing; SGD keeps momentum_buffer"),
        ({"other": np.zeros(3)}, "the state other;"),
    ):
        with pytest.raises(ValueError, match=text):
            opt.load_state_dict({**state, "state": {**state["state"], 0: wrong}})
    with pytest.raises(ValueError, match="state of parameter 7, which is in no group"):
        opt.load_state_dict({**state, "state": {7: state["state"][0], 1: state["state"][1]}})
    scalars = {k: {n: v.reshape(-1) if v.size == 1 else v for n, v in s.items()} for k, s in state["state"].items()}
    opt.load_state_dict({**state, "state": scalars})  # one number in an array is that number


def test_a_whole_checkpoint_is_not_the_state_of_an_optimizer():
    net = M.Linear(2, 3)
    opt = Adam(net.parameters(), lr=0.1)
    whole = {"epoch": 3, "net": net.state_dict(), "opt": opt.state_dict()}
    with pytest.raises(KeyError, match=r"entries 'epoch', 'net', 'opt'; this is no .*Pass checkpoint\['opt'\]"):
        opt.load_state_dict(whole)
    with pytest.raises(KeyError, match=r"Pass what opt.state_dict\(\) returned"):
        opt.load_state_dict(net.state_dict())
    with pytest.raises(TypeError, match=r"needs the dict of opt.state_dict\(\); got str"):
        opt.load_state_dict("net.pkl")


def test_load_state_dict_errors():
    def make(n=1, cls=SGD, **k):
        return cls([Parameter([1.0]) for _ in range(n)], lr=0.1, **k)

    with pytest.raises(ValueError, match="parameters"):
        make(2).load_state_dict(make(1).state_dict())
    with pytest.raises(ValueError, match="keys"):
        make(cls=Adam).load_state_dict(make().state_dict())
    with pytest.raises(ValueError, match="state"):
        make(momentum=0.9).load_state_dict(make().state_dict())
    two = SGD([{"params": [Parameter([1.0])]}, {"params": [Parameter([1.0])]}], lr=0.1)
    with pytest.raises(ValueError, match="groups"):
        make().load_state_dict(two.state_dict())
    scheduled = make()
    MultiStepLR(scheduled, [1])
    with pytest.raises(ValueError, match="initial_lr"):
        make().load_state_dict(scheduled.state_dict())


# ---- schedules


def test_multi_step_lr():
    opt = SGD([Parameter([1.0])], lr=1.0)
    schedule = MultiStepLR(opt, [2, 4], gamma=0.1)
    seen = []
    for i in range(6):
        seen.append(opt.param_groups[0]["lr"])
        assert schedule.current_epoch == i
        schedule.step()
    np.testing.assert_allclose(seen, [1, 1, 0.1, 0.1, 0.01, 0.01])
    schedule.step(0)
    assert opt.param_groups[0]["lr"] == 1.0
    state = schedule.state_dict()
    assert set(state) == {"milestones", "gamma", "current_epoch"}
    other = MultiStepLR(SGD([Parameter([1.0])], lr=1.0), [1])
    other.load_state_dict({**state, "current_epoch": 3})
    assert other.milestones == [2, 4] and other.current_epoch == 3
    with pytest.raises(KeyError):
        other.load_state_dict({"gamma": 1})
    with pytest.raises(ValueError):
        MultiStepLR(opt, [4, 2])
    with pytest.raises(TypeError):
        MultiStepLR(3, [1])
    with pytest.raises(KeyError):
        MultiStepLR(SGD([Parameter([1.0])], lr=1.0), [1], current_epoch=5)
    with pytest.raises(NotImplementedError):
        LRScheduler(opt)


def test_a_resumed_schedule_starts_from_the_saved_learning_rate():
    """However the new optimizer was made, the rate after the next step is that of the saved run."""
    old, new = SGD([Parameter([1.0])], lr=0.5), SGD([Parameter([1.0])], lr=7.0)
    schedule, resumed = MultiStepLR(old, [2], gamma=0.1), MultiStepLR(new, [2], gamma=0.1)
    schedule.step()
    new.load_state_dict(old.state_dict())
    resumed.load_state_dict(schedule.state_dict())
    assert resumed.base_lrs == [0.5]
    resumed.step()
    assert new.param_groups[0]["lr"] == pytest.approx(0.05)


def test_schedule_reaches_the_update():
    p = Parameter([1.0])
    opt = SGD([p], lr=0.5)
    schedule = MultiStepLR(opt, [1], gamma=0.5)
    p.grad = Tensor([1.0])
    opt.step()
    schedule.step()
    opt.step()
    assert p.item() == 0.25


# ---- tracing


@pytest.mark.parametrize("without_host", [False, True])
@pytest.mark.parametrize("make", [lambda p: SGD(p, 0.1, 0.9), Adam, AdamW, Adagrad, Adadelta, LAMB])
def test_a_traced_step_follows_the_learning_rate(make, without_host):
    from megengine.jit import trace

    def run(traced):
        mge.random.seed(0)
        net = M.Linear(3, 2)
        net.load_state_dict({"weight": np.ones((2, 3), "float32"), "bias": np.zeros(2, "float32")})
        opt = make(net.parameters()) if not isinstance(make, type) else make(net.parameters(), lr=0.1)
        gm = GradManager().attach(net.parameters())

        def step(x):
            with gm:
                loss = (net(x) ** 2).mean()
                gm.backward(loss)
            opt.step().clear_grad()
            return loss

        f = trace(step, without_host=without_host) if traced else step
        rng = np.random.default_rng(0)
        losses = []
        for i in range(6):
            opt.param_groups[0]["lr"] = 0.2 if i == 0 else 0.1 / (i + 1)
            losses.append(f(Tensor(rng.standard_normal((4, 3)).astype("float32"))).numpy())
        return losses, net.state_dict()

    eager, traced = run(False), run(True)
    np.testing.assert_array_equal(eager[0], traced[0])
    for k, v in eager[1].items():
        np.testing.assert_array_equal(v, traced[1][k])


# ---- clipping


@pytest.mark.parametrize("ord", [2.0, 1.0, math.inf])
def test_clip_grad_norm(ord):
    ps = [Parameter(np.zeros(s, "float32")) for s in ((3, 4), (5,), ())]
    ps.append(Parameter([1.0]))  # without a gradient
    arrays = [RNG.standard_normal(p.shape).astype("float32") for p in ps[:-1]]
    total = np.linalg.norm(np.concatenate([a.reshape(-1) for a in arrays]).astype("float64"), ord)
    for limit in (0.5, 1000.0):
        for p, a in zip(ps, arrays):
            p.grad = Tensor(a)
        objects = [p.grad for p in ps]
        got = clip_grad_norm((p for p in ps), limit, ord)
        assert got.shape == () and abs(got.item() - total) < 1e-4 * total
        scale = min(limit / (total + 1e-6), 1)
        for p, a, o in zip(ps, arrays, objects):
            assert p.grad is o
            np.testing.assert_allclose(p.grad.numpy(), a * scale, rtol=1e-4, atol=1e-6)
    assert clip_grad_norm([Parameter([1.0])], 1.0).item() == 0.0


def test_clip_grad_norm_of_parameters_with_one_gradient():
    a, b = Parameter([3.0]), Parameter([4.0])
    with GradManager().attach([a, b]) as gm:
        gm.backward((a + b) * 10)
    clip_grad_norm([a, b], 1.0)
    np.testing.assert_allclose([a.grad.item(), b.grad.item()], [0.5**0.5] * 2, rtol=1e-5)


def test_clipping_keeps_float16():
    for clip in (lambda p: clip_grad_norm([p], 1.0), lambda p: clip_grad_value([p], -1, 1)):
        p = Parameter(np.zeros(2, "float16"))
        p.grad = Tensor(np.array([3, 4], "float16"))
        clip(p)
        assert p.grad.dtype == np.float16


def test_clip_grad_value():
    p = Parameter(np.zeros(5, "float32"))
    p.grad = Tensor(np.arange(-2, 3).astype("float32"))
    clip_grad_value([p], -1, 0)
    assert p.grad.tolist() == [-1, -1, 0, 0, 0]


# ---- numbers as tensors


@pytest.mark.parametrize(
    "make, name, value, text",
    [
        (lambda p: SGD(p, 0.1), "weight_decay", -1.0, "SGD: weight_decay must not be negative; got -1.0"),
        (lambda p: SGD(p, 0.1, momentum=0.9), "momentum", -0.5, "SGD: momentum must not be negative; got -0.5"),
        (lambda p: Adam(p, 0.1), "betas", (0.9, 1.0), "Adam: invalid beta parameter at index 1: 1.0"),
        (lambda p: LAMB(p, 0.1), "weight_decay", -1.0, "LAMB: invalid weight_decay value -1.0"),
        (lambda p: Adadelta(p), "rho", 1.5, "Adadelta: rho must be from 0 to 1; got 1.5"),
        (lambda p: Adagrad(p), "lr_decay", -1.0, "Adagrad: lr_decay must not be negative; got -1.0"),
    ],
)
def test_a_number_out_of_range_is_named_at_the_next_step(make, name, value, text):
    p = Parameter([1.0])
    opt = make([p])
    p.grad = Tensor([1.0])
    opt.param_groups[0][name] = value
    with pytest.raises(ValueError, match=text):
        opt.step()
    assert p.item() == 1.0


def test_a_list_of_betas_may_change_in_place():
    runs = []
    for in_place in (False, True):
        p, betas = Parameter([1.0]), [0.9, 0.999]
        opt = Adam([p], 0.1, betas=betas)
        for beta in (0.9, 0.5):
            p.grad = Tensor([1.0 + beta])
            if in_place:
                betas[0] = beta
            else:
                opt.param_groups[0]["betas"] = (beta, 0.999)
            opt.step()
        runs.append(p.numpy())
    assert runs[0] == runs[1]


def test_momentum_may_be_switched_on_later():
    p, q = Parameter([1.0]), Parameter([1.0])
    late, early = SGD([p], 0.1), SGD([q], 0.1, momentum=0.5)
    for opt, x in ((late, p), (early, q)):
        opt.param_groups[0]["momentum"] = 0.5
        for _ in range(3):
            x.grad = Tensor([1.0])
            opt.step()
    assert p.item() == q.item() and late.state_dict()["state"] == early.state_dict()["state"]


@pytest.mark.parametrize("make", [SGD, Adam, Adagrad, Adadelta, LAMB])
def test_lr_may_be_a_tensor_from_the_start(make):
    found = []
    for lr in (0.25, Tensor(0.25)):
        p = Parameter([1.0, 2.0])
        p.grad = Tensor([3.0, 4.0])
        make([p], lr=lr).step()
        found.append(p.numpy())
    np.testing.assert_array_equal(*found)


def test_what_the_optional_inputs_of_a_step_must_be():
    w, lr = Tensor([1.0, 2.0]), Tensor(0.5)
    ops = mge.core._core.ops
    with pytest.raises(ValueError, match=r"sgd_update: hyper must hold 1 numbers.*got float32\[2\]"):
        ops.sgd_update(w, w, lr, Tensor([0.0, 0.0]))
    with pytest.raises(ValueError, match=r"sgd_update: skip must hold one bool; got float32\[1\]"):
        ops.sgd_update(w, w, lr, Tensor([0.0]), Tensor([0.0]))
