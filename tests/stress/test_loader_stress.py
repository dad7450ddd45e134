"""Many short lives: loaders started, left and resumed at random, with jitter, failures and small windows."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import pytest

from headrace.loader import Dataset, Skip
from tests.standins import MemoryIndex, StandInFetcher, rows_of


@pytest.mark.parametrize("seed", range(4))
def test_random_lives_add_up_to_one_epoch(seed: int) -> None:
    rng = random.Random(seed)
    fetcher = StandInFetcher(threads=4, jitter_s=0.0005, missing=("00000123", "00000456"))
    seen: list[int] = []
    state: Any = None
    before = threading.active_count()
    for _ in range(60):
        ds = Dataset.of(MemoryIndex(700, size=rng.choice([8]), parts=("a", "b"))).shuffle(11)
        if rng.random() < 0.5:
            ds = ds.map(lambda s: s, threads=rng.randint(1, 4), on_error=Skip(max_count=2))
        else:
            ds = ds.filter(lambda s: True, threads=1, on_error=Skip(max_count=2))
        size = rng.choice([None, 1, 3, 16, 50])
        ds = ds if size is None else ds.batch(size)
        order, prefetch = rng.choice(["exact", "window"]), rng.choice([16, 500, 10**6])
        loader = ds.loader(prefetch=prefetch, order=order, window=rng.choice([2, 30]), fetcher=fetcher)  # type: ignore[arg-type]
        if state is not None:
            loader.load_state_dict(state)
        stop = rng.randint(1, 40)
        for number, batch in enumerate(loader):
            seen += rows_of(batch)
            if number == stop:
                break
        state = loader.state_dict()
        loader.close()
        if state["epoch"] == 1:
            break
    else:
        seen += [row for batch in _rest(fetcher, state) for row in rows_of(batch)]
    assert sorted(seen) == [row for row in range(700) if row not in (123, 456)]
    fetcher.close()
    deadline = time.monotonic() + 2
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


def _rest(fetcher: Any, state: Any) -> Any:
    ds = Dataset.of(MemoryIndex(700, parts=("a", "b"))).shuffle(11)
    loader = ds.map(lambda s: s, on_error=Skip(max_count=2)).batch(9).loader(fetcher=fetcher)
    loader.load_state_dict(state)
    return loader
