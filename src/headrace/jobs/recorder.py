"""What a run leaves while its command runs, made into segments in the run's folder, from where they are sent."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from headrace.tracking.logs import LogWriter

_log = logging.getLogger("headrace.jobs")
LOGS_S: Final = 5.0
"""How often a segment of a log is closed: with what sending takes, who follows is less than ten seconds behind."""


class Recorder:
    """Passes on what the command writes, and records it. `output` from any thread; `close` after the last of it.

    Args:
        logs: the folder of the segments.
        passing: descriptors for ``stdout`` and ``stderr`` here; None: nobody looks.
        on_text: told whole lines of the command.
        quiet: `note` goes to the log only.
    """

    def __init__(
        self,
        logs: str,
        passing: tuple[int, int] | None,
        on_text: Callable[[bytes], None] | None = None,
        *,
        quiet: bool = False,
    ) -> None:
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
        for writer in (*self._writers.values(), self._own):
            writer.close_segment(last=True)

    def _work(self) -> None:
        closed_at = time.monotonic()
        while not self._over.wait(max(0.0, closed_at + LOGS_S - time.monotonic())):
            closed_at = time.monotonic()
            for writer in (*self._writers.values(), self._own):
                writer.close_segment()


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
