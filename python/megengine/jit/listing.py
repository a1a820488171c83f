"""What a recording holds, as ``trace.ops`` and ``trace.vars`` tell it."""

from __future__ import annotations

from typing import Any

from ..core import _core


class OpInfo:
    """One recorded op; inputs and outputs are ids of variables."""

    def __init__(
        self, op: str, type: str, param: dict[str, Any], inputs: list[int], outputs: list[int], scope: str, place: str
    ) -> None:
        self.op, self.type, self.param, self.kind = op, type, param, "unknown"
        self.inputs, self.outputs, self.scope, self.traceback = inputs, outputs, scope, place

    def __repr__(self) -> str:
        return f"OpInfo({self.type}, {self.inputs} -> {self.outputs})"


class VarInfo:
    """One variable: ``external`` ones come from outside, ``internal`` ones are results, ``const`` ones are fixed."""

    def __init__(self, id: int, kind: str, name: str, dtype: str, shape: tuple[int, ...], device: str) -> None:
        self.id, self.kind, self.name, self.dtype, self.shape, self.device = id, kind, name, dtype, shape, device

    def __repr__(self) -> str:
        return f"VarInfo({self.id}, {self.kind}, {self.dtype}{list(self.shape)})"


def listing(recording: _core.Recording | None) -> tuple[list[OpInfo], list[VarInfo]]:
    """Ops and variables of a recording, in the order of the call; empty when there is none."""
    if recording is None:
        return [], []
    ops, variables = recording.listing()
    return [OpInfo(*op) for op in ops], [VarInfo(*v) for v in variables]
