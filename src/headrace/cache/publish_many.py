"""Publishing many small entries together: each is written and sealed without a name, then given one.

Nothing of it is left when the process is killed on the way, and nobody else can write to it: so no lock on the name is
needed either. What cannot be done so (another file of that name, an old kernel, a disk that is full) is left to be
published one by one, which says what is the matter. Figures: design/017-many-fills-in-one-call.md.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.base.metrics import Metrics
from headrace.cache import batch_io
from headrace.cache.batch_io import NewFile
from headrace.cache.claims import Claim
from headrace.cache.entry import ATTRIBUTE, EntryLabel, Seal, checksum
from headrace.cache.names import Layout, charge_of, size_of
from headrace.cache.reservations import Reservations

_UNABLE = frozenset(
    {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EISDIR, errno.EPERM, errno.EACCES, errno.EXDEV}
)
"""This kernel or file system cannot do it, and will not learn it."""

@dataclass(frozen=True, slots=True)
class Fill:
    """An object to be kept: as in `Cache.fill`, with the claim on its name if there is one."""

    name: str
    data: memoryview
    label: EntryLabel
    claim: Claim | None = None


class ManyPublisher:
    """Publishes many at once. Any thread."""

    def __init__(self, layout: Layout, room: Reservations, metrics: Metrics) -> None:
        self._layout = layout
        self._room = room
        self._metrics = metrics
        self._able = os.path.isdir("/proc/self/fd")

    def publish(self, fills: Sequence[Fill]) -> list[Fill]:
        """Publish what can be published together, and end those claims. Returns the others, as they were."""
        if not self._able:
            return list(fills)
        left = [fill for fill in fills if len(fill.data) != size_of(fill.name)]
        right = [fill for fill in fills if len(fill.data) == size_of(fill.name)] if left else fills
        for start in range(0, len(right), batch_io.MOST):
            left += self._publish(right[start : start + batch_io.MOST])
        return left

    def _publish(self, fills: Sequence[Fill]) -> list[Fill]:
        charges = [charge_of(len(fill.data)) for fill in fills]
        answers = [-errno.ENOSPC] * len(fills)
        reserved = False
        try:
            reserved = self._room.take(sum(charges), len(fills), ahead=True)
            if reserved:
                answers = self._write(fills)
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

    def _write(self, fills: Sequence[Fill]) -> list[int]:
        """What came of each: 0, or the negative errno. Raises OSError: of all of them nothing is known."""
        files = [
            NewFile(self._layout.entry(fill.name), fill.data, Seal(fill.label, checksum(fill.data)).pack())
            for fill in fills
        ]
        return batch_io.chosen().write_many(files, ATTRIBUTE)
