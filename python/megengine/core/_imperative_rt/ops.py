"""The original's op classes, as programs construct them for ``apply``.

A class is made from the table of src/compat when it is first asked for; here is only how it looks from Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .._core import op_class_info, op_class_names
from ._stand_ins import stand_in
from .opdef import OpDef, OpEnum, define_enum, define_op

#: Chains of elementwise ops are fused, in every trace.
jit_supported = True

_enums: dict[tuple[str, str], type[OpEnum]] = {}


def _enum(owner: str, name: str, bits: bool, members: tuple[str, ...]) -> type[OpEnum]:
    if (owner, name) not in _enums:
        _enums[owner, name] = define_enum(owner, name, members, bits)
    return _enums[owner, name]


def _make(name: str) -> type[OpDef]:
    info = op_class_info(name)
    fields: dict[str, Any] = {}
    enums: dict[str, type[OpEnum]] = {}
    for field, default, members in info["fields"]:
        if members is None:
            fields[field] = default
        else:
            enum = enums[members[1]] = _enum(*members)
            fields[field] = enum.numbered(default)
    return define_op(name, fields, enums, info["index"], info["effect"])


class _Classes(Mapping[str, type[OpDef]]):
    """Every op class by name, made when looked up."""

    def __init__(self) -> None:
        self._made: dict[str, type[OpDef] | None] = dict.fromkeys(op_class_names())

    def __getitem__(self, name: str) -> type[OpDef]:
        found = self._made[name]
        if found is None:
            found = self._made[name] = _make(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


OPS = _Classes()


def set_jit_enabled(enabled: bool) -> bool:
    """Accepted: a trace fuses by itself, and no bit depends on it."""
    return True


def __getattr__(name: str) -> Any:
    if name in OPS:
        return OPS[name]
    from . import rng_handles, subgraph  # with the generators, imported when first asked for

    for module in (rng_handles, subgraph):
        if name in module.__all__:
            return getattr(module, name)
    return stand_in(__name__, name)


def __dir__() -> list[str]:
    return [*globals(), *OPS]
