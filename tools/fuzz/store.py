"""Strangers and broken members at the store where processes meet: it goes on serving those who know the token."""

from __future__ import annotations

import random
import socket
import struct

from _common import limit_memory, mutate

from megengine.core._core import dist

TOKEN = "a secret that is told by nobody"


def frame(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


def text(s: bytes) -> bytes:
    return struct.pack("<Q", len(s)) + s


def questions(rng: random.Random) -> bytes:
    key = text(b"key%d" % rng.randrange(3))
    return rng.choice(
        (
            b"S" + key + text(rng.randbytes(rng.randrange(40))),
            b"G" + struct.pack("<QQQ", rng.choice((0, 1, 50)), rng.randrange(2), 1) + key,
            b"A" + text(b"count") + struct.pack("<q", rng.randrange(9)),
            b"D" + key,
            rng.randbytes(rng.randrange(30)),
            b"",
        )
    )


def main(budget: int, seed: int = 0) -> dict[str, int]:
    limit_memory()
    rng = random.Random(seed)
    server = dist.StoreServer(token=TOKEN)
    store = dist.Store("127.0.0.1", server.port, TOKEN, 10)
    counted = {"cases": 0, "strangers": 0, "members": 0}
    for case in range(budget):
        stranger = rng.random() < 0.5
        hello = rng.choice((b"", b"guess", TOKEN.encode()[:-1], rng.randbytes(20))) if stranger else TOKEN.encode()
        said = frame(hello) + b"".join(frame(questions(rng)) for _ in range(rng.randrange(6)))
        if rng.random() < 0.5:
            keep = 0 if stranger else len(frame(hello))
            said = said[:keep] + mutate(said[keep:], rng)
        with socket.create_connection(("127.0.0.1", server.port), 10) as s:
            s.settimeout(10)
            try:
                s.sendall(said)
                if rng.random() < 0.3:
                    s.shutdown(socket.SHUT_WR)
                    while s.recv(4096):
                        if stranger and hello != TOKEN.encode():
                            raise AssertionError(f"a stranger got an answer: seed {seed}, case {case}")
            except (ConnectionError, TimeoutError):
                pass
        counted["cases"] += 1
        counted["strangers" if stranger else "members"] += 1
        if case % 50 == 0:
            store.set("alive", b"%d" % case)
            assert store.get("alive", 10) == b"%d" % case, f"seed {seed}, case {case}"
    store.close()
    server.close()
    return counted
