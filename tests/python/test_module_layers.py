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


# ---- what layers take and refuse


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


def test_local_shapes():
    assert M.SlidingWindow(3, 1, 2)(rand(2, 4, 6, 6)).shape == (2, 4, 3, 3, 3, 3)
    x = rand(2, 4, 3, 3, 2, 2)
    back = M.SlidingWindowTranspose((6, 6), (2, 2), 0, 2)(x)
    np.testing.assert_array_equal(back.numpy(), x.numpy().transpose(0, 1, 2, 4, 3, 5).reshape(2, 4, 6, 6))
    with pytest.raises(ValueError):
        M.Embedding.from_pretrained(rand(2, 3), padding_idx=1)


def test_indices_of_an_embedding_are_integers():
    with pytest.raises(RuntimeError, match="indices must be integers; got float32"):
        M.Embedding(5, 3)(rand(2))


def test_pixel_shuffle_of_channels_that_do_not_fit():
    with pytest.raises(RuntimeError, match=r"4 channels are not a multiple of 3 \* 3"):
        M.PixelShuffle(3)(rand(1, 4, 2, 2))


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
