"""Rows of op_cases.py for sequences: CTC and recurrences."""

from __future__ import annotations

import numpy as np
import reference_sequence as ref
from op_case import OpCase, away_from, draw, ordered

CASES: list[OpCase] = []


# ---- sequences
def sequences(rng: np.random.RandomState) -> list[np.ndarray]:
    p = rng.uniform(0.1, 1, (4, 3, 3))
    i32 = np.int32
    return [p / p.sum(-1, keepdims=True), np.array([4, 3, 4], i32), np.array([[0, 2], [2, 2], [2, 0]], i32), np.array([2, 2, 1], i32)]  # fmt: skip


CASES += [
    OpCase("ctc_loss", ref.ctc_loss, sequences, {"blank": 1}),
    OpCase("ctc_loss_bwd", ref.ctc_loss_bwd, ordered(sequences, draw([(3,)])), {"blank": 1}),
]
for mode, count in [("tanh", 1), ("relu", 1), ("lstm", 4)]:
    for reverse in (False, True):
        for label, (steps, n, h) in [("", (3, 2, 5)), ("one", (1, 3, 17))]:
            a = {"mode": mode, "reverse": reverse}
            tag = f"{mode}{'-reverse' if reverse else ''}{'-' + label if label else ''}"
            seq, wide, state = (steps, n, h), (steps, n, count * h), (n, h)
            lstm = mode == "lstm"
            CASES += [
                OpCase("recurrence", ref.recurrence, draw([wide, (count * h, h), *[state] * (2 if lstm else 1)], -1, 1), a, label=tag, outs=(0, 1, 2) if lstm else (0,)),
                OpCase("recurrence_bwd", ref.recurrence_bwd, away_from([0], [(count * h, h), seq, seq, *([wide, seq, state, seq] if lstm else [])], -1, 1), a, label=tag),
            ]  # fmt: skip
CASES += [
    OpCase("recurrence_bwd", ref.recurrence_bwd, draw([(8, 2), (3, 2, 2), (3, 2, 2), (3, 2, 8), (3, 2, 2), (2, 2), (3, 2, 2), (3, 2, 8)], -1, 1), {"mode": "lstm", "reverse": False}, label="gates")
]  # fmt: skip
