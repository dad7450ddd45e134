"""What this node's cache keeps, for the nodes that a file names, as `headrace cache serve`: `share_cache`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headrace.base.errors import InputError, UnsupportedError
from headrace.base.settings import Settings
from headrace.fetch import Keepers
from headrace.namespace import Namespace

if TYPE_CHECKING:
    from headrace.cluster.peers import PeerServer


def share_cache(settings: Settings | None = None) -> tuple[str, PeerServer]:
    """Let the other nodes that the file `cache.peers` names read what this node keeps, until the server is closed.

    ``name, server = hr.cluster.share_cache()``, then ``with server: server.wait()``. It answers on threads of its own.

    Args:
        settings: whose cache is shared, and how stores are reached; None: `Settings.load`.

    Returns:
        What the file calls this node, and the server.

    Raises:
        UnsupportedError: a library is missing. InputError: no file is named, or as `PeerServer`. As `Keepers.load`.
    """
    if find_spec("httptools") is None:
        raise UnsupportedError("sharing a cache needs httptools", hint="pip install 'headrace[gateway]'")
    from headrace.cluster.peers import PeerServer
    from headrace.http_server import Address

    found = settings or Settings.load()
    if not found.cache.peers:
        hint = "HEADRACE_CACHE_PEERS; see docs/guides/scale.md, Caches that share"
        raise InputError("no file names the nodes that share their caches", hint=hint)
    keepers = Keepers.load(found.cache.peers)
    where = urlsplit(keepers.nodes[keepers.here])
    server = PeerServer(found, Namespace.load(found), Address(where.hostname or "", where.port or 0))
    server.start(keepers.token)
    return keepers.here, server
