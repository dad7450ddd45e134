"""What a kind of table file must tell: which rows lie where in it, and how bytes become Arrow columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from headrace.base.arrow import Expression, Schema, Table
from headrace.formats.shard_format import ShardBytes
from headrace.store.protocol import Buffer

Pieces: TypeAlias = "Sequence[tuple[int, Buffer]]"
"""Where each of the bytes of `Footer.ranges` begin, and these bytes."""


class OpenedTable(Protocol):
    """A file of this machine, open for as long as this is. One thread at a time."""

    def read(self, group: int, columns: Sequence[str]) -> Table:
        """As `Footer.read`, the bytes read here."""
        ...

    def close(self) -> None:
        """Give its descriptor back."""
        ...


class Footer(Protocol):
    """What one file says about itself. One thread."""

    @property
    def schema(self) -> Schema:
        """The file's columns."""
        ...

    @property
    def rows(self) -> list[int]:
        """Rows of each row group."""
        ...

    def ranges(self, group: int, columns: Sequence[str]) -> list[tuple[int, int]]:
        """Bytes [start, stop) that `read` wants, rising, neighbours joined. All lie within the file.

        Raises:
            CorruptError: they do not.
        """
        ...

    def read(self, group: int, columns: Sequence[str], pieces: Pieces) -> Table:
        """The rows of one group: at least those columns. Raises CorruptError, or what pyarrow raises."""
        ...

    def open(self, descriptor: int) -> OpenedTable:
        """The file itself, which the caller has open: opened once more. Raises what pyarrow raises, OSError."""
        ...

    def matching(self, where: Expression, known: Expression | None, schema: Schema) -> list[int]:
        """Groups that may hold rows for which `where` is true, judged by statistics.

        `known`: what is true of all of the file's rows. `schema`: of every column that `where` names.
        """
        ...


class TableKind(Protocol):
    """One kind of file. Immutable; any thread."""

    @property
    def name(self) -> str:
        """As in ``Dataset.open(…, format="parquet")``."""
        ...

    @property
    def version(self) -> int:
        """Raised whenever `footer` would keep something else."""
        ...

    @property
    def suffixes(self) -> tuple[str, ...]:
        """File name endings that announce it, with the dot, lower case."""
        ...

    def footer(self, file: ShardBytes) -> bytes:
        """What the index keeps of a file: enough for `parse`. Reads as little as it can.

        Raises:
            CorruptError: with the file's path and the reason. UnsupportedError: encrypted, a stream.
        """
        ...

    def parse(self, footer: Buffer, size: int) -> Footer:
        """What `footer` kept, of a file of `size` bytes. Raises CorruptError."""
        ...


def joined(ranges: Sequence[tuple[int, int]], gap: int) -> list[tuple[int, int]]:
    """Ranges in rising order, those less than `gap` bytes apart as one."""
    found: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if found and start <= found[-1][1] + gap:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        else:
            found.append((start, stop))
    return found
