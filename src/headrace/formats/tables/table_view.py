"""A view: which row groups of a set of files are read, and which bytes of each, for some columns and a `where`.

Made of the footers once on a node and kept on its shelf, as files: ``footers`` and ``footer_at`` (int64 [files+1]),
``groups`` (int64 [groups, 4]: file, number of the row group in it, rows, rows before it in its file), ``at`` (int64
[groups+1]: where its ranges begin), ``ranges`` (int64 [ranges, 2]: start, stop). Row groups without rows are left out.
"""

from __future__ import annotations

import base64
import mmap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.base.arrow import Schema, pa, pc
from headrace.base.errors import CorruptError, HeadraceError, InputError
from headrace.catalog import KEY, RESERVED_FIELDS, Shelf
from headrace.formats.tables.arrow_values import is_text
from headrace.formats.tables.footers import Job, read_footers
from headrace.formats.tables.partitions import Partitions, partitions_of
from headrace.formats.tables.row_filter import Where
from headrace.formats.tables.table_kind import Footer
from headrace.namespace.home import url_of

Ints = npt.NDArray[np.int64]
_VIEW = "view-2-"
"""On the shelf. The number is raised whenever a view of the same files and wishes would hold something else."""


class Wanted(NamedTuple):
    """What is to be read. `columns` None: all. `types`: of columns, by name, where the format has none of its own."""

    columns: tuple[str, ...] | None = None
    where: Where | None = None
    types: Mapping[str, str] | None = None


class View:
    """Any thread; survives fork. Memory: 64 bytes a row group, 16 bytes a range."""

    def __init__(self, folder: Path, meta: dict[str, Any]) -> None:
        self.schema: Schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(meta["schema"])))
        """Of all columns that are read or stand in folders, those of `where` included."""
        self.columns: tuple[str, ...] = tuple(meta["columns"])
        """Those of a sample, in their order; its own key among them, where that is read."""
        self.read: tuple[str, ...] = tuple(meta["read"])
        """Those read from files."""
        self.groups: Ints = np.fromfile(folder / "groups", "<i8").reshape(-1, 4)
        self.first: Ints = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.groups[:, 2])])
        self.at: Ints = np.fromfile(folder / "at", "<i8")
        self.ranges: Ints = np.fromfile(folder / "ranges", "<i8").reshape(-1, 2)
        self._footer_at: Ints = np.fromfile(folder / "footer_at", "<i8")
        self._footers = _map(folder / "footers")

    def footer(self, file: int) -> memoryview:
        """What the kind kept of that file."""
        return memoryview(self._footers)[int(self._footer_at[file]) : int(self._footer_at[file + 1])]

    def bytes_of(self) -> Ints:
        """Bytes read for each row group."""
        sizes = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.ranges[:, 1] - self.ranges[:, 0])])
        return np.diff(sizes[self.at])


def open_view(shelf: Shelf, job: Job, wanted: Wanted) -> tuple[View, Partitions]:
    """The view, made on this node if it is not there yet. By one process at a time.

    Raises:
        InputError: columns or a `where` that do not go with the files. CorruptError: damaged files, or files whose
        columns differ. Otherwise as `read_footers`.
    """
    if wanted.types is not None:
        hint = "columns=[…] says which are read; columns={…} is for JSON lines"
        raise InputError("tables have types already", path=url_of(job.store, job.prefix), hint=hint)
    names = [file.key[len(job.prefix) :] for file in job.files]
    partitions = partitions_of(names)
    text = (repr(wanted.columns), str(wanted.where))
    name = job.name(_VIEW, job.files, *text)
    return View(*shelf.get(name, lambda folder: _Build(shelf, job, wanted, partitions).to(folder))), partitions


