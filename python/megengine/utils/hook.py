"""Handles of registered hooks."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any


class HookHandler:
    """Puts a hook into an ordered dict under a number of its own; ``remove`` takes it out again, once or often."""

    hook_num = 0

    def __init__(self, source_dict: OrderedDict[int, Callable[..., Any]], hook: Callable[..., Any]) -> None:
        self._id = HookHandler.hook_num
        HookHandler.hook_num += 1
        source_dict[self._id] = hook
        self._source = weakref.ref(source_dict)

    def remove(self) -> None:
        """Unregister the hook."""
        source = self._source()
        if source is not None:
            source.pop(self._id, None)
