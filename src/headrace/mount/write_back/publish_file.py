"""A staged file becomes an object: in one request while it is small, by parts when it is large, and where its start is
that of the published object still, by copying that start inside the store and sending only the rest.
"""

from __future__ import annotations

import dataclasses
import os
import re
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.base.errors import ChangedError, NotFoundError
from headrace.base.memory import take
from headrace.cache.entry import checksum
from headrace.mount.write_back.staged_file import PublishSnapshot, StagedFile
from headrace.store.protocol import Buffer, Described, ObjectInfo, Store

if TYPE_CHECKING:
    from headrace.namespace import Location
    from headrace.upload import Uploader

SMALL: Final = 16 << 20
"""Bytes up to which a file goes in one request."""
_TINY: Final = 64 << 10
"""Bytes up to which a file is read without asking for memory: as many as may be published at once take 6 MiB."""
_MD5: Final = re.compile(r"[0-9a-f]{32}\Z")
COPY_FROM: Final = 8 << 20
"""Bytes the same as in the object from which on copying them there is cheaper than sending them."""


class Published(NamedTuple):
    """What the object is now, the same with its metadata where that is known, and `headrace.cache.entry.checksum` of
    its bytes, where they were all at hand.
    """

    info: ObjectInfo
    described: Described | None = None
    checksum: int | None = None


def send(
    file: StagedFile, snapshot: PublishSnapshot, place: Location, uploader: Uploader, known: Described | None = None
) -> Published:
    """Publish what `snapshot` names; `file.lock` is held. `known`: the object as we have written it just now.

    Raises:
        HeadraceError: nothing was published, or, where the answer was lost, perhaps all of it. OSError: the disk fails.
    """
    store, key = place.store, place.key
    metadata = _metadata(file, place, snapshot.mtime_ns)
    if not snapshot.data and snapshot.base is not None:
        if metadata is None:
            return Published(snapshot.base)
        return _describe_again(store, snapshot.base, metadata, known)
    if snapshot.size <= SMALL:
        file.ensure(0, snapshot.size)
        if snapshot.size <= _TINY:
            data: Buffer = read_at(file.fd, 0, snapshot.size)
            return _sent(store.put(key, data, metadata=metadata), metadata, data)
        with uploader.hold(snapshot.size):
            data = take(snapshot.size)
            read_into(file.fd, data)
            return _sent(store.put(key, data, metadata=metadata), metadata, data)
    base = _copyable(snapshot, place, metadata)
    if base is not None:
        try:
            return _sent(_append(file, snapshot, place, base, metadata, uploader), metadata)
        except (ChangedError, NotFoundError):
            pass  # somebody else wrote the object: all of it, then
    file.ensure(0, snapshot.size)
    # Growing: what others write meanwhile makes the file dirty again, and must not keep this one from ending.
    return _sent(uploader.put_file(store, key, file.fd, snapshot.size, metadata, growing=True), metadata)


def _sent(info: ObjectInfo, metadata: dict[str, str] | None, data: Buffer | None = None) -> Published:
    info = stamped(info)
    described = Described(info, metadata) if metadata is not None else None
    return Published(info, described, checksum(memoryview(data)) if data is not None else None)


def _describe_again(store: Store, base: ObjectInfo, metadata: dict[str, str], known: Described | None) -> Published:
    """Give the object other metadata; of one that we have just written, without asking what else it has."""
    if known is not None and known.info.version == base.version and outlives_copy(base.etag):
        with suppress(ChangedError, NotFoundError):  # perhaps another writer's by now
            store.redescribe(known, metadata)
            return Published(base, known._replace(metadata=metadata))
    store.copy(base.key, base.key, metadata=metadata)
    return Published(store.head(base.key))


def outlives_copy(etag: str | None) -> bool:
    """Whether a copy inside the store has the same ETag: the MD5 sum of the bytes, by its looks. Where a server gives
    it another all the same, the next open of the file by this ETag finds that out.
    """
    return etag is not None and _MD5.match(etag) is not None


def _copyable(snapshot: PublishSnapshot, place: Location, metadata: dict[str, str] | None) -> ObjectInfo | None:
    """What of the published object can be copied: its beginning, as far as it is the file's; None: too little."""
    base, same = snapshot.base, snapshot.same
    seen = place.store.capabilities
    if base is None or same < COPY_FROM or seen.copied_parts is False or seen.parts is False:
        return None
    if same == base.size:
        return base
    return base._replace(size=same) if base.etag is not None and metadata is not None else None


def _append(
    file: StagedFile,
    snapshot: PublishSnapshot,
    place: Location,
    base: ObjectInfo,
    metadata: dict[str, str] | None,
    uploader: Uploader,
) -> ObjectInfo:
    store = place.store
    known = store.capabilities.copied_parts is True
    file.ensure(base.size if known else 0, snapshot.size)  # not known: perhaps everything is sent after all
    info = uploader.append(store, place.key, base, file.fd, snapshot.size, metadata, growing=True)
    if not known and store.capabilities.copied_parts is None:
        store.record(dataclasses.replace(store.capabilities, copied_parts=True))
    return info


def read_at(fd: int, start: int, stop: int) -> bytes:
    """Bytes [start, stop) of a file, zeros where it has become shorter. Not mapped: cut meanwhile, it would kill us."""
    data = os.pread(fd, stop - start, start)
    if len(data) == stop - start:
        return data
    pieces = [data]
    done = len(data)
    while done < stop - start:
        data = os.pread(fd, stop - start - done, start + done)
        pieces.append(data or bytes(stop - start - done))
        done += len(pieces[-1])
    return b"".join(pieces)


def read_into(fd: int, view: memoryview) -> None:
    """The first bytes of a file, as `read_at`."""
    done = 0
    while done < len(view):
        got = os.preadv(fd, [view[done:]], done)
        if not got:
            view[done:] = bytes(len(view) - done)
        done += got or len(view) - done


def _metadata(file: StagedFile, place: Location, mtime_ns: int) -> dict[str, str] | None:
    """None where the store keeps none. An object that was there before keeps what others have put on it."""
    if place.store.capabilities.metadata is False:
        return None
    if file.kept is None:
        try:
            file.kept = place.store.describe(place.key).metadata
        except NotFoundError:
            file.kept = {}
    return file.metadata(mtime_ns)


def stamped(info: ObjectInfo) -> ObjectInfo:
    """The same with a time: some stores do not answer with that of a write."""
    return info if info.mtime_us else info._replace(mtime_us=time.time_ns() // 1000)


def folder_metadata(file_metadata: dict[str, str]) -> dict[str, str]:
    """The same, with the type of a folder where the mode has none."""
    mode = file_metadata.get("mode")
    if mode is not None and not stat.S_ISDIR(int(mode)):
        file_metadata["mode"] = str(stat.S_IFDIR | stat.S_IMODE(int(mode)))
    return file_metadata
