"""An error that a mount's server met at its start, as bytes for the process that waits for the server."""

from __future__ import annotations

import json

from headrace.base import errors
from headrace.base.errors import HeadraceError, InternalError


def error_to_bytes(error: BaseException) -> bytes:
    """An error as one process sends it to another; one that is none of headrace's becomes an InternalError."""
    known = error if isinstance(error, HeadraceError) else InternalError(f"{type(error).__name__}: {error}")
    return json.dumps([type(known).__name__, known.reason, known.path, known.hint]).encode()


def error_from_bytes(message: bytes) -> HeadraceError:
    """The error of `error_to_bytes`; InternalError where the message is none: the process ended before."""
    try:
        name, reason, path, hint = json.loads(message)
        kind = getattr(errors, name)
        return kind(reason, path=path, hint=hint)
    except (ValueError, AttributeError, TypeError):
        return InternalError("the mount's process ended before it answered")
