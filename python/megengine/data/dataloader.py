"""The loader: samples of a dataset, transformed and joined into batches, by this process or by workers."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from ..core.tensor.utils import KindError
from ._progress import COLLATE, IDLE, TRANSFORM, Board, describe, here
from ._worker import END, ERROR, Worker, WorkerError, stop_all
from ._worker import ManagerWatchdog as ManagerWatchdog
from .collator import Collator
from .dataset.meta_dataset import Dataset, StreamDataset
from .sampler import Infinite, MapSampler, SequentialSampler, StreamSampler
from .transform.meta_transform import CudaTransform, PseudoTransform, Transform

__all__ = ["DataLoader", "get_worker_info"]

GLOBAL_TIMEOUT = 5
_IN_FLIGHT = 2  # batches per worker that are asked for ahead


class WorkerInfo:
    """What a worker is: ``idx`` its number, ``worker`` its process, ``seed`` of its random generators. Read-only."""

    def __init__(self, **kwargs: Any) -> None:
        self.__dict__.update(kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        raise RuntimeError(f"WorkerInfo: {name} cannot be set; a worker's information is read-only.")

    def __repr__(self) -> str:
        return f"WorkerInfo({', '.join(f'{k}={v}' for k, v in self.__dict__.items())})"


_worker_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """The worker this runs in; None in the process of the loader. A stream uses it to give each worker its own part."""
    return _worker_info


#: Keywords of other loaders, and what says the same here.
_ELSEWHERE = {
    "batch_size": "give a sampler, which knows it: RandomSampler(dataset, batch_size={}) or SequentialSampler",
    "shuffle": "give a sampler: RandomSampler(dataset, batch_size) shuffles, SequentialSampler does not",
    "drop_last": "say it to the sampler: RandomSampler(dataset, batch_size, drop_last={})",
    "batch_sampler": "pass it as sampler: samplers give batches of indices",
    "collate_fn": "pass an object with apply(samples) as collator",
    "pin_memory": "not needed; preload=True makes Tensors",
    "worker_init_fn": "see get_worker_info()",
}


def _unexpected(given: dict[str, Any]) -> TypeError:
    known = "dataset, sampler, transform, collator, num_workers, timeout, preload, parallel_stream"
    ways = "".join(f" {k}: {_ELSEWHERE[k].format(v)}." for k, v in given.items() if k in _ELSEWHERE)
    return TypeError(
        f"DataLoader: got an unexpected keyword argument {', '.join(map(repr, given))}; it takes {known}.{ways}"
    )


def raise_timeout_error() -> None:
    """Raise what a loader raises when a batch takes longer than its ``timeout``."""
    raise RuntimeError("dataloader timeout")


class DataLoader:
    """An iterable of batches.

    Args:
        dataset: a ``Dataset``, or a ``StreamDataset``.
        sampler: which samples form a batch; by default one after the other, one per batch.
        transform: what is done to the samples of a batch.
        collator: what joins them; a ``Collator`` by default.
        num_workers: processes that prepare batches ahead; 0 prepares them here, when they are asked for. The order of
            batches is the sampler's in either case.
        timeout: seconds a batch may take before it is an error; 0 for no limit.
        preload: give Tensors instead of arrays.
        parallel_stream: each worker iterates the stream itself (see ``get_worker_info``); otherwise this process
            iterates it and workers transform.

    An exception in a worker is raised here as RuntimeError with the worker's traceback and the sample's index, after
    all batches before it; the next ``next`` goes on with the batch behind it. A worker that dies, or takes longer than
    ``timeout``, ends the iteration with a RuntimeError that names the sample it was at.

    >>> from megengine.data.dataset import ArrayDataset
    >>> loader = mge.data.DataLoader(ArrayDataset(np.arange(3)), preload=True)
    >>> next(iter(loader))
    [Tensor([0], dtype=int32, device=xpux:0)]
    """

    def __init__(
        self,
        dataset: Any,
        sampler: Any = None,
        transform: Transform | None = None,
        collator: Any = None,
        num_workers: int = 0,
        timeout: int = 0,
        preload: bool = False,
        parallel_stream: bool = False,
        **other: NoReturn,
    ) -> None:
        if other:
            raise _unexpected(other)
        for name, number in (("num_workers", num_workers), ("timeout", timeout)):
            if not isinstance(number, (int, float)):
                raise TypeError(f"DataLoader: {name} must be an int; got {number!r}.")
            if number < 0:
                raise ValueError(f"DataLoader: {name} should not be negative; got {number}.")
        if not isinstance(dataset, Dataset):
            raise KindError(
                f"DataLoader: Can not recognize this kind of dataset: {type(dataset)}. ArrayDataset(x, y) makes one of "
                "arrays and lists; others derive from Dataset."
            )
        stream = isinstance(dataset, StreamDataset)
        self.datakind = "stream" if stream else "map"
        wanted = StreamSampler if stream else MapSampler
        if sampler is None:
            sampler = StreamSampler(batch_size=1) if stream else SequentialSampler(dataset, batch_size=1)
        inner = sampler.sampler if isinstance(sampler, Infinite) else sampler
        if not isinstance(inner, wanted):
            ways = "StreamSampler(batch_size)" if stream else "SequentialSampler or RandomSampler(dataset, batch_size)"
            raise KindError(
                f"DataLoader: types of dataset and sampler do not match: sampler is a {type(inner).__name__}, "
                f"dataset a {type(dataset).__name__}, which needs {ways}."
            )
        for name, given, method in (("transform", transform, "apply_batch"), ("collator", collator, "apply")):
            if given is not None and not callable(getattr(given, method, None)):
                kind = "Transform" if name == "transform" else "Collator"
                raise TypeError(
                    f"DataLoader: {name} must be a {kind}, an object with {method}(); got a {type(given).__name__}. "
                    f"Derive a class from {kind} and put the function into its apply()."
                )
        self.dataset = dataset
        self.sampler = sampler
        self.transform = PseudoTransform() if transform is None else transform
        self.collator = Collator() if collator is None else collator
        # Without fork (Windows) and in Android's Termux, batches are prepared here.
        self.num_workers = num_workers if hasattr(os, "fork") and "com.termux" not in sys.prefix else 0
        self.timeout = timeout
        self.preload = preload
        self.parallel_stream = parallel_stream
        self._batch_bytes = 0  # of the largest batch that came from a worker

    def __iter__(self) -> PreLoader:
        kind = {
            ("map", False): _SerialMapDataLoaderIter,
            ("map", True): _ParallelMapDataLoaderIter,
            ("stream", False): _SerialStreamDataLoaderIter,
            ("stream", True): _ParallelStreamDataLoaderIter,
        }[self.datakind, self.num_workers > 0]
        return kind(self, self.preload)

    def __len__(self) -> int:
        return len(self.sampler)

    def check_memory_rationality(self) -> None:
        """Warn when the batches that workers prepare ahead would fill more than half of the free memory."""
        ahead = _IN_FLIGHT * self.num_workers * self._batch_bytes
        free = _free_memory()
        if free is not None and ahead > free // 2:
            from ..logger import get_logger

            get_logger(__name__).warning(
                f"DataLoader: {self.num_workers} workers hold up to {ahead >> 20} MiB of batches ahead, and "
                f"{free >> 20} MiB of memory are free. Use fewer workers or smaller batches."
            )


def _free_memory() -> int | None:
    """Bytes this process may still use, by the system and by its control group; None when unknown."""
    found: list[int] = []
    try:
        with open("/proc/meminfo") as f:
            found += [int(line.split()[1]) * 1024 for line in f if line.startswith("MemAvailable")]
    except OSError:
        pass
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            with open(limit) as f, open(used) as g:
                found.append(int(f.read()) - int(g.read()))
        except (OSError, ValueError):  # not there, or "max"
            continue
    return min(found, default=None)


# ---- one batch


def map_fetcher(
    dataset: Any, place_holder: Any, transform: Any, collate: Any, parallel_stream: bool, batch_size: int
) -> Any:
    """The batch of the samples whose indices are ``place_holder``."""
    samples = []
    with _stop_is_an_error():
        for position, index in enumerate(place_holder):
            here.reading(position)
            samples.append(dataset[index])
    return _finish(samples, transform, collate)


def stream_fetcher(
    dataset_iter: Any, place_holder: Any, transform: Any, collate: Any, parallel_stream: bool, batch_size: int
) -> Any:
    """The batch of ``place_holder`` itself, or of the next samples of the stream when workers read it.

    StopIteration when the stream has no more samples; a last batch may be short.
    """
    samples = _pull(dataset_iter, batch_size) if parallel_stream else place_holder
    if not samples:
        raise StopIteration
    return _finish(samples, transform, collate)


def _pull(stream: Iterator[Any], batch_size: int) -> list[Any]:
    samples: list[Any] = []
    for position in range(batch_size):
        here.reading(position)
        try:
            samples.append(next(stream))
        except StopIteration:
            break
    return samples


def _finish(samples: list[Any], transform: Any, collate: Any) -> Any:
    with _stop_is_an_error():
        if not isinstance(transform, CudaTransform):
            here.note(TRANSFORM)
            samples = transform.apply_batch(samples)
        here.note(COLLATE)
        batch = collate.apply(samples)
    here.note(IDLE)
    return batch


class _stop_is_an_error:
    """A StopIteration out of a dataset or transform would end the epoch early without a word.

    Not a generator with ``contextmanager``: that one lets StopIteration through.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, StopIteration):
            raise RuntimeError("DataLoader: a dataset, transform or collator raised StopIteration.") from error


