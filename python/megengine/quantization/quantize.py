"""From float modules to QAT modules to quantised ones, and what is switched in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .. import functional as F
from .. import module as Float
from ..core._warn import warn_once
from ..module.module import Module, _expand_structure
from ..tensor import Tensor
from ..utils.hook import HookHandler
from ..utils.module_utils import set_expand_structure, set_module_mode_safe
from .observer import MinMaxObserver, NoDataError, PassiveObserver
from .qconfig import QConfig, ema_fakequant_qconfig
from .utils import QParams

if TYPE_CHECKING:
    from ..module.qat import QATModule

__all__ = [
    "apply_easy_quant",
    "disable_fake_quant",
    "disable_observer",
    "enable_fake_quant",
    "enable_observer",
    "hook_qat_module",
    "propagate_qconfig",
    "quantize",
    "quantize_qat",
    "reset_qconfig",
]

_M = TypeVar("_M", bound=Module)


def _qat() -> Any:
    from ..module import qat  # which is made of this package

    return qat


def _get_quantable_module_names() -> list[str]:
    """The layers that have a QAT and a quantised form, by the name that all three share."""
    return [n for n in _qat().__all__ if n != "QATModule"]


def _get_convert_dict() -> tuple[dict[type, type], dict[type, type]]:
    """From float classes to QAT classes, and from those to quantised ones."""
    from ..module import quantized

    kinds = [(getattr(Float, n), getattr(_qat(), n), getattr(quantized, n)) for n in _get_quantable_module_names()]
    return {f: q for f, q, _ in kinds}, {q: i for _, q, i in kinds}


def _qat_modules(module: Module) -> Iterable[QATModule]:
    return (m for m in module.modules() if isinstance(m, _qat().QATModule))


def _replaced(
    module: _M,
    who: str,
    table: dict[type, type],
    wanted: Callable[[Module], bool],
    make: Callable[[type, Module], Module],
) -> _M:
    """``module`` with the submodules of the classes in ``table`` replaced, each by one, wherever it is held. A module
    inside of one that is replaced, and the root, stay."""
    kinds = tuple(table)
    made: dict[int, Module] = {}
    keep = []  # ids stay taken

    def visit(parent: Module, prefix: str, inside: bool, seen: set[int]) -> None:
        for attribute, value in sorted(vars(parent).items()):
            if not isinstance(value, (Module, list, tuple, dict)):
                continue
            for key, leaf in _expand_structure(attribute, value):
                if not isinstance(leaf, Module):
                    continue
                path = prefix + key
                quantable = isinstance(leaf, kinds)
                if quantable and not inside and wanted(leaf):
                    if id(leaf) not in made:
                        keep.append(leaf)
                        made[id(leaf)] = make(_target(who, table, leaf), leaf)
                    set_expand_structure(module, path, made[id(leaf)])
                elif id(leaf) not in seen:
                    seen.add(id(leaf))
                    visit(leaf, path + ".", quantable, seen)

    visit(module, "", isinstance(module, kinds), {id(module)})
    if not made and not any(isinstance(m, tuple(table.values())) for m in module.modules()):
        warn_once(
            who,
            f"{who}: nothing in this {type(module).__name__} was replaced; "
            + (
                "the root is not, only what is in it. Put it into a Sequential."
                if isinstance(module, kinds)
                else "quantize_qat comes first."
                if who == "quantize"
                else "it holds none of the layers that can be."
            ),
        )
    return module


def _target(who: str, table: dict[type, type], leaf: Module) -> type:
    if type(leaf) not in table:
        base = next(k for k in table if isinstance(leaf, k))
        raise KeyError(
            f"{who}: {type(leaf).__name__} is a subclass of {base.__name__}, and nothing says what becomes of it. Pass "
            f"mapping={{{type(leaf).__name__}: ...}}, or call its disable_quantize()."
        )
    return table[type(leaf)]


def quantize_qat(
    module: _M, inplace: bool = True, qconfig: QConfig = ema_fakequant_qconfig, mapping: dict[type, type] | None = None
) -> _M:
    """Replace the layers of ``module`` by those that simulate quantisation while they are trained.

    Args:
        module: the float network. It is not replaced itself, only what is in it.
        inplace: change ``module``, or a copy of it.
        qconfig: what observes and simulates.
        mapping: float class to QAT class, for layers of your own.

    Returns:
        The network; its layers keep the parameters they had.

    >>> from megengine.quantization import quantize_qat
    >>> net = quantize_qat(M.Sequential(M.QuantStub(), M.Linear(2, 3), M.DequantStub()))
    >>> type(net[1]).__module__
    'megengine.module.qat.linear'
    """
    table = _get_convert_dict()[0] | (mapping or {})
    module = module if inplace else deepcopy(module)

    def make(target: Any, leaf: Module) -> Module:
        made: Module = target.from_float_module(leaf)
        return made

    done = _qat().QATModule
    _replaced(module, "quantize_qat", table, lambda m: not (m.quantize_disabled or isinstance(m, done)), make)
    propagate_qconfig(module, qconfig)
    return module


def quantize(module: _M, inplace: bool = True, mapping: dict[type, type] | None = None) -> _M:
    """Replace the QAT layers of ``module`` by those that compute with integers.

    Args:
        module: the trained QAT network. It is not replaced itself, only what is in it.
        inplace: change ``module``, or a copy of it.
        mapping: QAT class to quantised class, for layers of your own.

    Returns:
        The network, for inference. Layers that no data reached have the least scale, which a warning tells.
    """
    table = _get_convert_dict()[1] | (mapping or {})
    module = module if inplace else deepcopy(module)
    observers = [m.act_observer for m in _qat_modules(module)]
    names = {id(m): name for name, m in module.named_modules()}
    calibrated = any(isinstance(o, MinMaxObserver) and o.has_seen() for o in observers)

    def make(target: Any, leaf: Module) -> Module:
        made: Module
        try:
            made = target.from_qat_module(leaf)
        except NoDataError:
            if calibrated:
                who = f"the {type(leaf).__name__} {names[id(leaf)]}"
                way = "so no scale fits it and what it computes is of no use."
            else:
                who = f"this {type(module).__name__}"
                way = (
                    "so there is no scale that fits and what it computes is of no use. Run data through the network in "
                    "training mode (observers are off in evaluation mode) before it is quantised."
                )
            warn_once(f"quantize {who}", f"quantize: no data reached {who}, {way}")
            _settle(leaf)
            made = target.from_qat_module(leaf)
        made.train(leaf.training)
        return made

    return _replaced(module, "quantize", table, lambda m: True, make)


def _settle(leaf: Module) -> None:
    """A layer that no data reached gets the least scale."""
    for o in leaf.modules():
        if isinstance(o, MinMaxObserver) and not o.has_seen():
            o.min_val._reset(F.zeros_like(o.min_val))
            o.max_val._reset(F.zeros_like(o.max_val))


def propagate_qconfig(module: Module, qconfig: QConfig) -> None:
    """Give every QAT module in ``module`` new observers and fake-quant modules."""
    for m in _qat_modules(module):
        m.set_qconfig(qconfig)


def reset_qconfig(module: _M, qconfig: QConfig, inplace: bool = True) -> _M:
    """Give every QAT module new observers and fake-quant modules, which begin with the scales of the old ones where
    they have a ``set_qparams``.

    >>> from megengine.quantization import calibration_qconfig, easyquant_qconfig, quantize_qat, reset_qconfig
    >>> net = quantize_qat(M.Sequential(M.QuantStub()), qconfig=calibration_qconfig)
    >>> y = net(F.ones((2, 3)))
    >>> reset_qconfig(net, easyquant_qconfig)[0].act_observer.scale.item()
    0.0078...
    """
    module = module if inplace else deepcopy(module)
    for m in _qat_modules(module):
        weight, act = m.get_weight_qparams(), m.get_activation_qparams()
        m.set_qconfig(qconfig)
        part: Any
        for part, qparams in (
            (m.weight_observer, weight),
            (m.weight_fake_quant, weight),
            (m.act_observer, act),
            (m.act_fake_quant, act),
        ):
            if qparams is not None and qparams.scale is not None and hasattr(part, "set_qparams"):
                part.set_qparams(_still(qparams))
    return module


def _still(qparams: QParams) -> QParams:
    """With values that do not follow the parameters they were computed from."""
    copied = deepcopy(qparams)
    for key in copied.__slots__:
        value = getattr(copied, key)
        if isinstance(value, Tensor):
            setattr(copied, key, Tensor(value.numpy()))
    return copied


def enable_observer(module: Module) -> None:
    """Let the observers of all QAT modules look at what passes."""
    for m in _qat_modules(module):
        m.set_observer(True)


def disable_observer(module: Module) -> None:
    """Let the observers of all QAT modules keep what they know."""
    for m in _qat_modules(module):
        m.set_observer(False)


def enable_fake_quant(module: Module) -> None:
    """Let all QAT modules simulate quantisation."""
    for m in _qat_modules(module):
        m.set_fake_quant(True)


def disable_fake_quant(module: Module) -> None:
    """Let all QAT modules compute in float."""
    for m in _qat_modules(module):
        m.set_fake_quant(False)


def hook_qat_module(module: Module, func: Callable[..., Any]) -> list[HookHandler]:
    """Call ``func(module, inputs, outputs)`` after each QAT module; ``remove()`` of what is returned ends that."""
    return [m.register_forward_hook(func) for m in _qat_modules(module)]


# ---- easy quant: scales by search


def apply_easy_quant(
    module: _M, data: Tensor | np.ndarray[Any, Any], start: float = 0.8, stop: float = 1.2, num: int = 40
) -> _M:
    """Search better scales: layer by layer, those whose output has the direction that float arithmetic gives.

    Each scale is tried from ``start`` to ``stop`` times the present one, weights first, then activations (Wu et al.,
    2020). The layers see what the layers before them give in float and with the scales found.

    Args:
        module: a QAT network with ``easyquant_qconfig``.
        data: one batch.
        start: the least factor.
        stop: the largest factor.
        num: factors to try.
    """
    layers = list(_qat_modules(module))
    for m in layers:
        for observer in (m.weight_observer, m.act_observer):
            if observer is not None and not (isinstance(observer, PassiveObserver) and observer.qparams is not None):
                raise ValueError(
                    f"apply_easy_quant: needs scales that can be set, but {type(m).__name__} has a "
                    f"{type(observer).__name__}. Calibrate, then reset_qconfig(net, easyquant_qconfig)."
                )
    factors = np.linspace(start, stop, num)
    x = data if isinstance(data, Tensor) else Tensor(data)
    with set_module_mode_safe(module, training=False):
        try:
            for m in layers:
                # Not by a hook, which is not shown keyword arguments.
                m.forward = _searching(m, m.forward, factors)  # type: ignore[method-assign]
            module(F.concat([x, x]))
        finally:
            for m in layers:
                vars(m).pop("forward", None)
    return module


def _searching(m: QATModule, forward: Callable[..., Any], factors: np.ndarray[Any, Any]) -> Callable[..., Any]:
    """``forward`` of a doubled batch: the first half in float, the second one simulated with the best scales."""

    def switch(weight: bool, act: bool) -> None:
        for part, on in ((m.weight_fake_quant, weight), (m.act_fake_quant, act)):
            if part is not None:
                part.enabled = on

    def run(*args: Any, **kwargs: Any) -> Any:
        before = [p is not None and p.enabled for p in (m.weight_fake_quant, m.act_fake_quant)]
        float_args, quant_args = (_half(args, i) for i in range(2))
        switch(False, False)
        exact = forward(*float_args, **kwargs)
        if m.weight_observer is not None:
            switch(True, False)
            _best(m.weight_observer, factors, lambda: _alike(exact, forward(*quant_args, **kwargs)))
        if m.act_observer is not None:
            switch(True, True)
            _best(m.act_observer, factors, lambda: _alike(exact, forward(*quant_args, **kwargs)))
        switch(*before)
        result = forward(*quant_args, **kwargs)
        both = F.concat([exact, result])
        both.qparams.update(result.qparams)
        return both

    return run


def _half(args: Any, i: int) -> Any:
    """Of each tensor in a structure, the first or the second half; a tensor keeps its parameters."""
    if isinstance(args, Tensor):
        n = args.shape[0] // 2
        part = args[i * n : (i + 1) * n]
        part.qparams.update(args.qparams)
        return part
    return type(args)(_half(a, i) for a in args) if isinstance(args, (list, tuple)) else args


def _best(observer: Any, factors: np.ndarray[Any, Any], score: Callable[[], float]) -> None:
    """The first of the factors with the largest score."""
    original = observer.orig_scale
    scores = []
    for f in factors:
        observer.scale = original * f
        scores.append(score())
    observer.scale = original * factors[int(np.argmax(scores))]


def _alike(a: Tensor, b: Tensor) -> float:
    """The mean cosine between the results for each sample."""
    x, y = (t.numpy().reshape(t.shape[0], -1).astype(np.float64) for t in (a, b))
    lengths = np.sqrt((x * x).sum(1) * (y * y).sum(1))
    return float(np.mean((x * y).sum(1) / np.maximum(lengths, 1e-30)))
