"""A folder that is written to, renamed, cut and deleted at random, against what a plain reading of it says."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace.store import open_store
from headrace.sync import State, Sync, SyncOptions

NAMES = ("a.log", "b", "deep/c.json", "deep/er/d.txt", "model.pt")


class Following(RuleBasedStateMachine):
    """`model`: what the bucket must hold after each sync: the files as they are, and the last state of deleted ones."""

    def __init__(self) -> None:
        super().__init__()
        self.scratch = Path(tempfile.mkdtemp(prefix="headrace-test-sync-"))
        self.folder = self.scratch / "out"
        self.folder.mkdir()
        self.store = open_store(f"memory://{uuid.uuid4().hex}")
        self.model: dict[str, bytes] = {}
        self.turn = 0

    def path(self, name: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    @rule(name=st.sampled_from(NAMES), size=st.integers(0, 3000))
    def write(self, name: str, size: int) -> None:
        self.turn += 1
        self.path(name).write_bytes(bytes([self.turn % 256]) * size)

    @rule(name=st.sampled_from(NAMES), body=st.binary(min_size=1, max_size=100))
    def append(self, name: str, body: bytes) -> None:
        with open(self.path(name), "ab") as file:
            file.write(body)

    @rule(name=st.sampled_from(NAMES), share=st.floats(0, 1))
    def cut(self, name: str, share: float) -> None:
        path = self.path(name)
        if path.exists():
            os.truncate(path, int(path.stat().st_size * share))

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        self.path(name).unlink(missing_ok=True)

    @rule(old=st.sampled_from(NAMES), new=st.sampled_from(NAMES))
    def rename(self, old: str, new: str) -> None:
        if self.path(old).exists():
            self.path(old).replace(self.path(new))

    @rule(complete=st.booleans(), watch=st.booleans())
    def sync(self, complete: bool, watch: bool) -> None:
        options = SyncOptions(watch=watch)
        state = State(str(self.scratch / "state"), str(self.folder), "memory://x")
        with Sync(str(self.folder), self.store, "p/", state, options) as following:
            report = following.finish(20, complete=complete)
        assert report.left == ()
        for path in self.folder.rglob("*"):
            if path.is_file():
                self.model[str(path.relative_to(self.folder))] = path.read_bytes()

    @invariant()
    def the_bucket_holds_what_was_synced(self) -> None:
        keys = [info.key for page in self.store.list("p/") for info in page]
        there = {key[2:]: bytes(self.store.get(key).data) for key in keys}
        assert there == self.model

    def teardown(self) -> None:
        shutil.rmtree(self.scratch, ignore_errors=True)


TestFollowing = Following.TestCase
TestFollowing.settings = settings(
    max_examples=25, stateful_step_count=15, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
