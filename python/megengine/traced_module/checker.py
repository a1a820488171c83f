"""Whether a traced module computes what the module did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import random
from ..module.module import Module
from ..tensor import Tensor
from .expr import Apply, Constant, Expr, GetAttr, Input, _flat
from .pytree import _is_const_leaf, tree_flatten

if TYPE_CHECKING:
    from .module_tracer import module_tracer

__all__ = ["TracedModuleChecker"]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        x, y = a.numpy(), b.numpy()
        return x.shape == y.shape and x.dtype == y.dtype and x.tobytes() == y.tobytes() or _equal(x, y)
    return a is b


def _equal(x: Any, y: Any) -> bool:
    return x.shape == y.shape and x.dtype == y.dtype and bool(np.array_equal(x, y, equal_nan=x.dtype.kind in "fc"))


class TracedModuleChecker:
    """Runs expressions a second time while a module is traced, and compares the bits.

    Args:
        tracer: of the trace.
    """

    def __init__(self, tracer: module_tracer) -> None:
        self._active_node2values: list[dict[Any, Any]] = []
        self.tracer = tracer
        self._values: dict[int, tuple[Any, Any]] = {}

    def push_scope(self) -> None:
        """Begin with a graph."""
        self._active_node2values.append({})

    def pop_scope(self) -> None:
        """Go on with the graph around it."""
        self._active_node2values.pop()

    def current_node2values(self) -> dict[Any, Any]:
        """The values of the nodes of this graph."""
        if not self._active_node2values:
            self.push_scope()
        return self._active_node2values[-1]

    def reset_checker(self) -> None:
        """Forget all values."""
        self._active_node2values = []
        self._values = {}

    def record_node2value(self, node: Any, value: Any) -> None:
        """Keep the value of a node."""
        self.current_node2values()[node] = value
        self._values[id(node)] = (node, value)

    def record_nodemixin(self, node: Any, value: Any) -> None:
        """Keep what stands for a module."""
        self.record_node2value(node, value)

    def check_node_not_in_scope(self) -> bool:
        """Whether nothing is known yet of the nodes of this graph."""
        return not self.current_node2values()

    def get_node2value(self, inputs: Any, start_idx: int = 0) -> list[Any]:
        """The values of nodes, from one on."""
        return [self._values[id(n)][1] if id(n) in self._values else n.owner for n in inputs[start_idx:]]

    def check_expr_results(self, expr_outputs: Any, gt_outputs: Any, indexs: Any = None) -> None:
        """Compare results; with ``indexs`` only those.

        Raises:
            AssertionError: where they differ.
        """
        got = [x for x in tree_flatten(expr_outputs)[0] if not _is_const_leaf(x)]
        want = [x for x in tree_flatten(gt_outputs)[0] if not _is_const_leaf(x)]
        assert len(got) == len(want), f"{len(got)} results, {len(want)} were expected."
        for i in range(len(got)) if indexs is None else indexs:
            if not _same(got[i], want[i]):
                a, b = got[i].numpy(), want[i].numpy()
                gap = ""
                if a.shape == b.shape:
                    gap = f"; the largest difference is {np.abs(a.astype('float64') - b.astype('float64')).max():g}"
                raise AssertionError(
                    f"result {i} is not what the module computed: {a.dtype} {a.shape} and {b.dtype} {b.shape}{gap}. "
                    "A function that gives another result each time cannot be checked: use disable_default_checker()."
                )

    def check_expr_interpret(self, expr: Expr, gt_outputs: Any) -> None:
        """Run an expression again and compare."""
        self._check(expr, gt_outputs, expr.interpret(*self.get_node2value(expr.inputs)))

    def check_apply_special_cases(self, opdef: Any, num_outputs: int) -> list[int] | None:
        """Which results of an op are compared: the second one of a pooling of regions by average is not defined."""
        if type(opdef).__name__ in ("ROIAlign", "ROIPooling") and str(opdef.mode).endswith("AVERAGE"):
            return list(range(num_outputs - 1))
        return None

    def check_apply(self, expr: Expr, gt_outputs: Any, opdef: Any) -> None:
        """Run an op again and compare."""
        got = expr.interpret(*self.get_node2value(expr.inputs))
        self._check(expr, gt_outputs, got, self.check_apply_special_cases(opdef, len(expr.outputs)))

    def check_builtin_module(self, module: Module, expr: Expr, gt_outputs: Any) -> None:
        """Call a module again and compare."""
        args, kwargs = expr.unflatten_args([module, *self.get_node2value(expr.inputs, 1)])
        self._check(expr, gt_outputs, _flat(module(*args[1:], **kwargs)))

    def check_net_outputs(self, tm_res: Any, gt_res: Any) -> None:
        """Compare the results of a traced module with those of the module."""
        try:
            self.check_expr_results(tm_res, gt_res)
        except AssertionError as e:
            raise AssertionError(f"trace_module: the traced module differs from the module: {e}") from None

    def _check(self, expr: Expr, want: Any, got: Any, indexs: Any = None) -> None:
        try:
            self.check_expr_results(list(got), _flat(want), indexs)
        except AssertionError as e:
            raise AssertionError(f"{expr}: {e}") from None

    def _check_call(self, expr: Expr, outputs: Any, state: Any) -> None:
        """Check an expression that has just been written down."""
        from .expr import CallMethod
        from .module_tracer import paused

        if isinstance(expr, (Input, GetAttr, Constant)):
            return
        if isinstance(expr, CallMethod) and any(type(n).__name__ == "ModuleNode" for n in expr.inputs):
            return  # a module may change its buffers; its inside was checked
        after = random.get_rng_state()
        with paused():
            if state is not None:
                random.set_rng_state(state)
            try:
                if isinstance(expr, Apply):
                    self.check_apply(expr, outputs, expr.opdef)
                else:
                    self.check_expr_interpret(expr, outputs)
            finally:
                random.set_rng_state(after)
