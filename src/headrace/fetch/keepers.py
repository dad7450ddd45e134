"""Nodes that share their caches, as a small file names them, and which of them keeps an object version."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from headrace.base.errors import SettingError
from headrace.fetch.rendezvous import Rendezvous, word_of

_LEAST_TOKEN = 16
"""Characters: as many as nobody guesses over a network."""
_HINT = "see docs/guides/scale.md, Caches that share"


@dataclass(frozen=True)
class Keepers:
    """Nodes that share their caches. `here`: the name of this one; `nodes`: by name, where each answers
    (``http://host:port``); `token`: what they know each other by. Any thread.

    Raises:
        SettingError: `here` is none of the nodes, an address is no URL, or the token is too short or no plain text.
    """

    here: str
    nodes: Mapping[str, str]
    token: str = field(repr=False)
    _rendezvous: Rendezvous = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check()
        object.__setattr__(self, "_rendezvous", Rendezvous(self.nodes))

    def of(self, name: str, piece: int = 0) -> str:
        """The node that keeps a piece of the object version whose cache entry has this name. About 10 µs."""
        return self._rendezvous.first(word_of(name, piece))

    def save(self, path: str) -> None:
        """Write the file, readable by its owner alone, in one step. Raises OSError."""
        import tomlkit

        temporary = f"{path}.{os.getpid()}.tmp"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(fd, "w", encoding="utf-8") as file:
            file.write(tomlkit.dumps({"here": self.here, "token": self.token, "nodes": dict(self.nodes)}))
        os.rename(temporary, path)

    @staticmethod
    def load(path: str) -> Keepers:
        """What the file says.

        Raises:
            SettingError: it is not as it must be; names the file. FileNotFoundError, OSError: it cannot be read.
        """
        try:
            with open(path, "rb") as file:
                told = tomllib.load(file)
            return _parsed(told)
        except SettingError as error:
            raise error.at(path) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingError(f"is not valid TOML: {error}", path=path, hint=_HINT) from error

    def _check(self) -> None:
        if self.here not in self.nodes:
            raise SettingError(f"here = {self.here!r} is none of the nodes", hint=_HINT)
        for name, url in self.nodes.items():
            if not _is_address(url):
                raise SettingError(f"nodes.{name} = {url!r} is no address", hint="write it like http://10.0.0.7:7070")
        if len(self.token) < _LEAST_TOKEN or not (self.token.isascii() and self.token.isprintable()):
            reason = f"the token needs {_LEAST_TOKEN} characters or more of plain ASCII"
            raise SettingError(reason, hint="openssl rand -hex 32")


def _parsed(told: Mapping[str, Any]) -> Keepers:
    if unknown := set(told) - {"here", "token", "nodes"}:
        raise SettingError(f"unknown key {min(unknown)!r}", hint=_HINT)
    here, token, nodes = told.get("here"), told.get("token"), told.get("nodes")
    named = isinstance(nodes, dict) and all(isinstance(url, str) for url in nodes.values())
    if not (isinstance(here, str) and isinstance(token, str) and named):
        raise SettingError("needs here, token, and a table [nodes] of addresses", hint=_HINT)
    return Keepers(here, nodes, token)  # pyright: ignore[reportArgumentType]


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme == "http" and bool(parts.hostname and parts.port) and parts.path in ("", "/")
    except ValueError:
        return False
