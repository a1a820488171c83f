"""Tracing: record a function once, run it as a compiled program, dump it to a file."""

import typing as _typing
from typing import Any as _Any

from ..core._core import TraceError
from ..core._habits import no_attribute as _no_attribute
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

if not _typing.TYPE_CHECKING:  # type checkers shall say that a name is not there

    def __getattr__(name: str) -> _Any:
        raise _no_attribute(__name__, name)
