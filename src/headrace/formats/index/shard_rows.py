"""The samples of shards as rows of a mapped file: ten million of them are not ten million Python objects.

Two files, as in `catalog.object_index`: ``at`` (int64 LE [n+1], where each row starts) and ``rows``. A row is the
number of its layout (uint32 LE), two int64 LE for each part (start and stop within the shard), and the key in UTF-8. A
layout is the names of a sample's parts in their order: a handful for a whole set, kept in the folder's meta data.
"""

from __future__ import annotations

import mmap
import struct
from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.base.arrow import Column
from headrace.base.errors import CorruptError
from headrace.catalog import column_pieces
from headrace.formats.index.key_hashes import hash_of, hashes_of
from headrace.formats.shard_format import Alike, Member

Layout = tuple[str, ...]
Found = tuple[str, Layout, tuple[int, ...]]
"""Key, names of the parts, and start and stop of each part one after the other."""
RESERVED = ("__key__", "__shard__")
_FLUSH = 1 << 20  # bytes of rows that wait to be written
_MOST_PARTS = 1024  # of one sample: more come of names that are no keys
_MOST_NAMES = 1 << 16  # names of parts, over all layouts, which are kept in memory
_RELEASE_ROWS = 1 << 11  # rows read from the mapped file, after which its pages are given back
_RESIDENT = 96 << 20  # bytes of a mapped file up to which its pages stay
_layout_of = struct.Struct("<I").unpack_from


class RowsWriter:
    """Groups members into samples and appends them to a folder. One thread; memory: 16 bytes a sample.

    `path`: the shard's URL, for errors.
    """

    def __init__(self, folder: Path, path: str) -> None:
        self._folder, self._path = folder, path
        self._layouts: dict[Layout, int] = {}
        self._names = 0
        self._hashes = array("Q")
        self._open()

    def _open(self) -> None:
        self._rows = (self._folder / "rows").open("wb")
        self._pending = bytearray()
        self._at = array("q", [0])
        self._written = 0

    def add(self, members: Iterable[Member | Alike]) -> None:
        """All members of the shard, in their order, or samples in their place.

        Raises:
            CorruptError: two parts of one name in one sample, a part with a reserved name, or samples so odd that the
                names are hardly what they were meant to be. Whatever `members` raises.
        """
        try:
            last: str | None = None
            parts: dict[str, tuple[int, int]] = {}
            for member in members:
                if isinstance(member, Alike):
                    if last is not None:
                        self._flush_sample(last, parts)
                    last, parts = None, {}
                    self._flush_alike(member)
                    continue
                if member.key != last:
                    if last is not None:
                        self._flush_sample(last, parts)
                    last, parts = member.key, {}
                self._put(parts, member)
            if last is not None:
                self._flush_sample(last, parts)
            self._finish()
            hashes = np.sort(np.frombuffer(self._hashes, np.uint64))  # not np.unique: that imports numpy.ma first
            if (hashes[1:] == hashes[:-1]).any():
                self._gather()
        finally:
            self._rows.close()

    def meta(self) -> dict[str, Any]:
        """What `Rows` needs besides the files."""
        return {"samples": len(self._at) - 1, "layouts": [list(layout) for layout in self._layouts]}

    def _put(self, parts: dict[str, tuple[int, int]], member: Member) -> None:
        key, name, start, stop = member
        if name in parts:
            raise self._bad(start, key, f"has two parts {name!r}", "names must differ; was one of them appended later?")
        if name in RESERVED:
            raise self._bad(start, key, f"has a part {name!r}, which is headrace's own name", "rename it")
        if len(parts) >= _MOST_PARTS:
            raise self._bad(start, key, f"has more than {_MOST_PARTS} parts", "a key ends at the first dot of the name")
        parts[name] = (start, stop)

    def _bad(self, start: int, key: str, reason: str, hint: str) -> CorruptError:
        return CorruptError(f"at byte {start:,}: sample {key[:200]!r} {reason}", path=self._path, hint=hint)

    def _flush_sample(self, key: str, parts: dict[str, tuple[int, int]]) -> None:
        layout = self._layout(key, tuple(parts), parts)
        text = key.encode()
        bounds = [bound for part in parts.values() for bound in part]
        self._pending += struct.pack(f"<I{len(bounds)}q", layout, *bounds) + text
        self._hashes.append(hash_of(text))
        self._at.append(self._written + len(self._pending))
        if len(self._pending) >= _FLUSH:
            self._drain()

    def _layout(self, key: str, names: Layout, parts: Mapping[str, tuple[int, int]]) -> int:
        """The number of a sample's layout."""
        layout = self._layouts.get(names)
        if layout is None:
            self._names += len(names)
            if self._names > _MOST_NAMES:
                at = parts[names[0]][0]
                raise self._bad(at, key, "is one kind of sample too many", "a key ends at the first dot of the name")
            layout = self._layouts[names] = len(self._layouts)
        return layout

    def _flush_alike(self, samples: Alike) -> None:
        """As `_flush_sample`, of many at once."""
        keys, bounds = samples.keys, samples.bounds.astype("<i8", copy=False)
        key: str = keys[0].decode()
        first: dict[str, tuple[int, int]] = {}
        for place, name in enumerate(samples.names):  # what is wrong with one is wrong with all
            start, stop = bounds[0, 2 * place : 2 * place + 2].tolist()
            self._put(first, Member(key, name, start, stop))
        layout = np.full(len(keys), self._layout(key, samples.names, first), "<u4")
        sizes = np.char.str_len(keys)
        texts = keys[:, None].view(np.uint8)
        heads = np.concatenate([layout[:, None].view(np.uint8), bounds.view(np.uint8)], axis=1)
        rows = np.concatenate([heads, texts], axis=1)
        ends = heads.shape[1] + sizes
        self._at.frombytes((self._written + len(self._pending) + ends.cumsum()).tobytes())
        whole = bool((ends == rows.shape[1]).all())
        self._pending += rows.data if whole else rows[np.arange(rows.shape[1]) < ends[:, None]].data
        self._hashes.frombytes(hashes_of(keys).tobytes())
        if len(self._pending) >= _FLUSH:
            self._drain()

    def _drain(self) -> None:
        self._rows.write(self._pending)
        self._written += len(self._pending)
        self._pending = bytearray()

    def _finish(self) -> None:
        self._drain()
        self._rows.close()
        np.frombuffer(self._at, np.int64).astype("<i8").tofile(self._folder / "at")

    def _gather(self) -> None:
        """Members of one key do not all lie together (a tar of an unsorted folder): once more, by key."""
        samples: dict[str, dict[str, tuple[int, int]]] = {}
        rows = Rows(self._folder, self.meta())
        for first in range(0, len(rows), _RELEASE_ROWS):
            chunk = np.arange(first, min(first + _RELEASE_ROWS, len(rows)), dtype=np.int64)
            for key, names, bounds in rows.read(chunk):
                parts = samples.setdefault(key, {})
                for place, name in enumerate(names):
                    self._put(parts, Member(key, name, bounds[2 * place], bounds[2 * place + 1]))
        rows.close()
        self._layouts, self._names, self._hashes = {}, 0, array("Q")
        self._open()
        for key, parts in samples.items():
            self._flush_sample(key, parts)
        self._finish()


