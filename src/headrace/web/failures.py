"""What went wrong, as a page and as JSON: one HTTP status for each class of errors."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from starlette.exceptions import HTTPException

from headrace.base import errors

_log = logging.getLogger("headrace.web")
_STATUS: Final = (
    (errors.SettingError, 503),
    (errors.CorruptError, 502),
    (errors.InputError, 400),
    (errors.NotFoundError, 404),
    (errors.DeniedError, 403),
    (errors.ArchivedError, 409),
    (errors.ChangedError, 409),
    (errors.TryAgainError, 503),
    (errors.NoRoomError, 507),
)


@dataclass(frozen=True, slots=True)
class Failure:
    """`status`: of HTTP; `code`: of the error, which never changes; `path`: what it is about."""

    status: int
    code: str
    message: str
    hint: str | None = None
    path: str | None = None


def failure_of(error: Exception) -> Failure:
    """Of any exception; of one that is not ours no more than that is told, and the rest is logged."""
    if isinstance(error, errors.HeadraceError):
        status = next((number for kind, number in _STATUS if isinstance(error, kind)), 500)
        return Failure(status, error.code, error.reason, error.hint, error.path)
    if isinstance(error, HTTPException):
        hint = "the pages are /runs, /data, /files and /node" if error.status_code == 404 else None
        return Failure(error.status_code, "http", error.detail, hint)
    _log.error("a page failed", exc_info=error)
    return Failure(500, "internal", "this page failed", "what `headrace web` prints says more")
