"""Names of the original's private module that programs import: graphs made, loaded, run and dumped node by node.

The graph is the one that traces and files use (``src/ir``); it runs as the file that it would be dumped to. Ops have
the types and parameters that they have in the original's graphs (``Elemwise`` with ``mode``, ``ConvolutionForward``).

>>> import megengine.core.tensor.megbrain_graph as G
>>> from megengine.core.ops import builtin
>>> graph = G.Graph()
>>> inp = G.InputNode(dtype="float32", shape=(2,), graph=graph)
>>> (y,) = G.apply_normal_varnode(builtin.Elemwise("exp"), inp.outputs[0])
>>> out = G.OutputNode(y)
>>> func = graph.compile(out.outputs[0])
>>> inp.set_value([0.0, 0.0])
>>> func.execute()
>>> out.get_value().tolist()
[1.0, 1.0]
"""

from __future__ import annotations

import io
import json
import os
from collections import OrderedDict, namedtuple
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ...tensor import Tensor
from .. import _core, _model_file
from .._core import CompNode
from .._imperative_rt.core2 import apply as apply
from .._imperative_rt.opdef import OpDef, OpEnum
from .._inference import GraphInference
from .._model_file import CompGraphDumpResult
from ..files import replacing
from ._graph_types import named

__all__ = [
    "AttrOutputNode",
    "CompGraphDumpResult",
    "CompGraphLoadResult",
    "Graph",
    "InputNode",
    "OpNode",
    "OutputNode",
    "TensorAttr",
    "ValueOutputNode",
    "VarNode",
    "VirtualDepNode",
    "apply_normal_varnode",
    "deserialize_infer_option",
    "dump_graph",
    "load_graph",
    "modify_opr_algo_strategy_inplace",
    "optimize_for_inference",
    "set_priority_to_id",
]

CompGraphLoadResult = namedtuple("CompGraphLoadResult", ["graph", "output_vars_dict", "output_vars_list", "metadata"])
TensorAttr = namedtuple("TensorAttr", ["shape", "dtype", "device"])


class VarNode:
    """A variable of a graph: an input, a constant or a result."""

    def __init__(self, graph: Graph, at: int) -> None:
        self.graph = graph
        self._at = at  # its number in the engine's graph
        self._op: OpNode | None = None

    def _info(self) -> Any:
        return self.graph._ir.value(self._at)

    @property
    def id(self) -> int:
        """A number that no other variable or op of the graph has: those of variables are odd."""
        return 2 * self._at + 1

    @property
    def _node(self) -> VarNode:
        """Itself: the original has two classes for a variable."""
        return self

    @property
    def name(self) -> str:
        """Its name, which may be set; an input is known by it in a dumped file."""
        return self._info()[0] or f"var{self.id}"

    @name.setter
    def name(self, name: str) -> None:
        self.graph._ir.set_name(self._at, name)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes, for the declared ones of the inputs."""
        return tuple(self._info()[2])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of its elements."""
        dtype: np.dtype[Any] = self._info()[1]
        return dtype

    @property
    def device(self) -> CompNode:
        """Where it is."""
        cn: CompNode = self._info()[3]
        return cn

    comp_node = device

    @property
    def value(self) -> npt.NDArray[Any] | None:
        """The value of a constant; None for others."""
        constant = self.graph._ir.constant(self._at)
        return None if constant is None else constant.numpy()

    @property
    def op(self) -> OpNode:
        """The op that makes it."""
        if self._op is None:
            kind, producer = self._info()[4:]
            if kind == "result":
                self._op = self.graph._node(producer)
            else:
                made = {"input": "Host2DeviceCopy", "const": "ImmutableTensor"}.get(kind, "SharedDeviceTensor")
                self._op = OpNode(self.graph, made, {}, (), (self,))
        return self._op

    owner = op

    def __repr__(self) -> str:
        return f"Var:{self.name}"


class OpNode:
    """An op of a graph, with its inputs and results."""

    def __init__(
        self,
        graph: Graph,
        type: str,
        params: dict[str, Any],
        inputs: tuple[VarNode, ...],
        outputs: tuple[VarNode, ...],
    ) -> None:
        self.graph = graph
        self.type = type
        self.params = params
        self.inputs = inputs
        self.outputs = outputs
        self._name: str | None = None

    @property
    def name(self) -> str:
        """Its name: that of its first result unless another was given."""
        return self._name if self._name is not None else self.outputs[0].name if self.outputs else self.type

    @name.setter
    def name(self, name: str) -> None:
        self._name = name

    @property
    def id(self) -> int:
        """A number that no other op or variable of the graph has: that before its first result's."""
        return self.outputs[0].id - 1

    @property
    def _node(self) -> OpNode:
        """Itself: the original has two classes for an op."""
        return self

    @property
    def priority(self) -> int:
        """Ops run in the order in which they were made."""
        return self.id

    def __repr__(self) -> str:
        return f"Opr:{self.name}"


