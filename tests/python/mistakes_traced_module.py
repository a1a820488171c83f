"""Modules that cannot be traced, and graphs used wrongly."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

import numpy as np
from mistake import mistake

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor
from megengine.autodiff import Function
from megengine.traced_module import optimize, register_supported_type, trace_module, wrap

FOLDER = Path(tempfile.mkdtemp())
X = Tensor(np.ones((2, 3), "float32"))


class Base(M.Module):
    def __init__(self):
        super().__init__()
        self.fc = M.Linear(3, 3)
        self.scale = Tensor([2.0])
        self.log = []

    def forward(self, x):
        return self.fc(x)


GOOD = trace_module(Base(), X)


@mistake(AssertionError, "trace_module", "needs a Module", "function")
def tracing_a_function():
    trace_module(F.relu, X)


@mistake(TypeError, "missing required positional arguments: x")
def tracing_without_arguments():
    trace_module(Base())


@mistake(AssertionError, "trace_module", "Net", "'fc'", "local variable")
def a_module_that_is_exchanged_in_forward():
    class Net(Base):
        def forward(self, x):
            self.fc = M.Linear(3, 3)  # here
            return self.fc(x)

    trace_module(Net(), X)


@mistake(AssertionError, "tensor attribute 'scale'", "local variable")
def a_buffer_that_is_exchanged_in_forward():
    class Net(Base):
        def forward(self, x):
            self.scale = self.scale * 0.9  # here
            return x * self.scale

    trace_module(Net(), X)


@mistake(RuntimeError, "Net.scale", "in place", "copy")
def a_buffer_that_is_changed_in_place_in_forward():
    class Net(Base):
        def forward(self, x):
            self.scale[0] = 3  # here
            return x * self.scale

    trace_module(Net(), X)


@mistake(ValueError, "same container", "Linear", "int", "two containers")
def modules_and_numbers_in_one_list():
    class Net(Base):
        def __init__(self):
            super().__init__()
            self.parts = [M.Linear(3, 3), 3]

        def forward(self, x):
            return self.parts[0](x)  # here

    trace_module(Net(), X)


@mistake(AssertionError, "return values", "<class 'int'>", "Tensor", "Net")
def a_number_in_the_result():
    class Net(Base):
        def forward(self, x):
            return x, 3

    trace_module(Net(), X)


@mistake(AssertionError, "register_supported_type", "Path")
def an_argument_of_an_unknown_type():
    trace_module(Base(), FOLDER)


@mistake(RuntimeError, "no attribute of the traced module", "Linear", "__init__")
def a_layer_made_in_forward():
    class Net(Base):
        def forward(self, x):
            return M.Linear(3, 3)(x)  # here

    trace_module(Net(), X)


@mistake(RuntimeError, "not recorded", "(2, 3)", "wrap")
def a_function_that_is_hidden_from_the_trace():
    hidden = [F.exp]

    class Net(Base):
        def forward(self, x):
            return hidden[0](x) + 1  # here

    trace_module(Net(), X)


@mistake(RuntimeError, "Net.inner", "without being handed over", "argument")
def a_tensor_that_goes_around_the_arguments():
    kept = []

    class Inner(M.Module):
        def forward(self, x):
            return x * kept[0]  # here

    class Net(M.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            kept.append(x + 1)
            return self.inner(x)

    trace_module(Net(), X)


@mistake(RuntimeError, "changed in place by Net.inner", "return it")
def an_argument_that_a_submodule_changes():
    class Inner(M.Module):
        def forward(self, x):
            x[0] = 0
            return x + 1

    class Net(M.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            y = x * 1
            return self.inner(y) + y  # here

    trace_module(Net(), X)


@mistake(RuntimeError, "Net.inner", "computes something else", "argument")
def a_submodule_that_changes_from_call_to_call():
    class Inner(M.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x + self.calls

    class Net(M.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            return self.inner(self.inner(x))  # here

    trace_module(Net(), X)


@mistake(NotImplementedError, "autodiff.Function", "Twice", "wrap")
def a_custom_gradient_in_forward():
    class Twice(Function):
        def forward(self, x):
            return x * 2

        def backward(self, dy):
            return dy * 2

    class Net(Base):
        def forward(self, x):
            return Twice()(x)  # here

    trace_module(Net(), X)


COUNT = [0]


@wrap
def counted(x):
    COUNT[0] += 1
    return x * COUNT[0]


@mistake(AssertionError, "differs from the module", "largest difference is 1", "disable_default_checker")
def a_result_that_is_another_each_time():
    class Net(Base):
        def forward(self, x):
            return counted(x)

    trace_module(Net(), X)


@mistake(NotImplementedError, "wrap", "top level", "inner")
def wrapping_a_function_inside_another():
    def inner(x):
        return x

    wrap(inner)


@mistake(TypeError, "wrap", "written in Python", "len")
def wrapping_a_builtin():
    wrap(len)


@mistake(ValueError, "register_supported_type", "both flatten_fn and unflatten_fn")
def half_of_a_container():
    register_supported_type(Path, lambda p: ([], None))


@mistake(AssertionError, "support input args kwargs format", "forward(Module, Tensor)", "Module, [Tensor, Tensor]")
def calling_with_another_form_of_arguments():
    GOOD([X, X])


@mistake(AssertionError, "register_supported_type", "Path")
def calling_with_an_unknown_type():
    GOOD(FOLDER)


@mistake(AssertionError, "only supports top graph")
def an_input_for_a_submodule():
    outer = trace_module(M.Sequential(M.Sequential(M.ReLU())), X)
    getattr(outer, "0").graph.add_input_node((2, 3))


@mistake(AssertionError, "name(fc) is already in use")
def a_name_that_is_taken():
    GOOD.graph.outputs[0].name = "fc"


@mistake(RuntimeError, "is a node", "insert_exprs")
def computing_with_nodes_outside():
    GOOD.graph.outputs[0] + 1


@mistake(AttributeError, "'fc'", "insert_exprs")
def an_attribute_of_a_module_node_outside():
    print(GOOD.graph.inputs[0].fc)


@mistake(AssertionError, "must be nodes of Base")
def replacing_a_node_of_another_graph():
    other = trace_module(Base(), X)
    GOOD.graph.replace_node({GOOD.graph.outputs[0]: other.graph.outputs[0]})


@mistake(AssertionError, "no node of this module", "set_end_points")
def an_end_point_of_another_module():
    other = trace_module(Base(), X)
    GOOD.set_end_points(other.graph.outputs)


@mistake(AssertionError, "Doesn't support set args/kwargs for GetAttr")
def arguments_for_an_attribute():
    GOOD.graph.exprs().as_list()[2].set_args_kwargs(1)


@mistake(AssertionError, "optimize", "no pass 'FuseAll'", "FuseConvBn")
def a_pass_that_is_not_there():
    optimize(GOOD, "FuseAll")


@mistake(AssertionError, "optimize", "needs a TracedModule", "Base")
def optimizing_a_module():
    optimize(Base())


@mistake(AssertionError, "attribute", "ReLU.folder", "register_supported_type")
def saving_an_attribute_that_no_file_can_keep():
    traced = trace_module(M.Sequential(M.ReLU()), X)
    getattr(traced, "0").folder = FOLDER
    mge.save(traced, FOLDER / "bad.tm")


@mistake(AssertionError, "ReLU", "hooks", "Remove them")
def saving_hooks():
    traced = trace_module(M.Sequential(M.ReLU()), X)
    getattr(traced, "0").register_forward_hook(print)
    mge.save(traced, FOLDER / "hooks.tm")


@mistake(pickle.UnpicklingError, "cut short", "another copy")
def a_file_that_is_cut_short():
    mge.save(GOOD, FOLDER / "good.tm")
    (FOLDER / "cut.tm").write_bytes((FOLDER / "good.tm").read_bytes()[:2000])
    mge.load(FOLDER / "cut.tm")


@mistake(pickle.UnpicklingError, "os.system", "not a function of megengine.functional", "wrap")
def a_file_that_calls_something_else():
    traced = trace_module(M.Sequential(M.ReLU()), X)
    with traced.graph.insert_exprs():
        y = F.exp(traced.graph.outputs[0])
    y.expr.func = Evil()
    traced.graph.reset_outputs(y)
    mge.save(traced, FOLDER / "evil.tm")
    mge.load(FOLDER / "evil.tm")


class Evil:
    __module__, __qualname__, __name__ = "os", "system", "system"
