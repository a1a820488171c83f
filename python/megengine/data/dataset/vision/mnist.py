"""MNIST: handwritten digits."""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from typing import Any

import numpy as np

from .meta_vision import VisionDataset
from .utils import cache_folder, load_raw_data_from_url

__all__ = ["MNIST"]

Array = np.ndarray[Any, Any]


class MNIST(VisionDataset):
    """Samples ``(image uint8 [28, 28, 1], label int32)``.

    Args:
        root: the folder with the four ``.gz`` files; by default one in the user's cache.
        train: the 60,000 images to train with, otherwise the 10,000 to test with.
        download: fetch what is missing.
    """

    url_path = "https://ossci-datasets.s3.amazonaws.com/mnist/"
    raw_file_name = [
        "train-images-idx3-ubyte.gz",
        "train-labels-idx1-ubyte.gz",
        "t10k-images-idx3-ubyte.gz",
        "t10k-labels-idx1-ubyte.gz",
    ]
    raw_file_md5 = [
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "9fb629c4189551a2d022fa330f9573f3",
        "ec29112dd5afa0611ce80d1b7f02629c",
    ]

    def __init__(self, root: str | None = None, train: bool = True, download: bool = True) -> None:
        super().__init__(cache_folder("MNIST") if root is None else root, order=("image", "image_category"))
        if download:
            self.download()
        elif not os.path.isdir(self.root):
            raise ValueError(f"MNIST: dir {self.root} does not exist. download=True makes it and fetches the files.")
        self.train = train
        self._meta_data: dict[str, Any] = {}
        self.process(train)

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return self.images[index], self.labels[index]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def meta(self) -> dict[str, Any]:
        """What the headers of the files say."""
        return self._meta_data

    def download(self) -> None:
        """Fetch the files that are missing or damaged."""
        for name, md5 in zip(self.raw_file_name, self.raw_file_md5):
            load_raw_data_from_url(self.url_path, name, md5, self.root)

    def process(self, train: bool) -> None:
        """Read the files of one half."""
        images, labels = self.raw_file_name[:2] if train else self.raw_file_name[2:]
        about_images, self.images = parse_idx3(os.path.join(self.root, images))
        about_labels, self.labels = parse_idx1(os.path.join(self.root, labels))
        self._meta_data = {"images": about_images, "labels": about_labels}
        if len(self.images) != len(self.labels):
            raise ValueError(
                f"MNIST: {self.root} has {len(self.images)} images ({images}) but {len(self.labels)} labels ({labels})."
            )


def _read_idx(path: str, magic: int, names: tuple[str, ...]) -> tuple[dict[str, int], Array]:
    """Header and bytes of an IDX file: magic number, one size per axis (all big-endian), then the values."""
    try:
        with gzip.open(path, "rb") as f:
            data = f.read()
    except FileNotFoundError:
        raise ValueError(f"{path}: is not there; set download=True to fetch it.") from None
    except (OSError, EOFError, zlib.error) as e:
        raise ValueError(f"{path}: cannot be unpacked, the file is damaged: {e}.") from e
    head = struct.Struct(f">{1 + len(names)}I")
    if len(data) < head.size:
        raise ValueError(f"{path}: too short for an IDX file; {len(data)} bytes.")
    got, *sizes = head.unpack_from(data)
    if got != magic:
        raise ValueError(f"{path}: not the IDX file it should be; the magic number is {got}, not {magic}.")
    wanted = int(np.prod(sizes, dtype=object))
    if len(data) - head.size != wanted:
        raise ValueError(
            f"{path}: the header promises {wanted} bytes {tuple(sizes)}, {len(data) - head.size} are there."
        )
    values = np.frombuffer(data, np.uint8, offset=head.size).reshape(sizes)
    return dict(zip(("magic", *names), (got, *sizes))), values


def parse_idx3(idx3_file: str) -> tuple[dict[str, int], Array]:
    """(header, images uint8 [N, height, width, 1]) of a gzipped IDX file of images."""
    meta, images = _read_idx(idx3_file, 2051, ("imgs", "height", "width"))
    return meta, images[..., np.newaxis].copy()


def parse_idx1(idx1_file: str) -> tuple[dict[str, int], Array]:
    """(header, labels int32 [N]) of a gzipped IDX file of labels."""
    meta, labels = _read_idx(idx1_file, 2049, ("imgs",))
    return meta, labels.astype(np.int32)
