"""Cityscapes: streets, segmented."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..._image import read_image, read_labels
from .meta_vision import VisionDataset

__all__ = ["Cityscapes"]

_LEARNT = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)  # label ids, in class order


class Cityscapes(VisionDataset):
    """Samples of ``image``, ``mask`` (uint8 [height, width, 1], 19 classes, 255 to be ignored) and ``info``
    ([height, width, path]).

    Args:
        root: the folder with ``leftImg8bit`` and ``gtFine`` or ``gtCoarse``.
        image_set: ``train``, ``val``, ``test`` or ``train_extra``.
        mode: ``gtFine`` or ``gtCoarse``.
        order: what a sample consists of; only the image by default.
    """

    supported_order = ("image", "mask", "info")
    class_names = (
        "road",
        "sidewalk",
        "building",
        "wall",
        "fence",
        "pole",
        "traffic light",
        "traffic sign",
        "vegetation",
        "terrain",
        "sky",
        "person",
        "rider",
        "car",
        "truck",
        "bus",
        "train",
        "motorcycle",
        "bicycle",
    )

    def __init__(self, root: str, image_set: str, mode: str, *, order: Sequence[str] | None = None) -> None:
        super().__init__(root, order=order, supported_order=self.supported_order)
        if mode not in ("gtFine", "gtCoarse"):
            raise ValueError(f"Cityscapes: mode is 'gtFine' or 'gtCoarse'; got {mode!r}.")
        images = os.path.join(self.root, "leftImg8bit", image_set)
        if not os.path.isdir(images):
            raise FileNotFoundError(f"Cityscapes: there is no image set {image_set!r}; {images} is not there.")
        self.image_set, self.mode = image_set, mode
        self.images: list[str] = []
        self.masks: list[str] = []
        for city in sorted(os.listdir(images)):
            folder = os.path.join(images, city)
            if not os.path.isdir(folder):
                continue
            for name in sorted(os.listdir(folder)):
                stem, is_image, _ = name.partition("_leftImg8bit.png")
                if is_image:
                    self.images.append(os.path.join(folder, name))
                    label = f"{stem}_{mode}_labelIds.png"
                    self.masks.append(os.path.join(self.root, mode, image_set, city, label))
        if "mask" in self.order:
            for path in self.masks:
                if not os.path.isfile(path):
                    raise FileNotFoundError(f"Cityscapes: {path} is not there, though its image is.")
        self._classes = np.full(256, 255, np.uint8)
        self._classes[list(_LEARNT)] = np.arange(len(_LEARNT))

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        image = None
        target: list[Any] = []
        for kind in self.order:
            if kind == "mask":
                target.append(self._classes[read_labels(self.masks[index])][:, :, np.newaxis])
                continue
            image = read_image(self.images[index]) if image is None else image
            target.append(image if kind == "image" else [image.shape[0], image.shape[1], self.images[index]])
        return tuple(target)

    def __len__(self) -> int:
        return len(self.images)
