"""Modules as graphs of named calls: traced, looked at, rewritten, saved and run without the original code."""

from . import compat
from . import insert as _insert
from ._passes import optimize
from .pytree import register_supported_type
from .tm_config import disable_default_checker, enable_expr_checker
from .traced_module import TracedModule, register_as_builtin, trace_module, wrap

__all__ = [
    "TracedModule",
    "compat",
    "disable_default_checker",
    "enable_expr_checker",
    "optimize",
    "register_as_builtin",
    "register_supported_type",
    "trace_module",
    "wrap",
]
