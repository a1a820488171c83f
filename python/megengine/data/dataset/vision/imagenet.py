"""ImageNet (ILSVRC 2012)."""

from __future__ import annotations

import glob
import os
import shutil
from typing import Any

from ....logger import get_logger
from ._mat import read_struct_array
from .folder import ImageFolder
from .utils import cache_folder, calculate_md5, untar, untargz

__all__ = ["ImageNet"]

logger = get_logger(__name__)


class ImageNet(ImageFolder):
    """Samples ``(image uint8 [height, width, 3] in BGR, class int32)``.

    Args:
        root: a folder with the three archives as they are distributed, or with what is in them; archives are checked
            and unpacked when first needed. The data may not be redistributed, so it cannot be downloaded here.
        train: the images to train with, otherwise those to validate with.
        **kwargs: ``train_dir``, ``val_dir`` and ``devkit_dir``, the folders inside ``root``; the rest is as for
            ``ImageFolder``.
    """

    raw_file_meta = {
        "train": ("ILSVRC2012_img_train.tar", "1d675b47d978889d74fa0da5fadfb00e"),
        "val": ("ILSVRC2012_img_val.tar", "29b22e2961454d5413ddabcf34fc5622"),
        "devkit": ("ILSVRC2012_devkit_t12.tar.gz", "fa75699e90414af021442c21a62c3abf"),
    }
    default_train_dir = "train"
    default_val_dir = "val"
    default_devkit_dir = "ILSVRC2012_devkit_t12"

    def __init__(self, root: str | None = None, train: bool = True, **kwargs: Any) -> None:
        home = self._home = cache_folder("ImageNet") if root is None else os.path.expanduser(root)
        self.train = train
        if not os.path.isdir(home):
            raise FileNotFoundError(f"dir {home} does not exist")
        train_dir = os.path.join(home, kwargs.pop("train_dir", self.default_train_dir))
        val_dir = os.path.join(home, kwargs.pop("val_dir", self.default_val_dir))
        self.devkit_dir = os.path.join(home, kwargs.pop("devkit_dir", self.default_devkit_dir))
        self.target_folder = train_dir if train else val_dir
        if not os.path.isdir(self.target_folder):
            logger.info("%s is not there; unpacking the archives of ImageNet", self.target_folder)
            self._prepare_devkit()
            self._prepare_train() if train else self._prepare_val()
        super().__init__(self.target_folder, **kwargs)

    def check_raw_file(self) -> bool:
        """Whether all three archives are there and whole."""
        return not any(self._problem(kind) for kind in self.raw_file_meta)

    def _problem(self, kind: str) -> Exception | None:
        path, md5 = self._archive(kind), self.raw_file_meta[kind][1]
        if not os.path.isfile(path):
            return FileNotFoundError(f"ImageNet: {path} is not there; get it from https://image-net.org.")
        got = calculate_md5(path)
        return None if got == md5 else RuntimeError(f"ImageNet: {path} is damaged; its MD5 sum is {got}, not {md5}.")

    @property
    def meta(self) -> tuple[dict[int, str], dict[str, tuple[str, ...]]]:
        """(WordNet id by the devkit's number, words by WordNet id) of the classes that have images."""
        path = os.path.join(self.devkit_dir, "data", "meta.mat")
        with open(path, "rb") as f:
            synsets = read_struct_array(f.read(), "synsets", path)
        numbers: dict[int, str] = {}
        words: dict[str, tuple[str, ...]] = {}
        for row in synsets:
            if int(row["num_children"].flat[0]) == 0:
                numbers[int(row["ILSVRC2012_ID"].flat[0])] = row["WNID"]
                words[row["WNID"]] = tuple(row["words"].split(", "))
        return numbers, words

    @property
    def valid_ground_truth(self) -> list[int]:
        """The devkit's number of the class of each validation image."""
        path = os.path.join(self.devkit_dir, "data", "ILSVRC2012_validation_ground_truth.txt")
        with open(path) as f:
            try:
                return [int(line) for line in f if line.strip()]
            except ValueError as e:
                raise ValueError(f"{path}: needs one number per line: {e}.") from None

    # Everything is unpacked beside its final place and renamed when whole: a run that is interrupted starts again.

    def _prepare_devkit(self) -> None:
        if not os.path.isdir(self.devkit_dir):
            part = self._part(self.devkit_dir)
            untargz(self._whole_archive("devkit"), part)
            os.rename(os.path.join(part, self.default_devkit_dir), self.devkit_dir)
            shutil.rmtree(part)

    def _prepare_train(self) -> None:
        part = self._part(self.target_folder)
        untar(self._whole_archive("train"), part)
        for inner in sorted(glob.glob(os.path.join(part, "*.tar"))):
            untar(inner, os.path.splitext(inner)[0], remove=True)
        os.rename(part, self.target_folder)

    def _prepare_val(self) -> None:
        part = self._part(self.target_folder)
        untar(self._whole_archive("val"), part)
        numbers = self.meta[0]
        images, truth = sorted(os.listdir(part)), self.valid_ground_truth
        if len(images) != len(truth):
            raise ValueError(f"ImageNet: {len(images)} validation images but the devkit has {len(truth)} labels.")
        for name in numbers.values():
            os.makedirs(os.path.join(part, name), exist_ok=True)
        for image, number in zip(images, truth):
            if number not in numbers:
                raise ValueError(f"ImageNet: {image} has class {number}, which meta.mat does not know.")
            os.rename(os.path.join(part, image), os.path.join(part, numbers[number], image))
        os.rename(part, self.target_folder)

    def _whole_archive(self, kind: str) -> str:
        problem = self._problem(kind)
        if problem is not None:
            raise problem
        return self._archive(kind)

    def _archive(self, kind: str) -> str:
        return os.path.join(self._home, self.raw_file_meta[kind][0])

    def _part(self, folder: str) -> str:
        part = folder + ".part"
        shutil.rmtree(part, ignore_errors=True)
        os.makedirs(part)
        return part
