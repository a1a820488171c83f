"""Samplers, the collator, and datasets made of arrays and of other datasets."""

from __future__ import annotations

import time
from collections import Counter, namedtuple
from itertools import islice

import numpy as np
import pytest

from megengine.data import (
    Collator,
    Infinite,
    MapSampler,
    RandomSampler,
    ReplacementSampler,
    Sampler,
    SequentialSampler,
    StreamSampler,
)
from megengine.data.dataset import ArrayDataset, ConcatDataset, Dataset, StreamDataset

TEN = range(10)


def flat(sampler):
    return sum(sampler, [])


# ---- samplers


@pytest.mark.parametrize("drop_last", (False, True))
@pytest.mark.parametrize("kind", (SequentialSampler, RandomSampler, ReplacementSampler))
@pytest.mark.parametrize("batch_size", (1, 3, 5, 10))
def test_length_is_the_number_of_batches(kind, batch_size, drop_last):
    sampler = kind(TEN, batch_size, drop_last)
    batches = list(sampler)
    assert len(sampler) == len(batches)
    assert all(len(b) == batch_size for b in batches[:-1])
    assert sum(map(len, batches)) == (10 // batch_size * batch_size if drop_last else 10)


def test_sequential():
    assert list(SequentialSampler(TEN, 4)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert list(SequentialSampler(TEN, 2, indices=[7, 3, 1])) == [[7, 3], [1]]


def test_random_takes_each_once_and_seeds_decide():
    a, b = RandomSampler(TEN, 4, seed=3), RandomSampler(TEN, 4, seed=3)
    first = flat(a)
    assert first == flat(b) == np.random.RandomState(3).permutation(10).tolist()
    second = flat(a)
    assert second != first and sorted(second) == list(TEN) and second == flat(b)
    assert sorted(flat(RandomSampler(TEN, 2, indices=[5, 6, 9]))) == [5, 6, 9]


def test_replacement_follows_the_weights():
    drawn = Counter(flat(ReplacementSampler(range(3), 100, num_samples=30000, weights=[1, 0, 3], seed=1)))
    assert drawn[1] == 0
    assert drawn[2] / 30000 == pytest.approx(0.75, abs=0.02)
    even = Counter(flat(ReplacementSampler(TEN, 100, num_samples=50000, seed=1)))
    assert min(even.values()) > 4500


def test_replacement_of_many_is_quick():
    began = time.monotonic()
    sampler = ReplacementSampler(range(1_500_000), 256, weights=np.ones(1_500_000))
    assert len(next(iter(sampler))) == 256
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("kind", (SequentialSampler, RandomSampler))
@pytest.mark.parametrize("world", (2, 3, 4))
def test_processes_share_an_epoch(kind, world):
    shares = [flat(kind(TEN, 2, world_size=world, rank=r)) for r in range(world)]
    assert len({len(s) for s in shares}) == 1  # equal work
    assert set().union(*shares) == set(TEN)
    assert sum(map(len, shares)) - 10 < world  # only the padding comes twice


def test_padding_wraps_around_a_short_list():
    shares = [flat(SequentialSampler([0], world_size=4, rank=r)) for r in range(4)]
    assert shares == [[0]] * 4


def test_stream_and_infinite():
    assert list(islice(StreamSampler(3), 2)) == [[0, 1, 2], [3, 4, 5]]
    endless = Infinite(SequentialSampler(TEN, 4))
    assert [b[0] for b in islice(endless, 5)] == [0, 4, 8, 0, 4]
    assert len(endless) == 2**63 - 1 and endless.batch_size == 4
    with pytest.raises(NotImplementedError, match="Infinite"):
        endless.sample()


def test_infinite_is_an_iterator_that_goes_on():
    endless = Infinite(SequentialSampler([7, 8, 9], 2))
    assert isinstance(endless, MapSampler) and iter(endless) is endless
    assert [next(endless), next(iter(endless)), next(endless)] == [[0, 1], [2], [0, 1]]

    class Nothing(SequentialSampler):
        def sample(self):
            return []

    with pytest.raises(StopIteration):  # nothing to repeat: an end instead of a hang
        next(Infinite(Nothing([1])))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: MapSampler(TEN, 0), "batch_size should be a positive integer value, but got batch_size=0"),
        (lambda: MapSampler(TEN, 2.0), "batch_size should be a positive integer"),
        (lambda: MapSampler(TEN, True), "batch_size should be a positive integer"),
        (lambda: MapSampler(TEN, drop_last=1), "drop_last should be a boolean"),
        (lambda: MapSampler(TEN, num_samples=0), "num_samples should be a positive integer"),
        (lambda: MapSampler(TEN, 20), "num_samples=10 and batch_size=20"),
        (lambda: MapSampler(TEN, 6, world_size=2, rank=0), "num_samples=5 and batch_size=6"),
        (lambda: MapSampler(TEN, world_size=0), "world_size should be a positive"),
        (lambda: MapSampler(TEN, world_size=2, rank=2), "rank should be in"),
        (lambda: SequentialSampler(TEN, indices=3), "indices should be None or a sequence"),
        (lambda: ReplacementSampler(TEN, weights=3), "weights should be None or a sequence"),
        (lambda: ReplacementSampler(TEN, weights=[1]), r"len\(dataset\)=10 should be equal to len\(weights\)=1"),
        (lambda: ReplacementSampler(TEN, weights=[-1] + [1] * 9), "not negative"),
        (lambda: ReplacementSampler(TEN, weights=[0] * 10), "positive sum"),
        (lambda: StreamSampler(0), "batch_size should be a positive"),
    ],
)
def test_bad_samplers(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_abstract_classes_cannot_be_made():
    for kind in (Sampler, Dataset, StreamDataset):
        with pytest.raises(TypeError, match="abstract"):
            kind()
    with pytest.raises(NotImplementedError):
        next(iter(MapSampler(TEN)))


# ---- collator

Point = namedtuple("Point", "x y")


def same(a, b):
    if isinstance(b, np.ndarray):
        assert isinstance(a, np.ndarray) and a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    elif isinstance(b, (list, tuple)):
        assert type(a) is type(b) and len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y)
    elif isinstance(b, dict):
        assert list(a) == list(b)
        for key in b:
            same(a[key], b[key])
    else:
        assert a == b


