"""For tools/gpu/suite.py: a line of JSON for every test, to the file that MGE_TEST_REPORT names."""

from __future__ import annotations

import json
import os
from typing import Any


def pytest_runtest_logreport(report: Any) -> None:
    if report.when != "call" and report.outcome == "passed":
        return
    crash = getattr(report.longrepr, "reprcrash", None)
    text = "" if report.outcome == "passed" else f"{crash.message if crash else ''}\n{report.longrepr}"[-3000:]
    outcome = "passed" if hasattr(report, "wasxfail") else report.outcome
    with open(os.environ["MGE_TEST_REPORT"], "a") as out:
        out.write(json.dumps({"id": report.nodeid, "outcome": outcome, "text": text[:3000]}) + "\n")
