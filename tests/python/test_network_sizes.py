"""Functions of variables of a graph whose shapes are variables: what they give with tensors."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine.utils.comp_graph_tools import GraphInference
from megengine.utils.network import Network, set_symbolic_shape

RNG = np.random.default_rng(0)


def of(*shape: int) -> Any:
    return RNG.random(shape).astype("float32")


X, EYE = of(2, 3, 4, 4), np.tile(np.eye(3, dtype="float32"), (2, 1, 1))
#: Functions that check sizes or decide by them, which a comparison that is never true misleads.
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "squeeze": (F.squeeze, (of(3, 1, 2, 1),)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (4,), True, w, b), (X, of(4), of(4))),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (2, 2)), (X,)),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, 2), (X,)),
    "deformable_conv2d": (F.deformable_conv2d, (X, of(3, 3, 3, 3), of(2, 18, 2, 2), of(2, 9, 2, 2))),
    "local_conv2d": (F.local_conv2d, (X, of(1, 2, 2, 3, 3, 3, 2))),
    "sliding_window_transpose": (lambda x: F.sliding_window_transpose(x, (4, 4), 2), (of(2, 3, 3, 3, 2, 2),)),
    "pad": (lambda x: F.nn.pad(x, ((0, 0), (0, 0), (1, 2), (2, 0)), constant_value=3.0), (X,)),
    "local_response_norm": (F.local_response_norm, (X,)),
    "sliding_window": (lambda x: F.sliding_window(x, 3, 1), (X,)),
    "warp_perspective": (lambda x, m: F.vision.warp_perspective(x, m, (2, 2)), (X, EYE)),
    "warp_affine": (lambda x, m: F.vision.warp_affine(x, m, (2, 2), format="NCHW"), (X, EYE[:, :2].copy())),
    "ctc_loss": (
        F.nn.ctc_loss,
        (of(4, 2, 3), np.int32([4, 4]), np.int32([[1, 2], [1, 1]]), np.int32([2, 1])),
    ),
    "conv_transpose2d": (lambda x, w: F.conv_transpose2d(x, w, stride=2, output_padding=1), (X, of(3, 2, 3, 3))),
    "group_norm": (lambda x, w, b: F.group_norm(x, 3, True, w, b), (X, of(3), of(3))),
    "split": (lambda x: F.split(x, 2, axis=3)[1], (X,)),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (of(1, 4, 2, 2),)),
}


@pytest.mark.parametrize("inputs", (False, True), ids=("constants", "inputs"))
@pytest.mark.parametrize("name", CASES)
def test_functions_of_variables_with_symbolic_shapes(name: str, inputs: bool) -> None:
    fn, args = CASES[name]
    want = fn(*map(mge.Tensor, args)).numpy()
    net = Network()
    old = set_symbolic_shape(True)
    try:
        given: list[Any] = [
            net.make_input_node(a.shape, a.dtype, name=f"i{k}") if inputs else net.make_const(a)
            for k, a in enumerate(args)
        ]
        net.add_output(fn(*given))
    finally:
        set_symbolic_shape(old)
    file = io.BytesIO()
    net.dump(file)
    file.seek(0)
    feed = {f"i{k}": a for k, a in enumerate(args)} if inputs else {}
    (got,) = GraphInference(file).run(inp_dict=feed).values()
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "name", ("pad", "local_response_norm", "sliding_window", "sliding_window_transpose", "squeeze")
)
def test_what_functions_begin_with_follows_the_batch_size(name: str) -> None:
    fn, (x,) = CASES[name]
    net = Network()
    old = set_symbolic_shape(True)
    try:
        net.add_output(fn(net.make_input_node(x.shape, x.dtype, name="x")))
    finally:
        set_symbolic_shape(old)
    net.reset_batch_size(5)
    file = io.BytesIO()
    net.dump(file)
    file.seek(0)
    longer = np.concatenate([x, x, x])[:5]
    (got,) = GraphInference(file).run(inp_dict={"x": longer}).values()
    np.testing.assert_allclose(got, fn(mge.Tensor(longer)).numpy(), rtol=1e-5, atol=1e-6)


def written(x: Any, key: Any, value: Any) -> Any:
    y = x * 1
    y[key] = value
    return y


INDICES: dict[str, Callable[[Any], Any]] = {
    "an int": lambda x: x[:, 0],
    "two ints": lambda x: x[:, 0, -1],
    "a new axis": lambda x: x[:, None],
    "an ellipsis": lambda x: x[..., 1],
    "backwards": lambda x: x[::-1, 1:],
    "from the end": lambda x: x[-2:, None, 2],
    "all but the last": lambda x: x[:-1],
    "a write to an int": lambda x: written(x, (slice(None), 0), 5.0),
    "a write of a row": lambda x: written(x, (slice(None, -1), 1), np.float32([1, 2, 3, 4])),
    "a write backwards": lambda x: written(x, slice(None, None, -1), x * 2),
}


@pytest.mark.parametrize("name", INDICES)
def test_an_index_follows_the_batch_size(name: str) -> None:
    fn, x = INDICES[name], np.arange(60, dtype="float32").reshape(5, 3, 4)
    net = Network()
    net.add_output(fn(net.make_input_node((2, 3, 4), "float32", name="x")))
    net.reset_batch_size(5)
    file = io.BytesIO()
    net.dump(file)
    file.seek(0)
    (got,) = GraphInference(file).run(inp_dict={"x": x}).values()
    np.testing.assert_array_equal(got, fn(x))  # NumPy is the judge


def test_a_function_of_a_variable_may_begin_with_zeros() -> None:
    fn, (x,) = CASES["sliding_window_transpose"]
    net = Network()
    net.add_output(fn(net.make_const(x)))
    file = io.BytesIO()
    net.dump(file)
    file.seek(0)
    (got,) = GraphInference(file).run().values()
    np.testing.assert_array_equal(got, fn(mge.Tensor(x)).numpy())


def test_sizes_compare_as_numbers() -> None:
    net = Network()
    x: Any = net.make_input_node((2, 3), "float32", name="x")
    old = set_symbolic_shape(True)
    try:
        n, c = x.shape
        assert x.shape == (2, 3) and x.shape != (2, 4) and x.shape == (n, c) and (2, 3) == x.shape
        assert n == 2 and n < c and c >= np.int64(3) and not n != 2 and n * 2 + 1 == 5 and 7 // c == 2 and not c % 3
        assert str(x.shape) == "(2, 3)"
        assert (x.shape == 3).numpy().tolist() == [False, True]  # a number and all the sizes: by elements
        assert {n: 1}[n] == 1
    finally:
        set_symbolic_shape(old)
