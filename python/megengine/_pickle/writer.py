"""Writing pickles that every NumPy can read."""

from __future__ import annotations

import pickle
from typing import IO, Any

import numpy as np


class Pickler(pickle.Pickler):
    """Names arrays and scalars by ``numpy.ndarray`` and the scalar types.

    NumPy 2 names functions of ``numpy._core``, which NumPy 1 does not have, for what the classes do as well.
    """

    def reducer_override(self, obj: Any) -> Any:
        """How to make ``obj`` again, or NotImplemented for the usual way."""
        kind = type(obj)
        if kind is np.ndarray:
            return np.ndarray, ((0,), "b"), obj.__reduce__()[2]
        if isinstance(obj, np.generic):
            value = obj.item() if kind.__module__ == "numpy" and obj.dtype.kind in "biufcSU" else obj
            return NotImplemented if isinstance(value, np.generic) else (kind, (value,))
        return "bool_" if obj is np.bool_ else NotImplemented  # NumPy 2 calls it bool, which NumPy 1 has not


def dump(obj: Any, file: IO[bytes], pickle_module: Any, protocol: int) -> None:
    """Pickle with ``pickle_module``; Python's own as ``Pickler`` has it."""
    if pickle_module is pickle:
        Pickler(file, protocol).dump(obj)
    else:
        pickle_module.dump(obj, file, protocol=protocol)
