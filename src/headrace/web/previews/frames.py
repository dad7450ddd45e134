"""What a page and the process that makes a preview for it say to each other: a head of 17 bytes, then what it tells of.

=====  ==========================  ===========================================================
kind   numbers                     what follows
=====  ==========================  ===========================================================
ASK    first byte, byte behind     nothing; answered by BYTES or REFUSED
DONE   lengths                     the preview as JSON, its picture
BYTES  length, 0                   the bytes
REFUSED length, 0                  why, UTF-8
=====  ==========================  ===========================================================
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import IO, Final

FRAME: Final = struct.Struct("<BQQ")
ASK, DONE, BYTES, REFUSED = 1, 2, 3, 4  # kinds of frame


@dataclass(frozen=True, slots=True)
class About:
    """The first line, JSON: which file, and what the process may take."""

    path: str
    size: int
    memory: int
    seconds: float


def exactly(pipe: IO[bytes], count: int) -> bytes:
    """So many bytes. Raises EOFError: the other side is gone."""
    data = pipe.read(count)
    if len(data) != count:
        raise EOFError
    return data
