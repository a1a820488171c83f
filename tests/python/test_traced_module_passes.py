"""Rewrites of traced modules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_traced_module import leaves, made, reloaded

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.core.ops import builtin
from megengine.traced_module import _passes as P
from megengine.traced_module import optimize, trace_module
from megengine.traced_module.expr import is_apply_def, is_call_module, is_constant, is_getattr


def ready(name: str) -> tuple[Any, Any]:
    """A network whose statistics are not those it begins with."""
    net, args, _ = made(name)
    rng = np.random.RandomState(1)
    for key, t in net.named_tensors():
        if "running" in key or key.endswith(("bn1.weight", "bn2.weight", "bn3.weight", "bias")):
            t._reset(mge.Tensor(rng.uniform(0.5, 1.5, t.shape).astype("float32")))
    return net, args


ALL = (
    "FuseConvBn",
    "FuseAddMul",
    "BackwardFoldScale",
    "AttrToConstant",
    "FixInputShape",
    "FlodConstant",
    "NormElemWise",
)


@pytest.mark.parametrize("passes", (*ALL, ("FuseConvBn", "FuseAddMul", "BackwardFoldScale"), ALL), ids=str)
@pytest.mark.parametrize("name", ("fusable", "nested", "resnet", "detector", "transformer"))
def test_results_stay(name: str, passes: Any) -> None:
    net, args = ready(name)
    traced = trace_module(net, *args)
    before = str(traced.graph)
    want = leaves(net(*args))
    for module in (traced, traced.flatten()):
        small = optimize(module, passes)
        for other in (small, reloaded(small)):
            for key, value in leaves(other(*args)).items():
                np.testing.assert_allclose(value.numpy(), want[key].numpy(), rtol=1e-4, atol=1e-4)
    assert str(traced.graph) == before and traced.graph.inputs[0].owner is traced


def test_batch_normalisation_goes_into_the_convolution() -> None:
    net, args = ready("resnet")
    small = optimize(trace_module(net, *args))
    assert not any(is_call_module(e, M.BatchNorm2d) for e in small.graph.exprs())
    assert not any(is_call_module(e, M.BatchNorm2d) for e in optimize(trace_module(net, *args).flatten()).graph.exprs())
    assert net.conv1.bias is None and small.conv1.bias is not None


def test_training_keeps_batch_normalisation() -> None:
    net, args = ready("resnet")
    net.train()
    small = optimize(trace_module(net, *args))
    assert sum(is_call_module(e, M.BatchNorm2d) for e in small.graph.exprs()) == 20


class Mine(M.Conv2d):
    def forward(self, inp: Any) -> Any:
        return super().forward(inp)


class Chain(M.Module):
    """A subclass of a layer is looked into and folded all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = Mine(3, 4, 3)
        self.bn = M.BatchNorm2d(4)
        self.other = M.Conv2d(4, 4, 1, groups=2)
        self.scale = mge.Parameter(np.linspace(0.5, 2, 4).reshape(1, 4, 1, 1).astype("float32"))

    def forward(self, x: Any) -> Any:
        y = F.relu(self.bn(self.conv(x))) * self.scale
        z = F.max_pool2d(self.other(y), 2) * 2 / 4
        return -(F.relu(z) * 3)


def test_scales_go_into_weights() -> None:
    net, x = Chain(), mge.tensor(np.random.RandomState(0).rand(2, 3, 8, 8).astype("float32"))
    net.eval()
    traced = trace_module(net, x)
    small = optimize(traced.flatten(), ["FuseConvBn", "FuseAddMul", "BackwardFoldScale"])
    text = str(small.graph)
    assert "BatchNorm" not in text and text.count("__mul__") == 1  # -1 does not go through relu
    np.testing.assert_allclose(small(x).numpy(), net(x).numpy(), rtol=1e-4, atol=1e-5)


def test_constants_that_follow_each_other_become_one() -> None:
    class Affine(M.Module):
        def forward(self, x: Any) -> Any:
            return F.relu(((2 * x + 3) * 4 - 5) / 2) + 1 + x.shape[0]

    x = mge.tensor(np.random.RandomState(0).rand(2, 3).astype("float32"))
    small = optimize(trace_module(Affine(), x), "FuseAddMul")
    assert str(small.graph).count("__mul__") == 1 and str(small.graph).count("__add__") == 3
    np.testing.assert_allclose(small(x).numpy(), Affine()(x).numpy(), rtol=1e-6)


