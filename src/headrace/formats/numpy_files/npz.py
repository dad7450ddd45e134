"""``.npz`` files as `numpy.savez` writes them: arrays of one length; their rows of one number are one sample.

A zip archive of ``.npy`` files, found by Python's zipfile; what a row of each is, `npy` knows. In archives that are not
compressed, of arrays in C order, every row has its place; others are made anew as a whole (`in_order`). The archive's
CRC-32 is over whole arrays, so no row is verified by it where that is not needed.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast
from weakref import WeakKeyDictionary

from headrace.base.errors import CorruptError, HeadraceError, UnsupportedError
from headrace.catalog import KEY, OWN_KEY
from headrace.formats.numpy_files.c_order import MAGIC
from headrace.formats.numpy_files.npy import NPY, Header, RowDecoder, header_of
from headrace.formats.shard_format import Decode, Member, ShardBytes

_SUFFIX = ".npy"
_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")  # of a first member, and of an archive without any
_LOCAL = 30  # bytes of a member's own header, before its name
_MOST = 1024  # arrays
_PIECE = 1 << 20  # bytes the archive's list may have: 10 kB for a hundred arrays


class _Array(NamedTuple):
    name: str
    start: int
    """Where its ``.npy`` header begins in the archive."""
    header: Header
    preamble: bytes


@dataclass(frozen=True)
class Npz:
    """Rows of several arrays. A sample has one part for each array, its key is the row's number."""

    name: str = "npz"
    version: int = 1
    suffixes: tuple[str, ...] = (".npz",)

    def recognise(self, head: memoryview) -> bool:
        """Whether they start as a zip archive does."""
        return bytes(head[:4]) in _MAGIC

    def scan(self, shard: ShardBytes) -> Iterator[Member]:
        """Every row of every array. Reads the archive's list and the arrays' headers only.

        Raises:
            CorruptError: the archive or an array's header is damaged.
            UnsupportedError: encrypted, arrays of unequal length, members that are no arrays, and whatever `npy` does
                not read.
        """
        arrays = _arrays(shard)
        for number in range(arrays[0].header.shape[0] if arrays else 0):
            for name, start, header, _ in arrays:
                if name == "__shard__":  # headrace's own: what the shard is called
                    continue
                first = start + header.size + number * header.row
                yield Member(f"{number:08d}", OWN_KEY if name == KEY else name, first, first + header.row)

    def repacked(self, shard: ShardBytes) -> str | None:
        """See `headrace.formats.shard_format.Repacked`: compressed, or with an array in Fortran order. Raises as
        `scan`.
        """
        members = _listed(shard)
        packed = any(one.compress_type != zipfile.ZIP_STORED for one in members)
        return "npz" if packed or any(one.header.fortran for one in _stored(shard, members)) else None

    def decode(self, data: memoryview) -> memoryview:
        """A row's bytes; `decoder` makes arrays of them."""
        return data

    def preamble(self, shard: ShardBytes) -> bytes:
        """The arrays' headers by name, as JSON. Raises as `scan`."""
        return json.dumps({one.name: one.preamble.hex() for one in _arrays(shard)}).encode()

    def decoder(self, preamble: bytes) -> Mapping[str, Decode]:
        """For every array, what turns a row's bytes into one of its rows.

        Raises:
            CorruptError, UnsupportedError: as `scan`.
        """
        headers = cast("dict[str, str]", json.loads(preamble))
        found = {name: header_of(bytes.fromhex(one), None) for name, one in headers.items()}
        decoders = {name: RowDecoder(header.dtype, header.shape[1:]) for name, header in found.items()}
        return {OWN_KEY if name == KEY else name: decoder for name, decoder in decoders.items()}


NPZ = Npz()
_known: WeakKeyDictionary[ShardBytes, list[_Array]] = WeakKeyDictionary()


def _arrays(shard: ShardBytes) -> list[_Array]:
    """All arrays, of one length, in C order."""
    made = _made(shard) if bytes(shard.read(0, len(MAGIC))) == MAGIC else None
    found = _stored(shard, _listed(shard)) if made is None else made
    for one in found:
        header_of(one.preamble, shard.path)
        if one.header.shape[0] != found[0].header.shape[0]:
            raise UnsupportedError(
                f"{found[0].name!r} has {found[0].header.shape[0]} rows, {one.name!r} {one.header.shape[0]}",
                path=shard.path,
                hint="a sample is one row of each array; save what belongs to all samples elsewhere",
            )
    return found


