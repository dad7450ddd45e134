"""Reading object versions: concurrency that finds its level, one memory budget, hedging, through the node's cache."""

from headrace.fetch.answer import without_etag
from headrace.fetch.direct import PART
from headrace.fetch.fetcher import Fetcher, FetchStats, default_fetcher
from headrace.fetch.keepers import Keepers
from headrace.fetch.peer import PATH as PEER_PATH
from headrace.fetch.pending import Pending
from headrace.fetch.read import Read, Sink, Ticket
from headrace.fetch.straight import Straight
from headrace.fetch.warming import Warmed, Warmer

__all__ = [
    "PART", "PEER_PATH", "FetchStats", "Fetcher", "Keepers", "Pending", "Read", "Sink", "Straight", "Ticket", "Warmed",
    "Warmer", "default_fetcher", "without_etag",
]  # fmt: skip
