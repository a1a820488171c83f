"""The first look at a GPU: names, copies, memory, a few ops, errors, streams, DLPack. Each check stands alone."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

import megengine as mge
import megengine.functional as F
from megengine.core import _core

GPU = "gpu0"
CHECKS: list[Callable[[], Any]] = []


def check(fn: Callable[[], Any]) -> Callable[[], Any]:
    CHECKS.append(fn)
    return fn


def tensor(a: Any) -> mge.Tensor:
    return mge.Tensor(a, device=GPU)


def same(got: mge.Tensor, want: Any, tol: float = 0.0) -> str:
    g, w = got.numpy(), np.asarray(want)
    assert g.shape == w.shape, f"shape {g.shape}, not {w.shape}"
    if tol:
        np.testing.assert_allclose(g, w, rtol=tol, atol=tol)
    else:
        assert g.tobytes() == w.astype(g.dtype).tobytes(), f"largest difference {np.abs(g - w).max()}"
    return "as expected"


@check
def device() -> Any:
    parts = [f"{name}: {path or why}" for name, path, why in _core.cuda_components()]
    return [mge.get_device_count("gpu"), _core.cuda_driver_version(), _core.cuda_properties(0), *parts]


@check
def up_and_down() -> Any:
    rng = np.random.default_rng(0)
    for n in (1, 1000, 1 << 20, 20 << 20):
        a = rng.standard_normal(n, np.float32)
        same(tensor(a), a)
    return "1 to 20M floats"


@check
def bandwidth() -> Any:
    a = np.ones(64 << 20, np.float32)
    x = tensor(a)
    mge._full_sync()
    out = {}
    for name, fn in (("up", lambda: tensor(a)), ("down", lambda: x.numpy()), ("device", lambda: x.to("gpu0:1"))):
        best = 1e9
        for _ in range(3):
            begin = time.perf_counter()
            y = fn()
            mge._full_sync()
            best = min(best, time.perf_counter() - begin)
            del y
        out[name + " GB/s"] = round(a.nbytes / best / 1e9, 2)
    return out


@check
def memory() -> Any:
    x = tensor(np.zeros(10 << 20, np.float32))
    mge._full_sync()
    stats = _core.memory_stats(GPU)
    assert stats["allocated"] >= x.numpy().nbytes
    total, free = mge.get_mem_status_bytes(GPU)
    return {"allocated": stats["allocated"], "reserved": stats["reserved"], "total": total, "free": free}


@check
def add() -> Any:
    a = np.random.default_rng(1).standard_normal((33, 70), np.float32)
    return same(tensor(a) + tensor(a[:1]), a + a[:1])


@check
def chain_of_elementwise() -> Any:
    a = np.random.default_rng(1).standard_normal(1 << 16, np.float32)

    def fn(x: mge.Tensor) -> mge.Tensor:
        return F.exp(-x * x) * F.tanh(x) + F.sigmoid(x) / (F.abs(x) + 1)

    return same(fn(tensor(a)), fn(mge.Tensor(a)).numpy())


@check
def casts() -> Any:
    a = np.random.default_rng(1).standard_normal(4096, np.float32) * 100
    for dtype in ("int32", "float16", "bfloat16", "uint8", "bool"):
        want = mge.Tensor(a).astype(dtype).astype("float32").numpy()
        same(tensor(a).astype(dtype).astype("float32"), want)
    return "bits of the CPU"


@check
def reduce() -> Any:
    a = np.random.default_rng(1).standard_normal((64, 1000), np.float32)
    for fn in (F.sum, F.mean, F.max, F.min):
        for axis in (0, 1, None):
            same(fn(tensor(a), axis=axis), fn(mge.Tensor(a), axis=axis).numpy(), 2e-5)
    return "sum, mean, max, min"


@check
def strided() -> Any:
    a = np.random.default_rng(1).standard_normal((5, 64, 70), np.float32)
    x = tensor(a).transpose(2, 0, 1)
    same(x + 0, a.transpose(2, 0, 1) + 0)
    return same(x[::2, 1:, ::-1].reshape(-1), a.transpose(2, 0, 1)[::2, 1:, ::-1].reshape(-1))


@check
def matmul() -> Any:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((130, 257), np.float32), rng.standard_normal((257, 96), np.float32)
    same(F.matmul(tensor(a), tensor(b)), a.astype(np.float64) @ b, 1e-3)
    c = rng.standard_normal((4, 96, 257), np.float32)
    return same(F.matmul(tensor(c), tensor(a), transpose_b=True), c @ a.T, 1e-3)


@check
def convolution() -> Any:
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((2, 16, 20, 20), np.float32), rng.standard_normal((32, 16, 3, 3), np.float32)
    want = F.conv2d(mge.Tensor(x), mge.Tensor(w), padding=1, stride=2).numpy()
    return same(F.conv2d(tensor(x), tensor(w), padding=1, stride=2), want, 1e-3)


@check
def pooling() -> Any:
    x = np.random.default_rng(1).standard_normal((2, 16, 20, 20), np.float32)
    same(F.max_pool2d(tensor(x), 2), F.max_pool2d(mge.Tensor(x), 2).numpy())
    return same(F.avg_pool2d(tensor(x), 2), F.avg_pool2d(mge.Tensor(x), 2).numpy(), 1e-5)


@check
def random_numbers() -> Any:
    out = []
    for device in ("cpu0", GPU):
        mge.set_default_device(device)
        mge.random.seed(7)
        out.append((mge.random.uniform(size=(1000,)).numpy(), mge.random.normal(size=(1000,)).numpy()))
    mge.set_default_device("cpu0")
    assert out[0][0].tobytes() == out[1][0].tobytes(), "uniform differs"
    assert out[0][1].tobytes() == out[1][1].tobytes(), f"normal differs by {np.abs(out[0][1] - out[1][1]).max()}"
    return "bits of the CPU"


@check
def index_out_of_range() -> Any:
    x = tensor(np.arange(10, dtype=np.float32))
    try:
        x[tensor(np.array([1, 12], np.int32))].numpy()
    except Exception as e:
        text = f"{type(e).__name__}: {e}"
        assert "12" in text, text
        assert "smoke.py" in text, f"no line in: {text}"
        return text
    raise AssertionError("no error")


@check
def out_of_memory() -> Any:
    try:
        F.zeros((1 << 40,), device=GPU).numpy()
    except Exception as e:
        return f"{type(e).__name__}: {str(e)[:200]}"
    raise AssertionError("no error")


@check
def streams() -> Any:
    a = np.random.default_rng(1).standard_normal(1 << 20, np.float32)
    x = tensor(a)
    y = x.to("gpu0:1") * 2
    return same(y.to("gpu0") + x, a * 2 + a)


@check
def gradients() -> Any:
    from megengine.autodiff import GradManager

    a = np.random.default_rng(1).standard_normal((8, 16), np.float32)
    out = []
    for device in ("cpu0", GPU):
        x = mge.Tensor(a, device=device)
        gm = GradManager().attach([x])
        with gm:
            gm.backward((F.tanh(x) * x).sum())
        out.append(x.grad.numpy())
    np.testing.assert_allclose(out[1], out[0], rtol=1e-6, atol=1e-6)
    return "as on the CPU"


@check
def traced() -> Any:
    from megengine.jit import trace

    a = np.random.default_rng(1).standard_normal((64, 64), np.float32)

    def fn(x: mge.Tensor) -> mge.Tensor:
        return F.exp(F.matmul(x, x) * 0.01).sum(axis=1)

    want = fn(mge.Tensor(a)).numpy()
    for kind in ({}, {"symbolic": True}, {"symbolic": True, "without_host": True}):
        t = trace(fn, **kind)
        for _ in range(3):
            same(t(tensor(a)), want, 1e-3)
    return "three kinds"


@check
def checkpoint() -> Any:
    path = pathlib.Path(os.environ.get("OUT", ".")) / "smoke.pkl"
    a = np.arange(12, dtype=np.float32)
    mge.save({"x": tensor(a)}, str(path))
    back, moved = mge.load(str(path))["x"], mge.load(str(path), map_location="cpu0")["x"]
    path.unlink()
    assert str(back.device).startswith("gpu0") and str(moved.device).startswith("cpu0"), (back.device, moved.device)
    same(back, a)
    return same(moved, a)


@check
def dlpack() -> Any:
    import torch

    from megengine.utils.dlpack import from_dlpack

    x = tensor(np.arange(1000, dtype=np.float32)) * 2
    t = torch.from_dlpack(x)
    assert t.is_cuda and t.sum().item() == float(np.arange(1000).sum() * 2), t
    y = from_dlpack(torch.full((1000,), 3.0, device="cuda"))
    assert str(y.device).startswith("gpu0"), y.device
    same(y + x, np.arange(1000, dtype=np.float32) * 2 + 3)
    for _ in range(200):  # memory goes back and forth
        y = from_dlpack(torch.from_dlpack(y + 1) * 1.0)
    return same(y, np.full(1000, 203, np.float32))


@check
def eager_add_cost() -> Any:
    x = tensor(np.ones(16, np.float32))
    for _ in range(100):
        x + x
    mge._full_sync()
    n = 5000
    begin = time.perf_counter()
    for _ in range(n):
        x + x
    called = time.perf_counter() - begin
    mge._full_sync()
    return {"call us": round(called / n * 1e6, 2), "with sync us": round((time.perf_counter() - begin) / n * 1e6, 2)}


def main() -> None:
    results: dict[str, Any] = {}
    bad = 0
    for fn in CHECKS:
        mge.set_default_device("cpu0")
        with contextlib.suppress(Exception):
            mge._full_sync()  # what an earlier check has left
        begin = time.perf_counter()
        try:
            results[fn.__name__] = {"ok": True, "said": fn()}
        except Exception as e:
            bad += 1
            results[fn.__name__] = {"ok": False, "said": f"{type(e).__name__}: {e}"}
            if not isinstance(e, NotImplementedError):
                traceback.print_exc(limit=3)
        row = results[fn.__name__]
        row["s"] = round(time.perf_counter() - begin, 3)
        print(f"{'ok  ' if row['ok'] else 'BAD '} {fn.__name__} ({row['s']} s): {str(row['said'])[:600]}")
        pathlib.Path(os.environ.get("OUT", "."), "smoke.json").write_text(json.dumps(results, indent=1, default=str))
    print(f"{len(CHECKS) - bad} of {len(CHECKS)} checks are fine")


if __name__ == "__main__":
    main()