def _made(shard: ShardBytes) -> list[_Array]:
    """As `in_order` has them."""
    at = len(MAGIC) + 4
    start = at + int.from_bytes(shard.read(len(MAGIC), at), "little")
    found = [(name, place, bytes.fromhex(one)) for name, place, one in json.loads(bytes(shard.read(at, start)))]
    return [_Array(name, start + place, header_of(one, shard.path), one) for name, place, one in found]


def _stored(shard: ShardBytes, members: list[zipfile.ZipInfo]) -> list[_Array]:
    """Of an archive that is not compressed; found once for a shard, which it takes several reads for."""
    found = _known.get(shard)
    if found is None:
        found = _known[shard] = [_array(shard, member) for member in members]
    return found


def _listed(shard: ShardBytes) -> list[zipfile.ZipInfo]:
    try:
        with zipfile.ZipFile(cast("Any", _File(shard))) as archive:
            members = archive.infolist()
    except HeadraceError:
        raise
    except Exception as error:  # whatever zipfile makes of hostile bytes
        raise CorruptError(
            f"at byte {shard.size}: the archive's list cannot be read: {type(error).__name__}: {error}",
            path=shard.path,
            hint="is it cut off?",
        ) from None
    if len(members) > _MOST:
        raise UnsupportedError(f"{len(members):,} arrays, {_MOST:,} are the most", path=shard.path)
    return members


def _array(shard: ShardBytes, member: zipfile.ZipInfo) -> _Array:
    """One array, after a look at its two headers."""
    at, name = member.header_offset, member.filename
    local = bytes(shard.read(at, at + _LOCAL)) if 0 <= at < shard.size else b""
    start = at + _LOCAL + int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little")
    stop = start + member.file_size
    if len(local) < _LOCAL or local[:4] != _MAGIC[0]:
        raise CorruptError(f"at byte {at}: the archive has no member {name[:200]!r} here", path=shard.path)
    if member.flag_bits & 1:
        raise UnsupportedError(f"{name[:200]!r} is encrypted", path=shard.path)
    if member.compress_type != zipfile.ZIP_STORED:
        raise UnsupportedError(
            f"{name[:200]!r} is compressed: its rows have no place of their own",
            path=shard.path,
            hint="save with np.savez, not np.savez_compressed",
        )
    if not name.endswith(_SUFFIX):
        raise UnsupportedError(f"{name[:200]!r} is no array", path=shard.path, hint="np.savez writes none such")
    if stop > shard.size:
        raise CorruptError(f"at byte {at}: {name[:200]!r} would end at byte {stop} of {shard.size}", path=shard.path)
    try:
        inner = _Inner(shard, start, stop)
        preamble = NPY.preamble(inner)
        header = header_of(preamble, None, any_order=True)
        if header.size + header.shape[0] * header.row != inner.size:
            raise CorruptError(
                f"{inner.size - header.size} bytes after the header, meant for {header.shape[0]} rows of {header.row}"
            )
    except HeadraceError as error:
        error.reason = f"at byte {start}: array {name[:200]!r}: {error.reason}"
        raise error.at(shard.path) from None
    return _Array(name.removesuffix(_SUFFIX), start, header, preamble)


class _Inner:
    """A member as a `ShardBytes`."""

    def __init__(self, shard: ShardBytes, start: int, stop: int) -> None:
        self.path, self.size = shard.path, stop - start
        self._shard, self._start = shard, start

    def read(self, start: int, stop: int) -> memoryview:
        """See `ShardBytes.read`."""
        return self._shard.read(self._start + start, self._start + min(stop, self.size))


class _File(io.RawIOBase):
    """A shard as the file that zipfile wants: it reads the end, and the list of members before it."""

    def __init__(self, shard: ShardBytes) -> None:
        self._shard, self._at = shard, 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._shard.size)[whence]
        if self._at < 0:
            raise OSError("before the start")
        return self._at

    def read(self, size: int = -1) -> bytes:
        stop = self._shard.size if size < 0 else min(self._at + size, self._shard.size)
        if stop - self._at > _PIECE:
            raise CorruptError(
                f"at byte {self._at}: the archive's list would have {stop - self._at} bytes, {_PIECE} are the most",
                path=self._shard.path,
            )
        data = bytes(self._shard.read(self._at, stop))
        self._at += len(data)
        return data
