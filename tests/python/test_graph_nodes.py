"""core.tensor.megbrain_graph and comp_graph_tools: graphs made, loaded, changed, run and dumped node by node."""

from __future__ import annotations

import io
import json
import pathlib
import pickle
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.core.tensor.megbrain_graph as G
import megengine.functional as F
import megengine.module as M
from megengine import cgtools
from megengine.core import _imperative_rt as rt
from megengine.core.ops import builtin
from megengine.jit import trace
from megengine.utils.network import Network


def saved(function: Any, *args: mge.Tensor, names: list[str] | None = None) -> io.BytesIO:
    traced = trace(function, symbolic=True, capture_as_const=True)
    traced(*args)
    file = io.BytesIO()
    traced.dump(file, arg_names=names, output_names=["y"])
    file.seek(0)
    return file


def test_a_graph_is_made_and_run() -> None:
    graph = G.Graph()
    inp = G.InputNode(device="cpu0", dtype="float32", shape=(2, 3), graph=graph)
    w = graph.make_const(np.arange(12, dtype="float32").reshape(3, 4), name="w")
    (y,) = G.apply_normal_varnode(builtin.MatrixMul(), inp.outputs[0], w)
    (z,) = G.apply_normal_varnode(builtin.Elemwise("relu"), y)
    assert (y.shape, y.dtype, y.device) == ((2, 4), np.float32, "cpu0")
    assert (z.op.type, z.op.params["mode"], z.op.inputs, z.name) == ("Elemwise", "RELU", (y,), "RELU")
    assert (w.op.type, inp.outputs[0].op, w.value.tolist()) == (
        "ImmutableTensor",
        inp,
        np.arange(12).reshape(3, 4).tolist(),
    )  # type: ignore[union-attr]
    out, raw, attr = G.OutputNode(z), G.ValueOutputNode(y), G.AttrOutputNode(z)
    func = graph.compile(out.outputs[0], raw.outputs[0], attr.outputs[0])
    for seed in range(2):
        x = np.random.default_rng(seed).standard_normal((2, 3)).astype("float32")
        inp.set_value(mge.tensor(x))
        func.execute()
        func.wait()
        want = x @ np.arange(12, dtype="float32").reshape(3, 4)
        np.testing.assert_allclose(raw.get_value(), want, rtol=1e-5)
        np.testing.assert_allclose(out.get_value().numpy(), np.maximum(want, 0), rtol=1e-5)
        assert attr.get_value() == G.TensorAttr((2, 4), np.dtype("float32"), z.device)


def test_other_sizes_may_be_fed() -> None:
    graph = G.Graph()
    x = graph.make_h2d(dtype="float32", device="cpu0", shape=(2, 3), name="x")
    (y,) = G.apply_normal_varnode(builtin.Elemwise("exp"), x)
    out = G.OutputNode(y)
    graph.compile(y).execute(np.zeros((5, 3), "float32"))
    assert out.get_value().shape == (5, 3)


def test_a_result_of_several_ops_is_one_node() -> None:
    graph = G.Graph()
    x = graph.make_h2d(dtype="float32", shape=(2, 5), name="x")
    k = graph.make_const(np.int32(2))
    values, index = G.apply_normal_varnode(builtin.TopK(mode="VALUE_IDX_SORTED"), x, k)
    assert values.op is index.op and values.op.outputs == (values, index) and index.dtype == np.int32
    out = G.ValueOutputNode(values)
    graph.compile(values).execute(np.array([[3, 1, 2, 5, 4]] * 2, "float32"))
    assert out.get_value().tolist() == [[1, 2]] * 2


