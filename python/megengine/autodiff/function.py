"""Functions with a gradient of their own."""

from __future__ import annotations

import weakref
from typing import Any

from ..core import _core
from ..core._core import ops
from ..core.autodiff import grad as _grad
from ..tensor import Tensor

__all__ = ["Function"]


class _Call:
    """One call of a Function, which backward belongs to; the tape keeps it."""

    __slots__ = ("owner", "__weakref__")

    def __init__(self, owner: Function) -> None:
        self.owner = owner

    def backward(self, *output_grads: Any) -> Any:
        # Cells of its own: backward may change them in place, and others may need the same gradient.
        return self.owner.backward(*(None if g is None else Tensor(g) for g in output_grads))


class Function:
    """A differentiable function whose gradient is written by hand.

    What forward keeps on ``self`` belongs to its call: when an instance is called again before its gradient is taken,
    the earlier call goes on with a copy of what the instance held.

    >>> from megengine.autodiff import Function, GradManager
    >>> class Double(Function):
    ...     def forward(self, x):
    ...         return x * 2
    ...
    ...     def backward(self, dy):
    ...         return dy * 2
    >>> x = mge.tensor([1.0])
    >>> with GradManager().attach(x) as gm:
    ...     gm.backward(Double()(x))
    >>> x.grad.tolist()
    [2.0]
    """

    __slots__ = ("__dict__", "__weakref__", "_last")
    _last: weakref.ref[_Call]  # beside __dict__, which is pickled

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The result: a tensor or a tuple of them. What backward needs can be kept on ``self``."""
        raise NotImplementedError(f"{type(self).__name__}.forward is not defined.")

    def backward(self, *output_grads: Any, **kwargs: Any) -> Any:  # so: an override may name its gradients
        """One gradient per input, in its shape, or None where there is none; ``output_grads`` holds None for unused
        outputs. Nones past the last input are ignored."""
        raise NotImplementedError(f"{type(self).__name__}.backward is not defined; a Function gives its own gradient.")

    def _default_rule(self, *args: Any) -> Any:
        return self.forward(*args)

    def __call__(self, *args: Any) -> Any:
        for arg in args:
            if not isinstance(arg, Tensor):
                raise TypeError(
                    f"op {type(self).__name__} expect type Tensor as inputs, got {type(arg).__name__}. "
                    "Keep other values on the instance."
                )
        self._leave_last_call()
        if not _core.is_tracked(args):
            return self._default_rule(*args)
        # An input may be changed in place by forward; the gradient belongs to what came in.
        inputs = tuple(Tensor(a) for a in args)
        result = _core.run_untracked(args, lambda: self._default_rule(*args))
        single = not isinstance(result, (tuple, list))
        outputs = tuple(_own(type(self).__name__, o, args) for o in ((result,) if single else result))
        call = _Call(self)
        self._last = weakref.ref(call)
        _core.set_custom_grad(call.backward, inputs, outputs)
        return outputs[0] if single else outputs

    def _leave_last_call(self) -> None:
        """Gives a call whose gradient is still to come an instance of its own, with what its forward kept."""
        last = getattr(self, "_last", None)
        call = None if last is None else last()
        if call is not None and call.owner is self:
            call.owner = object.__new__(type(self))
            call.owner.__dict__.update(self.__dict__)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def _own(who: str, output: Any, inputs: tuple[Tensor, ...]) -> Tensor:
    """An output of its own: forward may return an input, or a tensor it also keeps."""
    if not isinstance(output, Tensor):
        raise TypeError(f"{who}.forward must return Tensors; got {type(output).__name__}.")
    return ops.copy(output) if any(output is i for i in inputs) else Tensor(output)


_grad.Function = Function
