"""Every op class with a rule, traced ``without_host`` against eager: rules emit ops, so a replay computes them anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import megengine as mge
from megengine import tensor
from megengine.autodiff import GradManager
from megengine.core._core import TraceError, op_class_info
from megengine.core._imperative_rt import ops as rt
from megengine.core._imperative_rt.core2 import Const, apply
from megengine.core._imperative_rt.ops import OPS
from megengine.core.ops import builtin
from megengine.jit import trace


def f32(*shape: int) -> np.ndarray:
    return np.random.RandomState(sum(shape) + len(shape)).uniform(-1, 1, shape).astype("float32")


class Fixed:
    """An operand that says sizes or positions: a constant of the trace."""

    def __init__(self, *values: int, scalar: bool = False) -> None:
        self.value = np.array(values[0] if scalar else values, "int32")


def at(i: int) -> Fixed:
    return Fixed(i, scalar=True)


IMAGE = f32(2, 3, 6, 6)
NHWC = f32(2, 6, 6, 3)
MASK = f32(3, 4) > 0
STAT = np.abs(f32(1, 3, 1, 1)) + 0.5
ROIS = np.float32([[0, 0.5, 0, 4, 4.5], [1, 1, 1, 3, 5]])
MATS = np.float32([[[1, 0.1, 0.5], [0, 0.9, 0.2], [0.01, 0.02, 1]], [[0.8, 0, 0.5], [0.1, 1, 0.2], [0, 0.02, 1]]])
REGION = (np.random.RandomState(0).uniform(size=(2, 6, 6)) > 0.5).astype("int32")
ITEMS = [(0, True, True, False, False), (1, False, False, False, True)]
VEC = [(0, False, False, False, True)]
BATCH_VEC = [(1, False, False, False, True)]
INDEX = np.array([2, 0, 2], "int32")
ROW_INDEX = np.array([[0, 1], [2, 3], [1, 1]], "int32")
PAD: dict[str, Any] = {"pad_h": 1, "pad_w": 1}
GROUPED = {**PAD, "sparse": "GROUP"}
CELL = (f32(3, 4), f32(8, 4), f32(8), f32(3, 2), f32(8, 2), f32(8))
SPREAD = np.random.RandomState(0).permutation(12).reshape(3, 4).astype("float32")
BOXES = np.float32([[[0, 0, 4, 4], [0, 0, 4, 3.9], [5, 5, 9, 9]]])

#: Class: parameters and inputs.
CASES: dict[str, tuple[dict[str, Any], tuple[Any, ...]]] = {
    "Elemwise": ({"mode": "FUSE_MUL_ADD3"}, (f32(3, 4), f32(3, 4), f32(4))),
    "ElemwiseMultiType": ({"mode": "LT"}, (f32(3, 4), f32(4))),
    "Reduce": ({"mode": "MEAN", "axis": 1}, (f32(3, 4),)),
    "TypeCvt": ({"dtype": "int32"}, (f32(3, 4) * 9,)),
    "MatrixInverse": ({}, (f32(3, 3) + 3 * np.eye(3, dtype="float32"),)),
    "MatrixMul": ({"transposeB": True}, (f32(3, 4), f32(5, 4))),
    "BatchedMatrixMul": ({}, (f32(2, 3, 4), f32(2, 4, 5))),
    "Dot": ({}, (f32(4), f32(4)[::-1].copy())),
    "SVD": ({}, (f32(3, 4),)),
    "Convolution": (PAD, (IMAGE, f32(4, 3, 3, 3))),
    "ConvolutionBackwardData": (PAD, (f32(4, 3, 3, 3), f32(2, 4, 6, 6))),
    "Convolution3D": ({}, (f32(1, 2, 4, 4, 4), f32(3, 2, 2, 2, 2))),
    "Convolution3DBackwardData": ({}, (f32(3, 2, 2, 2, 2), f32(1, 3, 3, 3, 3))),
    "DeformableConv": (PAD, (IMAGE, f32(4, 3, 3, 3), f32(2, 18, 6, 6), f32(2, 9, 6, 6))),
    "GroupLocal": ({}, (IMAGE, f32(1, 5, 5, 3, 2, 2, 4))),
    "RegionRestrictedConvolution": (GROUPED, (IMAGE, f32(3, 1, 1, 3, 3), REGION, REGION)),
    "RegionRestrictedConvolutionBackwardData": (GROUPED, (f32(3, 1, 1, 3, 3), IMAGE, REGION, REGION)),
    "ConvBias": ({**PAD, "nonlineMode": "H_SWISH"}, (IMAGE, f32(4, 3, 3, 3), f32(1, 4, 1, 1))),
    "BatchConvBias": ({**PAD, "nonlineMode": "SIGMOID"}, (IMAGE, f32(2, 4, 3, 3, 3), f32(1, 4, 1, 1))),
    "Pooling": ({"mode": "AVERAGE", **PAD, "window_h": 3, "window_w": 3}, (IMAGE,)),
    "AdaptivePooling": ({"mode": "AVERAGE"}, (IMAGE, Fixed(2, 3))),
    "ROIPooling": ({"mode": "AVERAGE"}, (IMAGE, ROIS, Fixed(2, 3))),
    "ROIAlign": ({"mode": "AVERAGE", "pooled_height": 2, "pooled_width": 2, "offset": 0.25}, (IMAGE, ROIS)),
    "DeformablePSROIPooling": (
        {"no_trans": False, "trans_std": 0.1, "pooled_h": 2, "pooled_w": 2, "part_size": 2, "sample_per_part": 2},
        (IMAGE, ROIS, f32(2, 2, 2, 2)),
    ),
    "Images2Neibs": (PAD, (IMAGE,)),
    "SlidingWindowTranspose": ({"out_h": 6, "out_w": 6, **PAD}, (f32(2, 3, 6, 6, 3, 3),)),
    "BatchNorm": ({"param_dim": "DIM_1C11", "avg_factor": 0.1}, (IMAGE, STAT, STAT, STAT, STAT)),
    "BatchNormBackward": ({"param_dim": "DIM_1C11"}, (IMAGE, IMAGE[::-1].copy(), STAT, STAT, STAT)),
    "LayerNorm": ({"normalized_dim": 1, "normalized_size": 4}, (f32(3, 4), f32(4), f32(4))),
    "GroupNorm": ({"group": 3}, (IMAGE, f32(3), f32(3))),
    "InstanceNorm": ({}, (IMAGE, f32(3), f32(3))),
    "GeneralNorm": ({"axis_start": 1, "axis_end": 2}, (IMAGE, f32(3), f32(3))),
    "LRN": ({"n": 3}, (IMAGE,)),
    "Softmax": ({"axis": 0}, (f32(3, 4),)),
    "Dropout": ({"drop_prob": 0.5}, (f32(30, 4),)),
    "Correlation": ({"kernel_size": 3, "max_displacement": 1, "pad_size": 2}, (IMAGE, IMAGE[::-1].copy())),
    "WarpPerspective": ({"bmode": "CONSTANT", "border_val": 2.0}, (IMAGE, MATS, Fixed(4, 3))),
    "WarpPerspectiveBackwardData": ({}, (MATS, f32(2, 3, 4, 3), IMAGE)),
    "WarpPerspectiveBackwardMat": ({}, (IMAGE, MATS, f32(2, 3, 4, 3))),
    "WarpAffine": ({}, (NHWC, MATS[:, :2], Fixed(4, 3))),
    "Remap": ({"format": "NCHW"}, (IMAGE, np.abs(f32(2, 4, 3, 2)) * 4)),
    "Resize": ({}, (NHWC, Fixed(4, 9))),
    "Resize3D": ({"format": "NCDHW"}, (f32(1, 2, 3, 3, 3), Fixed(4, 5, 6))),
    "Rotate": ({}, (NHWC,)),
    "Flip": ({"vertical": True, "horizontal": True}, (NHWC,)),
    "GaussianBlur": ({"kernel_height": 3, "kernel_width": 5}, (NHWC,)),
    "CvtColor": ({"mode": "RGB2YUV"}, (NHWC,)),
    "NMSKeep": ({"iou_thresh": 0.5, "max_output": 3}, (BOXES,)),
    "IndexingOneHot": ({"axis": 1}, (f32(3, 4), INDEX)),
    "IndexingSetOneHot": ({"axis": 1}, (f32(3, 4), INDEX, f32(3, 1))),
    "Argsort": ({"order": "DESCENDING"}, (SPREAD,)),
    "Argmax": ({"axis": 1}, (f32(3, 4),)),
    "Argmin": ({"axis": 0}, (f32(3, 4),)),
    "TopK": ({"mode": "VALUE_IDX_SORTED"}, (SPREAD, at(-2))),
    "CondTake": ({}, (f32(3, 4), MASK)),
    "NonZero": ({}, (MASK,)),
    "Cumsum": ({"axis": 1, "reverse": True}, (f32(3, 4),)),
    "Fill": ({"value": 2.5, "dtype": "float32"}, (Fixed(2, 3),)),
    "FillLike": ({"value": 2.5}, (f32(3, 4),)),
    "MaskedFill": ({"value": 2.5}, (f32(3, 4), MASK)),
    "Where": ({}, (MASK, f32(3, 4), f32(4, 3).T.copy())),
    "WhereBackward": ({}, (f32(3, 4), MASK)),
    "Linspace": ({"endpoint": False}, (at(0), at(3), at(5))),
    "Eye": ({"k": 1}, (Fixed(3, 4),)),
    "Diag": ({"k": -1}, (f32(4),)),
    "Cross": ({}, (f32(2, 3), f32(2, 3)[::-1].copy())),
    "MeshGrid": ({}, (f32(3), f32(4))),
    "GetVarShape": ({}, (f32(3, 4),)),
    "Concat": ({"axis": 1}, (f32(3, 4), f32(3, 2))),
    "Stack": ({"axis": 1}, (f32(3, 4), f32(3, 4))),
    "Split": ({"axis": 1}, (f32(3, 4), at(1), at(3))),
    "Broadcast": ({}, (f32(1, 4), Fixed(3, 4))),
    "Reshape": ({"axis": 1}, (f32(3, 4), Fixed(2, 1))),
    "Dimshuffle": ({"pattern": [1, -1, 0]}, (f32(3, 4),)),
    "AddAxis": ({"axis": [0, 2]}, (f32(3, 4),)),
    "RemoveAxis": ({"axis": [0]}, (f32(1, 4),)),
    "Subtensor": ({"items": ITEMS}, (f32(3, 4), at(1), at(3), at(2))),
    "SetSubtensor": ({"items": ITEMS}, (f32(3, 4), f32(2), at(1), at(3), at(2))),
    "IncrSubtensor": ({"items": ITEMS}, (f32(3, 4), f32(2), at(1), at(3), at(2))),
    "IndexingMultiAxisVec": ({"items": VEC}, (f32(3, 4), INDEX)),
    "IndexingSetMultiAxisVec": ({"items": VEC}, (f32(3, 4), f32(3, 4), INDEX)),
    "IndexingIncrMultiAxisVec": ({"items": VEC}, (f32(3, 4), f32(3, 4), INDEX)),
    "MeshIndexing": ({"items": VEC}, (f32(3, 4), INDEX)),
    "SetMeshIndexing": ({"items": VEC}, (f32(3, 4), f32(2, 4), INDEX[:2].copy())),
    "IncrMeshIndexing": ({"items": VEC}, (f32(3, 4), f32(3, 4), INDEX)),
    "BatchedMeshIndexing": ({"items": BATCH_VEC}, (f32(3, 4), ROW_INDEX)),
    "BatchedSetMeshIndexing": ({"items": BATCH_VEC}, (f32(3, 4), f32(3, 2), ROW_INDEX)),
    "BatchedIncrMeshIndexing": ({"items": BATCH_VEC}, (f32(3, 4), f32(3, 2), ROW_INDEX)),
    "Padding": ({"front_offset_dim0": 1, "back_offset_dim1": 2, "padding_mode": "REFLECT"}, (f32(3, 4),)),
    "PixelShuffle": ({"factor": 2}, (f32(1, 4, 2, 3),)),
    "PixelShuffleBackward": ({"factor": 2}, (f32(1, 1, 4, 6),)),
    "Identity": ({}, (f32(3, 4),)),
    "FastpathCopy": ({}, (f32(3, 4),)),
    "Copy": ({"comp_node": "cpu0:1"}, (f32(3, 4),)),
    "Borrow": ({"comp_node": "xpux"}, (f32(3, 4),)),
    "Barrier": ({"nr_outputs": 2}, (f32(3, 4),)),
    "UniformRNG": ({}, (Fixed(3, 4),)),
    "GaussianRNG": ({"mean": 2.0}, (Fixed(3, 4),)),
    "GammaRNG": ({}, (np.abs(f32(3, 4)) + 1, np.abs(f32(3, 4)) + 1)),
    "BetaRNG": ({}, (np.abs(f32(3, 4)) + 1, np.abs(f32(3, 4)) + 1)),
    "PoissonRNG": ({}, (np.abs(f32(3, 4)) * 9,)),
    "ExponentialRNG": ({}, (np.abs(f32(3, 4)) + 1,)),
    "MultinomialRNG": ({"num_samples": 2}, (np.abs(f32(3, 4)),)),
    "PermutationRNG": ({"dtype": "int32"}, (at(7),)),
    "ShuffleRNG": ({}, (f32(5, 2),)),
    "ParamPackSplit": ({"offsets": [0, 4, 4, 12], "shapes": [(2, 2), (8,)]}, (f32(12),)),
    "ParamPackConcat": ({"offsets": [0, 4, 8, 12]}, (f32(2, 2), f32(4), Fixed(0, 4, 8, 12))),
    "CheckNonFinite": ({"scale": 2.0}, (f32(3, 4), f32(2))),
    "AssertEqual": ({}, (f32(3, 4), f32(3, 4))),
    "InplaceAdd": ({}, (f32(3, 4), f32(3, 4), np.float32(2), np.float32(3))),
    "LAMBUpdate": (
        {"beta_1": 0.9, "beta_2": 0.99, "step": 3.0, "lr": 0.1, "weight_decay": 0.01, "eps": 1e-6},
        (f32(7), np.abs(f32(7)), f32(7)[::-1].copy(), f32(7)),
    ),
    "FakeQuant": ({"qmin": -4, "qmax": 4}, (f32(3, 4), np.float32([[0.1], [0.2], [0.3]]), np.float32(1))),
    "TQT": ({"qmin": -4, "qmax": 4}, (f32(3, 4), np.float32(-2))),
    "LSQ": ({"qmin": -4, "qmax": 4}, (f32(3, 4), np.float32(0.25), np.float32(0), np.float32(0.1))),
    "RNNCell": ({"nonlineMode": "TANH"}, (CELL[0], CELL[1][:2], CELL[2][:2], CELL[3], CELL[4][:2], CELL[5][:2])),
    "LSTMCell": ({}, (*CELL, f32(3, 2))),
    "RNN": ({"hidden_size": 2, "nonlineMode": "RELU", "bias": False}, (f32(5, 3, 4), f32(1, 3, 2), f32(12))),
    "LSTM": (
        {"hidden_size": 2, "num_layers": 2, "bidirectional": True},
        (f32(5, 3, 4), f32(4, 3, 2), f32(4, 3, 2), f32(2 * (8 * 6 + 16) + 2 * (8 * 6 + 16))),
    ),
    "MultiHeadAttn": (
        {"num_heads": 2, "embeding_size": 8, "qproj_size": 8, "kproj_size": 8, "vproj_size": 8, "oproj_size": 8,
         "attn_mask_type": "DEFAULT_MASK"},
        (f32(2, 3, 8), f32(2, 3, 8), f32(2, 3, 8), f32(256)),
    ),
}  # fmt: skip


def test_every_class_with_a_rule_has_a_case() -> None:
    assert {name for name in OPS if not op_class_info(name)["absent"]} == set(CASES)


def operands(inputs: tuple[Any, ...], given: tuple[Any, ...]) -> list[Any]:
    rest = iter(given)
    return [Const(v.value) if isinstance(v, Fixed) else next(rest) for v in inputs]


#: Classes that look at values, which a call that is replayed without Python cannot.
READS_VALUES = {"AssertEqual"}


@pytest.mark.parametrize("name", CASES)
def test_traced_without_host_is_eager(name: str) -> None:
    params, inputs = CASES[name]
    data = [v for v in inputs if not isinstance(v, Fixed)]
    random = "handle" in OPS[name]._fields
    handles = [rt.new_rng_handle(mge.get_default_device(), 7) for _ in range(2)] if random else [0, 0]
    first, second = (OPS[name](**params, **({"handle": h} if random else {})) for h in handles)

    @trace(symbolic=True, without_host=True)
    def traced(*given):
        return apply(second, *operands(inputs, given))

    def fed(call: int) -> list[mge.Tensor]:
        # Other numbers on each call, so that a result frozen at the first one shows.
        grow = 1 + 0.125 * call
        return [tensor(np.float32(v * grow) if np.asarray(v).dtype == np.float32 else v) for v in data]

    if name in READS_VALUES:
        with pytest.raises(TraceError, match="data unreadable"):
            traced(*fed(0))
        return
    for call in range(3):
        want = apply(first, *operands(inputs, tuple(fed(call))))
        got = traced(*fed(call))
        assert len(got) == len(want)
        for a, b in zip(got, want):
            np.testing.assert_array_equal(a.numpy(), b.numpy())


#: Classes whose first floating input has no gradient by what they are, that update in place, or check.
NO_GRADIENT = {
    *("ElemwiseMultiType", "TypeCvt", "FillLike", "Argmax", "Argmin", "GetVarShape", "Barrier", "CondTake"),
    *("InplaceAdd", "LAMBUpdate", "NMSKeep", "AssertEqual"),
    *("FakeQuant", "TQT", "LSQ"),  # by definition not the slope of a staircase
    "WarpPerspectiveBackwardMat",  # remap_dmap is of first order only
}


@pytest.mark.parametrize("name", sorted(set(CASES) - NO_GRADIENT))
def test_rules_are_differentiable(name: str) -> None:
    """The gradient in the first floating input against differences."""
    params, inputs = CASES[name]
    where = [i for i, v in enumerate(inputs) if not isinstance(v, Fixed) and np.asarray(v).dtype == np.float32]
    if not where or "handle" in OPS[name]._fields:
        return
    i, op = where[0], OPS[name](**params)
    arrays = [v.value if isinstance(v, Fixed) else v for v in inputs]
    x = tensor(arrays[i])

    def run(v: mge.Tensor) -> mge.Tensor:
        args = [v if j == i else Const(a) if isinstance(inputs[j], Fixed) else tensor(a) for j, a in enumerate(arrays)]
        outs = [y for y in apply(op, *args) if y is not None and y.dtype == np.float32 and y.size]
        total: Any = 0.0
        for k, y in enumerate(outs):
            weights = np.cos(np.arange(y.size, dtype="float32") + k).reshape(y.shape)
            total = total + (y * tensor(weights, device=y.device)).sum().to(v.device)
        return total

    gm = GradManager().attach([x])
    with gm:
        gm.backward(run(x))
    assert x.grad is not None
    direction = np.cos(3 * np.arange(arrays[i].size)).reshape(arrays[i].shape).astype("float32")
    eps = np.float32(1e-2)
    ahead, behind = (float(run(tensor(arrays[i] + s * eps * direction)).item()) for s in (1, -1))
    got = float((x.grad.numpy().astype("float64") * direction).sum())
    np.testing.assert_allclose(got, (ahead - behind) / (2 * eps), rtol=5e-2, atol=2e-2)


def test_attributes_of_classes_are_made_when_asked_for() -> None:
    assert builtin.Convolution is OPS["Convolution"] is rt.Convolution
    assert set(dir(builtin)) >= set(OPS)
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        builtin.Nonsense  # noqa: B018
    assert op_class_info("Convolution")["files"] == [("ConvolutionV2", 1), ("Convolution", 2)]
