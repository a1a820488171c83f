"""Keys of traced calls: what makes two calls different, what cannot be told apart, and notes of what took part."""

from __future__ import annotations

import collections
import dataclasses
import enum
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.module as M
from megengine import Parameter, Tensor
from megengine.autodiff import GradManager
from megengine.core import _core
from megengine.jit import trace

One, Two = collections.namedtuple("P", "x"), collections.namedtuple("P", "x")


@dataclasses.dataclass
class Data:
    a: int
    b: Any = None


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


# By whether Python does not run again.
KEYED = {
    strict: trace(lambda *args, **kwargs: None, without_host=strict, symbolic_shape=False) for strict in (False, True)
}


def key(*args: Any, strict: bool = True, **kwargs: Any) -> bytes:
    return KEYED[strict]._call_key(args, kwargs)[0]


def times(n: float) -> Any:
    return lambda x: x * n


DIFFERENT = [
    1, 1.0, True, 0, 0.0, -0.0, False, None, "1", b"1", bytearray(b"1"), ..., 1j, -1j, complex(0.0, -1.0) * 2, 2**80,
    float("nan"), float("inf"), slice(1, 2), slice(1, 3), slice(1, 2, 1), range(3), range(4), {1}, {1, 2},
    np.float32(2), np.float64(2), np.float32(3), np.int64(2), np.array([1, 2]), np.array([1, 3]), np.array([[1, 2]]),
    frozenset({1}), np.array([1, 2], np.int8), np.array([1, 2], object), (1,), [1], {"a": 1},
    collections.OrderedDict(a=1),
    collections.defaultdict(int, a=1), collections.defaultdict(list, a=1), collections.deque([1]), np.dtype("float32"),
    np.float32, Colour.RED, Colour.BLUE, One(1), Two(1), One(2), Data(1), Data(2), Data(1, 1), times(2), times(3),
    {"a": 1, "b": 2}, {"b": 2, "a": 1}, [[1], 2], [1, [2]], Tensor([1.0]), Tensor([1]), Tensor([1.0, 2.0]),
    Tensor([[1.0]]), Parameter([1.0]), Tensor([1.0], device="cpu0:1"), M.ReLU(), M.ReLU(), print, np,
]  # fmt: skip


def test_what_differs_has_different_keys() -> None:
    keys = [key(v) for v in DIFFERENT]
    assert len(set(keys)) == len(DIFFERENT)
    assert keys == [key(v) for v in DIFFERENT]


@pytest.mark.parametrize(
    "make",
    [
        lambda: float("nan"), lambda: np.float32(2), lambda: np.arange(5), lambda: slice(1, None), lambda: {3, 1, 2},
        lambda: Data(1, [2]), lambda: One((1,)), lambda: times(2), lambda: Tensor([3.0]), lambda: 2**80,
        lambda: {"a": [Tensor([1.0]), 1j]}, lambda: np.array([1, None, "x"], object),
    ],
)  # fmt: skip
def test_equal_values_made_anew_have_one_key(make: Any) -> None:
    assert key(make()) == key(make())


def test_quantisation_and_format_are_in_the_key() -> None:
    from megengine.core.tensor.dtype import qint8

    x = Tensor([1.0, 2.0])
    assert key(x.astype(qint8(0.5))) != key(x.astype(qint8(0.25)))
    a, b = Tensor(np.zeros((1, 2, 3, 4), np.float32)), Tensor(np.zeros((1, 2, 3, 4), np.float32), format="nhwc")
    assert key(a) != key(b)


def test_aliasing_is_in_the_key() -> None:
    a, b = Tensor([1.0]), Tensor([2.0])
    assert key(a, a) == key(b, b) and key(a, b) == key(b, a) and key(a, a) != key(a, b)
    assert key([a, b], a) != key([a, b], b)


def test_an_address_is_not_used_twice() -> None:
    """What is keyed by address is handed out to be kept alive."""
    net = M.ReLU()
    assert any(o is net for o in KEYED[True]._call_key((net,), {})[2])


