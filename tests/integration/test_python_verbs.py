"""What commands do, called from Python: `hr.load`, `hr.copy`, `hr.doctor`, … and the methods beside them."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

import headrace as hr
from headrace.base.errors import InputError, NotFoundError, ReadOnlyError, TryAgainError
from headrace.base.metrics import Metrics
from headrace.base.settings import Settings
from headrace.cache import Cache
from headrace.cluster.task_program import work
from headrace.fetch import Warmed
from headrace.jobs import Here, JobSpec, RunRequest, TaskOrder, run_here
from headrace.namespace import Home
from headrace.store import EmbeddedS3, StoreOptions, open_store
from headrace.sync import Sync, SyncOptions, recover_syncs
from headrace.tracking import Runs
from tests.mount_rig import need_fuse

BUCKET = "verbs"


@pytest.fixture
def bucket(seaweedfs: EmbeddedS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A prefix of a bucket with two samples of two objects each below `data`, a home and a cache of its own."""
    seaweedfs.create_bucket(BUCKET)
    for name, value in seaweedfs.variables().items():
        monkeypatch.setenv(name, value)
    url = f"s3://{BUCKET}/{uuid4().hex[:12]}"
    monkeypatch.setenv("HEADRACE_HOME", f"{url}/home")
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HEADRACE_RUN_STATE", str(tmp_path / "runs"))
    monkeypatch.setenv("HEADRACE_SYNC_STATE", str(tmp_path / "syncs"))
    monkeypatch.chdir(tmp_path)
    with hr.Namespace.load() as space:
        for key in ("a/1.image", "a/1.label", "b/2.image", "b/2.label"):
            space.write(f"{url}/data/{key}", key.encode())
        yield url


def entries() -> int:
    return Cache.open(Settings.load().cache, Metrics(), required=True).status().entries


def test_a_tree_is_loaded_pinned_and_evicted(bucket: str) -> None:
    data = f"{bucket}/data"
    first, second = hr.load(data), hr.load(data, in_flight=2)
    first.check(data)
    assert (first.loaded, first.already, first.size) == (4, 0, 36)
    assert (second.loaded, second.already) == (0, 4)
    assert hr.pin(f"{data}/a/1.image") == 1
    assert hr.evict(f"{data}/a").entries == 1
    assert hr.pin(f"{data}/a/1.image", pinned=False) == 1
    assert entries() == 3
    assert hr.evict_to(0).entries == 3
    assert entries() == 0


def test_what_was_not_loaded_is_an_error_when_it_is_asked_for() -> None:
    Warmed(loaded=1).check("/data")
    with pytest.raises(NotFoundError, match="2 not loaded; first: gone"):
        Warmed(failed=2, errors=[NotFoundError("gone", path="/data/a")]).check("/data")
    with pytest.raises(TryAgainError, match="3 objects were read but not kept") as caught:
        Warmed(not_kept=3).check("/data")
    assert caught.value.path == "/data"


def test_a_snapshot_is_taken_added_up_and_copied(bucket: str, tmp_path: Path) -> None:
    made = hr.snapshot(f"{bucket}/data", "verbs")
    assert (made.id, made.objects) == ("verbs@v1", 4)
    with hr.Namespace.load() as space:
        space.write(f"{bucket}/data/c/3.image", b"later")
    assert [(folder.files, folder.size) for folder in hr.usage("verbs@v1", depth=0)] == [(4, 36)]
    assert hr.usage(f"{bucket}/data", depth=0)[-1].files == 5
    with pytest.raises(InputError, match="is a snapshot"):
        hr.copy("verbs@v1", tmp_path / "copy")
    hr.copy("verbs@v1", tmp_path / "copy", recursive=True)
    assert (tmp_path / "copy/a/1.image").read_text() == "a/1.image"
    assert not (tmp_path / "copy/c").exists(), "it is of later than the snapshot"


