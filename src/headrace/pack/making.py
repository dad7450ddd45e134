"""One shard: from its samples into the store, as it is filled or by way of a nameless file, and into the journal."""

from __future__ import annotations

import dataclasses
import errno
import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import IO, Protocol, TypeAlias

from headrace.base.errors import (
    AlreadyExistsError,
    BadSampleError,
    DeniedError,
    HeadraceError,
    InternalError,
    NoRoomError,
    NotFoundError,
    TryAgainError,
    UnsupportedError,
)
from headrace.base.places import temporary_folder
from headrace.base.progress import Progress
from headrace.base.units import format_bytes
from headrace.fetch import Fetcher
from headrace.loader import Dataset
from headrace.pack.budget import HINT, Budget
from headrace.pack.filling import Tally
from headrace.pack.journal import Journal, Record, version_of
from headrace.pack.layouts import Layout, Sink
from headrace.pack.plan import Plan
from headrace.pack.reading import digest_of
from headrace.pack.schema import Schema
from headrace.pack.tar import Places
from headrace.store.protocol import ObjectInfo, Store
from headrace.upload import Uploader

_BUFFER = 1 << 20  # bytes of one write into the file
_MOST_STREAMED = 50_000_000_000
"""Bytes: an object goes in 10,000 parts at most, which are all as large as the first."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


_Made: TypeAlias = "tuple[Tally, Sink, str | None]"
"""What became of the samples, what wrote them, and the version in the store; None where no sample is left."""


class Fills(Protocol):
    """Writes a shard's samples: `Filler` or `TextFiller`."""

    def fill(self, sink: Sink, dataset: Dataset) -> Tally: ...


@dataclasses.dataclass(frozen=True, eq=False)
class Maker:
    """Makes shards of a plan. Any thread, each a shard of its own."""

    plan: Plan
    journal: Journal
    name: Callable[[int], str]
    layout: Layout
    schema: Schema | None
    filler: Fills
    fetcher: Fetcher
    uploader: Uploader
    budget: Budget
    stop: threading.Event
    progress: Progress
    made: Callable[[ObjectInfo, Places | None, IO[bytes] | None], None]
    """Told of each shard in the store, with where its members lie, or the file it was sent from."""

    def make(self, number: int) -> Record:
        """Make shard `number` and note it. One that no sample is left of is not written.

        Raises:
            BadSampleError: too many samples are bad. NoRoomError: no room for the temporary file. TryAgainError: also
            when stopped. What reading and writing raise.
        """
        made = self._streamed(number) if self._streams() else None
        tally, sink, version = made or self._by_file(number)
        record = Record(
            number=number,
            name=self.name(number),
            samples=tally.samples,
            members=sink.members if tally.samples else 0,
            size=sink.size if tally.samples else 0,
            digest=sink.digest,
            version=version,
            skipped=tuple(tally.left_out),
            dropped=tally.dropped,
        )
        self.journal.note(record)
        return record

    def _streams(self) -> bool:
        return self.layout.streams and self.plan.terms["shard_size"] <= _MOST_STREAMED

    def _streamed(self, number: int) -> _Made | None:
        """Send the shard while it is filled. None: something is in its place, and it has to be at hand as a file."""
        journal = self.journal
        store, key = journal.store, journal.prefix + self.name(number)
        if _is_there(store, key):
            return None
        outgoing = self.uploader.outgoing(store, key, create=True, insist=False, cancel=self.stop)
        sink = self.layout.stream(outgoing)
        try:
            tally = self._fill(sink, number)
            self._finish(sink)
            if not tally.samples:
                return tally, sink, None
            try:
                info = outgoing.finish()
            except AlreadyExistsError:  # since we looked: another run's
                info = self._same(key, sink)
        finally:
            outgoing.abort()
        if info is None:
            self.budget.refund(tally.left_out)
            return None
        self.made(info, sink.places, None)
        return tally, sink, version_of(store, info)

    def _by_file(self, number: int) -> _Made:
        """Send the shard when it is filled."""
        with _temporary() as file:
            sink = self.layout.sink(file, self.schema)
            tally = self._fill(sink, number)
            self._finish(sink)
            if not tally.samples:
                return tally, sink, None
            info = self._publish(self.name(number), file, sink)
            self.made(info, sink.places, file)
            return tally, sink, version_of(self.journal.store, info)

    def _finish(self, sink: Sink) -> None:
        before = sink.size
        sink.finish()
        self.progress.advance(0, sink.size - before)

    def _same(self, key: str, sink: Sink) -> ObjectInfo | None:
        """What the store holds under `key`, if it is these very bytes."""
        store = self.journal.store
        there = store.head(key)
        same = there.size == sink.size and digest_of(self.fetcher, store, there, self.stop) == sink.digest
        return there if same else None

    def _fill(self, sink: Sink, number: int) -> Tally:
        try:
            tally = self.filler.fill(sink, self.plan.shard(number))
        except BadSampleError as error:
            raise _hinted(error) from error
        found = tally.samples + len(tally.left_out) + tally.dropped
        if found != self.plan.count(number):
            raise InternalError(f"{found} samples came, of {self.plan.count(number)}", path=self.name(number))
        return tally

    def _publish(self, name: str, file: IO[bytes], sink: Sink) -> ObjectInfo:
        """Send the file, unless these very bytes are there: a killed run has left them, or another was quicker."""
        journal = self.journal
        store, key = journal.store, journal.prefix + name

        def send(*, create: bool) -> ObjectInfo:
            # Nobody else knows the file, and it is complete: `growing` says that it need not be watched.
            return self.uploader.put_file(
                store, key, file.fileno(), sink.size, create=create, growing=True, cancel=self.stop
            )

        try:
            return send(create=True)
        except UnsupportedError:
            return send(create=False)
        except AlreadyExistsError:
            return self._same(key, sink) or send(create=False)


def _is_there(store: Store, key: str) -> bool:
    try:
        store.head(key)
    except NotFoundError:
        return False
    return True


def _hinted(error: BadSampleError) -> BadSampleError:
    """The loader's hint speaks of its own arguments; a hint of ours stays."""
    hint = HINT if error.hint is None or "Skip(" in error.hint else error.hint
    return BadSampleError(error.reason, path=error.path, hint=hint)


@contextmanager
def _temporary() -> Generator[IO[bytes]]:
    """A file without a name: whatever ends this process, nothing of it stays.

    Raises:
        NoRoomError, DeniedError: from the block, too.
    """
    folder = temporary_folder()
    try:
        file = tempfile.TemporaryFile(buffering=_BUFFER, dir=folder)  # noqa: SIM115 - closed below
    except PermissionError as error:
        raise DeniedError("no temporary file can be made here", path=folder, hint="set TMPDIR") from error
    except OSError as error:
        raise _failed(error, folder) from error
    try:
        yield file
    except OSError as error:
        raise _failed(error, folder) from error
    finally:
        try:
            file.close()
        except OSError:  # what could not be written while it was filled cannot be written now
            pass


def _failed(error: OSError, folder: str) -> HeadraceError:
    reason = f"a shard's temporary file: {error.strerror or error}"
    if error.errno in _NO_ROOM:
        try:
            import shutil

            reason += f" ({format_bytes(shutil.disk_usage(folder).free)} free)"
        except OSError:
            pass
        hint = "each worker needs room for one shard: set TMPDIR to a larger disk, or lower --workers or --shard-size"
        return NoRoomError(reason, path=folder, hint=hint)
    return TryAgainError(reason, path=folder, hint="set TMPDIR to another disk")
