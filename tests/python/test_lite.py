"""megenginelite over liblite.so, on the model in tests/data/lite."""

from __future__ import annotations

import ctypes
import gc
import io
import os
import re
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import megenginelite as lite

pytestmark = pytest.mark.asan_subset

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "tests/data/lite/net_v1.mge"
PIXELS = (np.arange(128, dtype="float32") % 17 / 16 - 0.5).reshape(2, 1, 8, 8)


@pytest.fixture
def net() -> lite.LiteNetwork:
    network = lite.LiteNetwork()
    network.load(MODEL)
    return network


def run(network: lite.LiteNetwork, pixels: np.ndarray = PIXELS) -> np.ndarray:
    network.get_io_tensor("data").set_data_by_copy(pixels)
    network.forward()
    network.wait()
    return network.get_io_tensor("logits").to_numpy()


def test_version_is_one() -> None:
    header = (ROOT / "include/megengine/version.h").read_text()
    text = re.search(r'MGE_VERSION_STRING "(.*)"', header)[1]
    python = re.search(r'__version__ = "(.*)"', (ROOT / "python/megengine/version.py").read_text())[1]
    assert text == python
    assert text.startswith(lite.version)
    assert lite.__version__ == lite.version == lite.get_version()


def test_load_run_and_read(net: lite.LiteNetwork) -> None:
    assert net.get_all_input_name() == ["data", "bias"]
    assert net.get_all_output_name() == ["logits", "prob"]
    assert (net.get_input_name(0), net.get_output_name(1)) == ("data", "prob")
    assert net.get_io_tensor("data").layout == lite.LiteLayout([2, 1, 8, 8], "float32")
    logits = run(net)
    prob = net.get_io_tensor("prob").to_numpy()
    e = np.exp(logits - logits.max(1, keepdims=True))
    np.testing.assert_allclose(prob, e / e.sum(1, keepdims=True), rtol=1e-5)


def test_bytes_give_the_same_bits(net: lite.LiteNetwork) -> None:
    other = lite.LiteNetwork()
    with open(MODEL, "rb") as f:
        other.load(f)
    third = lite.LiteNetwork()
    third.load(io.BytesIO(MODEL.read_bytes()))
    assert run(other).tobytes() == run(net).tobytes() == run(third).tobytes()


def test_other_batch_sizes(net: lite.LiteNetwork) -> None:
    two = run(net)
    one = run(net, PIXELS[1:])
    assert one.shape == (1, 5)
    assert one.tobytes() == two[1:].tobytes()
    assert run(net, PIXELS[:0]).shape == (0, 5)


def test_share_data(net: lite.LiteNetwork) -> None:
    want = run(net)
    pixels = np.zeros_like(PIXELS)
    net.get_io_tensor("data").set_data_by_share(pixels)
    pixels[:] = PIXELS
    net.forward()
    net.wait()
    view = net.get_io_tensor("logits").get_data_by_share()
    assert view.tobytes() == want.tobytes()
    pixels[:] = 0
    net.forward()
    assert view.tobytes() != want.tobytes()
    with pytest.raises(RuntimeError, match="contiguous"):
        net.get_io_tensor("data").set_data_by_share(pixels[:, :, ::2])


def test_shared_arrays_live_as_long_as_the_network_needs_them(net: lite.LiteNetwork) -> None:
    want = run(net)
    net.get_io_tensor("data").set_data_by_share(PIXELS.copy())
    gc.collect()
    rubbish = [np.full_like(PIXELS, 7) for _ in range(100)]
    net.forward()
    net.wait()
    assert net.get_io_tensor("logits").to_numpy().tobytes() == want.tobytes()
    assert len(rubbish) == 100


def test_a_flat_list_fills_a_tensor_in_its_layout() -> None:
    t = lite.LiteTensor(lite.LiteLayout([4, 8], "float32"))
    t.set_data_by_copy(list(range(32)))
    np.testing.assert_array_equal(t.to_numpy(), np.arange(32).reshape(4, 8))
    t.set_data_by_copy([5, 6])
    np.testing.assert_array_equal(t.to_numpy().ravel(), [5, 6, *[0] * 30])
    t.set_data_by_copy(list(range(40)))  # more than it holds brings its own shape
    assert t.layout.shapes == [40]


