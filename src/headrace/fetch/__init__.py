"""Reading object versions: concurrency that finds its level, one memory budget, hedging, through the node's cache."""

from headrace.fetch.answer import without_etag
from headrace.fetch.fetcher import Fetcher, FetchStats, default_fetcher
from headrace.fetch.read import Read, Sink, Ticket
from headrace.fetch.straight import Straight

__all__ = ["FetchStats", "Fetcher", "Read", "Sink", "Straight", "Ticket", "default_fetcher", "without_etag"]
