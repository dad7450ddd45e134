"""What a gateway is started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.gateway.keys import Key
from headrace.http_server import Address


@dataclass(frozen=True)
class GatewayOptions:
    """Args:
    address: where it listens: loopback, and any free port, by default.
    keys: who may ask.
    processes: that answer.
    tree: the name of one bucket that is the whole namespace; empty: each attached store is one.
    buckets: names of buckets and their paths, in the place of those.
    domain: where ``bucket.domain`` names a bucket too.
    metadata: GETs tell metadata and content type, for a HEAD of each object that is not known.
    spool: a folder for bodies that are long, and for parts; empty: in the cache's folder.
    """

    address: Address = field(default_factory=Address)
    keys: tuple[Key, ...] = ()
    processes: int = 1
    tree: str = ""
    buckets: Mapping[str, str] = field(default_factory=dict[str, str])
    domain: str = ""
    metadata: bool = False
    spool: str = ""
