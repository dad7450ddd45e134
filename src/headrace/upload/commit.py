"""Many objects published as one: they count once their marker, ``COMMITTED``, is there, which is written last.

    <prefix>/…           the objects
    <prefix>/COMMITTED   {"format": 1, "written": RFC 3339, "objects": [{"name", "size", "etag"}, …], "note": {…}}

Names are below the prefix, in order; `etag` is null where the store has none. A reader that finds the marker knows what
belongs to the publication, and that all of it was there when it was written. `written` is the time here; who knows the
order of what it publishes better than by the clock says it in the note, as `FINISHED`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from headrace.base.errors import (
    AlreadyExistsError,
    CorruptError,
    InputError,
    NotFoundError,
    TryAgainError,
)
from headrace.base.progress import SILENT, Progress
from headrace.store.protocol import ObjectInfo, Store
from headrace.upload.job import Cancel
from headrace.upload.many import Item, put_many
from headrace.upload.uploader import File, Uploader

MARKER: Final = "COMMITTED"
FORMAT: Final = 1
FINISHED: Final = "finished"
"""In the note: when what is published was finished, RFC 3339; later than that of all that its writer has published."""
_AHEAD_US: Final = 300_000_000
"""A clock that is farther ahead of the store's is wrong."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Member:
    """One object of a publication. `name`: its key below the prefix."""

    name: str
    size: int
    etag: str | None


@dataclass(frozen=True, slots=True)
class Publication:
    """What a marker says. `prefix` ends in ``/``, or is empty; `written`: RFC 3339, by the writer's clock."""

    prefix: str
    members: tuple[Member, ...]
    written: str
    note: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum(member.size for member in self.members)


class Committed(NamedTuple):
    """When a marker was committed, in microseconds since the epoch, to be compared with others: by what it says, and by
    the store's time only between those that say the same. A copy of the marker says what the marker said.
    """

    said_us: int
    stored_us: int


def publish(
    uploader: Uploader,
    store: Store,
    prefix: str,
    files: Mapping[str, File],
    *,
    note: Mapping[str, str] | None = None,
    replace: bool = False,
    progress: Progress = SILENT,
    cancel: Cancel | None = None,
) -> Publication:
    """Send files under a prefix, then the marker.

    Args:
        uploader: what sends.
        store: where to.
        prefix: the folder in the store, with or without its last ``/``.
        files: name below the prefix → file.
        note: anything for the marker.
        replace: take the place of a publication: its marker goes first, so that no reader meets a mixture.
        progress: told every file.
        cancel: set it to stop early.

    Raises:
        AlreadyExistsError: there is a marker, and not `replace`.
        HeadraceError: the first failure; there is no marker then.
    """
    prefix = _folder(prefix)
    if MARKER in files:
        raise InputError(f"no file may be named {MARKER}", path=f"{store.url}/{prefix}")
    if is_complete(store, prefix):
        if not replace:
            raise AlreadyExistsError("is published already", path=f"{store.url}/{prefix}")
        retract(store, prefix)
    progress.total(len(files))
    done: list[ObjectInfo] = []
    items = (Item(prefix + name, file) for name, file in files.items())
    with closing(put_many(uploader, store, items, progress=progress, cancel=cancel)) as outcomes:
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
            if outcome.info is not None:
                done.append(outcome.info)
    if len(done) < len(files):
        raise TryAgainError("stopped before it was all sent", path=f"{store.url}/{prefix}")
    return commit(store, prefix, done, note=note)


