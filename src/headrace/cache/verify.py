"""Reading every entry back, and tidying: `headrace cache verify`."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field

from headrace.base.errors import CorruptError
from headrace.base.progress import Progress
from headrace.cache.blocks import Blocks
from headrace.cache.entry import EntryLabel, Seals, checksum_of_file
from headrace.cache.evict import Evictor
from headrace.cache.inventory import all_names, leftovers
from headrace.cache.names import Layout, is_name, size_of
from headrace.cache.owners import Owners
from headrace.cache.reservations import Reservations
from headrace.cache.usage import Count

ABANDONED_S = 3600.0
"""Age after which what another boot, or another machine, was writing is taken for dead."""
_PASSING_S = 60.0
"""What this boot's processes write takes less; its lock says whether they are still at it."""


@dataclass(frozen=True, slots=True)
class BadEntry:
    """An entry that was removed: its name, what it said it was, and what was wrong with it."""

    name: str
    label: EntryLabel | None
    reason: str


@dataclass(slots=True)
class VerifyReport:
    """What verification found. `bytes`: of content read; `partial`: block entries; `swept`: what dead writers left."""

    checked: int = 0
    bytes: int = 0
    partial: int = 0
    swept: int = 0
    bad: list[BadEntry] = field(default_factory=list[BadEntry])
    count: Count | None = None
    """Entries and bytes held, counted anew at the end; None when another process was evicting."""

    def add(self, other: VerifyReport) -> None:
        """Add what was found in another part."""
        for name in ("checked", "bytes", "partial", "swept"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.bad += other.bad
        self.count = self.count or other.count

    def check(self, where: str) -> None:
        """Raises CorruptError: damaged entries were removed. `where`: the cache, for the message."""
        if self.bad:
            text = f"{len(self.bad)} damaged entries were removed"
            raise CorruptError(text, path=where, hint="they are fetched again when read")


class Verifier:
    """Compares every entry with its checksum and removes what does not match. Others may use the cache meanwhile."""

    def __init__(
        self, layout: Layout, seals: Seals, blocks: Blocks, evictor: Evictor, room: Reservations, owners: Owners
    ) -> None:
        self._layout = layout
        self._seals = seals
        self._blocks = blocks
        self._evictor = evictor
        self._room = room
        self._owners = owners

    def run(self, progress: Progress, part: tuple[int, int] = (0, 1)) -> VerifyReport:
        """Verify all, or a part; the first part also tidies. Raises OSError when the folders cannot be read."""
        report = VerifyReport()
        names = list(all_names(self._layout.objects, part))
        progress.total(len(names), sum(map(size_of, names)))
        for name in names:
            self._verify(name, report)
            progress.advance(1, size_of(name))
        if part[0] == 0:
            self._tidy(report)
        return report

    def _tidy(self, report: VerifyReport) -> None:
        for name in all_names(self._layout.blocks):
            if os.path.exists(self._layout.entry(name)):
                self._evictor.remove_partial(name)  # it was also fetched whole
                continue
            entry = self._blocks.attach(name)  # damaged ones are discarded on opening
            if entry is not None:
                report.partial += 1
                entry.close()
        report.swept = sweep(self._layout, self._owners)
        self._drop_orphans()
        report.count = self._room.recount()

    def _verify(self, name: str, report: VerifyReport) -> None:
        try:
            fd = os.open(self._layout.entry(name), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # evicted meanwhile
        try:
            reason, label = self._examine(name, fd)
        except OSError as error:
            reason, label = f"cannot be read: {error.strerror}", None
        finally:
            os.close(fd)
        report.checked += 1
        report.bytes += size_of(name)
        if reason is not None:
            report.bad.append(BadEntry(name, label, reason))
            self._evictor.remove(name, spare_pinned=False)

    def _examine(self, name: str, fd: int) -> tuple[str | None, EntryLabel | None]:
        size = os.fstat(fd).st_size
        if size != size_of(name):
            return f"has {size} bytes, not {size_of(name)}", None
        seal = self._seals.get(name, fd)
        if seal is None:
            return "has no readable label", None
        if checksum_of_file(fd, size, seal.block) != seal.checksum:
            return "its bytes do not match their checksum", seal.label
        return None, seal.label

    def _drop_orphans(self) -> None:
        for name in all_names(self._layout.labels):
            if not os.path.exists(self._layout.entry(name)) and not os.path.exists(self._layout.claim(name)):
                self._seals.drop(name)


def sweep(layout: Layout, owners: Owners) -> int:
    """Remove what dead writers of this machine, and of boots long past, have left. Returns how many things that was."""
    swept = 0
    for path, foreign, age_s in leftovers(layout):
        with suppress(OSError):
            if os.path.isdir(path):
                # Block entries stay here for microseconds, on their way in or out.
                if age_s > (ABANDONED_S if foreign else _PASSING_S):
                    shutil.rmtree(path, ignore_errors=True)
                    swept += 1
            elif foreign or not owners.shared:
                if age_s > ABANDONED_S:
                    os.unlink(path)
                    swept += 1
            else:
                swept += _unlink_unowned(path, owners)
    return swept


def _unlink_unowned(path: str, owners: Owners) -> int:
    name = os.path.basename(path).partition(".")[0]
    token = owners.take(name) if is_name(name) else None
    if token is None:
        return 0
    try:
        os.unlink(path)
        return 1
    finally:
        owners.give(name, token)
