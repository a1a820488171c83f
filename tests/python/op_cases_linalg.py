"""Rows of op_cases.py for linear algebra."""

from __future__ import annotations

from typing import Any

import numpy as np
import reference_linalg as ref
from op_case import NO_GRAD, OpCase, draw

CASES: list[OpCase] = []


# ---- linear algebra
def well_conditioned(*shape: int) -> Any:
    return lambda rng: [rng.uniform(-1, 1, shape) + 3 * np.eye(shape[-2], shape[-1])]


def spread(*shape: int) -> Any:
    """Matrices with singular values well apart, so that their vectors are stable."""

    def make(rng: np.random.RandomState) -> list[np.ndarray]:
        u, _, vh = np.linalg.svd(rng.uniform(-1, 1, shape), full_matrices=False)
        return [u * (3.0 - 0.7 * np.arange(min(shape[-2:]))) @ vh]

    return make


CASES += [
    OpCase("matinv", np.linalg.inv, well_conditioned(*s), label="x".join(map(str, s))) for s in [(1, 1), (4, 4), (2, 3, 3)]
]  # fmt: skip
for s in [(3, 3), (4, 2), (2, 4), (2, 3, 4)]:
    name = "x".join(map(str, s))
    CASES += [
        OpCase("svd", ref.svd, spread(*s), {"full_matrices": False}, label=name),
        OpCase("svd", ref.svd, spread(*s), {"full_matrices": True}, label=name + "-full", outs=(0,)),
    ]
CASES.append(
    OpCase("eye", lambda rows, cols, k, dtype: np.eye(rows, cols, k, dtype), draw([]), {"rows": 3, "cols": 4, "k": 1, "dtype": "float32"}, lite=False, **NO_GRAD)
)  # fmt: skip
