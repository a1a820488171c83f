"""Statistics of a dumped model: parameters, operations and activations of each op, as tables and for TensorBoard."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ..core.tensor import megbrain_graph as G
from ..logger import get_logger
from ..utils import module_stats as stats
from ..utils.comp_graph_tools import GraphInference
from ..utils.network import Network
from ..utils.network_node import ConstOpBase, Host2DeviceCopy
from ._command import Parser, UsageError, existing, run
from ._data import load_arrays

logger = get_logger(__name__)


def visualize(
    model_path: str,
    log_path: str,
    input: np.ndarray[Any, Any] | None = None,
    inp_dict: dict[str, Any] | None = None,
    cal_params: bool = True,
    cal_flops: bool = True,
    cal_activations: bool = True,
    logging_to_stdout: bool = True,
    bar_length_max: int = 20,
) -> Any:
    """Statistics of a model, like ``module_stats`` of a module.

    Args:
        model_path: the model file.
        log_path: folder to write the graph to, for TensorBoard; none when empty.
        input: value of the only input: activations are computed, and described by mean, deviation and range.
        inp_dict: values of several inputs, by name.
        cal_params: look at the parameters.
        cal_flops: count operations.
        cal_activations: look at what ops compute.
        logging_to_stdout: print the tables.
        bar_length_max: length of the longest bar in them.

    Returns:
        (``total_stats``, ``module_stats``): named tuples of the sums and of the lists of rows.
    """
    network = Network.load(model_path)
    oprs = network.all_oprs
    values = _values(network, input, inp_dict) if input is not None or inp_dict else None
    params: list[Any] = []
    flops: list[Any] = []
    activations: list[Any] = []
    writer = _writer(log_path) if log_path else None
    for op in oprs:
        is_param = isinstance(op, ConstOpBase)
        if isinstance(op, ConstOpBase) and cal_params:
            params.append({"name": op.name, **stats.get_param_stats(op.numpy())})
        counted: Any = None
        if cal_flops and not is_param:
            counted = stats.get_op_stats(op, op.inputs, op.outputs)
            if counted is not None:
                kind = type(op).__name__.removesuffix("Forward")
                flops.append({"name": op.name, "class_name": kind, **counted})
        if cal_activations and op.outputs:
            activations.append(_activation(op, values))
        if writer is not None:
            _add_node(writer, op, counted)
    if writer is not None:
        writer.add_graph_by_node_raw_list()
    return _report(oprs, params, flops, activations, logging_to_stdout, bar_length_max, writer)


def _values(network: Network, input: Any, inp_dict: dict[str, Any] | None) -> dict[str, Any]:
    """Every result that ops compute of these inputs, by the name of the variable."""
    names = [op.name for op in network.data_providers_filter]
    feeds = dict(inp_dict or {})
    if input is not None:
        free = [n for n in names if n not in feeds]
        if len(free) != 1:
            raise ValueError(
                f"visualize: input is the value of one input, the model has {len(free)}: {', '.join(free)}."
            )
        feeds[free[0]] = input
    missing = [n for n in names if n not in feeds]
    if missing:
        raise ValueError(f"visualize: inputs {', '.join(missing)} have no value; inp_dict gives them by name.")
    wanted = {v.name: v.var for op in network.all_oprs for v in op.outputs if not isinstance(op, ConstOpBase)}
    data, _ = G.dump_graph({str(i): v for i, v in enumerate(wanted.values())})
    inference = GraphInference(io.BytesIO(data))
    results = inference.run(inp_dict={k: np.asarray(feeds[k]) for k in inference._inputs})
    return {name: results[str(i)] for i, name in enumerate(wanted)}


def _activation(op: Any, values: dict[str, Any] | None) -> dict[str, Any]:
    out = op.outputs[0]
    kind = "ImmutableTensor" if isinstance(op, ConstOpBase) else type(op).__name__.removesuffix("Forward")
    known = None if values is None else values.get(out.name)
    if known is not None:
        return {"name": op.name, "class_name": kind, **stats.get_activation_stats(known, has_input=True)}
    shape = tuple(int(n) for n in out.partial_shape) if not isinstance(out.shape, tuple) else out.shape
    dim, nbits = prod(shape), stats._nbits(out.dtype)
    row = {"dtype": out.dtype, "shape": shape, "act_dim": dim, "nbits": nbits, "size": dim * nbits // 8}
    return {"name": op.name, "class_name": kind, **row}


def _writer(log_path: str) -> Any:
    from ..utils.tensorboard import SummaryWriterExtend

    return SummaryWriterExtend(log_path)


def _add_node(writer: Any, op: Any, counted: Any) -> None:
    """One op with its inputs, sizes and cost; names with dots are modules."""

    def label(o: Any) -> str:
        return f"{o.name.replace('.', '/')}_{o.id}"

    attributes = dict(op.params or {})
    if counted is not None:
        attributes["flops"] = stats.sizeof_fmt(counted["flops_num"], suffix="OPs")
    shapes = [v.shape for v in op.outputs if isinstance(v.shape, tuple)]
    dtype = op.outputs[0].dtype if op.outputs else None
    kind = "Placeholder" if isinstance(op, Host2DeviceCopy) else type(op).__name__
    inputs = [label(v.owner) for v in op.inputs if v.owner is not None]
    writer.add_node_raw(label(op), kind, inputs, shapes, dtype, attributes)


def _report(
    oprs: Sequence[Any],
    params: list[Any],
    flops: list[Any],
    activations: list[Any],
    verbose: bool,
    bar_length_max: int,
    writer: Any,
) -> Any:
    """Sums, tables and what TensorBoard shows of them."""
    sums = dict.fromkeys(stats.total_stats._fields, 0)
    items: dict[str, Any] = {"#ops": len(oprs), "#params": len(params)}
    has_input = any("mean" in row for row in activations)
    if params:
        sums["param_dims"], sums["param_size"], params = stats.sum_param_stats(params, bar_length_max)
        items["total_param_dims"] = stats.sizeof_fmt(sums["param_dims"], suffix="")
        items["total_param_size"] = stats.sizeof_fmt(sums["param_size"])
    if flops:
        sums["flops"], flops = stats.sum_op_stats(flops, bar_length_max)
        items["total_flops"] = stats.sizeof_fmt(sums["flops"], suffix="OPs")
    if activations:
        sums["act_dims"], sums["act_size"], activations = stats.sum_activations_stats(activations, bar_length_max)
        items["total_act_dims"] = stats.sizeof_fmt(sums["act_dims"], suffix="")
        items["total_act_size"] = stats.sizeof_fmt(sums["act_size"])
    if params and flops and sums["param_size"]:
        items["flops/param_size"] = f"{sums['flops'] / sums['param_size']:3.3f}"
    if verbose:
        if params:
            stats.print_param_stats(params)
        if flops:
            stats.print_op_stats(flops)
        if activations:
            stats.print_activations_stats(activations, has_input)
        stats.print_summary(**items)
    if writer is not None:
        for name, rows in (("params", params), ("flops", flops), ("activations", activations)):
            if rows:
                writer.add_text(name, [", ".join(f"{k}: {v}" for k, v in row.items()) for row in rows])
        writer.add_text("summary", [f"{k}: {v}" for k, v in items.items()])
        writer.close()
    details = stats._Details(params, flops, activations)
    return stats.total_stats(**sums), details


def main(argv: Sequence[str] | None = None) -> int:
    """The command; gives the exit status."""
    parser = Parser("network_visualize", __doc__)
    parser.add_argument("model_path", help="the model file")
    parser.add_argument("--log_path", help="folder for TensorBoard")
    parser.add_argument("--load_input_data", help="array or dict of arrays: pickle, .npy, .npz or .json")
    parser.add_argument("--bar_length_max", type=int, default=20, help="length of the longest bar")
    parser.add_argument("--cal_params", action="store_true", help="look at the parameters")
    parser.add_argument("--cal_flops", action="store_true", help="count operations")
    parser.add_argument("--cal_activations", action="store_true", help="look at what ops compute")
    parser.add_argument("--logging_to_stdout", action="store_true", help="print the tables")
    parser.add_argument("--all", action="store_true", help="all of it; TensorBoard's files go to ./log")
    args = parser.parse_args(argv)
    existing(args.model_path)
    if args.all:
        args.cal_params = args.cal_flops = args.cal_activations = args.logging_to_stdout = True
        args.log_path = args.log_path or "./log"
    if args.bar_length_max < 1:
        raise UsageError(f"--bar_length_max: {args.bar_length_max} is less than 1")
    inputs = None
    if args.load_input_data:
        names = [op.name for op in Network.load(args.model_path).data_providers_filter]
        inputs = load_arrays(args.load_input_data, names)
    visualize(
        args.model_path, args.log_path or "", inp_dict=inputs, cal_params=args.cal_params, cal_flops=args.cal_flops,
        cal_activations=args.cal_activations, logging_to_stdout=args.logging_to_stdout or not args.log_path,
        bar_length_max=args.bar_length_max,
    )  # fmt: skip
    if args.log_path:
        print(f"tensorboard --logdir {os.path.abspath(args.log_path)}")
    return 0


if __name__ == "__main__":
    sys.exit(run("network_visualize", main))
