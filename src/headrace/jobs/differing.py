"""What differs between two runs, by their records: what was run, of which code, in what, where, and what came of it."""

from __future__ import annotations

import difflib
import filecmp
import io
import os
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from headrace.base.places import temporary_folder
from headrace.jobs.place import lay_out
from headrace.tracking.reading import read_metrics, series
from headrace.tracking.record import RunRecord
from headrace.tracking.recorded import AnyRun, as_run
from headrace.tracking.runs import Run, RunView

Part = Literal["job", "code", "file", "environment", "package", "input", "variable", "place", "result", "metric"]
_OURS: Final = re.compile("(system|job|headrace)/")
_LONGEST: Final = 1 << 20
"""Bytes of a file that is shown line by line."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that two runs do not have alike; of results and metrics, also what they do.

    `name`: dotted, as in the job's file; of files and packages, their names. `a`, `b`: None, it has none. Of a file
    that is in both, ``before`` and ``after``; `patch`: a unified diff, where it was asked for and is one of text.
    """

    part: Part
    name: str
    a: Any
    b: Any
    patch: str | None = None

    @property
    def same(self) -> bool:
        """Whether it is told only to be seen side by side."""
        return self.a == self.b


def diff(a: AnyRun, b: AnyRun, *, patch: bool = False, metrics: bool = True) -> Iterator[Difference]:
    """All of it, part by part: ``hr.jobs.diff("latest", "20260131-120000-digits-17c4")``. Trees are brought here only
    if their digests are not the same. Any thread.

    `metrics`: also the last values of what they logged: of summaries, or of all points where there are none.

    Raises NotFoundError: no such run. CorruptError: its record is damaged. Any store error.
    """
    a, b = as_run(a), as_run(b)
    views = a.look(), b.look()
    one, other = (view.record for view in views)
    yield from _compared("job", _job(one), _job(other))
    yield from _compared("code", _code(one), _code(other))
    if one.code is not None and other.code is not None and one.code.get("digest") != other.code.get("digest"):
        yield from _files(a, b, patch=patch)
    yield from _compared("environment", _environment(one), _environment(other))
    yield from _compared("package", _packages(one), _packages(other))
    yield from _compared("input", _flat(one.inputs), _flat(other.inputs))
    yield from _compared("variable", dict.fromkeys(one.variables, "set"), dict.fromkeys(other.variables, "set"))
    yield from _compared("place", _place(one), _place(other))
    yield from _compared("result", *(_result(view) for view in views), every=True)
    if metrics:
        yield from _compared("metric", _metrics(a, views[0]), _metrics(b, views[1]), every=True)


def _compared(part: Part, a: Mapping[str, Any], b: Mapping[str, Any], *, every: bool = False) -> Iterator[Difference]:
    for name in dict.fromkeys([*a, *b]):
        one, other = a.get(name), b.get(name)
        if one != other or (every and one is not None):
            yield Difference(part, name, one, other)


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """By dotted names; lists as they are."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            found |= _flat(cast("Mapping[str, Any]", value), f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = list(cast("list[Any]", value)) if isinstance(value, tuple) else value
    return found


def _job(record: RunRecord) -> dict[str, Any]:
    spec = {name: value for name, value in record.spec.items() if name not in ("command", "format")}
    return {"command": shlex.join(record.command)} | _flat(spec)


def _code(record: RunRecord) -> dict[str, Any]:
    told = record.code or {"kind": "not recorded"}
    return {name: told.get(name) for name in ("kind", "commit", "branch", "remote", "ref", "subfolder", "digest")}


def _environment(record: RunRecord) -> dict[str, Any]:
    return {name: record.environment.get(name) for name in ("kind", "python", "platform", "lock", "image", "digest")}


def _packages(record: RunRecord) -> dict[str, str]:
    pairs = (str(one).partition("==") for one in record.environment.get("packages", ()))
    return {name: version for name, _, version in pairs}


def _place(record: RunRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in ("host", "user", "folder", "headrace")}


def _result(view: RunView) -> dict[str, Any]:
    status = view.status
    told = {"state": view.state, "exit_code": status.exit_code, "signal": status.signal}
    return told | {"reason": status.reason or None, "attempt": status.attempt, "seconds": round(view.seconds, 3)}


def _metrics(run: Run, view: RunView) -> dict[str, float | str]:
    summary = run.summary() if view.over else None
    if summary is not None and not summary.left_out:
        finite = {name: one.get("last") for name, one in summary.metrics.items()}
        return {name: "nan" if value is None else value for name, value in finite.items()}
    found = series(read_metrics(run.store, f"{run.prefix}metrics/").table)
    last = {name: one.last() for name, one in found.items() if not _OURS.match(name)}
    return {name: value if abs(value) < float("inf") else str(value) for name, value in last.items()}


def _files(a: Run, b: Run, *, patch: bool) -> Iterator[Difference]:
    with tempfile.TemporaryDirectory(prefix="headrace-diff-", dir=temporary_folder()) as root:
        trees: list[str] = []
        for side, run in (("a", a), ("b", b)):
            trees.append(os.path.join(root, side))
            lay_out(run, os.path.join(root, f"{side}.parts"), trees[-1])
        one, other = (set(_names(tree)) for tree in trees)
        for name in sorted(one | other):
            before, after = (os.path.join(tree, name) for tree in trees)
            if name in one and name in other and _alike(before, after):
                continue
            told = _patch(name, before, after) if patch else None
            shown = name.encode("utf-8", "replace").decode()
            both = name in one and name in other
            a_has, b_has = ("before", "after") if both else ("there", None) if name in one else (None, "there")
            yield Difference("file", shown, a_has, b_has, told)


def _names(tree: str) -> Iterator[str]:
    """Of files and links, which are not followed: they may lead anywhere."""
    for folder, folders, files in os.walk(tree):
        for name in [*files, *(one for one in folders if os.path.islink(os.path.join(folder, one)))]:
            yield os.path.relpath(os.path.join(folder, name), tree)


def _alike(one: str, other: str) -> bool:
    links = os.path.islink(one), os.path.islink(other)
    if any(links):
        return all(links) and os.readlink(one) == os.readlink(other)
    modes = (os.stat(path).st_mode for path in (one, other))
    return len(set(modes)) == 1 and filecmp.cmp(one, other, shallow=False)


def _patch(name: str, before: str, after: str) -> str | None:
    """A unified diff; None where one of them is no text, or large."""
    lines = [_lines(path) for path in (before, after)]
    if lines[0] is None or lines[1] is None:
        return None
    old = f"a/{name}" if os.path.lexists(before) else os.devnull
    new = f"b/{name}" if os.path.lexists(after) else os.devnull
    told = difflib.unified_diff(lines[0], lines[1], old, new)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in told)


def _lines(path: str) -> list[str] | None:
    if os.path.islink(path):
        return [f"link to {os.readlink(path)}\n"]
    if not os.path.lexists(path):
        return []
    if os.path.getsize(path) > _LONGEST:
        return None
    with open(path, "rb") as file:
        data = file.read()
    if b"\0" in data:
        return None
    try:
        return list(io.StringIO(data.decode(), newline="\n"))
    except UnicodeDecodeError:
        return None
