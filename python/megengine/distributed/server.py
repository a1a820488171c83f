"""The store that processes meet at: values by key, barriers, and who is there.

``Server`` runs in a process of its own; each rank has a ``Client``. Values are plain data (``_plain``), so nothing that
arrives is ever executed. A request without the token of the job is refused, and the server listens on loopback unless
it is given another address.
"""

from __future__ import annotations

import argparse
import errno
import hmac
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from http.client import HTTPConnection, HTTPException
from socketserver import ThreadingMixIn
from typing import Any
from xmlrpc.client import Fault, ProtocolError, ServerProxy, Transport
from xmlrpc.server import SimpleXMLRPCRequestHandler, SimpleXMLRPCServer

from ..core import _core
from ..logger import get_logger
from . import _plain

__all__ = ["Client", "Methods", "Server", "ThreadXMLRPCServer", "main"]

logger = get_logger(__name__)

_TOKEN, _RANK = "X-MGE-Token", "X-MGE-Rank"


def timeout() -> float:
    """Seconds that a rank waits for the others: ``MGE_DIST_TIMEOUT``, 300 when it is not set."""
    text = os.environ.get("MGE_DIST_TIMEOUT", "300")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise ValueError(f"MGE_DIST_TIMEOUT: needs a number of seconds above 0; got {text!r}.")
    return seconds


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches ``host``."""
    return host in ("localhost", "::1") or host.startswith("127.")


class StoreError(RuntimeError):
    """The others were not there in time, or the server could not be reached."""


class _Connected:
    """How many connections of ranks are open."""

    count = 0
    lock = threading.Lock()

    def add(self, n: int) -> None:
        with self.lock:
            self.count += n


_connected = _Connected()


class _Caller(threading.local):
    rank: int | None = None


_caller = _Caller()


class Methods:
    """What the server does for its clients; every call may come from a thread of its own."""

    def __init__(self, mm_server_port: int) -> None:
        self._mm_server_port = mm_server_port
        self._changed = threading.Condition()
        self._values: dict[str, dict[str, str]] = {"user": {}, "grad": {}, "tracer": {}}
        self._meetings: dict[str, _Meeting] = {}
        self._left: set[int] = set()

    def connect(self) -> bool:
        """Answers that the server is there."""
        return True

    def get_mm_server_port(self) -> int:
        """The port of the store that tensors' connections are arranged by; 0 when there is none."""
        return self._mm_server_port

    def user_set(self, key: str, val: str) -> bool:
        """Puts a value under a key; whoever waits for it goes on."""
        return self._set("user", key, val)

    def user_get(self, key: str) -> str:
        """Waits for the value of a key."""
        return self._get("user", key, "user_get", False)

    def user_pop(self, key: str) -> str:
        """Waits for the value of a key and removes it."""
        return self._get("user", key, "user_pop", True)

    def set_is_grad(self, key: str, is_grad: bool) -> bool:
        """Says whether what is sent under a key wants a gradient."""
        return self._set("grad", key, _plain.dumps(bool(is_grad)))

    def check_is_grad(self, key: str) -> bool:
        """Waits for what ``set_is_grad`` says, and takes it."""
        return bool(_plain.loads(self._get("grad", key, "check_is_grad", True)))

    def set_remote_tracer(self, key: str, tracer_set: str) -> bool:
        """Hands over the gradient sessions that follow what is sent under a key."""
        return self._set("tracer", key, tracer_set)

    def check_remote_tracer(self, key: str) -> str:
        """Waits for what ``set_remote_tracer`` says, and takes it."""
        return self._get("tracer", key, "check_remote_tracer", True)

    def group_barrier(self, key: str, size: int) -> bool:
        """Returns when ``size`` processes have called it."""
        self._meet("group_barrier", f"barrier {key}", size, None)
        return True

    def bcast_val(self, val: str | None, key: str, size: int) -> str:
        """Of ``size`` processes one gives a value, the others get it."""
        given = [v for v in self._meet("bcast_val", f"bcast {key}", size, val).values.values() if v is not None]
        if len(given) != 1:
            raise StoreError(f"bcast_val: one of {size} processes gives the value of {key!r}; got {len(given)} values.")
        return given[0]

    def all_values(self, val: str, key: str, size: int) -> list[str]:
        """Everyone gives a value and gets those of all, by rank."""
        found = self._meet("all_values", f"all {key}", size, val).values
        return [str(found[who]) for who in sorted(found)]

    def leave(self, rank: int) -> None:
        """The rank's connection is gone; whoever waits for it hears so."""
        with self._changed:
            self._left.add(rank)
            self._changed.notify_all()

    def _set(self, kind: str, key: str, val: str) -> bool:
        with self._changed:
            self._values[kind][key] = val
            self._changed.notify_all()
        return True

    def _get(self, kind: str, key: str, who: str, take: bool) -> str:
        with self._changed:
            values, limit = self._values[kind], timeout()
            if not self._changed.wait_for(lambda: key in values, limit):
                raise StoreError(f"{who}: nobody has set {key!r} within {limit:g} s.{self._absent()}")
            return values.pop(key) if take else values[key]

    def _meet(self, who: str, key: str, size: int, val: str | None) -> _Meeting:
        with self._changed:
            meeting = self._meetings.setdefault(key, _Meeting(size))
            rank = _caller.rank if _caller.rank is not None else -1 - len(meeting.values)
            if size != meeting.size:
                raise StoreError(f"{who}: the processes disagree on how many they are, {meeting.size} and {size}.")
            if rank in meeting.values:
                raise StoreError(f"{who}: rank {rank} is there twice. Each process needs a rank of its own.")
            meeting.values[rank] = val
            if len(meeting.values) == size:
                del self._meetings[key]  # the next one with this key is another
                self._changed.notify_all()
            limit = timeout()
            met = self._changed.wait_for(lambda: len(meeting.values) == size or bool(self._left), limit)
            if len(meeting.values) < size:
                here = sorted(r for r in meeting.values if r >= 0)
                took = "" if met else f" within {limit:g} s"
                raise StoreError(
                    f"{who}: {len(meeting.values)} of {size} processes came{took}, ranks {here}.{self._absent()}"
                )
            return meeting

    def _absent(self) -> str:
        return f" Ranks {sorted(self._left)} have ended or lost their connection." if self._left else ""


