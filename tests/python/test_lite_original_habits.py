"""What programs written for MegEngine Lite do; the numbers and names are what it gave them."""

from __future__ import annotations

import ctypes
import io
from pathlib import Path

import numpy as np
import pytest

import megenginelite as lite

pytestmark = pytest.mark.asan_subset

DATA = Path(__file__).parents[2] / "tests/data/lite"
MODEL = DATA / "net_v1.mge"
PIXELS = (np.arange(128, dtype="float32") % 17 / 16 - 0.5).reshape(2, 1, 8, 8)


def loaded(io: lite.LiteNetworkIO | None = None) -> lite.LiteNetwork:
    network = lite.LiteNetwork(io=io)
    network.load(MODEL)
    return network


def run(network: lite.LiteNetwork) -> np.ndarray:
    network.forward()
    network.wait()
    return network.get_io_tensor("logits").to_numpy()


def test_a_star_import_brings_what_programs_take_from_it() -> None:
    names: dict[str, object] = {}
    exec("from megenginelite import *", names)
    wanted = "np os ctypes POINTER c_int c_void_p byref memmove MAX_DIM LiteTensor LiteAsyncCallback"
    assert set(wanted.split()) <= set(names)
    assert lite.ctype_to_lite_dtypes[ctypes.c_float] == lite.LiteDataType.LITE_FLOAT


def test_a_flat_array_is_memory_for_the_layout_that_there_is() -> None:
    net = loaded()
    data = net.get_io_tensor("data")
    data.set_data_by_copy(PIXELS)
    want = run(net)
    flat = PIXELS.ravel().copy()
    data.set_data_by_share(flat)
    assert data.layout.shapes == [2, 1, 8, 8]
    np.testing.assert_array_equal(run(net), want)
    data.set_data_by_share(PIXELS.reshape(1, 2, 8, 8))  # as many dimensions: these are its sizes
    assert data.layout.shapes == [1, 2, 8, 8]
    data.set_data_by_share(flat[:64])  # another size: its own
    assert data.layout.shapes == [64]


def test_a_pointer_without_a_length_holds_the_layout() -> None:
    source = lite.LiteTensor(lite.LiteLayout([2, 3]))
    source.set_data_by_copy(np.arange(6, dtype="float32"))
    view = lite.LiteTensor(lite.LiteLayout([2, 3]))
    view.set_data_by_share(source.get_ctypes_memory())
    np.testing.assert_array_equal(view.to_numpy(), np.arange(6).reshape(2, 3))


def test_a_larger_layout_leaves_memory_of_the_caller() -> None:
    net = loaded()
    data = net.get_io_tensor("data")
    data.set_data_by_share(PIXELS)
    data.layout = lite.LiteLayout([4, 1, 8, 8])
    twice = np.concatenate([PIXELS, PIXELS])
    data.set_data_by_share(twice)
    got = run(net)
    np.testing.assert_array_equal(got[:2], got[2:])
    data.layout = lite.LiteLayout([6, 1, 8, 8])
    data.set_data_by_copy(np.concatenate([twice, PIXELS]))
    np.testing.assert_array_equal(run(net)[4:], got[:2])


def test_bytes_in_the_other_order() -> None:
    values = np.array([1.5, 2, 3], ">f4")
    t = lite.LiteTensor(lite.LiteLayout([3]))
    t.set_data_by_copy(values)
    np.testing.assert_array_equal(t.to_numpy(), [1.5, 2, 3])
    with pytest.raises(RuntimeError, match="another machine's order"):
        t.set_data_by_share(values)


def test_nothing_is_an_empty_array() -> None:
    got = lite.LiteTensor().to_numpy()
    assert (got.shape, got.dtype) == ((0,), np.float32)
    layout = lite.LiteLayout([5, 6, 7])
    layout.shapes = [2]
    layout.ndim = 3
    assert layout.shapes == [2, 0, 0]  # no sizes of before
    t = lite.LiteTensor(lite.LiteLayout([2, 2]))
    t.set_data_by_copy([1, 2, 3], layout=lite.LiteLayout([2, 2]))
    np.testing.assert_array_equal(t.to_numpy(), [[1, 2], [3, 0]])


