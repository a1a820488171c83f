"""The objects of a graph that is edited: variables, which are tensors without values, and ops.

A graph of the engine (``core._core.Graph``) only grows. What is edited are these objects: an op holds its inputs and
results, and a variable stands for a value of the graph, which another takes the place of when something before it
changes. A variable is the same object for as long as its graph lives, so compare variables with ``is``.

The classes of ops are in ``network_node``, which is the public face of all this.
"""

from __future__ import annotations

import contextlib
import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from ..core import _core
from ..core._core import CompNode, ops
from ..core._trace_option import use_symbolic_shape
from ..core.ops import builtin
from ..core.tensor import megbrain_graph as G
from ..core.tensor._graph_types import named
from ..device import get_default_device
from ..tensor import Tensor

_classes: dict[str, type[OpNode]] = {}  # of ops by name; network_node fills it


class NetworkNode:
    """What variables and ops of a graph share."""


class _Table:
    """The objects of one graph: whoever comes to a value or an op of it meets the same object."""

    def __init__(self, ir: _core.Graph) -> None:
        self.ir = ir
        self.vars: dict[int, VarNode] = {}  # ids that were edited away lead to the variable that took their place
        self.ops: dict[int, OpNode] = {}  # by the id of the first result
        self.opr_names: dict[int, list[Any]] = {}  # that a file has kept, by node
        self._graph: G.Graph | None = None

    @property
    def graph(self) -> G.Graph:
        """The same graph for ``megengine.core.tensor.megbrain_graph``."""
        if self._graph is None or self._graph._ir.key != self.ir.key:
            self._graph = G.Graph(self.ir)
        return self._graph

    def var(self, id: int) -> VarNode:
        found = self.vars.get(id)
        if found is None:
            found = self.ir.tensor(id)  # calls _made
        return found

    def give(self, old: VarNode, new: VarNode) -> None:
        """Another object for a variable, to the ops that somebody has looked at."""
        for op in dict.fromkeys(self.ops.values()):
            op._inputs = [new if v is old else v for v in op._inputs]
            op._outputs = [new if v is old else v for v in op._outputs]

    def op_of(self, var: VarNode) -> OpNode:
        """The op that makes a variable."""
        id = var._id
        name, _, _, _, kind, producer = self.ir.value(id)
        if kind == "result":
            first = self.ir.node(producer)[3][0]
            if first not in self.ops:
                self.ops[first] = _op_of_node(self, producer)
            return self.ops[first]
        if id not in self.ops:
            op: OpNode
            if kind == "input":
                op = Host2DeviceCopy.__new__(Host2DeviceCopy)
            elif kind == "const":
                op = ImmutableTensor.__new__(ImmutableTensor)
            else:
                op = SharedDeviceTensor.__new__(SharedDeviceTensor)
            OpNode.__init__(op)
            op._name = name or None
            op._outputs = [var]
            self.ops[id] = op
        return self.ops[id]


_tables: weakref.WeakValueDictionary[int, _Table] = weakref.WeakValueDictionary()


def _table_of(ir: _core.Graph) -> _Table:
    table = _tables.get(ir.key)
    if table is None:
        table = _tables[ir.key] = _Table(ir)
    return table


def _made(node: VarNode) -> VarNode:
    """A new object for a variable; gives the one that the variable already has."""
    ir, _, id = _core.node_of(node)
    table = _table_of(ir)
    known = table.vars.setdefault(id, node)
    if known is node:
        node._table = table
    return known


def _joined(key: int, other: int, ir: _core.Graph, ids: list[int]) -> None:
    """A graph has been put into another one: its objects go along."""
    gone = _tables.get(other)
    table = _table_of(ir)
    if gone is None:
        return
    for id, var in gone.vars.items():
        table.vars[ids[id]] = var
        var._table = table
    for id, op in gone.ops.items():
        table.ops[ids[id]] = op
    gone.ir = ir
    gone.vars, gone.ops = table.vars, table.ops


