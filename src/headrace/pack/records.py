"""Records of TFRecord and Parquet as the files they were: ``<__key__>.<part>``, as in `headrace.pack.members`.

Records without a key of their own (`headrace.catalog.record_keys`), which others made, are named by shard and number.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np

from headrace.base.arrow import pa, pq
from headrace.base.errors import CorruptError
from headrace.catalog import KEY, key_of
from headrace.formats import TFRECORD, example
from headrace.pack.archive import File, safe
from headrace.pack.members import encode

SUFFIXES = (".tfrecord", ".tfrecords", ".parquet")
_ROWS = 256  # rows decoded at a time


def files_of_records(file: Any, shard: str) -> Iterator[File]:
    """The parts of each record in `file` (readable, seekable). Holds some rows.

    Raises:
        CorruptError: what is there is no such file, holds no Examples, or a name leads out of the folder.
    """
    rows = _rows_of_parquet(file, shard) if shard.lower().endswith(".parquet") else _examples(file, shard)
    stem = shard.rpartition("/")[2].rpartition(".")[0]
    for number, row in enumerate(rows):
        key = key_of(row.pop(KEY, None), f"{stem}/{number:08d}")
        for name, value in row.items():
            if value is not None:
                named, data = encode(key, name, value)
                raw = bytes(data)
                yield File(safe(f"{key}.{named}", shard), len(raw), io.BytesIO(raw))


def _examples(file: Any, shard: str) -> Iterator[dict[str, Any]]:
    source = _Bytes(file, shard)
    for member in TFRECORD.scan(source):
        try:
            found = example(TFRECORD.decode(source.read(member.start, member.stop)))
        except CorruptError as error:
            raise error.at(f"{shard}: record {member.key}") from None
        yield {name: _value(name, value) for name, value in found.items()}


def _value(name: str, value: Any) -> Any:
    if name == KEY:
        return value
    if isinstance(value, list):
        texts = cast("list[bytes]", value)
        if len(texts) > 1:
            raise CorruptError(f"feature {name!r} holds {len(texts)} texts, which are no one file")
        return texts[0] if texts else None
    return value[0] if len(value) == 1 else value


def _rows_of_parquet(file: Any, shard: str) -> Iterator[dict[str, Any]]:
    try:
        batches = pq.ParquetFile(file).iter_batches(batch_size=_ROWS)
        for batch in batches:
            for row in batch.to_pylist():
                yield _typed(row, batch.schema)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptError(f"is no Parquet file, or a damaged one: {error}", path=shard) from error


def _typed(row: Mapping[str, Any], schema: Any) -> dict[str, Any]:
    typed: dict[str, Any] = {}
    for name, value in row.items():
        if name == KEY:
            pass
        elif isinstance(value, list):
            value = np.array(value, schema.field(name).type.value_type.to_pandas_dtype())
        elif isinstance(value, dict):
            raise CorruptError(f"column {name!r} has values inside values, which are no files")
        typed[name] = value
    return typed


class _Bytes:
    """A `headrace.formats.shard_format.ShardBytes` over a file; holds one read of 4 MiB or more."""

    def __init__(self, file: Any, path: str) -> None:
        self.path = path
        self.size: int = file.seek(0, 2)
        self._file = file
        self._from, self._data = 0, memoryview(b"")

    def read(self, start: int, stop: int) -> memoryview:
        """See `ShardBytes.read`."""
        stop = min(stop, self.size)
        if start < self._from or stop > self._from + len(self._data):
            self._file.seek(start)
            self._from, self._data = start, memoryview(self._file.read(max(stop - start, 4 << 20)))
        return self._data[start - self._from : max(start, stop) - self._from]