def test_dump_and_load_give_the_same_bits(tmp_path: pathlib.Path) -> None:
    graph = G.Graph()
    x = rt.make_h2d(graph, "cpu0", "float32", (4,), "x")
    unused = graph.make_h2d(dtype="float32", shape=(9,), name="unused")
    (e,) = G.apply_normal_varnode(builtin.Elemwise("exp"), x)
    (y,) = G.apply_normal_varnode(builtin.Elemwise("sin"), e)
    G.apply_normal_varnode(builtin.Elemwise("cos"), unused)
    data, info = G.dump_graph({"result": y})
    assert (info.inputs, info.outputs, info.nr_opr, info.tot_bytes) == (["x"], ["result"], 3, len(data))
    (tmp_path / "net.mge").write_bytes(data)
    value = np.linspace(-1, 1, 4).astype("float32")
    want = F.sin(F.exp(mge.tensor(value))).numpy()
    np.testing.assert_array_equal(cgtools.GraphInference(str(tmp_path / "net.mge")).run(value)["result"], want)
    loaded = G.load_graph(str(tmp_path / "net.mge"))
    (again,) = loaded.output_vars_list
    assert loaded.output_vars_dict == {"result": again} and [
        o.params["mode"] for o in cgtools.get_oprs_seq(again)[1:]
    ] == [
        "EXP",
        "SIN",
    ]
    out = G.OutputNode(again)
    loaded.graph.compile(again).execute(value)
    np.testing.assert_array_equal(out.get_value().numpy(), want)


def test_a_loaded_network_is_looked_at() -> None:
    net = M.Sequential(M.Conv2d(1, 2, 3), M.ReLU())
    net.eval()
    file = saved(lambda x: net(x), mge.tensor(np.ones((1, 1, 5, 5), "float32")), names=["data"])
    (y,) = G.load_graph(file).output_vars_list
    (data,) = cgtools.get_dep_vars(y, "Host2DeviceCopy")
    assert (data.name, data.shape) == ("data", (1, 1, 5, 5))
    shapes = {v.shape for v in cgtools.get_dep_vars(y, "ImmutableTensor")}
    assert (2, 1, 3, 3) in shapes
    assert [cgtools.get_opr_type(op) for op in cgtools.get_oprs_seq(y)] == [
        "Host2DeviceCopy",
        "ConvolutionForward",
        "Elemwise",
        "Elemwise",
    ]
    oprs, variables, readers, receivers, by_degree, degree = cgtools.graph_traversal(y)
    assert sorted(i for n in by_degree.values() for i in n) == sorted(oprs) == sorted(degree)
    assert y.id not in variables and receivers[y.op.id] == [] and degree[y.op.id] == 1  # nobody reads the output
    ((reader, place),) = readers[data.id]
    assert variables[1] is data and (oprs[reader].type, place) == ("ConvolutionForward", 0)
    assert cgtools.find_vars_by_name(y, ["data", "y"]) == [data, y]
    with pytest.raises(AssertionError, match="no foo in this graph"):
        cgtools.find_vars_by_name(y, ["foo"])


def test_the_variables_of_a_network_are_looked_at_as_well() -> None:
    net = Network.load(saved(lambda x: F.exp(x) + 1, mge.tensor([1.0, 2.0]), names=["x"]))
    (y,) = net.output_vars
    assert cgtools.get_owner_opr_type(y) == "Elemwise" and len(cgtools.get_owner_opr_inputs(y)) == 2
    (x,) = cgtools.get_dep_vars([y], "Host2DeviceCopy")
    assert x is net.input_vars[0] is cgtools.find_vars_by_name([y], ["x"])[0]
    oprs, _, readers, _, _, _ = cgtools.graph_traversal([y])
    ((reader, place),) = readers[x.id]
    assert (oprs[reader].params["mode"], place) == ("EXP", 0)
    with pytest.raises(TypeError, match="variables of a graph are needed"):
        cgtools.get_dep_vars([y, 3])


