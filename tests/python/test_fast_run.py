"""Choosing kernels by measuring: same results, remembered in memory and on disk, safe with broken files."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine import config
from megengine.core import _core, get_option, set_option


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: pathlib.Path):
    before = _core.tuning_file()
    _core.set_tuning_file(str(tmp_path / "deep" / "choices.tsv"))
    yield
    config.benchmark_kernel = False
    config.deterministic_kernel = False
    set_option("workspace_limit", 2**63 - 1)
    _core.set_tuning_file(before)


def conv(seed: int = 0):
    rng = np.random.RandomState(seed)
    x = mge.tensor(rng.uniform(-1, 1, (1, 128, 14, 14)).astype("float32"))
    w = mge.tensor(rng.uniform(-1, 1, (128, 128, 3, 3)).astype("float32"))
    return F.conv2d(x, w, padding=1).numpy()


def counts() -> tuple[int, int]:
    s = _core.tuning_stats()
    return s["measured"], s["found"]


def test_measured_choice_gives_the_same_numbers_and_is_kept() -> None:
    want = conv()
    measured, _ = counts()
    config.benchmark_kernel = True
    np.testing.assert_allclose(conv(), want, rtol=1e-4, atol=1e-4)
    assert counts()[0] > measured
    text = pathlib.Path(_core.tuning_file()).read_text()
    assert "conv2d" in text
    # Forgotten in memory, found on disk.
    _core.set_tuning_file(_core.tuning_file())
    measured, found = counts()
    conv()
    assert counts()[0] == measured and counts()[1] > found


def test_broken_files_are_no_error() -> None:
    config.benchmark_kernel = True
    conv()
    path = pathlib.Path(_core.tuning_file())
    whole = path.read_bytes()
    for bad in (b"", b"\x00\xff" * 100, whole[: len(whole) // 2], whole.replace(b"conv2d", b"conv9d"), b"a\tb\tc\td\n"):
        path.write_bytes(bad)
        _core.set_tuning_file(str(path))
        conv()
    _core.set_tuning_file("/proc/no/such/folder/file.tsv")
    conv()


def test_many_processes_share_one_file(tmp_path: pathlib.Path) -> None:
    code = (
        "import numpy as np, sys, megengine as mge, megengine.functional as F\n"
        "from megengine import config\n"
        "from megengine.core import _core\n"
        "config.benchmark_kernel = True\n"
        "w = mge.tensor(np.ones((512, 512), 'f4'))\n"
        "for n in range(200, 204):\n"
        "    F.matmul(mge.tensor(np.ones((n, 512), 'f4')), w, transpose_b=True).numpy()\n"
        "print(_core.tuning_stats()['measured'])\n"
    )
    env = {**os.environ, "MGE_FASTRUN_CACHE_DIR": str(tmp_path)}
    run = [sys.executable, "-c", code]
    jobs = [subprocess.Popen(run, env=env, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    measured = [int(j.communicate(timeout=120)[0]) for j in jobs]
    assert sum(measured) >= 4 and all(j.returncode == 0 for j in jobs)
    again = subprocess.run(run, env=env, capture_output=True, text=True, timeout=120, check=True)
    assert again.stdout.strip() == "0"
    memory = {**env, "MGE_FASTRUN_CACHE_TYPE": "MEMORY", "MGE_FASTRUN_CACHE_DIR": str(tmp_path / "unused")}
    subprocess.run(run, env=memory, timeout=120, check=True)
    assert not (tmp_path / "unused").exists()


def test_reproducible_does_not_depend_on_threads() -> None:
    config.deterministic_kernel = True
    threads = _core.get_num_threads()
    try:
        got = []
        for n in (1, 2, 3):
            _core.set_num_threads(n)
            got.append(conv().tobytes())
    finally:
        _core.set_num_threads(threads)
    assert got[0] == got[1] == got[2]


def test_workspace_limit_is_kept_when_possible() -> None:
    set_option("workspace_limit", 0)
    want = conv()
    assert get_option("workspace_limit") == 0
    set_option("workspace_limit", 2**63 - 1)
    np.testing.assert_allclose(conv(), want, rtol=1e-4, atol=1e-4)


def test_settings() -> None:
    assert get_option("kernel_strategy") == 1
    with config._override(benchmark_kernel=True, deterministic_kernel=True):
        assert get_option("kernel_strategy") == 6
    assert get_option("kernel_strategy") == 1
    for bad in (0, 8, 16):
        with pytest.raises(ValueError, match="kernel strategy"):
            set_option("kernel_strategy", bad)
    with pytest.raises(ValueError, match="workspace_limit"):
        set_option("workspace_limit", -1)
