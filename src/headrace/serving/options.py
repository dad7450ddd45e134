"""What is served, and how."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Final

from headrace.base.errors import InputError
from headrace.base.threads import cores
from headrace.serving.batching import Rules

SHADOW: Final = "shadow"
_LIMIT_S: Final = 60.0  # seconds of the limit, at least


@dataclass(frozen=True, slots=True)
class Way:
    """One part of a route: an alias, or a version's number, and its share of the requests; 0 for the shadow's."""

    label: str
    weight: float = 1.0
    shadow: bool = False

    @property
    def number(self) -> int | None:
        """Of a version that is named by it; None for an alias."""
        return int(self.label) if self.label.isdigit() else None


@dataclass(frozen=True, slots=True)
class Route:
    """A model, and where its requests go. Without a way: the version that is the latest at the start."""

    model: str
    ways: tuple[Way, ...] = ()

    @property
    def text(self) -> str:
        """As `parse` takes it."""
        return ",".join(f"{self.model}@{way.label}{_share(way)}" for way in self.ways) or self.model

    @classmethod
    def parse(cls, text: str) -> Route:
        """``NAME@prod``, ``NAME@7``, ``NAME``; ``NAME@prod=90,NAME@next=10``; ``NAME@prod,NAME@next=shadow``.

        Raises InputError.
        """
        names: set[str] = set()
        ways: list[Way] = []
        for part in text.split(","):
            target, _, share = part.strip().partition("=")
            name, at, label = target.partition("@")
            if not name or (at and not label):
                raise InputError(f"{part!r} names no model", hint="like digits@prod")
            names.add(name)
            if label:
                ways.append(_way(label, share, part))
        if len(names) != 1:
            raise InputError(
                f"{text!r}: shares are given to versions of one model", hint="digits@prod=90,digits@next=10"
            )
        if len({way.label for way in ways}) != len(ways) or (not ways and "," in text):
            raise InputError(f"{text!r}: an alias is there twice")
        if ways and not any(way.weight > 0 for way in ways):
            raise InputError(f"{text!r}: nothing answers", hint="one of them needs a share above 0")
        return cls(names.pop(), tuple(ways))


def _share(way: Way) -> str:
    return f"={SHADOW}" if way.shadow else "" if way.weight == 1 else f"={way.weight:.15g}"


def _way(label: str, share: str, part: str) -> Way:
    if share == SHADOW:
        return Way(label, 0.0, shadow=True)
    try:
        weight = float(share) if share else 1.0
    except ValueError:
        weight = -1.0
    if not 0 <= weight < 1e9:
        raise InputError(f"{part!r}: {share!r} is no share", hint="a number, or the word shadow")
    return Way(label, weight)


@dataclass(frozen=True, slots=True)
class Options:
    """Frozen; any thread. Times in seconds, sizes in bytes.

    Args:
        routes: what is served, each model once.
        host: where it listens.
        port: of HTTP; 0: a free one.
        grpc_port: None: no gRPC; 0: a free one.
        interval: how often a model's pointer is asked for.
        rules: how requests are run together.
        deadline: after which a request that has no answer yet gets none; 0: never.
        body: of a request at most.
        processes: that share the port.
        threads: of a model's runtime; 0: this machine's processors, divided among the processes.
        token: what a client must bring; None: nothing, on loopback only.
        known: who starts it has chosen the token, so it is not printed.
        admin: models may be loaded and unloaded over the protocols.
        admin_token: what that takes, on loopback too; None: one is made.
        admin_known: as `known`.
    """

    routes: tuple[Route, ...]
    host: str = "127.0.0.1"
    port: int = 0
    grpc_port: int | None = None
    interval: float = 5.0
    rules: Rules = field(default_factory=Rules)
    deadline: float = 30.0
    body: int = 64 << 20
    processes: int = 1
    threads: int = 0
    token: str | None = field(default=None, repr=False)
    known: bool = False
    admin: bool = False
    admin_token: str | None = field(default=None, repr=False)
    admin_known: bool = False

    def __post_init__(self) -> None:
        """Raises InputError."""
        names = [route.model for route in self.routes]
        if not names:
            raise InputError("no model is named", hint="like digits@prod")
        if len(set(names)) != len(names):
            hint = "give shares in one argument: digits@prod=90,digits@next=10"
            raise InputError("a model is named twice", hint=hint)
        if self.processes < 1:
            raise InputError("at least one process is needed")
        for token in (self.token, self.admin_token):
            if token is not None and len(token) < 16:
                raise InputError(
                    "a token shorter than 16 characters can be guessed", hint="leave it out to have one made"
                )
        if not self.loopback and self.token is None:
            object.__setattr__(self, "token", secrets.token_urlsafe(24))
        if self.admin and self.admin_token is None:
            object.__setattr__(self, "admin_token", secrets.token_urlsafe(24))

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    @property
    def limit(self) -> float | None:
        """Seconds after which a runtime's process that still works at one batch is ended: no fewer than a request may
        take, since it is ended under all who wait for it. None: never, where requests may take for ever.
        """
        if self.rules.limit is not None:
            return self.rules.limit
        return max(_LIMIT_S, self.deadline) if self.deadline else None

    @property
    def runtime_threads(self) -> int:
        """Of each model, in each process."""
        return self.threads or max(1, cores() // self.processes)
