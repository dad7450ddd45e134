"""Groups that many threads finish, and one makes batches of."""

from __future__ import annotations

import random
import threading

import pytest

from headrace.loader.order.progress_state import Progress
from headrace.loader.pipeline.batch_builder import Builder, Delivery
from headrace.loader.pipeline.batching import Batching
from headrace.loader.pipeline.collector import InOrder
from headrace.loader.pipeline.slots import Group, Slot

EACH, BATCH, GROUPS, THREADS = 6, 4, 500, 4


class Around:
    """The pipeline around it, as simple as can be."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.sizes: list[int] = []

    def open_group(self, group: Group) -> None:
        if group.number < 0:
            raise ZeroDivisionError

    def leave_out(self, slot: Slot, seen: int) -> None:
        raise AssertionError

    def hand_on(self, made: list[Delivery]) -> None:
        assert made
        for one in made:
            self.numbers += one.data["n"].tolist()
            self.sizes.append(one.samples)

    def knock(self) -> None:
        pass


def group(number: int) -> Group:
    slots = [Slot("", 0, at, {"n": at}, []) for at in range(number * EACH, (number + 1) * EACH)]
    return Group(number, slots, 1)


def batching() -> tuple[Batching, Around]:
    around = Around()
    return Batching(InOrder(), Builder(BATCH, Progress(), drop_last=False), around), around


@pytest.mark.parametrize("seed", range(8))
def test_all_samples_in_order_whoever_finishes_them(seed: int) -> None:
    made, around = batching()
    rng = random.Random(seed)
    groups = [group(number) for number in range(GROUPS)]
    for one in groups[: GROUPS // 2]:
        made.add(one)
    lots = [groups[start::THREADS] for start in range(THREADS)]
    for lot in lots:
        rng.shuffle(lot)
    begun = [threading.Thread(target=lambda lot=lot: [made.finished(one) for one in lot]) for lot in lots]
    batcher = threading.Thread(target=made.run)
    batcher.start()
    for one in groups[GROUPS // 2 :]:
        made.add(one)
    for thread in begun:
        thread.start()
    made.end()
    for thread in (*begun, batcher):
        thread.join(30)
        assert not thread.is_alive()
    assert around.numbers == list(range(GROUPS * EACH))
    assert set(around.sizes) == {BATCH}
    assert made.settled == GROUPS * EACH


def test_what_a_group_raises_reaches_who_builds_and_holds_nobody_up() -> None:
    made, _ = batching()
    bad, good = group(-1), group(0)
    for one in (bad, good):
        made.add(one)
    made.finished(bad)
    with pytest.raises(ZeroDivisionError):
        made.run()
    made.finished(good)  # the others may still come to an end
    made.release()
    made.run()


def test_the_state_counts_what_was_left_out_before_a_group_of_whole_batches() -> None:
    builder = Builder(2, Progress(), drop_last=False)
    out, whole = group(0), Group(1, [], 1)
    for slot in out.slots:
        slot.kept = False
    left: list[int] = []
    assert list(builder.add(out, lambda slot, at: left.append(slot.local))) == []
    whole.columns, whole.count = {"n": ["a", "b", "c", "d"]}, 4
    whole.slots = [Slot("", 0, EACH + at, None, []) for at in range(4)]
    made = list(builder.add(whole, lambda slot, at: None))
    assert left == list(range(EACH))
    assert [one.data for one in made] == [{"n": ["a", "b"]}, {"n": ["c", "d"]}]
    assert [one.progress for one in made] == [Progress(EACH + 2, (), even=False), Progress(EACH + 4, (), even=False)]
