"""docs/add-an-op.md, followed to the letter in a scratch copy of the tree.

The recipe's edits are read from the page and applied to a copy. What depends on the edited files is compiled there and
linked with the unchanged rest of build/dev into a second extension and Lite library; the conformance tests of the new
op run on these.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/dev"
PAGE = ROOT / "docs/add-an-op.md"
SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
EDIT = r"In\s`([^`]+)`,\s"
INSERT = re.compile(
    EDIT + r"(before|after)\sthe\sline\sthat\sstarts\swith\s`([^`]+)`:\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL
)
APPEND = re.compile(EDIT + r"put\s`(\w+)`\sat\sthe\send\sof\sthe\slist\s`(\w+)`\.")
QUOTE = re.compile(r"From\s`([^`]+)`:\n((?:```\w+\n.*?^```\n?)+)", re.MULTILINE | re.DOTALL)
COPIED = ("src", "include", "python", "tests/python", "conftest.py", "pyproject.toml")


def section(title: str) -> str:
    sections: dict[str, str] = dict(SECTION.findall(PAGE.read_text()))
    return sections[title]


def apply_recipe(tree: Path, text: str) -> set[str]:
    """Makes the edits in the order of the page; returns the files touched."""
    edits = sorted([*INSERT.finditer(text), *APPEND.finditer(text)], key=lambda m: m.start())
    for m in edits:
        path = tree / m[1]
        lines = path.read_text().splitlines(keepends=True)
        if m.re is INSERT:
            hits = [i for i, line in enumerate(lines) if line.strip().startswith(m[3])]
            assert len(hits) == 1, f"{m[1]}: {len(hits)} lines start with {m[3]!r}"
            lines.insert(hits[0] + (m[2] == "after"), m[4])
        else:
            pattern = re.compile(rf"^using {m[3]} = OpList<(.*)>;$")
            hits = [i for i, line in enumerate(lines) if pattern.match(line)]
            assert len(hits) == 1, f"{m[1]}: {len(hits)} lists {m[3]}"
            lines[hits[0]] = pattern.sub(rf"using {m[3]} = OpList<\1, {m[2]}>;", lines[hits[0]])
        path.write_text("".join(lines))
    return {m[1] for m in edits}


def copy_tree(to: Path) -> None:
    for name in COPIED:
        source, target = ROOT / name, to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.so", "*.so.*", "__pycache__"))
        else:
            shutil.copy(source, target)


def run(command: list[str]) -> str:
    """In build/dev, with the tools of this interpreter's environment (ninja)."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=BUILD, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def dependents(files: set[str]) -> list[str]:
    """Objects of the engine in build/dev that include one of the files or are compiled from it."""
    wanted = {str(ROOT / f) for f in files}
    found, current = [], ""
    for line in run(["ninja", "-t", "deps"]).splitlines():
        if line and not line.startswith(" "):
            current = line.split(":")[0]
        elif os.path.normpath(BUILD / line.strip()) in wanted and not current.startswith("tests/"):
            found.append(current)
    return list(dict.fromkeys(found))


def compile_objects(tree: Path, objects: list[str]) -> list[str]:
    commands = {BUILD / c["output"]: c["command"] for c in json.loads((BUILD / "compile_commands.json").read_text())}

    def build(item: tuple[int, str]) -> str:
        number, target = item
        output = f"{tree}/{number}.o"
        command = commands[BUILD / target]
        for folder in ("src", "include"):
            command = command.replace(f"{ROOT}/{folder}", f"{tree}/{folder}")
        words = shlex.split(command)
        words[words.index("-o") + 1] = output
        run(words)
        return output

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(build, enumerate(objects)))


def link(target: str, tree: Path, objects: list[str]) -> None:
    """Links as build/dev does, with the new objects first: the old ones then stay in their archives."""
    command = run(["ninja", "-t", "commands", target]).splitlines()[-1].removeprefix(": && ").removesuffix(" && :")
    words = shlex.split(command)
    at = words.index("-o") + 1
    output = str(tree / "python" / Path(words[at]).relative_to(ROOT / "python"))
    Path(output).parent.mkdir(parents=True, exist_ok=True)
    run([*words[:at], output, *objects, *words[at + 1 :]])


@pytest.mark.slow
@pytest.mark.skipif(not (BUILD / "compile_commands.json").exists(), reason="needs build/dev: make build")
def test_the_elementwise_and_the_composite_recipe_give_working_ops(tmp_path: Path) -> None:
    copy_tree(tmp_path)
    touched = set()
    for recipe in ("An elementwise op", "A composite op"):
        files = apply_recipe(tmp_path, section(recipe))
        assert "tests/python/op_cases.py" in files
        touched |= files
    objects = compile_objects(tmp_path, dependents(touched))
    assert objects
    link("mge_python", tmp_path, objects)
    link("lite_shared", tmp_path, objects)

    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "python")}

    def python(*args: str) -> str:
        command = [sys.executable, *args]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        return done.stdout

    conformance = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/python/test_conformance.py")
    for op, least in (("gaussian", 20), ("centered", 6)):
        report = python(
            *conformance, "tests/python/test_primitives.py", "-k", f"{op} or every_registered_op or is_elem"
        )
        passed = re.search(r"(\d+) passed", report)
        assert passed and int(passed[1]) > least, report

    probe = (
        "import numpy as np, megengine as mge; from megengine.core import _core;"
        "info = _core.op_info('gaussian');"
        "assert info['kernels'] == ['simd_elementwise', 'ref_elementwise'] and info['has_vjp'], info;"
        f"assert _core.__file__.startswith({str(tmp_path)!r}), _core.__file__;"
        "print(_core.ops.gaussian(mge.Tensor([0.0, 1.0])).numpy())"
    )
    assert python("-c", probe).startswith("[1.         0.36787")
    probe = "from megengine.core import _core; print(_core.op_info('centered')['kernels'])"
    assert python("-c", probe) == "[]\n"


def squeezed(text: str) -> str:
    return "".join(text.split())  # clang-format may break a line elsewhere than the page does


def test_quoted_code_is_in_the_tree() -> None:
    quotes = QUOTE.findall(section("An op with kernels of its own"))
    assert len(quotes) >= 4
    for file, blocks in quotes:
        source = squeezed((ROOT / file).read_text())
        for block in re.findall(r"```\w+\n(.*?)^```", blocks, re.MULTILINE | re.DOTALL):
            assert squeezed(block) in source, f"{file} no longer has:\n{block}"
