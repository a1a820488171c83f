"""``xla_trace``: the names of MegEngine's XLA backend, which there is none of here.

A program that asks for it hears what is missing and what does the same work, when it makes the trace and not on its
second call.
"""

from __future__ import annotations

from typing import Any, NoReturn

from .tracing import trace

__all__ = ["apply_external_convert_hook", "xla_trace"]

_MISSING = (
    "needs the package mge_xlalib and a CUDA device, and this build has no XLA backend; trace(fn, without_host=True) "
    "compiles the same function into one program."
)


def _refuse(what: str) -> NoReturn:
    raise NotImplementedError(f"{what}: {_MISSING}")


class xla_trace(trace):
    """A trace whose programs XLA compiles; refused with what is missing.

    >>> from megengine.jit import xla_trace
    >>> xla_trace(lambda x: x)
    Traceback (most recent call last):
        ...
    NotImplementedError: xla_trace: needs the package mge_xlalib and a CUDA device, ...
    """

    third_party_backend = True

    def __init__(
        self, function: Any, *, without_host: bool = True, symbolic_shape: bool = False, **kwargs: Any
    ) -> None:
        assert without_host, "xla_trace: runs without the host only; leave out without_host=False, or use trace."
        assert not symbolic_shape, "xla_trace: takes fixed shapes only; leave out symbolic_shape=True, or use trace."
        _refuse("xla_trace")

    def setup_env(self) -> None:
        _refuse("xla_trace.setup_env")

    def unset_env(self) -> None:
        _refuse("xla_trace.unset_env")

    def compile(self) -> None:
        _refuse("xla_trace.compile")

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        _refuse("xla_trace.execute")

    def convert_params_to_xla(self) -> None:
        _refuse("xla_trace.convert_params_to_xla")

    def prepare_xla_inputs(self, tensors: Any) -> Any:
        _refuse("xla_trace.prepare_xla_inputs")

    def to_dlpack(self, x: Any, take_ownership: bool = True) -> Any:
        _refuse("xla_trace.to_dlpack")


def apply_external_convert_hook(input: Any, cn: Any) -> Any:
    """Would make a tensor of an array that XLA owns."""
    _refuse("apply_external_convert_hook")
