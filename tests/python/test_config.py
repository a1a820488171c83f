"""config, engine options, logging, small utilities."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys

import numpy as np
import pytest

import megengine as mge
from megengine import Tensor, config, core
from megengine.core import _trace_option
from megengine.core._imperative_rt import core2
from megengine.core.tensor import dtype as D
from megengine.core.tensor import utils as U
from megengine.functional import debug_param
from megengine.logger import MegEngineLogFormatter, call_countlog_func, replace_mgb_log_level, set_mgb_log_level
from megengine.utils.future import Future
from megengine.utils.hook import HookHandler
from megengine.utils.naming import AutoNaming
from megengine.utils.tuple_function import _pair, _pair_nonzero, get_ndtuple


@pytest.fixture(autouse=True)
def nothing_changes():
    names = ["async_level", *core._kept]
    before = [core.get_option(n) for n in names]
    settings = [config.benchmark_kernel, config.deterministic_kernel, config._compute_mode]
    yield
    assert before == [core.get_option(n) for n in names]
    assert settings == [config.benchmark_kernel, config.deterministic_kernel, config._compute_mode]


def test_defaults():
    assert config.async_level == 2
    assert not config.benchmark_kernel and not config.deterministic_kernel and not config.disable_memory_forwarding
    assert config._compute_mode == "default" and config._auto_format_convert is True
    config.benchmark_with_subprocess = True
    assert config.benchmark_with_subprocess is False


def test_async_level():
    for level in (0, 1, 2):
        config.async_level = level
        assert config.async_level == level == core.get_option("async_level")
    with pytest.raises(AssertionError):
        config.async_level = 3
    assert config.async_level == 2


def test_override_restores():
    with config._override(benchmark_kernel=True, deterministic_kernel=True, async_level=0, compute_mode="float32"):
        assert (config.benchmark_kernel, config.deterministic_kernel, config.async_level) == (True, True, 0)
        assert config._compute_mode == "float32"
    assert (config.benchmark_kernel, config.async_level, config._compute_mode) == (False, 2, "default")

    @config._override(async_level=1)
    def level():
        return config.async_level

    assert level() == 1 and level() == 1 and config.async_level == 2
    with pytest.raises(KeyError), config._override(async_level=0):
        raise KeyError
    assert config.async_level == 2


def test_options():
    for name in core._kept:
        old = core.get_option(name)
        core.set_option(name, old + 1)
        assert core.get_option(name) == old + 1
        core.set_option(name, old)
    with pytest.raises(ValueError):
        core.get_option("nonsense")
    with pytest.raises(ValueError):
        core.set_option("nonsense", 1)


def test_options_from_the_environment():
    given = {name: str(i % 3) for i, name in enumerate(core._VARIABLES)}
    code = "from megengine import core; print(*(core.get_option(o) for o in core._VARIABLES.values()))"
    out = subprocess.run([sys.executable, "-c", code], env={**os.environ, **given}, capture_output=True, text=True)
    assert out.stdout.split() == list(given.values()), out.stderr
    assert set(core._kept) < set(core._VARIABLES.values())


def test_trace_options():
    assert _trace_option.use_symbolic_shape() is False
    assert _trace_option.set_symbolic_shape(True) is False
    assert _trace_option.set_symbolic_shape(False) is True
    assert _trace_option.use_xla_backend() is False and _trace_option.set_use_xla_backend(False) is False
    with pytest.raises(NotImplementedError):
        _trace_option.set_use_xla_backend(True)


def test_execution_strategy():
    assert debug_param.get_execution_strategy() == debug_param.Strategy.HEURISTIC
    debug_param.set_execution_strategy("PROFILE_REPRODUCIBLE")
    assert config.benchmark_kernel and config.deterministic_kernel
    debug_param.set_execution_strategy(debug_param.Strategy.HEURISTIC)
    with pytest.raises(ValueError):
        debug_param.set_execution_strategy("FAST")
    with pytest.raises(TypeError):
        debug_param.set_execution_strategy(3)


# ---- logging


def test_logger():
    logger = mge.get_logger("test.megengine")
    assert logger is mge.get_logger("test.megengine") and not logger.propagate and len(logger.handlers) == 1
    old = mge.set_log_level("ERROR")
    assert logger.level == logging.ERROR
    assert mge.set_log_level(old) == logging.ERROR
    assert logger.level == old


def test_asking_for_a_logger_leaves_its_level():
    logger = mge.get_logger("test.level")
    logger.setLevel(logging.CRITICAL)
    assert mge.get_logger("test.level").level == logging.CRITICAL
    old = mge.set_log_level("ERROR", update_existing=False)
    try:
        assert mge.get_logger("test.level").level == logging.CRITICAL
        assert mge.get_logger("test.level.new").level == logging.ERROR
    finally:
        mge.set_log_level(old)
    with pytest.raises(ValueError, match="DEBUG, INFO, WARNING, ERROR; got 'LOUD'"):
        mge.set_log_level("LOUD")
    assert mge.set_log_level(old) == old


def test_log_file_gets_every_message():
    f = io.StringIO()
    mge.set_log_file(f)
    try:
        mge.get_logger("test.file").warning("hello %d", 3)
    finally:
        mge.set_log_file(None)
    assert "WRN hello 3" in f.getvalue() and "test.file" in f.getvalue()


def test_formatter_cuts_long_messages():
    record = logging.LogRecord("n", logging.ERROR, "f.py", 1, "\n".join(map(str, range(400))), None, None)
    text = MegEngineLogFormatter(datefmt="%H").format(record)
    assert "ERR" in text and text.endswith("144 more lines")


def test_backend_level_and_counted_log():
    assert set_mgb_log_level("INFO") == logging.ERROR
    with replace_mgb_log_level(logging.WARNING):
        assert set_mgb_log_level(logging.WARNING) == logging.DEBUG
    assert set_mgb_log_level(logging.ERROR) == logging.INFO
    assert set_mgb_log_level("error") == logging.ERROR
    with pytest.raises(ValueError, match="got 'LOUD'"):
        set_mgb_log_level("LOUD")
    calls = call_countlog_func(lambda x: x + 1, 1, "once")
    assert calls(1) == 2 and calls(2) == 3


# ---- dtypes


def test_quantised_dtypes():
    q = D.quint8(0.05, 128)
    assert q == np.uint8 and q.metadata["mgb_dtype"] == {"name": "Quantized8Asymm", "scale": 0.05, "zero_point": 128}
    assert D.is_quantize(q) and not D.is_quantize(np.dtype("uint8"))
    assert D.get_scale(q) == 0.05 and D.get_zero_point(q) == 128
    for bad in ((0.05, 0.233), (0.05, 777), (0.05, -1), (0.05, None)):
        with pytest.raises(ValueError):
            D.quint8(*bad)
    with pytest.raises(ValueError):
        D.quint4(0.05, 18)
    for error in (ValueError, RuntimeError):
        with pytest.raises(error, match="has no zero point"):
            D.get_zero_point(D.qint8(0.1))
        with pytest.raises(error, match="not a quantised dtype"):
            D.get_scale(np.dtype("int8"))
    with pytest.raises(ValueError):
        D.create_quantized_dtype(D._builtin_quant_dtypes["qint2"], 0.1, None)
    with pytest.raises(ValueError):
        D.create_quantized_dtype(D._builtin_quant_dtypes["qint8"], 0.1, 3)
    assert D.is_dtype_equal(q, D.quint8(0.05, 128)) and not D.is_dtype_equal(q, D.quint8(0.06, 128))


@pytest.mark.parametrize("name", ["quint8", "qint8", "qint32", "quint4", "qint4", "qint1"])
def test_quantised_conversion(name):
    meta = D._builtin_quant_dtypes[name]
    args = (0.1, 3) if meta.is_unsigned else (0.1,)
    dtype = getattr(D, name)(*args)
    a = np.linspace(-1, 1, 7)
    q = getattr(D, f"convert_to_{name}")(a, dtype)
    zp = 3 if meta.is_unsigned else 0
    np.testing.assert_array_equal(q, np.clip(np.round(a / 0.1) + zp, meta.qmin, meta.qmax))
    back = getattr(D, f"convert_from_{name}")(q)
    np.testing.assert_allclose(back, (q.astype("float64") - zp) * 0.1, rtol=1e-6)
    for bad in ([1.0], np.zeros(2)):
        with pytest.raises(ValueError):
            getattr(D, f"convert_from_{name}")(bad)
    with pytest.raises(ValueError):
        getattr(D, f"convert_to_{name}")([1.0], dtype)
    with pytest.raises(ValueError):
        getattr(D, f"convert_to_{name}")(a, np.dtype("int8"))


def test_dtype_helpers():
    assert [D.get_dtype_bit(n) for n in ("bool", "float16", "quint4")] == [1, 16, 4]
    assert D.is_bfloat16(D.bfloat16) and not D.is_bfloat16(np.dtype("float16"))
    assert D.is_lowbit(D.intb4) and not D.is_lowbit(np.dtype("int8"))
    assert D.is_differentible_dtype(np.float32) and D.is_differentible_dtype(D.bfloat16)
    assert not D.is_differentible_dtype(np.int32)
    import copy

    meta = D._builtin_quant_dtypes["qint8"]
    assert copy.copy(meta) is copy.deepcopy(meta) is meta


def test_bfloat16():
    a = np.array([1.0, -2.5, 3.14159, np.inf, 0.0], "float32")
    b = D.convert_to_bfloat16(a)
    assert b.dtype == D.bfloat16 and b.shape == a.shape
    np.testing.assert_allclose(D.convert_from_bfloat16(b), a, rtol=2**-8)
    assert np.isnan(D.convert_from_bfloat16(D.convert_to_bfloat16(np.array([np.nan], "float32"))))[0]
    x = Tensor(a).astype("bfloat16")
    assert x.dtype == D.bfloat16
    np.testing.assert_array_equal(D.convert_from_bfloat16(x.numpy()), D.convert_from_bfloat16(b))
    np.testing.assert_allclose(x.astype("float32").numpy(), a, rtol=2**-8)


# ---- helpers


def test_shape_and_axis_helpers():
    assert U.make_shape_tuple(2, Tensor(3), np.int64(4)) == (2, 3, 4)
    assert U.make_shape_tuple(np.array([1, 2])) == U.make_shape_tuple(Tensor([1, 2])) == (1, 2)
    assert U._normalize_axis(3, -1) == 2 and U._normalize_axis(3, [-1, 0], reverse=True) == [2, 0]
    for error in (ValueError, AssertionError):
        with pytest.raises(error, match="axis 3 is out of range for a tensor with 3 dimensions"):
            U._normalize_axis(3, 3)
        with pytest.raises(error, match="named twice"):
            U._normalize_axis(3, [0, -3])
    with pytest.raises(TypeError, match="sizes must be integers; got 2.5"):
        U.make_shape_tuple(3, 2.5)
    assert U.astensor1d([1, Tensor(2)]).tolist() == [1, 2] and U.astensor1d(3).shape == (1,)
    assert U.isscalar(3) and U.isscalar(Tensor(3)) and not U.isscalar(Tensor([3]))
    assert U.isscalar(np.float32(3)) == np.isscalar(np.float32(3)) and U.isscalar(np.array(3)) == np.isscalar(
        np.array(3)
    )


def test_result_type():
    cases = [
        ((Tensor([1.0], dtype="float16"), 1.5), "float16"),
        ((Tensor([1]), 1.5), "float32"),
        ((Tensor([1], dtype="uint8"), 1), "uint8"),
        ((Tensor([True]), 1), "int32"),
        ((np.zeros(1), Tensor([1.0])), "float32"),
    ]
    for args, want in cases:
        assert U.result_type(*args) == np.dtype(want)
        assert U.dtype_promotion(*args) == U.dtype_promotion(args) == U.dtype_promotion(list(args)) == np.dtype(want)
    assert (Tensor([True]) + 1).dtype == np.float32  # the constant is int32, and bool beside int32 gives float32
    a, b = U.convert_inputs(Tensor([1]), 2.5)
    assert b.dtype == np.float32 and a.dtype == np.int32
    with pytest.raises(TypeError, match="at least one"):
        U.dtype_promotion()
    low, high = U.cast_tensors(Tensor([1.5]), Tensor([2])), U.cast_tensors(Tensor([1]), None, promote=True)
    assert [t.dtype for t in low] == [np.float16, np.float16] and high[0].dtype == np.float32 and high[1] is None
    here, there = Tensor([1.0], device="cpu0"), Tensor([1.0], device="cpu0:1")
    assert U.get_device([here, 3]) == U.get_device(here, 3) == "cpu0" and U.get_device(1, 2) == "xpux"
    for operands in ([here, there], (here, there)):
        with pytest.raises(ValueError, match="ambiguous device"):
            U.get_device(operands)
        with pytest.raises(ValueError, match="ambiguous device"):
            U.get_device(*operands)
    old = U.set_convert_inputs(False)
    assert U.get_convert_inputs() is False and U.set_convert_inputs(old) is False


def test_compat_names():
    assert core2.Tensor is Tensor and core2.Const(3).item() == 3
    assert issubclass(core2.AsyncError, RuntimeError) and issubclass(core2.TraceError, RuntimeError)
    core2.sync()
    core2.full_sync()
    assert core2.astype_cpp(Tensor([1.5]), "int32").tolist() == [1]
    assert core2.create_complex(Tensor([1.5]), Tensor([2.0])).numpy() == np.array([1.5 + 2j], "complex64")


def test_ndtuple():
    assert _pair(2) == (2, 2) and _pair([1, 2]) == (1, 2) and get_ndtuple(3, n=3) == (3, 3, 3)
    for bad in (lambda: _pair((1, 2, 3)), lambda: _pair(-1), lambda: _pair_nonzero(0)):
        with pytest.raises(AssertionError):
            bad()


def test_future_and_hook_handler():
    f = Future(ack=False)
    f.set(1)
    assert f.get() == 1
    with pytest.raises(RuntimeError):
        f.set(2)
    from collections import OrderedDict

    hooks: OrderedDict = OrderedDict()
    h = HookHandler(hooks, print)
    assert list(hooks.values()) == [print]
    del hooks
    h.remove()


def test_auto_naming():
    class Op:
        def __init__(self, name):
            self.name = name

    AutoNaming.clear()
    ops = [Op("a"), Op("a"), Op("b")]
    for op in ops:
        AutoNaming.record_opnode(op)
    AutoNaming.remove_duplicate_names()
    assert [op.name for op in ops] == ["a[0]", "a[1]", "b"]
    AutoNaming.record_var_name(3, "x")
    assert AutoNaming.get_var_name(3) == "x" and AutoNaming.get_var_name(4) is None
    AutoNaming.clear()


def test_a_variable_that_is_no_number_is_named() -> None:
    env = {**os.environ, "MEGENGINE_ENABLE_DROP": "yes"}
    run = subprocess.run([sys.executable, "-c", "import megengine"], env=env, capture_output=True, text=True)
    assert run.returncode and "MEGENGINE_ENABLE_DROP: needs an integer; got 'yes'" in run.stderr
