"""Functions of samples: what an index states for its bytes, and what `map` and `filter` add, in the order they run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal


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


ANY_NUMBER = 0
"""Of threads: nobody said how many, and it is found while they run."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One user function. It runs on several threads at once; decoding runs in parallel where it releases the GIL, or in
    worker processes.
    """

    kind: str
    """``"map"``, ``"filter"`` or ``"flat_map"``."""
    function: Callable[[Any], Any]
    threads: int = ANY_NUMBER
    """How many, or `ANY_NUMBER`."""
    processes: int | Literal["auto"] = 0
    """Worker processes; ``"auto"``: as many as there are cores for it; 0: it runs on threads."""

    @property
    def keeps_count(self) -> bool:
        """Whether it gives one sample for each."""
        return self.kind == "map"

    @property
    def name(self) -> str:
        return f"{self.kind}({getattr(self.function, '__qualname__', type(self.function).__name__)})"
