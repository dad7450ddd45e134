"""Models served on a cluster: ``headrace serve`` processes, placed, watched and scaled. No request passes through Ray.

See ../README.md. Ray is imported when something is asked of it.
"""

from headrace.cluster.serving.listing import all_listings, read_listing, ready_urls
from headrace.cluster.serving.scaling import Scale
from headrace.cluster.serving.service import SEND, FollowingService, restart, serve, services, stop
from headrace.cluster.serving.spec import ServiceSpec
from headrace.cluster.serving.told import ReplicaTold, ServiceTold
from headrace.cluster.serving.upstreams import Upstreams

__all__ = [
    "SEND", "FollowingService", "ReplicaTold", "Scale", "ServiceSpec", "ServiceTold", "Upstreams", "all_listings",
    "read_listing", "ready_urls", "restart", "serve", "services", "stop",
]  # fmt: skip
