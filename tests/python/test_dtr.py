"""dtr: settings are parsed, kept and read back, and change no result."""

from __future__ import annotations

import numpy as np
import pytest

import megengine as mge
from megengine import dtr
from megengine.core import get_option


@pytest.fixture(autouse=True)
def _restore():
    yield
    dtr.eviction_threshold, dtr.evictee_minimum_size, dtr.enable_sqrt_sampling = 0, 1 << 20, False
    dtr.disable()


@pytest.mark.parametrize(
    "text, size",
    [("2GB", 2 << 30), ("512 MB", 512 << 20), ("1kb", 1024), ("10b", 10), ("1.5 KB", 1536), (" 1mB ", 1 << 20), (5, 5)],
)
def test_sizes(text, size):
    assert dtr.eviction_threshold == 0 and dtr.evictee_minimum_size == 1 << 20
    dtr.eviction_threshold = text
    dtr.evictee_minimum_size = text
    assert dtr.eviction_threshold == dtr.evictee_minimum_size == size == get_option("dtr_eviction_threshold")


@pytest.mark.parametrize("bad", ["3", "x", "1TB", "-1GB", "", -1])
def test_bad_sizes(bad):
    with pytest.raises(ValueError, match="eviction_threshold must"):
        dtr.eviction_threshold = bad


@pytest.mark.parametrize("bad", [2.5, None, [1]])
def test_bad_types(bad):
    with pytest.raises(TypeError, match="must be a str or an int"):
        dtr.evictee_minimum_size = bad


def test_switches():
    dtr.enable()
    names = ("enable_dtr_auto_drop", "enable_drop", "record_computing_path")
    assert [get_option(n) for n in names] == [1, 1, 1]
    x = mge.tensor(np.arange(3.0))
    y = x * 2 + 1
    y._drop()
    assert y.tolist() == [1, 3, 5]
    dtr.disable()
    assert [get_option(n) for n in names] == [0, 0, 0]
    dtr.enable_sqrt_sampling = True
    assert dtr.enable_sqrt_sampling is True


def test_configs_are_where_programs_look_for_them():
    from megengine import jit
    from megengine.jit.dtr_config import DTRConfig
    from megengine.jit.graph_opt_config import GraphOptimizationConfig
    from megengine.jit.sublinear_memory_config import SublinearMemoryConfig

    assert jit.DTRConfig is DTRConfig and jit.GraphOptimizationConfig is GraphOptimizationConfig
    assert jit.SublinearMemoryConfig is SublinearMemoryConfig
