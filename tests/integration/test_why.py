"""``headrace why`` on runs whose limit is known: real processes, a real S3 server, and a slow way to it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headrace.base.verdict import judge
from headrace.testing.http import FaultServer
from headrace.testing.origins import Upstream
from headrace.testing.plan import Fault, Kind, Plan
from headrace.testing.servers import EmbeddedS3
from headrace.tracking.figures import NAMES, figures_of
from headrace.tracking.reading import read_metrics
from tests.mount_rig import Rig, need_fuse
from tests.runs_rig import RunsRig
from tests.sync_rig import wait_for

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]

JOB = Path(__file__).parents[2] / "benchmarks" / "why_job.py"
LATE = {"latency_s": 0.3, "data": "small", "batch": 16}
GREEDY: dict[str, tuple[str, str, dict[str, Any]]] = {
    "far": ("store-bound", "latency", {**LATE, "step_s": 0.001}),
    "stragglers": (
        "store-bound", "stragglers", {"data": "small", "latency_s": 0.002, "stragglers": [0.03, 3.0], "batch": 8}
    ),
    "narrow": ("store-bound", "bandwidth", {"data": "large", "bandwidth": 20e6, "batch": 2}),
}  # fmt: skip
"""Class, cause, job. These take what the store gives, and wait more than they work: they run side by side."""
CALM: dict[str, tuple[str, str, dict[str, Any]]] = {
    "checkpoints": ("write-bound", "checkpoints", {"data": "small", "step_s": 0.05, "checkpoint": [5, 4 << 20, 0.6]}),
    "model": ("consumer-bound", "step", {"data": "small", "step_s": 0.1}),
    "evaluation": ("consumer-bound", "step", {"data": "small", "step_s": 0.1, "evaluate": [6, 0.4]}),
    "asleep": ("decode-bound", "waits", {"data": "small", "rest_s": 0.05, "threads": 2}),
    "child": ("consumer-bound", "step", {"data": "small", "step_s": 0.1, "where": "process"}),
}
"""These ask for little: side by side too, but not beside the greedy."""
BUSY: dict[str, tuple[str, str, dict[str, Any]]] = {
    "decoding": ("decode-bound", "", {"data": "small", "decode_s": 0.03, "threads": 2}),
    "decoding with the GIL": ("decode-bound", "", {"data": "small", "decode_s": 0.03, "threads": 2, "gil": True}),
    "crumbs": ("request-bound", "small", {"data": "tiny", "batch": 64}),
}
DATA = {"tiny": (1500, 1000), "small": (200, 20_000), "large": (12, 2_000_000)}


@pytest.fixture(scope="module")
def told(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What is said of every run, and by `headrace why` of one that goes on."""
    rig = RunsRig(seaweedfs, tmp_path_factory.mktemp("why"))
    try:
        fill(rig)
        together(rig, {name: job for name, (_, _, job) in GREEDY.items()})
        together(rig, {name: job for name, (_, _, job) in CALM.items()})
        found = {name: judged(rig, name) for name in [*GREEDY, *CALM]}
        live = started(rig, "live", {**LATE, "seconds": 120})
        assert wait_for(lambda: any(name_of("live") in run for run in rig.ids()), 90)
        assert wait_for(lambda: why(rig, "live")["class"] != "not enough data", 90)
        found["live"] = why(rig, "live")
        assert live.poll() is None, "it was asked while it ran"
        live.send_signal(signal.SIGTERM)
        live.wait(30)
        for name, (_, _, job) in BUSY.items():
            process = started(rig, name, {"seconds": 2.5, **job})
            assert process.wait(180) == 0, (name, process.communicate())
            found[name] = judged(rig, name)
        found["text"] = rig.headrace("why", name_of("checkpoints")).stdout
        yield found
    finally:
        rig.close()


def together(rig: RunsRig, jobs: dict[str, dict[str, Any]]) -> None:
    """To the end, all from the same moment on."""
    gate = rig.scratch / f"gate-{next(iter(jobs))}"
    gate.mkdir()
    begun = {name: started(rig, name, {"seconds": 3, **job, "gate": str(gate)}) for name, job in jobs.items()}
    assert wait_for(lambda: len(list(gate.glob("*.ready"))) == len(begun), 180)
    (gate / "go").touch()
    for name, process in begun.items():
        assert process.wait(180) == 0, (name, process.communicate())


def fill(rig: RunsRig) -> None:
    for name, (count, size) in DATA.items():
        put(rig, name, count, size)


def put(rig: RunsRig, name: str, count: int, size: int) -> None:
    store, rng = rig.store(), random.Random(1)
    with ThreadPoolExecutor(8) as pool:
        for number in range(count):
            pool.submit(store.put, f"{name}/{number:05d}.bin", rng.randbytes(size))


def name_of(name: str) -> str:
    return f"why-{name.replace(' ', '-').lower()}"


def started(rig: RunsRig, name: str, job: dict[str, Any]) -> subprocess.Popen[str]:
    told = json.dumps({**job, "data": f"s3://{rig.bucket}/{job['data']}"})
    return rig.start("run", "--name", name_of(name), "--", sys.executable, str(JOB), told)


def judged(rig: RunsRig, name: str) -> dict[str, Any]:
    """As the command does, without its start."""
    (run,) = (run for run in rig.ids() if name_of(name) == run[16:-5])
    return judge(figures_of(read_metrics(rig.store(), f"home/runs/{run}/metrics/", names=NAMES).table)).as_dict()


def why(rig: RunsRig, name: str) -> dict[str, Any]:
    return why_of(rig, name_of(name))


def why_of(rig: RunsRig, run: str) -> dict[str, Any]:
    return json.loads(rig.headrace("why", run, "--json").stdout)


