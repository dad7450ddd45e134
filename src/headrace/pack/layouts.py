"""The layouts that shards may have: their suffix, what a sample weighs in them, and how samples are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Protocol, cast

import numpy as np

from headrace.base.arrow import Table
from headrace.base.errors import BadSampleError, InputError
from headrace.catalog import SampleSpec
from headrace.pack.examples import RecordWriter, assembled, example, feature, feature_of_floats, feature_of_ints
from headrace.pack.members import encode, members, public, sizes_known, weigh
from headrace.pack.parquet import GROUP_BYTES, GROUP_ROWS, ParquetShard
from headrace.pack.schema import Field, Schema
from headrace.pack.tar import END, Places, TarWriter, Writable
from headrace.pack.values import npy, row_of, table_of

_RECORD = 64
"""Bytes that a record and its names take beside what they hold, roughly."""


class Sink(Protocol):
    """Writes one shard. One thread."""

    @property
    def size(self) -> int:
        """Bytes so far."""
        ...

    @property
    def members(self) -> int:
        """Members, records or rows so far."""
        ...

    @property
    def digest(self) -> str:
        """XXH3, 128 bits, of all bytes."""
        ...

    @property
    def places(self) -> Places | None:
        """Where members lie, where that is known of the writing."""
        ...

    def prepare(self, sample: Any) -> Any:
        """The sample as `put` takes it. Writes nothing. Raises BadSampleError."""
        ...

    def put(self, prepared: Any) -> None:
        """Write it. Raises OSError."""
        ...

    def put_table(self, table: Table) -> None:
        """Write rows of the schema's columns. Raises OSError, BadSampleError."""
        ...

    def finish(self) -> None:
        """Write what ends the shard. Raises OSError."""
        ...


