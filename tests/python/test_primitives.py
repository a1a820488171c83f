"""A device that has kernels for primitives only computes every op: the conformance grid, gradients, traces, dtypes,
random draws and a training step with the kernels of composites hidden."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from op_case import OpCase
from primitives import PRIMITIVES
from test_conformance import (
    CASES,
    GRAD_CASES,
    analytic,
    as_float32,
    call,
    case_grid,
    close,
    differentiable,
    expected,
    seeded,
    weights_for,
)

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import autodiff, optimizer
from megengine.core import _core
from megengine.core.tensor.dtype import bfloat16
from megengine.jit import trace


@contextmanager
def primitives_only() -> Iterator[None]:
    _core.set_option("primitives_only", 1)
    try:
        yield
    finally:
        _core.set_option("primitives_only", 0)


def is_composite(op: str) -> bool:
    return bool(_core.op_info(op)["has_decompose"])


COMPOSITE_CASES = [c for c in CASES if is_composite(c.name)]


def test_every_op_is_elementwise_a_listed_primitive_or_has_a_decomposition() -> None:
    infos = {name: _core.op_info(name) for name in _core.op_names()}
    alone = {n for n, i in infos.items() if not i["has_decompose"] and "elementwise" not in i["traits"]}
    assert alone == set(PRIMITIVES)
    assert len(PRIMITIVES) <= 75
    assert all(PRIMITIVES.values())


def test_the_switch_hides_the_kernels_of_composites() -> None:
    """The rounding of the parts is another than that of the kernel, in some element of a thousand."""
    x = mge.Tensor(np.random.RandomState(0).normal(size=(50, 20)).astype(np.float32))
    whole = F.softmax(x, axis=1).numpy()
    with primitives_only():
        assert _core.get_option("primitives_only") == 1
        parts = F.softmax(x, axis=1).numpy()
    np.testing.assert_allclose(parts, whole, rtol=1e-6)
    assert parts.tobytes() != whole.tobytes()
    assert F.softmax(x, axis=1).numpy().tobytes() == whole.tobytes()


@case_grid
def test_forward_matches_numpy(case: OpCase) -> None:
    narrow = as_float32(seeded(case))
    want = expected(case, [a.astype(np.float64) if a.dtype == np.float32 else a for a in narrow])
    with primitives_only():
        got = call(case, [mge.Tensor(a) for a in narrow])
    for g, w in zip(got, want, strict=True):
        assert g.numpy().shape == g.shape and g.numpy().dtype == g.dtype
        close(g.numpy(), w, case.tol)


@pytest.mark.parametrize("case", GRAD_CASES, ids=[c.id for c in GRAD_CASES])
def test_gradient_is_that_of_the_kernels(case: OpCase) -> None:
    """In float64. That of the kernels is checked against finite differences in test_conformance.py."""
    arrays = [np.array(a) for a in seeded(case)]
    wrt, weights = differentiable(case, arrays), weights_for(case, arrays)
    want = analytic(case, arrays, wrt, weights)
    with primitives_only():
        got = analytic(case, arrays, wrt, weights)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("case", COMPOSITE_CASES, ids=[c.id for c in COMPOSITE_CASES])
def test_same_bits_eager_and_traced(case: OpCase) -> None:
    tensors = [mge.Tensor(a) for a in as_float32(seeded(case))]

    def fn(*args: Any) -> tuple[Any, ...]:
        return call(case, list(args))

    with primitives_only():
        eager = [o.numpy().copy() for o in call(case, tensors)]
        if not case.lite:
            return
        for f in (trace(fn), trace(fn, without_host=True, capture_as_const=True)):
            for _ in range(3):
                for g, w in zip(f(*tensors), eager, strict=True):
                    assert g.shape == w.shape and g.numpy().tobytes() == w.tobytes()


#: Kernels round 16-bit results once, and so do the parts; one unit in the last place of what is near a tie.
STORED = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 2e-5, "float64": 1e-9}
FIRST_ROWS = list({c.name: c for c in reversed(COMPOSITE_CASES)}.values())


def as_dtype(case: OpCase, dtype: Any) -> list[Any] | None:
    arrays = seeded(case)
    floating = any(a.dtype == np.float64 for a in arrays)
    tensors = []
    for a in arrays:
        t = _core.exact_tensor(a)
        if a.dtype == np.float64 or (a.dtype == np.int32 and not floating):
            t = t.astype("float32").astype(dtype)
        tensors.append(t)
    try:
        call(case, tensors)
        _core.sync()
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return None  # the op does not take it with kernels either
    return tensors


def test_every_dtype_an_op_takes_with_kernels_it_takes_in_parts() -> None:
    seen = 0
    for case in FIRST_ROWS:
        for dtype in ("float16", bfloat16, "int8", "uint8", "int16", "uint16", "int32", "bool"):
            tensors = as_dtype(case, dtype)
            if tensors is None:
                continue
            want = call(case, tensors)
            with primitives_only():
                got = call(case, tensors)
            for g, w in zip(got, want, strict=True):
                assert g.dtype == w.dtype and g.shape == w.shape
                tol = STORED.get(np.dtype(g.dtype).name, 0)
                a, b = (np.asarray(t.numpy()).astype(np.float64) for t in (g, w))
                np.testing.assert_allclose(a, b, rtol=tol, atol=tol, err_msg=f"{case.id} {dtype}")
            seen += 1
    assert seen > 300


# ---- random draws


def philox(seed: int, counter: int) -> list[int]:
    """Philox 4x32-10 as its authors write it."""
    c, k = [counter & 0xFFFFFFFF, counter >> 32, 0, 0], [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


STATE = np.array([123456789, 987, -2, 5], np.int32)  # the counter's low word is about to carry


def test_rng_bits_are_the_words_of_philox() -> None:
    y, state = _core.ops.rng_bits(mge.Tensor(STATE), shape=(3, 3))
    counter = (5 << 32) + (2**32 - 2)
    want = [w for i in range(3) for w in philox(123456789 + (987 << 32), counter + i)][:9]
    np.testing.assert_array_equal(y.numpy().reshape(-1).view(np.uint32), np.array(want, np.uint32))
    np.testing.assert_array_equal(state.numpy(), [123456789, 987, 1, 6])


@pytest.mark.parametrize("n", [1, 2, 3, 255, 256, 257, 700])
def test_a_permutation_swaps_as_the_words_say(n: int) -> None:
    """From the last place down, each with one at or before it: the words of the place's counter, as in a loop."""
    y, _ = _core.ops.rng_permutation(mge.Tensor(STATE), n=n)
    counter, want = (5 << 32) + (2**32 - 2), list(range(n))
    for i in range(n - 1, 0, -1):
        high, low = philox(123456789 + (987 << 32), counter + i // 2)[i % 2 * 2 :][:2]
        j = (((high << 32) + low) * (i + 1)) >> 64
        want[i], want[j] = want[j], want[i]
    np.testing.assert_array_equal(y.numpy(), want)


def drawn(op: str, *inputs: Any, **attrs: Any) -> list[np.ndarray]:
    out = getattr(_core.ops, op)(*(mge.Tensor(a) for a in inputs), **attrs)
    return [o.numpy().copy() for o in (out if isinstance(out, tuple) else (out,))]


MEANS = np.array([0.0, 0.3, 1, 9.5, 10, 30, 1e3, 1e6, -1, np.nan] * 40, np.float32)
SHAPES = np.array([0.0, 0.2, 0.9, 1, 3, 50, -1, np.nan] * 50, np.float32)
WEIGHTS = np.random.RandomState(2).uniform(0, 3, (20, 5)).astype(np.float32)
WEIGHTS[::3, 1] = 0
DRAWS: list[tuple[str, list[np.ndarray], dict[str, Any], float]] = [
    ("rng_uniform", [STATE], {"shape": (5, 7), "lo": -2.0, "hi": 3.0}, 0.0),
    ("rng_uniform", [STATE], {"shape": ()}, 0.0),
    ("rng_uniform", [STATE], {"shape": (0, 3)}, 0.0),
    ("rng_normal", [STATE], {"shape": (5, 7), "mean": 1.0, "std": 2.0}, 1e-6),
    ("rng_normal", [STATE], {"shape": (0,)}, 0.0),
    ("rng_gamma", [SHAPES, np.full_like(SHAPES, 2), STATE], {}, 1e-6),
    ("rng_poisson", [MEANS, STATE], {}, 0.0),
    ("rng_multinomial", [WEIGHTS, STATE], {"num_samples": 3, "replacement": False}, 0.0),
    ("rng_multinomial", [WEIGHTS, STATE], {"num_samples": 60, "replacement": True}, 0.0),
    ("dropout", [np.linspace(-3, 3, 50, dtype=np.float32), STATE], {"p": 0.3}, 0.0),
    ("dropout", [np.linspace(-3, 3, 50, dtype=np.float16), STATE], {"p": 0.3}, 0.0),
]


@pytest.mark.parametrize("op, inputs, attrs, tol", DRAWS, ids=[f"{d[0]}-{i}" for i, d in enumerate(DRAWS)])
def test_draws_are_those_of_the_kernels(op: str, inputs: list[np.ndarray], attrs: dict[str, Any], tol: float) -> None:
    """Uniform numbers, masks and counts to the bit; what goes through log and cos up to their last bits."""
    want = drawn(op, *inputs, **attrs)
    with primitives_only():
        got = drawn(op, *inputs, **attrs)
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype
        np.testing.assert_allclose(g, w, rtol=tol, atol=tol)


# ---- edges


EMPTY: list[tuple[str, list[tuple[int, ...]], dict[str, Any]]] = [
    ("softmax", [(3, 0)], {"axis": 1}),
    ("logsoftmax", [(0, 3)], {"axis": 1}),
    ("cumsum", [(2, 0)], {"axis": 1, "exclusive": True}),
    ("cumprod", [(0, 2)], {"axis": 1}),
    ("argmax", [(0, 4)], {"axis": 1}),
    ("topk", [(3, 0)], {"k": 0, "axis": 1}),
    ("roi_align", [(2, 3, 0, 4), (2, 5)], {"size": (2, 2)}),
    ("roi_align", [(2, 3, 4, 4), (0, 5)], {"size": (2, 2)}),
    ("roi_pooling", [(2, 3, 4, 4), (0, 5)], {"size": (2, 2)}),
    ("resize", [(0, 3, 4, 4)], {"size": (2, 5)}),
    ("remap", [(0, 3, 4, 4), (0, 2, 2, 2)], {}),
    ("conv3d", [(0, 2, 3, 3, 3), (4, 2, 2, 2, 2)], {}),
    ("recurrence", [(0, 2, 4), (4, 1), (2, 1), (2, 1)], {"mode": "lstm"}),
    ("recurrence", [(0, 2, 4), (4, 4), (2, 4)], {"mode": "tanh"}),
    ("layer_norm", [(0, 3)], {}),
    ("fill_like", [(0, 3)], {"value": 2.0}),
    ("flatten", [()], {}),
    ("squeeze", [(1, 1)], {}),
]


@pytest.mark.parametrize("op, shapes, attrs", EMPTY, ids=[f"{e[0]}-{i}" for i, e in enumerate(EMPTY)])
def test_empty_and_scalar_tensors(op: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any]) -> None:
    inputs = [np.zeros(s, np.float32) for s in shapes]
    want = drawn(op, *inputs, **attrs)
    with primitives_only():
        got = drawn(op, *inputs, **attrs)
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype
        np.testing.assert_allclose(g, w)


