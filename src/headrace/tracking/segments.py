"""The runner's side of the spool: what a job's processes logged becomes immutable Parquet segments, each point once.

A segment ``<seq:08d>.parquet`` has the columns of `headrace.tracking.points`, zstd, checksums of its pages, and says of
itself, as key-value metadata of the file:

=================== ===============================================================================================
``headrace.format`` ``1``
``headrace.spool``  JSON, the spool files it holds, cut behind their last ``-``: ``{"metrics-0-17-1-": ["4.points"]}``
``headrace.note``   what the caller wants to find again with the last segment, such as how far it has read elsewhere
=================== ===============================================================================================

A spool file is deleted after the segment that holds it is on the disk under its name. A crash in between leaves both,
and the next `Merger` finds the names in the last segment: only the last can have left any.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO, Final

import numpy as np

from headrace.base.errors import HeadraceError, InputError, NoRoomError, TryAgainError
from headrace.tracking.arrow import Table, pa, pq, to_array
from headrace.tracking.points import SCHEMA, Point, of_process, table
from headrace.tracking.spool import SUFFIX, decode

__all__ = ["FORMAT", "SEGMENT", "Merger", "Point", "table"]

_log = logging.getLogger("headrace.tracking")

FORMAT: Final = 1
SEGMENT: Final = re.compile(r"([0-9]{8,})\.parquet")
_A_SEGMENT = 16 << 20
"""Bytes of spool files in one segment: what is more makes another, so that the runner stays small."""
_MOST_BYTES = 64 << 20
"""A spool file that is larger is none of ours."""
_KEPT_ROWS = 1_000_000
"""Points in memory while the disk is full: some tens of megabytes."""


class Merger:
    """Merges the folder `spool` into the folder `segments`, which is made if it is not there. One thread.

    `note`: that of the last segment, empty if there is none.

    Raises:
        NoRoomError, TryAgainError: the disk.
    """

    def __init__(self, spool: str, segments: str) -> None:
        self._spool, self._segments = spool, segments
        self._merged: set[str] = set()
        """Spool files in the segments already, which could not be deleted yet."""
        self._extra: list[Table] = []
        self._told: set[str] = set()
        self.note = ""
        try:
            os.makedirs(segments, exist_ok=True)
            self._next = self._resume()
        except OSError as error:
            raise _translated(error, segments) from error

    def collect(self, extra: Table | None = None, *, note: str | None = None) -> int:
        """Merge what is there into one segment (a large backlog into several); returns the points written.

        `extra`: more points, from elsewhere (`table`). `note`: from now on in each segment; it is on the disk exactly
        when `extra` is. Without a point no file is made. A spool file that is torn, or none, is renamed to ``.bad``.

        Raises:
            NoRoomError, TryAgainError: the disk. What was not written, `extra` too, is written by the next call; only a
                million points wait at most, and `extra` is not taken where it would be more.
            InputError: `extra` has other columns.
        """
        self._add(extra)
        self.note = self.note if note is None else note
        try:
            self._delete()
            return sum([self._merge(names) for names in list(self._batches()) or [[]]])
        except OSError as error:
            raise _translated(error, self._segments) from error

    def _add(self, extra: Table | None) -> None:
        if extra is None or not extra.num_rows:
            return
        if not extra.schema.equals(SCHEMA):
            raise InputError("these are no points", hint="make them with headrace.tracking.segments.table")
        if sum(one.num_rows for one in self._extra) + extra.num_rows > _KEPT_ROWS:
            raise NoRoomError(f"more than {_KEPT_ROWS:,} points wait for the disk", path=self._segments)
        self._extra.append(extra)

    # Beginning

    def _resume(self) -> int:
        """The number of the next segment, once what the last one holds is out of the way."""
        found: list[int] = []
        for name in os.listdir(self._segments):
            if name.endswith(".parquet.tmp"):
                os.unlink(os.path.join(self._segments, name))
            elif match := SEGMENT.fullmatch(name):
                found.append(int(match[1]))
        if not found:
            return 0
        self._read_last(os.path.join(self._segments, f"{max(found):08d}.parquet"))
        self._delete()
        return max(found) + 1

    def _read_last(self, path: str) -> None:
        try:
            told = pq.read_metadata(path).metadata or {}
            held = json.loads(told.get(b"headrace.spool", b"{}"))
            names = {first + rest for first, rests in held.items() for rest in rests}
            self._merged = {name for name in names if os.path.basename(name) == name}
            self.note = told.get(b"headrace.note", b"").decode()
        except (pa.ArrowException, ValueError, AttributeError, TypeError) as error:
            _log.warning("%s is damaged: points that it holds may come again: %s", path, error)

    # Merging

    def _batches(self) -> Iterator[list[str]]:
        """Names of spool files, in groups of a bounded size. Raises OSError."""
        names: list[str] = []
        size = 0
        for name, more in sorted(self._listed()):
            if names and size + more > _A_SEGMENT:
                yield names
                names, size = [], 0
            names.append(name)
            size += more
        if names:
            yield names

    def _listed(self) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        with suppress(FileNotFoundError), os.scandir(self._spool) as entries:
            for entry in entries:
                if not entry.name.endswith(SUFFIX) or entry.name in self._merged:
                    continue
                size = entry.stat(follow_symlinks=False).st_size
                if entry.is_file(follow_symlinks=False) and size <= _MOST_BYTES:
                    found.append((entry.name, size))
                else:
                    self._set_aside(entry.name, f"it is no file of at most {_MOST_BYTES >> 20} MiB")
        return found

    def _merge(self, names: Sequence[str]) -> int:
        read = {name: one for name in names if (one := self._read(name)) is not None}
        tables = [*self._extra, *read.values()]
        rows = sum(one.num_rows for one in tables)
        if rows:
            self._publish(pa.concat_tables(tables), [*read, *self._merged])
            self._extra.clear()
        self._merged.update(read)
        self._delete()
        return rows

    def _read(self, name: str) -> Table | None:
        """None: it is not there any more, or set aside. Not mapped: who truncates it would kill us."""
        try:
            with open(os.path.join(self._spool, name), "rb") as file:
                found = of_process(decode(file.read()))
        except FileNotFoundError:
            return None
        except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
            self._set_aside(name, str(error))
            return None
        return found

    def _publish(self, points: Table, names: Sequence[str]) -> None:
        """Raises OSError: then nothing has changed."""
        held: dict[str, list[str]] = {}
        for name in sorted(names):
            cut = name.rfind("-") + 1
            held.setdefault(name[:cut], []).append(name[cut:])
        told = {"headrace.format": str(FORMAT), "headrace.spool": json.dumps(held), "headrace.note": self.note}
        whole = _by_time(points.unify_dictionaries()).replace_schema_metadata(told)
        with publishing(os.path.join(self._segments, f"{self._next:08d}.parquet")) as file:
            pq.write_table(whole, file, compression="zstd", write_page_checksum=True)
        self._next += 1

    def _delete(self) -> None:
        """Spool files that are in a segment. One that cannot be deleted is left alone, and named in the next one."""
        if self._merged:
            _fsync_folder(self._segments)  # the segment's name must last before theirs go
        for name in list(self._merged):
            try:
                os.unlink(os.path.join(self._spool, name))
            except FileNotFoundError:
                pass
            except OSError as error:
                self._tell(name, f"cannot be deleted: {error}")
                continue
            self._merged.discard(name)

    def _set_aside(self, name: str, why: str) -> None:
        self._tell(name, f"is set aside as {name}.bad: {why}")
        path = os.path.join(self._spool, name)
        with suppress(OSError):
            os.replace(path, f"{path}.bad")

    def _tell(self, name: str, text: str) -> None:
        if name not in self._told:
            self._told.add(name)
            _log.warning("%s %s", os.path.join(self._spool, name), text)


def _by_time(points: Table) -> Table:
    times = np.concatenate([to_array(one, np.int64) for one in points.column("time").chunks])
    return points if (times[1:] >= times[:-1]).all() else points.sort_by("time")  # which imports pyarrow.compute


@contextmanager
def publishing(path: str) -> Generator[BinaryIO]:
    """A new file that has its name when all of it is on the disk. Raises OSError: then there is none."""
    try:
        with open(f"{path}.tmp", "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.rename(f"{path}.tmp", path)
    except BaseException:
        with suppress(OSError):
            os.unlink(f"{path}.tmp")
        raise


def _fsync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _translated(error: OSError, path: str) -> HeadraceError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return NoRoomError("the disk is full", path=path, hint="what was logged waits in the spool; make room")
    return TryAgainError(f"the disk failed: {error.strerror or error}", path=path)
