"""``/runs/ID/code`` and ``/runs/ID/inputs``: what a run was made of, as its record has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from headrace.base.errors import HeadraceError
from headrace.base.progress import Progress
from headrace.catalog import change_summary, differences, open_pin
from headrace.jobs import diff
from headrace.web.behind import Underway
from headrace.web.index import RunRow
from headrace.web.told import Page, Told
from headrace.web.world import World

_OF_ITS_END: Final = ("result", "metric", "place")
"""What of two runs differs for other reasons than their code."""
_EXAMPLES: Final = 5  # keys that show what has changed


@dataclass(frozen=True, slots=True)
class AskedCode:
    """`run`: an id. `diff`: what is not as in the run that it was made from, files line by line."""

    run: str
    diff: bool = False


@dataclass(frozen=True, slots=True)
class DifferenceShown:
    """One thing that is not as before. `patch`: of a text file, as a unified diff."""

    part: str
    name: str
    before: str | None
    after: str | None
    patch: str | None


@dataclass(frozen=True, slots=True)
class Code:
    """`spec`: the job; `code`, `environment`: as recorded; `variables`: names of those that the command got. `parent`:
    the run that it repeats or goes on with; `differences`: from that, None: not asked for, or `underway`.
    """

    run: RunRow
    folder: str
    headrace: str
    spec: dict[str, Any]
    code: dict[str, Any]
    environment: dict[str, Any]
    packages: tuple[str, ...]
    variables: tuple[str, ...]
    parent: str | None
    differences: tuple[DifferenceShown, ...] | None
    underway: Underway | None
    asked: AskedCode


@dataclass(frozen=True, slots=True)
class AskedInputs:
    """`run`: an id. `check`: whether each of what it was given is still there; its source is listed for that."""

    run: str
    check: bool = False


@dataclass(frozen=True, slots=True)
class Input:
    """Which object versions it was given. `given`: how (a mount, a copy, a path). `gone`: how many of them are no
    longer there, or are other versions by now; `examples`: some of their keys. None: not asked for, or `underway`.
    """

    name: str
    source: str
    snapshot: str | None
    objects: int
    bytes: int
    digest: str
    given: str
    gone: int | None = None
    examples: tuple[str, ...] = ()
    problem: str | None = None
    underway: Underway | None = None


@dataclass(frozen=True, slots=True)
class Inputs:
    """All it read by name."""

    run: RunRow
    inputs: tuple[Input, ...]
    asked: AskedInputs


def code(world: World, asked: AskedCode) -> Told:
    """Of the record, which never changes."""
    state = world.followers.of(asked.run).view()
    record = state.record
    environment = dict(record.environment)
    packages = tuple(map(str, environment.pop("packages", None) or ()))
    parent = str(record.parent["run"]) if record.parent is not None and record.parent.get("run") else None
    found = _against(world, parent, asked.run) if asked.diff and parent is not None else None
    shown = Code(
        RunRow.of(state), record.folder, record.headrace, flat(record.spec), flat(record.code or {}), flat(environment),
        packages, record.variables, parent, None if isinstance(found, Underway) else found,
        found if isinstance(found, Underway) else None, asked,
    )  # fmt: skip
    command = f"headrace runs diff {parent} {asked.run} --patch" if parent else f"headrace runs show {asked.run} --json"
    return Told(shown, command, f"hr.run({asked.run!r}).record")


def _against(world: World, parent: str, run: str) -> tuple[DifferenceShown, ...] | Underway:
    """Trees are laid out for it, so it is done behind the page."""

    def work(_: Progress) -> tuple[DifferenceShown, ...]:
        found = diff(world.runs.run(parent), world.runs.run(run), patch=True)
        return tuple(
            DifferenceShown(one.part, one.name, _text(one.a), _text(one.b), one.patch)
            for one in found
            if not one.same and one.part not in _OF_ITS_END
        )

    return world.behind.ask(f"code {parent} {run}", f"{run} is compared with {parent}", work)


def inputs(world: World, asked: AskedInputs) -> Told:
    """Of the record, which never changes; and of their sources, if that is asked for."""
    state = world.followers.of(asked.run).view()
    found = tuple(
        Input(
            name, str(one.get("source")), one.get("snapshot"), int(one.get("objects", 0)), int(one.get("bytes", 0)),
            str(one.get("digest", "")), str(one.get("given", "")),
        )
        for name, one in state.record.inputs.items()
    )  # fmt: skip
    if asked.check:
        found = tuple(_checked(world, asked.run, one) for one in found)
    shown = Inputs(RunRow.of(state), found, asked)
    return Told(shown, f"headrace runs show {asked.run}", f"hr.run({asked.run!r}).record")


def _checked(world: World, run: str, one: Input) -> Input:
    """Behind the page: all of the source is listed."""
    space, settings = world.namespace, world.settings

    def work(progress: Progress) -> tuple[int, tuple[str, ...]]:
        pin, objects = open_pin(f"run:{run}/{one.name}", namespace=space, settings=settings, progress=progress)
        changes = change_summary(differences(pin, objects, namespace=space, settings=settings), keep=_EXAMPLES)
        return changes.changed + changes.removed, tuple(change.key for change in changes.first)

    try:
        told = world.behind.ask(f"pin {run}/{one.name}", f"{one.name} is compared with its source", work)
    except HeadraceError as error:
        return replace(one, problem=str(error))
    if isinstance(told, Underway):
        return replace(one, underway=told)
    return replace(one, gone=told[0], examples=told[1])


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def flat(told: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Values by dotted names, as in the job's file; what is empty is left out."""
    found: dict[str, Any] = {}
    for name, value in told.items():
        if isinstance(value, Mapping):
            found |= flat(cast("Mapping[str, Any]", value), f"{before}{name}.")
        elif value not in (None, "", (), []):
            found[before + name] = value if isinstance(value, (int, float, str, bool)) else " ".join(map(str, value))
    return found


CODE = Page("/runs/{run}/code", "code", AskedCode, Code, code, "What a run was made of: job, code, environment.")
INPUTS = Page("/runs/{run}/inputs", "inputs", AskedInputs, Inputs, inputs, "Which data a run was given.")
