"""Helpers of tests and programs."""

from __future__ import annotations

from ..core import _core
from ..core._core import ops
from ..tensor import Tensor
from .metric import topk_accuracy
from .tensor import copy

__all__ = ["copy", "topk_accuracy"]


def _assert_equal(expect: Tensor, actual: Tensor, *, maxerr: float = 1e-4, verbose: bool = False) -> Tensor:
    """``expect``, after checking that ``actual`` is close: |a - b| / max(min(|a|, |b|), 1) at most ``maxerr``.

    Where a trace does not let values be read (``symbolic``, ``without_host``, in files) the program checks, if what
    this returns is used.
    """
    if expect.shape != actual.shape:
        raise RuntimeError(f"_assert_equal: shapes differ, {expect.shape} and {actual.shape}.")
    scale = ops.maximum(ops.minimum(ops.abs(expect), ops.abs(actual)), 1.0)
    if expect.size == 0:
        return expect
    most = (ops.abs(expect - actual) / scale).max()
    try:
        error = float(most.item())
    except (_core.TraceError, ValueError):
        if verbose or not _core.is_tracing():
            raise
        infinite = ops.where(ops.isnan(most), ops.fill_like(most, value=float("inf")), most)
        checked = ops.check_range(infinite, low=0.0, high=maxerr, who="_assert_equal", what="the error")
        return ops.where(checked < 0, actual, expect)  # never below: an expect that waits for the check
    if verbose:
        print(f"_assert_equal: maxerr {error}")
    if not error <= maxerr:
        raise RuntimeError(f"_assert_equal: error {error} exceeds {maxerr}.")
    return expect


def _simulate_error() -> Tensor:
    """A tensor of an op that failed: reading it raises AsyncError, or this does at async level 0."""
    failed = _core.failed_tensor("_simulate_error: asked for an error.")
    if _core.get_option("async_level") == 0:
        failed.numpy()
    return failed
