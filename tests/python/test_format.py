"""The memory format: a label that results get from their inputs, as on MegEngine 1.13."""

from __future__ import annotations

import copy
import io
import math
import pickle

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Parameter, Tensor, amp
from megengine.autodiff import GradManager
from megengine.core import _core
from megengine.core._core import ops
from megengine.jit import trace
from megengine.optimizer import SGD, Adam

RNG = np.random.default_rng(3)


def image(*shape: int, format: str = "default") -> Tensor:
    return Tensor(RNG.standard_normal(shape).astype("float32"), format=format)


def through_a_file(x: Tensor) -> Tensor:
    f = io.BytesIO()
    mge.save({"x": x}, f)
    f.seek(0)
    return mge.load(f)["x"]


def nhwc() -> Tensor:
    return image(2, 4, 6, 6, format="nhwc")


KEPT = {
    "conv2d": lambda x: F.conv2d(x, image(4, 4, 3, 3, format="nhwc")),
    "relu": F.relu,
    "add_number": lambda x: x + 1,
    "number_add": lambda x: 1 + x,
    "add_default": lambda x: x + image(2, 4, 6, 6),
    "default_add": lambda x: image(2, 4, 6, 6) + x,
    "default_div": lambda x: image(2, 4, 6, 6) / x,
    "bias": lambda x: x * image(1, 4, 1, 1),
    "neg": lambda x: -x,
    "pow": lambda x: x**2,
    "round": round,
    "floor": math.floor,
    "ceil": math.ceil,
    "astype_by_keyword": lambda x: x.astype(dtype="float16"),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, 1),
    "batch_norm": lambda x: F.batch_norm(x, training=True),
    "concat": lambda x: F.concat([x, x], 1),
    "slice": lambda x: x[0:1],
    "astype": lambda x: x.astype("float16"),
    "copy": F.copy,
    "detach": lambda x: x.detach(),
    "broadcast": lambda x: F.broadcast_to(x, (2, 4, 6, 6)),
    "reshape4": lambda x: x.reshape(2, 2, 12, 6),
    "interpolate": lambda x: F.vision.interpolate(x, scale_factor=2.0),
    "ones_like": F.ones_like,
    "dropout": lambda x: F.dropout(x, 0.5),
    "clip": lambda x: F.clip(x, 0, 1),
    "to": lambda x: x.to("cpu0:1"),
    "tensor": Tensor,
    "parameter": Parameter,
    "copy.copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "parameter_pickle": lambda x: pickle.loads(pickle.dumps(Parameter(x), protocol=2)),
    "file": lambda x: through_a_file(x),
}
LOST = {
    "reshape": lambda x: x.reshape(2, -1),
    "flatten": lambda x: F.flatten(x, 1),
    "sum": lambda x: x.sum(),
    "transpose": lambda x: x.transpose(0, 2, 3, 1),
    "index": lambda x: x[0],
    "expand_dims": lambda x: F.expand_dims(x, 0),
    "softmax": lambda x: F.softmax(x, 1),
    "split": lambda x: F.split(x, 2, 1)[0],
    "stack": lambda x: F.stack([x, x]),
    "pad": lambda x: F.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))),
    "pad_edge": lambda x: F.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), "edge"),
    "compare": lambda x: x > 0,
    "numpy": lambda x: Tensor(x.numpy()),
}


@pytest.mark.parametrize("name", KEPT)
def test_ops_that_keep_the_label(name: str) -> None:
    x = nhwc()
    plain = image(2, 4, 6, 6)
    plain[...] = x.numpy()
    assert KEPT[name](x).format == "nhwc"
    if name != "conv2d":  # whose weight has the label
        assert KEPT[name](plain).format == "default"


@pytest.mark.parametrize("name", LOST)
def test_ops_that_lose_the_label(name: str) -> None:
    assert LOST[name](nhwc()).format == "default"


def test_values_and_shapes_do_not_depend_on_the_label() -> None:
    x = image(2, 4, 6, 6)
    y = copy.deepcopy(x)
    y.format = "nhwc"
    net = M.Sequential(M.Conv2d(4, 4, 3), M.BatchNorm2d(4), M.ReLU())
    a, b = net(x), net(y)
    assert b.format == "nhwc" and a.shape == b.shape
    np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_bad_formats() -> None:
    x, y = nhwc(), image(2, 4, 6, 6)
    for bad in (
        lambda: Tensor(x, format="nchw"),
        lambda: Tensor(y, format="nhwc"),
        lambda: image(3, format="nhwc"),
        lambda: image(1, 2, 3, 4, format="NHWC"),
    ):
        with pytest.raises(RuntimeError):
            bad()
    assert Tensor(x, format="nhwc").format == "nhwc" and image(1, 2, 3, 4, 5, format="nhwc").format == "nhwc"


