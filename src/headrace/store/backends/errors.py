"""Foreign failures become ours: HTTP answers, files, obstore, botocore, fsspec; sockets in `http1/failures.py`."""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from html import unescape
from typing import Final

from headrace.base.errors import (
    AlreadyExistsError,
    ArchivedError,
    ChangedError,
    CredentialsError,
    DeadlineError,
    DeniedError,
    HeadraceError,
    InputError,
    InternalError,
    NameRefusedError,
    NameTooLongError,
    NoRoomError,
    NotFoundError,
    SettingError,
    SlowDownError,
    TryAgainError,
    UnreachableError,
    UnsupportedError,
)
from headrace.store.http1 import PASSWORD_HINT

_CODE = re.compile(rb"<Code>([^<]{1,200})</Code>")
_MESSAGE = re.compile(rb"<Message>([^<]{1,1000})</Message>")
_REGION = re.compile(rb"<Region>([^<]{1,60})</Region>")

_RESTORE = "restore it first; a loader leaves it out with on_error=Skip(…)"
_KEYS_HINT = "check the access key and secret; see `headrace doctor`"
_CODES: Final[dict[str, tuple[type[HeadraceError], str, str | None]]] = {
    "NoSuchKey": (NotFoundError, "no such object", None),
    "NoSuchUpload": (NotFoundError, "no such upload", None),
    "NoSuchBucket": (NotFoundError, "no such bucket", "check the bucket's name and the endpoint"),
    "AccessDenied": (
        DeniedError,
        "access denied",
        "check the credentials' policy; a public bucket needs anonymous = true",
    ),
    "InvalidAccessKeyId": (CredentialsError, "unknown access key", _KEYS_HINT),
    "SignatureDoesNotMatch": (CredentialsError, "the secret key does not match the access key", _KEYS_HINT),
    "ExpiredToken": (CredentialsError, "the credentials have expired", "renew them, for example `aws sso login`"),
    "ExpiredTokenException": (
        CredentialsError,
        "the credentials have expired",
        "renew them, for example `aws sso login`",
    ),
    "TokenRefreshRequired": (CredentialsError, "the credentials have expired", "renew them"),
    "InvalidToken": (CredentialsError, "the session token is not valid", "renew the credentials"),
    "RequestTimeTooSkewed": (CredentialsError, "this machine's clock differs from the store's", "set the clock (NTP)"),
    "PreconditionFailed": (ChangedError, "the object has changed", None),
    "ConditionalRequestConflict": (TryAgainError, "another writer is at it", None),
    "OperationAborted": (TryAgainError, "another operation is under way", None),
    "SlowDown": (SlowDownError, "the store asks for fewer requests", None),
    "RequestLimitExceeded": (SlowDownError, "the store asks for fewer requests", None),
    "RequestTimeout": (TryAgainError, "the store gave up waiting for the request", None),
    "IncompleteBody": (TryAgainError, "the upload arrived incomplete", None),
    "BadDigest": (TryAgainError, "the upload arrived damaged", None),
    "XAmzContentSHA256Mismatch": (TryAgainError, "the upload arrived damaged", None),
    "NotImplemented": (UnsupportedError, "this store does not know the request", None),
    "InvalidRange": (InputError, "the range starts past the end", None),
    "KeyTooLongError": (NameTooLongError, "the key is too long", "S3 keys hold at most 1,024 bytes"),
    "EntityTooLarge": (InputError, "the object is too large for one request", None),
    "QuotaExceeded": (NoRoomError, "the quota is spent", None),
    "InvalidBucketName": (InputError, "not a bucket's name", None),
    "BlobArchived": (ArchivedError, "the object is archived", _RESTORE),
    "BlobBeingRehydrated": (ArchivedError, "the object is being restored from an archive", _RESTORE),
    "InvalidObjectState": (ArchivedError, "the object is archived", _RESTORE),
}
_STATUSES: Final[dict[int, tuple[type[HeadraceError], str, str | None]]] = {
    401: (CredentialsError, "not signed in", _KEYS_HINT),
    403: _CODES["AccessDenied"],
    404: (NotFoundError, "no such object", None),
    405: (UnsupportedError, "this store does not allow the request", None),
    407: (CredentialsError, "the proxy wants a name and a password", PASSWORD_HINT),
    408: _CODES["RequestTimeout"],
    409: (ChangedError, "another writer was first", None),
    410: (NotFoundError, "no such object", None),
    412: _CODES["PreconditionFailed"],
    413: _CODES["EntityTooLarge"],
    416: _CODES["InvalidRange"],
    429: _CODES["SlowDown"],
    501: _CODES["NotImplemented"],
    503: _CODES["SlowDown"],
    507: (NoRoomError, "the store is full", None),
}


