"""Many headers of a tar at once: plain members that follow one another in bytes that are here already.

Shards of small samples are headers to a good part, and one after another each costs microseconds of the interpreter.
Here NumPy reads them all. Only what every current writer writes is taken for plain: a regular file with octal numbers
that end as they should, no prefix, a checksum that is right. Whatever is not like that, or looks like a header and is
none, ends the run; `headrace.formats.tar.tar` goes on from there, one header at a time.

Format: POSIX.1-2017, pax, "ustar Interchange Format".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.formats.tar.tar_header import BLOCK

_REGULAR, _NUL, _SPACE = ord("0"), 0, ord(" ")
_WIDTH, _SIZE, _CHECK, _KIND, _MAGIC_END, _PREFIX = 100, 124, 148, 156, 262, 345  # width of a name; where fields begin
_MAGIC_WORD = 256 // 8  # the word of 8 bytes that holds the magic
_MAGIC, _MAGIC_MASK = (np.uint64(int.from_bytes(text, "little")) for text in (b"\0ustar", b"\0\xff\xff\xff\xff\xff"))
_SIZE_DIGITS, _CHECK_DIGITS = 11, 6  # of the fields, without what ends them
_EVEN, _LOW = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)

_Words = npt.NDArray[np.uint64]
_Columns = npt.NDArray[np.uint8]
"""[bytes of a field, n]: NumPy works along rows many at a time, along columns of a few one by one."""
_Ints = npt.NDArray[np.int64]


class Run(NamedTuple):
    """Of each of n members: its name, followed by zeros (uint8 [n, `width` or more]; 100 in headers), and start and
    stop of its body (int64 [n]), bytes of the shard. `width`: bytes of the longest name, or more; at most 255. `end`:
    where the next header is.
    """

    field: npt.NDArray[np.uint8]
    width: int
    starts: npt.NDArray[np.int64]
    stops: npt.NDArray[np.int64]
    end: int

    def names(self) -> list[str] | None:
        """The names; None where one is no UTF-8, absolute, or leads out of the shard, which is told one by one."""
        return _names(self.field)

    def part(self, start: int, stop: int) -> Run:
        """Members [start, stop)."""
        return Run(self.field[start:stop], self.width, self.starts[start:stop], self.stops[start:stop], self.end)


def plain_run(data: memoryview, offset: int, size: int) -> Run | None:
    """The plain members whose headers lie one after another from the beginning of `data` on.

    None: there is none.

    Args:
        data: bytes of the shard from `offset` on, which is where a header begins.
        offset: bytes.
        size: of the shard, bytes; 0 or more of the last member's may lie behind `data`, but not behind this.
    """
    blocks = np.frombuffer(data, np.uint8, len(data) // BLOCK * BLOCK).reshape(-1, BLOCK)
    places = np.flatnonzero(blocks.view("<u8")[:, _MAGIC_WORD] & _MAGIC_MASK == _MAGIC)
    heads = blocks.take(places, axis=0)
    columns = np.ascontiguousarray(heads[:, _SIZE : _KIND + 1].T)
    sizes, is_size = _octal(columns[: _SIZE_DIGITS + 1])
    words = heads.view("<u8")
    used = np.bitwise_or.reduce(words, axis=0)
    is_plain = is_size & _is_right(words, used, columns[_CHECK - _SIZE : _KIND - _SIZE]) & (columns[-1] == _REGULAR)
    is_plain &= (heads[:, _PREFIX] == _NUL) | (heads[:, _MAGIC_END] != _NUL)
    following = places + 1 + (sizes + BLOCK - 1) // BLOCK
    is_plain &= places == np.append(0, following[:-1])
    starts = offset + (places + 1) * BLOCK
    is_plain &= starts + sizes <= size
    count = len(places) if is_plain.all() else int(is_plain.argmin())
    if not count:
        return None
    end = offset + int(following[count - 1]) * BLOCK
    width = int(used.view(np.uint8)[:_WIDTH].nonzero()[0].max(initial=0)) + 1
    return Run(heads[:count, :_WIDTH], width, starts[:count], (starts + sizes)[:count], end)


def _octal(columns: _Columns) -> tuple[_Ints, npt.NDArray[np.bool_]]:
    """Numbers in octal digits [digits + 1, n], and whether that is what is there, with a space or a zero behind it."""
    values = columns[:-1] - np.uint8(ord("0"))  # what is no digit becomes more than 7
    good = (values < 8).all(axis=0) & ((columns[-1] == _NUL) | (columns[-1] == _SPACE))
    shifts = 3 * np.arange(len(values) - 1, -1, -1, dtype=np.int64)
    return (values.astype(np.int64) << shifts[:, None]).sum(axis=0), good


def _is_right(words: _Words, used: _Words, check: _Columns) -> npt.NDArray[np.bool_]:
    """Whether their checksums are: the sum of all bytes, with spaces in place of the checksum."""
    expected, good = _octal(check[: _CHECK_DIGITS + 1])
    return good & (expected == _sums(words, used) - check.sum(axis=0, dtype=np.int64) + 8 * _SPACE)


def _sums(words: _Words, used: _Words) -> _Ints:
    """Of all bytes of each header: four sums of 16 bits in a word. Most words are zero in all of them, and left out."""
    columns = words.T[used.nonzero()[0]]
    sums = ((columns & _EVEN) + (columns >> 8 & _EVEN)).sum(axis=0)  # at most 64 words of 510: less than 16 bits
    sums = (sums & _LOW) + (sums >> 16 & _LOW)
    return ((sums & 0xFFFFFFFF) + (sums >> 32)).astype(np.int64)


def _names(field: npt.NDArray[np.uint8]) -> list[str] | None:
    joined = b"\0".join(np.ascontiguousarray(field).view("S100")[:, 0].tolist())
    try:
        text = joined.decode()
    except UnicodeDecodeError:
        return None
    names = text.split("\0")
    suspect = ".." in text or text.startswith("/") or "\0/" in text
    return None if suspect or len(names) != len(field) else names
