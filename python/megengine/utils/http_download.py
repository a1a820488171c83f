"""Downloading files."""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlparse

from ..core.files import replacing
from ..logger import get_logger

CHUNK_SIZE = 1024
HTTP_CONNECTION_TIMEOUT = 5

logger = get_logger(__name__)


class HTTPDownloadError(BaseException):
    """A download failed. Derives from BaseException, as in MegEngine."""


def download_from_url(url: str, dst: str) -> str:
    """Copy what a URL names to the file ``dst`` and return its MD5.

    Args:
        url: http, https or file; a path without a scheme is a local file.
        dst: the file to write; nothing is left there when the download fails.

    >>> import tempfile, pathlib
    >>> source = pathlib.Path(tempfile.mkdtemp(), "a")
    >>> _ = source.write_bytes(b"abc")
    >>> from megengine.utils.http_download import download_from_url
    >>> download_from_url(source.as_uri(), str(source) + ".copy")
    '900150983cd24fb0d6963f7d28e17f72'
    """
    scheme = urlparse(url).scheme
    if scheme not in ("", "http", "https", "file"):
        raise HTTPDownloadError(f"download_from_url: scheme must be http, https or file; got {url!r}.")
    dst = os.path.expanduser(dst)
    digest = hashlib.md5(usedforsecurity=False)
    got, want = 0, None
    try:
        opened: Any = open(url, "rb") if scheme == "" else urllib.request.urlopen(url, timeout=HTTP_CONNECTION_TIMEOUT)
        with opened as source, replacing(dst) as out:
            while block := source.read(1 << 20):
                got += len(block)
                digest.update(block)
                out.write(block)
            if scheme != "":
                want = source.headers.get("Content-Length")
            if want is not None and got != int(want):
                raise HTTPDownloadError(f"{url} ended after {got} of {want} bytes.")
    except (OSError, urllib.error.URLError) as e:
        raise HTTPDownloadError(f"{url}: {getattr(e, 'reason', None) or e}") from None
    return digest.hexdigest()