class VarNode(NetworkNode, Tensor):
    """A variable of a graph. It is a tensor without a value: functions of it become ops of the graph.

    Compare variables with ``is``; ``==`` is the elementwise op, and the truth of a variable is always False, as in the
    original, so that ``v in list`` means the same object.
    """

    _table: _Table

    def __new__(cls, var: G.VarNode, *, owner_opr: OpNode | None = None, name: str | None = None) -> VarNode:
        """The variable that a ``megbrain_graph.VarNode`` is."""
        if not isinstance(var, G.VarNode):
            raise TypeError(f"VarNode: a variable of a graph is needed; got {type(var).__name__}.")
        node = _table_of(var.graph._ir).var(var._at)
        if name is not None:
            node.name = name
        return node

    @classmethod
    def load(cls, sym_var: G.VarNode, owner_opr: OpNode) -> VarNode:
        """The same with its op."""
        return cls(sym_var, owner_opr=owner_opr)

    @property
    def _id(self) -> int:
        id: int = _core.node_of(self)[2]
        return id

    id = property(lambda self: 2 * self._id + 1, doc="Its number in the graph; an edit before it gives it another.")

    @property
    def name(self) -> str:
        """Its name; empty for results of functions that nobody named."""
        return str(self._table.ir.value(self._id)[0])

    @name.setter
    def name(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"VarNode.name: a string is needed; got {type(name).__name__}.")
        self._table.ir.set_name(self._id, name)

    @property
    def graph(self) -> G.Graph:
        """The graph that it is in."""
        return self._table.graph

    @property
    def var(self) -> G.VarNode:
        """It as a variable of ``megengine.core.tensor.megbrain_graph``."""
        _settle([self])
        return self.graph._var(self._id)

    @property
    def owner(self) -> OpNode:
        """The op that makes it."""
        return self._table.op_of(self)

    @property
    def users(self) -> list[OpNode]:
        """The ops that read it, as far as somebody has looked at them."""
        return [op for op in dict.fromkeys(self._table.ops.values()) if any(i is self for i in op._inputs)]

    def set_owner_opr(self, owner_opr: OpNode) -> None:
        """An op says that this is a result of it."""
        if not any(v is self for v in owner_opr._outputs):
            owner_opr.add_out_var(self)

    @property
    def partial_shape(self) -> tuple[int, ...]:
        """Its sizes, for the declared ones of the inputs."""
        _settle([self])
        return tuple(self._table.ir.value(self._id)[2])

    @property
    def shape(self) -> Any:
        """Its sizes: a tuple, or with ``set_symbolic_shape(True)`` a variable that follows the sizes of the inputs."""
        if use_symbolic_shape():
            _settle([self])
            return self._sizes()
        return self.partial_shape

    def _sizes(self) -> Any:
        from .network_sizes import as_sizes

        return as_sizes(ops.shape_of(self))

    _tuple_shape = partial_shape

    def _beside(self, value: Tensor) -> VarNode:
        """A constant of its graph, for functions that begin with one."""
        _settle([self])
        return self._table.var(self._table.ir.add_constant(value, ""))

    def shapeof(self, axis: int) -> VarNode:
        """One size, as a variable."""
        _settle([self])
        if not -self.ndim <= axis < self.ndim:
            raise IndexError(f"shapeof: {self!r} has {self.ndim} axes; got axis {axis}.")
        return cast(VarNode, self._sizes()[axis])

    def _reset(self, other: Any) -> None:
        """From now on this object stands for another variable; ops go on with the one they have."""
        if not isinstance(other, VarNode):
            raise TypeError(f"VarNode: it can stand for another variable; got {type(other).__name__}. Use make_const.")
        if other is not self:
            with self._moving():
                super()._reset(other)
                self._table = other._table

    @contextlib.contextmanager
    def _moving(self) -> Iterator[None]:
        """It may stand for another variable afterwards."""
        table, id = self._table, self._id
        yield
        if table is self._table and id == self._id:
            return
        if table.vars.get(id) is self:
            del table.vars[id]
            table.give(self, table.var(id))
        other = self._table.vars.get(self._id)
        self._table.vars[self._id] = self
        if other is not None:
            self._table.give(other, self)

    def __setitem__(self, key: Any, value: Any) -> None:
        with self._moving():
            super().__setitem__(key, value)

    def __bool__(self) -> bool:
        return False

    def __deepcopy__(self, memo: Any) -> VarNode:
        raise TypeError("VarNode: a variable belongs to its graph and cannot be copied. Network.load reads it again.")

    def __reduce__(self) -> Any:
        raise TypeError(
            "VarNode: a variable belongs to its graph and cannot be pickled. Network.dump writes the graph."
        )

    def __repr__(self) -> str:
        return f"VarNode:{self.name}"

    __str__ = __repr__


