"""The leader of a run on a cluster: its runner, in an actor that outlives who submitted it.

It has no CPU of its own, runs on the head, and is named by the run's id in the namespace ``headrace``: Ray refuses a
second of that name. It is there before anything is sent, so of two who submit one id one sends nothing. It ends
itself when who submits is gone before the run was handed over, and when the run is over and whoever follows has heard
the end.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import headrace
from headrace.base.errors import HeadraceError, InternalError, UnsupportedError
from headrace.base.places import make_folder
from headrace.base.settings import Settings, whole_environment
from headrace.cluster.connection import ray_module
from headrace.cluster.gang import Gang
from headrace.cluster.submission import SETTINGS, Submission
from headrace.jobs import AsItLies, Here, Job, Outcome, Recorded, Runner, Sent, Site, Source
from headrace.namespace import Namespace
from headrace.namespace.home import Home
from headrace.tracking.runs import Run

_LINGER_S: Final = 30.0
"""How long the end is there to be asked for."""
HOLD_S: Final = 5.0
"""How often who submits says that it is there."""
_HELD_S: Final = 15.0
"""Its silence, after which it is gone."""
_MOST: Final = 4 << 20
"""Bytes of output that are kept for who follows: the rest is in the bucket."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What there is to pass on: bytes for the descriptors 1 and 2. `next`: what to ask for then; `recorded`: the run
    is; `outcome`: it is over; `missed`: bytes that came too fast for who asks.
    """

    next: int
    pieces: tuple[tuple[int, bytes], ...] = ()
    recorded: bool = False
    outcome: Outcome | None = None
    missed: int = 0


class Chief:
    """See above. `hold` until there is what `run` needs, that once; the others from any thread meanwhile.

    Args:
        version: of who submits. Raises UnsupportedError: another.
    """

    def __init__(self, version: str) -> None:
        if version != headrace.__version__:
            hint = "have the same headrace here as on the nodes"
            raise UnsupportedError(f"the cluster has headrace {headrace.__version__}, here is {version}", hint=hint)
        logging.basicConfig(format="headrace: %(message)s", level=logging.WARNING)
        self._changed = threading.Condition()
        self._pieces: deque[tuple[int, int, bytes]] = deque()
        self._count = self._held = self._missed = 0
        self._recorded = False
        self._outcome: Outcome | None = None
        self._error: HeadraceError | None = None
        self._heard_end = False
        self._runner: Runner | None = None
        self._stopped: tuple[str, float | None] | None = None
        self._held_at = time.monotonic()
        self._begun = threading.Event()
        threading.Thread(target=self._await, name="headrace-held", daemon=True).start()

    def hold(self) -> None:
        """Who submits is there, and has the name."""
        self._held_at = time.monotonic()

    def run(self, submission: Submission) -> None:
        """All of it."""
        self._begun.set()
        pipes = [os.pipe(), os.pipe()]
        readers = [
            threading.Thread(target=self._read, args=(number, reading), daemon=True)
            for number, (reading, _) in enumerate(pipes, 1)
        ]
        for reader in readers:
            reader.start()
        outcome: Outcome | None = None
        error: HeadraceError | None = None
        try:
            outcome = self._run(submission, (pipes[0][1], pipes[1][1]))
        except HeadraceError as raised:
            error = raised
        except Exception as raised:
            error = InternalError(f"{type(raised).__name__}: {raised}", path=submission.run)
        os.chdir("/")
        for _, writing in pipes:
            os.close(writing)
        for reader in readers:
            reader.join()
        with self._changed:  # all that there is to pass on is there
            self._outcome, self._error = outcome, error
            self._changed.notify_all()
        self._end()

    def stop(self, reason: str, grace: float | None) -> None:
        """As `Runner.stop`."""
        with self._changed:
            self._stopped = (reason, grace)
            if self._runner is not None:
                self._runner.stop(reason, grace)

    def hear(self, after: int, timeout: float) -> Heard:
        """What came after number `after`, once there is any, or nothing after `timeout` seconds.

        Raises any HeadraceError: the run could not be recorded.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._count > after or self._over, timeout)
            found = tuple((fd, data) for number, fd, data in self._pieces if number > after)
            first = self._pieces[0][0] if self._pieces else self._count + 1
            missed = self._missed if found and first > after + 1 else 0
            if self._over and not found:
                self._heard_end = True
                self._changed.notify_all()
                if self._error is not None:
                    raise self._error
            return Heard(self._count, found, self._recorded, self._outcome, missed)

    @property
    def _over(self) -> bool:
        return self._outcome is not None or self._error is not None

    def _run(self, submission: Submission, passing: tuple[int, int]) -> Outcome:
        with tempfile.TemporaryDirectory(prefix="headrace-run-") as first:
            settings, _ = submission.reach.apply(first)
            # In the run's own folder they go with it, also where this is killed.
            folder = os.path.join(settings.run.state, submission.run)
            make_folder(folder, "HEADRACE_RUN_STATE")
            settings, namespace = submission.reach.apply(folder)
        try:
            runner = self._runner_of(submission, settings, namespace, passing)
        except BaseException:
            with suppress(OSError):
                os.unlink(os.path.join(folder, SETTINGS))
                os.rmdir(folder)
            raise
        with self._changed:
            self._runner = runner
            if self._stopped is not None:
                runner.stop(*self._stopped)
        return runner.run()

    def _runner_of(
        self, submission: Submission, settings: Settings, namespace: Namespace, passing: tuple[int, int]
    ) -> Runner:
        home = Home.of(namespace, settings)
        run = Run(home, submission.run)
        resumes = Run(home, submission.resumes) if submission.resumes is not None else None
        job = Job(
            submission.spec, source=_source(home, run, submission), environ=whole_environment(), run_id=submission.run,
            parent=submission.parent, resumes=resumes,
            repeats=Run(home, submission.repeats).record() if submission.repeats is not None else None,
            site=Site(namespace, settings),
            before=Run(home, submission.parent["run"]) if submission.parent is not None else None, leads=True,
        )  # fmt: skip
        return Runner(
            job, home, settings.run, passing=passing, quiet=submission.quiet,
            backend=Gang(ray_module(), submission), started=self._is_recorded,
        )  # fmt: skip

    def _is_recorded(self, _log: str) -> None:
        with self._changed:
            self._recorded = True
            self._changed.notify_all()

    def _read(self, number: int, fd: int) -> None:
        with open(fd, "rb", buffering=0) as pipe:
            while data := pipe.read(64 << 10):
                with self._changed:
                    self._count += 1
                    self._pieces.append((self._count, number, data))
                    self._held += len(data)
                    while self._held > _MOST:
                        _, _, gone = self._pieces.popleft()
                        self._held -= len(gone)
                        self._missed += len(gone)
                    self._changed.notify_all()

    def _await(self) -> None:
        """For the run, as long as who submits it is there."""
        while not self._begun.wait(1.0):
            if time.monotonic() - self._held_at > _HELD_S:
                os._exit(0)

    def _end(self) -> None:
        """Once the end was heard, or nobody asks for it."""
        with self._changed:
            self._changed.wait_for(lambda: self._heard_end, _LINGER_S)
        time.sleep(0.5)  # the last answer is on its way
        ray: Any = ray_module()
        with suppress(Exception):
            ray.kill(ray.get_runtime_context().current_actor)


def _source(home: Home, run: Run, submission: Submission) -> Source:
    if submission.repeats is not None and (before := Run(home, submission.repeats)).record().code is not None:
        return Recorded(before)
    if submission.code is not None:
        return Sent(run, submission.code)
    if submission.spec.code.git is not None:
        return Here(submission.folder)
    return AsItLies(submission.folder)
