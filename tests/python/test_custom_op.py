"""Custom operators: compiled, loaded, used eagerly, traced, differentiated, dumped, edited; and what goes wrong."""

from __future__ import annotations

import io
import os
import pathlib
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine.autodiff import Function, GradManager
from megengine.core import _core
from megengine.core._imperative_rt.core2 import apply
from megengine.core.ops import custom
from megengine.jit import trace
from megengine.utils import custom_op_tools
from megengine.utils.comp_graph_tools import GraphInference
from megengine.utils.custom_op_tools import FileBaton, Versioner
from megengine.utils.network import Network

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = r"""
#include "megbrain/custom/custom.h"
CUSTOM_OP_REG_BEGIN(Demo)

void product_shape(const std::vector<Shape>& in, const Param&, std::vector<Shape>& out) {
  custom_assert(in[0][1] == in[1][0], "inner sizes %zu and %zu differ", in[0][1], in[1][0]);
  out[0] = {in[0][0], in[1][1]};
}
template <class T>
void product(const Tensor& a, const Tensor& b, Tensor& c, float scale) {
  auto x = a.accessor<T, 2>(), y = b.accessor<T, 2>();
  auto z = c.accessor<T, 2>();
  for (size_t i = 0; i < z.size(0); ++i)
    for (size_t j = 0; j < z.size(1); ++j) {
      T sum = 0;
      for (size_t k = 0; k < x.size(1); ++k) sum += x[i][k] * y[k][j];
      z[i][j] = sum * scale;
    }
}
void product_compute(const std::vector<Tensor>& in, const Param& params, std::vector<Tensor>& out) {
  const float scale = params["scale"].as<float>();
  custom_assert(scale >= 0, "scale must not be negative; got %g", scale);
  DISPATCH_SIGN_INT_AND_FLOAT_TYPES(out[0].dtype(), "DemoProduct", ([&]() {
    product<scalar_t>(in[0], in[1], out[0], scale);
  }));
}
CUSTOM_OP_REG(DemoProduct)
    .set_description("a product times a number")
    .add_input("lhs", "left", {"float32", "int32", "float16"}, 2)
    .add_input("rhs", {"float32", "int32", "float16"}, 2)
    .add_output("result", {"float32", "int32", "float16"}, 2)
    .add_param("scale", "the number", 1.0f)
    .set_shape_infer(product_shape)
    .set_compute("x86", product_compute);

// Every kind of parameter, told in one number each.
void kinds(const std::vector<Tensor>&, const Param& p, std::vector<Tensor>& out) {
  float* y = out[0].data<float>();
  y[0] = p["i32"].as<int32_t>();
  y[1] = static_cast<float>(p["i64"].as<int64_t>() % 1000);
  y[2] = p["u32"].as<uint32_t>();
  y[3] = static_cast<float>(p["u64"].as<uint64_t>() % 1000);
  y[4] = p["f64"].as<double>();
  y[5] = p["flag"].as<bool>();
  y[6] = static_cast<float>(p["text"].as<std::string>().size());
  float sum = 0;
  for (float v : p["floats"].as<std::vector<float>>()) sum += v;
  for (bool v : p["flags"].as<std::vector<bool>>()) sum += v;
  for (const auto& v : p["texts"].as<std::vector<std::string>>()) sum += 100 * v.size();
  y[7] = sum;
  y[8] = (p["i32"] + p["u32"] > p["f64"]) && p["text"] == ParamVal("a;b=c,%") && p["device"].as<Device>() == "x86";
}
void nine(const std::vector<Shape>&, const Param&, std::vector<Shape>& out) { out[0] = {9}; }
CUSTOM_OP_REG(DemoKinds)
    .add_outputs(1)
    .add_param("i32", -3).add_param("i64", int64_t{-5}).add_param("u32", uint32_t{7}).add_param("u64", uint64_t{9})
    .add_param("f64", 0.25).add_param("flag", false).add_param("text", "a;b=c,%").add_param("device", Device("x86"))
    .add_param("floats", std::vector<float>{0.5f, 1.5f}).add_param("flags", std::vector<bool>{true, false})
    .add_param("texts", {"ab", "c"})
    .set_shape_infer(nine).set_compute(kinds);

// Two results, without inference of its own; and what comes before and after.
void before(const std::vector<Tensor>&, const Param&, std::vector<Tensor>& out) { out[0].data<float>()[0] = 10; }
void twice(const std::vector<Tensor>& in, const Param&, std::vector<Tensor>& out, const RuntimeArgs& args) {
  custom_assert(args.device().str() == "x86");
  for (size_t i = 0; i < in[0].size(); ++i) {
    out[1].data<float>()[i] = 2 * in[0].data<float>()[i] + (i == 0 ? out[0].data<float>()[0] : 0);
    out[0].data<float>()[i] = in[0].data<float>()[i];
  }
}
void after(const std::vector<Tensor>& in, const Param&, std::vector<Tensor>& out) {
  for (size_t i = 0; i < in[0].size(); ++i) out[0].data<float>()[i] = in[0].data<float>()[i] + 100;
}
CUSTOM_OP_REG(DemoTwice).add_inputs(1).add_outputs(2).set_preprocess(before).set_compute(twice).set_postprocess(after);

void wrong(const std::vector<Tensor>& in, const Param&, std::vector<Tensor>& out) {
  out[0].data<int32_t>()[0] = in[0].data<int32_t>()[0];
}
CUSTOM_OP_REG(DemoWrong).add_inputs(1).add_outputs(1).set_compute(wrong);
CUSTOM_OP_REG(DemoNoCompute).add_inputs(1).add_outputs(1).set_compute("cuda", wrong);

CUSTOM_OP_REG_END(Demo)
"""
OPS = ["DemoProduct", "DemoKinds", "DemoTwice", "DemoWrong", "DemoNoCompute"]
A = np.arange(6, dtype="float32").reshape(2, 3)
B = np.arange(12, dtype="float32").reshape(3, 4)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("custom")
    (folder / "demo.cpp").write_text(SOURCE)
    return custom_op_tools.build(
        "demo", [str(folder / "demo.cpp")], ["-O0", "-Wall", "-Werror"], build_dir=folder / "out"
    )


