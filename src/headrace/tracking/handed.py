"""What a training loop was handed at a step: from what its loaders said of themselves, and where they stood.

    <home>/runs/<id>/loaders/<name>.json     {"format": 1, "rank", "number", "time_us", "batch", "left", "share",
                                             "whole", "state", …}: of one loader; the rest: `headrace.dataset.recipe`

``state`` is where it began (`headrace.dataset.state`); ``left`` the samples of its rank's share of that epoch,
``share`` of every later one, null without an end; ``whole``: a last batch that is not full is left out.

With the last step that was logged in a second the metrics ``headrace/place/<number>/epoch`` and ``…/done`` say in which
epoch that loader is, and how many samples of its rank's share the loop has. The batch of a step between two of these is
found by counting, which is exact where the loop logs one step for each batch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from headrace.base.errors import CorruptError, UnsupportedError
from headrace.store.protocol import Store
from headrace.tracking.measured import Measured
from headrace.tracking.recorder import PLACE

FORMAT: Final = 1
FOLDER: Final = "loaders/"
_SLACK_US: Final = 5_000_000


@dataclass(frozen=True, slots=True)
class Handing:
    """A loader of one process. `batch`: samples of a batch, 1: it gives single ones. `told`: all that it said.

    `left`, `share`, `whole`, `state`: see above.
    """

    rank: int
    number: int
    time_us: int
    batch: int
    left: int | None
    share: int | None
    whole: bool
    state: Mapping[str, Any]
    told: Mapping[str, Any]

    def begins(self, epoch: int) -> int:
        """How many samples of an epoch's share were done when it began it."""
        return int(self.state["frontiers"][self.state["known"][0]]) if epoch == self.state["epoch"] else 0

    def batches(self, epoch: int) -> int | None:
        """Of an epoch. None: it does not end."""
        size = self.size(epoch)
        if size is None:
            return None
        left = max(0, size - self.begins(epoch))
        return left // self.batch if self.whole else -(-left // self.batch)

    def size(self, epoch: int) -> int | None:
        """Samples of its rank's share of an epoch. None: it does not end."""
        return self.left if epoch == self.state["epoch"] else self.share


@dataclass(frozen=True, slots=True)
class Handed:
    """A batch. `first`, `stop`: which samples of the rank's share of the epoch; `exact`: it is these, and no others."""

    by: Handing
    epoch: int
    first: int
    stop: int
    exact: bool


def handings(store: Store, prefix: str) -> list[Handing]:
    """Of a run, the earliest first: one listing, a GET each. `prefix`: of all of the run.

    Raises CorruptError, UnsupportedError, any store error.
    """
    keys = sorted(info.key for page in store.list(prefix + FOLDER) for info in page)
    return sorted((_handing(store.get(key).data, f"{store.url}/{key}") for key in keys), key=lambda one: one.time_us)


def _handing(data: memoryview, where: str) -> Handing:
    try:
        told = json.loads(bytes(data))
        if int(told["format"]) > FORMAT:
            raise UnsupportedError(f"has format {told['format']}, newer than this headrace knows", path=where)
        left, share = (None if told[name] is None else int(told[name]) for name in ("left", "share"))
        return Handing(
            int(told["rank"]), int(told["number"]), int(told["time_us"]), int(told["batch"] or 1), left, share,
            bool(told["whole"]), told["state"], told,
        )  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptError(f"is no record of a loader: {error!r}", path=where) from error


def handed(measured: Measured, known: list[Handing], step: int, rank: int) -> list[Handed]:
    """What the loop of a rank was handed at a step, by each of its loaders that told of steps around it.

    Raises any store error.
    """
    found: list[Handed] = []
    for number in sorted({one.number for one in known if one.rank == rank}):
        done = measured.around(f"{PLACE}{number}/done", rank, step)
        epochs = {(int(one["step"]), int(one["time"])): int(one["last"]) for one in measured.around(
            f"{PLACE}{number}/epoch", rank, step
        )}  # fmt: skip
        told = [
            (int(one["step"]), epochs[key], int(one["last"]), int(one["time"]))
            for one in done
            if (key := (int(one["step"]), int(one["time"]))) in epochs
        ]
        before = [_Stood(*one[:3]) for one in told if one[0] < step]
        after = [_Stood(*one[:3]) for one in told if one[0] >= step]
        by = _by(known, rank, number, told[-1][3]) if after else None
        if by is not None:
            found.append(_counted(by, before[-1] if before else None, after[0], step))
    return found


class _Stood(NamedTuple):
    step: int
    epoch: int
    done: int


def _by(known: list[Handing], rank: int, number: int, time_us: int) -> Handing | None:
    """Who had this number then: numbers begin again with each attempt."""
    there = [one for one in known if (one.rank, one.number) == (rank, number) and one.time_us <= time_us + _SLACK_US]
    return there[-1] if there else None


def _counted(by: Handing, before: _Stood | None, after: _Stood, step: int) -> Handed:
    if before is not None:
        told = _walked(by, before, after.step)
        if (told.epoch, told.stop) == (after.epoch, after.done):
            return replace(_walked(by, before, step), exact=True)
        if before.epoch == after.epoch:  # batches are not alike: samples were filtered, or steps hold several
            samples, steps = after.done - before.done, after.step - before.step
            first, stop = (before.done + samples * (step - one - before.step) // steps for one in (1, 0))
            exact = samples % steps == 0 and samples // steps % by.batch == 0
            return Handed(by, after.epoch, first, max(stop, first + 1), exact)
    found = _walked(by, after, step)
    count = sum(by.batches(epoch) or 0 for epoch in range(int(by.state["epoch"]), after.epoch))
    batches, rest = divmod(after.done - by.begins(after.epoch), by.batch)
    counted = count + batches + bool(rest) - after.step  # 0: steps are counted from 1; 1: from 0
    full = not rest or after.done == by.size(after.epoch)
    return replace(found, exact=before is None and counted in (0, 1) and full)


def _walked(by: Handing, stood: _Stood, step: int) -> Handed:
    """The batch so many steps from one that is known, where each step takes a batch."""
    epoch = stood.epoch
    at = -(-(stood.done - by.begins(epoch)) // by.batch) + step - stood.step
    while at < 1 and epoch > by.state["epoch"]:
        epoch -= 1
        at += by.batches(epoch) or 0
    while (count := by.batches(epoch)) is not None and 0 < count < at:
        at -= count
        epoch += 1
    begins, size = by.begins(epoch), by.size(epoch)
    first = begins + by.batch * (max(at, 1) - 1)
    stop = first + by.batch if size is None else min(first + by.batch, size)
    return Handed(by, epoch, first, max(stop, first), exact=False)
