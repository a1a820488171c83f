"""GradManager, groups, Function and Grad."""

from __future__ import annotations

import copy
import gc
import weakref

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Parameter, Tensor
from megengine.autodiff import Function, GradManager, checkpoint
from megengine.autodiff.grad_manager import GradManagerGroup, get_backwarding_grad_manager
from megengine.core import _core
from megengine.core.autodiff.grad import Grad
from megengine.utils.future import Future

pytestmark = pytest.mark.asan_subset


def test_basic_use_and_accumulation():
    w = Parameter([2.0])
    gm = GradManager().attach(w)
    for _ in range(2):
        with gm:
            gm.backward(w * w * 3)
    assert w.grad.tolist() == [24.0]
    first = w.grad
    with gm:
        gm.backward(w)
    assert w.grad is first and first.tolist() == [25.0]


def test_record_release_and_errors():
    x = Tensor([1.0])
    gm = GradManager().attach(x)
    with pytest.raises(RuntimeError, match="no computation history. did you forget record()"):
        gm.backward(x)
    gm.record()
    with pytest.raises(RuntimeError, match="already recording"):
        gm.record()
    y = x * 2
    gm.release()
    gm.release()
    with pytest.raises(RuntimeError, match="no computation history"):
        gm.backward(y)
    with gm:
        y = x * 2
        gm.backward(y)
        with pytest.raises(RuntimeError, match="no computation history"):
            gm.backward(y)  # inactive after backward, though still inside with


@pytest.mark.parametrize(
    "y, dy, text",
    [
        (lambda x: x * 2, lambda: Tensor([1.0, 1.0]), r"y has shape \[3\] but dy \[2\]"),
        (lambda x: x * 2, lambda: [F.ones(3), F.ones(3)], "1 tensors but 2 gradients"),
        (lambda x: [x, x * 2], lambda: F.ones(3), "2 tensors but 1 gradients"),
        (lambda x: x * 2, lambda: 1.0, "dy must be a Tensor or several; got float"),
        (lambda x: x * 2, lambda: np.ones(3, "float32"), "dy must be a Tensor or several; got ndarray"),
        (lambda x: [x * 2], lambda: [None], "dy must be a Tensor or several; got NoneType"),
        (lambda x: 3.0, lambda: None, "y must be a Tensor or several; got float"),
    ],
)
def test_a_wrong_start_of_backward_is_an_error_and_loses_nothing(y, dy, text):
    x = Tensor([1.0, 2.0, 3.0])
    x.grad = Tensor([5.0, 5.0, 5.0])
    gm = GradManager().attach(x)
    with gm, pytest.raises(RuntimeError, match=text):
        gm.backward(y(x), dy())
    assert x.grad.tolist() == [5.0, 5.0, 5.0]
    with gm:  # the manager works on
        gm.backward(x * 2)
    assert x.grad.tolist() == [7.0, 7.0, 7.0]


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_gradient_of_one_element_may_have_any_shape(shape):
    x = Tensor([3.0])
    for y in (lambda: (x * x).sum(), lambda: x * x):
        x.grad = None
        with GradManager().attach(x) as gm:
            gm.backward(y(), Tensor(np.full(shape, 2.0, "float32")))
        assert x.grad.tolist() == [12.0]


@pytest.mark.parametrize("fn", [F.floor, F.sign, lambda x: (x > 0).astype("float32"), lambda x: F.argmax(x, 0)])
def test_what_has_no_gradient_stops_the_path(fn):
    x = Tensor([1.5, -2.0])
    gm = GradManager().attach(x)
    with gm:
        y = fn(x)
        gm.backward([y.astype("float32").sum() + (x * 3).sum()])
    assert x.grad.tolist() == [3.0, 3.0]


def test_default_dy_is_ones_of_any_shape():
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    with GradManager().attach(x) as gm:
        gm.backward(x * x)
    assert x.grad.tolist() == [[2.0, 4.0], [6.0, 8.0]]


