"""Process groups: who takes part, and which of them this process is. On its own a process is a group of one."""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .. import device as _device
from ..core import _core
from ..random import seed
from . import environment

if TYPE_CHECKING:
    from .server import Client, Server

__all__ = [
    "Group",
    "StaticData",
    "WORLD",
    "get_backend",
    "get_client",
    "get_local_device_id",
    "get_mm_server_addr",
    "get_py_server_addr",
    "get_rank",
    "get_world_size",
    "group_barrier",
    "group_end",
    "group_start",
    "init_process_group",
    "is_distributed",
    "new_group",
    "override_backend",
]


class StaticData:
    """What ``init_process_group`` found out: one per process."""

    server: Server | None = None
    client: Client | None = None
    master_ip: str | None = None
    py_server_port: int | None = None
    mm_server_port: int | None = None
    world_size: int | None = None
    proc_rank: int | None = None
    device: int | None = None
    backend: str | None = None
    device_type: str | None = None
    machine_ranks: list[int] | None = None
    store: Any = None  # of the engine, which groups meet over
    host: str = "127.0.0.1"  # where other processes reach this one
    token: str = ""


_sd: StaticData | None = None
_natives: list[Any] = []  # the engine's groups, in the order they were made
_made: dict[str, int] = {}  # how many groups of the same ranks there have been: members count alike, so names agree


def _state() -> StaticData:
    assert _sd is not None, "please call init_process_group first"
    return _sd


