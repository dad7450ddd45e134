"""What a client is told that did not get what it wanted: S3's codes and words, as XML.

Source: Amazon S3 API Reference, "Error responses".
"""

from __future__ import annotations

import errno
import logging

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
    TryAgainError,
    UnreachableError,
    UnsupportedError,
)  # fmt: skip
from headrace.gateway.xml import element
from headrace.http_server import Response

_log = logging.getLogger("headrace.gateway")
LATER = (("Retry-After", "1"),)
"""Of an answer to what may succeed in a second."""
_STATUS = {
    "AccessDenied": 403, "AuthorizationHeaderMalformed": 400, "BadDigest": 400, "BucketAlreadyExists": 409,
    "EntityTooLarge": 400, "EntityTooSmall": 400, "IncompleteBody": 400, "InternalError": 500,
    "InvalidAccessKeyId": 403, "InvalidArgument": 400, "InvalidBucketName": 400, "InvalidDigest": 400,
    "InvalidObjectState": 403, "InvalidPart": 400, "InvalidPartNumber": 416, "InvalidPartOrder": 400,
    "InvalidRange": 416, "InvalidRequest": 400, "InvalidURI": 400, "KeyTooLongError": 400, "MalformedXML": 400,
    "MethodNotAllowed": 405, "MissingContentLength": 411, "NoSuchBucket": 404, "NoSuchKey": 404, "NoSuchUpload": 404,
    "NotImplemented": 501, "PreconditionFailed": 412, "RequestTimeTooSkewed": 403, "ServiceUnavailable": 503,
    "SignatureDoesNotMatch": 403, "SlowDown": 503, "XAmzContentSHA256Mismatch": 400, "NotModified": 304,
}  # fmt: skip


class S3Failure(Exception):  # noqa: N818
    """An answer that is an error. `headers`: further ones."""

    def __init__(self, code: str, message: str, *, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.headers = headers

    @property
    def status(self) -> int:
        """Of the answer."""
        return _STATUS[self.code]


def denied(why: str = "Access Denied") -> S3Failure:
    """The key may not do that."""
    return S3Failure("AccessDenied", why)


def no_such_key() -> S3Failure:
    """As S3 words it."""
    return S3Failure("NoSuchKey", "The specified key does not exist.")


def no_room(error: OSError) -> S3Failure:
    """What is on its way finds no place on this machine."""
    return S3Failure("SlowDown", f"The gateway's disk: {error.strerror}.", headers=LATER)


def translated(error: BaseException) -> S3Failure:
    """An error of a store or of ours, as S3 would put it."""
    if isinstance(error, S3Failure):
        return error
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return no_room(error)
    if not isinstance(error, HeadraceError):
        _log.exception("a request failed; this is a defect in headrace", exc_info=error)
        return S3Failure("InternalError", "We encountered an internal error. Please try again.")
    for kind, code in _CODES:
        if isinstance(error, kind):
            wait = LATER if _STATUS[code] == 503 else ()
            return S3Failure(code, _WORDS.get(code) or f"{error.reason}.", headers=wait)
    return S3Failure("InternalError", f"{error.reason}.")


_CODES: tuple[tuple[type[HeadraceError], str], ...] = (
    (NotFoundError, "NoSuchKey"),
    (ReadOnlyError, "AccessDenied"),
    (ArchivedError, "InvalidObjectState"),
    (AlreadyExistsError, "PreconditionFailed"),
    (ChangedError, "PreconditionFailed"),
    (NameTooLongError, "KeyTooLongError"),
    (NameRefusedError, "InvalidURI"),
    (UnsupportedError, "NotImplemented"),
    (CorruptError, "InternalError"),
    (InputError, "InvalidArgument"),
    (UnreachableError, "ServiceUnavailable"),
    (DeniedError, "AccessDenied"),
    (NoRoomError, "SlowDown"),
    (TryAgainError, "ServiceUnavailable"),
)
_WORDS = {
    "NoSuchKey": "The specified key does not exist.",
    "PreconditionFailed": "At least one of the pre-conditions you specified did not hold",
    "KeyTooLongError": "Your key is too long",
    "ServiceUnavailable": "The store cannot be reached just now. Please retry your request.",
    "SlowDown": "Please reduce your request rate.",
}


def answer(failure: S3Failure, resource: str, request_id: str) -> Response:
    """The XML of it. `resource`: bucket and key."""
    headers = [("x-amz-request-id", request_id), *failure.headers]
    if failure.status == 304:
        return Response(304, headers)
    body = element(
        "Error", element("Code", failure.code), element("Message", failure.message), element("Resource", resource),
        element("RequestId", request_id),
    )  # fmt: skip
    return Response(failure.status, [("Content-Type", "application/xml"), *headers], _PROLOGUE + body.encode())


_PROLOGUE = b'<?xml version="1.0" encoding="UTF-8"?>\n'
