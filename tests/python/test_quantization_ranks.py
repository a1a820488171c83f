"""Observers over real processes: every rank has the range of all, eager and traced."""

from __future__ import annotations

from typing import Any

import numpy as np
from ranks import ranks

import megengine as mge
import megengine.distributed as dist
import megengine.module as M
import megengine.quantization as Q
from megengine.jit import trace


def test_every_rank_has_the_range_of_all() -> None:
    def work() -> Any:
        net = Q.quantize_qat(M.Sequential(M.QuantStub(), M.Linear(3, 2)), qconfig=Q.sync_ema_fakequant_qconfig)
        observer, traced = net[0].act_observer, trace(without_host=True)(lambda x: net(x))
        for i in range(4):
            x = mge.tensor(np.float32([[-1.0, 0.5, 2.0]]) * (dist.get_rank() + 1) * (i + 1))
            (net if i < 2 else traced)(x)
        return observer.min_val.item(), observer.max_val.item()

    low = high = 0.0
    for i in range(4):
        keep = 0.9 if i else 0.0
        low, high = low * keep - (1 - keep) * 2 * (i + 1), high * keep + (1 - keep) * 4 * (i + 1)
    for got in ranks(2, work):
        np.testing.assert_allclose(got, (low, high), rtol=1e-6)