@pytest.mark.parametrize(
    "args, path",
    [
        ((1, iter([1])), r"\[1\]"),
        (({"q": [(i for i in ())]},), r"\[0\]\['q'\]\[0\]"),
        ((Data(1, iter(())),), r"\[0\]\['b'\]"),
        ((np.zeros(100_000),), r"\[0\] \(numpy.ndarray\).*800000 bytes"),
        ((np.random.RandomState(0),), r"\[0\]"),
    ],
)
def test_what_has_no_key_is_refused_by_its_place(args: Any, path: str) -> None:
    with pytest.raises(TypeError, match=f"trace: argument {path}.*leave out without_host=True") as e:
        key(*args)
    assert "test_trace_keys.py" in str(e.value)
    key(*args, strict=False)  # the body runs: by address


def test_structures_that_hold_themselves() -> None:
    x: list[Any] = [1]
    x.append(x)
    assert key(x) == key(x)
    deep: list[Any] = []
    for _ in range(500):
        deep = [deep]
    with pytest.raises(TypeError, match="too deep"):
        key(deep)


class Child(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.k, self.sizes, self.act = 2.0, [1, 2], M.ReLU()
        self.w = Parameter([1.0])

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x) * self.k * self.w


def notes_of(run: Any) -> list[Any]:
    notes: dict[int, Any] = {}
    _core.set_notes(notes, None)
    try:
        run()
    finally:
        _core.set_notes(None, None)
    return list(notes.values())


def test_modules_note_themselves_and_what_is_changed_shows() -> None:
    net = M.Sequential(Child(), M.BatchNorm1d(1), M.Dropout(0.5))
    notes = notes_of(lambda: net(Tensor([[1.0]])))
    assert {type(n[0]).__name__ for n in notes} == {"Sequential", "Child", "ReLU", "BatchNorm1d", "Dropout"}
    assert notes_of(lambda: None) == []
    child = net[0]

    def there_and_back(do: Any, undo: Any, counted: bool = True) -> None:
        before = _core.mutation()
        do()
        assert not _core.notes_hold(notes, True)
        assert not counted or _core.mutation() != before
        undo()
        assert _core.notes_hold(notes, True)

    there_and_back(net.eval, net.train)
    there_and_back(lambda: setattr(child, "k", 3.0), lambda: setattr(child, "k", 2.0))
    there_and_back(lambda: setattr(child, "new", 1), lambda: delattr(child, "new"))
    act, w = child.act, child.w
    there_and_back(lambda: setattr(child, "act", M.ReLU()), lambda: setattr(child, "act", act))
    there_and_back(lambda: setattr(child, "w", Parameter([1.0])), lambda: setattr(child, "w", w))
    handles: list[Any] = []
    there_and_back(lambda: handles.append(child.register_forward_hook(lambda *_: None)), lambda: handles.pop().remove())
    there_and_back(lambda: child.sizes.append(3), child.sizes.pop, counted=False)  # looked at on every call
    before = _core.mutation()
    child.w._reset(Tensor([5.0]))  # a value, not state of the module
    assert _core.notes_hold(notes, True) and _core.mutation() == before


def test_managers_note_what_is_attached() -> None:
    a, b, gm = Tensor([1.0]), Tensor([2.0]), GradManager()
    gm.attach(a)

    def run() -> None:
        with gm:
            pass

    notes = notes_of(run)
    assert _core.notes_hold(notes, True)
    gm.attach(b)
    assert not _core.notes_hold(notes, True)


def test_the_tape_is_in_the_key() -> None:
    x, w = Tensor([1.0]), Parameter([2.0])
    plain = key(x)
    with GradManager().attach(w):
        outside = key(x)
    with GradManager().attach([w, x]):
        follows = key(x)
    assert len({plain, outside, follows}) == 3 and key(x) == plain


def test_gradients_keep_their_place_in_copies() -> None:
    """grad is looked after by the extension; it stays an attribute for everybody else."""
    p = Parameter([1.0])
    assert p.grad is None
    p.grad = mge.Tensor([2.0])
    del p.grad
    assert p.grad is None
