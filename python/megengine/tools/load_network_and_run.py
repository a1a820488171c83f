"""Load a model, run it on random or given data, and say how long it takes."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core import _core
from ..core.files import replacing
from ..core.ops import custom
from ..logger import enable_debug_log, get_logger, set_log_file
from ..utils.network import Network
from ._command import Parser, UsageError, existing, run
from ._data import load_arrays, random_array
from .graph_view.__main__ import sizes_of

logger = get_logger(__name__)

_OPTIONS = (
    *("io16xc32", "ioc16", "hwcd4", "nchw4", "nchw88", "nchw44", "nchw44-dot", "chwn4", "nchw32"),
    *("fuse-conv-bias-nonlinearity", "fuse-conv-bias-with-z"),
)


def _parser() -> Parser:
    p = Parser("load_network_and_run", __doc__)
    p.add_argument("net", help="the model file")
    p.add_argument("--device", "-d", help="cpux, cpu0, or multithread4:0 for four threads")
    p.add_argument("--calc-output-rms", action="store_true", help="print the root mean square of each output")
    p.add_argument("--output-name", nargs="*", action="extend", help="compute these variables instead of the outputs")
    p.add_argument("--load-input-data", help="array or dict of arrays: pickle, .npy, .npz or .json")
    p.add_argument("--profile", help="write the time of every op to this file (JSON)")
    p.add_argument("--fast-run", action="store_true", help="choose kernels by measuring, at the first run (--warm-up)")
    p.add_argument(
        "--reproducible", action="store_true", help="only kernels that give the same bits with any number of threads"
    )
    p.add_argument("--input-desc", help='sizes of inputs: "data:1,3,224,224;label:1"')
    p.add_argument("--batchsize", type=int, help="size of the first dimension of every input")
    p.add_argument("--warm-up", type=int, default=0, help="runs before the clock starts")
    p.add_argument("--verbose", "-v", action="store_true", help="log everything, and print the compiled program")
    p.add_argument("--iter", type=int, default=1, help="runs")
    p.add_argument("--log", help="also write the log to this file")
    p.add_argument("--seed", type=int, default=0, help="of the random inputs")
    p.add_argument("--rng", help='how inputs are drawn: "label:randint(low=0,high=1000,size={});…"')
    p.add_argument("--focused-nvprof", action="store_true", help="for nvprof, which watches GPUs")
    p.add_argument("--optimize-for-inference", action="store_true", help="transform the model as dump does")
    for option in _OPTIONS:
        p.add_argument(f"--enable-{option}", action="store_true", help="an option of --optimize-for-inference")
    p.add_argument("--dump-cpp-model", help="write the model with its inputs in it; implies --embed-input")
    p.add_argument("--embed-input", action="store_true", help="put the inputs into the model as constants")
    p.add_argument("--get-static-mem-info", metavar="DIR", help="write graph.json and StaticMemoryInfo.json there")
    p.add_argument("--custom-op-lib", help="a library of custom ops that the model uses")
    p.add_argument("--weight-preprocess", action="store_true", help="transform weights once, at the first run")
    return p


def make_data_given_desc(args: Any, inputs: dict[str, tuple[str, tuple[int, ...]]], shape0_multiply: int = 1) -> Any:
    """Values for inputs (name -> (dtype, shape)): those of a file, else random ones, by the flags."""
    sizes = sizes_of(args.input_desc)
    _known("--input-desc", sizes, inputs)
    how: dict[str, str] = {}
    for part in (args.rng or "").split(";"):
        name, colon, call = part.partition(":")
        if part.strip():
            if not colon:
                raise UsageError(f"--rng: {part!r} is no NAME:CALL")
            how[name.strip()] = call.strip()
    _known("--rng", how, inputs)
    rng = np.random.RandomState(args.seed)
    given = load_arrays(args.load_input_data, list(inputs)) if args.load_input_data else {}
    out = {}
    for name, (dtype, shape) in inputs.items():
        if name in given:
            out[name] = given[name].astype(dtype)
            continue
        chosen = list(sizes.get(name, shape))
        if args.batchsize and chosen:
            chosen[0] = args.batchsize
        if chosen:
            chosen[0] *= shape0_multiply
        out[name] = random_array(rng, tuple(chosen), dtype, how.get(name))
    return out


def _known(flag: str, named: Any, inputs: Any) -> None:
    for name in named:
        if name not in inputs:
            raise UsageError(f"{flag}: the network has no input {name!r}; it has {', '.join(inputs)}")


def get_opt_kwargs(args: Any) -> dict[str, bool]:
    """The options of ``optimize_for_inference`` that the flags ask for."""
    names = [f"enable_{o.replace('-', '_')}" for o in _OPTIONS]
    return {name: True for name in names if getattr(args, name)}


def get_execution_strategy(args: Any) -> str:
    """How kernels are chosen: by a rule, or by measuring them at the first run."""
    names = ["PROFILE" if args.fast_run else "HEURISTIC", *(["REPRODUCIBLE"] if args.reproducible else [])]
    return "|".join(names)


def _refuse(args: Any) -> None:
    if args.focused_nvprof:
        raise NotImplementedError(
            "--focused-nvprof: nvprof watches GPUs, and this build has none. --profile has times."
        )
    if get_opt_kwargs(args) and not args.optimize_for_inference:
        flags = ", ".join("--" + k.replace("_", "-") for k in get_opt_kwargs(args))
        raise UsageError(f"{flags}: only together with --optimize-for-inference")
    for flag, least in (("iter", 1), ("warm_up", 0), ("batchsize", 1)):
        value = getattr(args, flag)
        if value is not None and value < least:
            raise UsageError(f"--{flag.replace('_', '-')}: {value} is less than {least}")


def _network(args: Any, data: bytes) -> Any:
    """The model in Lite, by the flags."""
    from megenginelite import LiteAlgoSelectStrategy, LiteConfig, LiteGlobal, LiteNetwork, LiteOptions

    device = args.device or "xpux"
    kind = device.rstrip("0123456789x:")
    if kind not in ("cpu", "xpu", "multithread"):
        raise UsageError(f"--device: {device} is not on this machine; cpux, cpu0 and multithread4:0 are")
    options = LiteOptions()
    if args.weight_preprocess:
        options.weight_preprocess = True
    network = LiteNetwork(LiteConfig(option=options))
    if kind == "multithread":
        network.threads_number = int(device.removeprefix("multithread").split(":")[0] or 1)
    chosen = [LiteAlgoSelectStrategy[f"LITE_ALGO_{n}"] for n in get_execution_strategy(args).split("|")]
    network.set_network_algo_policy(sum(chosen))
    for library in _core.custom_libraries():  # Lite is a library of its own, with operators of its own
        LiteGlobal.set_loader_lib_path(library)
    network.load(io.BytesIO(data))
    return network


def _edited(args: Any, data: bytes, feeds: dict[str, Any] | None) -> bytes:
    """The model with other outputs, optimised, or with its inputs in it."""
    network = Network.load(io.BytesIO(data), args.output_name or None)
    if feeds is not None:
        inputs = network.input_vars
        network.replace_vars({v: network.make_const(feeds[v.name], name=v.name) for v in inputs if v.name in feeds})
    out = io.BytesIO()
    network.dump(out, optimize_for_inference=args.optimize_for_inference, **get_opt_kwargs(args))
    return out.getvalue()


def _io(data: bytes) -> tuple[dict[str, tuple[str, tuple[int, ...]]], dict[str, int]]:
    inputs, outputs = _core.model_io(data)
    return {n: (d, tuple(s)) for n, d, s in inputs}, {n: len(s) for n, _, s in outputs}


def run_model(args: Any, network: Any, inputs: Any, outputs: Any, data: dict[str, Any]) -> list[Any]:
    """Feed, run ``--iter`` times, log the times; gives the outputs of the last run."""
    batch = next((len(v) for v in data.values() if v.ndim), 1)
    for name in inputs:
        value = data[name]
        network.get_io_tensor(name).set_data_by_copy(np.ascontiguousarray(value))
    if args.get_static_mem_info:
        network.get_static_memory_alloc_info(args.get_static_mem_info)
    for i in range(args.warm_up):
        logger.info("warming up %d", i)
        network.forward()
        network.wait()
    if args.profile:
        network.enable_profile_performance(args.profile)
    total, results = 0.0, []
    for i in range(args.iter):
        begin = time.perf_counter()
        network.forward()
        called = time.perf_counter()
        network.wait()
        end = time.perf_counter()
        results = [network.get_io_tensor(name).to_numpy() for name in outputs]
        total += end - begin
        text = (
            f"iter {i}: duration={end - begin:.4f}({called - begin:.4f})s average={total / (i + 1):.4f}s "
            f"avg_speed={(i + 1) * batch / total:.3f}sample/s time={total:.4f}s"
        )
        if args.calc_output_rms:
            rms = [float(np.sqrt(np.mean(np.square(r.astype(np.float64))))) if r.size else 0.0 for r in results]
            text += " output_rms=[" + ", ".join(f"{r:.6g}" for r in rms) + "]"
        logger.info(text)
    if args.profile:
        logger.info("the profile is in %s; python -m megengine.tools.profile_analyze reads it", args.profile)
    return results


def main(argv: Sequence[str] | None = None) -> int:
    """The command; gives the exit status."""
    args = _parser().parse_args(argv)
    _refuse(args)
    if args.log:
        set_log_file(args.log)
    if args.verbose:
        enable_debug_log()
    if args.custom_op_lib:
        custom.load(existing(args.custom_op_lib))
    logger.info("loading model ...")
    with open(existing(args.net), "rb") as f:
        data = f.read()
    inputs, outputs = _io(data)
    if args.output_name or args.optimize_for_inference:
        data = _edited(args, data, None)
        inputs, outputs = _io(data)
    logger.info("input tensors: ")
    feeds = make_data_given_desc(args, inputs)
    for name, value in feeds.items():
        logger.info("  %s: %s", name, value.shape)
    if args.embed_input or args.dump_cpp_model:
        args.output_name = None
        data = _edited(args, data, feeds)
        inputs, outputs = _io(data)
        if args.dump_cpp_model:
            with replacing(args.dump_cpp_model) as out:
                out.write(data)
            logger.info("the model with its inputs is in %s", args.dump_cpp_model)
    network = _network(args, data)
    if args.verbose:
        logger.debug("graph:\n%s", _core.Graph(data).text)
    run_model(args, network, inputs, outputs, feeds)
    return 0


if __name__ == "__main__":
    sys.exit(run("load_network_and_run", main))
