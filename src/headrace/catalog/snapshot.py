"""Snapshots: immutable, named lists of object versions, kept in the home.

::

    <home>/datasets/<name>/<version>/manifest.parquet     see `headrace.catalog.manifest`
                                     snapshot.json        written last, only if absent: the snapshot exists now
                                     index/<format>/      of its shards, where it was asked for: rebuildable, so it
                                                          may come later (see `headrace.formats.index.stored_index`);
                                                          order-<id>.json (see `headrace.loader.order.auto_block`)

A version without ``snapshot.json`` is one that never finished; it is not listed and its number is not used again. If
its manifest is in the way of a new attempt at the same version, that one is named after its digest instead:
``snapshot.json`` says which file counts.
"""

from __future__ import annotations

import json
import mmap
import re
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace.base.errors import AlreadyExistsError, CorruptError, InputError, NotFoundError
from headrace.base.progress import SILENT, Progress
from headrace.base.settings import Settings
from headrace.base.threads import Threads
from headrace.catalog.index_cache import Shelf
from headrace.catalog.listed_places import Listing, Place, find_again, find_place, list_place, listed_here
from headrace.catalog.manifest import read_manifest, versioned
from headrace.catalog.object_index import Objects, build_objects, open_objects
from headrace.namespace import Namespace
from headrace.namespace.home import Home

FORMAT = 1
LATEST = "latest"
_ROOT, _MARKER, _MANIFEST = "datasets", "snapshot.json", "manifest.parquet"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NUMBERED = re.compile(r"v([1-9][0-9]*)")
_CHUNK = 32 << 20  # bytes of a manifest read at a time
_TRIES = 50  # numbers that others may take before us, one after the other


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One complete snapshot; the fields of ``snapshot.json``. `bytes`: of all objects; `created`: RFC 3339, UTC."""

    name: str
    version: str
    created: str
    source: str
    path: str | None
    objects: int
    bytes: int
    digest: str
    manifest: str
    manifest_bytes: int
    parents: tuple[str, ...] = ()
    format: int = FORMAT
    home: Home = field(compare=False, repr=False, kw_only=True)

    @property
    def id(self) -> str:
        return f"{self.name}@{self.version}"

    @property
    def folder(self) -> tuple[str, str, str]:
        """Where it lies below the home, as parts of a key."""
        return _ROOT, self.name, self.version

    @property
    def url(self) -> str:
        """Where its manifest lies."""
        return self.home.url(_ROOT, self.name, self.version, self.manifest)

    def as_dict(self) -> dict[str, Any]:
        """What ``snapshot.json`` holds."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "home"}


def take_snapshot(
    path: str,
    name: str,
    version: str | None = None,
    *,
    namespace: Namespace,
    settings: Settings,
    progress: Progress = SILENT,
    listing: Listing = listed_here,
) -> Snapshot:
    """List `path` (or a URL) and record every object version there as ``name@version``.

    Without `version`, the next of v1, v2, …; `progress` is told of objects and bytes listed. `listing`: who lists.

    Raises:
        InputError: bad name or version. AlreadyExistsError: that version exists. NotFoundError: nothing to list.
        SettingError: no home. ReadOnlyError: the home is read-only. Any store error; then no snapshot exists.
    """
    _check_name(name, "name")
    if version is not None:
        _check_name(version, "version")
    home = Home.of(namespace, settings)
    home.check_writable()
    if version is not None and _exists(home, name, version):
        raise _taken(home, name, version)
    place = find_place(path, namespace)
    parent = newest(name, home)
    shelf = Shelf.of(settings)
    with shelf.workspace() as work:
        file = work / _MANIFEST
        objects = list_place(place, shelf, progress, manifest=file, listing=listing)
        draft = Snapshot(
            name, "", datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
            place.url, place.path, objects.objects, objects.bytes, objects.digest, _MANIFEST, file.stat().st_size,
            (parent.id,) if parent else (), home=home,
        )  # fmt: skip
        return _record(draft, version, file)