class _Build:
    """One making of a view."""

    def __init__(self, shelf: Shelf, job: Job, wanted: Wanted, partitions: Partitions) -> None:
        self._job, self._wanted, self._partitions = job, wanted, partitions
        self._footers = read_footers(shelf, job)
        self._root = url_of(job.store, job.prefix)

    def to(self, folder: Path) -> dict[str, Any]:
        """Write the files; returns the meta data."""
        files, footers = self._job.files, self._footers
        first = self._parsed(0)
        whole = self._whole(first.schema)
        columns = self._columns(whole)
        where = self._wanted.where
        read = list(dict.fromkeys([*columns, *(where.columns if where else ())]))
        schema = pa.schema([whole.field(name) for name in read])
        if where is not None:
            where.check(schema, self._root)
        read = [name for name in read if name not in self._partitions.names]
        groups: list[tuple[int, int, int, int]] = []
        ranges: list[tuple[int, int]] = []
        at = [0]
        for number in range(len(files)):
            footer = first if number == 0 else self._parsed(number)
            self._compare(number, footer.schema, first.schema, read)
            before = np.cumsum([0, *footer.rows]).tolist()
            for group in self._kept(number, footer, schema):
                if footer.rows[group]:
                    groups.append((number, group, footer.rows[group], before[group]))
                    ranges += self._ranges(number, footer, group, read)
                    at.append(len(ranges))
        np.asarray(groups, "<i8").reshape(-1, 4).tofile(folder / "groups")
        np.asarray(at, "<i8").tofile(folder / "at")
        np.asarray(ranges, "<i8").reshape(-1, 2).tofile(folder / "ranges")
        np.cumsum([0, *map(len, footers)]).astype("<i8").tofile(folder / "footer_at")
        (folder / "footers").write_bytes(b"".join(footers))
        kept = base64.b64encode(schema.serialize().to_pybytes()).decode()
        return {"schema": kept, "columns": columns, "read": read}

    def _parsed(self, number: int) -> Footer:
        file = self._job.files[number]
        return self._at(number, lambda: self._job.kind.parse(self._footers[number], file.size))

    def _at(self, number: int, work: Any) -> Any:
        try:
            return work()
        except HeadraceError as error:
            raise error.at(url_of(self._job.store, self._job.files[number].key)) from None

    def _whole(self, schema: Schema) -> Schema:
        """The first file's columns and those of folders, which win where both have one."""
        names = self._partitions.names
        twice = [name for name in schema.names if schema.names.count(name) > 1]
        if twice:
            path = url_of(self._job.store, self._job.files[0].key)
            raise CorruptError(f"has several columns named {twice[0]!r}", path=path)
        own = [field.remove_metadata() for field in schema if field.name not in names]
        return pa.schema([*own, *(pa.field(name, self._partitions.type_of(name)) for name in names)])

    def _columns(self, whole: Schema) -> list[str]:
        wanted = self._wanted
        asked = [*(wanted.columns or ()), *(wanted.where.columns if wanted.where else ())]
        for name in asked:
            if name not in whole.names:
                raise InputError(f"has no column {name!r}", path=self._root, hint=f"it has {', '.join(whole.names)}")
        columns = list(dict.fromkeys(wanted.columns)) if wanted.columns is not None else list(whole.names)
        own_key = KEY in columns and is_text(whole.field(KEY).type)
        columns = [name for name in columns if name not in RESERVED_FIELDS or (name == KEY and own_key)]
        if not columns:
            raise InputError("no columns are wanted", path=self._root, hint="name some, or leave out `columns`")
        return columns

    def _compare(self, number: int, schema: Schema, first: Schema, read: Sequence[str]) -> None:
        """Raises CorruptError where a column that is read differs, or where all are, one is new."""
        if self._wanted.columns is None:
            read = list(dict.fromkeys([*read, *schema.names]))
        for name in read:
            here, there = (_type(one, name) for one in (schema, first))
            if here != there and name not in self._partitions.names:
                other = self._job.files[0].key[len(self._job.prefix) :]
                raise CorruptError(
                    f"its column {name!r} is {here}, where {other} has {there}",
                    path=url_of(self._job.store, self._job.files[number].key),
                    hint="columns=[…] of those that all files share, or write the files again with one schema",
                )

    def _kept(self, number: int, footer: Footer, schema: Schema) -> list[int]:
        where = self._wanted.where
        if where is None:
            return list(range(len(footer.rows)))
        known = None
        partitions = self._partitions
        folders = where.on(partitions.names)
        if folders is not None:
            one = pa.table({name: partitions.constant(number, name, 1) for name in folders.columns})
            found = folders.rows(one)
            if found is not None and not len(found):
                return []
        for name, value in zip(partitions.names, partitions.values[number], strict=True):
            if name in schema.names:
                field = pc.field(name)
                fact = field.is_null() if value is None else field == value
                known = fact if known is None else known & fact
        return footer.matching(where.expression(), known, schema)

    def _ranges(self, number: int, footer: Footer, group: int, read: Sequence[str]) -> list[tuple[int, int]]:
        return self._at(number, lambda: footer.ranges(group, read))


def _type(schema: Schema, name: str) -> str:
    return str(schema.field(name).type) if name in schema.names else "missing"


def _map(path: Path) -> bytes | mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
