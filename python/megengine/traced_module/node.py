"""Nodes of a graph: the modules and tensors that expressions take and give."""

from __future__ import annotations

import abc
import weakref
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..core._core import CompNode
from ..core.tensor.qparams import QParams
from ..module.module import Module
from ..tensor import Tensor
from .parts import Part

if TYPE_CHECKING:
    from .expr import Expr
    from .graph import InternalGraph

__all__ = ["ModuleNode", "Node", "NodeMixin", "TensorNode"]


class Node(Part):
    """A value of a graph: the expression that makes it, and those that use it.

    Args:
        expr: the expression that makes it.
        name: unique in its graph.
        qualname: says where in the original module it came from.
    """

    expr: Any = ()  # until there is one

    def __init__(self, expr: Expr, name: str | None, qualname: str | None) -> None:
        self.expr = expr
        self.users: list[Expr] = []
        self._id: int | None = None
        self._name = name
        self._qualname = qualname
        self.actual_node: list[Node] = []
        self._top_graph: weakref.ref[InternalGraph] | None = None

    @property
    def top_graph(self) -> InternalGraph | None:
        """The graph that the node is in."""
        return None if self._top_graph is None else self._top_graph()

    @property
    def name(self) -> str:
        """The name, unique in the graph; a name that is in use is refused."""
        return self._name or ""

    @name.setter
    def name(self, new_name: str) -> None:
        graph = self.top_graph
        assert graph is not None, "name: the node is in no graph."
        assert new_name == self._name or new_name not in graph._namespace.used_names, (
            f"The name({new_name}) is already in use. Please try a different one again."
        )
        new_name = graph._namespace.create_unique_name(new_name)
        graph._namespace.unassociate_name_with_obj(self)
        graph._namespace.associate_name_with_obj(new_name, self)
        self._name = new_name

    @property
    def qualname(self) -> str:
        """Where the value came from: ``Net.layer.[func_relu]``."""
        return self._qualname or ""

    def __repr__(self) -> str:
        return f"{self}"

    def __format__(self, spec: str) -> str:
        if spec in ("", "i", "p", "ip", "pi"):
            graph = self.top_graph
            name = f"{graph._name}_{self._name}" if "p" in spec and graph is not None else self.name
            return f"%{self._id}_{name}" if "i" in spec else name
        return format(self.name, spec)

    def __getstate__(self) -> dict[str, Any]:
        state = {"expr": self.expr, "users": self.users, "_id": self._id}
        return {**state, **self._own_state(), "_name": self._name, "_qualname": self._qualname}

    def _own_state(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Files before 1.9 kept an original name beside the name.
        state = {k: v for k, v in state.items() if k not in ("_orig_name", "_prefix_name")}
        self.__dict__.update({"_name": None, "_qualname": None, "actual_node": [], "_top_graph": None, **state})

    def __copy__(self) -> Node:
        """A node with the same description, in no graph."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        new.users, new.actual_node, new._top_graph = [], [], None
        return new

    def __deepcopy__(self, memo: dict[int, Any]) -> Node:
        from copy import deepcopy

        if id(self) not in memo:
            assert self.top_graph is not None, "deepcopy: the node is in no graph."
            deepcopy(self.top_graph, memo)
        new: Node = memo[id(self)]
        return new


class ModuleNode(Node):
    """A node for a module."""

    module_type: Any = Module
    _owner: Any = None  # a weak reference to the module

    def __init__(self, expr: Expr, name: str | None = None, qualname: str | None = None) -> None:
        super().__init__(expr, name, qualname)

    @property
    def owner(self) -> Any:
        """The module itself, as it is now: attributes may have been exchanged since the graph was made."""
        from .expr import GetAttr
        from .utils import get_subattr

        expr = self.expr
        if isinstance(expr, GetAttr):
            base = expr.inputs[0].owner  # type: ignore[attr-defined]
            try:
                return None if base is None else get_subattr(base, expr.name)
            except AttributeError:
                return None
        return None if self._owner is None else self._owner()

    def _own_state(self) -> dict[str, Any]:
        kind = self.module_type
        return {"module_type": (kind.__module__, kind.__qualname__) if isinstance(kind, type) else kind}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._owner = None

    def __copy__(self) -> Node:
        new = super().__copy__()
        new.__dict__.pop("_owner", None)
        return new

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        from .insert import insert_attribute

        return insert_attribute(self, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from .insert import insert_module_call

        return insert_module_call(self, args, kwargs)


class TensorNode(Node):
    """A node for a tensor; inside ``insert_exprs`` it can be computed with."""

    def __init__(
        self,
        expr: Expr,
        name: str | None = None,
        qualname: str | None = None,
        shape: tuple[int, ...] | None = None,
        dtype: Any = None,
        qparams: QParams | None = None,
        device: CompNode | None = None,
    ) -> None:
        super().__init__(expr, name, qualname)
        self._shape = shape
        self._dtype = dtype
        self._qparams = qparams
        self._device = device
        self._value: Tensor | None = None

    def _own_state(self) -> dict[str, Any]:
        # Where it was when it was traced is of no use elsewhere.
        return {"_qparams": self._qparams, "_shape": self._shape, "_dtype": self._dtype, "_device": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for key in ("_shape", "_dtype", "_qparams", "_device"):
            self.__dict__.setdefault(key, None)
        self._value = None

    def __copy__(self) -> Node:
        new: Any = super().__copy__()
        new._value = None
        return new  # type: ignore[no-any-return]

    @property
    def shape(self) -> Any:
        """The shape when traced; inside ``insert_exprs`` a node for the shape at run time."""
        from .insert import insert_shape, inserting

        return insert_shape(self) if inserting(self) else self._shape

    @shape.setter
    def shape(self, shape: tuple[int, ...]) -> None:
        self._shape = shape

    @property
    def dtype(self) -> Any:
        """The dtype when traced."""
        return self._dtype

    @dtype.setter
    def dtype(self, dtype: Any) -> None:
        self._dtype = dtype

    @property
    def device(self) -> Any:
        """The device when traced."""
        return self._device

    @device.setter
    def device(self, device: Any) -> None:
        self._device = device

    @property
    def qparams(self) -> Any:
        """Quantisation parameters, if the tensor had any."""
        return self._qparams

    @qparams.setter
    def qparams(self, qparams: Any) -> None:
        self._qparams = qparams

    @property
    def value(self) -> Tensor | None:
        """A value given by ``reset_inputs`` or by hand; used instead of zeros where expressions are inserted."""
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        if isinstance(value, Tensor):
            self._describe(value)
        elif value is not None and not isinstance(value, np.ndarray):
            raise TypeError(f"TensorNode.value: needs a Tensor; got {type(value).__name__}.")
        self._value = Tensor(value) if isinstance(value, np.ndarray) else value

    def _describe(self, value: Tensor) -> None:
        self._shape, self._dtype, self._device = value._tuple_shape, value.dtype, value.device
        self._qparams = value._qparams

    @property
    def ndim(self) -> int:
        """The number of axes when traced."""
        return len(self._shape or ())

    __hash__ = Node.__hash__


class NodeMixin(abc.ABC):  # noqa: B024
    """What can stand for a node while a module is traced: the builder of a submodule, or a tensor.

    A tensor is not a subclass; its node is kept in its attributes.
    """

    __node: Node | None = None
    _KEY: ClassVar[str] = "_NodeMixin__node"

    @classmethod
    def wrap(cls, value: Any, node: Any) -> None:
        """Let a tensor or a builder stand for a node."""
        if isinstance(node, TensorNode) and isinstance(value, Tensor):
            node._describe(value)
        elif isinstance(node, ModuleNode) and isinstance(value, NodeMixin):
            mod = getattr(value, "_mod", None)
            if mod is not None:
                node._owner = weakref.ref(mod)
        vars(value)[cls._KEY] = node
        from .module_tracer import active_module_tracer

        tracer = active_module_tracer()
        if tracer is not None:
            tracer.note_wrapped(value)

    @classmethod
    def wrap_safe(cls, value: Any, node: Any) -> None:
        """``wrap`` where the value can stand for a node, nothing elsewhere."""
        if isinstance(value, (Tensor, NodeMixin)):
            cls.wrap(value, node)

    @classmethod
    def get(cls, value: Any, *default: Any) -> Any:
        """The node that a value stands for."""
        node = vars(value).get(cls._KEY) if isinstance(value, (Tensor, NodeMixin)) else None
        if node is None:
            if default:
                return default[0]
            raise AttributeError(f"a {type(value).__name__} that stands for no node")
        return node

    @classmethod
    def get_wrapped_type(cls, value: Any) -> type[Node]:
        """The kind of node for a value."""
        return TensorNode if isinstance(value, Tensor) else ModuleNode

    @classmethod
    def clear_node(cls, value: Any) -> None:
        """Let a value stand for nothing again."""
        vars(value).pop(cls._KEY, None)
