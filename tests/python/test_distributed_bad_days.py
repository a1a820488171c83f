"""Bad days of real processes: whoever is left gets an error that names rank, op and line, in time, and ends."""

from __future__ import annotations

import re
import time

import pytest
from ranks import Job, free_port, plain_env, script, together

# Of the second line of a program, see ranks.script.
LINE = r"<string>:1[0-9]|<string>\", line 1[0-9]"


def ends(n: int, code: str, **env: str) -> list[tuple[int, str]]:
    """All of them end, long before the time they were given."""
    begin = time.monotonic()
    found = together(n, code, **{"MGE_DIST_TIMEOUT": "60", **env})
    assert time.monotonic() - begin < 40
    return found


def test_a_rank_that_dies():
    (code, said), (other, _) = ends(
        2,
        """
        x = mge.tensor(np.ones(1000, np.float32))
        D.all_reduce_sum(x).numpy()
        if rank == 1:
            os._exit(3)
        D.all_reduce_sum(x).numpy()
        """,
    )
    assert other == 3 and code == 1
    assert re.search("all_reduce.*rank 1", said, re.S) and re.search(LINE, said), said


def test_a_rank_that_is_killed_while_others_wait():
    port = free_port()
    code = """
    D.all_reduce_sum(mge.tensor([1.0])).numpy()
    print("ready", flush=True)
    if rank == 1:
        time.sleep(100)
    D.all_reduce_sum(mge.tensor([1.0])).numpy()
    """
    with Job() as job:
        first, second = (job.start(script(code), {**plain_env(r, 2, port), "MGE_DIST_TIMEOUT": "60"}) for r in (0, 1))
        second.stdout.readline()
        time.sleep(0.5)
        begin = time.monotonic()
        second.kill()
        status, said = job.output(first)
        assert time.monotonic() - begin < 20
        assert status == 1 and re.search("rank 1", said) and re.search(LINE, said), said


def test_a_rank_that_hangs():
    (code, said), _ = ends(
        2,
        """
        os.environ["MGE_DIST_TIMEOUT"] = "3"
        group = dist.new_group([0, 1])
        D.all_reduce_sum(mge.tensor([1.0]), group).numpy()
        if rank == 1:
            time.sleep(6)
            os._exit(0)
        D.all_reduce_sum(mge.tensor([1.0]), group).numpy()
        """,
    )
    assert code == 1 and re.search("all_reduce.*rank 1|rank 1.*all_reduce", said, re.S), said
    assert "3 s" in said and re.search(LINE, said), said


@pytest.mark.parametrize(
    "mine, other, words",
    [
        ("D.all_reduce_sum(mge.tensor(np.ones(3, 'f')))", "D.all_reduce_sum(mge.tensor(np.ones(4, 'f')))", "[3] [4]"),
        ("D.all_reduce_sum(mge.tensor([1.0]))", "D.all_reduce_sum(mge.tensor([1]))", "float32 int32"),
        ("D.all_reduce_sum(mge.tensor([1.0]))", "D.all_gather(mge.tensor([1.0]))", "all_reduce all_gather"),
        ("D.all_reduce_sum(mge.tensor([1.0]))", "D.all_reduce_max(mge.tensor([1.0]))", "sum max"),
    ],
    ids=["shape", "dtype", "order", "mode"],
)
def test_ranks_that_disagree(mine, other, words):
    code = f"""
    y = {mine} if rank == 0 else {other}
    y.numpy()
    """
    for status, said in ends(2, code):
        assert status == 1, said
        assert re.search("rank [01]", said) and re.search(LINE, said), said
        for word in words.split():
            assert word in said, said


def test_a_rank_that_never_comes():
    port = free_port()
    with Job() as job:
        first = job.start(script("print(1)"), {**plain_env(0, 2, port), "MGE_DIST_TIMEOUT": "2"})
        code, said = job.output(first)
    assert code == 1 and "1 of 2 processes came within 2 s, ranks [0]" in said, said


