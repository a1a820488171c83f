"""How kernels are chosen, by the names of the original; the settings are those of ``megengine.config``."""

from __future__ import annotations

from enum import IntFlag

from .. import config

__all__ = [
    "get_conv_execution_strategy",
    "get_execution_strategy",
    "set_conv_execution_strategy",
    "set_execution_strategy",
]


class Strategy(IntFlag):
    """Ways to choose a kernel."""

    HEURISTIC = 1
    PROFILE = 2
    REPRODUCIBLE = 4
    OPTIMIZED = 8


def get_execution_strategy() -> Strategy:
    """The strategy that ``config`` describes."""
    strategy = Strategy.PROFILE if config.benchmark_kernel else Strategy.HEURISTIC
    return strategy | Strategy.REPRODUCIBLE if config.deterministic_kernel else strategy


def set_execution_strategy(option: str | Strategy) -> None:
    """Set the strategy by value, or by names joined with ``_``.

    >>> from megengine.functional.debug_param import get_execution_strategy, set_execution_strategy
    >>> old = get_execution_strategy()
    >>> set_execution_strategy("PROFILE_REPRODUCIBLE")
    >>> mge.config.benchmark_kernel, mge.config.deterministic_kernel
    (True, True)
    >>> set_execution_strategy(old)
    """
    if isinstance(option, str):
        names = option.split("_")
        if not names or any(n not in ("HEURISTIC", "PROFILE", "REPRODUCIBLE") for n in names):
            raise ValueError(
                f"execution strategy: use HEURISTIC, PROFILE and REPRODUCIBLE joined by _; got {option!r}."
            )
        value = Strategy(0)
        for n in names:
            value |= Strategy[n]
    elif isinstance(option, Strategy):
        value = option
    else:
        raise TypeError(f"execution strategy: needs a string or a Strategy; got {type(option).__name__}.")
    config.benchmark_kernel = bool(value & Strategy.PROFILE)
    config.deterministic_kernel = bool(value & Strategy.REPRODUCIBLE)


get_conv_execution_strategy = get_execution_strategy
set_conv_execution_strategy = set_execution_strategy
