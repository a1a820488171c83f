"""What programs for MegEngine 1.13 do beside the documented ways, and what comes of it there; measured there."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.core.tensor.megbrain_graph as G
import megengine.functional as F
import megengine.module as M
from megengine import Parameter, Tensor
from megengine.autodiff import GradManager
from megengine.core import _imperative_rt
from megengine.core._imperative_rt import _stand_ins
from megengine.core._imperative_rt.common import DeviceTensorND
from megengine.core.ops.builtin import Elemwise
from megengine.core.tensor.utils import interpret_subgraph
from megengine.jit import trace
from megengine.optimizer import SGD
from megengine.traced_module import disable_default_checker, enable_expr_checker, tm_config, trace_module, wrap

# ---- graphs made by hand run beside the program that feeds them


def test_a_run_begins_when_its_inputs_have_values() -> None:
    graph = G.Graph()
    a, b = (G.InputNode(device="xpux", dtype="float32", graph=graph) for _ in "ab")
    (y,) = G.apply_normal_varnode(Elemwise("mul"), a.outputs[0], b.outputs[0])
    out, attr = G.OutputNode(y), G.AttrOutputNode(y)
    run = graph.compile(out.outputs[0], attr.outputs[0])
    for value in ([1.0, 2.0], [3.0], [4.0, 5.0, 6.0]):
        run.execute()
        a.set_value(Tensor(value)._dev_tensor())
        with pytest.raises(RuntimeError, match=r"waits for the value of 'input\[2\]'. Set it with set_value"):
            out.get_value()
        b.set_value(Tensor([2.0])._dev_tensor())
        assert out.get_value().numpy().tolist() == [2 * v for v in value]
        assert attr.get_value().shape == (len(value),)
        run.wait()
        for node in (a, b, out, attr):
            node.reset()


def test_graphs_ask_and_tell_callbacks() -> None:
    graph, values, told = G.Graph(), iter([[1.0, 2.0], [3.0]]), []
    x = Tensor([1.0])._dev_tensor()
    assert isinstance(x, DeviceTensorND) and x.comp_node == Tensor([1.0]).device
    var, _ = G.input_callback(
        lambda: Tensor(next(values))._dev_tensor(), device=x.comp_node, dtype=x.dtype, graph=graph
    )
    (y,) = G.apply_normal_varnode(Elemwise(Elemwise.Mode.NEGATE), var)
    run = graph.compile(G.output_callback(told.append, y))
    for _ in range(2):
        run.execute()
        run.wait()
    assert [t.numpy().tolist() for t in told] == [[-1.0, -2.0], [-3.0]]
    run.execute()
    with pytest.raises(StopIteration):
        run.wait()


def test_a_callback_may_wait_for_what_the_program_does_next() -> None:
    graph = G.Graph()
    given: Future[Any] = Future()
    told: Future[Any] = Future()
    var, _ = G.input_callback(given.result, device="xpux", dtype="float32", graph=graph)
    run = graph.compile(G.output_callback(told.set_result, var))
    run()
    assert not told.done()
    given.set_result(Tensor([7.0])._dev_tensor())
    assert told.result(timeout=60).numpy().tolist() == [7.0]
    run.wait()


def test_a_subgraph_that_is_interpreted_is_a_function() -> None:
    fma = interpret_subgraph(lambda xs, f, c: ((f("+", f("*", *xs[:2]), c(1.0)),), (True,)), "float32", None)
    x = Parameter([2.0])
    with GradManager().attach(x) as gm:
        (y,) = fma(x, Tensor([3.0]))
        gm.backward(y)
    assert (y.tolist(), x.grad.tolist()) == ([7.0], [3.0])
    assert fma(Tensor([2.0]), Tensor([3.0]), Tensor([0.0]))[0].tolist() == [7.0]


# ---- switches


CALLS = [0]


@wrap
def counted(x: Tensor) -> Tensor:
    CALLS[0] += 1
    return x + float(CALLS[0])


class Unsteady(M.Module):
    def forward(self, x: Tensor) -> Tensor:
        return counted(x)


def test_checkers_of_traced_modules_are_switched_by_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_default_checker", "_expr_checker"):
        monkeypatch.setattr(tm_config, name, getattr(tm_config, name))
    with pytest.raises(AssertionError, match="disable_default_checker"):
        trace_module(Unsteady(), F.zeros((1,)))
    with disable_default_checker():
        trace_module(Unsteady(), F.zeros((1,)))
    with pytest.raises(AssertionError):
        trace_module(Unsteady(), F.zeros((1,)))
    disable_default_checker()
    trace_module(Unsteady(), F.zeros((1,)))
    enable_expr_checker()
    assert tm_config._get_expr_checker()


# ---- training


def test_a_backward_with_wrong_gradients_ends_the_recording() -> None:
    x = Parameter([1.0, 2.0])
    gm = GradManager().attach(x)
    for dy in ([1, 2], 1.0, [Tensor([1.0, 1.0]), None]):
        gm.record()
        y = x * 3
        with pytest.raises((TypeError, ValueError, AssertionError)):
            gm.backward(y, dy)
    gm.record()
    y = x * 3
    with pytest.raises(TypeError):
        gm.backward(5)  # it is not known what for: the recording goes on
    gm.backward(y)
    assert x.grad.tolist() == [3.0, 3.0]


def test_momentum_comes_with_the_state_of_an_optimizer() -> None:
    def steps(p: Parameter, opt: SGD) -> None:
        for g in ([1.0, 2.0], [3.0, -1.0]):
            p.grad = Tensor(g)
            opt.step().clear_grad()

    a = Parameter([1.0, 2.0])
    first = SGD([a], lr=0.1, momentum=0.9)
    steps(a, first)
    b = Parameter(a)
    second = SGD([b], lr=0.7)  # has no state of its own
    second.load_state_dict(first.state_dict())
    steps(a, first)
    steps(b, second)
    np.testing.assert_array_equal(a.numpy(), b.numpy())
    want, got = first.state_dict(), second.state_dict()
    assert got["param_groups"] == want["param_groups"]
    np.testing.assert_array_equal(got["state"][0]["momentum_buffer"], want["state"][0]["momentum_buffer"])


def test_a_module_says_what_a_closure_loaded() -> None:
    net = M.Sequential(M.Linear(2, 2), M.BatchNorm1d(2))
    loaded, skipped = net._load_state_dict_with_closure(
        lambda name, var: None if name.endswith("bias") else np.full(var.shape, 3, "float32")
    )
    assert skipped == {"0.bias", "1.bias"}
    assert loaded == {"0.weight", "1.weight", "1.running_mean", "1.running_var"}
    assert net[0].weight.tolist() == [[3.0, 3.0], [3.0, 3.0]]


# ---- Python's protocols


@pytest.mark.parametrize("args", [(3, 5), (Tensor([1.0]), 2)])
def test_a_modulus_of_pow_is_refused(args: tuple) -> None:
    with pytest.raises(TypeError, match="pow: tensors take no modulus"):
        pow(Tensor([2.0]), *args)
    assert pow(Tensor([2.0]), args[0], None).tolist() == [2.0 ** float(args[0])]


def test_a_number_format_needs_one_number() -> None:
    assert f"{Tensor(3.14159):.2f} {Tensor([1.0])}" == f"3.14 {Tensor([1.0])!s}"
    with pytest.raises(TypeError, match="unsupported format string '.2f'"):
        f"{mge.Tensor([3.0]):.2f}"


def test_wrapped_functions_of_a_program_that_is_no_module() -> None:
    space: dict[str, Any] = {"__name__": "a_cell", "wrap": wrap, "M": M}
    exec(
        "@wrap\ndef doubled(x, times=2): return x * times\n"
        "class Net(M.Module):\n    def forward(self, x): return doubled(x, 3)\n",
        space,
    )
    text = str(trace_module(space["Net"](), F.ones((1,))).graph)
    assert "a_cell.doubled(x, 3" in text and "__mul__" not in text
    assert space["doubled"](2) == 4


# ---- batches without images


@pytest.mark.parametrize(
    "net, shape",
    [
        (M.GroupNorm(2, 4), (0, 4, 2, 3)),
        (M.GroupNorm(2, 4), (2, 4, 0, 3)),
        (M.InstanceNorm(4), (0, 4, 2, 3)),
        (M.LSTM(3, 2, 2, bidirectional=True), (5, 0, 3)),
        (M.RNN(3, 2, batch_first=True), (0, 5, 3)),
        (M.MultiHeadAttention(4, 2), (0, 3, 4)),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, M.Module) else "x".join(map(str, v)),
)
def test_empty_batches_go_through(net: M.Module, shape: tuple[int, ...]) -> None:
    x = Parameter(np.zeros(shape, "float32"))

    def run(x: Tensor) -> Tensor:
        out = net(x, x, x) if isinstance(net, M.MultiHeadAttention) else net(x)
        return out[0] if isinstance(out, tuple) else out

    with GradManager().attach([x, *net.parameters()]) as gm:
        y = run(x)
        gm.backward(y.sum())
    assert y.shape == (*shape[:2], y.shape[2], *shape[3:]) and y.size == 0
    assert x.grad is None or x.grad.shape == shape
    assert all(p.grad is None or not p.grad.numpy().any() for p in net.parameters())
    if isinstance(net, (M.LSTM, M.RNN)):  # the others are recorded for all sizes but 0
        full = Tensor(np.random.RandomState(0).randn(*(d or 2 for d in shape)).astype("float32"))
        traced = trace(symbolic=True)(run)
        for value in (x, x, full, full, x):
            np.testing.assert_allclose(traced(value).numpy(), run(value).numpy(), rtol=1e-6)


# ---- what programs import beside what they use


def test_names_of_the_originals_engine_are_imported_and_refused_when_used() -> None:
    from megengine.core._imperative_rt import CompNode, TensorAttr, common, core2, graph, imperative, ops, utils

    parts = {"common": common, "core2": core2, "graph": graph, "imperative": imperative, "ops": ops, "utils": utils}
    for part, names in _stand_ins._NAMES.items():
        for name in names.split():
            found = getattr(parts[part], name)
            with pytest.raises(NotImplementedError, match=rf"{part}\.{name}: is a part of MegEngine's own engine"):
                found(1)
            assert not isinstance(found, type) or not isinstance(3, found)
        with pytest.raises(AttributeError, match="has no attribute 'made_up'"):
            getattr(parts[part], "_made_up"[1:])
    for name in " ".join(_imperative_rt._OF_PARTS.values()).split():
        assert getattr(_imperative_rt, name) is not None
    attr = TensorAttr()
    attr.comp_node = CompNode("cpu0")
    assert (attr.shape, attr.dtype, str(attr.comp_node)) == ((), None, "cpu0:0")


def test_functions_of_core2_that_are_tensor_methods() -> None:
    from megengine.core._imperative_rt import core2

    x = Parameter(np.arange(6, dtype="float32").reshape(2, 3))
    want = x.numpy()
    for axes in ((1, 0), ((1, 0),)):
        np.testing.assert_array_equal(core2.transpose_cpp(x, axes).numpy(), want.T)
    for shape in ((3, 2), ((3, 2),), (-1, 2)):
        np.testing.assert_array_equal(core2.reshape_cpp(x, shape).numpy(), want.reshape(3, 2))
    assert core2.expand_dims_cpp(x, [0, 1]).shape == (1, 1, 2, 3)
    assert core2.squeeze_cpp(x.reshape(1, 6), 0).shape == (6,)
    assert core2.broadcast_cpp(x, (2, 2, 3)).shape == (2, 2, 3)
    assert [y.shape for y in core2.split_cpp(x, 3, 1)] == [(2, 1)] * 3
    z = core2.create_complex(x, x * 2)
    np.testing.assert_array_equal(core2.get_imag(z).numpy(), want * 2)
    assert not core2.is_grad_attached([x])
    with GradManager().attach(x):
        assert core2.is_grad_attached([x])


def test_dtypes_are_equal_with_their_scales() -> None:
    from megengine.core._imperative_rt.common import is_dtype_equal
    from megengine.core.tensor.dtype import qint8, quint8

    assert is_dtype_equal(np.float32, "float32") and not is_dtype_equal("float32", "int8")
    assert is_dtype_equal(qint8(0.5), qint8(0.5)) and not is_dtype_equal(qint8(0.5), qint8(0.25))
    assert not is_dtype_equal(quint8(0.5, 3), quint8(0.5, 4)) and not is_dtype_equal(qint8(0.5), np.int8)


@pytest.mark.parametrize("counts", [[2, 3, 1], [4, 0, 2], [0], []])
def test_helpers_of_labels(counts: list[int]) -> None:
    from megengine.functional.loss import _expand_label, _gen_repeat_idx, _gen_tile_idx

    given = Tensor(np.array(counts, "int32"))
    assert _gen_repeat_idx(given).tolist() == [i for i, n in enumerate(counts) for _ in range(n)]
    assert _gen_tile_idx(given).tolist() == [j for n in counts for j in range(n)]
    labels = list(range(1, sum(counts) + 1))
    want, longest = [], max(counts, default=0)
    for n in counts:
        row = [7] * (2 * longest + 1)
        row[1 : 2 * n + 1 : 2], labels = labels[:n], labels[n:]
        want.append(row)
    got = _expand_label(Tensor(np.arange(1, sum(counts) + 1, dtype="int32")), given, 7)
    assert got.dtype == np.int32 and got.tolist() == want
    assert _expand_label(Tensor([[1, 2], [3, 4]]), Tensor([2, 1]), 0).tolist() == [[0, 1, 0, 2, 0], [0, 3, 0, 4, 0]]


def test_methods_that_traced_modules_know() -> None:
    from megengine.traced_module.module_tracer import BUILTIN_ARRAY_METHOD, BUILTIN_TENSOR_WRAP_METHOD

    assert len(BUILTIN_ARRAY_METHOD) == 64 == len(set(BUILTIN_ARRAY_METHOD))
    assert all(hasattr(Tensor, name) for name in BUILTIN_TENSOR_WRAP_METHOD)
    assert {"transpose", "astype", "__getitem__", "__rmatmul__"} <= set(BUILTIN_ARRAY_METHOD)