def _in_place(name: str) -> Callable[[VarNode, Any], VarNode]:
    compute = getattr(Tensor, name)

    def method(self: VarNode, other: Any) -> VarNode:
        with self._moving():
            compute(self, other)
        return self

    return method


for _name in "iadd isub imul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift".split():
    setattr(VarNode, f"__{_name}__", _in_place(f"__{_name}__"))


def _other_values(value: Any, was: Any, now: Any) -> Iterator[Any]:
    """An attribute in which ``now`` stands where ``was`` stood: as it is, in small letters, or as one of several."""
    if isinstance(value, str) and isinstance(was, str) and isinstance(now, str):
        if value.lower() == was.lower():
            yield now if value == was else now.lower()
    elif isinstance(value, (tuple, list)):
        if isinstance(was, (tuple, list)) and list(value) == list(was):
            yield list(now) if isinstance(now, (tuple, list)) else now
        for i, one in enumerate(value):
            if one == was and type(one) is type(now):
                yield [*value[:i], now, *value[i + 1 :]]
    elif value == was:
        yield now


def _ways_to_describe(
    op: str, attrs: dict[str, Any], shapes: Any, was: dict[str, Any], now: dict[str, Any]
) -> list[dict[str, Any]]:
    """Attributes, changed where parameters have, of which the op has the parameters ``now`` and no others."""
    ways: list[dict[str, Any]] = [{}]
    for key, value in now.items():
        if key in was and value == was[key]:
            continue
        found = []
        for way in ways:
            for name in attrs:
                for other in _other_values(way.get(name, attrs[name]), was.get(key), value):
                    found.append({**way, name: other})
        ways = found
    right: list[dict[str, Any]] = []
    for way in ways:
        try:
            described = named(op, {**attrs, **way}, shapes)[1]
        except (ValueError, TypeError, IndexError):
            continue
        if described == now and way not in right:
            right.append(way)
    return right


