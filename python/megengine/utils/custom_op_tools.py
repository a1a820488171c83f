"""Compile custom operators: C++ that includes ``megbrain/custom/custom.h`` (docs/custom-ops.md).

    from megengine.core.ops import custom
    from megengine.utils import custom_op_tools
    custom_op_tools.build_and_load("scale", ["scale.cpp"])
    op = custom.Scale(scale=2.0)

A library is compiled again when a source or an argument has changed since it was last compiled; it then gets a new
version in its name, since a process cannot load a changed file under the name of a loaded one.
"""

from __future__ import annotations

import collections
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import time
from collections.abc import Sequence

from ..core.files import replacing
from ..core.ops import custom
from ..logger import get_logger

__all__ = [
    "Entry",
    "FileBaton",
    "Versioner",
    "build",
    "build_and_load",
    "custom_op_versioner",
    "hash_build_args",
    "hash_source_files",
    "update_hash",
    "version_check",
]

_logger = get_logger(__name__)
_CUDA = (".cu", ".cuh")

Entry = collections.namedtuple("Entry", ["version", "hash"])


def update_hash(seed: int, value: object) -> int:
    """A number that differs when ``seed`` or ``value`` does; the same in every process.

    >>> from megengine.utils.custom_op_tools import update_hash
    >>> update_hash(0, "a") == update_hash(0, "a") != update_hash(0, "b")
    True
    """
    digest = hashlib.sha256(f"{seed}\0{value!r}".encode()).digest()
    return int.from_bytes(digest[:8], "little")


def hash_source_files(hash_value: int, source_files: Sequence[str]) -> int:
    """The same over the contents of files."""
    for name in source_files:
        hash_value = update_hash(hash_value, pathlib.Path(name).read_bytes())
    return hash_value


def hash_build_args(hash_value: int, build_args: Sequence[Sequence[str]]) -> int:
    """The same over lists of arguments."""
    for group in build_args:
        for arg in group or ():
            hash_value = update_hash(hash_value, arg)
    return hash_value


class Versioner:
    """The versions of the libraries that this process has compiled, by name."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}

    def get_version(self, name: str) -> int | None:
        """The version; None for a name that was not compiled."""
        entry = self.entries.get(name)
        return None if entry is None else entry.version

    def bump_version_if_changed(
        self,
        name: str,
        sources: Sequence[str],
        build_args: Sequence[Sequence[str]],
        build_dir: str | os.PathLike[str],
        with_cuda: bool,
        with_cudnn: bool,
        abi_tag: int,
    ) -> int:
        """The version that this input has: the last one, or one more when something has changed."""
        value = hash_source_files(0, sources)
        value = hash_build_args(value, build_args)
        for part in (os.fspath(build_dir), with_cuda, with_cudnn, abi_tag):
            value = update_hash(value, part)
        entry = self.entries.get(name)
        if entry is None:
            self.entries[name] = entry = Entry(0, value)
        elif entry.hash != value:
            self.entries[name] = entry = Entry(entry.version + 1, value)
        return int(entry.version)


custom_op_versioner = Versioner()


def version_check(
    name: str,
    sources: Sequence[str],
    build_args: Sequence[Sequence[str]],
    build_dir: str | os.PathLike[str],
    with_cuda: bool,
    with_cudnn: bool,
    abi_tag: int,
) -> tuple[int, bool]:
    """The version of this input, and whether it has to be compiled."""
    old = custom_op_versioner.get_version(name)
    version = custom_op_versioner.bump_version_if_changed(
        name, sources, build_args, build_dir, with_cuda, with_cudnn, abi_tag
    )
    if version > 0 and version != old:
        _logger.info("%s has changed; compiled as version %d", name, version)
    return version, version != old


class FileBaton:
    """A lock between processes: a file that only one can make.

    >>> import tempfile
    >>> from megengine.utils.custom_op_tools import FileBaton
    >>> baton = FileBaton(tempfile.mktemp())
    >>> baton.try_acquire(), baton.try_acquire()
    (True, False)
    >>> baton.release()
    """

    def __init__(self, lock_file_path: str | os.PathLike[str], wait_seconds: float = 0.1) -> None:
        self.lock_file_path = lock_file_path
        self.wait_seconds = wait_seconds
        self._fd: int | None = None

    def try_acquire(self) -> bool:
        """Take the lock if it is free. A lock whose process is gone is free."""
        for _ in range(2):
            try:
                self._fd = os.open(self.lock_file_path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            except FileExistsError:
                if not self._abandoned():
                    return False
                try:
                    os.remove(self.lock_file_path)
                except FileNotFoundError:
                    pass
            else:
                os.write(self._fd, str(os.getpid()).encode())
                return True
        return False

    def _abandoned(self) -> bool:
        try:
            owner = int(pathlib.Path(self.lock_file_path).read_text() or 0)
            if owner:
                os.kill(owner, 0)
        except ProcessLookupError:
            return True
        except (OSError, ValueError):
            pass
        return False

    def wait(self) -> None:
        """Until the lock is free."""
        while os.path.exists(self.lock_file_path) and not self._abandoned():
            time.sleep(self.wait_seconds)

    def release(self) -> None:
        """Give the lock back."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
            os.remove(self.lock_file_path)


