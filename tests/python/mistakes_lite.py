"""megenginelite: models, names, layouts and the order of calls."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from mistake import ROOT, mistake

import megenginelite as lite

MODEL = ROOT / "tests/data/lite/net_v1.mge"
FOLDER = Path(tempfile.mkdtemp())
PIXELS = np.zeros((2, 1, 8, 8), "float32")


def loaded(io=None):
    net = lite.LiteNetwork(io=io)
    net.load(MODEL)
    return net


def junk(content):
    path = FOLDER / "junk.mge"
    path.write_bytes(content)
    return path


@mistake(RuntimeError, "/nowhere/net.mge", "No such file")
def load_a_file_that_is_not_there():
    lite.LiteNetwork().load("/nowhere/net.mge")


@mistake(RuntimeError, "junk.mge", "not a model")
def load_a_text_file():
    lite.LiteNetwork().load(junk(b"hello, this is a text file and no model of any kind"))


@mistake(RuntimeError, "junk.mge", "empty")
def load_an_empty_file():
    lite.LiteNetwork().load(junk(b""))


@mistake(RuntimeError, "junk.mge", "cut off", "100")
def load_a_file_that_is_cut_off():
    lite.LiteNetwork().load(junk(MODEL.read_bytes()[:100]))


@mistake(RuntimeError, "Python pickle", "trace.dump")
def load_a_checkpoint():
    lite.LiteNetwork().load(junk(b"\x80\x04K\x01."))


@mistake(RuntimeError, "junk.mge", "checksum")
def load_a_file_that_is_damaged():
    content = bytearray(MODEL.read_bytes())
    content[len(content) // 2] ^= 255
    lite.LiteNetwork().load(junk(bytes(content)))


@mistake(TypeError, "load", "LiteNetwork", "int", "path")
def load_a_number():
    lite.LiteNetwork().load(3)


@mistake(RuntimeError, "load", "callback")
def load_from_a_callback_of_the_network():
    net = loaded()
    net.set_start_callback(lambda inputs: net.load(MODEL) or 0)
    net.forward()


@mistake(RuntimeError, "forward", "load")
def forward_before_load():
    lite.LiteNetwork().forward()


@mistake(RuntimeError, "get_io_tensor", "load_model")
def get_a_tensor_before_load():
    lite.LiteNetwork().get_io_tensor("data")


@mistake(RuntimeError, "'dta'", "data, bias", "logits, prob")
def get_a_tensor_that_is_misspelt():
    loaded().get_io_tensor("dta")


@mistake(RuntimeError, "'logits'", "input", "data, bias")
def get_an_output_as_an_input():
    loaded().get_io_tensor("logits", lite.LiteTensorPhase.LITE_INPUT)


@mistake(TypeError, "get_io_tensor", "name", "int", "get_input_name(0)")
def get_a_tensor_by_number():
    loaded().get_io_tensor(0)


@mistake(RuntimeError, "9", "2")
def get_the_name_of_an_input_that_is_not_there():
    loaded().get_input_name(9)


@mistake(RuntimeError, "'logits'", "forward()", "wait()")
def read_an_output_before_forward():
    loaded().get_io_tensor("logits").to_numpy()


@mistake(RuntimeWarning, "LiteNetworkIO", "input 'dta'", "data, bias")
def configure_an_input_that_is_misspelt():
    io = lite.LiteNetworkIO()
    io.add_input("dta")
    loaded_here = lite.LiteNetwork(io=io)
    loaded_here.load(MODEL)


@mistake(RuntimeWarning, "LiteNetworkIO", "output 'logit'", "logits, prob")
def configure_an_output_that_is_misspelt():
    io = lite.LiteNetworkIO()
    io.add_output("logit")
    loaded_here = lite.LiteNetwork(io=io)
    loaded_here.load(MODEL)


@mistake(RuntimeError, "conv2d", "2 channels", "net.py:21")
def forward_with_another_number_of_channels():
    net = loaded()
    net.get_io_tensor("data").set_data_by_copy(np.zeros((1, 2, 8, 8), "float32"))
    net.forward()


@mistake(RuntimeError, "'data'", "float32", "int32", "astype")
def forward_with_another_dtype():
    net = loaded()
    net.get_io_tensor("data").set_data_by_copy(PIXELS.astype("int32"))
    net.forward()


@mistake(RuntimeError, "'data'", "float32", "float64", "astype")
def forward_with_doubles():
    net = loaded()
    net.get_io_tensor("data").set_data_by_copy(PIXELS.astype("float64"))
    net.forward()


@mistake(RuntimeError, "contiguous", "ascontiguousarray")
def share_a_strided_array():
    loaded().get_io_tensor("data").set_data_by_share(PIXELS[:, :, ::2])


@mistake(RuntimeError, "threads", "before load")
def set_threads_after_load():
    net = loaded()
    net.threads_number = 2


@mistake(RuntimeError, "threads", "0")
def set_no_threads():
    net = lite.LiteNetwork()
    net.threads_number = 0


@mistake(RuntimeError, "device type", "LITE_CPU")
def load_for_a_device_that_is_not_there():
    lite.LiteNetwork(lite.LiteConfig(device_type=lite.LiteDeviceType.LITE_CUDA)).load(MODEL)


@mistake(RuntimeError, "uint64", "LiteDataType")
def layout_of_a_dtype_that_is_not_there():
    lite.LiteLayout([1], "uint64")


@mistake(RuntimeError, "8", "at most 7")
def layout_of_too_many_dimensions():
    lite.LiteLayout([1] * 8)


@mistake(RuntimeError, "[2, -1]", "0 or more")
def layout_of_a_negative_size():
    lite.LiteLayout([2, -1])


@mistake(RuntimeError, "[5]", "[2,3]", "6")
def reshape_to_another_count():
    lite.LiteTensor(lite.LiteLayout([2, 3], "float32")).reshape([5])


@mistake(RuntimeError, "'logits'", "callback", "ran")
def callback_that_raises():
    def finish(outputs):
        raise RuntimeError(f"the callback ran with {[io.name for io in outputs]!r}")  # here

    net = loaded()
    net.set_finish_callback(finish)
    net.get_io_tensor("data").set_data_by_copy(PIXELS)
    net.forward()
    net.wait()


@mistake(RuntimeError, "shared_weight_with_network", "load")
def share_weights_before_load():
    lite.LiteNetwork().share_weights_with(lite.LiteNetwork())


@mistake(RuntimeError, "bytes", "100")
def set_data_of_another_size():
    import ctypes

    tensor = lite.LiteTensor(lite.LiteLayout([2, 3], "float32"))
    tensor.set_data_by_copy((ctypes.c_char * 100)())


@mistake(TypeError, "set_data_by_copy", "str", "NumPy array")
def set_data_to_a_word():
    loaded().get_io_tensor("data").set_data_by_copy("hello")


@mistake(TypeError, "set_data_by_copy", "Tensor", "x.numpy()")
def set_data_to_a_tensor_of_megengine():
    import megengine

    tensor = loaded().get_io_tensor("data")
    tensor.set_data_by_copy(megengine.tensor([1.0]))


@mistake(TypeError, "LiteLayout", "'abc'", "integers")
def layout_of_letters():
    loaded().get_io_tensor("data").layout = "abc"


@mistake(TypeError, "LiteNetworkIO", "inputs", "'data'", "['data']")
def configure_an_input_without_a_list():
    lite.LiteNetworkIO(inputs="data")


@mistake(TypeError, "threads_number", "'2'", "int")
def set_threads_in_quotes():
    net = lite.LiteNetwork()
    net.threads_number = "2"


@mistake(TypeError, "LiteConfig", "'cpu'", "LITE_CPU")
def configure_a_device_by_a_word():
    lite.LiteConfig(device_type="cpu")


def encrypted(method):
    config = lite.LiteConfig()
    config.bare_model_cryption_name = method
    return lite.LiteNetwork(config)


@mistake(RuntimeError, "'AES'", "AES_default", "register_decryption_and_key")
def decrypt_with_a_method_that_is_not_there():
    encrypted("AES").load(MODEL)


@mistake(RuntimeError, "net_v1.mge", "AES_default", "not encrypted")
def decrypt_a_model_that_is_not_encrypted():
    encrypted("AES_default").load(MODEL)


@mistake(RuntimeError, "mlp.rc4.lite", "not a model file")
def load_an_encrypted_model_without_saying_so():
    lite.LiteNetwork().load(ROOT / "tests/data/lite/original/mlp.rc4.lite")


@mistake(RuntimeError, "mlp.rc4.lite", "SIMPLE_FAST_RC4_default", "key is wrong")
def decrypt_with_another_method():
    encrypted("SIMPLE_FAST_RC4_default").load(ROOT / "tests/data/lite/original/mlp.rc4.lite")


@mistake(RuntimeError, "packed", "copy the file again")
def load_half_a_packed_model():
    lite.LiteNetwork().load(junk((ROOT / "tests/data/lite/original/mlp.packed.lite").read_bytes()[:700]))


@mistake(RuntimeError, "'images'", "data, bias")
def name_a_discrete_input_that_is_not_there():
    config = lite.LiteConfig()
    config.discrete_input_name = "images"
    lite.LiteNetwork(config).load(MODEL)


@mistake(RuntimeError, "set_network_algo_workspace_limit", "load_model first")
def limit_the_workspace_before_loading():
    lite.LiteNetwork().set_network_algo_workspace_limit(1)


@mistake(RuntimeError, "no fast-run cache")
def take_a_model_for_a_cache():
    lite.LiteGlobal.set_persistent_cache(MODEL)


@mistake(RuntimeError, "enable_global_layout_transform", "before load_model")
def dump_a_layout_transform_that_was_not_asked_for():
    loaded().dump_layout_transform_model(FOLDER / "x.mge")
