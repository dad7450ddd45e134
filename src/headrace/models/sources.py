"""What a model is published from: a run's checkpoint or outputs, or a folder or file, here or in a store."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any, Final, TypeAlias, cast

from headrace.base.errors import InputError, NotFoundError
from headrace.models.card import CARD
from headrace.models.registry import Registry
from headrace.namespace.home import url_of
from headrace.store.protocol import ObjectInfo, Store
from headrace.tracking.newest import newest_checkpoint
from headrace.tracking.recorded import RecordedRun
from headrace.tracking.runs import Run, Runs
from headrace.upload import MARKER, published

Given: TypeAlias = "str | os.PathLike[str] | RecordedRun"
"""A folder, a file, a URL or a path of the namespace; ``RUN``, ``RUN:CHECKPOINT`` or ``RUN:outputs/…``."""
OUTPUTS: Final = "outputs"
_RUN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(:[^/].*)?")
_OURS: Final = (CARD, MARKER)
"""Names at the top that a version has of us: those of one that was pulled are left out."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file. `name`: below the folder; `info`: the object in the store."""

    name: str
    info: ObjectInfo


@dataclass(frozen=True, slots=True)
class Source:
    """All files of it, which lie in one store. `url`: of the folder or file; `run`, `checkpoint`: if it is a run's."""

    store: Store
    files: tuple[SourceFile, ...]
    url: str
    run: Run | None = None
    checkpoint: str | None = None

    @property
    def names(self) -> list[str]:
        """Of the files."""
        return [one.name for one in self.files]

    def file(self, name: str) -> SourceFile:
        """One of them."""
        return next(one for one in self.files if one.name == name)


def find(registry: Registry, given: Given) -> Source:
    """What is meant. A text that looks like a run is one, unless a file or folder of that name is here.

    Raises:
        NotFoundError: there is no such thing, or nothing in it. InputError: it is not complete. Any store error.
    """
    if isinstance(given, RecordedRun):
        return _of_run(registry, given.id, "")
    text = os.fspath(given)
    if isinstance(given, str) and _RUN.fullmatch(text) and "://" not in text and not os.path.lexists(text):
        run, _, what = text.partition(":")
        try:
            return _of_run(registry, run, what)
        except NotFoundError as error:
            error.hint = f"{error.hint}; a folder of this machine is written ./{text}" if not what else error.hint
            raise
    return _of_place(registry, text)


def opener(registry: Registry, source: Source) -> Any:
    """What opens one of its files by name, for reading: seekable."""
    from headrace.namespace.reader import File, Reader

    def read(name: str) -> IO[bytes]:
        info = source.file(name).info
        reader = Reader(lambda: registry.namespace.fetcher, source.store, info, lambda: source.store.head(info.key))
        return cast("IO[bytes]", File(reader, f"{source.store.url}/"))

    return read


def _of_run(registry: Registry, text: str, what: str) -> Source:
    run = Runs(registry.home).find(text)
    if what == OUTPUTS or what.startswith(f"{OUTPUTS}/"):
        return _outputs(run, what.rstrip("/"))
    name = what
    if not name:
        newest = newest_checkpoint(run)
        if newest is None:
            hint = f"name what of its outputs it is: {run.id}:outputs/model"
            raise NotFoundError("has no complete checkpoint", path=run.id, hint=hint)
        name = newest.name
    prefix = f"{run.prefix}checkpoints/{name}/"
    publication = published(run.store, prefix)
    if publication is None:
        hint = f"checkpoints: {', '.join(_checkpoints(run)) or 'none'}; of its outputs: {run.id}:outputs/…"
        raise NotFoundError(f"has no complete checkpoint {name!r}", path=run.id, hint=hint)
    members = [ObjectInfo(prefix + one.name, one.size, one.etag) for one in publication.members]
    if any(one.etag is None for one in members):  # a store without ETags: by size and time, as they are now
        sizes = {one.key: one.size for one in members}
        members = [one for page in run.store.list(prefix) for one in page if sizes.get(one.key) == one.size]
    return Source(run.store, _files(members, prefix), url_of(run.store, prefix), run, name)


def _checkpoints(run: Run) -> list[str]:
    prefix = f"{run.prefix}checkpoints/"
    return [folder[len(prefix) : -1] for folder in run.store.list_folder(prefix).folders][-10:]


def _outputs(run: Run, what: str) -> Source:
    key = run.prefix + what
    found = [info for page in run.store.list(f"{key}/") for info in page]
    files = _files(found, f"{key}/")
    if not files:
        try:
            files = _files([run.store.head(key)], key.rpartition("/")[0] + "/")
        except NotFoundError:
            hint = f"headrace ls {url_of(run.store, run.prefix + OUTPUTS)}/"
            raise NotFoundError(f"has no {what}", path=run.id, hint=hint) from None
    return Source(run.store, files, url_of(run.store, key), run)


def _of_place(registry: Registry, text: str) -> Source:
    namespace = registry.namespace
    entry = namespace.stat(text, refresh=True)
    place = namespace.resolve(entry.path)
    if entry.is_file:
        folder = place.key.rpartition("/")[0]
        info = place.store.head(place.key)
        return Source(place.store, _files([info], f"{folder}/" if folder else ""), url_of(place.store, place.key))
    prefix = place.key if not place.key or place.key.endswith("/") else f"{place.key}/"
    files = _files([info for page in place.store.list(prefix) for info in page], prefix)
    if not files:
        raise InputError("holds no files", path=text, hint="name the folder that holds the model")
    return Source(place.store, files, url_of(place.store, prefix))


def _files(found: Sequence[ObjectInfo], prefix: str) -> tuple[SourceFile, ...]:
    """Markers of folders are none; nor is what a pulled version holds of ours."""
    named = [(info.key[len(prefix) :], info) for info in sorted(found, key=lambda one: one.key)]
    return tuple(SourceFile(name, info) for name, info in named if not name.endswith("/") and name not in _OURS)
