"""Who fetches: one thread of one process, whatever becomes of it."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from headrace.cache import Busy, Cache, Claim, Fill
from headrace.testing.servers.process import freeze
from tests.cache_kit import content, fill, named, open_cache, worker


def claimed(cache: Cache, name: str) -> Claim:
    claim = cache.claim(name)
    assert isinstance(claim, Claim)
    return claim


def busy(cache: Cache, name: str) -> Busy:
    claim = cache.claim(name)
    assert isinstance(claim, Busy)
    return claim


def left_in(node: Path) -> list[Path]:
    return [path for path in node.rglob("*") if path.is_file() and path.name != "owners"]


def test_one_claims_and_the_others_are_told(tmp_path: Path) -> None:
    cache, other = open_cache(tmp_path), open_cache(tmp_path)
    name, label = named(cache, "k", 5000)
    claim = claimed(cache, name)
    waiting = busy(other, name)
    assert not waiting.done
    assert not waiting.wait(0.05)
    assert claim.publish(content("k", 5000), label)
    assert waiting.wait(5)
    assert other.read(name) == content("k", 5000)
    assert busy(other, name).done
    assert busy(other, name).wait(0)


def test_abandoned_or_forgotten_the_next_one_has_it(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    name, _ = named(cache, "k", 5000)
    claimed(cache, name).abandon()
    with claimed(cache, name):
        assert not busy(cache, name).wait(0)
    forgotten = claimed(cache, name)
    del forgotten
    gc.collect()
    claimed(cache, name).abandon()
    assert not left_in(next((tmp_path / "v1" / "tmp").iterdir()))


def test_a_claim_ends_once(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    name, label = named(cache, "k", 5000)
    claim = claimed(cache, name)
    claim.abandon()
    claim.abandon()
    assert not claim.publish(content("k", 5000), label)
    assert cache.read(name) is None


def test_a_waiter_wakes_when_the_owner_gives_up(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    name, _ = named(cache, "k", 5000)
    claim = claimed(cache, name)
    waiting = busy(cache, name)
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(waiting.wait(30)))
    thread.start()
    claim.abandon()
    thread.join()
    assert woken == [True]


def test_a_waiter_wakes_when_another_publishes_what_the_owner_fetches(tmp_path: Path) -> None:
    """As who fills many together does, without a claim on each."""
    cache, other = open_cache(tmp_path), open_cache(tmp_path)
    name, label = named(cache, "k", 5000)
    claim = claimed(cache, name)
    waiting = busy(cache, name)
    assert not waiting.wait(0)
    other.fill_many([Fill(name, memoryview(content("k", 5000)), label, None)])
    assert waiting.wait(0)
    claim.abandon()


OWNER = """
cache = open_cache(sys.argv[1])
claim = cache.claim(named(cache, "k", 5000)[0])
path = cache._layout.claim(claim.name)
os.makedirs(os.path.dirname(path))
open(path, "wb").write(bytes(9000))  # more than the next owner will write
print(type(claim).__name__, flush=True)
time.sleep(60)
"""


def test_a_dead_owners_claim_is_taken_over(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    name, label = named(cache, "k", 5000)
    owner = worker(OWNER, tmp_path)
    with owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "Claim\n"
        waiting = busy(cache, name)
        assert not waiting.wait(0.02)
        owner.kill()
        assert waiting.wait(10)
    assert claimed(cache, name).publish(content("k", 5000), label)
    assert cache.read(name) == content("k", 5000)


def test_a_stopped_owner_stops_nobody(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    name, _ = named(cache, "k", 5000)
    owner = worker(OWNER, tmp_path)
    with owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        freeze(owner.pid)
        begun = time.monotonic()
        assert not busy(cache, name).wait(0.1)
        fill(cache, "another", 5000)
        assert cache.read(fill(cache, "third", 10)) == content("third", 10)
        assert time.monotonic() - begun < 5
        owner.kill()


def test_dead_owners_leftovers_are_swept(tmp_path: Path) -> None:
    owner = worker(OWNER, tmp_path)
    with owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        node = next((tmp_path / "v1" / "tmp").iterdir())
        open_cache(tmp_path)
        assert len(left_in(node)) == 1, "the living are left alone"
        owner.kill()
        owner.wait()
    open_cache(tmp_path)
    assert left_in(node) == []


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_uses_the_cache_and_leaves_the_parents_claims(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    mine, label = named(cache, "parents", 5000)
    claim = claimed(cache, mine)
    pid = os.fork()
    if pid == 0:  # the child must leave by os._exit, whatever happens
        try:
            ok = isinstance(cache.claim(mine), Busy) and cache.read(fill(cache, "childs", 5000)) == content(
                "childs", 5000
            )
            del claim
            gc.collect()
            os._exit(0 if ok and isinstance(cache.claim(mine), Busy) else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert claim.publish(content("parents", 5000), label)
    assert cache.read(mine) == content("parents", 5000)
    assert cache.read(named(cache, "childs", 5000)[0]) == content("childs", 5000)
    assert cache.status().entries == 2


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_living_child_does_not_keep_a_dead_parents_claim(tmp_path: Path) -> None:
    script = """
