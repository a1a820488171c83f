"""Ways to use a trace: what the function sees by name, through closures, globals and objects, changes between calls."""

from __future__ import annotations

import functools
import itertools
import random
import types
from typing import Any

import numpy as np
from trace_attack import CASES, Run, case
from trace_cases_arguments import ramp

import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import Parameter, Tensor
from megengine.autodiff import GradManager


def each(t: Run, fn: Any, change: Any, values: Any, bodies: int | None = None) -> None:
    """Two calls after each change."""
    f = t(fn)
    for v in values:
        change(v)
        t.call(f, ramp(3))
        t.call(f, ramp(3, start=1))
    if bodies is not None:
        t.python_ran_at_most(bodies)


@case()
def a_variable_of_the_closure(t: Run) -> None:
    k = 1.0

    def change(v: float) -> None:
        nonlocal k
        k = v

    each(t, lambda x: x * k, change, (2.0, 3.0, 2.0))


@case()
def a_tensor_variable_of_the_closure(t: Run) -> None:
    k = Tensor(1.0)

    def change(v: float) -> None:
        nonlocal k
        k = Tensor(v)

    each(t, lambda x: x * k, change, (2.0, 3.0, 2.0))


@case()
def a_dict_of_the_closure(t: Run) -> None:
    config = {"k": 1.0, "deep": {"list": [1.0]}}

    def change(v: float) -> None:
        config["k"] = v
        config["deep"]["list"][0] = v + 1  # type: ignore[index]

    each(t, lambda x: x * config["k"] + config["deep"]["list"][0], change, (2.0, 3.0, 2.0))  # type: ignore[index]


@case(refused="host")
def a_list_of_the_closure(t: Run) -> None:
    steps = [1.0]
    each(t, lambda x: sum(x * s for s in steps), steps.append, (2.0, 3.0))


@case()
def an_array_of_the_closure(t: Run) -> None:
    a = np.ones(3, np.float32)
    each(t, lambda x: x * a, lambda v: a.fill(v), (2.0, 3.0, 2.0))


@case()
def an_array_of_the_closure_made_a_tensor(t: Run) -> None:
    a = np.ones(3, np.float32)
    each(t, lambda x: x * Tensor(a), lambda v: a.fill(v), (2.0, 3.0, 2.0))


class Settings:
    def __init__(self) -> None:
        self.k = 1.0
        self.inner = types.SimpleNamespace(shift=0.0)

    def scaled(self, x: Tensor) -> Tensor:
        return x * self.k + self.inner.shift


@case()
def an_attribute_of_a_captured_object(t: Run) -> None:
    s = Settings()
    each(t, lambda x: x * s.k, lambda v: setattr(s, "k", v), (2.0, 3.0, 2.0))


@case()
def an_attribute_deeper_in_a_captured_object(t: Run) -> None:
    s = Settings()
    each(t, lambda x: x + s.inner.shift, lambda v: setattr(s.inner, "shift", v), (2.0, 3.0, 2.0))


@case()
def a_method_of_a_captured_object(t: Run) -> None:
    s = Settings()
    each(t, lambda x: s.scaled(x), lambda v: setattr(s, "k", v), (2.0, 3.0, 2.0))


@case()
def a_bound_method_traced(t: Run) -> None:
    s = Settings()
    each(t, s.scaled, lambda v: setattr(s, "k", v), (2.0, 3.0, 2.0))


K = 1.0
TABLE = {"k": 1.0}


def set_global(v: float) -> None:
    global K
    K = v


@case()
def a_global(t: Run) -> None:
    each(t, lambda x: x * K, set_global, (2.0, 3.0, 2.0))


@case()
def a_global_dict(t: Run) -> None:
    each(t, lambda x: x * TABLE["k"], lambda v: TABLE.update(k=v), (2.0, 3.0, 2.0))


def by_global(x: Tensor) -> Tensor:
    return x * K + 1


