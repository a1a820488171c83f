"""The original's op classes, as programs construct them for ``apply``. ``lower.py`` runs them with the engine's ops."""

from __future__ import annotations

from typing import Any

from .opdef import OpDef, OpEnum, define_enum, define_op

_INT_MAX = 2**31 - 1
_INVALID_AXIS = 7  # of the original: the largest number of dimensions

_UNARY = """RELU ABS ACOS ASIN CEIL COS EXP EXPM1 FLOOR LOG LOG1P NEGATE SIGMOID SIN TANH ABS_GRAD ADD FLOOR_DIV MAX MIN
MOD MUL POW SIGMOID_GRAD SUB SWITCH_GT0 TANH_GRAD TRUE_DIV LOG_SUM_EXP LT LEQ EQ SHL SHR COND_LEQ_MOV FUSE_MUL_ADD3
FUSE_MUL_ADD4 FUSE_ADD_RELU FUSE_ADD_SIGMOID FUSE_ADD_TANH FAST_TANH FAST_TANH_GRAD ROUND RMULH ATAN2 ERF ERFINV ERFC
ERFCINV H_SWISH H_SWISH_GRAD FUSE_ADD_H_SWISH NOT AND OR XOR SILU SILU_GRAD GELU GELU_GRAD COND_LT_MOV NEQ ISNAN ISINF
SINH COSH ASINH ACOSH ATANH TAN ASINH_GRAD ACOSH_GRAD ATANH_GRAD PRELU CLIP PRELU_GRAD SOFTPLUS SOFTPLUS_GRAD RELU6
RELU6_GRAD HSIGMOID HSIGMOID_GRAD LOGSIGMOID SQRT SQUARE SIGN"""
_MULTI = """FUSE_MUL_ADD3_INT16x32x32x32 FUSE_MUL_ADD3_IXxF32xF32xI8 ROUND_SHR_SATURATE_IXxI8xI8
FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT16x16x16x8 FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT32x32x32x8
ROUND_SHR_SATURATE_IXxI8xI16 QADD QFUSE_ADD_RELU QMUL QMIN QMAX QSUB QTRUE_DIV QFUSE_ADD_SIGMOID QFUSE_ADD_TANH QRELU
QABS QSIGMOID QEXP QTANH QFUSE_MUL_ADD3 QFAST_TANH QNEGATE QACOS QASIN QCEIL QCOS QEXPM1 QFLOOR QLOG QLOG1P QSIN QROUND
QERF QERFINV QERFC QERFCINV QABS_GRAD QFLOOR_DIV QMOD QSIGMOID_GRAD QSWITCH_GT0 QTANH_GRAD QLT QLEQ QEQ QPOW
QLOG_SUM_EXP QFAST_TANH_GRAD QATAN2 QCOND_LEQ_MOV QH_SWISH QFUSE_ADD_H_SWISH QH_SWISH_GRAD
FUSE_MUL_ADD3_INT16xF32xF32xF32 MUL_INT16xF32xF32 FUSE_MUL_ADD3_UINT8xF32xF32xF32 QCOND_LT_MOV EQ NEQ LT LEQ ISNAN
ISINF"""
_LAYOUTS = """NCHW NHWC NHWCD4 NCHW4 NCHW8 NCHW32 NCHW88 NCHW44 NCHW44_DOT NCHW4_NCHW32 NCHW32_NCHW4 NCHW4_NCHW
NHWC_NCHW NHWC_NCHW4_IC_SMALL NCHW_NCHW4_IC_SMALL CHWN4 NCHW64 NCHW4_NHWC"""
_COLOURS = """RGB2GRAY RGB2YUV YUV2RGB GRAY2RGB RGBA2RGB RGBA2BGR RGBA2GRAY RGB2BGR BGR2GRAY BGR2RGB YUV2GRAY_NV21
YUV2RGB_NV21 YUV2BGR_NV21 YUV2GRAY_NV12 YUV2RGB_NV12 YUV2BGR_NV12 YUV2GRAY_YV12 YUV2RGB_YV12 YUV2BGR_YV12 YUV2GRAY_YU12
YUV2RGB_YU12 YUV2BGR_YU12 YCrCb2RGB YCrCb2BGR BT601_YUV2RGB_NV21 BT601_YUV2BGR_NV21 BT601_YUV2RGB_NV12
BT601_YUV2BGR_NV12 BT601_YUV2RGB_YV12 BT601_YUV2BGR_YV12 BT601_YUV2RGB_YU12 BT601_YUV2BGR_YU12"""
_COLLECTIVES = """REDUCE_SUM BROADCAST ALL_GATHER REDUCE_SCATTER_SUM ALL_REDUCE_SUM ALL_REDUCE_MAX ALL_REDUCE_MIN
ALL_REDUCE_PROD GATHER SCATTER ALL_TO_ALL"""

