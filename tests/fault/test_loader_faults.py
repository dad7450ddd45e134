"""The loader when things go wrong: interrupts, kills and failing stores, over real processes and a real store."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.base.errors import HeadraceError, UnreachableError
from headrace.base.metrics import Metrics
from headrace.base.settings import CacheSettings, Settings
from headrace.catalog.sample_index import Part
from headrace.fetch import Fetcher
from headrace.loader import Dataset, Skip
from headrace.store import open_store
from tests.children import running
from tests.standins import MemoryIndex, StandInFetcher, rows_of

_INTERRUPTED = """
import signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job inherits it ignored
from headrace.loader import Dataset
from tests.standins import MemoryIndex, StandInFetcher
fetcher = StandInFetcher()
loader = Dataset.of(MemoryIndex(10_000)).repeat().map(lambda s: s).batch(8).loader(fetcher=fetcher)
try:
    for number, batch in enumerate(loader):
        if number == 3:
            fetcher.gate.clear()  # from here on the store hangs
            print("running", flush=True)
except KeyboardInterrupt:
    pass  # wherever it came, even on the first instruction of __next__: its traceback is gone from here on
left = [t.name for t in threading.enumerate() if t.name.startswith("headrace-loader")]
print("left", left, "frontier" if loader.state_dict()["frontiers"][0] >= 32 else "lost", flush=True)
fetcher.close()
"""


def test_ctrl_c_stops_all_threads_and_keeps_the_state() -> None:
    root = Path(__file__).parents[2]
    with running(
        [sys.executable, "-c", _INTERRUPTED], stdout=subprocess.PIPE, text=True, cwd=root, env=dict(os.environ)
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "running\n"
        began = time.monotonic()
        child.send_signal(signal.SIGINT)
        threading.Timer(10, child.kill).start()
        assert child.stdout.readline() == "left [] frontier\n"
        assert time.monotonic() - began < 2
        assert child.wait(5) == 0


_RUN = """
import json, sys
from headrace.loader import Dataset
from tests.standins import MemoryIndex, StandInFetcher
path, stop = sys.argv[1], int(sys.argv[2])
state = json.load(open(path)) if sys.argv[3] == "resume" else None
rank, world, batch = map(int, sys.argv[4:7])
loader = Dataset.of(MemoryIndex(500)).shuffle(5).shard(rank, world).batch(batch).loader(fetcher=StandInFetcher())
if state is not None:
    loader.load_state_dict(state)
for number, rows in enumerate(loader):
    print(json.dumps([rows["row"].tolist(), loader.state_dict()]), flush=True)
    if number == stop:
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)
import os; os._exit(0)
"""


@pytest.mark.parametrize("seed", range(3))
def test_kill_dash_nine_and_resume_sees_every_sample_once(tmp_path: Path, seed: int) -> None:
    """Ranks are killed after their n-th batch, and another number of ranks with another batch size goes on."""
    rng = random.Random(seed)
    root = Path(__file__).parents[2]
    file = tmp_path / "state.json"
    seen: list[int] = []

    def run(rank: int, world: int, batch: int, stop: int, mode: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-c", _RUN, str(file), str(stop), mode, str(rank), str(world), str(batch)],
            capture_output=True, text=True, cwd=root, timeout=60, check=False,
        )  # fmt: skip
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        for rows, _ in lines:
            seen.extend(rows)
        return lines[-1][1] if lines else None

    stop, world, batch = rng.randint(0, 6), rng.randint(1, 3), rng.randint(3, 20)
    states = [run(rank, world, batch, stop, "fresh") for rank in range(world)]
    file.write_text(json.dumps(states[0]))  # one rank's is enough: all have advanced alike
    world = rng.randint(1, 3)
    for rank in range(world):
        run(rank, world, rng.randint(3, 20), 10**6, "resume")
    assert sorted(seen) == list(range(500))


class StoreIndex(MemoryIndex):
    """Samples in a real store, versions as listed."""

    def __init__(self, store: Any, pinned: bool) -> None:
        infos = [info for page in store.list() for info in page]
        super().__init__(len(infos))
        self.store, self.pinned = store, pinned
        self.infos = sorted(infos, key=lambda info: info.key)

    def specs(self, rows: Any) -> list[Any]:
        found = [self.infos[row] for row in rows.tolist()]
        return [
            (i.key[:-4], (Part("bin", i.key, i.size, i.version),), {"row": row})
            for i, row in zip(found, rows.tolist(), strict=True)
        ]

    def sizes(self, rows: Any) -> Any:
        return np.asarray([self.infos[row].size for row in rows.tolist()])


@pytest.fixture
def real(tmp_path: Path) -> Any:
    store = open_store(f"file://{tmp_path}/objects")
    for row in range(60):
        store.put(f"{row:03d}.bin", bytes([row]) * 100)
    fetcher = Fetcher.open(Settings(cache=CacheSettings(dir=str(tmp_path / "cache"), size=0)), None, Metrics())
    yield store, fetcher
    fetcher.close()


def test_a_changed_object_is_refused_when_pinned_and_read_when_not(real: Any) -> None:
    store, fetcher = real
    pinned, loose = StoreIndex(store, pinned=True), StoreIndex(store, pinned=False)
    store.put("033.bin", b"another length altogether")
    with pytest.raises(HeadraceError, match=r"033\.bin"):
        list(Dataset.of(pinned).batch(8).loader(fetcher=fetcher))
    skipping = Dataset.of(pinned).map(lambda s: s, on_error=Skip(max_count=1)).batch(8).loader(fetcher=fetcher)
    assert sum(len(rows_of(batch)) for batch in skipping) == 59
    assert [entry.stage for entry in skipping.ledger] == ["fetch"]
    got = {row: bytes(data) for b in Dataset.of(loose).batch(8).loader(fetcher=fetcher)
           for row, data in zip(b["row"].tolist(), b["bin"], strict=True)}  # fmt: skip
    assert len(got) == 60
    assert got[33] == b"another length altogether"


def test_a_vanished_object_is_named(real: Any) -> None:
    store, fetcher = real
    index = StoreIndex(store, pinned=True)
    store.delete(["017.bin"])
    with pytest.raises(HeadraceError, match=r"017\.bin"):
        list(Dataset.of(index).batch(8).loader(fetcher=fetcher))


def test_a_feeder_that_fails_ends_the_epoch_with_its_error() -> None:
    class Broken(MemoryIndex):
        def specs(self, rows: Any) -> list[Any]:
            if rows[0] >= 64:
                raise UnreachableError("the index is gone", path="memory://x")
            return super().specs(rows)

    fetcher = StandInFetcher()
    with pytest.raises(UnreachableError):
        list(Dataset.of(Broken(1000)).batch(4).loader(fetcher=fetcher))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("headrace-loader")]
    fetcher.close()
