"""Collectives of real processes: values, gradients, groups; NumPy is the judge."""

from __future__ import annotations

import numpy as np
import pytest
from ranks import ranks

import megengine as mge
import megengine.distributed as dist
import megengine.functional as F
from megengine.autodiff import GradManager
from megengine.jit import trace

D = F.distributed


def split(x, n, axis):
    return np.split(x, n, axis)


def everyone(value, n):
    return [value] * n


def on_root(value, n):
    return [value] + [None] * (n - 1)


#: name -> inputs of all ranks to outputs of all, and the axes it takes.
REFERENCE = {
    "reduce_sum": lambda xs: on_root(sum(xs), len(xs)),
    "broadcast": lambda xs: everyone(xs[0], len(xs)),
    "all_reduce_sum": lambda xs: everyone(sum(xs), len(xs)),
    "all_reduce_max": lambda xs: everyone(np.max(xs, axis=0), len(xs)),
    "all_reduce_min": lambda xs: everyone(np.min(xs, axis=0), len(xs)),
    "all_gather": lambda xs, axis=0: everyone(np.concatenate(xs, axis), len(xs)),
    "gather": lambda xs, axis=0: on_root(np.concatenate(xs, axis), len(xs)),
    "scatter": lambda xs, axis=0: split(xs[0], len(xs), axis),
    "reduce_scatter_sum": lambda xs, axis=0: split(sum(xs), len(xs), axis),
    "all_to_all": lambda xs, split_axis=0, concat_axis=0: [
        np.concatenate([split(x, len(xs), split_axis)[r] for x in xs], concat_axis) for r in range(len(xs))
    ],
}
WITH_AXIS = ("all_gather", "gather", "scatter", "reduce_scatter_sum")
CASES = [(name, {}) for name in REFERENCE]
CASES += [(name, {"axis": axis}) for name in WITH_AXIS for axis in (1, 2, -1)]
CASES += [("all_to_all", {"split_axis": s, "concat_axis": c}) for s in (0, 1) for c in (0, 1, 2) if (s, c) != (0, 0)]
IDS = ["-".join([name, *(f"{k}{v}" for k, v in kw.items())]) for name, kw in CASES]


def inputs(n, shape, dtype, seed=0):
    rng = np.random.RandomState(seed)
    return [rng.randint(0, 7, shape).astype(dtype) for _ in range(n)]


def values(n, jobs):
    """In each rank: the outputs of all jobs (name, attributes, inputs)."""

    def work():
        rank = dist.get_rank()
        found = []
        for name, attrs, xs in jobs:
            y = getattr(D, name)(mge.tensor(xs[rank]), **attrs)
            found.append(None if y is None else y.numpy())
        return found

    return ranks(n, work)


def compare(got, want):
    if want is None:
        assert got is None
    else:
        assert got.shape == want.shape and got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("n", [2, 3])
def test_values_over_axes_and_dtypes(n):
    jobs = []
    for name, attrs in CASES:
        for dtype in ("float32", "int32", "int8", "uint8", "float16"):
            jobs.append((name, attrs, inputs(n, (2 * n, n, 3 * n), dtype)))
    got = values(n, jobs)
    for i, (name, attrs, xs) in enumerate(jobs):
        want = REFERENCE[name](xs, **attrs)
        for rank in range(n):
            compare(got[rank][i], None if want[rank] is None else want[rank].astype(xs[0].dtype))


def test_shapes_without_axes_and_without_elements():
    plain = ("reduce_sum", "broadcast", "all_reduce_sum", "all_reduce_max", "all_reduce_min")
    jobs = [(name, {}, inputs(2, shape, "float32")) for name in plain for shape in ((), (1,), (0, 3))]
    jobs += [("all_gather", {}, inputs(2, (0, 3), "int32"))]
    got = values(2, jobs)
    for i, (name, _, xs) in enumerate(jobs):
        for rank, want in enumerate(REFERENCE[name](xs)):
            compare(got[rank][i], None if want is None else np.asarray(want))


def test_sums_are_added_in_the_order_of_ranks():
    xs = [np.random.RandomState(r).randn(1000).astype(np.float32) for r in range(3)]
    got = values(3, [("all_reduce_sum", {}, xs), ("reduce_sum", {}, xs)])
    want = (xs[0] + xs[1]) + xs[2]
    for rank in range(3):
        np.testing.assert_array_equal(got[rank][0], want)
    np.testing.assert_array_equal(got[0][1], want)


def weights(n, outputs):
    rng = np.random.RandomState(5)
    return [None if y is None else rng.randint(1, 5, np.shape(y)).astype(np.float32) for y in outputs]


