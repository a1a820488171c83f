"""DataLoader: order, errors that name the sample, dead and stuck workers, memory, streams."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from itertools import islice

import numpy as np
import pytest

import megengine as mge
from megengine.data import DataLoader, Infinite, RandomSampler, SequentialSampler, StreamSampler, _worker
from megengine.data.dataloader import get_worker_info
from megengine.data.dataset import ArrayDataset, Dataset, StreamDataset
from megengine.data.transform import CudaTransform, Transform

WORKERS = (0, 1, 3)


class Numbers(Dataset):
    """Arrays filled with their index; one sample misbehaves."""

    def __init__(self, number=20, shape=(4,), bad=None, act=None):
        self.number, self.shape, self.bad, self.act = number, shape, bad, act

    def __len__(self):
        return self.number

    def __getitem__(self, index):
        if index == self.bad:
            self.act()
        return np.full(self.shape, index, np.int32), index


class Stream(StreamDataset):
    def __init__(self, number=10, bad=None, act=None):
        self.number, self.bad, self.act = number, bad, act

    def __iter__(self):
        for i in range(self.number):
            if i == self.bad:
                self.act()
            info = get_worker_info()
            yield i, -1 if info is None else info.idx


def loader(dataset, batch_size=4, **kwargs):
    return DataLoader(dataset, SequentialSampler(dataset, batch_size), **kwargs)


def fail():
    raise KeyError("broken sample")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def hang():
    time.sleep(60)


def children():
    return [p for p in multiprocessing.active_children() if p.name.startswith("DataLoader")]


@pytest.fixture(autouse=True)
def _no_worker_left():
    yield
    if children():  # held by the traceback of an expected error
        gc.collect()
    assert not children()


# ---- order and content


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("shape", [(4,), (64, 1024)], ids=["through the socket", "through memory"])
def test_batches_in_order(workers, shape):
    data = Numbers(shape=shape)
    labels = []
    for images, numbers in loader(data, 6, num_workers=workers):
        expected = np.broadcast_to(numbers.reshape(-1, *[1] * len(shape)), images.shape)
        np.testing.assert_array_equal(images, expected)
        assert images.dtype == np.int32 and images.flags.writeable
        images += 1  # a batch is the caller's own
        labels.append(numbers.tolist())
    assert labels == [[*range(6)], [*range(6, 12)], [*range(12, 18)], [18, 19]]


@pytest.mark.parametrize("workers", WORKERS)
def test_length_and_epochs(workers):
    data = Numbers()
    several = DataLoader(data, RandomSampler(data, 4, seed=1), num_workers=workers)
    assert len(several) == len(iter(several)) == 5
    first, second = ([b[1].tolist() for b in several] for _ in range(2))
    assert sorted(sum(first, [])) == sorted(sum(second, [])) == list(range(20))
    assert first != second


def test_slow_worker_does_not_change_the_order():
    data = Numbers(12, bad=0, act=lambda: time.sleep(0.2))
    assert [b[1][0] for b in loader(data, 2, num_workers=3)] == [0, 2, 4, 6, 8, 10]


def test_infinite_sampler():
    data = Numbers(4)
    endless = DataLoader(data, Infinite(SequentialSampler(data, 2)), num_workers=2)
    assert [b[1].tolist() for b in islice(endless, 5)] == [[0, 1], [2, 3]] * 2 + [[0, 1]]


def test_two_loaders_side_by_side():
    first, second = Numbers(12), Numbers(12, (8192,))
    for a, b in zip(loader(first, 3, num_workers=2), loader(second, 3, num_workers=2)):
        np.testing.assert_array_equal(a[1], b[1])


def test_a_loader_inside_a_forked_process():
    def run(queue):
        queue.put([b[1].tolist() for b in loader(Numbers(8), num_workers=2)])

    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    processes = [context.Process(target=run, args=(queue,)) for _ in range(3)]
    for p in processes:
        p.start()
    assert [queue.get(timeout=20) for _ in processes] == [[[0, 1, 2, 3], [4, 5, 6, 7]]] * 3
    for p in processes:
        p.join(10)


def test_an_iterator_is_not_shared_with_a_forked_process():
    batches = iter(loader(Numbers(8), num_workers=2))
    next(batches)
    child = os.fork()
    if child == 0:
        try:
            next(batches)
        except RuntimeError as e:
            os._exit(0 if "belongs to process" in str(e) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert next(batches)[1].tolist() == [4, 5, 6, 7]  # and the workers are still ours


def test_a_loader_in_a_thread():
    got = []
    data = Numbers(8)
    t = threading.Thread(target=lambda: got.extend(b[1].tolist() for b in loader(data, num_workers=2, timeout=20)))
    t.start()
    t.join(20)
    assert got == [[0, 1, 2, 3], [4, 5, 6, 7]]


class Scale(Transform):
    def apply(self, input):
        return input[0] * 10, input[1]


@pytest.mark.parametrize("workers", (0, 2))
def test_transform_and_collator(workers):
    class Pairs:
        def apply(self, samples):
            return [int(x[0]) for x, _ in samples]

    out = list(loader(Numbers(4), 2, transform=Scale(), collator=Pairs(), num_workers=workers))
    assert out == [[0, 10], [20, 30]]


@pytest.mark.parametrize("workers", (0, 2))
def test_cuda_transform_sees_the_batch_in_this_process(workers):
    class Whole(CudaTransform):
        def apply(self, input):
            return os.getpid(), input[0].shape

    assert list(loader(Numbers(4), 4, transform=Whole(), num_workers=workers)) == [(os.getpid(), (4, 4))]


@pytest.mark.parametrize("workers", (0, 2))
def test_preload_gives_tensors(workers):
    class Rows(Numbers):
        def __getitem__(self, index):
            return {"x": np.full(3, index, np.float32), "pair": (index, "name")}

    batch = next(iter(loader(Rows(4), 2, num_workers=workers, preload=True)))
    assert isinstance(batch["x"], mge.Tensor) and isinstance(batch["pair"], list)
    np.testing.assert_array_equal(batch["x"].numpy(), [[0, 0, 0], [1, 1, 1]])
    np.testing.assert_array_equal(batch["pair"][0].numpy(), [0, 1])
    assert batch["pair"][1] == ["name", "name"]


# ---- random numbers


class Draws(Numbers):
    def __getitem__(self, index):
        return np.random.randint(1 << 30), random.randrange(1 << 30)


def draws(seed):
    mge.random.seed(seed)
    return [np.stack(b).tolist() for b in loader(Draws(12), 2, num_workers=3)]


def test_workers_draw_what_the_global_seed_says():
    assert draws(5) == draws(5)
    assert draws(5) != draws(6)
    flat = np.array(draws(5)).reshape(-1)
    assert len(set(flat.tolist())) == flat.size  # no two workers share a stream


def test_worker_info():
    class Who(Numbers):
        def __getitem__(self, index):
            info = get_worker_info()
            assert info is not None and info.worker.pid == os.getpid()
            with pytest.raises(RuntimeError, match="read-only"):
                info.idx = 7
            return info.idx

    assert get_worker_info() is None
    assert [b.tolist() for b in loader(Who(6), 2, num_workers=2)] == [[0, 0], [1, 1], [0, 0]]


# ---- errors


def test_error_in_a_worker_names_the_sample_and_nothing_else_is_lost():
    batches = iter(loader(Numbers(bad=9, act=fail), num_workers=2))
    assert [next(batches)[1][0] for _ in range(2)] == [0, 4]
    with pytest.raises(RuntimeError, match="Caught KeyError in DataLoader worker process 0") as caught:
        next(batches)
    text = str(caught.value)
    assert "broken sample" in text and "in fail" in text  # the worker's own traceback
    assert "reading sample 9 of batch 2 (samples [8, 9, 10, 11])" in text
    assert [b[1][0] for b in batches] == [12, 16]


def test_error_in_this_process_keeps_its_type_and_names_the_sample():
    batches = iter(loader(Numbers(bad=9, act=fail)))
    assert [next(batches)[1][0] for _ in range(2)] == [0, 4]
    with pytest.raises(KeyError, match="broken sample") as caught:
        next(batches)
    assert "reading sample 9 of batch 2" in caught.value.__notes__[0]
    assert [b[1][0] for b in batches] == [12, 16]


class BadTransform(Transform):
    def apply(self, input):
        if input[1] == 5:
            raise ValueError("cannot transform")
        return input


@pytest.mark.parametrize("workers", (0, 2))
def test_error_in_a_transform_names_the_sample(workers):
    with pytest.raises((ValueError, RuntimeError), match="cannot transform") as caught:
        list(loader(Numbers(), transform=BadTransform(), num_workers=workers))
    text = str(caught.value) + "".join(getattr(caught.value, "__notes__", ()))
    assert "transforming sample 5 of batch 1" in text


@pytest.mark.parametrize("workers", (0, 2))
def test_error_in_the_collator_names_the_batch(workers):
    class Uneven(Numbers):
        def __getitem__(self, index):
            return np.zeros(index)

    with pytest.raises((ValueError, RuntimeError), match="same shape") as caught:
        list(loader(Uneven(), num_workers=workers))
    text = str(caught.value) + "".join(getattr(caught.value, "__notes__", ()))
    assert "collating batch 0 (samples [0, 1, 2, 3])" in text


@pytest.mark.parametrize("workers", (0, 2))
def test_stop_iteration_of_a_sample_is_an_error(workers):
    def stop():
        raise StopIteration

    with pytest.raises(RuntimeError, match="raised StopIteration"):
        list(loader(Numbers(bad=5, act=stop), num_workers=workers))


def test_a_batch_that_cannot_be_sent():
    class Same:
        def apply(self, samples):
            return lambda: samples

    with pytest.raises(RuntimeError, match="DataLoader worker process 0"):
        list(loader(Numbers(), collator=Same(), num_workers=1))


def test_no_memory_for_a_batch(monkeypatch):
    def full(*_):
        raise OSError(28, "no memory for the batch")

    monkeypatch.setattr("os.memfd_create", full)
    with pytest.raises(RuntimeError, match="(?s)Caught OSError.*no memory for the batch"):
        list(loader(Numbers(shape=(10_000,)), num_workers=1))


def test_error_of_the_sampler_comes_after_the_batches_before_it():
    class Bad(SequentialSampler):
        def batch(self):
            yield [0]
            yield [1]
            raise ValueError("sampler broke")

    data, got = Numbers(), []
    with pytest.raises(ValueError, match="sampler broke"):
        for batch in DataLoader(data, Bad(data), num_workers=2):
            got.append(batch[1].tolist())
    assert got == [[0], [1]]


@pytest.mark.parametrize(("act", "code"), [(die, "-9"), (lambda: os._exit(3), "3")], ids=["killed", "exits"])
def test_a_dead_worker_is_an_error_that_names_the_sample(act, code):
    batches = iter(loader(Numbers(bad=9, act=act), num_workers=2))
    assert [next(batches)[1][0] for _ in range(2)] == [0, 4]
    with pytest.raises(RuntimeError, match=rf"worker\(s\): 0, pid\(s\): \d+\) exited unexpectedly.*: {code}") as caught:
        next(batches)
    assert "reading sample 9 of batch 2" in str(caught.value)
    with pytest.raises(RuntimeError, match="ended with an error before"):  # not an end of the data
        next(batches)


def test_a_worker_killed_while_idle():
    batches = iter(loader(Numbers(40), num_workers=2))
    next(batches)
    time.sleep(0.1)
    for p in children():
        os.kill(p.pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        list(batches)


@pytest.mark.parametrize("workers", (0, 2))
def test_a_stuck_sample_is_an_error_that_names_it(workers):
    began = time.monotonic()
    batches = iter(loader(Numbers(bad=5, act=hang), num_workers=workers, timeout=0.3))
    next(batches)
    with pytest.raises(RuntimeError, match="timeout.*reading sample 5 of batch 1"):
        next(batches)
    assert time.monotonic() - began < 5


def test_a_stopped_worker_is_an_error():
    batches = iter(loader(Numbers(400, (10000,)), num_workers=1, timeout=0.3))
    next(batches)
    (worker,) = children()
    os.kill(worker.pid, signal.SIGSTOP)
    with pytest.raises(RuntimeError, match="timeout"):
        list(batches)


def test_no_limit_says_what_it_waits_for(monkeypatch, caplog):
    from megengine.data import _worker

    said = []
    monkeypatch.setattr(_worker, "_STUCK", 0.1)
    monkeypatch.setattr(_worker, "_POLL", 0.05)
    monkeypatch.setattr(_worker, "_warn", said.append)
    list(loader(Numbers(4, bad=2, act=lambda: time.sleep(0.5)), num_workers=1))
    assert said and "worker 0" in said[0] and "reading sample 2 of batch 0" in said[0]


# ---- resources


def test_breaking_off_ends_the_workers_and_frees_everything():
    files = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        for _ in loader(Numbers(400, (10000,)), num_workers=3):
            break
    gc.collect()
    assert not children()
    assert len(os.listdir("/proc/self/fd")) == files


def test_batches_kept_do_not_use_up_file_descriptors():
    files = len(os.listdir("/proc/self/fd"))
    kept = list(loader(Numbers(200, (10000,)), 1, num_workers=2))
    assert len(os.listdir("/proc/self/fd")) == files
    assert [int(b[0][0, -1]) for b in kept] == list(range(200))


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_is_bounded():
    batch = 4 * 1_000_000  # bytes
    data = Numbers(200, (250_000,))
    start = peak = resident()
    for _ in loader(data, 4, num_workers=2):
        peak = max(peak, resident())
    assert peak - start < 9 * batch  # two per worker under way, one in use; not the 50 of the epoch


def test_batches_that_grow_use_the_same_slots():
    class Growing(Numbers):
        def __getitem__(self, index):
            return np.full(20_000 + 3_000 * index, index, np.int32)

    batches = iter(loader(Growing(30), 1, num_workers=1))
    for i, batch in enumerate(batches):
        assert batch.shape == (1, 20_000 + 3_000 * i) and (batch == i).all()
        if i < 20:
            slots = batches._workers[0]._channel._theirs
            assert len(slots) <= 3


def test_batches_ahead_fit_in_the_memory_given(monkeypatch):
    monkeypatch.setenv("MGE_PLASMA_MEMORY", str(1 << 20))
    batches = iter(loader(Numbers(60, (100_000,)), 4, num_workers=2))
    next(batches)
    next(batches)
    assert batches._depth() == 2
    assert sum(1 for _ in batches) == 13


def test_memory_warning(monkeypatch):
    from megengine.data import dataloader

    said = []
    monkeypatch.setattr(dataloader, "_free_memory", lambda: 1 << 20)
    monkeypatch.setattr("logging.Logger.warning", lambda self, text, *a: said.append(text))
    list(loader(Numbers(8, (100_000,)), num_workers=2))
    assert len(said) == 1 and "Use fewer workers" in said[0]


def test_monitor(monkeypatch, capsys):
    monkeypatch.setenv("MGE_DATA_MONITOR", "1")
    monkeypatch.setenv("MGE_DATA_MONITOR_FREQUENCY", "2")
    list(loader(Numbers(), num_workers=1))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" in ")[0] for line in lines] == ["DataLoader: 2 batches", "DataLoader: 4 batches"]


PROGRAM = """
    import os, signal, sys, time
    import numpy as np
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a program in the background ignores it
    from megengine.data import DataLoader, SequentialSampler
    from megengine.data.dataset import Dataset
    class Slow(Dataset):
        def __init__(self): ...
        def __len__(self): return 1000
        def __getitem__(self, i):
            time.sleep(0.05)
            return np.zeros(3)
    data = Slow()
    batches = iter(DataLoader(data, SequentialSampler(data, 2), num_workers=2))
    next(batches)
    print(*(w.pid for w in batches._workers), flush=True)
    for _ in batches: pass
