"""Network: dumped models looked into, edited and dumped again, against the same edits computed by NumPy."""

from __future__ import annotations

import gc
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.utils.network_node as N
from megengine.core import _core
from megengine.core._core import ops
from megengine.core.ops import builtin
from megengine.jit import trace
from megengine.utils.comp_graph_tools import GraphInference
from megengine.utils.module_stats import disable_receptive_field, enable_receptive_field
from megengine.utils.network import Network, NodeFilter, as_oprnode, as_varnode, set_symbolic_shape


def dumped(fn: Callable[..., Any], *args: mge.Tensor, outputs: list[str] | None = None, **kw: Any) -> io.BytesIO:
    traced = trace(symbolic=True, capture_as_const=True)(fn)
    traced(*args)
    file = io.BytesIO()
    traced.dump(
        file, arg_names=[f"a{i}" for i in range(len(args))], output_names=outputs, optimize_for_inference=False, **kw
    )
    file.seek(0)
    return file


def saved(net: Network, **kw: Any) -> io.BytesIO:
    file = io.BytesIO()
    net.dump(file, **kw)
    file.seek(0)
    return file


def run(net: Network, *args: Any, **named: Any) -> dict[str, np.ndarray]:
    return GraphInference(saved(net)).run(*args, inp_dict=named)


def tensor(*shape: int, dtype: str = "float32") -> mge.Tensor:
    return mge.Tensor((np.arange(int(np.prod(shape))).reshape(shape) % 7 + 1).astype(dtype))


X, Y = tensor(2, 3), tensor(2, 3) + 0.5


def small() -> Network:
    return Network.load(dumped(lambda a, b: F.relu((a + b) * 2), X, Y, outputs=["o"]))


