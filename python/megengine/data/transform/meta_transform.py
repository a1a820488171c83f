"""The base of all transforms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from .._progress import here

__all__ = ["CudaTransform", "PseudoTransform", "Transform"]


class Transform(ABC):
    """Turns a sample into another one. A subclass gives ``apply``, and ``apply_batch`` to see whole batches."""

    def apply_batch(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """``apply`` on each sample."""
        results = []
        for position, sample in enumerate(inputs):
            here.transforming(position)
            results.append(self.apply(sample))
        return tuple(results)

    @abstractmethod
    def apply(self, input: Any) -> Any:
        """The transformed sample; ``input`` is a tuple as the dataset gives it."""

    def __repr__(self) -> str:
        return self.__class__.__name__


class PseudoTransform(Transform):
    """Leaves samples as they are."""

    def apply(self, input: Any) -> Any:
        """The sample itself."""
        return input


class CudaTransform(Transform):
    """Base of transforms that work on Tensors: a loader calls ``apply`` in its own process, on the collated batch."""
