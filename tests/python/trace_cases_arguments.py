"""Ways to use a trace: arguments of every kind that change from call to call."""

from __future__ import annotations

import collections
import dataclasses
import decimal
import enum
import fractions
import functools
import pathlib
from typing import Any, NamedTuple

import numpy as np
from trace_attack import Run, case

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Parameter, Tensor


def ones(*shape: int) -> Tensor:
    return Tensor(np.ones(shape, np.float32))


def ramp(*shape: int, start: float = 0.0) -> Tensor:
    return Tensor(np.arange(np.prod(shape), dtype=np.float32).reshape(shape) * 0.25 + np.float32(start))


def over(t: Run, fn: Any, values: Any, *, x: Tensor | None = None, bodies: int | None = None) -> None:
    """``f(x, v)`` for each v, then all again."""
    f = t(fn)
    for v in [*values, *values]:
        t.call(f, ramp(4) if x is None else x, v)
    if bodies is not None:
        t.python_ran_at_most(bodies)


def times(x: Tensor, v: Any) -> Tensor:
    return x * v


@case()
def numpy_float_scalar(t: Run) -> None:
    over(t, times, [np.float32(v) for v in (2, 3, 4, 5)])


@case()
def numpy_float_scalars_made_anew(t: Run) -> None:
    f = t(times)
    for v in (2, 3, 2, 3, 4):
        t.call(f, ramp(3), np.float32(v))
    t.python_ran_at_most(3)


@case()
def numpy_int_scalar(t: Run) -> None:
    over(t, lambda x, v: x[: int(v)] * int(v), [np.int64(v) for v in (1, 2, 3, 4)])


@case()
def numpy_bool_scalar(t: Run) -> None:
    over(t, lambda x, v: x + 1 if v else x - 1, [np.bool_(True), np.bool_(False)])


@case()
def numpy_scalar_of_other_types_but_one_value(t: Run) -> None:
    over(t, lambda x, v: Tensor(v) + x.astype("float32"), [np.float32(2), np.float64(2), np.int32(2), np.int8(2)])


@case()
def numpy_scalar_against_python_number(t: Run) -> None:
    over(t, lambda x, v: x * 2 if isinstance(v, np.generic) else x * 3, [np.float64(2), 2.0, np.float64(2)])


@case()
def numpy_array_made_anew(t: Run) -> None:
    over(t, times, [np.full(4, v, np.float32) for v in (1, 2, 3)])


@case()
def numpy_array_changed_in_place(t: Run) -> None:
    f, a = t(times), np.ones(4, np.float32)
    for v in (2, 3, 4, 2):
        a[:] = v
        t.call(f, ramp(4), a)


@case()
def numpy_array_of_other_dtypes(t: Run) -> None:
    over(t, lambda x, a: x + Tensor(a).astype("float32").mean(), [np.ones(4, d) for d in ("float32", "int32", "uint8")])


@case()
def numpy_array_of_other_shapes(t: Run) -> None:
    over(t, times, [np.ones((n, 4), np.float32) * n for n in (1, 2, 3)])


@case()
def numpy_array_views(t: Run) -> None:
    base = np.arange(8, dtype=np.float32)
    over(t, times, [base[:4], base[4:], base[::2], base[::-2]])


@case()
def numpy_array_in_a_list(t: Run) -> None:
    over(t, lambda x, v: x * v[0] + v[1], [[np.float32(v), np.full(4, v + 1, np.float32)] for v in (1, 2, 3)])


@case()
def numpy_object_array(t: Run) -> None:
    over(t, lambda x, v: x * v[0], [np.array([v], dtype=object) for v in (1, 2, 3)])


@case()
def numpy_empty_arrays(t: Run) -> None:
    over(t, lambda x, v: x * float(v.shape[0] + v.shape[1]), [np.zeros(s, np.float32) for s in ((0, 1), (0, 2))])


@case()
def slices(t: Run) -> None:
    over(t, lambda x, s: x[s], [slice(0, 2), slice(1, 3), slice(None, None, 2), slice(0, 2)])


@case()
def slices_made_anew(t: Run) -> None:
    f = t(lambda x, s: x[s] * 2)
    for i in (0, 1, 2, 0, 1, 2):
        t.call(f, ramp(5), slice(i, i + 2))
    t.python_ran_at_most(3)


