"""What a training loop was handed at a step: from what its loaders said of themselves, and where they stood.

    <home>/runs/<id>/loaders/<name>.json     {"format": 1, "rank", "number", "time_us", "batch", "state", …}: of one
                                             loader, what `headrace.dataset.recipe` and `headrace.dataset.state` say

With a step that is logged, and once a second at most, the metrics ``headrace/place/<number>/epoch`` and ``…/done`` say
in which epoch that loader is, and how many samples of its rank's share the loop has. The batch of a step between two
of these is found by counting, which is exact where each step takes as many samples.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace.base.errors import CorruptError, UnsupportedError
from headrace.store.protocol import Store
from headrace.tracking.measured import Measured
from headrace.tracking.recorder import PLACE

FORMAT: Final = 1
FOLDER: Final = "loaders/"
_SLACK_US: Final = 5_000_000


@dataclass(frozen=True, slots=True)
class Handing:
    """A loader of one process. `batch`: samples of a batch, None: it gives single ones. `recipe`: all that was told.

    `state`: where it began (`headrace.dataset.state`).
    """

    rank: int
    number: int
    time_us: int
    batch: int | None
    state: Mapping[str, Any]
    recipe: Mapping[str, Any]


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
        return Handing(
            int(told["rank"]), int(told["number"]), int(told["time_us"]),
            None if told["batch"] is None else int(told["batch"]), told["state"], told,
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
        before = [one for one in told if one[0] < step]
        after = [one for one in told if one[0] >= step]
        if not after:
            continue
        by = _by(known, rank, number, after[0][3])
        if by is not None:
            found.append(_between(by, before[-1][:3] if before else None, after[0][:3], step))
    return found


def _by(known: list[Handing], rank: int, number: int, time_us: int) -> Handing | None:
    """Who had this number then: numbers begin again with each attempt."""
    there = [one for one in known if (one.rank, one.number) == (rank, number) and one.time_us <= time_us + _SLACK_US]
    return there[-1] if there else None


def _between(
    by: Handing, before: tuple[int, int, int] | None, after: tuple[int, int, int], step: int
) -> Handed:  # fmt: skip
    """`before`, `after`: step, epoch and samples done."""
    usual = by.batch or 1
    if before is not None and before[1] == after[1]:
        samples, steps = after[2] - before[2], after[0] - before[0]
        each, rest = divmod(samples, steps)
        stop = before[2] + (samples * (step - before[0])) // steps
        return Handed(by, after[1], max(0, stop - max(1, each + bool(rest))), stop, not rest)
    stop = after[2] - usual * (after[0] - step)
    if stop > 0 or before is None:
        return Handed(by, after[1], max(0, stop - usual), max(stop, 1), step == after[0] and after[2] % usual == 0)
    stop = before[2] + usual * (step - before[0])
    return Handed(by, before[1], max(0, stop - usual), stop, exact=False)