def test_several_outputs_and_dys():
    x = Tensor([1.0, 2.0])
    with GradManager().attach(x) as gm:
        gm.backward([x * 2, x * 3], [Tensor([1.0, 1.0]), Tensor([10.0, 0.0])])
    assert x.grad.tolist() == [32.0, 2.0]
    with GradManager().attach(x) as gm, pytest.raises(ValueError):
        gm.backward([x, x], [Tensor([1.0, 1.0])])
    with GradManager().attach(x) as gm:
        gm.backward()
    assert x.grad.tolist() == [32.0, 2.0]


def test_unconnected_tensors_keep_none_and_zero_paths_give_zeros():
    x, y, z = Tensor([1.0]), Tensor([1.0]), Tensor([1.0])
    with GradManager().attach([x, y, z]) as gm:
        gm.backward(F.where(Tensor([False]), x, y))
    assert x.grad.tolist() == [0.0] and y.grad.tolist() == [1.0] and z.grad is None
    with GradManager().attach(z) as gm:
        gm.backward(Tensor([5.0]))
    assert z.grad is None


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "bool"])
def test_only_floats_can_be_attached(dtype):
    with pytest.raises(AssertionError):
        GradManager().attach(Tensor([1], dtype=dtype))
    with pytest.raises(AssertionError):
        GradManager().attach([3.0])


def test_float16_can_be_attached():
    x = Tensor([2.0], dtype="float16")
    with GradManager().attach(x) as gm:
        gm.backward(x * x)
    assert x.grad.dtype == np.float16 and x.grad.tolist() == [4.0]


def test_what_programs_look_at_in_a_manager():
    x = mge.tensor([1.0])
    gm = GradManager().attach(x, callbacks=[lambda t, g: g])
    assert not gm._recording and list(gm._attach_specs) == [id(x)]
    assert gm._attach_specs[id(x)].tensor() is x and len(gm._attach_specs[id(x)].callbacks) == 1
    with gm:
        assert gm._recording
    assert not gm._recording


def test_attach_while_recording_sees_only_what_follows():
    x = Tensor([1.0])
    gm = GradManager()
    with gm:
        a = x * 2
        gm.attach(x)
        b = x * 3
        gm.backward(a + b)
    assert x.grad.tolist() == [3.0]


def test_attached_tensors_are_held_weakly():
    gm = GradManager()
    x, y = Tensor([1.0]), Tensor([2.0])
    gm.attach([x, y])
    assert [id(t) for t in gm.attached_tensors()] == [id(x), id(y)]
    ref = weakref.ref(x)
    del x
    gc.collect()
    assert ref() is None and gm.attached_tensors() == [y] or [id(t) for t in gm.attached_tensors()] == [id(y)]
    with gm:
        t = Tensor([3.0])
        gm.attach(t)
        gm.backward(t * 2)
    ref = weakref.ref(t)
    del t
    gc.collect()
    assert ref() is None


def test_callbacks():
    x = Tensor([1.0])
    seen = []

    def first(t, g):
        seen.append(t is x)
        return g * 2

    gm = GradManager().attach(x, callbacks=first)
    gm.attach(x, callbacks=[lambda t, g: g + 1, lambda t, g: g * 10])
    with gm:
        gm.backward(x * 3)
    assert seen == [True] and x.grad.tolist() == [70.0]
    y = Tensor([1.0])
    with GradManager().attach(y, callbacks=lambda t, g: None) as gm:
        gm.backward(y)
    assert y.grad is None


def test_future_gradients_and_after_backward_callbacks():
    x = Tensor([1.0])
    order = []
    later = []

    def delay(t, g):
        f = Future(ack=False)
        later.append((f, g))
        order.append("grad")
        return f

    def finish():
        order.append("after")
        for f, g in later:
            f.set(g * 5)

    gm = GradManager().attach(x, callbacks=delay)
    gm._register_after_backward_callback(finish)
    with gm:
        gm.backward(x * 2)
    assert order == ["grad", "after"] and x.grad.tolist() == [10.0]


def test_backwarding_grad_manager():
    x = Tensor([1.0])
    inside = []
    gm = GradManager().attach(x, callbacks=lambda t, g: inside.append(get_backwarding_grad_manager()) or g)
    with gm:
        gm.backward(x)
    assert inside == [gm] and get_backwarding_grad_manager() is None


