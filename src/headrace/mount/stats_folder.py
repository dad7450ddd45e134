"""The folder ``.headrace/`` of a mount: its names, and the files of statistics in it, which `mount_stats` makes."""

from __future__ import annotations

import itertools
import stat
from typing import TYPE_CHECKING

from headrace.mount import mount_stats
from headrace.mount.kernel import wire
from headrace.mount.kernel.wire import Attr, Fopen
from headrace.mount.mount_stats import FOLDER_NODE

if TYPE_CHECKING:
    from headrace.mount.kernel.kernel_requests import Request
    from headrace.mount.mount_stats import MountStats
    from headrace.mount.names.stat_attributes import StatAttributes

_HANDLE = 0
"""The handle of every opening of the folder; `OpenFolders` counts from 1."""
_TYPE_FOLDER, _TYPE_FILE = stat.S_IFDIR >> 12, stat.S_IFREG >> 12


class StatsFolder:
    """Answers requests for ``.headrace/`` and the files in it. Any thread.

    Args:
        figures: what the files hold.
        attributes: owner, and for how long the kernel may trust what it is shown.
        born_ns: the time that folder and files show, nanoseconds since the epoch.
        first_handle: handles are larger.
        opens: whether the kernel sends opens. Else each file has a new node id with each size (`StatsVersions`).
    """

    def __init__(
        self, figures: MountStats, attributes: StatAttributes, born_ns: int, first_handle: int, *, opens: bool
    ) -> None:
        self._stats = figures
        self._attributes = attributes
        self._born_ns = born_ns
        self._opens = opens
        self._contents: dict[int, bytes] = {}
        self._versions = mount_stats.StatsVersions(figures)
        self._numbers = itertools.count(first_handle)

    def is_here(self, parent: int, name: bytes) -> bool:
        """Whether a name in the folder `parent` is ``.headrace`` or, as far as there is one, a name in it."""
        return parent == FOLDER_NODE or (parent == wire.ROOT and name == mount_stats.FOLDER)

    def lookup(self, request: Request, name: bytes) -> bytes:
        """The answer to LOOKUP of a name that `is_here`."""
        node = FOLDER_NODE if request.node == wire.ROOT else mount_stats.IDS.get(name)
        if node is None:
            return wire.absent(request.unique, 1.0)
        if self._opens or node == FOLDER_NODE:
            return wire.entry(request.unique, self._attr(node), self._attributes.ttl, 1.0)
        number, version = self._versions.looked_up(node)
        return wire.entry(request.unique, self._attr(number, version), 0.0, self._attributes.lasting)

    def forget(self, node: int, times: int) -> bool:
        """The kernel forgets a node. False: the node is not of this folder."""
        return self._versions.forget(node, times)

    def getattr(self, request: Request) -> bytes | None:
        """The answer to GETATTR; None: the node is not of this folder."""
        node = request.node
        if node == FOLDER_NODE or node in mount_stats.NODES:
            return wire.attributes(request.unique, self._attr(node), 1.0)
        version = self._versions.get(node)
        if version is None:
            return None
        return wire.attributes(request.unique, self._attr(node, version), self._attributes.lasting)

    def open(self, request: Request) -> bytes | None:
        """The answer to OPEN: the content is made now; None: the node is not of this folder."""
        if request.node not in mount_stats.NODES:
            return None
        number = next(self._numbers)
        self._contents[number] = self._stats.content(request.node)
        return wire.opened(request.unique, number, Fopen.DIRECT_IO | Fopen.NOFLUSH)

    def read(self, request: Request) -> bytes | None:
        """The answer to READ; None: neither handle nor node is of this folder."""
        number, start, count, *_ = wire.READ_IN.unpack_from(request.body)
        version = self._versions.get(request.node)
        content = self._contents.get(number) if version is None else version.content
        return None if content is None else wire.reply(request.unique, content[start : start + count])

    def release(self, number: int) -> None:
        """RELEASE of a handle that may be one of these."""
        self._contents.pop(number, None)

    def open_folder(self, request: Request) -> bytes | None:
        """The answer to OPENDIR; None: the node is another folder's."""
        return wire.opened(request.unique, _HANDLE, Fopen.CACHE_DIR) if request.node == FOLDER_NODE else None

    def list(self, request: Request, *, plus: bool) -> bytes | None:
        """The answer to READDIR and READDIRPLUS; the kernel looks each name up by itself. None: another folder's."""
        number, offset, size, *_ = wire.READ_IN.unpack_from(request.body)
        if number != _HANDLE:
            return None
        names = [(b".", FOLDER_NODE, _TYPE_FOLDER), (b"..", wire.ROOT, _TYPE_FOLDER)]
        names += [(name, node, _TYPE_FILE) for node, name in mount_stats.NODES.items()]
        out = b""
        for position, (name, node, kind) in enumerate(names[offset:], offset + 1):
            item = (wire.no_entry() if plus else b"") + wire.dirent(node, position, kind, name)
            if len(out) + len(item) > size:
                break
            out += item
        return wire.reply(request.unique, out)

    def __len__(self) -> int:
        """Open files."""
        return len(self._contents)

    def _attr(self, node: int, version: mount_stats.StatsVersion | None = None) -> Attr:
        uid, gid = self._attributes.uid, self._attributes.gid
        if node == FOLDER_NODE:
            return Attr(node, 4096, self._born_ns, stat.S_IFDIR | 0o555, 2, uid, gid)
        size, mtime_ns = (0, self._born_ns) if version is None else (len(version.content), version.made_ns)
        return Attr(node, size, mtime_ns, stat.S_IFREG | 0o444, 1, uid, gid)
