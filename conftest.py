"""Doctests see ``mge``, ``F``, ``M`` and ``np`` without importing them."""

from __future__ import annotations

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
