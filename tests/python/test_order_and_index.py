"""Sorting, top k, and indexing by arrays and masks, against NumPy; eagerly, traced and differentiated."""

from __future__ import annotations

import numpy as np
import pytest
import reference_index as ref
from functional_helpers import X, gradcheck, rand, same

import megengine as mge
import megengine.functional as F
from megengine import Tensor, tensor
from megengine.core import _core
from megengine.core._core import ops
from megengine.jit import trace

DTYPES = ["float32", "float16", "int32", "int16", "int8", "uint8", "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("down", [False, True])
def test_sort_is_stable_for_every_dtype(dtype, down):
    x = np.random.RandomState(1).randint(-3, 4, (5, 600)).astype(dtype)
    y, i = F.sort(Tensor(x, dtype=dtype), down)
    want, where = ref.sort(x, -1, down)
    assert y.dtype == x.dtype and i.dtype == np.int32
    np.testing.assert_array_equal(y.numpy(), want)
    np.testing.assert_array_equal(i.numpy(), where)
    np.testing.assert_array_equal(F.argsort(Tensor(x, dtype=dtype), down).numpy(), where)


def test_sort_along_any_axis_and_of_nothing():
    x = rand(3, 4, 5)
    for dim in (0, 1, 2, -2):
        y, i = F.sort(Tensor(x), False, dim)
        np.testing.assert_array_equal(y.numpy(), np.sort(x, dim))
        np.testing.assert_array_equal(i.numpy(), np.argsort(x, dim, kind="stable"))
    y, i = F.sort(Tensor(np.zeros((3, 0), "float32")))
    assert y.shape == i.shape == (3, 0)


def test_nan_counts_as_largest_and_signed_zeros_are_equal():
    x = np.array([np.nan, 1, -0.0, 0.0, -np.inf, np.nan, np.inf, -2], "float32")
    y, i = F.sort(Tensor(x))
    np.testing.assert_array_equal(y.numpy(), np.sort(x))
    assert i.tolist() == [4, 7, 2, 3, 1, 6, 0, 5]
    assert F.sort(Tensor(x), descending=True)[1].tolist() == [0, 5, 6, 1, 2, 3, 7, 4]
    assert np.isnan(F.topk(Tensor(x), 2)[0].numpy()).all()


@pytest.mark.parametrize("shape", [(1000,), (7, 300)])
@pytest.mark.parametrize("k", [1, 5, 40, 299, 5000])
@pytest.mark.parametrize("down", [False, True])
def test_topk(shape, k, down):
    x = np.random.RandomState(k).randint(0, 200, shape).astype("int32")
    n = min(k, shape[-1])
    y, i = F.topk(Tensor(x), k, down)
    want, where = ref.topk(x, n, -1, down)
    np.testing.assert_array_equal(y.numpy(), want)
    np.testing.assert_array_equal(i.numpy(), where)
    y, i = F.topk(Tensor(x), k, down, no_sort=True)
    np.testing.assert_array_equal(i.numpy(), np.sort(where, -1))
    y, i = F.topk(Tensor(x), k, down, kth_only=True)
    np.testing.assert_array_equal(y.numpy(), want[..., -1])
    np.testing.assert_array_equal(i.numpy(), (x == want[..., -1:]).argmax(-1))


def test_order_of_two_threads_is_that_of_one():
    x = rand(64, 3000)
    before = _core.get_num_threads()
    results = []
    try:
        for threads in (1, 2):
            _core.set_num_threads(threads)
            results.append([v.numpy().copy() for v in (*F.sort(Tensor(x)), *F.topk(Tensor(x), 100))])
    finally:
        _core.set_num_threads(before)
    for a, b in zip(*results):
        assert a.tobytes() == b.tobytes()


def test_gradients_of_order():
    x = np.random.RandomState(0).permutation(20).reshape(4, 5) * 0.1
    gradcheck(lambda v: F.sort(v, True, 0)[0], x)
    gradcheck(lambda v: F.topk(v, 3)[0], x)
    gradcheck(lambda v: F.topk(v, 3, kth_only=True, descending=False)[0], x)


def test_order_refuses_what_it_cannot_do():
    with pytest.raises(AssertionError, match="1 or 2 dimensions"):
        F.argsort(Tensor(rand(2, 2, 2)))
    with pytest.raises(AssertionError, match="1 or 2 dimensions"):
        F.topk(Tensor(rand(2, 2, 2)), 1)
    with pytest.raises(ValueError, match="k must not be 0"):
        F.topk(Tensor(rand(3)), 0)
    with pytest.raises(RuntimeError, match="sort: x must have 1 or more dimensions"):
        F.sort(Tensor(1.0))
    with pytest.raises(RuntimeError, match="topk: k must lie in 0..3"):
        _core.ops.topk(Tensor(rand(3)), k=4)


def test_topk_accuracy_prefers_the_first_of_equals():
    logits = Tensor(np.array([[1, 1, 0], [0, 2, 2], [3, 1, 2]], "float32"))
    target = Tensor(np.array([1, 1, 2], "int32"))
    one, two = F.topk_accuracy(logits, target, (1, 2))
    assert one.item() == pytest.approx(1 / 3) and two.item() == 1.0


# ---- indexing by arrays

SHAPE = (4, 5, 6)
IS = np.array([0, -1, 2])
JS = np.array([[1], [4]])
MASK2 = np.random.RandomState(2).rand(4, 5) > 0.5
MASK3 = np.random.RandomState(3).rand(6) > 0.5
KEYS = [
    (IS, IS),
    (IS, JS),
    (IS, slice(None), IS),
    (slice(None), IS, IS),
    (slice(1, 3), IS, slice(None, None, 2)),
    (slice(None), IS, IS[:, None]),
    (Ellipsis, IS, IS),
    (IS, Ellipsis, IS),
    (1, IS),
    (slice(None), 1, IS),
    (1, slice(None), IS),
    (IS, None, IS),
    (None, IS, slice(None), 2),
    (IS, IS, IS),
    (np.int64(2), slice(None), np.array(1)),
    [0, 2],
    ([0, 2], [1, 1]),
    MASK2,
    (MASK2, IS[:1]),
    (slice(None), slice(None), MASK3),
    (slice(None), IS[:1], MASK3),
    (MASK2, slice(1, 4)),
    True,
    (False, slice(1, 3)),
    (IS, slice(0, 0)),
]


def as_tensors(key, wrap):
    if isinstance(key, tuple):
        return tuple(wrap(k) if isinstance(k, np.ndarray) else k for k in key)
    return wrap(key) if isinstance(key, np.ndarray) else key


@pytest.mark.parametrize("wrap", [lambda a: a, Tensor], ids=["array", "tensor"])
@pytest.mark.parametrize("key", KEYS, ids=[str(i) for i in range(len(KEYS))])
def test_get_and_set_follow_numpy(key, wrap):
    x = rand(*SHAPE)
    got = Tensor(x)[as_tensors(key, wrap)]
    want = x[key]
    assert got.shape == want.shape
    np.testing.assert_array_equal(got.numpy(), want)
    for value in (rand(*want.shape), np.float32(7.0), rand(*want.shape[-1:])):
        y, t = x.copy(), Tensor(x)
        y[key] = value
        t[as_tensors(key, wrap)] = Tensor(value)
        np.testing.assert_array_equal(t.numpy(), y)


def test_index_errors():
    x = Tensor(rand(3, 4))
    with pytest.raises(IndexError, match="out of range for axis 1 with size 4"):
        x[np.array([0]), np.array([4])]
    with pytest.raises(IndexError, match="index 5 at position 1 is out of range; valid are -3..2"):
        x[Tensor([0, 5]), Tensor([0, 1])].numpy()
    with pytest.raises(IndexError, match="too many indices"):
        x[IS, IS, IS]
    with pytest.raises(IndexError, match="mask of shape"):
        x[np.ones((2, 4), bool)]
    with pytest.raises(ValueError, match="cannot copy tensor with shape"):
        x[IS, IS] = Tensor(rand(5))
    with pytest.raises(ValueError, match="integers or bools"):
        x[Tensor([0.5]), Tensor([0.5])]
    with pytest.raises(RuntimeError, match="shapes|broadcast"):
        x[Tensor([0, 1]), Tensor([0, 1, 2])]


def test_gradients_of_indexing():
    i, j = np.array([0, 2, 2, 0]), np.array([1, 1, 1, 3])
    gradcheck(lambda v: v[Tensor(i), Tensor(j)], rand(3, 4))
    gradcheck(lambda v: v[Tensor(i), :, Tensor(j)], rand(3, 2, 4))

    def put(v, u):
        w = F.copy(v)
        w[Tensor(i), Tensor(j)] = u
        return w

    gradcheck(put, rand(3, 4), rand(4))  # equal positions: only the last value counts
    gradcheck(lambda v: v[Tensor(np.array([True, False, True]))], rand(3, 2))
    gradcheck(lambda v: F.gather(v, 1, Tensor([[0, 0], [2, 1]])), rand(2, 3))
    gradcheck(lambda v, u: F.scatter(F.copy(v), 1, Tensor([[0, 0], [2, 1]]), u), rand(2, 3), rand(2, 2))


@pytest.mark.parametrize("without_host", [False, True])
def test_indexing_by_integer_tensors_is_traced(without_host):
    @trace(without_host=without_host)
    def f(x, i, j):
        y = F.copy(x)
        y[i, j] = y[i, j] * 2
        return y[:, j, 0], y

    for seed in range(3):
        rng = np.random.RandomState(seed)
        x, i, j = rng.rand(4, 5, 2).astype("float32"), rng.permutation(4)[:3], rng.randint(0, 5, 3)
        want = x.copy()
        want[i, j] = want[i, j] * 2
        a, b = f(Tensor(x), Tensor(i.astype("int32")), Tensor(j.astype("int32")))
        np.testing.assert_array_equal(b.numpy(), want)
        np.testing.assert_array_equal(a.numpy(), want[:, j, 0])


def test_masks_in_a_trace_are_read_anew_on_every_call():
    @trace
    def f(x):
        y = x * 2
        picked = y[y > 0]
        v, _ = F.cond_take(y > 1, y)
        return picked.sum(), v.sum(), F.non_zero(y > 0).astype("float32").sum()

    for seed in range(4):
        x = np.random.RandomState(seed).uniform(-1, 1, (5, 6)).astype("float32")
        got = [v.item() for v in f(Tensor(x))]
        y = x * 2
        want = [y[y > 0].sum(), y[y > 1].sum(), np.argwhere(y > 0).sum()]
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_masks_and_bounds_in_a_trace_for_a_file():
    for fn in (lambda x, n: x[x > 0], lambda x, n: F.cond_take(x > 0, x)[0], lambda x, n: x[:n]):
        traced = trace(fn, capture_as_const=True)
        for values, n in (([1.0, -1.0], 1), ([1.0, 2.0, 3.0], 2), ([-1.0], 0)):
            args = Tensor(values), Tensor(n, dtype="int32")
            assert traced(*args).tolist() == fn(*args).tolist()
    assert trace(lambda x, n: x[: int(n)], capture_as_const=True)(Tensor([3.0, -1.0]), Tensor(1)).tolist() == [3.0]


def test_incr_adds_at_equal_positions():
    x, v = rand(3, 2), rand(4, 2)
    i = np.array([0, 2, 0, 0], "int32")
    got = _core.ops.index_incr(Tensor(x), Tensor(v), Tensor(i), axes=(0,), at=0)
    want = x.copy()
    np.add.at(want, i, v)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)
    n = _core.ops.index_incr(Tensor([1, 2]), Tensor([5, 6]), Tensor([1, 1]), axes=(0,), at=0)
    assert n.tolist() == [1, 13]