def test_parts_of_a_graph_are_replaced() -> None:
    file = saved(lambda x: F.exp(x) + x, mge.tensor([1.0, 2.0]), names=["x"])
    loaded = G.load_graph(file)
    (y,) = loaded.output_vars_list
    (x,) = cgtools.get_dep_vars(y, "Host2DeviceCopy")
    (doubled,) = G.apply_normal_varnode(builtin.Elemwise("add"), x, x)
    (fresh,) = cgtools.replace_vars(y, {x: doubled})
    exp = next(v for v in cgtools.get_dep_vars(y) if v.op.params.get("mode") == "EXP")
    (log,) = G.apply_normal_varnode(builtin.Elemwise("log"), x)
    (other,) = cgtools.replace_oprs(y, {exp.op: log.op})
    (constant,), named = cgtools.embed_inputs(y, [[0.0, 0.0]])
    assert list(named) == ["x"] and cgtools.get_owner_opr_type(named["x"]) == "ImmutableTensor"
    outs = [G.ValueOutputNode(v) for v in (y, fresh, other, constant)]
    v = np.array([1.0, 3.0], "float32")
    loaded.graph.compile(y, fresh, other, constant).execute(v)
    # x + x is fed to what computed x, and to itself it is not
    wants = (np.exp(v) + v, np.exp(2 * v) + 2 * v, np.log(v) + v, np.ones(2))
    for out, want in zip(outs, wants):
        np.testing.assert_allclose(out.get_value(), want, rtol=1e-6)


def test_the_same_programs_for_both_classes_of_a_variable() -> None:
    """The original has nodes of the engine below its own: ``v._node.owner``, and lists where ours takes arguments."""
    graph = G.Graph()
    a, b, c = (graph.make_h2d(dtype="float32", shape=(1,), name=name) for name in "abc")
    (total,) = G.apply_normal_varnode(builtin.Elemwise("add"), a, b)
    (y,) = G.apply_normal_varnode(builtin.Elemwise("mul"), total, c)
    (minus,) = G.apply_normal_varnode(builtin.Elemwise("sub"), a, b)
    (fresh,) = cgtools.replace_vars([y._node], {b._node: c._node})
    (other,) = cgtools.replace_oprs([y._node], {total._node.owner: minus._node.owner})
    outs = [G.ValueOutputNode(v) for v in (y, fresh, other)]
    func = graph.compile([out.outputs[0] for out in outs])
    func(*[mge.tensor([v])._dev_tensor() for v in (2.0, 3.0, 5.0)])
    assert [out.get_value().tolist() for out in outs] == [[25.0], [35.0], [-5.0]]


def test_order_of_ops() -> None:
    """Inputs and constants stand before their first user; what only computes the sizes of a reshape may be left out."""
    file = saved(lambda x: (x + 1).reshape(x.shape[0] * 3, -1) * 2, mge.tensor(np.ones((2, 3), "float32")), names=["x"])
    loaded = G.load_graph(file)
    (y,) = loaded.output_vars_list
    types = [op.type for op in cgtools.get_oprs_seq(y, prune_immtensor=False)]
    assert types.index("ImmutableTensor") == types.index("Elemwise") - 1
    assert types[-2:] == ["ImmutableTensor", "Elemwise"]
    pruned = [op.type for op in cgtools.get_oprs_seq(y, prune_reshape=True)]
    assert pruned == ["Host2DeviceCopy", "Elemwise", "Reshape", "Elemwise"] and "GetVarShape" in types
    about = loaded.metadata
    assert (y.name, about.is_valid, about.graph_modified, about.optimized_for_inference) == ("y", True, False, True)


def test_inputs_and_outputs_are_converted() -> None:
    file = saved(lambda a, b: a - b, mge.tensor([1.0]), mge.tensor([2.0]), names=["a", "b"])
    loaded = G.load_graph(file)
    results, inputs = cgtools.convert_inputs(loaded.output_vars_list)
    results, outputs = cgtools.convert_outputs(results)
    func = loaded.graph.compile(*results)
    inputs["a"].set_value(np.array([7.0], "float32"))
    inputs["b"].set_value(mge.tensor([5.0]))
    func.execute()
    assert [o.get_value().item() for o in outputs.values()] == [2]
    G.set_priority_to_id(results)


