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
import re
import threading
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterable, Sequence
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
from ._graph_metadata import SerializationMetadata
from ._graph_types import named

__all__ = [
    "AttrOutputNode",
    "CompGraphDumpResult",
    "CompGraphLoadResult",
    "Graph",
    "InputNode",
    "OpNode",
    "OutputNode",
    "SerializationMetadata",
    "TensorAttr",
    "ValueOutputNode",
    "VarNode",
    "VirtualDepNode",
    "apply_normal_varnode",
    "deserialize_infer_option",
    "dump_graph",
    "input_callback",
    "load_graph",
    "modify_opr_algo_strategy_inplace",
    "optimize_for_inference",
    "output_callback",
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
    def shape(self) -> tuple[int, ...] | None:
        """Its sizes, for the declared ones of the inputs; None as long as an input without a shape has no value."""
        return None if self in self.graph._guessed else tuple(self._info()[2])

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
        self._sinks: dict[VarNode, list[_Output]] = {}
        # Inputs without a shape stand in the graph with a guessed one, and what follows from them is made anew when
        # their values are known: (name, dtype, device, variable), and (op, inputs, results) in order.
        self._open: list[tuple[str, Any, Any, VarNode]] = []
        self._steps: list[tuple[OpDef, list[VarNode], list[VarNode]]] = []
        self._guessed: set[VarNode] = set()
        self._shapes: list[tuple[int, ...]] = []
        self._inference: GraphInference | None = None
        self._compiled: list[VarNode] = []
        self._fresh = 0
        self._waits = False  # a run for the values of InputNodes
        self._aside: threading.Thread | None = None  # a run whose inputs are asked for
        self._error: BaseException | None = None
        self._strategy = _STRATEGIES["HEURISTIC"]
        self.options = SimpleNamespace(graph_opt_level=2, async_exec_level=1, log_level=0)

    # ---- making

    def make_h2d(self, *, dtype: Any, device: Any = None, shape: Any = None, name: str | None = None) -> VarNode:
        """An input, known by its name in a dumped file. Other sizes of the same rank may be fed.

        Without a shape it can be compiled and run with what an InputNode is given, and not be dumped.
        """
        name = name or self._new_name("h2d")
        if shape is not None:
            return self._var(self._ir.add_input(name, dtype, shape, device))
        self._shapes.append((1,) * (len(self._shapes[-1]) if self._shapes else 1))
        var = self._var(self._ir.add_input(name, dtype, self._shapes[-1], device))
        self._open.append((name, dtype, device, var))
        self._guessed.add(var)
        return var

    def _settle(self, shapes: list[tuple[int, ...]]) -> None:
        """Make the inputs without a shape, and what follows from them, anew for these."""
        made = {}
        for (name, dtype, device, var), shape in zip(self._open, shapes):
            made[var] = self._ir.add_input(name, dtype, shape, device)
        for op, inputs, outputs in self._steps:
            ids = _emit(self, op, [made.get(v, v._at) for v in inputs])
            made.update(zip(outputs, ids))
        for var, id in made.items():
            name, var._at = var.name, id
            var.name = name
            self._vars[id] = var
        self._shapes = shapes

    def _results(self, op: OpDef, inputs: list[VarNode]) -> list[VarNode]:
        ids = [v._at for v in inputs]
        if self._guessed.isdisjoint(inputs):
            return [self._var(i) for i in _emit(self, op, ids)]
        ranks = list(dict.fromkeys([*map(len, self._shapes), 1, 2, 4, 3, 5]))
        error: ValueError | None = None
        for rank in [None, *ranks]:
            try:
                if rank is not None:
                    self._settle([(1,) * rank] * len(self._open))
                results = [self._var(i) for i in _emit(self, op, [v._at for v in inputs])]
                break
            except ValueError as e:  # shapes; dtypes are known
                error = e
        else:
            names = ", ".join(repr(name) for name, *_ in self._open)
            raise ValueError(
                f"apply_normal_varnode({type(op).__name__}): the results of inputs without a shape are not known "
                f"({error}). Give shape= to {names}; other sizes of that rank may be fed."
            ) from error
        self._steps.append((op, inputs, results))
        self._guessed.update(results)
        return results

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
        self._inference = None
        if self._guessed.isdisjoint(self._compiled):
            self._make()
        return self

    def _make(self) -> None:
        outputs = [(str(i), v._at) for i, v in enumerate(self._compiled)]
        model = self._ir.dump(outputs, [], self.options.graph_opt_level > 0, None, [], [])
        self._inference = GraphInference(io.BytesIO(model.write()))
        self._inference._network.set_network_algo_policy(self._strategy)

    def execute(self, *args: Any) -> None:
        """Compute with the values that the InputNodes were given, or with those given here, in the order of inputs.

        Where an InputNode has none yet, the run begins when it is set. Inputs with a callback are asked for theirs by
        a thread, which ``wait`` and ``get_value`` wait for.
        """
        if not self._compiled:
            raise RuntimeError("Graph.execute: nothing is compiled. graph.compile(*vars) first.")
        self._waits = False
        self.wait()
        if args:
            self._run(args)
        else:
            self._waits = True
            self._begin()

    def _begin(self) -> None:
        """The run that waits, once all its values are there."""
        sources = self._needed()
        if not self._waits or any(s._value is None and s._callback is None for s in sources):
            return
        self._waits = False
        if all(s._callback is None for s in sources):
            return self._run(())
        self._aside = threading.Thread(target=self._ask, args=(sources,), daemon=True)
        self._aside.start()

    def _ask(self, sources: list[InputNode]) -> None:
        try:
            for source in sources:
                if source._callback is not None:
                    source._value = source._checked(source._callback())
            self._run(())
        except BaseException as e:  # for whoever waits
            self._error = e

    def _needed(self) -> list[InputNode]:
        """The InputNodes that the compiled variables are computed from."""
        seen: set[VarNode] = set()
        todo = [*self._compiled]
        while todo:
            var = todo.pop()
            if var not in seen:
                seen.add(var)
                todo += var.op.inputs
        return [s for s in self._sources if s.outputs[0] in seen]

    def wait(self) -> None:
        """Until the results of the run are there."""
        aside = self._aside
        if aside is not None and aside is not threading.current_thread():
            aside.join()
            self._aside = None
            error, self._error = self._error, None
            if error is not None:
                raise error
        if self._waits:
            missing = ", ".join(repr(s.outputs[0].name) for s in self._needed() if s._value is None)
            raise RuntimeError(f"Graph.execute: the run waits for the value of {missing}. Set it with set_value().")

    def _run(self, args: Sequence[Any]) -> None:
        if self._open:
            self._settle_by_values()
        if self._inference is None:
            self._make()
        assert self._inference is not None
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
            for sink in self._sinks.get(v, ()):
                sink._set(v, results[str(i)])

    __call__ = execute

    def _settle_by_values(self) -> None:
        by_var = {source.outputs[0]: source for source in self._sources}
        shapes = []
        for (name, _, _, var), shape in zip(self._open, self._shapes):
            source = by_var.get(var)
            if source is None or source._value is None:
                if var in self._guessed and self._guessed.intersection(self._compiled):
                    raise RuntimeError(
                        f"Graph.execute: input {name!r} has neither shape nor value. Give it a shape, or make an "
                        "InputNode and set its value."
                    )
                shapes.append(shape)
            else:
                shapes.append(tuple(source._value.shape))
        if self._guessed or shapes != self._shapes:
            self._settle(shapes)
            self._guessed.clear()
            self._inference = None

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
        self._callback: Callable[[], Any] | None = None
        graph._sources.append(self)

    def set_value(self, value: Any) -> None:
        """What the next runs compute with, and a run that waits for it: a tensor or an array."""
        self._value = self._checked(value)
        self.graph._begin()

    def _checked(self, value: Any) -> Any:
        value = value if isinstance(value, (Tensor, np.ndarray)) else np.asarray(value, self.dtype)
        if np.dtype(value.dtype) != self.dtype:
            raise TypeError(f"InputNode.set_value: the input is {self.dtype}; got {value.dtype}. Cast it first.")
        return value

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
        var.graph._sinks.setdefault(var, []).append(self)

    def _set(self, var: VarNode, value: npt.NDArray[Any]) -> None:
        self._result = self._of(var, value)

    def _of(self, var: VarNode, value: npt.NDArray[Any]) -> Any:
        return Tensor(value, dtype=var.dtype, device=var.device)._dev_tensor()

    def get_value(self) -> Any:
        """What the last run gave, once it is over."""
        self.graph.wait()
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


class _Told(_Output):
    def __init__(self, callback: Callable[[Tensor], Any], var: VarNode, *args: VarNode) -> None:
        super().__init__(var, *args)
        self._callback = callback

    def _set(self, var: VarNode, value: npt.NDArray[Any]) -> None:
        self._callback(self._of(var, value))


def input_callback(
    callback: Callable[[], Any],
    *args: VarNode,
    device: Any = None,
    dtype: Any = None,
    shape: Any = None,
    graph: Graph | None = None,
) -> tuple[VarNode, VarNode]:
    """An input whose value each run asks ``callback`` for, and what may be depended on."""
    node = InputNode(*args, device=device, dtype=dtype, shape=shape, graph=graph)
    node._callback = callback
    return node.outputs[0], node.outputs[0]


def output_callback(callback: Callable[[Tensor], Any], var: VarNode, *args: VarNode) -> VarNode:
    """A variable to compile; each run tells its value to ``callback``.

    >>> graph, told = Graph(), []
    >>> x, _ = input_callback(lambda: Tensor([1.0, 2.0]), dtype="float32", graph=graph)
    >>> graph.compile(output_callback(told.append, x)).execute()
    >>> graph.wait()
    >>> told[0].tolist()
    [1.0, 2.0]
    """
    return _Told(callback, var, *args).outputs[0]


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
    outputs = tuple(graph._results(op, inputs))
    params = {n: str(v.members()[0]) if isinstance(v := getattr(op, n), OpEnum) else v for n in op._fields}
    made = OpNode(graph, type(op).__name__, params, tuple(inputs), outputs)
    for i, v in enumerate(outputs):
        if v._op is None and v not in inputs:
            v._op = made
            if v._info()[4] == "result":
                v.name = repr(op) if len(outputs) == 1 else f"{op!r}:{i}"
    return list(outputs)


def _emit(graph: Graph, op: OpDef, ids: list[int]) -> list[int]:
    """The results of an op in the graph, by their ids."""
    ir = graph._ir
    found: list[int | None]
    if op._effect == "steps":
        found = [_core.node_of(y)[2] for y in op._run(tuple(ir.tensor(i) for i in ids))]
    elif op._effect == "generator":
        from .._imperative_rt.rng_handles import generator_of

        state = generator_of(getattr(op, "handle", 0))._cell(Tensor(0.0, device=str(ir.value(ids[0])[3])))
        found = ir.apply(op, [*ids, ir.add_constant(state, "")])[:-1]
        state._reset(_core.ops.rng_skip(state, n=1 << 48))
    else:
        found = ir.apply(op, ids)
    return [i for i in found if i is not None]


def load_graph(fpath: str | os.PathLike[str] | IO[bytes]) -> CompGraphLoadResult:
    """The graph in a model file: a path or an open binary file."""
    if isinstance(fpath, (str, os.PathLike)):
        with open(fpath, "rb") as f:
            data = f.read()
    elif hasattr(fpath, "read"):
        data = fpath.read()
    else:
        raise TypeError(f"load_graph: a path or an open binary file is needed; got {fpath!r}.")
    ir = _core.Graph(data)
    ir.split_biases()
    ir.split_sizes()
    ir.name_values()
    graph = Graph(ir)
    outputs = OrderedDict((name, graph._var(id)) for name, id in ir.outputs)
    found = list(outputs.values())
    for i, (name, v) in enumerate(outputs.items()):
        # A result is called as the output it is, its op as before.
        if v._info()[4] == "result" and v not in found[:i] and not re.fullmatch(r"unnamed\d+", name):
            v.op.name, v.name = v.op.name, name
    return CompGraphLoadResult(graph, outputs, found, SerializationMetadata(ir.metadata))


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
    metadata: SerializationMetadata | Any = None,
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
    if not found[0].graph._guessed.isdisjoint(found):
        names = ", ".join(repr(name) for name, *_ in found[0].graph._open)
        raise ValueError(
            f"dump_graph: {names} was made without a shape, and a file needs one "
            "to say what its ops do. Give shape= to make_h2d or InputNode; other sizes of that rank may be fed."
        )
    if metadata is None or isinstance(metadata, SerializationMetadata):
        info = metadata._written() if metadata is not None and metadata.is_valid else []
    else:
        info = [(k, str(v)) for k, v in vars(metadata).items()]
    outputs = [(n, v._at) for n, v in named.items()]
    model = found[0].graph._ir.dump(outputs, [], not no_change_graph, None, [], info)
    return _model_file.write(
        None, model, version=version, keep_var_name=keep_var_name, keep_opr_name=keep_opr_name,
        keep_param_name=keep_param_name, keep_opr_priority=keep_opr_priority, strip_info_file=strip_info_file,
        append_json=append_json, enable_metadata=bool(info) or metadata is None,
        pickled=getattr(metadata, "user_info", None), word=getattr(metadata, "optimize_options", None),
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
    _model_file.check_files(file, strip_info_file)
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
