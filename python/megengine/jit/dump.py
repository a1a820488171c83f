"""``trace.dump``: a recording as a model file.

Names are those of the original: ops by the modules that were running and their type (``net.conv1.Convolution``),
parameters by the attributes that hold them, inputs and outputs by what the caller says.
"""

from __future__ import annotations

import gc
import inspect
import io
import os
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from ..core import _core
from ..core._inference import GraphInference
from ..core._model_file import CompGraphDumpResult, check_files, check_options, metadata_of, option_word, write
from ..core._warn import warn_once
from ..logger import get_logger
from ..module import Dropout, Module
from ..tensor import Tensor
from .depends import TARGET
from .golden import read_cases
from .tree import Leaf

if TYPE_CHECKING:
    from .depends import Entry
    from .tracing import trace

__all__ = ["CompGraphDumpResult", "dump"]

logger = get_logger(__name__)

# ---- names


def _name_captured(recording: Any) -> None:
    """Tell the recording what the tensors that it holds are called: ``net.fc.weight``.

    It knows their cells alone; the Python objects, which have the names, are found among all that live.
    """
    cells = set(recording.captured_cells())
    for obj in gc.get_objects() if cells else ():
        if issubclass(type(obj), Tensor) and _core.cell_of(obj) in cells:  # isinstance would run code of lazy objects
            name = obj.__dict__.get("_name") or obj.name
            if name:
                recording.set_name(obj, name)


def _given(what: str, names: Sequence[str] | str | None, n: int) -> list[str] | None:
    if names is None:
        return None
    names = [names] if isinstance(names, str) else list(names)
    if len(names) != n:
        raise ValueError(f"dump: wrong number of {what}, should be {n} values; got {len(names)}: {names}.")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"dump: {what} has {twice!r} twice; Lite finds tensors by name. Got {names}.")
    if not all(names):
        raise ValueError(f"dump: {what} has an empty name; Lite finds tensors by name. Got {names}.")
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"dump: {what} are texts; got {names}.")
    return names


def _input_names(args: Sequence[Tensor], keys: Sequence[str], given: Sequence[str] | str | None) -> list[str]:
    """Of the tensors of a call: as given, else their own, else the keyword, else ``arg_<i>``. ``given`` may leave out
    those that came by keyword."""
    own = [t.name or key or f"arg_{i}" for i, (t, key) in enumerate(zip(args, keys))]
    if given is None:
        return _numbered(own, args)
    names = [given] if isinstance(given, str) else list(given)
    by_place = next((i for i, key in enumerate(keys) if key), len(keys))
    first = _given("arg_names", names, by_place if len(names) == by_place else len(args)) or []
    return _numbered([*first, *own[len(first) :]], args)


def _numbered(names: list[str], args: Sequence[Tensor]) -> list[str]:
    """Different tensors of one name are ``name[0]``, ``name[1]`` …"""
    bearers: dict[str, list[int]] = {}
    for name, t in zip(names, args):
        if id(t) not in bearers.setdefault(name, []):
            bearers[name].append(id(t))
    return [f"{name}[{bearers[name].index(id(t))}]" if len(bearers[name]) > 1 else name for name, t in zip(names, args)]


def _output_names(entry: Entry, given: Sequence[str] | str | None) -> list[str]:
    """Of each output; empty: that of the op."""
    n = len(entry.result_tensors)
    if not isinstance(entry.result_tree, dict):
        return _given("output_names", given, n) or [""] * n
    if given is not None:
        raise TypeError("output_names cannot be given when the function returns a dict; its keys are the names")
    names = [""] * n
    for k, leaf in entry.result_tree.items():
        if not isinstance(leaf, Leaf) or not isinstance(k, str):
            what = f"a {type(leaf).__name__}" if isinstance(k, str) else f"named by a {type(k).__name__}"
            raise TypeError(
                f"dump: the traced function returns a dict whose {k!r} is {what}; an output of a model file is "
                "one tensor with one name. Return Dict[str, Tensor], or a list of tensors and output_names."
            )
        names[leaf.index] = k
    return names


