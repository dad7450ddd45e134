"""The index of runs: what it finds, keeps, forgets, and does without."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.base.settings import Settings
from headrace.namespace import Namespace
from headrace.namespace.home import Home
from headrace.tracking.record import RunRecord, Status
from headrace.tracking.runs import Runs
from headrace.web.index import Found, RunIndex
from tests.sync_rig import wait_for

Record = Callable[..., str]


@pytest.fixture
def runs() -> Runs:
    namespace = Namespace(Settings())
    settings = Settings(home=f"memory://index-{secrets.token_hex(4)}/home")
    return Runs(Home.of(namespace, settings))


@pytest.fixture
def record(runs: Runs) -> Record:
    """A run that is over."""

    def made(number: int, name: str = "digits", state: str = "finished", tags: dict[str, str] | None = None) -> str:
        moment = f"2026-01-{1 + number // 24:02}T{number % 24:02}:00:00.000Z"
        one = f"{moment[:10].replace('-', '')}-{moment[11:13]}0000-{name}-{number:04x}"
        run = runs.run(one)
        run.create(RunRecord(one, name, moment, ("python", "train.py"), "/", "host", "ann", "0", {"tags": tags or {}}))
        run.put_status(Status(0, "starting", moment))
        if state != "starting":
            run.put_status(Status(1, state, moment.replace(":00:00.", ":10:00.")))
        return one

    return made


@pytest.fixture
def index(runs: Runs, tmp_path: Path) -> Iterator[RunIndex]:
    told = {"verdict": "store-bound", "gain": 2.0, "waited": 0.5, "loss": 0.25}
    made = RunIndex(runs, str(tmp_path), lambda _name, _thoroughly: told)
    yield made
    made.close()


def whole(index: RunIndex) -> Found:
    assert wait_for(lambda: index.find().complete)
    return index.find(count=1000)


def test_the_newest_come_first_and_all_of_them_in_the_end(index: RunIndex, record: Record) -> None:
    ids = [record(number) for number in range(120)]
    found = whole(index)
    assert [row.id for row in found.rows] == ids[::-1]
    assert (found.total, found.known) == (120, 120)
    assert [row.id for row in index.find(start=50, count=20).rows] == ids[::-1][50:70]


def test_what_is_wanted(index: RunIndex, record: Record) -> None:
    plain, tagged = record(1), record(2, "other", tags={"team": "vision", "x": ""})
    failed = record(3, state="failed")
    whole(index)

    def ids(**wanted: object) -> list[str]:
        return [row.id for row in index.find(**wanted).rows]  # pyright: ignore[reportArgumentType]

    assert ids(text="OTHER ann") == [tagged]
    assert ids(text="ann digits") == [failed, plain]
    assert ids(text="%") == ids(text="_x_") == []
    assert ids(states=["failed"]) == [failed]
    assert ids(states=["failed", "finished"]) == [failed, tagged, plain]
    assert ids(tags=["team=vision"]) == ids(tags=["team", "x"]) == [tagged]
    assert ids(tags=["team=text"]) == []
    assert ids(sort="name") == [failed, plain, tagged]


def test_what_it_was_told_is_kept_and_shown(index: RunIndex, record: Record, runs: Runs, tmp_path: Path) -> None:
    one = record(1)
    whole(index)
    assert wait_for(lambda: index.one(one).verdict == "store-bound")  # pyright: ignore[reportOptionalMemberAccess]
    created = index.one(one).created  # pyright: ignore[reportOptionalMemberAccess]
    index.learn(one, created, loss=0.125)
    index.learn(one, "2020-01-01T00:00:00.000Z", loss=99.0)
    again = RunIndex(runs, str(tmp_path), lambda _name, _thoroughly: {})
    row = again.one(one)
    assert row is not None
    assert (row.loss, row.waited, row.command) == (0.125, 0.5, ("python", "train.py"))
    again.close()


def test_a_run_that_is_gone_goes(runs: Runs, record: Record, tmp_path: Path) -> None:
    kept, gone = record(1), record(2)
    first = RunIndex(runs, str(tmp_path), lambda _name, _thoroughly: {})
    assert [row.id for row in whole(first).rows] == [gone, kept]
    first.close()
    runs.run(gone).delete()
    second = RunIndex(runs, str(tmp_path), lambda _name, _thoroughly: {})
    assert [row.id for row in whole(second).rows] == [kept]
    second.close()


@pytest.mark.parametrize("state", ["finished", "starting"])
def test_an_id_that_is_given_again_is_another_row(runs: Runs, record: Record, tmp_path: Path, state: str) -> None:
    """Nothing is left of the old one: neither its verdict, nor its tags and note. None of its neighbours changes."""
    kept, one = record(1), record(2, state=state, tags={"team": "vision"})
    runs.run(one).annotate({"best": ""}, "worth a look")
    told = {"verdict": "store-bound", "gain": 2.0, "waited": 0.5, "loss": 0.25}
    index = RunIndex(runs, str(tmp_path), lambda _name, _thoroughly: told, same_s=0.0)
    whole(index)
    assert wait_for(lambda: index.one(kept).verdict == "store-bound")  # pyright: ignore[reportOptionalMemberAccess]
    before = index.one(kept)
    runs.run(one).delete()
    runs.run(one).create(RunRecord(one, "other", "2026-02-01T00:00:00.000Z", ("sh",), "/", "host", "bob", "0", {}))
    runs.run(one).put_status(Status(0, "starting", "2026-02-01T00:00:00.000Z"))
    runs.run(one).put_status(Status(1, "failed", "2026-02-01T00:01:00.000Z"))
    assert wait_for(lambda: {row.name for row in index.find().rows} == {"digits", "other"}, 10), (
        "before notes are listed again, which tells of some"
    )
    assert index.find("vision").total == index.find("worth").total == index.find(tags=["best"]).total == 0
    row = index.one(one)
    assert row is not None
    assert (row.state, row.seconds, row.verdict, row.loss, row.tags, row.note) == ("failed", 60.0, None, None, {}, "")
    assert index.one(kept) == before
    index.close()


def test_a_shown_run_that_is_deleted_goes_before_all_are_listed_again(
    runs: Runs, record: Record, tmp_path: Path
) -> None:
    kept, gone = record(1), record(2)
    index = RunIndex(runs, str(tmp_path), lambda _name, _thoroughly: {}, same_s=0.0)
    whole(index)
    runs.run(gone).delete()
    assert wait_for(lambda: [row.id for row in index.find().rows] == [kept], 30)
    index.close()


@pytest.mark.parametrize("damage", [b"", b"no database", b"SQLite format 3\0" + bytes(5000)])
def test_a_damaged_file_is_made_anew(runs: Runs, record: Record, tmp_path: Path, damage: bytes) -> None:
    one = record(1)
    first = RunIndex(runs, str(tmp_path), lambda _name, _thoroughly: {})
    whole(first)
    first.close()
    (path,) = tmp_path.glob("*.sqlite")
    path.write_bytes(damage)
    second = RunIndex(runs, str(tmp_path), lambda _name, _thoroughly: {})
    assert [row.id for row in whole(second).rows] == [one]
    second.close()


def test_without_a_cache_it_lies_in_memory(runs: Runs, record: Record) -> None:
    one = record(1)
    index = RunIndex(runs, None, lambda _name, _thoroughly: {})
    assert [row.id for row in whole(index).rows] == [one]
    index.close()
