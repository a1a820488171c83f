"""The base of layers on quantised tensors."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from ...core.tensor.dtype import _builtin_quant_dtypes_by_cname, get_scale, is_quantize
from ...functional import maximum
from ...tensor import Parameter, Tensor
from ..module import Module


class QuantizedModule(Module):
    """A layer of integers. It knows inference only; the QAT layer it was made of is what trains."""

    output_dtype: np.dtype[Any] | None = None
    #: Least integer of the result where that is above what its dtype holds (qint8_narrow); None elsewhere.
    output_qmin: int | None = None

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        if self.training:
            raise ValueError("quantized module only support inference.")
        return super().__call__(*inputs, **kwargs)

    def __repr__(self) -> str:
        return "Quantized." + super().__repr__()

    @classmethod
    @abstractmethod
    def from_qat_module(cls, qat_module: Any) -> QuantizedModule:
        """The quantised layer that gives the integers of a QAT layer in evaluation mode."""

    def _take_output(self, qat_module: Any) -> None:
        """The result's dtype as the QAT layer knows it."""
        self.output_dtype = _known(qat_module.get_activation_dtype(), qat_module, "activation")
        self.output_qmin = _least(self.output_dtype, qat_module.get_activation_qparams())
        self.training = qat_module.training

    def _result(self, y: Tensor) -> Tensor:
        if self.output_qmin is None:
            return y
        return maximum(y.astype("float32"), self.output_qmin * get_scale(y.dtype)).astype(y.dtype)


def quantized_weight(qat_module: Any, weight: Tensor) -> Parameter:
    """The integers that a QAT layer's weight stands for."""
    dtype = _known(qat_module.get_weight_dtype(), qat_module, "weight")
    q = weight.astype(dtype)
    least = _least(dtype, qat_module.get_weight_qparams())
    return Parameter(q if least is None else np.maximum(q.numpy(), least).astype(dtype), dtype=dtype)


def _known(dtype: np.dtype[Any] | None, qat_module: Any, what: str) -> np.dtype[Any]:
    if dtype is None or not is_quantize(dtype):
        raise ValueError(
            f"{type(qat_module).__name__}: the dtype of its {what} is not known, so it cannot be quantised. Give it a "
            "QConfig with an observer or a fake-quant module, and let it see data."
        )
    return dtype


def _least(dtype: np.dtype[Any], qparams: Any) -> int | None:
    meta = None if qparams is None else qparams.dtype_meta
    if meta is None:
        return None
    full = _builtin_quant_dtypes_by_cname[dtype.metadata["mgb_dtype"]["name"]]  # type: ignore[index]
    return int(meta.qmin) if meta.qmin > full.qmin else None


__all__ = ["QuantizedModule"]
