"""Device names, defaults, memory counters, exit handlers, import cost."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine import Tensor
from megengine.core._core import CompNode
from megengine.device import DeviceType, _sh, _valid_device, what_is_xpu


def run(code: str, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, *args, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "name, good",
    [
        ("cpu0", True),
        ("cpux", True),
        ("xpux", True),
        ("gpu3:2", True),
        ("multithread4", True),
        ("rocm0", True),
        ("cpu", False),
        ("tpu0", False),
        ("cpu0:", False),
        ("cpu-1", False),
        ("", False),
    ],
)
def test_names(name, good):
    assert _valid_device(name) is good


def test_comp_node():
    c = CompNode("xpux")
    assert (str(c), c.logical_name) == ("xpux:0", "xpux:0")
    assert c.physical_name in ("cpu0:0", "gpu0:0") and len(c.physical_locator) == 3
    assert repr(c) == f'CompNode("{c.physical_name}" from "xpux:0")'
    assert c == CompNode("xpux") and c == "xpux" and c == "xpux:0" and c != "cpu0:1" and c != 3
    assert hash(c) == hash(CompNode("xpux:0"))
    assert pickle.loads(pickle.dumps(c)) == c
    with pytest.raises(ValueError):
        CompNode("nowhere0")


def test_default_device():
    assert mge.get_default_device() == "xpux"
    try:
        mge.set_default_device("cpu0")
        assert mge.get_default_device() == "cpu0" and Tensor([1.0]).device == "cpu0"
        assert F.zeros((2,)).device == "cpu0" and F.arange(3).device == "cpu0"
    finally:
        mge.set_default_device()
    assert mge.get_default_device() == "xpux"
    with pytest.raises(AssertionError):
        mge.set_default_device("nowhere")


def test_default_device_from_the_environment():
    out = run(
        """
        import os
        os.environ["MGE_DEFAULT_DEVICE"] = "cpu0"
        import megengine as mge
        print(mge.get_default_device(), mge.tensor([1.0]).device)
        """
    )
    assert out.split() == ["cpu0", "cpu0:0"]


def test_counts():
    assert mge.get_device_count("cpu") >= 1
    for kind in ("gpu", "xpu", "rocm", "cambricon", "atlas"):
        assert mge.get_device_count(kind) >= 0
    with pytest.raises(AssertionError):
        mge.get_device_count("tpu")
    assert mge.is_cuda_available() == (mge.get_device_count("gpu") > 0)
    assert not mge.is_rocm_available() and not mge.is_atlas_available() and not mge.is_cambricon_available()
    assert what_is_xpu() in ("cpu", "cuda")
    assert _sh.get_next() + 1 == _sh.get_next()


def test_ambiguous_devices():
    with pytest.raises(ValueError):
        Tensor([1.0], device="cpu0") + Tensor([1.0], device="cpu0:1")


def test_memory_counters():
    mge._full_sync()
    mge.reset_max_memory_stats()
    before = mge.get_allocated_memory()
    x = Tensor(np.zeros(1 << 20, "float32"))
    mge._full_sync()
    assert mge.get_allocated_memory() - before >= 4 << 20
    assert mge.get_max_allocated_memory() >= mge.get_allocated_memory()
    assert mge.get_reserved_memory() >= mge.get_allocated_memory()
    del x
    assert mge.get_allocated_memory() <= before + 4096
    peak = mge.get_max_allocated_memory()
    mge.reset_max_memory_stats()
    assert mge.get_max_allocated_memory() < peak
    mge.coalesce_free_memory()
    total, free = mge.get_mem_status_bytes()
    assert total > free > 0


def test_peak_of_a_small_tensor():
    mge._full_sync()
    mge.reset_max_memory_stats()
    before = mge.get_max_allocated_memory()
    x = F.zeros((1024,))
    mge._full_sync()
    assert 4096 <= mge.get_max_allocated_memory() - before <= 4224
    del x


def test_cuda_queries_without_cuda():
    if mge.is_cuda_available():
        pytest.skip("a GPU is present")
    assert [f() for f in (mge.get_cuda_version, mge.get_cudnn_version, mge.get_tensorrt_version)] == [-1, -1, -1]
    assert mge.get_cuda_driver_version() == -1
    with pytest.raises(NotImplementedError, match="CUDA"):
        mge.get_cuda_compute_capability(0)
    mge.set_prealloc_config(device_type=DeviceType.CUDA)
    with pytest.raises(AssertionError):
        mge.set_prealloc_config(alignment=0)


def test_exit_handlers_run_in_reverse_order():
    out = run(
        """
        import megengine as mge
        mge._atexit(lambda: print("first"))
        mge._atexit(lambda: print("second"))
        x = mge.tensor([1.0]) + 1
        mge._exit(0)
        """
    )
    assert out.split() == ["second", "first"]


def test_import_is_light():
    """Without numpy, which every array program pays for anyway: few modules, little memory, little time."""
    out = run(
        """
        import resource, sys, time
        import numpy
        a, t = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        import megengine
        print(time.process_time() - t, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - a) / 1024)
        heavy = ("asyncio", "multiprocessing", "dataclasses", "tempfile", "urllib", "socket")
        print([m for m in heavy if m in sys.modules])
        """
    )
    numbers, heavy = out.splitlines()
    seconds, megabytes = map(float, numbers.split())
    assert heavy == "[]"
    assert megabytes < 30 and seconds < 1.0  # generous: without .pyc files and on a busy machine


def test_version():
    assert mge.__version__ == "2.0.0.dev0"
    import megengine.version as version

    assert version.git_version
