"""A local folder kept in step with an alias, for servers that read folders: TensorFlow Serving, Triton, KServe.

    DIR/<number>/…       the files of the version that the alias names, and its model.json

A new version appears by rename, whole; only then the one before goes, by rename too. So a server that looks at any
moment, or after this was killed, finds one version, or for a moment both. What lies there and was not laid there by
this stays. A home that took the place of the one that was followed can have another version of the same number: it is
swapped in by two renames, once it is whole.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from headrace.base.errors import AlreadyExistsError, CorruptError, HeadraceError, InputError, UnsupportedError
from headrace.base.locks import try_lock
from headrace.base.progress import SILENT, Progress
from headrace.models.aliases import Pointer
from headrace.models.card import CARD, ModelCard
from headrace.models.names import Reference, as_number, parse
from headrace.models.pulling import PARTIAL, lay_out
from headrace.models.registry import Registry

_log = logging.getLogger("headrace.models")
EVERY_S: Final = 5.0  # seconds between looks at the pointer, each a small conditional GET
_GOING: Final = ".headrace-going-"
_BEFORE: Final = ".headrace-before-"
"""A folder whose number another one is about to have. It is whole."""
_LOCK: Final = ".headrace-follow"


@dataclass(frozen=True, slots=True)
class Step:
    """What a look came to. `number`: of the version that lies there; `before`: that lay there before it."""

    number: int
    before: tuple[int, ...]
    folder: Path
    seconds: float


class Following:
    """One folder and one alias. One thread. Also a context manager.

    Raises, when made:
        AlreadyExistsError: another process keeps this folder. InputError: no alias was given, or the folder cannot be
        made.
    """

    def __init__(self, registry: Registry, text: str, folder: str | os.PathLike[str]) -> None:
        wanted = parse(text)
        if wanted.alias is None:
            hint = f"set one first, headrace models alias {wanted.name}@prod=NUMBER, and follow {wanted.name}@prod"
            raise InputError("an alias is followed", path=text, hint=hint)
        self.wanted: Reference = wanted
        self.folder = os.path.abspath(folder)
        self._registry = registry
        self._seen: Pointer | None = None
        self._owed = True
        """Whether the folder may not be what `_seen` says."""
        try:
            os.makedirs(self.folder, exist_ok=True)
            self._lock = try_lock(os.path.join(self.folder, _LOCK))
        except OSError as error:
            raise InputError(f"cannot be used: {error.strerror}", path=self.folder) from error
        if self._lock is None:
            raise AlreadyExistsError("is kept by another process", path=self.folder, hint="end that one first")
        self._sweep()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the folder, which stays as it is. Idempotent."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def look(self, progress: Progress = SILENT) -> Step | None:
        """Ask whether the alias names another version, and bring it; None: nothing changed. One conditional GET where
        nothing did.

        Raises:
            NotFoundError: there is no such alias; what lies there stays. CorruptError, NoRoomError, OSError, any store
            error: the version before stays, and the next look tries again.
        """
        if self._seen is None:
            self._seen = self._registry.pointer(self.wanted.name)
        elif (newer := self._registry.newer(self._seen)) is not None:
            self._seen, self._owed = newer, True
        if not self._owed:
            return None
        number = self._seen.aliases.get(self.wanted.alias or "")
        if number is None:
            raise self._registry.not_found(self.wanted)
        step = self._lay(number, progress)
        self._owed = False
        return step

    def run(self, stop: threading.Event, tell: Callable[[Step], object], *, every_s: float = EVERY_S) -> None:
        """Look again and again until `stop` is set; failures are logged, and looked at again."""
        while not stop.wait(every_s):
            try:
                step = self.look()
            except (HeadraceError, OSError) as error:
                _log.warning("%s stays as it is: %s", self.folder, error)
                continue
            if step is not None:
                tell(step)

    def _lay(self, number: int, progress: Progress) -> Step | None:
        began = time.monotonic()
        version = self._registry.resolve(Reference(self.wanted.name, number))
        there = self._ours()
        target = os.path.join(self.folder, str(number))
        card = there.pop(number, None)
        if card != version.card:
            if card is None and os.path.lexists(target):
                hint = "take it away, or follow into another folder"
                raise AlreadyExistsError("is there, and not of this model", path=target, hint=hint)
            lay_out(self._registry, version, target, progress, os.rename if card is None else self._swap)
        elif not there:
            return None
        for other in there:
            self._go(str(other))
        return Step(number, tuple(sorted(there)), Path(target), time.monotonic() - began)

    def _ours(self) -> dict[int, ModelCard]:
        """Versions that were laid here before, by their numbers."""
        found: dict[int, ModelCard] = {}
        for name in os.listdir(self.folder):
            number, path = as_number(name), os.path.join(self.folder, name, CARD)
            if number is not None and os.path.exists(path):
                with suppress(OSError, CorruptError, UnsupportedError), open(path, "rb") as file:
                    card = ModelCard.from_json(file.read(), path)
                    if (card.name, card.number) == (self.wanted.name, number):
                        found[number] = card
        return found

    def _swap(self, beside: str, target: str) -> None:
        """A folder that is whole takes the place of the one of its number, which goes only then."""
        number = os.path.basename(target)
        before = os.path.join(self.folder, f"{_BEFORE}{number}")
        os.rename(target, before)
        try:
            os.rename(beside, target)
        except BaseException:
            os.rename(before, target)
            raise
        self._go(f"{_BEFORE}{number}")

    def _go(self, name: str) -> None:
        going = os.path.join(self.folder, f"{_GOING}{name.removeprefix(_BEFORE)}")
        shutil.rmtree(going, ignore_errors=True)
        os.rename(os.path.join(self.folder, name), going)
        shutil.rmtree(going, ignore_errors=True)

    def _sweep(self) -> None:
        """What a killed one left. A folder that was to be followed by one of its number is put back, if none came."""
        for name in os.listdir(self.folder):
            if name.startswith(_BEFORE):
                target = os.path.join(self.folder, name.removeprefix(_BEFORE))
                if os.path.lexists(target):
                    self._go(name)
                else:
                    os.rename(os.path.join(self.folder, name), target)
        for name in os.listdir(self.folder):
            if name.startswith((PARTIAL, _GOING)):
                shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)