class Group:
    """Some processes of the job, in an order; the first is the root.

    >>> import megengine.distributed as dist
    >>> dist.WORLD.size, dist.WORLD.rank
    (1, 0)
    """

    proc_ranks: list[int]

    def __init__(self, proc_ranks: Sequence[int]) -> None:
        self.proc_ranks = []
        self._stream = 0
        self._name = ""
        self._native: Any = None
        self._attrs: dict[str, Any] = {}
        if len(proc_ranks) > 0:  # without: WORLD, which is this process alone until init_process_group
            self.reset(proc_ranks)

    def reset(self, proc_ranks: Sequence[int]) -> None:
        """Make it a group of other processes."""
        self.check(proc_ranks)
        self.proc_ranks = [int(r) for r in proc_ranks]
        self._stream = _device._sh.get_next() if is_distributed() else 0
        _made[self.key] = count = _made.get(self.key, 0) + 1
        self._name = f"{self.key}#{count}"
        self._native = None

    def check(self, proc_ranks: Sequence[int]) -> None:
        """Refuses ranks that cannot be a group of this process."""
        ranks, rank, size = list(proc_ranks), get_rank(), get_world_size()
        assert all(isinstance(r, int) and 0 <= r < size for r in ranks), (
            f"Group: ranks must be numbers from 0 to {size - 1}, there are {size} processes; got {ranks}."
        )
        assert len(set(ranks)) == len(ranks), f"Group: a rank is listed twice; got {ranks}."
        assert rank in ranks, f"Group: rank {rank} makes a group that it is not in; got {ranks}."

    def __copy__(self) -> Group:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Group:
        return self  # a copied network is synchronised among the same processes

    def __getstate__(self) -> dict[str, Any]:
        """As MegEngine 1.13 writes a group; all processes, whose number differs from job to job, as None."""
        ranks = None if self.__dict__ is WORLD.__dict__ else self.proc_ranks
        return {"proc_ranks": ranks, "stream": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        ranks = state.get("proc_ranks")
        if not ranks:  # one with WORLD, whatever becomes of that
            self.__dict__ = WORLD.__dict__
            return
        self._stream, self._name, self._native, self._attrs = 0, "", None, {}
        self.proc_ranks = list(ranks)  # looked at when the group is first used: there may be no processes yet

    @property
    def size(self) -> int:
        """How many processes."""
        return len(self.proc_ranks) or 1

    @property
    def key(self) -> str:
        """The ranks as text, the root first."""
        return ",".join(map(str, self.proc_ranks)) or "0"

    @property
    def rank(self) -> int:
        """The place of this process in the group."""
        return self.proc_ranks.index(get_rank()) if self.proc_ranks else 0

    @property
    def native(self) -> Any:
        """The engine's group. The first use waits until all processes of the group have come to theirs."""
        if self._native is None:
            sd = _state()
            if not self._name:  # from a file
                self.reset(self.proc_ranks)
            self._native = _core.dist.Group(self._name, self.rank, self.size, store=_store(), host=sd.host)
            self._attrs = {"group": self._name, "rank": self.rank, "size": self.size}
            _natives.append(self._native)
        return self._native

    @property
    def attrs(self) -> dict[str, Any]:
        """What a collective's op is told of the group."""
        if self._native is None:
            _ = self.native
        return self._attrs

    @property
    def comp_node(self) -> str:
        """Device and stream of the group."""
        kind, number = (_sd.device_type, _sd.device) if _sd is not None else (_device.what_is_xpu(), 0)
        return f"{kind}{number}:{self._stream}"

    @property
    def is_single_machine(self) -> bool:
        """Whether all of its processes are on this machine."""
        if _sd is None or _sd.machine_ranks is None:
            return True
        return set(self.proc_ranks) <= set(_sd.machine_ranks)

    def __repr__(self) -> str:
        return f"Group([{', '.join(map(str, self.proc_ranks))}])"


#: All processes. One process until ``init_process_group``.
WORLD = Group([])

_DEVICES = ("cpu", "gpu", "cuda", "rocm", "cambricon", "atlas")
_BACKENDS = ("auto", "gloo", "nccl", "rccl", "cncl", "hccl")


def init_process_group(
    master_ip: str | None = None,
    port: int | None = None,
    world_size: int | None = None,
    rank: int | None = None,
    device: int | None = None,
    backend: str = "auto",
    device_type: str = "xpu",
) -> None:
    """Make this process one of several.

    Without ``master_ip`` the environment says who this process is (docs/distributed.md), and rank 0 starts the server.
    Otherwise a ``Server`` must be running at the address.

    Args:
        master_ip: the machine of the server.
        port: its ``py_server_port``.
        world_size: how many processes there are.
        rank: which of them this is.
        device: the number of its device; on a CPU it is only remembered.
        backend: ``"auto"`` takes the one of the device: Gloo on a CPU.
        device_type: ``"xpu"`` is the best there is.
    """
    global _sd
    here = None
    if master_ip in ("nccl", "gloo", "mpi"):
        raise ValueError(
            f"init_process_group: master_ip is an address; got {master_ip!r}. Leave it out under a launcher; backend= "
            "chooses what carries the collectives, and 'auto' is right."
        )
    if master_ip is None:
        here = _place(port, world_size, rank)
        master_ip, port, world_size, rank = here.master, here.port, here.world_size, here.rank
        device = here.local_rank if device is None else device
    _check_types(master_ip=master_ip, port=port, world_size=world_size, rank=rank, device=device)
    assert port is not None and world_size is not None and rank is not None and device is not None
    _check_backend(backend)
    kind = _checked_device(device_type)
    assert _sd is None, "init_process_group: called a second time; a process joins its group once."
    assert 0 <= rank < world_size, f"init_process_group: rank {rank} is none of {world_size} processes."
    sd = StaticData()
    sd.master_ip, sd.world_size, sd.proc_rank, sd.device = master_ip, world_size, rank, device
    sd.backend, sd.device_type = _resolved(backend, kind), kind
    if here is not None:
        _meet_by_environment(sd, port)
    else:
        sd.py_server_port = port
        if world_size > 1:
            sd.token = os.environ.get("MGE_DIST_TOKEN", "")
            _join(sd, [port], None)
    if world_size > 1:
        _introduce(sd)
    sd.host = _own_address(master_ip)
    _sd = sd
    WORLD.reset(range(world_size))
    if world_size > 1:
        # Now, when all are here anyway: a message between two of them must not wait for a third one's first collective.
        _ = WORLD.native
        atexit.register(_leave_at_exit)
        seed(int(time.time()) + rank)


def _place(*given: int | None) -> environment.Place:
    """Who this process is by its environment."""
    if any(g is not None for g in given):
        raise TypeError(
            "init_process_group: give master_ip, port, world_size, rank and device, or none of the first four."
        )
    found = environment.place()
    if found is None:
        raise RuntimeError(
            "init_process_group: nothing in the environment says which process this is. Start it with torchrun, mpirun "
            "or srun, or set MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE, or give master_ip, port, world_size, rank "
            "and device."
        )
    return found


def _check_types(**given: Any) -> None:
    for name, value in given.items():
        want = str if name == "master_ip" else int
        if not isinstance(value, want) or isinstance(value, bool):
            raise TypeError(f"init_process_group: {name}: Expect type {want.__name__} but got {type(value)}")


def _checked_device(device_type: str) -> str:
    kind = _device.what_is_xpu() if device_type == "xpu" else device_type
    if kind not in _DEVICES:
        raise ValueError(f"{device_type} is not a valid distributed device type; those are xpu, {', '.join(_DEVICES)}.")
    if kind != "cpu":
        raise NotImplementedError(f"init_process_group: this build has no {kind}; processes on the CPU work, 'cpu'.")
    return kind


def _meet_by_environment(sd: StaticData, port: int) -> None:
    """Rank 0 starts the server where the others look for it."""
    from .server import Server

    assert sd.master_ip is not None
    if sd.world_size == 1:
        sd.py_server_port = port
        return
    token, ports = environment.token(), environment.ports(port)
    sd.token = token
    if sd.proc_rank == 0:
        sd.server = Server.at(sd.master_ip, ports, token)
        ports = [sd.server.py_server_port]
    _join(sd, ports, token)


def _join(sd: StaticData, ports: list[int], token: str | None) -> None:
    from .server import Client

    assert sd.master_ip is not None
    sd.client = Client.at(sd.master_ip, ports, token, sd.proc_rank)
    sd.py_server_port = sd.client.port
    sd.mm_server_port = sd.client.get_mm_server_port()


def _introduce(sd: StaticData) -> None:
    """Everyone says where it runs; those on this machine share its cores."""
    assert sd.client is not None and sd.world_size is not None
    cpus = sorted(os.sched_getaffinity(0))
    mine = {"machine": _machine(), "cpus": cpus}
    everyone = sd.client.all_values(mine, "init_process_group", sd.world_size)
    sd.machine_ranks = [r for r, other in enumerate(everyone) if other["machine"] == mine["machine"]]
    shared = set().union(*(everyone[r]["cpus"] for r in sd.machine_ranks))
    _device.divide_threads(len(sd.machine_ranks), len(shared))


def _own_address(master: str) -> str:
    """The address by which the others reach this process: ``MGE_DIST_HOST``, or the one that faces the server."""
    import socket

    if "MGE_DIST_HOST" in os.environ:
        return os.environ["MGE_DIST_HOST"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((master, 9))  # sends nothing; only chooses a way
        return str(probe.getsockname()[0])


def _machine() -> str:
    """What tells this machine from others, and a container from its neighbours."""
    import socket

    try:
        with open("/proc/sys/kernel/random/boot_id") as f:
            return f"{socket.gethostname()} {f.read().strip()}"
    except OSError:
        return socket.gethostname()


def _store() -> Any:
    """This process's connection to the engine's store."""
    sd = _state()
    if sd.store is None:
        assert sd.master_ip is not None and sd.mm_server_port is not None
        sd.store = _core.dist.Store(sd.master_ip, sd.mm_server_port, token=sd.token)
    return sd.store


def _leave(error: BaseException | None = None) -> None:
    """The end of this process: what is on its way is finished, or the others hear why it is not."""
    while _natives:
        native = _natives.pop()
        if native.failed is None:
            if error is None:
                native.wait()
            else:
                native.abort(f"{type(error).__name__}: {error}")
        native.close()


def _leave_at_exit() -> None:
    _leave(getattr(sys, "last_value", None))  # what the interpreter has just shown as not caught


def is_distributed() -> bool:
    """Whether ``init_process_group`` was called."""
    return _sd is not None


def get_rank() -> int:
    """Which of the processes this is; 0 on its own."""
    return 0 if _sd is None or _sd.proc_rank is None else _sd.proc_rank


def get_world_size() -> int:
    """How many processes there are; 1 on its own."""
    return 1 if _sd is None or _sd.world_size is None else _sd.world_size


def get_local_device_id() -> int:
    """The number of this process's device; 0 on its own."""
    return 0 if _sd is None or _sd.device is None else _sd.device


def get_backend() -> str:
    """What carries the collectives."""
    return str(_state().backend)


def get_py_server_addr() -> tuple[str, int]:
    """Address and port of the ``Server``."""
    sd = _state()
    assert sd.master_ip is not None and sd.py_server_port is not None
    return sd.master_ip, sd.py_server_port


def get_mm_server_addr() -> tuple[str, int]:
    """Address and port of the store that collectives meet at."""
    sd = _state()
    assert sd.master_ip is not None and sd.mm_server_port is not None
    return sd.master_ip, sd.mm_server_port


def get_client() -> Client:
    """This process's connection to the ``Server``."""
    sd = _state()
    assert sd.client is not None
    return sd.client


def new_group(proc_ranks: Sequence[int]) -> Group:
    """A group of some of the processes; every one of them calls this."""
    return Group(proc_ranks)


def group_barrier(group: Group = WORLD) -> None:
    """Wait until all processes of the group are here; nothing to wait for on its own."""
    if group.size > 1:
        get_client().group_barrier(group.key, group.size)


def _check_backend(backend: str) -> None:
    if backend not in _BACKENDS:
        raise ValueError(f"backend should be one of {', '.join(_BACKENDS)} but got {backend}")


def _set_backend(backend: str) -> None:
    _check_backend(backend)
    sd = _state()
    sd.backend = _resolved(backend, str(sd.device_type))


@contextmanager
def override_backend(new_backend: str) -> Iterator[None]:
    """Inside, collectives are carried by another backend.

    >>> import megengine.distributed as dist
    >>> with dist.override_backend("auto"):
    ...     pass
    """
    _check_backend(new_backend)
    if _sd is None:
        yield
        return
    before, _sd.backend = _sd.backend, _resolved(new_backend, str(_sd.device_type))
    try:
        yield
    finally:
        _sd.backend = before


def _resolved(backend: str, device_type: str) -> str:
    """The backend that carries collectives of a device: on a CPU there is one, whatever a program for GPUs asks for."""
    return "gloo" if device_type == "cpu" else "nccl" if backend == "auto" else backend


def group_start() -> None:
    """Begin of sends and receives that may happen in any order; here they always may."""


def group_end() -> None:
    """End of what ``group_start`` began."""
