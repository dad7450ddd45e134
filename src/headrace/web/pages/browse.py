"""``/files``: the namespace, a page of names at a time; ``/files/PATH``: a folder, or a file with its beginning."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final
from urllib.parse import quote

from headrace.base.errors import ChangedError, HeadraceError, InputError, NotFoundError
from headrace.namespace import Entry, Location
from headrace.web.previews import Preview
from headrace.web.told import Page, Told
from headrace.web.world import World

COUNT: Final = 200  # names on a page
_MOST: Final = 1000  # names on a page, whatever is asked for


@dataclass(frozen=True, slots=True)
class Asked:
    """`path`: in the namespace; `after`: the name before the first (``Shown.next`` of the page before, or any)."""

    path: str = ""
    after: str = ""
    count: int = COUNT


@dataclass(frozen=True, slots=True)
class Named:
    """One name. `link`: below the base, none where no URL leads to it; `modified`: RFC 3339; `store`: what is attached
    there.
    """

    name: str
    path: str
    kind: str
    link: str | None
    size: int | None = None
    modified: str | None = None
    store: str | None = None
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class File:
    """`version`: the ETag, or size and time where the store has none. `raw`, `picture`, `sound`: where its bytes are,
    a small picture if it is one, and what can be played if it is that, below the base.
    """

    size: int
    modified: str | None
    version: str
    raw: str
    picture: str | None
    preview: Preview | None
    problem: str | None = None
    sound: str | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """`crumbs`: from the root down; `url`: in the store; `next`: what the next page is asked for with; `file`: None
    of a folder.
    """

    path: str
    kind: str
    crumbs: tuple[Named, ...]
    url: str | None
    store: str | None
    read_only: bool
    names: tuple[Named, ...]
    next: str | None
    file: File | None
    asked: Asked


def view(world: World, asked: Asked, *, below: bool) -> Told:
    """`below`: the path is that of the URL, and lacks its first slash."""
    path = f"/{asked.path}" if below or not asked.path.startswith("/") else asked.path
    check(path)
    listed = world.names(path, asked.after, min(max(1, asked.count), _MOST)) if _may_be_folder(path) else None
    if listed is None:
        entry = world.stat(path)
        if entry.is_file:
            return _of_file(world, asked, path, entry)
        listed = world.names(path, asked.after, min(max(1, asked.count), _MOST))
    at = _location(world, path)
    names = _stores(world) if path == "/" and at is None else tuple(_named(world, listed.entries))
    shown = Shown(
        path, "folder", crumbs(path), at and _url(at), at and (at.mount.path if at.mount else None),
        at is not None and at.read_only, names, listed.after, None, asked,
    )  # fmt: skip
    words = shlex.join(["headrace", "ls", "-l", path])
    return Told(shown, words, f"hr.Namespace.load().page({path!r}).entries")


def check(path: str) -> None:
    """Raises InputError: a path that browsers, or people, would take for another."""
    if any(part in (".", "..") for part in path.split("/")):
        raise InputError(
            "a part '.' or '..' leads elsewhere", path=path, hint="write the whole path, from the root down"
        )


def crumbs(path: str) -> tuple[Named, ...]:
    """The folders that lead to it, and itself."""
    found = [Named("Files", "/", "folder", "/files")]
    at = 0
    while (end := path.find("/", at + 1)) >= 0:
        found.append(Named(path[at + 1 : end], path[:end], "folder", link_of(path[: end + 1])))
        at = end
    if path[at + 1 :]:
        found.append(Named(path[at + 1 :], path, "file", link_of(path)))
    return tuple(found)


def link_of(path: str) -> str | None:
    """Where a page shows it, below the base; None: a browser would go elsewhere."""
    if any(part in (".", "..") for part in path.split("/")):
        return None
    return f"/files{quote(path)}"


def _may_be_folder(path: str) -> bool:
    """Links to folders end in a slash: then nobody need be asked whether there is a file of that name."""
    return path.endswith("/")


def _of_file(world: World, asked: Asked, path: str, entry: Entry) -> Told:
    at, preview, problem = world.tree.resolve(path), None, None
    try:
        entry, preview = _looked_at(world, path, entry)
    except HeadraceError as error:
        problem = error.reason
    picture = f"/preview{quote(path)}?version={quote(entry.version, safe='')}"
    sound = f"/listen{quote(path)}?version={quote(entry.version, safe='')}"
    file = File(
        entry.size, moment(entry.mtime_us), entry.version, f"/raw/files{quote(path)}",
        picture if preview is not None and preview.picture else None, preview, problem,
        sound if preview is not None and preview.sound else None,
    )  # fmt: skip
    shown = Shown(
        path, "file", crumbs(path), _url(at), at.mount.path if at.mount else None, at.read_only, (), None, file, asked
    )
    return Told(shown, shlex.join(["headrace", "cat", path]), f"hr.Namespace.load().read({path!r})")


def _looked_at(world: World, path: str, entry: Entry) -> tuple[Entry, Preview]:
    """What was known of it may be a minute old: the file that is there now, then."""
    try:
        return entry, world.previews.of(entry).preview
    except (ChangedError, NotFoundError):
        entry = world.tree.stat(path, refresh=True)
        return entry, world.previews.of(entry).preview


def _stores(world: World) -> tuple[Named, ...]:
    """All that are attached, wherever."""
    return tuple(
        Named(one.path, one.path, "folder", link_of(f"{one.path}/"), store=one.url, read_only=one.read_only)
        for one in world.tree.mounts()
    )


def _named(world: World, entries: Iterable[Entry]) -> Iterable[Named]:
    attached = {mount.path: mount for mount in world.tree.mounts()}
    for entry in entries:
        if entry.is_file:
            size, modified = (entry.size if entry.size >= 0 else None), moment(entry.mtime_us)
            yield Named(entry.name, entry.path, "file", link_of(entry.path), size, modified)
            continue
        mount = attached.get(entry.path)
        link = link_of(entry.path if entry.path.endswith("/") else f"{entry.path}/")
        url, read_only = (mount.url, mount.read_only) if mount is not None else (None, False)
        yield Named(entry.name, entry.path, "folder", link, store=url, read_only=read_only)


def _location(world: World, path: str) -> Location | None:
    """None: no store is attached there, only further down."""
    try:
        return world.tree.resolve(path)
    except NotFoundError:
        return None


def _url(at: Location) -> str:
    return f"{at.store.url}/{at.key}" if at.key else at.store.url


def moment(mtime_us: int) -> str | None:
    """RFC 3339; None where the store tells none."""
    return f"{datetime.fromtimestamp(mtime_us // 1_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}" if mtime_us else None


ROOT = Page("/files", "names", Asked, Shown, partial(view, below=False), "What is attached where.")
PAGE = Page(
    "/files/{path:path}", "names-below", Asked, Shown, partial(view, below=True),
    "A folder of the namespace, or a file and its beginning.",
)  # fmt: skip
