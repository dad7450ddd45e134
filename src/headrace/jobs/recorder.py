"""What a run leaves while its command runs, made into segments in the run's folder, from where they are sent."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from headrace.jobs.measuring import Measuring
from headrace.tracking.logs import LogWriter

_log = logging.getLogger("headrace.jobs")
LOGS_S: Final = 5.0
"""How often a segment of a log is closed: with what sending takes, who follows is less than ten seconds behind."""
_TICK_S = 0.5  # seconds between looks for what is there


class Recorder:
    """Passes on what the command writes, and records it. `output` from any thread; `close` after the last of it.

    Args:
        logs: the folder of the segments.
        passing: descriptors for ``stdout`` and ``stderr`` here; None: nobody looks.
        on_text: told whole lines of the command.
        quiet: `note` goes to the log only.
        measuring: what makes segments of metrics, on the same thread.
    """

    def __init__(
        self,
        logs: str,
        passing: tuple[int, int] | None,
        on_text: Callable[[bytes], None] | None = None,
        *,
        quiet: bool = False,
        measuring: Measuring,
    ) -> None:
        self._measuring = measuring
        self._quiet = quiet
        self._passing = dict(zip(("stdout", "stderr"), passing, strict=True)) if passing is not None else {}
        self._writers = {stream: LogWriter(logs, stream, on_text) for stream in ("stdout", "stderr")}
        self._own = LogWriter(logs, "headrace")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="headrace-run-recorder", daemon=True)

    def start(self) -> None:
        """Begin to close segments."""
        self._thread.start()

    def output(self, stream: str, data: bytes) -> None:
        """What the command wrote. Raises BrokenPipeError: who looked at it here has gone."""
        try:
            if stream in self._passing:
                _write_all(self._passing[stream], data)
        finally:
            self._writers[stream].feed(data)

    def lines(self, rank: int, stream: str, lines: bytes) -> None:
        """Whole lines that one process of a gang wrote."""
        if stream in self._passing:
            mark = b"[%d] " % rank
            with suppress(OSError):  # nobody looks any more: the gang goes on
                _write_all(self._passing[stream], b"".join(mark + line for line in lines.splitlines(keepends=True)))
        self._writers[stream].feed_lines(lines, rank)

    def note(self, text: str) -> None:
        """A line of headrace's own: to the log, and to standard error."""
        self._own.feed(f"{text}\n".encode("utf-8", "surrogateescape"))
        with suppress(OSError):
            if "stderr" in self._passing and not self._quiet:
                _write_all(self._passing["stderr"], f"headrace: {text}\n".encode("utf-8", "surrogateescape"))

    def close(self) -> None:
        """The last segments. Idempotent."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
            self._measuring.close()
        for writer in (*self._writers.values(), self._own):
            writer.close_segment(last=True)

    def _work(self) -> None:
        close_at, writers = time.monotonic() + LOGS_S, (*self._writers.values(), self._own)
        while not self._over.wait(_TICK_S):
            try:
                self._measuring.tick()
            except Exception:
                _log.exception("this is a defect in headrace")
            if time.monotonic() >= close_at:
                close_at = time.monotonic() + LOGS_S
                for writer in writers:
                    writer.close_segment()
            for writer in writers:
                writer.flush()


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