def _record(draft: Snapshot, version: str | None, file: Path) -> Snapshot:
    """Write manifest and marker; with a version of our own choice, a lost race means the next number."""
    chosen = ""
    for _ in range(1 if version else _TRIES):
        chosen = version or _next_version(draft.name, draft.home)
        try:
            made = _replace(draft, version=chosen, manifest=_put_manifest(draft, chosen, file))
            text = json.dumps(made.as_dict(), indent=1).encode()
            made.home.create(text, _ROOT, made.name, chosen, _MARKER)
            return made
        except AlreadyExistsError:
            continue
    raise _taken(draft.home, draft.name, chosen)


def _put_manifest(draft: Snapshot, version: str, file: Path) -> str:
    """Write the manifest and return its name there; ``AlreadyExistsError`` if the version is complete already."""
    with file.open("rb") as handle:
        # Never closed by hand: a store's error keeps the frames alive that look into the mapping, and closing it then
        # would raise BufferError in the error's place.
        view = memoryview(mmap.mmap(handle.fileno(), 0, prot=mmap.PROT_READ))
    try:
        draft.home.create(view, _ROOT, draft.name, version, _MANIFEST)
        return _MANIFEST
    except AlreadyExistsError:
        if _exists(draft.home, draft.name, version):
            raise
    other = f"manifest-{draft.digest[:16]}.parquet"
    draft.home.store.put(draft.home.key(_ROOT, draft.name, version, other), view)
    return other


def _replace(draft: Snapshot, **changes: Any) -> Snapshot:
    return Snapshot(**{**draft.as_dict(), **changes}, home=draft.home)


def open_snapshot(text: str, *, namespace: Namespace, settings: Settings) -> Snapshot:
    """The snapshot named ``name@version``; ``name`` and ``name@latest`` are the newest complete one.

    Raises:
        InputError: bad name. NotFoundError: no such snapshot. CorruptError: ``snapshot.json`` is damaged.
        SettingError: no home. Any store error.
    """
    name, _, version = text.partition("@")
    _check_name(name, "name")
    home = Home.of(namespace, settings)
    if version in ("", LATEST):
        found = newest(name, home)
        if found is None:
            known = ", ".join(_folders(home, _ROOT)) or "none yet"
            raise NotFoundError(f"no snapshot is named {name!r}", path=home.url(_ROOT), hint=f"known names: {known}")
        return found
    _check_name(version, "version", allow_latest=True)
    try:
        return _read(home, name, version)
    except NotFoundError:
        known = ", ".join(_versions(home, name)) or "none"
        raise NotFoundError(
            f"there is no snapshot {name}@{version}", path=home.url(_ROOT, name), hint=f"known versions: {known}"
        ) from None


def list_snapshots(name: str | None = None, *, namespace: Namespace, settings: Settings) -> list[Snapshot]:
    """All complete snapshots, of one name or of all, by name and age."""
    home = Home.of(namespace, settings)
    if name is not None:
        _check_name(name, "name")
    return [s for one in ([name] if name else _folders(home, _ROOT)) for s in _complete(home, one)]


def newest(name: str, home: Home) -> Snapshot | None:
    """The youngest complete snapshot of a name."""
    return max(_complete(home, name), key=lambda s: s.created, default=None)


def snapshot_objects(snapshot: Snapshot, settings: Settings, progress: Progress = SILENT) -> Objects:
    """The snapshot's objects, mapped. The first process on a node downloads the manifest and builds the index.

    Raises CorruptError where the manifest is missing, damaged, or not what ``snapshot.json`` promises.
    """
    shelf = Shelf.of(settings)
    with shelf.lock(f"snapshot-{snapshot.digest[:40]}"):
        known = open_objects(shelf, snapshot.digest)
        if known is not None:
            return known
        with shelf.workspace() as work:
            file = work / _MANIFEST
            _download(snapshot, file)
            rows = read_manifest(str(file), snapshot.url, progress)
            objects = build_objects(shelf, (versioned(batch) for batch in rows))
        if objects.digest != snapshot.digest:
            raise CorruptError("manifest is not the one that snapshot.json names", path=snapshot.url, hint=_RETAKE)
        return objects


