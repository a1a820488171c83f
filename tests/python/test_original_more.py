"""Files that MegEngine 1.13 wrote, each for one thing that went wrong once or that the others do not have.

tests/data/original/more.npz holds them with what MegEngine computed from them: ``NAME/mge`` the bytes of the file,
``NAME/K/in/INPUT`` and ``NAME/K/out/OUTPUT`` the values of call K, ``NAME/tol`` the largest error over max(|a|, |b|, 1)
and ``NAME/step`` a difference that is none. Calls have other sizes than the file was made with.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

import megenginelite as lite
from megengine.utils.comp_graph_tools import GraphInference

DATA = dict(np.load(Path(__file__).parents[1] / "data/original/more.npz"))
NAMES = sorted({key.split("/")[0] for key in DATA})
INPUT, OUTPUT = lite.LiteTensorPhase.LITE_INPUT, lite.LiteTensorPhase.LITE_OUTPUT


def calls(name: str, kind: str) -> list[dict[str, np.ndarray]]:
    found: dict[str, dict[str, np.ndarray]] = {}
    for key, value in DATA.items():
        own, *rest = key.split("/", 3)
        if own == name and len(rest) == 3 and rest[1] == kind:
            found.setdefault(rest[0], {})[rest[2]] = value
    return [found[k] for k in sorted(found)]


def check(name: str, got: list[dict[str, np.ndarray]]) -> None:
    for values, wanted in zip(got, calls(name, "out"), strict=True):
        assert list(values) == list(wanted)
        for out, want in wanted.items():
            value = values[out]
            assert (value.shape, value.dtype) == (want.shape, want.dtype), out
            a, b = value.astype("float64"), want.astype("float64")
            error = np.abs(a - b) / np.maximum(np.maximum(np.abs(a), np.abs(b)), 1)
            error[np.abs(a - b) <= DATA[f"{name}/step"] * 1.001] = 0
            assert np.max(error, initial=0) <= DATA[f"{name}/tol"], out


@pytest.mark.parametrize("name", NAMES)
def test_graph_inference_gives_what_megengine_gives(name: str) -> None:
    graph = GraphInference(io.BytesIO(DATA[f"{name}/mge"].tobytes()))
    check(name, [{n: np.asarray(v) for n, v in graph.run(inp_dict=i).items()} for i in calls(name, "in")])


@pytest.mark.parametrize("name", NAMES)
def test_lite_gives_what_megengine_gives(name: str) -> None:
    net = lite.LiteNetwork()
    net.load(io.BytesIO(DATA[f"{name}/mge"].tobytes()))
    got = []
    for inputs in calls(name, "in"):
        for key in net.get_all_input_name():
            net.get_io_tensor(key, INPUT).set_data_by_copy(np.ascontiguousarray(inputs[key]))
        net.forward()
        net.wait()
        got.append({key: net.get_io_tensor(key, OUTPUT).to_numpy() for key in net.get_all_output_name()})
    check(name, got)
