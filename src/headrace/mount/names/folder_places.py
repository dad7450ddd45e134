"""Where a folder's keys are: the store and prefix of each folder that something was looked up in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.errors import NotFoundError
from headrace.mount.names.nodes import FolderNode, FolderPlace
from headrace.namespace.paths import as_prefix

if TYPE_CHECKING:
    from headrace.namespace import Namespace


class FolderPlaces:
    """Places folders, once each until a rename moves them (`FolderNode.attached` is None again). Any thread."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def of(self, folder: FolderNode) -> FolderPlace | None:
        """Where the folder's keys are; None: nowhere, it only leads to attachments.

        Raises:
            HeadraceError: its store cannot be opened.
        """
        if folder.attached is None:
            folder.place, attached = self._locate(folder)
            folder.attached = attached
        return folder.place

    def is_attached(self, folder: FolderNode, name: bytes) -> bool:
        """Whether a name in `folder` is, or leads to, an attachment: it can be neither written nor removed."""
        self.of(folder)
        return name.decode("utf-8", "surrogateescape") in (folder.attached or ())

    def _locate(self, folder: FolderNode) -> tuple[FolderPlace | None, frozenset[str]]:
        path = folder.path
        if not path.startswith("/"):
            return self._place_below(folder, path), frozenset()
        below = path.rstrip("/") + "/"
        points = [mount.path for mount in self._namespace.mounts()]
        attached = frozenset(
            point[len(below) :].partition("/")[0] for point in points if point.startswith(below) and point != below
        )
        if path in points or folder.parent is None:
            return self._resolve(path), attached
        return self._place_below(folder, path), attached

    def _place_below(self, folder: FolderNode, path: str) -> FolderPlace | None:
        if folder.parent is None:
            return self._resolve(path)
        above = self.of(folder.parent)
        if above is None:
            return self._resolve(path)
        return above._replace(prefix=f"{above.prefix}{folder.name.decode('utf-8', 'surrogateescape')}/")

    def _resolve(self, path: str) -> FolderPlace | None:
        try:
            location = self._namespace.resolve(path)
        except NotFoundError:
            return None
        return FolderPlace(location.store, as_prefix(location.key), location.read_only)