class _Meeting:
    """A call that ``size`` processes make together."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.values: dict[int, str | None] = {}


class _Handler(SimpleXMLRPCRequestHandler):
    """Asks for the token, and notices when the connection of a rank ends."""

    protocol_version = "HTTP/1.1"  # one connection per rank, kept open: its end is the end of the rank
    disable_nagle_algorithm = True
    server: ThreadXMLRPCServer

    def do_POST(self) -> None:
        token = self.headers.get(_TOKEN, "")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self.close_connection = True
            self.send_error(403, "wrong token")
            return
        rank = self.headers.get(_RANK, "")
        if _caller.rank is None and rank.isdigit():
            _caller.rank = int(rank)
            _connected.add(1)
        super().do_POST()

    def log_error(self, format: str, *args: Any) -> None:
        if getattr(self.server, "logRequests", False):
            super().log_error(format, *args)

    def finish(self) -> None:
        try:
            super().finish()
        finally:
            methods = self.server.instance
            if _caller.rank is not None:
                _connected.add(-1)
                if isinstance(methods, Methods):
                    methods.leave(_caller.rank)


class ThreadXMLRPCServer(ThreadingMixIn, SimpleXMLRPCServer):
    """A thread per connection."""

    daemon_threads = True
    allow_reuse_address = True
    token = ""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is the end of a rank, which ``leave`` tells those whom it concerns."""


def _start_server(
    port: int = 0,
    ready: Callable[[int, int], Any] | None = None,
    host: str = "127.0.0.1",
    token: str = "",
    verbose: bool = False,
) -> None:
    """Listen and answer until the process ends; ``ready`` hears the two ports."""
    store = _core.dist.StoreServer(host, 0, token)
    with ThreadXMLRPCServer((host, port), requestHandler=_Handler, logRequests=verbose, allow_none=True) as server:
        server.token = token
        server.register_instance(Methods(store.port))
        if ready is not None:
            ready(server.server_address[1], store.port)
        server.serve_forever()


