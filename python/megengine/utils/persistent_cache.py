"""Key-value pairs that outlive the process: in memory or in a file that several processes share.

``python -m megengine.utils.persistent_cache clean`` removes the file.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from ..core.files import replacing
from ..logger import get_logger

logger = get_logger(__name__)

_MAGIC = b"MGEKV001"
_ENTRY = struct.Struct("<III")  # lengths of category, key and value

Entries = dict[tuple[str, bytes], bytes]


def _bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _encode(entries: Entries) -> bytes:
    body = b"".join(
        _ENTRY.pack(len(c.encode()), len(k), len(v)) + c.encode() + k + v for (c, k), v in sorted(entries.items())
    )
    return _MAGIC + struct.pack("<I", zlib.crc32(body)) + body


def _decode(data: bytes) -> Entries:
    head = len(_MAGIC) + 4
    body = data[head:]
    if data[: len(_MAGIC)] != _MAGIC or struct.unpack("<I", data[len(_MAGIC) : head])[0] != zlib.crc32(body):
        raise ValueError("not a cache file, or damaged")
    entries: Entries = {}
    at = 0
    while at < len(body):
        c, k, v = _ENTRY.unpack_from(body, at)
        at += _ENTRY.size
        entries[body[at : at + c].decode(), body[at + c : at + c + k]] = body[at + c + k : at + c + k + v]
        at += c + k + v
    return entries


class Config:
    """Where a cache keeps its entries: ``type`` is in-memory or in-file, ``args`` say where."""

    def __init__(self, type: str, args: dict[str, str]) -> None:
        self.type = type
        self.args = args

    def __repr__(self) -> str:
        return f"Config({self.type!r}, {self.args!r})"


class PersistentCacheOnServer:
    """A cache chosen by the environment when it is first used.

    ``MGE_FASTRUN_CACHE_TYPE`` is FILE (the default) or MEMORY, ``MGE_FASTRUN_CACHE_DIR`` the folder of the file.

    >>> import os
    >>> os.environ["MGE_FASTRUN_CACHE_TYPE"] = "MEMORY"
    >>> from megengine.utils.persistent_cache import PersistentCacheOnServer
    >>> cache = PersistentCacheOnServer()
    >>> cache.config is None
    True
    >>> cache.put("category", b"key", b"value")
    >>> cache.config.type
    'in-memory'
    >>> cache.get("category", b"key"), cache.get("category", b"other")
    (b'value', None)
    >>> del os.environ["MGE_FASTRUN_CACHE_TYPE"]
    """

    def __init__(self) -> None:
        self._entries: Entries = {}
        self._unsaved: Entries = {}
        self._config: Config | None = None

    @property
    def config(self) -> Config | None:
        """Where entries go; None before the first use."""
        return self._config

    def _ready(self) -> Config:
        if self._config is None:
            kind = os.environ.get("MGE_FASTRUN_CACHE_TYPE", "FILE").upper()
            if kind not in ("FILE", "MEMORY"):
                raise ValueError(f"MGE_FASTRUN_CACHE_TYPE must be FILE or MEMORY; got {kind!r}.")
            if self.get_redis_config() is not None:
                logger.warning("persistent cache: redis is not supported; MGE_FASTRUN_CACHE_URL is ignored")
            if kind == "MEMORY":
                self._config = Config("in-memory", {})
            else:
                path = self.get_cache_file(self.get_cache_dir())
                self._config = Config("in-file", {"path": path})
                with self.lock_cache_file(os.path.dirname(path)):
                    self._entries = self._read(path)
        return self._config

    @staticmethod
    def _read(path: str) -> Entries:
        try:
            with open(path, "rb") as f:
                return _decode(f.read())
        except FileNotFoundError:
            return {}
        except (ValueError, struct.error) as e:
            logger.warning("persistent cache: %s is ignored and written anew (%s)", path, e)
            return {}

    def get(self, category: str, key: bytes | str) -> bytes | None:
        """The value stored under (category, key), or None."""
        self._ready()
        return self._entries.get((category, _bytes(key)))

    def put(self, category: str, key: bytes | str, value: bytes | str) -> None:
        """Store a value; the file is written by ``flush`` and when the cache goes away."""
        self._ready()
        self._entries[category, _bytes(key)] = self._unsaved[category, _bytes(key)] = _bytes(value)

    def flush(self) -> None:
        """Write what was put since the last time, beside what other processes wrote."""
        if self._config is None or self._config.type != "in-file" or not self._unsaved:
            return
        path = self._config.args["path"]
        folder = os.path.dirname(path)
        with self.lock_cache_file(folder):
            self._entries = {**self._read(path), **self._entries}
            with replacing(path) as f:
                f.write(_encode(self._entries))
        self._unsaved = {}

    def clean(self) -> None:
        """Forget all entries and remove the file."""
        if self._ready().type == "in-file":
            path = self._config.args["path"]  # type: ignore[union-attr]
            with self.lock_cache_file(os.path.dirname(path)):
                if os.path.exists(path):
                    os.remove(path)
        self._entries, self._unsaved = {}, {}

    def get_cache_dir(self) -> str:
        """The folder of the file, made when it is missing."""
        folder = os.environ.get("MGE_FASTRUN_CACHE_DIR")
        if folder is None:
            from ..hub.hub import _get_megengine_home

            folder = str(_get_megengine_home() / "persistent_cache")
        folder = os.path.expanduser(folder)
        os.makedirs(folder, exist_ok=True)
        return folder

    def get_cache_file(self, cache_dir: str) -> str:
        """The file in a folder."""
        return os.path.join(cache_dir, "cache.bin")

    @contextmanager
    def lock_cache_file(self, cache_dir: str) -> Iterator[IO[Any]]:
        """Keep other processes away from the file for a block."""
        with open(os.path.join(cache_dir, "cache.lock"), "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield lock

    def get_redis_config(self) -> dict[str, str] | None:
        """What ``MGE_FASTRUN_CACHE_URL`` says, or None; redis servers are not supported."""
        url = os.environ.get("MGE_FASTRUN_CACHE_URL")
        return None if url is None else {"url": url}

    def __del__(self) -> None:
        try:
            self.flush()
        except Exception:  # the interpreter may be half gone
            pass


def main() -> None:
    """The command line: ``clean``."""
    parser = argparse.ArgumentParser(prog="python -m megengine.utils.persistent_cache", description=__doc__)
    parser.add_argument("action", choices=["clean"], help="clean: remove the cache file")
    parser.parse_args()
    PersistentCacheOnServer().clean()


if __name__ == "__main__":
    main()