class Small(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = M.Conv2d(3, 4, 3)
        self.bn = M.BatchNorm2d(4)
        self.fc = M.Linear(4, 2)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        x = F.relu(self.bn(self.conv(x)))
        return self.fc(F.mean(x, (2, 3)))


def module(n: int = 1) -> tuple[Network, Small, np.ndarray]:
    net = Small()
    net.eval()
    x = np.random.RandomState(0).rand(n, 3, 8, 8).astype("float32")
    return Network.load(dumped(lambda x: net(x), mge.Tensor(x), outputs=["pred"])), net, x


def test_look() -> None:
    net = small()
    assert [v.name for v in net.input_vars] == ["a0", "a1"] and [v.name for v in net.output_vars] == ["o"]
    assert net.dest_vars is net.output_vars
    assert [op.type for op in net.all_oprs] == ["Host2DeviceCopy"] * 2 + ["Elemwise", "ImmutableTensor"] + [
        "Elemwise"
    ] * 2
    a, b = net.input_vars
    (o,) = net.output_vars
    assert isinstance(o, mge.Tensor) and isinstance(o, N.VarNode) and o.owner.params == {"mode": "RELU"}
    assert repr(o) == "VarNode:o" and o.shape == o.partial_shape == (2, 3) and o.dtype == np.float32 and o.ndim == 2
    assert (
        o.owner.inputs[0].owner.params == {"mode": "MUL"}
        and o.owner.outputs == [o]
        and o.owner.opdef is builtin.Elemwise
    )
    assert net.all_vars[0] is o and net.all_vars_dict["a0"] is a and a.owner is net.all_oprs_dict["a0"]
    assert net.opr_filter.type(N.Elemwise).as_count() == 3
    assert net.opr_filter.not_type(N.Elemwise).as_count() == 3
    assert net.data_providers_filter.as_list() == [a.owner, b.owner]
    assert net.params_filter.as_unique().numpy() == 2
    assert net.opr_filter.has_input(b).as_unique().params["mode"] == "ADD"
    assert a.users == net.get_var_receive_oprs(a) == [o.owner.inputs[0].owner.inputs[0].owner]
    assert net.var_filter.name("A?").as_count() == 2 and net.var_filter.name("A?", ignorecase=False).as_count() == 0
    assert net.get_opr_by_name("a0") is a.owner and net.get_var_by_name("o") is o
    assert net.get_opr_by_type(N.Elemwise, unique=False) == net.opr_filter.type(N.Elemwise).as_list()
    assert net.get_dep_oprs(o) == net.all_oprs == NodeFilter.make_all_deps(o).as_list()
    assert as_varnode(o.owner) is o is as_varnode([o]) and as_oprnode(o) is o.owner is as_oprnode([o])
    assert list(net.opr_filter.name("a?").as_dict()) == ["a0", "a1"]
    assert o in [o] and o not in [net.all_vars[1]]
    for ask in (
        lambda: net.get_opr_by_type(N.Elemwise),
        lambda: net.get_var_by_name("zz"),
        lambda: net.get_opr_by_name("zz"),
        lambda: as_varnode(5),
        lambda: as_oprnode(5),
        lambda: net.opr_filter.has_input(5),  # type: ignore[arg-type]
    ):
        with pytest.raises(AssertionError):
            ask()
    with pytest.raises(TypeError, match="all nodes should be"):
        net.opr_filter.check_type(N.Elemwise).as_list()
    assert NodeFilter(net.opr_filter.type(N.Elemwise)).check_type(N.Elemwise).as_count() == 3
    for filter in (net.opr_filter.type(N.Elemwise), net.opr_filter.type(N.Concat)):
        with pytest.raises(ValueError, match="exactly one"):
            filter.as_unique()


def test_a_module_looks_as_in_the_original() -> None:
    net, module_, x = module()
    kinds = [type(op).__name__ for op in net.all_oprs if op.inputs]
    assert kinds == [
        "ConvolutionForward",
        "Elemwise",
        "BatchNormForward",
        "Elemwise",
        "Reduce",
        "MatrixMul",
        "Elemwise",
    ]
    conv = net.opr_filter.type(N.ConvolutionForward).as_unique()
    assert conv.type == "Convolution" and conv.params == {
        "mode": "CROSS_CORRELATION",
        "pad_h": 0,
        "pad_w": 0,
        "stride_h": 1,
        "stride_w": 1,
        "dilate_h": 1,
        "dilate_w": 1,
        "sparse": "DENSE",
        "format": "NCHW",
        "compute_mode": "DEFAULT",
    }
    np.testing.assert_array_equal(run(net, x)["pred"], module_(mge.Tensor(x)).numpy())
    assert N.flops_conv(conv, conv.inputs, conv.outputs) == 4 * 36 * 27
    fc = net.opr_filter.type(N.MatrixMul).as_unique()
    assert N.flops_matmul(fc, fc.inputs, fc.outputs) == 8
    enable_receptive_field()
    try:
        assert N.receptive_field(conv, conv.inputs, conv.outputs) == ((3, 3), (1, 1))
    finally:
        disable_receptive_field()


def test_replace_variables() -> None:
    net = small()
    a, b = net.input_vars
    add = net.opr_filter.has_input(a).as_unique()
    net.replace_vars({add.outputs[0]: F.relu(F.mul(a, b))})
    np.testing.assert_array_equal(run(net, X, Y)["o"], X.numpy() * Y.numpy() * 2)


def test_replace_ops() -> None:
    net = small()
    a, b = net.input_vars
    add = net.opr_filter.has_input(a).as_unique()
    net.replace_oprs({add: F.sub(a, b).owner})
    np.testing.assert_array_equal(run(net, Y, X)["o"], (Y.numpy() - X.numpy()) * 2)


def test_put_an_op_behind_a_variable() -> None:
    net = small()
    (o,) = net.output_vars
    a, _ = net.input_vars
    net.replace_vars({o: F.exp(o), a: a - 1})
    assert net.output_vars[0] is not o and net.output_vars[0].name == "o"
    np.testing.assert_allclose(run(net, X, Y)["o"], np.exp((X.numpy() - 1 + Y.numpy()) * 2), rtol=1e-5)


def test_inputs_outputs_and_constants() -> None:
    net = small()
    (o,) = net.output_vars
    c = net.make_input_node((2, 3), "float32", name="c")
    more = F.add(o, c)
    more.name = "o1"
    net.add_output(more, o)
    assert net.output_vars == [o, more] and [v.name for v in net.input_vars] == ["a0", "a1", "c"]
    got = run(net, X, Y, X)
    np.testing.assert_array_equal(got["o1"], got["o"] + X.numpy())
    net.remove_output(o)
    assert list(run(net, X, Y, X)) == ["o1"]
    two = net.params_filter.as_unique()
    two.set_value(3)
    assert two.numpy() == 3 and two.dtype == np.int32
    np.testing.assert_array_equal(run(net, X, Y, X)["o1"], (X.numpy() + Y.numpy()) * 3 + X.numpy())  # dtypes meet
    two.set_value(3.0)
    np.testing.assert_array_equal(run(net, X, Y, X)["o1"], (X.numpy() + Y.numpy()) * 3 + X.numpy())
    net.replace_vars({net.input_vars[1]: net.make_const(np.ones((2, 3)), name="one")})
    assert [v.name for v in net.input_vars] == ["a0", "c"]
    np.testing.assert_array_equal(run(net, X, X)["o1"], (X.numpy() + 1) * 3 + X.numpy())
    only = Network.load(saved(net), outspec=["one"])
    assert only.output_vars[0].owner.numpy().tolist() == np.ones((2, 3)).tolist()
    assert net.make_const(3).owner.dtype == np.int32 and net.make_const(np.ones(2)).dtype == np.float32


def test_outputs_without_a_name_get_one_and_two_of_one_name_are_refused() -> None:
    net = small()
    a, b = net.input_vars
    net.add_output(F.exp(a), F.exp(b))
    assert list(run(net, X, Y)) == ["o", "EXP", "EXP[1]"]
    net.output_vars[1].name = "o"
    with pytest.raises(ValueError, match="two outputs are named 'o'"):
        saved(net)
    net.output_vars[1].name = "p"
    net.output_vars[1].name = "a0"
    with pytest.raises(ValueError, match="an input and the output of EXP.* are both named 'a0'"):
        saved(net)
    net.output_vars[1].name = "p"
    net.replace_vars({b: net.make_input_node((2, 3), "float32", name="a0")})
    with pytest.raises(ValueError, match="two inputs are named 'a0'"):
        saved(net)
    net.input_vars[1].owner.name = "b0"
    assert GraphInference(saved(net))._inputs == ["a0", "b0"]


def test_an_input_or_a_result_returned_twice() -> None:
    def f(x: mge.Tensor) -> Any:
        y = x * 2
        return x, y, y

    net = Network.load(dumped(f, X, outputs=["same", "first", "second"]))
    got = run(net, Y)
    np.testing.assert_array_equal(got["same"], Y.numpy())
    np.testing.assert_array_equal(got["first"], got["second"])


@pytest.mark.parametrize("dump_format", [None, "FBS_V2", "FBS"])
def test_inputs_keep_their_order(dump_format: str | None) -> None:
    """Callers that give them by position would not see that they changed places."""
    traced = trace(lambda p, q: q * 2 + p, symbolic=True, capture_as_const=True)
    traced(mge.Tensor([1.0]), mge.Tensor([1.0]))
    file, again = io.BytesIO(), io.BytesIO()
    traced.dump(file, arg_names=["p", "q"], dump_format=dump_format)
    file.seek(0)
    Network.load(file).dump(again, dump_format=dump_format)
    for written in (file, again):
        written.seek(0)
        (y,) = GraphInference(written).run(np.float32([1]), np.float32([5])).values()
        assert y.tolist() == [11.0]


def test_names() -> None:
    net = small()
    net.modify_opr_names("net")
    net.modify_opr_names(lambda name: "more." + name)
    assert [op.name for op in net.data_providers_filter] == ["more.net.a0", "more.net.a1"]
    assert [v.name for v in net.output_vars] == ["o"]
    again = Network.load(saved(net))
    assert [op.name for op in again.data_providers_filter] == ["more.net.a0", "more.net.a1"]
    with pytest.raises(TypeError, match="modify_opr_names"):
        net.modify_opr_names(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="modify_opr_names"):
        net.modify_opr_names(lambda name: None)  # type: ignore[arg-type,return-value]


def test_batch_size() -> None:
    net, module_, x = module()
    net.reset_batch_size(4)
    assert net.input_vars[0].shape == (4, 3, 8, 8) and net.output_vars[0].shape == (4, 2)
    assert Network.load(saved(net)).output_vars[0].shape == (4, 2)
    many = np.concatenate([x, x + 1, x * 2, x - 1])
    np.testing.assert_array_equal(run(net, many)["pred"], module_(mge.Tensor(many)).numpy())
    net = Network.load(dumped(lambda a, b: F.matmul(a, b, transpose_b=True), X, Y, outputs=["o"]))
    net.reset_batch_size(5, blacklist=["a1"])
    assert net.output_vars[0].shape == (5, 2)
    net.reset_batch_size(7, blacklist=[net.input_vars[0]])
    assert net.output_vars[0].shape == (5, 7)
    fixed = Network.load(dumped(lambda a: F.exp(a).reshape(2, 3) + 1, X, outputs=["o"]))
    with pytest.raises(ValueError, match="reshape"):
        fixed.reset_batch_size(5)
    assert fixed.output_vars[0].shape == (2, 3) and run(fixed, X)["o"].shape == (2, 3)
    sizes = Network.load(dumped(lambda a: a.reshape(a.shape[0], -1) + a.shape[0], X, outputs=["o"]))
    sizes.reset_batch_size(5)
    assert sizes.output_vars[0].shape == (5, 3)
    np.testing.assert_array_equal(run(sizes, np.zeros((5, 3), "float32"))["o"], np.full((5, 3), 5))
    for bad in (0, -1, 2.0, True):
        with pytest.raises(ValueError, match="reset_batch_size"):
            net.reset_batch_size(bad)  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="no input zz; there are a0, a1"):
        net.reset_batch_size(2, blacklist=["zz"])


