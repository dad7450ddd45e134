"""Order and state against plain models: bijective, random-looking, exactly once over any history of runs."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.errors import ChangedError, InputError
from headrace.loader.order.order import Permutation, Repeat, Rows, Shuffle, Stream, Take, straight
from headrace.loader.order.progress_state import Progress, Residual, dump, load
from headrace.loader.order.weighted_mix import Join, Mix, block_counts

keys = st.integers(0, 2**64 - 1)


@given(size=st.integers(1, 30_000), key=keys)
def test_a_permutation_is_a_bijection(size: int, key: int) -> None:
    found = Permutation(size, key)(np.arange(size))
    assert np.array_equal(np.sort(found), np.arange(size))


@given(size=st.integers(1, 2**60), key=keys, data=st.data())
def test_any_part_of_a_huge_permutation_is_computable_and_injective(size: int, key: int, data: st.DataObject) -> None:
    some = data.draw(st.lists(st.integers(0, size - 1), unique=True, max_size=50))
    found = Permutation(size, key)(np.asarray(some, dtype=np.int64))
    assert len(set(found.tolist())) == len(some)
    assert all(0 <= value < size for value in found.tolist())


@pytest.mark.parametrize("size", [1000, 4096, 4097, 100_003])
def test_a_permutation_looks_random(size: int) -> None:
    """Chi-squared on where each tenth of the positions lands, and on the distance between neighbours; pooled over
    keys. 81 and 9 degrees of freedom, so 160 and 40 lie beyond p = 1e-6 and 1e-5."""
    cells = np.zeros((10, 10))
    gaps = np.zeros(10)
    for key in range(20):
        found = Permutation(size, key * 7919 + 1)(np.arange(size))
        np.add.at(cells, (np.arange(size) * 10 // size, found * 10 // size), 1)
        gap = np.diff(found) % size
        np.add.at(gaps, gap * 10 // size, 1)
    assert ((cells - cells.mean()) ** 2 / cells.mean()).sum() < 160
    assert ((gaps - gaps.mean()) ** 2 / gaps.mean()).sum() < 40


def test_permutations_of_three_are_all_reached_evenly() -> None:
    seen: dict[tuple[int, ...], int] = {}
    for key in range(6000):
        order = tuple(Permutation(3, key * 104_729)(np.arange(3)).tolist())
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 6
    assert max(seen.values()) < 1.2 * min(seen.values())


def test_the_order_never_changes_between_versions() -> None:
    """A state saved today must mean the same samples in every later version."""
    assert Permutation(10, 42)(np.arange(10)).tolist() == PINNED_SMALL
    assert Permutation(1_000_000, 42)(np.arange(5)).tolist() == PINNED_LARGE
    assert Shuffle(Rows(10, ""), 7).locate(3, np.arange(10))[1].tolist() == PINNED_SHUFFLE


PINNED_SMALL = [8, 1, 5, 7, 4, 6, 0, 3, 9, 2]
PINNED_LARGE = [899216, 901342, 354512, 365905, 859397]
PINNED_SHUFFLE = [0, 3, 6, 2, 1, 4, 7, 5, 9, 8]


@given(size=st.integers(1, 400), grain=st.integers(1, 9), seed=st.integers(0, 99), epoch=st.integers(0, 3))
def test_shuffled_blocks_cover_everything_once_and_stay_together(size: int, grain: int, seed: int, epoch: int) -> None:
    rows = Shuffle(Rows(size, "", grain), seed).locate(epoch, np.arange(size))[1]
    assert np.array_equal(np.sort(rows), np.arange(size))
    breaks = int((np.diff(rows) != 1).sum())
    assert breaks <= -(-size // grain)


@given(
    sizes=st.lists(st.integers(1, 600), min_size=1, max_size=4),
    weights=st.lists(st.floats(0.01, 10), min_size=4, max_size=4),
    seed=st.integers(0, 99),
)
def test_a_mix_repeats_nothing_and_keeps_each_streams_order(sizes: list[int], weights: list[float], seed: int) -> None:
    counts = block_counts(weights[: len(sizes)])
    mix = Mix(tuple(Rows(size, "") for size in sizes), tuple(1 for _ in sizes), counts, seed)
    leaf, row = mix.locate(0, np.arange(mix.size or 0))
    for number, size in enumerate(sizes):
        own = row[leaf == number]
        assert np.array_equal(own, np.arange(len(own)))
        assert len(own) <= size
    assert any(int((leaf == number).sum()) == size for number, size in enumerate(sizes))


def test_a_mix_keeps_its_weights_in_every_block() -> None:
    mix = Mix((Rows(10**6, ""), Rows(10**6, "")), (1, 1), block_counts([3, 1]), 0)
    leaf, _ = mix.locate(0, np.arange(2560))
    assert (leaf.reshape(-1, 256) == 0).sum(axis=1).tolist() == [192] * 10


def test_an_epoch_looks_the_same_in_pieces_and_in_one() -> None:
    children: tuple[Stream, ...] = (Repeat(Shuffle(Rows(11, ""), 1), None), Shuffle(Rows(5000, ""), 2))
    stream = Take(Mix(children, (1, 1), block_counts([1, 2]), 3), 3000)
    whole = stream.locate(4, np.arange(3000))
    one_by_one = [stream.locate(4, np.asarray([position])) for position in range(0, 3000, 37)]
    assert [int(leaf[0]) for leaf, _ in one_by_one] == whole[0][::37].tolist()
    assert [int(row[0]) for _, row in one_by_one] == whole[1][::37].tolist()


@given(sizes=st.lists(st.integers(1, 300), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_a_mix_without_weights_has_every_sample_once(sizes: list[int], seed: int) -> None:
    join = Join(tuple(Rows(size, "") for size in sizes), tuple(1 for _ in sizes), seed)
    leaf, row = join.locate(1, np.arange(join.size or 0))
    assert sorted(zip(leaf.tolist(), row.tolist(), strict=True)) == [
        (number, one) for number, size in enumerate(sizes) for one in range(size)
    ]


class History:
    """Runs and kills over one epoch: each stripe delivers some indices, in any order within a window."""

    def __init__(self, total: int, grain: int) -> None:
        self.total, self.grain = total, grain
        self.seen: list[int] = []
        self.states: list[dict[str, object]] = []

    def run(self, data: st.DataObject, stripes: int, window: int, *, even: bool) -> None:
        states: list[dict[str, object]] = []
        common = data.draw(st.integers(0, self.total // stripes + 1)) if even else None
        for stripe in range(stripes):
            base, progress = self._start(stripe, stripes)
            size = base.stripe_size(stripe, self.total) or 0
            left = [one for one in range(progress.frontier, size) if one not in progress.ahead]
            steps = min(common, len(left)) if common is not None else data.draw(st.integers(0, len(left)))
            done: list[int] = []
            while len(done) < steps:
                free = [one for one in left[: window + len(done)] if one not in done]
                done.append(
                    free[0] if common is not None else free[data.draw(st.integers(0, min(window, len(free)) - 1))]
                )
            index = base.index(stripe, np.asarray(done, dtype=np.int64))
            self.seen += base.positions(index).tolist()
            states.append(json.loads(json.dumps(dump("f", "o", base, stripe, self._after(progress, done, even=even)))))
        self.states = states

    def _start(self, stripe: int, stripes: int) -> tuple[Residual, Progress]:
        if not self.states:
            return Residual(0, stripes, self.grain), Progress()
        return load(self.states, "f", "o", self.total, stripe, stripes, self.grain)

    @staticmethod
    def _after(before: Progress, done: list[int], *, even: bool) -> Progress:
        every = {*before.ahead, *done}
        frontier = before.frontier
        while frontier in every:
            frontier += 1
        ahead = tuple(sorted(one for one in every if one > frontier))
        return Progress(frontier, ahead, even and before.even and not ahead)


@settings(max_examples=200, deadline=None)
@given(total=st.integers(1, 150), grain=st.sampled_from([1, 1, 4]), data=st.data())
def test_exactly_once_over_random_histories_of_ranks_and_kills(total: int, grain: int, data: st.DataObject) -> None:
    """Every position once, whatever the ranks, windows and kill points, from the list of all ranks' states."""
    history = History(total, grain)
    for _ in range(data.draw(st.integers(1, 4))):
        history.run(data, data.draw(st.integers(1, 5)), data.draw(st.integers(1, 6)), even=False)
    for stripe in range(data.draw(st.just(3))):
        base, progress = history._start(stripe, 3)
        size = base.stripe_size(stripe, total) or 0
        left = [one for one in range(progress.frontier, size) if one not in progress.ahead]
        history.seen += base.positions(base.index(stripe, np.asarray(left, dtype=np.int64))).tolist()
    assert sorted(history.seen) == list(range(total))