def test_a_slice_that_ends_behind_the_tensor_ends_with_it() -> None:
    t = lite.LiteTensor(lite.LiteLayout([4, 6], "float32"))
    t.set_data_by_copy(np.arange(24, dtype="float32").reshape(4, 6))
    np.testing.assert_array_equal(t.slice([1, 2], [9, 9]).to_numpy(), t.to_numpy()[1:, 2:])


def test_dumps_asked_for_after_the_load(net: lite.LiteNetwork, tmp_path: Path) -> None:
    want = run(net)
    (tmp_path / "values").mkdir()
    net.io_txt_dump(str(tmp_path / "values.txt"))
    net.io_bin_dump(str(tmp_path / "values"))
    np.testing.assert_allclose(run(net), want, rtol=1e-6)
    assert "logits" in (tmp_path / "values.txt").read_text()
    assert list((tmp_path / "values").iterdir())


def test_arrays_keep_their_network_alive() -> None:
    network = lite.LiteNetwork()
    network.load(MODEL)
    want = run(network)
    view = network.get_io_tensor("logits").get_data_by_share()
    del network
    gc.collect()
    assert view.tobytes() == want.tobytes()


def test_tensor_data() -> None:
    t = lite.LiteTensor(lite.LiteLayout([2, 3], "int16"))
    assert t.nbytes == 12
    assert (t.device_type, t.device_id, t.is_pinned_host, t.is_continue) == (
        lite.LiteDeviceType.LITE_CPU,
        0,
        False,
        True,
    )
    t.set_data_by_copy([[1, 2, 3], [4, 5, 6]])
    s = t.slice([0, 1], [2, 3])
    assert not s.is_continue
    np.testing.assert_array_equal(s.to_numpy(), [[2, 3], [5, 6]])
    s.set_data_by_copy(np.array([[20, 30], [50, 60]], "int16"))
    np.testing.assert_array_equal(t.to_numpy(), [[1, 20, 30], [4, 50, 60]])
    t.reshape([-1])
    assert t.layout.shapes == [6]
    raw = (ctypes.c_int16 * 6)(*range(6))
    t.set_data_by_copy(raw)
    np.testing.assert_array_equal(t.to_numpy(), range(6))
    t.set_data_by_share(raw)
    raw[0] = 99
    assert t.to_numpy()[0] == 99
    t.fill_zero()
    assert raw[0] == 0
    t.layout = [2]
    assert t.layout == lite.LiteLayout([2], np.int16)
    both = lite.LiteTensorConcat([t, t], 0)
    assert both.layout.shapes == [4]
    with pytest.raises(RuntimeError, match="does not fit"):
        t.slice([-3], [9])


@pytest.mark.parametrize(
    "name", ["float32", "float16", "float64", "int64", "int32", "int16", "int8", "uint8", "uint16", "bool"]
)
def test_dtypes(name: str) -> None:
    a = np.arange(6).reshape(2, 3).astype(name)
    t = lite.LiteTensor(shapes=[2, 3], dtype=name)
    t.set_data_by_copy(a)
    assert t.to_numpy().dtype == a.dtype
    np.testing.assert_array_equal(t.to_numpy(), a)


def test_errors_are_runtime_errors(net: lite.LiteNetwork, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"no input or output 'dta'\. Inputs: data, bias\. Outputs: logits, prob"):
        net.get_io_tensor("dta")
    with pytest.raises(RuntimeError, match=r"(?s)conv2d: input has 2 channels.*in conv2d\(data: float.*net\.py:21"):
        run(net, np.zeros((1, 2, 8, 8), "float32"))
    with pytest.raises(RuntimeError, match="is float32.* its tensor is int32"):
        run(net, PIXELS.astype("int32"))
    run(net)
    with pytest.raises(RuntimeError, match="before load_model"):
        net.threads_number = 2
    for damage, text in ((slice(0, 100), "cut off"), (slice(0, 0), "empty")):
        bad = tmp_path / "bad.mge"
        bad.write_bytes(MODEL.read_bytes()[damage])
        with pytest.raises(RuntimeError, match=text):
            lite.LiteNetwork().load(bad)
    bad.write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(RuntimeError, match="Python pickle"):
        lite.LiteNetwork().load(bad)
    with pytest.raises(RuntimeError, match="no LiteDataType"):
        lite.LiteLayout([1], "uint64")
    with pytest.raises(RuntimeError, match="at most 7"):
        lite.LiteLayout([1] * 8)


