"""Tracing: record a function once, run it as a compiled program, dump it to a file."""

from ..core._core import TraceError
from .dtr_config import DTRConfig
from .graph_opt_config import GraphOptimizationConfig
from .partial_tracing import partial_trace
from .sublinear_memory_config import SublinearMemoryConfig
from .tracing import exclude_from_trace, is_tracing, trace
from .xla_backend import xla_trace

__all__ = [
    "DTRConfig",
    "GraphOptimizationConfig",
    "SublinearMemoryConfig",
    "TraceError",
    "exclude_from_trace",
    "is_tracing",
    "partial_trace",
    "trace",
    "xla_trace",
]
