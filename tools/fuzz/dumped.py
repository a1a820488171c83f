"""Mutated dumps (modules, lines, test cases, plain data, a second model behind the first) through everything in Python
that reads them: as a graph, as metadata, as a network that is run. Two thirds have checksums that fit."""

from __future__ import annotations

import io
import random

import numpy as np
from _common import limit_memory, mutate, reseal


def dumped() -> list[bytes]:
    import megengine as mge
    import megengine.functional as F
    import megengine.module as M

    class Net(M.Module):
        def __init__(self) -> None:
            super().__init__(name="net")
            self.conv, self.fc = M.Conv2d(1, 2, 3), M.Linear(8, 3)

        def forward(self, x: mge.Tensor) -> mge.Tensor:
            return F.softmax(self.fc(F.flatten(F.max_pool2d(F.relu(self.conv(x)), 2), 1)))

    net = Net()
    net.eval()
    f = mge.jit.trace(lambda x: net(x), symbolic=True, capture_as_const=True)
    f(mge.Tensor(np.ones((1, 1, 6, 6), "float32")))
    out = io.BytesIO()
    f.dump(
        out,
        keep_var_name=2,
        user_info={"mean": np.ones(3), "names": ("a", "b")},
        input_data=["#rand(0,1)"],
        silent=True,
    )
    g = mge.jit.trace(lambda i: net.fc.weight[i] * 2, symbolic=True, capture_as_const=True)
    g(mge.Tensor([1, 2]))
    both = io.BytesIO()
    g.dump(both)
    g.dump(both)
    return [out.getvalue(), both.getvalue()]


def main(budget: int, seed: int = 0) -> dict[str, int]:
    limit_memory()
    from megengine.core import _core
    from megengine.core._model_file import read_metadata
    from megengine.utils.comp_graph_tools import GraphInference

    good = dumped()
    rng = random.Random(seed)
    counted = {"dumps": 0, "refused": 0, "read": 0, "run": 0}
    for i in range(budget):
        data = mutate(good[i % 2], rng)
        if i % 3:
            data = reseal(data)
        counted["dumps"] += 1
        try:
            graph = _core.Graph(data)
            graph.opr_names()
            read_metadata(graph.metadata)
            counted["read"] += 1
            run = GraphInference(io.BytesIO(data))
            inputs = {n: np.ones(s, d) for n, d, s in _core.model_io(data)[0]}
            run.run(inp_dict=inputs)
            counted["run"] += 1
        except (RuntimeError, ValueError, IndexError, TypeError, AssertionError) as e:
            assert str(e), "an error without a text"
            counted["refused"] += 1
    return counted