def test_a_tree_of_the_namespace_is_copied_added_up_and_deleted(bucket: str, tmp_path: Path) -> None:
    with hr.Namespace.load() as space:
        space.attach("/data", f"{bucket}/data")
        space.copy_tree("/data", tmp_path / "tree")
        (tmp_path / "tree/a/1.image").write_text("kept")
        space.copy_tree("/data", str(tmp_path / "tree"), existing="keep")
        assert (tmp_path / "tree/a/1.image").read_text() == "kept"
        space.copy_tree("/data", str(tmp_path / "tree"), existing="checksum", jobs=1)
        assert (tmp_path / "tree/a/1.image").read_text() == "a/1.image"
        os.mkfifo(tmp_path / "tree/pipe")
        left: list[str] = []
        space.copy_tree(tmp_path / "tree", "/data/again", tell=left.append)
        assert [line for line in left if "is a pipe" in line] == left != []
        assert [(one.path, one.files) for one in space.usage("/data", 2)][-2:] == [("/data/b", 2), ("/data", 8)]
        space.delete_files(space.files("/data/again"))
        assert [entry.path for entry in space.files("/data")][:2] == ["/data/a/1.image", "/data/a/1.label"]
        assert len(list(space.files("/data"))) == 4
        assert [entry.path for entry in space.files("/data/a/1.image")] == ["/data/a/1.image"]
        with pytest.raises(NotFoundError):
            list(space.files("/data/nothing"))


def test_uploads_that_never_ended_are_listed_and_discarded(bucket: str) -> None:
    with hr.Namespace.load() as space:
        assembly = space.assemble(f"{bucket}/data/big")
        assembly.part(1, 0, b"x" * (5 << 20))
        assert space.unfinished(f"{bucket}/data") == [], "younger than a day"
        found = space.unfinished(f"{bucket}/data", older_than_s=-60.0)
        assert [one.key.rpartition("/")[2] for one in found] == ["big"]
        assert space.unfinished(f"{bucket}/dat", older_than_s=-60.0) == [], "of another folder"
        assert space.unfinished(f"{bucket}/data", older_than_s=-60.0, discard=True) == found
        assert space.unfinished(f"{bucket}/data", older_than_s=-60.0) == []
        space.attach("/fixed", f"{bucket}/data", read_only=True)
        with pytest.raises(ReadOnlyError):
            space.unfinished("/fixed", discard=True)


def test_a_listing_is_made_again_before_its_time(bucket: str) -> None:
    assert len(hr.Dataset.open(f"{bucket}/data")) == 2
    with hr.Namespace.load() as space:
        space.write(f"{bucket}/data/c/3.image", b"3")
        space.write(f"{bucket}/data/c/3.label", b"3")
    assert len(hr.Dataset.open(f"{bucket}/data")) == 2
    hr.refresh(f"{bucket}/data")
    assert len(hr.Dataset.open(f"{bucket}/data")) == 3


def test_epochs_are_measured(bucket: str) -> None:
    rows = [one.as_dict() for one in hr.bench(f"{bucket}/data", batch=2, epochs=3, prefetch="1MB")]
    assert [(row["id"], row["samples"]) for row in rows] == [(1, 2), (2, 2), (3, 2)]
    assert [row["cache_hits"] for row in rows] == [0, 4, 4], "of each epoch alone"


def test_doctor_gives_its_findings_one_by_one(bucket: str) -> None:
    findings = {one.id: one for one in hr.doctor(f"{bucket}/data", seconds=0.4)}
    assert findings["reach"].status == "ok"
    assert findings["latency"].values["p50"] > 0
    assert next(one.id for one in hr.doctor()) == "settings"
    failed = [one for one in hr.doctor(f"{bucket}/nothing", seconds=0.1) if one.status == "fail"]
    assert failed, "an error of a check is a finding"


