"""What a training loop was handed at a step: from what its loaders said of themselves, and where they stood.

    <home>/runs/<id>/loaders/<name>.json     {"format": 1, "rank", "process", "attempt", "number", "time_us",
                                             "batch", "left", "share", "whole", "steady", "state", …}: of one
                                             loader; the rest: `headrace.loader.recipe`

``number`` is drawn by chance, so no other loader has it, of whichever process or attempt. ``process``: its id.
``state`` is where it began (`loader.order.progress_state`); ``left`` the samples of its rank's share of that epoch,
``share`` of every later one, null without an end; ``whole``: a last batch that is not full is left out; ``steady``:
every batch is made of the samples that come next, none is filtered out, skipped or overtaken.

With the last step that was logged in a second the metrics ``headrace/place/<number>/epoch`` and ``…/done`` say in which
epoch that loader is, and how many samples of its rank's share the loop has. The batch of a step between two of these is
found by counting, which is exact where the loop logs one step for each batch. It is not taken for exact where the count
does not come out, samples may have been left out, the step was reached more than once, or another loader of the same
process was at work meanwhile.
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


@dataclass(frozen=True, slots=True)
class Handing:
    """A loader of one process. `batch`: samples of a batch, 1: it gives single ones. `told`: all that it said.

    `left`, `share`, `whole`, `steady`, `state`: see above.
    """

    rank: int
    process: int
    attempt: int
    number: int
    time_us: int
    batch: int
    left: int | None
    share: int | None
    whole: bool
    steady: bool
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
            int(told["rank"]), int(told["process"]), int(told["attempt"]), int(told["number"]), int(told["time_us"]),
            int(told["batch"] or 1), left, share, bool(told["whole"]), bool(told["steady"]), told["state"], told,
        )  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptError(f"is no record of a loader: {error!r}", path=where) from error


class _Stood(NamedTuple):
    step: int
    epoch: int
    done: int
    time_us: int


@dataclass(frozen=True, slots=True)
class _Around:
    """Where a loader stood around a step. `after`: None, it was not reached; `times`: how often it was."""

    before: _Stood | None
    after: _Stood | None
    times: int


def handed(measured: Measured, known: list[Handing], step: int, rank: int) -> list[Handed]:
    """What the loop of a rank was handed at a step, by each of its loaders that told of steps around it; of several
    attempts by those of the last that came there.

    Raises any store error.
    """
    loaders: dict[int, list[Handing]] = {}
    for one in known:
        if one.rank == rank:
            loaders.setdefault(one.number, []).append(one)
    stood = {number: _around(measured, number, rank, step) for number in loaders}
    there = [number for number, one in stood.items() if one.after is not None]
    attempt = max((loaders[number][0].attempt for number in there), default=0)
    return [
        _handed(loaders, stood, number, step) for number in there if loaders[number][0].attempt == attempt
    ]  # fmt: skip


def _around(measured: Measured, number: int, rank: int, step: int) -> _Around:
    done, times = measured.around(f"{PLACE}{number}/done", rank, step)
    told, _ = measured.around(f"{PLACE}{number}/epoch", rank, step)
    epochs = {(int(one["step"]), int(one["time"])): int(one["last"]) for one in told}
    stood = [
        _Stood(int(one["step"]), epochs[key], int(one["last"]), int(one["time"]))
        for one in done
        if (key := (int(one["step"]), int(one["time"]))) in epochs
    ]
    after = stood.pop() if times and stood else None
    return _Around(stood[-1] if stood else None, after, times)


def _handed(loaders: Mapping[int, list[Handing]], stood: Mapping[int, _Around], number: int, step: int) -> Handed:
    """Of one that was there. Its `exact` stands only where nothing speaks against it."""
    own = stood[number]
    after, before = own.after, own.before
    assert after is not None
    told = [one for one in loaders[number] if one.time_us <= after.time_us]
    by = told[-1] if told else loaders[number][0]  # a clock was set back
    if before is not None and before.time_us < by.time_us:
        before = None  # it has begun anew since
    beside = [
        stood[other]
        for other, one in loaders.items()
        if other != number and (one[0].process, one[0].attempt) == (by.process, by.attempt)
    ]
    alone = not any(_is_between(one, before, after) for one in beside)
    found = _counted(by, before, after, step)
    return replace(found, exact=found.exact and by.steady and alone and own.times == 1 and bool(told))


def _is_between(other: _Around, before: _Stood | None, after: _Stood) -> bool:
    """Whether it stood anywhere from the one to the other. What is known of it is what lies nearest to the step."""
    first = before.step if before is not None else float("-inf")
    return any(one is not None and first <= one.step <= after.step for one in (other.before, other.after))


def _counted(by: Handing, before: _Stood | None, after: _Stood, step: int) -> Handed:
    if before is not None:
        told = _walked(by, before, after.step)
        if (told.epoch, told.stop) == (after.epoch, after.done):
            return replace(_walked(by, before, step), exact=True)
        samples, steps = after.done - before.done, after.step - before.step
        if before.epoch == after.epoch and samples > 0:  # samples were left out, or steps hold several batches
            first, stop = (before.done + samples * (step - one - before.step) // steps for one in (1, 0))
            return Handed(by, after.epoch, first, max(stop, first + 1), steps == 1 and samples % by.batch == 0)
        if (before.epoch, before.done) == (after.epoch, after.done):  # the loop went on with what it had
            return _walked(by, after, after.step)
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
