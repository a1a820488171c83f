"""bfloat16 tensors: reading their values, making them, and the dtypes of what is computed with them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor, autodiff, optimizer, safetensors
from megengine.core.tensor.dtype import bfloat16, convert_to_bfloat16

VALUES = [[1.0, -2.5], [0.0, 3.140625]]  # exact in 8 bits
A = np.array(VALUES, "float32")


def make() -> Tensor:
    return Tensor(VALUES).astype("bfloat16")


def test_values_are_numbers() -> None:
    x = make()
    assert x.tolist() == VALUES and x[1, 1].item() == 3.140625 and x.item(0, 1) == -2.5
    assert f"{x[0, 1]:.2f}" == "-2.50" and complex(x[0, 0]) == 1
    np.testing.assert_array_equal(np.asarray(x, dtype="float64"), A)


def test_repr_shows_numbers() -> None:
    assert repr(make()[0]) == "Tensor([ 1.  -2.5], dtype=pybfloat16, device=xpux:0)"


def test_numpy_gives_the_bits() -> None:
    assert make().numpy().dtype == bfloat16
    np.testing.assert_array_equal(make().numpy().view("uint16"), A.view("uint32") >> 16)


@pytest.mark.parametrize(
    "data",
    [VALUES, A, A.astype("float64"), A.astype("float16"), np.arange(4, dtype="int32"), np.arange(4, dtype="uint16")],
    ids=["list", "float32", "float64", "float16", "int32", "uint16"],
)
def test_made_from_numbers(data) -> None:
    np.testing.assert_array_equal(Tensor(data, dtype="bfloat16").astype("float32").numpy(), np.asarray(data, "float32"))


def test_made_from_a_numpy_scalar() -> None:
    assert Tensor(np.float32(2.5), dtype="bfloat16").item() == 2.5


def test_made_from_an_array_of_bfloat16() -> None:
    for x in (Tensor(convert_to_bfloat16(A)), Tensor(make().numpy(), bfloat16)):
        assert x.dtype == bfloat16 and x.tolist() == VALUES


@pytest.mark.parametrize("number", [2, 2.0, True, np.float32(2), np.array(2.0)], ids=repr)
def test_a_number_takes_its_dtype_and_a_float_array_does_not(number) -> None:
    dtype = bfloat16 if isinstance(number, (int, float)) else np.dtype("float32")
    for y, want in ((make() * number, A * float(number)), (number + make(), A + float(number))):
        assert y.dtype == dtype
        np.testing.assert_array_equal(y.numpy().astype("float32"), want.astype(dtype).astype("float32"))
    assert (make() > number).numpy().tolist() == (A > number).tolist()


def test_with_arrays() -> None:
    assert (make() + A).dtype == (make() + Tensor(A)).dtype == np.float32
    assert (make() + A.astype("int32")).dtype == bfloat16
    y = make() + A.astype(bfloat16)
    assert y.dtype == bfloat16 and y.tolist() == (2 * A).tolist()


def test_functions_keep_it() -> None:
    """Also those that MegEngine composes with Python numbers, which give float32 there."""
    x = Tensor(np.ones((1, 2, 2, 2), "float32"), dtype=bfloat16)
    assert F.mean(x).dtype == np.float32
    for y in (F.clip(x, 0.5, 2.0), F.clip(x, 0.5), F.leaky_relu(x, 0.1), F.normalize(x, axis=1)):
        assert y.dtype == bfloat16
    for y in (F.local_response_norm(x), F.relu6(x), F.gelu(x), F.softmax(x, axis=1), F.sum(x), F.dropout(x, 0.5)):
        assert y.dtype == bfloat16


def test_a_list_beside_it_takes_its_dtype() -> None:
    for use in (lambda x: x + [1.0, 2.0], lambda x: [1, 2] * x, lambda x: F.maximum(x, [1.0, 2.0])):
        assert use(make()[0]).dtype == bfloat16


def test_numbers_of_other_ops_take_its_dtype() -> None:
    """Not elementwise: the update of an optimizer keeps the weights in bfloat16."""
    net = M.Linear(2, 1, bias=False)
    net.weight._reset(Tensor([[1.0, 2.0]], dtype=bfloat16))
    with autodiff.GradManager().attach(net.parameters()) as gm:
        gm.backward(net(Tensor([[1.0, 1.0]], dtype=bfloat16)).sum())
    optimizer.SGD(net.parameters(), lr=0.5).step()
    assert net.weight.dtype == bfloat16 and net.weight.tolist() == [[0.5, 1.5]]


def test_assignment_of_a_list() -> None:
    x = make()
    x[0] = [4.0, 5.0]
    assert x[0].tolist() == [4, 5]


def test_python_numbers() -> None:
    zero, number = make()[1, 0], make()[1, 1]
    assert not bool(zero) and float(number) == 3.140625 and int(number) == 3


def test_pickle_and_files(tmp_path) -> None:
    assert pickle.loads(pickle.dumps(make())).tolist() == VALUES
    mge.save({"x": make()}, str(tmp_path / "x.pkl"))
    assert mge.load(str(tmp_path / "x.pkl"))["x"].tolist() == VALUES


def test_files_from_before_numpy_knew_it() -> None:
    """They hold two bytes per element, and a note in the dtype's metadata."""
    old = np.dtype("V2", metadata={"mgb_dtype": {"name": "BFloat16"}})
    a = pickle.loads(pickle.dumps(A.astype(bfloat16).view("uint16").view(old)))
    assert a.dtype.kind == "V" and a.dtype.metadata is not None
    for x in (Tensor(a), Tensor(a, a.dtype), Tensor(a[::-1].copy()[::-1])):
        assert x.dtype is bfloat16 and x.tolist() == VALUES
    assert Tensor(a, "float32").dtype == np.float32 and Tensor(a, "float32").tolist() == VALUES
    with pytest.raises(TypeError, match="is not supported"):
        Tensor(np.zeros(2, "V2"))
    with pytest.raises(TypeError, match="is not supported"):
        Tensor(np.zeros(2, np.dtype("V2", metadata={"unit": "m"})))


def test_safetensors_to_a_device() -> None:
    assert safetensors.load(safetensors.save({"x": make()}), device="cpu0")["x"].tolist() == VALUES


def test_state_of_a_module() -> None:
    nets = [M.Linear(2, 2, bias=False) for _ in range(2)]
    for net in nets:
        net.weight._reset(net.weight.astype("bfloat16"))
    nets[1].load_state_dict(nets[0].state_dict())
    assert nets[1].weight.tolist() == nets[0].weight.tolist()


def test_arithmetic_stays_bfloat16() -> None:
    x = make()
    for y, want in ((x + x, 2 * A), (F.relu(x), np.maximum(A, 0)), (-x, -A)):
        assert y.dtype == bfloat16
        np.testing.assert_array_equal(y.astype("float32").numpy(), want)
