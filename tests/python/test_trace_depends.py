"""What a recording depends on: each call of a traced function gives what the plain function would, or is refused."""

from __future__ import annotations

import collections
import copy
import dataclasses
import io
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import Parameter, Tensor
from megengine.autodiff import GradManager
from megengine.jit import (
    DTRConfig,
    SublinearMemoryConfig,
    TraceError,
    exclude_from_trace,
    trace,
)

Make = Callable[[Callable[[Any], Any]], Callable[..., Any]]


def compare(make: Make, calls: list[tuple[Any, ...]], quiet: bool = False) -> None:
    """``make(wrap)`` gives a function; each call is the same eagerly, in host mode and without_host."""
    plain = make(lambda f: f)
    want = [np.asarray(plain(*c)) for c in calls]
    for options in ({}, {"without_host": True}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if quiet else "error")
            f = make(trace(**options))
            got = [np.asarray(f(*c)) for c in calls]
        for i, (a, b) in enumerate(zip(want, got)):
            np.testing.assert_array_equal(a, b, err_msg=f"{options}, call {i}")


def t(*v: float) -> Tensor:
    return Tensor(list(v))


# ---- arguments


@pytest.mark.parametrize(
    "values",
    [
        [np.float32(v) for v in (2, 3, 4, 5, 2)], [np.array([v, v]) for v in (1.0, 2.0, 1.0)], [1, 1.0, True, 2],
        [slice(0, 1), slice(1, 2), slice(0, 1)], [range(1), range(2)],
    ],
)  # fmt: skip
def test_plain_arguments_count_by_value(values: list[Any]) -> None:
    def body(x: Tensor, v: Any) -> Tensor:
        if isinstance(v, slice):
            return x[v]
        return x * (len(v) if isinstance(v, range) else v)

    compare(lambda wrap: wrap(body), [(t(1.0, 2.0), v) for v in values])


def test_functions_count_by_what_they_close_over() -> None:
    def make(wrap: Any) -> Any:
        f = wrap(lambda x, g: g(x))
        return lambda k: f(t(2.0), lambda x: x * k)

    compare(make, [(2,), (3,), (2,), (5,)])


def test_one_tensor_twice_and_two_tensors() -> None:
    a, b = t(1.0), t(2.0)
    compare(lambda wrap: wrap(lambda x, y: x * 10 + y), [(a, a), (a, b), (b, b), (b, a), (a, a)])


@pytest.mark.parametrize("order", [(True, False, True, False), (False, True, True, False)])
def test_an_argument_that_is_also_captured(order: tuple[bool, ...]) -> None:
    def make(wrap: Any) -> Any:
        p = t(3.0)
        f = wrap(lambda x: x * 10 + p)
        return lambda own: f(p) if own else f(t(1.0))

    compare(make, [(o,) for o in order])


def test_assigned_arguments_are_the_callers() -> None:
    def make(wrap: Any) -> Any:
        @wrap
        def f(a: Tensor, b: Tensor) -> Tensor:
            a += 1
            a[0] = 7
            old = a.detach()
            a._reset(b)
            b._reset(old)
            return a * 2

        def call(v: float) -> Any:
            a, b = t(v, v), t(10 * v, 0.0)
            y = f(a, b)
            return [a.numpy(), b.numpy(), y.numpy()]

        return call

    compare(make, [(1.0,), (2.0,), (3.0,)])


def test_arguments_changed_as_structures_run_python_again() -> None:
    def make(wrap: Any) -> Any:
        @wrap
        def f(d: dict[str, Tensor], found: list[Tensor]) -> None:
            d["a"] = d["a"] + 1
            found.append(d["a"] * 2)

        def call(v: float) -> Any:
            d: dict[str, Tensor] = {"a": t(v)}
            found: list[Tensor] = []
            f(d, found)
            return [d["a"].numpy(), found[0].numpy()]

        return call

    compare(make, [(1.0,), (2.0,), (3.0,)], quiet=True)


# ---- state