@pytest.mark.parametrize("op", ("argmax", "argmin"))
def test_nan_and_ties_choose_the_position_the_kernel_chooses(op: str) -> None:
    x = np.array([[1, 3, 3, 0], [2, np.nan, 5, np.nan], [np.inf, -np.inf, np.inf, -np.inf]], np.float32)
    want = drawn(op, x, axis=1)
    with primitives_only():
        np.testing.assert_array_equal(drawn(op, x, axis=1)[0], want[0])


def test_a_bad_label_is_an_error_in_parts_too() -> None:
    x, label = mge.Tensor(np.zeros((2, 3), np.float32)), mge.Tensor(np.array([0, -1], np.int32))
    with primitives_only(), pytest.raises(IndexError, match=r"softmax_xent: index -1 at position 1 is out of range"):
        _core.ops.softmax_xent(x, label, axis=1)[0].numpy()


def test_bad_lengths_and_weights_are_errors_in_parts_too() -> None:
    pred = mge.Tensor(np.full((3, 2, 4), 0.25, np.float32))
    label = mge.Tensor(np.array([[1, 2], [3, 4]], np.int32))
    weights = mge.Tensor(np.array([[1.0, 2.0], [0.0, 0.0]], np.float32))
    with primitives_only():
        bad = [([3, 4], [1, 1], "pred_lengths"), ([3, 3], [1, 3], "label_lengths"), ([3, 3], [1, 2], "label")]
        for steps, sizes, what in bad:
            lengths = [mge.Tensor(np.array(v, np.int32)) for v in (steps, sizes)]
            with pytest.raises(IndexError, match=f"ctc_loss: {what}"):
                _core.ops.ctc_loss(pred, lengths[0], label, lengths[1], blank=0).numpy()
        with pytest.raises(IndexError, match="rng_multinomial: weights must be finite, not negative and not all 0"):
            _core.ops.rng_multinomial(weights, mge.Tensor(STATE), num_samples=1, replacement=True).numpy()


