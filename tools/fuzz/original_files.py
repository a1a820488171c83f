"""Mutated model files of MegEngine's own formats through the whole of Lite: loaded, compiled, run."""

from __future__ import annotations

import io
import random

from _common import DATA, limit_memory, mutate


def main(budget: int, seed: int = 0) -> dict[str, int]:
    limit_memory()
    import megenginelite as lite

    files = sorted((DATA / "original").glob("*.mge"))
    good = [f.read_bytes() for f in files if f.stat().st_size < 20_000]
    rng = random.Random(seed)
    counted = {"models": 0, "refused": 0, "run": 0}
    for _ in range(budget):
        data = mutate(rng.choice(good), rng)
        counted["models"] += 1
        try:
            net = lite.LiteNetwork()
            net.load(io.BytesIO(data))
            for name in net.get_all_input_name():
                net.get_io_tensor(name, lite.LiteTensorPhase.LITE_INPUT).fill_zero()
            net.forward()
            net.wait()
            counted["run"] += 1
        except RuntimeError as e:
            assert str(e), "an error without a text"
            counted["refused"] += 1
    return counted
