"""A dumped model that is looked into, changed and dumped again (docs/network.md).

>>> import io
>>> from megengine.utils.network import Network
>>> @mge.jit.trace(symbolic=True, capture_as_const=True)
... def f(x):
...     return F.relu(x) * 2
>>> y, file = f(mge.tensor([1.0, -1.0])), io.BytesIO()
>>> result = f.dump(file, arg_names=["x"], output_names=["y"])
>>> file.seek(0)
0
>>> net = Network.load(file)
>>> net.input_vars, net.output_vars
([VarNode:x], [VarNode:y])
>>> x = net.make_input_node((2,), "uint8", name="image")
>>> net.replace_vars({net.input_vars[0]: x.astype("float32") / 255})
>>> net.input_vars
[VarNode:image]
"""

from __future__ import annotations

import fnmatch
import io
import os
import re
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, cast

import numpy as np

from .. import _pickle
from ..core import _core
from ..core._core import ops
from ..core._model_file import read_metadata
from ..core._trace_option import set_symbolic_shape
from ..core.tensor import megbrain_graph as G
from ..core.tensor.megbrain_graph import CompGraphDumpResult
from ..logger import get_logger
from ._graph_objects import (
    _const_tensor,
    _make_const,
    _make_input,
    _order,
    _settle,
    _Table,
    _table_of,
)
from .network_node import (
    ConstOpBase,
    Host2DeviceCopy,
    ImmutableTensor,
    NetworkNode,
    OpNode,
    SharedDeviceTensor,
    VarNode,
)

__all__ = [
    "Network",
    "NodeFilter",
    "NodeFilterCheckType",
    "NodeFilterHasInput",
    "NodeFilterName",
    "NodeFilterNotType",
    "NodeFilterType",
    "OpNode",
    "VarNode",
    "as_oprnode",
    "as_varnode",
    "set_symbolic_shape",
]

_logger = get_logger(__name__)


def as_varnode(obj: Any) -> VarNode:
    """The variable that is meant: itself, the one result of an op, or the one element of a list."""
    if isinstance(obj, VarNode):
        return obj
    found = obj.outputs if isinstance(obj, OpNode) else obj if isinstance(obj, (list, tuple)) else ()
    assert len(found) == 1, f"{obj} is not compatible with VarNode" + (
        f": it has {len(found)} results, choose one of {found}." if isinstance(obj, OpNode) else "."
    )
    return as_varnode(found[0])


def as_oprnode(obj: Any) -> OpNode:
    """The op that is meant: itself, the one that makes a variable, or that of the one element of a list."""
    if isinstance(obj, OpNode):
        return obj
    if isinstance(obj, VarNode):
        return obj.owner
    assert isinstance(obj, (list, tuple)) and len(obj) == 1, f"{obj} is not compatible with OpNode."
    return as_oprnode(obj[0])


class NodeFilter:
    """Nodes to choose from. Each choice gives another filter; nodes are looked at when they are asked for."""

    def __init__(self, node_iter: Iterable[Any]) -> None:
        self._iter = node_iter

    @classmethod
    def make_all_deps(cls, *dest_vars: VarNode) -> NodeFilter:
        """All ops that variables need."""
        return cls(_order([as_varnode(v) for v in dest_vars]))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._iter)

    def type(self, node_type: Any) -> NodeFilterType:
        """Those of a class."""
        return NodeFilterType(self, node_type)

    def check_type(self, node_type: Any) -> NodeFilterCheckType:
        """All of them, which must be of a class: a TypeError otherwise."""
        return NodeFilterCheckType(self, node_type)

    def not_type(self, node_type: Any) -> NodeFilterNotType:
        """Those that are not of a class."""
        return NodeFilterNotType(self, node_type)

    def param_provider(self) -> NodeFilter:
        """Constants."""
        return NodeFilter(self.type((ImmutableTensor, SharedDeviceTensor)))

    def data_provider(self) -> NodeFilter:
        """Inputs."""
        return NodeFilter(self.type(Host2DeviceCopy))

    def name(self, pattern: str, ignorecase: bool = True) -> NodeFilterName:
        """Those with a name; ``*``, ``?`` and ``[...]`` stand for others as in names of files."""
        return NodeFilterName(self, pattern, ignorecase)

    def has_input(self, var: VarNode) -> NodeFilterHasInput:
        """Ops that read a variable."""
        return NodeFilterHasInput(self, var)

    def as_list(self) -> list[Any]:
        """The nodes."""
        return list(self)

    def as_unique(self) -> Any:
        """The one node; a ValueError where there is not exactly one."""
        found = self.as_list()
        if len(found) != 1:
            shown = ", ".join(map(repr, found[:8])) + (", ..." if len(found) > 8 else "")
            raise ValueError(f"as_unique: exactly one node is needed; got {len(found)}{': ' + shown if found else ''}.")
        return found[0]

    def as_dict(self) -> OrderedDict[str, Any]:
        """The nodes by their names."""
        return OrderedDict((node.name, node) for node in self)

    def as_count(self) -> int:
        """How many there are."""
        return sum(1 for _ in self)


