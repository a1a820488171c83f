"""What passes do to programs of users: the same bits, or those of the option that was named."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import megengine.functional as F
from megengine import Tensor
from megengine.core import _core
from megengine.jit import GraphOptimizationConfig, trace

RNG = np.random.default_rng(5)


def x(*shape: int, lo: float = -2, hi: float = 2) -> Tensor:
    return Tensor(RNG.uniform(lo, hi, shape).astype("float32"))


def traced(fn: Callable[..., Tensor], *args: Tensor, rewrites: list[str] | None = None) -> tuple[np.ndarray, str]:
    """What the compiled program gives, and its report."""
    config = GraphOptimizationConfig()
    config.rewrites = rewrites or []
    f = trace(fn, without_host=True, graph_opt_config=config)
    f(*args)
    got = f(*args).numpy()
    assert f._last is not None
    return got, f._last.recording.report()


REWRITES: list[tuple[str, Callable[..., Tensor], tuple[Tensor, ...], Any]] = [
    ("div_self", lambda a: a / a, (Tensor([0.0, 2.0]),), [1, 1]),
    ("sub_self", lambda a: a - a, (Tensor([np.inf, 2.0]),), [0, 0]),
    ("mul_zero", lambda a: a * 0, (Tensor([np.inf, 2.0]),), [0, 0]),
    ("log_exp", lambda a: F.log(F.exp(a)), (Tensor([1000.0, 1.0]),), [1000, 1]),
    ("log_sum_exp", lambda a: F.log(F.exp(a) + F.exp(a * 0.5)), (Tensor([1000.0]),), [1000]),
    ("log1p", lambda a: F.log(a + 1), (Tensor([1e-10]),), [1e-10]),
]


@pytest.mark.parametrize("name, fn, args, want", REWRITES, ids=[r[0] for r in REWRITES])
def test_rewrites_change_values_only_when_named(name: str, fn: Any, args: Any, want: Any) -> None:
    plain, _ = traced(fn, *args)
    np.testing.assert_array_equal(plain, fn(*args).numpy())
    assert not np.allclose(plain, want, rtol=1e-6, atol=0)
    got, _ = traced(fn, *args, rewrites=[name])
    np.testing.assert_allclose(got, want, rtol=1e-6)
    np.testing.assert_array_equal(traced(fn, *args, rewrites=["all"])[0], got)


@pytest.mark.parametrize(
    "name, fn",
    [
        ("merge_constants", lambda a: (a * 3.0) * 7.0),
        ("div_to_mul", lambda a: a / 3.0),
        ("reassociate", lambda a: (a + F.sum(a)) + 0.1),
        ("sum_to_mean", lambda a: F.sum(a.astype("float16"), axis=1) / 5),
        ("double_cast", lambda a: a.astype("float16").astype("float32")),
        ("add_zero", lambda a: F.minimum(a, 0) * 0 + 0.0),
    ],
)
def test_rewrites_stay_close(name: str, fn: Any) -> None:
    a = x(4, 5)
    want = fn(a).numpy()
    np.testing.assert_array_equal(traced(fn, a)[0], want)
    np.testing.assert_allclose(traced(fn, a, rewrites=[name])[0], want, rtol=2e-3, atol=1e-6)


def test_minus_zero_survives() -> None:
    def fn(a: Tensor) -> Tensor:
        return ((a + 0.0) * 1.0 - 0.0) / 4.0

    a = Tensor([-0.0, 0.0, -1.0, np.nan, np.inf])
    got, report = traced(fn, a)
    want = fn(a).numpy()
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got[:3]), np.signbit(want[:3]))
    del report


def graph_of(fn: Callable[..., Tensor], *args: Tensor) -> tuple[_core.Graph, trace]:
    import io

    f = trace(fn, capture_as_const=True)
    f(*args)
    file = io.BytesIO()
    f.dump(file, optimize_for_inference=False)
    return _core.Graph(file.getvalue()), f


def run_graph(graph: _core.Graph, **feeds: np.ndarray) -> np.ndarray:
    """A graph as Lite runs it."""
    import io

    from megengine.utils.comp_graph_tools import GraphInference

    data = graph.dump(graph.outputs, graph.inputs, False, None, [], []).write()
    (out,) = GraphInference(io.BytesIO(data)).run(inp_dict=feeds).values()
    return np.asarray(out)


@pytest.mark.parametrize(
    "option, dtype", [("enable_io16xc32", "f16"), ("enable_ioc16", "f16"), ("enable_io_bf16", "bf16")]
)
def test_half_precision_between_ops(option: str, dtype: str) -> None:
    w, b = x(8, 3, 3, 3), x(1, 8, 1, 1)
    image = x(2, 3, 9, 9)

    def net(a: Tensor) -> Tensor:
        y = F.relu(F.conv2d(a, w, b, padding=1))
        return F.softmax(F.mean(y, axis=(2, 3)) * 3, axis=1)

    graph, _ = graph_of(net, image)
    half = graph.optimized(graph.outputs, _core.inference_word([(option, True)]))
    assert f"{dtype}[8,3,3,3]" in half.text and "f32[8,3,3,3]" not in half.text  # the weights in the file
    want = net(image).numpy()
    got = run_graph(half, arg_0=image.numpy())
    assert got.dtype == np.float32
    np.testing.assert_allclose(
        got, want, rtol=2**-3 if dtype == "bf16" else 2**-6
    )  # sums of roundings by 2^-9 and 2^-12
    assert not np.array_equal(got, want)


@pytest.mark.parametrize("nhwc", [True, False])
def test_preprocessing_is_one_op_with_the_same_bits(nhwc: bool) -> None:
    mean = Tensor(np.array([103.53, 116.28, 123.675], "float32").reshape((1, 1, 1, 3) if nhwc else (1, 3, 1, 1)))
    std = Tensor(np.array([57.375, 57.12, 58.395], "float32").reshape(mean.shape))
    w = x(4, 3, 3, 3)

    def net(image: Tensor) -> Tensor:
        if nhwc:
            y = ((image.astype("float32") - mean) / std).transpose(0, 3, 1, 2)
        else:
            y = (image.transpose(0, 3, 1, 2).astype("float32") - mean) / std
        return F.conv2d(y, w)

    image = Tensor(RNG.integers(0, 256, (2, 8, 6, 3)).astype("uint8"))
    graph, _ = graph_of(net, image)
    fused = graph.optimized(graph.outputs, _core.inference_word([("enable_fuse_preprocess", True)]))
    assert "byte_table" in fused.text and "typecvt" not in fused.text and "transpose" not in fused.text
    np.testing.assert_array_equal(run_graph(fused, arg_0=image.numpy()), net(image).numpy())
    other = Tensor(RNG.integers(0, 256, (1, 11, 7, 3)).astype("uint8"))  # another size
    np.testing.assert_array_equal(run_graph(fused, arg_0=other.numpy()), net(other).numpy())


# ---- errors in rewritten nodes

FOLDED = """
import megengine.functional as F, numpy as np
from megengine import Tensor
from megengine.jit import trace

table, bad = Tensor(np.arange(4.0, dtype="float32")), Tensor(np.array([9], "int32"))

@trace(without_host=True, capture_as_const=True)
def f(x, i):
    y = x.reshape(2, 2).reshape(4) * 1.0
    a = F.gather(y, 0, i)  # line 10
    b = F.gather(y, 0, i)
    return a + b

good = Tensor(np.array([1], "int32"))
x = Tensor(np.arange(4.0, dtype="float32"))
f(x, good); f(x, good)
try:
    f(x, bad).numpy()
except Exception as e:
    print(e, *getattr(e, "__notes__", ()))
"""


def test_a_merged_node_that_fails_names_the_line(tmp_path: Any) -> None:
    script = tmp_path / "user.py"
    script.write_text(FOLDED)
    out = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True).stdout
    assert "user.py:10" in out or "user.py:11" in out, out
    assert "9" in out
