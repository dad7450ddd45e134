"""Which of a run's checkpoints is the newest: the one whose marker was committed last.

Their names say nothing of it (``epoch=02-val_loss=0.90``, ``iter-900-of-1000``, ``last``), so they decide only between
markers of which nothing else is known: those of one moment, as far as marker and store tell it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from headrace.base.threads import REQUESTS_AT_ONCE, Threads
from headrace.tracking.runs import Run
from headrace.upload import Committed, committed

_NAMED: Final = 3
"""Checkpoints that a sentence names; of more it says how many."""
_NUMBER: Final = re.compile("[0-9]+")


@dataclass(frozen=True, slots=True)
class Newest:
    """A complete checkpoint's name. `alike`: others that were committed in the same moment; then names decided."""

    name: str
    alike: tuple[str, ...] = ()

    @property
    def doubt(self) -> str:
        """What is to be said behind its name; empty, where it is known to be the newest."""
        if not self.alike:
            return ""
        others = ", ".join(self.alike[:_NAMED])
        others += f" and {len(self.alike) - _NAMED} more" if len(self.alike) > _NAMED else ""
        return f" (by its name: committed at the same time as {others})"


class _Candidate(NamedTuple):
    """In their order."""

    when: Committed
    numbers: tuple[int, ...]
    name: str


def newest_checkpoint(run: Run) -> Newest | None:
    """The newest complete checkpoint; None: there is none. One LIST, and one GET for each. Raises as `Store.get`.

    A marker that cannot be read counts by the store's time: `bring_checkpoint` says what is wrong with it.
    """
    prefix = f"{run.prefix}checkpoints/"
    names = [folder[len(prefix) :].rstrip("/") for folder in run.store.list_folder(prefix).folders]
    with Threads(REQUESTS_AT_ONCE, thread_name_prefix="headrace-newest") as pool:
        times = list(pool.map(partial(committed, run.store), [prefix + name for name in names]))
    told = zip(names, times, strict=True)
    found = [_Candidate(when, _numbers(name), name) for name, when in told if when is not None]
    if not found:
        return None
    newest = max(found)
    alike = [one.name for one in sorted(found, reverse=True) if one.when == newest.when and one is not newest]
    return Newest(newest.name, tuple(alike))


def _numbers(name: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in _NUMBER.findall(name))
