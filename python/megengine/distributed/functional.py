"""Collectives: what several processes compute together. A group of one does nothing, and its gradient is the same.

The root of a group is the first rank of its list. All processes of a group call the same collectives in the same order,
with tensors of the same shape and dtype. A call returns at once; whoever uses the result waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core import _core
from ..core._core import ops
from ..core.autodiff import sessions
from ..tensor import Tensor
from . import _plain
from . import group as _group
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

#: Why a trace that has such a call runs Python each time: all ranks must agree each time, or none.
_HOST = "a collective with a root, or a message, agrees with the other processes on the host"

Backward = Callable[[Tensor | None], Tensor | None]


# ---- those in which all are alike: ops with a gradient of their own


def all_reduce_sum(inp: Tensor, group: Group = WORLD, device: str | None = None) -> Tensor:
    """The sum over the group, everywhere, added up in the order of ranks.

    >>> F.distributed.all_reduce_sum(mge.tensor([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """
    return _all_reduce("sum", inp, group, device)


def all_reduce_max(inp: Tensor, group: Group = WORLD, device: str | None = None) -> Tensor:
    """The largest of the group for each element, everywhere."""
    return _all_reduce("max", inp, group, device)


def all_reduce_min(inp: Tensor, group: Group = WORLD, device: str | None = None) -> Tensor:
    """The smallest of the group for each element, everywhere."""
    return _all_reduce("min", inp, group, device)


def _all_reduce(mode: str, inp: Tensor, group: Group, device: str | None) -> Tensor:
    _checked(f"all_reduce_{mode}", inp, group)
    if group.size == 1:
        return _alone(inp, device)
    return _at(ops.dist_all_reduce(inp, mode=mode, **group.attrs), device)


def all_gather(inp: Tensor, group: Group = WORLD, device: str | None = None, axis: int = 0) -> Tensor:
    """The tensors of all, one after the other along ``axis``, everywhere."""
    _checked("all_gather", inp, group, (axis,))
    if group.size == 1:
        return _alone(inp, device)
    return _at(_swapped(ops.dist_all_gather(_swapped(inp, axis), **group.attrs), axis), device)


def reduce_scatter_sum(inp: Tensor, group: Group = WORLD, device: str | None = None, axis: int = 0) -> Tensor:
    """The sum over the group, cut along ``axis``: each process gets its piece."""
    _checked("reduce_scatter_sum", inp, group, (axis,), True)
    if group.size == 1:
        return _alone(inp, device)
    return _at(ops.dist_reduce_scatter(_recut(inp, group.size, axis, 0), mode="sum", **group.attrs), device)


def all_to_all(
    inp: Tensor, group: Group = WORLD, device: str | None = None, split_axis: int = 0, concat_axis: int = 0
) -> Tensor:
    """Everyone cuts its tensor along ``split_axis``, sends piece i to process i, and joins what it gets along
    ``concat_axis``."""
    _checked("all_to_all", inp, group, (split_axis, concat_axis), True)
    if group.size == 1:
        return _alone(inp, device)
    pieces = ops.dist_all_to_all(_recut(inp, group.size, split_axis, 0), **group.attrs)
    return _at(_recut(pieces, group.size, 0, concat_axis), device)


# ---- those with a root. Off it there may be no result, or an input that nothing depends on; backward needs all of them
# nevertheless, so everyone is told who follows the computation, and in backward whether there is a gradient.


def reduce_sum(inp: Tensor, group: Group = WORLD, device: str | None = None) -> Tensor | None:
    """The sum over the group, on the root; None elsewhere.

    >>> F.distributed.reduce_sum(mge.tensor([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """
    _checked("reduce_sum", inp, group)
    if group.size == 1:
        return _alone(inp, device)

    blank = _Blank(inp)

    def backward(grad: Tensor | None) -> Tensor | None:
        if not _agreed(group, grad is not None)[0]:
            return None
        return ops.dist_broadcast(blank() if grad is None else grad, root=0, **group.attrs)

    followed = any(_agreed(group, _core.is_tracked([inp])))
    out = _followed(followed, inp, lambda x: ops.dist_reduce(x, mode="sum", root=0, **group.attrs), backward)
    return _at(out, device) if group.rank == 0 else None


def broadcast(inp: Tensor | None, group: Group = WORLD, device: str | None = None) -> Tensor:
    """The root's value everywhere; what others give is only a placeholder."""
    if group.rank == 0 or inp is not None:
        _checked("broadcast", inp, group)
    if group.size == 1:
        assert inp is not None
        return _alone(inp, device)
    x, followed = _roots(inp, group, inp)
    blank = _Blank(x)

    def backward(grad: Tensor | None) -> Tensor | None:
        if not any(_agreed(group, grad is not None)):
            return None
        total = ops.dist_reduce(blank() if grad is None else grad, mode="sum", root=0, **group.attrs)
        return total if group.rank == 0 else None

    return _at(_followed(followed, x, lambda x: ops.dist_broadcast(x, root=0, **group.attrs), backward), device)


def gather(inp: Tensor, group: Group = WORLD, device: str | None = None, axis: int = 0) -> Tensor | None:
    """The tensors of all, one after the other along ``axis``, on the root; None elsewhere."""
    _checked("gather", inp, group, (axis,))
    if group.size == 1:
        return _alone(inp, device)
    first = _swapped(inp, axis)
    blank = _Blank(first)

    def backward(grad: Tensor | None) -> Tensor | None:
        if not _agreed(group, grad is not None)[0]:
            return None
        whole = blank(group.size) if grad is None else grad
        return ops.dist_scatter(whole, root=0, **group.attrs)

    followed = any(_agreed(group, _core.is_tracked([inp])))
    out = _followed(followed, first, lambda x: ops.dist_gather(x, root=0, **group.attrs), backward)
    return _at(_swapped(out, axis), device) if group.rank == 0 else None


def scatter(inp: Tensor | None, group: Group = WORLD, device: str | None = None, axis: int = 0) -> Tensor:
    """The root's tensor, cut along ``axis``: each process gets its piece."""
    if group.rank == 0:
        _checked("scatter", inp, group, (axis,), True)
    if group.size == 1:
        assert inp is not None
        return _alone(inp, device)
    x, followed = _roots(None if group.rank or inp is None else _recut(inp, group.size, axis, 0), group, inp)
    blank = _Blank(x)

    def backward(grad: Tensor | None) -> Tensor | None:
        if not any(_agreed(group, grad is not None)):
            return None
        piece = blank(1, group.size) if grad is None else grad
        whole = ops.dist_gather(piece, root=0, **group.attrs)
        return whole if group.rank == 0 else None

    return _at(_followed(followed, x, lambda x: ops.dist_scatter(x, root=0, **group.attrs), backward), device)


# ---- from one process to another


def remote_send(inp: Tensor, dest_rank: int) -> None:
    """Send a tensor to a process, which calls ``remote_recv``; its gradient comes back in ``backward``."""
    followed = _core.is_tracked([inp]) if isinstance(inp, Tensor) else False
    key = _send(inp, dest_rank, followed)
    shape, dtype = list(inp._tuple_shape), inp.dtype

    def backward(_: Tensor | None) -> Tensor | None:
        if not _plain.loads(_group._store().pop(f"{key} gradient").decode()):
            return None
        return ops.dist_recv(peer=dest_rank, shape=shape, dtype=dtype, **WORLD.attrs)

    _followed(followed, inp, lambda x: ops.dist_send(x, peer=dest_rank, **WORLD.attrs), backward)


def remote_recv(src_rank: int, device: str | None = None, inp: Tensor | None = None) -> Tensor:
    """The tensor that a process sends by ``remote_send``.

    Args:
        src_rank: who sends.
        device: where the tensor is to be.
        inp: a tensor that the result is taken to depend on; it gets no gradient.
    """
    _checked_peer("remote_recv", src_rank)
    _core.needs_host(_HOST)
    key = _next_key(src_rank, get_rank())
    shape, dtype, followed = _plain.loads(_group._store().pop(key).decode())

    def backward(grad: Tensor | None) -> Tensor | None:
        _group._store().set(f"{key} gradient", _plain.dumps(grad is not None).encode())
        if grad is not None:
            ops.dist_send(grad, peer=src_rank, **WORLD.attrs)
        return None

    def receive(_: Tensor) -> Tensor:
        return ops.dist_recv(peer=src_rank, shape=shape, dtype=dtype, **WORLD.attrs)

    return _at(_followed(followed, _nothing() if inp is None else inp, receive, backward), device)


def _remote_send_nobackward(inp: Tensor, dest_rank: int) -> None:
    """``remote_send`` to ``_remote_recv_nobackward``."""
    _checked("remote_send", inp, WORLD)
    _checked_peer("remote_send", dest_rank)
    ops.dist_send(inp, peer=dest_rank, **WORLD.attrs)


def _remote_recv_nobackward(
    src_rank: int, device: str | None = None, inp: Tensor | None = None, shape: Any = None, dtype: Any = None
) -> Tensor:
    """The tensor that a process sends by ``_remote_send_nobackward``, whose shape and dtype are known here."""
    _checked_peer("remote_recv", src_rank)
    if inp is not None:
        shape, dtype = inp._tuple_shape if shape is None else shape, inp.dtype if dtype is None else dtype
    if shape is None or dtype is None:
        raise TypeError("_remote_recv_nobackward: needs shape and dtype, or a tensor that has them as inp.")
    return _at(ops.dist_recv(peer=src_rank, shape=list(shape), dtype=dtype, **WORLD.attrs), device)


def _send(inp: Any, dest_rank: int, followed: bool) -> str:
    """Tells the receiver what is coming; the key of the message."""
    _checked("remote_send", inp, WORLD)
    _checked_peer("remote_send", dest_rank)
    _core.needs_host(_HOST)
    key = _next_key(get_rank(), dest_rank)
    text = _plain.dumps([list(inp._tuple_shape), str(inp.dtype), followed])
    _group._store().set(key, text.encode())
    return key


_messages: dict[tuple[int, int], int] = {}  # how many there have been from one rank to another


def _next_key(source: int, dest: int) -> str:
    _messages[source, dest] = count = _messages.get((source, dest), 0) + 1
    return f"message {source}>{dest} {count}"


# ---- helpers


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


def _checked_peer(who: str, rank: int) -> None:
    if not 0 <= rank < get_world_size() or rank == get_rank():
        raise _core.UserError(
            f"{who}: there is no other process of rank {rank}; this is rank {get_rank()} of {get_world_size()}."
        )


def _alone(inp: Tensor, device: str | None) -> Tensor:
    """The result of a group of one: the same value in a tensor of its own."""
    return inp.to(device) if device else Tensor(inp)


def _at(x: Tensor, device: str | None) -> Tensor:
    return x.to(device) if device else x


def _swapped(x: Tensor, axis: int) -> Tensor:
    """With ``axis`` in the place of the first."""
    order = list(range(x.ndim))
    order[0], order[axis] = order[axis], order[0]
    return x if axis in (0, -x.ndim) else x.transpose(*order)


def _recut(x: Tensor, n: int, split: int, join: int) -> Tensor:
    """Cut into ``n`` pieces along one axis and join them along another."""
    split, join = split % x.ndim, join % x.ndim
    if split == join:
        return x
    size = x.shape[split] // n
    return ops.concat(*(_part(x, split, i * size, (i + 1) * size) for i in range(n)), axis=join)


def _part(x: Tensor, axis: int, begin: int, end: int) -> Tensor:
    return x[(slice(None),) * axis + (slice(begin, end),)]


class _Blank:
    """Zeros where only shape and dtype matter, or a gradient that is not there."""

    def __init__(self, like: Tensor) -> None:
        self._shape, self._dtype, self._device = like._tuple_shape, like.dtype, like.device

    def __call__(self, times: int = 1, part: int = 1) -> Tensor:
        """As many times longer along the first axis, and as many times shorter."""
        zero = Tensor(np.zeros((), self._dtype), device=self._device)
        shape = self._shape
        return ops.broadcast_to(zero, shape=[shape[0] * times // part, *shape[1:]] if shape else [])


def _nothing() -> Tensor:
    return Tensor(np.zeros(0, np.float32))


def _agreed(group: Group, mine: Any) -> list[Any]:
    """What each process of the group says, in their order."""
    _core.needs_host(_HOST)
    return [_plain.loads(text.decode()) for text in group.native.exchange(_plain.dumps(mine).encode())]


def _roots(inp: Tensor | None, group: Group, source: Tensor | None) -> tuple[Tensor, bool]:
    """The root's tensor, or on others one of its shape and dtype; and whether it is followed."""
    mine = None
    if group.rank == 0:
        assert inp is not None and source is not None
        mine = [list(inp._tuple_shape), str(inp.dtype), _core.is_tracked([source])]
    shape, dtype, followed = _agreed(group, mine)[0]
    if group.rank == 0:
        assert inp is not None
        return inp, followed
    return ops.broadcast_to(Tensor(np.zeros((), dtype)), shape=shape), followed


def _followed(followed: bool, x: Tensor, forward: Callable[[Tensor], Tensor], backward: Backward) -> Tensor:
    """``forward(x)``; ``backward`` gives the gradient of x from that of the result, or from None, in every session."""
    if not followed or not sessions.thread.open:
        return forward(x)
    if not _core.is_tracked([x]):
        x = Tensor(x)
        sessions.follow(x)
    out = Tensor(_core.run_untracked([x], lambda: forward(x)))
    anchor = _nothing()
    _core.set_custom_grad(_Rule(backward), [x], [out, anchor])
    sessions.keep(anchor)
    return out


class _Rule:
    """The gradient of a collective, told apart from that of its anchor."""

    def __init__(self, backward: Backward) -> None:
        self._backward = backward

    def __call__(self, grad: Any, _: Any) -> Tensor | None:
        return self._backward(None if grad is None else Tensor(grad))


#: What ``collective_comm`` calls by the name of its mode.
_MODES: dict[str, Callable[..., Tensor | None]] = {
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
    return _MODES[name](inp, group, device)
