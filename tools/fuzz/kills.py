"""Processes killed while they write: what was there before stays whole, and next to nothing is left behind."""

from __future__ import annotations

import io
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PER_KILL = 500  # cases that a kill counts as: it takes some milliseconds


def main(budget: int, seed: int = 0) -> dict[str, int]:
    import numpy as np

    import megengine as mge
    from megengine import jit, safetensors

    folder = Path(tempfile.mkdtemp())
    versions = [np.full(60_000, v, "float32") for v in (1.0, 2.0)]

    def model(v: int) -> Callable[..., object]:
        weight = mge.Tensor(versions[v])

        @jit.trace(symbolic=True, capture_as_const=True)
        def add(x: mge.Tensor) -> mge.Tensor:
            return x + weight

        add(mge.Tensor(versions[0]))
        return add

    models = [model(0), model(1)]
    writers: dict[str, Callable[[int, object], object]] = {
        "save": lambda v, path: mge.save({"w": versions[v]}, path),
        "dump": lambda v, path: models[v].dump(path, arg_names=["x"]),  # type: ignore[attr-defined]
        "safetensors": lambda v, path: safetensors.save_file({"w": versions[v]}, path),
    }

    # What each file may hold, byte by byte.
    whole: dict[str, list[bytes]] = {}
    for name, write in writers.items():
        whole[name] = []
        for v in (0, 1):
            memory = io.BytesIO()
            write(v, memory)
            whole[name].append(memory.getvalue())
        write(0, folder / name)

    rng = random.Random(seed)
    counted = {"kills": 0, "left behind": 0}
    for _ in range(max(3, budget // PER_KILL)):
        name = rng.choice(sorted(writers))
        pid = os.fork()
        if pid == 0:
            try:
                k = 0
                while True:
                    writers[name]((k := k + 1) % 2, folder / name)
            finally:
                os._exit(1)
        time.sleep(rng.random() * 0.02)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        counted["kills"] += 1
        for other, versions_of in whole.items():
            assert (folder / other).read_bytes() in versions_of, f"{other} is neither the old file nor the new one"
        left = [p for p in os.listdir(folder) if p not in writers]
        assert len(left) <= 1, f"left behind: {left}"
        counted["left behind"] += len(left)
    writers["save"](0, folder / "save")
    assert sorted(os.listdir(folder)) == sorted(writers), "the next write does not clean up"
    return counted
