"""The node's local index of object versions: rows that any process maps, and reads without parsing the rest.

Two files: ``at`` (int64 LE [n+1], where each row starts) and ``rows``. A row is a header (`_HEADER`, 16 bytes) followed
by the key and the version, UTF-8, so one sample's bytes lie together and cost one or two cache lines, not one for each
column. ``sizes`` of millions of samples are read through the same mapping.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from headrace.base.arrow import Batch, Column, from_lengths, from_numbers, null, pa, pc, scalar, to_numbers
from headrace.base.errors import InputError
from headrace.catalog.external_sort import BATCH_ROWS
from headrace.catalog.index_cache import Shelf
from headrace.catalog.key_columns import buffers, column_pieces, lengths, stem_stops
from headrace.catalog.manifest import VERSIONED, Digest

FORMAT = 1
_HEADER = np.dtype(
    [("size", "<i8"), ("key_chars", "<u2"), ("stem_chars", "<u2"), ("key_bytes", "<u2"), ("stem_bytes", "<u2")]
)
_unpack = struct.Struct("<qHH").unpack_from
_MOST_KEY_BYTES = 65535  # 16 bits: S3 takes 1,024
_EMPTY = scalar("")
_RESIDENT = 96 << 20
"""Bytes that reading ``rows`` may add to this process's resident memory before it lets go of them."""


class ObjectsWriter:
    """Appends `VERSIONED` rows to a folder, in bounded memory. One thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.digest = Digest()
        self._rows: BinaryIO = (folder / "rows").open("wb")
        self._at: BinaryIO = (folder / "at").open("wb")
        self._at.write(np.zeros(1, "<i8").data)
        self._end = 0

    def add(self, batch: Batch) -> None:
        """Raises InputError for a key above 65,535 bytes."""
        self.digest.update(batch)
        for start in range(0, batch.num_rows, BATCH_ROWS):
            self._add(batch.slice(start, BATCH_ROWS))

    def _add(self, batch: Batch) -> None:
        key, size, version = batch.columns
        rows = pc.binary_join_element_wise(
            _headers(key, size),
            key.cast(pa.large_binary()),
            version.fill_null(_EMPTY).cast(pa.large_binary()),
            _EMPTY.cast(pa.large_binary()),
        )
        at, data = buffers(rows)
        self._rows.write(data[at[0] : at[-1]].data)
        self._at.write((at[1:] - at[0] + self._end).astype("<i8").data)
        self._end += int(at[-1] - at[0])

    def close(self) -> dict[str, Any]:
        """Finish the files; returns the meta data that `Objects` reads."""
        self._rows.close()
        self._at.close()
        return {
            "format": FORMAT,
            "objects": self.digest.objects,
            "bytes": self.digest.bytes,
            "digest": self.digest.hexdigest(),
        }


def _headers(key: Column, size: Column) -> Column:
    head = np.empty(len(key), _HEADER)
    key_bytes, stem_bytes = lengths(key), stem_stops(key)
    if len(key) and key_bytes.max() > _MOST_KEY_BYTES:
        raise InputError("key is longer than 65,535 bytes", path=key[int(key_bytes.argmax())].as_py()[:200])
    key_chars = to_numbers(pc.utf8_length(key))
    stem_chars = stem_bytes
    if key_chars.sum() != key_bytes.sum():
        starts = buffers(key)[0][:-1]
        stem_chars = to_numbers(pc.utf8_length(column_pieces(key.buffers()[2], starts, starts + stem_bytes)))
    head["size"], head["key_chars"], head["stem_chars"] = to_numbers(size), key_chars, stem_chars
    head["key_bytes"], head["stem_bytes"] = key_bytes, stem_bytes
    offsets = np.arange(len(key) + 1, dtype=np.int64) * _HEADER.itemsize
    return pa.Array.from_buffers(pa.large_binary(), len(key), [None, pa.py_buffer(offsets), pa.py_buffer(head)])


class Objects:
    """A mapped index. Any thread; survives fork. Rows are in key order, except where a table gave another."""

    def __init__(self, folder: Path, meta: dict[str, Any]) -> None:
        self.folder = folder
        self.digest: str = meta["digest"]
        self.objects: int = meta["objects"]
        self.bytes: int = meta["bytes"]
        self.at: npt.NDArray[np.int64] = np.memmap(folder / "at", dtype="<i8", mode="r").view(np.ndarray)
        self._rows = _map(folder / "rows")
        self._mapped = _mapped_bytes()

    def __len__(self) -> int:
        return self.objects

    def read(self, rows: npt.NDArray[np.int64]) -> list[tuple[str, int, int, str | None]]:
        """(key, characters of its stem, size, version) of each row."""
        starts, stops = self.at[rows].tolist(), self.at[rows + 1].tolist()
        data = self._rows
        found: list[tuple[str, int, int, str | None]] = []
        for start, stop in zip(starts, stops, strict=True):
            size, key_chars, stem_chars = _unpack(data, start)
            text = data[start + 16 : stop].decode()
            found.append((text[:key_chars], stem_chars, size, text[key_chars:] or None))
        self._release()
        return found

    def sizes(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Bytes of each row's object; -1 where unknown."""
        found = self._headers(self.at[rows])["size"].astype(np.int64)
        self._release()
        return found

    def keys(self, rows: npt.NDArray[np.int64]) -> Column:
        """The keys of `rows`, whatever their order, as one column; about 0.3 µs each."""
        data = np.frombuffer(self._rows, np.uint8)
        starts = self.at[rows]
        lengths = self._headers(starts)["key_bytes"].astype(np.int64)
        text = data[expand(starts + _HEADER.itemsize, lengths)]
        self._release()
        return from_lengths(text, lengths)

    def texts(self, rows: npt.NDArray[np.int64], *, stems: bool) -> list[str]:
        """The keys of `rows`, or their stems; 2,000 at once cost half of what they cost in `read`."""
        data = np.frombuffer(self._rows, np.uint8)
        starts = self.at[rows]
        lengths = self._headers(starts)["stem_bytes" if stems else "key_bytes"].astype(np.int64) + 1
        # With each the byte behind it, in whose place a mark is put; the last row's key may have none.
        text = data[np.minimum(expand(starts + _HEADER.itemsize, lengths), len(data) - 1)]
        text[np.cumsum(lengths) - 1] = 0
        self._release()
        found = text.tobytes().decode().split("\0")
        if len(found) != len(rows) + 1:  # a key with such a byte in it
            return [key[:stem] if stems else key for key, stem, _, _ in self.read(rows)]
        return found[:-1]

    def _headers(self, starts: npt.NDArray[np.int64]) -> npt.NDArray[np.void]:
        data = np.frombuffer(self._rows, np.uint8)
        return data[starts[:, None] + np.arange(_HEADER.itemsize)].view(_HEADER)[:, 0]

    def batches(self, columns: tuple[str, ...] = ("key", "size", "version")) -> Iterator[Batch]:
        """All rows, in order, as record batches of `BATCH_ROWS`: any of key, size, version, stem, suffix."""
        for start in range(0, self.objects, BATCH_ROWS):
            yield self._batch(start, min(start + BATCH_ROWS, self.objects), columns)

    def _batch(self, start: int, stop: int, columns: tuple[str, ...]) -> Batch:
        at = self.at[start : stop + 1]
        data = np.frombuffer(self._rows[int(at[0]) : int(at[-1])], np.uint8)
        at = at - at[0]
        head = data[at[:-1, None] + np.arange(_HEADER.itemsize)].view(_HEADER)[:, 0]
        key = at[:-1] + _HEADER.itemsize
        made = {
            "key": lambda: column_pieces(data, key, key + head["key_bytes"]),
            "stem": lambda: column_pieces(data, key, key + head["stem_bytes"]),
            "suffix": lambda: column_pieces(
                data, np.minimum(key + head["stem_bytes"] + 1, key + head["key_bytes"]), key + head["key_bytes"]
            ),
            "size": lambda: from_numbers(head["size"]),
            "version": lambda: _null_if_empty(column_pieces(data, key + head["key_bytes"], at[1:])),
        }
        self._release()
        return pa.record_batch([made[name]() for name in columns], names=list(columns))

    def _release(self) -> None:
        # Pages of a mapped file count as resident though the kernel may take them back at any time, and one random
        # read can map half a megabyte around it. Letting go of them is always safe: they stay in the page cache, and
        # come back at some microseconds each. Racing threads at worst let go twice.
        if len(self._rows) <= _RESIDENT:
            return
        mapped = _mapped_bytes()
        if mapped < self._mapped:
            self._mapped = mapped
        elif mapped - self._mapped > _RESIDENT:
            self._rows.madvise(mmap.MADV_DONTNEED)
            self._mapped = _mapped_bytes()