def test_a_run_is_led_followed_and_deleted(bucket: str, tmp_path: Path) -> None:
    spec = JobSpec.from_command(["sh", "-c", "echo one; echo two >&2"]).with_flags({"code.capture": "false"})
    began: list[str] = []
    outcome = run_here(
        RunRequest(spec.check(), Here(str(tmp_path)), "verbs-run", quiet=True), passing=None,
        started=lambda run, _log: began.append(run),
    )  # fmt: skip
    assert (outcome.exit.status, began) == (0, ["verbs-run"])
    run = hr.run("verbs-run")
    assert sorted(line.text for line in run.follow() if line.over) == ["one", "two"]
    assert run.stop(wait_s=1.0).state == "finished"
    assert run.delete() > 0
    with pytest.raises(NotFoundError):
        hr.run("verbs-run")


def test_a_request_that_cannot_be_says_so(tmp_path: Path) -> None:
    spec = JobSpec.from_command(["true"]).with_flags({"cluster.nodes": 2}).check()
    with pytest.raises(InputError, match="names no cluster"):
        run_here(RunRequest(spec, Here(str(tmp_path))))


def test_a_task_is_reported_as_it_ended(bucket: str, tmp_path: Path) -> None:
    spec = JobSpec.from_command(["sh", "-c", "exit 3"]).with_flags({"code.capture": "false"}).check()
    report = work(TaskOrder(spec, "verbs-task", str(tmp_path), None, {"run": "verbs-whole", "as": "task"}))
    assert (report.state, report.recorded) == ("failed", True)
    report = work(TaskOrder(spec, "verbs-task", str(tmp_path), None, {"run": "verbs-whole", "as": "task"}))
    assert (report.state, report.recorded) == ("failed", False), "the id is taken"


def test_what_a_sync_left_is_sent(bucket: str, tmp_path: Path) -> None:
    folder = tmp_path / "outputs"
    folder.mkdir()
    options = SyncOptions.of(Settings.load().sync, period_s=0.5, exclude=["*.skip"], watch=False)
    with Sync.open(folder, f"{bucket}/out", options) as sync:
        (folder / "a.txt").write_text("a")
        (folder / "b.skip").write_text("b")
        sync.close()
    (one,) = recover_syncs(None, options, 10.0)
    assert (one.folder, one.state, one.files, one.error) == (str(folder), "finished", 1, None)
    with hr.Namespace.load() as space:
        assert [entry.name for entry in space.list(f"{bucket}/out")] == ["a.txt"]
    assert list(recover_syncs(str(folder), options, 10.0)) == []


def test_a_gateway_answers_within_its_block(bucket: str, tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text(f'[mounts."/data"]\nurl = "{bucket}/data"\n')
    with hr.gateway.open_gateway(write=True) as gateway:
        (key,) = gateway.keys
        assert (gateway.buckets, key.write) == (["data"], True)
        options = StoreOptions(
            endpoint=gateway.url, region="us-east-1", access_key_id=key.access_key, secret_access_key=key.secret,
            path_style=True, allow_http=True,
        )  # fmt: skip
        with closing(open_store("s3://data", options)) as store:
            assert bytes(store.get("a/1.image").data) == b"a/1.image"
        url = gateway.url
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url, timeout=5)