def test_the_input_of_set_is_not_changed_for_others():
    x = Tensor(rand(3, 3))
    keep = x.numpy().copy()
    y = mge.functional.copy(x)
    y[Tensor([0, 1]), Tensor([1, 2])] = 0.0
    np.testing.assert_array_equal(x.numpy(), keep)


@pytest.mark.parametrize("key", [
    np.s_[None, 0], np.s_[[0, 2], 1:], np.s_[..., [1, 1, 0]], np.s_[[0, 1], [1, 2]], np.s_[::-1, ::-2], np.s_[[]],
    np.s_[np.array([[0, 1], [2, 0]])], np.s_[[True, False, True]], np.s_[:, [True, False, True, True]], np.s_[100:200],
    np.s_[-10:2:2], np.s_[None, [0, 1], None, 1], np.s_[[0, 1], None, [1, 2]], np.s_[X > 0], np.s_[-1, ..., -1],
    np.s_[np.array([True, False, True]), ..., 1], np.s_[np.array([[-1], [0]]), np.array([0, 1])], np.s_[True],
    np.s_[False],
])  # fmt: skip
def test_index_forms_agree_with_numpy(key) -> None:
    same(tensor(X)[key], X[key])
    y, want = tensor(X), X.copy()
    y[key] = 7
    want[key] = 7
    same(y, want)


