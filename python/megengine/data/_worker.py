"""The worker processes of a DataLoader, and the side of them that the loader sees."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import random
import select
import signal
import socket
import sys
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import Any

import numpy as np

from ..core import _core
from ._progress import IDLE, Board, describe, here
from ._transport import Channel

_POLL = 1.0  # seconds between looks at whether the other process still lives
_STUCK = 60.0  # seconds without a result after which a loader without timeout says what it waits for

# What a worker answers: a kind and a value.
RESULT, ERROR, END = "result", "error", "end"

Job = tuple[int, list[Any], Any]  # number of the batch, names of its samples, what the fetch function gets
Fetch = Callable[[Any], Any]


class WorkerError(RuntimeError):
    """A worker process is dead or does not answer; the iterator cannot go on."""


class ManagerWatchdog:
    """Tells a worker whether the process that started it still lives."""

    def __init__(self) -> None:
        self.manager_pid = os.getppid()
        self.manager_dead = False

    def is_alive(self) -> bool:
        """False once this process has another parent."""
        self.manager_dead = self.manager_dead or os.getppid() != self.manager_pid
        return not self.manager_dead


def _quiet_start() -> None:
    """Undo in the child what the parent may have set up and would be wrong here."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the loader stops its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.setitimer(signal.ITIMER_REAL, 0)
    gc.freeze()  # what was inherited is the parent's to collect, tensors of its queue among it
    _core.set_num_threads(1)  # the workers share the cores
    _core.set_mode_word(0)  # autocast, if any, is of the training loop
    cv2 = sys.modules.get("cv2")
    if cv2 is not None:
        cv2.setNumThreads(0)  # its threads did not survive the fork; waiting for them would never end
    _keep_pages()