def test_a_gateway_has_the_keys_of_its_file_and_makes_none(bucket: str, tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text(f'[mounts."/data"]\nurl = "{bucket}/data"\n')
    file = tmp_path / "keys.toml"
    file.touch(0o600)
    file.write_text('[keys.spark]\nsecret = "at least eight"\n')
    with hr.gateway.open_gateway(keys=str(file)) as gateway:
        assert [(key.access_key, key.write) for key in gateway.keys] == [("spark", False)]
    with pytest.raises(InputError, match="--write is for the key"):
        hr.gateway.open_gateway(keys=str(file), write=True)
    given = hr.gateway.GatewayOptions(keys=(hr.gateway.Key("mine", "at least eight"),))
    with hr.gateway.open_gateway(given) as gateway:
        assert gateway.keys == given.keys
    with pytest.raises(InputError, match="--write is for the key"):
        hr.gateway.open_gateway(given, write=True)


def test_the_page_answers_within_its_block(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with hr.web.open_page() as page:
        url, _, token = page.entry.partition("/?token=")
        asked = urllib.request.Request(f"{url}/runs", headers={"Authorization": f"Bearer {token}"})
        assert urllib.request.urlopen(asked, timeout=30).status == 200
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url, timeout=5)
    monkeypatch.setenv("HEADRACE_WEB_TOKEN", "chosen-by-the-user")
    with hr.web.open_page() as page:
        assert page.entry == page.url, "who starts it knows the token"
        asked = urllib.request.Request(f"{page.url}/runs", headers={"Authorization": "Bearer chosen-by-the-user"})
        assert urllib.request.urlopen(asked, timeout=30).status == 200
    given = hr.web.Options(token="another-that-is-known", known=True)
    with hr.web.open_page(given) as page:
        asked = urllib.request.Request(f"{page.url}/runs", headers={"Authorization": "Bearer another-that-is-known"})
        assert urllib.request.urlopen(asked, timeout=30).status == 200


def test_a_run_goes_on_by_itself_and_has_a_shell(
    bucket: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = hr.jobs.start(["sh", "-c", "echo one; echo $MARK"], {"code.capture": "false", "tags.by": "verbs",
                                                               "environment.variables.MARK": "two"})  # fmt: skip
    assert [line.text for line in run.follow() if line.over] == ["one", "two"]
    assert run.stop(wait_s=30.0).state == "finished"
    assert run.tags == {"by": "verbs"}
    (tmp_path / "job.toml").write_text('name = "from-a-file"\ncommand = ["true"]\n[code]\ncapture = false\n')
    assert hr.jobs.start("job.toml", folder=str(tmp_path)).record.name == "from-a-file"
    capfd.readouterr()
    told: list[str] = []
    line = "echo a $MORE; exit 7"
    ended = hr.shell(run.id, hr.ShellOptions(("sh", "-c", line), {"MORE": "three"}), tell=told.append)
    assert (ended.status, capfd.readouterr().out) == (7, "a three\n")
    assert any("nothing that is done here is recorded" in text for text in told)
    told.clear()
    assert hr.shell(run.id, hr.ShellOptions(("true",), quiet=True), tell=told.append).succeeded
    assert told == []


def test_a_store_is_attached_for_good_and_taken_off(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    made = hr.attach("/data", f"{bucket}/data", read_only=True, region="us-east-1")
    assert (made.file, made.empty) == ("headrace.toml", False)
    assert 'region = "us-east-1"' in Path(made.file).read_text()
    with hr.Namespace.load() as space:
        assert [(mount.path, mount.read_only) for mount in space.mounts()] == [("/data", True)]
    assert hr.attach("/none", f"{bucket}/nothing", file=str(tmp_path / "headrace.toml")).empty
    assert not hr.attach("/none", "s3://no-such-bucket-of-ours", check=False, file="other.toml").empty
    with pytest.raises(InputError, match="a secret is not written"):
        hr.attach("/other", f"{bucket}/data", access_key_id="ours", secret_access_key="HUSH", check=False)
    assert hr.detach("/data") == str(tmp_path / "below/headrace.toml")
    with pytest.raises(NotFoundError, match="not attached"):
        hr.detach("/data")


def test_a_run_is_started_again_from_its_record(bucket: str, tmp_path: Path) -> None:
    first = hr.jobs.start(["sh", "-c", "echo one"], {"code.capture": "false"})
    first.stop(wait_s=30.0)
    again = hr.jobs.start_again(first.id, {"tags.by": "verbs"})
    assert again.stop(wait_s=30.0).state == "finished"
    assert (again.record.parent, again.tags) == ({"run": first.id, "as": "rerun"}, {"by": "verbs"})
    with hr.Namespace.load() as space:
        recorded = Runs(Home.of(space, Settings.load())).find(again.id)
        request = RunRequest.again(recorded, {"command": ["true"]}, run_id="verbs-again", resume=True, quiet=True)
        assert (request.parent, request.resumes) == ({"run": again.id, "as": "resume"}, recorded)
        assert request.spec.argv == ("true",)
        outcome = run_here(RunRequest.again(recorded, run_id="verbs-again", quiet=True), passing=None)
    assert outcome.exit.succeeded
    with pytest.raises(NotFoundError):
        hr.jobs.start_again("verbs-nothing")


def test_a_run_that_cannot_be_is_not_started(bucket: str) -> None:
    with pytest.raises(InputError, match="is not a known key") as caught:
        hr.jobs.start(["true"], {"nothing": "1"})
    assert "known: " in (caught.value.hint or "")
    assert hr.runs() == []
    with pytest.raises(NotFoundError):
        hr.shell("verbs-nothing")
    with pytest.raises(InputError, match="go with --rank"):
        hr.shell("verbs-nothing", hr.ShellOptions(anywhere=True))


def test_a_shell_on_a_rank_s_node_is_told_what_was_asked_for() -> None:
    asked = hr.ShellOptions(("ls", "-l"), {"A": "1"}, resume=True, quiet=True, rank=3)
    assert asked.words == ("--resume", "--quiet", "--env=A=1", "--", "ls", "-l")


def test_manifests_are_those_of_one_thing(tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text('name = "digits"\ncommand = ["true"]\n')
    asked = hr.cluster.KubernetesRequest(
        str(job), {"grace": "1min"}, home="s3://bucket/home", memory=16 * 10**9, secret="store", variables={"A": "1"}
    )  # fmt: skip
    made = hr.cluster.kubernetes_manifests(asked)
    assert list(made.files) == ["serviceaccount.yaml", "configmap.yaml", "job.yaml"]
    assert made.yaml.count("---\n") == 3
    assert 'memory: "16G"' in made.files["job.yaml"]
    assert "grace = " in made.files["configmap.yaml"]
    assert any("needs the secret store" in line for line in made.needs)
    made.write(str(tmp_path / "made"))
    assert (tmp_path / "made/job.yaml").read_text() == made.files["job.yaml"]
    both = hr.cluster.KubernetesRequest(str(job), web=True, home="s3://bucket/home")
    for refused in (both, hr.cluster.KubernetesRequest(home="s3://bucket/home")):
        with pytest.raises(InputError, match="name one thing to run"):
            hr.cluster.kubernetes_manifests(refused)
    with pytest.raises(InputError, match="goes with --mount"):
        hr.cluster.kubernetes_manifests(asked, beside=str(tmp_path / "made/job.yaml"))
    mount = hr.cluster.KubernetesRequest(mount="/data", home="s3://bucket/home")
    beside = hr.cluster.kubernetes_manifests(mount, beside=str(tmp_path / "made/job.yaml"))
    assert "headrace mount" in beside.yaml or "mount" in beside.files["job.yaml"]
    page = hr.cluster.KubernetesRequest(web=True, home="s3://bucket/home")
    assert "Chart.yaml" in hr.cluster.kubernetes_chart(page).files


MOUNTING = """
import sys
import headrace as hr
mounted = hr.mount.open_mount("/data", sys.argv[1], hr.mount.MountOptions(read_only=True))
print("answers", flush=True)
mounted.wait()
mounted.close()
print(bytes(hr.Namespace.load().read("/data/a/1.label")).decode())
"""


def test_a_mount_is_opened_and_ended(bucket: str, tmp_path: Path) -> None:
    need_fuse()
    point = tmp_path / "headrace-test-mnt"
    point.mkdir()
    hr.attach("/data", f"{bucket}/data")
    with pytest.raises(InputError, match="no mount of headrace"):
        hr.mount.end_mount(str(point))
    command = [sys.executable, "-c", MOUNTING, str(point)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "answers\n"
        assert (point / "a/1.image").read_text() == "a/1.image"
        (line,) = (line for line in Path("/proc/mounts").read_text().splitlines() if str(point) in line)
        assert line.startswith("/data "), "it is known by its path"
        assert hr.mount.end_mount(str(point), timeout_s=30.0)
        assert process.stdout.read() == "a/1.label\n", "others of the process go on reading"
        assert process.wait(30) == 0
    assert list(point.iterdir()) == []
