"""Tracing modules: graphs as MegEngine 1.13 prints them, and the same bits wherever the graph runs."""

from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from traced_nets import NETS

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.traced_module import (
    TracedModule,
    disable_default_checker,
    enable_expr_checker,
    register_as_builtin,
    trace_module,
    wrap,
)
from megengine.utils.comp_graph_tools import GraphInference

DATA = Path(__file__).parent.parent / "data" / "traced_module"


def leaves(value: Any, place: str = "") -> dict[str, Any]:
    """The tensors of a value by their place."""
    if isinstance(value, mge.Tensor):
        return {place: value}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return {k: v for key, x in items for k, v in leaves(x, f"{place}.{key}" if place else str(key)).items()}


def graphs(traced: TracedModule) -> str:
    """All graphs and nodes as text; ``make.py`` writes the same."""
    parts = [str(traced.graph)]
    for name, module in traced.named_modules():
        if name and type(module) is TracedModule and module.argdef_graph_map:
            parts.append(f"--- {name}\n{module.graph}")
    nodes = "\n".join(f"{n._id} {n.name} {n.qualname} {type(n).__name__}" for n in traced.graph.nodes())
    return "\n".join(parts) + "\n--- nodes\n" + nodes + "\n"


def made(name: str, train: bool = False) -> tuple[Any, Any, Any]:
    mge.random.seed(7)
    net, args, kwargs = NETS[name]()
    net.train(train)
    return net, args, kwargs


@pytest.mark.parametrize("name", NETS)
def test_names_numbers_and_text_are_those_of_the_original(name: str) -> None:
    net, args, kwargs = made(name)
    traced = trace_module(net, *args, **kwargs)
    want = (DATA / f"{name}.txt").read_text().split("=== optimize")[0]
    assert graphs(traced) + "=== flatten\n" + graphs(traced.flatten()) == want


def reloaded(traced: TracedModule) -> Any:
    file = io.BytesIO()
    mge.save(traced, file)
    file.seek(0)
    return mge.load(file)


class Buffers:
    """Puts the buffers of a module back, so that runs in training mode begin alike."""

    def __init__(self, net: M.Module) -> None:
        self._kept = [(b, mge.Tensor(b)) for b in net.buffers()]

    def restore(self) -> None:
        for buffer, value in self._kept:
            buffer._reset(value)


def train_step(net: Any, args: Any, kwargs: Any, parameters: dict[str, Any]) -> dict[str, bytes]:
    """Results, loss and gradients as bytes."""
    for p in parameters.values():
        p.grad = None
    with GradManager().attach(list(parameters.values())) as gm:
        out = leaves(net(*args, **kwargs))
        loss = sum((out[k].astype("float32") * out[k]).sum() for k in sorted(out))
        gm.backward(loss)
    got = {k: v.numpy().tobytes() for k, v in out.items()}
    got["loss"] = loss.numpy().tobytes()
    got.update({f"grad {k}": b"" if p.grad is None else p.grad.numpy().tobytes() for k, p in parameters.items()})
    return got


@pytest.mark.parametrize("train", (False, True), ids=("eval", "train"))
@pytest.mark.parametrize("name", NETS)
def test_bits_of_results_losses_and_gradients(name: str, train: bool) -> None:
    net, args, kwargs = made(name, train)
    buffers = Buffers(net)
    with enable_expr_checker():
        traced = trace_module(net, *args, **kwargs)
    parameters = dict(net.named_parameters())
    want = train_step(net, args, kwargs, parameters)
    buffers.restore()
    for label, other in {
        "traced": traced,
        "flattened": traced.flatten(),
        "traced again": trace_module(traced, *args, **kwargs),
        "inside a module": trace_module(Holder(traced), *args, **kwargs).inner,
    }.items():
        assert train_step(other, args, kwargs, parameters) == want, label
        buffers.restore()
    for label, other in {
        "copied": copy.deepcopy(traced),
        "loaded": reloaded(traced),
        "flattened and loaded": reloaded(traced.flatten()),
    }.items():
        known = dict(other.named_parameters())
        assert set(known) <= set(parameters), label
        used = {k: known.get(k, p) for k, p in parameters.items()}
        assert train_step(other, args, kwargs, used) == want, label


