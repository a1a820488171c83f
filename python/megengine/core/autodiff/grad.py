"""Grad: one recording, for those who want it without GradManager."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .. import _core
from . import sessions

if TYPE_CHECKING:
    from ...tensor import Tensor

#: What a recording is known by underneath.
GradKey = _core.GradSession

_grad_manager_dict: weakref.WeakValueDictionary[str, Grad] = weakref.WeakValueDictionary()
_count = 0


def get_grad_managers() -> list[Grad]:
    """The recordings that are alive."""
    return list(_grad_manager_dict.values())


class Grad:
    """Records what is computed from some tensors and walks back through it.

    >>> from megengine.core.autodiff.grad import Grad
    >>> x, out = mge.tensor([3.0]), []
    >>> with Grad().wrt(x, callback=out.append) as grad:
    ...     y = x * x
    ...     grad(y, mge.tensor([1.0]))
    >>> out[0].tolist()
    [6.0]
    """

    stack: list[Grad] = []
    grouping = False
    key2grad: weakref.WeakValueDictionary[GradKey, Grad] = weakref.WeakValueDictionary()

    def __init__(self, name: str | None = None) -> None:
        global _count
        if name is None:
            name = f"grad_{_count}"
            _count += 1
        self._name = name
        self._session = GradKey()
        Grad.key2grad[self._session] = self
        self._kept: list[Tensor] = []
        self._attached: list[tuple[Tensor, Callable[[Tensor], Any] | None]] = []
        _grad_manager_dict[name] = self

    def wrt(self, *tensors: Tensor, callback: Callable[[Tensor], Any] | None = None) -> Grad:
        """Ask for the gradients of ``tensors``; ``callback`` gets each."""
        for t in tensors:
            if self._session.active:
                self._session.attach(t, callback or _ignore)
            else:
                self._attached.append((t, callback))
        return self

    def __enter__(self) -> Grad:
        self._session.start()
        self._kept = sessions.enter(self._session)
        for t, callback in self._attached:
            self._session.attach(t, callback or _ignore)
        self._attached = []
        Grad.stack.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self in Grad.stack:
            Grad.stack.remove(self)
        sessions.leave(self._session)
        self._session.stop()

    def __call__(self, ys: Tensor | Sequence[Tensor], dys: Tensor | Sequence[Tensor]) -> None:
        """Walk back from ``ys`` with the gradients ``dys``; the recording ends."""
        y = [ys] if isinstance(ys, _core.TensorBase) else list(ys)
        dy = [dys] if isinstance(dys, _core.TensorBase) else list(dys)
        try:
            kept = self._kept
            self._session.backward([*y, *kept], [*dy, *(_core.ops.fill_like(t, value=0.0) for t in kept)])
        finally:
            self.__exit__()

    def suppress(self) -> None:
        """Stop recording until ``resume``."""
        self._session.suppress()

    def resume(self) -> None:
        """Go on recording."""
        self._session.resume()

    def _is_attached_to(self, tensor: Tensor) -> bool:
        return self._session.is_attached(tensor)

    @staticmethod
    def begin_group() -> None:
        """Recordings entered from now on do not see each other's backward."""
        Grad.grouping = True
        _core.begin_group()

    @staticmethod
    def end_group() -> None:
        """End of a group."""
        Grad.grouping = False
        _core.end_group()


def _ignore(_: Any) -> None:
    pass


#: Programs import it from here too; ``autodiff.function`` puts it here.
Function: type[Any]
