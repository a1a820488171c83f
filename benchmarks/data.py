"""DataLoader beside PyTorch's: the same samples, batches and number of workers. A cell is the least of all rounds.

*faster by* compares the time of one batch while an epoch runs, the start of the workers not counted. *CPU* compares
what all processes of an epoch compute, their start and end included: a busy machine does not change it.

python benchmarks/data.py --torch-python .venv-bench-torch/bin/python [--rounds 5] [--workers 2]

*same functions*: both run the same NumPy functions on each sample, so the row compares the loaders. *own transforms*:
ours are `megengine.data.transform`, PyTorch's the same steps in its tensor operations (torchvision is not needed).
"""

from __future__ import annotations

import gc
import multiprocessing
import pathlib
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from peers import answer_requests, missed, run_table, set_threads, show, start_peers, times

HERE = pathlib.Path(__file__).parent
# name -> height and width of a sample, of the crop, padding before it, samples of a batch, batches of an epoch
SIZES = {
    "28x28, batch of 256": (28, 28, 0, 256, 30),
    "32x32 padded by 4, batch of 128": (32, 32, 4, 128, 30),
    "256x256 to 224x224, batch of 64": (256, 224, 0, 64, 16),
}
KINDS = ("no transform", "same functions", "own transforms")
CASES = [f"{size}, {kind}" for size in SIZES for kind in KINDS]
MEAN, STD = (103.5, 116.3, 123.7), (57.4, 57.1, 58.4)


def numpy_steps(crop: int, padding: int) -> Callable[[np.ndarray], np.ndarray]:
    """Crop, flip, normalise, channels first, as a user writes it."""
    mean, std = np.array(MEAN, "float32"), np.array(STD, "float32")

    def steps(image: np.ndarray) -> np.ndarray:
        if padding:
            image = np.pad(image, ((padding, padding), (padding, padding), (0, 0)))
        y, x = np.random.randint(image.shape[0] - crop + 1), np.random.randint(image.shape[1] - crop + 1)
        image = image[y : y + crop, x : x + crop]
        if np.random.rand() < 0.5:
            image = image[:, ::-1]
        return np.ascontiguousarray(((image - mean) / std).transpose(2, 0, 1))

    return steps


def torch_steps(crop: int, padding: int) -> Callable[[np.ndarray], Any]:
    import torch

    mean, std = torch.tensor(MEAN).reshape(3, 1, 1), torch.tensor(STD).reshape(3, 1, 1)

    def steps(array: np.ndarray) -> Any:
        image = torch.from_numpy(array).permute(2, 0, 1)
        if padding:
            image = torch.nn.functional.pad(image, (padding,) * 4)
        y = int(torch.randint(image.shape[1] - crop + 1, ()))
        x = int(torch.randint(image.shape[2] - crop + 1, ()))
        image = image[:, y : y + crop, x : x + crop]
        if torch.rand(()) < 0.5:
            image = image.flip(2)
        return image.to(torch.float32).sub_(mean).div_(std)

    return steps


def images(size: int, count: int) -> np.ndarray:
    kept = np.random.RandomState(0).randint(0, 256, (64, size, size, 3)).astype("uint8")
    return np.concatenate([kept] * (-(-count // 64)))[:count]


def mge_loader(kind: str, data: np.ndarray, crop: int, padding: int, batch: int, workers: int) -> Any:
    from megengine.data import DataLoader, SequentialSampler
    from megengine.data import transform as T
    from megengine.data.dataset import ArrayDataset

    class Steps(T.Transform):
        def __init__(self) -> None:
            self.steps = numpy_steps(crop, padding)

        def apply(self, sample: tuple[Any, ...]) -> tuple[Any, ...]:
            return self.steps(sample[0]), *sample[1:]

    transform: Any = None
    if kind == "same functions":
        transform = Steps()
    elif kind == "own transforms":
        transform = T.Compose(
            [T.RandomCrop(crop, padding), T.RandomHorizontalFlip(), T.Normalize(MEAN, STD), T.ToMode("CHW")]
        )
    dataset = ArrayDataset(data, np.arange(len(data)))
    return DataLoader(dataset, SequentialSampler(dataset, batch), transform, num_workers=workers)


def torch_loader(kind: str, data: np.ndarray, crop: int, padding: int, batch: int, workers: int) -> Any:
    from torch.utils.data import DataLoader, Dataset

    labels = np.arange(len(data))
    steps = {
        "no transform": lambda image: image,
        "same functions": numpy_steps(crop, padding),
        "own transforms": torch_steps(crop, padding),
    }[kind]

    class Samples(Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return len(data)

        def __getitem__(self, i: int) -> Any:
            return steps(data[i]), labels[i]

    return DataLoader(Samples(), batch, num_workers=workers)


def epoch(loader: Any) -> float:
    """Seconds of one batch, the first not counted."""
    batches = iter(loader)
    next(batches)
    began, count = time.perf_counter(), 0
    for _ in batches:
        count += 1
    return (time.perf_counter() - began) / count


def computed() -> float:
    """Seconds of processor time of this process and of those it has waited for."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in usages)


def serve(peer: str) -> None:
    set_threads(peer)
    make = mge_loader if peer == "mge" else torch_loader
    last_cpu = 0.0

    def answer(case: str, workers: str) -> float:
        nonlocal last_cpu
        if case == "cpu":  # of the epoch before
            return last_cpu
        name, kind = next((n, k) for n in SIZES for k in KINDS if case == f"{n}, {k}")
        size, crop, padding, batch, count = SIZES[name]
        data = images(size, batch * count)
        before = computed()
        seconds = epoch(make(kind, data, crop, padding, batch, int(workers)))
        gc.collect()  # workers end with their iterator
        while multiprocessing.active_children():
            time.sleep(0.01)
        last_cpu = (computed() - before) / count
        return seconds

    answer_requests(answer)


def table(torch_python: str, rounds: int, workers: int = 2) -> None:
    ours, torch = start_peers(HERE / "data.py", torch_python, 1)
    print(f"\nDataLoader, one batch, {workers} workers, {rounds} rounds\n")
    print(f"| {'samples':47} |  megengine |    PyTorch | faster by |     CPU | wanted | |")
    print(f"| {'-' * 47} | ---------- | ---------- | --------- | ------- | ------ | - |")
    for case in CASES:
        wall: list[list[float]] = [[], []]
        cpu: list[list[float]] = [[], []]
        for _ in range(rounds):
            for i, peer in enumerate((ours, torch)):
                wall[i].append(peer.ask(case, str(workers)))
                cpu[i].append(peer.ask("cpu", str(workers)))
        mine, theirs = min(wall[0]), min(wall[1])
        ratio, less = theirs / mine, min(cpu[1]) / min(cpu[0])
        print(
            f"| {case:47} | {show(mine):>10} | {show(theirs):>10} | {times(ratio):>9} | {times(less):>7} | 1.0x | "
            f"{missed(ratio, 1)} |",
            flush=True,
        )
    ours.stop()
    torch.stop()


def main() -> int:
    options = {"--workers": {"type": int, "default": 2}}
    return run_table(__doc__, serve, lambda a: table(a.torch_python, a.rounds, a.workers), rounds=3, options=options)


if __name__ == "__main__":
    sys.exit(main())
