"""Rows of the collectives in a group of one, where each gives x back. Several processes: test_dist_engine.py."""

from __future__ import annotations

import numpy as np
from op_case import OpCase, draw

CASES: list[OpCase] = [
    OpCase(name, lambda x, **attrs: x.copy(), draw([shape]), attrs, label="x".join(map(str, shape)) or "scalar", lite=False)
    for name, attrs in [
        ("dist_all_reduce", {"mode": "sum"}),
        ("dist_all_reduce", {"mode": "max"}),
        ("dist_reduce", {}),
        ("dist_broadcast", {}),
        ("dist_all_gather", {}),
        ("dist_reduce_scatter", {}),
        ("dist_gather", {}),
        ("dist_scatter", {}),
        ("dist_all_to_all", {}),
    ]
    for shape in [(3, 5), (0, 2), ()]
    if shape or name in ("dist_all_reduce", "dist_reduce", "dist_broadcast")
]  # fmt: skip
CASES += [
    OpCase("dist_all_reduce", lambda x, **attrs: x.copy(), lambda rng: [rng.rand(2, 3) > 0.5], {"mode": "min"}, label="bool", grad=False, lite=False),
    OpCase("dist_all_to_all", lambda x, **attrs: x.copy(), lambda rng: [rng.randint(0, 9, (4, 2)).astype(np.int32)], label="int32", grad=False, lite=False),
]  # fmt: skip