def join_rows(folder: Path, shards: Iterable[tuple[Path, dict[str, Any]]]) -> dict[str, Any]:
    """The rows of all `shards`, one after the other, as one folder with the file ``first`` (int64 [shards+1], the row
    at which each shard starts). Reads one shard's rows at a time.
    """
    layouts: dict[Layout, int] = {}
    first, end = [0], 0
    with (folder / "rows").open("wb") as rows, (folder / "at").open("wb") as at:
        at.write(np.zeros(1, "<i8").tobytes())
        for source, meta in shards:
            numbers = [layouts.setdefault(tuple(layout), len(layouts)) for layout in meta["layouts"]]
            data, bounds = np.fromfile(source / "rows", np.uint8), np.fromfile(source / "at", "<i8")
            if numbers != list(range(len(numbers))):
                here = bounds[:-1, None] + np.arange(4)
                data[here] = np.array(numbers, "<u4")[data[here].view("<u4")[:, 0]][:, None].view(np.uint8)
            rows.write(data.data)
            at.write((bounds[1:] + end).astype("<i8").tobytes())
            end += int(bounds[-1])
            first.append(first[-1] + len(bounds) - 1)
    np.array(first, "<i8").tofile(folder / "first")
    return {"samples": first[-1], "layouts": [list(layout) for layout in layouts]}


