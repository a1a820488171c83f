"""``mge <tool> args``: the tools of ``megengine.tools`` by name. ``mge --init`` prints completion for bash."""

from __future__ import annotations

import difflib
import pkgutil
import runpy
import sys
from collections.abc import Sequence

__all__ = ["main", "tools"]


def tools() -> list[str]:
    """Names of the tools there are."""
    from megengine import tools as package

    return sorted(m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_"))


def completion() -> str:
    """What bash needs to complete names of tools, and files after them."""
    words = " ".join(tools())
    return (
        "_mge() {\n"
        '  if [ "$COMP_CWORD" -eq 1 ]; then\n'
        f'    COMPREPLY=($(compgen -W "{words} --help --init" -- "${{COMP_WORDS[1]}}"))\n'
        "  else\n"
        "    COMPREPLY=()\n"
        "  fi\n"
        "}\n"
        "complete -o default -F _mge mge\n"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The script ``mge``; gives the exit status."""
    args = list(sys.argv[1:] if argv is None else argv)
    usage = "usage: mge [-h|--help] [--init] tool [arguments of it]\n\ntools:\n" + "".join(f"  {t}\n" for t in tools())
    if not args:
        sys.stderr.write(usage)
        return 2
    if args[0] in ("-h", "--help", "--h"):
        print(usage + '\nmge <tool> --help says what each does; eval "$(mge --init)" completes names in bash.')
        return 0
    if args[0] == "--init":
        sys.stdout.write(completion())
        return 0
    if args[0] not in tools():
        near = difflib.get_close_matches(args[0], tools(), 1)
        hint = f" Did you mean {near[0]}?" if near else " mge --help lists them."
        sys.stderr.write(f"mge: there is no tool {args[0]!r}.{hint}\n")
        return 2
    sys.argv = [f"mge {args[0]}", *args[1:]]
    try:
        runpy.run_module(f"megengine.tools.{args[0]}", run_name="__main__", alter_sys=False)
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else 0 if e.code is None else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
