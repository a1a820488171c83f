"""Write one HTML page that shows a model: graph, costs, lines, memory plan and fused ops. Open it in any browser."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from .._command import Parser, UsageError, existing, run
from . import write


def main(argv: Sequence[str] | None = None) -> int:
    """The command; gives the exit status."""
    parser = Parser("graph_view", __doc__)
    parser.add_argument("model", help="a model file (.mge), a pickled TracedModule (.pkl), or a profile (.json)")
    parser.add_argument("-o", "--output", help="where to write the page", metavar="FILE.html")
    parser.add_argument("--run", type=int, nargs="?", const=10, default=0, metavar="N",
                        help="run it N times on random inputs and show the time of every op")  # fmt: skip
    parser.add_argument("--input-desc", metavar="NAME:SIZES;…", help='sizes of inputs, "data:1,3,224,224;mask:1,224"')
    parser.add_argument("--opt-level", type=int, default=2, choices=range(4), help="passes before the plan")
    args = parser.parse_args(argv)
    output = args.output or os.path.splitext(args.model)[0] + ".html"
    if args.run < 0:
        raise UsageError(f"--run takes a count; got {args.run}")
    write(existing(args.model), output, run=args.run, shapes=sizes_of(args.input_desc), opt_level=args.opt_level)
    print(f"{output}: {os.path.getsize(output):,} bytes; open it in a browser")
    return 0


def sizes_of(text: str | None) -> dict[str, list[int]]:
    """``"data:1,3,224,224;mask:1,224"`` as sizes by name."""
    out: dict[str, list[int]] = {}
    for part in (text or "").split(";"):
        if not part.strip():
            continue
        name, colon, sizes = part.rpartition(":")
        try:
            out[name.strip()] = [int(n) for n in sizes.split(",") if n.strip()]
        except ValueError:
            colon = ""
        if not colon or not name.strip():
            raise UsageError(f"--input-desc: {part.strip()!r} is no NAME:SIZES, as in data:1,3,224,224")
    return out


if __name__ == "__main__":
    sys.exit(run("graph_view", main))
