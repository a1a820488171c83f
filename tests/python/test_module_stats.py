"""module_stats: counts worked out by hand, inputs of every form, and that a run leaves no trace on the model."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.core.tensor.dtype import qint8
from megengine.utils import module_stats as ms


class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.conv = M.Conv2d(4, 8, 3, padding=1, groups=2)
        self.bn = M.BatchNorm2d(8)
        self.pool = M.MaxPool2d(2)
        self.up = M.ConvTranspose2d(8, 4, 2, stride=2)
        self.squeeze = M.AdaptiveAvgPool2d(2)
        self.fc = M.Linear(16, 5)
        self.again = self.fc
        self.unused = M.Linear(3, 3)
        self.table = M.Linear(2, 7, bias=False)  # read, never called

    def forward(self, x):
        assert not self.training
        y = self.squeeze(self.up(self.pool(self.bn(self.conv(x)))))
        return self.fc(F.flatten(y, 1)), self.table.weight


EXPECTED_FLOPS = {
    "conv": 2 * 8 * 8 * 8 * (2 * 9 + 1),
    "bn": 7 * 2 * 8 * 8 * 8,
    "pool": 2 * 8 * 4 * 4 * 4,
    "up": 2 * 8 * 4 * 4 * (4 * 4) + 2 * 4 * 8 * 8,
    "squeeze": 2 * 4 * 2 * 2,
    "fc": 2 * 5 * 16 + 5,
}


def test_counts():
    net = Net()
    total, details = ms.module_stats(net, input_shapes=(2, 4, 8, 8), logging_to_stdout=False)
    got = {r["name"]: r["flops_num"] for r in details.flops[:-1]}
    assert got == {("again" if k == "fc" else k): v for k, v in EXPECTED_FLOPS.items()}  # named by the first path
    assert total.flops == sum(EXPECTED_FLOPS.values())
    assert {r["name"] for r in details.params} == {
        *(f"{m}-{s}" for m in ("conv", "bn", "up", "again") for s in "wb"), "table-w", "total"
    }  # fmt: skip
    dims = 8 * 2 * 9 + 8 + 16 + 8 * 4 * 4 + 4 + 80 + 5 + 14
    assert total.param_dims == dims and total.param_size == 4 * dims
    acts = 2 * (8 * 64 * 2 + 8 * 16 + 4 * 64 + 16 + 5)
    assert total.act_dims == acts and total.act_size == 4 * acts
    assert details.flops[0]["class_name"] == "Conv2d" and details.flops[0]["input_shapes"] == [(2, 4, 8, 8)]
    assert details.activations[-1] == {"name": "total", "act_dim": acts, "size": ms.sizeof_fmt(4 * acts)}
    assert sum(r["ratio"] for r in details.params[:-1]) == pytest.approx(1)


def test_the_model_is_left_as_it_was():
    net = Net()
    net.bn.eval()
    before = net.state_dict()
    ms.module_stats(net, input_shapes=(2, 4, 8, 8), logging_to_stdout=False)
    assert net.training and net.conv.training and not net.bn.training
    assert not any(m._forward_hooks for m in net.modules()) and "__getattribute__" not in vars(M.Module)
    for k, v in net.state_dict().items():
        np.testing.assert_array_equal(v, before[k])
    with pytest.raises(RuntimeError):
        ms.module_stats(net, input_shapes=(2, 5, 8, 8), logging_to_stdout=False)
    assert net.training and not any(m._forward_hooks for m in net.modules())
    assert "__getattribute__" not in vars(M.Module)


class Two(M.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = M.Linear(4, 3), M.Linear(4, 3, bias=False)

    def forward(self, x, y=None):
        if isinstance(x, dict):
            x, y = x["x"], x["y"][0]
        elif hasattr(x, "left"):
            x, y = x.left, x.right
        return {"out": [self.a(x) + self.b(y)]}


Pair = namedtuple("Pair", ["left", "right"])
ARRAY = np.ones((2, 4), "float32")


@pytest.mark.parametrize(
    "inputs",
    [
        [ARRAY, ARRAY],
        (ARRAY, mge.Tensor(ARRAY)),
        {"x": ARRAY, "y": [ARRAY]},
        [{"x": ARRAY, "y": (ARRAY,)}],
        [Pair(ARRAY, ARRAY)],
    ],
    ids=["list", "tuple", "dict", "dict-in-list", "namedtuple"],
)
def test_forms_of_inputs(inputs):
    total, details = ms.module_stats(Two(), inputs=inputs, logging_to_stdout=False)
    assert total.flops == 6 * 4 + 3 + 6 * 4 and [r["name"] for r in details.params] == ["a-w", "a-b", "b-w", "total"]
    assert "mean" in details.activations[0]


def test_several_shapes_and_parts_left_out():
    total, details = ms.module_stats(Two(), input_shapes=[(2, 4), (2, 4)], logging_to_stdout=False)
    assert total.flops == 51
    total, details = ms.module_stats(
        Two(), input_shapes=[(2, 4), (2, 4)], cal_params=False, cal_flops=False, cal_activations=False
    )
    assert total == (0, 0, 0, 0, 0) and details.flops == [] and details.activations == []


def test_nothing_to_run_with(caplog):
    assert ms.module_stats(Two()) is None


def test_a_shared_tensor_counts_once():
    net = M.Sequential(M.Linear(3, 3, bias=False), M.Linear(3, 3, bias=False))
    net[1].weight = net[0].weight
    total, details = ms.module_stats(net, input_shapes=(1, 3), logging_to_stdout=False)
    assert total.param_dims == 9 and [r["name"] for r in details.params] == ["0-w", "total"] and total.flops == 18


def test_rules_can_be_added():
    class Scale(M.Module):
        def forward(self, x):
            return x * 2

    @ms.register_flops(Scale)
    def flops_scale(module, inputs, outputs):
        return outputs[0].size

    ms.register_hook_module([Scale])
    try:
        assert ms.module_stats(Scale(), input_shapes=(3, 4), logging_to_stdout=False)[0].flops == 12
    finally:
        ms.hook_modules.remove(Scale)


def test_receptive_field():
    net = M.Sequential(
        M.Conv2d(3, 4, 3, stride=2, padding=1), M.BatchNorm2d(4), M.Conv2d(4, 4, 3, dilation=2), M.MaxPool2d(2)
    )
    ms.enable_receptive_field()
    try:
        _, details = ms.module_stats(net, input_shapes=(1, 3, 32, 32), logging_to_stdout=False)
    finally:
        ms.disable_receptive_field()
    assert [r["receptive_field"] for r in details.flops[:-1]] == [(3, 3), (3, 3), (11, 11), (13, 13)]
    assert [r["stride"] for r in details.flops[:-1]] == [(2, 2), (2, 2), (2, 2), (4, 4)]


@pytest.mark.parametrize(
    "module, shape, flops",
    [
        (M.Conv1d(4, 6, 3, groups=2), (2, 4, 9), 2 * 6 * 7 * (2 * 3 + 1)),
        (M.LayerNorm(4), (2, 4), 7 * 8),
        (M.GroupNorm(2, 4), (2, 4, 3, 3), 7 * 72),
        (M.AvgPool2d((2, 3)), (1, 1, 6, 6), 6 * 6),
        (M.BatchMatMulActivation(3, 4, 5), (3, 4, 7), 3 * 5 * 7 * 5),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, M.Module) else "",
)
def test_rules(module, shape, flops):
    assert ms.module_stats(module, input_shapes=shape, logging_to_stdout=False)[0].flops == flops


def test_sizes_for_people():
    assert [ms.sizeof_fmt(v) for v in (0, 1023, 1024, 1.5 * 2**20, -5)] == [
        "0.000 B", "1023.000 B", "1.000 KiB", "1.500 MiB", "-5.000 B"
    ]  # fmt: skip
    assert [ms.sizeof_fmt(v, suffix="OPs") for v in (999, 1000, 1e30)] == [
        "999.000 OPs", "1.000 KOPs", "1000000.000 YOPs"
    ]  # fmt: skip


def test_narrow_dtypes():
    assert ms.get_param_stats(mge.Tensor(np.ones(6, "float16")))["size"] == 12
    q = mge.Tensor(np.ones(6, "int8"), dtype=qint8(0.1))
    assert ms.get_param_stats(q)["nbits"] == 8 and ms.get_param_stats(q)["size"] == 6


def test_helpers_on_their_own():
    """Forms seen on MegEngine 1.13: tools count ops of their own and sum them with these functions."""
    row = {"shape": (2,), "size": 8}
    for total, dim in ((ms.sum_param_stats, "param_dim"), (ms.sum_activations_stats, "act_dim")):
        rows = [{"name": "a", dim: 2, **row}]
        dims, size, same = total(rows)
        assert (dims, size) == (2, 8) and same is rows and rows[0]["size_bar"] == "#" * 20
        assert rows[-1] == {"name": "total", dim: 2, "size": "8.000 B"}
    rows = [{"name": n, "flops_num": k, "output_shapes": []} for n, k in (("a", 100), ("b", 300))]
    flops, same = ms.sum_op_stats(rows)
    assert flops == 400 and same is rows and [r.get("bar") for r in rows] == ["#" * 6, "#" * 20, None]
    array = np.arange(6, dtype="float32").reshape(2, 3)
    assert {**ms.get_param_stats(array), "dtype": 0} == {**ms.get_param_stats(mge.Tensor(array)), "dtype": 0}
    assert ms.get_activation_stats(array)["size"] == 24 and ms.get_activation_stats(array, True)["std"] == "1.71"
    assert ms.get_op_stats(M.ReLU(), (array,), (array,)) is None


def test_tables_are_logged(caplog, capsys):
    import logging

    records = []
    handler = logging.Handler()
    handler.emit = lambda r: records.append(r.getMessage())
    ms.logger.addHandler(handler)
    try:
        ms.module_stats(Two(), input_shapes=[(2, 4), (2, 4)])
    finally:
        ms.logger.removeHandler(handler)
    assert [r.split("\n")[0].strip(" :") for r in records] == [
        "param stats", "flops stats", "activations stats", "summary"
    ]  # fmt: skip
    assert "total_flops       51.000 OPs" in records[3]
