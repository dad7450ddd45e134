"""What is under way: a slot holds one sample, a group a few consecutive slots, a frame what several windows share.

Completion is counted without locks: every target starts with a list of tokens n-1 … 0 and each arrival pops one
(``list.pop`` is atomic); whoever pops the 0 is the last and carries on.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from headrace.catalog import Rows, TakesColumns
from headrace.fetch import Ticket
from headrace.formats import Pieces, Weighed, join_rows, own_arrays, size_of


class Slot:
    """One sample on its way. `local`: its index in this stripe. `error`: (stage, exception)."""

    __slots__ = ("error", "group", "kept", "key", "leaf", "local", "sample", "tokens")

    def __init__(self, key: str, leaf: int, local: int, sample: Any, tokens: list[int]) -> None:
        self.key = key
        self.leaf = leaf
        self.local = local
        self.sample: Any = sample
        self.tokens = tokens
        self.error: tuple[str, BaseException] | None = None
        self.kept = True
        self.group: Group


class Group:
    """Slots that travel together: `count` of them. `raw`: bytes fetched for them; `size`: what they hold of the byte
    window. `columns`: instead of slots, the values of each name, where nobody looks at single samples: a list, or an
    array whose rows they are; `own`: nothing else looks into these arrays, so that a batch may be cut out of them.
    """

    __slots__ = (
        "columns", "count", "done", "done_at", "fetched_at", "number", "own", "raw", "size", "slots", "ticket",
        "tokens",
    )  # fmt: skip

    def __init__(self, number: int, slots: list[Slot], size: int) -> None:
        self.number = number
        self.slots = slots
        self.count = len(slots)
        self.columns: dict[str, Sequence[Any]] | None = None
        self.own = False
        self.size = self.raw = size
        self.tokens = list(range(len(slots)))
        self.done = False
        self.fetched_at = self.done_at = 0.0
        self.ticket: Ticket | None = None
        for slot in slots:
            slot.group = self

    def open(self) -> None:
        """Make the slots, where that waits until all is here; see `headrace.loader.pipeline.range_groups`."""

    def forget(self) -> None:
        """Let go of the samples: nobody wants them any more. Slots and groups refer to each other."""
        self.slots, self.columns = [], None

    def column_bytes(self) -> int:
        """Bytes held by `columns`, keys and names of shards apart."""
        columns = self.columns or {}
        return sum(
            values.nbytes if isinstance(values, Weighed) else size_of(values)
            for name, values in columns.items()
            if name not in ("__key__", "__shard__")
        )

    @property
    def locals(self) -> list[int]:
        """Every sample's index in this stripe."""
        return [slot.local for slot in self.slots]

    def arrived(self) -> bool:
        """One slot, or one read, is here; True for the last one."""
        if self.tokens.pop():
            return False
        self.fetched_at = time.perf_counter()
        return True


class Planned(Group, ABC):
    """Consecutive samples of one leaf, planned by arrays: `slots` is empty until somebody wants single ones."""

    __slots__ = ("_local", "leaf", "rows")

    def __init__(self, number: int, size: int, leaf: int, local: list[int], rows: Rows) -> None:
        super().__init__(number, [], size)
        self.count = len(local)
        self.leaf, self.rows, self._local = leaf, rows, local

    @property
    def locals(self) -> list[int]:
        return self._local

    @abstractmethod
    def open_columns(self, stages: Sequence[TakesColumns]) -> bool:
        """Make `columns` instead of slots, behind these stages. False: that cannot be done."""

    def gather(self) -> None:
        """Copy columns that are views of what was read, all rows at once: the batches are cut out of the copy."""
        columns = self.columns or {}
        arrays = {name: one for name, one in columns.items() if isinstance(one, np.ndarray) and not one.flags.owndata}
        copies = {name: join_rows([rows]) for name, rows in arrays.items()}
        self.own = all(rows is not None for rows in copies.values())
        if self.own:
            columns.update(cast("dict[str, Sequence[Any]]", copies))

    def spread(self) -> None:
        """From columns to samples."""
        columns, self.columns = self.columns or {}, None
        columns = {name: own_arrays(values) for name, values in columns.items()}
        names = list(columns)
        for local, row in zip(self._local, zip(*columns.values(), strict=True), strict=True):
            sample = dict(zip(names, row, strict=True))
            self.slots.append(Slot(sample["__key__"], self.leaf, local, sample, []))

    def through(self, stages: Sequence[TakesColumns], columns: dict[str, Any] | None) -> bool:
        """Make `columns` what these stages make of them. False: something is odd or bad; one by one it is told what."""
        try:
            for stage in stages:
                columns = None if columns is None else stage.columns(columns)
        except Exception:  # whatever it is, it belongs to one of them
            return False
        if columns is None:
            return False
        self.columns = {name: one.views() if isinstance(one, Pieces) else one for name, one in columns.items()}
        return True


class Frame:
    """One sample of a window's length, shared by the windows around it and alive as long as one of them is."""

    __slots__ = ("arrived", "error", "lock", "row", "sample", "tokens", "waiting")

    def __init__(self, row: int, sample: dict[str, Any], tokens: list[int], lock: threading.Lock) -> None:
        self.row = row
        self.sample = sample
        self.tokens = tokens
        self.error: tuple[str, BaseException] | None = None
        self.lock = lock
        self.arrived = not tokens
        self.waiting: list[Slot] = []

    def join(self, slot: Slot) -> bool:
        """Tell `slot` when all parts are here. False: they are here already."""
        with self.lock:
            if self.arrived:
                return False
            self.waiting.append(slot)
            return True

    def complete(self) -> list[Slot]:
        """All parts are here: the slots to tell."""
        with self.lock:
            self.arrived = True
            waiting, self.waiting = self.waiting, []
        return waiting


def join_frames(frames: list[Frame]) -> tuple[dict[str, Any], tuple[str, BaseException] | None]:
    """A window's sample: first key, every other name with the list of its values; and the first frame's error."""
    error = next((frame.error for frame in frames if frame.error is not None), None)
    if error is not None:
        return {"__key__": frames[0].sample["__key__"]}, error
    names = dict.fromkeys(name for frame in frames for name in frame.sample if name != "__key__")
    window: dict[str, Any] = {"__key__": frames[0].sample["__key__"]}
    for name in names:
        window[name] = [frame.sample.get(name) for frame in frames]
    return window, None
