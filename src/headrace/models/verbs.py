"""`hr.models`: the registry of the settings' home, a function a verb. `Registry` is for who keeps one."""

from __future__ import annotations

import builtins
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.base.errors import InputError
from headrace.base.progress import SILENT, Progress
from headrace.models import differing, mirroring, pointing, publishing, pulling, removing
from headrace.models.card import ModelCard, Signature
from headrace.models.differing import Difference
from headrace.models.following import EVERY_S, Following, Step
from headrace.models.mirroring import Mirrored
from headrace.models.names import check_alias
from headrace.models.overview import Overview, overview
from headrace.models.pointing import Moved
from headrace.models.publishing import Told
from headrace.models.registry import ModelVersion, Registry
from headrace.models.removing import OLD_S, Removed
from headrace.models.sources import Given
from headrace.tracking.mlflow_client import MlflowServer
from headrace.tracking.recorded import RecordedRun

if TYPE_CHECKING:
    from torch.nn import Module


def publish(
    source: Given | Module,
    name: str,
    *,
    example: Sequence[Any] | Mapping[str, Any] | None = None,
    format: str | None = None,  # noqa: A002  what everybody calls it
    signatures: Mapping[str, Signature] | None = None,
    runtime: str | None = None,
    gate: str | None = None,
    note: str = "",
    progress: Progress = SILENT,
    alias: str | None = None,
    registry: Registry | None = None,
) -> ModelVersion:
    """Make the next version of a model.

    Args:
        source: a folder, a file or a URL; ``RUN``, ``RUN:CHECKPOINT`` or ``RUN:outputs/…``; or a run of `hr.run`. Or a
            `torch.nn.Module`: it is exported to ONNX, and compared with itself (`headrace.models.loading.export`).
        name: the model's.
        example: of a module, the arguments of one call: ``(x,)`` or ``{"x": x}``. First axes are free lengths.
        format: of `headrace.models.card.FORMATS`; None: told by the files.
        signatures: what it takes and gives; None: read from the model where that is possible.
        runtime: ``module:Class`` of a model that is Python.
        gate: it is published only if this holds of the run's metrics: ``accuracy >= 0.97``.
        note: anything, for people.
        progress: told files and bytes.
        alias: names the version, once it is published.
        registry: where; None: that of the settings.

    Raises:
        As `headrace.models.publishing.publish`; once it is published, as `headrace.models.pointing.point`.
    """
    if alias is not None:
        check_alias(alias)
    told = Told(format, signatures, runtime, gate, note)
    registry = registry or Registry.load()
    if not isinstance(source, (str, os.PathLike, RecordedRun)):
        from headrace.models.loading.export import exported

        with exported(source, example) as (folder, of):
            made = publishing.publish(registry, folder, name, replace(told, source=of), progress=progress)
    elif example is not None:
        raise InputError("an example is of a torch module; files are published as they are", path=str(source))
    else:
        made = publishing.publish(registry, source, name, told, progress=progress)
    if alias is not None:
        pointing.point(registry, name, alias, str(made.number))
    return made


def alias(text: str, to: int | str, *, registry: Registry | None = None) -> Moved:
    """``alias("digits@prod", 7)``: let an alias name a version, by its number, by another alias, or ``latest``.

    Raises:
        As `headrace.models.pointing.point`.
    """
    name, _, which = text.partition("@")
    return pointing.point(registry or Registry.load(), name, which, str(to))


def unalias(text: str, *, registry: Registry | None = None) -> Moved:
    """``unalias("digits@staging")``: take an alias away; the version stays.

    Raises:
        As `headrace.models.pointing.take_away`.
    """
    return pointing.take_away(registry or Registry.load(), text)


def promote(text: str, alias: str = "prod", *, registry: Registry | None = None) -> Moved:
    """``promote("digits@staging")``: let `alias` name the same version. Raises as `alias`."""
    return pointing.promote(registry or Registry.load(), text, alias)


def rollback(text: str, *, registry: Registry | None = None) -> Moved:
    """``rollback("digits@prod")``: let an alias name what it named before.

    Raises:
        As `headrace.models.pointing.roll_back`.
    """
    return pointing.roll_back(registry or Registry.load(), text)


def resolve(text: str, *, registry: Registry | None = None) -> ModelVersion:
    """The version that ``NAME@prod``, ``NAME@7`` or ``NAME`` (the newest) names. Raises as `Registry.resolve`."""
    return (registry or Registry.load()).resolve(text)


def versions(name: str, limit: int | None = None, *, registry: Registry | None = None) -> builtins.list[ModelVersion]:
    """The committed versions of a model, the newest first. Raises any store error."""
    return (registry or Registry.load()).versions(name, limit)


def diff(a: str, b: str, *, registry: Registry | None = None) -> builtins.list[Difference]:
    """What two versions do not have alike, and their metrics side by side. Raises as `Registry.resolve`."""
    found = registry or Registry.load()
    return [*differing.diff(found.resolve(a).card, found.resolve(b).card)]


def pull(
    text: str, folder: str | os.PathLike[str], *, progress: Progress = SILENT, registry: Registry | None = None
) -> Path:
    """``pull("digits@prod", "model")``: the files of a version in a new folder of this machine.

    Raises:
        As `headrace.models.pulling.pull`, and `Registry.resolve`.
    """
    found = registry or Registry.load()
    return pulling.pull(found, found.resolve(text), folder, progress)


def rm(text: str, *, registry: Registry | None = None) -> Removed:
    """``rm("digits@3")``: delete a version that no alias names. Raises as `headrace.models.removing.remove`."""
    return removing.remove(registry or Registry.load(), text)


def gc(name: str, *, keep: int | None = None, old_s: float = OLD_S, registry: Registry | None = None) -> Removed:
    """Delete what dead publishers left of a model; with `keep` also all versions but the newest so many and those that
    an alias names. Raises as `headrace.models.removing.collect`.
    """
    return removing.collect(registry or Registry.load(), name, keep=keep, old_s=old_s)


def mirror(name: str, *, registry: Registry | None = None) -> Mirrored:
    """Bring a model in step in MLflow's registry, at ``MLFLOW_TRACKING_URI``; what was missed is made up for.

    Raises:
        SettingError: the variable is not set. As `headrace.models.mirroring.mirror`.
    """
    return mirroring.mirror(registry or Registry.load(), name, MlflowServer.needed())


def follow(
    text: str,
    folder: str | os.PathLike[str],
    *,
    every_s: float = EVERY_S,
    stop: threading.Event | None = None,
    tell: Callable[[Step], object] = lambda _: None,
    registry: Registry | None = None,
) -> None:
    """``follow("digits@prod", "served")``: keep a folder in step with an alias, until `stop` is set.

    Args:
        text: the alias.
        folder: what a server reads; made if need be.
        every_s: seconds between two looks.
        stop: None: it goes on until an exception ends it, such as KeyboardInterrupt.
        tell: called with each `Step`.
        registry: where; None: that of the settings.

    Raises:
        As `Following`, and its first look. Later failures are logged, and looked at again.
    """
    with Following(registry or Registry.load(), text, folder) as following:
        first = following.look()
        if first is not None:
            tell(first)
        following.run(stop or threading.Event(), tell, every_s=every_s)


def show(text: str, *, registry: Registry | None = None) -> ModelCard:
    """What a version is and where it comes from. Raises as `Registry.resolve`."""
    return (registry or Registry.load()).resolve(text).card


def list(*, registry: Registry | None = None) -> builtins.list[Overview]:  # noqa: A001  as the command
    """All models at a glance; the versions of one: `versions`. Raises any store error."""
    return overview(registry or Registry.load())
