"""The error tree, grouped by what a handler would do about it.

Every error carries a stable ``code`` (append-only: codes are never renamed or reused), the path or URL concerned,
and a hint that says what to do next. ``exit_code`` is what the command line returns for the class.
"""

from __future__ import annotations

from typing import ClassVar, Self


class HeadraceError(Exception):
    """Base of everything headrace raises on purpose.

    Args:
        reason: what went wrong, one sentence without the path.
        path: the path or URL concerned; never holds credentials.
        hint: what the user can do about it.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(self, reason: str, *, path: str | None = None, hint: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path
        self.hint = hint

    def at(self, path: str) -> Self:
        """The same error with `path` filled in, if it had none. Returns self."""
        if self.path is None:
            self.path = path
        return self

    def __str__(self) -> str:
        text = f"{self.path}: {self.reason}" if self.path else self.reason
        return f"{text} ({self.hint})" if self.hint else text

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.reason, self.path, self.hint))


def _rebuild(kind: type[HeadraceError], reason: str, path: str | None, hint: str | None) -> HeadraceError:
    return kind(reason, path=path, hint=hint)


class InputError(HeadraceError):
    """The request itself is wrong: fix the argument, the setting or the file."""

    code = "input"
    exit_code = 2


class SettingError(InputError):
    """A setting, a TOML key or an environment variable is wrong."""

    code = "setting"


class UnsupportedError(InputError):
    """This store, or this build, cannot do what was asked."""

    code = "unsupported"


class NameRefusedError(UnsupportedError):
    """A key that this store cannot hold, or cannot keep apart from another."""

    code = "name-refused"


class NameTooLongError(NameRefusedError):
    """A key longer than this store's keys may be."""

    code = "name-too-long"


class CorruptError(InputError):
    """Bytes that should follow a format, or match a checksum, do not."""

    code = "corrupt"


class BadSampleError(InputError):
    """A sample could not be decoded, and the budget for such samples is spent."""

    code = "bad-sample"


class NotFoundError(HeadraceError):
    """The object, bucket, path or name does not exist."""

    code = "not-found"
    exit_code = 3


class DeniedError(HeadraceError):
    """Not allowed: permissions."""

    code = "denied"
    exit_code = 4


class CredentialsError(DeniedError):
    """No credentials, wrong ones, or expired ones."""

    code = "credentials"


class ReadOnlyError(DeniedError):
    """A write under a read-only attachment, refused before any request."""

    code = "read-only"


class ArchivedError(HeadraceError):
    """The object is in an archive, such as S3 Glacier's, and cannot be read before it is restored."""

    code = "archived"
    exit_code = 4


class ChangedError(HeadraceError):
    """What was expected is no longer so: an ETag moved, or a conditional write lost."""

    code = "changed"
    exit_code = 5


class AlreadyExistsError(ChangedError):
    """A create-only write met an existing object."""

    code = "already-exists"


class ConditionError(ChangedError):
    """A condition that the caller set does not hold, so nothing was done."""

    code = "condition"


class TryAgainError(HeadraceError):
    """The same request may succeed later: the store or the way to it failed."""

    code = "try-again"
    exit_code = 6


class UnreachableError(TryAgainError):
    """No connection: refused, reset, unknown host, TLS failure."""

    code = "unreachable"


class DeadlineError(TryAgainError):
    """The deadline passed before an answer."""

    code = "deadline"


class SlowDownError(TryAgainError):
    """The store asks for fewer requests (503 SlowDown, 429)."""

    code = "slow-down"


class NoRoomError(HeadraceError):
    """Out of disk, memory budget or quota."""

    code = "no-room"
    exit_code = 7


class InternalError(HeadraceError):
    """A defect in headrace."""

    code = "internal"
    exit_code = 70