def from_http(path: str, status: int, body: bytes | memoryview = b"", *, region: str | None = None) -> HeadraceError:
    """The error for an HTTP answer that is no success.

    Args:
        path: the URL concerned.
        status: the HTTP status.
        body: the answer's body, S3's XML if it is one; its first 64 KiB are enough.
        region: the bucket's region where the answer names one (``x-amz-bucket-region``).
    """
    body = bytes(body[:65536])
    code, message = _text(_CODE, body), _text(_MESSAGE, body)
    region = region or _text(_REGION, body)
    if status in (301, 307, 308) or code in (
        "AuthorizationHeaderMalformed",
        "PermanentRedirect",
        "IllegalLocationConstraintException",
    ):
        hint = f"set region = {region!r}" if region else "check the region and the endpoint"
        return InputError(f"the store sends us elsewhere ({code or status})", path=path, hint=hint)
    kind, reason, hint = _CODES.get(code) or _STATUSES.get(status) or _by_class(status)
    if code not in _CODES and (code or message):
        reason = f"{reason}: {code} {message}".rstrip()
    return kind(reason if code in _CODES or status == 404 else f"{reason} (HTTP {status})", path=path, hint=hint)


def _by_class(status: int) -> tuple[type[HeadraceError], str, str | None]:
    if status >= 500:
        return TryAgainError, "the store failed", None
    if status >= 400:
        return InputError, "the store refused the request", None
    return TryAgainError, "an answer that makes no sense", "is this endpoint really an object store?"


def _text(pattern: re.Pattern[bytes], body: bytes) -> str:
    match = pattern.search(body)
    return unescape(match[1].decode(errors="replace")) if match else ""


_ERRNOS: Final[dict[int, tuple[type[HeadraceError], str, str | None]]] = {
    errno.ENOENT: (NotFoundError, "no such file", None),
    errno.ENOTDIR: (NotFoundError, "no such file", None),
    errno.EISDIR: (NotFoundError, "is a folder, not an object", None),
    errno.EEXIST: (AlreadyExistsError, "already exists", None),
    errno.EACCES: (DeniedError, "not allowed", "check the file's permissions"),
    errno.EPERM: (DeniedError, "not allowed", "check the file's permissions"),
    errno.EROFS: (DeniedError, "the file system is read-only", None),
    errno.ENOSPC: (NoRoomError, "the disk is full", None),
    errno.EDQUOT: (NoRoomError, "the disk quota is spent", None),
    errno.EFBIG: (NoRoomError, "larger than this file system allows", None),
    errno.EMFILE: (NoRoomError, "too many open files", "raise `ulimit -n`"),
    errno.ENFILE: (NoRoomError, "too many open files on this machine", None),
    errno.ENAMETOOLONG: (NameTooLongError, "a name is too long for this file system", None),
    errno.EILSEQ: (NameRefusedError, "a name that this file system cannot hold", None),
    errno.EINVAL: (UnsupportedError, "a name or a request that this file system refuses", None),
    errno.ELOOP: (InputError, "too many symbolic links", None),
}


def from_os(path: str, error: OSError) -> HeadraceError:
    """The error for a file operation that failed."""
    if isinstance(error, TimeoutError):
        return DeadlineError("no answer in time", path=path)
    kind, reason, hint = _ERRNOS.get(error.errno or 0) or (
        TryAgainError,
        f"the disk failed: {error.strerror or error}",
        None,
    )
    return kind(reason, path=path, hint=hint)


@dataclass(frozen=True, slots=True)
class _Foreign:
    """One rule: the exception's class name, and what it means."""

    kind: type[HeadraceError]
    reason: str
    hint: str | None = None


_OBSTORE: Final[dict[str, _Foreign]] = {
    "FileNotFoundError": _Foreign(NotFoundError, "no such object"),
    "NotFoundError": _Foreign(NotFoundError, "no such object"),
    "AlreadyExistsError": _Foreign(AlreadyExistsError, "already exists"),
    "PreconditionError": _Foreign(ChangedError, "the object has changed"),
    "NotModifiedError": _Foreign(ChangedError, "the object has not changed"),
    "PermissionDeniedError": _Foreign(DeniedError, "access denied", "check the credentials' permissions"),
    "UnauthenticatedError": _Foreign(CredentialsError, "not signed in", "check the credentials; see `headrace doctor`"),
    "NotSupportedError": _Foreign(UnsupportedError, "this store cannot do that"),
    "NotImplementedError": _Foreign(UnsupportedError, "this store cannot do that"),
    "InvalidPathError": _Foreign(UnsupportedError, "this kind of store cannot express the key"),
    "UnknownConfigurationKeyError": _Foreign(SettingError, "unknown option"),
}


def from_obstore(path: str, error: Exception) -> HeadraceError:
    """The error for an obstore exception. Its text is a Rust debug print: only the first line is kept."""
    rule = _OBSTORE.get(type(error).__name__)
    text = str(error).partition("\n")[0]
    if rule is not None:
        return rule.kind(rule.reason, path=path, hint=rule.hint)
    if isinstance(error, ValueError):
        kind = UnsupportedError if "path" in text.lower() else InputError
        return kind(f"this kind of store cannot express it: {text[:200]}", path=path)
    return _by_words(path, str(error))