_STRATEGIES = {"HEURISTIC": 1, "PROFILE": 2, "REPRODUCIBLE": 4}  # as Lite numbers them


class Graph:
    """A graph that is made op by op. ``compile`` chooses what is computed, ``execute`` computes it."""

    def __init__(self, _ir: _core.Graph | None = None) -> None:
        self._ir = _core.Graph() if _ir is None else _ir
        self._vars: dict[int, VarNode] = {}
        self._nodes: dict[int, OpNode] = {}
        self._sources: list[InputNode] = []
        self._sinks: dict[int, list[_Output]] = {}
        self._inference: GraphInference | None = None
        self._compiled: list[VarNode] = []
        self._fresh = 0
        self._strategy = _STRATEGIES["HEURISTIC"]
        self.options = SimpleNamespace(graph_opt_level=2, async_exec_level=1, log_level=0)

    # ---- making

    def make_h2d(self, *, dtype: Any, device: Any = None, shape: Any = None, name: str | None = None) -> VarNode:
        """An input, known by its name in a dumped file. Other sizes of the same rank may be fed."""
        if shape is None:
            raise ValueError("make_h2d: a shape is needed to infer those of results; others of that rank may be fed.")
        return self._var(self._ir.add_input(name or self._new_name("h2d"), dtype, shape, device))

    def make_const(self, data: Any, dtype: Any = None, device: Any = None, name: str | None = None) -> VarNode:
        """A constant."""
        value = data if isinstance(data, Tensor) and dtype is None else Tensor(data, dtype, device)
        return self._var(self._ir.add_constant(value, name or self._new_name("const")))

    def make_input(self, *args: VarNode, device: Any = None, dtype: Any = None, shape: Any = None) -> VarNode:
        """The variable of a new InputNode."""
        return InputNode(*args, device=device, dtype=dtype, shape=shape, graph=self).outputs[0]

    def _new_name(self, kind: str) -> str:
        self._fresh += 1
        return f"{kind}[{self._fresh}]"

    def _var(self, id: int) -> VarNode:
        if id not in self._vars:
            self._vars[id] = VarNode(self, id)
        return self._vars[id]

    def _node(self, id: int) -> OpNode:
        if id not in self._nodes:
            op, attrs, inputs, outputs, _, sizes = self._ir.node(id)
            kind, params = named(op, attrs, [self._ir.value(i)[2] for i in inputs])
            read = tuple(map(self._var, (*inputs, *sizes)))
            self._nodes[id] = OpNode(self, kind, params, read, tuple(map(self._var, outputs)))
        return self._nodes[id]

    # ---- running

    def compile(self, *args: VarNode | Sequence[VarNode]) -> Graph:
        """Choose what ``execute`` computes; gives the graph."""
        if len(args) == 1 and isinstance(args[0], (list, tuple)):
            args = tuple(args[0])
        self._compiled = _check_vars("compile", args, self)
        outputs = [(str(i), v._at) for i, v in enumerate(self._compiled)]
        model = self._ir.dump(outputs, [], self.options.graph_opt_level > 0, None, [], [])
        self._inference = GraphInference(io.BytesIO(model.write()))
        self._inference._network.set_network_algo_policy(self._strategy)
        return self

    def execute(self, *args: Any) -> None:
        """Compute with the values that the InputNodes were given, or with those given here, in the order of inputs."""
        if self._inference is None:
            raise RuntimeError("Graph.execute: nothing is compiled. graph.compile(*vars) first.")
        feeds: dict[str, Any] = {}
        needed = self._inference._inputs
        if args:
            if len(args) != len(needed):
                raise TypeError(f"Graph.execute: needs {len(needed)} values ({', '.join(needed)}); got {len(args)}.")
            feeds = dict(zip(needed, args))
        else:
            by_name = {source.outputs[0].name: source for source in self._sources}
            for name in needed:
                source = by_name.get(name)
                if source is None or source._value is None:
                    raise RuntimeError(f"Graph.execute: input {name!r} has no value. Set it, or give it to execute.")
                feeds[name] = source._value
        results = self._inference.run(inp_dict=feeds)
        for i, v in enumerate(self._compiled):
            for sink in self._sinks.get(v._at, ()):
                sink._set(v, results[str(i)])

    __call__ = execute

    def wait(self) -> None:
        """Nothing: ``execute`` returns when results are there."""

    def _to_json(self, filename: str | os.PathLike[str]) -> None:
        """Write the graph as JSON, for ``python -m megengine.tools.draw_graph``: what was compiled, or all of it."""
        text = self._ir.json
        if self._compiled:
            data, _ = dump_graph({str(i): v for i, v in enumerate(self._compiled)})
            text = json.dumps(json.loads(_core.describe_model(data))["written"])
        with replacing(os.fspath(filename)) as f:
            f.write(text.encode())

    @property
    def text(self) -> str:
        """The graph as text."""
        return self._ir.text


