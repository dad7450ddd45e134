"""How the page is served."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field

from headrace.base.errors import InputError

_BASE = re.compile(r"(/[A-Za-z0-9._~-]+)*")


@dataclass(frozen=True, slots=True)
class Options:
    """Frozen; any thread.

    `host`, `port`: where it listens; port 0: a free one. `base`: the path that a proxy puts before every URL, empty or
    like ``/user/ann/headrace``. `hosts`: names beside this machine's own that a request may give as ``Host``.
    `token`: what a viewer must bring.
    """

    host: str = "127.0.0.1"
    port: int = 0
    base: str = ""
    hosts: tuple[str, ...] = ()
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    def __post_init__(self) -> None:
        """Raises InputError."""
        if not _BASE.fullmatch(self.base):
            raise InputError(f"{self.base!r} is no base", hint="like /user/ann/headrace, without a slash at the end")
        if len(self.token) < 16:
            raise InputError("a token shorter than 16 characters can be guessed", hint="leave it out to have one made")
