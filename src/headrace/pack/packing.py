"""`pack`: plan, make what is not finished, verify, close. See README.md for the life of a shard."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from headrace.base.errors import CorruptError, DeniedError, InputError, UnsupportedError
from headrace.base.progress import SILENT, Progress
from headrace.base.settings import Settings
from headrace.base.threads import ForEach
from headrace.catalog import target_of
from headrace.loader import Dataset
from headrace.namespace import Namespace
from headrace.pack.journal import Journal, Record, journal_of
from headrace.pack.options import PackOptions, load_function
from headrace.pack.orders import Orders
from headrace.pack.plan import Plan, make_plan
from headrace.pack.preparing import source_format
from headrace.pack.workshop import Workshop, workshop
from headrace.upload import clear

Taker: TypeAlias = Callable[[Record], None]
_LEFT_OVER_S = 3600.0  # seconds: a younger upload may be of another run, under way


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
    hands: Hands | None = None,
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
        hands: who makes the shards; None: threads of this process, `options.threads` of them.

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
    _refuse_inside(namespace, source, journal_of(namespace, destination), destination)
    form = options.source_format or source_format(source, options, namespace)
    plan = make_plan(Dataset.open(source, options.by, namespace, format=form), options, planning)
    orders = Orders(source, destination, form, options, plan.cuts, plan.terms, None, function)
    workers = max(1, min(options.threads, plan.shards))
    crew = ForEach(workers)
    with workshop(
        orders, plan, namespace, settings, workers=workers, stop=crew.stop, progress=progress
    ) as shop:
        return _packed(shop, hands or Threads(crew))


def _packed(shop: Workshop, hands: Hands) -> Packed:
    """Have made what is not finished, and close."""
    plan, journal, options = shop.plan, shop.journal, shop.orders.options
    journal.begin(plan.terms, shop.orders.source)
    records = {number: one for number, one in journal.finished().items() if number < plan.shards}
    missing = [number for number in range(plan.shards) if number not in records]
    shop.budget.spend([one for record in records.values() for one in record.skipped])
    shop.progress.total(sum(plan.count(number) for number in missing))

    def take(record: Record) -> None:
        records[record.number] = record

    hands.make(shop, missing, take)
    done = [records[number] for number in range(plan.shards)]
    _verify(plan, journal, done)
    if options.verify == "full":
        hands.prove(shop, done)
    shop.index.write(done)
    journal.end(done, plan.terms)
    _tidy(journal)
    return Packed(
        path=shop.orders.destination,
        samples=sum(record.samples for record in done),
        skipped=sum(len(record.skipped) for record in done),
        shards=plan.shards,
        bytes=sum(record.size for record in done),
        made=len(missing),
        kept=plan.shards - len(missing),
        verified=options.verify,
        dropped=sum(record.dropped for record in done),
    )


class Hands(Protocol):
    """Who makes shards, and reads them back."""

    def make(self, shop: Workshop, numbers: Sequence[int], take: Taker) -> None:
        """Have these shards made and noted, their index put where `shop` finds it, and `take` called with each. Any
        thread may call it. Raises the first error.
        """
        ...

    def prove(self, shop: Workshop, records: Sequence[Record]) -> None:
        """Have these shards read back. Raises the first error, as `Workshop.prove`."""
        ...


class Threads:
    """Threads of this process."""

    def __init__(self, crew: ForEach) -> None:
        self._crew = crew

    def make(self, shop: Workshop, numbers: Sequence[int], take: Taker) -> None:
        """See `Hands.make`."""
        self._crew.run(lambda number: take(shop.make(number)), numbers, "pack")

    def prove(self, shop: Workshop, records: Sequence[Record]) -> None:
        """See `Hands.prove`."""
        self._crew.run(lambda number: shop.prove(records[number]), range(len(records)), "pack-verify")


def _refuse_inside(namespace: Namespace, source: str, journal: Journal, destination: str) -> None:
    """Raises InputError: the destination lies in the source."""
    below = _folder(namespace, source)
    if below is not None and below[0] == journal.store.url and journal.prefix.startswith(below[1]):
        raise InputError(
            "lies in the source, which must not change while it is packed",
            path=destination,
            hint="choose a place beside it, or pack a snapshot: name@version",
        )


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


def _verify(plan: Plan, journal: Journal, records: list[Record]) -> None:
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
