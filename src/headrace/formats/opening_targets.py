"""What a target names, and the sample index over it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from headrace.base.errors import ChangedError, InputError, NotFoundError, UnsupportedError
from headrace.base.progress import SILENT, Progress
from headrace.base.settings import Settings
from headrace.catalog import (
    IndexFolder,
    LazySamples,
    Objects,
    ObjectSamples,
    Place,
    SampleIndex,
    Shelf,
    Snapshot,
    check_kind,
    find_place,
    is_pin_name,
    open_groups,
    open_pin,
    open_snapshot,
    recent_objects,
    snapshot_objects,
    snapshot_place,
)
from headrace.catalog import path_table as table
from headrace.formats.compressed.compressed_samples import CompressedSamples
from headrace.formats.detection import beside, choose, choose_kind, format_of, shards_of, tables_of
from headrace.formats.index.index_job import Job, Shard
from headrace.formats.index.shard_index import find_set, open_set
from headrace.formats.index.stored_index import INDEX_BESIDE, export_index
from headrace.formats.known_formats import OBJECTS, format_named
from headrace.formats.open_options import OpenOptions
from headrace.formats.shard_format import Accompanied, Format, Paired
from headrace.formats.shard_samples import ShardSamples
from headrace.formats.tables.footers import Job as TableJob
from headrace.formats.tables.known_tables import kind_named
from headrace.formats.tables.single_table import Single, wanted_of
from headrace.formats.tables.table_samples import TableSamples
from headrace.formats.tables.table_view import Wanted
from headrace.namespace import Namespace

_HEAD = 4096  # bytes by which a format is recognised
_ANYTHING = OpenOptions()
_TYPES = 'columns={"x": "float64"} is for JSON lines: say format="jsonl"'
_TABLES = 'leave them out, or say what it holds: format="parquet"'


def open_source(
    target: str,
    options: OpenOptions = _ANYTHING,
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
    samples = open_samples(
        target,
        options,
        namespace=namespace,
        settings=settings,
        progress=progress,
        indexing=progress if indexing is None else indexing,
    )
    return LazySamples(samples, options.lazy) if options.lazy else samples


def open_samples(
    target: str,
    options: OpenOptions,
    *,
    namespace: Namespace,
    settings: Settings,
    progress: Progress,
    indexing: Progress,
) -> ObjectSamples | ShardSamples | TableSamples:
    """See `open_source`."""
    check_kind(options.by)
    if options.format is not None and kind_named(options.format) is None:
        format_named(options.format)
    wanted = wanted_of(options.columns, options.where)
    if target.startswith("/") or "://" in target:
        single = Single(target, options, wanted, namespace, settings, indexing)
        rows = single.samples()
        if rows is not None:
            return rows
        if table.is_table(target) and options.format in (None, OBJECTS) and not single.is_folder:
            return table.open_table(target, by=options.by, namespace=namespace, settings=settings)
        place = find_place(target, namespace)
        try:
            objects = recent_objects(place, settings, progress)
        except (NotFoundError, InputError):  # or its server lists nothing
            one = _one_object(single)
            if one is None:
                raise
            return one
        opening = _Opening(place, options, wanted, settings, indexing, target)
        try:
            return opening.samples(objects)
        except (ChangedError, NotFoundError):
            fresh = _listed_anew(place, settings, progress)
            if fresh.digest == objects.digest:
                raise
            return opening.samples(fresh)
    if is_pin_name(target):
        pin, objects = open_pin(target, namespace=namespace, settings=settings, progress=progress)
        kept = open_snapshot(pin.snapshot, namespace=namespace, settings=settings) if pin.snapshot else None
        opening = _Opening(pin.place(namespace), options, wanted, settings, indexing, target, kept)
        return opening.samples(objects, pinned=options.pinned)
    snapshot = open_snapshot(target, namespace=namespace, settings=settings)
    objects = snapshot_objects(snapshot, settings, progress)
    place = snapshot_place(snapshot, namespace)
    opening = _Opening(place, options, wanted, settings, indexing, target, snapshot)
    return opening.samples(objects, pinned=options.pinned)


def _one_object(asked: Single) -> ShardSamples | TableSamples | None:
    """The samples of one shard or table that the target itself names: by its name, else by its first bytes. None where
    it names no object. Asked for where nothing lies below it, or nobody can tell.

    Raises:
        InputError: nothing says of what format it is, or it cannot be read by itself.
    """
    target = asked.target
    if target.endswith("/"):
        return None
    at = asked.namespace.resolve(target)
    try:
        info = at.store.head(at.key)
    except (NotFoundError, UnsupportedError):  # or a web server sends us from a folder's name to its page
        return None
    options = asked.options
    fmt, kind = format_of(target, options.format, options.by, lambda: memoryview(at.store.get(at.key, 0, _HEAD).data))
    prefix = at.key[: at.key.rfind("/") + 1]
    if isinstance(fmt, (Accompanied, Paired)):
        reason = f"one {fmt.name} shard cannot be read by itself"
        raise InputError(reason, path=target, hint="open its folder, where they all lie")
    shard, shelf = Shard(at.key, info.size, info.version), Shelf.of(asked.settings)
    if kind is not None:
        job = TableJob(at.store, prefix, kind, [shard], asked.settings, asked.progress)
        return TableSamples(job, asked.wanted, shelf)
    if fmt is not None:
        job = Job(at.store, fmt, [shard], asked.settings, asked.progress, root=prefix)
        return _indexed(shelf, job, asked.wanted)
    what = 'say what it holds: format="tar", "jsonl", "parquet" …, for TSV format="csv" and delimiter="\\t"'
    hint = f"{what}; or open the folder that it lies in"
    reason = "is one object, and neither its name nor its first bytes say what samples it holds"
    raise InputError(reason, path=target, hint=hint)


def _indexed(shelf: Shelf, job: Job, wanted: Wanted) -> ShardSamples:
    shards, index = list(job.shards), open_set(shelf, job)
    if index.packed:
        samples = CompressedSamples(job.store, job.root, job.format, shards, index, job.settings)
    else:
        samples = ShardSamples(job.store, job.root, job.format, shards, index)
    if wanted.types is not None:
        samples.give_types(wanted.types)
    return samples


def index_snapshot(
    snapshot: Snapshot,
    *,
    format: str | Format | None = None,  # noqa: A002
    namespace: Namespace,
    settings: Settings,
    progress: Progress = SILENT,
    begins: Callable[[str, int, int], None] | None = None,
    elsewhere: Callable[[Shelf, Job, Sequence[Shard]], None] | None = None,
) -> int | None:
    """Make the index of a snapshot's shards and keep it beside the manifest, so that other nodes read no shard for it.

    What this node knows already is not read again: neither shards that were indexed before, nor those that an
    interrupted call had finished.

    Args:
        snapshot: a complete one.
        format: of the shards; None: found by names, as ``Dataset.open`` finds it.
        namespace: where the snapshot's source is resolved.
        settings: for the cache folder and for fetching.
        progress: told of shards and bytes, read or found.
        begins: called with format, number of shards and their bytes, before anything is read.
        elsewhere: who reads the shards, as `Job` has it; None: this process.

    Returns:
        How many samples the shards hold; None where there are no shards, or tables, which need no index.

    Raises:
        InputError: shards among other objects, and no `format`; or `format` names no kind of shards.
        UnsupportedError: compressed shards. CorruptError: a damaged one. ChangedError, NotFoundError: one is no longer
        the one recorded. ReadOnlyError: the home. Any store error.
    """
    snapshot.home.check_writable()
    if format is not None and (kind_named(format) is not None or format_named(format) is None):
        raise InputError(
            f"format={format!r} has no index to keep", path=snapshot.id, hint="leave it out, or --no-index"
        )
    job = shards_of_snapshot(snapshot, format=format, namespace=namespace, settings=settings, progress=progress)
    if job is None:
        return None
    if begins is not None:
        begins(job.format.name, len(job.shards), sum(shard.size for shard in job.shards))
    found = find_set(Shelf.of(settings), job._replace(elsewhere=elsewhere))
    export_index(found, job, _kept(snapshot, job.format.name))
    return int(found[1]["samples"])


def shards_of_snapshot(
    snapshot: Snapshot,
    *,
    format: str | Format | None = None,  # noqa: A002
    namespace: Namespace,
    settings: Settings,
    progress: Progress = SILENT,
) -> Job | None:
    """What indexing a snapshot's shards needs to know; None where there are none, or tables. The same on any machine.

    Raises as `index_snapshot`, which says what is taken.
    """
    objects = snapshot_objects(snapshot, settings, SILENT)
    shelf = Shelf.of(settings)
    place = snapshot_place(snapshot, namespace)
    opening = _Opening(place, OpenOptions(format=format), Wanted(), settings, progress, snapshot.id, snapshot)
    if choose_kind(format, "stem", shelf, objects, snapshot.id, opening.look) is not None:
        return None
    fmt = choose(format, "stem", shelf, objects, snapshot.id, opening.look)
    return None if fmt is None else opening.job(fmt, objects)


def _kept(snapshot: Snapshot, form: str) -> IndexFolder:
    """Where what is known of a snapshot's shards, of that format, is kept."""
    home = snapshot.home
    return IndexFolder(home.store, home.key(*snapshot.folder, "index", form, ""), writable=not home.read_only)


