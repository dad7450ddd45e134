"""Passthrough: files that the kernel reads by itself, registered once and kept for the next open.

A file is registered by an ioctl that gives an id; while any open of a node uses one, all opens of that node must.
Ids of nodes that nobody has open are kept, least recently used first out, so that opening again costs nothing but the
reply.
A kept id keeps its file: once the cache has evicted the entry, `sweep` lets it go.
"""

from __future__ import annotations

import fcntl
import itertools
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

from headrace.mount.kernel import wire

_log = logging.getLogger("headrace.mount")
_MOST = 16_384
"""Files kept registered, 2 kB of the kernel each: an epoch over more small files than this registers each again."""
_SWEPT = 4096  # files looked at in one sweep


class BackingFile:
    """One registered file. `opens`: how often its node is open by it. `path`: of the file, "" if it has none."""

    __slots__ = ("id", "opens", "path", "used", "writable")

    def __init__(self, number: int, path: str, *, writable: bool) -> None:
        self.id = number
        self.path = path
        self.opens = 1
        self.used = True
        self.writable = writable


class BackingFiles:
    """Registered files by node. Any thread.

    Args:
        fd: the mount's descriptor; -1 where there is no passthrough.
        most: ids kept while not open.
        gone: called with each node whose file is no longer registered.
    """

    def __init__(self, fd: int, most: int = _MOST, gone: Callable[[int], object] | None = None) -> None:
        self._fd = fd
        self._gone = gone
        self._most = most
        self._ordered_from = most // 2  # files from which on it matters who was used last
        self._lock = threading.Lock()
        self._by_node: OrderedDict[int, BackingFile] = OrderedDict()
        self._swept = 0
        self.enabled = fd >= 0

    def reuse(self, node: int, *, writable: bool = False) -> BackingFile | None:
        """Open a node again by the file it is registered with."""
        with self._lock:
            backing = self._by_node.get(node)
            if backing is None or backing.writable != writable:
                return None
            backing.opens += 1
            backing.used = True
            return backing

    def is_open(self, node: int) -> bool:
        """Whether any open of the node is by a backing file."""
        backing = self._by_node.get(node)
        return backing is not None and backing.opens > 0

    def open(self, node: int, fd: int, path: str = "", *, writable: bool = False) -> BackingFile | None:
        """Open a node by the file `fd`, which the caller closes. None: the kernel refuses; it is not asked again."""
        buffer = bytearray(wire.BACKING_MAP.pack(fd, 0, 0))
        try:
            number = fcntl.ioctl(self._fd, wire.BACKING_OPEN, buffer, True)
        except OSError as error:
            self.enabled = False
            _log.warning("passthrough is switched off: %s", error.strerror)
            return None
        backing = BackingFile(number, path, writable=writable)
        with self._lock:
            old = self._by_node.get(node)
            if old is not None and old.opens and old.writable == writable:  # another thread was quicker: one id a node
                old.opens += 1
                backing, spare = old, backing
            else:
                spare = old
                self._by_node[node] = backing
            evicted = self._surplus()
        if spare is not None:
            self._close(spare)
        for gone, each in evicted:
            self._end(gone, each)
        return backing

    def release(self, node: int) -> None:
        """One open of the node has ended."""
        with self._lock:
            backing = self._by_node.get(node)
            if backing is None:
                return
            backing.opens -= 1
            if backing.opens <= 0 and len(self._by_node) > self._ordered_from:
                self._by_node.move_to_end(node)

    def drop(self, node: int) -> None:
        """The node is gone, or its file must not be used again."""
        with self._lock:
            backing = self._by_node.get(node)
            if backing is None or backing.opens > 0:
                return
            del self._by_node[node]
        self._end(node, backing)

    def sweep(self, fresh_s: float = 300.0, most: int = _SWEPT) -> int:
        """Let go of files that have left the cache, and mark those in use as used there. Returns how many went.

        Looks at the next `most` of them: all in turn, a few at a time, since each look holds up who opens files.
        """
        with self._lock:
            start, self._swept = self._swept, self._swept + most
            if self._swept >= len(self._by_node):
                self._swept = 0
            held = [pair for pair in itertools.islice(self._by_node.items(), start, start + most) if pair[1].path]
        gone = 0
        for node, backing in held:
            try:
                old = os.stat(backing.path).st_mtime
            except OSError:
                self.drop(node)
                gone += 1
                continue
            if backing.used:
                backing.used = False
                if time.time() - old > fresh_s:
                    with suppress(OSError):
                        os.utime(backing.path)
        return gone

    def forget_earlier(self) -> None:
        """Let go of all files that an earlier server registered: they would keep their room on the disk for as long as
        the mount lives. What is open by them stays open. The kernel counts ids upwards, so the next id shows which was
        the last.
        """
        fd = os.memfd_create("headrace")
        try:
            buffer = bytearray(wire.BACKING_MAP.pack(fd, 0, 0))
            number = fcntl.ioctl(self._fd, wire.BACKING_OPEN, buffer, True)
        except OSError as error:
            _log.warning("files of an earlier server stay registered: %s", error.strerror)
            return
        finally:
            os.close(fd)
        for each in range(1, number + 1):
            with suppress(OSError):
                fcntl.ioctl(self._fd, wire.BACKING_CLOSE, each.to_bytes(4, "little"))

    @property
    def open_count(self) -> int:
        """Opens by backing files now."""
        return sum(max(backing.opens, 0) for backing in list(self._by_node.values()))

    def __len__(self) -> int:
        return len(self._by_node)

    def close(self) -> None:
        """Forget all ids."""
        with self._lock:
            held, self._by_node = list(self._by_node.values()), OrderedDict()
        for backing in held:
            self._close(backing)

    def _end(self, node: int, backing: BackingFile) -> None:
        self._close(backing)
        if self._gone is not None:
            self._gone(node)

    def _surplus(self) -> list[tuple[int, BackingFile]]:
        gone: list[tuple[int, BackingFile]] = []
        if len(self._by_node) <= self._most:
            return gone
        count = len(self._by_node) - self._most + self._most // 16
        for node, backing in list(itertools.islice(self._by_node.items(), count)):
            if backing.opens <= 0:
                del self._by_node[node]
                gone.append((node, backing))
        return gone

    def _close(self, backing: BackingFile) -> None:
        with suppress(OSError):
            fcntl.ioctl(self._fd, wire.BACKING_CLOSE, backing.id.to_bytes(4, "little"))
