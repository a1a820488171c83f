"""What importing megenginelite brings along, where it finds its library, and the networks of its benchmark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import megenginelite as lite
from megenginelite.base import find_library

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True, text=True)


def test_importing_brings_little_along() -> None:
    """Each of these takes as long as loading a small network."""
    slow = ["pathlib", "urllib.parse", "numpy.random", "asyncio", "subprocess", "megengine"]
    done = python(
        f"import sys, numpy; before = set(sys.modules); import megenginelite; print([m for m in {slow} "
        "if m in sys.modules and m not in before])"
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_the_library_is_found_by_file_and_by_folder(tmp_path: Path) -> None:
    for given in (find_library(), find_library().parent):
        done = python("import megenginelite; print(megenginelite.get_version())", LITE_LIB_PATH=str(given))
        assert done.stdout.strip() == lite.get_version(), done.stderr
    for given in (tmp_path, tmp_path / "missing"):
        done = python("import megenginelite", LITE_LIB_PATH=str(given))
        assert f"megenginelite: no liblite.so in {given}; LITE_LIB_PATH points there." in done.stderr


def test_what_a_callback_raises_comes_out_once() -> None:
    """Also of forward and wait, which go to C directly."""
    net = lite.LiteNetwork()
    net.load(Path(__file__).parents[1] / "data/lite/net_v1.mge")

    def refuse(tensors: object) -> None:
        raise KeyError("mine")

    net.set_finish_callback(refuse)
    net.forward()
    with pytest.raises(KeyError, match="mine"):
        net.wait()
    net.wait()
    net.set_finish_callback(lambda tensors: None)
    net.set_start_callback(refuse)
    with pytest.raises(KeyError, match="mine"):
        net.forward()
    with pytest.raises(RuntimeError, match="load_model first") as info:
        lite.LiteNetwork().forward()
    assert info.value.__cause__ is None


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def test_the_benchmarks_lstm_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network that rivals are compared on, against its formula in float64."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import lite_mge
    import lite_nets

    class Formula:
        def lstm(self, x: np.ndarray, w: np.ndarray, r: np.ndarray, b: np.ndarray, rb: np.ndarray) -> np.ndarray:
            h = c = np.zeros((1, r.shape[1]))
            out = []
            for step in x.astype("float64"):
                i, f, g, o = np.split(step @ w.T.astype("float64") + h @ r.T + b + rb, 4, axis=1)
                c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
                h = sigmoid(o) * np.tanh(c)
                out.append(h)
            return np.stack(out)

        def last(self, x: np.ndarray) -> np.ndarray:
            return x[-1]

        def linear(self, x: np.ndarray, w: np.ndarray, bias: np.ndarray) -> np.ndarray:
            return x @ w.T + bias

    path = tmp_path / "lstm.mge"
    lite_mge.dump("lstm", str(path), [])
    net = lite.LiteNetwork()
    net.load(path)
    x = lite_nets.read_given("lstm", str(tmp_path))
    net.get_io_tensor("x").set_data_by_copy(x)
    net.forward()
    net.wait()
    want = lite_nets.NETS["lstm"](lite_nets.Maker(Formula()), x)
    np.testing.assert_allclose(net.get_io_tensor("y").to_numpy(), want, rtol=0, atol=2e-6)