def test_keys_and_values_that_do_not_fit() -> None:
    x = tensor(X)
    for key in (np.s_[..., ...], np.s_[0, 0, 0], np.s_[X[:2] > 0]):
        with pytest.raises(IndexError):
            x[key]
    with pytest.raises(ValueError):
        x[:] = np.ones(3)
    b = tensor(np.ones((2, 2), bool))
    b[np.array([[True, False], [False, True]])] = False
    assert b.tolist() == [[False, True], [True, False]]
    assert x[tensor(0) : tensor(2), tensor(1)].tolist() == X[0:2, 1].tolist()


def test_indices_are_integers():
    x = Tensor(rand(5, 1))
    for fn in (
        lambda: F.gather(x, 0, Tensor([[0.5]])),
        lambda: F.scatter(x, 0, Tensor([[1.0]]), Tensor(rand(1, 1))),
        lambda: F.one_hot(Tensor([1.0]), 3),
    ):
        with pytest.raises(RuntimeError, match=r"integers; got float32. Cast .* with astype"):
            fn()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "uint8"])
@pytest.mark.parametrize("rows", [1, 3, 4, 5, 11])
@pytest.mark.parametrize("options", [{}, {"exclusive": True}, {"reverse": True}, {"exclusive": True, "reverse": True}])
def test_running_sums_of_rows_are_those_of_each_row_alone(dtype, rows, options):
    """Rows are scanned some at a time; which ones stand together must not show."""
    x = (np.random.default_rng(rows).standard_normal((rows, 37)) * 9).astype(dtype)
    together = ops.cumsum(
        mge.Tensor(x, dtype=dtype), axis=1, **{"exclusive": False, "reverse": False, **options}
    ).numpy()
    for row, y in zip(x, together):
        alone = ops.cumsum(
            mge.Tensor(row, dtype=dtype), axis=0, **{"exclusive": False, "reverse": False, **options}
        ).numpy()
        np.testing.assert_array_equal(y, alone)
    ordered = x[:, ::-1] if options.get("reverse") else x
    sums = np.cumsum(ordered, axis=1, dtype="float64" if x.dtype.kind == "f" else dtype)
    if options.get("exclusive"):
        sums = np.concatenate([np.zeros_like(sums[:, :1]), sums[:, :-1]], axis=1)
    sums = sums[:, ::-1] if options.get("reverse") else sums
    np.testing.assert_allclose(together, sums.astype(dtype), rtol=1e-3 if dtype == "float16" else 1e-6)


