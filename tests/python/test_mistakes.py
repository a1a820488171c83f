"""The table of mistakes: what users get wrong, and what they are told.

``python tests/python/test_mistakes.py [SUBJECT]`` prints the score and every row that falls short.
"""

from __future__ import annotations

import sys
from collections import Counter

import mistakes_commands
import mistakes_data
import mistakes_distributed
import mistakes_habits
import mistakes_layers
import mistakes_lite
import mistakes_network
import mistakes_original
import mistakes_programs
import mistakes_quantization
import mistakes_quantized
import mistakes_shapes
import mistakes_tools
import mistakes_traced
import mistakes_traced_module
import mistakes_training
import mistakes_values
import pytest
from mistake import TABLE, Mistake

SUBJECTS = (
    mistakes_shapes, mistakes_values, mistakes_layers, mistakes_training, mistakes_data, mistakes_traced,
    mistakes_traced_module,
    mistakes_lite, mistakes_commands, mistakes_habits, mistakes_tools, mistakes_quantization,
    mistakes_quantized, mistakes_distributed, mistakes_network, mistakes_original, mistakes_programs,
)  # fmt: skip

#: Rows that are known to fall short, with the reason; at most 2 % of the table.
SHORT = {
    "size as a method": "x.size is an int as in NumPy, and Python says that an int cannot be called",
}


@pytest.mark.parametrize(
    ("row", "mode"),
    [
        pytest.param(row, mode, id=f"{row.subject}: {row.name}, {mode}")
        for row in TABLE
        for mode in row.modes
        if row.name not in SHORT
    ],
)
def test_full_marks(row: Mistake, mode: str) -> None:
    assert row.falls_short(mode) is None


def test_rows_said_to_fall_short_do() -> None:
    assert all(any(row.falls_short(m) for m in row.modes) for row in TABLE if row.name in SHORT)


def test_the_table_is_large_and_its_names_differ() -> None:
    assert len(TABLE) >= 200
    assert len(SHORT) <= 0.02 * len(TABLE)
    assert [name for name, n in Counter((row.subject, row.name) for row in TABLE).items() if n > 1] == []


def score(subject: str = "") -> str:
    """The score, by subject, and the rows that fall short."""
    lines, short = [], []
    rows = [row for row in TABLE if subject in ("", row.subject)]
    good: Counter[str] = Counter()
    for row in rows:
        missing = {mode: said for mode in row.modes if (said := row.falls_short(mode)) is not None}
        good[row.subject] += not missing
        short += [f"{row.subject}: {row.name} [{mode}]\n    {said}" for mode, said in missing.items()]
    for name, n in Counter(row.subject for row in rows).items():
        lines.append(f"{name:10} {good[name]:4} of {n:4}")
    runs = sum(len(row.modes) for row in rows)
    total = good.total()
    lines.append(f"{total} of {len(rows)} mistakes at full marks, {total / len(rows):.1%} ({runs} runs)")
    return "\n".join([*short, *lines])


if __name__ == "__main__":
    print(score(*sys.argv[1:2]))
