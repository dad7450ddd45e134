"""Reads of stores that have no wire of ours: a pool of threads over `Store.get`, and the cache's disk work."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

_log = logging.getLogger("headrace.fetch")


class Workers:
    """A few daemon threads that run tasks in order of arrival. Started at the first task. Any thread may add."""

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._closed = False

    def add(self, task: Callable[[], None]) -> None:
        """Queue a task. It must not raise."""
        if len(self._threads) < self._count:
            self._start()
        self._tasks.put(task)

    def close(self, timeout: float = 2.0) -> None:
        """Let the threads end after their present task."""
        self._closed = True
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout)

    def _start(self) -> None:
        with self._lock:
            if self._closed or len(self._threads) >= self._count:
                return
            thread = threading.Thread(target=self._run, name=f"headrace-{self._name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self) -> None:
        while not self._closed:
            task = self._tasks.get()
            if task is None:
                return
            try:
                task()
            except Exception:
                _log.exception("a fetch task failed; this is a defect in headrace")
            del task