@pytest.mark.parametrize("symbolic", [False, True])
def test_the_label_in_a_trace(symbolic: bool) -> None:
    step = trace(lambda x: F.relu(x) * 2, symbolic=symbolic)
    for _ in range(3):
        assert step(nhwc()).format == "nhwc"


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("make", [lambda p: SGD(p, 0.1, momentum=0.9), lambda p: Adam(p, 0.1)])
def test_training_keeps_the_label(make, autocast: bool) -> None:
    net = amp.convert_module_format(M.Sequential(M.Conv2d(4, 4, 3), M.BatchNorm2d(4), M.ReLU(), M.Conv2d(4, 2, 1)))
    opt, gm = make(net.parameters()), GradManager().attach(net.parameters())
    for _ in range(3):
        with amp.autocast(enabled=autocast), gm:
            y = net(amp.convert_tensor_format(image(2, 4, 6, 6)))
            gm.backward((y**2).mean())
        assert y.format == "nhwc" and all(p.format == p.grad.format == "nhwc" for p in net.parameters())
        opt.step().clear_grad()
    assert all(t.format == "nhwc" for t in net.tensors())
    for _ in range(2):
        states = [v for s in opt._state.values() for k, v in s.items() if k != "step"]
        assert states and all(v.format == "nhwc" for v in states)
        opt.load_state_dict(opt.state_dict())


def test_autocast_and_labels_do_not_undo_each_other() -> None:
    x = nhwc()
    for _ in range(2):
        with amp.autocast():
            y = F.conv2d(x, image(4, 4, 3, 3, format="nhwc"))
            assert y.format == "nhwc" and y.dtype == np.float16
            z = x / 3
            assert z.format == "nhwc" and z.dtype == np.float32
        assert (x / 3).format == "nhwc" and F.exp(x).format == "nhwc"


def test_nothing_is_replaced_by_a_label() -> None:
    plain = ops.exp, Tensor.__add__, dict(vars(Tensor))
    x = nhwc()
    assert (ops.exp, Tensor.__add__, dict(vars(Tensor))) == plain and (x + 1).format == "nhwc"


def test_the_registry_says_what_keeps_labels() -> None:
    info = {n: _core.op_info(n) for n in _core.op_names()}
    for name, i in info.items():
        if "elementwise" in i["traits"] and name not in ("typecvt", "fused"):
            assert i["keeps_format"] == "any", name
    assert {info[n]["keeps_format"] for n in ("concat", "set_slice", "where")} == {"any"}
    assert {info[n]["keeps_format"] for n in ("conv2d", "reshape", "copy_to", "index_get")} == {"first"}
    assert {info[n]["keeps_format"] for n in ("transpose", "reduce", "matmul", "softmax")} == {"no"}


def test_a_label_belongs_to_one_tensor() -> None:
    """Two tensors may hold one value; marking one leaves the other, and another thread sees the label of its input."""
    import threading

    x = image(2, 4, 6, 6)
    y = Tensor(x)
    y.format = "nhwc"
    assert x.format == "default" and (x + 0).format == "default" and (y + 0).format == "nhwc"
    seen: list[str] = []
    thread = threading.Thread(target=lambda: seen.extend([(y * 2).format, (x * 2).format]))
    thread.start()
    thread.join()
    assert seen == ["nhwc", "default"]
    y.format = "nchw"
    assert y.format == "nchw" and (y + 0).format == "default"
    y.format = "default"
    assert (y + 0).format == "default"


def test_gradients_follow_their_tensor_and_not_the_other() -> None:
    x, w = nhwc(), image(2, 4, 6, 6)
    with GradManager().attach([x, w]) as gm:
        y = F.relu(x + w)
        gm.backward(y, nhwc())
    assert x.grad.format == "nhwc" and w.grad.format == "default"


def test_an_op_recorded_as_its_parts_keeps_the_label() -> None:
    x = nhwc()
    with GradManager().attach([x]):
        y = F.batch_norm(x, *(image(1, 4, 1, 1) for _ in range(2)), image(1, 4, 1, 1), image(1, 4, 1, 1))
        z = F.resize(x, (3, 3)) if hasattr(F, "resize") else F.vision.interpolate(x, size=(3, 3))
    assert y.format == "nhwc" and z.format == "nhwc"


def test_rows_picked_by_a_tensor() -> None:
    x = nhwc()
    assert x[Tensor([1, 0, 1])].format == "nhwc" and x[Tensor(1)].format == "default"


def test_converting_tensors_and_modules() -> None:
    x = image(1, 2, 3, 4)
    assert amp.convert_tensor_format(x) is x and x.format == "nhwc" and x.shape == (1, 2, 3, 4)
    y = image(1, 2, 3, 4)
    z = amp.convert_tensor_format(y, inplace=False)
    assert z is not y and z.format == "nhwc" and y.format == "default"
    np.testing.assert_array_equal(z.numpy(), y.numpy())
    assert amp.convert_tensor_format(image(2)).format == "default"
    net = M.Sequential(M.Conv2d(3, 4, 3), M.BatchNorm2d(4), M.Conv2d(4, 4, 3, groups=2))
    other = amp.convert_module_format(net, inplace=False)
    assert all(t.format == "default" for t in net.tensors())
    assert all(t.format == "nhwc" for t in other.tensors())
    assert amp.convert_module_format(net) is net and net[2].weight.format == "nhwc"
    np.testing.assert_array_equal(net(image(1, 3, 8, 8)).shape, (1, 4, 4, 4))
    net.load_state_dict(other.state_dict())
    assert net[0].weight.format == "nhwc"
