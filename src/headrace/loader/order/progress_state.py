"""State: which positions of an epoch are done. Small, exact, and independent of ranks, workers and batch sizes.

An epoch's positions, less those done before the last change of striping, form the *residual* stream: first the
`holes` (positions below `start` not yet done), then `start`, `start` + 1 … It is dealt to `stripes` (ranks times
workers) in grains; a stripe is done up to its `frontier`, plus the indices in `ahead` (samples that overtook).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, NamedTuple, TypeAlias, overload

import numpy as np

from headrace.base.errors import ChangedError, InputError
from headrace.loader.order.order import Ints

VERSION = 1
"""Of a state that an older headrace can go on from, too."""
_INSIDE = 2
"""Of one that stands among the samples that became of one."""
Inside: TypeAlias = Sequence[tuple[int, tuple[int, ...]]]
"""Of samples that are not done: where each stands, and of those that became of it (by `flat_map`; else there is one, of
number 0) the numbers that are done. `handed_out` numbers are those that `unbatch` gave of a batch that is not through.
"""
State: TypeAlias = dict[str, Any]


def handed_out(number: int) -> int:
    """As such a number stands in `Inside`; and back."""
    return -1 - number


def merged(inside: Inside) -> dict[int, tuple[int, ...]]:
    """By place, each of which may be there several times."""
    found: dict[int, set[int]] = {}
    for at, numbers in inside:
        found.setdefault(at, set()).update(numbers)
    return {at: tuple(sorted(found[at])) for at in sorted(found)}


class PartOf(Sequence[tuple[int, tuple[int, ...]]]):
    """An `Inside`: all of `before`, and the first `count` of `more`, which many of these share."""

    __slots__ = ("_before", "_count", "_more")

    def __init__(self, before: Inside, more: Inside, count: int) -> None:
        self._before, self._more, self._count = before, more, count

    def __len__(self) -> int:
        return len(self._before) + self._count

    @overload
    def __getitem__(self, index: int) -> tuple[int, tuple[int, ...]]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[int, tuple[int, ...]]]: ...
    def __getitem__(self, index: Any) -> Any:
        return [*self._before, *self._more[: self._count]][index]

    def __iter__(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        return chain(self._before, islice(self._more, self._count))

    def __reduce__(self) -> tuple[Any, ...]:
        return PartOf, (self._before, self._more, self._count)


class Progress(NamedTuple):  # one for each batch: a frozen dataclass takes four times as long
    """How far one stripe is: all its indices below `frontier` and those in `ahead` are done.

    `even`: so far every index delivered a sample, so the other stripes may be assumed to stand where this one does.
    """

    frontier: int = 0
    ahead: tuple[int, ...] = ()
    even: bool = True
    inside: Inside = ()
    """Own indices that are not done, and what of them is."""


@dataclass(frozen=True, slots=True)
class Residual:
    """What was left of an epoch when its present striping began, and how it is dealt out."""

    epoch: int = 0
    stripes: int = 1
    grain: int = 1
    start: int = 0
    holes: tuple[int, ...] = ()
    inside: Inside = ()
    """Positions that were not done then, and what of them was."""

    def size(self, total: int | None) -> int | None:
        """Positions left at the start of this striping, of an epoch of `total`."""
        return None if total is None else len(self.holes) + max(0, total - self.start)

    def stripe_size(self, stripe: int, total: int | None) -> int | None:
        """How many of them fall to one stripe."""
        size = self.size(total)
        if size is None:
            return None
        grains, rest = divmod(size, self.grain)
        rounds, extra = divmod(grains, self.stripes)
        return (rounds + (stripe < extra)) * self.grain + (rest if stripe == extra else 0)

    def index(self, stripe: int, local: Ints) -> Ints:
        """A stripe's own indices → indices of the residual stream."""
        if self.grain == 1:
            return local * self.stripes + stripe
        return (local // self.grain * self.stripes + stripe) * self.grain + local % self.grain

    def positions(self, index: Ints) -> Ints:
        """Indices of the residual stream → positions of the epoch."""
        if not self.holes:
            return index + self.start
        holes = np.asarray(self.holes, dtype=np.int64)
        return np.where(index < len(holes), holes[np.minimum(index, len(holes) - 1)], index - len(holes) + self.start)


    def local(self, stripe: int, position: int) -> int | None:
        """The stripe's own index of a position; None: it is done, or another stripe's."""
        if position in self.holes:
            index = self.holes.index(position)
        elif position >= self.start:
            index = position - self.start + len(self.holes)
        else:
            return None
        grains, rest = divmod(index, self.grain)
        rounds, owner = divmod(grains, self.stripes)
        return rounds * self.grain + rest if owner == stripe else None


def dump(fingerprint: str, order: str, base: Residual, stripe: int, progress: Progress) -> State:
    """One stripe's state as a JSON-able dict. It tells the truth about its own stripe and, in `even`, whether the
    others may be assumed to be as far.
    """
    inside = {"inside": _told(progress.inside), "inside_before": _told(base.inside)}
    is_inside = bool(progress.inside or base.inside)
    return {
        "version": _INSIDE if is_inside else VERSION,
        "fingerprint": fingerprint,
        "order": order,
        "epoch": base.epoch,
        "start": base.start,
        "holes": list(base.holes),
        "stripes": base.stripes,
        "grain": base.grain,
        "frontiers": [progress.frontier] * base.stripes,
        "ahead": [list(progress.ahead) if one == stripe else [] for one in range(base.stripes)],
        "known": [stripe],
        "even": progress.even,
        **(inside if is_inside else {}),
    }


def beginning(state: State, epoch: int) -> State:
    """The state of the same stripe at the start of an epoch."""
    stripes = range(int(state["stripes"]))
    found = {name: value for name, value in state.items() if name not in ("inside", "inside_before")}
    found |= {"version": VERSION, "epoch": epoch, "start": 0, "holes": [], "even": True}
    return found | {"frontiers": [0 for _ in stripes], "ahead": [[] for _ in stripes]}


def _told(inside: Inside) -> list[list[Any]]:
    return [[at, list(numbers)] for at, numbers in merged(inside).items()]


def _read(state: State, name: str) -> Inside:
    return tuple((int(at), tuple(map(int, numbers))) for at, numbers in state.get(name, ()))


@dataclass(frozen=True, slots=True)
class _Merged:
    base: Residual
    frontiers: dict[int, int]
    ahead: dict[int, tuple[int, ...]]
    even: bool
    """True: stripes that are not known stand where the known one stands."""
    inside: dict[int, Inside]

    def frontier(self, stripe: int, total: int | None) -> int:
        """Raises InputError when nothing is known of this stripe."""
        if stripe in self.frontiers:
            return self.frontiers[stripe]
        common = max(self.frontiers.values())
        if not self.even or any(found != self._stands(one, common, total) for one, found in self.frontiers.items()):
            raise InputError(
                f"the state says nothing of stripe {stripe} of {self.base.stripes}, and the stripes differ",
                hint="samples were skipped, filtered or overtaken: load the list of all ranks' states",
            )
        return self._stands(stripe, common, total)

    def _stands(self, stripe: int, frontier: int, total: int | None) -> int:
        """Where a stripe is when others are at `frontier`."""
        size = self.base.stripe_size(stripe, total)
        return frontier if size is None else min(frontier, size)


def load(
    states: State | Sequence[State],
    fingerprint: str,
    order: str,
    total: int | None,
    stripe: int,
    stripes: int,
    grain: int,
) -> tuple[Residual, Progress]:
    """Where stripe `stripe` of `stripes` continues.

    `states`: one rank's state, or those of all ranks in any order. The rest describes the stream that continues.

    Raises:
        ChangedError: the state belongs to other data or another order.
        InputError: malformed, contradictory, or too little is known (see its hint).
    """
    listed: list[Any] = list(states) if isinstance(states, (list, tuple)) else [states]
    merged = _merge(listed, fingerprint, order, total)
    base = merged.base
    if base.stripes == stripes and base.grain == grain:
        even = merged.even and (len(merged.frontiers) == 1 or len(set(merged.frontiers.values())) == 1)
        ahead, inside = merged.ahead.get(stripe, ()), merged.inside.get(stripe, ())
        return base, Progress(merged.frontier(stripe, total), ahead, even, inside)
    return _restripe(merged, total, stripes, grain), Progress()


def _merge(states: Sequence[State], fingerprint: str, order: str, total: int | None) -> _Merged:
    if not states:
        raise InputError("no state to load", hint="pass one state_dict(), or the list of all ranks'")
    for state in states:
        _check(state, fingerprint, order)
    epoch = min(int(state["epoch"]) for state in states)
    current = [state for state in states if state["epoch"] == epoch]
    first = current[0]
    holes, before = tuple(first["holes"]), _read(first, "inside_before")
    base = Residual(epoch, first["stripes"], first["grain"], first["start"], holes, before)
    inside: dict[int, Inside] = {}
    frontiers: dict[int, int] = {}
    ahead: dict[int, tuple[int, ...]] = {}
    for state in states:
        finished = state["epoch"] == epoch + 1 and not any(state["frontiers"]) and not state["start"]
        same = (state["stripes"], state["grain"]) == (base.stripes, base.grain)
        if not same or not (finished or (state["epoch"], state["start"]) == (epoch, base.start)):
            raise InputError("these states are not of one moment", hint="save the states of all ranks at the same step")
        for stripe in state["known"]:
            frontiers[stripe] = (base.stripe_size(stripe, total) or 0) if finished else state["frontiers"][stripe]
            ahead[stripe] = () if finished else tuple(state["ahead"][stripe])
            inside[stripe] = () if finished else _read(state, "inside")
    even = all(state["even"] for state in states) and not any(ahead.values()) and len(current) == len(states)
    return _Merged(base, frontiers, ahead, even, inside)


def _check(state: State, fingerprint: str, order: str) -> None:
    fields = {
        "fingerprint",
        "order",
        "epoch",
        "start",
        "holes",
        "stripes",
        "grain",
        "frontiers",
        "ahead",
        "known",
        "even",
    }
    if not isinstance(state, Mapping) or state.get("version") not in (VERSION, _INSIDE) or not fields <= state.keys():
        raise InputError("this is not a loader's state of version 1", hint="pass what state_dict() returned")
    if state["fingerprint"] != fingerprint:
        raise ChangedError(
            f"the state belongs to other data or another order: {state['order']}, here: {order}",
            hint="open the same snapshot with the same shuffle, take, windows and mix",
        )


def _restripe(merged: _Merged, total: int | None, stripes: int, grain: int) -> Residual:
    """The same epoch with what is left dealt to another number of stripes."""
    base = merged.base
    every = range(base.stripes)
    # A stripe that was made as long as others may have had some of its own once more.
    sizes = [base.stripe_size(one, total) for one in every]
    frontiers = [merged.frontier(one, total) for one in every]
    frontier = [one if size is None else min(one, size) for one, size in zip(frontiers, sizes, strict=True)]
    fronts = (
        base.index(0, np.asarray(frontier, dtype=np.int64))
        if base.stripes == 1
        else np.concatenate([base.index(one, np.asarray([frontier[one]], dtype=np.int64)) for one in every])
    )
    # Stripes that are through must not hold the common lower edge down, nor push the upper edge past the end.
    size = base.size(total)
    low = int(fronts.min()) if size is None else min(int(fronts.min()), size)
    tops = [
        base.index(one, np.asarray([frontier[one] - 1, *merged.ahead.get(one, ())], dtype=np.int64)).max() + 1
        for one in every
        if frontier[one] or merged.ahead.get(one)
    ]
    high = max([len(base.holes), low, *(int(top) for top in tops)])
    done = np.zeros(high - low, dtype=bool)
    for one in every:
        local = np.arange(_first_local(base, low), frontier[one], dtype=np.int64)
        index = np.concatenate(
            [base.index(one, local), base.index(one, np.asarray(merged.ahead.get(one, ()), dtype=np.int64))]
        )
        done[index[index >= low] - low] = True
    left = base.positions(np.flatnonzero(~done).astype(np.int64) + low)
    start = base.start + high - len(base.holes)
    inside = dict(base.inside)
    for one, found in merged.inside.items():
        for local, numbers in found:
            inside[int(base.positions(base.index(one, np.asarray([local], np.int64)))[0])] = numbers
    holes = tuple(int(position) for position in left)
    return Residual(base.epoch, stripes, grain, start, holes, tuple(sorted(inside.items())))


def _first_local(base: Residual, low: int) -> int:
    """A stripe index whose residual index is not above `low`, for any stripe."""
    return max(0, low // (base.stripes * base.grain) - 1) * base.grain