def test_a_second_model_takes_the_place_of_the_first() -> None:
    net = loaded()
    net.get_io_tensor("data").set_data_by_copy(PIXELS)
    want = run(net)
    old = net.get_io_tensor("data")
    net.load(DATA / "original/mean.v1.mge")
    assert net.get_all_input_name() == ["a"]
    with pytest.raises(RuntimeError, match="no value yet"):
        net.get_io_tensor(net.get_output_name(0)).to_numpy()
    with pytest.raises(RuntimeError, match="destroyed"):
        _ = old.layout
    net.share_weights_with(loaded())
    net.get_io_tensor("data").set_data_by_copy(PIXELS)
    np.testing.assert_array_equal(run(net), want)


def test_outputs_that_were_named_come_first() -> None:
    io = lite.LiteNetworkIO()
    io.add_output("prob")
    net = loaded(io)
    assert net.get_all_output_name() == ["prob", "logits"]
    assert [net.get_output_name(i) for i in range(2)] == ["logits", "prob"]


@pytest.mark.parametrize("shape", [(2, 3, 4), (5,), (3, 4), (2, 3, 4, 5), (1, 2, 1, 3, 2)])
def test_inputs_of_another_rank_where_the_graph_takes_them(shape: tuple[int, ...]) -> None:
    net = lite.LiteNetwork()
    net.load(DATA / "original/mean.v1.mge")  # F.mean(a) of (2, 3, 4)
    values = (np.arange(np.prod(shape)) * 7 % 11).reshape(shape).astype("float32")
    net.get_io_tensor("a").set_data_by_copy(values)
    net.forward()
    net.wait()
    np.testing.assert_allclose(net.get_io_tensor(net.get_output_name(0)).to_numpy(), [values.mean()], rtol=1e-6)


def test_arguments_that_are_none() -> None:
    net, t, config = loaded(), lite.LiteTensor(lite.LiteLayout([2])), lite.LiteConfig()
    assert net.get_io_tensor(b"data").layout.shapes == [2, 1, 8, 8]
    for wrong in (
        lambda: setattr(config, "bare_model_cryption_name", 3),
        lambda: setattr(lite.LiteIO("a"), "name", None),
        lambda: lite.LiteIO(3),
        lambda: lite.LiteNetworkIO([3]),
        lambda: lite.LiteNetworkIO("data"),
        lambda: lite.LiteLayout([1] * 8),
        lambda: t.copy_from(np.zeros(2)),
        lambda: t.share_memory_with(None),
        lambda: t.set_data_by_share([1, 2]),
        lambda: t.set_data_by_share(np.arange(8.0, dtype="float32")[::2]),
        lambda: t.slice([0], [1, 2]),
        lambda: lite.LiteTensorConcat([np.zeros(2)], 0),
        lambda: net.share_weights_with(None),
        lambda: net.set_start_callback(None),
        lambda: net.async_with_callback(3),
        lambda: net.load(MODEL.read_bytes()),
        lambda: net.load(io.StringIO()),
    ):
        for kind in (RuntimeError, TypeError, AssertionError):  # whatever callers look for
            with pytest.raises(kind, match=r"\w \w"):
                wrong()


def test_what_a_batch_collector_says_of_itself() -> None:
    batch = lite.TensorBatchCollector([4, 2], dtype="int16", device_type=lite.LiteDeviceType.LITE_CPU)
    assert (batch.shape, batch.dtype) == ([4, 2], lite.LiteDataType.LITE_INT16)
    assert (batch.dev_type, batch.dev_id, batch.is_pinned_host) == (lite.LiteDeviceType.LITE_CPU, 0, False)
    for sample in ([1, 2], np.zeros(2, "int8"), np.zeros(3, "int16")):
        with pytest.raises(AssertionError, match="a sample is"):
            batch.collect(sample)
    assert batch.collect(np.ones(2, "int16")) == 0  # what failed took no slot


def test_a_tensor_without_memory_prints() -> None:
    assert repr(lite.LiteTensor(physic_construct=False)) == "LiteTensor(lite: the tensor handle is null.)"
    assert "float32" in repr(lite.LiteTensor(lite.LiteLayout([2], "float32")))


