"""Graphs and texts for TensorBoard, written by tensorboardX (``pip install tensorboardX``; to look: ``tensorboard``).

>>> import tempfile
>>> from megengine.utils.tensorboard import SummaryWriterExtend
>>> with SummaryWriterExtend(tempfile.mkdtemp()) as writer:
...     writer.add_text("note", ["trained", "10 epochs"])
...     writer.add_node_raw("x", "input", [], [[1, 3]], "float32", {})
...     writer.add_node_raw("y", "relu", ["x"], [[1, 3]], "float32", {"inplace": "no"})
...     writer.add_graph_by_node_raw_list()
"""

from __future__ import annotations

import importlib
from collections import namedtuple
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "NodeRaw",
    "SummaryWriterExtend",
    "attr_value_proto",
    "graph",
    "node",
    "node_proto",
    "tensor_shape_proto",
    "text",
]

try:
    _tensorboardX: Any = importlib.import_module("tensorboardX")
except ImportError as e:
    raise ImportError("megengine.utils.tensorboard needs tensorboardX: pip install tensorboardX tensorboard") from e

NodeRaw = namedtuple("NodeRaw", ["name", "op", "input", "outputshape", "dtype", "attributes"])


def _proto(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"tensorboardX.proto.{module}_pb2"), name)


def tensor_shape_proto(shapes: Sequence[int]) -> Any:
    """The message of one shape."""
    shape = _proto("tensor_shape", "TensorShapeProto")
    return shape(dim=[shape.Dim(size=int(n)) for n in shapes])


def attr_value_proto(
    dtype: Any, shapes: Sequence[Sequence[int]] | None, attributes: Mapping[str, Any]
) -> dict[str, Any]:
    """The attributes of a node: its output shapes, its dtype and what else is said of it."""
    value = _proto("attr_value", "AttrValue")
    out: dict[str, Any] = {}
    if shapes:
        out["_output_shapes"] = value(list=value.ListValue(shape=[tensor_shape_proto(s) for s in shapes]))
    if dtype is not None:
        out["dtype"] = value(s=str(dtype).encode())
    for key, given in attributes.items():
        out[key] = value(s=str(given).encode())
    return out


def node_proto(
    name: str,
    op: str = "UnSpecified",
    input: Sequence[str] | str | None = None,
    outputshape: Sequence[Sequence[int]] | None = None,
    dtype: Any = None,
    attributes: Mapping[str, Any] | None = None,
) -> Any:
    """The message of one node."""
    inputs = [] if input is None else [input] if isinstance(input, str) else list(input)
    attrs = attr_value_proto(dtype, outputshape, attributes or {})
    return _proto("node_def", "NodeDef")(name=str(name), op=str(op), input=inputs, attr=attrs)


def node(raw: NodeRaw) -> Any:
    """The message of one raw node."""
    return node_proto(*raw)


def graph(raw_list: Sequence[NodeRaw]) -> Any:
    """The message of a graph of raw nodes."""
    versions = _proto("versions", "VersionDef")(producer=22)
    return _proto("graph", "GraphDef")(node=[node(raw) for raw in raw_list], versions=versions)


def text(tag: str, text: Sequence[str] | str) -> Any:
    """The message of a text: a row for each string."""
    rows = [text] if isinstance(text, str) else [str(t) for t in text]
    plugin = _proto("summary", "SummaryMetadata")
    metadata = plugin(plugin_data=plugin.PluginData(plugin_name="text"))
    shape = tensor_shape_proto([len(rows)])
    tensor = _proto("tensor", "TensorProto")(
        dtype="DT_STRING", string_val=[r.encode() for r in rows], tensor_shape=shape
    )
    summary = _proto("summary", "Summary")
    return summary(value=[summary.Value(tag=f"{tag}/text_summary", metadata=metadata, tensor=tensor)])


class SummaryWriterExtend(_tensorboardX.SummaryWriter):  # type: ignore[misc]
    """A ``SummaryWriter`` of tensorboardX that takes lists of strings, and graphs node by node."""

    def __init__(
        self,
        logdir: str | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
        write_to_disk: bool = True,
        log_dir: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            logdir if logdir is not None else log_dir, comment, purge_step, max_queue, flush_secs, filename_suffix,
            write_to_disk, **kwargs,
        )  # fmt: skip
        self.node_raw_dict: dict[str, NodeRaw] = {}

    def add_text(self, tag: str, text_string_list: Any, global_step: Any = None, walltime: Any = None) -> None:
        """A text, or a list of them as the rows of a table."""
        self._get_file_writer().add_summary(text(tag, text_string_list), global_step, walltime)

    def add_node_raw(
        self,
        name: str,
        op: str = "UnSpecified",
        input: Sequence[str] = (),
        outputshape: Sequence[Sequence[int]] = (),
        dtype: Any = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """A node of the graph that ``add_graph_by_node_raw_list`` writes."""
        self.node_raw_dict[name] = NodeRaw(name, op, list(input), list(outputshape), dtype, dict(attributes or {}))

    def add_node_raw_name_suffix(self, rawname: str, suffix: str) -> None:
        """A node is shown under its name and this."""
        old = self._raw(rawname)
        self.node_raw_dict[rawname] = old._replace(name=old.name + suffix)

    def add_node_raw_attributes(self, rawname: str, attributes: Mapping[str, Any]) -> None:
        """More attributes of a node."""
        self._raw(rawname).attributes.update(attributes)

    def _raw(self, name: str) -> NodeRaw:
        if name not in self.node_raw_dict:
            raise KeyError(f"SummaryWriterExtend: there is no node {name!r}. add_node_raw comes first.")
        return self.node_raw_dict[name]

    def add_graph_by_node_raw_list(self) -> None:
        """Write the graph of the nodes so far."""
        shown = {raw: n.name for raw, n in self.node_raw_dict.items()}
        nodes = [n._replace(input=[shown.get(i, i) for i in n.input]) for n in self.node_raw_dict.values()]
        event = _proto("event", "Event")(graph_def=graph(nodes).SerializeToString())
        self._get_file_writer().add_event(event)
