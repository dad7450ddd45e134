"""What a node has to tell who leads its gang, kept until that has asked and heard: lines, ends, notes, files, parts."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from headrace.cluster.told import Ended, News, Part, Text
from headrace.jobs import RunFolder
from headrace.tracking.logs import as_lines
from headrace.tracking.reporter import FACT
from headrace.tracking.spool import SUFFIX

_TICK_S: Final = 0.5  # seconds between looks for files, of which nobody tells
_MOST_TOLD: Final = 8 << 20
"""Bytes of lines and files in one answer, about."""
_MOST_HELD: Final = 64 << 20
"""Bytes of lines that wait to be told; a process that writes more waits."""
_LONGEST: Final = 64 << 10  # bytes of a line; a longer one is told in pieces


class Telling:
    """It. Any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._rests: dict[tuple[int, str], bytes] = {}
        self._texts: list[Text] = []
        self._held = 0
        self._notes: list[str] = []
        self._ended: list[Ended] = []
        self._parts: list[Part] = []
        self._handed: set[str] = set()
        self._last = News()
        self._forgets = False

    def sink(self, rank: int) -> Callable[[str, bytes], None]:
        """Where the output of a process goes."""
        return partial(self._output, rank)

    def note(self, text: str) -> None:
        with self._changed:
            if text:
                self._notes.append(text)
                self._changed.notify_all()

    def forget(self) -> None:
        """Nobody will ask: what comes is not kept, and nobody waits to tell it."""
        with self._changed:
            self._forgets = True
            self._changed.notify_all()

    def end(self, ended: Ended) -> None:
        """After the last of its output."""
        with self._changed:
            for (rank, stream), rest in list(self._rests.items()):
                if rank == ended.rank and rest:
                    self._add(Text(rank, stream, as_lines(rest)))
                    del self._rests[rank, stream]
            self._ended.append(ended)
            self._changed.notify_all()

    def part(self, part: Part) -> None:
        with self._changed:
            self._parts.append(part)
            self._handed.add(part.folder)
            self._changed.notify_all()

    def take(self, acknowledged: int, timeout: float, folder: RunFolder) -> News:
        """See `Node.news`."""
        with self._changed:
            if acknowledged < self._last.number:
                return self._last  # the answer was lost on its way
            self._forget(folder)
            until = time.monotonic() + timeout
            while True:
                files = _files(folder.at("spool"))
                if files or self._texts or self._notes or self._ended or self._parts:
                    break
                if not self._changed.wait(min(_TICK_S, max(0.0, until - time.monotonic()))) and (
                    time.monotonic() >= until
                ):
                    break
            texts, size = [], 0
            while self._texts and size < _MOST_TOLD:
                texts.append(self._texts.pop(0))
                size += len(texts[-1].lines)
            self._held -= size
            ended = () if self._texts else tuple(self._ended)
            self._last = News(
                self._last.number + 1, tuple(texts), files, tuple(self._notes), ended, tuple(self._parts),
                frozenset(_open(folder) - self._handed),
            )  # fmt: skip
            self._notes.clear()
            self._parts.clear()
            if ended:
                self._ended.clear()
            self._changed.notify_all()
            return self._last

    def _forget(self, folder: RunFolder) -> None:
        for name in self._last.files:
            with suppress(OSError):
                os.unlink(os.path.join(folder.at("spool"), name))

    def _output(self, rank: int, stream: str, data: bytes) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._held < _MOST_HELD or self._forgets)
            if self._forgets:
                return
            rest = self._rests.pop((rank, stream), b"") + data
            cut = len(rest) if len(rest) > _LONGEST else rest.rfind(b"\n") + 1
            if cut:
                self._add(Text(rank, stream, as_lines(rest[:cut])))
            if rest[cut:]:
                self._rests[rank, stream] = rest[cut:]

    def _add(self, text: Text) -> None:
        self._texts.append(text)
        self._held += len(text.lines)
        self._changed.notify_all()


def _files(spool: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    size = 0
    for name in sorted(os.listdir(spool)):
        if name.endswith((SUFFIX, FACT)) and size < _MOST_TOLD:
            with open(os.path.join(spool, name), "rb") as file:
                found[name] = file.read()
            size += len(found[name])
    return found


def _open(folder: RunFolder) -> set[str]:
    """Checkpoint folders in which there is anything."""
    root = folder.recorded("checkpoints")
    return {f"checkpoints/{one.name}" for one in os.scandir(root) if one.is_dir() and any(os.scandir(one.path))}