def test_training_and_evaluation_have_their_recordings() -> None:
    ran = []

    def make(wrap: Any) -> Any:
        mge.random.seed(1)
        net = M.Sequential(M.Linear(3, 4), M.BatchNorm1d(4), M.Dropout(0.3))

        def body(x: Tensor) -> Tensor:
            ran.append(1)
            return net(x)

        f = wrap(body)

        def call(training: bool) -> Any:
            net.train(training)
            return f(Tensor(np.arange(15, dtype=np.float32).reshape(5, 3)))

        return call

    flags = [True, False, True, True, False, False, True]
    ran.clear()
    compare(make, [(flag,) for flag in flags])
    assert len(ran) == len(flags) + len(flags) + 2  # eager, host mode, and one recording for each mode


def test_attributes_hooks_and_parameters_of_modules() -> None:
    def make(wrap: Any) -> Any:
        class Net(M.Module):
            def __init__(self) -> None:
                super().__init__()
                self.k, self.sizes, self.w = 2.0, [1.0], Parameter([1.0])

            def forward(self, x: Tensor) -> Tensor:
                return x * self.k * self.sizes[0] * self.w

        net = Net()
        hooks: list[Any] = []
        f = wrap(lambda x: net(x) + net.k)

        def call(what: str, v: float) -> Any:
            if what == "k":
                net.k = v
            elif what == "size":
                net.sizes[0] = v
            elif what == "new w":
                net.w = Parameter([v])
            elif what == "w":
                net.w._reset(t(v))
            elif what == "hook":
                hooks.append(net.register_forward_hook(lambda m, i, o: o + v))
            elif what == "unhook":
                hooks.pop().remove()
            return f(t(1.0))

        return call

    steps = [("", 0), ("k", 3), ("size", 2), ("new w", 7), ("", 0), ("w", 5), ("hook", 1), ("hook", 2), ("unhook", 0)]
    compare(make, [*steps, ("k", 2), ("unhook", 0), ("", 0)])


GLOBAL = 2.0


def test_names_that_the_function_sees() -> None:
    def make(wrap: Any) -> Any:
        options, n = {"a": 1.0}, 1.0
        f = wrap(lambda x: x * GLOBAL + options["a"] * n)

        def call(g: float, a: float, m: float) -> Any:
            global GLOBAL
            nonlocal n
            GLOBAL, options["a"], n = g, a, m
            return f(t(1.0))

        return call

    # In host mode constants are fed anew.
    compare(make, [(2, 1, 1), (3, 1, 1), (3, 2, 1), (3, 2, 5), (2, 1, 1)])


class Scaled(M.Module):
    def forward(self, x: Tensor) -> Tensor:
        return self.helper(x)

    def helper(self, x: Tensor) -> Tensor:
        return x * GLOBAL


class Steps:
    def __init__(self) -> None:
        self.net = Scaled()

    def step(self, x: Tensor) -> Tensor:
        return self.inner(x)

    def inner(self, x: Tensor) -> Tensor:
        return self.net(x) + GLOBAL


SCALED, STEPS = Scaled(), Steps()


@pytest.mark.parametrize(
    "body",
    [Scaled(), Steps().step, lambda x: SCALED(x), lambda x, net=SCALED: net(x), lambda x, s=STEPS: s.step(x)],
    ids=["module", "method", "a_global", "a_default", "an_object"],
)
def test_names_that_methods_see(body: Any) -> None:
    def make(wrap: Any) -> Any:
        f = wrap(body)

        def call(g: float) -> Any:
            global GLOBAL
            GLOBAL = g
            return f(t(1.0))

        return call

    compare(make, [(2.0,), (2.0,), (3.0,), (3.0,), (2.0,)])


def test_methods_and_their_objects() -> None:
    class Trainer:
        def __init__(self, k: float) -> None:
            self.k, self.w, self.net = k, t(3.0), M.ReLU()

        @trace(without_host=True)
        def step(self, x: Tensor) -> Tensor:
            return self.net(x) * self.k * self.w

    a, b = Trainer(2.0), Trainer(5.0)
    got = [a.step(t(1.0)).item(), b.step(t(1.0)).item(), a.step(t(1.0)).item()]
    a.k = 4.0
    got.append(a.step(t(1.0)).item())
    a.w = t(1.0)
    assert [*got, a.step(t(1.0)).item()] == [6, 15, 6, 12, 4]


