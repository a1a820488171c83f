"""What an installation offers: one version everywhere, programs that run, and what C++ programs build with.

`make wheels-test` runs this file in fresh virtual environments that have a wheel and nothing else; in the source tree
the files for C++ come from the same install rules, laid out as pip would.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import megengine as mge
import megenginelite as lite

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "tests/data/lite/net_v1.mge"
EXAMPLE = ROOT / "examples/lite"
PIXELS = (np.arange(192, dtype="float32") % 17 / 16 - 0.5).reshape(3, 1, 8, 8)
PACKAGE = pathlib.Path(lite.__file__).parent
TOOLS = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
IN_TREE = ROOT in PACKAGE.parents


def tool(name: str) -> str:
    found = shutil.which(name, path=TOOLS)
    assert found, f"{name} is missing; tools/bootstrap.sh build installs it"
    return found


def run(*command: object, **options: object) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout.strip()


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The folder of megenginelite as pip leaves it."""
    if not IN_TREE:
        return PACKAGE
    prefix = tmp_path_factory.mktemp("prefix")
    site = prefix / "lib" / "python" / "site-packages"
    run(tool("cmake"), "--install", ROOT / "build/dev", "--component", "lite", "--prefix", site)
    for source in PACKAGE.glob("*.py"):
        shutil.copy(source, site / "megenginelite")
    return site / "megenginelite"


@pytest.fixture(scope="module")
def ask(package: pathlib.Path):
    """python -m megenginelite, asked in that installation."""
    where = {"cwd": package.parent, "env": {"PATH": ""}} if IN_TREE else {}
    return lambda *flags: run(sys.executable, "-m", "megenginelite", *flags, **where)


def expected() -> str:
    net = lite.LiteNetwork()
    net.load(MODEL)
    net.get_io_tensor("data").set_data_by_copy(PIXELS)
    net.forward()
    net.wait()
    lines = []
    for name in net.get_all_output_name():
        y = net.get_io_tensor(name).to_numpy()
        lines.append(
            f"{name} {json.dumps(y.shape, separators=(',', ':'))}: " + " ".join(f"{v:.9g}" for v in y.flat[:10])
        )
    return "\n".join(lines)


# ---- the version


def test_the_version_continues_the_originals() -> None:
    major, minor = mge.__version__.split(".")[:2]
    assert int(major) >= 1 and int(minor) >= 5  # as programs ask
    assert [int(part) for part in mge.__version__.split(".")] >= [1, 14, 0]