def test_an_exception_in_a_callback_ends_the_recording():
    x = Tensor([1.0])

    def bad(t, g):
        raise KeyError("stop")

    gm = GradManager().attach(x, callbacks=bad)
    with pytest.raises(KeyError), gm:
        gm.backward(x * 2)
    assert get_backwarding_grad_manager() is None
    with gm:
        assert x.grad is None


# ---- higher order


def test_second_derivative_by_nesting():
    x = Tensor([3.0])
    with GradManager().attach(x) as outer:
        with GradManager().attach(x) as inner:
            inner.backward(x * x * x)
        first, x.grad = x.grad, None
        outer.backward(first)
    assert first.tolist() == [27.0] and x.grad.tolist() == [18.0]


def test_third_derivative():
    x = Tensor([2.0])
    gms = [GradManager().attach(x) for _ in range(3)]
    with gms[0]:
        with gms[1]:
            with gms[2]:
                gms[2].backward(x**4.0)
            g1, x.grad = x.grad, None
            gms[1].backward(g1)
        g2, x.grad = x.grad, None
        gms[0].backward(g2)
    np.testing.assert_allclose([g1.item(), g2.item(), x.grad.item()], [32.0, 48.0, 48.0], rtol=1e-5)


def test_later_managers_do_not_see_earlier_backwards():
    x = Tensor([3.0])
    first, second = GradManager().attach(x), GradManager().attach(x)
    with first, second:
        y = x * x
        first.backward(y)
        g, x.grad = x.grad, None
        second.backward(g)
    assert x.grad is None


def test_groups_are_blind_to_each_other():
    x = Tensor([3.0])
    gm1, gm2 = GradManager().attach(x), GradManager().attach(x)
    group = gm1 | gm2
    assert isinstance(group, GradManagerGroup)
    with group:
        y = x * x
        gm1.backward(y)
        assert x.grad.tolist() == [6.0]
        gm2.backward(x.grad)
        assert x.grad.tolist() == [6.0]
    x.grad = None
    with gm1 | gm2:
        y = x * x
        gm1.backward(y)
        gm2.backward(y)
    assert x.grad.tolist() == [12.0]
    gm3 = GradManager()
    assert len((group | gm3)._gms) == 3 and len((gm3 | group)._gms) == 3
    with pytest.raises(TypeError):
        gm1 | 3


def test_forward_mode_by_double_backward():
    x = Tensor([2.0, 3.0])
    dy = Tensor([0.0, 0.0])
    v = Tensor([1.0, 10.0])
    with GradManager().attach(dy) as outer:
        with GradManager().attach(x) as inner:
            inner.backward(x * x, dy)
        outer.backward(x.grad, v)
    assert dy.grad.tolist() == [4.0, 60.0]


# ---- in-place and detach


def test_assignment_and_detach():
    x = Tensor([1.0, 2.0])
    with GradManager().attach(x) as gm:
        y = x * 2
        y[0] = 0.0
        y += x
        gm.backward(y.sum() + (x.detach() * 100).sum())
    assert x.grad.tolist() == [1.0, 3.0]


def test_nothing_is_kept_after_the_block():
    x = Tensor(np.ones(4, "float32"))
    with GradManager().attach(x) as gm:
        y = F.relu(x) + 1
        ref = weakref.ref(y)
        gm.backward(y)
        del y
    gc.collect()
    assert ref() is None


def test_cycles_leave_no_objects_behind():
    x = Tensor([1.0])
    gm = GradManager().attach(x)

    def once():
        with gm:
            gm.backward(F.exp(x) * x)
        x.grad = None

    for _ in range(3):
        once()
    gc.collect()
    gc.disable()
    try:
        counts = []
        for _ in range(3):
            for _ in range(10):
                once()
            counts.append(len(gc.get_objects()))
        assert counts[1] == counts[2]
    finally:
        gc.enable()


def test_gradients_of_different_tensors_are_independent():
    a, b, dy = Tensor([1.0]), Tensor([2.0]), Tensor([1.0])
    with GradManager().attach([a, b]) as gm:
        gm.backward(a + b, dy)
    a.grad *= 5
    assert a.grad.tolist() == [5.0] and b.grad.tolist() == [1.0] and dy.tolist() == [1.0]


