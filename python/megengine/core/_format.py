"""Memory formats are labels here; this carries them from inputs to results as MegEngine does.

Nothing is asked of an op until a tensor is marked ``"nhwc"``: that puts stand-ins in the place of the ops of the tables
below and of the operators of Tensor, which look at the labels of the arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from . import _core
from ._core import TensorBase, ops

#: Beside elementwise ops: the result has the label of any argument …
ANY = ("concat", "where", "set_slice")
#: … or of the first one; where the number of axes changes, the label is lost.
FIRST = (
    "conv2d", "max_pool2d", "avg_pool2d", "batch_norm_train", "batch_norm_infer", "resize", "copy", "copy_to",
    "typecvt", "dropout", "fill_like", "slice", "reshape", "broadcast_to", "index_get",
)  # fmt: skip
_OPERATORS = tuple(
    f"__{side}{name}__" for name in ("add", "sub", "mul", "mod", "pow", "floordiv", "truediv") for side in ("", "r")
)
_METHODS = (
    "__neg__", "__pos__", "__abs__", "__round__", "__floor__", "__ceil__", "__getitem__", "astype", "reshape", "detach",
)  # fmt: skip

T = TypeVar("T")

active = False


def _labelled(x: Any) -> bool:
    return isinstance(x, TensorBase) and x._format == "nhwc"  # type: ignore[attr-defined]


def _label(result: Any, source: Any) -> Any:
    """Mark a result, or the first of several, that has the axes of ``source``."""
    first: Any = result[0] if isinstance(result, tuple) else result
    if isinstance(first, TensorBase) and first.ndim == source.ndim and first.dtype != bool:
        first._format = "nhwc"  # type: ignore[attr-defined]
    return result


class _Keeping:
    """Stands for an op and labels its result; everything else about the op is passed through."""

    def __init__(self, op: Any, first_only: bool) -> None:
        self._op, self._first_only = op, first_only

    def __call__(self, *args: Any, **attrs: Any) -> Any:
        result = self._op(*args, **attrs)
        for x in args:
            if isinstance(x, TensorBase) and x._format == "nhwc":  # type: ignore[attr-defined]
                return _label(result, x)
            if self._first_only:
                break
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._op, name)


def _keeping_method(plain: Callable[..., Any], name: str) -> Callable[..., Any]:
    def operator(self: Any, other: Any, *rest: Any) -> Any:
        result = plain(self, other, *rest)
        if self._format == "nhwc":
            return _label(result, self)
        return _label(result, other) if _labelled(other) else result

    def unary(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = plain(self, *args, **kwargs)
        return _label(result, self) if self._format == "nhwc" else result

    method: Any = operator if name in _OPERATORS else unary
    method.__name__ = name
    method.keeps_format = True
    return method  # type: ignore[no-any-return]


def lost(x: T) -> T:
    """The result of a function that does not keep labels, though ops it is made of do."""
    if _labelled(x):
        x._format = "default"  # type: ignore[attr-defined]
    return x


def activate() -> None:
    """Carry labels from now on."""
    global active
    if not active:
        active = True
        refresh()


def refresh() -> None:
    """Put the stand-ins in front of whatever stands for an op now; autocast calls this after a change of its own."""
    if not active:
        return
    from ..tensor import Tensor

    elementwise = [n for n in _core.op_names() if "elementwise" in _core.op_info(n)["traits"]]
    for name in (*elementwise, *ANY, *FIRST):
        op = getattr(ops, name)
        if not isinstance(op, _Keeping):
            setattr(ops, name, _Keeping(op, name in FIRST))
    for name in (*_OPERATORS, *_METHODS):
        method = getattr(Tensor, name)
        if not hasattr(method, "keeps_format"):
            setattr(Tensor, name, _keeping_method(method, name))


def deactivate() -> None:
    """Take the stand-ins away again, outside of autocast; tensors keep their labels."""
    global active
    active = False
    from ..tensor import Tensor

    for name in _core.op_names():
        op = getattr(ops, name, None)
        if isinstance(op, _Keeping):
            setattr(ops, name, op._op)
    for name in (*_OPERATORS, *_METHODS):
        if hasattr(vars(Tensor).get(name), "keeps_format"):
            delattr(Tensor, name)
