"""The store and its client, and what the environment says."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from megengine.distributed import Client, Server, _plain, environment
from megengine.distributed.server import StoreError


@pytest.fixture
def server():
    made = Server(token="secret")
    yield made
    made.stop()


def client(server: Server, rank: int | None = None) -> Client:
    return Client("localhost", server.py_server_port, token="secret", rank=rank)


PLAIN = [None, True, 5, 2**40, 1.5, float("inf"), "text", b"\x00\xff", [1, [2, {"a": None}]], {"a": b"b", "c": [1.0]}]


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_data_goes_through(server, value):
    c = client(server)
    assert c.user_set("key", value) is True
    assert c.user_get("key") == value
    assert c.user_pop("key") == value


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "float16", "complex64"])
def test_arrays_go_through(server, dtype):
    value = np.array([[0, 1, 2], [3, 4, 5]]).astype(dtype)
    c = client(server)
    c.user_set("key", value)
    found = c.user_get("key")
    assert found.dtype == value.dtype and np.array_equal(found, value)


def test_a_tuple_comes_back_as_a_list_and_objects_are_refused(server):
    c = client(server)
    c.user_set("key", (1, (2,)))
    assert c.user_get("key") == [1, [2]]
    for value in (object(), {1, 2}, np.array([object()]), print):
        with pytest.raises(TypeError, match="store: only plain data goes through it"):
            c.user_set("key", value)
    with pytest.raises(TypeError, match="keys of a dict must be strings; got 1"):
        c.user_set("key", {1: 2})


def test_a_text_that_names_an_object_is_only_data():
    with pytest.raises(ValueError, match="is not plain data"):
        _plain.loads('{"__array__": ["O", [1], "AAAA"]}')


def test_get_waits_and_pop_takes(server, monkeypatch):
    a, b = client(server), client(server)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(a.user_get, "late")
        time.sleep(0.1)
        assert not waiting.done()
        b.user_set("late", 3)
        assert waiting.result(5) == 3
    assert b.user_pop("late") == 3


def test_barrier_broadcast_and_all_values(server):
    clients = [client(server, rank) for rank in range(3)]
    with ThreadPoolExecutor(3) as pool:
        for _ in range(3):  # the same key again is another meeting
            assert list(pool.map(lambda c: c.group_barrier("all", 3), clients)) == [None] * 3
        given = [None, {"x": 1}, None]
        assert list(pool.map(lambda c, v: c.bcast_val(v, "k", 3), clients, given)) == [{"x": 1}] * 3
        assert list(pool.map(lambda c, v: c.all_values(v, "k", 3), clients, "abc")) == [["a", "b", "c"]] * 3


def test_handshakes(server):
    a, b = client(server), client(server)
    a.set_is_grad("g", True)
    assert b.check_is_grad("g") is True
    a.set_remote_tracer("t", {"grad_0": True})
    assert b.check_remote_tracer("t") == {"grad_0": True}
    assert a.get_mm_server_port() == server.mm_server_port


def test_a_stranger_is_refused(server):
    with pytest.raises(StoreError, match="belongs to another job: it refuses this token.*MGE_DIST_TOKEN"):
        Client("localhost", server.py_server_port, token="guess")
    with pytest.raises(StoreError, match="refuses this token"):
        Client("localhost", server.py_server_port)


def test_other_machines_do_not_reach_it(server):
    outside = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=False).stdout.split()
    for address in outside:
        with pytest.raises(OSError, match="refused|unreachable|timed out"):
            socket.create_connection((address, server.py_server_port), 1)


def test_a_port_in_use_is_named(server):
    port = server.py_server_port
    with pytest.raises(RuntimeError, match=f"Server: cannot listen on 127.0.0.1:{port}, Address already in use.*port"):
        Server(port)


def test_nobody_answers(monkeypatch):
    monkeypatch.setenv("MGE_DIST_TIMEOUT", "0.3")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(StoreError, match=rf"nobody answers at 127.0.0.1:{port} within 0.3 s.*Is rank 0 started"):
        Client("127.0.0.1", port)


def test_someone_else_listens(monkeypatch):
    monkeypatch.setenv("MGE_DIST_TIMEOUT", "1")
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer():
            conn, _ = other.accept()
            conn.recv(1000)
            conn.sendall(b"SSH-2.0-other\r\n")
            conn.close()

        for _ in range(2):
            threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(StoreError, match="is no server of megengine"):
            Client("127.0.0.1", other.getsockname()[1])


def test_who_is_missing_is_named(monkeypatch):
    monkeypatch.setenv("MGE_DIST_TIMEOUT", "0.5")
    server = Server()
    c = Client("localhost", server.py_server_port, rank=2)
    with pytest.raises(StoreError, match=r"group_barrier: 1 of 3 processes came within 0.5 s, ranks \[2\]"):
        c.group_barrier("all", 3)
    with pytest.raises(StoreError, match="user_get: nobody has set 'nothing' within 0.5 s"):
        c.user_get("nothing")
    server.stop()
    with pytest.raises(StoreError, match="user_set: the server at localhost:.* is gone.*rank 0"):
        c.user_set("key", 1)


def test_a_rank_that_dies_in_a_barrier_is_named(server):
    mine = client(server, 0)
    code = f"""
