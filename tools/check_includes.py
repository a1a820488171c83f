#!/usr/bin/env python3
"""Hold every #include of src/, include/ and python/bindings/ to the room table.

The table is the DEPS of the mge_room() lines in CMakeLists.txt, taken transitively; third-party headers stay in their
leaf. Usage: tools/check_includes.py [repository root]. Prints file:line, the rule and the way out, and exits with 1.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

CUDA_FOLDERS = ("src/kernel/cuda", "src/jit/nvrtc", "include/megbrain/custom/platform")
# Third-party header pattern, its name, the only folders that may name it, may it be reached through their headers.
THIRD_PARTY = (
    (re.compile(r"hwy/"), "Highway", ("src/kernel/simd",), False),
    (re.compile(r"(oneapi/)?dnnl|omp\.h$"), "oneDNN/OpenMP", ("src/kernel/onednn",), False),
    (re.compile(r"flatbuffers/|(\w+/)+\w+_generated\.h$"), "FlatBuffers", ("src/serial",), False),
    (re.compile(r"mbedtls/"), "mbedTLS", ("src/lite/crypt",), False),
    (re.compile(r"nanobind/|Python\.h$|structmember\.h$|internal/pycore_"), "Python", ("python/bindings",), False),
    (re.compile(r"numpy/"), "NumPy", ("python/bindings",), False),
    (re.compile(r"(mlir|llvm)/"), "MLIR", ("src/jit/mlir",), False),
    (
        re.compile(r"(cuda|nvrtc|cudnn|cublas)\w*\.h$"),
        "CUDA",
        ("src/kernel/cuda", "src/jit/nvrtc", "include/megbrain/custom/platform"),
        False,
    ),
    (re.compile(r"(Halide|HalideRuntime)\w*\.h$"), "Halide", ("src/jit/halide",), False),
    (re.compile(r"gloo/|nccl\.h$"), "Gloo/NCCL", ("src/dist/gloo", "src/dist/nccl"), False),
)
SYSTEM = re.compile(r"[a-z0-9_]+(\.h)?$|(sys|linux|asm|arpa|netinet|bits|sanitizer)/")  # STL, libc, compiler intrinsics
GENERATED = ("op/build_list.h", "base/build_features.h")  # by the build, in its own folder
NEVER_IN_LITE = ("src/eager/", "src/dist/", "src/jit/mlir/", "src/jit/nvrtc/", "src/jit/halide/", "Python")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
ROOM_LINE = re.compile(r"mge_room\((\w+)\s+DEPS\s+([^)]*)\)")


def room_table(cmake: str) -> dict[str, set[str]]:
    """Room -> rooms it may include, transitively and with itself."""
    direct = {name: set(re.findall(r"\bmge_(\w+)", deps)) for name, deps in ROOM_LINE.findall(cmake)}
    closed: dict[str, set[str]] = {}

    def close(room: str) -> set[str]:
        if room not in closed:
            closed[room] = {room}
            closed[room] |= {r for dep in direct[room] & direct.keys() for r in close(dep)}
        return closed[room]

    for room in direct:
        close(room)
    return closed


class Tree:
    def __init__(self, root: Path) -> None:
        self.rooms = room_table((root / "CMakeLists.txt").read_text())
        files = [p for top in ("src", "include", "python/bindings") for p in (root / top).rglob("*")]
        self.text = {
            p.relative_to(root).as_posix(): p.read_text(errors="replace")
            for p in sorted(files)
            if p.suffix in (".h", ".cpp", ".cu", ".c", ".inl")
        }
        self.reached: dict[str, dict[str, str]] = {}
        self.includes = {f: list(self._includes(f)) for f in self.text}

    def _includes(self, file: str) -> Iterator[tuple[int, str, str]]:
        """(line, header as written, what it is: a file of the tree, or third-party:<name>, or system, or unknown)."""
        for m in INCLUDE.finditer(self.text[file]):
            line = self.text[file].count("\n", 0, m.start()) + 1
            yield line, m[2], self._resolve(file, m[2], m[1])

    def _resolve(self, file: str, header: str, quote: str) -> str:
        roots = {"include": ("include/", "src/"), "python": ("python/bindings/", "src/", "include/")}
        for base in roots.get(file.split("/")[0], ("src/", "include/")) if quote == '"' else ():
            if base + header in self.text:
                return base + header
        for pattern, name, _, _ in THIRD_PARTY:
            if pattern.match(header):
                return "third-party:" + name
        return "system" if quote == "<" and SYSTEM.match(header) else "unknown"

    def reach(self, file: str) -> dict[str, str]:
        """Everything file includes, directly or not -> the file that includes it."""
        if file in self.reached:
            return self.reached[file]
        seen = self.reached[file] = {}
        stack = [file]
        while stack:
            here = stack.pop()
            for _, _, target in self.includes.get(here, ()):
                if target not in seen and target != file:
                    seen[target] = here
                    stack.append(target)
        return seen

    def check(self) -> Iterator[str]:
        for file, found in self.includes.items():
            for line, header, target in found:
                if problem := self._problem(file, header, target):
                    yield f'{file}:{line}: #include "{header}": {problem}'
            if file.startswith("src/lite/"):
                yield from self._lite_reach(file)

    def _problem(self, file: str, header: str, target: str) -> str | None:
        room = room_of(file)
        if target == "system" or header in GENERATED:
            return None
        if target == "unknown":
            if "/" in header:
                return (
                    "no such file under src/ or include/, and no known third-party header. "
                    "Write the path from src/, or give the library a leaf in tools/check_includes.py."
                )
            return (
                'a quoted include is written from src/ or include/. Write "room/file.h", or <...> for a system header.'
            )
        if target.startswith("third-party:"):
            name = target.removeprefix("third-party:")
            _, _, leaves, _ = next(t for t in THIRD_PARTY if t[1] == name)
            if any(file.startswith(leaf + "/") for leaf in leaves):
                return None
            return f"{name} belongs to {' and '.join(leaves)} only. Put the code there behind a plain header of ours."
        if file.startswith("python/bindings/"):
            return self._leak(file, target)
        if file.startswith("include/"):
            if target.startswith("include/"):
                return None
            return "a public header may include only public headers. Move what it needs to include/, or use a handle."
        if target.startswith("include/"):
            if target.startswith("include/lite") and room != "lite":
                return f"the public Lite API sits above room {room}. Move the code to src/lite."
            return None
        allowed = self.rooms.get(room)
        if allowed is None:
            return f"room {room} is not in CMakeLists.txt. Add its mge_room() line with DEPS."
        if (other := room_of(target)) not in allowed:
            return (
                f"room {room} may include only {', '.join(sorted(allowed))}. "
                f"Move the code to a room that may see {other}, or pass it in through an interface of {room}."
            )
        return self._leak(file, target)

    def _leak(self, file: str, target: str) -> str | None:
        """A leaf's header may be seen outside the leaf only if it does not bring the third-party header with it."""
        reached = self.reach(target)
        for _, name, leaves, leaks in THIRD_PARTY:
            inside = any(file.startswith(leaf + "/") for leaf in leaves)
            if not leaks and not inside and (via := reached.get("third-party:" + name)):
                return f"brings in {name} through {via}. Keep that include in the .cpp files of {leaves[0]}."
        return None

    def _lite_reach(self, file: str) -> Iterator[str]:
        reached = self.reach(file)
        for target in reached:
            if target.removeprefix("third-party:").startswith(NEVER_IN_LITE):
                chain = [target]
                while chain[-1] != file:
                    chain.append(reached[chain[-1]])
                yield f"{file}:1: lite must not reach {target}: {' <- '.join(chain)}. Break the chain at one of these."


def room_of(file: str) -> str:
    parts = file.split("/")
    return parts[1] if parts[0] == "src" else parts[0]


def asked_root() -> Path:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parent.parent, help="of the repository")
    return Path(parser.parse_args().root)


def main() -> int:
    root = asked_root()
    tree = Tree(root)
    problems = list(dict.fromkeys(tree.check()))
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        print(f"check_includes: {len(problems)} forbidden include(s) in {len(tree.text)} files", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