def _by_words(path: str, text: str) -> HeadraceError:
    """Obstore's GenericError holds the cause only as text."""
    text = text.partition("Debug source:")[0]  # what follows repeats it among settings such as "retry_timeout"
    status = re.search(r"status code: ([0-9]{3})", text)
    if status is not None:
        return from_http(path, int(status[1]), text.encode())
    low = text.lower()
    if "certificate" in low:
        hint = "set ca_file to the authority's certificate"
        return UnreachableError("the store's certificate is not trusted", path=path, hint=hint)
    if "timed out" in low or "timeout" in low:
        return DeadlineError("no answer in time", path=path)
    if re.search(r"connect|connection|dns|resolve|tcp", low):
        return UnreachableError("the store cannot be reached", path=path, hint="check the endpoint")
    if re.search(r"credential|unauthorized|authentication|oauth|token", low):
        return CredentialsError("no usable credentials", path=path, hint="check the credentials; see `headrace doctor`")
    return TryAgainError(f"the store failed: {text.partition(chr(10))[0][:200]}", path=path)


_BOTOCORE: Final[dict[str, _Foreign]] = {
    "ProfileNotFound": _Foreign(CredentialsError, "no such profile", "see `aws configure list-profiles`"),
    "NoCredentialsError": _Foreign(CredentialsError, "no credentials"),
    "PartialCredentialsError": _Foreign(CredentialsError, "incomplete credentials"),
    "TokenRetrievalError": _Foreign(CredentialsError, "the single sign-on token is gone", "run `aws sso login`"),
    "UnauthorizedSSOTokenError": _Foreign(CredentialsError, "the single sign-on token is gone", "run `aws sso login`"),
    "SSOTokenLoadError": _Foreign(CredentialsError, "the single sign-on token is gone", "run `aws sso login`"),
    "CredentialRetrievalError": _Foreign(CredentialsError, "the credentials' source failed"),
    "ConfigParseError": _Foreign(SettingError, "the AWS configuration file cannot be read"),
    "EndpointConnectionError": _Foreign(UnreachableError, "the token service cannot be reached"),
    "ConnectTimeoutError": _Foreign(DeadlineError, "the token service does not answer"),
    "ReadTimeoutError": _Foreign(DeadlineError, "the token service does not answer"),
}


def from_botocore(path: str, error: Exception) -> HeadraceError:
    """The error for an exception of botocore's credential chain."""
    rule = _BOTOCORE.get(type(error).__name__)
    if rule is not None:
        return rule.kind(rule.reason, path=path, hint=rule.hint)
    return CredentialsError(f"no usable credentials: {type(error).__name__}", path=path, hint="see `headrace doctor`")


_FSSPEC: Final[tuple[tuple[tuple[type[Exception], ...], _Foreign], ...]] = (
    ((FileNotFoundError, IsADirectoryError), _Foreign(NotFoundError, "no such object")),
    ((FileExistsError,), _Foreign(AlreadyExistsError, "already exists")),
    ((TimeoutError,), _Foreign(DeadlineError, "no answer in time")),
    ((NotImplementedError,), _Foreign(UnsupportedError, "this file system cannot do that")),
    ((PermissionError,), _Foreign(DeniedError, "access denied", "check the credentials and the permissions")),
)
_FSSPEC_WORDS: Final = (
    ("not a directory", _Foreign(UnsupportedError, "a name cannot be a file and a folder at once", "use another key")),
    (
        "libjvm|libhdfs|classpath",
        _Foreign(UnsupportedError, "Hadoop's native library is missing", "install Hadoop's client, or use webhdfs://"),
    ),
    ("auth|permissiondenied|hostkey", _Foreign(CredentialsError, "not signed in", "check user, key and known hosts")),
    ("nosuchfile", _Foreign(NotFoundError, "no such object")),
    ("fstimeout", _Foreign(DeadlineError, "no answer in time")),
    # What OpenSSH answers to ENAMETOOLONG and EINVAL.
    (
        "sftpbadmessage",
        _Foreign(NameRefusedError, "this server refuses the name (bad message)", "use a shorter or plainer key"),
    ),
)
"""Packages behind fsspec have exceptions of their own; told by words in their names or messages."""


def from_fsspec(path: str, error: Exception) -> HeadraceError:
    """The error for an exception out of any fsspec file system."""
    name = type(error).__name__
    if isinstance(error, ImportError):
        return UnsupportedError(f"a package is missing: {error.name or error}", path=path, hint="install it with pip")
    for kinds, rule in _FSSPEC:
        if isinstance(error, kinds):
            return rule.kind(rule.reason, path=path, hint=rule.hint)
    for place, text in enumerate((str(error), name)):
        for words, rule in _FSSPEC_WORDS[:2] if place == 0 else _FSSPEC_WORDS[2:]:
            if re.search(words, text.lower()):
                return rule.kind(rule.reason, path=path, hint=rule.hint)
    if isinstance(error, OSError) and error.errno in _ERRNOS:
        return from_os(path, error)
    if isinstance(error, (OSError, EOFError)) or "Connection" in name or "Disconnect" in name:
        return UnreachableError(f"the connection failed ({name})", path=path)
    if isinstance(error, (TypeError, AttributeError)):
        return InternalError(f"{name}: {error}", path=path)
    return TryAgainError(f"the file system failed ({name}: {str(error)[:200]})", path=path)
