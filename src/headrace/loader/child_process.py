"""`where="process"`: the same pipeline in one child process, batches handed over shared memory.

For training loops that hold the GIL. The child is started afresh (never forked), takes everything it needs in one
pickle, and dies with its parent: it leaves when its socket closes, and asks the kernel for SIGKILL besides.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import gc
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from multiprocessing import spawn
from typing import Any

from headrace.base.errors import HeadraceError, InputError, InternalError
from headrace.base.settings import Settings
from headrace.fetch import Fetcher, default_fetcher
from headrace.loader import memory_files as shm
from headrace.loader.epoch_pipeline import FINISHED, Finished, Pipeline, closed
from headrace.loader.pipeline.bad_samples import Changed, Changes, Skipped
from headrace.loader.pipeline.batch_builder import Delivery
from headrace.loader.pipeline.epoch_plan import Plan
from headrace.loader.pipeline.feeder import Course
from headrace.loader.pipeline.stats import Meter, Stats, summarise

_AHEAD = 2
"""Batches in shared memory that the consumer has not taken; the byte window bounds the rest."""
_BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[2]); "
    "from headrace.loader.child_process import child_main; child_main(int(sys.argv[1]), with_thread=sys.argv[3] == '1')"
)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LEAVE_S = 1.0
"""Seconds that the child has to leave by itself; as many remain of the two in which Ctrl-C ends everything."""
_importing_main: list[bool] = []


class ChildPipeline:
    """A `headrace.loader.epoch_pipeline.Pipeline` that runs in a child process. Same face, same threads rules."""

    def __init__(
        self, plan: Plan, course: Course, ledger: list[Skipped], changes: Changes, settings: Settings | None = None
    ) -> None:
        if _importing_main:
            raise InputError(
                'the main script starts a loader with where="process" while it is being imported',
                hint='put what it does under if __name__ == "__main__":',
            )
        self.meter = Meter()
        self._ledger, self._changes = ledger, changes
        self._last = Stats()
        self._closed = False
        payload = _payload((plan, course, changes, settings))
        in_main = "1" if threading.current_thread() is threading.main_thread() else "0"
        ours, theirs = shm.connection()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, str(theirs.fileno()), json.dumps(sys.path), in_main],
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._socket = ours
        self._receiver = shm.Receiver(ours)
        fd = os.memfd_create("headrace", os.MFD_CLOEXEC)
        with os.fdopen(fd, "wb") as file:
            file.write(payload)
            file.flush()
            socket.send_fds(ours, [b"payload"], [fd])

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
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_LEAVE_S)
        code = self._process.poll()
        self.close()
        return InternalError(
            f"the loader's process ended (exit code {code})",
            hint="its last words are on stderr; -9 may be the kernel, out of memory: lower prefetch",
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
            self._socket.shutdown(socket.SHUT_RDWR)
        self._receiver.close()
        try:
            self._process.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _payload(work: tuple[Plan, Course, Changes, Settings | None]) -> bytes:
    """Raises InputError when a function or a source cannot be sent."""
    whole = spawn.get_preparation_data("headrace-loader")
    names = ("name", "sys_argv", "dir", "init_main_from_name", "init_main_from_path")
    prepared = {name: whole[name] for name in names if name in whole}
    try:
        pickled = pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"cannot be sent to the loader's process: {error}",
            hint='where="process" needs functions defined at the top of a module, and sources opened by name',
        ) from error
    return pickle.dumps((prepared, pickled))


# -- the child ---------------------------------------------------------------------------------------------------------


def child_main(fd: int, *, with_thread: bool) -> None:
    """Run one pipeline for the parent at the other end of socket `fd`. Never returns.

    `with_thread`: the parent's thread that started us lives as long as the parent, so its end may be ours (the kernel's
    signal goes by thread, not by process).
    """
    if with_thread:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    sock = socket.socket(fileno=fd)
    _, fds, _, _ = socket.recv_fds(sock, 16, 1)
    if not fds:  # the parent has thought better of it
        os._exit(0)
    sender = shm.Sender(sock, _AHEAD)
    threading.Thread(target=_leave_with_parent, args=(sender,), daemon=True).start()
    try:
        with os.fdopen(fds[0], "rb") as file:
            file.seek(0)
            _serve(file.read(), sender)
    except BaseException as error:
        with contextlib.suppress(OSError):  # a parent that has gone needs no news
            sender.send((Remote.of(error), Stats(), News()))
    threading.Event().wait()  # `_leave_with_parent` ends us


def _leave_with_parent(sender: shm.Sender) -> None:
    with contextlib.suppress(OSError):
        sender.listen()
    os._exit(0)


def _serve(payload: bytes, sender: shm.Sender) -> None:
    prepared, work = pickle.loads(payload)  # noqa: S301 - our own parent wrote it
    _importing_main.append(True)
    spawn.prepare(prepared)
    _importing_main.clear()
    plan, course, changes, settings = pickle.loads(work)  # noqa: S301
    gc.freeze()  # all of this lives as long as we do: no collection need walk it
    fetcher: Fetcher = default_fetcher(settings)
    ledger: list[Skipped] = []
    skipped = changed = 0
    pipeline = Pipeline(plan, course, fetcher, ledger)
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


@dataclass(frozen=True)
class Remote:
    """An error on its way to the parent. `text`: the traceback of its cause, for people."""

    error: BaseException
    cause: BaseException | None
    text: str

    @staticmethod
    def of(error: BaseException) -> Remote:
        """What of an error can travel: what cannot be pickled is replaced by an error that says the same."""
        cause = error.__cause__
        text = "" if cause is None else "".join(traceback.format_exception(cause)).strip()
        return Remote(_portable(error), None if cause is None else _portable(cause), text)

    def rebuild(self) -> BaseException:
        """The error as the child raised it."""
        self.error.__cause__ = self.cause
        if self.text:
            self.error.add_note(f"in the loader's process:\n{self.text}")
        return self.error


def _portable(error: BaseException) -> BaseException:
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301
    except Exception:
        return InternalError(f"{type(error).__name__}: {error}", hint="raised in the loader's process")
    return error