def test_options_of_inference() -> None:
    graph = G.Graph()
    (y,) = G.apply_normal_varnode(builtin.Elemwise("exp"), graph.make_h2d(dtype="float32", shape=(1,)))
    (same,), bits = G.optimize_for_inference([y], enable_fuse_conv_bias_nonlinearity=True)
    assert (same.name, same.op.params, same.shape) == (y.name, {"mode": "EXP"}, y.shape)
    assert G.deserialize_infer_option(bits) == {"enable_fuse_conv_bias_nonlinearity": True, "enable_fuse_grain": True}
    out = G.OutputNode(same)
    same.graph.compile(same).execute(np.zeros(1, "float32"))
    assert out.get_value().item() == 1
    with pytest.raises(ValueError, match=r"unknown options: \['foo'\]"):
        G.optimize_for_inference([y], foo=True)


def test_how_kernels_are_chosen() -> None:
    graph = G.Graph()
    x = graph.make_h2d(dtype="float32", shape=(1,), name="x")
    (y,) = G.apply_normal_varnode(builtin.Elemwise("exp"), x)
    out = G.OutputNode(y)
    names = {"HEURISTIC": 1, "heuristic_reproducible": 5, "HEURISTIC | REPRODUCIBLE": 5, "PROFILE_REPRODUCIBLE": 6}
    for strategy, number in names.items():
        G.modify_opr_algo_strategy_inplace([x], strategy)
        assert graph._strategy == number
        graph.compile(y).execute(np.zeros(1, "float32"))
        assert out.get_value().item() == 1
    with pytest.raises(ValueError, match="no strategy 'FASTEST'; there are HEURISTIC"):
        G.modify_opr_algo_strategy_inplace([x], "FASTEST")


def test_ops_that_draw_and_ops_made_of_steps() -> None:
    graph = G.Graph()
    shape = graph.make_const(np.array([2000], "int32"))
    (u,) = G.apply_normal_varnode(builtin.UniformRNG(), shape)
    out = G.OutputNode(u)
    graph.compile(u).execute()
    value = out.get_value().numpy()
    assert value.shape == (2000,) and 0 <= value.min() and value.max() < 1 and abs(value.mean() - 0.5) < 0.05
    mge.random.uniform(size=(2,)).numpy()  # the generator of the process is as it was


def test_json(tmp_path: pathlib.Path) -> None:
    graph = G.Graph()
    x = graph.make_h2d(dtype="float32", shape=(2,), name="x")
    (y,) = G.apply_normal_varnode(builtin.Elemwise("exp"), x)
    graph._to_json(tmp_path / "graph.json")
    found = json.loads((tmp_path / "graph.json").read_text())
    assert found["operator"] and found["var"]


