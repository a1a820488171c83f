"""Ways to use a trace: values read on the host, branches, assigned arguments, returned structures, exceptions."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import gc
from typing import Any

import numpy as np
from trace_attack import Run, case
from trace_cases_arguments import PairA, ones, ramp

import megengine.functional as F
import megengine.module as M
from megengine import Parameter, Tensor
from megengine.jit import exclude_from_trace


def four(t: Run, fn: Any, *more: Any, bodies: int | None = None) -> None:
    """Four calls with other values; what happened to the arguments is written down."""
    f = t(fn)
    for v in (1.0, -2.0, 3.0, -4.0):
        x = Tensor(np.array([v, v + 1, 2 * v], np.float32))
        t.call(f, x, *more)
        t.see(x)
    if bodies is not None:
        t.python_ran_at_most(bodies)


# ---- host reads


@case(refused="without_host")
def item_returned(t: Run) -> None:
    four(t, lambda x: (x * 2).sum().item())


@case(refused="without_host")
def item_used_in_an_op(t: Run) -> None:
    four(t, lambda x: x * (x * 2).sum().item())


@case(refused="without_host")
def item_of_an_argument(t: Run) -> None:
    four(t, lambda x: x * x[0].item())


@case(refused="without_host")
def an_argument_read_as_it_came(t: Run) -> None:
    f = t(lambda x, k: x * k.item())
    for v in (1.0, 2.0, 3.0, 4.0):
        t.call(f, ramp(3), Tensor(v))


@case()
def a_captured_tensor_read(t: Run) -> None:
    w = Tensor(1.0)
    f = t(lambda x: x * w.item())
    for v in (1.0, 2.0, 3.0, 4.0):
        w[...] = v
        t.call(f, ramp(3))


@case(refused="without_host")
def float_of_a_tensor(t: Run) -> None:
    four(t, lambda x: x + float(x.max()))


@case(refused="without_host")
def int_of_a_tensor(t: Run) -> None:
    four(t, lambda x: x * int(x.max().astype("int32")))


@case(refused="without_host")
def numpy_of_a_tensor(t: Run) -> None:
    four(t, lambda x: x + Tensor((x * 2).numpy() + 1))


@case(refused="without_host")
def tolist_of_a_tensor(t: Run) -> None:
    four(t, lambda x: x * (x + 1).tolist()[0])


@case(refused="without_host")
def numpy_by_its_protocol(t: Run) -> None:
    four(t, lambda x: x * float(np.asarray(x * 2)[0]))


@case(refused="without_host")
def text_of_a_tensor(t: Run) -> None:
    four(t, lambda x: x * len(str(x * 1000.5)))


@case(refused="without_host")
def a_tensor_formatted(t: Run) -> None:
    four(t, lambda x: x * len(f"{x.sum().item():.3f}"))


@case(refused="without_host")
def a_loss_logged(t: Run) -> None:
    seen: list[float] = []

    def fn(x: Tensor) -> Tensor:
        loss = (x * x).sum()
        seen.append(loss.item())
        return loss

    t.watch(seen)
    four(t, fn)


@case(refused="both")
def a_branch_on_a_value(t: Run) -> None:
    four(t, lambda x: x * 2 if x.sum() > 0 else x - 1)


@case(refused="both")
def a_branch_on_a_value_of_one_shape(t: Run) -> None:
    four(t, lambda x: x * 2 if bool((x > 0).any() if hasattr(x, "any") else x.max() > 0) else x * 3 + 1)


@case(refused="both")
def a_loop_until_a_value(t: Run) -> None:
    def fn(x: Tensor) -> Tensor:
        while (F.abs(x)).sum() < 100:
            x = x * 2
        return x

    four(t, fn)


@case(refused="without_host")
def an_assertion_on_a_value(t: Run) -> None:
    def fn(x: Tensor) -> Tensor:
        assert not F.isnan(x).sum() > 0
        return x * 2

    four(t, fn)


@case(refused="without_host")
def python_max_of_tensors(t: Run) -> None:
    four(t, lambda x: max(x[0], x[1]) * 1.0)


@case(refused="without_host")
def a_python_index_from_a_value(t: Run) -> None:
    rows = [1.0, 2.0, 3.0]
    four(t, lambda x: x * rows[int(F.argmax(x, axis=0))])


@case()
def shapes_are_no_values(t: Run) -> None:
    four(t, lambda x: x * x.shape[0] + len(x) + x.size + x.ndim, bodies=1)


@case()
def iteration_over_a_tensor(t: Run) -> None:
    four(t, lambda x: sum(row * (i + 1) for i, row in enumerate(x)), bodies=1)


@case()
def a_select_instead_of_a_branch(t: Run) -> None:
    four(t, lambda x: F.where(x.sum() > 0, x * 2, x - 1), bodies=1)


@case()
def a_mask_as_an_index(t: Run) -> None:
    four(t, lambda x: x[x > 0] * 2)


@case()
def sizes_from_values(t: Run) -> None:
    four(t, lambda x: [F.cond_take(x > 0, x)[0] + 1, F.non_zero(x > 0)])


@case()
def assignment_under_a_mask(t: Run) -> None:
    def fn(x: Tensor) -> Tensor:
        y = x * 1
        y[y < 0] = 0
        return y

    four(t, fn)


@case()
def a_tensor_as_an_index(t: Run) -> None:
    four(t, lambda x: x[F.argmax(x, axis=0)] * 2, bodies=1)


# ---- arguments assigned in the body


@case()
def an_argument_incremented(t: Run) -> None:
    def fn(x: Tensor) -> Tensor:
        x += 1
        return x * 2

    four(t, fn)


@case()
def an_argument_incremented_and_not_used(t: Run) -> None:
    def fn(x: Tensor) -> None:
        x += 1

    four(t, fn)


@case()
def an_argument_assigned_in_part(t: Run) -> None:
    def fn(x: Tensor) -> Tensor:
        x[0] = x[1] * 5
        return x.sum()

    four(t, fn)


@case()
def an_argument_assigned_twice(t: Run) -> None:
    def fn(x: Tensor) -> Tensor:
        x *= 2
        y = x + 1
        x -= y
        return y

    four(t, fn)


@case()
def arguments_swapped(t: Run) -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        old = x * 1
        x[...] = y
        y[...] = old
        return x - y

    f = t(fn)
    for i in range(4):
        x, y = ramp(3, start=i), ramp(3, start=-i)
        t.call(f, x, y)
        t.see(x, y)


@case()
def an_argument_assigned_to_state(t: Run) -> None:
    w = Parameter([0.0, 0.0, 0.0])

    def fn(x: Tensor) -> Tensor:
        w[...] = x
        x[...] = w * 2
        return w + x

    t.watch(w)
    four(t, fn)


@case()
def an_argument_assigned_and_returned(t: Run) -> None:
    def fn(x: Tensor) -> Tensor:
        x += 1
        return x

    f = t(fn)
    x = ramp(3)
    for _ in range(4):
        y = t.call(f, x)
        t.see(x, y is x)


@case()
def one_buffer_given_again_and_again(t: Run) -> None:
    def fn(x: Tensor) -> Tensor:
        x *= 2
        return x.sum()

    f, x = t(fn), ones(3)
    t.watch(x)
    for _ in range(5):
        t.call(f, x)


@case()
def an_argument_of_a_dict_assigned(t: Run) -> None:
    def fn(d: dict[str, Tensor]) -> None:
        d["x"] += d["y"]

    f = t(fn)
    for i in range(4):
        d = {"x": ramp(3), "y": ramp(3, start=i)}
        t.call(f, d)
        t.see(d)


@case()
def a_list_argument_appended(t: Run) -> None:
    def fn(x: Tensor, out: list[Tensor]) -> None:
        out.append(x * 2)

    f = t(fn)
    for i in range(4):
        out: list[Tensor] = []
        t.call(f, ramp(2, start=i), out)
        t.see(out)


@case()
def a_dict_argument_written(t: Run) -> None:
    def fn(x: Tensor, out: dict[str, Tensor]) -> None:
        out["y"] = x * 2

    f = t(fn)
    for i in range(4):
        out: dict[str, Tensor] = {}
        t.call(f, ramp(2, start=i), out)
        t.see(out)


@case()
def the_caller_changes_the_argument_later(t: Run) -> None:
    f = t(lambda x: x)
    for i in range(4):
        x = ramp(3, start=i)
        y = t.call(f, x)
        x += 1
        t.see(x, y)


@case()
def the_caller_changes_the_result(t: Run) -> None:
    w = Tensor([1.0, 2.0, 3.0])
    f = t(lambda x: (x * w, w * 2))
    t.watch(w)
    for i in range(4):
        a, b = t.call(f, ramp(3, start=i))
        a += 100
        b *= 0
        t.see(a, b)


@case()
def results_kept_over_calls(t: Run) -> None:
    f = t(lambda x: [x * 2, x + 1])
    kept = [t.call(f, ramp(3, start=i)) for i in range(5)]
    t.see(kept)


@case()
def a_view_of_an_argument(t: Run) -> None:
    f = t(lambda x: x.reshape(3, 1)[1:].flatten())
    kept = []
    for i in range(4):
        x = ramp(3, start=i)
        kept.append(t.call(f, x))
        x *= 0
    t.see(kept)


@case()
def a_view_of_state_kept_over_calls(t: Run) -> None:
    w = Parameter([[1.0, 2.0], [3.0, 4.0]])

    def fn(x: Tensor) -> Any:
        out = w.reshape(-1), w[0], w.transpose(1, 0)
        w[...] = w * 2 + x
        return out

    f = t(fn)
    t.watch(w)
    kept = [t.call(f, ramp(2, 2, start=i)) for i in range(4)]
    t.see(kept)


@case()
def state_returned_before_it_changes(t: Run) -> None:
    w = Parameter([1.0, 2.0])

    def fn(x: Tensor) -> Any:
        old = w.detach()
        new = w + x
        w[...] = new
        return old, new

    f = t(fn)
    kept = [t.call(f, ramp(2, start=i)) for i in range(4)]
    t.see(kept, w)


@case()
def a_list_that_holds_itself(t: Run) -> None:
    f = t(lambda x, s: x * s[0])
    for v in (2.0, 3.0, 2.0, 3.0):
        s: list[Any] = [v]
        s.append(s)
        t.call(f, ramp(3), s)


@case()
def a_dataclass_argument_assigned(t: Run) -> None:
    def fn(b: Out) -> Tensor:
        b.loss += 1
        return b.loss * b.n

    f = t(fn)
    for i in range(4):
        b = Out(ramp(2, start=i), 2.0)
        t.call(f, b)
        t.see(b)


@case()
def state_changed_before_a_failing_kernel(t: Run) -> None:
    w = Tensor([1.0])

    def fn(x: Tensor, y: Tensor) -> Tensor:
        w[...] = w + 1
        return F.nn.cross_entropy(x, y) * w

    f = t(fn)
    for label in (1, 0, 9, 2, 1):
        try:
            t.see(f(ramp(2, 3), Tensor(np.array([0, label], np.int32))))
        except RuntimeError:
            w[...] = Tensor([float(label)])  # what a failed call has done to its state is not promised


# ---- results


@dataclasses.dataclass
class Out:
    loss: Any
    n: float = 1.0


@case()
def a_dataclass_returned(t: Run) -> None:
    four(t, lambda x: Out(x.sum(), 2.0))


@case()
def a_namedtuple_returned(t: Run) -> None:
    four(t, lambda x: PairA(x * 2, [x + 1, 3]), bodies=1)


@case()
def an_ordereddict_returned(t: Run) -> None:
    four(t, lambda x: collections.OrderedDict(b=x * 2, a=x + 1))


@case()
def a_defaultdict_returned(t: Run) -> None:
    four(t, lambda x: collections.defaultdict(list, b=x * 2))


@case()
def nothing_returned(t: Run) -> None:
    four(t, lambda x: None, bodies=1)


@case()
def plain_things_returned(t: Run) -> None:
    four(t, lambda x: {"n": 3, "s": "text", "none": None, "shape": tuple(x.shape), "t": x * 2}, bodies=1)


@case()
def a_fresh_list_each_time(t: Run) -> None:
    f = t(lambda x: [[x * 2], []])
    for i in range(4):
        out = t.call(f, ramp(2, start=i))
        out[1].append("mine")
        t.see(out)


@case()
def a_fresh_dict_of_plain_things_each_time(t: Run) -> None:
    f = t(lambda x: {"stats": {"n": [1, 2]}, "x": x * 2})
    for i in range(4):
        out = t.call(f, ramp(2, start=i))
        out["stats"]["n"].append(3)
        t.see(out)


@case()
def a_set_returned(t: Run) -> None:
    f = t(lambda x: (x * 2, {1, 2}))
    for i in range(4):
        out = t.call(f, ramp(2, start=i))
        out[1].add(7 + i)
        t.see(out[1])


@case()
def an_array_returned(t: Run) -> None:
    four(t, lambda x: (x * 2, np.arange(3)))


@case()
def an_argument_returned(t: Run) -> None:
    f = t(lambda x: (x, x * 2))
    for i in range(4):
        x = ramp(3, start=i)
        y = t.call(f, x)
        t.see(y[0])


@case()
def a_parameter_returned(t: Run) -> None:
    w = Parameter([1.0, 2.0])
    f = t(lambda x: (w, x * w))
    for i in range(4):
        w[...] = float(i)
        out = t.call(f, ramp(2))
        t.see(type(out[0]).__name__, out[0] is w)


@case()
def a_parameter_updated_and_returned(t: Run) -> None:
    w = Parameter([1.0, 2.0])

    def fn(x: Tensor) -> Tensor:
        w[...] = w + x
        return w

    f = t(fn)
    t.watch(w)
    for i in range(4):
        t.call(f, ramp(2, start=i))


@case()
def one_tensor_returned_twice(t: Run) -> None:
    def fn(x: Tensor) -> Any:
        y = x * 2
        return y, [y]

    f = t(fn)
    for i in range(4):
        a, (b,) = t.call(f, ramp(2, start=i))
        t.see(a is b)
        a += 1
        t.see(a, b)


@case()
def a_generator_returned(t: Run) -> None:
    f = t(lambda x: (x * i for i in range(2)))
    for i in range(4):
        t.see(list(t.call(f, ramp(2, start=i))))


@case()
def an_object_with_a_tensor_returned(t: Run) -> None:
    class Thing:
        def __init__(self, y: Tensor) -> None:
            self.y = y

    f = t(lambda x: Thing(x * 2))
    for i in range(4):
        out = t.call(f, ramp(2, start=i))
        t.see(out.y)


@case()
def a_closure_returned(t: Run) -> None:
    def fn(x: Tensor) -> Any:
        y = x * 2
        return lambda: y

    f = t(fn)
    for i in range(4):
        t.see(t.call(f, ramp(2, start=i))())


@case()
def a_constant_returned(t: Run) -> None:
    four(t, lambda x: (Tensor([1.0, 2.0]), F.zeros(3), x * 2))


# ---- leaks


@case()
def a_result_appended_outside(t: Run) -> None:
    out: list[Tensor] = []

    def fn(x: Tensor) -> Tensor:
        y = x * 2
        out.append(y)
        return y + 1

    f = t(fn)
    for i in range(4):
        t.call(f, ramp(2, start=i))
        t.see(out)


@case()
def a_tensor_hidden_in_an_attribute(t: Run) -> None:
    class Box:
        y: Any = None

    box = Box()

    def fn(x: Tensor) -> Tensor:
        box.y = x * 2
        return box.y + 1

    f = t(fn)
    for i in range(4):
        t.call(f, ramp(2, start=i))
        t.see(box.y)


@case()
def an_auxiliary_output_of_a_module(t: Run) -> None:
    class Attention(M.Module):
        def forward(self, x: Tensor) -> Tensor:
            self.weights = F.softmax(x, axis=0)
            return x * self.weights

    net = Attention()
    f = t(lambda x: net(x))
    for i in range(4):
        t.call(f, ramp(3, start=i))
        t.see(net.weights)


# ---- what is left out


@case()
def excluded_ops_of_other_numbers(t: Run) -> None:
    n = [0]

    def fn(x: Tensor) -> Tensor:
        n[0] += 1
        with exclude_from_trace():
            for _ in range(n[0] if t.mode == "host" else 1):
                ones(2) + 1
        return x * 2

    four(t, fn)


@case()
def an_excluded_result_used(t: Run) -> None:
    n = [0.0]

    def fn(x: Tensor) -> Tensor:
        n[0] += 1
        with exclude_from_trace():
            k = Tensor(n[0]) * 10
        return x * k

    four(t, fn)


@case()
def an_excluded_computation_with_a_traced_value(t: Run) -> None:
    n = [0]

    def fn(x: Tensor) -> Tensor:
        n[0] += 1
        y = x * 2
        with exclude_from_trace():
            if n[0] % 2 == 0:
                y = -y
        return y + 1

    four(t, fn)


@case()
def an_excluded_read(t: Run) -> None:
    seen: list[float] = []

    def fn(x: Tensor) -> Tensor:
        y = x * 2
        with exclude_from_trace():
            seen.append(float(y.sum()))
        return y + 1

    t.watch(seen)
    four(t, fn)


# ---- exceptions


@case(may_raise=True)
def an_exception_while_recording(t: Run) -> None:
    def fn(x: Tensor, fail: bool) -> Tensor:
        y = x * 2
        if fail:
            raise KeyError("mine")
        return y + 1

    f = t(fn)
    for fail in (True, False, True, False, False):
        t.call(f, ramp(3), fail)


@case(may_raise=True)
def an_exception_after_state_was_assigned(t: Run) -> None:
    w = Parameter([1.0])
    fail = [False]

    def fn(x: Tensor, n: int) -> Tensor:
        w[...] = w + x
        return x * (1 // n)

    f = t(fn)
    t.watch(w)
    t.call(f, Tensor([1.0]), 1)
    t.call(f, Tensor([2.0]), 1)
    with contextlib.suppress(ZeroDivisionError):
        f(Tensor([3.0]), 0)
    fail[0] = True
    w[...] = 5.0
    t.call(f, Tensor([4.0]), 1)
    t.call(f, Tensor([5.0]), 1)


@case()
def a_wrong_shape_then_a_right_one(t: Run) -> None:
    net = M.Linear(3, 2)
    f = t(lambda x: net(x))
    for n in (3, 4, 3, 4, 3):
        try:
            y = f(ramp(2, n))
            t.see(y)
        except (ValueError, RuntimeError) as e:
            t.see(type(e).__name__)


@case()
def a_failing_kernel_then_a_good_call(t: Run) -> None:
    f = t(lambda x, y: F.nn.cross_entropy(x, y))
    for label in (1, 9, 0, 9, 2):
        try:
            y = f(ramp(2, 3), Tensor(np.array([0, label], np.int32)))
            t.see(y)
        except RuntimeError:
            t.see("failed")


# ---- the program lives on


@case()
def garbage_between_calls(t: Run) -> None:
    net = M.Linear(3, 3)
    f = t(lambda x: net(x) * 2)
    for i in range(5):
        t.call(f, ramp(2, 3, start=i))
        gc.collect()


@case()
def more_shapes_than_anybody_keeps(t: Run) -> None:
    f = t(lambda x: x.sum() * x.shape[0])
    for n in [*range(1, 40), *range(1, 5)]:
        t.call(f, ramp(n))


@case()
def constants_made_in_the_body(t: Run) -> None:
    four(t, lambda x: x * Tensor([1.0, 2.0, 3.0]) + F.arange(3), bodies=1)


@case()
def a_python_number_in_an_op(t: Run) -> None:
    f = t(lambda x, k: x * k + (k + 1))
    for k in (1.0, 2.0, 2.0, 1.0):
        t.call(f, ramp(3), k)
