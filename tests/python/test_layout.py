"""Memory order is ours: results do not depend on it, and nobody outside sees it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.autodiff import GradManager
from megengine.core import _core
from megengine.core._core import ops
from megengine.jit import trace


def image(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def last(x: np.ndarray) -> mge.Tensor:
    """The same values, channels innermost in memory."""
    order = (0, *range(2, x.ndim), 1)
    back = (0, x.ndim - 1, *range(1, x.ndim - 1))
    return F.transpose(mge.Tensor(np.ascontiguousarray(x.transpose(order))), back)


def same_bits(a: object, b: object) -> None:
    for x, y in zip(*(v if isinstance(v, (tuple, list)) else [v] for v in (a, b)), strict=True):
        assert x.numpy().tobytes() == y.numpy().tobytes()


X = [(2, 32, 9, 7), (1, 16, 8, 8), (3, 5, 4, 6), (2, 70, 1, 3), (17, 33, 2, 2), (1, 20, 40, 40), (70, 16, 33, 33)]
ONE_IMAGE: dict[str, Callable[[mge.Tensor], object]] = {
    "relu": F.relu,
    "exp_add_mul": lambda x: F.exp(x) * 0.5 + x,
    "per_channel": lambda x: x * mge.Tensor(image(1, x.shape[1], 1, 1)) + x,
    "per_row": lambda x: x + mge.Tensor(image(x.shape[3])),
    "compare": lambda x: x > 0.25,
    "where": lambda x: F.where(x > 0, x, -x),
    "cast": lambda x: x.astype("float16"),
    "mixed_order": lambda x: x - mge.Tensor(x.numpy()[::-1].copy()),
    "copy": F.copy,
    "mean_hw": lambda x: F.mean(x, axis=(2, 3)),
    "sum_nhw": lambda x: F.sum(x, axis=(0, 2, 3), keepdims=True),
    "max_hw": lambda x: F.max(x, axis=(2, 3)),
    "sum_channels": lambda x: F.sum(x, axis=1),
    "sum_all": F.sum,
    "max_pool_2": lambda x: F.max_pool2d(x, min(2, *x.shape[2:])),
    "max_pool_3": lambda x: F.max_pool2d(x, 3, 2, 1),
    "avg_pool_3": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "avg_pool_3_count": lambda x: F.avg_pool2d(x, 3, 1, 1, mode="average_count_exclude_padding"),
    "avg_pool_2": lambda x: F.avg_pool2d(x, min(2, *x.shape[2:])),
    "bn_train": lambda x: ops.batch_norm_train(x, *(mge.Tensor(image(x.shape[1], seed=s)) for s in (1, 2))),
    "bn_infer": lambda x: ops.batch_norm_infer(x, *(mge.Tensor(abs(image(x.shape[1], seed=s))) for s in (1, 2, 3, 4))),
    "softmax": lambda x: F.softmax(x, axis=1),
    "concat": lambda x: F.concat([x, x * 2], axis=1),
    "slice": lambda x: x[:, 1:, ::2],
    "flatten": lambda x: F.flatten(x, 1),
    "conv_1x1": lambda x: F.conv2d(x, mge.Tensor(image(24, x.shape[1], 1, 1))),
    "conv_3x3": lambda x: F.conv2d(x, mge.Tensor(image(32, x.shape[1], 3, 3)), padding=1),
    "conv_stride": lambda x: F.conv2d(x, mge.Tensor(image(32, x.shape[1], 3, 3)), padding=1, stride=2),
}


@pytest.mark.parametrize("shape", X, ids=str)
@pytest.mark.parametrize("name", ONE_IMAGE)
def test_memory_order_of_the_input_changes_no_bit(name: str, shape: tuple[int, ...]) -> None:
    x = image(*shape)
    x.flat[::7] = -0.0
    fn = ONE_IMAGE[name]
    same_bits(fn(last(x)), fn(mge.Tensor(x)))


@pytest.mark.parametrize("shape", X, ids=str)
@pytest.mark.parametrize("name", [n for n in ONE_IMAGE if n not in ("compare", "cast", "bn_train", "bn_infer")])
@pytest.mark.parametrize("gy_last", [False, True])
def test_memory_order_changes_no_bit_of_a_gradient(name: str, shape: tuple[int, ...], gy_last: bool) -> None:
    grads = []
    for make in (mge.Tensor, last):
        x = make(image(*shape))
        gm = GradManager().attach(x)
        with gm:
            y = ONE_IMAGE[name](x)
            gy = image(*y.shape, seed=5)
            gm.backward(y, last(gy) if gy_last and make is last and y.ndim == 4 else mge.Tensor(gy))
        grads.append(x.grad)
    same_bits(grads[0], grads[1])


def test_bn_bwd_in_any_mix_of_orders() -> None:
    x, gy = image(3, 20, 9, 5), image(3, 20, 9, 5, seed=1)
    w, mean, rstd = (mge.Tensor(abs(image(20, seed=s))) for s in (2, 3, 4))
    stats = [F.reshape(v, (1, 20, 1, 1)) for v in (mean, rstd)]
    want = ops.batch_norm_bwd(mge.Tensor(x), mge.Tensor(gy), w, *stats)
    for a in (mge.Tensor, last):
        for b in (mge.Tensor, last):
            same_bits(ops.batch_norm_bwd(a(x), b(gy), w, *stats), want)


class Block(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = M.Conv2d(3, 32, 7, 2, 3, bias=False), M.BatchNorm2d(32)
        self.conv2, self.bn2 = M.Conv2d(32, 64, 3, 1, 1), M.BatchNorm2d(64)
        self.conv3 = M.Conv2d(32, 64, 1, 1, 0)
        self.fc = M.Linear(64, 5)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = F.relu(self.bn2(self.conv2(x)) + self.conv3(x))
        return self.fc(F.flatten(F.avg_pool2d(x, x.shape[2]), 1))


def train(steps: int, wrap: Callable[[Callable[..., object]], Callable[..., object]], threads: int = 2) -> list[bytes]:
    mge.random.seed(3)
    net = Block()
    params = list(net.parameters())
    gm = GradManager().attach(params)
    x, y = mge.Tensor(image(4, 3, 64, 64)), mge.Tensor(np.array([0, 1, 2, 3], np.int32))

    def step(x: mge.Tensor, y: mge.Tensor) -> mge.Tensor:
        with gm:
            loss = F.nn.cross_entropy(net(x), y)
            gm.backward(loss)
        for p in params:
            p -= 0.1 * p.grad
            p.grad = None
        return loss

    before = _core.get_num_threads()
    _core.set_num_threads(threads)
    try:
        run = wrap(step)
        losses = [run(x, y).numpy().tobytes() for _ in range(steps)]  # type: ignore[attr-defined]
    finally:
        _core.set_num_threads(before)
    return losses + [p.numpy().tobytes() for p in params]


def test_a_network_trains_to_the_same_bits_however_it_runs() -> None:
    want = train(3, lambda f: f)
    assert train(3, trace) == want
    assert train(3, trace(without_host=True)) == want
    assert train(3, lambda f: f, threads=1) == want


def test_a_convolution_answers_in_an_order_that_export_hides() -> None:
    x, w = image(2, 32, 12, 12), image(48, 32, 3, 3)
    y = F.relu(F.conv2d(mge.Tensor(x), mge.Tensor(w), padding=1))
    got = y.numpy()
    assert got.flags.c_contiguous and got.shape == (2, 48, 12, 12)
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    want = np.zeros(got.shape)
    for i in range(3):
        for j in range(3):
            want += np.einsum("nchw,oc->nohw", padded[:, :, i : i + 12, j : j + 12], w[:, :, i, j].astype(np.float64))
    np.testing.assert_allclose(got, np.maximum(want, 0), rtol=1e-4, atol=1e-3)
    assert F.reshape(y, (2, -1)).numpy().tobytes() == got.tobytes()
    assert np.asarray(F.flatten(y)).tobytes() == got.tobytes()
    assert y[1, 3].numpy().tobytes() == got[1, 3].tobytes()


@pytest.mark.parametrize(
    "n, h, c, o, k, s, p", [(1, 14, 32, 48, 3, 1, 1), (5, 9, 16, 32, 3, 2, 1), (1, 7, 64, 32, 1, 1, 0)]
)
def test_weight_gradient_matches_float64_and_does_not_depend_on_threads(
    n: int, h: int, c: int, o: int, k: int, s: int, p: int
) -> None:
    out = (h + 2 * p - k) // s + 1
    scale = 40 if n == 1 else 8  # enough work to be cut into parts
    x, gy = image(n, c, h * scale // 4, h), None
    rows = (x.shape[2] + 2 * p - k) // s + 1
    gy = image(n, o, rows, out, seed=1)
    got = []
    before = _core.get_num_threads()
    for threads in (1, 2, 3):
        _core.set_num_threads(threads)
        got.append(
            ops.conv2d_dw(mge.Tensor(x), mge.Tensor(gy), stride=(s, s), pad=(p, p), w_shape=(o, c, k, k)).numpy()
        )
    _core.set_num_threads(before)
    assert got[0].tobytes() == got[1].tobytes() == got[2].tobytes()
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (p, p), (p, p)))
    want = np.zeros((o, c, k, k))
    for i in range(k):
        for j in range(k):
            part = padded[:, :, i : i + s * (rows - 1) + 1 : s, j : j + s * (out - 1) + 1 : s]
            want[:, :, i, j] = np.einsum("nchw,nohw->oc", part, gy.astype(np.float64))
    np.testing.assert_allclose(got[0], want, rtol=1e-3, atol=1e-2)


BIG = {
    "add": lambda x: x + x * 0.5,
    "exp": F.exp,
    "scalar": lambda x: x * 2.5,
    "row": lambda x: x + x[:1],
    "column": lambda x: x + x[:, :1],
    "int32": lambda x: (x * 100).astype("int32"),
    "where": lambda x: F.where(x > 0, x, -x),
    "softmax": lambda x: F.softmax(x, axis=1),
    "layer_norm": lambda x: ops.layer_norm(x, n_axes=1, eps=1e-5)[0],
    "copy": lambda x: F.flatten(x[:, 1:], 0),
}


@pytest.mark.parametrize("name", BIG)
def test_results_written_past_the_cache_equal_small_ones(name: str) -> None:
    """Results of 32 MiB and more take another way to memory."""
    x = np.random.default_rng(1).standard_normal((2101, 4099), dtype=np.float32)
    x[1] = x[0]
    fn = BIG[name]
    got = fn(mge.Tensor(x)).numpy().reshape(2101, -1)
    for first in (0, 700, 1400, 2000, 2099):
        rows = x[first : first + 2].copy()
        if name == "row":
            rows = np.concatenate([x[:1], rows])
        want = fn(mge.Tensor(rows)).numpy().reshape(len(rows), -1)[-2:]
        assert got[first : first + 2].tobytes() == want.tobytes(), first


@pytest.mark.parametrize("shape", [(2100, 4111), (4096, 2112), (3, 3_000_001), (2, 3, 5, 300_007)], ids=str)
def test_large_transposes(shape: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    order = (0, *range(2, len(shape)), 1) if len(shape) > 2 else (1, 0)
    assert (F.flatten(F.transpose(mge.Tensor(x), order)).numpy() == x.transpose(order).reshape(-1)).all()


def test_large_batch_norm_in_both_orders() -> None:
    x = image(3, 96, 180, 181)
    w = mge.Tensor(abs(image(96, seed=1)))
    same_bits(ops.batch_norm_train(last(x), w, w), ops.batch_norm_train(mge.Tensor(x), w, w))
    y, mean, var, _ = ops.batch_norm_train(mge.Tensor(x), w, w)
    wide = x.astype(np.float64).transpose(1, 0, 2, 3).reshape(96, -1)
    np.testing.assert_allclose(mean.numpy().reshape(-1), wide.mean(1), atol=1e-5)
    np.testing.assert_allclose(var.numpy().reshape(-1), wide.var(1), rtol=1e-5)
