"""What a target names, and the sample index over it. The work behind `headrace.dataset.source.open_source`."""

from __future__ import annotations

from headrace.base.errors import InputError, NotFoundError
from headrace.base.progress import Progress
from headrace.base.settings import Settings
from headrace.dataset import table
from headrace.dataset.group import check_kind, open_groups
from headrace.dataset.inventory import Place, find_place, recent_objects
from headrace.dataset.objects import Objects
from headrace.dataset.samples import ObjectSamples
from headrace.dataset.shelf import Shelf
from headrace.dataset.snapshot import is_snapshot_name, open_snapshot, snapshot_objects, snapshot_place
from headrace.namespace import Namespace


def open_samples(
    target: str, *, by: str, namespace: Namespace, pinned: bool, settings: Settings, progress: Progress
) -> ObjectSamples:
    """See `headrace.dataset.source.open_source`."""
    check_kind(by)
    if target.startswith("/") or "://" in target:
        if table.is_table(target):
            return table.open_table(target, by=by, namespace=namespace, settings=settings)
        place = find_place(target, namespace)
        objects = recent_objects(place, settings, progress)
        return _samples(place, objects, by, settings, pinned=False, reports=not pinned)
    if not is_snapshot_name(target):
        raise InputError(
            f"{target!r} is neither a path, a URL nor a snapshot",
            hint="/path/in/the/namespace, s3://bucket/prefix, file:///folder, or name@version",
        )
    snapshot = open_snapshot(target, namespace=namespace, settings=settings)
    objects = snapshot_objects(snapshot, settings, progress)
    return _samples(snapshot_place(snapshot, namespace), objects, by, settings, pinned=pinned, reports=not pinned)


def _samples(
    place: Place, objects: Objects, by: str, settings: Settings, *, pinned: bool, reports: bool
) -> ObjectSamples:
    groups = open_groups(Shelf.of(settings), objects, by)
    if not len(groups):
        raise NotFoundError(
            "none of its objects make a sample", path=place.path or place.url, hint=f"by={by!r}: is that meant?"
        )
    fingerprint = f"{by}-{objects.digest[:32]}"
    return ObjectSamples(
        place.store, place.prefix, objects, groups, fingerprint=fingerprint, pinned=pinned, reports=reports
    )
