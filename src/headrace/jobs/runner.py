"""The runner: records a run, starts its command, follows it to its end, and sees all of it into the bucket."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import chain
from types import FrameType
from typing import Any, Final

from headrace.base.errors import HeadraceError, TryAgainError
from headrace.base.settings import RunSettings
from headrace.base.units import format_bytes, format_seconds
from headrace.jobs.again import differences
from headrace.jobs.backend import Attempt, Backend, LocalBackend, Start
from headrace.jobs.folder import RunFolder
from headrace.jobs.job import Job
from headrace.jobs.keeper import Keeper
from headrace.jobs.measuring import Measuring
from headrace.jobs.mirroring import Mirroring
from headrace.jobs.outputs import open_sync
from headrace.jobs.process import Exit
from headrace.jobs.recorder import Recorder
from headrace.jobs.resuming import lineage
from headrace.jobs.scratch import sweep
from headrace.namespace.home import Home
from headrace.sync import Report
from headrace.tracking.record import FINAL, Clock, Lease, Order, Status
from headrace.tracking.runs import Run

_log = logging.getLogger("headrace.jobs")
_FORWARDED = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_RETRY_SETTLE_S: Final = 60.0
"""Longest wait for the outputs of one attempt before the next: it goes on from what is in the bucket."""
_SETTLE_S: Final = 30.0
"""Longest wait for the last transition, besides what the spec gives for outputs."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended. `settled`: the bucket knows; `folder`: what is not sent yet lies there."""

    status: Status
    exit: Exit
    settled: bool
    folder: str | None

    def check(self) -> None:
        """Raises TryAgainError: something of the run is not in the bucket."""
        if self.folder is not None:
            left = self.status.left
            what = f"{len(left)} files are not in the bucket" if left else "its end is not in the bucket"
            raise TryAgainError(what, path=self.folder, hint="send the rest: headrace sync --recover")


@dataclass(frozen=True, slots=True)
class _Stop:
    """`number`: the signal by which a command ends that is not started any more."""

    reason: str
    grace: float
    number: int


