"""autodiff.checkpoint: the same bits as without, for less memory."""

from __future__ import annotations

import re
import threading

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Parameter, Tensor
from megengine.amp import autocast
from megengine.autodiff import Function, GradManager, checkpoint
from megengine.core import _core
from megengine.core.autodiff.grad import Grad
from megengine.jit import trace
from megengine.optimizer import SGD


def plain(fn):
    return fn


def array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).randn(*shape).astype("float32")


class Block(M.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = M.Conv2d(channels, channels, 3, padding=1)
        self.bn = M.BatchNorm2d(channels)
        self.drop = M.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(F.relu(self.bn(self.conv(x)))) + x


class Net(M.Module):
    def __init__(self, wrap) -> None:
        super().__init__()
        self.blocks = [Block(4) for _ in range(3)]
        self.fc = M.Linear(4, 3)
        self.wrap = wrap

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = self.wrap(block)(x)
        return self.fc(F.mean(x, axis=(2, 3)))


def train(wrap, mode=plain, casting: bool = False, steps: int = 4) -> list[np.ndarray]:
    """Losses, parameters, statistics and the random state after a few steps."""
    mge.random.seed(3)
    net = Net(wrap)
    gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1, momentum=0.9)

    @mode
    def step(x: Tensor, y: Tensor) -> Tensor:
        with gm:
            with autocast(enabled=casting):
                loss = F.nn.cross_entropy(net(x), y)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    losses = [step(Tensor(array(5, 4, 6, 6, seed=i)), Tensor([0, 1, 2, 0, 1], dtype="int32")) for i in range(steps)]
    random = mge.random.get_rng_state()["devices"]
    return [*(t.numpy() for t in losses), *net.state_dict().values(), *random.values()]


@pytest.mark.parametrize("casting", [False, True], ids=["float32", "autocast"])
@pytest.mark.parametrize("mode", [plain, trace, trace(without_host=True)], ids=["eager", "traced", "without_host"])
def test_training_has_the_same_bits(mode, casting: bool) -> None:
    """Dropout masks, batch-norm statistics and casts included; backward runs outside the autocast block."""
    for want, got in zip(train(plain, casting=casting), train(checkpoint, mode, casting), strict=True):
        assert want.tobytes() == got.tobytes()


def test_the_same_bits_with_queued_ops() -> None:
    want = train(plain)
    before = _core.get_option("executor")
    _core.set_option("executor", 1)
    try:
        got = train(checkpoint)
    finally:
        _core.set_option("executor", before)
    assert [a.tobytes() for a in want] == [a.tobytes() for a in got]


def segment(layers: list[M.Linear]):
    def run(x: Tensor) -> Tensor:
        for layer in layers:
            x = F.tanh(layer(x))
        return x

    return run


def test_memory_goes_down() -> None:
    """Twelve layers in four segments: kept are the inputs of the segments and the inside of one."""
    layers = [M.Linear(512, 512) for _ in range(12)]
    gm = GradManager().attach([p for layer in layers for p in layer.parameters()])
    x = Tensor(array(2048, 512))  # 4 MB, as every intermediate result is

    def peak(wrap) -> int:
        mge.device.reset_max_memory_stats("cpu0")
        before = mge.device.get_allocated_memory("cpu0")
        with gm:
            y = x
            for first in range(0, 12, 3):
                y = wrap(segment(layers[first : first + 3]))(y)
            gm.backward((y * y).mean())
        for p in gm.attached_tensors():
            p.grad = None
        return mge.device.get_max_allocated_memory("cpu0") - before

    peak(plain)
    without, with_checkpoint = peak(plain), peak(checkpoint)
    megabyte = 2**20
    assert without > 44 * megabyte  # eleven results and more
    assert with_checkpoint < 0.75 * without, (with_checkpoint / megabyte, without / megabyte)


