"""Importing a module from a file, looking for modules, changing the folder for a while."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


def load_module(name: str, path: str) -> ModuleType:
    """Import the file at ``path`` as a module called ``name``, without adding it to ``sys.modules``."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"hub: cannot import {path!r}; it is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_module_exists(module: str) -> bool:
    """Whether ``import module`` would find something.

    >>> from megengine.hub.tools import check_module_exists
    >>> check_module_exists("json"), check_module_exists("no_such_module")
    (True, False)
    """
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the parent of a dotted name
        return False


@contextmanager
def cd(target: str) -> Iterator[None]:
    """Work in another folder for the length of a block."""
    before = os.getcwd()
    os.chdir(target)
    try:
        yield
    finally:
        os.chdir(before)
