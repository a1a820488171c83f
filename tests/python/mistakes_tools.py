"""Profiling, graphs by hand, private names."""

from __future__ import annotations

import numpy as np
from mistake import mistake

import megengine as mge
import megengine.core.tensor.megbrain_graph as G
from megengine.core._imperative_rt import core2
from megengine.core.ops import builtin
from megengine.core.tensor.utils import subgraph_fn
from megengine.experimental import get_scaled_model
from megengine.functional.elemwise import _elwise
from megengine.jit import trace
from megengine.module import Linear
from megengine.tools import graph_view
from megengine.utils import comp_graph_tools as cgtools
from megengine.utils.profile_analyzer import ProfileAnalyzer, TimeFuncHelper
from megengine.utils.profiler import Profiler, merge_trace_events


def graph_with_input():
    graph = G.Graph()
    return graph, graph.make_h2d(dtype="float32", shape=(2, 3), name="x")


@mistake(AssertionError, "html", "chrome_timeline.json")
def profiler_format_that_does_not_exist():
    Profiler(format="html")


@mistake(TypeError, "sampel_rate", "sample_rate")
def profiler_option_misspelt():
    Profiler(sampel_rate=2)


@mistake(RuntimeError, "nothing was recorded", "start")
def profiler_dumped_before_it_ran():
    Profiler().dump()


@mistake(FileNotFoundError, "/nowhere")
def merging_a_folder_that_is_not_there():
    merge_trace_events("/nowhere")


@mistake(RuntimeError, "conv1", "innermost", "none is open")
def pop_of_a_scope_that_is_not_open():
    core2.pop_scope("conv1")


@mistake(ValueError, "asynk_level")
def option_misspelt():
    core2.set_option("asynk_level", 0)


@mistake(RuntimeError, "relux", "RELU")
def elementwise_mode_misspelt():
    _elwise(mge.tensor([1.0]), mode="relux")


@mistake(ValueError, "mine", "plus", "+")
def subgraph_with_an_op_that_does_not_exist():
    subgraph_fn("mine", "float32", None, 2)(lambda i, f, c: ((f("plus", *i),), (True,)))


@mistake(TypeError, "mine", "2 tensors", "got 1")
def subgraph_called_with_too_few():
    f = subgraph_fn("mine", "float32", None, 2)(lambda i, f, c: ((f("+", *i),), (True,)))
    f(mge.tensor([1.0]))


@mistake(ValueError, "dump_graph", "'x'", "shape=")
def dumped_graph_with_an_input_without_a_shape():
    x = G.Graph().make_h2d(dtype="float32", name="x")
    G.dump_graph(G.apply_normal_varnode(builtin.Elemwise("exp"), x))


@mistake(RuntimeError, "Graph.execute", "'x'", "shape", "set its value")
def graph_input_without_shape_and_value():
    graph = G.Graph()
    graph.compile(graph.make_h2d(dtype="float32", name="x")).execute()


@mistake(TypeError, "variables of a graph", "Tensor")
def tensor_in_a_graph():
    G.apply_normal_varnode(builtin.Elemwise("exp"), mge.tensor([1.0]))


@mistake(ValueError, "another graph")
def variables_of_two_graphs():
    G.apply_normal_varnode(builtin.Elemwise("add"), graph_with_input()[1], graph_with_input()[1])


@mistake(RuntimeError, "compile")
def execute_before_compile():
    graph_with_input()[0].execute()


@mistake(RuntimeError, "'x'", "no value")
def execute_without_a_value():
    graph, x = graph_with_input()
    graph.compile(*G.apply_normal_varnode(builtin.Elemwise("exp"), x)).execute()


@mistake(ValueError, "matmul", "[2,3]", "[2,3]")
def graph_product_that_does_not_fit():
    graph, x = graph_with_input()
    G.apply_normal_varnode(builtin.MatrixMul(), x, graph.make_const(np.ones((2, 3), "float32")))


@mistake(AssertionError, "no y", "x")
def name_that_the_graph_does_not_have():
    cgtools.find_vars_by_name(graph_with_input()[1], ["y"])


@mistake(ValueError, "conv9", "it has")
def scaled_layer_that_does_not_exist():
    get_scaled_model(mge.module.Sequential(mge.module.Conv2d(1, 1, 1)), {"conv9": ("CONST", 2)}, (1, 1, 2, 2))


@mistake(TypeError, "Linear", "trace", "TracedModule")
def drawing_a_module_that_was_not_traced():
    graph_view.write(Linear(2, 3), "page.html")


@mistake(ValueError, "not been called", "Call it once")
def drawing_a_trace_that_was_not_called():
    graph_view.write(trace(lambda x: x), "page.html")


@mistake(AssertionError, "must specify aggregate op")
def profile_aggregated_by_type_without_saying_how():
    profile = {"graph_exec": {"operator": {}, "var": {}}, "profiler": {"device": {}, "host": {}, "opr_footprint": {}}}
    ProfileAnalyzer(profile).select(TimeFuncHelper.eval_time_func("device", "end", max), aggregate_by="type")