def expand(starts: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """``[s, s+1, … s+c-1]`` for every start and count, one after the other."""
    shift = np.repeat(starts - (np.cumsum(counts) - counts), counts)
    return np.arange(len(shift), dtype=np.int64) + shift


def _mapped_bytes() -> int:
    """Resident bytes of this process that belong to files (proc(5), statm); 0 where that is not known."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[2]) * mmap.PAGESIZE
    except OSError:
        return 0


def _map(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        empty = path.stat().st_size == 0  # an empty file cannot be mapped
        return mmap.mmap(-1, 1) if empty else mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)


def _null_if_empty(column: Column) -> Column:
    empty = pc.equal(column, _EMPTY)
    return pc.if_else(empty, null(column.type), column) if pc.any(empty).as_py() else column


def open_objects(shelf: Shelf, digest: str) -> Objects | None:
    """The index of that digest, if this node has it."""
    found = shelf.find(_name(digest))
    return Objects(*found) if found and found[1].get("format") == FORMAT else None


def publish_objects(shelf: Shelf, writer: ObjectsWriter) -> Objects:
    """Close `writer` and publish its folder under its digest. The folder is moved."""
    meta = writer.close()
    pa.default_memory_pool().release_unused()  # a trainer that just built an index should not keep its scratch memory
    return Objects(*shelf.publish(writer.folder, _name(meta["digest"]), meta))


def _name(digest: str) -> str:
    return f"objects{FORMAT}-{digest[:40]}"


def build_objects(shelf: Shelf, batches: Iterable[Batch]) -> Objects:
    """Write and publish the index of `VERSIONED` rows. Raises what iterating `batches` raises."""
    with shelf.workspace() as work:
        folder = work / "objects"
        folder.mkdir()
        writer = ObjectsWriter(folder)
        for batch in batches:
            writer.add(batch)
        return publish_objects(shelf, writer)


__all__ = ["VERSIONED", "Objects", "ObjectsWriter", "build_objects", "expand", "open_objects", "publish_objects"]
