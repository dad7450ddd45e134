"""pack and unpack as programs, on a local disk and on a real S3 server; shards are read by GNU tar and webdataset."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import signal
import subprocess
import tarfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import webdataset

from headrace import Dataset
from headrace.base.errors import BadSampleError
from headrace.pack import pack
from tests.integration.cli_kit import PROGRAM, Shell, s3_shell, shell  # noqa: F401

COUNT = 60


class Seen(NamedTuple):
    """Bytes, so that a comparison that fails says so briefly."""

    size: int
    digest: str


def seen(data: bytes) -> Seen:
    return Seen(len(data), hashlib.sha256(data).hexdigest())


def make_tree(folder: Path) -> dict[str, Seen]:
    """Samples of two parts, in folders, of many sizes, one with a name that needs a pax header."""
    made = {}
    for number in range(COUNT):
        stem = f"{number % 3}/{number:03d}"
        made[f"{stem}.JPG"] = os.urandom(number * 97)
        made[f"{stem}.cls"] = str(number).encode()
    made[f"é/{'long' * 30}.meta.json"] = b"{}"
    for name, data in made.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return {name: seen(data) for name, data in made.items()}


def read_tree(folder: Path) -> dict[str, Seen]:
    return {
        path.relative_to(folder).as_posix(): seen(path.read_bytes()) for path in folder.rglob("*") if path.is_file()
    }


def shards(folder: Path) -> dict[str, Seen]:
    return {path.name: seen(path.read_bytes()) for path in sorted(folder.glob("*.tar"))}


@pytest.fixture
def tree(shell: Shell) -> dict[str, bytes]:  # noqa: F811
    return make_tree(shell.folder / "tree")


def test_shards_hold_exactly_the_samples_for_gnu_tar_python_and_webdataset(
    shell: Shell,  # noqa: F811
    tree: dict[str, Seen],
) -> None:
    packed = shell.json("pack", "tree", "out", "--shard-size", "30kB")
    made = shards(shell.folder / "out")
    assert packed["samples"] == COUNT + 1
    assert packed["shards"] == packed["made"] == len(made) > 5
    assert packed["bytes"] == sum(one.size for one in made.values())
    assert max(one.size for one in made.values()) <= 30_000

    unpacked = shell.folder / "gnu"
    unpacked.mkdir()
    for name in made:
        result = subprocess.run(
            ["tar", "xf", shell.folder / "out" / name, "-C", unpacked], capture_output=True, check=True
        )
        assert result.stderr == b""
    assert read_tree(unpacked) == tree

    by_python = {}
    for name in made:
        with tarfile.open(shell.folder / "out" / name) as tar:
            by_python.update({info.name: seen(tar.extractfile(info).read()) for info in tar})  # type: ignore[union-attr]
            assert {(info.mode, info.uid, info.mtime) for info in tar} == {(0o644, 0, 0)}
    assert by_python == tree
    assert list(by_python) == sorted(tree, key=lambda name: (name.split(".")[0].encode(), name))

    urls = [str(shell.folder / "out" / name) for name in made]
    samples = list(webdataset.WebDataset(urls, shardshuffle=False))
    assert len(samples) == COUNT + 1
    assert {f"{s['__key__']}.JPG": seen(s["jpg"]) for s in samples if "jpg" in s} == {
        name: data for name, data in tree.items() if name.endswith("JPG")
    }


def test_the_same_bytes_come_out_again_and_with_any_number_of_workers(
    shell: Shell,  # noqa: F811
    tree: dict[str, Seen],
) -> None:
    arguments = ("--shard-size", "30kB", "--shuffle", "7")
    shell.run("pack", "tree", "one", *arguments, "--workers", "1")
    for path in (shell.folder / "tree").rglob("*"):
        os.utime(path, (1, 1))  # when it was written is not what it is
    shell.run("pack", "tree", "five", *arguments, "--workers", "5", HEADRACE_CACHE_TTL="0s")
    assert shards(shell.folder / "one") == shards(shell.folder / "five")
    shell.run("pack", "tree", "other", "--shard-size", "30kB", "--shuffle", "8")
    assert shards(shell.folder / "one") != shards(shell.folder / "other")
    assert read_tree(shell.folder / "tree") == tree


def test_a_shuffle_is_the_order_of_the_first_epoch(shell: Shell, tree: dict[str, Seen]) -> None:  # noqa: F811
    import headrace as hr

    shell.run("pack", "tree", "out", "--shard-size", "30kB", "--shuffle", "7")
    order = hr.Dataset.open((shell.folder / "tree").as_uri()).shuffle(7).loader()
    keys = []
    for path in sorted((shell.folder / "out").glob("*.tar")):
        with tarfile.open(path) as tar:
            keys += [name.rpartition("/")[0] + "/" + Path(name).name.split(".")[0] for name in tar.getnames()]
    assert list(dict.fromkeys(keys)) == [sample["__key__"] for sample in order]
    assert len(tree) == len(keys)


@pytest.mark.usefixtures("tree")
def test_packing_again_makes_nothing_and_mends_what_was_lost(shell: Shell) -> None:  # noqa: F811
    arguments = ("pack", "tree", "out", "--shard-size", "30kB")
    first = shell.json(*arguments)
    before = {path: path.stat().st_mtime_ns for path in (shell.folder / "out").rglob("*.*")}
    again = shell.json(*arguments)
    assert (again["made"], again["kept"]) == (0, first["shards"])
    assert {path: path.stat().st_mtime_ns for path in (shell.folder / "out").rglob("*.*")} == before

    made = shards(shell.folder / "out")
    (shell.folder / "out/000001.tar").unlink()
    (shell.folder / "out/000002.tar").write_bytes(b"?" * made["000002.tar"].size)
    assert shell.json(*arguments, "--verify", "full")["made"] == 2
    assert shards(shell.folder / "out") == made
    assert json.loads((shell.folder / "out/_pack/index.json").read_text())["samples"] == COUNT + 1


@pytest.mark.usefixtures("tree")
def test_another_packing_in_the_same_place_is_refused(shell: Shell) -> None:  # noqa: F811
    shell.run("pack", "tree", "out", "--shard-size", "30kB")
    made = shards(shell.folder / "out")
    for wrong in (("--shard-size", "20kB"), ("--shard-size", "30kB", "--shuffle", "1")):
        shell.fails("pack", "tree", "out", *wrong, code=5, says=f"{wrong[-2]} differ", hint="another place")
    shell.file("tree/new.jpg", "more")
    again = ("pack", "tree", "out", "--shard-size", "30kB")
    shell.fails(*again, code=5, says="the samples or their order", hint="snapshot", HEADRACE_CACHE_TTL="0s")
    assert shards(shell.folder / "out") == made


@pytest.mark.usefixtures("tree")
def test_wrong_sources_destinations_and_options_get_one_message(shell: Shell) -> None:  # noqa: F811
    shell.fails("pack", "nothing", "out", code=3, says="nothing")
    shell.fails("pack", "tree", "tree/shards", code=2, says="lies in the source")
    shell.file("full/x", "")
    shell.fails("pack", "tree", "full", code=2, says="holds other objects", hint="an empty place")
    shell.fails("pack", "tree", "out", "--shard-size", "much", code=2, says="--shard-size")
    shell.fails("pack", "tree", "out", "--name", "shard.tar", code=2, says="shard.tar", hint="%06d")
    shell.fails("pack", "tree", "out", "--max-errors", "few", code=2, says="few")
    shell.fails("pack", "tree", "out", "--map", "nowhere:f", code=2, says="'nowhere'")
    shell.fails("pack", "tree", "out", "--map", "os:nothing", code=2, says="'nothing'")
    shell.fails("pack", "tree", "out", "--by", "colour", code=2, says="colour")
    assert "'zip'" in shell.run("pack", "tree", "out", "--format", "zip", code=2).err
    with (shell.folder / "list.csv").open("w") as file:
        csv.writer(file).writerows([["path"], ["tree/0/000.JPG"]])
    shell.fails("pack", "list.csv", "out", code=2, says="sizes", hint="snapshot")
    shell.file("headrace.toml", '[stores."http://127.0.0.1:9"]\nretries = 1\n')
    shell.fails("pack", "tree", "http://127.0.0.1:9/x", code=6, says="refuses connections")
    assert not (shell.folder / "out").exists()


def test_a_key_that_webdataset_cannot_hold_is_named_before_anything_is_written(shell: Shell) -> None:  # noqa: F811
    shell.file("tree/a.jpg", "a")
    shell.file("tree/.hidden", "b")
    shell.fails("pack", "tree", "out", code=2, says=".hidden: the key has a dot", hint="--map")
    shell.file("other/a.JPG", "a")
    shell.file("other/a.jpg", "b")
    shell.fails("pack", "other", "out", code=2, says="two parts of one name: JPG, jpg")
    assert not (shell.folder / "out").exists()


MAP = """
import numpy as np

