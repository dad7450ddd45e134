"""Stages run on a sample between fetching and batching, in the order they were written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from headrace.base.threads import by_cores
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


def run_flat(stages: Sequence[Stage], sample: Sample, call: Call | None = None) -> list[Sample]:
    """The samples that become of one, in their order, where ``flat_map`` is among the stages. As `run_stages`."""
    samples, one_by_one = [sample], list[Stage]()

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


def threads_of(stages_by_leaf: Sequence[Sequence[Stage]]) -> int:
    """Threads for all of them: the most any stage asks for, 0 where there is no stage. Where none does: one to a core,
    and several, as a function may wait for something else.
    """
    asked = [stage.threads for stages in stages_by_leaf for stage in stages]
    return max(asked, default=0) or (_OPEN if asked else 0)


def key_in(sample: Sample, default: str) -> str:
    """The sample's ``__key__`` for messages."""
    if isinstance(sample, Mapping):
        return str(sample.get("__key__", default))
    return default
