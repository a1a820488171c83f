"""Small helpers: the persistent cache, folding of batch normalisation, deprecation, the doctor."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.utils import doctor
from megengine.utils.bn_fusion import fold_weight_bias, fuse_conv_bn_relu_module, fuse_linear_bn_relu_module
from megengine.utils.deprecation import deprecated, deprecated_func, deprecated_kwargs_default
from megengine.utils.persistent_cache import PersistentCacheOnServer

RNG = np.random.default_rng(0)

# ---- persistent cache


@pytest.fixture
def cache_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("MGE_FASTRUN_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("MGE_FASTRUN_CACHE_TYPE", raising=False)
    monkeypatch.delenv("MGE_FASTRUN_CACHE_URL", raising=False)
    return tmp_path


def test_cache_in_memory_never_touches_the_disk(cache_dir, monkeypatch):
    monkeypatch.setenv("MGE_FASTRUN_CACHE_TYPE", "MEMORY")
    cache = PersistentCacheOnServer()
    assert cache.config is None
    cache.put("a", b"k", b"v")
    cache.flush()
    assert cache.config.type == "in-memory" and cache.get("a", "k") == b"v" and cache.get("b", b"k") is None
    del cache
    assert list(cache_dir.iterdir()) == []


def test_cache_in_a_file(cache_dir):
    cache = PersistentCacheOnServer()
    assert cache.config is None and cache.get("a", b"k") is None and cache.config.type == "in-file"
    cache.put("a", b"k\0", b"v" * 1000)
    cache.flush()
    assert {p.name for p in cache_dir.iterdir()} == {"cache.bin", "cache.lock"}
    assert PersistentCacheOnServer().get("a", b"k\0") == b"v" * 1000
    cache.put("a", b"late", b"w")
    del cache  # writes
    other = PersistentCacheOnServer()
    assert other.get("a", b"late") == b"w"
    other.clean()
    assert other.get("a", b"late") is None and not (cache_dir / "cache.bin").exists()


def test_writers_keep_each_others_entries(cache_dir):
    first, idle, second = (PersistentCacheOnServer() for _ in range(3))
    idle.get("a", b"x")
    first.put("a", b"1", b"one")
    second.put("a", b"2", b"two")
    first.flush()
    second.flush()
    stamp = (cache_dir / "cache.bin").stat().st_mtime_ns
    del idle
    assert (cache_dir / "cache.bin").stat().st_mtime_ns == stamp
    last = PersistentCacheOnServer()
    assert last.get("a", b"1") == b"one" and last.get("a", b"2") == b"two"


@pytest.mark.parametrize("damage", [b"", b"garbage", "flip"])
def test_a_damaged_cache_file_is_ignored(cache_dir, damage):
    cache = PersistentCacheOnServer()
    cache.put("a", b"k", b"v")
    cache.flush()
    file = cache_dir / "cache.bin"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data) if damage == "flip" else damage)
    again = PersistentCacheOnServer()
    assert again.get("a", b"k") is None
    again.put("a", b"k", b"w")
    again.flush()
    assert PersistentCacheOnServer().get("a", b"k") == b"w"


def test_cache_settings(cache_dir, monkeypatch):
    monkeypatch.setenv("MGE_FASTRUN_CACHE_TYPE", "TAPE")
    with pytest.raises(ValueError, match="FILE or MEMORY; got 'TAPE'"):
        PersistentCacheOnServer().get("a", b"k")


# ---- folding


def settled(bn):
    for t, low in ((bn.running_mean, -1), (bn.running_var, 0.5), (bn.weight, 0.5), (bn.bias, -1)):
        t[...] = mge.Tensor(RNG.uniform(low, 1.5, t.shape).astype("float32"))
    bn.eval()
    return bn


@pytest.mark.parametrize("relu", [None, M.ReLU()], ids=["plain", "relu"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kind", [M.Conv2d, M.ConvTranspose2d])
def test_a_folded_convolution_computes_both(kind, groups, bias, relu):
    conv, bn = kind(4, 6, 3, groups=groups, bias=bias), settled(M.BatchNorm2d(6, eps=0.01))
    conv.eval()
    fused = fuse_conv_bn_relu_module(conv, bn, relu)
    want = {M.Conv2d: (M.Conv2d, M.ConvRelu2d), M.ConvTranspose2d: (M.ConvTranspose2d, M.ConvTransposeRelu2d)}
    assert type(fused) is want[kind][relu is not None] and not fused.training and fused.weight is not conv.weight
    x = mge.Tensor(RNG.standard_normal((2, 4, 8, 8)).astype("float32"))
    y = bn(conv(x))
    np.testing.assert_allclose(fused(x).numpy(), (relu(y) if relu else y).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("relu", [None, M.ReLU()], ids=["plain", "relu"])
def test_a_folded_linear_layer_computes_both(relu):
    linear, bn = M.Linear(4, 6), settled(M.BatchNorm1d(6))
    linear.eval()
    fused = fuse_linear_bn_relu_module(linear, bn, relu)
    assert type(fused) is (M.LinearRelu if relu else M.Linear)
    x = mge.Tensor(RNG.standard_normal((5, 4)).astype("float32"))
    y = bn(linear(x))
    np.testing.assert_allclose(fused(x).numpy(), (relu(y) if relu else y).numpy(), rtol=1e-4, atol=1e-5)


def test_training_keeps_the_normalisation():
    x = mge.Tensor(RNG.standard_normal((2, 4, 8, 8)).astype("float32"))
    for kind, target in ((M.Conv2d, M.ConvBnRelu2d), (M.ConvTranspose2d, M.ConvTransposeBnRelu2d)):
        conv, bn = kind(4, 6, 3, stride=2, padding=1), M.BatchNorm2d(6, momentum=0.5)
        fused = fuse_conv_bn_relu_module(conv, bn, M.ReLU())
        assert type(fused) is target and fused.training
        np.testing.assert_array_equal(fused(x).numpy(), F.relu(bn(conv(x))).numpy())
    assert type(fuse_linear_bn_relu_module(M.Linear(4, 6), M.BatchNorm1d(6), None)) is M.LinearBn1d


def test_layers_of_different_modes_or_sizes_are_not_fused():
    conv, bn = M.Conv2d(2, 3, 1), M.BatchNorm2d(3)
    conv.eval()
    with pytest.raises(AssertionError, match=r"Conv2d and BatchNorm2d both must be in the same mode .train or eval."):
        fuse_conv_bn_relu_module(conv, bn, M.ReLU())
    bn.eval()
    assert type(fuse_conv_bn_relu_module(conv, bn, M.ReLU())) is M.ConvRelu2d
    with pytest.raises(AssertionError, match="num_features=4, Linear gives 3 channels"):
        fuse_linear_bn_relu_module(M.Linear(2, 3), M.BatchNorm1d(4), None)


def test_folding_without_normalisation():
    conv = M.Conv2d(2, 3, 1)
    fused = fuse_conv_bn_relu_module(conv, None, M.ReLU())
    assert type(fused) is M.ConvRelu2d
    np.testing.assert_array_equal(fused.weight.numpy(), conv.weight.numpy())


def test_fold_weight_bias_against_numpy():
    g, b, m = (RNG.standard_normal(6).astype("float32") for _ in range(3))
    v = RNG.uniform(0.5, 2, 6).astype("float32")
    w = RNG.standard_normal((2, 3, 2, 3, 3)).astype("float32")
    args = [mge.Tensor(a.reshape(1, 6, 1, 1)) for a in (g, b, m, v)]
    got_w, got_b = fold_weight_bias(mge.Tensor(w), None, *args, eps=1e-3)
    factor = g.astype("float64") / np.sqrt(v.astype("float64") + 1e-3)
    np.testing.assert_allclose(got_w.numpy(), w * factor.reshape(2, 3, 1, 1, 1), rtol=1e-5)
    np.testing.assert_allclose(got_b.numpy().reshape(-1), b - m * factor, rtol=1e-5, atol=1e-6)


# ---- sanity check


def test_ops_leave_their_inputs_alone():
    from megengine.core._core import ops
    from megengine.utils.tensor_sanity_check import TensorSanityCheck

    plain = ops.exp
    x = mge.Tensor([1.0, np.nan])
    with TensorSanityCheck() as check:
        assert isinstance(check, TensorSanityCheck) and ops.exp is not plain
        y = F.relu(F.exp(x)) * 2
        assert M.Linear(2, 3)(F.ones((1, 2))).shape == (1, 3)
        with pytest.raises(RuntimeError, match="already checking"):
            check.__enter__()
    assert ops.exp is plain and abs(y.numpy()[0] - 2 * np.e) < 1e-5


def test_a_changed_input_is_found(monkeypatch):
    from megengine.core._core import ops
    from megengine.utils.tensor_sanity_check import TensorSanityCheck

    def bad(x):
        x._reset(mge.Tensor([9.0]))
        return x

    monkeypatch.setattr(ops, "exp", bad)
    with TensorSanityCheck(), pytest.raises(RuntimeError, match="exp: changed one of its inputs"):
        F.exp(mge.Tensor([1.0]))


# ---- deprecation


def test_deprecation():
    @deprecated(version="1.0", reason="use g")
    def f(x):
        return x + 1

    with pytest.warns(DeprecationWarning, match="deprecated function f.*use g.*1.0"):
        assert f(1) == 2
    old = deprecated_func("1.3", "megengine.functional.math", "sum", False)
    with pytest.warns(DeprecationWarning, match="megengine.functional.math.sum"):
        assert old(mge.Tensor([1.0, 2.0])).item() == 3.0

    @deprecated_kwargs_default("1.12", "mode", 2)
    def g(x, mode="a"):
        return mode

    with pytest.warns(DeprecationWarning, match="default of mode of g changes"):
        assert g(1) == "a"
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert g(1, "b") == "b" and g(1, mode="c") == "c"


# ---- doctor


def test_the_doctor_finds_everything():
    findings = {f.name: f for f in doctor.examine()}
    assert mge.__version__ in findings["version"].found and not findings["arithmetic"].problem
    assert {"extension", "cpu", "threads", "libraries", "cache folder", "devices"} <= set(findings)
    assert all(bool(f.problem) == bool(f.fix) for f in findings.values())


def test_the_doctor_prints_the_constants_of_the_machine():
    def found(**env):
        code = "from megengine.utils import doctor; print(doctor._machine().found)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | env)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), done.stderr

    text, _ = found(MGE_MACHINE="l1=65536,l2=2097152,l3=8388608,gflops=12.5,gbytes=3")
    assert text.startswith("L1 64 KiB, L2 2048 KiB, L3 8192 KiB; ")
    assert "12.5 GFLOP/s and 3 GB/s of a core (MGE_MACHINE=l1=" in text
    text, said = found(MGE_MACHINE="l2=big")
    assert "MGE_MACHINE: expected l1, l2, l3" in said and "got 'l2=big'. It is not used." in said
    assert "GFLOP/s" in text


def test_the_doctor_names_problems_and_fixes(monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("MGE_HOME", str(blocked / "home"))

    def broken():
        raise RuntimeError("no luck")

    monkeypatch.setattr(doctor, "CHECKS", (doctor._version, doctor._cache, broken))
    text = doctor.report(doctor.examine())
    assert "BAD cache folder" in text and "fix: Set MGE_HOME to a folder" in text
    assert "RuntimeError: no luck" in text and text.endswith("2 problems found.")
    assert doctor.main() == 1


def test_the_doctor_from_the_command_line():
    done = subprocess.run([sys.executable, "-m", "megengine", "doctor"], capture_output=True, text=True)
    assert done.returncode in (0, 1) and "version" in done.stdout and "agree with NumPy" in done.stdout
    wrong = subprocess.run([sys.executable, "-m", "megengine", "surgeon"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "invalid choice" in wrong.stderr


def test_version():
    from megengine import version

    assert version.__version__ == mge.__version__ and isinstance(version.git_version, str)
