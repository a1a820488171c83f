"""PASCAL VOC: objects and segmentation."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..._image import read_image
from .meta_vision import VisionDataset

__all__ = ["PascalVOC"]

Array = np.ndarray[Any, Any]


def _colors(number: int) -> list[list[int]]:
    """The colours (BGR) of VOC's masks: the bits of a class, dealt out to red, green and blue from the top."""
    table = []
    for label in range(number):
        b = g = r = 0
        for bit in range(8):
            triple = label >> (3 * bit)
            r |= (triple & 1) << (7 - bit)
            g |= (triple >> 1 & 1) << (7 - bit)
            b |= (triple >> 2 & 1) << (7 - bit)
        table.append([b, g, r])
    return table


class PascalVOC(VisionDataset):
    """Samples of ``image``, ``boxes`` (float32 [N, 4]), ``boxes_category`` (int32, from 1), ``mask`` and ``info``.

    Args:
        root: a folder such as ``VOCdevkit/VOC2012``.
        image_set: the name of a list in ``ImageSets``: ``train``, ``val``, ``trainval`` …
        order: what a sample consists of. Boxes and mask have different lists of images, so it is one or the other. A
            mask is uint8 [height, width, 1] with 255 where nothing is to be learnt; ``info`` is [height, width, name].
    """

    supported_order = ("image", "boxes", "boxes_category", "mask", "info")
    class_names = (
        "aeroplane",
        "bicycle",
        "bird",
        "boat",
        "bottle",
        "bus",
        "car",
        "cat",
        "chair",
        "cow",
        "diningtable",
        "dog",
        "horse",
        "motorbike",
        "person",
        "pottedplant",
        "sheep",
        "sofa",
        "train",
        "tvmonitor",
    )
    class_colors = _colors(21)

    def __init__(self, root: str, image_set: str, *, order: Sequence[str] | None = None) -> None:
        has_mask = order is not None and "mask" in order
        if has_mask and order is not None and ("boxes" in order or "boxes_category" in order):
            raise ValueError("PascalVOC only supports boxes & boxes_category or mask, not both.")
        super().__init__(root, order=order, supported_order=self.supported_order)
        listing = os.path.join(self.root, "ImageSets", "Segmentation" if has_mask else "Main", f"{image_set}.txt")
        if not os.path.isfile(listing):
            raise FileNotFoundError(f"PascalVOC: there is no image set {image_set!r}; {listing} is not there.")
        with open(listing) as f:
            # lists of one class have a second column
            self.file_names = [line.split()[0] for line in f if line.strip()]
        self.image_set = image_set
        self.imgs = [self._path("JPEGImages", name, "jpg") for name in self.file_names]
        self._numbers = {name: i + 1 for i, name in enumerate(self.class_names)}

    def _path(self, folder: str, name: str, ending: str) -> str:
        return os.path.join(self.root, folder, f"{name}.{ending}")

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        name = self.file_names[index]
        image: Array | None = None
        objects: list[tuple[list[float], int]] | None = None
        target: list[Any] = []
        for kind in self.order:
            if kind == "image":
                image = read_image(self.imgs[index])
                target.append(image)
            elif kind == "mask":
                target.append(self._mask(read_image(self._path("SegmentationClass", name, "png"))))
            elif kind == "info":
                info = self.get_img_info(index, image)
                target.append([info["height"], info["width"], info["file_name"]])
            else:
                objects = self._objects(name) if objects is None else objects
                if kind == "boxes":
                    target.append(np.array([box for box, _ in objects], dtype=np.float32).reshape(-1, 4))
                else:
                    target.append(np.array([number for _, number in objects], dtype=np.int32))
        return tuple(target)

    def __len__(self) -> int:
        return len(self.file_names)

    def get_img_info(self, index: int, image: Array | None = None) -> dict[str, Any]:
        """``height``, ``width`` and ``file_name`` of an image."""
        if image is None:
            image = read_image(self.imgs[index])
        return {"height": image.shape[0], "width": image.shape[1], "file_name": self.file_names[index]}

    def parse_voc_xml(self, node: Any) -> dict[str, Any]:
        """An XML node as dicts and strings; ``object`` is a list always."""
        children = list(node)
        if not children:
            return {node.tag: (node.text or "").strip()}
        content: dict[str, Any] = {}
        repeated: dict[str, list[Any]] = {}
        for child in children:
            for tag, value in self.parse_voc_xml(child).items():
                repeated.setdefault(tag, []).append(value)
        for tag, values in repeated.items():
            content[tag] = values if len(values) > 1 or tag == "object" else values[0]
        return {node.tag: content}

    def _objects(self, name: str) -> list[tuple[list[float], int]]:
        path = self._path("Annotations", name, "xml")
        try:
            tree = self.parse_voc_xml(ElementTree.parse(path).getroot())
            rows = tree["annotation"].get("object", [])
            return [
                ([float(row["bndbox"][edge]) for edge in ("xmin", "ymin", "xmax", "ymax")], self._numbers[row["name"]])
                for row in rows
            ]
        except (ElementTree.ParseError, KeyError, TypeError, AttributeError, ValueError) as e:
            raise ValueError(f"{path}: not an annotation of VOC, or damaged: {type(e).__name__} {e}.") from e

    def _mask(self, picture: Array) -> Array:
        """The class of each pixel by its colour; other colours, such as the white of borders, become 255."""
        codes = picture.astype(np.int64) @ np.array([1 << 16, 1 << 8, 1])
        mask = np.full(codes.shape, 255, np.uint8)
        for label, (b, g, r) in enumerate(self.class_colors):
            mask[codes == (b << 16 | g << 8 | r)] = label
        return mask[:, :, np.newaxis]
