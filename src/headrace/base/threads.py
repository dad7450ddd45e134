"""Worker threads, the one kit for all rooms: `Crew` for tasks without an answer, `Threads` for work with one, `ForEach`
for the same work on many numbers.

Threads that are one thing's own (a loop, a watcher) are `threading.Thread`; `join_all` waits for several of them.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from headrace.base.account import account, on

_LOOK_S = 0.5
"""How soon Ctrl-C is seen while threads work: a join without end would not be interrupted."""
_GRACE_S = 5.0
"""A thread that native code holds must not meet the interpreter's end; on Ctrl-C the command line ends sooner."""
REQUESTS_AT_ONCE = 8
"""Small requests that a page or a command has under way. They wait for the store, not for a core; a store that others
use, too, takes so many from each of them.
"""
_P = ParamSpec("_P")
_T = TypeVar("_T")
_log = logging.getLogger("headrace")


def cores() -> int:
    """Cores that this process may use (`sched_getaffinity(2)`), at least 1."""
    return max(1, len(os.sched_getaffinity(0)))


def by_cores(each: float, least: int, most: int) -> int:
    """Threads, or processes, at `each` to a core that this process may use, within both bounds; `most` wins."""
    return min(max(int(each * cores()), least), most)


class Crew:
    """At most `count` daemon threads that run tasks in order of arrival, started when needed. Any thread may add.

    Daemons: none holds up the process's end. A forked child starts with an empty crew of its own.
    """

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._closed = self._dropped = False
        self.after_fork()
        _crews.add(self)

    def after_fork(self) -> None:
        """In a forked child, where the threads are gone: forget them, and what they had to do."""
        self._lock = threading.Lock()
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def add(self, task: Callable[[], None]) -> None:
        """Queue a task. It must not raise."""
        if len(self._threads) < self._count:
            self._start()
        self._tasks.put(task)

    def close(self, timeout_s: float = 2.0, *, drop: bool = False) -> None:
        """Let the threads end after what is queued; wait that many seconds for them in all.

        `drop`: after what they are at instead; what is queued is never done.
        """
        with self._lock:
            self._closed, self._dropped = True, drop
            threads = self._threads
        for _ in threads:
            self._tasks.put(None)
        join_all(threads, timeout_s)

    def _start(self) -> None:
        with self._lock:
            if self._closed or len(self._threads) >= self._count:
                return
            thread = threading.Thread(target=self._run, name=f"headrace-{self._name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self) -> None:
        tasks = self._tasks
        while (task := tasks.get()) is not None and not self._dropped:
            try:
                task()
            except Exception:
                _log.exception("a task failed; this is a defect in headrace")
            del task


_crews: weakref.WeakSet[Crew] = weakref.WeakSet()


def _after_fork() -> None:
    for crew in list(_crews):
        crew.after_fork()


os.register_at_fork(after_in_child=_after_fork)


class Threads(ThreadPoolExecutor):
    """A pool whose work is on the account of who gives it (`headrace.base.account`)."""

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """As `ThreadPoolExecutor`, whose `map` calls it too."""
        one = account()
        if one is None:
            return super().submit(fn, *args, **kwargs)

        def on_it() -> Any:
            with on(one):
                return fn(*args, **kwargs)

        return super().submit(on_it)


class ForEach:
    """A few daemon threads that take one number after the other; the first error ends all.

    `stop` is set when what is under way should end. One thread calls `run`.
    """

    def __init__(self, workers: int) -> None:
        self.stop = threading.Event()
        self._workers = workers
        self._lock = threading.Lock()
        self._error: BaseException | None = None

    def run(self, work: Callable[[int], None], numbers: Iterable[int], name: str) -> None:
        """Call ``work(number)`` for every number. Returns when all are done. `name`: of the threads.

        Raises:
            The first error of `work`. KeyboardInterrupt. After either, what is under way is waited for five seconds;
            the threads are daemons, and end at their next look at `stop`.
        """
        rest = iter(numbers)

        def one() -> None:
            while not self.stop.is_set():
                with self._lock:
                    number = next(rest, None)
                if number is None:
                    return
                try:
                    work(number)
                except BaseException as error:
                    with self._lock:
                        if not self.stop.is_set():
                            self._error = error
                            self.stop.set()
                    return

        threads = [
            threading.Thread(target=one, name=f"headrace-{name}-{number}", daemon=True)
            for number in range(self._workers)
        ]
        try:
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads) and not self.stop.is_set():
                for thread in threads:
                    thread.join(_LOOK_S / len(threads))
        except BaseException:
            self.stop.set()
            raise
        finally:
            join_all(threads, _GRACE_S)  # one that an interrupt kept from starting will see `stop`
        if self._error is not None:
            raise self._error


def join_all(threads: Iterable[threading.Thread], within_s: float) -> None:
    """Wait for them, at most `within_s` seconds in all; never for the calling thread itself. Any thread.

    Who is in a user's function that hangs, or in a read that a stalled store answers late, is left to end by itself.
    """
    deadline = time.monotonic() + within_s
    for thread in threads:
        if thread is not threading.current_thread() and thread.is_alive():
            thread.join(max(0.0, deadline - time.monotonic()))
