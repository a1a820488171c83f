"""Handles of registered hooks."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ..core._core import bump_mutation


class HookHandler:
    """Puts a hook into an ordered dict under a number of its own; ``remove`` takes it out again, once or often."""

    hook_num = 0

    def __init__(self, source_dict: OrderedDict[int, Callable[..., Any]], hook: Callable[..., Any]) -> None:
        self.id = HookHandler.hook_num
        HookHandler.hook_num += 1
        source_dict[self.id] = hook
        bump_mutation()
        self.source_ref = weakref.ref(source_dict)

    def remove(self) -> None:
        """Unregister the hook."""
        source = self.source_ref()
        if source is not None:
            source.pop(self.id, None)
            bump_mutation()
