"""Names below ``core`` that programs import: they mean what they meant."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine.autodiff import GradManager
from megengine.core import _config
from megengine.core._imperative_rt import core2
from megengine.core._imperative_rt.core2 import apply
from megengine.core._imperative_rt.ops import SubgraphBuilder
from megengine.core.ops import builtin
from megengine.core.tensor import array_method
from megengine.core.tensor.utils import subgraph, subgraph_fn
from megengine.jit import trace


def test_elwise_by_name_and_by_mode() -> None:
    from megengine.functional.elemwise import Elemwise, _elwise

    x = mge.tensor([-1.0, 2.0])
    assert Elemwise is builtin.Elemwise
    assert _elwise(x, mode=Elemwise.Mode.RELU).tolist() == [0, 2] == _elwise(x, mode="relu").tolist()
    assert _elwise(x, 3, mode=Elemwise.Mode.ADD).tolist() == [2, 5]
    assert array_method._elwise is _elwise
    assert array_method._elwise_apply((x, x), "mul").tolist() == [1, 4]
    with pytest.raises(RuntimeError, match="one of"):
        _elwise(x, mode="relux")


@pytest.mark.parametrize(
    "mode, want", (("SUM", np.sum), ("PRODUCT", np.prod), ("MIN", np.min), ("max", np.max), ("MEAN", np.mean))
)
def test_reductions_of_array_method(mode: str, want: Any) -> None:
    x = np.arange(6, dtype="float32").reshape(2, 3) - 2
    reduce = array_method._reduce(mode)
    np.testing.assert_allclose(reduce(mge.tensor(x)).numpy(), want(x))
    np.testing.assert_allclose(reduce(mge.tensor(x), 1, True).numpy(), want(x, 1, keepdims=True))


def test_other_names_of_array_method() -> None:
    x = np.arange(6, dtype="float32").reshape(2, 3)
    t = mge.tensor(x)
    np.testing.assert_allclose(array_method._reduce("SUM_SQR")(t, axis=0).numpy(), (x * x).sum(0))
    np.testing.assert_allclose(array_method._matmul(t, t, transpose_b=True).numpy(), x @ x.T)
    np.testing.assert_array_equal(array_method._transpose(t, (1, 0)).numpy(), x.T)
    np.testing.assert_array_equal(array_method._broadcast(t, (2, 2, 3)).numpy(), np.broadcast_to(x, (2, 2, 3)))
    np.testing.assert_array_equal(array_method._reshape(t, (3, 2)).numpy(), x.reshape(3, 2))
    assert issubclass(mge.Tensor, array_method.ArrayMethodMixin)
    with pytest.raises(ValueError, match="unknown mode"):
        array_method._reduce("MEDIAN")


def test_config_names() -> None:
    assert _config.async_level == mge.config.async_level
    with _config._override(async_level=0):
        assert mge.config.async_level == _config.async_level == 0
    was = core2.set_auto_format_convert(False)
    assert was is True and core2.get_auto_format_convert() is False and not mge.config._auto_format_convert
    core2.set_auto_format_convert(was)
    level = mge.config.async_level
    _config.async_level = 1
    assert mge.config.async_level == 1
    _config.async_level = level


def test_options_of_core2() -> None:
    level = core2.get_option("async_level")
    core2.set_option("async_level", 0)
    assert mge.config.async_level == 0
    core2.set_option("async_level", level)
    with pytest.raises(ValueError, match="there is no option 'speed'"):
        core2.set_option("speed", 1)


def test_scopes_of_core2() -> None:
    core2.push_scope("a")
    with pytest.raises(RuntimeError, match="'b' is not the innermost scope; that is 'a'"):
        core2.pop_scope("b")
    core2.pop_scope("a")


def test_logger_and_device_names() -> None:
    from megengine.core._imperative_rt.utils import Logger
    from megengine.device import CompNode

    old = Logger.set_log_level(Logger.LogLevel.Error)
    assert Logger.set_log_level(old) == Logger.LogLevel.Error
    assert CompNode("cpu0") == mge.tensor(1.0, device="cpu0").device


def test_modules_are_attributes_of_their_packages() -> None:
    program = (
        "import megengine as mge\n"
        "print(mge.utils.profiler.Profiler.__name__, mge.core._config.async_level, mge.core.tensor.amp._enabled)\n"
        "print(mge.core._imperative_rt.core2.apply.__name__, mge.core.tensor.megbrain_graph.Graph.__name__)\n"
        "print(hasattr(mge.utils, 'nothing'), hasattr(mge.core, 'nothing'), hasattr(mge.core.tensor, 'nothing'))\n"
    )
    out = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert out.splitlines() == ["Profiler 2 False", "apply Graph", "False False False"]


def test_functions_are_found_where_the_original_has_them() -> None:
    assert F.nn.concat is F.concat and F.loss.log is F.log and F.vision.transpose is F.transpose
    assert F.tensor.sin is F.sin and F.nn.max_pool2d is not F.max  # no builtin is hidden


def test_names_that_programs_take_from_inside() -> None:
    from megengine._multistream import record_event, wait_event
    from megengine.core._imperative_rt.common import CompNode, DeviceType
    from megengine.core._imperative_rt.graph import VarNode
    from megengine.core._wrap import as_device
    from megengine.functional.loss import _reduce_output
    from megengine.functional.tensor_cache import get_scalar_two

    assert VarNode.__name__ == "VarNode" and DeviceType.CPU.name == "CPU"
    assert as_device(mge.tensor([1.0], device="cpu0")).to_c() == CompNode("cpu0")
    assert get_scalar_two("int32", "cpu0").item() == 2
    wait_event("cpu0", record_event("cpu0:1"))

    @_reduce_output
    def cubic(pred: mge.Tensor, label: mge.Tensor) -> mge.Tensor:
        return F.abs(pred - label) ** 3

    x, y = mge.tensor([1.0, 2.0]), mge.tensor([0.0, 0.0])
    assert cubic(x, y).item() == 4.5 and cubic(x, y, reduction="none").tolist() == [1, 8]
    with pytest.raises(ValueError, match="cubic: reduction must be mean, sum or none"):
        cubic(x, y, reduction="max")


# ---- ops of ops


def swish_of(name: str = "swish") -> Any:
    @subgraph_fn(name, "float32", None, 2)
    def swish(inputs: Any, f: Any, c: Any) -> Any:
        x, beta = inputs
        return (f("*", x, f("/", c(1.0), f("+", c(1.0), f("exp", f("-", f("*", x, beta)))))),), (True,)

    return swish


def test_subgraph_fn_is_applied_and_differentiated() -> None:
    swish = swish_of()
    x = np.linspace(-2, 2, 7).astype("float32")
    x64, b = x.astype("float64"), 1.5
    s = 1 / (1 + np.exp(-b * x64))
    t, beta = mge.tensor(x), mge.tensor(np.float32(b))
    with GradManager().attach([t, beta]) as gm:
        (y,) = swish(t, beta)
        gm.backward(y.sum())
    np.testing.assert_allclose(y.numpy(), x64 * s, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(t.grad.numpy(), s + b * x64 * s * (1 - s), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(beta.grad.numpy(), (x64 * x64 * s * (1 - s)).sum(), rtol=1e-5)


@pytest.mark.parametrize("symbolic", (False, True))
def test_subgraph_fn_is_traced(symbolic: bool) -> None:
    swish = swish_of()
    f = trace(lambda x: swish(x, mge.tensor(1.0))[0], symbolic=symbolic)
    for i in range(3):
        x = mge.tensor(np.arange(4, dtype="float32") + i)
        np.testing.assert_array_equal(f(x).numpy(), swish(x, mge.tensor(1.0))[0].numpy())


def test_subgraph_gives_an_op_for_apply() -> None:
    @subgraph("mean_and_sum", "float32", None, 2, gopt_level=2)
    def both(inputs: Any, f: Any, c: Any) -> Any:
        total = f("+", *inputs)
        return (f("*", total, c(0.5)), total), (True, False)

    op = both()
    assert isinstance(op, builtin.OpDef) and repr(op) == "mean_and_sum" and op == both()
    x = mge.tensor([1.0])
    with GradManager().attach(x) as gm:
        mean, total = apply(op, x, mge.tensor([5.0]))
        gm.backward(mean + total)  # the second result passes no gradient on
    assert (mean.item(), total.item(), x.grad.item()) == (3, 6, 0.5)


def test_subgraph_with_a_gradient_of_its_own() -> None:
    @subgraph_fn("clipped", "float32", None, 2, custom_grad=True)
    def clipped(inputs: Any, f: Any, c: Any) -> Any:
        x, y = inputs
        (dz,) = yield (f("*", x, y),)
        yield f("*", dz, c(7.0)), None

    x, y = mge.tensor([3.0]), mge.tensor([2.0])
    with GradManager().attach([x, y]) as gm:
        (z,) = clipped(x, y)
        gm.backward(z * 2)
    assert (z.item(), x.grad.item(), y.grad) == (6, 14, None)


def test_subgraph_with_other_ops_and_several_results() -> None:
    @subgraph_fn("top", "float32", None, 1)
    def top(inputs: Any, f: Any, c: Any) -> Any:
        values, index = f(builtin.TopK(mode="VALUE_IDX_SORTED"), *inputs, c(2, "int32"), nr_out=2)
        return (values, index), (True, False)

    values, index = top(mge.tensor([[3.0, 1.0, 2.0]]))
    assert values.tolist() == [[1, 2]] and index.tolist() == [[1, 2]]


def test_mistakes_in_subgraphs_are_named() -> None:
    def draw(what: Any, inputs: int = 1) -> Any:
        return subgraph_fn("mine", "float32", None, inputs)(lambda i, f, c: what(i, f, c))

    with pytest.raises(ValueError, match="mine: there is no elementwise op 'plus' of 2 operands"):
        draw(lambda i, f, c: ((f("plus", i[0], i[0]),), (True,)))
    with pytest.raises(ValueError, match="mine: 1 results, but 2 flags"):
        draw(lambda i, f, c: ((f("exp", i[0]),), (True, True)))
    with pytest.raises(ValueError, match="which is no variable drawn so far"):
        draw(lambda i, f, c: ((f("exp", 17),), (True,)))
    with pytest.raises(TypeError, match="mine: takes 2 tensors; got 1"):
        draw(lambda i, f, c: ((f("+", *i),), (True,)), 2)(mge.tensor([1.0]))
    with pytest.raises(TypeError, match="a step is an op"):
        SubgraphBuilder("mine").apply(F.exp, [])  # type: ignore[arg-type]


def test_item_of_many_is_an_assertion_too() -> None:
    for kind in (AssertionError, RuntimeError, ValueError):
        with pytest.raises(kind, match="item: needs one element"):
            mge.tensor([1.0, 2.0]).item()


def test_the_same_function_is_found_in_every_module_that_has_it() -> None:
    from megengine.core import _config
    from megengine.core._imperative_rt import core2
    from megengine.core.tensor import megbrain_graph, utils

    assert utils.apply is megbrain_graph.apply is core2.apply
    assert _config.get_option is core2.get_option and _config.set_option is core2.set_option