def test_rank_0_never_comes():
    with Job() as job:
        second = job.start(script("print(1)"), {**plain_env(1, 2, free_port()), "MGE_DIST_TIMEOUT": "2"})
        code, said = job.output(second)
    assert code == 1 and "nobody answers at 127.0.0.1" in said and "Is rank 0 started" in said, said


def test_ranks_that_disagree_on_how_many_they_are():
    port = free_port()
    with Job() as job:
        first = job.start(script("print(1)"), {**plain_env(0, 2, port), "MGE_DIST_TIMEOUT": "10"})
        second = job.start(script("print(1)"), {**plain_env(1, 3, port), "MGE_DIST_TIMEOUT": "10"})
        said = [job.output(p) for p in (first, second)]
    assert all(code == 1 for code, _ in said)
    assert any("the processes disagree on how many they are" in text for _, text in said), said


def test_two_processes_of_one_rank():
    port = free_port()
    with Job() as job:
        all_three = [
            job.start(script("print(1)"), {**plain_env(r, 3, port), "MGE_DIST_TIMEOUT": "4"}) for r in (0, 1, 1)
        ]
        said = [job.output(p) for p in all_three]
    assert any("rank 1 is there twice" in text for _, text in said), said


def test_a_port_in_use():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with Job() as job:
            code, said = job.output(job.start(script("print(1)"), plain_env(0, 2, port)))
    assert code == 1 and f"cannot listen on 127.0.0.1:{port}" in said and "Take another port" in said, said


def test_a_stranger_with_another_token():
    port = free_port()
    code = "print(D.all_reduce_sum(mge.tensor([1.0])).item())"
    with Job() as job:
        first = job.start(script(code), {**plain_env(0, 2, port), "MGE_DIST_TOKEN": "right"})
        time.sleep(1)
        stranger = job.start(script(code), {**plain_env(1, 2, port), "MGE_DIST_TOKEN": "wrong"})
        status, said = job.output(stranger)
        assert status == 1 and "belongs to another job: it refuses this token" in said, said
        second = job.start(script(code), {**plain_env(1, 2, port), "MGE_DIST_TOKEN": "right"})
        for process in (first, second):
            assert job.output(process) == (0, "2.0\n")


def test_an_error_in_backward_names_the_forward_line():
    for status, said in ends(
        2,
        """
        x = mge.tensor(np.ones(2 + rank, np.float32))
        gm = GradManager().attach(x)
        with gm:
            y = x * 2
            gm.backward(y.sum())
        D.all_reduce_sum(x.grad).numpy()
        """,
    ):
        assert status == 1 and "[2]" in said and "[3]" in said and re.search(LINE, said), said


def test_a_failed_group_fails_at_once():
    """After an error nothing waits for the timeout again."""
    (code, said), _ = ends(
        2,
        """
        if rank == 1:
            os._exit(0)
        for i in range(5):
            begin = time.monotonic()
            try:
                D.all_reduce_sum(mge.tensor([1.0])).numpy()
            except RuntimeError as e:
                print("error", i, time.monotonic() - begin < (30 if i == 0 else 0.5), flush=True)
        """,
    )
    assert [line for line in said.splitlines() if line.startswith("error")] == [f"error {i} True" for i in range(5)], (
        said
    )


def test_ctrl_c_ends_a_wait():
    import signal

    port = free_port()
    code = """
    D.all_reduce_sum(mge.tensor([1.0])).numpy()
    print("ready", flush=True)
    if rank == 1:
        time.sleep(60)
    D.all_reduce_sum(mge.tensor([1.0])).numpy()
    """
    with Job() as job:
        first, second = (job.start(script(code), {**plain_env(r, 2, port), "MGE_DIST_TIMEOUT": "60"}) for r in (0, 1))
        first.stdout.readline()
        time.sleep(0.5)
        begin = time.monotonic()
        first.send_signal(signal.SIGINT)
        status, said = job.output(first)
        assert time.monotonic() - begin < 20 and status != 0 and "KeyboardInterrupt" in said, said
        second.kill()