@pytest.fixture
def loaded(library: str) -> Any:
    custom.load(library)
    yield library
    custom.unload(library)


def test_load_and_unload(library: str) -> None:
    before = custom._get_custom_op_list()
    for _ in range(2):
        custom.load(library)
        custom.load(library)
        assert sorted(custom._get_custom_op_list()) == sorted([*before, *OPS])
        assert custom._get_custom_op_lib_info()[os.path.abspath(library)] == OPS
        assert "product" in (custom.DemoProduct.__doc__ or "")
        custom.unload(library)
        assert custom._get_custom_op_list() == before and not hasattr(custom, "DemoProduct")
    with pytest.raises(ValueError, match="not loaded"):
        custom.unload(library)


@pytest.mark.parametrize("dtype", ["float32", "int32", "float16"])
def test_eager_and_traced(loaded: str, dtype: str) -> None:
    a, b = mge.Tensor(A.astype(dtype)), mge.Tensor(B.astype(dtype))
    want = ((A @ B) * 2).astype(dtype)

    def f(a: mge.Tensor, b: mge.Tensor) -> mge.Tensor:
        return apply(custom.DemoProduct(scale=2), a, b)[0]

    np.testing.assert_array_equal(f(a, b).numpy(), want)
    np.testing.assert_array_equal(f(F.transpose(F.transpose(a, (1, 0)), (1, 0)), b).numpy(), want)
    for kw in ({"symbolic": False}, {"symbolic": True}, {"without_host": True}):
        g = trace(f, **kw)
        for _ in range(3):
            np.testing.assert_array_equal(g(a, b).numpy(), want)


