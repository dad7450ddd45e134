"""Headers of tar archives: one 512-byte block, its numbers and checksum, and the records of a PAX header.

Formats: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Extended Header"; GNU tar's manual, "Basic Tar Format"
(base-256 numbers, long names, sparse members). What is wrong is a ValueError with the reason; who reads the
archive knows where.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

BLOCK = 512  # bytes
_POSIX = b"ustar\0"
_SPACES = 8 * ord(" ")
"""What the checksum itself counts as."""
_fields = struct.Struct("100s 24x 12s 12x 8s c 100x 6s 82x 155s 12x").unpack
_tuple = tuple.__new__  # a NamedTuple without the Python frame of its constructor
_OCTAL = b"01234567"
_BASE_256, _NEGATIVE = 0x80, 0xFF  # first byte of a number in binary, positive and negative


class Header(NamedTuple):
    """`name`: with the prefix, as it stands there. `kind`: the type flag, one byte. `size`: of the body, bytes."""

    name: bytes
    kind: bytes
    size: int


def parse_header(block: bytes) -> Header:
    """One header block of 512 bytes.

    Raises:
        ValueError: wrong checksum, or a number that is none.
    """
    name, size, check, kind, magic, prefix = _fields(block)
    expected, found = parse_number(check, "checksum"), _sum(block, check)
    if expected != found and expected != _signed_sum(block, check):
        raise ValueError(f"the header's checksum is wrong ({found} instead of {expected}), or it is no tar header")
    name = name.partition(b"\0")[0]
    if prefix[0] and magic == _POSIX:
        name = prefix.partition(b"\0")[0] + b"/" + name
    return _tuple(Header, (name, kind, parse_number(size, "size")))


def parse_number(field: bytes, what: str) -> int:
    """Octal digits, or binary where the first byte says so.

    Raises:
        ValueError: neither, or below zero.
    """
    if field[0] == _BASE_256:
        return int.from_bytes(field[1:], "big")
    if field[0] == _NEGATIVE:
        raise ValueError(f"the header's {what} is negative")
    digits = field.partition(b"\0")[0].strip()
    if not digits:
        return 0
    if digits.strip(_OCTAL):
        raise ValueError(f"the header's {what} is no octal number: {ascii(digits)[1:]}")
    return int(digits, 8)


def parse_records(body: bytes) -> dict[str, bytes]:
    r"""The records of a PAX header: ``<length> <key>=<value>\n``, the length counting all of it. Later ones win.

    Raises:
        ValueError: a record that does not keep to that.
    """
    records: dict[str, bytes] = {}
    at = 0
    while at < len(body) and body[at]:  # some writers pad with NUL
        blank = body.find(b" ", at, at + 20)
        length = body[at:blank] if blank > 0 else b""
        if not length.isdigit():
            raise ValueError("an extended header's record has no length")
        stop = at + int(length)
        key, equals, value = body[blank + 1 : stop - 1].partition(b"=")
        if not equals or stop > len(body) or stop <= blank or body[stop - 1 : stop] != b"\n":
            raise ValueError("an extended header's record does not end where it says")
        records[key.decode("utf-8", "replace")] = value
        at = stop
    return records


def _sum(block: bytes, check: bytes) -> int:
    # Adler-32's lower half is 1 + the sum of bytes modulo 65,521, which 256 bytes stay below: exact, and ten times
    # quicker than a loop.
    whole = (zlib.adler32(block[:256]) & 0xFFFF) + (zlib.adler32(block[256:]) & 0xFFFF)
    return whole - (zlib.adler32(check) & 0xFFFF) - 1 + _SPACES


def _signed_sum(block: bytes, check: bytes) -> int:
    """As some old writers added it up: bytes as signed numbers."""
    outside = block[:148] + block[156:]
    return _sum(block, check) - 256 * sum(byte > 127 for byte in outside)
