"""Which objects make one sample, for ten million rows at a time.

=========== ================================================= =============================================
``by``      one sample is                                     ``__key__``
=========== ================================================= =============================================
``stem``    all objects with one stem                         the stem (``a/17``)
``object``  one object                                        the key below the root (``a/17.image``)
``class``   as ``stem``; extra ``class`` is the number of the  the stem
            first folder below the root
``folder``  as ``class``, but of the whole parent folder      the stem
=========== ================================================= =============================================

Stems and suffixes are defined in `catalog.key_columns`. A part is named by its suffix, ``data`` where there is none.
Samples are ordered by ``__key__`` in UTF-8 byte order, a sample's parts by key. Keys that end in ``/`` (folder markers)
are no samples; grouped by class, neither are objects outside any folder. Classes are numbered in byte order.

Files of a grouping: ``first`` (int64 [samples+1], where each sample starts; absent for ``object``), ``order`` (int64,
object rows in sample order; absent where that is the objects' own order), ``label`` (int32 [samples]).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.base.arrow import Batch, Column, from_flags, from_numbers, pa, pc, scalar, to_flags, to_numbers
from headrace.base.errors import InputError
from headrace.catalog.external_sort import is_sorted, sort_batches
from headrace.catalog.index_cache import Shelf
from headrace.catalog.key_columns import buffers, column_pieces, name_starts, top_stops
from headrace.catalog.object_index import Objects, expand

KINDS = ("stem", "object", "class", "folder")
FORMAT = 1
_LOG = logging.getLogger(__name__)
_BARE, _DATA = 1, 2  # names without a suffix; names with `data` for one
_EMPTY, _DATA_SUFFIX = scalar(""), scalar("data")


def check_kind(by: str) -> None:
    """Raises InputError for an unknown `by`."""
    if by not in KINDS:
        raise InputError(f"by={by!r} is not known", hint=f"one of {', '.join(KINDS)}")


class Groups:
    """A grouping of one `Objects`, mapped. `first` is None where each sample is one object."""

    def __init__(self, folder: Path, meta: dict[str, Any]) -> None:
        self.samples: int = meta["samples"]
        self.skipped: int = meta["skipped"]
        self.classes: list[str] | None = meta["classes"]
        self.first = _mapped(folder / "first", "<i8")
        self.order = _mapped(folder / "order", "<i8")
        self.label = _mapped(folder / "label", "<i4")

    def __len__(self) -> int:
        return self.samples


def _mapped(path: Path, kind: str) -> npt.NDArray[Any] | None:
    return np.memmap(path, dtype=kind, mode="r").view(np.ndarray) if path.exists() and path.stat().st_size else None


def open_groups(shelf: Shelf, objects: Objects, by: str, *, keep_order: bool = False) -> Groups:
    """The grouping of `objects`, built on this node if it was not yet.

    `keep_order`: samples in the order in which their first object comes, instead of by key.

    Raises:
        InputError: unknown `by`; two objects that would be the same part of one sample.
    """
    check_kind(by)
    name = f"groups{FORMAT}-{by}{'-kept' if keep_order else ''}-{objects.digest[:40]}"
    groups = Groups(*shelf.get(name, lambda folder: _build(objects, by, folder, keep_order=keep_order)))
    if groups.skipped and by in ("class", "folder"):
        _LOG.warning("%d objects lie in no class folder and are left out", groups.skipped)
    return groups


def _build(objects: Objects, by: str, folder: Path, *, keep_order: bool) -> dict[str, Any]:
    try:
        build = _Build(objects, by, folder)
        build.run(_named(objects, by))
    except _UnorderedError:
        # Stems do not always rise with keys: "a-1.png" < "a.png", but "a" < "a-1".
        build = _Build(objects, by, folder)
        build.run(sort_batches(_named(objects, by), "name", folder=str(folder)))
    return build.finish(keep_order=keep_order)


def _named(objects: Objects, by: str) -> Iterator[Batch]:
    """(name, row, kind) of all rows that can be samples; `name` is what groups and orders them."""
    row = 0
    for batch in objects.batches(("key", "stem") if by == "object" else ("stem", "suffix")):
        stem = batch["stem"]
        keep = pc.invert(pc.or_(pc.ends_with(stem, "/"), pc.equal(stem, _EMPTY)))
        if by in ("class", "folder"):
            keep = pc.and_(keep, from_flags(top_stops(stem) > 0))
        if by == "object":
            name, kind = batch["key"], np.zeros(len(stem), np.int8)
        else:
            name, kind = stem, _kinds(batch["suffix"])
        rows = from_numbers(np.arange(row, row + len(stem)))
        row += len(stem)
        yield pa.record_batch([name, rows, from_numbers(kind)], names=["name", "row", "kind"]).filter(keep)


def _kinds(suffix: Column) -> npt.NDArray[np.int8]:
    bare = to_flags(pc.equal(suffix, _EMPTY))
    data = to_flags(pc.equal(suffix, _DATA_SUFFIX))
    return (bare * _BARE + data * _DATA).astype(np.int8)


class _UnorderedError(Exception):
    pass


class _Build:
    """One pass over named rows; raises _UnorderedError when a name falls."""

    def __init__(self, objects: Objects, by: str, folder: Path) -> None:
        self.objects = objects
        self.by = by
        self.first = (folder / "first").open("wb") if by != "object" else None
        self.order = (folder / "order").open("wb")
        self.label = (folder / "label").open("wb") if by in ("class", "folder") else None
        self.folder = folder
        self.samples = 0
        self.rows = 0
        self.identity = True
        self.classes: dict[str, int] = {}
        self.bare: list[npt.NDArray[np.int64]] = []
        self.data: list[npt.NDArray[np.int64]] = []

    def run(self, batches: Iterable[Batch]) -> None:
        last: str | None = None
        try:
            for batch in batches:
                if batch.num_rows:
                    self._add(batch, last)
                    last = batch["name"][-1].as_py()
        finally:
            self._close()

    def _add(self, batch: Batch, last: str | None) -> None:
        name, rows = batch["name"], to_numbers(batch["row"])
        if (last is not None and name[0].as_py() < last) or not is_sorted(name):
            raise _UnorderedError
        self.identity &= bool((rows == np.arange(self.rows, self.rows + len(rows))).all())
        self.order.write(rows.astype("<i8").data)
        new = np.ones(len(rows), bool)
        if self.first is not None:
            new[0] = last is None or name[0].as_py() != last
            new[1:] = to_flags(pc.not_equal(name[1:], name[:-1]))
            starts = np.flatnonzero(new)
            self.first.write((starts + self.rows).astype("<i8").data)
            self._note_names(to_numbers(batch["kind"]), self.samples + np.cumsum(new) - 1)
            if self.label is not None and len(starts):
                self._write_labels(name.take(from_numbers(starts)))
        self.samples += int(new.sum())
        self.rows += len(rows)

    def _note_names(self, kind: npt.NDArray[np.int8], sample: npt.NDArray[np.int64]) -> None:
        if (kind == _BARE).any():
            self.bare.append(sample[kind == _BARE])
        if (kind == _DATA).any():
            self.data.append(sample[kind == _DATA])

    def _write_labels(self, name: Column) -> None:
        assert self.label is not None
        at, data = buffers(name)
        stops = top_stops(name) if self.by == "class" else name_starts(name) - 1
        folders = column_pieces(data, at[:-1], at[:-1] + stops).dictionary_encode()
        ids = [self.classes.setdefault(value, len(self.classes)) for value in folders.dictionary.to_pylist()]
        self.label.write(np.array(ids, "<i4")[to_numbers(folders.indices)].data)

    def _close(self) -> None:
        if self.first is not None:
            self.first.write(np.array([self.rows], "<i8").data)
        for file in (self.first, self.order, self.label):
            if file is not None:
                file.close()

    def finish(self, *, keep_order: bool) -> dict[str, Any]:
        self._refuse_clashes()
        classes = self._number_classes() if self.label is not None else None
        if keep_order and not self.identity:
            self._restore_order()
        elif self.identity:
            (self.folder / "order").unlink()
        return {"samples": self.samples, "classes": classes, "skipped": self.objects.objects - self.rows}

    def _refuse_clashes(self) -> None:
        if not self.bare or not self.data:
            return
        both = np.intersect1d(np.concatenate(self.bare), np.concatenate(self.data))
        if len(both):
            first, order = (np.fromfile(self.folder / name, "<i8") for name in ("first", "order"))
            key = self.objects.read(order[first[both[:1]]])[0][0]
            raise InputError(
                'an object without suffix and one with suffix "data" would be the same part',
                path=key,
                hint='rename one of them, or open the source with by="object"',
            )

    def _number_classes(self) -> list[str]:
        """Renumber labels, given in order of first sight, by byte order of names."""
        names = sorted(self.classes)
        number = np.empty(len(names), "<i4")
        for place, name in enumerate(names):
            number[self.classes[name]] = place
        path = self.folder / "label"
        number[np.fromfile(path, "<i4")].tofile(path)
        return names

    def _restore_order(self) -> None:
        """Samples by their first row; used for tables, whose order is the user's."""
        order = np.fromfile(self.folder / "order", "<i8")
        first = order if self.first is None else np.fromfile(self.folder / "first", "<i8")
        if self.first is None:
            np.sort(order).tofile(self.folder / "order")
            return
        counts = np.diff(first)
        by_row = np.argsort(order[first[:-1]], kind="stable")
        order[expand(first[:-1][by_row], counts[by_row])].tofile(self.folder / "order")
        np.concatenate([[0], np.cumsum(counts[by_row])]).astype("<i8").tofile(self.folder / "first")
        if self.label is not None:
            path = self.folder / "label"
            np.fromfile(path, "<i4")[by_row].tofile(path)
