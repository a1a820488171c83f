"""Functions on images: arrays of shape [height, width, channels], colours in the order blue, green, red."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..._image import needs_cv2, optional

__all__ = ["flip", "pad", "resize", "to_bgr", "to_gray", "wrap_keepdims"]

Array = np.ndarray[Any, Any]
_NEAREST, _LINEAR = 0, 1  # cv2.INTER_NEAREST, cv2.INTER_LINEAR


def wrap_keepdims(func: Callable[..., Any]) -> Callable[..., Any]:
    """Make ``func`` insist on three axes and give back three, also where OpenCV drops the last one."""

    @functools.wraps(func)
    def wrapper(image: Array, *args: Any, **kwargs: Any) -> Array:
        if np.ndim(image) != 3:
            raise ValueError(f"image must have 3 dims, but got {np.ndim(image)} dims")
        result: Array = func(image, *args, **kwargs)
        return result[:, :, np.newaxis] if result.ndim == 2 else result

    return wrapper


def _needs_bgr(op: str, image: Array) -> None:
    if image.shape[2] != 3:
        raise ValueError(f"{op}: needs 3 channels in the order blue, green, red; got shape {image.shape}.")


@wrap_keepdims
def to_gray(image: Array) -> Array:
    """The brightness 0.114 B + 0.587 G + 0.299 R, shape [height, width, 1].

    >>> from megengine.data.transform.vision import functional as VF
    >>> VF.to_gray(np.full((1, 1, 3), 10, "uint8"))
    array([[[10]]], dtype=uint8)
    """
    _needs_bgr("to_gray", image)
    if image.dtype == np.uint8:  # the weights in units of 2^-15, as OpenCV rounds
        b, g, r = (image[:, :, c].astype(np.int32) for c in range(3))
        gray: Array = ((3735 * b + 19235 * g + 9798 * r + (1 << 14)) >> 15).astype(np.uint8)
    else:
        gray = image @ np.array([0.114, 0.587, 0.299], dtype=image.dtype)
    return gray


@wrap_keepdims
def to_bgr(image: Array) -> Array:
    """A grey image [height, width, 1] with its values in three channels."""
    if image.shape[2] != 1:
        raise ValueError(f"to_bgr: needs 1 channel; got shape {image.shape}.")
    return np.repeat(image, 3, axis=2)


@wrap_keepdims
def pad(input: Array, size: int | Sequence[int], value: Any) -> Array:
    """A border of ``value`` around the image.

    Args:
        input: the image.
        size: one width for all sides; (bottom, right); or (top, bottom, left, right).
        value: a number for all channels, or one per channel.
    """
    top, bottom, left, right = sides(size)
    height, width, channels = input.shape
    result = np.empty((top + height + bottom, left + width + right, channels), input.dtype)
    if np.ndim(value) and len(set(value[:channels])) > 1:
        _by_channel(np.broadcast_to(np.asarray(value)[:channels], (channels,)), result)
    else:
        result[...] = value[0] if np.ndim(value) else value
    result[top : top + height, left : left + width] = input
    return result


def sides(size: Any) -> tuple[int, int, int, int]:
    """(top, bottom, left, right) of a padding given in any of the three ways."""
    if isinstance(size, (int, np.integer)):
        return int(size), int(size), int(size), int(size)
    if isinstance(size, Sequence) and len(size) == 2:
        return 0, int(size[0]), 0, int(size[1])
    if isinstance(size, Sequence) and not isinstance(size, str) and len(size) == 4:
        return int(size[0]), int(size[1]), int(size[2]), int(size[3])
    raise ValueError(
        f"pad: size is a number, (bottom, right) or (top, bottom, left, right); got {size!r}. "
        "size should be a list/tuple which contains (top, down, left, right) four pad sizes."
    )


@wrap_keepdims
def flip(image: Array, flipCode: int) -> Array:
    """Mirror: 0 upside down, positive left to right, negative both."""
    if flipCode == 0:
        return np.ascontiguousarray(image[::-1])
    flipped = image[:, ::-1] if flipCode > 0 else image[::-1, ::-1]
    return _by_channel(flipped, np.empty(flipped.shape, flipped.dtype))


def _by_channel(source: Array, result: Array) -> Array:
    """Copy ``source``, which may be one value per channel, to ``result``.

    NOTE(perf): NumPy's innermost loop runs over the last axis. With three channels a plain copy of a mirrored image
    takes 8 times as long as three of its planes.
    """
    for c in range(result.shape[2]):
        result[:, :, c] = source[..., c]
    return result


@wrap_keepdims
def resize(input: Array, size: Sequence[int], interpolation: int = 1) -> Array:
    """The image at another size.

    Args:
        input: the image.
        size: (height, width).
        interpolation: a constant of OpenCV; without OpenCV, 0 (nearest) and 1 (linear) can be had.
    """
    if len(size) != 2 or min(size) <= 0:
        raise ValueError(f"resize: size is (height, width), both positive; got {size}.")
    cv2 = optional("cv2")
    height, width = int(size[0]), int(size[1])
    if cv2 is not None:
        resized: Array = cv2.resize(input, (width, height), interpolation=interpolation)
        return resized
    if interpolation == _NEAREST:
        rows = np.minimum(np.arange(height) * (input.shape[0] / height), input.shape[0] - 1).astype(int)
        cols = np.minimum(np.arange(width) * (input.shape[1] / width), input.shape[1] - 1).astype(int)
        chosen: Array = input[rows[:, None], cols]
        return chosen
    if interpolation == _LINEAR:
        return _resize_linear(input, height, width)
    needs_cv2(f"resize: interpolation {interpolation}")
    raise AssertionError


def _resize_linear(image: Array, height: int, width: int) -> Array:
    """Each result is a mean of the two nearest rows and columns, weighted by how near they are."""

    def neighbours(old: int, new: int) -> tuple[Array, Array, Array]:
        at = np.clip((np.arange(new) + 0.5) * (old / new) - 0.5, 0, old - 1)
        low = np.floor(at).astype(int)
        return low, np.minimum(low + 1, old - 1), (at - low).astype(np.float32)

    above, below, dy = neighbours(image.shape[0], height)
    left, right, dx = neighbours(image.shape[1], width)
    rows = image[above] * (1 - dy)[:, None, None] + image[below] * dy[:, None, None]
    result: Array = rows[:, left] * (1 - dx)[None, :, None] + rows[:, right] * dx[None, :, None]
    return (np.rint(result) if image.dtype.kind in "iu" else result).astype(image.dtype)


def rotate_hue(image: Array, turn: float) -> Array:
    """Colours turned by ``turn`` (a fraction of a full circle) around the colour wheel; uint8 only."""
    _needs_bgr("hue", image)
    cv2 = optional("cv2")
    step = np.uint8(int(turn * 255) % 256)
    if cv2 is not None:
        hsv = cv2.cvtColor(image, cv2.COLOR_BGR2HSV_FULL)
        hsv[..., 0] += step
        turned: Array = cv2.cvtColor(hsv, cv2.COLOR_HSV2BGR_FULL)
        return turned
    return _rotate_hue_numpy(image, step)


def _rotate_hue_numpy(image: Array, step: Any) -> Array:
    b, g, r = (image[..., c].astype(np.float32) for c in range(3))
    top = np.maximum(np.maximum(b, g), r)
    spread = top - np.minimum(np.minimum(b, g), r)
    safe = np.where(spread == 0, 1, spread)
    sector = np.where(top == r, (g - b) / safe, np.where(top == g, 2 + (b - r) / safe, 4 + (r - g) / safe))
    hue = np.rint(sector % 6 * (256 / 6)).astype(np.int64).astype(np.uint8) + step  # 256 steps around
    saturation = np.rint(255 * spread / np.where(top == 0, 1, top)) / 255
    at = hue.astype(np.float32) * (6 / 255)  # OpenCV counts 256 steps one way and 255 the other

    def channel(n: int) -> Array:
        k = (n + at) % 6
        value: Array = top - top * saturation * np.clip(np.minimum(k, 4 - k), 0, 1)
        return value

    turned: Array = np.rint(np.stack([channel(1), channel(3), channel(5)], axis=-1)).astype(np.uint8)
    return turned
