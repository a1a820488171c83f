"""Run a program under the profiler: what it did and when, as a timeline for chrome://tracing or ui.perfetto.dev."""

from __future__ import annotations

import argparse
import glob
import importlib.util
import json
import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from ..core.files import replacing
from ..utils.profiler import Profiler, merge_trace_events, profile_timeline
from ._command import Parser, UsageError, existing, run


def main(argv: Sequence[str] | None = None) -> int:
    """The command; gives the exit status."""
    parser = Parser("profiler", __doc__, usage="%(prog)s [options] [-m module | script.py] [arguments of it]")
    parser.add_argument("-m", "--module", action="store_true", help="what to run is a module, as python -m runs it")
    parser.add_argument("-o", "--output", default="profile", help="folder to write to")
    parser.add_argument(
        "-f", "--format", action="append", choices=sorted(Profiler.valid_formats), help="may be repeated"
    )
    parser.add_argument("--merge_trace_events", action="store_true", help="put the timelines of the folder into one")
    parser.add_argument(
        "--from_profile", metavar="JSON", help="make a timeline of a profile of a graph (Lite, get_profile)"
    )
    parser.add_argument("--clean", action="store_true", help="remove what earlier runs wrote to the folder")
    for option, default in Profiler.valid_options.items():
        parser.add_argument(
            f"--{option}", type=int, default=default, help=argparse.SUPPRESS if default is None else " "
        )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what to run, and its arguments")
    args = parser.parse_args(argv)
    if not (args.command or args.merge_trace_events or args.clean or args.from_profile):
        parser.error("what to run is missing")
    if args.command and args.command[0].startswith("-") and args.command[0] != "-":
        parser.error(f"unknown argument {args.command[0]}")
    if args.clean:
        for format in Profiler.valid_formats:
            for path in glob.glob(os.path.join(glob.escape(args.output), f"*.{format}")):
                os.remove(path)
    if args.from_profile:
        _convert(args.from_profile, args.output)
    if args.command:
        options: dict[str, Any] = {name: getattr(args, name) for name in Profiler.valid_options}
        formats = args.format or [Profiler.CHROME_TIMELINE]
        if not args.module:
            existing(args.command[0])
        elif not _is_module(args.command[0]):
            raise UsageError(f"there is no module {args.command[0]}")
        with Profiler(args.output, formats=formats, **options) as p:
            try:
                _run(args.command, args.module)
            finally:
                p.dump()
    if args.merge_trace_events:
        if not os.path.isdir(args.output):
            raise UsageError(f"there is no folder {args.output}")
        merge_trace_events(args.output)
    return 0


def _convert(path: str, folder: str) -> None:
    with open(existing(path), encoding="utf-8") as f:
        try:
            timeline = profile_timeline(json.load(f))
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise UsageError(f"{path} is no profile of a graph: {type(e).__name__} {e}") from None
    os.makedirs(folder, exist_ok=True)
    stem = os.path.splitext(os.path.basename(path))[0]
    with replacing(os.path.join(folder, f"{stem}.{Profiler.CHROME_TIMELINE}")) as out:
        out.write(json.dumps(timeline).encode())
        print(f"{folder}/{stem}.{Profiler.CHROME_TIMELINE}: for chrome://tracing or ui.perfetto.dev")


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _run(command: list[str], module: bool) -> None:
    """As ``python script args`` and ``python -m module args`` do; an exit of the program is its end, no more."""
    sys.argv = list(command)
    try:
        if module:
            sys.path.insert(0, os.getcwd())
            runpy.run_module(command[0], run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, os.path.dirname(os.path.abspath(command[0])))
            runpy.run_path(command[0], run_name="__main__")
    except SystemExit as e:
        if e.code:
            raise
    except Exception as e:  # the program's own: told as Python tells it, from its first line on
        at = e.__traceback__
        while at is not None and at.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
            at = at.tb_next
        traceback.print_exception(type(e), e, at or e.__traceback__)
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(run("profiler", main))
