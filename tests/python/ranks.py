"""Runs a test's function in several real processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from typing import Any

import megengine.distributed as dist


def ranks(n: int, func: Callable[..., Any], *args: Any) -> list[Any]:
    """What ``func(*args)`` returns in each of ``n`` processes; a hang ends in an error after a while."""
    before = os.environ.get("MGE_DIST_TIMEOUT")
    os.environ["MGE_DIST_TIMEOUT"] = before or "60"
    try:
        return dist.launcher(func, n_gpus=n)(*args)
    finally:
        if before is None:
            del os.environ["MGE_DIST_TIMEOUT"]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def without_launchers() -> dict[str, str]:
    """The environment without what a launcher of processes would have set."""
    prefixes = ("OMPI_", "PMIX_", "SLURM_", "TORCHELASTIC_", "MGE_DIST_")
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    return {k: v for k, v in os.environ.items() if not k.startswith(prefixes) and k not in names}


def torchrun_env(rank: int, size: int, port: int) -> dict[str, str]:
    """What torchrun 2.x sets for each process of one machine."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(size),
        "ROLE_NAME": "default",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "OMP_NUM_THREADS": "1",
    }


def slurm_env(rank: int, size: int, port: int) -> dict[str, str]:
    """What srun sets, as far as it matters, and the job script of the example."""
    return {
        "SLURM_JOB_ID": "17",
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
        "SLURM_NTASKS": str(size),
        "SLURM_STEP_NUM_TASKS": str(size),
        "SLURM_STEP_NODELIST": "localhost",
        "MASTER_PORT": str(port),
    }


def plain_env(rank: int, size: int, port: int) -> dict[str, str]:
    """What a script, a Ray task or a pod sets."""
    return {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


class Job:
    """Processes started one by one, each with an environment of its own."""

    def __init__(self, *, seconds: float = 60) -> None:
        self.processes: list[subprocess.Popen[str]] = []
        self.until = time.monotonic() + seconds

    def start(self, command: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command, env={**without_launchers(), **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.processes.append(process)
        return process

    def output(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        """Exit code and what was written; a process that hangs is an error of the test."""
        said = process.communicate(timeout=max(1.0, self.until - time.monotonic()))[0]
        return process.returncode, said

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.communicate()


def script(code: str) -> list[str]:
    """A program with the usual imports, as a command. Line 10 is the first of ``code``."""
    head = """\
import os, sys, time
import numpy as np
import megengine as mge
import megengine.distributed as dist
import megengine.functional as F
from megengine.autodiff import GradManager
D = F.distributed
dist.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()
"""
    return [sys.executable, "-c", head + textwrap.dedent(code).lstrip("\n")]


def together(n: int, code: str, env: Callable[[int, int, int], dict[str, str]] = plain_env, **extra: str) -> list[Any]:
    """Exit code and output of ``n`` processes that run the program."""
    port = free_port()
    with Job() as job:
        processes = [job.start(script(code), {**env(r, n, port), **extra}) for r in range(n)]
        return [job.output(p) for p in processes]
