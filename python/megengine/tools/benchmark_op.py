"""Times of functions beside PyTorch's on this machine: microseconds a call, over 1,000 calls or a second."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import functional as F
from ..core import _core
from ..tensor import Tensor
from ..utils._table import table
from ._command import Parser, UsageError, run

#: name, our function, PyTorch's (in terms of its module), shapes small and large
_CASES: list[tuple[str, Callable[..., Any], Callable[..., Any], list[tuple[int, ...]]]] = [
    ("add", lambda a, b: a + b, lambda t, a, b: a + b, [(100, 100), (64, 512, 16, 16)]),
    ("exp", F.exp, lambda t, a, _: t.exp(a), [(100, 100), (64, 512, 16, 16)]),
    ("relu", F.relu, lambda t, a, _: t.relu(a), [(100, 100), (64, 512, 16, 16)]),
    ("sum", lambda a, b: F.sum(a, -1), lambda t, a, b: a.sum(-1), [(100, 100), (64, 512, 16, 16)]),
    ("softmax", lambda a, b: F.softmax(a, -1), lambda t, a, b: t.softmax(a, -1), [(100, 100), (64, 512, 16, 16)]),
    ("matmul", F.matmul, lambda t, a, b: t.matmul(a, b), [(100, 100), (512, 512)]),
    ("transpose", lambda a, b: F.transpose(a, (1, 0)), lambda t, a, b: a.t().contiguous(), [(100, 100), (2048, 2048)]),
]


def _seconds(call: Callable[[], Any], wait: Callable[[], Any]) -> float:
    call()
    wait()
    n, begin = 0, time.perf_counter()
    while n < 1000 and time.perf_counter() - begin < 1:
        call()
        n += 1
    wait()
    return (time.perf_counter() - begin) / max(n, 1)


def main(argv: Sequence[str] | None = None) -> int:
    """The command; gives the exit status."""
    Parser("benchmark_op", __doc__).parse_args(argv)
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        raise UsageError("needs PyTorch to compare with: pip install torch") from None
    rng, rows = np.random.RandomState(0), [["op", "shape", "ours, us", "PyTorch, us", "ratio"]]
    for name, ours, theirs, shapes in _CASES:
        for shape in shapes:
            a, b = (rng.uniform(0.1, 1, shape).astype("float32") for _ in range(2))
            x, y, p, q = Tensor(a), Tensor(b), torch.from_numpy(a), torch.from_numpy(b)
            unary = name in ("exp", "relu")
            mine = _seconds(lambda: ours(x) if unary else ours(x, y), _core.sync)  # noqa: B023
            other = _seconds(lambda: theirs(torch, p, q), lambda: None)  # noqa: B023
            sizes = "x".join(map(str, shape))
            rows.append([name, sizes, f"{mine * 1e6:.2f}", f"{other * 1e6:.2f}", f"{other / mine:.2f}"])
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(run("benchmark_op", main))
