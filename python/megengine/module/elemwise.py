"""Elementwise functions as modules."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor
from .module import Module


class Elemwise(Module):
    """An elementwise function by name, in any case: ``"add"``, ``"RELU"``, ``"fuse_add_relu"``, …

    The names are those of ``megengine.core.ops.builtin.Elemwise``, and so is the meaning: comparisons give 0 and 1 in
    the dtype of what they compare.

    >>> M.Elemwise("add")(mge.tensor([1.0]), mge.tensor([2.0])).tolist()
    [3.0]
    """

    def __init__(self, method: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.method = method
        self._op()  # an unknown name is an error here, not at the first call

    def _op(self) -> Any:
        from ..core.ops import builtin  # when first used: the op classes would make `import megengine` slower

        op: Any = builtin.Elemwise
        name = self.method.upper()
        if name not in op.Mode.names:
            known = ", ".join(sorted(op.Mode.names)).lower()
            raise ValueError(f"Elemwise: unknown method {self.method!r}. Known: {known}.")
        return op(name)

    def forward(self, *inps: Tensor) -> Tensor:
        from ..core._imperative_rt.core2 import apply

        return apply(self._op(), *inps)[0]