# Enums that several ops share carry the name of the first of them, as the original's do.
_Strategy = define_enum("BatchConvBias", "Strategy", "HEURISTIC PROFILE REPRODUCIBLE OPTIMIZED", bits=True)
_Format = define_enum("AdaptivePooling", "Format", _LAYOUTS)
_ConvMode = define_enum("BatchConvBias", "Mode", "CROSS_CORRELATION CONVOLUTION")
_Sparse = define_enum("BatchConvBias", "Sparse", "DENSE GROUP")
_Compute = define_enum("BatchConvBias", "ComputeMode", "DEFAULT FLOAT32")
_Nonline = define_enum("BatchConvBias", "NonlineMode", "IDENTITY RELU SIGMOID H_SWISH")
_RnnNonline = define_enum("RNN", "NonlineMode", "IDENTITY RELU TANH")
_PoolMode = define_enum("AdaptivePooling", "Mode", "MAX AVERAGE AVERAGE_COUNT_EXCLUDE_PADDING")
_RoiMode = define_enum("ROIAlign", "Mode", "MAX AVERAGE")
_Interp = define_enum("Remap", "InterpolationMode", "NEAREST LINEAR AREA CUBIC LANCZOS4")
_Border = define_enum("Remap", "BorderMode", "REPLICATE REFLECT REFLECT_101 WRAP CONSTANT TRANSPARENT ISOLATED")
_FwdMode = define_enum("BatchNorm", "FwdMode", "TRAINING INFERENCE")

_P: dict[str, Any] = {"strategy": _Strategy.of("HEURISTIC"), "workspace_limit": 2**64 - 1}
_CONV: dict[str, Any] = {
    "mode": _ConvMode.of("CROSS_CORRELATION"),
    **dict.fromkeys(("pad_h", "pad_w"), 0),
    **dict.fromkeys(("stride_h", "stride_w", "dilate_h", "dilate_w"), 1),
    "sparse": _Sparse.of("DENSE"),
    "format": _Format.of("NCHW"),
    "compute_mode": _Compute.of("DEFAULT"),
}
_CONV_ENUMS = {"Mode": _ConvMode, "Sparse": _Sparse, "Format": _Format, "ComputeMode": _Compute}
_Format3D = define_enum("Convolution3D", "Format", "NCDHW NDHWC")
_DataType3D = define_enum("Convolution3D", "DataType", "FLOAT FLOAT_IO16xC32")
_CONV3D: dict[str, Any] = {
    "mode": _ConvMode.of("CROSS_CORRELATION"),
    **dict.fromkeys(("pad_d", "pad_h", "pad_w"), 0),
    **dict.fromkeys(("stride_d", "stride_h", "stride_w", "dilate_d", "dilate_h", "dilate_w"), 1),
    "sparse": _Sparse.of("DENSE"),
    "data_type": _DataType3D.of("FLOAT"),
    "format": _Format3D.of("NCDHW"),
}
_CONV3D_ENUMS = {"Mode": _ConvMode, "Sparse": _Sparse, "DataType": _DataType3D, "Format": _Format3D}
_NORM: dict[str, Any] = {"affine": True, "eps": 1e-5}
_WINDOW = {
    **dict.fromkeys(("pad_h", "pad_w"), 0),
    **dict.fromkeys(("stride_h", "stride_w", "dilate_h", "dilate_w"), 1),
    **dict.fromkeys(("window_h", "window_w"), 3),
}
_RNG: dict[str, Any] = {"seed": 0, "handle": 0}
_QUANT = {"qmin": -(2**31), "qmax": 2**31 - 1}

