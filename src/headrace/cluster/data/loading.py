"""Every node's cache warmed, or a share of the data in each: `headrace load --on`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from headrace.base.errors import TryAgainError
from headrace.base.progress import SILENT, Progress
from headrace.base.settings import Settings
from headrace.catalog import NamedObject, Origin, as_reads, entry_words, objects_below
from headrace.cluster.data.shares import Sharing, slices
from headrace.cluster.pieces import Gone, Machine, Options, Site, Workers
from headrace.fetch.warming import Warmed, Warmer
from headrace.namespace import Namespace


@dataclass(frozen=True, slots=True)
class Slice:
    """Objects that a node brings into its cache. `in_flight`: asked for at once."""

    origin: Origin | None
    objects: tuple[NamedObject, ...]
    in_flight: int

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(max(0, one.size or 0) for one in self.objects)


@dataclass(slots=True)
class ClusterWarmed:
    """What became of the objects, by node; `gone`: nodes that died meanwhile, of which nothing is counted."""

    nodes: dict[str, Warmed] = field(default_factory=dict[str, Warmed])
    gone: list[str] = field(default_factory=list[str])

    @property
    def total(self) -> Warmed:
        """Of all nodes together."""
        total = Warmed()
        for one in self.nodes.values():
            total.add(one)
        return total


def load_on(
    workers: Workers,
    path: str,
    *,
    namespace: Namespace,
    settings: Settings,
    copies: int | None = None,
    in_flight: int = 256,
    progress: Progress = SILENT,
    tell: Callable[[str], None] = lambda _text: None,
) -> ClusterWarmed:
    """Bring everything below `path` into the caches of a cluster's nodes, each where its own settings have it.

    What a cache has already is skipped. A node that dies meanwhile is told, and the others go on; where each holds a
    share, they share what it held. Goes on after an object that cannot be had.

    Args:
        workers: the cluster's.
        path: a path, a URL, or a snapshot ``NAME@VERSION``; listed here, once.
        namespace: of the caller.
        settings: of the caller: where the nodes reach the stores.
        copies: on how many nodes each object is to be, by those that keep it when caches are shared; None: on all.
        in_flight: objects that each worker asks for at once.
        progress: told of objects and bytes, each counted once a node.
        tell: called with a sentence when a piece or a node is lost.

    Raises:
        NotFoundError: nothing there. UnsupportedError: a cache is off; or the nodes have no headrace.
        TryAgainError: the cluster does not answer, has no node with a CPU, or loses all of them. Any store error while
        the path is listed.

    One thread.
    """
    machines = workers.machines()
    found = ClusterWarmed({machine.name: Warmed() for machine in machines})
    job = _Load(workers, path, namespace, settings, copies, in_flight, progress, tell)
    lost = frozenset[str]()
    while found.nodes:
        gone = job.run([machine for machine in machines if machine.name in found.nodes], lost, found)
        for machine in gone:
            del found.nodes[machine.name]
        found.gone += sorted(machine.name for machine in gone)
        lost |= {machine.place for machine in gone}
        if not gone or copies is None:
            break
    if not found.nodes:
        reason = "all nodes are gone" if machines else "no node of the cluster has a CPU"
        raise TryAgainError(reason, path=workers.address, hint="see: ray status")
    return found


@dataclass(frozen=True, slots=True)
class _Load:
    """As `load_on` was called."""

    workers: Workers
    path: str
    namespace: Namespace
    settings: Settings
    copies: int | None
    in_flight: int
    progress: Progress
    tell: Callable[[str], None]

    def run(self, machines: list[Machine], lost: frozenset[str], found: ClusterWarmed) -> frozenset[Machine]:
        """Once over all objects, or over those that nodes at the places `lost` held. Returns the nodes that died."""
        gone: set[Machine] = set()
        names = {machine.id: machine.name for machine in machines}
        options = Options(name="headrace load", tell=self.tell)
        for done in self.workers.on_nodes(warm, self._pieces(machines, lost), options=options):
            if isinstance(done, Gone):
                gone.add(done.node)
                self.tell(f"{done.node.name} is gone; the others go on")
            elif done.node is not None:
                found.nodes[names[done.node]].add(done.result)
                self.progress.advance(len(done.piece.objects), done.piece.size)
        return frozenset(gone)

    def _pieces(self, machines: list[Machine], lost: frozenset[str]) -> Iterator[tuple[Machine, Slice]]:
        nodes = {machine.place: machine for machine in machines}
        origin, objects = objects_below(self.namespace, self.settings, self.path)
        sharing = Sharing(list(nodes), self.copies, lost)
        count = size = 0
        for place, some in slices(objects, entry_words(self.namespace, origin), sharing):
            piece = Slice(origin, some, self.in_flight)
            count, size = count + len(some), size + piece.size
            self.progress.total(count, size)
            yield nodes[place], piece


def warm(site: Site, piece: Slice) -> Warmed:
    """Bring a slice into the cache of the node that this runs on. Raises UnsupportedError: its cache is off."""
    warmer = Warmer(site.fetcher, in_flight=piece.in_flight)
    return warmer.run(as_reads(site.namespace, piece.origin, piece.objects))


__all__ = ["ClusterWarmed", "Slice", "load_on", "warm"]