def test_inference_with_profiling_options_and_inner_variables() -> None:
    file = saved(lambda x: F.exp(x) + 1, mge.tensor([1.0, 2.0]), names=["x"])
    net = Network.load(file)
    net.output_vars[0].owner.inputs[0].name = "inner"
    file = io.BytesIO()
    net.dump(file, keep_var_name=2)
    x = np.array([0.0, 1.0], "float32")
    run = cgtools.GraphInference(io.BytesIO(file.getvalue()), outputs=["inner"]).run(x)
    assert list(run) == ["inner"]
    np.testing.assert_allclose(run["inner"], np.exp(x), rtol=1e-6)
    unnamed = saved(lambda x: F.exp(x) + 1, mge.tensor([1.0, 2.0]), names=["x"])  # the file keeps no inner names
    ops = Network.load(io.BytesIO(unnamed.getvalue())).all_oprs
    (inner,) = (op.outputs[0].name for op in ops if op.params.get("mode") == "EXP")
    np.testing.assert_array_equal(cgtools.GraphInference(unnamed, outputs=[inner]).run(x)[inner], run["inner"])
    timed = cgtools.GraphInference(io.BytesIO(file.getvalue()), profiling=True)
    with pytest.raises(RuntimeError, match="nothing has run yet"):
        timed.get_profile()
    timed.run(x)
    assert "graph_exec" in timed.get_profile()
    better = cgtools.GraphInference(io.BytesIO(file.getvalue()), optimize_for_inference=True, enable_fuse_grain=True)
    np.testing.assert_allclose(better.run(x)["y"], np.exp(x) + 1, rtol=1e-6)
    with pytest.raises(ValueError, match="unknown options"):
        cgtools.GraphInference(io.BytesIO(file.getvalue()), optimize_for_inference=True, foo=True)
    with pytest.raises(ValueError, match="enable_io16xc32 need optimize_for_inference"):
        cgtools.GraphInference(io.BytesIO(file.getvalue()), enable_io16xc32=True)
    with pytest.raises(RuntimeError, match="profiling=True"):
        better.get_profile()


def test_what_is_refused_says_what_to_do() -> None:
    graph, other = G.Graph(), G.Graph()
    x = graph.make_h2d(dtype="float32", shape=(2,), name="x")
    z = other.make_h2d(dtype="float32", shape=(2,), name="z")
    with pytest.raises(ValueError, match="belongs to another graph"):
        G.apply_normal_varnode(builtin.Elemwise("add"), x, z)
    with pytest.raises(TypeError, match="variables of a graph are needed; got Tensor"):
        G.apply_normal_varnode(builtin.Elemwise("exp"), mge.tensor([1.0]))  # type: ignore[arg-type]
    free = other.make_h2d(dtype="float32", name="free")
    with pytest.raises(ValueError, match=r"dump_graph: 'free' was made without a shape.*Give shape="):
        G.dump_graph(G.apply_normal_varnode(builtin.Elemwise("exp"), free))
    with pytest.raises(RuntimeError, match="input 'free' has neither shape nor value"):
        other.compile(free)()
    with pytest.raises(ValueError, match=r"MatrixMul.* without a shape are not known .*Give shape= to 'free'"):
        G.apply_normal_varnode(builtin.MatrixMul(), free, other.make_const(np.ones((2, 3), "float32")))
    with pytest.raises(ValueError, match="CondTake: the mask must be a bool tensor"):
        G.apply_normal_varnode(builtin.CondTake(), free, free)
    with pytest.raises(RuntimeError, match="nothing is compiled"):
        graph.execute()
    (two,) = G.apply_normal_varnode(builtin.Elemwise("add"), x, graph.make_h2d(dtype="float32", shape=(2,), name="x"))
    with pytest.raises(ValueError, match="two inputs are named 'x'"):
        graph.compile(two)
    two.op.inputs[1].name = "other"
    graph.compile(two)
    (y,) = G.apply_normal_varnode(builtin.Elemwise("exp"), x)
    with pytest.raises(RuntimeError, match="input 'x' has no value"):
        graph.compile(y).execute()
    with pytest.raises(RuntimeError, match="has no value yet"):
        G.OutputNode(y).get_value()
    with pytest.raises(ValueError, match="dump_format is None, 'FBS_V2' or 'FBS'; got 'XML'"):
        G.dump_graph([y], dump_format="XML")
    with pytest.raises(ValueError, match="inner sizes differ|matmul"):
        G.apply_normal_varnode(builtin.MatrixMul(), *(graph.make_const(np.ones((2, 3), "float32")) for _ in "ab"))
    with pytest.raises(RuntimeError):
        G.load_graph(io.BytesIO(b"not a model"))


