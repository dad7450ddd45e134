"""A preview made by a process of its own, which is ended when it takes too much."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from headrace.base.errors import CorruptError, NoRoomError
from headrace.base.settings import environment
from headrace.base.units import format_bytes, format_seconds
from headrace.web.previews.frames import ASK, BYTES, DONE, FRAME, REFUSED, About, exactly
from headrace.web.previews.preview import Made, Preview
from headrace.web.previews.source import Budget, Limits

_COMMAND: Final = (sys.executable, "-P", "-m", "headrace.web.previews")
_GIVEN: Final = (
    "PATH",
    "PYTHONPATH",
    "PYTHONHOME",
    "LD_LIBRARY_PATH",
    "LANG",
    "LC_ALL",
    "TMPDIR",
)
"""Variables that it gets: none that a secret could be in."""
_OURS: Final = {
    "ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2",
}  # fmt: skip
"""So that little address space is taken that is not used."""
_MOST: Final = 16 << 20
"""Bytes of a preview."""


def made_apart(path: str, size: int, ask: Callable[[int, int], bytes], limits: Limits) -> Made:
    """The preview of a file of `size` bytes; `ask` gives bytes [start, stop) of it. Any thread; waits.

    Raises:
        CorruptError: the process took more than it may, or the file made it end. What `ask` raises.
    """
    variables = {name: value for name in _GIVEN if (value := environment(name)) is not None}
    with subprocess.Popen(
        _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=variables | _OURS
    ) as process:
        timer = threading.Timer(limits.seconds, process.kill)
        timer.daemon = True
        timer.start()
        try:
            return _followed(process, About(path, size, limits.memory, limits.seconds), ask, Budget(limits))
        except (EOFError, BrokenPipeError):
            text = f"took more than {format_seconds(limits.seconds)} or {format_bytes(limits.memory)}, or broke off"
            raise CorruptError(f"cannot be shown: to look at it {text}", path=path) from None
        finally:
            timer.cancel()
            process.kill()
            if process.stdin is not None:
                with suppress(BrokenPipeError):
                    process.stdin.close()


def _followed(process: subprocess.Popen[bytes], about: About, ask: Callable[[int, int], bytes], budget: Budget) -> Made:
    answers, told = process.stdin, process.stdout
    assert answers is not None
    assert told is not None
    answers.write(msgspec.json.encode(about) + b"\n")
    while True:
        answers.flush()
        kind, first, second = FRAME.unpack(exactly(told, FRAME.size))
        if kind == DONE and first + second <= _MOST:
            preview = msgspec.json.decode(exactly(told, first), type=Preview)
            return Made(preview, exactly(told, second))
        if kind != ASK:
            raise EOFError
        try:
            budget.take(first, second)
        except NoRoomError as error:
            text = error.reason.encode()
            answers.write(FRAME.pack(REFUSED, len(text), 0) + text)
            continue
        data = ask(first, second)
        answers.write(FRAME.pack(BYTES, len(data), 0))
        answers.write(data)
