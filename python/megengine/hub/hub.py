"""Models from other people's repositories: a ``hubconf.py`` at the top of a repository names its entry points.

A repository is ``"owner/name"`` or ``"owner/name:branch"`` on a git server, or the path of a folder: one that starts
with ``/``, ``./``, ``../`` or ``~``. Importing a ``hubconf.py`` runs its code, so use repositories that you trust, and
name what you trust: a commit, and ``sha256``, the hash of everything in the repository (``hub.tools.sha256_of`` gives
it), which is checked before anything is run. Modules of a repository are found by that repository only.
"""

from __future__ import annotations

import builtins
import functools
import hashlib
import os
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from ..serialization import load as _load_object
from ..utils.http_download import HTTPDownloadError, download_from_url
from .const import (
    DEFAULT_CACHE_DIR,
    DEFAULT_GIT_HOST,
    DEFAULT_PROTOCOL,
    ENV_MGE_HOME,
    ENV_XDG_CACHE_HOME,
    HUBCONF,
    HUBDEPENDENCY,
)
from .exceptions import FetcherError, InvalidProtocol, InvalidRepo
from .fetcher import GitHTTPSFetcher, GitSSHFetcher, RepoFetcherBase
from .isolate import repository
from .tools import check_module_exists, check_sha256

__all__ = ["help", "import_module", "list", "load", "load_serialized_obj_from_url", "pretrained"]

PROTOCOLS: dict[str, type[RepoFetcherBase]] = {"HTTPS": GitHTTPSFetcher, "SSH": GitSSHFetcher}


def _get_megengine_home() -> Path:
    """``$MGE_HOME``, else ``megengine`` in the user's cache folder."""
    cache = os.environ.get(ENV_XDG_CACHE_HOME, DEFAULT_CACHE_DIR)
    return Path(os.environ.get(ENV_MGE_HOME, os.path.join(cache, "megengine"))).expanduser()


def _hub_dir() -> Path:
    return _get_megengine_home() / "hub"


def _is_local(repo_info: str) -> bool:
    return repo_info.startswith(("/", "./", "../", "~")) or repo_info in (".", "..")


def _get_repo(repo_info: str, git_host: str, use_cache: bool, commit: str | None, protocol: str) -> str:
    if _is_local(repo_info):
        folder = os.path.abspath(os.path.expanduser(repo_info))
        if not os.path.isdir(folder):
            raise InvalidRepo(f"hub: there is no folder {folder!r}.")
        return folder
    if protocol not in PROTOCOLS:
        raise InvalidProtocol(f"hub: protocol must be one of {', '.join(PROTOCOLS)}; got {protocol!r}.")
    return PROTOCOLS[protocol].fetch(git_host, repo_info, use_cache, commit, silent=False)


def import_module(
    repo_info: str,
    git_host: str = DEFAULT_GIT_HOST,
    use_cache: bool = True,
    commit: str | None = None,
    protocol: str = DEFAULT_PROTOCOL,
    sha256: str | None = None,
) -> types.ModuleType:
    """Import a repository's ``hubconf.py`` as a module.

    Args:
        repo_info: ``owner/name``, ``owner/name:branch-or-tag``, or the path of a folder.
        git_host: the server.
        use_cache: take the copy of an earlier call when there is one.
        commit: a commit instead of a branch or tag.
        protocol: ``"HTTPS"`` downloads an archive, ``"SSH"`` clones with git.
        sha256: of the repository's content; another one is an error, and nothing is run.
    """
    folder = _get_repo(repo_info, git_host, use_cache, commit, protocol)
    conf = os.path.join(folder, HUBCONF)
    if not os.path.isfile(conf):
        raise InvalidRepo(f"hub: {repo_info!r} has no {HUBCONF} at its top, so it names no models.")
    check_sha256(folder, sha256, repr(repo_info))
    module = repository(folder, fresh=not use_cache).run_file(HUBCONF, conf)
    missing = [m for m in getattr(module, HUBDEPENDENCY, []) if not check_module_exists(m)]
    if missing:
        raise RuntimeError(f"hub: {repo_info!r} needs missing modules: {', '.join(missing)}. Install them with pip.")
    return module


def _entries(module: types.ModuleType) -> builtins.list[str]:
    return [n for n, v in sorted(vars(module).items()) if callable(v) and not n.startswith("_")]


def _entry(module: types.ModuleType, repo_info: str, name: str) -> Callable[..., Any]:
    if name not in _entries(module):
        raise RuntimeError(f"hub: {repo_info!r} has no entry {name!r}; it has {', '.join(_entries(module)) or 'none'}.")
    found: Callable[..., Any] = getattr(module, name)
    return found


