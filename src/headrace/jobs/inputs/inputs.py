"""The inputs of one run: pinned, given, recorded, and let go in the end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from headrace.base.errors import HeadraceError
from headrace.base.units import format_bytes
from headrace.catalog import (
    INPUTS_VARIABLE,
    Objects,
    Pin,
    change_summary,
    differences,
    pin_objects,
    take_again,
    take_pin,
)
from headrace.jobs.environment import Bind
from headrace.jobs.folder import RunFolder
from headrace.jobs.inputs.copying import copied, data_of
from headrace.jobs.inputs.mounting import MountedInput
from headrace.jobs.inputs.site import Site
from headrace.jobs.spec_checks import input_variable
from headrace.jobs.spec_parts import InputSpec
from headrace.tracking.runs import Run

_NAMED: Final = 5  # changes named
_TELL_S: Final = 10.0  # seconds between lines about how far a copy is


@dataclass(frozen=True, slots=True)
class _Input:
    """`given`: how the command gets it; `value`: of its variable; `folder`: what of this machine it must see."""

    spec: InputSpec
    pin: Pin
    given: str
    value: str
    folder: str | None


_Earlier: TypeAlias = tuple[Run, Mapping[str, Any]]
"""A run, and what it recorded of the input."""


class Inputs:
    """Pinned and ready once made; close it when the command is over. One thread.

    Args:
        specs: what is wanted, by name.
        site: for sources.
        folder: the run's; pins go into ``record/inputs``, mounts are at ``inputs/<name>``.
        run: the run's id.
        before: the run whose versions are taken again, for every input whose source is the same.
        tell: gets a line now and then.
        give: False: they are only pinned, and given elsewhere.

    Raises:
        NotFoundError: nothing there; NoRoomError: no room for a copy; ChangedError: a copy is wanted of an object that
        is another by now. All name ``inputs.NAME``. Any HeadraceError; then nothing is held.
    """

    def __init__(
        self,
        specs: Mapping[str, InputSpec],
        site: Site,
        folder: RunFolder,
        run: str,
        before: Run | None,
        tell: Callable[[str], None],
        *,
        give: bool = True,
    ) -> None:
        self._give = give
        self.notes: list[str] = []
        """What a user should know, one sentence each: what cannot be as it was."""
        self._site, self._folder, self._run, self._tell = site, folder, run, tell
        self._inputs: dict[str, _Input] = {}
        self._mounts: list[MountedInput] = []
        recorded = before.record().inputs if before is not None and specs else {}
        with ExitStack() as stack:
            for name, spec in specs.items():
                try:
                    earlier = (before, recorded[name]) if before is not None and name in recorded else None
                    self._inputs[name] = self._take(name, spec, earlier, stack)
                except HeadraceError as error:
                    where = f"inputs.{name}" if error.path is None else f"inputs.{name}: {error.path}"
                    raise type(error)(error.reason, path=where, hint=error.hint) from error
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Unmount, and let go of copies. Idempotent."""
        self._stack.close()

    def renew(self) -> None:
        """Before each attempt: mount again what is no longer served. Raises UnsupportedError."""
        for one in self._mounts:
            one.renew()

    def as_json(self) -> dict[str, Any]:
        """For the record: of each its pin, ``as`` (as wanted) and ``given`` (as it is)."""
        return {
            name: {**one.pin.as_json(), "as": one.spec.as_, "given": one.given} for name, one in self._inputs.items()
        }

    def variables(self) -> dict[str, str]:
        """What the command finds them by."""
        if not self._inputs:
            return {}
        found: dict[str, str] = {}
        for name, one in self._inputs.items():
            variable = one.spec.variable or input_variable(name)
            found[variable] = f"{found[variable]}{os.pathsep}{one.value}" if variable in found else one.value
        return {**found, INPUTS_VARIABLE: self._folder.recorded("inputs")}

    def binds(self) -> list[Bind]:
        """What a command in an image must see, all of it read-only."""
        if not self._inputs:
            return []
        folders = {one.folder: None for one in self._inputs.values() if one.folder is not None}
        return [Bind(folder) for folder in (*folders, self._folder.recorded("inputs"))]

    def _take(self, name: str, spec: InputSpec, earlier: _Earlier | None, stack: ExitStack) -> _Input:
        kept, told = self._folder.recorded("inputs", name), _Told(name, self._tell)
        pin = self._pin(name, spec, earlier, kept, told)
        self._tell(f"input {name}: {pin.objects} objects, {format_bytes(pin.bytes)}, of {pin.snapshot or pin.source}")
        if not self._give:
            return _Input(spec, pin, spec.as_, "", None)
        if spec.as_ == "name":
            return _Input(spec, pin, "name", pin.snapshot or f"run:{self._run}/{name}", None)
        objects = self._objects(pin, kept)
        if spec.as_ == "mount":
            point = self._folder.at("inputs", name)
            try:
                mounted = MountedInput(pin, kept, point, self._folder.at("inputs", f"{name}.log"))
            except HeadraceError as error:
                self._tell(f"input {name}: copied, because it cannot be mounted here: {error}")
            else:
                stack.callback(mounted.close)
                self._mounts.append(mounted)
                return _Input(spec, pin, "mount", _path(point, pin, objects), point)
        settings, told = self._site.settings, _Told(name, self._tell, "copied")
        held = copied(
            pin.place(self._site.namespace), objects, settings.run.cache, settings.run.copies, told,
            lambda: self._tell(f"input {name}: waits for another run, which makes or uses the same copy"),
        )  # fmt: skip
        stack.callback(held.close)
        data = data_of(held.folder)
        return _Input(spec, pin, "copy", _path(data, pin, objects), data)

    def _pin(self, name: str, spec: InputSpec, earlier: _Earlier | None, kept: str, told: _Told) -> Pin:
        namespace, settings = self._site.namespace, self._site.settings
        if earlier is not None:
            before, recorded = earlier
            where = before.store, f"{before.prefix}inputs/{name}/"
            pin = Pin.from_json(recorded, f"run:{before.id}/{name}")
            if pin.source == spec.source:
                pin = take_again(pin, where, kept, namespace=namespace, settings=settings)
                self._compare(name, pin, kept)
                return pin
        return take_pin(spec.source, kept, namespace=namespace, settings=settings, progress=told)

    def _compare(self, name: str, pin: Pin, kept: str) -> None:
        """Note what of an old pin cannot be had any more."""
        site = self._site
        changes = differences(pin, self._objects(pin, kept), namespace=site.namespace, settings=site.settings)
        found = change_summary(changes, _NAMED)
        if found:
            words = {"removed": "gone", "changed": "changed"}
            named = ", ".join(f"{one.key} ({words[one.kind]})" for one in found.first)
            more = " …" if found.removed + found.changed > len(found.first) else ""
            count = f"{found.removed + found.changed} of {pin.objects} objects cannot be had as they were"
            self.notes.append(f"input {name}: {count}, and are not read otherwise: {named}{more}")

    def _objects(self, pin: Pin, kept: str) -> Objects:
        return pin_objects(pin, kept, namespace=self._site.namespace, settings=self._site.settings)


class _Told:
    """Progress as a line every ten seconds. Any thread; a line too many does no harm."""

    def __init__(self, name: str, tell: Callable[[str], None], what: str = "listed") -> None:
        self._name, self._tell, self._what = name, tell, what
        self._items, self._size, self._of = 0, 0, 0
        self._next = time.monotonic() + _TELL_S

    def total(self, items: int | None, size: int | None = None) -> None:  # noqa: ARG002
        self._of = size or 0

    def advance(self, items: int = 1, size: int = 0) -> None:
        self._items += items
        self._size += size
        if time.monotonic() > self._next:
            self._next = time.monotonic() + _TELL_S
            of = f" of {format_bytes(self._of)}" if self._of else ""
            self._tell(f"input {self._name}: {self._what} {self._items} objects, {format_bytes(self._size)}{of}")


def _path(folder: str, pin: Pin, objects: Objects) -> str:
    """What the command is told: the folder, or the one file in it."""
    if not pin.single:
        return folder
    (name,) = (key for batch in objects.batches(("key",)) for key in batch["key"].to_pylist())
    return os.path.join(folder, name)
