"""Images in one folder per class."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from ..._image import read_image
from .meta_vision import VisionDataset
from .utils import is_img

__all__ = ["ImageFolder"]


class ImageFolder(VisionDataset):
    """Samples ``(image uint8 [height, width, 3] in BGR, class int32)``; classes are the sorted names of the folders.

    Args:
        root: the folder with one folder per class; images may lie deeper inside it.
        check_valid_func: says which files are images; by their ending by default.
        class_name: give the class's name instead of its number.
    """

    def __init__(
        self, root: str, check_valid_func: Callable[[str], bool] | None = None, class_name: bool = False
    ) -> None:
        super().__init__(root, order=("image", "image_category"))
        if check_valid_func is not None and not callable(check_valid_func):
            raise TypeError(f"ImageFolder: check_valid_func is a function of a path; got {check_valid_func!r}.")
        self.check_valid = is_img if check_valid_func is None else check_valid_func
        self.class_name = class_name
        self.class_dict = self.collect_class()
        self.samples = self.collect_samples()

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        path, label = self.samples[index]
        return read_image(path), label

    def __len__(self) -> int:
        return len(self.samples)

    def collect_samples(self) -> list[tuple[str, Any]]:
        """(path, class) of every image, in the order of class and name."""
        samples = []
        for name in sorted(self.class_dict):
            label = name if self.class_name else np.int32(self.class_dict[name])
            for folder, inner, files in os.walk(os.path.join(self.root, name), followlinks=True):
                inner.sort()
                paths = (os.path.join(folder, file) for file in sorted(files))
                samples += [(path, label) for path in paths if self.check_valid(path)]
        return samples

    def collect_class(self) -> dict[str, int]:
        """The number of each class by its name."""
        if not os.path.isdir(self.root):
            raise FileNotFoundError(f"ImageFolder: there is no folder {self.root}; it holds one folder per class.")
        names = sorted(entry.name for entry in os.scandir(self.root) if entry.is_dir())
        return {name: i for i, name in enumerate(names)}
