"""snapshot, snapshots, load, cache, bench, doctor: against a real S3 server."""

from __future__ import annotations

import pytest

from tests.integration.cli_kit import Shell, s3_shell  # noqa: F401


@pytest.fixture
def images(s3_shell: Shell) -> Shell:  # noqa: F811
    """Twenty samples of two objects at ``/data``."""
    for number in range(20):
        s3_shell.file(f"tree/{number:02d}.image", f"image {number}" * 100)
        s3_shell.file(f"tree/{number:02d}.label", str(number))
    url = s3_shell.variables["BUCKET"] + "/images"
    s3_shell.run("cp", "-r", "tree", url)
    s3_shell.run("attach", "/data", url)
    return s3_shell


def test_a_snapshot_is_listed_compared_and_checked(images: Shell) -> None:
    made = images.json("snapshot", "/data", "--name", "digits")
    assert (made["id"], made["objects"]) == ("digits@v1", 40)
    assert [row["id"] for row in images.json("snapshots", "digits")] == ["digits@v1"]
    assert images.json("snapshots", "verify", "digits@v1") == []
    assert len(images.run("ls", "digits@v1").out.splitlines()) == 40
    assert images.json("du", "digits@v1")[-1]["files"] == 40

    images.run("rm", "/data/03.label")
    images.file("new", "new bytes")
    images.run("cp", "new", "/data/05.label")
    changes = {row["path"]: row["kind"] for row in images.json("snapshots", "verify", "digits@v1", code=5)}
    assert changes == {"03.label": "removed", "05.label": "changed"}
    images.run("snapshot", "/data", "--name", "digits", "--version", "later")
    assert len(images.json("snapshots", "diff", "digits@v1", "digits@later")) == 2
    images.fails("snapshot", "/data", "--name", "digits", "--version", "v1", code=5, says="digits@v1")
    report = images.json("snapshots", "report", "digits@later")
    assert report["objects"] == 39
    assert [(gap["suffix"], gap["samples"]) for gap in report["missing"]] == [("label", 1)]
    assert "03" in images.run("snapshots", "report", "digits@later").out


def test_a_snapshot_is_copied_in_the_versions_it_records(images: Shell) -> None:
    images.run("snapshot", "/data", "--name", "digits")
    images.file("deep/er/x.image", "below a folder")
    images.run("cp", "-r", "deep", "/data")
    images.run("cp", "-r", "digits@v1", "copy")
    copied = {path.relative_to(images.folder / "copy").as_posix(): path for path in (images.folder / "copy").rglob("*")}
    assert sorted(copied) == sorted(path.name for path in (images.folder / "tree").iterdir())
    assert all(path.read_bytes() == (images.folder / "tree" / name).read_bytes() for name, path in copied.items())

    there = images.variables["BUCKET"] + "/both"
    images.run("snapshot", "/data", "--name", "digits", "--version", "later")
    images.run("cp", "-r", "digits@v1", "digits@later", there)
    assert len(images.run("ls", "-r", f"{there}/digits@v1").out.splitlines()) == 40
    assert images.run("cat", f"{there}/digits@later/er/x.image").out == "below a folder"

    images.fails("cp", "digits@v1", "copy", code=2, says="digits@v1: is a snapshot", hint="cp -r")
    images.fails("cp", "-r", "digits@v9", "copy", code=3, says="digits@v9", hint="v1")
    images.fails("cp", "-r", "digits@v1", "/data", code=2, says="the same object")


def test_an_object_that_changed_after_the_snapshot_is_not_copied(images: Shell) -> None:
    images.run("snapshot", "/data", "--name", "digits")
    images.file("new", "?")  # as long as the old one
    images.run("cp", "new", "/data/05.label")
    images.fails("cp", "-r", "-j", "1", "digits@v1", "copy", code=5, says="images/05.label")
    assert (images.folder / "copy/05.image").exists()
    assert not (images.folder / "copy/05.label").exists()
    images.file("copy/05.label", "5")
    images.run("cp", "-r", "-n", "digits@v1", "copy")  # what is there already is not asked for
    assert len(list((images.folder / "copy").iterdir())) == 40


def test_one_snapshot_is_shown_by_its_name_and_version(images: Shell) -> None:
    images.run("snapshot", "/data", "--name", "pets")
    shown = images.json("snapshots", "pets@v1")
    assert shown == images.json("snapshots", "pets")[0]
    assert images.json("snapshots", "pets@latest") == shown
    assert "pets@v1" in images.run("snapshots", "pets@v1").out
    images.fails("snapshots", "pets@v7", code=3, says="pets@v7", hint="v1")


def test_a_wrong_snapshot_name_says_what_there_is(images: Shell) -> None:
    images.run("snapshot", "/data", "--name", "digits")
    images.fails("ls", "digits@v7", code=3, says="digits@v7", hint="v1")
    images.fails("snapshots", "verify", "other", code=3, says="other", hint="digits")
    images.fails("snapshot", "/data", "--name", "bad/name", code=2, says="bad/name")


