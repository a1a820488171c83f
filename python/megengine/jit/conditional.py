"""Gradients of which a traced program decides whether they exist."""

from __future__ import annotations

import sys
import threading
from typing import Any, NoReturn

from ..core import _core
from ..core._core import ops
from ..tensor import Tensor

__all__ = ["Conditional", "settle"]


class _Open(threading.local):
    """Per thread: tensors that got a conditional gradient in the traced call that is running."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []


_open = _Open()


def at(x: Tensor, device: _core.CompNode) -> Tensor:
    """``x`` on the device."""
    return x if x.device == device else x.to(device)


class Conditional:
    """The ``grad`` of a tensor in a trace after ``GradScaler`` looked for overflows: None if ``absent``, else ``grad``.

    Eagerly such a gradient is None or a tensor; a recorded program finds out which while it runs. Optimizers, clipping,
    ``GradManager.backward`` and ``clear_grad`` take it as it is (a select instead of a branch); anything else cannot
    know what to do with it and is refused.
    """

    __slots__ = ("grad", "absent")

    def __init__(self, grad: Tensor, absent: Tensor) -> None:
        self.grad = grad
        self.absent = absent

    def added(self, more: Tensor) -> Tensor:
        """What ``grad += more`` gives: a gradient that is None is replaced."""
        return ops.where(at(self.absent, more.device), more, self.grad + more)

    def give_to(self, tensor: Tensor) -> None:
        """Makes it the gradient of the tensor until the call ends."""
        tensor.grad = self  # type: ignore[assignment]
        _open.tensors.append(tensor)
        _core.to_settle()

    def resolve(self) -> Tensor | None:
        """What it is after the call."""
        return None if self.absent.item() else self.grad

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        _refuse(f".{name}")


def settle() -> None:
    """After a traced call: gradients that are still conditional become None or tensors; None where the call failed."""
    tensors, _open.tensors = _open.tensors, []
    for t in tensors:
        held: Any = t._grad
        if isinstance(held, Conditional):
            try:
                t.grad = held.resolve()
            except _core.TraceError:
                t.grad = None


_core.set_settle(settle)


def _refuse(what: str) -> NoReturn:
    frame = sys._getframe(2)
    while frame.f_back is not None and "megengine" in frame.f_globals.get("__name__", "").split("."):
        frame = frame.f_back
    where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    raise _core.TraceError(
        f"trace error because {what} of a gradient was used that is None when GradScaler finds an overflow, which a "
        "recorded program cannot branch on. Use it before unscale (scaler.backward(..., unscale_grad=False)), give it "
        f"to clip_grad_norm, clip_grad_value or an optimizer, or move this line outside the trace.\n  at {where}"
    )


def _refusing(name: str) -> Any:
    def method(self: Conditional, *_: Any, **__: Any) -> NoReturn:
        _refuse(name)

    return method


for _name in (
    "add radd iadd sub rsub isub mul rmul imul truediv rtruediv itruediv floordiv rfloordiv mod rmod pow rpow matmul "
    "rmatmul neg pos abs lt le gt ge getitem setitem len iter float int bool array"
).split():
    setattr(Conditional, f"__{_name}__", _refusing(f"__{_name}__"))