def _include_dir() -> str:
    """Where megbrain/custom/custom.h is: in the package, or beside it in a source tree."""
    package = pathlib.Path(__file__).resolve().parents[1]
    for folder in (package / "core" / "include", package.parents[1] / "include"):
        if (folder / "megbrain" / "custom" / "custom.h").is_file():
            return str(folder)
    raise RuntimeError(f"custom_op_tools: megbrain/custom/custom.h is not beside {package}; install the package again.")


def _build_dir(name: str, given: str | os.PathLike[str] | None) -> pathlib.Path:
    if given is not None:
        folder = pathlib.Path(given)
    elif root := os.environ.get("MGE_CUSTOM_OP_DIR"):
        folder = pathlib.Path(root) / name
    else:
        folder = pathlib.Path.home() / ".cache" / "mge_custom_op" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def _compiler() -> str:
    named = os.environ.get("CXX", "c++")
    if shutil.which(named) is None:
        raise RuntimeError(f"custom_op_tools: there is no C++ compiler {named!r}. Install one, or name it in CXX.")
    return named


def _checked_sources(name: str, sources: Sequence[str], with_cuda: bool | None) -> list[str]:
    if isinstance(sources, (str, os.PathLike)):
        raise TypeError(f"build: sources is a list of files; got {sources!r}. Write [{os.fspath(sources)!r}].")
    found = [os.path.abspath(s) for s in sources]
    if not found:
        raise ValueError(f"build: {name!r} has no sources.")
    for path in found:
        if not os.path.isfile(path):
            raise FileNotFoundError(f"build: there is no source {path!r}.")
    cuda = [s for s in found if s.endswith(_CUDA)]
    if with_cuda or (with_cuda is None and cuda):
        shown = f" ({', '.join(map(os.path.basename, cuda))})" if cuda else ""
        raise NotImplementedError(
            f"build: {name!r} asks for CUDA{shown}; there are no CUDA devices here. Write the operator for 'x86'."
        )
    if cuda:
        raise ValueError(f"build: with_cuda=False, but {os.path.basename(cuda[0])} is a CUDA source.")
    return found


def _run(command: list[str], name: str, verbose: bool) -> None:
    if verbose:
        print(" ".join(command))
    done = subprocess.run(command, capture_output=True, text=True)
    if verbose and done.stderr:
        print(done.stderr)
    if done.returncode:
        raise RuntimeError(f"build: {name!r} does not compile.\n{' '.join(command)}\n{done.stderr.strip()}")


