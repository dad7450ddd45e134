"""Handing objects with large buffers to another process: memory files (`memfd_create(2)`) passed over a Unix socket.

Nothing ever has a name, so nothing can be left in /dev/shm: the kernel frees the memory with the last descriptor or
mapping. One segment holds a table of int64 (pickle's place and length, number of buffers, place and length of each),
the pickle (protocol 5), and the buffers, each at a multiple of 64 bytes. Segments are used again once the receiver has
dropped every array in them.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import socket
import struct
import threading
import weakref
from typing import Any, cast

import numpy as np

_MESSAGE = struct.Struct("<BIQ")
OBJECT, FREE, DROP, CREDIT = range(4)
_ALIGN = 64  # bytes: a line of the processor's cache
_ROUND = 1 << 20
"""Bytes: sizes are rounded up to it, so that a file that comes back fits the next batch of about that size."""


class _Pickler(pickle.Pickler):
    """Memoryviews travel as buffers too."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is memoryview and obj.contiguous:
            return memoryview, (pickle.PickleBuffer(obj),)
        return NotImplemented


def connection() -> tuple[socket.socket, socket.socket]:
    """Two ends that keep message boundaries."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class Segment:
    """One memory file, mapped."""

    def __init__(self, number: int, size: int, fd: int) -> None:
        self.number, self.size, self.fd = number, size, fd
        self.map = mmap.mmap(fd, size)

    @staticmethod
    def create(number: int, size: int) -> Segment:
        """A new one of at least `size` bytes."""
        size = -(-size // _ROUND) * _ROUND
        fd = os.memfd_create("headrace", os.MFD_CLOEXEC)
        os.ftruncate(fd, size)
        return Segment(number, size, fd)


class Sender:
    """The writing end. `send` on one thread; `listen` on another."""

    def __init__(self, sock: socket.socket, credit: int) -> None:
        self._sock = sock
        self._credit = threading.Semaphore(credit)
        self._free: list[Segment] = []
        self._used: dict[int, Segment] = {}
        self._lock = threading.Lock()
        self._count = 0

    def listen(self) -> None:
        """Take back credit and segments until the other end is gone."""
        while message := self._sock.recv(_MESSAGE.size):
            kind, number, _ = _MESSAGE.unpack(message)
            if kind == CREDIT:
                self._credit.release()
            elif kind == FREE:
                with self._lock:
                    self._free.append(self._used.pop(number))

    def wait(self) -> None:
        """Until the receiver wants one more object."""
        self._credit.acquire()

    def send(self, obj: Any) -> None:
        """Copy an object into shared memory and hand it over."""
        buffers: list[pickle.PickleBuffer] = []
        stream = io.BytesIO()
        _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(obj)
        meta = stream.getbuffer()
        raws = [buffer.raw() for buffer in buffers]
        table = np.zeros(3 + 2 * len(raws), dtype=np.int64)
        table[:3] = (table.nbytes, len(meta), len(raws))
        end = table.nbytes + len(meta)
        for place, raw in enumerate(raws):
            start = -(-end // _ALIGN) * _ALIGN
            table[3 + 2 * place : 5 + 2 * place] = (start, raw.nbytes)
            end = start + raw.nbytes
        segment, is_new = self._segment(end)
        target = np.frombuffer(segment.map, dtype=np.uint8)
        target[: table.nbytes] = table.view(np.uint8)
        target[table.nbytes : table.nbytes + len(meta)] = np.frombuffer(meta, dtype=np.uint8)
        for place, raw in enumerate(raws):
            start, length = table[3 + 2 * place : 5 + 2 * place].tolist()
            target[start : start + length] = np.frombuffer(raw, dtype=np.uint8)
        message = _MESSAGE.pack(OBJECT, segment.number, segment.size)
        if is_new:
            socket.send_fds(self._sock, [message], [segment.fd])
        else:
            self._sock.send(message)

    def _segment(self, size: int) -> tuple[Segment, bool]:
        with self._lock:
            fitting = [segment for segment in self._free if segment.size >= size]
            if fitting:
                segment = min(fitting, key=lambda one: one.size)
                self._free.remove(segment)
                self._used[segment.number] = segment
                return segment, False
            stale, self._free = self._free, []
        for segment in stale:
            self._sock.send(_MESSAGE.pack(DROP, segment.number, 0))
            os.close(segment.fd)
        segment = Segment.create(self._count, size)
        self._count += 1
        with self._lock:
            self._used[segment.number] = segment
        return segment, True


class Receiver:
    """The reading end. `receive` on one thread; objects may be dropped on any."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._maps: dict[int, Segment] = {}

    def receive(self) -> Any:
        """The next object, its arrays lying in shared memory, writable, valid as long as they are held.

        Raises EOFError when the other end is gone.
        """
        while True:
            message, fds, _, _ = socket.recv_fds(self._sock, _MESSAGE.size, 1)
            if not message:
                raise EOFError
            kind, number, size = _MESSAGE.unpack(message)
            if kind == DROP:
                os.close(self._maps.pop(number).fd)
                continue
            if fds:
                self._maps[number] = Segment(number, size, fds[0])
            tell(self._sock, CREDIT, 0)
            return self._load(self._maps[number])

    def _load(self, segment: Segment) -> Any:
        base = np.frombuffer(segment.map, dtype=np.uint8)
        # Every array made below holds on to `base`; with the last of them the segment goes back.
        weakref.finalize(base, tell, self._sock, FREE, segment.number).atexit = False
        start, length, count = base[:24].view(np.int64).tolist()
        table = base[24 : 24 + 16 * count].view(np.int64).tolist()
        view = memoryview(cast("Any", base))
        buffers = [view[table[2 * i] : table[2 * i] + table[2 * i + 1]] for i in range(count)]
        return pickle.loads(view[start : start + length], buffers=buffers)  # noqa: S301 - our own child wrote it

    def close(self) -> None:
        """Close socket and descriptors; arrays handed out stay valid."""
        self._sock.close()
        for segment in self._maps.values():
            os.close(segment.fd)
        self._maps.clear()


def tell(sock: socket.socket, kind: int, number: int) -> None:
    """A short message, never waiting; lost when the other end is gone."""
    try:
        sock.send(_MESSAGE.pack(kind, number, 0), socket.MSG_DONTWAIT)
    except OSError:
        pass
