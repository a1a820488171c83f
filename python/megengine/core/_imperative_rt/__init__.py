"""Names of the original's private runtime module that programs import. Thin, and only what exists here."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

from ...logger import set_mgb_log_level
from .._core import CompNode
from .._lazy import submodule
from ..tensor.dtype import bfloat16, intb1, intb2, intb4
from .opdef import OpDef

# The types of NumPy scalars, under the names that pickles of arrays hold.
pybfloat16, pyintb1, pyintb2, pyintb4 = (d.type for d in (bfloat16, intb1, intb2, intb4))


class OperatorNodeConfig:
    """What an op of a graph may be told beside its parameters: a name, a device, the dtype of its result.

    >>> from megengine.core._imperative_rt import OperatorNodeConfig
    >>> OperatorNodeConfig(name="relu1").name
    'relu1'
    """

    def __init__(self, name: str = "", comp_node: Any = None, dtype: Any = None) -> None:
        self.name, self.comp_node, self.dtype = name, comp_node, dtype

    def __repr__(self) -> str:
        return f"OperatorNodeConfig(name={self.name!r}, comp_node={self.comp_node!r}, dtype={self.dtype!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OperatorNodeConfig) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # can be changed


class Logger:
    """The level of the engine's own messages.

    >>> from megengine.core._imperative_rt import Logger
    >>> old = Logger.set_log_level(Logger.LogLevel.Info)
    >>> Logger.set_log_level(old)
    <LogLevel.Info: 1>
    """

    class LogLevel(IntEnum):
        """From all messages to errors alone."""

        Debug = 0
        Info = 1
        Warn = 2
        Error = 3

    @classmethod
    def set_log_level(cls, level: int) -> LogLevel:
        """Set it, and get the one before."""
        return cls.LogLevel(set_mgb_log_level(10 * (int(level) + 1)) // 10 - 1)


#: Names here -> names in core.tensor.megbrain_graph, which is imported when one of them is asked for.
_OF_GRAPHS = {"ComputingGraph": "Graph", "OperatorNode": "OpNode", "VarNode": "VarNode"}

#: Names that the original has here, too.
_OF_PARTS = {
    "common": """DeviceProperties DeviceTensorND DeviceType HostTensorND TensorAttr get_cuda_driver_version
        get_cuda_version get_cudnn_version get_device_prop get_scale get_supported_sm_versions get_tensorrt_version
        get_zero_point init_nccl_env invoke_op is_dtype_equal is_quantize set_prealloc_config what_is_xpu""",
    "graph": """AsyncExecutable DeviceTensorNDRendezvous FBS FBS_V2 GraphOptimizeOptions GraphProfiler GraphProfiler2
        HostTensorNDRendezvous SerializationFormat SerializationMetadata TensorAttrRendezvous attr_output_callback
        dump_graph get_info_for_strip input_callback load_graph make_shared modify_opr_algo_strategy_inplace
        optimize_for_inference output_callback value_output_callback virtual_dep""",
    "utils": "AtomicUint64 PersistentCache TensorSanityCheckImpl create_mm_server",
    "imperative": "make_backward_graph",
}

if TYPE_CHECKING:
    from ..tensor.megbrain_graph import Graph as ComputingGraph
    from ..tensor.megbrain_graph import OpNode as OperatorNode
    from ..tensor.megbrain_graph import VarNode


def make_h2d(graph: Any, device: Any, dtype: Any, shape: Any = None, name: str | None = None) -> VarNode:
    """An input of a graph.

    >>> from megengine.core._imperative_rt import make_h2d
    >>> from megengine.core.tensor.megbrain_graph import Graph
    >>> make_h2d(Graph(), "cpu0", "float32", (2, 3), "data").shape
    (2, 3)
    """
    made: VarNode = graph.make_h2d(dtype=dtype, device=device, shape=shape, name=name)
    return made


def make_const(graph: Any, data: Any, device: Any = None, dtype: Any = None, name: str | None = None) -> VarNode:
    """A constant of a graph."""
    made: VarNode = graph.make_const(data, dtype, device, name)
    return made


def __getattr__(name: str) -> Any:
    if name in _OF_GRAPHS:
        from ..tensor import megbrain_graph

        return getattr(megbrain_graph, _OF_GRAPHS[name])
    for part, names in _OF_PARTS.items():
        if name in names.split():
            return getattr(submodule(__name__, part), name)
    return submodule(__name__, name)


__all__ = [
    "CompNode",
    "ComputingGraph",
    "Logger",
    "OpDef",
    "OperatorNode",
    "OperatorNodeConfig",
    "VarNode",
    "make_const",
    "make_h2d",
    "pybfloat16",
    "pyintb1",
    "pyintb2",
    "pyintb4",
]
