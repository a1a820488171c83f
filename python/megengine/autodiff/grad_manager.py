"""GradManager: which gradients to compute, and when to record."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ..core import _core
from ..core._core import ops
from ..core._habits import unexpected
from ..core._warn import warn_once
from ..core.autodiff import sessions
from ..core.tensor.dtype import is_differentible_dtype
from ..core.tensor.utils import KindError
from ..jit.conditional import Conditional
from ..tensor import Parameter, Tensor
from ..utils.future import Future

__all__ = ["AttachSpec", "GradManager", "GradManagerGroup", "get_backwarding_grad_manager"]

Callback = Callable[[Tensor, Any], Any]


def get_backwarding_grad_manager() -> GradManager | None:
    """The manager whose ``backward`` is running, or None."""
    manager: GradManager | None = sessions.thread.backwarding
    return manager


class AttachSpec:
    """An attached tensor, held weakly, and what to call with its gradient."""

    __slots__ = ("tensor", "callbacks", "grads", "__weakref__")

    def __init__(self, tensor: weakref.ref[Tensor], callbacks: list[Callback], grads: dict[int, Any]) -> None:
        self.tensor = tensor
        self.callbacks = callbacks
        self.grads = grads  # of the manager: gradients of the running backward by id of the tensor

    def receive(self, grad: Any) -> None:
        """Called once per backward, when the gradient is complete."""
        tensor = self.tensor()
        if tensor is None:
            return
        grad = Tensor(grad)  # a cell of its own: the engine may hand the same one to several tensors
        for callback in self.callbacks:
            grad = _checked(callback, tensor, callback(tensor, grad))
        self.grads[id(tensor)] = (tensor, grad)


def _checked(callback: Callback, tensor: Tensor, grad: Any) -> Any:
    """What a callback returned, if it can be a gradient of the tensor."""
    who = f"attach: callback {getattr(callback, '__name__', callback)}"
    if grad is None:
        warn_once(who, f"{who} returned None, so the tensor gets no gradient. It should end with `return grad`.")
    elif isinstance(grad, Tensor):
        # Sizes of an argument of a traced call are not looked at: the recording would be for them alone.
        fixed = not _core.is_tracing() or isinstance(tensor, Parameter)
        got, want = (grad._tuple_shape, tensor._tuple_shape) if fixed else ((), ())
        if got != want and not math.prod(got) == math.prod(want) == 1:
            raise _core.UserError(f"{who} returned a gradient of shape {got} for a tensor of {want}.")
    elif not isinstance(grad, (Future, Conditional)):
        raise _core.DTypeError(f"{who} must return a Tensor, a Future or None; got {type(grad).__name__}.")
    return grad


class GradManager:
    """Computes gradients of attached tensors.

    Operations are recorded inside ``with gm:`` (or between ``record`` and ``release``); ``backward`` adds gradients to
    the ``grad`` of each attached tensor and ends the recording. Managers nest: what an inner backward computes is
    recorded by managers that were entered earlier. A manager records the ops of the thread that entered it.

    >>> from megengine.autodiff import GradManager
    >>> x = mge.tensor([3.0])
    >>> gm = GradManager().attach(x)
    >>> with gm:
    ...     gm.backward(x * x)
    >>> x.grad.tolist()
    [6.0]
    """

    if not TYPE_CHECKING:  # called with what optimizers take

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            if cls.__init__ is GradManager.__init__ and (args or kwargs):
                raise TypeError("GradManager: takes no arguments. GradManager().attach(net.parameters()) says what of.")
            return super().__new__(cls)

    def __init__(self) -> None:
        self._specs: dict[int, AttachSpec] = {}
        self._session: _core.GradSession | None = None
        self._kept: list[Tensor] = []
        self._gradients: dict[int, tuple[Tensor, Any]] = {}
        self._after_backward_callback: list[Callable[[], Any]] = []

    def _trace_state(self) -> list[Any]:
        """What a recording that uses this manager depends on."""
        specs = [(spec.tensor(), spec.callbacks) for spec in self._specs.values()]
        return [specs, self._after_backward_callback]

    @property
    def _recording(self) -> bool:
        return self._session is not None

    @property
    def _attach_specs(self) -> dict[int, AttachSpec]:
        return self._specs

    def attached_tensors(self) -> list[Tensor]:
        """The attached tensors that are alive, in the order they were attached."""
        found = (spec.tensor() for spec in self._specs.values())
        return [t for t in found if t is not None]

    def attach(
        self, tensors: Tensor | Iterable[Tensor], callbacks: Callback | Iterable[Callback] | None = None
    ) -> GradManager:
        """Compute gradients of these tensors from now on.

        Args:
            tensors: one or several; held weakly.
            callbacks: called as ``callback(tensor, grad)`` when a gradient is complete; what it returns takes the place
                of the gradient, or a Future of it.

        >>> from megengine.autodiff import GradManager
        >>> x = mge.tensor([3.0])
        >>> with GradManager().attach(x, callbacks=lambda t, g: g * 10) as gm:
        ...     gm.backward(x * 2)
        >>> x.grad.tolist()
        [20.0]
        """
        if callbacks is None:
            added: list[Callback] = []
        else:
            added = [callbacks] if callable(callbacks) else list(callbacks)
            if not all(map(callable, added)):
                raise TypeError(
                    f"attach: callbacks must be called as callback(tensor, grad); got {callbacks!r}, a "
                    f"{type(callbacks).__name__}."
                )
        _core.bump_mutation()
        if not isinstance(tensors, Iterable):
            way = " Attach net.parameters()." if hasattr(tensors, "parameters") or callable(tensors) else ""
            raise TypeError(f"attach: needs a Tensor or several; got a {type(tensors).__name__}.{way}")
        found = 0
        for tensor in [tensors] if isinstance(tensors, Tensor) else tensors:
            found += 1
            if not isinstance(tensor, Tensor):
                named = isinstance(tensor, (str, tuple))
                way = " named_parameters() gives names too; attach net.parameters()." if named else ""
                raise KindError(f"attach: needs Tensors; got {type(tensor).__name__}.{way}")
            if not is_differentible_dtype(tensor.dtype):
                raise KindError(
                    f"attach: gradients exist for floating-point tensors only; got {tensor.dtype}. x.astype('float32') "
                    "converts."
                )
            tensor._attached = True
            key = id(tensor)
            spec = self._specs.get(key)
            if spec is not None and spec.tensor() is tensor:
                spec.callbacks.extend(added)
                continue
            spec = AttachSpec(weakref.ref(tensor, _forget(self, key)), list(added), self._gradients)
            self._specs[key] = spec
            if self._session is not None:
                self._session.attach(tensor, spec.receive)
        if not found and isinstance(tensors, Iterator):
            warn_once(
                "attach",
                "attach: the iterator gave no tensors. net.parameters() can be read once; call it again, or keep "
                "list(net.parameters()).",
            )
        return self

    def _register_after_backward_callback(self, callback: Callable[[], Any]) -> GradManager:
        self._after_backward_callback.append(callback)
        _core.bump_mutation()
        return self

    def record(self) -> None:
        """Start recording."""
        if self._session is not None:
            raise RuntimeError(
                "GradManager: already recording. `with gm:` (or record()) is open; leave it, or call release(), "
                "before the next. For gradients of gradients use a second GradManager inside."
            )
        _core.note_use(self)
        try:
            self._session = session = _core.GradSession()
            session.start()
            self._kept = sessions.enter(session)
            for spec in self._specs.values():
                tensor = spec.tensor()
                if tensor is not None:
                    session.attach(tensor, spec.receive)
        except BaseException:  # a signal's, too: `with` leaves only what was entered
            self.release()
            raise

    def release(self) -> None:
        """Stop recording and forget what was recorded."""
        session, self._session = self._session, None
        try:
            self._gradients.clear()
        finally:  # though a signal's handler raises
            if session is not None:
                sessions.leave(session)
                session.stop()

    def backward(
        self,
        y: Tensor | Sequence[Tensor] | None = None,
        dy: Tensor | Sequence[Tensor] | None = None,
        **other: NoReturn,
    ) -> None:
        """Walk back through what was recorded and add up gradients in ``Tensor.grad``; ends the recording.

        Args:
            y: where to start: one tensor, several, or None for nowhere.
            dy: their gradients; ones when None.
        """
        if other:
            raise unexpected("GradManager.backward", other, GradManager.backward)
        session = self._session
        if session is None:
            raise RuntimeError(
                "GradManager.backward: no computation history. did you forget record() or call a method that clears "
                "the history? Compute the loss and call backward inside `with gm:`; one backward ends the recording."
            )
        ys = [] if y is None else _tensors("y", y)
        try:
            dys = self._dys(ys, dy)
        except BaseException:
            self.release()
            raise
        before, sessions.thread.backwarding = sessions.thread.backwarding, self
        kept = self._kept
        try:
            session.backward([*ys, *kept], [*dys, *(ops.fill_like(t, value=0.0) for t in kept)])
            if ys and not self._gradients:
                self._warn_unreached()
            for callback in self._after_backward_callback:
                callback()
            for tensor, grad in self._gradients.values():
                if isinstance(grad, Future):
                    grad = grad.get()
                if tensor.grad is None or grad is None:
                    if grad is not None and tensor.format == "nhwc":
                        grad.format = "nhwc"
                    tensor.grad = grad
                elif isinstance(tensor.grad, Conditional):
                    tensor.grad = tensor.grad.added(grad)
                else:
                    tensor.grad += grad
        finally:
            sessions.thread.backwarding = before
            self.release()

    @staticmethod
    def _dys(ys: list[Tensor], dy: Tensor | Sequence[Tensor] | None) -> list[Tensor]:
        """The gradients that backward starts with."""
        dys = [ops.fill_like(t, value=1.0) for t in ys] if dy is None else _tensors("dy", dy)
        if len(ys) != len(dys):
            raise _core.UserError(
                f"backward: {len(ys)} tensors but {len(dys)} gradients; dy needs one for each of y, or leave it out."
            )
        if dy is not None:  # one element is one element, whether its shape is () or (1,)
            dys = [d.reshape(t.shape) if d.shape != t.shape and d.size == t.size == 1 else d for t, d in zip(ys, dys)]
        return dys

    def _warn_unreached(self) -> None:
        if not self._specs:
            what = (
                "nothing is attached, so there are no gradients to compute. gm.attach(net.parameters()) attaches; "
                "tensors are held weakly, so keep them"
            )
        else:
            what = (
                f"the loss depends on none of the {len(self._specs)} attached tensors, as far as was recorded. Was it "
                "computed before `with gm:`, before they were attached, or from values of detach() or numpy()"
            )
        warn_once("backward", f"GradManager.backward: {what}{'?' if self._specs else '.'}")

    def __enter__(self) -> GradManager:
        self.record()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.release()
        except BaseException:
            self.release()
            raise

    def __or__(self, other: Any) -> GradManagerGroup:
        if not isinstance(other, (GradManager, GradManagerGroup)):
            return NotImplemented
        return GradManagerGroup([self]).merge_with(other)

    __ror__ = __or__


def _tensors(name: str, given: Any) -> list[Tensor]:
    """One tensor or several as a list."""
    found = list(given) if isinstance(given, Iterable) and not isinstance(given, (Tensor, np.ndarray)) else [given]
    for t in found:
        if not isinstance(t, Tensor):
            way = " loss.item() and float(loss) have no history; pass the loss itself." if isinstance(t, float) else ""
            raise _core.DTypeError(
                f"GradManager.backward: {name} must be a Tensor or several; got {type(t).__name__}.{way}"
            )
    return found


def _forget(manager: GradManager, key: int) -> Callable[[Any], None]:
    """What to do when an attached tensor dies; does not keep the manager alive."""
    weak = weakref.ref(manager)

    def gone(ref: Any) -> None:
        alive = weak()
        if alive is not None:
            spec = alive._specs.get(key)
            if spec is not None and spec.tensor is ref:
                del alive._specs[key]

    return gone


class GradManagerGroup:
    """Managers on one level: entered together, blind to each other's backward."""

    def __init__(self, gms: Iterable[GradManager]) -> None:
        self._gms = list(gms)

    def merge_with(self, other: GradManager | GradManagerGroup) -> GradManagerGroup:
        """A group of all managers of both."""
        more = [other] if isinstance(other, GradManager) else other._gms
        return GradManagerGroup([*self._gms, *more])

    __or__ = merge_with
    __ror__ = merge_with

    def __enter__(self) -> GradManagerGroup:
        _core.begin_group()
        try:
            for gm in self._gms:
                gm.record()
        finally:
            _core.end_group()
        return self

    def __exit__(self, *_: object) -> None:
        for gm in reversed(self._gms):
            gm.release()