def _add_note(e: BaseException, text: str) -> None:
    """``e.add_note(text)``, also in Python 3.10, which knows no notes: there the text goes into the message."""
    if sys.version_info >= (3, 11):
        e.add_note(text)
    else:
        e.__notes__ = [*getattr(e, "__notes__", ()), text]  # type: ignore[attr-defined]
        e.args = (f"{e.args[0]}\n{text}", *e.args[1:]) if e.args else (text,)


@contextmanager
def _time_limit(seconds: float, doing: Callable[[], str]) -> Iterator[None]:
    """Interrupt the body after ``seconds``. Only the main thread can be interrupted; others are told afterwards."""
    if not seconds:
        yield
        return

    def error() -> RuntimeError:
        return RuntimeError(f"dataloader timeout: no batch for {seconds:g} s, {doing()}.")

    began = time.monotonic()
    alarm = getattr(signal, "SIGALRM", None)
    mine = threading.current_thread() is threading.main_thread()
    if alarm is None or not mine or signal.getsignal(alarm) not in (signal.SIG_DFL, signal.SIG_IGN):
        yield  # no alarm to be had, or somebody else uses it
        if time.monotonic() - began > seconds:
            raise error()
        return

    def on_alarm(*_: Any) -> None:
        raise error()

    before = signal.signal(alarm, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(alarm, before)


# ---- iterators


def _to_tensors(batch: Any) -> Any:
    from ..tensor import Tensor

    if isinstance(batch, (list, tuple)):
        return [_to_tensors(field) for field in batch]
    if isinstance(batch, Mapping):
        return {key: _to_tensors(value) for key, value in batch.items()}
    if isinstance(batch, (np.ndarray, np.generic)) and batch.dtype.kind not in "SUO":
        return Tensor(batch)
    return batch  # strings have no tensor


class PreLoader:
    """An iterator over batches that makes Tensors of them when ``preload`` is set."""

    def __init__(self, loader: DataLoader, preload: bool) -> None:
        self.loader = loader
        self.preload = preload
        self._monitor = _Monitor() if os.environ.get("MGE_DATA_MONITOR", "0") not in ("", "0") else None

    def __iter__(self) -> PreLoader:
        return self

    def __len__(self) -> int:
        return len(self.loader)

    def __next__(self) -> Any:
        began = time.perf_counter()
        batch = self._next_batch()
        if self.preload:
            batch = _to_tensors(batch)
        if isinstance(self.loader.transform, CudaTransform):
            batch = self.loader.transform.apply(batch)
        if self._monitor is not None:
            self._monitor.add(time.perf_counter() - began)
        return batch

    def _next_batch(self) -> Any:
        raise NotImplementedError


class _Monitor:
    """Says now and then how long the program waits for batches (``MGE_DATA_MONITOR``)."""

    def __init__(self) -> None:
        self._every = max(1, int(os.environ.get("MGE_DATA_MONITOR_FREQUENCY", "10")))
        self._started = time.perf_counter()
        self._waited, self._count = 0.0, 0

    def add(self, waited: float) -> None:
        self._waited += waited
        self._count += 1
        if self._count % self._every == 0:
            total = time.perf_counter() - self._started
            print(
                f"DataLoader: {self._count} batches in {total:.2f} s, waited {self._waited:.2f} s for them", flush=True
            )


class _Serial(PreLoader):
    """Batches made here. An exception keeps its type and gets a note that names the sample."""

    def __init__(self, loader: DataLoader, preload: bool) -> None:
        super().__init__(loader, preload)
        self._number = 0

    def _run(self, names: Sequence[Any], make: Callable[[], Any]) -> Any:
        number = self._number
        self._number += 1
        try:
            with _time_limit(self.loader.timeout, lambda: describe(here.value, number, names)):
                return make()
        except StopIteration:
            raise
        except Exception as e:
            _add_note(e, f"DataLoader: while {describe(here.value, number, names)}.")
            raise
        finally:
            here.note(IDLE)


class _SerialMapDataLoaderIter(_Serial):
    def __init__(self, loader: DataLoader, preload: bool) -> None:
        super().__init__(loader, preload)
        self._indices = iter(loader.sampler)

    def _next_batch(self) -> Any:
        indices = next(self._indices)
        x = self.loader
        return self._run(indices, lambda: map_fetcher(x.dataset, indices, x.transform, x.collator, False, len(indices)))


class _SerialStreamDataLoaderIter(_Serial):
    def __init__(self, loader: DataLoader, preload: bool) -> None:
        super().__init__(loader, preload)
        self._stream = iter(loader.dataset)
        self._places = iter(loader.sampler)

    def _next_batch(self) -> Any:
        x, places = self.loader, next(self._places)
        return self._run(places, lambda: stream_fetcher(self._stream, None, x.transform, x.collator, True, len(places)))


class _Parallel(PreLoader):
    """Batches made by workers. Batch n is worker n % num_workers's, so the order and the random numbers are the same
    in every run, and a result is never waited for out of turn."""

    def __init__(self, loader: DataLoader, preload: bool, start: Callable[[int, int], Any]) -> None:
        super().__init__(loader, preload)
        n = loader.num_workers
        self._broken: WorkerError | None = None
        self._number = 0  # of the next batch to ask for
        self._turn = itertools.cycle(range(n))  # whose job is next
        self._order: list[int] = []  # workers whose results are to come, oldest first
        self._no_more = False
        self._error: Exception | None = None  # of the sampler or the stream
        self._budget = int(os.environ.get("MGE_PLASMA_MEMORY", 4 << 30))
        board = Board(n)
        seed = _base_seed()
        self._workers: list[Worker] = []
        # The finalizer sees workers as they are added, so that one that cannot be started takes the others along.
        self._owner = os.getpid()
        self._stop = weakref.finalize(self, stop_all, self._workers, self._owner)
        for i in range(n):
            self._workers.append(Worker(i, self._workers, board, seed + i, start))

    def _next_job(self, worker: Worker) -> tuple[list[Any], Any]:
        """(names of the samples, what the worker gets); StopIteration when there are no more."""
        raise NotImplementedError

    def _depth(self) -> int:
        """How many batches may be under way: few enough that they fit in MGE_PLASMA_MEMORY."""
        n = len(self._workers)
        return max(n, min(_IN_FLIGHT * n, self._budget // max(1, self.loader._batch_bytes)))

    def _fill(self) -> None:
        live = [w for w in self._workers if not w.ended]
        asked = 0
        while not self._no_more and live and len(self._order) < self._depth() and asked < self._ask_at_once():
            try:
                worker = next(self._workers[i] for i in self._turn if not self._workers[i].ended)
                names, work = self._next_job(worker)
                worker.submit((self._number, names, work))
            except StopIteration:
                self._no_more = True
                return
            except WorkerError:
                raise
            except Exception as e:
                self._no_more, self._error = True, e  # raised behind the batches that are under way
                return
            self._order.append(worker.index)
            self._number += 1
            asked += 1

    def _ask_at_once(self) -> int:
        return sys.maxsize

    def _next_batch(self) -> Any:
        if os.getpid() != self._owner:
            raise RuntimeError(
                f"DataLoader: this iterator belongs to process {self._owner}; a forked process makes one of its own."
            )
        if self._broken is not None:
            raise WorkerError(f"DataLoader: the iteration has ended with an error before: {self._broken}")
        try:
            return self._take()
        except WorkerError as e:
            self._broken = e
            self._stop()
            raise
        except StopIteration:
            self._stop()
            raise
        except Exception:
            raise  # of one batch; the next can be had
        except BaseException:  # Ctrl-C, maybe in the middle of a message
            self._broken = WorkerError("interrupted")
            self._stop()
            raise

    def _take(self) -> Any:
        while True:
            self._fill()
            if not self._order:
                self._stop()
                error, self._error = self._error, None
                try:
                    raise StopIteration if error is None else error
                finally:
                    del error  # the traceback holds this frame, and the frame would hold the error
            worker = self._workers[self._order[0]]
            kind, value, size = worker.collect(self.loader.timeout)
            self._order.pop(0)
            number, names, _ = worker.jobs.popleft()
            if kind == END:
                worker.ended = True
                continue
            if kind == ERROR:
                error, trace, at = value
                raise RuntimeError(
                    f"Caught {error} in DataLoader worker process {worker.index}.\nOriginal {trace}"
                    f"The worker was {describe(at, number, names)}."
                )
            if size > self.loader._batch_bytes:
                first = self.loader._batch_bytes == 0
                self.loader._batch_bytes = size
                if first:
                    self.loader.check_memory_rationality()
            self._fill()
            return value


def _base_seed() -> int:
    """A seed from the global generator, so that ``megengine.random.seed`` decides what workers draw."""
    from ..random import uniform

    high, low = (uniform(size=(2,)).numpy().astype(np.float64) * 0x7FFF).astype(np.int64)
    return int(high) << 15 | int(low)


def _starter(make: Callable[[], Callable[[Any], Any]]) -> Callable[[int, int], Any]:
    """What runs first in a worker; the worker is known to ``get_worker_info`` before the dataset is iterated."""

    def start(index: int, seed: int) -> Any:
        global _worker_info
        import multiprocessing

        _worker_info = WorkerInfo(idx=index, worker=multiprocessing.current_process(), seed=seed)
        return make()

    return start


class _ParallelMapDataLoaderIter(_Parallel):
    def __init__(self, loader: DataLoader, preload: bool) -> None:
        dataset, transform, collator = loader.dataset, loader.transform, loader.collator
        self._indices = iter(loader.sampler)
        super().__init__(
            loader,
            preload,
            _starter(lambda: lambda indices: map_fetcher(dataset, indices, transform, collator, False, len(indices))),
        )

    def _next_job(self, worker: Worker) -> tuple[list[Any], Any]:
        indices = next(self._indices)
        return indices, indices


class _ParallelStreamDataLoaderIter(_Parallel):
    def __init__(self, loader: DataLoader, preload: bool) -> None:
        dataset, transform, collator = loader.dataset, loader.transform, loader.collator
        parallel = loader.parallel_stream
        self._places = iter(loader.sampler)

        def make() -> Callable[[Any], Any]:
            stream: Any = None

            def fetch(work: Any) -> Any:
                nonlocal stream
                if not parallel:
                    return stream_fetcher(None, work, transform, collator, False, len(work))
                if stream is None:  # here, so that an error in __iter__ is reported as one of the first batch
                    stream = iter(dataset)
                return stream_fetcher(stream, None, transform, collator, True, work)

            return fetch

        self._stream = None if parallel else iter(dataset)
        super().__init__(loader, preload, _starter(make))

    def _ask_at_once(self) -> int:
        # This process reads the stream: a slow one must not hold back a batch that is there already.
        return sys.maxsize if self.loader.parallel_stream else 2

    def _next_job(self, worker: Worker) -> tuple[list[Any], Any]:
        places = next(self._places)
        if self._stream is None:  # each worker counts the samples of its own stream
            before = worker.submitted * len(places)
            return [before + i for i in range(len(places))], len(places)
        number = self._number
        try:
            with _time_limit(self.loader.timeout, lambda: describe(here.value, number, places)):
                samples = _pull(self._stream, len(places))
        except Exception as e:
            _add_note(e, f"DataLoader: while {describe(here.value, number, places)}.")
            raise
        finally:
            here.note(IDLE)
        if not samples:
            raise StopIteration
        return places[: len(samples)], samples
