"""Which parts an object goes in. Pure arithmetic."""

from __future__ import annotations

from typing import Final, NamedTuple

from headrace.base.errors import InputError

SMALLEST_PART: Final = 5 << 20
"""Bytes of a part that is not the last, by S3: it copies no smaller one, so smaller objects are written anew."""
LARGEST_COPY: Final = 5 << 30
"""Bytes that S3 copies, or takes, in one request."""
COPY_BYTES: Final = 128 << 20
"""A copy inside a store should be done well before a server, or what stands before it, loses patience."""
_ROUND = 1 << 20
"""Larger parts are of whole MiB, so that a plan reads well."""


class Piece(NamedTuple):
    """Part `number`: bytes [at, at + size) of the object, from the file, or `copied` from the object as it is."""

    number: int
    at: int
    size: int
    copied: bool = False


def plan(size: int, base: int, *, part: int, smallest: int, most: int) -> list[Piece]:
    """The parts of an object of `size` bytes whose first `base` bytes are there already (0: none).

    Args:
        size: bytes in all.
        base: bytes to copy: 0, or at least `smallest`.
        part: bytes wanted for a part from the file.
        smallest: bytes that every part but the last must have.
        most: parts allowed.

    Raises:
        InputError: a base too small to be copied.
    """
    if base and base < smallest:
        raise InputError(f"{base} bytes are too few to be copied as a part")
    copies = _even(base, min(max(1, -(-base // COPY_BYTES)), most // 2)) if base else []
    tail = size - base
    step = max(part, smallest, -(-tail // (most - len(copies))))
    step = -(-step // _ROUND) * _ROUND if step > part else step
    starts = [*copies, *range(base, size, step)] or [0]
    ends = [*starts[1:], size]
    return [
        Piece(number, at, end - at, at < base) for number, (at, end) in enumerate(zip(starts, ends, strict=True), 1)
    ]


def _even(size: int, count: int) -> list[int]:
    """Starts of `count` parts as alike as can be: none is much smaller than the others."""
    return [size * number // count for number in range(count)]
