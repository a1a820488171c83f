"""Values of Python's library that training programs keep beside weights: arguments, paths, times, exact numbers."""

from __future__ import annotations

import datetime
import os
import pathlib
import re
from argparse import Namespace
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

from .machine import Damaged, Machine, Refused

#: Digits of a fraction, whose parts are divided by one another until nothing is left.
_MAX_DIGITS = 1000


def _value(kind: Any, *forms: tuple[Any, ...]) -> Callable[[Machine, tuple[Any, ...]], Any]:
    """``kind(*args)`` for arguments of one of ``forms``: values that hold nothing, so they may be keys."""

    def make(m: Machine, args: tuple[Any, ...]) -> Any:
        if tuple(map(type, args)) not in forms:
            got = ", ".join(type(a).__name__ for a in args)
            raise Refused(f"the file calls {kind.__name__} with ({got}), which no pickle of one does")
        m.spend(sum(len(a) for a in args if type(a) is str))
        try:
            return m.own(kind(*args), weight=1)
        except (TypeError, ValueError, OverflowError, ZeroDivisionError, InvalidOperation) as e:
            raise Damaged(f"a {kind.__name__} that is none ({e})") from None

    return make


def _path(kind: Any) -> Callable[[Machine, tuple[Any, ...]], Any]:
    def make(m: Machine, args: tuple[Any, ...]) -> Any:
        if any(type(a) is not str for a in args):
            raise Refused("the file makes a path of something else than text")
        m.spend(sum(map(len, args)))
        return m.own(kind(*args), weight=1)

    return make


def _fraction(m: Machine, args: tuple[Any, ...]) -> Any:
    if len(args) == 1 and type(args[0]) is str and re.fullmatch(r"-?\d+(/\d+)?", args[0], re.ASCII):
        args = tuple(map(int, args[0].split("/"))) if len(args[0]) <= 2 * _MAX_DIGITS else ()
    if not args or any(type(a) is int and a.bit_length() > 4 * _MAX_DIGITS for a in args):
        raise Refused(f"the file has a fraction of more than {_MAX_DIGITS} digits")
    return _value(Fraction, (int,), (int, int))(m, args)


def _space(kind: Any) -> Callable[[Machine, tuple[Any, ...]], Any]:
    def make(m: Machine, args: tuple[Any, ...]) -> Any:
        if args:
            raise Refused(f"the file makes a {kind.__name__} with arguments, which no pickle of one does")
        return m.own(kind(), cyclic=True)

    return make


def _attributes(m: Machine, space: Any, state: Any) -> None:
    if type(state) is not dict or any(type(k) is not str for k in state):
        raise Refused(f"the state of a {type(space).__name__} is not a dict of attributes")
    vars(space).update(state)


_ZONE = datetime.timezone
_HERE = os.name
_PATHS = {  # a path of the other kind of system has no files here
    "PurePosixPath": pathlib.PurePosixPath,
    "PureWindowsPath": pathlib.PureWindowsPath,
    "PosixPath": pathlib.Path if _HERE == "posix" else pathlib.PurePosixPath,
    "WindowsPath": pathlib.Path if _HERE == "nt" else pathlib.PureWindowsPath,
}

TABLE: dict[tuple[str, str], tuple[Any, Any]] = {
    ("argparse", "Namespace"): (Namespace, _space(Namespace)),
    ("types", "SimpleNamespace"): (SimpleNamespace, _space(SimpleNamespace)),
    ("datetime", "datetime"): (datetime.datetime, _value(datetime.datetime, (bytes,), (bytes, _ZONE))),
    ("datetime", "date"): (datetime.date, _value(datetime.date, (bytes,))),
    ("datetime", "time"): (datetime.time, _value(datetime.time, (bytes,), (bytes, _ZONE))),
    ("datetime", "timedelta"): (datetime.timedelta, _value(datetime.timedelta, (int, int, int))),
    ("datetime", "timezone"): (_ZONE, _value(_ZONE, (datetime.timedelta,), (datetime.timedelta, str))),
    ("decimal", "Decimal"): (Decimal, _value(Decimal, (str,))),
    ("fractions", "Fraction"): (Fraction, _fraction),
}
for _name, _kind in _PATHS.items():
    for _module in ("pathlib", "pathlib._local"):  # the second is what Python 3.13 writes
        TABLE[_module, _name] = (_kind, _path(_kind))

MODULES = frozenset(module for module, _ in TABLE)
BUILD: dict[type, Callable[[Machine, Any, Any], None]] = {Namespace: _attributes, SimpleNamespace: _attributes}
