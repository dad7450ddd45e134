"""`where="process"`: the same pipeline in one child process, batches handed over shared memory.

For training loops that hold the GIL. The child is started afresh (never forked), takes everything it needs in one
pickle, and dies with its parent: it leaves when its socket closes, and asks the kernel for SIGKILL besides.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import socket
import subprocess
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from headrace.base.errors import HeadraceError, InternalError
from headrace.base.settings import Settings
from headrace.fetch import Fetcher, default_fetcher
from headrace.loader import fresh_process
from headrace.loader import memory_files as shm
from headrace.loader.epoch_pipeline import FINISHED, Finished, Pipeline, closed
from headrace.loader.fresh_process import Remote
from headrace.loader.pipeline.bad_samples import Changed, Changes, Skipped
from headrace.loader.pipeline.batch_builder import Delivery
from headrace.loader.pipeline.epoch_plan import Plan
from headrace.loader.pipeline.feeder import Course
from headrace.loader.pipeline.stats import Meter, Stats, summarise
from headrace.loader.pipeline.worker_processes import Workers

_AHEAD = 2
"""Batches in shared memory that the consumer has not taken; the byte window bounds the rest."""
_LEAVE_S = 1.0
"""Seconds that the child has to leave by itself; as many remain of the two in which Ctrl-C ends everything."""


class ChildPipeline:
    """A `headrace.loader.epoch_pipeline.Pipeline` that runs in a child process. Same face, same threads rules."""

    def __init__(
        self, plan: Plan, course: Course, ledger: list[Skipped], changes: Changes, settings: Settings | None = None
    ) -> None:
        fresh_process.refuse_while_imported('where="process"')
        self.meter = Meter()
        self._ledger, self._changes = ledger, changes
        self._last = Stats()
        self._closed = False
        payload = fresh_process.payload_of((plan, course, changes, settings), 'where="process"')
        self._child = fresh_process.start(__name__, payload)
        self._receiver = shm.Receiver(self._child.socket)

    def take(self) -> Delivery | Finished:
        """The next batch. Blocks. Raises whatever ended the pipeline."""
        self.meter.asking(self._last.raw_queue > 0, self._last.ready_queue > 0)
        began = time.perf_counter()
        try:
            got, self._last, news = self._receiver.receive()
        except (EOFError, OSError):
            raise (closed() if self._closed else self._died()) from None
        self._ledger += news.skipped
        self._changes.note(news.changed)
        if isinstance(got, Remote):
            self.close()
            raise got.rebuild()
        if not isinstance(got, Delivery):
            self.meter.ended = time.perf_counter()
            return FINISHED
        self.meter.account(began, time.perf_counter(), got)
        return got

    def _died(self) -> HeadraceError:
        how = self._child.ended_as(_LEAVE_S)
        self.close()
        return InternalError(
            f"the loader's process ended ({how})",
            hint="its last words are on stderr; SIGKILL may be the kernel's, out of memory: lower prefetch",
        )

    def stats(self) -> Stats:
        """Figures so far: waiting as seen here, everything else as told with the last batch."""
        last = self._last
        here = summarise(
            self.meter,
            decode=last.decode,
            held=last.held_bytes,
            counters=last.counters,
        )
        return dataclasses.replace(
            here, reads=last.reads, frames_shared=last.frames_shared, filtered=last.filtered, skipped=last.skipped,
            raw_queue=last.raw_queue, ready_queue=last.ready_queue,
            raw_empty=last.raw_empty, ready_empty=last.ready_empty,
        )  # fmt: skip

    def close(self) -> None:
        """End the child: it leaves by itself when the socket closes, else it is killed."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._child.socket.shutdown(socket.SHUT_RDWR)
        self._receiver.close()
        try:
            self._child.process.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            self._child.process.kill()
            self._child.process.wait()


# -- the child ---------------------------------------------------------------------------------------------------------


def child_main(fd: int, *, with_thread: bool) -> None:
    """Run one pipeline for the parent at the other end of socket `fd`. Never returns.

    `with_thread`: see `headrace.loader.fresh_process.begin`.
    """
    sock, payload, _ = fresh_process.begin(fd, with_thread=with_thread)
    sender = shm.Sender(sock, _AHEAD)
    threading.Thread(target=_leave_with_parent, args=(sender,), daemon=True).start()
    try:
        _serve(payload, sender)
    except BaseException as error:
        with contextlib.suppress(OSError):  # a parent that has gone needs no news
            sender.send((Remote.of(error), Stats(), News()))
    threading.Event().wait()  # `_leave_with_parent` ends us


def _leave_with_parent(sender: shm.Sender) -> None:
    with contextlib.suppress(OSError):
        sender.listen()
    os._exit(0)


def _serve(payload: bytes, sender: shm.Sender) -> None:
    plan, course, changes, settings = fresh_process.made_of(payload)
    gc.freeze()  # all of this lives as long as we do: no collection need walk it
    fetcher: Fetcher = default_fetcher(settings)
    ledger: list[Skipped] = []
    skipped = changed = 0
    workers = Workers.of(plan.stages_by_leaf)  # they leave with us
    pipeline = Pipeline(plan, course, fetcher, ledger, workers=workers)
    while True:
        sender.wait()
        try:
            got: Any = pipeline.take()
        except BaseException as error:
            got = Remote.of(error)
        news = News(ledger[skipped:], changes.since(changed))
        skipped, changed = skipped + len(news.skipped), changed + len(news.changed)
        sender.send((got, pipeline.stats(), news))
        if not isinstance(got, Delivery):
            return


@dataclass(frozen=True)
class News:
    """New entries for the parent's books."""

    skipped: list[Skipped] = field(default_factory=list[Skipped])
    changed: list[Changed] = field(default_factory=list[Changed])
