"""Tensors without axes and without elements, eagerly and traced. NumPy is the judge."""

from __future__ import annotations

import numpy as np
import pytest
from functional_helpers import X, grad_of, same

import megengine as mge
import megengine.functional as F
from megengine import tensor
from megengine.jit import trace


def test_scalars_stay_scalars() -> None:
    s = tensor(2.0)
    for y in (
        s.sum(),
        s + 1,
        s.astype("int32"),
        s.transpose(),
        F.where(tensor(True), s, s),
        F.squeeze(tensor([[1.0]])),
    ):
        assert y.shape == () and y.ndim == 0
    assert tensor([[1, 2]]).sum(axis=1).ndim == 1
    assert mge.random.permutation(tensor(7)).shape == (1,)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "max", "min", "var", "std"])
def test_scalars_reduce_along_their_only_axis(name: str) -> None:
    for axis in (0, -1):
        got = getattr(F, name)(tensor(3.0), axis=axis)
        assert got.shape == () and got.item() == (0.0 if name in ("var", "std") else 3.0)
    with pytest.raises(IndexError):
        getattr(F, name)(tensor(3.0), axis=1)


def test_scalars_count_as_vectors_of_one() -> None:
    same(F.concat([tensor(1.0), tensor([2.0, 3.0]), tensor(4.0)]), np.array([1, 2, 3, 4], "float32"))
    same(F.diag(tensor(2.0)), np.array([[2.0]]))
    same(F.cumsum(tensor(2.0), 0), np.cumsum(np.float32(2.0), 0))
    assert F.transpose(tensor(2.0), ()).shape == () and F.softmax(tensor(2.0)).item() == 1.0
    np.testing.assert_array_equal(grad_of(lambda x: F.concat([x, x * 2]), np.array(3.0, "float32")), 3.0)


def test_two_numbers_compare_as_python_does() -> None:
    assert F.equal(1, 1) is True and F.less(2, 1) is False and F.greater_equal(1, 2.0) is False
    np.testing.assert_array_equal(F.greater(np.array([1, 2]), tensor([2, 1])).numpy(), [False, True])
    assert F.not_equal([1, 2], tensor([1, 3])).numpy().tolist() == [False, True]


def test_every_way_of_running_keeps_scalar_shapes() -> None:
    def f(x):
        return x.sum(), x.max(axis=0), (x > 0).astype("int32").sum(), x.mean() * 2

    want = [y.shape for y in f(tensor(X))]
    for symbolic in (False, True):
        g = trace(symbolic=symbolic)(f)
        for _ in range(3):
            got = g(tensor(X))
            assert [y.shape for y in got] == want
            for a, b in zip(got, f(tensor(X))):
                np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize(
    ("fn", "value"),
    [
        (lambda x: F.concat([x, x]), 2.0),
        (lambda x: F.softmax(x), 2.0),
        (lambda x: F.transpose(x, ()), 2.0),
        (lambda x: F.sum(x, axis=0), 2.0),
        (lambda x: F.diag(x), 2.0),
        (lambda x: F.cumsum(x, 0), 2.0),
        (lambda x: F.leaky_relu(x), [-1.0, 0.0, 1.0]),
        (lambda x: F.norm(x, 0), [-1.0, 0.0, 1.0]),
        (lambda x: F.equal(x, 0), [-1.0, 0.0, 1.0]),
    ],
)
@pytest.mark.parametrize("symbolic", [False, True])
def test_traces_agree_on_small_shapes(fn, value, symbolic: bool) -> None:
    x = tensor(value)
    want, run = fn(x), trace(fn, symbolic=symbolic)
    for _ in range(3):
        got = run(x)
        assert got.shape == want.shape and got.dtype == want.dtype
        np.testing.assert_array_equal(got.numpy(), want.numpy())


@pytest.mark.parametrize("shape", [(0,), (2, 0, 3)])
def test_empty_tensors_everywhere(shape) -> None:
    x = tensor(np.zeros(shape, "float32"))
    skip = {"logical_and", "logical_or", "logical_xor", "logical_not", "left_shift", "right_shift", "clip"}
    binary = """add sub mul div floor_div pow mod logaddexp maximum minimum atan2 equal not_equal less less_equal
    greater greater_equal""".split()
    for name in F.elemwise.__all__:
        if name in skip:
            continue
        fn = getattr(F.elemwise, name)
        got = fn(x, x) if name in binary else fn(x)
        assert got.shape == shape, name
        if name in binary:
            assert fn(x, 1.0).shape == shape
    assert x.sum().item() == 0 and x.prod().item() == 1
    assert F.matmul(tensor(np.zeros((2, 0))), tensor(np.zeros((0, 3)))).tolist() == [[0] * 3] * 2
    assert F.roll(x, 1).shape == shape and F.reshape(tensor(np.zeros((10, 0))), (0,)).shape == (0,)
    assert F.reshape(tensor(np.zeros((100, 0, 1))), (100, 0, 10)).shape == (100, 0, 10)
    assert mge.random.uniform(size=(0, 2)).shape == (0, 2) and mge.random.permutation(0).shape == (0,)
    for v in F.cond_take(x > 0, x):
        assert v.shape == (0,)