def test_a_graph_that_decided_by_a_size_is_not_given_another() -> None:
    net = Network.load(dumped(lambda a: a + 1 if int(a.shape[0]) == 2 else a - 1, X, outputs=["o"]))
    with pytest.raises(ValueError, match="recorded"):
        net.reset_batch_size(3)
    np.testing.assert_array_equal(run(net, X)["o"], X.numpy() + 1)


def test_preprocessing_before_the_first_op() -> None:
    net, module_, _ = module(2)
    image = np.random.RandomState(1).randint(0, 256, (2, 8, 8, 3)).astype("uint8")
    mean, std = np.float32([100, 110, 120]).reshape(1, 3, 1, 1), np.float32([50, 55, 60]).reshape(1, 3, 1, 1)
    (data,) = net.input_vars
    raw = net.make_input_node((2, 8, 8, 3), "uint8", name="image")
    net.replace_vars({data: (F.transpose(raw.astype("float32"), (0, 3, 1, 2)) - mean) / std})
    want = module_(mge.Tensor((image.astype("float32").transpose(0, 3, 1, 2) - mean) / std)).numpy()
    assert [v.name for v in net.input_vars] == ["image"]
    np.testing.assert_array_equal(run(net, image)["pred"], want)
    net.reset_batch_size(np.int64(1))
    np.testing.assert_array_equal(
        run(net, image[:1])["pred"], module_(mge.Tensor((image[:1].transpose(0, 3, 1, 2) - mean) / std)).numpy()
    )


