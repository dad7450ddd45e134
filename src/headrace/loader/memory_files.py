"""Handing objects with large buffers to another process: memory files (`memfd_create(2)`) passed over a Unix socket.

Nothing ever has a name, so nothing can be left in /dev/shm: the kernel frees the memory with the last descriptor or
mapping. One segment holds a table of int64 (pickle's place and length, number of buffers, place and length of each),
the pickle (protocol 5), and the buffers, each at a multiple of 64 bytes. `Sender` and `Receiver`: one way, ahead of the
receiver; segments are used again once it has dropped every array in them. `Outbox` and `Inbox`: one object at a time,
whose place is written over by the next.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import socket
import struct
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np

_MESSAGE = struct.Struct("<BIQ")
OBJECT, FREE, DROP, CREDIT = range(4)
_ALIGN = 64  # bytes: a line of the processor's cache
_ROUND = 1 << 20
"""Bytes: sizes are rounded up to it, so that a file that comes back fits the next batch of about that size."""
_LARGE, _TIMES = 64 << 20, 4
"""Bytes of a memory file that is kept for what takes a part of it: one large sample must not hold that much for good.
"""
_Bytes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"


class _Pickler(pickle.Pickler):
    """Memoryviews and tensors of PyTorch travel as buffers too."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is memoryview and obj.c_contiguous:
            return _view, (pickle.PickleBuffer(obj), obj.format, obj.shape)
        torch = sys.modules.get("torch")
        return NotImplemented if torch is None or type(obj) is not torch.Tensor else _of_tensor(torch, cast("Any", obj))


def _view(buffer: Any, form: str, shape: tuple[int, ...]) -> memoryview:
    flat = memoryview(buffer)
    return flat if (form, len(shape)) == ("B", 1) else flat.cast("B").cast(cast("Any", form), shape)


def _of_tensor(torch: Any, tensor: Any) -> Any:
    plain = tensor.layout is torch.strided and not tensor.requires_grad and not tensor.is_quantized
    if tensor.device.type != "cpu" or not plain or not tensor.numel():
        return NotImplemented  # its own way is for all kinds, and slower
    flat = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8).numpy()
    return _tensor, (pickle.PickleBuffer(flat), tensor.dtype, tuple(tensor.shape))


def _tensor(buffer: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
    import torch

    return torch.frombuffer(buffer, dtype=dtype).reshape(shape)


@dataclass(frozen=True)
class Packed:
    """An object, ready to be copied into shared memory. `size`: bytes that it takes there."""

    table: np.ndarray[Any, np.dtype[np.int64]]
    pickled: memoryview
    buffers: list[memoryview]
    size: int

    @staticmethod
    def of(obj: Any) -> Packed:
        """Raises what pickling raises."""
        buffers: list[pickle.PickleBuffer] = []
        stream = io.BytesIO()
        _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(obj)
        pickled, raws = stream.getbuffer(), [buffer.raw() for buffer in buffers]
        table = np.zeros(3 + 2 * len(raws), dtype=np.int64)
        table[:3] = (table.nbytes, len(pickled), len(raws))
        end = table.nbytes + len(pickled)
        for place, raw in enumerate(raws):
            start = -(-end // _ALIGN) * _ALIGN
            table[3 + 2 * place : 5 + 2 * place] = (start, raw.nbytes)
            end = start + raw.nbytes
        return Packed(table, pickled, raws, end)

    def write(self, target: _Bytes) -> None:
        """Copy it to the beginning of `target`."""
        end = self.table.nbytes
        target[:end] = self.table.view(np.uint8)
        target[end : end + len(self.pickled)] = np.frombuffer(self.pickled, dtype=np.uint8)
        for place, raw in enumerate(self.buffers):
            start, length = self.table[3 + 2 * place : 5 + 2 * place].tolist()
            target[start : start + length] = np.frombuffer(raw, dtype=np.uint8)


def unpacked(base: _Bytes, own: Callable[[memoryview], Any] | None = None) -> Any:
    """The object that was written to `base`, its arrays lying there; `own`: makes a copy of each buffer instead."""
    start, length, count = base[:24].view(np.int64).tolist()
    table = base[24 : 24 + 16 * count].view(np.int64).tolist()
    view = memoryview(cast("Any", base))
    buffers = [view[table[2 * i] : table[2 * i] + table[2 * i + 1]] for i in range(count)]
    pickled = view[start : start + length]
    return pickle.loads(pickled, buffers=buffers if own is None else map(own, buffers))  # noqa: S301 - our own process


def connection() -> tuple[socket.socket, socket.socket]:
    """Two ends that keep message boundaries."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class Segment:
    """One memory file, mapped."""

    def __init__(self, number: int, size: int, fd: int) -> None:
        self.number, self.size, self.fd = number, size, fd
        self.map = mmap.mmap(fd, size)

    def array(self) -> _Bytes:
        """All of it; an array made over it keeps the mapping."""
        return np.frombuffer(self.map, dtype=np.uint8)

    def close(self) -> None:
        """Close the descriptor; what lies over the mapping stays valid."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

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
        packed = Packed.of(obj)
        segment, is_new = self._segment(packed.size)
        packed.write(segment.array())
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
        base = segment.array()
        # Every array made below holds on to `base`; with the last of them the segment goes back.
        weakref.finalize(base, tell, self._sock, FREE, segment.number).atexit = False
        return unpacked(base)

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


class Outbox:
    """Objects written to the beginning of one memory file, one after the other has been read. One thread at a time."""

    def __init__(self) -> None:
        self._segment: Segment | None = None

    def put(self, packed: Packed) -> list[int]:
        """Write one. Returns the descriptor that the reader needs, if the file is a new one."""
        segment, is_new = self._segment, False
        if segment is None or segment.size < packed.size or _LARGE < segment.size > _TIMES * packed.size:
            self.renew()
            segment, is_new = Segment.create(0, packed.size), True
            self._segment = segment
        packed.write(segment.array())
        return [segment.fd] if is_new else []

    def renew(self) -> None:
        """Take another file for the next: who read the last one keeps arrays in it."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None


class Inbox:
    """The other end. One thread at a time."""

    def __init__(self) -> None:
        self._segment: Segment | None = None
        self._lent: weakref.ref[_Bytes] | None = None

    def get(self, fds: list[int], own: Callable[[memoryview], Any] | None = None) -> Any:
        """What was put; its arrays lie in the file, and are written over, but for those that `own` copies."""
        if fds:
            self.close()
            self._segment = Segment(0, os.fstat(fds[0]).st_size, fds[0])
        assert self._segment is not None
        base = self._segment.array()
        self._lent = weakref.ref(base)
        return unpacked(base, own)

    @property
    def is_lent(self) -> bool:
        """Whether somebody has an array in the file yet."""
        return self._lent is not None and self._lent() is not None

    def close(self) -> None:
        """Close the descriptor; arrays stay valid."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None
