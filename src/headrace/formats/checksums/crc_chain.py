"""Many checksums verified by one: pieces that lie one behind the other in a buffer, each with a CRC-32C of its own.

A checksum is what feeding bytes leaves in a register, and registers add up: what a whole stretch leaves can be told
from what its pieces leave. So the stretch is fed once, by processor instructions and without the interpreter's lock,
and compared with what should come out if every piece agrees with its own checksum. If one piece does not, the two
differ; if several do not, they agree by chance, once in 2**32.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from headrace.catalog import Ints
from headrace.formats.checksums.crc32c import ALL, Words, crc32c, left_by, of_a_byte

_PLACES = 3  # digits, base 256, of the longest piece
_LONGEST = 256**_PLACES
_BYTES = np.arange(256, dtype=np.uint32)


def chained(data: memoryview, start: Ints, stop: Ints, checksums: Words) -> bool | None:
    """Whether all pieces ``data[start:stop]`` have these checksums. None: they are no chain, or too long a one.

    `start` and `stop`: [n], n > 0, of pieces in the order in which they lie, with the same number of bytes, between 4
    and 1024, from each to the next.
    """
    low, high = int(start[0]), int(stop[-1])
    gaps = start[1:] - stop[:-1]
    if high - low >= _LONGEST or (len(gaps) and (not 4 <= gaps[0] <= 1024 or (gaps != gaps[0]).any())):
        return None
    expected = int(checksums[-1])
    if len(gaps):
        between = np.frombuffer(data, np.uint8)[stop[:-1, None] + np.arange(gaps[0])]
        # Behind each piece the register is its checksum, flipped. Behind the gap that follows it is something else than
        # the ones from which the next piece's checksum starts: that difference is carried to the end.
        between[:, :4] ^= (checksums[:-1, None] ^ np.uint32(ALL)).astype("<u4").view(np.uint8)
        expected ^= int(np.bitwise_xor.reduce(_carried(left_by(between) ^ np.uint32(ALL), high - start[1:])))
    return crc32c(data[low:high]) == expected


def _carried(registers: Words, zeros: Ints) -> Words:
    """What becomes of registers when so many bytes of zeros, fewer than 2**24, are fed to them."""
    for place, jumps in enumerate(_jumps()):
        digit = zeros >> (8 * place) & 0xFF
        registers = _looked_up(jumps, digit << 10, registers)
    return registers


def _looked_up(table: Words, where: Ints | int, registers: Words) -> Words:
    """The sum of what `table` says, from `where` on, of each of a register's four bytes: 256 entries a byte."""
    wide = registers.astype(np.int64)
    found = table.take((wide & 0xFF) + where)
    for at in (1, 2, 3):
        found ^= table.take((wide >> (8 * at) & 0xFF) + (where + 256 * at))
    return found


@cache
def _jumps() -> Words:
    """[3, 256 * 4 * 256]: for each digit (base 256) of a number of zeros, what they make of a register's bytes."""
    jumps = np.empty((_PLACES, 256, 4, 256), np.uint32)
    step = np.stack([of_a_byte(), _BYTES, _BYTES << np.uint32(8), _BYTES << np.uint32(16)])
    for place in jumps:
        place[0] = [_BYTES << np.uint32(8 * at) for at in range(4)]
        for digit in range(1, 256):
            place[digit] = _looked_up(step.reshape(-1), 0, place[digit - 1])
        step = _looked_up(step.reshape(-1), 0, place[255])
    return jumps.reshape(_PLACES, -1)
