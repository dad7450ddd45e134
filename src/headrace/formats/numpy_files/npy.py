"""``.npy`` files: one row along the first axis is one sample.

The format: NumPy's ``numpy/lib/format.py`` (NEP 1), versions 1.0, 2.0 and 3.0. Nothing is ever unpickled.

The header concerns all rows. `Npy.preamble` reads it once, for the index to keep, and `Npy.decoder` makes what turns
the bytes of a row into an array.
"""

from __future__ import annotations

import ast
import math
import re
import struct
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from headrace.base.errors import CorruptError, UnsupportedError
from headrace.base.parsing import steadily
from headrace.formats.shard_format import UNKNOWN, Member, ShardBytes

_MAGIC = b"\x93NUMPY"
_START = len(_MAGIC) + 2  # the magic, and two bytes of version
_LENGTH = {(1, 0): struct.Struct("<H"), (2, 0): struct.Struct("<I"), (3, 0): struct.Struct("<I")}
LONGEST = 10_000  # bytes of a header: NumPy's own limit, for the sake of Python's compiler
_AXES = 64  # as many as an array may have


class Header(NamedTuple):
    """What an array's header says."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    size: int
    """Bytes before the data."""
    fortran: bool
    """Whether rows lie scattered."""

    @property
    def row(self) -> int:
        """Bytes of a row."""
        return self.dtype.itemsize * math.prod(self.shape[1:])


@dataclass(frozen=True)
class Npy:
    """Rows of one array. A sample is the part ``data``, its key the row's number."""

    name: str = "npy"
    version: int = 1
    suffixes: tuple[str, ...] = (".npy",)

    def recognise(self, head: memoryview) -> bool:
        """Whether they start with NumPy's magic."""
        return bytes(head[: len(_MAGIC)]) == _MAGIC

    def scan(self, shard: ShardBytes) -> Iterator[Member]:
        """Every row. Reads the header only.

        Raises:
            CorruptError: the header is damaged, or the shard is shorter or longer than it says.
            UnsupportedError: Python objects, an array without an axis or whose rows hold no bytes.
        """
        header = header_of(self.preamble(shard), shard.path)
        rows, row = header.shape[0], header.row
        if shard.size not in (header.size + rows * row, UNKNOWN):  # what is made anew ends where it should
            raise CorruptError(
                f"the shard has {shard.size - header.size} bytes after its header, meant for {rows} rows of {row}",
                path=shard.path,
                hint="it is cut off, or holds more than one array",
            )
        for number in range(rows):
            start = header.size + number * row
            yield Member(f"{number:08d}", "data", start, start + row)

    def repacked(self, shard: ShardBytes) -> str | None:
        """See `headrace.formats.shard_format.Repacked`: an array in Fortran order. Raises as `scan`."""
        header = header_of(self.preamble(shard), shard.path, any_order=True)
        return "npy" if header.fortran else None

    def decode(self, data: memoryview) -> memoryview:
        """The row's bytes; `decoder` makes arrays of them."""
        return data

    def preamble(self, shard: ShardBytes) -> bytes:
        """Magic, version and header: what `decoder` needs to know of a shard.

        Raises:
            CorruptError: the magic or the version is wrong, or the shard ends inside the header.
        """
        head = bytes(shard.read(0, _START + 4))
        length = _LENGTH.get((head[-6], head[-5])) if len(head) == _START + 4 and head.startswith(_MAGIC) else None
        if length is None:
            raise CorruptError("no .npy file of version 1, 2 or 3", path=shard.path)
        stop = _START + length.size + cast("int", length.unpack_from(head, _START)[0])
        if stop > min(shard.size, LONGEST):
            raise CorruptError(
                f"a header of {stop} bytes, where the shard has {shard.size} and {LONGEST} is the most",
                path=shard.path,
            )
        return bytes(shard.read(0, stop))

    def decoder(self, preamble: bytes) -> Callable[[memoryview], npt.NDArray[Any]]:
        """What turns a row's bytes into an array of the row's shape and type, a view of these bytes.

        Raises:
            CorruptError, UnsupportedError: as `scan`. The function it returns: CorruptError for bytes that are no row.
        """
        header = header_of(preamble, None)
        return RowDecoder(header.dtype, header.shape[1:])


@dataclass(frozen=True)
class RowDecoder:
    """Decodes rows of one type and shape. A class, so that it can be pickled."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def __call__(self, data: memoryview) -> npt.NDArray[Any]:
        try:
            return np.frombuffer(data, self.dtype).reshape(self.shape)
        except ValueError as error:
            raise CorruptError(f"the row's {len(data)} bytes are no {self.dtype} of shape {self.shape}") from error


NPY = Npy()


def header_of(preamble: bytes, path: str | None, *, any_order: bool = False) -> Header:
    """What the header says, and that it can be served by rows; `any_order`: once these lie in C order.

    Raises:
        CorruptError: it says nothing that makes sense. UnsupportedError: as `Npy.scan`.
    """
    dtype, fortran, shape = fields_of(preamble, path)
    header = Header(dtype, shape, len(preamble), fortran and len(shape) > 1)
    if dtype.hasobject:
        raise UnsupportedError(
            "the array holds pickled Python objects, which could run any code",
            path=path,
            hint="save it with a type of fixed size",
        )
    if not shape:
        raise UnsupportedError("the array has no axis, so no rows", path=path, hint="read it as a single object")
    if header.fortran and not any_order:
        raise UnsupportedError(
            "the array is in Fortran order: its rows are scattered",
            path=path,
            hint="save np.ascontiguousarray(array)",
        )
    if header.shape[0] and not header.row:
        raise UnsupportedError(f"the rows of an array of shape {shape} and type {dtype} hold no bytes", path=path)
    return header


def fields_of(head: bytes, path: str | None = None) -> tuple[np.dtype[Any], bool, tuple[int, ...]]:
    """Type, whether the order is Fortran's, and shape of any array, of the first `LONGEST` bytes of its file.

    Raises CorruptError: it is none.
    """
    try:
        version = head[6], head[7]
        start = _START + _LENGTH[version].size
        stop = start + cast("int", _LENGTH[version].unpack_from(head, _START)[0])
        if not head.startswith(_MAGIC) or stop > min(len(head), LONGEST):
            raise ValueError(f"it has {stop} bytes")
        return _fields(str(head[start:stop], "utf-8" if version == (3, 0) else "latin-1"))
    except Exception as error:  # whatever the compiler and NumPy's dtype make of hostile text
        raise CorruptError(f"the .npy header cannot be read: {type(error).__name__}: {error}", path=path) from None


def _fields(text: str) -> tuple[np.dtype[Any], bool, tuple[int, ...]]:
    """Type, Fortran order, shape. Raises anything."""
    text = re.sub(r"(?<=\d)L\b", "", text)  # whole numbers as Python 2 wrote them
    header = cast("dict[str, Any]", steadily(lambda: ast.literal_eval(text.strip())))
    if type(header) is not dict or header.keys() != {"descr", "fortran_order", "shape"}:
        raise ValueError("not the three entries it should have")
    descr, fortran, shape = header["descr"], header["fortran_order"], cast("tuple[Any, ...]", header["shape"])
    if type(fortran) is not bool or type(shape) is not tuple or len(shape) > _AXES:
        raise ValueError("the order or the shape is none")
    if any(type(n) is not int or not 0 <= n < 1 << 63 for n in shape):
        raise ValueError("the shape is impossible")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dtype = np.lib.format.descr_to_dtype(descr)
    if dtype.subdtype is not None:
        raise ValueError("the type is an array")
    return dtype, fortran, shape
