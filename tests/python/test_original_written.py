"""Files in MegEngine's format that are good for other sizes than they were dumped with: what follows the sizes of the
input here must follow them there. Each is read again and run at three sizes."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor, jit
from megengine.utils.comp_graph_tools import GraphInference
from megengine.utils.network import Network

SIZES = [(2, 6, 7, 8), (3, 6, 7, 8), (1, 6, 9, 11)]


def image(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.RandomState(sum(shape)).uniform(-2, 2, shape).astype("float32")


def dumped(fn: Callable[[Tensor], Tensor], version: str, optimize: bool = True) -> io.BytesIO:
    traced = jit.trace(fn, symbolic=True, capture_as_const=True)
    traced(Tensor(image(SIZES[0])))
    file = io.BytesIO()
    traced.dump(file, arg_names=["x"], output_names=["y"], dump_format=version, optimize_for_inference=optimize)
    file.seek(0)
    return file


def picked(x: Tensor) -> Tensor:
    best = F.argmax(x, axis=1)
    return F.gather(x, 1, F.broadcast_to(F.expand_dims(best, 1), (x.shape[0], 1, x.shape[2], x.shape[3])))


def positions(x: Tensor) -> Tensor:
    n = x.shape[2] * x.shape[3]  # more than a size has axes, and computed in float64
    return F.flatten(x, 2) + F.linspace(0, n - 1, n)


class Tagger(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = M.LSTM(6, 3, num_layers=2, bidirectional=True)

    def forward(self, x: Tensor) -> Tensor:
        y, (h, c) = self.lstm(F.flatten(x, 2).transpose(2, 0, 1))
        return F.concat([y.reshape(-1), h.reshape(-1), c.reshape(-1)])


NETS: dict[str, Callable[[Tensor], Tensor]] = {
    "adaptive_avg_pool": lambda x: F.adaptive_avg_pool2d(x, (3, 4)),
    "adaptive_avg_pool_to_one": lambda x: F.adaptive_avg_pool2d(x, 1),
    "adaptive_max_pool": lambda x: F.adaptive_max_pool2d(x, (3, 4)),
    "global_pool": lambda x: F.avg_pool2d(x, (x.shape[2], x.shape[3])),
    "group_norm": M.GroupNorm(3, 6),
    "bidirectional_lstm": Tagger(),
    "gather": picked,
    "linspace": positions,
    "product_with_a_computed_matrix": lambda x: F.matmul(x, F.eye(x.shape[3]) * 2),
    "product_with_a_part_of_itself": lambda x: F.matmul(x[:, 0], x[0, 0], transpose_b=True),
    "adaptive_avg_pool_to_computed_sizes": lambda x: F.adaptive_avg_pool2d(x, (x.shape[2] - 2, 3)),
    "adaptive_max_pool_to_one_computed_size": lambda x: F.adaptive_max_pool2d(x, x.shape[2] // 2),
    "cross_entropy": lambda x: F.nn.cross_entropy(
        F.flatten(x, 2), F.zeros((x.shape[0], x.shape[2] * x.shape[3]), dtype="int32"), reduction="none"
    ),
    "split_at_positions": lambda x: F.split(x, [2, 5], axis=1)[1] + 1,
    "repeat": lambda x: (
        F.repeat(mge.Tensor(image((1, 2, 3))), x.shape[0], axis=0) + x.mean(axis=(1, 2, 3)).reshape(-1, 1, 1)
    ),
    "instance_norm": M.InstanceNorm(6, affine=False),
    "resize_to_corners": lambda x: F.vision.interpolate(
        F.avg_pool2d(x, 2), size=(x.shape[2], x.shape[3]), mode="bilinear", align_corners=True
    ),
    "resize_to_one_pixel": lambda x: F.vision.interpolate(x, size=(1, x.shape[3] * 2), align_corners=True),
    "layer_norm_without_weights": lambda x: F.nn.layer_norm(x, x.shape[1:], False),
}


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("version", ["FBS_V2", "FBS"])
@pytest.mark.parametrize("name", NETS)
def test_sizes_of_the_input_are_followed(name: str, version: str, optimize: bool) -> None:
    graph = GraphInference(dumped(NETS[name], version, optimize))
    for shape in SIZES:
        x = image(shape)
        np.testing.assert_allclose(graph.run(x)["y"], NETS[name](Tensor(x)).numpy(), rtol=1e-4, atol=1e-5)


def test_a_deconvolution_of_any_size_is_written_again() -> None:
    """What a file says follows the sizes of its input, so that of the result is a value when it is written again."""
    net = M.ConvTranspose2d(6, 2, 3, stride=2, padding=1)
    again = io.BytesIO()
    Network.load(dumped(net, "FBS_V2")).dump(again, dump_format="FBS_V2")
    again.seek(0)
    graph = GraphInference(again)
    for shape in SIZES:
        x = image(shape)
        np.testing.assert_allclose(graph.run(x)["y"], net(Tensor(x)).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("version", ["FBS_V2", "FBS"])
def test_adaptive_pooling_to_computed_sizes_is_written_again(version: str) -> None:
    net = NETS["adaptive_avg_pool_to_computed_sizes"]
    again = io.BytesIO()
    Network.load(dumped(net, version)).dump(again, dump_format=version)
    again.seek(0)
    graph = GraphInference(again)
    for shape in SIZES:
        x = image(shape)
        np.testing.assert_allclose(graph.run(x)["y"], net(Tensor(x)).numpy(), rtol=1e-4, atol=1e-5)


def test_a_slice_that_takes_all_has_no_item() -> None:
    """MegEngine's loader takes none that says neither where to begin nor where to end."""
    again = io.BytesIO()
    Network.load(dumped(lambda x: F.sliding_window(x, 3, padding=1), "FBS_V2")).dump(again, dump_format="FBS_V2")
    again.seek(0)
    items = [i for o in Network.load(again).all_oprs if "items" in o.params for i in o.params["items"]]
    assert all(any(i[1:]) for i in items)


