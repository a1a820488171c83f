"""Files of traced modules: those of MegEngine 1.13 and before, and those that mean harm."""

from __future__ import annotations

import copy
import io
import pickle
import pickletools
import random
from functools import partial
from typing import Any

import numpy as np
import pytest
from test_traced_module import DATA, leaves, reloaded
from traced_nets import NETS, QUANTIZED, Custom, CustomQAT, Quantizable, simulated

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.core.ops import builtin
from megengine.quantization import (
    FakeQuantize,
    MinMaxObserver,
    QConfig,
    ema_fakequant_qconfig,
    quantize,
    quantize_qat,
    tqt_qconfig,
)
from megengine.traced_module import TracedModule, serialization, trace_module
from megengine.traced_module.expr import Apply
from megengine.traced_module.fake_quant import FakeQuantize as FixedFakeQuantize


def saved(traced: TracedModule) -> bytes:
    file = io.BytesIO()
    mge.save(traced, file)
    return file.getvalue()


def load(raw: bytes) -> Any:
    return mge.load(io.BytesIO(raw))


@pytest.mark.parametrize("name", (*NETS, *QUANTIZED))
def test_files_of_the_original(name: str) -> None:
    traced = mge.load(DATA / f"{name}.tm")
    arrays = np.load(DATA / f"{name}.npz")
    _, args, kwargs = {**NETS, **QUANTIZED}[name]()
    for module in (traced, traced.flatten(), reloaded(traced)):
        got = leaves(module(*args, **kwargs))
        for place, value in got.items():
            want = arrays[f"out.{place}"]
            assert value.shape == want.shape
            np.testing.assert_allclose(value.numpy(), want, rtol=1e-5, atol=1e-4 * np.abs(want).max())
    text = (DATA / f"{name}.txt").read_text()
    assert str(traced.graph) == text[: len(str(traced.graph))]


@pytest.mark.parametrize("name", ("lenet", "dwsep"))
def test_golden_files(name: str) -> None:
    traced = mge.load(DATA / f"{name}.tm")
    arrays = np.load(DATA / f"{name}.npz")
    got = traced(mge.tensor(arrays["case0.in.data"])).numpy()
    np.testing.assert_allclose(got, arrays["case0.file.out"], rtol=1e-5, atol=2e-5)
    assert "\n".join(map(str, traced.graph.exprs())).strip() == (DATA / f"{name}.graph.txt").read_text().strip()


def test_plain_pickle_reads_what_save_writes() -> None:
    net, args, _ = NETS["nested"]()
    traced = trace_module(net, *args)
    want = {k: v.numpy().tobytes() for k, v in leaves(traced(*args)).items()}
    for other in (pickle.loads(saved(traced)), pickle.loads(pickle.dumps(traced)), load(saved(traced))):
        assert str(other.graph) == str(traced.graph)
        assert {k: v.numpy().tobytes() for k, v in leaves(other(*args)).items()} == want


class Elsewhere(M.Module):
    """Calls of functions that are kept in other modules than the files name."""

    def forward(self, x: Any) -> Any:
        return F.einsum("ij,kj->ik", x, x) + F.distributed.all_reduce_sum(x).sum()


def test_functions_that_are_kept_elsewhere() -> None:
    x = mge.tensor([[1.0, 2.0]])
    traced = trace_module(Elsewhere(), x)
    assert "math.einsum" in str(traced.graph)
    assert reloaded(traced)(x).item() == 5 + 3


def test_dtypes_in_files_have_one_kind_for_all_versions_of_numpy() -> None:
    net, args, _ = NETS["kinds"]()
    traced = trace_module(net, *args)
    names = [arg for _, arg, _ in pickletools.genops(saved(traced)) if isinstance(arg, str)]
    assert not any("DType" in name or "numpy.dtypes" in name for name in names)
    assert copy.deepcopy(traced).graph.exprs().as_count() == traced.graph.exprs().as_count()


def test_files_work_inside_other_values() -> None:
    net, args, _ = NETS["fusable"]()
    traced = trace_module(net, *args)
    file = io.BytesIO()
    mge.save({"model": traced, "epoch": 3, "flat": traced.flatten()}, file)
    file.seek(0)
    got = mge.load(file, map_location="cpu0")
    assert got["epoch"] == 3 and got["model"].conv1 is got["flat"].conv1


# ---- quantisation-aware training


class Observer(MinMaxObserver):
    pass


