"""Operators of users' libraries (docs/custom-ops.md).

``load`` makes each operator of a library a function of this module that makes the op; ``apply`` runs it:

    from megengine.core._imperative_rt.core2 import apply
    from megengine.core.ops import custom
    custom.load("/path/scale.so")
    (y,) = apply(custom.Scale(scale=2.0), x)
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from .. import _core
from .._imperative_rt.opdef import OpDef

__all__ = ["get_custom_op_abi_tag", "load", "unload"]

#: Operators that the original ships, all of them for CUDA alone.
_BUILTIN = ("cutmix_forward", "cropandpad_forward", "dilate_forward", "fillpoly_forward")

_RANGES = {"i32": (-(2**31), 2**31), "i64": (-(2**63), 2**63), "u32": (0, 2**32), "u64": (0, 2**64)}


def _text(what: str, kind: str, value: Any) -> str:
    """One number or string as a library reads it."""
    if kind in _RANGES:
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise TypeError(f"{what} is an integer; got {value!r}.")
        low, high = _RANGES[kind]
        if not low <= value < high:
            raise ValueError(f"{what} is an integer from {low} to {high - 1}; got {value}.")
        return str(int(value))
    if kind in ("f32", "f64"):
        if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
            raise TypeError(f"{what} is a number; got {value!r}.")
        number = float(value)
        return repr(number) if math.isfinite(number) else str(number)
    if kind == "bool":
        if not isinstance(value, (bool, np.bool_)):
            raise TypeError(f"{what} is True or False; got {value!r}.")
        return str(int(value))
    if not isinstance(value, str):
        raise TypeError(f"{what} is a string; got {value!r}.")
    if kind == "dev" and value not in ("x86", "cuda"):
        raise ValueError(f"{what} is a device, 'x86' or 'cuda'; got {value!r}.")
    return quote(value, safe="")


class CustomOp(OpDef):
    """An op of a user's library with its parameters. ``apply(op, *inputs)`` runs it."""

    _effect = "steps"
    _fields = {"name": "", "library": "", "params": "", "n_in": 0, "n_out": 0}

    def _run(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(inputs) != self.n_in:  # type: ignore[attr-defined]
            raise TypeError(f"{self.name}: needs {self.n_in} inputs; got {len(inputs)}.")  # type: ignore[attr-defined]
        for i, x in enumerate(inputs):
            if not isinstance(x, _core.TensorBase):
                raise TypeError(f"{self.name}: input {i} must be a Tensor; got {type(x).__name__}.")  # type: ignore[attr-defined]
        given = inputs or (_core.tensor_type()(np.zeros(0, "float32")),)  # the engine's op has an input in any case
        attrs = {name: getattr(self, name) for name in self._fields}
        out = _core.ops.custom(*given, **attrs)
        return out if isinstance(out, tuple) else (out,)

    def __repr__(self) -> str:
        return str(self.name)  # type: ignore[attr-defined]


def _maker(name: str, path: str) -> Callable[..., CustomOp]:
    """The function that makes an op."""
    lines = [line.split("\t") for line in _core.custom_describe(name).split("\n")]
    doc = next(unquote(row[2]) for row in lines if row[0] == "op")
    infers = next(row[1] for row in lines if row[0] == "infer").split(",")
    ins = [row for row in lines if row[0] == "in"]
    outs = [row for row in lines if row[0] == "out"]
    params = {unquote(row[1]): (row[3].split(":", 1)[0], unquote(row[2])) for row in lines if row[0] == "param"}
    unset = [what for what in ("device", "shape", "dtype", "format") if what not in infers]
    told = False

    def make(**kwargs: Any) -> CustomOp:
        nonlocal told
        if unset and not told and ("shape" in unset or "dtype" in unset):
            told = True
            warnings.warn(
                f"{name}: has no inference of {' and '.join(w for w in unset if w in ('shape', 'dtype'))}; its results "
                "get those of its first input.",
                RuntimeWarning,
                stacklevel=2,
            )
        encoded = []
        for key, value in kwargs.items():
            if key not in params:
                known = ", ".join(params) or "none"
                warnings.warn(f"{name}: has no parameter {key!r}; it has {known}. It is ignored.", stacklevel=2)
                continue
            kind, _ = params[key]
            what = f"{name}: parameter {key!r}"
            if kind.startswith("[]"):
                if isinstance(value, str) or not isinstance(value, (list, tuple, np.ndarray)):
                    raise TypeError(f"{what} is a list; got {value!r}.")
                text = ",".join(_text(f"{what}[{i}]", kind[2:], v) for i, v in enumerate(value))
            else:
                text = _text(what, kind, value)
            encoded.append(f"{quote(key, safe='')}={kind}:{text}")
        return CustomOp(name, os.path.basename(path), ";".join(sorted(encoded)), len(ins), len(outs))

    make.__name__ = make.__qualname__ = name
    make.__doc__ = (doc + "\n\n" if doc else "") + "".join(
        f"    {k} ({kind}): {d}\n" for k, (kind, d) in params.items()
    )
    return make


def load(lib_path: str | os.PathLike[str]) -> None:
    """Load a library; each of its operators becomes a function of this module that makes the op."""
    path = os.path.abspath(os.fspath(lib_path))
    if not os.path.exists(path):
        raise FileNotFoundError(f"custom.load: there is no file {path!r}.")
    for name in _core.custom_load(path):
        globals()[name] = _maker(name, path)


def unload(lib_path: str | os.PathLike[str]) -> None:
    """Forget a library and its operators. Programs recorded with them cannot run any more until it is loaded again."""
    path = os.path.abspath(os.fspath(lib_path))
    names = _core.custom_libraries().get(path, [])
    _core.custom_unload(path)
    for name in names:
        globals().pop(name, None)


def _get_custom_op_list() -> list[str]:
    """The names of all operators that are loaded."""
    return [name for names in _core.custom_libraries().values() for name in names]


def _get_custom_op_lib_info() -> dict[str, list[str]]:
    """The operators of each library, by its absolute path."""
    return dict(_core.custom_libraries())


def get_custom_op_abi_tag() -> int:
    """The ``_GLIBCXX_USE_CXX11_ABI`` of the engine. Libraries may have another: they share no types with it."""
    return 1


def __getattr__(name: str) -> Any:
    if name in _BUILTIN:
        raise NotImplementedError(
            f"custom.{name}: the original ships this operator for CUDA alone; there are no CUDA devices here. "
            "functional.vision and data.transform have functions for images."
        )
    loaded = ", ".join(_get_custom_op_list()) or "none"
    raise AttributeError(f"module 'megengine.core.ops.custom' has no operator {name!r}; loaded are {loaded}.")
