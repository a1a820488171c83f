"""Reading traced modules from files as data (docs/adr/0026-pickles-as-data.md).

Every object is one of our classes with attributes of the expected kinds; functions, methods, classes and attributes
that a graph names are among those that it may use. Nothing of the file is called or imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from inspect import FullArgSpec
from types import FunctionType
from typing import Any

import numpy as np

from .._pickle.machine import NOT_DATA, Damaged, Global, Machine, Pending, Refused
from .._pickle.names import _attribute, _module, _module_state
from ..core._core import CompNode
from ..core._imperative_rt.ops import OPS
from ..core.tensor.qparams import QParams
from ..module.module import Module
from ..tensor import Parameter, Tensor
from . import known
from .expr import Apply, CallFunction, CallMethod, Constant, Expr, GetAttr, Input
from .graph import InternalGraph
from .naming import NameSpace
from .node import ModuleNode, Node, NodeMixin, TensorNode
from .pytree import (
    SUPPORTED_LEAF_TYPE,
    SUPPORTED_TYPE,
    USER_REGISTERED_CONTAINER_TYPE,
    USER_REGISTERED_LEAF_TYPE,
    ArgsIndex,
    LeafDef,
    TreeDef,
)
from .serialization import _ModuleState, find_module_class, unpack_module
from .traced_module import TracedModule

_NONE = type(None)


def _fields(what: str, state: Any) -> dict[str, Any]:
    if type(state) is tuple and len(state) == 2 and state[0] is None:
        state = state[1]
    if type(state) is not dict or any(type(k) is not str for k in state):
        raise Damaged(f"a {what} whose state is no dict")
    return state


def _need(ok: bool, what: str) -> None:
    if not ok:
        raise Damaged(what)


def _list_of(value: Any, kinds: Any) -> bool:
    return type(value) is list and all(isinstance(v, kinds) for v in value)


def _flat(cls: type, weight: float | None = None) -> Callable[[Machine, tuple[Any, ...]], Any]:
    def make(m: Machine, args: tuple[Any, ...]) -> Any:
        if args:
            raise Refused(f"the file makes a {cls.__name__} with arguments")
        made: Any = object.__new__(cls)
        return m.own(made, cyclic=True, flat=True) if weight is None else m.own(made)

    return make


# ---- forms of arguments


def _tree_state(m: Machine, tree: TreeDef, state: Any) -> None:
    f = _fields("TreeDef", state)
    children = f.get("children_defs")
    _need(_list_of(children, TreeDef), "a form whose parts are none")
    for child in children or ():
        _need("num_leaves" in vars(child), "a form that holds itself")
    aux = f.get("aux_data")
    if type(tree) is LeafDef:
        kinds: Any = f.get("type")
        _need(type(kinds) is tuple and bool(kinds) and all(isinstance(k, type) for k in kinds), "a form without types")
        made = {"type": _leaf_types(kinds), "const_val": f.get("const_val")}
        tree.__setstate__({**made, "aux_data": None, "children_defs": [], "num_leaves": 1})
        _need(not children, "a leaf with parts")
        m.weigh(tree, [tree.const_val])
        return
    kind = f.get("type")
    if not any(kind is k for k in SUPPORTED_TYPE):
        name = getattr(kind, "__name__", "something")
        raise Refused(f"the file has arguments in a {name}, which is not a container that was registered")
    _need(not issubclass(kind, dict) or (type(aux) is tuple and len(aux) == len(children)), "a dict without keys")  # type: ignore[arg-type]
    tree.__dict__.update(type=kind, aux_data=aux, children_defs=children)
    tree.num_leaves = sum(c.num_leaves for c in children or ())
    m.weigh(tree, [aux, *(children or ())])


def _leaf_types(kinds: tuple[type, ...]) -> tuple[type, ...]:
    """The types of this version: what is a tensor or a module is so for all names it had."""
    if issubclass(kinds[0], Tensor):
        return (Tensor, TensorNode, ArgsIndex)
    if issubclass(kinds[0], Module):
        return (Module, ModuleNode, NodeMixin, ArgsIndex)
    return (kinds[0], ArgsIndex)


def _args_index_state(m: Machine, index: ArgsIndex, state: Any) -> None:
    f = _fields("ArgsIndex", state)
    index.index, index.name = int(f.get("index", 0)), str(f.get("name", ""))


# ---- nodes and expressions


def _node_state(m: Machine, node: Node, state: Any) -> None:
    f = _fields("node", state)
    _need(isinstance(f.get("expr"), Expr), "a node without an expression")
    _need(_list_of(f.get("users", []), Expr), "a node whose users are none")
    _need(isinstance(f.get("_id"), (int, _NONE)), "a node whose number is none")
    name, qualname = f.get("_name"), f.get("_qualname")
    _need(isinstance(name, (str, _NONE)) and isinstance(qualname, (str, _NONE)), "a node whose name is none")
    own: dict[str, Any] = {k: f.get(k) for k in ("expr", "_id")}
    own.update(users=list(f.get("users", [])), _name=name, _qualname=qualname)
    if isinstance(node, TensorNode):
        shape, dtype, qparams = f.get("_shape"), f.get("_dtype"), f.get("_qparams")
        _need(shape is None or (type(shape) is tuple and all(type(d) is int for d in shape)), "a node without a shape")
        if isinstance(dtype, type) and issubclass(dtype, np.generic):
            dtype = np.dtype(dtype)
        _need(dtype is None or isinstance(dtype, np.dtype), "a node whose dtype is none")
        _need(qparams is None or isinstance(qparams, QParams), "a node whose quantisation is none")
        device = f.get("_device")
        device = device if isinstance(device, CompNode) else None
        own.update(_shape=shape, _dtype=dtype, _qparams=qparams, _device=device)
    node.__setstate__(own)


_COMMON = ("_id", "_disable_remove", "inputs", "outputs")


def _expr_state(m: Machine, expr: Expr, state: Any) -> None:
    f = _fields("expression", state)
    _need(isinstance(f.get("_id"), (int, _NONE)), "an expression whose number is none")
    _need(_list_of(f.get("inputs"), Node) and _list_of(f.get("outputs"), Node), "an expression without nodes")
    own: dict[str, Any] = {k: f.get(k, False) for k in _COMMON}
    own["_disable_remove"] = own["_disable_remove"] is True
    if isinstance(f.get("version"), str):
        own["version"] = f["version"]
    _KINDS[type(expr)](own, f)
    expr.__setstate__(own)


def _call_state(own: dict[str, Any], f: dict[str, Any]) -> None:
    consts = f.get("const_val")
    ok = type(consts) is list and all(type(c) is tuple and len(c) == 2 and type(c[0]) is int for c in consts)
    _need(ok, "a call whose constants are none")
    form, out = f.get("arg_def"), f.get("out_def")
    _need(isinstance(form, TreeDef) and "num_leaves" in vars(form), "a call without arguments")
    _need(form.num_leaves == len(own["inputs"]) + len(consts), "a call with too many arguments or too few")  # type: ignore[union-attr, arg-type]
    _need(isinstance(out, TreeDef) and "num_leaves" in vars(out), "a call without results")
    pair = form.type is tuple and len(form.children_defs) == 2  # type: ignore[union-attr]
    _need(pair and [c.type for c in form.children_defs] == [tuple, dict], "a call without arguments")  # type: ignore[union-attr]
    own.update(const_val=list(consts or ()), arg_def=form, out_def=out)


def _method_state(own: dict[str, Any], f: dict[str, Any]) -> None:
    _call_state(own, f)
    method = f.get("method")
    if method != "__call__" and not known.has_method(method):
        raise Refused(f"a graph of the file calls the method {str(method)[:60]!r}, which no graph may call")
    own["method"] = method


def _function_state(own: dict[str, Any], f: dict[str, Any]) -> None:
    _call_state(own, f)
    pair = f.get("func")
    _need(type(pair) is tuple and len(pair) == 2, "a call without a function")
    found = known.find_function(*pair)  # type: ignore[misc]
    if found is None:
        name = ".".join(str(p)[:80] for p in pair)  # type: ignore[union-attr]
        raise Refused(
            f"a graph of the file calls {name}, which is not a function of megengine.functional. If it is yours, "
            "import its module, where megengine.traced_module.wrap registers it, before loading"
        )
    own.update(func=found, _pair=pair)


def _getattr_state(own: dict[str, Any], f: dict[str, Any]) -> None:
    name = f.get("name", f.get("attr_name"))
    _need(len(own["inputs"]) == 1 and len(own["outputs"]) == 1, "an attribute of nothing")
    _need(type(name) is str and all(name.split(".")), "an attribute without a name")
    if any(part.startswith("__") for part in name.split(".")):  # type: ignore[union-attr]
        raise Refused(f"a graph of the file takes the attribute {name[:60]!r}")  # type: ignore[index]
    own["name"] = name


def _apply_state(own: dict[str, Any], f: dict[str, Any]) -> None:
    given = f.get("opdef_state")
    _need(type(given) is dict, "an op without parameters")
    state = dict(given)  # type: ignore[arg-type]
    kind = state.pop("opdef_type", None)
    known_op = isinstance(kind, type) and any(kind is OPS[n] for n in [getattr(kind, "__name__", "")] if n in OPS)
    _need(known_op, "an op that is none")
    op: Any = object.__new__(kind)
    try:
        op.__setstate__({k: v for k, v in state.items() if k in op._fields or k == "scope"})
    except (RuntimeError, AttributeError, TypeError) as e:
        raise Damaged(f"an op with wrong parameters: {e}") from None
    own.update(opdef=op, const_val=[])


def _constant_state(own: dict[str, Any], f: dict[str, Any]) -> None:
    value = f.get("value")
    if isinstance(value, _ModuleState):
        _need(value._made is not None, "a constant that is a module without a class")
        value = value._made
    kinds = (Tensor, Module, int, float, str, bool, _NONE)
    _need(isinstance(value, kinds) and len(own["outputs"]) == 1, "a constant that is none")
    own.update(value=value, name=f.get("name") if isinstance(f.get("name"), str) else "")


def _input_state(own: dict[str, Any], f: dict[str, Any]) -> None:
    name = f.get("name", "args")
    _need(isinstance(name, str) and len(own["outputs"]) == 1 and not own["inputs"], "an input that is none")
    own["name"] = name


_KINDS: dict[type, Callable[[dict[str, Any], dict[str, Any]], None]] = {
    Input: _input_state,
    GetAttr: _getattr_state,
    CallMethod: _method_state,
    CallFunction: _function_state,
    Apply: _apply_state,
    Constant: _constant_state,
}


# ---- graphs


def _space_state(m: Machine, space: NameSpace, state: Any) -> None:
    f = _fields("NameSpace", state)
    names = f.get("_used_names", {})
    _need(isinstance(names, dict) and all(type(k) is str for k in names), "names that are none")
    _need(all(v is None or isinstance(v, (Node, InternalGraph)) for v in names.values()), "names of other things")
    _need(type(f.get("name")) is str and type(f.get("qualname")) is str, "a graph without a name")
    space.__setstate__({"name": f["name"], "qualname": f["qualname"], "_used_names": dict(names)})


def _graph_state(m: Machine, graph: InternalGraph, state: Any) -> None:
    f = _fields("graph", state)
    lists = {"_exprs": Expr, "_inputs": Node, "_outputs": Node}
    _need(all(_list_of(f.get(k), kind) for k, kind in lists.items()), "a graph without expressions or nodes")
    space, name = f.get("_namespace"), f.get("_name")
    _need(isinstance(space, NameSpace) and "_used_names" in vars(space), "a graph without names")
    name = name if isinstance(name, str) else space.name  # type: ignore[union-attr]
    qualname = f.get("_qualname") if isinstance(f.get("_qualname"), str) else space.qualname  # type: ignore[union-attr]
    graph.__setstate__({**{k: list(f[k]) for k in lists}, "_namespace": space, "_name": name, "_qualname": qualname})
    _check_graph(graph)


def _check_graph(graph: InternalGraph) -> None:
    """Everything is complete, and made before it is used."""
    ready: set[int] = set()
    _need(bool(graph._inputs) and isinstance(graph._inputs[0], ModuleNode), "a graph without a module")
    for node in graph._inputs:
        _need(isinstance(getattr(node, "expr", None), Input) and "name" in vars(node.expr), "an input that is none")
        _need(node.expr.outputs == [node], "an input that is none")
        ready.add(id(node))
    users: dict[int, list[Expr]] = {id(n): [] for n in graph._inputs}
    for expr in graph._exprs:
        _need("inputs" in vars(expr) and not isinstance(expr, Input), "an expression that is none")
        for node in expr.inputs:
            _need(id(node) in ready, "a node that is used before it is made")
            users[id(node)].append(expr)
        for node in expr.outputs:
            _need(getattr(node, "expr", None) is expr and id(node) not in ready, "a node that is made twice or nowhere")
            ready.add(id(node))
            users[id(node)] = []
        if isinstance(expr, GetAttr):
            _need(isinstance(expr.inputs[0], ModuleNode), "an attribute of a tensor")
        if isinstance(expr, CallMethod):
            _check_method(expr)
    _need(all(id(n) in ready for n in graph._outputs), "a result that is never made")
    for node in (*graph._inputs, *(n for e in graph._exprs for n in e.outputs)):
        node.users = users[id(node)]


def _check_method(expr: CallMethod) -> None:
    first = expr.unflatten_args(expr.inputs)[0][:1]
    if expr.method == "__call__":
        _need(bool(first) and isinstance(first[0], ModuleNode), "a call of something that is no module")
    elif expr.method == "__new__":
        _need(bool(first) and first[0] in (Tensor, Parameter), "a tensor made of another class")
    else:
        _need(bool(first) and isinstance(first[0], TensorNode), "a method of something that is no tensor")


# ---- modules


def _module_state_state(m: Machine, packed: _ModuleState, state: Any) -> None:
    f = _fields("module", state)
    pair, attributes = f.get("module"), f.get("state")
    _need(type(pair) is tuple and len(pair) == 2 and type(attributes) is dict, "a module without a class")
    try:
        cls = find_module_class(*pair)  # type: ignore[misc]
    except TypeError as e:
        raise Refused(str(e).removesuffix(".")) from None
    made = _module(cls)(m, ())
    values = {k: _unpacked(v) for k, v in attributes.items()}  # type: ignore[union-attr]
    _module_state(m, made, values)
    packed.__dict__.update(module=pair, state=None, version=str(f.get("version", "")), _made=made, _source=None)


_NEST = 100  # how deep attributes of modules nest


def _unpacked(value: Any, made: dict[int, Any] | None = None, depth: int = 0) -> Any:
    """With modules in place of what they were packed as; what the file has once is made once."""
    if isinstance(value, _ModuleState):
        _need("_made" in vars(value), "a module that holds itself")
        return value._made
    if type(value) not in (list, tuple, dict):
        return value
    made = {} if made is None else made
    if id(value) not in made:
        made[id(value)] = _unpacked  # until it is there
        _need(depth < _NEST, "attributes that nest too deep")
        if type(value) is dict:
            out: Any = {k: _unpacked(v, made, depth + 1) for k, v in value.items()}
        else:
            out = type(value)([_unpacked(v, made, depth + 1) for v in value])
        made[id(value)] = out
    _need(made[id(value)] is not _unpacked, "an attribute that holds itself")
    return made[id(value)]


def _traced_state(m: Machine, module: TracedModule, state: Any) -> None:
    f = _fields("TracedModule", state)
    for key, value in f.items():
        if isinstance(_attribute(TracedModule, key), (FunctionType, classmethod, staticmethod, property)):
            raise Refused(f"the file replaces {key!r:.40} of TracedModule, which is part of the class")
        if key in ("_forward_hooks", "_forward_pre_hooks") and value:
            raise Refused("the file adds hooks to a TracedModule; remove them before saving")
    graphs, outs = f.get("argdef_graph_map", {}), f.get("argdef_outdef_map", {})
    for given, kind in ((graphs, InternalGraph), (outs, TreeDef)):
        ok = isinstance(given, dict) and all(isinstance(k, TreeDef) and isinstance(v, kind) for k, v in given.items())
        _need(ok, "a TracedModule without graphs")
    _need(set(graphs) == set(outs), "a TracedModule whose graphs have no results")
    spec = f.get("argspec")
    _need(spec is None or isinstance(spec, FullArgSpec), "a TracedModule whose arguments are none")
    _need("_modules" in f and _list_of(f["_modules"], str), "a TracedModule without its attributes")
    values = {k: v if k in ("argdef_graph_map", "argdef_outdef_map", "argspec") else _unpacked(v) for k, v in f.items()}
    _check_sizes(values)
    values["_is_top"] = values.get("_is_top") is True
    values["is_qat"] = values.get("is_qat") is True
    _check_attributes(values)
    try:
        unpack_module(module, values)
    except (AssertionError, AttributeError, TypeError, LookupError) as e:
        raise Damaged(f"a graph does not fit its module: {e}") from e


def _check_attributes(values: dict[str, Any]) -> None:
    """What graphs take from their module is there, and is a module or a tensor."""
    for graph in values.get("argdef_graph_map", {}).values():
        for expr in graph._exprs:
            if not isinstance(expr, GetAttr) or expr.inputs[0] is not graph._inputs[0]:
                continue
            found: Any = None
            names = values
            for part in expr.name.split("."):
                found = names.get(part)
                names = vars(found) if isinstance(found, Module) else {}
            kind = Module if isinstance(expr.outputs[0], ModuleNode) else Tensor
            _need(isinstance(found, kind), f"a graph takes {expr.name[:60]!r}, which its module does not have")


def _check_sizes(values: dict[str, Any]) -> None:
    for form, graph in values.get("argdef_graph_map", {}).items():
        leaves = [x for x in _leaf_defs(form) if issubclass(x.type[0], (Tensor, Module))]
        _need(len(leaves) == len(graph._inputs), "a graph with other inputs than its arguments")
        out = [x for x in _leaf_defs(values["argdef_outdef_map"][form]) if issubclass(x.type[0], Tensor)]
        _need(len(out) == len(graph._outputs), "a graph with other results than it returns")


def _leaf_defs(form: TreeDef) -> list[Any]:
    todo, found = [form], []
    while todo:
        d = todo.pop()
        if isinstance(d, LeafDef):
            found.append(d)
        todo += d.children_defs
    return found


# ---- names


class _Device(Pending):
    """A CompNode, whose name follows."""

    def build(self, machine: Machine, state: Any) -> Any:
        if type(state) is not str:
            raise Damaged("a device without a name")
        try:
            return CompNode(state)
        except (ValueError, RuntimeError):
            return None  # where a tensor was when it was traced

    def value(self) -> Any:
        return None


def _device(m: Machine, args: tuple[Any, ...]) -> Any:
    return _Device().build(m, args[0]) if args else _Device()


def _full_spec(m: Machine, args: tuple[Any, ...]) -> Any:
    ok = len(args) == 7 and _list_of(args[0], str) and _list_of(args[4], str) and isinstance(args[6], dict)
    _need(ok, "arguments of a function that are none")
    for text in (args[1], args[2]):
        _need(isinstance(text, (str, _NONE)), "arguments of a function that are none")
    _need(isinstance(args[3], (tuple, _NONE)) and isinstance(args[5], (dict, _NONE)), "defaults that are none")
    return m.own(FullArgSpec(args[0], args[1], args[2], args[3], args[4], args[5], {}), max(map(m.height, args)))


def _same_part(m: Machine, args: tuple[Any, ...]) -> Any:
    """``typing.cast(None, part)``: the part itself, whose state follows."""
    if len(args) != 2 or args[0] is not None or not isinstance(args[1], (Node, Expr)):
        raise Refused("the file casts something that is no part of a graph")
    return args[1]


def _type_of(m: Machine, args: tuple[Any, ...]) -> Any:
    """``type(None)`` and ``type(...)``, which are written as calls."""
    if len(args) == 1 and (args[0] is None or args[0] is Ellipsis or args[0] is NotImplemented):
        return type(args[0])
    raise Refused("the file asks for the type of something")


def _dtype_kind(m: Machine, args: tuple[Any, ...]) -> Any:
    """The kind of a dtype, which NumPy 1 writes as a call with the scalar type."""
    if len(args) == 1 and isinstance(args[0], type) and issubclass(args[0], np.generic):
        return type(np.dtype(args[0]))
    raise Refused("the file asks for the kind of something that is no dtype")


_CLASSES = (TreeDef, LeafDef, ArgsIndex, NameSpace, InternalGraph, Input, GetAttr, CallMethod, CallFunction, Apply)
_CLASSES += (Constant, ModuleNode, TensorNode, _ModuleState, TracedModule)  # type: ignore[assignment]
_BUILD: dict[type, Any] = {
    TreeDef: _tree_state,
    LeafDef: _tree_state,
    ArgsIndex: _args_index_state,
    NameSpace: _space_state,
    InternalGraph: _graph_state,
    **dict.fromkeys(_KINDS, _expr_state),
    ModuleNode: _node_state,
    TensorNode: _node_state,
    _ModuleState: _module_state_state,
    TracedModule: _traced_state,
}
_TABLE: dict[tuple[str, str], Global] = {
    (c.__module__, c.__name__): Global(c.__name__, c, _flat(c, 1 if issubclass(c, TreeDef) else None)) for c in _CLASSES
}
_TABLE["megengine.traced_module.node", "NodeMixin"] = Global("NodeMixin", NodeMixin)
_TABLE["inspect", "FullArgSpec"] = Global("FullArgSpec", NOT_DATA, _full_spec)
for _place in ("megengine.core._imperative_rt.common", "megengine.core._core"):
    _TABLE[_place, "CompNode"] = Global("CompNode", CompNode, _device)
_TABLE["typing", "cast"] = Global("cast", NOT_DATA, _same_part)
_TABLE["builtins", "type"] = Global("type", type, _type_of)  # as the kind of an argument that is a class
_TABLE["abc", "ABCMeta"] = Global("ABCMeta", type)  # the kind of the class Tensor in MegEngine
for _place in ("numpy.core", "numpy._core"):
    _TABLE[_place, "_DType_reconstruct"] = Global("_DType_reconstruct", NOT_DATA, _dtype_kind)
_TABLE["builtins", "Ellipsis"] = Global("Ellipsis", Ellipsis)
_TABLE["builtins", "NotImplemented"] = Global("NotImplemented", NotImplemented)
_TABLE["builtins", "ellipsis"] = Global("ellipsis", type(Ellipsis))
_TABLE["megengine.module.module", "Module"] = Global("Module", Module)


def _find(module: str, name: str) -> Global | None:
    found = _TABLE.get((module, name))
    if found is not None:
        return found
    if module in ("megengine.core._imperative_rt.ops", "megengine.core.ops.builtin") and name in OPS:
        return Global(name, OPS[name])
    if module in ("numpy.dtypes", "numpy"):
        for code in "?bBhHiIlLqQefdFD":
            kind = type(np.dtype(code))
            if name in (kind.__name__, f"dtype[{np.dtype(code).name}]"):
                return Global(name, kind)
    for kind in (*USER_REGISTERED_CONTAINER_TYPE, *USER_REGISTERED_LEAF_TYPE, *SUPPORTED_LEAF_TYPE):
        if (kind.__module__, kind.__qualname__) == (module, name) and kind in SUPPORTED_TYPE:
            return Global(name, kind)
    return None


def extension() -> tuple[Callable[[str, str], Global | None], dict[type, Any]]:
    """What ``_pickle`` is extended by."""
    for part in ("qat", "quantized"):  # so that their classes are there to be named
        if f"megengine.module.{part}" not in sys.modules:
            try:
                __import__(f"megengine.module.{part}")
            except ImportError:
                continue
    return _find, _BUILD
