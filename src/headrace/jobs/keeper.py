"""What the runner says to the bucket, and hears from it, while the command runs: transitions, the lease, orders.

A thread of its own does all of it, so that a store that is away keeps nobody waiting. A transition lies in the run's
folder until the bucket has it, so that no crash loses one.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from headrace.base.errors import AlreadyExistsError, HeadraceError
from headrace.tracking.record import Lease, Order, Status
from headrace.tracking.runs import Run

_log = logging.getLogger("headrace.jobs")
LEASE_S: Final = 15.0  # seconds between notes that the run is at work; an old note lets others look after it
ORDERS_S: Final = 5.0  # seconds between looks for an order to stop
_AGAIN_S = 2.0  # seconds before another try where the bucket did not answer


class Keeper:
    """Any thread; `start` and `close` once.

    Args:
        run: whose.
        folder: where transitions wait.
        lease: makes what is to be said now, of the last transition that is in the bucket.
        ordered: told the first order to stop.
    """

    def __init__(
        self, run: Run, folder: str, lease: Callable[[Status | None], Lease], ordered: Callable[[Order], None]
    ) -> None:
        self._run, self._folder = run, folder
        self._lease, self._ordered = lease, ordered
        self._waiting: deque[Status] = deque()
        self._last: Status | None = None
        self._lock = threading.Lock()
        self._poke = threading.Event()
        self._idle = threading.Condition(self._lock)
        self._over = False
        self._lease_at = self._orders_at = self._try_at = 0.0
        self._told = False
        self.usurped = False
        """Another runner writes this run's transitions."""
        self._thread = threading.Thread(target=self._work, name="headrace-run-keeper", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def say(self, status: Status) -> None:
        """A transition: kept here, and put into the bucket as soon as that can be."""
        with suppress(OSError):
            path = os.path.join(self._folder, status.name)
            with open(f"{path}.tmp", "wb") as file:
                file.write(status.as_json())
                file.flush()
                os.fsync(file.fileno())
            os.rename(f"{path}.tmp", path)
        with self._lock:
            self._waiting.append(status)
            self._lease_at = 0.0
        self._poke.set()

    def settle(self, timeout: float) -> bool:
        """Wait until all that was said is in the bucket, the lease after it. False: `timeout` seconds were too few."""
        with self._idle:
            return self._idle.wait_for(lambda: self.usurped or not (self._waiting or self._lease_at == 0.0), timeout)

    def close(self) -> None:
        """Stop. Idempotent."""
        self._over = True
        self._poke.set()
        if self._thread.ident is not None:
            self._thread.join(5.0)

    def _work(self) -> None:
        while not self._over:
            self._poke.clear()
            now = time.monotonic()
            try:
                if now >= self._try_at:
                    self._speak(now)
                    self._listen(now)
                self._told = False
            except HeadraceError as error:
                self._try_at = now + _AGAIN_S
                if not self._told:
                    self._told = True
                    _log.warning("the run's state cannot be written, will be tried again: %s", error)
            except Exception:
                _log.exception("this is a defect in headrace")
                self._try_at = now + _AGAIN_S
            next_at = max(self._try_at, min(self._lease_at, self._orders_at))
            self._poke.wait(max(0.0, next_at - time.monotonic()))

    def _speak(self, now: float) -> None:
        while self._waiting and not self.usurped:
            status = self._waiting[0]
            try:
                self._run.put_status(status)
            except AlreadyExistsError:
                _log.error("another runner writes this run; it is the one that counts: %s", self._run.id)
                self.usurped = True
                break
            self._last = status
            with suppress(OSError):
                os.unlink(os.path.join(self._folder, status.name))
            with self._lock:
                self._waiting.popleft()
        if now >= self._lease_at and not self.usurped:
            with self._lock:
                tells_all = not self._waiting  # something may have been said since they were put
            self._run.put_lease(self._lease(self._last))
            with self._idle:
                if tells_all and not self._waiting:
                    self._lease_at = now + LEASE_S
                self._idle.notify_all()
        with self._idle:
            self._idle.notify_all()

    def _listen(self, now: float) -> None:
        if now < self._orders_at:
            return
        self._orders_at = now + ORDERS_S
        order = self._run.stop_order()
        if order is not None:
            self._orders_at = float("inf")
            self._ordered(order)
