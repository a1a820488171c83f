"""megengine.distributed with one process: every call works and does nothing."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

import megengine as mge
import megengine.distributed as dist
import megengine.functional as F
import megengine.module as M
from megengine.autodiff import GradManager
from megengine.data import RandomSampler
from megengine.distributed import helper
from megengine.jit import trace

COLLECTIVES = [
    F.distributed.reduce_sum,
    F.distributed.broadcast,
    F.distributed.all_gather,
    F.distributed.reduce_scatter_sum,
    F.distributed.all_reduce_sum,
    F.distributed.all_reduce_max,
    F.distributed.all_reduce_min,
    F.distributed.gather,
    F.distributed.scatter,
    F.distributed.all_to_all,
]


def test_one_process_is_rank_0_of_1():
    assert not dist.is_distributed()
    assert (dist.get_rank(), dist.get_world_size(), dist.get_local_device_id()) == (0, 1, 0)
    assert (dist.WORLD.rank, dist.WORLD.size, dist.WORLD.key, dist.WORLD.is_single_machine) == (0, 1, "0", True)
    assert dist.new_group([0]).size == 1
    dist.group_barrier()
    dist.group_start()
    dist.group_end()
    with dist.override_backend("nccl"):
        pass


def test_both_names_are_one_function():
    for name in F.distributed.__all__:
        assert getattr(F.distributed, name) is getattr(dist.functional, name)


@pytest.mark.parametrize(
    "ask", [dist.get_backend, dist.get_client, dist.get_py_server_addr, dist.get_mm_server_addr, lambda: dist.backend]
)
def test_what_only_several_processes_have_says_so(ask):
    with pytest.raises(AssertionError, match="please call init_process_group first"):
        ask()


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("collective", COLLECTIVES, ids=lambda f: f.__name__)
def test_a_collective_of_one_is_the_identity_with_its_gradient(collective, traced):
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    x = mge.tensor(value)
    gm = GradManager().attach(x)

    def step(x):
        with gm:
            y = collective(x)
            gm.backward((y * y).sum())
        return y

    run = trace(step) if traced else step
    for _ in range(3):
        x.grad = None
        np.testing.assert_array_equal(run(x).numpy(), value)
        np.testing.assert_array_equal(x.grad.numpy(), 2 * value)


@pytest.mark.parametrize("collective", COLLECTIVES, ids=lambda f: f.__name__)
def test_the_result_is_a_tensor_of_its_own(collective):
    x = mge.tensor([[1.0, 2.0]])
    y = collective(x)
    y += 1
    assert x.tolist() == [[1.0, 2.0]] and y.tolist() == [[2.0, 3.0]]


def test_collective_comm_calls_by_name():
    assert F.distributed.collective_comm(mge.tensor([3]), "all_reduce_sum", dist.WORLD, None).tolist() == [3]
    with pytest.raises(ValueError, match="mode must be one of REDUCE_SUM"):
        F.distributed.collective_comm(mge.tensor([3]), "sum", dist.WORLD, None)


def test_wrong_arguments_are_named():
    x = mge.tensor([1.0])
    with pytest.raises(TypeError, match="all_reduce_sum: group must be a Group.*list"):
        F.distributed.all_reduce_sum(x, [0])
    with pytest.raises(TypeError, match="broadcast: needs a Tensor; got a float"):
        F.distributed.broadcast(1.0)
    with pytest.raises(ValueError, match=r"all_gather: the tensor of shape \(\) has no axis 0"):
        F.distributed.all_gather(mge.tensor(1.0))
    with pytest.raises(ValueError, match="remote_send: there is no other process of rank 1; this is rank 0 of 1"):
        F.distributed.remote_send(x, 1)
    with pytest.raises(ValueError, match="remote_recv: there is no other process of rank 0"):
        F.distributed.remote_recv(0)
    with pytest.raises(AssertionError, match="Group: ranks must be numbers from 0 to 0"):
        dist.new_group([1])
    with pytest.raises(AssertionError, match="reduce_method should be sum or mean; got 'max'"):
        dist.make_allreduce_cb("max")
    with pytest.raises(ValueError, match="backend should be one of"), dist.override_backend("smoke"):
        pass


@pytest.mark.parametrize(
    "args, error, text",
    [
        ((1, 0, 2, 0, 0), TypeError, "Expect type str but got <class 'int'>"),
        (("localhost", "x", 2, 0, 0), TypeError, "Expect type int but got <class 'str'>"),
        (("localhost", 1, 2, 0, 0, "foo"), ValueError, "backend should be one of .* but got foo"),
        (("localhost", 1, 2, 0, 0, "auto", "toaster"), ValueError, "toaster is not a valid distributed device type"),
        (("localhost", 1, 2, 0, 0, "nccl", "gpu"), NotImplementedError, "this build has no gpu"),
        (("localhost", 1, 2, 2, 0), AssertionError, "rank 2 is none of 2 processes"),
    ],
)
def test_init_process_group_checks_its_arguments(args, error, text):
    with pytest.raises(error, match=text):
        dist.init_process_group(*args)
    assert not dist.is_distributed()


def test_init_process_group_without_anything_says_what_it_needs(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RuntimeError, match="nothing in the environment says which process this is.*torchrun"):
        dist.init_process_group()


@pytest.mark.parametrize("method", ["mean", "SUM"])
def test_allreduce_callback_of_one_process(method):
    net = M.Linear(3, 2)
    plain, reduced = GradManager().attach(net.parameters()), GradManager()
    reduced.attach(net.parameters(), callbacks=[dist.make_allreduce_cb(method)])
    x = mge.tensor(np.ones((4, 3), np.float32))
    grads = []
    for gm in (plain, reduced):
        with gm:
            gm.backward(net(x).sum())
        grads.append([p.grad.numpy() for p in net.parameters()])
        for p in net.parameters():
            p.grad = None
    for a, b in zip(*grads):
        np.testing.assert_array_equal(a, b)


def test_bcast_list_and_synchronized_of_one_process():
    net = M.Linear(2, 2)
    before = net.weight.numpy()
    dist.bcast_list_(net.tensors())
    np.testing.assert_array_equal(net.weight.numpy(), before)
    assert dist.synchronized(lambda x: x + 1)(2) == 3
    with pytest.raises(AssertionError, match="bcast_list_: needs Tensors; got ndarray"):
        dist.bcast_list_([before])


def test_packing_and_its_mistakes():
    shapes = [(2, 3), (), (4,)]
    offsets = helper.get_offsets(shapes)
    assert offsets == [0, 6, 6, 7, 7, 11]
    tensors = [mge.tensor(np.random.RandomState(i).uniform(size=s).astype(np.float32)) for i, s in enumerate(shapes)]
    packed = helper.param_pack_concat(tensors, mge.tensor(offsets), offsets)
    assert packed.shape == (11,)
    parts = helper.param_pack_split(packed, offsets, shapes)
    assert [p.shape for p in parts] == [(2, 3), (1,), (4,)]  # MegEngine gives a tensor without axes one
    for part, tensor in zip(parts, tensors):
        np.testing.assert_array_equal(part.numpy().ravel(), tensor.numpy().ravel())
    gap = helper.param_pack_concat(tensors[1:], None, [1, 2, 4, 8])
    assert gap.numpy()[[0, 2, 3]].tolist() == [0, 0, 0] and gap.shape == (8,)
    with pytest.raises(ValueError, match="param_pack_split: 3 tensors need 6 offsets; got 2"):
        helper.param_pack_split(packed, [0, 11], shapes)
    with pytest.raises(ValueError, match="param_pack_concat: offsets 0 to 5 do not hold tensor 0 of 6 elements"):
        helper.param_pack_concat(tensors[:1], None, [0, 5])


def test_tensor_future():
    future = helper.TensorFuture(ack=False)
    with pytest.raises(RuntimeError, match="not there yet"):
        future.numpy()
    future.set(mge.tensor([1.0, 2.0]))
    assert future.shape() == (2,) and future.dtype() == np.float32 and future.numpy().tolist() == [1, 2]
    assert future.get().tolist() == [1, 2]


def test_samplers_ask_distributed(monkeypatch):
    monkeypatch.setattr(dist.group, "_sd", type("Data", (), {"world_size": 2, "proc_rank": 1}))
    sampler = RandomSampler(range(10), batch_size=5)
    assert (sampler.world_size, sampler.rank, sampler.seed) == (2, 1, 0)


def test_the_page_on_scale_shows_what_the_model_computes(monkeypatch, capsys):
    root = pathlib.Path(__file__).resolve().parents[2]
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    import scale_model

    rows = [*scale_model.table(scale_model.Machine()), *scale_model.limits(scale_model.Machine())]
    page = (root / "docs" / "scale.md").read_text()
    assert len(rows) > 12 and all(row in page for row in rows)
