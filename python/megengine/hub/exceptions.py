"""What can go wrong while a repository is fetched."""

from __future__ import annotations


class FetcherError(Exception):
    """A repository could not be fetched."""


class InvalidRepo(FetcherError):
    """The repository's name is not ``owner/name`` or ``owner/name:branch``, or it does not exist."""


class InvalidGitHost(FetcherError):
    """The host's name is not a domain name."""


class GitPullError(FetcherError):
    """Cloning or pulling failed."""


class GitCheckoutError(FetcherError):
    """The branch or commit could not be checked out."""


class InvalidProtocol(FetcherError):
    """The protocol is neither HTTPS nor SSH."""