def test_load_fills_the_cache_and_skips_what_is_there(images: Shell) -> None:
    first = images.json("load", "/data")
    assert (first["loaded"], first["already"], first["not_kept"]) == (40, 0, 0)
    again = images.json("load", "/data")
    assert (again["loaded"], again["already"]) == (0, 40)
    images.run("cp", "tree/00.image", "/data/20.image")
    some = images.json("load", "/data")
    assert (some["loaded"], some["already"]) == (1, 40)


def test_load_of_large_objects_and_of_a_snapshot(images: Shell) -> None:
    (images.folder / "big").write_bytes(bytes(range(256)) * (35 << 12))  # above one piece of the warmer
    images.run("cp", "big", "/data/big.bin")
    images.run("snapshot", "/data", "--name", "digits")
    assert images.json("load", "digits@v1")["loaded"] == 41
    assert images.json("load", "digits@v1")["already"] == 41
    assert images.json("cache", "verify")["checked"] == 41


def test_load_says_when_the_cache_is_off_or_too_small(images: Shell) -> None:
    images.fails("load", "/data", code=2, says="cache is off", HEADRACE_CACHE_SIZE="0")
    images.fails("load", "/data", code=6, says="not kept", hint="cache status", HEADRACE_CACHE_SIZE="50kB")


def test_the_cache_is_inspected_pinned_and_emptied(images: Shell) -> None:
    images.run("load", "/data")
    status = images.json("cache", "status")
    assert (status["entries"], status["pinned"]) == (40, 0)
    images.run("cache", "pin", "/data/07.image")
    images.run("cache", "evict", "--all")
    assert images.json("cache", "status")["entries"] == 1
    images.run("cache", "unpin", "/data/07.image")
    images.run("cache", "evict", "/data")
    assert images.json("cache", "status")["entries"] == 0
    images.fails("cache", "evict", code=2, says="evict what?")


def test_verify_finds_a_damaged_entry(images: Shell) -> None:
    images.run("load", "/data")
    entry = next(path for path in (images.folder / "cache").rglob("objects/*/*") if path.stat().st_size > 100)
    mtime = entry.stat().st_mtime
    entry.write_bytes(b"?" + entry.read_bytes()[1:])
    assert entry.stat().st_mtime >= mtime
    images.fails("cache", "verify", code=2, says="1 damaged")
    assert images.json("cache", "status")["entries"] == 39


def test_refresh_shows_new_objects_before_the_ttl_is_over(images: Shell) -> None:
    def samples() -> int:
        return images.json("bench", "/data", "--by", "object", "--epochs", "1")[0]["samples"]

    assert samples() == 40
    images.run("cp", "tree/00.image", "/data/20.image")
    assert samples() == 40
    images.run("cache", "refresh", "/data")
    assert samples() == 41


def test_bench_reads_the_second_epoch_from_the_cache(images: Shell) -> None:
    first, second = images.json("bench", "/data", "--batch", "8")
    assert first["samples"] == second["samples"] == 20
    assert first["cache_hits"] == 0
    assert second["cache_hits"] == 40
    assert "SAMPLES/S" in images.run("bench", "/data", "--by", "object").out


def test_bench_measures_the_samples_of_shards_as_training_would_read_them(images: Shell) -> None:
    url = images.variables["BUCKET"] + "/packed"
    images.run("pack", "/data", url)
    images.run("attach", "/packed", url)
    bench = ("bench", "/packed", "--epochs", "1")
    assert images.json(*bench)[0]["samples"] == 20
    shards = len([line for line in images.run("ls", "/packed").out.splitlines() if line.endswith(".tar")])
    assert images.json(*bench, "--from", "objects", "--by", "object")[0]["samples"] > shards > 0

    whole = images.file("cut.tar", "no tar, though it is called one" * 40)
    images.run("cp", str(whole), "/packed/zz.tar")
    images.run("cache", "refresh", "/packed")
    images.fails(*bench, code=2, says="zz.tar", hint="--from objects")


def test_doctor_measures_the_store_and_says_what_to_change(images: Shell) -> None:
    findings = {row["id"]: row for row in images.json("doctor", "/data", "--write", "--seconds", "2")}
    assert findings["reach"]["status"] == "ok"
    assert findings["clock"]["status"] == "ok"
    assert findings["capabilities"]["values"]["create_only_put"] is True
    assert findings["latency"]["values"]["p50"] > 0
    assert [level["in_flight"] for level in findings["throughput"]["values"]["levels"]][:3] == [1, 2, 4]
    assert not [key for key in images.run("ls", "-r", images.variables["BUCKET"]).out.split() if "probe" in key]


def test_doctor_names_what_is_wrong_and_fails(images: Shell) -> None:
    wrong = images.run("doctor", "/data", code=1, AWS_SECRET_ACCESS_KEY="wrong")
    assert "FAIL" in wrong.out
    assert "->" in wrong.out
    with (images.folder / "headrace.toml").open("a") as settings:
        settings.write(f'\n[stores."{images.variables["BUCKET"]}"]\nretries = 1\n')
    gone = images.run("doctor", "/data", code=1, AWS_ENDPOINT_URL_S3="http://127.0.0.1:9")
    assert "127.0.0.1:9" in gone.out
