"""Several processes on one address."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.base.errors import InputError
from headrace.http_server import Address, Exchange, Processes, Response, Whole
from tests.http_server_kit import Client, until


class Named:
    """Answers with its process."""

    def __init__(self, word: str) -> None:
        if word == "bad":
            raise InputError("this application cannot be made")
        self.word = word

    def head(self, exchange: Exchange) -> Whole:
        return Whole()

    def arrived(self, exchanges: Sequence[Exchange]) -> None:
        for one in exchanges:
            one.answer(Response(200, [], f"{self.word} {os.getpid()}".encode()))


def named(word: str) -> Named:
    return Named(word)


def ask(processes: Processes) -> str:
    with Client(processes) as client:  # type: ignore[arg-type]
        return client.get("/")[2].decode()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_all_answer_and_one_that_dies_is_started_again() -> None:
    with Processes(functools.partial(named, "hello"), count=2) as processes:
        pids = processes.pids
        seen: set[str] = set()
        until(lambda: seen.add(ask(processes)) or len(seen) == 2)
        assert seen == {f"hello {pid}" for pid in pids}
        with pytest.raises(InputError):
            Processes(functools.partial(named, "x"), processes.address, count=2)
        os.kill(pids[0], signal.SIGKILL)
        until(lambda: processes.pids[0] != pids[0] and alive(processes.pids[0]))
        again = f"hello {processes.pids[0]}"
        until(lambda: ask(processes) == again)
        assert processes.drain(5)
    assert not any(alive(pid) for pid in [*pids, *processes.pids])


def test_a_unix_socket_that_they_share(tmp_path: Path) -> None:
    import socket

    address = Address(unix=str(tmp_path / "s"))
    with Processes(functools.partial(named, "hi"), address, count=2), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / "s"))
        client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert b"hi " in client.recv(1000)
    assert not (tmp_path / "s").exists()


def test_an_application_that_cannot_be_made_is_told() -> None:
    with pytest.raises(InputError, match="cannot be made"):
        Processes(functools.partial(named, "bad"), count=2).start()
    with pytest.raises(InputError, match="in another process"):
        Processes(lambda: Named("x"), count=1)


def test_they_go_with_their_parent() -> None:
    program = (
        "import functools, os, time; from headrace.http_server import Processes; "
        "from tests.unit.test_http_server_processes import named; "
        "p = Processes(functools.partial(named, 'x'), count=2).start(); print(*p.pids, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(one) for one in parent.stdout.readline().split()]
        assert len(pids) == 2
        parent.kill()
    until(lambda: not any(alive(pid) for pid in pids))
