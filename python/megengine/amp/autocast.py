"""Casting for a block or a function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import config
from ..core import _amp


class autocast:
    """Cast inputs of ops for a block, or, as a decorator, for a function.

    Products and convolutions work in ``low_prec_dtype`` and add up in float32; exp, log, pow, division and the like,
    losses, and layer and group normalisation work in ``high_prec_dtype``; batch normalisation takes and gives low
    precision with parameters in high. Other ops take what comes.

    Args:
        enabled: False does nothing; it does not switch an outer autocast off.
        low_prec_dtype: ``"float16"`` or ``"bfloat16"``.
        high_prec_dtype: ``"float32"``.

    >>> from megengine import amp
    >>> @amp.autocast(low_prec_dtype="bfloat16")
    ... def product(x):
    ...     return x @ x
    >>> product(F.ones((2, 2))).astype("float32").tolist()
    [[2.0, 2.0], [2.0, 2.0]]
    """

    def __init__(self, enabled: bool = True, low_prec_dtype: str = "float16", high_prec_dtype: str = "float32") -> None:
        self.enabled = enabled
        self.low_prec_dtype = low_prec_dtype
        self.high_prec_dtype = high_prec_dtype
        self._before: list[tuple[bool, str, str, str]] = []

    def __enter__(self) -> None:
        if not self.enabled:
            return
        before = (_amp.enabled, _amp.low_prec_dtype, _amp.high_prec_dtype, config._compute_mode)
        try:
            _amp.set_low_prec_dtype(self.low_prec_dtype)
            _amp.set_high_prec_dtype(self.high_prec_dtype)
        except BaseException:
            _amp.low_prec_dtype, _amp.high_prec_dtype = before[1:3]
            raise
        _amp.set_enabled(True)
        config._compute_mode = "float32"
        self._before.append(before)

    def __exit__(self, *_: object) -> None:
        if not self.enabled:
            return
        enabled, _amp.low_prec_dtype, _amp.high_prec_dtype, config._compute_mode = self._before.pop()
        _amp.set_enabled(enabled)

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self:
                return func(*args, **kwargs)

        return call