def _listed_anew(place: Place, settings: Settings, progress: Progress) -> Objects:
    """A listing is trusted for a while; shards replaced meanwhile are seen only by looking again."""
    return recent_objects(
        place, dataclasses.replace(settings, cache=dataclasses.replace(settings.cache, ttl=0)), progress
    )


@dataclasses.dataclass(frozen=True)
class _Opening:
    """What is opened, and how."""

    place: Place
    options: OpenOptions
    wanted: Wanted
    settings: Settings
    progress: Progress
    target: str
    snapshot: Snapshot | None = None

    def samples(self, objects: Objects, *, pinned: bool = False) -> ObjectSamples | ShardSamples | TableSamples:
        shelf, by = Shelf.of(self.settings), self.options.by
        kind = choose_kind(self.options.format, by, shelf, objects, self.target, self.look)
        if kind is not None:
            files = tables_of(kind, objects, self.place.prefix, self.target)
            job = TableJob(self.place.store, self.place.prefix, kind, files, self.settings, self.progress)
            rows = TableSamples(job, self.wanted, shelf)
            rows.home = self._kept(kind.name)
            return rows
        if self.wanted._replace(types=None) != Wanted():
            raise InputError("holds no tables, so columns and where mean nothing", path=self.target, hint=_TABLES)
        fmt = choose(self.options.format, by, shelf, objects, self.target, self.look)
        if fmt is not None:
            return self._shards(shelf, fmt, objects)
        if self.wanted.types is not None:
            raise InputError("holds single objects, whose parts have no types", path=self.target, hint=_TYPES)
        place = self.place
        groups = open_groups(shelf, objects, by)
        if not len(groups):
            raise NotFoundError(
                "none of its objects make a sample", path=place.path or place.url, hint=f"by={by!r}: is that meant?"
            )
        fingerprint = f"{by}-{objects.digest[:32]}"
        return ObjectSamples(
            place.store,
            place.prefix,
            objects,
            groups,
            fingerprint=fingerprint,
            pinned=pinned,
            reports=not self.options.pinned,
        )

    def look(self, key: str) -> memoryview:
        """The first bytes of an object, by its key below the place. Raises as the store does."""
        return memoryview(self.place.store.get(self.place.prefix + key, 0, _HEAD).data)

    def _shards(self, shelf: Shelf, fmt: Format, objects: Objects) -> ShardSamples:
        job = self.job(fmt, objects)
        samples = _indexed(shelf, job, self.wanted)
        samples.home = self._kept(fmt.name)
        return samples

    def _kept(self, form: str) -> IndexFolder | None:
        return None if self.snapshot is None else _kept(self.snapshot, form)

    def job(self, fmt: Format, objects: Objects) -> Job:
        """What indexing the shards among `objects` needs to know. Raises NotFoundError: there are none."""
        store, prefix = self.place.store, self.place.prefix
        shards = shards_of(fmt, objects, prefix, self.target)
        near = beside(fmt, objects, prefix)
        places = (self._kept(fmt.name), IndexFolder(store, prefix + INDEX_BESIDE))
        kept = [place for place in places if place is not None]
        return Job(store, fmt, shards, self.settings, self.progress, near, prefix, kept)