def _keep_pages() -> None:
    """Let glibc keep the memory of one batch's samples for the next one.

    NOTE(perf): it would give that memory back after each batch, and the system clears every page anew: 35 of 62 ms of
    a worker for 64 samples of 3x224x224. The heap stays as large as its largest batch needs.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h
    mallopt(trim_threshold, 1 << 30)
    mallopt(mmap_threshold, 1 << 25)  # the most it takes


def _main(
    index: int, sock: socket.socket, others: Sequence[socket.socket], board: Board, seed: int, start: Any
) -> None:
    """The worker: answers jobs until the loader closes its end or is gone."""
    for other in others:  # inherited ends would keep siblings waiting for a loader that has died
        other.close()
    _quiet_start()
    watchdog = ManagerWatchdog()
    here.board, here.worker = board, index
    random.seed(seed)
    np.random.seed(seed % 2**32)
    fetch: Fetch = start(index, seed)
    channel = Channel(sock)
    try:
        while watchdog.is_alive():
            if not select.select([sock], [], [], _POLL)[0]:
                continue
            job, _ = channel.receive()
            answer = _answer(fetch, job)
            try:
                channel.send(answer)
            except (ConnectionError, EOFError):
                raise
            except BaseException:  # a batch that cannot be pickled, or no memory or file to be had for it
                channel.send((ERROR, _report()))
            here.note(IDLE)
    except (ConnectionError, EOFError):  # the loader closed its end
        pass


def _answer(fetch: Fetch, job: Any) -> tuple[str, Any]:
    try:
        return RESULT, fetch(job)
    except StopIteration:
        return END, None
    except BaseException:
        return ERROR, _report()


def _report() -> tuple[str, str, int]:
    kind = sys.exc_info()[0]
    return kind.__name__ if kind else "Exception", traceback.format_exc(), here.value


class Worker:
    """A worker process as the loader sees it: jobs go in, results come out in the same order."""

    def __init__(self, index: int, siblings: Sequence[Worker], board: Board, seed: int, start: Any) -> None:
        self.index = index
        self.jobs: deque[Job] = deque()
        self.submitted = 0  # how many jobs there have been
        self.ended = False
        self._board = board
        ours, theirs = socket.socketpair()
        self._sock = ours
        self._channel = Channel(ours)
        context = multiprocessing.get_context("fork")
        self._process = context.Process(
            target=_main,
            args=(index, theirs, [ours, *(w._sock for w in siblings)], board, seed, start),
            daemon=True,
            name=f"DataLoader worker {index}",
        )
        # A Ctrl-C that comes before the child ignores it waits until it does.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with warnings.catch_warnings():
                # Python 3.12 warns of any fork beside threads; a worker touches nothing those threads may hold.
                warnings.simplefilter("ignore", DeprecationWarning)
                self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            theirs.close()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def submit(self, job: Job) -> None:
        """Queue a job. Jobs are small in the socket, so this does not wait for the worker."""
        self.jobs.append(job)
        self.submitted += 1
        self._sock.settimeout(10.0)
        try:
            self._channel.send(job[2])
        except TimeoutError:
            raise self._stuck(10.0) from None
        except OSError:
            pass  # it is gone; collect() says how
        except BaseException:  # cannot be pickled
            self.jobs.pop()
            raise

    def collect(self, timeout: float) -> tuple[str, Any, int]:
        """(kind, value, bytes) for the oldest job; ``timeout`` 0 waits as long as the worker lives."""
        began = time.monotonic()
        told = 0
        while True:
            waited = time.monotonic() - began
            if timeout and waited >= timeout:
                raise self._stuck(timeout)
            slice_ = min(_POLL, timeout - waited) if timeout else _POLL
            alive = self._process.is_alive()  # asked before looking, so that a last answer is not missed
            ready = wait([self._sock, self._process.sentinel], slice_ if alive else 0)
            if self._sock in ready or select.select([self._sock], [], [], 0)[0]:
                return self._read(timeout or None)
            if not alive:
                raise self._dead()
            if not timeout and waited > _STUCK * (told + 1):
                told += 1
                _warn(
                    f"DataLoader: waiting for {waited:.0f} s; worker {self.index} (pid {self.pid}) is {self.doing()}."
                )

    def _read(self, timeout: float | None) -> tuple[str, Any, int]:
        self._sock.settimeout(timeout)
        try:
            (kind, value), size = self._channel.receive()
        except TimeoutError:
            raise self._stuck(timeout or 0) from None
        except (EOFError, ConnectionError):
            self._process.join(5)
            raise self._dead() from None
        return kind, value, size

    def doing(self) -> str:
        """The worker's present activity in words."""
        if not self.jobs:
            return "idle"
        batch, samples, _ = self.jobs[0]
        return describe(self._board.read(self.index), batch, samples)

    def _dead(self) -> WorkerError:
        code = self._process.exitcode
        hint = " (SIGKILL: often the system ran out of memory)" if code == -signal.SIGKILL else ""
        return WorkerError(
            f"DataLoader worker (worker(s): {self.index}, pid(s): {self.pid}) exited unexpectedly, "
            f"exitcode(s): {code}{hint}, while {self.doing()}."
        )

    def _stuck(self, timeout: float) -> WorkerError:
        return WorkerError(
            f"dataloader timeout: no batch for {timeout:g} s; worker {self.index} (pid {self.pid}) is {self.doing()}. "
            "Raise DataLoader(timeout=) if samples take that long."
        )

    def close(self) -> None:
        """Tell the worker to end; it does so after its present job."""
        self._channel.close()

    def stop(self, patience: float) -> None:
        """Wait for the end, then make it."""
        self._process.join(patience)
        for end in (self._process.terminate, self._process.kill):
            if not self._process.is_alive():
                break
            end()
            self._process.join(1.0)
        if not self._process.is_alive():
            self._process.close()


def stop_all(workers: Sequence[Worker], owner: int, patience: float = 0.5) -> None:
    """End all workers. Does nothing in a forked copy of the loader, whose workers these are not."""
    if os.getpid() != owner:
        return
    for w in workers:
        w.close()
    deadline = time.monotonic() + patience
    for w in workers:
        w.stop(max(0.0, deadline - time.monotonic()))


def _warn(text: str) -> None:
    from ..logger import get_logger

    get_logger(__name__).warning(text)
