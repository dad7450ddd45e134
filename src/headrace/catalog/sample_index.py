"""Where samples come from: the seam between lists of objects and the pipeline.

A `SampleIndex` answers "which objects make samples 17, 4 and 91?" from memory-mapped files; it never asks the store.
The pipeline and the loader know nothing else about snapshots, listings and tables. `open_source` makes one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.catalog.sample_abilities import Abilities
from headrace.store.protocol import Store

LIST_AGAIN = "open the dataset again, with refresh=True; for all processes here: headrace cache refresh PATH"
"""What to do where a shard is no longer as it was listed."""
Rows: TypeAlias = npt.NDArray[np.int64]


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
