"""Names and defaults of the hub."""

from __future__ import annotations

from ..utils.http_download import HTTP_CONNECTION_TIMEOUT as HTTP_CONNECTION_TIMEOUT

DEFAULT_BRANCH_NAME = "master"
DEFAULT_CACHE_DIR = "~/.cache"
DEFAULT_GIT_HOST = "github.com"
DEFAULT_PROTOCOL = "HTTPS"
ENV_MGE_HOME = "MGE_HOME"
ENV_XDG_CACHE_HOME = "XDG_CACHE_HOME"
HTTP_READ_TIMEOUT = 120
HUBCONF = "hubconf.py"
HUBDEPENDENCY = "dependencies"
