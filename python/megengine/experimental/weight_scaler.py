"""Training with scaled weights: layers that a batch norm follows see larger weights, which the norm takes out again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..core._warn import warn_once
from ..module import BatchNorm2d, Conv2d, Linear, Module
from ..tensor import Tensor

__all__ = ["get_norm_mod_value", "get_scaled_model"]


def get_norm_mod_value(weight: Tensor, norm_value: float) -> Tensor:
    """The power of two by which a weight may be multiplied for its norm to stay at or below ``norm_value``.

    >>> from megengine.experimental.weight_scaler import get_norm_mod_value
    >>> get_norm_mod_value(mge.tensor([3.0, 4.0]), 21.0).item()
    4.0
    """
    norm = float(np.linalg.norm(weight.numpy().astype("float64")))
    return Tensor(2.0 ** math.floor(math.log2(norm_value / norm)))


@lru_cache
def _scaled(cls: type[Module]) -> type[Module]:
    """The class, with weights and bias scaled while training."""

    name = "calc_conv" if issubclass(cls, Conv2d) else "calc_linear"
    plain = getattr(cls, name)

    def calc(self: Any, inp: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if self.training:
            weight = weight * self.weight_scale
            bias = None if bias is None else bias * self.bias_scale
        result: Tensor = plain(self, inp, weight, bias)
        return result

    return type(f"Scaled{cls.__name__}", (cls,), {name: calc, "__module__": __name__, "__doc__": cls.__doc__})


def get_scaled_model(
    model: Module, scale_submodel: Mapping[str, tuple[str, Any]], input_shape: Sequence[int] | None = None
) -> Module:
    """``model``, whose named layers train with scaled weights; evaluation is as before, and so are its parameters.

    Args:
        model: what to change, in place.
        scale_submodel: name of a Conv2d or Linear -> (mode, value). ``("CONST", s)`` multiplies its weight by ``s``,
            any other mode by the power of two that brings its norm up to the value.
        input_shape: of a batch, to learn in which order layers are called.

    The bias is multiplied by what the layers since the last BatchNorm2d were multiplied by together.

    >>> from megengine.experimental import get_scaled_model
    >>> net = M.Sequential(M.Conv2d(1, 2, 1), M.BatchNorm2d(2))
    >>> get_scaled_model(net, {"0": ("CONST", 4)}, (1, 1, 3, 3))[0].weight_scale
    4
    """
    if input_shape is None:
        raise ValueError("get_scaled_model: input_shape is required: the model is run once to see its order of layers.")
    layers = {
        name: m for name, m in model.named_modules() if isinstance(m, (Conv2d, Linear)) and name in scale_submodel
    }
    unknown = sorted(set(scale_submodel) - set(layers))
    if unknown:
        raise ValueError(
            f"get_scaled_model: the model has no Conv2d or Linear called {', '.join(unknown)}; it has "
            f"{', '.join(n for n, m in model.named_modules() if isinstance(m, (Conv2d, Linear)))}."
        )
    called: list[Module] = []
    hooks = [
        m.register_forward_hook(lambda module, inputs, outputs: called.append(module))
        for m in model.modules()
        if isinstance(m, (Conv2d, Linear, BatchNorm2d))
    ]
    training = model.training
    model.eval()
    try:
        model(Tensor(np.zeros(tuple(input_shape), "float32")))
    finally:
        model.train(training)
        for hook in hooks:
            hook.remove()

    names = {id(m): name for name, m in layers.items()}
    total: Any = 1.0
    pending: list[str] = []
    for module in called:
        if isinstance(module, BatchNorm2d):
            total, pending = 1.0, []
        elif (name := names.pop(id(module), None)) is not None:  # a layer called twice counts once
            mode, value = scale_submodel[name]
            scale = value if mode == "CONST" else get_norm_mod_value(layers[name].weight, value)
            total = total * scale
            module.weight_scale, module.bias_scale = scale, total
            module.__class__ = _scaled(type(module))
            pending.append(name)
    if pending:
        warn_once(
            "get_scaled_model",
            f"get_scaled_model: no BatchNorm2d follows {', '.join(pending)}, so training sees scaled results.",
            UserWarning,
        )
    return model
