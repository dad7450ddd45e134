"""A listing made by the nodes of a cluster, folders at a time, and put together here in the order of keys."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final, NamedTuple

from headrace.base.arrow import Batch, pa, pc, scalar
from headrace.base.progress import Progress
from headrace.catalog import MANIFEST_SCHEMA, Listing, Origin, Place, Shelf, find_again, list_objects, page_batch
from headrace.cluster.data.cuts import Part, cut, grouped
from headrace.cluster.pieces import Options, Site, Workers
from headrace.store.protocol import Folder, Store

HERE: Final = 16
"""Pages of a listing that are asked for here before anybody else is asked: what is no longer is listed by then."""
_PIECES_A_CPU: Final = 4  # more than one, so that a large folder does not keep all others waiting at the end
_EMPTY = scalar("")


@dataclass(frozen=True, slots=True)
class Folders:
    """Neighbouring parts of a listing, which a node lists."""

    origin: Origin
    parts: tuple[Part, ...]


class Rows(NamedTuple):
    """What a node has listed: rows of a manifest as an Arrow stream, and how many objects and bytes they are of."""

    data: bytes
    objects: int
    size: int


def listing_on(workers: Workers, *, here: int = HERE, tell: Callable[[str], None] = lambda _text: None) -> Listing:
    """A listing for `take_snapshot` and `verify` that the nodes of a cluster make. It gives the same rows as one made
    here.

    Files of this machine, what is no longer than `here` pages, and a folder that holds objects for the most part, are
    listed here. `tell`: called with a sentence when a piece is lost. Iterating it raises as `Workers.work_off` does.
    """

    def listing(place: Place, folder: str, progress: Progress) -> Iterator[Batch]:
        store, prefix = place.store, place.prefix
        if store.local_root is not None:
            return list_objects(store, prefix, folder=folder, progress=progress)
        pages = iter(store.list(prefix))
        first = list(islice(pages, here + 1))
        if len(first) <= here or not any("/" in info.key[len(prefix) :] for page in first for info in page):
            return list_objects(store, prefix, folder=folder, progress=progress, begun=chain(first, pages))
        return _listed(workers, place, folder, progress, Options(name="headrace list", tell=tell))

    return listing


def _listed(workers: Workers, place: Place, folder: str, progress: Progress, options: Options) -> Iterator[Batch]:
    progress.total(None)
    cpus = sum(machine.cpus for machine in workers.machines())
    wanted = max(2, int(cpus * _PIECES_A_CPU))
    parts = cut(lambda name: _level(place.store, name), place.prefix, wanted)
    origin = Origin(place.path, place.url)
    pieces = [(number, Folders(origin, some)) for number, some in enumerate(grouped(parts, wanted))]
    come: set[int] = set()
    turn = 0
    for done in workers.work_off(list_folders, pieces, options=options):
        number, rows = done.piece[0], done.result
        with open(os.path.join(folder, f"listed-{number}"), "wb") as file:
            file.write(rows.data)
        come.add(number)
        progress.advance(rows.objects, rows.size)
        while turn in come:
            yield from _rows(os.path.join(folder, f"listed-{turn}"))
            turn += 1


def list_folders(site: Site, piece: tuple[int, Folders]) -> Rows:
    """List them on the node that this runs on. Raises InputError: a key that is no UTF-8. Any store error."""
    _, asked = piece
    place = find_again(asked.origin.path, asked.origin.url, site.namespace)
    sink = pa.BufferOutputStream()
    objects = size = 0
    with (
        Shelf.of(site.settings).workspace() as work,
        pa.ipc.new_stream(sink, MANIFEST_SCHEMA, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer,
    ):
        for part in asked.parts:
            for batch in _batches(place, part, str(work)):
                writer.write_batch(batch)
                objects, size = objects + batch.num_rows, size + (pc.sum(batch["size"]).as_py() or 0)
    return Rows(sink.getvalue().to_pybytes(), objects, size)


def _batches(place: Place, part: Part, folder: str) -> Iterator[Batch]:
    if not isinstance(part, str):
        yield page_batch(part, place.prefix)
        return
    below = scalar(part[len(place.prefix) :])
    for batch in list_objects(place.store, part, folder=folder):
        keys = pc.binary_join_element_wise(below, batch["key"], _EMPTY)
        yield pa.record_batch([keys, *batch.columns[1:]], schema=MANIFEST_SCHEMA)


def _level(store: Store, name: str) -> Folder | None:
    """One level, unless the first page shows no folder in it."""
    first = next(iter(store.list(name)), ())
    return store.list_folder(name) if any("/" in info.key[len(name) :] for info in first) else None


def _rows(path: str) -> Iterator[Batch]:
    with open(path, "rb") as file, pa.ipc.open_stream(file) as reader:
        yield from reader
    os.unlink(path)