class Server:
    """A store in a process of its own, which ends with this object or its process.

    Args:
        port: where it listens; 0 takes a free one, which ``py_server_port`` then says.
        host: the address it listens on. Only this machine reaches the one it has by default.
        token: what clients must show; by default ``MGE_DIST_TOKEN``, and none when that is not set.

    >>> from megengine.distributed import Client, Server
    >>> server = Server()
    >>> client = Client("localhost", server.py_server_port)
    >>> client.user_set("answer", 42)
    True
    >>> client.user_get("answer")
    42
    >>> server.stop()
    """

    def __init__(self, port: int = 0, *, host: str = "127.0.0.1", token: str | None = None) -> None:
        host = "127.0.0.1" if host == "localhost" else host
        token = default_token() if token is None else token
        if not token and not is_loopback(host):
            logger.warning(
                f"Server: whoever reaches {host} can join. MGE_DIST_TOKEN, on all machines, keeps others out."
            )
        self._lingers = False
        mine, theirs = multiprocessing.Pipe(False)
        until, self._alive = multiprocessing.Pipe(False)  # closed by the end of this process, however it ends
        self.proc = _Forked(lambda: _server_process(mine, theirs, until, self._alive, port, host, token))
        theirs.close()
        until.close()
        try:
            found = mine.recv()
        except EOFError:
            raise RuntimeError(f"Server: its process ended at once, with code {self.proc.join()}.") from None
        if isinstance(found, str):
            self.proc.join()
            raise RuntimeError(found)
        self.py_server_port, self.mm_server_port = found

    @classmethod
    def at(cls, master_ip: str, ports: Sequence[int], token: str) -> Server:
        """On the first of these ports that is free, where others reach this machine as ``master_ip``.

        It outlives this process as long as a rank is connected: they may want to know why this one ended.
        """
        hosts = ["127.0.0.1"] if is_loopback(master_ip) else [master_ip, "0.0.0.0"]  # the name of a service
        problem: Exception | None = None
        for host in hosts:
            for port in ports:
                try:
                    made = cls(port, host=host, token=token)
                    made._lingers = True
                    return made
                except RuntimeError as e:
                    problem = e
        assert problem is not None
        raise problem

    def stop(self) -> None:
        """End the server's process."""
        self.proc.terminate()
        self.proc.join()

    def __del__(self) -> None:
        if hasattr(self, "proc") and not self._lingers:
            self.proc.terminate()


