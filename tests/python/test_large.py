"""Results too large for the cache are written past it, by other code: their bits are those of small pieces."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import megengine.functional as F
from megengine import Tensor
from megengine.device import get_num_threads, set_num_threads

ROWS = 2100  # times 4096 floats: 33 MiB, over the 32 MiB from which stores pass the cache
rng = np.random.default_rng(5)

by_rows: dict[str, Callable[[Tensor], Tensor]] = {
    "add": lambda x: x + x,
    "tanh": F.tanh,
    "softmax": lambda x: F.softmax(x, axis=1),
    "logsoftmax": lambda x: F.logsoftmax(x, axis=1),
    "layer_norm": lambda x: F.nn.layer_norm(x, (x.shape[1],), False),
    "float16": lambda x: x.astype("float16"),
}


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> object:
    before = get_num_threads()
    set_num_threads(request.param)
    yield request.param
    set_num_threads(before)


@pytest.mark.parametrize("columns", [4096, 4100, 16384])  # whole lines; not so; rows longer than the buffers
@pytest.mark.parametrize("name", by_rows)
def test_rows_past_the_cache(name: str, columns: int, threads: int) -> None:
    data = rng.standard_normal((ROWS * 4096 // columns + 5, columns)).astype("float32") * 3
    data[3, 7] = np.inf
    data[4, 5] = np.nan
    whole = by_rows[name](Tensor(data)).numpy()
    for first in range(0, len(data), len(data) // 7):
        piece = by_rows[name](Tensor(data[first : first + 3])).numpy()
        np.testing.assert_array_equal(whole[first : first + 3], piece)


@pytest.mark.parametrize("shape", [(ROWS, 4096), (4097, 2064), (2100, 4111)])
def test_transpose_past_the_cache(shape: tuple[int, int], threads: int) -> None:
    data = rng.standard_normal(shape).astype("float32")
    np.testing.assert_array_equal(F.flatten(Tensor(data).transpose(1, 0)).numpy(), data.T.reshape(-1))


def test_softmax_in_place_of_its_input_past_the_cache(threads: int) -> None:
    data = rng.standard_normal((ROWS, 4096)).astype("float32")
    x = Tensor(data) + 0.0  # nobody else needs it, so the result may take its memory
    want = F.softmax(Tensor(data[-2:]), axis=1).numpy()
    np.testing.assert_array_equal(F.softmax(x * 1.0, axis=1).numpy()[-2:], want)
    np.testing.assert_array_equal(x.numpy(), data)