@settings(max_examples=100, deadline=None)
@given(total=st.integers(1, 150), data=st.data())
def test_one_ranks_state_is_enough_where_ranks_advance_alike(total: int, data: st.DataObject) -> None:
    history = History(total, 1)
    for _ in range(data.draw(st.integers(1, 3))):
        history.run(data, data.draw(st.integers(1, 5)), 1, even=True)
        # Any rank that stands at the common point speaks for all.
        furthest = max(history.states, key=lambda state: state["frontiers"][0])  # type: ignore[index]
        history.states = [furthest]
    base = load(history.states, "f", "o", total, 0, 1, 1)[0]
    rest = range(load(history.states, "f", "o", total, 0, 1, 1)[1].frontier, base.stripe_size(0, total) or 0)
    history.seen += base.positions(base.index(0, np.asarray(rest, dtype=np.int64))).tolist()
    assert sorted(history.seen) == list(range(total))


def test_a_state_of_other_data_is_refused_by_name() -> None:
    state = dump("abc", "shuffle(7, here[10])", Residual(), 0, Progress(4))
    with pytest.raises(ChangedError, match=r"here\[10\]"):
        load(state, "xyz", "shuffle(8, there[10])", 10, 0, 1, 1)


def test_one_uneven_state_is_not_enough_for_other_ranks() -> None:
    state = dump("f", "o", Residual(0, 2), 0, Progress(4, (), even=False))
    assert load(state, "f", "o", 20, 0, 2, 1)[1].frontier == 4
    with pytest.raises(InputError, match="list of all ranks"):
        load(state, "f", "o", 20, 1, 2, 1)
    with pytest.raises(InputError, match="list of all ranks"):
        load(state, "f", "o", 20, 0, 3, 1)