def test_changing_a_gradient_inside_a_function_is_private():
    class Double(Function):
        def forward(self, x):
            return x * 2

        def backward(self, dy):
            dy *= 2
            return dy

    a, b = Tensor([1.0]), Tensor([1.0])
    with GradManager().attach([a, b]) as gm:
        gm.backward(Double()(a) + b)
    assert a.grad.tolist() == [2.0] and b.grad.tolist() == [1.0]


# ---- Function


class Square(Function):
    def forward(self, x):
        self.x = x
        return x * x

    def backward(self, dy):
        return self.x * dy * 2


def test_function():
    x = Tensor([3.0])
    assert Square()(x).tolist() == [9.0]
    with GradManager().attach(x) as gm:
        y = Square()(x)
        assert type(y) is Tensor
        gm.backward(y * 10)
    assert x.grad.tolist() == [60.0]


def test_function_with_a_wrong_gradient_uses_that_gradient():
    class Fake(Function):
        def forward(self, x):
            return F.exp(x) * 3

        def backward(self, dy):
            return dy * 7

    x = Tensor([1.0])
    with GradManager().attach(x) as gm:
        gm.backward(Fake()(x))
    assert x.grad.tolist() == [7.0]


def test_function_with_several_inputs_and_outputs():
    class Mix(Function):
        def forward(self, a, b):
            return a + b, a * b

        def backward(self, d_sum, d_prod):
            self.got = (d_sum, d_prod)
            return d_sum * 2, None

    a, b = Tensor([2.0]), Tensor([3.0])
    mix = Mix()
    with GradManager().attach([a, b]) as gm:
        s, p = mix(a, b)
        gm.backward(s * 5 + b * 4)
    assert mix.got[1] is None
    assert a.grad.tolist() == [10.0] and b.grad.tolist() == [4.0]


def test_function_second_order():
    x = Tensor([3.0])
    with GradManager().attach(x) as outer:
        with GradManager().attach(x) as inner:
            inner.backward(Square()(x))
        first, x.grad = x.grad, None
        outer.backward(first)
    assert first.tolist() == [6.0] and x.grad.tolist() == [2.0]


def test_function_returning_its_input():
    class Pass(Function):
        def forward(self, x):
            return x

        def backward(self, dy):
            return dy * 3

    x = Tensor([1.0])
    with GradManager().attach(x) as gm:
        y = Pass()(x)
        assert y is not x
        gm.backward(y)
    assert x.grad.tolist() == [3.0]


def test_function_may_change_its_input():
    class Clobber(Function):
        def forward(self, x):
            y = x * 2
            x[...] = Tensor([0.0])
            return y

        def backward(self, dy):
            return dy * 2

    x = Tensor([5.0])
    with GradManager().attach(x) as gm:
        a = x * 1
        y = Clobber()(a)
        gm.backward(y)
    assert x.grad.tolist() == [2.0] and y.tolist() == [10.0] and a.tolist() == [0.0]


def test_function_errors():
    with pytest.raises(TypeError, match="op .* expect type Tensor as inputs"):
        Square()(3.0)
    with pytest.raises(NotImplementedError):
        Function()(Tensor([1.0]))

    class Wrong(Function):
        def forward(self, x):
            return 3

        def backward(self, dy):
            return dy

    x = Tensor([1.0])
    with GradManager().attach(x), pytest.raises(TypeError, match="must return Tensors"):
        Wrong()(x)


def test_functions_can_be_copied_and_held_by_modules():
    class Net(M.Module):
        def __init__(self):
            super().__init__()
            self.f = Square()

        def forward(self, x):
            return self.f(x)

    net = copy.deepcopy(Net())
    assert net(Tensor([2.0])).tolist() == [4.0]


# ---- Grad


