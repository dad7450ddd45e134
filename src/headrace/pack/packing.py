"""`pack`: plan, make what is not finished, verify, close. See README.md for the life of a shard."""

from __future__ import annotations

import dataclasses
import os
from contextlib import closing, suppress
from dataclasses import dataclass

from headrace.base.errors import CorruptError, DeniedError, InputError, ReadOnlyError, UnsupportedError
from headrace.base.metrics import Metrics
from headrace.base.progress import SILENT, Progress
from headrace.base.settings import Settings
from headrace.dataset import Dataset
from headrace.dataset.naming import target_of
from headrace.fetch import Fetcher
from headrace.namespace import Namespace
from headrace.pack.budget import Budget
from headrace.pack.crew import Crew
from headrace.pack.filling import Means
from headrace.pack.journal import Journal, Record
from headrace.pack.layouts import layout_named
from headrace.pack.making import Maker
from headrace.pack.options import PackOptions, cores, load_function
from headrace.pack.plan import Plan, make_plan
from headrace.pack.preparing import prepared, source_format
from headrace.pack.reading import digest_of
from headrace.pack.shard_index import ShardIndex
from headrace.upload import Uploader, UploadOptions, clear

_LEAST_AHEAD = 4 << 20
_PART, _PARTS = 8 << 20, 128 << 20
_LEFT_OVER_S = 3600.0


@dataclass(frozen=True, slots=True)
class Packed:
    """What a packing came to; counts are of the whole destination, `made` and `kept` of shards in this run."""

    path: str
    samples: int
    skipped: int
    shards: int
    bytes: int
    made: int
    kept: int
    verified: str
    dropped: int = 0
    """Samples that ``where`` did not keep when they were read; those it ruled out by name or size count nowhere."""


