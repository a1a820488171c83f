"""For tools/gpu/suite.py: a line of JSON for every test, to the file that MGE_TEST_REPORT names.

Tests that are in the file already are left out, so that a process that lost its device, or its life, has a successor.
"""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

REPORT = pathlib.Path(os.environ["MGE_TEST_REPORT"])
_session: Any = None


def _tell(name: str, outcome: str, text: str = "") -> None:
    with REPORT.open("a") as out:
        out.write(json.dumps({"id": name, "outcome": outcome, "text": text[:3000]}) + "\n")


def pytest_sessionstart(session: Any) -> None:
    global _session
    _session = session


def pytest_collection_modifyitems(items: list[Any]) -> None:
    done = {json.loads(line)["id"] for line in REPORT.read_text().splitlines()} if REPORT.exists() else set()
    items[:] = [i for i in items if i.nodeid not in done]


def pytest_runtest_logstart(nodeid: str) -> None:
    _tell(nodeid, "begun")


def pytest_runtest_logreport(report: Any) -> None:
    if report.when != "call" and report.outcome == "passed":
        return
    crash = getattr(report.longrepr, "reprcrash", None)
    text = "" if report.outcome == "passed" else f"{crash.message if crash else ''}\n{report.longrepr}"[-3000:]
    _tell(report.nodeid, "passed" if hasattr(report, "wasxfail") else report.outcome, text)
    if "is lost to this process" in text or "is lost. Tensors on other" in text:
        _session.shouldstop = "the device is lost"
