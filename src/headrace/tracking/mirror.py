"""``python -m headrace.tracking.mirror``: the process beside a runner that keeps its run in step in MLflow.

A process of its own, so that nothing of it weighs on the runner, and its end ends nothing else. It reads JSON lines:
first what is mirrored, then, once the run is over, how it ended. The end of its input without that means that the
runner is gone. It writes JSON lines: ``{"id", "url"}``, ``{"away"}``, ``{"left"}``, ``{"done"}``.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any, Final

from headrace.base.errors import DeniedError, HeadraceError, InputError
from headrace.tracking.mlflow_client import MlflowServer
from headrace.tracking.mlflow_mirror import MlflowMirror, Source
from headrace.tracking.record import RunRecord, Status, now

EVERY_S: Final = 5.0
"""Between two looks at what is new."""
END_S: Final = 30.0
"""Longest time after the run's end; a server that never answered gets `NEVER_S`."""
NEVER_S: Final = 3.0
"""Longest time after the run's end for a server that has never answered: nobody is to wait for it."""
GONE_S: Final = 8.0
"""Longest time after the runner's."""
_AGAIN_S = (1.0, 15.0)
"""Pause after a failure, twice as long each time, up to the second."""


class _Heard:
    """What the runner says, read by a thread."""

    def __init__(self) -> None:
        self.poke = threading.Event()
        self.status: Status | None = None
        self.deadline = float("inf")
        self.gone = False
        threading.Thread(target=self._listen, name="headrace-mirror-listen", daemon=True).start()

    def _listen(self) -> None:
        line = sys.stdin.readline()
        if line:
            self.status = Status.from_json(line.encode("utf-8", "surrogateescape"), "the runner's word")
        else:
            self.gone = True
            self.status = Status(0, "lost", now(), reason="its runner died")
        self.deadline = time.monotonic() + (GONE_S if self.gone else END_S)
        self.poke.set()


def main() -> int:
    """Until all is there, or the time is over."""
    told = json.loads(sys.stdin.readline())
    server = MlflowServer.of_environment()
    if server is None:
        return 2
    source = _source(told)
    mirror, heard = MlflowMirror(server, source), _Heard()
    pause, said = _AGAIN_S[0], ""
    while True:
        try:
            if not mirror.id:
                mirror.begin()
                _say({"id": mirror.id, "url": mirror.url})
            over = heard.status
            mirror.follow()
            pause, said = _AGAIN_S[0], ""
            if over is not None:
                mirror.finish(over)
                _say({"done": mirror.points, "refused": mirror.refused})
                return 0
            heard.poke.wait(EVERY_S)
        except HeadraceError as error:
            if str(error) != said:
                said = str(error)
                _say({"away": said})
            refused = isinstance(error, (InputError, DeniedError))
            if _late(heard, never=not mirror.id or refused):
                _say({"left": said})
                return 1
            time.sleep(min(pause, _AGAIN_S[0]) if heard.status is not None else 0)
            if heard.status is None:
                heard.poke.wait(pause)
            pause = min(2 * pause, _AGAIN_S[1])


def _late(heard: _Heard, *, never: bool) -> bool:
    if heard.status is None:
        return False
    least = (END_S - NEVER_S) if never and not heard.gone else 0.0
    return time.monotonic() > heard.deadline - least


def _source(told: dict[str, Any]) -> Source:
    from headrace.store import open_store

    record = RunRecord.from_json(json.dumps(told["record"]).encode("utf-8", "surrogateescape"), "the runner's word")
    return Source(record, open_store(f"file://{told['folder']}"), "", told["url"])


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(1)
