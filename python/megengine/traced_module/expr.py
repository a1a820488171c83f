"""Expressions of a graph: what is done with nodes."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..core._core import ops
from ..core._imperative_rt.core2 import apply
from ..core._imperative_rt.opdef import OpDef
from ..module.module import Module
from ..tensor import Tensor
from ..version import __version__
from .known import BINARY, find_function, function_pair, method_spec
from .node import ModuleNode, Node, NodeMixin, TensorNode
from .parts import Part
from .pytree import TreeDef, _is_const_leaf, tree_flatten
from .utils import _argspec, _convert_kwargs_to_args, get_subattr

if TYPE_CHECKING:
    from .graph import InternalGraph
    from .naming import NameSpace

__all__ = [
    "Apply",
    "CallFunction",
    "CallMethod",
    "Constant",
    "Expr",
    "GetAttr",
    "Input",
    "get_suffix_name",
    "is_apply_def",
    "is_call_function",
    "is_call_module",
    "is_call_tensor_method",
    "is_constant",
    "is_getattr",
    "is_input",
    "rstrip",
]


def rstrip(s: str, __chars: str) -> str:
    """``s`` without the ends that match ``__chars``, as often as it is there.

    >>> from megengine.traced_module.expr import rstrip
    >>> rstrip("a_out_out", "_out")
    'a'
    """
    return re.sub(rf"({re.escape(__chars)})+$", "", s)


def get_suffix_name(prefix: str, name: str) -> str | None:
    """What follows a dotted prefix in a name: empty for the prefix itself, None for other names.

    >>> from megengine.traced_module.expr import get_suffix_name
    >>> get_suffix_name("net.a", "net.a.conv"), get_suffix_name("net.a", "net.ab")
    ('conv', None)
    """
    if name == prefix:
        return ""
    return name[len(prefix) + 1 :] if name.startswith(prefix + ".") else None


def is_call_module(expr: Any, module_cls: Any = None) -> bool:
    """Whether an expression calls a module, of a class if one is given."""
    return (
        isinstance(expr, CallMethod)
        and bool(expr.inputs)
        and isinstance(expr.inputs[0], ModuleNode)
        and expr.method == "__call__"
        and (module_cls is None or isinstance(expr.inputs[0].owner, module_cls))
    )


def is_call_tensor_method(expr: Any, method: Any = None) -> bool:
    """Whether an expression calls a method of a tensor, one of these if any are given."""
    if not isinstance(expr, CallMethod) or is_call_module(expr):
        return False
    return method is None or expr.method in ((method,) if isinstance(method, str) else tuple(method))


def is_call_function(expr: Any, func: Any = None) -> bool:
    """Whether an expression calls a function, one of these if any are given."""
    if not isinstance(expr, CallFunction):
        return False
    if func is None:
        return True
    funcs = list(func) if isinstance(func, (list, tuple, set)) else [func]
    return any(expr.func is f or expr.func is getattr(f, "_origin_fn", None) for f in funcs)


def is_constant(expr: Any) -> bool:
    """Whether an expression is a constant."""
    return isinstance(expr, Constant)


def is_getattr(expr: Any) -> bool:
    """Whether an expression takes an attribute of a module."""
    return isinstance(expr, GetAttr)


def is_apply_def(expr: Any, opdef: Any = None) -> bool:
    """Whether an expression applies a primitive op, of a class if one is given."""
    return isinstance(expr, Apply) and (opdef is None or isinstance(expr.opdef, opdef))


def is_input(expr: Any) -> bool:
    """Whether an expression is an input of its graph."""
    return isinstance(expr, Input)


class Expr(Part):
    """Something done with nodes. Arguments are kept flat: nodes in ``inputs``, the rest with its place in
    ``const_val``, the form of both in ``arg_def``."""

    inputs: list[Node] = []
    outputs: list[Node] = []
    const_val: list[Any] = []
    arg_def: Any = TreeDef(tuple, None, [TreeDef(tuple, None, []), TreeDef(dict, (), [])])
    out_def: Any = TreeDef(tuple, None, [])

    def __init__(self) -> None:
        self._id: int | None = None
        self._disable_remove = False
        self.inputs = []
        self.outputs = []
        self._top_graph: weakref.ref[InternalGraph] | None = None

    # ---- making

    @classmethod
    def make(cls, *args: Any, **kwargs: Any) -> Any:
        """An expression put into the graph that is being traced."""
        from .module_tracer import current_tracer

        expr = cls(*args, **kwargs)
        current_tracer().current_scope()._insert(expr)
        return expr

    def enable_remove(self) -> None:
        """Let ``compile`` drop it where its results are not used."""
        self._disable_remove = False

    def disable_remove(self) -> None:
        """Keep it even where its results are not used."""
        self._disable_remove = True

    def add_inputs(self, vals: Any) -> None:
        """Take nodes, or values that stand for nodes, as further inputs; other values are constants."""
        from .module_tracer import current_tracer

        vals = list(vals) if isinstance(vals, Iterable) and not isinstance(vals, (Tensor, Node, str)) else [vals]
        for val in vals:
            at = len(self.inputs) + len(self.const_val)
            node = val if isinstance(val, Node) else None if _is_const_leaf(val) else current_tracer().node_of(val)
            if node is None:
                self.const_val.append((at, val))
            else:
                self.inputs.append(node)
                node.users.append(self)

    def add_outputs(self, outputs: Any) -> None:
        """Make a node for every tensor of the result."""
        leaves, self.out_def = tree_flatten(outputs)
        self.outputs = []
        for leaf in leaves:
            if _is_const_leaf(leaf):
                continue
            node = leaf if isinstance(leaf, Node) else NodeMixin.get_wrapped_type(leaf)(self, None, None)
            node.expr = self
            self.outputs.append(node)
        graph = self.top_graph
        if graph is not None:
            graph._adopt_outputs(self)
        for leaf, node in zip((x for x in leaves if not _is_const_leaf(x)), self.outputs):
            if not isinstance(leaf, Node):
                NodeMixin.wrap(leaf, node)

    def _set_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Take the arguments of a call."""
        leaves, arg_def = tree_flatten((args, kwargs))
        self.inputs, self.const_val = [], []
        self.add_inputs(leaves)
        self.arg_def = arg_def

    # ---- arguments

    def unflatten_args(self, inputs: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """(args, kwargs) with these values in place of the nodes."""
        leaves = list(inputs)
        for at, val in self.const_val:
            leaves.insert(at, val)
        made: tuple[tuple[Any, ...], dict[str, Any]] = self.arg_def.unflatten(leaves)
        return made

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments, nodes among them."""
        return self.unflatten_args(self.inputs)[0]

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword arguments, nodes among them."""
        return self.unflatten_args(self.inputs)[1]

    def _signature(self) -> tuple[Any, bool]:
        """What is called, as something with parameters, and whether the first argument is its self."""
        raise AssertionError(f"{type(self).__name__} has no arguments")

    @property
    def named_args(self) -> dict[str, Any]:
        """The arguments by the names of the parameters."""
        spec, _ = self._signature()
        args, kwargs = self.unflatten_args(self.inputs)
        named = dict(zip(spec.args, args))
        if spec.varargs is not None:
            named[spec.varargs] = args[len(spec.args) :]
        named.update(kwargs)
        return named

    def set_args_kwargs(self, *args: Any, **kwargs: Any) -> None:
        """Give the call other arguments; tensors and modules are given as nodes.

        Raises:
            AssertionError: for kinds of expression without arguments, and for calls of traced modules, whose graph
                belongs to the arguments that it was traced with.
        """
        kind = type(self).__name__
        assert isinstance(self, (CallFunction, CallMethod)), f"Doesn't support set args/kwargs for {kind} expr"
        assert getattr(self, "graph", None) is None, (
            "Doesn't support set args/kwargs for a call of a non-builtin module: its graph belongs to its arguments."
        )
        spec, _ = self._signature()
        args, kwargs = _convert_kwargs_to_args(spec, args, kwargs)
        if spec.varargs is None and len(args) > len(spec.args):
            raise TypeError(f"set_args_kwargs: {len(spec.args)} positional arguments are there; got {len(args)}.")
        self._replace_args(args, kwargs)

    def _replace_args(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        leaves, _ = tree_flatten((args, kwargs))
        for leaf in leaves:
            if isinstance(leaf, (Tensor, Module)):
                raise TypeError(
                    f"set_args_kwargs: a {type(leaf).__name__} must be given as a node of the graph; "
                    "graph.insert_exprs() makes nodes."
                )
            if isinstance(leaf, Node) and self.top_graph is not None and leaf.top_graph is not self.top_graph:
                raise AssertionError(f"set_args_kwargs: node {leaf} is of another graph.")
        for node in self.inputs:
            if self in node.users:
                node.users.remove(self)
        self._set_call(args, kwargs)

    def set_arg(self, name: str, val: Any) -> None:
        """Give one parameter of the call another value."""
        spec, func = self._signature()
        args, kwargs = self.unflatten_args(self.inputs)
        known = {*spec.args, *spec.kwonlyargs, *kwargs}
        assert name in known, f"func {func} does't have argument named {name}; it has {', '.join(sorted(known))}."
        if name in spec.args:
            values = list(args)
            values[spec.args.index(name)] = val
            self._replace_args(tuple(values), kwargs)
        else:
            self._replace_args(args, {**kwargs, name: val})

    def replace_inputs(self, repl_dict: dict[Node, Node]) -> None:
        """Use other nodes of the graph in place of these."""
        for node, new in repl_dict.items():
            assert node in self.inputs, f"({node}) is not in the ({self}) inputs"
            assert self.top_graph is None or new.top_graph is self.top_graph, (
                f"replace_inputs: {new} is of another graph than {self}."
            )
            assert type(node) is type(new), f"replace_inputs: {node} is a {type(node).__name__}, {new} is not."
            for i, old in enumerate(self.inputs):
                if old is node:
                    self.inputs[i] = new
                    node.users.remove(self)
                    new.users.append(self)

    @property
    def return_val(self) -> Any:
        """The result as a structure of nodes."""
        leaves: list[Any] = list(self.outputs)
        if self.out_def.num_leaves == len(leaves):
            return self.out_def.unflatten(leaves)
        return self.out_def.unflatten(_with_constants(self.out_def, leaves))

    @return_val.setter
    def return_val(self, new_outputs: Any) -> None:
        nodes, self.out_def = tree_flatten(new_outputs)
        assert all(isinstance(n, Node) for n in nodes), "return_val: a structure of nodes is needed."
        self.outputs = nodes

    # ---- where it is

    @property
    def top_graph(self) -> InternalGraph | None:
        """The graph that it is in."""
        return None if self._top_graph is None else self._top_graph()

    def interpret(self, *inputs: Any) -> Any:
        """The values of the outputs from those of the inputs."""
        raise NotImplementedError(f"{type(self).__name__} cannot be run")

    def _output_names(self, space: NameSpace) -> tuple[str, str]:
        """What outputs are called, and their qualified name."""
        raise NotImplementedError

    # ---- text

    def _outputs_text(self, spec: str) -> str:
        names = ", ".join(format(n, spec) for n in self.outputs)
        return names if len(self.outputs) == 1 else f"({names})"

    def _call_text(self, args: Iterable[Any], kwargs: dict[str, Any], spec: str) -> str:
        pos = ", ".join(_text(a, spec, top=True) for a in args)
        key = ", ".join(f"{k}={_text(v, spec, top=True)}" for k, v in kwargs.items())
        return f"({pos}, {key})"

    def _text(self, spec: str) -> str:
        raise NotImplementedError

    def __format__(self, spec: str) -> str:
        return f"%{self._id}:\t{self._text(spec)}"

    def __repr__(self) -> str:
        return f"{self}"

    # ---- copies and files

    def __getstate__(self) -> dict[str, Any]:
        state = {k: v for k, v in self.__dict__.items() if k != "_top_graph"}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({"_disable_remove": False, **state, "_top_graph": None})

    def __copy__(self) -> Expr:
        """An expression of the same meaning without inputs and outputs."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        new.inputs, new.outputs, new._top_graph = [], [], None
        if "const_val" in new.__dict__:
            new.const_val = list(self.const_val)
        return new

    def __deepcopy__(self, memo: dict[int, Any]) -> Expr:
        from copy import deepcopy

        if id(self) not in memo:
            assert self.top_graph is not None, "deepcopy: the expression is in no graph."
            deepcopy(self.top_graph, memo)
        new: Expr = memo[id(self)]
        return new


def _text(value: Any, spec: str, top: bool = False) -> str:
    """A value as it is shown in a call."""
    if isinstance(value, Node):
        return format(value, spec)
    kind = type(value)
    if kind is list:
        return f"[{', '.join(_text(v, spec) for v in value)}]"
    if kind is tuple:
        inner = ", ".join(_text(v, spec) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if kind is slice:
        return f"slice({', '.join(_text(v, spec) for v in (value.start, value.stop, value.step))})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {_text(v, spec)}" for k, v in value.items()) + "}"
    return str(value) if top else repr(value)


def _with_constants(form: TreeDef, nodes: Sequence[Any]) -> list[Any]:
    """All leaves of a form: the nodes, and the constants that the form itself holds."""
    rest = list(nodes)

    def walk(d: TreeDef) -> list[Any]:
        if d.children_defs or getattr(d, "num_leaves", 0) == 0:
            return [x for c in d.children_defs for x in walk(c)]
        kind = d.type[0]
        return [rest.pop(0)] if issubclass(kind, (Tensor, Module)) else [d.const_val]  # type: ignore[attr-defined]

    return walk(form)


class Input(Expr):
    """An input of a graph.

    Args:
        type: the class of its node.
        name: of the argument.
        qualname: of the node.
    """

    name: str = ""

    def __init__(self, type: Any, name: str = "args", qualname: str = "") -> None:
        super().__init__()
        assert type in (ModuleNode, TensorNode), f"Input: needs ModuleNode or TensorNode; got {type!r}."
        self.name = name
        self.outputs = [type(self, None, qualname or None)]

    @classmethod
    def make(cls, *args: Any, **kwargs: Any) -> Any:
        """A node for a new input of the graph that is being traced."""
        from .module_tracer import current_tracer

        expr = cls(*args, **kwargs)
        current_tracer().current_scope()._add_input(expr.outputs[0])
        return expr.outputs[0]

    def _output_names(self, space: NameSpace) -> tuple[str, str]:
        return self.name, f"{space.qualname}.[{self.name}]"

    def _text(self, spec: str) -> str:
        return f"{self._outputs_text(spec)} = Input()"


class GetAttr(Expr):
    """An attribute of a module: a module or a tensor.

    Args:
        module: the node of the module.
        type: the class of the node it gives.
        attr_name: a name, or several joined by dots.
        name: of the node.
    """

    name: str = ""

    def __init__(self, module: ModuleNode, type: Any, attr_name: str, name: str = "") -> None:
        super().__init__()
        assert isinstance(module, ModuleNode), f"GetAttr: needs the node of a module; got {module!r}."
        self.inputs = [module]
        module.users.append(self)
        self.name = attr_name
        self.outputs = [type(self, None, None)]
        self._wanted = name

    @classmethod
    def make(cls, *args: Any, **kwargs: Any) -> Any:
        """A node for the attribute in the graph that is being traced."""
        expr = super().make(*args, **kwargs)
        return expr.outputs[0]

    def interpret(self, *inputs: Any) -> Any:
        """The attribute."""
        found = get_subattr(inputs[0], self.name)
        if not isinstance(found, (Tensor, Module, NodeMixin)):
            raise TypeError(f"{self}: the attribute is a {type(found).__name__}, not a module or a tensor.")
        return (found,)

    def _output_names(self, space: NameSpace) -> tuple[str, str]:
        qualname = f"{self.inputs[0].qualname}.{self.name}"
        base = self.__dict__.get("_wanted") or get_suffix_name(space.qualname, qualname) or self.name
        return base, qualname

    def _text(self, spec: str) -> str:
        node = self.outputs[0]
        kind = node.module_type.__name__ if isinstance(node, ModuleNode) else "Tensor"
        return f'{self._outputs_text(spec)} = getattr({self.inputs[0]:{spec}}, "{self.name}") -> ({kind})'

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in super().__getstate__().items() if k != "_wanted"}


#: Methods that change their tensor; in a graph they give a new one.
IN_PLACE = frozenset(["__setitem__", *(f"__i{m}__" for m in BINARY)])


class CallMethod(Expr):
    """A call of a module, or of a method of a tensor.

    Args:
        node: of the module or tensor.
        method: ``"__call__"`` for a module.
    """

    def __init__(self, node: Any, method: str = "__call__") -> None:
        super().__init__()
        self.const_val = []
        if isinstance(node, type):
            assert issubclass(node, Tensor) and method == "__new__", f"CallMethod: {node!r} is no node."
        elif not isinstance(node, (TensorNode, ModuleNode)):
            raise TypeError(f"CallMethod: needs a node; got {node!r}.")
        self.method = method

    @property
    def graph(self) -> InternalGraph | None:
        """The graph that a call of a traced module runs; None for other calls."""
        from .traced_module import TracedModule

        if not is_call_module(self):
            return None
        owner = self.inputs[0].owner  # type: ignore[attr-defined]
        if isinstance(owner, TracedModule) and owner.argdef_graph_map:
            assert self.arg_def in owner.argdef_graph_map, f"{self}: the module has no graph for {self.arg_def}."
            found: InternalGraph = owner.argdef_graph_map[self.arg_def]
            return found
        return None

    def interpret(self, *inputs: Any) -> Any:
        """Make the call."""
        args, kwargs = self.unflatten_args(inputs)
        method = self.method
        if method in IN_PLACE:
            target = _own_copy(args[0])  # graphs are functional: what others hold stays
            got = getattr(type(target), method)(target, *args[1:], **kwargs)
            return (target if got is None else got,)
        if method == "__new__":
            return (args[0](*args[1:], **kwargs),)
        obj: Any = args[0]
        if method == "__call__":
            if not isinstance(obj, (Module, NodeMixin)):
                raise TypeError(f"{self}: a {type(obj).__name__} is no module.")
            called: Any = obj
            outputs = called(*args[1:], **kwargs)
        elif method.startswith("__"):
            outputs = getattr(type(obj), method)(*args, **kwargs)
        else:
            outputs = getattr(obj, method)(*args[1:], **kwargs)
        return _flat(outputs)

    def _signature(self) -> tuple[Any, bool]:
        if is_call_module(self):
            forward = type(self.inputs[0].owner).forward  # type: ignore[attr-defined]
            return _argspec(forward), forward
        return method_spec(self.method), getattr(Tensor, self.method)

    @property
    def named_args(self) -> dict[str, Any]:
        """The arguments by the names of the parameters; the module or tensor is ``self``."""
        named = super().named_args
        spec, _ = self._signature()
        if spec.args and spec.args[0] != "self" and spec.args[0] in named:
            named = {"self": named.pop(spec.args[0]), **named}
        return named

    def _output_names(self, space: NameSpace) -> tuple[str, str]:
        if is_call_module(self):
            node = self.inputs[0]
            return f"{node.name}_out", f"{node.qualname}.[out]"
        method = self.method.strip("_")
        return f"{method}_out", f"{space.qualname}.[method_{method}]"

    def _text(self, spec: str) -> str:
        args, kwargs = self.unflatten_args(self.inputs)
        target = _text(args[0], spec, top=True)
        if self.method != "__call__":
            target += f".{self.method}"
        return f"{self._outputs_text(spec)} = {target}{self._call_text(args[1:], kwargs, spec)}"

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "version": __version__}


def _own_copy(x: Tensor) -> Tensor:
    """Another tensor of the same value, which stands for the same node where a traced module is traced again."""
    from .module_tracer import active_module_tracer

    twin = ops.copy(x)
    tracer = active_module_tracer()
    if tracer is not None:
        NodeMixin.wrap(twin, tracer.node_of(x))
    return twin


def _flat(outputs: Any) -> Sequence[Any]:
    """The tensors and modules in a result."""
    if isinstance(outputs, Tensor):
        return (outputs,)
    return [x for x in tree_flatten(outputs)[0] if not _is_const_leaf(x)]


class CallFunction(Expr):
    """A call of a function of ``megengine.functional``, or of one that was registered by ``wrap``.

    Args:
        func: the function.
    """

    def __init__(self, func: Callable[..., Any]) -> None:
        super().__init__()
        self.const_val = []
        self.func = func

    def interpret(self, *inputs: Any) -> Any:
        """Make the call."""
        from .module_tracer import traced_function

        args, kwargs = self.unflatten_args(inputs)
        return _flat(traced_function(self.func)(*args, **kwargs))

    def _signature(self) -> tuple[Any, bool]:
        spec: Any = _argspec(self.func)
        return spec, self.func  # type: ignore[return-value]

    def _output_names(self, space: NameSpace) -> tuple[str, str]:
        name = self.func.__name__
        return f"{name}_out", f"{space.qualname}.[func_{name}]"

    def _text(self, spec: str) -> str:
        args, kwargs = self.unflatten_args(self.inputs)
        module, name = function_pair(self.func)
        call = self._call_text(args, kwargs, spec)
        return f"{self._outputs_text(spec)} = {module.rsplit('.')[-1]}.{name.rsplit('.')[-1]}{call}"

    def __getstate__(self) -> dict[str, Any]:
        state = {k: v for k, v in super().__getstate__().items() if k != "_pair"}
        return {**state, "func": function_pair(self.func), "version": __version__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        pair = state["func"]
        if isinstance(pair, tuple):
            found = find_function(*pair)
            if found is None:
                raise TypeError(f"a graph calls {'.'.join(pair)}, which is not known here; register it with wrap.")
            state = {**state, "func": found, "_pair": pair}
        super().__setstate__(state)


class Apply(Expr):
    """A primitive op of the original, as ``core._imperative_rt.core2.apply`` runs them.

    Args:
        opdef: the op with its parameters.
    """

    opdef: OpDef = OpDef()

    def __init__(self, opdef: OpDef) -> None:
        super().__init__()
        assert isinstance(opdef, OpDef), f"Apply: needs an op of core.ops.builtin; got {opdef!r}."
        self.const_val = []
        self.opdef = opdef

    def interpret(self, *inputs: Any) -> Any:
        """Run the op."""
        from .module_tracer import traced_function

        return traced_function(apply)(self.opdef, *inputs)

    @classmethod
    def apply_module_trace_hook(cls, opdef: OpDef, *inputs: Any) -> Any:
        """Run an op and note it in the graph that is being traced."""
        from .module_tracer import trace_apply

        return list(trace_apply(opdef, *inputs))

    def _op_name(self) -> str:
        return str(self.opdef)

    def _output_names(self, space: NameSpace) -> tuple[str, str]:
        name = self._op_name().lower()
        return f"{name}_out", f"{space.qualname}.[def_{name}]"

    def _text(self, spec: str) -> str:
        args = ", ".join(format(n, spec) for n in self.inputs)
        return f"{self._outputs_text(spec)} = {self._op_name()}({args})"

    @property
    def args(self) -> tuple[Any, ...]:
        """The inputs."""
        return tuple(self.inputs)

    @property
    def kwargs(self) -> dict[str, Any]:
        """None."""
        return {}

    def unflatten_args(self, inputs: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The inputs; an op has no others."""
        return tuple(inputs), {}

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        opdef = state.pop("opdef")
        state["opdef_state"] = {**opdef.__getstate__(), "opdef_type": type(opdef)}
        return {**state, "version": __version__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = {"const_val": [], **state}
        if "opdef_state" in state:
            fields = dict(state.pop("opdef_state"))
            op: Any = object.__new__(fields.pop("opdef_type"))
            op.__setstate__(fields)
            state["opdef"] = op
        super().__setstate__(state)


class Constant(Expr):
    """A value that belongs to the graph.

    Args:
        c: the value: a tensor, a module, or plain data.
        name: of its node.
        qualname: of its node.
    """

    value: Any = 0

    def __init__(self, c: Any, name: str = "", qualname: str = "") -> None:
        super().__init__()
        assert isinstance(c, (Tensor, Module, NodeMixin)) or c is None or isinstance(c, (int, float, str, bool)), (
            f"Constant: needs a Tensor; got {type(c).__name__}."
        )
        self.value = c
        self.name = name
        node = (ModuleNode if isinstance(c, (Module, NodeMixin)) else TensorNode)(self, None, qualname or None)
        if isinstance(c, Tensor):
            node._describe(c)
        elif isinstance(c, Module):
            node.module_type = type(c)  # type: ignore[union-attr]
            node._owner = weakref.ref(c)  # type: ignore[union-attr]
        self.outputs = [node]

    @classmethod
    def make(cls, *args: Any, **kwargs: Any) -> Any:
        """A node for the value in the graph that is being traced."""
        expr = super().make(*args, **kwargs)
        return expr.outputs[0]

    def interpret(self, *inputs: Any) -> Any:
        """The value."""
        return (self.value,)

    def _output_names(self, space: NameSpace) -> tuple[str, str]:
        kind = f"const_{type(self.value).__name__.lower()}"
        return self.name or kind, f"{space.qualname}.[{self.name or kind}]"

    def _text(self, spec: str) -> str:
        node = self.outputs[0]
        kind = node.module_type.__name__ if isinstance(node, ModuleNode) else "Tensor"
        return f"{self._outputs_text(spec)} = Constant() -> ({kind})"