cache = open_cache(sys.argv[1])
claim = cache.claim(named(cache, "k", 5000)[0])
child = os.fork()
if child == 0:
    time.sleep(60)
    os._exit(0)
print(child, flush=True)
time.sleep(60)
"""
    cache = open_cache(tmp_path)
    name, _ = named(cache, "k", 5000)
    owner = worker(script, tmp_path)
    with owner:
        assert owner.stdout is not None
        child = int(owner.stdout.readline())
        try:
            waiting = busy(cache, name)
            owner.kill()
            assert waiting.wait(10)
            claimed(cache, name).abandon()
        finally:
            os.kill(child, signal.SIGKILL)


def insist(cache: Cache, prefix: str) -> None:
    for number in range(300):
        name, label = named(cache, f"{prefix}{number}", 10)
        while not cache.fill(name, content(f"{prefix}{number}", 10), label):  # dropped while the other one counts
            time.sleep(0.001)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_parent_and_child_count_together(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    pid = os.fork()
    if pid == 0:
        try:
            insist(cache, "childs")
            os._exit(0)
        except BaseException:
            os._exit(2)
    insist(cache, "parents")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert cache.status().entries == 600


RACER = """
cache = open_cache(sys.argv[1])
fetched = 0
for number in range(40):
    name, label = named(cache, f"k{number}", 5000)
    while cache.read(name) is None:
        claim = cache.claim(name)
        if isinstance(claim, Busy):
            claim.wait(10)
            continue
        fetched += 1
        time.sleep(0.001)
        claim.publish(content(f"k{number}", 5000), label)
print(fetched)
"""


def test_each_object_is_fetched_once_per_node(tmp_path: Path) -> None:
    script = f"from headrace.cache import Busy\n{RACER}"
    racers = [worker(script, tmp_path) for _ in range(3)]
    fetched = [int(racer.communicate(timeout=120)[0]) for racer in racers]
    assert sum(fetched) == 40
    assert open_cache(tmp_path).verify().bad == []


def test_where_locks_do_nothing_only_work_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fcntl.flock", lambda fd, how: None)  # what some network file systems do
    monkeypatch.setattr("fcntl.fcntl", lambda fd, how, lock: lock)
    cache, other = open_cache(tmp_path), open_cache(tmp_path)  # as two processes would
    name, label = named(cache, "k", 5000)
    first, second = claimed(cache, name), claimed(other, name)
    assert second.publish(content("k", 5000), label)
    assert cache.read(name) == content("k", 5000)
    assert first.publish(content("k", 5000), label)
    assert cache.read(name) == content("k", 5000)
    assert cache.verify().bad == []
