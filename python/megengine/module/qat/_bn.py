"""What layers with batch normalisation share while they simulate quantisation.

The normalisation is folded into the weight, as it will be in the quantised layer. While training, the folded and
rounded weight is unfolded again behind the product, and the real normalisation follows.
"""

from __future__ import annotations

from typing import Any

from ...core.autodiff._recomputing import kept, recomputing
from ...functional import mean, ones, square, where, zeros_like
from ...tensor import Tensor
from ...utils.bn_fusion import fold_weight_bias
from ._integers import IntegerProduct
from .module import QATModule


class _BnQAT(QATModule):
    """``_layer`` is the convolution or linear layer, ``_product`` it with other parameters, ``_integer_product`` that
    on quantised tensors."""

    bn: Any
    _transpose = False

    @property
    def _layer(self) -> Any:
        raise NotImplementedError

    def _product(self, inp: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        raise NotImplementedError

    def _integer_product(self) -> IntegerProduct:
        raise NotImplementedError

    def get_batch_mean_var(self, inp: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance per channel of a batch."""
        axes = [0, *range(2, inp.ndim)]
        center = mean(inp, axes, keepdims=True)
        return center, mean(square(inp - center), axes, keepdims=True)

    def fold_weight_bias(self, bn_mean: Tensor, bn_var: Tensor) -> tuple[Tensor, Tensor]:
        """The simulated weight and the bias of the layer that does its normalisation as well."""
        layer, bn = self._layer, self.bn
        w, b = fold_weight_bias(layer.weight, layer.bias, bn.weight, bn.bias, bn_mean, bn_var, bn.eps, self._transpose)
        return self.apply_quant_weight(w), b

    def update_running_mean_and_running_var(
        self, bn_mean: Tensor, bn_var: Tensor, num_elements_per_channel: int
    ) -> None:
        """One step of the running statistics, with the unbiased variance."""
        bn = self.bn
        if recomputing():
            return
        unbiased = bn_var.detach() * num_elements_per_channel / max(num_elements_per_channel - 1, 1)
        bn.running_mean._reset(
            bn.running_mean * bn.momentum + bn_mean.detach().reshape(bn.running_mean.shape) * (1 - bn.momentum)
        )
        bn.running_var._reset(bn.running_var * bn.momentum + unbiased.reshape(bn.running_var.shape) * (1 - bn.momentum))

    def _channel(self, x: Tensor | None, like: Tensor) -> Tensor:
        """A number per channel in the shape that goes with results."""
        shape = (1, -1, *(1,) * (like.ndim - 2))
        return ones((1,) * like.ndim) if x is None else x.reshape(shape)

    def _calc_bn_qat(self, inp: Tensor, approx: bool) -> Tensor:
        bn = self.bn
        if bn.running_mean is None:
            raise ValueError(
                f"{type(self).__name__}: batch normalisation without running statistics cannot be folded into the "
                "weight. Build the layer with track_running_stats=True, or call its disable_quantize()."
            )
        if not self.training:
            weight, bias = self.fold_weight_bias(bn.running_mean, bn.running_var)
            return self._calc_qat(inp, weight, bias, self._product, self._integer_product())
        if not approx:
            y = self._layer(inp)
            batch_mean, batch_var = self.get_batch_mean_var(y)
            count = y.size // y.shape[1]
            self.update_running_mean_and_running_var(batch_mean, batch_var, count)
            weight, bias = self.fold_weight_bias(batch_mean, batch_var)
            return self._product(inp, weight, self.apply_quant_bias(bias, inp, weight))
        # bn changes them, and a checkpointed part that runs again must fold as it did before.
        center, spread = kept(bn.running_mean, Tensor), kept(bn.running_var, Tensor)
        weight, _ = self.fold_weight_bias(center, spread)
        y = self._product(inp, weight, None)
        factor = self._channel(bn.weight, y) * (self._channel(spread, y) + bn.eps) ** -0.5
        y = y / where(factor == 0, zeros_like(factor) + 1, factor)  # a factor of 0 has made y 0 already
        if self._layer.bias is not None:
            y = y + self._channel(self._layer.bias, y)
        result: Tensor = bn(y)
        return result
