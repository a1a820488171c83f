"""DLPack both ways, with NumPy on the other side."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine.core.tensor.dtype import bfloat16
from megengine.utils.dlpack import from_dlpack, to_dlpack

DTYPES = ["float32", "float16", "int8", "int16", "int32", "uint8", "uint16", "bool", "complex64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_import_shares_memory(dtype: str) -> None:
    a = np.ones((2, 3), dtype)
    x = from_dlpack(a)
    assert x.dtype == a.dtype and x.shape == a.shape
    a[0, 1] = 0
    np.testing.assert_array_equal(x.numpy(), a)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_memory_at_an_odd_address_is_copied(dtype: str) -> None:
    """Kernels read words of it, which may lie on their own multiples alone."""
    a = np.arange(241, dtype="uint8")[1:].view(dtype).reshape(2, 2, -1)[:, ::-1]
    x = from_dlpack(a)
    assert x.numpy().ctypes.data % a.itemsize == 0
    np.testing.assert_array_equal(x.numpy(), a)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "complex64"])
def test_export_shares_memory(dtype: str) -> None:
    x = mge.tensor(np.arange(6).reshape(2, 3), dtype=dtype)
    b = np.from_dlpack(x)
    assert b.dtype == x.dtype and b.ctypes.data == x.numpy().ctypes.data
    np.testing.assert_array_equal(b, x.numpy())


def test_strides_both_ways() -> None:
    a = np.arange(24, dtype="float32").reshape(2, 3, 4)
    for view in (a.T, a[:, ::-1], a[::1, 1:, ::2], a[:0], a[0, 0, 0:1].reshape(())):
        np.testing.assert_array_equal(from_dlpack(view).numpy(), view)
    t = mge.tensor(a)
    for x, want in ((F.transpose(t, (2, 0, 1)), a.transpose(2, 0, 1)), (t[:, 1:, ::2], a[:, 1:, ::2])):
        np.testing.assert_array_equal(np.from_dlpack(x), want)


def test_wide_numbers_are_narrowed() -> None:
    assert from_dlpack(np.arange(3)).dtype == np.int32
    assert from_dlpack(np.arange(3.0)).dtype == np.float32


def test_nobody_writes_into_borrowed_memory() -> None:
    a = np.zeros(4, "float32")
    x = from_dlpack(a)
    x += 1
    y = F.relu(from_dlpack(a) + 1) * 3
    x[0] = 9
    assert a.tolist() == [0, 0, 0, 0] and y.tolist() == [3, 3, 3, 3] and x.tolist() == [9, 1, 1, 1]


def test_memory_lives_as_long_as_it_is_used() -> None:
    class Array(np.ndarray):
        pass

    a = np.arange(1000, dtype="float32").view(Array)
    gone = weakref.ref(a)
    x = from_dlpack(a)
    del a
    gc.collect()
    assert gone() is not None
    assert x.sum().item() == 499500
    del x
    gc.collect()
    assert gone() is None
    b = np.from_dlpack(mge.tensor(np.arange(1000.0)))  # the tensor is gone, the memory is not
    junk = [mge.tensor(np.zeros(1000)) for _ in range(10)]
    assert b.sum() == 499500 and len(junk) == 10
    to_dlpack(mge.tensor([1.0]))  # a capsule nobody takes


def test_bfloat16_capsule() -> None:
    x = mge.tensor([1.0, 2.5]).astype(bfloat16)
    assert from_dlpack(to_dlpack(x)).dtype == x.dtype


def test_bad_input() -> None:
    with pytest.raises(TypeError, match="from_dlpack: needs a DLPack capsule"):
        from_dlpack(3)
    capsule = to_dlpack(mge.tensor([1.0]))
    from_dlpack(capsule)
    with pytest.raises(TypeError, match="used or foreign"):
        from_dlpack(capsule)
    with pytest.raises(TypeError, match="to_dlpack: needs a Tensor"):
        to_dlpack(np.zeros(3))  # type: ignore[arg-type]
    with pytest.raises(BufferError, match="device"):
        mge.tensor([1.0]).__dlpack__(dl_device=(2, 0))
    with pytest.raises(RuntimeError, match="element type"):
        from_dlpack(np.zeros(3, "complex128"))
    with pytest.raises(AssertionError):
        to_dlpack(mge.tensor([1.0]), -1)