def test_networks_are_joined() -> None:
    one = Network.load(dumped(lambda a: a + 1, X, outputs=["o1"]))
    two = Network.load(dumped(lambda a: a * 2, X, outputs=["o2"]))
    two.replace_vars({two.input_vars[0]: one.output_vars[0]})
    np.testing.assert_array_equal(run(two, X)["o2"], (X.numpy() + 1) * 2)
    np.testing.assert_array_equal(run(one, X)["o1"], X.numpy() + 1)
    assert len(one.all_oprs) == 3 and len(two.all_oprs) == 5
    three = Network.load(dumped(lambda a: a - 5, X, outputs=["o3"]))
    both = F.add(three.output_vars[0], two.output_vars[0])
    both.name = "both"
    three.input_vars[0].owner.name = "other"
    three.add_output(both)
    got = run(three, other=X, a0=Y)
    np.testing.assert_array_equal(got["both"], X.numpy() - 5 + (Y.numpy() + 1) * 2)
    assert three.output_vars[0].graph is two.output_vars[0].graph
    two.reset_batch_size(4)
    assert two.output_vars[0].shape == (4, 3) and three.output_vars[0].shape == (2, 3)
    with pytest.raises(ValueError, match="ADD.*do not broadcast"):
        saved(three)


def test_variables_keep_their_graph() -> None:
    v = small().output_vars[0]
    gc.collect()
    y = F.exp(v)
    del v
    gc.collect()
    net = Network()
    y.name = "y"
    net.add_output(y)
    np.testing.assert_allclose(run(net, X, Y)["y"], np.exp((X.numpy() + Y.numpy()) * 2), rtol=1e-5)


def test_sizes_of_variables() -> None:
    net = small()
    a, _ = net.input_vars
    old = set_symbolic_shape(True)
    try:
        assert isinstance(a.shape, N.VarNode)
        y = F.reshape(a, (a.shape[0] * 3,)) + a.shape[1]
    finally:
        set_symbolic_shape(old)
    assert a.shape == a.partial_shape == a._tuple_shape == (2, 3)
    assert a.shapeof(1).numpy() == 3
    net.add_output(y)
    net.reset_batch_size(4)
    assert y.shape == (12,)
    np.testing.assert_array_equal(
        run(net, np.zeros((4, 3), "float32"), np.zeros((4, 3), "float32"))["ADD"], np.full(12, 3, "float32")
    )


def in_place(net: Network, x: Any) -> None:
    y = x * 1
    y -= 10
    y /= 2
    net.replace_vars({x: y})


def set_in_part(net: Network, x: Any) -> None:
    y = x * 1
    y[0] = 7
    y[:, 1:] += 5
    net.replace_vars({x: y})


def behind_the_output(net: Network, x: Any) -> None:
    y = net.output_vars[0]
    y += 100  # the same object, so it is the output; so it is in the original
    net.add_output(y)


def kept_by_an_op(net: Network, x: Any) -> None:
    y = net.output_vars[0]
    z = y * 2
    z += y
    assert z.owner.inputs[1] is y and y.owner.type == "Elemwise" and z.owner.outputs == [z]
    net.remove_output(y)
    net.add_output(z)


IN_PLACE: dict[Any, Callable[[Any], Any]] = {
    in_place: lambda x: np.maximum((x - 10) / 2, 0) + 1,
    set_in_part: lambda x: np.maximum(np.where([[True], [False]], 7, x) + [0, 5, 5], 0) + 1,
    behind_the_output: lambda x: np.maximum(x, 0) + 101,
    kept_by_an_op: lambda x: (np.maximum(x, 0) + 1) * 3,
}


@pytest.mark.parametrize("edit", IN_PLACE, ids=lambda f: f.__name__)
def test_variables_are_changed_in_place(edit: Any) -> None:
    traced = trace(lambda x: F.relu(x) + 1, symbolic=True, capture_as_const=True)
    traced(mge.Tensor(np.zeros((2, 3), "float32")))
    file, again = io.BytesIO(), io.BytesIO()
    traced.dump(file)
    file.seek(0)
    net = Network.load(file)
    edit(net, net.input_vars[0])
    net.dump(again)
    again.seek(0)
    x = np.float32([[1, -2, 3], [4, 15, -6]])
    (y,) = GraphInference(again).run(x).values()
    np.testing.assert_array_equal(y, IN_PLACE[edit](x))


