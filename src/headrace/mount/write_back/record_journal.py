"""Records of what is still to be done, in a file that survives kill -9, and power cuts where a caller asks for that.

A record is a number and a JSON object, the whole of what is to be known of that number; a later one takes its place,
an empty one ends it. Format, version 1: the line ``headrace-journal 1``, then records of length and CRC-32 of the
payload (two little-endian 32-bit numbers) and the payload, ``[number, object or null]`` in JSON. What follows the first
record that does not read back is a write cut short: it is dropped. The file is rewritten when most of it is history.
"""

from __future__ import annotations

import errno
import json
import os
import struct
import threading
import zlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from headrace.base.errors import CorruptError, NoRoomError

VERSION: Final = 1  # of the file's format
_MAGIC: Final = b"headrace-journal "
_HEAD: Final = _MAGIC + b"%d\n" % VERSION
_RECORD: Final = struct.Struct("<II")
_COMPACT: Final = 256 << 10
"""Bytes of history from which on a rewrite is worth its syncs."""

_ENCODE: Final = json.JSONEncoder(separators=(",", ":")).encode

Record = Mapping[str, Any]


class RecordJournal:
    """Records by number. Any thread; one process (the staging folder's lock sees to that)."""

    def __init__(self, path: str, *, compact: int = _COMPACT) -> None:
        """Open, or make.

        Raises:
            CorruptError: not a journal, or one of a later version. OSError: the disk fails.
        """
        self._path = path
        self._compact = compact
        self._lock = threading.Lock()
        self._live: dict[int, bytes] = {}
        self._live_size = 0
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._end = self._load()
        except BaseException:
            os.close(self._fd)
            raise

    @property
    def live(self) -> dict[int, Record]:
        """All records that have not ended, by number."""
        with self._lock:
            return {number: json.loads(raw[_RECORD.size :])[1] for number, raw in sorted(self._live.items())}

    def set(self, number: int, record: Record, *, sync: bool = False) -> None:
        """Record. `sync`: it is on the disk when this returns, not only in the kernel's memory.

        Raises:
            NoRoomError: the disk is full; nothing has changed. OSError: it fails.
        """
        raw = _pack(number, record)
        with self._lock:
            self._append(raw, sync=sync)
            self._live_size += len(raw) - len(self._live.get(number, b""))
            self._live[number] = raw
            self._tidy()

    def drop(self, number: int) -> None:
        """End a record; not synced: what comes back after a power cut is done again. Raises as `set`."""
        with self._lock:
            raw = self._live.get(number)
            if raw is None:
                return
            if len(self._live) == 1 and self._end > self._compact:
                os.ftruncate(self._fd, len(_HEAD))
                self._end = len(_HEAD)
            else:
                self._append(_pack(number, None), sync=False)
            del self._live[number]
            self._live_size -= len(raw)
            self._tidy()

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)

    def _load(self) -> int:
        """Read all; returns where the last whole record ends, and cuts the file there."""
        with open(self._fd, "rb", closefd=False) as file:
            raw = file.read()
        if not _HEAD.startswith(raw[: len(_HEAD)]):
            reason = "a journal of a later version" if raw.startswith(_MAGIC) else "not a journal"
            raise CorruptError(reason, path=self._path, hint="mount with the version of headrace that wrote it")
        if len(raw) < len(_HEAD):
            os.pwrite(self._fd, _HEAD, 0)
            return len(_HEAD)
        end = len(_HEAD)
        while (record := _unpack(raw, end)) is not None:
            number, value, end = record
            packed = b"" if value is None else _pack(number, value)
            self._live_size += len(packed) - len(self._live.pop(number, b""))
            if packed:
                self._live[number] = packed
        if end < len(raw):
            os.ftruncate(self._fd, end)
        return end

    def _append(self, raw: bytes, *, sync: bool) -> None:
        try:
            done = os.pwrite(self._fd, raw, self._end)
            if done < len(raw):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if sync:
                os.fdatasync(self._fd)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._fd, self._end)
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise NoRoomError("no room for the journal", path=self._path, hint="free some room") from error
            raise
        self._end += len(raw)

    def _tidy(self) -> None:
        """Rewrite the file where most of it is history. A failure costs only room."""
        if self._end < self._compact or self._end < 4 * (self._live_size + len(_HEAD)):
            return
        fresh = self._path + ".new"
        try:
            fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        except OSError:
            return
        try:
            raw = _HEAD + b"".join(self._live.values())
            if os.pwrite(fd, raw, 0) < len(raw):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fdatasync(fd)
            os.rename(fresh, self._path)
        except OSError:
            os.close(fd)
            with suppress(OSError):
                os.unlink(fresh)
            return
        os.close(self._fd)
        self._fd, self._end = fd, len(raw)
        sync_folder(os.path.dirname(self._path))


def sync_folder(path: str) -> None:
    """Names made and removed in a folder are on the disk when this returns; a failure is passed over."""
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _pack(number: int, record: Record | None) -> bytes:
    payload = b"[%d,null]" % number if record is None else _ENCODE([number, record]).encode()
    return _RECORD.pack(len(payload), zlib.crc32(payload)) + payload


def _unpack(raw: bytes, at: int) -> tuple[int, Record | None, int] | None:
    """Number, record and end of the record at byte `at`; None where there is no whole one."""
    start = at + _RECORD.size
    if start > len(raw):
        return None
    length, crc = _RECORD.unpack_from(raw, at)
    payload = raw[start : start + length]
    if len(payload) < length or zlib.crc32(payload) != crc:
        return None
    try:
        number, record = json.loads(payload)
    except ValueError:
        return None
    return number, record, start + length
