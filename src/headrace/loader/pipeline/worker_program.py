"""The program of a worker process: runs stages on the samples that it is handed, some at a time, one after the other.

It ends when its socket closes, and when the process that started it ends, whatever it is doing: a thread waits for
both.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from headrace.base.errors import InputError
from headrace.catalog import Stage
from headrace.formats import Sample
from headrace.loader import fresh_process
from headrace.loader import memory_files as shm
from headrace.loader.fresh_process import Remote
from headrace.loader.pipeline.decode_effort import Effort, Watch
from headrace.loader.pipeline.run_stages import Call, Part, StageError, run_flat, run_stages

MESSAGE: Final = struct.Struct("<BB")
"""What a message is, and of an answer whether the file that was read is in use yet."""
READY, FAILED, RUN, DONE = range(4)
SAMPLE, STAGE, STOP = range(3)
"""Places on a worker's board: the number of the sample that it is at (-1: none) and of its stage; and, not zero, that
it is to stop behind this sample.
"""
_BOARD_BYTES: Final = 64  # room for these places, of 8 bytes each; a line of the processor's cache


@dataclass(frozen=True)
class Program:
    """What every worker of a loader is sent. `parts`: those with a number, by it."""

    parts: tuple[Part, ...]
    flat: bool


class Asked(NamedTuple):
    """Samples for one part; where ``flat_map`` is among a data set's stages, lists of samples. `epoch`: changes with
    it.
    """

    epoch: int
    part: int
    samples: list[Any]


class Made(NamedTuple):
    """What became of a sample: see `run_stages`."""

    sample: Any
    kept: bool


class Failed(NamedTuple):
    """A stage raised."""

    stage: str
    error: Remote


class Answer(NamedTuple):
    """`made`: of the samples in their order; fewer where it was told to stop. `effort`: in this epoch so far."""

    made: list[Made | Failed]
    effort: Effort


def board_of(segment: shm.Segment) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The board in its memory file, which both processes see."""
    return segment.array()[:_BOARD_BYTES].view(np.int64)


def run_part(part: Part, sample: Any, flat: bool, call: Call | None) -> Made:
    """One sample, or where ``flat_map`` is among the stages, those that became of one. Raises StageError."""
    if flat:
        samples = run_flat(part.stages, sample, call)
        return Made(samples, bool(samples))
    return Made(*run_stages(part.stages, sample, call))


def child_main(fd: int, *, with_thread: bool) -> None:
    """Work for the parent at the other end of socket `fd`. Never returns."""
    parent = os.getppid()
    sock, payload, fds = fresh_process.begin(fd, with_thread=with_thread)
    threading.Thread(target=_leave_with_parent, args=(sock, parent), daemon=True).start()
    outbox = shm.Outbox()
    try:
        program: Program = fresh_process.made_of(payload)
    except BaseException as error:
        text = "".join(traceback.format_exception(error)).strip()
        _tell(sock, FAILED, outbox, Remote(fresh_process.portable(error, InputError), None, text))
        sock.recv(1)  # until the parent has read it
        os._exit(0)
    gc.collect()
    gc.freeze()  # what is here lasts
    board = board_of(shm.Segment(0, os.fstat(fds[0]).st_size, fds[0]))
    sock.send(MESSAGE.pack(READY, 0))
    worker = _Worker(program, board, outbox)
    inbox = shm.Inbox()
    while True:
        message, files, _, _ = socket.recv_fds(sock, MESSAGE.size, 1)
        if not message:
            os._exit(0)
        answer = worker.answer(inbox.get(list(files)))
        fresh = outbox.put(answer)
        del answer
        socket.send_fds(sock, [MESSAGE.pack(DONE, inbox.is_lent)], fresh)


def _tell(sock: socket.socket, kind: int, outbox: shm.Outbox, what: Any) -> None:
    socket.send_fds(sock, [MESSAGE.pack(kind, 0)], outbox.put(shm.Packed.of(what)))


def _leave_with_parent(sock: socket.socket, parent: int) -> None:
    """Another process may hold the other end of our socket yet, a fork of our parent's: so its end is watched, too."""
    watch = select.poll()
    watch.register(sock, select.POLLRDHUP)
    with contextlib.suppress(OSError):
        watch.register(os.pidfd_open(parent), select.POLLIN)
    if os.getppid() == parent:
        watch.poll()
    os._exit(0)


class _Worker:
    def __init__(self, program: Program, board: np.ndarray[Any, np.dtype[np.int64]], outbox: shm.Outbox) -> None:
        self._program, self._board, self._outbox = program, board, outbox
        self._epoch, self._watch = -1, Watch()
        self._torch: Any = None

    def answer(self, asked: Asked) -> shm.Packed:
        """Nothing of what was read is held by us behind it."""
        if self._torch is not (torch := sys.modules.get("torch")):
            self._torch = torch
            self._torch.set_num_threads(1)  # one of as many workers as there are cores
        if asked.epoch != self._epoch:
            self._watch.close()
            self._epoch, self._watch = asked.epoch, Watch()
        part, made = self._program.parts[asked.part], list[Made | Failed]()
        self._watch.run(lambda call: made.extend(self._run(part, asked.samples, call)))
        self._board[SAMPLE] = -1
        answer = Answer(made, Effort.of([self._watch]))
        try:
            return shm.Packed.of(answer)
        except Exception:
            return shm.Packed.of(answer._replace(made=[_sendable(part, one) for one in made]))

    def _run(self, part: Part, samples: Sequence[Any], call: Call | None) -> list[Made | Failed]:
        board, flat = self._board, self._program.flat
        places = {id(stage): place for place, stage in enumerate(part.stages)}

        def told(stage: Stage, sample: Sample) -> Any:
            board[STAGE] = places[id(stage)]
            return stage.function(sample) if call is None else call(stage, sample)

        found: list[Made | Failed] = []
        for place, sample in enumerate(samples):
            if board[STOP]:
                break
            board[STAGE] = 0
            board[SAMPLE] = place
            try:
                found.append(run_part(part, sample, flat, told))
            except StageError as failed:
                found.append(_failed(failed))
        return found


def _failed(failed: StageError) -> Failed:
    error = failed.error
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith("headrace.loader.pipeline"):
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace)).strip()
    error.__traceback__ = None  # whose frames, and so the samples in them, refer to what is sent
    cause = error.__cause__
    told = Remote(
        fresh_process.portable(error, InputError), None if cause is None else fresh_process.portable(cause), text
    )
    return Failed(failed.stage, told)


def _sendable(part: Part, made: Made | Failed) -> Made | Failed:
    try:
        shm.Packed.of(made)
    except Exception as error:
        hint = "return arrays, numbers, text"
        wrong = InputError(f"what it returns cannot be sent from a worker process: {error}", hint=hint)
        return Failed(part.stages[-1].name, Remote(wrong, None, ""))
    return made