def test_variables_have_no_values() -> None:
    v = small().output_vars[0]
    for read in (v.numpy, lambda: int(v.sum()), lambda: np.asarray(v), lambda: F.arange(v.sum())):
        with pytest.raises((ValueError, TypeError), match="variable"):
            read()
    assert not v and v.dtype == np.float32
    with pytest.raises(TypeError, match="variable"):
        v._reset(mge.Tensor([1.0]))
    before = v
    v += 1
    assert v is before and v.owner.params == {"mode": "ADD"}


def test_parameters_of_an_op_are_changed() -> None:
    net, _, x = module()
    conv = net.opr_filter.type(N.ConvolutionForward).as_unique()
    conv.params["pad_h"] = conv.params["pad_w"] = 1
    conv.params["stride_w"] = 2
    assert conv.outputs[0].shape == (1, 4, 8, 4)
    relu = net.opr_filter.has_input(net.opr_filter.type(N.BatchNormForward).as_unique().outputs[0]).as_unique()
    relu.params["mode"] = "SIGMOID"
    again = Network.load(saved(net))
    assert again.opr_filter.type(N.ConvolutionForward).as_unique().params["stride_w"] == 2
    assert run(again, x)["pred"].shape == (1, 2)
    bn = net.opr_filter.type(N.BatchNormForward).as_unique()
    bn.params["epsilon"] = 1.0
    assert Network.load(saved(net)).opr_filter.type(N.BatchNormForward).as_unique().params["epsilon"] == 1.0
    bn.params["fwd_mode"] = "TRAINING"
    with pytest.raises(NotImplementedError, match=r"BatchNorm.*fwd_mode.*replace_oprs"):
        saved(net)
    bn.params["fwd_mode"] = "INFERENCE"
    conv.params["stride_q"] = 3
    with pytest.raises(ValueError, match=r"no parameter stride_q"):
        saved(net)


CHANGES: list[tuple[Callable[[mge.Tensor], mge.Tensor], str, Any, Callable[[mge.Tensor], mge.Tensor]]] = [
    (lambda x: F.softmax(x, axis=1), "axis", 2, lambda x: F.softmax(x, axis=2)),
    (lambda x: F.argmax(x, axis=1), "axis", 3, lambda x: F.argmax(x, axis=3)),
    (lambda x: F.cumsum(x, axis=1), "axis", 2, lambda x: F.cumsum(x, axis=2)),
    (lambda x: F.argsort(x.reshape(2, -1)), "order", "DESCENDING", lambda x: F.argsort(x.reshape(2, -1), True)),
    (lambda x: F.vision.interpolate(x, size=(3, 3)), "size", [6, 5], lambda x: F.vision.interpolate(x, size=(6, 5))),
    (
        lambda x: F.vision.interpolate(x, size=(3, 3), mode="nearest"), "imode", "LINEAR",
        lambda x: F.vision.interpolate(x, size=(3, 3), mode="bilinear"),
    ),
    (lambda x: F.max_pool2d(x, 2), "stride_w", 1, lambda x: F.max_pool2d(x, 2, (2, 1))),
    (lambda x: x[:, 1:3], "starts", [0], lambda x: x[:, 0:3]),
    (lambda x: F.concat([x, x], 1), "axis", 2, lambda x: F.concat([x, x], 2)),
]  # fmt: skip


@pytest.mark.parametrize("fn, name, value, want", CHANGES)
def test_every_described_parameter_can_be_changed(fn: Any, name: str, value: Any, want: Any) -> None:
    x = mge.Tensor(np.random.RandomState(0).rand(2, 4, 4, 4).astype("float32"))
    net = Network.load(dumped(fn, x, outputs=["o"]))
    op = next(o for o in net.all_oprs[::-1] if name in o.params)
    op.params[name] = value
    np.testing.assert_array_equal(run(net, x)["o"], want(x).numpy())


def test_the_sizes_of_a_reshape_are_a_constant_that_may_be_set() -> None:
    """As in the original, where a program changes them to take any batch; in the file they are an attribute again."""
    net = Network.load(dumped(lambda x: F.broadcast_to(x.reshape(3, 2), (4, 3, 2)) + 1, X, outputs=["o"]))
    nodes = net.all_oprs
    assert [o.type for o in nodes] == [
        "Host2DeviceCopy",
        *("ImmutableTensor", "Reshape", "ImmutableTensor", "Broadcast", "ImmutableTensor", "Elemwise"),
    ]
    sizes = nodes[2].inputs[1].owner
    assert sizes is nodes[1] and sizes.numpy().tolist() == [3, 2] and sizes.dtype == np.int32
    assert _core.Graph(saved(net).read()).text.count("const ") == 1
    sizes.set_value([1, 2])
    with pytest.raises(ValueError, match=r"Network.dump: .*Reshape"):
        saved(net)
    sizes.set_value([-1, 2])
    np.testing.assert_array_equal(run(net, X)["o"][0], X.numpy().reshape(3, 2) + 1)
    nodes[4].inputs[1].owner.set_value([5, 3, 2])
    assert run(net, X)["o"].shape == (5, 3, 2) and nodes[2].params["shape"] == [-1, 2]
    nodes[2].params["shape"] = [6, 1]
    with pytest.raises(ValueError, match=r"its shape follows from variable.*give it another input"):
        saved(net)


