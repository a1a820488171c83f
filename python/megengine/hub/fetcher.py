"""Fetching repositories into the cache folder: archives over HTTPS, clones over SSH."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path

from ..logger import get_logger
from ..utils.http_download import HTTPDownloadError, download_from_url
from ..version import __version__
from .const import DEFAULT_BRANCH_NAME
from .exceptions import FetcherError, GitCheckoutError, GitPullError, InvalidGitHost, InvalidRepo

logger = get_logger(__name__)

_HOST_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")
# What may stand in a command line or an address; a leading dash would be read as an option.
_PART = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*")


def _is_ref(text: str) -> bool:
    """Whether git could call a branch, tag or commit so, and an address with it leads nowhere else."""
    return all(_PART.fullmatch(p) and p.strip(".") and ".." not in p for p in text.split("/"))


class RepoFetcherBase:
    """Names of repositories, and the folders they go to."""

    @classmethod
    def fetch(
        cls, git_host: str, repo_info: str, use_cache: bool = False, commit: str | None = None, silent: bool = True
    ) -> str:
        """Bring a repository to the cache folder and return its folder.

        Args:
            git_host: the server, ``github.com`` for example.
            repo_info: ``owner/name`` or ``owner/name:branch-or-tag``.
            use_cache: take an earlier copy when there is one.
            commit: a commit instead of a branch or tag.
            silent: say nothing while fetching.
        """
        raise NotImplementedError

    @classmethod
    def _parse_repo_info(cls, repo_info: str) -> tuple[str, str, str]:
        """Owner, name and branch."""
        name, _, branch = repo_info.partition(":")
        parts = name.split("/")
        branch = branch or DEFAULT_BRANCH_NAME
        if len(parts) != 2 or not all(map(_is_ref, (*parts, branch))):
            raise InvalidRepo(f"hub: {repo_info!r} is not a repository; it reads owner/name or owner/name:branch.")
        return parts[0], parts[1], branch

    @classmethod
    def _check_git_host(cls, git_host: str) -> str:
        if not cls._is_valid_host(git_host):
            raise InvalidGitHost(f"hub: {git_host!r} is not the name of a git server. Example: github.com.")
        return git_host

    @classmethod
    def _is_valid_host(cls, git_host: str) -> bool:
        return git_host == "localhost" or cls._is_valid_domain(git_host)

    @classmethod
    def _is_valid_domain(cls, name: str) -> bool:
        """Labels of at most 63 letters, digits, dashes and underscores, joined by dots; the last ends in a letter."""
        labels = name.split(".")
        fine = all(0 < len(n) < 64 and n[0].isalnum() and n[-1].isalnum() for n in labels)
        return len(labels) > 1 and fine and _HOST_CHARACTERS.issuperset("".join(labels)) and labels[-1][-1].isalpha()

    @classmethod
    def _check_commit(cls, commit: str | None) -> None:
        if commit is not None and not _is_ref(commit):
            raise GitCheckoutError(f"hub: {commit!r} is not a commit; it reads like 3f2a9c1 or v1.0.")

    @classmethod
    def _gen_repo_dir(cls, repo_dir: str) -> Path:
        """The folder of a repository: copies of different versions of this package do not mix."""
        from .hub import _hub_dir

        digest = hashlib.sha1(repo_dir.encode()).hexdigest()[:16]
        return _hub_dir() / f"{__version__.replace('.', '_')}_{digest}"


class GitHTTPSFetcher(RepoFetcherBase):
    """Downloads the archive of a branch, tag or commit."""

    @classmethod
    def fetch(
        cls, git_host: str, repo_info: str, use_cache: bool = False, commit: str | None = None, silent: bool = True
    ) -> str:
        """Download and unpack; see ``RepoFetcherBase.fetch``."""
        owner, name, branch = cls._parse_repo_info(repo_info)
        cls._check_git_host(git_host)
        cls._check_commit(commit)
        what = commit or branch
        folder = cls._gen_repo_dir(f"{git_host}/{owner}/{name}/{what}")
        if use_cache and folder.exists():
            if not silent:
                logger.info("hub: taking %s from %s", repo_info, folder)
            return str(folder)
        url = cls._git_archive_link(git_host, owner, name, what)
        if not silent:
            logger.info("hub: downloading %s", url)
        cls._download_zip_and_extract(url, folder)
        return str(folder)

    @classmethod
    def _git_archive_link(cls, git_host: str, owner: str, name: str, what: str) -> str:
        if "gitlab" in git_host:
            return f"https://{git_host}/{owner}/{name}/-/archive/{what}/{name}-{what.replace('/', '-')}.zip"
        return f"https://{git_host}/{owner}/{name}/archive/{what}.zip"

    @classmethod
    def _download_zip_and_extract(cls, url: str, folder: Path) -> None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            archive = os.path.join(scratch, "archive.zip")
            try:
                download_from_url(url, archive)
            except HTTPDownloadError as e:
                raise FetcherError(
                    f"hub: could not download {url} ({e}). Check the name and the network; offline, fetch the "
                    "repository elsewhere and pass the path of its folder instead."
                ) from None
            unpacked = _unzip(archive, os.path.join(scratch, "unpacked"), url)
            if folder.exists():
                shutil.rmtree(folder)
            os.replace(unpacked, folder)


def _unzip(archive: str, target: str, url: str) -> str:
    """Unpack an archive with one top folder and return that folder; names may not lead outside of ``target``."""
    try:
        with zipfile.ZipFile(archive) as z:
            names = z.namelist()
            for name in names:
                path = os.path.realpath(os.path.join(target, name))
                if not path.startswith(os.path.realpath(target) + os.sep) and path != os.path.realpath(target):
                    raise FetcherError(f"hub: the archive {url} holds the unsafe path {name!r}; nothing was unpacked.")
            z.extractall(target)
    except zipfile.BadZipFile:
        raise InvalidRepo(f"hub: what {url} sent is not a zip archive.") from None
    tops = sorted({n.split("/")[0] for n in names})
    if len(tops) != 1:
        raise InvalidRepo(
            f"hub: the archive {url} should hold one folder; it holds {', '.join(tops[:5]) or 'nothing'}."
        )
    return os.path.join(target, tops[0])


class GitSSHFetcher(RepoFetcherBase):
    """Clones with ``git`` over SSH, for repositories that need a key."""

    @classmethod
    def fetch(
        cls, git_host: str, repo_info: str, use_cache: bool = False, commit: str | None = None, silent: bool = True
    ) -> str:
        """Clone; see ``RepoFetcherBase.fetch``."""
        owner, name, branch = cls._parse_repo_info(repo_info)
        cls._check_git_host(git_host)
        cls._check_commit(commit)
        folder = cls._gen_repo_dir(f"{git_host}/{owner}/{name}/{commit or branch}")
        if use_cache and folder.exists():
            return str(folder)
        if shutil.which("git") is None:
            raise GitPullError("hub: protocol SSH needs the program git, which was not found.")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            target = os.path.join(scratch, "clone")
            shallow = [] if commit else ["--depth", "1", "--branch", branch]
            cls._git(["clone", *shallow, f"git@{git_host}:{owner}/{name}.git", target], GitPullError, silent)
            if commit:
                cls._git(["-C", target, "checkout", "--detach", commit], GitCheckoutError, silent)
            if folder.exists():
                shutil.rmtree(folder)
            os.replace(target, folder)
        return str(folder)

    @classmethod
    def _git(cls, args: list[str], error: type[FetcherError], silent: bool) -> None:
        environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_SSH_COMMAND": "ssh -oBatchMode=yes"}
        done = subprocess.run(["git", *args], capture_output=True, text=True, env=environment)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise error(f"hub: git {args[0]} failed: {last}. Check the name, the key and the network.")
        if not silent:
            logger.info("hub: git %s done", args[0])