@case()
def ranges(t: Run) -> None:
    over(t, lambda x, r: sum(x * i for i in r), [range(3), range(1, 3), range(0, 6, 2), range(3)])


@case()
def equal_ranges_of_other_bounds(t: Run) -> None:
    over(t, lambda x, r: x * r.stop, [range(0, 3, 2), range(0, 4, 2)])


@case()
def sets(t: Run) -> None:
    over(t, lambda x, s: x * sum(s), [{1, 2}, {2, 3}, {1}, {1, 2}])


@case()
def frozensets(t: Run) -> None:
    over(t, lambda x, s: x * sum(s), [frozenset(s) for s in ((1, 2), (2, 3), (1,), (1, 2))])


@case()
def set_against_frozenset(t: Run) -> None:
    over(t, lambda x, s: x * 2 if isinstance(s, set) else x * 3, [{1}, frozenset({1})])


@case()
def complex_numbers(t: Run) -> None:
    over(t, lambda x, c: x * c.real + c.imag, [1 + 2j, 2 + 1j, 3j, 1 + 2j])


@case()
def lambdas(t: Run) -> None:
    over(t, lambda x, fn: fn(x), [lambda x: x * 2, lambda x: x * 3, lambda x: x + 1])


@case()
def lambdas_made_anew_in_a_loop(t: Run) -> None:
    f = t(lambda x, fn: fn(x))
    for v in (2.0, 3.0, 4.0, 5.0):
        t.call(f, ramp(4), lambda x, v=v: x * v)


@case()
def closures_over_a_number(t: Run) -> None:
    def scaled(v: float) -> Any:
        return lambda x: x * v

    f = t(lambda x, fn: fn(x))
    for v in (2.0, 3.0, 4.0, 5.0):
        t.call(f, ramp(4), scaled(v))


@case()
def partials(t: Run) -> None:
    f = t(lambda x, fn: fn(x))
    for v in (2.0, 3.0, 4.0, 2.0):
        t.call(f, ramp(4), functools.partial(times, v=v))


@case()
def functions_by_name(t: Run) -> None:
    over(t, lambda x, fn: fn(x), [F.relu, F.sigmoid, F.exp, F.relu], bodies=3)


@dataclasses.dataclass
class Setting:
    scale: float
    shift: float = 0.0


@dataclasses.dataclass(frozen=True)
class Frozen:
    scale: float


@dataclasses.dataclass
class Batch:
    x: Tensor
    y: Tensor
    k: float = 1.0


@case()
def dataclasses_made_anew(t: Run) -> None:
    over(t, lambda x, s: x * s.scale + s.shift, [Setting(v, v + 1) for v in (1.0, 2.0, 3.0)])


@case()
def dataclass_changed_in_place(t: Run) -> None:
    f, s = t(lambda x, s: x * s.scale), Setting(1.0)
    for v in (2.0, 3.0, 4.0, 5.0):
        s.scale = v
        t.call(f, ramp(4), s)


@case()
def frozen_dataclasses(t: Run) -> None:
    over(t, lambda x, s: x * s.scale, [Frozen(v) for v in (1.0, 2.0, 3.0)])


@case()
def dataclasses_with_tensors(t: Run) -> None:
    f = t(lambda b: b.x * b.k + b.y)
    for v in (1.0, 2.0, 3.0, 4.0):
        t.call(f, Batch(ramp(4, start=v), ones(4) * v))
    t.call(f, Batch(ramp(4), ones(4), 5.0))


class PairA(NamedTuple):
    a: Any
    b: Any


def other_pair() -> Any:
    return collections.namedtuple("PairA", ["b", "a"])


@case()
def namedtuples_of_one_name(t: Run) -> None:
    over(t, lambda x, p: x * p.a, [PairA(2.0, 3.0), other_pair()(2.0, 3.0), PairA(2.0, 3.0)])


@case()
def namedtuples_of_one_name_with_tensors(t: Run) -> None:
    other = other_pair()
    f = t(lambda p: p.a * 2 + p.b)
    for v in (1.0, 2.0, 3.0):
        t.call(f, PairA(ramp(2, start=v), ones(2)))
        t.call(f, other(ramp(2, start=v), ones(2)))


