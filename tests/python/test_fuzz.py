"""A small budget of every attack in tools/fuzz; ``make fuzz`` has the large one."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parent.parent.parent / "tools" / "fuzz"


def _runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz_run", FOLDER / "run.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


run = _runner()


@pytest.mark.parametrize("name", run.attacks())
def test_attack(name: str) -> None:
    counted, why = run.run_one(name, 1000, 1)
    assert not why, why
    assert sum(counted.values()) > 0


@pytest.mark.parametrize("name", [n for n in run.attacks() if run.takes_seed(n)])
def test_attack_takes_the_seeds_that_are_drawn(name: str) -> None:
    _, why = run.run_one(name, 8, 999_999)
    assert not why, why


@pytest.mark.parametrize(
    "body, text",
    [
        ("import os; os.abort()", "SIGABRT"),
        ("raise ValueError('seen')", "seen"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
    ],
)
def test_a_crash_is_a_finding_with_the_line_that_repeats_it(
    body: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.py").write_text((FOLDER / "run.py").read_text())
    (tmp_path / "bad.py").write_text(f"def main(budget, seed=0):\n    {body}\n")
    (tmp_path / "good.py").write_text("def main(budget):\n    return budget\n")
    monkeypatch.setattr(run, "FOLDER", tmp_path)
    assert run.attacks() == ["bad", "good"]
    assert run.run(["bad", "good"], 8, 7) == run.ROUNDS
    says = capsys.readouterr().out
    assert text in says and "--child bad --budget 2 --seed 7" in says and "8 cases" in says
    assert sys.executable
