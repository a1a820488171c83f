"""Checking that ops leave their inputs alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core._core import TensorBase, op_names, ops


class _Checked:
    """Stands for an op and compares its inputs before and after."""

    def __init__(self, name: str, op: Any) -> None:
        self._name, self._op = name, op

    def __call__(self, *args: Any, **attrs: Any) -> Any:
        before = [(a, a.numpy().copy()) for a in args if isinstance(a, TensorBase)]
        out = self._op(*args, **attrs)
        for x, value in before:
            if not np.array_equal(x.numpy(), value, equal_nan=value.dtype.kind == "f"):
                raise RuntimeError(f"{self._name}: changed one of its inputs, of shape {value.shape}.")
        return out

    def __getattr__(self, name: str) -> Any:
        return getattr(self._op, name)


class TensorSanityCheck:
    """A block in which every op that functions call is checked not to change its inputs; slow, for hunting bugs.

    Operators of tensors (``x + y``) go to the engine directly and are not checked.

    >>> from megengine.utils.tensor_sanity_check import TensorSanityCheck
    >>> with TensorSanityCheck():
    ...     y = F.exp(mge.tensor([0.0]))
    >>> y.item()
    1.0
    """

    def __init__(self) -> None:
        self._plain: dict[str, Any] = {}

    def __enter__(self) -> TensorSanityCheck:
        if self._plain:
            raise RuntimeError("TensorSanityCheck: already checking.")
        for name in op_names():
            op = getattr(ops, name, None)
            if op is not None:
                self._plain[name] = op
                setattr(ops, name, _Checked(name, op))
        return self

    def __exit__(self, *_: object) -> None:
        for name, op in self._plain.items():
            setattr(ops, name, op)
        self._plain = {}
