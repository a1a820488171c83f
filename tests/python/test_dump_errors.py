"""What fails inside a loaded program names the op, its inputs and the line it was recorded from."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import megengine.functional as F
import megengine.module as M
from megengine import Tensor
from megengine.jit import trace
from megengine.utils.comp_graph_tools import GraphInference

TOOLS = Path(__file__).parent.parent.parent / "build" / "dev" / "bin"
TABLE = Tensor(np.ones((4, 3), "float32"))
LOGITS = Tensor(np.ones((2, 4), "float32"))
NET = M.Sequential(M.Conv2d(3, 4, 3), M.BatchNorm2d(4), M.ReLU())
NET.eval()


def line_of(mark: str) -> int:
    return next(i for i, t in enumerate(Path(__file__).read_text().splitlines(), 1) if t.endswith(f"# {mark}"))


def plain(i: Tensor) -> Tensor:
    return F.exp(F.nn.embedding(i, TABLE))  # plain


def fused(x: Tensor) -> Tensor:
    return NET(x * 2)  # fused


def broadcast(x: Tensor) -> Tensor:
    return F.exp(x * 2) + TABLE[0]  # broadcast


def composed(x: Tensor) -> Tensor:
    return F.nn.cross_entropy(LOGITS, x)  # composed


def inverse(x: Tensor) -> Tensor:
    return F.matinv(x) * 2  # inverse


INDEX, WRONG = np.array([1, 2], "int32"), np.array([1, 9], "int32")
CASES: list[tuple[Any, Any, Any, str, str]] = [
    (plain, INDEX, WRONG, "take", "float32[4,3], arg_0: int32[2]"),
    (composed, INDEX, WRONG, "softmax_xent", "float32[2,4], arg_0: int32[2]"),
    (inverse, np.eye(3, dtype="float32"), np.zeros((3, 3), "float32"), "matinv", "float32[3,3]"),
    (fused, np.ones((1, 3, 8, 8), "float32"), np.ones((1, 5, 8, 8), "float32"), "conv2d", "[1,5,8,8]"),
    (broadcast, np.ones((2, 3), "float32"), np.ones((2, 5), "float32"), "add", "[2,5]"),
]


def dumped(fn: Any, x: Any, **options: Any) -> bytes:
    f = trace(fn, symbolic=True, capture_as_const=True)
    f(Tensor(x))
    file = io.BytesIO()
    f.dump(file, **options)
    return file.getvalue()


@pytest.mark.parametrize(("fn", "good", "bad", "op", "inputs"), CASES, ids=[c[0].__name__ for c in CASES])
def test_the_line_is_told(fn: Any, good: Any, bad: Any, op: str, inputs: str, tmp_path: Path) -> None:
    where = f"{Path(__file__).name}:{line_of(fn.__name__)} in {fn.__name__}"
    data = dumped(fn, good)
    with pytest.raises(RuntimeError) as e:
        GraphInference(io.BytesIO(data)).run(bad)
    assert str(e.value).startswith(op) and inputs in str(e.value) and where in str(e.value)
    path = tmp_path / "m.mge"
    path.write_bytes(data)
    np.save(tmp_path / "bad.npy", bad)
    command = [TOOLS / "load_and_run", path, "--input", f"arg_0:{tmp_path / 'bad.npy'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 1 and op in said and inputs in said and where in said
    with pytest.raises(RuntimeError) as e:
        GraphInference(io.BytesIO(dumped(fn, good, enable_metadata=False))).run(bad)
    assert op in str(e.value) and Path(__file__).name not in str(e.value)


MEMORY = """
import io, resource, numpy as np, megengine as mge, megengine.functional as F
from megengine.utils.comp_graph_tools import GraphInference

def f(x):
    return F.tanh(x * 3) + F.sigmoid(x)

t = mge.jit.trace(f, symbolic=True, capture_as_const=True)
t(mge.Tensor(np.ones((2, 3), "float32")))
file = io.BytesIO()
t.dump(file)
file.seek(0)
run, x = GraphInference(file), np.ones((1 << 13, 1 << 13), "float32")
run.run(x[:2, :3].copy())
used = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + (3 << 27),) * 2)
run.run(x)
"""


def test_no_memory_in_a_fused_op(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(MEMORY)
    said = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False).stderr
    assert "out of memory" in said and "float32[8192,8192]" in said and "program.py:6 in f" in said, said