def test_parameters(loaded: str) -> None:
    (y,) = apply(custom.DemoKinds())
    assert y.numpy().tolist() == [-3, -5, 7, 9, 0.25, 0, 7, 303, 1]
    op = custom.DemoKinds(
        i32=8,
        i64=2**40 + 1,
        u32=2**24,
        u64=2**63 + 5,
        f64=1e-3,
        flag=True,
        text="",
        floats=[],
        flags=(True,),
        texts=["x y"],
    )
    got = apply(op)[0].numpy()
    np.testing.assert_allclose(got, [8, (2**40 + 1) % 1000, 2**24, (2**63 + 5) % 1000, 1e-3, 1, 0, 301, 0], rtol=1e-6)
    assert op == custom.DemoKinds(
        texts=["x y"],
        flags=[True],
        floats=[],
        text="",
        flag=True,
        f64=1e-3,
        u64=2**63 + 5,
        u32=2**24,
        i64=2**40 + 1,
        i32=8,
    )
    with pytest.warns(UserWarning, match="no parameter 'sale'; it has scale"):
        custom.DemoProduct(sale=2)
    for bad, kind in (
        ({"i32": 2**31}, ValueError),
        ({"i32": 1.5}, TypeError),
        ({"u32": -1}, ValueError),
        ({"flag": 1}, TypeError),
        ({"text": 5}, TypeError),
        ({"floats": 1.0}, TypeError),
        ({"texts": "ab"}, TypeError),
        ({"device": "gpu"}, ValueError),
    ):
        with pytest.raises(kind, match=f"DemoKinds: parameter '{next(iter(bad))}'"):
            custom.DemoKinds(**bad)


def test_defaults_of_inference_and_the_order_of_parts(loaded: str) -> None:
    with pytest.warns(RuntimeWarning, match="no inference of shape and dtype"):
        op = custom.DemoTwice()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        custom.DemoTwice()
    x, y = apply(op, mge.Tensor(A))
    np.testing.assert_array_equal(x.numpy(), A + 100)
    np.testing.assert_array_equal(y.numpy(), 2 * A + [[10, 0, 0], [0, 0, 0]])


def test_gradients_by_a_function(loaded: str) -> None:
    class Product(Function):
        def forward(self, a: mge.Tensor, b: mge.Tensor) -> mge.Tensor:
            self.saved = (a, b)
            return apply(custom.DemoProduct(scale=2.0), a, b)[0]

        def backward(self, g: mge.Tensor) -> Any:
            a, b = self.saved
            op = custom.DemoProduct(scale=2.0)
            return apply(op, g, F.transpose(b, (1, 0)))[0], apply(op, F.transpose(a, (1, 0)), g)[0]

    a, b = mge.Tensor(A), mge.Tensor(B)
    with GradManager().attach([a, b]) as gm:
        gm.backward(Product()(a, b).sum())
    np.testing.assert_array_equal(a.grad.numpy(), 2 * np.ones((2, 4)) @ B.T)
    np.testing.assert_array_equal(b.grad.numpy(), 2 * A.T @ np.ones((2, 4)))


def test_a_model_with_custom_ops_is_run_by_the_command(library: str, tmp_path: pathlib.Path) -> None:
    custom.load(library)
    f = trace(lambda x: apply(custom.DemoProduct(scale=0.5), x, mge.Tensor(B))[0], capture_as_const=True)
    f(mge.Tensor(A))
    f.dump(str(tmp_path / "net.mge"), arg_names=["x"], output_names=["y"])
    np.save(tmp_path / "x.npy", A)
    custom.unload(library)
    code = "import sys; from megengine.tools.load_network_and_run import main; sys.exit(main(sys.argv[1:]))"
    args = [str(tmp_path / "net.mge"), "--load-input-data", str(tmp_path / "x.npy"), "--calc-output-rms"]
    done = subprocess.run(
        [sys.executable, "-c", code, *args, "--custom-op-lib", library], capture_output=True, text=True
    )
    rms = float(np.sqrt(np.mean((A @ B / 2) ** 2)))
    assert f"output_rms=[{rms:.6g}]" in done.stdout + done.stderr, done.stderr


