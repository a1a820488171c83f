"""One HTML page that shows a model: its graph, what each op costs, where it lies in memory, and what was fused.

>>> import tempfile, os
>>> from megengine.tools import graph_view
>>> @mge.jit.trace(symbolic=True, capture_as_const=True)
... def f(x):
...     return mge.functional.relu(x * 2) + 1
>>> y = f(mge.tensor([1.0, 2.0]))
>>> page = os.path.join(tempfile.mkdtemp(), "f.html")
>>> graph_view.write(f, page)
>>> "<!doctype html>" in open(page, encoding="utf-8").read()
True

From the command line: ``python -m megengine.tools.graph_view model.mge -o model.html --run``.
"""

from __future__ import annotations

import json
import os
import pickle
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ... import jit
from ...core import _core
from ...core.files import replacing
from ...tensor import Tensor
from ...traced_module import TracedModule
from ._model import Json, page_data

__all__ = ["describe", "write"]

_PAGE = Path(__file__).parent / "page"
_SCRIPTS = ("format.js", "layout.js", "graph.js", "memory.js", "panels.js", "main.js")


def write(
    model: Any,
    path: str | os.PathLike[str],
    *,
    run: int = 0,
    shapes: Mapping[str, Sequence[int]] | None = None,
    opt_level: int = 2,
    title: str | None = None,
) -> None:
    """Write the page of ``model`` to ``path``. It needs no network and no other file.

    Args:
        model: a model file or a pickled TracedModule (path), a profile as JSON (path), a ``trace`` that was called, or
            a TracedModule.
        path: where to; an old page is replaced.
        run: run a file this often on random inputs and show the time of every op. A ``trace`` shows the times it took
            with ``profiling=True``.
        shapes: sizes of inputs by name, where others than the recorded ones are wanted.
        opt_level: passes that are run on a file before it is planned, as ``trace`` has them.
        title: what the page is called.
    """
    data = describe(model, run=run, shapes=shapes, opt_level=opt_level, title=title)
    # Inside a script element a "<" could end it or begin a comment.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    page = (_PAGE / "page.html").read_text("utf-8")
    scripts = "\n".join((_PAGE / name).read_text("utf-8") for name in _SCRIPTS).replace("'use strict';\n", "")
    parts = {
        "@TITLE@": _escaped(data["title"]),
        "@CSS@": (_PAGE / "page.css").read_text("utf-8"),
        "@JS@": "'use strict';\n" + scripts,
        "@DATA@": text,
    }
    for key, value in parts.items():
        before, after = page.split(key)
        page = before + value + after
    with replacing(os.fspath(path)) as f:
        f.write(page.encode())


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def describe(
    model: Any,
    *,
    run: int = 0,
    shapes: Mapping[str, Sequence[int]] | None = None,
    opt_level: int = 2,
    title: str | None = None,
) -> Json:
    """What the page shows, as plain data."""
    if isinstance(model, jit.trace):
        return _of_trace(model, title or model.__name__)
    if isinstance(model, TracedModule):
        return _of_module(model, title or type(model).__name__, shapes, run)
    if not isinstance(model, (str, os.PathLike)):
        raise TypeError(
            f"graph_view: a path, a trace or a TracedModule is needed; got {type(model).__name__}. "
            "A Module is drawn through @trace, or through trace_module(module, input)."
        )
    name = os.path.basename(os.fspath(model))
    with open(model, "rb") as f:
        data = f.read()
    if data[:1] == b"\x80":
        return _of_module(_unpickled(name, data), title or name, shapes, run)
    if data[:1] == b"{":
        return _of_profile(name, data, title or name)
    described = json.loads(_core.describe_model(data, {k: list(v) for k, v in (shapes or {}).items()}, opt_level))
    if run:
        described["program"] = _measured(os.fspath(model), data, shapes or {}, run, described)
    return page_data(title or name, name, described, run)


def _of_trace(fn: jit.trace, title: str) -> Json:
    recording = fn._require_recording("graph_view").recording
    described = json.loads(recording.described())
    runs = 0
    if recording.n_programs:
        # As it really ran: with the times, if they were taken.
        program = json.loads(recording.profile())
        if _same_ops(program, described.get("program")) or program["profiler"]["average"]:
            if not _same_ops(program, described.get("program")):
                described["origin"] = {}
            described["program"] = program
            runs = 1
    return page_data(title, f"trace of {fn.__name__}", described, runs)


