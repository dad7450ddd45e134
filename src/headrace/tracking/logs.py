"""What a command wrote, as it came, with the time it came, in immutable segments.

    logs/<stream>/<seq>.zst     one zstd frame of JSON lines: {"format": 1, "stream", "line": how many lines were
                                ended before it}, then
                                {"t": microseconds since the epoch, "text": whole lines, or the last one so far},
                                and "rank": which process of a gang wrote them, where there is one

A text that does not end in a newline is the last line as it stood when the segment was closed: what comes next begins
with that line again, and takes its place. So progress bars, which rewrite their line with carriage returns, cost one
line a segment. Bytes that are no UTF-8 are kept as lone surrogates (``surrogateescape``).
"""

from __future__ import annotations

import heapq
import io
import json
import logging
import os
import re
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, BinaryIO, Final, NamedTuple

import pyarrow as pa

from headrace.base.errors import CorruptError, NotFoundError, UnsupportedError
from headrace.base.threads import REQUESTS_AT_ONCE, Threads
from headrace.store.protocol import Store

_log = logging.getLogger("headrace.tracking")
FORMAT: Final = 1
STREAMS: Final = ("stdout", "stderr", "headrace")
"""``headrace`` is what the runner has to say. On a terminal all of the command's output is ``stdout``."""
_OVERWRITTEN = re.compile(rb"(?m)^[^\n]*\r++(?!\n)")
_ENDS = re.compile(rb"\r+\n")
_LONGEST = 64 << 10
"""Bytes of a line that are held until its end comes."""
_PIECE_BYTES = 4096
"""Of a broken segment: what can be read is read so, then byte by byte."""


class LogWriter:
    """Writes one stream below a local folder, from where it is sent. `feed` and `close_segment` from any thread.

    A full disk keeps nothing from going on: what cannot be written is left out, and told once.

    Args:
        folder: ``logs`` of a run; made if need be.
        stream: its name.
        on_text: is told all whole lines, as bytes.
    """

    def __init__(self, folder: str, stream: str, on_text: Callable[[bytes], None] | None = None) -> None:
        self.folder = os.path.join(folder, stream)
        self.stream = stream
        self._on_text = on_text
        self._lock = threading.Lock()
        self._rest = self._shown = b""
        self._seq = self._ended = 0
        self._file: _Segment | None = None
        self.lost = 0
        """Bytes that could not be written."""

    def feed(self, data: bytes) -> None:
        """Bytes as they came."""
        with self._lock:
            self._rest += data
            cut = self._rest.rfind(b"\n") + 1
            if not cut and len(self._rest) > _LONGEST:
                self._rest = _OVERWRITTEN.sub(b"", self._rest)
                cut = len(self._rest) if len(self._rest) > _LONGEST else 0
            if not cut:
                return
            whole = as_lines(self._rest[:cut])
            self._rest, self._shown = self._rest[cut:], b""
            self._write(whole)
        if self._on_text is not None:
            self._on_text(whole)

    def feed_lines(self, lines: bytes, rank: int) -> None:
        """Whole lines (`as_lines`) of one process of a gang. Not together with `feed`."""
        with self._lock:
            self._write(lines, rank)
        if self._on_text is not None:
            self._on_text(lines)

    def flush(self) -> None:
        """What was fed is on the disk, should this process be killed: `salvage` finds it."""
        with self._lock:
            if self._file is not None:
                try:
                    self._file.flush()
                except OSError:
                    return  # the disk is full: told when the segment is closed

    def close_segment(self, *, last: bool = False) -> None:
        """What was fed can be sent. `last`: nothing more will come, so a line without an end is one."""
        with self._lock:
            pieces = [piece for piece in self._rest.split(b"\r") if piece]
            if pieces and (last or pieces[-1] != self._shown):
                self._shown = pieces[-1]
                self._write(pieces[-1] + (b"\n" if last else b""))
            if last:
                self._rest = b""
            if self._file is not None:
                segment, self._file = self._file, None
                self._seq += 1
                try:
                    segment.publish()
                except OSError as error:
                    self._tell_lost(segment.bytes, error)

    def _write(self, text: bytes, rank: int | None = None) -> None:
        try:
            if self._file is None:
                os.makedirs(self.folder, exist_ok=True)
                self._file = _Segment(os.path.join(self.folder, f"{self._seq:08d}.zst"), self.stream, self._ended)
            self._ended += text.count(b"\n")
            self._file.add(text, rank)
        except OSError as error:
            self._tell_lost(len(text), error)

    def _tell_lost(self, size: int, error: OSError) -> None:
        if not self.lost:
            _log.warning("%s: what the command writes cannot be recorded: %s", self.stream, error.strerror or error)
        self.lost += size


