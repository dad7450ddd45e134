"""Loaded by every Python of a `LocalCluster`'s head, as Python's `site` describes: ports for Ray's client servers.

Ray gives each client a server of its own. It takes the first free port from 23000 on, some seconds before the server
listens: two clusters on one machine take the same one, and since gRPC shares ports, both servers get it. A client of
one cluster then meets the other's server, and is refused after 30 seconds.
"""

import sys

if sys.orig_argv[1:3] == ["-m", "ray.util.client.server"] and "--mode=proxy" in sys.orig_argv:
    from ray.util.client.server.proxier import ProxyManager  # pyright: ignore

    from headrace.base.ports import reserve_port

    def _unused_port(_manager: object, _family: object = None) -> int:
        return reserve_port("0.0.0.0")  # noqa: S104 - nothing is bound

    ProxyManager._get_unused_port = _unused_port
