"""What ``headrace why`` advised, done to a constructed run of ``benchmarks/why.py``: the same case, changed as the
verdict's `action` says.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from why_cases import Case

PACKED = "-packed"
"""After the name of the data: shards of it."""


def advised(case: Case, action: Mapping[str, Any] | None) -> Case | None:
    """The case as it is when the advice was followed; None where a benchmark cannot: there is no action, or what reads
    files of a mount would have to be written anew.
    """
    follow = None if action is None else _FOLLOW.get(action["name"])
    if follow is None or (case.mount is not None and action is not None and action["name"] not in _AT_A_MOUNT):
        return None
    assert action is not None
    return follow(case, float(action["value"]))


def _job(case: Case, **changed: Any) -> Case:
    return dataclasses.replace(case, job={**case.job, **changed})


def _warm(case: Case, _value: float) -> Case:
    return dataclasses.replace(case, warm=True)


def _pack(case: Case, _value: float) -> Case:
    return dataclasses.replace(_job(case, packed=True), data=case.data + PACKED)


def _threads(case: Case, value: float) -> Case:
    return _job(case, threads=int(value))


def _processes(case: Case, value: float) -> Case:
    return _job(case, processes=int(value))


def _lighten(case: Case, value: float) -> Case:
    return _job(case, decode_s=case.job["decode_s"] * value)


def _alone(case: Case, _value: float) -> Case:
    return dataclasses.replace(case, neighbour="")


def _aside(case: Case, _value: float) -> Case:
    return _job(case, aside=True)


_FOLLOW: Mapping[str, Callable[[Case, float], Case]] = {
    "warm": _warm, "pack": _pack, "threads": _threads, "processes": _processes, "lighten": _lighten,
    "alone": _alone, "aside": _aside,
}  # fmt: skip
_AT_A_MOUNT = {"warm", "lighten", "alone"}
