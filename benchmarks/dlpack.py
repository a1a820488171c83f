"""Tensors to PyTorch and back through DLPack, in one process; parity.py runs it with both import orders.

    PYTHONPATH=build/release/python .venv-bench-torch/bin/python benchmarks/dlpack.py megengine torch

Imports the modules in the order given, prints a line for each check and exits with 1 at the first that fails. Memory is
shared without a copy both ways. Our values never change, so no op of ours writes into PyTorch's memory; PyTorch may
write into ours, and then every tensor that shares the value sees it.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

CHECKS: list[tuple[str, Callable[[], None]]] = []
DTYPES = ("float32", "float16", "bfloat16", "int8", "int16", "int32", "uint8", "uint16", "bool", "complex64")
NARROWED = {"float64": "float32", "int64": "int32"}


def check(name: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def keep(fn: Callable[[], None]) -> Callable[[], None]:
        CHECKS.append((name, fn))
        return fn

    return keep


def want(ok: Any, text: str) -> None:
    if not ok:
        raise AssertionError(text)


def same(ours: Any, theirs: Any) -> None:
    """Equal values; bfloat16, which NumPy does not have, is compared as float32."""
    if theirs.dtype == torch.bfloat16:
        ours, theirs = ours.astype("float32"), theirs.float()
    a, b = ours.numpy(), theirs.detach().resolve_conj().numpy()
    want(a.shape == b.shape and a.dtype == b.dtype, f"{a.dtype}{a.shape} here, {b.dtype}{b.shape} in PyTorch")
    want(np.array_equal(a, b), f"values differ: {a.reshape(-1)[:4]} here, {b.reshape(-1)[:4]} in PyTorch")


def sample(dtype: str) -> Any:
    return torch.arange(24).remainder(2 if dtype == "bool" else 7).reshape(2, 3, 4).to(getattr(torch, dtype))


def address(x: Any) -> int:
    """Of our memory, as NumPy sees it."""
    return int(x.numpy().ctypes.data)


def from_torch(dtype: str) -> None:
    t = sample(dtype)
    x = from_dlpack(t)
    same(x, t)
    want(address(x) == t.data_ptr(), "the memory was copied")
    t.zero_()
    same(x, t)  # written there, seen here


def to_torch(dtype: str) -> None:
    borrowed = from_dlpack(sample(dtype))
    x = F.concat([borrowed, borrowed])  # in memory of ours; a copy of a value that never changes is no copy
    t = torch.from_dlpack(x)
    want(t.dtype == getattr(torch, dtype), f"became {t.dtype}")
    same(x, t)
    want(t.data_ptr() == address(x), "the memory was copied")
    want(not t.requires_grad, "PyTorch records gradients of it")
    t.zero_()
    same(x, t)


def round_trip(dtype: str) -> None:
    t = sample(dtype)
    back = torch.from_dlpack(from_dlpack(t))
    want(back.dtype == t.dtype and back.data_ptr() == t.data_ptr(), f"{back.dtype}, copied or not the same memory")
    want(torch.equal(back, t), "values differ")


for _dtype in DTYPES:
    for _name, _fn in (("from PyTorch", from_torch), ("to PyTorch", to_torch), ("there and back", round_trip)):
        CHECKS.append((f"{_dtype} {_name}, same memory", lambda fn=_fn, dtype=_dtype: fn(dtype)))


@check("64-bit numbers from PyTorch become 32-bit ones")
def narrowed() -> None:
    for wide, narrow in NARROWED.items():
        same(from_dlpack(sample(wide)), sample(narrow))


VIEWS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda t: t.permute(2, 0, 1),
    "every second": lambda t: t[:, 1:, ::2],
    "expanded": lambda t: t[:, :1].expand(2, 5, 4),
    "empty": lambda t: t[:, :0],
    "0-d": lambda t: t[1, 1, 1],
}


def view_from_torch(name: str) -> None:
    t = VIEWS[name](sample("float32"))
    x = from_dlpack(t)
    same(x, t)
    back = torch.from_dlpack(x)
    same(x, back)


def view_to_torch(name: str) -> None:
    t = sample("float32")
    ours = {
        "transposed": lambda x: F.transpose(x, (2, 0, 1)),
        "every second": lambda x: x[:, 1:, ::2],
        "expanded": lambda x: F.broadcast_to(x[:, :1], (2, 5, 4)),
        "empty": lambda x: x[:, :0],
        "0-d": lambda x: x[1, 1, 1],
    }
    x = ours[name](mge.tensor(t.numpy()))
    same(x, torch.from_dlpack(x))
    want(torch.equal(torch.from_dlpack(x), VIEWS[name](t)), "not the view it should be")


for _name in VIEWS:
    CHECKS.append((f"{_name} from PyTorch", lambda name=_name: view_from_torch(name)))
    CHECKS.append((f"{_name} to PyTorch", lambda name=_name: view_to_torch(name)))


@check("channels_last from PyTorch, same memory")
def channels_last_in() -> None:
    t = torch.randn(2, 8, 5, 6).to(memory_format=torch.channels_last)
    x = from_dlpack(t)
    same(x, t)
    t[1, 2, 3, 4] = 7
    same(x, t)  # no copy
    w = torch.randn(4, 8, 3, 3)
    close(F.conv2d(x, from_dlpack(w), padding=1), torch.nn.functional.conv2d(t, w, padding=1))


@check("result of a convolution, in whatever order it lies, to PyTorch")
def channels_last_out() -> None:
    x, w = mge.random.normal(size=(2, 16, 14, 14)), mge.random.normal(size=(32, 16, 3, 3))
    y = F.relu(F.conv2d(x, w, padding=1))
    same(y, torch.from_dlpack(y))


def close(ours: Any, theirs: Any) -> None:
    apart = float(np.abs(ours.numpy() - theirs.numpy()).max())
    want(apart < 1e-4, f"results differ by {apart:.1e}")


@check("our ops do not write into PyTorch's memory")
def borrowed() -> None:
    t = torch.zeros(4)
    x = from_dlpack(t)
    x += 1
    x[0] = 9
    want(t.eq(0).all() and x.tolist() == [9, 1, 1, 1], f"{t.tolist()} there, {x.tolist()} here")


@check("our in-place updates do not reach what PyTorch was given")
def lent() -> None:
    x = F.zeros(4) + 1
    t = torch.from_dlpack(x)
    x += 1
    x[0] = 9
    want(t.eq(1).all() and x.tolist() == [9, 2, 2, 2], f"{t.tolist()} there, {x.tolist()} here")


@check("memory lives as long as either side uses it")
def lifetime() -> None:
    x = from_dlpack(torch.arange(1000, dtype=torch.float32))
    t = torch.from_dlpack(mge.tensor(np.arange(1000, dtype=np.float32)))
    gc.collect()
    junk = [torch.zeros(1000) for _ in range(20)], [F.zeros(1000) + 1 for _ in range(20)]
    want(x.sum().item() == t.sum().item() == 499500 and len(junk) == 2, "memory was reused")


@check("what PyTorch records gradients of is refused by it, detached it works")
def gradients() -> None:
    t = torch.ones(3, requires_grad=True)
    try:
        from_dlpack(t)
    except Exception as error:
        want("detach" in str(error), f"unclear: {error}")
    else:
        raise AssertionError("was taken, and its gradient would be lost without a word")
    same(from_dlpack(t.detach()), t)


@check("both compute in one process, threads included")
def together() -> None:
    a, b = torch.randn(300, 400), torch.randn(400, 200)
    for _ in range(3):
        close(F.matmul(from_dlpack(a), from_dlpack(b)), a @ b)


def main() -> int:
    global torch, mge, F, from_dlpack
    for name in sys.argv[1:]:
        importlib.import_module(name)
    import torch

    import megengine as mge
    import megengine.functional as F
    from megengine.utils.dlpack import from_dlpack

    order = ", then ".join(sys.argv[1:])
    for name, fn in CHECKS:
        try:
            fn()
        except Exception as error:
            print(f"DLPack ({order}): {name}: FAILED. {type(error).__name__}: {error}")
            return 1
        print(f"DLPack ({order}): {name}: yes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
