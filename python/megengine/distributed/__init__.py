"""Several processes as one: ``import megengine.distributed as dist``.

With one process every call works and does nothing: ``get_rank()`` is 0, collectives return what they are given.
"""

from __future__ import annotations

import sys as _sys
from importlib import import_module as _import_module
from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from ..core._habits import no_attribute as _no_attribute
from . import environment as environment
from . import functional as functional
from . import group as group
from . import helper as helper
from .group import (
    WORLD,
    Group,
    get_backend,
    get_client,
    get_local_device_id,
    get_mm_server_addr,
    get_py_server_addr,
    get_rank,
    get_world_size,
    group_barrier,
    group_end,
    group_start,
    init_process_group,
    is_distributed,
    new_group,
    override_backend,
)
from .helper import bcast_list_, make_allreduce_cb, synchronized
from .launcher import launcher

if _TYPE_CHECKING:
    from . import server as server
    from .server import Client, Server

    backend: str

__all__ = [
    "Client",
    "Group",
    "Server",
    "WORLD",
    "bcast_list_",
    "get_backend",
    "get_client",
    "get_local_device_id",
    "get_mm_server_addr",
    "get_py_server_addr",
    "get_rank",
    "get_world_size",
    "group_barrier",
    "group_end",
    "group_start",
    "init_process_group",
    "is_distributed",
    "launcher",
    "make_allreduce_cb",
    "new_group",
    "override_backend",
    "synchronized",
]


class _Package(_ModuleType):
    """``backend`` is read and set as an attribute; the server and what it needs are imported when first used."""

    @property
    def backend(self) -> str:
        """What carries the collectives."""
        return get_backend()

    @backend.setter
    def backend(self, value: str) -> None:
        group._set_backend(value)

    def __getattr__(self, name: str) -> _Any:
        if name in ("Client", "Server", "server"):
            found = _import_module(".server", __name__)
            return found if name == "server" else getattr(found, name)
        raise _no_attribute(__name__, name)


_sys.modules[__name__].__class__ = _Package
