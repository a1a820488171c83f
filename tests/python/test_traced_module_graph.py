"""Looking at graphs and changing them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from test_traced_module import reloaded

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.core._imperative_rt.core2 import apply
from megengine.core.ops import builtin
from megengine.traced_module import TracedModule, register_supported_type, trace_module
from megengine.traced_module.expr import (
    Constant,
    GetAttr,
    is_apply_def,
    is_call_function,
    is_call_module,
    is_call_tensor_method,
    is_constant,
    is_getattr,
    is_input,
)
from megengine.traced_module.node import ModuleNode, TensorNode
from megengine.traced_module.pytree import tree_flatten
from megengine.traced_module.traced_module import InternalGraph, NameSpace
from megengine.traced_module.utils import _convert_kwargs_to_args


class Block(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = M.Conv2d(3, 3, 1)
        self.bn = M.BatchNorm2d(3)

    def forward(self, x: Any) -> Any:
        return F.relu(self.bn(self.conv(x)))


class Net(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.b0 = Block()
        self.b1 = Block()

    def forward(self, x: Any) -> Any:
        return self.b1(self.b0(x)) + x


@pytest.fixture
def x() -> Any:
    return mge.tensor(np.random.RandomState(0).rand(2, 3, 4, 4).astype("float32"))


@pytest.fixture
def net() -> Any:
    made = Net()
    made.eval()
    return made


def check(graph: InternalGraph) -> None:
    """Users agree with inputs, names and ids are unique, everything knows its graph."""
    for g in graph._graphs():
        for expr in g.exprs(recursive=False):
            assert expr.top_graph is g
            for node in expr.outputs:
                assert node.expr is expr and node.top_graph is g
            for node in expr.inputs:
                assert expr in node.users
        for node in g.nodes(recursive=False):
            assert all(node in user.inputs and user in g._exprs for user in node.users)
        names = [n.name for n in g.nodes(recursive=False)]
        assert len(set(names)) == len(names)
    for ids in ([e._id for e in graph.exprs()], [n._id for n in graph.nodes()]):
        assert len(set(ids)) == len(ids)


def test_graphs_are_consistent(net: Any, x: Any) -> None:
    traced = trace_module(net, x)
    again = trace_module(traced, x)
    for module in (traced, traced.flatten(), reloaded(traced), copy.deepcopy(traced), again, again.flatten()):
        check(module.graph)
        assert sorted(e._id for e in module.graph.exprs()) == list(range(module.graph.exprs().as_count()))
    assert traced.flatten().graph.exprs().as_count() == traced.flatten().flatten().graph.exprs().as_count() == 13


def test_queries(net: Any, x: Any) -> None:
    graph = trace_module(net, x).graph
    assert [f"{n:p}" for n in graph.get_module_by_type(M.Conv2d)] == ["Net_b0_conv", "Net_b1_conv"]
    assert graph.get_module_by_type(M.Conv2d, recursive=False).as_list() == []
    assert graph.get_function_by_type(F.relu).as_count() == 2 and graph.get_function_by_type(F.exp).as_count() == 0
    assert [e.method for e in graph.get_method_by_type("__add__")] == ["__add__"]
    assert graph.get_method_by_type("__call__").as_count() == 6
    assert list(graph.get_expr_by_id([2, 3]).as_dict()) == [2, 3] and graph.get_node_by_id(1).as_unique().name == "x"
    assert graph.get_node_by_name("net_b0_BN*").as_count() == 2
    assert graph.get_node_by_name("net_b0_BN*", ignorecase=False).as_count() == 0
    assert graph.nodes().type(TensorNode).name("*conv_out").as_count() == 2
    with pytest.raises(AssertionError, match="2 elements found"):
        graph.get_node_by_name("*bn_out").as_unique()
    last = graph.get_dep_exprs(graph.outputs)
    assert last[0] is graph.outputs[0].expr and len(last) == len(graph.exprs(recursive=False).as_list())
    exprs = graph.exprs().as_list()
    kinds = (is_input, is_getattr, is_call_module, is_call_function, is_call_tensor_method, is_constant)
    assert [sum(map(kind, exprs)) for kind in kinds] == [6, 6, 6, 2, 1, 0]
    assert sum(is_call_module(e, M.BatchNorm2d) for e in exprs) == 2
    assert graph.top_graph is None and graph.exprs().as_list()[5].top_graph.top_graph is graph


def test_expressions_say_what_they_are(net: Any, x: Any) -> None:
    graph = trace_module(net, x).graph
    relu = graph.get_function_by_type(F.relu).as_list()[0]
    bn = graph.get_node_by_name("net_b0_bn_out").as_unique()
    assert (relu.args, relu.kwargs, relu.named_args, relu.const_val) == ((bn,), {}, {"x": bn}, [])
    assert relu.func is F.relu and relu.return_val is relu.outputs[0] and bn.users == [relu]
    conv = graph.get_module_by_type(M.Conv2d).as_list()[0]
    assert conv.owner is net.b0.conv and conv.module_type is M.Conv2d
    (call,) = conv.users
    assert list(call.named_args) == ["self", "inp"] and call.graph is None
    assert graph.inputs[1].shape == (2, 3, 4, 4) and graph.inputs[1].dtype == np.float32
    assert f"{bn:i}" == f"%{bn._id}_bn_out" and f"{bn:ip}" == f"%{bn._id}_Net_b0_bn_out"


def test_insert_and_replace(net: Any, x: Any) -> None:
    traced = trace_module(net, x)
    graph = traced.b0.graph
    bn = graph.get_node_by_name("*bn_out").as_unique()
    with graph.insert_exprs():
        new = F.sigmoid(bn) * 2 + 1
        shape = bn.shape
        same = new.reshape(shape[0], -1).reshape(shape)
    graph.replace_node({bn: same})
    graph.compile()
    check(traced.graph)
    want = net.b1(F.relu(F.sigmoid(net.b0.bn(net.b0.conv(x))) * 2 + 1)) + x
    for module in (traced, traced.flatten(), reloaded(traced)):
        assert module(x).numpy().tobytes() == want.numpy().tobytes()
    assert bn.users and new.users and bn not in graph.outputs


def test_insert_modules(net: Any, x: Any) -> None:
    traced = trace_module(net, x)
    traced.extra, traced.block = M.Conv2d(3, 3, 1), Block()
    traced.block.eval()
    extra, block = traced.extra, traced.block
    graph = traced.graph
    out = graph.outputs[0]
    with graph.insert_exprs():
        me = graph.inputs[0]
        y = me.block(me.extra(out))
        z = me.b0(y) + me.extra.bias.sum()
    graph.replace_node({out: z})
    graph.compile()
    assert isinstance(traced.block, TracedModule)
    check(graph)
    want = net.b0(block(extra(net(x)))) + extra.bias.sum()
    for module in (traced, traced.flatten(), reloaded(traced), copy.deepcopy(traced)):
        assert module(x).numpy().tobytes() == want.numpy().tobytes()


def test_an_error_inside_insert_exprs_leaves_the_graph(net: Any, x: Any) -> None:
    traced = trace_module(net, x)
    before = str(traced.graph)
    with pytest.raises(ZeroDivisionError), traced.graph.insert_exprs():
        _ = F.exp(traced.graph.outputs[0])
        raise ZeroDivisionError
    with pytest.raises(ValueError, match="reshape"), traced.graph.insert_exprs():
        traced.graph.outputs[0].reshape(7)
    assert str(traced.graph) == before
    check(traced.graph)


def test_replace_node_forms_no_loop(net: Any, x: Any) -> None:
    traced = trace_module(net, x)
    graph = traced.graph
    inp = graph.inputs[1]
    with graph.insert_exprs():
        twice = inp * 2
    graph.replace_node({inp: twice})
    assert twice.expr.inputs == [inp]
    want = net(x * 2)
    assert traced(x).numpy().tobytes() == want.numpy().tobytes()


def test_inputs_and_outputs_can_be_changed(net: Any, x: Any) -> None:
    traced = trace_module(net, x)
    graph = traced.graph
    more = graph.add_input_node((2, 3, 4, 4), "float32", "more")
    b0 = graph.get_node_by_name("net_b0_out").as_unique()
    with graph.insert_exprs():
        total = graph.outputs[0] + more
    graph.replace_node({graph.outputs[0]: total})
    graph.add_output_node(b0)
    got, first = traced(x, x)
    assert got.numpy().tobytes() == (net(x) + x).numpy().tobytes()
    assert first.numpy().tobytes() == net.b0(x).numpy().tobytes()
    assert reloaded(traced)(x, more=x)[0].numpy().tobytes() == got.numpy().tobytes()
    graph.reset_outputs({"a": [b0]})
    assert traced(x, x)["a"][0].numpy().tobytes() == first.numpy().tobytes()
    graph.compile()
    a, b = graph.reset_inputs([x, x])
    old = b0.expr.inputs[1]
    with graph.insert_exprs():
        mean = (a + b) / 2
    graph.replace_node({old: mean})
    assert traced([x, x])["a"][0].numpy().tobytes() == net.b0((x + x) / 2).numpy().tobytes()
    for method in (traced.b0.graph.add_input_node, traced.b0.graph.reset_inputs):
        with pytest.raises(AssertionError, match="only supports top graph"):
            method((1,))


def test_arguments_of_calls_can_be_changed(x: Any) -> None:
    class Sums(M.Module):
        def forward(self, x: Any) -> Any:
            return F.sum(x, axis=1, keepdims=True) + x.mean(axis=1)

    traced = trace_module(Sums(), x)
    graph = traced.graph
    total = graph.get_function_by_type(F.sum).as_unique()
    total.set_arg("axis", 2)
    mean = graph.get_method_by_type("mean").as_unique()
    mean.set_args_kwargs(mean.inputs[0], axis=2, keepdims=True)
    assert traced(x).numpy().tobytes() == (F.sum(x, 2, True) + x.mean(axis=2, keepdims=True)).numpy().tobytes()
    assert "math.sum(x, 2, True, )" in str(graph) and "x.mean(2, True, )" in str(graph)


def test_names_can_be_changed(net: Any, x: Any) -> None:
    traced = trace_module(net, x)
    node = traced.graph.outputs[0]
    node.name = "total"
    traced.graph.name = "root"
    assert "root.Graph" in str(traced.graph) and "return total" in str(traced.graph)
    assert node.qualname == "Net.[method_add]" and f"{node:p}" == "root_total"
    space = NameSpace("a", "A")
    made = [
        space.create_unique_name(n, object()) for n in ("a", "a", "a_1", "0", "print", "x.y", "x-y", "nan", "class")
    ]
    assert made == ["a", "a_1", "a_2", "_0", "print_1", "x_y", "x_y_1", "nan_1", "class_1"]


def test_watch_points_and_end_points(net: Any, x: Any) -> None:
    traced = trace_module(net, x)
    nodes = [traced.b0.graph.outputs[0], traced.graph.get_node_by_name("net_b1_conv_out").as_unique()]
    traced.set_watch_points(nodes)
    traced(x)
    assert traced.watch_node_value[nodes[0]].numpy().tobytes() == net.b0(x).numpy().tobytes()
    assert not list(traced.buffers(recursive=False))
    traced.clear_watch_points()
    assert not traced.watch_node_value
    traced.set_end_points(nodes)
    first, second = traced(x)
    assert second.numpy().tobytes() == net.b1.conv(net.b0(x)).numpy().tobytes() and first.shape == x.shape
    traced.clear_end_points()
    assert traced(x).numpy().tobytes() == net(x).numpy().tobytes()


def test_unneeded_expressions_go_unless_told(net: Any, x: Any) -> None:
    traced = trace_module(net, x)
    graph = traced.graph
    count = graph.exprs().as_count()
    with graph.insert_exprs():
        kept, _ = F.exp(graph.outputs[0]), F.sin(graph.outputs[0])
    kept.expr.disable_remove()
    graph.compile()
    assert graph.exprs().as_count() == count + 1
    kept.expr.enable_remove()
    graph.compile()
    assert graph.exprs().as_count() == count


def test_eval_and_interpret(net: Any, x: Any) -> None:
    traced = trace_module(net, x)
    want = net(x).numpy().tobytes()
    (a,), (b,) = traced.graph.eval(x), traced.graph.interpret(traced, x)
    assert a.numpy().tobytes() == b.numpy().tobytes() == want


def test_primitive_ops_are_recorded(x: Any) -> None:
    class Raw(M.Module):
        def forward(self, x: Any) -> Any:
            return apply(builtin.Elemwise("relu"), x)[0] + x.shape[0] * x.size

    traced = trace_module(Raw(), x)
    assert sum(is_apply_def(e, builtin.GetVarShape) for e in traced.graph.exprs()) == 2
    y = mge.tensor(np.ones((3, 2), "float32"))
    for module in (traced, traced.flatten(), reloaded(traced)):
        assert module(y).numpy().tobytes() == Raw()(y).numpy().tobytes()


def test_assignment_gives_a_new_value(x: Any) -> None:
    class Assign(M.Module):
        def forward(self, x: Any) -> Any:
            y = x * 1
            before = y + 0
            y[0, 1] = 5
            y[1:] *= x[1:]
            return before, y

    traced = trace_module(Assign(), x)
    want = [v.numpy().tobytes() for v in Assign()(x)]
    for module in (traced, reloaded(traced)):
        assert [v.numpy().tobytes() for v in module(x)] == want


def test_constants_and_attributes_are_nodes(x: Any) -> None:
    class Consts(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = mge.Parameter([2.0])

        def forward(self, x: Any) -> Any:
            t = mge.tensor([3.0])
            return x * self.w * t + t

    traced = trace_module(Consts(), x)
    kinds = [type(e) for e in traced.graph._exprs]
    assert kinds.count(Constant) == 1 and kinds.count(GetAttr) == 1
    assert isinstance(traced.graph.inputs[0], ModuleNode)


class Pair:
    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b


def test_registered_types_are_arguments_and_results(x: Any) -> None:
    class Swap(M.Module):
        def forward(self, p: Any) -> Any:
            return Pair(p.b, p.a)

    with pytest.raises(AssertionError, match="register_supported_type"):
        trace_module(Swap(), Pair(x, x + 1))
    register_supported_type(Pair, lambda p: ([p.a, p.b], None), lambda parts, _: Pair(*parts))
    traced = trace_module(Swap(), Pair(x, x + 1))
    got = reloaded(traced)(Pair(x, x * 0))
    assert isinstance(got, Pair) and not got.a.numpy().any()


def test_forms_compare_by_their_constants() -> None:
    a, b = (
        tree_flatten(({"k": 1, "j": [None, ...]}, slice(1, 2)))[1],
        tree_flatten(({"j": [None, ...], "k": 1}, slice(1, 2)))[1],
    )
    assert a == b and hash(a) == hash(b) and a != tree_flatten(({"k": 2, "j": [None, ...]}, slice(1, 2)))[1]
    arrays = [tree_flatten(np.array(v))[1] for v in ([1, 2], [1, 2], [1, 3])]
    assert arrays[0] == arrays[1] != arrays[2]


def test_arguments_are_put_in_order() -> None:
    def f(a: Any, b: int = 2, *c: Any, d: Any, e: int = 5, **k: Any) -> None: ...

    assert _convert_kwargs_to_args(f, (1,), {"d": 3}) == ((1, 2), {"d": 3, "e": 5})
    assert _convert_kwargs_to_args(f, (1, 2, 3), {"d": 3, "z": 1}) == ((1, 2, 3), {"d": 3, "e": 5, "z": 1})
    for args, kwargs, text in (
        ((), {"d": 3}, "missing required positional arguments: a"),
        ((1,), {}, "missing required keyword-only argument: d"),
        ((1,), {"a": 1, "d": 1}, "multiple values for argument a"),
    ):
        with pytest.raises(TypeError, match=text):
            _convert_kwargs_to_args(f, args, kwargs)


def test_a_long_graph_can_be_copied_flattened_and_saved() -> None:
    class Long(M.Module):
        def forward(self, x: Any) -> Any:
            for _ in range(700):
                x = F.relu(x) + 1
            return x

    x = mge.tensor([1.0])
    traced = trace_module(Long(), x)
    for module in (copy.deepcopy(traced), traced.flatten(), reloaded(traced)):
        assert module(x).item() == 701.0
