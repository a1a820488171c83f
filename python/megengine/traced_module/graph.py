"""InternalGraph: the expressions of one traced call of a module."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from copy import copy, deepcopy
from typing import TYPE_CHECKING, Any

from ..module.module import Module
from ..tensor import Tensor
from .expr import Apply, CallFunction, CallMethod, Constant, Expr, GetAttr, Input
from .filters import ExprFilter, NodeFilter
from .naming import NameSpace
from .node import ModuleNode, Node, TensorNode
from .parts import flat_state
from .pytree import _is_const_leaf, tree_flatten

if TYPE_CHECKING:
    from .traced_module import TracedModule


class _EndPoints(Exception):
    """Every node that was asked for has its value."""


class InternalGraph:
    """The expressions of one call of a module, in the order they run. ``inputs[0]`` is the module itself.

    Args:
        name: unique in the graph of the module that holds this one.
        qualname: the dotted path from the root module.

    >>> from megengine.traced_module import trace_module
    >>> print(str(trace_module(M.Sequential(M.ReLU()), F.ones(3)).graph).expandtabs(2))
    Sequential.Graph (self, inp) {
      %2: _0 = getattr(self, "0") -> (ReLU)
      %3: _0_out = _0(inp, )
      return _0_out
    }
    """

    __module__ = "megengine.traced_module.traced_module"

    def __init__(self, name: str, qualname: str) -> None:
        self._exprs: list[Expr] = []
        self._inputs: list[Node] = []
        self._outputs: list[Node] = []
        self._watch_point: list[Node] = []
        self._end_point: list[Node] = []
        self._namespace = NameSpace(name, qualname)
        self._rst: dict[Node, list[Any]] = defaultdict(list)
        self._name = name
        self._qualname = qualname
        self._total_ids: tuple[int, int] = (0, 0)
        self._top: weakref.ref[InternalGraph] | None = None  # the graph of the root module
        self._parent: weakref.ref[InternalGraph] | None = None
        self._owner: Any = None  # the TracedModule, weakly
        self._cursor: int | None = None  # where insert_exprs puts the next expression

    # ---- what it is

    @property
    def name(self) -> str:
        """The name, unique among the names of the graph above it."""
        return self._name

    @name.setter
    def name(self, new_name: str) -> None:
        parent = None if self._parent is None else self._parent()
        if parent is not None and new_name != self._name:
            assert new_name not in parent._namespace.used_names, (
                f"The name({new_name}) is already in use. Please try a different one again."
            )
            parent._namespace.unassociate_name_with_obj(self)
            parent._namespace.associate_name_with_obj(new_name, self)
        self._name = self._namespace.name = new_name

    @property
    def qualname(self) -> str:
        """The dotted path of the module, from the class of the root."""
        return self._qualname

    @property
    def inputs(self) -> list[Node]:
        """The module itself, then the tensors and modules among the arguments."""
        return self._inputs

    @property
    def outputs(self) -> list[Node]:
        """The tensors that are returned."""
        return self._outputs

    @property
    def top_graph(self) -> InternalGraph | None:
        """The graph of the root module; None for that one itself."""
        return None if self._top is None else self._top()

    @property
    def _root(self) -> InternalGraph:
        return self.top_graph or self

    def _module(self) -> TracedModule:
        owner = None if self._owner is None else self._owner()
        assert owner is not None, f"graph {self._name} belongs to no TracedModule any more."
        return owner  # type: ignore[no-any-return]

    # ---- selections

    def exprs(self, recursive: bool = True) -> ExprFilter:
        """The expressions, those of inputs first, with ``recursive`` those of submodules after their call."""
        return ExprFilter(_Again(lambda: self._walk(recursive, set())))

    def nodes(self, recursive: bool = True) -> NodeFilter:
        """The nodes in the order of the expressions that make them."""
        return NodeFilter(_Again(lambda: (n for e in self._walk(recursive, set()) for n in e.outputs)))

    def _walk(self, recursive: bool, seen: set[int]) -> Iterator[Expr]:
        if id(self) in seen:
            return
        seen.add(id(self))
        for node in self._inputs:
            yield node.expr
        for expr in tuple(self._exprs):
            yield expr
            if recursive and isinstance(expr, CallMethod) and expr.method == "__call__":
                graph = expr.graph
                if graph is not None:
                    yield from graph._walk(True, seen)

    def _graphs(self) -> Iterator[InternalGraph]:
        """This graph and those of the modules it calls, each once."""
        seen: set[int] = set()
        todo = [self]
        while todo:
            graph = todo.pop()
            if id(graph) in seen:
                continue
            seen.add(id(graph))
            yield graph
            todo += [e.graph for e in graph._exprs if isinstance(e, CallMethod) and e.graph is not None][::-1]

    def get_function_by_type(self, func: Any = None, recursive: bool = True) -> ExprFilter:
        """Calls of a function."""
        return self.exprs(recursive).call_function(func)

    def get_method_by_type(self, method: str | None = None, recursive: bool = True) -> ExprFilter:
        """Calls of a method."""
        return self.exprs(recursive).call_method(method)

    def get_expr_by_id(self, expr_id: Any = None, recursive: bool = True) -> ExprFilter:
        """Expressions with an id, or several."""
        return self.exprs(recursive).expr_id(expr_id)

    def get_module_by_type(self, module_cls: Any, recursive: bool = True) -> NodeFilter:
        """Nodes of modules of a class."""
        assert isinstance(module_cls, type) and issubclass(module_cls, Module), (
            f"get_module_by_type: needs a class of modules; got {module_cls!r}."
        )
        return self.nodes(recursive).type(module_cls)

    def get_node_by_id(self, node_id: Any = None, recursive: bool = True) -> NodeFilter:
        """Nodes with an id, or several."""
        return self.nodes(recursive).node_id(node_id)

    def get_node_by_name(self, name: Any = None, ignorecase: bool = True, recursive: bool = True) -> NodeFilter:
        """Nodes whose full name, ``graph_node``, matches a pattern."""
        return self.nodes(recursive).name(name, ignorecase)

    def get_dep_exprs(self, nodes: Any) -> list[Expr]:
        """What must run for these nodes to get their values, the last first."""
        todo = list(nodes) if isinstance(nodes, (list, tuple, set)) else [nodes]
        found: dict[int, Expr] = {}
        while todo:
            expr = todo.pop(0).expr
            if id(expr) not in found:
                found[id(expr)] = expr
                todo += expr.inputs
        return list(found.values())

    # ---- building

    def _new_id(self, which: int) -> int:
        root = self._root
        ids = list(root._total_ids)
        number = ids[which]
        ids[which] += 1
        root._total_ids = (ids[0], ids[1])
        return number

    def _adopt(self, expr: Expr) -> None:
        expr._top_graph = weakref.ref(self)
        if expr._id is None:
            expr._id = self._new_id(0)
        self._adopt_outputs(expr)

    def _adopt_outputs(self, expr: Expr) -> None:
        for node in expr.outputs:
            node._top_graph = weakref.ref(self)
            if node._id is None:
                node._id = self._new_id(1)
        self._namespace.auto_naming_for_outputs(expr)

    def _insert(self, expr: Expr) -> None:
        if self._cursor is None:
            self._exprs.append(expr)
        else:
            self._exprs.insert(self._cursor, expr)
            self._cursor += 1
        self._adopt(expr)

    def _add_input(self, node: Node, at: int | None = None) -> None:
        self._inputs.insert(len(self._inputs) if at is None else at, node)
        self._adopt(node.expr)

    def _drop(self, expr: Expr) -> None:
        """Take an expression out."""
        self._exprs.remove(expr)
        for node in expr.inputs:
            node.users[:] = [e for e in node.users if e is not expr]
        for node in expr.outputs:
            self._namespace.unassociate_name_with_obj(node)

    # ---- changing

    def insert_exprs(self, expr: Expr | None = None) -> AbstractContextManager[Any]:
        """Inside the block, what is computed with nodes of this graph is put into it.

        Args:
            expr: put it after this expression; None puts it after the latest of the nodes that are used.

        >>> from megengine.traced_module import trace_module
        >>> tm = trace_module(M.Sequential(M.ReLU()), F.ones(3))
        >>> graph = tm.graph
        >>> with graph.insert_exprs():
        ...     doubled = graph.outputs[0] * 2
        >>> graph.replace_node({graph.outputs[0]: doubled})
        >>> tm(F.ones(3)).tolist()
        [2.0, 2.0, 2.0]
        """
        from .insert import InsertExprs

        return InsertExprs(self, expr)

    def add_input_node(self, shape: Any, dtype: Any = "float32", name: str = "args") -> Node:
        """A further positional argument of the module; only for the graph of the root."""
        from .pytree import LeafDef, TreeDef, _leaf_type

        assert self._top is None, "add_input_node only supports top graph"
        import numpy as np

        node = Input(TensorNode, name).outputs[0]
        node._shape, node._dtype = tuple(shape), np.dtype(dtype)  # type: ignore[attr-defined]
        owner = self._module()
        form = self._argdef()
        args, kwargs = form.children_defs
        # Positional arguments come before those by keyword.
        at = 0
        for leaf in _leaves(args):
            at += not _is_const_def(leaf)
        self._add_input(node, at)
        new = TreeDef(tuple, None, [TreeDef(tuple, None, [*args.children_defs, LeafDef(_leaf_type(node))]), kwargs])
        self._rekey(owner, form, new)
        if owner.argspec is not None and owner.argspec.varargs is None:
            spec = owner.argspec
            defaults = (*spec.defaults, None) if spec.defaults else None
            owner.argspec = spec._replace(args=[*spec.args, node.name], defaults=defaults)
        return node

    def _argdef(self) -> Any:
        return next(k for k, g in self._module().argdef_graph_map.items() if g is self)

    def _rekey(self, owner: TracedModule, old: Any, new: Any) -> None:
        owner.argdef_graph_map = {new if k == old else k: g for k, g in owner.argdef_graph_map.items()}
        owner.argdef_outdef_map = {new if k == old else k: g for k, g in owner.argdef_outdef_map.items()}

    def reset_inputs(self, *args: Any, **kwargs: Any) -> list[Node]:
        """Give the module other arguments, of the form of these examples; only for the graph of the root.

        The nodes of the new arguments are returned; ``replace_node`` puts them in the place of the old ones.
        """
        assert self._top is None, "reset_inputs only supports top graph"
        owner = self._module()
        leaves, form = tree_flatten(((owner, *args), kwargs))
        for node in self._inputs[1:]:
            self._namespace.unassociate_name_with_obj(node)
        new: list[Node] = []
        del self._inputs[1:]
        for leaf in leaves[1:]:
            if _is_const_leaf(leaf):
                continue
            node = Input(TensorNode, "args").outputs[0]
            node.value = leaf  # type: ignore[attr-defined]
            new.append(node)
            self._add_input(node)
        self._rekey(owner, self._argdef(), form)
        owner.argspec = None
        return new

    def add_output_node(self, node: TensorNode) -> None:
        """Return a further tensor: results become ``(what they were, node)``."""
        from .pytree import TreeDef

        self._check_output(node)
        owner, key = self._module(), self._argdef()
        _, leaf = tree_flatten(node)
        self._outputs = [*self._outputs, node]
        owner.argdef_outdef_map[key] = TreeDef(tuple, None, [owner.argdef_outdef_map[key], leaf])
        self._check_not_called(owner)

    def reset_outputs(self, outputs: Any) -> None:
        """Return these nodes, in this structure."""
        nodes, form = tree_flatten(outputs)
        for node in nodes:
            self._check_output(node)
        owner = self._module()
        self._check_not_called(owner)
        self._outputs = nodes
        owner.argdef_outdef_map[self._argdef()] = form

    def _check_output(self, node: Any) -> None:
        assert isinstance(node, TensorNode), f"an output must be a TensorNode; got {node!r}."
        assert node.top_graph is self, f"{node} is of another graph than {self._name}."

    def _check_not_called(self, owner: TracedModule) -> None:
        assert self._top is None, (
            f"the outputs of {self._name} are used by the graph that calls it; change those of the top graph, or "
            "flatten() first."
        )

    def replace_node(self, repl_dict: dict[Node, Node]) -> None:
        """Let those that use a node, and the results, use another one.

        Uses that come before the new node, or that it is made from, keep the old one.
        """
        for node, new in repl_dict.items():
            assert node.top_graph is self and new.top_graph is self, (
                f"replace_node: {node} and {new} must be nodes of {self._name}."
            )
            assert type(node) is type(new), f"replace_node: {node} is a {type(node).__name__}, {new} is not."
            place = {id(e): i for i, e in enumerate(self._exprs)}
            # What the new node is made from must not depend on it.
            before = {id(e) for e in self.get_dep_exprs(new)}
            here = place.get(id(new.expr), -1)
            for user in tuple(node.users):
                if id(user) in before or place.get(id(user), -1) <= here or user not in node.users:
                    continue
                user.replace_inputs({node: new})
            self._outputs = [new if n is node else n for n in self._outputs]

    def compile(self) -> None:
        """Merge equal ``getattr``s, and drop what no result needs."""
        first: dict[tuple[int, str], Expr] = {}
        for expr in tuple(self._exprs):
            if not isinstance(expr, GetAttr):
                continue
            known = first.setdefault((id(expr.inputs[0]), expr.name), expr)
            if known is expr:
                continue
            new = known.outputs[0]
            for user in tuple(expr.outputs[0].users):
                if user in expr.outputs[0].users:
                    user.replace_inputs({expr.outputs[0]: new})
            self._outputs = [new if n is expr.outputs[0] else n for n in self._outputs]
            self._drop(expr)
        needed = {id(n) for n in (*self._outputs, *self._watch_point, *self._end_point)}
        for expr in reversed(tuple(self._exprs)):
            if expr._disable_remove or any(id(n) in needed for n in expr.outputs):
                needed.update(id(n) for n in expr.inputs)
            else:
                self._drop(expr)

    def _reset_ids(self) -> None:
        """Number expressions and nodes in the order they are reached."""
        exprs = nodes = 0
        for expr in self._walk(True, set()):
            expr._id = exprs
            exprs += 1
            for node in expr.outputs:
                node._id = nodes
                nodes += 1
        self._total_ids = (exprs, nodes)

    # ---- running

    def interpret(self, *inputs: Any) -> list[Any]:
        """The values of the outputs from those of all inputs, the module among them."""
        if len(inputs) != len(self._inputs):
            raise TypeError(f"{self._name}: has {len(self._inputs)} inputs; got {len(inputs)}.")
        keep = {id(n) for n in self._outputs}
        values: dict[int, Any] = {id(n): v for n, v in zip(self._inputs, inputs)}
        left: dict[int, int] = {}
        watched = {id(n): n for n in (*self._watch_point, *self._end_point)}
        if watched:
            self._note(self._inputs, inputs, watched)
        for expr in self._exprs:
            args = []
            for n in expr.inputs:
                key = id(n)
                args.append(values[key])
                if key not in keep:
                    count = left.get(key)
                    count = len(n.users) - 1 if count is None else count - 1
                    left[key] = count
                    if count <= 0:
                        left[key] = 0
            results = expr.interpret(*args)
            for n in expr.inputs:
                if left.get(id(n)) == 0 and id(n) in values:
                    del values[id(n)]
            for n, v in zip(expr.outputs, results):
                if n.users or id(n) in keep:
                    values[id(n)] = v
            if watched:
                self._note(expr.outputs, results, watched)
        return [values[id(n)] for n in self._outputs]

    def _note(self, nodes: Iterable[Node], values: Iterable[Any], watched: dict[int, Node]) -> None:
        for node, value in zip(nodes, values):
            if id(node) in watched:
                self._rst[node].append(value)
        root = self._root._module()
        if root.end_points and all(n.top_graph._rst.get(n) for n in root.end_points if n.top_graph is not None):
            raise _EndPoints

    def eval(self, *inputs: Any) -> list[Any]:
        """The values of the outputs from tensors for ``inputs[1:]``."""
        return self.interpret(self._inputs[0].owner, *inputs)  # type: ignore[attr-defined]

    # ---- text

    def __repr__(self) -> str:
        return f"{self}"

    def __format__(self, spec: str) -> str:
        inputs = ", ".join(format(n, spec) for n in self._inputs)
        lines = "\n\t".join(format(e, spec) for e in self._exprs)
        outputs = ", ".join(format(n, spec) for n in self._outputs)
        return f"{self._name}.Graph ({inputs}) {{\n\t{lines}\n\treturn {outputs}\n}}"

    # ---- references, copies and files

    def _update_ref(self, owner: Any, top: InternalGraph | None, parent: InternalGraph | None) -> None:
        """Point everything at this graph and at the modules below ``owner``."""
        self._owner = weakref.ref(owner)
        self._top = None if top is None else weakref.ref(top)
        self._parent = None if parent is None else weakref.ref(parent)
        here = weakref.ref(self)
        self_node: Any = self._inputs[0]
        self_node._owner = weakref.ref(owner)
        self_node.module_type = Module
        for expr in (*(n.expr for n in self._inputs), *self._exprs):
            expr._top_graph = here
            for node in expr.outputs:
                node._top_graph = here
                if isinstance(expr, GetAttr) and isinstance(node, ModuleNode):
                    node._owner = None
                    node.module_type = _module_type(node.owner)
                elif isinstance(expr, Constant) and isinstance(node, ModuleNode):
                    node._owner = weakref.ref(expr.value)

    def __getstate__(self) -> dict[str, Any]:
        names = ("_exprs", "_inputs", "_outputs", "_watch_point", "_end_point", "_namespace", "_rst", "_name")
        state = {name: getattr(self, name) for name in names}
        state["_watch_point"], state["_end_point"], state["_rst"] = [], [], defaultdict(list)
        state.update(_qualname=self._qualname, _total_ids=self._total_ids)
        exprs = (*(n.expr for n in self._inputs), *self._exprs)
        return flat_state([*exprs, *(n for e in exprs for n in e.outputs)], state)

    def __setstate__(self, state: dict[str, Any]) -> None:
        blank = InternalGraph("", "").__dict__
        self.__dict__.update({**blank, **{k: v for k, v in state.items() if k in blank}})
        self._rst = defaultdict(list)

    def __deepcopy__(self, memo: dict[int, Any]) -> InternalGraph:
        """A copy, made expression by expression: graphs are deeper than Python's stack."""
        new = InternalGraph(self._name, self._qualname)
        memo[id(self)] = new
        new._total_ids = self._total_ids
        for expr in (*(n.expr for n in self._inputs), *self._exprs):
            twin = copy(expr)
            memo[id(expr)] = twin
            twin.inputs = [memo[id(n)] for n in expr.inputs]
            if isinstance(expr, Constant):
                twin.value = deepcopy(expr.value, memo)
            elif isinstance(expr, (CallFunction, CallMethod, Apply)):
                twin.const_val = [(i, deepcopy(v, memo)) for i, v in expr.const_val]
            for node in expr.outputs:
                other = copy(node)
                other.expr = twin
                memo[id(node)] = other
                twin.outputs.append(other)
            if isinstance(expr, Input):
                new._inputs.append(twin.outputs[0])
            else:
                new._exprs.append(twin)
        for expr in (*(n.expr for n in self._inputs), *self._exprs):
            for node in expr.outputs:
                memo[id(node)].users = [memo[id(u)] for u in node.users if id(u) in memo]
        new._outputs = [memo[id(n)] for n in self._outputs]
        new._namespace._used_names = {
            name: memo.get(id(obj)) if isinstance(obj, Node) else deepcopy(obj, memo) if obj is not None else None
            for name, obj in self._namespace._used_names.items()
        }
        here = weakref.ref(new)
        for expr in (*(n.expr for n in new._inputs), *new._exprs):
            expr._top_graph = here
            for node in expr.outputs:
                node._top_graph = here
        return new


class _Again:
    """An iterable that starts anew each time."""

    def __init__(self, make: Any) -> None:
        self._make = make

    def __iter__(self) -> Iterator[Any]:
        return iter(self._make())


def _module_type(found: Any) -> Any:
    from .traced_module import TracedModule

    return Module if found is None or isinstance(found, TracedModule) else type(found)


def _leaves(form: Any) -> Iterator[Any]:
    if form.children_defs:
        for child in form.children_defs:
            yield from _leaves(child)
    elif form.num_leaves:
        yield form


def _is_const_def(leaf: Any) -> bool:
    return not issubclass(leaf.type[0], (Tensor, Module))