def test_configuration() -> None:
    ios = lite.LiteNetworkIO(inputs=[["data", True, lite.LiteIOType.LITE_IO_VALUE, lite.LiteLayout([3, 1, 8, 8])]])
    ios.add_output("prob", io_type=lite.LiteIOType.LITE_IO_SHAPE)
    option = lite.LiteOptions()
    option.graph_opt_level = 0
    network = lite.LiteNetwork(lite.LiteConfig(option=option), ios)
    network.threads_number = 2
    network.enable_cpu_inplace_mode()
    assert network.threads_number == 2
    assert network.is_cpu_inplace_mode()
    network.load(MODEL)
    assert network.get_io_tensor("logits").layout.shapes == [3, 5]
    network.forward()
    network.wait()
    assert not network.get_io_tensor("prob").to_numpy().any()
    config = lite.LiteConfig()
    config.bare_model_cryption_name = "AES_default"
    assert config.bare_model_cryption_name == "AES_default"
    with pytest.raises(RuntimeError, match="is not encrypted"):
        lite.LiteNetwork(config).load(MODEL)
    with pytest.raises(RuntimeError, match="this library runs on the CPU"):
        lite.LiteNetwork(lite.LiteConfig(lite.LiteDeviceType.LITE_CUDA)).load(MODEL)


def test_callbacks(net: lite.LiteNetwork) -> None:
    seen: list[str] = []

    def start(inputs: dict[lite.LiteIO, lite.LiteTensor]) -> None:
        seen.extend(sorted(i.name for i in inputs))
        inputs[lite.LiteIO("data")].set_data_by_copy(PIXELS)

    net.set_start_callback(start)
    net.set_finish_callback(lambda outputs: seen.append(f"{len(outputs)} outputs"))
    net.forward()
    net.wait()
    assert seen == ["bias", "data", "2 outputs"]

    def broken(_: object) -> None:
        raise KeyError("my own error")

    net.set_start_callback(broken)
    with pytest.raises(KeyError, match="my own error"):
        net.forward()


def test_async(net: lite.LiteNetwork) -> None:
    want = run(net)
    done = threading.Event()
    threads: list[int] = []
    net.async_with_callback(lambda: (threads.append(threading.get_ident()), done.set()))
    net.forward()
    assert done.wait(10)
    net.wait()
    assert threads != [threading.get_ident()]
    assert net.get_io_tensor("logits").to_numpy().tobytes() == want.tobytes()


def test_networks_in_threads(net: lite.LiteNetwork) -> None:
    want = run(net).tobytes()
    results: list[bytes] = []

    def work() -> None:
        mine = lite.LiteNetwork()
        mine.share_weights_with(net)
        results.extend(run(mine).tobytes() for _ in range(20))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert len(results) == 80
    assert set(results) == {want}


def test_model_io_info() -> None:
    info = lite.get_model_io_info(MODEL)
    assert [(i.name, i.config_layout.shapes) for i in info.inputs] == [("data", [2, 1, 8, 8]), ("bias", [1, 5])]
    assert [o.name for o in info.outputs] == ["logits", "prob"]


def test_dumps(tmp_path: Path) -> None:
    network = lite.LiteNetwork()
    network.io_txt_dump(tmp_path / "values.txt")
    network.io_bin_dump(tmp_path / "values")
    network.load(MODEL)
    run(network)
    assert "{batch_norm_infer}" in (tmp_path / "values.txt").read_text()
    assert len(list((tmp_path / "values").iterdir())) == 8


