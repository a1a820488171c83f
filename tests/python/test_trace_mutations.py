"""Whatever changes between two calls of a traced function: it goes on giving what the plain function gives.

A world of names, objects and settings that a function depends on is changed at random between calls. Most calls change
nothing or assign what was there, so that the recordings are used and not only made.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import pickle
import random
import sys
import threading
import types
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor, amp, config
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.optimizer import SGD

NUMBER = 1.0
NAMES: dict[str, Any] = {"a": 1.0, "deep": {"b": [1.0, 2.0]}}
LIST = [1.0, (2.0, [3.0])]
ORDERED = collections.OrderedDict(a=1.0)
ARRAY = np.array([1.0, 2.0])
SET = {1.0}
Pair = collections.namedtuple("Pair", "a b")


@dataclasses.dataclass
class Data:
    a: float = 1.0
    inner: Any = None


class Slotted:
    __slots__ = ("a",)

    def __init__(self) -> None:
        self.a = 1.0


class Plain:
    shared = 1.0

    def __init__(self) -> None:
        self.a = 1.0
        self.items = [1.0, 2.0]

    def method(self, x: Tensor) -> Tensor:
        return x * self.a * self.shared + self.items[0]


class Net(M.Module):
    kind = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.fc = M.Linear(3, 3)
        self.bn = M.BatchNorm1d(3)
        self.scales = [1.0, 2.0]
        self.table = {"k": 1.0}

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.fc(x)) * self.scales[0] * self.kind + self.table["k"]


def helper(x: Tensor, by: float = 1.0, *, plus: Any = None) -> Tensor:
    return x * by + (0.0 if plus is None else plus[0])


def other_helper(x: Tensor, by: float = 1.0, *, plus: Any = None) -> Tensor:
    return x * by - 1.0


HELPER_CODE = helper.__code__
PLAIN, DATA, SLOTTED, PAIR, NET = Plain(), Data(inner=[1.0]), Slotted(), Pair(1.0, [1.0]), Net()
SPACE = types.SimpleNamespace(a=1.0, b=[1.0])


def make_closure() -> tuple[Any, Any, Any]:
    cell, box = 1.0, [1.0]

    def fn(x: Tensor) -> Tensor:
        return x * cell + box[0]

    def assign(v: float) -> None:
        nonlocal cell
        cell = v

    def fill(v: float) -> None:
        box[0] = v

    return fn, assign, fill


CLOSURE, ASSIGN_CELL, FILL_CELL = make_closure()


def everything(x: Tensor, *rest: Any, flag: Any = None, **named: Any) -> Any:
    y = x * NUMBER + NAMES["a"] + NAMES["deep"]["b"][0] + LIST[0] + LIST[1][1][0]  # type: ignore[index]
    y = y + ORDERED["a"] + float(ARRAY[0]) + len(SET) + DATA.a + DATA.inner[0] + SLOTTED.a + PAIR.a + PAIR.b[0]
    y = y + SPACE.a * SPACE.b[0]
    y = PLAIN.method(CLOSURE(helper(y)))
    y = NET(y) if y.ndim == 2 else y
    for r in rest:
        y = y + (r if isinstance(r, (Tensor, int, float)) else r[0])
    if flag:
        y = -y
    for k in sorted(named):
        y = y * (2.0 if k == "two" else 1.0) + named[k]
    return {"y": y, "list": [y, (y * 2, flag)], "pair": Pair(y, x)}


def name(value: float) -> None:
    global NUMBER
    NUMBER = value


def held(value: float) -> None:
    global PLAIN, DATA, PAIR, LIST
    PLAIN, DATA, PAIR, LIST = Plain(), Data(value, [value]), Pair(value, [value]), [value, (2.0, [value])]


def swap_code(value: float) -> None:
    helper.__code__ = other_helper.__code__ if value > 1.5 else HELPER_CODE


MUTATIONS: dict[str, Any] = {
    "global": name,
    "globals replaced": held,
    "dict": lambda v: NAMES.__setitem__("a", v),
    "deep dict": lambda v: NAMES["deep"].__setitem__("b", [v]),
    "list in a dict": lambda v: NAMES["deep"]["b"].__setitem__(0, v),
    "another key": lambda v: NAMES.__setitem__("more", v),
    "list": lambda v: LIST.__setitem__(0, v),
    "list in a tuple": lambda v: LIST[1][1].__setitem__(0, v),  # type: ignore[index]
    "list grows": lambda v: LIST.append(v) if len(LIST) < 9 else LIST.pop(),
    "ordered": lambda v: ORDERED.__setitem__("a", v),
    "ordered moves": lambda v: (ORDERED.__setitem__("z", 0.0), ORDERED.move_to_end("a")),
    "array": lambda v: ARRAY.__setitem__(0, v),
    "set": lambda v: SET.add(v),
    "dataclass": lambda v: setattr(DATA, "a", v),
    "in a dataclass": lambda v: DATA.inner.__setitem__(0, v),
    "slots": lambda v: setattr(SLOTTED, "a", v),
    "in a namedtuple": lambda v: PAIR.b.__setitem__(0, v),
    "attribute": lambda v: setattr(PLAIN, "a", v),
    "attributes replaced": lambda v: setattr(PLAIN, "__dict__", {"a": v, "items": [v]}),
    "list of an object": lambda v: PLAIN.items.__setitem__(0, v),
    "class": lambda v: setattr(Plain, "shared", v),
    "namespace": lambda v: setattr(SPACE, "a", v),
    "in a namespace": lambda v: SPACE.b.__setitem__(0, v),
    "closure": ASSIGN_CELL,
    "in a closure": FILL_CELL,
    "defaults": lambda v: setattr(helper, "__defaults__", (v,)),
    "keyword defaults": lambda v: setattr(helper, "__kwdefaults__", {"plus": [v]}),
    "in a default": lambda v: (helper.__kwdefaults__["plus"] or [0.0]).__setitem__(0, v),
    "code": swap_code,
    "module mode": lambda v: NET.train(v > 1.5),
    "module list": lambda v: NET.scales.__setitem__(0, v),
    "module dict": lambda v: NET.table.__setitem__("k", v),
    "module class": lambda v: setattr(Net, "kind", v),
    "module attribute": lambda v: setattr(NET, "scales", [v]),
    "parameter": lambda v: NET.fc.weight._reset(F.full((3, 3), v)),
    "new parameter": lambda v: setattr(NET.fc, "bias", mge.Parameter(np.full((1, 3), v, "float32"))),
    "hook": lambda v: NET.register_forward_hook(lambda m, i, o: o * v).remove(),
    "config": lambda v: setattr(config, "deterministic_kernel", v > 1.5),
    "nothing": lambda v: None,
}

CALLS: dict[str, Any] = {
    "vector": lambda v: ((Tensor([v, 2.0, 3.0]),), {}),
    "matrix": lambda v: ((Tensor(np.full((2, 3), v, "float32") + np.arange(2, dtype="float32")[:, None]),), {}),
    "larger": lambda v: ((Tensor(np.arange(12, dtype="float32").reshape(4, 3) * v),), {}),
    "integers": lambda v: ((Tensor(np.array([1, 2, int(v)], "int32")),), {}),
    "two": lambda v: ((Tensor([v, 2.0, 3.0]), Tensor([1.0])), {}),
    "number": lambda v: ((Tensor([v, 2.0, 3.0]), v), {}),
    "list": lambda v: ((Tensor([v, 2.0, 3.0]), [Tensor([v])]), {}),
    "tuple": lambda v: ((Tensor([v, 2.0, 3.0]), (Tensor([v]),)), {}),
    "flag": lambda v: ((Tensor([v, 2.0, 3.0]),), {"flag": True}),
    "keywords": lambda v: ((Tensor([v, 2.0, 3.0]),), {"one": Tensor([v]), "two": 1.0}),
    "other order": lambda v: ((Tensor([v, 2.0, 3.0]),), {"two": 1.0, "one": Tensor([v])}),
}


def flat(result: Any) -> list[np.ndarray]:
    if isinstance(result, Tensor):
        return [result.numpy()]
    if isinstance(result, dict):
        return [a for k in result for a in flat(result[k])]
    if isinstance(result, (list, tuple)):
        return [a for r in result for a in flat(r)]
    return [np.asarray(result)]


def snapshot() -> Any:
    return [(t, t.numpy().copy()) for t in (*NET.parameters(), *NET.buffers())]


def restore(state: Any) -> None:
    for t, value in state:
        t._reset(Tensor(value))


@pytest.mark.parametrize("without_host", [True, False])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.filterwarnings("ignore")
def test_calls_after_random_changes_give_what_the_function_gives(seed: int, without_host: bool) -> None:
    rng = random.Random(seed)
    traced = trace(everything, without_host=without_host)
    for i in range(120):
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            what = rng.choice(list(MUTATIONS))
            MUTATIONS[what](rng.choice((1.0, 2.0, 3.0)))
        how = rng.choice(list(CALLS) if rng.random() < 0.3 else ["vector", "matrix"])
        args, kwargs = CALLS[how](rng.choice((1.0, 2.0)))
        state = snapshot()
        want, after = flat(everything(*args, **kwargs)), snapshot()
        restore(state)
        got = traced(*args, **kwargs)
        assert type(got) is dict and type(got["pair"]) is Pair and got["pair"].b is args[0], (i, how)
        assert got["list"][0] is got["y"], (i, how)
        for a, b in zip(flat(got), want, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"call {i}: {how}")
        for (t, b), (_, a) in zip(after, snapshot(), strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"state {t.name} after call {i}: {how}")
    config.deterministic_kernel = False


def count(f: Any) -> int:
    return sum(map(len, f._entries.values()))


def test_settings_are_part_of_the_key_and_come_back() -> None:
    def body(x: Tensor) -> Tensor:
        return F.matmul(x, x) + 1

    f = trace(body, without_host=True)
    x = Tensor(np.eye(2, dtype="float32"))
    f(x)
    with amp.autocast():
        assert f(x).dtype == np.float16 or f(x).dtype == np.float32
    assert count(f) == 2
    config.deterministic_kernel = True
    try:
        f(x)
        assert count(f) == 3
    finally:
        config.deterministic_kernel = False
    f(x)
    assert count(f) == 3  # as at the beginning


def test_options_that_are_assigned_later_take_effect() -> None:
    ran = []

    def body(x: Tensor) -> Tensor:
        ran.append(1)
        return x + 1

    f = trace(body, without_host=True)
    for _ in range(4):
        f(Tensor([1.0]))
    first = len(ran)
    f.without_host = False
    for _ in range(3):
        f(Tensor([1.0]))
    assert len(ran) == first + 3
    f.__wrapped__ = lambda x: x - 1
    assert f(Tensor([1.0])).item() == 0.0


def test_traces_bind_like_functions_and_are_copied_without_recordings() -> None:
    class Owner:
        k = 2.0

        @trace(without_host=True)
        def times(self, x: Tensor) -> Tensor:
            return x * self.k

    a, b = Owner(), Owner()
    b.k = 3.0
    for _ in range(3):
        assert a.times(Tensor([1.0])).item() == 2.0 and b.times(Tensor([1.0])).item() == 3.0
    assert Owner.times.__name__ == "times" and a.times.__name__ == "times"
    again = copy.deepcopy(Owner.times)
    assert count(Owner.times) == 2 and count(again) == 0
    assert again(a, Tensor([1.0])).item() == 2.0
    net = trace(M.ReLU(), without_host=True)
    for _ in range(3):
        assert net(Tensor([-1.0, 1.0])).numpy().tolist() == [0.0, 1.0]
    assert pickle.loads(pickle.dumps(net))(Tensor([-1.0])).item() == 0.0


def test_a_subclass_may_call_its_own_way() -> None:
    class Counting(trace):
        calls = 0

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return super().__call__(*args, **kwargs)

    f = Counting(lambda x: x + 1, without_host=True)
    for _ in range(3):
        assert f(Tensor([1.0])).item() == 2.0
    assert f.calls == 3 and count(f) == 1


def test_a_trace_with_recordings_is_garbage_like_any_other() -> None:
    import gc
    import weakref

    def make() -> Any:
        big = [Tensor([1.0])]

        @trace(without_host=True)
        def f(x: Tensor) -> Tensor:
            return x + big[0] + (0 if f is None else 1)

        for _ in range(3):
            f(Tensor([1.0]))
        return weakref.ref(f)

    ref = make()
    gc.collect()
    assert ref() is None


def test_a_replayed_training_step_runs_no_python() -> None:
    gm, opt = GradManager().attach(NET.parameters()), SGD(NET.parameters(), lr=0.1, momentum=0.9)

    @trace(without_host=True)
    def step(x: Tensor, extra: dict[str, Any]) -> Any:
        with gm:
            loss = (NET(helper(x, extra["by"])) * NAMES["a"]).sum() + PLAIN.items[0]
            gm.backward(loss)
        opt.step().clear_grad()
        return {"loss": loss, "both": Pair(loss, [x])}

    ran: list[Any] = []
    x = Tensor(np.arange(6, dtype="float32").reshape(2, 3))
    for _ in range(3):
        step(x, {"by": 2.0})
    sys.setprofile(lambda frame, event, arg: ran.append((event, frame.f_code.co_qualname)))
    try:
        result = step(x, {"by": 2.0})
    finally:
        sys.setprofile(None)
    assert not [r for r in ran if r[0] == "call"], ran
    assert type(result["both"]) is Pair and result["both"].b[0] is x


def test_a_learning_rate_takes_effect_whichever_way_it_is_set() -> None:
    def run(traced: bool) -> list[float]:
        p = mge.Parameter([1.0])
        gm, opt = GradManager().attach([p]), SGD([p], lr=0.1)

        def step(x: Tensor) -> Tensor:
            with gm:
                loss = (p * x).sum()
                gm.backward(loss)
            opt.step().clear_grad()
            return loss

        f = trace(step, without_host=True) if traced else step
        seen = []
        for i in range(12):
            if i == 3:
                opt.param_groups[0]["lr"] = 0.2
            elif i == 5:
                opt.param_groups[0].update(lr=0.3)
            elif i == 6:
                opt.param_groups[0] |= {"lr": 0.05}
            elif i == 8:
                opt.param_groups[0]["lr"] = np.float32(0.4)
            elif i == 9:
                opt.param_groups[0]["lr"] = Tensor(0.5)
            f(Tensor([1.0]))
            seen.append(p.item())
        return seen

    assert run(True) == run(False)


def test_threads_share_a_trace() -> None:
    w = Tensor([2.0])
    for without_host in (True, False):
        f = trace(lambda x, w=w: x * w + 1, without_host=without_host)
        wrong: list[Any] = []

        def work(k: int, f: Any = f, wrong: list[Any] = wrong) -> None:
            for i in range(100):
                got = f(Tensor([float(k * i)])).item()
                if got != k * i * 2.0 + 1:
                    wrong.append((k, i, got))

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for th in threads:
            th.start()
        for th in threads:
            th.join()
        assert not wrong


class Trouble(Exception):
    pass


@pytest.mark.parametrize("without_host", [True, False])
def test_errors_of_the_function_come_out_as_they_are_and_the_trace_goes_on(without_host: bool) -> None:
    def body(x: Tensor, how: str = "") -> Tensor:
        y = x + 1
        if how:
            raise Trouble(how)
        return y * 2

    f = trace(body, without_host=without_host)
    for _ in range(3):
        assert f(Tensor([1.0])).item() == 4.0
        with pytest.raises(Trouble, match="^now$"):
            f(Tensor([1.0]), how="now")
    assert not mge.jit.is_tracing()