def list(
    repo_info: str,
    git_host: str = DEFAULT_GIT_HOST,
    use_cache: bool = True,
    commit: str | None = None,
    protocol: str = DEFAULT_PROTOCOL,
    sha256: str | None = None,
) -> builtins.list[str]:
    """The entry points of a repository: functions and classes of its ``hubconf.py`` without a leading underscore.

    Arguments as for ``import_module``.
    """
    return _entries(import_module(repo_info, git_host, use_cache, commit, protocol, sha256))


def load(
    repo_info: str,
    entry: str,
    *args: Any,
    git_host: str = DEFAULT_GIT_HOST,
    use_cache: bool = True,
    commit: str | None = None,
    protocol: str = DEFAULT_PROTOCOL,
    sha256: str | None = None,
    **kwargs: Any,
) -> Any:
    """Call an entry point of a repository, which usually makes a model.

    Args:
        repo_info: ``owner/name``, ``owner/name:branch-or-tag``, or the path of a folder.
        entry: a name of ``list``.
        args: passed on to the entry point, as are other keyword arguments.
        git_host: the server.
        use_cache: take the copy of an earlier call when there is one.
        commit: a commit instead of a branch or tag.
        protocol: ``"HTTPS"`` or ``"SSH"``.
        sha256: of the repository's content; another one is an error, and nothing is run.
        kwargs: see ``args``.

    >>> import tempfile, pathlib
    >>> folder = tempfile.mkdtemp()
    >>> _ = pathlib.Path(folder, "hubconf.py").write_text(
    ...     "import megengine.module as M\\ndef mlp(width=4):\\n    return M.Linear(2, width)\\n")
    >>> mge.hub.load(folder, "mlp", width=3)
    Linear(in_features=2, out_features=3, bias=True)
    """
    module = import_module(repo_info, git_host, use_cache, commit, protocol, sha256)
    return _entry(module, repo_info, entry)(*args, **kwargs)


def help(
    repo_info: str,
    entry: str,
    git_host: str = DEFAULT_GIT_HOST,
    use_cache: bool = True,
    commit: str | None = None,
    protocol: str = DEFAULT_PROTOCOL,
    sha256: str | None = None,
) -> str | None:
    """The docstring of an entry point; arguments as for ``load``."""
    return _entry(import_module(repo_info, git_host, use_cache, commit, protocol, sha256), repo_info, entry).__doc__


def load_serialized_obj_from_url(url: str, model_dir: str | None = None, sha256: str | None = None) -> Any:
    """Download a file written by ``megengine.save``, once, and load it.

    Args:
        url: http, https or file.
        model_dir: where downloads are kept; None is ``serialized`` in ``$MGE_HOME``.
        sha256: of the file; another one is an error, and a download of it is not kept.

    The file is read by the safe loader, ``megengine.load``.
    """
    folder = Path(model_dir) if model_dir is not None else _get_megengine_home() / "serialized"
    folder.mkdir(parents=True, exist_ok=True)
    name = os.path.basename(urlparse(url).path) or "object"
    cached = folder / f"{hashlib.sha256(url.encode()).hexdigest()[:6]}_{name}"
    fresh = not cached.exists()
    if fresh:
        try:
            download_from_url(url, str(cached))  # a broken download never looks like a cached file
        except HTTPDownloadError as e:
            raise FetcherError(
                f"hub: could not download {url} ({e}). Check the network; offline, put the file at {str(cached)!r}."
            ) from None
    try:
        check_sha256(str(cached), sha256, url)
    except BaseException:
        if fresh:
            os.remove(cached)
        raise
    return _load_object(str(cached))


class pretrained:
    """Decorator of entry points: adds a first parameter ``pretrained`` that loads a state dict from ``url``.

    >>> from megengine import hub
    >>> @hub.pretrained(url="https://example.com/linear.pkl")
    ... def linear(width=4):
    ...     return M.Linear(2, width)
    >>> linear(width=3)
    Linear(in_features=2, out_features=3, bias=True)

    Args:
        url: of a file written by ``megengine.save``.
        sha256: of that file.
    """

    def __init__(self, url: str, sha256: str | None = None) -> None:
        self.url = url
        self.sha256 = sha256

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def make(pretrained: bool = False, **kwargs: Any) -> Any:
            model = func(**kwargs)
            if pretrained:
                model.load_state_dict(load_serialized_obj_from_url(self.url, sha256=self.sha256))
            return model

        return make
