"""Programs of others (uv, podman, docker) run to their end: never for ever, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

from headrace.base.errors import DeadlineError, UnsupportedError

Tell = Callable[[str], None]
"""Told what goes on, one line a call; from any thread."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a program left: its exit code (negative: the signal), standard output, and last lines of standard error."""

    code: int
    out: str
    lines: tuple[str, ...]

    def last(self, count: int = 12) -> str:
        """The last lines it said, as one text."""
        return "\n".join(self.lines[-count:])


def ask(
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    folder: str = "/",
    deadline: float,
    tell: Tell | None = None,
) -> Answer:
    """Run `argv` in `folder` with the environment `environ`, and wait `deadline` seconds at most. Any thread.

    Raises:
        DeadlineError: it took longer, and was killed with all that it had started. UnsupportedError: no such program.
    """
    try:
        process = subprocess.Popen(
            argv, env=environ, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, encoding="utf-8", errors="replace", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise UnsupportedError(f"cannot be started: {error.strerror}", path=argv[0]) from error
    lines: deque[str] = deque(maxlen=100)
    out: list[str] = []

    def said(line: str) -> None:
        lines.append(line.rstrip())
        if tell is not None and line.strip():
            tell(line.rstrip())

    readers = [_reader(process.stderr, said), _reader(process.stdout, out.append)]
    try:
        process.wait(deadline)
        for reader in readers:  # what it left running may hold the pipes for ever
            reader.join(5.0)
    except subprocess.TimeoutExpired:
        name = os.path.basename(argv[0])
        hint = f"its last words: {lines[-1]}" if lines else "is the network up?"
        raise DeadlineError(f"{name} {argv[1] if len(argv) > 1 else ''} took over {deadline:g} s", hint=hint) from None
    finally:
        _ended(process)
    return Answer(process.returncode, "".join(out), tuple(lines))


def _reader(pipe: IO[str] | None, take: Callable[[str], None]) -> threading.Thread:
    def read() -> None:
        assert pipe is not None
        with pipe:
            for line in pipe:
                take(line)

    thread = threading.Thread(target=read, name="headrace-program", daemon=True)
    thread.start()
    return thread


def _ended(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:  # also when Ctrl-C came
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