# ---- what a file cannot hold


def _refuse_training(entry: Entry) -> None:
    """A file holds no state and draws no numbers, so layers in training mode cannot be in it."""
    assigned = entry.recording.assigned()
    for note in entry.notes:
        module = note[TARGET]
        if not isinstance(module, Module):
            continue
        who = f"{module._name or 'a'} {type(module).__name__}"
        way = "maybe you forget to do model.eval()? Call net.eval() before the traced function is called."
        if isinstance(module, Dropout) and module.training and module.drop_prob > 0:
            raise RuntimeError(f"dump: can not dump {who} in training mode, which drops values at random; {way}")
        for name, tensor in module.named_tensors(recursive=False) if assigned else ():
            if any(_core.same_value(tensor, t) for t in assigned):
                raise RuntimeError(
                    f"dump: can not dump {who} in training mode: the recorded call updates its {name}, which a file "
                    f"cannot do; {way}"
                )


# ---- beside the graph


def _add_cases(
    model: _core.ModelDump, inputs: Mapping[str, Tensor], cases: Any, no_assert: bool, maxerr: float, silent: bool
) -> None:
    """What the outputs are expected to be is what the model itself gives, run by Lite."""
    run = None if no_assert else GraphInference(io.BytesIO(model.write()))
    for i, case in enumerate(cases):
        feed = {name: Tensor(array, dtype=inputs[name].dtype) for name, array in case.items()}
        want = {name: Tensor(array) for name, array in (run.run(inp_dict=case) if run else {}).items()}
        if not silent:
            for name, t in (feed | want).items():
                logger.info(f"test case {i}: {name} {t.dtype.name} {tuple(t.shape)}")
        model.add_case(f"case{i}", feed, want, maxerr)


_NO_RESULTS = (
    "the traced function without return values cannot be dumped, "
    "the traced function should return List[Tensor] or Dict[str, Tensor]"
)


