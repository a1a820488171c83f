"""opt_level, graph_opt_config and the options of inference, as users give them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import megengine.functional as F
from megengine import Tensor
from megengine.core import _core
from megengine.jit import GraphOptimizationConfig, trace


def x(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(3).standard_normal(shape).astype("float32"))


@pytest.mark.parametrize("without_host", [False, True])
@pytest.mark.parametrize("opt_level", [0, 1, 2, 3])
def test_every_level_gives_the_same_bits(opt_level: int, without_host: bool) -> None:
    def step(a: Tensor, b: Tensor) -> Tensor:
        return F.sum(F.exp(a * 1 + b / 4) - a / a, axis=1)

    f = trace(step, opt_level=opt_level, without_host=without_host)
    a, b = x(5, 7), x(5, 1)
    want = step(a, b).numpy()
    for _ in range(3):
        np.testing.assert_array_equal(f(a, b).numpy(), want)


@pytest.mark.parametrize("level", [-1, 4, True, "2", 2.5])
def test_levels_are_0_to_3(level: Any) -> None:
    with pytest.raises(ValueError, match="opt_level is 0, 1, 2 or 3; got"):
        trace(lambda a: a, opt_level=level)


def report(f: trace) -> str:
    assert f._last is not None
    return str(f._last.recording.report())


def test_reductions_stay_out_of_regions_on_request() -> None:
    texts = {}
    for on in (None, True, False):
        config = GraphOptimizationConfig()
        config.jit_fuse_reduce = on
        f = trace(lambda a: F.sum(F.exp(a) * 2, axis=1), without_host=True, graph_opt_config=config)
        a = x(64, 256)
        want = f(a).numpy()
        np.testing.assert_array_equal(f(a).numpy(), want)
        texts[on] = report(f)
    assert " reduce" not in texts[None] and " reduce" not in texts[True]
    assert " reduce" in texts[False] and " fused" in texts[False]


def test_config_is_checked() -> None:
    config = GraphOptimizationConfig()
    config.jit_fuse_reduce = 2  # type: ignore[assignment]
    with pytest.raises(TypeError, match="jit_fuse_reduce is True, False or None; got 2"):
        trace(lambda a: a, graph_opt_config=config)
    config = GraphOptimizationConfig()
    config.rewrites = "all"
    with pytest.raises(TypeError, match="rewrites is a list of names; got 'all'"):
        trace(lambda a: a, graph_opt_config=config)
    config.rewrites = ["fast_math"]
    with pytest.raises(ValueError, match="rewrites: there is none called 'fast_math'. There are all, div_self, "):
        trace(lambda a: a, graph_opt_config=config)


def test_words() -> None:
    word = _core.inference_word([("enable_io16xc32", True), ("enable_nchw4", True), ("enable_nchw88", True)])
    assert word == 3 << 32 | 64 | 1
    assert _core.inference_keywords(word) == ["enable_io16xc32", "enable_fuse_grain", "enable_nchw88"]
    with pytest.raises(ValueError, match=r"^unknown options: \['fast'\]"):
        _core.inference_word([("fast", True)])
    with pytest.raises(ValueError, match="a layout nobody here knows"):
        _core.inference_keywords(99 << 32)
