"""Editing of dumped graphs: not there yet. ``comp_graph_tools.GraphInference`` runs a dumped graph."""

from __future__ import annotations

from typing import Any

from ..core._trace_option import set_symbolic_shape
from .network_node import OpNode, VarNode

__all__ = ["Network", "OpNode", "VarNode", "set_symbolic_shape"]


class Network:
    """A loaded graph that can be changed and dumped again."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("Network: editing of graphs is not there yet; GraphInference runs a dumped graph.")

    @classmethod
    def load(cls, model_path: Any, outspec: Any = None) -> Network:
        """Raises: graphs cannot be edited yet."""
        return cls()
