"""What a run reads, pinned when it starts: a snapshot by its name, or a list of object versions kept with the run.

::

    <home>/runs/<id>/inputs/<name>/pin.json            `Pin`
                                   manifest.parquet    of a path or a URL: see `headrace.catalog.manifest`

``run:<id>/<name>`` opens it again, in exactly the versions that the run was given. Where that run is at work, its
folder here is read instead, so the command needs no access to the home.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from headrace.base.errors import ChangedError, CorruptError, NotFoundError
from headrace.base.progress import SILENT, Progress
from headrace.base.settings import Settings, environment
from headrace.catalog.index_cache import Shelf
from headrace.catalog.listed_places import Place, find_again, find_place, list_place, rows_now
from headrace.catalog.manifest import ManifestWriter, page_batch, read_manifest, versioned
from headrace.catalog.object_index import Objects, build_objects, open_objects
from headrace.catalog.snapshot import Snapshot, is_snapshot_name, open_snapshot, snapshot_objects
from headrace.catalog.snapshot_diff import Change, compare
from headrace.namespace import Namespace
from headrace.namespace.home import Home
from headrace.store.protocol import Store

FORMAT = 1
PIN, MANIFEST = "pin.json", "manifest.parquet"
INPUTS_VARIABLE = "HEADRACE_INPUTS"
"""Folder of the pins of the run that is at work here (`HEADRACE_RUN_ID`)."""
_RUN = re.compile(r"run:([A-Za-z0-9][A-Za-z0-9._-]{0,99})/([A-Za-z][A-Za-z0-9_-]{0,99})")
_CHUNK = 8 << 20  # bytes of a manifest read at a time


@dataclass(frozen=True, slots=True)
class Pin:
    """`source`: as it was asked for. `url`: what the keys lie below; `path`: the same in the namespace, if named so.
    `snapshot`: ``name@version``, or None where the manifest is kept with the run. `single`: `source` names one object,
    not a folder. `bytes`: of all `objects`; `digest`: of their keys, sizes and versions.
    """

    source: str
    url: str
    path: str | None
    snapshot: str | None
    single: bool
    objects: int
    bytes: int
    digest: str
    format: int = FORMAT

    def as_json(self) -> dict[str, Any]:
        """What ``pin.json`` holds."""
        return asdict(self)

    @staticmethod
    def from_json(told: Any, where: str) -> Pin:
        """What `as_json` gave, or a later version with more fields. Raises CorruptError."""
        try:
            if told["format"] > FORMAT:
                reason = f"pin format {told['format']} is newer than this headrace"
                raise CorruptError(reason, path=where, hint=_UPGRADE)
            return Pin(**{one.name: told[one.name] for one in fields(Pin)})
        except (KeyError, TypeError) as error:
            raise CorruptError(f"is no pin: {error}", path=where, hint=_UPGRADE) from error

    def place(self, namespace: Namespace) -> Place:
        """Where its objects are: the path it was named by, if that still leads to the same URL, else the URL."""
        return find_again(self.path, self.url, namespace)


_UPGRADE = "it was damaged, or written by a newer headrace: upgrade"


def take_pin(
    source: str, folder: str, *, namespace: Namespace, settings: Settings, progress: Progress = SILENT
) -> Pin:
    """Pin `source` (a snapshot, a path or a URL) now, into `folder`, which is made.

    Raises:
        NotFoundError: no such snapshot, or nothing lies there. InputError, SettingError (no home), any store error.
    """
    if is_snapshot_name(source):
        return _keep(_of_snapshot(source, open_snapshot(source, namespace=namespace, settings=settings)), folder)
    os.makedirs(folder, exist_ok=True)
    manifest = Path(folder, MANIFEST)
    single = _one_object(source, namespace)
    if single is not None:
        place, objects = _pin_object(single, manifest, settings)
    else:
        place = find_place(source, namespace)
        objects = list_place(place, Shelf.of(settings), progress, manifest=manifest)
    pin = Pin(
        source, place.url, place.path, None, single is not None, objects.objects, objects.bytes, objects.digest
    )
    return _keep(pin, folder)


def take_again(
    pin: Pin, kept: tuple[Store, str], folder: str, *, namespace: Namespace, settings: Settings
) -> Pin:
    """Pin what an earlier run had: the same versions. `kept`: store and key prefix of its pin; `folder`: as `take_pin`.

    Raises:
        NotFoundError: the snapshot or the manifest is gone. ChangedError: the snapshot is another one by now.
        CorruptError: a manifest that is not what it was. Any store error.
    """
    if pin.snapshot is not None:
        found = _of_snapshot(pin.source, open_snapshot(pin.snapshot, namespace=namespace, settings=settings))
        if found.digest != pin.digest:
            raise ChangedError("the snapshot holds other objects by now", path=pin.snapshot)
        return _keep(found, folder)
    os.makedirs(folder, exist_ok=True)
    _download(kept, os.path.join(folder, MANIFEST))
    _keep(pin, folder)
    pin_objects(pin, folder, namespace=namespace, settings=settings)
    return pin


def pin_objects(
    pin: Pin, folder: str, *, namespace: Namespace, settings: Settings, progress: Progress = SILENT
) -> Objects:
    """What is pinned, mapped. `folder`: of its manifest, if it has one. Raises CorruptError, NotFoundError."""
    if pin.snapshot is not None:
        snapshot = open_snapshot(pin.snapshot, namespace=namespace, settings=settings)
        return snapshot_objects(snapshot, settings, progress)
    shelf = Shelf.of(settings)
    known = open_objects(shelf, pin.digest)
    if known is not None:
        return known
    path = os.path.join(folder, MANIFEST)
    objects = build_objects(shelf, (versioned(batch) for batch in read_manifest(path, path, progress)))
    if objects.digest != pin.digest:
        raise CorruptError("manifest is not the one that was pinned", path=path)
    return objects


def differences(pin: Pin, objects: Objects, *, namespace: Namespace, settings: Settings) -> Iterator[Change]:
    """Objects that are gone by now, or are other versions. Lists the source. Raises any store error."""
    place = pin.place(namespace)
    try:
        if pin.single:
            (name,) = (batch["key"][0].as_py() for batch in objects.batches(("key",)))
            now = iter([versioned(page_batch([place.store.head(place.prefix + name)], place.prefix))])
        else:
            now = rows_now(place, Shelf.of(settings))
        yield from (one for one in compare(objects.batches(), now) if one.kind != "added")
    except NotFoundError:
        yield from (one for one in compare(objects.batches(), iter(())) if one.kind != "added")


def is_pin_name(text: str) -> bool:
    """Whether `text` is written ``run:<id>/<name>``."""
    return _RUN.fullmatch(text) is not None


def open_pin(
    text: str, *, namespace: Namespace, settings: Settings, progress: Progress = SILENT
) -> tuple[Pin, Objects]:
    """What ``run:<id>/<name>`` names. Raises NotFoundError: no such run or input; CorruptError; any store error."""
    match = _RUN.fullmatch(text)
    if match is None:
        raise NotFoundError("is no input of a run", path=text, hint="run:<id>/<name>")
    run, name = match.groups()
    here = environment(INPUTS_VARIABLE)
    if here and environment("HEADRACE_RUN_ID") == run and os.path.exists(os.path.join(here, name, PIN)):
        folder = os.path.join(here, name)
        with open(os.path.join(folder, PIN), "rb") as file:
            pin = _parsed(file.read(), folder)
        return pin, pin_objects(pin, folder, namespace=namespace, settings=settings, progress=progress)
    home = Home.of(namespace, settings)
    kept = home.store, home.key("runs", run, "inputs", name, "")
    pin = read_pin(kept, text)
    known = None if pin.snapshot is not None else open_objects(Shelf.of(settings), pin.digest)
    if known is not None:
        return pin, known
    with Shelf.of(settings).workspace() as work:
        if pin.snapshot is None:
            _download(kept, str(work / MANIFEST))
        return pin, pin_objects(pin, str(work), namespace=namespace, settings=settings, progress=progress)


def read_pin(kept: tuple[Store, str], name: str) -> Pin:
    """The pin that lies at a store's key prefix; `name`: for messages. Raises NotFoundError, CorruptError."""
    store, prefix = kept
    try:
        return _parsed(bytes(store.get(prefix + PIN).data), name)
    except NotFoundError:
        hint = "headrace runs shows what there is; what a run has pinned is in the home seconds after its start"
        raise NotFoundError("there is no such input of a run", path=name, hint=hint) from None


