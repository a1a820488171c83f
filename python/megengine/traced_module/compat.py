"""Loaders for files of earlier versions: what was called otherwise, or meant something else, then."""

from __future__ import annotations

from typing import Any

from ..core._imperative_rt.ops import OPS
from .expr import Apply
from .node import TensorNode
from .serialization import (
    register_functional_loader,
    register_module_loader,
    register_opdef_loader,
)

__all__ = [
    "arange_func_loader",
    "bn2d_module_loader",
    "bn_func_loader",
    "bn_opdef_loader",
    "conv2d_module_loader",
    "convbn2d_module_loader",
    "deconv3d_loader",
    "deconv_loader",
    "full_func_loader",
    "linespace_loader",
    "matmul_func_loader",
    "pad_func_loader",
    "quantized_convbn2d_module_loader",
    "square_func_loader",
    "tensor_gen_func_loader",
    "topk_loader",
]

_TENSOR = "megengine.functional.tensor"
_NN = "megengine.functional.nn"


def _version(expr: Any) -> tuple[int, ...]:
    """The version that wrote an expression; empty for those before versions were noted."""
    numbers = []
    for part in str(getattr(expr, "version", "") or "").split(".")[:3]:
        digits = "".join(c for c in part if c.isdigit())
        numbers.append(int(digits) if digits else 0)
    return tuple(numbers) if getattr(expr, "version", None) else ()


def _to_keywords(expr: Any, first: int, *names: str) -> None:
    """Arguments from a place on that have since become keywords."""
    args, kwargs = expr.unflatten_args(expr.inputs)
    if len(args) > first:
        expr._replace_args(args[:first], {**dict(zip(names, args[first:])), **kwargs})


def _without(expr: Any, *names: str) -> None:
    """Drop keywords that are no more."""
    args, kwargs = expr.unflatten_args(expr.inputs)
    if any(name in kwargs for name in names):
        expr._replace_args(args, {k: v for k, v in kwargs.items() if k not in names})


def _give(module: Any, **defaults: Any) -> None:
    """Attributes that a module of then did not have."""
    for name, value in defaults.items():
        if module is not None and not hasattr(module, name):
            setattr(module, name, value)


@register_opdef_loader(OPS["BatchNorm"])
def bn_opdef_loader(expr: Any) -> None:
    """The op had no reserved space among its results."""
    assert isinstance(expr, Apply)
    if len(expr.outputs) == 5:
        node = TensorNode(expr, None, None, shape=(0,), dtype="uint8")
        expr.outputs.insert(4, node)
        if expr.top_graph is not None:
            expr.top_graph._adopt_outputs(expr)


@register_functional_loader((_TENSOR, "ones"), (_TENSOR, "zeros"))
def tensor_gen_func_loader(expr: Any) -> None:
    """dtype and device came by position."""
    _to_keywords(expr, 1, "dtype", "device")


@register_functional_loader((_NN, "pad"))
def pad_func_loader(expr: Any) -> None:
    """The widths were misspelt."""
    args, kwargs = expr.unflatten_args(expr.inputs)
    if "pad_witdth" in kwargs:
        kwargs["pad_width"] = kwargs.pop("pad_witdth")
        expr._replace_args(args, kwargs)


@register_functional_loader((_NN, "batch_norm"))
def bn_func_loader(expr: Any) -> None:
    """There was a choice of the shape of parameters."""
    _without(expr, "compute_mode", "param_dim")


@register_functional_loader(("megengine.functional.math", "matmul"), (_NN, "matmul"))
def matmul_func_loader(expr: Any) -> None:
    """There was a choice of formats."""
    args, kwargs = expr.unflatten_args(expr.inputs)
    if len(args) > 5 or "format" in kwargs:
        expr._replace_args(args[:5], {k: v for k, v in kwargs.items() if k != "format"})


@register_module_loader(
    ("megengine.module.batchnorm", "BatchNorm1d"),
    ("megengine.module.batchnorm", "BatchNorm2d"),
    ("megengine.module.batchnorm", "SyncBatchNorm"),
)
def bn2d_module_loader(expr: Any) -> None:
    """The shape of parameters was not a choice yet."""
    _give(expr.inputs[0].owner, param_dim="dim_1c11", freeze=False)