def adjoint(name, attrs, xs, ws):
    """The gradient of sum over ranks of sum(w * y) for every input, by going through all unit vectors."""
    n = len(xs)
    grads = [np.zeros_like(x) for x in xs]
    for r in range(n):
        for i in np.ndindex(xs[r].shape):
            unit = [np.zeros_like(x) for x in xs]
            unit[r][i] = 1
            ys = REFERENCE[name](unit, **attrs)
            grads[r][i] = sum((w * y).sum() for w, y in zip(ws, ys) if y is not None)
    return grads


LINEAR = [(case, i) for case, i in zip(CASES, IDS) if not case[0].endswith(("max", "min"))]


@pytest.mark.parametrize("mode", ["eager", "trace", "without_host"])
def test_gradients(mode):
    n = 2
    xs = inputs(n, (2, 2, 4), "float32")
    jobs = [(name, attrs, weights(n, REFERENCE[name](xs, **attrs))) for (name, attrs), _ in LINEAR]

    def work():
        rank = dist.get_rank()
        found = []
        for name, attrs, ws in jobs:
            x = mge.Parameter(xs[rank])
            gm = GradManager().attach(x)
            w = None if ws[rank] is None else mge.tensor(ws[rank])

            def step(x=x, gm=gm, name=name, attrs=attrs, w=w):
                with gm:
                    y = getattr(D, name)(x, **attrs)
                    gm.backward(None if y is None else (y * w).sum())
                return x + 0

            run = step if mode == "eager" else trace(step, without_host=mode == "without_host")
            for _ in range(3):
                x.grad = None
                run()
            found.append(None if x.grad is None else x.grad.numpy())
        return found

    got = ranks(n, work)
    for i, (name, attrs, ws) in enumerate(jobs):
        want = adjoint(name, attrs, xs, ws)
        for rank in range(n):
            if got[rank][i] is None:  # a placeholder off the root
                assert not want[rank].any(), (name, attrs, rank)
            else:
                np.testing.assert_array_equal(got[rank][i], want[rank], err_msg=f"{name} {attrs} rank {rank}")


@pytest.mark.parametrize("options", [{}, {"symbolic": True}, {"without_host": True}], ids=str)
@pytest.mark.parametrize("name", ["reduce_sum", "gather", "broadcast"])
def test_a_traced_call_that_gives_nothing_off_the_root_takes_part(name, options):
    def work():
        rank = dist.get_rank()

        def step(x):
            y = getattr(D, name)(x)
            return y if rank == 0 else None

        run = trace(step, **options)
        got = [run(mge.tensor([rank + k, 1.0])) for k in range(4)]
        return [None if y is None else y.numpy() for y in got]

    got = ranks(2, work)
    assert got[1] == [None] * 4
    for k in range(4):
        xs = [np.array([rank + k, 1.0], np.float32) for rank in range(2)]
        np.testing.assert_array_equal(got[0][k], REFERENCE[name](xs)[0])


@pytest.mark.parametrize("name", ["all_reduce_max", "all_reduce_min"])
def test_gradients_of_extremes_go_to_whoever_holds_them(name):
    xs = [np.array([1, 5, 3], np.float32), np.array([4, 2, 6], np.float32)]

    def work():
        rank = dist.get_rank()
        x = mge.tensor(xs[rank])
        with GradManager().attach(x) as gm:
            gm.backward((getattr(D, name)(x) * (rank + 1)).sum())
        return x.grad.numpy()

    best = np.max(xs, 0) if name == "all_reduce_max" else np.min(xs, 0)
    for x, grad in zip(xs, ranks(2, work)):
        np.testing.assert_array_equal(grad, 3 * (x == best))


@pytest.mark.parametrize("follows", [(0,), (1,), (0, 1), ()])
@pytest.mark.parametrize("name", ["reduce_sum", "gather", "broadcast", "scatter"])
def test_backward_meets_whoever_follows(name, follows):
    """Ranks that attach nothing take part in backward nevertheless, and no gradient is an answer too."""

    def work(used):
        rank = dist.get_rank()
        x, other = mge.tensor([1.0, 2.0]), mge.tensor([1.0])
        gm = GradManager().attach([x, other] if rank in follows else [other])
        with gm:
            y = getattr(D, name)(x)
            loss = (other * 2).sum()
            if y is not None and used:
                loss = loss + (y * 3).sum()
            gm.backward(loss)
        return None if x.grad is None else x.grad.tolist()

    full = {"reduce_sum": [[3, 3], [3, 3]], "gather": [[3, 3], [3, 3]], "broadcast": [[6, 6], None]}
    full["scatter"] = [[3, 3], None]
    got = ranks(2, work, True)
    for rank in (0, 1):
        want = full[name][rank] if rank in follows else None
        assert got[rank] == want or (want is None and got[rank] == [0, 0])
    for grad in ranks(2, work, False):
        assert grad is None or grad == [0, 0]