def test_dumped_loaded_edited(loaded: str) -> None:
    f = trace(
        lambda x: apply(custom.DemoProduct(scale=0.5), x, mge.Tensor(B))[0] + 1, symbolic=True, capture_as_const=True
    )
    f(mge.Tensor(A))
    file = io.BytesIO()
    f.dump(file, arg_names=["x"], output_names=["y"])
    want = A @ B / 2 + 1
    file.seek(0)
    np.testing.assert_array_equal(GraphInference(file).run(A)["y"], want)
    np.testing.assert_array_equal(GraphInference(io.BytesIO(file.getvalue())).run(A[:1])["y"], want[:1])
    net = Network.load(io.BytesIO(file.getvalue()))
    (x,) = net.input_vars
    net.replace_vars({x: apply(custom.DemoProduct(scale=3.0), x, net.make_const(np.eye(3)))[0]})
    net.reset_batch_size(1)
    again = io.BytesIO()
    net.dump(again)
    again.seek(0)
    np.testing.assert_array_equal(GraphInference(again).run(A[:1])["y"], 3 * A[:1] @ B / 2 + 1)
    op = custom.DemoProduct(scale=0.5)
    replayed = trace(lambda x: apply(op, x, mge.Tensor(B))[0], without_host=True, symbolic=True)
    for _ in range(2):
        np.testing.assert_array_equal(replayed(mge.Tensor(A)).numpy(), A @ B / 2)
    custom.unload(loaded)
    try:
        with pytest.raises((ValueError, RuntimeError), match=r"DemoProduct: .* not loaded; .* library 'demo_v0.so'"):
            Network.load(io.BytesIO(file.getvalue()))
        with pytest.raises((ValueError, RuntimeError), match="DemoProduct.*not loaded"):
            replayed(mge.Tensor(A)).numpy()
    finally:
        custom.load(loaded)


def test_errors_name_the_operator_and_the_line(loaded: str) -> None:
    a, b = mge.Tensor(A), mge.Tensor(B)
    for call, says in (
        (lambda: apply(custom.DemoProduct(), a, a), r"DemoProduct: inner sizes 3 and 2 differ \(.*demo.cpp:6\)"),
        (
            lambda: apply(custom.DemoProduct(scale=-1.0), a, b)[0].numpy(),
            r"DemoProduct: scale must not be negative; got -1",
        ),
        (lambda: apply(custom.DemoProduct(), a, mge.Tensor(B.astype("int8"))), r"input 'rhs' must be float32 or int32"),
        (
            lambda: apply(custom.DemoProduct(), a, mge.Tensor(A[0])),
            r"'rhs' must have 2 dimensions; got the shape \{3\}",
        ),
        (
            lambda: apply(custom.DemoWrong(), a)[0].numpy(),
            r"DemoWrong: a tensor of float32 has no elements of type int32_t",
        ),
        (lambda: apply(custom.DemoNoCompute(), a)[0].numpy(), r"DemoNoCompute: there is no computation for device x86"),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(RuntimeError, match=says):
                call()
    for inputs in ((a,), (a, b, b), (a, 5)):
        with pytest.raises(TypeError, match="DemoProduct"):
            apply(custom.DemoProduct(), *inputs)
    np.testing.assert_array_equal(apply(custom.DemoProduct(), a, b)[0].numpy(), A @ B)  # and all goes on


def build(folder: pathlib.Path, name: str, source: str, **kw: Any) -> str:
    path = folder / f"{name}.cpp"
    path.write_text(source)
    return custom_op_tools.build(name, [str(path)], extra_cflags=["-O0"], build_dir=folder / "out", **kw)


HEAD = '#include "megbrain/custom/custom.h"\n'
ONE = HEAD + "void f(const std::vector<custom::Tensor>&, const custom::Param&, std::vector<custom::Tensor>&) {}\n"


def test_a_failure_in_a_program_has_its_line_and_leaves_state_alone(loaded: str) -> None:
    total = mge.Tensor(np.zeros((2, 3), np.float32))

    @trace(symbolic=True)
    def f(x: mge.Tensor) -> mge.Tensor:
        total[...] = total + x
        y = F.relu(x) * 2
        return apply(custom.DemoWrong(), y)[0] + 1  # here

    line = 1 + next(i for i, text in enumerate(pathlib.Path(__file__).read_text().splitlines()) if "# here" in text)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="DemoWrong: a tensor of float32") as e:
            f(mge.Tensor(A)).numpy()
        assert f"test_custom_op.py:{line}" in str(e.value) and "float32[2,3]" in str(e.value), str(e.value)
        np.testing.assert_array_equal(total.numpy(), np.zeros((2, 3)))


