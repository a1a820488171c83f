"""Modules: the base's rules for names, order, state and hooks; initialisers."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict

import numpy as np
import pytest

import megengine as mge
import megengine.module as M
from megengine import Parameter, Tensor
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

    good = Holder({True: 1})
    assert list(good.parameters()) == []
    said = "keys for Tensor and Module must be str, error key: True"
    for bad in ({True: Parameter([1.0])}, [{True: M.ReLU()}], {"a": {True: Parameter([1.0])}}):
        with pytest.raises(AssertionError, match=said):
            Holder(bad)
        with pytest.raises(AssertionError, match=said):
            good.d = bad
        assert good.d == {True: 1}  # as it was
    good.d[True] = Parameter([1.0])  # too late for the module to see
    with pytest.raises(AssertionError, match=said):
        list(good.parameters())


def test_expand_and_access_structure():
    net = Net()
    assert [k for k, _ in _expand_structure("x", net.items)] == ["x.0", "x.1.a", "x.1.b"]
    assert _access_structure(net, "items.1.b.weight", lambda p, k, c: (p, k, c)) == (
        net.items[1]["b"],
        "weight",
        net.items[1]["b"].weight,
    )
    assert _access_structure(net, "items.1", lambda p, k, c: (p, k)) == (net.items, 1)
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
    assert net.list[1].w._name == "root.list.1.w"
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


@pytest.mark.parametrize("strict", [True, False])
def test_a_whole_checkpoint_is_not_the_state_of_a_module(strict):
    net = M.Sequential(M.Linear(2, 3))
    whole = {"epoch": 3, "state_dict": net.state_dict(), "optimizer": {"state": {}, "param_groups": []}}
    with pytest.raises(
        KeyError,
        match=r"whole checkpoint with the entries 'epoch', 'state_dict', 'optimizer'; .*entry 'state_dict'. "
        r"Pass checkpoint\['state_dict'\]",
    ):
        net.load_state_dict(whole, strict=strict)
    net.load_state_dict({"more": {"x": 1}}, strict=False)  # which has nothing for this module either way


def test_state_dict_by_its_inner_function():
    net = M.Sequential(M.Linear(2, 3), M.BatchNorm2d(2))
    kept = net._state_dict(keep_var=True)
    assert isinstance(kept, OrderedDict) and kept["0.weight"] is net[0].weight
    assert list(kept) == list(net.state_dict()) == list(net._state_dict())


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


def test_names_of_tensors_without_a_module():
    x = mge.tensor([1.0], name="x")
    assert (x._name, x._short_name, x._prefix) == ("x", "", None)
    assert (mge.tensor([1.0])._name, (x + 1)._short_name) == ("", "")
    net = M.Linear(1, 1)
    copied = copy.deepcopy(net)
    assert (net.weight._name, net.weight._prefix, copied.weight._prefix) == ("weight", None, None)
    assert not copied.weight._short_name and not copied.weight._name


def test_general_norm_keeps_its_arguments_as_given():
    assert "normalized_shape=None, normalized_axis=0," in repr(M.GeneralNorm(affine=False))
    norm = M.GeneralNorm([4], [1])
    assert (norm.normalized_shape, norm.normalized_axis) == ([4], [1])
    x = np.random.default_rng(0).standard_normal((2, 4, 3)).astype("float32")
    want = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(norm(mge.tensor(x)).numpy(), want, atol=1e-5)


def test_replace_param():
    net = M.Sequential(M.Linear(1, 1), M.Linear(1, 1))
    new = Parameter([[9.0]])
    assert net.replace_param({1: new}, 0) == 4
    assert net[0].weight is new
    with pytest.raises(AssertionError):
        net.replace_param({0: Parameter([1.0, 2.0])}, 0)
    with pytest.warns(DeprecationWarning, match="replace_param") as told:
        net.replace_param({}, 0)
    assert len(told) == 1  # not for each submodule


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


# ---- states, hooks and reprs as MegEngine 1.13 has them


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
def test_repr_of_layers(module, text):
    assert repr(module) == text


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
