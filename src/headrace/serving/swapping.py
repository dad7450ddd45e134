"""Loads the versions that are wanted of one model, beside those that answer; swaps in one step; lets the old ones go.

One thread a model, so that a model of many gigabytes delays no other.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from headrace.base.errors import ArchivedError, DeniedError, HeadraceError, NoRoomError, TryAgainError
from headrace.serving.model import Model, Table, Version

_log = logging.getLogger("headrace.serving")
_FIRST_S: Final = 1.0  # seconds before a version that did not load is tried again; then twice as many
_LONGEST_S: Final = 60.0  # seconds, at most
Open = Callable[[int], Version]


class Swapper:
    """Brings a `Model` to what is wanted of it. `want` from any thread."""

    def __init__(self, model: Model, opener: Open) -> None:
        """`opener`: gives a version by its number, loaded and warm; it waits, and raises why there is none."""
        self._model, self._open = model, opener
        self._changed = threading.Condition()
        self._wanted: Mapping[str, int] = {}
        self._asked = 0
        self._done = 0
        self._ended = False
        self._leaving: deque[Version] = deque()
        self._failed: dict[int, float] = {}
        """By number, when it may be tried again; infinite: not before something else is wanted."""
        self._delay = _FIRST_S
        self._thread = threading.Thread(target=self._serve, name=f"serving-{model.name}", daemon=True)
        self._thread.start()

    def want(self, labels: Mapping[str, int], *, again: bool = False) -> int:
        """From now on these labels mean these versions. `again`: try also those that did not load. Returns a number
        for `settled`.
        """
        with self._changed:
            if again or labels != self._wanted:
                self._failed.clear()
                self._delay = _FIRST_S
            self._wanted = dict(labels)
            self._asked += 1
            self._changed.notify_all()
            return self._asked

    def settled(self, number: int, seconds: float) -> bool:
        """Wait until that wish is fulfilled, or has failed; whether it was in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._done >= number or self._ended, seconds)

    def close(self) -> None:
        """Load no more, and let everything go. Waits for what is being loaded."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._thread.join()
        for version in (*self._leaving, *self._model.table.versions.values()):
            version.close()
        self._model.table = Table()

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._due, self._pause())
                if self._ended:
                    return
                asked, wanted = self._asked, self._wanted
            self._let_go()
            self._bring(wanted)
            with self._changed:
                self._done = max(self._done, asked)
                self._changed.notify_all()
            self._improve()

    def _due(self) -> bool:
        return self._ended or self._done < self._asked or bool(self._leaving)

    def _pause(self) -> float | None:
        soonest = min(self._failed.values(), default=float("inf"))
        return None if soonest == float("inf") else max(0.05, soonest - time.monotonic())

    def _bring(self, wanted: Mapping[str, int]) -> None:
        """One swap for each version that is new, so that one which takes long holds no other up."""
        for number in dict.fromkeys(wanted.values()):
            if number in self._model.table.versions or self._failed.get(number, 0.0) > time.monotonic():
                continue
            version = self._loaded(number)
            if version is None:
                continue
            with self._changed:
                wanted = self._wanted
            if number in wanted.values():
                self._swap(wanted, version)
            else:  # somebody rolled back meanwhile
                self._retire(version)
        self._swap(wanted)

    def _loaded(self, number: int) -> Version | None:
        self._model.say(number, "LOADING")
        try:
            version = self._open(number)
        except Exception as error:
            self._refuse(number, error)
            return None
        self._failed.pop(number, None)
        return version

    def _refuse(self, number: int, error: Exception) -> None:
        """It does not serve; the one before goes on."""
        later = isinstance(error, TryAgainError | NoRoomError | ArchivedError | DeniedError | OSError | MemoryError)
        if not isinstance(error, HeadraceError):
            _log.error("version %d of %s failed to load", number, self._model.name, exc_info=error)
        reason = str(error) if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
        _log.warning("version %d of %s does not serve: %s", number, self._model.name, reason)
        self._failed[number] = time.monotonic() + self._delay if later else float("inf")
        self._delay = min(2 * self._delay, _LONGEST_S)
        self._model.refused += 1
        self._model.say(number, "END", reason)

    def _swap(self, wanted: Mapping[str, int], new: Version | None = None) -> None:
        """In one step: labels whose version is loaded mean it; the others what they meant before."""
        before = self._model.table
        there = {**before.versions, **({new.number: new} if new is not None else {})}
        labels = {label: number for label, number in wanted.items() if number in there}
        for label in wanted:
            if label not in labels and label in before.labels:
                labels[label] = before.labels[label]
        versions = {number: there[number] for number in dict.fromkeys(labels.values())}
        if not versions and wanted and before.versions:
            return  # nothing that is wanted can be had: what there is goes on
        if (versions, labels) == (before.versions, before.labels):
            return
        self._model.table = Table(versions, labels)
        self._model.unloaded = not wanted
        if before.versions and versions.keys() - before.versions.keys():
            self._model.swaps += 1
        for number in versions:
            self._model.say(number, "AVAILABLE")
        for number, version in there.items():
            if number not in versions:
                self._retire(version)

    def _retire(self, version: Version) -> None:
        """Requests in flight finish on it; then this thread closes it, since that may take long."""
        self._model.say(version.number, "UNLOADING")

        def leave() -> None:
            with self._changed:
                self._leaving.append(version)
                self._changed.notify_all()

        version.lane.retire(leave)

    def _let_go(self) -> None:
        while self._leaving:
            version = self._leaving.popleft()
            try:
                version.close()
            except Exception:
                _log.exception("version %d of %s did not close", version.number, self._model.name)
            if version.number not in self._model.table.versions:
                self._model.say(version.number, "END")

    def _improve(self) -> None:
        """Quicker runtimes behind those that answer, as long as nothing else is to be done."""
        for version in self._model.table.versions.values():
            with self._changed:
                if self._due():
                    return
            if version.improve is None:
                continue
            try:
                version.improve()
            except Exception:
                _log.exception("version %d of %s stays as it is", version.number, self._model.name)
