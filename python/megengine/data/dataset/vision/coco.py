"""COCO: objects and key points, and all datasets with its JSON format."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..._image import read_image
from .meta_vision import VisionDataset

__all__ = ["COCO", "has_valid_annotation"]

_MIN_KEYPOINTS = 10  # that are visible, for a picture of people to be worth learning from


def has_valid_annotation(anno: Sequence[dict[str, Any]], order: Sequence[str]) -> bool:
    """Whether there is something to learn in an image's annotations: a box with an area, enough visible key points."""
    if not anno:
        return False
    if "boxes" in order or "boxes_category" in order:
        if all(any(side <= 1 for side in one["bbox"][2:]) for one in anno):
            return False
    if "keypoints" in order:
        visible = sum(sum(v > 0 for v in one.get("keypoints", [])[2::3]) for one in anno)
        return visible >= _MIN_KEYPOINTS
    return True


class CocoFormat(VisionDataset):
    """A dataset whose annotations are one JSON file in COCO's format. Subclasses have the tables of names."""

    supported_order: tuple[str, ...] = ()

    def __init__(
        self,
        root: str,
        ann_file: str,
        remove_images_without_annotations: bool = False,
        *,
        order: Sequence[str] | None = None,
    ) -> None:
        super().__init__(root, order=order, supported_order=self.supported_order)
        document = self._read(ann_file)
        self.cats = {c["id"]: c for c in document["categories"]}
        self.imgs = {i["id"]: i for i in document["images"]}
        of_image: dict[Any, list[dict[str, Any]]] = defaultdict(list)
        for one in document["annotations"]:
            of_image[one["image_id"]].append(one)
        self.ids = sorted(self.imgs)
        if remove_images_without_annotations:
            kept = []
            for ident in self.ids:
                of_image[ident] = [a for a in of_image[ident] if self._counts(a)]
                if has_valid_annotation(of_image[ident], self.order):
                    kept.append(ident)
            self.ids = kept
        self.img_to_anns = dict(of_image)
        self.json_category_id_to_contiguous_id = {c: i + 1 for i, c in enumerate(sorted(self.cats))}
        self.contiguous_category_id_to_json_id = {v: k for k, v in self.json_category_id_to_contiguous_id.items()}

    def _read(self, ann_file: str) -> dict[str, Any]:
        name = type(self).__name__
        try:
            with open(ann_file) as f:
                document: dict[str, Any] = json.load(f)
        except (ValueError, RecursionError) as e:
            raise ValueError(f"{ann_file}: not a JSON file, or damaged: {e}.") from e
        for table, keys in (
            ("images", ("id", "file_name", "height", "width")),
            ("annotations", ("image_id", "category_id", "bbox")),
            ("categories", ("id",)),
        ):
            if not isinstance(document, dict) or not isinstance(document.get(table), list):
                raise ValueError(f"{ann_file}: not a file for {name}; it has no list {table!r}.")
            for i, row in enumerate(document[table]):
                missing = [k for k in keys if not isinstance(row, dict) or k not in row]
                if missing:
                    raise ValueError(f"{ann_file}: {table}[{i}] has no {missing[0]!r}.")
        categories = {c["id"] for c in document["categories"]}
        for i, one in enumerate(document["annotations"]):
            box = one["bbox"]
            if not isinstance(box, list) or len(box) != 4:
                raise ValueError(f"{ann_file}: the bbox of annotations[{i}] is not [x, y, width, height]; got {box}.")
            if one["category_id"] not in categories:
                raise ValueError(
                    f"{ann_file}: annotations[{i}] has category {one['category_id']}, which is not listed."
                )
        return document

    @staticmethod
    def _counts(annotation: dict[str, Any]) -> bool:
        """Crowds and boxes without area teach nothing."""
        width, height = annotation["bbox"][2:]
        return not annotation.get("iscrowd", 0) and bool(width > 0) and bool(height > 0)

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        annotations = self.img_to_anns.get(self.ids[index], [])
        target: list[Any] = []
        for kind in self.order:
            if kind == "image":
                target.append(read_image(os.path.join(self.root, self.get_img_info(index)["file_name"])))
            elif kind == "boxes":
                boxes = np.array([a["bbox"] for a in annotations], dtype=np.float32).reshape(-1, 4)
                boxes[:, 2:] += boxes[:, :2]  # the file has x, y, width, height
                target.append(boxes)
            elif kind == "boxes_category":
                numbers = [self.json_category_id_to_contiguous_id[a["category_id"]] for a in annotations]
                target.append(np.array(numbers, dtype=np.int32))
            elif kind == "keypoints":
                target.append(self._keypoints(annotations))
            else:
                info = self.get_img_info(index)
                target.append([info["height"], info["width"], info["file_name"]])
        return tuple(target)

    def _keypoints(self, annotations: list[dict[str, Any]]) -> np.ndarray[Any, Any]:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.ids)

    def get_img_info(self, index: int) -> dict[str, Any]:
        """What the file says of an image."""
        info: dict[str, Any] = self.imgs[self.ids[index]]
        return info


