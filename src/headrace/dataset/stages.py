"""What happens to a sample between fetching and batching: `map` and `filter`, in the order they were written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from headrace.dataset.batch import Sample, own_arrays


class TakesColumns(ABC):
    """A function of a ``map`` stage that can do several samples at once. Said by being one of these: users' functions
    may have attributes of any name.
    """

    __slots__ = ()

    @abstractmethod
    def columns(self, columns: Mapping[str, Sequence[Any]], /) -> dict[str, Sequence[Any]] | None:
        """What becomes of samples given as the values [n] of each name, lists, `Pieces` or arrays
        whose rows they are; None where they have to be
        made one by one. May raise whatever it raises for one of them: one by one it is told whose it is. Any thread.
        """


@dataclass(frozen=True, slots=True)
class Stage:
    """One user function. It runs on several threads at once; decoding runs in parallel where it releases the GIL."""

    kind: str
    """``"map"`` or ``"filter"``."""
    function: Callable[[Any], Any]
    threads: int = 8

    @property
    def name(self) -> str:
        return f"{self.kind}({getattr(self.function, '__qualname__', type(self.function).__name__)})"


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


def threads_of(stages_by_leaf: Sequence[Sequence[Stage]]) -> int:
    """Decode threads for all of them: the most any stage asks for, 0 where there is no stage."""
    return max((stage.threads for stages in stages_by_leaf for stage in stages), default=0)


def key_in(sample: Sample, default: str) -> str:
    """The sample's ``__key__`` for messages."""
    if isinstance(sample, Mapping):
        return str(sample.get("__key__", default))
    return default
