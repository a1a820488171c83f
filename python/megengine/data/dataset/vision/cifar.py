"""CIFAR-10 and CIFAR-100: small photographs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...._pickle import Machine, build, find_arrays
from .meta_vision import VisionDataset
from .utils import cache_folder, load_raw_data_from_url, untargz

__all__ = ["CIFAR10", "CIFAR100"]

Array = np.ndarray[Any, Any]


class CIFAR10(VisionDataset):
    """Samples ``(image uint8 [32, 32, 3] in BGR, label int32)``.

    Args:
        root: the folder that has, or gets, the archive or the unpacked folder; by default one in the user's cache.
        train: the 50,000 images to train with, otherwise the 10,000 to test with.
        download: fetch what is missing.
        timeout: kept for compatibility; a download is given up after 60 s without data.

    The files are pickles. They are read without running what they name: arrays and plain containers only.
    """

    url_path = "http://www.cs.utoronto.ca/~kriz/"
    raw_file_name = "cifar-10-python.tar.gz"
    raw_file_md5 = "c58f30108f718f92721af3b95e74349a"
    raw_file_dir = "cifar-10-batches-py"
    train_batch = ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"]
    test_batch = ["test_batch"]
    meta_info = {"name": "batches.meta"}

    _label_keys: tuple[bytes, ...] = (b"labels",)
    _cache_name = "CIFAR10"

    def __init__(self, root: str | None = None, train: bool = True, download: bool = True, timeout: int = 500) -> None:
        super().__init__(cache_folder(self._cache_name) if root is None else root, order=("image", "image_category"))
        self.timeout = timeout
        self.train = train
        self.target_file = os.path.join(self.root, self.raw_file_dir)
        if not os.path.isdir(self.target_file):
            archive = os.path.join(self.root, self.raw_file_name)
            if download:
                self.download()
            elif os.path.isfile(archive):
                self.untar(archive, self.root)
            else:
                raise ValueError(f"dir does not contain target file {self.target_file}, please set download=True")
        self._meta_data: dict[str, Any] = {}
        self.process()

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(column[index] for column in self.arrays)

    def __len__(self) -> int:
        return len(self.arrays[0])

    @property
    def meta(self) -> dict[str, Any]:
        """What the file of names says."""
        return self._meta_data

    def download(self) -> None:
        """Fetch and unpack the archive."""
        load_raw_data_from_url(self.url_path, self.raw_file_name, self.raw_file_md5, self.root)
        self.untar(os.path.join(self.root, self.raw_file_name), self.root)

    def untar(self, file_path: str, dirs: str) -> None:
        """Unpack an archive into a folder."""
        assert file_path.endswith(".tar.gz"), f"needs a .tar.gz file; got {file_path}"
        untargz(file_path, dirs)

    def bytes2array(self, filenames: Sequence[str]) -> tuple[Array, ...]:
        """Images and labels of these files, one after the other."""
        columns: list[list[Any]] = [[] for _ in range(1 + len(self._label_keys))]
        for name in filenames:
            path = os.path.join(self.target_file, name)
            content = _unpickle(path)
            pixels = _entry(content, b"data", path)
            labels = [_entry(content, key, path) for key in self._label_keys]
            if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (3072,):
                raise ValueError(f"{path}: data must be uint8 [N, 3072]; got {_shape_of(pixels)}.")
            for key, one in zip(self._label_keys, labels):
                if len(one) != len(pixels):
                    raise ValueError(f"{path}: {len(pixels)} images but {len(one)} {key.decode()}.")
            planes = pixels.reshape(-1, 3, 32, 32)[:, ::-1]  # red, green, blue planes to BGR
            for column, values in zip(columns, (planes.transpose(0, 2, 3, 1), *labels)):
                column.append(np.asarray(values))
        return tuple(
            np.ascontiguousarray(np.concatenate(c)).astype(np.uint8 if i == 0 else np.int32)
            for i, c in enumerate(columns)
        )

    def process(self) -> None:
        """Read the files of one half, and the names."""
        self.arrays = self.bytes2array(self.train_batch if self.train else self.test_batch)
        content = _unpickle(os.path.join(self.target_file, self.meta_info["name"]))
        self._meta_data = {_text(key): _text(value) for key, value in content.items()}


class CIFAR100(CIFAR10):
    """Samples ``(image uint8 [32, 32, 3] in BGR, fine label int32, coarse label int32)``; see ``CIFAR10``."""

    url_path = "http://www.cs.utoronto.ca/~kriz/"
    raw_file_name = "cifar-100-python.tar.gz"
    raw_file_md5 = "eb9058c3a382ffc7106e4002c42a8d85"
    raw_file_dir = "cifar-100-python"
    train_batch = ["train"]
    test_batch = ["test"]
    meta_info = {"name": "meta"}

    _label_keys = (b"fine_labels", b"coarse_labels")
    _cache_name = "CIFAR100"

    @property
    def meta(self) -> dict[str, Any]:
        """What the file of names says."""
        return self._meta_data


def _unpickle(path: str) -> dict[Any, Any]:
    try:
        with open(path, "rb") as f:
            content = Machine(f, find_arrays, build, encoding="bytes").load()
    except FileNotFoundError:
        raise ValueError(f"{path}: is not there; remove its folder and set download=True to fetch it anew.") from None
    except Exception as e:  # a damaged pickle can fail in any way
        raise ValueError(f"{path}: not a CIFAR file, or damaged: {e}") from e
    if not isinstance(content, dict):
        raise ValueError(f"{path}: not a CIFAR file; it holds a {type(content).__name__}, not a dict.")
    return content


def _entry(content: dict[Any, Any], key: bytes, path: str) -> Any:
    if key not in content and key.decode() not in content:
        raise ValueError(f"{path}: has no {key.decode()!r}; its keys are {sorted(map(_text, content))}.")
    return content[key] if key in content else content[key.decode()]


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return [_text(v) for v in value] if isinstance(value, list) else value


def _shape_of(value: Any) -> str:
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
