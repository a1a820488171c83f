"""Starts a function in several processes of this machine."""

from __future__ import annotations

import functools
import os
import pickle
import sys
import time
from collections.abc import Callable
from typing import Any

from ..core._core import full_sync
from ..device import divide_threads, get_device_count
from ..logger import get_logger
from .environment import place
from .group import _leave, init_process_group, is_distributed

__all__ = ["launcher"]

WARN_SUBPROCESS_EXIT_WITHOUT_RETURN = "subprocess exited with code 0 but did not return a value"

logger = get_logger(__name__)


class ChildError(RuntimeError):
    """What went wrong in a process that the launcher started, as that process told it."""


class launcher:
    """Decorator: a call starts the function in several processes and returns the list of what they return.

    Each process has called ``init_process_group`` and has its share of the CPU cores, unless ``MGE_NUM_THREADS``,
    ``OMP_NUM_THREADS`` or ``set_num_threads`` say otherwise. When one fails, the others are ended and the call raises
    AssertionError, with the error of that process as its cause. In a process that torchrun, mpirun or srun has started,
    nothing more is started: the function runs in this one.

    Args:
        func: the function.
        n_gpus: how many processes to start here; by default one for each device.
        world_size: how many there are on all machines; by default those of this one.
        rank_start: the first rank of this machine.
        master_ip: the machine of rank 0.
        port: where the server of rank 0 listens; on the machine of rank 0 a free port by default.
        device_type: the kind of device.
        backend: what carries the collectives; on a CPU it is Gloo.

    >>> import megengine.distributed as dist
    >>> @dist.launcher(n_gpus=1)
    ... def work(x):
    ...     return dist.get_rank() + x
    >>> work(5)
    [5]
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if not args:
            return functools.partial(cls, **kwargs)
        return super().__new__(cls)

    def __init__(
        self,
        func: Callable[..., Any],
        n_gpus: int | None = None,
        world_size: int | None = None,
        rank_start: int = 0,
        master_ip: str = "localhost",
        port: int = 0,
        device_type: str = "xpu",
        backend: str = "nccl",
    ) -> None:
        if not callable(func):
            raise TypeError(f"launcher: decorates a function; got a {type(func).__name__}.")
        self.func = func
        self.n_gpus = get_device_count(device_type) if n_gpus is None else n_gpus
        self.world_size = self.n_gpus if world_size is None else world_size
        self.rank_start = rank_start
        self.master_ip = master_ip
        self.port = port
        self.device_type = device_type
        self.backend = backend
        if self.n_gpus < 1:
            raise ValueError(f"launcher: n_gpus, the number of processes, must be at least 1; got {self.n_gpus}.")
        assert self.rank_start + self.n_gpus <= self.world_size, (
            f"launcher: {self.n_gpus} processes from rank {rank_start} on do not fit in world_size={self.world_size}."
        )
        assert rank_start == 0 or port != 0, "launcher: a machine with rank_start above 0 needs the port of rank 0."
        functools.update_wrapper(self, func)

    def __call__(self, *args: Any, **kwargs: Any) -> list[Any]:
        here = place()
        if here is not None:
            return [self._run_here(args, kwargs)]
        if is_distributed():
            raise RuntimeError("launcher: this process is already one of several; start them all in one place.")
        from .server import Server, default_token

        token = default_token()
        if not token and self.world_size == self.n_gpus:
            token = os.urandom(16).hex()
        server = Server(self.port, host=self.master_ip, token=token) if self.rank_start == 0 else None
        port = self.port if server is None else server.py_server_port
        try:
            return _run(self._children(port, token, args, kwargs))
        finally:
            if server is not None:
                server.stop()

    def _run_here(self, args: Any, kwargs: Any) -> Any:
        if not is_distributed():
            init_process_group(backend=self.backend, device_type=self.device_type)
        return self.func(*args, **kwargs)

    def _children(self, port: int, token: str, args: Any, kwargs: Any) -> list[_Child]:
        def body(index: int) -> Any:
            divide_threads(self.n_gpus)
            os.environ["MGE_DIST_TOKEN"] = token
            init_process_group(
                self.master_ip, port, self.world_size, self.rank_start + index, index, self.backend, self.device_type
            )
            result = self.func(*args, **kwargs)
            full_sync()
            return result

        return [_Child(index, self.rank_start + index, body) for index in range(self.n_gpus)]


class _Child:
    """One process and what it says."""

    def __init__(self, index: int, rank: int, body: Callable[[int], Any]) -> None:
        import multiprocessing

        # Forked: the function may be a closure, and its name in its module is the launcher's by now.
        fork = multiprocessing.get_context("fork")
        self.index, self.rank = index, rank
        self.result: Any = None
        self.returned = False
        self.error: tuple[float, str] | None = None
        self.pipe, theirs = fork.Pipe(False)
        self.process = fork.Process(target=_child, args=(theirs, body, index, rank))
        self.process.start()
        theirs.close()

    def read(self) -> None:
        """What it has said: its result, or why it failed. Large ones come while it still runs."""
        try:
            while not self.pipe.closed and self.pipe.poll():
                kind, payload = self.pipe.recv()
                if kind == "result":
                    self.result, self.returned = pickle.loads(payload), True
                else:
                    self.error = payload
        except EOFError:
            self.pipe.close()

    def failure(self) -> AssertionError:
        """What the caller gets."""
        self.process.join(5)
        found = AssertionError(f"subprocess {self.index} exit with code {self.process.exitcode}")
        text = self.error[1] if self.error else "the process ended without a word."
        found.__cause__ = ChildError(f"rank {self.rank}: {text}")
        return found


def _child(pipe: Any, body: Callable[[int], Any], index: int, rank: int) -> None:
    code = 1
    error: BaseException | None = None
    try:
        payload = pickle.dumps(body(index))
        pipe.send(("result", payload))
        code = 0
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else 0 if e.code is None else 1
        error = e if code else None
        if code:
            pipe.send(("error", (time.monotonic(), f"sys.exit({e.code!r})")))
    except BaseException as e:
        import traceback

        error, text = e, traceback.format_exc()
        pipe.send(("error", (time.monotonic(), text)))
        sys.stderr.write("".join(f"[rank {rank}] {line}\n" for line in text.splitlines()))
    try:
        _leave(error)  # after it was told: now the others begin to fail
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        pipe.close()
        os._exit(code)


def _run(children: list[_Child]) -> list[Any]:
    """Wait for all; the first failure ends the rest."""
    from multiprocessing.connection import wait

    try:
        while True:
            running = [c for c in children if c.process.exitcode is None]
            for child in children:
                child.read()
            if any(c.process.exitcode for c in children):
                for child in children:
                    child.read()
                # Others fail because of the first: one that ended without a word, else the one that spoke first.
                failed = [c for c in children if c.error or c.process.exitcode]
                raise min(failed, key=lambda c: c.error[0] if c.error else 0.0).failure()
            if not running:
                break
            open_pipes = [c.pipe for c in children if not c.pipe.closed]
            wait([*open_pipes, *(c.process.sentinel for c in running)])
    finally:
        _end(children)
    if not all(c.returned for c in children):
        logger.warning(WARN_SUBPROCESS_EXIT_WITHOUT_RETURN)
    return [c.result for c in children]


def _end(children: list[_Child]) -> None:
    """End those that still run, at last by force."""
    for child in children:
        if child.process.is_alive():
            child.process.terminate()
    for child in children:
        child.process.join(5)
        if child.process.is_alive():
            child.process.kill()
            child.process.join()
