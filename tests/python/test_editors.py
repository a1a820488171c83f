"""What editors and type checkers see: signatures, exported names, and the types of a user's program under pyright."""

from __future__ import annotations

import importlib
import inspect
import json
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import pytest

import megengine as mge

ROOT = pathlib.Path(__file__).resolve().parents[2]
SURFACE = json.loads((ROOT / "tests/data/surface.json").read_text())

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

# ---- signatures


def test_every_method_of_tensor_has_a_signature() -> None:
    names = [n for n in dir(mge.Tensor) if n not in dir(object) and callable(getattr(mge.Tensor, n, None))]
    assert len(names) > 70
    for name in names:
        inspect.signature(getattr(mge.Tensor, name))


def test_signatures_say_what_can_be_called() -> None:
    want = {"astype": "(self, /, dtype)", "reshape": "(self, /, *shape)", "numpy": "(self, /)", "detach": "(self, /)"}
    assert {name: str(inspect.signature(getattr(mge.Tensor, name))) for name in want} == want
    assert str(inspect.signature(mge.Tensor([1.0]).astype)) == "(dtype)"
    whole = "(data, dtype=None, device=None, is_const=False, no_cache=False, name=None, format='default')"
    assert str(inspect.signature(mge.Tensor)) == str(inspect.signature(mge.Parameter)) == whole
    assert "read-only NumPy array" in (inspect.getdoc(mge.Tensor.numpy) or "")
    bound = inspect.signature(mge.Tensor([1.0]).reshape).bind(2, -1)
    assert bound.arguments == {"shape": (2, -1)}


def test_public_names_are_listed() -> None:
    """A name that is not in __all__ is private for type checkers."""
    public = {n for n in dir(mge) if not n.startswith("_")} - {"annotations", *mge._LAZY}
    assert public == set(mge.__all__) - {"__version__"}


# ---- pyright

RIGHT = """
import megengine as mge
import megengine.functional as F
import megengine.module as M
import numpy as np
from megengine import Parameter, Tensor, autodiff, jit, optimizer
from megengine.data import DataLoader
from megenginelite import LiteNetwork
from typing_extensions import assert_type


class Net(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = M.Linear(4, 3)
        self.scale = Parameter([1.0])

    def forward(self, x: Tensor, power: float = 1.0) -> Tensor:
        return self.fc(x) * self.scale**power


class Pair(M.Module):
    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return F.relu(x), y


class Untyped(M.Module):
    def forward(self, x, y=None, *rest):
        return Net()(x)


class Nested(Net):
    def forward(self, x: Tensor, power: float = 1.0) -> Tensor:
        return super().forward(x, power)


x = mge.tensor([[1.0, 2.0, 3.0, 4.0]])
assert_type(x, Tensor)
assert_type(mge.Tensor(np.zeros(3), dtype="float32"), Tensor)
assert_type(Parameter([1.0]), Parameter)
assert_type(x + 1, Tensor)
assert_type(2 * x[0, 1:], Tensor)
assert_type(x.reshape(2, -1).astype("float16"), Tensor)
assert_type(F.softmax(x), Tensor)
assert_type(Net()(x), Tensor)
assert_type(Net()(x, power=2.0), Tensor)
assert_type(Pair()(x, x), tuple[Tensor, Tensor])
assert_type(Untyped()(x, 1, 2, 3), Tensor)
assert_type(M.Conv2d(3, 8, 3)(x), Tensor)
M.Sequential(M.Linear(4, 4), M.ReLU())(x)
net = Net()
gm = autodiff.GradManager().attach(net.parameters())
opt = optimizer.SGD(net.parameters(), lr=0.1)
with gm:
    loss = F.nn.cross_entropy(net(x), mge.Tensor([2], dtype="int32"))
    gm.backward(loss)
opt.step().clear_grad()
print(float(loss), mge.functional.nn.relu(x), mge.data.DataLoader is DataLoader, mge.hub.list, mge.__version__)


@jit.trace(symbolic=True, capture_as_const=True)
def infer(data: Tensor) -> Tensor:
    return net(data)


infer(x)
infer.dump("net.mge", arg_names=["x"])
assert_type(infer, jit.trace)
assert_type(jit.trace(net), jit.trace)
assert_type(F.where(x > 0, x, 0.0), Tensor)
assert_type(F.non_zero(x), Tensor)


class Double(autodiff.Function):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2

    def backward(self, dy: Tensor) -> Tensor:
        return dy * 2


lite = LiteNetwork()
lite.load("net.mge")
lite.get_io_tensor("x").set_data_by_copy(x.numpy())
"""

#: Every line from the fifth on is a mistake that a type checker must see in an installed package.
WRONG = """import megengine as mge
import megengine.functional as F, megengine.module as M
net = M.Linear(2, 3)
x = mge.Tensor([1.0])
net(x, x, x)
net(x).no_such_method()
mge.Tensor([1.0], dtyp="float32")
x.reshape(2).astype()
mge.no_such_name
mge.functional.nn.UserError
M.CrossEntropyLoss
M.init.kaiming_normal_
mge.optimizer.RMSprop
mge.random.randint
mge.jit.script
mge.data.Dataset
F.zeros(2, 3)
F.cat
"""


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[int, str]]]:
    """What pyright says of each file, as (line, message). One run for all: most of it is NumPy's types."""
    folder = tmp_path_factory.mktemp("editor")
    (folder / "right.py").write_text(RIGHT)
    (folder / "wrong.py").write_text(WRONG)
    (folder / "surface.py").write_text(_surface())
    for example in EXAMPLES:
        shutil.copy(example, folder)
    (folder / "pyrightconfig.json").write_text('{"pythonVersion": "3.10", "typeCheckingMode": "standard"}')
    # The package is found as an installed one is, through this interpreter; so its private names are private.
    line = [sys.executable, "-m", "pyright", "-p", str(folder), "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(line, capture_output=True, text=True, cwd=folder)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == 3 + len(EXAMPLES)
    said: dict[str, list[tuple[int, str]]] = {}
    for d in report["generalDiagnostics"]:
        if d["severity"] == "error":
            line_number = d["range"]["start"]["line"] + 1
            said.setdefault(pathlib.Path(d["file"]).name, []).append((line_number, d["message"]))
    return said


def _surface() -> str:
    """A program that names everything that is public."""
    lines = []
    for module in sorted(SURFACE):
        exported = getattr(importlib.import_module(module), "__all__", SURFACE[module])
        lines += [
            f"from {module} import {name} as {name}{len(lines)}\n" for name in SURFACE[module] if name in exported
        ]
    return "".join(lines)


def test_a_program_has_the_types_it_should(checked) -> None:
    assert checked.get("right.py", []) == []


def test_public_names_are_public(checked) -> None:
    assert checked.get("surface.py", []) == []


def test_mistakes_are_seen(checked) -> None:
    assert sorted({line for line, _ in checked["wrong.py"]}) == list(range(5, 19)), checked["wrong.py"]


def test_the_examples_have_no_errors(checked) -> None:
    assert {file: said for file, said in checked.items() if file not in ("wrong.py", "right.py", "surface.py")} == {}
