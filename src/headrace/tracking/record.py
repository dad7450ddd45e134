"""What is written of a run, as frozen data, and its form in the bucket.

    <home>/runs/<id>/run.json                     `RunRecord`, written once, create-only
                     status/<seq>-<state>.json    `Status`, one object a transition, create-only
                     lease.json                   `Lease`, rewritten every 15 s and at every transition; the one object
                                                  that who follows a run polls
                     orders/stop.json             `Order`: whoever writes it wants the run stopped
    <home>/runs/.notes/<id>.json                  `Notes`: what people say of it, changed by conditional put

Times are RFC 3339, UTC.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self, cast

from headrace.base.errors import CorruptError, UnsupportedError

FORMAT: Final = 1
RUNS: Final = "runs"
"""Below the home."""
STATES: Final = ("starting", "waiting", "running", "retrying", "finishing", "finished", "failed", "stopped", "lost")
"""In the order they can come; `waiting`: for machines that it asks for; `lost` is told by who reads: the runner is gone
without a word."""
FINAL: Final = ("finished", "failed", "stopped", "lost")


@dataclass(frozen=True, slots=True)
class Written:
    """Data with a form in JSON; what a newer writer added is passed over, a newer format refused."""

    def as_json(self) -> bytes:
        """UTF-8, with the format's number first."""
        text = json.dumps({"format": FORMAT, **asdict(self)}, ensure_ascii=False, indent=1)
        return text.encode("utf-8", "surrogateescape")

    @classmethod
    def from_json(cls, data: bytes | memoryview, where: str) -> Self:
        """Raises CorruptError, UnsupportedError; both name `where`."""
        try:
            told: Any = json.loads(bytes(data).decode("utf-8", "surrogateescape"))
            number = int(told["format"])
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptError(f"is no record of a run: {error}", path=where) from error
        if number > FORMAT:
            raise UnsupportedError(f"has format {number}, newer than this headrace knows", path=where, hint="update")
        known = {f.name for f in fields(cls)}
        values = {name: _frozen(value) for name, value in cast("dict[str, Any]", told).items() if name in known}
        try:
            return cls(**values)
        except TypeError as error:
            raise CorruptError(f"is no record of a run: {error}", path=where) from error


@dataclass(frozen=True, slots=True)
class RunRecord(Written):
    """What a run was when it started. Nothing in it changes, and no value of an environment variable is in it but
    those the spec allows.
    """

    id: str
    name: str
    created: str
    command: tuple[str, ...]
    folder: str
    """Where the command ran, on `host`."""
    host: str
    user: str
    headrace: str
    """The version that wrote this."""
    spec: Mapping[str, Any] = field(default_factory=dict[str, Any])
    code: Mapping[str, Any] | None = None
    environment: Mapping[str, Any] = field(default_factory=dict[str, Any])
    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    variables: tuple[str, ...] = ()
    """Names of the environment variables that the command got."""
    parent: Mapping[str, Any] | None = None
    """``{"run": id, "as": "rerun" | "resume" | "task"}``."""

    @property
    def tags(self) -> dict[str, str]:
        """What the job was tagged with. `RunView.tags` also has what came later."""
        tags: Any = self.spec.get("tags")
        told = cast("dict[Any, Any]", tags) if isinstance(tags, dict) else {}
        return {str(name): str(value) for name, value in told.items()}


@dataclass(frozen=True, slots=True)
class Status(Written):
    """One transition. `attempt` counts from 1; `exit_code`, `signal`: how the command ended, one of the two."""

    seq: int
    state: str
    time: str
    attempt: int = 0
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    left: tuple[str, ...] = ()
    """Files that are not in the bucket, the first hundred."""
    files: int = 0
    bytes: int = 0
    """Sent in all."""

    @property
    def name(self) -> str:
        """Of its object, below ``status/``."""
        return f"{self.seq:05d}-{self.state}.json"


@dataclass(frozen=True, slots=True)
class Lease(Written):
    """That the runner lives, and how the run stands. `files`, `bytes`, `oldest` (seconds): not sent yet.

    `last`: the last transition that is in the bucket, as its own object has it, so that who looks need not list them;
    None: an older version wrote it.
    """

    seq: int
    state: str
    time: str
    pid: int
    host: str
    attempt: int = 0
    files: int = 0
    bytes: int = 0
    oldest: float = 0.0
    last: Mapping[str, Any] | None = None

    @property
    def status(self) -> Status | None:
        """`last`, if it is there and sound."""
        if self.last is None:
            return None
        known = {f.name for f in fields(Status)}
        try:
            return Status(**{name: _frozen(value) for name, value in self.last.items() if name in known})
        except TypeError:
            return None


@dataclass(frozen=True, slots=True)
class Order(Written):
    """`grace`: seconds between SIGTERM and SIGKILL, None as the job says."""

    time: str
    by: str
    grace: float | None = None

    @staticmethod
    def from_here(grace: float | None = None) -> Order:
        """One given now by who runs this process."""
        return Order(now(), user_here(), grace)


@dataclass(frozen=True, slots=True)
class Notes(Written):
    """What people said of a run after it had begun. `of`: when its record was created, so that a later run of the same
    id does not have them; `tags`: over those of the record, None: taken away; `time`, `by`: of the last change.
    """

    of: str = ""
    tags: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    note: str = ""
    time: str = ""
    by: str = ""

    def tags_over(self, record: RunRecord) -> dict[str, str]:
        """All tags that the run has now."""
        merged: dict[str, str | None] = {**record.tags, **self.tags}
        return {name: value for name, value in merged.items() if value is not None}


class Clock:
    """The times of one run, from the moment this is made: what passes is counted, so that a clock which is set makes
    no run longer or shorter. Any thread.
    """

    def __init__(self) -> None:
        self._began = datetime.now(UTC)
        self._since = time.clock_gettime(time.CLOCK_BOOTTIME)

    def now(self) -> str:
        """RFC 3339."""
        return _text(self._began + timedelta(seconds=time.clock_gettime(time.CLOCK_BOOTTIME) - self._since))


def now() -> str:
    """The time here, RFC 3339."""
    return _text(datetime.now(UTC))


def user() -> str:
    """Who runs this process: by name, or by number where there is none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def user_here() -> str:
    """Who runs this process, and where."""
    return f"{user()}@{socket.gethostname()}"


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def new_id(name: str) -> str:
    """``20260131-120000-digits-3f9a``: sorts by time, tells what it is, and is told from its like by four digits."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{name}-{secrets.token_hex(2)}"


def as_name(text: str) -> str:
    """A run's name made of any text: lower case, digits, ``.``, ``_`` and ``-``, forty characters at most."""
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")[:40].strip("-._") or "run"


def _frozen(value: Any) -> Any:
    return tuple(cast("list[Any]", value)) if isinstance(value, list) else value