def test_grad():
    x, y = Tensor([3.0]), Tensor([4.0])
    got = {}
    grad = Grad().wrt(x, callback=lambda g: got.setdefault("x", g))
    with grad:
        z = x * y
        grad.wrt(z, callback=lambda g: got.setdefault("z", g))
        w = z * z
        assert grad._is_attached_to(x) and grad._is_attached_to(w) and not grad._is_attached_to(y)
        grad(w, Tensor([1.0]))
    assert got["z"].tolist() == [24.0] and got["x"].tolist() == [96.0]
    assert Grad.stack == []


def test_grad_suppress():
    x, got = Tensor([3.0]), []
    with Grad().wrt(x, callback=got.append) as grad:
        grad.suppress()
        y = x * 2
        grad.resume()
        z = x * 5
        grad(y + z, Tensor([1.0]))
    assert got[0].tolist() == [5.0]


# ---- sums of gradients


def test_gradients_of_slices_meet_in_one_tensor() -> None:
    rng = np.random.RandomState(3)
    x, w = rng.randn(6, 4), rng.randn(6, 4)
    p = Tensor(x, "float64")
    gm = GradManager().attach([p])
    with gm:
        loss = sum((p[t] * p[t] * Tensor(w[t], "float64")).sum() for t in range(6)) + (p[1:5:2] * 3).sum() + p.sum()
        gm.backward(loss)
    want = 2 * x * w + 1
    want[1:5:2] += 3
    np.testing.assert_allclose(p.grad.numpy(), want, rtol=1e-12)


def test_a_gradient_that_two_inputs_share_is_not_overwritten() -> None:
    # x + y hands one gradient to both; what x gets from elsewhere must not reach y.
    x, y = Parameter([1.0, 2.0]), Parameter([3.0, 4.0])
    seen = []
    gm = GradManager().attach([x], callbacks=[lambda t, g: seen.append(g) or g]).attach([y])
    with gm:
        gm.backward(((x + y) * 2 + x * 5 + x[:1].sum() + y[1:].sum() * 7).sum())
    np.testing.assert_array_equal(x.grad.numpy(), [9.0, 7.0])
    np.testing.assert_array_equal(y.grad.numpy(), [2.0, 16.0])
    np.testing.assert_array_equal(seen[0].numpy(), [9.0, 7.0])


def test_second_order_through_slices() -> None:
    x = Tensor(np.array([1.0, 2.0, 3.0]), "float64")
    outer, inner = GradManager().attach([x]), GradManager().attach([x])
    with outer:
        with inner:
            y = (x[0:2] ** 3).sum() + (x[1:3] ** 2).sum() + x[2] * x[0]
            inner.backward(y)
        first = x.grad
        x.grad = None
        outer.backward((first * first).sum())
    # first = [3a^2 + c, 3b^2 + 2b, 2c + a]
    a, b, c = 1.0, 2.0, 3.0
    g = [3 * a * a + c, 3 * b * b + 2 * b, 2 * c + a]
    want = [2 * g[0] * 6 * a + 2 * g[2], 2 * g[1] * (6 * b + 2), 2 * g[0] + 2 * g[2] * 2]
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-12)


def test_a_recording_is_found_by_its_key_while_it_lives():
    grad = Grad()
    assert grad in Grad.key2grad.values()
    count = len(Grad.key2grad)
    del grad
    assert len(Grad.key2grad) == count - 1


def test_tensor_weak_ref():
    from megengine.core._imperative_rt.core2 import TensorWeakRef

    x = Tensor([1.0, 2.0])
    ref = TensorWeakRef(x)
    assert ref() is x
    with GradManager().attach(x) as gm:
        middle = x * 2
        inner = TensorWeakRef(middle)
        y = middle + 1  # addition needs neither of its inputs
        del middle
        assert inner() is None
        gm.backward(y)
    del x, y
    assert ref() is None


# ---- names that programs import from below


def test_set_grad_attaches_a_gradient_to_given_outputs():
    from megengine.core._imperative_rt.core2 import set_grad

    x, seen = mge.tensor([3.0]), []

    def backward(first, second):
        seen.append(first)
        return (second * 100,)

    with GradManager().attach(x) as gm:
        outputs = set_grad(backward, (x,), (mge.tensor([9.0]), mge.tensor([2.0])))
        gm.backward(outputs[1] * 2)
    assert isinstance(outputs, list) and [y.tolist() for y in outputs] == [[9.0], [2.0]]
    assert seen == [None] and x.grad.tolist() == [200.0]
    assert set_grad(backward, (x,), (x,))[0].tolist() == [3.0]  # nobody records: the values, nothing more
    assert len(seen) == 1


