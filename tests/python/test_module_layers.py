"""Every layer against its function, and a network that learns."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor
from megengine.autodiff import GradManager

RNG = np.random.default_rng(0)


def rand(*shape: int) -> Tensor:
    return Tensor(RNG.standard_normal(shape).astype("float32"))


# ---- layers

X4 = rand(2, 4, 6, 6)


@pytest.mark.parametrize(
    "module, x, f",
    [
        (M.ReLU(), X4, F.relu),
        (M.Sigmoid(), X4, F.sigmoid),
        (M.SiLU(), X4, F.silu),
        (M.GELU(), X4, F.gelu),
        (M.Softmax(1), X4, lambda x: F.softmax(x, 1)),
        (M.LeakyReLU(0.2), X4, lambda x: F.leaky_relu(x, 0.2)),
        (M.PReLU(), X4, lambda x: F.prelu(x, Tensor([0.25]))),
        (M.PReLU(4, 0.1), X4, lambda x: F.prelu(x, F.full((1, 4, 1, 1), 0.1))),
        (M.MaxPool2d(2), X4, lambda x: F.max_pool2d(x, 2)),
        (M.MaxPool2d(3, 2, 1), X4, lambda x: F.max_pool2d(x, 3, 2, 1)),
        (M.AvgPool2d(3, 2, 1), X4, lambda x: F.avg_pool2d(x, 3, 2, 1)),
        (M.AvgPool2d(3, 2, 1, mode="average"), X4, lambda x: F.avg_pool2d(x, 3, 2, 1, mode="average")),
        (M.AdaptiveAvgPool2d((2, 3)), X4, lambda x: F.adaptive_avg_pool2d(x, (2, 3))),
        (M.AdaptiveMaxPool2d(2), X4, lambda x: F.adaptive_max_pool2d(x, 2)),
        (M.LocalResponseNorm(), X4, F.local_response_norm),
        (M.PixelShuffle(2), X4, lambda x: F.pixel_shuffle(x, 2)),
        (M.SlidingWindow(3, 1), X4, lambda x: F.sliding_window(x, 3, 1)),
        (M.Pad(((0, 0), (0, 0), (1, 1)), "reflect"), X4, lambda x: F.pad(x, ((0, 0), (0, 0), (1, 1)), "reflect")),
        (M.Elemwise("RELU"), X4, F.relu),
        (M.Elemwise("h_swish"), X4, F.hswish),
        (M.QuantStub(), X4, lambda x: x),
        (M.DequantStub(), X4, lambda x: x),
        (M.Identity(), X4, F.copy),
    ],
    ids=lambda v: repr(v) if isinstance(v, M.Module) else "",
)
def test_layer_equals_function(module, x, f):
    np.testing.assert_array_equal(module(x).numpy(), f(x).numpy())


def test_identity_copies_and_dropout_does_not():
    x = rand(3)
    assert M.Identity()(x) is not x
    drop = M.Dropout(0.5)
    drop.eval()
    assert drop(x) is x
    drop.train()
    assert (drop(F.ones((100,))).numpy() == 0).any()


def test_elemwise_and_concat():
    a, b = rand(3), rand(3)
    np.testing.assert_array_equal(M.Elemwise("add")(a, b).numpy(), (a + b).numpy())
    np.testing.assert_array_equal(M.Elemwise("fuse_add_relu")(a, b).numpy(), F.relu(a + b).numpy())
    np.testing.assert_array_equal(M.Elemwise("lt")(a, b).numpy(), (a.numpy() < b.numpy()).astype("float32"))
    np.testing.assert_array_equal(M.Elemwise("SWITCH_GT0")(a, b).numpy(), np.where(a.numpy() > 0, b.numpy(), 0))
    with pytest.raises(ValueError, match="unknown method"):
        M.Elemwise("nonsense")
    assert M.Concat()([a, b]).shape == (6,)


@pytest.mark.parametrize("groups", [1, 2])
def test_conv2d_layer(groups):
    m = M.Conv2d(4, 6, 3, stride=2, padding=1, groups=groups)
    x = rand(2, 4, 7, 7)
    want = F.conv2d(x, m.weight, m.bias, 2, 1, 1, groups)
    np.testing.assert_array_equal(m(x).numpy(), want.numpy())
    relu = M.ConvRelu2d(4, 6, 3, stride=2, padding=1, groups=groups)
    relu.load_state_dict(m.state_dict())
    np.testing.assert_array_equal(relu(x).numpy(), F.relu(want).numpy())
    assert M.Conv2d(4, 6, 3, bias=False).bias is None
    with pytest.raises(ValueError):
        M.Conv2d(4, 6, 3, groups=3)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_conv2d_padding_modes(mode):
    m = M.Conv2d(3, 2, 3, padding=(1, 2), padding_mode=mode)
    x = rand(1, 3, 5, 5)
    np_mode = "edge" if mode == "replicate" else mode
    padded = Tensor(np.pad(x.numpy(), ((0, 0), (0, 0), (1, 1), (2, 2)), mode=np_mode))
    np.testing.assert_array_equal(m(x).numpy(), F.conv2d(padded, m.weight, m.bias).numpy())
    assert m.get_pad_witdth() == ((0, 0), (0, 0), (1, 1), (2, 2))
    with pytest.raises(ValueError):
        M.Conv2d(3, 2, 3, padding_mode="wrap")


def test_conv1d_and_transpose_layers():
    m = M.Conv1d(4, 6, 3, groups=2)
    assert m.weight.shape == (2, 3, 2, 3) and m.bias.shape == (1, 6, 1)
    assert m(rand(2, 4, 9)).shape == (2, 6, 7)
    t = M.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1, groups=2)
    assert t.weight.shape == (2, 2, 3, 3, 3) and t(rand(1, 4, 5, 5)).shape == (1, 6, 12, 12)
    assert M.ConvTranspose2d.output_padding == 0
    assert (M.ConvTransposeRelu2d(4, 6, 3)(rand(1, 4, 5, 5)).numpy() >= 0).all()
    assert M.Conv3d(3, 2, 3)(rand(1, 3, 5, 5, 5)).shape == (1, 2, 3, 3, 3)
    assert M.ConvTranspose3d(4, 6, 3, stride=2, output_padding=1, groups=2)(rand(1, 4, 2, 2, 2)).shape == (
        1,
        6,
        6,
        6,
        6,
    )


def test_conv_bn_modules():
    x = rand(4, 3, 5, 5)
    m = M.ConvBn2d(3, 2, 3)
    assert [k for k, _ in m.named_children()] == ["bn", "conv"]
    want = m.bn(m.conv(x)).numpy()
    m2 = M.ConvBn2d(3, 2, 3)
    m2.conv.load_state_dict(m.conv.state_dict())
    np.testing.assert_array_equal(m2(x).numpy(), want)
    r = M.ConvBnRelu2d(3, 2, 3, name="block")
    assert (r(x).numpy() >= 0).all() and r.name == "block"
    assert M.ConvTransposeBn2d(3, 2, 2)(x).shape == (4, 2, 6, 6)
    assert (M.ConvTransposeBnRelu2d(3, 2, 2)(x).numpy() >= 0).all()
    fc = M.LinearBnRelu1d(3, 2)
    assert (fc(rand(5, 3)).numpy() >= 0).all() and "bias" in fc.state_dict()


def test_batch_norm_layer():
    bn = M.BatchNorm2d(3)
    x = rand(4, 3, 5, 5)
    d = x.numpy().astype("float64")
    mean, var = d.mean((0, 2, 3)), d.var((0, 2, 3))
    y = bn(x)
    want = (d - mean[:, None, None]) / np.sqrt(var + 1e-5)[:, None, None]
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(bn.running_mean.numpy().reshape(-1), 0.1 * mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(bn.running_var.numpy().reshape(-1), 0.9 + 0.1 * var * 100 / 99, rtol=1e-4)
    bn.eval()
    before = bn.running_mean.numpy().copy()
    np.testing.assert_array_equal(bn(x).numpy(), bn(x).numpy())
    np.testing.assert_array_equal(bn.running_mean.numpy(), before)
    for bad, m in ((rand(2, 3), bn), (rand(2, 3, 4, 5), M.BatchNorm1d(3))):
        with pytest.raises(ValueError):
            m(bad)
    empty = Tensor(np.zeros((0, 3, 2, 2), "float32"))
    assert M.BatchNorm2d(3)(empty).shape == (0, 3, 2, 2)
    bn.reset_parameters()
    assert (bn.running_var.numpy() == 1).all()
    plain = M.BatchNorm2d(3, affine=False)
    assert plain.weight is None and list(plain.parameters()) == []
    assert plain(x).shape == x.shape


@pytest.mark.parametrize("without_host", [False, True])
def test_traced_batch_norm_chains_its_statistics(without_host):
    def run(wrap):
        bn = M.BatchNorm2d(3)
        f = wrap(lambda x: bn(bn(x)))  # two updates in one call
        rng = np.random.default_rng(3)
        out = [f(Tensor(rng.standard_normal((4, 3, 2, 2)).astype("float32"))).numpy() for _ in range(4)]
        return [*out, *bn.state_dict().values()]

    eager = run(lambda f: f)
    traced = run(lambda f: mge.jit.trace(f, without_host=without_host))
    for a, b in zip(eager, traced):
        np.testing.assert_array_equal(a, b)


def test_batch_norm_freeze():
    bn = M.BatchNorm2d(3, freeze=True)
    bn.running_mean[...] = rand(1, 3, 1, 1)
    bn.weight[...] = rand(1, 3, 1, 1)
    mean = bn.running_mean.numpy().copy()
    x = rand(2, 3, 4, 4)
    with GradManager().attach([x, *bn.parameters()]) as gm:
        y = bn(x)
        gm.backward(y.sum())
    assert bn.weight.grad is None and bn.bias.grad is None and x.grad is not None
    np.testing.assert_array_equal(bn.running_mean.numpy(), mean)
    scale = bn.weight.numpy().astype("float64") / np.sqrt(1 + 1e-5)
    np.testing.assert_allclose(y.numpy(), (x.numpy() - mean) * scale, rtol=1e-4, atol=1e-5)
    with pytest.raises(AssertionError):
        M.BatchNorm2d(3, freeze=True, track_running_stats=False)


def test_batch_norm_tracking_switch():
    bn = M.BatchNorm2d(3)
    bn.track_running_stats = False
    x = rand(4, 3, 2, 2)
    bn.eval()
    y = bn(x)
    np.testing.assert_allclose(y.numpy().mean((0, 2, 3)), 0, atol=1e-5)
    assert not bn.running_mean.numpy().any()
    never = M.BatchNorm2d(3, track_running_stats=False)
    assert never.running_mean is None
    never.eval()
    assert never(x).shape == x.shape
    never.track_running_stats = True
    with pytest.raises(AssertionError):
        never(x)


def test_sync_batch_norm_of_one_process():
    x = rand(4, 3, 2, 2)
    a, b = M.SyncBatchNorm(3), M.BatchNorm2d(3)
    np.testing.assert_array_equal(a(x).numpy(), b(x).numpy())
    np.testing.assert_array_equal(a.running_var.numpy(), b.running_var.numpy())


def test_other_norm_layers():
    x = rand(2, 6, 3, 4)
    for m in (M.LayerNorm((3, 4)), M.GroupNorm(3, 6), M.InstanceNorm(6), M.GeneralNorm((6, 4), (1, 3))):
        assert m(x).shape == x.shape
        m.reset_parameters()
        assert (m.weight.numpy() == 1).all()
    assert M.LayerNorm(4, affine=False).weight is None
    with pytest.raises(AssertionError):
        M.GroupNorm(4, 6)
    with pytest.raises(AssertionError):
        M.GeneralNorm(None, (1,))


def test_linear_embedding_bmm():
    m = M.Linear(3, 2)
    x = rand(4, 3)
    np.testing.assert_array_equal(m(x).numpy(), F.linear(x, m.weight, m.bias).numpy())
    assert (M.LinearRelu(3, 2)(x).numpy() >= 0).all()
    e = M.Embedding(5, 3)
    np.testing.assert_array_equal(e(Tensor([[4, 0]])).numpy(), e.weight.numpy()[[[4, 0]]])
    frozen = M.Embedding.from_pretrained(rand(4, 2))
    with GradManager().attach(frozen.weight) as gm:
        gm.backward(frozen(Tensor([1])).sum())
    assert frozen.weight.grad is None
    with pytest.raises(ValueError):
        M.Embedding(5, 3, padding_idx=0)
    with pytest.raises(ValueError):
        M.Embedding.from_pretrained(rand(3))
    b = M.BatchMatMulActivation(2, 3, 4, nonlinear_mode="relu")
    y = b(rand(2, 3, 5))
    assert y.shape == (2, 4, 5) and (y.numpy() >= 0).all()


def test_sequential():
    net = M.Sequential(M.Linear(2, 3), M.ReLU(), M.Linear(3, 1))
    assert len(net) == 3 and [type(m).__name__ for m in net] == ["Linear", "ReLU", "Linear"]
    assert net.layer_keys == ["0", "1", "2"] and net.layer_values[1] is net[1] is net[-2]
    part = net[1:]
    assert isinstance(part, M.Sequential) and part.layer_keys == ["1", "2"]
    net[1] = M.Sigmoid()
    assert type(net[1]) is M.Sigmoid
    del net[0:2]
    assert len(net) == 1 and net.layer_keys == ["2"]
    named = M.Sequential(OrderedDict([("b", M.Linear(2, 2)), ("a", M.ReLU())]))
    assert named.layer_keys == ["b", "a"]
    assert named(rand(1, 2)).shape == (1, 2)


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


# ---- training


def test_a_small_network_learns():
    mge.random.seed(1)
    net = M.Sequential(M.Linear(2, 16), M.ReLU(), M.Linear(16, 2))
    gm = GradManager().attach(net.parameters())
    opt = mge.optimizer.SGD(net.parameters(), lr=0.5, momentum=0.9)
    x = RNG.uniform(-1, 1, (256, 2)).astype("float32")
    t = ((x[:, 0] > 0) ^ (x[:, 1] > 0)).astype("int32")
    for _ in range(100):
        with gm:
            loss = F.nn.cross_entropy(net(Tensor(x)), Tensor(t))
            gm.backward(loss)
        opt.step().clear_grad()
    assert loss.item() < 0.1
    assert F.topk_accuracy(net(Tensor(x)), Tensor(t)).item() > 0.95
