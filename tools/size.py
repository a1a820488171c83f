#!/usr/bin/env python3
"""Print what ships and what it is made of: stripped sizes beside their goals, then the small library by section, room,
instruction set, function and template.

    tools/size.py [--goals MOBILENET.mge] [--library FILE --objects FOLDER] [--top 20]

--goals first builds what the goals speak of beside the lite preset: one instruction set, and what tools/trim makes of
MobileNetV2 and of no model.

Symbols are counted where they are defined first among the object files; what no symbol covers (unwind tables,
relocations, text) is told by section.
"""

from __future__ import annotations

import argparse
import collections
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "build"
SHIPPED = (
    ("release", "python/megengine/core/_core*.so"),
    ("release", "python/megenginelite/libs/liblite.so"),
    ("lite", "python/megenginelite/libs/liblite.so"),
    ("lite", "bin/load_and_run"),
)
# What is built beside the lite preset, and how large it may be, in kB of 1000 bytes.
GOALS = (
    ("everything, all x86 instruction sets", 4000, ROOT / "lite/python/megenginelite/libs/liblite.so"),
    ("everything, AVX2 alone", 2500, ROOT / "size/avx2/python/megenginelite/libs/liblite.so"),
    ("MobileNetV2 float32, AVX2 (tools/trim)", 700, ROOT / "size/mobilenet/liblite.so"),
    ("no op at all (tools/trim)", 350, ROOT / "size/empty/liblite.so"),
)
ISA = re.compile(r"\bN_(AVX3_ZEN4|AVX3_DL|AVX3_SPR|AVX3|AVX2|SSE4|SSSE3|SSE2|NEON\w*|SVE\w*|RVV|SCALAR|EMU128)\b")
NM = shutil.which("gcc-nm") or "nm"  # reads what link-time optimisation has not seen yet
MADE = re.compile(r"\.(lto_priv|constprop|isra|part|cold)\b.*")  # of a function that was changed
# Files that wait for the link say nothing of functions that only they see: -DMGE_LTO=OFF tells them apart.
NAMELESS = "libraries, and with MGE_LTO functions of one file"
KEPT = re.compile(r"^\.(text|rodata|eh_frame|gcc_except_table|data\.rel\.ro|rela|relr|dyn|gnu|data|init|bss)")


def run(*command: object) -> str:
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout


def room(path: str) -> str:
    """``kernel/simd/conv`` of an object file; what is no room of ours is a library."""
    inside = re.search(r"\.dir/(?:src/)?(.*)\.o$", path)
    if not inside or "/src/" not in path:
        return "libraries"
    parts = Path(inside[1]).parts[:-1]
    return "/".join(parts[:3] if parts[:2] == ("kernel", "simd") else parts[:2]) or "."


def defined(objects: Path) -> dict[str, str]:
    """The room of each symbol."""
    files = sorted(str(p) for p in objects.rglob("*.o"))
    where: dict[str, str] = {}
    for i in range(0, len(files), 50):
        for line in run(NM, "-A", "--defined-only", *files[i : i + 50]).splitlines():
            path, _, rest = line.partition(":")
            where.setdefault(rest.split()[-1], room(path))
    return where


def symbols(library: Path) -> list[tuple[int, str, str]]:
    """Size, mangled and readable name of what the library holds; several names of one place count once."""
    rows: dict[str, tuple[int, str]] = {}
    for line in run("nm", "-S", "--defined-only", library).splitlines():
        words = line.split()
        if len(words) == 4:  # address, size, kind, name
            rows.setdefault(words[0], (int(words[1], 16), words[3]))
    names = "\n".join(name for _, name in rows.values())
    readable = subprocess.run(["c++filt"], input=names, check=True, capture_output=True, text=True).stdout.splitlines()
    return [(size, name, text) for (size, name), text in zip(rows.values(), readable, strict=True)]


def family(text: str) -> str:
    """A function without its arguments, template arguments and instruction set."""
    text = ISA.sub("N", text.split(" [clone")[0])
    while (shorter := re.sub(r"<[^<>]*>|\([^()]*\)|\{lambda[^{}]*\}", "", text)) != text:
        text = shorter
    return text.split(" const")[0].strip()


