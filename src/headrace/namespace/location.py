"""Where a path or URL leads."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.base.errors import InputError, NotFoundError, ReadOnlyError
from headrace.namespace import paths
from headrace.namespace.mounts import Mount, MountTable
from headrace.namespace.stores import Opened, Stores
from headrace.store.protocol import Store, StoreOptions


@dataclass(frozen=True, slots=True)
class Location:
    """A key in a store.

    `path`: as it was asked for. `root`: the path (or URL) of the store's root, so that `root`/`key` is this place.
    `mount`: the attachment it was found through, None for a URL that none holds.
    """

    store: Store
    key: str
    path: str
    read_only: bool
    mount: Mount | None
    root: str


@dataclass(frozen=True, slots=True)
class Place:
    """A location whose store need not be open yet: what every operation works on.

    `url` is the store's root, None where no store is: a folder that exists only because something is attached below.
    """

    path: str
    root: str
    key: str
    url: str | None
    options: StoreOptions | None
    mount: Mount | None

    @property
    def in_tree(self) -> bool:
        """Found by path, so that mount points below it show; a URL names what the store itself holds."""
        return self.path.startswith("/")

    @property
    def folder(self) -> str:
        """The path of the folder of this name, in the spelling of mount points: at most one trailing ``/`` dropped."""
        return self.path if self.path == "/" else self.path.removesuffix("/")

    def open(self, stores: Stores) -> Opened:
        """The store.

        Raises:
            NotFoundError: nothing is attached here. Else as `Stores.open`.
        """
        if self.url is None:
            raise self.unattached()
        return stores.open(self.url, self.options)

    def unattached(self) -> NotFoundError:
        """The error for a path that no attachment holds."""
        hint = "headrace mounts shows what is attached"
        if os.path.exists(self.path):
            hint = f"what lies on this machine's disk is file://{self.path}; {hint}"
        return NotFoundError("no store is attached here", path=self.path, hint=hint)

    def check_writable(self, *, root: bool = False) -> None:
        """Refuse what must not be written, before any request. `root`: the root of a store will do too.

        Raises:
            ReadOnlyError: under a read-only attachment.
            InputError: a mount point or a store's root, which is no object.
            NotFoundError: no store is attached here.
        """
        if self.mount is not None and self.mount.read_only:
            hint = f"attached read-only at {self.mount.path}: attach it again without read_only to change it"
            raise ReadOnlyError("is read-only", path=self.path, hint=hint)
        if self.url is None:
            raise self.unattached()
        if self.key == "" and not root:
            raise InputError("is the root of a store, not an object", path=self.path, hint="name an object in it")


def find(table: MountTable, configured: Iterable[str], path: paths.PathLike) -> Place:
    """Where a path or URL leads.

    A path: the longest mount it is under. A URL: the longest attached URL that holds it, with that attachment's
    options and its read-only flag; else a store of its own, rooted at the longest of the `configured` URL prefixes
    (``[stores]`` of the settings), else at its bucket or host.

    Raises:
        InputError, UnsupportedError: not a path, not a URL.
    """
    text = paths.check_path(path)
    if not text.startswith("/"):
        mount = table.holding_url(paths.trim_url(text))
        root, key = paths.split_url(text, map(paths.trim_url, configured) if mount is None else [mount.url])
        return Place(text, root, key, root, None if mount is None else mount.parsed, mount)
    mount = table.holding(text)
    if mount is None:
        return Place(text, text, "", None, None, None)
    return Place(text, mount.path, paths.key_below(mount.path, text), mount.url, mount.parsed, mount)
