"""Runs as no one would wish for them, on the page: odd names, no numbers at all, damaged objects, an id given again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from headrace.store.embedded import EmbeddedS3
from tests.runs_rig import RunsRig
from tests.web_rig import Served, served

pytestmark = pytest.mark.server
NAMES = (
    "a/b",
    "100 %",
    "%2F",
    "two\nlines",
    "größe ✓",
    "<script>alert(1)</script>",
    "x" * 300,
    "..",
    "a?b=c&d#e",
    "'\"",
)
SCRIPT = """
    import json, sys
    import headrace as hr

    names = json.loads(sys.argv[1])
    for step in range(3):
        hr.log({name: step + at for at, name in enumerate(names)}, step=step)
"""
PAGES = ("", "/metrics", "/machine", "/why", "/log", "/step/1", "/files")


@pytest.fixture(scope="module")
def rig(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunsRig]:
    made = RunsRig(seaweedfs, tmp_path_factory.mktemp("odd-runs"))
    script = made.script(SCRIPT)
    made.headrace("run", "--id", "odd", "--", "python", script, json.dumps(NAMES))
    made.headrace("run", "--id", "many", "--", "python", script, json.dumps([f"m{at}" for at in range(5000)]))
    nan = "import headrace as hr; [hr.log({'loss': float('nan'), 'up': float('inf')}, step=at) for at in range(20)]"
    made.headrace("run", "--id", "nan", "--", "python", "-c", nan)
    made.headrace("run", "--id", "none", "--", "true")
    yield made
    made.close()


@pytest.mark.parametrize("run", ["odd", "many", "nan", "none"])
def test_every_page_of_it_is_shown(web: Served, run: str) -> None:
    for page in PAGES:
        answer = web.get(f"/runs/{run}{page}")
        assert answer.status_code == 200, (page, answer.text[:2000])
        assert "<script>alert" not in answer.text
        assert web.twin(f"/runs/{run}{page}")


def test_odd_names_are_told_as_they_are_and_found(rig: RunsRig, web: Served) -> None:
    told: Any = web.twin("/runs/odd/metrics")
    last = {one["name"]: one["last"] for one in told["metrics"]}
    assert last == {name: 2 + at for at, name in enumerate(NAMES)}
    for name in NAMES:
        word = quote(name.split()[0])
        found: Any = web.twin(f"/runs/odd/metrics?q={word}")
        assert name in [one["name"] for one in found["metrics"]]
    assert rig.headrace("metrics", "odd").stdout


def test_a_run_without_numbers_says_so(web: Served) -> None:
    told: Any = web.twin("/runs/nan/metrics")
    for one in told["metrics"]:
        assert (one["last"], one["low"], one["high"], sum(one["curve"]["odd"])) == (None, None, None, 20)
    none: Any = web.twin("/runs/none/metrics")
    assert (none["metrics"], none["total"]) == ([], 0)


def test_an_id_that_is_given_again_is_another_run(rig: RunsRig, web: Served) -> None:
    def logged(value: int) -> None:
        code = f"import headrace as hr; hr.log({{'loss': {value}}}, step=1)"
        rig.headrace("run", "--id", "again", "--", "python", "-c", code)

    def shown() -> float | None:
        metrics: Any = web.twin("/runs/again/metrics")["metrics"]
        return metrics[0]["last"] if metrics else None

    logged(1)
    assert shown() == 1
    rig.headrace("runs", "rm", "again")
    logged(2)
    answers = [shown()]
    while answers[-1] == 1 and len(answers) < 100_000:
        answers.append(shown())
    assert set(answers) <= {1, 2}
    assert answers[-1] == 2
    rig.headrace("runs", "rm", "again")
    while (status := web.get("/runs/again").status_code) == 200:
        pass
    assert status == 404


@pytest.mark.parametrize("damaged", [".parquet", ".blocks.parquet"])
def test_a_damaged_rollup_is_told_with_what_to_do_and_nothing_is_lost_by_doing_it(rig: RunsRig, damaged: str) -> None:
    code = "import headrace as hr; [hr.log({'loss': at}, step=at) for at in range(9)]"
    run = f"damaged-{len(damaged)}"
    rig.headrace("run", "--id", run, "--", "python", "-c", code)
    prefix = f"home/runs/{run}/metrics/rollup/00000000-00000000"
    for ending in {".parquet", damaged}:
        rig.store().put(f"{prefix}{ending}", b"no such thing")
    with served(rig) as web:
        answer = web.get(f"/runs/{run}/metrics")
        assert (answer.status_code, "delete it: its segments are read then" in answer.text) == (502, True)
        read = f"import headrace as hr; print(hr.run({run!r}).metrics())"
        assert "delete it: its segments are read then" in rig.headrace("metrics", run, code=2).stderr
        ended = subprocess.run(
            [sys.executable, "-c", read], env=rig.environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert "delete it: its segments are read then" in ended.stderr
        for ending in {".parquet", damaged}:
            rig.headrace("rm", f"s3://{rig.bucket}/{prefix}{ending}")
        told: Any = web.twin(f"/runs/{run}/metrics")
        assert [(one["name"], one["points"]) for one in told["metrics"]] == [("loss", 9)]
