"""CUDA devices as Python sees them, over a driver that is not one (tests/cpp/cuda/mock_driver.cpp), in processes of
their own: a driver is found once."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def mock_driver() -> pathlib.Path:
    asked = os.environ.get("MGE_MOCK_DRIVER")
    return pathlib.Path(asked) if asked else next((ROOT / "build" / "dev").rglob("libmge_mock_driver.so"))


def run(body: str, driver: str | None = None) -> str:
    env = {**os.environ, "MGE_CUDA_DRIVER": driver or str(mock_driver())}
    code = "import numpy as np\nimport megengine as mge\nfrom megengine.core import _core\n" + textwrap.dedent(body)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_devices_are_found_named_and_described() -> None:
    out = run("""
        print(mge.get_device_count("gpu"), mge.is_cuda_available(), mge.device.get_cuda_driver_version())
        print(mge.device.get_cuda_compute_capability(0), mge.device.get_cuda_device_property(1).name)
        x = mge.Tensor([1.0, 2.0], device="gpu1:1")
        print(x.device, x.numpy().tolist())
        mge.set_default_device("gpu0")
        print(mge.Tensor([3]).device, mge.Tensor([3]).tolist())
    """)
    assert out.splitlines() == ["2 True 13000", "90 Mock GPU", "gpu1:1 [1.0, 2.0]", "gpu0:0 [3]"]


def test_values_of_all_sizes_come_back() -> None:
    assert (
        run("""
        for n in (0, 1, 1000, 1 << 20, 20 << 20):
            a = np.arange(n, dtype=np.float32)
            x = mge.Tensor(a, device="gpu0")
            for y in (x, x.to("gpu0:1"), x.to("gpu1"), x.to("cpu0")):
                assert np.array_equal(y.numpy(), a), (n, y.device)
        print("same")
    """)
        == "same"
    )


def test_memory_is_counted_and_limited_by_device() -> None:
    assert (
        run("""
        x = mge.Tensor(np.zeros(1 << 20, np.float32), device="gpu0")
        mge._full_sync()
        assert mge.get_allocated_memory("gpu0") == 4 << 20
        assert mge.get_reserved_memory("gpu0") >= 4 << 20
        assert mge.get_mem_status_bytes("gpu0")[0] == 1 << 30
        _core.set_memory_limit(5 << 20, "gpu0")
        try:
            mge.Tensor(np.zeros(1 << 20, np.float32), device="gpu0").numpy()
        except MemoryError as e:
            assert "memory limit of gpu0" in str(e), e
        _core.set_memory_limit(0, "gpu0")
        del x
        mge._full_sync()
        mge.device.coalesce_free_memory()
        assert mge.get_allocated_memory("gpu0") == 0 and mge.get_reserved_memory("gpu0") == 0
        print("counted")
    """)
        == "counted"
    )


def test_checkpoints_go_from_one_device_to_another(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.pkl"
    assert (
        run(f"""
        mge.save({{"x": mge.Tensor([1.0, 2.0], device="gpu0")}}, {str(path)!r})
        x, y = mge.load({str(path)!r})["x"], mge.load({str(path)!r}, map_location="cpu0")["x"]
        print(x.device, x.tolist(), y.device, y.tolist())
    """)
        == "gpu0:0 [1.0, 2.0] cpu0:0 [1.0, 2.0]"
    )
    assert run(f"print(mge.load({str(path)!r}, map_location='cpu0')['x'].tolist())", driver="/none") == "[1.0, 2.0]"


def test_dlpack_shares_memory_of_the_device() -> None:
    assert (
        run("""
        from megengine.utils.dlpack import from_dlpack
        x = mge.Tensor([1.0, 2.0, 3.0], device="gpu1")
        assert x.__dlpack_device__() == (2, 1)
        for _ in range(3):
            x = from_dlpack(x)
        y = from_dlpack(x.__dlpack__(stream=2))
        del x
        print(y.device, y.tolist())
    """)
        == "gpu1:0 [1.0, 2.0, 3.0]"
    )


def test_a_forked_child_is_told() -> None:
    assert (
        run("""
        import os
        x = mge.Tensor([1.0], device="gpu0")
        assert x.tolist() == [1.0]
        child = os.fork()
        if child == 0:
            try:
                mge.Tensor([1.0], device="gpu0").numpy()
            except Exception as e:
                os._exit(0 if "forked process cannot use CUDA" in str(e) else 1)
            os._exit(2)
        print(os.waitpid(child, 0)[1], x.tolist())
    """)
        == "0 [1.0]"
    )


def test_nothing_is_loaded_before_a_device_is_asked_for() -> None:
    out = run("""
        mge.Tensor([1.0]) + 1
        maps = open("/proc/self/maps").read()
        print("mock_driver" in maps, "nvrtc" in maps)
        mge.get_device_count("gpu")
        print("mock_driver" in open("/proc/self/maps").read())
    """)
    assert out.splitlines() == ["False False", "True"]


def test_without_a_driver_all_is_as_before() -> None:
    out = run(
        """
        print(mge.get_device_count("gpu"), mge.is_cuda_available(), mge.device.get_cuda_driver_version())
        try:
            mge.Tensor([1.0], device="gpu0")
        except ValueError as e:
            print(e)
        try:
            mge.device.get_cuda_compute_capability(0)
        except ValueError as e:
            print(e)
        """,
        driver="/nowhere/libcuda.so.1",
    )
    counts, tensor, capability = out.splitlines()
    assert counts == "0 False -1"
    assert "'gpu0' names a gpu device, and there is none" in tensor and "/nowhere/libcuda.so.1" in tensor
    assert "there is no gpu device" in capability


@pytest.mark.parametrize("driver", [None, "/nowhere/libcuda.so.1"])
def test_the_doctor_says_what_is_there(driver: str | None) -> None:
    out = run(
        """
        from megengine.utils import doctor
        found = doctor._cuda()
        print(found.found)
        print(found.problem)
        """,
        driver,
    )
    assert ("Mock GPU" in out) == (driver is None)
    assert ("no gpu device" in out) == (driver is not None)
