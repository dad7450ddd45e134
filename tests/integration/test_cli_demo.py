"""``headrace demo``: what it makes of a folder of images, and its proof. The whole story is told in ``test_dist``."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from headrace.base.settings import Settings
from headrace.cli.demo_job.data import DataSet, class_folders
from headrace.cli.demo_job.proof import compare
from headrace.namespace import Namespace
from tests.integration.cli_kit import Shell, shell  # noqa: F401


def test_a_tree_of_class_folders_becomes_samples_that_its_script_can_learn(tmp_path: Path) -> None:
    from headrace.cli.demo_job.train import Decode, make_model

    chance = random.Random(5)
    for colour in ("red", "green"):
        (tmp_path / "images" / colour).mkdir(parents=True)
        for number in range(10):
            shade = chance.randrange(120, 255)
            pixel = (shade, 0, 0) if colour == "red" else (0, shade, 0)
            Image.new("RGB", (20 + number % 7, 16), pixel).save(tmp_path / f"images/{colour}/{number}.jpg")
    (tmp_path / "images/red/readme.txt").write_text("no image")
    data_set, samples = class_folders(Namespace.load(Settings()), str(tmp_path / "images"))
    found = list(samples)
    assert data_set == DataSet(("green", "red"), side=32, channels=3, samples=20)
    assert len(found) == len({sample.name for sample in found}) == 20
    assert all(sample.name.startswith(f"{data_set.classes[sample.label]}/") for sample in found)
    assert [sample.split for sample in found[:6]] == ["test", "train", "train", "train", "train", "test"]

    decode = Decode(data_set.side, data_set.channels)
    images = [decode({"__key__": "k", "image": one.image, "label": str(one.label).encode()}) for one in found]
    assert [image["label"] for image in images] == [sample.label for sample in found]
    shades = [dict(zip(("red", "green"), one["image"].mean(axis=(1, 2))[:2], strict=True)) for one in images]
    assert [max(shade, key=shade.__getitem__) for shade in shades] == [data_set.classes[one.label] for one in found]
    batch = torch.from_numpy(np.stack([image["image"] for image in images]))
    assert make_model(2, data_set.channels)(batch).shape == (20, 2)


def test_the_demo_refuses_a_folder_without_classes(shell: Shell) -> None:  # noqa: F811
    shell.file("images/one/readme.txt", "no image")
    shell.fails("demo", "--data", "images", code=2, says="images")


def test_the_proof_can_fail() -> None:
    everything = {"a", "b", "c", "d"}
    assert compare(everything, ["a", "b"], ["d", "c"]).holds
    assert compare(everything, ["a", "b"], ["c"]).missing == 1
    assert compare(everything, ["a", "b"], ["b", "c", "d"]).repeated == 1
    assert not compare(everything, ["a", "a"], ["b", "c", "d"]).holds
