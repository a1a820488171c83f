"""Modules: the base's rules for names, order, state and hooks, and every layer against its function."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Parameter, Tensor
from megengine.autodiff import GradManager
from megengine.module.module import _access_structure, _expand_structure
from megengine.utils.module_utils import get_expand_structure, set_expand_structure, set_module_mode_safe
from megengine.utils.naming import AutoNaming

RNG = np.random.default_rng(0)


def rand(*shape: int) -> Tensor:
    return Tensor(RNG.standard_normal(shape).astype("float32"))


class Inner(M.Module):
    def __init__(self, name: str | None = None) -> None:
        super().__init__(name=name)
        self.bn = M.BatchNorm2d(4)

    def forward(self, x):
        return self.bn(x)


class Net(M.Module):
    """Shares a module (h is i), holds modules in containers, has a parameter and a buffer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.i = Inner()
        self.h = self.i
        self.items = [M.Linear(2, 3), {"b": M.Linear(2, 2), "a": Parameter([1.0])}, 5]
        self.param = Parameter(np.ones(2, "float32"))
        self.buff = Tensor(np.zeros(3, "float32"))

    def forward(self, x):
        return self.i(x)


# ---- base


def test_instance_dict_has_exactly_the_documented_keys():
    class Empty(M.Module):
        def forward(self, x):
            return x

    assert set(vars(Empty())) == {
        "_modules",
        "name",
        "training",
        "quantize_disabled",
        "_forward_pre_hooks",
        "_forward_hooks",
        "_name",
        "_short_name",
    }


def test_forward_is_abstract():
    class Bad(M.Module):
        pass

    with pytest.raises(TypeError):
        Bad()


@pytest.mark.parametrize("name", ["", "  ", 3])
def test_bad_names(name):
    with pytest.raises(AssertionError):
        M.ReLU(name=name)


def test_assignment_before_init():
    class Early(M.Module):
        def __init__(self, value):
            self.flag = 1  # plain values are fine
            self.thing = value
            super().__init__()

        def forward(self, x):
            return x

    Early(3)
    for value in (M.ReLU(), [1], (1,), {}):
        with pytest.raises(AttributeError, match="cannot assign module before Module.__init__"):
            Early(value)


def test_iteration_is_alphabetical_and_reports_shared_objects_once():
    net = Net()
    assert [k for k, _ in net.named_parameters()] == [
        "h.bn.bias",
        "h.bn.weight",
        "items.0.bias",
        "items.0.weight",
        "items.1.a",
        "items.1.b.bias",
        "items.1.b.weight",
        "param",
    ]
    assert [k for k, _ in net.named_buffers()] == ["buff", "h.bn.running_mean", "h.bn.running_var"]
    assert [k for k, _ in net.named_modules()] == ["", "h", "h.bn", "items.0", "items.1.b"]
    assert [k for k, _ in net.named_modules(prefix="p")] == ["p", "p.h", "p.h.bn", "p.items.0", "p.items.1.b"]
    assert [k for k, _ in net.named_children()] == ["h", "items.0", "items.1.b"]
    assert len(list(net.parameters())) == 8 and len(list(net.parameters(recursive=False))) == 2
    assert len(list(net.tensors())) == 11 and len(list(net.buffers(recursive=False))) == 1
    parents = {k: p for k, _, p in net.named_modules(with_parent=True)}
    assert parents[""] is None and parents["h"] is net and parents["h.bn"] is net.h and parents["items.1.b"] is net
    assert list(net.modules(with_parent=True))[0] == (net, None)


def test_sequential_iterates_by_string_order():
    net = M.Sequential(*(M.Linear(1, 1, bias=False) for _ in range(11)))
    assert [k.split(".")[0] for k, _ in net.named_parameters()][:4] == ["0", "1", "10", "2"]


def test_requires_grad_argument_is_ignored():
    assert len(list(M.Linear(2, 2).parameters(requires_grad=True))) == 2


def test_container_keys_must_be_strings_only_above_tensors():
    class Holder(M.Module):
        def __init__(self, d):
            super().__init__()
            self.d = d

        def forward(self, x):
            return x

    assert list(Holder({True: 1}).parameters()) == []
    bad = Holder({True: Parameter([1.0])})
    with pytest.raises(AssertionError, match="keys for Tensor and Module must be str, error key: True"):
        list(bad.parameters())


