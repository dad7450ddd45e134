"""Threads that send, and the room their buffers may take. The threads are daemons: none holds up the process's end."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

_log = logging.getLogger("headrace.upload")


class Crew:
    """At most `count` daemon threads that run tasks in order of arrival; started when needed. Any thread, fork-safe."""

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._lock = threading.Lock()
        self._closed = False
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def add(self, task: Callable[[], None]) -> None:
        """Queue a task. It must not raise."""
        with self._lock:
            if self._pid != os.getpid():  # threads do not survive a fork
                self._reset()
            if len(self._threads) < self._count and not self._closed:
                thread = threading.Thread(target=self._run, name=f"headrace-{self._name}", daemon=True)
                self._threads.append(thread)
                thread.start()
        self._tasks.put(task)

    def close(self, timeout_s: float = 2.0) -> None:
        """Let the threads end after what is queued; wait that long for them in all."""
        with self._lock:
            self._closed = True
            threads = [] if self._pid != os.getpid() else self._threads
        for _ in threads:
            self._tasks.put(None)
        deadline = time.monotonic() + timeout_s
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        tasks = self._tasks
        while (task := tasks.get()) is not None:
            try:
                task()
            except Exception:
                _log.exception("an upload task failed; this is a defect in headrace")
            del task


class Room:
    """Bytes that may be held at once; whoever wants more waits. Any thread.

    One that wants more than there is at all gets it once nobody else holds any.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._held = 0
        self._changed = threading.Condition()

    @property
    def held(self) -> int:
        """Bytes held now."""
        return self._held

    @contextmanager
    def hold(self, size: int) -> Generator[None]:
        """Hold that many bytes inside."""
        size = min(size, self.size)
        with self._changed:
            self._changed.wait_for(lambda: self._held + size <= self.size)
            self._held += size
        try:
            yield
        finally:
            with self._changed:
                self._held -= size
                self._changed.notify_all()
