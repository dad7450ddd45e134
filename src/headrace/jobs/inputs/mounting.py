"""The mount of one input, served by a process of its own that ends with this one, however this one ends."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.base.errors import HeadraceError, UnsupportedError
from headrace.mount import MOUNT_TYPE, MountPoint, mounts, unmount

if TYPE_CHECKING:
    from headrace.catalog import Pin

_READY_S: Final = 120.0  # seconds until a mount serves: it asks its store first
_END_S: Final = 15.0  # seconds until it is unmounted; then it is ended
_START: Final = (
    "import sys; sys.path.append(sys.argv.pop(1)); from headrace.jobs.inputs.serving import main; main()"
)


class MountedInput:
    """One mount, at the folder `point`, which is made. Closed by whoever made it; any thread."""

    def __init__(self, pin: Pin, folder: str, point: str, log: str) -> None:
        """Returns once it answers. `folder`: of the pin; `log`: file for what goes wrong.

        Raises UnsupportedError: nothing can be mounted here; it says why.
        """
        self.point = point
        self._order = {"pin": pin.as_json(), "folder": folder, "point": point}
        self._log = log
        os.makedirs(point, exist_ok=True)
        self._start()

    def renew(self) -> None:
        """Mount again if its process has died. Raises as `__init__`."""
        if self._process.poll() is not None:
            self.close()
            self._start()

    def _start(self) -> None:
        with open(self._log, "ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, str(Path(__file__).resolve().parents[3])],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
            )  # fmt: skip
        try:
            self._begin()
        except BaseException:
            self._process.kill()  # it may be waiting for a store
            self.close()
            raise

    def close(self) -> None:
        """Unmount. Idempotent."""
        process = self._process
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        clear_mounts(self.point)

    def _begin(self) -> None:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(self._order).encode() + b"\n")
            process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], _READY_S)
        told = process.stdout.readline() if ready else b""
        if not told:
            reason = f"its process did not answer within {_READY_S:g} s" if not ready else "its process has ended"
            raise UnsupportedError(reason, path=self.point)
        if error := json.loads(told).get("error"):
            raise UnsupportedError(str(error))


def clear_mounts(folder: str) -> bool:
    """Unmount what of ours is mounted at or below `folder`, dead or alive. False: something is mounted there still."""
    for one in reversed(_mounted(folder)):
        if one.kind == MOUNT_TYPE:
            with suppress(HeadraceError):
                unmount(one.point, lazy=True)
    return not _mounted(folder)


def _mounted(folder: str) -> list[MountPoint]:
    path = os.path.realpath(folder)
    return [one for one in mounts() if one.point == path or one.point.startswith(path + "/")]
