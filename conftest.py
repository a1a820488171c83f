"""Doctests see ``mge``, ``F``, ``M`` and ``np`` without importing them; each test starts with the plain ops."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

# Kernels follow from the constants of the machine. Tests are about certain ones, so everywhere they have those that
# src/base/machine.h starts from; set before the extension reads them.
os.environ.setdefault("MGE_MACHINE", "l1=32768,l2=1048576,l3=33554432,gflops=100,gbytes=6.25")


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


def pytest_configure() -> None:
    """``MGE_TEST_DEVICE=gpu0`` runs the tests by that device, also what they make when imported."""
    if name := os.environ.get("MGE_TEST_DEVICE"):
        import megengine as mge
        from megengine.core import _core

        if name.startswith("fake"):
            _core.test_device()
        mge.set_default_device(name)


@pytest.fixture(autouse=True)
def _default_device() -> Iterator[None]:
    """A test may set another one."""
    yield
    if name := os.environ.get("MGE_TEST_DEVICE"):
        sys.modules["megengine"].set_default_device(name)
