"""Training with real processes: gradients, statistics and checkpoints against one process."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest
from ranks import ranks

import megengine as mge
import megengine.distributed as dist
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.data import DataLoader, RandomSampler, SequentialSampler
from megengine.data.dataset import ArrayDataset
from megengine.distributed import checkpoint
from megengine.distributed.checkpoint import Shard, load_sharded, save_sharded
from megengine.jit import trace


def whole_numbers(rng, *shape):
    """Values whose sums and products have no rounding, so that the order of addition does not matter."""
    return rng.randint(-3, 4, shape).astype(np.float32)


class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = M.Linear(6, 5), M.Linear(5, 3)
        rng = np.random.RandomState(0)
        for p in self.parameters():
            p[...] = mge.tensor(whole_numbers(rng, *p.shape))

    def forward(self, x):
        return self.second(F.relu(self.first(x)))


def data(rank, size):
    rng = np.random.RandomState(1)
    x, y = whole_numbers(rng, 8, 6), whole_numbers(rng, 8, 3)
    part = slice(rank * 8 // size, (rank + 1) * 8 // size)
    return mge.tensor(x[part]), mge.tensor(y[part])


def train(size, steps=3, mode="eager", threshold=None, method="mean"):
    """Parameters and gradients after some steps."""

    def work():
        rank, n = dist.get_rank(), dist.get_world_size()
        assert n == size
        net = Net()
        dist.bcast_list_(net.tensors())
        callback = dist.make_allreduce_cb(method)
        if threshold is not None:
            callback._param_pack_thd = threshold
        gm = GradManager().attach(net.parameters(), callbacks=[callback])
        opt = optim.SGD(net.parameters(), lr=2.0**-8, momentum=0.5)
        x, y = data(rank, n)

        def step(x, y):
            with gm:
                loss = ((net(x) - y) ** 2).sum() / (8 // n)
                gm.backward(loss)
            opt.step()
            return loss

        run = step if mode == "eager" else trace(step, without_host=mode == "without_host")
        grads = []
        for _ in range(steps):
            opt.clear_grad()
            run(x, y)
            grads.append([p.grad.numpy() for p in net.parameters()])
        return [p.numpy() for p in net.parameters()], grads

    return ranks(size, work) if size > 1 else [work()]


@pytest.mark.parametrize("mode", ["eager", "trace", "without_host"])
def test_two_halves_of_a_batch_give_the_bits_of_the_whole(mode):
    whole = train(1)[0]
    for params, grads in train(2, mode=mode):
        for a, b in zip(whole[1][0], grads[0]):
            np.testing.assert_array_equal(a, b)
        for a, b in zip(whole[0], params):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


def test_ranks_agree_to_the_bit():
    first, *rest = train(3, steps=2)
    for other in rest:
        for a, b in zip(first[0], other[0]):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("threshold", [0, 128])
def test_the_size_of_buckets_changes_nothing(threshold):
    for (a, _), (b, _) in zip(train(2, method="sum"), train(2, threshold=threshold, method="sum")):
        for x, y in zip(a, b):
            np.testing.assert_array_equal(x, y)


def test_gradients_of_several_dtypes_and_of_a_scalar():
    def work():
        rank = dist.get_rank()
        a = mge.Parameter(np.float32(rank + 1))
        b = mge.Parameter(np.ones(3, np.float16))
        gm = GradManager().attach([a, b], callbacks=dist.make_allreduce_cb("SUM"))
        with gm:
            gm.backward(a * a * 3 + (b.astype("float32") * (rank + 1)).sum())
        return a.grad.numpy(), b.grad.numpy()

    for a, b in ranks(2, work):
        assert a.shape == () and a == 6 + 12
        assert b.dtype == np.float16 and b.tolist() == [3, 3, 3]


def test_unused_parameters_and_two_losses():
    """One callback serves several managers; what gets no gradient on any rank stays without."""

    def work():
        a, b, c = (mge.Parameter([float(i + 1)]) for i in range(3))
        callback = dist.make_allreduce_cb("mean")
        for manager in (GradManager(), GradManager()):
            manager.attach([a, b, c], callbacks=callback)
            with manager:
                manager.backward(a * b * (dist.get_rank() + 1))
        return a.grad.item(), b.grad.item(), c.grad

    assert ranks(2, work) == [(6.0, 3.0, None)] * 2


def test_parameters_are_made_equal():
    def work():
        mge.random.seed(dist.get_rank())
        net = M.Sequential(M.Linear(3, 4), M.BatchNorm1d(4))
        before = net[0].weight.numpy()
        dist.bcast_list_(net.tensors())
        return before, [t.numpy() for t in net.tensors()]

    (mine, first), (other, second) = ranks(2, work)
    assert not np.array_equal(mine, other)
    for a, b in zip(first, second):
        np.testing.assert_array_equal(a, b)


def test_generators_of_ranks_differ():
    a, b = ranks(2, lambda: mge.random.uniform(size=(4,)).tolist())
    assert a != b


# ---- statistics


def bn_step(bn, x, w, mode="eager"):
    gm = GradManager().attach([x, *bn.parameters()])

    def step(x, w):
        with gm:
            y = bn(x)
            gm.backward((y * y * w).sum())
        return y

    run = step if mode == "eager" else trace(step)
    y = run(x, w)
    return [t.numpy() for t in (y, x.grad, bn.weight.grad, bn.bias.grad, bn.running_mean, bn.running_var)]


@pytest.mark.parametrize("mode", ["eager", "trace"])
@pytest.mark.parametrize("shape", [(8, 3, 4, 5), (8, 3), (8, 3, 4)])
def test_sync_batch_norm_is_batch_norm_of_all(shape, mode):
    rng = np.random.RandomState(0)
    x = rng.randn(*shape).astype(np.float32) * 3 + 100  # far from 0: a variance by sums of squares would cancel
    w = rng.randn(*shape).astype(np.float32)
    cuts = [slice(0, 5), slice(5, 8)]  # batches of different sizes

    def work():
        part = cuts[dist.get_rank()]
        bn = M.SyncBatchNorm(3)
        bn.weight[...] = mge.tensor([1.0, 2.0, 3.0]).reshape(1, 3, 1, 1)
        y, gx, gw, gb, mean, var = bn_step(bn, mge.tensor(x[part]), mge.tensor(w[part]), mode)
        sums = [dist.functional.all_reduce_sum(mge.tensor(g)).numpy() for g in (gw, gb)]
        return y, gx, *sums, mean, var

    got = ranks(2, work)
    bn = (M.BatchNorm2d if len(shape) == 4 else M.BatchNorm1d)(3)
    bn.weight[...] = mge.tensor([1.0, 2.0, 3.0]).reshape(1, 3, 1, 1)
    want = bn_step(bn, mge.tensor(x), mge.tensor(w))
    for i in (0, 1):
        joined = np.concatenate([got[r][i] for r in range(2)])
        np.testing.assert_allclose(joined, want[i], rtol=2e-4, atol=2e-4)
    for rank in range(2):
        for i in range(2, 6):
            np.testing.assert_allclose(got[rank][i], want[i], rtol=2e-4, atol=2e-4)


def test_copied_and_loaded_layers_stay_synchronised():
    """deepcopy and save met the engine's group, which neither can copy nor be written; load refused it."""
    x = np.random.RandomState(0).randn(4, 3).astype(np.float32)

    def work():
        bn, pair = M.SyncBatchNorm(3), M.SyncBatchNorm(3, group=dist.new_group([1, 0]))
        part = mge.tensor(x[dist.get_rank() :: 2])
        bn(part), pair(part)
        got = []
        for layer in (bn, pair):
            file = io.BytesIO()
            mge.save(layer, file)
            file.seek(0)
            got += [m(part).numpy() for m in (layer, copy.deepcopy(layer), mge.load(file))]
        return got

    for got in ranks(2, work):
        for other in got[1:]:
            np.testing.assert_allclose(other, got[0], atol=1e-6)


