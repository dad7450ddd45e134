"""Large objects: a sparse file filled block by block, which becomes a whole entry when its last block is there.

Data and map lie in one folder, made complete elsewhere and renamed into place, taken away by one rename: whoever opens
them through one descriptor of that folder has a pair that belongs together. See `blockmap` for the map.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
import xxhash

from headrace.base.errors import InputError
from headrace.base.memory import PAGE, take
from headrace.base.metrics import Metrics
from headrace.cache.blockmap import BlockMap
from headrace.cache.boot import boot_id
from headrace.cache.entry import EntryLabel, Seal, Seals, block_sum, read_into, write_all
from headrace.cache.health import NO_ROOM, Health
from headrace.cache.locks import try_flock, unlock_and_close
from headrace.cache.names import Layout, charge_of, rename_into, size_of
from headrace.cache.reservations import Reservations
from headrace.store.protocol import Buffer


@dataclass(frozen=True, slots=True)
class Part:
    """What an entry has besides its data until it is complete: its folder, opened, its map, and its label to be."""

    blocks: Blocks
    folder: int
    table: BlockMap
    label: EntryLabel | None

    def close(self) -> None:
        """The entry is not used afterwards."""
        os.close(self.table.fd)
        os.close(self.folder)


class BlockEntry:
    """One large object, wholly or partly there, held open: it stays readable, and eviction passes it by.

    Any thread. Close it, or use it as a context manager. `size`: bytes of the object; `block`: bytes of a block.
    """

    def __init__(self, name: str, fd: int, health: Health, part: Part | None = None) -> None:
        """Takes `fd` over. Without a `part`, it is the file of a complete entry."""
        self.name = name
        self.size = size_of(name)
        self.block = part.table.block if part else max(1, self.size)
        self._health = health
        self._fd = fd
        self._part = part
        self._complete = part is None

    @property
    def complete(self) -> bool:
        """Every block is there."""
        return self._complete

    def missing(self, start: int = 0, stop: int | None = None) -> list[tuple[int, int]]:
        """What must be fetched to read [start, stop): maximal runs of whole blocks as (start, stop), in order.

        The last one ends at the end of the object. Where the map cannot be read, all is missing.
        """
        stop = self.size if stop is None else min(stop, self.size)
        if self._complete or self._part is None or start >= stop:
            return []
        try:
            absent = self._part.table.sums(start, stop) == 0
        except OSError as error:
            self._health.read_failed(error)
            absent = np.ones((stop - 1) // self.block - start // self.block + 1, bool)
        first = start // self.block
        edges = np.flatnonzero(np.diff(np.concatenate(([False], absent, [False]))))
        return [
            (int(first + a) * self.block, min(self.size, int(first + b) * self.block))
            for a, b in zip(edges[::2], edges[1::2], strict=True)
        ]

    def write(self, start: int, data: Buffer) -> bool:
        """Add the blocks that `data` covers, from byte `start`. False when they were not (all) kept.

        Raises:
            InputError: `start` is not on a block's boundary, or `data` ends within a block.
        """
        if self._complete or self._part is None:
            return True
        view = memoryview(data).cast("B")
        stop = start + len(view)
        if start % self.block or stop > self.size or (stop % self.block and stop != self.size):
            raise InputError(f"bytes [{start}, {stop}) are not whole blocks of {self.block}", path=self.name)
        return self._part.blocks.write(self._part.table, self._fd, start, view) and self._settle(self._part)

    def read(self, start: int = 0, stop: int | None = None) -> memoryview | None:
        """Bytes [start, stop), cut off at the object's end; None when any of them is missing or unreadable."""
        stop = self.size if stop is None else min(stop, self.size)
        if start >= stop:
            return memoryview(b"")
        if self.missing(start, stop):
            return None
        data = take(stop - start)
        try:
            return data if read_into(self._fd, data, start) else None
        except OSError as error:
            self._health.read_failed(error)
            return None

    def close(self) -> None:
        """Let go; no other call may be under way. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            unlock_and_close(fd)
            if self._part is not None:
                self._part.close()

    def _settle(self, part: Part) -> bool:
        try:
            sums = part.table.sums()
            if not sums.all():
                return True
            part.blocks.finish(self.name, self._fd, part, sums)
        except OSError as error:
            part.blocks.write_failed(error)
            return False
        self._complete = True
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class Blocks:
    """Opens block entries, and writes to them. Any thread."""

    def __init__(
        self, layout: Layout, room: Reservations, seals: Seals, health: Health, metrics: Metrics, block: int
    ) -> None:
        self._layout = layout
        self._room = room
        self._seals = seals
        self._health = health
        self._metrics = metrics
        self._block = max(PAGE, (block + PAGE - 1) // PAGE * PAGE)

    def attach(self, name: str, label: EntryLabel | None = None, *, create: bool = False) -> BlockEntry | None:
        """The entry as it is; None when it is absent (and not to be created) or cannot be had just now.

        Raises:
            OSError: the disk fails.
        """
        for _ in range(8):  # others may complete or evict it meanwhile
            try:
                folder = os.open(self._layout.partial(name), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                if not create or not self._create(name):
                    return None
                continue
            entry = self._open(name, folder, label)
            if entry is not None:
                return entry
            if os.path.exists(self._layout.entry(name)):
                return None
        return None

    def write(self, table: BlockMap, fd: int, start: int, data: memoryview) -> bool:
        """Write whole blocks, each before its checksum. For `BlockEntry` only."""
        sums = table.sums(start, start + len(data))
        for index, there in enumerate(sums.tolist(), start // table.block):
            first, last = table.span(index)
            if not there and not self._write_one(fd, table, index, data[first - start : last - start]):
                return False
        return True

    def finish(self, name: str, fd: int, part: Part, sums: np.ndarray) -> None:
        """All blocks are there: seal the file, and rename it to be a whole entry. Raises OSError."""
        label = part.label or EntryLabel("", "", "", part.table.size)
        self._seals.put(name, fd, Seal(label, xxhash.xxh3_64_intdigest(sums.tobytes()), part.table.block))
        with suppress(FileNotFoundError):  # another one was first, or it was evicted just now
            # By the descriptor: at that path there may be another folder by now, with other blocks.
            rename_into("data", self._layout.entry(name), source_folder=part.folder)
            self._room.give(part.table.own_bytes(), 0)
            self._metrics.add("cache.fill")
        self._remove_husk(name, part.folder)

    def write_failed(self, error: OSError) -> None:
        """Something could not be written: count it, or give way where the disk is full."""
        if error.errno not in NO_ROOM:
            self._health.write_failed(error)
            return
        with suppress(OSError):
            self._room.make(self._block)

    def _write_one(self, fd: int, table: BlockMap, index: int, data: memoryview) -> bool:
        charge = charge_of(len(data)) - charge_of(0)
        reserved = False
        try:
            reserved = self._room.take(charge, 0)
            if reserved:
                write_all(fd, data, index * table.block)
                table.put(index, block_sum(data))
                self._metrics.add("cache.bytes_filled", len(data))
                return True
        except OSError as error:
            self.write_failed(error)
        if reserved:
            self._room.give(charge, 0)
        self._metrics.add("cache.fill_shed")
        return False

    def _open(self, name: str, folder: int, label: EntryLabel | None) -> BlockEntry | None:
        """The entry in an open folder, which it takes over; None when it is going away, or damaged (then discarded)."""
        opened = [folder]
        try:
            data = os.open("data", os.O_RDWR | os.O_CLOEXEC, dir_fd=folder)
            opened.append(data)
            if _shared(data) and os.fstat(data).st_nlink:
                marks = os.open("map", os.O_RDWR | os.O_CLOEXEC, dir_fd=folder)
                opened.append(marks)
                table = BlockMap.load(marks)
                if table is not None and self._sound(data, table, size_of(name)):
                    opened.clear()
                    return BlockEntry(name, data, self._health, Part(self, folder, table, label))
                self._discard(name)
        except FileNotFoundError:
            self._remove_husk(name, folder)
        finally:
            for fd in reversed(opened):
                unlock_and_close(fd)
        return None

    def _sound(self, data: int, table: BlockMap, size: int) -> bool:
        """Whether data and map fit; after a boot, each block is compared with its checksum once."""
        if table.size != size or os.fstat(data).st_size != size:
            return False
        if table.boot == boot_id():
            return True
        buffer = take(table.block)
        for index, there in enumerate(table.sums().tolist()):
            first, last = table.span(index)
            piece = buffer[: last - first]
            if there and not (read_into(data, piece, first) and block_sum(piece) == there):
                table.put(index, 0)
        table.stamp(boot_id())
        return True

    def _create(self, name: str) -> bool:
        """Make an empty entry, whole before it is seen. False when there is no room. Raises OSError."""
        size = size_of(name)
        overhead = BlockMap(-1, size, self._block, boot_id()).overhead()
        if not self._room.take(overhead):
            return False
        fresh = f"{self._layout.claims}new-{uuid.uuid4().hex}"
        try:
            os.makedirs(fresh, mode=0o700)
            fd = os.open(f"{fresh}/data", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.ftruncate(fd, size)
            finally:
                os.close(fd)
            BlockMap.create(f"{fresh}/map", size, self._block, boot_id())
            rename_into(fresh, self._layout.partial(name))
        except OSError as error:
            shutil.rmtree(fresh, ignore_errors=True)
            self._room.give(overhead)
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY):  # another one was quicker, and may be through already
                return True
            raise
        return True

    def _discard(self, name: str) -> None:
        aside = f"{self._layout.claims}gone-{uuid.uuid4().hex}"
        with suppress(OSError):
            os.rename(self._layout.partial(name), aside)
        shutil.rmtree(aside, ignore_errors=True)

    def _remove_husk(self, name: str, folder: int) -> None:
        """What is left of an entry's folder once its data is a whole entry."""
        with suppress(OSError):
            os.unlink("map", dir_fd=folder)
        with suppress(OSError):
            os.rmdir(self._layout.partial(name))  # only if empty: a new one at that path stays


def _shared(fd: int) -> bool:
    try:
        return try_flock(fd, shared=True)
    except OSError:
        return True
