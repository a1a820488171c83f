"""Marking tensors as channels-last."""

from __future__ import annotations

from copy import deepcopy

from ..core._core import ops
from ..module import Module
from ..tensor import Tensor


def convert_tensor_format(x: Tensor, inplace: bool = True) -> Tensor:
    """Mark a tensor of 4 or 5 dimensions as ``"nhwc"``; its shape stays in NCHW order, others are returned as they are.

    Args:
        x: what to mark.
        inplace: mark ``x`` itself, else a copy.

    >>> from megengine import amp
    >>> x = amp.convert_tensor_format(F.ones((1, 2, 3, 4)))
    >>> x.format, x.shape
    ('nhwc', (1, 2, 3, 4))
    """
    if x.ndim not in (4, 5) or x.format == "nhwc":
        return x
    if not inplace:
        x = type(x)(ops.copy(x.detach()))
    x.format = "nhwc"
    return x


def convert_module_format(module: Module, inplace: bool = True) -> Module:
    """Mark all tensors of a module as ``"nhwc"``.

    Args:
        module: what to mark.
        inplace: mark ``module`` itself, else a copy.

    >>> from megengine import amp
    >>> amp.convert_module_format(M.Conv2d(3, 4, 1)).weight.format
    'nhwc'
    """
    if not inplace:
        module = deepcopy(module)
    for tensor in module.tensors():
        convert_tensor_format(tensor)
    return module