def test_sync_batch_norm_in_evaluation_and_with_one_process():
    x = mge.tensor(np.random.RandomState(0).randn(4, 3, 2, 2).astype(np.float32))
    a, b = M.SyncBatchNorm(3), M.BatchNorm2d(3)
    np.testing.assert_array_equal(a(x).numpy(), b(x).numpy())
    np.testing.assert_array_equal(a.running_var.numpy(), b.running_var.numpy())
    a.eval(), b.eval()
    np.testing.assert_array_equal(a(x).numpy(), b(x).numpy())
    assert a.group is dist.WORLD


def test_eps_mode_max():
    x = np.random.RandomState(0).randn(4, 2, 3, 3).astype(np.float64)
    x[:, 1] *= 1e-3
    mean, var = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
    want = (x - mean) / np.sqrt(np.maximum(var, 0.5))
    got = F.nn.sync_batch_norm(
        mge.tensor(x, dtype="float32"), F.zeros(2), F.ones(2), training=True, eps=0.5, eps_mode="MAX"
    )
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="eps_mode must be 'additive' or 'max'; got 'min'"):
        F.nn.sync_batch_norm(mge.tensor(x), F.zeros(2), F.ones(2), eps_mode="min")


# ---- data


def test_samplers_share_an_epoch():
    def work():
        source = ArrayDataset(np.arange(10))
        first = [b[0].tolist() for b in DataLoader(source, SequentialSampler(source, batch_size=5))]
        order = RandomSampler(source, batch_size=5)
        return first, [sorted(sum(list(order), [])) for _ in range(2)]

    (a, random_a), (b, random_b) = ranks(2, work)
    assert a == [[0, 2, 4, 6, 8]] and b == [[1, 3, 5, 7, 9]]
    for x, y in zip(random_a, random_b):
        assert sorted(x + y) == list(range(10))


