"""Kinds of error that programs written for MegEngine catch."""

from __future__ import annotations

import numpy as np
import pytest
from functional_helpers import X

import megengine as mge
import megengine.functional as F
from megengine import tensor
from megengine.core._core import AsyncError


@pytest.mark.parametrize(
    "call",
    [
        lambda: F.sum(tensor(X), axis=(0, 2)),
        lambda: F.argmax(tensor(X), axis=2),
        lambda: F.swapaxes(tensor(X), 0, 2),
        lambda: F.split(tensor(X), 2, axis=2),
        lambda: F.repeat(tensor(X), 2, axis=2),
        lambda: F.roll(tensor(X), 1, axis=2),
        lambda: F.gather(tensor(X), 2, tensor([[0]])),
    ],
)
def test_a_missing_axis_is_every_kind_of_error(call) -> None:
    for kind in (AssertionError, IndexError, RuntimeError, ValueError):
        with pytest.raises(kind, match="axis 2 is out of range for a tensor with 2 dimensions"):
            call()


@pytest.mark.parametrize(
    ("kinds", "call"),
    [
        ((AssertionError, ValueError), lambda: F.pad(tensor(X), ((1, 1),), "wrap")),
        ((AssertionError, RuntimeError), lambda: F.pixel_shuffle(tensor(X), 2)),
        ((AssertionError, RuntimeError), lambda: F.pixel_shuffle(F.ones((4, 1, 1)), 0)),
        ((AssertionError,), lambda: F.conv1d(F.ones((1, 4)), F.ones((1, 1, 2)))),
        ((AssertionError,), lambda: F.conv1d(F.ones((1, 1, 4)), F.ones((1, 1, 2)), F.ones(1))),
        ((AssertionError,), lambda: F.repeat(tensor(X), 0)),
        ((AssertionError,), lambda: F.repeat(tensor(X), 1.5)),
        ((AssertionError,), lambda: F.vision.nms(F.ones((2, 5)), F.ones(2), 0.5)),
        ((AssertionError,), lambda: F.vision.roi_align(F.ones((1, 1, 4, 4)), F.ones((1, 5)), 2, mode="sum")),
        ((AssertionError,), lambda: F.vision.roi_pooling(F.ones((1, 1, 4, 4)), F.ones((1, 5)), 2, mode="sum")),
        ((AssertionError,), lambda: F.squeeze(F.ones((1, 1, 3)), (0, 0))),
        ((RuntimeError,), lambda: F.vision.remap(F.ones((1, 1, 4, 4)), F.ones((1, 2, 2, 2)), interp_mode="sum")),
        ((RuntimeError,), lambda: F.stack([F.ones(2), F.ones(3)])),
        ((RuntimeError,), lambda: F.topk(tensor(X), 0)),
        ((RuntimeError,), lambda: F.eye([1, 2, 3])),
        ((RuntimeError,), lambda: F.meshgrid(tensor(X))),
        ((RuntimeError,), lambda: F.meshgrid(F.ones(2), F.ones(2), indexing="yx")),
        ((RuntimeError,), lambda: F.dot(F.ones(2), F.ones(3))),
        ((RuntimeError,), lambda: F.linspace(0, 1, 2.5)),
        ((RuntimeError,), lambda: F.linspace(0, 1, -1)),
        ((RuntimeError,), lambda: F.arange(0, 5, 0)),
        ((RuntimeError,), lambda: F.tile(tensor(X), (2, -1))),
        ((RuntimeError,), lambda: F.cond_take(tensor([True]), F.ones(2))),
        ((RuntimeError,), lambda: F.gather(F.ones((2, 3)), 0, F.zeros((2, 4), dtype="int32"))),
        ((RuntimeError,), lambda: F.avg_pool2d(F.ones((1, 1, 4, 4)), 2, mode="sum")),
        ((ValueError,), lambda: F.scatter(F.zeros((2, 3)), 1, F.zeros((1, 4), dtype="int32"), F.ones((1, 4)))),
        ((TypeError,), lambda: F.zeros("a")),
        ((TypeError,), lambda: F.ones(None)),
        ((TypeError,), lambda: F.sum(tensor(X), axis=1.0)),
        ((TypeError,), lambda: F.where(np.array([True]), F.ones(1), F.ones(1))),
    ],
)
def test_broken_rules_have_the_kinds_of_error_programs_catch(kinds, call) -> None:
    for kind in kinds:
        with pytest.raises(kind):
            call()


def test_async_level_is_checked() -> None:
    with pytest.raises(AssertionError):
        mge.config.async_level = 3
    with pytest.raises(RuntimeError):
        F.reshape(tensor(X), tensor([5, 5]))


def test_errors_on_purpose() -> None:
    with pytest.raises(AsyncError) as caught:
        F.utils._simulate_error().numpy()
    assert isinstance(caught.value.__cause__, RuntimeError)
