"""A few threads that take one number after the other; the first error ends all."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable

_LOOK_S = 0.5
_GRACE_S = 5.0
"""A thread that native code holds must not meet the interpreter's end; on Ctrl-C the command line ends sooner."""


class Crew:
    """Runs lots of work, one after the other. `stop` is set when what is under way should end."""

    def __init__(self, workers: int) -> None:
        self.stop = threading.Event()
        self._workers = workers
        self._lock = threading.Lock()
        self._error: BaseException | None = None

    def run(self, work: Callable[[int], None], numbers: Iterable[int], name: str) -> None:
        """Call ``work(number)`` for every number. Returns when all are done.

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
            until = time.monotonic() + _GRACE_S
            for thread in threads:
                with contextlib.suppress(RuntimeError):  # an interrupt came before it was started: it will see `stop`
                    thread.join(max(0.0, until - time.monotonic()))
        if self._error is not None:
            raise self._error
