"""Command lines and the environment: a text on stderr and an exit status, no traceback."""

from __future__ import annotations

from mistake import ROOT, CommandFailed, command, mistake

PRODUCT = "import megengine.functional as F; x = F.ones((64, 64)); (x @ x).numpy()"
MODEL = str(ROOT / "tests/data/lite/net_v1.mge")


@mistake(CommandFailed, "docter", "doctor")
def doctor_that_is_misspelt():
    command("python", "-m", "megengine", "docter")


@mistake(CommandFailed, "command", "doctor")
def megengine_without_a_command():
    command("python", "-m", "megengine")


@mistake(CommandFailed, "load_and_run", "MODEL", "--help")
def load_and_run_without_a_model():
    command("load_and_run")


@mistake(CommandFailed, "/nowhere.mge", "No such file")
def load_and_run_of_a_file_that_is_not_there():
    command("load_and_run", "/nowhere.mge")


@mistake(CommandFailed, "--itre", "--iter")
def load_and_run_with_a_misspelt_flag():
    command("load_and_run", MODEL, "--itre=3")


@mistake(CommandFailed, "--iter", "three")
def load_and_run_with_a_word_for_a_number():
    command("load_and_run", MODEL, "--iter=three")


@mistake(CommandFailed, "cuda", "not supported")
def load_and_run_with_a_flag_of_another_build():
    command("load_and_run", MODEL, "--cuda")


@mistake(CommandFailed, "'dta'", "data")
def load_and_run_with_an_input_that_is_misspelt():
    command("load_and_run", MODEL, "--input", "dta:{2,1,8,8}")


@mistake(CommandFailed, "/nowhere.npy", "No such file")
def load_and_run_with_data_that_is_not_there():
    command("load_and_run", MODEL, "--input", "data:/nowhere.npy")


@mistake(CommandFailed, "conv2d", "2 channels", "net.py:21")
def load_and_run_with_another_number_of_channels():
    command("load_and_run", MODEL, "--input", "data:{2,2,8,8}")


@mistake(CommandFailed, "shwo", "show")
def mge_lite_with_a_misspelt_command():
    command("mge-lite", "shwo", MODEL)


@mistake(CommandFailed, "/nowhere.mge", "No such file")
def mge_lite_of_a_file_that_is_not_there():
    command("mge-lite", "show", "/nowhere.mge")


@mistake(CommandFailed, "MGE_MACHINE", "'l9=3'", "l1, l2, l3", "not used")
def environment_with_a_cache_that_is_not_there():
    command("python", "-c", PRODUCT, fails=False, MGE_MACHINE="l9=3")


@mistake(CommandFailed, "MGE_COSTS", "'piece=cheap'", "nanoseconds", "not used")
def environment_with_a_word_for_a_cost():
    command("python", "-c", PRODUCT, fails=False, MGE_COSTS="piece=cheap")


@mistake(CommandFailed, "--steps", "many", "invalid int")
def example_with_a_word_for_a_number():
    command("python", str(ROOT / "examples/digits_lenet.py"), "--steps", "many")


@mistake(CommandFailed, "--setps", "--steps")
def example_with_a_misspelt_flag():
    command("python", str(ROOT / "examples/digits_lenet.py"), "--setps", "3")


@mistake(CommandFailed, "x.png", "x.ppm", "np.save")
def load_and_run_with_an_image_it_cannot_read():
    command("load_and_run", MODEL, "--input", "data:x.png")


@mistake(CommandFailed, "--multi_thread_core_ids", "1 cores", "2 threads")
def load_and_run_with_fewer_cores_than_threads():
    command("load_and_run", MODEL, "--multithread=2", "--multi_thread_core_ids=0")


@mistake(CommandFailed, "range", "conv2d", "net.py:21", "limit is 0.0001")
def load_and_run_with_values_out_of_range():
    command("load_and_run", MODEL, "--range=1e-4")


@mistake(CommandFailed, "'AES'", "AES_default")
def load_and_run_with_a_method_that_is_not_there():
    command("load_and_run", MODEL, "--bare_model_cryption=AES")


@mistake(CommandFailed, "verfy", "verify", "usage")
def mge_lite_with_a_command_that_is_misspelt():
    command("mge-lite", "verfy", MODEL)


@mistake(CommandFailed, "lenet.v2.mge", "no test cases", "input_data")
def mge_lite_verify_without_cases():
    command("mge-lite", "verify", str(ROOT / "tests/data/original/lenet.v2.mge"))


@mistake(CommandFailed, "encrypt", "--cryption", "AES_default")
def mge_lite_encrypt_without_a_method():
    command("mge-lite", "encrypt", MODEL, "/tmp/never")
