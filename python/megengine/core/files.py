"""The one way this package writes a file: the old one stays until the new one is complete.

The work is done by ``src/base/write_file.h``, which C++ uses as well.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from . import _core

__all__ = ["append", "replacing"]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that takes the place of ``path`` at the end of the block, unless an exception ends it.

    Links are followed and the mode of an old file is kept; pipes and devices are written as they are. Whoever has the
    old file open or mapped keeps it.

    >>> import pathlib, tempfile
    >>> from megengine.core.files import replacing
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a")
    >>> with replacing(path) as f:
    ...     _ = f.write(b"new")
    >>> path.read_bytes()
    b'new'
    """
    writer = _core.FileWriter(os.fsencode(path))
    try:
        with os.fdopen(os.dup(writer.fd), "wb") as out:
            yield out
        writer.commit()
    except OSError as e:
        if e.filename is None and e.errno in _FULL:  # the file's own errors know no name
            writer.fail(e.errno)
        raise
    finally:
        writer.discard()  # nothing is left of one that was committed


def append(path: Path, data: bytes) -> None:
    """Add to a file, which is made when it is missing."""
    _core.append_file(os.fsencode(path), data)