#: Every op class by name; ``builtin`` exports them.
OPS: dict[str, type[OpDef]] = {}


def _op(name: str, fields: dict[str, Any] | None = None, enums: dict[str, type[OpEnum]] | None = None) -> None:
    fields, found = dict(fields or {}), dict(enums or {})
    if "strategy" in fields:
        found["Strategy"] = _Strategy
    OPS[name] = define_op(name, fields, found, f"The primitive op {name}.")


def _own(
    owner: str, field: str, enum: str, values: str, default: str
) -> tuple[dict[str, Any], dict[str, type[OpEnum]]]:
    """A field whose enum belongs to this op alone."""
    cls = define_enum(owner, enum, values)
    return {field: cls.of(default)}, {enum: cls}


_op("Elemwise", *_own("Elemwise", "mode", "Mode", _UNARY, "RELU"))
_multi, _multi_enum = _own("ElemwiseMultiType", "mode", "Mode", _MULTI, "FUSE_MUL_ADD3_INT16x32x32x32")
_op("ElemwiseMultiType", {**_multi, "dtype": None}, _multi_enum)
_mode, _enum = _own("Reduce", "mode", "Mode", "SUM SUM_SQR PRODUCT MIN MAX MEAN", "SUM")
_type, _enum2 = _own(
    "Reduce",
    "data_type",
    "DataType",
    "DEFAULT FLOAT_IO16xC32 FLOAT_O32xC32 FLOAT_O16xC32 QUINT_I8xO32 QINT_I8xO32",
    "DEFAULT",
)
_op("Reduce", {**_mode, "axis": _INT_MAX, **_type, "keepdim": True}, {**_enum, **_enum2})
_op("TypeCvt", {"dtype": None})
_op("MatrixInverse")
_MatFormat = define_enum("BatchedMatrixMul", "Format", "DEFAULT MK4 MK8 MK4_DOT N32K4_DOT")
for _name in ("MatrixMul", "BatchedMatrixMul"):
    _op(
        _name,
        {
            "transposeA": False,
            "transposeB": False,
            "compute_mode": _Compute.of("DEFAULT"),
            "format": _MatFormat.of("DEFAULT"),
            **_P,
            "dimA": 0,
            "dimB": 0,
        },
        {"ComputeMode": _Compute, "Format": _MatFormat},
    )
_op("Dot")
_op("SVD", {"full_matrices": False, "compute_uv": True})
_op("Convolution", {**_CONV, **_P}, _CONV_ENUMS)
_op("ConvolutionBackwardData", {**_CONV, **_P, "dtype": None}, _CONV_ENUMS)
_op("Convolution3D", {**_CONV3D, **_P}, _CONV3D_ENUMS)
_op("Convolution3DBackwardData", {**_CONV3D, **_P}, _CONV3D_ENUMS)
_op("DeformableConv", {**_CONV, **_P}, _CONV_ENUMS)
for _name in ("GroupLocal", "RegionRestrictedConvolution", "RegionRestrictedConvolutionBackwardData"):
    _op(_name, _CONV, _CONV_ENUMS)
