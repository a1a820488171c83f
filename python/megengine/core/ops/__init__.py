"""The original's op classes under the names programs import."""

from . import builtin

__all__ = ["builtin"]
