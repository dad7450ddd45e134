"""A version's requests, run together as they come: all that arrived with one poll of the sockets, or while the batch
before was run, is the next batch.

A model that is quick is run on the loop itself: to hand a batch to a thread takes longer than the model. Any other has
a thread of its own, so that nobody else waits for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from headrace.base.errors import (
    DeadlineError,
    HeadraceError,
    InputError,
    InternalError,
    NoRoomError,
    SlowDownError,
    TryAgainError,
)
from headrace.serving.calls import Call
from headrace.serving.counts import Counts
from headrace.serving.runtimes.runtime import Runtime
from headrace.serving.tensors import Array

_log = logging.getLogger("headrace.serving")
_QUICK_S: Final = 0.001
"""What may be run on the loop: about as long as reading and writing the requests of one poll takes."""
_DOWN, _UP = 0.5, 0.05
"""How far a measured time moves the one that is known: one slow run is the machine's, a quick one is the model's."""


@dataclass(frozen=True, slots=True)
class Rules:
    """`window`: seconds that a batch waits for more; `rows`: of one batch at most; `queue`: requests that may wait;
    `limit`: seconds after which a runtime's process that still works at one batch is ended; None: never, and of a
    server's options: as `Options.limit` says.
    """

    window: float = 0.0
    rows: int = 64
    queue: int = 512
    limit: float | None = None


class Lane:
    """The requests of one version. `offer` from any thread."""

    def __init__(self, runtime: Runtime, together: Mapping[str, bool], rules: Rules, counts: Counts) -> None:
        """`together`: by signature, whether rows of several requests may be run together."""
        self.runtime = runtime
        self._together = dict(together)
        self._rules, self._counts = rules, counts
        self._waiting: deque[Call] = deque()
        self._changed = threading.Condition()
        self._busy = threading.Lock()
        self._open = 0
        self._retired: Callable[[], None] | None = None
        self._row_s = _QUICK_S  # not quick until it was measured
        self._thread: threading.Thread | None = None

    @property
    def pending(self) -> int:
        """Requests that have no answer yet."""
        return self._open

    def offer(self, calls: Sequence[Call]) -> bool:
        """Take them; each will be answered, or fail. False: the version is on its way out, and none was taken."""
        with self._changed:
            if self._retired is not None:
                return False
            self._open += len(calls)
            direct = not self._waiting and self._quick(calls) and self._busy.acquire(blocking=False)
        if direct:
            try:
                self._work(calls)
            finally:
                self._busy.release()
        else:
            self._enqueue(calls)
        return True

    def retire(self, then: Callable[[], None]) -> None:
        """Take no more; call `then`, once, when all that was taken is answered."""
        with self._changed:
            self._retired = then
            idle = not self._open
            self._changed.notify()
        if idle:
            then()

    def measured(self, seconds: float, together: Mapping[str, bool] | None = None) -> None:
        """How long a row took, at warm-up; and which signatures' rows may be run together, where that is known anew."""
        self._row_s = seconds
        if together is not None:
            self._together = dict(together)

    def _quick(self, calls: Sequence[Call]) -> bool:
        if self._rules.window or not self.runtime.in_process:
            return False
        rows = sum(call.rows for call in calls)
        return rows * self._row_s < _QUICK_S

    def _enqueue(self, calls: Sequence[Call]) -> None:
        refused: Sequence[Call] = ()
        with self._changed:
            room = max(0, self._rules.queue - len(self._waiting))
            calls, refused = calls[:room], calls[room:]
            self._waiting.extend(calls)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="serving-lane", daemon=True)
                self._thread.start()
            self._changed.notify()
        for call in refused:
            self._fail(call, SlowDownError(f"{self._rules.queue} requests are waiting already", hint="ask again later"))

    def _serve(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    if self._retired is not None and not self._open:
                        return
                    self._changed.wait()
                self._gather()
                calls = list(self._waiting)
                self._waiting.clear()
            with self._busy:
                self._work(calls)

    def _gather(self) -> None:
        """Under the lock: wait for more, as long as the window of the first is open."""
        if not self._rules.window:
            return
        until = self._waiting[0].arrived + self._rules.window
        while sum(call.rows for call in self._waiting) < self._rules.rows:
            left = until - time.monotonic()
            if left <= 0 or not self._changed.wait(left):
                return

    def _work(self, calls: Sequence[Call]) -> None:
        batches: dict[object, list[Call]] = {}
        sizes: dict[object, int] = {}
        for call in calls:
            if call.key is None or not self._together.get(call.signature):
                self._run([call])
                continue
            size = sizes.get(call.key, 0) + call.rows
            if size > self._rules.rows and call.key in batches:
                self._run(batches.pop(call.key))
                size = call.rows
            batches.setdefault(call.key, []).append(call)
            sizes[call.key] = size
        for batch in batches.values():
            self._run(batch)

    def _run(self, batch: list[Call]) -> None:
        begun = time.monotonic()
        batch = [call for call in batch if self._wanted(call, begun)]
        if not batch:
            return
        first = batch[0]
        inputs: Mapping[str, Array] = first.inputs
        if len(batch) > 1:
            inputs = {name: np.concatenate([call.inputs[name] for call in batch]) for name in first.inputs}
        ready = time.monotonic()
        try:
            outputs = self.runtime.run(first.signature, inputs, self._rules.limit)
        except InputError as error:
            self._refused(batch, error)
            return
        except Exception as error:
            self._failed(batch, error)
            return
        done = time.monotonic()
        rows = sum(call.rows for call in batch)
        took = (done - ready) / max(1, rows)
        change = took - self._row_s
        self._row_s = took if self._row_s == np.inf else self._row_s + change * (_DOWN if change < 0 else _UP)
        self._counts.executed(rows, done - ready, ready - begun)
        if len(batch) > 1 and any(array.shape[:1] != (rows,) for array in outputs.values()):
            self._together[first.signature] = False  # what it was proved to be by trying, it is not
            for call in batch:
                self._run([call])
            return
        self._share_out(batch, outputs, begun, done)

    def _share_out(self, batch: list[Call], outputs: Mapping[str, Array], begun: float, done: float) -> None:
        at, answered, queued = 0, 0, 0.0
        for call in batch:
            part = outputs
            if len(batch) > 1:
                part = {name: array[at : at + call.rows] for name, array in outputs.items()}
                at += call.rows
            try:
                call.answer(part)
            except Exception as error:
                self._failed([call], error)
                continue
            answered += 1
            queued += begun - call.arrived
        last = time.monotonic()
        spent = sum(last - call.arrived for call in batch)
        self._counts.answered(answered, spent, queued, last - done)
        self._left(answered)

    def _wanted(self, call: Call, now: float) -> bool:
        if call.gone:
            self._counts.failed("CANCELED")
            self._left(1)
            return False
        if call.deadline <= now:
            self._fail(call, DeadlineError("the deadline passed before the request was run"))
            return False
        return True

    def _refused(self, batch: list[Call], error: InputError) -> None:
        """The model does not take these inputs: whose they are is found by running each alone."""
        if len(batch) == 1:
            self._failed(batch, error)
            return
        for call in batch:
            self._run([call])

    def _failed(self, batch: Sequence[Call], error: Exception) -> None:
        if isinstance(error, MemoryError):
            error = NoRoomError("the model found no memory for this", hint="ask for less at once")
        if not isinstance(error, HeadraceError):
            _log.error("a batch failed", exc_info=error)
            error = InternalError("the model failed", hint="the server's log says more")
        for call in batch:
            call.fail(error)
            self._counts.failed("BACKEND" if isinstance(error, InputError | TryAgainError) else "OTHER")
        self._left(len(batch))

    def _fail(self, call: Call, error: HeadraceError) -> None:
        call.fail(error)
        self._counts.failed("REJECTED")
        self._left(1)

    def _left(self, count: int) -> None:
        with self._changed:
            self._open -= count
            then = self._retired if not self._open else None
            if then is not None:
                self._changed.notify()
        if then is not None:
            then()
