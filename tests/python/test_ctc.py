"""CTC loss against the sum over all paths, in NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from functional_helpers import check, gradcheck

import megengine.functional as F
from megengine import Tensor


def ctc_by_listing(p, label, blank):
    """The sum over every path that spells the label, one by one."""
    total = 0.0
    for path in itertools.product(range(p.shape[1]), repeat=len(p)):
        joined = [c for i, c in enumerate(path) if (i == 0 or c != path[i - 1]) and c != blank]
        if joined == list(label):
            total += np.prod([p[t, c] for t, c in enumerate(path)])
    return -np.log(total)


PRED = np.random.RandomState(0).uniform(0.05, 1, (5, 3, 4))
PRED /= PRED.sum(-1, keepdims=True)


@pytest.mark.parametrize("blank, labels", [(0, [[1, 2], [3, 3], [1]]), (2, [[1, 0, 1], [3], []])])
def test_ctc_loss_counts_every_path(blank, labels):
    steps = [5, 4, 3]
    want = np.array([ctc_by_listing(PRED[:t, n], label, blank) for n, (t, label) in enumerate(zip(steps, labels))])
    sizes = np.array([len(v) for v in labels])
    padded = np.array([v + [1] * (3 - len(v)) for v in labels])
    joined = np.array([c for v in labels for c in v])
    p = Tensor(PRED.astype("float32"))
    for label in (padded, joined):
        args = (p, Tensor(steps), Tensor(label.astype("int32")), Tensor(sizes.astype("int32")), blank)
        check(F.loss.ctc_loss(*args, reduction="none"), want, rtol=1e-5)
        check(F.loss.ctc_loss(*args, reduction="sum"), want.sum(), rtol=1e-5)
        check(F.loss.ctc_loss(*args), (want / np.maximum(sizes, 1)).mean(), rtol=1e-5)


def test_ctc_loss_takes_labels_that_are_blank():
    # No path spells such a label; MegEngine 1.13 goes through the states all the same, and gives these.
    x = Tensor(np.random.RandomState(1).uniform(-2, 2, (5, 2, 4)).astype("float32"))
    args = Tensor([5, 4]), Tensor([1, 2, 3]), Tensor([2, 1]), 3
    check(F.loss.ctc_loss(F.softmax(x, axis=2), *args, reduction="none"), [4.13383, 3.62549], rtol=1e-5)


def test_ctc_loss_gradient_and_checks():
    lengths = Tensor([5, 4, 5]), Tensor([[1, 2], [3, 3], [1, 1]]), Tensor([2, 2, 1])
    gradcheck(lambda p: F.loss.ctc_loss(p, *lengths, reduction="none"), PRED, eps=1e-6)
    p = Tensor(PRED.astype("float32"))
    bad = [
        ((Tensor([6, 4, 5]), lengths[1], lengths[2]), "pred_lengths must lie in 1..5; got 6"),
        ((lengths[0], lengths[1], Tensor([3, 2, 1])), "label_lengths do not fit"),
        ((lengths[0], Tensor([[4, 2], [3, 3], [1, 1]]), lengths[2]), "labels must be classes 0..3; got 4"),
    ]
    for args, text in bad:
        with pytest.raises((AssertionError, RuntimeError), match=text):
            F.loss.ctc_loss(p, *args).numpy()
    with pytest.raises(AssertionError, match="blank must be a class"):
        F.loss.ctc_loss(p, *lengths, blank=4)
    with pytest.raises(ValueError, match="reduction"):
        F.loss.ctc_loss(p, *lengths, reduction="max")
