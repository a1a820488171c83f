"""Recurrent cells and stacks against loops in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor
from megengine.autodiff import GradManager
from megengine.core import _core

RNG = np.random.default_rng(5)


def rand(*shape: int) -> Tensor:
    return Tensor(RNG.standard_normal(shape).astype("float32"))


def np_sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_recurrent_cells():
    x, h, c = rand(4, 3), rand(4, 2), rand(4, 2)
    cell = M.RNNCell(3, 2)
    w = {k: v.numpy().astype("float64") for k, v in cell.named_tensors()}
    want = np.tanh(x.numpy() @ w["weight_ih"].T + w["bias_ih"] + h.numpy() @ w["weight_hh"].T + w["bias_hh"])
    np.testing.assert_allclose(cell(x, h).numpy(), want, rtol=1e-5, atol=1e-6)
    lstm = M.LSTMCell(3, 2)
    w = {k: v.numpy().astype("float64") for k, v in lstm.named_tensors()}
    g = x.numpy() @ w["weight_ih"].T + w["bias_ih"] + h.numpy() @ w["weight_hh"].T + w["bias_hh"]
    i, f, n, o = np.split(g, 4, axis=1)
    want_c = np_sigmoid(f) * c.numpy() + np_sigmoid(i) * np.tanh(n)
    got_h, got_c = lstm(x, (h, c))
    np.testing.assert_allclose(got_c.numpy(), want_c, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got_h.numpy(), np_sigmoid(o) * np.tanh(want_c), rtol=1e-5, atol=1e-6)
    bare = M.RNNCell(3, 2, bias=False)
    assert set(dict(bare.named_buffers())) == {"bias_ih", "bias_hh"} and bare(x).shape == (4, 2)
    assert (M.RNNCell(3, 2, nonlinearity="relu")(x).numpy() >= 0).all()
    with pytest.raises(ValueError):
        M.RNNCell(3, 2, nonlinearity="sin")


@pytest.mark.parametrize("bidirectional", [False, True])
def test_lstm_matches_cells(bidirectional):
    net = M.LSTM(3, 2, num_layers=2, bidirectional=bidirectional, batch_first=True)
    d = 2 if bidirectional else 1
    x = rand(4, 5, 3)
    y, (h, c) = net(x)
    assert y.shape == (4, 5, 2 * d) and h.shape == c.shape == (2 * d, 4, 2)
    weights = net._weights()
    steps = [x[:, t] for t in range(5)]
    for layer in range(2):
        outs = []
        for k in range(d):
            cell = M.LSTMCell(steps[0].shape[1], 2)
            for name, value in zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), weights[layer][k]):
                getattr(cell, name)._reset(value.detach())
            state = None
            mine = []
            for t in range(5) if k == 0 else range(4, -1, -1):
                state = cell(steps[t], state)
                mine.append(state[0])
            outs.append(mine if k == 0 else mine[::-1])
            np.testing.assert_allclose(h.numpy()[layer * d + k], state[0].numpy(), rtol=1e-5, atol=1e-6)
        steps = [F.concat(list(p), axis=1) for p in zip(*outs)]
    np.testing.assert_allclose(y.numpy(), F.stack(steps, 1).numpy(), rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError):
        M.RNN(3, 2, dropout=2)


@pytest.mark.parametrize("kind", [M.RNN, M.LSTM])
def test_dropout_lies_between_recurrent_layers(kind):
    x = rand(6, 3, 4)
    one, two = kind(4, 8, num_layers=1, dropout=0.5), kind(4, 8, num_layers=2, dropout=0.5)
    np.testing.assert_array_equal(one(x)[0].numpy(), one(x)[0].numpy())  # nothing follows the only layer
    mge.random.seed(3)
    first = two(x)[0].numpy()
    assert not np.allclose(first, two(x)[0].numpy())
    mge.random.seed(3)
    np.testing.assert_array_equal(two(x)[0].numpy(), first)
    two.eval()
    quiet = two(x)[0].numpy()
    two.train()
    mean = np.mean([two(x)[0].numpy() for _ in range(300)], axis=0)
    assert np.abs(mean - quiet).mean() < 0.5 * np.abs(first - quiet).mean()  # the noise averages out
    two.dropout = 1.0
    silent, silent2 = two(x)[0].numpy(), two(Tensor(np.zeros_like(np.asarray(x))))[0].numpy()
    np.testing.assert_array_equal(silent, silent2)  # the second layer sees zeros alone


def numpy_rnn(net: M.RNNBase, x: np.ndarray, lstm: bool):
    """Layers, directions, steps; (L, N, in) in float64."""
    at, flat = 0, net._flatten_weights.numpy().astype("float64").reshape(-1)
    rows, hidden, directions = net._flatten_weights.shape[0], net.hidden_size, 2 if net.bidirectional else 1
    last_h, last_c = [], []
    for _ in range(net.num_layers):
        outs = []
        for d in range(directions):
            width = x.shape[2]
            sizes = [(rows, width), (rows, hidden)] + ([(rows,), (rows,)] if net.bias else [])
            parts = []
            for s in sizes:
                n = int(np.prod(s))
                parts.append(flat[at : at + n].reshape(s))
                at += n
            w, u = parts[:2]
            b = sum(parts[2:]) if net.bias else 0.0
            h = c = np.zeros((x.shape[1], hidden))
            out = np.zeros((x.shape[0], x.shape[1], hidden))
            for t in range(len(x)) if d == 0 else reversed(range(len(x))):
                g = x[t] @ w.T + h @ u.T + b
                if lstm:
                    i, f, n, o = np.split(g, 4, axis=1)
                    c = c / (1 + np.exp(-f)) + np.tanh(n) / (1 + np.exp(-i))
                    h = np.tanh(c) / (1 + np.exp(-o))
                else:
                    h = np.tanh(g) if net.nonlinearity == "tanh" else np.maximum(g, 0)
                out[t] = h
            outs.append(out)
            last_h.append(h)
            last_c.append(c)
        x = np.concatenate(outs, axis=2)
    assert at == flat.size
    return x, np.stack(last_h), np.stack(last_c)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("kind", ["tanh", "relu", "lstm"])
def test_recurrent_stacks_against_numpy(kind, layers, bidirectional, bias):
    args = {"num_layers": layers, "bidirectional": bidirectional, "bias": bias}
    net = M.LSTM(3, 4, **args) if kind == "lstm" else M.RNN(3, 4, nonlinearity=kind, **args)
    x = rand(5, 2, 3)
    want, want_h, want_c = numpy_rnn(net, x.numpy().astype("float64"), kind == "lstm")
    got, state = net(x)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-5)
    h = state[0] if kind == "lstm" else state
    np.testing.assert_allclose(h.numpy(), want_h, rtol=1e-4, atol=1e-5)
    if kind == "lstm":
        np.testing.assert_allclose(state[1].numpy(), want_c, rtol=1e-4, atol=1e-5)


def test_a_recurrent_net_goes_on_from_its_state():
    net = M.LSTM(3, 4, num_layers=2)
    x = rand(6, 2, 3)
    whole, _ = net(x)
    first, state = net(x[:4])
    second, _ = net(x[4:], state)
    np.testing.assert_allclose(F.concat([first, second]).numpy(), whole.numpy(), rtol=1e-5, atol=1e-6)


def test_a_recurrent_net_of_public_attributes_runs():
    """As MegEngine pickles one: nothing that only this implementation has is among its attributes."""
    net = M.RNN(3, 4, nonlinearity="relu")
    x = Tensor(np.random.default_rng(0).standard_normal((5, 2, 3)).astype("float32"))
    want = net(x)[0].numpy()
    assert not {"_mode", "_cell_mode"} & set(vars(net))
    net.nonlinearity = "tanh"
    assert not np.array_equal(net(x)[0].numpy(), want)


def test_only_the_flat_weights_get_gradients():
    net = M.LSTM(3, 4, num_layers=2, bidirectional=True)
    with GradManager().attach(net.parameters()) as gm:
        y, (h, c) = net(rand(5, 2, 3))
        gm.backward((y * y).sum() + c.sum())
    assert net._flatten_weights.grad.shape == net._flatten_weights.shape and net.cells[0][0].weight_ih.grad is None
    # Every number takes part.
    assert (net._flatten_weights.grad.numpy() != 0).mean() > 0.99


def test_dropout_between_recurrent_layers():
    mge.random.seed(3)
    net = M.RNN(3, 64, num_layers=2, dropout=0.5)
    x = rand(4, 2, 3)
    y1, h1 = net(x)
    y2, h2 = net(x)
    assert not np.allclose(y1.numpy(), y2.numpy())
    np.testing.assert_array_equal(h1.numpy()[0], h2.numpy()[0])  # the first layer is not touched
    net.eval()
    np.testing.assert_array_equal(net(x)[0].numpy(), net(x)[0].numpy())
    one = M.RNN(3, 4, dropout=0.5)  # nothing lies between one layer
    np.testing.assert_array_equal(one(x)[0].numpy(), one(x)[0].numpy())
    all_gone = M.RNN(3, 4, num_layers=2, dropout=1, bias=False)
    assert not all_gone(x)[0].numpy().any()


def test_dropout_between_recurrent_layers_is_applied_once():
    mge.random.seed(4)
    net = M.RNN(64, 64, num_layers=2, dropout=0.5, bias=False, nonlinearity="relu")
    # Both layers hand on what they get: W_ih is the identity, W_hh is 0.
    net._flatten_weights[...] = np.tile(np.concatenate([np.eye(64), np.zeros((64, 64))]).reshape(-1), 2).reshape(64, -1)
    y = net(F.ones((8, 16, 64)))[0].numpy()
    assert set(np.unique(y)) == {0, 2}  # 4 where dropout came twice
    assert abs((y == 0).mean() - 0.5) < 0.03  # 8192 draws: 5.4 standard deviations


def test_dropout_between_layers_falls_once():
    """Half of what the first layer gives reaches the second, doubled; it was dropped twice once."""
    mge.random.seed(0)
    net = M.RNN(1, 400, num_layers=2, dropout=0.5, bias=False, nonlinearity="relu")
    w = np.zeros((400, 1 + 400 + 400 + 400), "float32").reshape(-1)
    w[:400] = 1.0  # the first layer gives the input, 400 times
    second = w[400 + 400 * 400 :][: 400 * 400].reshape(400, 400)
    second[...] = np.eye(400)  # the second gives what reaches it
    net._flatten_weights[...] = Tensor(w.reshape(400, -1))
    y = net(F.ones((6, 5, 1)))[0].numpy()
    assert set(np.unique(y)) == {0.0, 2.0}
    assert abs((y == 0).mean() - 0.5) < 0.03


def test_recurrent_arguments():
    with pytest.warns(UserWarning, match="proj_size is kept but has no effect"):
        net = M.LSTM(3, 4, proj_size=2)
    assert net(rand(5, 2, 3))[0].shape == (5, 2, 4)
    for bad in ({"dropout": True}, {"dropout": -0.1}, {"dropout": "x"}, {"proj_size": 4}, {"proj_size": -1}):
        with pytest.raises(ValueError):
            M.LSTM(3, 4, **bad)
    with pytest.raises(ValueError, match="tanh or relu"):
        M.RNN(3, 4, nonlinearity="sin")
    assert M.RNN(3, 4).init_hidden(2).shape == (1, 2, 4) and len(M.LSTM(3, 4).init_hidden(2)) == 2


@pytest.mark.parametrize("bad", [(3,), (2, 4), (2, 2, 3)])
def test_a_cell_takes_a_batch_of_rows(bad):
    for cell in (M.RNNCell(3, 4), M.LSTMCell(3, 4)):
        with pytest.raises(RuntimeError, match=r"the input must be \(N, 3\); got"):
            cell(rand(*bad))


def test_states_that_do_not_fit():
    x, h = rand(5, 2, 3), rand(1, 2, 4)
    for net, bad in (
        (M.LSTM(3, 4), h),
        (M.LSTM(3, 4), (h,)),
        (M.LSTM(3, 4), (h, rand(1, 3, 4))),
        (M.RNN(3, 4), (h, h)),
        (M.RNN(3, 4), rand(2, 2, 4)),
    ):
        with pytest.raises(RuntimeError, match=r"the state must be .* of shape \(1, 2, 4\); got"):
            net(x, bad)
    with pytest.raises(TypeError, match=r"must be a tuple \(h, c\)"):
        M.LSTMCell(3, 4)(rand(2, 3), rand(2, 4))
    with pytest.raises(TypeError, match="must be a tensor h"):
        M.RNNCell(3, 4)(rand(2, 3), (rand(2, 4), rand(2, 4)))
    for bad in (rand(5, 2), rand(5, 2, 4), rand(0, 2, 3)):
        with pytest.raises(RuntimeError, match=r"the input must be \(L, N, 3\)"):
            M.RNN(3, 4)(bad)
    with pytest.raises(RuntimeError, match=r"the input must be \(N, L, 3\)"):
        M.RNN(3, 4, batch_first=True)(rand(2, 5, 4))


@pytest.mark.parametrize("batch", [1, 7, 23, 40])
def test_threads_and_caches_do_not_change_a_bit(batch: int) -> None:
    """However the batch and the units are cut: by rows alone, where a thread goes through all steps, or by both."""
    ops, hidden, steps = _core.ops, 37, 5
    gates, w, h0, c0 = (
        rand(steps, batch, 4 * hidden),
        rand(4 * hidden, hidden),
        rand(batch, hidden),
        rand(batch, hidden),
    )
    ghs, gcs = rand(steps, batch, hidden), rand(steps, batch, hidden)
    before, threads = _core.get_option("piece_ns"), _core.get_num_threads()
    results = []
    try:
        for piece, count in ((before, 1), (0, 2), (0, 3), (0, 8)):
            _core.set_option("piece_ns", piece)
            _core.set_num_threads(count)
            hs, cs, acts = ops.recurrence(gates, w, h0, c0, mode="lstm")
            back = ops.recurrence_bwd(w, hs, ghs, acts, cs, c0, gcs, mode="lstm")
            results.append([t.numpy().copy() for t in (hs, cs, acts, *back)])
    finally:
        _core.set_option("piece_ns", before)
        _core.set_num_threads(threads)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
