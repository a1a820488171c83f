"""Starting processes: the launcher, and the environments of torchrun, srun, mpirun, scripts and pods."""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import sys
import time

import numpy as np
import pytest
from ranks import Job, free_port, plain_env, ranks, slurm_env, together, torchrun_env

import megengine as mge
import megengine.distributed as dist
from megengine.distributed.launcher import WARN_SUBPROCESS_EXIT_WITHOUT_RETURN, ChildError

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRAIN = [sys.executable, str(ROOT / "examples" / "distributed" / "train.py"), "--steps", "4"]


# ---- the launcher


def test_results_come_back_by_rank_however_large():
    got = ranks(2, lambda scale: [dist.get_rank() * scale] * 10_000, 3)
    assert got == [[0] * 10_000, [3] * 10_000]


def test_a_tensor_comes_back():
    a, b = ranks(2, lambda: mge.tensor([float(dist.get_rank())] * 3) * 2)
    assert a.tolist() == [0, 0, 0] and b.tolist() == [2, 2, 2]


def test_what_a_process_knows_of_itself():
    def work():
        client = dist.get_client()
        assert dist.is_distributed() and dist.get_backend() == "gloo" == dist.backend
        assert dist.get_py_server_addr()[0] == "localhost" and dist.get_mm_server_addr()[1] > 0
        assert client.get_mm_server_port() == dist.get_mm_server_addr()[1]
        with dist.override_backend("nccl"):
            assert dist.get_backend() == "gloo"  # what there is on a CPU
        dist.backend = "auto"
        rank = dist.get_rank()
        client.user_set(f"from {rank}", rank)
        other = client.user_get(f"from {1 - rank}")
        told = client.bcast_val({"x": 1} if rank == 0 else None, "told", 2)
        with pytest.raises(AssertionError, match="called a second time"):
            dist.init_process_group("localhost", 1, 2, 0, 0)
        with pytest.raises(RuntimeError, match="already one of several"):
            dist.launcher(print, n_gpus=2)()
        with pytest.raises(AssertionError, match="makes a group that it is not in"):
            dist.new_group([1 - rank])
        return rank, dist.get_world_size(), dist.get_local_device_id(), other, told

    assert ranks(2, work) == [(0, 2, 0, 1, {"x": 1}), (1, 2, 1, 0, {"x": 1})]
    assert not dist.is_distributed()


def test_decorated_with_and_without_arguments():
    @dist.launcher(n_gpus=2)
    def first(x):
        """What it does."""
        return x + dist.get_rank()

    assert first(1) == [1, 2] and first(x=5) == [5, 6]
    assert first.__name__ == "first" and first.__doc__ == "What it does."
    assert dist.launcher(lambda: 1).n_gpus == mge.get_device_count("xpu")


def test_a_process_that_exits_early_has_no_result(caplog):
    def work():
        if dist.get_rank() == 1:
            sys.exit(0)
        return 7

    said = []
    logger = dist.launcher.__call__.__globals__["logger"]
    logger.warning, before = said.append, logger.warning
    try:
        assert ranks(2, work) == [7, None]
    finally:
        logger.warning = before
    assert said == [WARN_SUBPROCESS_EXIT_WITHOUT_RETURN]


def test_a_failure_ends_the_others_and_is_told_with_rank_and_line(capfd):
    def work():
        if dist.get_rank() == 1:
            raise ValueError("no such luck")
        time.sleep(100)

    begin = time.monotonic()
    with pytest.raises(AssertionError, match="^subprocess 1 exit with code 1$") as error:
        ranks(2, work)
    assert time.monotonic() - begin < 30
    cause = error.value.__cause__
    assert isinstance(cause, ChildError)
    assert str(cause).startswith("rank 1: Traceback") and "ValueError: no such luck" in str(cause)
    assert "test_distributed_launchers.py" in str(cause) and "in work" in str(cause)
    assert "[rank 1] ValueError: no such luck" in capfd.readouterr().err


@pytest.mark.parametrize("end, code", [(lambda: os._exit(3), 3), (lambda: os.kill(os.getpid(), signal.SIGKILL), -9)])
def test_a_process_that_just_ends(end, code):
    def work():
        if dist.get_rank() == 0:
            end()
        time.sleep(100)

    with pytest.raises(AssertionError, match=f"subprocess 0 exit with code {code}") as error:
        ranks(2, work)
    assert "ended without a word" in str(error.value.__cause__)


def test_the_first_failure_is_the_cause():
    """Rank 0 fails because rank 1 is gone; what the caller sees is why rank 1 went."""

    def work():
        if dist.get_rank() == 1:
            raise KeyError("the real reason")
        dist.functional.all_reduce_sum(mge.tensor([1.0])).numpy()

    with pytest.raises(AssertionError, match="subprocess 1") as error:
        ranks(2, work)
    assert "the real reason" in str(error.value.__cause__)