@dataclass(frozen=True, slots=True)
class Layout:
    """One kind of shards."""

    name: str
    suffix: str
    format: str | None
    """The format whose index is written with the shards; None: its own footer is one."""
    end: int = 0
    """Bytes that every shard has at its end."""
    streams: bool = False
    """Whether a shard may be sent while it is written: it is only appended to, and what its index takes is known."""

    def weigh(self, spec: SampleSpec, payload: int, *, checked: bool) -> int:
        """See `members.weigh`; of records only roughly. Raises InputError."""
        if self.name == "webdataset":
            return weigh(spec, payload, checked=checked)
        sizes_known(spec)
        return payload + _RECORD + len(spec[0]) + sum(_RECORD // 2 + len(part.name) for part in spec[1])

    def stream(self, target: Writable) -> Sink:
        """What writes one shard to `target`, where the layout `streams`."""
        return _Tar(target)

    def sink(self, file: IO[bytes], schema: Schema | None) -> Sink:
        """What writes one shard to `file`."""
        if self.streams:
            return self.stream(file)
        if self.name == "tfrecord":
            return _Examples(file, schema)
        assert schema is not None
        return _Columns(file, schema)


LAYOUTS = {
    "webdataset": Layout("webdataset", ".tar", "tar", len(END), streams=True),
    "tfrecord": Layout("tfrecord", ".tfrecord", "tfrecord"),
    "parquet": Layout("parquet", ".parquet", None),
}


def layout_named(name: str) -> Layout:
    """Raises InputError."""
    if name not in LAYOUTS:
        raise InputError(f"layout {name!r} is not known", hint=f"one of {', '.join(LAYOUTS)}")
    return LAYOUTS[name]


def fields_of(sample: Any) -> dict[str, Any]:
    """What a record holds of a sample: ``__key__``, and every part that is none of headrace's own names.

    Arrays of more dimensions than one become ``.npy`` files, as in a tar. Raises BadSampleError.
    """
    if not isinstance(sample, Mapping) or not isinstance(cast("Any", sample).get("__key__"), str):
        raise BadSampleError(
            f"not a sample but {type(sample).__name__}", hint='the function returns a dict with "__key__" and parts'
        )
    found = cast("Mapping[Any, Any]", sample)
    key = found["__key__"]
    fields: dict[str, Any] = {"__key__": key}
    for name in public(found, key):
        value = found[name]
        if isinstance(value, np.ndarray) and cast("Any", value).ndim != 1:
            if cast("Any", value).ndim == 0:
                value = cast("Any", value)[()]
            elif value.dtype.hasobject:
                encode(key, name, cast("Any", value))  # says what is wrong with it
            else:
                name, value = (name if name.endswith("npy") else f"{name}.npy"), npy(cast("Any", value))
        fields[name] = value
    if len(fields) == 1:
        raise BadSampleError("has no parts", path=key, hint="a sample without parts leaves nothing to pack")
    return fields


class _Tar:
    def __init__(self, file: Writable) -> None:
        self._tar = TarWriter(file)

    @property
    def size(self) -> int:
        return self._tar.size

    @property
    def members(self) -> int:
        return self._tar.members

    @property
    def digest(self) -> str:
        return self._tar.digest

    @property
    def places(self) -> Places | None:
        return self._tar.places

    def prepare(self, sample: Any) -> Any:
        return members(sample)

    def put(self, prepared: Any) -> None:
        self._tar.add_all(prepared)

    def put_table(self, table: Table) -> None:
        raise InputError(f"a tar has no columns, such as {table.column_names[:1]}")

    def finish(self) -> None:
        self._tar.finish()


class _Examples:
    """With a schema a record holds its columns, the key among them, and nothing else."""

    def __init__(self, file: IO[bytes], schema: Schema | None) -> None:
        self._writer = RecordWriter(file)
        self._schema = schema

    @property
    def size(self) -> int:
        return self._writer.size

    @property
    def members(self) -> int:
        return self._writer.members

    @property
    def digest(self) -> str:
        return self._writer.digest

    @property
    def places(self) -> Places | None:
        return None

    def prepare(self, sample: Any) -> bytes:
        fields = fields_of(sample)
        try:
            return example(row_of(self._schema, fields) if self._schema else fields)
        except BadSampleError as error:
            raise error.at(fields["__key__"]) from None

    def put(self, prepared: Any) -> None:
        self._writer.add(prepared)

    def put_table(self, table: Table) -> None:
        assert self._schema is not None
        fields = sorted(self._schema.fields, key=lambda field: field.name.encode())
        names = [field.name.encode() for field in fields]
        columns = [_features(field, table.column(field.name).combine_chunks()) for field in fields]
        for row in zip(*columns, strict=True):
            pairs = zip(names, row, strict=True)
            self._writer.add(assembled((name, one) for name, one in pairs if one is not None))

    def finish(self) -> None:
        self._writer.finish()


class _Columns:
    """Rows wait until they make a row group's worth."""

    def __init__(self, file: IO[bytes], schema: Schema) -> None:
        self._schema = schema
        self._shard = ParquetShard(file, schema)
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0

    @property
    def size(self) -> int:
        return self._shard.size

    @property
    def members(self) -> int:
        return self._shard.members

    @property
    def digest(self) -> str:
        return self._shard.digest

    @property
    def places(self) -> Places | None:
        return None

    def prepare(self, sample: Any) -> dict[str, Any]:
        fields = fields_of(sample)
        names = {field.name for field in self._schema.fields}
        strange = next((name for name in fields if name not in names and self._schema.inferred), None)
        if strange is not None:
            raise BadSampleError(
                f"has a part {strange!r}, which the first samples have not",
                path=fields["__key__"],
                hint="say which columns there are: --columns",
            )
        try:
            return row_of(self._schema, fields)
        except BadSampleError as error:
            raise error.at(fields["__key__"]) from None

    def put(self, prepared: Any) -> None:
        self._rows.append(prepared)
        self._bytes += sum(
            value.nbytes if isinstance(value, (np.ndarray, np.generic)) else len(value)
            for value in prepared.values()
            if value is not None
        )
        if self._bytes >= GROUP_BYTES or len(self._rows) >= GROUP_ROWS:
            self._flush()

    def put_table(self, table: Table) -> None:
        self._shard.add(table)

    def finish(self) -> None:
        self._flush()
        self._shard.finish()

    def _flush(self) -> None:
        if self._rows:
            self._shard.add(table_of(self._schema, self._rows))
        self._rows, self._bytes = [], 0


def _features(field: Field, column: Any) -> Sequence[bytes | None]:
    """A Feature for each row; None where it is missing."""
    if field.kind in ("str", "bytes"):
        return [None if value is None else feature(field.name, value) for value in column.to_pylist()]
    if field.width is None and field.kind[0] == "f":
        values = np.array(column.fill_null(0).to_numpy(zero_copy_only=False))
        data = _narrowed(field, values).tobytes()
        made: list[bytes | None] = [feature_of_floats(data[at : at + 4]) for at in range(0, len(data), 4)]
    elif field.width is None:
        made = [feature_of_ints((0 if value is None else int(value),)) for value in _checked(field, column.to_pylist())]
    elif field.kind[0] == "f" and field.width and not column.null_count:
        values = column.flatten().to_numpy(zero_copy_only=False)
        data, step = _narrowed(field, values).tobytes(), 4 * field.width
        made = [feature_of_floats(data[at : at + step]) for at in range(0, len(data), step)]
    else:
        kind = field.dtype
        return [None if value is None else feature(field.name, np.array(value, kind)) for value in column.to_pylist()]
    if not column.null_count:
        return made
    return [one if there else None for one, there in zip(made, column.is_valid().to_pylist(), strict=True)]


def _narrowed(field: Field, values: Any) -> Any:
    with np.errstate(over="ignore"):
        floats = values.astype("<f4")
    if field.kind == "f64" and bool((np.isinf(floats) & ~np.isinf(values)).any()):
        raise BadSampleError(
            f"column {field.name!r} has numbers beyond 32 bits, and an Example has no others", hint="--format parquet"
        )
    return floats


def _checked(field: Field, values: list[Any]) -> list[Any]:
    if field.kind == "u64" and any(value is not None and value >= 1 << 63 for value in values):
        raise BadSampleError(f"column {field.name!r} has numbers that do not fit an int64", hint="--format parquet")
    return values
