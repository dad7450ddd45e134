"""How many batches an epoch has, for frameworks that end an epoch by that number."""

from __future__ import annotations

from headrace.loader.loader import Loader


def known_length(loader: Loader) -> int | None:
    """Batches of a whole epoch, on this rank; None: that is known when it has ended."""
    dataset = loader.dataset
    stages = [*dataset.stages, *dataset.after, *(stage for leaf in dataset.leaves for stage in leaf.stages)]
    if dataset.skip is not None or not all(stage.keeps_count for stage in stages):
        return None
    try:
        return len(loader)
    except TypeError:
        return None
