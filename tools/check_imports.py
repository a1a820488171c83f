#!/usr/bin/env python3
"""Hold every import between the rooms of python/megengine to the table below; check_includes.py does it for C++.

Imports inside functions count as well: a late import hides a cycle, it does not remove it. Only what stands under
``if TYPE_CHECKING`` is free. Usage: tools/check_imports.py [repository root]. Prints file:line, the rule and the way
out, and exits with 1.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "megengine"
#: Helpers that know nothing of the rest.
HELPERS = tuple(f"utils.{name}" for name in "deprecation future hook max_recursion_limit naming tuple_function".split())
#: Room (a module or package, the longest that fits) -> rooms it may import beside itself.
ROOMS: dict[str, tuple[str, ...]] = {
    "version": (),
    "logger": (),
    "core": (),
    # Names of MegEngine's private modules; some are functions of ours, so this folder sits above them.
    "core._imperative_rt": (
        "core",
        "device",
        "core._config",
        "core.tensor.megbrain_graph",
        "tensor",
        "functional",
        "random",
        "logger",
    ),
    "core.ops": ("core", "core._imperative_rt"),
    "core._config": ("core", "config"),
    "core.tensor.array_method": ("core", "tensor", "functional"),
    "core.tensor.megbrain_graph": ("core", "core._imperative_rt", "tensor"),
    **dict.fromkeys(HELPERS, ()),
    "utils.hook": ("core",),
    "utils.tuple_function": ("core",),
    "device": ("core",),
    "config": ("core",),
    "tensor": ("core", "device", "logger", *HELPERS),
    "_multistream": ("tensor",),
    "_size": ("core", "tensor"),
    "random": ("core", "tensor", "_size"),
    # Below functional: its collectives and synchronised normalisation are functions among the others.
    "distributed": ("core", "device", "tensor", "random", "logger", *HELPERS),
    "functional": ("core", "core._imperative_rt", "tensor", "random", "config", "distributed", *HELPERS),
    "jit": ("core", "tensor", "_size", "module", "config", "logger", "jit.golden", *HELPERS),
    "jit.golden": ("data",),  # test cases of a file may be images
    # Layers that simulate quantisation; the package below is made of modules, and makes these.
    "module.qat": ("core", "tensor", "functional", "module", "quantization", "autodiff", "utils"),
    "module": (
        *("core", "core._imperative_rt", "core.ops", "tensor", "random", "functional", "distributed", "logger"),
        *HELPERS,
    ),
    "autodiff": ("core", "tensor", "random", "jit", *HELPERS),
    "optimizer": ("core", "tensor", "functional", "jit"),
    "amp": ("core", "tensor", "module", "jit", "autodiff"),
    "quantization": (
        *("core", "tensor", "functional", "distributed", "module", "module.qat", "module.quantized", "autodiff"),
        *("logger", "utils", *HELPERS),
    ),
    "distributions": ("tensor", "functional", "random"),
    "dtr": ("core",),
    "_pickle": ("core", "tensor", "module", "distributed"),
    "serialization": ("core", "device", "tensor", "_pickle", *HELPERS),
    # Writes files, so it sits above what the rest of the package sits below.
    "distributed.checkpoint": ("core", "tensor", "serialization", "distributed"),
    "safetensors": ("core", "tensor"),
    "data": ("core", "tensor", "random", "distributed", "_pickle", "logger"),
    "experimental": ("core", "tensor", "functional", "module"),
    "traced_module": (
        *("core", "core._imperative_rt", "tensor", "random", "functional", "module", "module.qat", "quantization"),
        *("autodiff", "_pickle", "logger", "version", "utils", *HELPERS),
    ),
    "hub": ("version", "logger", "serialization", "utils"),
    # Programs for the command line: they see everything.
    "tools": (
        *("core", "core._imperative_rt", "core.tensor.megbrain_graph", "core.ops", "device", "tensor", "functional"),
        *("module", "jit", "traced_module", "serialization", "_pickle", "utils", "logger", "version", *HELPERS),
    ),
    # Tools for whole programs.
    "utils": (
        "core",
        "core.tensor.megbrain_graph",
        "core.ops",
        "device",
        "tensor",
        "functional",
        "module",
        "autodiff",
        "_pickle",
        "hub",
        "logger",
        "version",
        *HELPERS,
    ),
}
TOP = ("__init__", "__main__")  # they put everything together


def room_of(module: str) -> str | None:
    """The longest room that holds ``module``."""
    fits = [r for r in ROOMS if module == r or module.startswith(r + ".")]
    return max(fits, key=len, default=None)


def imports(tree: ast.Module, package: list[str], known: set[str]) -> Iterator[tuple[int, str]]:
    """(line, module below the package) of every import, also those in functions; TYPE_CHECKING blocks are left out."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            todo += node.orelse
            continue
        todo += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = [PACKAGE, *package[: len(package) - node.level + 1]] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # `from .. import config` names a module, `from ..config import x` a name in one.
            names = [f"{module}.{a.name}" if f"{module}.{a.name}" in known else module for a in node.names]
        else:
            continue
        for name in names:
            if name.startswith(PACKAGE + "."):
                yield node.lineno, name.removeprefix(PACKAGE + ".")


def check(root: Path) -> Iterator[str]:
    folder = root / "python" / PACKAGE
    files = sorted(folder.rglob("*.py"))
    modules = {f: list(f.relative_to(folder).with_suffix("").parts) for f in files}
    known = {".".join([PACKAGE, *(p for p in parts if p != "__init__")]) for parts in modules.values()}
    for file, parts in modules.items():
        if parts[0] in TOP:
            continue
        place = file.relative_to(root).as_posix()
        module = ".".join(p for p in parts if p != "__init__")
        room = room_of(module)
        if room is None:
            yield f"{place}:1: {module} is in no room. Give it a line in tools/check_imports.py."
            continue
        for line, target in imports(ast.parse(file.read_text()), parts[:-1], known):
            other = room_of(target)
            if other is not None and other != room and other not in ROOMS[room]:
                may = ", ".join(ROOMS[room]) or "nothing above itself"
                yield (
                    f"{place}:{line}: import of {target}: room {room} may import only {may}. "
                    f"Move the code to a room that may see {other}, or let {other} hand in what is needed."
                )


def asked_root() -> Path:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parent.parent, help="of the repository")
    return Path(parser.parse_args().root)


def main() -> int:
    problems = sorted(set(check(asked_root())))
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        print(f"check_imports: {len(problems)} forbidden import(s)", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