class Runner:
    """One run, once. All from one thread, but for `stop`; where that is the main thread, signals are heeded.

    Args:
        job: what is run.
        home: where it is recorded.
        settings: where run folders are made, and what runs of this node share.
        passing: descriptors that get what the command writes; None: nobody looks.
        quiet: these get nothing of our own.
        backend: where it runs.
        started: called when the run is recorded, with the path of a file for what there is to say from then on.
    """

    def __init__(
        self,
        job: Job,
        home: Home,
        settings: RunSettings,
        *,
        passing: tuple[int, int] | None = (1, 2),
        quiet: bool = False,
        backend: Backend | None = None,
        started: Callable[[str], None] = lambda _log: None,
    ) -> None:
        self.job = job
        self._run = Run(home, job.id)
        self._started = started
        self._cache = settings.cache
        self._backend = backend or LocalBackend()
        self._folder = RunFolder(settings.state, job.id, self._run.url)
        self._measuring = Measuring(self._folder, job.id, samplers=self._backend.here)
        self._recorder = Recorder(
            self._folder.recorded("logs"), passing, self._on_text, quiet=quiet, measuring=self._measuring
        )
        self._mirroring = Mirroring(self._folder, self._run.url, self._recorder.note, wanted=settings.mlflow)
        self._keeper = Keeper(self._run, self._folder.at("status"), self._lease, self._on_order)
        self._sync = open_sync(self._folder, self._run, job.spec.outputs)
        self._patterns = [re.compile(one.encode(), re.MULTILINE) for one in job.spec.retry.log_patterns]
        self._matched = False
        self._wake, self._waking = socket.socketpair()
        """What is written to the second ends a wait for the command."""
        self._wake.setblocking(False)
        self._waking.setblocking(False)
        self._stop: _Stop | None = None
        self._attempt: Attempt | None = None
        self._early: list[int] | None = None
        """Signals for a command that is just being started."""
        self._draining = False
        self._count = 0
        self._clock = Clock()
        self._status = Status(-1, "starting", self._clock.now())
        self._failure = ""
        """Why the attempt was ended from here."""
        self._ended_by_loss = False
        self._lost = 0
        """Attempts that ended because a machine was gone."""
        self._not_sent: tuple[str, ...] = ()
        """What the last attempt has left elsewhere."""
        self._begun = False
        self._limit_at = float("inf")
        """Of `time.monotonic`; counted from when the command is first started, after what it waits for."""

    def stop(self, reason: str, grace: float | None = None, number: int = signal.SIGTERM) -> None:
        """End the command: SIGTERM, then after `grace` seconds (default: the spec's) SIGKILL. Any thread.

        `number`: the signal that it counts as ended by, if it is not started any more.
        """
        if self._stop is None:
            self._stop = _Stop(reason, self.job.spec.grace if grace is None else grace, int(number))
        with suppress(BlockingIOError):  # it is full: there is enough to wake for
            self._waking.send(b"\0")

    def run(self) -> Outcome:
        """All of it. Raises AlreadyExistsError: the id is taken; any store error: it cannot be recorded."""
        swept: list[str] = []
        try:
            sweep(swept.append)
            self.job.prepare(self._folder, self._cache, self._tell)
            self._clock = Clock()
            record = self.job.record()
            self._run.create(record)
        except BaseException:
            self._mirroring.close()
            self.job.close()
            self._sync.close()
            self._folder.remove()
            raise
        self._started(self._folder.at("runner.log"))
        with self._signals():
            self._keeper.start()
            self._say("starting")
            self._sync.start()
            self._recorder.start()
            self._recorder.note(f"run {self.job.id}, recorded at {self._run.url}")
            for text in (*swept, *self.job.notes):
                self._recorder.note(text)
            for text in differences(self.job.repeats, record) if self.job.repeats is not None else ():
                self._recorder.note(f"not as before: {text}")
            self._mirroring.start(record)
            state, ended, reason = self._attempts()
            return self._finish(state, ended, reason)

    # the command

    def _attempts(self) -> tuple[str, Exit, str]:
        spec = self.job.spec
        while True:
            self._count += 1
            self._matched = False
            try:
                self.job.offers = self._mirroring.variables()
                attempt = self._backend.start(self._start())
                ended = self._follow(attempt) if attempt is not None else self._not_begun()
            except HeadraceError as error:
                self._early = None
                self._recorder.note(str(error))
                return "failed", Exit(127 if error.code == "not-found" else 126), str(error)
            state, reason = self._judge(ended)
            if self._ended_by_loss and state == "failed" and self._lost < spec.cluster.restarts:
                self._lost += 1
                pause, said = 0.0, f"{reason}; it is started again"
            elif state == "failed" and self._again(ended):
                pause = spec.retry.pause(self._count)
                count = f"{self._count + 1} of {spec.retry.attempts + self._lost}"
                said = f"{ended}; attempt {count} in {format_seconds(pause)}"
            else:
                return state, ended, reason
            self._say("retrying", ended, reason)
            self._recorder.note(said)
            if not self._settle():
                self._recorder.note("not all that it wrote is in the bucket yet: it may go on from an older checkpoint")
            if self._paused(pause):
                return "stopped", ended, self._stop.reason if self._stop is not None else ""

    def _start(self) -> Start:
        runs = [self._run] if self._count > 1 else []  # its own checkpoints from the second attempt on
        before = lineage(self.job.resumes, self.job.id, self._tell) if self.job.resumes is not None else ()
        return Start(
            self._count, self.job, self._run, self._folder, chain(runs, before), self._recorder, self._settle,
            self._tell, self._measuring.watch, self._waits, lambda: self._stop is not None,
            self._begins,
        )  # fmt: skip

    def _settle(self) -> bool:
        return self._sync.settle(_RETRY_SETTLE_S)

    def _waits(self, why: str) -> None:
        self._measuring.rest()
        self._say("waiting", reason=why)

    def _begins(self) -> None:
        self._early = []
        limit = self.job.spec.time_limit
        if limit is not None and not self._begun:
            self._limit_at = time.monotonic() + limit
        self._begun = True
        self._say("running")

    def _not_begun(self) -> Exit:
        """It was to stop while it waited."""
        return Exit(None, self._stop.number if self._stop is not None else int(signal.SIGTERM))

    def _follow(self, attempt: Attempt) -> Exit:
        self._attempt = attempt
        early, self._early = self._early or [], None
        for number in early:
            attempt.signal(number)
        kill_at = float("inf")
        asked = False
        self._failure = ""
        try:
            while True:
                ended = attempt.wait(min(min(kill_at, self._limit_at) - time.monotonic(), 3600.0), self._wake.fileno())
                if ended is not None:
                    return ended
                with suppress(BlockingIOError):
                    self._wake.recv(4096)
                if time.monotonic() >= self._limit_at:
                    self._limit_at = float("inf")
                    self.stop("the time limit is over")
                if time.monotonic() >= kill_at:
                    kill_at = float("inf")
                    self._recorder.note("it does not end: SIGKILL")
                    attempt.signal(signal.SIGKILL)
                if self._stop is not None and not asked:
                    asked = True
                    kill_at = time.monotonic() + self._stop.grace
                    self._recorder.note(f"{self._stop.reason}: SIGTERM")
                    attempt.signal(signal.SIGTERM)
        finally:
            self._attempt = None
            attempt.close(kill=self._stop is not None)
            self._failure, self._ended_by_loss = attempt.failure, attempt.lost
            self._not_sent = attempt.left
            self._measuring.watch(None)

    def _judge(self, ended: Exit) -> tuple[str, str]:
        if self._stop is not None:
            return "stopped", self._stop.reason
        if ended.signal in (signal.SIGINT, signal.SIGHUP) or ended.code == 128 + signal.SIGINT:
            return "stopped", "SIGINT" if ended.signal is None else str(ended)
        return ("finished", "") if ended.succeeded else ("failed", self._failure or str(ended))

    def _again(self, ended: Exit) -> bool:
        retry = self.job.spec.retry
        return self._count - self._lost < retry.attempts and retry.wants(ended.status, matched=self._matched)

    def _paused(self, seconds: float) -> bool:
        """Whether it was to stop meanwhile."""
        until = time.monotonic() + seconds
        while self._stop is None and time.monotonic() < min(until, self._limit_at):
            time.sleep(min(0.1, max(0.0, until - time.monotonic())))
        if time.monotonic() >= self._limit_at:
            self.stop("the time limit is over")
        return self._stop is not None

    # the record

    def _finish(self, state: str, ended: Exit, reason: str) -> Outcome:
        self.job.release()
        self._say("finishing", ended, reason)
        waiting = self._sync.backlog
        if waiting.bytes > 64 << 20:
            self._recorder.note(f"sends what is left: {waiting.files} files, {format_bytes(waiting.bytes)}")
        self._recorder.close()
        end = Status(0, state, self._clock.now(), self._count, ended.code, ended.signal, reason)
        self._measuring.summarise(end)
        self._mirroring.end(end)
        report = self._drain(complete=ended.succeeded)
        self._mirroring.close()
        names = (*(one.path for one in report.left), *self._not_sent)
        self._say(state, ended, reason, left=names[:100], files=report.files, size=report.bytes)
        settled = self._keeper.settle(_SETTLE_S)
        self._keeper.close()
        self._sync.close()
        self.job.close()
        if settled and not report.left:
            self._folder.remove()
        self._folder.close()
        return Outcome(self._status, ended, settled, None if settled and not names else self._folder.path)

    def _drain(self, *, complete: bool) -> Report:
        try:
            self._draining = True
            report = self._sync.finish(self.job.spec.outputs.drain, complete=complete)
            self._mirroring.wait()
            return report
        except KeyboardInterrupt:
            self._draining = False  # once is enough
            self._sync.close()
            return self._sync.report()
        finally:
            self._draining = False

    def _say(
        self, state: str, ended: Exit | None = None, reason: str = "", *, left: tuple[str, ...] = (), files: int = 0,
        size: int = 0,
    ) -> None:  # fmt: skip
        code, number = (ended.code, ended.signal) if ended is not None else (None, None)
        seq, time_ = self._status.seq + 1, self._clock.now()
        self._status = Status(seq, state, time_, self._count, code, number, reason, left, files, size)
        self._keeper.say(self._status)

    def _lease(self, last: Status | None) -> Lease:
        status, waiting = last or self._status, self._sync.backlog
        if status.state in FINAL:
            waiting = type(waiting)()
        return Lease(
            status.seq, status.state, self._clock.now(), os.getpid(), socket.gethostname(), status.attempt,
            waiting.files, waiting.bytes, round(waiting.oldest, 1), asdict(last) if last is not None else None,
        )  # fmt: skip

    def _tell(self, text: str) -> None:
        self._recorder.note(text)

    # what comes from outside

    def _on_text(self, text: bytes) -> None:
        if self._patterns and not self._matched:
            self._matched = any(one.search(text) for one in self._patterns)

    def _on_order(self, order: Order) -> None:
        self.stop(f"ordered by {order.by}", order.grace)

    @contextmanager
    def _signals(self) -> Generator[None]:
        if threading.current_thread() is not threading.main_thread():  # nobody can signal it: it is told to `stop`
            yield
            return
        heeded = [one for one in (*_FORWARDED, signal.SIGTERM) if signal.getsignal(one) != signal.SIG_IGN]  # nohup
        # A signal that comes between Python's last look and the wait would be heard when the wait is over.
        waking = signal.set_wakeup_fd(self._waking.fileno(), warn_on_full_buffer=False)
        before: dict[int, Any] = {one: signal.signal(one, self._on_signal) for one in heeded}
        try:
            yield
        finally:
            signal.set_wakeup_fd(waking)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._draining and number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
            raise KeyboardInterrupt
        if number == signal.SIGTERM:
            self.stop("SIGTERM")
        elif self._attempt is not None:
            self._attempt.signal(number)
        elif self._early is not None:
            self._early.append(number)
        elif number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            self.stop(signal.Signals(number).name, number=number)