class Rows:
    """Mapped rows. Any thread; survives fork."""

    def __init__(self, folder: Path, meta: dict[str, Any]) -> None:
        self._layouts: list[Layout] = [tuple(layout) for layout in meta["layouts"]]
        self._bounds = [struct.Struct(f"<{2 * len(layout)}q").unpack_from for layout in self._layouts]
        self._at: npt.NDArray[np.int64] = np.memmap(folder / "at", dtype="<i8", mode="r").view(np.ndarray)
        with (folder / "rows").open("rb") as file:
            empty = len(self._at) == 1  # an empty file cannot be mapped
            self._rows = mmap.mmap(-1, 1) if empty else mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        self._touched = 0

    def __len__(self) -> int:
        return len(self._at) - 1

    def read(self, rows: npt.NDArray[np.int64]) -> list[Found]:
        """The samples at `rows`, which must be in [0, len); 2 µs each."""
        data, layouts, unpack = self._rows, self._layouts, self._bounds
        found: list[Found] = []
        for start, stop in zip(self._at[rows].tolist(), self._at[rows + 1].tolist(), strict=True):
            (layout,) = _layout_of(data, start)
            bounds = unpack[layout](data, start + 4)
            found.append((data[start + 4 + 8 * len(bounds) : stop].decode(), layouts[layout], bounds))
        self._release(len(rows))
        return found

    def bounds(self, rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(int64 [n], parts of each row; int64 [m, 2], start and stop of every part, row after row). Well below a
        microsecond each.
        """
        even = self._even(rows) if len(self._layouts) == 1 else None
        if even is not None:
            count = len(self._layouts[0])
            bounds = np.ascontiguousarray(even[:, 4 : 4 + 16 * count]).view("<i8").reshape(-1, 2)
            self._release(len(rows))
            return np.full(len(rows), count, np.int64), bounds
        data = np.frombuffer(self._rows, np.uint8)
        at = self._at[rows]
        counts = np.array([len(layout) for layout in self._layouts], np.int64)
        parts = counts[data[at[:, None] + np.arange(4)].view("<u4")[:, 0]]
        first = np.cumsum(parts) - parts
        place = np.arange(int(parts.sum())) - np.repeat(first, parts)
        where = np.repeat(at + 4, parts) + 16 * place
        found = data[where[:, None] + np.arange(16)].view("<i8")
        self._release(len(rows))
        return parts, found

    def _even(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8] | None:
        """The bytes of these rows, a view [n, bytes], if they lie one behind the other and are of one length."""
        if not len(rows) or rows[-1] - rows[0] != len(rows) - 1 or (len(rows) > 1 and (np.diff(rows) != 1).any()):
            return None
        at = self._at[int(rows[0]) : int(rows[-1]) + 2]
        sizes = np.diff(at)
        if (sizes != sizes[0]).any():
            return None
        return np.frombuffer(self._rows, np.uint8)[int(at[0]) : int(at[-1])].reshape(len(rows), -1)

    def names(self, rows: npt.NDArray[np.int64]) -> list[tuple[str, Layout]]:
        """Key and names of the parts of each row; a microsecond each."""
        data, layouts = self._rows, self._layouts
        found: list[tuple[str, Layout]] = []
        for start, stop in zip(self._at[rows].tolist(), self._at[rows + 1].tolist(), strict=True):
            layout = layouts[_layout_of(data, start)[0]]
            found.append((data[start + 4 + 16 * len(layout) : stop].decode(), layout))
        return found

    def keys_at(self, rows: npt.NDArray[np.int64]) -> tuple[list[str], Layout | None]:
        """The keys of rows, and the layout they share, if they do; half a microsecond each, and much less for rows in
        their order whose keys are of one length, as numbers are.
        """
        even = self._even(rows)
        if even is not None:
            number = int(even[0, :4].view("<u4")[0])
            keys = _texts(even[:, 4 + 16 * len(self._layouts[number]) :])
            if keys is not None and (len(self._layouts) == 1 or (even[:, :4] == even[0, :4]).all()):
                return keys, self._layouts[number]
        data = self._rows
        starts = self._at[rows].tolist()
        number = _layout_of(data, starts[0])[0]
        if len(self._layouts) > 1 and any(_layout_of(data, start)[0] != number for start in starts):
            return [], None
        head = 4 + 16 * len(self._layouts[number])
        stops = self._at[rows + 1].tolist()
        return [data[start + head : stop].decode() for start, stop in zip(starts, stops, strict=True)], self._layouts[
            number
        ]

    def keys(self, first: int, stop: int) -> Column:
        """The keys of rows [first, stop), as one column; well below a microsecond each."""
        at = self._at[first : stop + 1]
        data = np.frombuffer(self._rows[int(at[0]) : int(at[-1])], np.uint8)
        at = at - at[0]
        layout = data[at[:-1, None] + np.arange(4)].view("<u4")[:, 0]
        head = np.array([4 + 16 * len(layout) for layout in self._layouts] or [4], np.int64)
        self._release(stop - first)
        return column_pieces(data, at[:-1] + head[layout], at[1:])

    def close(self) -> None:
        """Unmap. For an index that is only a step on the way."""
        self._rows.close()

    def _release(self, rows: int) -> None:
        # See `headrace.catalog.object_index.Objects`: one random read can map 64 kB around it, and that counts as ours.
        self._touched += rows
        if self._touched > _RELEASE_ROWS and len(self._rows) > _RESIDENT:
            self._touched = 0
            self._rows.madvise(mmap.MADV_DONTNEED)


def _texts(rows: npt.NDArray[np.uint8]) -> list[str] | None:
    """Each row as text; None where one byte is no character of its own. A fraction of the time of one by one."""
    count, size = rows.shape
    ended = np.zeros((count, size + 1), np.uint8)
    ended[:, :size] = rows
    text = ended.tobytes()
    if not text.isascii() or text.count(0) != count:
        return None
    return text.decode("ascii").split("\0")[:-1]
