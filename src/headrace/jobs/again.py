"""What another run of the same record cannot have again."""

from __future__ import annotations

import platform
import socket
from collections.abc import Iterator

import headrace
from headrace.tracking.record import RunRecord


def differences(record: RunRecord) -> Iterator[str]:
    """In words, one by one: what is here, and was otherwise then. Only what the record tells of."""
    if record.code is None:
        yield f"its code was not recorded: the command runs in {record.folder}, as that is now"
    then = record.environment
    here = describe_host()
    for key in sorted(set(then) & set(here)):
        if then[key] != here[key]:
            yield f"{key} was {then[key]}, and is {here[key]}"
    if record.host != socket.gethostname():
        yield f"it ran on {record.host}"
    if record.headrace != headrace.__version__:
        yield f"headrace was {record.headrace}, and is {headrace.__version__}"


def describe_host() -> dict[str, str]:
    """What a record tells of the machine."""
    return {"kind": "host", "python": platform.python_version(), "platform": platform.platform()}
