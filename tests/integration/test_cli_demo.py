"""``headrace demo``: the whole story, on the digits and on a folder of images."""

from __future__ import annotations

import random
import re

import pytest

from headrace.cli.demo_job.proof import compare
from tests.integration.cli_kit import Shell, shell  # noqa: F401


@pytest.mark.timeout(600)
def test_the_demo_trains_as_runs_is_stopped_resumed_rerun_and_proves_it(shell: Shell) -> None:  # noqa: F811
    out = shell.run("demo", "--dir", "stage", "--epochs", "6").out
    first = re.search(r"headrace stop (\S+) --wait", out)
    assert first
    assert re.search(rf"{first[1]} +stopped ", out), "as the list of runs tells it"
    assert "every sample exactly once" in out
    assert "in one go from the record: the same weights" in out
    assert re.search(rf"{first[1]}: [a-z]+-bound", out), "what limits it, whatever that is on a busy machine"
    accuracy = re.search(r"   held-out accuracy ([0-9.]+)%", out)
    assert accuracy
    assert float(accuracy[1]) >= 97
    rates = re.findall(r"one epoch from (.*): ([\d,]+) samples, .* held-out accuracy ([\d.]+)%", out)
    assert [name for name, _, _ in rates] == ["single objects", "shards"]
    assert len({result[1:] for result in rates}) == 1, "the same samples in the same order train the same model"
    assert not (shell.folder / "headrace.toml").exists()


def test_the_demo_takes_a_tree_of_class_folders(shell: Shell) -> None:  # noqa: F811
    from PIL import Image

    chance = random.Random(5)
    for colour in ("red", "green"):
        (shell.folder / "images" / colour).mkdir(parents=True)
        for number in range(60):
            shade = chance.randrange(120, 255)
            pixel = (shade, 0, 0) if colour == "red" else (0, shade, 0)
            Image.new("RGB", (20 + number % 7, 16), pixel).save(shell.folder / f"images/{colour}/{number}.jpg")
    out = shell.run("demo", "--data", "images", "--dir", "stage", "--epochs", "2").out
    assert "120 samples" in out
    assert "every sample exactly once" in out


def test_the_demo_refuses_a_folder_without_classes(shell: Shell) -> None:  # noqa: F811
    shell.file("images/one/readme.txt", "no image")
    shell.fails("demo", "--data", "images", code=2, says="images")


def test_the_proof_can_fail() -> None:
    everything = {"a", "b", "c", "d"}
    assert compare(everything, ["a", "b"], ["d", "c"]).holds
    assert compare(everything, ["a", "b"], ["c"]).missing == 1
    assert compare(everything, ["a", "b"], ["b", "c", "d"]).repeated == 1
    assert not compare(everything, ["a", "a"], ["b", "c", "d"]).holds
