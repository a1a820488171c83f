"""Joining the samples of a batch into arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["Collator"]


class Collator:
    """Joins samples into a batch; the first sample decides how.

    Arrays and numbers become one array with a new first axis, strings stay as they are, dicts and named tuples are
    joined field by field, and other sequences give a list of joined fields.

    >>> from megengine.data import Collator
    >>> Collator().apply([(np.zeros(2), 1), (np.ones(2), 2)])
    [array([[0., 0.],
           [1., 1.]]), array([1, 2])]
    """

    def apply(self, inputs: Sequence[Any]) -> Any:
        """The batch of these samples."""
        if len(inputs) == 0:
            raise ValueError("Collator: needs at least one sample; got none.")
        first = inputs[0]
        if isinstance(first, np.ndarray):
            return _stack(inputs)
        if isinstance(first, (str, bytes)):  # before np.generic, which np.str_ is too
            return inputs
        if isinstance(first, (np.generic, bool, int)):
            return np.array(inputs)
        if isinstance(first, float):
            return np.array(inputs, dtype=np.float64)
        if isinstance(first, Mapping):
            return {key: self.apply([_field(sample, key, i) for i, sample in enumerate(inputs)]) for key in first}
        if isinstance(first, tuple) and hasattr(first, "_fields"):
            return type(first)(*(self.apply(field) for field in _fields(inputs)))
        if isinstance(first, Sequence):
            return [self.apply(field) for field in _fields(inputs)]
        raise TypeError(
            f"Collator: samples are arrays, numbers, strings, bytes, dicts or sequences of them; got {type(first)}. "
            f"{_way(first)}"
        )


def _way(sample: Any) -> str:
    if sample is None:
        return "Does __getitem__ of the dataset, or apply of the transform, return its result?"
    if hasattr(sample, "numpy"):
        return "x.numpy() is an array; preload=True makes Tensors of batches."
    return "Give the DataLoader a collator of your own for other types."


def _stack(arrays: Sequence[Any]) -> np.ndarray[Any, Any]:
    if arrays[0].dtype.kind == "O":
        raise TypeError(f"Collator: arrays of objects cannot be joined; got dtype {arrays[0].dtype}.")
    shapes = [np.shape(a) for a in arrays]
    for i, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise ValueError(
                f"Collator: all arrays of a batch must have the same shape; sample 0 of the batch has {shapes[0]}, "
                f"sample {i} has {shape}. Resize, crop or pad them in the transform."
            )
    return np.ascontiguousarray(np.stack(arrays))


def _field(sample: Any, key: Any, position: int) -> Any:
    try:
        return sample[key]
    except KeyError:
        raise KeyError(f"Collator: sample {position} of the batch has no key {key!r}, which sample 0 has.") from None


def _fields(inputs: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Samples of fields turned into fields of samples. Unequal lengths would lose data, so they are an error."""
    width = len(inputs[0])
    for i, sample in enumerate(inputs):
        if len(sample) != width:
            raise ValueError(
                f"Collator: all samples of a batch must have as many fields; sample 0 of the batch has {width}, "
                f"sample {i} has {len(sample)}."
            )
    return list(zip(*inputs))
