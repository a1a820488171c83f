"""tools/check_includes.py on scratch trees: what it must refuse, and what its messages name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def check(root: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools/check_includes.py"), str(root)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small tree that is in order, with the room table of this project."""
    (tmp_path / "CMakeLists.txt").write_text((ROOT / "CMakeLists.txt").read_text())
    files = {
        "src/base/error.h": "#include <string>\n",
        "src/core/shape.h": '#include "base/error.h"\n',
        "src/kernel/simd/simd.h": '#include "core/shape.h"\n',
        "src/kernel/simd/add.cpp": '#include "hwy/highway.h"\n#include "kernel/simd/simd.h"\n',
        "src/kernel/all.cpp": '#include "kernel/simd/simd.h"\n',
        "src/jit/jit.h": '#include "base/error.h"\n',
        "src/eager/tensor.h": '#include "core/shape.h"\n',
        "src/lite/network.cpp": '#include "lite/network.h"\n#include "jit/jit.h"\n',
        "include/lite/network.h": "#include <memory>\n",
        "python/bindings/common.h": "#include <nanobind/nanobind.h>\n",
        "python/bindings/core.cpp": '#include "common.h"\n#include "eager/tensor.h"\n',
    }
    for name, text in files.items():
        add(tmp_path, name, text)
    return tmp_path


def add(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_tree_in_order_passes(tree: Path) -> None:
    result = check(tree)
    assert (result.returncode, result.stderr) == (0, "")


def test_this_repository_passes() -> None:
    result = check(ROOT)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("file", "text", "place", "rule"),
    [
        ("src/core/up.cpp", '\n#include "eager/tensor.h"\n', ":2:", "room core may include only base, core."),
        ("src/op/x.cpp", '#include "kernel/all.h"\n', ":1:", "no such file under src/"),
        ("src/op/x.cpp", '#include "neighbour.h"\n', ":1:", "a quoted include is written"),
        ("src/plan/x.cpp", "#include <hwy/highway.h>\n", ":1:", "Highway belongs to src/kernel/simd only"),
        ("src/kernel/x.cpp", "#include <oneapi/dnnl/dnnl.hpp>\n", ":1:", "oneDNN/OpenMP belongs to src/kernel/onednn"),
        ("src/core/x.h", "#include <fmt/format.h>\n", ":1:", "no known third-party header"),
        ("src/ir/x.cpp", '#include "serial/model_generated.h"\n', ":1:", "FlatBuffers belongs to src/serial"),
        ("src/eager/x.cpp", "#include <Python.h>\n", ":1:", "Python belongs to python/bindings"),
        ("src/base/x.cpp", "#include <boost/any.hpp>\n", ":1:", "no known third-party header"),
        ("include/lite/x.h", '#include "core/shape.h"\n', ":1:", "only public headers"),
        ("src/plan/x.cpp", '#include "lite/network.h"\n', ":1:", "sits above room plan"),
        ("src/lite/x.cpp", '#include "eager/tensor.h"\n', ":1:", "room lite may include only"),
        ("src/attic/x.cpp", '#include "base/error.h"\n', ":1:", "room attic is not in CMakeLists.txt"),
    ],
)
def test_forbidden_include_is_named(tree: Path, file: str, text: str, place: str, rule: str) -> None:
    add(tree, file, text)
    result = check(tree)
    assert result.returncode == 1
    assert file + place in result.stderr
    assert rule in result.stderr


def test_leaf_header_must_not_leak_its_library(tree: Path) -> None:
    add(tree, "src/kernel/simd/simd.h", "#include <hwy/highway.h>\n")
    result = check(tree)
    assert result.returncode == 1
    assert "src/kernel/all.cpp:1:" in result.stderr
    assert "brings in Highway through src/kernel/simd/simd.h" in result.stderr


def test_lite_must_not_reach_mlir_through_others(tree: Path) -> None:
    add(tree, "src/jit/mlir/emit.h", "#include <vector>\n")
    add(tree, "src/jit/jit.h", '#include "jit/mlir/emit.h"\n')
    result = check(tree)
    assert result.returncode == 1
    assert "lite must not reach src/jit/mlir/emit.h: src/jit/mlir/emit.h <- src/jit/jit.h" in result.stderr
