"""``python -m megengine doctor``: what was found, what is wrong, and the fix."""

from __future__ import annotations

import argparse
import sys

from .tools._command import run
from .utils.doctor import main as doctor


def main(argv: list[str] | None = None) -> int:
    """Run a command of the package; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m megengine", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor", help="say what was found on this machine, what is wrong, and the fix")
    parser.parse_args(argv)
    return run("doctor", lambda argv: doctor())


if __name__ == "__main__":
    sys.exit(main())
