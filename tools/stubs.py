#!/usr/bin/env python3
"""python/megengine/core/_ops.pyi: the ops of the extension as the type checker sees them, made from the registry.

    tools/stubs.py            write it
    tools/stubs.py --check    fail when what is there is not what the registry says

With it mypy refuses a misspelt op or attribute, an attribute of the wrong type, a wrong number of inputs or results.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
STUB = ROOT / "python" / "megengine" / "core" / "_ops.pyi"

#: Defaults that are dtypes; no attribute that is a text has such a one.
DTYPES = ("bool", "int32", "float32", "qint8", "quint8")

HEAD = '''"""The ops of the registry. Made by tools/stubs.py; do not edit."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

from megengine.core._core import TensorBase
from megengine.tensor import Tensor

_P = ParamSpec("_P")
_R = TypeVar("_R")

class _Op(Generic[_P, _R]):
    """Positional arguments are inputs (tensors, numbers, arrays), keywords attributes."""

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...
    def uncast(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...
    def update(self, cells: tuple[TensorBase, ...], /, *args: _P.args, **kwargs: _P.kwargs) -> None: ...

def _op(f: Callable[_P, _R], /) -> _Op[_P, _R]: ...
'''


def attribute_type(default: Any) -> str:
    """The type of an attribute by its default; where the binding converts many things, any of them."""
    if isinstance(default, bool):
        return "bool"
    if isinstance(default, int):
        return "int"
    if isinstance(default, float):
        return "float"
    if isinstance(default, str):
        return "Any" if default in DTYPES else "str"  # a dtype may also be given as NumPy has it
    if isinstance(default, (tuple, list)):
        return "Sequence[int]"
    return "Any"


def parameters(info: dict[str, Any]) -> str:
    names: list[str] = info["inputs"]
    parts = []
    for i, name in enumerate(names):
        if info["variadic"] and i == len(names) - 1:
            if parts:
                parts.append("/")
            parts.append(f"*{name}: Any")
        else:
            parts.append(f"{name}: Any" if i < info["required"] else f"{name}: Any = ...")
    attrs = [f"{name}: {attribute_type(value)} = ..." for name, value in info["attrs"].items()]
    if not info["variadic"]:
        parts += ["/"] if parts else []
        parts += ["*"] if attrs else []
    return ", ".join(parts + attrs)


def result(info: dict[str, Any]) -> str:
    n = len(info["outputs"])
    return "Tensor" if n == 1 else f"tuple[{', '.join(['Tensor'] * n)}]"


def text() -> str:
    sys.path.insert(0, str(ROOT / "python"))
    from megengine.core import _core

    lines = [HEAD]
    for name in sorted(_core.op_names()):
        info = _core.op_info(name)
        lines.append(f"@_op\ndef {name}({parameters(info)}) -> {result(info)}: ...\n")
    return "".join(lines)


def main() -> int:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--check", action="store_true", help="compare instead of writing")
    wanted = text()
    if not args.parse_args().check:
        STUB.write_text(wanted)
    elif not STUB.exists() or STUB.read_text() != wanted:
        print(
            f"{STUB.relative_to(ROOT)} is not what the registry says; tools/stubs.py writes it anew.", file=sys.stderr
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
