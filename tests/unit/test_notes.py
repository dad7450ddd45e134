"""Tags and a note that a run gets after it has begun: merged, changed only over what was seen, and cheap to list."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict

import pytest

from headrace.base.errors import ChangedError, CorruptError, InputError, ReadOnlyError
from headrace.base.metrics import Metrics
from headrace.base.settings import Settings
from headrace.namespace import Namespace
from headrace.namespace.home import Home
from headrace.store.wrappers import metered
from headrace.tracking.notes import AllNotes
from headrace.tracking.record import Lease, RunRecord, Status, now
from headrace.tracking.runs import Run, Runs
from headrace.tracking.watching import Wanted, Watch


@pytest.fixture(params=["memory", "file"])
def home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Home:
    folder = tmp_path_factory.mktemp("home")
    url = f"memory://notes-{secrets.token_hex(4)}/home" if request.param == "memory" else f"file://{folder}/home"
    return Home.of(Namespace(Settings()), Settings(home=url))


def recorded(home: Home, number: int = 0, tags: dict[str, str] | None = None, name: str = "") -> Run:
    run = Run(home, name or f"20260101-0000{number:02d}-job-000{number}")
    created = f"2026-01-01T00:00:{number:02d}.000Z"
    run.create(RunRecord(run.id, "job", created, ("true",), "/", "host", "me", "0", {"tags": tags or {}}))
    run.put_status(Status(0, "starting", now()))
    ended = Status(1, "finished", now())
    run.put_status(ended)
    run.put_lease(Lease(1, "finished", now(), 1, "host", last=asdict(ended)))
    return run


def tags_of(run: Run) -> dict[str, str]:
    record = run.record()
    return run.notes(record).notes.tags_over(record)


def test_later_tags_lie_over_those_of_the_job(home: Home) -> None:
    run = recorded(home, tags={"team": "vision", "lr": "0.1"})
    assert tags_of(run) == {"team": "vision", "lr": "0.1"}
    run.annotate({"best": "", "lr": "0.2", "team": None})
    assert tags_of(run) == {"lr": "0.2", "best": ""}
    run.annotate({"team": "vision"})
    assert tags_of(run) == {"team": "vision", "lr": "0.2", "best": ""}
    kept = run.annotate({"lr": "0.1", "best": None}, "it was the data")
    assert (dict(kept.notes.tags), kept.notes.note) == ({}, "it was the data"), "what the record says is not said again"


def test_what_changes_nothing_writes_nothing(home: Home) -> None:
    run = recorded(home, tags={"team": "vision"})
    assert run.annotate({"team": "vision", "none": None}).version == ""
    first = run.annotate({"best": "yes"}, "good")
    assert run.annotate({"best": "yes"}, "good ") == first


def test_the_later_of_two_writers_is_told(home: Home) -> None:
    run = recorded(home)
    seen = run.notes().version
    run.annotate(note="mine", over=seen)
    with pytest.raises(ChangedError, match="changed underneath"):
        run.annotate(note="yours", over=seen)
    assert run.notes().notes.note == "mine"
    run.annotate({"also": ""}, over=run.notes().version)
    assert run.notes().notes.note == "mine"


def test_of_many_writers_at_once_each_is_told_or_kept(home: Home) -> None:
    run = recorded(home)

    def write(number: int) -> bool:
        with suppress(ChangedError):
            Run(home, run.id).annotate({f"t{number}": ""})
            return True
        return False

    with ThreadPoolExecutor(8) as pool:
        written = list(pool.map(write, range(24)))
    assert any(written)
    assert set(tags_of(run)) == {f"t{number}" for number, kept in enumerate(written) if kept}


@pytest.mark.parametrize(
    ("tags", "note"),
    [({"": "x"}, None), ({"a b": "x"}, None), ({"x": "two\nlines"}, None), ({"x": "y" * 1001}, None),
     ({f"t{number}": "" for number in range(101)}, None), ({}, "x" * 70_000)],
)  # fmt: skip
def test_what_no_tag_and_no_note_may_be(home: Home, tags: dict[str, str | None], note: str | None) -> None:
    run = recorded(home)
    with pytest.raises(InputError) as caught:
        run.annotate(tags, note)
    assert caught.value.hint
    assert run.notes().version == ""


def test_a_later_run_of_the_same_id_has_none_of_them(home: Home) -> None:
    first = recorded(home, name="again")
    first.annotate({"old": ""}, "of the first")
    for page in home.store.list(first.prefix):
        home.store.delete([info.key for info in page])
    second = recorded(home, 1, name="again")
    assert tags_of(second) == {}
    second.annotate({"new": ""})
    assert tags_of(second) == {"new": ""}


def test_they_go_with_the_run(home: Home) -> None:
    run = recorded(home)
    run.annotate({"best": ""})
    assert run.delete() == 5
    assert [info.key for page in home.store.list(home.prefix) for info in page] == []


def test_a_list_costs_one_request_more_and_one_for_each_that_has_notes(home: Home) -> None:
    metrics = Metrics()
    counted = Home(metered(home.store, metrics), home.prefix)
    every = [recorded(home, number, {"team": "vision"} if number % 2 else {}) for number in range(8)]
    every[3].annotate({"best": "yes"}, "look at this")

    def asked() -> tuple[float, float]:
        return metrics.get("store.get.calls"), metrics.get("store.list.calls")

    watch = Watch(Runs(counted), 8)
    views = watch.look()
    assert (views[4].tags, views[4].note) == ({"team": "vision", "best": "yes"}, "look at this")
    gets, _ = asked()
    assert gets == 2 * 8 + 1
    watch.look()
    assert asked()[0] == gets


def test_runs_are_found_by_what_they_were_tagged_with_later(home: Home) -> None:
    every = [recorded(home, number, {"team": "vision"}) for number in range(4)]
    every[1].annotate({"best": "yes"})
    every[2].annotate({"team": None})
    runs = Runs(home)

    def found(tags: dict[str, str]) -> list[str]:
        return [view.record.id for view in Watch(runs, None, Wanted(tags=tags)).look()]

    assert found({"best": "y*"}) == [every[1].id]
    assert found({"team": "*"}) == [every[number].id for number in (3, 1, 0)]
    watch = Watch(runs, None, Wanted(tags={"best": "*"}))
    assert len(watch.look()) == 1
    every[0].annotate({"best": ""})
    runs.notes.renew()
    assert [view.record.id for view in watch.look()] == [every[1].id, every[0].id]


def test_what_cannot_be_read_counts_as_none_in_a_list(home: Home) -> None:
    run = recorded(home)
    home.store.put(home.key("runs", ".notes", f"{run.id}.json"), b"no notes")
    (view,) = Watch(Runs(home), None).look()
    assert (view.record.id, view.tags) == (run.id, {})
    with pytest.raises(CorruptError):
        run.notes()


def test_all_are_listed_again_when_one_was_changed_from_here(home: Home) -> None:
    run, every = recorded(home), AllNotes(home)
    record = run.record()
    assert every.of(record).version == ""
    version = run.annotate(note="new").version
    assert every.of(record).version == ""
    every.renew()
    assert (every.of(record).version, every.of(record).notes.note) == (version, "new")


def test_a_read_only_home_is_not_written(home: Home) -> None:
    run = recorded(home)
    closed = Run(Home(home.store, home.prefix, read_only=True), run.id)
    for change in (lambda: closed.annotate({"x": ""}), closed.delete):
        with pytest.raises(ReadOnlyError):
            change()
    assert run.notes().version == ""
