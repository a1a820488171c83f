"""First figures beside PyTorch, eager and compiled, in one run: small ops, bandwidth, ResNet-50 and a transformer.

Each row is a process of its own, so that a failure costs one row; peers take turns by row.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

OUT = pathlib.Path(os.environ.get("OUT", "."))
BATCH, SEQ, WIDTH, LAYERS, VOCAB = 8, 512, 1024, 12, 32000


def best(fn: Callable[[], Any], sync: Callable[[], Any], seconds: float = 2.0, inner: int = 1) -> float:
    """The least time of one call, after a warm-up."""
    for _ in range(3):
        fn()
    sync()
    least, end = 1e9, time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        for _ in range(inner):
            fn()
        sync()
        least = min(least, (time.perf_counter() - begin) / inner)
    return least


# ---- ours


def mge_sync() -> None:
    import megengine as mge

    mge._full_sync()


def mge_add() -> Any:
    import megengine as mge

    x = mge.Tensor(np.ones((16,), np.float32))
    return {"us": best(lambda: x + x, mge_sync, inner=1000) * 1e6}


def mge_chain(traced: bool) -> Any:
    import megengine as mge
    import megengine.functional as F
    from megengine.jit import trace

    x = mge.Tensor(np.ones((64 << 20,), np.float32))

    def chain(x: mge.Tensor) -> mge.Tensor:
        return F.tanh(x * 2 + 1) * F.sigmoid(x) - x

    fn = trace(chain, symbolic=True, without_host=True) if traced else chain
    s = best(lambda: fn(x), mge_sync, inner=5)
    return {"ms": s * 1e3, "GB/s": 2 * 4 * (64 << 20) / s / 1e9}


def mge_train(net: Any, opt: Any, x: Any, y: Any, traced: bool, amp: bool) -> float:
    import megengine.functional as F
    from megengine.amp import autocast
    from megengine.autodiff import GradManager
    from megengine.jit import trace

    gm = GradManager().attach(net.parameters())

    def step(x: Any, y: Any) -> Any:
        with gm, autocast(enabled=amp, low_prec_dtype="bfloat16"):
            loss = F.nn.cross_entropy(net(x), y)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    fn = trace(step, symbolic=True, without_host=True) if traced else step
    return best(lambda: fn(x, y), mge_sync, 4.0)


def mge_where(make: Callable[..., Any], traced: bool) -> Any:
    """What the kernels of one step take on the device, the most expensive first."""
    from megengine.core import _core

    global best
    found: list[Any] = []

    def once(fn: Callable[[], Any], sync: Callable[[], Any], *_: Any) -> float:
        for _step in range(4):
            fn()
        sync()
        _core.cuda_times_start()
        fn()
        sync()
        found.extend(_core.cuda_times_stop())
        return 1.0

    best = once  # type: ignore[assignment]
    make(traced)
    total = sum(ms for _, _, ms in found)
    return {"total ms": total, "launches": sum(n for _, n, _ in found),
            "top": [f"{what} x{n}: {ms:.2f} ms" for what, n, ms in found[:14]]}  # fmt: skip


def mge_resnet(traced: bool, amp: bool = True) -> Any:
    import nets_mge

    import megengine as mge
    import megengine.optimizer as optim

    net = nets_mge.ResNet50()
    net.train()
    rng = np.random.default_rng(0)
    x = mge.Tensor(rng.standard_normal((64, 3, 224, 224), np.float32))
    y = mge.Tensor(rng.integers(0, 1000, 64).astype(np.int32))
    s = mge_train(net, optim.SGD(net.parameters(), lr=0.01, momentum=0.9), x, y, traced, amp)
    return {"ms": s * 1e3, "img/s": 64 / s}


def mge_transformer(traced: bool, amp: bool = True) -> Any:
    import nets_mge

    import megengine as mge
    import megengine.optimizer as optim

    net = nets_mge.Transformer(VOCAB, WIDTH, LAYERS, SEQ)
    net.train()
    tokens = np.random.default_rng(0).integers(0, VOCAB, (BATCH, SEQ)).astype(np.int32)
    x, y = mge.Tensor(tokens), mge.Tensor(np.roll(tokens, -1, 1).reshape(-1))
    return {"ms": mge_train(net, optim.Adam(net.parameters(), lr=1e-4), x, y, traced, amp) * 1e3}


# ---- PyTorch


def torch_sync() -> None:
    import torch

    torch.cuda.synchronize()


def torch_add() -> Any:
    import torch

    x = torch.ones(16, device="cuda")
    return {"us": best(lambda: x + x, torch_sync, inner=1000) * 1e6}


def torch_chain(compiled: bool) -> Any:
    import torch

    x = torch.ones(64 << 20, device="cuda")

    def chain(x: Any) -> Any:
        return torch.tanh(x * 2 + 1) * torch.sigmoid(x) - x

    fn = torch.compile(chain) if compiled else chain
    s = best(lambda: fn(x), torch_sync, inner=5)
    return {"ms": s * 1e3, "GB/s": 2 * 4 * (64 << 20) / s / 1e9}


def torch_copy() -> Any:
    import torch

    x = torch.ones(64 << 20, device="cuda")
    y = torch.empty_like(x)
    s = best(lambda: y.copy_(x), torch_sync, inner=5)
    return {"ms": s * 1e3, "GB/s": 2 * 4 * (64 << 20) / s / 1e9}


def torch_train(net: Any, opt: Any, x: Any, y: Any, compiled: bool) -> float:
    import torch
    import torch.nn.functional as F

    call = torch.compile(net) if compiled else net

    def step() -> None:
        opt.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(call(x), y)
        loss.backward()
        opt.step()

    return best(step, torch_sync, 3.0)


def torch_resnet(compiled: bool) -> Any:
    import nets_torch
    import torch

    net = nets_torch.ResNet50().cuda().train().to(memory_format=torch.channels_last)
    x = torch.randn(64, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    y = torch.randint(0, 1000, (64,), device="cuda")
    s = torch_train(net, torch.optim.SGD(net.parameters(), 0.01, momentum=0.9), x, y, compiled)
    return {"ms": s * 1e3, "img/s": 64 / s}


def torch_transformer(compiled: bool) -> Any:
    import nets_torch
    import torch

    net = nets_torch.Transformer(VOCAB, WIDTH, LAYERS, SEQ).cuda().train()
    tokens = torch.randint(0, VOCAB, (BATCH, SEQ), device="cuda")
    y = torch.roll(tokens, -1, 1).reshape(-1)
    return {"ms": torch_train(net, torch.optim.Adam(net.parameters(), 1e-4, fused=True), tokens, y, compiled) * 1e3}


ROWS: dict[str, Callable[[], Any]] = {
    "add of 16 floats, eager": mge_add,
    "add of 16 floats, PyTorch": torch_add,
    "copy of 64M floats, PyTorch": torch_copy,
    "chain of 64M floats, eager": lambda: mge_chain(False),
    "chain of 64M floats, traced": lambda: mge_chain(True),
    "chain of 64M floats, PyTorch": lambda: torch_chain(False),
    "chain of 64M floats, PyTorch compiled": lambda: torch_chain(True),
    "ResNet-50 bs64 bfloat16, eager": lambda: mge_resnet(False),
    "ResNet-50 bs64 bfloat16, traced": lambda: mge_resnet(True),
    "ResNet-50 bs64 bfloat16, PyTorch": lambda: torch_resnet(False),
    "transformer 12x1024 bfloat16, eager": lambda: mge_transformer(False),
    "transformer 12x1024 bfloat16, traced": lambda: mge_transformer(True),
    "transformer 12x1024 bfloat16, PyTorch": lambda: torch_transformer(False),
    "where the time goes: ResNet-50 bs64 bfloat16, eager": lambda: mge_where(mge_resnet, False),
    "where the time goes: ResNet-50 bs64 bfloat16, traced": lambda: mge_where(mge_resnet, True),
    "where the time goes: transformer 12x1024 bfloat16, eager": lambda: mge_where(mge_transformer, False),
    "where the time goes: transformer 12x1024 bfloat16, traced": lambda: mge_where(mge_transformer, True),
    "transformer 12x1024 bfloat16, PyTorch compiled": lambda: torch_transformer(True),
    "ResNet-50 bs64 bfloat16, PyTorch compiled": lambda: torch_resnet(True),
}


def child(name: str) -> None:
    if "PyTorch" not in name:
        import megengine as mge

        mge.set_default_device("gpu0")
    print("ROW " + json.dumps(ROWS[name]()), flush=True)


def main() -> None:
    only = sys.argv[2] if len(sys.argv) > 2 else ""
    results: dict[str, Any] = {}
    for name in ROWS:
        if only and not re.search(only, name):
            continue
        begin = time.perf_counter()
        try:
            done = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True, timeout=100)
            rows = [line for line in done.stdout.splitlines() if line.startswith("ROW ")]
            results[name] = json.loads(rows[0][4:]) if rows else {"said": (done.stdout + done.stderr)[-600:]}
        except subprocess.TimeoutExpired:
            results[name] = {"said": "more than 100 s"}
        print(f"{name}: {json.dumps(results[name])} ({time.perf_counter() - begin:.1f} s)", flush=True)
        (OUT / "times.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    if len(sys.argv) == 2:
        child(sys.argv[1])
    else:
        main()
