"""The base of modules that simulate quantisation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core._core import is_tracked
from ...quantization.fake_quant import _FakeQuantize
from ...quantization.observer import Observer
from ...quantization.qconfig import QConfig
from ...quantization.utils import QParams, fake_quant_bias
from ...tensor import Tensor
from ..module import Module
from ._integers import IntegerProduct, Product, exact_product, with_value


class QATModule(Module):
    """A module whose weight and result take the values that integers could have.

    It computes in float. Observers look at the weight and the result and say which scale fits; fake-quant modules round
    to that scale, and let gradients pass. ``set_qconfig`` gives it both.
    """

    with_weight = True
    with_act = True

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.weight_observer: Observer | None = None
        self.act_observer: Observer | None = None
        self.weight_fake_quant: Any = None
        self.act_fake_quant: Any = None

    def __repr__(self) -> str:
        return "QAT." + super().__repr__()

    def set_qconfig(self, qconfig: QConfig) -> None:
        """New observers and fake-quant modules."""

        def made(maker: Any) -> Any:
            return None if maker is None else maker()

        if self.with_act:
            self.act_observer = made(qconfig.act_observer)
            self.act_fake_quant = made(qconfig.act_fake_quant)
        if self.with_weight:
            self.weight_observer = made(qconfig.weight_observer)
            self.weight_fake_quant = made(qconfig.weight_fake_quant)
            if getattr(self.weight_observer, "per_channel", False):
                self.weight_observer.set_channels(*self._weight_channels())  # type: ignore[union-attr]

    def _weight_channels(self) -> tuple[Sequence[int], Sequence[int]]:
        """The shape of the weight and the axes of its output channels."""
        raise NotImplementedError(
            f"{type(self).__name__}: does not say which axes of its weight are output channels, so per_channel=True "
            "has no meaning for it. Override _weight_channels, or give it another QConfig."
        )

    def set_fake_quant(self, enable: bool) -> None:
        """Simulate quantisation, or compute in float."""
        _switch(enable, self.act_fake_quant, self.weight_fake_quant)

    def set_observer(self, enable: bool) -> None:
        """Let the observers look, or keep what they know."""
        _switch(enable, self.act_observer, self.weight_observer)

    def _apply_fakequant_with_observer(self, target: Tensor, fake_quant: Any, observer: Observer | None) -> Tensor:
        qparams: QParams | None = None
        if observer is not None:
            target = observer(target)
            qparams = observer.get_qparams()
        result = target
        if fake_quant is not None:
            result = fake_quant(target, qparams)
            if hasattr(fake_quant, "get_qparams"):
                qparams = fake_quant.get_qparams()
        if qparams is None:
            return result
        if result is target:
            result = Tensor(result)  # its parameters are not those of the tensor that came in
        result.qparams.update(qparams)
        if _enabled(fake_quant):
            result._mark_simulated()
        return result

    def apply_quant_weight(self, target: Tensor) -> Tensor:
        """The weight as its integers stand for it, with its quantisation parameters."""
        return self._apply_fakequant_with_observer(target, self.weight_fake_quant, self.weight_observer)

    def apply_quant_activation(self, target: Tensor) -> Tensor:
        """The result as its integers stand for it, with its quantisation parameters."""
        return self._apply_fakequant_with_observer(target, self.act_fake_quant, self.act_observer)

    def apply_quant_bias(self, target: Tensor | None, inp: Tensor, w_qat: Tensor) -> Tensor | None:
        """The bias as 32-bit integers stand for it, while weight and result are simulated."""
        if _enabled(self.act_fake_quant) and _enabled(self.weight_fake_quant):
            return fake_quant_bias(target, inp, w_qat)
        return target

    def _calc_qat(
        self,
        inp: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        product: Product,
        integer_product: IntegerProduct,
    ) -> Tensor:
        """``product`` with a simulated weight and the bias simulated. In evaluation mode its value is that of
        ``integer_product``, which the quantised layer computes."""
        exact = None
        if not self.training and _enabled(self.act_fake_quant) and _enabled(self.weight_fake_quant):
            exact = exact_product(inp, weight, bias, integer_product)
            tensors = [t for t in (inp, weight, bias) if t is not None]
            if exact is not None and not is_tracked(tensors):
                return exact
        y = product(inp, weight, self.apply_quant_bias(bias, inp, weight))
        return y if exact is None else with_value(y, exact)

    def _get_method_result(self, method: str, fake_quant: Any, observer: Observer | None) -> Any:
        for part in (fake_quant, observer):
            if hasattr(part, method):
                return getattr(part, method)()
        return None

    def get_weight_dtype(self) -> np.dtype[Any] | None:
        """The dtype that the weight is to be quantised to."""
        found: np.dtype[Any] | None = self._get_method_result(
            "get_quantized_dtype", self.weight_fake_quant, self.weight_observer
        )
        return found

    def get_activation_dtype(self) -> np.dtype[Any] | None:
        """The dtype that the result is to be quantised to."""
        found: np.dtype[Any] | None = self._get_method_result(
            "get_quantized_dtype", self.act_fake_quant, self.act_observer
        )
        return found

    def get_weight_qparams(self) -> QParams | None:
        """Scale and zero point of the weight."""
        found: QParams | None = self._get_method_result("get_qparams", self.weight_fake_quant, self.weight_observer)
        return found

    def get_activation_qparams(self) -> QParams | None:
        """Scale and zero point of the result."""
        found: QParams | None = self._get_method_result("get_qparams", self.act_fake_quant, self.act_observer)
        return found

    @classmethod
    @abstractmethod
    def from_float_module(cls, float_module: Any) -> QATModule:
        """A QAT module with the parameters of a float one."""


def _switch(on: bool, *parts: Any) -> None:
    for part in parts:
        if part is not None:
            if on:
                part.enable()
            else:
                part.disable()


def _enabled(fake_quant: _FakeQuantize | None) -> bool:
    return fake_quant is not None and fake_quant.enabled
