"""Writing tar archives: the same bytes for the same members, on every machine and at every time.

Headers are those of Python's `tarfile` in the pax format (POSIX.1-2001), with time, owner and group zero and mode 0644.
Plain ones (an ASCII name of up to 100 bytes, less than 8 GiB) are filled in here, which is ten times quicker; a
property test compares the two.

Sources: POSIX.1-2017, ``pax``, "ustar Interchange Format"; CPython's ``Lib/tarfile.py``.
"""

from __future__ import annotations

import tarfile
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import xxhash

from headrace.store.protocol import Buffer

BLOCK = 512  # bytes
END = bytes(2 * BLOCK)
"""Two blocks of zeros end an archive."""
_PLAIN_NAME = 100  # bytes of a name that the header itself holds
_PLAIN_SIZE = 1 << 33  # from here on a size has more than eleven octal digits
_ZEROS = bytes(BLOCK)
_LARGE = 1 << 18  # bytes gathered for one write; a member of as many is written by itself


def _made_by_tarfile(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


_BLANK = _made_by_tarfile("", 0)
_HEAD, _MIDDLE, _TAIL = _BLANK[_PLAIN_NAME:124], _BLANK[136:148], _BLANK[156:]
_SUM = sum(_HEAD) + sum(_MIDDLE) + sum(_TAIL) + 8 * ord(" ")


def header(name: str, size: int) -> bytes:
    """What stands before a member's bytes.

    Raises:
        UnicodeEncodeError: `name` is no valid Unicode.
    """
    if len(name) > _PLAIN_NAME or size >= _PLAIN_SIZE or not name.isascii():
        return _made_by_tarfile(name, size)
    raw, digits = name.encode("ascii"), b"%011o\0" % size
    checksum = b"%06o\0 " % (_SUM + sum(raw) + sum(digits))
    return b"".join((raw.ljust(_PLAIN_NAME, b"\0"), _HEAD, digits, _MIDDLE, checksum, _TAIL))


def member_size(name: str, size: int) -> int:
    """Bytes a member takes in an archive, header and padding included."""
    plain = len(name) <= _PLAIN_NAME and size < _PLAIN_SIZE and name.isascii()
    return (BLOCK if plain else len(header(name, size))) + size + -size % BLOCK


class Writable(Protocol):
    """What an archive is written to: a file, or an object on its way."""

    def write(self, data: Buffer, /) -> object: ...
    def flush(self) -> object: ...


class Places:
    """Where members lie, in their order, in little more memory than their names take. One thread."""

    def __init__(self) -> None:
        self._names = bytearray()
        self._bounds = array("q")

    def __len__(self) -> int:
        return len(self._bounds) // 2

    def add(self, name: str, start: int, stop: int) -> None:
        """A member's bytes are [start, stop) of the archive."""
        self._names += name.encode()
        self._names.append(0)  # which no name holds
        self._bounds.extend((start, stop))

    def __iter__(self) -> Iterator[tuple[str, int, int]]:
        """Name, start and stop of each. Nothing may be added meanwhile."""
        return zip(self._names.decode().split("\0"), self._bounds[::2], self._bounds[1::2], strict=False)


class TarWriter:
    """Appends members to a file. One thread.

    `size` and `digest` (XXH3, 128 bits, hexadecimal) are those of all that was written, `places` where members lie.
    """

    def __init__(self, file: Writable) -> None:
        self.size = 0
        self.places = Places()
        self._write: Callable[[Buffer], object] = file.write
        self._flush = file.flush
        self._hash = xxhash.xxh3_128()

    @property
    def members(self) -> int:
        return len(self.places)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def add(self, name: str, data: Buffer) -> None:
        """One member. Raises OSError."""
        self.add_all([(name, data)])

    def add_all(self, members: Iterable[tuple[str, Buffer]]) -> None:
        """Members in this order; short ones together, so that calls do not cost more than bytes. Raises OSError."""
        pieces: list[Buffer] = []
        held, at = 0, self.size
        for name, data in members:
            view = memoryview(data).cast("B")
            size = len(view)
            head = header(name, size)
            pieces.append(head)
            at += len(head)
            self.places.add(name, at, at + size)
            at += size + -size % BLOCK
            if size >= _LARGE or held >= _LARGE:
                self._put(b"".join(pieces))
                self._put(view)
                pieces, held = list[Buffer]((_ZEROS[: -size % BLOCK],)), 0
            else:
                pieces += (view, _ZEROS[: -size % BLOCK])
                held += size + BLOCK
        self._put(b"".join(pieces))

    def finish(self) -> None:
        """The end mark. Raises OSError."""
        self._put(END)
        self._flush()

    def _put(self, data: Buffer) -> None:
        self._write(data)
        self._hash.update(data)
        self.size += len(data)
