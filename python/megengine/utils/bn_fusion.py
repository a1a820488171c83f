"""Folding batch normalisation into the layer before it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from .. import module as M
from ..functional import ones, zeros
from ..tensor import Parameter, Tensor

_WITH_RELU: dict[type, type] = {
    M.Conv2d: M.ConvRelu2d,
    M.ConvTranspose2d: M.ConvTransposeRelu2d,
    M.Linear: M.LinearRelu,
}
#: (layer, with relu) to the module that trains layer, normalisation and relu together, and the layer's name in it.
_WITH_BN: dict[tuple[type, bool], tuple[type, str]] = {
    (M.Conv2d, False): (M.ConvBn2d, "conv"),
    (M.Conv2d, True): (M.ConvBnRelu2d, "conv"),
    (M.ConvTranspose2d, False): (M.ConvTransposeBn2d, "conv_transpose2d"),
    (M.ConvTranspose2d, True): (M.ConvTransposeBnRelu2d, "conv_transpose2d"),
    (M.Linear, False): (M.LinearBn1d, "linear"),
    (M.Linear, True): (M.LinearBnRelu1d, "linear"),
}


def fold_weight_bias(
    weight: Tensor,
    bias: Tensor | None,
    gamma: Tensor | None,
    beta: Tensor | None,
    bn_mean: Tensor,
    bn_var: Tensor,
    eps: float = 1e-5,
    transpose: bool = False,
) -> tuple[Tensor, Tensor]:
    """Weight and bias of a layer that computes the layer and its normalisation in one.

    Args:
        weight: of a linear layer (out, in), a convolution (O, I, kh, kw) or a grouped one (G, O/G, I/G, kh, kw).
        bias: of the layer; None is 0.
        gamma: scale of the normalisation; None is 1.
        beta: shift of the normalisation; None is 0.
        bn_mean: running mean.
        bn_var: running variance.
        eps: added to the variance.
        transpose: the weight belongs to a transposed convolution, (I, O, kh, kw) or (G, I/G, O/G, kh, kw).

    >>> from megengine.utils.bn_fusion import fold_weight_bias
    >>> one = F.ones((1, 1, 1, 1))
    >>> w, b = fold_weight_bias(F.ones((1, 1, 1, 1)), None, one * 2, one, one, one * 4, eps=0.0)
    >>> w.item(), b.item()
    (1.0, 0.0)
    """
    channels = bn_var.size
    shape = (1, channels, 1, 1) if weight.ndim > 2 else (channels,)
    gamma = ones(shape) if gamma is None else gamma.reshape(shape)
    beta = zeros(shape) if beta is None else beta.reshape(shape)
    bias = zeros(shape) if bias is None else bias.reshape(shape)
    factor = gamma * (bn_var.reshape(shape) + eps) ** -0.5
    folded = beta + (bias - bn_mean.reshape(shape)) * factor
    if weight.ndim == 2:
        per_weight = factor.reshape(-1, 1)
    elif weight.ndim == 5:
        groups = weight.shape[0]
        tail = (1, -1, 1, 1) if transpose else (-1, 1, 1, 1)
        per_weight = factor.reshape(groups, *tail)
    else:
        per_weight = factor.reshape(1, -1, 1, 1) if transpose else factor.reshape(-1, 1, 1, 1)
    return weight * per_weight, folded


def _fuse(layer: Any, bn: Any, relu: Any) -> Any:
    kind = next(k for k in _WITH_RELU if isinstance(layer, k))
    transpose = kind is M.ConvTranspose2d
    if bn is not None:
        assert layer.training == bn.training, (
            f"fuse: {type(layer).__name__} and {type(bn).__name__} both must be in the same mode (train or eval); got "
            f"training={layer.training} and {bn.training}. net.eval() and net.train() set all of a network."
        )
        channels = layer.out_features if kind is M.Linear else layer.out_channels
        assert bn.num_features == channels, (
            f"fuse: {type(bn).__name__} has num_features={bn.num_features}, {type(layer).__name__} gives {channels} "
            "channels."
        )
    if bn is not None and layer.training:
        # Training needs the normalisation as it is: one module that holds both.
        target, attribute = _WITH_BN[kind, relu is not None]
        sizes = _sizes(layer, kind)
        fused = target(*sizes.pop("_positional"), **sizes, eps=bn.eps, momentum=bn.momentum, name=layer.name)
        setattr(fused, attribute, deepcopy(layer))
        fused.bn = deepcopy(bn)
        fused.train(layer.training)
        return fused
    new = deepcopy(layer)
    if bn is not None:
        w, b = fold_weight_bias(
            layer.weight, layer.bias, bn.weight, bn.bias, bn.running_mean, bn.running_var, bn.eps, transpose
        )
        new.weight, new.bias = Parameter(w.numpy()), Parameter(b.numpy())
    if relu is None:
        return new
    # The same state under the class that applies relu as well.
    with_relu: Any = object.__new__(_WITH_RELU[kind])
    with_relu.__dict__.update(new.__dict__)
    return with_relu


def _sizes(layer: Any, kind: type) -> dict[str, Any]:
    if kind is M.Linear:
        return {"_positional": (layer.in_features, layer.out_features), "bias": layer.bias is not None}
    sizes = {k: getattr(layer, k) for k in ("stride", "padding", "dilation", "groups", "conv_mode", "compute_mode")}
    if kind is M.ConvTranspose2d:
        sizes["output_padding"] = layer.output_padding
    else:
        sizes["padding_mode"] = layer.padding_mode
    positional = (layer.in_channels, layer.out_channels, layer.kernel_size)
    return {"_positional": positional, "bias": layer.bias is not None, **sizes}


def fuse_conv_bn_relu_module(conv: Any, bn: M.BatchNorm2d | None, relu: M.ReLU | None) -> Any:
    """One module for a (transposed) convolution, its normalisation and its relu; the originals stay as they are.

    In evaluation mode the normalisation is folded into the weights; in training mode the module keeps both.

    >>> from megengine.utils.bn_fusion import fuse_conv_bn_relu_module
    >>> conv, bn = M.Conv2d(3, 4, 1), M.BatchNorm2d(4)
    >>> conv.eval(), bn.eval()
    (None, None)
    >>> fuse_conv_bn_relu_module(conv, bn, M.ReLU())
    ConvRelu2d(3, 4, kernel_size=(1, 1))
    """
    return _fuse(conv, bn, relu)


def fuse_linear_bn_relu_module(linear: M.Linear, bn: M.BatchNorm1d | None, relu: M.ReLU | None) -> Any:
    """One module for a linear layer, its normalisation and its relu; see ``fuse_conv_bn_relu_module``."""
    return _fuse(linear, bn, relu)
