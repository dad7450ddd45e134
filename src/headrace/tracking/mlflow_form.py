"""A run in MLflow's words: its parameters, tags and metrics. Pure functions.

Limits are MLflow's own (``mlflow/utils/validation.py``): names of 250 characters, values of parameters 6,000, of tags
8,000; a name may hold letters, digits, ``_ - . / :`` and blanks.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, cast

from headrace.tracking.record import RunRecord
from headrace.tracking.reporter import is_ours

RUN_ID: Final = "headrace.run_id"
"""The tag by which a run is found again."""
SENT: Final = "headrace.segments_sent"
"""The tag that says how many segments of metrics are there."""
STATES: Final = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED", "lost": "FAILED"}
_NAME, _PARAM, _TAG = 250, 6000, 8000
"""Characters, by MLflow."""
_FORBIDDEN = re.compile(r"[^\w\-. /:]")
_FLAG = re.compile(r"--?([A-Za-z][\w.\-]*)(?:=(.*))?", re.DOTALL)
_OVERRIDE = re.compile(r"\+{0,2}([A-Za-z_][\w.]*)=(.*)", re.DOTALL)
_SECRET = re.compile(
    r"passw(or)?d|secret|credential|(api|access|private)[_-]?key|(^|[_-])token$", re.IGNORECASE
)
_MASKED: Final = "***"
_SHOWN = ("time_limit", "grace", "processes", "retry", "resources", "environment")
_MEGABYTE = 1e6
"""What MLflow means by it."""
_SYSTEM = {
    "cpu": ("cpu_utilization_percentage", 1.0),
    "memory_used": ("system_memory_usage_megabytes", _MEGABYTE),
    "disk_free": ("disk_available_megabytes", _MEGABYTE),
}
_GPU = {
    "utilization": ("utilization_percentage", 1.0),
    "memory_used": ("memory_usage_megabytes", _MEGABYTE),
    "power": ("power_usage_watts", 1.0),
}


def parameters(record: RunRecord) -> dict[str, str]:
    """The command, its flags by their names, and the job's fields as ``job.…``. Flags named like secrets are masked."""
    argv = masked(record.command)
    found = {"command": shlex.join(argv)}
    found |= {_cut(name): value for name, value in _flags(argv)}
    for field, value in _flat("job", {key: record.spec.get(key) for key in _SHOWN}):
        found.setdefault(_cut(field), value)
    for name, value in _flat("input", dict(record.inputs)):
        found.setdefault(_cut(name), value)
    return {name: value[:_PARAM] for name, value in found.items() if value != ""}


def tags(record: RunRecord, url: str) -> dict[str, str]:
    """MLflow's own, the job's, and where the run is recorded: artifacts by reference."""
    code = dict(record.code or {})
    found = {_cut(str(key)): str(value) for key, value in dict(record.spec.get("tags") or {}).items()}
    found |= {
        RUN_ID: record.id,
        "headrace.url": url,
        "headrace.outputs": f"{url}/outputs/",
        "headrace.checkpoints": f"{url}/checkpoints/",
        "headrace.host": record.host,
        "headrace.version": record.headrace,
        "mlflow.user": record.user,
        "mlflow.source.name": shlex.join(masked(record.command)),
        "mlflow.source.type": "LOCAL",
        "mlflow.note.content": _note(record, url),
    }
    if commit := code.get("commit"):
        found["mlflow.source.git.commit"] = str(commit)
    if remote := code.get("remote"):
        found["mlflow.source.git.repoURL"] = str(remote)
    if record.parent:
        found["headrace.parent"] = str(record.parent.get("run", ""))
    return {name: value[:_TAG] for name, value in found.items()}


def metrics(rows: Sequence[tuple[int, int | None, int, str, float]], began_ms: int) -> Iterator[dict[str, Any]]:
    """Points (microseconds, step, rank, name, value) as MLflow takes them.

    A point without a step gets the whole seconds since the run began: MLflow wants one. Ranks but the first are told
    apart by ``rank_<n>/``. Single cores are left out, and what `headrace why` judges.
    """
    for time_us, step, rank, name, value in rows:
        known = _metric(name, value)
        if known is None:
            continue
        name, value = known
        stamp = time_us // 1000
        yield {
            "key": _cut(name if rank == 0 or name.startswith("system/") else f"rank_{rank}/{name}"),
            "value": _number(value),
            "timestamp": stamp,
            "step": step if step is not None else max(0, (stamp - began_ms) // 1000),
        }


def millis(text: str) -> int:
    """Of a time in a record."""
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def masked(argv: Sequence[str]) -> tuple[str, ...]:
    """A command without the values of flags that are named like secrets."""
    found: list[str] = []
    hide = False
    for word in argv:
        if hide and not word.startswith("-"):
            word = _MASKED
        hide = False
        match = _FLAG.fullmatch(word) or _OVERRIDE.fullmatch(word)
        if match and _SECRET.search(match[1]):
            if match[2] is None:
                hide = True
            else:
                word = word[: match.start(2)] + _MASKED
        found.append(word)
    return tuple(found)


def _flags(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """``--lr 0.1``, ``--lr=0.1``, ``--amp``, and Hydra's ``model.lr=0.1``."""
    for at, word in enumerate(argv[1:], 1):
        if match := _FLAG.fullmatch(word):
            after = argv[at + 1] if at + 1 < len(argv) else "-"
            negative = re.fullmatch(r"-[\d.].*", after) is not None
            given = match[2] if match[2] is not None else "true" if after.startswith("-") and not negative else after
            if len(match[1]) > 1 or match[2] is not None or given != "true":
                yield match[1], given
        elif match := _OVERRIDE.fullmatch(word):
            yield match[1], match[2]


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, Any]", value).items():
            yield from _flat(f"{name}.{key}", inner)
    elif value is not None and value not in ((), [], ""):
        yield name, str(value)


def _metric(name: str, value: float) -> tuple[str, float] | None:
    if name.startswith("job/"):
        return f"system/{name}", value
    if is_ours(name):
        return None
    if not name.startswith("system/"):
        return name, value
    parts = name.split("/")
    if len(parts) == 3 and parts[1] == "cpu":
        return None
    if len(parts) == 4 and parts[1] == "gpu" and parts[3] in _GPU:
        told, unit = _GPU[parts[3]]
        return f"system/gpu_{parts[2]}_{told}", value / unit
    told, unit = _SYSTEM.get(parts[1], (parts[1], 1.0)) if len(parts) == 2 else ("/".join(parts[1:]), 1.0)
    return f"system/{told}", value / unit


def _number(value: float) -> float | str:
    """As protocol buffers have it in JSON."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _cut(name: str) -> str:
    """A name as MLflow takes it, which is a relative path in its normal form."""
    plain = "/".join(part for part in _FORBIDDEN.sub("_", name).split("/") if part not in ("", ".", ".."))
    return plain[:_NAME].rstrip("/") or "_"


def _note(record: RunRecord, url: str) -> str:
    return (
        f"Recorded by headrace at `{url}`: `headrace logs {record.id}`, `headrace metrics {record.id}`.\n\n"
        f"- outputs: `{url}/outputs/`\n- checkpoints: `{url}/checkpoints/`\n"
    )
