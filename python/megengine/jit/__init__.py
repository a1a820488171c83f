"""Tracing: record a function once, run it as a compiled program, dump it to a file."""

from ..core._core import TraceError
from .config import DTRConfig, GraphOptimizationConfig, SublinearMemoryConfig
from .tracing import exclude_from_trace, is_tracing, trace

__all__ = [
    "DTRConfig",
    "GraphOptimizationConfig",
    "SublinearMemoryConfig",
    "TraceError",
    "exclude_from_trace",
    "is_tracing",
    "trace",
]
