"""Stages run on a sample between fetching and batching, in the order they were written."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, TypeAlias

from headrace.base.threads import by_cores, cores
from headrace.catalog import Stage, TakesColumns
from headrace.formats import Sample, own_arrays

_OPEN = by_cores(1, 8, 32)
"""Threads where nobody says how many, and nothing finds out."""

Call: TypeAlias = Callable[[Stage, Sample], Any]


class StageError(Exception):
    """The function of `stage` raised; its error is the cause. Internal: users see BadSampleError."""

    def __init__(self, stage: str, error: BaseException) -> None:
        super().__init__(stage)
        self.stage, self.error = stage, error


def run_stages(stages: Sequence[Stage], sample: Sample, call: Call | None = None) -> tuple[Sample, bool]:
    """(what became of the sample, whether it stays). `call` calls a stage's function, to look at it meanwhile. Raises
    StageError.
    """
    for stage in stages:
        try:
            made = stage.function(sample) if call is None else call(stage, sample)
            if stage.kind == "map":
                sample = made
                if isinstance(stage.function, TakesColumns):
                    sample = own_arrays(sample)
            elif not made:
                return None, False
        except BaseException as error:
            raise StageError(stage.name, error) from error
    return sample, True


def run_flat(stages: Sequence[Stage], samples: list[Sample], call: Call | None = None) -> list[Sample]:
    """The samples that become of some, in their order, where ``flat_map`` is among the stages. As `run_stages`."""
    one_by_one = list[Stage]()

    def through() -> list[Sample]:
        done = [run_stages(one_by_one, one, call) for one in samples]
        one_by_one.clear()
        return [one for one, stays in done if stays]

    for stage in stages:
        if stage.kind != "flat_map":
            one_by_one.append(stage)
            continue
        samples = through()
        function = stage.function if call is None else partial(call, stage)
        try:
            samples = [own_arrays(made) for one in samples for made in function(one)]
        except BaseException as error:
            raise StageError(stage.name, error) from error
    return through()


def is_flat(stages_by_leaf: Sequence[Sequence[Stage]]) -> bool:
    """Whether one sample may become several."""
    return any(stage.kind == "flat_map" for stages in stages_by_leaf for stage in stages)


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive stages that run at one place. `first`: the place of the first among those of its leaf. `number`:
    among the parts for worker processes; None: it is for threads.
    """

    first: int
    stages: tuple[Stage, ...]
    number: int | None = None


def parts_of(stages_by_leaf: Sequence[Sequence[Stage]]) -> list[list[Part]]:
    """Of each leaf, in the order they run."""
    found: list[list[Part]] = []
    count = 0
    for stages in stages_by_leaf:
        parts, first = list[Part](), 0
        for wants, group in groupby(stages, lambda stage: bool(stage.processes)):
            part = Part(first, tuple(group), count if wants else None)
            parts.append(part)
            first, count = first + len(part.stages), count + wants
        found.append(parts)
    return found


def processes_of(stages_by_leaf: Sequence[Sequence[Stage]]) -> int:
    """Worker processes for all of them: the most any stage asks for, 0 where none does."""
    return max((_processes(stage) for stages in stages_by_leaf for stage in stages), default=0)


def threads_of(stages_by_leaf: Sequence[Sequence[Stage]]) -> int:
    """Threads for all of them: the most any stage asks for, 0 where there is no stage. Where none does: one to a core,
    and several, as a function may wait for something else. To each worker process belongs one, which waits for it.
    """
    stages = [stage for each in stages_by_leaf for stage in each]
    asked = max((stage.threads for stage in stages), default=0)
    if not asked and not all(stage.processes for stage in stages):
        asked = _OPEN
    return max(asked, processes_of(stages_by_leaf))


def _processes(stage: Stage) -> int:
    return _all_cores() if stage.processes == "auto" else stage.processes


def _all_cores() -> int:
    """Of this process. Ranks on one machine share its cores, unless each is bound to some."""
    from headrace.loader.order.ranks import ranks_here  # here: worker processes import this module, and need it not

    mine = cores()
    return max(1, mine // ranks_here()) if mine == os.cpu_count() else mine


def key_in(sample: Sample, default: str) -> str:
    """The sample's ``__key__`` for messages."""
    if isinstance(sample, Mapping):
        return str(sample.get("__key__", default))
    return default