def test_the_version_is_the_same_everywhere(ask) -> None:
    header = (ROOT / "include/megengine/version.h").read_text()
    numbers = re.findall(r"MGE_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header)
    log = (ROOT / "CHANGELOG.md").read_text()
    said = {
        "header": re.search(r'MGE_VERSION_STRING "(.*)"', header)[1],
        "numbers of the header": ".".join(numbers),
        "lite": lite.__version__,
        "command": ask("--version"),
        "changelog": re.search(r"^## (\S+)", log, re.M)[1],
    }
    assert said == dict.fromkeys(said, mge.__version__)


def test_a_model_file_says_who_wrote_it(tmp_path: pathlib.Path) -> None:
    f = mge.jit.trace(lambda x: x + 1, capture_as_const=True)
    f(mge.Tensor([1.0]))
    f.dump(str(tmp_path / "m.mge"))
    assert f"megengine {mge.__version__}".encode() in (tmp_path / "m.mge").read_bytes()


# ---- C++ programs


def test_an_example_builds_with_cmake(ask, tmp_path: pathlib.Path) -> None:
    build = tmp_path / "build"
    # an older standard is asked for: the package raises it to the one its headers need
    options = [
        f"-DMegEngineLite_DIR={ask('--cmake-dir')}",
        "-DCMAKE_CXX_STANDARD=11",
        "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror",
    ]
    run(tool("cmake"), "-S", EXAMPLE, "-B", build, *options)
    run(tool("cmake"), "--build", build, "--target", "run_model")
    PIXELS.tofile(tmp_path / "in.bin")
    assert run(build / "run_model", MODEL, tmp_path / "in.bin", env={}) == expected()
    wrong = subprocess.run([build / "run_model", tmp_path / "in.bin", MODEL], capture_output=True, text=True)
    assert wrong.returncode == 1 and wrong.stderr.startswith("run_model: ")


def test_a_newer_version_is_not_found(ask, tmp_path: pathlib.Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "new")
    text = (tmp_path / "new/CMakeLists.txt").read_text()
    (tmp_path / "new/CMakeLists.txt").write_text(text.replace("MegEngineLite 1.14", "MegEngineLite 1.99"))
    line = [
        tool("cmake"),
        "-S",
        tmp_path / "new",
        "-B",
        tmp_path / "build",
        f"-DMegEngineLite_DIR={ask('--cmake-dir')}",
    ]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode != 0 and f"version: {mge.__version__}" in done.stderr


def test_an_example_builds_with_pkg_config(ask, tmp_path: pathlib.Path) -> None:
    env = {"PKG_CONFIG_PATH": ask("--pkgconfig-dir"), "PATH": os.environ["PATH"]}
    flags = run(tool("pkg-config"), "--cflags", "--libs", "megenginelite", env=env).split()
    assert run(tool("pkg-config"), "--modversion", "megenginelite", env=env) == mge.__version__
    run(
        tool("c++"),
        "-std=c++17",
        "-pedantic-errors",
        EXAMPLE / "cpp/run_model.cpp",
        *flags,
        "-o",
        tmp_path / "run_model",
    )
    PIXELS.tofile(tmp_path / "in.bin")
    assert run(tmp_path / "run_model", MODEL, tmp_path / "in.bin", env={}) == expected()


def test_c_builds_with_the_printed_flags(ask, tmp_path: pathlib.Path) -> None:
    flags = ask("--includes", "--libs").split()
    source = ROOT / "examples/lite/c/run_model.c"
    run(tool("cc"), "-std=c99", "-pedantic-errors", source, *flags, "-o", tmp_path / "run_model")
    PIXELS.tofile(tmp_path / "in.bin")
    out = run(tmp_path / "run_model", MODEL, "data", tmp_path / "in.bin", "logits", tmp_path / "out.bin", env={})
    assert out.split(":")[0] == "logits [3,5]"


def test_every_public_header_is_there(package: pathlib.Path) -> None:
    want = {str(p.relative_to(ROOT / "include")) for p in (ROOT / "include").rglob("*.h")}
    assert {str(p.relative_to(package / "include")) for p in (package / "include").rglob("*")} >= want


# ---- Python programs, in the tree and in every wheel


def test_the_program_of_the_readme(tmp_path: pathlib.Path) -> None:
    """Trains a step, dumps, loads with Lite."""
    program = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[1]
    assert run(sys.executable, "-c", program, cwd=tmp_path) == "True"


def test_the_doctor_finds_nothing_wrong(tmp_path: pathlib.Path) -> None:
    text = run(sys.executable, "-m", "megengine", "doctor", cwd=tmp_path)
    assert "No problems found." in text and f"version          {mge.__version__}" in text


def test_an_error_names_the_line_of_the_program(tmp_path: pathlib.Path) -> None:
    """Frames of the interpreter are read directly, in a way that differs from Python to Python."""
    program = """
import megengine as mge, megengine.functional as F
def inner(x):
    return F.sqrt(x) + 1
@mge.jit.trace
def f(x):
    return [inner(v) for v in (x, x)][1]
f(mge.Tensor([1.0]))
print(f.graph_text())
"""
    (tmp_path / "program.py").write_text(program)
    text = run(sys.executable, tmp_path / "program.py")
    assert re.search(r"sqrt .*program\.py:4\b", text), text


# ---- what only a source tree, or only a wheel, can show


def test_import_needs_no_static_thread_memory() -> None:
    """A process keeps little of it for libraries loaded late, and others may have taken that (PyTorch, say)."""
    none_left = "glibc.rtld.nns=1:glibc.rtld.optional_static_tls=0"
    line = [sys.executable, "-c", "import megengine, megenginelite; print(megengine.Tensor(1).item())"]
    done = subprocess.run(line, capture_output=True, text=True, env={**os.environ, "GLIBC_TUNABLES": none_left})
    assert done.stdout == "1\n", done.stderr


if IN_TREE:

    @pytest.mark.parametrize(
        ("version", "env", "says"),
        [
            ("3.99", {}, "no python3.99 on the path, in pyenv, or in $PYTHON3_99"),
            ("3.10", {"PYTHON3_10": "/no/such/python"}, "No such file or directory: '/no/such/python'"),
            ("3.10", {"PYTHON3_10": sys.executable}, f"is Python 3.{sys.version_info.minor}"),
            ("3.10", {"PYTHON3_10": "/bin/false"}, "/bin/false: ends with 1"),
        ],
    )
    def test_a_missing_interpreter_is_named(version: str, env: dict[str, str], says: str) -> None:
        line = [sys.executable, ROOT / "tools/wheels.py", "build", version]
        done = subprocess.run(line, capture_output=True, text=True, env={**os.environ, **env})
        assert done.returncode == 1 and f"NOT DONE for Python {version}: " in done.stderr and says in done.stderr

    def test_a_source_tree_says_what_to_do() -> None:
        done = subprocess.run([sys.executable, "-m", "megenginelite", "--cmake-dir"], capture_output=True, text=True)
        assert done.returncode == 1 and "pip install ." in done.stderr and done.stdout == ""

else:

    def test_the_wheel_has_what_it_should() -> None:
        root = PACKAGE.parent
        files = {str(p.relative_to(root)) for top in ("megengine", "megenginelite") for p in (root / top).rglob("*")}
        typed = {"megengine/py.typed", "megenginelite/py.typed", "megengine/core/_core.pyi", "megengine/core/_ops.pyi"}
        assert typed <= files
        assert len([f for f in files if re.fullmatch(r"megengine/core/_core.*\.so", f)]) == 1  # none of the source tree
        assert run(pathlib.Path(sys.executable).parent / "load_and_run", "--version") == mge.__version__