def test_inputs_without_a_shape_take_what_they_are_given() -> None:
    graph = G.Graph()
    a, b = (G.InputNode(device="xpux", dtype="float32", graph=graph) for _ in "ab")
    (y,) = G.apply_normal_varnode(builtin.MatrixMul(dimA=2, dimB=2), a.outputs[0], b.outputs[0])
    (mask,) = G.apply_normal_varnode(builtin.TypeCvt(dtype="bool"), y)
    values, indices = G.apply_normal_varnode(builtin.CondTake(), y, mask)
    (z,) = G.apply_normal_varnode(builtin.Elemwise("add"), y, graph.make_const(np.float32(1)))
    assert (y.shape, y.dtype, z.name) == (None, np.float32, "ADD")
    out, attr, taken = G.OutputNode(z), G.AttrOutputNode(y), G.ValueOutputNode(values)
    func = graph.compile(out.outputs[0], attr.outputs[0], taken.outputs[0])
    for n in (3, 1, 3):
        x, w = np.full((n, 2), 2.0, "float32"), np.ones((2, n + 1), "float32")
        a.set_value(mge.tensor(x)._dev_tensor())
        b.set_value(w)
        func()
        np.testing.assert_array_equal(out.get_value().numpy(), x @ w + 1)
        assert attr.get_value().shape == (n, n + 1) == y.shape
        assert taken.get_value().shape == (n * (n + 1),) and indices.dtype == np.int32
    assert list(G.dump_graph([z])[1].inputs) == [a.name, b.name]


def test_an_input_without_a_shape_may_change_its_rank() -> None:
    graph = G.Graph()
    a = G.InputNode(dtype="float32", graph=graph)
    (y,) = G.apply_normal_varnode(builtin.Reduce(mode="sum", axis=0), a.outputs[0])
    out = G.OutputNode(y)
    func = graph.compile(out.outputs[0])
    for shape in ((2, 3), (4,), (2, 3, 4)):
        x = np.arange(np.prod(shape), dtype="float32").reshape(shape)
        a.set_value(x)
        func.execute()
        np.testing.assert_array_equal(out.get_value().numpy(), x.sum(0, keepdims=True))


@pytest.mark.parametrize("dump_format", [None, "FBS", "FBS_V2"])
def test_loaded_graphs_have_the_names_of_outputs_and_metadata(dump_format: str | None) -> None:
    f = trace(lambda x: (x + 1, x * 2), symbolic=True, capture_as_const=True)
    f(mge.tensor([1.0]))
    file = io.BytesIO()
    f.dump(file, output_names=["p", "q"], user_info={"a": 1}, enable_fuse_preprocess=True, dump_format=dump_format)
    loaded = G.load_graph(io.BytesIO(file.getvalue()))
    assert [v.name for v in loaded.output_vars_list] == ["p", "q"] == list(loaded.output_vars_dict)
    metadata = loaded.metadata
    assert isinstance(metadata, G.SerializationMetadata)
    assert (metadata.is_valid, metadata.graph_modified, metadata.optimized_for_inference) == (True, False, True)
    assert metadata.optimize_options == 32 + 64 and pickle.loads(metadata.user_info) == {"a": 1}
    metadata.user_info, metadata.graph_modified = pickle.dumps([2]), True
    again, _ = G.dump_graph(loaded.output_vars_list, metadata=metadata, dump_format=dump_format)
    found = Network.load(io.BytesIO(again)).metadata
    assert found is not None and (found["user_info"], found["enable_fuse_preprocess"]) == ([2], True)
    file = io.BytesIO()
    f.dump(file, enable_metadata=False, dump_format=dump_format)
    assert not G.load_graph(io.BytesIO(file.getvalue())).metadata.is_valid


def test_nodes_know_the_line_that_made_them() -> None:
    graph = G.Graph()
    x = graph.make_h2d(dtype="float32", shape=(2,), name="x")
    G.apply_normal_varnode(builtin.Elemwise("exp"), x)
    assert "test_graph_nodes.py" in graph.text and "test_nodes_know_the_line" in graph.text