class Holder(M.Module):
    def __init__(self, inner: M.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner(*args, **kwargs)


@pytest.mark.parametrize("symbolic", (False, True))
@pytest.mark.parametrize("name", NETS)
def test_jit_trace_has_the_same_bits(name: str, symbolic: bool) -> None:
    net, args, kwargs = made(name)
    want = {k: v.numpy().tobytes() for k, v in leaves(net(*args, **kwargs)).items()}
    traced = trace_module(net, *args, **kwargs)
    for module in (traced, traced.flatten()):
        step = trace(lambda *a, m=module, **k: leaves(m(*a, **k)), symbolic=symbolic)
        for _ in range(3):
            assert {k: v.numpy().tobytes() for k, v in step(*args, **kwargs).items()} == want


@pytest.mark.parametrize("name", ("resnet", "transformer", "fusable", "nested", "zoo"))
def test_dump_has_the_same_bits(name: str) -> None:
    net, args, _ = made(name)
    traced = trace_module(net, *args)
    results = []
    for module in (net, traced, traced.flatten()):
        step = trace(lambda x, m=module: leaves(m(x)), symbolic=True, capture_as_const=True)
        want = step(*args)
        file = io.BytesIO()
        step.dump(file, arg_names=["x"])
        file.seek(0)
        out = GraphInference(file).run(args[0].numpy())
        results.append([out[k].tobytes() for k in sorted(out)])
        assert sorted(results[-1]) == sorted(v.numpy().tobytes() for v in want.values())
    assert results[0] == results[1] == results[2]


def test_a_traced_module_follows_the_size_of_its_input() -> None:
    for name, size in (("nested", (3, 3, 20, 16)), ("detector", (2, 3, 32, 16))):
        net, args, _ = made(name)
        traced = trace_module(net, *args)
        x = mge.tensor(np.random.RandomState(1).rand(*size).astype("float32"))
        if name == "detector":
            x = x[:1]
        for module in (traced, traced.flatten()):
            got, want = leaves(module(x, *args[1:])), leaves(net(x, *args[1:]))
            assert {k: v.numpy().tobytes() for k, v in got.items()} == {k: v.numpy().tobytes() for k, v in want.items()}


def test_state_dicts_fit_both_ways() -> None:
    net, args, _ = made("nested")
    traced = trace_module(net, *args)
    keys = {k for k in net.state_dict() if "unused" not in k}
    assert set(traced.state_dict()) == set(traced.flatten().state_dict()) == keys
    other, _, _ = made("nested")
    state = {k: v + 1 for k, v in net.state_dict().items() if k in keys}
    for module in (traced, traced.flatten(), copy.deepcopy(traced)):
        module.load_state_dict(state)
        assert module.heads.a.weight.numpy().tobytes() == state["heads.a.weight"].tobytes()
    del other


class Shared(M.Module):
    """One module under two names, called with two forms of arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.a = Repeat()
        self.b = self.a
        self.weights = [mge.Parameter([1.0, 2.0, 3.0, 4.0]), mge.Parameter([2.0] * 4)]
        self.table = {"k": mge.tensor([1.0])}

    def forward(self, x: Any) -> Any:
        y = self.b(self.a(self.a(x)), 2)
        for w in self.weights:
            y = y * w
        return y + self.table["k"]


class Repeat(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = M.Linear(4, 4)

    def forward(self, x: Any, times: int = 1) -> Any:
        for _ in range(times):
            x = self.fc(x)
        return F.relu(x)


def test_shared_modules_several_forms_and_lists_of_tensors() -> None:
    net, x = Shared(), mge.tensor(np.random.RandomState(0).rand(2, 4).astype("float32"))
    traced = trace_module(net, x)
    assert traced.a is traced.b and len(traced.a.argdef_graph_map) == 2
    with pytest.raises(AssertionError, match="2 graphs"):
        _ = traced.a.graph
    assert set(traced.state_dict()) == set(net.state_dict())
    loaded = reloaded(traced)
    assert loaded.a is loaded.b and loaded.a.fc is loaded.b.fc
    want = train_step(net, (x,), {}, dict(net.named_parameters()))
    for module in (traced, traced.flatten(), loaded, loaded.flatten(), copy.deepcopy(traced)):
        assert train_step(module, (x,), {}, dict(module.named_parameters())) == want


def test_only_what_forward_uses_is_kept() -> None:
    net, args, _ = made("nested")
    traced = trace_module(net, *args)
    assert "unused" not in traced.stem.__dict__ and "times" not in traced.__dict__
    assert traced.fc is net.fc and traced.stem.gain is net.stem.gain and traced.stem is not net.stem


def test_arguments_by_position_or_by_name() -> None:
    class Two(M.Module):
        def forward(self, x: Any, y: Any = None, *, scale: float = 2.0) -> Any:
            return x * scale + y

    a, b = mge.tensor([1.0, 2.0]), mge.tensor([5.0, 7.0])
    traced = trace_module(Two(), a, b)
    for got in (traced(a, b), traced(a, y=b), traced(x=a, y=b), traced(y=b, x=a, scale=2.0)):
        assert got.tolist() == [7.0, 11.0]
    with pytest.raises(AssertionError, match=r"(?s)support input args kwargs format.*scale=2.0.*scale=3.0"):
        traced(a, b, scale=3.0)
    inner = trace_module(Holder(traced), a, b).inner
    assert inner.argspec is None and not inner._is_top


def test_the_same_tensor_given_twice_is_two_arguments() -> None:
    class Minus(M.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return x - y

    class Net(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.minus = Minus()

        def forward(self, x: Any) -> Any:
            return self.minus(x, x)

    x = mge.tensor([3.0])
    assert trace_module(Minus(), x, x)(mge.tensor([5.0]), mge.tensor([2.0])).item() == 3.0
    inner = trace_module(Net(), x).minus
    assert inner(mge.tensor([5.0]), mge.tensor([2.0])).item() == 3.0


def test_the_module_is_left_as_it_was() -> None:
    net, args, _ = made("nested", train=True)
    before = {k: v.tobytes() for k, v in net.state_dict().items()}
    mge.random.seed(3)
    state = [np.array(s) for s in mge.random.get_rng_state()] if isinstance(mge.random.get_rng_state(), list) else None
    trace_module(net, *args)
    assert {k: v.tobytes() for k, v in net.state_dict().items()} == before
    del state


def test_nothing_is_patched_afterwards() -> None:
    names = dict(vars(mge.Tensor))
    functions = dict(vars(F.nn))
    call = M.Module.__call__
    net, args, _ = made("zoo")
    trace_module(net, *args)
    with pytest.raises(RuntimeError):
        trace_module(Holder(Raises()), *args)
    assert dict(vars(mge.Tensor)) == names and dict(vars(F.nn)) == functions and M.Module.__call__ is call


class Raises(M.Module):
    def forward(self, x: Any) -> Any:
        raise RuntimeError("no")


def test_functions_under_any_name_are_recorded() -> None:
    from megengine.functional import relu as alias

    globals()["_alias"] = alias

    class Net(M.Module):
        act = staticmethod(F.sigmoid)

        def __init__(self) -> None:
            super().__init__()
            self.fn = F.exp

        def forward(self, x: Any) -> Any:
            return _alias(self.fn(x)) + self.act(x) + mge.random.uniform(size=(1,)) * 0  # noqa: F821

    x = mge.tensor([-1.0, 2.0])
    traced = trace_module(Net(), x)
    assert [e.func.__name__ for e in traced.graph.get_function_by_type()] == ["exp", "relu", "sigmoid", "uniform"]
    y = mge.tensor([0.0, -3.0])
    assert traced(y).numpy().tobytes() == Net()(y).numpy().tobytes()
    assert reloaded(traced)(y).numpy().tobytes() == Net()(y).numpy().tobytes()


@wrap
def halved(x: Any, times: int = 1) -> Any:
    for _ in range(times):
        x = x / 2
    return x


def test_wrapped_functions_are_one_expression() -> None:
    class Net(M.Module):
        def forward(self, x: Any) -> Any:
            return halved(x, times=2)

    traced = trace_module(Net(), mge.tensor([8.0]))
    (expr,) = traced.graph.get_function_by_type(halved)
    assert str(expr) == "%2:\thalved_out = test_traced_module.halved(x, 2, )"
    assert reloaded(traced)(mge.tensor([4.0])).item() == 1.0


@register_as_builtin
class Opaque(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = mge.Parameter([3.0])

    def forward(self, x: Any, *, power: int = 1) -> Any:
        return (x * self.weight) ** power


def test_builtin_modules_are_kept_whole() -> None:
    class Net(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = Opaque()

        def forward(self, x: Any) -> Any:
            return self.part(x, power=2)

    net = Net()
    traced = trace_module(net, mge.tensor([2.0]))
    assert traced.part is net.part and "part(x, power=2)" in str(traced.graph)
    assert reloaded(traced)(mge.tensor([2.0])).item() == 36.0
    assert trace_module(M.Linear(2, 2), mge.tensor([[1.0, 2.0]])).__class__ is M.Linear


def test_hooks_run() -> None:
    net, args, _ = made("fusable")
    net.conv1.register_forward_hook(lambda m, i, o: o * 2)
    handle = net.register_forward_pre_hook(lambda m, i: i[0] + 1)
    traced = trace_module(net, *args)
    want = net(*args).numpy().tobytes()
    assert traced(*args).numpy().tobytes() == want
    handle.remove()
    traced.register_forward_hook(lambda m, i, o: o * 0)
    assert not traced(*args).numpy().any()


def test_children_lists_and_dicts_can_be_walked() -> None:
    class Net(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = [[M.Linear(2, 2), M.Linear(2, 2)], [M.Linear(2, 2)]]
            self.named = {"x": M.Linear(2, 2), "y": M.ReLU()}
            self.pair = (M.Linear(2, 2), M.Identity())
            self.seq = M.Sequential(M.Linear(2, 2), M.ReLU())

        def forward(self, x: Any) -> Any:
            for row in self.rows:
                for layer in row[::-1]:
                    x = layer(x)
            for key, layer in self.named.items():
                x = layer(x) if key in self.named else x
            x = self.pair[-1](self.pair[0](x)) * len(self.rows)
            for layer in self.seq.children():
                x = layer(x)
            return x + sum(p.sum() for p in self.seq.parameters())

    net, x = Net(), mge.tensor([[1.0, 2.0]])
    traced = trace_module(net, x)
    assert set(traced.state_dict()) == set(net.state_dict())
    for module in (traced, traced.flatten(), reloaded(traced)):
        assert module(x).numpy().tobytes() == net(x).numpy().tobytes()


def test_checkers_can_be_switched() -> None:
    class Net(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = [0]

        def forward(self, x: Any) -> Any:
            self.calls[0] += 1
            return x * self.calls[0]

    net, x = Net(), mge.tensor([1.0])
    trace_module(net, x)
    assert net.calls == [1]
    with disable_default_checker():
        assert trace_module(net, x)(x).item() == 2.0


def test_random_numbers_are_drawn_anew() -> None:
    class Net(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = M.Dropout(0.5)

        def forward(self, x: Any) -> Any:
            return self.drop(x) + mge.random.normal(size=(64,)) + F.dropout(x, 0.5)

    net, x = Net(), F.ones(64)
    with enable_expr_checker():
        traced = trace_module(net, x)
    mge.random.seed(5)
    want = [net(x).numpy().tobytes() for _ in range(2)]
    mge.random.seed(5)
    assert [traced(x).numpy().tobytes() for _ in range(2)] == want and want[0] != want[1]
