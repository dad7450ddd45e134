"""Packing by the nodes of a cluster: each makes whole shards; what is planned, noted last and closed is done here."""

from __future__ import annotations

import dataclasses
import os
import secrets
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final

from headrace.base.progress import SILENT, Progress
from headrace.base.settings import Settings
from headrace.cluster.data.functions import as_bytes, from_bytes
from headrace.cluster.pieces import Options, Site, Workers, workers
from headrace.namespace import Namespace
from headrace.pack import Packed, PackOptions, pack
from headrace.pack.journal import Record
from headrace.pack.orders import Made, Orders, pieces_of
from headrace.pack.packing import Taker
from headrace.pack.workshop import Workshop, opened

_NAME: Final = "headrace pack"


def pack_on(
    address: str,
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    options: PackOptions | None = None,
    *,
    namespace: Namespace,
    settings: Settings,
    planning: Progress = SILENT,
    progress: Progress = SILENT,
    tell: Callable[[str], None] = lambda _text: None,
) -> Packed:
    """`pack`, with the shards made by the nodes of a cluster: the same bytes in the same place.

    The samples are listed and planned here, and listed again once on each node; both places must be such as all nodes
    reach. A shard that a lost worker or node was making is made again by another. After any end the same call, or the
    same `pack` on one machine, goes on.

    A function of the user's comes along with the modules of the working folder; others the nodes must have.

    Args:
        address: ``ray://HOST:10001``; ``ray://auto``: the cluster that this machine is of.
        source: as `pack` takes it; a snapshot is the same on all nodes for sure.
        destination: as `pack` takes it.
        options: as `pack` takes them; ``memory`` is for each node, ``workers`` does not count: as many shards are made
            at once as the cluster has CPUs.
        namespace: of the caller.
        settings: of the caller: where the nodes reach the stores.
        planning: as `pack` takes it.
        progress: told samples and bytes shard by shard.
        tell: called with a sentence when a piece is lost.

    Raises:
        UnsupportedError: the nodes have no headrace, another one, or another pyarrow for Parquet. InputError: the
        function cannot be sent. TryAgainError: the cluster does not answer, or a piece was lost again and again. Else
        as `pack`.

    One thread, and one such call at a time in a process: see `workers`.
    """
    with workers(address, settings) as crew:
        nodes = Nodes(crew, Options(name=_NAME, tell=tell))
        return pack(
            source,
            destination,
            options,
            namespace=namespace,
            settings=settings,
            planning=planning,
            progress=progress,
            hands=nodes,
        )


class Nodes:
    """`headrace.pack.packing.Hands`: workers of a cluster, for any number of packings. One thread."""

    def __init__(self, crew: Workers, options: Options) -> None:
        self._crew, self._options = crew, options

    def make(self, shop: Workshop, numbers: Sequence[int], take: Taker) -> None:
        """See `Hands.make`."""
        pieces = pieces_of(numbers, shop.orders.options.shard_size)
        work = partial(make_shards, _sent(shop.orders))
        for done in self._crew.work_off(work, pieces, options=self._options):
            for made in done.result:
                shop.budget.spend(made.record.skipped)
                if made.rows is not None:
                    shop.index.take(made.rows)
                take(made.record)
                shop.progress.advance(shop.plan.count(made.record.number), made.record.size)

    def prove(self, shop: Workshop, records: Sequence[Record]) -> None:
        """See `Hands.prove`."""
        numbers = pieces_of(range(len(records)), shop.orders.options.shard_size)
        pieces = [tuple(records[number] for number in some) for some in numbers]
        work = partial(prove_shards, _sent(shop.orders))
        for _ in self._crew.work_off(work, pieces, options=self._options):
            pass


@dataclasses.dataclass(frozen=True, eq=False)
class Sent:
    """Orders as they travel. `token`: of this call, so that a process knows them again; `function`: the user's."""

    token: str
    orders: Orders
    function: bytes | None


def make_shards(sent: Sent, site: Site, numbers: tuple[int, ...]) -> list[Made]:
    """Make these shards on the node that this runs on. Raises as `Workshop.make`."""
    with _at_work(sent, site) as shop:
        return [shop.make_anywhere(number) for number in numbers]


def prove_shards(sent: Sent, site: Site, records: tuple[Record, ...]) -> None:
    """Read these shards back. Raises as `Workshop.prove`."""
    with _at_work(sent, site) as shop:
        for record in records:
            shop.prove(record)


_kept: list[tuple[str, Site, ExitStack, Workshop]] = []
"""The workshop that this process has open: pieces of one packing follow each other."""


@contextmanager
def _at_work(sent: Sent, site: Site) -> Generator[Workshop]:
    """The workshop of these orders, which stays open as long as nothing goes wrong in it."""
    if not _kept or _kept[0][0] != sent.token or _kept[0][1] is not site:
        _close()
        stack = ExitStack()
        with ExitStack() as opening:
            orders = dataclasses.replace(sent.orders, function=_received(sent))
            shop = opening.enter_context(opened(orders, site.namespace, site.settings, threading.Event()))
            stack = opening.pop_all()
        _kept.append((sent.token, site, stack, shop))
    try:
        yield _kept[0][3]
    except BaseException:
        _kept[0][3].stop.set()
        _close()
        raise


def _close() -> None:
    if _kept:
        _, _, stack, _ = _kept.pop()
        stack.close()


def _sent(orders: Orders) -> Sent:
    """Raises InputError: the function cannot be sent."""
    function = None if orders.function is None else as_bytes(orders.function, str(orders.options.function))
    return Sent(secrets.token_hex(8), dataclasses.replace(orders, function=None), function)


def _received(sent: Sent) -> Callable[[Any], Any] | None:
    return None if sent.function is None else from_bytes(sent.function, str(sent.orders.options.function))
