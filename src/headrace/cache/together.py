"""Publishing many small entries in five system calls: each is written and sealed without a name, then given one.

Nothing of it is left when the process is killed on the way, and nobody else can write to it: so no lock on the name is
needed either. What cannot be done so (another file of that name, an old kernel, a disk that is full) is left to be
published one by one, which says what is the matter. Figures: design/017-many-fills-in-one-call.md.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from headrace.base.metrics import Metrics
from headrace.cache.batch_io import ring as uring
from headrace.cache.claims import Claim
from headrace.cache.entry import ATTRIBUTE, EntryLabel, Seal, checksum
from headrace.cache.names import Layout, charge_of, size_of
from headrace.cache.room import Room

_UNABLE = frozenset(
    {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EISDIR, errno.EPERM, errno.EACCES, errno.EXDEV}
)
"""This kernel or file system cannot do it, and will not learn it."""
_FEW = 16
"""Fewer are published one by one: each of the five calls wakes threads of the kernel's and waits for them."""


@dataclass(frozen=True, slots=True)
class Fill:
    """An object to be kept: as in `Cache.fill`, with the claim on its name if there is one."""

    name: str
    data: memoryview
    label: EntryLabel
    claim: Claim | None = None


class Together:
    """Publishes many at once, where the kernel has io_uring. Any thread."""

    def __init__(self, layout: Layout, room: Room, metrics: Metrics) -> None:
        self._layout = layout
        self._room = room
        self._metrics = metrics
        self._able = os.path.isdir("/proc/self/fd")

    def publish(self, fills: Sequence[Fill]) -> list[Fill]:
        """Publish what can be published together, and end those claims. Returns the others, as they were."""
        ring = uring.mine() if len(fills) >= _FEW and self._able else None
        if ring is None:
            return list(fills)
        left = [fill for fill in fills if len(fill.data) != size_of(fill.name)]
        right = [fill for fill in fills if len(fill.data) == size_of(fill.name)] if left else fills
        for start in range(0, len(right), uring.MOST):
            left += self._publish(ring, right[start : start + uring.MOST])
        return left

    def _publish(self, ring: uring.Ring, fills: Sequence[Fill]) -> list[Fill]:
        charges = [charge_of(len(fill.data)) for fill in fills]
        answers = [-errno.ENOSPC] * len(fills)
        reserved = False
        try:
            reserved = self._room.take(sum(charges), len(fills), ahead=True)
            if reserved:
                answers = self._write(ring, fills)
        except OSError:  # by itself, each says what is the matter
            pass
        self._able = self._able and _UNABLE.isdisjoint(-answer for answer in answers)
        left: list[Fill] = []
        for fill, charge, answer in zip(fills, charges, answers, strict=True):
            if reserved and answer:
                self._room.give(charge)
            if answer and not (answer == -errno.EEXIST and self._layout.holds(fill.name)):
                left.append(fill)
            elif fill.claim is not None:
                fill.claim.abandon()
        self._metrics.add("cache.fill", answers.count(0))
        self._metrics.add(
            "cache.bytes_filled", sum(len(fill.data) for fill, answer in zip(fills, answers, strict=True) if not answer)
        )
        return left

    def _write(self, ring: uring.Ring, fills: Sequence[Fill]) -> list[int]:
        """What came of each: 0, or the negative errno. Raises OSError: of all of them nothing is known."""
        objects = self._layout.objects

        def write(files: list[int], some: list[Fill]) -> list[int]:
            counts = ring.write(files, [fill.data for fill in some])
            sizes = [len(fill.data) for fill in some]
            return [-errno.ENOSPC if 0 <= n < size else min(n, 0) for n, size in zip(counts, sizes, strict=True)]

        def seal(files: list[int], some: list[Fill]) -> list[int]:
            seals = [Seal(fill.label, checksum(fill.data)).pack() for fill in some]
            return ring.attribute(files, f"{ATTRIBUTE}\0".encode(), seals)

        def name(files: list[int], some: list[Fill]) -> list[int]:
            return ring.link(files, [f"{objects}{fill.name[:2]}/{fill.name[2:]}\0".encode() for fill in some])

        files = _unnamed(ring, [f"{objects}{fill.name[:2]}\0".encode() for fill in fills])
        answers = [min(file, 0) for file in files]
        try:
            for step in (write, seal, name):
                rows = [row for row, answer in enumerate(answers) if answer == 0]
                if not rows:
                    break
                came = step([files[row] for row in rows], [fills[row] for row in rows])
                for row, answer in zip(rows, came, strict=True):
                    answers[row] = answer
        finally:
            ring.close([file for file in files if file >= 0])
        return answers


def _unnamed(ring: uring.Ring, folders: Sequence[bytes]) -> list[int]:
    """As `Ring.make`; folders that are not there yet are made."""
    files = ring.make(folders)
    rows = [row for row, file in enumerate(files) if file == -errno.ENOENT]
    if rows:
        for folder in {folders[row] for row in rows}:
            with suppress(OSError):
                os.makedirs(folder[:-1], mode=0o700, exist_ok=True)
        for row, file in zip(rows, ring.make([folders[row] for row in rows]), strict=True):
            files[row] = file
    return files