_op(
    "ConvBias",
    {
        "nonlineMode": _Nonline.of("IDENTITY"),
        **{k: _CONV[k] for k in ("mode", "sparse", "format", "pad_h", "pad_w", "stride_h", "stride_w")},
        **{k: _CONV[k] for k in ("dilate_h", "dilate_w", "compute_mode")},
        **_P,
        "dtype": None,
    },
    {"NonlineMode": _Nonline, **_CONV_ENUMS},
)
_op(
    "BatchConvBias",
    {"nonlineMode": _Nonline.of("IDENTITY"), **_CONV, **_P, "dtype": None},
    {"NonlineMode": _Nonline, **_CONV_ENUMS},
)
_op(
    "Pooling",
    {
        "mode": _PoolMode.of("MAX"),
        **dict.fromkeys(("pad_h", "pad_w"), 0),
        **dict.fromkeys(("stride_h", "stride_w", "window_h", "window_w"), 2),
        "format": _Format.of("NCHW"),
        **_P,
    },
    {"Mode": _PoolMode, "Format": _Format},
)
_op(
    "AdaptivePooling",
    {"mode": _PoolMode.of("MAX"), "format": _Format.of("NCHW"), "shape": []},
    {"Mode": _PoolMode, "Format": _Format},
)
_op("ROIPooling", {"mode": _RoiMode.of("MAX"), "scale": 1.0}, {"Mode": _RoiMode})
_op(
    "ROIAlign",
    {
        "mode": _RoiMode.of("MAX"),
        "format": _Format.of("NCHW"),
        "spatial_scale": 1.0,
        "offset": 0.0,
        "pooled_height": 1,
        "pooled_width": 1,
        "sample_height": 2,
        "sample_width": 2,
    },
    {"Mode": _RoiMode, "Format": _Format},
)
_op(
    "DeformablePSROIPooling",
    {
        "no_trans": True,
        **dict.fromkeys(("spatial_scale", "trans_std", "pooled_h", "pooled_w", "part_size", "sample_per_part"), 1),
    },
)
_op("Images2Neibs", _WINDOW)
_op("SlidingWindowTranspose", {"out_h": 0, "out_w": 0, **_WINDOW})
_dim, _enum = _own("BatchNorm", "param_dim", "ParamDim", "DIM_11HW DIM_1CHW DIM_1C11 DIM_111C", "DIM_11HW")
_BN = {**_dim, "fwd_mode": _FwdMode.of("TRAINING"), "epsilon": 1e-4, "avg_factor": 1.0, "scale": 1.0, "bias": 0.0}
for _name in ("BatchNorm", "BatchNormBackward"):
    _op(_name, _BN, {**_enum, "FwdMode": _FwdMode})
_op("LayerNorm", {**_NORM, "normalized_dim": 1, "normalized_size": 1})
for _name in ("GroupNorm", "InstanceNorm"):
    _op(_name, {**_NORM, "group": 1, "format": _Format.of("NCHW")}, {"Format": _Format})
_op("GeneralNorm", {**_NORM, "axis_start": 0, "axis_end": 0})
_op("LRN", {"n": 5, "k": 2.0, "alpha": 1e-4, "beta": 0.75})
_op("Softmax", {"axis": -1})
_op("Dropout", {"drop_prob": 0.0, **_RNG})
_op(
    "Correlation",
    {
        "format": _Format.of("NCHW"),
        "kernel_size": 1,
        "max_displacement": 1,
        "stride1": 1,
        "stride2": 1,
        "pad_size": 0,
        "is_multiply": True,
    },
    {"Format": _Format},
)
_IMAGE = {"InterpolationMode": _Interp, "BorderMode": _Border, "Format": _Format}
for _name in ("WarpPerspective", "WarpPerspectiveBackwardData", "WarpPerspectiveBackwardMat"):
    _op(
        _name,
        {
            "imode": _Interp.of("LINEAR"),
            "bmode": _Border.of("REPLICATE"),
            "format": _Format.of("NCHW"),
            "border_val": 0.0,
        },
        _IMAGE,
    )
_op(
    "WarpAffine",
    {
        "imode": _Interp.of("LINEAR"),
        "border_mode": _Border.of("REPLICATE"),
        "border_val": 0.0,
        "format": _Format.of("NHWC"),
    },
    _IMAGE,
)
_op(
    "Remap",
    {
        "imode": _Interp.of("LINEAR"),
        "border_type": _Border.of("REPLICATE"),
        "format": _Format.of("NHWC"),
        "scalar": 0.0,
    },
    _IMAGE,
)
_op("Resize", {"imode": _Interp.of("LINEAR"), "format": _Format.of("NHWC")}, _IMAGE)
_resize3d, _enum = _own("Resize3D", "format", "Format", "NCDHW NDHWC", "NDHWC")
_op(
    "Resize3D",
    {"imode": _Interp.of("LINEAR"), **_resize3d, "align_corners": False},
    {**_enum, "InterpolationMode": _Interp},
)
_op("Rotate", {"clockwise": True})
_op("Flip", {"vertical": False, "horizontal": False})
_op(
    "GaussianBlur",
    {
        "border_mode": _Border.of("REPLICATE"),
        **dict.fromkeys(("kernel_height", "kernel_width"), 0),
        "sigma_x": 0.0,
        "sigma_y": 0.0,
    },
    {"BorderMode": _Border},
)
_op("CvtColor", *_own("CvtColor", "mode", "Mode", _COLOURS, "RGB2GRAY"))
_op("NvOf", {"precision": 1})
_op("NMSKeep", {"iou_thresh": 0.0, "max_output": 0})
_op("IndexingOneHot", {"axis": 0, "ndim": 0})
_op("IndexingSetOneHot", {"axis": 0, "ndim": 0})
_op("Argsort", *_own("Argsort", "order", "Order", "ASCENDING DESCENDING", "ASCENDING"))
for _name in ("Argmax", "Argmin"):
    _op(_name, {"axis": 0})
