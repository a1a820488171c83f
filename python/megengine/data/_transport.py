"""Objects between two processes over a Unix socket.

Arrays do not go through the socket: they are written to an anonymous file in memory whose descriptor is sent, and the
receiver maps it, so a batch is copied once. Such a file has no name and no size limit of its own (``/dev/shm`` of a
container is often 64 MB), and the system frees it with the last process that holds it, however that process ends.
Messages in the socket itself stay small, so a send never waits for a busy receiver.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import pickle
import socket
import struct
import weakref
from typing import Any

import numpy as np

_INLINE = 32 * 1024  # bytes of one message that may go through the socket
_ALIGN = 64
_HEAD = struct.Struct("<QQ")  # bytes that follow, bytes in the file (0: no file)
_MAP_POPULATE = 0x8000 if hasattr(os, "memfd_create") else 0


def send(sock: socket.socket, obj: Any) -> None:
    """Send ``obj``; arrays of it are copied before this returns."""
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(obj, protocol=5, buffer_callback=buffers.append)
    raws = [b.raw() for b in buffers]
    total = len(data) + sum(len(r) for r in raws)
    if total <= _INLINE or not hasattr(os, "memfd_create"):
        body = pickle.dumps((data, [bytes(r) for r in raws]), protocol=5)
        sock.sendall(_HEAD.pack(len(body), 0) + body)
        return
    spans: list[tuple[int, int]] = []
    at = 0
    fd = os.memfd_create("mge-batch", os.MFD_CLOEXEC)
    try:
        for part in (*raws, memoryview(data)):
            _write(fd, part, at)
            spans.append((at, len(part)))
            at = -(-(at + len(part)) // _ALIGN) * _ALIGN
        at = max(at, 1)
        os.ftruncate(fd, at)
        body = pickle.dumps(spans, protocol=5)
        socket.send_fds(sock, [_HEAD.pack(len(body), at)], [fd])
        sock.sendall(body)
    finally:
        os.close(fd)


def receive(sock: socket.socket) -> tuple[Any, int]:
    """The next object and its size in bytes; EOFError when the other side is gone."""
    head, fds, _, _ = socket.recv_fds(sock, _HEAD.size, 1)
    try:
        if not head:
            raise EOFError
        head += _exactly(sock, _HEAD.size - len(head))
        length, mapped = _HEAD.unpack(head)
        body = pickle.loads(_exactly(sock, length))
        if not mapped:
            data, inline = body
            # bytearrays, so that arrays come out writable, as they do from a mapped file
            return pickle.loads(data, buffers=[bytearray(b) for b in inline]), length
        if not fds:
            raise EOFError
        memory = _map(fds[0], mapped)
        parts = [memory[start : start + size] for start, size in body]
        return pickle.loads(parts[-1], buffers=parts[:-1]), mapped
    finally:
        for fd in fds:
            os.close(fd)


def _exactly(sock: socket.socket, size: int) -> bytes:
    chunks = bytearray()
    while len(chunks) < size:
        chunk = sock.recv(size - len(chunks))
        if not chunk:
            raise EOFError
        chunks += chunk
    return bytes(chunks)


def _write(fd: int, data: memoryview, at: int) -> None:
    while len(data):
        done = os.pwrite(fd, data, at)
        data, at = data[done:], at + done


_libc: Any = None


def _map(fd: int, size: int) -> memoryview:
    """The file's memory. Python's ``mmap`` keeps a descriptor per batch, and a list of batches would use them up."""
    global _libc
    if _libc is None:
        _libc = ctypes.CDLL(None, use_errno=True)
        _libc.mmap.restype = ctypes.c_void_p
        _libc.mmap.argtypes = [
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_long,
        ]
        _libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    address = _libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | _MAP_POPULATE, fd, 0)
    if address is None or address == ctypes.c_void_p(-1).value:
        code = ctypes.get_errno()
        raise OSError(code, f"DataLoader: cannot map a batch of {size} bytes: {os.strerror(code)}")
    block = (ctypes.c_ubyte * size).from_address(address)
    # Arrays made of the view keep `block` alive; at exit the system unmaps, since arrays may outlive this.
    unmap: Any = weakref.finalize(block, _libc.munmap, address, size)
    unmap.atexit = False
    buffer: Any = block
    view: Any = np.frombuffer(buffer, dtype=np.uint8)
    return memoryview(view)
