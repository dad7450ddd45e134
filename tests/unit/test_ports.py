"""A reserved port goes to the server that was told of it, and to nobody else."""

from __future__ import annotations

import socket

import pytest

from headrace.base import ports
from headrace.base.ports import reserve_port


@pytest.fixture(params=["outside", "given"])
def places(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where ports come from: beside those that the kernel gives away, and, where there is no room, from them."""
    if request.param == "given":
        monkeypatch.setattr(ports, "_outside", lambda: range(0))


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1"])
def test_a_server_gets_it_and_nobody_else(places: None, host: str) -> None:
    reserved = [reserve_port(host) for _ in range(50)]
    assert len(set(reserved)) == 50
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in reserved:
        with socket.socket(family) as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind((host, port))
        with socket.create_server((host, port), family=family) as server:
            assert server.getsockname()[1] == port


def test_who_asks_for_any_port_never_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_outside", lambda: range(0))
    reserved = {reserve_port() for _ in range(300)}
    for _ in range(3000):
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            assert one.getsockname()[1] not in reserved


def test_one_for_all_addresses_is_used_at_none(monkeypatch: pytest.MonkeyPatch) -> None:
    free = reserve_port("0.0.0.0")
    with socket.create_server(("127.0.0.9", 0)) as other:
        offered = iter([other.getsockname()[1], free - 1, free - 2, free - 3])
        monkeypatch.setattr(ports, "_outside", lambda: range(ports._ENOUGH))
        monkeypatch.setattr("random.choice", lambda _: next(offered))
        assert reserve_port("0.0.0.0") != other.getsockname()[1]
