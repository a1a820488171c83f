"""What the engine's ops are called in the original's graphs: the type of each, and its parameters by their names there.

One row per op. An op that the original does not have is known by its own name in capitals (``Softplus``), with its own
attributes as parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import _core

__all__ = ["named"]

Attrs = dict[str, Any]
Shapes = Sequence[tuple[int, ...]]
Row = tuple[str, Callable[[Attrs, Shapes], dict[str, Any]]]

#: Of elementwise ops whose mode is not the name in capitals.
_MODES = {
    "neg": "NEGATE",
    "div": "TRUE_DIV",
    "maximum": "MAX",
    "minimum": "MIN",
    "le": "LEQ",
    "ne": "NEQ",
    "left_shift": "SHL",
    "right_shift": "SHR",
    "logical_not": "NOT",
    "logical_and": "AND",
    "logical_or": "OR",
    "logical_xor": "XOR",
    "hswish": "H_SWISH",
    "hswish_grad": "H_SWISH_GRAD",
    "logaddexp": "LOG_SUM_EXP",
}


def _window(prefix: str, values: Sequence[int]) -> dict[str, int]:
    names = ("d", "h", "w")[-len(values) :]
    return {f"{prefix}_{n}": int(v) for n, v in zip(names, values)}


def _conv(a: Attrs, shapes: Shapes) -> dict[str, Any]:
    three = len(a["stride"]) == 3
    return {
        "mode": "CROSS_CORRELATION",
        **_window("pad", a["pad"]),
        **_window("stride", a["stride"]),
        **_window("dilate", a["dilate"]),
        "sparse": "GROUP" if a["groups"] > 1 else "DENSE",
        "format": "NCDHW" if three else "NCHW",
        **({"data_type": "FLOAT"} if three else {"compute_mode": "DEFAULT"}),
    }


def _pool(mode: str) -> Callable[[Attrs, Shapes], dict[str, Any]]:
    def params(a: Attrs, shapes: Shapes) -> dict[str, Any]:
        average = "AVERAGE" if a.get("include_pad") else "AVERAGE_COUNT_EXCLUDE_PADDING"
        return {
            "mode": mode or average,
            **_window("pad", a["pad"]),
            **_window("stride", a["stride"] or a["kernel"]),
            **_window("window", a["kernel"]),
            "format": "NCHW",
        }

    return params


def _matmul(a: Attrs, shapes: Shapes) -> dict[str, Any]:
    params = {"transposeA": a["ta"], "transposeB": a["tb"], "compute_mode": "DEFAULT", "format": "DEFAULT"}
    if len(shapes[0]) <= 2:
        params.update(dimA=len(shapes[0]), dimB=len(shapes[1]))
    return params


def _reduce(a: Attrs, shapes: Shapes) -> dict[str, Any]:
    axes = [axis % max(len(shapes[0]), 1) for axis in a["axes"]]
    modes = {"sum": "SUM", "mean": "MEAN", "max": "MAX", "min": "MIN", "prod": "PRODUCT", "sum_sqr": "SUM_SQR"}
    return {
        "mode": modes.get(a["mode"], a["mode"].upper()),
        "axis": axes[0] if len(axes) == 1 else axes or 2147483647,
        "data_type": "DEFAULT",
        "keepdim": a["keepdims"],
    }


def _axis(a: Attrs, shapes: Shapes) -> dict[str, Any]:
    return {"axis": a["axis"]}


def _axes(a: Attrs, shapes: Shapes) -> dict[str, Any]:
    return {"axis": list(a["axes"])}


def _shape(a: Attrs, shapes: Shapes) -> dict[str, Any]:
    return {"shape": list(a["shape"])}


def _items(a: Attrs, shapes: Shapes) -> dict[str, Any]:
    """Rows of the original: axis, and whether begin, end, step and a single index are given."""
    items = []
    for axis, step in zip(a["axes"], a["steps"]):
        single = a.get("python") and step == 0
        items.append([axis, not single, not single, not single, bool(single)])
    return {"items": items, **{k: list(a[k]) for k in ("starts", "stops", "steps")}}


def _vectors(a: Attrs, shapes: Shapes) -> dict[str, Any]:
    axes = a["axes"] if "axes" in a else (a["axis"],)
    return {"items": [[axis, False, False, False, True] for axis in axes]}


def _as_it_is(a: Attrs, shapes: Shapes) -> dict[str, Any]:
    return dict(a)


def _nothing(a: Attrs, shapes: Shapes) -> dict[str, Any]:
    return {}


_ROWS: dict[str, Row] = {
    "typecvt": ("TypeCvt", lambda a, s: {"dtype": np.dtype(a["dtype"]) if isinstance(a["dtype"], str) else a["dtype"]}),
    "quantize": ("TypeCvt", lambda a, s: {"dtype": a["type"]}),
    "dequantize": ("TypeCvt", lambda a, s: {"dtype": np.dtype("float32")}),
    "conv2d": ("ConvolutionForward", _conv),
    "conv3d": ("Convolution3DForward", _conv),
    "conv2d_dx": ("ConvolutionBackwardData", lambda a, s: {**_conv(a, s), "dtype": np.dtype("float32")}),
    "conv3d_dx": ("Convolution3DBackwardData", _conv),
    "conv2d_dw": ("ConvolutionBackwardFilter", _conv),
    "qconv2d": ("ConvBiasForward", lambda a, s: {**_conv(a, s), "nonlineMode": a["act"].upper(), "dtype": a["type"]}),
    "qconv2d_dx": ("ConvolutionBackwardData", lambda a, s: {**_conv(a, s), "dtype": a["type"]}),
    "conv2d_fused": ("ConvBiasForward", lambda a, s: {**_conv(a, s), "nonlineMode": a["act"].upper()}),
    "max_pool2d": ("PoolingForward", _pool("MAX")),
    "avg_pool2d": ("PoolingForward", _pool("")),
    "matmul": ("MatrixMul", _matmul),
    "qmatmul": ("MatrixMul", _matmul),
    "batch_norm_infer": (
        "BatchNormForward",
        lambda a, s: {
            "param_dim": "DIM_1C11",
            "fwd_mode": "INFERENCE",
            "epsilon": a["eps"],
            "avg_factor": 1.0,
            "scale": 1.0,
            "bias": 0.0,
        },
    ),
    "batch_norm_train": (
        "BatchNormForward",
        lambda a, s: {"param_dim": "DIM_1C11", "fwd_mode": "TRAINING", "epsilon": a["eps"]},
    ),
    "layer_norm": ("LayerNormForward", lambda a, s: {"eps": a["eps"], "affine": len(s) > 1, "n_axes": a["n_axes"]}),
    "softmax": ("SoftmaxForward", _axis),
    "reduce": ("Reduce", _reduce),
    "argmax": ("Argmax", _axis),
    "argmin": ("Argmin", _axis),
    "cumsum": ("CumsumForward", _as_it_is),
    "sort": ("ArgsortForward", lambda a, s: {"order": "DESCENDING" if a["descending"] else "ASCENDING"}),
    "topk": ("TopK", lambda a, s: {"mode": "VALUE_IDX_SORTED" if a["sorted"] else "VALUE_IDX_NOSORT", "k": a["k"]}),
    "nonzero": ("CondTake", _nothing),
    "reshape": ("Reshape", _shape),
    "flatten": ("Reshape", _as_it_is),
    "broadcast_to": ("Broadcast", _shape),
    "transpose": ("Dimshuffle", lambda a, s: {"pattern": list(a["perm"])}),
    "expand_dims": ("AxisAddRemove", _axes),
    "squeeze": ("AxisAddRemove", _axes),
    "concat": ("Concat", _axis),
    "slice": ("Subtensor", _items),
    "set_slice": ("SetSubtensor", _items),
    "take": ("IndexingMultiAxisVec", _vectors),
    "index_get": ("IndexingMultiAxisVec", _vectors),
    "index_set": ("IndexingSetMultiAxisVec", _vectors),
    "index_incr": ("IndexingIncrMultiAxisVec", _vectors),
    "indexing_one_hot": ("IndexingOneHot", _axis),
    "set_one_hot": ("IndexingSetOneHot", _axis),
    "shape_of": ("GetVarShape", _nothing),
    "full": ("Broadcast", _as_it_is),
    "fill_like": ("Broadcast", _as_it_is),
    "eye": ("Eye", lambda a, s: {"k": a["k"], "dtype": np.dtype(a["dtype"])}),
    "copy": ("Identity", _nothing),
    "copy_to": ("Copy", lambda a, s: {"comp_node": a["device"]}),
    "matinv": ("MatrixInverse", _nothing),
    "svd": ("SVD", lambda a, s: {"full_matrices": a["full_matrices"], "compute_uv": True}),
    "resize": (
        "ResizeForward",
        lambda a, s: {"imode": a["mode"].upper(), "format": "NCHW", "size": list(a["size"])},
    ),
    "remap": (
        "RemapForward",
        lambda a, s: {
            "imode": "NEAREST" if a["nearest"] else "LINEAR",
            "border_type": a["border"].upper(),
            "format": "NCHW",
            "scalar": a["value"],
        },
    ),
    "roi_pooling": ("ROIPoolingForward", lambda a, s: {"mode": "MAX" if a["max"] else "AVERAGE", "scale": a["scale"]}),
    "roi_align": (
        "ROIAlignForward",
        lambda a, s: {
            "mode": "MAX" if a["max"] else "AVERAGE",
            "format": "NCHW",
            "spatial_scale": a["scale"],
            "offset": 0.5 if a["aligned"] else 0.0,
            "pooled_height": a["size"][0],
            "pooled_width": a["size"][1],
            "sample_height": a["samples"][0],
            "sample_width": a["samples"][1],
        },
    ),
    "nms": ("NMSKeep", lambda a, s: {"iou_thresh": a["iou_thresh"], "max_output": a["max_output"]}),
    "rng_uniform": ("UniformRNG", _as_it_is),
    "rng_normal": ("GaussianRNG", _as_it_is),
    "rng_gamma": ("GammaRNG", _as_it_is),
    "rng_poisson": ("PoissonRNG", _as_it_is),
    "rng_permutation": ("PermutationRNG", _as_it_is),
    "rng_multinomial": ("MultinomialRNG", _as_it_is),
    "dropout": ("DropoutForward", _as_it_is),
    "fake_quant": ("FakeQuantForward", _as_it_is),
    "tqt": ("TQTForward", _as_it_is),
    "lsq": ("LSQForward", _as_it_is),
    "ctc_loss": ("CTCLoss", _as_it_is),
    "custom": ("CustomOpr", _as_it_is),
}


def _elementwise() -> set[str]:
    found = set()
    for op in _core.op_names():
        if "elementwise" in _core.op_info(op)["traits"] and op not in _ROWS:
            found.add(op)
    return found


_ELEMENTWISE = _elementwise()


def named(op: str, attrs: Attrs, shapes: Shapes) -> tuple[str, dict[str, Any]]:
    """The type and the parameters of an op of the engine.

    >>> from megengine.core.tensor._graph_types import named
    >>> named("add", {}, [(2,), (2,)])
    ('Elemwise', {'mode': 'ADD'})
    """
    if op in _ELEMENTWISE:
        return "Elemwise", {"mode": _MODES.get(op, op.upper())}
    if op == "matmul" and max(len(s) for s in shapes[:2]) > 2:
        return "BatchedMatrixMul", _matmul(attrs, shapes)
    row = _ROWS.get(op)
    if row is None:
        return "".join(part.capitalize() for part in op.split("_")), dict(attrs)
    return row[0], row[1](attrs, shapes)
