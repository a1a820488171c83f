"""Attention as a layer, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import megengine as mge
import megengine.module as M
from megengine import Tensor

RNG = np.random.default_rng(5)


def rand(*shape: int) -> Tensor:
    return Tensor(RNG.standard_normal(shape).astype("float32"))


def test_attention_layer():
    m = M.MultiHeadAttention(8, 2, attn_dropout=0.1)
    assert m.io_weight_bias.shape == (1, 4 * 64 + 32)
    assert m.attn_dropout == 0.1  # not lost at construction
    assert not m.io_weight_bias.numpy()[:, -32:].any()
    assert "embed_dim=8" in repr(m)
    m.eval()
    x = rand(2, 3, 8)
    y, w = m(x, x, x, need_weights=True)
    assert y.shape == (2, 3, 8) and w.shape == (4, 3, 3)
    with pytest.raises(AssertionError):
        M.MultiHeadAttention(8, 3)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("mask", ["none", "causal", "padding", "additive", "bool", "per-head"])
def test_attention_against_numpy(mask, bias):
    n, length, source, width, heads = 2, 3, 5 if mask != "causal" else 3, 8, 2
    m = M.MultiHeadAttention(width, heads, kdim=6, vdim=7, bias=bias)
    m.eval()
    m.io_weight_bias[...] = rand(*m.io_weight_bias.shape)
    q, k, v = rand(n, length, width), rand(n, source, 6), rand(n, source, 7)
    flat = m.io_weight_bias.numpy().astype("float64").reshape(-1)
    at, weights, biases = 0, [], []
    for rows in (width, 6, 7, width):
        weights.append(flat[at : at + rows * width].reshape(rows, width))
        at += rows * width
    for _ in range(4):
        biases.append(flat[at : at + width] if bias else 0.0)
        at += width if bias else 0
    assert at == flat.size
    qh, kh, vh = (
        (x.numpy() @ w + b).reshape(n, -1, heads, width // heads).transpose(0, 2, 1, 3)
        for x, w, b in zip((q, k, v), weights, biases)
    )
    scores = qh @ kh.transpose(0, 1, 3, 2) / np.sqrt(width // heads)
    args = {}
    if mask == "causal":
        args["is_causal"] = True
        scores = scores + np.triu(np.full((length, source), -np.inf), 1)
    elif mask == "padding":
        hidden = np.zeros((n, source), bool)
        hidden[0, 3:] = hidden[1, 1] = True
        args["key_padding_mask"] = Tensor(hidden)
        scores = np.where(hidden[:, None, None], -np.inf, scores)
    elif mask == "additive":
        add = RNG.standard_normal((length, source)).astype("float32")
        args["attn_mask"] = Tensor(add)
        scores = scores + add
    elif mask == "bool":
        hidden = np.zeros((length, source), bool)
        hidden[1, 2] = True
        args["attn_mask"] = Tensor(hidden)
        scores = np.where(hidden, -np.inf, scores)
    elif mask == "per-head":
        add = RNG.standard_normal((n * heads, length, source)).astype("float32")
        args["attn_mask"] = Tensor(add)
        scores = scores + add.reshape(n, heads, length, source)
    attention = np.exp(scores - scores.max(-1, keepdims=True))
    attention /= attention.sum(-1, keepdims=True)
    want = (attention @ vh).transpose(0, 2, 1, 3).reshape(n, length, width) @ weights[3] + biases[3]
    got, w = m(q, k, v, need_weights=True, **args)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(w.numpy(), attention.reshape(n * heads, length, source), rtol=1e-3, atol=1e-5)
    _, average = m(q, k, v, need_weights=True, average_attn_weights=True, **args)
    np.testing.assert_allclose(average.numpy(), attention.mean(1), rtol=1e-3, atol=1e-5)
    assert m(q, k, v, **args)[1] is None


def test_attention_dropout_only_in_training():
    mge.random.seed(0)
    m = M.MultiHeadAttention(8, 2, attn_dropout=0.5, out_dropout=0.5)
    x = rand(2, 4, 8)
    assert not np.allclose(m(x, x, x)[0].numpy(), m(x, x, x)[0].numpy())
    m.eval()
    np.testing.assert_array_equal(m(x, x, x)[0].numpy(), m(x, x, x)[0].numpy())
    for bad in ({"add_bias_kv": True}, {"add_zero_attn": True}):
        with pytest.raises(AssertionError):
            M.MultiHeadAttention(8, 2, **bad)
