"""The one pointer of a model: which version each alias names. It is only ever written over the version that was read.

    <home>/models/<name>/aliases.json
    {"format_version": 1, "aliases": {"prod": 7}, "previous": {"prod": [5, 6]}, "removing": [], "history": [
        {"alias", "number" (null: taken away), "time", "by", "what" (alias, promote, rollback)}, …]}

`previous`: what an alias named before, the newest last, for `rollback`. `removing`: versions that are being deleted: no
alias may name one of them any more, and because whoever sets an alias writes over the version that it has read, of
setting an alias and deleting its version at the same moment one comes first and the other one sees it. Where a store
cannot keep the condition, nothing is written.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from headrace.base.errors import (
    AlreadyExistsError,
    ChangedError,
    CorruptError,
    HeadraceError,
    NotFoundError,
    UnsupportedError,
)
from headrace.namespace.home import Home
from headrace.store.protocol import Blob
from headrace.tracking.record import now, user_here

MODELS: Final = "models"
"""Below the home."""
ALIASES: Final = "aliases.json"
FORMAT_VERSION: Final = 1
KEPT: Final = 20
"""Versions that an alias named before, at most."""
TOLD: Final = 100
"""Changes told of, at most."""
_TRIES: Final = 20  # writes of others that may come before ours, one after the other
_PAUSE_S: Final = 0.05  # seconds of the first pause, at most; then twice as many, up to sixteen times
_NOBODYS: Final = "0" * 32
"""An ETag that no object has: a write over it is refused by whoever keeps the condition."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """What the aliases of a model name, as it was read. `token`: the version of the object; None: there was none."""

    name: str
    aliases: Mapping[str, int]
    token: str | None


class Change(NamedTuple):
    """One change of an alias. `number`: what it names since; None: it was taken away."""

    alias: str
    number: int | None
    time: str
    by: str
    what: str


@dataclass(frozen=True, slots=True)
class Aliases:
    """All that ``aliases.json`` says."""

    aliases: Mapping[str, int] = field(default_factory=dict[str, int])
    previous: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, "tuple[int, ...]"])
    removing: tuple[int, ...] = ()
    history: tuple[Change, ...] = ()

    def pointing(self, alias: str, number: int, what: str) -> Aliases:
        """With an alias on that version; what it named before is remembered."""
        old = self.aliases.get(alias)
        if old == number:
            return self
        before = self.previous.get(alias, ())
        kept = before if old is None else (*before, old)[-KEPT:]
        return self._changed(alias, number, kept, what)

    def rolled_back(self, alias: str, number: int) -> Aliases:
        """With an alias on an earlier version; that, and all it named later, is no longer remembered."""
        before = self.previous.get(alias, ())
        at = len(before) - 1 - before[::-1].index(number)
        return self._changed(alias, number, before[:at], "rollback")

    def without(self, alias: str) -> Aliases:
        """Without an alias."""
        return self._changed(alias, None, (), "alias")

    def _changed(self, alias: str, number: int | None, previous: tuple[int, ...], what: str) -> Aliases:
        aliases = {name: one for name, one in self.aliases.items() if name != alias}
        kept = {name: some for name, some in self.previous.items() if name != alias}
        if number is not None:
            aliases[alias] = number
            kept[alias] = previous
        told = (*self.history, Change(alias, number, now(), user_here(), what))[-TOLD:]
        return replace(self, aliases=dict(sorted(aliases.items())), previous=kept, history=told)

    def names_of(self, number: int) -> list[str]:
        """Aliases that name a version."""
        return sorted(alias for alias, one in self.aliases.items() if one == number)

    def as_json(self) -> bytes:
        """As it is written."""
        told = {
            "format_version": FORMAT_VERSION, "aliases": self.aliases, "previous": self.previous,
            "removing": self.removing, "history": [change._asdict() for change in self.history],
        }  # fmt: skip
        return json.dumps(told, ensure_ascii=False, indent=1).encode()

    @staticmethod
    def from_json(data: memoryview | bytes, where: str) -> Aliases:
        """Raises CorruptError, UnsupportedError."""
        try:
            told: Any = json.loads(bytes(data))
            version = int(told["format_version"])
            if version > FORMAT_VERSION:
                reason = f"has format {version}, newer than this headrace knows"
                raise UnsupportedError(reason, path=where, hint="update headrace")
            previous = {str(name): tuple(map(int, some)) for name, some in told.get("previous", {}).items()}
            history = tuple(Change(**{name: one.get(name) for name in Change._fields}) for one in told["history"])
            aliases = {str(name): int(one) for name, one in told["aliases"].items()}
            return Aliases(aliases, previous, tuple(map(int, told.get("removing", ()))), history)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptError(f"says nothing of aliases: {error}", path=where) from error


def read(home: Home, name: str) -> tuple[Aliases, str | None]:
    """What the aliases of a model name, and the version of the object; None: there is none. One GET.

    Raises CorruptError, UnsupportedError, any store error.
    """
    try:
        blob = home.store.get(home.key(MODELS, name, ALIASES))
    except NotFoundError:
        return Aliases(), None
    return _of(home, name, blob), blob.info.version


def pointer(home: Home, name: str) -> Pointer:
    """The same, for who follows it. One GET."""
    found, token = read(home, name)
    return Pointer(name, found.aliases, token)


def newer(home: Home, seen: Pointer) -> Pointer | None:
    """What they name now, where the object is another than `seen`; None: it is not. Exactly one conditional GET."""
    key = home.key(MODELS, seen.name, ALIASES)
    try:
        blob = home.store.get(key) if seen.token is None else home.store.get_if_changed(key, seen.token)
    except NotFoundError:
        return None if seen.token is None else Pointer(seen.name, {}, None)
    if blob is None:
        return None
    return Pointer(seen.name, _of(home, seen.name, blob).aliases, blob.info.version)


def change(home: Home, name: str, how: Callable[[Aliases], Aliases], over: str | None = None) -> Aliases:
    """Write what `how` makes of the aliases as they are; of what others write at the same moment nothing is lost.

    Args:
        home: where.
        name: the model's.
        how: asked again where somebody else was quicker; what it raises ends this. What it returns unchanged is not
            written.
        over: the token that was seen; where it is another one by now, nothing is written. None: whatever is there.

    Raises:
        ChangedError: it is not the version `over`, or others were quicker each time. UnsupportedError: the store keeps
        no condition. ReadOnlyError, any store error.
    """
    home.check_writable()
    for attempt in range(_TRIES):
        found, token = read(home, name)
        if over is not None and token != over:
            raise _lost(home, name, "were changed underneath")
        wanted = how(found)
        if wanted == found:
            return found
        try:
            return _write(home, name, wanted, token)
        except ChangedError:
            time.sleep(random.uniform(0, _PAUSE_S * 2 ** min(attempt, 4)))
    raise _lost(home, name, "were changed by others again and again")


def _write(home: Home, name: str, wanted: Aliases, token: str | None) -> Aliases:
    """Raises ChangedError: somebody else was quicker."""
    key = home.key(MODELS, name, ALIASES)
    try:
        if token is None and not home.store.capabilities.conditional_put:
            with suppress(ChangedError):  # a server that only creates would take the first and never another
                home.store.put(key, wanted.as_json(), if_match=_NOBODYS)
        home.store.put(key, wanted.as_json(), create=token is None, if_match=token)
    except UnsupportedError as error:
        raise refused(error, home.url(MODELS, name)) from error
    except AlreadyExistsError as error:
        raise ChangedError("was written by somebody else", path=home.url(MODELS, name, ALIASES)) from error
    return wanted


def refused(error: HeadraceError, path: str) -> UnsupportedError:
    """What is said where a store cannot keep a condition."""
    hint = "keep the home in a store with conditional writes: S3, Google, Azure, a folder, SeaweedFS"
    return UnsupportedError(f"models need writes that keep a condition: {error.reason}", path=path, hint=hint)


def _lost(home: Home, name: str, what: str) -> ChangedError:
    hint = "nothing was written: look at them again, then say it again"
    return ChangedError(f"the aliases {what}", path=home.url(MODELS, name), hint=hint)


def _of(home: Home, name: str, blob: Blob) -> Aliases:
    return Aliases.from_json(blob.data, home.url(MODELS, name, ALIASES))
