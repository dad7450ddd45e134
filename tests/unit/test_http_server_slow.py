"""Clients that are slow, do not read, or go; ends of a server with work under way; nothing left of any of it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.base.errors import InputError, TryAgainError, UnreachableError
from headrace.http_server import Address, Limits, Response, Server, Stream
from headrace.http_server.outgoing import FromStream
from tests.http_server_kit import PLAIN, Client, Rig, serving, until

QUICK = Limits(head_s=0.2, body_s=0.2, write_s=0.2, linger_s=0.2)
UP = b"PUT /%s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"


def test_a_slow_head_is_told_so() -> None:
    with serving(limits=QUICK) as (_, server), Client(server) as client:
        client.send(b"GET /echo HT")
        status, headers, _ = client.answer()
        assert (status, headers["connection"]) == (408, "close")
        assert client.ended()


def test_dripping_bytes_do_not_keep_a_head_alive() -> None:
    with serving(limits=QUICK) as (_, server), Client(server) as client:
        client.sock.settimeout(0.05)
        sent, told = 0, b""
        while not told and sent < 400:
            client.send(b"G"[: not sent] or b"ET /"[sent - 1 : sent] or b"a")
            sent += 1
            try:
                told = client.sock.recv(100)
            except TimeoutError:
                continue
        assert told.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("path", [b"echo", b"up"])
def test_a_slow_body_is_told_so(path: bytes) -> None:
    with serving(limits=QUICK) as (rig, server), Client(server) as client:
        client.send(UP % (path, 10) + b"some")
        assert client.answer()[0] == 408
        assert client.ended()
        if path == b"up":
            until(lambda: rig.failed)
            assert isinstance(rig.failed[0], TryAgainError)


def test_an_idle_connection_ends_and_one_that_waits_for_its_answer_does_not() -> None:
    limits = dataclasses.replace(QUICK, idle_s=0.5)
    with serving(limits=limits) as (rig, server), Client(server) as waiting:
        waiting.send(b"GET /later HTTP/1.1\r\nHost: a\r\n\r\n")
        until(lambda: rig.held)
        idle = Client(server)
        assert idle.ended()
        assert server.connections == 1
        rig.held[0].answer(Response(200, PLAIN, b"late"))
        assert waiting.answer()[2] == b"late"
        idle.close()


def test_a_client_that_reads_nothing_is_cut_and_costs_bounded_memory() -> None:
    limits = Limits(write_s=0.3, ahead=1 << 20)
    with serving(limits=limits) as (rig, server), Client(server, buffer=65536) as client:
        client.send(b"GET /stream/100000 HTTP/1.1\r\nHost: a\r\n\r\n")
        until(lambda: rig.pulled)
        until(lambda: server.connections == 0)
        until(lambda: rig.closed == 1)
        assert rig.pulled * 65536 < 20 << 20  # what is ahead, and what the kernel holds for both


def test_a_body_that_nobody_takes_waits_in_the_clients_socket() -> None:
    with serving(limits=Limits(ahead=1 << 20)) as (rig, server), Client(server) as client:
        size = 64 << 20
        client.send(UP % (b"slow-up", size))
        client.sock.settimeout(0.5)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < size:
                sent += client.sock.send(bytes(min(1 << 20, size - sent)))
        assert sent < 30 << 20
        client.sock.settimeout(20)
        rig.go.set()
        client.send(bytes(size - sent))
        assert client.answer()[2] == str(size).encode()


def test_a_slow_reader_gets_a_whole_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(os.urandom(20 << 20))
    with serving(Rig(file=str(tmp_path / "file"))) as (rig, server), Client(server, buffer=32768) as client:
        client.send(b"GET /file HTTP/1.1\r\nHost: a\r\n\r\nGET /echo HTTP/1.1\r\nHost: a\r\n\r\n")
        assert client.answer()[2] == (tmp_path / "file").read_bytes()
        assert client.answer()[0] == 200
        until(lambda: rig.released == 1)


def test_one_that_reads_nothing_holds_up_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(50 << 20))
    with serving(Rig(file=str(tmp_path / "file"))) as (rig, server), Client(server, buffer=4096) as stuck:
        stuck.send(b"GET /file HTTP/1.1\r\nHost: a\r\n\r\n")
        stuck.sock.recv(1)
        with Client(server) as other:
            assert all(other.get("/echo")[0] == 200 for _ in range(10))
        stuck.close()
        until(lambda: rig.released == 1)


def reset(client: Client) -> None:
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


@pytest.mark.parametrize("leave", [Client.close, reset])
def test_a_client_that_goes_is_noticed_whatever_is_under_way(tmp_path: Path, leave: object) -> None:
    (tmp_path / "file").write_bytes(bytes(50 << 20))
    with serving(Rig(file=str(tmp_path / "file"))) as (rig, server):
        told: list[str] = []
        for path in (b"later", b"file", b"stream/100000", b"slow-up", b"half"):
            client = Client(server, buffer=4096)
            if path == b"half":
                client.send(b"GET /ha")
            elif path == b"slow-up":
                client.send(UP % (path, 100) + b"some")
            else:
                client.send(b"GET /%s HTTP/1.1\r\nHost: a\r\n\r\n" % path)
                if path != b"later":
                    client.sock.recv(1)
                if path.startswith(b"stream"):
                    until(lambda: rig.pulled)  # its head comes first: an iterator that has not begun notices no end
            until(lambda: server.connections == 1)
            if path == b"later":
                until(lambda: rig.held)
                rig.held[0].when_gone(lambda: told.append("gone"))
            leave(client)  # type: ignore[operator]
            until(lambda: server.connections == 0)
        rig.go.set()
        until(lambda: (rig.released, rig.closed, len(rig.failed)) == (1, 1, 1))
        assert isinstance(rig.failed[0], UnreachableError)
        until(lambda: told)
        late: list[int] = []
        rig.held[0].when_gone(lambda: late.append(1))
        assert late == [1]
        assert rig.held[0].gone
        rig.held[0].answer(Response(200))  # goes nowhere
        with Client(server) as client:
            assert client.get("/echo")[0] == 200


def test_more_connections_than_allowed_wait_and_idle_ones_make_room() -> None:
    with serving(limits=Limits(connections=2, idle_s=60)) as (rig, server):
        first, second = Client(server), Client(server)
        first.send(b"GET /later HTTP/1.1\r\nHost: a\r\n\r\n")
        until(lambda: rig.held)
        second.get("/echo")
        third = Client(server)
        assert third.get("/echo")[0] == 200
        assert second.ended()
        third.send(b"GET /later HTTP/1.1\r\nHost: a\r\n\r\n")
        until(lambda: len(rig.held) == 2)
        fourth = Client(server)
        fourth.send(b"GET /echo HTTP/1.1\r\nHost: a\r\n\r\n")
        rig.held[0].answer(Response(200, close=True))
        assert first.answer()[0] == 200
        assert fourth.answer()[0] == 200
        for one in (first, second, third, fourth):
            one.close()


def test_a_drain_answers_what_is_under_way_and_ends() -> None:
    with serving() as (rig, server), Client(server) as busy, Client(server) as idle, Client(server) as fresh:
        busy.send(b"GET /later/1 HTTP/1.1\r\nHost: a\r\n\r\n")
        idle.get("/echo")
        until(lambda: rig.held)
        drained: list[bool] = []
        thread = threading.Thread(target=lambda: drained.append(server.drain(20)))
        thread.start()
        assert idle.ended()
        assert fresh.get("/echo")[1]["connection"] == "close"
        with pytest.raises(ConnectionRefusedError):
            Client(server)
        rig.held[0].answer(Response(200, PLAIN, b"done"))
        _, headers, body = busy.answer()
        assert (headers["connection"], body) == ("close", b"done")
        thread.join()
        assert drained == [True]


def test_a_drain_has_an_end() -> None:
    with serving() as (rig, server), Client(server) as busy:
        busy.send(b"GET /later/1 HTTP/1.1\r\nHost: a\r\n\r\n")
        until(lambda: rig.held)
        assert not server.drain(0.1)
        assert busy.ended()
        assert rig.held[0].gone


def test_nothing_is_left_open(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(5 << 20))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with serving(Rig(file=str(tmp_path / "file"))) as (_, server):
            clients = [Client(server) for _ in range(10)]
            for client in clients:
                client.send(b"GET /file HTTP/1.1\r\nHost: a\r\n\r\nGET /later HTTP/1.1\r\nHost: a\r\n\r\n")
            clients[0].answer()
            server.close()
            for client in clients:
                client.close()
    Server(Rig()).close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_address_that_is_taken_is_an_error_with_its_name(tmp_path: Path) -> None:
    with serving() as (_, server), pytest.raises(InputError, match=str(server.address.port)):
        Server(Rig(), Address(port=server.address.port))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError, match="a file of that name"):
        Server(Rig(), Address(unix=str(tmp_path / "file")))


def test_limits_above_zero() -> None:
    with pytest.raises(InputError, match="'depth'"):
        Limits(depth=0)


def test_a_stream_that_was_quiet_and_then_blocks_has_its_whole_time() -> None:
    """The client is given time from when the socket is full, not from when the answer began."""
    full = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield b"first"
        time.sleep(1.2)  # longer than a client may take nothing
        full.set()
        yield bytes(16 << 20)

    with serving(limits=Limits(write_s=1.0, linger_s=0.2)) as (rig, server), Client(server, buffer=65536) as client:
        client.send(b"GET /later HTTP/1.1\r\nHost: a\r\n\r\n")
        until(lambda: rig.held)
        rig.held[0].answer(Response(200, PLAIN, Stream(pieces(), 5 + (16 << 20))))
        assert client._until(b"first").endswith(b"\r\n\r\n")
        assert full.wait(20)
        time.sleep(0.2)  # some sweeps look at it
        assert client._take(16 << 20) == bytes(16 << 20)


def test_uploads_that_wait_hold_up_no_stream() -> None:
    with serving(limits=Limits(threads=1)) as (_, server), Client(server) as slow, Client(server, 5) as other:
        slow.send(UP % (b"slow-up", 10) + b"some")
        assert len(other.get("/stream/2")[2]) == 2 * 65536


def test_what_is_sent_while_a_pull_ends_is_pulled_for() -> None:
    """The client takes all that is held between a pull's last look and its end: another pull must follow."""
    here, there = socket.socketpair()
    tasks: list[Callable[[], None]] = []

    class Sent(FromStream):
        def _take(self) -> bool:
            more = super()._take()
            if not more:
                self.send(here)
            return more

    with here, there:
        stream = Stream(iter([b"one", b"two"]), 6)
        outgoing = Sent(b"head", stream, chunked=False, ahead=1, work=tasks.append, wake=lambda: None)
        while tasks:
            tasks.pop()()
        assert outgoing.send(here)
        assert there.recv(100) == b"headonetwo"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_server_that_failed_says_so() -> None:
    def fail() -> None:
        raise RuntimeError("the loop fails")

    with serving() as (_, server):
        assert not server.failed
        server._loop.call(fail)
        assert server.wait(20)
        assert server.failed
