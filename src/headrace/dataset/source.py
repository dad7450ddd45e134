"""Where samples come from: the seam between lists of objects and the pipeline.

A `SampleIndex` answers "which objects make samples 17, 4 and 91?" from memory-mapped files; it never asks the store.
The pipeline and the loader know nothing else about snapshots, listings and tables. `open_source` makes one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.base.errors import InputError
from headrace.base.progress import SILENT, Progress
from headrace.base.settings import Settings
from headrace.dataset.abilities import Abilities
from headrace.dataset.shards.format import Format
from headrace.namespace import Namespace
from headrace.store.protocol import Store

AGAIN = "open the dataset again, with refresh=True; for all processes here: headrace cache refresh PATH"
"""What to do where a shard is no longer as it was listed."""
Rows: TypeAlias = npt.NDArray[np.int64]
Columns: TypeAlias = "Sequence[str] | Mapping[str, str]"
"""Names of columns to be read, or types of columns by name."""


class Part(NamedTuple):
    """One object of a sample, or bytes [start, stop) of one. `key` is the store's; `size` (the object's, in bytes) -1
    and `version` None where nobody listed the object. All parts of a sample give `stop`, or none does.
    """

    name: str
    key: str
    size: int
    version: str | None
    start: int = 0
    stop: int | None = None


SampleSpec: TypeAlias = tuple[str, tuple[Part, ...], Mapping[str, Any]]
"""``__key__``, parts, and extra fields: ``{"class": 3}`` or a table's columns."""


class SampleIndex(Protocol):
    """A fixed list of samples. Any thread may call; a fork keeps using it."""

    @property
    def store(self) -> Store: ...

    @property
    def fingerprint(self) -> str:
        """Equal exactly where two indices hold the same samples in the same order; a loader's state checks it."""
        ...

    @property
    def pinned(self) -> bool:
        """Whether an object whose ETag is no longer `Part.version` must be refused (ChangedError)."""
        ...

    @property
    def classes(self) -> list[str] | None:
        """Class names by the number in ``extra["class"]``; None unless grouped by class."""
        ...

    @property
    def abilities(self) -> Abilities:
        """What it can do beside what is here."""
        ...

    def __len__(self) -> int: ...

    def specs(self, rows: Rows) -> list[SampleSpec]:
        """The samples at `rows` (int64, each in [0, len)), in that order; a few microseconds each.

        Raises IndexError for a row out of range.
        """
        ...

    def sizes(self, rows: Rows) -> Rows:
        """Bytes of each sample, all its parts together; parts of unknown size count as 0."""
        ...


@dataclass(frozen=True, slots=True)
class OpenOptions:
    """What is wanted of a target, in the words of `headrace.dataset.dataset.Dataset.open`.

    Args:
        by: what makes one sample; see `headrace.dataset.group`.
        format: ``"tar"``: the objects with that suffix are shards; ``"objects"``: every object is taken as it is; None:
            found by names, where `by` is ``"stem"`` (see `headrace.dataset.shards.choice`).
        columns: of tables, or types of JSON lines.
        where: of tables, which rows.
        on_change: what happens to an object that changed after its snapshot: ``"refuse"`` it, or ``"report"``:
            read the new bytes, and name it (see `headrace.dataset.loader.Loader.changed`). Of a folder it says whether
            objects that changed since they were listed are named; they are never refused. `SampleIndex.pinned` and
            `Abilities.reports` carry the answer to the loader. A shard that changed is always refused.

    Raises:
        InputError: no such `on_change`.
    """

    by: str = "stem"
    format: str | Format | None = None
    columns: Columns | None = None
    where: Sequence[Any] | None = None
    on_change: str = "refuse"

    def __post_init__(self) -> None:
        if self.on_change not in ("refuse", "report"):
            raise InputError(f"on_change={self.on_change!r} is not known", hint='"refuse" or "report"')

    @property
    def pinned(self) -> bool:
        """Whether objects that changed are refused; else they are reported."""
        return self.on_change == "refuse"


def open_source(
    target: str,
    options: OpenOptions = OpenOptions(),
    *,
    namespace: Namespace,
    settings: Settings,
    progress: Progress = SILENT,
    indexing: Progress | None = None,
) -> SampleIndex:
    """The samples of a snapshot, a folder, shards or tables.

    Args:
        target: a snapshot (``imagenet@v3``, ``imagenet@latest``), a namespace path or a URL (listed now, the listing
            is trusted for ``cache.ttl``), or a ``.csv`` or ``.parquet`` table with a ``path`` column.
        options: what is wanted of it.
        namespace: where paths and URLs, and the snapshot's own source, are resolved.
        settings: for the cache folder, its TTL and the home.
        progress: told while a listing or an index is made; silent when this node has it.
        indexing: told instead of `progress` while shards are indexed, or footers of tables read.

    Raises:
        InputError: bad name, grouping, format or table; shards among other objects.
        UnsupportedError: shards in compressions that are not read, or that are too large once decompressed.
        NotFoundError: no such snapshot, or no objects. ChangedError: a shard changed while it was indexed.
        CorruptError: a manifest that cannot be trusted, a damaged shard. Any store error.
    """
    from headrace.dataset import opening

    return opening.open_samples(
        target,
        options,
        namespace=namespace,
        settings=settings,
        progress=progress,
        indexing=progress if indexing is None else indexing,
    )