def test_modes_are_part_of_the_call() -> None:
    def make(wrap: Any) -> Any:
        f = wrap(lambda x: F.matmul(x, x))

        def call(on: bool) -> Any:
            with mge.amp.autocast(enabled=on):
                return [str(f(Tensor(np.full((2, 2), 0.1, np.float32))).dtype)]

        return call

    compare(make, [(False,), (True,), (False,), (True,)])


@pytest.mark.parametrize("other", [[1.0, 2.0], [[1.0]], [1]], ids=["shape", "rank", "dtype"])
def test_a_captured_tensor_of_another_kind(other: Any) -> None:
    def make(wrap: Any) -> Any:
        w = t(1.0)
        f = wrap(lambda x: x * w)

        def call(v: Any) -> Any:
            w._reset(Tensor(v))
            return f(t(2.0))

        return call

    compare(make, [([3.0],), (other,), ([4.0],), (other,)])


def test_constants_are_those_of_the_first_call() -> None:
    c = t(1.0)
    f = trace(lambda x: x + c, capture_as_const=True, without_host=True)
    got = [f(t(0.0)).item()]
    c._reset(t(5.0))
    assert [*got, f(t(0.0)).item(), f(t(0.0)).item()] == [1, 1, 1]


def test_a_state_that_is_read_is_watched() -> None:
    n = Tensor([2])
    f = trace(lambda x: x * int(n), without_host=True)
    got = [f(t(1.0)).item(), f(t(1.0)).item()]
    n._reset(Tensor([3]))
    assert [*got, f(t(1.0)).item()] == [2, 2, 3]


def test_few_recordings_are_kept() -> None:
    f = trace(lambda x, v: x * v, without_host=True)
    with pytest.warns(RuntimeWarning, match="recorded more than 32 times.*as Tensors") as told:
        for v in range(100):
            assert f(t(1.0), float(v)).item() == v
    assert len(told) == 1 and sum(map(len, f._entries.values())) == 32


# ---- values


@pytest.mark.parametrize(
    "body",
    [
        lambda x: x * float(x.sum()), lambda x: x * float(x[0]), lambda x: x if (x * 2).sum() > 0 else -x,
        lambda x: x * (x + 1).numpy(), lambda x: (print(x * 2), x)[1], lambda x: x * x.numpy(),
    ],
)  # fmt: skip
def test_a_value_read_on_the_host_is_refused(body: Any) -> None:
    f = trace(body, without_host=True)
    for _ in range(2):
        with pytest.raises(TraceError, match=r"^trace error because data unreadable\n.*F.where.*without_host") as e:
            f(t(1.0, 2.0))
        assert "test_trace_depends.py" in str(e.value)
    trace(body)(t(1.0, 2.0))


def test_a_value_made_of_constants_may_be_read() -> None:
    f = trace(lambda x: x * float(F.full((1,), 2.0) * 2), without_host=True)
    assert [f(t(1.0)).item(), f(t(2.0)).item()] == [4, 8]


def test_excluded_parts_see_values_and_vary() -> None:
    def make(wrap: Any) -> Any:
        calls: list[float] = []

        @wrap
        def f(x: Tensor) -> Tensor:
            y = x * 2
            with exclude_from_trace():
                calls.append(y.sum().item())
                if len(calls) % 2 == 0:
                    y = -y
                for _ in range(len(calls)):
                    mge.Tensor([1.0]) + 1
            return y + x + len(calls) * 0

        return lambda v: [*f(t(v)).numpy(), calls[-1]]

    compare(make, [(1.0,), (2.0,), (3.0,), (4.0,)], quiet=True)
    f = trace(lambda x: x, without_host=True)
    f(t(1.0))


def test_an_excluded_part_at_another_place() -> None:
    early = iter([True, False])

    @trace
    def f(x: Tensor) -> Tensor:
        if next(early):
            with exclude_from_trace():
                pass
        x = x + 1
        with exclude_from_trace():
            return x

    f(t(1.0))
    with pytest.raises(TraceError, match="^trace error because operator mismatch\n.*exclude_from_trace"):
        f(t(1.0))


def test_what_outlives_the_call_without_being_returned() -> None:
    kept: list[Tensor] = []
    f = trace(lambda x: (kept.append(x * 2), x + 1)[1], without_host=True)
    f(t(1.0))
    with pytest.warns(RuntimeWarning, match="is kept without being returned .*test_trace_depends.py"):
        f(t(2.0))
    f(t(3.0))
    assert [k.item() for k in kept] == [2, 4, 6]


