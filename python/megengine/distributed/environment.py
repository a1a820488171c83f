"""What the environment says of this process's place in a job: torchrun, mpirun, srun, Ray and Kubernetes set it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["Place", "first_host", "place", "ports", "token"]


class Place(NamedTuple):
    """Where this process stands among those of its job."""

    launcher: str  # whose variables said so
    rank: int
    world_size: int
    local_rank: int
    master: str
    port: int


class _Names(NamedTuple):
    """The variables of one way to start processes."""

    launcher: str
    rank: str
    world_size: str
    local_rank: str


# In this order: torchrun inside a SLURM job sets its own beside SLURM's. The variables of a SLURM step, not of the job:
# a batch script has the latter and is one process.
_KNOWN = (
    _Names("RANK and WORLD_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK"),
    _Names("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    _Names("SLURM", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
)
_TOKENS = (("MGE_DIST_TOKEN",), ("TORCHELASTIC_RUN_ID",), ("PMIX_NAMESPACE",), ("SLURM_JOB_ID", "SLURM_STEP_ID"))
DEFAULT_PORT = 29500  # what torchrun takes too


def place(env: Mapping[str, str] | None = None) -> Place | None:
    """This process's place by the environment; None when nobody set one.

    >>> from megengine.distributed.environment import place
    >>> place({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "4000"})
    Place(launcher='RANK and WORLD_SIZE', rank=1, world_size=2, local_rank=1, master='10.0.0.1', port=4000)
    >>> place({}) is None
    True
    """
    env = os.environ if env is None else env
    for names in _KNOWN:
        if names.rank in env and names.world_size in env:
            rank, size = _number(env, names.rank), _number(env, names.world_size)
            if not 0 <= rank < size:
                raise ValueError(f"environment: {names.rank}={rank} is no rank of {names.world_size}={size} processes.")
            local = _number(env, names.local_rank) if names.local_rank in env else rank
            port = _number(env, "MASTER_PORT") if "MASTER_PORT" in env else DEFAULT_PORT
            return Place(names.launcher, rank, size, local, _master(env, names.launcher, size), port)
    return None


def token(env: Mapping[str, str] | None = None) -> str:
    """What keeps two jobs apart: the secret ``MGE_DIST_TOKEN``, else the number that the launcher gave the job."""
    env = os.environ if env is None else env
    for names in _TOKENS:
        if all(n in env for n in names):
            return ".".join(env[n] for n in names)
    return ""


def ports(port: int, env: Mapping[str, str] | None = None) -> list[int]:
    """Where the server of rank 0 may be. torchrun itself listens on MASTER_PORT, so the next ones are taken."""
    env = os.environ if env is None else env
    if env.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return list(range(port + 1, port + 9))
    return [port]


#: How many processes of the job are on this machine.
_LOCAL_SIZE = {
    "RANK and WORLD_SIZE": "LOCAL_WORLD_SIZE",
    "Open MPI": "OMPI_COMM_WORLD_LOCAL_SIZE",
    "SLURM": "SLURM_TASKS_PER_NODE",
}


def _number(env: Mapping[str, str], name: str) -> int:
    try:
        return int(env[name])
    except ValueError:
        raise ValueError(f"environment: {name} should be a number; it is {env[name]!r}.") from None


def _master(env: Mapping[str, str], launcher: str, size: int) -> str:
    """The machine of rank 0."""
    if "MASTER_ADDR" in env:
        return env["MASTER_ADDR"]
    if launcher == "SLURM" and "SLURM_STEP_NODELIST" in env:
        return first_host(env["SLURM_STEP_NODELIST"])
    if env.get(_LOCAL_SIZE[launcher]) == str(size):
        return "127.0.0.1"
    raise ValueError(
        f"environment: {launcher} says there are {size} processes, and nothing says where rank 0 is. Set MASTER_ADDR "
        "to the name of its machine (127.0.0.1 when all are on this one), and MASTER_PORT."
    )


def first_host(nodes: str) -> str:
    """The first of SLURM's list of nodes.

    >>> from megengine.distributed.environment import first_host
    >>> first_host("gpu[003-007,12],login"), first_host("a1,a2")
    ('gpu003', 'a1')
    """
    head, bracket, rest = nodes.partition("[")
    if not bracket or "," in head:
        return nodes.split(",")[0]
    inside, _, tail = rest.partition("]")
    return head + inside.split(",")[0].split("-")[0] + tail.split(",")[0]