def test_global_settings() -> None:
    assert lite.get_log_level() == lite.LiteLogLevel.ERROR
    lite.set_log_level(lite.LiteLogLevel.WARN)
    assert lite.get_log_level() == lite.LiteLogLevel.WARN
    lite.set_log_level(lite.LiteLogLevel.ERROR)
    assert lite.LiteGlobal.get_device_count(lite.LiteDeviceType.LITE_CPU) == (os.cpu_count() or 1)
    lite.LiteGlobal.try_coalesce_all_free_memory()
    with pytest.raises(RuntimeError, match="no decryption method 'k'"):
        lite.LiteGlobal.update_decryption_key("k", [1])
    for refused in (lambda: lite.LiteGlobal.set_tensorrt_cache("x"), lite.LiteGlobal.dump_tensorrt_cache):
        with pytest.raises(RuntimeError, match="tensor_rt_cache: TensorRT needs a GPU"):
            refused()
    cpu = lite.LiteDeviceType.LITE_CPU
    for name, refused in (
        ("lookup_physic_ptr", lambda: lite.LiteGlobal.lookup_physic_ptr(None, cpu)),
        ("register_memory_pair", lambda: lite.LiteGlobal.register_memory_pair(None, None, 0, cpu)),
        ("clear_memory_pair", lambda: lite.LiteGlobal.clear_memory_pair(None, None, cpu)),
    ):
        with pytest.raises(RuntimeError, match=f"{name}: addresses of a program and of a device"):
            refused()
    lite.check_misc()
    lite.config_env()


def test_batch_collector() -> None:
    batch = lite.TensorBatchCollector([3, 2], np.float32, lite.LiteDeviceType.LITE_CPU)
    assert [batch.collect(np.full(2, i, "float32")) for i in range(4)] == [0, 1, 2, -1]
    batch.free([1])
    assert batch.collect_id(np.full(2, 9, "float32"), 1) == 1
    with pytest.raises(RuntimeError, match="a sample is"):
        batch.collect_id(np.full(3, 5, "float32"), 1)
    assert batch.collect(np.full(2, 5, "float32")) == -1  # the slot is taken as before
    assert batch.collect_id(np.full(2, 8, "float32"), 1) == 1  # the original puts it there, too
    np.testing.assert_array_equal(batch.to_numpy()[:, 0], [0, 8, 2])
    batch.collect_id(np.full(2, 9, "float32"), 1)
    np.testing.assert_array_equal(batch.to_numpy()[:, 0], [0, 9, 2])
    batch.free([0])
    raw = (ctypes.c_float * 2)(7, 8)
    assert batch.collect_by_ctypes(raw, 8) == 0
    np.testing.assert_array_equal(batch.get_tensor_at(0).to_numpy(), [[7, 8]])
    batch.free([0])
    with pytest.raises(RuntimeError, match="a sample is"):
        batch.collect(np.zeros(3, "float32"))
    assert batch.collect(np.zeros(2, "float32")) == 0  # a failed sample gives its slot back
    with pytest.raises(RuntimeError, match="not in use"):
        batch.free([7])


# ---- threads


