"""Logging: one stderr handler per logger, short coloured lines, long lines without colour in a log file."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

__all__ = [
    "MegBrainLogFormatter",
    "MegEngineLogFormatter",
    "enable_debug_log",
    "get_logger",
    "replace_mgb_log_level",
    "set_log_file",
    "set_log_level",
    "set_mgb_log_level",
]

_all_loggers: list[logging.Logger] = []
_default_level = getattr(logging, os.environ.get("MEGENGINE_LOGGING_LEVEL", "INFO").upper(), logging.INFO)
_backend_level = logging.ERROR


class MegEngineLogFormatter(logging.Formatter):
    """Time, place and level before the message; colours on a terminal."""

    log_fout: IO[str] | None = None
    date_full = "[%(asctime)s %(lineno)d@%(filename)s:%(name)s] "
    date = "%(asctime)s "
    msg = "%(message)s"
    max_lines = 256

    _colors = {logging.DEBUG: ("36", "DBG"), logging.WARNING: ("1;31", "WRN"), logging.ERROR: ("1;4;31", "ERR")}

    def _prefix(self, record: logging.LogRecord, colored: bool) -> str:
        level = logging.ERROR if record.levelno > logging.ERROR else record.levelno
        if level not in self._colors:
            return ""
        code, tag = self._colors[level]
        return f"\x1b[{code}m{tag}\x1b[0m " if colored else f"{tag} "

    def _layout(self, record: logging.LogRecord, date: str, colored: bool) -> str:
        when = f"\x1b[32m{date}\x1b[0m" if colored else date
        self._style._fmt = when + self._prefix(record, colored) + self.msg
        text = super().format(record)
        lines = text.splitlines()
        if len(lines) > self.max_lines:
            text = "\n".join([*lines[: self.max_lines], f"... {len(lines) - self.max_lines} more lines"])
        return text

    def format(self, record: logging.LogRecord) -> str:
        """The line for the terminal; a longer one goes to the log file when there is one."""
        fout = MegEngineLogFormatter.log_fout
        if fout is not None:
            fout.write(self._layout(record, self.date_full, False) + "\n")
            fout.flush()
        return self._layout(record, self.date, sys.stderr.isatty())


class MegBrainLogFormatter(MegEngineLogFormatter):
    """For messages of the engine itself, which bring their own place."""

    date = "%(asctime)s[mgb] "


def set_log_file(fout: str | IO[str] | None, mode: str = "a") -> None:
    """Also write every message to a file, given by name or open; None stops."""
    if isinstance(fout, str):
        fout = open(fout, mode)
    MegEngineLogFormatter.log_fout = fout


def _level_number(level: int | str) -> int:
    """A level as a number; names count in any case."""
    number = logging.getLevelName(level.upper()) if isinstance(level, str) else level
    if not isinstance(number, int):
        raise ValueError(f"log level: needs a number or a name as DEBUG, INFO, WARNING, ERROR; got {level!r}.")
    return number


def set_log_level(level: int | str, update_existing: bool = True) -> int:
    """Set the level of new loggers, and of those there are; returns the one before.

    >>> old = mge.set_log_level("WARNING")
    >>> mge.set_log_level(old)
    30
    """
    global _default_level
    level = _level_number(level)
    old, _default_level = _default_level, level
    if update_existing:
        for i in _all_loggers:
            i.setLevel(level)
    return int(old)


def get_logger(name: str | None = None, formatter: type[logging.Formatter] = MegEngineLogFormatter) -> logging.Logger:
    """The logger of that name, with a handler of its own.

    >>> mge.get_logger("example").level == mge.get_logger("example").level
    True
    """
    logger = logging.getLogger(name)
    if getattr(logger, "_init_done__", None):  # its level is its owner's, or that of set_log_level
        return logger
    logger._init_done__ = True  # type: ignore[attr-defined]
    logger.propagate = False
    logger.setLevel(_default_level)
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(datefmt="%d %H:%M:%S"))
    handler.setLevel(0)
    logger.handlers = [handler]
    _all_loggers.append(logger)
    return logger


def set_mgb_log_level(level: int | str) -> int:
    """Set the level of the engine's own messages; returns the one before.

    Args:
        level: ``logging.ERROR``, ``logging.INFO`` or their names; anything else means DEBUG.

    >>> old = mge.logger.set_mgb_log_level("INFO")
    >>> mge.logger.set_mgb_log_level(old)
    20
    """
    global _backend_level
    number = _level_number(level)
    old, _backend_level = _backend_level, number if number in (logging.ERROR, logging.INFO) else logging.DEBUG
    return old


@contextmanager
def replace_mgb_log_level(level: int | str) -> Iterator[None]:
    """Set the level of the engine's own messages for a block."""
    old = set_mgb_log_level(level)
    try:
        yield
    finally:
        set_mgb_log_level(old)


def enable_debug_log() -> None:
    """Show everything, from Python and from the engine."""
    set_log_level(logging.DEBUG)
    set_mgb_log_level("DEBUG")


def call_countlog_func(func: Callable[..., Any], count: int = 1, msg: str | None = None) -> Callable[..., Any]:
    """``func``, logging ``msg`` on its first ``count`` calls."""
    left = count

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        if left > 0:
            left -= 1
            get_logger("megengine").warning(msg or f"call of {getattr(func, '__name__', func)}")
        return func(*args, **kwargs)

    return wrapper
