"""Doctests see ``mge``, ``F``, ``M`` and ``np`` without importing them; each test starts with the plain ops."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _doctest_names(request: pytest.FixtureRequest) -> None:
    if isinstance(request.node, pytest.DoctestItem):
        import numpy as np

        import megengine as mge
        import megengine.functional as F
        import megengine.module as M

        names: dict[str, Any] = request.getfixturevalue("doctest_namespace")
        names.update(mge=mge, F=F, M=M, np=np)


@pytest.fixture(autouse=True)
def _plain_ops_after_each_test() -> Iterator[None]:
    """A tensor marked nhwc puts stand-ins before the ops for the rest of the process; other tests are about the ops."""
    yield
    formats = sys.modules.get("megengine.core._format")
    if formats is not None and formats.active:
        formats.deactivate()
