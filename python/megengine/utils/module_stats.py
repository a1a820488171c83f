"""Parameters, operations and activations of a model, counted by running it once.

>>> from megengine.utils.module_stats import module_stats
>>> net = M.Sequential(M.Conv2d(3, 8, 3), M.ReLU())
>>> total, details = module_stats(net, input_shapes=(1, 3, 8, 8), logging_to_stdout=False)
>>> total.flops, total.param_dims
(8064, 224)
>>> [row["name"] for row in details.params]
['0-w', '0-b', 'total']
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np

from .. import module as M
from ..core.tensor.dtype import _mgb, get_dtype_bit
from ..logger import get_logger
from ..module.adaptive_pooling import _AdaptivePoolNd
from ..module.batchnorm import _BatchNorm
from ..module.conv import _ConvNd
from ..module.pooling import _PoolNd
from ..tensor import Tensor
from ._table import table
from .module_utils import set_module_mode_safe
from .tuple_function import _pair

logger = get_logger(__name__)

Stat = dict[str, Any]
Counter = Callable[[Any, Sequence[Any], Sequence[Any]], Any]

total_stats = namedtuple("total_stats", ["param_size", "param_dims", "flops", "act_size", "act_dims"])
_Details = namedtuple("module_stats", ["params", "flops", "activations"])  # type: ignore[name-match]

#: Instances of these classes are counted.
hook_modules: list[type] = [
    _ConvNd,
    M.Linear,
    M.BatchMatMulActivation,
    _BatchNorm,
    M.LayerNorm,
    M.GroupNorm,
    M.InstanceNorm,
    _PoolNd,
    _AdaptivePoolNd,
]
_flops: dict[type, Counter] = {}
_receptive_fields: dict[type, Counter] = {}
# While it is switched on: (receptive field, distance in the input of neighbouring outputs), both per axis, by id of
# the output; the tensors are kept so that an id is not used twice.
_receptive_field_enabled = False
_fields: dict[int, tuple[Any, tuple[int, ...], tuple[int, ...]]] = {}


# ---- counting rules


def _register(table_: dict[type, Counter], modules: tuple[type, ...]) -> Callable[[Counter], Counter]:
    def add(function: Counter) -> Counter:
        for m in modules:
            table_[m] = function
        return function

    return add


def register_flops(*modules: type) -> Callable[[Counter], Counter]:
    """Decorator: ``f(module, inputs, outputs)`` counts the operations of these classes and their subclasses.

    >>> from megengine.utils.module_stats import register_flops, register_hook_module
    >>> class Scale(M.Module):
    ...     def forward(self, x):
    ...         return x * 2
    >>> @register_flops(Scale)
    ... def flops_scale(module, inputs, outputs):
    ...     return outputs[0].size
    >>> register_hook_module(Scale)
    """
    return _register(_flops, modules)


def register_receptive_field(*modules: type) -> Callable[[Counter], Counter]:
    """Decorator: ``f(module, inputs, outputs)`` gives (receptive field, stride) of these classes, two numbers each."""
    return _register(_receptive_fields, modules)


def register_hook_module(module: type | Iterable[type]) -> None:
    """Count instances of these classes as well."""
    for m in [module] if isinstance(module, type) else module:
        if m not in hook_modules:
            hook_modules.append(m)


def enable_receptive_field() -> None:
    """Add receptive fields and strides to the operations from now on."""
    global _receptive_field_enabled
    _receptive_field_enabled = True


def disable_receptive_field() -> None:
    """Leave receptive fields out again."""
    global _receptive_field_enabled
    _receptive_field_enabled = False
    _fields.clear()


@register_flops(_ConvNd)
def flops_convNd(module: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """prod(out) * (C_in / groups * prod(kernel) + bias), a multiply-add counted once."""
    kernel = module.kernel_size
    volume = prod(kernel) if isinstance(kernel, (tuple, list)) else kernel
    bias = 1 if getattr(module, "bias", None) is not None else 0
    return int(prod(outputs[0].shape) * (module.in_channels // module.groups * volume + bias))


@register_flops(M.ConvTranspose2d, M.ConvTranspose3d)
def flops_convNdTranspose(module: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """prod(in) * C_out / groups * prod(kernel), and prod(out) for a bias."""
    flops = prod(inputs[0].shape) * (module.out_channels // module.groups * prod(module.kernel_size))
    return int(flops + (prod(outputs[0].shape) if module.bias is not None else 0))


@register_flops(_BatchNorm, M.LayerNorm, M.GroupNorm, M.InstanceNorm)
def flops_norm(module: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """7 * prod(in)."""
    return int(prod(inputs[0].shape) * 7)


@register_flops(_PoolNd)
def flops_pool(module: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """prod(out) * prod(kernel)."""
    return int(prod(outputs[0].shape) * prod(_pair(module.kernel_size)))


@register_flops(_AdaptivePoolNd)
def flops_adaptivePool(module: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """prod(out), as MegEngine counts it."""
    return int(prod(outputs[0].shape))


@register_flops(M.Linear)
def flops_linear(module: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """prod(out) * in_features, and out_features for a bias."""
    bias = module.out_features if module.bias is not None else 0
    return int(prod(outputs[0].shape) * module.in_features + bias)


@register_flops(M.BatchMatMulActivation)
def flops_batchmatmul(module: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """prod(out) * (in_features + bias)."""
    return int(prod(outputs[0].shape) * (module.in_features + (module.bias is not None)))


def _field_of(tensor: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    found = _fields.get(id(tensor))
    return ((1, 1), (1, 1)) if found is None else found[1:]


def preprocess_receptive_field(module: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Carry the receptive fields of the inputs over to the outputs, unchanged."""
    fields = [_field_of(t) for t in inputs if isinstance(t, Tensor)]
    if not fields:
        return
    field = tuple(max(axis) for axis in zip(*(f[0] for f in fields)))
    stride = tuple(max(axis) for axis in zip(*(f[1] for f in fields)))
    for out in outputs:
        if isinstance(out, Tensor):
            _fields[id(out)] = (out, field, stride)


