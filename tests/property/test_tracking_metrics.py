"""What several processes log, write, lose touch with and merge at random, against a plain list: each point once."""

from __future__ import annotations

import math
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace.store import open_store
from headrace.tracking.reading import read_metrics
from headrace.tracking.recorder import Recorder
from headrace.tracking.segments import Merger, Point, table
from tests.metrics_kit import Row, ordered, rows

NAMES = st.text(max_size=5) | st.sampled_from(["loss", "train/acc"])
VALUES = st.floats() | st.integers(-(1 << 60), 1 << 60)
STEPS = st.none() | st.integers(-(1 << 63), (1 << 63) - 1)
WHO = st.integers(0, 2)


def shown(name: str, step: int | None, value: float) -> Row:
    clean = name.encode("utf-8", "replace").decode()
    return clean, step, 0, "nan" if math.isnan(value) else repr(float(value))


class Logging(RuleBasedStateMachine):
    """`wanted`: every point that was logged. `read`: what a reader has, who reads on as a watcher does."""

    def __init__(self) -> None:
        super().__init__()
        self.scratch = Path(tempfile.mkdtemp(prefix="headrace-test-metrics-"))
        self.spool, self.segments = self.scratch / "spool", self.scratch / "segments"
        self.spool.mkdir()
        self.segments.mkdir()
        self.store = open_store(self.scratch.as_uri())
        self.recorders = [Recorder(str(self.spool)) for _ in range(3)]
        self.merger = Merger(str(self.spool), str(self.segments))
        self.wanted: list[Row] = []
        self.read: list[Row] = []
        self.last = -1
        self.late: Path | None = None
        self.missing: tuple[int, ...] = ()

    @rule(who=WHO, values=st.dictionaries(NAMES, VALUES, max_size=4), step=STEPS)
    def log(self, who: int, values: dict[str, float], step: int | None) -> None:
        self.recorders[who].add(values, step)
        self.wanted += [shown(name, step, value) for name, value in values.items()]

    @rule(who=WHO)
    def flush(self, who: int) -> None:
        self.recorders[who].flush()

    @rule(who=WHO)
    def a_process_ends_and_another_begins(self, who: int) -> None:
        self.recorders[who].close()
        self.recorders[who] = Recorder(str(self.spool))

    @rule(who=WHO, values=st.dictionaries(NAMES, VALUES, max_size=4))
    def the_spool_is_away_for_a_while(self, who: int, values: dict[str, float]) -> None:
        away = self.scratch / "away"
        self.spool.rename(away)
        self.log(who, values, 1)
        self.recorders[who].flush()
        away.rename(self.spool)

    @rule(values=st.dictionaries(NAMES, st.floats(), min_size=1, max_size=3))
    def merge(self, values: dict[str, float]) -> None:
        self.merger.collect(table(Point(1, name, value, 5) for name, value in values.items()))
        self.wanted += [shown(name, 5, value) for name, value in values.items()]

    @rule(torn=st.binary(max_size=20))
    def the_merger_dies_before_it_clears_the_spool(self, torn: bytes) -> None:
        before = self.scratch / "before"
        with self.recorders[0].writing, self.recorders[1].writing, self.recorders[2].writing:
            shutil.copytree(self.spool, before)
            self.merger.collect()
            for path in before.iterdir():
                shutil.copy(path, self.spool)
        shutil.rmtree(before)
        (self.segments / "99999999.parquet.tmp").write_bytes(torn)
        self.merger = Merger(str(self.spool), str(self.segments))

    @rule(torn=st.binary(max_size=2000))
    def somebody_tears_a_file(self, torn: bytes) -> None:
        (self.spool / "metrics-7-7-7-7.points").write_bytes(torn)

    @rule(hold=st.booleans())
    def watch(self, hold: bool) -> None:
        """`hold`: the newest segment but one is late at the store."""
        segments = sorted(self.segments.glob("*.parquet"))
        if self.late is None and hold and len(segments) > 1:
            self.late = segments[-2].rename(self.scratch / segments[-2].name)
        elif self.late is not None:
            self.late.rename(self.segments / self.late.name)
            self.late = None
        found = read_metrics(self.store, "segments/", after=self.last, again=self.missing)
        self.read += rows(found.table)
        self.last, self.missing = found.last, found.missing

    @invariant()
    def nothing_comes_twice(self) -> None:
        left = list(self.read)
        for row in self.wanted:
            with suppress(ValueError):
                left.remove(row)
        assert left == []

    def teardown(self) -> None:
        for recorder in self.recorders:
            recorder.close()
        self.merger.collect()
        if self.late is not None:
            self.late.rename(self.segments / self.late.name)
            self.late = None
        found = read_metrics(self.store, "segments/")
        again = read_metrics(self.store, "segments/", after=self.last, again=self.missing)
        left = [path.name for path in self.spool.iterdir() if not path.name.endswith(".bad")]
        shutil.rmtree(self.scratch)
        assert rows(found.table) == ordered(self.wanted)
        assert ordered(self.read + rows(again.table)) == ordered(self.wanted)
        assert left == []


TestLogging = Logging.TestCase
TestLogging.settings = settings(
    max_examples=25, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
