"""Names of ops and variables in dumped graphs: the path of modules that were running, and what was named by hand."""

from __future__ import annotations

from typing import Any


class AutoNaming:
    """A stack of scopes, one per running module, and the names given to variables. All state is on the class."""

    scopes: list[str] = []
    c_ops: list[Any] = []
    name2ops: dict[str, list[Any]] = {}
    handle2names: dict[int, str] = {}

    @classmethod
    def clear(cls) -> None:
        """Forget all names; the scopes of running modules stay."""
        cls.c_ops.clear()
        cls.name2ops.clear()
        cls.handle2names.clear()

    @classmethod
    def push_scope(cls, scope: str | None) -> None:
        """Enter a scope; None changes nothing."""
        if scope is not None:
            cls.scopes.append(scope)

    @classmethod
    def pop_scope(cls) -> None:
        """Leave the innermost scope."""
        cls.scopes.pop()

    @classmethod
    def get_scope(cls) -> str:
        """The path of the running modules.

        >>> from megengine.utils.naming import AutoNaming
        >>> AutoNaming.push_scope("net"), AutoNaming.push_scope("conv1"), AutoNaming.get_scope()
        (None, None, 'net.conv1')
        >>> AutoNaming.pop_scope(), AutoNaming.pop_scope(), AutoNaming.get_scope()
        (None, None, '')
        """
        return ".".join(cls.scopes)

    @classmethod
    def gen_name(cls, x: Any) -> str:
        """The name of a tensor in the running scope: its own, or the one its module gave it."""
        scope = cls.get_scope()
        own = getattr(x, "_name", None) or getattr(x, "name", None) or ""
        return f"{scope}.{own}" if scope and own else own or scope

    @classmethod
    def record_var_name(cls, handle: int, name: str) -> None:
        """Remember the name of a variable."""
        cls.handle2names[handle] = name

    @classmethod
    def get_var_name(cls, handle: int) -> str | None:
        """The name remembered for a variable."""
        return cls.handle2names.get(handle)

    @classmethod
    def record_opnode(cls, op: Any) -> None:
        """Remember an op of the graph that is being dumped."""
        cls.name2ops.setdefault(op.name, []).append(op)

    @classmethod
    def remove_duplicate_names(cls) -> None:
        """Number the ops that share a name: ``name[0]``, ``name[1]``, …"""
        for name, same in cls.name2ops.items():
            if len(same) > 1:
                for i, op in enumerate(same):
                    op.name = f"{name}[{i}]"
        cls.name2ops.clear()
