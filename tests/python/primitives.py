"""The ops that every device needs kernels for, besides the elementwise ones, and why each is not written in others.

test_primitives.py keeps the table complete and true; tools/coverage.py counts by it. Elementwise ops are primitives as
a family: their scalar bodies are what a code generator takes. Everything else has a ``decompose`` rule.
"""

from __future__ import annotations

_VIEW = "moves elements; a view wherever strides allow, else one strided copy"
_WHOLE = "what libraries are written for; its adjoints are as heavy as itself"
_POOL = "a window per element; a device has it beside convolution"
_SUM = "sums of products that must be exact integers, which floating point cannot promise"
_STORE = "the only way in and out of its dtype"

PRIMITIVES: dict[str, str] = {
    "reshape": _VIEW,
    "transpose": _VIEW,
    "broadcast_to": _VIEW,
    "slice": _VIEW,
    "set_slice": "the adjoint of slice; a strided copy",
    "concat": "several strided copies",
    "copy": "one strided copy",
    "copy_to": "crosses from one device to another",
    "custom": "whatever a user's library computes",
    "full": "makes a tensor from nothing",
    "reduce": "the only op that joins elements",
    "sort": "order; topk and the rest are picked from it",
    "index_get": "reads at positions that are values",
    "index_set": "writes at positions that are values",
    "index_incr": "adds at positions that are values, equal ones in order",
    "wrap_index": "looks at values and raises",
    "check_range": "looks at values and raises",
    "matmul": _WHOLE,
    "conv2d": _WHOLE,
    "conv2d_dx": _WHOLE,
    "conv2d_dw": _WHOLE,
    "max_pool2d": _POOL,
    "max_pool2d_bwd": _POOL,
    "avg_pool2d": _POOL,
    "avg_pool2d_bwd": _POOL,
    "rng_bits": "the random words that draws are made from",
    "rng_permutation": "each swap depends on those before it",
    "matinv": "pivots depend on values",
    "svd": "rotations go on until values say stop",
    "nms": "each choice depends on those before it",
    "complex": _STORE,
    "real": _STORE,
    "imag": _STORE,
    "quantize": _STORE,
    "dequantize": _STORE,
    "qconv2d": _SUM,
    "qconv2d_dx": _SUM,
    "qmatmul": _SUM,
} | dict.fromkeys(
    (
        *("dist_all_reduce", "dist_reduce", "dist_broadcast", "dist_all_gather", "dist_reduce_scatter"),
        *("dist_gather", "dist_scatter", "dist_all_to_all", "dist_send", "dist_recv"),
    ),
    "other processes take part: a device has them from its process group",
)
