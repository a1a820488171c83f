"""Importing a module from a file, looking for modules, hashing what was fetched, changing the folder for a while."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from .exceptions import FetcherError


def load_module(name: str, path: str) -> ModuleType:
    """Import the file at ``path`` as a module called ``name``, without adding it to ``sys.modules``."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"hub: cannot import {path!r}; it is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_module_exists(module: str) -> bool:
    """Whether ``import module`` would find something.

    >>> from megengine.hub.tools import check_module_exists
    >>> check_module_exists("json"), check_module_exists("no_such_module")
    (True, False)
    """
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the parent of a dotted name
        return False


def sha256_of(path: str) -> str:
    """The SHA-256 of a file, or of a folder: of the names and contents of all files in it.

    Parts of a folder that are not its content are left out: ``.git`` and ``__pycache__``.

    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "hubconf.py").write_text("x = 1")
    >>> from megengine.hub.tools import sha256_of
    >>> sha256_of(str(folder))[:12], sha256_of(str(folder / "hubconf.py"))[:12]
    ('9441c4b896c5', '8ff436def145')
    """
    digest = hashlib.sha256()
    if not os.path.isdir(path):
        with open(path, "rb") as f:
            while block := f.read(1 << 20):
                digest.update(block)
        return digest.hexdigest()
    for place, folders, names in os.walk(path):
        names += [f for f in folders if os.path.islink(os.path.join(place, f))]
        folders[:] = sorted(f for f in folders if f not in (".git", "__pycache__"))
        for name in sorted(names):
            full = os.path.join(place, name)
            what = f"link {os.readlink(full)}" if os.path.islink(full) else sha256_of(full)
            digest.update(f"{os.path.relpath(full, path)}\0{what}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def check_sha256(path: str, want: str | None, what: str) -> None:
    """Raises unless a file or folder has the hash that it should have."""
    if want is None:
        return
    if not re.fullmatch(r"[0-9a-fA-F]{64}", want):
        raise ValueError(f"hub: sha256 takes 64 hexadecimal digits; got {want!r}.")
    got = sha256_of(path)
    if got != want.lower():
        raise FetcherError(
            f"hub: {what} is not what was asked for: its sha256 is {got}, not {want.lower()}. Remove {path!r} to fetch "
            "it anew, and ask its author which hash is right."
        )


@contextmanager
def cd(target: str) -> Iterator[None]:
    """Work in another folder for the length of a block."""
    before = os.getcwd()
    os.chdir(target)
    try:
        yield
    finally:
        os.chdir(before)
