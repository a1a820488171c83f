"""Ways to use a trace: training steps whose optimizer, clipping or scaling changes between calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from trace_attack import CASES, Run, case
from trace_cases_arguments import ramp

import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import Parameter, Tensor
from megengine.autodiff import GradManager

Change = Callable[[Any], Any]


def training(
    t: Run,
    make: Callable[[Any], Any],
    *changes: Change,
    body: Callable[..., Any] | None = None,
    net: M.Module | None = None,
    calls: int = 2,
    bodies: int | None = None,
) -> None:
    """A few traced steps before, between and after the changes of the optimizer (None: no change)."""
    net = net or M.Sequential(M.Linear(3, 4), M.ReLU(), M.Linear(4, 2))
    opt = make(net.parameters())
    gm = GradManager().attach(net.parameters())

    def step(x: Tensor, y: Tensor) -> Tensor:
        with gm:
            loss = ((net(x) - y) ** 2).mean()
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    f = t((lambda x, y: body(net, gm, opt, x, y)) if body else step)
    t.watch(net, opt)
    i = 0
    for change in (None, *changes):
        if change:
            change(opt)
        for _ in range(calls):
            t.call(f, ramp(2, 3, start=0.3 * i), ramp(2, 2, start=-0.1 * i))
            i += 1
    if bodies is not None:
        t.python_ran_at_most(bodies)


def put(name: str, value: Any, group: int = 0) -> Change:
    def change(opt: Any) -> None:
        opt.param_groups[group][name] = value

    return change


def sgd(**options: Any) -> Callable[[Any], Any]:
    return lambda p: optim.SGD(p, **{"lr": 0.1, **options})


# One case for each optimizer and each of its numbers: two new values, then the first again.
NUMBERS: dict[str, tuple[Callable[[Any], Any], dict[str, tuple[Any, ...]]]] = {
    "sgd": (sgd(), {"lr": (0.2, 0.05, 0.1), "weight_decay": (0.1, 0.2, 0.0)}),
    "sgd_momentum": (
        sgd(momentum=0.9),
        {"lr": (0.2, 0.05, 0.1), "momentum": (0.5, 0.8, 0.9), "weight_decay": (0.1, 0.2, 0.0)},
    ),
    "sgd_nesterov": (sgd(momentum=0.9, nesterov=True), {"momentum": (0.5, 0.8, 0.9)}),
    "adam": (
        lambda p: optim.Adam(p, 0.1),
        {
            "lr": (0.2, 0.05, 0.1),
            "betas": ((0.5, 0.9), (0.8, 0.99), (0.9, 0.999)),
            "eps": (0.1, 0.01, 1e-8),
            "weight_decay": (0.1, 0.2, 0.0),
        },
    ),
    "adamw": (
        lambda p: optim.AdamW(p, 0.1),
        {"lr": (0.2, 0.05), "betas": ((0.5, 0.9), (0.8, 0.99)), "weight_decay": (0.0, 0.2)},
    ),
    "adagrad": (
        lambda p: optim.Adagrad(p, 0.1),
        {"lr": (0.2, 0.05), "lr_decay": (0.1, 0.5), "eps": (0.1, 0.01), "weight_decay": (0.1, 0.0)},
    ),
    "adadelta": (
        lambda p: optim.Adadelta(p),
        {"lr": (0.2, 0.05), "rho": (0.5, 0.7), "eps": (0.1, 0.01), "weight_decay": (0.1, 0.0)},
    ),
    "lamb": (
        lambda p: optim.LAMB(p, 0.1),
        {"lr": (0.2, 0.05), "betas": ((0.5, 0.9), (0.8, 0.99)), "eps": (0.1, 0.01), "weight_decay": (0.1, 0.2, 0.0)},
    ),
}


def _add_number_cases() -> None:
    for kind, (make, numbers) in NUMBERS.items():
        for name, values in numbers.items():

            def run(t: Run, make: Any = make, name: str = name, values: Any = values) -> None:
                training(t, make, *(put(name, v) for v in values))

            run.__name__ = f"{kind}_{name}_changed"
            case()(run)


_add_number_cases()
assert "adam_betas_changed" in CASES


@case()
def numbers_that_change_at_every_step(t: Run) -> None:
    def change(i: int) -> Change:
        def both(opt: Any) -> None:
            opt.param_groups[0].update(lr=0.1 / (i + 1), momentum=0.9 - 0.05 * i, weight_decay=0.01 * i)

        return both

    training(t, sgd(momentum=0.9), *(change(i) for i in range(8)), calls=1, bodies=1)


@case()
def nesterov_switched(t: Run) -> None:
    training(t, sgd(momentum=0.9), *(lambda o, v=v: setattr(o, "nesterov", v) for v in (True, False)))


@case()
def momentum_switched_off_and_on(t: Run) -> None:
    training(t, sgd(momentum=0.9), put("momentum", 0.0), put("momentum", 0.9))


@case()
def momentum_switched_on_later(t: Run) -> None:
    training(t, sgd(), put("momentum", 0.9), put("momentum", 0.0), put("momentum", 0.5))


@case()
def lamb_always_adapts(t: Run) -> None:
    make = NUMBERS["lamb"][0]
    training(t, make, lambda o: setattr(o, "always_adapt", True), lambda o: setattr(o, "bias_correction", False))


@case()
def lamb_with_float32_copies(t: Run) -> None:
    net = M.Linear(3, 2)
    for p in net.parameters():
        p._reset(p.astype("float16"))

    def body(net: Any, gm: Any, opt: Any, x: Tensor, y: Tensor) -> Tensor:
        with gm:
            loss = ((net(x.astype("float16")).astype("float32") - y) ** 2).mean()
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    training(t, lambda p: optim.LAMBFp16(p, 0.1), put("lr", 0.2), put("betas", (0.5, 0.9)), body=body, net=net)


def half(kind: str) -> Callable[[Run], None]:
    def run(t: Run) -> None:
        net = M.Linear(3, 2)
        for p in net.parameters():
            p._reset(p.astype("float16"))

        def body(net: Any, gm: Any, opt: Any, x: Tensor, y: Tensor) -> Tensor:
            with gm:
                loss = ((net(x.astype("float16")).astype("float32") - y) ** 2).mean()
                gm.backward(loss)
            opt.step().clear_grad()
            return loss

        training(t, NUMBERS[kind][0], put("lr", 0.2), put("weight_decay", 0.1), body=body, net=net)

    run.__name__ = f"{kind}_of_half_precision"
    return run


for _kind in ("adagrad", "adadelta", "lamb"):
    case()(half(_kind))


@case()
def lr_is_a_tensor(t: Run) -> None:
    training(t, sgd(), put("lr", Tensor(0.2)), put("lr", Tensor(0.05)), put("lr", 0.1), put("lr", Tensor(0.3)))


@case()
def lr_is_a_tensor_for_a_while(t: Run) -> None:
    training(t, sgd(), put("lr", Tensor(0.2)), put("lr", 0.3), put("lr", 0.4), put("lr", Tensor(0.05)), bodies=3)


@case()
def lr_is_a_tensor_that_is_assigned(t: Run) -> None:
    lr = Tensor(0.1)
    training(t, sgd(), put("lr", lr), *(lambda o, v=v: lr.__setitem__(Ellipsis, v) for v in (0.2, 0.3)))


@case()
def lr_is_a_tensor_from_the_start(t: Run) -> None:
    lr = Tensor(0.1)
    training(t, lambda p: optim.Adam(p, lr), *(lambda o, v=v: lr.__setitem__(Ellipsis, lr * v) for v in (2.0, 0.5)))


@case()
def lr_is_a_numpy_scalar(t: Run) -> None:
    training(t, sgd(), put("lr", np.float32(0.2)), put("lr", np.float64(0.05)), put("lr", 1), bodies=1)


@case()
def lr_computed_in_the_body(t: Run) -> None:
    base = Tensor(0.1)

    def body(net: Any, gm: Any, opt: Any, x: Tensor, y: Tensor) -> Tensor:
        for group in opt.param_groups:
            group["lr"] = base * x.mean()
        with gm:
            loss = ((net(x) - y) ** 2).mean()
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    training(t, sgd(), lambda o: base.__setitem__(Ellipsis, 0.2), body=body)


@case()
def a_schedule(t: Run) -> None:
    schedules: list[Any] = []

    def make(p: Any) -> Any:
        opt = optim.SGD(p, 0.1, momentum=0.9)
        schedules.append(optim.MultiStepLR(opt, [1, 3], gamma=0.5))
        return opt

    training(t, make, *[lambda o: schedules[0].step()] * 4, bodies=1)


@case()
def groups_with_numbers_of_their_own(t: Run) -> None:
    def make(p: Any) -> Any:
        p = list(p)
        return optim.SGD([{"params": p[:2], "lr": 0.2}, {"params": p[2:], "weight_decay": 0.1}], 0.1, momentum=0.9)

    training(t, make, put("lr", 0.3), put("lr", 0.4, 1), put("momentum", 0.5, 1), put("weight_decay", 0.0, 1))


@case()
def a_group_added(t: Run) -> None:
    net = M.Sequential(M.Linear(3, 4), M.ReLU(), M.Linear(4, 2))

    def make(p: Any) -> Any:
        return optim.SGD(list(p)[:2], 0.1, momentum=0.9)

    training(t, make, lambda o: o.add_param_group({"params": list(net.parameters())[2:], "lr": 0.3}), net=net)


@case()
def a_group_removed(t: Run) -> None:
    def make(p: Any) -> Any:
        p = list(p)
        return optim.SGD([{"params": p[:2]}, {"params": p[2:]}], 0.1)

    def drop(opt: Any) -> None:
        del opt.param_groups[1]

    training(t, make, drop)


@case()
def groups_replaced(t: Run) -> None:
    def swap(opt: Any) -> None:
        opt.param_groups = [{**g, "lr": 0.5} for g in opt.param_groups]

    training(t, sgd(), put("lr", 0.2), swap)


@case()
def parameters_taken_out_of_a_group(t: Run) -> None:
    drop = lambda o: o.param_groups[0]["params"].pop()  # noqa: E731
    training(t, sgd(momentum=0.9), drop, drop)


@case()
def a_parameter_of_a_group_replaced(t: Run) -> None:
    w = [Parameter([1.0, 2.0]), Parameter([3.0, 4.0])]
    opt, gm = optim.SGD([w[0]], 0.1), GradManager().attach(w)

    def step(x: Tensor) -> Tensor:
        with gm:
            loss = (w[0] * w[1] * x).sum()
            gm.backward(loss)
        opt.step()
        gm.attached_tensors()
        for p in w:
            p.grad = None
        return loss

    f = t(step)
    t.watch(*w)
    for i in range(6):
        if i in (2, 4):
            opt.param_groups[0]["params"][0] = w[i // 2 % 2]
        t.call(f, ramp(2, start=i))


@case()
def gradients_left_behind_and_returned(t: Run) -> None:
    w = Parameter([1.0, 2.0])
    gm = GradManager().attach([w])

    def step(x: Tensor) -> Any:
        with gm:
            gm.backward((w * w * x).sum())
        return w.grad

    f = t(step)
    t.watch(w)
    kept = []
    for i in range(5):
        g = t.call(f, ramp(2, start=i))
        kept.append(g)
        t.see(g is w.grad)
        if i % 2:
            w.grad = None
    t.see(kept)


@case()
def state_loaded_into_the_optimizer(t: Run) -> None:
    other = optim.SGD([Parameter(np.zeros(s, np.float32)) for s in ((4,), (4, 3), (2,), (2, 4))], 0.5, momentum=0.7)
    state = other.state_dict()
    for slot in state["state"].values():
        slot["momentum_buffer"] = slot["momentum_buffer"] + 0.5
    shapes: list[Any] = []

    def load(opt: Any) -> None:
        for (n, slot), p in zip(state["state"].items(), opt.param_groups[0]["params"]):
            slot["momentum_buffer"] = np.full(p.shape, 0.25 * n, np.float32)
        shapes.append(len(state["state"]))
        opt.load_state_dict(state)

    training(t, sgd(momentum=0.9), load, load)


@case()
def state_of_adam_loaded(t: Run) -> None:
    saved: list[Any] = []
    training(
        t,
        NUMBERS["adam"][0],
        lambda o: saved.append(o.state_dict()),
        lambda o: o.load_state_dict(saved[0]),
        put("betas", (0.5, 0.9)),
        lambda o: o.load_state_dict(saved[0]),
    )


@case()
def two_optimizers(t: Run) -> None:
    net = M.Sequential(M.Linear(3, 4), M.ReLU(), M.Linear(4, 2))
    second = optim.Adam(net[2].parameters(), 0.05)

    def body(net: Any, gm: Any, opt: Any, x: Tensor, y: Tensor) -> Tensor:
        with gm:
            loss = ((net(x) - y) ** 2).mean()
            gm.backward(loss)
        opt.step()
        second.step()
        opt.clear_grad()
        second.clear_grad()
        return loss

    t.watch(second)
    change = lambda o: second.param_groups[0].update(lr=0.5)  # noqa: E731
    training(t, lambda p: optim.SGD(list(p)[:2], 0.1), change, put("lr", 0.3), body=body, net=net)


@case()
def an_optimizer_as_an_argument(t: Run) -> None:
    w = Parameter([1.0, 2.0])
    opts = [optim.SGD([w], 0.1), optim.SGD([w], 0.5), optim.Adam([w], 0.1)]
    gm = GradManager().attach([w])

    def step(x: Tensor, opt: Any) -> Tensor:
        with gm:
            loss = (w * x).sum()
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    f = t(step)
    t.watch(w, *opts)
    for i in (0, 1, 2, 0, 1, 2):
        t.call(f, ramp(2, start=i), opts[i])


@case()
def an_optimizer_replaced(t: Run) -> None:
    w = Parameter([1.0, 2.0])
    box = {"opt": optim.SGD([w], 0.1)}
    gm = GradManager().attach([w])

    def step(x: Tensor, box: dict[str, Any]) -> Tensor:
        with gm:
            loss = (w * x).sum()
            gm.backward(loss)
        box["opt"].step().clear_grad()
        return loss

    f = t(step)
    t.watch(w)
    for lr in (0.1, 0.2, 0.3):
        box["opt"] = optim.SGD([w], lr)
        t.call(f, ramp(2), box)
        t.call(f, ramp(2), box)


@case()
def parameters_without_a_gradient(t: Run) -> None:
    net = M.Sequential(M.Linear(3, 2), M.Linear(2, 2))

    def body(net: Any, gm: Any, opt: Any, x: Tensor, y: Tensor) -> Tensor:
        with gm:
            loss = ((net[0](x) - y) ** 2).mean()
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    training(t, sgd(momentum=0.9), put("lr", 0.2), body=body, net=net)


@case()
def a_part_used_now_and_then(t: Run) -> None:
    a, b = M.Linear(3, 2), M.Linear(3, 2)
    params = [*a.parameters(), *b.parameters()]
    opt, gm = optim.Adam(params, 0.1), GradManager().attach(params)

    def step(x: Tensor, both: bool) -> Tensor:
        with gm:
            loss = (a(x) + b(x) if both else a(x)).mean()
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    f = t(step)
    t.watch(a, b, opt)
    for both in (True, False, True, False, False):
        t.call(f, ramp(2, 3), both)


@case()
def gradients_added_up_over_calls(t: Run) -> None:
    w = Parameter([1.0, 2.0])
    opt, gm = optim.SGD([w], 0.1, momentum=0.9), GradManager().attach([w])

    def step(x: Tensor, last: bool) -> Tensor:
        with gm:
            loss = (w * w * x).sum()
            gm.backward(loss)
        if last:
            opt.step().clear_grad()
        return loss

    f = t(step)
    t.watch(w, opt)
    for i in range(9):
        t.call(f, ramp(2, start=i), i % 3 == 2)


@case()
def step_outside(t: Run) -> None:
    w = Parameter([1.0, 2.0])
    opt, gm = optim.SGD([w], 0.1, momentum=0.9), GradManager().attach([w])

    def forward_backward(x: Tensor) -> Tensor:
        with gm:
            loss = (w * w * x).sum()
            gm.backward(loss)
        return loss

    f = t(forward_backward)
    t.watch(w, opt)
    for i in range(5):
        t.call(f, ramp(2, start=i))
        opt.step().clear_grad()
        t.see(w, opt)


@case()
def step_outside_and_gradients_kept(t: Run) -> None:
    w = Parameter([1.0, 2.0])
    gm = GradManager().attach([w])

    def forward_backward(x: Tensor) -> Tensor:
        with gm:
            loss = (w * w * x).sum()
            gm.backward(loss)
        return loss

    f = t(forward_backward)
    t.watch(w)
    for i in range(4):
        t.call(f, ramp(2, start=i))
    w.grad = None
    t.call(f, ramp(2))


@case()
def only_the_step_traced(t: Run) -> None:
    w = Parameter([1.0, 2.0])
    opt, gm = optim.Adam([w], 0.1), GradManager().attach([w])
    f = t(lambda: opt.step() and None)
    t.watch(w, opt)
    for i in range(5):
        with gm:
            gm.backward((w * w * ramp(2, start=i)).sum())
        t.call(f)
        opt.clear_grad()
        if i == 3:
            t.call(f)  # no gradients: nothing happens


@case()
def clear_grad_outside(t: Run) -> None:
    w = Parameter([1.0, 2.0])
    opt, gm = optim.SGD([w], 0.1), GradManager().attach([w])

    def step(x: Tensor) -> Tensor:
        with gm:
            loss = (w * w * x).sum()
            gm.backward(loss)
        opt.step()
        return loss

    f = t(step)
    t.watch(w)
    for i in range(5):
        t.call(f, ramp(2, start=i))
        if i != 2:
            opt.clear_grad()


@case()
def two_steps_in_one_call(t: Run) -> None:
    def body(net: Any, gm: Any, opt: Any, x: Tensor, y: Tensor) -> Any:
        losses = []
        for _ in range(2):
            with gm:
                loss = ((net(x) - y) ** 2).mean()
                gm.backward(loss)
            opt.step().clear_grad()
            losses.append(loss)
        return losses

    training(t, NUMBERS["adam"][0], put("lr", 0.2), put("eps", 0.1), body=body)


@case()
def gradients_set_to_zero(t: Run) -> None:
    import warnings

    def body(net: Any, gm: Any, opt: Any, x: Tensor, y: Tensor) -> Tensor:
        with gm:
            loss = ((net(x) - y) ** 2).mean()
            gm.backward(loss)
        opt.step()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            opt.zero_grad()
        return loss

    training(t, sgd(), put("lr", 0.2), body=body)


@case()
def gradients_written_by_hand(t: Run) -> None:
    def body(net: Any, gm: Any, opt: Any, x: Tensor, y: Tensor) -> Tensor:
        loss = net(x).mean()
        for p in net.parameters():
            p.grad = F.ones_like(p) * loss
        opt.step().clear_grad()
        return loss

    training(t, sgd(momentum=0.9), put("lr", 0.2), body=body)
