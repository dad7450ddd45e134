"""What is wanted of a target that is opened: one value, which travels with an index that is opened again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from headrace.base.errors import InputError
from headrace.formats.shard_format import Format

Columns: TypeAlias = "Sequence[str] | Mapping[str, str]"
"""Names of columns to be read, or types of columns by name."""


@dataclass(frozen=True, slots=True)
class OpenOptions:
    """What is wanted of a target, in the words of `headrace.loader.dataset.Dataset.open`.

    Args:
        by: what makes one sample; see `headrace.catalog.sample_grouping`.
        format: ``"tar"``: the objects with that suffix are shards; ``"objects"``: every object is taken as it is; None:
            found by names, where `by` is ``"stem"`` (see `headrace.formats.detection`).
        columns: of tables, or types of JSON lines.
        where: of tables, which rows.
        on_change: what happens to an object that changed after its snapshot: ``"refuse"`` it, or ``"report"``:
            read the new bytes, and name it (see `headrace.loader.loader.Loader.changed`). Of a folder it says whether
            objects that changed since they were listed are named; they are never refused. `SampleIndex.pinned` and
            `Abilities.reports` carry the answer to the loader. A shard that changed is always refused.
        lazy: suffixes of parts that are not read, but stand in samples as `headrace.catalog.StoredObject`s.

    Raises:
        InputError: no such `on_change`, or `lazy` that is no list of suffixes.
    """

    by: str = "stem"
    format: str | Format | None = None
    columns: Columns | None = None
    where: Sequence[Any] | None = None
    on_change: str = "refuse"
    lazy: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.on_change not in ("refuse", "report"):
            raise InputError(f"on_change={self.on_change!r} is not known", hint='"refuse" or "report"')
        if not all(suffix and "." not in suffix for suffix in self.lazy):
            raise InputError(f"lazy={self.lazy!r}", hint='suffixes without a dot: lazy=("mp4", "wav")')

    @property
    def pinned(self) -> bool:
        """Whether objects that changed are refused; else they are reported."""
        return self.on_change == "refuse"
