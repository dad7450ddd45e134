"""Tags and a note of a run, given by commands and from Python, over a real S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from headrace.base.errors import ChangedError
from headrace.namespace.home import Home
from headrace.testing.servers import EmbeddedS3
from headrace.tracking.recorded import RecordedRun
from headrace.tracking.runs import Runs
from tests.runs_rig import RunsRig

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def rig(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunsRig]:
    made = RunsRig(seaweedfs, tmp_path_factory.mktemp("notes"))
    made.headrace("run", "-q", "--id", "one", "--tag", "team=vision", "--tag", "try", "--", "true")
    yield made
    made.close()


def test_a_job_is_tagged_when_it_is_run(rig: RunsRig) -> None:
    assert rig.json("runs", "show", "one")["record"]["spec"]["tags"] == {"team": "vision", "try": ""}
    rig.headrace("rerun", "-q", "--id", "two", "--tag", "try=2", "one")
    assert rig.json("runs", "show", "two")["tags"] == {"team": "vision", "try": "2"}
    assert "is not a name" in rig.headrace("run", "--tag", "a b=c", "--", "true", code=2).stderr


def test_a_run_is_tagged_when_it_is_over(rig: RunsRig) -> None:
    told = rig.json("runs", "tag", "one", "best", "lr=0.1", "-try", "host=a=b")
    assert told == {"id": "one", "tags": {"team": "vision", "best": "", "lr": "0.1", "host": "a=b"}}
    assert rig.json("runs", "tag", "one", "-host", "--remove", "lr")["tags"] == {"team": "vision", "best": ""}
    assert "team=vision best" in rig.headrace("runs", "tag", "one").stdout
    assert [row["id"] for row in rig.json("runs", "--tag", "best")] == ["one"]
    assert "one" not in [row["id"] for row in rig.json("runs", "--tag", "try")]
    assert "is no name of a tag" in rig.headrace("runs", "tag", "one", "a b=c", code=2).stderr


def test_a_run_has_a_note(rig: RunsRig) -> None:
    assert rig.json("runs", "note", "one") == {"id": "one", "note": None}
    rig.headrace("runs", "note", "one", "the data was wrong")
    assert rig.json("runs", "note", "one")["note"] == "the data was wrong"
    assert "the data was wrong" in rig.headrace("runs", "show", "one").stdout
    (row,) = [row for row in rig.json("runs") if row["id"] == "one"]
    assert row["note"] == "the data was wrong"
    assert rig.json("runs", "note", "one", "")["note"] is None


def test_from_python(rig: RunsRig) -> None:
    found = Runs(Home(rig.store(), "home/")).find("one")
    run = RecordedRun(found)
    run.tag({"dashed-name": "x"}, score="0.9")
    run.set_note("from a notebook")
    assert run.tags.items() >= {"dashed-name": "x", "score": "0.9", "team": "vision"}.items()
    assert run.note == "from a notebook"
    assert "from a notebook" in run._repr_html_()
    run.tag(score=None)
    assert "score" not in run.tags


def test_of_many_writers_at_once_each_is_told_or_kept(rig: RunsRig) -> None:
    """By the server's own promise."""
    run = Runs(Home(rig.store(), "home/")).find("one")

    def write(number: int) -> bool:
        with suppress(ChangedError):
            run.annotate({f"t{number}": ""})
            return True
        return False

    with ThreadPoolExecutor(6) as pool:
        written = list(pool.map(write, range(18)))
    kept = {name for name in run.notes().notes.tags if name.startswith("t")}
    assert any(written)
    assert kept - {"try", "team"} == {f"t{number}" for number, done in enumerate(written) if done}
