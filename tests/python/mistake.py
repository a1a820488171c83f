"""What a row of the table of mistakes is, how it is made, and when its error has full marks.

A row is a small program that a user might write, the kind of error or warning it must meet, and words that the text
must hold: the op or class as the user wrote it, the values, the way out. The line of the user's program is always
asked for: in the traceback, as the place of the warning, or in the text. It is the last line of the program, or the
one that ends in ``# here``.
"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

import megengine as mge
from megengine.core import _warn
from megengine.jit import trace

TABLE: list[Mistake] = []
MODES: dict[str, Callable[[Any], Any]] = {
    "eager": lambda f: f,
    "trace": trace(symbolic=False),
    "symbolic": trace(symbolic=True, without_host=True),
}
ALL = tuple(MODES)
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Mistake:
    name: str
    program: Callable[..., Any]
    kind: type[BaseException]
    says: tuple[str, ...]
    modes: tuple[str, ...] = ("eager",)
    good: tuple[Any, ...] | None = None  # arguments that a traced program is called with before the bad ones
    bad: tuple[Any, ...] = ()

    @property
    def subject(self) -> str:
        return self.program.__module__.removeprefix("mistakes_")

    def place(self) -> tuple[str, int]:
        """The file and line that must be told."""
        lines, first = inspect.getsourcelines(self.program)
        marked = [first + i for i, text in enumerate(lines) if text.rstrip().endswith("# here")]
        return self.program.__code__.co_filename, marked[0] if marked else first + len(lines) - 1

    def falls_short(self, mode: str) -> str | None:
        """What the error of this program lacks; None when nothing."""
        raised, told = self._run(mode)
        if issubclass(self.kind, Warning):
            return self._judge_warning(raised, told)
        if raised is None:
            return "no error"
        text = "\n".join([str(raised), *getattr(raised, "__notes__", ())])
        if not isinstance(raised, self.kind):
            return f"a {type(raised).__name__}, not a {self.kind.__name__}: {text}"
        return self._judge_text(text) or self._judge_line(raised, text)

    def _run(self, mode: str) -> tuple[BaseException | None, list[warnings.WarningMessage]]:
        _warn.forget()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                program = MODES[mode](self.program)
                for _ in range(2 if mode != "eager" and self.good is not None else 0):
                    program(*_made(self.good or ()))
                program(*_made(self.bad))
            except Exception as e:
                return e, told
        return None, told

    def _judge_text(self, text: str) -> str | None:
        missing = [word for word in self.says if word not in text]
        return f"does not say {missing}: {text}" if missing else None

    def _judge_line(self, raised: BaseException, text: str) -> str | None:
        file, line = self.place()
        places = _frames(raised.__traceback__)
        if (file, line) in places or f"{Path(file).name}:{line}" in text:
            return None
        return f"does not tell {Path(file).name}:{line}: {text}"

    def _judge_warning(self, raised: BaseException | None, told: list[warnings.WarningMessage]) -> str | None:
        if raised is not None:
            return f"a {type(raised).__name__} instead of a warning: {raised}"
        ours = [w for w in told if issubclass(w.category, self.kind)]
        if len(ours) != 1:
            return f"{len(ours)} warnings: {[str(w.message) for w in ours]}"
        here = (ours[0].filename, ours[0].lineno)
        wrong = "" if here == self.place() else f"points at {here[0]}:{here[1]}, not line {self.place()[1]}: "
        return self._judge_text(str(ours[0].message)) or (wrong + str(ours[0].message) if wrong else None)


def _made(arguments: Sequence[Any]) -> list[Any]:
    """A shape stands for ones, a callable for what it returns."""
    return [mge.Tensor(np.ones(a, "float32")) if isinstance(a, tuple) else a() if callable(a) else a for a in arguments]


def _frames(trace: TracebackType | None) -> set[tuple[str, int]]:
    places = set()
    while trace is not None:
        places.add((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    return places


def mistake(
    kind: type[BaseException],
    *says: str,
    modes: tuple[str, ...] = ("eager",),
    good: tuple[Any, ...] | None = None,
    bad: tuple[Any, ...] = (),
) -> Callable[[Any], Any]:
    """Puts a program into the table, under its own name."""

    def add(program: Any) -> Any:
        TABLE.append(Mistake(program.__name__.replace("_", " "), program, kind, says, modes, good, bad))
        return program

    return add


class CommandFailed(Exception):
    """A command complained; the text is what it wrote to stderr."""


def command(*words: str, fails: bool = True, **environment: str) -> None:
    """Runs a command line that must fail, or with ``fails=False`` only complain, without a traceback.

    ``python`` is this one, tools come from the build.
    """
    programs = {"python": sys.executable}
    for tool in ("load_and_run", "mge-lite"):
        programs[tool] = str(ROOT / "build" / "dev" / "bin" / tool)
    done = subprocess.run(
        [programs.get(words[0], words[0]), *words[1:]],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    if (done.returncode == 0) == fails:
        return
    if "Traceback" in done.stderr or done.returncode < 0:
        raise AssertionError(f"crashed with {done.returncode}: {done.stderr}")
    raise CommandFailed(done.stderr)
