"""Ways to use a trace: training steps that clip and scale gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trace_attack import CASES, Run, case
from trace_cases_arguments import ramp
from trace_cases_training import NUMBERS, put, sgd, training

import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import Parameter, Tensor, amp
from megengine.autodiff import GradManager

# ---- clipping


def clipping(t: Run, clip: Callable[[Any, float], Any], limits: tuple[float, ...]) -> None:
    net = M.Linear(3, 2)
    opt, gm = optim.SGD(net.parameters(), 0.1), GradManager().attach(net.parameters())

    def step(x: Tensor, limit: float) -> Any:
        with gm:
            loss = (net(x) ** 2).mean()
            gm.backward(loss)
        seen = clip(net.parameters(), limit)
        opt.step().clear_grad()
        return loss, seen

    f = t(step)
    t.watch(net)
    for limit in limits:
        t.call(f, ramp(2, 3), limit)


@case()
def clip_norms(t: Run) -> None:
    clipping(t, optim.clip_grad_norm, (0.1, 0.1, 0.5, 100.0, 0.1))


@case()
def clip_norms_of_another_order(t: Run) -> None:
    clipping(t, lambda p, v: optim.clip_grad_norm(p, 0.1, ord=v), (2.0, 1.0, float("inf"), 2.0))


@case()
def clip_norm_as_a_tensor(t: Run) -> None:
    net = M.Linear(3, 2)
    limit = Tensor(0.1)
    opt, gm = optim.SGD(net.parameters(), 0.1), GradManager().attach(net.parameters())

    def step(x: Tensor) -> Any:
        with gm:
            gm.backward((net(x) ** 2).mean())
        norm = optim.clip_grad_norm(net.parameters(), limit)
        opt.step().clear_grad()
        return norm

    f = t(step)
    t.watch(net)
    for v in (0.1, 0.5, 100.0, 0.1):
        limit[...] = v
        t.call(f, ramp(2, 3))


@case()
def clip_values(t: Run) -> None:
    clipping(t, lambda p, v: optim.clip_grad_value(p, -v, v), (0.01, 0.01, 0.5, 100.0, 0.01))


@case()
def clipping_without_gradients(t: Run) -> None:
    net = M.Linear(3, 2)
    f = t(lambda: optim.clip_grad_norm(net.parameters(), 1.0))
    for _ in range(2):
        t.call(f)
    for p in net.parameters():
        p.grad = F.ones_like(p)
    for _ in range(2):
        t.call(f)
        t.see(net)


# ---- scaling


def scaling(
    t: Run,
    make: Callable[[Any], Any],
    scaler: amp.GradScaler,
    sizes: tuple[float, ...],
    body: Callable[..., Any] | None = None,
    change: Callable[[int], Any] | None = None,
    watch: tuple[str, ...] = ("scale_factor", "_growth_tracker"),
    bodies: int | None = None,
) -> None:
    """Steps whose loss is multiplied by ``sizes``; inf makes the gradients overflow."""
    net = M.Sequential(M.Linear(3, 4), M.Linear(4, 2))
    opt, gm = make(net.parameters()), GradManager().attach(net.parameters())

    def step(x: Tensor, size: Tensor) -> Any:
        with gm:
            loss = (net(x) ** 2).mean() * size
            scaler.backward(gm, loss)
        opt.step().clear_grad()
        return loss

    f = t((lambda x, size: body(net, gm, opt, scaler, x, size)) if body else step)
    t.watch(net, opt)
    for i, size in enumerate(sizes):
        if change:
            change(i)
        t.call(f, ramp(2, 3, start=0.1 * i), Tensor(size))
        t.see(*(getattr(scaler, n) for n in watch), sorted(scaler.state_dict().items()))
    if bodies is not None:
        t.python_ran_at_most(bodies)


INF = float("inf")
OVERFLOWS = (1.0, 1.0, INF, 1.0, INF, INF, 1.0, float("nan"), 2.0)


def _add_scaler_cases() -> None:
    for kind, (make, _) in NUMBERS.items():

        def run(t: Run, make: Any = make) -> None:
            scaling(t, make, amp.GradScaler(init_scale=1024.0, growth_interval=2), OVERFLOWS, bodies=1)

        run.__name__ = f"scaled_{kind}_with_overflows_and_growth"
        case()(run)


_add_scaler_cases()


@case()
def scaled_and_overflowed_at_the_first_call(t: Run) -> None:
    scaling(t, sgd(momentum=0.9), amp.GradScaler(init_scale=64.0), (INF, INF, 1.0, 1.0, INF, 1.0))


@case()
def scaled_by_a_factor_that_is_no_power_of_two(t: Run) -> None:
    scaler = amp.GradScaler(init_scale=1000.0 / 3, growth_factor=1.7, backoff_factor=0.3, growth_interval=2)
    scaling(t, sgd(), scaler, OVERFLOWS)


@case()
def scaled_without_checks(t: Run) -> None:
    scaling(t, sgd(), amp.GradScaler(init_scale=8.0, growth_interval=0), (1.0, 2.0, 3.0, 4.0))


@case()
def scaled_in_half_precision(t: Run) -> None:
    def body(net: Any, gm: Any, opt: Any, scaler: Any, x: Tensor, size: Tensor) -> Tensor:
        with gm:
            with amp.autocast():
                loss = (net(x) ** 2).mean() * size
            scaler.backward(gm, loss)
        opt.step().clear_grad()
        return loss

    scaling(t, NUMBERS["adam"][0], amp.GradScaler(init_scale=65536.0, growth_interval=3), (1.0,) * 4 + (1e6, 1.0), body)


@case()
def scaled_and_clipped(t: Run) -> None:
    def body(net: Any, gm: Any, opt: Any, scaler: Any, x: Tensor, size: Tensor) -> Any:
        with gm:
            loss = (net(x) ** 2).mean() * size
            scaler.backward(gm, loss)
        norm = optim.clip_grad_norm(net.parameters(), 0.1)
        opt.step().clear_grad()
        return loss, norm

    scaling(t, sgd(momentum=0.9), amp.GradScaler(growth_interval=2), OVERFLOWS, body)


@case()
def scaled_and_clipped_by_value(t: Run) -> None:
    def body(net: Any, gm: Any, opt: Any, scaler: Any, x: Tensor, size: Tensor) -> Any:
        with gm:
            loss = (net(x) ** 2).mean() * size
            scaler.backward(gm, loss)
        optim.clip_grad_value(net.parameters(), -0.1, 0.1)
        opt.step().clear_grad()
        return loss

    scaling(t, sgd(momentum=0.9), amp.GradScaler(growth_interval=2), OVERFLOWS, body)


@case()
def unscaled_later(t: Run) -> None:
    def body(net: Any, gm: Any, opt: Any, scaler: Any, x: Tensor, size: Tensor) -> Any:
        with gm:
            loss = (net(x) ** 2).mean() * size
            scaler.backward(gm, loss, unscale_grad=False)
        scaler.unscale(net.parameters())
        opt.step().clear_grad()
        scaler.update()
        return loss

    scaling(t, sgd(momentum=0.9), amp.GradScaler(growth_interval=2), OVERFLOWS, body)


@case()
def scaled_twice_and_added_up(t: Run) -> None:
    def body(net: Any, gm: Any, opt: Any, scaler: Any, x: Tensor, size: Tensor) -> Any:
        for k in (size, 1.0):
            with gm:
                loss = (net(x) ** 2).mean() * k
                scaler.backward(gm, loss)
        opt.step().clear_grad()
        return loss

    scaling(t, sgd(momentum=0.9), amp.GradScaler(growth_interval=2), OVERFLOWS, body)


@case()
def scale_set_between_calls(t: Run) -> None:
    scaler = amp.GradScaler(init_scale=16.0, growth_interval=3)

    def change(i: int) -> None:
        if i == 2:
            scaler.update(128.0)
        if i == 4:
            scaler.scale_factor = 5.0
        if i == 5:
            scaler.load_state_dict(amp.GradScaler(init_scale=2.0, growth_interval=2).state_dict())

    scaling(t, sgd(), scaler, (1.0,) * 8, change=change)


@case()
def scaler_settings_changed(t: Run) -> None:
    scaler = amp.GradScaler(init_scale=16.0, growth_interval=3)

    def change(i: int) -> None:
        if i == 2:
            scaler.growth_interval = 1
        if i == 4:
            scaler.growth_factor = 3.0
        if i == 6:
            scaler.backoff_factor = 0.25

    scaling(t, sgd(), scaler, (1.0, 1.0, 1.0, 1.0, 1.0, INF, 1.0, INF, 1.0), change=change)


@case()
def scale_set_inside(t: Run) -> None:
    def body(net: Any, gm: Any, opt: Any, scaler: Any, x: Tensor, size: Tensor) -> Any:
        with gm:
            loss = (net(x) ** 2).mean() * size
            scaler.backward(gm, loss, update_scale=False)
        opt.step().clear_grad()
        scaler.update(32.0)
        return loss

    scaling(t, sgd(), amp.GradScaler(), (1.0, INF, 1.0, 1.0), body)


@case()
def scaled_inside_and_stepped_outside(t: Run) -> None:
    w = Parameter([1.0, 2.0])
    scaler = amp.GradScaler(growth_interval=2)
    opt, gm = optim.SGD([w], 0.1, momentum=0.9), GradManager().attach([w])

    def forward_backward(x: Tensor) -> Tensor:
        with gm:
            loss = (w * w * x).sum()
            scaler.backward(gm, loss)
        return loss

    f = t(forward_backward)
    t.watch(w, opt)
    for size in (1.0, INF, 1.0, INF, 2.0):
        t.call(f, Tensor([size, 1.0]))
        t.see(w.grad, scaler.scale_factor)
        opt.step().clear_grad()


@case()
def scaler_used_in_both_worlds(t: Run) -> None:
    w = Parameter([1.0, 2.0])
    scaler = amp.GradScaler(growth_interval=2)
    opt, gm = optim.SGD([w], 0.1), GradManager().attach([w])

    def step(x: Tensor) -> Tensor:
        with gm:
            loss = (w * w * x).sum()
            scaler.backward(gm, loss)
        opt.step().clear_grad()
        return loss

    f = t(step)
    t.watch(w)
    for i, size in enumerate((1.0, INF, 1.0, 1.0, INF, 1.0, 2.0)):
        t.call(step if i % 3 == 2 else f, Tensor([size, 1.0]))
        t.see(scaler.state_dict())


@case()
def scaled_gradients_looked_at(t: Run) -> None:
    def body(net: Any, gm: Any, opt: Any, scaler: Any, x: Tensor, size: Tensor) -> Any:
        with gm:
            loss = (net(x) ** 2).mean() * size
            scaler.backward(gm, loss)
        total = [p.grad.sum() for p in net.parameters() if p.grad is not None]
        opt.step().clear_grad()
        return loss, total

    scaling(t, sgd(), amp.GradScaler(growth_interval=2), (1.0, 1.0, INF, 1.0), body)


CASES["scaled_gradients_looked_at"].refused = frozenset({"host", "without_host"})
CASES["scaled_gradients_looked_at"].partial = True


@case()
def a_step_taken_when_gradients_are_finite(t: Run) -> None:
    """A conditional step by hand: a select."""

    def body(net: Any, gm: Any, opt: Any, x: Tensor, y: Tensor) -> Tensor:
        with gm:
            loss = ((net(x) - y) ** 2).mean()
            gm.backward(loss)
        ok = loss < 1.0
        for p in net.parameters():
            p.grad = F.where(ok, p.grad, F.zeros_like(p.grad))
        opt.step().clear_grad()
        return loss

    training(t, sgd(), put("lr", 0.2), body=body)
