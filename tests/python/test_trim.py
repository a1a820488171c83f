"""tools/trim: what models need, and that what is left out leaves nothing behind."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine.jit import trace

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / "build/dev/bin"
ORIGINAL = ROOT / "tests/data/original"


def trim(*args: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "tools/trim.py", "--full", BIN, *args]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done


def listed(out: Path, kind: str) -> set[str]:
    lines = (out / "ops.txt").read_text().splitlines()
    assert lines[0] == "only"
    return {line.split()[1] for line in lines if line.startswith(kind + " ")}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trim") / "net.mge"
    w = mge.Parameter(np.ones((4, 3, 3, 3), np.float32))

    @trace(symbolic=True, capture_as_const=True)
    def net(x: mge.Tensor) -> mge.Tensor:
        return F.mean(F.relu6(F.conv2d(x, w, padding=1)), axis=(2, 3))

    net(mge.Tensor(np.zeros((1, 3, 8, 8), np.float32)))
    net.dump(str(path), arg_names=["x"], output_names=["y"])
    return path


def test_the_list_has_what_was_recorded_and_what_passes_make_of_it(model: Path, tmp_path: Path) -> None:
    trim(model, "-o", tmp_path, "--list")
    ops = listed(tmp_path, "op")
    assert {"conv2d", "conv2d_fused", "relu6", "reduce"} <= ops
    assert not {op for op in ops if op.endswith(("_bwd", "_update"))}
    assert not ops & {"matmul", "softmax", "max_pool2d", "ctc_loss"}
    assert len(ops) < 40
    assert listed(tmp_path, "class") == set()
    assert "float32" in listed(tmp_path, "dtype")


def test_no_model_is_the_empty_runtime(tmp_path: Path) -> None:
    trim("-o", tmp_path, "--list")
    assert listed(tmp_path, "op") == set()


def test_files_of_the_original_name_their_classes(tmp_path: Path) -> None:
    trim(ORIGINAL / "mlp.v1test.mge", "-o", tmp_path, "--list")
    assert "MatrixMul" in listed(tmp_path, "class")
    assert {"matmul", "add"} <= listed(tmp_path, "op")
    assert "quantised" not in listed(tmp_path, "feature")
    trim(ORIGINAL / "quant_ops.v1.mge", "-o", tmp_path, "--list")
    assert "quantised" in listed(tmp_path, "feature")


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--isa", "avx9"], "--isa: expected some of sse4, avx2, avx512; got avx9."),
        (["nowhere.mge"], "there is no file nowhere.mge."),
    ],
)
def test_mistakes(args: list[str], text: str, tmp_path: Path) -> None:
    assert text in trim(*args, "-o", tmp_path, code=2).stderr


def test_an_op_that_is_left_out_leaves_no_code(tmp_path: Path) -> None:
    (tmp_path / "op").mkdir()
    (tmp_path / "ops.txt").write_text("only\nmade a test\nop kept\n")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(list NONE)\n"
        f'set(MGE_OPS "{tmp_path}/ops.txt")\ninclude("{ROOT}/cmake/build_list.cmake")\n'
        "add_library(x INTERFACE)\nfunction(target_include_directories)\nendfunction()\nmge_build_list(x)\n"
    )
    subprocess.run(["cmake", "-S", tmp_path, "-B", tmp_path / "b"], check=True, capture_output=True)
    source = tmp_path / "register.cpp"
    source.write_text(
        '#include "op/in_build.h"\n#include "kernel/kernel.h"\nnamespace mge {\n'
        'static_assert(in_build("kept") && !in_build("left"));\n'
        "static void infer_kept(InferCtx& c) { c.out[0] = *c.in[0]; }\n"
        "static void infer_left(InferCtx& c) { c.out[0] = *c.in[0]; }\n"
        "static void run_kept(const KernelArgs& a) { *a.out[0].data<int>() = 1; }\n"
        "static void run_left(const KernelArgs& a) { *a.out[0].data<int>() = 2; }\n"
        'void register_both(OpRegistry& r) {\n  r.op("kept").in("x").out("y").infer(infer_kept).doc("1");\n'
        '  r.op("left").in("x", "z").out("y").infer(infer_left).doc("2");\n}\n'
        "void register_kernels(KernelRegistry& r) {\n"
        '  r.add("kept", KernelTier::Ref, {.name = "ref_kept", .run = run_kept});\n'
        '  r.add("left", KernelTier::Ref, {.name = "ref_left", .run = run_left});\n}\n}\n'
    )
    folders = [tmp_path / "b/generated", ROOT / "src", ROOT / "include"]
    command = ["g++", "-std=c++20", "-Os", "-c", source, "-o", tmp_path / "r.o", *(f"-I{f}" for f in folders)]
    subprocess.run([str(c) for c in command], check=True)
    names = subprocess.run(["nm", "-C", str(tmp_path / "r.o")], check=True, capture_output=True, text=True).stdout
    assert "infer_kept" in names and "run_kept" in names
    assert "infer_left" not in names and "run_left" not in names
    assert b"ref_left" not in (tmp_path / "r.o").read_bytes()


def test_passes_and_plans_that_did_nothing_are_left_out(model: Path, tmp_path: Path) -> None:
    trim(model, "-o", tmp_path, "--list")
    features = listed(tmp_path, "feature")
    assert not features & {"winograd", "parts", "quantised", "profiling", "writing", "streams"}
    assert "conv_gemm" not in features  # four output channels go by rows, whatever the size


def test_no_model_needs_no_feature(tmp_path: Path) -> None:
    trim("-o", tmp_path, "--list")
    assert listed(tmp_path, "feature") == set()


def test_sizes_are_followed_only_for_models_that_have_them(tmp_path: Path) -> None:
    def dumped(name: str, sized: bool) -> Path:
        @trace(symbolic=True, capture_as_const=True, symbolic_shape=sized)
        def net(x: mge.Tensor) -> mge.Tensor:
            return F.relu(x).reshape(x.shape[0], -1)

        net(mge.Tensor(np.zeros((2, 3, 4), np.float32)))
        net.dump(str(tmp_path / name), arg_names=["x"])
        return tmp_path / name

    trim(dumped("any.mge", True), "-o", tmp_path / "any", "--list")
    assert "sizes" in listed(tmp_path / "any", "feature")
    assert "shape_of" in listed(tmp_path / "any", "op")
    trim(dumped("fixed.mge", False), "-o", tmp_path / "fixed", "--list")
    assert "sizes" not in listed(tmp_path / "fixed", "feature")
    assert "shape_of" not in listed(tmp_path / "fixed", "op")


def test_windows_that_tiles_could_serve_at_another_size_keep_them(tmp_path: Path) -> None:
    path = tmp_path / "tiles.mge"
    w = mge.Parameter(np.ones((16, 16, 3, 3), np.float32))

    @trace(symbolic=True, capture_as_const=True)
    def net(x: mge.Tensor) -> mge.Tensor:
        return F.conv2d(x, w)

    net(mge.Tensor(np.zeros((1, 16, 3, 3), np.float32)))  # one output: no tile pays here
    net.dump(str(path), arg_names=["x"])
    trim(path, "-o", tmp_path, "--list")
    assert "winograd" in listed(tmp_path, "feature")


def test_what_a_program_asks_for_joins_the_list(tmp_path: Path) -> None:
    trim("-o", tmp_path, "--list", "--with", "fast_run,profiling")
    assert listed(tmp_path, "feature") == {"fast_run", "profiling"}
    assert "--with: expected some of writing, " in trim("-o", tmp_path, "--with", "magic", code=2).stderr


def test_a_feature_that_is_left_out_refuses_by_name_and_leaves_no_code(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base/build_features.h").write_text(
        "#pragma once\n#include <string_view>\nnamespace mge::build_list {\n"
        "inline constexpr bool kOnlyFeatures = true;\n"
        'inline constexpr std::string_view kFeatures[] = {"bands", ""};\n}\n'
    )
    source = tmp_path / "use.cpp"
    source.write_text(
        '#include "base/error.h"\n#include "base/features.h"\n#include <cstdio>\n'
        'extern "C" int left();\n'  # nobody has it: the program links only if nothing refers to it
        "static int kept() { return 7; }\n"
        'int use() { mge::require("profiling", "lite: f"); return left(); }\n'
        'int main() {\n  int sum = 0;\n  if (mge::has("bands")) sum += kept();\n'
        '  if (mge::has("layouts")) sum += left();\n'
        '  try { sum += use(); } catch (const mge::Error& e) { std::printf("%d %s", sum, e.what()); }\n}\n'
    )
    files = [source, *(ROOT / "src/base" / f for f in ("features.cpp", "format.cpp", "error.cpp"))]
    command = ["g++", "-std=c++20", "-Os", *files, "-o", tmp_path / "use", f"-I{tmp_path}", f"-I{ROOT / 'src'}"]
    subprocess.run([str(c) for c in command], check=True)
    said = subprocess.run([str(tmp_path / "use")], check=True, capture_output=True, text=True).stdout
    assert said.startswith("7 lite: f: was left out of this runtime. `tools/trim --with profiling` builds one")
    source.write_text('#include "base/features.h"\nbool f() { return mge::has("typing error"); }\n')
    command = ["g++", "-std=c++20", "-fsyntax-only", source, f"-I{tmp_path}", f"-I{ROOT / 'src'}"]
    assert subprocess.run([str(c) for c in command], capture_output=True).returncode != 0
