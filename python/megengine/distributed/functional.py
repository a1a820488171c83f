"""Collectives: what several processes compute together. A group of one does nothing, and its gradient is the same.

The root of a group is the first rank of its list. All processes of a group call the same collectives in the same order,
with tensors of the same shape and dtype.
"""

from __future__ import annotations

from typing import Any

from ..core import _core
from ..tensor import Tensor
from .group import WORLD, Group, get_rank, get_world_size

__all__ = [
    "all_gather",
    "all_reduce_max",
    "all_reduce_min",
    "all_reduce_sum",
    "all_to_all",
    "broadcast",
    "collective_comm",
    "gather",
    "reduce_scatter_sum",
    "reduce_sum",
    "remote_recv",
    "remote_send",
    "scatter",
]


def _checked(who: str, inp: Any, group: Any, axes: tuple[int, ...] = (), divide: bool = False) -> None:
    """Refuses what would otherwise be noticed on another process, or not at all."""
    if not isinstance(group, Group):
        raise TypeError(f"{who}: group must be a Group, WORLD or one of new_group; got a {type(group).__name__}.")
    if not isinstance(inp, Tensor):
        raise TypeError(f"{who}: needs a Tensor; got a {type(inp).__name__}.")
    for axis in axes:
        if not -inp.ndim <= axis < inp.ndim:
            raise _core.UserError(f"{who}: the tensor of shape {inp.shape} has no axis {axis}.")
    if divide:
        assert inp.shape[axes[0]] % group.size == 0, (
            f"{who}: axis {axes[0]} of {inp.shape} is not a multiple of the {group.size} processes."
        )


def _alone(inp: Tensor, device: str | None) -> Tensor:
    """The result of a group of one: the same value in a tensor of its own."""
    return inp.to(device) if device else Tensor(inp)


def reduce_sum(inp: Tensor, group: Group = WORLD, device: str | None = None) -> Tensor | None:
    """The sum over the group, on the root; None elsewhere.

    >>> F.distributed.reduce_sum(mge.tensor([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """
    _checked("reduce_sum", inp, group)
    return _alone(inp, device)


def broadcast(inp: Tensor, group: Group = WORLD, device: str | None = None) -> Tensor:
    """The root's value everywhere; what others give is only a placeholder."""
    _checked("broadcast", inp, group)
    return _alone(inp, device)


def all_gather(inp: Tensor, group: Group = WORLD, device: str | None = None, axis: int = 0) -> Tensor:
    """The tensors of all, one after the other along ``axis``, everywhere."""
    _checked("all_gather", inp, group, (axis,))
    return _alone(inp, device)


def reduce_scatter_sum(inp: Tensor, group: Group = WORLD, device: str | None = None, axis: int = 0) -> Tensor:
    """The sum over the group, cut along ``axis``: each process gets its piece."""
    _checked("reduce_scatter_sum", inp, group, (axis,), True)
    return _alone(inp, device)


def all_reduce_sum(inp: Tensor, group: Group = WORLD, device: str | None = None) -> Tensor:
    """The sum over the group, everywhere."""
    _checked("all_reduce_sum", inp, group)
    return _alone(inp, device)


def all_reduce_max(inp: Tensor, group: Group = WORLD, device: str | None = None) -> Tensor:
    """The largest of the group for each element, everywhere."""
    _checked("all_reduce_max", inp, group)
    return _alone(inp, device)


def all_reduce_min(inp: Tensor, group: Group = WORLD, device: str | None = None) -> Tensor:
    """The smallest of the group for each element, everywhere."""
    _checked("all_reduce_min", inp, group)
    return _alone(inp, device)


def gather(inp: Tensor, group: Group = WORLD, device: str | None = None, axis: int = 0) -> Tensor | None:
    """The tensors of all, one after the other along ``axis``, on the root; None elsewhere."""
    _checked("gather", inp, group, (axis,))
    return _alone(inp, device)


def scatter(inp: Tensor, group: Group = WORLD, device: str | None = None, axis: int = 0) -> Tensor:
    """The root's tensor, cut along ``axis``: each process gets its piece."""
    _checked("scatter", inp, group, (axis,), True)
    return _alone(inp, device)


def all_to_all(
    inp: Tensor, group: Group = WORLD, device: str | None = None, split_axis: int = 0, concat_axis: int = 0
) -> Tensor:
    """Everyone cuts its tensor along ``split_axis``, sends piece i to process i, and joins what it gets along
    ``concat_axis``."""
    _checked("all_to_all", inp, group, (split_axis, concat_axis), True)
    return _alone(inp, device)


def _checked_peer(who: str, rank: int) -> None:
    if not 0 <= rank < get_world_size() or rank == get_rank():
        raise _core.UserError(
            f"{who}: there is no other process of rank {rank}; this is rank {get_rank()} of {get_world_size()}."
        )


def remote_send(inp: Tensor, dest_rank: int) -> None:
    """Send a tensor to a process, which calls ``remote_recv``; its gradient comes back."""
    _checked("remote_send", inp, WORLD)
    _checked_peer("remote_send", dest_rank)


def remote_recv(src_rank: int, device: str | None = None, inp: Tensor | None = None) -> Tensor:
    """The tensor that a process sends by ``remote_send``."""
    _checked_peer("remote_recv", src_rank)
    raise AssertionError


#: What ``collective_comm`` calls by the name of its mode.
_MODES = {
    "REDUCE_SUM": reduce_sum,
    "BROADCAST": broadcast,
    "ALL_GATHER": all_gather,
    "REDUCE_SCATTER_SUM": reduce_scatter_sum,
    "ALL_REDUCE_SUM": all_reduce_sum,
    "ALL_REDUCE_MAX": all_reduce_max,
    "ALL_REDUCE_MIN": all_reduce_min,
    "GATHER": gather,
    "SCATTER": scatter,
    "ALL_TO_ALL": all_to_all,
}


def collective_comm(inp: Tensor, mode: Any, group: Group, device: str | None) -> Tensor | None:
    """The collective that ``mode`` names, for example ``"all_reduce_sum"``."""
    name = getattr(mode, "name", str(mode)).upper()
    if name not in _MODES:
        raise ValueError(f"collective_comm: mode must be one of {', '.join(_MODES)}; got {mode!r}.")
    result: Tensor | None = _MODES[name](inp, group, device)
    return result
