"""MosaicML Streaming's shards (``.mds``): one record is one sample, its columns are the parts.

A shard is how many records there are (uint32 n), where each begins and the last ends (uint32 [n+1]), the columns as
JSON, the records. In a record the lengths of its columns without a fixed size come first (uint32 each), then all
columns. Read from ``streaming/base/format/mds`` of mosaicml-streaming 0.13, format version 2. All of this stands in the
shard, so ``index.json`` is not looked at.

Images that are files (``jpeg``, ``png``) stay bytes, for `headrace.decode.image`. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from headrace.base.errors import CorruptError, HeadraceError, UnsupportedError
from headrace.catalog import KEY
from headrace.formats.index.record_offsets import members, table_of
from headrace.formats.shard_format import Decode, Member, ShardBytes
from headrace.formats.streaming import stored_values as values
from headrace.formats.streaming.stored_values import Number, Several

_LENGTH = struct.Struct("<I")
_LONGEST = 1 << 20  # bytes of the columns' description
_COLUMNS = 1024  # at most
_PACKED = {"zstd": "zstd", "gz": "gzip", "bz2": "bz2", "br": "brotli", "snappy": "snappy"}
"""Compressions by the endings that they give to a shard's name."""
_TYPES = {
    8: "<u1",
    9: "<i1",
    16: "<u2",
    17: "<i2",
    18: "<f2",
    32: "<u4",
    33: "<i4",
    34: "<f4",
    64: "<u8",
    65: "<i8",
    66: "<f8",
}
_NAMES = {np.dtype(one).name: one for one in _TYPES.values()}
_FIXED: dict[str, Decode] = {"int": Number("<i8", plain=True), **{name: Number(one) for name, one in _NAMES.items()}}
_OTHERS: dict[str, Decode] = {
    "bytes": values.raw,
    "str": values.text,
    "str_int": values.WHOLE,
    "str_float": values.REAL,
    "str_decimal": values.DECIMAL,
    "json": values.json_value,
    "jpeg": values.raw,
    "png": values.raw,
    "pil": values.pixels,
    "jpeg_array": Several(values.raw),
    "jpegarray": Several(values.raw),
    "list[jpeg]": Several(values.raw, skip=4),
    "list[png]": Several(values.raw, skip=4),
    "list[pil]": Several(values.pixels, skip=4),
}


@dataclass(frozen=True)
class Mds:
    """Records of named columns. A sample's key is the record's number in the shard."""

    name: str = "mds"
    version: int = 1
    suffixes: tuple[str, ...] = (".mds", *(f".mds.{one}" for one in _PACKED))

    def recognise(self, head: memoryview) -> bool:
        """Whether there are bytes enough. The format has no magic: `preamble` looks closer."""
        return len(head) >= 2 * _LENGTH.size

    def scan(self, shard: ShardBytes) -> Iterator[Member]:
        """Every record. Reads the table of offsets only, in pieces of 1 MiB at most.

        Raises:
            CorruptError: the offsets do not rise, or the shard does not end where the last record does.
        """
        return members(shard, table_of(shard, "MDS shard"), shard.size)

    def repacked(self, shard: ShardBytes) -> str | None:
        """See `headrace.formats.shard_format.Repacked`: compressed as a whole, as its name tells."""
        return _PACKED.get(shard.path.lower().rpartition(".mds.")[2])

    def decode(self, data: memoryview) -> memoryview:
        """The record's bytes; `decoder` makes columns of them."""
        return data

    def preamble(self, shard: ShardBytes) -> bytes:
        """The columns: a JSON list of names, encodings and sizes.

        Raises:
            CorruptError: the shard is none, or its description cannot be read.
            UnsupportedError: another version, a column that is pickled or has an encoding not known here.
        """
        table = table_of(shard, "MDS shard")
        start, stop = table.end, table.first
        try:
            if stop - start > _LONGEST:
                raise CorruptError(f"{stop - start} bytes are meant to describe the columns, {_LONGEST} are the most")
            found = values.json_value(shard.read(start, stop))
            columns = _described(found)
        except HeadraceError as error:
            error.reason = f"at byte {start}: {error.reason}"
            raise error.at(shard.path) from None
        return json.dumps(columns).encode()

    def decoder(self, preamble: bytes) -> Callable[[memoryview], dict[str, Any]]:
        """What turns a record's bytes into its columns.

        Raises:
            CorruptError, UnsupportedError: as `preamble`. The function it returns: CorruptError for bytes that are no
                such record, with the column's name.
        """
        columns = cast("list[tuple[str, str, int | None]]", values.json_value(memoryview(preamble)))
        return _Record(tuple(_Column(name, _decode(encoding)[0], size) for name, encoding, size in columns))


MDS = Mds()


class _Column(NamedTuple):
    name: str
    decode: Decode
    size: int | None
    """Bytes; None where every record says it."""


