"""Every argument of ``trace.dump``, seen from outside: files are read again, run, and looked into."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor
from megengine.core import _core
from megengine.core._plain import NotPlain, decode, encode
from megengine.jit import trace
from megengine.utils.comp_graph_tools import GraphInference
from megengine.utils.network import Network

TOOLS = Path(__file__).parent.parent.parent / "build" / "dev" / "bin"
X = np.arange(6, dtype="float32").reshape(2, 3)


def traced(fn: Any, *args: Any) -> Any:
    f = trace(fn, symbolic=True, capture_as_const=True)
    f(*(Tensor(a) for a in args))
    return f


def double() -> Any:
    return traced(lambda x: F.exp(x) * 2, X)


def saved(f: Any, **options: Any) -> tuple[Any, io.BytesIO]:
    file = io.BytesIO()
    result = f.dump(file, **options)
    file.seek(0)
    return result, file


def metadata(**options: Any) -> Any:
    return Network.load(saved(double(), **options)[1]).metadata


def test_what_the_result_says() -> None:
    w = mge.Parameter(np.ones((3, 4), "float32"))
    w.name = "w"
    f = traced(lambda x: F.matmul(x, w), X)
    result, file = saved(f, keep_param_name=True)
    data = file.getvalue()
    assert result._fields == (
        *("nr_opr", "tot_bytes", "tensor_value_bytes", "content_hash", "inputs", "outputs", "params"),
    )
    assert (result.nr_opr, result.tot_bytes, result.tensor_value_bytes) == (3, len(data), 48)
    assert (result.inputs, result.outputs, result.params) == (["arg_0"], ["MatrixMul"], ["w"])
    assert saved(f)[0].params == []
    assert result.content_hash == saved(f, keep_param_name=True)[0].content_hash != saved(double())[0].content_hash


@pytest.mark.parametrize("dump_format", [None, "FBS", "FBS_V2"])
def test_inputs_by_keyword_are_called_by_it(dump_format: str | None) -> None:
    f = trace(lambda x, *, mask, scale=2: x * scale - mask, symbolic=True, capture_as_const=True)
    f(Tensor(X), mask=Tensor(X[:1]))
    assert saved(f, dump_format=dump_format)[0].inputs == ["arg_0", "mask"]
    result, file = saved(f, arg_names="data", dump_format=dump_format)
    assert result.inputs == ["data", "mask"]
    (y,) = GraphInference(file).run(inp_dict={"data": X, "mask": X[:1] + 1}).values()
    np.testing.assert_array_equal(y, X * 2 - X[:1] - 1)
    assert saved(f, arg_names=["a", "b"])[0].inputs == ["a", "b"]
    with pytest.raises(ValueError, match="wrong number of arg_names, should be 2 values; got 3"):
        f.dump(io.BytesIO(), arg_names=["a", "b", "c"])
    with pytest.raises(ValueError, match="arg_names has an empty name"):
        f.dump(io.BytesIO(), arg_names=[""])


@pytest.mark.parametrize("options", [{}, {"optimize_for_inference": False}, {"no_change_graph": True}])
@pytest.mark.parametrize("dump_format", [None, "FBS", "FBS_V2"])
def test_inputs_that_nothing_reads_are_left_out(dump_format: str | None, options: Any) -> None:
    f = traced(lambda x, y, z: z - x.reshape(z.shape), X, X, X.T.copy())
    result, file = saved(
        f, arg_names=["x", "y", "z"], dump_format=dump_format, input_data=["x:#rand(0,1);z:#rand(0,1)"], **options
    )
    assert result.inputs == ["x", "z"]
    (got,) = GraphInference(file).run(X, X.T).values()
    np.testing.assert_array_equal(got, X.T - X.reshape(3, 2))
    shape_only = traced(lambda x, like: x.reshape(like.shape), X, X.T.copy())
    result, file = saved(shape_only, dump_format=dump_format, **options)
    assert result.inputs == ["arg_0", "arg_1"]
    (got,) = GraphInference(file).run(X, np.zeros((6, 1), "float32")).values()
    assert got.shape == (6, 1)


def test_inputs_of_one_name_are_numbered() -> None:
    a, b, c = Tensor(X), Tensor(X), Tensor(X)
    a.name, b.name, c.name = "s", "t", "s"
    f = trace(lambda x, y, z: x + y * z, symbolic=True, capture_as_const=True)
    f(a, b, c)
    assert saved(f)[0].inputs == ["s[0]", "t", "s[1]"]
    g = trace(lambda x, *, k: x - k, symbolic=True, capture_as_const=True)
    g(Tensor(X), k=Tensor(X))
    assert saved(g, arg_names=["k"])[0].inputs == ["k[0]", "k[1]"]


def test_one_tensor_given_twice_is_one_input_and_told() -> None:
    x = Tensor(X)
    f = trace(lambda a, b: a * 10 + b, symbolic=True, capture_as_const=True)
    f(x, x)
    with pytest.warns(RuntimeWarning, match="arg_0 and arg_1 were one tensor in the recorded call"):
        result, file = saved(f)
    assert result.inputs == ["arg_0"]
    np.testing.assert_array_equal(next(iter(GraphInference(file).run(X).values())), X * 11)
    f(x, x + 1)
    result, file = saved(f)
    assert result.inputs == ["arg_0", "arg_1"]
    np.testing.assert_array_equal(next(iter(GraphInference(file).run(X, X * 2).values())), X * 12)


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_keep_var_name(keep: int) -> None:
    w = mge.Parameter(np.ones((3, 3), "float32"))
    w.name = "w"
    f = traced(lambda x: F.exp(F.matmul(x, w)), X)
    result, file = saved(f, keep_var_name=keep, arg_names="x", output_names="y")
    text = _core.Graph(file.getvalue()).text
    assert result.outputs == (["y"] if keep else ["unnamed0"])
    assert ("%w:" in text, "%MatrixMul" in text) == (keep > 0, keep > 1)
    y = GraphInference(file).run(inp_dict={"x": X})[result.outputs[0]]
    np.testing.assert_allclose(y, np.exp(X @ np.ones((3, 3))), rtol=1e-6)
    kept = saved(f, keep_var_name=0, keep_param_name=True)[1]
    assert "%w:" in _core.Graph(kept.getvalue()).text


def test_keep_var_name_of_another_number() -> None:
    with pytest.raises(ValueError, match="keep_var_name is 0, 1 or 2; got 3"):
        double().dump(io.BytesIO(), keep_var_name=3)


# ---- several models in one file


def test_append(tmp_path: Path) -> None:
    path = tmp_path / "several.mge"
    first = double().dump(path, append=True)
    assert path.stat().st_size == first.tot_bytes
    second = traced(lambda a, b: a + b, X, X).dump(path, append=True)
    assert path.stat().st_size == first.tot_bytes + second.tot_bytes
    assert [v.name for v in Network.load(path).output_vars] == ["MUL"]  # the first one
    np.testing.assert_allclose(GraphInference(path).run(X)["MUL"], np.exp(X) * 2, rtol=1e-6)
    lite = pytest.importorskip("megenginelite")
    net = lite.LiteNetwork()
    net.load(str(path))
    assert net.get_all_output_name() == ["MUL"]
    shown = subprocess.run([TOOLS / "mge-lite", "show", path], capture_output=True, text=True, check=True).stdout
    assert "# model 1 of 2" in shown and "# model 2 of 2" in shown and "ADD" in shown


def test_append_to_damage_is_found(tmp_path: Path) -> None:
    path = tmp_path / "several.mge"
    double().dump(path)
    n = path.stat().st_size
    double().dump(path, append=True)
    data = bytearray(path.read_bytes())
    data[n + 100] ^= 1
    path.write_bytes(data)
    with pytest.raises(RuntimeError, match=r"model 2 of 2\): damaged"):
        GraphInference(path)
    path.write_bytes(bytes(data[: n + 100]))
    with pytest.raises(RuntimeError, match=r"model 2 of 2\): cut off"):
        GraphInference(path)
    path.write_bytes(bytes(data[:n]) + b"more")
    with pytest.raises(RuntimeError, match="4 bytes follow"):
        GraphInference(path)


def test_a_file_object_is_written_where_it_stands() -> None:
    file = io.BytesIO(b"head")
    file.seek(4)
    result = double().dump(file)
    assert file.getvalue()[:4] == b"head" and len(file.getvalue()) == 4 + result.tot_bytes


# ---- metadata

PLAIN = [
    None, True, 3, -(2**70), 2.5, float("inf"), "text é", b"\x00\xff", (1, 2), [1, (2, "x")], {"a": 1, "b": [1, 2.5]},
    {1: "one", (1, 2): "pair"}, {"$bytes": "not bytes"}, {}, [], 1 + 2j,
]  # fmt: skip


@pytest.mark.parametrize("info", PLAIN, ids=repr)
def test_user_info(info: Any) -> None:
    found = metadata(user_info=info)["user_info"]
    assert type(found) is type(info) and found == info
    assert decode(encode(info)) == info


@pytest.mark.parametrize("array", [np.arange(6, dtype="int64").reshape(2, 3), np.zeros((0, 2), "f"), np.float32(2.5)])
def test_user_info_of_arrays(array: Any) -> None:
    found = metadata(user_info={"mean": array})["user_info"]["mean"]
    assert type(found) is type(array) and found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(
    ("info", "said"),
    [
        (object(), r"it is a builtins.object"),
        ({"net": [M.ReLU()]}, r"it\['net'\]\[0\] is a megengine.module.activation.ReLU"),
        (lambda: 0, "builtins.function"),
        ({1, 2}, "builtins.set"),
        (Path("x"), "PosixPath"),
        (np.array([object()]), "numpy.ndarray"),
    ],
)
def test_user_info_that_is_not_plain(info: Any, said: str) -> None:
    with pytest.raises(TypeError, match=f"dump: user_info: .*{said}.* plain data alone"):
        double().dump(io.BytesIO(), user_info=info)
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(NotPlain, match="holds itself"):
        encode(loop)


@pytest.mark.parametrize(
    "text", ["", "{", '{"$bytes": 3}', '{"$array": ["O", [1], ""]}', '{"$later": 1}', "[" * 100000]
)
def test_plain_data_that_was_damaged(text: str) -> None:
    with pytest.raises(ValueError, match="not the plain data"):
        decode(text)


def test_metadata() -> None:
    base = {"user_info": None, "graph_modified": False, "optimized_for_inference": True}
    assert metadata() == {**base, "enable_fuse_grain": True}
    assert metadata(enable_fuse_grain=False) == base
    assert metadata(enable_nchw44=True, enable_nchw88=True) == {
        **base,
        "enable_nchw44": True,
        "enable_fuse_grain": True,
    }
    assert metadata(enable_nchw32=True, enable_nchw44=False)["enable_nchw32"] is True
    assert metadata(optimize_for_inference=False) == {**base, "optimized_for_inference": False}
    assert metadata(optimize_for_inference=False, enable_nchw44=True, anything=1)["optimized_for_inference"] is False
    assert metadata(enable_metadata=False, user_info="secret") is None


def test_options_that_are_not_known() -> None:
    with pytest.raises(ValueError, match=r"unknown options: \['foo', 'bar'\]"):
        double().dump(io.BytesIO(), foo=True, bar=1)


def test_formats() -> None:
    f = double()
    with pytest.raises(ValueError, match="dump_format is None, 'FBS_V2' or 'FBS'; got 'ONNX'"):
        f.dump(io.BytesIO(), dump_format="ONNX")
    with pytest.raises(AssertionError, match="needs dump_format='FBS'"):
        f.dump(io.BytesIO(), compat_older_version="8.14")
    with pytest.raises(AssertionError, match=r"None or '8.14'; got '9.0'"):
        f.dump(io.BytesIO(), compat_older_version="9.0", dump_format="FBS")
    with pytest.raises(ValueError, match="model_version=7"):
        f.dump(io.BytesIO(), model_version=7)


OLDER: list[Any] = [
    *(F.relu, F.sqrt, F.square, F.tan, F.cosh, F.sinh, F.asinh, F.relu6, F.hsigmoid, F.softplus, F.logsigmoid),
    *(F.sign, F.gelu, F.silu),
    lambda x: F.acosh(x + 1),
    lambda x: F.atanh(x / 8),
    lambda x: F.softmax(x, axis=1),
    lambda x: F.nn.layer_norm(x, (3,), False),
    lambda x: F.where(x > 1, x, -x),
    lambda x: F.concat([c.astype("float32") for c in (x < 1, x <= 1, F.equal(x, 1), F.not_equal(x, 1))]),
    lambda x: F.concat([F.isnan(F.log(x - 1)).astype("float32"), F.isinf(1 / x).astype("float32")]),
    M.Linear(3, 2),
]


@pytest.mark.parametrize("fn", OLDER)
def test_files_for_readers_of_8_14(fn: Any) -> None:
    f = traced(lambda x: fn(x), X)
    file = saved(f, dump_format="FBS", compat_older_version="8.14")[1]
    data = file.getvalue()
    assert data[:8] == b"MGBS" + bytes(4)
    modes = {o.params.get("mode") for o in Network.load(io.BytesIO(data)).all_oprs}
    newer = "SQRT SQUARE TAN COSH SINH ASINH ACOSH ATANH CLIP SIGN HSIGMOID RELU6 PRELU SOFTPLUS LOGSIGMOID"
    assert not modes & set(newer.split())
    (got,) = GraphInference(io.BytesIO(data)).run(X).values()
    np.testing.assert_allclose(got, fn(Tensor(X)).numpy(), rtol=2e-6, atol=1e-7)


def test_cases_in_files_for_readers_of_8_14() -> None:
    f = traced(lambda x: F.sinh(x) * 2, X)
    data = saved(f, dump_format="FBS", compat_older_version="8.14", input_data=["#rand(0, 1)"])[1].getvalue()
    assert data.startswith(b"mgbtest0") and data.count(b"MGBS") == 2 and b"mgb2" not in data


def test_no_change_graph() -> None:
    def f(x: Tensor) -> Tensor:
        return F.exp(x) + F.exp(x)

    assert saved(traced(f, X))[0].nr_opr == 3
    assert saved(traced(f, X), no_change_graph=True)[0].nr_opr == 4


# ---- strip_info_file


def test_strip_info(tmp_path: Path) -> None:
    path = tmp_path / "ops.json"
    add = traced(lambda a, b: a + b, X, X)
    result = add.dump(io.BytesIO(), strip_info_file=path)
    assert json.loads(path.read_text()) == {
        "dtypes": ["Float32"], "elemwise_modes": ["ADD"], "opr_types": ["Elemwise", "Host2DeviceCopy"],
        "hash": result.content_hash,
    }  # fmt: skip
    double().dump(io.BytesIO(), strip_info_file=str(path), append_json=True)
    both = json.loads(path.read_text())
    assert both["elemwise_modes"] == ["ADD", "EXP", "MUL"]
    assert both["opr_types"] == ["Elemwise", "Host2DeviceCopy", "ImmutableTensor"]
    double().dump(io.BytesIO(), strip_info_file=path)
    assert json.loads(path.read_text())["elemwise_modes"] == ["EXP", "MUL"]
    text = io.StringIO()
    add.dump(io.BytesIO(), strip_info_file=text)
    double().dump(io.BytesIO(), strip_info_file=text, append_json=True)
    assert json.loads(text.getvalue())["elemwise_modes"] == ["ADD", "EXP", "MUL"]


# ---- training mode


class Block(M.Module):
    def __init__(self, *layers: M.Module) -> None:
        super().__init__()
        self.body = M.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (M.BatchNorm2d(3), r"body\.0 BatchNorm2d in training mode: the recorded call updates its running_mean"),
        (M.Dropout(0.5), r"body\.0 Dropout in training mode, which drops values at random"),
    ],
    ids=["batch_norm", "dropout"],
)
def test_training_mode(layer: M.Module, said: str) -> None:
    net, x = Block(layer), np.ones((1, 3, 4, 4), "float32")
    f = traced(lambda x: net(x), x)
    with pytest.raises(RuntimeError, match=f"can not dump {said}.*maybe you forget to do model.eval"):
        f.dump(io.BytesIO())
    net.eval()
    f = traced(lambda x: net(x), x)
    result, file = saved(f)
    np.testing.assert_allclose(GraphInference(file).run(x)[result.outputs[0]], net(Tensor(x)).numpy(), rtol=1e-6)
    net.train()
    if isinstance(layer, M.Dropout):
        layer.drop_prob = 0.0
        saved(traced(lambda x: net(x), x))  # drops nothing
