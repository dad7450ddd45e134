"""Opening a cache's folder: whose it is, whether it can be written to, and errors as people should see them."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from headrace.base.errors import DeniedError, HeadraceError, InputError, NoRoomError
from headrace.base.metrics import Metrics
from headrace.base.places import refused
from headrace.base.settings import CacheSettings
from headrace.cache.blocks import Blocks
from headrace.cache.claims import Claims
from headrace.cache.entry import Seals
from headrace.cache.evict import Evictor
from headrace.cache.health import NO_ROOM, Health
from headrace.cache.names import First, Layout
from headrace.cache.owners import Owners
from headrace.cache.publish_many import ManyPublisher
from headrace.cache.reservations import Reservations
from headrace.cache.usage import Usage, fresh
from headrace.cache.verify import sweep

_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
_VARIABLE = "HEADRACE_CACHE_DIR"


@dataclass(frozen=True, slots=True)
class Writing:
    """The parts of a cache that need a folder they may write to."""

    usage: Usage
    room: Reservations
    evictor: Evictor
    claims: Claims
    many: ManyPublisher
    blocks: Blocks

    def after_fork(self) -> None:
        """In a forked child. Raises OSError."""
        self.usage.reopen()
        self.evictor.lock.reopen()
        self.room.after_fork()
        self.claims.owners.reopen()

    def close(self) -> None:
        """Release what is held open."""
        self.room.settle()
        self.usage.close()
        self.evictor.lock.close()
        self.claims.owners.close()


def open_folder(
    settings: CacheSettings, layout: Layout, seals: Seals, health: Health, metrics: Metrics
) -> Writing | None:
    """Make what is missing, and open it for writing. None where it can only be read; then `health` says so.

    Raises:
        DeniedError, NoRoomError, InputError: the folder can be neither written to nor read.
    """
    try:
        first = layout.create()
        _refuse_foreign(layout)
        return _open_writing(settings, layout, seals, health, metrics, first)
    except OSError as error:
        if error.errno not in _REFUSED:
            raise translated(error, layout.folder) from error
        _check_readable(layout, error)
        health.stop_filling(f"writing fails: {error.strerror}")
        return None


def translated(error: OSError, folder: str) -> HeadraceError:
    """The error as the user should see it."""
    reason = f"the cache folder cannot be used: {error.strerror or error}"
    if error.errno in (*_REFUSED, errno.ENOENT):
        return refused(folder, _VARIABLE, error, "the cache folder")
    if error.errno in NO_ROOM:
        return NoRoomError(reason, path=folder, hint="free some room, or set HEADRACE_CACHE_DIR to another disk")
    return InputError(reason, path=folder, hint="set HEADRACE_CACHE_DIR to a folder that works")


def _open_writing(
    settings: CacheSettings, layout: Layout, seals: Seals, health: Health, metrics: Metrics, first: First
) -> Writing:
    owners = Owners(layout.owners)
    usage = Usage(layout.usage)
    if first is First.EVER:
        usage.set(fresh(0, 0), only_unknown=True)
    elif first is First.SINCE_BOOT:  # what was counted before may not have reached the disk
        usage.forget()
    evictor = Evictor(layout, usage, seals, metrics)
    room = Reservations(layout, usage, evictor, settings.size, settings.min_free)
    sweep(layout, owners)
    claims = Claims(layout, owners, room, seals, health, metrics)
    blocks = Blocks(layout, room, seals, health, metrics, settings.block)
    return Writing(usage, room, evictor, claims, ManyPublisher(layout, room, metrics), blocks)


def _check_readable(layout: Layout, error: OSError) -> None:
    try:
        os.listdir(layout.objects)
    except OSError:
        raise translated(error, layout.folder) from error
    _refuse_foreign(layout)


def _refuse_foreign(layout: Layout) -> None:
    """Another user's cache is not trusted: that user could put anything under any name."""
    owner = os.stat(layout.root).st_uid
    if owner not in (os.geteuid(), 0):
        reason = f"the cache folder belongs to another user (id {owner})"
        raise DeniedError(reason, path=layout.folder, hint="set HEADRACE_CACHE_DIR to a folder of your own")