class NodeFilterType(NodeFilter):
    """Nodes of a class."""

    def __init__(self, node_iter: Iterable[Any], node_type: Any) -> None:
        super().__init__(node_iter)
        for cls in node_type if isinstance(node_type, tuple) else (node_type,):
            if not isinstance(cls, type):
                raise TypeError(f"bad type value: {cls!r}; a class of megengine.utils.network_node is needed.")
            assert issubclass(cls, NetworkNode), f"bad type value: {cls}; megengine.utils.network_node has classes."
        self._node_type = node_type

    def __iter__(self) -> Iterator[Any]:
        return (node for node in self._iter if isinstance(node, self._node_type))


class NodeFilterNotType(NodeFilterType):
    """Nodes that are not of a class."""

    def __iter__(self) -> Iterator[Any]:
        return (node for node in self._iter if not isinstance(node, self._node_type))


class NodeFilterCheckType(NodeFilterType):
    """Nodes that must be of a class."""

    def __iter__(self) -> Iterator[Any]:
        for node in self._iter:
            if not isinstance(node, self._node_type):
                raise TypeError(f"all nodes should be {self._node_type}; got {node!r}")
            yield node


class NodeFilterHasInput(NodeFilter):
    """Ops that read a variable."""

    def __init__(self, node_iter: Iterable[Any], var: VarNode) -> None:
        super().__init__(node_iter)
        self.var = as_varnode(var)

    def __iter__(self) -> Iterator[Any]:
        for node in self._iter:
            assert isinstance(node, OpNode), f"has_input() must be used with OpNode; got {node!r}"
            if any(v is self.var for v in node.inputs):
                yield node


class NodeFilterName(NodeFilter):
    """Nodes with a name."""

    def __init__(self, node_iter: Iterable[Any], pattern: str, ignorecase: bool) -> None:
        super().__init__(node_iter)
        self._re = self.make_re(pattern, ignorecase)

    @classmethod
    def make_re(cls, pattern: str, ignorecase: bool = True) -> re.Pattern[str]:
        """The regular expression of a pattern."""
        if not isinstance(pattern, str):
            raise TypeError(f"name: a pattern is a string; got {type(pattern).__name__}.")
        return re.compile(fnmatch.translate(pattern), re.IGNORECASE if ignorecase else 0)

    def __iter__(self) -> Iterator[Any]:
        return (node for node in self._iter if self._re.match(node.name))


def _kept_names(loaded: G.CompGraphLoadResult) -> dict[int, list[str]]:
    """The names of ops that a file has kept, by node."""
    ir = loaded.graph._ir
    names: dict[int, list[str]] = ir.opr_names()
    if loaded.metadata._items.get("format", "").startswith("FBS"):
        last = {ir.operator_name(node): node for node in names}  # of several nodes of an op the last has its results
        for node in names:
            outputs = ir.node(node)[3]
            if outputs and (name := ir.value(outputs[0])[0]):
                op = ir.operator_name(node)
                names[node] = [re.sub(r":o\d+$", "", op if op and last[op] == node else name)]
    return names


