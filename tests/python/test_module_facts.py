"""Facts of MegEngine's modules that programs and checkpoints rely on, seen on MegEngine 1.13 with the same inputs."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Parameter, Tensor
from megengine.autodiff import GradManager

RNG = np.random.default_rng(5)


def rand(*shape: int) -> Tensor:
    return Tensor(RNG.standard_normal(shape).astype("float32"))


# ---- what checkpoints hold


@pytest.mark.parametrize(
    "module, state",
    [
        (M.Conv1d(4, 6, 3, groups=2), {"bias": (1, 6, 1), "weight": (2, 3, 2, 3)}),
        (M.Conv2d(4, 6, 3), {"bias": (1, 6, 1, 1), "weight": (6, 4, 3, 3)}),
        (M.Conv3d(4, 6, 3), {"bias": (1, 6, 1, 1, 1), "weight": (6, 4, 3, 3, 3)}),
        (M.ConvTranspose2d(4, 6, 3, groups=2), {"bias": (1, 6, 1, 1), "weight": (2, 2, 3, 3, 3)}),
        (M.LocalConv2d(4, 6, 8, 8, 3, groups=2), {"weight": (2, 6, 6, 2, 3, 3, 3)}),
        (M.BatchMatMulActivation(2, 3, 5), {"bias": (5,), "weight": (2, 5, 3)}),
        (M.BatchNorm2d(4), dict.fromkeys(("bias", "running_mean", "running_var", "weight"), (4,))),
        (M.GroupNorm(2, 4), {"bias": (4,), "weight": (4,)}),
        (M.InstanceNorm(4), {"bias": (4,), "weight": (4,)}),
        (M.LayerNorm((2, 3)), {"bias": (6,), "weight": (6,)}),
        (M.GeneralNorm((2, 3), (1, 2)), {"bias": (2, 3), "weight": (2, 3)}),
        (M.PReLU(4), {"weight": (1, 4, 1, 1)}),
        (M.PReLU(), {"weight": (1,)}),
        (M.Embedding(5, 3), {"weight": (5, 3)}),
        (M.MultiHeadAttention(4, 2, kdim=3, vdim=6), {"io_weight_bias": (1, (4 + 3 + 6 + 4) * 4 + 16)}),
        (
            M.LinearBn1d(3, 2),
            {
                "bias": (2,),
                **{f"bn.{k}": (2,) for k in ("bias", "running_mean", "running_var", "weight")},
                "linear.bias": (2,),
                "linear.weight": (2, 3),
            },
        ),
        (
            M.LSTM(3, 4, num_layers=1),
            {
                "_flatten_weights": (16, 9),
                "cells.0.0.bias_hh": (16,),
                "cells.0.0.bias_ih": (16,),
                "cells.0.0.weight_hh": (16, 4),
                "cells.0.0.weight_ih": (16, 3),
            },
        ),
        (M.RNNCell(3, 4, bias=False), {"bias_hh": (4,), "bias_ih": (4,), "weight_hh": (4, 4), "weight_ih": (4, 3)}),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, M.Module) else "",
)
def test_names_and_shapes_of_the_state(module, state):
    assert {k: v.shape for k, v in module.state_dict().items()} == state
    module.load_state_dict(module.state_dict())


def test_a_shared_tensor_is_under_both_modules_but_once_in_one():
    a, b = M.Linear(2, 2, bias=False), M.Linear(2, 2, bias=False)
    b.weight = a.weight
    net = M.Sequential(a, b)
    assert list(net.state_dict()) == ["0.weight", "1.weight"] and len(list(net.parameters())) == 1
    a.twin = a.weight
    assert list(a.state_dict()) == ["twin"]


def test_load_keeps_format_device_and_identity_and_takes_the_dtype():
    net = M.Conv2d(3, 4, 3)
    net.weight.format = "nhwc"
    weight = net.weight
    state = {k: v.astype("float16") for k, v in net.state_dict().items()}
    net.load_state_dict(state)
    assert net.weight is weight and weight.format == "nhwc" and weight.dtype == np.float16
    assert weight.shape == (4, 3, 3, 3)


# ---- iterators


def test_containers():
    class Net(M.Module):
        def __init__(self):
            super().__init__()
            self.b = M.Linear(1, 1)
            self.a = self.b
            self.t = Parameter([1.0])
            self.l = [self.t, Tensor([2.0])]
            self.d = {"y": M.ReLU(), "x": Tensor([1.0])}
            self.z = (M.ReLU(),)

        def forward(self, x):
            return x

    net = Net()
    assert list(net.state_dict()) == ["d.x", "l.0", "l.1", "a.bias", "a.weight"]
    assert [k for k, _ in net.named_parameters()] == ["a.bias", "a.weight", "l.0"]
    assert [k for k, _ in net.named_buffers()] == ["d.x", "l.1"]
    assert [k for k, _ in net.named_buffers(recursive=False)] == ["d.x", "l.1"]
    assert [k for k, _ in net.named_modules()] == ["", "a", "d.y", "z.0"]
    assert [k for k, _ in net.named_tensors(prefix="q")] == ["q.a.bias", "q.a.weight", "q.d.x", "q.l.0", "q.l.1"]
    assert "(b): Linear" in repr(net) and "(a): Linear" in repr(net) and "(d.y): ReLU()" in repr(net)
    del net.b
    assert "(b)" not in repr(net)


def test_a_hook_may_return_one_input_or_change_the_output_in_place():
    m = M.Linear(2, 3)
    h = m.register_forward_pre_hook(lambda mod, inputs: inputs[0] * 0)  # wrapped into a tuple
    assert not m(rand(1, 2)).numpy().any()
    h.remove()

    class Pair(M.Module):
        def forward(self, x, scale=1):
            return [x * scale]

    p = Pair()
    seen = []

    def post(mod, inputs, outputs):
        seen.append(inputs)
        outputs.append(outputs[0] + 1)
        return outputs

    p.register_forward_hook(post)
    out = p(Tensor([1.0]), scale=3)
    assert [t.item() for t in out] == [3.0, 4.0] and len(seen[0]) == 1  # keyword arguments are not shown


def test_copies_share_nothing():
    net = M.Sequential(M.Linear(2, 2), M.BatchNorm1d(2))
    twin = copy.deepcopy(net)
    twin[0].weight[...] = Tensor(np.zeros((2, 2), "float32"))
    assert net[0].weight.numpy().any() and twin[1].running_mean is not net[1].running_mean


# ---- repr


@pytest.mark.parametrize(
    "module, text",
    [
        (
            M.ConvTranspose2d(4, 6, 3, 2, 1, 1),
            "ConvTranspose2d(4, 6, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1))",
        ),
        (M.BatchMatMulActivation(2, 3, 5), "BatchMatMulActivation(batch=2, in_features=3, out_features=5, bias=True)"),
        (M.GroupNorm(2, 4), "GroupNorm(groups=2, channels=4, eps=1e-05, affine=True)"),
        (M.Sequential(), "Sequential()"),
        (M.RNN(3, 2), "RNN(\n  (cells.0.0): RNNCell()\n)"),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, M.Module) else "",
)
def test_repr(module, text):
    assert repr(module) == text


# ---- dtypes


@pytest.mark.parametrize(
    "module, x",
    [
        (M.Conv1d(4, 6, 3), rand(2, 4, 9)),
        (M.Conv2d(4, 6, 3), rand(2, 4, 6, 6)),
        (M.ConvTranspose2d(4, 6, 3), rand(2, 4, 6, 6)),
        (M.Linear(4, 6), rand(2, 4)),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, M.Module) else "",
)
def test_a_float16_input_of_a_float32_layer_is_widened(module, x):
    half = x.astype("float16")
    got = module(half)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got.numpy(), module(half.astype("float32")).numpy())


# ---- batch matmul, normalisation


def test_batch_matmul_bias_goes_to_rows():
    m = M.BatchMatMulActivation(2, 3, 5)
    m.bias[...] = rand(5)
    x = rand(2, 3, 4)
    want = m.weight.numpy() @ x.numpy() + m.bias.numpy()[:, None]
    np.testing.assert_allclose(m(x).numpy(), want, rtol=1e-5, atol=1e-6)


def test_norm_layers_against_numpy():
    x = rand(2, 6, 3, 4)
    d = x.numpy().astype("float64")

    def norm(a, axes):
        return (a - a.mean(axes, keepdims=True)) / np.sqrt(a.var(axes, keepdims=True) + 1e-5)

    cases = [
        (M.LayerNorm((3, 4)), norm(d, (2, 3)), (1, 1, 3, 4)),
        (M.GroupNorm(3, 6), norm(d.reshape(2, 3, 2, 3, 4), (2, 3, 4)).reshape(d.shape), (1, 6, 1, 1)),
        (M.InstanceNorm(6), norm(d, (2, 3)), (1, 6, 1, 1)),
        (M.GeneralNorm((6, 4), (1, 3)), norm(d, (1, 3)), (1, 6, 1, 4)),
        (M.GeneralNorm((6, 4), (1, -1)), norm(d, (1, 3)), (1, 6, 1, 4)),
    ]
    for m, want, shape in cases:
        m.weight[...], m.bias[...] = rand(*m.weight.shape), rand(*m.bias.shape)
        want = want * m.weight.numpy().reshape(shape) + m.bias.numpy().reshape(shape)
        np.testing.assert_allclose(m(x).numpy(), want, rtol=1e-4, atol=1e-4)
    with pytest.raises(AssertionError):
        M.GeneralNorm((6, 4), (3, 1))(x)


@pytest.mark.parametrize("shape", [(5, 3), (5, 3, 4), (5, 3, 2, 2)])
def test_sync_batch_norm_takes_two_to_four_dimensions(shape):
    x = rand(*shape)
    d = x.numpy().astype("float64")
    axes = tuple(i for i in range(len(shape)) if i != 1)
    got = M.SyncBatchNorm(3)(x)
    want = (d - d.mean(axes, keepdims=True)) / np.sqrt(d.var(axes, keepdims=True) + 1e-5)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError):
        M.SyncBatchNorm(3)(rand(3))


def test_frozen_normalisation_without_affine():
    bn = M.BatchNorm2d(3, affine=False, freeze=True)
    x = rand(2, 3, 4, 4)
    np.testing.assert_allclose(bn(x).numpy(), x.numpy() / np.sqrt(1 + 1e-5), rtol=1e-5)


# ---- recurrent networks


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


# ---- attention


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


# ---- shapes


def test_local_shapes():
    assert M.SlidingWindow(3, 1, 2)(rand(2, 4, 6, 6)).shape == (2, 4, 3, 3, 3, 3)
    x = rand(2, 4, 3, 3, 2, 2)
    back = M.SlidingWindowTranspose((6, 6), (2, 2), 0, 2)(x)
    np.testing.assert_array_equal(back.numpy(), x.numpy().transpose(0, 1, 2, 4, 3, 5).reshape(2, 4, 6, 6))
    with pytest.raises(ValueError):
        M.Embedding.from_pretrained(rand(2, 3), padding_idx=1)


# ---- reprs, hooks and states seen on MegEngine 1.13


def test_layers_that_say_their_mode_and_those_that_say_nothing():
    assert repr(M.AvgPool2d(2, mode="average")) == "AvgPool2d(kernel_size=2, stride=2, padding=0, mode=average)"
    assert repr(M.Elemwise("add")) == "Elemwise()" and repr(M.LocalResponseNorm()) == "LocalResponseNorm()"


def test_a_hook_handle_knows_its_number():
    m = M.ReLU()
    handle = m.register_forward_hook(lambda *_: None)
    assert list(m._forward_hooks) == [handle.id] and handle.source_ref() is m._forward_hooks


@pytest.mark.parametrize(
    "change, error",
    [
        (lambda s: s.pop("1.weight"), KeyError),
        (lambda s: s.update(more=np.zeros(2)), KeyError),
        (lambda s: s.update({"1.weight": np.zeros((9, 9), "float32")}), ValueError),
        (lambda s: s.update({"1.weight": Tensor([1.0])}), AssertionError),
    ],
    ids=["missing", "unused", "shape", "tensor"],
)
def test_a_state_that_does_not_fit_changes_nothing(change, error):
    net = M.Sequential(M.Linear(2, 3), M.Linear(3, 2))
    before = net.state_dict()
    state = {k: v + 1 for k, v in before.items()}
    change(state)
    with pytest.raises(error):
        net.load_state_dict(state)
    for key, value in net.state_dict().items():
        np.testing.assert_array_equal(value, before[key])


@pytest.mark.parametrize("bad", [None, [1], 3, "net.pkl"])
def test_a_state_must_be_a_dict_or_a_function(bad):
    with pytest.raises(ValueError, match="must load a dict or callable"):
        M.Linear(2, 3).load_state_dict(bad)


def test_replace_param_takes_a_dict():
    with pytest.raises(AssertionError, match="params must be a dict; got list"):
        M.Linear(2, 3).replace_param([Parameter([1.0])], 0)


# ---- recurrent networks: what was found


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


def test_indices_of_an_embedding_are_integers():
    with pytest.raises(RuntimeError, match="indices must be integers; got float32"):
        M.Embedding(5, 3)(rand(2))


def test_pixel_shuffle_of_channels_that_do_not_fit():
    with pytest.raises(RuntimeError, match=r"4 channels are not a multiple of 3 \* 3"):
        M.PixelShuffle(3)(rand(1, 4, 2, 2))


def test_topk_accuracy_of_more_than_there_is():
    for bad in (0, 5, (1, 9), ()):
        with pytest.raises(RuntimeError, match="from 1 to the number of classes"):
            F.topk_accuracy(rand(3, 4), Tensor([0, 1, 2]), bad)


# ---- programs for accelerators


def test_programs_for_accelerators_say_what_is_missing():
    from megengine.module import external as E

    for m, library in (
        (E.TensorrtRuntimeSubgraph(b"ab"), "TensorRT"),
        (E.AtlasRuntimeSubgraph(b"ab"), "ACL"),
        (E.CambriconRuntimeSubgraph(b"ab", "main", True), "CNRT"),
        (E.MagicMindRuntimeSubgraph(b"ab"), "MagicMind"),
        (E.ExternOprSubgraph([(1, 2)], "npu", b"ab"), "'npu'"),
    ):
        assert m.data == b"ab" and m.state_dict() == {}
        m.data = b"xyz"
        assert m.data.tolist() == [120, 121, 122] and m.data.dtype == np.uint8
        with pytest.raises(NotImplementedError, match=f"needs .*{library}.*Run the model in the vendor's runtime"):
            m(rand(1))
    assert E.TensorrtRuntimeSubgraph(None)(rand(1)) is None
    m = E.ExternOprSubgraph([(1, 2)], "npu", b"ab")
    assert m.name == "npu" and m._output_dtypes == [np.float32]
    m.name = "other"
    assert m.name == "other"


def test_indices_are_integers():
    x = rand(5, 1)
    for fn in (
        lambda: F.gather(x, 0, Tensor([[0.5]])),
        lambda: F.scatter(x, 0, Tensor([[1.0]]), rand(1, 1)),
        lambda: F.one_hot(Tensor([1.0]), 3),
    ):
        with pytest.raises(RuntimeError, match=r"integers; got float32. Cast .* with astype"):
            fn()


# ---- names and reprs of trees


class Node(M.Module):
    def forward(self):
        pass


def test_a_child_may_know_its_parent():
    parent, child = Node(), Node()
    parent.child = child
    child.parent = [parent]
    parent.weight = Parameter([1.0])
    assert [k for k, _ in parent.named_modules()] == ["", "child"]
    assert [k for k, _ in child.named_parameters()] == ["parent.0.weight"]
    assert (parent._name, child._name, parent.weight._name) == (
        "child.parent.0",
        "child.parent.0.child",
        "child.parent.0.weight",
    )
    parent.eval()
    assert not child.training
    alone = Node()
    alone.me = alone
    assert alone._name == "me" and [k for k, _ in alone.named_modules()] == [""]


def test_parameters_are_named_by_attributes_not_by_the_names_of_modules():
    net = Node(name="net")
    net.fc = M.Linear(1, 1, name="own")
    net.parts = [M.Linear(1, 1, name="other")]
    assert (net.fc.name, net.fc._short_name, net.fc._name, net.fc.weight._name) == (
        "own",
        "fc",
        "net.fc",
        "net.fc.weight",
    )
    assert net.parts[0]._name == "net.parts.0"


def test_repr_shows_what_was_put_into_a_container_later():
    net = Node()
    net.layers, net.named, net.numbers = [], {}, {"k": 1}
    net.last = M.ReLU()
    net.layers.append(M.ReLU())
    net.named["x"] = [M.Sigmoid()]
    assert repr(net) == "Node(\n  (layers.0): ReLU()\n  (named.x.0): Sigmoid()\n  (last): ReLU()\n)"


def test_repr_shows_a_module_that_came_back_last():
    net = Node()
    net.a, net.b = M.ReLU(), M.ReLU()
    net.a = None
    net.a = M.Sigmoid()
    assert repr(net) == "Node(\n  (b): ReLU()\n  (a): Sigmoid()\n)"


def test_repr_of_several_lines_about_the_module_itself():
    class Talkative(Node):
        def _module_info_string(self):
            return "a=1\nb=2"

    net = Talkative()
    assert repr(net) == "Talkative(\n  a=1\n  b=2\n)"
    net.inner = Talkative()
    assert repr(net) == "Talkative(\n  a=1\n  b=2\n  (inner): Talkative(\n    a=1\n    b=2\n  )\n)"


def test_a_childs_own_state_dict_is_for_its_callers_alone():
    class Own(M.Linear):
        def state_dict(self):
            return {"mine": 1}

    net = M.Sequential(Own(1, 1))
    assert list(net.state_dict()) == ["0.bias", "0.weight"] and net[0].state_dict() == {"mine": 1}
    net.load_state_dict({"0.bias": np.ones(1, "float32"), "0.weight": np.ones((1, 1), "float32")})
    assert net[0].weight.item() == 1
