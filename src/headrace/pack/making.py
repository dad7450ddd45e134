"""One shard: from its samples, through a nameless temporary file, into the store, into the journal."""

from __future__ import annotations

import dataclasses
import errno
import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import IO, Any

from headrace.base.errors import (
    AlreadyExistsError,
    BadSampleError,
    DeniedError,
    HeadraceError,
    InternalError,
    NoRoomError,
    TryAgainError,
    UnsupportedError,
)
from headrace.base.progress import Progress
from headrace.base.units import format_bytes
from headrace.dataset import Dataset, Loader, Skip, Skipped
from headrace.fetch import Fetcher
from headrace.pack.budget import HINT, Budget
from headrace.pack.journal import Journal, Record, version_of
from headrace.pack.members import members
from headrace.pack.plan import Plan
from headrace.pack.reading import digest_of
from headrace.pack.tar import TarWriter
from headrace.store.protocol import ObjectInfo
from headrace.upload import Uploader

_BUFFER = 1 << 20
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclasses.dataclass(frozen=True, eq=False)
class Maker:
    """Makes shards of a plan. Any thread, each a shard of its own."""

    plan: Plan
    journal: Journal
    name: Callable[[int], str]
    function: Callable[[Any], Any] | None
    threads: int
    """For `function`, in each shard."""
    prefetch: int
    """Bytes read ahead, in each shard."""
    budget: Budget
    fetcher: Fetcher
    uploader: Uploader
    stop: threading.Event
    progress: Progress

    def make(self, number: int) -> Record:
        """Make shard `number` and note it.

        Raises:
            BadSampleError: too many samples are bad. NoRoomError: no room for the temporary file. TryAgainError: also
            when stopped. What reading and writing raise.
        """
        with _temporary() as file:
            tar = TarWriter(file)
            samples, skipped = self._fill(tar, number)
            tar.finish()
            info = self._publish(self.name(number), file, tar)
        version = version_of(self.journal.store, info)
        record = Record(number, self.name(number), samples, tar.members, tar.size, tar.digest, version, tuple(skipped))
        self.journal.note(record)
        return record

    def _fill(self, tar: TarWriter, number: int) -> tuple[int, list[Skipped]]:
        """Write the samples; how many, and which were left out."""
        left_out: list[Skipped] = []
        keys: set[str] = set()
        samples = seen = 0
        try:
            with self._dataset(number).loader(prefetch=self.prefetch, fetcher=self.fetcher) as loader:
                for sample in loader:
                    if self.stop.is_set():
                        raise TryAgainError("stopped")
                    samples += self._add(tar, sample, keys, left_out)
                    seen = self._enter(loader, seen, left_out)
                self._enter(loader, seen, left_out)
        except BadSampleError as error:
            raise _hinted(error) from error
        if samples + len(left_out) != self.plan.count(number):
            raise InternalError(
                f"{samples} samples and {len(left_out)} left out, of {self.plan.count(number)}", path=self.name(number)
            )
        return samples, sorted(left_out, key=lambda one: one.key)

    def _add(self, tar: TarWriter, sample: Any, keys: set[str], left_out: list[Skipped]) -> bool:
        """Whether the sample could be packed. `keys`: of those that this shard has."""
        try:
            parts = members(sample)
            if sample["__key__"] in keys:
                raise BadSampleError(
                    "the shard has a sample of this key already",
                    path=sample["__key__"],
                    hint="readers would take the two for one: give each a __key__ of its own by --map",
                )
            keys.add(sample["__key__"])
        except BadSampleError as error:
            if not self.budget.allowed:
                raise
            bad = Skipped(error.path or str(sample)[:200], "pack", error.reason)
            left_out.append(bad)
            self.budget.spend([bad])
            return False
        before = tar.size
        for name, data in parts:
            tar.add(name, data)
        self.progress.advance(1, tar.size - before)
        return True

    def _enter(self, loader: Loader, seen: int, left_out: list[Skipped]) -> int:
        """Enter what the loader has left out since it had left out `seen`; how many these are now."""
        new = loader.ledger[seen:]
        if new:
            left_out += new
            self.budget.spend(new)
        return seen + len(new)

    def _dataset(self, number: int) -> Dataset:
        dataset = self.plan.shard(number)
        if self.function is not None:
            dataset = dataset.map(self.function, threads=self.threads)
        # The loader counts for itself what is bad in one shard; what counts is the sum, which the budget keeps.
        skip = Skip(max_rate=1.0) if self.budget.allowed else None
        return dataclasses.replace(dataset, skip=skip)

    def _publish(self, name: str, file: IO[bytes], tar: TarWriter) -> ObjectInfo:
        """Send the file, unless these very bytes are there: a killed run has left them, or another was quicker."""
        journal = self.journal
        store, key = journal.store, journal.prefix + name

        def send(*, create: bool) -> ObjectInfo:
            # Nobody else knows the file, and it is complete: `growing` says that it need not be watched.
            return self.uploader.put_file(
                store, key, file.fileno(), tar.size, create=create, growing=True, cancel=self.stop
            )

        try:
            return send(create=True)
        except UnsupportedError:
            return send(create=False)
        except AlreadyExistsError:
            there = store.head(key)
            if there.size == tar.size and digest_of(self.fetcher, store, there, self.stop) == tar.digest:
                return there
            return send(create=False)


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
    folder = tempfile.gettempdir()
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