def small(sample):
    number = int(bytes(sample["cls"]))
    if number % 20 == 3:
        raise ValueError("a bad one")
    return {"__key__": f"n{number}", "pixels": np.full((2, 3), number, np.uint8), "cls": np.int64(number), "txt": "é",
            "half": 0.5, "none": None, "__note__": object()}
"""


def test_a_function_changes_samples_and_bad_ones_are_named_up_to_the_budget(shell: Shell) -> None:  # noqa: F811
    for number in range(COUNT):
        shell.file(f"tree/{number:03d}.cls", str(number))
    shell.file("prepare.py", MAP)
    arguments = ("pack", "tree", "out", "--map", "prepare:small", "--shard-size", "20kB")
    shell.fails(
        *arguments, "-j", "1", code=2, says="003: map(small) failed: ValueError: a bad one", hint="--max-errors"
    )
    shell.fails(*arguments, "--max-errors", "2", code=2, says="3 bad samples, 2 allowed", hint="--max-errors")
    packed = shell.json(*arguments, "--max-errors", "5%")
    assert (packed["samples"], packed["skipped"]) == (COUNT - 3, 3)
    named = json.loads((shell.folder / "out/_pack/skipped.json").read_text())
    assert [one["key"] for one in named] == ["003", "023", "043"]
    assert "a bad one" in named[0]["reason"]

    samples = list(webdataset.WebDataset([str(p) for p in (shell.folder / "out").glob("*.tar")], shardshuffle=False))
    assert len(samples) == COUNT - 3
    sample = next(sample for sample in samples if sample["__key__"] == "n7")
    (shell.folder / "x.npy").write_bytes(sample["pixels.npy"])
    assert np.array_equal(np.load(shell.folder / "x.npy"), np.full((2, 3), 7, np.uint8))
    assert (sample["cls"], sample["txt"], sample["half"]) == (b"7", "é".encode(), b"0.5")
    assert "none" not in sample


def test_unpack_gives_the_objects_back(shell: Shell, tree: dict[str, Seen]) -> None:  # noqa: F811
    shell.run("pack", "tree", "out", "--shard-size", "30kB", "--shuffle", "1")
    unpacked = shell.json("unpack", "out", "back")
    assert unpacked["objects"] == len(tree)
    assert unpacked["bytes"] == sum(one.size for one in tree.values())
    assert read_tree(shell.folder / "back") == tree
    shell.run("unpack", "out", "back")  # as after one that was killed
    (shell.folder / "back/0/003.cls").write_bytes(b"mine")
    shell.fails("unpack", "out", "back", code=5, says="is there already, in other bytes", hint="--overwrite")
    (shell.folder / "back/0/003.cls").write_bytes(b"3")
    shell.run("unpack", "out/000000.tar", "back", "--overwrite")
    assert read_tree(shell.folder / "back") == tree


def test_unpack_takes_tars_of_others_with_compression_links_and_large_members(shell: Shell) -> None:  # noqa: F811
    (shell.folder / "tree").mkdir()
    (shell.folder / "tree/large.bin").write_bytes(os.urandom(1 << 20) * 18)
    (shell.folder / "tree/small.txt").write_text("small")
    (shell.folder / "tree/link").symlink_to("small.txt")
    (shell.folder / "in").mkdir()
    for flag, name in (("z", "a.tar.gz"), ("J", "b.tar.xz")):
        subprocess.run(["tar", f"c{flag}f", f"../in/{name}", "."], cwd=shell.folder / "tree", check=True)
        unpacked = shell.json("unpack", f"in/{name}", name + ".d")
        assert (unpacked["objects"], unpacked["left_out"]) == (2, 1)
        back = read_tree(shell.folder / f"{name}.d")
        assert back == {n: seen((shell.folder / "tree" / n).read_bytes()) for n in ("large.bin", "small.txt")}


@pytest.mark.usefixtures("tree")
def test_unpack_names_a_shard_that_is_cut_short_or_leads_elsewhere(shell: Shell) -> None:  # noqa: F811
    shell.run("pack", "tree", "out", "--shard-size", "30kB")
    whole = (shell.folder / "out/000002.tar").read_bytes()
    (shell.folder / "out/000002.tar").write_bytes(whole[:-1024])  # cut between two members
    shell.fails("unpack", "out", "back", code=2, says="000002.tar: after", hint="whole")
    (shell.folder / "evil").mkdir()
    with tarfile.open(shell.folder / "evil/x.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("../outside"))
    shell.fails("unpack", "evil", "in/side", code=2, says="'../outside'")
    assert not (shell.folder / "in/outside").exists()
    shell.fails("unpack", "tree", "back2", code=3, says="holds no shards")
    (shell.folder / "out/_pack/index.json").unlink()
    shell.fails("unpack", "out", "back3", code=2, says="not packed to the end", hint="again")


def test_a_snapshot_on_s3_is_packed_to_s3_and_read_by_nobody_s_leave(s3_shell: Shell) -> None:  # noqa: F811
    tree = make_tree(s3_shell.folder / "tree")
    bucket = s3_shell.variables["BUCKET"]
    s3_shell.run("cp", "-r", "tree", f"{bucket}/data")
    s3_shell.run("snapshot", f"{bucket}/data", "--name", "set")
    arguments = ("pack", "set@v1", f"{bucket}/shards", "--shard-size", "30kB", "--verify", "full")
    packed = s3_shell.json(*arguments)
    assert (packed["samples"], packed["skipped"], packed["made"]) == (COUNT + 1, 0, packed["shards"])
    assert s3_shell.json(*arguments)["made"] == 0
    s3_shell.run("pack", "tree", "here", "--shard-size", "30kB")
    s3_shell.run("cp", "-r", f"{bucket}/shards", "copy")
    assert shards(s3_shell.folder / "copy") == shards(s3_shell.folder / "here")  # any store, the same bytes
    s3_shell.run("unpack", f"{bucket}/shards", f"{bucket}/back")
    s3_shell.run("cp", "-r", f"{bucket}/back", "back")
    assert read_tree(s3_shell.folder / "back") == tree

    s3_shell.run("rm", f"{bucket}/data/1/004.JPG")
    gone = ("pack", "set@v1", f"{bucket}/other", "--shard-size", "30kB")
    s3_shell.fails(*gone, code=3, says="1/004.JPG")
    packed = s3_shell.json(*gone, "--max-errors", "1")
    assert (packed["samples"], packed["skipped"]) == (COUNT, 1)
    s3_shell.file("new", "?")
    s3_shell.run("cp", "new", f"{bucket}/data/1/004.JPG")
    s3_shell.fails("pack", "set@v1", f"{bucket}/third", code=5, says="1/004.JPG")


def test_shards_larger_than_one_part_go_to_s3_whole(s3_shell: Shell) -> None:  # noqa: F811
    for number in range(10):
        path = s3_shell.folder / f"tree/{number}.bin"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(os.urandom(4 << 20))
    bucket = s3_shell.variables["BUCKET"]
    packed = s3_shell.json("pack", "tree", f"{bucket}/shards", "--verify", "full")
    assert (packed["shards"], packed["samples"]) == (1, 10)
    s3_shell.run("pack", "tree", "here")
    s3_shell.run("cp", f"{bucket}/shards/000000.tar", "there.tar")
    assert (s3_shell.folder / "there.tar").read_bytes() == (s3_shell.folder / "here/000000.tar").read_bytes()


SLOW = "import time\ndef slow(sample):\n    time.sleep(0.05)\n    return sample\n"


def test_ctrl_c_ends_within_two_seconds_and_a_rerun_goes_on(shell: Shell, tree: dict[str, Seen]) -> None:  # noqa: F811
    shell.file("prepare.py", SLOW)
    arguments = ["pack", "tree", "out", "--shard-size", "20kB", "--map", "prepare:slow", "-j", "1"]
    process = subprocess.Popen(
        [*PROGRAM, *arguments], cwd=shell.folder, env=shell.environment, stderr=subprocess.PIPE, text=True
    )
    done = shell.folder / "out/_pack/shards"
    until = time.monotonic() + 60
    while not (done.is_dir() and list(done.glob("*.json"))) and time.monotonic() < until:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, err = process.communicate(timeout=20)
    assert time.monotonic() - began < 2.0
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert not (shell.folder / "out/_pack/index.json").exists()
    rest = shell.json(*arguments)
    assert rest["kept"] >= 1
    assert rest["made"] >= 1
    shell.run("unpack", "out", "back")
    assert read_tree(shell.folder / "back") == tree


def test_records_of_several_shards_get_keys_of_their_own(tmp_path: Path) -> None:
    """Each TFRecord counts its records from nought; in one tar they must stay apart."""
    source, packed = tmp_path / "tf", tmp_path / "packed"
    source.mkdir()
    compat = Path(__file__).parents[1] / "compat" / "shards" / "examples.tfrecord"
    for name in ("part-0.tfrecord", "part-1.of.2.tfrecord"):
        (source / name).write_bytes(compat.read_bytes())
    pack(source.as_uri(), packed.as_uri())
    before = list(Dataset.open(source.as_uri()).loader())
    after = list(Dataset.open(packed.as_uri()).loader())
    assert [bytes(sample["data"]) for sample in after] == [bytes(sample["data"]) for sample in before]
    assert [after[0]["__key__"], after[-1]["__key__"]] == ["part-0/00000000", "part-1_of_2/00000004"]


def test_two_samples_of_one_key_are_refused_by_name(tmp_path: Path) -> None:
    source = tmp_path / "tars"
    source.mkdir()
    for shard in range(2):
        (tmp_path / "same.txt").write_text(str(shard))
        with tarfile.open(source / f"{shard}.tar", "w") as file:
            file.add(tmp_path / "same.txt", "same.txt")
    with pytest.raises(BadSampleError, match=r"same: the shard has a sample of this key already"):
        pack(source.as_uri(), (tmp_path / "packed").as_uri())
