"""Packing to TFRecord and Parquet, and from text, killed at any instant."""

from __future__ import annotations

import hashlib
import signal
from pathlib import Path

import pytest

from tests.fault.test_pack_crash import make_tree, start, wait_for
from tests.integration.cli_kit import Shell, shell  # noqa: F401

SLOW = "import time\ndef slow(sample):\n    time.sleep(0.004)\n    return sample\n"


def contents(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.glob("0*")}


@pytest.mark.parametrize("form", ["tfrecord", "parquet"])
def test_killed_with_some_shards_finished_it_goes_on_to_the_same_bytes(shell: Shell, form: str) -> None:  # noqa: F811
    make_tree(shell.folder / "tree")
    shell.file("prepare.py", SLOW)
    options = ("--format", form, "--shard-size", "60kB", "--shuffle", "5", "--workers", "2", "--map", "prepare:slow")
    out = shell.folder / "out"
    process = start(shell, "pack", "tree", "out", *options)
    wait_for(lambda: len(list(out.glob("_pack/shards/*.json"))) >= 5, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (out / "_pack/index.json").exists()
    kept = len(list(out.glob("_pack/shards/*.json")))
    ended = shell.json("pack", "tree", "out", *options)
    assert ended["kept"] == kept
    assert ended["made"] == ended["shards"] - kept > 0
    shell.run("pack", "tree", "undisturbed", *options)
    assert contents(out) == contents(shell.folder / "undisturbed")


def test_text_that_is_killed_goes_on_and_keeps_the_book_of_bad_rows(shell: Shell) -> None:  # noqa: F811
    lines = "".join(f"{n},{n / 3}\n" if n % 1000 else "bad,row\n" for n in range(20_000))
    shell.file("text/a.csv", "a,b\n" + lines)
    options = ("--format", "parquet", "--columns", "i64, f64", "--shard-size", "10kB", "--max-errors", "100", "-j", "1")
    out = shell.folder / "out"
    process = start(shell, "pack", "text", "out", *options)
    wait_for(lambda: len(list(out.glob("_pack/shards/*.json"))) >= 3, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = len(list(out.glob("_pack/shards/*.json")))
    ended = shell.json("pack", "text", "out", *options)
    assert (ended["kept"], ended["skipped"], ended["samples"]) == (kept, 20, 19_980)
    assert ended["made"] > 0
    shell.run("pack", "text", "undisturbed", *options)
    assert contents(out) == contents(shell.folder / "undisturbed")
    book = "_pack/skipped.json"
    assert (out / book).read_text() == (shell.folder / "undisturbed" / book).read_text()
