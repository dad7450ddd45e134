"""The caches of all nodes checked: `headrace cache verify --on`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headrace.base.progress import SILENT, Progress
from headrace.cache import Cache, VerifyReport
from headrace.cluster.pieces import Gone, Machine, Options, Site, Workers

_PART_BYTES: Final = 1 << 30
"""Of a cache in a piece, about: some seconds of reading and adding up."""
_MOST_PARTS: Final = 256  # of one node: each is a task of Ray's


class Held(NamedTuple):
    """What the cache of a node holds, and in which folder it lies there."""

    folder: str
    entries: int
    size: int

    @property
    def parts(self) -> int:
        """In how many pieces it is checked."""
        return min(_MOST_PARTS, 1 + self.size // _PART_BYTES)


@dataclass(slots=True)
class Checked:
    """What was found on each node, by name; `folders`: where its cache lies; `gone`: nodes that died meanwhile."""

    nodes: dict[str, VerifyReport] = field(default_factory=dict[str, VerifyReport])
    folders: dict[str, str] = field(default_factory=dict[str, str])
    gone: list[str] = field(default_factory=list[str])

    def check(self, where: str) -> None:
        """Raises CorruptError: damaged entries were removed on some node. `where`: the cluster, for the message."""
        whole = VerifyReport()
        for one in self.nodes.values():
            whole.add(one)
        whole.check(where)


def verify_caches(
    workers: Workers, *, progress: Progress = SILENT, tell: Callable[[str], None] = lambda _text: None
) -> Checked:
    """As `Cache.verify` on every node of a cluster, each checked by its own processes.

    A node that dies meanwhile is told, and the others go on. `progress`: told of entries and bytes; `tell`: called with
    a sentence when a piece or a node is lost.

    Raises:
        UnsupportedError: a cache is off. DeniedError, NoRoomError, InputError: one whose folders cannot be read.
        As `Workers.on_nodes`. One thread.
    """
    options = Options(name="headrace cache verify", tell=tell)
    machines = workers.machines()
    names = {machine.id: machine.name for machine in machines}
    held: dict[str, Held] = {}
    for done in workers.on_nodes(look, ((machine, None) for machine in machines), options=options):
        if not isinstance(done, Gone) and done.node is not None:
            held[done.node] = done.result
    progress.total(sum(one.entries for one in held.values()), sum(one.size for one in held.values()))
    found = Checked({names[node]: VerifyReport() for node in held}, {names[one]: held[one].folder for one in held})
    for done in workers.on_nodes(verify_part, _parts(machines, held), options=options):
        if isinstance(done, Gone):
            tell(f"{done.node.name} is gone; the others go on")
            del found.nodes[done.node.name]
        elif done.node is not None:
            found.nodes[names[done.node]].add(done.result)
            progress.advance(done.result.checked, done.result.bytes)
    found.gone = sorted(set(names.values()) - set(found.nodes))
    return found


def _parts(machines: list[Machine], held: dict[str, Held]) -> Iterator[tuple[Machine, tuple[int, int]]]:
    """Of each cache in turn, so that no node waits for another's."""
    for number in range(max((one.parts for one in held.values()), default=0)):
        for machine in machines:
            if machine.id in held and number < held[machine.id].parts:
                yield machine, (number, held[machine.id].parts)


def look(site: Site, _piece: None) -> Held:
    """What the cache of the node that this runs on holds. Raises UnsupportedError: it is off."""
    status = _cache(site).status()
    return Held(status.dir, status.entries, status.bytes)


def verify_part(site: Site, part: tuple[int, int]) -> VerifyReport:
    """Check a part of the cache of the node that this runs on. Raises as `Cache.verify`."""
    return _cache(site).verify(part=part)


def _cache(site: Site) -> Cache:
    return Cache.open(site.settings.cache, required=True)
