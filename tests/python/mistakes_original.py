"""Model files of MegEngine's own formats: damaged, cut short, with operators or sizes that cannot be had."""

from __future__ import annotations

import io

import numpy as np
from mistake import ROOT, mistake

import megengine as mge
import megenginelite as lite
from megengine.core import _core
from megengine.jit import trace

FOLDER = ROOT / "tests/data/original"
V1, V2 = (FOLDER / "mlp.v1.mge").read_bytes(), (FOLDER / "mlp.v2keep.mge").read_bytes()


def load(model: bytes) -> lite.LiteNetwork:
    net = lite.LiteNetwork()
    net.load(io.BytesIO(model))
    return net


@mistake(RuntimeError, "cut off", "1000 of")
def load_the_first_half_of_a_v2_file():
    load(V2[:1000])


@mistake(RuntimeError, "cut off")
def load_the_first_half_of_a_v1_file():
    load(V1[:1000])


@mistake(RuntimeError, "damaged", "does not verify")
def load_a_v2_file_that_points_behind_its_end():
    load(V2[:4] + b"\xff\xff\xff\x7f" + V2[8:])


@mistake(RuntimeError, "cannot run", "ZatrixMulV2@1 x3")
def load_a_file_of_an_operator_that_does_not_exist():
    load(V2.replace(b"MatrixMulV2", b"ZatrixMulV2"))


@mistake(NotImplementedError, "cannot hold these ops", "float64", "mistakes_original.py")
def write_float64_for_the_original():
    traced = trace(lambda x: x.astype("float64") * 2, symbolic=True, capture_as_const=True)
    traced(mge.tensor(np.ones((20, 3), "float32")))
    file = io.BytesIO()
    traced.dump(file)
    _core.to_original(file.getvalue())