def test_a_parameter_that_follows_from_a_size_is_changed_there() -> None:
    net = Network.load(dumped(lambda x: F.topk(x, 2)[0], X, outputs=["o"]))
    next(o for o in net.all_oprs if o.type == "TopK").params["k"] = 1
    with pytest.raises(ValueError, match="its k follows from variable 'MIN'; give it another input"):
        saved(net)


def test_random_ops_in_a_graph() -> None:
    net = Network.load(dumped(lambda a: a * 2, mge.Tensor(np.ones(1000, "float32")), outputs=["o"]))
    (a,), (o,) = net.input_vars, net.output_vars
    mge.random.seed(7)
    net.replace_vars({o: F.dropout(o, 0.5, training=True) + mge.random.uniform(size=(1000,)) * 0})
    net.replace_vars({a: a + 1})  # the draw is made again of other inputs
    twice = [F.dropout(net.output_vars[0], 0.5, training=True) for _ in range(2)]
    net.add_output(*twice)
    for again in (net, Network.load(saved(net))):
        model = GraphInference(saved(again))
        first, second = (list(model.run(np.ones(1000, "float32")).values()) for _ in range(2))
        assert 400 < (first[0] == 0).sum() < 600 and set(np.unique(first[0])) == {0, 8}
        assert not np.array_equal(first[0], second[0]), "each run draws new numbers"
        assert not np.array_equal(first[1], first[2]), "two ops have a stream each"
    assert mge.random.uniform(size=(3,)).numpy().shape == (3,)


def test_a_dumped_function_draws_on() -> None:
    mge.random.seed(3)
    state = mge.random.get_rng_state()
    traced = trace(lambda x: x + mge.random.uniform(size=(4,)) + mge.random.normal(size=(4,)), capture_as_const=True)
    want = traced(mge.Tensor(np.zeros(4, "float32"))).numpy()
    mge.random.set_rng_state(state)
    file = io.BytesIO()
    traced.dump(file)
    file.seek(0)
    model = GraphInference(file)
    runs = [next(iter(model.run(np.zeros(4, "float32")).values())) for _ in range(3)]
    eager = [want] + [(mge.random.uniform(size=(4,)) + mge.random.normal(size=(4,))).numpy() for _ in range(3)]
    np.testing.assert_array_equal(runs, eager[1:])


def test_nonsense_is_refused_and_leaves_the_network_as_it_was() -> None:
    net = small()
    a, b = net.input_vars
    (o,) = net.output_vars
    want = run(net, X, Y)["o"]
    for edit, says in (
        ({b: o}, r"replace_vars: the graph would go in a circle: .*RELU"),
        ({b: net.make_const(np.ones((4, 3)))}, r"replace_vars: ADD.*do not broadcast"),
    ):
        with pytest.raises(ValueError, match=says):
            net.replace_vars(edit)
        assert o.owner.inputs[0].owner.inputs[0].owner.name.startswith("ADD(a0,a1)")
        np.testing.assert_array_equal(run(net, X, Y)["o"], want)
    with pytest.raises(AssertionError, match="not compatible"):
        net.replace_vars({a: 5})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="has 1 results, top_k.* has 2"):
        net.replace_oprs({a.owner: F.topk(a, 2)[0].owner})
    net.remove_output(o)
    with pytest.raises(ValueError, match="no outputs"):
        saved(net)
    net.remove_output(o)  # only warns
    with pytest.raises(AssertionError, match="Can not find"):
        Network.load(dumped(lambda a: a + 1, X), ["zz"])
    with pytest.raises(RuntimeError):
        Network.load(io.BytesIO(b"not a model"))


def test_nodes_made_by_hand() -> None:
    net = small()
    h = N.Host2DeviceCopy((2, 3), "float32", "h")
    assert h.outputs == []
    h.compile(net.output_vars[0].graph)
    net.add_output(h.outputs[0] * 2)
    np.testing.assert_array_equal(run(net, X, Y, X)["MUL"], X.numpy() * 2)
    for cls in (N.ImmutableTensor, N.SharedDeviceTensor):
        c = cls(np.arange(3.0), "c", graph=net.output_vars[0].graph)
        assert c.shape == (3,) and c.dtype == np.float32 and c.numpy().tolist() == [0, 1, 2] and c.device == "xpux"
    assert N.str_to_mge_class("ConvolutionForward") is N.ConvolutionForward
    assert N.str_to_mge_class("zork") is N.ReadOnlyOpNode
    loaded = N.OpNode.load(net.output_vars[0].var.op)
    assert loaded is net.output_vars[0].owner and N.VarNode(net.output_vars[0].var) is net.output_vars[0]


