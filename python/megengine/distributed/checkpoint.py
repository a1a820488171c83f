"""Checkpoints of which every process writes its part: state that is cut up among processes, and state that all have.

A folder holds one file per process and ``index.json``, which is written last and names them. A save that does not get
to its end leaves what was there before. Another number of processes can go on from it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.files import replacing
from ..serialization import load, save
from ..tensor import Tensor
from .group import WORLD, Group, get_client, group_barrier

__all__ = ["Shard", "load_sharded", "save_sharded"]

INDEX = "index.json"


@dataclass
class Shard:
    """This process's part of a tensor that is cut along ``axis``, in the order of ranks, into equal parts."""

    part: Any
    axis: int = 0


def save_sharded(state: Any, folder: str, group: Group = WORLD) -> None:
    """Every process of the group writes its part of ``state`` into the folder.

    Args:
        state: dicts, lists and tuples of what ``megengine.save`` takes, and of ``Shard``. What is no Shard is the same
            on all processes, and rank 0 writes it.
        folder: where; it is made. All processes see the same one.
        group: who takes part.

    >>> import tempfile
    >>> from megengine.distributed.checkpoint import Shard, load_sharded, save_sharded
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_sharded({"step": 3, "moment": Shard(mge.tensor([1.0, 2.0]))}, folder)
    ...     state = load_sharded(folder)
    >>> state["step"], state["moment"].part.tolist()
    (3, [1.0, 2.0])
    """
    os.makedirs(folder, exist_ok=True)
    mark = os.urandom(8).hex() if group.rank == 0 else None
    if group.size > 1:
        mark = get_client().bcast_val(mark, f"save_sharded {group.key}", group.size)
    shards: list[Any] = []
    rest = _walk(state, lambda s: _taken(s, shards))
    # Named by the save, so that nothing of the one before is overwritten until this one is complete.
    save({"shards": shards, "rest": rest if group.rank == 0 else None}, _path(folder, mark, group.rank, group.size))
    group_barrier(group)
    if group.rank == 0:
        index = {"format": 1, "save": mark, "size": group.size, "axes": [s["axis"] for s in shards]}
        with replacing(os.path.join(folder, INDEX)) as f:
            f.write(json.dumps(index).encode())
        for name in os.listdir(folder):
            if name.startswith("save-") and not name.startswith(f"save-{mark}-"):
                os.remove(os.path.join(folder, name))
    group_barrier(group)


def load_sharded(folder: str, group: Group = WORLD) -> Any:
    """What ``save_sharded`` wrote, with this process's part in every ``Shard``.

    With as many processes as wrote it, each reads its own file. Otherwise the parts are joined and cut anew.
    """
    try:
        with open(os.path.join(folder, INDEX), "rb") as f:
            index = json.loads(f.read())
    except FileNotFoundError:
        raise FileNotFoundError(f"load_sharded: {folder} has no {INDEX}, so no save into it was completed.") from None
    mark, size = str(index["save"]), int(index["size"])
    first = _read(folder, mark, 0, size)
    if size == group.size:
        parts = (first if group.rank == 0 else _read(folder, mark, group.rank, size))["shards"]
    else:
        files = [first["shards"], *(_read(folder, mark, r, size)["shards"] for r in range(1, size))]
        parts = [_cut(list(same), group) for same in zip(*files, strict=True)]
    return _walk(first["rest"], lambda s: s, lambda at: Shard(parts[at]["part"], parts[at]["axis"]))


def _path(folder: str, mark: Any, rank: int, size: int) -> str:
    return os.path.join(folder, f"save-{mark}-{rank:05d}-of-{size:05d}")


def _read(folder: str, mark: str, rank: int, size: int) -> Any:
    path = _path(folder, mark, rank, size)
    if not os.path.exists(path):
        raise FileNotFoundError(f"load_sharded: {INDEX} names {path}, which is not there; copy the whole folder.")
    return load(path)


_PLACE = "__shard__"


def _taken(shard: Shard, shards: list[Any]) -> dict[str, int]:
    """Puts a shard on the list; what stands in its place."""
    shards.append({"part": shard.part, "axis": shard.axis})
    return {_PLACE: len(shards) - 1}


def _walk(node: Any, shard: Callable[[Shard], Any], place: Callable[[int], Any] | None = None) -> Any:
    """A copy of the tree with other things in the place of its shards, or of what stands for them."""
    if isinstance(node, Shard):
        return shard(node)
    if isinstance(node, dict):
        if place is not None and set(node) == {_PLACE}:
            return place(node[_PLACE])
        return {key: _walk(value, shard, place) for key, value in node.items()}
    if isinstance(node, (list, tuple)):
        return type(node)(_walk(value, shard, place) for value in node)
    return node


def _cut(parts: list[Any], group: Group) -> dict[str, Any]:
    """The part of this process, of the parts of all that wrote."""
    axis = parts[0]["axis"]
    arrays = [p["part"].numpy() if isinstance(p["part"], Tensor) else np.asarray(p["part"]) for p in parts]
    whole = np.concatenate(arrays, axis)
    if whole.shape[axis] % group.size:
        raise ValueError(
            f"load_sharded: a tensor of shape {whole.shape}, cut along axis {axis} among {len(parts)} processes when "
            f"saved, cannot be cut equally among {group.size}."
        )
    mine = np.split(whole, group.size, axis)[group.rank]
    return {"part": Tensor(mine) if isinstance(parts[0]["part"], Tensor) else mine, "axis": axis}