CUSTOM = QConfig(
    weight_observer=partial(Observer, dtype="qint8_narrow"),
    act_observer=partial(Observer, dtype="qint8"),
    weight_fake_quant=partial(FakeQuantize, dtype="qint8_narrow"),
    act_fake_quant=partial(FakeQuantize, dtype="qint8"),
)


@pytest.mark.parametrize("qconfig", (ema_fakequant_qconfig, tqt_qconfig, CUSTOM), ids=("ema", "tqt", "custom"))
def test_modules_of_quantisation_aware_training(qconfig: Any) -> None:
    net, (x,), _ = simulated(qconfig)
    net.eval()
    want = net(x).numpy()
    traced = trace_module(net, x)
    assert traced.custom.is_qat and "custom(" in str(traced.flatten().graph)
    fixed = qconfig is CUSTOM
    assert isinstance(traced.side.act_fake_quant, FixedFakeQuantize) is fixed
    assert (traced.side is net.side) is not fixed
    step = np.abs(want).max() / 100
    for module in (traced, traced.flatten(), reloaded(traced), copy.deepcopy(traced), trace_module(traced, x)):
        np.testing.assert_allclose(module(x).numpy(), want, atol=step if fixed else 1e-6)


def test_a_traced_module_is_quantised_like_the_module() -> None:
    net, x = Quantizable(), mge.tensor(np.random.RandomState(1).rand(2, 3, 8, 8).astype("float32"))
    net.custom = M.Conv2d(4, 4, 1)
    traced = trace_module(copy.deepcopy(net), x)
    quantize_qat(net)
    quantize_qat(traced)
    assert type(traced.side) is type(net.side) and type(net.side).__module__.startswith("megengine.module.qat")
    for _ in range(3):
        assert traced(x).numpy().tobytes() == net(x).numpy().tobytes()
    net.eval()
    traced.eval()
    for module in (traced, traced.flatten(), reloaded(traced)):
        assert module(x).numpy().tobytes() == net(x).numpy().tobytes()
    assert Custom is not None and CustomQAT is not None


# ---- files of earlier versions


class Call(M.Module):
    def __init__(self, call: Any) -> None:
        super().__init__()
        self.call = call

    def forward(self, *args: Any) -> Any:
        return self.call(*args)


def old(call: Any, *args: Any, given: tuple[Any, Any] | None = None, version: str = "1.6.0") -> Any:
    """The traced call of one function, loaded as if an earlier version had written these arguments."""
    traced = trace_module(Call(call), *args)
    expr = traced.graph._exprs[-1]
    if given is not None:
        expr._replace_args(*given)
    expr.version = version
    state = expr.__class__.__getstate__
    try:
        expr.__class__.__getstate__ = lambda e: {**state(e), "version": version}
        return reloaded(traced)
    finally:
        expr.__class__.__getstate__ = state


def test_calls_of_earlier_versions() -> None:
    x = mge.tensor(np.ones((1, 2, 3, 3), "float32"))
    w = mge.tensor(np.ones((2, 1, 2, 2), "float32"))
    for call, args, given, text in (
        (lambda: F.zeros((2, 3)), (), (((2, 3), "float32", None), {}), "zeros((2, 3), device=None, dtype=float32)"),
        (lambda: F.ones(3), (), ((3, "int32"), {}), "ones(3, device=None, dtype=int32)"),
        (lambda: F.full((2,), 1.0), (), (((2,), 1.0, "int32", None), {}), "full((2,), 1.0, device=None, dtype=int32)"),
        (lambda: F.arange(3), (), ((0, 3, 1, "int32", None), {}), "arange(0, 3, 1, device=None, dtype=int32)"),
        (
            lambda: F.linspace(0, 1, 3),
            (),
            ((0, 1, 3, "float32", None), {}),
            "linspace(0, 1, 3, device=None, dtype=float32)",
        ),
    ):
        loaded = old(call, *args, given=given)
        assert text in str(loaded.graph)
        loaded()
    loaded = old(lambda x: F.nn.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), x)
    expr = loaded.graph._exprs[-1]
    node = expr.inputs[0]
    expr._replace_args((node,), {"pad_witdth": ((0, 0), (0, 0), (1, 1), (1, 1)), "mode": "constant"})
    serialization.load_functional(expr)
    assert loaded(x).shape == (1, 2, 5, 5)
    deconv = trace_module(Call(lambda x, w: F.conv_transpose2d(x, w)), x, w)
    expr = deconv.graph._exprs[-1]
    args = expr.args
    expr._replace_args((*args[:5], *args[6:]), {})
    serialization.load_functional(expr)
    assert expr.args == args


