"""Objects between two processes over a Unix socket.

Arrays do not go through the socket: the sender copies them into a slot, an anonymous file in memory that both sides
map, and the receiver copies them out. The descriptor of a slot is sent once, and a slot is used again when the receiver
has said that it is done with it (making memory costs ten times as much as copying into it). Such a file has no name and
no limit of its own (``/dev/shm`` of a container is often 64 MB), and the system frees it with the last process that
holds it, however that process ends. Messages in the socket stay small, so a send never waits for a busy receiver.
"""

from __future__ import annotations

import mmap
import os
import pickle
import socket
import struct
from typing import Any

import numpy as np

_INLINE = 32 * 1024  # bytes of one message that may go through the socket
_ALIGN = 64
_HEAD = struct.Struct("<Q")  # bytes that follow


class _Slot:
    """Memory that the other side can map."""

    def __init__(self, size: int) -> None:
        self.size = -(-(size + size // 4) // mmap.PAGESIZE) * mmap.PAGESIZE  # room for batches that differ a little
        self.fd = os.memfd_create("mge-batch", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, self.size)
        self.memory = np.frombuffer(mmap.mmap(self.fd, self.size), np.uint8)
        self.free = True

    def sent(self) -> None:
        """The other side has its own descriptor now."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Channel:
    """One end of a connection. What is received is the receiver's own: nothing in it is shared."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._mine: list[_Slot] = []
        self._theirs: dict[int, Any] = {}
        self._done: list[int] = []  # their slots that have been read since the last send

    def fileno(self) -> int:
        return self.sock.fileno()

    def close(self) -> None:
        self.sock.close()
        for slot in self._mine:
            slot.sent()
        self._mine.clear()
        self._theirs.clear()

    def send(self, obj: Any) -> None:
        """Send ``obj``; it may change as soon as this returns."""
        buffers: list[pickle.PickleBuffer] = []
        data = pickle.dumps(obj, protocol=5, buffer_callback=buffers.append)
        parts = [*(b.raw() for b in buffers), memoryview(data)]
        total = sum(-(-len(p) // _ALIGN) * _ALIGN for p in parts)
        if total <= _INLINE or not hasattr(os, "memfd_create"):
            self._post((self._done, None, [bytes(p) for p in parts]), None)
            return
        number = self._slot_for(total)
        slot, at = self._mine[number], 0
        spans: list[tuple[int, int]] = []
        for part in parts:
            slot.memory[at : at + len(part)] = np.frombuffer(part, np.uint8)
            spans.append((at, len(part)))
            at += -(-len(part) // _ALIGN) * _ALIGN
        slot.free = False
        self._post((self._done, (number, slot.size), spans), slot if slot.fd >= 0 else None)

    def _slot_for(self, size: int) -> int:
        """A free slot of that size; a free one that is too small is made anew rather than another one added."""
        free = [i for i, slot in enumerate(self._mine) if slot.free]
        for i in free:
            if self._mine[i].size >= size:
                return i
        if free:
            self._mine[free[0]].sent()
            self._mine[free[0]] = _Slot(size)
            return free[0]
        self._mine.append(_Slot(size))
        return len(self._mine) - 1

    def _post(self, message: Any, new: _Slot | None) -> None:
        body = pickle.dumps(message, protocol=5)
        self._done = []
        if new is None:
            self.sock.sendall(_HEAD.pack(len(body)) + body)
            return
        socket.send_fds(self.sock, [_HEAD.pack(len(body))], [new.fd])
        new.sent()
        self.sock.sendall(body)

    def receive(self) -> tuple[Any, int]:
        """The next object and its size in bytes; EOFError when the other side is gone."""
        head, fds, _, _ = socket.recv_fds(self.sock, _HEAD.size, 1)
        try:
            if not head:
                raise EOFError
            head += self._exactly(_HEAD.size - len(head))
            done, slot, parts = pickle.loads(self._exactly(_HEAD.unpack(head)[0]))
            for number in done:
                self._mine[number].free = True
            if slot is None:
                # bytearrays, so that arrays come out writable
                *arrays, data = (bytearray(p) for p in parts)
                return pickle.loads(data, buffers=arrays), sum(map(len, parts))
            number, size = slot
            if fds:
                self._theirs[number] = np.frombuffer(mmap.mmap(fds[0], size), np.uint8)
            memory = self._theirs[number]
            *copies, data = (memory[at : at + length].copy() for at, length in parts)
            self._done.append(number)
            return pickle.loads(data, buffers=copies), sum(length for _, length in parts)
        finally:
            for fd in fds:
                os.close(fd)

    def _exactly(self, size: int) -> bytes:
        chunks = bytearray()
        while len(chunks) < size:
            chunk = self.sock.recv(size - len(chunks))
            if not chunk:
                raise EOFError
            chunks += chunk
        return bytes(chunks)
