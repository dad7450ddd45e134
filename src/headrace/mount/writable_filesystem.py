"""All operations of a mount that can be written, by opcode."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.mount.kernel import wire
from headrace.mount.kernel.session import Handler, Quick
from headrace.mount.kernel.wire import Op
from headrace.mount.name_changes import NameChanges
from headrace.mount.overlay import WriteOverlay
from headrace.mount.write_handles import WriteHandles

if TYPE_CHECKING:
    from headrace.mount.filesystem import FileSystem
    from headrace.mount.mount_parts import MountParts
    from headrace.mount.write_back.staging import Staging


class WritableFileSystem:
    """Adds what writes to a `FileSystem`. Any thread. `deadline`: as of `WriteHandles`."""

    def __init__(self, parts: MountParts, files: FileSystem, staging: Staging, deadline: float) -> None:
        self._files = files
        self.overlay = WriteOverlay(parts, staging)
        self._handles = WriteHandles(parts, files, self.overlay, staging, deadline)
        self._changes = NameChanges(parts, self.overlay, staging, self._handles)

    def handlers(self) -> Mapping[int, Handler]:
        """All operations by opcode."""
        handles, changes = self._handles, self._changes
        return {
            **self._files.handlers(),
            Op.OPEN: handles.open,
            Op.CREATE: handles.create,
            Op.READ: handles.read,
            Op.WRITE: handles.write,
            Op.FLUSH: handles.flush,
            Op.FSYNC: handles.flush,
            Op.RELEASE: handles.release,
            Op.FALLOCATE: handles.fallocate,
            Op.SETATTR: changes.setattr,
            Op.UNLINK: changes.unlink,
            Op.RMDIR: changes.rmdir,
            Op.MKDIR: changes.mkdir,
            Op.MKNOD: changes.mknod,
            Op.SYMLINK: changes.symlink,
            Op.RENAME: lambda request: changes.rename(request, wire.RENAME_IN.size, 0),
            Op.RENAME2: lambda request: changes.rename(
                request, wire.RENAME2_IN.size, wire.RENAME2_IN.unpack_from(request.body)[1]
            ),
            Op.LINK: lambda request: wire.failure(request.unique, errno.EPERM),
        }

    def quick(self) -> Mapping[int, Quick]:
        """What is asked most once everything is warm."""
        return {**self._files.quick(), Op.OPEN: self._handles.reopen}

    @property
    def open_count(self) -> int:
        """Open files and folders."""
        return self._files.open_count + len(self._handles)
