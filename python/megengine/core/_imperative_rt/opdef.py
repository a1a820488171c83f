"""The shape of the original's op classes: fields with defaults, enums that equal their own names."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

_OPS_MODULE = "megengine.core._imperative_rt.ops"


class OpDef:
    """An op with its parameters, compared by value. ``apply(op, *inputs)`` runs it."""

    __module__ = "megengine.core._imperative_rt"
    _fields: ClassVar[dict[str, Any]] = {}
    _index: ClassVar[int] = -1  # in the table of src/compat
    _effect: ClassVar[str] = ""  # what apply does besides: "generator" or "replace"; "steps": it calls _run instead
    scope: str

    def _run(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        raise NotImplementedError

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        names = [*self._fields, "scope"]
        if len(args) > len(names):
            raise TypeError(f"{type(self).__name__}: takes at most {len(names)} arguments; got {len(args)}.")
        given = dict(zip(names, args))
        for name, value in kwargs.items():
            if name not in names:
                raise TypeError(f"{type(self).__name__}: has no parameter {name!r}; it has {', '.join(names)}.")
            if name in given:
                raise TypeError(f"{type(self).__name__}: parameter {name!r} is given twice.")
            given[name] = value
        self.scope = ""
        for name, default in self._fields.items():
            setattr(self, name, given.get(name, default))
        if "scope" in given:
            self.scope = given["scope"]

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "scope" and name not in self._fields:
            raise AttributeError(f"{type(self).__name__} has no parameter {name!r}.")
        default = self._fields.get(name)
        if isinstance(default, OpEnum):
            value = type(default).of(value)
        elif isinstance(default, list):
            value = list(value)
        elif name == "dtype" and value is not None:
            value = np.dtype(value)
        object.__setattr__(self, name, value)

    def __getstate__(self) -> dict[str, Any]:
        def plain(v: Any) -> Any:
            return v.state() if isinstance(v, OpEnum) else v

        return {name: plain(getattr(self, name)) for name in self._fields}

    def __setstate__(self, state: dict[str, Any]) -> None:
        OpDef.__init__(self, **state)

    def _key(self) -> tuple[Any, ...]:
        def frozen(v: Any) -> Any:
            return tuple(frozen(i) for i in v) if isinstance(v, (list, tuple)) else v

        return tuple(frozen(getattr(self, name)) for name in self._fields if name not in ("seed", "handle"))

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._key()))

    def __repr__(self) -> str:
        name = type(self).__name__
        return str(getattr(self, "mode").members()[0]) if name == "Elemwise" else name  # noqa: B009


class OpEnum:
    """A member of an op's enum. It equals its name in any case; those of a bit enum can be joined by ``|``."""

    names: ClassVar[tuple[str, ...]] = ()
    upper_names: ClassVar[tuple[str, ...]] = ()
    bits: ClassVar[bool] = False

    def __init__(self, value: int) -> None:
        self._value = value

    @classmethod
    def of(cls, given: Any) -> OpEnum:
        """A member from a member, a name, or for a bit enum also a number or names."""
        if isinstance(given, cls):
            return given
        if isinstance(given, str) and given.upper() in cls.upper_names:
            at = cls.upper_names.index(given.upper())
            return cls(1 << at if cls.bits else at)
        if cls.bits and isinstance(given, (tuple, list)):
            total = 0
            for one in given:
                total |= cls.of(one)._value
            return cls(total)
        if cls.bits and isinstance(given, int):
            return cls(given)
        if isinstance(given, OpEnum) and given.names == cls.names:
            return cls(given._value)
        raise RuntimeError(f"{cls.__qualname__}: one of {', '.join(cls.names)} is needed; got {given!r}.")

    @classmethod
    def numbered(cls, value: int) -> OpEnum:
        """The member with a number; the same object as the attribute of the class."""
        if cls.bits:
            return cls(value)
        member: OpEnum = getattr(cls, cls.names[value])
        return member

    def members(self) -> tuple[str, ...]:
        """The names of the bits that are set, or the one name."""
        if not self.bits:
            return (self.names[self._value],)
        return tuple(n for i, n in enumerate(self.names) if self._value >> i & 1)

    def state(self) -> Any:
        """What is pickled: the name, or the names of a bit enum."""
        return self.members() if self.bits else self.members()[0]

    def __or__(self, other: Any) -> OpEnum:
        return type(self)(self._value | self.of(other)._value)

    def __and__(self, other: Any) -> OpEnum:
        return type(self)(self._value & self.of(other)._value)

    def __bool__(self) -> bool:
        return bool(self._value) if self.bits else True

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return tuple(n.upper() for n in self.members()) == (other.upper(),)
        return isinstance(other, OpEnum) and self.names == other.names and self._value == other._value

    def __hash__(self) -> int:
        return hash((self.names, self._value))

    def __repr__(self) -> str:
        return " + ".join(f"{type(self).__qualname__}.{n}" for n in self.members()) or f"{type(self).__qualname__}.NONE"


def define_enum(owner: str, name: str, members: tuple[str, ...], bits: bool = False) -> type[OpEnum]:
    """An enum class ``owner.name``."""
    body = {
        "names": members,
        "upper_names": tuple(n.upper() for n in members),
        "bits": bits,
        "__module__": _OPS_MODULE,
        "__qualname__": f"{owner}.{name}",
    }
    cls = type(name, (OpEnum,), body)
    for i, n in enumerate(members):
        setattr(cls, n, cls(1 << i if bits else i))
    return cls


def define_op(
    name: str, fields: dict[str, Any], enums: dict[str, type[OpEnum]], index: int = -1, effect: str = ""
) -> type[OpDef]:
    """An op class; an enum in ``enums`` also becomes an attribute of the class."""
    body: dict[str, Any] = {
        "_fields": fields,
        "_index": index,
        "_effect": effect,
        "__module__": _OPS_MODULE,
        "__qualname__": name,
        "__doc__": f"The primitive op {name}.",
    }
    return type(name, (OpDef,), {**body, **enums})