@dataclass(frozen=True)
class _Record:
    """Decodes records of some columns. A class, so that it can be pickled."""

    columns: tuple[_Column, ...]

    @property
    def keyed(self) -> bool:
        """Whether records have keys of their own."""
        return any(column.name == KEY for column in self.columns)

    def __call__(self, data: memoryview) -> dict[str, Any]:
        columns = self.columns
        at = 4 * sum(column.size is None for column in columns)
        if len(data) < at:
            raise CorruptError(f"the record has {len(data)} bytes, too few for the lengths of its columns")
        lengths = iter(struct.unpack_from(f"<{at // 4}I", data))
        found: dict[str, Any] = {}
        for name, decode, size in columns:
            stop = at + (next(lengths) if size is None else size)
            if stop > len(data):
                raise CorruptError(f"column {name!r} ends at byte {stop} of the record, which has {len(data)}")
            try:
                found[name] = decode(data[at:stop])
            except HeadraceError as error:
                error.reason = f"column {name!r}: {error.reason}"
                raise
            at = stop
        if at != len(data):
            raise CorruptError(f"the columns end at byte {at} of the record, which has {len(data)}")
        return found

    def all(self, data: Sequence[memoryview]) -> dict[str, Sequence[Any]] | None:
        """The same for several records whose columns have the same lengths, by columns; None for any others. Raises as
        for one.
        """
        columns = self.columns
        lengths = values.same_lengths(data, sum(column.size is None for column in columns))
        fixed = sum(column.size or 0 for column in columns)
        if lengths is None or 4 * len(lengths) + sum(lengths) + fixed != values.length(data):
            return None
        found: dict[str, Sequence[Any]] = {}
        said = iter(lengths)
        at = 4 * len(lengths)
        for name, decode, size in columns:
            stop = at + (next(said) if size is None else size)
            found[name] = values.decode_all(decode, values.cut(data, at, stop))
            at = stop
        return found


@dataclass(frozen=True)
class _Array:
    """MDS's ``ndarray``: type and shape stand before the values unless all records have the same."""

    dtype: str | None
    shape: tuple[int, ...] | None

    def __call__(self, data: memoryview) -> npt.NDArray[Any]:
        start, dtype, shape = self._head(data)
        return values.shaped(data[start:], dtype, shape)

    def _head(self, data: memoryview) -> tuple[int, np.dtype[Any], tuple[int, ...]]:
        """Where the numbers begin, of which type they are, and of what shape. Raises CorruptError."""
        dtype, shape, start = self.dtype, self.shape, 0
        if dtype is None:
            dtype = _TYPES.get(data[0]) if len(data) else None
            if dtype is None:
                raise CorruptError("an array of no known type")
            start = 1
        if shape is None:
            axes, width = (data[start] >> 2, 1 << (data[start] & 3)) if len(data) > start else (0, 1)
            stop = start + 1 + axes * width
            if len(data) < stop:
                raise CorruptError(f"{len(data) - start} bytes are no array of {axes} axes")
            shape = tuple(map(int, np.frombuffer(data[start + 1 : stop], f"<u{width}")))
            start = stop
        return start, np.dtype(dtype), shape


def _described(found: Any) -> list[tuple[str, str, int | None]]:
    """The columns of a shard's description."""
    if not isinstance(found, dict):
        raise CorruptError("the description of the columns is no JSON object")
    config = cast("dict[str, Any]", found)
    version, kind = config.get("version"), config.get("format")
    if kind != "mds":
        raise CorruptError(f"the description is of format {str(kind)[:40]!r}, not MDS")
    if version != 2:
        raise UnsupportedError(f"MDS of version {str(version)[:40]}, only version 2 is known")
    lists = [config.get(f"column_{one}") for one in ("names", "encodings", "sizes")]
    if not all(isinstance(one, list) for one in lists):
        raise CorruptError("the description names no columns")
    names, encodings, sizes = cast("list[list[Any]]", lists)
    if not len(names) == len(encodings) == len(sizes) or not 0 < len(names) <= _COLUMNS:
        raise CorruptError(f"{len(names)} columns with {len(encodings)} encodings and {len(sizes)} sizes")
    if not all(isinstance(one, str) for one in (*names, *encodings)) or len(set(names)) < len(names):
        raise CorruptError("two columns of one name, or names that are none")
    columns: list[tuple[str, str, int | None]] = []
    for name, encoding, size in zip(names, encodings, sizes, strict=True):
        try:
            expected = _decode(encoding)[1]
        except HeadraceError as error:
            error.reason = f"column {name[:200]!r}: {error.reason}"
            raise
        if size != expected or isinstance(size, bool):
            raise CorruptError(f"column {name[:200]!r} of encoding {encoding[:80]!r} cannot have the size {size!r:.40}")
        columns.append((name, encoding, expected))
    return columns


def _decode(encoding: str) -> tuple[Decode, int | None]:
    """What decodes a column of that encoding, and its size if all are equal."""
    if encoding in _FIXED:
        number = cast("Number", _FIXED[encoding])
        return number, np.dtype(number.dtype).itemsize
    if encoding in _OTHERS:
        return _OTHERS[encoding], None
    name, _, rest = encoding.partition(":")
    if name == "ndarray":
        return _array(encoding, rest)
    if encoding == "pkl":
        raise UnsupportedError("pickled, which could run any code", hint="write it as json, ndarray or bytes")
    raise UnsupportedError(f"of encoding {encoding[:80]!r}, which is not known", hint="write it as json or bytes")


def _array(encoding: str, rest: str) -> tuple[Decode, int | None]:
    """``ndarray``, ``ndarray:uint8``, ``ndarray:uint8:3,4``."""
    kind, _, axes = rest.partition(":")
    try:
        dtype = _NAMES[kind] if kind else None
        shape = tuple(int(one) for one in axes.split(",")) if axes else None
        if shape is not None and not all(0 < one < 1 << 63 for one in shape):
            raise ValueError
    except (KeyError, ValueError):
        raise CorruptError(f"of encoding {encoding[:80]!r}, which is none") from None
    if dtype is None or shape is None:
        return _Array(dtype, shape), None
    return _Array(dtype, shape), math.prod(shape) * np.dtype(dtype).itemsize
