"""Graphs that are edited, custom operators."""

from __future__ import annotations

import io

import numpy as np
from mistake import mistake

import megengine as mge
import megengine.functional as F
import megengine.utils.network_node as N
from megengine.core.ops import custom
from megengine.jit import trace
from megengine.utils import custom_op_tools
from megengine.utils.network import Network


def loaded(function=lambda a, b: F.relu((a + b) * 2)) -> Network:
    f = trace(function, symbolic=True, capture_as_const=True)
    f(mge.Tensor(np.ones((2, 3), "float32")), mge.Tensor(np.ones((2, 3), "float32") * 2))
    file = io.BytesIO()
    f.dump(file, arg_names=["a", "b"], output_names=["o"])
    file.seek(0)
    return Network.load(file)


@mistake(TypeError, "load_graph", "path", "5")
def loaded_from_a_number():
    Network.load(5)


@mistake(TypeError, "dump", "file", "None")
def dumped_to_nothing():
    loaded().dump(None)


@mistake(TypeError, "ADD", "5", "inputs", "variables", "make_const")
def a_number_for_an_input():
    net = loaded()
    net.opr_filter.type(N.Elemwise).as_list()[0].inputs[0] = 5
    net.dump(io.BytesIO())


@mistake(ValueError, "variable 'o'", "no value", "GraphInference")
def variable_of_a_graph_is_read():
    loaded().output_vars[0].numpy()


@mistake(ValueError, "replace_vars", "circle", "RELU")
def replaced_by_what_is_computed_from_it():
    net = loaded()
    net.replace_vars({net.input_vars[0]: net.output_vars[0]})


@mistake(ValueError, "replace_vars", "ADD", "[4,3]", "broadcast")
def replaced_by_a_constant_of_another_shape():
    net = loaded()
    net.replace_vars({net.input_vars[0]: net.make_const(np.ones((4, 3)), name="c")})


@mistake(ValueError, "MatrixMul", "float32", "uint8", "astype")
def image_put_in_without_a_cast():
    net = loaded(lambda a, b: F.matmul(a, b, transpose_b=True))
    net.replace_vars({net.input_vars[0]: net.make_input_node((2, 3), "uint8", name="image")})


@mistake(AssertionError, "not compatible with VarNode")
def replaced_by_an_array():
    net = loaded()
    net.replace_vars({net.input_vars[0]: np.ones((2, 3))})


@mistake(ValueError, "two outputs", "'o'", "Rename")
def two_outputs_of_one_name():
    net = loaded()
    more = F.exp(net.input_vars[0])
    more.name = "o"
    net.add_output(more)
    net.dump(io.BytesIO())


@mistake(ValueError, "no outputs", "add_output")
def dumped_without_outputs():
    net = loaded()
    net.remove_output(*net.output_vars)
    net.dump(io.BytesIO())


@mistake(ValueError, "unknown options", "enable_everything")
def dumped_with_an_unknown_option():
    loaded().dump(io.BytesIO(), enable_everything=True)


@mistake(ValueError, "as_unique", "got 3", "ADD")
def unique_of_several():
    loaded().opr_filter.type(N.Elemwise).as_unique()


@mistake(TypeError, "Elemwise", "network_node")
def filter_by_the_name_of_a_class():
    loaded().opr_filter.type("Elemwise")


@mistake(AssertionError, "reset_batch_size", "no input c", "a, b")
def blacklist_of_an_input_that_is_not_there():
    loaded().reset_batch_size(4, blacklist=["c"])


@mistake(RuntimeError, "model")
def not_a_model_file():
    Network.load(io.BytesIO(b"hello"))


@mistake(FileNotFoundError, "custom.load", "/nowhere.so")
def custom_library_that_is_not_there():
    custom.load("/nowhere.so")


@mistake(RuntimeError, "custom.load", "cannot load", "mistakes_network.py")
def custom_library_that_is_none():
    custom.load(__file__)


@mistake(AttributeError, "no operator 'Scale'", "loaded are none")
def custom_operator_that_is_not_loaded():
    custom.Scale(scale=2.0)


@mistake(NotImplementedError, "cutmix_forward", "CUDA")
def custom_operator_of_the_original_for_cuda():
    custom.cutmix_forward()


@mistake(TypeError, "sources", "['scale.cpp']")
def custom_source_that_is_not_in_a_list():
    custom_op_tools.build("scale", "scale.cpp")


@mistake(FileNotFoundError, "no source", "scale.cpp")
def custom_source_that_is_not_there():
    custom_op_tools.build("scale", ["scale.cpp"])
