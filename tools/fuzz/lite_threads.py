"""Eight threads on one set of Lite's handles, which they run, change, destroy and make anew."""

from __future__ import annotations

import random
import threading
from collections import Counter

from _common import DATA, limit_memory

THREADS, SLOTS = 8, 4


def main(budget: int, seed: int = 0) -> dict[str, int]:
    limit_memory()
    import numpy as np

    import megenginelite as lite

    path = DATA / "lite" / "net_v1.mge"

    def fresh() -> lite.LiteNetwork:
        net = lite.LiteNetwork()
        net.load(path)
        return net

    nets = [fresh() for _ in range(SLOTS)]
    tensors = [lite.LiteTensor(lite.LiteLayout([2, 1, 8, 8], "float32")) for _ in range(SLOTS)]
    counts: list[Counter[str]] = [Counter() for _ in range(THREADS)]
    wrong: list[BaseException] = []

    def call(rng: random.Random) -> None:
        at = rng.randrange(SLOTS)
        net, tensor, other = nets[at], rng.choice(tensors), rng.choice(tensors)
        shape = [2, 1, rng.randrange(1, 9), 8]
        kind = rng.randrange(16)
        if kind == 0:
            nets[at] = fresh()
        elif kind == 1:
            tensors[at] = lite.LiteTensor(lite.LiteLayout(shape, "float32"))
        elif kind == 2:
            tensors[at] = net.get_io_tensor(rng.choice(["data", "logits", "prob"]))
        elif kind == 3:
            tensor.layout = lite.LiteLayout(shape, "float32")
        elif kind == 4:
            tensor.set_data_by_copy(np.ones(shape, "float32"))
        elif kind == 5:
            tensor.copy_from(other)
        elif kind == 6:
            tensor.fill_zero()
        elif kind == 7:
            tensor.to_numpy()
        elif kind == 8:
            tensor.slice([0], [1]).to_numpy()
        elif kind == 9:
            lite.LiteTensorConcat([tensor, other], 0)
        elif kind == 10:
            net.get_all_output_name()
        elif kind == 11:
            net.async_with_callback(lambda: 0)
        elif kind == 12:
            net.set_start_callback(lambda inputs: [t.layout for t in inputs.values()])
        else:
            net.forward()
            net.wait()

    def work(t: int) -> None:
        rng = random.Random(seed * THREADS + t)
        for _ in range(max(1, budget // THREADS)):
            counts[t]["calls"] += 1
            try:
                call(rng)
            except RuntimeError as e:
                counts[t]["refused"] += 1
                if not str(e):
                    wrong.append(AssertionError("an error without a text"))
            except BaseException as e:
                wrong.append(e)
                return

    threads = [threading.Thread(target=work, args=(t,)) for t in range(THREADS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if wrong:
        raise wrong[0]
    return dict(sum(counts, Counter()))
