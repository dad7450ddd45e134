"""Inputs of runs: pinned when they start, the same whatever happens to the objects, as names, mounts and copies."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.testing.servers import EmbeddedS3
from tests.mount_rig import need_fuse
from tests.runs_rig import RunsRig
from tests.sync_rig import wait_for

pytestmark = pytest.mark.server

SEES = """
    import json, os, pathlib, sys, time
    where = os.environ["HEADRACE_INPUT_TRAIN"]
    if sys.argv[1:] == ["wait"]:
        open("ready", "w").close()
        while not os.path.exists("go"):
            time.sleep(0.02)
    seen = {}
    if where.startswith("/"):
        root = pathlib.Path(where)
        files = [p for p in root.rglob("*") if p.is_file()] if root.is_dir() else [root]
        for path in files:
            try:
                seen[str(path.relative_to(root))] = path.read_text()
            except OSError as error:
                seen[str(path.relative_to(root))] = error.errno
        try:
            (root / "new").write_text("x") if root.is_dir() else root.write_text("x")
        except OSError as error:
            seen["writes"] = error.errno
    else:
        import headrace as hr
        try:
            for sample in hr.Dataset.open(where, by="object", format="objects").loader():
                seen[sample["__key__"]] = bytes(sample["txt"]).decode()
        except hr.errors.HeadraceError as error:
            seen["error"] = error.code
    json.dump([where, seen], open(os.environ["HEADRACE_OUTPUTS"] + "/seen.json", "w"))
"""


@pytest.fixture
def rig(seaweedfs: EmbeddedS3, tmp_path: Path) -> Iterator[RunsRig]:
    folders = {"HEADRACE_CACHE_DIR": str(tmp_path / "cache"), "HEADRACE_MOUNT_RUN_DIR": str(tmp_path / "live")}
    made = RunsRig(seaweedfs, tmp_path, folders)
    made.script(SEES)
    for number in range(5):
        made.store().put(f"data/{number % 2}/{number}.txt", f"sample {number}".encode())
    yield made
    made.close()


SAMPLES = {f"{number % 2}/{number}.txt": f"sample {number}" for number in range(5)}


def read(rig: RunsRig, how: str, *options: str, source: str = "", code: int = 0) -> str:
    """A run that reads its input; what was said of it."""
    given = ("--set", f"inputs.train={source or f's3://{rig.bucket}/data'}", "--set", f"inputs.train.as={how}")
    return rig.headrace("run", *given, *options, "--", sys.executable, "train.py", code=code).stderr


def of(rig: RunsRig, name: str) -> str:
    """The id of the only run of that name."""
    (run,) = (one for one in rig.ids() if one.split("-")[2] == name)
    return run


def seen(rig: RunsRig, name: str = "train") -> tuple[str, dict[str, object]]:
    """What a run found: the variable, and what it read."""
    where, found = json.loads(rig.read(of(rig, name), "outputs/seen.json") or b"")
    return where, found


def recorded(rig: RunsRig, name: str = "train") -> dict[str, object]:
    return json.loads(rig.read(of(rig, name), "run.json") or b"")["inputs"]["train"]


def mounts(rig: RunsRig) -> list[str]:
    """What is mounted below the rig's folders."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [line.split()[1] for line in lines if line.split()[1].startswith(str(rig.scratch))]


def test_a_name_opens_exactly_what_was_pinned(rig: RunsRig):
    passed = '["PATH","HOME","PYTHONPATH","AWS_*","HEADRACE_CACHE_*"]'
    said = read(rig, "name", "--set", f"environment.pass={passed}")
    where, found = seen(rig)
    assert where == f"run:{rig.only()}/train"
    assert found == SAMPLES
    assert "5 objects" in said
    pin = recorded(rig)
    assert (pin["objects"], pin["bytes"], pin["as"], pin["given"]) == (5, 40, "name", "name")
    assert [one for one in rig.names(rig.only()) if one.startswith("inputs/")] == [
        "inputs/train/manifest.parquet", "inputs/train/pin.json",
    ]  # fmt: skip
    rig.store().put("data/0/new.txt", b"not pinned")
    opens = f"import headrace as hr; print(len(hr.Dataset.open('run:{rig.only()}/train', by='object')))"
    (rig.work / "opens.py").write_text(opens)
    rig.headrace("run", "-q", "--name", "other", "--", sys.executable, "opens.py")
    assert rig.headrace("logs", "other").stdout == "5\n", "from the home, by another run"


