"""The runner's side of a run's mirror in MLflow: a process that is started, told, started again, and not waited for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from headrace.base.errors import HeadraceError
from headrace.base.settings import environment
from headrace.jobs.folder import RunFolder
from headrace.tracking.mirror import END_S
from headrace.tracking.mlflow_client import MlflowServer
from headrace.tracking.record import RunRecord, Status

WAIT_S: Final = 5.0
"""Longest time the command's start is held up for MLflow's id of the run; no time where the server does not answer."""
_STARTS = 5  # processes, each of which died without a word
_AGAIN_S = 1.0  # seconds before the next one


class Mirroring:
    """Nothing at all where ``MLFLOW_TRACKING_URI`` is not set. The runner's main thread; `close` it.

    The process is started at once and told later, so that what its start costs is spent while the code is captured.
    """

    def __init__(self, folder: RunFolder, url: str, note: Callable[[str], None], *, wanted: bool = True) -> None:
        self._folder, self._url, self._note = folder, url, note
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None
        self._begin = ""
        self._end = ""
        self._known, self._done = threading.Event(), threading.Event()
        self._over = False
        self._lock = threading.Lock()
        self._said: set[str] = set()
        self._id = ""
        self._left = ""
        self._refused = ""
        if wanted and environment("MLFLOW_TRACKING_URI") is not None:
            try:
                MlflowServer.of_environment()
                self._process = self._spawn()
            except (HeadraceError, OSError) as error:
                self._refused = str(error)

    def start(self, record: RunRecord) -> None:
        """The run is recorded."""
        if self._refused:
            self._note(f"not mirrored to MLflow: {self._refused}")
        if self._process is None:
            return
        told = {"record": json.loads(record.as_json()), "folder": self._folder.recorded(), "url": self._url}
        self._begin = json.dumps(told)
        self._tell(self._process, self._begin)
        self._thread = threading.Thread(target=self._work, name="headrace-run-mirror", daemon=True)
        self._thread.start()

    def variables(self, timeout: float = WAIT_S) -> dict[str, str]:
        """For the command: ``MLFLOW_RUN_ID``, if it is known by then, so that what it logs itself lands there too."""
        if self._thread is None:
            return {}
        self._known.wait(timeout)
        return {"MLFLOW_RUN_ID": self._id} if self._id else {}

    def end(self, status: Status) -> None:
        """The command is over, and the last of its metrics is in the folder. Returns at once."""
        if self._thread is None:
            return
        with self._lock:
            self._end = json.dumps(json.loads(status.as_json()))
            if self._process is not None:
                self._tell(self._process, self._end)

    def wait(self) -> None:
        """For what is on its way, half a minute at most. Raises KeyboardInterrupt."""
        if self._thread is not None:
            self._done.wait(END_S + 1.0)  # not `join`: one that is interrupted takes the thread for ended

    def close(self) -> None:
        """End it, and tell what is left. Idempotent."""
        thread, self._thread = self._thread, None
        late = thread is not None and not self._done.is_set()
        self._over = True
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
        if thread is not None:
            thread.join(2.0)
        if process is not None:
            _close(process)
        if late or self._left:
            why = self._left or "it takes too long"
            self._left = ""
            self._note(f"MLflow has not all of it: {why}; send the rest: headrace mlflow send {self._name}")

    @property
    def _name(self) -> str:
        return self._url.rpartition("/")[2]

    def _work(self) -> None:
        try:
            self._follow()
        finally:
            self._known.set()
            self._done.set()

    def _follow(self) -> None:
        """Hear the process out; start another if it dies without a word."""
        for again in range(_STARTS):
            process = self._process
            if process is None or self._listen(process):
                return
            with self._lock:
                if self._over or self._process is not process:
                    return
            process.wait()
            if again + 1 == _STARTS:
                break
            time.sleep(_AGAIN_S)
            with self._lock:
                if self._over:
                    return
                _close(process)
                try:
                    self._process = self._spawn()
                except OSError as error:
                    self._left = str(error)
                    self._process = None
                    return
                self._tell(self._process, self._begin)
                if self._end:
                    self._tell(self._process, self._end)
        self._left = f"its process died {_STARTS} times"

    def _listen(self, process: subprocess.Popen[str]) -> bool:
        """Whether it said that it was done."""
        assert process.stdout is not None
        for line in process.stdout:
            try:
                told: dict[str, Any] = json.loads(line)
            except ValueError:
                continue
            if "id" in told:
                self._id = str(told["id"])
                self._once(f"mirrored to {told['url']}")
            elif "away" in told:
                self._once(f"not mirrored for now: {told['away']}")
            elif "left" in told:
                self._left = str(told["left"])
                return True
            elif "done" in told:
                self._left = ""
                if told.get("refused"):
                    self._once(f"MLflow does not take {told['refused']} of {told['refused'] + told['done']} points")
                return True
            self._known.set()
        return False

    def _once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._note(text)

    def _spawn(self) -> subprocess.Popen[str]:
        """Not with ``-m`` alone: that would take modules from the folder the user is in."""
        log = os.open(self._folder.at("mirror.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "headrace.tracking.mirror"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, process_group=0,
            )  # fmt: skip
        finally:
            os.close(log)

    @staticmethod
    def _tell(process: subprocess.Popen[str], line: str) -> None:
        assert process.stdin is not None
        with suppress(OSError, ValueError):  # it has died: `_work` sees to that
            process.stdin.write(line + "\n")
            process.stdin.flush()


def _close(process: subprocess.Popen[str]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()
