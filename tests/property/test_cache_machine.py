"""The cache against a plain model: a dictionary of what should be there.

With room for everything, the cache holds exactly what the model holds; with less room it may hold less, but never
other bytes, and never more than its limit.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.cache import BlockEntry, Busy, Cache, Claim, Fill
from headrace.cache.batch_io import io_uring
from tests.cache_kit import content, entry_file, named, open_cache

BLOCK = 4096
SIZES = [0, 1, 100, 4096, 10_000, 5 * BLOCK + 7]
keys = st.integers(0, 11)


class CacheMachine(RuleBasedStateMachine):
    """Two caches on one folder, as two processes would have it."""

    limit = 10**9

    @initialize()
    def begin(self) -> None:
        self.few, io_uring._FEW = io_uring._FEW, 2  # so that the few objects here go into the ring
        self.folder = tempfile.mkdtemp(prefix="cache-machine-")
        self.caches = [self.reopen(), self.reopen()]
        self.whole: set[str] = set()
        self.partial: dict[str, set[int]] = {}
        self.pinned: set[str] = set()
        self.torn: set[str] = set()
        """Entries that were cut, which nobody has looked at since."""
        self.claims: dict[str, Claim] = {}
        self.open_entries: dict[str, tuple[int, BlockEntry]] = {}

    def reopen(self) -> Cache:
        return open_cache(self.folder, size=self.limit, block=BLOCK)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            io_uring._FEW = self.few
            self.close_entries(0, 1)
            for cache in self.caches:
                cache.close()
            shutil.rmtree(self.folder)

    def close_entries(self, *turns: int) -> None:
        for name, (turn, entry) in list(self.open_entries.items()):
            if turn in turns:
                entry.close()
                del self.open_entries[name]

    @property
    def roomy(self) -> bool:
        return self.limit == 10**9

    def size(self, key: int) -> int:
        return SIZES[key % len(SIZES)]

    def name(self, key: int) -> str:
        return named(self.caches[0], f"k{key}", self.size(key))[0]

    @rule(key=keys, turn=st.integers(0, 1))
    def fill(self, key: int, turn: int) -> None:
        name, label = named(self.caches[turn], f"k{key}", self.size(key))
        if name in self.partial:  # an object is filled whole or by blocks, one way only
            return
        kept = self.caches[turn].fill(name, content(f"k{key}", self.size(key)), label)
        if name in self.claims:
            assert not kept or name in self.whole
        elif self.roomy:
            assert kept
        if kept:
            self.whole.add(name)
            self.torn.discard(name)

    @rule(chosen=st.sets(keys), turn=st.integers(0, 1), mine=st.booleans())
    def fill_many(self, chosen: set[int], turn: int, mine: bool) -> None:
        chosen = {key for key in chosen if self.name(key) not in self.partial}
        fills: list[Fill] = []
        for key in chosen:
            name, label = named(self.caches[turn], f"k{key}", self.size(key))
            claim = self.caches[turn].claim(name) if mine else None
            data = memoryview(content(f"k{key}", self.size(key)))
            fills.append(Fill(name, data, label, claim if isinstance(claim, Claim) else None))
        self.caches[turn].fill_many(fills)
        self.caches[turn].settle()
        for fill in fills:
            there = self.caches[turn].holds(fill.name)
            assert there or not self.roomy or fill.name in self.claims
            if fill.name in self.torn and fill.name in self.claims:  # left to who claimed it, so not looked at either
                continue
            if there:
                self.whole.add(fill.name)
                self.torn.discard(fill.name)

    @rule(key=keys, turn=st.integers(0, 1))
    def read(self, key: int, turn: int) -> None:
        name = self.name(key)
        data = self.caches[turn].read(name)
        path = self.caches[turn].path(name)
        if self.roomy:
            assert (data is not None) == (path is not None) == (name in self.whole)
        if data is not None:
            assert name in self.whole
            assert data == content(f"k{key}", self.size(key))

    @rule(key=keys, turn=st.integers(0, 1), start=st.integers(0, 25_000), length=st.integers(0, 25_000))
    def read_range(self, key: int, turn: int, start: int, length: int) -> None:
        size, name = self.size(key), self.name(key)
        start = min(start, size)
        stop = min(size, start + length)
        data = self.caches[turn].read_range(name, start, start + length)
        if data is not None:
            assert data == content(f"k{key}", size)[start:stop]
        there = name in self.whole or (
            name in self.partial and set(range(start // BLOCK, -(-stop // BLOCK))) <= self.partial[name]
        )
        if self.roomy and start < stop:
            assert (data is not None) == there

    @rule(key=keys)
    def claim(self, key: int) -> None:
        name = self.name(key)
        if name in self.partial:
            return
        claim = self.caches[0].claim(name)
        if name in self.claims:
            assert isinstance(claim, Busy)
            assert claim.wait(0) == (name in self.whole)
        elif isinstance(claim, Claim):
            assert name not in self.whole or not self.roomy
            self.claims[name] = claim
        else:
            assert isinstance(claim, Busy)
            assert claim.done
            assert name in self.whole

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), publish=st.booleans())
    def end_claim(self, data: st.DataObject, publish: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.claims)))
        key = next(key for key in range(12) if self.name(key) == name)
        claim = self.claims.pop(name)
        if not publish:
            claim.abandon()
        elif claim.publish(content(f"k{key}", self.size(key)), named(self.caches[0], f"k{key}", self.size(key))[1]):
            self.whole.add(name)
        else:
            assert not self.roomy

    @rule(key=st.sampled_from([5, 11]), index=st.integers(0, 5), turn=st.integers(0, 1), keep=st.booleans())
    def write_block(self, key: int, index: int, turn: int, keep: bool) -> None:
        size = self.size(key)
        name, label = named(self.caches[turn], f"k{key}", size)
        if name in self.claims:
            return
        turn, entry = self.open_entries.pop(name, None) or (turn, self.caches[turn].blocks(name, size, label))
        if entry is None:
            assert not self.roomy
            return
        first, last = index * BLOCK, min(size, (index + 1) * BLOCK)
        kept = entry.write(first, content(f"k{key}", size)[first:last])
        assert kept or not self.roomy
        if kept and name not in self.whole:
            there = self.partial.setdefault(name, set())
            there.add(index)
        if entry.complete:
            self.whole.add(name)
            self.partial.pop(name, None)
        elif self.roomy:
            absent = {index for a, b in entry.missing() for index in range(a // BLOCK, -(-b // BLOCK))}
            assert absent == set(range(6)) - self.partial[name]
        if keep and not entry.complete:
            self.open_entries[name] = (turn, entry)
        else:
            entry.close()

    @rule(key=keys, pinned=st.booleans())
    def pin(self, key: int, pinned: bool) -> None:
        self.caches[0].pin([self.name(key)], pinned=pinned)
        (self.pinned.add if pinned else self.pinned.discard)(self.name(key))
        assert set(self.caches[1].pinned()) == self.pinned

    @rule(chosen=st.sets(keys), turn=st.integers(0, 1))
    def evict(self, chosen: set[int], turn: int) -> None:
        names = {self.name(key) for key in chosen}
        self.caches[turn].evict(sorted(names))
        self.gone(names)

    @rule(turn=st.integers(0, 1))
    def evict_all(self, turn: int) -> None:
        self.caches[turn].evict()
        self.gone(self.whole | set(self.partial))

    def gone(self, names: set[str]) -> None:
        self.whole -= names - self.pinned
        for name in names - self.pinned - set(self.open_entries):
            self.partial.pop(name, None)

    @rule(key=keys, cut=st.integers(0, 20_000))
    def tear(self, key: int, cut: int) -> None:
        name = self.name(key)
        if name in self.whole and cut < self.size(key) and entry_file(self.caches[0], name).exists():
            os.truncate(entry_file(self.caches[0], name), cut)
            self.whole.discard(name)
            self.torn.add(name)

    @rule(turn=st.integers(0, 1))
    def restart(self, turn: int) -> None:
        self.close_entries(turn)
        self.caches[turn].close()
        self.caches[turn] = self.reopen()
        if turn == 0:
            self.claims.clear()  # collected with the process that held them

    @rule(turn=st.integers(0, 1))
    def verify(self, turn: int) -> None:
        report = self.caches[turn].verify()
        count = report.count
        assert count is not None
        if self.roomy:
            assert count.entries == len(self.whole | set(self.partial))

    @invariant()
    def bounded(self) -> None:
        if hasattr(self, "caches"):
            files = [path for path in Path(self.folder, "v1", "objects").rglob("*") if path.is_file()]
            assert sum(path.stat().st_blocks * 512 for path in files) <= self.limit
            assert self.caches[0].status().bytes <= self.limit


class SmallCacheMachine(CacheMachine):
    """The same with room for a few entries only."""

    limit = 60_000


TestRoomy = CacheMachine.TestCase
TestSmall = SmallCacheMachine.TestCase
TestRoomy.settings = TestSmall.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)
