"""Who may ask: access keys, each with what it may do. From a file that only its owner reads."""

from __future__ import annotations

import os
import re
import secrets
import stat
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from headrace.base.errors import DeniedError, NotFoundError, SettingError

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")
_FIELDS = frozenset(("secret", "write", "prefixes"))
_SHORTEST = 8
"""Characters of a secret: a shorter one is guessed from a single signed request."""


@dataclass(frozen=True)
class Key:
    """One client's. `prefixes`: ``bucket/prefix`` each, nothing else is seen; none means all."""

    access_key: str
    secret: str = field(repr=False)
    write: bool = False
    prefixes: tuple[str, ...] = ()

    def sees(self, bucket: str, key: str = "") -> bool:
        """Whether it may read that object; without a `key`, whether there is anything in the bucket for it."""
        if not self.prefixes:
            return True
        whole = f"{bucket}/{key}"
        if _climbs(key):
            return False
        return any(whole.startswith(one) or (not key and one.startswith(whole)) for one in self.prefixes)

    def lists(self, bucket: str, prefix: str) -> bool:
        """Whether it may list all below that prefix."""
        whole = f"{bucket}/{prefix}"
        return not self.prefixes or (not _climbs(prefix) and any(whole.startswith(one) for one in self.prefixes))


def _climbs(key: str) -> bool:
    """Whether a server on the way might take it for a key elsewhere."""
    return "." in key and any(part in (".", "..") for part in key.split("/"))


class Keyring:
    """Keys by their access key. Immutable."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self._keys = {key.access_key: key for key in keys}

    def get(self, access_key: str) -> Key | None:
        """The key of that name."""
        return self._keys.get(access_key)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys.values())

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def writes(self) -> bool:
        """Whether any of them may write."""
        return any(key.write for key in self._keys.values())


def made(*, write: bool) -> Key:
    """A new one, for who gave no file."""
    return Key("HR" + secrets.token_hex(9).upper(), secrets.token_urlsafe(30), write)


def load(path: str) -> Keyring:
    """The keys of a TOML file: ``[keys.NAME]`` with `secret`, and if need be `write` and `prefixes`.

    Raises:
        NotFoundError, DeniedError: the file is not there, or others may read it. SettingError: what it says is wrong;
            no secret is told.
    """
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(1 << 20)
    except FileNotFoundError as error:
        raise NotFoundError("there is no such file of keys", path=path) from error
    except OSError as error:
        raise DeniedError(f"the file of keys cannot be read: {error.strerror}", path=path) from error
    if stat.S_ISREG(mode) and mode & 0o077:
        raise DeniedError("others may read this file of keys", path=path, hint=f"chmod 600 {path}")
    try:
        table = tomllib.loads(text.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        raise SettingError("is not TOML", path=path) from None
    keys = table.get("keys")
    if not isinstance(keys, dict) or not keys or set(table) - {"keys"}:
        hint = 'write [keys.NAME] with secret = "…", and write = true for one that may write'
        raise SettingError("has no [keys.NAME], or something else beside", path=path, hint=hint)
    return Keyring(_key(name, given, path) for name, given in keys.items())


def _key(name: str, given: Any, path: str) -> Key:
    def wrong(why: str) -> SettingError:
        return SettingError(f"[keys.{name}] {why}", path=path)

    if not _NAME.match(name) or not isinstance(given, dict):
        raise wrong("is no access key: letters, digits, and _ . -")
    if unknown := set(given) - _FIELDS:
        raise wrong(f"has {', '.join(sorted(unknown))}: there are secret, write and prefixes")
    secret, write, prefixes = given.get("secret"), given.get("write", False), given.get("prefixes", [])
    if not isinstance(secret, str) or len(secret) < _SHORTEST:
        raise wrong(f"needs a secret of {_SHORTEST} characters or more")
    if not isinstance(write, bool):
        raise wrong("says write = something that is neither true nor false")
    if not isinstance(prefixes, list) or not all(isinstance(one, str) and one for one in prefixes):
        raise wrong('has prefixes that are no list of "bucket/prefix"')
    return Key(name, secret, write, tuple(one if "/" in one else one + "/" for one in prefixes))