class _Segment:
    """One file, under a name that is not sent until `publish`."""

    def __init__(self, path: str, stream: str, line: int) -> None:
        self._path = path
        self._raw: BinaryIO = open(f"{path}.tmp", "wb", buffering=0)  # noqa: SIM115
        self._out = pa.CompressedOutputStream(self._raw, "zstd")
        self.bytes = 0
        self._line({"format": FORMAT, "stream": stream, "line": line})

    def add(self, text: bytes, rank: int | None) -> None:
        self.bytes += len(text)
        told = {"t": time.time_ns() // 1000, "text": text.decode("utf-8", "surrogateescape")}
        self._line(told if rank is None else {**told, "rank": rank})

    def flush(self) -> None:
        if self._dirty:
            self._dirty = False
            self._out.flush()

    def publish(self) -> None:
        self._out.close()
        if not self._raw.closed:
            self._raw.close()
        os.rename(f"{self._path}.tmp", self._path)

    def _line(self, entry: dict[str, Any]) -> None:
        self._out.write(json.dumps(entry).encode("ascii") + b"\n")
        self._dirty = True


def as_lines(data: bytes) -> bytes:
    """As whole lines, what was overwritten by carriage returns left out; a last line without an end is given one."""
    if b"\r" in data:
        data = _ENDS.sub(b"\n", _OVERWRITTEN.sub(b"", data))
    return data if data.endswith(b"\n") else data + b"\n"


def salvage(folder: str) -> None:
    """Make segments of those that a killed writer has left open: of all whole entries. Raises OSError: the disk."""
    for root, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(root, name)
            if not re.fullmatch(r"\d{8}\.zst\.tmp", name) or os.path.exists(path[:-4]):
                continue
            found = _readable(path)
            if found.count(b"\n") > 1:
                with pa.CompressedOutputStream(f"{path[:-4]}.whole.tmp", "zstd") as file:
                    file.write(found)
                os.rename(f"{path[:-4]}.whole.tmp", path[:-4])
            os.unlink(path)


def _readable(path: str) -> bytes:
    """The whole lines of a frame without an end. A read that meets the break gives nothing: the last are short."""
    found = bytearray()
    for size in (_PIECE_BYTES, 1):
        with suppress(OSError), pa.CompressedInputStream(path, "zstd") as file:
            for at in range(0, len(found), _PIECE_BYTES):
                file.read(min(_PIECE_BYTES, len(found) - at))
            while piece := file.read(size):
                found += piece
    return bytes(found[: found.rfind(b"\n") + 1])


@dataclass(frozen=True, slots=True)
class Line:
    """One line, without its end. `time_us`: microseconds since the epoch; `over`: False, it may still change; `rank`:
    which process of a gang wrote it.
    """

    time_us: int
    stream: str
    text: str
    over: bool = True
    rank: int | None = None

    @property
    def labelled(self) -> str:
        """The text, behind the rank if there is one: ``[3] loss 0.2``."""
        return self.text if self.rank is None else f"[{self.rank}] {self.text}"


class Piece(NamedTuple):
    """Some lines of a segment, as they came together. `time_us`: microseconds since the epoch."""

    time_us: int
    text: str
    rank: int | None


class LogReader:
    """Reads the logs of a run from the bucket; one thread.

    Args:
        store: where it is.
        prefix: ``<home>/runs/<id>/logs/``.
        streams: which.
    """

    def __init__(self, store: Store, prefix: str, streams: tuple[str, ...] = STREAMS) -> None:
        self._store, self._prefix = store, prefix
        self._next = dict.fromkeys(streams, 0)

    def read(self) -> Iterator[Line]:
        """All that is there and was not read yet, by time. Raises any store error, CorruptError, UnsupportedError."""
        with Threads(REQUESTS_AT_ONCE, thread_name_prefix="headrace-logs") as pool:
            streams = [self._lines(pool, stream, seqs) for stream, seqs in self._there().items()]
            yield from _by_time(streams)

    def poll(self) -> list[Line]:
        """As `read`, by asking for the next segment of each stream: no listing."""
        found: list[list[Line]] = [[] for _ in self._next]
        for stream, lines in zip(self._next, found, strict=True):
            with suppress(NotFoundError):
                for _ in range(REQUESTS_AT_ONCE):
                    lines += self._segment(stream, self._next[stream])
        return list(_by_time(found))

    def tail(self, count: int) -> list[Line]:
        """The last `count` lines; what came before counts as read."""
        found: list[list[Line]] = []
        for stream, seqs in self._there().items():
            lines: list[Line] = []
            while seqs and sum(line.over for line in lines) < count:
                lines = self._segment(stream, seqs.pop()) + lines
            if seqs:
                self._next[stream] = max(self._next[stream], seqs[-1] + 1)
            found.append(lines)
        return list(_by_time(found))[-count:] if count else []

    def _there(self) -> dict[str, list[int]]:
        """Segments that are there and not read, in order."""
        found: dict[str, list[int]] = {stream: [] for stream in self._next}
        for page in self._store.list(self._prefix):
            for info in page:
                stream, _, name = info.key[len(self._prefix) :].partition("/")
                if stream in found and re.fullmatch(r"\d{8}\.zst", name) and int(name[:8]) >= self._next[stream]:
                    found[stream].append(int(name[:8]))
        return {stream: sorted(seqs) for stream, seqs in found.items()}

    def _lines(self, pool: Threads, stream: str, seqs: list[int]) -> Iterator[Line]:
        ahead: deque[Future[list[Line]]] = deque()
        for seq in seqs:
            ahead.append(pool.submit(self._segment, stream, seq))
            if len(ahead) > REQUESTS_AT_ONCE:
                yield from ahead.popleft().result()
        for one in ahead:
            yield from one.result()

    def _segment(self, stream: str, seq: int) -> list[Line]:
        segment = read_segment(self._store, self._prefix, stream, seq)
        self._next[stream] = max(self._next[stream], seq + 1)
        return [line for _, line in segment.lines()]


def _by_time(streams: Iterable[Iterable[Line]]) -> Iterator[Line]:
    """Each stream in its own order, which no clock that was set back changes."""
    return heapq.merge(*streams, key=lambda line: line.time_us)


@dataclass(frozen=True, slots=True)
class Segment:
    """What one segment holds, as it came: a line is made when it is asked for, as an object a line takes five times the
    text. Frozen; any thread.

    `marks`: how many lines of the segment were ended before
    each piece, and at last before its end. `size`: characters. `first`: how many of the stream were ended before the
    segment; None: it does not tell.
    """

    stream: str
    pieces: tuple[Piece, ...]
    marks: tuple[int, ...]
    size: int
    first: int | None

    @property
    def count(self) -> int:
        """Its lines, with one at its end that is not ended."""
        return self.marks[-1] + bool(self.pieces and self.pieces[-1].text[-1:] not in ("", "\n"))

    def lines(self, start: int = 0) -> Iterator[tuple[int, Line]]:
        """Those from number `start` of the segment on, with their numbers. One that is not ended has the number of the
        line that follows.
        """
        at = max(0, bisect_left(self.marks, start) - 1)
        for (time_us, text, rank), mark in zip(self.pieces[at:], self.marks[at:], strict=False):
            *ended, rest = text.split("\n")
            for number, line in enumerate(ended[max(0, start - mark) :], max(start, mark)):
                yield number, Line(time_us, self.stream, line, rank=rank)
            if rest and mark + len(ended) >= start:
                yield mark + len(ended), Line(time_us, self.stream, rest, over=False, rank=rank)


def segments(store: Store, prefix: str, stream: str, *, after: int = -1) -> list[int]:
    """Numbers of a stream's segments above `after` below `prefix` (``<home>/runs/<id>/logs/``), in order: one listing.

    Raises any store error.
    """
    below = f"{prefix}{stream}/"
    start = f"{below}{after:08d}.zst" if after >= 0 else None
    names = (info.key[len(below) :] for page in store.list(below, start_after=start) for info in page)
    return sorted(int(name[:8]) for name in names if re.fullmatch(r"\d{8}\.zst", name))


def read_segment(store: Store, prefix: str, stream: str, seq: int) -> Segment:
    """One GET. Raises NotFoundError, any store error, CorruptError, UnsupportedError."""
    key = f"{prefix}{stream}/{seq:08d}.zst"
    try:
        with pa.CompressedInputStream(io.BytesIO(bytes(store.get(key).data)), "zstd") as file:
            head, *entries = [json.loads(line) for line in file.read().splitlines()]
        number = int(head["format"])
        pieces = tuple(Piece(int(entry["t"]), str(entry["text"]), entry.get("rank")) for entry in entries)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise CorruptError(f"is no segment of a log: {error}", path=key) from error
    if number > FORMAT:
        raise UnsupportedError(f"has format {number}, newer than this headrace knows", path=key, hint="update")
    marks = tuple(accumulate((text.count("\n") for _, text, _ in pieces), initial=0))
    return Segment(stream, pieces, marks, sum(len(text) for _, text, _ in pieces), head.get("line"))
