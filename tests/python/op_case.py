"""What a row of op_cases.py is, and how its arguments are drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Shape = tuple[int, ...]
UNARY_SHAPES: tuple[Shape, ...] = ((7,), (2, 3, 17), (), (0, 3), (1, 33))
BINARY_SHAPES: tuple[tuple[Shape, Shape], ...] = (
    ((5,), (5,)), ((2, 3, 4), (1, 4)), ((3, 1), (1, 19)), ((), (4,)), ((2, 0, 3), (3,)), ((), ()), ((2, 5, 3, 3), (1, 5, 1, 1)),
)  # fmt: skip


@dataclass(frozen=True)
class OpCase:
    """How to call an op and what NumPy says it gives.

    ``inputs`` draws the arguments from a seeded generator in float64; integer and bool arrays are kept as they are.
    """

    name: str
    ref: Callable[..., Any]
    inputs: Callable[[np.random.RandomState], list[np.ndarray]]
    attrs: dict[str, Any] = field(default_factory=dict)
    label: str = ""
    grad: bool = True  # first order checked
    grad2: bool = True  # second order checked
    wrt: Sequence[int] | None = None  # inputs to differentiate; None = all floating ones
    outs: Sequence[int] | None = None  # outputs that enter the checked loss; None = all floating ones
    tol: float = 2e-5  # relative, float32 against float64; say why when larger
    lite: bool = True  # goes through trace, file and Lite

    @property
    def id(self) -> str:
        return f"{self.name}-{self.label}" if self.label else self.name


def draw(
    shapes: Sequence[Shape], lo: float = -2.0, hi: float = 2.0
) -> Callable[[np.random.RandomState], list[np.ndarray]]:
    return lambda rng: [rng.uniform(lo, hi, s) for s in shapes]


def away_from(
    points: Sequence[float], shapes: Sequence[Shape], lo: float = -2.0, hi: float = 2.0, gap: float = 0.05
) -> Any:
    """Values that keep a distance from points where the op has a kink, so that finite differences mean something."""

    def make(rng: np.random.RandomState) -> list[np.ndarray]:
        out = []
        for s in shapes:
            v = rng.uniform(lo, hi, s)
            for p in points:
                v = np.where(np.abs(v - p) < gap, p + np.copysign(gap, v - p) * 2, v)
            out.append(np.asarray(v))
        return out

    return make


def distinct(shape: Shape) -> Callable[[np.random.RandomState], list[np.ndarray]]:
    """All values at least 0.1 apart, shuffled: argmax is stable under small steps."""
    return lambda rng: [rng.permutation(int(np.prod(shape))).reshape(shape) * 0.1 - 1.0]


def unary(
    name: str,
    fn: Callable[[np.ndarray], Any],
    lo: float = -2.0,
    hi: float = 2.0,
    kinks: Sequence[float] = (),
    **kw: Any,
) -> list[OpCase]:
    return [
        OpCase(name, fn, away_from(kinks, [s], lo, hi), label="x".join(map(str, s)) or "scalar", **kw)
        for s in UNARY_SHAPES
    ]


def binary(
    name: str, fn: Callable[..., Any], lo: float = -2.0, hi: float = 2.0, apart: bool = False, **kw: Any
) -> list[OpCase]:
    def make(pair: tuple[Shape, Shape]) -> Callable[[np.random.RandomState], list[np.ndarray]]:
        def inputs(rng: np.random.RandomState) -> list[np.ndarray]:
            a, b = (rng.uniform(lo, hi, s) for s in pair)
            if apart:  # keeps |a - b| away from 0
                a = np.round(a, 1)
                b = np.round(b, 1) + 0.05
            return [np.asarray(a), np.asarray(b)]

        return inputs

    return [
        OpCase(name, fn, make(p), label="_".join("x".join(map(str, s)) or "scalar" for s in p), **kw)
        for p in BINARY_SHAPES
    ]


def ints(*shapes: Shape, lo: int = -5, hi: int = 6) -> Callable[[np.random.RandomState], list[np.ndarray]]:
    return lambda rng: [rng.randint(lo, hi, s).astype(np.int32) for s in shapes]


def bools(*shapes: Shape) -> Callable[[np.random.RandomState], list[np.ndarray]]:
    return lambda rng: [rng.rand(*s) > 0.5 for s in shapes]


def ordered(*parts: Any) -> Callable[[np.random.RandomState], list[np.ndarray]]:
    """Joins generators of argument lists."""
    return lambda rng: [np.asarray(a) for p in parts for a in p(rng)]


def away_from_multiples(rng: np.random.RandomState) -> list[np.ndarray]:
    """x and y with x / y at least 0.1 from a whole number, where floor and remainder jump."""
    y = rng.uniform(1.2, 2.2, (4,))
    return [(rng.randint(-3, 3, (3, 4)) + rng.uniform(0.1, 0.9, (3, 4))) * y, y]


NO_GRAD: dict[str, Any] = {"grad": False, "grad2": False}