@register_module_loader(
    ("megengine.module.conv_bn", "ConvBn2d"),
    ("megengine.module.conv_bn", "ConvBnRelu2d"),
    ("megengine.module.qat.conv_bn", "ConvBn2d"),
    ("megengine.module.qat.conv_bn", "ConvBnRelu2d"),
)
def convbn2d_module_loader(expr: Any) -> None:
    """The shape of parameters was not a choice yet, nor was padding other than by zeros."""
    module = expr.inputs[0].owner
    _give(getattr(module, "bn", None), param_dim="dim_1c11", freeze=False)
    _give(getattr(module, "conv", None), padding_mode="zeros", output_padding=0)


@register_module_loader(
    ("megengine.module.conv", "Conv1d"),
    ("megengine.module.conv", "Conv2d"),
    ("megengine.module.conv", "ConvRelu2d"),
    ("megengine.module.conv", "DeformableConv2d"),
    ("megengine.module.qat.conv", "Conv2d"),
    ("megengine.module.qat.conv", "ConvRelu2d"),
    ("megengine.module.quantized.conv", "Conv2d"),
    ("megengine.module.quantized.conv", "ConvRelu2d"),
)
def conv2d_module_loader(expr: Any) -> None:
    """Padding was by zeros."""
    _give(expr.inputs[0].owner, padding_mode="zeros", output_padding=0)


@register_module_loader(
    ("megengine.module.quantized.conv_bn", "ConvBn2d"),
    ("megengine.module.quantized.conv_bn", "ConvBnRelu2d"),
)
def quantized_convbn2d_module_loader(expr: Any) -> None:
    """Padding was by zeros."""
    _give(expr.inputs[0].owner, padding_mode="zeros", output_padding=0)


@register_functional_loader(("megengine.functional.elemwise", "square"))
def square_func_loader(expr: Any) -> None:
    """Before 1.12 the square of integers was a float32."""
    node: Any = expr.inputs[0] if expr.inputs else None
    dtype = getattr(node, "dtype", None)
    if dtype is None or dtype.kind not in "iub" or _version(expr) >= (1, 12):
        return
    graph = expr.top_graph
    at = graph._exprs.index(expr)
    before = graph._exprs[at - 1] if at else None
    with graph.insert_exprs(before):
        new = node.astype("float32")
    expr.replace_inputs({node: new})
    for out in expr.outputs:
        out.dtype = new.dtype


@register_functional_loader(("megengine.functional.math", "topk"))
def topk_loader(expr: Any) -> None:
    """The smallest came first where nothing was said."""
    args, kwargs = expr.unflatten_args(expr.inputs)
    if len(args) == 2 and "descending" not in kwargs:
        expr._replace_args((*args, False), kwargs)


@register_functional_loader((_TENSOR, "arange"))
def arange_func_loader(expr: Any) -> None:
    """dtype and device came by position."""
    _to_keywords(expr, 3, "dtype", "device")


@register_functional_loader((_TENSOR, "linspace"))
def linespace_loader(expr: Any) -> None:
    """dtype and device came by position."""
    _to_keywords(expr, 3, "dtype", "device")


@register_functional_loader((_TENSOR, "full"))
def full_func_loader(expr: Any) -> None:
    """dtype and device came by position."""
    _to_keywords(expr, 2, "dtype", "device")


def _output_padding(expr: Any, length: int, names: tuple[str, ...]) -> None:
    """The function had no output_padding, which came to stand after padding."""
    args, kwargs = expr.unflatten_args(expr.inputs)
    if len(args) == length and "output_padding" not in kwargs:
        expr._replace_args((*args[:5], 0, *args[5:]), kwargs)
    elif len(args) < length and len(args) > 5 and isinstance(args[5], str):
        expr._replace_args(args[:5], {**dict(zip(names, args[5:])), **kwargs})


@register_functional_loader((_NN, "conv_transpose2d"))
def deconv_loader(expr: Any) -> None:
    """There was no output_padding."""
    _output_padding(expr, 9, ("dilation", "groups", "conv_mode", "compute_mode"))


@register_functional_loader((_NN, "conv_transpose3d"))
def deconv3d_loader(expr: Any) -> None:
    """There was no output_padding."""
    _output_padding(expr, 7, ("dilation", "groups"))


@register_module_loader(
    ("megengine.module.conv", "ConvTranspose2d"),
    ("megengine.module.conv", "ConvTranspose3d"),
    ("megengine.module.conv", "ConvTransposeRelu2d"),
)
def _deconv_module_loader(expr: Any) -> None:
    """There was no output_padding."""
    _give(expr.inputs[0].owner, output_padding=0)