# ---- checkpoints


def sharded_state():
    rank, n = dist.get_rank(), dist.get_world_size()
    whole = np.arange(32, dtype=np.float32).reshape(4, 8)
    rows, columns = np.split(whole, n, 0)[rank], np.split(whole, n, 1)[rank]
    return {"step": 7, "slots": [Shard(mge.tensor(rows)), (Shard(columns, axis=1), "text")], "w": mge.tensor(whole)}


def flat(state):
    rows, (columns, text) = state["slots"]
    assert text == "text" and state["step"] == 7 and isinstance(rows.part, mge.Tensor)
    return rows.part.numpy(), columns.part, state["w"].numpy()


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_sharded_checkpoint_is_read_by_any_number_of_processes(tmp_path, size):
    folder = str(tmp_path / "run")

    def write():
        save_sharded(sharded_state(), folder)
        save_sharded(sharded_state(), folder)  # over the first
        return flat(load_sharded(folder))

    def read():
        return flat(load_sharded(folder)), flat(sharded_state())

    for got, want in zip(ranks(2, write), ranks(2, lambda: flat(sharded_state()))):
        for a, b in zip(got, want):
            np.testing.assert_array_equal(a, b)
    assert len(list((tmp_path / "run").iterdir())) == 3
    for got, want in ranks(size, read):
        for a, b in zip(got, want):
            np.testing.assert_array_equal(a, b)


def test_a_save_that_is_cut_short_leaves_the_one_before(tmp_path, monkeypatch):
    save_sharded({"step": 1, "x": Shard(mge.tensor([1.0]))}, str(tmp_path))
    monkeypatch.setattr(checkpoint, "group_barrier", lambda group: (_ for _ in ()).throw(RuntimeError("killed")))
    with pytest.raises(RuntimeError, match="killed"):
        save_sharded({"step": 2, "x": Shard(mge.tensor([2.0]))}, str(tmp_path))
    state = load_sharded(str(tmp_path))
    assert state["step"] == 1 and state["x"].part.tolist() == [1]


def test_sharded_checkpoints_that_cannot_be_read(tmp_path):
    with pytest.raises(FileNotFoundError, match="has no index.json, so no save into it was completed"):
        load_sharded(str(tmp_path))
    save_sharded({"x": Shard(mge.tensor([1.0, 2.0, 3.0]))}, str(tmp_path))

    def read():
        with pytest.raises(ValueError, match=r"shape \(3,\), cut along axis 0 .* cannot be cut equally among 2"):
            load_sharded(str(tmp_path))

    ranks(2, read)
    next(tmp_path.glob("save-*")).unlink()
    with pytest.raises(FileNotFoundError, match="which is not there; copy the whole folder"):
        load_sharded(str(tmp_path))