class OpNode(NetworkNode):
    """An op of a graph.

    ``inputs`` and ``outputs`` are lists of variables, ``params`` the parameters by the names of ``opdef``. Other inputs
    and parameters take effect when the graph is next looked at or dumped.
    """

    opdef: ClassVar[Any] = None
    type: Any = None

    def __init__(self) -> None:
        self._inputs: list[VarNode] = []
        self._outputs: list[VarNode] = []
        self.params: dict[str, Any] = {}
        self._built: dict[str, Any] = {}  # the parameters that the graph has
        self._name: str | None = None

    @classmethod
    def load(cls, opr: G.OpNode) -> OpNode:
        """The op that a ``megbrain_graph.OpNode`` is."""
        if not isinstance(opr, G.OpNode) or not opr.outputs:
            raise TypeError(f"OpNode.load: an op of a graph is needed; got {type(opr).__name__}.")
        return VarNode(opr.outputs[0]).owner

    @property
    def id(self) -> int:
        """A number that no other op has."""
        return id(self)

    @property
    def priority(self) -> tuple[int, int]:
        """Ops run in the order in which they were made."""
        return (0, 2 * self._outputs[0]._id if self._outputs else 0)

    @property
    def name(self) -> str:
        """Its name; an input is known by it in the file."""
        if self._name is None:
            label = self.params.get("mode") if self.opdef is builtin.Elemwise else None
            label = label or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(self.type)).lower()
            shown = ",".join(str(getattr(v, "name", v)) for v in self._inputs[:4]) + (
                ",..." if len(self._inputs) > 4 else ""
            )
            self._name = f"{label}({shown})[{self.priority[1]}]"
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError(f"OpNode.name: a name is needed; got {name!r}.")
        self._name = name
        if not self._inputs and self._outputs:
            self._outputs[0]._table.ir.set_name(self._outputs[0]._id, name)

    @property
    def inputs(self) -> list[VarNode]:
        """The variables that it reads."""
        return self._inputs

    @property
    def outputs(self) -> list[VarNode]:
        """The variables that it makes."""
        return self._outputs

    def add_inp_var(self, x: VarNode) -> None:
        """One more input."""
        if not isinstance(x, VarNode):
            raise TypeError(f"add_inp_var: a variable is needed; got {type(x).__name__}.")
        self._inputs.append(x)

    def add_out_var(self, x: VarNode) -> None:
        """One more result."""
        if not isinstance(x, VarNode):
            raise TypeError(f"add_out_var: a variable is needed; got {type(x).__name__}.")
        self._outputs.append(x)

    def compile(self) -> None:
        """Bring the graph up to date with inputs and parameters."""
        _settle(self._outputs)

    def _node(self) -> Any:
        """(op, attributes, inputs, results, line, sizes) in the graph; None for inputs and constants."""
        out = self._outputs[0]
        kind, producer = out._table.ir.value(out._id)[4:]
        return (producer, *out._table.ir.node(producer)) if kind == "result" else None

    def _remade(self, ir: _core.Graph, inputs: list[int], sizes: list[int]) -> list[int]:
        """The results of the op with the parameters that it has now.

        Parameters are a description of the op's attributes, so a way to change them is taken where it can be shown to
        be right: the op that comes out is described by the parameters that were asked for.
        """
        changed = {k: v for k, v in self.params.items() if k not in self._built or v != self._built[k]}
        opdef = type(self).opdef
        known = sorted({*self._built, *(opdef._fields if opdef else ())})
        if unknown := sorted(set(changed) - set(known)):
            raise ValueError(f"{self.type} has no parameter {', '.join(unknown)}; it has {', '.join(known)}.")
        node = self._node()
        assert node is not None
        producer, op, attrs, *_ = node
        shapes = [ir.value(i)[2] for i in inputs]
        ways = _ways_to_describe(op, attrs, shapes, self._built, self.params)
        if len(ways) == 1:
            found = ir.again(producer, inputs, sizes, ways[0])
        elif opdef is not None and self._same(ir, opdef, inputs, op, attrs):
            found = [i for i in ir.apply(opdef(**self.params), [*inputs, *sizes]) if i is not None]
        else:
            raise NotImplementedError(
                f"the parameters of {self.type} cannot be changed ({', '.join(sorted(changed or known))}). "
                "Make the op anew, with a function of its inputs, and use replace_oprs."
            )
        if len(found) != len(self._outputs):
            raise ValueError(f"{len(found)} results instead of {len(self._outputs)}.")
        return found

    def _same(self, ir: _core.Graph, opdef: Any, inputs: list[int], op: str, attrs: dict[str, Any]) -> bool:
        """Whether the op class makes this very op of the parameters that it has."""
        try:
            first = next(i for i in ir.apply(opdef(**self._built), inputs) if i is not None)
        except (ValueError, TypeError, RuntimeError, StopIteration):
            return False
        kind, producer = ir.value(first)[4:]
        return kind == "result" and ir.node(producer)[:3] == (op, attrs, inputs)

    def __repr__(self) -> str:
        mode = self.params.get("mode") if self.opdef in (builtin.Elemwise, builtin.ElemwiseMultiType) else None
        return f"{self.name}{{{self.type}{f':{mode}' if mode else ''}}}"


def _op_of_node(table: _Table, producer: int) -> OpNode:
    """A new object for an op of the graph."""
    op, attrs, inputs, outputs, _, sizes = table.ir.node(producer)
    kind, params = named(op, attrs, [table.ir.value(i)[2] for i in inputs])
    cls = _classes.get(kind, ReadOnlyOpNode)
    node: OpNode = cls.__new__(cls)
    OpNode.__init__(node)
    if cls is ReadOnlyOpNode:
        node.type = kind
    node.params, node._built = dict(params), params
    node._name = table.opr_names.get(producer, [None])[-1]
    node._inputs = [table.var(i) for i in (*inputs, *sizes)]
    node._outputs = [table.var(o) for o in outputs]
    return node


def _order(roots: Iterable[VarNode], who: str = "graph") -> list[OpNode]:
    """The ops that variables need, each after those it reads; inputs and constants where they are first needed."""
    order: list[OpNode] = []
    state: dict[OpNode, int] = {}  # 1: on the way, 2: done
    stack = [(v.owner, False) for v in reversed(list(roots))]
    while stack:
        op, ready = stack.pop()
        if ready:
            state[op] = 2
            order.append(op)
            continue
        if op in state:
            continue
        state[op] = 1
        stack.append((op, True))
        # Constants come last, right before the op.
        for v in op._inputs:
            if not isinstance(v, VarNode):
                raise TypeError(f"{who}: {op!r} has {v!r} among its inputs; they are variables. make_const makes one.")
        sources = [v.owner for v in op._inputs]
        for source in [*(s for s in sources if s._inputs), *(s for s in sources if not s._inputs)][::-1]:
            if state.get(source) == 1:
                circle = [o.name for o, s in state.items() if s == 1]
                names = " <- ".join([*circle[circle.index(source.name) :], source.name])
                raise ValueError(f"{who}: the graph would go in a circle: {names}.")
            if source not in state:
                stack.append((source, False))
    return order


