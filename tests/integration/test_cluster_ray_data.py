"""`hr.ray` on a real Ray cluster of two nodes; samples in SeaweedFS. One child runs all."""

from __future__ import annotations

import secrets
import sys
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.base.errors import UnsupportedError
from headrace.store import open_store
from headrace.store.embedded import EmbeddedS3
from tests.cluster_rig import SharedCluster
from tests.frameworks_kit import names, outcomes
from tests.integration import ray_data_checks

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def found(
    seaweedfs: EmbeddedS3, ray_cluster: SharedCluster, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str | None]:
    folder: Path = tmp_path_factory.mktemp("raydata")
    url = f"s3://ray-{secrets.token_hex(4)}"
    seaweedfs.create_bucket(url.removeprefix("s3://"))
    store = open_store(url, seaweedfs.options())
    for row in range(ray_data_checks.COUNT):
        store.put(f"digits/{row:04d}.txt", str(row).encode())
    for row in range(6):
        store.put(f"changing/{row}.txt", str(row).encode())
    for half in range(2):
        rows = range(half * 50, half * 50 + 50)
        table = pa.table({
            "x": pa.array(rows, pa.int32()),
            "s": pa.array([f"s{row}" if half else None for row in rows], pa.string()),  # blocks without any value
            "when": pa.array([datetime(2026, 1, 1 + row % 28) for row in rows], pa.timestamp("ms")),  # noqa: DTZ001
            "never": pa.nulls(50, pa.float32()),
        })  # fmt: skip
        path = folder / "table.parquet"
        pq.write_table(table, path, row_group_size=20)
        store.put(f"table/{half}.parquet", path.read_bytes())
    store.close()
    mounts = "".join(f'[mounts."/{name}"]\nurl = "{url}/{name}"\n' for name in ("digits", "changing", "table"))
    (folder / "headrace.toml").write_text(f'home = "{url}/home"\n{mounts}')
    variables = {
        **seaweedfs.variables(),
        **ray_cluster.variables,
        "CLUSTER": ray_cluster.inside,
        "HEADRACE_CACHE_DIR": str(folder / "cache"),
    }
    return outcomes(ray_data_checks.__name__, variables, folder, group="ray")


@pytest.mark.parametrize("name", names(ray_data_checks))
def test_ray(found: dict[str, str | None], name: str) -> None:
    assert found[name] is None, found[name]


def test_without_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as Python says: not to be imported
    monkeypatch.setenv("HEADRACE_CACHE_SIZE", "0")
    (tmp_path / "1.x").write_bytes(b"1")
    ds = hr.Dataset.open(tmp_path.as_uri())
    for use in (hr.ray.dataset, hr.ray.shard):
        with pytest.raises(UnsupportedError, match=r"pip install \"headrace\[ray\]\""):
            use(ds)
