"""Ops composed of ops: what a function draws once, ``apply`` runs, differentiates and traces as its parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...tensor import Tensor
from .core2 import Const, apply, set_grad
from .opdef import OpDef
from .ops import OPS

__all__ = ["Subgraph", "SubgraphBuilder", "subgraph", "subgraph_fn"]

#: What a program may call an elementwise op besides its mode, by the number of operands.
_SYMBOLS = {
    ("-", 1): "negate",
    ("+", 2): "add",
    ("-", 2): "sub",
    ("*", 2): "mul",
    ("/", 2): "true_div",
    ("//", 2): "floor_div",
    ("%", 2): "mod",
    ("**", 2): "pow",
    ("max", 2): "max",
    ("min", 2): "min",
    ("<", 2): "lt",
    ("<=", 2): "leq",
    ("==", 2): "eq",
    ("fma3", 3): "fuse_mul_add3",
    ("fma4", 4): "fuse_mul_add4",
    ("additive", 2): "add",
}


@dataclass(frozen=True)
class _Step:
    op: OpDef
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Subgraph(OpDef):
    """An op that runs the steps drawn by a ``SubgraphBuilder``."""

    _effect = "steps"
    _fields = {"name": ""}
    name: str

    def __init__(self, name: str, drawn: SubgraphBuilder) -> None:
        super().__init__(name)
        object.__setattr__(self, "_drawn", drawn)

    def _key(self) -> tuple[Any, ...]:
        return (id(getattr(self, "_drawn")),)  # noqa: B009

    def __getstate__(self) -> dict[str, Any]:
        raise NotImplementedError(f"subgraph {self.name}: cannot be pickled; pickle what calls it by name.")

    def __repr__(self) -> str:
        return self.name

    def _run(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        drawn: SubgraphBuilder = getattr(self, "_drawn")  # noqa: B009
        if len(inputs) != drawn.nr_inputs:
            raise TypeError(f"{self.name}: takes {drawn.nr_inputs} tensors; got {len(inputs)}.")
        values: dict[int, Tensor] = dict(enumerate(inputs))
        for at, (value, dtype, device) in drawn.constants.items():
            values[at] = Const(value, dtype, device if device is not None else inputs[0].device if inputs else None)
        own = drawn.own_grad
        self._walk(drawn.steps if own is None else drawn.steps[: own.first_step], values)
        results = tuple(values[i] if grad else values[i].detach() for i, grad in zip(drawn.results, drawn.has_grad))
        if own is None:
            return results

        def backward(*given: Tensor | None) -> tuple[Tensor | None, ...]:
            here = dict(values)
            for at, y, dy in zip(own.given, results, given):
                here[at] = dy if dy is not None else y * 0
            self._walk(drawn.steps[own.first_step :], here)
            return tuple(None if i is None else here[i] for i in own.results)

        return tuple(set_grad(backward, inputs, results))

    def _walk(self, steps: list[_Step], values: dict[int, Tensor]) -> None:
        for step in steps:
            results = apply(step.op, *(values[i] for i in step.inputs))
            if len(results) < len(step.outputs):
                raise ValueError(
                    f"{self.name}: {step.op!r} has {len(results)} results; {len(step.outputs)} are asked for."
                )
            values.update(zip(step.outputs, results))


@dataclass(frozen=True)
class _OwnGrad:
    """A gradient that the function draws itself: from this step on, of these gradients of the results."""

    first_step: int
    given: tuple[int, ...]
    results: tuple[int | None, ...]


@dataclass
class SubgraphBuilder:
    """Draws an op: variables are numbers, in the order in which they came to be.

    >>> from megengine.core._imperative_rt.ops import SubgraphBuilder
    >>> from megengine.core._imperative_rt.core2 import apply
    >>> from megengine.core.ops import builtin
    >>> b = SubgraphBuilder("double")
    >>> x = b.input()
    >>> b.outputs(b.apply(builtin.Elemwise("add"), [x, x], 1))
    >>> apply(b.get(), mge.tensor([3.0]))[0].tolist()
    [6.0]
    """

    name: str
    nr_inputs: int = 0
    constants: dict[int, tuple[Any, Any, Any]] = field(default_factory=dict)
    steps: list[_Step] = field(default_factory=list)
    results: tuple[int, ...] = ()
    has_grad: tuple[bool, ...] = ()
    own_grad: _OwnGrad | None = None
    _count: int = 0

    def _new(self) -> int:
        self._count += 1
        return self._count - 1

    def input(self) -> int:
        """A new input; all come before the first step."""
        if self.nr_inputs != self._count:
            raise ValueError(f"{self.name}: inputs come before constants and steps.")
        self.nr_inputs += 1
        return self._new()

    def apply_const(self, value: Any, dtype: Any, device: Any = None) -> int:
        """A constant, on the device of the first input unless one is named."""
        at = self._new()
        self.constants[at] = (value, dtype, device)
        return at

    def apply(self, op: OpDef, inputs: Sequence[int], nr_outputs: int = 1) -> list[int]:
        """A step; gives its results."""
        if not isinstance(op, OpDef):
            raise TypeError(f"{self.name}: a step is an op of megengine.core.ops.builtin; got {type(op).__name__}.")
        for i in inputs:
            if type(i) is not int or not 0 <= i < self._count:
                raise ValueError(f"{self.name}: {op!r} reads {i!r}, which is no variable drawn so far.")
        results = [self._new() for _ in range(nr_outputs)]
        self.steps.append(_Step(op, tuple(inputs), tuple(results)))
        return results

    def outputs(self, results: Sequence[int]) -> None:
        """What the op gives."""
        self.results = tuple(results)
        self.has_grad = (True,) * len(self.results)

    def outputs_has_grad(self, flags: Sequence[bool]) -> None:
        """Which of the results gradients flow through."""
        if len(flags) != len(self.results):
            raise ValueError(f"{self.name}: {len(self.results)} results, but {len(flags)} flags of gradients.")
        self.has_grad = tuple(map(bool, flags))

    def get(self) -> Subgraph:
        """The op."""
        return Subgraph(self.name, self)

    def compile(self, gopt_level: int = 2) -> Subgraph:
        """The op. Inside a trace its steps are optimised with those around them; outside they run one by one."""
        return Subgraph(self.name, self)


def _drawn(
    name: str, dtype: Any, device: Any, nr_inputs: int, custom_grad: bool, function: Callable[..., Any]
) -> Subgraph:
    b = SubgraphBuilder(name)

    def f(op: OpDef | str, *args: int, nr_out: int | None = None) -> Any:
        if isinstance(op, str):
            mode = _SYMBOLS.get((op, len(args)), op).upper()
            names = getattr(OPS["Elemwise"], "Mode").names  # noqa: B009
            if mode not in names:
                raise ValueError(
                    f"{name}: there is no elementwise op {op!r} of {len(args)} operands. Symbols: "
                    f"{', '.join(sorted({s for s, _ in _SYMBOLS}))}; names: {', '.join(sorted(names)).lower()}."
                )
            op = OPS["Elemwise"](mode)
        results = b.apply(op, args, 1 if nr_out is None else nr_out)
        return results[0] if nr_out is None else tuple(results)

    def c(value: Any, dtype: Any = dtype, device: Any = device) -> int:
        return b.apply_const(np.asarray(value, dtype), dtype, device)

    drawn = function([b.input() for _ in range(nr_inputs)], f, c)
    if not custom_grad:
        results, has_grad = drawn
        b.outputs(results)
        b.outputs_has_grad(has_grad)
        return b.get()
    b.outputs(next(drawn))
    first, given = len(b.steps), [b._new() for _ in b.results]
    grads = tuple(drawn.send(given))
    if len(grads) != nr_inputs:
        raise ValueError(f"{name}: {nr_inputs} inputs, but {len(grads)} gradients. None stands for none.")
    b.own_grad = _OwnGrad(first, tuple(given), grads)
    return b.get()


def subgraph(
    name: str,
    dtype: Any,
    device: Any,
    nr_inputs: int,
    gopt_level: int | None = None,
    jit_fusion: bool = False,
    custom_grad: bool = False,
) -> Callable[[Callable[..., Any]], Callable[[], Subgraph]]:
    """Make an op of ops. The function draws it once; what this gives returns the op, for ``apply``.

    Args:
        name: of the op, for messages.
        dtype: of the constants.
        device: of the constants; None is that of the first input.
        nr_inputs: how many tensors the op takes.
        gopt_level, jit_fusion: accepted; a trace optimises and fuses the steps with those around them.
        custom_grad: the function is a generator: it yields the results, gets their gradients, and yields those of
            its inputs.

    The function gets ``(inputs, f, c)``: variables, ``f(op, *variables)`` for a step, where ``op`` is an op of
    ``megengine.core.ops.builtin``, the name of an elementwise one or a sign such as ``"+"``, and ``c(number)`` for a
    constant. It returns the results, and for each of them whether gradients flow through.

    >>> from megengine.core.tensor.utils import subgraph
    >>> from megengine.core._imperative_rt.core2 import apply
    >>> @subgraph("half_of_sum", "float32", None, 2)
    ... def half_of_sum(inputs, f, c):
    ...     return (f("*", f("+", *inputs), c(0.5)),), (True,)
    >>> apply(half_of_sum(), mge.tensor([1.0]), mge.tensor([5.0]))[0].tolist()
    [3.0]
    """

    def decorate(function: Callable[..., Any]) -> Callable[[], Subgraph]:
        op = _drawn(name, dtype, device, nr_inputs, custom_grad, function)
        return lambda: op

    return decorate


def subgraph_fn(
    name: str,
    dtype: Any,
    device: Any,
    nr_inputs: int,
    gopt_level: int | None = None,
    jit_fusion: bool = False,
    custom_grad: bool = False,
    *,
    interpret: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., tuple[Tensor, ...]]]:
    """Like ``subgraph``, for a function of tensors.

    >>> from megengine.core.tensor.utils import subgraph_fn
    >>> @subgraph_fn("swish", "float32", None, 1)
    ... def swish(inputs, f, c):
    ...     (x,) = inputs
    ...     return (f("*", x, f("sigmoid", x)),), (True,)
    >>> swish(mge.tensor([0.0]))[0].tolist()
    [0.0]
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., tuple[Tensor, ...]]:
        op = _drawn(name, dtype, device, nr_inputs, custom_grad, function)
        return lambda *inputs: apply(op, *inputs)

    return decorate


def interpret_subgraph(func: Callable[..., Any], dtype: Any, device: Any) -> Callable[..., list[Tensor]]:
    """The function of tensors that ``subgraph`` would make an op of, for any number of them.

    >>> from megengine.core.tensor.utils import interpret_subgraph
    >>> twice = interpret_subgraph(lambda x, f, c: ((f("*", *x, c(2)),), (True,)), "float32", None)
    >>> twice(mge.tensor([3.0]))[0].tolist()
    [6.0]
    """
    drawn: dict[int, Subgraph] = {}

    def decorated_func(*args: Tensor) -> list[Tensor]:
        if len(args) not in drawn:
            drawn[len(args)] = _drawn(getattr(func, "__name__", "subgraph"), dtype, device, len(args), False, func)
        return list(apply(drawn[len(args)], *args))

    return decorated_func
