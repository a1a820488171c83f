"""Generators by number, as the original's random ops name them; 0 is the global generator."""

from __future__ import annotations

from itertools import count
from typing import Any

from ... import random
from .._core import CompNode

__all__ = [
    "delete_rng_handle",
    "get_global_rng_seed",
    "get_rng_handle_compnode",
    "new_rng_handle",
    "set_global_rng_seed",
]

_generators: dict[int, random.RNG] = {}
_numbers = count(1)
_default = random.RNG()


def generator_of(handle: int) -> random.RNG:
    """The generator behind a handle."""
    if handle == 0:
        return _default
    if handle not in _generators:
        raise RuntimeError(f"random: there is no generator with handle {handle}; new_rng_handle makes one.")
    return _generators[handle]


def new_rng_handle(device: Any, seed: int) -> int:
    """A new generator on ``device``; its handle goes into the random ops."""
    handle = next(_numbers)
    _generators[handle] = random.RNG(seed, str(device))
    return handle


def delete_rng_handle(handle: int) -> None:
    """Forget a generator."""
    _generators.pop(handle, None)


def get_rng_handle_compnode(handle: int) -> CompNode:
    """The device of a generator."""
    found = generator_of(handle)
    return CompNode(str(found._device)) if found._device is not None else CompNode("xpux")


def get_global_rng_seed() -> int:
    """The seed that ``random.seed`` set last."""
    return random.rng._global_seed


def set_global_rng_seed(seed: int) -> None:
    """The same as ``random.seed``."""
    random.seed(seed)