@case()
def a_global_of_a_function_called(t: Run) -> None:
    each(t, lambda x: by_global(x), set_global, (2.0, 3.0, 2.0))


@case(refused="host")
def a_function_replaced(t: Run) -> None:
    fn: Any = F.relu

    def change(v: Any) -> None:
        nonlocal fn
        fn = v

    each(t, lambda x: fn(x - 0.25), change, (F.relu, F.sigmoid, F.relu))


@case()
def a_default_argument_changed(t: Run) -> None:
    def fn(x: Tensor, scale: list[float] = [1.0]) -> Tensor:  # noqa: B006
        return x * scale[0]

    each(t, fn, lambda v: fn.__defaults__[0].__setitem__(0, v), (2.0, 3.0, 2.0))  # type: ignore[index]


class Tuned(M.Module):
    k = 1.0

    def forward(self, x: Tensor) -> Tensor:
        return x * self.k


@case()
def an_attribute_of_the_class_of_a_module(t: Run) -> None:
    net = Tuned()
    try:
        each(t, lambda x: net(x), lambda v: setattr(Tuned, "k", v), (2.0, 3.0, 2.0))
    finally:
        Tuned.k = 1.0


@case()
def forward_replaced_on_the_object(t: Run) -> None:
    net = Tuned()
    each(t, lambda x: net(x), lambda v: setattr(net, "forward", lambda x: x * v), (2.0, 3.0, 2.0))


@case()
def a_cached_function(t: Run) -> None:
    @functools.cache
    def table(n: int) -> Tensor:
        return F.arange(n) * 2

    f = t(lambda x: x + table(x.shape[0]))
    for n in (3, 3, 4, 4, 3):
        t.call(f, ramp(n))


@case()
def a_table_of_sizes(t: Run) -> None:
    table: dict[tuple[int, int], Tensor] = {}

    def scale(x: Tensor) -> Tensor:
        size = (x.shape[0], x.shape[1])
        if size not in table:
            table[size] = F.ones(x.shape[1]) * x.shape[0]
        return x * table[size]

    f = t(scale)
    for shape in ((2, 3), (2, 3), (4, 3), (2, 3), (4, 3), (4, 3), (3, 2), (2, 3), (3, 2)):
        t.call(f, ramp(*shape))


@case()
def an_iterator_of_the_closure(t: Run) -> None:
    counter = itertools.count(1)
    f = t(lambda x: x * next(counter))
    for i in range(4):
        t.call(f, ramp(3, start=i))


@case()
def a_generator_of_the_closure(t: Run) -> None:
    it = (Tensor([float(i)]) for i in range(9))
    f = t(lambda x: x * next(it))
    for i in range(4):
        t.call(f, ramp(3, start=i))


@case()
def a_counter_of_the_closure(t: Run) -> None:
    n = 0

    def fn(x: Tensor) -> Tensor:
        nonlocal n
        n += 1
        return x * n

    f = t(fn)
    for i in range(4):
        t.call(f, ramp(3, start=i))


@case()
def a_warm_up_counted_in_a_dict(t: Run) -> None:
    state = {"step": 0}

    def fn(x: Tensor) -> Tensor:
        state["step"] += 1
        return x * min(1.0, state["step"] / 3)

    f = t(fn)
    t.watch(state)
    for i in range(6):
        t.call(f, ramp(3, start=i))


@case()
def a_network_in_a_dict(t: Run) -> None:
    nets = {"a": M.Linear(3, 3), "b": M.Linear(3, 3)}
    which = "a"

    def change(v: str) -> None:
        nonlocal which
        which = v

    each(t, lambda x: nets[which](x), change, ("a", "b", "a"))


@case()
def a_network_in_an_object(t: Run) -> None:
    s = types.SimpleNamespace(net=M.Linear(3, 3))
    each(t, lambda x: s.net(x), lambda v: setattr(s, "net", M.Linear(3, 3)), (1, 2, 3))


