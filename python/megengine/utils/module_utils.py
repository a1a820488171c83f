"""Reaching into modules by dotted names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..module.module import Module, _access_structure


def get_expand_structure(obj: Any, key: str) -> Any:
    """The attribute at a dotted path; numbers index lists, other parts keys of dicts and attributes.

    >>> from megengine.utils.module_utils import get_expand_structure
    >>> net = M.Sequential(M.Linear(2, 3), M.ReLU())
    >>> get_expand_structure(net, "0.weight").shape
    (3, 2)
    """

    def found(_: Any, __: Any, cur: Any) -> Any:
        return cur

    return _access_structure(obj, key, found)


def set_expand_structure(obj: Any, key: str, value: Any) -> None:
    """Replace the attribute at a dotted path."""

    def put(parent: Any, last: Any, _: Any) -> None:
        if isinstance(parent, (list, tuple)):
            if isinstance(parent, tuple):
                raise TypeError(f"set_expand_structure: cannot replace item {last} of a tuple; path {key!r}.")
            parent[last] = value
        elif isinstance(parent, dict):
            parent[last] = value
        else:
            setattr(parent, last, value)

    _access_structure(obj, key, put)


@contextmanager
def set_module_mode_safe(module: Module, training: bool = False) -> Iterator[Module]:
    """Train or evaluation mode for a block; each submodule gets its own mode back afterwards."""
    before = [(m, m.training) for m in module.modules()]
    module.train(training)
    try:
        yield module
    finally:
        for m, mode in before:
            m.train(mode, recursive=False)
