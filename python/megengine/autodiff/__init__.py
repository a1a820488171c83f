"""Automatic differentiation."""

from .function import Function
from .grad_manager import GradManager
from .recompute import checkpoint

__all__ = ["Function", "GradManager", "checkpoint"]
