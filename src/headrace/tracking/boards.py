"""Event files of runs, brought from the bucket into a local folder and kept current: what TensorBoard looks at.

    <folder>/<run id>/<path below outputs/>          the job's own event files, byte for byte
    <folder>/<run id>/events.out.tfevents.0.headrace  what it logged by `hr.log`, and the machine's figures

Of a run that writes event files of its own, the latter holds the machine's figures only: its scalars are metrics, too.
A look costs one listing for every thousand objects in ``outputs/``, and one ranged GET for what a file has grown; runs
that are over are read once. All from one thread.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from headrace.base.errors import ChangedError, CorruptError, HeadraceError, InputError, NotFoundError
from headrace.store.protocol import ObjectInfo
from headrace.tracking.event_writer import EventWriter
from headrace.tracking.events import MARK
from headrace.tracking.mlflow_form import millis
from headrace.tracking.points import Point
from headrace.tracking.record import FINAL
from headrace.tracking.reporter import is_ours
from headrace.tracking.runs import LOST_S, Run

LOOK_S: Final = 5.0
"""Seconds between two looks at a run, for every page its listing has."""
_OVERLAP: Final = 64
"""Segments told once more: one may have come late."""
_PIECE_BYTES: Final = 8 << 20
"""Read of an event file at a time."""
_OURS: Final = "events.out.tfevents.0.headrace"
_MACHINE: Final = ("system/", "job/")


class BoardRun:
    """One run's part of the folder."""

    def __init__(self, run: Run, folder: str) -> None:
        self.run = run
        self.over = False
        self.files = 0
        """Event files of the job's own."""
        self.points = 0
        self._folder = os.path.join(folder, run.id)
        self._sizes: dict[str, int] = {}
        self._versions: dict[str, str] = {}
        self._writer: EventWriter | None = None
        self._segment = -1
        self._began_ms = millis(run.record().created)
        self._next_at = 0.0

    def look(self) -> None:
        """Bring what is new, if it is time to. Raises any store error."""
        if self.over or time.monotonic() < self._next_at:
            return
        over = self._is_over()  # asked before: what was there when it ended is brought
        pages = self._bring_files()
        self._bring_points()
        self.over = over
        self._next_at = time.monotonic() + LOOK_S * max(1, pages)

    def _is_over(self) -> bool:
        lease = self.run.lease()
        if lease is None or lease[0].state in FINAL or time.time() - lease[1].mtime_us / 1e6 > LOST_S:
            return self.run.look().over
        return False

    # event files

    def _bring_files(self) -> int:
        start, pages = f"{self.run.prefix}outputs/", 0
        for page in self.run.store.list(start):
            pages += 1
            for info in page:
                name = info.key.removeprefix(start)
                if MARK in name.rpartition("/")[2] and _inside(name) and self._versions.get(name) != info.version:
                    self._bring(name, info)
        self.files = len(self._versions)
        return pages

    def _bring(self, name: str, info: ObjectInfo) -> None:
        """What a file has grown by; all of it, where it is another."""
        path, have = os.path.join(self._folder, name), self._sizes.get(name, 0)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            if have and not (info.size >= have and self._same_end(path, info, have)):
                have = 0
            with open(path, "r+b" if have else "wb") as file:
                file.seek(have)
                for data in _pieces(self.run, info, have):
                    file.write(data)
                    have += len(data)
        except (ChangedError, NotFoundError):
            return  # the next look sees it
        finally:
            self._sizes[name] = have
        self._versions[name] = info.version

    def _same_end(self, path: str, info: ObjectInfo, have: int) -> bool:
        """Whether the object goes on from what is here."""
        start = max(0, have - _OVERLAP)
        with open(path, "rb") as file:
            file.seek(start)
            here = file.read(have - start)
        return bytes(self.run.store.get(info.key, start, have, if_match=info.etag).data) == here

    # what was logged otherwise

    def _bring_points(self) -> None:
        from headrace.tracking.reading import read_segments

        with suppress(CorruptError):
            for number, table in read_segments(self.run.store, f"{self.run.prefix}metrics/", after=self._segment):
                columns = table.select(["time", "name", "value", "step", "rank"]).columns
                rows = zip(columns[0].cast("int64").to_pylist(), *(one.to_pylist() for one in columns[1:]), strict=True)
                self.points += self._write(Point(*row) for row in rows)
                self._segment = number

    def _write(self, points: Iterator[Point]) -> int:
        wanted = [self._stepped(one) for one in points if self._wants(one.name)]
        if not wanted:
            return 0
        if self._writer is None:
            os.makedirs(self._folder, exist_ok=True)
            self._writer = EventWriter(os.path.join(self._folder, _OURS))
        return self._writer.add(wanted)

    def _wants(self, name: str) -> bool:
        return name.startswith(_MACHINE) or not (self.files or is_ours(name))

    def _stepped(self, one: Point) -> Point:
        step = one.step if one.step is not None else max(0, (one.time_us // 1000 - self._began_ms) // 1000)
        return one._replace(name=one.name if one.rank == 0 else f"rank_{one.rank}/{one.name}", step=step)


class Board:
    """The folder of several runs. `told`: gets a line when a run cannot be read, once."""

    def __init__(self, runs: list[Run], folder: str, told: Callable[[str], None]) -> None:
        self.runs = [BoardRun(run, folder) for run in runs]
        self._tell = told
        self._told: set[str] = set()

    def look(self) -> float:
        """Bring what is new of each run; seconds until that is worth doing again."""
        for one in self.runs:
            try:
                one.look()
                self._told.discard(one.run.id)
            except InputError:
                raise
            except HeadraceError as error:
                if one.run.id not in self._told:
                    self._told.add(one.run.id)
                    self._tell(f"{one.run.id} cannot be read, and is tried again: {error}")
        return 1.0 if any(not one.over for one in self.runs) else LOOK_S


def _inside(name: str) -> bool:
    """Keys are any text: none leads out of the folder."""
    return not name.startswith("/") and not {"", ".", ".."} & set(name.split("/")) and "\0" not in name


def _pieces(run: Run, info: ObjectInfo, at: int) -> Iterator[memoryview]:
    while at < info.size:
        data = run.store.get(info.key, at, min(info.size, at + _PIECE_BYTES), if_match=info.etag).data
        yield data
        at += len(data)
