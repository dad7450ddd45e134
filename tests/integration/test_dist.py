"""What is published works without the checkout: the wheel of `make dist` in an empty environment."""

from __future__ import annotations

import re
import tarfile
import zipfile
from pathlib import Path

import pytest

import headrace
from tests.dist_kit import ROOT, Built, build, install, show_torch

LOOP = """
import pathlib
import headrace as hr

assert "site-packages" in hr.__file__, hr.__file__
pathlib.Path("samples").mkdir()
for number in range(10):
    pathlib.Path(f"samples/{number}.bin").write_bytes(bytes([number]) * 8)
loader = hr.Dataset.open("samples").shuffle(seed=7).batch(4).loader()
print(sum(len(batch["__key__"]) for batch in loader))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("dist"))


def test_both_have_one_version_and_the_wheel_all_files_of_the_package(built: Built):
    version = headrace.__version__
    assert built.wheel.name == f"headrace-{version}-py3-none-any.whl"
    assert built.source.name == f"headrace-{version}.tar.gz"
    with zipfile.ZipFile(built.wheel) as wheel, tarfile.open(built.source) as source:
        packed = {name for name in wheel.namelist() if name.startswith("headrace/")}
        shipped = {name.partition("/src/")[2] for name in source.getnames() if "/src/" in name}
    there = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src/headrace").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == there
    assert there <= shipped


def test_release_notes_are_of_the_changelog(built: Built):
    notes = built.said.partition("Release notes of ")[2]
    assert re.search(r"^### Added$", notes, re.MULTILINE)
    assert not re.search(r"^## ", notes, re.MULTILINE), "one section"


def test_what_the_wheel_requires_is_enough_for_a_loop(built: Built, tmp_path: Path):
    installed = install(built.wheel, tmp_path)
    assert installed.headrace("--version").strip() == f"headrace {headrace.__version__}"
    assert installed.run(str(installed.python), "-c", LOOP).strip() == "10"
    assert "0.bin" in installed.headrace("ls", "samples")


@pytest.mark.timeout(600)
def test_the_demo_trains_as_runs_is_stopped_resumed_rerun_and_proves_it(built: Built, tmp_path: Path):
    installed = install(built.wheel, tmp_path, "demo")
    show_torch(installed)
    assert str(tmp_path) in installed.run(str(installed.python), "-c", "import headrace; print(headrace.__file__)")
    out = installed.headrace("demo", "--dir", "stage", "--epochs", "6")
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
    assert not (installed.folder / "headrace.toml").exists()