def table(title: str, rows: Iterable[tuple[int, str]], top: int, total: int | None = None) -> None:
    rows = sorted(rows, reverse=True)
    print(f"\n{title}")
    for size, name in rows[:top]:
        share = f" {size / total:6.1%}" if total else ""
        print(f"  {size / 1024:8.1f} kB{share}  {name[:110]}")
    if len(rows) > top:
        print(f"  {sum(size for size, _ in rows[top:]) / 1024:8.1f} kB  in {len(rows) - top} more")


def added(pairs: Iterable[tuple[str, int]]) -> list[tuple[int, str]]:
    sums: collections.Counter[str] = collections.Counter()
    for name, size in pairs:
        sums[name] += size
    return [(size, name) for name, size in sums.items()]


def describe(library: Path, objects: Path, top: int) -> None:
    where = defined(objects)
    found = symbols(library)
    sections = [line.split() for line in run("size", "-A", library).splitlines()]
    kept = [(int(s[1]), s[0]) for s in sections if len(s) == 3 and KEPT.match(s[0]) and s[0] != ".bss"]
    table(f"{library.name} by section", kept, 12)
    table(
        "by room",
        added((where.get(MADE.sub("", name), NAMELESS), size) for size, name, _ in found),
        40,
        sum(n for n, _ in kept),
    )
    marks = ((m[1] if (m := ISA.search(text)) else "any", size) for size, _, text in found)
    table("by instruction set", added(marks), 12)
    table("functions and tables", [(size, text) for size, _, text in found], top)
    table("templates, all instances together", added((family(text), size) for size, _, text in found), top)


def build_for_goals(model: Path) -> None:
    out = ROOT / "size/avx2"
    switches = (
        "-DCMAKE_BUILD_TYPE=MinSizeRel",
        "-DMGE_LITE_ONLY=ON",
        "-DMGE_OPS=inference",
        "-DMGE_ISAS=avx2",
        "-DMGE_RELR=ON",
    )
    run("cmake", "-S", ROOT.parent, "-B", out, "-G", "Ninja", "--log-level=WARNING", *switches)
    run("cmake", "--build", out, "--target", "lite_shared")
    trim = ROOT.parent / "tools/trim"
    print(run(trim, model, "-o", ROOT / "size/mobilenet", "--isa", "avx2"), end="")
    print(run(trim, "-o", ROOT / "size/empty", "--isa", "avx2"), end="")


def goals() -> None:
    for what, goal, library in GOALS:
        if not library.exists():
            continue
        stripped = ROOT / "size/stripped.so"
        subprocess.run(["strip", "-o", stripped, library], check=True)
        size = stripped.stat().st_size / 1000
        print(
            f"{what:44} {size:8.0f} kB, goal {goal:5} kB  {'reached' if size <= goal else f'{size / goal:.2f} times'}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--goals", type=Path, help="MobileNetV2 as a model file; builds what the goals speak of")
    parser.add_argument("--library", type=Path, help="a library that is not stripped")
    parser.add_argument("--objects", type=Path, help="the folder its object files are in")
    parser.add_argument("--top", type=int, default=20, help="rows of each table")
    args = parser.parse_args()
    if args.library:
        describe(args.library, args.objects or args.library.parent, args.top)
        return
    out = ROOT / "size"
    out.mkdir(exist_ok=True)
    if args.goals:
        build_for_goals(args.goals)
    goals()
    for preset, pattern in SHIPPED:
        for file in (ROOT / preset).glob(pattern):
            stripped = out / f"{preset}-{file.name}"
            subprocess.run(["strip", "-o", stripped, file], check=True)
            print(f"{preset:8} {file.name:44} {stripped.stat().st_size / 1024:8.0f} kB stripped")
    library = ROOT / "lite/python/megenginelite/libs/liblite.so"
    if library.exists():
        describe(library, ROOT / "lite/CMakeFiles", args.top)


if __name__ == "__main__":
    main()