@pytest.mark.parametrize("host", [True, False], ids=["traced", "without_host"])
def test_the_plan_of_a_traced_step_needs_less_memory(host: bool) -> None:
    """The same network; what counts is the arena of the program, in bytes."""
    layers = [M.Linear(128, 128) for _ in range(12)]
    parameters = [p for layer in layers for p in layer.parameters()]
    one = 512 * 128 * 4  # bytes of every intermediate result

    def arena(wrap) -> int:
        gm, opt = GradManager().attach(parameters), SGD(parameters, lr=0.1)

        @trace(without_host=not host)
        def step(x: Tensor) -> Tensor:
            with gm:
                for first in range(0, 12, 3):
                    x = wrap(segment(layers[first : first + 3]))(x)
                gm.backward((x * x).mean())
            opt.step().clear_grad()

        for _ in range(2):
            step(Tensor(array(512, 128)))
        sizes = [int(n) for n in re.findall(r"^\d+ instructions.*; arena (\d+) bytes", step.report(), re.M)]
        assert len(sizes) == 1, step.report()
        return sizes[0]

    without, with_checkpoint = arena(plain), arena(checkpoint)
    assert without >= 12 * one  # every tanh
    # three inputs of segments, the inside of one, and two gradients on their way
    assert with_checkpoint <= (3 + 3 + 2) * one, (with_checkpoint / one, without / one)


# ---- what gradients reach


def gradients(fn, *inputs: Tensor) -> list[np.ndarray | None]:
    with GradManager().attach(inputs) as gm:
        gm.backward(fn(*inputs))
    found = [None if t.grad is None else t.grad.numpy() for t in inputs]
    for t in inputs:
        t.grad = None
    return found


def same(fn, wrapped, *inputs: Tensor) -> None:
    for a, b in zip(gradients(fn, *inputs), gradients(wrapped, *inputs), strict=True):
        assert (a is None and b is None) or a.tobytes() == b.tobytes()


# each wants the gradient of x, several of whose terms come from inside `call` and several from outside
def used_before_inside_and_after(call, x: Tensor) -> Tensor:
    y = F.sin(x) * F.cos(x * 3)
    z = call(lambda x, y: F.exp(x) * F.sin(x * y) + F.tanh(x * 5) * x)(x, y)
    return (F.sigmoid(x) * z * x + F.cos(x * 7) + y).sum()


def argument_given_back(call, x: Tensor) -> Tensor:
    y, z = call(lambda x: (F.sin(x) + F.exp(x) * F.tanh(x), x))(x)
    return (F.cos(z) * y + F.sin(x * 3) + F.exp(z) * F.tanh(x) + F.sin(z)).sum()


def one_result_twice(call, x: Tensor) -> Tensor:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        y = F.sin(x) * 3
        return y, y

    y, z = call(fn)(x)
    return (F.cos(z) * y + F.sin(y * 3) + F.exp(z) * F.tanh(y) + F.sin(z)).sum()


def parameter_given_back(call, x: Tensor) -> Tensor:
    y, z = call(lambda: (F.sin(x) + F.exp(x) * F.tanh(x), x))()
    return (F.cos(z) * y + F.sin(x * 3) + F.exp(z) * F.tanh(x) + F.sin(z)).sum()


def nested(call, x: Tensor) -> Tensor:
    def outer(x: Tensor, y: Tensor) -> Tensor:
        return F.sin(x) * call(lambda x, z: F.exp(x) * F.tanh(z * x))(x, F.cos(y)) + F.cos(x * 3) + F.sin(y) * y

    return (call(outer)(x, F.sigmoid(x)) * F.tanh(x) + F.exp(x)).sum()


def pieces_of_a_whole(call, x: Tensor) -> Tensor:
    z = call(lambda x: x[:300] * F.sin(x[-300:]) * F.exp(x[100:400]))(x)
    return (x[:300] * z + F.cos(x[-300:]) + F.tanh(x[50:350]) * z).sum()


