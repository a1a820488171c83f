"""What of the op registry is not differentiated, and why. test_conformance.py keeps these tables complete and true;
tools/coverage.py puts the reasons into docs/coverage.md."""

from __future__ import annotations

_BOOL = "its result is a truth value"
_STEP = "a step of an optimizer: its gradient is asked of nobody"

#: Ops with floating inputs and no vjp.
NO_GRADIENT: dict[str, str] = {
    "adadelta_update": _STEP,
    "adagrad_update": _STEP,
    "adam_update": _STEP,
    "lamb_direction": _STEP,
    "sgd_momentum_update": _STEP,
    "sgd_update": _STEP,
    "argmax": "its result is an index",
    "nonzero": "its results are positions and their number",
    "shape_of": "its result is sizes",
    "argmin": "its result is an index",
    "nms": "its results are indices",
    "eq": _BOOL,
    "ne": _BOOL,
    "lt": _BOOL,
    "le": _BOOL,
    "isinf": _BOOL,
    "isnan": _BOOL,
    "logical_and": _BOOL,
    "logical_not": _BOOL,
    "logical_or": _BOOL,
    "logical_xor": _BOOL,
    "fill_like": "its result does not depend on the values",
    "batch_norm_fused": "made by a pass, after gradients were taken",
    "batch_norm_fused_bwd": "made by a pass, after gradients were taken",
    "byte_table": "its input is bytes; made by a pass, after gradients were taken",
    "conv2d_fused": "made by a pass, after gradients were taken",
    "matmul_fused": "made by a pass, after gradients were taken",
    "quantize": "its result has a quantised dtype",
    "dequantize": "its input has a quantised dtype",
    "qconv2d": "its operands are quantised",
    "qconv2d_dx": "its operands are quantised",
    "qmatmul": "its operands are quantised",
    "rng_gamma": "random draws are not differentiated by their parameters",
    "rng_multinomial": "random draws are not differentiated by their parameters",
    "rng_poisson": "random draws are not differentiated by their parameters",
}

#: Inputs whose gradient is by definition not the slope, so that differences cannot check it: what does.
BY_DEFINITION: dict[tuple[str, str], str] = dict.fromkeys(
    [("fake_quant", "x"), ("tqt", "x"), ("tqt", "exponent"), ("lsq", "x"), ("lsq", "step")],
    "rounding has no slope: test_quantization_ops.py compares with the formula",
)

#: Floating inputs of differentiable ops that get no gradient.
CONSTANT_INPUTS: dict[tuple[str, str], str] = {
    ("fake_quant", "scale"): "observed, not learnt; tqt and lsq learn theirs",
    ("fake_quant", "zero_point"): "observed, not learnt",
    ("lsq", "zero_point"): "observed, not learnt",
    ("lsq", "grad_scale"): "a factor of the step's gradient alone",
    ("batch_norm_bwd", "mean"): "batch_norm_train computes it from x; its part is in the gradient of x",
    ("batch_norm_bwd", "rstd"): "batch_norm_train computes it from x; its part is in the gradient of x",
    ("layer_norm_bwd", "mean"): "layer_norm computes it from x; its part is in the gradient of x",
    ("layer_norm_bwd", "rstd"): "layer_norm computes it from x; its part is in the gradient of x",
    ("max_pool2d_bwd", "x"): "only says where the maximum is",
    ("max_pool2d_bwd", "y"): "only says where the maximum is",
    ("max_pool2d_take", "x"): "only says where the maximum is",
    ("max_pool2d_take", "y"): "only says where the maximum is",
    ("roi_align", "rois"): "boxes get no gradient, as in MegEngine",
    ("roi_pooling", "rois"): "boxes get no gradient, as in MegEngine",
    ("roi_align_bwd", "x"): "only says where the largest sample is",
    ("roi_align_bwd", "rois"): "boxes get no gradient, as in MegEngine",
    ("roi_pooling_bwd", "x"): "only says where the largest pixel is",
    ("roi_pooling_bwd", "rois"): "boxes get no gradient, as in MegEngine",
}

#: Ops whose gradient is checked in first order only, in some or all rows.
NO_SECOND_ORDER: dict[str, str] = {}

#: Differentiable ops without a row: where their gradient is checked.
GRADIENT_ELSEWHERE: dict[str, str] = {
    "complex": "test_complex.py, against finite differences of the real and imaginary parts",
    "real": "test_complex.py",
    "imag": "test_complex.py",
    "dropout": "test_random.py: the mask of the result is the mask of the gradient",
    "fused": "made by a pass, after gradients were taken",
    "dist_send": "test_dist_engine.py: the gradient comes back from the process that received",
    "dist_recv": "test_dist_engine.py: the gradient goes to the process that sent",
}