def test_some_states_that_differ_do_not_speak_for_the_others() -> None:
    """As two workers of one rank have between two turns."""
    some = [dump("f", "o", Residual(0, 4), stripe, Progress(at)) for stripe, at in ((0, 3), (2, 2))]
    with pytest.raises(InputError, match="list of all ranks"):
        load(some, "f", "o", 40, 0, 3, 1)
    ended = [dump("f", "o", Residual(0, 4), stripe, Progress(at)) for stripe, at in ((0, 11), (2, 10))]
    assert load(ended, "f", "o", 42, 0, 3, 1)[0].size(42) == 0  # stripes 2 and 3 have one less


@pytest.mark.parametrize("state", [{}, {"version": 2}, 7, []])
def test_nonsense_is_refused(state: object) -> None:
    with pytest.raises(InputError):
        load(state, "f", "o", 10, 0, 1, 1)  # type: ignore[arg-type]


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 3), st.integers(0, 200), st.integers(1, 60))
def test_what_is_said_to_be_straight_is(size: int, count: int, epoch: int, first: int, length: int) -> None:
    rows = Rows(size, "")
    finite: tuple[Stream, ...] = (rows, Take(rows, count), Repeat(rows, 3), Take(Repeat(rows, None), count))
    mixed: tuple[Stream, ...] = (Repeat(Take(rows, count), 2), Shuffle(rows, 1), Repeat(Shuffle(rows, 1), 2))
    for stream in (*finite, *mixed, Repeat(rows, None)):
        stop = first + length
        if stream.size is not None and stop > stream.size:
            continue
        begin = straight(stream, epoch, first, stop)
        if begin is not None:
            located = stream.locate(epoch, np.arange(first, stop, dtype=np.int64))[1]
            assert located.tolist() == list(range(begin, begin + length))
    assert straight(rows, epoch, 0, 1) == 0
    assert straight(Repeat(rows, 3), epoch, size, size + 1) == 0
    assert straight(Shuffle(rows, 1), epoch, 0, size) is None
