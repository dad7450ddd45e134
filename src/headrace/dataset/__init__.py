"""Datasets: snapshots, samples, order, the loading pipeline, and adapters to frameworks.

Imported on first use (PEP 562): who only lists what is there need not wait for the pipeline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.face import face

if TYPE_CHECKING:
    from headrace.dataset.below import reads_below as reads_below
    from headrace.dataset.benchmark import Epoch as Epoch
    from headrace.dataset.benchmark import bench as bench
    from headrace.dataset.by_name import copy as copy
    from headrace.dataset.by_name import files_named as files_named
    from headrace.dataset.by_name import usage as usage
    from headrace.dataset.changes import Change as Change
    from headrace.dataset.changes import diff as diff
    from headrace.dataset.changes import verify as verify
    from headrace.dataset.dataset import Dataset as Dataset
    from headrace.dataset.in_cache import evict as evict
    from headrace.dataset.in_cache import evict_to as evict_to
    from headrace.dataset.in_cache import load as load
    from headrace.dataset.in_cache import refresh as refresh
    from headrace.dataset.inventory import Listing as Listing
    from headrace.dataset.inventory import listed_here as listed_here
    from headrace.dataset.ledger import Changed as Changed
    from headrace.dataset.ledger import Skip as Skip
    from headrace.dataset.ledger import Skipped as Skipped
    from headrace.dataset.loader import Loader as Loader
    from headrace.dataset.quality import Group as Group
    from headrace.dataset.quality import Report as Report
    from headrace.dataset.quality import quality_report as quality_report
    from headrace.dataset.recording import keep_index as keep_index
    from headrace.dataset.recording import take as take
    from headrace.dataset.snapshot import Snapshot as Snapshot
    from headrace.dataset.snapshot import list_snapshots as list_snapshots
    from headrace.dataset.snapshot import open_snapshot as open_snapshot
    from headrace.dataset.snapshot import take_snapshot as take_snapshot
    from headrace.dataset.stats import Stats as Stats

__all__ = [
    "Change", "Changed", "Dataset", "Epoch", "Group", "Listing", "Loader", "Report", "Skip", "Skipped", "Snapshot",
    "Stats", "bench", "copy", "diff", "evict", "evict_to", "files_named", "keep_index", "list_snapshots",
    "listed_here", "load", "open_snapshot", "quality_report", "reads_below", "refresh", "take", "take_snapshot",
    "usage", "verify",
]  # fmt: skip

__getattr__, __dir__ = face(
    __name__,
    {
        "below": ("reads_below",),
        "benchmark": ("Epoch", "bench"),
        "by_name": ("copy", "files_named", "usage"),
        "changes": ("Change", "diff", "verify"),
        "dataset": ("Dataset",),
        "in_cache": ("evict", "evict_to", "load", "refresh"),
        "inventory": ("Listing", "listed_here"),
        "ledger": ("Changed", "Skip", "Skipped"),
        "loader": ("Loader",),
        "quality": ("Group", "Report", "quality_report"),
        "recording": ("keep_index", "take"),
        "snapshot": ("Snapshot", "list_snapshots", "open_snapshot", "take_snapshot"),
        "stats": ("Stats",),
    },
)
