"""Which run of a node has which CPU and GPU, and which runs wait for them: locked files in a folder they share.

    <claims>/gpu-0             locked by the run that has it; holds that run's id
             waiting/lock      locked by who looks and takes, for milliseconds
             waiting/00000017  a ticket: locked by a run that waits; holds its id and what it may be given

The kernel lets go of a lock however its holder ends, so a run that dies has nothing and waits for nothing. What a run
that waits may be given is kept for it: later ones take other things. It takes all it asks for at once, or nothing, so
two that wait never hold what the other needs.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from headrace.base.errors import TryAgainError
from headrace.base.locks import holders, try_lock
from headrace.base.places import make_folder

_TURN_S: Final = 0.01  # seconds between tries for the turn, which nobody holds for long
PATIENCE_S: Final = 10.0  # seconds after which whoever holds the turn is taken to hang


@dataclass(frozen=True, slots=True)
class Claimed:
    """One thing that a run has for itself. `name`: like ``gpu-0``; `pid`: of its runner, 0 where that is not seen."""

    name: str
    pid: int


def claimed(claims: str) -> list[Claimed]:
    """What runs of this node have claimed, in the folder of the claims. Takes nothing from anybody."""
    try:
        paths = sorted(os.path.join(claims, name) for name in os.listdir(claims))
    except OSError:
        return []
    return [Claimed(os.path.basename(path), pid) for path, pid in holders(paths).items()]


@dataclass(frozen=True, slots=True)
class Want:
    """So many of these things; of those that are free, the first."""

    count: int
    things: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Other:
    """Another run that is in the way. `pid`: 0 where it is not seen; `things`: which it has, none: it comes first."""

    run: str
    pid: int
    things: tuple[str, ...] = ()

    def __str__(self) -> str:
        who = (self.run or "a run") + (f" (pid {self.pid})" if self.pid else "")
        return f"{who} has {', '.join(self.things)}" if self.things else f"{who} comes first"


@dataclass(frozen=True, slots=True)
class Blocked:
    """Nothing was taken. `free`: how much it could have of each `Want`; `others`: who is in the way."""

    free: tuple[int, ...]
    others: tuple[Other, ...]


@dataclass(frozen=True, slots=True)
class _Ticket:
    run: str
    path: str
    things: frozenset[str]


class Claims:
    """What one run has of the things of a node, or waits for. One thread, at once but for others that look meanwhile.

    Args:
        folder: of the claims, made when something is asked for.
        run: its id, for others to read.
    """

    def __init__(self, folder: str, run: str) -> None:
        self._folder, self._run = folder, run
        self._waiting = os.path.join(folder, "waiting")
        self._held: dict[str, int] = {}
        self._ticket: tuple[str, int] | None = None
        self.kept = frozenset[str]()
        """What was kept for others who wait, when it last looked."""

    def some(self, wants: Sequence[Want]) -> list[tuple[str, ...]]:
        """Take what is free of each, and kept for nobody who waits: as many as are wanted, or fewer.

        Raises TryAgainError: the others leave no moment to look. OSError: the disk.
        """
        with self._alone(PATIENCE_S):
            self.kept = _things(self._before())
            return [self._take(want) for want in wants]

    def all(self, wants: Sequence[Want], patience: float = PATIENCE_S) -> list[tuple[str, ...]] | Blocked:
        """Take all that is wanted, or nothing: the run is in the queue then, until it has all, or `close`.

        `patience`: seconds to wait for a moment to look. Raises as `some`; its place is kept then.
        """
        with self._alone(patience):
            if self._ticket is None:
                self._draw(wants)
            before = self._before()
            self.kept = _things(before)
            taken = [self._take(want) for want in wants]
            free = tuple(map(len, taken))
            if all(len(mine) == want.count for mine, want in zip(taken, wants, strict=True)):
                self._leave()
                return taken
            self._let_go()
            short = {thing for want, count in zip(wants, free, strict=True) if count < want.count
                     for thing in want.things}  # fmt: skip
            return Blocked(free, (*self._having(short), *self._preceding(before, short)))

    def close(self) -> None:
        """Others may have what it has, and its place. Idempotent."""
        self._leave()
        self._let_go()

    # what it has

    def _take(self, want: Want) -> tuple[str, ...]:
        mine: list[str] = []
        for thing in want.things:
            if len(mine) == want.count:
                break
            if thing in self.kept or thing in self._held or (fd := try_lock(self._path(thing))) is None:
                continue
            self._held[thing] = fd
            with suppress(OSError):  # a full disk: it is had all the same
                _write(fd, self._run)
            mine.append(thing)
        return tuple(mine)

    def _let_go(self) -> None:
        for fd in self._held.values():
            os.close(fd)
        self._held.clear()

    def _having(self, things: Iterable[str]) -> list[Other]:
        """Who has some of these."""
        paths = {self._path(thing): thing for thing in sorted(things)}
        found: dict[tuple[str, int], list[str]] = {}
        for path, pid in holders(paths).items():
            found.setdefault((_read(path), pid), []).append(paths[path])
        return [Other(run, pid, tuple(names)) for (run, pid), names in found.items()]

    def _path(self, thing: str) -> str:
        return os.path.join(self._folder, thing.replace("/", "_"))

    # its place

    def _draw(self, wants: Sequence[Want]) -> None:
        """A ticket behind all others."""
        last = max((int(name) for name in self._tickets()), default=0)
        path = os.path.join(self._waiting, f"{last + 1:08d}")
        fd = try_lock(path)
        if fd is None:  # nobody makes one meanwhile, but any program of the user's may lock it
            raise TryAgainError("another holds the place in the queue", path=path, hint="try again")
        self._ticket = path, fd
        _write(fd, json.dumps({"run": self._run, "things": [thing for want in wants for thing in want.things]}))

    def _leave(self) -> None:
        if self._ticket is not None:
            path, fd = self._ticket
            with suppress(OSError):
                os.unlink(path)
            os.close(fd)
            self._ticket = None

    def _before(self) -> list[_Ticket]:
        """Those who wait, and came before it. Removes what dead ones have left."""
        mine = int(os.path.basename(self._ticket[0])) if self._ticket is not None else None
        found: list[_Ticket] = []
        for name in self._tickets():
            if mine is not None and int(name) >= mine:
                break
            path = os.path.join(self._waiting, name)
            with suppress(FileNotFoundError):  # it has left
                held = try_lock(path, make=False)
                if held is None:
                    found.append(_told(path))
                    continue
                try:
                    os.unlink(path)
                finally:
                    os.close(held)
        return found

    def _preceding(self, before: Sequence[_Ticket], things: Iterable[str]) -> list[Other]:
        wanted = set(things)
        pids = holders(one.path for one in before)
        return [Other(one.run, pids.get(one.path, 0)) for one in before if one.things & wanted]

    def _tickets(self) -> list[str]:
        return sorted((name for name in os.listdir(self._waiting) if name.isdecimal()), key=int)

    @contextmanager
    def _alone(self, patience: float) -> Generator[None]:
        """Nobody else of the node looks or takes meanwhile."""
        make_folder(self._waiting, "HEADRACE_RUN_CACHE")
        path = os.path.join(self._waiting, "lock")
        until = time.monotonic() + patience
        while (held := try_lock(path)) is None:
            if time.monotonic() >= until:
                pid = holders([path]).get(path, 0)
                hint = f"look whether process {pid} is stopped" if pid else "try again"
                raise TryAgainError("another run looks at the claims, and does not end", path=path, hint=hint)
            time.sleep(_TURN_S)
        try:
            yield
        finally:
            os.close(held)


def _told(path: str) -> _Ticket:
    told: dict[str, Any] = {}
    with suppress(ValueError):  # its disk was full: it is about to leave
        told = json.loads(_read(path))
    return _Ticket(str(told.get("run", "")), path, frozenset(told.get("things", ())))


def _things(tickets: Iterable[_Ticket]) -> frozenset[str]:
    return frozenset[str]().union(*(one.things for one in tickets))


def _write(fd: int, text: str) -> None:
    os.ftruncate(fd, 0)
    os.pwrite(fd, text.encode(), 0)


def _read(path: str) -> str:
    with suppress(OSError), open(path, encoding="utf-8") as file:
        return file.read()
    return ""