def build(
    name: str,
    sources: Sequence[str],
    extra_cflags: Sequence[str] = [],
    extra_cuda_cflags: Sequence[str] = [],
    extra_ldflags: Sequence[str] = [],
    extra_include_paths: Sequence[str] = [],
    with_cuda: bool | None = None,
    build_dir: str | os.PathLike[str] | None = None,
    verbose: bool = False,
    abi_tag: int | None = None,
) -> str:
    """Compile a library of custom operators; gives its path.

    Args:
        name: of the library; the file is ``<name>_v<version>.so``.
        sources: C++ files.
        extra_cflags: more arguments for the compiler (``CXX``, or c++).
        extra_cuda_cflags: arguments for nvcc; there is nothing to compile with it here, so they must be empty.
        extra_ldflags: more arguments for the linker.
        extra_include_paths: folders with headers.
        with_cuda: True is refused: there are no CUDA devices.
        build_dir: where the files go; ``$MGE_CUSTOM_OP_DIR/<name>`` or ``~/.cache/mge_custom_op/<name>`` when None.
        verbose: print what the compiler is called with and says.
        abi_tag: the ``_GLIBCXX_USE_CXX11_ABI`` to compile with. Any will do: a library shares no types with the engine.
    """
    if not name or not isinstance(name, str) or "/" in name:
        raise ValueError(f"build: a name for the library is needed, without '/'; got {name!r}.")
    files = _checked_sources(name, sources, with_cuda)
    if extra_cuda_cflags:
        raise NotImplementedError(
            f"build: extra_cuda_cflags={list(extra_cuda_cflags)} are for nvcc, which has no work."
        )
    tag = custom.get_custom_op_abi_tag() if abi_tag is None else int(abi_tag)
    folder, compiler = _build_dir(name, build_dir), _compiler()
    baton = FileBaton(folder / "lock")
    while not baton.try_acquire():
        baton.wait()
    try:
        args = [list(extra_cflags), list(extra_ldflags), [os.path.abspath(p) for p in extra_include_paths], [compiler]]
        version, changed = version_check(name, files, args, folder, False, False, tag)
        target = folder / f"{name}_v{version}.so"
        entry = custom_op_versioner.entries[name]
        note = folder / f"{name}_v{version}.json"
        if not changed and target.is_file():
            return str(target)
        if target.is_file() and note.is_file() and json.loads(note.read_text()).get("hash") == entry.hash:
            return str(target)  # compiled by another process from the same input
        flags = ["-std=c++14", "-O2", "-fPIC", "-shared", "-fno-gnu-unique", f"-D_GLIBCXX_USE_CXX11_ABI={tag}"]
        folders = [f"-I{_include_dir()}", *(f"-I{p}" for p in args[2])]
        made = folder / f".{name}_v{version}.{os.getpid()}.so"
        _run([compiler, *flags, *folders, *extra_cflags, *files, "-o", str(made), *extra_ldflags], name, verbose)
        os.replace(made, target)
        with replacing(note) as f:
            f.write(json.dumps({"hash": entry.hash, "sources": files}).encode())
        return str(target)
    finally:
        baton.release()


def build_and_load(
    name: str,
    sources: Sequence[str],
    extra_cflags: Sequence[str] = [],
    extra_cuda_cflags: Sequence[str] = [],
    extra_ldflags: Sequence[str] = [],
    extra_include_paths: Sequence[str] = [],
    with_cuda: bool | None = None,
    build_dir: str | os.PathLike[str] | None = None,
    verbose: bool = False,
    abi_tag: int | None = None,
) -> str:
    """Compile a library and load it into ``megengine.core.ops.custom``; gives its path.

    A version of it that was loaded before is unloaded first.
    """
    path = build(
        name,
        sources,
        extra_cflags,
        extra_cuda_cflags,
        extra_ldflags,
        extra_include_paths,
        with_cuda,
        build_dir,
        verbose,
        abi_tag,
    )
    prefix = os.path.join(os.path.dirname(path), f"{name}_v")
    for old in custom._get_custom_op_lib_info():
        if old != path and old.startswith(prefix):
            custom.unload(old)
    custom.load(path)
    return path
