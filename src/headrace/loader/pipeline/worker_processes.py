"""Worker processes for functions that hold the GIL (``map(f, processes=2)``).

They are started once a loader, and end with it. A decode thread hands some samples to a worker that is free and waits,
without the GIL: what is before and behind it, order and state are those of functions that run on threads. Bytes in and
arrays out lie in two nameless memory files a worker (`headrace.loader.memory_files`).
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any, Final

import numpy as np

from headrace.base import memory
from headrace.base.errors import BadSampleError, InputError, InternalError, NoRoomError
from headrace.catalog import Stage
from headrace.loader import fresh_process
from headrace.loader import memory_files as shm
from headrace.loader.fresh_process import Remote
from headrace.loader.pipeline import worker_program
from headrace.loader.pipeline.decode_effort import Effort
from headrace.loader.pipeline.run_stages import Part, is_flat, parts_of, processes_of
from headrace.loader.pipeline.worker_program import (
    MESSAGE,
    RUN,
    SAMPLE,
    STAGE,
    STOP,
    Answer,
    Asked,
    Failed,
    Made,
    Program,
    board_of,
)

_LEAVE_S: Final = 0.3
"""Seconds that workers have to leave by themselves; one that is in a function of C is killed then."""
_LOOK_S: Final = 0.25
"""How soon a decode thread that waits for a worker sees that the run was closed."""
_GRACE_S: Final = 1.0
"""Seconds for the sample at hand where an epoch ends early: of the two in which Ctrl-C ends everything."""
_UNNAMED: Final = 4
"""Workers that may end at no sample, one after the other, before it is no accident: some are killed from outside."""
_WHAT: Final = "processes="
_HINT: Final = "its last words are on stderr; SIGKILL may be the kernel's, out of memory: fewer processes"


def has_gil() -> bool:
    """Whether this interpreter runs one thread of Python at a time."""
    return getattr(sys, "_is_gil_enabled", lambda: True)()


def described(stages_by_leaf: Sequence[Sequence[Stage]]) -> str:
    """Who runs the stages that ask for processes; empty: none does."""
    number = processes_of(stages_by_leaf)
    if not number:
        return ""
    if not has_gil():
        return f"{number} threads: this interpreter has no GIL, so that processes would bring nothing"
    return f"{number} worker process{'' if number == 1 else 'es'}"


class Workers:
    """The worker processes of one loader. Any thread."""

    def __init__(self, program: Program, number: int) -> None:
        """Start them. Raises InputError: a function cannot be sent."""
        self.number = number
        fresh_process.refuse_while_imported(_WHAT)
        self._payload = fresh_process.payload_of(program, _WHAT)
        self._owner = os.getpid()
        self._changed = threading.Condition()
        self._all = {_Worker(self._payload) for _ in range(number)}
        self._idle = list(self._all)
        self._epochs = count()
        self._closed = False
        self._finalizer = weakref.finalize(self, _end, self._all, self._owner)

    @staticmethod
    def of(stages_by_leaf: Sequence[Sequence[Stage]]) -> Workers | None:
        """As many as the stages ask for; None where none does, and where threads do as well."""
        number = processes_of(stages_by_leaf)
        if not number or not has_gil():
            return None
        parts = (part for parts in parts_of(stages_by_leaf) for part in parts if part.number is not None)
        return Workers(Program(tuple(parts), is_flat(stages_by_leaf)), number)

    @property
    def is_ours(self) -> bool:
        """Whether this process started them, not one that it was forked from; and they have not been ended."""
        return self._owner == os.getpid() and not self._closed

    def epoch(self) -> Hands:
        """For one epoch's decode threads."""
        return Hands(self, next(self._epochs))

    def close(self) -> None:
        """End them, whatever they are doing. Who waits for one is told (InputError). A fork leaves them alone."""
        if self._owner != os.getpid():
            return
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._finalizer()

    def borrow(self, hands: Hands) -> _Worker:
        """One that is free, told that it may go on. Waits. Raises InputError: all is closed."""
        with self._changed:
            while not self._closed and not hands.closed:
                if not self._idle and len(self._all) < self.number:  # one has died
                    self._idle.append(_Worker(self._payload))
                    self._all.update(self._idle)
                if self._idle:
                    worker = self._idle.pop()
                    worker.board[STOP] = 0
                    hands.busy.add(worker)
                    return worker
                self._changed.wait(_LOOK_S)
        raise InputError("this epoch was closed", hint="iter(loader) begins another")

    def give_back(self, hands: Hands, worker: _Worker) -> None:
        """It is free again."""
        with self._changed:
            hands.busy.discard(worker)
            self._idle.append(worker)
            self._changed.notify_all()

    def lose(self, hands: Hands, worker: _Worker) -> None:
        """End it; another takes its place once it is wanted."""
        worker.end(0.0)
        with self._changed:
            hands.busy.discard(worker)
            self._all.discard(worker)
            self._changed.notify_all()

    def stop(self, hands: Hands) -> None:
        """What is under way for them ends behind the sample that it is at, or soon with its worker; not by a fork."""
        if self._owner != os.getpid():
            return
        with self._changed:
            hands.closed = True
            for worker in hands.busy:
                worker.board[STOP] = 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: not hands.busy, 0.0 if self._closed else _GRACE_S)
            for worker in hands.busy:
                worker.kill()