def in_threads(work, count: int = 8) -> list[BaseException]:
    """Runs ``work(t)`` on several threads at once; what they raised."""
    raised: list[BaseException] = []
    ready = threading.Barrier(count)

    def body(t: int) -> None:
        ready.wait()
        try:
            work(t)
        except BaseException as e:
            raised.append(e)

    threads = [threading.Thread(target=body, args=(t,)) for t in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return raised


def test_threads_queue_on_one_network(net: lite.LiteNetwork) -> None:
    want = run(net)

    def work(t: int) -> None:
        for _ in range(20):
            assert (run(net) == want).all()

    assert in_threads(work) == []


def test_callbacks_are_replaced_while_others_run(net: lite.LiteNetwork) -> None:
    """The old function may be the one that a thread is about to call."""
    seen = []

    def work(t: int) -> None:
        for i in range(30):
            net.set_start_callback(lambda inputs, t=t, i=i: seen.append((t, i, len(inputs))))
            net.forward()

    assert in_threads(work) == []
    assert len(seen) == 240 and {n for _, _, n in seen} == {2}


def test_networks_are_dropped_while_others_run() -> None:
    def work(t: int) -> None:
        for _ in range(5):
            own = lite.LiteNetwork()
            own.load(MODEL)
            done = threading.Event()
            own.async_with_callback(done.set)
            own.forward()
            del own
            assert done.wait(30)

    assert in_threads(work) == []


def test_names_that_are_no_utf8_can_be_asked_for() -> None:
    """Found by tools/fuzz: such a model loads, and its names were an error of their own."""
    sys.path.insert(0, str(ROOT / "tools" / "fuzz"))
    try:
        from _common import reseal
    finally:
        sys.path.remove(str(ROOT / "tools" / "fuzz"))
    data = MODEL.read_bytes().replace(b"logits", b"logi\x94s")
    network = lite.LiteNetwork()
    network.load(io.BytesIO(reseal(data)))
    name = next(n for n in network.get_all_output_name() if n.startswith("logi"))
    assert name.encode("utf-8", "surrogateescape") == b"logi\x94s"
    network.forward()
    assert network.get_io_tensor(name).to_numpy().shape == (2, 5)


def recorded(level: int) -> lite.LiteNetwork:
    config = lite.LiteConfig()
    config.options.comp_node_seq_record_level = level
    network = lite.LiteNetwork(config)
    network.load(MODEL)
    return network


@pytest.mark.parametrize("level", [1, 2])
def test_record_levels_give_the_same_bits(net: lite.LiteNetwork, level: int) -> None:
    network = recorded(level)
    for scale in (1, 2, 3):  # recorded once, with other numbers after that
        np.testing.assert_array_equal(run(network, PIXELS * scale), run(net, PIXELS * scale))


def test_record_level_2_drops_the_graph(net: lite.LiteNetwork) -> None:
    network = recorded(2)
    other = lite.LiteNetwork()
    other.share_weights_with(network)  # not after the first forward
    want = run(network)
    with pytest.raises(RuntimeError, match="record level 2.*sizes of inputs cannot change"):
        run(network, PIXELS[:1])
    np.testing.assert_array_equal(run(network), want)
    np.testing.assert_array_equal(run(other), want)
    with pytest.raises(RuntimeError, match="dropped its model"):
        lite.LiteNetwork().share_weights_with(network)


def test_record_level_1_takes_other_sizes(net: lite.LiteNetwork) -> None:
    network = recorded(1)
    run(network)
    np.testing.assert_array_equal(run(network, PIXELS[:1]), run(net, PIXELS[:1]))


def test_a_record_level_that_there_is_not() -> None:
    with pytest.raises(RuntimeError, match="comp_node_seq_record_level is 0, 1 or 2; got 3"):
        recorded(3)


def test_discrete_inputs() -> None:
    config = lite.LiteConfig()
    config.discrete_input_name = "data"
    network = lite.LiteNetwork(config)
    network.load(MODEL)
    for i in range(2):
        network.get_discrete_tensor("data", i).set_data_by_copy(PIXELS[i : i + 1])
    network.forward()
    network.wait()
    plain = lite.LiteNetwork()
    plain.load(MODEL)
    np.testing.assert_array_equal(network.get_io_tensor("logits").to_numpy(), run(plain))
    with pytest.raises(RuntimeError, match="Use get_discrete_tensors"):
        network.get_io_tensor("data")
    with pytest.raises(RuntimeError, match="tensor 2 of the discrete input 'data', which has 2"):
        network.get_discrete_tensor("data", 2)


def test_networks_share_runtime_memory(net: lite.LiteNetwork) -> None:
    other = lite.LiteNetwork()
    other.share_runtime_memroy(net)
    other.load(MODEL)
    np.testing.assert_array_equal(run(other), run(net))
    with pytest.raises(RuntimeError, match="must come before load"):
        other.share_runtime_memroy(net)


@pytest.mark.parametrize(
    "name, value",
    [
        ("const_shape", 1),
        ("force_dynamic_alloc", 1),
        ("no_profiling_on_shape_change", 1),
        ("jit_level", 1),
        ("jit_level", 2),
        ("async_exec_level", 0),
        ("async_exec_level", 4),
        ("var_sanity_check_first_run", 0),
        ("weight_preprocess", 1),
        ("graph_opt_level", 0),
        ("graph_opt_level", 3),
    ],
)
def test_options_keep_every_bit(net: lite.LiteNetwork, name: str, value: int) -> None:
    option = lite.LiteOptions()
    setattr(option, name, value)
    network = lite.LiteNetwork(lite.LiteConfig(option=option))
    network.load(MODEL)
    np.testing.assert_array_equal(run(network), run(net))


def test_const_shape_and_wrong_levels() -> None:
    option = lite.LiteOptions()
    option.const_shape = 1
    network = lite.LiteNetwork(lite.LiteConfig(option=option))
    network.load(MODEL)
    with pytest.raises(RuntimeError, match="const_shape promised"):
        run(network, PIXELS[:1])
    for name, bad in (("jit_level", 3), ("graph_opt_level", 4), ("async_exec_level", 8), ("graph_opt_level", -1)):
        option = lite.LiteOptions()
        setattr(option, name, bad)
        with pytest.raises(RuntimeError, match=name):
            lite.LiteNetwork(lite.LiteConfig(option=option)).load(MODEL)


def test_the_layout_transform_writes_a_model(tmp_path: Path, net: lite.LiteNetwork) -> None:
    network = lite.LiteNetwork()
    network.enable_global_layout_transform()
    network.load(MODEL)
    network.dump_layout_transform_model(tmp_path / "fast.mge")
    again = lite.LiteNetwork()
    again.load(tmp_path / "fast.mge")
    np.testing.assert_array_equal(run(again), run(net))


def test_callbacks_as_c_functions(net: lite.LiteNetwork) -> None:
    seen: list[str] = []
    start = lite.start_finish_callback(lambda ios: seen.extend(sorted(io.name for io in ios)))
    done = threading.Event()
    finished = lite.wrap_async_callback(done.set)
    net._call("set_start_callback", [type(start)], start)
    net._call("set_async_callback", [type(finished)], finished)
    net.forward()
    assert done.wait(10)
    net.wait()
    assert seen == ["bias", "data"]


def test_memory_that_is_none_is_refused() -> None:
    """An address without an object, more bytes than there are, and arrays that must not be written to."""
    t = lite.LiteTensor(lite.LiteLayout([4], "int32"))
    with pytest.raises(TypeError, match="needs a NumPy array, bytes or a ctypes object; got a int"):
        t.set_data_by_share(4096, 16)
    with pytest.raises(TypeError, match="got a list"):
        t.set_data_by_share([1, 2, 3, 4])
    with pytest.raises(TypeError, match="got a str"):
        t.set_data_by_copy("sixteen bytes...")
    three = (ctypes.c_int32 * 3)(1, 2, 3)
    with pytest.raises(RuntimeError, match="16 bytes of an object that has 12"):
        t.set_data_by_share(three, 16)
    with pytest.raises(RuntimeError, match="a pointer needs the number of bytes"):
        t.set_data_by_copy(ctypes.cast(three, ctypes.c_void_p))
    with pytest.raises(RuntimeError, match="null pointer"):
        t.set_data_by_share(ctypes.c_void_p(), 16)
    fixed = np.arange(4, dtype="int32")
    fixed.flags.writeable = False
    t.set_data_by_share(fixed)
    np.testing.assert_array_equal(t.to_numpy(), range(4))
    for write in (t.fill_zero, lambda: t.set_data_by_copy([1, 2, 3, 4]), lambda: t.copy_from(t)):
        with pytest.raises(RuntimeError, match="read-only array"):
            write()
    network = lite.LiteNetwork()
    network.load(MODEL)
    fixed = PIXELS.copy()
    fixed.flags.writeable = False
    network.get_io_tensor("data").set_data_by_share(fixed)  # inputs are only read
    network.forward()
    network.wait()
    with pytest.raises(RuntimeError, match="read-only array"):
        network.get_io_tensor("data").fill_zero()
    out = np.zeros((2, 5), "float32")
    out.flags.writeable = False
    with pytest.raises(RuntimeError, match="output 'prob' cannot be written into a read-only array"):
        network.get_io_tensor("prob").set_data_by_share(out)
