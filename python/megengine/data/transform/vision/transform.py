"""Transforms of images with what belongs to them. Random ones draw from NumPy's global generator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....core.tensor.utils import ArgumentError
from ..._image import optional
from ..meta_transform import Transform
from . import functional as F

__all__ = [
    "BrightnessTransform",
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "ContrastTransform",
    "GaussianNoise",
    "HueTransform",
    "Lighting",
    "Normalize",
    "Pad",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResize",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Resize",
    "SaturationTransform",
    "ShortestEdgeResize",
    "ToMode",
    "TorchTransformCompose",
    "VisionTransform",
]

Array = np.ndarray[Any, Any]
Order = Sequence[str] | None
Size = int | Sequence[int]
INTER_LINEAR = 1  # cv2.INTER_LINEAR
INTER_NEAREST = 0
_KINDS = ("image", "coords", "boxes", "mask", "keypoints", "polygons", "category", "info")


class VisionTransform(Transform):
    """Base of the transforms of images. ``order`` says what the elements of a sample are.

    ======================== ==================================================================
    image                    [height, width, channels], BGR, usually uint8
    coords                   points [N, 2] as (x, y)
    boxes                    [N, 4] as (x0, y0, x1, y1)
    mask                     [height, width, channels] or [height, width]
    keypoints                [N, K, 3] as (x, y, visibility)
    polygons                 a list of objects, each a list of polygons [M, 2]
    ``*_category``, ``info`` are passed through, as are elements behind the end of ``order``
    ======================== ==================================================================

    A subclass gives ``_apply_image``, ``_apply_coords`` and ``_apply_mask``; the others follow from the points.

    >>> from megengine.data.transform import RandomHorizontalFlip
    >>> flip = RandomHorizontalFlip(prob=1, order=("image", "boxes"))
    >>> flip.apply((np.zeros((4, 10, 3), "uint8"), np.array([[0.0, 1.0, 3.0, 2.0]])))[1]
    array([[ 7.,  1., 10.,  2.]])
    """

    def __init__(self, order: Order = None) -> None:
        super().__init__()
        if order is None:
            order = ("image",)
        elif isinstance(order, str) or not isinstance(order, Sequence):
            raise ValueError(f"order should be a sequence, but got order={order}")
        for kind in order:
            if kind == "batch":
                raise ValueError("batch is invalid data type")
            if not self._passes(kind) and self._get_apply(kind) is None:
                raise NotImplementedError(
                    f"{type(self).__name__}: order: {kind} is unsupported data type; known are "
                    f"{', '.join(k for k in _KINDS if self._passes(k) or self._get_apply(k) is not None)}."
                )
        self.order = order

    @staticmethod
    def _passes(kind: str) -> bool:
        return kind.endswith(("category", "info"))

    def _get_apply(self, kind: str) -> Callable[[Any], Any] | None:
        """What is done to elements of this kind; a subclass may answer for kinds of its own."""
        return getattr(self, f"_apply_{kind}", None)

    def apply(self, input: Any) -> Any:
        """The transformed sample; one element comes back bare, several as a tuple."""
        return self._apply_all(_as_tuple(input))

    def _apply_all(self, sample: tuple[Any, ...]) -> Any:
        results = []
        for kind, value in zip(self.order, sample):
            transform = None if self._passes(kind) else self._get_apply(kind)
            results.append(value if transform is None else transform(value))
        results += sample[len(results) :]
        return results[0] if len(results) == 1 else tuple(results)

    def _get_image(self, sample: tuple[Any, ...]) -> Array:
        """The image that decides sizes."""
        if "image" not in self.order or list(self.order).index("image") >= len(sample):
            raise ValueError(
                f"{self}: needs an image in the sample to know its size; order is {tuple(self.order)}, "
                f"the sample has {len(sample)} elements."
            )
        image = sample[list(self.order).index("image")]
        if np.ndim(image) != 3:
            raise ValueError(f"{self}: image must have 3 dims, but got {np.ndim(image)} dims")
        return np.asarray(image)

    def _apply_image(self, image: Array) -> Array:
        raise NotImplementedError

    def _apply_coords(self, coords: Array) -> Array:
        raise NotImplementedError

    def _apply_mask(self, mask: Array) -> Array:
        raise NotImplementedError

    def _apply_boxes(self, boxes: Array) -> Array:
        # all four corners, since a transform may exchange them
        corners: Array = np.asarray(boxes)[:, [0, 1, 2, 1, 0, 3, 2, 3]].reshape(-1, 2)
        corners = self._apply_coords(corners).reshape(-1, 4, 2)
        return np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)

    def _apply_keypoints(self, keypoints: Array) -> Array:
        points = np.asarray(keypoints)
        shape = points.shape
        moved = self._apply_coords(points[..., :2].reshape(-1, 2))
        return np.concatenate([moved.reshape(*shape[:-1], 2), points[..., 2:]], axis=-1)

    def _apply_polygons(self, polygons: Any) -> Any:
        return [[self._apply_coords(np.asarray(p).reshape(-1, 2)) for p in one] for one in polygons]


def _give_order(transform: Any, order: Sequence[str]) -> None:
    if isinstance(transform, VisionTransform):
        transform.order = order
    if isinstance(transform, Compose):
        for inner in transform.transforms:
            _give_order(inner, order)


def _as_tuple(sample: Any) -> tuple[Any, ...]:
    return sample if isinstance(sample, tuple) else (sample,)


def _pair(name: str, size: Size) -> tuple[int, int]:
    if isinstance(size, (int, np.integer)):
        return int(size), int(size)
    if not isinstance(size, Sequence) or isinstance(size, str) or len(size) != 2:
        raise ValueError(f"{name}: a size is a number or (height, width); got {size!r}.")
    return int(size[0]), int(size[1])


def _on_mask(function: Any, mask: Array, *args: Any) -> Array:
    """A function for images on a mask, which may lack the last axis."""
    if np.ndim(mask) == 2:
        flat: Array = function(mask[:, :, np.newaxis], *args)[:, :, 0]
        return flat
    result: Array = function(mask, *args)
    return result


class _Still(VisionTransform):
    """Base of transforms that leave everything where it is and change the image only."""

    def _apply_coords(self, coords: Array) -> Array:
        return coords

    def _apply_boxes(self, boxes: Array) -> Array:
        return boxes

    def _apply_mask(self, mask: Array) -> Array:
        return mask


class ToMode(_Still):
    """Image and mask from [height, width, channels] to [channels, height, width], the layout of ``Conv2d``."""

    def __init__(self, mode: str = "CHW", *, order: Order = None) -> None:
        super().__init__(order)
        if mode not in ("CHW",):
            raise ArgumentError(f"ToMode: unsupported mode: {mode}; only CHW exists.")
        self.mode = mode

    def _apply_image(self, image: Array) -> Array:
        return np.ascontiguousarray(np.rollaxis(image, 2))

    def _apply_mask(self, mask: Array) -> Array:
        return np.ascontiguousarray(np.rollaxis(mask, 2)) if np.ndim(mask) == 3 else mask


class Compose(VisionTransform):
    """Several transforms one after the other.

    Args:
        transforms: the transforms; they get the ``order`` of this one.
        batch_compose: each transform sees the whole batch before the next does.
        shuffle_indices: groups of places (counted from 1) whose transforms change places at random, anew per sample.
    """

    def __init__(
        self,
        transforms: Sequence[Any] = [],
        batch_compose: bool = False,
        shuffle_indices: Sequence[Sequence[int]] | None = None,
        *,
        order: Order = None,
    ) -> None:
        super().__init__(order)
        self.transforms = transforms
        if batch_compose and shuffle_indices is not None:
            raise ValueError("Do not support shuffle when apply transforms along the whole batch")
        for group in shuffle_indices or ():
            for place in group:
                if not 1 <= place <= len(transforms):
                    raise IndexError(f"Compose: shuffle_indices are 1 to {len(transforms)}; got {place}.")
        self.batch_compose = batch_compose
        self.shuffle_indices = shuffle_indices
        for t in self.transforms:
            if not isinstance(t, Transform):
                raise TypeError(
                    f"Compose: needs transforms; got {type(t)}. Derive a class from Transform and put the function "
                    "into its apply()."
                )
            _give_order(t, self.order)

    def apply_batch(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """All samples of the batch."""
        if not self.batch_compose:
            return super().apply_batch(inputs)
        batch = tuple(inputs)
        for t in self.transforms:
            batch = t.apply_batch(batch)
        return batch

    def apply(self, input: Any) -> Any:
        """One sample through all transforms."""
        for t in self._shuffled():
            input = t.apply(input)
        return input

    def _shuffled(self) -> list[Any]:
        result = list(self.transforms)
        for group in self.shuffle_indices or ():
            places = [i - 1 for i in group]
            for place, source in zip(places, np.random.permutation(places)):
                result[place] = self.transforms[source]
        return result


class TorchTransformCompose(VisionTransform):
    """Transforms of torchvision, which work on PIL images in RGB; samples stay BGR arrays outside."""

    def __init__(self, transforms: Sequence[Any], *, order: Order = None) -> None:
        super().__init__(order)
        self.transforms = transforms

    def _apply_image(self, image: Array) -> Array:
        pillow = optional("PIL.Image")
        if pillow is None:
            raise ImportError("TorchTransformCompose: needs Pillow, which is not installed. pip install pillow")
        if image.dtype != np.uint8:
            raise ValueError(f"TorchTransformCompose: PIL images are uint8; got {image.dtype}.")
        picture: Any = pillow.fromarray(image[:, :, 0] if image.shape[2] == 1 else image[:, :, ::-1].copy())
        for t in self.transforms:
            picture = t(picture)
        array = picture.numpy().transpose(1, 2, 0) if hasattr(picture, "numpy") else np.asarray(picture)
        if array.ndim == 2:
            return array[:, :, np.newaxis].copy()
        return np.ascontiguousarray(array[:, :, ::-1])


class Pad(VisionTransform):
    """A border around the image.

    Args:
        size: one width for all sides; (bottom, right); or (top, bottom, left, right).
        value: of the image's border, a number or one per channel; a float makes the image float32.
        mask_value: of the mask's border.
    """

    def __init__(self, size: Size = 0, value: Any = 0, mask_value: Any = 0, *, order: Order = None) -> None:
        super().__init__(order)
        self.size = F.sides(size)
        self.value = value
        self.mask_value = mask_value
        values = value if isinstance(value, Sequence) else [value]
        self._makes_float = any(isinstance(v, (float, np.floating)) for v in values)

    def _apply_image(self, image: Array) -> Array:
        if self._makes_float:
            image = image.astype(np.float32)
        padded: Array = F.pad(image, self.size, self.value)
        return padded

    def _apply_coords(self, coords: Array) -> Array:
        moved: Array = coords + np.array([self.size[2], self.size[0]], dtype=coords.dtype)
        return moved

    def _apply_mask(self, mask: Array) -> Array:
        return _on_mask(F.pad, mask, self.size, self.mask_value)


class Resize(VisionTransform):
    """Another size.

    Args:
        output_size: (height, width), or the length of the shorter edge.
        interpolation: a constant of OpenCV; masks take the nearest value always.
    """

    def __init__(self, output_size: Size, interpolation: int = INTER_LINEAR, *, order: Order = None) -> None:
        super().__init__(order)
        if not isinstance(output_size, (int, np.integer)):
            output_size = _pair("Resize", output_size)
        self.output_size = output_size
        self.interpolation = interpolation

    def apply(self, input: Any) -> Any:
        """The sample at the other size."""
        sample = _as_tuple(input)
        self._old = self._get_image(sample).shape[:2]
        self._new = self._new_size(*self._old)
        return self._apply_all(sample)

    def _new_size(self, height: int, width: int) -> tuple[int, int]:
        if not isinstance(self.output_size, (int, np.integer)):
            return self.output_size[0], self.output_size[1]
        short = int(self.output_size)
        if height <= width:
            return short, int(short * width / height)
        return int(short * height / width), short

    def _apply_image(self, image: Array) -> Array:
        resized: Array = image if self._new == self._old else F.resize(image, self._new, self.interpolation)
        return resized

    def _apply_coords(self, coords: Array) -> Array:
        scale = (self._new[1] / self._old[1], self._new[0] / self._old[0])
        moved: Array = coords * np.array(scale, dtype=coords.dtype if coords.dtype.kind == "f" else np.float64)
        return moved

    def _apply_mask(self, mask: Array) -> Array:
        return mask if self._new == self._old else _on_mask(F.resize, mask, self._new, INTER_NEAREST)


class ShortestEdgeResize(Resize):
    """The shorter edge to a random length, unless the longer one would pass ``max_size``.

    Args:
        min_size: a length, (low, high) for ``range``, or the lengths to choose from for ``choice``.
        max_size: the longest the other edge may get.
        sample_style: ``range`` or ``choice``.
    """

    def __init__(
        self,
        min_size: Size,
        max_size: int,
        sample_style: str = "range",
        interpolation: int = INTER_LINEAR,
        *,
        order: Order = None,
    ) -> None:
        VisionTransform.__init__(self, order)
        if sample_style not in ("range", "choice"):
            raise NotImplementedError(f"{sample_style} is unsupported sample style")
        sizes = (min_size, min_size) if isinstance(min_size, (int, np.integer)) else tuple(min_size)
        if sample_style == "range" and len(sizes) != 2:
            raise ValueError(f"ShortestEdgeResize: a range is (low, high); got {min_size}. Or sample_style='choice'.")
        self.min_size = sizes
        self.max_size = max_size
        self.sample_style = sample_style
        self.interpolation = interpolation

    def _new_size(self, height: int, width: int) -> tuple[int, int]:
        if self.sample_style == "range":
            size = float(np.random.randint(self.min_size[0], self.min_size[1] + 1))
        else:
            size = float(np.random.choice(self.min_size))
        scale = size / min(height, width)
        if scale * max(height, width) > self.max_size:
            scale = self.max_size / max(height, width)
        return max(1, round(height * scale)), max(1, round(width * scale))


class RandomResize(Resize):
    """Both edges times one random factor of ``scale_range``."""

    def __init__(self, scale_range: Sequence[float], interpolation: int = INTER_LINEAR, *, order: Order = None) -> None:
        VisionTransform.__init__(self, order)
        self.scale_range = scale_range
        self.interpolation = interpolation

    def _new_size(self, height: int, width: int) -> tuple[int, int]:
        scale = np.random.uniform(self.scale_range[0], self.scale_range[1])
        return max(1, int(round(scale * height))), max(1, int(round(scale * width)))


class _Crop(VisionTransform):
    """Base of crops: ``_window`` chooses (left, top, height, width)."""

    def apply(self, input: Any) -> Any:
        """What is inside the window; points outside keep their place relative to it."""
        sample = _as_tuple(input)
        self._at = self._window(*self._get_image(sample).shape[:2])
        return self._apply_all(sample)

    def _window(self, height: int, width: int) -> tuple[int, int, int, int]:
        raise NotImplementedError

    def _apply_image(self, image: Array) -> Array:
        x, y, h, w = self._at
        return image[y : y + h, x : x + w]

    def _apply_coords(self, coords: Array) -> Array:
        moved: Array = coords - np.array(self._at[:2], dtype=coords.dtype)
        return moved

    def _apply_mask(self, mask: Array) -> Array:
        x, y, h, w = self._at
        return mask[y : y + h, x : x + w]


class CenterCrop(_Crop):
    """The middle of the image."""

    def __init__(self, output_size: Size, *, order: Order = None) -> None:
        super().__init__(order)
        self.output_size = _pair("CenterCrop", output_size)

    def _window(self, height: int, width: int) -> tuple[int, int, int, int]:
        h, w = self.output_size
        if h > height or w > width:
            raise ArgumentError(
                f"output size is bigger than image size: CenterCrop to {h}x{w} of {height}x{width}. Pad or Resize "
                "first."
            )
        return int(round((width - w) / 2.0)), int(round((height - h) / 2.0)), h, w


class RandomCrop(_Crop):
    """A window at a random place.

    Args:
        output_size: its size.
        padding_size: the border put around the image first; where that is still too small, more is put below and right.
        padding_value: of that border.
        padding_maskvalue: of the mask's.
    """

    def __init__(
        self,
        output_size: Size,
        padding_size: Size = 0,
        padding_value: Any = [0, 0, 0],  # noqa: B006 - never changed; the default is part of the API
        padding_maskvalue: Any = 0,
        *,
        order: Order = None,
    ) -> None:
        super().__init__(order)
        self.output_size = _pair("RandomCrop", output_size)
        self.padding_size = F.sides(padding_size)
        self.padding_value = padding_value
        self.padding_maskvalue = padding_maskvalue

    def _window(self, height: int, width: int) -> tuple[int, int, int, int]:
        h, w = self.output_size
        top, bottom, left, right = self.padding_size
        self._more = (max(h - top - height - bottom, 0), max(w - left - width - right, 0))
        x = np.random.randint(0, max(left + width + right - w, 0) + 1)
        y = np.random.randint(0, max(top + height + bottom - h, 0) + 1)
        return x, y, h, w

    def _border(self, image: Array, value: Any) -> Array:
        top, bottom, left, right = self.padding_size
        full = (top, bottom + self._more[0], left, right + self._more[1])
        padded: Array = F.pad(image, full, value) if any(full) else image
        return padded

    def _apply_image(self, image: Array) -> Array:
        return super()._apply_image(self._border(image, self.padding_value))

    def _apply_coords(self, coords: Array) -> Array:
        offset = np.array([self.padding_size[2], self.padding_size[0]], dtype=coords.dtype)
        return super()._apply_coords(coords + offset)

    def _apply_mask(self, mask: Array) -> Array:
        return super()._apply_mask(_on_mask(self._border, mask, self.padding_maskvalue))


class RandomResizedCrop(_Crop):
    """A window of random size, shape and place, resized to ``output_size``; the usual one to train on ImageNet.

    Args:
        output_size: the size of the result.
        scale_range: the window's part of the image's area.
        ratio_range: its width by its height.
        interpolation: a constant of OpenCV; masks take the nearest value always.
    """

    def __init__(
        self,
        output_size: Size,
        scale_range: Sequence[float] = (0.08, 1.0),
        ratio_range: Sequence[float] = (3.0 / 4, 4.0 / 3),
        interpolation: int = INTER_LINEAR,
        *,
        order: Order = None,
    ) -> None:
        super().__init__(order)
        self.output_size = _pair("RandomResizedCrop", output_size)
        assert scale_range[0] <= scale_range[1], "scale_range should be of kind (min, max)"
        assert ratio_range[0] <= ratio_range[1], "ratio_range should be of kind (min, max)"
        self.scale_range = scale_range
        self.ratio_range = ratio_range
        self.interpolation = interpolation

    def _window(self, height: int, width: int) -> tuple[int, int, int, int]:
        low, high = math.log(self.ratio_range[0]), math.log(self.ratio_range[1])
        for _ in range(10):
            area = np.random.uniform(self.scale_range[0], self.scale_range[1]) * height * width
            ratio = math.exp(np.random.uniform(low, high))
            w, h = int(round(math.sqrt(area * ratio))), int(round(math.sqrt(area / ratio)))
            if 0 < w <= width and 0 < h <= height:
                x = np.random.randint(0, width - w + 1)
                y = np.random.randint(0, height - h + 1)
                return x, y, h, w
        # no window found: the largest one of an allowed shape, in the middle
        w, h = width, height
        if width / height < self.ratio_range[0]:
            h = int(round(width / self.ratio_range[0]))
        elif width / height > self.ratio_range[1]:
            w = int(round(height * self.ratio_range[1]))
        return (width - w) // 2, (height - h) // 2, h, w

    def _apply_image(self, image: Array) -> Array:
        resized: Array = F.resize(super()._apply_image(image), self.output_size, self.interpolation)
        return resized

    def _apply_coords(self, coords: Array) -> Array:
        _, _, h, w = self._at
        scale = np.array([self.output_size[1] / w, self.output_size[0] / h])
        moved: Array = super()._apply_coords(coords) * scale.astype(
            coords.dtype if coords.dtype.kind == "f" else np.float64
        )
        return moved

    def _apply_mask(self, mask: Array) -> Array:
        return _on_mask(F.resize, super()._apply_mask(mask), self.output_size, INTER_NEAREST)


class _Flip(VisionTransform):
    _code, _axis = 1, 0

    def __init__(self, prob: float = 0.5, *, order: Order = None) -> None:
        super().__init__(order)
        if not 0 <= prob <= 1:
            raise ValueError(f"{type(self).__name__}: prob must be from 0 to 1; got {prob}.")
        self.prob = prob

    def apply(self, input: Any) -> Any:
        """The sample, mirrored or not."""
        sample = _as_tuple(input)
        height, width = self._get_image(sample).shape[:2]
        self._length = (width, height)[self._axis]
        self._flipped = np.random.random() < self.prob
        return self._apply_all(sample)

    def _apply_image(self, image: Array) -> Array:
        result: Array = F.flip(image, self._code) if self._flipped else image
        return result

    def _apply_coords(self, coords: Array) -> Array:
        if not self._flipped:
            return coords
        coords = np.array(coords)
        coords[:, self._axis] = self._length - coords[:, self._axis]
        return coords

    def _apply_mask(self, mask: Array) -> Array:
        return _on_mask(F.flip, mask, self._code) if self._flipped else mask


class RandomHorizontalFlip(_Flip):
    """Left becomes right, with probability ``prob``."""


class RandomVerticalFlip(_Flip):
    """Top becomes bottom, with probability ``prob``."""

    _code, _axis = 0, 1


class Normalize(_Still):
    """``(image - mean) / std`` in float32; numbers, or one per channel.

    >>> from megengine.data.transform import Normalize
    >>> Normalize(mean=128.0, std=64.0).apply(np.full((1, 1, 3), 192, "uint8"))
    array([[[1., 1., 1.]]], dtype=float32)
    """

    def __init__(self, mean: Any = 0.0, std: Any = 1.0, *, order: Order = None) -> None:
        super().__init__(order)
        self.mean = np.array(mean, dtype=np.float32)
        self.std = np.array(std, dtype=np.float32)
        if np.any(self.std == 0):
            raise ValueError(f"Normalize: std must not be 0; got {std}.")

    def _apply_image(self, image: Array) -> Array:
        sizes = (1, image.shape[-1]) if np.ndim(image) == 3 else ()
        if self.mean.ndim > 1 or self.std.ndim > 1 or self.mean.size not in sizes or self.std.size not in sizes:
            try:
                result: Array = (image - self.mean) / self.std
            except ValueError:
                raise ValueError(
                    f"Normalize: mean {self.mean.shape} and std {self.std.shape} do not broadcast with an image "
                    f"{image.shape}; they need one number, or one for each of the {image.shape[-1]} channels."
                ) from None
            return result
        # NOTE(perf): channel by channel, which is 15 times as fast as loops over three numbers at a time. The planes
        # lie as ToMode wants them, so that it has nothing to move.
        planes = np.empty((image.shape[2], *image.shape[:2]), np.result_type(image.dtype, np.float32))
        planes[...] = image.transpose(2, 0, 1)
        planes -= self.mean.reshape(-1, 1, 1)
        planes /= self.std.reshape(-1, 1, 1)
        return planes.transpose(1, 2, 0)


def _clipped(values: Array, dtype: Any) -> Array:
    return values.clip(0, 255).astype(dtype)


class GaussianNoise(_Still):
    """Normal noise added to every value; ``mean`` and ``std`` are for an image of values from 0 to 1."""

    def __init__(self, mean: float = 0.0, std: float = 1.0, *, order: Order = None) -> None:
        super().__init__(order)
        self.mean = np.array(mean, dtype=np.float32)
        self.std = np.array(std, dtype=np.float32)

    def _apply_image(self, image: Array) -> Array:
        noise = np.random.normal(self.mean, self.std, image.shape) * 255
        return _clipped(image + noise.astype(np.float32), image.dtype)


class _Jitter(_Still):
    """Base of transforms that blend the image with another by a random weight around 1."""

    _name = ""

    def __init__(self, value: float, *, order: Order = None) -> None:
        super().__init__(order)
        if value < 0:
            raise ValueError(f"{self._name} value should be non-negative")
        self.value = value

    def _weight(self) -> float:
        return float(np.random.uniform(max(0, 1 - self.value), 1 + self.value))


class BrightnessTransform(_Jitter):
    """Brighter or darker, by a factor up to ``value`` away from 1."""

    _name = "brightness"

    def _apply_image(self, image: Array) -> Array:
        if self.value == 0:
            return image
        return _clipped(image.astype(np.float32) * self._weight(), image.dtype)


class ContrastTransform(_Jitter):
    """Away from or towards the mean brightness."""

    _name = "contrast"

    def _apply_image(self, image: Array) -> Array:
        if self.value == 0:
            return image
        weight = self._weight()
        values = image.astype(np.float32)
        return _clipped(values * weight + F.to_gray(values).mean() * (1 - weight), image.dtype)


class SaturationTransform(_Jitter):
    """Away from or towards grey."""

    _name = "saturation"

    def _apply_image(self, image: Array) -> Array:
        if self.value == 0:
            return image
        weight = self._weight()
        values = image.astype(np.float32)
        return _clipped(values * weight + F.to_gray(values) * (1 - weight), image.dtype)


class HueTransform(_Still):
    """Colours turned around the colour wheel by up to ``value`` (0 to 0.5 of a full circle)."""

    def __init__(self, value: float, *, order: Order = None) -> None:
        super().__init__(order)
        if not 0 <= value <= 0.5:
            raise ValueError("hue value should be in [0.0, 0.5]")
        self.value = value

    def _apply_image(self, image: Array) -> Array:
        if self.value == 0:
            return image
        if np.ndim(image) != 3:
            raise ValueError(f"image must have 3 dims, but got {np.ndim(image)} dims")
        return F.rotate_hue(image.astype(np.uint8), np.random.uniform(-self.value, self.value)).astype(image.dtype)


class ColorJitter(_Still):
    """Brightness, contrast, saturation and hue, in random order."""

    def __init__(
        self,
        brightness: float = 0,
        contrast: float = 0,
        saturation: float = 0,
        hue: float = 0,
        *,
        order: Order = None,
    ) -> None:
        super().__init__(order)
        parts: list[VisionTransform] = []
        if brightness != 0:
            parts.append(BrightnessTransform(brightness))
        if contrast != 0:
            parts.append(ContrastTransform(contrast))
        if saturation != 0:
            parts.append(SaturationTransform(saturation))
        if hue != 0:
            parts.append(HueTransform(hue))
        self.transforms = Compose(parts, shuffle_indices=[tuple(range(1, len(parts) + 1))], order=order)

    def apply(self, input: Any) -> Any:
        """The sample with other colours."""
        return self._apply_all(_as_tuple(input))

    def _apply_image(self, image: Array) -> Array:
        for t in self.transforms._shuffled():
            image = t._apply_image(image)
        return image


class Lighting(_Still):
    """A random shift along the principal colours of ImageNet (Krizhevsky et al., 2012, section 4.1).

    Args:
        scale: the standard deviation of the weights; 0.1 in the paper.
    """

    def __init__(self, scale: float, *, order: Order = None) -> None:
        super().__init__(order)
        if scale < 0:
            raise ValueError("lighting scale should be non-negative")
        self.scale = scale
        self.eigvec = np.array(  # rows B, G, R
            [[-0.5836, -0.6948, 0.4203], [-0.5808, -0.0045, -0.8140], [-0.5675, 0.7192, 0.4009]]
        )
        self.eigval = np.array([0.2175, 0.0188, 0.0045])

    def _apply_image(self, image: Array) -> Array:
        if self.scale == 0:
            return image
        weights = np.random.normal(scale=self.scale, size=3)
        shift = 255 * self.eigvec.dot(weights * self.eigval)
        return _clipped(image + shift, image.dtype)
