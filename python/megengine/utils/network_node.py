"""Nodes of a graph that is edited. The classes exist so that programs can ask what a tensor is; making nodes arrives
with ``megengine.utils.network``."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor

__all__ = ["NetworkNode", "OpNode", "VarNode"]


class NetworkNode:
    """What variables and operators of a graph share."""


class VarNode(NetworkNode, Tensor):
    """A variable of a graph; no tensor is one yet."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Raises: graphs cannot be edited yet."""
        raise NotImplementedError("VarNode: arrives with the editing of graphs (megengine.utils.network).")


class OpNode(NetworkNode):
    """An operator of a graph."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("OpNode: arrives with the editing of graphs (megengine.utils.network).")
