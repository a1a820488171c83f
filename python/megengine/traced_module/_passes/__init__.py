"""Rewrites of the graphs of traced modules."""

from . import const_pass, fold_scale_pass, fuse_pass
from .matcher import PatternMatcher
from .optimization import optimize
from .pass_base import (
    BackwardPass,
    BasePass,
    ForwardPass,
    PassContext,
    get_default_pass_context,
    get_registered_pass,
    register_pass,
)
from .pattern import (
    AnyPattern,
    ApplyDefPattern,
    CallPattern,
    ConstantPattern,
    ExprPattern,
    FunctionPattern,
    GetOutputPaterrn,
    ModulePattern,
    OrPattern,
    TensorMethodPattern,
    VarPattern,
    any_node,
    is_const,
    is_op,
    is_var,
)
from .utils import get_const_value

__all__ = [
    "AnyPattern",
    "ApplyDefPattern",
    "BackwardPass",
    "BasePass",
    "CallPattern",
    "ConstantPattern",
    "ExprPattern",
    "ForwardPass",
    "FunctionPattern",
    "GetOutputPaterrn",
    "ModulePattern",
    "OrPattern",
    "PassContext",
    "PatternMatcher",
    "TensorMethodPattern",
    "VarPattern",
    "any_node",
    "const_pass",
    "fold_scale_pass",
    "fuse_pass",
    "get_const_value",
    "get_default_pass_context",
    "get_registered_pass",
    "is_const",
    "is_op",
    "is_var",
    "optimize",
    "register_pass",
]
