"""TensorBoard over runs of a home: their event files brought here, and the program that shows them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.base.places import temporary_folder
from headrace.base.settings import whole_environment
from headrace.tracking.boards import LOOK_S, Board
from headrace.tracking.program import Command, Program, address, choose_port, find_program
from headrace.tracking.runs import Run

_USUAL_PORT = 6006  # TensorBoard's own


@dataclass(frozen=True, slots=True)
class ShownBoard:
    """TensorBoard at work. `folder`: the event files; `board` brings what is new: call its `look` again and again."""

    url: str
    folder: str
    board: Board
    program: Program


@contextmanager
def tensorboard(
    runs: Sequence[Run],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    folder: str | None = None,
    tell: Callable[[str], None] = lambda _line: None,
) -> Generator[ShownBoard]:
    """TensorBoard of these runs, running until the block ends. Main thread.

    Args:
        runs: which; one that is named twice is shown once.
        host: address to listen on.
        port: 0: 6006, or a free one.
        folder: where event files are brought, and stay; None: one that goes with it.
        tell: called with a line when a run cannot be read, or has nothing to show.

    Raises:
        UnsupportedError: TensorBoard is not installed. InputError: the port is taken. TryAgainError: it ended at once.
        DeadlineError: it does not answer. Any store error of a first look.
    """
    program = find_program("tensorboard", "tensorboard")
    scratch = tempfile.mkdtemp(prefix="headrace-tensorboard-", dir=temporary_folder())
    shown = os.path.abspath(folder) if folder is not None else os.path.join(scratch, "runs")
    os.makedirs(shown, exist_ok=True)
    try:
        board = Board(list({run.id: run for run in runs}.values()), shown, tell)
        board.look()
        for one in board.runs:
            if not one.files and not one.points:
                more = "" if one.over else " yet; it is looked for again"
                tell(f"{one.run.id} has neither event files nor metrics{more}")
        chosen = choose_port(host, port, _USUAL_PORT)
        url = address(host, chosen)
        argv = [program, "--logdir", shown, "--host", host, "--port", str(chosen)]
        argv += ["--reload_interval", f"{LOOK_S:g}", "--reload_multifile", "true"]
        environ = {"TF_CPP_MIN_LOG_LEVEL": "3", **whole_environment()}
        log = os.path.join(scratch, "tensorboard.log")
        with Program(Command(argv, environ, scratch, log, f"{url}/data/environment", [scratch])) as running:
            yield ShownBoard(url, shown, board, running)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