@case()
def namedtuple_against_tuple(t: Run) -> None:
    over(t, lambda x, p: x * (2 if hasattr(p, "_fields") else 3), [PairA(1.0, 2.0), (1.0, 2.0)])


@case()
def dict_against_ordereddict(t: Run) -> None:
    over(t, lambda x, d: x * (2 if type(d) is dict else 3), [{"a": 1}, collections.OrderedDict(a=1), {"a": 1}])


@case()
def defaultdicts(t: Run) -> None:
    over(
        t,
        lambda x, d: x * d["a"] + (1 if isinstance(d, collections.defaultdict) else 0),
        [{"a": 1.0}, collections.defaultdict(float, a=1.0), {"a": 2.0}],
    )


@case()
def order_of_a_dict(t: Run) -> None:
    over(t, lambda x, d: x * next(iter(d.values())), [{"a": 2.0, "b": 3.0}, {"b": 3.0, "a": 2.0}])


@case()
def keys_of_a_dict(t: Run) -> None:
    over(t, lambda x, d: x * sum(d), [{1: 0.0}, {2: 0.0}, {1: 0.0, 2: 0.0}, {True: 0.0}])


@case()
def dict_of_tensors_in_another_order(t: Run) -> None:
    f = t(lambda d: d["a"] - d["b"])
    for v in (1.0, 2.0, 3.0):
        a, b = ramp(3, start=v), ones(3)
        t.call(f, {"a": a, "b": b})
        t.call(f, {"b": b, "a": a})


@case()
def list_against_tuple(t: Run) -> None:
    over(t, lambda x, s: x * (2 if isinstance(s, list) else 3), [[1, 2], (1, 2)])


@case()
def deques(t: Run) -> None:
    over(t, lambda x, d: x * d[0], [collections.deque([v]) for v in (1.0, 2.0, 3.0)])


@case()
def a_list_changed_in_place(t: Run) -> None:
    f, s = t(lambda x, s: x * s[-1]), [1.0]
    for v in (2.0, 3.0, 4.0, 5.0):
        s.append(v)
        t.call(f, ramp(4), s)


@case()
def a_dict_changed_in_place(t: Run) -> None:
    f, d = t(lambda x, d: x * d["k"]), {"k": 1.0}
    for v in (2.0, 3.0, 4.0, 5.0):
        d["k"] = v
        t.call(f, ramp(4), d)


@case()
def true_against_one(t: Run) -> None:
    over(t, lambda x, v: x + 1 if v is True else x - 1, [True, 1, True])


@case()
def one_against_one_point_zero(t: Run) -> None:
    over(t, lambda x, v: x * (2 if isinstance(v, int) else 3), [1, 1.0, 1])


@case()
def minus_zero(t: Run) -> None:
    over(t, lambda x, v: 1.0 / (x * 0 + v), [0.0, -0.0, 0.0])


@case()
def not_a_number(t: Run) -> None:
    f = t(lambda x, v: x + v)
    for v in (float("nan"), 1.0, float("nan"), float("nan")):
        t.call(f, ramp(2), v)
    t.python_ran_at_most(2)


@case()
def huge_integers(t: Run) -> None:
    over(t, lambda x, v: x * float(v % 7), [2**70, 2**70 + 1, -(2**65)])


@case()
def strings_and_bytes(t: Run) -> None:
    over(t, lambda x, s: x * len(s) + (1 if isinstance(s, bytes) else 0), ["a", "ab", b"a", b"ab", ""])


@case()
def none_and_ellipsis(t: Run) -> None:
    over(t, lambda x, v: x + 1 if v is None else x[v] * 2, [None, Ellipsis, None])


@case()
def dtypes(t: Run) -> None:
    over(t, lambda x, d: x.astype(d), [np.dtype("float16"), np.dtype("int32"), np.float16, "int32"])


class Colour(enum.Enum):
    red = 1
    blue = 2


@case()
def enums(t: Run) -> None:
    over(t, lambda x, c: x * (2 if c is Colour.red else 3), [Colour.red, Colour.blue], bodies=2)