class _Forked:
    """A process that nobody waits for at exit."""

    def __init__(self, body: Callable[[], None]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self.owner = os.getpid()
        self.ended = False
        self.pid = os.fork()
        if self.pid == 0:
            try:
                body()
            finally:
                os._exit(1)

    def terminate(self) -> None:
        """End it, if it is ours."""
        if not self.ended and os.getpid() == self.owner:
            os.kill(self.pid, signal.SIGTERM)

    def join(self) -> int:
        """Wait for its end; what it ended with."""
        if self.ended or os.getpid() != self.owner:
            return 0
        self.ended = True
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _server_process(mine: Any, pipe: Any, until: Any, alive: Any, port: int, host: str, token: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the ranks; whoever started this one ends it
    mine.close()
    alive.close()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):  # it may outlive its owner, and whoever reads the owner's output should see it end
        os.dup2(nowhere, stream)
    threading.Thread(target=_end_with, args=(until,), daemon=True).start()
    try:
        _start_server(port, lambda *ports: pipe.send(ports), host, token)
    except OSError as e:
        way = " Take another port; 0 finds a free one." if e.errno == errno.EADDRINUSE else ""
        pipe.send(f"Server: cannot listen on {host}:{port}, {e.strerror or e}.{way}")
    except Exception as e:
        pipe.send(f"Server: {type(e).__name__}: {e}")


def _end_with(pipe: Any) -> None:
    """End this process when nobody holds the other end any more, and the ranks have left too."""
    try:
        pipe.recv()
    except EOFError:
        give_up = time.monotonic() + timeout()
        while _connected.count and time.monotonic() < give_up:
            time.sleep(0.05)
        os._exit(0)


def default_token() -> str:
    """``MGE_DIST_TOKEN``, the secret that the processes of a job share."""
    return os.environ.get("MGE_DIST_TOKEN", "")


class _Connection(Transport):
    """Shows token and rank, and gives up connecting when the server does not answer."""

    def __init__(self, token: str, rank: int | None) -> None:
        mine = [(_TOKEN, token)] + ([] if rank is None else [(_RANK, str(rank))])
        super().__init__(headers=mine)

    def make_connection(self, host: Any) -> HTTPConnection:
        made = super().make_connection(host)
        made.timeout = timeout() + 30  # the server gives up first, and says why
        return made


class Client:
    """A connection to a ``Server``. Calls that wait do so up to ``MGE_DIST_TIMEOUT`` seconds.

    Args:
        master_ip: where the server is.
        port: its ``py_server_port``.
        token: of the job; by default ``MGE_DIST_TOKEN``.
        rank: of this process; the server can then say who is missing, and that this one ended.
    """

    def __init__(self, master_ip: str, port: int, *, token: str | None = None, rank: int | None = None) -> None:
        self._set_up(master_ip, [port], token, rank)

    @classmethod
    def at(cls, master_ip: str, ports: Sequence[int], token: str | None, rank: int | None) -> Client:
        """Of the server that takes this token, on one of these ports."""
        made = cls.__new__(cls)
        made._set_up(master_ip, ports, token, rank)
        return made

    def _set_up(self, master_ip: str, ports: Sequence[int], token: str | None, rank: int | None) -> None:
        self.master_ip = master_ip
        self.port = ports[0]
        self._ports = ports
        self._token = default_token() if token is None else token
        self._rank = rank
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self.connect()

    def connect(self) -> None:
        """Try until the server answers."""
        limit = timeout()
        until = time.monotonic() + limit
        while True:
            for port in self._ports:
                self.port = port
                transport = _Connection(self._token, self._rank)
                self.proxy = ServerProxy(f"http://{self.master_ip}:{self.port}", transport=transport, allow_none=True)
                try:
                    self._answer("connect")
                    return
                except OSError as e:
                    problem = str(e)
                except StoreError:  # somebody else's server; the right one may be on another port
                    if len(self._ports) == 1:
                        raise
                    problem = "the servers there belong to others"
            if time.monotonic() >= until:
                where = f"{self.master_ip}:{'|'.join(map(str, self._ports))}"
                raise StoreError(
                    f"Client: nobody answers at {where} within {limit:g} s: {problem}. Is rank 0 started, and are "
                    "address and port the ones it has?"
                )
            time.sleep(0.05)

    def get_mm_server_port(self) -> int:
        """The port of the store that tensors' connections are arranged by."""
        return int(self._call("get_mm_server_port"))

    def user_set(self, key: str, val: Any) -> bool:
        """Put plain data under a key."""
        return bool(self._call("user_set", key, _plain.dumps(val)))

    def user_get(self, key: str) -> Any:
        """Wait for the value of a key."""
        return _plain.loads(self._call("user_get", key))

    def user_pop(self, key: str) -> Any:
        """Wait for the value of a key and remove it."""
        return _plain.loads(self._call("user_pop", key))

    def set_is_grad(self, key: str, is_grad: bool) -> bool:
        """Say whether what is sent under a key wants a gradient."""
        return bool(self._call("set_is_grad", key, is_grad))

    def check_is_grad(self, key: str) -> bool:
        """Wait for what ``set_is_grad`` says, and take it."""
        return bool(self._call("check_is_grad", key))

    def set_remote_tracer(self, key: str, tracer_set: Any) -> bool:
        """Hand over the names of the gradient sessions that follow what is sent under a key."""
        return bool(self._call("set_remote_tracer", key, _plain.dumps(tracer_set)))

    def check_remote_tracer(self, key: str) -> Any:
        """Wait for what ``set_remote_tracer`` says, and take it."""
        return _plain.loads(self._call("check_remote_tracer", key))

    def group_barrier(self, key: str, size: int) -> None:
        """Return when ``size`` processes have called it with this key."""
        self._call("group_barrier", key, size)

    def bcast_val(self, val: Any, key: str, size: int) -> Any:
        """Of ``size`` processes one gives a value, the others None; everyone gets the value."""
        return _plain.loads(self._call("bcast_val", None if val is None else _plain.dumps(val), key, size))

    def all_values(self, val: Any, key: str, size: int) -> list[Any]:
        """Of ``size`` processes each gives a value and gets those of all, by rank."""
        return [_plain.loads(v) for v in self._call("all_values", _plain.dumps(val), key, size)]

    def _call(self, name: str, *args: Any) -> Any:
        if self._pid != os.getpid():
            raise StoreError("Client: a forked process needs a Client of its own; this one belongs to its parent.")
        try:
            return self._answer(name, *args)
        except OSError as e:
            raise StoreError(
                f"{name}: the server at {self.master_ip}:{self.port} is gone: {e}. It ends with the process that "
                "started it, rank 0 or the launcher."
            ) from None

    def _answer(self, name: str, *args: Any) -> Any:
        try:
            with self._lock:
                return getattr(self.proxy, name)(*args)
        except Fault as e:
            _, _, text = e.faultString.partition(":")  # after the class
            raise StoreError(text or e.faultString) from None
        except ProtocolError as e:
            if e.errcode == 403:
                raise StoreError(
                    f"Client: the server at {self.master_ip}:{self.port} belongs to another job: it refuses this "
                    "token. Processes of one job have the same MGE_DIST_TOKEN."
                ) from None
            raise StoreError(f"Client: {self.master_ip}:{self.port} is no server of megengine: {e.errmsg}.") from None
        except HTTPException as e:
            raise StoreError(f"Client: {self.master_ip}:{self.port} is no server of megengine: {e!r}.") from None


def main(port: int = 0, verbose: bool = True) -> None:
    """Run a server in this process: ``python -m megengine.distributed.server -p PORT``."""
    _start_server(
        port, lambda py, mm: print(f"serving on port {py}", flush=True), token=default_token(), verbose=verbose
    )


def _flag(text: str) -> bool:
    return text.lower() not in ("0", "false", "no")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-p", "--port", type=int, default=0, help="where to listen; 0 takes a free port")
    parser.add_argument("-v", "--verbose", type=_flag, default=True, help="whether requests are logged, 1 or 0")
    given = parser.parse_args()
    main(given.port, given.verbose)
