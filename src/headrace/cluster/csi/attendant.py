"""The first process of the plugin's container: it starts the plugin again when that dies, so that the container, and
with it all mounts, live on. It holds nothing, and imports next to nothing.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Final

_log = logging.getLogger("headrace.cluster")
_PAUSE_S: Final = 1.0  # seconds before the plugin is started again
_WRONG: Final = 2
"""Exit code of a plugin that was started wrongly: it would be the same again."""


def attend(serve: Callable[[], int], end: Callable[[], None]) -> int:
    """Run `serve` in a child, again where it dies, until SIGTERM or SIGINT; then `end`. Returns the exit code.

    Whoever loses his parent in this container becomes a child of this process; their ends are taken note of. Call it
    before any thread runs.
    """
    ending = False
    child = 0

    def stop(_: int, __: FrameType | None) -> None:
        nonlocal ending
        ending = True
        if child:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)

    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    while True:
        child = _start(serve)
        code = _wait(child)
        child = 0
        if ending:
            end()
            return 0
        if code == _WRONG:
            return code
        _log.error("the plugin has ended with %d; it is started again", code)
        time.sleep(_PAUSE_S)


def _start(serve: Callable[[], int]) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is told by the parent
        code = serve()
    except BaseException:
        _log.exception("the plugin ended badly")
    finally:
        logging.shutdown()
        os._exit(code)


def _wait(child: int) -> int:
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            return os.waitstatus_to_exitcode(status)
