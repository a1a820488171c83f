"""Files: downloading, checking, unpacking."""

from __future__ import annotations

import hashlib
import os
import tarfile
import urllib.parse
import urllib.request

from ....core.files import replacing
from ....logger import get_logger

__all__ = ["IMG_EXT", "calculate_md5", "is_img", "load_raw_data_from_url", "untar", "untargz"]

IMG_EXT = (".jpg", ".png", ".jpeg", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
_CHUNK = 1 << 20
_SECONDS_WITHOUT_DATA = 60

logger = get_logger(__name__)


def cache_folder(name: str) -> str:
    """Where a dataset is kept when no root is given."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(cache, "megengine", name)


def _default_dataset_root() -> str:
    """The folder of all datasets for which no root is given; programs with datasets of their own ask for it."""
    return os.path.dirname(cache_folder("MNIST"))


def calculate_md5(filename: str) -> str:
    """The MD5 sum of a file, in hexadecimal digits."""
    total = hashlib.md5(usedforsecurity=False)
    with open(filename, "rb") as f:
        while chunk := f.read(_CHUNK):
            total.update(chunk)
    return total.hexdigest()


def is_img(filename: str) -> bool:
    """Whether the name ends like an image's.

    >>> from megengine.data.dataset.vision.utils import is_img
    >>> is_img("cat.JPEG"), is_img("cat.txt")
    (True, False)
    """
    return filename.lower().endswith(IMG_EXT)


def load_raw_data_from_url(url: str, filename: str, target_md5: str, raw_data_dir: str) -> None:
    """Download ``url/filename`` into a folder, unless a file with that MD5 sum is there.

    A file that arrives damaged or only in part is not kept.
    """
    path = os.path.join(raw_data_dir, filename)
    if os.path.exists(path):
        if calculate_md5(path) == target_md5:
            logger.debug("%s exists with correct md5sum", path)
            return
        os.remove(path)
    os.makedirs(raw_data_dir, exist_ok=True)
    address = urllib.parse.urljoin(url, filename)
    logger.info("downloading %s to %s", address, path)
    total = hashlib.md5(usedforsecurity=False)
    try:
        with urllib.request.urlopen(address, timeout=_SECONDS_WITHOUT_DATA) as response, replacing(path) as out:
            while chunk := response.read(_CHUNK):
                total.update(chunk)
                out.write(chunk)
            got = total.hexdigest()
            if got != target_md5:
                raise RuntimeError(f"{address}: arrived damaged; its MD5 sum is {got}, not {target_md5}. Try again.")
    except OSError as e:
        raise RuntimeError(f"{address}: cannot be downloaded: {e}.") from e


def _unpack(path: str, mode: str, to: str | None, remove: bool) -> None:
    target = os.path.dirname(path) if to is None else to
    if not hasattr(tarfile, "data_filter"):
        raise RuntimeError(f"{path}: unpacking it safely needs Python 3.11.4 or newer.")
    try:
        with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
            archive.extractall(target, filter="data")  # refuses links and paths that lead out of the folder
    except (tarfile.TarError, EOFError, OSError) as e:
        raise RuntimeError(f"{path}: cannot be unpacked into {target or '.'}: {e}") from e
    if remove:
        os.remove(path)


def untar(path: str, to: str | None = None, remove: bool = False) -> None:
    """Unpack a tar file, beside itself by default."""
    _unpack(path, "r", to, remove)


def untargz(path: str, to: str | None = None, remove: bool = False) -> None:
    """Unpack a tar.gz file, beside itself by default."""
    _unpack(path, "r:gz", to, remove)
