"""How kernels are chosen, by the names of the original; the settings are those of ``megengine.config``."""

from __future__ import annotations

from typing import Any

from .. import config

__all__ = [
    "get_conv_execution_strategy",
    "get_execution_strategy",
    "set_conv_execution_strategy",
    "set_execution_strategy",
]


def _strategy() -> Any:
    """The bit enum of the convolution op: HEURISTIC, PROFILE, REPRODUCIBLE, OPTIMIZED.

    Made when asked for: with it come the classes of all ops, 7 ms that ``import megengine`` need not spend.
    """
    from ..core._imperative_rt.ops import OPS

    return OPS["Convolution"].__dict__["Strategy"]


def __getattr__(name: str) -> Any:
    if name == "Strategy":
        return _strategy()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def get_execution_strategy() -> Any:
    """The strategy that ``config`` describes."""
    names = ["PROFILE" if config.benchmark_kernel else "HEURISTIC"]
    return _strategy().of(names + ["REPRODUCIBLE"] * config.deterministic_kernel)


def set_execution_strategy(option: Any) -> None:
    """Set the strategy by value, or by names joined with ``_``.

    >>> from megengine.functional.debug_param import get_execution_strategy, set_execution_strategy
    >>> old = get_execution_strategy()
    >>> set_execution_strategy("PROFILE_REPRODUCIBLE")
    >>> mge.config.benchmark_kernel, mge.config.deterministic_kernel
    (True, True)
    >>> set_execution_strategy(old)
    """
    kind = _strategy()
    if isinstance(option, str):
        names = option.split("_")
        if not names or any(n not in ("HEURISTIC", "PROFILE", "REPRODUCIBLE") for n in names):
            raise ValueError(
                f"execution strategy: use HEURISTIC, PROFILE and REPRODUCIBLE joined by _; got {option!r}."
            )
        value = kind.of(names)
    elif isinstance(option, kind):
        value = option
    else:
        raise TypeError(f"execution strategy: needs a string or a Strategy; got {type(option).__name__}.")
    config.benchmark_kernel = bool(value & "PROFILE")
    config.deterministic_kernel = bool(value & "REPRODUCIBLE")


get_conv_execution_strategy = get_execution_strategy
set_conv_execution_strategy = set_execution_strategy
