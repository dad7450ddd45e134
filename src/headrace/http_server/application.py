"""What an application is, and how it takes a request's body as it comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace.http_server.exchange import Exchange
from headrace.http_server.messages import Response, Whole


@dataclass(frozen=True, slots=True)
class Streamed:
    """Run `start` on one of the server's threads, at once; it reads `exchange.stream` and answers."""

    start: Callable[[Exchange], None]


class Application(Protocol):
    """What answers. Both calls come on the loop, so neither may wait for anything."""

    def head(self, exchange: Exchange) -> Whole | Streamed | Response:
        """A head is complete: what to do with the body, or the answer already."""
        ...

    def arrived(self, exchanges: Sequence[Exchange]) -> None:
        """All that became whole with one poll of the sockets. Each is to be answered once, here or by any thread."""
        ...
