"""Test cases inside a model file: what ``dump(input_data=…)`` means.

A case is a text ``name0:source0;name1:source1``; with one input the name may be left out. A source is an image, an
``.npy`` file, or ``#rand(min, max, shape…)``, where ``...`` stands for the rest of the input's shape and a shape that
is left out for all of it; a lone ``#rand(min, max)`` feeds every input. ``@file`` stands for the cases that are the
lines of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["read_cases"]

Array = np.ndarray[Any, Any]
_NPY = b"\x93NUMPY"
_RAND = re.compile(r"#rand\((.*)\)$")


def _numbers(spec: str, shape: tuple[int, ...]) -> Array:
    found = _RAND.match(spec)
    parts = [p.strip() for p in found[1].split(",")] if found else []
    assert len(parts) >= 2, (
        f"dump: input_data has the bad spec {spec}; it reads #rand(min, max) or #rand(min, max, 8, ...)."
    )
    try:
        low, high = float(parts[0]), float(parts[1])
        sizes = tuple(int(p) for p in parts[2:] if p != "...")
    except ValueError:
        raise ValueError(f"dump: input_data has the bad spec {spec}; {', '.join(parts)} should be numbers.") from None
    if not parts[2:]:
        sizes = shape
    elif parts[-1] == "...":
        sizes += shape[len(sizes) :]
    if "..." in parts[2:-1]:
        raise ValueError(
            f"dump: input_data has the bad spec {spec}; ... stands for the rest of a shape, so it is last."
        )
    return np.random.uniform(low, high, sizes)


def _image(path: str, shape: tuple[int, ...], resize: bool) -> Array:
    """An image as the input wants it: [1, channels, height, width], or channels last where the shape says so."""
    if len(shape) != 4:
        raise ValueError(
            f"dump: input_data: {path} is an image, and the input has shape {shape}; it needs 4 dimensions."
        )
    last = shape[1] not in (1, 3) and shape[3] in (1, 3)
    channels = shape[3] if last else shape[1]
    height, width = shape[1:3] if last else shape[2:4]
    from ..data._image import needs_cv2, read_image  # not before an image is asked for

    image = read_image(path)  # [height, width, BGR]
    if channels == 1:
        image = needs_cv2("dump(input_data=…) with a grey input").cvtColor(image, 6)[:, :, None]  # COLOR_BGR2GRAY
    elif channels != 3:
        raise ValueError(f"dump: input_data: {path} is an image, and the input has {channels} channels, not 1 or 3.")
    if image.shape[:2] != (height, width):
        if not resize:
            raise ValueError(
                f"dump: input_data: {path} is {image.shape[0]} x {image.shape[1]}, and the input {height} x {width}. "
                "resize_input=True resizes it."
            )
        cv2 = needs_cv2("dump(resize_input=True)")
        image = cv2.resize(image, (width, height)).reshape(height, width, channels)
    return image[None] if last else np.ascontiguousarray(image.transpose(2, 0, 1)[None])


def _load(source: str, shape: tuple[int, ...], resize: bool) -> Array:
    if source.startswith("#"):
        return _numbers(source, shape)
    with open(source, "rb") as f:
        is_array = f.read(len(_NPY)) == _NPY
    if not is_array:
        return _image(source, shape, resize)
    return np.asarray(np.load(source, allow_pickle=False))


def _fitting(name: str, array: Array, like: Any, source: str) -> Array:
    """The array with the dtype of the input; its rank has to be that of the input."""
    assert array.ndim == len(like.shape), (
        f"dump: input/data shapes mismatch: {name} has shape {tuple(like.shape)}, {source} gives {array.shape}."
    )
    want = np.dtype(like.dtype)
    if array.dtype == want:
        return array
    cast = array.astype(want)
    if want.kind in "iu" and not source.startswith("#") and not np.array_equal(cast.astype(np.float64), array):
        raise ValueError(f"dump: input_data: {source} has values that {name}, which is {want}, does not hold.")
    return cast


def _lines(spec: str) -> list[str]:
    if not isinstance(spec, str):
        raise TypeError(f"dump: input_data is a list of cases, each a text; got {spec!r}.")
    if not spec.startswith("@"):
        return [spec]
    from pathlib import Path  # not before a file is named

    file = Path(spec[1:])
    return [line for text in file.read_text().splitlines() if (line := text.strip())]


def read_cases(
    input_data: Sequence[str], inputs: Mapping[str, Any], repeat: int, resize: bool, transform: str | None
) -> list[dict[str, Array]]:
    """The arrays of each case by the name of the input. ``inputs`` are the tensors of the recorded call by name."""
    if isinstance(input_data, str):
        raise TypeError(f"dump: input_data is a list of cases; got the text {input_data!r}. [{input_data!r}] has one.")
    if not isinstance(input_data, Iterable):
        raise TypeError(f"dump: input_data is a list of cases, each a text; got {input_data!r}.")
    if isinstance(repeat, bool) or not isinstance(repeat, (int, np.integer)) or repeat < 1:
        raise ValueError(f"dump: repeat says how often each entry of the batch comes, at least once; got {repeat!r}.")
    specs = [s for spec in input_data for s in _lines(spec)]
    assert specs, "dump: testcases can not be empty; input_data has none."
    cases = []
    for spec in specs:
        parts = [p for p in spec.split(";") if p]
        named = dict(_named(part) for part in parts)
        if list(named) == [""]:
            lone = named[""]
            if len(inputs) > 1 and lone.startswith("#rand"):
                named = dict.fromkeys(inputs, lone)
            elif len(inputs) == 1:
                named = {next(iter(inputs)): lone}
        unknown = [n for n in named if n and n not in inputs]
        assert len(named) == len(parts) or "#rand" in spec, f"dump: input_data names an input twice: {spec}."
        assert set(named) == set(inputs) or unknown, (
            f"dump: required inputs: {list(inputs)}; data paths: {parts}. Name a source for each, as in "
            f"{';'.join(f'{n}:{n}.npy' for n in inputs)}."
        )
        if unknown:
            raise KeyError(f"dump: input_data has {unknown[0]!r}, which is no input; there are {list(inputs)}.")
        case = {}
        for name, like in inputs.items():
            array = _load(named[name], tuple(int(s) for s in like.shape), resize)
            if repeat != 1:
                array = np.repeat(array, repeat, axis=0)
            if transform is not None:
                try:
                    array = np.asarray(eval(transform, {"data": array, "np": np}))  # the caller's own expression
                except Exception as e:
                    raise ValueError(
                        f"dump: input_transform {transform!r} failed: {type(e).__name__}: {e}. It is a Python "
                        "expression over `data`, the array, and `np`."
                    ) from e
            case[name] = _fitting(name, array, like, named[name])
        cases.append(case)
    return cases


def _named(part: str) -> tuple[str, str]:
    if part.startswith("#") or ":" not in part:
        return "", part
    name, _, source = part.partition(":")
    return name, source