@case()
def a_trainer_with_methods(t: Run) -> None:
    class Trainer:
        def __init__(self) -> None:
            self.net = M.Linear(3, 2)
            self.gm = GradManager().attach(self.net.parameters())
            self.opt = optim.SGD(self.net.parameters(), 0.1, momentum=0.9)
            self.weight = 1.0

        def step(self, x: Tensor) -> Tensor:
            with self.gm:
                loss = (self.net(x) ** 2).mean() * self.weight
                self.gm.backward(loss)
            self.opt.step().clear_grad()
            return loss

    trainer = Trainer()
    t.watch(trainer.net, trainer.opt)
    f = t(trainer.step)
    for i in range(8):
        if i == 3:
            trainer.weight = 0.5
        if i == 5:
            trainer.opt.param_groups[0]["lr"] = 0.01
        t.call(f, ramp(2, 3, start=i))
    t.python_ran_at_most(2)


@case()
def numpy_random_numbers(t: Run) -> None:
    f = t(lambda x: x * float(np.random.rand()))
    for i in range(4):
        t.call(f, ramp(3, start=i))


@case()
def python_random_numbers(t: Run) -> None:
    random.seed(1)

    def fn(x: Tensor) -> Tensor:
        return F.relu(x) if random.random() < 0.5 else x * random.random()

    f = t(fn)
    for i in range(8):
        t.call(f, ramp(3, start=i))


CASES["python_random_numbers"].refused = frozenset({"host"})


