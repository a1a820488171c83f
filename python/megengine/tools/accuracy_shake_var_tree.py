"""Where two runs begin to differ: the variables in the output of compare_binary_iodump whose inputs all agree."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from ._command import Parser, UsageError, existing, run

_VAR = re.compile(r"var=\{id:(\d+),")


class varNode:
    """A variable that differs: its number, those it is computed from, and what was printed of it.

    Args:
        id: its number.
        dependence_list: numbers of the variables that its op reads.
        src_info: what was printed of it.
    """

    def __init__(self, id: int, dependence_list: Sequence[int], src_info: str) -> None:
        self.id = id
        self.dependence_list = list(dependence_list)
        self.src_info = src_info

    def __repr__(self) -> str:
        return f"id:{self.id}\ndetail info:\n{self.src_info}"


def get_dependence(string: str, src_info: str) -> varNode:
    """The variable of one line ``var={id:…} owner_opr_inputs=[{id:…}, ]``."""
    own = _VAR.search(string)
    if own is None:
        raise ValueError(f"accuracy_shake_var_tree: {string[:60]!r} names no variable")
    inputs = string.split("owner_opr_inputs=", 1)[-1] if "owner_opr_inputs=" in string else ""
    return varNode(int(own[1]), [int(n) for n in re.findall(r"\{id:(\d+),", inputs)], src_info)


def parse(filename: str) -> list[varNode]:
    """The variables of such a file that differ although all they are computed from agree; printed, too."""
    with open(filename, encoding="utf-8", errors="replace") as f:
        text = f.read()
    nodes: dict[int, varNode] = {}
    for block in re.split(r"^(?=\S+: $)", text, flags=re.M):
        lines: list[str] = []
        for line in block.splitlines()[1:]:
            if line.startswith("  ") and lines:
                lines[-1] += line[2:]
            else:
                lines.append(line)
        first = next((line for line in lines if line.startswith("var=")), None)
        if first is not None:
            node = get_dependence(first, "\n".join(lines))
            nodes[node.id] = node
    if not nodes and text.strip():
        raise ValueError(f"{filename} is no output of compare_binary_iodump: it names no variable")
    return [n for n in nodes.values() if not any(d in nodes for d in n.dependence_list)]


def main(argv: Sequence[str] | None = None) -> int:
    """The command; gives the exit status."""
    parser = Parser("accuracy_shake_var_tree", __doc__)
    parser.add_argument("filename", help="what compare_binary_iodump printed, as a file")
    args = parser.parse_args(argv)
    try:
        roots = parse(existing(args.filename))
    except ValueError as e:
        raise UsageError(str(e)) from None
    print("varnode root:" if roots else "nothing differs")
    for node in roots:
        print(node)
    return 0


if __name__ == "__main__":
    sys.exit(run("accuracy_shake_var_tree", main))