def test_an_iterator_of_tensors() -> None:
    def make(wrap: Any) -> Any:
        it: Iterator[Tensor] = iter([t(float(i)) for i in range(10)])
        return wrap(lambda x: x + next(it))

    compare(make, [(t(1.0),)] * 4, quiet=True)


# ---- results


@dataclasses.dataclass
class Out:
    y: Tensor
    n: int


Pair = collections.namedtuple("Pair", "a b")


@pytest.mark.parametrize("options", [{}, {"without_host": True}], ids=["host", "without_host"])
def test_structures_are_built_anew(options: dict[str, Any]) -> None:
    w = t(5.0)

    def body(x: Tensor) -> Any:
        found = [x * 2]
        y = x * 3
        return Out(x + 1, 3), Pair(x, found), collections.OrderedDict(z=w), found, {"k": (y, y, np.arange(2))}, {1, 2}

    f = trace(body, **options)
    seen = []
    for v in (1.0, 2.0, 3.0):
        x = t(v)
        out, pair, ordered, found, plain, numbers = f(x)
        assert type(out) is Out and out.y.item() == v + 1 and out.n == 3
        assert type(pair) is Pair and pair.a is x and pair.b is found and found[0].item() == 2 * v
        assert type(ordered) is collections.OrderedDict and ordered["z"] is w
        assert plain["k"][0].item() == 3 * v and plain["k"][0] is plain["k"][1]
        numbers.add(7)  # the caller's own
        plain["k"][2][:] = 9
        seen.append((out, found, plain, numbers))
        assert f(x)[5] == {1, 2} and f(x)[4]["k"][2].tolist() == [0, 1]
    assert [s[1][0].item() for s in seen] == [2, 4, 6]


def test_other_objects_run_python_again() -> None:
    class Box:
        def __init__(self, v: Tensor) -> None:
            self.v = v

    f = trace(lambda x: Box(x * 2), without_host=True)
    assert f(t(1.0)).v.item() == 2
    with pytest.warns(RuntimeWarning, match="result is a .*Box"):
        assert f(t(2.0)).v.item() == 4
    assert [f(t(3.0)).v.item(), f(t(4.0)).v.item()] == [6, 8]


# ---- gradients


def test_gradients_from_outside() -> None:
    def make(wrap: Any) -> Any:
        p = Parameter([3.0])
        gm = GradManager().attach(p)
        f = wrap(lambda x: (x * p * p).sum())

        def call(v: float, record: bool) -> Any:
            p.grad = None
            if not record:
                return f(t(v))
            with gm:
                gm.backward(f(t(v)))
            return p.grad

        return call

    compare(make, [(1.0, True), (2.0, False), (3.0, False), (4.0, True), (5.0, True), (6.0, False)], quiet=True)
    f = trace(lambda x: x * 2, without_host=True)
    with GradManager().attach(t(1.0)), pytest.warns(RuntimeWarning, match="gradients are recorded outside"):
        f(t(1.0))


@pytest.mark.parametrize("clear_every", [1, 3])
def test_backward_inside_and_step_outside(clear_every: int) -> None:
    def make(wrap: Any) -> Any:
        p = Parameter([3.0])
        gm, opt = GradManager().attach(p), optim.SGD([p], lr=0.1, momentum=0.9)

        @wrap
        def f(x: Tensor) -> Tensor:
            with gm:
                loss = (x * p * p).sum()
                gm.backward(loss)
            return loss

        def call(i: int) -> Any:
            loss = f(t(0.1 * i))
            grad = p.grad.numpy()
            if i % clear_every == 0:
                opt.step().clear_grad()
            return [loss.item(), *grad, *p.numpy()]

        return call

    compare(make, [(i,) for i in range(1, 10)])


# ---- threads


