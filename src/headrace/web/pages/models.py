"""``/models``, ``/models/NAME`` and ``/models/NAME/VERSION``: models, their versions, and where each comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from headrace.models import ModelVersion
from headrace.models.overview import Overview
from headrace.web.pages.record import flat
from headrace.web.servers import ServerHere, serving
from headrace.web.told import Page, Told
from headrace.web.world import World

COUNT: Final = 50  # versions on a page
_MOST: Final = 500  # versions on a page, whatever is asked for


@dataclass(frozen=True, slots=True)
class AskedAll:
    """`q`: part of a name."""

    q: str = ""


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model. `newest`: the highest number; `versions`: how many it has; `aliases`: the number that each names.
    `created`: of the newest, RFC 3339.
    """

    name: str
    newest: int
    versions: int
    aliases: dict[str, int]
    format: str
    bytes: int
    created: str


@dataclass(frozen=True, slots=True)
class All:
    """`known`: whether there is any."""

    models: tuple[ModelRow, ...]
    known: bool
    asked: AskedAll


@dataclass(frozen=True, slots=True)
class AskedModel:
    """`count`: of its newest versions so many."""

    name: str
    count: int = COUNT


@dataclass(frozen=True, slots=True)
class VersionRow:
    """A version. `metrics`: the last values of its run; `run`, `checkpoint`: None, it is no run's."""

    number: int
    aliases: tuple[str, ...]
    created: str
    by: str
    format: str
    bytes: int
    run: str | None
    checkpoint: str | None
    note: str
    metrics: dict[str, float | None]


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """An alias was moved. `number`: None, it was taken away."""

    alias: str
    number: int | None
    time: str
    by: str
    what: str


@dataclass(frozen=True, slots=True)
class Model:
    """`changes`: of its aliases, the latest first; `more`: whether it has versions that are not shown; `servers`: those
    of this node that serve it.
    """

    name: str
    aliases: dict[str, int]
    versions: tuple[VersionRow, ...]
    changes: tuple[ChangeRow, ...]
    more: bool
    servers: tuple[ServerHere, ...]
    asked: AskedModel


@dataclass(frozen=True, slots=True)
class AskedVersion:
    """`version`: a number, an alias, or ``latest``."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class FileRow:
    """`path`: below the version's folder."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class TensorRow:
    """Of a signature. `side`: ``in`` or ``out``; `shape`: None, not known."""

    signature: str
    side: str
    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None


@dataclass(frozen=True, slots=True)
class Version:
    """All of ``model.json``. `data`, `code`: as the run recorded them, by dotted names; `totals`: of each metric
    ``last``, ``min`` and ``max``.
    """

    name: str
    version: VersionRow
    url: str
    digest: str
    entry: str | None
    runtime: str | None
    source: str
    gate: str | None
    totals: dict[str, dict[str, Any]]
    data: dict[str, Any]
    code: dict[str, Any]
    tensors: tuple[TensorRow, ...]
    files: tuple[FileRow, ...]


def models(world: World, asked: AskedAll) -> Told:
    """By name."""
    known = world.models_known()
    rows = tuple(_model(one) for one in known if asked.q.lower() in one.name.lower())
    return Told(All(rows, bool(known), asked), "headrace models", "hr.models.Registry.load().names()")


def model(world: World, asked: AskedModel) -> Told:
    """The newest versions, and who moved which alias."""
    registry, count = world.registry, min(max(1, asked.count), _MOST)
    found = registry.versions(asked.name, count + 1)
    if not found:
        raise registry.none_of(asked.name)
    aliases = registry.aliases(asked.name)
    rows = tuple(_version(one, aliases.names_of(one.number)) for one in found[:count])
    changes = tuple(ChangeRow(**one._asdict()) for one in reversed(aliases.history))
    servers = serving(world.servers(), asked.name)
    shown = Model(asked.name, dict(aliases.aliases), rows, changes, len(found) > count, servers, asked)
    return Told(shown, f"headrace models list {asked.name}", f"hr.models.versions({asked.name!r})")


def version(world: World, asked: AskedVersion) -> Told:
    """As it was published; what its aliases are now."""
    text = f"{asked.name}@{asked.version}"
    found = world.registry.resolve(text)
    card = found.card
    tensors = tuple(
        TensorRow(name, side, one.name, one.dtype, one.shape)
        for name, signature in card.signatures.items()
        for side, some in (("in", signature.inputs), ("out", signature.outputs))
        for one in some
    )
    files = tuple(FileRow(**asdict(one)) for one in card.files)
    totals = {name: {key: told.get(key) for key in ("last", "min", "max")} for name, told in card.metrics.items()}
    shown = Version(
        card.name, _version(found, world.registry.aliases(card.name).names_of(found.number)), found.path, card.digest,
        card.entry, card.runtime, card.source, card.gate, totals, flat(card.data), flat(card.code), tensors, files,
    )  # fmt: skip
    return Told(shown, f"headrace models show {found.id}", f"hr.models.resolve({text!r})")


def _model(one: Overview) -> ModelRow:
    card = one.newest.card
    return ModelRow(one.name, card.number, one.versions, dict(one.aliases), card.format, card.bytes, card.created)


def _version(one: ModelVersion, aliases: list[str]) -> VersionRow:
    card = one.card
    return VersionRow(
        one.number, tuple(aliases), card.created, card.by, card.format, card.bytes, card.run, card.checkpoint,
        card.note, _last(card.metrics),
    )  # fmt: skip


def _last(metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, float | None]:
    return {name: told.get("last") for name, told in metrics.items()}


ALL = Page("/models", "models", AskedAll, All, models, "All models, and what their aliases name.")
ONE = Page("/models/{name}", "model", AskedModel, Model, model, "The versions of a model.")
VERSION = Page(
    "/models/{name}/{version}", "model-version", AskedVersion, Version, version, "A version, and where it comes from."
)