def test_an_error_of_a_part_names_the_op_that_was_called() -> None:
    x, index = mge.Tensor(np.zeros((2, 3), np.float32)), mge.Tensor(np.array([7], np.int32))
    with primitives_only(), pytest.raises(IndexError, match=r"^take: index_get: index 7 at position 0 is out of range"):
        _core.ops.take(x, index, axis=0).numpy()


@pytest.mark.parametrize("joined", (False, True))
def test_ctc_with_joined_labels_zeros_and_impossible_sequences(joined: bool) -> None:
    rng = np.random.RandomState(3)
    pred = rng.uniform(size=(5, 4, 3)).astype(np.float32)
    pred[rng.uniform(size=pred.shape) < 0.2] = 0
    sizes = np.array([2, 0, 3, 3], np.int32)
    rows = rng.randint(1, 3, (4, 3)).astype(np.int32)
    rows[3] = 1  # 1, 1, 1 needs five steps, and gets three
    label = np.concatenate([r[:n] for r, n in zip(rows, sizes, strict=True)]) if joined else rows
    inputs = [pred, np.array([5, 4, 5, 3], np.int32), label, sizes]
    gy = rng.normal(size=4).astype(np.float32)
    want = drawn("ctc_loss", *inputs, blank=0), drawn("ctc_loss_bwd", *inputs, gy, blank=0)
    assert want[0][0][3] > 80  # large and finite
    with primitives_only():
        got = drawn("ctc_loss", *inputs, blank=0), drawn("ctc_loss_bwd", *inputs, gy, blank=0)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g[0], w[0], rtol=1e-5, atol=1e-6)


