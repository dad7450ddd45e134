"""Running a mount in the background, and what its signals do."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

from headrace.mount.kernel.startup_errors import error_from_bytes, error_to_bytes

_log = logging.getLogger("headrace.mount")
_READY = b"ready"


def in_background(open_mount: Callable[[], object], serve: Callable[[object], None], log_file: str) -> None:
    """Open and serve in a process of its own; returns once the mount answers.

    The child leaves the terminal and the session; what it logs goes to `log_file`. Call it before any thread runs.

    Raises:
        HeadraceError: the error that the child met when it opened the mount.
    """
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        _become_daemon(source, sink, open_mount, serve, log_file)
    os.close(sink)
    with os.fdopen(source, "rb") as pipe:
        message = pipe.read()
    os.waitpid(child, 0)
    if message != _READY:
        raise error_from_bytes(message)


def on_signals(end: Callable[[], None], refresh: Callable[[], None]) -> None:
    """SIGTERM and SIGINT end the mount in order, a second one at once; SIGHUP looks at the stores again."""
    signal.set_wakeup_fd(-1)  # no two seconds to stop: what is not published yet comes first
    asked = threading.Event()

    def ending(number: int, _: FrameType | None) -> None:
        if asked.is_set():
            os._exit(128 + number)
        asked.set()
        end()

    def hang_up(_: int, __: FrameType | None) -> None:
        threading.Thread(target=refresh, name="headrace-mount-refresh", daemon=True).start()

    signal.signal(signal.SIGTERM, ending)
    signal.signal(signal.SIGINT, ending)
    signal.signal(signal.SIGHUP, hang_up)


def _become_daemon(
    source: int, sink: int, open_mount: Callable[[], object], serve: Callable[[object], None], log_file: str
) -> None:
    """In the child; never returns."""
    code = 1
    try:
        os.close(source)
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        os.chdir("/")
        _redirect(log_file)
        try:
            mounted = open_mount()
        except BaseException as error:
            os.write(sink, error_to_bytes(error))
            os._exit(1)
        os.write(sink, _READY)
        os.close(sink)
        serve(mounted)
        code = 0
    except BaseException:
        _log.exception("the mount ended badly")
    finally:
        logging.shutdown()
        os._exit(code)


def _redirect(log_file: str) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    sys.stdout.flush()
    sys.stderr.flush()
    log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
