"""TensorBoard event files that a job writes: their scalars as points, while they grow, without TensorBoard.

A file is a row of records, TFRecord's framing: length (u64, little endian), the masked CRC-32C of these eight bytes,
the data, and the masked CRC-32C of that (TensorFlow's ``core/lib/io/record_writer.h``, ``core/lib/hash/crc32c.h``; the
polynomial is that of RFC 3720, appendix B.4). Lengths are always checked; data up to 1 KiB, as of scalars, too: larger
records are mostly histograms, images and graphs, and checking them in Python takes long.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from headrace.tracking.points import Point
from headrace.tracking.summaries import scalars

_log = logging.getLogger("headrace.tracking")

MARK: Final = "tfevents"
"""In the name of every event file."""
_HEAD = struct.Struct("<QI")
_CRC = struct.Struct("<I")
_CHECKED_BYTES = 1 << 10
"""Checksums of longer records are not computed: Python's own loop takes a tenth of a microsecond a byte."""
_MOST_BYTES = 16 << 20
"""A longer record is passed over unread."""
_MASK = 0xA282EAD8
"""Of TFRecord's masked CRC."""


@dataclass(slots=True)
class _File:
    """One event file: how far it was read, and why no further. `prefix`: what its tags begin with."""

    path: str
    prefix: str
    inode: int = 0
    offset: int = 0
    damaged: bool = False
    told: bool = False
    known: set[str] = field(default_factory=set[str])


class EventFiles:
    """The event files in and below a folder: ``…tfevents…``, TensorBoard's own rule. One thread.

    `note`: what `note` said in an earlier process, to go on from there.
    """

    def __init__(self, folder: str, note: str = "") -> None:
        self._folder = folder
        self._files: dict[str, _File] = {}
        held: dict[str, list[int]] = json.loads(note) if note else {}
        for name, (inode, offset) in held.items():
            self._files[name] = _File(os.path.join(folder, name), _prefix(name), inode, offset)

    def new(self, most: int = 100_000) -> list[Point]:
        """What was appended since the last call. About `most` points at most: ask again while there are any.

        Points are named by their tag, in a sub-folder ``<folder>/<tag>``; steps and times are the events'. A record
        that is not all there yet is left for the next call. At a damaged one its file ends, which is told once.
        """
        found: list[Point] = []
        for name, about in sorted(self._listed()):
            if len(found) >= most:
                break
            file = self._files.setdefault(name, _File(os.path.join(self._folder, name), _prefix(name)))
            if file.inode != about.st_ino or about.st_size < file.offset:
                file.inode, file.offset, file.damaged = about.st_ino, 0, False  # another file, of the same name
            if not file.damaged and about.st_size > file.offset:
                self._read(file, found, most)
        return found

    @property
    def note(self) -> str:
        """How far each file was read: text for whoever goes on from there."""
        read = {name: [file.inode, file.offset] for name, file in self._files.items()}
        return json.dumps(read, separators=(",", ":"))

    def _listed(self) -> Iterator[tuple[str, os.stat_result]]:
        for folder, _, names in os.walk(self._folder):
            for name in names:
                if MARK not in name:
                    continue
                path = os.path.join(folder, name)
                try:
                    about = os.lstat(path)
                except OSError:
                    continue
                if stat.S_ISREG(about.st_mode):
                    yield os.path.relpath(path, self._folder), about

    def _read(self, file: _File, found: list[Point], most: int) -> None:
        try:
            with open(file.path, "rb") as stream:
                stream.seek(file.offset)
                for record, end in _records(stream, file.offset):
                    found += scalars(record, file.prefix, file.known)
                    file.offset = end
                    if len(found) >= most:
                        return
        except ValueError as error:
            file.damaged = True
            _log.warning("%s is not read beyond byte %d: %s", file.path, file.offset, error)
        except OSError as error:
            if not file.told:
                _log.warning("%s cannot be read, and is tried again: %s", file.path, error)
            file.told = True


def _prefix(name: str) -> str:
    """Of the run, which is the folder."""
    folder = os.path.dirname(name)
    return f"{folder}/" if folder else ""


def _records(stream: BinaryIO, at: int) -> Iterator[tuple[memoryview, int]]:
    """The whole records from an offset on, and the offset behind each. Raises ValueError: a damaged one."""
    size = os.fstat(stream.fileno()).st_size
    while at + _HEAD.size <= size:
        head = stream.read(_HEAD.size)
        length, crc = _HEAD.unpack(head)
        if masked_crc(head[:8]) != crc:
            raise ValueError("the length of a record is damaged")
        end = at + _HEAD.size + length + _CRC.size
        if end > size:
            return
        if length > _MOST_BYTES:
            stream.seek(end)
            yield memoryview(b""), end
        else:
            data = stream.read(length + _CRC.size)
            if len(data) < length + _CRC.size:
                return  # cut off while it was read
            if length <= _CHECKED_BYTES and masked_crc(data[:length]) != _CRC.unpack_from(data, length)[0]:
                raise ValueError("a record is damaged")
            yield memoryview(data)[:length], end
        at = end


def _table() -> list[int]:
    made: list[int] = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        made.append(value)
    return made


_TABLE = _table()


def masked_crc(data: bytes) -> int:
    """As a record carries it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF
