"""Ways to use a trace: gradients from outside and inside, callbacks, nested traces, threads."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from trace_attack import Run, case
from trace_cases_arguments import ramp

import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import Parameter, Tensor, amp
from megengine.autodiff import Function, GradManager, checkpoint


def outside(t: Run, fn: Any, tensors: list[Tensor], calls: int = 4, make: Any = None) -> None:
    """Gradients of ``tensors`` through a traced function, taken by a manager that is outside."""
    f, gm = t(fn), GradManager().attach(tensors)
    for i in range(calls):
        x = (make or (lambda i: ramp(3, start=i)))(i)
        with gm:
            y = t.call(f, x)
            gm.backward((y * y).sum())
        t.see([p.grad for p in tensors], x)
        for p in tensors:
            p.grad = None


@case()
def gradient_of_a_parameter_from_outside(t: Run) -> None:
    w = Parameter([1.0, 2.0, 3.0])
    outside(t, lambda x: x * w, [w])


@case()
def gradient_of_a_network_from_outside(t: Run) -> None:
    net = M.Sequential(M.Linear(3, 4), M.ReLU(), M.Linear(4, 2))
    outside(t, lambda x: net(x.reshape(1, 3)), list(net.parameters()))


@case()
def gradient_of_an_argument_from_outside(t: Run) -> None:
    f = t(lambda x: F.exp(x) * 2)
    for i in range(4):
        x = ramp(3, start=i)
        gm = GradManager().attach([x])
        with gm:
            gm.backward(t.call(f, x).sum())
        t.see(x.grad)


@case()
def six_and_then_six_again(t: Run) -> None:
    x = Tensor([3.0])
    f, gm = t(lambda x: x * x), GradManager().attach([x])
    for _ in range(4):
        with gm:
            gm.backward(t.call(f, x))
        t.see(x.grad)
        x.grad = None


@case()
def a_trace_in_the_middle_of_an_eager_network(t: Run) -> None:
    a, b, w = M.Linear(3, 3), M.Linear(3, 2), Parameter([1.0, 2.0, 3.0])
    f = t(lambda h: F.tanh(h * w))
    params = [*a.parameters(), w, *b.parameters()]
    gm, opt = GradManager().attach(params), optim.SGD(params, 0.1)
    t.watch(a, b, w)
    for i in range(4):
        with gm:
            h = t.call(f, a(ramp(2, 3, start=i)))
            gm.backward(b(h).mean())
        t.see([p.grad for p in params])
        opt.step().clear_grad()


@case()
def a_trace_used_twice_under_one_manager(t: Run) -> None:
    w = Parameter([1.0, 2.0, 3.0])
    f, gm = t(lambda x: F.tanh(x * w)), GradManager().attach([w])
    for i in range(4):
        with gm:
            y = t.call(f, t.call(f, ramp(3, start=i)))
            gm.backward(y.sum())
        t.see(w.grad)
        w.grad = None


@case()
def used_with_and_without_a_manager(t: Run) -> None:
    w = Parameter([1.0, 2.0, 3.0])
    f, gm = t(lambda x: F.tanh(x * w)), GradManager().attach([w])
    for i in range(6):
        if i % 2:
            t.call(f, ramp(3, start=i))
            continue
        with gm:
            gm.backward(t.call(f, ramp(3, start=i)).sum())
        t.see(w.grad)


@case()
def several_results_of_which_one_is_used(t: Run) -> None:
    w = Parameter([1.0, 2.0, 3.0])
    f, gm = t(lambda x: [x * w, x + w, {"k": w * w}]), GradManager().attach([w])
    for i in range(6):
        with gm:
            out = t.call(f, ramp(3, start=i))
            gm.backward((out[i % 2] if i < 4 else out[2]["k"]).sum())
        t.see(w.grad)
        w.grad = None


@case()
def second_order_from_outside(t: Run) -> None:
    x = Tensor([1.0, 2.0])
    f = t(lambda x: x * x * x)
    for _ in range(4):
        outer, inner = GradManager().attach([x]), GradManager().attach([x])
        with outer:
            with inner:
                inner.backward(t.call(f, x).sum())
            outer.backward(x.grad)
        t.see(x.grad)
        x.grad = None


@case()
def second_order_inside(t: Run) -> None:
    def fn(x: Tensor) -> Tensor:
        with GradManager().attach([x]) as outer:
            with GradManager().attach([x]) as inner:
                inner.backward((x * x * x).sum())
            g = x.grad
            x.grad = None
            outer.backward(g.sum())
        second, x.grad = x.grad, None
        return second

    f = t(fn)
    for i in range(4):
        t.call(f, ramp(3, start=i))


@case()
def batch_norm_from_outside(t: Run) -> None:
    net = M.BatchNorm1d(3)
    t.watch(net)
    outside(t, lambda x: net(x), list(net.parameters()), make=lambda i: ramp(4, 3, start=i))


@case()
def dropout_from_outside(t: Run) -> None:
    w = Parameter(np.ones(16, np.float32))
    outside(t, lambda x: F.dropout(w * x, 0.5, True), [w], make=lambda i: ramp(16, start=i + 1))


@case()
def an_assigned_argument_under_a_manager(t: Run) -> None:
    w = Parameter([1.0, 2.0, 3.0])

    def fn(x: Tensor) -> Tensor:
        x *= 2
        return x * w

    outside(t, fn, [w])


@case()
def a_detached_result(t: Run) -> None:
    w = Parameter([1.0, 2.0, 3.0])
    outside(t, lambda x: x * w + (x * w).detach(), [w])


@case()
def a_trace_inside_record_and_release(t: Run) -> None:
    w = Parameter([2.0])
    f, gm = t(lambda x: w * w * x), GradManager().attach([w])
    for i in range(4):
        gm.record()
        y = t.call(f, Tensor([float(i)]))
        gm.backward(y)
        gm.release()
        t.see(w.grad)


@case()
def a_manager_made_inside(t: Run) -> None:
    w = Parameter([1.0, 2.0])

    def fn(x: Tensor) -> Any:
        gm = GradManager().attach([w])
        with gm:
            gm.backward((w * w * x).sum())
        g, w.grad = w.grad, None
        return g

    f = t(fn)
    t.watch(w)
    for i in range(4):
        t.call(f, ramp(2, start=i))


@case()
def gradients_returned(t: Run) -> None:
    net = M.Linear(3, 2)
    gm = GradManager().attach(net.parameters())

    def fn(x: Tensor) -> Any:
        with gm:
            gm.backward(net(x).mean())
        grads = [p.grad for p in net.parameters()]
        for p in net.parameters():
            p.grad = None
        return grads

    f = t(fn)
    t.watch(net)
    for i in range(4):
        t.call(f, ramp(2, 3, start=i))


@case()
def callbacks(t: Run) -> None:
    w = Parameter([1.0, 2.0])
    gm = GradManager().attach([w], callbacks=lambda p, g: g * 10 + p)

    def fn(x: Tensor) -> Tensor:
        with gm:
            loss = (w * x).sum()
            gm.backward(loss)
        w[...] = w - w.grad * 0.01
        w.grad = None
        return loss

    f = t(fn)
    t.watch(w)
    for i in range(4):
        t.call(f, ramp(2, start=i))


@case()
def a_callback_added_later(t: Run) -> None:
    w = Parameter([1.0, 2.0])
    gm = GradManager().attach([w])

    def fn(x: Tensor) -> Any:
        with gm:
            gm.backward((w * x).sum())
        g, w.grad = w.grad, None
        return g

    f = t(fn)
    for i in range(6):
        if i in (2, 4):
            gm.attach([w], callbacks=lambda p, g: g * 10)
        t.call(f, ramp(2, start=i))


@case()
def a_tensor_attached_later(t: Run) -> None:
    w, v = Parameter([1.0, 2.0]), Parameter([3.0, 4.0])
    gm = GradManager().attach([w])

    def fn(x: Tensor) -> Any:
        with gm:
            gm.backward((w * x * v).sum())
        grads = [p.grad for p in (w, v)]
        w.grad = v.grad = None
        return grads

    f = t(fn)
    for i in range(5):
        if i == 2:
            gm.attach([v])
        t.call(f, ramp(2, start=i))


@case()
def a_gradient_given_from_outside(t: Run) -> None:
    w = Parameter([1.0, 2.0])
    gm = GradManager().attach([w])

    def fn(x: Tensor, dy: Tensor) -> Any:
        with gm:
            gm.backward(w * x, dy)
        g, w.grad = w.grad, None
        return g

    f = t(fn)
    for i in range(4):
        t.call(f, ramp(2, start=i), ramp(2, start=-i))


@case()
def gradients_of_arguments_inside(t: Run) -> None:
    def fn(x: Tensor) -> Any:
        with GradManager().attach([x]) as gm:
            gm.backward((x * x).sum())
        return x.grad

    f = t(fn)
    for i in range(4):
        x = ramp(2, start=i)
        t.call(f, x)
        t.see(x.grad)


class Square(Function):
    def forward(self, x: Tensor) -> Tensor:
        self.x = x
        return x * x

    def backward(self, dy: Tensor) -> Tensor:
        return dy * self.x * 3  # not the true gradient: it must be this one that is used


@case()
def a_function_of_ones_own(t: Run) -> None:
    w = Parameter([1.0, 2.0])
    gm = GradManager().attach([w])

    def fn(x: Tensor) -> Any:
        with gm:
            gm.backward(Square()(w * x).sum())
        g, w.grad = w.grad, None
        return g

    f = t(fn)
    for i in range(4):
        t.call(f, ramp(2, start=i))


@case()
def a_function_of_ones_own_from_outside(t: Run) -> None:
    w = Parameter([1.0, 2.0, 3.0])
    outside(t, lambda x: Square()(w * x), [w])


@case()
def a_checkpoint(t: Run) -> None:
    net = M.Sequential(M.Linear(3, 3), M.Dropout(0.3), M.Linear(3, 2))
    gm = GradManager().attach(net.parameters())

    def fn(x: Tensor) -> Any:
        with gm:
            y = checkpoint(lambda h: net(h))(x)
            gm.backward(y.sum())
        grads = [p.grad for p in net.parameters()]
        for p in net.parameters():
            p.grad = None
        return y, grads

    f = t(fn)
    for i in range(4):
        t.call(f, ramp(2, 3, start=i))


# ---- nested traces


@case()
def a_trace_inside_a_trace(t: Run) -> None:
    inner = t(lambda x: x * 2)
    outer = t(lambda x: inner(x) + 1)
    for i in range(4):
        t.call(outer, ramp(3, start=i))


@case()
def an_inner_trace_called_alone_too(t: Run) -> None:
    w = Tensor([1.0])

    def assign(x: Tensor) -> Tensor:
        w[...] = w + x.sum()
        return x * w

    inner = t(assign)
    outer = t(lambda x: inner(x) + 1)
    t.watch(w)
    for i in range(6):
        t.call(inner if i % 2 else outer, ramp(3, start=i))


@case()
def a_trace_that_calls_itself(t: Run) -> None:
    def fn(x: Tensor, n: int) -> Tensor:
        return x if n == 0 else f(x * 2, n - 1)

    f = t(fn)
    for n in (0, 1, 2, 1, 0, 2):
        t.call(f, ramp(2), n)


@case()
def traces_that_share_state(t: Run) -> None:
    w = Parameter([1.0, 2.0])

    def grow(x: Tensor) -> Tensor:
        w[...] = w * 2 + x
        return w.sum()

    a, b = t(grow), t(lambda x: x * w)
    t.watch(w)
    for i in range(4):
        t.call(a, ramp(2, start=i))
        t.call(b, ramp(2, start=i))


@case()
def training_and_evaluation_traced_apart(t: Run) -> None:
    net = M.Sequential(M.Linear(3, 4), M.BatchNorm1d(4), M.Linear(4, 2))
    opt, gm = optim.SGD(net.parameters(), 0.1, momentum=0.9), GradManager().attach(net.parameters())

    def train(x: Tensor) -> Tensor:
        with gm:
            loss = (net(x) ** 2).mean()
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    step, test = t(train), t(lambda x: net(x))
    t.watch(net, opt)
    for i in range(5):
        net.train()
        t.call(step, ramp(4, 3, start=i))
        net.eval()
        t.call(test, ramp(4, 3))
    t.python_ran_at_most(6)


# ---- threads


def together(t: Run, jobs: list[Any]) -> None:
    """Runs the jobs at once, each in a thread of its own; what they return is written down in order."""
    results: list[Any] = [None] * len(jobs)
    barrier = threading.Barrier(len(jobs))

    def work(i: int) -> None:
        try:
            results[i] = jobs[i](barrier)
        except BaseException as e:
            barrier.abort()
            results[i] = e

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(jobs))]
    for th in threads:
        th.start()
    for th in threads:
        th.join()
    for r in results:
        if isinstance(r, BaseException):
            raise r
    t.see(results)


@case()
def two_threads_record_training_steps_at_once(t: Run) -> None:
    def make(lr: float) -> Any:
        w = Parameter([1.0, 2.0])
        opt, gm = optim.SGD([w], lr, momentum=0.9), GradManager().attach([w])

        def job(barrier: threading.Barrier) -> Any:
            meet = [barrier.wait, barrier.wait]  # in the first call only: both threads are then recording

            def step(x: Tensor) -> Tensor:
                with gm:
                    if meet:
                        meet.pop()()
                    loss = (w * w * x).sum()
                    gm.backward(loss)
                if meet:
                    meet.pop()()
                opt.step().clear_grad()
                return loss

            f, out = t(step), []
            for i in range(5):
                opt.param_groups[0]["lr"] = lr / (i + 1)
                out.append(f(ramp(2, start=i)).numpy())
            return out, w.numpy()

        return job

    together(t, [make(0.1), make(0.5)])


@case()
def two_threads_use_one_trace(t: Run) -> None:
    f = t(lambda x, k: F.exp(x * 0.1) * k)

    def job(k: float) -> Any:
        return lambda barrier: [(barrier.wait(), f(ramp(3, start=i), k).numpy())[1] for i in range(8)]

    together(t, [job(2.0), job(3.0), job(2.0)])


@case()
def a_thread_computes_while_another_records(t: Run) -> None:
    w = Tensor([1.0, 2.0])

    def recorder(barrier: threading.Barrier) -> Any:
        meet = [barrier.wait, barrier.wait]

        def fn(x: Tensor) -> Tensor:
            y = x * w
            while meet:
                meet.pop()()
            return y + 1

        f = t(fn)
        return [f(ramp(2, start=i)).numpy() for i in range(4)]

    def other(barrier: threading.Barrier) -> Any:
        barrier.wait()
        out = [(w * i).numpy() for i in range(5)]
        barrier.wait()
        return out

    together(t, [recorder, other])


@case()
def autocast_in_another_thread(t: Run) -> None:
    net = M.Linear(8, 8)
    f = t(lambda x: net(x))

    def job(on: bool) -> Any:
        def work(barrier: threading.Barrier) -> Any:
            out = []
            for i in range(3):
                barrier.wait()
                if on:
                    with amp.autocast():
                        out.append(f(ramp(2, 8, start=i)).numpy())
                barrier.wait()
                if not on:
                    out.append(f(ramp(2, 8, start=i)).numpy())
                barrier.wait()
            return out

        return work

    together(t, [job(True), job(False)])