NO_CREDENTIALS = ("--set", 'environment.pass=["PATH","HOME"]')


def test_a_mount_shows_exactly_what_was_pinned_and_is_gone_afterwards(rig: RunsRig):
    need_fuse()
    read(rig, "mount", *NO_CREDENTIALS)
    where, found = seen(rig)
    assert found == {**SAMPLES, "writes": 30}, "EROFS"
    assert where == f"{rig.state}/{rig.only()}/inputs/train"
    assert recorded(rig)["given"] == "mount"
    shown = f"train = s3://{rig.bucket}/data (5 objects, 40 B, as mount)"
    assert shown in rig.headrace("runs", "show", "latest").stdout
    assert (mounts(rig), list(rig.state.iterdir())) == ([], [])


def test_a_copy_is_shared_by_the_runs_that_pin_the_same(rig: RunsRig):
    said = read(rig, "copy", "--name", "first", *NO_CREDENTIALS)
    where, found = seen(rig, "first")
    writes = found.pop("writes", None)
    assert found == SAMPLES
    assert os.geteuid() == 0 or writes == 13, "EACCES"
    file = Path(where, "0", "0.txt")
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o444, 0o555)
    before = file.stat().st_ino
    if os.geteuid() != 0:
        read(rig, "copy", "--name", "second")
        assert seen(rig, "second")[0] == where
        assert file.stat().st_ino == before
    assert "input train: 5 objects" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can write where nobody may")
def test_a_copy_that_was_written_to_is_not_used_again(rig: RunsRig):
    read(rig, "copy", "--name", "first")
    where, found = seen(rig, "first")
    assert "writes" not in found
    assert Path(where, "new").exists(), "root may"
    read(rig, "copy", "--name", "second")
    assert seen(rig, "second") == (where, SAMPLES)
    rig.variables = {**rig.variables, "HEADRACE_RUN_COPIES": "1"}
    read(rig, "copy", "--name", "third", source=f"s3://{rig.bucket}/data/1")
    assert not os.path.exists(where), "one is kept, and this is not the last"
    assert os.path.exists(seen(rig, "third")[0])


def test_one_object_is_a_file(rig: RunsRig):
    need_fuse()
    rig.script("""
        import os
        import headrace as hr
        for name in ("A", "B"):
            print(open(os.environ[f"HEADRACE_INPUT_{name}"]).read())
        print([bytes(sample["txt"]) for sample in hr.Dataset.open(os.environ["HEADRACE_INPUT_C_C"]).loader()])
    """, "reads.py")  # fmt: skip
    rig.store().put("data/0/0.txt.more", b"a neighbour")
    source = f"s3://{rig.bucket}/data/0/0.txt"
    (rig.work / "job.toml").write_text(f"""
        command = ["{sys.executable}", "reads.py"]
        [inputs]
        a = {{ source = "{source}", as = "mount" }}
        b = {{ source = "{source}", as = "copy" }}
        c-c = "{source}"
    """)
    assert rig.headrace("run", "-q", "job.toml").stdout == "sample 0\nsample 0\n[b'sample 0']\n"
    told = rig.json("runs", "show", "latest")["record"]["inputs"]
    assert [(one["single"], one["objects"], one["given"]) for one in told.values()] == [
        (True, 1, "mount"), (True, 1, "copy"), (True, 1, "name"),
    ]  # fmt: skip


