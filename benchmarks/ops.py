"""Speed of single ops at three sizes, our build beside PyTorch, and against the memory bandwidth of the machine.

    python benchmarks/ops.py --torch-python .venv-bench-torch/bin/python [--rounds 5] [--only add,sum] [--sizes 16M]
        [--mge13-python …]

Both peers stay alive and are asked for one cell in turn, so that a busy moment of the machine hits both. A cell is the
least of all rounds. GB/s counts the bytes an op must move (inputs read once,
outputs written once); the bandwidth beside it is the best of a triad a = b + s*c, counted the same way.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from peers import (
    MGE13,
    Peer,
    answer_requests,
    measured,
    missed,
    plain_device,
    quick,
    run_table,
    set_threads,
    show,
    start_peers,
    times,
    waiter,
)

HERE = pathlib.Path(__file__).parent
# size -> (matrix, image batch)
SIZES = {
    "1k": ((32, 32), (1, 4, 16, 16)),
    "64k": ((256, 256), (4, 16, 32, 32)),
    "16M": ((4096, 4096), (16, 64, 128, 128)),
}
ALL = ",".join(SIZES)
# op -> bytes moved per element of the input
BYTES: dict[str, float] = {
    "add": 12,
    "mul_scalar": 8,
    "exp": 8,
    "relu": 8,
    "sigmoid": 8,
    "tanh": 8,
    "gelu": 8,
    "add_channel": 8,
    "add_row": 8,
    "add_column": 8,
    "compare": 9,
    "where": 13,
    "sum_all": 4,
    "sum_last": 4,
    "sum_first": 4,
    "max_last": 4,
    "mean_hw": 4,
    "softmax": 8,
    "layer_norm": 8,
    "batch_norm": 8,
    "transpose": 8,
    "nchw_nhwc": 8,
    "cast_f16": 6,
    "cast_from_f16": 6,
    "cast_int32": 8,
    "cast_from_uint8": 5,
    "add_f16": 6,
    "concat": 8,
    "take_rows": 8,
    "gather": 12,
    "slice_copy": 8,
    "cumsum": 8,
}
# Python speed: at most half of PyTorch's time.
SMALL = ["a + b", "x[1:3]", "reshape", "matmul 4x4"]


def data(size: str) -> dict[str, Any]:
    import numpy as np

    matrix, image = SIZES[size]
    rng = np.random.default_rng(7)
    x = rng.standard_normal(matrix, dtype=np.float32)
    return {
        "x": x,
        "y": rng.standard_normal(matrix, dtype=np.float32),
        "img": x.reshape(image),
        "chan": rng.standard_normal((1, image[1], 1, 1), dtype=np.float32),
        "row": rng.standard_normal((1, matrix[1]), dtype=np.float32),
        "col": rng.standard_normal((matrix[0], 1), dtype=np.float32),
        "u8": rng.integers(0, 255, matrix).astype(np.uint8),
        "rows": rng.integers(0, matrix[0], matrix[0]).astype(np.int32),
        "picks": rng.integers(0, matrix[1], matrix).astype(np.int32),
        "w": rng.standard_normal(matrix[1], dtype=np.float32),
    }


def mge_cases(size: str) -> dict[str, Callable[[], object]]:
    import megengine as mge
    import megengine.functional as F

    d = {k: mge.Tensor(v) for k, v in data(size).items()}
    x, y, img, chan, row, col, w = (d[k] for k in ("x", "y", "img", "chan", "row", "col", "w"))
    mask, half = x > y, x.astype("float16")
    n = SIZES[size][0][1]
    ones, zeros = F.ones((1, img.shape[1], 1, 1)), F.zeros((1, img.shape[1], 1, 1))
    return {
        "add": lambda: x + y,
        "mul_scalar": lambda: x * 2.5,
        "exp": lambda: F.exp(x),
        "relu": lambda: F.relu(x),
        "sigmoid": lambda: F.sigmoid(x),
        "tanh": lambda: F.tanh(x),
        "gelu": lambda: F.gelu(x),
        "add_channel": lambda: img + chan,
        "add_row": lambda: x + row,
        "add_column": lambda: x + col,
        "compare": lambda: x > y,
        "where": lambda: F.where(mask, x, y),
        "sum_all": lambda: F.sum(x),
        "sum_last": lambda: F.sum(x, axis=1),
        "sum_first": lambda: F.sum(x, axis=0),
        "max_last": lambda: F.max(x, axis=1),
        "mean_hw": lambda: F.mean(img, axis=(2, 3)),
        "softmax": lambda: F.softmax(x, axis=1),
        "layer_norm": lambda: F.layer_norm(x, (n,), True, w, w),
        "batch_norm": lambda: F.batch_norm(img, zeros, ones, ones, zeros, training=False),
        "transpose": lambda: F.flatten(x.transpose(1, 0)),  # a copy: ours are views until somebody needs the order
        "nchw_nhwc": lambda: F.flatten(img.transpose(0, 2, 3, 1)),
        "cast_f16": lambda: x.astype("float16"),
        "cast_from_f16": lambda: half.astype("float32"),
        "cast_int32": lambda: x.astype("int32"),
        "cast_from_uint8": lambda: d["u8"].astype("float32"),
        "add_f16": lambda: half + half,
        "concat": lambda: F.concat([x, y], axis=1),
        "take_rows": lambda: x[d["rows"]],
        "gather": lambda: F.gather(x, 1, d["picks"]),
        "slice_copy": lambda: F.flatten(x[:, 1:-1]),
        "cumsum": lambda: F.cumsum(x, 1),
    }


def torch_cases(size: str) -> dict[str, Callable[[], object]]:
    import torch
    import torch.nn.functional as F

    d = {k: torch.from_numpy(v) for k, v in data(size).items()}
    x, y, img, chan, row, col, w = (d[k] for k in ("x", "y", "img", "chan", "row", "col", "w"))
    mask, half = x > y, x.half()
    rows, picks = d["rows"].long(), d["picks"].long()
    n, c = SIZES[size][0][1], img.shape[1]
    ones, zeros = torch.ones(c), torch.zeros(c)
    return {
        "add": lambda: x + y,
        "mul_scalar": lambda: x * 2.5,
        "exp": lambda: torch.exp(x),
        "relu": lambda: F.relu(x),
        "sigmoid": lambda: torch.sigmoid(x),
        "tanh": lambda: torch.tanh(x),
        "gelu": lambda: F.gelu(x),
        "add_channel": lambda: img + chan,
        "add_row": lambda: x + row,
        "add_column": lambda: x + col,
        "compare": lambda: x > y,
        "where": lambda: torch.where(mask, x, y),
        "sum_all": lambda: x.sum(),
        "sum_last": lambda: x.sum(1),
        "sum_first": lambda: x.sum(0),
        "max_last": lambda: x.amax(1),
        "mean_hw": lambda: img.mean((2, 3)),
        "softmax": lambda: F.softmax(x, 1),
        "layer_norm": lambda: F.layer_norm(x, (n,), w, w),
        "batch_norm": lambda: F.batch_norm(img, zeros, ones, ones, zeros),
        "transpose": lambda: x.t().contiguous(),
        "nchw_nhwc": lambda: img.permute(0, 2, 3, 1).contiguous(),
        "cast_f16": lambda: x.half(),
        "cast_from_f16": lambda: half.float(),
        "cast_int32": lambda: x.int(),
        "cast_from_uint8": lambda: d["u8"].float(),
        "add_f16": lambda: half + half,
        "concat": lambda: torch.cat([x, y], 1),
        "take_rows": lambda: x[rows],
        "gather": lambda: torch.gather(x, 1, picks),
        "slice_copy": lambda: x[:, 1:-1].contiguous(),
        "cumsum": lambda: torch.cumsum(x, 1),
    }


def small_loops(peer: str) -> dict[str, Callable[[int], None]]:
    """Loops written out, because a call through a lambda costs as much as the op."""
    import numpy as np

    if peer != "torch":
        from megengine import Tensor as tensor
        from megengine.functional import matmul
    else:
        from torch import from_numpy as tensor
        from torch import matmul
    with plain_device(peer):
        a, b = tensor(np.ones(4, np.float32)), tensor(np.ones(4, np.float32))
        x, m = tensor(np.ones((8, 4), np.float32)), tensor(np.ones((4, 4), np.float32))

    def add(n: int) -> None:
        for _ in range(n):
            a + b

    def index(n: int) -> None:
        for _ in range(n):
            x[1:3]

    def reshape(n: int) -> None:
        for _ in range(n):
            x.reshape(4, 8)

    def product(n: int) -> None:
        for _ in range(n):
            matmul(m, m)

    return dict(zip(SMALL, (add, index, reshape, product), strict=True))


def triad(threads: int) -> float:
    """Best GB/s of a[i] = b[i] + s * c[i] over arrays far beyond the cache, one slice per process thread."""
    source = r"""
