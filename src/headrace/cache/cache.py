"""The node's cache of object versions: `Cache`, the one door to this room."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from headrace.base.errors import HeadraceError, InputError
from headrace.base.metrics import Metrics
from headrace.base.progress import SILENT, Progress
from headrace.base.settings import CacheSettings, Settings
from headrace.cache.blocks import BlockEntry
from headrace.cache.boot import boot_id
from headrace.cache.claims import BlockClaim, Busy, Claim
from headrace.cache.entries import Digests, Entries, Sizes, digests_of
from headrace.cache.entry import EntryLabel, Seals
from headrace.cache.health import Health
from headrace.cache.inventory import all_names, count_entries
from headrace.cache.names import Layout, object_name, size_of
from headrace.cache.opening import Writing, open_folder, translated
from headrace.cache.publish_many import Fill
from headrace.cache.reading import Reader
from headrace.cache.status import CacheStatus
from headrace.cache.verify import Verifier, VerifyReport
from headrace.store.protocol import Buffer

_BECOMING_WHOLE_S = (0.0, 0.0, 0.001, 0.003, 0.01, 0.03)
"""Pauses while a block entry is on its way to being a whole one: neither can be opened for a moment."""


@dataclass(frozen=True, slots=True)
class Evicted:
    """What an eviction removed."""

    entries: int
    bytes: int


class Cache:
    """Object versions on the local disk, shared by all processes of a user on this node.

    Any thread may call anything. After a fork the child goes on using it. Nothing here raises for a disk that fails:
    what cannot be read is a miss, what cannot be written is not kept, and after a few errors the cache switches
    itself off and says so once (logger ``headrace.cache``). Make one with `Cache.open`.
    """

    def __init__(self, settings: CacheSettings, metrics: Metrics) -> None:
        self.settings = settings
        self._metrics = metrics
        self._layout = Layout(settings.dir, boot_id())
        self._health = Health(settings.dir, metrics)
        self._seals = Seals(self._layout)
        self._reader = Reader(self._layout, self._health, self._seals, metrics, self._remove)
        self._writing: Writing | None = None

    @staticmethod
    def open(
        settings: CacheSettings | None = None, metrics: Metrics | None = None, *, required: bool = False
    ) -> Cache:
        """Open, making the folder (mode 0700) where it is missing. Never scans, however many entries there are.
        `settings`: None: those of `Settings.load`, so this node's cache.

        A folder that cannot be used gives a cache that is switched off, with one warning; one that cannot be written
        to is read and not filled. Size 0 switches it off without a word.

        Raises:
            DeniedError, NoRoomError, InputError: only if `required`, when the folder cannot be used.
        """
        settings = settings or Settings.load().cache
        cache = Cache(settings, metrics or Metrics())
        if settings.size == 0:
            cache._health.reading = cache._health.filling = False
            cache._health.reason = "its size is set to 0"
            return cache
        try:
            cache._writing = open_folder(settings, cache._layout, cache._seals, cache._health, cache._metrics)
        except HeadraceError as error:
            if required:
                raise
            cache._health.switch_off(f"{error.reason} ({error.hint})")
        _open_caches.add(cache)
        return cache

    @property
    def enabled(self) -> bool:
        """Whether reading may give hits: its size is not 0, and its disk works."""
        return self._health.reading

    @property
    def filling(self) -> bool:
        """Whether anything is kept."""
        return self._health.filling

    def name(self, identity: str, key: str, version: str, size: int) -> str:
        """The name of one object version: the store's identity, key and version there, size in bytes. Of many:
        `entries`.
        """
        return object_name(identity, key, version, size)

    def digests(self, identity: str, keys: Sequence[str], versions: Sequence[str]) -> Digests:
        """What names of several versions in one store begin with, the same in every cache."""
        return digests_of(identity, keys, versions)

    def entries(self, digests: Digests, sizes: Sizes) -> Entries:
        """The entries that have these names, for `read_many`."""
        return Entries.below(self._layout.objects, digests, sizes)

    # reading

    def read(self, name: str) -> memoryview | None:
        """All bytes of a complete entry, in memory of the caller's own; None when it is not there."""
        return self._reader.read(name)

    def read_many(self, entries: Entries) -> list[memoryview | None]:
        """The same for many, together: quicker where they are small. Small ones share memory."""
        return self._reader.read_many(entries)

    def read_range(self, name: str, start: int, stop: int) -> memoryview | None:
        """Bytes [start, stop), cut off at the object's end, of a complete or partial entry; None if any is missing."""
        if not self._health.reading:
            return None
        stop = min(stop, size_of(name))
        try:
            data = self._reader.read_range(name, start, stop)
            if data is None:
                data = self._read_partial(name, start, stop)
        except OSError as error:
            return self._reader.failed(error)
        self._metrics.add("cache.miss" if data is None else "cache.hit")
        if data is not None:
            self._metrics.add("cache.bytes_read", len(data))
        return data

    def path(self, name: str) -> str | None:
        """The file of a complete entry, None when it is not there. A use; it may be evicted before you open it."""
        if not self._health.reading:
            return None
        try:
            fd = self._reader.open(name)
        except OSError as error:
            return self._reader.failed(error)
        if fd is None:
            return None
        os.close(fd)
        return self._layout.entry(name)

    def descriptor(self, name: str) -> int | None:
        """The file of a complete entry, opened for reading, None when it is not there. A use. Close it yourself."""
        if not self._health.reading:
            return None
        try:
            return self._reader.open(name)
        except OSError as error:
            return self._reader.failed(error)

    def path_of(self, name: str) -> str:
        """Where the file of a complete entry is, or would be. No look at the disk."""
        return self._layout.entry(name)

    def holds(self, name: str) -> bool:
        """Whether a complete entry is there just now. No use of it."""
        return self._health.reading and os.path.exists(self._layout.entry(name))

    # filling

    def claim(self, name: str) -> Claim | Busy | None:
        """Agree with all threads and processes of this node on who fetches an object version.

        `Claim`: you do; publish it. `Busy`: another one does, or just did; wait and look again. None: nothing can be
        kept just now; fetch it for yourself.
        """
        if self._writing is None or not self._health.filling:
            return None
        return self._writing.claims.make(name)

    def claim_block(self, name: str, index: int) -> BlockClaim | Busy | None:
        """The same for one block of a block entry. Look for it again after claiming: it may just have been written."""
        if self._writing is None or not self._health.filling:
            return None
        return self._writing.claims.block(name, index)

    def fill(self, name: str, data: Buffer, label: EntryLabel, *, more: bool = False) -> bool:
        """Keep a whole object. True when it is in the cache now; False when it is not (busy, full, failing disk).

        `more`: as in `Claim.publish`.

        Raises:
            InternalError: `data` has not the size that the name says.
        """
        claim = self.claim(name)
        if isinstance(claim, Claim):
            return claim.publish(data, label, more=more)
        return isinstance(claim, Busy) and claim.done

    def fill_many(self, fills: Sequence[Fill]) -> None:
        """Keep several whole objects: together where they are small, which is quicker. Their claims end. What cannot
        be kept is not; call `settle` after the last.

        Raises:
            InternalError: the data of one has not the size that its name says.
        """
        writing = self._writing if self._health.filling else None
        for fill in fills if writing is None else writing.many.publish(fills):
            if fill.claim is not None:
                fill.claim.publish(fill.data, fill.label, more=True)
            else:
                self.fill(fill.name, fill.data, fill.label, more=True)

    def adopt(self, name: str, path: str, fd: int, label: EntryLabel, checksum: int | None = None) -> bool:
        """Make the file at `path` the entry by renaming it: no copy. True when it was; else the file stays as it is.

        It must hold exactly the object's bytes, be the caller's own, and nobody may write to it any more. False too
        where it lies on another file system than the cache, or the entry is there already. Room may be reserved for
        others that follow: call `settle` when none has for a while.

        Args:
            name: from `name`.
            path: the file's.
            fd: it, open for reading and writing; stays the caller's.
            label: what it holds.
            checksum: `headrace.cache.entry.checksum` of its bytes, if the caller knows; else it is read.
        """
        if self._writing is None or not self._health.filling:
            return False
        return self._writing.claims.adopt(name, path, fd, label, checksum)

    def settle(self) -> None:
        """After the last of several `adopt`, or `Claim.publish(…, more=True)`: give back what was reserved ahead."""
        if self._writing is not None:
            self._writing.room.settle()

    def blocks(self, name: str, size: int, label: EntryLabel) -> BlockEntry | None:
        """A large object's entry, made where it is absent, to be read and filled block by block. Close it after use.

        `size`: bytes of the object, more than 0. None when nothing can be kept just now.

        Raises:
            InputError: `size` is 0, or not the one in the name.
        """
        if size != size_of(name) or size == 0:
            raise InputError(f"a block entry of {size} bytes cannot have this name", path=name)
        if not self._health.reading:
            return None
        try:
            for pause_s in _BECOMING_WHOLE_S:  # between the two looks it may become complete
                time.sleep(pause_s)
                fd = self._reader.open(name)
                if fd is not None:
                    return BlockEntry(name, fd, self._health)
                if self._writing is None or not self._health.filling:
                    return None
                entry = self._writing.blocks.attach(name, label, create=True)
                if entry is not None:
                    return entry
        except OSError as error:
            if self._writing is not None:
                self._writing.blocks.write_failed(error)
        return None

    # care

    def pin(self, names: Iterable[str], *, pinned: bool = True) -> int:
        """Keep names from eviction, whether or not they are there yet; or release them. Returns how many.

        Raises:
            DeniedError, NoRoomError, InputError: the marker files cannot be written.
        """
        count = 0
        for name in names:
            path = self._layout.pin(name)
            try:
                if pinned:
                    _create_empty(path)
                else:
                    with suppress(FileNotFoundError):
                        os.unlink(path)
            except OSError as error:
                raise translated(error, self._layout.folder) from error
            count += 1
        return count

    def pinned(self) -> Iterator[str]:
        """Names that are pinned."""
        return all_names(self._layout.pins)

    def evict(self, names: Iterable[str] | None = None, target_bytes: int | None = None) -> Evicted:
        """Remove entries: these, or the least recently used until at most `target_bytes` are held (default 0).

        Pinned entries, and block entries in use, stay.

        Raises:
            DeniedError, NoRoomError, InputError: the folders cannot be read or written.
        """
        if self._writing is None:
            return Evicted(0, 0)
        writing, before = self._writing, self._metrics.get("cache.evicted")
        try:
            if names is not None:
                freed = sum(map(writing.evictor.remove, names))
            else:
                count = writing.room.recount() or writing.usage.read()
                over = count.bytes - (target_bytes or 0) if count else 0
                freed = (writing.evictor.free(over) or 0) if over > 0 else 0
        except OSError as error:
            raise translated(error, self._layout.folder) from error
        return Evicted(int(self._metrics.get("cache.evicted") - before), freed)

    def relieve(self) -> bool:
        """Evict until the disk has `min_free` again, where something else has filled it; whether it lacked any.

        To be called now and then. What was evicted and is still open somewhere is free once it is closed.
        """
        if self._writing is None or not self._health.filling:
            return False
        try:
            return self._writing.room.relieve()
        except OSError as error:
            self._writing.blocks.write_failed(error)
            return False

    def verify(self, progress: Progress = SILENT, *, part: tuple[int, int] = (0, 1)) -> VerifyReport:
        """Compare every entry with its checksum; remove what does not match, and what dead writers left; count anew.

        `part`: (number, of how many, at most 256): of the entries, for several processes at once. What dead writers
        left is removed with the first.

        Raises:
            DeniedError, NoRoomError, InputError: the folders cannot be read.
        """
        if self._writing is None:
            return VerifyReport()
        writing = self._writing
        verifier = Verifier(
            self._layout, self._seals, writing.blocks, writing.evictor, writing.room, writing.claims.owners
        )
        try:
            return verifier.run(progress, part)
        except OSError as error:
            raise translated(error, self._layout.folder) from error

    def status(self) -> CacheStatus:
        """Counts and bounds. Counts the entries (a few seconds a million) only where the shared count is not known."""
        entries, size, free, pinned = self._measured()
        count = {
            name: int(self._metrics.get(f"cache.{name}"))
            for name in ("hit", "miss", "fill", "fill_shed", "evicted", "errors")
        }
        return CacheStatus(
            dir=self._layout.folder,
            enabled=self.enabled,
            filling=self.filling,
            reason=self._health.reason,
            entries=entries,
            bytes=size,
            limit=self.settings.size,
            free=free,
            min_free=self.settings.min_free,
            pinned=pinned,
            hits=count["hit"],
            misses=count["miss"],
            fills=count["fill"],
            shed=count["fill_shed"],
            evicted=count["evicted"],
            errors=count["errors"],
        )

    def close(self) -> None:
        """Release what is held open; afterwards everything is a miss. Idempotent."""
        self._health.reading = self._health.filling = False
        self._health.reason = self._health.reason or "it was closed"
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.close()

    # inside

    def _after_fork(self) -> None:
        self._health.after_fork()
        try:
            if self._writing is not None:
                self._writing.after_fork()
        except OSError as error:
            self._health.switch_off(f"it cannot be reopened after a fork: {error.strerror}")

    def _measured(self) -> tuple[int, int, int, int]:
        try:
            count = None if self._writing is None else self._writing.usage.read() or self._writing.room.recount()
            entries, size = (count.entries, count.bytes) if count else count_entries(self._layout)
            disk = os.statvfs(self._layout.root)
            return entries, size, disk.f_bavail * disk.f_frsize, sum(1 for _ in self.pinned())
        except OSError:
            return 0, 0, 0, 0

    def _read_partial(self, name: str, start: int, stop: int) -> memoryview | None:
        if self._writing is None:
            return None
        entry = self._writing.blocks.attach(name)
        if entry is None:
            return None
        with entry:
            return entry.read(start, stop)

    def _remove(self, name: str) -> None:
        if self._writing is not None:
            with suppress(OSError):
                self._writing.evictor.remove(name, spare_pinned=False)


def _create_empty(path: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
    try:
        os.close(os.open(path, flags, 0o600))
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        os.close(os.open(path, flags, 0o600))


_open_caches: weakref.WeakSet[Cache] = weakref.WeakSet()


def _after_fork() -> None:
    for cache in list(_open_caches):
        cache._after_fork()  # pyright: ignore[reportPrivateUsage]


os.register_at_fork(after_in_child=_after_fork)
