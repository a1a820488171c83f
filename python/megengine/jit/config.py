"""Options of a trace that later graph passes read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..core import _core


def _not_negative(**given: float) -> None:
    for name, value in given.items():
        assert value >= 0, f"{name} must be greater or equal to zero; got {value!r}."


class SublinearMemoryConfig:
    """How hard to search for a recomputation plan (kept for the pass that uses it).

    >>> SublinearMemoryConfig(lb_memory_mb=100).lb_memory
    104857600
    """

    def __init__(
        self,
        thresh_nr_try: int = 10,
        genetic_nr_iter: int = 0,
        genetic_pool_size: int = 20,
        lb_memory_mb: int = 0,
        num_worker: int = max(1, (os.cpu_count() or 1) // 2),
    ) -> None:
        _not_negative(
            thresh_nr_try=thresh_nr_try,
            genetic_nr_iter=genetic_nr_iter,
            genetic_pool_size=genetic_pool_size,
            lb_memory_mb=lb_memory_mb,
        )
        assert num_worker > 0, f"num_worker must be greater or equal to one; got {num_worker!r}."
        self.thresh_nr_try = thresh_nr_try
        self.genetic_nr_iter = genetic_nr_iter
        self.genetic_pool_size = genetic_pool_size
        self.lb_memory_mb = lb_memory_mb
        self.lb_memory = lb_memory_mb * 1024 * 1024
        self.num_worker = num_worker


class DTRConfig:
    """Dynamic tensor rematerialisation inside a traced program."""

    def __init__(
        self,
        eviction_threshold: int = 0,
        evictee_minimum_size: int = 1024**2,
        recomp_memory_factor: float = 1,
        recomp_time_factor: float = 1,
    ) -> None:
        assert eviction_threshold > 0, f"eviction_threshold must be greater to zero; got {eviction_threshold!r}."
        _not_negative(
            evictee_minimum_size=evictee_minimum_size,
            recomp_memory_factor=recomp_memory_factor,
            recomp_time_factor=recomp_time_factor,
        )
        self.eviction_threshold = eviction_threshold
        self.evictee_minimum_size = evictee_minimum_size
        self.recomp_memory_factor = recomp_memory_factor
        self.recomp_time_factor = recomp_time_factor


class GraphOptimizationConfig:
    """Switches of the graph passes of a trace; None leaves the choice to the compiler.

    ``rewrites`` names those that may change values (``"all"``, or names of docs/numerics.md); by default none is done.

    >>> config = GraphOptimizationConfig()
    >>> config
    GraphOptimizationConfig { jit_fuse_dimshuffle = UNSET, jit_fuse_reduce = UNSET }
    >>> config.rewrites = ["log_exp"]
    >>> config
    GraphOptimizationConfig { jit_fuse_dimshuffle = UNSET, jit_fuse_reduce = UNSET, rewrites = log_exp }
    """

    def __init__(self) -> None:
        self.jit_fuse_dimshuffle: bool | None = None
        self.jit_fuse_reduce: bool | None = None
        self.rewrites: Sequence[str] = ()

    def _options(self) -> tuple[bool | None, bool | None, list[str]]:
        """As a recording takes them."""
        for name in ("jit_fuse_dimshuffle", "jit_fuse_reduce"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, bool):
                raise TypeError(f"GraphOptimizationConfig: {name} is True, False or None; got {value!r}.")
        if isinstance(self.rewrites, str):
            raise TypeError(f"GraphOptimizationConfig: rewrites is a list of names; got {self.rewrites!r}.")
        names = list(self.rewrites)
        known = {"all": "", **_core.rewrites()}
        for name in names:
            if name not in known:
                raise ValueError(f"rewrites: there is none called {name!r}. There are {', '.join(known)}.")
        return self.jit_fuse_dimshuffle, self.jit_fuse_reduce, names

    def __repr__(self) -> str:
        def text(value: Any) -> str:
            return {None: "UNSET", False: "OFF", True: "ON"}.get(value, repr(value))

        rewrites = f", rewrites = {', '.join(self.rewrites)}" if self.rewrites else ""
        return (
            f"GraphOptimizationConfig {{ jit_fuse_dimshuffle = {text(self.jit_fuse_dimshuffle)}, "
            f"jit_fuse_reduce = {text(self.jit_fuse_reduce)}{rewrites} }}"
        )
