"""The passes that make a traced module smaller."""

from __future__ import annotations

from typing import Any

from ..traced_module import TracedModule
from .pass_base import copied, get_registered_pass

#: The order they run in; adding and multiplying is put together again after scales were moved.
_ORDER = ("FuseConvBn", "FuseAddMul", "BackwardFoldScale", "FuseAddMul")
#: What a pass has no sense without.
_IMPLIED = {"BackwardFoldScale": ("FuseConvBn",)}


def optimize(module: TracedModule, enabled_pass: Any = ["FuseConvBn"]) -> TracedModule:  # noqa: B006
    """A copy of a traced module, rewritten for inference. Results may differ in the last bits.

    Args:
        module: a TracedModule in evaluation mode.
        enabled_pass: a name or several: ``"FuseConvBn"`` (batch normalisation into the convolution before it),
            ``"FuseAddMul"`` (constants that are added and multiplied one after the other),
            ``"BackwardFoldScale"`` (constant factors into the weights before them), ``"AttrToConstant"``,
            ``"FixInputShape"``, ``"FlodConstant"`` and ``"NormElemWise"``, which the others use.

    >>> from megengine.traced_module import optimize, trace_module
    >>> net = M.Sequential(M.Conv2d(1, 1, 1), M.BatchNorm2d(1))
    >>> net.eval()
    >>> x = F.ones((1, 1, 1, 1))
    >>> small = optimize(trace_module(net, x))
    >>> "BatchNorm2d" in str(small.graph), bool(F.abs(small(x) - net(x)).max() < 1e-5)
    (False, True)
    """
    assert isinstance(module, TracedModule), f"optimize: needs a TracedModule; got a {type(module).__name__}."
    names = [enabled_pass] if isinstance(enabled_pass, str) else list(enabled_pass)
    for name in tuple(names):
        get_registered_pass(name)
        names += [n for n in _IMPLIED.get(name, ()) if n not in names]
    module = copied(module)
    for name in (*(n for n in names if n not in _ORDER), *(n for n in _ORDER if n in names)):
        get_registered_pass(name)()(module)
    for graph in module.argdef_graph_map.values():
        graph._reset_ids()
    return module
