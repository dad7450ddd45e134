"""What the next server of a mount has to know, should this one die: see `keeper`.

What was agreed with the kernel, which node ids folders have, and of which object version a file is that was opened. All
else is learned anew: the kernel looks a name up again where its id says nothing any more (ESTALE). Each server counts
ids and handles from a number of its own on, so that none means two things.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

from headrace.base.errors import UnsupportedError
from headrace.mount.kernel.session import Agreed
from headrace.mount.names.listing_pages import FILE, FOLDER
from headrace.mount.names.node_table import Folder, Known, Node, Table
from headrace.mount.write_back.journal import Journal
from headrace.store.protocol import ObjectInfo

_SESSION: Final = 0
_SERVER_SHIFT: Final = 46
_MOST: Final = 1 << 61 - _SERVER_SHIFT
"""Servers that one mount may have in turn."""


class Kept:
    """The record of one mount, in a file that outlives its servers; removed with the mount. Any thread.

    `first`: node ids and handles of this server are larger. `agreed`: with the kernel, by the first server; None: this
    is the first.

    Raises:
        OSError, CorruptError: the file cannot be used. UnsupportedError: it has had too many servers.
    """

    def __init__(self, path: str, *, anew: bool) -> None:
        self._path = path
        if anew:
            with suppress(FileNotFoundError):
                os.unlink(path)
        self._journal = Journal(path)
        self._earlier = self._journal.live
        session = self._earlier.pop(_SESSION, None)
        self.agreed = Agreed(**session["agreed"]) if session is not None else None
        self._server: int = session["server"] + 1 if session is not None else 0
        if self._server >= _MOST:
            raise UnsupportedError(f"has had {_MOST} servers", path=path, hint="unmount, and mount again")
        self.first = self._server << _SERVER_SHIFT
        self._noted: set[int] = set()

    def begun(self, agreed: Agreed) -> None:
        """This server answers from now on. Raises as `Journal.set`."""
        self._journal.set(_SESSION, {"server": self._server, "agreed": asdict(agreed)})

    def folder(self, number: int, parent: int, name: bytes) -> None:
        """The kernel is about to be told of a folder."""
        self._set(number, {"parent": parent, "name": name.decode("utf-8", "surrogateescape")})

    def file(self, known: Known) -> None:
        """A file is opened."""
        if known.id in self._noted or known.kind != FILE:
            return
        self._set(known.id, {
            "folder": known.folder.path, "name": known.name.decode("utf-8", "surrogateescape"), "size": known.size,
            "etag": known.etag, "mtime_us": known.mtime_us,
        })  # fmt: skip

    def drop(self, number: int) -> None:
        """The kernel has forgotten a node."""
        if number in self._noted:
            self._noted.discard(number)
            with suppress(OSError):
                self._journal.drop(number)

    def take_up(self, table: Table) -> None:
        """Give the nodes of earlier servers back to a new table; before anything is answered."""
        with table.lock:
            for number in self._earlier:
                self._folder(number, table)
            self._files(table)
        self._earlier = {}

    def close(self) -> None:
        """The mount is over. Idempotent."""
        self._journal.close()
        with suppress(OSError):
            os.unlink(self._path)

    def _set(self, number: int, record: Mapping[str, Any]) -> None:
        """Without room for it the node is only not known to the next server."""
        self._noted.add(number)
        with suppress(OSError):
            self._journal.set(number, record)

    def _folder(self, number: int, table: Table) -> Folder | None:
        """Its ancestors come first. None: not all of them are known."""
        if number in table.folders:
            return table.folders[number]
        record = self._earlier.get(number)
        parent = self._folder(record["parent"], table) if record is not None and "parent" in record else None
        if record is None or parent is None:
            return None
        name = record["name"].encode("utf-8", "surrogateescape")
        node = table.add(parent, name, FOLDER, number)
        node.count = 1  # what the kernel forgets of it is at least that, and all of it
        self._noted.add(number)
        folder = table.folders[number] = Folder(number, parent, name, table.born_ns)
        return folder

    def _files(self, table: Table) -> None:
        """Each folder is one beside the tree, of the path that it had: the tree shows new files under new ids."""
        folders: dict[str, Folder] = {}
        for number, record in self._earlier.items():
            if "folder" not in record:
                continue
            path: str = record["folder"]
            folder = folders.get(path)
            if folder is None:
                folder = folders[path] = Folder(table.number(), None, b"", table.born_ns, path)
            node = Node(number, folder, record["name"].encode("utf-8", "surrogateescape"), FILE)
            node.tells(ObjectInfo("", record["size"], record["etag"], record["mtime_us"]), 0.0)
            node.before, node.count = True, 1
            table.nodes[number] = node
            self._noted.add(number)


