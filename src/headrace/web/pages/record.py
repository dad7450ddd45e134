"""``/runs/ID/code`` and ``/runs/ID/inputs``: what a run was made of, as its record has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from headrace.web.index import RunRow
from headrace.web.told import Page, Told
from headrace.web.world import World


@dataclass(frozen=True, slots=True)
class Asked:
    """`run`: an id."""

    run: str


@dataclass(frozen=True, slots=True)
class Code:
    """`spec`: the job; `code`, `environment`: as recorded; `variables`: names of those that the command got."""

    run: RunRow
    folder: str
    headrace: str
    spec: dict[str, Any]
    code: dict[str, Any]
    environment: dict[str, Any]
    packages: tuple[str, ...]
    variables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Input:
    """Which object versions it was given. `given`: how (a mount, a copy, a path)."""

    name: str
    source: str
    snapshot: str | None
    objects: int
    bytes: int
    digest: str
    given: str


@dataclass(frozen=True, slots=True)
class Inputs:
    """All it read by name."""

    run: RunRow
    inputs: tuple[Input, ...]


def code(world: World, asked: Asked) -> Told:
    """Of the record, which never changes."""
    state = world.followers.of(asked.run).view()
    record = state.record
    environment = dict(record.environment)
    packages = tuple(map(str, environment.pop("packages", None) or ()))
    shown = Code(
        RunRow.of(state), record.folder, record.headrace, flat(record.spec), flat(record.code or {}), flat(environment),
        packages, record.variables,
    )  # fmt: skip
    return Told(shown, f"headrace runs show {asked.run} --json", f"hr.run({asked.run!r}).record")


def inputs(world: World, asked: Asked) -> Told:
    """Of the record, which never changes."""
    state = world.followers.of(asked.run).view()
    found = tuple(
        Input(
            name, str(one.get("source")), one.get("snapshot"), int(one.get("objects", 0)), int(one.get("bytes", 0)),
            str(one.get("digest", "")), str(one.get("given", "")),
        )
        for name, one in state.record.inputs.items()
    )  # fmt: skip
    return Told(Inputs(RunRow.of(state), found), f"headrace runs show {asked.run}", f"hr.run({asked.run!r}).record")


def flat(told: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Values by dotted names, as in the job's file; what is empty is left out."""
    found: dict[str, Any] = {}
    for name, value in told.items():
        if isinstance(value, Mapping):
            found |= flat(cast("Mapping[str, Any]", value), f"{before}{name}.")
        elif value not in (None, "", (), []):
            found[before + name] = value if isinstance(value, (int, float, str, bool)) else " ".join(map(str, value))
    return found


CODE = Page("/runs/{run}/code", "code", Asked, Code, code, "What a run was made of: job, code, environment.")
INPUTS = Page("/runs/{run}/inputs", "inputs", Asked, Inputs, inputs, "Which data a run was given.")