@pytest.mark.parametrize(
    ("samples", "batch"),
    [
        ([1, 2], np.array([1, 2])),
        ([1.0, 2.0], np.array([1.0, 2.0])),
        ([True, False], np.array([True, False])),
        ([np.float32(1), np.float32(2)], np.array([1, 2], np.float32)),
        ([np.ones(2, np.uint8), np.zeros(2, np.uint8)], np.array([[1, 1], [0, 0]], np.uint8)),
        (["a", "b"], ["a", "b"]),
        ([b"a", b"b"], [b"a", b"b"]),
        ([np.str_("a"), np.str_("b")], ["a", "b"]),
        ([np.array(["ab"]), np.array(["c"])], np.array([["ab"], ["c"]])),
        ([(1, "a"), (2, "b")], [np.array([1, 2]), ("a", "b")]),
        ([[1, 2], [3, 4]], [np.array([1, 3]), np.array([2, 4])]),
        ([Point(1, 2.0), Point(3, 4.0)], Point(np.array([1, 3]), np.array([2.0, 4.0]))),
        ([{"k": 1, "v": (2,)}, {"k": 3, "v": (4,)}], {"k": np.array([1, 3]), "v": [np.array([2, 4])]}),
    ],
)
def test_collate(samples, batch):
    same(Collator().apply(samples), batch)


@pytest.mark.parametrize(
    ("samples", "error", "text"),
    [
        ([None, None], TypeError, "got <class 'NoneType'>"),
        ([np.array([None]), np.array([None])], TypeError, "arrays of objects"),
        ([np.zeros(2), np.zeros(3)], ValueError, r"sample 0 of the batch has \(2,\), sample 1 has \(3,\)"),
        ([(1, 2), (3,)], ValueError, "sample 0 of the batch has 2, sample 1 has 1"),
        ([{"a": 1}, {"b": 2}], KeyError, "sample 1 of the batch has no key 'a'"),
        ([], ValueError, "at least one sample"),
    ],
)
def test_collate_bad_samples(samples, error, text):
    with pytest.raises(error, match=text):
        Collator().apply(samples)


# ---- datasets


def test_array_dataset():
    data = ArrayDataset(np.arange(6).reshape(3, 2), ["a", "b", "c"])
    assert len(data) == 3 and data[-1][1] == "c"
    np.testing.assert_array_equal(data[1][0], [2, 3])
    with pytest.raises(ValueError, match=r"inconsistent: \[2, 1\]"):
        ArrayDataset([1, 2], [1])
    with pytest.raises(ValueError, match="at least one array"):
        ArrayDataset()


def test_concat_dataset():
    data = ConcatDataset([ArrayDataset([0, 1]), ArrayDataset([2]), ArrayDataset([3, 4, 5])])
    assert data.cumulative_sizes == [2, 3, 6]
    assert len(data) == 6
    assert [data[i][0] for i in range(-6, 6)] == [0, 1, 2, 3, 4, 5] * 2
    with pytest.raises(ValueError, match="should not exceed"):
        data[-7]
    with pytest.raises(IndexError, match="past the last of 6"):
        data[6]
    with pytest.raises(AssertionError, match="empty"):
        ConcatDataset([])


def test_stream_dataset_has_no_index():
    class Empty(StreamDataset):
        def __init__(self): ...

        def __iter__(self):
            return iter(())

    with pytest.raises(AssertionError, match="by index"):
        Empty()[0]
    with pytest.raises(AssertionError, match="length"):
        len(Empty())
    with pytest.raises(AssertionError, match="ConcatDataset"):
        ConcatDataset([Empty()])
