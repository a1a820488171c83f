"""Plain-text tables for reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def table(rows: Sequence[Sequence[Any]]) -> str:
    """Rows as aligned columns between two rules; the first row is the header, None is blank.

    >>> from megengine.utils._table import table
    >>> print(table([["name", "size"], ["w", 12]]))
    ----  ----
    name  size
    w     12
    ----  ----
    """
    cells = [["" if c is None else str(c) for c in row] for row in rows]
    widths = [max(len(c) for c in column) for column in zip(*cells)]
    rule = "  ".join("-" * w for w in widths)
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip() for row in cells]
    return "\n".join([rule, *lines, rule])
