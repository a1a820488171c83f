"""One row per op. Every registered op must have one; the grid in test_conformance.py derives the tests.
op_cases_<family>.py have the rows of large families.

Adding an elementwise op takes a struct in src/op/elementwise/elementwise.h and a row here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import op_cases_dist
import op_cases_index
import op_cases_linalg
import op_cases_sequence
import op_cases_vision
import reference as ref
from op_case import (
    NO_GRAD,
    OpCase,
    Shape,
    away_from,
    away_from_multiples,
    binary,
    bools,
    distinct,
    draw,
    ints,
    ordered,
    unary,
)

CASES: list[OpCase] = []
#: The gradient is not the slope, which is 0: test_quantization_ops.py.
STAIRCASE: Any = NO_GRAD

# ---- elementwise, one argument
for name, fn, kw in [
    ("exp", np.exp, {}),
    ("expm1", np.expm1, {}),
    ("log", np.log, {"lo": 0.1, "hi": 5}),
    ("log1p", np.log1p, {"lo": -0.8, "hi": 5}),
    ("sqrt", np.sqrt, {"lo": 0.1, "hi": 5}),
    ("rsqrt", lambda x: 1 / np.sqrt(x), {"lo": 0.2, "hi": 5}),
    ("sin", np.sin, {}),
    ("cos", np.cos, {}),
    ("tan", np.tan, {"lo": -1.2, "hi": 1.2}),
    ("asin", np.arcsin, {"lo": -0.9, "hi": 0.9}),
    ("acos", np.arccos, {"lo": -0.9, "hi": 0.9}),
    ("atan", np.arctan, {}),
    ("sinh", np.sinh, {}),
    ("cosh", np.cosh, {}),
    ("tanh", np.tanh, {}),
    ("asinh", np.arcsinh, {}),
    ("acosh", np.arccosh, {"lo": 1.2, "hi": 4}),
    ("atanh", np.arctanh, {"lo": -0.9, "hi": 0.9}),
    ("sigmoid", ref.sigmoid, {"lo": -6, "hi": 6}),
    ("gelu", ref.gelu, {"lo": -3, "hi": 3}),
    ("silu", lambda x: x * ref.sigmoid(x), {}),
    ("softplus", lambda x: np.logaddexp(x, 0), {}),
    ("logsigmoid", lambda x: -np.logaddexp(-x, 0), {}),
    ("hswish", lambda x: x * np.clip(x + 3, 0, 6) / 6, {"lo": -5, "hi": 5, "kinks": (-3, 3)}),
    ("hsigmoid", lambda x: np.clip(x + 3, 0, 6) / 6, {"lo": -5, "hi": 5, "kinks": (-3, 3)}),
    ("erf", ref.erf, {}),
    ("erfc", ref.erfc, {"hi": 4}),
    ("erfinv", ref.erfinv, {"lo": -0.95, "hi": 0.95}),
    ("erfcinv", ref.erfcinv, {"lo": 0.05, "hi": 1.95}),
    ("abs", np.abs, {"kinks": (0,)}),
    ("neg", np.negative, {}),
    ("square", np.square, {}),
    ("relu", lambda x: np.maximum(x, 0), {"kinks": (0,)}),
    ("relu6", lambda x: np.clip(x, 0, 6), {"lo": -3, "hi": 9, "kinks": (0, 6)}),
    ("sign", np.sign, {"kinks": (0,)}),
    ("floor", np.floor, {"kinks": (-2, -1, 0, 1, 2)}),
    ("ceil", np.ceil, {"kinks": (-2, -1, 0, 1, 2)}),
    ("round", ref.round_half_away, {"kinks": (-1.5, -0.5, 0.5, 1.5)}),
]:
    CASES += unary(name, fn, **kw)
for name, fn in [("isnan", np.isnan), ("isinf", np.isinf)]:
    CASES.append(OpCase(name, fn, lambda rng: [np.array([0.0, np.nan, np.inf, -np.inf, 1.0])], **NO_GRAD))
CASES.append(OpCase("logical_not", np.logical_not, bools((2, 3)), **NO_GRAD))

# ---- elementwise, two and three arguments
for name, fn, kw in [
    ("add", np.add, {}),
    ("sub", np.subtract, {}),
    ("mul", np.multiply, {}),
    ("div", np.divide, {"lo": 0.5, "hi": 3}),
    ("pow", np.power, {"lo": 0.3, "hi": 2.5, "tol": 5e-5}),
    ("atan2", np.arctan2, {"lo": 0.2, "hi": 2}),
    ("logaddexp", np.logaddexp, {}),
    ("maximum", np.maximum, {"apart": True}),
    ("prelu", lambda x, y: np.where(x >= 0, x, x * y), {}),
    ("minimum", np.minimum, {"apart": True}),
]:
    CASES += binary(name, fn, **kw)
CASES += [
    OpCase(
        "floor_div",
        lambda x, y: np.floor(x / y),
        away_from_multiples,
    ),
    OpCase(
        "floor_div",
        np.floor_divide,
        lambda rng: [rng.randint(-9, 9, (30,)).astype(np.int32), np.full(30, 4, np.int32)],
        label="int",
        **NO_GRAD,
    ),
    OpCase("mod", np.fmod, away_from_multiples),
    OpCase(
        "mod",
        np.mod,
        lambda rng: [rng.randint(-9, 9, (30,)).astype(np.int32), np.full(30, 4, np.int32)],
        label="int",
        **NO_GRAD,
    ),
    OpCase(
        "left_shift",
        np.left_shift,
        lambda rng: [rng.randint(0, 9, (9,)).astype(np.int32), rng.randint(0, 5, (9,)).astype(np.int32)],
        **NO_GRAD,
    ),
    OpCase(
        "right_shift",
        np.right_shift,
        lambda rng: [rng.randint(-90, 90, (9,)).astype(np.int32), rng.randint(0, 5, (9,)).astype(np.int32)],
        **NO_GRAD,
    ),
]
for name, fn in [("lt", np.less), ("le", np.less_equal), ("eq", np.equal), ("ne", np.not_equal)]:
    CASES.append(
        OpCase(
            name,
            fn,
            lambda rng: [np.round(rng.uniform(-1, 1, (4, 5)), 1), np.round(rng.uniform(-1, 1, (5,)), 1)],
            **NO_GRAD,
        )
    )
    CASES.append(OpCase(name, fn, ints((3, 4), (4,), lo=0, hi=3), label="int", **NO_GRAD))
for name, fn in [("logical_and", np.logical_and), ("logical_or", np.logical_or), ("logical_xor", np.logical_xor)]:
    CASES.append(OpCase(name, fn, bools((3, 4), (4,)), **NO_GRAD))
for name, fn, kinks in [
    ("relu_grad", lambda y, g: np.where(y > 0, g, 0), (0,)),
    ("abs_grad", lambda x, g: np.where(x > 0, g, -g), (0,)),
    ("relu6_grad", lambda x, g: np.where((x > 0) & (x < 6), g, 0), (0,)),
    ("sigmoid_grad", lambda y, g: y * (1 - y) * g, ()),
    ("tanh_grad", lambda y, g: (1 - y * y) * g, ()),
    ("hsigmoid_grad", lambda y, g: np.where((y > 0) & (y < 1), g / 6, 0), (0, 1)),
    ("hswish_grad", lambda x, g: np.where(x < -3, 0, np.where(x > 3, g, (2 * x + 3) / 6 * g)), ()),
    ("silu_grad", lambda x, g: g * (ref.sigmoid(x) * (1 + x * (1 - ref.sigmoid(x)))), ()),
    ("gelu_grad", ref.gelu_grad, ()),
]:
    CASES.append(OpCase(name, fn, away_from(kinks, [(3, 5), (3, 5)])))
CASES += [
    OpCase("where", np.where, ordered(bools((3, 4)), draw([(3, 4), (3, 4)]))),
    OpCase("where", np.where, ordered(bools((3, 1)), draw([(4,), (1, 4)])), label="broadcast"),
    OpCase(
        "typecvt",
        lambda x, dtype: x.astype(dtype),
        lambda rng: [rng.uniform(-9, 9, (3, 5))],
        {"dtype": "int32"},
        label="f2i",
        **NO_GRAD,
    ),
    OpCase("typecvt", lambda x, dtype: x.astype(dtype), draw([(3, 5)]), {"dtype": "float64"}, label="wide"),
    OpCase("typecvt", lambda x, dtype: x.astype(dtype), ints((3, 5)), {"dtype": "float32"}, label="i2f", **NO_GRAD),
    OpCase("typecvt", lambda x, dtype: x.astype(dtype), bools((3, 5)), {"dtype": "float32"}, label="b2f", **NO_GRAD),
]

# ---- reductions
for mode in ("sum", "mean", "max", "min", "prod"):
    for axes, keep in [((), False), ((0,), False), ((-1,), True), ((1, 2), False), ((0, 2), True)]:
        make = distinct((3, 4, 5)) if mode in ("max", "min") else draw([(3, 4, 5)], 0.5, 1.5)
        axes = tuple(a % 3 for a in axes)
        CASES.append(OpCase("reduce", ref.reduce, make, {"mode": mode, "axes": axes, "keepdims": keep},
                            label=f"{mode}-{'all' if not axes else 'x'.join(map(str, axes))}", tol=1e-4 if mode == "prod" else 2e-5))  # fmt: skip
for name, fn in [("argmax", np.argmax), ("argmin", np.argmin)]:
    CASES.append(OpCase(name, lambda x, axis, keepdims, fn=fn: fn(x, axis=axis, keepdims=keepdims).astype(np.int32),
                        distinct((3, 4, 5)), {"axis": 1, "keepdims": False}, **NO_GRAD))  # fmt: skip

# ---- shapes
CASES += [
    OpCase("reshape", lambda x, shape: x.reshape(shape), draw([(3, 4)]), {"shape": (2, -1)}),
    OpCase("transpose", lambda x, perm: x.transpose(perm), draw([(2, 3, 4)]), {"perm": (2, 0, 1)}),
    OpCase("broadcast_to", lambda x, shape: np.broadcast_to(x, shape), draw([(3, 1)]), {"shape": (2, 3, 4)}),
    OpCase("expand_dims", lambda x, axes: np.expand_dims(x, axes), draw([(3, 4)]), {"axes": (0, -1)}),
    OpCase("squeeze", lambda x, axes: np.squeeze(x, axes), draw([(1, 3, 1)]), {"axes": (0,)}),
    OpCase("flatten", lambda x, start, end: x.reshape(2, 12, 5), draw([(2, 3, 4, 5)]), {"start": 1, "end": -2}),
    OpCase("slice", ref.slice_, draw([(5, 6)]), {"axes": (0, 1), "starts": (1, 5), "stops": (4, -1), "steps": (2, -2)}),
    OpCase(
        "set_slice", ref.set_slice, draw([(5, 6), (2, 6)]), {"axes": (0,), "starts": (1,), "stops": (4,), "steps": (2,)}
    ),
    OpCase(
        "slice",
        lambda x, **_: x[-4:, 9:1:-2, 2:3],
        draw([(5, 6, 3)]),
        {"axes": (0, 1, 2), "starts": (-4, 9, 2), "stops": (2147483647, 1, 0), "steps": (1, -2, 0), "python": True},
        label="python",
    ),
    OpCase("sum_to", lambda x, shape: x.sum(axis=(0, 2), keepdims=True)[0], draw([(4, 3, 5)]), {"shape": (3, 1)}),
    OpCase("sum_to", lambda x, shape: x, draw([(3, 5)]), {"shape": (3, 5)}, label="same"),
    OpCase("shape_of", lambda x: np.array(x.shape, np.int32), draw([(4, 0, 5)]), grad=False, grad2=False),
    OpCase("shape_of", lambda x: np.array(x.shape, np.int32), draw([()]), label="scalar", grad=False, grad2=False),
    OpCase(
        "count_of",
        lambda x, axes, dtype: np.asarray(np.prod(x[list(axes)]), dtype),
        lambda rng: [np.array([3, 4, 5], np.int32)],
        {"axes": (0, 2), "dtype": "float32"},
        grad=False,
        grad2=False,
    ),
    OpCase("concat", lambda *xs, axis: np.concatenate(xs, axis), draw([(2, 3), (2, 1), (2, 4)]), {"axis": 1}),
    OpCase(
        "full",
        lambda shape, value, dtype: np.full(shape, value, dtype),
        draw([]),
        {"shape": (2, 3), "value": 1.5, "dtype": "float32"},
        lite=False,
        **NO_GRAD,
    ),
    OpCase("fill_like", lambda x, value: np.full_like(x, value), draw([(2, 3)]), {"value": 2.5}, **NO_GRAD),
    OpCase("copy", np.copy, draw([(2, 3)])),
    OpCase("copy_to", lambda x, **_: x, draw([(2, 3)]), {"device": "cpu1"}),
    OpCase("copy_to", lambda x, **_: x, draw([(3,)]), {"device": "cpu0:1", "borrow": True}, label="stream"),
]

# ---- matrix products and convolutions
for label, shapes, a in [
    ("mm", [(3, 4), (4, 5)], {}), ("ta", [(4, 3), (4, 5)], {"ta": True}), ("tb", [(3, 4), (5, 4)], {"tb": True}),
    ("tt", [(4, 3), (5, 4)], {"ta": True, "tb": True}), ("batch", [(2, 3, 4), (2, 4, 5)], {}),
    ("broadcast", [(2, 1, 3, 4), (3, 4, 5)], {"tb": False}), ("mat_batch", [(3, 4), (2, 4, 5)], {}), ("inner0", [(3, 0), (0, 5)], {}),
    ("row", [(1, 37), (37, 65)], {}), ("bias", [(3, 4), (5, 4), (5,)], {"tb": True}), ("bias_ta", [(4, 3), (4, 5), (5,)], {"ta": True}),
    ("bias_batch", [(2, 3, 4), (2, 4, 5), (5,)], {}), ("bias_tall", [(2, 3, 4), (4, 33), (33,)], {}), ("bias_row", [(1, 37), (37, 65), (65,)], {}),
    ("bias_inner0", [(3, 0), (0, 5), (5,)], {}),
]:  # fmt: skip
    CASES.append(OpCase("matmul", ref.matmul, draw(shapes), a, label=label))
CASES += [
    OpCase("matmul_fused", ref.matmul_fused, draw([(2, 3, 4), (5, 4), (5,), (), (3, 5), (2, 3, 5)]),
           {"tb": True, "has_bias": True, "steps": "mul(y,0) add(1,y) tanh(y) add(y,2)"}, label="chain", **NO_GRAD),
    OpCase("matmul_fused", ref.matmul_fused, draw([(3, 4), (4, 5), (3, 5)]), {"steps": "tanh_grad(0,y)"}, label="slope",
           **NO_GRAD),
]  # fmt: skip
CONVS = [
    ("3x3", (2, 3, 5, 6), (4, 3, 3, 3), {"pad": (1, 1)}),
    ("5x5", (2, 1, 7, 7), (3, 1, 5, 5), {}),
    ("stride", (1, 2, 7, 8), (3, 2, 3, 2), {"stride": (2, 3), "pad": (1, 0)}),
    ("dilate", (1, 2, 8, 8), (2, 2, 3, 3), {"dilate": (2, 2), "pad": (2, 2)}),
    ("1x1", (2, 4, 3, 3), (5, 4, 1, 1), {}),
    ("groups", (2, 4, 5, 5), (2, 3, 2, 3, 3), {"groups": 2, "pad": (1, 1)}),
    ("depthwise", (1, 3, 6, 6), (3, 1, 1, 3, 3), {"groups": 3, "pad": (1, 1)}),
]
for label, xs, ws, a in CONVS:
    n_out = ws[0] * (ws[1] if len(ws) == 5 else 1)
    full = {"stride": (1, 1), "pad": (0, 0), "dilate": (1, 1), "groups": 1, **a}
    ys = (xs[0], n_out) + tuple(
        ref.windows(xs[2 + i], ws[-2 + i], full["stride"][i], full["pad"][i], full["dilate"][i]) for i in (0, 1)
    )
    CASES += [
        OpCase("conv2d", ref.conv2d, draw([xs, ws]), full, label=label),
        OpCase("conv2d", ref.conv2d, draw([xs, ws, (1, n_out, 1, 1)]), full, label=label + "-bias"),
        OpCase("conv2d_dx", ref.conv2d_dx, draw([ys, ws]), {**full, "x_shape": xs}, label=label),
        OpCase("conv2d_dw", ref.conv2d_dw, draw([xs, ys]), {**full, "w_shape": ws}, label=label),
        OpCase("conv2d_fused", ref.conv2d_fused, draw([xs, ws, (1, n_out, 1, 1), (1, n_out, 1, 1), (1, n_out, 1, 1), ys]),
               {**full, "has_bias": True, "has_scale": True, "has_add": True, "act": "relu"}, label=label, **NO_GRAD),
    ]  # fmt: skip
    CASES += [
        OpCase(
            "conv2d_fused", ref.conv2d_fused, draw([xs, ws]), {**full, "act": act}, label=f"{label}-{act}", **NO_GRAD
        )
        for act in ("relu6", "hswish", "silu")
    ]
for label, xs, ws, a in [
    ("3x3x3", (2, 2, 4, 3, 5), (3, 2, 3, 3, 3), {"pad": (1, 1, 1)}),
    ("stride", (1, 2, 5, 6, 4), (2, 2, 2, 3, 1), {"stride": (2, 3, 1), "pad": (1, 0, 0)}),
    ("dilate", (1, 1, 5, 5, 6), (2, 1, 2, 2, 3), {"dilate": (2, 3, 2), "pad": (1, 1, 2)}),
    ("groups", (1, 4, 3, 3, 3), (2, 1, 2, 2, 2, 2), {"groups": 2}),
    ("1x1x1", (2, 3, 2, 2, 2), (2, 3, 1, 1, 1), {}),
]:
    n_out = ws[0] * (ws[1] if len(ws) == 6 else 1)
    full = {"stride": (1, 1, 1), "pad": (0, 0, 0), "dilate": (1, 1, 1), "groups": 1, **a}
    ys = (xs[0], n_out) + tuple(
        ref.windows(xs[2 + i], ws[-3 + i], full["stride"][i], full["pad"][i], full["dilate"][i]) for i in range(3)
    )
    CASES += [
        OpCase("conv3d", ref.conv3d, draw([xs, ws]), full, label=label),
        OpCase("conv3d_dx", ref.conv3d_dx, draw([ys, ws]), {**full, "x_shape": xs}, label=label),
        OpCase("conv3d_dw", ref.conv3d_dw, draw([xs, ys]), {**full, "w_shape": ws}, label=label),
    ]  # fmt: skip

# ---- pooling
for label, xs, a in [
    ("2x2", (2, 3, 4, 6), {"kernel": (2, 2), "stride": (2, 2)}),
    ("3x3pad", (1, 2, 5, 5), {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)}),
    ("overlap", (1, 2, 5, 6), {"kernel": (2, 3), "stride": (1, 1)}),
]:
    full = {"pad": (0, 0), **a}
    ys = ref._pool_out(xs, full["kernel"], full["stride"], full["pad"])

    def pool_args(
        rng: np.random.RandomState, xs: Shape = xs, a: dict[str, Any] = full, last: Shape | None = None
    ) -> list[np.ndarray]:
        x = distinct(xs)(rng)[0]
        y = ref.max_pool2d(x, **a)
        return [x, y, rng.uniform(-1, 1, last or y.shape)]

    CASES += [
        OpCase("max_pool2d", ref.max_pool2d, distinct(xs), full, label=label),
        OpCase("max_pool2d_bwd", ref.max_pool2d_bwd, pool_args, full, label=label, wrt=(2,)),
        OpCase(
            "max_pool2d_take",
            ref.max_pool2d_take,
            lambda rng, xs=xs, f=pool_args: f(rng, last=xs),
            full,
            label=label,
            wrt=(2,),
        ),
    ]
    for include in (False, True):
        f = {**full, "include_pad": include}
        tag = f"{label}-{'with' if include else 'no'}pad"
        CASES += [
            OpCase("avg_pool2d", ref.avg_pool2d, draw([xs]), f, label=tag),
            OpCase("avg_pool2d_bwd", ref.avg_pool2d_bwd, draw([ys]), {**f, "x_shape": xs}, label=tag),
        ]

# ---- normalisation
for label, xs, ps in [("4d", (3, 2, 4, 5), (1, 2, 1, 1)), ("2d", (6, 3), (1, 3))]:

    def bn_bwd_args(rng: np.random.RandomState, xs: Shape = xs, ps: Shape = ps) -> list[np.ndarray]:
        x, gy, w = rng.uniform(-1, 1, xs), rng.uniform(-1, 1, xs), rng.uniform(0.5, 1.5, ps)
        _, mean, _, rstd = ref.batch_norm_train(x, w, w)
        return [x, gy, w, mean, rstd]

    CASES += [
        OpCase(
            "batch_norm_train",
            ref.batch_norm_train,
            ordered(draw([xs]), draw([ps, ps], 0.5, 1.5)),
            {"eps": 1e-5},
            label=label,
            outs=(0,),
            tol=1e-4,
        ),
        OpCase("batch_norm_bwd", ref.batch_norm_bwd, bn_bwd_args, label=label, wrt=(0, 1, 2), tol=1e-4),
        OpCase(
            "batch_norm_infer",
            ref.batch_norm_infer,
            ordered(draw([xs]), draw([ps] * 4, 0.5, 1.5)),
            {"eps": 1e-5},
            label=label,
        ),
    ]
    for act in ref.NORM_ACTS:
        fused = {"eps": 1e-5, "act": act}
        args = ordered(draw([xs]), draw([ps, ps], 0.5, 1.5))
        CASES += [
            OpCase("batch_norm_fused", ref.batch_norm_fused, args, fused, label=f"{label}-{act}", tol=1e-4, **NO_GRAD),
            OpCase(
                "batch_norm_fused_bwd",
                ref.batch_norm_fused_bwd,
                lambda rng, make=bn_bwd_args, ps=ps: [*make(rng), rng.uniform(-0.5, 0.5, ps)],
                {"act": act},
                label=f"{label}-{act}",
                tol=1e-4,
                **NO_GRAD,
            ),
        ]
    CASES.append(
        OpCase(
            "batch_norm_fused",
            ref.batch_norm_fused,
            ordered(draw([xs]), draw([ps, ps], 0.5, 1.5), draw([xs])),
            {"eps": 1e-5, "act": "relu", "has_add": True},
            label=f"{label}-add-relu",
            tol=1e-4,
            **NO_GRAD,
        )
    )
for label, xs, n in [("last", (3, 4, 8), 1), ("two", (2, 3, 4), 2)]:

    def ln_bwd_args(rng: np.random.RandomState, xs: Shape = xs, n: int = n) -> list[np.ndarray]:
        x, gy, w = rng.uniform(-1, 1, xs), rng.uniform(-1, 1, xs), rng.uniform(0.5, 1.5, xs[len(xs) - n :])
        _, mean, rstd = ref.layer_norm(x, n_axes=n)
        return [x, gy, mean, rstd, w]

    param = xs[len(xs) - n :]
    CASES += [
        OpCase("layer_norm", ref.layer_norm, ordered(draw([xs]), draw([param, param], 0.5, 1.5)), {"n_axes": n, "eps": 1e-5}, label=label, outs=(0,), tol=1e-4),
        OpCase("layer_norm", ref.layer_norm, draw([xs]), {"n_axes": n, "eps": 1e-5}, label=label + "-plain", outs=(0,), tol=1e-4),
        OpCase("layer_norm_bwd", ref.layer_norm_bwd, ln_bwd_args, {"n_axes": n}, label=label, wrt=(0, 1, 4), tol=1e-4),
    ]  # fmt: skip

# ---- softmax, losses
for label, xs, axis in [("last", (3, 7), 1), ("middle", (2, 5, 3), 1), ("first", (4, 3), 0)]:
    lab = tuple(d for i, d in enumerate(xs) if i != axis)

    def labels(rng: np.random.RandomState, xs: Shape = xs, axis: int = axis, lab: Shape = lab) -> list[np.ndarray]:
        return [rng.randint(0, xs[axis], lab).astype(np.int32)]

    def soft_args(
        rng: np.random.RandomState, fn: Any = ref.softmax, xs: Shape = xs, axis: int = axis
    ) -> list[np.ndarray]:
        return [fn(rng.uniform(-2, 2, xs), axis), rng.uniform(-1, 1, xs)]

    CASES += [
        OpCase("softmax", ref.softmax, draw([xs], -4, 4), {"axis": axis}, label=label),
        OpCase("logsoftmax", ref.logsoftmax, draw([xs], -4, 4), {"axis": axis}, label=label),
        OpCase("softmax_bwd", ref.softmax_bwd, soft_args, {"axis": axis}, label=label),
        OpCase("logsoftmax_bwd", ref.logsoftmax_bwd, lambda rng, f=soft_args: f(rng, ref.logsoftmax), {"axis": axis}, label=label),
        OpCase("softmax_xent", ref.softmax_xent, ordered(draw([xs], -4, 4), labels), {"axis": axis}, label=label, outs=(0,)),
        OpCase("softmax_xent_bwd", ref.softmax_xent_bwd,
               lambda rng, f=labels, xs=xs, axis=axis, lab=lab: [ref.softmax(rng.uniform(-1, 1, xs), axis), *f(rng), rng.uniform(-1, 1, lab)],
               {"axis": axis}, label=label),
    ]  # fmt: skip

# ---- running sums and products
for scan_axis, scan_shape in ((0, (7,)), (-1, (2, 3, 5)), (1, (2, 4, 70)), (0, (0, 3)), (0, (9, 1))):
    for back in (False, True):
        label = f"{'x'.join(map(str, scan_shape))}-{'back' if back else 'forth'}"
        CASES += [
            *(OpCase("cumsum", ref.cumsum, draw([scan_shape]), {"axis": scan_axis, "exclusive": e, "reverse": back}, label=f"{label}-{int(e)}") for e in (False, True)),
            OpCase("cumprod", ref.cumprod, draw([scan_shape], 0.3, 1.5), {"axis": scan_axis, "reverse": back}, label=label),
            OpCase("affine_scan", ref.affine_scan, draw([scan_shape, scan_shape], -0.9, 0.9), {"axis": scan_axis, "reverse": back}, label=label),
        ]  # fmt: skip
CASES += [
    OpCase("cumsum", ref.cumsum, ints((3, 4)), {"axis": 1}, label="int32", **NO_GRAD),
    OpCase("cumprod", ref.cumprod, lambda rng: [np.array([[1.5, 0.0, 2.0, 0.0, 3.0]])], {"axis": 1}, label="zeros"),
]

# ---- optimizer steps
for wd in (0.0, 0.01):
    CASES += [
        OpCase("sgd_update", ref.sgd_update, ordered(draw([(3, 7), (3, 7)]), lambda rng: [np.array(0.1)]), {"weight_decay": wd}, label=f"wd{wd}", **NO_GRAD),
        *(OpCase("sgd_momentum_update", ref.sgd_momentum_update, ordered(draw([(3, 7), (3, 7)]), lambda rng: [np.array(0.1)], draw([(3, 7)])),
                 {"momentum": 0.9, "weight_decay": wd, "nesterov": n}, label=f"wd{wd}-nesterov{int(n)}", **NO_GRAD) for n in (False, True)),
        *(OpCase("adam_update", ref.adam_update,
                 ordered(draw([(3, 7), (3, 7), (3, 7)]), draw([(3, 7)], 0.1, 1), lambda rng: [np.array(0.01), np.array(3.0)]),
                 {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": wd, "decoupled": d}, label=f"wd{wd}-decoupled{int(d)}", tol=1e-4, **NO_GRAD)
          for d in (False, True)),
        *(OpCase("lamb_direction", ref.lamb_direction,
                 ordered(draw([(3, 7), (3, 7), (3, 7)]), draw([(3, 7)], 0.1, 1), lambda rng: [np.array(3.0)]),
                 {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": wd, "bias_correction": d}, label=f"wd{wd}-corrected{int(d)}", tol=1e-4, **NO_GRAD)
          for d in (False, True)),
        OpCase("adagrad_update", ref.adagrad_update, ordered(draw([(3, 7), (3, 7)]), draw([(3, 7)], 0.1, 1), lambda rng: [np.array(0.1), np.array(4.0)]),
               {"lr_decay": 0.2, "eps": 1e-10, "weight_decay": wd}, label=f"wd{wd}", **NO_GRAD),
        OpCase("adadelta_update", ref.adadelta_update, ordered(draw([(3, 7), (3, 7)]), draw([(3, 7), (3, 7)], 0.1, 1), lambda rng: [np.array(0.1)]),
               {"rho": 0.9, "eps": 1e-6, "weight_decay": wd}, label=f"wd{wd}", **NO_GRAD),
    ]  # fmt: skip

# The same with the numbers in a tensor (exact in float32), and skipped: nothing happens.
for skip in (False, True):
    CASES += [
        OpCase(name, ref.with_hyper(getattr(ref, name), names, kept),
               ordered(args, lambda rng, n=numbers: [np.array(n)], lambda rng, v=skip: [np.array(v)]), attrs,
               label=f"hyper-skip{int(skip)}", tol=1e-4, **NO_GRAD)
        for name, args, names, numbers, kept, attrs in (
            ("sgd_update", ordered(draw([(3, 7), (3, 7)]), lambda rng: [np.array(0.1)]), ["weight_decay"], [0.25], [0], {}),
            ("sgd_momentum_update", ordered(draw([(3, 7), (3, 7)]), lambda rng: [np.array(0.1)], draw([(3, 7)])),
             ["momentum", "weight_decay"], [0.75, 0.25], [0, 3], {"nesterov": True}),
            ("adam_update", ordered(draw([(3, 7), (3, 7), (3, 7)]), draw([(3, 7)], 0.1, 1), lambda rng: [np.array(0.01), np.array(3.0)]),
             ["beta1", "beta2", "eps", "weight_decay"], [0.75, 0.875, 0.125, 0.25], [0, 2, 3], {"decoupled": True}),
            ("lamb_direction", ordered(draw([(3, 7), (3, 7), (3, 7)]), draw([(3, 7)], 0.1, 1), lambda rng: [np.array(3.0)]),
             ["beta1", "beta2", "eps", "weight_decay"], [0.75, 0.875, 0.125, 0.25], [1, 2, 3], {}),
            ("adagrad_update", ordered(draw([(3, 7), (3, 7)]), draw([(3, 7)], 0.1, 1), lambda rng: [np.array(0.1), np.array(4.0)]),
             ["lr_decay", "eps", "weight_decay"], [0.25, 0.125, 0.25], [0, 2], {}),
            ("adadelta_update", ordered(draw([(3, 7), (3, 7)]), draw([(3, 7), (3, 7)], 0.1, 1), lambda rng: [np.array(0.1)]),
             ["rho", "eps", "weight_decay"], [0.75, 0.125, 0.25], [0, 2, 3], {}),
        )
    ]  # fmt: skip


# ---- simulated quantisation; values keep away from halves, where float32 and float64 may round apart
for shapes, label in (
    (((7,), (1,), (1,)), "one"),
    (((2, 3, 17), (), ()), "scalar"),
    (((4, 3, 5, 5), (1, 3, 1, 1), (1, 3, 1, 1)), "per-channel"),
    (((4, 3, 3, 3), (4, 1, 1, 1), (1,)), "per-filter"),
    (((3, 5), (3, 5), (5,)), "per-element"),
    (((5,), (3, 1), (1,)), "broadcast"),
    (((0, 3), (1,), (1,)), "empty"),
):
    CASES += [
        OpCase(name, fn, ref.quantisable(shapes, learnt), {"qmin": -8, "qmax": 7}, label=label, **STAIRCASE)
        for name, fn, learnt in (
            ("fake_quant", ref.fake_quant, "scale"),
            ("tqt", lambda x, e, qmin, qmax: ref.fake_quant(x, 2.0**e, 0, qmin, qmax), "exponent"),
            ("lsq", lambda x, s, z, f, qmin, qmax: ref.fake_quant(x, s, z, qmin, qmax), "step"),
        )
    ]


# ---- random
def skipped(state: np.ndarray, n: int) -> np.ndarray:
    words = state.view(np.uint32).astype(np.uint64)
    counter = (int(words[2]) | int(words[3]) << 32) + (n + 3) // 4
    return np.array([words[0], words[1], counter & 0xFFFFFFFF, counter >> 32 & 0xFFFFFFFF], np.uint32).view(np.int32)


CASES += [
    OpCase("rng_skip", skipped, lambda rng: [np.array([7, 1, -3, 5], np.int32)], {"n": n}, label=str(n), **NO_GRAD)
    for n in (0, 1, 9, 2**30)
]

for family in (op_cases_dist, op_cases_index, op_cases_linalg, op_cases_sequence, op_cases_vision):
    CASES += family.CASES

# Ops checked by tests of their own, and why they have no row above.
ELSEWHERE = {
    "rng_bits": "random: test_primitives.py compares its words with a Philox in NumPy",
    "rng_uniform": "random: test_random.py checks distribution, determinism and thread independence",
    "rng_normal": "random: test_random.py",
    "dropout": "random: test_random.py checks mask, scale and gradient",
    "quantize": "its result has a quantised dtype: test_quantized_dtypes.py compares with NumPy",
    "dequantize": "its input has a quantised dtype: test_quantized_dtypes.py",
    "qconv2d": "its operands are quantised: test_quantized_ops.py compares with sums in NumPy's int64",
    "qconv2d_dx": "its operands are quantised: test_quantized_ops.py",
    "qmatmul": "its operands are quantised: test_quantized_ops.py",
    "fused": "made by a pass: tests/cpp/pass and tests/cpp/jit compare it with the unfused graph",
    "custom": "an operator of a user's library: test_custom_op.py",
    "complex": "complex64 has no float64 to differentiate in: test_complex.py",
    "real": "test_complex.py",
    "imag": "test_complex.py",
    "rng_gamma": "random: test_random.py checks moments, distribution, determinism and thread independence",
    "rng_poisson": "random: test_random.py",
    "rng_multinomial": "random: test_random.py",
    "rng_permutation": "random: test_random.py",
    "dist_send": "takes two processes: test_dist_engine.py",
    "dist_recv": "takes two processes: test_dist_engine.py",
}
