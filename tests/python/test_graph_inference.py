"""Model files run as functions of arrays."""

from __future__ import annotations

import io
import pathlib

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine.core.tensor.dtype import bfloat16
from megengine.jit import trace
from megengine.utils.comp_graph_tools import GraphInference
from megengine.utils.network import Network
from megengine.utils.network_node import VarNode


def dumped(fn, *args, **kw) -> io.BytesIO:
    traced = trace(symbolic=True, capture_as_const=True)(fn)
    traced(*args)
    file = io.BytesIO()
    traced.dump(file, **kw)
    file.seek(0)
    return file


def test_by_position_by_name_and_for_other_sizes(tmp_path: pathlib.Path) -> None:
    a, b = np.ones((2, 3), "float32"), np.full((2, 3), 2.0, "float32")
    file = dumped(
        lambda x, y: (x - y, (x * y).sum()), mge.tensor(a), mge.tensor(b), arg_names=["x", "y"], output_names=["d", "s"]
    )
    path = tmp_path / "model.mge"
    path.write_bytes(file.getvalue())
    for source in (file, str(path), path):
        g = GraphInference(source)
        for out in (g.run(a, b), g.run(inp_dict={"y": b, "x": a}), g.run(a, inp_dict={"y": b})):
            assert list(out) == ["d", "s"]
            np.testing.assert_array_equal(out["d"], a - b)
            assert out["s"].shape == () and out["s"] == 12
        assert g.run(a[:1], b[:1])["d"].shape == (1, 3)
    only = GraphInference(path, outputs=["s"])
    assert list(only.run(a, b)) == ["s"]
    assert only.run(a.astype("float64"), mge.tensor(b))["s"] == 12


def test_same_bits_as_eager() -> None:
    rng = np.random.RandomState(0)
    w = mge.tensor(rng.normal(size=(4, 3, 3, 3)).astype("float32"))
    x = rng.normal(size=(2, 3, 8, 8)).astype("float32")
    net = lambda x: F.softmax(F.relu(F.conv2d(x, w, padding=1)).mean((2, 3)), 1)  # noqa: E731
    out = GraphInference(dumped(net, mge.tensor(x), output_names=["p"])).run(x)
    np.testing.assert_array_equal(out["p"], net(mge.tensor(x)).numpy())


def test_bfloat16_in_and_out() -> None:
    x = np.array([1.5, -2.5], bfloat16)
    out = GraphInference(
        dumped(lambda x: (x + x, x.astype("float32").sum()), mge.Tensor(x), output_names=["y", "s"])
    ).run(x)
    assert out["y"].dtype is bfloat16 and out["y"].tolist() == [3.0, -5.0] and out["s"] == -1.0


def test_bad_input(tmp_path: pathlib.Path) -> None:
    file = dumped(lambda x: x + 1, mge.tensor([1.0]), arg_names=["x"], output_names=["y"])
    g = GraphInference(file)
    for call in (g.run, lambda: g.run(1.0, 2.0), lambda: g.run(inp_dict={"z": 1.0})):
        with pytest.raises(AssertionError, match="GraphInference"):
            call()
    file.seek(0)
    with pytest.raises(AssertionError, match=r"Can not find varnode \['q'\] in this model; it has y"):
        GraphInference(file, outputs=["q"])
    (tmp_path / "no.mge").write_bytes(b"not a model")
    with pytest.raises(RuntimeError):
        GraphInference(tmp_path / "no.mge")
    assert mge.cgtools.GraphInference is GraphInference
    with pytest.raises(ValueError, match="replace_vars: needs at least one variable"):
        mge.cgtools.replace_vars([], {})
    with pytest.raises(FileNotFoundError):
        Network.load("x")
    assert not isinstance(mge.tensor([1.0]), VarNode)


def test_an_output_may_have_the_name_of_an_input() -> None:
    """As the state of a recurrent cell does: it is the result that is given, not what was fed."""
    f = trace(lambda h, x: {"h": h * 2 + x, "y": x - h}, capture_as_const=True)
    f(mge.Tensor([1.0]), mge.Tensor([10.0]))
    file = io.BytesIO()
    f.dump(file, arg_names=["h", "x"])
    out = GraphInference(io.BytesIO(file.getvalue())).run(np.float32([3.0]), np.float32([4.0]))
    assert out["h"].tolist() == [10.0] and out["y"].tolist() == [1.0]
