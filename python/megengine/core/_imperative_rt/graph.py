"""Names of the original's private module that programs import: graphs and their nodes."""

from __future__ import annotations

from ..tensor.megbrain_graph import Graph as ComputingGraph
from ..tensor.megbrain_graph import OpNode as OperatorNode
from ..tensor.megbrain_graph import VarNode, dump_graph, load_graph, optimize_for_inference
from . import make_const, make_h2d

__all__ = [
    "ComputingGraph",
    "OperatorNode",
    "VarNode",
    "dump_graph",
    "load_graph",
    "make_const",
    "make_h2d",
    "optimize_for_inference",
]
