"""Names of the original's private runtime module that programs import. Thin, and only what exists here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ...logger import set_mgb_log_level
from .._core import CompNode
from ..tensor.dtype import bfloat16, intb1, intb2, intb4
from .opdef import OpDef

# The types of NumPy scalars, under the names that pickles of arrays hold.
pybfloat16, pyintb1, pyintb2, pyintb4 = (d.type for d in (bfloat16, intb1, intb2, intb4))


@dataclass
class OperatorNodeConfig:
    """What an op of a graph may be told beside its parameters: a name, a device, the dtype of its result.

    >>> from megengine.core._imperative_rt import OperatorNodeConfig
    >>> OperatorNodeConfig(name="relu1").name
    'relu1'
    """

    name: str = ""
    comp_node: Any = None
    dtype: Any = None


class Logger:
    """The level of the engine's own messages.

    >>> from megengine.core._imperative_rt import Logger
    >>> old = Logger.set_log_level(Logger.LogLevel.Info)
    >>> Logger.set_log_level(old)
    <LogLevel.Info: 1>
    """

    class LogLevel(IntEnum):
        """From all messages to errors alone."""

        Debug = 0
        Info = 1
        Warn = 2
        Error = 3

    @classmethod
    def set_log_level(cls, level: int) -> LogLevel:
        """Set it, and get the one before."""
        return cls.LogLevel(set_mgb_log_level(10 * (int(level) + 1)) // 10 - 1)


__all__ = ["CompNode", "Logger", "OpDef", "OperatorNodeConfig", "pybfloat16", "pyintb1", "pyintb2", "pyintb4"]