_op("TopK", *_own("TopK", "mode", "Mode", "KTH_ONLY VALUE_IDX_NOSORT VALUE_IDX_SORTED", "KTH_ONLY"))
_op("CondTake")
_op("NonZero")
_op("Cumsum", {"axis": _INT_MAX, "exclusive": True, "reverse": False})
_op("Fill", {"value": 0.0, "dtype": None, "comp_node": None})
_op("FillLike", {"value": 0.0, "comp_node": None})
_op("MaskedFill", {"value": 0.0})
_op("Where")
_op("WhereBackward")
_op("Linspace", {"endpoint": True, "comp_node": None})
_op("Eye", {"k": 0, "dtype": "float32", "comp_node": None})
_op("Diag", {"k": 0})
_op("Cross", {"axisa": -1, "axisb": -1, "axisc": -1})
_op("MeshGrid", {"indexing": "xy"})
_op("GetVarShape", {"axis": _INVALID_AXIS})
for _name in ("Concat", "Stack"):
    _op(_name, {"axis": 0, "comp_node": None})
_op("Split", {"axis": 0, "nsections": 0})
_op("Broadcast", {"shape": []})
_op("Reshape", {"axis": _INVALID_AXIS, "shape": []})
_op("Dimshuffle", {"pattern": []})
_op("AddAxis", {"axis": []})
_op("RemoveAxis", {"axis": []})
_op("Subtensor", {"items": [], "slice_items": []})
for _name in (
    "SetSubtensor",
    "IncrSubtensor",
    "IndexingMultiAxisVec",
    "IndexingSetMultiAxisVec",
    "IndexingIncrMultiAxisVec",
    "MeshIndexing",
    "SetMeshIndexing",
    "IncrMeshIndexing",
    "BatchedMeshIndexing",
    "BatchedSetMeshIndexing",
    "BatchedIncrMeshIndexing",
):
    _op(_name, {"items": []})
_pad_mode, _enum = _own("Padding", "padding_mode", "PaddingMode", "REPLICATE REFLECT CONSTANT", "CONSTANT")
_op(
    "Padding",
    {
        **{f"front_offset_dim{i}": 0 for i in range(7)},
        **{f"back_offset_dim{i}": 0 for i in range(7)},
        "padding_val": 0.0,
        **_pad_mode,
    },
    _enum,
)
_op("PixelShuffle", {"factor": 1})
_op("PixelShuffleBackward", {"factor": 1})
_op("Identity")
_op("FastpathCopy")
_op("Copy", {"comp_node": None})
_op("Borrow", {"comp_node": None})
_op("Barrier", {"comp_node": None, "nr_outputs": 0})
_op("UniformRNG", {"seed": 0, "dtype": "float32", "handle": 0})
_op("GaussianRNG", {"seed": 0, "mean": 0.0, "std": 1.0, "dtype": "float32", "handle": 0})
for _name in ("GammaRNG", "BetaRNG", "PoissonRNG", "ExponentialRNG", "ShuffleRNG"):
    _op(_name, _RNG)
