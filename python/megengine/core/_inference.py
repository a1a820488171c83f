"""Model files run from Python, by Lite with the kernels that ship."""

from __future__ import annotations

import io
import json
import os
from collections import OrderedDict
from collections.abc import Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from . import _core
from .tensor.dtype import bfloat16

__all__ = ["GraphInference"]


class GraphInference:
    """A model file as a function of arrays, run by Lite with the kernels that ship.

    Args:
        file: a path, or an open binary file.
        outputs: names of the outputs to return; all when None. Other variables of the graph may be named, too.
        profiling: note how long each instruction takes; ``get_profile()`` gives it.
        optimize_for_inference: rewrite the graph first, with the options of ``kwargs`` (``enable_io16xc32`` …).

    >>> import io
    >>> from megengine.utils.comp_graph_tools import GraphInference
    >>> @mge.jit.trace(symbolic=True, capture_as_const=True)
    ... def f(x):
    ...     return x * 2
    >>> y, file = f(mge.tensor([1.0, 2.0])), io.BytesIO()
    >>> result = f.dump(file, arg_names=["x"], output_names=["y"])
    >>> file.seek(0)
    0
    >>> GraphInference(file).run(np.array([3.0, 4.0], "float32"))["y"].tolist()
    [6.0, 8.0]
    """

    def __init__(
        self,
        file: str | os.PathLike[str] | IO[bytes],
        outputs: Sequence[str] | None = None,
        profiling: bool = False,
        optimize_for_inference: bool = False,
        **kwargs: Any,
    ) -> None:
        from megenginelite import LiteGlobal, LiteNetwork, LiteTensorPhase

        if kwargs and not optimize_for_inference:
            raise ValueError(f"GraphInference: {', '.join(sorted(kwargs))} need optimize_for_inference=True.")
        if isinstance(file, (str, os.PathLike)):
            with open(file, "rb") as f:
                data = f.read()
        else:
            data = file.read()
        data = _rewritten(data, outputs, optimize_for_inference, kwargs)
        inputs, results = _core.model_io(data)
        for library in _core.custom_libraries():  # Lite is a library of its own, with operators of its own
            LiteGlobal.set_loader_lib_path(library)
        self._network, self._phases = LiteNetwork(), LiteTensorPhase
        self._network.load(io.BytesIO(data))
        self._inputs = [name for name, _, _ in inputs]
        self._dtypes = {name: dtype for name, dtype, _ in inputs}
        self._ndim = {name: len(shape) for name, _, shape in results}  # Lite has no tensors without dimensions
        self._bfloat16 = {name for name, dtype, _ in results if dtype == "bfloat16"}  # Lite gives its bits
        self._profile = None
        if profiling:
            import tempfile

            self._profile = tempfile.NamedTemporaryFile(prefix="profile-", suffix=".json")
            self._network.enable_profile_performance(self._profile.name)
        known = list(self._ndim)
        self._outputs = list(known if outputs is None else outputs)
        _check_known(self._outputs, known)

    def run(self, *inp_args: Any, inp_dict: dict[str, Any] | None = None) -> OrderedDict[str, npt.NDArray[Any]]:
        """Feed arrays, in the order of the file's inputs or by name, and get outputs by name."""
        named = dict(inp_dict or {})
        free = [n for n in self._inputs if n not in named]
        assert len(inp_args) == len(free), (
            f"GraphInference: needs {len(self._inputs)} inputs ({', '.join(self._inputs)}); "
            f"got {len(inp_args)} by position and {sorted(named)} by name."
        )
        named.update(zip(free, inp_args))
        extra = sorted(set(named) - set(self._inputs))
        assert not extra, f"GraphInference: the file has no inputs {extra}; it has {', '.join(self._inputs)}."
        for name, value in named.items():
            array = np.ascontiguousarray(value.numpy() if hasattr(value, "numpy") else value)
            array = _narrowed(array, name, self._dtypes[name])
            tensor = self._network.get_io_tensor(name, self._phases.LITE_INPUT)
            tensor.set_data_by_copy(array.reshape(np.shape(value)))
        self._network.forward()
        self._network.wait()
        return OrderedDict((n, self._result(n)) for n in self._outputs)

    def get_profile(self) -> dict[str, Any]:
        """The graph and the times of the last run (``megengine.utils.profile_analyzer``); needs ``profiling=True``."""
        if self._profile is None:
            raise RuntimeError("GraphInference.get_profile: nothing was watched. Make it with profiling=True.")
        with open(self._profile.name, encoding="utf-8") as f:
            text = f.read()
        if not text:
            raise RuntimeError("GraphInference.get_profile: nothing has run yet. Call run first.")
        profile: dict[str, Any] = json.loads(text)
        return profile

    def _result(self, name: str) -> npt.NDArray[Any]:
        value = self._network.get_io_tensor(name, self._phases.LITE_OUTPUT).to_numpy()
        if name in self._bfloat16:
            value = value.view(bfloat16)
        return value.reshape(()) if self._ndim[name] == 0 else value


def _check_known(names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        there = ", ".join(known)
        assert name in known, f"GraphInference: Can not find varnode [{name!r}] in this model; it has {there}."


def _rewritten(data: bytes, outputs: Sequence[str] | None, optimize: bool, options: dict[str, Any]) -> bytes:
    """The file with other outputs, or optimised; the same bytes where nothing is asked for."""
    known = {name for name, _, _ in _core.model_io(data)[1]}
    others = [name for name in outputs or () if name not in known]
    if not others and not optimize:
        return data
    graph = _core.Graph(data)
    graph.name_values()  # as Network shows them, also where the file keeps no names of inner variables
    found, stack, seen = dict(graph.outputs), [id for _, id in graph.outputs], set()
    while stack and others:
        id = stack.pop()
        if id in seen:
            continue
        seen.add(id)
        name, _, _, _, kind, producer = graph.value(id)
        if name in others:
            found.setdefault(name, id)
        if kind == "result":
            _, _, ins, _, _, sizes = graph.node(producer)
            stack += [*ins, *sizes]
    _check_known(others, sorted(found))
    chosen = [(name, id) for name, id in found.items() if outputs is None or name in outputs]
    if optimize:
        word = _core.inference_word([(k, bool(v)) for k, v in options.items()])
        graph = graph.optimized(chosen, word)
        chosen = graph.outputs
    return graph.dump(chosen, graph.inputs, False, None, [], []).write()


def _narrowed(array: npt.NDArray[Any], name: str, dtype: str) -> npt.NDArray[Any]:
    """float64 and int64, which NumPy makes by itself, as the 32 bits a model takes."""
    if array.dtype.name == dtype or array.dtype.name not in ("float64", "int64"):
        return array
    narrow = array.astype(np.float32 if array.dtype == np.float64 else np.int32)
    if array.dtype == np.int64 and not np.array_equal(narrow, array):
        worst = array[narrow != array].flat[0]
        raise _core.UserError(f"GraphInference: input {name!r} is {dtype}, which does not hold {worst}.")
    return narrow