# ---- another device, programs


def test_composites_on_an_asynchronous_device_are_queued_whole_and_give_the_same_bits() -> None:
    _core.test_device()
    with primitives_only():
        for case in COMPOSITE_CASES:
            arrays = as_float32(seeded(case))
            if not arrays or case.name == "copy_to":
                continue  # nothing that is on the device
            want = [o.numpy() for o in call(case, [mge.Tensor(a) for a in arrays])]
            got = call(case, [mge.Tensor(a).to("fake0") for a in arrays])
            for g, w in zip(got, want, strict=True):
                assert str(g.device).startswith("fake0"), case.id
                assert g.numpy().tobytes() == w.tobytes(), case.id


class Net(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = M.Conv2d(3, 8, 3, padding=1)
        self.norm = M.BatchNorm2d(8)
        self.cell = M.LSTM(8, 6)
        self.out = M.Linear(6, 4)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        x = F.relu(self.norm(self.conv(x)))
        x = F.nn.interpolate(x, scale_factor=0.5, mode="bilinear")
        x = F.avg_pool2d(x, 2).reshape(x.shape[0], 8, -1).transpose(2, 0, 1)
        hidden, _ = self.cell(x)
        return self.out(F.dropout(hidden[-1], 0.2))


def losses(traced: bool, queued: bool = False) -> list[float]:
    mge.random.seed(7)
    rng = np.random.RandomState(1)
    net = Net()
    for p in net.parameters():
        p[...] = mge.Tensor(rng.uniform(-0.3, 0.3, p.shape).astype(np.float32))
    gm = autodiff.GradManager().attach(net.parameters())
    opt = optimizer.Adam(net.parameters(), lr=0.01)
    data = mge.Tensor(rng.normal(size=(5, 3, 8, 8)).astype(np.float32))
    label = mge.Tensor(rng.randint(0, 4, 5).astype(np.int32))

    def step(x: mge.Tensor, t: mge.Tensor) -> mge.Tensor:
        with gm:
            loss = F.nn.cross_entropy(net(x), t)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    run = trace(step, without_host=True) if traced else step
    try:
        _core.set_option("executor", 1 if queued else 0)
        return [float(run(data, label).item()) for _ in range(4)]
    finally:
        _core.sync()
        _core.set_option("executor", 0)


def test_training_goes_the_same_way_in_parts() -> None:
    want = losses(traced=False)
    with primitives_only():
        eager, traced, queued = losses(traced=False), losses(traced=True), losses(traced=False, queued=True)
    np.testing.assert_allclose(eager, want, rtol=2e-4)
    assert traced == eager and queued == eager


def test_second_order_goes_through_the_parts() -> None:
    x = np.random.RandomState(0).normal(size=(4, 6)).astype(np.float32)

    def twice() -> np.ndarray:
        t = mge.Tensor(x)
        outer, inner = autodiff.GradManager().attach([t]), autodiff.GradManager().attach([t])
        with outer:
            with inner:
                inner.backward((F.softmax(t, axis=1) * F.sin(t)).sum())
            g, t.grad = t.grad, None
            outer.backward((g * g).sum())
        return np.asarray(t.grad.numpy())

    want = twice()
    with primitives_only():
        np.testing.assert_allclose(twice(), want, rtol=1e-4, atol=1e-6)