class Hands:
    """The workers, as one epoch's decode threads use them."""

    def __init__(self, workers: Workers, number: int) -> None:
        self._workers, self._number = workers, number
        self._efforts: dict[_Worker, Effort] = {}
        self.busy: set[_Worker] = set()
        self.closed = False

    def run(self, part: Part, samples: Sequence[Any], away: Callable[[float], None]) -> list[Made | Failed]:
        """What becomes of samples, in their order; `away` is told for how many seconds this thread waited.

        A worker that dies takes one sample with it, the one that it was at; the others are handed to another.

        Raises:
            InputError: all is closed, or the functions cannot be made in another process. InternalError: workers end
            again and again, at no sample. NoRoomError: there is no memory for samples on their way.
        """
        began = time.perf_counter()
        made: dict[int, Made | Failed] = {}
        unnamed = 0
        while packed := self._packed(part, samples, made):
            worker = self._workers.borrow(self)
            left = [place for place in range(len(samples)) if place not in made]
            try:
                answer = worker.run(packed)
            except _DiedError as died:
                how = worker.ended_as()
                self._workers.lose(self, worker)
                if died.sample is None and (unnamed := unnamed + 1) > _UNNAMED:
                    raise InternalError(f"worker processes end again and again ({how})", hint=_HINT) from None
                if died.sample is not None:
                    made[left[died.sample]] = _lost(part.stages[died.stage], how)
                continue
            except BaseException:
                self._workers.lose(self, worker)
                raise
            self._efforts[worker] = answer.effort
            self._workers.give_back(self, worker)
            made.update(zip(left, answer.made, strict=False))  # fewer: it was told to stop
        away(time.perf_counter() - began)
        return [made[place] for place in range(len(samples))]

    def _packed(self, part: Part, samples: Sequence[Any], made: dict[int, Made | Failed]) -> shm.Packed | None:
        """Those of which nothing is made yet; None: there are none. What cannot be sent is a bad sample."""
        assert part.number is not None
        asked = Asked(self._number, part.number, [one for place, one in enumerate(samples) if place not in made])
        try:
            return shm.Packed.of(asked) if asked.samples else None
        except Exception:
            before = len(made)
            for place, one in enumerate(samples):
                if place not in made and (wrong := _unsendable(one)):
                    made[place] = Failed(part.stages[0].name, Remote(wrong, None, ""))
            if len(made) == before:
                raise
            return self._packed(part, samples, made)

    def effort(self) -> Effort:
        """Of the workers in this epoch. Any thread."""
        number = self._workers.number
        spent = sum(list(self._efforts.values()), Effort())
        return replace(spent, threads=number, mean_threads=float(number), processes=number)

    def close(self) -> None:
        """Let decode threads go that wait for workers."""
        self._workers.stop(self)


