"""Traced functions, and writing them as files."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from mistake import mistake

import megengine.functional as F
import megengine.module as M
from megengine import Tensor
from megengine.autodiff import GradManager
from megengine.core._core import TraceError
from megengine.jit import SublinearMemoryConfig, exclude_from_trace, trace

FOLDER = Path(tempfile.mkdtemp())
X = Tensor(np.ones((2, 3), "float32"))


def traced(**options):
    return trace(symbolic=True, capture_as_const=True, **options)


@mistake(TraceError, "exp", "log", "mistakes_traced.py:", "exclude_from_trace")
def another_op_in_a_later_call():
    calls = []

    @trace
    def f(x):
        calls.append(0)
        return F.exp(x) if len(calls) < 3 else F.log(x)  # here

    for _ in range(3):
        f(X)


@mistake(TraceError, "ends", "exp", "exclude_from_trace")
def an_op_less_in_a_later_call():
    calls = []

    @trace
    def f(x):
        calls.append(0)
        y = x + 1
        return F.exp(y) if len(calls) < 3 else y

    for _ in range(3):
        f(X)  # here


@mistake(TraceError, "log", "exclude_from_trace")
def an_op_more_in_a_later_call():
    calls = []

    @trace
    def f(x):
        calls.append(0)
        y = F.exp(x)
        return y if len(calls) < 3 else F.log(y)  # here

    for _ in range(3):
        f(X)


@mistake(TraceError, "reduce", "axes", "exclude_from_trace")
def another_attribute_in_a_later_call():
    calls = []

    @trace
    def f(x):
        calls.append(0)
        return F.sum(x, axis=0 if len(calls) < 3 else 1)  # here

    for _ in range(3):
        f(X)


@mistake(TraceError, "data unreadable", "F.where", "without_host=True")
def value_read_in_a_replayed_function():
    @trace(without_host=True)
    def step(x):
        if x.sum().numpy() > 0:  # here
            return x * 2
        return x

    for _ in range(4):
        step(X)


@mistake(RuntimeWarning, "trace: step", "without_host=True", "random numbers of NumPy", "megengine.random")
def numpy_random_in_a_replayed_function():
    @trace(without_host=True)
    def step(x):
        return x * np.random.rand()

    for _ in range(4):
        step(X)  # here


@mistake(RuntimeWarning, "trace: step", "without_host=True", "inside the function")
def replayed_function_inside_a_record():
    w = M.Linear(3, 1)

    @trace(without_host=True)
    def step(x):
        return w(x).mean()

    gm = GradManager().attach(w.parameters())
    for _ in range(3):
        with gm:
            gm.backward(step(X))  # here


@mistake(RuntimeWarning, "trace: step", "recorded more than 32", "as Tensors")
def a_number_that_changes_as_an_argument():
    @trace(without_host=True)
    def step(x, scale):
        return x * scale

    for i in range(40):
        step(X, float(i))  # here


@mistake(AssertionError, "trace", "tensor", "capture_as_const", "float")
def a_number_as_an_argument_of_a_function_to_dump():
    @traced()
    def f(x, scale):
        return x * scale

    f(X, 2.0)


@mistake(ValueError, "dump", "f", "capture_as_const=True")
def dump_without_capture_as_const():
    f = trace(lambda x: x * 2, symbolic=True)
    f(X)
    f.dump(FOLDER / "f.mge")


@mistake(ValueError, "dump", "called")
def dump_before_the_first_call():
    traced()(lambda x: x * 2).dump(FOLDER / "f.mge")


@mistake(RuntimeError, "dump", "running_mean", "BatchNorm2d", "net.eval()")
def dump_batch_norm_in_training_mode():
    net = M.Sequential(M.Conv2d(3, 4, 3), M.BatchNorm2d(4))
    f = traced()(lambda x: net(x))
    f(F.ones((1, 3, 8, 8)))
    f.dump(FOLDER / "f.mge")


@mistake(RuntimeError, "dump", "Dropout", "training mode", "net.eval()")
def dump_dropout_in_training_mode():
    net = M.Sequential(M.Linear(3, 4), M.Dropout(0.5))
    f = traced()(lambda x: net(x))
    f(X)
    f.dump(FOLDER / "f.mge")


@mistake(ValueError, "dump", "arg_names", "2", "1")
def dump_with_too_many_names():
    f = traced()(lambda x: x * 2)
    f(X)
    f.dump(FOLDER / "f.mge", arg_names=["x", "y"])


@mistake(ValueError, "dump", "output_names", "2", "1")
def dump_with_too_many_output_names():
    f = traced()(lambda x: x * 2)
    f(X)
    f.dump(FOLDER / "f.mge", output_names=["y", "z"])


@mistake(ValueError, "dump", "twice", "'x'")
def dump_with_a_name_twice():
    f = traced()(lambda x, y: x * y)
    f(X, X)
    f.dump(FOLDER / "f.mge", arg_names=["x", "x"])


@mistake(ValueError, "dump", "optimise_for_inference", "optimize_for_inference")
def dump_with_a_misspelt_option():
    f = traced()(lambda x: x * 2)
    f(X)
    f.dump(FOLDER / "f.mge", optimise_for_inference=True)


@mistake(ValueError, "dump", "return")
def dump_a_function_that_returns_nothing():
    @traced()
    def f(x):
        x * 2

    f(X)
    f.dump(FOLDER / "f.mge")


@mistake(ValueError, "dump", "dump_format", "'FBS_V2'", "'ONNX'")
def dump_in_a_format_that_is_not_there():
    f = traced()(lambda x: x * 2)
    f(X)
    f.dump(FOLDER / "f.mge", dump_format="ONNX")


@mistake(NotImplementedError, "trace", "sublinear_memory_config", "checkpoint")
def trace_with_an_option_that_is_not_there():
    trace(lambda x: x, sublinear_memory_config=SublinearMemoryConfig())


@mistake(TypeError, "trace", "symbolik", "symbolic")
def trace_with_a_misspelt_option():
    trace(symbolik=True)(lambda x: x)


@mistake(TypeError, "trace", "Tensor", "callable")
def trace_of_a_tensor():
    trace(X)


@mistake(ValueError, "Linear", "in_features=3", "(2, 5)")
def replay_with_another_size():
    net = M.Linear(3, 2)

    @trace(without_host=True)
    def f(x):
        return net(x)  # here

    for size in (3, 3, 5):
        f(F.ones((2, size)))


@mistake(ValueError, "add", "[2,3]", "[4,3]")
def replay_with_arguments_that_do_not_broadcast():
    @trace(without_host=True)
    def f(x, y):
        return x + y  # here

    for size in (2, 2, 4):
        f(X, F.ones((size, 3)))


@mistake(IndexError, "7", "4")
def replay_with_an_index_that_is_not_there():
    table = F.ones((4, 2))

    @trace(without_host=True)
    def f(i):
        return F.nn.embedding(i, table)  # here

    for i in (1, 1, 7):
        f(Tensor([i])).numpy()


@mistake(RuntimeError, "exclude_from_trace", "dump")
def dump_of_a_function_with_a_part_excluded():
    @traced()
    def f(x):
        with exclude_from_trace():
            y = Tensor(x.numpy() * 2)
        return y * 2

    f(X)
    f.dump(FOLDER / "f.mge")


@mistake(TypeError, "dump", "'x'", "list", "Dict[str, Tensor]")
def dump_a_dict_of_lists():
    f = traced()(lambda a: {"x": [a, a * 2]})
    f(X)
    f.dump(FOLDER / "f.mge")


@mistake(TypeError, "trace", "graph_opt_config", "GraphOptimizationConfig", "'fast'")
def trace_with_options_that_are_a_text():
    trace(lambda x: x, graph_opt_config="fast")


@mistake(ValueError, "trace", "opt_level", "2.0")
def trace_with_half_a_level():
    trace(lambda x: x, opt_level=2.0)


def dumped(**options):
    f = traced()(lambda x: x * 2)
    f(X)
    f.dump(options.pop("file", FOLDER / "f.mge"), **options)


@mistake(TypeError, "dump", "file", "None")
def dump_to_nothing():
    dumped(file=None)


@mistake(TypeError, "dump", "arg_names", "texts", "5")
def dump_with_a_number_for_a_name():
    dumped(arg_names=[5])


@mistake(TypeError, "dump", "strip_info_file", "5")
def dump_with_a_number_for_a_file():
    dumped(strip_info_file=5)


@mistake(TypeError, "dump", "input_data", "list", "5")
def dump_with_a_number_for_cases():
    dumped(input_data=5)


@mistake(TypeError, "dump", "input_data", "each a text", "array")
def dump_with_an_array_for_a_case():
    dumped(input_data=[np.ones((2, 3), "float32")])


@mistake(ValueError, "dump", "repeat", "at least once", "0")
def dump_with_cases_repeated_never():
    dumped(input_data=["#rand(0, 1)"], repeat=0)


@mistake(ValueError, "dump", "maxerr", "at least 0", "-1")
def dump_with_an_error_below_nothing():
    dumped(input_data=["#rand(0, 1)"], maxerr=-1)