class COCO(CocoFormat):
    """Samples of ``image``, ``boxes`` (float32 [N, 4] as x0, y0, x1, y1), ``boxes_category`` (int32, from 1 without
    gaps), ``keypoints`` (float32 [N, 17, 3]) and ``info`` ([height, width, file name]).

    Args:
        root: the folder with the images.
        ann_file: the JSON file.
        remove_images_without_annotations: leave out images that have none, or only crowds.
        order: what a sample consists of; only the image by default.
    """

    supported_order = ("image", "boxes", "boxes_category", "keypoints", "info")
    class_names = (
        "person",
        "bicycle",
        "car",
        "motorcycle",
        "airplane",
        "bus",
        "train",
        "truck",
        "boat",
        "traffic light",
        "fire hydrant",
        "stop sign",
        "parking meter",
        "bench",
        "bird",
        "cat",
        "dog",
        "horse",
        "sheep",
        "cow",
        "elephant",
        "bear",
        "zebra",
        "giraffe",
        "backpack",
        "umbrella",
        "handbag",
        "tie",
        "suitcase",
        "frisbee",
        "skis",
        "snowboard",
        "sports ball",
        "kite",
        "baseball bat",
        "baseball glove",
        "skateboard",
        "surfboard",
        "tennis racket",
        "bottle",
        "wine glass",
        "cup",
        "fork",
        "knife",
        "spoon",
        "bowl",
        "banana",
        "apple",
        "sandwich",
        "orange",
        "broccoli",
        "carrot",
        "hot dog",
        "pizza",
        "donut",
        "cake",
        "chair",
        "couch",
        "potted plant",
        "bed",
        "dining table",
        "toilet",
        "tv",
        "laptop",
        "mouse",
        "remote",
        "keyboard",
        "cell phone",
        "microwave",
        "oven",
        "toaster",
        "sink",
        "refrigerator",
        "book",
        "clock",
        "vase",
        "scissors",
        "teddy bear",
        "hair drier",
        "toothbrush",
    )
    classes_originID = {
        "person": 1,
        "bicycle": 2,
        "car": 3,
        "motorcycle": 4,
        "airplane": 5,
        "bus": 6,
        "train": 7,
        "truck": 8,
        "boat": 9,
        "traffic light": 10,
        "fire hydrant": 11,
        "stop sign": 13,
        "parking meter": 14,
        "bench": 15,
        "bird": 16,
        "cat": 17,
        "dog": 18,
        "horse": 19,
        "sheep": 20,
        "cow": 21,
        "elephant": 22,
        "bear": 23,
        "zebra": 24,
        "giraffe": 25,
        "backpack": 27,
        "umbrella": 28,
        "handbag": 31,
        "tie": 32,
        "suitcase": 33,
        "frisbee": 34,
        "skis": 35,
        "snowboard": 36,
        "sports ball": 37,
        "kite": 38,
        "baseball bat": 39,
        "baseball glove": 40,
        "skateboard": 41,
        "surfboard": 42,
        "tennis racket": 43,
        "bottle": 44,
        "wine glass": 46,
        "cup": 47,
        "fork": 48,
        "knife": 49,
        "spoon": 50,
        "bowl": 51,
        "banana": 52,
        "apple": 53,
        "sandwich": 54,
        "orange": 55,
        "broccoli": 56,
        "carrot": 57,
        "hot dog": 58,
        "pizza": 59,
        "donut": 60,
        "cake": 61,
        "chair": 62,
        "couch": 63,
        "potted plant": 64,
        "bed": 65,
        "dining table": 67,
        "toilet": 70,
        "tv": 72,
        "laptop": 73,
        "mouse": 74,
        "remote": 75,
        "keyboard": 76,
        "cell phone": 77,
        "microwave": 78,
        "oven": 79,
        "toaster": 80,
        "sink": 81,
        "refrigerator": 82,
        "book": 84,
        "clock": 85,
        "vase": 86,
        "scissors": 87,
        "teddy bear": 88,
        "hair drier": 89,
        "toothbrush": 90,
    }
    keypoint_names = (
        "nose",
        "left_eye",
        "right_eye",
        "left_ear",
        "right_ear",
        "left_shoulder",
        "right_shoulder",
        "left_elbow",
        "right_elbow",
        "left_wrist",
        "right_wrist",
        "left_hip",
        "right_hip",
        "left_knee",
        "right_knee",
        "left_ankle",
        "right_ankle",
    )

    def _keypoints(self, annotations: list[dict[str, Any]]) -> np.ndarray[Any, Any]:
        number = len(self.keypoint_names)
        rows = [a.get("keypoints") or [0] * (3 * number) for a in annotations]
        for a, row in zip(annotations, rows):
            if len(row) != 3 * number:
                raise ValueError(
                    f"COCO: annotation {a.get('id')} has {len(row)} values of key points, not {3 * number}."
                )
        return np.array(rows, dtype=np.float32).reshape(-1, number, 3)
