"""What becomes of samples whose bytes are here: records opened, by columns where that is quicker; stages run."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from headrace.catalog import Stage, TakesColumns
from headrace.formats import size_of
from headrace.loader.pipeline.run_stages import Call, StageError, run_flat, run_stages, threads_of
from headrace.loader.pipeline.slots import Group, Planned, Slot

_ODD = 16
"""Groups one after another that could not be made by columns, after which that is no longer tried."""
_COLUMN_THREADS = 2
"""Threads where all that they do is ours, by columns: half of it holds the interpreter's lock, and with more of them
most time goes into handing it over.
"""


class Transform:
    """Of one epoch's groups. Any thread.

    Args:
        stages: of each leaf.
        batch: samples in a batch; None: there are none.
    """

    def __init__(self, stages: Sequence[Sequence[Stage]], batch: int | None) -> None:
        self._stages, self._batch = stages, batch or 1
        self._decoders = _by_columns(stages)
        self._odd = 0
        self.columns = batch is not None and len(stages) == 1 and len(self._decoders) == len(stages[0])
        """Whether groups may be handed on as columns: nobody asks for single samples."""
        self._flat = any(stage.kind == "flat_map" for each in stages for stage in each)
        self.threads = min(threads_of(stages), _COLUMN_THREADS if self.columns else sys.maxsize)
        """How many threads should do it; 0 where there is nothing to do."""

    def run(self, group: Group, overhead: int, call: Call | None = None) -> int:
        """All of it. Returns how many bytes more the group holds now. `overhead`: bytes of a sample beside its own;
        `call`: see `run_stages`.
        """
        grown = overhead * group.count - group.size
        done = self.open(group)
        grown += group.column_bytes()
        for slot in group.slots:
            self._run(slot, done, call)
            grown += size_of(slot.sample)
        group.size += grown
        return grown

    def open(self, group: Group) -> int:
        """Make a group's samples, or columns. Returns how many stages are behind them already: what a format does is
        quicker for many records at once.
        """
        if isinstance(group, Planned) and not group.slots and (self.columns or self._decoders) and self._odd < _ODD:
            if group.open_columns(self._decoders):
                self._odd = 0
                if not self.columns:
                    group.spread()
                elif group.count >= self._batch:
                    group.gather()
                return len(self._decoders)
            self._odd += 1
        group.open()
        return 0

    def _run(self, slot: Slot, done: int, call: Call | None) -> None:
        if slot.error is not None:
            slot.sample = None
            return
        stages = self._stages[slot.leaf][done:]
        try:
            if self._flat:
                slot.sample = run_flat(stages, slot.sample, call)
                slot.kept = bool(slot.sample)
            else:
                slot.sample, slot.kept = run_stages(stages, slot.sample, call)
        except StageError as failed:
            slot.sample = None
            slot.error = (failed.stage, failed.error)


def _by_columns(stages: Sequence[Sequence[Stage]]) -> list[TakesColumns]:
    """The first stages of the only leaf, as far as they take columns."""
    if len(stages) != 1:
        return []
    able: list[TakesColumns] = []
    for stage in stages[0]:
        if stage.kind != "map" or not isinstance(stage.function, TakesColumns):
            break
        able.append(stage.function)
    return able
