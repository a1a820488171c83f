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
from ..tensor import Tensor

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


def _is_of_network(var: Any) -> bool:
    return isinstance(var, Tensor) and hasattr(var, "owner")


def _any_list(who: str, given: Any) -> list[Any]:
    """Those of ``megengine.utils.network`` may be looked at, too."""
    found = list(given) if isinstance(given, (list, tuple)) else [given]
    return found if found and all(map(_is_of_network, found)) else _list(who, found)


def _op_of(var: Any) -> Any:
    return var.owner if _is_of_network(var) else var.op


def get_dep_vars(var: Vars, var_type: str | Sequence[str] | None = None) -> list[VarNode]:
    """What variables are computed from, themselves included, nearest first; only those made by ops of a type.

    Args:
        var: a variable, or several.
        var_type: ``"Host2DeviceCopy"`` for inputs, ``"ImmutableTensor"`` for constants, or the type of an op.
    """
    types = None if var_type is None else {var_type} if isinstance(var_type, str) else set(var_type)
    queue, seen, found = deque(_any_list("get_dep_vars", var)), set(), []
    while queue:
        v = queue.popleft()
        if v.id in seen:
            continue
        seen.add(v.id)
        if types is None or get_owner_opr_type(v) in types:
            found.append(v)
        queue.extend(_op_of(v).inputs)
    return found


def get_owner_opr_inputs(var: VarNode) -> list[VarNode]:
    """The inputs of the op that makes a variable."""
    return list(_op_of(var).inputs)


def get_owner_opr_type(var: VarNode) -> str:
    """The type of the op that makes a variable."""
    kind: str = _op_of(var).type
    return "Host2DeviceCopy" if kind == "InputCallback" else kind


def get_opr_type(opr: OpNode) -> str:
    """The type of an op."""
    assert isinstance(opr, OpNode), f"get_opr_type: an op of a graph is needed; got {type(opr).__name__}."
    return opr.type


def graph_traversal(
    outputs: Vars,
) -> tuple[
    dict[int, OpNode],
    dict[int, VarNode],
    dict[int, list[tuple[int, int]]],
    dict[int, list[int]],
    dict[int, list[int]],
    dict[int, int],
]:
    """Everything that outputs need: ``(map_oprs, map_vars, var2oprs, opr2receivers, indegree2opr, opr2indegree)``.

    Ops by id; by id the variables that ops read; who reads each of them, as (id of the op, place among its inputs);
    the ops that read an op; ops by the number of variables they read, and that number of each op.
    """
    oprs: dict[int, OpNode] = {}
    variables: dict[int, VarNode] = {}
    readers: dict[int, list[tuple[int, int]]] = {}
    receivers: dict[int, list[int]] = {}
    degree: dict[int, int] = {}
    for v in get_dep_vars(outputs):
        op = _op_of(v)
        if op.id in oprs:
            continue
        oprs[op.id] = op
        for place, i in enumerate(op.inputs):
            variables[i.id] = i
            readers.setdefault(i.id, []).append((op.id, place))
            receivers.setdefault(_op_of(i).id, []).append(op.id)
        degree[op.id] = len(op.inputs)
    by_degree: dict[int, list[int]] = {}
    for key, n in degree.items():
        receivers.setdefault(key, [])
        by_degree.setdefault(n, []).append(key)
    return oprs, variables, readers, receivers, by_degree, degree


def get_oprs_seq(outputs: Vars, prune_reshape: bool = False, prune_immtensor: bool = True) -> list[OpNode]:
    """The ops that outputs need, in an order in which they can run: inputs and constants stand before their first user.

    Args:
        outputs: variables.
        prune_reshape: leave out what only computes the sizes that reshapes give.
        prune_immtensor: leave out constants.
    """

    def read(op: OpNode) -> Sequence[VarNode]:
        return op.inputs[:1] if prune_reshape and op.type == "Reshape" else op.inputs

    needed: dict[int, OpNode] = {}
    stack = [v.op for v in _list("get_oprs_seq", outputs)]
    while stack:
        op = stack.pop()
        if op.id not in needed:
            needed[op.id] = op
            stack += [v.op for v in read(op)]
    done: OrderedDict[int, OpNode] = OrderedDict()
    todo = [(key, False) for key in sorted(needed, key=lambda k: (not needed[k].inputs, k), reverse=True)]
    while todo:
        key, ready = todo.pop()
        if key in done:
            continue
        sources = [v.op for v in read(needed[key])]
        if ready:
            done.update((o.id, o) for o in (*(o for o in sources if not o.inputs), needed[key]) if o.id not in done)
        else:
            todo.append((key, True))
            todo += [(o.id, False) for o in reversed(sources) if o.inputs and o.id not in done]
    return [op for op in done.values() if not (prune_immtensor and op.type == "ImmutableTensor")]


def replace_vars(dst: Vars, varmap: Mapping[VarNode, VarNode]) -> list[VarNode]:
    """``dst`` as they are with other variables in the place of some; the graph keeps the old ones beside them."""
    found = _list("replace_vars", dst)
    graph = found[0].graph
    if not varmap:
        return found
    old = _check_vars("replace_vars", varmap.keys(), graph)
    new = _check_vars("replace_vars", varmap.values(), graph)
    ids = graph._ir.replaced([v._at for v in found], [v._at for v in old], [v._at for v in new])
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
    assert not missing, f"find_vars_by_name: no {', '.join(missing)} in this graph; it has {', '.join(sorted(known))}."
    return [known[n] for n in names]


def _inputs_of(found: list[VarNode]) -> list[VarNode]:
    return sorted(get_dep_vars(found, "Host2DeviceCopy"), key=lambda v: v.id)


def convert_inputs(
    dst: Vars, inputs: Sequence[VarNode] | None = None
) -> tuple[list[VarNode], OrderedDict[str, InputNode]]:
    """``dst`` with an InputNode in the place of each input, and these by the names of the inputs."""
    found = _list("convert_inputs", dst)
    given = _inputs_of(found) if inputs is None else list(inputs)
    nodes = OrderedDict(
        (v.name, InputNode(device=v.device, dtype=v.dtype, shape=v.shape, graph=v.graph)) for v in given
    )
    results = replace_vars(found, dict(zip(given, (n.outputs[0] for n in nodes.values()))))
    for old, new in zip(found, results):
        if old is not new:
            new.name = old.name
    return results, nodes


def convert_outputs(dst: Vars) -> tuple[list[VarNode], OrderedDict[str, OutputNode]]:
    """Variables to compile, and an OutputNode of each by its name."""
    nodes = OrderedDict((v.name, OutputNode(v)) for v in _list("convert_outputs", dst))
    return [n.outputs[0] for n in nodes.values()], nodes


def embed_inputs(
    dst: Vars, data: Sequence[Any], inputs: Sequence[VarNode] | None = None
) -> tuple[list[VarNode], OrderedDict[str, VarNode]]:
    """``dst`` with constants in the place of the inputs, in their order; and these by the names of the inputs."""
    found = _list("embed_inputs", dst)
    graph: Graph = found[0].graph
    given = _inputs_of(found) if inputs is None else list(inputs)
    assert len(given) == len(data), f"embed_inputs: {len(given)} inputs, but {len(data)} values."
    constants = [graph.make_const(np.asarray(value), dtype=v.dtype, device=v.device) for v, value in zip(given, data)]
    named = OrderedDict((v.name, constant) for v, constant in zip(given, constants))
    return replace_vars(found, dict(zip(given, constants))), named
