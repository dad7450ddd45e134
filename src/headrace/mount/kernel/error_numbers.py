"""From headrace's errors to what the kernel understands: one table."""

from __future__ import annotations

import errno
from typing import Final

from headrace.base.errors import (
    AlreadyExistsError,
    ArchivedError,
    ChangedError,
    CorruptError,
    DeniedError,
    HeadraceError,
    InputError,
    NameRefusedError,
    NameTooLongError,
    NoRoomError,
    NotFoundError,
    ReadOnlyError,
    UnsupportedError,
)

_TABLE: Final[tuple[tuple[type[HeadraceError], int], ...]] = (
    (NotFoundError, errno.ENOENT),
    (ReadOnlyError, errno.EROFS),
    (DeniedError, errno.EACCES),
    (ArchivedError, errno.EACCES),
    (AlreadyExistsError, errno.EEXIST),
    (ChangedError, errno.ESTALE),
    (NoRoomError, errno.ENOSPC),
    (NameTooLongError, errno.ENAMETOOLONG),
    (NameRefusedError, errno.EINVAL),
    (UnsupportedError, errno.ENOTSUP),
    (CorruptError, errno.EIO),
    (InputError, errno.EINVAL),
    (HeadraceError, errno.EIO),
)
"""The first that fits counts. What may succeed later, and defects, are EIO: the way to the store failed."""


def errno_of(error: BaseException) -> int:
    """The errno for an exception: an `OSError` keeps its own."""
    if isinstance(error, InterruptedError):
        return errno.EINTR
    if isinstance(error, OSError):
        return error.errno or errno.EIO
    return next((code for kind, code in _TABLE if isinstance(error, kind)), errno.EIO)
