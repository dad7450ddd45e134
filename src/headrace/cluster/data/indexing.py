"""The shards of a snapshot read by the nodes of a cluster, for the index that is kept with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.base.errors import ChangedError
from headrace.catalog import Shelf, Snapshot, open_snapshot
from headrace.cluster.data.cuts import shard_slices
from headrace.cluster.pieces import Options, Site, Workers
from headrace.formats import Job, ScannedShard, Shard, put_scanned, scan_shards, shards_of_snapshot


@dataclass(frozen=True, slots=True)
class Shards:
    """Some shards of a snapshot, by their numbers."""

    snapshot: str
    format: str
    numbers: tuple[int, ...]


def scanning_on(
    workers: Workers, snapshot: Snapshot, *, tell: Callable[[str], None] = lambda _text: None
) -> Callable[[Shelf, Job, Sequence[Shard]], None]:
    """For `index_snapshot`, as `elsewhere`: the nodes of a cluster read the shards, and their rows come here.

    `tell`: called with a sentence when a piece is lost. It raises as `Workers.work_off` does.
    """

    def scan(shelf: Shelf, job: Job, missing: Sequence[Shard]) -> None:
        numbers = {shard.key: number for number, shard in enumerate(job.shards)}
        pieces = [
            Shards(snapshot.id, job.format.name, tuple(numbers[shard.key] for shard in some))
            for some in shard_slices(missing)
        ]
        for done in workers.work_off(scan_piece, pieces, options=Options(name="headrace index", tell=tell)):
            for one in done.result:
                put_scanned(shelf, job, one)

    return scan


def scan_piece(site: Site, piece: Shards) -> list[ScannedShard]:
    """Read some shards on the node that this runs on. Raises as `index_snapshot`."""
    snapshot = open_snapshot(piece.snapshot, namespace=site.namespace, settings=site.settings)
    job = shards_of_snapshot(snapshot, format=piece.format, namespace=site.namespace, settings=site.settings)
    if job is None or max(piece.numbers) >= len(job.shards):
        raise ChangedError("the snapshot is another one here", path=piece.snapshot, hint="is the home the same?")
    return scan_shards(Shelf.of(site.settings), job, [job.shards[number] for number in piece.numbers])
