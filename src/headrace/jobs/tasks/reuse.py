"""What is up to date: tasks whose runs are taken, because nothing that they are made of has changed.

    <home>/runs/.tasks/<digest>.json     {"format": 1, "run": id}: the newest finished run that was made of this

The digest is of the task's job, its code, environment, pinned inputs, parameters, and the runs that it comes after. The
objects are hints: each may be deleted at any time, and a run that one names is looked at before it is taken.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headrace.base.errors import HeadraceError
from headrace.jobs.spec import JobSpec
from headrace.namespace.home import Home
from headrace.tracking.record import RUNS, RunRecord
from headrace.tracking.runs import Run

FORMAT: Final = 1
KEPT: Final = ".tasks"
_NO_MATTER: Final = ("name", "tags", "retry", "time_limit", "grace")
"""Fields of a job that change nothing of what it leaves."""


def digest(spec: JobSpec, parameters: Mapping[str, str], before: Sequence[str], whole: RunRecord) -> str | None:
    """Of all that a task is made of. `before`: ids of runs; `whole`: record of the run that leads it. None: not all of
    it is known, so the task cannot be up to date: see `unknown`.
    """
    if unknown(spec, whole) is not None:
        return None
    table = {key: value for key, value in spec.as_json().items() if key not in _NO_MATTER}
    inputs: dict[str, Any] = dict(whole.inputs)
    made_of = {
        "job": table,
        "parameters": dict(parameters),
        "code": (whole.code or {})["digest"],
        "environment": whole.environment["digest"],
        "inputs": {name: inputs[name]["digest"] for name in spec.inputs if name in inputs},
        "before": list(before),
    }
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode("utf-8", "surrogateescape")).hexdigest()


def unknown(spec: JobSpec, whole: RunRecord) -> str | None:
    """Why it cannot be told whether tasks of a job are up to date, for people; None: it can."""
    if whole.code is None:
        return "no code is recorded"
    hidden = [name for name, value in spec.environment.shown().items() if value is None]
    return f"values of {', '.join(hidden)} are not recorded (environment.record)" if hidden else None


def find(home: Home, found: str) -> Run | None:
    """A finished run of this digest, all of which is in the bucket. None: there is none, or nobody can tell."""
    try:
        told = json.loads(bytes(home.store.get(home.key(RUNS, KEPT, f"{found}.json")).data))
        run = Run(home, str(told["run"]))
        view = run.look()
    except (HeadraceError, ValueError, KeyError, TypeError):
        return None
    return run if view.state == "finished" and not view.status.left else None


def keep(home: Home, found: str, run: str) -> None:
    """This run is the newest finished one of this digest. Raises any store error."""
    home.store.put(home.key(RUNS, KEPT, f"{found}.json"), json.dumps({"format": FORMAT, "run": run}).encode())
