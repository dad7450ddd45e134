"""Processes that a test starts: a check that fails ends them, instead of waiting for what nobody will end."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def running(command: list[str], **how: Any) -> Iterator[subprocess.Popen[Any]]:
    """As `with subprocess.Popen(command, **how)`, which waits for the process at its end; after a failure it is killed
    first.
    """
    with subprocess.Popen(command, **how) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise
