"""Writes the TracedModules of this folder. Run it with MegEngine 1.13 (Python 3.10): python make.py

For each network of tests/python/traced_nets.py: NAME.tm (megengine.save of the traced network in evaluation mode),
NAME.npz (arguments and results by their place) and NAME.txt (graphs and nodes, before and after flatten).
"""

from __future__ import annotations

import pathlib
import sys

import numpy as np

import megengine as mge

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "python"))

from traced_nets import NETS, QUANTIZED  # noqa: E402

from megengine.traced_module import optimize, trace_module  # noqa: E402


def leaves(value, place=""):
    """(place, array) of every tensor in a value."""
    if isinstance(value, mge.Tensor):
        return {place: value.numpy()}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return {k: v for key, x in items for k, v in leaves(x, f"{place}.{key}" if place else str(key)).items()}


def graphs(traced):
    """The graph of every module below this one, and its nodes."""
    parts = [str(traced.graph)]
    for name, module in traced.named_modules():
        if name and type(module) is type(traced) and module.argdef_graph_map:
            parts.append(f"--- {name}\n{module.graph}")
    nodes = "\n".join(f"{n._id} {n.name} {n.qualname} {type(n).__name__}" for n in traced.graph.nodes())
    return "\n".join(parts) + "\n--- nodes\n" + nodes + "\n"


def main():
    for name, make in {**NETS, **QUANTIZED}.items():
        mge.random.seed(7)
        net, args, kwargs = make()
        net.eval()
        traced = trace_module(net, *args, **kwargs)
        mge.save(traced, str(HERE / f"{name}.tm"))
        arrays = {f"arg.{k}": v for k, v in leaves(args).items()}
        arrays.update({f"kwarg.{k}": v for k, v in leaves(kwargs).items()})
        arrays.update({f"out.{k}": v for k, v in leaves(net(*args, **kwargs)).items()})
        np.savez_compressed(HERE / f"{name}.npz", **arrays)
        text = graphs(traced) + "=== flatten\n" + graphs(traced.flatten())
        if name == "fusable":
            passes = ["FuseConvBn", "FuseAddMul", "BackwardFoldScale"]
            text += "=== optimize\n" + graphs(optimize(traced, passes))
        (HERE / f"{name}.txt").write_text(text)


if __name__ == "__main__":
    main()