def test_function_is_found_beside_grad():
    from megengine.core.autodiff import grad

    assert grad.Function is Function
    with pytest.raises(AttributeError, match="no attribute 'Fonction'"):
        grad.Fonction  # noqa: B018


# ---- when callbacks run


@pytest.mark.parametrize(
    "f, order",
    [
        (lambda a, b, c: (c * 2 + b) * a, "abc"),
        (lambda a, b, c: a * b + c, "cab"),
        (lambda a, b, c: a * b * c + a, "cab"),
        (lambda a, b, c: (a + b) * (b + c), "cab"),
        (lambda a, b, c: c * (b * (a * a)), "cba"),
    ],
)
def test_a_callback_runs_as_soon_as_its_gradient_is_complete(f, order) -> None:
    # In the order of MegEngine 1.13: the tensor used last comes first, those of one op in the order of its inputs.
    tensors = {name: mge.Tensor([value]) for name, value in (("a", 2.0), ("b", 3.0), ("c", 4.0))}
    log: list[str] = []
    gm = GradManager()
    for name, t in tensors.items():
        gm.attach([t], callbacks=lambda _, g, name=name: (log.append(name), g)[1])
    for _ in range(2):  # the second recording starts afresh
        log.clear()
        with gm:
            gm.backward(f(*tensors.values()))
        assert "".join(log) == order
        for t in tensors.values():
            t.grad = None


def test_a_callback_waits_for_every_checkpoint_that_uses_its_tensor() -> None:
    w, x = mge.Tensor([2.0]), mge.Tensor([3.0])
    seen: list[float] = []
    gm = GradManager().attach([w], callbacks=lambda _, g: (seen.append(g.item()), g)[1])
    with gm:
        y = checkpoint(lambda v: v * w)(x)
        y = checkpoint(lambda v: v * w + w)(y)
        gm.backward(y * w)  # x w^3 + w^2
    assert seen == [3 * 3.0 * 4 + 2 * 2.0] == [w.grad.item()]


def test_a_dy_that_broadcasts_is_broadcast() -> None:
    w = mge.Parameter([1.0, 2.0])
    gm = GradManager().attach([w])
    for dy in ([3.0], 3.0):
        w.grad = None
        with gm:
            gm.backward(w * 2, mge.Tensor(dy))
        assert w.grad.tolist() == [6.0, 6.0]
    with gm, pytest.raises(RuntimeError, match=r"y has shape \[2\] but dy \[3\]"):
        gm.backward(w * 2, mge.Tensor([1.0, 1.0, 1.0]))


@pytest.mark.parametrize(
    ("fn", "slope"),
    [
        (lambda x: x * 0.5, 0.25),
        (lambda x: 2.0 * x, 4),
        (lambda x: x / 4.0, 1 / 16),
        (lambda x: F.matmul(x, F.ones((4, 4))), 16),
        (lambda x: F.conv2d(x.reshape(1, 4, -1, 64), F.ones((4, 4, 1, 1))), 16),
    ],
    ids=["mul", "rmul", "div", "matmul", "conv2d"],
)
def test_a_factor_is_kept_for_the_gradient_of_the_other_alone(fn, slope) -> None:
    """Of x * constant nothing as large as x is kept for the backward pass, twice in a row."""
    x = Tensor(np.random.RandomState(0).uniform(1, 2, (1 << 16, 4)).astype("float32"))
    gm = GradManager().attach([x])
    with gm:
        before = _core.memory_stats()["allocated"]
        y = F.sum(fn(fn(x + 0)))
        assert _core.memory_stats()["allocated"] - before < 1 << 19  # one of them is 1 << 20 bytes
        gm.backward(y)
    np.testing.assert_array_equal(x.grad.numpy(), np.full(x.shape, slope, "float32"))
