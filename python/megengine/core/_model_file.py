"""What every way of writing a model file shares: options, metadata, names to keep, where the bytes go.

``trace.dump`` and ``Network.dump`` make a ``_core.ModelDump`` and hand it to :func:`write`.
"""

from __future__ import annotations

import difflib
import json
import os
import pickle
from collections import namedtuple
from collections.abc import Mapping, Sequence
from typing import IO, Any

from . import _core, files
from ._plain import NotPlain, decode, encode
from ._warn import warn_once

__all__ = [
    "CompGraphDumpResult",
    "check_files",
    "check_options",
    "metadata_of",
    "option_word",
    "read_metadata",
    "write",
]

CompGraphDumpResult = namedtuple(
    "CompGraphDumpResult", ["nr_opr", "tot_bytes", "tensor_value_bytes", "content_hash", "inputs", "outputs", "params"]
)

# Of several layouts the last one wins, in this order, whatever the order of the keywords.
_LAYOUTS = tuple(f"enable_{n}" for n in "hwcd4 nhwcd4 nchw4 nchw88 nchw32 nchw44 nchw44_dot chwn4 nchw64 nhwc".split())
_FORMATS = {None: 0, "FBS_V2": 2, "FBS": 1}
_OLDER = 814  # FBS for readers of version 8.14


def option_word(options: Mapping[str, Any], known: Sequence[str] = ()) -> int:
    """Keywords like ``enable_nchw88=True`` as files know them; ``known`` are what else may have been meant."""
    ordered = [*(n for n in options if n not in _LAYOUTS), *(n for n in _LAYOUTS if n in options)]
    try:
        word = int(_core.inference_word([(n, bool(options[n])) for n in ordered]))
        if others := _core.layout_of_others(word):
            name = next(n for n in reversed(_LAYOUTS) if options.get(n))
            warn_once(
                name,
                f"dump: {name} is written into the file for whoever loads it there: it is a layout for {others}. A CPU "
                "has none of them and chooses memory orders by cost.",
            )
        return word
    except ValueError as e:
        near = [n for name in options for n in difflib.get_close_matches(name, known, 1)]
        raise ValueError(f"dump: {e}{f' Is {near[0]} meant?' if near else ''}") from None


def check_options(
    keep_var_name: int,
    dump_format: str | None,
    model_version: int,
    compat_older_version: str | None,
    no_change_graph: bool,
) -> int:
    """The version of the original's format to write, 0 for our own."""
    if keep_var_name not in (0, 1, 2):
        raise ValueError(f"dump: keep_var_name is 0, 1 or 2; got {keep_var_name!r}.")
    if dump_format not in _FORMATS:
        raise ValueError(f"dump: dump_format is None, 'FBS_V2' or 'FBS'; got {dump_format!r}.")
    if compat_older_version is not None:
        assert compat_older_version == "8.14", (
            f"dump: compat_older_version is None or '8.14'; got {compat_older_version!r}."
        )
        assert dump_format == "FBS", "dump: compat_older_version needs dump_format='FBS', which old readers know."
        assert not no_change_graph, "dump: compat_older_version rewrites ops, which no_change_graph=True forbids."
        return _OLDER
    if model_version not in ((1, 2) if dump_format == "FBS_V2" else (2,)):
        raise ValueError(
            f"dump: model_version={model_version!r} is none that can be written; 2 is the version of FBS_V2 files."
        )
    return _FORMATS[dump_format]


def check_files(file: Any, strip_info_file: Any) -> None:
    """Whether these can be written to."""
    if not isinstance(file, (str, os.PathLike)) and not hasattr(file, "write"):
        raise TypeError(f"dump: file is a path or a binary file to write to; got {file!r}.")
    if not isinstance(strip_info_file, (str, os.PathLike, type(None))) and not hasattr(strip_info_file, "write"):
        raise TypeError(f"dump: strip_info_file is a path or a text file to write to; got {strip_info_file!r}.")


