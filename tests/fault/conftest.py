from __future__ import annotations

from collections.abc import Iterator

import pytest

from .scripted import Answer, ScriptedServer, Start, WireStore


@pytest.fixture
def start() -> Iterator[Start]:
    servers: list[ScriptedServer] = []

    def begin(answer: Answer) -> tuple[ScriptedServer, WireStore]:
        server = ScriptedServer(answer)
        servers.append(server)
        return server, WireStore(server.port)

    yield begin
    for server in servers:
        server.close()
