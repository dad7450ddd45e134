"""What the next server of a mount has to know, should this one die (`headrace mount --keep`, see `holder`).

The record holds what was agreed with the kernel, which node ids folders have, and of which object version a file is
that was opened. The next server learns everything else again: the kernel looks a name up where its id says nothing any
more (ESTALE). Each server counts ids and handles from a number of its own on, so that none means two things.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

from headrace.base.errors import UnsupportedError
from headrace.mount.kernel.session import Agreed
from headrace.mount.names.listing_pages import FILE
from headrace.mount.names.nodes import NamedNode
from headrace.mount.write_back.record_journal import RecordJournal

_SESSION: Final = 0  # no node has this id
_SERVER_SHIFT: Final = 46  # bits of the ids that one server gives
_MOST: Final = 1 << 61 - _SERVER_SHIFT
"""Servers that one mount may have in turn."""


class NodeRecord:
    """The record of one mount, in a file that outlives its servers; removed with the mount. Any thread.

    `first`: node ids and handles of this server are larger. `agreed`: what the first server has agreed on with the
    kernel; None: this is the first. `fresh`: a record that lies at `path` is of another mount.

    Raises:
        OSError, CorruptError: the file cannot be used. UnsupportedError: it has had too many servers.
    """

    def __init__(self, path: str, *, fresh: bool) -> None:
        self._path = path
        if fresh:
            with suppress(FileNotFoundError):
                os.unlink(path)
        self._journal = RecordJournal(path)
        self.earlier = self._journal.live
        """What earlier servers have noted, by node id; `restore_nodes` takes it."""
        session = self.earlier.pop(_SESSION, None)
        self.agreed = Agreed(**session["agreed"]) if session is not None else None
        self._server: int = session["server"] + 1 if session is not None else 0
        if self._server >= _MOST:
            raise UnsupportedError(f"has had {_MOST} servers", path=path, hint="unmount, and mount again")
        self.first = self._server << _SERVER_SHIFT
        self._noted: set[int] = set()

    def begun(self, agreed: Agreed) -> None:
        """This server answers from now on. Raises as `RecordJournal.set`."""
        self._journal.set(_SESSION, {"server": self._server, "agreed": asdict(agreed)})

    def folder(self, number: int, parent: int, name: bytes) -> None:
        """Note a folder that the kernel is about to learn of."""
        self._set(number, {"parent": parent, "name": name.decode("utf-8", "surrogateescape")})

    def file(self, found: NamedNode) -> None:
        """Note a file that is opened."""
        if found.id in self._noted or found.kind != FILE:
            return
        self._set(found.id, {
            "folder": found.folder.path, "name": found.name.decode("utf-8", "surrogateescape"), "size": found.size,
            "etag": found.etag, "mtime_us": found.mtime_us,
        })  # fmt: skip

    def drop(self, number: int) -> None:
        """Note that the kernel has forgotten a node."""
        if number in self._noted:
            self._noted.discard(number)
            with suppress(OSError):
                self._journal.drop(number)

    def restored(self, number: int) -> None:
        """A node of an earlier server is in the table again: `drop` will be called for it."""
        self._noted.add(number)

    def close(self) -> None:
        """The mount is over. Idempotent."""
        self._journal.close()
        with suppress(OSError):
            os.unlink(self._path)

    def _set(self, number: int, record: Mapping[str, Any]) -> None:
        """Where the disk has no room for it, the next server does not know the node, and nothing else is lost."""
        self._noted.add(number)
        with suppress(OSError):
            self._journal.set(number, record)
