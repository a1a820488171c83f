"""The table of mistakes: what users get wrong, and what they are told.

``python tests/python/test_mistakes.py [SUBJECT]`` prints the score and every row that falls short.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections import Counter, UserList
from typing import Any

import mistakes_commands
import mistakes_data
import mistakes_distributed
import mistakes_habits
import mistakes_layers
import mistakes_lite
import mistakes_network
import mistakes_newcomers
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

import megengine as mge
from megengine.core import _habits

SUBJECTS = (
    mistakes_shapes, mistakes_values, mistakes_layers, mistakes_training, mistakes_data, mistakes_traced,
    mistakes_traced_module,
    mistakes_lite, mistakes_commands, mistakes_habits, mistakes_newcomers, mistakes_tools, mistakes_quantization,
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


def ways() -> list[str]:
    """All that is said of names of other frameworks."""
    return [way for table in (_habits.TENSOR, _habits.MODULE, *_habits.PACKAGES.values()) for way in table.values()]


def test_ways_that_are_told_are_there() -> None:
    """What a sentence calls F.name, M.name or megengine.name is one that we have, and no stand-in."""
    for way in ways():
        for path in re.findall(r"\b(?:F|M|megengine)(?:\.\w+)+", way):
            package = {"F": mge.functional, "M": mge.module, "megengine": mge}
            first, *names = path.split(".")
            found: Any = package[first]
            for name in names:
                assert name in dir(found), (way, path)
                found = getattr(found, name)


def test_names_of_others_are_not_there() -> None:
    """But told: ``hasattr`` says no, completion does not offer them."""
    for thing, table in ((mge.Tensor([1.0]), _habits.TENSOR), (mge.module.Linear(2, 2), _habits.MODULE)):
        for name, way in table.items():
            assert not hasattr(thing, name) and name not in dir(thing)
            with pytest.raises(AttributeError, match=re.escape(way)):
                getattr(thing, name)

    class Layers(mge.module.Module, UserList[Any]):  # a class after ours may have such a name
        def forward(self) -> None: ...

    layers = Layers()
    layers.data = []
    layers.append(1)
    assert layers.data == [1] and "append" in dir(layers)
    for package, table in _habits.PACKAGES.items():
        module = importlib.import_module(package)
        for name, way in table.items():
            if name not in dir(module):
                with pytest.raises(AttributeError, match=re.escape(way)):
                    getattr(module, name)()


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
