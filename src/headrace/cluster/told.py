"""What the nodes of a gang and who leads it tell each other. Plain values, pickled by Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.cluster.ranks import Rendezvous
from headrace.store.protocol import ObjectInfo


@dataclass(frozen=True, slots=True)
class Machine:
    """A node as the gang knows it. `address`, `port`: where rank 0 would be met; `gpus`: names, as CUDA knows them;
    `processes`: that it starts; `id`: Ray's for it; `peer`: where others read from its cache, empty where they do not.
    """

    host: str
    address: str
    port: int
    gpus: tuple[str, ...]
    processes: int
    id: str = ""
    peer: str = ""


@dataclass(frozen=True, slots=True)
class Begin:
    """An attempt begins. `checkpoint`: of which run (its id), and which, to go on from. `peers`: of nodes that share
    their caches, where each answers; `token`: by which they know each other.
    """

    attempt: int
    meeting: Rendezvous
    checkpoint: tuple[str, str] | None
    peers: tuple[str, ...] = ()
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Text:
    """Whole lines that one process wrote."""

    rank: int
    stream: str
    lines: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """How one process ended: a code, or the signal that killed it; `failure`: why it was ended by its node."""

    rank: int
    code: int | None
    signal: int | None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """What a node has sent of a checkpoint, all of its own."""

    folder: str
    members: tuple[ObjectInfo, ...]
    note: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class News:
    """What a node has to tell, each thing once. `number`: counts up; the next question acknowledges it. `files`: of
    what its processes log, by name; `notes`: for people; `open`: checkpoint folders of which not all is sent.
    """

    number: int = 0
    texts: tuple[Text, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    notes: tuple[str, ...] = ()
    ended: tuple[Ended, ...] = ()
    parts: tuple[Part, ...] = ()
    open: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Sent:
    """What a node has sent at its end. `left`: what is not in the bucket, names and why; `folder`: where that lies."""

    files: int
    bytes: int
    left: tuple[tuple[str, str], ...]
    folder: str