CASES: dict[str, tuple[Callable[..., Any], list[mge.Tensor], list[str]]] = {
    "where": (lambda m, x: F.where(m > 2, x, m), [X, Y], ["Elemwise"] * 2),
    "reduce": (lambda x: F.sum(x, 1), [X], ["Reduce"]),
    "argmax": (lambda x: F.argmax(x, 1), [X], ["Argmax"]),
    "matmul": (lambda x, y: F.matmul(x, y, transpose_b=True), [X, Y], ["MatrixMul"]),
    "bmm": (lambda x, y: F.matmul(x, y), [tensor(5, 2, 3), tensor(5, 3, 4)], ["BatchedMatrixMul"]),
    "linear": (lambda x: F.linear(x, tensor(4, 3), tensor(4)), [X], ["MatrixMul", "Elemwise"]),
    "svd": (lambda x: F.svd(x)[1], [tensor(3, 3)], ["SVD"]),
    "inverse": (
        lambda x: F.matinv(x + mge.Tensor(np.eye(3, dtype="float32"))),
        [tensor(3, 3)],
        ["Elemwise", "MatrixInverse"],
    ),
    "conv": (
        lambda x: F.conv2d(x, tensor(4, 3, 3, 3), tensor(1, 4, 1, 1), padding=1),
        [tensor(1, 3, 8, 8)],
        ["ConvolutionForward", "Elemwise"],
    ),
    "groups": (lambda x: F.conv2d(x, tensor(2, 2, 2, 3, 3), groups=2), [tensor(1, 4, 8, 8)], ["ConvolutionForward"]),
    "conv3d": (lambda x: F.conv3d(x, tensor(4, 3, 3, 3, 3)), [tensor(1, 3, 8, 8, 8)], ["ReadOnlyOpNode"]),
    "max_pool": (lambda x: F.max_pool2d(x, 2), [tensor(1, 3, 8, 8)], ["PoolingForward"]),
    "avg_pool": (lambda x: F.avg_pool2d(x, 2, 2, 1), [tensor(1, 3, 8, 8)], ["PoolingForward"]),
    "softmax": (lambda x: F.softmax(x, 1), [X], ["ReadOnlyOpNode"]),
    "reshape": (lambda x: F.reshape(x, (3, -1)), [X], ["Reshape"]),
    "transpose": (lambda x: F.transpose(x, (1, 0)), [X], ["Dimshuffle"]),
    "axes": (lambda x: F.squeeze(F.expand_dims(x, 0), 0), [X], ["AxisAddRemove"] * 2),
    "broadcast": (lambda x: F.broadcast_to(x, (4, 2, 3)), [X], ["Broadcast"]),
    "concat": (lambda x, y: F.concat([x, y], 1), [X, Y], ["Concat"]),
    "slice": (lambda x: x[:, 1:2], [X], ["Subtensor"]),
    "index": (lambda x, i: x[i], [X, tensor(2, dtype="int32") - 1], ["IndexingMultiAxisVec"]),
    "indices": (lambda x: x[[0, 1], [1, 0]], [X], ["IndexingMultiAxisVec"]),
    "cast": (lambda x: x.astype("int32"), [X], ["TypeCvt"]),
    "sort": (lambda x: F.sort(x)[0], [X], ["ArgsortForward"]),
    "one_hot": (lambda x, i: F.indexing_one_hot(x, i), [X, tensor(2, dtype="int32") - 1], ["IndexingOneHot"]),
    "copy": (lambda x: F.copy(x), [X], ["Identity"]),
    "resize": (lambda x: F.vision.interpolate(x, (4, 4)), [tensor(1, 3, 8, 8)], ["ResizeForward"]),
    "remap": (lambda x: F.vision.remap(x, tensor(1, 4, 4, 2)), [tensor(1, 3, 8, 8)], ["RemapForward"]),
    "roi_pooling": (
        lambda x: F.vision.roi_pooling(x, mge.Tensor(np.float32([[0, 0, 0, 4, 4]])), (2, 2)),
        [tensor(1, 3, 8, 8)],
        ["ROIPoolingForward"],
    ),
    "roi_align": (
        lambda x: F.vision.roi_align(x, mge.Tensor(np.float32([[0, 0, 0, 4, 4]])), (2, 2)),
        [tensor(1, 3, 8, 8)],
        ["ROIAlignForward"],
    ),
    "deconv": (lambda x: F.conv_transpose2d(x, tensor(3, 4, 3, 3), stride=2), [tensor(1, 3, 8, 8)], []),
    "deformable": (
        lambda x: F.deformable_conv2d(x, tensor(4, 3, 3, 3), tensor(1, 18, 6, 6), tensor(1, 9, 6, 6)),
        [tensor(1, 3, 8, 8)],
        [],
    ),
    "cond_take": (lambda x: F.cond_take(x > 2, x)[0], [X], []),
    "nms": (
        lambda b, s: F.vision.nms(b, s, 0.5),
        [mge.Tensor(np.float32([[0, 0, 4, 4], [1, 1, 3, 3]])), tensor(2)],
        [],
    ),
    "warp": (lambda x: F.vision.warp_perspective(x, tensor(1, 3, 3), (4, 4)), [tensor(1, 3, 8, 8)], []),
    "colour": (lambda x: F.vision.cvt_color(x, "BGR2GRAY"), [tensor(1, 4, 4, 3)], []),
    "adaptive": (lambda x: F.adaptive_avg_pool2d(x, (2, 2)), [tensor(1, 3, 8, 8)], []),
    "set": (lambda x: F.concat([x[:1] * 2, x[1:]]), [X], []),
}