#include <immintrin.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char** argv) {
  long n = 1l << 25; int threads = atoi(argv[1]); omp_set_num_threads(threads); (void)argc;
  float *a = aligned_alloc(64, n * 4), *b = aligned_alloc(64, n * 4), *c = aligned_alloc(64, n * 4);
#pragma omp parallel for schedule(static)
  for (long i = 0; i < n; ++i) a[i] = 0, b[i] = 1, c[i] = 2;
  double best = 0;
  const __m256 s = _mm256_set1_ps(3);
  for (int r = 0; r < 30; ++r) {
    double t = omp_get_wtime();
#pragma omp parallel for schedule(static)
    for (long i = 0; i < n; i += 8)
      _mm256_stream_ps(a + i, _mm256_add_ps(_mm256_load_ps(b + i), _mm256_mul_ps(s, _mm256_load_ps(c + i))));
    t = omp_get_wtime() - t;
    if (12.0 * n / t > best) best = 12.0 * n / t;
  }
  printf("%g\n", best / 1e9);
}
"""
    import tempfile

    with tempfile.TemporaryDirectory() as tmp:
        exe = f"{tmp}/triad"
        subprocess.run(
            ["cc", "-O2", "-mavx", "-fopenmp", "-x", "c", "-", "-o", exe], input=source, text=True, check=True
        )
        return float(subprocess.run([exe, str(threads)], capture_output=True, text=True, check=True).stdout)


def serve(peer: str) -> None:
    """Answers "size op" requests with seconds."""
    set_threads(peer)
    make = torch_cases if peer == "torch" else mge_cases
    wait = waiter(peer)
    made: dict[str, dict[str, Callable[[], object]]] = {}
    loops: dict[str, Callable[[int], None]] = {}

    def answer(size: str, op: str) -> float:
        if size == "small":
            loops.update({} if loops else small_loops(peer))
            seconds = []
            for _ in range(5):
                start = time.perf_counter()
                loops[op](4000)
                wait()
                seconds.append((time.perf_counter() - start) / 4000)
            return min(seconds)
        if size not in made:
            made.clear()  # one size in memory at a time
            made[size] = make(size)
        return quick(made[size][op], wait=wait)

    answer_requests(lambda size, op: measured(peer, lambda: answer(size, op)))


def table(
    torch_python: str,
    rounds: int,
    threads: int,
    only: frozenset[str] = frozenset(),
    sizes: str = "1k,64k,16M",
    mge13_python: str | None = None,
) -> None:
    """Prints the table; rows under 0.9x of PyTorch (small ops: 2x) are marked."""
    bandwidth = triad(threads)
    peers = [*start_peers(HERE / "ops.py", torch_python, threads)]
    if mge13_python:
        peers.append(Peer("mge13", HERE / "ops.py", mge13_python, threads))
    print(f"\nops, {threads} threads, {rounds} rounds; triad {bandwidth:.1f} GB/s\n")
    head = f"| {'op':16} | size  | {'megengine':>10} | {'PyTorch':>10} | faster by | GB/s | of triad | |"
    print(head + (f" {'1.13':>10} | faster by |" if mge13_python else ""))
    rule = f"| {'-' * 16} | ----- | {'-' * 10} | {'-' * 10} | --------- | ---- | -------- | - |"
    print(rule + (f" {'-' * 10} | --------- |" if mge13_python else ""))
    cells = [("small", op) for op in SMALL] if not only or "small" in only else []
    cells += [(s, op) for s in sizes.split(",") for op in BYTES if not only or op in only]
    for size, op in cells:
        asked = [[p.ask(size, op) for p in peers] for _ in range(rounds)]
        m, t, *old = (min(column) for column in zip(*asked, strict=True))
        ratio = t / m
        rate = ""
        if size == "16M":
            moved = BYTES[op] * 4096 * 4096 * (2 if op == "concat" else 1) / m / 1e9
            rate = f"{moved:4.1f} | {moved / bandwidth:8.2f}"
        want = 2.0 if size == "small" else 0.9
        print(
            f"| {op:16} | {size:5} | {show(m):>10} | {show(t):>10} | {times(ratio):>9} | {rate or '     |         '} | "
            f"{missed(ratio, want)} |" + "".join(f" {show(o):>10} | {times(o / m):>9} |" for o in old),
            flush=True,
        )
    for p in peers:
        p.stop()


def main() -> int:
    def chosen(text: str) -> frozenset[str]:
        return frozenset(o for o in text.split(",") if o)

    options = {
        "--only": {"default": "", "help": "comma-separated ops; small for the Python rows"},
        "--sizes": {"default": ALL},
        **MGE13,
    }
    return run_table(
        __doc__,
        serve,
        lambda a: table(a.torch_python, a.rounds, a.threads, chosen(a.only), a.sizes, a.mge13_python),
        rounds=5,
        options=options,
    )


if __name__ == "__main__":
    sys.exit(main())
