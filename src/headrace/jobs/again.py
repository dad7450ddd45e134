"""What another run of the same record does not have again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.tracking.record import RunRecord

_NAMED = 5  # packages named, of each kind


def differences(then: RunRecord, here: RunRecord) -> Iterator[str]:
    """In words, one by one: what is here, and was otherwise then. Only what records tell of."""
    if then.code is None:
        yield f"its code was not recorded: the command runs in {here.folder}, as that is now"
    elif here.code is not None and then.code.get("digest") != here.code.get("digest"):
        yield "its code is another"
    if then.environment.get("digest") != here.environment.get("digest"):
        yield from _environments(then.environment, here.environment)
    for name in sorted({*then.inputs, *here.inputs}):
        if then.inputs.get(name, {}).get("digest") != here.inputs.get(name, {}).get("digest"):
            yield f"input {name} was {_input(then, name)}, and is {_input(here, name)}"
    if then.host != here.host:
        yield f"it ran on {then.host}"
    if then.headrace != here.headrace:
        yield f"headrace was {then.headrace}, and is {here.headrace}"


def _input(record: RunRecord, name: str) -> str:
    told = record.inputs.get(name)
    return "none" if told is None else f"{told.get('snapshot') or told.get('source')}, {told.get('objects')} objects"


def _environments(then: Any, here: Any) -> Iterator[str]:
    for key in ("kind", "python", "platform", "image"):
        if then.get(key) != here.get(key):
            yield f"{key} was {then.get(key)}, and is {here.get(key)}"
    gone = sorted(set(then.get("packages", ())) - set(here.get("packages", ())))
    come = sorted(set(here.get("packages", ())) - set(then.get("packages", ())))
    if gone or come:
        told = [f"-{one}" for one in gone[:_NAMED]] + [f"+{one}" for one in come[:_NAMED]]
        more = " …" if len(gone) > _NAMED or len(come) > _NAMED else ""
        yield f"packages: {', '.join(told)}{more}"
