"""The kernels of the GPU without one: the host's compiler builds their text, and the fake device computes with them.

Elementwise ops, casts, copies, reductions, indexing, random numbers, optimizer steps and pooling give the bits of the
CPU. The suite runs some cases of each; ``MGE_CUDA_ALL=1`` runs the whole grid of ops.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from op_case import OpCase
from test_conformance import CASES, as_float32, call, seeded

import megengine as mge
import megengine.functional as F
from megengine import Tensor
from megengine.core import _core

FAKE = "fake0"
# Refused by name on a GPU (docs/gpu-ops.md).
REFUSED = (
    "matinv",
    "svd",
    "nms",
    "complex",
    "real",
    "imag",
    "custom",
    "quantize",
    "dequantize",
    "dist_",
    "qconv",
    "qmatmul",
)
# Sums of products are added in another order, and parts are rounded where a kernel of the CPU is not.
SAME_BITS = "add sub mul exp log tanh where reduce typecvt index_get index_set index_incr concat transpose sort".split()
SOME = (
    *("add-2x3x4_1x4", "sigmoid-2x3x17", "where", "typecvt-f2i", "reduce-sum-1x2", "concat", "sort-last-up"),
    *(
        "index_get-outer",
        "index_incr-outer",
        "softmax-last",
        "layer_norm-last",
        "batch_norm_train-4d",
        "conv2d-3x3-bias",
    ),
    *("max_pool2d_bwd-3x3pad", "adam_update-wd0.01-decoupled1"),
)


@pytest.fixture(scope="module", autouse=True)
def emulated() -> Iterator[None]:
    _core.test_device()
    _core.test_cuda_kernels("c++")
    yield
    _core.test_cuda_kernels("")
    mge.set_default_device("xpux")


def wanted(case: OpCase) -> bool:
    if case.name.startswith(REFUSED) or case.name == "copy_to":
        return False
    return bool(os.environ.get("MGE_CUDA_ALL")) or case.id in SOME


CHOSEN = [c for c in CASES if wanted(c)]
assert len(CHOSEN) >= len(SOME)  # all of them are cases


@pytest.mark.parametrize("case", CHOSEN, ids=lambda c: c.id)
def test_ops_compute_what_the_cpu_does(case: OpCase) -> None:
    arrays = as_float32(seeded(case))
    want = [v.numpy() for v in call(case, [Tensor(a) for a in arrays])]
    if not arrays:
        mge.set_default_device(FAKE)
    got = [v.numpy() for v in call(case, [Tensor(a, device=FAKE) for a in arrays])]
    mge.set_default_device("xpux")
    for g, w in zip(got, want, strict=True):
        if case.name in SAME_BITS:
            np.testing.assert_array_equal(g, w)
        else:
            np.testing.assert_allclose(g, w, rtol=2e-5, atol=2e-5)


def test_random_numbers_have_the_bits_of_the_cpu() -> None:
    draws: list[list[Any]] = []
    for device in ("cpu0", FAKE):
        generator = mge.random.RNG(seed=3, device=device)
        draws.append([generator.uniform(size=(1001,)).numpy(), generator.normal(size=(1001,)).numpy()])
    for a, b in zip(*draws, strict=True):
        assert a.tobytes() == b.tobytes()


def test_a_bad_index_is_told_with_its_line() -> None:
    x, index = Tensor(np.arange(5.0, dtype=np.float32), device=FAKE), Tensor([7], dtype="int32", device=FAKE)
    with pytest.raises(RuntimeError, match=r"index 7 at position 0 is out of range.*\n.*\n.*test_cuda_kernels"):
        F.gather(x, 0, index).numpy()
