"""Input data of the command lines: files of arrays, and random numbers by description."""

from __future__ import annotations

import ast
import json
import os
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..serialization import load
from ._command import UsageError, existing


def load_arrays(path: str, names: Sequence[str]) -> dict[str, Any]:
    """Arrays by name from ``.npy``, ``.npz``, ``.json`` or a pickle of an array or a dict of arrays.

    Pickles are read as data: what is in them is not run.
    """
    existing(path)
    kind = os.path.splitext(path)[1].lower()
    try:
        if kind in (".npy", ".npz"):
            found = np.load(path, allow_pickle=False)
            data: Any = dict(found) if kind == ".npz" else found
        elif kind == ".json":
            with open(path, encoding="utf-8") as f:
                data = json.load(f)
        else:
            data = load(path)
    except (pickle.UnpicklingError, ValueError, EOFError, TypeError, AttributeError, KeyError, IndexError) as e:
        raise UsageError(f"{path} is no file of arrays: {e}") from None
    if isinstance(data, Mapping):
        unknown = sorted(set(map(str, data)) - set(names))
        if unknown:
            raise UsageError(f"{path}: the network has no inputs {', '.join(unknown)}; it has {', '.join(names)}")
        return {str(k): _array(v) for k, v in data.items()}
    if len(names) != 1:
        raise UsageError(f"{path} holds one array, the network has {len(names)} inputs: a dict of arrays is needed")
    return {names[0]: _array(data)}


def _array(value: Any) -> Any:
    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)


def random_array(rng: np.random.RandomState, shape: tuple[int, ...], dtype: str, how: str | None = None) -> Any:
    """Random numbers: uniform in [0, 1), or by an expression such as ``randint(low=0, high=10, size={})``."""
    if how is None:
        return rng.uniform(size=shape).astype(dtype)
    return _call(rng, how, shape).astype(dtype)


def _call(rng: np.random.RandomState, text: str, shape: tuple[int, ...]) -> Any:
    """One call of a method of ``RandomState`` with literal arguments; nothing else is evaluated."""
    wrong = UsageError(f'--rng: {text!r} is no call as in "randint(low=0,high=10,size={{}})"')
    try:
        call = ast.parse(text.replace("{}", repr(shape)), mode="eval").body
    except SyntaxError:
        raise wrong from None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id.startswith("_"):
        raise wrong
    method = getattr(rng, call.func.id, None)
    if method is None or call.func.id in ("seed", "set_state", "get_state"):
        raise UsageError(f"--rng: NumPy's RandomState draws no {call.func.id!r}")
    try:
        args = [ast.literal_eval(a) for a in call.args]
        keywords = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
        return np.asarray(method(*args, **keywords)).reshape(shape)
    except (ValueError, TypeError) as e:
        raise UsageError(f"--rng: {text!r}: {e}") from None