@pytest.mark.parametrize("how", ["name", "mount"])
def test_an_object_that_changes_is_refused_and_never_read_otherwise(rig: RunsRig, how: str):
    if how == "mount":
        need_fuse()
    given = ("--set", f"inputs.train=s3://{rig.bucket}/data", "--set", f"inputs.train.as={how}")
    running = rig.start("run", *given, "--", sys.executable, "train.py", "wait")
    assert wait_for((rig.work / "ready").exists)
    rig.store().put("data/0/0.txt", b"replaced")
    rig.store().delete(["data/1/1.txt"])
    (rig.work / "go").touch()
    running.communicate(timeout=60)
    _, found = seen(rig)
    if how == "mount":
        assert found == {**SAMPLES, "0/0.txt": 116, "1/1.txt": 116, "writes": 30}, "ESTALE"
    else:
        assert found["error"] in ("changed", "not-found")
    assert "replaced" not in found.values()


def test_rerun_takes_the_same_versions_and_says_what_it_cannot_have(rig: RunsRig):
    read(rig, "copy", "--name", "first")
    rig.store().put("data/0/added.txt", b"later")
    said = rig.headrace("rerun", "first", "--name", "again").stderr
    assert "cannot be had" not in said
    assert {key: value for key, value in seen(rig, "again")[1].items() if key != "writes"} == SAMPLES
    assert recorded(rig, "again")["digest"] == recorded(rig, "first")["digest"]
    rig.store().put("data/0/0.txt", b"replaced")
    rig.store().delete(["data/1/1.txt"])
    told = rig.headrace("rerun", "first", "--set", "inputs.train.as=name", "--name", "named").stderr
    assert "2 of 5 objects cannot be had as they were" in told
    assert "0/0.txt (changed), 1/1.txt (gone)" in told
    for kept in (rig.scratch / "kept" / "inputs").iterdir():
        if kept.is_dir():
            (kept / "made.json").unlink()
    refused = rig.headrace("rerun", "first", code=5).stderr
    assert "inputs.train" in refused
    assert "data/0/0.txt" in refused
    count = len(rig.ids())
    told = rig.headrace("rerun", "first", "--set", f"inputs.train=s3://{rig.bucket}/data/0", "--name", "set").stderr
    assert len(rig.ids()) == count + 1
    assert "not as before: input train was" in told


def test_a_snapshot_is_pinned_by_its_version(rig: RunsRig):
    need_fuse()
    rig.headrace("snapshot", f"s3://{rig.bucket}/data", "--name", "digits")
    read(rig, "name", "--name", "first", source="digits")
    assert seen(rig, "first")[0] == "digits@v1"
    rig.store().put("data/0/added.txt", b"later")
    rig.headrace("snapshot", f"s3://{rig.bucket}/data", "--name", "digits")
    rig.headrace("rerun", "first", "--set", "inputs.train.as=mount", "--name", "again")
    assert seen(rig, "again")[1] == {**SAMPLES, "writes": 30}
    assert recorded(rig, "again")["snapshot"] == "digits@v1"
    read(rig, "name", "--name", "newest", source="digits")
    assert seen(rig, "newest")[0] == "digits@v2"


def test_what_is_not_there_is_refused_before_the_run_is_recorded(rig: RunsRig):
    for source, code, says in (
        ("nothing@v3", 3, "no snapshot"),
        (f"s3://{rig.bucket}/empty", 3, "holds no objects"),
        ("/not/attached", 3, "nothing is attached here"),
    ):
        told = read(rig, "name", source=source, code=code)
        assert "inputs.train" in told
        assert says in told, told
    (rig.work / "job.toml").write_text("command = ['true']\n[inputs]\ntrain = 'gone@v1'\n")
    assert "inputs.train" in rig.headrace("run", "job.toml", code=3).stderr
    assert rig.ids() == []
    assert list(rig.state.iterdir()) == []
