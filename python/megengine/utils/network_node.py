"""The classes of ops of a graph that is edited, by the original's names, and what one of them costs and sees.

The objects themselves, variables and ops, are made in ``_graph_objects``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.ops import builtin
from ._graph_objects import (
    ConstOpBase,
    Host2DeviceCopy,
    ImmutableTensor,
    NetworkNode,
    OpNode,
    ReadOnlyOpNode,
    SharedDeviceTensor,
    VarNode,
    _classes,
)
from .module_stats import (
    _field_of,
    _fields,
    preprocess_receptive_field,
    register_flops,
    register_receptive_field,
)

__all__ = ["ConstOpBase", "Host2DeviceCopy", "ImmutableTensor", "NetworkNode", "OpNode", "ReadOnlyOpNode"]
__all__ += ["SharedDeviceTensor", "VarNode", "IndexingBase", "RNGOpr", "flops_batchmatmul", "flops_conv"]
__all__ += ["flops_elemwise", "flops_matmul", "receptive_field", "str_to_mge_class"]


def _op(name: str, file_type: str | None, opdef: Any, base: type[OpNode] = OpNode, **members: Any) -> Any:
    """A class of ops. ``file_type`` is what its objects say of themselves."""
    doc = f"An op ``{name}`` of a graph; its parameters are those of ``builtin.{getattr(opdef, '__name__', name)}``."
    body = {"__doc__": doc, "__module__": __name__, "type": file_type, **members}
    if opdef is not None:
        body["opdef"] = opdef
    __all__.append(name)
    made = _classes[name] = type(name, (base,), body)
    return made


class IndexingBase(OpNode):
    """Ops that read or write at indices. ``params["items"]``: axis, and which of begin, end, step, index are given."""


class RNGOpr(OpNode):
    """Ops that draw random numbers."""


for _class in (ConstOpBase, Host2DeviceCopy, ImmutableTensor, SharedDeviceTensor, OpNode, IndexingBase, RNGOpr):
    _classes[_class.__name__] = _class

Elemwise = _op("Elemwise", "Elemwise", builtin.Elemwise)
ElemwiseMultiType = _op("ElemwiseMultiType", "ElemwiseMultiType", builtin.ElemwiseMultiType)
Reduce = _op("Reduce", "Reduce", builtin.Reduce)
TypeCvt = _op("TypeCvt", "TypeCvt", builtin.TypeCvt)
MatrixInverse = _op("MatrixInverse", "MatrixInverse", builtin.MatrixInverse)
MatrixMul = _op("MatrixMul", "MatrixMul", builtin.MatrixMul)
BatchedMatrixMul = _op("BatchedMatrixMul", "BatchedMatmul", builtin.BatchedMatrixMul)
Dot = _op("Dot", "Dot", builtin.Dot)
SVD = _op("SVD", "SVD", builtin.SVD)
ConvolutionForward = _op("ConvolutionForward", "Convolution", builtin.Convolution)
ConvolutionBackwardData = _op("ConvolutionBackwardData", "ConvTranspose", builtin.ConvolutionBackwardData)
DeformableConvForward = _op("DeformableConvForward", "DeformableConv", builtin.DeformableConv)
GroupLocalForward = _op("GroupLocalForward", "GroupLocal", builtin.GroupLocal)
PoolingForward = _op("PoolingForward", "Pooling", builtin.Pooling)
AdaptivePoolingForward = _op("AdaptivePoolingForward", "AdaptivePooling", builtin.AdaptivePooling)
ROIPoolingForward = _op("ROIPoolingForward", "ROIPooling", builtin.ROIPooling)
DeformablePSROIPoolingForward = _op(
    "DeformablePSROIPoolingForward", "DeformablePSROIPooling", builtin.DeformablePSROIPooling
)
ConvBiasForward = _op("ConvBiasForward", "ConvBias", builtin.ConvBias)
BatchConvBiasForward = _op("BatchConvBiasForward", "BatchConvBias", builtin.BatchConvBias)
BatchNormForward = _op("BatchNormForward", "BatchNorm", builtin.BatchNorm, output_idx=-1)
ROIAlignForward = _op("ROIAlignForward", "ROIAlign", builtin.ROIAlign)
WarpPerspectiveForward = _op("WarpPerspectiveForward", "WarpPerspective", builtin.WarpPerspective)
WarpAffineForward = _op("WarpAffineForward", "WarpAffine", builtin.WarpAffine)
RemapForward = _op("RemapForward", "Remap", builtin.Remap)
ResizeForward = _op("ResizeForward", "Resize", builtin.Resize)
IndexingOneHot = _op("IndexingOneHot", "IndexingOneHot", builtin.IndexingOneHot)
IndexingSetOneHot = _op("IndexingSetOneHot", "IndexingSetOneHot", builtin.IndexingSetOneHot)
Copy = _op("Copy", "Copy", builtin.Copy)
ArgsortForward = _op("ArgsortForward", "Argsort", builtin.Argsort)
Argmax = _op("Argmax", "Argmax", builtin.Argmax)
Argmin = _op("Argmin", "Argmin", builtin.Argmin)
CondTake = _op("CondTake", "CondTake", builtin.CondTake)
TopK = _op("TopK", "TopK", builtin.TopK)
NvOf = _op("NvOf", "NvOf", builtin.NvOf)
Linspace = _op("Linspace", "Linspace", builtin.Linspace)
Eye = _op("Eye", "Eye", builtin.Eye)
GetVarShape = _op("GetVarShape", "GetVarShape", builtin.GetVarShape)
Concat = _op("Concat", "Concat", builtin.Concat)
Broadcast = _op("Broadcast", "Broadcast", builtin.Broadcast)
Identity = _op("Identity", "Identity", builtin.Identity)
NMSKeep = _op("NMSKeep", "NMSKeep", builtin.NMSKeep)
Dimshuffle = _op("Dimshuffle", "Dimshuffle", builtin.Dimshuffle)
Reshape = _op("Reshape", "Reshape", builtin.Reshape)
AxisAddRemove = _op("AxisAddRemove", "AxisAddRemove", None)
AssertEqual = _op("AssertEqual", "AssertEqual", builtin.AssertEqual)
CvtColorForward = _op("CvtColorForward", "CvtColor", builtin.CvtColor)
Subtensor = _op("Subtensor", "Subtensor", builtin.Subtensor, IndexingBase)
SetSubtensor = _op("SetSubtensor", "SetSubtensor", builtin.SetSubtensor, IndexingBase)
IncrSubtensor = _op("IncrSubtensor", "IncrSubtensor", builtin.IncrSubtensor, IndexingBase)
IndexingMultiAxisVec = _op("IndexingMultiAxisVec", "IndexingMultiAxisVec", builtin.IndexingMultiAxisVec, IndexingBase)
IndexingSetMultiAxisVec = _op(
    "IndexingSetMultiAxisVec", "IndexingSetMultiAxisVec", builtin.IndexingSetMultiAxisVec, IndexingBase
)
IndexingIncrMultiAxisVec = _op(
    "IndexingIncrMultiAxisVec", "IndexingIncrMultiAxisVec", builtin.IndexingIncrMultiAxisVec, IndexingBase
)
MeshIndexing = _op("MeshIndexing", "MeshIndexing", builtin.MeshIndexing, IndexingBase)
SetMeshIndexing = _op("SetMeshIndexing", "SetMeshIndexing", builtin.SetMeshIndexing, IndexingBase)
IncrMeshIndexing = _op("IncrMeshIndexing", "IncrMeshIndexing", builtin.IncrMeshIndexing, IndexingBase)
BatchedMeshIndexing = _op("BatchedMeshIndexing", "BatchedMeshIndexing", builtin.BatchedMeshIndexing, IndexingBase)
BatchedSetMeshIndexing = _op(
    "BatchedSetMeshIndexing", "BatchedSetMeshIndexing", builtin.BatchedSetMeshIndexing, IndexingBase
)
BatchedIncrMeshIndexing = _op(
    "BatchedIncrMeshIndexing", "BatchedIncrMeshIndexing", builtin.BatchedIncrMeshIndexing, IndexingBase
)


def str_to_mge_class(classname: str) -> type[OpNode]:
    """The class of ops with a name; ReadOnlyOpNode for names that have none.

    >>> from megengine.utils.network_node import str_to_mge_class
    >>> str_to_mge_class("Elemwise").__name__, str_to_mge_class("Softplus").__name__
    ('Elemwise', 'ReadOnlyOpNode')
    """
    return _classes.get(classname, ReadOnlyOpNode)


def _sizes(v: VarNode) -> tuple[int, ...]:
    return v.partial_shape if isinstance(v, VarNode) else tuple(v.shape)


@register_flops(Elemwise)
def flops_elemwise(opnode: OpNode, inputs: Sequence[VarNode], outputs: Sequence[VarNode]) -> float:
    """One operation per element of the result."""
    return float(np.prod(_sizes(outputs[0])))


@register_flops(MatrixMul)
def flops_matmul(opnode: OpNode, inputs: Sequence[VarNode], outputs: Sequence[VarNode]) -> float:
    """One multiply-add per element of the result and summed element."""
    a = _sizes(inputs[0])
    return float(np.prod(_sizes(outputs[0])) * a[-2 if opnode.params.get("transposeA") and len(a) > 1 else -1])


@register_flops(BatchedMatrixMul)
def flops_batchmatmul(opnode: OpNode, inputs: Sequence[VarNode], outputs: Sequence[VarNode]) -> float:
    """The same for each of a batch of products."""
    return float(flops_matmul(opnode, inputs, outputs))


@register_flops(ConvolutionForward, ConvBiasForward)
def flops_conv(opnode: OpNode, inputs: Sequence[VarNode], outputs: Sequence[VarNode]) -> float:
    """Multiply-adds of a window per element of the result, and one for the bias of a ConvBias."""
    *_, channels, kh, kw = _sizes(inputs[1])
    bias = 1 if isinstance(opnode, ConvBiasForward) and len(inputs) > 2 else 0
    return float(np.prod(_sizes(outputs[0])) * (channels * kh * kw + bias))


@register_receptive_field(ConvolutionForward, PoolingForward, ConvBiasForward)
def receptive_field(opnode: OpNode, inputs: Sequence[VarNode], outputs: Sequence[VarNode]) -> Any:
    """How far an element of the result sees in the image, and the step between two of them."""
    preprocess_receptive_field(opnode, inputs, outputs)
    field, jump = _field_of(inputs[0])
    p = opnode.params
    kernel = (p["window_h"], p["window_w"]) if isinstance(opnode, PoolingForward) else _sizes(inputs[1])[-2:]
    dilate = (p.get("dilate_h", 1), p.get("dilate_w", 1))
    field = tuple(r + (k - 1) * d * j for r, k, d, j in zip(field, kernel, dilate, jump))
    jump = tuple(j * s for j, s in zip(jump, (p["stride_h"], p["stride_w"])))
    for v in outputs:
        _fields[id(v)] = (v, field, jump)
    return field, jump
