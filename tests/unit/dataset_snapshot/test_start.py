"""What starting to train brings into the process: pandas, though installed, is not among it."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from headrace.catalog.snapshot import take_snapshot
from tests.unit.dataset_snapshot.kit import World

_TRAIN = """
import json, sys
import headrace as hr

for target, by in json.loads(sys.argv[1]):
    dataset = hr.Dataset.open(target, by=by)
    with dataset.shuffle(seed=1).batch(4).loader() as loader:
        assert len(next(iter(loader))["__key__"]) == 4
    if "windows" in sys.argv[2:]:
        dataset.windows(2)
assert "pandas" not in sys.modules, [target, by]
"""
_LOOK = """
import sys
from headrace.base.settings import Settings
from headrace.catalog.snapshot_diff import change_summary, verify
from headrace.catalog.quality import quality_report
from headrace.catalog.snapshot import open_snapshot
from headrace.namespace import Namespace

settings = Settings.load()
namespace = Namespace.load(settings)
snapshot = open_snapshot("digits@v1", namespace=namespace, settings=settings)
assert change_summary(verify(snapshot, namespace=namespace, settings=settings)).changed == 1
assert quality_report("digits@v1", namespace=namespace, settings=settings).objects == 24
assert "pandas" not in sys.modules
"""


def run(world: World, program: str, *arguments: str) -> None:
    assert importlib.util.find_spec("pandas"), "this test says nothing where pandas is not installed"
    environment = {
        "HEADRACE_HOME": f"file://{world.home}",
        "HEADRACE_CACHE_DIR": str(world.root / "another cache"),
    }
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=os.environ | environment,
        cwd=world.root,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


@pytest.fixture
def digits(world: World) -> World:
    world.write({f"{'ab'[n // 6]}/{n}.{kind}": b"x" * n for n in range(12) for kind in ("image", "label")})
    (world.root / "headrace.toml").write_text(f'[mounts."/data"]\nurl = "file://{world.data}"\n')
    take_snapshot("/data", "digits", **world.context)
    return world


@pytest.mark.parametrize("target", ["/data", "digits@v1", "/data/list.csv", "/data/list.parquet"])
def test_opening_and_loading_never_import_pandas(digits: World, target: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = {"path": [f"{'ab'[n // 6]}/{n}.image" for n in range(12)], "split": ["train"] * 12, "score": [0.5] * 12}
    lines = [",".join(rows), *(",".join(map(str, row)) for row in zip(*rows.values(), strict=True))]
    (digits.data / "list.csv").write_text("\n".join(lines))
    pq.write_table(pa.table(rows), digits.data / "list.parquet")
    run(digits, _TRAIN, json.dumps([(target, by) for by in ("stem", "object", "class", "folder")]), "windows")


def test_looking_at_a_snapshot_never_imports_pandas(digits: World) -> None:
    digits.write({"a/2.image": b"changed"})
    run(digits, _LOOK)


def test_a_snapshot_of_a_url_that_nothing_is_attached_for(digits: World) -> None:
    """The source of such a snapshot is read again by its URL alone."""
    (digits.root / "headrace.toml").unlink()
    digits.namespace.detach("/data")
    made = take_snapshot(f"file://{digits.data}", "loose", **digits.context)
    assert made.source == f"file://{digits.data}"
    run(digits, _TRAIN, json.dumps([("loose@v1", "stem")]))
