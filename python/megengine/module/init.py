"""Ways to fill parameters. Every function works in place."""

from __future__ import annotations

import math
import typing as _typing
from typing import Any

from ..core._core import ops
from ..core._habits import no_attribute as _no_attribute
from ..random import normal, uniform
from ..tensor import Tensor

__all__ = [
    "calculate_correct_fan",
    "calculate_fan_in_and_fan_out",
    "calculate_gain",
    "fill_",
    "msra_normal_",
    "msra_uniform_",
    "normal_",
    "ones_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]


def _check_tensor(who: str, tensor: Any) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{who}: needs a Tensor, which it fills; got a {type(tensor).__name__}.")


def fill_(tensor: Tensor, val: float) -> None:
    """Fill with one value.

    >>> x = F.zeros((2,))
    >>> M.init.fill_(x, 3.0)
    >>> x.tolist()
    [3.0, 3.0]
    """
    _check_tensor("fill_", tensor)
    tensor._reset(ops.fill_like(tensor, value=float(val)))


def zeros_(tensor: Tensor) -> None:
    """Fill with 0."""
    fill_(tensor, 0.0)


def ones_(tensor: Tensor) -> None:
    """Fill with 1."""
    fill_(tensor, 1.0)


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> None:
    """Fill with numbers spread evenly over (a, b].

    >>> x = F.zeros((100,))
    >>> M.init.uniform_(x, 2.0, 3.0)
    >>> bool((x > 2).numpy().all())
    True
    """
    _check_tensor("uniform_", tensor)
    tensor._reset(uniform(a, b, tensor.shape).astype(tensor.dtype))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> None:
    """Fill with numbers from the normal distribution."""
    _check_tensor("normal_", tensor)
    tensor._reset(normal(mean, std, tensor.shape).astype(tensor.dtype))


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """How much wider a layer before this nonlinearity should be initialised.

    >>> M.init.calculate_gain("linear")
    1.0
    """
    linear = ["linear", "sigmoid"] + [f"{c}{n}d" for c in ("conv", "conv_transpose") for n in (1, 2, 3)]
    if nonlinearity in linear:
        return 1.0
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        slope: Any = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ValueError(f"calculate_gain: {slope!r} is not a slope.")
        return math.sqrt(2.0 / (1 + slope**2))
    raise ValueError(
        f"calculate_gain: unknown nonlinearity {nonlinearity!r}; known are linear, conv1d..3d, sigmoid, tanh, relu and "
        "leaky_relu."
    )


def calculate_fan_in_and_fan_out(tensor: Tensor, who: str = "calculate_fan_in_and_fan_out") -> tuple[float, float]:
    """How many numbers enter and leave one unit of a weight.

    >>> M.init.calculate_fan_in_and_fan_out(F.zeros((8, 4, 3, 3)))
    (36, 72)
    """
    shape = tensor.shape
    if len(shape) < 2:
        raise ValueError(
            f"{who}: needs at least 2 dimensions, to count what goes in and out; got {shape}. zeros_, normal_ and "
            "uniform_ fill any shape."
        )
    if len(shape) == 2:
        return shape[1], shape[0]
    if len(shape) >= 5:  # a leading axis for groups
        shape = shape[1:]
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


def calculate_correct_fan(tensor: Tensor, mode: str, who: str = "calculate_correct_fan") -> float:
    """The fan that ``mode`` names: ``"fan_in"`` or ``"fan_out"``."""
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"calculate_correct_fan: mode must be fan_in or fan_out; got {mode!r}.")
    fan_in, fan_out = calculate_fan_in_and_fan_out(tensor, who)
    return fan_in if mode == "fan_in" else fan_out


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> None:
    """Even numbers such that signals keep their size forwards and backwards (Glorot and Bengio 2010)."""
    fan_in, fan_out = calculate_fan_in_and_fan_out(tensor, "xavier_uniform_")
    bound = gain * math.sqrt(6.0 / (fan_in + fan_out))
    uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> None:
    """Normal numbers such that signals keep their size forwards and backwards (Glorot and Bengio 2010)."""
    fan_in, fan_out = calculate_fan_in_and_fan_out(tensor, "xavier_normal_")
    normal_(tensor, 0.0, gain * math.sqrt(2.0 / (fan_in + fan_out)))


def msra_uniform_(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> None:
    """Even numbers suited to rectifiers (He et al. 2015)."""
    bound = (
        math.sqrt(3.0)
        * calculate_gain(nonlinearity, a)
        / math.sqrt(calculate_correct_fan(tensor, mode, "msra_uniform_"))
    )
    uniform_(tensor, -bound, bound)


def msra_normal_(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> None:
    """Normal numbers suited to rectifiers (He et al. 2015)."""
    normal_(
        tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(calculate_correct_fan(tensor, mode, "msra_normal_"))
    )


if not _typing.TYPE_CHECKING:  # type checkers shall say that a name is not there

    def __getattr__(name: str) -> Any:
        raise _no_attribute(__name__, name)
