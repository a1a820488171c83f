"""Where MegEngine keeps ``GraphOptimizationConfig``."""

from .config import GraphOptimizationConfig

__all__ = ["GraphOptimizationConfig"]
