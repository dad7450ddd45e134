"""Unpacking by the nodes of a cluster: each takes whole shards."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from headrace.base.progress import SILENT, Progress
from headrace.base.settings import Settings
from headrace.cluster.pieces import Options, Site, Workers, workers
from headrace.namespace import Namespace
from headrace.pack import Unpacked, unpack
from headrace.pack.unpacking import Counts, Shard, UnpackOrders, pieces_of, unpacker

_NAME: Final = "headrace unpack"


def unpack_on(
    address: str,
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    namespace: Namespace,
    settings: Settings,
    progress: Progress = SILENT,
    tell: Callable[[str], None] = lambda _text: None,
) -> Unpacked:
    """`unpack`, with the shards read by the nodes of a cluster, which must all reach both places.

    A shard is the least that a node takes: of one alone a cluster makes nothing quicker. What a lost worker has written
    stays, and its shards are unpacked again. After any end the same call goes on.

    Args:
        address: ``ray://HOST:10001``; ``ray://auto``: the cluster that this machine is of.
        source: as `unpack` takes it.
        destination: as `unpack` takes it.
        overwrite: as `unpack` takes it.
        namespace: of the caller.
        settings: of the caller: where the nodes reach the stores.
        progress: told files and bytes, piece by piece.
        tell: called with a sentence when a piece is lost.

    Raises:
        UnsupportedError: the nodes have no headrace, or another. TryAgainError: the cluster does not answer, or a piece
        was lost again and again. Else as `unpack`.

    One thread, and one such call at a time in a process: see `workers`.
    """
    with workers(address, settings) as crew:
        nodes = Nodes(crew, Options(name=_NAME, tell=tell), progress)
        return unpack(source, destination, overwrite=overwrite, namespace=namespace, hands=nodes)


class Nodes:
    """`headrace.pack.unpacking.UnpackHands`: workers of a cluster. One thread."""

    def __init__(self, crew: Workers, options: Options, progress: Progress) -> None:
        self._crew, self._options, self._progress = crew, options, progress

    def write(self, orders: UnpackOrders, shards: Sequence[Shard], take: Callable[[Counts], None]) -> None:
        """See `UnpackHands.write`."""
        for done in self._crew.work_off(partial(write_members, orders), pieces_of(shards), options=self._options):
            for counts in done.result:
                take(counts)
                self._progress.advance(counts.objects, counts.bytes)


def write_members(orders: UnpackOrders, site: Site, shards: tuple[str, ...]) -> list[Counts]:
    """Unpack these shards on the node that this runs on. Raises as `unpack`."""
    with unpacker(orders, site.namespace, threading.Event()) as target:
        return [target.write(shard) for shard in shards]
