"""What both sides of the parity runs share: weights, data and optimizer of each example. NumPy only.

Weights come from one NumPy stream in the order of the parameters' names, so no file of weights travels: two networks
with the same names and sizes start from the same numbers.
"""

from __future__ import annotations

import math
import pathlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "examples"))
from datasets import digits, synthetic_images, synthetic_text

STEPS = 20
BATCH = {"lenet": 32, "resnet18": 8, "transformer": 8}
# With the default eps of 1e-8 Adam divides rounding noise by rounding noise where a gradient is almost 0, and
# differences of 1e-7 grow tenfold every three steps in whichever framework; 1e-4 keeps them where they are.
OPTIMIZERS: dict[str, tuple[str, dict[str, float]]] = {
    "lenet": ("Adam", {"lr": 2e-3, "eps": 1e-4}),
    "resnet18": ("SGD", {"lr": 1e-3, "momentum": 0.9, "weight_decay": 1e-4}),
    "transformer": ("Adam", {"lr": 2e-3, "eps": 1e-4}),
}


def weights(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Values for parameters of these shapes; of axes of size 1 only the number of elements counts."""
    rng = np.random.RandomState(7)
    found = {}
    for name in sorted(shapes):
        shape = shapes[name]
        size = math.prod(shape)
        values = rng.randn(size)
        if sum(n > 1 for n in shape) <= 1:  # a bias, or the scale of a normalisation
            values = 0.05 * values + name.endswith("weight")
            if name.endswith("bn2.weight"):
                # Residual branches start small. From 1.0 on, losses in float32 and float64 part tenfold with every step
                # in PyTorch itself: a rounding error decides which relu lets a gradient pass.
                values *= 0.1
        else:
            values *= math.sqrt(2 / (size / shape[0]))
        found[name] = values.astype(np.float32).reshape(shape)
    return found


def batches(case: str, steps: int = STEPS) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Inputs and labels of each step."""
    n = BATCH[case]
    arrays: tuple[Any, ...]
    if case == "lenet":
        arrays = digits()[:2]
    elif case == "resnet18":
        arrays = synthetic_images(steps * n, seed=1)
    else:
        arrays = synthetic_text(steps * n)[:2]
    for i in range(steps):
        x, y = (a[i * n : (i + 1) * n] for a in arrays)
        yield np.ascontiguousarray(x), np.ascontiguousarray(y)
