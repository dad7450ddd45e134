"""headrace as a user writes it: open a URL, shuffle, batch, loader. It lists the prefix itself when it opens it.

Settings come in by environment, as for any user: `HEADRACE_CACHE_SIZE` 0 unless the row is about the cache, and
`HEADRACE_FETCH_CONNECTIONS` raised where the peers' thread counts are raised too.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace import Dataset  # here, so that imports are counted for nobody
from headrace.fetch import default_fetcher
from job import Job
from meter import Batch


def batches(job: Job) -> Iterator[Batch]:
    if job.options.get("insist"):  # what `headrace load` does: everything is kept
        default_fetcher().insist()
    dataset = Dataset.open(str(job.options.get("target", job.url))).shuffle(seed=job.seed)
    if job.mode == "steady":
        dataset = dataset.repeat()
    loader = dataset.batch(job.batch).loader(prefetch=str(job.options.get("prefetch", "512MB")))
    for batch in loader:
        yield len(batch["__key__"]), [part for name in batch if name != "__key__" for part in batch[name]]


def notes(job: Job) -> str:
    """How much of an epoch that fills the cache was kept; waits until it is written."""
    if job.mode != "epoch" or default_fetcher().cache is None:
        return ""
    default_fetcher().settle(60.0)
    counters = default_fetcher().stats().counters
    kept = counters.get("cache.fill", 0.0)
    return f"kept {kept / max(kept + counters.get('cache.fill_shed', 0.0), 1.0):.0%} of the objects"
