"""What an entry is: its label, its checksum, and reading a file whole.

The label travels with the file as an extended attribute; where a file system has none (or no room for this one), it is
a small file in ``labels/``. Format: magic, block size (0: one checksum over all bytes; else the checksum of the
little-endian 64-bit checksums of each block), checksum (XXH3, 64 bit), then JSON: ``[identity, key, version, size]``.
"""

from __future__ import annotations

import json
import os
import struct
from contextlib import suppress
from dataclasses import dataclass

import xxhash

from headrace.base.memory import take
from headrace.cache.names import Layout

ATTRIBUTE = "user.headrace"
_HEADER = struct.Struct("<4sIQ")
_MAGIC = b"hrl1"
_CHUNK_BYTES = 4 << 20
"""Read at a time for a checksum over all bytes: bounds memory, and one call is nothing beside it."""


@dataclass(frozen=True, slots=True)
class EntryLabel:
    """What an entry holds: the store's identity, the object's key and version there, and its size in bytes."""

    identity: str
    key: str
    version: str
    size: int


@dataclass(frozen=True, slots=True)
class Seal:
    """A label and the checksum of the bytes it was put on. `block`: bytes per checksum, 0 for one over all."""

    label: EntryLabel
    checksum: int
    block: int = 0

    def pack(self) -> bytes:
        """As it is stored."""
        label = self.label
        text = json.dumps([label.identity, label.key, label.version, label.size], ensure_ascii=False)
        return _HEADER.pack(_MAGIC, self.block, self.checksum) + text.encode("utf-8", "surrogatepass")

    @staticmethod
    def unpack(raw: bytes) -> Seal | None:
        """None when these are not the bytes of a seal."""
        try:
            magic, block, checksum = _HEADER.unpack_from(raw)
            identity, key, version, size = json.loads(raw[_HEADER.size :].decode("utf-8", "surrogatepass"))
            label = EntryLabel(str(identity), str(key), str(version), int(size))
        except (struct.error, ValueError, TypeError):
            return None
        return Seal(label, checksum, block) if magic == _MAGIC else None


class Seals:
    """Writes and reads seals. Any thread."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._beside = os.path.isdir(layout.labels)

    def put(self, name: str, fd: int, seal: Seal) -> None:
        """Seal the open file that is about to become entry `name`. Raises OSError."""
        raw = seal.pack()
        try:
            os.setxattr(fd, ATTRIBUTE, raw)
        except OSError:  # no attributes here, or not of this length; a full disk shows again below
            self._put_beside(name, raw)

    def get(self, name: str, fd: int) -> Seal | None:
        """The seal of an entry; None when it has none, or not a readable one."""
        try:
            return Seal.unpack(os.getxattr(fd, ATTRIBUTE))
        except OSError:
            pass
        try:
            with open(self._layout.label(name), "rb") as file:
                return Seal.unpack(file.read())
        except OSError:
            return None

    def drop(self, name: str) -> None:
        """Forget the label of an entry that is gone."""
        if self._beside:
            with suppress(OSError):
                os.unlink(self._layout.label(name))

    def _put_beside(self, name: str, raw: bytes) -> None:
        path = self._layout.label(name)
        if not self._beside:
            os.makedirs(self._layout.labels, mode=0o700, exist_ok=True)
            self._beside = True
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        # Written in place: the claim keeps other writers of this name away, and a torn one fails its format.
        with open(path, "wb", opener=_private) as file:
            file.write(raw)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def checksum(data: memoryview) -> int:
    """XXH3, 64 bit, of some bytes."""
    return xxhash.xxh3_64_intdigest(data)


def checksum_of_file(fd: int, size: int, block: int) -> int | None:
    """The checksum that a seal with this `block` should hold; None when the file ends early. Raises OSError."""
    step = block or _CHUNK_BYTES
    whole = xxhash.xxh3_64()
    buffer = take(min(size, step))
    for start in range(0, size, step):
        piece = buffer[: min(size - start, step)]
        if not read_into(fd, piece, start):
            return None
        whole.update(struct.pack("<Q", block_sum(piece)) if block else piece)
    return whole.intdigest()


def block_sum(data: memoryview) -> int:
    """Checksum of one block; never 0, which in a map means absent."""
    return xxhash.xxh3_64_intdigest(data) or 1


def read_into(fd: int, buffer: memoryview, start: int) -> bool:
    """Fill `buffer` from byte `start`; False when the file ends first. Raises OSError."""
    got = os.preadv(fd, (buffer,), start)
    while got < len(buffer):  # one call gives at most 2 GiB
        more = os.preadv(fd, (buffer[got:],), start + got)
        if more == 0:
            return False
        got += more
    return True


def write_all(fd: int, data: memoryview, start: int = 0) -> None:
    """Write all of `data` at byte `start`. Raises OSError."""
    done = os.pwrite(fd, data, start)
    while done < len(data):
        done += os.pwrite(fd, data[done:], start + done)
