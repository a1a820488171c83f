"""load_and_run and mge-lite as programs."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import megenginelite as lite

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/data/lite"
MODEL = DATA / "net_v1.mge"
BIN = ROOT / "build/dev/bin"
PIXELS = (np.arange(128, dtype="float32") % 17 / 16 - 0.5).reshape(2, 1, 8, 8)


def program(name: str, *args: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    result = subprocess.run([BIN / name, *map(str, args)], capture_output=True, text=True, timeout=120)
    assert result.returncode == code, result.stdout + result.stderr
    return result


def run(*args: object, code: int = 0) -> str:
    result = program("load_and_run", *args, code=code)
    return result.stdout if code == 0 else result.stderr


def expected(pixels: np.ndarray = PIXELS) -> np.ndarray:
    net = lite.LiteNetwork()
    net.load(MODEL)
    net.get_io_tensor("data").set_data_by_copy(pixels)
    net.forward()
    net.wait()
    return net.get_io_tensor("logits").to_numpy()


@pytest.fixture
def pixels(tmp_path: Path) -> Path:
    np.save(tmp_path / "data.npy", PIXELS)
    return tmp_path / "data.npy"


def test_timing_text(pixels: Path) -> None:
    out = run(MODEL, "--input", f"data:{pixels}", "--iter=3", "--warmup-iter", 2)
    assert re.search(r"^load model: \d+\.\d{3}ms$", out, re.M)
    assert "run testcase: 1" in out
    assert re.search(r"^=== prepare: \d+\.\d{3}ms; going to warmup$", out, re.M)
    assert len(re.findall(r"^warm up \d  \d+\.\d{3}ms$", out, re.M)) == 2
    assert len(re.findall(r"^iter \d/3: e2e=\d+\.\d{3} ms \(host=\d+\.\d{3} ms\)$", out, re.M)) == 3
    fields = " ".join(rf"{f}=\d+\.\d{{3}} ms" for f in ("time", "avg_time", "standard_deviation", "min", "max"))
    assert re.search(f"^=== finished test #0: {fields}$", out, re.M)
    assert re.search(r"^=== total time: \d+\.\d{3}ms$", out, re.M)


def test_exact_outputs(pixels: Path, tmp_path: Path) -> None:
    run(
        MODEL,
        f"--input=data:{pixels}",
        "--out_npy",
        tmp_path / "out",
        "--bin_out_dump",
        tmp_path / "bin",
        "--multithread=2",
    )
    want = expected()
    got = np.load(tmp_path / "out/logits.npy")
    assert got.dtype == want.dtype
    assert got.tobytes() == want.tobytes()
    raw = (tmp_path / "bin/run0-var0").read_bytes()
    head = np.frombuffer(raw[:40], "uint32")
    assert list(head[1:]) == [0, 7, 2, 5, 0, 0, 0, 0, 0]
    assert raw[40 + head[0] :] == want.tobytes()


def test_input_forms(tmp_path: Path) -> None:
    out = tmp_path / "out"
    json_file = tmp_path / "in.json"
    entry = {"shape": [2, 1, 8, 8], "type": "float32", "raw": PIXELS.ravel().tolist()}
    json_file.write_text(json.dumps({"data": entry}))
    run(MODEL, "--input", json_file, "--out_npy", out)
    assert np.load(out / "logits.npy").tobytes() == expected().tobytes()
    run(MODEL, "--input", "data:" + str(PIXELS[:1].tolist()), "--out_npy", out)
    assert np.load(out / "logits.npy").tobytes() == expected(PIXELS[:1]).tobytes()
    run(MODEL, "--input", "data:{5,1,8,8}", "--out_npy", out)
    ones = np.frombuffer(b"\x01" * 5 * 256, "float32").reshape(5, 1, 8, 8)
    assert np.load(out / "logits.npy").tobytes() == expected(ones).tobytes()
    (tmp_path / "x.pgm").write_bytes(b"P5 8 8 255\n" + bytes(64))
    assert "is float32[2,1,8,8] in the model; its tensor is uint8[1,8,8,1]" in run(
        MODEL, "--input", f"data:{tmp_path}/x.pgm", code=1
    )


def test_batch_size(tmp_path: Path, pixels: Path) -> None:
    # `bias` is [1,5] and would become [4,5]: both inputs are repeated, as the flag says.
    run(MODEL, "--input", f"data:{pixels}", "--batch_size", 4, "--out_npy", tmp_path / "out")
    got = np.load(tmp_path / "out/logits.npy")
    assert got.tobytes() == np.concatenate([expected(), expected()]).tobytes()


def test_verify_stored_cases(tmp_path: Path) -> None:
    out = run(MODEL, "--verify", "--iter=1")
    assert out.count(" ok\n") == 5
    assert "=== verified 2 test cases: ok" in out
    assert "run testcase: 2" in run(MODEL, "--iter=1")  # stored inputs are the default
    stripped = tmp_path / "small.mge"
    program("mge-lite", "strip", MODEL, stripped)
    assert stripped.stat().st_size < MODEL.stat().st_size
    assert "the model has no test cases" in run(stripped, "--verify", code=1)


def test_model_info_and_dumps(tmp_path: Path) -> None:
    out = run(MODEL, "--model-info", "--io_dump", tmp_path / "io.txt", "--iter=1")
    assert out.count("| INPUT  | data                     | {2,1,8,8}            | float32  |") == 2
    assert "{max_pool2d}" in (tmp_path / "io.txt").read_text()
    assert "owner_opr" in run(MODEL, "--io_dump_stdout", "--iter=1")
    assert "conv2d_fused" in run(MODEL, "--verbose", "--iter=1")
    assert "output prob float32[2,5]: [" in run(MODEL, "--print_outputs", "--iter=1")


def test_parallel_copies() -> None:
    out = run(MODEL, "--thread=3", "--iter=5", "--input", "data:{2,1,8,8}")
    assert len(re.findall(r"^\[thread \d\] === finished", out, re.M)) == 3


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--itre=3"], r"no flag --itre\. Did you mean --iter"),
        (["--iter=abc"], "takes a whole number; got 'abc'"),
        (["--iter=0"], "must be 1 or more"),
        (["--tensorrt"], "--tensorrt is not supported: this build has no TensorRT"),
        (["--check-dispatch"], "--check_dispatch is not supported: .*--profile"),
        (["--fast_run", "--full_run"], "exclude each other"),
        (["--lite", "--mdl"], "exclude each other"),
        (["--record_comp_seq2"], "needs --no_sanity_check"),
        (["--multi_thread_core_ids=0"], "needs --multithread"),
        (["--multithread=2", "--multi_thread_core_ids=0"], "names 1 cores for 2 threads"),
        (["--multithread=1", "--multi_thread_core_ids=x"], "numbers of cores"),
        (["--layout_transform=cuda"], "cpu is the only target; got 'cuda'"),
        (["--dump_fitting_model=x"], "needs --fitting"),
        (["--pack_cache=x"], "needs --packed_model_dump"),
        (["--range=1e-9"], r"range: element 0 of .* of conv2d \(net.py:21"),
        (["--range=-1"], "must be above 0"),
        (["--check_var_value=0"], "INTERVAL"),
        (["--input", "data:x.png"], "x.ppm"),
        (["--input", "data:" + str(MODEL.with_suffix(".bin"))], "cannot open"),
        (["--flagfile=/nowhere"], "/nowhere"),
        (["--fromenv=iter"], "FLAGS_iter is not set"),
        (["--enable_nchw88", "--enable_nchw44"], "only one may be on; got enable_nchw44 and enable_nchw88"),
        (["--multithread=2", "--multithread_default=2"], "exclude each other"),
        (["--input", "[1]"], "names no input|does not fit|conv2d"),
        (["--input", "nope:[1]"], "no input 'nope'; its inputs are data, bias"),
        (["--input", "data:/nowhere.npy"], "cannot open"),
        (["--input", "data:{2,3,8,8}"], "conv2d: input has 3 channels.*\n  in conv2d.*\n.*net.py:21"),
        (["second.mge"], "one model file is needed; got 2"),
    ],
)
def test_bad_usage(args: list[str], text: str) -> None:
    assert re.search(text, run(MODEL, *args, code=1))


def test_bad_models(tmp_path: Path) -> None:
    for name, data, text in (
        ("empty.mge", b"", "the file is empty"),
        ("zip.mge", b"PK\x03\x04" + bytes(50), "zip archive"),
        ("v2.mge", bytes(8) + b"mgv2" + bytes(50), "damaged: the buffer does not verify"),
        ("cut.mge", MODEL.read_bytes()[:-1], "cut off"),
    ):
        (tmp_path / name).write_bytes(data)
        assert text in run(tmp_path / name, code=1)
    assert "one model file is needed" in run(code=1)


def test_help_and_version() -> None:
    text = run("--help")
    assert text.index("Model and inputs") < text.index("--input TEXT") < text.index("Checks") < text.index("Refused")
    assert "--warmup_iter" in run("--helpmatch=warm") and "--batch_size" not in run("--helpmatch=warm")
    assert run("--version").strip().startswith(lite.version)


# api: every flag of the original, by the part of its documentation that it stands in
FLAGS = """lite mdl iter warmup_iter thread share_param_mem cpu cuda cpu_default multithread multithread_default
multi_thread_core_ids fast_run full_run binary_equal_between_batch reproducible fast_run_shared_batch_size
fast_run_algo_policy input batch_size io_dump io_dump_stdout io_dump_stderr bin_io_dump bin_out_dump copy_to_host
enable_nchw4 enable_chwn4 enable_nchw44 enable_nchw88 enable_nchw32 enable_nchw64 enable_nhwcd4 enable_nchw44_dot
enable_ioc16 enable_fuse_preprocess fuse_grain weight_preprocess enable_fuse_conv_bias_nonlinearity
enable_fuse_conv_bias_with_z optimize_for_inference const_shape fake_first no_sanity_check record_comp_seq
record_comp_seq2 disable_mem_opt workspace_limit enable_jit tensorrt tensorrt_cache layout_transform
layout_transform_dump profile profile_host range check_dispatch check_var_value model_info verbose
disable_assert_throw wait_gdb get_static_mem_info c_opr_lib c_opr_lib_with_param c_opr_init_interface
packed_model_dump pack_info_json pack_cache pack_info_cryption pack_model_cryption model_dump fitting
dump_fitting_model""".split()


def test_every_flag_of_the_original_is_known() -> None:
    text = run("--help")
    assert len(FLAGS) == 74
    assert [f for f in FLAGS if f"  --{f} " not in text] == []


SILENT = (
    "cpu lite mdl copy_to_host optimize_for_inference enable_fuse_conv_bias_nonlinearity enable_fuse_conv_bias_with_z"
)
SILENT += " fuse_grain enable_chwn4"


@pytest.mark.parametrize("flag", SILENT.split())
def test_a_flag_that_changes_nothing_says_so(flag: str) -> None:
    assert f"--{flag} changes nothing: " in run(MODEL, f"--{flag}", "--iter=1")
    assert "changes nothing" not in run(MODEL, f"--no{flag}", "--iter=1")


@pytest.mark.parametrize(
    "flags",
    [
        ["--disable_mem_opt"],
        ["--multithread=2", "--multi_thread_core_ids=0,0"],
        ["--multithread_default=2"],
        ["--cpu_default"],
        ["--record_comp_seq"],
        ["--record_comp_seq2", "--no_sanity_check"],
        ["--fake_first", "--warmup_iter=1"],
        ["--share_param_mem"],
        ["--weight_preprocess"],
        ["--enable_fuse_preprocess"],
        ["--const_shape"],
        ["--enable_jit"],
        ["--no_sanity_check"],
        ["--fast_run"],
        ["--full_run", "--reproducible"],
        ["--fast_run", "--fast_run_shared_batch_size=1"],
        ["--workspace_limit=0"],
        ["--layout_transform=cpu"],
        ["--reproducible"],
        ["--binary_equal_between_batch"],
        ["--enable_nchw88"],
        ["--range=1e6", "--check_var_value=2:1"],
        ["--thread=2"],
    ],
    ids=lambda flags: flags[0],
)
def test_options_keep_every_bit(flags: list[str], pixels: Path, tmp_path: Path) -> None:
    run(MODEL, f"--input=data:{pixels}", "--iter=3", "--out_npy", tmp_path, *flags)
    assert np.load(tmp_path / "logits.npy").tobytes() == expected().tobytes()


def test_values_that_share_no_memory(tmp_path: Path) -> None:
    seen = []
    for flags in ([], ["--disable_mem_opt"]):
        run(MODEL, "--iter=1", "--get_static_mem_info", tmp_path, *flags)
        chunks = json.loads((tmp_path / "StaticMemoryInfo.json").read_text())["chunk"].values()
        static = [c for c in chunks if c["type"] == "static_mem"]
        seen.append(sum(int(c["logic_addr_end"]) - int(c["logic_addr_begin"]) for c in static))
        places = sorted((int(c["logic_addr_begin"]), int(c["logic_addr_end"])) for c in static)
    assert all(a[1] <= b[0] for a, b in zip(places, places[1:], strict=False)), places
    assert seen[1] >= seen[0] > 0


def test_record_level_2_with_stored_cases() -> None:
    """The test cases of the file went with its graph, and were read after that."""
    out = run(MODEL, "--record_comp_seq2", "--no_sanity_check", "--verify", "--iter=2", "--input", "data:{2,1,8,8}")
    assert "=== verified 2 test cases: ok" in out


def test_flags_from_files_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flags").write_text("# a comment\n--iter=4\n--model-info\n")
    monkeypatch.setenv("FLAGS_warmup_iter", "3")
    out = run(MODEL, "--flagfile", tmp_path / "flags", "--fromenv=warmup_iter")
    assert "/4: e2e=" in out and "warm up 2" in out and "| INPUT" in out


def test_model_dump_is_the_same_model(pixels: Path, tmp_path: Path) -> None:
    run(MODEL, "--iter=1", "--model_dump", tmp_path / "again.mge")
    run(tmp_path / "again.mge", f"--input=data:{pixels}", "--iter=1", "--out_npy", tmp_path)
    assert np.load(tmp_path / "logits.npy").tobytes() == expected().tobytes()
    assert "=== verified 2 test cases: ok" in run(tmp_path / "again.mge", "--verify", "--iter=1")
    assert "dropped the graph" in run(
        MODEL, "--record_comp_seq2", "--no_sanity_check", "--model_dump", tmp_path / "no.mge", code=1
    )


@pytest.mark.parametrize("flag", ["--range=1e6", "--check_var_value=1", "--io_dump", "--bin_io_dump"])
def test_a_model_dump_beside_dumps_of_values_is_the_same(flag: str, tmp_path: Path) -> None:
    run(MODEL, "--iter=1", "--model_dump", tmp_path / "alone.mge")
    run(MODEL, "--iter=1", "--model_dump", tmp_path / "beside.mge", *[flag, tmp_path / "d"][: 1 if "=" in flag else 2])
    assert (tmp_path / "alone.mge").read_bytes() == (tmp_path / "beside.mge").read_bytes()


def test_fitting(tmp_path: Path) -> None:
    out = run(MODEL, "--fitting")
    assert out.count("avg_time=") >= 3
    best = out.split("the best options:\n")[1].split()
    assert best[0] == "--cpu" and all(f.startswith("--") for f in best)
    run(MODEL, "--iter=1", *best)  # they can be given back


def test_text_dumps_name_what_an_op_reads(tmp_path: Path) -> None:
    run(MODEL, "--io_dump_stdout", "--io_dump", tmp_path / "io.txt", "--iter=1", "--warmup_iter=0")
    text = (tmp_path / "io.txt").read_text()
    assert "==== next run" in text  # two cases
    relu = text[text.index("{relu}") :]
    assert re.match(r"\{relu\} opr\d+ loc=net.py:23.*\n deps:\n  \[i0\]var1: \[.*\]\n val: \[.*\]min=.* s\n", relu)


def test_raw_numbers(tmp_path: Path) -> None:
    PIXELS.tofile(tmp_path / "x.bin")
    run(MODEL, "--input", f"data:{tmp_path}/x.bin", "--iter=1", "--out_npy", tmp_path)
    assert np.load(tmp_path / "logits.npy").tobytes() == expected().tobytes()


# ---- files of the original

ORIGINAL = ROOT / "tests/data/original"


@pytest.mark.parametrize("name", ["mlp.v1", "mlp.v2keep", "lenet.v2", "attention.v2", "int8.v2onchw44", "half.v2"])
def test_a_file_of_the_original(name: str, tmp_path: Path) -> None:
    entry = next(e for e in json.loads((ORIGINAL / "index.json").read_text()) if e["file"] == f"{name}.mge")
    data = np.load(ORIGINAL / f"{name}.npz")
    spec = []
    for key in data:
        if key.startswith("case0.in."):
            np.save(tmp_path / f"{len(spec)}.npy", data[key])
            spec.append(f"{key.removeprefix('case0.in.')}:{tmp_path}/{len(spec)}.npy")
    run(ORIGINAL / f"{name}.mge", "--input", ";".join(spec), "--iter=1", "--out_npy", tmp_path / "out")
    for out in entry["outputs"]:
        want = data[f"case0.file.{out['name']}"].astype("float64")
        got = np.load(tmp_path / f"out/{out['name']}.npy").astype("float64")
        error = np.abs(got - want) / np.maximum(np.maximum(np.abs(got), np.abs(want)), 1)
        error[np.abs(got - want) <= 1.01 * entry["step"].get(out["name"], 0)] = 0
        assert got.shape == want.shape and np.max(error) <= entry["tol"], out["name"]


def test_cases_of_the_original_are_run() -> None:
    out = run(ORIGINAL / "mlp.v2test.mge", "--iter=1")
    assert re.search(r"^AssertEqual: err=\S+ \(name=prob id=0\)$", out, re.M)
    assert "PASS: 1 test cases" in program("mge-lite", "verify", ORIGINAL / "mlp.v1test.mge").stdout


# ---- cases that differ


def test_verify_says_pass() -> None:
    done = program("mge-lite", "verify", MODEL)
    assert done.stdout.endswith("PASS: 2 test cases\n") and done.stdout.count("\nok ") == 3
    report = json.loads(program("mge-lite", "verify", MODEL, "--json").stdout)
    assert report["pass"] and [c["ok"] for c in report["cases"]] == [True, True]


def test_verify_needs_cases(tmp_path: Path) -> None:
    program("mge-lite", "strip", MODEL, tmp_path / "small.mge")
    assert "has no test cases to verify" in program("mge-lite", "verify", tmp_path / "small.mge", code=2).stderr
    assert "stripped" in program("mge-lite", "info", tmp_path / "small.mge").stdout


def test_info() -> None:
    text = program("mge-lite", "info", MODEL).stdout
    for part in ("native, version 1", "every byte, by checksums", "kept: 8 of 8", "data float32[2,1,8,8]", "conv2d"):
        assert part in text
    facts = json.loads(program("mge-lite", "info", MODEL, "--json").stdout)
    assert facts["ops"]["conv2d"] == {"count": 1, "dtypes": ["float32"]}
    assert facts["inputs"][0] == {"name": "data", "dtype": "float32", "shape": [2, 1, 8, 8]}
    assert facts["weights"]["bytes"] == facts["sections"]["weights"] and len(facts["tests"]) == 2
    assert facts["memory"]["arena_bytes"] >= facts["memory"]["lower_bound"] > 0
    original = json.loads(program("mge-lite", "info", ORIGINAL / "lenet.v2.mge", "--json").stdout)
    assert original["format"] == "MegEngine's FBS_V2" and original["producer"] == "megengine 1.13.0"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "a command is needed"),
        (["verfy", MODEL], "Did you mean verify"),
        (["info"], "info takes MODEL; got 0 arguments"),
        (["info", "/nowhere.mge"], "/nowhere.mge: cannot open"),
        (["info", MODEL, "--jsn"], "--json"),
    ],
)
def test_mge_lite_bad_usage(words: list[str], text: str) -> None:
    assert text in program("mge-lite", *words, code=2).stderr


def test_model_text_round_trip(tmp_path: Path) -> None:
    program("mge-lite", "make", DATA / "net_v1.txt", tmp_path / "again.mge")
    shown = program("mge-lite", "show", tmp_path / "again.mge").stdout
    assert "%logits = add %5, %bias : f32[2,5]" in shown
    assert "usage" in program("mge-lite", "what", code=2).stderr


def test_a_case_that_differs(tmp_path: Path) -> None:
    """A recorded output with another number in it: the file has no checksum."""
    data = (ORIGINAL / "mlp.v2test.mge").read_bytes()
    recorded = np.load(ORIGINAL / "mlp.v2test.npz")["case0.eager.prob"].astype("float32").tobytes()
    assert data.count(recorded) == 1
    other = np.frombuffer(recorded, "float32").copy()
    other[3] += 1
    path = tmp_path / "other.mge"
    path.write_bytes(data.replace(recorded, other.tobytes()))
    assert "outputs differ from those of the test cases" in run(path, "--iter=1", code=1)
    out = run(path, "--iter=1", "--disable_assert_throw")
    assert "AssertEqual: err=1 (name=prob id=0)" in out and "DIFFERENT" in out
    done = program("mge-lite", "verify", path, code=1)
    assert "BAD  case 0: prob: maximum error" in done.stdout and "element 3 is " in done.stdout
    assert "FAIL in case 0: every op gives what its reference kernel gives" in done.stdout
    report = json.loads(program("mge-lite", "verify", path, "--json", code=1).stdout)
    assert not report["pass"] and report["first_different_op"]["op"] == ""


# ---- choices of kernels, encrypted and packed models

LITE_ORIGINAL = DATA / "original"


def test_fast_run_of_float16(tmp_path: Path) -> None:
    """Kernels of float16 ask which float32 kernel there is; fast-run held its lock meanwhile and waited for itself."""
    data = np.load(ORIGINAL / "half.v2.npz")
    np.save(tmp_path / "x.npy", data["case0.in.x"])
    run(ORIGINAL / "half.v2.mge", f"--input=x:{tmp_path}/x.npy", "--fast_run", "--iter=1", "--out_npy", tmp_path)
    np.testing.assert_allclose(np.load(tmp_path / "conv.npy"), data["case0.file.conv"], rtol=4e-3, atol=4e-3)


def test_fast_run_of_float16_convolutions(tmp_path: Path) -> None:
    """Kernels of float16 chose another float32 kernel when they ran than when they were compiled: wrong values."""
    data = np.load(ORIGINAL / "conv8.v2oioc16.npz")
    np.save(tmp_path / "x.npy", data["case0.in.data"])
    flags = [f"--input=data:{tmp_path}/x.npy", "--iter=1", "--out_npy", tmp_path]
    run(ORIGINAL / "conv8.v2oioc16.mge", "--fast_run", *flags)
    np.testing.assert_allclose(np.load(tmp_path / "logits.npy"), data["case0.file.logits"], rtol=5e-3, atol=5e-3)


def test_measured_choices_are_kept(tmp_path: Path) -> None:
    cache = tmp_path / "choices"
    run(MODEL, "--fast_run", "--fast_run_algo_policy", cache, "--iter=1")
    written = cache.read_bytes()
    assert len(written) > 4
    run(MODEL, "--fast_run_algo_policy", cache, "--iter=1")  # read: measured again is nothing
    assert cache.read_bytes() == written
    (tmp_path / "no").write_bytes(b"what is this")
    assert "no: " in run(MODEL, "--fast_run_algo_policy", tmp_path / "no", "--iter=1", code=1)


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("mlp.aes", ["AES_default"]),
        ("mlp.rc4", ["RC4_default"]),
        ("mlp.sfrc4", ["SIMPLE_FAST_RC4_default"]),
        ("mlp.packed", []),
        ("mlp.packed_v1", []),
        ("mlp.packed_noinfo", []),
        ("mlp.packed_rc4", []),
        ("mlp.packed_mixed", []),
    ],
)
def test_encrypted_and_packed_models_of_the_original(name: str, flags: list[str], tmp_path: Path) -> None:
    data = np.load(LITE_ORIGINAL / "mlp.npz")
    np.save(tmp_path / "x.npy", data["case0.in.data"])
    path = LITE_ORIGINAL / f"{name}.lite"
    given = [f"--bare_model_cryption={flags[0]}"] if flags else []
    run(path, "--input", f"data:{tmp_path}/x.npy", "--iter=1", "--out_npy", tmp_path, *given)
    np.testing.assert_allclose(np.load(tmp_path / "prob.npy"), data["case0.file.prob"], atol=2e-5)
    info = program("mge-lite", "info", path, *(f"--cryption={f}" for f in flags)).stdout
    assert "matmul" in info and ("packed  " in info) == ("packed" in name)
    if flags:
        assert "RC4_default" in run(path, "--bare_model_cryption=nope", code=1)


def test_encrypt_and_pack(tmp_path: Path, pixels: Path) -> None:
    (tmp_path / "info.json").write_text(json.dumps({"name": "net", "valid": True, "extra_info": {"a": 1}}))
    for method in ("AES_default", "RC4_default", "SIMPLE_FAST_RC4_default"):
        out, packed = tmp_path / method, tmp_path / f"{method}.lite"
        program("mge-lite", "encrypt", MODEL, out, "--cryption", method)
        assert MODEL.read_bytes()[:64] not in out.read_bytes()
        run(out, "--bare_model_cryption", method, f"--input=data:{pixels}", "--iter=1", "--out_npy", tmp_path)
        assert np.load(tmp_path / "logits.npy").tobytes() == expected().tobytes()
        words = ["--info", tmp_path / "info.json", "--cryption", method, "--info_cryption", "RC4_default"]
        program("mge-lite", "pack", MODEL, packed, *words)
        assert "PASS" in program("mge-lite", "verify", packed).stdout
        assert json.loads(program("mge-lite", "info", packed, "--json").stdout)["packed"].startswith("'net': ")
    assert (
        "hex digits" in program("mge-lite", "encrypt", MODEL, out, "--cryption=AES_default", "--key=0g", code=2).stderr
    )
    assert "needs --cryption" in program("mge-lite", "encrypt", MODEL, out, code=2).stderr


def test_load_and_run_packs(tmp_path: Path) -> None:
    run(MODEL, "--fast_run", "--fast_run_algo_policy", tmp_path / "cache", "--iter=1")
    flags = ["--pack_cache", tmp_path / "cache", "--packed_model_dump", tmp_path / "net.lite"]
    run(MODEL, "--iter=1", *flags)
    assert "=== verified 2 test cases: ok" in run(tmp_path / "net.lite", "--verify", "--iter=1")
    run(MODEL, "--iter=1", "--layout_transform=cpu", "--layout_transform_dump", tmp_path / "layout.mge")
    assert "=== verified 2 test cases: ok" in run(tmp_path / "layout.mge", "--verify", "--iter=1")


def test_the_model_of_the_best_options(tmp_path: Path) -> None:
    out = run(MODEL, "--fitting", "--dump_fitting_model", tmp_path / "fit.lite")
    assert f"wrote {tmp_path}/fit.lite" in out and os.listdir(tmp_path) == ["fit.lite"]
    assert "=== verified 2 test cases: ok" in run(tmp_path / "fit.lite", "--verify", "--iter=1")
    assert "'packed_model': " in program("mge-lite", "info", tmp_path / "fit.lite").stdout