PROGRAMS = [
    used_before_inside_and_after,
    argument_given_back,
    one_result_twice,
    parameter_given_back,
    nested,
    pieces_of_a_whole,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("mode", [plain, trace, trace(without_host=True)], ids=["eager", "traced", "without_host"])
def test_terms_of_a_gradient_are_added_in_the_same_order(program, mode) -> None:
    x = Parameter(array(1000))

    def gradient(call) -> bytes:
        gm = GradManager().attach(x)

        @mode
        def step() -> Tensor:
            with gm:
                gm.backward(program(call, x))
            grad, x.grad = x.grad, None
            return grad

        return [step().numpy().tobytes() for _ in range(3)][-1]

    assert gradient(plain) == gradient(checkpoint)


def test_several_outputs_containers_and_other_values() -> None:
    def fn(xs, scale, *, extra, mode):
        assert mode == "twice" and extra["none"] is None
        a, b = xs
        return {"sum": (a + b) * scale, "product": [a * b * extra["w"], 7], "index": F.argmax(a)}

    def total(call):
        def run(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
            out = call((a, b), 2.0, extra={"w": w, "none": None}, mode="twice")
            assert out["product"][1] == 7 and out["index"].item() == int(np.argmax(a.numpy()))
            return out["sum"].sum() + F.exp(out["product"][0]).sum()

        return run

    same(total(fn), total(checkpoint(fn)), *(Tensor(array(5, seed=i)) for i in range(3)))


def test_an_output_nobody_uses_and_one_that_is_an_input() -> None:
    fn = checkpoint(lambda a: (a * 2, a, F.exp(a)))
    a = Tensor(array(3))

    def use(a: Tensor) -> Tensor:
        double, same_one, _ = fn(a)
        return (double * same_one).sum()

    np.testing.assert_allclose(gradients(use, a)[0], 4 * a.numpy(), rtol=1e-6)


def test_parameters_of_closures_globals_and_attributes() -> None:
    class Holder:  # no Module: nothing lists its parameters
        w = Parameter(array(3))

        def scale(self, x: Tensor) -> Tensor:
            return F.sin(x * self.w) * v

    v, holder, x = Parameter(array(3, seed=1)), Holder(), Tensor(array(3, seed=2))
    for wrap in (plain, checkpoint):
        gm = GradManager().attach([v, holder.w])
        with gm:
            gm.backward(wrap(holder.scale)(x).sum())
        if wrap is plain:
            want, v.grad, holder.w.grad = (v.grad.numpy(), holder.w.grad.numpy()), None, None
    assert v.grad.numpy().tobytes() == want[0].tobytes() and holder.w.grad.numpy().tobytes() == want[1].tobytes()
    assert x.grad is None


def test_a_parameter_returned_as_it_is_stays_a_parameter() -> None:
    w, x = Parameter(array(3)), Tensor(array(3, seed=1))
    call = checkpoint(lambda x: (w, x * w))
    with GradManager().attach(w) as gm:
        a, b = call(x)
        gm.backward((a + b).sum())
    np.testing.assert_allclose(w.grad.numpy(), 1 + x.numpy(), rtol=1e-6)


def test_a_tensor_from_outside_must_be_an_argument() -> None:
    x = Tensor(array(3))
    with GradManager().attach(x) as gm:
        h = F.exp(x)

        def uses_h(y: Tensor) -> Tensor:
            return y * h

        with pytest.raises(RuntimeError, match="checkpoint: the function uses a tensor that has a gradient but"):
            checkpoint(uses_h)(x)
        gm.backward((checkpoint(lambda y, h: y * h)(x, h)).sum())  # the way out
    np.testing.assert_allclose(x.grad.numpy(), (1 + x.numpy()) * np.exp(x.numpy()), rtol=1e-5)


def test_a_tensor_from_outside_in_the_second_run() -> None:
    """A name that means another tensor by then."""
    x = Tensor(array(3))
    with GradManager().attach(x) as gm:
        h = mge.tensor(2.0)
        y = checkpoint(lambda x: x * h)(x)
        h = F.exp(x)
        with pytest.raises(RuntimeError, match="uses a tensor that has a gradient but is neither an argument"):
            gm.backward((y * h).sum())


def test_what_is_attached_later_has_no_gradient_from_before() -> None:
    w, x, heard = Parameter(array(3)), Tensor(array(3, seed=1)), []
    with GradManager().attach(x) as gm:
        y = checkpoint(lambda x: x * w)(x)
        gm.attach(w, callbacks=lambda t, g: heard.append(1) or g)
        gm.backward((y + w * 3).sum())
    assert w.grad.tolist() == [3.0] * 3 and x.grad.tolist() == w.tolist() and heard == [1]


def test_an_argument_changed_in_place() -> None:
    def fn(x: Tensor) -> Tensor:
        x += 1
        return x

    x = Tensor(array(3))
    same(lambda x: (fn(x * 1) ** 2).sum(), lambda x: (checkpoint(fn)(x * 1) ** 2).sum(), x)


def test_a_function_of_parameters_alone_and_one_of_nothing_tracked() -> None:
    w, v, runs = Parameter(array(3)), Tensor(array(3, seed=1)), []
    same(lambda w: F.sin(w * w).sum(), lambda w: checkpoint(lambda: F.sin(w * w))().sum(), w)

    def untracked() -> Tensor:
        runs.append(1)
        return F.exp(v)

    same(lambda w: (w * F.exp(v)).sum(), lambda w: (w * checkpoint(untracked)()).sum(), w)
    assert runs == [1]  # backward had no need of it


def test_backward_on_another_thread() -> None:
    x, says = Tensor(array(3)), []
    gm = GradManager().attach(x)
    with gm:
        y = checkpoint(lambda x: F.sin(x) * x)(x)

        def work() -> None:
            with pytest.raises(RuntimeError, match="checkpoint: backward must run on the thread that ran forward"):
                gm._session.backward([y], [F.ones_like(y)])
            says.append("so")

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert says == ["so"]


def test_arguments_that_change_afterwards() -> None:
    x = Tensor(array(3))
    value = x.numpy().copy()
    with GradManager().attach(x) as gm:
        h = x * 1
        y = checkpoint(lambda h: h**3)(h)
        h += 100
        gm.backward(y.sum())
    np.testing.assert_allclose(x.grad.numpy(), 3 * value**2, rtol=1e-5)


def test_nested_checkpoints_count_the_runs() -> None:
    runs = []

    def inner(x: Tensor) -> Tensor:
        runs.append("inner")
        return F.sin(x * w)

    def outer(x: Tensor) -> Tensor:
        runs.append("outer")
        return F.exp(checkpoint(inner)(x)) * w

    w, x = Parameter(array(4)), Tensor(array(4, seed=1))
    same(lambda x, w: F.exp(F.sin(x * w)) * w, lambda x, w: checkpoint(outer)(x), x, w)
    # first run of both; second run of outer, with a first of inner in it; second of inner
    assert runs == ["outer", "inner", "outer", "inner", "inner"]


@pytest.mark.parametrize("order", [1, 2, 3])
def test_higher_orders(order: int) -> None:
    x = Tensor(array(5))

    def derivative(fn, order: int):
        if order == 0:
            return fn

        def value(x: Tensor) -> Tensor:
            found = []
            with Grad().wrt(x, callback=found.append) as grad:
                y = derivative(fn, order - 1)(x)
                grad(y, F.ones_like(y))
            return found[0]

        return value

    def fn(x: Tensor) -> Tensor:
        return F.sin(x * x)

    want, got = derivative(fn, order)(x).numpy(), derivative(checkpoint(fn), order)(x).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_custom_functions_inside() -> None:
    class Cube(Function):
        def forward(self, x):
            self.x = x
            return x**3

        def backward(self, dy):
            return 3 * self.x**2 * dy

    same(lambda x: Cube()(x * 2).sum(), lambda x: checkpoint(lambda x: Cube()(x * 2))(x).sum(), Tensor(array(4)))


def test_gradient_callbacks_fire_once_with_the_whole_gradient() -> None:
    w, x, heard = Parameter(array(3)), Tensor(array(3, seed=1)), []
    call = checkpoint(lambda x: x * w)
    with GradManager().attach(w, callbacks=lambda t, g: heard.append(g.numpy()) or g) as gm:
        gm.backward(call(call(x)).sum())
    assert len(heard) == 1
    np.testing.assert_allclose(heard[0], 2 * w.numpy() * x.numpy(), rtol=1e-6)


# ---- the second run


def test_seeded_generators_draw_the_same_again() -> None:
    own = mge.random.RNG(seed=5)

    def fn(x: Tensor) -> Tensor:
        return x * own.uniform(size=(100,)) * mge.random.normal(size=(100,))

    def run(wrap) -> tuple[bytes, bytes, bytes]:
        mge.random.seed(1)
        own.set_state(np.array([9, 0, 0, 0]))
        x = Tensor(array(100))
        grad = gradients(lambda x: wrap(fn)(x).sum(), x)[0]
        return grad.tobytes(), own.uniform(size=(3,)).numpy().tobytes(), mge.random.uniform(size=(3,)).numpy().tobytes()

    assert run(plain) == run(checkpoint)


def test_a_function_that_changes_its_mind() -> None:
    sizes = iter([2, 3])
    x = Tensor(array(4))
    with GradManager().attach(x) as gm:
        y = checkpoint(lambda x: x[: next(sizes)])(x)
        with pytest.raises(RuntimeError, match=r"returned shapes \[\(2,\)\] at first and \[\(3,\)\] when it was run"):
            gm.backward(y.sum())
    assert gradients(lambda x: (x * x).sum(), x)[0] is not None  # nothing is left behind


def test_errors_of_either_run_leave_everything_as_it_was() -> None:
    w, x, when = Parameter(array(3)), Tensor(array(3, seed=1)), []

    def fn(x: Tensor) -> Tensor:
        y = F.dropout(x * w, 0.5)
        if when:
            raise ValueError("on purpose")
        return y

    gm = GradManager().attach(w)
    with gm:
        y = checkpoint(fn)(x)
        state = mge.random.get_rng_state()["devices"]
        when.append("second run")
        with pytest.raises(ValueError, match="on purpose"):
            gm.backward(y.sum())
    for a, b in zip(state.values(), mge.random.get_rng_state()["devices"].values()):
        np.testing.assert_array_equal(a, b)
    with gm:
        with pytest.raises(ValueError, match="on purpose"):
            checkpoint(fn)(x)
        gm.backward((w * x).sum())  # still linked
    np.testing.assert_allclose(w.grad.numpy(), x.numpy())


def test_without_gradients_it_is_the_function() -> None:
    runs = []
    call = checkpoint(lambda x: runs.append(1) or x * 2)
    x = Tensor([1.0])
    assert call(x).tolist() == [2.0]
    with GradManager().attach(Parameter([1.0])):
        call(x)
    assert len(runs) == 2


def test_what_it_wraps() -> None:
    def named(x: Tensor) -> Tensor:
        """Says so."""
        return x

    assert checkpoint(named).__name__ == "named" and checkpoint(named).__doc__ == "Says so."
    assert checkpoint(M.Linear(2, 2))(F.ones((1, 2))).shape == (1, 2)
    with pytest.raises(TypeError, match="checkpoint: needs a function or a module; got Tensor"):
        checkpoint(Tensor([1.0]))


def test_threads_with_parameters_of_their_own() -> None:
    def work(seed: int, found: dict[int, bytes]) -> None:
        w, x = Parameter(array(64, seed=seed)), Tensor(array(64, seed=9))
        for _ in range(20):
            found[seed] = gradients(lambda w: checkpoint(lambda x: F.sin(x * w) * w)(x).sum(), w)[0].tobytes()

    together: dict[int, bytes] = {}
    alone: dict[int, bytes] = {}
    threads = [threading.Thread(target=work, args=(i, together)) for i in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i in range(3):
        work(i, alone)
    assert together == alone


def test_nothing_stays_alive_afterwards() -> None:
    w, x = Parameter(array(256, 256)), Tensor(array(256, 256, seed=1))
    gm = GradManager().attach(w)

    def once() -> int:
        with gm:
            gm.backward(checkpoint(lambda x: F.tanh(F.matmul(x, w)))(x).sum())
        w.grad = None
        return mge.device.get_allocated_memory("cpu0")

    once()
    assert once() == once()
