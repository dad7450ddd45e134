"""How the page is served."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from typing import Final

from headrace.base.errors import DeniedError, InputError

RIGHTS: Final = {
    "stop": "order runs to stop", "rerun": "run a run again on this machine", "tag": "change tags and notes of runs",
    "delete-runs": "delete runs", "write": "upload and delete files",
}  # fmt: skip
"""What a page may be allowed to do, by the names that `--allow` takes."""
_BASE = re.compile(r"(/([A-Za-z0-9._~@:+=-]|%[0-9A-Fa-f]{2})+)*")
"""No ``;`` and no ``,``, which end a cookie's path."""


@dataclass(frozen=True, slots=True)
class Options:
    """Frozen; any thread.

    `host`, `port`: where it listens; port 0: a free one. `socket`: a Unix socket to listen on instead, empty for none;
    `private_socket` says who reaches it. `base`: the path that a proxy puts before every URL, empty or
    like ``/user/ann/headrace``. `hosts`: names beside this machine's own that a request may give as ``Host``.
    `token`: what a viewer must bring; `known`: who starts the page has chosen it, so that it need not be told. `allow`:
    of `RIGHTS`, what every viewer may do; nothing unless told.
    """

    host: str = "127.0.0.1"
    port: int = 0
    base: str = ""
    hosts: tuple[str, ...] = ()
    allow: frozenset[str] = frozenset()
    socket: str = ""
    known: bool = False
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    def __post_init__(self) -> None:
        """Raises InputError."""
        if not _BASE.fullmatch(self.base):
            raise InputError(f"{self.base!r} is no base", hint="like /user/ann/headrace, without a slash at the end")
        if len(self.token) < 16:
            raise InputError("a token shorter than 16 characters can be guessed", hint="leave it out to have one made")
        if unknown := sorted(self.allow - RIGHTS.keys()):
            hint = f"what can be allowed is {', '.join(RIGHTS)}"
            raise InputError(f"{', '.join(unknown)}: nothing that can be allowed is called so", hint=hint)

    def check(self, right: str) -> None:
        """Raises DeniedError: this was not allowed. `right`: of `RIGHTS`."""
        if right not in self.allow:
            hint = f"start it so: headrace web --allow {','.join(sorted({*self.allow, right}))}"
            raise DeniedError(f"this page may not {RIGHTS[right]}", hint=hint)
