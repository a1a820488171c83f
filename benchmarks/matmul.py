"""Matrix products by shape class, our build beside PyTorch, and against the measured peak of fused multiply-adds.
A cell is the least of all rounds.

python benchmarks/matmul.py --torch-python .venv-bench-torch/bin/python [--rounds 3]
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable

from peers import answer_requests, missed, quick, run_table, set_threads, show, start_peers, times

HERE = pathlib.Path(__file__).parent
# name -> batch, m, k, n, b transposed (as a Linear layer has it)
CASES = {
    "1024x1024x1024": (1, 1024, 1024, 1024, False),
    "128x768x3072": (1, 128, 768, 3072, False),
    "128x768x3072 linear": (1, 128, 768, 3072, True),
    "128x3072x768 linear": (1, 128, 3072, 768, True),
    "1x1024x1024 linear": (1, 1, 1024, 1024, True),
    "8x4096x4096 linear": (1, 8, 4096, 4096, True),
    "64x400x120 linear": (1, 64, 400, 120, True),
    "96 of 128x64x128": (96, 128, 64, 128, True),
    "96 of 128x128x64": (96, 128, 128, 64, False),
    "512 of 16x16x16": (512, 16, 16, 16, False),
    "256x256x256": (1, 256, 256, 256, False),
    "64x64x64": (1, 64, 64, 64, False),
    "16x16x16": (1, 16, 16, 16, False),
}
PEAK = r"""
#include <immintrin.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef __AVX512F__
#define V __m512
#define FMA _mm512_fmadd_ps
#define SET _mm512_set1_ps
#define SUM _mm512_reduce_add_ps
#else
#define V __m256
#define FMA _mm256_fmadd_ps
#define SET _mm256_set1_ps
#define SUM(x) _mm256_cvtss_f32(x)
#endif
int main(int argc, char** argv) {
  (void)argc;
  int threads = atoi(argv[1]);
  double best = 0; volatile float sink = 0;
  for (int r = 0; r < 20; ++r) {
    long n = 400000;
    double t = omp_get_wtime();
#pragma omp parallel num_threads(threads)
    {
      V a[12], x = SET(1e-6f), y = SET(0.999f);
      for (int k = 0; k < 12; ++k) a[k] = SET(k);
      for (long i = 0; i < n; ++i)
#pragma GCC unroll 12
        for (int k = 0; k < 12; ++k) a[k] = FMA(a[k], y, x);
      for (int k = 0; k < 12; ++k) sink += SUM(a[k]);
    }
    t = omp_get_wtime() - t;
    double rate = 2.0 * sizeof(V) / 4 * 12 * n * threads / t;
    if (rate > best) best = rate;
  }
  printf("%g\n", best / 1e9);
}
"""


class Peak:
    """GFLOP/s of independent fused multiply-adds on registers: the best seen so far, measured again beside every row,
    because a shared host is not equally fast all the time."""

    def __init__(self, threads: int) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._command = [f"{self._folder.name}/peak", str(threads)]
        cmd = ["cc", "-O2", "-march=native", "-fopenmp", "-x", "c", "-", "-o", self._command[0]]
        subprocess.run(cmd, input=PEAK, text=True, check=True)
        self.best = 0.0

    def measure(self) -> float:
        out = subprocess.run(self._command, capture_output=True, text=True, check=True).stdout
        self.best = max(self.best, float(out))
        return self.best


def serve(peer: str) -> None:
    import numpy as np

    set_threads(peer)
    if peer == "mge":
        from megengine import Tensor as tensor
        from megengine.functional import matmul
    else:
        from torch import from_numpy as tensor
        from torch import matmul

    made: dict[str, Callable[[], object]] = {}

    def case(name: str) -> Callable[[], object]:
        batch, m, k, n, transposed = CASES[name]
        lead = () if batch == 1 else (batch,)
        rng = np.random.default_rng(7)
        a = tensor(rng.standard_normal((*lead, m, k), dtype=np.float32))
        b = tensor(rng.standard_normal((*lead, n, k) if transposed else (*lead, k, n), dtype=np.float32))
        if not transposed:
            return lambda: matmul(a, b)
        if peer == "mge":
            return lambda: matmul(a, b, transpose_b=True)
        t = b.transpose(-1, -2)
        return lambda: matmul(a, t)

    def answer(name: str) -> float:
        if name not in made:
            made[name] = case(name)
        return quick(made[name])

    answer_requests(answer)


def table(torch_python: str, rounds: int, threads: int) -> None:
    peak = Peak(threads)
    for _ in range(3):
        peak.measure()
    ours, torch = start_peers(HERE / "matmul.py", torch_python, threads)
    print(f"\nmatrix products, {threads} threads, {rounds} rounds; peak {peak.best:.0f} GFLOP/s\n")
    print("| product              |  megengine |    PyTorch | faster by | GFLOP/s | of peak | |")
    print("| -------------------- | ---------- | ---------- | --------- | ------- | ------- | - |")
    for name, (batch, m, k, n, _) in CASES.items():
        pairs = [(ours.ask(name), torch.ask(name)) for _ in range(rounds)]
        mine, theirs = (min(p[i] for p in pairs) for i in range(2))
        ratio, top = theirs / mine, peak.measure()
        rate = 2e-9 * batch * m * k * n / mine
        print(
            f"| {name:20} | {show(mine):>10} | {show(theirs):>10} | {times(ratio):>9} | {rate:7.1f} | "
            f"{rate / top:7.2f} | {missed(ratio, 0.9)} |",
            flush=True,
        )
    ours.stop()
    torch.stop()


def main() -> int:
    return run_table(__doc__, serve, lambda a: table(a.torch_python, a.rounds, a.threads), rounds=3)


if __name__ == "__main__":
    sys.exit(main())