@case()
def classes(t: Run) -> None:
    over(t, lambda x, c: x * (2 if c is dict else 3), [dict, list, dict])


@case()
def decimals_and_fractions(t: Run) -> None:
    over(t, lambda x, v: x * float(v), [decimal.Decimal("1.5"), fractions.Fraction(1, 3), decimal.Decimal("2.5")])


@case()
def paths(t: Run) -> None:
    over(t, lambda x, p: x * len(p.name), [pathlib.Path("a/b"), pathlib.Path("a/bcd")])


class Plain:
    def __init__(self, k: float) -> None:
        self.k = k


@case()
def an_object_that_cannot_be_keyed(t: Run) -> None:
    f, p = t(lambda x, p: x * p.k), Plain(1.0)
    for v in (2.0, 3.0, 4.0, 5.0):
        p.k = v
        t.call(f, ramp(4), p)


@case(refused="without_host")
def an_iterator(t: Run) -> None:
    f = t(lambda x, it: x * next(it))
    it = iter([2.0, 3.0, 4.0, 5.0])
    for _ in range(4):
        t.call(f, ramp(4), it)


@case(refused="without_host")
def a_numpy_generator(t: Run) -> None:
    f, rng = t(lambda x, rng: x * float(rng.rand())), np.random.RandomState(0)
    for _ in range(4):
        t.call(f, ramp(4), rng)


@case()
def modules_made_anew(t: Run) -> None:
    f = t(lambda x, m: m(x))
    for seed in range(4):
        mge.random.seed(seed)
        t.call(f, ramp(2, 3), M.Linear(3, 2))


@case()
def modules_of_other_settings_made_anew(t: Run) -> None:
    f = t(lambda x, m: m(x))
    for slope in (0.1, 0.2, 0.3, 0.4):
        t.call(f, ramp(2, 3, start=-0.5), M.LeakyReLU(slope))


@case()
def a_module_and_its_mode(t: Run) -> None:
    f, net = t(lambda x, m: m(x)), M.BatchNorm1d(3)
    t.watch(net)
    for i in range(6):
        net.train(i % 3 != 1)
        t.call(f, ramp(4, 3, start=i), net)


@case()
def one_tensor_twice_then_two(t: Run) -> None:
    f, a, b = t(lambda x, y: x * 2 + y), ramp(3), ramp(3, start=5)
    for x, y in ((a, a), (a, b), (b, a), (a, a), (b, b)):
        t.call(f, x, y)


@case()
def two_tensors_then_one_twice(t: Run) -> None:
    f, a, b = t(lambda x, y: x * 2 + y), ramp(3), ramp(3, start=5)
    for x, y in ((a, b), (a, a), (b, a), (b, b)):
        t.call(f, x, y)


@case()
def one_tensor_twice_assigned_once(t: Run) -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        x += 1
        return y * 2

    f = t(fn)
    for i in range(4):
        a, b = ramp(3, start=i), ramp(3)
        t.call(f, a, b)
        t.call(f, a, a)
        t.see(a, b)


@case()
def an_argument_that_is_also_captured(t: Run) -> None:
    w = Parameter([1.0, 2.0])
    f = t(lambda x: x * 2 + w)
    t.watch(w)
    t.call(f, w)
    t.call(f, Tensor([5.0, 6.0]))
    w[...] = Tensor([7.0, 8.0])
    t.call(f, Tensor([1.0, 1.0]))
    t.call(f, w)
    t.call(f, Tensor([3.0, 1.0]))


@case()
def a_captured_tensor_given_later(t: Run) -> None:
    w = Parameter([1.0, 2.0])

    def fn(x: Tensor) -> Tensor:
        y = x + w
        x += 1
        return y + w

    f = t(fn)
    t.watch(w)
    for x in (Tensor([5.0, 6.0]), w, Tensor([1.0, 1.0]), w, w):
        t.call(f, x)
        t.see(x)


@case()
def an_argument_and_its_alias(t: Run) -> None:
    f = t(lambda x, y: x * 2 + y)
    for i in range(4):
        a = ramp(3, start=i)
        t.call(f, a, a.detach() if i % 2 else Tensor(a))