def test_windows_that_follow_sizes_in_another_way_are_refused() -> None:
    """Two windows side by side, each half of the image: adaptive pooling has larger ones where the size is odd."""
    with pytest.raises(NotImplementedError, match="avg_pool2d .with windows computed from sizes."):
        dumped(lambda x: F.avg_pool2d(x[:, :, :6], (x.shape[2] // 3, x.shape[3] // 2)), "FBS_V2")
    dumped(lambda x: F.avg_pool2d(x, (2, 3)), "FBS_V2")


def test_a_layer_that_no_data_reached_does_not_stop_quantisation() -> None:
    from megengine import quantization as Q

    class Net(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.quant, self.used, self.unused, self.dequant = (
                M.QuantStub(),
                M.Linear(3, 2),
                M.Linear(3, 4),
                M.DequantStub(),
            )

        def forward(self, x: Tensor) -> Tensor:
            return self.dequant(self.used(self.quant(x)))

    x = mge.tensor([[1.0, -2.0, 0.5]])
    net = Q.quantize_qat(Net(), qconfig=Q.min_max_fakequant_qconfig)
    with pytest.warns(RuntimeWarning, match="no data reached this Net, so there is no scale that fits"):
        Q.quantize(net, inplace=False)
    net(x)
    net.eval()
    want = net(x).numpy()
    with pytest.warns(RuntimeWarning, match="no data reached the Linear unused, so no scale fits"):
        quantised = Q.quantize(net)
    np.testing.assert_array_equal(quantised(x).numpy(), want)


BOXES = np.array([[0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30], [21, 21, 29, 29], [50, 50, 51, 51]], "float32")
SCORES = np.array([0.9, 0.8, 0.7, 0.95, 0.1], "float32")


@pytest.mark.parametrize("version", ["FBS_V2", "FBS"])
@pytest.mark.parametrize("most", [1, 2, 9])
def test_nms_is_written(most: int, version: str) -> None:
    """Seen to run in MegEngine 1.13 with these numbers, also with fewer boxes than may be kept and with more."""

    def kept(boxes: Tensor, scores: Tensor) -> Tensor:
        return F.vision.nms(boxes, scores, 0.5, most)

    traced = jit.trace(kept, symbolic=True, capture_as_const=True)
    traced(Tensor(BOXES), Tensor(SCORES))
    file = io.BytesIO()
    traced.dump(file, arg_names=["boxes", "scores"], output_names=["y"], dump_format=version)
    file.seek(0)
    graph = GraphInference(file)
    file.seek(0)
    again = io.BytesIO()  # its list of places is longer than its count there
    Network.load(file).dump(again, dump_format=version)
    again.seek(0)
    for g in (graph, GraphInference(again)):
        np.testing.assert_array_equal(g.run(BOXES, SCORES)["y"], [3, 0, 4][:most])
        np.testing.assert_array_equal(g.run(BOXES[1:3], SCORES[1:3])["y"], [0, 1][:most])


def test_nms_without_a_number_is_refused() -> None:
    traced = jit.trace(lambda b, s: F.vision.nms(b, s, 0.5), symbolic=True, capture_as_const=True)
    traced(Tensor(BOXES), Tensor(SCORES))
    with pytest.raises(NotImplementedError, match="nms .without max_output, which must be a number there"):
        traced.dump(io.BytesIO(), dump_format="FBS_V2")


@pytest.mark.parametrize("version", ["FBS_V2", "FBS"])
def test_aligned_corners_are_written(version: str) -> None:
    net = lambda x: F.vision.interpolate(x, (5, x.shape[3] * 2), align_corners=True)  # noqa: E731
    graph = GraphInference(dumped(net, version))
    for shape in SIZES:
        x = image(shape)
        np.testing.assert_allclose(graph.run(x)["y"], net(Tensor(x)).numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "options", [{}, {"stride": 2, "padding": 1, "output_padding": 1}, {"groups": 2, "bias": False}]
)
def test_a_transposed_convolution_of_int8_is_written(options: dict[str, int]) -> None:
    from megengine import quantization as Q

    class Net(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.quant, self.layer, self.dequant = (
                M.QuantStub(),
                M.ConvTranspose2d(6, 4, 3, **options),  # type: ignore[arg-type]
                M.DequantStub(),
            )

        def forward(self, x: Tensor) -> Tensor:
            return self.dequant(self.layer(self.quant(x)))

    net = Net()
    Q.quantize_qat(net, qconfig=Q.min_max_fakequant_qconfig)
    net(Tensor(image(SIZES[0])))
    net.eval()
    Q.quantize(net)
    x = image(SIZES[0])
    got, want = GraphInference(dumped(lambda x: net(x), "FBS_V2")).run(x)["y"], net(Tensor(x)).numpy()
    step = np.diff(np.unique(want)).min()
    assert np.abs(got - want).max() <= 1.01 * step and np.mean(got != want) < 0.02  # halves may go either way


@pytest.mark.parametrize("version", ["FBS_V2", "FBS"])
def test_gradients_are_written(version: str) -> None:
    def gradient(x: Tensor) -> Tensor:
        gm = mge.autodiff.GradManager().attach([x])
        with gm:
            y = F.max_pool2d(F.sigmoid(F.conv2d(F.abs(x), WEIGHT, padding=1)), 2)
            gm.backward((F.tanh(F.avg_pool2d(y, 3, 1, 1)) + F.nn.hsigmoid(y * 8 - 4) + F.relu(y - 0.5)).sum())
        assert x.grad is not None
        return x.grad

    x = image(SIZES[0])
    got = GraphInference(dumped(gradient, version)).run(x)["y"]
    np.testing.assert_allclose(got, gradient(Tensor(x)).numpy(), rtol=1e-4, atol=1e-5)


WEIGHT = Tensor(image((5, 6, 3, 3)))


def test_an_output_that_is_its_input_keeps_its_name() -> None:
    assert list(GraphInference(dumped(F.copy, "FBS_V2")).run(image(SIZES[0]))) == ["y"]


@pytest.mark.parametrize("version", ["FBS", "FBS_V2"])
def test_what_changes_nothing_is_not_written(version: str) -> None:
    """MegEngine cannot load a reshape to its own shape, and its GraphInference none of the products."""
    fns: dict[str, Callable[[Tensor], Tensor]] = {
        "reshape": lambda x: F.relu(x).reshape(F.relu(x).shape),
        "products": lambda x: F.relu(((1 * x) * 1 + 0) ** 1),
    }
    for fn in fns.values():
        file = dumped(fn, version, optimize=False)
        assert {o.type for o in Network.load(file).all_oprs} <= {"Host2DeviceCopy", "RELU", "Elemwise", "GetVarShape"}
        file.seek(0)
        for size in SIZES:
            (y,) = GraphInference(file).run(inp_dict={"x": image(size)}).values()
            np.testing.assert_array_equal(np.asarray(y), np.maximum(image(size), 0))
            file.seek(0)


def test_quantised_values_are_picked_as_numbers() -> None:
    """MegEngine picks no quantised values by index, as the borders of reflected images are."""
    scale = mge.Tensor(0.05)

    def quantised(x: Tensor) -> Tensor:
        q = x.astype(mge.core.tensor.dtype.qint8(float(scale)))
        return F.pad(q, ((0, 0), (0, 0), (2, 1), (1, 0)), "reflect").astype("float32")

    file = dumped(quantised, "FBS_V2")
    want = np.pad(np.rint(image(SIZES[0]) / 0.05) * 0.05, ((0, 0), (0, 0), (2, 1), (1, 0)), "reflect")
    (y,) = GraphInference(file).run(inp_dict={"x": image(SIZES[0])}).values()
    np.testing.assert_allclose(np.asarray(y), want, rtol=1e-5, atol=1e-5)
    file.seek(0)
    for op in Network.load(file).all_oprs:
        if op.type.startswith("Indexing"):
            assert op.inputs[0].dtype == np.float32
