"""Attributes and folder markers in the bucket: mode, owner and times go into the metadata of objects."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.base.errors import ChangedError, NameTooLongError, NotFoundError, UnsupportedError
from headrace.mount.write_back.object_metadata import NAMES, Attributes, from_metadata
from headrace.mount.write_back.publish_file import folder_metadata
from headrace.store.protocol import Described, ObjectInfo

if TYPE_CHECKING:
    from headrace.mount.write_back.recent_objects import RecentObjects
    from headrace.namespace import Location


class ObjectAttributes:
    """Writes attributes and markers. Any thread. Raises DeniedError, TryAgainError as the store does."""

    def __init__(self, recent: RecentObjects) -> None:
        self._recent = recent
        self._no_markers: set[str] = set()

    def store(self, place: Location, attrs: Attributes) -> None:
        """Change the attributes of an object that are not None. Raises NotFoundError, ChangedError too."""
        known = self._recent.take(place.path)
        for left in (2, 1, 0):
            try:
                known = known or place.store.describe(place.key)
                metadata = _changed(known, attrs, stat.S_IFREG)
                if metadata != known.metadata:
                    place.store.redescribe(known, metadata)
            except (ChangedError, NotFoundError):  # perhaps another writer's by now
                if not left:
                    raise
                known = None
            else:  # the ETag of what is copied onto itself mostly stays
                self._recent.keep(place.path, known._replace(metadata=metadata))
                return

    def store_folder(self, place: Location, attrs: Attributes) -> None:
        """As `store`, of a folder: its marker is written again. A store that keeps no markers forgets them."""
        store, key = place.store, place.key + "/"
        known = self._recent.take(place.path)
        try:
            known = known or store.describe(key)
        except (NotFoundError, UnsupportedError):
            known = Described(ObjectInfo(key, 0), {})
        metadata = folder_metadata(_changed(known, attrs, stat.S_IFDIR))
        with suppress(UnsupportedError):
            if metadata != known.metadata:
                store.put(key, b"", metadata=metadata)
            self._recent.keep(place.path, known._replace(metadata=metadata))

    def mark_folder(self, place: Location, attrs: Attributes) -> bool:
        """Write a folder's marker. False: the store keeps none."""
        store = place.store
        if store.local_root is not None:
            os.makedirs(os.path.join(store.local_root, place.key), exist_ok=True)
            return True
        if store.identity in self._no_markers:
            return False
        metadata = attrs.metadata(stat.S_IFDIR) if store.capabilities.metadata is not False else None
        try:
            info = store.put(f"{place.key}/", b"", metadata=metadata)
            if metadata is not None:
                self._recent.keep(place.path, Described(info, metadata))
        except NameTooLongError:  # by the slash
            raise
        except UnsupportedError:
            self._no_markers.add(store.identity)
            return False
        return True

    def unmark_folder(self, place: Location) -> None:
        """Remove a folder's marker, where there may be one."""
        store = place.store
        if store.local_root is not None:
            with suppress(FileNotFoundError):
                os.rmdir(os.path.join(store.local_root, place.key))
        elif store.identity not in self._no_markers:
            with suppress(UnsupportedError):
                store.delete([f"{place.key}/"])


def _changed(known: Described, attrs: Attributes, kind: int) -> dict[str, str]:
    """An object's metadata with other attributes in it."""
    others = {name: value for name, value in known.metadata.items() if name not in NAMES}
    return others | attrs.over(from_metadata(known.metadata)).metadata(kind)