def metadata_of(
    user_info: Any, word: int | None, graph_modified: bool, enable: bool, keep_opr_name: bool
) -> list[tuple[str, str]]:
    """What a file says of itself. ``word``: the options it was optimised with, None when it was not."""
    kept = [("keep_opr_name", "1")] if keep_opr_name else []
    items = {"graph_modified": str(int(graph_modified)), "optimized_for_inference": str(int(word is not None))}
    if word is not None:
        items["optimize_options"] = str(word)
    if user_info is not None:
        try:
            items["user_info"] = encode(user_info)
        except NotPlain as e:
            raise TypeError(
                f"dump: user_info: {e}, and a model file holds plain data alone: None, numbers, str, bytes, NumPy "
                "arrays, and list, tuple, dict of those."
            ) from None
    return [*items.items(), *kept] if enable else kept


def read_metadata(items: Mapping[str, str]) -> dict[str, Any] | None:
    """The metadata of a file as the original gives it; None for a file without."""
    if "graph_modified" not in items:
        return None
    found: dict[str, Any] = {"user_info": None, "graph_modified": items["graph_modified"] in ("1", "True")}
    if "user_info" in items:
        found["user_info"] = decode(items["user_info"])
    found["optimized_for_inference"] = items.get("optimized_for_inference") in ("1", "True")
    if found["optimized_for_inference"]:
        found |= dict.fromkeys(_core.inference_keywords(int(items.get("optimize_options", "0"))), True)
    return found


def _write_strip_info(
    file: str | os.PathLike[str] | IO[str], append_json: bool, about: Mapping[str, Any], content_hash: int
) -> None:
    """Which ops and dtypes a model needs, for builds of Lite that have no others."""
    info = {k: list(about[k]) for k in ("dtypes", "elemwise_modes", "opr_types")}
    if append_json:
        text = ""
        if not isinstance(file, (str, os.PathLike)):
            file.seek(0)
            text = file.read()
        elif os.path.exists(file):
            with open(file, encoding="utf-8") as f:
                text = f.read()
        old = json.loads(text or "{}")
        info = {k: sorted({*v, *old.get(k, ())}) for k, v in info.items()}
    text = json.dumps({**info, "hash": content_hash})
    if isinstance(file, (str, os.PathLike)):
        with files.replacing(file) as out:
            out.write(text.encode())
        return
    if append_json:
        file.seek(0)
        file.truncate()
    file.write(text)


def write(
    file: str | os.PathLike[str] | IO[bytes] | None,
    model: _core.ModelDump,
    *,
    append: bool = False,
    keep_var_name: int = 1,
    keep_opr_name: bool = False,
    keep_param_name: bool = False,
    keep_opr_priority: bool = False,
    enable_metadata: bool = True,
    strip_info_file: str | os.PathLike[str] | IO[str] | None = None,
    append_json: bool = False,
    version: int = 0,
    user_info: Any = None,
    pickled: bytes | None = None,
    word: int | None = None,
) -> tuple[bytes, CompGraphDumpResult]:
    """Writes the model, to ``file`` unless that is None, and says what is in it.

    ``version``: of the original's format, or 0 (:func:`check_options`). ``user_info`` and ``word`` are for that format,
    which holds a pickle of the first
    (``pickled``, where the caller has made it); ours has both in the metadata of the model.
    """
    if version:
        info = pickled if pickled is not None else pickle.dumps(user_info, protocol=4)
        keep = keep_var_name, keep_opr_name, keep_param_name, keep_opr_priority
        data, about = model.write_original(version, *keep, enable_metadata, info, word or 0)
    else:
        data = model.write(keep_var_name, keep_param_name, enable_metadata, enable_metadata or keep_opr_name)
        about = model.describe()
    content_hash = _core.content_hash(data)
    if strip_info_file is not None:
        _write_strip_info(strip_info_file, append_json, about, content_hash)
    if isinstance(file, (str, os.PathLike)):
        if append:
            files.append(file, data)
        else:
            with files.replacing(file) as out:
                out.write(data)
    elif file is not None:
        file.write(data)
    outputs = about["outputs"] if keep_var_name else [f"unnamed{i}" for i in range(len(about["outputs"]))]
    params = about["params"] if keep_param_name else []
    return data, CompGraphDumpResult(
        about["nr_opr"], len(data), about["weight_bytes"], content_hash, about["inputs"], outputs, params
    )
