"""Names in dumped models: those that the original gives (tests/data/dump_names.json)."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor
from megengine.autodiff import GradManager
from megengine.core import _core
from megengine.jit import trace
from megengine.utils.network import Network

SEEN = json.loads((Path(__file__).parent.parent / "data" / "dump_names.json").read_text())


def dumped(fn: Callable[..., Any], *args: Tensor, **options: Any) -> tuple[Any, bytes]:
    traced = trace(fn, symbolic=True, capture_as_const=True)
    traced(*args)
    file = io.BytesIO()
    kept = {"keep_var_name": 2, "keep_param_name": True, "keep_opr_name": True, "optimize_for_inference": False}
    return traced.dump(file, **kept, **options), file.getvalue()


def ones(*shape: int) -> Tensor:
    return Tensor(np.ones(shape, "float32"))


class Simple(M.Module):
    def __init__(self, name: str | None) -> None:
        super().__init__(name=name)
        self.linear = M.Linear(3, 4)
        self.k = mge.Parameter(np.float32(2))
        self.l0 = [M.ReLU(), M.Linear(4, 4)]

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x) * self.k
        for layer in self.l0:
            x = layer(x)
        x = self.l0[1](x)
        return F.relu(x) + F.relu(x)


class Cnn(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.fc = M.Conv2d(3, 4, 3), M.BatchNorm2d(4), M.Linear(16, 5)
        self.seq = M.Sequential(M.ReLU(), M.Dropout(0.5), M.Linear(5, 5))

    def forward(self, x: Tensor) -> Any:
        x = F.max_pool2d(F.relu(self.bn(self.conv(x))), 2)
        x = self.seq(self.fc(F.flatten(x, 1)))
        return (
            *(F.softmax(x), x.reshape(-1), F.concat([x, x], 1)[:, 1:3], x.mean(axis=1), x.sum(), F.sigmoid(x)),
            *(x.astype("int32"), F.avg_pool2d(x.reshape(1, 1, 1, -1), 1), F.broadcast_to(x, (1, 5))),
            *(F.transpose(x, (1, 0)), F.expand_dims(x, 0), F.squeeze(x, 0), x[0]),
        )


class Outer(M.Module):
    def __init__(self) -> None:
        super().__init__(name="outer")
        self.bn = M.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(x)


class Own(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc2 = M.Linear(3, 3, name="other")
        self.w = mge.Parameter(np.arange(9, dtype="float32").reshape(3, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(x)


def named(x: Tensor) -> Any:
    y = x * 2
    y.name = "why"
    return y + x, y


def backward(net: Own, x: Tensor) -> Tensor:
    with GradManager().attach([net.fc2.weight]) as gm:
        gm.backward(net.fc2(x).sum())
    return net.fc2.weight.grad


def case(name: str) -> tuple[Any, bytes]:
    x, own = ones(2, 3), Own()
    queue = ones(3)
    queue.name = "queue"
    kay = mge.Parameter(np.arange(3, dtype="float32"))
    kay.name = "kay"
    nets = {"simple": Simple("simple"), "nameless": Simple(None), "cnn": Cnn(), "batch_norm": Outer(), "own_name": own}
    if name in nets:
        net = nets[name]
        net.eval()
        return dumped(lambda x: net(x), ones(1, 3, 6, 6) if name in ("cnn", "batch_norm") else x)
    return {
        "add": lambda: dumped(lambda a, b: a + b, x, x + 0),
        "several": lambda: dumped(lambda a, b: [a * b, a - b, F.exp(a), a * 2 + 1], x, x + 0),
        "outside": lambda: dumped(lambda x: F.matmul(x, own.w) + own.fc2.bias, x),
        "free": lambda: dumped(lambda x: x * kay + 7, x),
        "user_names": lambda: dumped(named, queue),
        "given_names": lambda: dumped(named, queue, arg_names="A", output_names=["Z", "Y"]),
        "identity": lambda: dumped(lambda x: x, queue),
    }[name]()


@pytest.mark.parametrize("name", [k for k in SEEN if k not in ("about", "functions", "other_ops_here")])
def test_as_the_original(name: str) -> None:
    want = SEEN[name]
    result, data = case(name)
    assert (result.inputs, result.outputs) == (want["inputs"], want["outputs"])
    if "nr_opr" in want:
        assert result.nr_opr == want["nr_opr"]
    if "params" in want:
        assert sorted(n for n in result.params if not n.startswith("const")) == sorted(want["params"])
    if "oprs" in want:
        names = _core.Graph(data).opr_names().values()
        assert [n for several in names for n in several] == want["oprs"]
        loaded = Network.load(io.BytesIO(data))
        assert [op.name for op in loaded.all_oprs if op.inputs] == want["oprs"]
        assert [op.outputs[0].name for op in loaded.all_oprs if op.inputs] == want["oprs"]


@pytest.mark.parametrize("text", SEEN["functions"])
def test_function(text: str) -> None:
    """The name of the output of a function of one line."""
    rng = np.random.RandomState(0)
    tensors = {n: Tensor(rng.rand(2, 3).astype("f") * 0.8 + 0.1) for n in "xy"}
    tensors["i"] = Tensor(rng.rand(1, 3, 6, 6).astype("f"))
    used = [n for n in tensors if re.search(rf"\b{n}\b", text)]
    fn = eval(f"lambda {', '.join(used)}: {text}", {"F": F})
    assert dumped(fn, *(tensors[n] for n in used))[0].outputs == [SEEN["functions"][text]]


def test_every_value_has_a_name_of_its_own() -> None:
    data = case("cnn")[1]
    names = re.findall(r"^  (?:const )?(%\S+?)(?::| =)", _core.Graph(data).text, re.M)
    assert len(names) == len(set(names)) > 25


def test_ops_of_backward() -> None:
    own = Own()
    (name,) = dumped(lambda x: backward(own, x), ones(2, 3))[0].outputs
    assert name.startswith("backward.")


def test_objects_of_others_run_no_code() -> None:
    """Tensors are looked for among all objects; lazy ones load what they stand for when asked for their class."""

    class Lazy:
        asked = 0

        @property
        def __class__(self) -> type:  # type: ignore[override]
            type(self).asked += 1
            return Tensor

    held, w = Lazy(), mge.Parameter([2.0])
    dumped(lambda x: x * w, ones(1))
    assert held is not None and Lazy.asked == 0


def test_a_default_name_gives_way() -> None:
    def f(x: Tensor) -> Any:
        y = x + 1
        y.name = "MUL"
        return x * 2, y

    assert dumped(f, ones(3))[0].outputs == ["MUL[1]", "MUL"]
    assert dumped(lambda x: (x, x), ones(3))[0].outputs == ["arg_0", "arg_0[1]"]


def test_scopes_are_kept_by_passes_and_files() -> None:
    net = Simple("simple")
    net.eval()
    traced = trace(lambda x: net(x), symbolic=True, capture_as_const=True)
    traced(ones(2, 3))
    assert "of simple.linear" in traced.graph_text()
    file = io.BytesIO()
    traced.dump(file)
    text = _core.Graph(file.getvalue()).text
    assert "of simple.linear" in text and "test_dump_names.py" in text
    file = io.BytesIO()
    traced.dump(file, enable_metadata=False)
    assert "loc" not in _core.Graph(file.getvalue()).text
    file = io.BytesIO()
    traced.dump(file, enable_metadata=False, keep_opr_name=True)
    text = _core.Graph(file.getvalue()).text
    assert "loc of simple.linear" in text and "test_dump_names.py" not in text


class Named(M.Module):
    def __init__(self) -> None:
        super().__init__(name="net")
        self.fc, self.conv, self.bn = M.Linear(4, 5), M.Conv2d(3, 3, 3), M.BatchNorm2d(3)

    def forward(self, x: Tensor, image: Tensor) -> tuple[Tensor, Tensor]:
        return F.relu(self.fc(x)), self.bn(self.conv(image))


def test_files_of_the_original_keep_the_names_of_ops() -> None:
    net = Named()
    net.eval()
    _, data = dumped(lambda x, i: net(x, i), ones(2, 4), ones(1, 3, 6, 6), dump_format="FBS_V2")
    names = {o.name for o in Network.load(io.BytesIO(data)).all_oprs}
    seen = "net.fc.MatrixMul net.fc.ADD net.RELU net.conv.Convolution net.conv.ADD net.bn.BatchNorm"  # in 1.13's files
    assert set(seen.split()) <= names


def named_in_the_middle(x: Tensor) -> Tensor:
    y = F.relu(x)
    y.name = "mine"
    return F.relu(y + 1)


# Seen in MegEngine 1.13: ops and variables of its files with keep_opr_name and output_names.
OPS: dict[str, tuple[Callable[..., Any], str, list[str]]] = {
    "net": (lambda x: ONE(x), "data net.fc.weight net.fc.MatrixMul net.fc.bias net.fc.ADD net.RELU net.ADD", ["o0"]),
    "two of a kind": (lambda x: (F.relu(x), F.relu(x * 2)), "data RELU[0] MUL RELU[1]", ["o0", "o1"]),
    "a name of its own": (named_in_the_middle, "data RELU[0] ADD RELU[1]", ["o0"]),
    "two results": (lambda x: F.topk(x, 2), "data TopK", ["o0", "o1"]),
}


class One(M.Module):
    def __init__(self) -> None:
        super().__init__(name="net")
        self.fc = M.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.fc(x)) + 1


ONE = One()


@pytest.mark.parametrize("version", ["FBS_V2", "FBS"])
@pytest.mark.parametrize("name", OPS)
def test_ops_of_the_originals_files_keep_their_names_where_results_are_given_others(name: str, version: str) -> None:
    fn, seen, outputs = OPS[name]
    ops = seen.split()
    traced = trace(fn, symbolic=True, capture_as_const=True)
    traced(ones(2, 3))
    for names in (None, outputs):
        file = io.BytesIO()
        traced.dump(
            file, arg_names=["data"], output_names=names, keep_opr_name=True, dump_format=version,
            optimize_for_inference=False,
        )  # fmt: skip
        file.seek(0)
        net = Network.load(file)
        assert [op.name for op in net.all_oprs if op.name in ops] == ops
        assert names is None or [v.name for v in net.output_vars] == names
        file.seek(0)
        again = io.BytesIO()
        net.dump(again, keep_opr_name=True, dump_format=version, optimize_for_inference=False)
        again.seek(0)
        assert [op.name for op in Network.load(again).all_oprs if op.name in ops] == ops
