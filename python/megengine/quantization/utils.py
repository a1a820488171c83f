"""Quantisation parameters and the functions that simulate quantisation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from .. import functional as F
from ..autodiff import Function
from ..core._core import ops
from ..core.tensor.dtype import QuantDtypeMeta, create_quantized_dtype
from ..core.tensor.qparams import LSQParams, QParams, QuantMode, create_qparams
from ..tensor import Tensor

__all__ = [
    "LSQParams",
    "QParams",
    "QParamsModuleMixin",
    "QuantMode",
    "Round",
    "create_qparams",
    "fake_quant_bias",
    "fake_quant_tensor",
    "lsq_forward",
    "register_method_to_class",
    "tqt_forward",
]


class Round(Function):
    """The nearest whole number, halves away from zero; gradients pass through.

    >>> from megengine.quantization.utils import Round
    >>> Round()(mge.tensor([0.5, -1.4])).tolist()
    [1.0, -1.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.round(x)

    def backward(self, output_grads: Tensor) -> Tensor:
        return output_grads


def register_method_to_class(cls: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that makes a function a method of ``cls``.

    >>> from megengine.quantization.utils import register_method_to_class
    >>> class Box: ...
    >>> @register_method_to_class(Box)
    ... def twice(self, x):
    ...     return 2 * x
    >>> Box().twice(3)
    6
    """

    def decorator(func: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(func)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            return func(self, *args, **kwargs)

        setattr(cls, func.__name__, method)
        return func

    return decorator


class QParamsModuleMixin(ABC):
    """What knows the quantisation parameters of a tensor: observers, and fake-quant modules that learn them."""

    @abstractmethod
    def get_qparams(self) -> QParams:
        """The parameters as they are now."""

    def get_quantized_dtype(self) -> np.dtype[Any]:
        """The dtype of integers with these parameters; one scale per channel where the scale is a tensor of several."""
        q = self.get_qparams()
        if q is None or q.dtype_meta is None or q.scale is None:
            raise ValueError(f"{type(self).__name__}: has no scale yet. Run data through the network first.")
        scale = _array(q.scale)
        zero = _array(q.zero_point) if q.dtype_meta.is_unsigned and q.zero_point is not None else None
        if scale.size == 1:
            return create_quantized_dtype(q.dtype_meta, float(scale.item()), None if zero is None else int(zero.item()))
        # The axes that the scale runs along, from the first to the last of them: two in the weight of a grouped layer.
        along = [i for i, n in enumerate(scale.shape) if n > 1]
        zeros = None if zero is None else np.broadcast_to(zero, scale.shape).ravel().astype(np.int64)
        return create_quantized_dtype(q.dtype_meta, scale.ravel(), zeros, along[0], along[-1] - along[0] + 1)


def _array(value: Any) -> np.ndarray[Any, Any]:
    return value.numpy() if isinstance(value, Tensor) else np.asarray(value)


def fake_quant_tensor(inp: Tensor, qparams: QParams) -> Tensor:
    """``inp`` with the values that the integers of ``qparams`` stand for; the gradient passes where they reach.

    q = clip(round(inp / scale) + zero_point, qmin, qmax), and the result is (q - zero_point) * scale. Halves are
    rounded away from zero. A scale of shape (1, C, 1, 1) is one per channel.

    >>> from megengine.quantization import create_qparams, fake_quant_tensor
    >>> fake_quant_tensor(mge.tensor([0.3, 1.2, 99.0]), create_qparams(dtype_meta="qint8", scale=0.5)).tolist()
    [0.5, 1.0, 63.5]
    """
    meta = _meta_of("fake_quant_tensor", qparams)
    zero = qparams.zero_point if qparams.mode is not QuantMode.SYMMERTIC else None
    y: Tensor = ops.fake_quant(
        inp, qparams.scale, 0.0 if zero is None else zero, qmin=int(meta.qmin), qmax=int(meta.qmax)
    )
    return y


def _meta_of(who: str, qparams: QParams) -> QuantDtypeMeta:
    if qparams.dtype_meta is None or qparams.scale is None:
        raise ValueError(f"{who}: needs a dtype_meta and a scale; got {qparams!r}.")
    return qparams.dtype_meta


def tqt_forward(qmin: int, qmax: int, inp: Tensor, scale: Tensor) -> Tensor:
    """Simulated quantisation with the step 2 ** ``scale``, which gets a gradient.

    >>> from megengine.quantization.utils import tqt_forward
    >>> tqt_forward(-128, 127, mge.tensor([0.3, 1.2]), mge.tensor(-1.0)).tolist()
    [0.5, 1.0]
    """
    y: Tensor = ops.tqt(inp, scale, qmin=int(qmin), qmax=int(qmax))
    return y


def lsq_forward(
    qmin: int,
    qmax: int,
    inp: Tensor,
    step_size: Tensor,
    zero_point: Tensor | None = None,
    scale_grad: Tensor | None = None,
) -> Tensor:
    """Simulated quantisation with the step ``step_size``, which gets a gradient, multiplied by ``scale_grad``.

    >>> from megengine.quantization.utils import lsq_forward
    >>> lsq_forward(-128, 127, mge.tensor([0.3, 1.2]), mge.tensor(0.5)).tolist()
    [0.5, 1.0]
    """
    zero: Any = 0.0 if zero_point is None else zero_point
    factor: Any = 1.0 if scale_grad is None else scale_grad
    y: Tensor = ops.lsq(inp, step_size, zero, factor, qmin=int(qmin), qmax=int(qmax))
    return y


def _symmetric_int8(t: Tensor) -> QParams | None:
    q = getattr(t, "qparams", None)
    if q is None or q.scale is None or q.dtype_meta is None:
        return None
    return q if q.mode is QuantMode.SYMMERTIC and q.dtype_meta.np_dtype_str == "int8" else None


def fake_quant_bias(bias: Tensor | None, inp: Tensor, w_qat: Tensor) -> Tensor | None:
    """The bias as 32-bit integers of scale (input scale) * (weight scale) stand for it.

    Where input or weight has no symmetric 8-bit parameters, the bias stays as it is.
    """
    x, w = _symmetric_int8(inp), _symmetric_int8(w_qat)
    if bias is None or x is None or w is None:
        return bias
    scale = x.scale * w.scale
    if isinstance(scale, Tensor) and scale.size > 1:  # one per output channel
        scale = scale.reshape(bias.shape)
    q = create_qparams(QuantMode.SYMMERTIC, "qint32", scale)
    result = fake_quant_tensor(bias, q)
    result.qparams.update(q)
    return result