class Network:
    """A graph with its outputs, which can be looked into, changed and dumped. Made by ``Network.load``."""

    def __init__(self) -> None:
        self.output_vars: list[VarNode] = []
        self.graph: G.Graph | None = None
        self._metadata: dict[str, Any] | None = None

    @property
    def _table(self) -> _Table:
        if self.output_vars:
            return self.output_vars[0]._table
        if self.graph is None:
            self.graph = G.Graph()
        return _table_of(self.graph._ir)

    # ---- reading and writing

    @classmethod
    def load(cls, model_path: str | os.PathLike[str] | IO[bytes], outspec: Sequence[str] | None = None) -> Network:
        """Read a model: a file of this project or of the original.

        Args:
            model_path: a path, or an open binary file.
            outspec: names of variables that become the outputs; those of the file when None.
        """
        loaded = G.load_graph(model_path)
        self = cls()
        self.graph = loaded.graph
        table = _table_of(loaded.graph._ir)
        if loaded.metadata._items.get("keep_opr_name") == "1":
            table.opr_names = _kept_names(loaded)
        self._metadata = _metadata(loaded.metadata._items)
        for name, found in loaded.output_vars_dict.items():
            v = table.var(found._at)
            # An output has a name of its own: where its variable is an input or an output before, it is a copy.
            if isinstance(v.owner, (Host2DeviceCopy, ConstOpBase)) or any(v is o for o in self.output_vars):
                if v.name != name:
                    v = cast(VarNode, ops.copy(v))
            v.name = name
            self.output_vars.append(v)
        if outspec is not None:
            outspec = [outspec] if isinstance(outspec, str) else outspec
            known = {v.name: v for v in reversed(self.all_vars)}
            missing = [name for name in outspec if name not in known]
            assert not missing, f"Can not find {missing} in this model; it has {', '.join(sorted(known))}."
            self.output_vars = [known[name] for name in outspec]
        return self

    @property
    def metadata(self) -> dict[str, Any] | None:
        """``user_info``, ``graph_modified``, ``optimized_for_inference`` and its options; None without metadata."""
        return self._metadata

    @property
    def dest_vars(self) -> list[VarNode]:
        """The outputs; the same list as ``output_vars``."""
        return self.output_vars

    @property
    def input_vars(self) -> list[VarNode]:
        """The inputs that the outputs need."""
        return [op.outputs[0] for op in self.data_providers_filter]

    def dump(
        self,
        file: str | os.PathLike[str] | IO[bytes],
        *,
        keep_var_name: int = 1,
        keep_opr_name: bool = False,
        keep_param_name: bool = False,
        keep_opr_priority: bool = False,
        strip_info_file: Any = None,
        append_json: bool = False,
        optimize_for_inference: bool = True,
        append: bool = False,
        user_info: Any = None,
        enable_metadata: bool = True,
        **kwargs: Any,
    ) -> CompGraphDumpResult:
        """Write the graph as a model. Arguments as of ``trace.dump``; what is not honoured is refused by name."""
        outputs = self._settled("dump")
        if not outputs:
            raise _core.UserError(
                "Network.dump: the network has no outputs. add_output(var) says what the model computes."
            )
        named: OrderedDict[str, VarNode] = OrderedDict()
        for v in outputs:
            name = v.name or _fresh_name(v, named)
            if name in named:
                raise ValueError(
                    f"Network.dump: two outputs are named {name!r} ({named[name].owner!r} and {v.owner!r}). "
                    "Rename one (var.name = ...), so that a caller can tell them apart."
                )
            named[name] = v
        for op in self.data_providers_filter:
            op.outputs[0].name = op.name
            if named.get(op.name, op.outputs[0]) is not op.outputs[0]:
                raise ValueError(
                    f"Network.dump: an input and the output of {named[op.name].owner!r} are both named {op.name!r}. "
                    "Rename one (var.name = ...), so that a caller can tell them apart."
                )
        return G._write(
            file,
            {name: v.var for name, v in named.items()},
            inputs=sorted((v.var for v in self.input_vars), key=lambda v: v.id),  # as they were loaded or made
            graph_modified=True,
            keep_var_name=keep_var_name,
            keep_opr_name=keep_opr_name,
            keep_param_name=keep_param_name,
            keep_opr_priority=keep_opr_priority,
            strip_info_file=strip_info_file,
            append_json=append_json,
            optimize_for_inference=optimize_for_inference,
            append=append,
            user_info=user_info,
            enable_metadata=enable_metadata,
            **kwargs,
        )

    def optimize_for_inference(self, dest_vars: Sequence[VarNode], **kwargs: Any) -> list[VarNode]:
        """The variables, as ``optimize_for_inference`` leaves them; unknown options are refused."""
        found = [as_varnode(v) for v in dest_vars]
        G.optimize_for_inference([v.var for v in found], **kwargs)
        return found

    # ---- making

    def make_const(self, data: Any, name: str | None = None, device: Any = None) -> VarNode:
        """A constant of this network; it joins where it is used. Names that are not given are made up."""
        op = ImmutableTensor.__new__(ImmutableTensor)
        ConstOpBase.__init__(op, name=name)
        return _make_const(self._table, op, _const_tensor(data, device))

    def make_input_node(self, shape: Sequence[int], dtype: Any, name: str | None = None, device: Any = None) -> VarNode:
        """An input of this network; it joins where it is used. Names that are not given are made up."""
        return _make_input(self._table, Host2DeviceCopy(shape, dtype, name, device))

    def add_output(self, *vars: VarNode) -> None:
        """More outputs; those that are outputs already stay what they are."""
        added = [as_varnode(v) for v in vars]
        before = list(self.output_vars)
        for v in added:
            if not any(v is o for o in self.output_vars):
                self.output_vars.append(v)
        self._edit("add_output", outputs=before)

    def remove_output(self, *vars: VarNode) -> None:
        """Fewer outputs."""
        for v in map(as_varnode, vars):
            if any(v is o for o in self.output_vars):
                self.output_vars[:] = [o for o in self.output_vars if o is not v]
            else:
                _logger.warning("Failed to remove %s. Please check whether this node is in the output list.", v.name)

    def add_dep_oprs(self, *vars: VarNode) -> list[VarNode]:
        """Nothing to do: ops join with the variables that are used. Gives these variables, or the outputs."""
        return [as_varnode(v) for v in vars] if vars else list(self.output_vars)

    # ---- changing

    def replace_vars(self, repl_dict: Mapping[VarNode, VarNode]) -> None:
        """Let ops, and the outputs, read other variables. Ops that only the new variables need stay as they are, so
        ``{v: F.relu(v)}`` puts a relu behind ``v``. A variable of another network brings that network along.

        The network is as before when something does not fit.
        """
        mapping: dict[VarNode, VarNode] = {}
        for old, new in repl_dict.items():
            mapping[as_varnode(old)] = as_varnode(new)
        known = self.all_oprs
        before = [(op, list(op.inputs), op._name) for op in known]
        outputs = list(self.output_vars)
        for op in known:
            op.inputs[:] = [mapping.get(v, v) for v in op.inputs]
        for i, v in enumerate(self.output_vars):
            if v in mapping:
                self.output_vars[i] = mapping[v]
        try:
            self._edit("replace_vars", outputs=outputs)
        except Exception:
            for op, was, name in before:
                op.inputs[:], op._name = was, name  # an error that names an op made of other inputs gave it one
            raise
        for old, new in zip(outputs, self.output_vars):
            if old is not new and not new.name and old.owner.inputs:
                new.name = old.name

    def replace_oprs(self, repl_dict: Mapping[OpNode, OpNode]) -> None:
        """The same for all results of ops, which must have as many."""
        mapping: dict[VarNode, VarNode] = {}
        for old, new in repl_dict.items():
            was, now = as_oprnode(old), as_oprnode(new)
            if len(was.outputs) != len(now.outputs):
                raise ValueError(
                    f"replace_oprs: {was!r} has {len(was.outputs)} results, {now!r} has {len(now.outputs)}. "
                    "As many are needed; replace_vars replaces single ones."
                )
            mapping.update(zip(was.outputs, now.outputs))
        self.replace_vars(mapping)

    def modify_opr_names(self, modifier: str | Callable[[str], str]) -> None:
        """Rename all ops: a prefix, which a dot follows, or a function of the name. Inputs are known by theirs."""
        if isinstance(modifier, str):
            prefix = modifier
            named: Callable[[str], str] = lambda name: f"{prefix}.{name}"  # noqa: E731
        elif callable(modifier):
            named = modifier
        else:
            raise TypeError(f"modify_opr_names: a prefix or a function is needed; got {type(modifier).__name__}.")
        names = []
        for op in self.all_oprs:
            name = named(op.name)
            if not isinstance(name, str) or not name:
                raise TypeError(f"modify_opr_names: the new name of {op.name!r} is {name!r}; a name is needed.")
            names.append((op, name))
        for op, name in names:
            var_name = op.outputs[0].name if op.outputs else ""
            op.name = name
            if op.outputs and not isinstance(op, Host2DeviceCopy):
                op.outputs[0].name = var_name

    def reset_batch_size(self, batchsize: int, *, blacklist: Sequence[Any] = ()) -> None:
        """Give the inputs, except some (names, ops or variables), another first size.

        The network is as before when some op does not fit it, such as a reshape to a fixed size.
        """
        if not isinstance(batchsize, (int, np.integer)) or isinstance(batchsize, bool) or batchsize < 1:
            raise ValueError(f"reset_batch_size: a batch has at least one element; got {batchsize!r}.")
        kept = {b if isinstance(b, str) else as_oprnode(b).name for b in blacklist}
        providers = self.data_providers_filter.as_list()
        unknown = sorted(kept - {op.name for op in providers})
        known = ", ".join(op.name for op in providers)
        assert not unknown, f"reset_batch_size: there is no input {', '.join(unknown)}; there are {known}."
        table, undo = self._table, []
        try:
            for op in providers:
                if op.name in kept:
                    continue
                (var,) = op.outputs
                shape = table.ir.value(var._id)[2]
                if not shape:
                    raise ValueError(f"reset_batch_size: {op!r} has no axes. Put it on the blacklist.")
                undo.append((var, var._id))
                id = table.ir.add_input(op.name, var.dtype, (batchsize, *shape[1:]), var.device)
                _core.set_node(var, table.ir, id)
                table.vars[id] = var
                table.ops[id] = op
            self._edit("reset_batch_size")
        except Exception:
            for var, was in undo:
                _core.set_node(var, table.ir, was)
            raise

    def _edit(self, who: str, outputs: list[VarNode] | None = None) -> None:
        try:
            self._settled(who)
        except Exception:
            if outputs is not None:
                self.output_vars[:] = outputs
            raise

    def _settled(self, who: str) -> list[VarNode]:
        _settle(self.output_vars, f"Network.{who}")
        return self.output_vars

    # ---- looking

    def get_var_by_name(self, name: str, unique: bool = True) -> Any:
        """The variable of a name, or all of them; an AssertionError where there is not exactly one."""
        return _one([v for v in self.all_vars if v.name == name], f"variables named {name!r}", unique)

    def get_opr_by_name(self, name: str, unique: bool = True) -> Any:
        """The op of a name, or all of them; an AssertionError where there is not exactly one."""
        return _one([op for op in self.all_oprs if op.name == name], f"operators named {name!r}", unique)

    def get_opr_by_type(self, oprcls: Any, unique: bool = True) -> Any:
        """The op of a class, or all of them; an AssertionError where there is not exactly one."""
        if not isinstance(oprcls, type):
            raise TypeError(f"get_opr_by_type: a class of ops is needed; got {oprcls!r}.")
        assert issubclass(oprcls, OpNode), f"get_opr_by_type: a class of ops is needed; got {oprcls!r}."
        return _one(self.opr_filter.type(oprcls).as_list(), f"operators of type {oprcls}", unique)

    def get_var_receive_oprs(self, var: VarNode) -> list[OpNode]:
        """The ops that read a variable."""
        return self.opr_filter.has_input(var).as_list()

    def get_dep_oprs(self, var: VarNode) -> list[OpNode]:
        """The ops that a variable needs."""
        return _order([as_varnode(var)])

    @property
    def opr_filter(self) -> NodeFilter:
        """All ops, to choose from."""
        return NodeFilter(self.all_oprs)

    @property
    def var_filter(self) -> NodeFilter:
        """All variables, to choose from."""
        return NodeFilter(self.all_vars)

    @property
    def params_filter(self) -> NodeFilter:
        """The constants, to choose from."""
        return self.opr_filter.param_provider()

    @property
    def data_providers_filter(self) -> NodeFilter:
        """The inputs, to choose from."""
        return self.opr_filter.data_provider()

    @property
    def all_oprs(self) -> list[OpNode]:
        """All ops that the outputs need, each after those it reads."""
        return _order(self.output_vars)

    @property
    def all_vars(self) -> list[VarNode]:
        """All variables that the outputs need, nearest first, and other results of the ops that make them."""
        queue, seen = deque(self.output_vars), OrderedDict[int, VarNode]()
        while queue:
            v = queue.popleft()
            if id(v) in seen:
                continue
            seen[id(v)] = v
            queue.extend(v.owner.inputs)
        for op in self.all_oprs:
            for v in op.outputs:
                seen.setdefault(id(v), v)
        return list(seen.values())

    @property
    def all_oprs_dict(self) -> OrderedDict[str, OpNode]:
        """All ops by their names."""
        return self.opr_filter.as_dict()

    @property
    def all_vars_dict(self) -> OrderedDict[str, VarNode]:
        """All variables by their names."""
        return self.var_filter.as_dict()


def _one(found: list[Any], what: str, unique: bool) -> Any:
    if not unique:
        return found
    assert len(found) == 1, f"{len(found)} {what} found; exactly one is needed. unique=False gives all."
    return found[0]


def _fresh_name(v: VarNode, taken: Mapping[str, VarNode]) -> str:
    """A name for an output that has none: that of its op."""
    op = v.owner
    base = str(op.params.get("mode") or op.type)
    name, n = base, 0
    while name in taken:
        n += 1
        name = f"{base}[{n}]"
    return name


def _metadata(items: Mapping[str, str]) -> dict[str, Any] | None:
    """What a file says of itself. The original's files hold a pickle, which is read as data."""
    metadata = read_metadata(items)
    if metadata is not None and "user_info.pickle.hex" in items:
        stored = io.BytesIO(bytes.fromhex(items["user_info.pickle.hex"]))
        metadata["user_info"] = _pickle.Machine(stored, _pickle.find_arrays, _pickle.build).load()
    return metadata
