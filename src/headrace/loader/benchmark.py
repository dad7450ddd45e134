"""How fast the loader delivers what is at a path, with a training step that does nothing. `hr.bench`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.loader.dataset import Dataset
from headrace.loader.pipeline.stats import Stats
from headrace.namespace import Namespace, PathLike, is_snapshot_text, tell_hidden


@dataclass(frozen=True, slots=True)
class Epoch:
    """One measured epoch: `number` from 1; `stats` as `Loader.stats`, of this epoch alone."""

    number: int
    stats: Stats

    def as_dict(self) -> dict[str, Any]:
        """For tables and JSON; bytes and seconds."""
        counts = {"cache_hits": self.stats.cache_hits, "cache_misses": self.stats.cache_misses}
        return {"id": self.number, **self.stats.as_dict(), **counts}


def bench(
    path: PathLike,
    by: str = "stem",
    *,
    format: str | None = None,  # noqa: A002  as `Dataset.open`
    batch: int = 64,
    epochs: int = 2,
    seconds: float = 10.0,
    prefetch: int | str = "512MB",
    namespace: Namespace | None = None,
) -> Iterator[Epoch]:
    """Measure shuffled batches of what ``Dataset.open`` makes of `path`, as `headrace bench` does; each epoch is given
    as it ends. The order is the same every time; the second epoch comes from the cache. One thread.

    Args:
        path: a path, a URL, or a snapshot ``NAME@VERSION``.
        by: what makes one sample, as for ``Dataset.open``.
        format: of what it is made, as for ``Dataset.open``.
        batch: samples in a batch.
        epochs: how many.
        seconds: the longest time for one of them.
        prefetch: bytes to read ahead.
        namespace: where paths are resolved; None: that of the settings.

    Raises:
        As ``Dataset.open``, and iterating a loader.
    """
    space = namespace or Namespace.load()
    where = os.fspath(path)
    if not is_snapshot_text(where):
        where = space.named(where)
        tell_hidden(where)
    samples = Dataset.open(where, by, space, format=format).shuffle(seed=0).batch(batch)
    return _measured(samples, epochs, seconds, prefetch)


def _measured(samples: Dataset, epochs: int, seconds: float, prefetch: int | str) -> Iterator[Epoch]:
    for number in range(1, epochs + 1):
        with samples.loader(prefetch=prefetch) as loader:
            until = time.monotonic() + seconds
            for _ in loader:
                if time.monotonic() > until:
                    break
            stats = loader.stats()
        yield Epoch(number, stats)
