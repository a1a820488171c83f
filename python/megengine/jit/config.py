"""Options of a trace that later graph passes read."""

from __future__ import annotations

import os


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
        assert thresh_nr_try >= 0 and genetic_nr_iter >= 0 and genetic_pool_size >= 0 and lb_memory_mb >= 0
        assert num_worker > 0
        self.thresh_nr_try = thresh_nr_try
        self.genetic_nr_iter = genetic_nr_iter
        self.genetic_pool_size = genetic_pool_size
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
        assert eviction_threshold > 0, "eviction_threshold must be positive"
        assert evictee_minimum_size >= 0 and recomp_memory_factor >= 0 and recomp_time_factor >= 0
        self.eviction_threshold = eviction_threshold
        self.evictee_minimum_size = evictee_minimum_size
        self.recomp_memory_factor = recomp_memory_factor
        self.recomp_time_factor = recomp_time_factor


class GraphOptimizationConfig:
    """Switches of the JIT fusion; None leaves the choice to the compiler.

    >>> GraphOptimizationConfig()
    GraphOptimizationConfig {jit_fuse_dimshuffle = UNSET, jit_fuse_reduce = UNSET}
    """

    def __init__(self) -> None:
        self.jit_fuse_dimshuffle: bool | None = None
        self.jit_fuse_reduce: bool | None = None

    def __repr__(self) -> str:
        text = {None: "UNSET", False: "OFF", True: "ON"}
        return (
            f"GraphOptimizationConfig {{jit_fuse_dimshuffle = {text[self.jit_fuse_dimshuffle]}, "
            f"jit_fuse_reduce = {text[self.jit_fuse_reduce]}}}"
        )
