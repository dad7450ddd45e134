"""Errors as the protocols have them: statuses of HTTP and codes of gRPC."""

from __future__ import annotations

import logging
from typing import Final

from headrace.base import errors
from headrace.base.errors import HeadraceError

_log = logging.getLogger("headrace.serving")
_STATUS: Final = (
    (errors.CorruptError, 500, "INTERNAL"),
    (errors.SettingError, 503, "UNAVAILABLE"),
    (errors.InputError, 400, "INVALID_ARGUMENT"),
    (errors.NotFoundError, 404, "NOT_FOUND"),
    (errors.DeniedError, 403, "PERMISSION_DENIED"),
    (errors.SlowDownError, 503, "RESOURCE_EXHAUSTED"),
    (errors.DeadlineError, 504, "DEADLINE_EXCEEDED"),
    (errors.TryAgainError, 503, "UNAVAILABLE"),
    (errors.NoRoomError, 503, "RESOURCE_EXHAUSTED"),
    (MemoryError, 503, "RESOURCE_EXHAUSTED"),
)


def status_of(error: Exception) -> tuple[int, str]:
    """The status of HTTP, and the code of gRPC."""
    return next(((http, grpc) for kind, http, grpc in _STATUS if isinstance(error, kind)), (500, "INTERNAL"))


def message_of(error: Exception) -> str:
    """What a client is told; of an error that is not ours no more than that there is one."""
    if isinstance(error, HeadraceError):
        return str(error)
    if isinstance(error, MemoryError):
        return "the server has no memory for this (ask for less at once)"
    _log.error("a request failed", exc_info=error)
    return "the server failed; its log says more"
