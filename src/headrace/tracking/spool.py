r"""What one process logged, as a file: written with nothing but Python itself, in whatever environment the job runs.

``<name>.points``, in this order; numbers are in the byte order of the machine, whose runner reads them seconds later:

========================================= ========================================================================
``headrace points 1\n``                    the format
JSON, a line                              ``{"rank": 0, "rows": 2, "names": ["loss", "lr"]}``
`rows` × int64                            microseconds since the epoch
`rows` × int64                            steps; 0 where there is none
`rows` × int8                             1 where there is a step
`rows` × int32                            which of `names`
`rows` × float64                          values
uint32                                    CRC-32 of all before it
========================================= ========================================================================
"""

from __future__ import annotations

import json
import struct
import zlib
from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple, cast

SUFFIX: Final = ".points"
_MAGIC: Final = b"headrace points 1\n"
_CHECK = struct.Struct("=I")
_COLUMNS: Final = ((8, "times_us"), (8, "steps"), (1, "stepped"), (4, "codes"), (8, "values"))
_MOST_HEADER_BYTES = 16 << 20
"""A longer one is none of ours."""
_INT64 = 1 << 63  # from here on a number is none


class Points(NamedTuple):
    """Columns of `rows` points as they lie in a file: bytes of int64, int64, int8, int32, float64."""

    rank: int
    rows: int
    names: tuple[str, ...]
    times_us: memoryview
    steps: memoryview
    stepped: memoryview
    codes: memoryview
    values: memoryview


def encode(
    rank: int, times_us: Sequence[int], steps: Sequence[int | None], names: Sequence[object], values: Sequence[float]
) -> bytes:
    """A file. All columns are of one length; a step that is no int64 is left out. Any thread."""
    known: dict[object, int] = {}
    codes = array("i", [known.setdefault(name, len(known)) for name in names])
    numbers, stepped = _steps(steps)
    header = json.dumps({"rank": rank, "rows": len(times_us), "names": [str(name) for name in known]})
    columns = (array("q", times_us), numbers, stepped, codes, array("d", values))
    body = b"".join([_MAGIC, header.encode(), b"\n", *(column.tobytes() for column in columns)])
    return body + _CHECK.pack(zlib.crc32(body))


def decode(data: bytes) -> Points:
    """The same again, over the memory of `data`. Raises ValueError: it is torn, or none, or of a later format."""
    if not data.startswith(_MAGIC):
        raise ValueError("it does not begin as a file of points does")
    if len(data) < _CHECK.size or _CHECK.unpack(data[-_CHECK.size :])[0] != zlib.crc32(data[: -_CHECK.size]):
        raise ValueError("its checksum is another")
    end = data.index(b"\n", len(_MAGIC), len(_MAGIC) + _MOST_HEADER_BYTES)
    header = json.loads(data[len(_MAGIC) : end])
    rank, rows, names = int(header["rank"]), int(header["rows"]), tuple(map(str, header["names"]))
    view, at, columns = memoryview(data), end + 1, dict[str, memoryview]()
    for width, name in _COLUMNS:
        columns[name] = view[at : at + width * rows]
        at += width * rows
    if rows < 0 or at + _CHECK.size != len(data):
        raise ValueError("it is not as long as it says")
    return Points(rank, rows, names, **columns)


def _steps(steps: Sequence[int | None]) -> tuple[array[int], array[int]]:
    try:
        return array("q", cast("Sequence[int]", steps)), array("b", b"\1" * len(steps))
    except (TypeError, OverflowError):
        fits = [step is not None and -_INT64 <= step < _INT64 for step in steps]
        numbers = [step if step is not None and fit else 0 for step, fit in zip(steps, fits, strict=True)]
        return array("q", numbers), array("b", bytes(fits))