def test_expand_and_access_structure():
    net = Net()
    assert [k for k, _ in _expand_structure("x", net.items)] == ["x.0", "x.1.a", "x.1.b"]
    assert _access_structure(net, "items.1.b.weight", lambda p, k, c: (p, k, c)) == (
        net.items[1]["b"],
        "weight",
        net.items[1]["b"].weight,
    )
    new = Parameter(np.zeros((2, 2), "float32"))
    set_expand_structure(net, "items.1.b.weight", new)
    assert get_expand_structure(net, "items.1.b.weight") is new


def test_modes():
    net = Net()
    net.eval()
    assert not any(m.training for m in net.modules())
    net.train()
    assert all(m.training for m in net.modules())
    net.h.train(False, recursive=False)
    with set_module_mode_safe(net, training=False):
        assert not net.h.bn.training
    assert net.training and not net.h.training and net.h.bn.training
    net.disable_quantize()
    assert all(m.quantize_disabled for m in net.modules())
    seen = []
    net.apply(seen.append)
    assert seen == list(net.modules())


def test_train_calls_overrides():
    class Watch(M.Module):
        def train(self, mode=True, recursive=True):
            super().train(mode, recursive)
            self.last = mode

        def forward(self, x):
            return x

    net = M.Sequential(Watch())
    net.eval()
    assert net[0].last is False


def test_hooks():
    net = M.Sequential(M.ReLU(), M.ReLU())
    calls = []
    handles = [
        m.register_forward_pre_hook(lambda mod, i, m=m: calls.append(("pre", type(m).__name__))) for m in net.modules()
    ]
    handles += [
        m.register_forward_hook(lambda mod, i, o, m=m: calls.append(("post", type(m).__name__))) for m in net.modules()
    ]
    net(rand(2))
    assert calls == [
        ("pre", "Sequential"),
        ("pre", "ReLU"),
        ("post", "ReLU"),
        ("pre", "ReLU"),
        ("post", "ReLU"),
        ("post", "Sequential"),
    ]
    for h in handles:
        h.remove()
        h.remove()
    calls.clear()
    net(rand(2))
    assert calls == []
    h1 = net[0].register_forward_pre_hook(lambda m, inputs: (inputs[0] * 0 - 1,))
    h2 = net[1].register_forward_hook(lambda m, i, o: o + 5)
    assert net(rand(2)).tolist() == [5.0, 5.0]
    h1.remove()
    h2.remove()


def test_scopes_are_popped_after_an_exception():
    class Bad(M.Module):
        def forward(self, x):
            raise KeyError("x")

    with pytest.raises(KeyError):
        Bad(name="bad")(1)
    assert AutoNaming.get_scope() == ""


def test_names():
    seen = {}

    class Leaf(M.Module):
        def __init__(self, name=None):
            super().__init__(name=name)
            self.w = Parameter([1.0])
            self.v = Parameter([1.0], name="own")

        def forward(self, x):
            seen[id(self)] = AutoNaming.get_scope()
            return x

    class Root(M.Module):
        def __init__(self, name=None):
            super().__init__(name=name)
            self.a = Leaf()
            self.list = [Leaf(), Leaf(name="given")]

        def forward(self, x):
            return self.list[1](self.list[0](self.a(x)))

    net = Root(name="root")
    net(1)
    assert [seen[id(m)] for m in (net.a, *net.list)] == ["root.a", "root.list.0", "root.given"]
    assert (net.a.w._name, net.a.v._name) == ("root.a.w", "root.a.own")
    assert (net.a._short_name, net.a.w._short_name, net.a.w._prefix) == ("a", "w", "root.a")
    assert net.list[1].w._name == "root.given.w"
    free = Root()
    free(1)
    assert seen[id(free.a)] == "a" and free.a.w._name == "a.w"
    first = net.a
    free.b = first  # the first owner's name stays
    assert first._short_name == "a"


