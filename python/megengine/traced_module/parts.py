"""How a graph is pickled without depth.

Nodes and expressions hold each other, so a plain pickle of a graph nests as deep as the graph is long, and Python's
stack does not last. Here a graph writes its parts bare, one after the other, and then the state of each:
``typing.cast(None, part)`` is the part itself, which any unpickler gives the state that follows.
"""

from __future__ import annotations

import copyreg
import threading
import typing
from typing import Any

_local = threading.local()


def _bare() -> dict[int, Any]:
    found: dict[int, Any] = _local.__dict__.setdefault("bare", {})
    return found


class Part:
    """What nodes and expressions have in common."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        if id(self) in _bare():
            return copyreg.__newobj__, (type(self),)  # type: ignore[attr-defined]
        return super().__reduce_ex__(protocol)


class _StateOf:
    """The state of a part that has been written."""

    def __init__(self, part: Any) -> None:
        self.part = part

    def __reduce__(self) -> Any:
        return typing.cast, (None, self.part), self.part.__getstate__()


class _End:
    """Written last: from here on parts are whole again."""

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts

    def __reduce__(self) -> Any:
        for part in self.parts:
            _bare().pop(id(part), None)
        return set, ()


def flat_state(parts: list[Any], state: dict[str, Any]) -> dict[str, Any]:
    """The state of a graph with its parts before it."""
    _bare().update((id(p), p) for p in parts)
    return {"_parts": parts, "_states": [_StateOf(p) for p in parts], "_end": _End(parts), **state}
