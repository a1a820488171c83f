"""Looking for a pattern."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from ..expr import Expr
from ..node import Node
from .pattern import ExprPattern


class PatternMatcher:
    """Compares expressions with patterns, and keeps what stood where."""

    def __init__(self) -> None:
        self.matched_patterns: list[ExprPattern] = []
        self.matched_exprs: OrderedDict[ExprPattern, Any] = OrderedDict()

    def match(self, pattern: ExprPattern, expr: Expr) -> bool:
        """Whether an expression fits a pattern."""
        self.matched_patterns, self.matched_exprs = [], OrderedDict()
        if not self.visit(pattern, expr):
            self.matched_patterns, self.matched_exprs = [], OrderedDict()
            return False
        inside = {id(e) for e in self.matched_exprs.values() if isinstance(e, Expr)}
        for p, e in self.matched_exprs.items():
            if not p._check_users or e is expr or not isinstance(e, Expr):
                continue
            graph = e.top_graph
            for node in e.outputs:
                if any(id(u) not in inside for u in node.users) or (graph and any(o is node for o in graph._outputs)):
                    self.matched_patterns, self.matched_exprs = [], OrderedDict()
                    return False
        return True

    def visit(self, pattern: ExprPattern, value: Any) -> bool:
        """Whether a value fits a pattern; the same pattern stands for the same value everywhere."""
        known = self.expr_of(value) if self.expr_of(value) is not None else value
        if pattern in self.matched_exprs:
            return self.matched_exprs[pattern] is known
        before = list(self.matched_patterns), OrderedDict(self.matched_exprs)
        if not pattern.match(self, value):
            self.matched_patterns, self.matched_exprs = before
            return False
        self.matched_patterns.append(pattern)
        self.matched_exprs[pattern] = known
        return True

    @staticmethod
    def expr_of(value: Any) -> Expr | None:
        """The expression that makes a value."""
        if isinstance(value, Expr):
            return value
        return value.expr if isinstance(value, Node) else None
