"""Names in a graph: unique, and valid as Python names."""

from __future__ import annotations

import builtins
import keyword
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .expr import Expr

_ILLEGAL = re.compile(r"[^0-9a-zA-Z_]")
_NUMBERED = re.compile(r"(.*)_([1-9][0-9]*)$")
_RESERVED = {*dir(builtins), *keyword.kwlist, "inf", "nan", "NoneType"}


class NameSpace:
    """The names of one graph.

    Args:
        name: of the graph.
        qualname: of the graph.

    >>> from megengine.traced_module.traced_module import NameSpace
    >>> space = NameSpace("net", "Net")
    >>> [space.create_unique_name("a", object()) for _ in range(3)], space.create_unique_name("0")
    (['a', 'a_1', 'a_2'], '_0')
    """

    __module__ = "megengine.traced_module.traced_module"

    def __init__(self, name: str, qualname: str) -> None:
        self.name = name
        self.qualname = qualname
        self._used_names: dict[str, Any] = {}
        self._last: dict[str, int] = {}

    def create_unique_name(self, name: str, node: Any = None) -> str:
        """A name like this one that is free; with a node, it is the node's from now on."""
        assert isinstance(name, str) and name, f"The name must be a string that is not empty; got {name!r}."
        name = _ILLEGAL.sub("_", name)
        if name[0].isdigit():
            name = f"_{name}"
        if name in self._used_names or name in _RESERVED:
            match = _NUMBERED.match(name)
            base, number = (name, 0) if match is None else (match.group(1), int(match.group(2)))
            # Every number up to this one is taken.
            number = max(number, self._last.get(base, 0) if number <= 1 else 0)
            while True:
                number += 1
                name = f"{base}_{number}"
                if name not in self._used_names and name not in _RESERVED:
                    break
            if number <= 1 or f"{base}_{number - 1}" in self._used_names:
                self._last[base] = number if node is not None else number - 1
        if node is not None:
            self.associate_name_with_obj(name, node)
        return name

    def auto_naming_for_outputs(self, expr: Expr) -> None:
        """Name the outputs of an expression that have no name by what it does."""
        base, qual = expr._output_names(self)
        for node in expr.outputs:
            if node._name is None:
                node._name = self.create_unique_name(base, node)
            if node._qualname is None:
                node._qualname = qual

    def associate_name_with_obj(self, name: str, node: Any) -> None:
        """Note whose name it is."""
        self._used_names[name] = node

    def unassociate_name_with_obj(self, node: Any) -> None:
        """Let go of the names of a node; they are not given out again."""
        for name, owner in self._used_names.items():
            if owner is node:
                self._used_names[name] = None

    def free_name(self, name: str) -> None:
        """Let a name be given out again."""
        self._used_names.pop(name, None)
        self._last.clear()

    def merge(self, other: NameSpace) -> None:
        """Take the names of another graph as used."""
        for name, node in other._used_names.items():
            self._used_names.setdefault(name, node)

    @property
    def used_names(self) -> list[str]:
        """All names ever given out."""
        return list(self._used_names)

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self.name, "qualname": self.qualname, "_used_names": self._used_names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({"_used_names": {}, **state, "_last": {}})
