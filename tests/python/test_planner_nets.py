"""Plans of the networks of the benchmarks at their full sizes, made without computing anything."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import resource
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.optimizer import SGD, Adam, Optimizer

BENCHMARKS = pathlib.Path(__file__).parents[2] / "benchmarks"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(BENCHMARKS))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCHMARKS))
    return module


NETS, CASES = load("nets_mge"), load("train").CASES


def step(net: Any, adam: bool) -> Any:
    params = list(net.parameters())
    opt: Optimizer = Adam(params, lr=1e-4) if adam else SGD(params, lr=0.01, momentum=0.9)
    gm = GradManager().attach(params)
    net.train()

    def run(x: mge.Tensor, y: mge.Tensor) -> mge.Tensor:
        with gm:
            loss = F.nn.cross_entropy(net(x), y)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    return trace(run, symbolic=True, without_host=True, record_only=True)


def plan(f: Any, x: np.ndarray, y: np.ndarray) -> Any:
    f(mge.Tensor(x), mge.Tensor(y))
    (report,) = json.loads(f._last.recording.described())["program"]["graph_exec"]["programs"]
    return report


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("name", CASES)
def test_arenas_are_close_to_the_lower_bound(name: str) -> None:
    case = CASES[name]
    report = plan(step(getattr(NETS, case.net)(), case.adam), *case.batch())
    assert report["arena_bytes"] <= 1.05 * report["lower_bound"], report


def test_resnet50_is_traced_and_compiled_in_time() -> None:
    f = step(NETS.ResNet50(), False)
    x, y = np.zeros((8, 3, 224, 224), np.float32), np.zeros(8, np.int32)
    before = cpu_seconds()
    report = plan(f, x, y)
    assert cpu_seconds() - before < 3, "seconds, of any thread, with all checks of this build"
    assert report["arena_bytes"] <= 1.05 * report["lower_bound"], report
    assert report["donated_vars"] == 428, "parameters, momenta and statistics of 53 batch norms: all in place"