"""


def gone(pids, seconds=5.0):
    def alive(pid):
        try:
            with open(f"/proc/{pid}/stat") as f:
                return f.read().rsplit(")", 1)[1].split()[0] != "Z"
        except OSError:
            return False

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(map(alive, pids)):
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "killed"])
def test_workers_go_with_their_program(how):
    program = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    pids = [int(p) for p in program.stdout.readline().split()]
    assert len(pids) == 2
    # Ctrl-C reaches the whole group, as from a terminal
    os.killpg(program.pid, how) if how == signal.SIGINT else os.kill(program.pid, how)
    _, err = program.communicate(timeout=20)
    assert gone(pids)
    if how == signal.SIGINT:
        assert err.count("Traceback") == 1 and err.rstrip().endswith("KeyboardInterrupt")


# ---- streams


@pytest.mark.parametrize("workers", WORKERS)
def test_stream_keeps_order_and_the_short_last_batch(workers):
    batches = [b[0].tolist() for b in DataLoader(Stream(), StreamSampler(4), num_workers=workers)]
    assert batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_parallel_stream_is_iterated_by_each_worker():
    loader = DataLoader(Stream(6), StreamSampler(4), num_workers=2, parallel_stream=True)
    assert loader.datakind == "stream"
    batches = list(loader)
    of_worker = {w: sum((b[0].tolist() for b in batches if b[1][0] == w), []) for w in (0, 1)}
    assert of_worker == {0: list(range(6)), 1: list(range(6))}


def test_falsy_samples_of_a_stream_count():
    class Zeros(StreamDataset):
        def __init__(self): ...

        def __iter__(self):
            return iter([0, 0, 1, 0])

    assert [b.tolist() for b in DataLoader(Zeros(), StreamSampler(2))] == [[0, 0], [1, 0]]


@pytest.mark.parametrize(("workers", "parallel"), [(0, False), (2, False), (2, True)])
def test_error_of_a_stream_comes_after_the_batches_before_it(workers, parallel):
    got = []
    with pytest.raises((KeyError, RuntimeError), match="broken sample") as caught:
        for batch in DataLoader(
            Stream(bad=5, act=fail), StreamSampler(2), num_workers=workers, parallel_stream=parallel
        ):
            got.append(batch[0].tolist())
    assert got == ([[0, 1], [0, 1], [2, 3], [2, 3]] if parallel else [[0, 1], [2, 3]])
    text = str(caught.value) + "".join(getattr(caught.value, "__notes__", ()))
    assert "reading sample 5" in text


@pytest.mark.parametrize(("workers", "parallel"), [(0, False), (2, False), (2, True)])
def test_a_stuck_stream_is_an_error(workers, parallel):
    stream = Stream(bad=5, act=hang)
    with pytest.raises(RuntimeError, match="timeout.*sample 5"):
        list(DataLoader(stream, StreamSampler(2), num_workers=workers, parallel_stream=parallel, timeout=0.3))


def test_stream_samples_larger_than_the_socket():
    class Large(StreamDataset):
        def __init__(self): ...

        def __iter__(self):
            return (np.full(1 << 20, i, np.uint8) for i in range(8))

    assert [int(b[0, -1]) for b in DataLoader(Large(), StreamSampler(1), num_workers=2)] == list(range(8))


# ---- bad arguments


def test_bad_arguments():
    data = ArrayDataset(np.arange(4))
    with pytest.raises(ValueError, match="num_workers should not be negative"):
        DataLoader(data, num_workers=-1)
    with pytest.raises(ValueError, match="timeout should not be negative"):
        DataLoader(data, timeout=-1)
    with pytest.raises(AssertionError, match="recognize"):
        DataLoader([1, 2, 3])
    with pytest.raises(AssertionError, match="do not match"):
        DataLoader(data, StreamSampler())
    with pytest.raises(AssertionError, match="do not match"):
        DataLoader(Stream(), SequentialSampler(data))
    with pytest.raises(TypeError):
        len(DataLoader(Stream()))


def test_data_is_imported_only_when_used():
    code = (
        "import sys, megengine; assert 'megengine.data' not in sys.modules; print(megengine.data.DataLoader.__name__)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "DataLoader"


FAULTS = """
import resource, sys
import numpy as np
from megengine.data._worker import _keep_pages

def batch():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    samples = [np.ones((3, 224, 224), "float32") for _ in range(32)]
    del samples
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

_keep_pages()
print(batch(), [batch() for _ in range(3)][-1])
"""


def test_a_worker_keeps_the_memory_of_its_samples():
    out = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True).stdout.split()
    first, later = map(int, out)
    assert first > 3000 and later < first // 10  # pages of the first batch, and of those behind it


def test_a_worker_without_glibc(monkeypatch):
    def no_library(name):
        raise OSError(name)

    monkeypatch.setattr("ctypes.CDLL", no_library)
    _worker._keep_pages()