def test_the_square_of_integers_was_a_float() -> None:
    x = mge.tensor([1, 2, 3], dtype="int32")
    loaded = old(F.square, x)
    assert loaded.graph.exprs().as_count() == 4 and loaded(x).dtype == np.float32
    assert [e._id for e in loaded.graph.exprs()] == [0, 1, 2, 3]
    assert all(e in n.users for e in loaded.graph._exprs for n in e.inputs)
    assert old(F.square, x, version="1.12.0")(x).dtype == np.int32


def test_the_order_of_topk_was_another() -> None:
    x = mge.tensor([3.0, 1.0, 2.0])
    traced = trace_module(Call(lambda x: F.topk(x, 2)), x)
    expr = traced.graph._exprs[-1]
    expr._replace_args(expr.args[:2], {})
    serialization.load_functional(expr)
    assert traced(x)[0].tolist() == [1.0, 2.0]


def test_ops_of_earlier_versions_had_fewer_results() -> None:
    expr = Apply(builtin.BatchNorm())
    expr.outputs = [object.__new__(type("N", (), {})) for _ in range(5)]
    serialization.load_apply_expr(expr)
    assert len(expr.outputs) == 6


def test_loaders_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for table in ("FUNCTIONAL_LOADER", "TENSORMETHOD_LOADER", "MODULE_LOADER", "OPDEF_LOADER"):
        monkeypatch.setattr(serialization, table, {})
    called = []

    @serialization.register_functional_loader(("megengine.functional.nn", "relu"))
    def to_leaky(expr: Any) -> None:
        called.append("function")
        expr.func = F.leaky_relu

    @serialization.register_tensor_method_loader("__add__")
    def method(expr: Any) -> None:
        called.append("method")

    @serialization.register_module_loader(("megengine.module.linear", "Linear"))
    def module(expr: Any) -> None:
        called.append("module")

    @serialization.register_opdef_loader(builtin.GetVarShape)
    def op(expr: Any) -> None:
        called.append("op")

    class Net(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = M.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            return F.relu(self.fc(x)) + x.shape[0]

    x = mge.tensor([[1.0, 2.0]])
    loaded = reloaded(trace_module(Net(), x))
    assert sorted(called) == ["function", "method", "module", "op"]
    assert loaded.graph.get_function_by_type(F.leaky_relu).as_count() == 1
    loaded(x)
    with pytest.raises(AssertionError, match="registered already"):
        serialization.register_tensor_method_loader("__add__")(method)


# ---- files that mean harm


class Small(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = M.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        return F.relu(self.fc(x)).sum() + 1


@pytest.fixture(scope="module")
def raw() -> bytes:
    return saved(trace_module(Small(), mge.tensor([[1.0, 2.0]])))


def test_layers_made_of_layers_are_kept_as_megengine_does() -> None:
    """It packs the parts of a traced module and nothing in them, and calls what is packed deeper."""

    class Outer(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c = M.ConvBn2d(1, 2, 1)

        def forward(self, x: mge.Tensor) -> mge.Tensor:
            return self.c(x)

    net, x = Outer(), mge.tensor(np.ones((1, 1, 2, 2), "float32"))
    net.eval()
    data = saved(trace_module(net, x))
    names = [arg for op, arg, _ in pickletools.genops(data) if op.name == "SHORT_BINUNICODE"]
    assert names.count("_ModuleState") == 1 and names.count("module") == 1
    assert load(data)(x).numpy().tobytes() == net(x).numpy().tobytes()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    (
        (b"\x04relu", b"\x04exit", "calls megengine.functional.nn.exit"),
        (b"megengine.functional.nn", b"megengine.hub.hub______", "is not a function of megengine.functional"),
        (b"\x07__add__", b"\x07__del__", "calls the method '__del__'"),
        (b"\x03sum", b"\x03_id", "calls the method '_id'"),
        (b"megengine.module.linear", b"megengine.module.module", "which is not known here"),
        (b"\x06Linear", b"\x06Module", "which is not known here"),
        (b"\x02fc\x94", b"\x02__\x94", "takes the attribute '__'|does not have"),
        (b"megengine.tensor", b"megengine.sensor", "wants to import megengine.sensor"),
        (b"\x08TreeDef\x94"[:1] + b"TreeDef", b"\x08popenxx", "popenxx|damaged"),
        (b"\x0c_ModuleState", b"\x0c_ModuleStato", "wants to import"),
        (b"\x04cast", b"\x04Cast", "wants to import typing.Cast"),
    ),
)
def test_names_that_a_graph_may_not_use(raw: bytes, old: bytes, new: bytes, says: str) -> None:
    if old not in raw:
        old, new = old[1:], new[1:]
    assert old in raw and len(old) == len(new)
    with pytest.raises(pickle.UnpicklingError, match=says):
        load(raw.replace(old, new))


def test_a_file_does_not_replace_methods_or_add_hooks() -> None:
    ring: dict[str, Any] = {}
    ring["ring"] = ring
    deep: list[Any] = []
    for _ in range(400):
        deep = [deep]
    for change, says in (
        ({"notes": ring}, "holds itself"),
        ({"notes": deep}, "nest too deep"),
        ({"forward": 1}, "replaces 'forward'"),
        ({"graph": 1}, "replaces 'graph'"),
        ({"_forward_hooks": {1: 2}}, "hooks"),
        ({"argdef_graph_map": {}}, "graphs have no results"),
        ({"_modules": 3}, "without its attributes"),
        ({"fc": 3}, "does not have"),
    ):
        traced = trace_module(Small(), mge.tensor([[1.0, 2.0]]))
        state = {**traced.__getstate__(), **change}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TracedModule, "__getstate__", lambda _, s=state: s)
            raw = saved(traced)
        with pytest.raises(pickle.UnpicklingError, match=says):
            load(raw)


def test_graphs_that_make_no_sense() -> None:
    def changed(change: Any) -> bytes:
        traced = trace_module(Small(), mge.tensor([[1.0, 2.0]]))
        change(traced.graph)
        return saved(traced)

    def swap(graph: Any) -> None:
        graph._exprs.reverse()

    def lost(graph: Any) -> None:
        del graph._exprs[-1]

    def constants(graph: Any) -> None:
        graph._exprs[-1].const_val.append((1, 2))

    def results(graph: Any) -> None:
        graph._outputs = graph._outputs * 2

    for change, says in (
        (swap, "before it is made"),
        (lost, "never made"),
        (constants, "too many arguments"),
        (results, "other results"),
    ):
        with pytest.raises(pickle.UnpicklingError, match=says):
            load(changed(change))


def test_damaged_files_are_refused(raw: bytes) -> None:
    rng = random.Random(0)
    files = [raw, (DATA / "arguments.tm").read_bytes(), (DATA / "qat.tm").read_bytes()]
    with pytest.raises(EOFError):
        load(raw[: len(raw) // 2])
    for _ in range(400):
        data = bytearray(rng.choice(files))
        for _ in range(rng.choice((1, 2, 4))):
            at = rng.randrange(len(data))
            if rng.random() < 0.6:
                data[at] = rng.randrange(256)
            else:
                del data[at : at + rng.randrange(1, 30)]
        try:
            load(bytes(data))
        except pickle.UnpicklingError:
            continue
        except ValueError as e:
            assert "device" in str(e), e


class Inherits(CustomQAT):
    """Uses the product of the layer it inherits from."""

    def forward(self, x: Any) -> Any:
        return self.apply_quant_activation(F.relu(self.calc_conv_qat(x)))


def test_a_qat_module_of_the_user_traces_the_product_of_simulated_values() -> None:
    net = quantize_qat(Quantizable(), qconfig=ema_fakequant_qconfig, mapping={Custom: Inherits})
    x = mge.tensor(np.random.RandomState(1).rand(2, 3, 8, 8).astype("float32"))
    net(x)
    net.eval()
    traced = trace_module(net, x)
    assert "nn.conv2d(x, _apply_fakequant_with_observer_out" in str(traced.custom.graph)
    want = net(x).numpy()
    np.testing.assert_allclose(traced(x).numpy(), want, atol=np.abs(want).max() / 50)


def test_quantised_modules() -> None:
    net, x = Quantizable(), mge.tensor(np.random.RandomState(1).rand(2, 3, 8, 8).astype("float32"))
    net.custom = M.Identity()
    net.fc.disable_quantize()
    quantize_qat(net)
    net(x)
    net.eval()
    quantize(net)
    want = net(x).numpy().tobytes()
    traced = trace_module(net, x)
    for module in (traced, traced.flatten(), reloaded(traced), copy.deepcopy(traced)):
        assert module(x).numpy().tobytes() == want
