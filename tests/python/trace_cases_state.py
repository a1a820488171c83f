"""Ways to use a trace: captured state, modules, modes, devices and random numbers that change between calls."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
from trace_attack import Run, case
from trace_cases_arguments import ones, ramp

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Parameter, Tensor, amp


class Block(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.bn, self.drop = M.Linear(4, 4), M.BatchNorm1d(4), M.Dropout(0.5)
        self.scale = 1.0
        self.steps = [1.0]

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(F.relu(self.bn(self.fc(x)))) * self.scale


def calls(t: Run, net: M.Module, *changes: Any, fn: Any = None, shape: tuple[int, ...] = (3, 4)) -> None:
    """Two calls before, between and after the changes."""
    f = t(fn or (lambda x: net(x)))
    t.watch(net)
    t.call(f, ramp(*shape))
    t.call(f, ramp(*shape, start=1))
    for i, change in enumerate(changes):
        change()
        t.call(f, ramp(*shape, start=i + 2))
        t.call(f, ramp(*shape, start=i + 3))


@case()
def eval_and_train(t: Run) -> None:
    net = Block()
    calls(t, net, net.eval, net.train, net.eval)


@case()
def eval_and_train_keep_their_recordings(t: Run) -> None:
    net = M.BatchNorm1d(4)
    f = t(lambda x: net(x))
    t.watch(net)
    for i in range(8):
        net.train(i % 2 == 0)
        t.call(f, ramp(3, 4, start=i))
    t.python_ran_at_most(4)


@case()
def dropout_in_eval(t: Run) -> None:
    net = M.Dropout(0.5)
    calls(t, net, net.eval, net.train)


@case()
def one_submodule_in_eval(t: Run) -> None:
    net = Block()
    calls(t, net, net.bn.eval, net.drop.eval, net.bn.train)


@case()
def batch_norm_statistics(t: Run) -> None:
    net = M.BatchNorm1d(4)
    calls(t, net, lambda: None, lambda: None)
    t.python_ran_at_most(1)


@case()
def batch_norm_momentum_changed(t: Run) -> None:
    net = M.BatchNorm1d(4)
    calls(t, net, lambda: setattr(net, "momentum", 0.5), lambda: setattr(net, "eps", 0.1))


@case()
def batch_norm_frozen(t: Run) -> None:
    net = M.BatchNorm1d(4)
    calls(t, net, lambda: setattr(net, "freeze", True), lambda: setattr(net, "freeze", False))


@case()
def dropout_rate_changed(t: Run) -> None:
    net = M.Dropout(0.5)
    calls(t, net, lambda: setattr(net, "drop_prob", 0.1), lambda: setattr(net, "drop_prob", 0.9))


@case()
def an_attribute_changed(t: Run) -> None:
    net = Block()
    calls(t, net, *(lambda v=v: setattr(net, "scale", v) for v in (2.0, 3.0, 1.0)))


@case()
def an_attribute_of_a_child_changed(t: Run) -> None:
    net = M.Sequential(M.Linear(4, 4), M.Sequential(M.LeakyReLU(0.1), M.Linear(4, 2)))
    calls(t, net, *(lambda v=v: setattr(net[1][0], "negative_slope", v) for v in (0.5, 0.25)))


@case()
def an_attribute_made_a_tensor(t: Run) -> None:
    net = Block()
    calls(t, net, lambda: setattr(net, "scale", Tensor(2.0)), lambda: setattr(net, "scale", Tensor(3.0)))


@case()
def an_attribute_deleted(t: Run) -> None:
    class Optional(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.extra = 2.0

        def forward(self, x: Tensor) -> Tensor:
            return x * getattr(self, "extra", 1.0)

    net = Optional()
    calls(t, net, lambda: delattr(net, "extra"), lambda: setattr(net, "extra", 5.0))


@case()
def hooks_added_and_removed(t: Run) -> None:
    net = M.Linear(4, 4)
    handles: list[Any] = []

    def add() -> None:
        handles.append(net.register_forward_hook(lambda m, i, o: o * 2))

    def add_before() -> None:
        handles.append(net.register_forward_pre_hook(lambda m, i: i[0] + 1))

    calls(t, net, add, add_before, lambda: handles[0].remove(), lambda: handles[1].remove())


@case()
def a_hook_on_a_child(t: Run) -> None:
    net = Block()
    net.eval()
    calls(t, net, lambda: net.fc.register_forward_hook(lambda m, i, o: o * 2) and None)


@case()
def a_hook_of_a_module_inside_a_function(t: Run) -> None:
    a, b = M.Linear(4, 4), M.Linear(4, 4)
    f = t(lambda x: b(a(x)))
    t.call(f, ramp(2, 4))
    a.register_forward_hook(lambda m, i, o: o * 2)
    t.call(f, ramp(2, 4))
    b.register_forward_hook(lambda m, i, o: o * 3)
    t.call(f, ramp(2, 4))
    t.call(f, ramp(2, 4))


@case()
def a_submodule_added(t: Run) -> None:
    net = M.Sequential(M.Linear(4, 4))
    calls(t, net, lambda: setattr(net, "1", M.ReLU()) or net.layer_keys.append("1"))


@case()
def a_submodule_that_forward_looks_for(t: Run) -> None:
    class Grown(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = M.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            for _, child in self.named_children():
                x = child(x)
            return x

    net = Grown()
    calls(t, net, lambda: setattr(net, "more", M.Linear(4, 4)), lambda: setattr(net, "other", M.Sigmoid()))


@case()
def a_submodule_replaced(t: Run) -> None:
    net = Block()
    calls(t, net, lambda: setattr(net, "fc", M.Linear(4, 4)), lambda: setattr(net, "bn", M.Identity()))


@case()
def a_sequential_item_replaced(t: Run) -> None:
    net = M.Sequential(M.Linear(4, 4), M.ReLU())
    calls(t, net, lambda: net.__setitem__(1, M.Sigmoid()), lambda: net.__setitem__(0, M.Linear(4, 4)))


@case()
def a_list_of_modules_changed(t: Run) -> None:
    class Listed(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = [M.Linear(4, 4)]

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    net = Listed()
    calls(t, net, lambda: net.layers.append(M.Linear(4, 4)), lambda: net.layers.pop(0) and None)


@case()
def a_list_of_numbers_in_a_module_changed(t: Run) -> None:
    class Steps(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = [1.0]

        def forward(self, x: Tensor) -> Tensor:
            for s in self.steps:
                x = x * 2 + s
            return x

    net = Steps()
    calls(t, net, lambda: net.steps.append(3.0), lambda: net.steps.__setitem__(0, 7.0))


@case()
def a_parameter_replaced(t: Run) -> None:
    net = M.Linear(4, 2)
    calls(t, net, *(lambda v=v: setattr(net, "weight", Parameter(np.full((2, 4), v, np.float32))) for v in (1, 2)))


@case()
def a_parameter_replaced_by_none(t: Run) -> None:
    net = M.Linear(4, 2)
    calls(t, net, lambda: setattr(net, "bias", None))


@case()
def a_parameter_assigned(t: Run) -> None:
    net = M.Linear(4, 2)
    calls(t, net, lambda: net.weight.__setitem__(0, 5.0), lambda: net.weight.__setitem__(Ellipsis, net.weight * 2))
    t.python_ran_at_most(1)


@case()
def state_loaded(t: Run) -> None:
    net, other = Block(), Block()
    net.eval()
    calls(t, net, lambda: net.load_state_dict(other.state_dict()))
    t.python_ran_at_most(1)


@case()
def a_buffer_replaced(t: Run) -> None:
    net = M.BatchNorm1d(4)
    net.eval()
    calls(t, net, lambda: setattr(net, "running_mean", Tensor(np.full((1, 4), 3, np.float32))))


@case()
def a_buffer_rebound_in_forward(t: Run) -> None:
    class Running(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean = Tensor([0.0])

        def forward(self, x: Tensor) -> Tensor:
            self.mean = self.mean * 0.5 + x.mean()
            return x - self.mean

    net = Running()
    calls(t, net, lambda: None, lambda: setattr(net, "mean", Tensor([9.0])))


@case()
def a_number_counted_in_forward(t: Run) -> None:
    class Counting(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.n = 0

        def forward(self, x: Tensor) -> Tensor:
            self.n += 1
            return x * self.n

    net = Counting()
    calls(t, net, lambda: None)


@case()
def a_tensor_counted_in_forward(t: Run) -> None:
    class Counting(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.n = Tensor(0.0)

        def forward(self, x: Tensor) -> Tensor:
            self.n += 1
            return x * self.n

    net = Counting()
    calls(t, net, lambda: None)
    t.python_ran_at_most(1)


@case()
def tied_weights(t: Run) -> None:
    a, b = M.Linear(4, 4), M.Linear(4, 4)
    b.weight = a.weight
    net = M.Sequential(a, b)
    calls(t, net, lambda: a.weight.__setitem__(0, 1.0), lambda: setattr(b, "weight", Parameter(np.eye(4, dtype="f4"))))


@case()
def a_captured_tensor_assigned(t: Run) -> None:
    w = Tensor([1.0, 2.0])
    f = t(lambda x: x * w)
    for v in (1.0, 2.0, 3.0, 4.0):
        w[...] = v
        t.call(f, ramp(2))
    t.python_ran_at_most(1)


@case()
def a_captured_tensor_of_a_new_dtype(t: Run) -> None:
    w = Tensor([1.0, 2.0])
    f = t(lambda x: x * w)
    for v, d in ((1.0, "float32"), (2.0, "float32"), (3.0, "float16"), (4.0, "float16"), (5.0, "float32")):
        w._reset(Tensor(np.full(2, v, d)))
        t.call(f, ramp(2))


@case()
def a_captured_tensor_of_a_new_shape(t: Run) -> None:
    w = Tensor([1.0])
    f = t(lambda x: (x * w).sum(axis=0) * w.shape[0])
    for n in (1, 1, 3, 1, 3, 3):
        w._reset(Tensor(np.full((n, 1), n, np.float32)))
        t.call(f, ramp(2))


@case()
def a_captured_tensor_deleted(t: Run) -> None:
    kept = [Tensor([2.0, 3.0])]

    def make() -> Any:
        w = kept[0]
        return t(lambda x: x * w)

    f = make()
    t.call(f, ramp(2))
    kept.clear()
    gc.collect()
    for i in range(3):
        t.call(f, ramp(2, start=i))


@case()
def a_network_deleted(t: Run) -> None:
    nets = {"a": M.Linear(2, 2), "b": M.Linear(2, 2)}
    f = t(lambda x, m: m(x))
    for name in ("a", "b", "a"):
        t.call(f, ramp(1, 2), nets[name])
    del nets["a"]
    gc.collect()
    nets["c"] = M.Linear(2, 2)
    for name in ("c", "b", "c"):
        t.call(f, ramp(1, 2), nets[name])


@case()
def state_swapped_by_the_call(t: Run) -> None:
    a, b = Tensor([1.0]), Tensor([2.0])

    def fn(x: Tensor) -> Tensor:
        old = a * 1
        a[...] = b
        b[...] = old + x
        return a + b

    f = t(fn)
    t.watch(a, b)
    for i in range(4):
        t.call(f, Tensor([float(i)]))
    t.python_ran_at_most(1)


@case()
def a_moving_average(t: Run) -> None:
    net, ema = M.Linear(3, 3), M.Linear(3, 3)

    def fn(x: Tensor) -> Tensor:
        for p, e in zip(net.parameters(), ema.parameters()):
            e._reset(e * 0.9 + p * 0.1)
        return ema(x)

    calls(t, ema, lambda: net.weight.__setitem__(0, 5.0), fn=fn, shape=(2, 3))


@case()
def autocast_on_and_off(t: Run) -> None:
    f, net = t(lambda x: net(x)), M.Linear(8, 8)
    for i in range(6):
        with amp.autocast(enabled=i % 3 != 0):
            t.call(f, ramp(2, 8, start=0.1 * i))


@case()
def autocast_of_two_kinds(t: Run) -> None:
    f, net = t(lambda x: net(x)), M.Linear(8, 8)
    for low in ("float16", "bfloat16", "float16", "bfloat16"):
        with amp.autocast(low_prec_dtype=low):
            y = t.call(f, ramp(2, 8))
            t.see(str(y.dtype))


@case()
def amp_switched_by_its_property(t: Run) -> None:
    f, net = t(lambda x: net(x)), M.Linear(8, 8)
    try:
        for on in (False, True, True, False, True):
            amp.enabled = on
            t.call(f, ramp(2, 8))
    finally:
        amp.enabled = False


@case()
def autocast_inside(t: Run) -> None:
    net = M.Linear(8, 8)

    def fn(x: Tensor, on: bool) -> Tensor:
        with amp.autocast(enabled=on):
            return net(x)

    f = t(fn)
    for on in (True, False, True, False):
        t.call(f, ramp(2, 8), on)
    t.python_ran_at_most(2)


@case()
def the_default_device(t: Run) -> None:
    before = mge.get_default_device()
    f = t(lambda: F.ones((2,)) * 2)
    try:
        for d in ("cpu0", "cpu1", "cpu1", "cpu0"):
            mge.set_default_device(d)
            y = t.call(f)
            t.see(str(y.device))
    finally:
        mge.set_default_device(before)


@case()
def a_module_on_another_device(t: Run) -> None:
    net = M.Linear(2, 2)
    f = t(lambda x: net(x))
    for d in ("cpu0", "cpu0", "cpu1", "cpu1", "cpu0"):
        for p in net.parameters():
            p._reset(p.to(d))
        y = t.call(f, Tensor([[1.0, 2.0]], device=d))
        t.see(str(y.device))


@case()
def seeds_set_between_calls(t: Run) -> None:
    f = t(lambda x: F.dropout(x, 0.5, training=True) + mge.random.uniform(size=(8,)))
    for seed in (1, None, 2, 1, None):
        if seed is not None:
            mge.random.seed(seed)
        t.call(f, ones(8))
    t.see(mge.random.uniform(size=(3,)))
    t.python_ran_at_most(1)


@case()
def random_state_saved_and_restored(t: Run) -> None:
    f = t(lambda: mge.random.normal(size=(4,)))
    t.call(f)
    state = mge.random.get_rng_state()
    for _ in range(3):
        t.call(f)
        mge.random.set_rng_state(state)
    t.see(mge.random.normal(size=(2,)))


@case()
def a_generator_of_its_own(t: Run) -> None:
    rng = mge.random.RNG(seed=5)
    f = t(lambda x: x + rng.uniform(size=(4,)))
    for _ in range(4):
        t.call(f, ramp(4))
    t.see(rng.uniform(size=(2,)))


@case()
def generators_as_arguments(t: Run) -> None:
    rngs = [mge.random.RNG(seed=5), mge.random.RNG(seed=6)]
    f = t(lambda rng: rng.uniform(size=(4,)))
    for i in (0, 1, 0, 1, 1):
        t.call(f, rngs[i])


@case()
def random_kinds(t: Run) -> None:
    def fn(n: Tensor) -> Any:
        return [
            mge.random.normal(size=(3,)),
            mge.random.permutation(5),
            mge.random.gamma(n, n),
            mge.random.poisson(n * 3),
            mge.random.beta(n, n),
        ]

    f = t(fn)
    for i in range(4):
        t.call(f, Tensor([1.0 + i, 2.0]))


@case()
def seeds_set_inside(t: Run) -> None:
    def fn(x: Tensor) -> Tensor:
        mge.random.seed(7)
        return x + mge.random.uniform(size=(2,))

    f = t(fn)
    for i in range(4):
        t.call(f, ramp(2, start=i))


@case()
def seeds_as_arguments_inside(t: Run) -> None:
    def fn(x: Tensor, seed: int) -> Tensor:
        mge.random.seed(seed)
        return x + mge.random.uniform(size=(2,))

    f = t(fn)
    for seed in (1, 2, 1, 2, 3):
        t.call(f, ramp(2), seed)


@case()
def the_number_of_threads(t: Run) -> None:
    before = mge.device.get_num_threads() if hasattr(mge.device, "get_num_threads") else None
    f, net = t(lambda x: net(x)), M.Conv2d(3, 4, 3)
    try:
        for n in (1, 2, 1, 2):
            mge.device.set_num_threads(n)
            t.call(f, ramp(1, 3, 8, 8))
    finally:
        if before:
            mge.device.set_num_threads(before)


@case()
def a_module_that_chooses_by_training(t: Run) -> None:
    class Chooses(M.Module):
        def forward(self, x: Tensor) -> Any:
            return {"loss": x.sum()} if self.training else [x, x * 2]

    net = Chooses()
    calls(t, net, net.eval, net.train)


@case()
def quantisation_switched_off(t: Run) -> None:
    net = Block()
    calls(t, net, lambda: net.disable_quantize(True), lambda: net.disable_quantize(False))


@case()
def class_attributes_of_a_module(t: Run) -> None:
    class Tuned(M.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * self.k

    net = Tuned()
    net.k = 1.0
    calls(t, net, *(lambda v=v: setattr(net, "k", v) for v in (2.0, 3.0)))