def test_a_tensor_goes_through_three_processes_and_its_gradient_back():
    def work():
        rank = dist.get_rank()
        w = mge.tensor([float(rank + 2)])
        with GradManager().attach(w) as gm:
            x = mge.tensor([1.0, 2.0]) if rank == 0 else D.remote_recv(rank - 1)
            y = x * w
            if rank < 2:
                D.remote_send(y, rank + 1)
                gm.backward()
            else:
                gm.backward((y * y).sum())
        return w.grad.tolist()

    # y = 2 * 3 * 4 * [1, 2]; d sum(y * y) / d w = 2 * sum(y * y) / w
    total = 24.0**2 * 5
    assert ranks(3, work) == [[2 * total / w] for w in (2, 3, 4)]


def test_messages_without_a_gradient():
    def work():
        rank = dist.get_rank()
        if rank == 0:
            for dtype in ("float32", "int32", "int8", "uint8"):
                D.remote_send(mge.tensor(np.arange(6).reshape(2, 3).astype(dtype)), 1)
            D.remote_send(mge.tensor(3.0), 1)
            dist.functional._remote_send_nobackward(mge.tensor([7.0]), 1)
            return None
        got = [D.remote_recv(0).numpy() for _ in range(5)]
        got.append(dist.functional._remote_recv_nobackward(0, shape=(1,), dtype="float32").numpy())
        return got

    got = ranks(2, work)[1]
    for dtype, x in zip(("float32", "int32", "int8", "uint8"), got):
        compare(x, np.arange(6).reshape(2, 3).astype(dtype))
    assert got[4].shape == () and got[4] == 3 and got[5].tolist() == [7]


def test_what_the_receiver_does_not_use_has_no_gradient():
    def work():
        x = mge.tensor([1.0])
        with GradManager().attach(x) as gm:
            if dist.get_rank() == 0:
                D.remote_send(x * 2, 1)
                gm.backward()
            else:
                D.remote_recv(0)
                gm.backward(x * 5)
        return None if x.grad is None else x.grad.tolist()

    got = ranks(2, work)
    assert got[0] in (None, [0.0]) and got[1] == [5.0]


def test_groups_have_an_order_and_a_root():
    def work():
        rank = dist.get_rank()
        first = int(dist.WORLD.comp_node.rpartition(":")[2])  # 1, unless somebody has taken streams before
        assert first >= 1 and dist.WORLD.key == "0,1,2"
        result = []
        if rank in (2, 0):
            group = dist.new_group([2, 0])
            assert (group.key, group.size, group.proc_ranks, group.is_single_machine) == ("2,0", 2, [2, 0], True)
            assert group.comp_node.endswith(f":{first + 1}")
            result.append(group.rank)
            x = mge.tensor([float(rank)])
            result.append(D.all_gather(x, group).tolist())
            result.append(D.broadcast(x, group).tolist())
            y = D.reduce_sum(x, group)
            result.append(y if y is None else y.tolist())
            again = dist.new_group([2, 0])  # another group of the same processes
            result.append(D.all_reduce_sum(x, again).tolist())
        dist.group_barrier()
        result.append(D.all_reduce_sum(mge.tensor([1])).tolist())
        return result

    got = ranks(3, work)
    assert got[2] == [0, [2, 0], [2], [2], [2], [3]]
    assert got[0] == [1, [2, 0], [2], None, [2], [3]]
    assert got[1] == [[3]]


def test_a_placeholder_of_another_shape_is_replaced():
    def work():
        rank = dist.get_rank()
        x = mge.tensor(np.arange(6, dtype=np.int32).reshape(2, 3)) if rank == 0 else mge.tensor([0.5])
        return D.broadcast(x).numpy(), D.scatter(x if rank == 0 else None).numpy()

    got = ranks(2, work)
    for rank in (0, 1):
        compare(got[rank][0], np.arange(6, dtype=np.int32).reshape(2, 3))
        compare(got[rank][1], np.arange(6, dtype=np.int32).reshape(2, 3)[rank : rank + 1])


def test_gradients_of_gradients():
    def work():
        x = mge.tensor([2.0 + dist.get_rank()])
        outer, inner = GradManager().attach(x), GradManager().attach(x)
        with outer:
            with inner:
                y = D.all_reduce_sum(x * x)
                inner.backward((y * y).sum())
            first, x.grad = x.grad, None
            outer.backward(first.sum())
        return first.item(), x.grad.item()

    # L = 2 s^2 over both ranks' losses, s = a^2 + b^2: dL/da = 8 a s; and of the sum over ranks of these once more.
    a, b = 2.0, 3.0
    s = a * a + b * b
    got = ranks(2, work)
    assert got[0][0] == 8 * a * s and got[1][0] == 8 * b * s
    assert got[0][1] == 8 * s + 16 * a * a + 16 * a * b and got[1][1] == 8 * s + 16 * b * b + 16 * a * b