def test_threads_record_and_replay_at_once() -> None:
    traced = [trace(lambda x, v: (x * v).sum(), without_host=True), trace(lambda x, v: (x * v).sum())]
    wrong: list[Any] = []
    barrier = threading.Barrier(4)

    def work(k: int) -> None:
        barrier.wait()
        for i in range(100):
            v = float((i + k) % 5)
            for f in traced:
                got = f(Tensor(np.full(1000, 2.0, np.float32)), v).item()
                if got != 2000 * v:
                    wrong.append((got, v))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_learning_rates_belong_to_the_recording_of_their_thread() -> None:
    """Two threads that record at once registered their lr with whichever trace had begun last."""
    both = threading.Barrier(2)
    results: dict[int, list[float]] = {}

    def work(k: int) -> None:
        p = Parameter([0.0])
        opt = optim.SGD([p], lr=1.0)
        first = [True]

        @trace(without_host=True)
        def step(g: Tensor) -> None:
            if first.pop() if first else False:
                both.wait()
            p.grad = g * 1
            opt.step().clear_grad()

        seen = []
        for i in range(4):
            opt.param_groups[0]["lr"] = float(i + 1 + 10 * k)
            step(t(1.0))
            seen.append(p.item())
        results[k] = seen

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {0: [-1, -3, -6, -10], 1: [-11, -23, -36, -50]}


# ---- options


@pytest.mark.parametrize(
    "name, value",
    [
        ("sublinear_memory_config", SublinearMemoryConfig()),
        ("dtr_config", DTRConfig(1)),
    ],
)
def test_options_of_trace_that_are_not_there(name: str, value: Any) -> None:
    with pytest.raises(NotImplementedError, match=f"trace: {name} is not implemented.*checkpoint"):
        trace(lambda x: x, **{name: value})
    with pytest.raises(NotImplementedError, match=f"trace: {name} is not implemented"):
        trace(**{name: value})(lambda x: x)


def test_options_by_position() -> None:
    f = trace(lambda x: x * 2, True, True)
    assert f(t(3.0)).item() == 6.0 and f._symbolic and f._capture_as_const


def test_numbers_beside_captured_constants_without_host() -> None:
    w = Tensor([2.0])

    @trace(capture_as_const=True, without_host=True)
    def f(x: Tensor, k: float, scale: dict[str, Tensor]) -> Tensor:
        return x * w * k + scale["s"]

    for _ in range(2):
        for k in (1.0, 3.0):
            assert f(t(5.0), k, {"s": t(1.0)}).item() == 10 * k + 1
    with pytest.raises(AssertionError, match="Only support tensor type args when capture_as_const is enabled"):
        trace(lambda x, k: x * k, capture_as_const=True)(t(1.0), 2)


def test_dump_names_the_module_that_updates_its_state() -> None:
    net = M.Sequential(M.Linear(2, 2), M.BatchNorm1d(2))
    f = trace(lambda x: net(x), capture_as_const=True)
    f(Tensor(np.ones((3, 2), np.float32)))
    with pytest.raises(RuntimeError, match=r"BatchNorm1d in training mode: .* updates its running_mean.*net.eval\(\)"):
        f.dump(io.BytesIO())
    net.eval()
    f(Tensor(np.ones((3, 2), np.float32)))
    f.dump(io.BytesIO())
    g = trace(lambda x: None, capture_as_const=True)
    g(t(1.0))
    with pytest.raises(ValueError, match=r"should return List\[Tensor\] or Dict\[str, Tensor\]"):
        g.dump(io.BytesIO())


def test_a_copy_starts_without_recordings() -> None:
    f = trace(lambda x: x * 2, without_host=True)
    f(t(1.0))
    g = copy.deepcopy(f)
    assert not g.traced and g(t(2.0)).item() == 4


def test_a_step_that_calls_step_of_its_optimizer_is_no_change_of_itself() -> None:
    # The name of the attribute is that of the traced function, which is seen as a global and records meanwhile.
    code = """
import megengine.functional as F, megengine.module as M, megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import trace

net = M.Linear(3, 1)
gm, opt = GradManager().attach(net.parameters()), optim.SGD(net.parameters(), lr=0.1)

@trace(without_host=True)
def step(x):
    with gm:
        loss = net(x).mean()
        gm.backward(loss)
    opt.step().clear_grad()
    return loss

for _ in range(3):
    step(F.ones((2, 3)))
"""
    names: dict[str, object] = {}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        exec(code, names)
    assert [str(w.message) for w in told] == []
    assert [e.host_only for bucket in names["step"]._entries.values() for e in bucket] == [False]
