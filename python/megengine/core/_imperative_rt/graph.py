"""Names of the original's private module that programs import: graphs and their nodes."""

from __future__ import annotations

from enum import Enum
from typing import Any

from ..tensor.megbrain_graph import Graph as ComputingGraph
from ..tensor.megbrain_graph import OpNode as OperatorNode
from ..tensor.megbrain_graph import (
    SerializationMetadata,
    VarNode,
    dump_graph,
    input_callback,
    load_graph,
    modify_opr_algo_strategy_inplace,
    optimize_for_inference,
    output_callback,
)
from . import make_const, make_h2d
from ._stand_ins import stand_in

__all__ = [
    "FBS",
    "FBS_V2",
    "SerializationFormat",
    "SerializationMetadata",
    "input_callback",
    "modify_opr_algo_strategy_inplace",
    "output_callback",
    "ComputingGraph",
    "OperatorNode",
    "VarNode",
    "dump_graph",
    "load_graph",
    "make_const",
    "make_h2d",
    "optimize_for_inference",
]


class SerializationFormat(Enum):
    """The formats of model files."""

    FBS = "FBS"
    FBS_V2 = "FBS_V2"


FBS, FBS_V2 = SerializationFormat.FBS, SerializationFormat.FBS_V2


def __getattr__(name: str) -> Any:
    return stand_in(__name__, name)
