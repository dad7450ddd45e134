"""What becomes of samples whose bytes are here: records opened, by columns where that is quicker; stages run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

from headrace.catalog import Stage, TakesColumns
from headrace.formats import size_of
from headrace.loader.pipeline.decode_effort import Effort
from headrace.loader.pipeline.run_stages import (
    Call,
    Part,
    StageError,
    is_flat,
    parts_of,
    run_flat,
    run_stages,
    threads_of,
)
from headrace.loader.pipeline.slots import Group, Planned, Slot
from headrace.loader.pipeline.worker_processes import Hands, Workers
from headrace.loader.pipeline.worker_program import Failed

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
        workers: for stages that ask for processes; None: all run on threads.
    """

    def __init__(self, stages: Sequence[Sequence[Stage]], batch: int | None, workers: Workers | None = None) -> None:
        self._stages, self._batch = stages, batch or 1
        self._decoders = _by_columns(stages)
        self._odd = 0
        self.columns = batch is not None and len(stages) == 1 and len(self._decoders) == len(stages[0])
        """Whether groups may be handed on as columns: nobody asks for single samples."""
        self._flat = is_flat(stages)
        self._hands: Hands | None = None if workers is None else workers.epoch()
        self._parts = parts_of(stages)
        most = _COLUMN_THREADS if self.columns else sys.maxsize
        self.threads = min(threads_of(stages), most) + (workers is not None)
        """How many threads should do it; 0 where there is nothing to do. One more than there are worker processes has
        the next samples ready for the one that is free first.
        """

    def run(
        self, group: Group, overhead: int, call: Call | None = None, away: Callable[[float], None] | None = None
    ) -> int:
        """All of it. Returns how many bytes more the group holds now. `overhead`: bytes of a sample beside its own;
        `call`: see `run_stages`; `away`: see `Hands.run`.
        """
        grown = overhead * group.count - group.size
        done = self.open(group)
        grown += group.column_bytes()
        for slot in group.slots:
            if slot.error is not None:
                slot.sample = None
            elif self._flat:
                slot.sample = [slot.sample]
        if self._hands is not None and away is not None:
            self._run_with(self._hands, group.slots, done, call, away)
        else:
            for slot in group.slots:
                self._run(slot, self._stages[slot.leaf][done:], call)
        for slot in group.slots:
            grown += size_of(slot.sample)
        group.size += grown
        return grown

    def effort(self, ours: Effort) -> Effort:
        """Of our threads, as given, and of worker processes. Any thread."""
        if self._hands is None:
            return ours
        on_threads = any(part.number is None for parts in self._parts for part in parts)
        ours = ours if on_threads else replace(ours, threads=0, mean_threads=0.0)
        return ours + self._hands.effort()

    def close(self) -> None:
        """Let threads go that wait for worker processes. Any thread."""
        if self._hands is not None:
            self._hands.close()

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

    def _run_with(
        self, hands: Hands, slots: Sequence[Slot], done: int, call: Call | None, away: Callable[[float], None]
    ) -> None:
        """Part by part, each for all samples of a leaf: what is for worker processes is handed over together."""
        for leaf in {slot.leaf for slot in slots}:
            ours = [slot for slot in slots if slot.leaf == leaf]
            for part in self._parts[leaf]:
                stages = part.stages[max(0, done - part.first) :]
                if part.number is not None:
                    self._hand_over(hands, part, ours, away)
                elif stages:
                    for slot in ours:
                        self._run(slot, stages, call)

    def _hand_over(self, hands: Hands, part: Part, slots: Sequence[Slot], away: Callable[[float], None]) -> None:
        live = [slot for slot in slots if slot.error is None and slot.kept]
        for slot, made in zip(live, hands.run(part, [slot.sample for slot in live], away), strict=True):
            if isinstance(made, Failed):
                slot.sample, slot.error = None, (made.stage, made.error.rebuild("a worker process"))
            else:
                slot.sample, slot.kept = made

    def _run(self, slot: Slot, stages: Sequence[Stage], call: Call | None) -> None:
        if slot.error is not None or not slot.kept:
            return
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
        if stage.kind != "map" or stage.processes or not isinstance(stage.function, TakesColumns):
            break
        able.append(stage.function)
    return able
