"""Files that viewers send, piece by piece: each piece is in the store before the next is taken, so that an upload that
was broken off goes on from there. Nothing of a file is seen before all of it is.
"""

from __future__ import annotations

import secrets
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from headrace.base.errors import (
    AlreadyExistsError,
    ChangedError,
    HeadraceError,
    InputError,
    NotFoundError,
    TryAgainError,
    UnsupportedError,
)
from headrace.base.units import format_bytes
from headrace.namespace import Namespace
from headrace.store.protocol import Assembly

LARGEST_PIECE: Final = 64 << 20
"""Bytes: a piece is in memory here."""
_PIECE: Final = 8 << 20  # bytes of a piece, at least: S3 takes no part of less than 5 MiB
_PIECES: Final = 9000
"""So many parts any store takes of one object."""
_MOST: Final = 16
"""Uploads under way."""
_IDLE_S: Final = 3600.0
"""An upload of which nothing has come for so long makes room for others."""


@dataclass(frozen=True, slots=True)
class What:
    """A file of a viewer's: where it goes, and what tells that it is the same file when it is chosen again.

    `size`: bytes; `stamp`: when it was changed last, in milliseconds since the epoch.
    """

    path: str
    size: int
    stamp: int
    replace: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """How an upload stands. `offset`: the next byte that is wanted; `piece`: how many at once, the last piece is
    shorter, that of an empty file empty. `over`: it is in the store.
    """

    id: str
    offset: int
    piece: int
    over: bool


@dataclass
class _Upload:
    what: What
    piece: int
    id: str = field(default_factory=lambda: secrets.token_urlsafe(9))
    lock: threading.Lock = field(default_factory=threading.Lock)
    assembly: Assembly | None = None
    offset: int = 0
    over: bool = False
    touched: float = field(default_factory=time.monotonic)

    def standing(self) -> Standing:
        return Standing(self.id, self.offset, self.piece, self.over)


class Uploads:
    """Any thread. Remembered in this process alone: what is under way when it ends is thrown away."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._lock = threading.Lock()
        self._all: dict[str, _Upload] = {}

    def begin(self, what: What) -> Standing:
        """Begin, or go on with what was broken off.

        Raises:
            AlreadyExistsError: there is a file, and it is not to be replaced. TryAgainError: too many are under way.
            InputError: it is too large for this way. ReadOnlyError, UnsupportedError, any store error.
        """
        known = self._known(what)
        if known is not None:
            return known.standing()
        piece = _piece(what)
        if not what.replace and self._exists(what.path):
            raise AlreadyExistsError("is there already", path=what.path, hint="say that it is to be replaced")
        upload = _Upload(what, piece)
        self._make_room()
        upload.assembly = self._assembly(what)
        with self._lock:
            self._all[upload.id] = upload
        return upload.standing()

    def take(self, name: str, offset: int, data: bytes) -> Standing:
        """The next piece; with the last one the file is there.

        Raises:
            NotFoundError: nothing is known of this upload. ChangedError: another byte is wanted next.
            InputError: the piece is longer or shorter than it should be. AlreadyExistsError, any store error.
        """
        with self._lock:
            upload = self._all.get(name)
        if upload is None:
            raise NotFoundError("nothing is known of this upload", path=name, hint="choose the file again")
        with upload.lock:
            if upload.over:
                return upload.standing()
            if offset != upload.offset:
                text = f"byte {upload.offset:,} is wanted, not {offset:,}"
                raise ChangedError(text, path=upload.what.path, hint="ask where it stands")
            wanted = min(upload.piece, upload.what.size - offset)
            if len(data) != wanted:
                raise InputError(f"{len(data):,} bytes came, {wanted:,} were wanted", path=upload.what.path)
            try:
                self._add(upload, data)
            except NotFoundError:  # somebody has thrown its parts away
                self.drop(name)
                raise
            if upload.offset == upload.what.size:
                self._end(upload)
            return upload.standing()

    def drop(self, name: str) -> None:
        """Throw away what came of it. Idempotent."""
        with self._lock:
            upload = self._all.pop(name, None)
        if upload is not None and upload.assembly is not None:
            upload.assembly.abort()

    def close(self) -> None:
        """Throw all of them away."""
        for name in list(self._all):
            self.drop(name)

    def _add(self, upload: _Upload, data: bytes) -> None:
        """The caller has its lock."""
        if data and upload.assembly is not None:
            upload.assembly.part(upload.offset // upload.piece + 1, upload.offset, data)
        upload.offset += len(data)
        upload.touched = time.monotonic()

    def _end(self, upload: _Upload) -> None:
        """All of it is there: let it be seen. That is tried once."""
        what = upload.what
        try:
            if not what.replace and self._exists(what.path):  # for stores that take no condition
                raise AlreadyExistsError("is there by now", path=what.path, hint="say that it is to be replaced")
            if upload.assembly is None:
                self._namespace.write(what.path, b"")
            else:
                self._namespace.remember(what.path, upload.assembly.complete())
        except HeadraceError:
            self.drop(upload.id)
            raise
        upload.over = True

    def _assembly(self, what: What) -> Assembly | None:
        """None: of nothing there are no parts."""
        if not what.size:
            with suppress(NotFoundError):  # raises what forbids to write there
                self._namespace.assemble(what.path).abort()
            return None
        if not what.replace:
            with suppress(UnsupportedError):
                return self._namespace.assemble(what.path, create=True)
        return self._namespace.assemble(what.path)

    def _known(self, what: What) -> _Upload | None:
        with self._lock:
            found = next((one for one in self._all.values() if one.what == what), None)
        if found is not None and found.over and not self._exists(what.path):  # and deleted since
            self.drop(found.id)
            return None
        return found

    def _exists(self, path: str) -> bool:
        try:
            return self._namespace.stat(path, refresh=True).is_file
        except NotFoundError:
            return False

    def _make_room(self) -> None:
        """Raises TryAgainError."""
        now = time.monotonic()
        with self._lock:
            idle = [one.id for one in self._all.values() if one.over or now - one.touched > _IDLE_S]
            under_way = len(self._all) - len(idle)
        if under_way >= _MOST:
            raise TryAgainError(f"{_MOST} files are being uploaded", hint="wait for one of them")
        for name in idle if len(self._all) >= _MOST else ():
            with suppress(HeadraceError):
                self.drop(name)


def _piece(what: What) -> int:
    """Raises InputError."""
    if what.size < 0:
        raise InputError(f"{what.size} bytes is no size", path=what.path)
    piece = max(_PIECE, (what.size // (_PIECES << 20) + 1) << 20)
    if piece > LARGEST_PIECE:
        most = format_bytes(LARGEST_PIECE * _PIECES)
        raise InputError(f"more than {most} cannot be sent from a page", path=what.path, hint="headrace cp FILE PATH")
    return piece