def commit(
    store: Store, prefix: str, objects: Iterable[ObjectInfo], *, note: Mapping[str, str] | None = None
) -> Publication:
    """Write the marker over objects that are there.

    Args:
        store: where they are.
        prefix: what their keys start with.
        objects: as their writes returned them.
        note: anything for the marker.

    Raises:
        InputError: an object that is not below the prefix. Else as `Store.put`.
    """
    prefix = _folder(prefix)
    members: list[Member] = []
    for info in sorted(objects, key=lambda one: one.key):
        if not info.key.startswith(prefix) or info.key == prefix + MARKER:
            raise InputError("not an object of this publication", path=f"{store.url}/{info.key}")
        members.append(Member(info.key[len(prefix) :], info.size, info.etag))
    written = time_text(time.time_ns() // 1000)
    publication = Publication(prefix, tuple(members), written, dict(note or {}))
    store.put(prefix + MARKER, _to_json(publication))
    return publication


def committed(store: Store, prefix: str) -> Committed | None:
    """When what is under a prefix was published; None: nothing, or not yet all of it. One GET. Raises as `Store.get`.

    A marker that is none of ours, or whose writer's clock was far ahead of the store's, counts by the store's time.
    """
    try:
        blob = store.get(_folder(prefix) + MARKER)
    except NotFoundError:
        return None
    stored = blob.info.mtime_us
    return Committed(_said_us(bytes(blob.data), stored), stored)


def time_text(us: int) -> str:
    """Microseconds since the epoch as RFC 3339."""
    return (_EPOCH + timedelta(microseconds=us)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def is_complete(store: Store, prefix: str) -> bool:
    """Whether the marker is there. One HEAD. Raises as `Store.head`, but for NotFoundError."""
    try:
        store.head(_folder(prefix) + MARKER)
    except NotFoundError:
        return False
    return True


def published(store: Store, prefix: str) -> Publication | None:
    """What is published under a prefix; None: nothing, or not yet all of it.

    Raises:
        CorruptError: the marker is none of ours, or of a later format. Else as `Store.get`.
    """
    prefix = _folder(prefix)
    try:
        data = bytes(store.get(prefix + MARKER).data)
    except NotFoundError:
        return None
    return _from_json(prefix, data, f"{store.url}/{prefix}{MARKER}")


def missing(store: Store, publication: Publication) -> list[str]:
    """Names that the marker tells of and that are not there as it tells: gone, or of another size or ETag. One LIST."""
    found = {info.key: info for page in store.list(publication.prefix) for info in page}
    wrong: list[str] = []
    for member in publication.members:
        info = found.get(publication.prefix + member.name)
        if info is None or info.size != member.size or (member.etag is not None and info.etag != member.etag):
            wrong.append(member.name)
    return wrong


def retract(store: Store, prefix: str) -> None:
    """Take the marker away: what lies under the prefix counts no more. The objects stay."""
    store.delete([_folder(prefix) + MARKER])


def _folder(prefix: str) -> str:
    return prefix if not prefix or prefix.endswith("/") else f"{prefix}/"


def _to_json(publication: Publication) -> bytes:
    objects = [{"name": one.name, "size": one.size, "etag": one.etag} for one in publication.members]
    told = {"format": FORMAT, "written": publication.written, "objects": objects, "note": publication.note}
    return json.dumps(told, ensure_ascii=False, indent=1).encode()


def _said_us(data: bytes, stored: int) -> int:
    try:
        told: Any = json.loads(data)
        finished, written = _time_us(told["note"].get(FINISHED)), _time_us(told["written"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return stored
    if finished is not None:
        return finished
    if written is None or 0 < stored < written - _AHEAD_US:
        return stored
    return written


def _time_us(text: object) -> int | None:
    """None: it is no time."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return (moment.replace(tzinfo=moment.tzinfo or UTC) - _EPOCH) // timedelta(microseconds=1)


def _from_json(prefix: str, data: bytes, path: str) -> Publication:
    try:
        told: Any = json.loads(data)
        if told["format"] > FORMAT:
            hint = "install a newer headrace"
            raise CorruptError(f"the marker is of format {told['format']}", path=path, hint=hint)
        members = tuple(Member(str(one["name"]), int(one["size"]), one["etag"]) for one in told["objects"])
        note = {str(name): str(value) for name, value in told["note"].items()}
        return Publication(prefix, members, str(told["written"]), note)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptError("the marker is not one of headrace's", path=path) from error