@register_receptive_field(M.Conv2d, _PoolNd)
def _receptive_field_window(module: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
    """A window of k with stride s over inputs that are j apart and see r: r + (k - 1) * j, j * s."""
    field, jump = _field_of(inputs[0])
    dilation = _pair(getattr(module, "dilation", 1))
    kernel, step = _pair(module.kernel_size), _pair(module.stride)
    field = tuple(r + (k - 1) * d * j for r, k, d, j in zip(field, kernel, dilation, jump))
    jump = tuple(j * s for j, s in zip(jump, step))
    for out in outputs:
        _fields[id(out)] = (out, field, jump)
    return field, jump


def _rule(rules: dict[type, Counter], module: Any) -> Counter | None:
    """The rule of the nearest class."""
    return next((rules[c] for c in type(module).__mro__ if c in rules), None)


# ---- one thing at a time


def _tensors(obj: Any) -> list[Any]:
    """The tensors and arrays in a value, looking into dicts, lists and tuples."""
    if isinstance(obj, (Tensor, np.ndarray)):
        return [obj]
    if isinstance(obj, dict):
        return [t for v in obj.values() for t in _tensors(v)]
    if isinstance(obj, (list, tuple)):
        return [t for v in obj for t in _tensors(v)]
    return []


def _nbits(dtype: Any) -> int:
    """Bits of one element; dtypes below 8 bits carry their width in their name and sit in bytes under NumPy."""
    meta = _mgb(dtype)
    stored = int(dtype.itemsize) * 8
    return stored if meta is None else min(stored, get_dtype_bit(meta["name"]))


def _array(value: Any) -> Any:
    return value.numpy() if isinstance(value, Tensor) else value


def get_param_stats(param: Any) -> Stat:
    """Shape, dtype, moments and size in bytes of a tensor or an array.

    >>> from megengine.utils.module_stats import get_param_stats
    >>> get_param_stats(mge.tensor([1.0, 3.0]))["size"]
    8
    """
    value = np.asarray(_array(param), dtype="float64")
    nbits = _nbits(param.dtype)
    dim = int(prod(param.shape))
    return {
        "dtype": param.dtype,
        "shape": param.shape,
        "mean": f"{value.mean() if dim else 0.0:.3g}",
        "std": f"{value.std() if dim else 0.0:.3g}",
        "param_dim": dim,
        "nbits": nbits,
        "size": dim * nbits // 8,
    }


def get_op_stats(module: Any, inputs: Any, outputs: Any) -> Stat | None:
    """Shapes and operations of one call; None when nothing is known of such a module (see ``register_flops``)."""
    ins, outs = _tensors(inputs), _tensors(outputs)
    rule = _rule(_flops, module)
    if rule is None and not _receptive_field_enabled:
        return None
    stats: Stat = {
        "input_shapes": [t.shape for t in ins],
        "output_shapes": [t.shape for t in outs],
        "flops_num": 0 if rule is None else rule(module, ins, outs),
    }
    if _receptive_field_enabled:
        preprocess_receptive_field(module, ins, outs)
        rule = _rule(_receptive_fields, module)
        field, stride = rule(module, ins, outs) if rule is not None else _field_of(outs[0])
        stats.update(receptive_field=field, stride=stride)
    return stats


def get_activation_stats(output: Any, has_input: bool = False) -> Stat:
    """Shape, dtype and size in bytes of what a module returned; of several tensors, of the first."""
    out = _tensors(output)[0]
    dim = int(prod(out.shape))
    nbits = _nbits(out.dtype)
    stats: Stat = {"dtype": out.dtype, "shape": out.shape, "act_dim": dim, "nbits": nbits, "size": dim * nbits // 8}
    if has_input:
        value = _array(out)
        stats.update(mean=f"{value.mean():.3g}", std=f"{value.std():.3g}")
    return stats


# ---- totals


def sizeof_fmt(num: float, suffix: str = "B") -> str:
    """A size for people: powers of 1024 for bytes, of 1000 for anything else.

    >>> from megengine.utils.module_stats import sizeof_fmt
    >>> sizeof_fmt(1536), sizeof_fmt(1.5e6, suffix="OPs")
    ('1.500 KiB', '1.500 MOPs')
    """
    scale, units = (1024.0, ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"])
    if suffix != "B":
        scale, units = 1000.0, ["", "K", "M", "G", "T", "P", "E", "Z", "Y"]
    value = float(num)
    for unit in units[:-1]:
        if abs(value) < scale:
            return f"{value:3.3f} {unit}{suffix}"
        value /= scale
    return f"{value:.3f} {units[-1]}{suffix}"


def dict2table(list_of_dict: Sequence[Stat], header: Sequence[str]) -> list[list[Any]]:
    """A header and a row per dict; an empty string where a dict lacks the key.

    >>> from megengine.utils.module_stats import dict2table
    >>> dict2table([{"a": 1}], ["a", "b"])
    [['a', 'b'], [1, '']]
    """
    return [list(header), *([row.get(h, "") for h in header] for row in list_of_dict)]


def _shares(rows: list[Stat], key: str, bar: str, bar_length_max: int) -> int:
    """Add each row's share of the sum, as a number, a percentage and a bar; returns the sum."""
    total: int = sum(row[key] for row in rows)
    top = max((row[key] for row in rows), default=0) or 1
    for row in rows:
        row["ratio"] = row[key] / total if total else 0.0
        row["percentage"] = f"{row['ratio'] * 100:.2f}%"
        row[bar] = "#" * int(bar_length_max * row[key] / top)
    return total


def _sum_sizes(rows: list[Stat], dim: str, bar_length_max: int) -> tuple[int, int, list[Stat]]:
    total = _shares(rows, "size", "size_bar", bar_length_max)
    dims = sum(row[dim] for row in rows)
    so_far = 0
    for row in rows:
        so_far += row["size"]
        row["size"], row["size_cum"] = sizeof_fmt(row["size"]), sizeof_fmt(so_far)
    rows.append({"name": "total", dim: dims, "size": sizeof_fmt(total)})
    return dims, total, rows


def sum_param_stats(params: list[Stat], bar_length_max: int = 20) -> tuple[int, int, list[Stat]]:
    """Add shares and a total row to the list; returns elements, bytes and the list.

    >>> from megengine.utils.module_stats import get_param_stats, sum_param_stats
    >>> rows = [{"name": "w", **get_param_stats(mge.tensor([1.0, 3.0]))}]
    >>> sum_param_stats(rows)[:2], rows[-1]
    ((2, 8), {'name': 'total', 'param_dim': 2, 'size': '8.000 B'})
    """
    return _sum_sizes(params, "param_dim", bar_length_max)


def sum_activations_stats(activations: list[Stat], bar_length_max: int = 20) -> tuple[int, int, list[Stat]]:
    """Add shares and a total row to the list; returns elements, bytes and the list."""
    return _sum_sizes(activations, "act_dim", bar_length_max)


def sum_op_stats(flops: list[Stat], bar_length_max: int = 20) -> tuple[int, list[Stat]]:
    """Add shares and a total row to the list; returns the operations and the list."""
    total = _shares(flops, "flops_num", "bar", bar_length_max)
    so_far = 0
    for row in flops:
        so_far += row["flops_num"]
        row["flops"] = sizeof_fmt(row["flops_num"], suffix="OPs")
        row["flops_cum"] = sizeof_fmt(so_far, suffix="OPs")
    channels = sum(row["output_shapes"][0][1] for row in flops if row["output_shapes"] and row["output_shapes"][0][1:])
    flops.append({"name": "total", "flops": sizeof_fmt(total, suffix="OPs"), "output_shapes": channels})
    return int(total), flops


# ---- printing


def _print(title: str, rows: Sequence[Stat], header: Sequence[str]) -> None:
    logger.info(title + "\n" + table(dict2table(rows, header)))


_SIZE_COLUMNS = ["size", "size_cum", "percentage", "size_bar"]


def print_param_stats(params: Sequence[Stat]) -> None:
    """Log the table of ``sum_param_stats``."""
    _print("param stats: ", params, ["name", "dtype", "shape", "mean", "std", "param_dim", "nbits", *_SIZE_COLUMNS])


def print_op_stats(flops: Sequence[Stat]) -> None:
    """Log the table of ``sum_op_stats``."""
    header = ["name", "class_name", "input_shapes", "output_shapes", "flops", "flops_cum", "percentage", "bar"]
    if _receptive_field_enabled:
        header[4:4] = ["receptive_field", "stride"]
    _print("flops stats: ", flops, header)


def print_activations_stats(activations: Sequence[Stat], has_input: bool = False) -> None:
    """Log the table of ``sum_activations_stats``."""
    moments = ["mean", "std"] if has_input else []
    header = ["name", "class_name", "dtype", "shape", *moments, "nbits", "act_dim", *_SIZE_COLUMNS]
    _print("activations stats: ", activations, header)


def print_summary(**kwargs: Any) -> None:
    """Log names and values as a table."""
    logger.info("summary\n" + table([["item", "value"], *([k, v] for k, v in kwargs.items())]))


# ---- the run


def _inputs_of(inputs: Any, input_shapes: Any) -> Any:
    """Arrays anywhere in lists, tuples and dicts become tensors; shapes become zeros."""
    if inputs is None:
        shapes = input_shapes if isinstance(input_shapes[0], (tuple, list)) else [input_shapes]
        return [Tensor(np.zeros(tuple(s), dtype="float32")) for s in shapes]
    if isinstance(inputs, dict):
        return {k: _inputs_of(v, None) for k, v in inputs.items()}
    if isinstance(inputs, tuple) and hasattr(inputs, "_fields"):
        return type(inputs)(*(_inputs_of(v, None) for v in inputs))
    if isinstance(inputs, (list, tuple)):
        return type(inputs)(_inputs_of(v, None) for v in inputs)
    return Tensor(inputs) if isinstance(inputs, (np.ndarray, np.generic)) else inputs


@contextmanager
def _watching(names: dict[int, str], seen: Callable[[str, Tensor], None]) -> Iterator[None]:
    """Report each read of ``weight`` and ``bias`` of the named modules."""

    def read(self: M.Module, key: str) -> Any:
        value = object.__getattribute__(self, key)
        if key in ("weight", "bias") and isinstance(value, Tensor):
            name = names.get(id(self))
            if name is not None:
                seen(f"{name}-{key[0]}", value)
        return value

    M.Module.__getattribute__ = read  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        del M.Module.__getattribute__


def module_stats(
    model: M.Module,
    inputs: Any = None,
    input_shapes: Any = None,
    cal_params: bool = True,
    cal_flops: bool = True,
    cal_activations: bool = True,
    logging_to_stdout: bool = True,
    bar_length_max: int = 20,
) -> Any:
    """Run a model once in evaluation mode and count parameters, operations and activations.

    Args:
        model: what to count.
        inputs: arrays or tensors; a list or tuple is spread over the arguments of ``forward``, anything else is one
            argument. Dicts, lists and named tuples may be nested.
        input_shapes: one shape or a list of them, instead of ``inputs``; zeros are fed.
        cal_params: count weights and biases that the run reads; a shared one counts once.
        cal_flops: count operations of the modules in ``hook_modules``.
        cal_activations: count what those modules return.
        logging_to_stdout: log the tables.
        bar_length_max: the length of the longest bar in the tables.

    Returns:
        (``total_stats``, ``module_stats``): named tuples of the sums and of the lists of rows. None when neither
        inputs nor shapes were given.

    >>> from megengine.utils.module_stats import module_stats
    >>> module_stats(M.Linear(4, 3), np.zeros((2, 4), "float32"), logging_to_stdout=False)[0].flops
    27
    """
    if inputs is None and input_shapes is None:
        logger.error("Inputs or input_shapes is required for running model and calculating stats.")
        return None
    has_input = inputs is not None
    given = _inputs_of(inputs, input_shapes)
    args = given if isinstance(given, (list, tuple)) else (given,)

    params: list[Stat] = []
    flops: list[Stat] = []
    activations: list[Stat] = []
    counted: set[int] = set()
    names = {id(m): name for name, m in model.named_modules()}

    def on_parameter(name: str, value: Tensor) -> None:
        if id(value) not in counted:
            counted.add(id(value))
            params.append({**get_param_stats(value), "name": name})

    def on_call(module: M.Module, ins: Any, outs: Any) -> None:
        label = {"name": names[id(module)], "class_name": type(module).__name__}
        op_stats = get_op_stats(module, ins, outs) if cal_flops else None
        if op_stats is not None:
            flops.append({**op_stats, **label})
        if cal_activations and _tensors(outs):
            activations.append({**get_activation_stats(outs, has_input), **label})

    hooks = []
    try:
        counted_kinds: Any = tuple(hook_modules)
        for m in model.modules():
            if isinstance(m, counted_kinds):
                hooks.append(m.register_forward_hook(on_call))
        with set_module_mode_safe(model, training=False), _watching(names, on_parameter):
            model(*args)
    finally:
        for h in hooks:
            h.remove()
        _fields.clear()

    summary: Stat = {"#params": len(params)}
    sums = {"param_size": 0, "param_dims": 0, "flops": 0, "act_size": 0, "act_dims": 0}
    if cal_params:
        sums["param_dims"], sums["param_size"], _ = sum_param_stats(params, bar_length_max)
        summary["total_param_dims"] = sizeof_fmt(sums["param_dims"], suffix="").rstrip()
        summary["total_param_size"] = sizeof_fmt(sums["param_size"])
    if cal_flops:
        sums["flops"], _ = sum_op_stats(flops, bar_length_max)
        summary["total_flops"] = sizeof_fmt(sums["flops"], suffix="OPs")
    if cal_activations:
        sums["act_dims"], sums["act_size"], _ = sum_activations_stats(activations, bar_length_max)
        summary["total_act_dims"] = sizeof_fmt(sums["act_dims"], suffix="").rstrip()
        summary["total_act_size"] = sizeof_fmt(sums["act_size"])
    if cal_flops and cal_params and sums["param_size"]:
        summary["flops/param_size"] = f"{sums['flops'] / sums['param_size']:3.3f}"
    if logging_to_stdout:
        if cal_params:
            print_param_stats(params)
        if cal_flops:
            print_op_stats(flops)
        if cal_activations:
            print_activations_stats(activations, has_input)
        print_summary(**summary)
    return total_stats(**sums), _Details(params, flops, activations)
