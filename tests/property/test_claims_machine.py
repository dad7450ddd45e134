"""Runs that claim things and wait for them, in any order, against a plain list of who waits and who has what."""

from __future__ import annotations

import shutil
import tempfile

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from headrace.jobs.claims import Blocked, Claims, Want

THINGS = ("cpu-0", "cpu-1", "gpu-0", "gpu-1", "gpu-2")


@st.composite
def want(draw: st.DrawFn, kind: str) -> Want:
    """Some of the things of a kind, and not more than there are of those."""
    some = draw(st.lists(st.sampled_from([one for one in THINGS if one.startswith(kind)]), min_size=1, unique=True))
    return Want(draw(st.integers(1, len(some))), tuple(some))


wants = st.tuples(want("gpu")) | st.tuples(want("cpu")) | st.tuples(want("cpu"), want("gpu"))


class ClaimsMachine(RuleBasedStateMachine):
    """Each run as a process of its own would have it: a lock is that of the one that opened the file."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="claims-machine-")
        self.runs: dict[int, Claims] = {}
        self.waiting: dict[int, tuple[Want, ...]] = {}
        """In the order of asking."""
        self.had: dict[int, set[str]] = {}
        self.count = 0

    def teardown(self) -> None:
        if not hasattr(self, "folder"):
            return
        for run in list(self.had):
            self.runs[run].close()
        self.had.clear()
        for run in list(self.waiting):  # nobody is starved: each in its turn, once all others are gone
            self.look_of(run)
            assert run in self.had
            self.end_of(run)
        shutil.rmtree(self.folder)

    def given(self, run: int, wanted: tuple[Want, ...]) -> list[tuple[str, ...]]:
        """What it is to get: the first that nobody has, and nobody who came before waits for."""
        gone = set[str]().union(*self.had.values())
        for other, theirs in self.waiting.items():
            if other == run:
                break
            gone.update(*(one.things for one in theirs))
        return [tuple(thing for thing in one.things if thing not in gone)[: one.count] for one in wanted]

    def look_of(self, run: int) -> None:
        wanted = self.waiting[run]
        expected = self.given(run, wanted)
        found = self.runs[run].all(wanted)
        if all(len(mine) == one.count for mine, one in zip(expected, wanted, strict=True)):
            assert found == expected
            del self.waiting[run]
            self.had[run] = set[str]().union(*expected)
        else:
            assert isinstance(found, Blocked)
            assert found.free == tuple(map(len, expected))
            assert found.others

    def end_of(self, run: int) -> None:
        self.runs.pop(run).close()
        self.waiting.pop(run, None)
        self.had.pop(run, None)

    @rule(wanted=wants)
    def ask_and_wait(self, wanted: tuple[Want, ...]) -> None:
        self.count += 1
        self.runs[self.count] = Claims(self.folder, f"run-{self.count}")
        self.waiting[self.count] = wanted
        self.look_of(self.count)

    @rule(wanted=wants)
    def ask(self, wanted: tuple[Want, ...]) -> None:
        self.count += 1
        claims = self.runs[self.count] = Claims(self.folder, f"run-{self.count}")
        expected = self.given(self.count, wanted)
        assert claims.some(wanted) == expected
        self.had[self.count] = set[str]().union(*expected)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def look_again(self, data: st.DataObject) -> None:
        self.look_of(data.draw(st.sampled_from(sorted(self.waiting))))

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        self.end_of(data.draw(st.sampled_from(sorted(self.runs))))


ClaimsMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestClaims = ClaimsMachine.TestCase