class _DiedError(Exception):
    """`sample`: the number of the one that it was at, of those that it was handed; None: at none. `stage`: likewise."""

    def __init__(self, sample: int | None, stage: int) -> None:
        super().__init__(sample, stage)
        self.sample, self.stage = sample, stage


class _Worker:
    """One process. One thread at a time, but for `board` and what ends it."""

    def __init__(self, payload: bytes) -> None:
        file = shm.Segment.create(0, 1)
        self.board = board_of(file)
        self.board[SAMPLE] = -1
        self._child = fresh_process.start(worker_program.__name__, payload, [file.fd])
        file.close()
        self._outbox, self._inbox = shm.Outbox(), shm.Inbox()
        self._is_ready = False
        self._ending = threading.Lock()

    def run(self, packed: shm.Packed) -> Answer:
        """What it makes of `Asked`. Raises _DiedError; and as `Hands.run`."""
        self._await_ready()
        try:
            fds = self._outbox.put(packed)
        except OSError as error:
            raise NoRoomError(f"samples for a worker process: {error}", hint="lower prefetch") from error
        with suppress(OSError):  # that it has died is seen below
            socket.send_fds(self._child.socket, [MESSAGE.pack(RUN, 0)], fds)
        is_lent, files = self._receive()
        answer = self._inbox.get(files, _own)
        if is_lent:
            self._outbox.renew()
        return answer

    def _await_ready(self) -> None:
        """Raises InputError: the functions cannot be made there. _DiedError."""
        if self._is_ready:
            return
        _, files = self._receive()
        if files:
            told: Remote = self._inbox.get(files, _own)
            raise InputError(
                f"the functions cannot be made in a worker process: {type(told.error).__name__}: {told.error}",
                hint="define them at the top of a module that other processes can import too",
            ) from told.rebuild("a worker process")
        self._is_ready = True

    def _receive(self) -> tuple[int, list[int]]:
        """What follows the kind of a message, and its descriptors. Raises _DiedError."""
        message, files = b"", list[int]()
        with suppress(OSError):
            message, found, _, _ = socket.recv_fds(self._child.socket, MESSAGE.size, 1)
            files = list(found)
        if not message:
            at = int(self.board[SAMPLE])
            raise _DiedError(None if at < 0 else at, int(self.board[STAGE]))
        return MESSAGE.unpack(message)[1], files

    def ended_as(self) -> str:
        """How, in words."""
        return self._child.ended_as(_LEAVE_S)

    def shut(self) -> None:
        """Have it leave, and who waits for it told."""
        with suppress(OSError):
            self._child.socket.shutdown(socket.SHUT_RDWR)

    def kill(self) -> None:
        """Who waits for it is told."""
        self._child.process.kill()

    def end(self, within_s: float) -> None:
        """Wait so long, then kill it. Any thread, also two."""
        with self._ending:
            try:
                self._child.process.wait(within_s)
            except subprocess.TimeoutExpired:
                self._child.process.kill()
                self._child.process.wait()
            self._child.socket.close()
            self._outbox.renew()
            self._inbox.close()


def _own(buffer: memoryview) -> memoryview:
    """A copy, in memory that was used before."""
    mine = memory.take(buffer.nbytes)
    np.frombuffer(mine, np.uint8)[:] = np.frombuffer(buffer, np.uint8)
    return mine


def _unsendable(sample: Any) -> InputError | None:
    try:
        shm.Packed.of(sample)
    except Exception as error:
        return InputError(f"cannot be sent to a worker process: {error}", hint="pass bytes, arrays, numbers")
    return None


def _lost(stage: Stage, how: str) -> Failed:
    return Failed(stage.name, Remote(BadSampleError(f"its worker process ended ({how})", hint=_HINT), None, ""))


def _end(workers: set[_Worker], owner: int) -> None:
    if owner != os.getpid():  # a fork of who started them
        return
    for worker in list(workers):
        worker.shut()
    deadline = time.monotonic() + _LEAVE_S
    while workers:
        workers.pop().end(max(0.0, deadline - time.monotonic()))