def test_versions_and_what_cannot_be_loaded(tmp_path: pathlib.Path, loaded: str) -> None:
    good = ONE + "CUSTOM_OP_REG(TestOne).add_inputs(1).add_outputs(1).set_compute(f);\n"
    first = build(tmp_path, "one", good)
    stamp = os.stat(first).st_mtime_ns
    assert build(tmp_path, "one", good) == first and os.stat(first).st_mtime_ns == stamp
    second = build(tmp_path, "one", good + "CUSTOM_OP_REG(TestTwo).add_inputs(1).add_outputs(1).set_compute(f);\n")
    assert first.endswith("one_v0.so") and second.endswith("one_v1.so")
    custom.load(first)
    with pytest.raises(ValueError, match="TestOne.*one_v0.so.*Unload"):
        custom.load(second)
    source = str(tmp_path / "one.cpp")
    assert custom_op_tools.build_and_load("one", [source], extra_cflags=["-O0"], build_dir=tmp_path / "out") == second
    assert "TestTwo" in custom._get_custom_op_list() and first not in custom._get_custom_op_lib_info()
    custom.unload(second)
    twice = ONE + 'CUSTOM_OP_REG(TestBad).add_input("x").add_input("x").add_outputs(1).set_compute(f);\n'
    with pytest.raises(ValueError, match="TestBad.*two inputs or two outputs are named 'x'"):
        custom.load(build(tmp_path, "twice", twice))
    plain = tmp_path / "plain.so"
    subprocess.run(["c++", "-shared", "-fPIC", "-x", "c++", "/dev/null", "-o", str(plain)], check=True)
    for path, says in ((plain, "no library of custom operators"), (tmp_path / "one.cpp", "cannot load")):
        with pytest.raises(RuntimeError, match=says):
            custom.load(path)
    with pytest.raises(RuntimeError, match="does not compile"):
        build(tmp_path, "broken", HEAD + "int x = ;")


def test_header_compiles_alone_and_shares_nothing(library: str) -> None:
    found = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    ours = [line.split()[-1] for line in found.splitlines() if "custom" in line]
    assert ours == ["mge_custom_library_v1"] or all("_ZN" in n or n == "mge_custom_library_v1" for n in ours)
    assert not [line for line in found.splitlines() if line.split()[-2] == "u"], "a library with unique symbols stays"
    needed = subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout
    assert "_core" not in needed and "lite" not in needed


def test_versioner_and_baton(tmp_path: pathlib.Path) -> None:
    source = tmp_path / "a.cpp"
    source.write_text("int a;")
    v = Versioner()
    assert v.get_version("a") is None
    args: tuple[Any, ...] = ([str(source)], [["-O2"]], tmp_path, False, False, 1)
    assert v.bump_version_if_changed("a", *args) == 0 == v.bump_version_if_changed("a", *args)
    source.write_text("int b;")
    assert v.bump_version_if_changed("a", *args) == 1 == v.get_version("a")
    assert v.bump_version_if_changed("a", [str(source)], [["-O3"]], tmp_path, False, False, 1) == 2
    baton = FileBaton(tmp_path / "lock", wait_seconds=0.01)
    assert baton.try_acquire() and not FileBaton(tmp_path / "lock").try_acquire()
    baton.release()
    baton.wait()
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    (tmp_path / "lock").write_text(gone.stdout.strip())  # left by a process that was killed
    assert baton.try_acquire()
    baton.release()


def test_what_is_not_there_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    for name in ("cutmix_forward", "cropandpad_forward", "dilate_forward", "fillpoly_forward"):
        with pytest.raises(NotImplementedError, match=f"{name}.*CUDA"):
            getattr(custom, name)
    cuda = tmp_path / "a.cu"
    cuda.write_text("")
    with pytest.raises(NotImplementedError, match="CUDA"):
        custom_op_tools.build("a", [str(cuda)])
    with pytest.raises(NotImplementedError, match="CUDA"):
        custom_op_tools.build("a", [__file__], with_cuda=True)
    with pytest.raises(FileNotFoundError, match="nowhere.cpp"):
        custom_op_tools.build("a", ["nowhere.cpp"])
    with pytest.raises(TypeError, match="list of files"):
        custom_op_tools.build("a", "a.cpp")
    with pytest.raises(FileNotFoundError, match="no file"):
        custom.load("/nowhere.so")
    with pytest.raises(AttributeError, match="no operator 'Zork'"):
        custom.Zork  # noqa: B018
    assert "custom" in _core.op_names() and custom.get_custom_op_abi_tag() == 1


def test_the_example_runs() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "examples" / "custom_op.py")], capture_output=True, text=True)
    assert done.returncode == 0 and "same bits" in done.stdout, done.stdout + done.stderr
