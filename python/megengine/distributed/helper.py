"""Training with several processes: gradients added up in buckets while backward goes on, parameters made equal."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar
from weakref import WeakSet

import numpy as np

from ..core._core import ops
from ..core.autodiff.sessions import get_backwarding
from ..tensor import Tensor
from ..utils.deprecation import deprecated_func
from ..utils.future import Future
from . import group as _group
from .functional import all_reduce_sum
from .group import WORLD, Group, group_barrier

__all__ = [
    "AllreduceCallback",
    "TensorFuture",
    "bcast_list_",
    "get_device_count_by_fork",
    "get_offsets",
    "make_allreduce_cb",
    "pack_allreduce_split",
    "param_pack_concat",
    "param_pack_split",
    "synchronized",
]

F = TypeVar("F", bound=Callable[..., Any])


def get_offsets(shapes: Iterable[Sequence[int]]) -> list[int]:
    """Where tensors of these shapes begin and end in one vector: ``[begin, end, begin, end, ...]``.

    >>> from megengine.distributed.helper import get_offsets
    >>> get_offsets([(2, 3), (), (4,)])
    [0, 6, 6, 7, 7, 11]
    """
    offsets, end = [], 0
    for shape in shapes:
        offsets += [end, end + math.prod(shape)]
        end = offsets[-1]
    return offsets


def _checked_offsets(who: str, offsets: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """The offsets as numbers, if they are in order and hold tensors of these sizes."""
    found = [int(o) for o in (offsets.tolist() if isinstance(offsets, Tensor) else offsets)]
    if len(found) != 2 * len(sizes):
        raise ValueError(f"{who}: {len(sizes)} tensors need {2 * len(sizes)} offsets; got {len(found)}.")
    for i, size in enumerate(sizes):
        begin, end = found[2 * i : 2 * i + 2]
        if end - begin != size or begin < (found[2 * i - 1] if i else 0):
            raise ValueError(f"{who}: offsets {begin} to {end} do not hold tensor {i} of {size} elements; got {found}.")
    return found


def param_pack_split(inp: Tensor, offsets: Sequence[int], shapes: Sequence[Sequence[int]]) -> tuple[Tensor, ...]:
    """The tensors that lie one after the other in a vector; one without axes comes as ``(1,)``.

    >>> from megengine.distributed.helper import param_pack_split
    >>> [x.tolist() for x in param_pack_split(F.arange(4), [0, 1, 1, 4], [(1,), (3,)])]
    [[0.0], [1.0, 2.0, 3.0]]
    """
    at = _checked_offsets("param_pack_split", offsets, [math.prod(s) for s in shapes])
    return tuple(inp[at[2 * i] : at[2 * i + 1]].reshape(tuple(s) or (1,)) for i, s in enumerate(shapes))


def param_pack_concat(inps: Sequence[Tensor], offsets: Any, offsets_val: Sequence[int]) -> Tensor:
    """One vector of several tensors, each from its first offset to its second; zeros in between.

    Args:
        inps: tensors of one dtype.
        offsets: ``offsets_val`` as a tensor; not looked at.
        offsets_val: where each begins and ends.

    >>> from megengine.distributed.helper import param_pack_concat
    >>> param_pack_concat([F.ones((2,)), F.zeros((1, 1))], None, [0, 2, 2, 3]).tolist()
    [1.0, 1.0, 0.0]
    """
    at = _checked_offsets("param_pack_concat", offsets_val, [math.prod(x._tuple_shape) for x in inps])
    pieces: list[Tensor] = []
    end = 0
    for i, x in enumerate(inps):
        if at[2 * i] > end:
            pieces.append(Tensor(np.zeros(at[2 * i] - end, x.dtype), device=x.device))
        pieces.append(x.reshape(-1))
        end = at[2 * i + 1]
    return ops.concat(*pieces, axis=0)


def pack_allreduce_split(
    pack_list: Sequence[Tensor], shapes: Sequence[Sequence[int]], group: Group, reduce_method: str
) -> tuple[Tensor, ...]:
    """Add up several tensors over the group in one message.

    >>> from megengine.distributed import WORLD
    >>> from megengine.distributed.helper import pack_allreduce_split
    >>> [x.tolist() for x in pack_allreduce_split([F.ones((2,)), F.zeros((1,))], [(2,), (1,)], WORLD, "mean")]
    [[1.0, 1.0], [0.0]]
    """
    bucket = _Bucket(pack_list, shapes, group)
    return bucket.split(reduce_method)


class _Bucket:
    """Several tensors on their way as one; nothing waits until they are asked for."""

    def __init__(self, tensors: Sequence[Tensor], shapes: Sequence[Sequence[int]], group: Group) -> None:
        self.shapes, self.group = shapes, group
        self.offsets = get_offsets(shapes)
        self.sum = all_reduce_sum(param_pack_concat(tensors, None, self.offsets), group)

    def split(self, reduce_method: str) -> tuple[Tensor, ...]:
        """The sums, or the means."""
        whole = self.sum / self.group.size if reduce_method == "mean" else self.sum
        return param_pack_split(whole, self.offsets, self.shapes)


class TensorFuture(Future):
    """A tensor that is still on its way."""

    def _now(self) -> Tensor:
        if not self._ready.is_set():
            raise RuntimeError("TensorFuture: the tensor is not there yet; it is when backward returns.")
        value: Tensor = self._value
        return value

    def device(self) -> Any:
        """Where the tensor is."""
        return self._now().device

    def numpy(self) -> Any:
        """Its value."""
        return self._now().numpy()

    def shape(self) -> Any:
        """Its shape."""
        return self._now().shape

    def dtype(self) -> Any:
        """Its dtype."""
        return self._now().dtype


class AllreduceCallback:
    """For ``GradManager.attach``: gradients are added up over the group, or averaged.

    They travel in buckets of about 10 MiB, each as soon as it is full, while backward goes on.

    Args:
        reduce_method: ``"sum"`` or ``"mean"``.
        group: whose gradients.
        backend: what carries them; by default that of ``init_process_group``.

    >>> import megengine.distributed as dist
    >>> from megengine.autodiff import GradManager
    >>> x = mge.tensor([3.0])
    >>> with GradManager().attach(x, callbacks=dist.make_allreduce_cb("mean")) as gm:
    ...     gm.backward(x * x)
    >>> x.grad.tolist()
    [6.0]
    """

    def __init__(self, reduce_method: str, group: Group = WORLD, backend: str | None = None) -> None:
        method = reduce_method.lower() if isinstance(reduce_method, str) else reduce_method
        assert method in ("sum", "mean"), f"reduce_method should be sum or mean; got {reduce_method!r}."
        if backend is not None:
            _group._check_backend(backend)
        self._reduce_method = method
        self._group = group
        self._marked_gm: WeakSet[Any] = WeakSet()
        self._param_pack_thd = 10 * 1024 * 1024  # bytes
        self._reset()

    def _reset(self) -> None:
        self._filling: defaultdict[str, list[tuple[Tensor, TensorFuture]]] = defaultdict(list)  # by dtype
        self._bytes: defaultdict[str, int] = defaultdict(int)
        self._sent: list[tuple[_Bucket, list[TensorFuture]]] = []

    def __call__(self, param: Tensor, grad: Tensor) -> Any:
        if self._group.size == 1:
            return grad
        manager = get_backwarding()
        assert manager is not None, "AllreduceCallback: is for GradManager.attach; there is no backward that calls it."
        if manager not in self._marked_gm:
            manager._register_after_backward_callback(self._flush)
            self._marked_gm.add(manager)
        future = TensorFuture(ack=False)
        name = str(grad.dtype)
        self._filling[name].append((grad, future))
        self._bytes[name] += math.prod(grad._tuple_shape) * grad.dtype.itemsize
        if self._bytes[name] > self._param_pack_thd:
            self._pack(name)
        return future

    def _pack(self, name: str) -> None:
        """Send what has come together of one dtype."""
        waiting = self._filling.pop(name, [])
        self._bytes.pop(name, None)
        if waiting:
            grads = [grad for grad, _ in waiting]
            bucket = _Bucket(grads, [g._tuple_shape for g in grads], self._group)
            self._sent.append((bucket, [future for _, future in waiting]))

    def _flush(self) -> None:
        """The end of backward: send the rest, and hand out what has come back."""
        try:
            for name in sorted(self._filling):
                self._pack(name)
            for bucket, futures in self._sent:
                for future, shape, grad in zip(futures, bucket.shapes, bucket.split(self._reduce_method), strict=True):
                    future.set(grad if shape else grad.reshape(()))
        finally:
            self._reset()


make_allreduce_cb = AllreduceCallback


def bcast_list_(inps: Iterable[Tensor], group: Group = WORLD) -> None:
    """Give each tensor the value it has on the root of the group.

    >>> import megengine.distributed as dist
    >>> dist.bcast_list_(M.Linear(2, 3).parameters())
    """
    for inp in inps:
        assert isinstance(inp, Tensor), f"bcast_list_: needs Tensors; got {type(inp).__name__}."
        if group.size > 1:
            inp._reset(ops.dist_broadcast(inp, root=0, **group.attrs))


def synchronized(func: F) -> F:
    """A decorator: all processes leave the function together.

    >>> import megengine.distributed as dist
    >>> @dist.synchronized
    ... def save():
    ...     return "saved"
    >>> save()
    'saved'
    """

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        group_barrier()
        return result

    return wrapper  # type: ignore[return-value]


get_device_count_by_fork = deprecated_func("1.6", "megengine.device", "get_device_count", False)