import time
from megengine.distributed import Client
Client("localhost", {server.py_server_port}, token="secret", rank=1)
print("there", flush=True)
time.sleep(60)
"""
    other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    other.stdout.readline()
    threading.Timer(0.2, other.kill).start()
    begin = time.monotonic()
    with pytest.raises(StoreError, match=r"1 of 2 processes came, ranks \[0\]. Ranks \[1\] have ended"):
        mine.group_barrier("all", 2)
    assert time.monotonic() - begin < 10
    other.wait()


def test_disagreement_on_the_size_and_ranks_that_are_there_twice(server):
    first, twin, third = client(server, 0), client(server, 0), client(server, 1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(first.group_barrier, "all", 2)
        time.sleep(0.2)
        with pytest.raises(StoreError, match="rank 0 is there twice"):
            twin.group_barrier("all", 2)
        with pytest.raises(StoreError, match="the processes disagree on how many they are, 2 and 3"):
            third.group_barrier("all", 3)
        third.group_barrier("all", 2)
        waiting.result(5)


def test_the_server_ends_with_its_process():
    code = "import time, megengine.distributed as d; s = d.Server(); print(s.proc.pid, flush=True); time.sleep(60)"
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    pid = int(owner.stdout.readline())
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    for _ in range(100):
        try:
            with open(f"/proc/{pid}/stat") as f:
                if f.read().rsplit(")", 1)[1].split()[0] == "Z":
                    break
        except FileNotFoundError:
            break
        time.sleep(0.05)
    else:
        os.kill(pid, signal.SIGKILL)
        pytest.fail("the server outlived the process that started it")


def test_the_server_as_a_program():
    env = {**os.environ, "MGE_DIST_TOKEN": "t"}
    program = [sys.executable, "-m", "megengine.distributed.server", "-p", "0", "-v", "0"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=env) as running:
        try:
            port = int(running.stdout.readline().split()[-1])
            assert Client("localhost", port, token="t").user_set("a", 1)
        finally:
            running.terminate()


@pytest.mark.parametrize(
    "env, want",
    [
        ({}, None),
        (
            {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "MASTER_ADDR": "h", "MASTER_PORT": "5"},
            (1, 4, 0, "h", 5),
        ),
        (
            {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "3"}
            | {"OMPI_COMM_WORLD_LOCAL_SIZE": "4"},
            (3, 4, 3, "127.0.0.1", 29500),
        ),
        (
            {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1"}
            | {"SLURM_STEP_NODELIST": "node[07-09]", "MASTER_PORT": "7"},
            (5, 8, 1, "node07", 7),
        ),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_NODELIST": "a,b"}, None),  # a batch script: one process
    ],
)
def test_the_environment_of_launchers(env, want):
    found = environment.place(env)
    got = found and (found.rank, found.world_size, found.local_rank, found.master, found.port)
    assert got == want


def test_an_environment_that_makes_no_sense():
    with pytest.raises(ValueError, match="RANK=4 is no rank of WORLD_SIZE=4 processes"):
        environment.place({"RANK": "4", "WORLD_SIZE": "4"})
    with pytest.raises(ValueError, match="WORLD_SIZE should be a number; it is 'many'"):
        environment.place({"RANK": "4", "WORLD_SIZE": "many"})
    with pytest.raises(ValueError, match="nothing says where rank 0 is. Set MASTER_ADDR"):
        environment.place({"RANK": "1", "WORLD_SIZE": "4"})


def test_tokens_and_ports_of_launchers():
    assert environment.token({}) == "" and environment.ports(5, {}) == [5]
    assert environment.token({"TORCHELASTIC_RUN_ID": "7"}) == "7"
    assert environment.token({"TORCHELASTIC_RUN_ID": "7", "MGE_DIST_TOKEN": "s"}) == "s"
    assert environment.token({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "1"}) == "7.1"
    assert 5 not in environment.ports(5, {"TORCHELASTIC_USE_AGENT_STORE": "True"})