@case()
def an_array_in_a_module(t: Run) -> None:
    class Table(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = np.ones(3, np.float32)
            self.nested = {"a": [1.0, {"b": 2.0}]}

        def forward(self, x: Tensor) -> Tensor:
            return x * Tensor(self.table) + self.nested["a"][1]["b"]  # type: ignore[index]

    net = Table()

    def change(v: float) -> None:
        net.table[:] = v
        net.nested["a"][1]["b"] = v  # type: ignore[index]

    each(t, lambda x: net(x), change, (2.0, 3.0, 2.0))


class Slotted:
    __slots__ = ("k",)

    def __init__(self) -> None:
        self.k = 1.0


@case()
def an_object_with_slots(t: Run) -> None:
    s = Slotted()
    each(t, lambda x: x * s.k, lambda v: setattr(s, "k", v), (2.0, 3.0, 2.0))


class Registry:
    k = 1.0


@case()
def an_attribute_of_a_class(t: Run) -> None:
    each(t, lambda x: x * Registry.k, lambda v: setattr(Registry, "k", v), (2.0, 3.0, 2.0))


@case()
def an_attribute_of_a_python_module(t: Run) -> None:
    settings = types.ModuleType("settings")
    each(t, lambda x: x * settings.k, lambda v: setattr(settings, "k", v), (2.0, 3.0, 2.0))


@case()
def a_property_of_an_object(t: Run) -> None:
    class Warm:
        def __init__(self) -> None:
            self._steps = 1

        @property
        def factor(self) -> float:
            return 1.0 / self._steps

    s = Warm()
    each(t, lambda x: x * s.factor, lambda v: setattr(s, "_steps", v), (1, 2, 4))


@case()
def the_mode_of_a_module_in_an_object_that_is_not_called(t: Run) -> None:
    class World:
        def __init__(self) -> None:
            self.net = M.Sequential(M.Linear(3, 3), M.Dropout(0.5))

    w = World()
    f = t(lambda x: F.relu(x - 0.5) if w.net.training else x * 2)
    for mode in (True, True, False, False, True):
        w.net.train(mode)
        t.call(f, ramp(3))


@case()
def the_mode_of_a_module_before_a_result_sized_by_values(t: Run) -> None:
    class World:
        def __init__(self) -> None:
            self.net = M.Dropout(0.5)

    w = World()

    def fn(x: Tensor) -> Tensor:
        y = F.exp(x) if w.net.training else x * 2
        return y[y > 1.0] + 1

    f = t(fn)
    for mode in (True, True, False, False, True):
        w.net.train(mode)
        t.call(f, ramp(8))


class HandMade(optim.Optimizer):
    """An optimizer that reads its groups as plain Python."""

    def __init__(self, params: Any, lr: float, power: float = 1.0) -> None:
        super().__init__(params, {"lr": lr, "power": power})

    def _create_state(self, param_group: dict[str, Any]) -> None:
        for p in param_group["params"]:
            self._add_state(p, "sum")

    def _updates(self, param_group: dict[str, Any]) -> None:
        for p in param_group["params"]:
            if p.grad is None:
                continue
            s = self._state[p]["sum"]
            s += p.grad**2
            p -= param_group["lr"] * p.grad / (s + 1) ** param_group["power"]


@case()
def an_optimizer_of_ones_own(t: Run) -> None:
    w = Parameter([1.0, 2.0])
    opt, gm = HandMade([w], 0.1), GradManager().attach([w])

    def step(x: Tensor) -> Tensor:
        with gm:
            loss = (w * w * x).sum()
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    f = t(step)
    t.watch(w, opt)
    for i in range(8):
        if i == 2:
            opt.param_groups[0]["lr"] = 0.2
        if i == 4:
            opt.param_groups[0]["power"] = 0.5
        if i == 6:
            opt.param_groups[0]["lr"] = Tensor(0.05)
        t.call(f, ramp(2, start=i))


@case()
def an_optimizer_derived_from_another(t: Run) -> None:
    class Scaled(optim.SGD):
        factor = 1.0

        def _updates(self, param_group: dict[str, Any]) -> None:
            for p in param_group["params"]:
                if p.grad is not None:
                    p.grad *= self.factor
            super()._updates(param_group)

    w = Parameter([1.0, 2.0])
    opt, gm = Scaled([w], 0.1, momentum=0.9), GradManager().attach([w])

    def step(x: Tensor) -> Tensor:
        with gm:
            loss = (w * w * x).sum()
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    f = t(step)
    t.watch(w, opt)
    for i in range(6):
        if i == 3:
            opt.factor = 0.5
        t.call(f, ramp(2, start=i))


@case()
def a_trainer_with_a_sampler_and_a_log(t: Run) -> None:
    """Iterators and generators that the step does not touch are no reason to run Python."""

    class Trainer:
        def __init__(self) -> None:
            self.rng, self.plain, self.left = np.random.RandomState(0), random.Random(1), iter([1, 2, 3])
            self.generator = np.random.default_rng(2)
            self.w = Parameter([1.0, 2.0])

        def step(self, x: Tensor) -> Tensor:
            self.w[...] = self.w * 2 + x
            return self.w.sum()

    trainer = Trainer()
    f = t(trainer.step)
    t.watch(trainer.w)
    for i in range(5):
        t.call(f, ramp(2, start=i))
    t.python_ran_at_most(2)


@case()
def generators_of_random_numbers_in_an_object(t: Run) -> None:
    class Noise:
        def __init__(self) -> None:
            self.a, self.b, self.c = np.random.RandomState(0), random.Random(1), np.random.default_rng(2)
            self.it, self.count = iter([1.0, 2.0, 3.0, 4.0, 5.0]), itertools.count(1)

    n = Noise()
    draws: list[Any] = [
        lambda: n.a.rand(),
        lambda: n.b.random(),
        lambda: n.c.random(),
        lambda: next(n.it),
        lambda: next(n.count),
    ]
    for draw in draws:
        f = t(lambda x, draw=draw: x * float(draw()))
        g = t(lambda x, draw=draw: x * float(draw()))
        for i in range(2):
            t.call(f, ramp(2, start=i))
            t.call(g, ramp(2, start=i))