def test_writing_a_slice_copies_no_tensor_that_nobody_else_sees() -> None:
    """Once every write of a row copied the whole tensor. One by an array of places still does: its kernel may ask for
    memory after it was given the tensor's, and what fails must leave the tensor as it was."""
    x = Tensor(np.zeros((1000, 1000), "float32"))
    value = Tensor(np.ones(1000, "float32"))
    x[0], x[1:, 3] = value, 2.0
    mge.reset_max_memory_stats()
    before = mge.get_max_allocated_memory()
    x[1] = value
    x[2:4, 1:] = 3.0
    assert mge.get_max_allocated_memory() - before < 100_000  # the tensor has 4 MB
    want = np.zeros((1000, 1000), "float32")
    want[0], want[1:, 3] = 1, 2
    want[1], want[2:4, 1:] = 1, 3
    np.testing.assert_array_equal(x.numpy(), want)


def test_writing_a_part_changes_nothing_but_the_tensor() -> None:
    x = Tensor(np.arange(12, dtype="float32").reshape(3, 4))
    want = x.numpy().copy()
    seen = {
        "a view": x[1],
        "a turned view": x.T,
        "a reshaped view": x.reshape(-1),
        "another name": x.detach(),
        "the array": x.numpy(),
        "a copy": F.copy(x),
        "the tensor's own rows": x[:2],
    }
    before = {name: np.array(v.numpy() if isinstance(v, Tensor) else v) for name, v in seen.items()}
    x[1], x[[0, 2]] = 50.0, 60.0
    x[1:] = x[:2]
    want[1], want[[0, 2]] = 50.0, 60.0
    want[1:] = want[:2].copy()
    np.testing.assert_array_equal(x.numpy(), want)
    for name, v in seen.items():
        np.testing.assert_array_equal(v.numpy() if isinstance(v, Tensor) else v, before[name], err_msg=name)
    x[...] = x
    x[:, :] = x.T.T
    np.testing.assert_array_equal(x.numpy(), want)
    with pytest.raises((ValueError, IndexError)):
        x[1] = np.ones(5, "float32")
    with pytest.raises(IndexError):
        x[np.array([3])] = 1.0
    np.testing.assert_array_equal(x.numpy(), want)


@pytest.mark.parametrize("n", [1, 3, 15, 16, 17, 63, 64, 65, 130, 1025])
def test_int32_reductions_are_exact(n: int) -> None:
    x = np.random.default_rng(n).integers(-(2**31), 2**31, (5, n, 3)).astype("int32")
    x[0, 0, 0], x[-1, -1, -1] = -(2**31), 2**31 - 1
    t = Tensor(x, dtype="int32")
    wide = x.astype("int64")
    for axis in (0, 1, 2, (0, 2), (1, 2), None):
        np.testing.assert_array_equal(F.max(t, axis).numpy(), x.max(axis))
        np.testing.assert_array_equal(F.min(t, axis).numpy(), x.min(axis))
        total = F.sum(t, axis).numpy()
        assert total.dtype == np.int32
        np.testing.assert_array_equal(total, wide.sum(axis).astype("int32"))
        if not isinstance(axis, tuple):
            np.testing.assert_array_equal(F.prod(t, axis).numpy(), wide.prod(axis).astype("int32"))
    one = Tensor(x[:, :1], dtype="int32")
    np.testing.assert_array_equal(F.max(one, 1).numpy(), x[:, 0])