def test_shapes_and_attributes_become_constants() -> None:
    net, args = ready("nested")
    small = optimize(trace_module(net, *args).flatten(), ["FixInputShape", "AttrToConstant", "FlodConstant"])
    exprs = small.graph.exprs().as_list()
    assert not any(is_apply_def(e, builtin.GetVarShape) for e in exprs)
    assert all(e.outputs[0].owner is not None for e in exprs if is_getattr(e)) and any(map(is_constant, exprs))


def test_patterns() -> None:
    class Net(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = M.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            a, _ = F.split(F.relu(self.fc(x)) * 2 + 1, 2, axis=0)
            return a + x.shape[0], F.softmax(x, axis=1)

    graph = trace_module(net := Net(), mge.tensor(np.ones((2, 3), "float32"))).graph
    assert net is not None
    exprs = {type(e).__name__ + str(getattr(e, "method", "")): e for e in graph.exprs()}
    first = next(e for e in graph.exprs() if getattr(e, "method", "") == "__add__")
    var = P.is_var()
    pattern = (P.is_op(F.relu)(P.is_op(M.Linear)(var)) * P.is_const()) + P.is_const()
    matcher = P.PatternMatcher()
    assert matcher.match(pattern, first) and matcher.matched_exprs[var] is graph.inputs[1].expr
    assert not matcher.match(P.is_op("__mul__")(P.any_node(), P.is_const()), first)
    assert matcher.match(P.is_op("__sub__")(var, P.is_const()) | P.is_op("__add__")(P.any_node(), P.any_node()), first)
    soft = graph.get_function_by_type(F.softmax).as_unique()
    assert matcher.match(P.FunctionPattern(F.softmax).has_params(axis=1)(P.is_var()).not_all_args(), soft)
    assert not matcher.match(P.FunctionPattern(F.softmax).has_params(axis=0)(P.is_var()).not_all_args(), soft)
    assert not matcher.match(P.is_op(F.softmax)(P.is_var()), soft)
    split = graph.get_function_by_type(F.split).as_unique()
    last = [e for e in graph.exprs() if getattr(e, "method", "") == "__add__"][-1]
    part = P.is_op(F.split)(P.any_node()).not_all_args().check_users(False)[0]
    assert matcher.match(P.is_op("__add__")(part, P.any_node()), last) and matcher.matched_exprs[part.op] is split
    linear = next(e for e in graph.exprs() if is_call_module(e, M.Linear))
    assert matcher.match(P.ModulePattern(M.Linear).has_attr(out_features=3)(P.is_var()), linear)
    assert exprs


def test_passes_of_the_user() -> None:
    @P.register_pass("ReluToGelu")
    class ReluToGelu(P.ForwardPass):
        def run_transform(self, expr: Any) -> Any:
            if not P.PatternMatcher().match(P.is_op(F.relu)(P.is_var()), expr):
                return expr
            with expr.top_graph.insert_exprs(expr):
                new = F.gelu(expr.inputs[0])
            return new.expr

    net, args = ready("fusable")
    traced = trace_module(net, *args)
    small = optimize(traced, "ReluToGelu")
    assert small.graph.get_function_by_type(F.relu).as_count() == 0
    assert small.graph.get_function_by_type(F.gelu).as_count() == 2
    context = P.PassContext(disabled_pass=["AttrToConstant"])
    assert not context.pass_enabled("AttrToConstant") and context.pass_enabled(ReluToGelu)
    assert P.get_registered_pass("ReluToGelu") is ReluToGelu and P.get_default_pass_context().pass_enabled("FuseConvBn")
    assert P.get_const_value(mge.tensor([1.0])).item() == 1.0 and P.get_const_value("x", 3) == 3
    with pytest.raises(AssertionError, match="there is no pass 'Nothing'; there are AttrToConstant"):
        optimize(traced, "Nothing")