def _same_ops(a: Json | None, b: Json | None) -> bool:
    def ops(p: Json | None) -> Any:
        return p and {k: o["type"] for k, o in p["graph_exec"]["operator"].items()}

    return bool(a) and ops(a) == ops(b)


def _renumbered(described: Json, program: Json) -> Json:
    """Where the ops of a program come from, told by another one of the same instructions; {} when they differ."""
    origin, other = described.get("origin") or {}, described.get("program")
    if _same_ops(program, other) or not other:
        return dict(origin)

    def sequence(p: Json) -> list[tuple[str, str]]:
        ops = p["graph_exec"]["operator"]
        return [(k, ops[k]["type"]) for k in p["graph_exec"]["comp_seq"]]

    here, there = sequence(program), sequence(other)
    if [t for _, t in here] != [t for _, t in there]:
        return {}
    return {a: origin[b] for (a, _), (b, _) in zip(here, there) if b in origin}


def _unpickled(name: str, data: bytes) -> TracedModule:
    from ...serialization import load

    with tempfile.NamedTemporaryFile() as f:
        f.write(data)
        f.flush()
        try:
            module = load(f.name)
        except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError, KeyError, TypeError) as e:
            raise ValueError(f"graph_view: {name} is a pickle, but no TracedModule: {e}") from e
    if not isinstance(module, TracedModule):
        raise ValueError(
            f"graph_view: {name} holds a {type(module).__name__}, no TracedModule. "
            "trace_module(module, input) makes one."
        )
    return module


def _of_module(module: TracedModule, title: str, shapes: Mapping[str, Sequence[int]] | None, run: int) -> Json:
    """Run once on zeros of the recorded sizes, which gives the graph."""
    inputs = []
    for node in module.graph.inputs[1:]:
        sizes = (shapes or {}).get(str(node._name))
        dtype = getattr(node, "_dtype", None) or "float32"
        recorded = sizes if sizes is not None else getattr(node, "_shape", None)
        if recorded is None:
            raise ValueError(f"graph_view: the sizes of input {node._name!r} are not recorded. Give them by shapes.")
        inputs.append(Tensor(np.zeros(tuple(recorded), dtype)))
    module.eval()

    def forward(*args: Any) -> Any:
        return module(*args)

    fn = jit.trace(forward, symbolic=True, capture_as_const=True, without_host=bool(run))
    fn(*inputs)
    if run:
        fn._require_recording("graph_view").recording.watch(True)
        for _ in range(run + 1):
            fn(*inputs)
    data = _of_trace(fn, title)
    data["summary"]["source"] = f"TracedModule of {module.graph.name or type(module).__name__}"
    return data


def _of_profile(name: str, data: bytes, title: str) -> Json:
    try:
        profile = json.loads(data)
    except ValueError as e:
        raise ValueError(f"graph_view: {name} is no JSON: {e}") from e
    if isinstance(profile, dict) and "operator" in profile:
        profile = {"graph_exec": profile, "profiler": {}}
    if not isinstance(profile, dict) or "graph_exec" not in profile:
        raise ValueError(f"graph_view: {name} is no profile: it has no graph_exec. trace.get_profile() gives one.")
    return page_data(title, name, {"written": profile["graph_exec"], "program": profile, "origin": {}}, 1)


def _measured(path: str, data: bytes, shapes: Mapping[str, Sequence[int]], runs: int, described: Json) -> Json:
    """The program with the times of runs on random inputs, by Lite."""
    from megenginelite import LiteNetwork

    rng = np.random.RandomState(0)
    network = LiteNetwork()
    network.load(path)
    inputs, _ = _core.model_io(data)
    for name, dtype, shape in inputs:
        sizes = tuple(shapes.get(name, shape))
        value = rng.uniform(0, 1, sizes) if "float" in dtype else rng.randint(0, 2, sizes)
        network.get_io_tensor(name).set_data_by_copy(value.astype(dtype))
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "profile.json")
        network.forward()
        network.wait()
        network.enable_profile_performance(file)
        for _ in range(runs):
            network.forward()
            network.wait()
        with open(file, encoding="utf-8") as f:
            program: Json = json.load(f)
    described["origin"] = _renumbered(described, program)
    return program
