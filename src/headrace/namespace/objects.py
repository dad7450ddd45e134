"""Single objects: what is known of them, reading, publishing, copying, deleting; no paths but the places given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.base.errors import ChangedError, InputError, NotFoundError
from headrace.base.progress import SILENT, Progress
from headrace.namespace import paths
from headrace.namespace.location import Place
from headrace.namespace.reader import File, Reader
from headrace.namespace.stores import Opened, Stores
from headrace.namespace.transfer import Transfers
from headrace.store.protocol import Buffer, ObjectInfo

if TYPE_CHECKING:
    from headrace.fetch import Fetcher, Read




class Objects:
    """Operations on objects of the opened stores, through one fetcher. Any thread."""

    def __init__(self, stores: Stores, fetcher: Callable[[], Fetcher]) -> None:
        self._stores = stores
        self._fetcher = fetcher
        self._transfers = Transfers(fetcher)

    def info(self, place: Place, *, refresh: bool = False) -> ObjectInfo:
        """Size and version: as seen lately, else asked for. Raises NotFoundError."""
        known = None if refresh else place.open(self._stores).metadata.info(place.key)
        return known[0] if known is not None and known[1] else self.head(place)

    def head(self, place: Place) -> ObjectInfo:
        """Size and version now; remembered. Raises NotFoundError."""
        opened = place.open(self._stores)
        if place.key == "":
            raise InputError("is the root of a store, not an object", path=place.path, hint="name an object in it")
        try:
            info = self._fetcher().head(opened.store, place.key)
        except NotFoundError as error:
            opened.metadata.forget(place.key)
            raise NotFoundError(error.reason, path=place.path, hint=error.hint) from None
        opened.metadata.keep(info)
        return info

    def is_folder(self, place: Place, prefix: str) -> bool:
        """Whether a key starts with `prefix`; on a local disk an empty folder is one too. One request."""
        store = place.open(self._stores).store
        if any(store.list(prefix)):
            return True
        parent = prefix[: prefix.rfind("/", 0, -1) + 1]
        return store.local_root is not None and prefix in store.list_folder(parent).folders

    def read(self, place: Place, start: int, stop: int | None) -> memoryview:
        """Bytes of one version.

        An object never heard of costs one plain GET; one seen lately is read at that version, through the cache; one
        seen long ago is asked for its version first.
        """
        opened = place.open(self._stores)
        known = opened.metadata.info(place.key)
        if known is None:
            return self._read_unknown(place, opened, start, stop)
        info = known[0] if known[1] else self.head(place)
        try:
            return self._read_version(opened, info, start, stop)
        except (ChangedError, NotFoundError):
            # It changed since it was seen, and nothing was handed out yet: the present version, then.
            return self._read_version(opened, self.head(place), start, stop)

    def open(self, place: Place) -> File:
        """A handle on one version. Raises NotFoundError."""
        opened = place.open(self._stores)
        reader = Reader(self._fetcher, opened.store, self.info(place), lambda: self.head(place))
        return File(reader, place.root)

    def put(self, place: Place, data: Buffer, *, if_match: str | None = None, create: bool = False) -> ObjectInfo:
        """Publish a whole object; raises as `Store.put`."""
        try:
            return place.open(self._stores).store.put(place.key, data, if_match=if_match, create=create)
        finally:
            self.forget(place)

    def copy(
        self, source: Place, target: Place, *, listed: ObjectInfo | None = None, progress: Progress = SILENT
    ) -> None:
        """By the store itself where both are in one, else through this process, pinned to one version.

        `listed`: what a listing told of the source; a request for what it is now is saved, if it is that.
        """
        origin, destination = source.open(self._stores), target.open(self._stores)
        if origin.store is not destination.store:
            from headrace.fetch import Read

            def copy(info: ObjectInfo) -> None:
                self.copy_version(Read(origin.store, info.key, info.size, info.version), target, progress=progress)

            if listed is None and (known := origin.metadata.info(source.key)) is not None and known[1]:
                listed = known[0]
            if listed is not None and listed.size >= 0:
                with suppress(ChangedError, NotFoundError):  # it changed since it was seen: the present version, then
                    copy(listed._replace(key=source.key))
                    return
            copy(self.head(source))
            return
        if source.key == target.key:
            raise InputError("source and target are the same object", path=target.path)
        try:
            destination.store.copy(source.key, target.key)
        finally:
            self.forget(target)
        progress.advance(1)

    def copy_version(self, read: Read, target: Place, *, progress: Progress = SILENT) -> None:
        """Through this process: all of just that version, or ChangedError and nothing is written."""
        destination = target.open(self._stores)
        if destination.store.identity == read.store.identity and read.key == target.key:
            raise InputError("source and target are the same object", path=target.path)
        try:
            self._transfers.copy(read, destination.store, target.key, progress=progress)
        finally:
            self.forget(target)

    def delete(self, places: Sequence[Place]) -> None:
        """Delete, one request per store where it can."""
        keys: dict[Opened, list[str]] = {}
        for place in places:
            keys.setdefault(place.open(self._stores), []).append(place.key)
        try:
            for opened, group in keys.items():
                opened.store.delete(group)
        finally:
            for place in places:
                self.forget(place)

    def delete_below(self, place: Place, hidden: Sequence[str]) -> None:
        """Delete the object of this name, if one has it, and every key below the folder of this name, page by page.

        Keys that are one of `hidden`, or below it, lie behind a mount point: they stay.
        """
        store = place.open(self._stores).store
        behind = tuple(key + "/" for key in hidden)
        prefix = paths.as_prefix(place.key)
        folders = {prefix} if prefix else set[str]()
        if place.key and not place.key.endswith("/"):
            store.delete([place.key])
        try:
            for page in store.list(prefix):
                keys = [info.key for info in page if info.key not in hidden and not info.key.startswith(behind)]
                store.delete(keys)
                folders.update(paths.folders_of(keys, prefix))
            if store.url.startswith("s3://"):
                # Some servers (SeaweedFS) keep folders on disk, and list them when empty; elsewhere this does nothing.
                store.delete(sorted(folders, key=len, reverse=True))
        finally:
            self._stores.refresh()

    def remember(self, place: Place, info: ObjectInfo) -> None:
        """An object was written by other means: this is what it is now."""
        self.forget(place)
        place.open(self._stores).metadata.keep(info)

    def forget(self, place: Place) -> None:
        """What was known of an object is no longer so."""
        if place.url is not None:
            self._stores.forget(place.url, place.key)

    def _read_unknown(self, place: Place, opened: Opened, start: int, stop: int | None) -> memoryview:
        from headrace.fetch import PART, Read

        if place.key == "":
            raise InputError("is the root of a store, not an object", path=place.path, hint="name an object in it")
        wire = opened.store.wire()
        # Of an unknown size: what is left comes in parts, many at once.
        first = start + PART if stop is None and wire is not None and wire.ranges else stop
        blob = self._fetcher().get(Read(opened.store, place.key, start=start, stop=first))
        if blob.info.size >= 0:
            opened.metadata.keep(blob.info)
        elif first != stop:  # nobody says how much there is
            return self._fetcher().get(Read(opened.store, place.key, start=start)).data
        if first == stop or blob.info.size <= start + len(blob.data):
            return blob.data
        try:  # the beginning once more: of two reads, one might lie beyond the end of what has become shorter
            return self._read_version(opened, blob.info, start, None)
        except (ChangedError, NotFoundError):  # nothing was handed out yet: the present version, then
            return self._read_version(opened, self.head(place), start, None)

    def _read_version(self, opened: Opened, info: ObjectInfo, start: int, stop: int | None) -> memoryview:
        from headrace.fetch import Read

        if start > info.size:
            raise InputError(f"start {start} is past the end, {info.size}", path=f"{opened.store.url}/{info.key}")
        if start == info.size or start == stop:
            return memoryview(b"")
        return self._fetcher().get(Read(opened.store, info.key, info.size, info.version, start, stop)).data
