"""What a target names, and the sample index over it. The work behind `headrace.dataset.source.open_source`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from headrace.base.errors import ChangedError, InputError, NotFoundError
from headrace.base.progress import Progress
from headrace.base.settings import Settings
from headrace.dataset import table
from headrace.dataset.group import check_kind, open_groups
from headrace.dataset.inventory import Place, find_place, recent_objects
from headrace.dataset.objects import Objects
from headrace.dataset.samples import ObjectSamples
from headrace.dataset.shards.adopt import BESIDE, Kept
from headrace.dataset.shards.choice import beside, choose, choose_kind, format_of, shards_of, tables_of
from headrace.dataset.shards.compressed import CompressedSamples
from headrace.dataset.shards.format import Accompanied, Format
from headrace.dataset.shards.formats import OBJECTS, format_named
from headrace.dataset.shards.index import Job, Shard, open_set
from headrace.dataset.shards.samples import ShardSamples
from headrace.dataset.shelf import Shelf
from headrace.dataset.snapshot import is_snapshot_name, open_snapshot, snapshot_objects, snapshot_place
from headrace.dataset.tables.footers import Job as TableJob
from headrace.dataset.tables.kinds import kind_named
from headrace.dataset.tables.samples import TableSamples
from headrace.dataset.tables.single import Single, wanted_of
from headrace.dataset.tables.view import Wanted
from headrace.namespace import Namespace

_TABLES = 'leave them out, or say what it holds: format="parquet"'


def open_samples(
    target: str,
    *,
    by: str,
    namespace: Namespace,
    pinned: bool,
    format: str | None = None,  # noqa: A002
    columns: Sequence[str] | None = None,
    where: Sequence[Any] | None = None,
    settings: Settings,
    progress: Progress,
) -> ObjectSamples | ShardSamples | TableSamples:
    """See `headrace.dataset.source.open_source`."""
    check_kind(by)
    if format is not None and kind_named(format) is None:
        format_named(format)
    wanted = wanted_of(columns, where)
    if target.startswith("/") or "://" in target:
        single = Single(target, format, by, wanted, namespace, settings, progress)
        rows = single.samples()
        if rows is not None:
            return rows
        if table.is_table(target) and format in (None, OBJECTS) and not single.is_folder:
            return table.open_table(target, by=by, namespace=namespace, settings=settings)
        place = find_place(target, namespace)
        try:
            objects = recent_objects(place, settings, progress)
        except NotFoundError:
            one = _one_shard(target, format, by, namespace, settings, progress)
            if one is None:
                raise
            return one
        opening = _Opening(place, by, format, wanted, settings, progress, target)
        try:
            return opening.samples(objects, pinned=False, reports=not pinned)
        except (ChangedError, NotFoundError):
            fresh = _listed_anew(place, settings, progress)
            if fresh.digest == objects.digest:
                raise
            return opening.samples(fresh, pinned=False, reports=not pinned)
    if not is_snapshot_name(target):
        raise InputError(
            f"{target!r} is neither a path, a URL nor a snapshot",
            hint="/path/in/the/namespace, s3://bucket/prefix, file:///folder, or name@version",
        )
    snapshot = open_snapshot(target, namespace=namespace, settings=settings)
    objects = snapshot_objects(snapshot, settings, progress)
    opening = _Opening(snapshot_place(snapshot, namespace), by, format, wanted, settings, progress, target)
    return opening.samples(objects, pinned=pinned, reports=not pinned)


def _one_shard(
    target: str, wanted: str | None, by: str, namespace: Namespace, settings: Settings, progress: Progress
) -> ShardSamples | None:
    """The samples of one shard that `target` itself names; None where it names no object, or nothing says of what
    format it is. Asked for where nothing lies below it.
    """
    fmt = format_of(target, wanted, by)
    if fmt is None or target.endswith("/"):
        return None
    at = namespace.resolve(target)
    try:
        info = at.store.head(at.key)
    except NotFoundError:
        return None
    prefix = at.key[: at.key.rfind("/") + 1]
    if isinstance(fmt, Accompanied):
        raise InputError(
            f"one {fmt.name} shard cannot be read by itself", path=target, hint="open its folder, where they all lie"
        )
    shards = [Shard(at.key, info.size, info.version)]
    return _indexed(Shelf.of(settings), Job(at.store, fmt, shards, settings, progress, root=prefix))


def _indexed(shelf: Shelf, job: Job) -> ShardSamples:
    shards, index = list(job.shards), open_set(shelf, job)
    if index.packed:
        return CompressedSamples(job.store, job.root, job.format, shards, index, job.settings)
    return ShardSamples(job.store, job.root, job.format, shards, index)


def _listed_anew(place: Place, settings: Settings, progress: Progress) -> Objects:
    """A listing is trusted for a while; shards replaced meanwhile are seen only by looking again."""
    return recent_objects(
        place, dataclasses.replace(settings, cache=dataclasses.replace(settings.cache, ttl=0)), progress
    )


@dataclasses.dataclass(frozen=True)
class _Opening:
    """What is opened, and how."""

    place: Place
    by: str
    format: str | None
    wanted: Wanted
    settings: Settings
    progress: Progress
    target: str

    def samples(self, objects: Objects, *, pinned: bool, reports: bool) -> ObjectSamples | ShardSamples | TableSamples:
        shelf = Shelf.of(self.settings)
        kind = choose_kind(self.format, self.by, shelf, objects, self.target)
        if kind is not None:
            files = tables_of(kind, objects, self.place.prefix, self.target)
            job = TableJob(self.place.store, self.place.prefix, kind, files, self.settings, self.progress)
            return TableSamples(job, self.wanted, shelf)
        if self.wanted != Wanted():
            raise InputError("holds no tables, so columns and where mean nothing", path=self.target, hint=_TABLES)
        fmt = choose(self.format, self.by, shelf, objects, self.target)
        if fmt is not None:
            return self._shards(shelf, fmt, objects)
        place, by = self.place, self.by
        groups = open_groups(shelf, objects, by)
        if not len(groups):
            raise NotFoundError(
                "none of its objects make a sample", path=place.path or place.url, hint=f"by={by!r}: is that meant?"
            )
        fingerprint = f"{by}-{objects.digest[:32]}"
        return ObjectSamples(
            place.store, place.prefix, objects, groups, fingerprint=fingerprint, pinned=pinned, reports=reports
        )

    def _shards(self, shelf: Shelf, fmt: Format, objects: Objects) -> ShardSamples:
        store, prefix = self.place.store, self.place.prefix
        shards = shards_of(fmt, objects, prefix, self.target)
        near = beside(fmt, objects, prefix)
        kept = (Kept(store, prefix + BESIDE),)
        return _indexed(shelf, Job(store, fmt, shards, self.settings, self.progress, near, prefix, kept))