@case()
def keywords_in_another_order(t: Run) -> None:
    f = t(lambda x, *, a, b: x * a + b)
    for v in (1.0, 2.0, 3.0):
        t.call(f, ramp(3), a=v, b=2.0)
        t.call(f, ramp(3), b=2.0, a=v)


@case()
def keywords_against_positions(t: Run) -> None:
    f = t(lambda x, a=1.0, b=2.0: x * a + b)
    for v in (1.0, 2.0):
        t.call(f, ramp(3), v)
        t.call(f, ramp(3), b=v)
        t.call(f, x=ramp(3), b=v)
        t.call(f, ramp(3), v, v)


@case()
def any_number_of_arguments(t: Run) -> None:
    f = t(lambda *xs: sum(x * (i + 1) for i, x in enumerate(xs)))
    for n in (1, 2, 3, 2, 1):
        t.call(f, *[ramp(3, start=i) for i in range(n)])


@case()
def nested_structures(t: Run) -> None:
    f = t(lambda s: s[0]["a"] * s[1][0][1] + s[1][0][0])
    for v in (1.0, 2.0, 3.0):
        t.call(f, [{"a": ramp(3, start=v)}, [(ones(3), v)]])
        t.call(f, [{"a": ramp(3, start=v)}, [(ones(3), ones(3) * v)]])


@case()
def tensors_of_other_dtypes(t: Run) -> None:
    over(t, lambda x, y: x + y.astype("float32"), [ramp(4).astype(d) for d in ("float32", "int32", "float16", "uint8")])


@case()
def tensors_of_other_shapes(t: Run) -> None:
    over(t, lambda x, y: F.concat([x, y.flatten()]) * y.shape[0], [ramp(n) for n in (1, 2, 3)] + [ramp(2, 2)])


@case()
def nought_dims_against_one(t: Run) -> None:
    over(t, lambda x, y: x * y + y.ndim, [Tensor(2.0), Tensor([2.0]), Tensor(3.0)])


@case()
def empty_tensors(t: Run) -> None:
    over(t, lambda x, y: x * 2 + y.sum(), [ramp(0), ramp(2), ramp(0, 3)])


@case()
def tensors_on_other_devices(t: Run) -> None:
    f = t(lambda x: x * 2 + 1)
    for d in ("cpu0", "cpu1", "cpu0", "cpu1"):
        y = t.call(f, Tensor([1.0, 2.0], device=d))
        t.see(str(y.device))


@case()
def parameter_against_tensor(t: Run) -> None:
    over(t, lambda x, p: x * (2 if isinstance(p, Parameter) else 3) + p, [Parameter([1.0] * 4), ones(4)])


@case()
def quantised_arguments(t: Run) -> None:
    f = t(lambda q: q.astype("float32") * 2)
    for scale in (0.5, 0.25, 0.5, 0.125):
        q = Tensor(np.array([1.0, -2.0], np.float32)).astype(mge.core.tensor.dtype.qint8(scale))
        t.call(f, q)


@case()
def devices_as_strings(t: Run) -> None:
    f = t(lambda x, d: x.to(d) * 2)
    for d in ("cpu0", "cpu1", "cpu0", "cpu1"):
        y = t.call(f, ramp(3), d)
        t.see(str(y.device))


@case()
def a_float_that_never_repeats(t: Run) -> None:
    f = t(times)
    for i in range(20):
        t.call(f, ramp(2), i * 0.1)


class Holder:
    def __init__(self, run: Run, k: float) -> None:
        self.k = k
        self.scaled = run(lambda x: x * self.k)


@case()
def traces_of_two_instances(t: Run) -> None:
    a, b = Holder(t, 2.0), Holder(t, 3.0)
    for i in range(3):
        t.call(a.scaled, ramp(3, start=i))
        t.call(b.scaled, ramp(3, start=i))


class Net(M.Module):
    def __init__(self, k: float) -> None:
        super().__init__()
        self.k = k
        self.w = Parameter([k, k])

    def forward(self, x: Tensor) -> Tensor:
        return x * self.w + self.k


@case()
def a_method_with_self_as_an_argument(t: Run) -> None:
    nets = [Net(2.0), Net(3.0)]
    f = t(lambda self, x: self.forward(x))
    for i in range(3):
        for n in nets:
            t.call(f, n, ramp(2, start=i))
