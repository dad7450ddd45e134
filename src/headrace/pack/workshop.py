"""Where shards are made: in this process, or in one that was handed `Orders`. Both work by the same two functions."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager

from headrace.base.errors import CorruptError
from headrace.base.metrics import Metrics
from headrace.base.progress import SILENT, Progress
from headrace.base.settings import Settings
from headrace.base.threads import cores
from headrace.fetch import Fetcher
from headrace.namespace import Namespace
from headrace.pack.budget import Budget
from headrace.pack.filling import Means
from headrace.pack.journal import Journal, Record, journal_of
from headrace.pack.layouts import layout_named
from headrace.pack.making import Maker
from headrace.pack.options import PackOptions
from headrace.pack.orders import Made, Orders
from headrace.pack.plan import Plan
from headrace.pack.preparing import prepared
from headrace.pack.reading import digest_of
from headrace.pack.shard_index import ShardIndex
from headrace.upload import Uploader, UploadOptions

_LEAST_AHEAD = 4 << 20  # bytes of samples on their way to one shard, at least
_PART, _PARTS = 8 << 20, 128 << 20  # bytes of a part, and of all parts in memory


@dataclasses.dataclass(frozen=True, eq=False)
class Workshop:
    """Makes shards of one packing. Any thread, each a shard of its own. `stop`: set to end what is under way."""

    orders: Orders
    plan: Plan
    journal: Journal
    budget: Budget
    index: ShardIndex
    stop: threading.Event
    progress: Progress
    maker: Maker
    fetcher: Fetcher

    def make(self, number: int) -> Record:
        """Make shard `number`, with its index, and note it. See `Maker.make`."""
        return self.maker.make(number)

    def prove(self, record: Record) -> None:
        """Read a shard back. Raises CorruptError: it is not what was written. As `Store.get`."""
        if record.empty:
            return
        info = self.journal.store.head(self.journal.prefix + record.name)
        if digest_of(self.fetcher, self.journal.store, info, self.stop) != record.digest:
            raise CorruptError(
                "reads otherwise than it was written",
                path=f"{self.journal.url}/{record.name}",
                hint="delete it and run again: it is made anew",
            )

    def make_anywhere(self, number: int) -> Made:
        """As `make`, for who works elsewhere: with the index's rows; a shard that was finished before is kept, since a
        piece may be worked off twice.
        """
        record = self.journal.finished_one(number) or self.make(number)
        return Made(record, self.index.rows(record))


@contextmanager
def workshop(
    orders: Orders,
    plan: Plan,
    namespace: Namespace,
    settings: Settings,
    *,
    workers: int,
    stop: threading.Event,
    among: int | None = None,
    progress: Progress = SILENT,
) -> Generator[Workshop]:
    """One for `workers` shards at once, which has a share of this machine as one among so many. Its own orders are
    complete: with terms and columns, whatever `orders` lacks.

    Raises:
        InputError: (BadSampleError) columns that do not go with the source. What the store raises.
    """
    options, among = orders.options, among or workers
    journal, layout = journal_of(namespace, orders.destination), layout_named(options.layout)
    with closing(_fetcher(settings, options)) as fetcher, _uploader(workers) as uploader:
        budget = Budget(options.max_errors, plan.samples)
        means = Means(
            threads=max(1, cores() // among),
            prefetch=max(_LEAST_AHEAD, options.memory // among),
            budget=budget,
            fetcher=fetcher,
            stop=stop,
            progress=progress,
        )
        plan, schema, filler = prepared(plan, options, means, orders.function, orders.schema)
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
            stop=stop,
            progress=progress,
            made=index.add,
        )
        orders = dataclasses.replace(orders, terms=plan.terms, schema=schema)
        yield Workshop(orders, plan, journal, budget, index, stop, progress, maker, fetcher)


@contextmanager
def opened(orders: Orders, namespace: Namespace, settings: Settings, stop: threading.Event) -> Generator[Workshop]:
    """A workshop for one shard at once, among as many on this machine as it has cores, by orders from elsewhere.

    Raises:
        ChangedError: the source holds other samples here. UnsupportedError: another pyarrow. Else as `workshop`.
    """
    plan = orders.plan(namespace, settings)
    with workshop(orders, plan, namespace, settings, workers=1, among=cores(), stop=stop) as shop:
        orders.check(shop.plan.terms)
        yield shop


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