def dump(
    self: trace,
    file: str | os.PathLike[str] | IO[bytes],
    *,
    arg_names: Sequence[str] | str | None = None,
    output_names: Sequence[str] | str | None = None,
    append: bool = False,
    keep_var_name: int = 1,
    keep_opr_name: bool = False,
    keep_param_name: bool = False,
    keep_opr_priority: bool = False,
    no_change_graph: bool = False,
    strip_info_file: str | os.PathLike[str] | IO[str] | None = None,
    append_json: bool = False,
    optimize_for_inference: bool = True,
    user_info: Any = None,
    enable_metadata: bool = True,
    input_data: Sequence[str] | None = None,
    repeat: int = 1,
    silent: bool = False,
    no_assert: bool = False,
    maxerr: float = 1e-4,
    resize_input: bool = False,
    input_transform: str | None = None,
    dump_format: str | None = None,
    model_version: int = 2,
    compat_older_version: str | None = None,
    **kwargs: Any,
) -> CompGraphDumpResult:
    """Writes the traced function as a model file that Lite runs.

    Needs ``capture_as_const=True`` and one earlier call. Parameters become constants of the file.

    Args:
        file: a path, or a binary file to write to.
        arg_names: names of the inputs; by default that of the tensor, its keyword, or ``arg_<i>``. Those of keyword
            arguments may be left out. An input that no output needs is not in the file.
        output_names: names of the outputs; by default the keys of a returned dict, or the names of the ops.
        append: adds the model to those that ``file`` already holds. Readers take the first.
        keep_var_name: which names of variables are kept: 0 none (not even those of outputs), 1 those of inputs, outputs
            and parameters, 2 all.
        keep_opr_name: keeps the modules that ops belong to, of which their names are made, also without metadata.
        keep_param_name: keeps the names of parameters in any case, and lists them in the result.
        keep_opr_priority: the order of ops; always kept.
        no_change_graph: writes the ops as they were recorded, those that no output needs included.
        strip_info_file: a path or a text file for the ops and dtypes that the model uses, as JSON.
        append_json: adds to what is in ``strip_info_file``.
        optimize_for_inference: folds constants; ``**kwargs`` ask for more: ``enable_io16xc32``, ``enable_ioc16``,
            ``enable_nchw88`` and the other layouts, ``enable_fuse_preprocess`` …, and ``rewrites=[…]`` by name for
            what changes bits (``docs/numerics.md``).
        user_info: plain data to store: numbers, texts, bytes, NumPy arrays, and lists, tuples and dicts of those.
        enable_metadata: stores ``user_info``, the options, and the lines of the program that each op comes from.
        input_data: test cases to store, see ``docs/format.md``; ``load_and_run --verify`` runs them.
        repeat: how often each entry of the batch is repeated in them.
        silent: says nothing about the cases.
        no_assert: stores their inputs alone, without what the outputs should be.
        maxerr: the largest error allowed, relative to the value where that is above 1.
        resize_input: resizes images to the size of the input.
        input_transform: a Python expression over ``data`` and ``np`` that each array goes through.
        dump_format: None for our own format; "FBS_V2" and "FBS" for those of the original.
        model_version: of "FBS_V2" files.
        compat_older_version: "8.14" for an old reader of "FBS" files.
    """
    if not self._capture_as_const:
        raise ValueError(
            "dump: you must specify capture_as_const=True at __init__ to use dump: "
            f"@trace(capture_as_const=True) on {self.__name__}."
        )
    if self._last is None:
        raise ValueError(
            f"{_NO_RESULTS}; {self.__name__} has not been called yet, or its calls failed. Call it once before dump."
        )
    entry = self._last
    check_files(file, strip_info_file)
    enable_metadata = bool(enable_metadata)
    version = check_options(keep_var_name, dump_format, model_version, compat_older_version, no_change_graph)
    rewrites = list(kwargs.pop("rewrites", ()))
    word = option_word(kwargs, list(inspect.signature(dump).parameters)) if optimize_for_inference else None
    _refuse_training(entry)
    if entry.recording.boundaries:
        raise RuntimeError(
            f"dump: {self.__name__} has a part in exclude_from_trace(), which runs in Python; a file would hold "
            "the values that it gave once. Compute them with ops, or pass them as arguments."
        )
    if not entry.result_tensors:
        raise ValueError(_NO_RESULTS)
    outs = _output_names(entry, output_names)
    ins = _input_names(self._last_args, self._last_keys, arg_names)
    stored = metadata_of(user_info, word, False, enable_metadata, keep_opr_name)
    _name_captured(entry.recording)
    model = _core.ModelDump(entry.recording, ins, outs, not no_change_graph, word, rewrites, stored)
    used = model.drop_unused_inputs()
    for i, t in enumerate(self._last_args):
        first = next(k for k, earlier in enumerate(self._last_args) if earlier is t)
        if first < i and first in used and i not in used:
            text = (
                f"dump: {ins[first]} and {ins[i]} were one tensor in the recorded call, so the file has one input for "
                "both. Call the function with different tensors before dump."
            )
            warn_once(text, text)
    if input_data is not None:
        if isinstance(maxerr, bool) or not isinstance(maxerr, (int, float, np.number)) or not maxerr >= 0:
            raise ValueError(f"dump: maxerr is the largest error that is allowed, at least 0; got {maxerr!r}.")
        inputs = dict(zip(model.describe()["inputs"], (self._last_args[i] for i in used)))
        cases = read_cases(input_data, inputs, repeat, resize_input, input_transform)
        _add_cases(model, inputs, cases, no_assert, maxerr, silent)
    return write(
        file, model, append=append, keep_var_name=keep_var_name, keep_opr_name=keep_opr_name,
        keep_param_name=keep_param_name, keep_opr_priority=keep_opr_priority, enable_metadata=enable_metadata,
        strip_info_file=strip_info_file, append_json=append_json, version=version, user_info=user_info, word=word,
    )[1]  # fmt: skip
