"""Patterns of expressions: what to look for, and whether it is there.

>>> from megengine.traced_module._passes import PatternMatcher, is_const, is_op, is_var
>>> pattern = is_op("__add__")(is_op("__mul__")(is_var(), is_const()), is_const())
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...core._imperative_rt.opdef import OpDef
from ...module.module import Module
from ..expr import (
    Constant,
    Expr,
    is_apply_def,
    is_call_function,
    is_call_module,
    is_call_tensor_method,
)
from ..node import Node, TensorNode
from .utils import is_const_arg

if TYPE_CHECKING:
    from .matcher import PatternMatcher


class ExprPattern:
    """What an expression, or an argument, is to look like."""

    def __init__(self) -> None:
        self._check_users = True  # what is inside a match has no other users
        self._users: list[Any] = []

    def check_users(self, check: bool = True) -> ExprPattern:
        """Whether results inside the match must have no other users."""
        self._check_users = check
        return self

    def match(self, matcher: PatternMatcher, value: Any) -> bool:
        """Whether a value fits."""
        raise NotImplementedError

    def __call__(self, *args: ExprPattern) -> CallPattern:
        return CallPattern(self, *args)

    def __add__(self, other: ExprPattern) -> ExprPattern:
        return is_op("__add__")(self, other)

    def __sub__(self, other: ExprPattern) -> ExprPattern:
        return is_op("__sub__")(self, other)

    def __mul__(self, other: ExprPattern) -> ExprPattern:
        return is_op("__mul__")(self, other)

    def __truediv__(self, other: ExprPattern) -> ExprPattern:
        return is_op("__truediv__")(self, other)

    def __or__(self, other: ExprPattern) -> OrPattern:
        return OrPattern(self, other)

    def __getitem__(self, index: int) -> GetOutputPaterrn:
        return GetOutputPaterrn(self, index)


class CallPattern(ExprPattern):
    """A call of something with arguments that fit.

    Args:
        op: what is called.
        args: patterns of the arguments, constants included.
    """

    def __init__(self, op: ExprPattern, *args: ExprPattern) -> None:
        super().__init__()
        self.op = op
        self.args = list(args)
        self._match_all_args = True

    def not_all_args(self) -> CallPattern:
        """The call may have further arguments."""
        self._match_all_args = False
        return self

    def match(self, matcher: PatternMatcher, value: Any) -> bool:
        """Whether a value is such a call."""
        expr = matcher.expr_of(value)
        if expr is None or not self.op.match(matcher, expr):
            return False
        given = _arguments(expr)
        if len(given) < len(self.args) or (self._match_all_args and len(given) != len(self.args)):
            return False
        return all(matcher.visit(p, a) for p, a in zip(self.args, given))


def _arguments(expr: Expr) -> list[Any]:
    args, kwargs = expr.unflatten_args(expr.inputs)
    if is_call_module(expr):
        args = args[1:]
    return [*args, *kwargs.values()]


class OrPattern(ExprPattern):
    """One of two."""

    def __init__(self, l: ExprPattern, r: ExprPattern) -> None:  # noqa: E741
        super().__init__()
        self.left = l
        self.right = r

    def match(self, matcher: PatternMatcher, value: Any) -> bool:
        """Whether a value fits the one or the other."""
        return matcher.visit(self.left, value) or matcher.visit(self.right, value)


class GetOutputPaterrn(ExprPattern):
    """One result of a call. The spelling is the API's."""

    def __init__(self, op: ExprPattern, index: int) -> None:
        super().__init__()
        self.op = op
        self.index = index

    def match(self, matcher: PatternMatcher, value: Any) -> bool:
        """Whether a node is that result of a call that fits."""
        if not isinstance(value, Node) or value.expr.outputs.index(value) != self.index:
            return False
        return matcher.visit(self.op, value.expr)


class ModulePattern(ExprPattern):
    """A call of a module of a class."""

    def __init__(self, module_cls: type[Module]) -> None:
        super().__init__()
        self.target = module_cls
        self.attrs: dict[str, Any] = {}

    def has_attr(self, **attrs: Any) -> ModulePattern:
        """Its attributes have these values."""
        self.attrs.update(attrs)
        return self

    def match(self, matcher: PatternMatcher, value: Any) -> bool:
        """Whether an expression is such a call."""
        expr = matcher.expr_of(value)
        if expr is None or not is_call_module(expr, self.target):
            return False
        owner = expr.inputs[0].owner  # type: ignore[attr-defined]
        return all(getattr(owner, k, None) == v for k, v in self.attrs.items())


class FunctionPattern(ExprPattern):
    """A call of a function."""

    def __init__(self, func: Callable[..., Any]) -> None:
        super().__init__()
        self.target = func
        self.params: dict[str, Any] = {}

    def has_params(self, **params: Any) -> FunctionPattern:
        """Its arguments have these values."""
        self.params.update(params)
        return self

    def match(self, matcher: PatternMatcher, value: Any) -> bool:
        """Whether an expression is such a call."""
        expr = matcher.expr_of(value)
        if expr is None or not is_call_function(expr, self.target):
            return False
        named = expr.named_args
        return all(k in named and named[k] == v for k, v in self.params.items())


class TensorMethodPattern(ExprPattern):
    """A call of a method of a tensor."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.target = method

    def match(self, matcher: PatternMatcher, value: Any) -> bool:
        """Whether an expression is such a call."""
        return is_call_tensor_method(matcher.expr_of(value), self.target)


class ApplyDefPattern(ExprPattern):
    """A primitive op of a class."""

    def __init__(self, opdef: type[OpDef]) -> None:
        super().__init__()
        self.target = opdef

    def match(self, matcher: PatternMatcher, value: Any) -> bool:
        """Whether an expression is such an op."""
        return is_apply_def(matcher.expr_of(value), self.target)


class VarPattern(ExprPattern):
    """A tensor that is no constant."""

    def match(self, matcher: PatternMatcher, value: Any) -> bool:
        """Whether a value is such a tensor."""
        node = value.outputs[0] if isinstance(value, Expr) and value.outputs else value
        return isinstance(node, TensorNode) and not isinstance(node.expr, Constant)


class ConstantPattern(ExprPattern):
    """A constant: a tensor or a plain value."""

    def match(self, matcher: PatternMatcher, value: Any) -> bool:
        """Whether a value is a constant."""
        return isinstance(value, Constant) or is_const_arg(value) or not isinstance(value, (Node, Expr))


class AnyPattern(ExprPattern):
    """Anything."""

    def match(self, matcher: PatternMatcher, value: Any) -> bool:
        """Always."""
        return True


def is_op(target: Any) -> ExprPattern:
    """A call: of a class of modules, a function, a method of tensors by name, or a class of ops."""
    if isinstance(target, type) and issubclass(target, Module):
        return ModulePattern(target)
    if isinstance(target, type) and issubclass(target, OpDef):
        return ApplyDefPattern(target)
    if isinstance(target, str):
        return TensorMethodPattern(target)
    if callable(target):
        return FunctionPattern(target)
    raise TypeError(f"is_op: needs a class of modules or ops, a function or the name of a method; got {target!r}.")


def is_const() -> ExprPattern:
    """A constant."""
    return ConstantPattern().check_users(False)


def is_var() -> ExprPattern:
    """A tensor that is no constant."""
    return VarPattern().check_users(False)


def any_node() -> ExprPattern:
    """Anything."""
    return AnyPattern().check_users(False)
