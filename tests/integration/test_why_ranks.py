"""``headrace why`` on runs of two ranks that meet after each step: which one the other waits for, and for what.

All start at once, for that is most of their time; those that compute have the machine for themselves then.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.testing.servers import EmbeddedS3
from tests.integration.test_why import JOB, judged, name_of, put, why
from tests.runs_rig import RunsRig
from tests.sync_rig import wait_for

pytest.importorskip("torch.distributed")
pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "store": ("straggler", "store", {"ranks": {"1": {"latency_s": 0.4}}, "prefetch": "1MB"}),
    "decode": ("straggler", "decode", {"rest_s": 0.0001, "ranks": {"1": {"rest_s": 0.02, "threads": 1}}}),
    "compute": ("straggler", "computing", {"busy": True, "step_s": 0.003, "ranks": {"1": {"step_s": 0.06}}}),
    "turns": ("collective-bound", "turns", {"turn_s": 0.05}),
}
"""Class, cause, job. Rank 1 is the slow one, or none is."""


@pytest.fixture(scope="module")
def rig(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunsRig]:
    made = RunsRig(seaweedfs, tmp_path_factory.mktemp("why-ranks"))
    put(made, "small", 200, 20_000)
    yield made
    made.close()


@pytest.fixture(scope="module")
def told(rig: RunsRig) -> dict[str, Any]:
    """What `headrace why` says of every run."""
    begun = {name: started(rig, name, job) for name, (_, _, job) in CASES.items()}
    assert wait_for(lambda: all(len(list(gate_of(rig, name).glob("*.ready"))) == 2 for name in CASES), 120)
    for names in (("store", "decode"), ("compute",), ("turns",)):
        for name in names:
            (gate_of(rig, name) / "go").touch()
        for name in names:
            assert begun[name].wait(120) == 0, (name, begun[name].communicate())
    return {name: why(rig, name) if name == "turns" else judged(rig, name) for name in CASES}


def gate_of(rig: RunsRig, name: str) -> Path:
    return rig.scratch / f"gate-{name}"


def started(rig: RunsRig, name: str, job: dict[str, Any]) -> subprocess.Popen[str]:
    gate_of(rig, name).mkdir()
    same = {"data": f"s3://{rig.bucket}/small", "seconds": 2.5, "together": True, "gate": str(gate_of(rig, name))}
    given = json.dumps({**same, **job})
    return rig.start("run", "--set", "processes=2", "--name", name_of(name), "--", sys.executable, str(JOB), given)


@pytest.mark.parametrize("name", CASES)
def test_it_names_the_rank_that_the_other_waits_for(told: dict[str, Any], name: str) -> None:
    bound, cause, _ = CASES[name]
    found = told[name]
    whole = json.dumps(found)  # what is no text is shortened
    assert (found["class"], found["cause"]) == (bound, cause), whole
    assert ("Rank 1 is slow" in found["statement"]) == (bound == "straggler"), whole
    assert [one["rank"] for one in found["ranks"]] == [0, 1], whole
    assert found["evidence"], whole
    assert found["advice"], whole
    assert found["gain"] > 1.2, whole


def test_the_page_shows_what_each_rank_needs_for_a_step(rig: RunsRig, told: dict[str, Any]) -> None:
    rig.headrace("web", "--export", "run.html", "--run", name_of("decode"))
    page = (rig.work / "run.html").read_text()
    assert f"<strong>straggler</strong>: {told['decode']['statement']}" in page
    heads, *rows = re.findall("<tr>(.*?)</tr>", page.partition(">Ranks</h")[2], re.DOTALL)[:3]
    assert heads.count("</th>") == 11
    assert [re.sub("<.*?>", " ", one).split()[0] for one in rows] == ["1", "0"], "who waited longest, first"
    assert all(one.count("</td>") == 11 for one in rows)