@pytest.mark.parametrize("name", [*GREEDY, *CALM, *BUSY])
def test_it_names_what_limits(told: dict[str, Any], name: str) -> None:
    bound, cause, _ = {**GREEDY, **CALM, **BUSY}[name]
    found = told[name]
    whole = json.dumps(found)  # what is no text is shortened
    assert found["class"] == bound, whole
    assert not cause or found["cause"] == cause, whole
    assert found["evidence"], whole
    assert found["advice"], whole
    assert (found["gain"] > 1.05) == (bound != "consumer-bound"), whole
    assert (found["action"] is not None) == (bound != "consumer-bound"), whole


def test_it_tells_of_a_run_under_way(told: dict[str, Any]) -> None:
    assert (told["live"]["class"], told["live"]["cause"]) == ("store-bound", "latency"), json.dumps(told["live"])


def test_for_people_it_is_the_class_why_and_what_to_do(told: dict[str, Any]) -> None:
    first, *rest = told["text"].splitlines()
    assert first.endswith(": write-bound")
    assert rest[0].startswith("Writing is the limit")
    assert "Evidence" in rest
    assert "What to change" in rest
    assert rest[-1].startswith("Gain to expect: up to ")
    assert any("steps wrote files" in line for line in rest)


def test_a_run_that_reads_nothing_by_headrace_has_no_verdict(seaweedfs: EmbeddedS3, tmp_path: Path) -> None:
    rig = RunsRig(seaweedfs, tmp_path)
    rig.headrace("run", "--", "true")
    assert why_text(rig).endswith("no verdict.")
    assert "no such run" in rig.headrace("why", "nothing", code=3).stderr
    rig.close()


def test_a_run_that_ends_before_its_first_batch_says_by_what(seaweedfs: EmbeddedS3, tmp_path: Path) -> None:
    rig = RunsRig(seaweedfs, tmp_path)
    put(rig, "cat", 30, 100)
    loop = """
        import headrace as hr
        def decode(sample):
            if sample["__key__"].endswith("00003"):
                return sample["label"]
            return sample
        for batch in hr.Dataset.open("s3://BUCKET/cat").map(decode).batch(10).loader():
            pass
    """.replace("BUCKET", rig.bucket)
    for name, script, code, says in (
        ("decode", loop, 1, "ended by KeyError in map(decode) at 00003"),
        ("missing", loop.replace("s3://", "s3://no-"), 1, "ended by NotFoundError: s3://no-"),
        ("module", "import no_such_module", 1, "ended by ModuleNotFoundError: No module named 'no_such_module'"),
        ("code", "import sys; sys.exit(3)", 3, "ended with exit code 3"),
        ("killed", "import os; os.kill(os.getpid(), 9)", 137, "killed by SIGKILL"),
    ):
        rig.script(script, f"{name}.py")
        rig.headrace("run", "--name", name, "--", sys.executable, f"{name}.py", code=code)
        verdict = why_of(rig, name)
        assert (verdict["class"], verdict["cause"], verdict["gain"]) == ("failed", "start", 1.0)
        assert f"first batch: {says}" in verdict["statement"], name
    rig.script(loop.replace("00003", "00029"), "later.py")
    rig.headrace("run", "--name", "later", "--", sys.executable, "later.py", code=1)
    verdict = why_of(rig, "later")
    assert verdict["class"] == "not enough data"
    assert verdict["evidence"][0] == "the run did not finish: ended by KeyError in map(decode) at 00029"
    rig.close()


@pytest.mark.parametrize("name", ["far", "model"])
def test_code_that_reads_files_of_a_mount_is_judged_by_what_it_does_there(
    seaweedfs: EmbeddedS3, tmp_path: Path, name: str
) -> None:
    """Another program reads slow files of the same mount meanwhile."""
    need_fuse()
    rig = RunsRig(seaweedfs, tmp_path)
    for folder in ("near", "far", "strange"):
        put(rig, folder, 100, 20_000)
    with FaultServer(Upstream("127.0.0.1", int(seaweedfs.endpoint.rpartition(":")[2]))) as way:
        variables = {"AWS_ENDPOINT_URL_S3": way.endpoint, "HEADRACE_CACHE_SIZE": "0"}
        mount = Rig(seaweedfs, rig.bucket, tmp_path / "mount", variables=variables, options="ro")
        mount.scratch.mkdir()
        mount.start()
        stranger = None
        try:
            way.plan = Plan([Fault(Kind.LATENCY, key=f"*{folder}/*", delay_s=0.15) for folder in ("far", "strange")])
            stranger = subprocess.Popen(
                ["sh", "-c", 'while cat "$0"/strange/* >"$1"; do :; done', mount.folder, os.devnull],
                start_new_session=True,
            )
            folder, step_s = {"far": ("far", 0.001), "model": ("near", 1.2)}[name]
            job = {"data": "", "mounted": f"{mount.folder}/{folder}", "step_s": step_s, "batch": 1}
            apart = ["setsid", "--wait"]  # as torchrun puts each of its processes into a session of its own
            rig.headrace("run", "--name", "mounted", "--", *apart, sys.executable, str(JOB), json.dumps(job))
            rig.headrace("run", "--name", "elsewhere", "--", "sleep", "2")
            assert stranger.poll() is None
        finally:
            if stranger is not None:
                os.killpg(stranger.pid, signal.SIGKILL)
                stranger.wait()
            mount.stop()
    found = why_of(rig, "mounted")
    assert found["class"] == {"far": "store-bound", "model": "consumer-bound"}[name], found
    assert "files were opened" in found["evidence"][0], found
    assert why_of(rig, "elsewhere")["class"] == "not enough data", "it read nothing of a mount"
    rig.close()


def why_text(rig: RunsRig) -> str:
    return rig.headrace("why", "latest").stdout.splitlines()[1]
