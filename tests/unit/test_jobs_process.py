"""What a command writes is passed on to its last byte, however the threads of its runner are held up."""

from __future__ import annotations

import os
import select
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.jobs import Exit, Invocation, Process, process


def test_what_is_written_while_its_reader_is_held_up_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that has seen nothing yet is held up until the command has written, and has ended."""
    looked, ended = threading.Event(), threading.Event()

    def late(reads: list[int], *others: Any) -> Any:
        found = select.select(reads, *others)
        if not found[0] and threading.current_thread() is not threading.main_thread():
            looked.set()
            assert ended.wait(30)
        return found

    monkeypatch.setattr(process, "select", SimpleNamespace(select=late))
    said: dict[str, bytes] = {"stdout": b"", "stderr": b""}

    def output(stream: str, data: bytes) -> None:
        said[stream] += data

    argv = ("sh", "-c", "until [ -e go ]; do sleep 0.01; done; echo out; echo err >&2")
    attempt = Process(Invocation(argv, dict(os.environ), str(tmp_path)), output)
    wake = os.eventfd(0)
    try:
        assert looked.wait(30)
        (tmp_path / "go").touch()
        assert attempt.wait(30, wake) == Exit(0)
        ended.set()
    finally:
        attempt.close()
        os.close(wake)
    assert said == {"stdout": b"out\n", "stderr": b"err\n"}
