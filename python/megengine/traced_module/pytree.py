"""Structures of values: what a call was given and what it returned, as a list of leaves and the tree they hang on."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..core._core import CompNode
from ..core.tensor.dtype import QuantDtypeMeta
from ..core.tensor.qparams import LSQParams, QParams, QuantMode
from ..module.module import Module
from ..tensor import Parameter, Tensor
from .node import ModuleNode, Node, NodeMixin, TensorNode

__all__ = [
    "ArgsIndex",
    "LeafDef",
    "NodeType",
    "TreeDef",
    "qparams_flatten",
    "qparams_unflatten",
    "register_supported_type",
    "tree_flatten",
]


class ArgsIndex:
    """Stands for one argument of a call, by its position and name."""

    def __init__(self, index: int = 0, name: str = "") -> None:
        self.index = index
        self.name = name

    def __repr__(self) -> str:
        return self.name


class NodeType(NamedTuple):
    """How a container is taken apart, and put together again."""

    flatten: Callable[[Any], tuple[list[Any], Any]]
    unflatten: Callable[[list[Any], Any], Any]


def _dict_flatten(ordered: bool, inp: Any) -> tuple[list[Any], Any]:
    keys = tuple(inp) if ordered else tuple(sorted(inp, key=lambda k: (str(type(k)), k)))
    return [inp[k] for k in keys], keys


def _dict_unflatten(kind: Any, values: list[Any], keys: Any) -> Any:
    pairs = zip(keys, values)
    if kind is collections.defaultdict:
        made: Any = collections.defaultdict(None)
        made.update(pairs)
        return made
    return kind(pairs)


def qparams_flatten(inp: Any) -> tuple[list[Any], Any]:
    """The values of quantisation parameters, and the names they go by."""
    names = tuple(inp.__slots__)
    return [getattr(inp, name) for name in names], names


def qparams_unflatten(qparam_type: Any, inp: list[Any], aux_data: Any) -> Any:
    """Quantisation parameters from their values."""
    return qparam_type(**dict(zip(aux_data, inp)))


#: Containers.
SUPPORTED_TYPE: dict[type, NodeType] = {
    list: NodeType(lambda x: (list(x), None), lambda x, _: list(x)),
    tuple: NodeType(lambda x: (list(x), None), lambda x, _: tuple(x)),
    dict: NodeType(partial(_dict_flatten, False), partial(_dict_unflatten, dict)),
    collections.defaultdict: NodeType(partial(_dict_flatten, False), partial(_dict_unflatten, collections.defaultdict)),
    collections.OrderedDict: NodeType(partial(_dict_flatten, True), partial(_dict_unflatten, collections.OrderedDict)),
    slice: NodeType(lambda x: ([x.start, x.stop, x.step], None), lambda x, _: slice(*x)),
    QParams: NodeType(qparams_flatten, partial(qparams_unflatten, QParams)),
    LSQParams: NodeType(qparams_flatten, partial(qparams_unflatten, LSQParams)),
}
#: Leaves, by their exact type.
SUPPORTED_LEAF_TYPE: set[type] = {
    Tensor, Parameter, str, int, float, bool, bytes, complex, type(None), type(Ellipsis), type(NotImplemented),
    QuantDtypeMeta, QuantMode, CompNode, range,
}  # fmt: skip
#: Leaves, subclasses too.
SUPPORTED_LEAF_CLS: tuple[type, ...] = (
    Tensor, Module, Node, NodeMixin, ArgsIndex, np.dtype, np.ndarray, np.generic,
)  # fmt: skip
USER_REGISTERED_LEAF_TYPE: list[type] = []
USER_REGISTERED_CONTAINER_TYPE: list[type] = []


def register_supported_type(
    type: type,
    flatten_fn: Callable[[Any], tuple[list[Any], Any]] | None = None,
    unflatten_fn: Callable[[list[Any], Any], Any] | None = None,
) -> None:
    """Let values of a type be arguments, results and attributes of traced modules.

    Args:
        type: the type.
        flatten_fn: for a container, gives its parts as a list and what else is needed to make it again; None for a
            type whose values are kept whole.
        unflatten_fn: called as ``unflatten_fn(parts, rest)``, makes the container.

    >>> from megengine.traced_module import register_supported_type
    >>> class Pair:
    ...     def __init__(self, a, b):
    ...         self.a, self.b = a, b
    >>> register_supported_type(Pair, lambda p: ([p.a, p.b], None), lambda parts, rest: Pair(*parts))
    """
    if not isinstance(type, _type):
        raise TypeError(f"register_supported_type: needs a class; got {type!r}.")
    if (flatten_fn is None) != (unflatten_fn is None):
        raise ValueError(
            f"register_supported_type: {type.__name__} needs both flatten_fn and unflatten_fn, or neither."
        )
    if flatten_fn is not None and unflatten_fn is not None:
        SUPPORTED_TYPE[type] = NodeType(flatten_fn, unflatten_fn)
        if type not in USER_REGISTERED_CONTAINER_TYPE:
            USER_REGISTERED_CONTAINER_TYPE.append(type)
        return
    SUPPORTED_LEAF_TYPE.add(type)
    if type not in USER_REGISTERED_LEAF_TYPE:
        USER_REGISTERED_LEAF_TYPE.append(type)


_type = type


def _is_leaf(obj: Any) -> bool:
    kind = type(obj)
    if kind in SUPPORTED_TYPE:
        return False
    if kind in SUPPORTED_LEAF_TYPE or isinstance(obj, SUPPORTED_LEAF_CLS):
        return True
    if kind.__module__ == "megengine.distributed.group":  # imported or not
        return True
    return isinstance(obj, type) and (issubclass(obj, np.generic) or obj in SUPPORTED_LEAF_TYPE)


def _is_const_leaf(obj: Any) -> bool:
    return not isinstance(obj, (Tensor, NodeMixin, Module, Node))


_TENSOR = (Tensor, TensorNode, ArgsIndex)
_MODULE = (Module, ModuleNode, NodeMixin, ArgsIndex)


def _leaf_type(obj: Any) -> tuple[type, ...]:
    if isinstance(obj, (Tensor, TensorNode)):
        return _TENSOR
    if isinstance(obj, (Module, ModuleNode, NodeMixin)):
        return _MODULE
    return (type(obj), ArgsIndex)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return type(a) is type(b) and a.dtype == b.dtype and np.array_equal(a, b)
    try:
        return type(a) is type(b) and bool(a == b or (a != a and b != b))
    except (TypeError, ValueError):
        return False


def _hash(value: Any) -> int:
    try:
        return hash(value)
    except TypeError:
        return hash(str(value))


class TreeDef:
    """The form of a structure: a container of known type over further trees. Equal forms compare and hash equal."""

    def __init__(self, type: Any, aux_data: Any, children_defs: list[TreeDef]) -> None:
        self.type: Any = type
        self.aux_data = aux_data
        self.children_defs = children_defs
        self.num_leaves: int = sum(ch.num_leaves for ch in children_defs)

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """The structure with these leaves in place.

        >>> from megengine.traced_module.pytree import tree_flatten
        >>> leaves, form = tree_flatten({"a": (1, 2)})
        >>> form.unflatten([3, 4])
        {'a': (3, 4)}
        """
        if len(leaves) != self.num_leaves:
            raise AssertionError(f"TreeDef.unflatten: {self} has {self.num_leaves} leaves; got {len(leaves)}.")
        start, children = 0, []
        for child in self.children_defs:
            children.append(child.unflatten(leaves[start : start + child.num_leaves]))
            start += child.num_leaves
        return SUPPORTED_TYPE[self.type].unflatten(children, self.aux_data)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TreeDef)
            and not isinstance(other, LeafDef)
            and self.type is other.type
            and _same(self.aux_data, other.aux_data)
            and self.children_defs == other.children_defs
        )

    def __hash__(self) -> int:
        return hash((self.type, _hash(self.aux_data), tuple(map(hash, self.children_defs))))

    def __repr__(self) -> str:
        parts = [repr(c) for c in self.children_defs]
        if self.type is tuple:
            return f"({', '.join(parts)})"
        if self.type is list:
            return f"[{', '.join(parts)}]"
        if issubclass(self.type, dict):
            return "{" + ", ".join(f"{key!r}:{part}" for key, part in zip(self.aux_data, parts)) + "}"
        return f"{self.type.__name__}({', '.join(parts)})"

    def _args_kwargs_repr(self) -> str:
        """The form of (args, kwargs) as one writes a call."""
        args, kwargs = self.children_defs
        parts = [repr(c) for c in args.children_defs]
        parts += [f"{key}={c!r}" for key, c in zip(kwargs.aux_data, kwargs.children_defs)]
        return ", ".join(parts)


class LeafDef(TreeDef):
    """The form of one value: its kind, and for a constant the value itself."""

    def __init__(self, type: Any) -> None:
        super().__init__(type if isinstance(type, tuple) else (type,), None, [])
        self.num_leaves = 1
        self.const_val: Any = None

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """The only leaf."""
        if len(leaves) != 1 or not (isinstance(leaves[0], self.type) or _is_leaf(leaves[0])):
            raise AssertionError(f"LeafDef.unflatten: needs one value of {self.type}; got {leaves}.")
        return leaves[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LeafDef) and self.type == other.type and _same(self.const_val, other.const_val)

    def __hash__(self) -> int:
        return hash((self.type, _hash(self.const_val)))

    def __getstate__(self) -> dict[str, Any]:
        """The kinds of dtypes have other names in other versions of NumPy; all of them are ``numpy.dtype``."""
        return {**self.__dict__, "type": tuple(np.dtype if issubclass(k, np.dtype) else k for k in self.type)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.type[0] is np.dtype and isinstance(self.const_val, np.dtype):
            self.type = (type(self.const_val), *self.type[1:])

    def __repr__(self) -> str:
        if self.const_val is not None or self.type[0] is type(None):
            return str(self.const_val)
        return str(self.type[0].__name__)


def tree_flatten(
    values: Any,
    leaf_type: Callable[[Any], Any] = _leaf_type,
    is_leaf: Callable[[Any], bool] = _is_leaf,
    is_const_leaf: Callable[[Any], bool] = _is_const_leaf,
) -> tuple[list[Any], TreeDef]:
    """The leaves of a structure in order, and its form.

    >>> from megengine.traced_module.pytree import tree_flatten
    >>> tree_flatten((1, {"b": [2], "a": None}))
    ([1, None, 2], (1, {'a':None, 'b':[2]}))
    """
    kind = type(values)
    if kind not in SUPPORTED_TYPE:
        if not is_leaf(values):
            raise AssertionError(
                f'doesn\'t support {values!r:.200} type, MUST use "register_supported_type" method to register '
                f"self-defined type; got a {kind.__module__}.{kind.__qualname__}."
            )
        leaf = LeafDef(leaf_type(values))
        if is_const_leaf(values):
            leaf.const_val = values
        return [values], leaf
    parts, aux = SUPPORTED_TYPE[kind].flatten(values)
    leaves: list[Any] = []
    children = []
    for part in parts:
        below, child = tree_flatten(part, leaf_type, is_leaf, is_const_leaf)
        leaves += below
        children.append(child)
    return leaves, TreeDef(kind, aux, children)
