"""Augmentation of images on tensors (N, C, H, W), or (N, H, W, C) where a layer says so."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from ..functional import abs as abs_
from ..functional import clip, conv2d, log, pad, sign, vision
from ..random import RNG
from ..tensor import Tensor
from .module import Module

__all__ = [
    "ActiveBlur",
    "AdditiveElemwise",
    "AdditiveGaussianNoise",
    "AdditiveLaplaceNoise",
    "AdditivePoissonNoise",
    "Emboss",
    "Flip",
    "GaussianBlur",
    "LinearContrast",
    "Mixup",
    "RandomHorizontalFlip",
    "RandomVerticalFlip",
    "Remap",
    "Resize",
    "Rot90",
    "Rotate",
    "Sharpen",
]

Range = float | tuple[float, float] | list[float]


class _Seeded(Module):
    """A layer with a generator of its own; None draws a new seed from the global one."""

    def __init__(self, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.seed = seed

    @property
    def seed(self) -> int | None:
        """The seed; setting it starts the generator anew."""
        return self._seed

    @seed.setter
    def seed(self, seed: int | None) -> None:
        self._seed = seed
        self._rng = RNG(seed)

    def _draw(self, value: Range) -> float:
        """A number as it is, or one drawn from a range."""
        if isinstance(value, (tuple, list)):
            return float(self._rng.uniform(value[0], value[1], size=(1,)).item())
        return float(value)

    @abstractmethod
    def forward(self, *inputs: Any) -> Any: ...


def _check_range(who: str, name: str, value: Any) -> Range:
    numbers = value if isinstance(value, (tuple, list)) else (value,)
    good = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in numbers)
    if not good or (isinstance(value, (tuple, list)) and (len(value) != 2 or value[0] > value[1])):
        raise ValueError(f"{who}: {name} must be a number or a range (low, high); got {value!r}.")
    return value  # type: ignore[no-any-return]


def _to_dtype(y: Tensor, dtype: np.dtype[Any]) -> Tensor:
    """Clipped to what ``dtype`` can hold, rounded for integers."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return clip(y, float(limits.min), float(limits.max)).astype(dtype)
    return y.astype(dtype) if dtype.kind == "f" and y.dtype != dtype else y


# ---- noise


