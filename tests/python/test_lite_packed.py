"""Encrypted and packed models, as the original made them (tests/data/lite/original), and as programs add to them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

import megenginelite as lite

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "tests/data/lite/net_v1.mge"
FOLDER = ROOT / "tests/data/lite/original"
BARE = {"mlp.aes": "AES_default", "mlp.rc4": "RC4_default", "mlp.sfrc4": "SIMPLE_FAST_RC4_default"}
PACKED = ("mlp.packed", "mlp.packed_v1", "mlp.packed_noinfo", "mlp.packed_rc4", "mlp.packed_mixed")


def config(method: str = "") -> lite.LiteConfig:
    made = lite.LiteConfig()
    made.bare_model_cryption_name = method
    return made


def check(net: lite.LiteNetwork, case: str = "mlp", tol: float = 2e-5) -> None:
    data = np.load(FOLDER / f"{case}.npz")
    net.get_io_tensor("data").set_data_by_copy(data["case0.in.data"])
    net.forward()
    net.wait()
    name = net.get_output_name(0)
    np.testing.assert_allclose(net.get_io_tensor(name).to_numpy(), data[f"case0.file.{name}"], rtol=tol, atol=tol)


@pytest.mark.parametrize("name", BARE)
@pytest.mark.parametrize("how", ("path", "memory"))
def test_an_encrypted_model_runs(name: str, how: str) -> None:
    net = lite.LiteNetwork(config(BARE[name]))
    path = FOLDER / f"{name}.lite"
    net.load(path if how == "path" else io.BytesIO(path.read_bytes()))
    check(net)


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("how", ("path", "memory"))
def test_a_packed_model_runs(name: str, how: str) -> None:
    net = lite.LiteNetwork()
    path = FOLDER / f"{name}.lite"
    net.load(path if how == "path" else io.BytesIO(path.read_bytes()))
    check(net)


def test_a_pack_with_a_cache_of_the_original_runs() -> None:
    net = lite.LiteNetwork()
    net.load(FOLDER / "lenet.packed_cache.lite")
    check(net, "lenet")


def test_io_info_of_encrypted_and_packed_models() -> None:
    for path, made in ((FOLDER / "mlp.aes.lite", config("AES_default")), (FOLDER / "mlp.packed_rc4.lite", None)):
        ios = lite.get_model_io_info(path, made)
        assert [i.name for i in ios.inputs] == ["data"]
        assert ios.inputs[0].config_layout.shapes == [4, 16]
        assert [o.name for o in ios.outputs] == ["prob"]


@pytest.mark.parametrize("name", BARE)
def test_damaged_or_wrong_keys_are_errors(name: str) -> None:
    content = bytearray((FOLDER / f"{name}.lite").read_bytes())
    for cut in (0, 1, 8, 23, 100, len(content) - 1):
        with pytest.raises(RuntimeError, match="model in memory"):
            lite.LiteNetwork(config(BARE[name])).load(io.BytesIO(bytes(content[:cut])))
    with pytest.raises(RuntimeError):  # not decrypted at all
        lite.LiteNetwork().load(io.BytesIO(bytes(content)))
    for at in range(16, len(content), 997):
        spoiled = bytearray(content)
        spoiled[at] ^= 0x55
        net = lite.LiteNetwork(config(BARE[name]))
        try:
            net.load(io.BytesIO(bytes(spoiled)))
        except RuntimeError as error:
            assert str(error)
        else:
            assert name == "mlp.aes"  # its padding does not cover what lies before; both RC4s have a checksum


def test_keys_can_be_changed() -> None:
    right = bytes(range(32))
    with pytest.raises(RuntimeError, match=r"AES_default takes a key of 32 bytes; got 3"):
        lite.LiteGlobal.update_decryption_key("AES_default", b"abc")
        lite.LiteNetwork(config("AES_default")).load(FOLDER / "mlp.aes.lite")
    lite.LiteGlobal.update_decryption_key("AES_default", bytes(32))
    with pytest.raises(RuntimeError, match="key is wrong or the data is damaged"):
        lite.LiteNetwork(config("AES_default")).load(FOLDER / "mlp.aes.lite")
    lite.LiteGlobal.update_decryption_key("AES_default", right)
    net = lite.LiteNetwork(config("AES_default"))
    net.load(FOLDER / "mlp.aes.lite")
    check(net)


def xor(source: np.ndarray, key: np.ndarray, out: np.ndarray | None) -> int:
    if out is not None:
        out[:] = source ^ key[0]
    return len(source)


def test_a_method_of_the_program() -> None:
    lite.LiteGlobal.register_decryption_and_key("test_xor", lite.decryption_func(xor), [0x2A])
    secret = io.BytesIO(bytes(b ^ 0x2A for b in MODEL.read_bytes()))
    net = lite.LiteNetwork(config("test_xor"))
    net.load(secret)
    assert net.get_all_output_name() == ["logits", "prob"]
    with pytest.raises(RuntimeError, match="'test_xor' is registered already"):
        lite.LiteGlobal.register_decryption_and_key("test_xor", lite.decryption_func(xor), [1])
    lite.LiteGlobal.update_decryption_key("test_xor", [0x2B])
    with pytest.raises(RuntimeError):
        lite.LiteNetwork(config("test_xor")).load(secret)


def test_what_a_method_of_the_program_raises_is_the_cause() -> None:
    def fails(source: np.ndarray, key: np.ndarray, out: np.ndarray | None) -> int:
        raise KeyError("no such key")

    lite.LiteGlobal.register_decryption_and_key("test_fails", lite.decryption_func(fails), [1])
    with pytest.raises(RuntimeError, match="test_fails gave nothing") as caught:
        lite.LiteNetwork(config("test_fails")).load(MODEL)
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_unknown_method_lists_those_there_are() -> None:
    with pytest.raises(RuntimeError, match="no decryption method 'nope'; there are AES_default, RC4_default, SIMPLE"):
        lite.LiteNetwork(config("nope")).load(FOLDER / "mlp.aes.lite")


def test_info_configures_the_network_unless_it_is_told_not_to() -> None:
    pack = (FOLDER / "mlp.packed.lite").read_bytes()
    many = pack.replace(b'"number_threads": 1', b'"number_threads": 2')
    net = lite.LiteNetwork()
    net.load(io.BytesIO(many))
    assert net.threads_number == 2
    check(net)
    off = lite.LiteNetwork()
    off.extra_configure(lite.LiteExtraConfig(True))
    off.load(io.BytesIO(many))
    assert off.threads_number == 1
    check(off)
    with pytest.raises(RuntimeError, match="is about the model 'golden_mlx'"):
        lite.LiteNetwork().load(io.BytesIO(pack.replace(b'"name": "golden_mlp"', b'"name": "golden_mlx"')))
    with pytest.raises(RuntimeError, match="use_tensorrt"):
        lite.LiteNetwork().load(io.BytesIO(pack.replace(b'"use_tensorrt": false', b'"use_tensorrt": true ')))
    with pytest.raises(RuntimeError, match=r"options.graph_opt_level must be an integer"):
        lite.LiteNetwork().load(io.BytesIO(pack.replace(b'"graph_opt_level": 2', b'"graph_opt_level":""')))


def test_info_of_another_device_is_refused_by_name() -> None:
    pack = (FOLDER / "mlp.packed.lite").read_bytes()
    with pytest.raises(RuntimeError, match="device"):
        lite.LiteNetwork().load(io.BytesIO(pack.replace(b'"type": "CPU"', b'"type": "NPU"')))


def test_damaged_packs_are_errors() -> None:
    pack = (FOLDER / "mlp.packed.lite").read_bytes()
    for cut in (12, 16, 40, 300, len(pack) - 8):
        with pytest.raises(RuntimeError, match="model in memory"):
            lite.LiteNetwork().load(io.BytesIO(pack[:cut]))
    rng = np.random.default_rng(3)
    for _ in range(200):
        spoiled = bytearray(pack)
        spoiled[int(rng.integers(12, 900))] = int(rng.integers(256))
        try:
            lite.LiteNetwork().load(io.BytesIO(bytes(spoiled)))
        except (RuntimeError, UnicodeError) as error:
            assert str(error)


def test_shared_memory_is_a_path() -> None:
    folder = Path("/dev/shm")
    if not folder.is_dir():
        pytest.fail("Linux has /dev/shm")
    path = folder / "megenginelite_test.mge"
    path.write_bytes(MODEL.read_bytes())
    try:
        net = lite.LiteNetwork()
        net.load(path)
    finally:
        path.unlink()
    net.forward()
    net.wait()
    assert np.isfinite(net.get_io_tensor("prob").to_numpy()).all()


def test_fast_run_and_its_cache(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    policy = lite.LiteAlgoSelectStrategy
    lite.LiteGlobal.set_persistent_cache(cache, True)
    known_before = cache.read_bytes()  # what this process has measured by now, for other networks
    want = None
    for strategy in (policy.LITE_ALGO_HEURISTIC, policy.LITE_ALGO_PROFILE | policy.LITE_ALGO_OPTIMIZED):
        net = lite.LiteNetwork()
        net.set_network_algo_policy(strategy)
        net.load(MODEL)
        net.forward()
        net.wait()
        got = net.get_io_tensor("prob").to_numpy()
        want = got if want is None else want
        np.testing.assert_allclose(got, want, rtol=1e-5)
    measured = cache.read_bytes()
    assert b"megengine.kernels:plat=cpu" in measured and len(measured) > len(known_before)
    dumped = tmp_path / "dumped"
    lite.LiteGlobal.dump_persistent_cache(dumped)
    assert dumped.read_bytes() == measured
    known = lite.LiteNetwork()  # measures nothing
    known.set_network_algo_policy(policy.LITE_ALGO_PROFILE | policy.LITE_ALGO_HEURISTIC)
    known.load(MODEL)
    known.set_network_algo_workspace_limit(0)
    known.forward()
    known.wait()
    np.testing.assert_allclose(known.get_io_tensor("prob").to_numpy(), want, rtol=1e-5)


def test_a_cache_of_the_original_is_kept(tmp_path: Path) -> None:
    theirs = (FOLDER / "lenet.algo_cache").read_bytes()
    cache = tmp_path / "cache"
    cache.write_bytes(theirs)
    lite.LiteGlobal.set_persistent_cache(cache)
    lite.LiteGlobal.dump_persistent_cache(tmp_path / "dumped")
    assert b"profile:plat=cpu:ConvBias" in (tmp_path / "dumped").read_bytes()
    cache.write_bytes(theirs[:1000])
    with pytest.raises(RuntimeError, match="cut off"):
        lite.LiteGlobal.set_persistent_cache(cache)
    cache.write_bytes(b"hello, this is no cache")
    with pytest.raises(RuntimeError, match="no fast-run cache"):
        lite.LiteGlobal.set_persistent_cache(cache)
