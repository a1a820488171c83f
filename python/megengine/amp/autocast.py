"""Casting for a block or a function."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..core import _amp, _core
from ..core._habits import check_keywords


class _Entered(threading.local):
    """What this thread had set before each block it is in: one decorator may serve many threads."""

    def __init__(self) -> None:
        self.words: list[tuple[autocast, int]] = []


_entered = _Entered()


class autocast:
    """Cast inputs of ops for a block, or, as a decorator, for a function; only on the thread that runs it.

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

    if not TYPE_CHECKING:

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            check_keywords("autocast", kwargs, cls.__init__)
            return super().__new__(cls)

    def __init__(self, enabled: bool = True, low_prec_dtype: str = "float16", high_prec_dtype: str = "float32") -> None:
        if isinstance(enabled, str):
            raise TypeError(
                f"autocast: enabled must be a bool; got {enabled!r}. It holds for all devices; "
                "low_prec_dtype='bfloat16' chooses the dtype."
            )
        self.enabled = enabled
        self.low_prec_dtype = low_prec_dtype
        self.high_prec_dtype = high_prec_dtype

    def __enter__(self) -> None:
        if not self.enabled:
            return
        before = _core.mode_word()
        try:
            _amp.set_low_prec_dtype(self.low_prec_dtype)
            _amp.set_high_prec_dtype(self.high_prec_dtype)
        except BaseException:
            _core.set_mode_word(before)
            raise
        _core.set_mode_word(_core.mode_word() | _core.MODE_AUTOCAST | _core.MODE_FLOAT32_SUMS)
        _entered.words.append((self, before))

    def __exit__(self, *_: object) -> None:
        if not self.enabled:
            return
        at = max(i for i, (entered, _) in enumerate(_entered.words) if entered is self)
        _core.set_mode_word(_entered.words.pop(at)[1])

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self:
                return func(*args, **kwargs)

        return call