def snapshot_place(snapshot: Snapshot, namespace: Namespace) -> Place:
    """Where the snapshot's objects are: the path it was taken by, if that still leads to the same URL, else the URL."""
    return find_again(snapshot.path, snapshot.source, namespace)


_RETAKE = "take the snapshot again under a new version"


def _download(snapshot: Snapshot, file: Path) -> None:
    home, size = snapshot.home, snapshot.manifest_bytes
    key = home.key(_ROOT, snapshot.name, snapshot.version, snapshot.manifest)
    try:
        with file.open("wb") as out:
            for start in range(0, size, _CHUNK):
                out.write(home.store.get(key, start, min(start + _CHUNK, size)).data)
        whole = home.store.head(key).size
    except NotFoundError as error:
        raise CorruptError("the snapshot's manifest is gone", path=snapshot.url, hint=_RETAKE) from error
    except InputError as error:
        raise CorruptError("manifest is cut short", path=snapshot.url, hint=_RETAKE) from error
    if file.stat().st_size != size or whole != size:
        raise CorruptError(f"manifest has {whole} bytes instead of {size}", path=snapshot.url, hint=_RETAKE)


def _read(home: Home, name: str, version: str) -> Snapshot:
    where = home.url(_ROOT, name, version, _MARKER)
    data = bytes(home.store.get(home.key(_ROOT, name, version, _MARKER)).data)
    try:
        table = json.loads(data)
        if table["format"] > FORMAT:
            raise CorruptError(
                f"snapshot format {table['format']} is newer than this headrace", path=where, hint="upgrade headrace"
            )
        known = {f.name for f in fields(Snapshot)} - {"home"}
        table = {key: value for key, value in table.items() if key in known}
        table["parents"] = tuple(table.get("parents", ()))
        return Snapshot(**table, home=home)
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptError(f"cannot be read: {error}", path=where, hint=_RETAKE) from error


def _complete(home: Home, name: str) -> list[Snapshot]:
    def read(version: str) -> Snapshot | None:
        try:
            return _read(home, name, version)
        except NotFoundError:
            return None

    versions = _versions(home, name)
    with Threads(min(16, len(versions) or 1), thread_name_prefix="headrace-snapshots") as pool:
        return sorted((s for s in pool.map(read, versions) if s), key=lambda s: s.created)


def _versions(home: Home, name: str) -> list[str]:
    return _folders(home, _ROOT, name)


def _folders(home: Home, *parts: str) -> list[str]:
    prefix = home.key(*parts) + "/"
    try:
        names = (folder[len(prefix) : -1] for folder in home.store.list_folder(prefix).folders)
    except NotFoundError:
        return []
    return sorted(name for name in names if _NAME.fullmatch(name))


def _next_version(name: str, home: Home) -> str:
    numbers = (match for version in _versions(home, name) if (match := _NUMBERED.fullmatch(version)))
    return f"v{max((int(match[1]) for match in numbers), default=0) + 1}"


def _exists(home: Home, name: str, version: str) -> bool:
    try:
        home.store.head(home.key(_ROOT, name, version, _MARKER))
    except NotFoundError:
        return False
    return True


def _taken(home: Home, name: str, version: str) -> AlreadyExistsError:
    return AlreadyExistsError(
        f"snapshot {name}@{version} exists",
        path=home.url(_ROOT, name, version),
        hint="snapshots never change: leave out the version to get the next one",
    )


def _check_name(text: str, what: str, *, allow_latest: bool = False) -> None:
    if not _NAME.fullmatch(text) or (text == LATEST and not allow_latest):
        raise InputError(
            f"{text!r} is no {what} for a snapshot",
            hint=f"letters, digits, '.', '_' and '-', at most 100, not starting with a mark, not {LATEST!r}",
        )


def is_snapshot_name(text: str) -> bool:
    """Whether `text` can only be a snapshot: not a path, not a URL."""
    name, _, version = text.partition("@")
    return bool(_NAME.fullmatch(name)) and (not version or bool(_NAME.fullmatch(version)))