def _check_vars(who: str, given: Iterable[Any], graph: Graph | None = None) -> list[VarNode]:
    found = list(given)
    if not found:
        raise _core.UserError(f"{who}: needs at least one variable.")
    for v in found:
        if not isinstance(v, VarNode):
            raise TypeError(f"{who}: variables of a graph are needed; got {type(v).__name__}.")
        if v.graph is not (graph or found[0].graph):
            raise ValueError(f"{who}: {v!r} belongs to another graph.")
    return found


class InputNode(OpNode):
    """An input whose value is set between runs."""

    def __init__(
        self,
        *args: VarNode,
        device: Any = None,
        dtype: Any = None,
        shape: Any = None,
        graph: Graph | None = None,
        use_static_shape: bool = False,
    ) -> None:
        if graph is None:
            if not args:
                raise ValueError("InputNode: needs a graph to be in.")
            graph = args[0].graph
        if dtype is None:
            raise ValueError("InputNode: needs a dtype.")
        var = graph.make_h2d(dtype=dtype, device=device, shape=shape, name=graph._new_name("input"))
        super().__init__(graph, "InputCallback", {}, args, (var,))
        var._op = self
        self._value: Any = None
        graph._sources.append(self)

    def set_value(self, value: Any) -> None:
        """What the next runs compute with: a tensor or an array."""
        value = value if isinstance(value, (Tensor, np.ndarray)) else np.asarray(value, self.dtype)
        if np.dtype(value.dtype) != self.dtype:
            raise TypeError(f"InputNode.set_value: the input is {self.dtype}; got {value.dtype}. Cast it first.")
        self._value = value

    def reset(self) -> None:
        """Forget the value."""
        self._value = None

    @property
    def device(self) -> CompNode:
        """Where the input is."""
        return self.outputs[0].device

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the input."""
        return self.outputs[0].dtype


class _Output(OpNode):
    _type = "OutputCallback"

    def __init__(self, var: VarNode, *args: VarNode) -> None:
        _check_vars(type(self).__name__, (var, *args))
        super().__init__(var.graph, self._type, {}, (var, *args), (var,))
        self._result: Any = None
        var.graph._sinks.setdefault(var._at, []).append(self)

    def _set(self, var: VarNode, value: npt.NDArray[Any]) -> None:
        self._result = self._of(var, value)

    def _of(self, var: VarNode, value: npt.NDArray[Any]) -> Any:
        return Tensor(value, dtype=var.dtype, device=var.device)

    def get_value(self) -> Any:
        """What the last run gave."""
        if self._result is None:
            raise RuntimeError(f"{type(self).__name__}: {self.outputs[0]!r} has no value yet. Compile it and execute.")
        return self._result

    def drop_value(self) -> None:
        """Forget the value."""
        self._result = None

    reset = drop_value


class OutputNode(_Output):
    """Keeps a result of the runs as a tensor."""


class ValueOutputNode(_Output):
    """Keeps a result of the runs as an array."""

    def _of(self, var: VarNode, value: npt.NDArray[Any]) -> Any:
        return value


class AttrOutputNode(_Output):
    """Keeps shape, dtype and device of a result of the runs."""

    def _of(self, var: VarNode, value: npt.NDArray[Any]) -> Any:
        return TensorAttr(value.shape, var.dtype, var.device)


class VirtualDepNode(OpNode):
    """The first of some variables, which all are computed before it: nothing here acts, so it is that variable."""

    def __init__(self, vars: Sequence[VarNode], device: str = "") -> None:
        _check_vars("VirtualDepNode", vars)
        super().__init__(vars[0].graph, "VirtualDep", {}, tuple(vars), (vars[0],))


def apply_normal_varnode(op: OpDef, *args: VarNode) -> list[VarNode]:
    """The results of an op of ``megengine.core.ops`` on variables.

    A random op starts from the state that its generator has now, and goes on from run to run; the generator itself goes
    on with other numbers.
    """
    if not isinstance(op, OpDef):
        raise TypeError(f"apply_normal_varnode: needs an op of megengine.core.ops.builtin; got {type(op).__name__}.")
    inputs = _check_vars(f"apply_normal_varnode({type(op).__name__})", args)
    graph = inputs[0].graph
    ir, ids = graph._ir, [v._at for v in inputs]
    found: list[int | None]
    if op._effect == "steps":
        found = [_core.node_of(y)[2] for y in op._run(tuple(ir.tensor(i) for i in ids))]
    elif op._effect == "generator":
        from .._imperative_rt.rng_handles import generator_of

        state = generator_of(getattr(op, "handle", 0))._cell(Tensor(0.0, device=str(inputs[0].device)))
        found = ir.apply(op, [*ids, ir.add_constant(state, "")])[:-1]
        state._reset(_core.ops.rng_skip(state, n=1 << 48))
    else:
        found = ir.apply(op, ids)
    results = [i for i in found if i is not None]
    outputs = tuple(map(graph._var, results))
    params = {n: str(v.members()[0]) if isinstance(v := getattr(op, n), OpEnum) else v for n in op._fields}
    made = OpNode(graph, type(op).__name__, params, tuple(inputs), outputs)
    for i, v in enumerate(outputs):
        if v._op is None and v not in inputs:
            v._op = made
            if v._info()[4] == "result":
                v.name = repr(op) if len(outputs) == 1 else f"{op!r}:{i}"
    return list(outputs)


def load_graph(fpath: str | os.PathLike[str] | IO[bytes]) -> CompGraphLoadResult:
    """The graph in a model file: a path or an open binary file."""
    if isinstance(fpath, (str, os.PathLike)):
        with open(fpath, "rb") as f:
            data = f.read()
    else:
        data = fpath.read()
    ir = _core.Graph(data)
    ir.split_biases()
    ir.split_sizes()
    ir.name_values()
    graph = Graph(ir)
    outputs = OrderedDict((name, graph._var(id)) for name, id in ir.outputs)
    named: set[int] = set()
    for name, v in outputs.items():  # a variable that is an output twice has the first name
        if v._info()[4] == "result" and v._at not in named:
            v.name = name
            named.add(v._at)
    return CompGraphLoadResult(graph, outputs, list(outputs.values()), SerializationMetadata(ir.metadata))


def _items(metadata: Any) -> dict[str, Any]:
    if isinstance(metadata, SerializationMetadata):
        return dict(metadata.items)
    return {} if metadata is None else dict(vars(metadata))


class SerializationMetadata(SimpleNamespace):
    """What a file says of itself: the fields that the original has; ``items`` are the texts in the file."""

    def __init__(self, items: dict[str, str]) -> None:
        read = _model_file.read_metadata(items)
        super().__init__(items=items, is_valid=read is not None, user_info=None, graph_modified=False)
        self.__dict__.update({k: v for k, v in (read or {}).items() if not k.startswith("enable_")})
        self.optimized_for_inference = bool(read and read["optimized_for_inference"])
        self.optimize_options = int(items.get("optimize_options", "0"))


def dump_graph(
    output_vars: dict[str, VarNode] | Sequence[VarNode],
    *,
    keep_var_name: int = 1,
    keep_opr_name: bool = False,
    keep_param_name: bool = False,
    keep_opr_priority: bool = False,
    no_change_graph: bool = False,
    strip_info_file: Any = None,
    append_json: bool = False,
    metadata: Any = None,
    dump_format: str | None = None,
    model_version: int = 2,
) -> tuple[bytes, CompGraphDumpResult]:
    """A model file of what these variables need, and what is in it. Arguments as of ``trace.dump``."""
    version = _model_file.check_options(keep_var_name, dump_format, model_version, None, no_change_graph)
    named = dict(output_vars) if isinstance(output_vars, dict) else {}
    if not named:
        for v in output_vars:
            if not isinstance(v, VarNode):
                break
            named[v.name if v.name not in named else f"{v.name}[{len(named)}]"] = v
    found = _check_vars("dump_graph", named.values() if named else output_vars)
    info = [(k, str(v)) for k, v in _items(metadata).items()]
    outputs = [(n, v._at) for n, v in named.items()]
    model = found[0].graph._ir.dump(outputs, [], not no_change_graph, None, [], info)
    return _model_file.write(
        None, model, version=version, keep_var_name=keep_var_name, keep_opr_name=keep_opr_name,
        keep_param_name=keep_param_name, keep_opr_priority=keep_opr_priority, strip_info_file=strip_info_file,
        append_json=append_json,
    )  # fmt: skip


def _write(
    file: Any,
    named: dict[str, VarNode],
    *,
    inputs: Sequence[VarNode] = (),
    graph_modified: bool = True,
    user_info: Any = None,
    enable_metadata: bool = True,
    optimize_for_inference: bool = True,
    append: bool = False,
    keep_var_name: int = 1,
    keep_opr_name: bool = False,
    keep_param_name: bool = False,
    keep_opr_priority: bool = False,
    strip_info_file: Any = None,
    append_json: bool = False,
    dump_format: str | None = None,
    compat_older_version: str | None = None,
    rewrites: Sequence[str] = (),
    **options: Any,
) -> CompGraphDumpResult:
    version = _model_file.check_options(keep_var_name, dump_format, 2, compat_older_version, False)
    word = _model_file.option_word(options) if optimize_for_inference else None
    info = _model_file.metadata_of(user_info, word, graph_modified, enable_metadata, keep_opr_name)
    found = _check_vars("dump", named.values())
    outputs = [(n, v._at) for n, v in named.items()]
    model = found[0].graph._ir.dump(outputs, [v._at for v in inputs], True, word, rewrites, info)
    return _model_file.write(
        file, model, append=append, keep_var_name=keep_var_name, keep_opr_name=keep_opr_name,
        keep_param_name=keep_param_name, keep_opr_priority=keep_opr_priority, enable_metadata=enable_metadata,
        strip_info_file=strip_info_file, append_json=append_json, version=version, user_info=user_info, word=word,
    )[1]  # fmt: skip


def optimize_for_inference(dest_vars: Sequence[VarNode], **kwargs: Any) -> tuple[list[VarNode], int]:
    """The variables in a new graph that was rewritten for evaluation, and the options as a number.

    Options are those of ``trace.dump``: ``enable_io16xc32``, ``enable_nchw44`` …, and ``rewrites`` with the names of
    rewrites that may change values. Unknown ones are refused.
    """
    found = _check_vars("optimize_for_inference", dest_vars)
    rewrites = kwargs.pop("rewrites", ())
    word = _core.inference_word([(option, bool(value)) for option, value in kwargs.items()])
    ir = found[0].graph._ir.optimized([(str(i), v._at) for i, v in enumerate(found)], word, list(rewrites))
    graph = Graph(ir)
    results = [graph._var(id) for _, id in ir.outputs]
    for was, now in zip(found, results):
        if was._info()[0] and now._info()[4] == "result":
            now.name = was._info()[0]
    return results, word


def deserialize_infer_option(x: int) -> dict[str, bool]:
    """The options that a number of ``optimize_for_inference`` stands for.

    >>> from megengine.core.tensor.megbrain_graph import deserialize_infer_option
    >>> deserialize_infer_option(5)
    {'enable_io16xc32': True, 'enable_fuse_conv_bias_nonlinearity': True}
    """
    return dict.fromkeys(_core.inference_keywords(x), True)


def modify_opr_algo_strategy_inplace(dest_vars: Sequence[VarNode], strategy: str) -> None:
    """How kernels are chosen when the graph of these variables is next compiled.

    ``HEURISTIC``: by a rule. ``PROFILE``: by measuring, at the first run. With ``REPRODUCIBLE``, only of those that
    give the same bits with any number of threads. Names are joined by ``|`` or ``_``.
    """
    found = _check_vars("modify_opr_algo_strategy_inplace", dest_vars)
    names = {n for n in str(strategy).upper().replace("|", "_").replace(" ", "").split("_") if n}
    if not names or names - _STRATEGIES.keys():
        raise ValueError(
            f"modify_opr_algo_strategy_inplace: no strategy {strategy!r}; there are {', '.join(sorted(_STRATEGIES))}."
        )
    found[0].graph._strategy = sum(_STRATEGIES[n] for n in names)


def set_priority_to_id(dest_vars: Sequence[VarNode]) -> None:
    """Ops shall run in the order in which they were made, which they do here."""
    _check_vars("set_priority_to_id", dest_vars)