def _settle(roots: Sequence[VarNode], who: str = "graph") -> None:
    """Bring the graph up to date with its objects: ops whose inputs or parameters have changed are made anew.

    Nothing has changed when it fails.
    """
    roots = [v for v in roots if v is not None]
    if not roots:
        return
    ir = roots[0]._table.ir
    fresh: dict[VarNode, int] = {}
    renewed: list[tuple[OpNode, dict[str, Any]]] = []
    order = _order(roots, who)
    for v in {id(v): v for op in order for v in (*op._inputs, *op._outputs)}.values():
        if v._table.ir.key != ir.key:
            ir.join(v._table.ir)
    for op in order:
        node = op._node()
        if node is None:
            continue
        producer, _, _, inputs, outputs, _, sizes = node
        want = [fresh.get(v, v._id) for v in op._inputs]
        changed = op.params != op._built
        if want == [*inputs, *sizes] and not changed:
            continue
        try:
            if changed:
                results = op._remade(ir, want[: len(inputs)], want[len(inputs) :])
            elif len(want) != len(inputs) + len(sizes):
                raise ValueError(f"it reads {len(inputs) + len(sizes)} variables; got {len(want)}.")
            elif op.opdef is builtin.Elemwise and any(ir.value(a)[1] != ir.value(b)[1] for a, b in zip(want, inputs)):
                results = _promoted(ir, op, want)
            else:
                results = ir.again(producer, want[: len(inputs)], want[len(inputs) :])
        except Exception as e:
            kind = type(e) if isinstance(e, (ValueError, TypeError, NotImplementedError)) else RuntimeError
            raise kind(f"{who}: {op!r} cannot be made of its inputs {op._inputs}: {e}") from None
        fresh.update(zip(op._outputs, results))
        renewed.append((op, dict(op.params)))
    if not fresh:
        return
    guarded = ir.guards
    table = roots[0]._table
    if guarded:
        _settle_guards(table, guarded, fresh, who)
    for v, now in fresh.items():
        name = v.name
        _core.set_node(v, ir, now)
        table.vars[now] = v
        v.name = name
    for op, params in renewed:
        op._built = params
        table.ops[op._outputs[0]._id] = op
        node = op._node()
        if node is not None and node[-1]:  # what follows from sizes is another number now
            described = named(node[1], node[2], [ir.value(i)[2] for i in node[3]])[1]
            op.params, op._built = dict(described), described


def _promoted(ir: _core.Graph, op: OpNode, want: list[int]) -> list[int]:
    """An elementwise op of inputs of other dtypes, which meet as in functions of tensors (``set_value(2)``)."""
    results = [i for i in ir.apply(builtin.Elemwise(**op.params), want) if i is not None]
    for now, v in zip(results, op._outputs):
        ir.set_name(now, v.name)
    return results


def _settle_guards(table: _Table, guarded: list[int], fresh: dict[VarNode, int], who: str) -> None:
    """What the recorded function read as numbers must be as it was."""
    ir = table.ir
    moved: dict[int, int] = {v._id: now for v, now in fresh.items()}
    for op in _order([table.var(i) for i in guarded]):
        node = op._node()
        if node is None or op._outputs[0] in fresh:
            continue
        producer, _, _, inputs, outputs, _, sizes = node
        want = [fresh.get(v, v._id) for v in op._inputs]
        if want != [*inputs, *sizes]:
            results = ir.again(producer, want[: len(inputs)], want[len(inputs) :])
            fresh.update(zip(op._outputs, results))
            moved.update(zip(outputs, results))
    try:
        ir.moved(list(moved.items()))
    except ValueError as e:
        raise ValueError(f"{who}: {e}") from None