CLASSES = (
    "Elemwise TypeCvt ConvolutionForward PoolingForward MatrixMul BatchedMatrixMul Reduce Concat Dimshuffle".split()
)


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_op_is_made_again_of_other_inputs(name: str) -> None:
    fn, args, kinds = CASES[name]
    net = Network.load(dumped(fn, *args, outputs=["o"]))
    if kinds:
        assert [type(op).__name__ for op in net.all_oprs if op.inputs] == kinds
    for op in net.all_oprs:  # the parameters are those of the op's class
        if type(op).__name__ in CLASSES and op.params.get("mode") != "WHERE":
            assert op.opdef is not None and op.opdef(**{**op.params, **({"axis": 0} if "axis" in op.params else {})})
    fresh = {v: net.make_input_node(v.shape, v.dtype, name="new_" + v.name) for v in net.input_vars}
    net.replace_vars(fresh)
    got = run(net, **{f"new_a{i}": a for i, a in enumerate(args) if f"new_a{i}" in [v.name for v in net.input_vars]})
    np.testing.assert_array_equal(got["o"], fn(*args).numpy())


def fuzz(seed: int, edits: int = 12) -> None:
    """Random edits; a NumPy function of each variable is kept beside it."""
    rng = np.random.RandomState(seed)
    net = small()
    x = {"a0": X.numpy(), "a1": Y.numpy()}

    def value(v: N.VarNode) -> np.ndarray:
        op = v.owner
        if isinstance(op, N.Host2DeviceCopy):
            return x[op.name]
        if isinstance(op, N.ConstOpBase):
            return op.numpy()
        ins = [value(i) for i in op.inputs]
        modes: dict[str, Any] = {
            "ADD": np.add,
            "MUL": np.multiply,
            "SUB": np.subtract,
            "MAX": np.maximum,
            "RELU": lambda v: np.maximum(v, 0),
            "NEGATE": np.negative,
        }
        return np.asarray(modes[op.params["mode"]](*ins), "float32")

    for step in range(edits):
        pool = [v for v in net.all_vars if v.shape == (2, 3)]
        u, v, w = (pool[rng.randint(len(pool))] for _ in range(3))
        kind = rng.randint(7)
        try:
            if kind == 0:
                net.replace_vars({u: F.relu(v) + w})
            elif kind == 1:
                net.replace_vars({u: v})
            elif kind == 2:
                name = f"in{step}"
                x[name] = rng.randint(-4, 5, (2, 3)).astype("float32")
                net.replace_vars({u: net.make_input_node((2, 3), "float32", name=name)})
            elif kind == 3:
                net.replace_vars({u: F.maximum(u, -v), w: net.make_const(rng.randint(-3, 4, (2, 3)).astype("float32"))})
            elif kind == 4:
                new = F.sub(v, w)
                new.name = f"out{step}"
                net.add_output(new)
            elif kind == 5 and len({id(o) for o in net.output_vars}) > 1:
                net.remove_output(net.output_vars[rng.randint(len(net.output_vars))])
            else:
                net.replace_oprs({u.owner: F.mul(v, w).owner})
        except ValueError as e:
            assert "circle" in str(e) or "two" in str(e), e
    twice = [v.name for v in net.output_vars]
    for i, v in enumerate(net.output_vars):
        if not v.name or twice.count(v.name) > 1 or isinstance(v.owner, (N.Host2DeviceCopy, N.ConstOpBase)):
            copy = ops.copy(v)
            copy.name = f"o{i}"
            net.output_vars[i] = copy
    want = {v.name: value(v.owner.inputs[0] if isinstance(v.owner, N.Identity) else v) for v in net.output_vars}
    for loaded in (net, Network.load(saved(net))):
        got = run(loaded, **{v.name: x[v.name] for v in loaded.input_vars})
        for name, expected in want.items():
            np.testing.assert_allclose(got[name], np.broadcast_to(expected, got[name].shape), rtol=1e-5)


@pytest.mark.parametrize("seed", range(25))
def test_random_edits(seed: int) -> None:
    fuzz(seed)