class AdditiveElemwise(_Seeded):
    """inp + noise; the base of noise layers.

    Args:
        per_channel: draw noise for every channel, else the same for all channels of a pixel.
        seed: of the generator.
    """

    def __init__(self, per_channel: bool = False, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(seed=seed, **kwargs)
        self._per_channel = per_channel

    @property
    def per_channel(self) -> bool:
        """Whether every channel has noise of its own."""
        return self._per_channel

    @per_channel.setter
    def per_channel(self, value: bool) -> None:
        self._per_channel = value

    @abstractmethod
    def sample(self, size: tuple[int, ...]) -> Tensor:
        """Noise of a shape."""

    def forward(self, inp: Tensor) -> Tensor:
        size = inp.shape
        if not self._per_channel:
            if inp.ndim != 4:
                raise RuntimeError(
                    f"{type(self).__name__}: noise shared by channels needs (N, C, H, W); got {inp.shape}. "
                    "per_channel=True takes any shape."
                )
            size = (size[0], 1, *size[2:])
        return inp + self.sample(size)


class AdditiveLaplaceNoise(AdditiveElemwise):
    """Noise with density exp(-|x - mean| / std) / (2 std).

    >>> M.vision.AdditiveLaplaceNoise(seed=1)(F.zeros((1, 3, 2, 2))).shape
    (1, 3, 2, 2)
    """

    def __init__(
        self, mean: float = 0.0, std: float = 1.0, per_channel: bool = False, seed: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(per_channel, seed, **kwargs)
        self.mean = mean
        self.std = std

    def sample(self, size: tuple[int, ...]) -> Tensor:
        # The open end keeps 1 - |u| above 0.
        u = self._rng.uniform(float(np.finfo(np.float32).eps) - 1, 1 - float(np.finfo(np.float32).eps), size=size)
        return self.mean - self.std * sign(u) * log(1 - abs_(u))


class AdditiveGaussianNoise(AdditiveElemwise):
    """Normal noise.

    >>> M.vision.AdditiveGaussianNoise(std=0.1, seed=1)(F.zeros((1, 3, 2, 2))).shape
    (1, 3, 2, 2)
    """

    def __init__(
        self, mean: float = 0.0, std: float = 1.0, per_channel: bool = False, seed: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(per_channel, seed, **kwargs)
        self.mean = mean
        self.std = std

    def sample(self, size: tuple[int, ...]) -> Tensor:
        return self._rng.normal(self.mean, self.std, size=size)


class AdditivePoissonNoise(AdditiveElemwise):
    """Poisson noise with mean ``lam``."""

    def __init__(self, lam: float = 1.0, per_channel: bool = False, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(per_channel, seed, **kwargs)
        self.lam = lam

    def sample(self, size: tuple[int, ...]) -> Tensor:
        return self._rng.poisson(self.lam, size=size)


# ---- blur


class ActiveBlur(_Seeded):
    """A 3 x 3 filter on every channel, with reflected borders; the base of filter layers."""

    @abstractmethod
    def get_kernel(self, inp: Tensor, c: int) -> Tensor:
        """The filter, (c, 1, 1, 3, 3)."""

    def _repeated(self, kernel: np.ndarray[Any, Any], inp: Tensor, c: int) -> Tensor:
        return Tensor(np.tile(kernel.astype(np.float32), (c, 1, 1, 1, 1)), device=inp.device)

    def forward(self, inp: Tensor) -> Tensor:
        if inp.ndim != 4 or inp.format == "nhwc":
            raise RuntimeError(f"{type(self).__name__}: needs (N, C, H, W) in NCHW; got {inp.shape}, {inp.format}.")
        c = inp.shape[1]
        x = pad(inp.astype("float32"), ((0, 0), (0, 0), (1, 1), (1, 1)), "reflect")
        return _to_dtype(conv2d(x, self.get_kernel(inp, c), groups=c), inp.dtype)


_IDENTITY = np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0]], dtype=np.float64)


class Emboss(ActiveBlur):
    """Mix an image with its relief.

    Args:
        alpha: how much of the relief, 0 to 1; a number or a range to draw from.
        strength: of the relief; a number or a range.
        seed: of the generator.

    >>> M.vision.Emboss(0.0, 1.0)(F.ones((1, 1, 3, 3))).sum().item()
    9.0
    """

    def __init__(self, alpha: Range, strength: Range, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(seed=seed, **kwargs)
        self.alpha = _check_range("Emboss", "alpha", alpha)
        self.strength = _check_range("Emboss", "strength", strength)

    def get_kernel(self, inp: Tensor, c: int) -> Tensor:
        a, s = self._draw(self.alpha), self._draw(self.strength)
        relief = np.array([[-1 - s, -s, 0], [-s, 1, s], [0, s, 1 + s]])
        return self._repeated((1 - a) * _IDENTITY + a * relief, inp, c)


class Sharpen(ActiveBlur):
    """Mix an image with its edges.

    Args:
        alpha: how much of the edges, 0 to 1; a number or a range to draw from.
        lightness: added to the centre of the edge filter; a number or a range.
        seed: of the generator.

    >>> M.vision.Sharpen(0.0, 1.0)(F.ones((1, 1, 3, 3))).sum().item()
    9.0
    """

    def __init__(self, alpha: Range, lightness: Range, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(seed=seed, **kwargs)
        self.alpha = _check_range("Sharpen", "alpha", alpha)
        self.lightness = _check_range("Sharpen", "lightness", lightness)

    def get_kernel(self, inp: Tensor, c: int) -> Tensor:
        a, lightness = self._draw(self.alpha), self._draw(self.lightness)
        edges = np.full((3, 3), -1.0)
        edges[1, 1] = 8 + lightness
        return self._repeated((1 - a) * _IDENTITY + a * edges, inp, c)


class GaussianBlur(Module):
    """Blur with a Gaussian filter.

    Args:
        kernel_size: odd; a number or (height, width).
        sigma_x: along the width; 0 takes 0.3 * ((k - 1) * 0.5 - 1) + 0.8.
        sigma_y: along the height; 0 takes ``sigma_x``, or the rule when that is 0.
        border_mode: REPLICATE, REFLECT_101 or CONSTANT (zeros).

    >>> M.vision.GaussianBlur(3)(F.ones((1, 2, 5, 5))).numpy().round(4).min()
    np.float32(1.0)
    """

    _BORDERS = {"REPLICATE": "replicate", "REFLECT_101": "reflect", "CONSTANT": "constant"}

    def __init__(
        self,
        kernel_size: int | tuple[int, int],
        sigma_x: float = 0,
        sigma_y: float = 0,
        border_mode: str = "REPLICATE",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.kernel_size = (kernel_size, kernel_size) if isinstance(kernel_size, int) else tuple(kernel_size)
        if len(self.kernel_size) != 2 or any(k < 1 or k % 2 == 0 for k in self.kernel_size):
            raise ValueError(f"GaussianBlur: kernel_size must be odd; got {kernel_size!r}.")
        if border_mode not in self._BORDERS:
            known = ", ".join(self._BORDERS)
            raise NotImplementedError(f"GaussianBlur: border_mode must be one of {known}; got {border_mode!r}.")
        self.sigma_x = sigma_x
        self.sigma_y = sigma_y or sigma_x
        self.border_mode = border_mode

    @staticmethod
    def _line(k: int, sigma: float) -> np.ndarray[Any, Any]:
        sigma = sigma or 0.3 * ((k - 1) * 0.5 - 1) + 0.8
        at = np.arange(k) - (k - 1) / 2
        line = np.exp(-(at**2) / (2 * sigma**2))
        return np.asarray(line / line.sum())

    def forward(self, inp: Tensor) -> Tensor:
        kh, kw = self.kernel_size
        kernel = np.outer(self._line(kh, self.sigma_y), self._line(kw, self.sigma_x)).astype(np.float32)
        c = inp.shape[1]
        around = ((0, 0), (0, 0), (kh // 2, kh // 2), (kw // 2, kw // 2))
        x = pad(inp.astype("float32"), around, self._BORDERS[self.border_mode])
        weight = Tensor(np.tile(kernel, (c, 1, 1, 1, 1)), device=inp.device)
        return _to_dtype(conv2d(x, weight, groups=c), inp.dtype)


# ---- contrast and mixing


class LinearContrast(_Seeded):
    """centre + alpha * (v - centre), with the centre 127 for uint8, the middle of other integers, 0.5 for floats.

    Args:
        alpha: a number, or a range to draw from for every image.
        per_channel: draw for every channel as well.
        seed: of the generator.

    >>> M.vision.LinearContrast(2.0)(mge.tensor(np.full((1, 1, 1, 1), 0.75, "float32"))).item()
    1.0
    """

    def __init__(self, alpha: Range, per_channel: bool = False, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(seed=seed, **kwargs)
        self.alpha = _check_range("LinearContrast", "alpha", alpha)
        self.per_channel = per_channel

    def forward(self, inp: Tensor) -> Tensor:
        if inp.dtype.kind in "iu":
            limits = np.iinfo(inp.dtype)
            centre = float((int(limits.min) + int(limits.max)) // 2)
        else:
            centre = 0.5
        alpha: Any = self.alpha
        if isinstance(alpha, (tuple, list)):
            size = (inp.shape[0], inp.shape[1] if self.per_channel else 1, 1, 1)
            alpha = self._rng.uniform(alpha[0], alpha[1], size=size)
        y = (inp.astype("float32") - centre) * alpha + centre
        # astype cuts off; adding a half first rounds.
        return _to_dtype(y + 0.5 if inp.dtype.kind in "iu" else y, inp.dtype)


class Mixup(_Seeded):
    """l * first + (1 - l) * second for images and labels, with l from Beta(beta, beta) for every sample."""

    def __init__(self, beta: float, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(seed=seed, **kwargs)
        if not beta > 0:
            raise ValueError(f"Mixup: beta must be above 0; got {beta}.")
        self.beta = beta

    def forward(self, data1: Tensor, label1: Tensor, data2: Tensor, label2: Tensor) -> tuple[Tensor, Tensor]:
        part = self._rng.beta(self.beta, self.beta, size=(data1.shape[0],))

        def mix(a: Tensor, b: Tensor) -> Tensor:
            weight = part.reshape(-1, *(1,) * (a.ndim - 1))
            return a * weight + b * (1 - weight)

        return mix(data1, data2), mix(label1, label2)


# ---- geometry


class Flip(Module):
    """Flip (N, H, W, C) upside down, left to right, or both."""

    def __init__(self, vertical: bool = True, horizontal: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.vertical = vertical
        self.horizontal = horizontal

    def forward(self, inp: Tensor) -> Tensor:
        return vision.flip(inp, self.vertical, self.horizontal)


class _RandomFlip(_Seeded):
    _vertical = False

    def __init__(self, prob: float = 0.5, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(seed=seed, **kwargs)
        if not 0 <= prob <= 1:
            raise ValueError(f"{type(self).__name__}: prob must be from 0 to 1; got {prob}.")
        self.prob = prob

    def forward(self, inp: Tensor) -> Tensor:
        if self._rng.uniform(size=(1,)).item() > self.prob or self.prob == 0:
            return inp
        return vision.flip(inp, self._vertical, not self._vertical)


class RandomHorizontalFlip(_RandomFlip):
    """Flip (N, H, W, C) left to right with a probability."""


class RandomVerticalFlip(_RandomFlip):
    """Flip (N, H, W, C) upside down with a probability."""

    _vertical = True


class Rot90(Module):
    """Turn (N, H, W, C) by 90 degrees."""

    def __init__(self, clockwise: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.clockwise = clockwise

    def forward(self, inp: Tensor) -> Tensor:
        return vision.rot90(inp, self.clockwise)


class Rotate(Module):
    """Turn by an angle in degrees; see ``F.vision.rotate``."""

    def __init__(self, angle: float = 0.0, format: str = "NCHW", interp_mode: str = "bilinear", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.angle = angle
        self.format = format
        self.interp_mode = interp_mode

    def forward(self, inp: Tensor) -> Tensor:
        return vision.rotate(inp, self.angle, self.format, self.interp_mode)


class Resize(Module):
    """Resize to (height, width); see ``F.vision.resize``."""

    def __init__(self, size: Any, format: str = "NCHW", imode: str = "linear", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.size = size
        self.format = format
        self.imode = imode

    def forward(self, inp: Tensor) -> Tensor:
        mode = {"linear": "bilinear", "cubic": "bicubic"}.get(self.imode, self.imode)
        return vision.resize(inp, self.size, self.format, mode)


class Remap(Module):
    """Take pixels from given places; see ``F.vision.remap``."""

    def forward(
        self,
        inp: Tensor,
        map_1: Tensor,
        map_2: Tensor | None = None,
        interpolation: str = "linear",
        borderMode: str = "replicate",
        borderValue: float = 0.0,
    ) -> Tensor:
        from ..functional import concat

        xy = map_1
        if map_2 is not None and map_2.size != 0:  # two maps of x and y
            xy = concat([m.reshape(*m.shape, 1) for m in (map_1, map_2)], axis=-1)
        return vision.remap(inp, xy, borderMode, borderValue, interpolation)
