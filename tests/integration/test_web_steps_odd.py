"""Loops that do not log one step for each batch: a page may not know what they had, but shows nothing else as exact."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.store.embedded import EmbeddedS3
from tests.runs_rig import RunsRig
from tests.web_rig import Served

pytestmark = pytest.mark.server
SCRIPT = """
    import json, os, sys
    from headrace.tracking.log import flush
    import headrace as hr

    what, how = sys.argv[1:]
    attempt = int(os.environ["HEADRACE_ATTEMPT"])
    data = hr.Dataset.open(what).shuffle(seed=5)
    seen = {}

    def note(step, keys, told=True):
        seen[step] = keys
        hr.log({"loss": 1.0}, step=step)
        if told:
            flush()

    def keys(got):
        return [str(key) for key in got["__key__"]]

    def loop(data, step=0, told=7, most=None, **options):
        with data.loader(**options) as loader:
            for number, got in enumerate(loader):
                if number == most:
                    break
                note(step, keys(got), step % told == 0)
                step += 1
        return step

    def every_other(sample, odd=[]):
        return int(str(sample["__key__"])[-2:]) % 2 == 0

    if how == "filtered":
        loop(data.filter(every_other).batch(2), told=3)
    elif how == "skipped":
        def broken(sample):
            if int(str(sample["__key__"])[-2:]) % 3 == 0:
                raise ValueError("broken")
            return sample
        loop(data.map(broken, on_error=hr.Skip(max_count=20)).batch(2), told=3)
    elif how == "one batch":
        got = keys(next(iter(data.batch(4).loader())))
        for step in range(20):
            note(step, got, step % 7 == 0)
    elif how == "several a step":
        with data.batch(1).loader() as loader:
            parts, step = [], 0
            for got in loader:
                parts += keys(got)
                if len(parts) == (1 if step % 4 < 2 else 3):  # 8 in four steps, but not 2 in each
                    note(step, parts, step % 4 == 3)
                    parts, step = [], step + 1
    elif how == "validated":
        with data.batch(10).loader() as train, data.take(20).batch(10).loader() as val:
            step = 0
            for _ in range(4):
                for got in train:
                    note(step, keys(got))
                    step += 1
                list(val)
                hr.log({"val": 1.0}, step=step - 1)
                flush()
    elif how == "again":
        if attempt == 1:
            loop(data.batch(4), told=5)
            os._exit(3)
        loop(hr.Dataset.open(what).shuffle(seed=6).batch(3), told=4)
    elif how == "twice":  # steps begin again, with another order
        loop(data.batch(4), told=5)
        loop(hr.Dataset.open(what).shuffle(seed=6).batch(3), told=4)
    elif how == "forked":
        pid = os.fork()
        if pid == 0:
            loop(data.shard(1, 2).batch(3), told=2)
            os._exit(0)
        seen.clear()
        loop(data.shard(0, 2).batch(3), told=2)
        os.waitpid(pid, 0)
    with open(os.path.join(os.environ["HEADRACE_OUTPUTS"], "seen.json"), "w") as file:
        json.dump(seen, file)
"""
HOW = ("filtered", "skipped", "one batch", "several a step", "validated", "again", "twice", "forked")


@pytest.fixture(scope="module")
def rig(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunsRig]:
    made = RunsRig(seaweedfs, tmp_path_factory.mktemp("odd"), {"HEADRACE_CACHE_SIZE": "1GB"})
    made.variables = {"HEADRACE_CACHE_SIZE": "1GB", "HEADRACE_CACHE_DIR": str(made.scratch / "cache")}
    folder = made.work / "words"
    folder.mkdir()
    for number in range(30):
        (folder / f"{number:02}.txt").write_text(f"word {number}")
    made.headrace("cp", "-r", "words", f"s3://{made.bucket}/words")
    made.headrace("snapshot", f"s3://{made.bucket}/words", "--name", "words")
    script = made.script(SCRIPT)
    for how in HOW:
        made.headrace(
            "run", "--id", how.replace(" ", "-"), "--attempts", "2", "--", "python", script, "words@v1", how
        )  # fmt: skip
    yield made
    made.close()


@pytest.mark.parametrize("how", HOW)
def test_what_is_shown_as_exact_is_what_the_loop_had(rig: RunsRig, web: Served, how: str) -> None:
    run = how.replace(" ", "-")
    data = rig.read(run, "outputs/seen.json")
    assert data is not None
    wrong: list[Any] = []
    for step, keys in json.loads(data).items():
        twin: Any = web.twin(f"/runs/{run}/step/{step}")
        exact = [[sample["key"] for sample in batch["samples"]] for batch in twin["batches"] if batch["exact"]]
        if exact and keys not in exact:
            wrong.append((step, keys, exact))
        assert how == "forked" or len(exact) <= 1, step
    assert wrong == []
