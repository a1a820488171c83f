"""Arrays, NumPy scalars and NumPy functions beside tensors: which dtype and device comes out."""

from __future__ import annotations

import numpy as np
import pytest
from functional_helpers import X, same

import megengine as mge
import megengine.functional as F
from megengine import Tensor, tensor


def test_numpy_functions_and_operands() -> None:
    x = tensor(X, device="cpu0:1")
    for got in (np.sin(x), np.add(x, 1), X + x, np.float32(2) * x):
        assert isinstance(got, Tensor) and got.device == "cpu0:1"
    same(np.sin(x), np.sin(X))
    h = tensor(np.ones(3, "float16"))
    for got in (h + tensor(np.ones(3, "float32")), h + np.ones(3, "float32"), np.ones(3, "float32") - h):
        assert got.dtype == np.float32 and isinstance(got, Tensor)
    assert (tensor([1, 2, 3]) // [1, 2, 1]).tolist() == [1, 1, 3]
    assert (tensor([1, 2]) / 2).dtype == np.float32 and (tensor([-7, 7]) // 2).tolist() == [-4, 3]
    u = tensor(np.array([3, 4], "uint16"))
    assert (u * u).dtype == np.uint16


@pytest.mark.parametrize(
    "tensor, array, want",
    [
        ("float16", "uint8", "float16"),
        ("float16", "float32", "float32"),
        ("float16", "bool", "float16"),
        ("int32", "uint8", "int32"),
        ("int32", "bool", "int32"),
        ("int32", "float16", "float32"),
        ("int8", "uint8", "int16"),
        ("int8", "int16", "int16"),
        ("int16", "uint8", "int16"),
        ("uint8", "bool", "uint8"),
        ("bool", "int8", "float32"),
    ],
)
def test_an_array_takes_a_dtype_that_goes_with_the_tensor(tensor: str, array: str, want: str) -> None:
    # The results of MegEngine 1.13, for arrays and for NumPy scalars.
    x, a = mge.Tensor(np.array([1, 0], tensor)), np.array([1, 1], array)
    for other in (a, a[0]):
        for y in (x + other, F.maximum(x, other)):
            assert y.dtype == np.dtype(want)
            np.testing.assert_array_equal(y.numpy() > 0, [True, True])
    assert (x == a).dtype == np.bool_


def test_arrays_that_do_not_go_with_the_tensor() -> None:
    with pytest.raises(TypeError, match="sign"):
        mge.Tensor([1], dtype="uint8") + np.array([1], "int8")
    wide = mge.Tensor([1], dtype="int32") + np.array([2.5])  # float64, which MegEngine refuses
    assert wide.dtype == np.float32 and wide.item() == 3.5


def test_bool_arrays_in_logic_and_devices_beside_none() -> None:
    x = mge.Tensor([True, False])
    assert (x & np.array([True, True])).tolist() == [True, False]
    assert (x | np.array([True, True])).tolist() == [True, True]
    with pytest.raises(TypeError, match="two bool tensors"):
        x & 1
    assert (x.device == None) is False and x.device != None  # noqa: E711


def test_dtypes_by_numpys_codes() -> None:
    for code, name in (("f4", "float32"), ("<i4", "int32"), ("u1", "uint8"), ("single", "float32"), ("f2", "float16")):
        assert mge.Tensor([1], dtype=code).dtype == np.dtype(name)
        assert mge.Tensor([1.0]).astype(code).dtype == np.dtype(name)
    assert F.zeros(2, dtype="f4").dtype == np.float32 and F.full(2, 1, dtype="i4").dtype == np.int32
    with pytest.raises(TypeError, match="'nope' is not a dtype; known: bool"):
        mge.Tensor([1], dtype="nope")
