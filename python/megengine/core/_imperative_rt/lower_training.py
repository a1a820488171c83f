"""What the op classes of recurrent networks, of optimizers and of fused or backward passes mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import functional as F
from ...functional import attention
from ...module.rnn import cut_weights, lstm_step, run_layers
from ...optimizer.lamb import lamb_step
from ...tensor import Tensor
from .._core import ops
from .rules import RULES, pullback, rule

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "IDENTITY": lambda x: x,
    "RELU": ops.relu,
    "TANH": ops.tanh,
    "SIGMOID": ops.sigmoid,
    "H_SWISH": ops.hswish,
}


def _activation(op: Any) -> Callable[[Tensor], Tensor]:
    return ACTIVATIONS[op.nonlineMode.members()[0]]


def _gates(x: Tensor, w_ih: Tensor, b_ih: Tensor, h: Tensor, w_hh: Tensor, b_hh: Tensor) -> Tensor:
    return F.linear(x, w_ih, b_ih) + F.linear(h, w_hh, b_hh)


RULES["RNNCell"] = lambda op, *inputs: _activation(op)(_gates(*inputs))


@rule("LSTMCell")
def _lstm_cell(
    op: Any, x: Tensor, w_ih: Tensor, b_ih: Tensor, h: Tensor, w_hh: Tensor, b_hh: Tensor, c: Tensor
) -> Sequence[Tensor]:
    gates = _gates(x, w_ih, b_ih, h, w_hh, b_hh)
    return (*lstm_step(gates, [h, c]), gates)


def _recurrent(op: Any, chunks: int, mode: str, x: Tensor, states: Sequence[Tensor], packed: Tensor) -> list[Tensor]:
    """Outputs, last states, and an empty tensor where the original keeps notes for its backward pass."""
    directions = 2 if op.bidirectional else 1
    inputs = [x.shape[2]] + [directions * op.hidden_size] * (op.num_layers - 1)
    weights = cut_weights(packed, chunks * op.hidden_size, inputs, op.hidden_size, directions, bool(op.bias))
    training = op.fwd_mode == "TRAINING"
    y, last = run_layers(x, states, weights, mode, lambda v: F.dropout(v, op.dropout, training))
    return [y, *last, F.zeros((0,))]


@rule("RNN")
def _rnn(op: Any, x: Tensor, h: Tensor, packed: Tensor) -> Sequence[Tensor]:
    mode = op.nonlineMode.members()[0].lower()
    if mode not in ("tanh", "relu"):
        raise NotImplementedError(f"RNN: nonlineMode must be TANH or RELU; got {mode.upper()}.")
    return _recurrent(op, 1, mode, x, [h], packed)


@rule("LSTM")
def _lstm(op: Any, x: Tensor, h: Tensor, c: Tensor, packed: Tensor) -> Sequence[Tensor]:
    if op.proj_size:
        raise NotImplementedError(f"LSTM: proj_size {op.proj_size} is not there; only 0 is.")
    return _recurrent(op, 4, "lstm", x, [h, c], packed)


@rule("MultiHeadAttn")
def _multi_head_attention(
    op: Any, query: Tensor, key: Tensor, value: Tensor, weights: Tensor, *rest: Tensor
) -> Sequence[Tensor]:
    """The result, the attention weights (N * heads, L, S), and empty tensors where the original keeps notes."""
    if op.tensor_combination_type in ("ONLY_BIASKV", "ALL") or op.add_zero_attn or op.reslink or op.input_order:
        raise NotImplementedError("MultiHeadAttn: takes no bias_k, bias_v, add_zero_attn, reslink or input_order.")
    mask = None
    if op.attn_mask_type != "NO_MASK":
        mask = rest[0] if rest else attention._causal(query, key)
    out, seen = attention._attend(
        query,
        key,
        value,
        op.num_heads,
        weights,
        (op.qproj_size, op.kproj_size, op.vproj_size, op.oproj_size),
        (op.qbias, op.kbias, op.vbias, op.obias),
        op.sm_scaler,
        None,
        mask,
        lambda x: F.dropout(x, op.attn_prob, op.training),
        lambda x: F.dropout(x, op.out_prob, op.training),
    )
    n, heads, length, source = seen.shape
    return out, seen.reshape(n * heads, length, source), F.zeros((0,)), F.zeros((0,))


@rule("LAMBUpdate")
def _lamb(op: Any, m: Tensor, v: Tensor, w: Tensor, g: Tensor) -> Sequence[Tensor]:
    step = Tensor(float(op.step), device=w.device, is_const=True)
    numbers = {"beta1": op.beta_1, "beta2": op.beta_2, "eps": op.eps, "weight_decay": op.weight_decay}
    direction, m, v = ops.lamb_direction(w, g, m, v, step, **numbers, bias_correction=op.bias_correction)
    return m, v, lamb_step(w, direction, op.lr, op.always_adapt or op.weight_decay > 0)


@rule("BatchNormBackward")
def _batch_norm_backward(
    op: Any, x: Tensor, dy: Tensor, mean: Tensor, rstd: Tensor, scale: Tensor, *reserve: Tensor
) -> Sequence[Tensor]:
    gx, gw, gb = ops.batch_norm_bwd(x, dy, scale, mean, rstd)
    return gw, gb, gx


@rule("ConvBias")
def _conv_bias(op: Any, x: Tensor, weight: Tensor, *rest: Tensor) -> Tensor:
    """Convolution, bias, a tensor of the result's shape, activation; of floats."""
    if x.dtype.kind != "f":
        raise NotImplementedError(f"ConvBias: takes floating-point tensors; got {x.dtype}.")
    y = RULES["Convolution"](op, x, weight)
    for other in rest:
        y = y + other
    return _activation(op)(y)


@rule("RegionRestrictedConvolutionBackwardData")
def _region_backward(op: Any, weight: Tensor, dy: Tensor, rin: Tensor, rout: Tensor) -> Tensor:
    # The sizes of the input are those of the regions it is cut into.
    shape = (dy.shape[0], weight.shape[0] * weight.shape[2], *rin.shape[1:])
    x = F.zeros(shape, device=dy.device)
    return pullback(lambda v: RULES["RegionRestrictedConvolution"](op, v, weight, rin, rout), x, dy)