def test_bytes_are_memory() -> None:
    ones = np.ones(6, "float32").tobytes()
    t = lite.LiteTensor(lite.LiteLayout([2, 3]))
    forms: tuple[bytes | bytearray | memoryview, ...] = (ones, bytearray(ones), memoryview(ones))
    for data in forms:
        t.fill_zero()
        t.set_data_by_copy(data, len(data))
        np.testing.assert_array_equal(t.to_numpy(), np.ones((2, 3)))
    t.set_data_by_copy((ctypes.c_float * 2)(7, 8), 8)  # the beginning
    np.testing.assert_array_equal(t.to_numpy(), [[7, 8, 1], [1, 1, 1]])
    four = (ctypes.c_float * 4)(1, 2, 3, 4)
    t.set_data_by_copy(four, 16, lite.LiteLayout([2, 2]))
    np.testing.assert_array_equal(t.to_numpy(), [[1, 2], [3, 4]])
    t.set_data_by_copy(ctypes.cast(four, ctypes.c_void_p), layout=lite.LiteLayout([4]))
    np.testing.assert_array_equal(t.to_numpy(), [1, 2, 3, 4])
    t.set_data_by_share(ones, layout=lite.LiteLayout([3, 2]))
    np.testing.assert_array_equal(t.to_numpy(), np.ones((3, 2)))
    with pytest.raises(AssertionError, match="takes 24 bytes; got 8"):
        t.set_data_by_copy(ones[:8])
    with pytest.raises(RuntimeError, match="32 bytes of an object that has 24"):
        t.set_data_by_share(ones, 32)


@pytest.mark.parametrize("cut", ["0:-1", "-1:4", "-3:-1", "1:9", "5:6", "3:0:-1", "-1:-9:-2", "0:4:-1", "2:1"])
def test_slices_count_from_the_end_as_in_python(cut: str) -> None:
    values = np.arange(8, dtype="float32").reshape(4, 2)
    t = lite.LiteTensor(lite.LiteLayout([4, 2]))
    t.set_data_by_copy(values)
    start, end, step = [*map(int, cut.split(":")), 1][:3]
    view = t.slice([start], [end], [step])
    want = values[start:end:step]
    assert view.layout.shapes == list(want.shape)
    np.testing.assert_array_equal(view.to_numpy(), want)
    np.testing.assert_array_equal(lite.LiteTensorConcat([view, t], 0).to_numpy(), np.concatenate([want, values]))
    view.fill_zero()
    values[start:end:step] = 0
    np.testing.assert_array_equal(t.to_numpy(), values)


def test_an_input_that_goes_backwards() -> None:
    net = loaded()
    net.get_io_tensor("data").set_data_by_copy(PIXELS)
    want = run(net)
    t = lite.LiteTensor(lite.LiteLayout([2, 1, 8, 8]))
    t.set_data_by_copy(PIXELS)
    net.get_io_tensor("data").share_memory_with(t.slice([-1], [-3], [-1]))
    np.testing.assert_array_equal(run(net), want[::-1])


def test_what_is_printed() -> None:
    layout = "{'shapes': [2], 'ndim': 1, 'data_type': <class 'numpy.float32'>}"
    assert repr(lite.LiteLayout([2])) == layout
    io = "'is_host': True, 'io_type': <LiteIOType.LITE_IO_VALUE: 0>, 'config_layout': " + layout
    assert repr(lite.LiteNetworkIO([lite.LiteIO("a", layout=lite.LiteLayout([2]))])) == (
        "{'inputs': [{'name': 'a', " + io + "}], 'outputs': []}"
    )
    assert repr(lite.LiteTensor(lite.LiteLayout([2]))) == (
        "{'layout': "
        + layout
        + ", 'device_type': <LiteDeviceType.LITE_CPU: 0>, 'device_id': 0, 'is_pinned_host': False}"
    )
    assert str(lite.LiteDataType.LITE_INT8) == "LiteDataType.LITE_INT8" and f"{lite.LiteDataType.LITE_INT8}" == "4"
    assert (lite.LiteLayout([]).shapes, lite.LiteConfig().use_loader_dynamic_param) == ([], 0)