def _parsed(data: bytes, where: str) -> Pin:
    try:
        return Pin.from_json(json.loads(data), where)
    except ValueError as error:
        raise CorruptError(f"is no pin: {error}", path=where, hint=_UPGRADE) from error


def _of_snapshot(source: str, found: Snapshot) -> Pin:
    return Pin(source, found.source, found.path, found.id, False, found.objects, found.bytes, found.digest)


def _one_object(source: str, namespace: Namespace) -> Place | None:
    """Where `source` lies, with its whole key for a prefix, if it names one object."""
    at = namespace.resolve(source)
    if not at.key or at.key.endswith("/"):
        return None
    try:
        at.store.head(at.key)
    except NotFoundError:
        return None
    return Place(at.store, at.key, None if "://" in source else source)


def _pin_object(one: Place, manifest: Path, settings: Settings) -> tuple[Place, Objects]:
    """A manifest of one row, and the folder that the object lies in."""
    info = one.store.head(one.prefix)
    prefix = one.prefix[: one.prefix.rfind("/") + 1]
    parent = None if one.path is None else one.path.rpartition("/")[0]
    batch = page_batch([info], prefix)
    with ManifestWriter(str(manifest)) as writer:
        writer.add(batch)
    return Place(one.store, prefix, parent or None), build_objects(Shelf.of(settings), [versioned(batch)])


def _keep(pin: Pin, folder: str) -> Pin:
    os.makedirs(folder, exist_ok=True)
    new = os.path.join(folder, f"{PIN}.tmp")
    with open(new, "w", encoding="utf-8") as file:
        json.dump(pin.as_json(), file, indent=1)
    os.rename(new, os.path.join(folder, PIN))
    return pin


def _download(kept: tuple[Store, str], path: str) -> None:
    store, prefix = kept
    size = store.head(prefix + MANIFEST).size
    with open(path, "wb") as file:
        starts = range(0, size, _CHUNK)
        file.writelines(store.get(prefix + MANIFEST, start, min(start + _CHUNK, size)).data for start in starts)