def pack(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    options: PackOptions | None = None,
    *,
    namespace: Namespace | None = None,
    settings: Settings | None = None,
    planning: Progress = SILENT,
    progress: Progress = SILENT,
) -> Packed:
    """Write the samples of `source` into shards below `destination`, or finish what an earlier run began there.

    Call it from one thread; several processes may pack the same into the same place. Memory: ``options.memory``, two
    parts of an upload (8 MiB) and one sample for each worker; disk: for TFRecord and Parquet, a temporary file of one
    shard for each worker.

    Args:
        source: a dataset, as ``Dataset.open`` takes it.
        destination: an empty folder, or one where the same was packed before; a path, a URL or a folder here.
        options: what the shards are to be like.
        namespace: where paths are looked up; default: the one of the settings.
        settings: for reading; default: `Settings.load()`.
        planning: told samples as they are planned.
        progress: told samples as they are packed, and their bytes in the shards.

    Raises:
        InputError: options, source or destination make no sense; BadSampleError: a sample cannot be packed.
        ChangedError: another packing is there, or an object of the source is no longer as listed.
        NoRoomError: no room for temporary files. CorruptError: what the store holds is not what was sent.
        NotFoundError, DeniedError, TryAgainError: of either store. After any of them a rerun goes on.
    """
    options = options or PackOptions()
    settings = settings or Settings.load()
    namespace = namespace or Namespace.load(settings)
    source, destination = target_of(source, namespace, settings), namespace.named(destination)
    function = load_function(options.function) if options.function else None
    journal = _journal(namespace, source, destination)
    form = options.source_format or source_format(source, options, namespace)
    plan = make_plan(Dataset.open(source, options.by, namespace, format=form), options, planning)
    layout = layout_named(options.layout)
    workers = max(1, min(options.threads, plan.shards))
    with closing(_fetcher(settings, options)) as fetcher, _uploader(workers) as uploader:
        budget = Budget(options.max_errors, plan.samples)
        crew = Crew(workers)
        means = Means(
            threads=max(1, cores() // workers),
            prefetch=max(_LEAST_AHEAD, options.memory // workers),
            budget=budget,
            fetcher=fetcher,
            stop=crew.stop,
            progress=progress,
        )
        plan, schema, filler = prepared(plan, options, means, function)
        journal.begin(plan.terms, source)
        records = {number: one for number, one in journal.finished().items() if number < plan.shards}
        missing = [number for number in range(plan.shards) if number not in records]
        budget.spend([one for record in records.values() for one in record.skipped])
        progress.total(sum(plan.count(number) for number in missing))
        index = ShardIndex(journal, layout, settings)
        maker = Maker(
            plan=plan,
            journal=journal,
            name=options.shard_name,
            layout=layout,
            schema=schema,
            filler=filler,
            fetcher=fetcher,
            uploader=uploader,
            budget=budget,
            stop=crew.stop,
            progress=progress,
            made=index.add,
        )

        def make(number: int) -> None:
            records[number] = maker.make(number)

        crew.run(make, missing, "pack")
        done = [records[number] for number in range(plan.shards)]
        _verify(plan, journal, done, options, fetcher)
    index.write(done)
    journal.end(done, plan.terms)
    _tidy(journal)
    return Packed(
        path=destination,
        samples=sum(record.samples for record in done),
        skipped=sum(len(record.skipped) for record in done),
        shards=plan.shards,
        bytes=sum(record.size for record in done),
        made=len(missing),
        kept=plan.shards - len(missing),
        verified=options.verify,
        dropped=sum(record.dropped for record in done),
    )


def _journal(namespace: Namespace, source: str, destination: str) -> Journal:
    location = namespace.resolve(destination)
    if location.read_only:
        raise ReadOnlyError("is read-only", path=destination, hint="attach it again without read_only to write there")
    prefix = location.key.strip("/") + "/" if location.key.strip("/") else ""
    below = _folder(namespace, source)
    if below is not None and below[0] == location.store.url and prefix.startswith(below[1]):
        raise InputError(
            "lies in the source, which must not change while it is packed",
            path=destination,
            hint="choose a place beside it, or pack a snapshot: name@version",
        )
    return Journal(location.store, prefix)


def _folder(namespace: Namespace, source: str) -> tuple[str, str] | None:
    if not source.startswith("/") and "://" not in source:
        return None
    location = namespace.resolve(source)
    key = location.key.strip("/")
    return location.store.url, f"{key}/" if key else ""


def _tidy(journal: Journal) -> None:
    """Throw away what uploads of killed runs have left here. A younger one may be another run's, under way."""
    with suppress(DeniedError, UnsupportedError):  # not everybody may list uploads; the shards are there all the same
        clear(journal.store, journal.prefix, older_than_s=_LEFT_OVER_S)


def _fetcher(settings: Settings, options: PackOptions) -> Fetcher:
    """Past the node's cache, which one pass over a dataset would only fill with what nobody reads again."""
    verify = settings.fetch.verify or options.verify == "full"
    fetch = dataclasses.replace(settings.fetch, verify=verify)
    return Fetcher(dataclasses.replace(settings, fetch=fetch), None, Metrics(), bulk=True)


def _uploader(workers: int) -> Uploader:
    """With room for two parts of each worker, and as many under way at once as there are cores: the more of them a
    server holds, the longer its reads take.
    """
    memory = min(_PARTS, 2 * _PART * max(2, workers))
    return Uploader(UploadOptions(part=_PART, threads=max(2, cores()), memory=memory))


def _verify(plan: Plan, journal: Journal, records: list[Record], options: PackOptions, fetcher: Fetcher) -> None:
    """Every planned sample is in a shard or was left out, and the store holds the shards as they were sent.

    Raises:
        CorruptError: it does not.
    """
    total = sum(record.samples + len(record.skipped) + record.dropped for record in records)
    if total != plan.samples:
        raise CorruptError(
            f"the shards' records speak of {total} samples, the source has {plan.samples}", path=journal.url
        )
    found = journal.listing()
    for record in records:
        if record.empty:
            continue
        info = found.get(record.name)
        if info is None or not record.describes(journal.store, info):
            what = "is gone" if info is None else f"is not as it was sent ({info.size} bytes, were {record.size})"
            raise CorruptError(what, path=f"{journal.url}/{record.name}", hint="run again: that shard is made anew")
    if options.verify != "full":
        return
    crew = Crew(min(options.threads, len(records)))

    def read(number: int) -> None:
        record = records[number]
        if not record.empty and digest_of(fetcher, journal.store, found[record.name], crew.stop) != record.digest:
            raise CorruptError(
                "reads otherwise than it was written",
                path=f"{journal.url}/{record.name}",
                hint="delete it and run again: it is made anew",
            )

    crew.run(read, range(len(records)), "pack-verify")