class Host2DeviceCopy(OpNode):
    """An input: what a caller feeds under its name."""

    type = "Host2DeviceCopy"

    def __init__(self, shape: Any = None, dtype: Any = None, name: str | None = None, device: Any = None) -> None:
        super().__init__()
        self._shape, self._dtype, self._device = shape, dtype, device
        self._name = name

    def compile(self, graph: G.Graph | None = None) -> None:
        """Put the input into a graph; once it is there, nothing."""
        if self._outputs:
            return
        if graph is None:
            raise ValueError("Host2DeviceCopy.compile: needs the graph to be in. Network.make_input_node is simpler.")
        if self._shape is None or self._dtype is None:
            raise ValueError(f"Host2DeviceCopy: input {self._name!r} needs a shape and a dtype.")
        _make_input(_table_of(graph._ir), self)


def _make_input(table: _Table, op: Host2DeviceCopy) -> VarNode:
    if op._name is None:
        op._name = table_name(table, "input")
    device = op._device if op._device is not None else get_default_device()
    id = table.ir.add_input(op._name, op._dtype, tuple(op._shape), device)
    var = table.var(id)
    op._outputs = [var]
    table.ops[id] = op
    return var


def table_name(table: _Table, kind: str) -> str:
    """A name that no variable of the graph has."""
    taken, n = {v.name for v in table.vars.values()}, 0
    while f"{kind}[{n}]" in taken:
        n += 1
    return f"{kind}[{n}]"


class ConstOpBase(OpNode):
    """A constant, whose value may be set."""

    type = "ConstOpBase"

    def __init__(
        self, data: Any = None, name: str | None = None, device: Any = None, graph: G.Graph | None = None
    ) -> None:
        super().__init__()
        self._name = name
        self._data = None if data is None else _const_tensor(data, device)
        if graph is not None:
            self.compile(graph)

    @property
    def _var(self) -> VarNode:
        if not self._outputs:
            raise ValueError(f"{self!r} is in no graph yet. Network.make_const makes a constant in its graph.")
        return self._outputs[0]

    def compile(self, graph: G.Graph | None = None) -> None:
        """Put the constant into a graph; once it is there, nothing."""
        if self._outputs:
            return
        if graph is None or self._data is None:
            raise ValueError(f"{type(self).__name__}.compile: needs data and the graph to be in.")
        _make_const(_table_of(graph._ir), self, self._data)

    def set_value(self, data: Any, device: Any = None) -> None:
        """Another value. What is computed from it must fit, which is checked when the graph is next looked at."""
        value = _const_tensor(data, device)
        if self._outputs:
            _make_const(self._outputs[0]._table, self, value)
        else:
            self._data = value

    def numpy(self) -> npt.NDArray[Any]:
        """The value."""
        if not self._outputs and self._data is not None:
            return np.array(self._data.numpy())
        value = self._var._table.ir.constant(self._var._id)
        return np.array(value.numpy())

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the value."""
        return self._var.partial_shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the value."""
        return self._var.dtype

    @property
    def device(self) -> CompNode:
        """Where the value is."""
        return self._var.device


def _const_tensor(data: Any, device: Any) -> Tensor:
    if isinstance(data, VarNode):
        raise TypeError(f"a constant is made of numbers; got the variable {data!r}. Use replace_vars.")
    if isinstance(data, Tensor):
        return data if device is None else data.to(device)
    return Tensor(np.atleast_1d(data), device=device)  # numbers have one axis in the original's graphs


def _make_const(table: _Table, op: ConstOpBase, value: Tensor) -> VarNode:
    if op._name is None:
        op._name = table_name(table, "const")
    id = table.ir.add_constant(value, op._name)
    if op._outputs:
        var = op._outputs[0]
        _core.set_node(var, table.ir, id)
        table.vars[id] = var
    else:
        var = table.var(id)
        op._outputs = [var]
    table.ops[id] = op
    return var


class ImmutableTensor(ConstOpBase):
    """A constant of the file."""

    type = "ImmutableTensor"
    rt_fun = staticmethod(G.Graph.make_const)


class SharedDeviceTensor(ConstOpBase):
    """A constant that several graphs may share; here the same as ImmutableTensor."""

    type = "SharedDeviceTensor"
    rt_fun = staticmethod(G.Graph.make_const)


class ReadOnlyOpNode(OpNode):
    """An op that the original's ``network_node`` has no class for. Its parameters cannot be changed, its inputs can."""


_core.set_node_type(VarNode, _made, _joined)
