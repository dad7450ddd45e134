"""Threads that run tasks. They are daemons: none holds up the process's end."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable

_log = logging.getLogger("headrace")


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
                _log.exception("a task failed; this is a defect in headrace")
            del task
