"""What the command lines share: mistakes are one line and an exit status, never a traceback."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

__all__ = ["Parser", "UsageError", "existing", "run"]


class UsageError(Exception):
    """A mistake in what the command was given; its text is what the user sees."""


class Parser(argparse.ArgumentParser):
    """An argument parser that names the flag that was meant."""

    def __init__(self, tool: str, doc: str | None, **kwargs: Any) -> None:
        super().__init__(
            prog=f"python -m megengine.tools.{tool}",
            description=(doc or "").strip().split("\n\n")[0],
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
            allow_abbrev=False,
            **kwargs,
        )
        self.tool = tool

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The arguments; unknown flags end the program with the nearest known one."""
        known, rest = self.parse_known_args(args, namespace)
        if rest:
            flags = [f for action in self._actions for f in action.option_strings]
            given = rest[0].split("=")[0]
            near = difflib.get_close_matches(given, flags, 1, 0.5) if given.startswith("-") else []
            self.error(f"unknown argument {rest[0]}" + (f". Did you mean {near[0]}?" if near else "."))
        return known

    def error(self, message: str) -> NoReturn:
        """One line, exit status 2."""
        sys.stderr.write(f"{self.tool}: {message.rstrip('.')}. --help lists what there is.\n")
        sys.exit(2)


def existing(path: str | os.PathLike[str], what: str = "file") -> str:
    """The path, if there is such a file."""
    path = os.fspath(path)
    if not os.path.exists(path):
        raise UsageError(f"there is no {what} {path}")
    if what == "file" and os.path.isdir(path):
        raise UsageError(f"{path} is a folder; a file is needed")
    if what == "folder" and not os.path.isdir(path):
        raise UsageError(f"{path} is a file; a folder is needed")
    return path


def run(tool: str, main: Callable[[Sequence[str] | None], int | None], argv: Sequence[str] | None = None) -> int:
    """Call ``main``: mistakes and refusals become one line on stderr and status 1."""
    try:
        return main(argv) or 0
    except BrokenPipeError:  # somebody reads only the beginning
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except KeyboardInterrupt:
        return 130
    except (
        UsageError,
        OSError,
        ValueError,
        TypeError,
        NotImplementedError,
        RuntimeError,
        AssertionError,
        ImportError,
    ) as e:
        text = f"{e.filename}: {e.strerror}" if isinstance(e, OSError) and e.filename and e.strerror else str(e)
        text = text.removeprefix(f"{tool}: ")  # a function of the same name says it, too
        sys.stderr.write(f"{tool}: {text or type(e).__name__}\n")
        return 1
