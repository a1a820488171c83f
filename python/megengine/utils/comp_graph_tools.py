"""Looking at graphs and changing them (``megengine.core.tensor.megbrain_graph``), and running model files.

>>> import io
>>> from megengine.core.tensor import megbrain_graph as G
>>> from megengine.utils import comp_graph_tools as cgtools
>>> @mge.jit.trace(symbolic=True, capture_as_const=True)
... def f(x):
...     return F.exp(x) + 1
>>> y, file = f(mge.tensor([1.0, 2.0])), io.BytesIO()
>>> result = f.dump(file, arg_names=["x"], output_names=["y"])
>>> file.seek(0)
0
>>> (y,) = G.load_graph(file).output_vars_list
>>> [op.type for op in cgtools.get_oprs_seq([y])]
['Host2DeviceCopy', 'Elemwise', 'Elemwise']
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..core._inference import GraphInference
from ..core.tensor.megbrain_graph import Graph, InputNode, OpNode, OutputNode, VarNode, _check_vars, set_priority_to_id

__all__ = [
    "GraphInference",
    "convert_inputs",
    "convert_outputs",
    "embed_inputs",
    "find_vars_by_name",
    "get_dep_vars",
    "get_opr_type",
    "get_oprs_seq",
    "get_owner_opr_inputs",
    "get_owner_opr_type",
    "graph_traversal",
    "replace_oprs",
    "replace_vars",
    "set_priority_to_id",
]

Vars = VarNode | Sequence[VarNode]


def _list(who: str, given: Vars) -> list[VarNode]:
    return _check_vars(who, given if isinstance(given, (list, tuple)) else [given])


def get_dep_vars(var: Vars, var_type: str | Sequence[str] | None = None) -> list[VarNode]:
    """What variables are computed from, themselves included, nearest first; only those made by ops of a type.

    Args:
        var: a variable, or several.
        var_type: ``"Host2DeviceCopy"`` for inputs, ``"ImmutableTensor"`` for constants, or the type of an op.
    """
    types = None if var_type is None else {var_type} if isinstance(var_type, str) else set(var_type)
    queue, seen, found = deque(_list("get_dep_vars", var)), set(), []
    while queue:
        v = queue.popleft()
        if v.id in seen:
            continue
        seen.add(v.id)
        if types is None or get_owner_opr_type(v) in types:
            found.append(v)
        queue.extend(v.op.inputs)
    return found


def get_owner_opr_inputs(var: VarNode) -> list[VarNode]:
    """The inputs of the op that makes a variable."""
    return list(var.op.inputs)


def get_owner_opr_type(var: VarNode) -> str:
    """The type of the op that makes a variable."""
    kind = var.op.type
    return "Host2DeviceCopy" if kind == "InputCallback" else kind


def get_opr_type(opr: OpNode) -> str:
    """The type of an op."""
    if not isinstance(opr, OpNode):
        raise TypeError(f"get_opr_type: an op of a graph is needed; got {type(opr).__name__}.")
    return opr.type


def graph_traversal(
    outputs: Vars,
) -> tuple[
    dict[int, OpNode], dict[int, VarNode], dict[int, int], dict[int, list[int]], dict[int, list[int]], dict[int, int]
]:
    """Everything that outputs need: ``(map_oprs, map_vars, var2oprs, opr2receivers, indegree2opr, opr2indegree)``.

    Ops and variables by id; the op of each variable; the ops that read an op; ops by the number of ops they read, and
    that number of each op.
    """
    oprs: dict[int, OpNode] = {}
    variables: dict[int, VarNode] = {}
    owner: dict[int, int] = {}
    receivers: dict[int, list[int]] = {}
    degree: dict[int, int] = {}
    for v in get_dep_vars(outputs):
        variables[v.id] = v
        key = _key(v.op)
        owner[v.id] = key
        if key in oprs:
            continue
        oprs[key] = v.op
        sources = {_key(i.op) for i in v.op.inputs}
        degree[key] = len(sources)
        for source in sources:
            receivers.setdefault(source, []).append(key)
    by_degree: dict[int, list[int]] = {}
    for key, n in degree.items():
        receivers.setdefault(key, [])
        by_degree.setdefault(n, []).append(key)
    return oprs, variables, owner, receivers, by_degree, degree


def _key(op: OpNode) -> int:
    return op.outputs[0].id  # an op may be several of the engine's: known by its first result


def get_oprs_seq(outputs: Vars, prune_reshape: bool = False, prune_immtensor: bool = True) -> list[OpNode]:
    """The ops that outputs need, in an order in which they can run.

    Args:
        outputs: variables.
        prune_reshape: leave out reshapes; those that only they feed stay.
        prune_immtensor: leave out constants.
    """
    oprs, *_ = graph_traversal(outputs)
    done: OrderedDict[int, OpNode] = OrderedDict()
    stack = [(key, False) for key in sorted(oprs, reverse=True)]
    while stack:
        key, ready = stack.pop()
        if key in done:
            continue
        if ready:
            done[key] = oprs[key]
            continue
        stack.append((key, True))
        stack += [(_key(i.op), False) for i in reversed(oprs[key].inputs) if _key(i.op) not in done]
    pruned = ({"ImmutableTensor"} if prune_immtensor else set()) | ({"Reshape"} if prune_reshape else set())
    return [op for op in done.values() if op.type not in pruned]


def replace_vars(dst: Vars, varmap: Mapping[VarNode, VarNode]) -> list[VarNode]:
    """``dst`` as they are with other variables in the place of some; the graph keeps the old ones beside them."""
    found = _list("replace_vars", dst)
    graph = found[0].graph
    if not varmap:
        return found
    old = _check_vars("replace_vars", varmap.keys(), graph)
    new = _check_vars("replace_vars", varmap.values(), graph)
    ids = graph._ir.replaced([v.id for v in found], [v.id for v in old], [v.id for v in new])
    return [graph._var(i) for i in ids]


def replace_oprs(dst: Vars, oprmap: Mapping[OpNode, OpNode]) -> list[VarNode]:
    """The same for all results of ops."""
    varmap: dict[VarNode, VarNode] = {}
    for old, new in oprmap.items():
        if len(old.outputs) != len(new.outputs):
            raise ValueError(
                f"replace_oprs: {old!r} has {len(old.outputs)} results, {new!r} has {len(new.outputs)}. "
                "As many are needed."
            )
        varmap.update(zip(old.outputs, new.outputs))
    return replace_vars(dst, varmap)


def find_vars_by_name(dst: Vars, names: Sequence[str]) -> list[VarNode]:
    """The variables of these names among what ``dst`` are computed from."""
    known = {v.name: v for v in get_dep_vars(dst)}
    missing = [n for n in names if n not in known]
    if missing:
        raise ValueError(f"find_vars_by_name: there is no {', '.join(missing)}; there are {', '.join(sorted(known))}.")
    return [known[n] for n in names]


def convert_inputs(
    dst: Vars, inputs: Sequence[VarNode] | None = None
) -> tuple[list[VarNode], OrderedDict[str, InputNode]]:
    """``dst`` with an InputNode in the place of each input, and these by the names of the inputs."""
    found = _list("convert_inputs", dst)
    given = get_dep_vars(found, "Host2DeviceCopy")[::-1] if inputs is None else list(inputs)
    nodes = OrderedDict(
        (v.name, InputNode(device=v.device, dtype=v.dtype, shape=v.shape, graph=v.graph)) for v in given
    )
    return replace_vars(found, dict(zip(given, (n.outputs[0] for n in nodes.values())))), nodes


def convert_outputs(dst: Vars) -> tuple[list[VarNode], OrderedDict[str, OutputNode]]:
    """Variables to compile, and an OutputNode of each by its name."""
    nodes = OrderedDict((v.name, OutputNode(v)) for v in _list("convert_outputs", dst))
    return [n.outputs[0] for n in nodes.values()], nodes


def embed_inputs(dst: Vars, data: Sequence[Any], inputs: Sequence[VarNode] | None = None) -> list[VarNode]:
    """``dst`` with constants in the place of the inputs, in their order."""
    found = _list("embed_inputs", dst)
    graph: Graph = found[0].graph
    given = get_dep_vars(found, "Host2DeviceCopy")[::-1] if inputs is None else list(inputs)
    if len(given) != len(data):
        raise ValueError(f"embed_inputs: {len(given)} inputs, but {len(data)} values.")
    constants = [graph.make_const(np.asarray(value), dtype=v.dtype, device=v.device) for v, value in zip(given, data)]
    return replace_vars(found, dict(zip(given, constants)))