def test_repr():
    net = M.Sequential(M.Conv2d(1, 2, 3, padding=1), M.ReLU(), M.Sequential(M.Linear(2, 3, bias=False)))
    assert repr(net) == (
        "Sequential(\n"
        "  (0): Conv2d(1, 2, kernel_size=(3, 3), padding=(1, 1))\n"
        "  (1): ReLU()\n"
        "  (2): Sequential(\n"
        "    (0): Linear(in_features=2, out_features=3, bias=False)\n"
        "  )\n"
        ")"
    )
    assert "(h): Inner" in repr(Net()) and "(i): Inner" in repr(Net()) and "(items.1.b): Linear" in repr(Net())
    net = Net()
    del net.h
    net.i = None
    assert "Inner" not in repr(net)


@pytest.mark.parametrize(
    "module, text",
    [
        (M.BatchNorm2d(3), "BatchNorm2d(3, eps=1e-05, momentum=0.9, affine=True, track_running_stats=True)"),
        (M.MaxPool2d(2), "MaxPool2d(kernel_size=2, stride=2, padding=0)"),
        (M.Dropout(0.5), "Dropout(drop_prob=0.5)"),
        (M.Softmax(1), "Softmax(axis=1)"),
        (
            M.Conv2d(4, 6, (3, 1), 2, 1, 1, groups=2, bias=False),
            "Conv2d(4, 6, kernel_size=(3, 1), stride=(2, 2), padding=(1, 1), groups=2, bias=False)",
        ),
        (M.Conv1d(4, 6, 3, stride=2), "Conv1d(4, 6, kernel_size=3, stride=2)"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_layer_repr(module, text):
    assert repr(module) == text


# ---- state


def test_state_dict_order_and_shapes():
    net = Net()
    state = net.state_dict()
    assert isinstance(state, OrderedDict)
    assert list(state) == [
        "buff",
        "items.1.a",
        "param",
        "h.bn.bias",
        "h.bn.running_mean",
        "h.bn.running_var",
        "h.bn.weight",
        "items.0.bias",
        "items.0.weight",
        "items.1.b.bias",
        "items.1.b.weight",
    ]
    assert all(isinstance(v, np.ndarray) for v in state.values())
    assert state["h.bn.weight"].shape == (4,) and net.h.bn.weight.shape == (1, 4, 1, 1)
    assert isinstance(net.state_dict(keep_var=True)["param"], Tensor)
    assert list(net.state_dict(prefix="x."))[0] == "x.buff"
    assert M.LayerNorm((4, 4)).state_dict()["weight"].shape == (16,)
    assert M.GeneralNorm((4, 4), (1, 2)).state_dict()["weight"].shape == (4, 4)


def test_load_state_dict():
    a, b = Net(), Net()
    for p in a.parameters():
        M.init.normal_(p)
    ids = {k: id(v) for k, v in b.named_tensors()}
    b.load_state_dict(a.state_dict())
    assert ids == {k: id(v) for k, v in b.named_tensors()}
    for k, v in a.state_dict().items():
        np.testing.assert_array_equal(b.state_dict()[k], v)
    b.load_state_dict({k: v.reshape(1, -1, 1, 1) if "bn" in k else v for k, v in a.state_dict().items()})
    state = a.state_dict()
    state["param"] = state["param"].astype("float16")
    b.load_state_dict(state)
    assert b.param.dtype == np.float16 and type(b.param) is Parameter


def test_load_state_dict_errors():
    net = M.Linear(2, 3)
    good = net.state_dict()
    with pytest.raises(KeyError, match="Unused params violate `strict=True`, unused="):
        net.load_state_dict({**good, "extra": np.zeros(1)})
    with pytest.raises(KeyError, match="Missing params violate `strict=True`, missing="):
        net.load_state_dict({"weight": good["weight"]})
    net.load_state_dict({"weight": good["weight"], "extra": np.zeros(1)}, strict=False)
    with pytest.raises(ValueError, match="param `weight` shape mismatch, should be"):
        net.load_state_dict({**good, "weight": np.zeros((2, 2), "float32")})
    with pytest.raises(ValueError, match="size mismatch"):
        M.BatchNorm2d(3).load_state_dict({k: np.zeros(2, "float32") for k in M.BatchNorm2d(3).state_dict()})
    with pytest.raises(AssertionError):
        net.load_state_dict(net.state_dict(keep_var=True))


def test_load_state_dict_by_function():
    net = M.Linear(2, 3)
    before = net.bias.numpy()
    seen = []

    def give(key, var):
        seen.append((key, var.shape))
        return np.ones((3, 2), "float32") if key == "weight" else None

    with pytest.raises(KeyError, match="Missing"):
        net.load_state_dict(give)
    net.load_state_dict(give, strict=False)
    assert net.weight.numpy().min() == 1 and np.array_equal(net.bias.numpy(), before)
    assert seen[:2] == [("bias", (3,)), ("weight", (3, 2))]


def test_modules_can_be_pickled_and_copied():
    net = M.Sequential(M.Conv2d(3, 4, 3), M.BatchNorm2d(4), M.ReLU())
    x = rand(2, 3, 5, 5)
    net.eval()
    want = net(x).numpy()
    for other in (pickle.loads(pickle.dumps(net)), copy.deepcopy(net)):
        np.testing.assert_array_equal(other(x).numpy(), want)
        assert other[0].weight is not net[0].weight and type(other[0].weight) is Parameter


def test_old_pickles_without_short_name():
    m = M.ReLU()
    state = dict(m.__dict__)
    del state["_short_name"]
    state["_name"] = "act"
    new = M.ReLU.__new__(M.ReLU)
    new.__setstate__(state)
    assert new._short_name == "act" and new._name is None


def test_replace_param():
    net = M.Sequential(M.Linear(1, 1), M.Linear(1, 1))
    new = Parameter([[9.0]])
    assert net.replace_param({1: new}, 0) == 4
    assert net[0].weight is new
    with pytest.raises(AssertionError):
        net.replace_param({0: Parameter([1.0, 2.0])}, 0)


# ---- init


def test_init_functions():
    w = Tensor(np.zeros((64, 32, 3, 3), "float32"))
    M.init.fill_(w, 2.5)
    assert (w.numpy() == 2.5).all()
    M.init.uniform_(w, -1, 1)
    assert -1 < w.numpy().min() and w.numpy().max() <= 1 and abs(w.numpy().mean()) < 0.02
    M.init.normal_(w, 1.0, 2.0)
    assert abs(w.numpy().mean() - 1) < 0.05 and abs(w.numpy().std() - 2) < 0.05
    assert M.init.calculate_fan_in_and_fan_out(w) == (288, 576)
    assert M.init.calculate_fan_in_and_fan_out(Tensor(np.zeros((3, 4)))) == (4, 3)
    assert M.init.calculate_fan_in_and_fan_out(Tensor(np.zeros((2, 3, 4, 5, 5)))) == (100, 75)
    assert M.init.calculate_correct_fan(w, "FAN_OUT") == 576
    M.init.xavier_normal_(w)
    assert abs(w.numpy().std() - (2 / 864) ** 0.5) < 1e-3
    M.init.xavier_uniform_(w)
    assert w.numpy().max() <= (6 / 864) ** 0.5
    M.init.msra_normal_(w, mode="fan_out")
    assert abs(w.numpy().std() - (2 / 576) ** 0.5) < 1e-3
    M.init.msra_uniform_(w)
    assert w.numpy().max() <= (6 / 288) ** 0.5 + 1e-7
    half = Tensor(np.zeros(3), dtype="float16")
    M.init.normal_(half)
    assert half.dtype == np.float16
    assert M.init.calculate_gain("tanh") == 5 / 3 and M.init.calculate_gain("leaky_relu", 1) == 1.0
    for bad in (("nope", None), ("leaky_relu", True)):
        with pytest.raises(ValueError):
            M.init.calculate_gain(*bad)
    with pytest.raises(ValueError):
        M.init.calculate_fan_in_and_fan_out(Tensor([1.0]))
    with pytest.raises(ValueError):
        M.init.calculate_correct_fan(w, "fan")


def test_layers_start_with_variance_one_over_fan_in_and_zero_bias():
    mge.random.seed(0)
    conv = M.Conv2d(16, 64, 3, groups=4)
    assert conv.weight.shape == (4, 16, 4, 3, 3) and conv.bias.shape == (1, 64, 1, 1)
    assert abs(conv.weight.numpy().std() - (1 / (9 * 16)) ** 0.5) < 5e-3  # groups are not counted
    assert not conv.bias.numpy().any()
    fc = M.Linear(100, 50)
    assert abs(fc.weight.numpy().std() - 0.1) < 5e-3 and not fc.bias.numpy().any()


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