def test_a_result_that_cannot_be_sent():
    with pytest.raises(AssertionError, match="subprocess 0") as error:
        ranks(1, lambda: lambda: 0)
    assert "pickle" in str(error.value.__cause__)


def test_arguments_that_make_no_sense():
    with pytest.raises(ValueError, match="n_gpus, the number of processes, must be at least 1; got 0"):
        dist.launcher(print, n_gpus=0)
    with pytest.raises(AssertionError, match="2 processes from rank 3 on do not fit in world_size=4"):
        dist.launcher(print, n_gpus=2, world_size=4, rank_start=3, port=1)
    with pytest.raises(AssertionError, match="rank_start above 0 needs the port"):
        dist.launcher(print, n_gpus=1, world_size=2, rank_start=1)
    with pytest.raises(TypeError, match="decorates a function; got a int"):
        dist.launcher(3)


def test_two_launchers_are_one_job():
    """As on two machines: the second is told where the first is."""
    port = free_port()
    code = """
import sys, megengine as mge, megengine.distributed as dist, megengine.functional as F
start = int(sys.argv[1])
work = lambda: F.distributed.all_gather(mge.tensor([dist.get_rank()])).tolist()
print(dist.launcher(work, n_gpus=2, world_size=4, rank_start=start, port=int(sys.argv[2]))())
"""
    with Job() as job:
        both = [job.start([sys.executable, "-c", code, s, str(port)], {"MGE_DIST_TOKEN": "t"}) for s in "02"]
        for process in both:
            code, said = job.output(process)
            assert code == 0 and said.strip() == "[[0, 1, 2, 3], [0, 1, 2, 3]]", said


def test_cores_are_shared_out(monkeypatch):
    for name in ("MGE_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(mge.device._threads, "chosen", False)
    cores = mge.core._core.thread_report()["cpus"]
    assert ranks(2, mge.device.get_num_threads) == [max(1, cores // 2)] * 2
    monkeypatch.setattr(mge.device._threads, "chosen", True)
    assert ranks(2, mge.device.get_num_threads) == [mge.device.get_num_threads()] * 2


# ---- others that start processes

SUM = """
    y = D.all_reduce_sum(mge.tensor([float(rank + 1)]))
    print("sum", y.item(), "of", size, "local", dist.get_local_device_id(), flush=True)
"""


@pytest.mark.parametrize("env", [plain_env, slurm_env])
def test_the_environment_is_enough(env):
    for rank, (code, said) in enumerate(together(3, SUM, env)):
        assert code == 0 and said.strip() == f"sum 6.0 of 3 local {rank}", said


def test_torchrun_whose_own_store_has_the_port():
    with socket.create_server(("localhost", 0)) as agent:
        port = agent.getsockname()[1]
        for _, (code, said) in enumerate(together(2, SUM, lambda r, n, _: torchrun_env(r, n, port))):
            assert code == 0 and "sum 3.0 of 2" in said, said


def test_one_process_by_the_environment():
    ((code, said),) = together(1, SUM)
    assert code == 0 and "sum 1.0 of 1" in said


@pytest.mark.parametrize("env", [plain_env, slurm_env, torchrun_env])
def test_the_example_does_not_know_who_started_it(env):
    port = free_port()
    with Job() as job:
        both = [job.start(TRAIN, env(rank, 2, port)) for rank in range(2)]
        (code, said), (other, silent) = (job.output(p) for p in both)
    assert code == 0 == other and "processes 2  accuracy" in said, said + silent
    assert silent.strip() == ""


def test_the_example_by_the_launcher():
    with Job() as job:
        code, said = job.output(job.start([*TRAIN, "--processes", "2"], {}))
    assert code == 0 and "step 4  loss" in said and "processes 2  accuracy" in said, said


def test_mpirun():
    env = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "MASTER_PORT": str(free_port())}
    with Job() as job:
        code, said = job.output(job.start(["mpirun", "--oversubscribe", "-n", "2", *TRAIN], env))
    assert code == 0 and "processes 2  accuracy" in said, said


def test_the_files_of_slurm_and_kubernetes_name_what_exists():
    folder = ROOT / "examples" / "distributed"
    for name in ("job.sbatch", "kubernetes.yaml"):
        text = (folder / name).read_text()
        assert "examples/distributed/train.py" in text and "MGE_DIST_TOKEN" in text and "MASTER_PORT" in text
    readme = (folder / "README.md").read_text()
    for file in ("train.py", "ray_train.py", "job.sbatch", "kubernetes.yaml"):
        assert file in readme and (folder / file).exists()


def test_the_same_result_with_other_numbers_of_processes():
    def work():
        x = np.arange(12, dtype=np.float32).reshape(6, 2)
        mine = mge.tensor(x[dist.get_rank() :: dist.get_world_size()])
        return dist.functional.all_reduce_sum(mine.sum()).item()

    assert ranks(2, work) == [66.0] * 2 and ranks(3, work) == [66.0] * 3
