"""Lazy selections of expressions and nodes."""

from __future__ import annotations

import fnmatch
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .expr import Expr, is_call_function, is_call_module, is_call_tensor_method
from .node import ModuleNode, Node

_HOME = "megengine.traced_module.traced_module"


class BaseFilter:
    """Iterates over what it selects."""

    __module__ = _HOME

    def __init__(self, iter: Iterable[Any]) -> None:
        self._iter = iter

    def __iter__(self) -> Iterator[Any]:
        return iter(self._iter)

    def as_list(self) -> list[Any]:
        """All of them."""
        return list(self)

    def as_dict(self) -> OrderedDict[Any, Any]:
        """All of them, by id."""
        return OrderedDict((i._id, i) for i in self)

    def as_unique(self) -> Any:
        """The only one; an AssertionError where there are none or several."""
        found = self.as_list()
        assert len(found) == 1, f"{len(found)} elements found: {found!r:.200}. One was asked for."
        return found[0]

    def as_count(self) -> int:
        """How many there are."""
        return sum(1 for _ in self)


class ExprFilter(BaseFilter):
    """A selection of expressions."""

    __module__ = _HOME

    def call_function(self, func: Any) -> ExprFilter:
        """Those that call a function."""
        return ExprFilterCallFunction(self, func)

    def call_method(self, method: str | None) -> ExprFilter:
        """Those that call a method: of a tensor, or ``"__call__"`` of a module."""
        return ExprFilterCallMethod(self, method)

    def expr_id(self, expr_id: int | Iterable[int]) -> ExprFilter:
        """Those with these ids."""
        return ExprFilterExprId(self, expr_id)


class NodeFilter(BaseFilter):
    """A selection of nodes."""

    __module__ = _HOME

    def type(self, owner_type: Any) -> NodeFilter:
        """Modules of a type, or nodes of a class of nodes."""
        return NodeFilterType(self, owner_type)

    def node_id(self, node_id: int | Iterable[int]) -> NodeFilter:
        """Those with these ids."""
        return NodeFilterNodeId(self, node_id)

    def name(self, name: str, ignorecase: bool = True) -> NodeFilter:
        """Those whose full name, ``graph_node``, matches a pattern with ``*``, ``?`` and ``[…]``."""
        return NodeFilterName(self, name, ignorecase)


def _ids(given: int | Iterable[int], what: str) -> set[int]:
    ids = [given] if isinstance(given, int) else list(given)
    if not all(isinstance(i, int) for i in ids):
        raise TypeError(f"{what}: needs an int or several; got {given!r}.")
    return set(ids)


class ExprFilterCallFunction(ExprFilter):
    """Calls of a function."""

    __module__ = _HOME

    def __init__(self, expr_iter: Iterable[Expr], func: Any = None) -> None:
        super().__init__(expr_iter)
        self.func = func

    def __iter__(self) -> Iterator[Any]:
        return (e for e in self._iter if is_call_function(e, self.func))


class ExprFilterCallMethod(ExprFilter):
    """Calls of a method."""

    __module__ = _HOME

    def __init__(self, expr_iter: Iterable[Expr], method: str | None = None) -> None:
        super().__init__(expr_iter)
        self.method = method

    def __iter__(self) -> Iterator[Any]:
        def fits(e: Expr) -> bool:
            if is_call_module(e):
                return self.method in (None, "__call__")
            return is_call_tensor_method(e, self.method)

        return (e for e in self._iter if fits(e))


class ExprFilterExprId(ExprFilter):
    """Expressions by id."""

    __module__ = _HOME

    def __init__(self, expr_iter: Iterable[Expr], expr_id: int | Iterable[int]) -> None:
        super().__init__(expr_iter)
        self._wanted = _ids(expr_id, "expr_id")

    def __iter__(self) -> Iterator[Any]:
        return (e for e in self._iter if e._id in self._wanted)


class NodeFilterType(NodeFilter):
    """Nodes by the type of their module."""

    __module__ = _HOME

    def __init__(self, expr_iter: Iterable[Node], owner_type: Any) -> None:
        super().__init__(expr_iter)
        self.owner_type = owner_type

    def __iter__(self) -> Iterator[Any]:
        kind = self.owner_type
        if isinstance(kind, type) and issubclass(kind, Node):
            return (n for n in self._iter if isinstance(n, kind))
        return (n for n in self._iter if isinstance(n, ModuleNode) and isinstance(n.owner, kind))


class NodeFilterNodeId(NodeFilter):
    """Nodes by id."""

    __module__ = _HOME

    def __init__(self, expr_iter: Iterable[Node], node_id: int | Iterable[int]) -> None:
        super().__init__(expr_iter)
        self.node_id_set = _ids(node_id, "node_id")

    def __iter__(self) -> Iterator[Any]:
        return (n for n in self._iter if n._id in self.node_id_set)


class NodeFilterName(NodeFilter):
    """Nodes by a pattern of names."""

    __module__ = _HOME

    def __init__(self, node_iter: Iterable[Node], pattern: str, ignorecase: bool) -> None:
        super().__init__(node_iter)
        self.pattern = pattern
        self._re = self.make_re(pattern, ignorecase)

    @classmethod
    def make_re(cls, pattern: str, ignorecase: bool = True) -> re.Pattern[str]:
        """The regular expression of a pattern."""
        assert isinstance(pattern, str), f"bad pattern: {pattern!r}; a string is needed."
        return re.compile(fnmatch.translate(pattern), re.IGNORECASE if ignorecase else 0)

    def __iter__(self) -> Iterator[Any]:
        full: Callable[[Node], str] = lambda n: f"{n:p}"  # noqa: E731
        return (n for n in self._iter if self.pattern in (n.name, full(n)) or self._re.match(full(n)))
