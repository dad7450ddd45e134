"""Many headers of a tar at once: plain members that follow one another in bytes that are here already.

Shards of small samples are headers to a good part, and one after another each costs microseconds of the interpreter.
Here NumPy reads them all. Only what every current writer writes is taken for plain: a regular file with octal numbers
that end as they should, no prefix, a checksum that is right. Whatever is not like that, or looks like a header and is
none, ends the run; `headrace.dataset.shards.tar` goes on from there, one header at a time.

Format: POSIX.1-2017, pax, "ustar Interchange Format".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.dataset.shards.tar_header import BLOCK

_MAGIC = b"ustar"
_FOUR = int.from_bytes(_MAGIC[:4], "little")
_REGULAR, _NUL, _SPACE = ord("0"), 0, ord(" ")
_NAME, _SIZE, _CHECK, _KIND, _MAGIC_AT, _PREFIX = 0, 124, 148, 156, 257, 345

_Rows = npt.NDArray[np.uint8]
_Ints = npt.NDArray[np.int64]


class Run(NamedTuple):
    """Of each of n members: its name as it stands there (uint8 [n, 100]), and start and stop of its body (int64 [n]),
    bytes of the shard. `end`: where the next header is.
    """

    field: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    stops: npt.NDArray[np.int64]
    end: int

    def names(self) -> list[str] | None:
        """The names; None where one is no UTF-8, absolute, or leads out of the shard, which is told one by one."""
        return _names(self.field)

    def part(self, start: int, stop: int) -> Run:
        """Members [start, stop)."""
        return Run(self.field[start:stop], self.starts[start:stop], self.stops[start:stop], self.end)


def plain_run(data: memoryview, offset: int, size: int) -> Run | None:
    """The plain members whose headers lie one after another from the beginning of `data` on.

    None: there is none.

    Args:
        data: bytes of the shard from `offset` on, which is where a header begins.
        offset: bytes.
        size: of the shard, bytes; 0 or more of the last member's may lie behind `data`, but not behind this.
    """
    blocks = np.frombuffer(data, np.uint8, len(data) // BLOCK * BLOCK).reshape(-1, BLOCK)
    places = np.flatnonzero(blocks[:, _MAGIC_AT : _MAGIC_AT + 4].view("<u4")[:, 0] == _FOUR)
    heads = blocks.take(places, axis=0)
    sizes, is_size = _octal(heads[:, _SIZE : _SIZE + 12], 11)
    is_plain = is_size & _is_right(heads) & (heads[:, _KIND] == _REGULAR)
    is_plain &= heads[:, _MAGIC_AT + 4] == _MAGIC[4]
    is_plain &= (heads[:, _PREFIX] == _NUL) | (heads[:, _MAGIC_AT + 5] != _NUL)
    following = places + 1 + (sizes + BLOCK - 1) // BLOCK
    is_plain &= places == np.append(0, following[:-1])
    starts = offset + (places + 1) * BLOCK
    is_plain &= starts + sizes <= size
    count = len(places) if is_plain.all() else int(is_plain.argmin())
    if not count:
        return None
    end = offset + int(following[count - 1]) * BLOCK
    return Run(heads[:count, _NAME : _NAME + 100], starts[:count], (starts + sizes)[:count], end)


def _octal(field: _Rows, digits: int) -> tuple[_Ints, npt.NDArray[np.bool_]]:
    """Numbers of so many octal digits, and whether that is what is there, with a space or a zero behind it."""
    values = field[:, :digits] - np.uint8(ord("0"))  # what is no digit becomes more than 7
    good = (values < 8).all(axis=1) & ((field[:, digits] == _NUL) | (field[:, digits] == _SPACE))
    return values.astype(np.int64) @ (8 ** np.arange(digits - 1, -1, -1, dtype=np.int64)), good


def _is_right(heads: _Rows) -> npt.NDArray[np.bool_]:
    """Whether their checksums are: the sum of all bytes, with spaces in place of the checksum."""
    check = heads[:, _CHECK : _CHECK + 8]
    expected, good = _octal(check, 6)
    found = heads.sum(axis=1, dtype=np.uint32).astype(np.int64) - check.sum(axis=1, dtype=np.int64) + 8 * _SPACE
    return good & (expected == found)


def _names(field: _Rows) -> list[str] | None:
    joined = b"\0".join(np.ascontiguousarray(field).view("S100")[:, 0].tolist())
    try:
        text = joined.decode()
    except UnicodeDecodeError:
        return None
    names = text.split("\0")
    suspect = ".." in text or text.startswith("/") or "\0/" in text
    return None if suspect or len(names) != len(field) else names
