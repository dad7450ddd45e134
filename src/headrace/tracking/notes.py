"""Tags and a note that people give a run after it has begun: one object a run, written only over the version that was
read, so that of two writers the later one is told, and nothing is lost.

    <home>/runs/.notes/<id>.json     `headrace.tracking.record.Notes`

They lie beside the runs and not in them, so that one listing tells which runs of a home have any, and which changed: a
list of runs costs that one request more, and one for each run whose notes it has not read yet.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace.base.errors import ChangedError, CorruptError, InputError, NotFoundError, UnsupportedError
from headrace.base.units import format_bytes
from headrace.namespace.home import Home
from headrace.tracking.record import RUNS, Notes, RunRecord, now, user_here

_log = logging.getLogger("headrace.runs")
NOTES: Final = ".notes"
LISTED_S: Final = 15.0
"""How long a listing of them is trusted."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TAGS: Final = 100
"""Of one run, and characters of each, and bytes of its note: a page shows all of them."""
_VALUE: Final = 1000  # characters
_NOTE: Final = 64 << 10  # bytes


@dataclass(frozen=True, slots=True)
class Kept:
    """Notes, and the version of their object; empty: there is none."""

    notes: Notes = field(default_factory=Notes)
    version: str = ""


NONE: Final = Kept()


def read(home: Home, record: RunRecord) -> Kept:
    """Those of a run: one request. Raises CorruptError, UnsupportedError, any store error."""
    parts = RUNS, NOTES, f"{record.id}.json"
    try:
        blob = home.store.get(home.key(*parts))
    except NotFoundError:
        return NONE
    notes = Notes.from_json(blob.data, home.url(*parts))
    return Kept(notes if notes.of == record.created else Notes(), blob.info.version)


def change(
    home: Home, record: RunRecord, tags: Mapping[str, str | None], note: str | None = None, over: str | None = None
) -> Kept:
    """Give a run these tags (None: take it away), and this note (None: leave it).

    `over`: the version that the writer has seen (`Kept.version`); None: what is there now.

    Raises:
        ChangedError: somebody else has changed them since. InputError: a name or a value that no tag may have, or too
        many of them, or a note that is too long. ReadOnlyError, any store error.
    """
    home.check_writable()
    kept = read(home, record)
    if over is not None and over != kept.version:
        raise _changed(record.id)
    notes = _changed_notes(kept.notes, record, tags, note)
    if (notes.tags, notes.note) == (kept.notes.tags, kept.notes.note):
        return kept
    try:
        info = home.replace(notes.as_json(), kept.version or None, RUNS, NOTES, f"{record.id}.json")
    except ChangedError:
        raise _changed(record.id) from None
    return Kept(notes, info.version)


def forget(home: Home, run: str) -> int:
    """Delete those of a run; returns how many objects that were."""
    keys = [info.key for page in home.store.list(home.key(RUNS, NOTES, f"{run}.json")) for info in page]
    home.store.delete(keys)
    return len(keys)


def _changed(run: str) -> ChangedError:
    hint = "nothing was written: look at them again, then say it again"
    return ChangedError("its tags or its note were changed underneath", path=run, hint=hint)


def _changed_notes(notes: Notes, record: RunRecord, tags: Mapping[str, str | None], note: str | None) -> Notes:
    """What is as in the record is not said again."""
    own = record.tags
    merged: dict[str, str | None] = {**notes.tags, **tags}
    said = {name: value for name, value in merged.items() if value != own.get(name)}
    for name, value in tags.items():
        _check(name, value)
    text = notes.note if note is None else note.strip()
    if len(said) > _TAGS:
        raise InputError(f"has {len(said)} tags", path=record.id, hint=f"{_TAGS} at most")
    if len(text.encode("utf-8", "surrogatepass")) > _NOTE:
        raise InputError("the note is too long", path=record.id, hint=f"{format_bytes(_NOTE)} at most")
    return Notes(record.created, said, text, now(), user_here())


def _check(name: str, value: str | None) -> None:
    """Raises InputError."""
    if not _NAME.fullmatch(name):
        hint = "letters, digits, . _ and -, at most 100, beginning with a letter or a digit"
        raise InputError(f"{name!r} is no name of a tag", hint=hint)
    if value is not None and (len(value) > _VALUE or not value.isprintable()):
        raise InputError(f"{name}: is no value of a tag", hint=f"one line of at most {_VALUE:,} characters")


class AllNotes:
    """Those of all runs of a home, as one listing tells. Any thread."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._listed: dict[str, str] = {}
        self._listed_at = float("-inf")
        self._read: dict[str, Kept] = {}

    def listed(self) -> Mapping[str, str]:
        """The version of each run's that has any, by run; asked for if that was a while ago. Raises any store error."""
        with self._lock:
            if time.monotonic() - self._listed_at >= LISTED_S:
                prefix, found = self._home.key(RUNS, NOTES, ""), dict[str, str]()
                for page in self._home.store.list(prefix):
                    found |= {info.key[len(prefix) :].removesuffix(".json"): info.version for info in page}
                self._listed, self._listed_at = found, time.monotonic()
            return self._listed

    def renew(self) -> None:
        """List them again the next time: one was changed from here."""
        with self._lock:
            self._listed_at = float("-inf")

    def of(self, record: RunRecord) -> Kept:
        """A run's, as listed last; read once a version. Raises any store error; what cannot be read counts as none."""
        version = self.listed().get(record.id)
        if version is None:
            return NONE
        kept = self._read.get(record.id)
        if kept is None or kept.version != version or (kept.notes.of and kept.notes.of != record.created):
            try:
                kept = read(self._home, record)
            except (CorruptError, UnsupportedError) as error:
                _log.warning("%s", error)
                kept = Kept(version=version)
            self._read[record.id] = kept
        return kept
