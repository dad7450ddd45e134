"""A model in MLflow's registry, brought in step with ours: ``models:/digits@prod`` is the same bytes there.

What is there is compared with what is here, so any of it may be said twice, and what was missed is made up for:

    registered model <name>      one a model
    model version                one a committed version; its tag `headrace.version` is ``<name>@<number>``, its source
                                 the version's URL, its run that of the run, if that is mirrored too
    alias                        as ours; those that were never ours stay

MLflow counts versions itself, so its numbers may be others than ours. It is told after something was done here, and its
failures are logged: nothing here waits for it to be well.

The API: https://mlflow.org/docs/latest/rest-api.html , version 2.0.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from headrace.base.errors import HeadraceError, InputError, NotFoundError
from headrace.base.settings import Settings
from headrace.models.aliases import MODELS
from headrace.models.registry import ModelVersion, Registry
from headrace.tracking.mlflow_client import MlflowServer
from headrace.tracking.mlflow_mirror import find_run

_log = logging.getLogger("headrace.models")
TAG: Final = "headrace.version"
_PAGE: Final = 1000  # versions told of at a time


@dataclass(frozen=True, slots=True)
class Mirrored:
    """What was done in MLflow. `made`, `deleted`: versions, by our numbers; `moved`: aliases that were set or taken
    away; `refused`: those that MLflow does not take.
    """

    name: str
    made: tuple[int, ...] = ()
    deleted: tuple[int, ...] = ()
    moved: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def mirror_after(registry: Registry, name: str) -> None:
    """After something was done to a model: where MLFLOW_TRACKING_URI is set, MLflow is told. Failures are logged."""
    try:
        server = MlflowServer.of_environment() if Settings.load().run.mlflow else None
        if server is not None:
            mirror(registry, name, server)
    except HeadraceError as error:
        _log.warning("%s is not in step in MLflow: %s; later: headrace models mirror %s", name, error, name)


def mirror(registry: Registry, name: str, server: MlflowServer) -> Mirrored:
    """Bring one model in step. One LIST, 1 GET, and 2 for each version that MLflow lacks.

    Raises:
        UnreachableError, TryAgainError, DeniedError, InputError: what MLflow answers. Any store error.
    """
    theirs = dict(_theirs(server, name))
    numbers = registry.numbers(name)
    missing = (registry.find(name, number) for number in sorted(numbers) if number not in theirs)
    made = [one for one in missing if one is not None]
    if made:
        tags = [{"key": "headrace.url", "value": registry.home.url(MODELS, name)}]
        with suppress(InputError):  # it is there
            server.post("registered-models/create", {"name": name, "tags": tags})
    theirs |= {one.number: _make(server, one) for one in made}
    deleted = sorted(theirs.keys() - set(numbers))
    moved, refused = _aliases(registry, name, server, theirs) if theirs else ([], [])
    for number in deleted:
        server.delete("model-versions/delete", {"name": name, "version": theirs[number]})
    return Mirrored(name, tuple(one.number for one in made), tuple(deleted), tuple(moved), tuple(refused))


def _theirs(server: MlflowServer, name: str) -> Iterator[tuple[int, str]]:
    """Versions of ours that are there: our number, theirs."""
    token = ""
    while True:
        query = {"filter": f"name='{name}'", "max_results": str(_PAGE), **({"page_token": token} if token else {})}
        told = server.get("model-versions/search", **query)
        for one in told.get("model_versions") or ():
            ours = {str(tag["key"]): str(tag["value"]) for tag in one.get("tags") or ()}.get(TAG, "")
            of, _, number = ours.partition("@")
            if of == name and number.isdecimal():
                yield int(number), str(one["version"])
        token = str(told.get("next_page_token") or "")
        if not token:
            return


def _make(server: MlflowServer, one: ModelVersion) -> str:
    """Its number there."""
    card = one.card
    tags = {TAG: one.id, "headrace.format": card.format, "headrace.digest": card.digest}
    tags |= {"headrace.run_id": card.run} if card.run is not None else {}
    body: dict[str, Any] = {
        "name": one.name, "source": one.path, "description": card.note,
        "tags": [{"key": key, "value": value} for key, value in tags.items()],
    }  # fmt: skip
    run = find_run(server, card.run) if card.run is not None else None
    if run is not None:
        body |= {"run_id": run["info"]["run_id"]}
    return str(server.post("model-versions/create", body)["model_version"]["version"])


def _aliases(
    registry: Registry, name: str, server: MlflowServer, theirs: Mapping[int, str]
) -> tuple[list[str], list[str]]:
    """Which were set or taken away, and which MLflow does not take."""
    found = registry.aliases(name)
    told = server.get("registered-models/get", name=name)["registered_model"].get("aliases") or ()
    there = {str(one["alias"]): str(one["version"]) for one in told}
    moved: list[str] = []
    refused: list[str] = []
    for alias, number in found.aliases.items():
        if number in theirs and there.get(alias) != theirs[number]:
            try:
                server.post("registered-models/alias", {"name": name, "alias": alias, "version": theirs[number]})
                moved.append(alias)
            except InputError as error:  # it may have no dots there
                _log.warning("MLflow does not take the alias %s: %s", alias, error)
                refused.append(alias)
    for alias in sorted({one.alias for one in found.history} & there.keys() - found.aliases.keys()):
        with suppress(NotFoundError):
            server.delete("registered-models/alias", {"name": name, "alias": alias})
            moved.append(alias)
    return moved, refused