_op("MultinomialRNG", {"seed": 0, "num_samples": 1, "replacement": False, "handle": 0})
_op("PermutationRNG", {"seed": 0, "dtype": "int32", "handle": 0})
_collective, _enum = _own("CollectiveComm", "mode", "Mode", _COLLECTIVES, "REDUCE_SUM")
_op(
    "CollectiveComm",
    {
        **_collective,
        "key": "",
        "nr_devices": 0,
        "rank": 0,
        "is_root": False,
        "local_grad": False,
        "addr": "",
        "port": 0,
        "dtype": None,
        "backend": "",
        "comp_node": "",
    },
    _enum,
)
_op("RemoteSend", {"key": "", "addr": "", "port": 0, "rank_to": 0, "backend": ""})
_op(
    "RemoteRecv",
    {"key": "", "addr": "", "port": 0, "rank_from": 0, "cn": None, "shape": [], "dtype": None, "backend": ""},
)
_op("ParamPackSplit", {"offsets": [], "shapes": []})
_op("ParamPackConcat", {"offsets": []})
for _name in ("FakeQuant", "TQT", "LSQ"):
    _op(_name, _QUANT)
_op("CheckNonFinite", {"scale": 1.0})
_op("AssertEqual", {"maxerr": 1e-4, "verbose": False})
_op("InplaceAdd")
_op(
    "LAMBUpdate",
    {
        **dict.fromkeys(("beta_1", "beta_2", "step", "lr", "weight_decay", "eps"), 1.0),
        "bias_correction": True,
        "always_adapt": False,
    },
)
_op("RNNCell", {"nonlineMode": _RnnNonline.of("IDENTITY")}, {"NonlineMode": _RnnNonline})
_op("LSTMCell")
_RECURRENT = {"num_layers": 1, "bidirectional": False, "bias": True, "hidden_size": 128}
_op(
    "RNN",
    {**_RECURRENT, "dropout": 0.0, "nonlineMode": _RnnNonline.of("IDENTITY"), "fwd_mode": _FwdMode.of("TRAINING")},
    {"NonlineMode": _RnnNonline, "FwdMode": _FwdMode},
)
_op("LSTM", {**_RECURRENT, "proj_size": 0, "dropout": 0.0, "fwd_mode": _FwdMode.of("TRAINING")}, {"FwdMode": _FwdMode})
_mask, _enum = _own(
    "MultiHeadAttn",
    "attn_mask_type",
    "AttnMaskType",
    "NO_MASK DEFAULT_MASK CUDNN_STYLE_MASK USER_DEFINED_MASK",
    "NO_MASK",
)
_joined, _enum2 = _own(
    "MultiHeadAttn", "tensor_combination_type", "TensorCombinationType", "NONE ONLY_MASK ONLY_BIASKV ALL", "NONE"
)
_op(
    "MultiHeadAttn",
    {
        "num_heads": 1,
        **dict.fromkeys(
            ("embeding_size", "k_size", "v_size", "qproj_size", "kproj_size", "vproj_size", "oproj_size"), 0
        ),
        **dict.fromkeys(("qbias", "kbias", "vbias", "obias"), False),
        "sm_scaler": 1.0,
        "input_order": 0,
        **_mask,
        **_joined,
        **dict.fromkeys(("add_zero_attn", "need_weights", "reslink"), False),
        "training": True,
        "seed": 0,
        "attn_prob": 0.0,
        "out_prob": 0.0,
        "handle": 0,
    },
    {**_enum, **_enum2},
)
_op("ExternOpr", {"output_shapes": [], "name": "", "data": b"", "data_len": 0, "output_dtypes": []})
for _name in ("TensorRTRuntime", "AtlasRuntime", "MagicMindRuntime"):
    _op(_name, {"buf": b"", "buf_size": 0})
_op("CambriconRuntime", {"buf": b"", "buf_size": 0, "symbol": "", "tensor_dim_mutable": False})

globals().update(OPS)


def _elemwise_repr(op: Any) -> str:
    return str(op.mode.members()[0])


OPS["Elemwise"].__repr__ = _elemwise_repr  # type: ignore[method-assign]


def __getattr__(name: str) -> Any:
    """Handles of random generators live with the generators; imported when first asked for."""
    from . import rng_handles

    if name in rng_handles.__all__:
        return getattr(rng_handles, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
