"""The manifest: a Parquet file with one row an object version, ascending by key in UTF-8 byte order.

Columns (`MANIFEST_SCHEMA`): ``key`` below the snapshot's source, ``size`` in bytes, ``etag`` without quotes or null,
``version_id`` or null, ``mtime_us`` in microseconds since the epoch. File metadata carries
``headrace.manifest`` = the format's version. Keys are front-coded (DELTA_BYTE_ARRAY) and zstd-compressed, pages carry
checksums. Sources: the Parquet format specification, github.com/apache/parquet-format, Encodings.md.

Its *digest* does not depend on how rows are batched or encoded: SHA-256 over the SHA-256 of each of these streams, in
this order: lengths of keys (int64 LE), keys, sizes, lengths of versions, versions; where a version is the ETag, or
``<size>-<mtime_us>`` without one (`headrace.store.protocol.ObjectInfo.version`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np

from headrace.base.arrow import Batch, Column, from_numbers, from_texts, pa, pc, pq, scalar, to_numbers
from headrace.base.errors import CorruptError
from headrace.base.progress import SILENT, Progress
from headrace.catalog.external_sort import is_sorted
from headrace.catalog.key_columns import buffers, lengths, strings
from headrace.store.protocol import ObjectInfo

FORMAT = 1
ROW_GROUP = 1 << 16  # rows, which are decoded together
_EMPTY, _DASH = scalar(""), scalar("-")
MANIFEST_SCHEMA = pa.schema(
    [
        pa.field("key", pa.large_string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("etag", pa.string()),
        pa.field("version_id", pa.string()),
        pa.field("mtime_us", pa.int64()),
    ]
)
VERSIONED = pa.schema(
    [MANIFEST_SCHEMA.field("key"), MANIFEST_SCHEMA.field("size"), pa.field("version", pa.large_string())]
)
"""What pinning needs of a row: key, size and the identity of the bytes."""


def page_batch(page: Sequence[ObjectInfo], prefix: str) -> Batch:
    """A page of a listing (at least one object) as manifest rows; keys lose `prefix`.

    Raises InputError for a key that is no UTF-8.
    """
    cut, count = len(prefix), len(page)
    of: Any = ObjectInfo._make(zip(*page, strict=True))  # a tuple of each field
    return pa.record_batch(
        [
            strings([key[cut:] for key in of.key], "key"),
            from_numbers(np.fromiter(of.size, np.int64, count)),
            from_texts(of.etag).cast(pa.string()),
            from_texts(of.version_id).cast(pa.string()) if any(of.version_id) else pa.nulls(count, pa.string()),
            from_numbers(np.fromiter(of.mtime_us, np.int64, count)),
        ],
        schema=MANIFEST_SCHEMA,
    )


def versioned(batch: Batch) -> Batch:
    """Manifest rows as `VERSIONED` rows."""
    etag = batch["etag"].cast(pa.large_string())
    if etag.null_count:
        size, mtime = (batch[name].cast(pa.large_string()) for name in ("size", "mtime_us"))
        etag = pc.coalesce(etag, pc.binary_join_element_wise(size, mtime, _DASH))
    return pa.record_batch([batch["key"], batch["size"], etag], schema=VERSIONED)


class Digest:
    """Running digest of `VERSIONED` rows; also counts objects and bytes. One thread."""

    def __init__(self) -> None:
        self.objects = 0
        self.bytes = 0
        self._streams = [hashlib.sha256() for _ in range(5)]

    def update(self, batch: Batch) -> None:
        key, size, version = batch.columns
        sizes = to_numbers(size)
        self.objects += len(key)
        self.bytes += int(np.maximum(sizes, 0).sum())
        version = version.fill_null(_EMPTY)
        for stream, data in zip(
            self._streams, (lengths(key), _bytes(key), sizes, lengths(version), _bytes(version)), strict=True
        ):
            stream.update(np.ascontiguousarray(data).data)

    def hexdigest(self) -> str:
        return hashlib.sha256(b"".join(stream.digest() for stream in self._streams)).hexdigest()


def _bytes(column: Column) -> np.ndarray:
    at, data = buffers(column)
    return data[at[0] : at[-1]]


class ManifestWriter:
    """Writes a manifest file in bounded memory. A context manager; the file is complete after a clean exit, and the
    same however its rows are batched.
    """

    def __init__(self, path: str) -> None:
        self._writer = pq.ParquetWriter(
            path,
            MANIFEST_SCHEMA.with_metadata({"headrace.manifest": str(FORMAT)}),
            compression="zstd",
            compression_level=3,
            use_dictionary=["version_id"],
            column_encoding={
                "key": "DELTA_BYTE_ARRAY",
                "size": "DELTA_BINARY_PACKED",
                "mtime_us": "DELTA_BINARY_PACKED",
                "etag": "DELTA_LENGTH_BYTE_ARRAY",
            },
            write_page_checksum=True,
            write_statistics=["key"],
        )
        self._held: list[Batch] = []
        self._rows = 0

    def add(self, batch: Batch) -> None:
        """Append rows; keys must not fall from call to call."""
        self._held.append(batch)
        self._rows += batch.num_rows
        if self._rows >= ROW_GROUP:
            self._write(self._rows - self._rows % ROW_GROUP)

    def _write(self, count: int) -> None:
        table = pa.Table.from_batches(self._held, MANIFEST_SCHEMA).combine_chunks()
        self._writer.write_table(table.slice(0, count), row_group_size=ROW_GROUP)
        self._held, self._rows = table.slice(count).to_batches(), self._rows - count

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._rows:
            self._write(self._rows)
        self._writer.close()


def read_manifest(path: str, where: str, progress: Progress = SILENT) -> Iterator[Batch]:
    """The rows of a manifest file (columns as `MANIFEST_SCHEMA`), a row group at a time.

    `where` is the manifest's URL, for errors.

    Raises:
        CorruptError: not Parquet, a page's checksum is wrong, another format, unknown version, keys out of order.
    """
    hint = "the manifest was damaged or written by a newer headrace; take the snapshot again, or upgrade"
    last: str | None = None
    try:
        with pq.ParquetFile(path, memory_map=True, page_checksum_verification=True) as file:
            _check_format(file, where, hint)
            progress.total(file.metadata.num_rows)
            for batch in file.iter_batches(batch_size=ROW_GROUP, columns=MANIFEST_SCHEMA.names):
                batch = batch.cast(MANIFEST_SCHEMA)
                if batch.num_rows == 0:
                    continue
                if not is_sorted(batch["key"]) or (last is not None and last > batch["key"][0].as_py()):
                    raise CorruptError("manifest keys are out of order", path=where, hint=hint)
                last = batch["key"][-1].as_py()
                yield batch
                progress.advance(batch.num_rows)
    except (pa.ArrowException, OSError, KeyError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CorruptError(f"manifest cannot be read: {reason}", path=where, hint=hint) from error


def _check_format(file: Any, where: str, hint: str) -> None:
    version = (file.metadata.metadata or {}).get(b"headrace.manifest")
    if version is None:
        raise CorruptError("is not a headrace manifest", path=where, hint=hint)
    if version != str(FORMAT).encode():
        raise CorruptError(f"manifest format {version.decode(errors='replace')} is not known", path=where, hint=hint)
    missing = [name for name in MANIFEST_SCHEMA.names if name not in file.schema_arrow.names]
    if missing:
        raise CorruptError(f"manifest lacks column {missing[0]!r}", path=where, hint=hint)
