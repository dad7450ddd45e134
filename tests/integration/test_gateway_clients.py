"""Programs that only know S3, through the gateway: s5cmd, the AWS CRT, pyarrow, DuckDB, TensorBoard, and headrace."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import headrace as hr
from headrace.testing.servers import EmbeddedS3
from tests import trackers_kit
from tests.frameworks_kit import TOOLS
from tests.gateway_kit import READER, WRITER, Rig, gateway_over, mount, settings_of
from tests.sync_rig import wait_for

pytestmark = pytest.mark.server
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def rig(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("gateway")
    url = seaweedfs.create_bucket("clients-of-the-gateway")
    with gateway_over(settings_of({"/data": mount(url, seaweedfs.options())}, folder), folder) as made:
        yield made


def ran(*command: object, rig: Rig, **more: Any) -> str:
    given = {**os.environ, **rig.variables()}
    program = [str(one) for one in command]
    ended = subprocess.run(program, env=given, capture_output=True, text=True, timeout=100, check=False, **more)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stdout


def test_s5cmd(rig: Rig, tmp_path: Path) -> None:
    program = Path(sys.executable).parent / "s5cmd"
    if not program.exists():
        pytest.skip("s5cmd is not installed: make bench installs it")
    there, back = tmp_path / "there", tmp_path / "back"
    for name, size in (("a.bin", 100), ("deep/er/b.bin", 70_000), ("large.bin", 60 << 20), ("sp ace+.bin", 3)):
        (there / name).parent.mkdir(parents=True, exist_ok=True)
        (there / name).write_bytes(os.urandom(size))
    ran(program, "cp", f"{there}/", "s3://data/s5cmd/", rig=rig)
    listed = ran(program, "ls", "s3://data/s5cmd/*", rig=rig)
    assert all(name in listed for name in ("a.bin", "deep/er/b.bin", "large.bin"))
    ran(program, "cp", "s3://data/s5cmd/*", f"{back}/", rig=rig)
    for file in there.rglob("*.bin"):
        assert (back / file.relative_to(there)).read_bytes() == file.read_bytes()
    ran(program, "mv", "s3://data/s5cmd/a.bin", "s3://data/s5cmd/moved.bin", rig=rig)
    ran(program, "rm", "s3://data/s5cmd/*", rig=rig)
    assert rig.client().list_objects_v2(Bucket="data", Prefix="s5cmd/")["KeyCount"] == 0


def test_the_aws_crt(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    connector = pytest.importorskip("s3torchconnector")
    from s3torchconnector import S3ClientConfig

    for name, value in rig.variables().items():
        monkeypatch.setenv(name, value)
    data = {f"crt/{number}": os.urandom(size) for number, size in enumerate((10, 300_000, 20 << 20))}
    config = S3ClientConfig(force_path_style=True)
    checkpoint = connector.S3Checkpoint(region="us-east-1", endpoint=rig.url, s3client_config=config)
    for key, value in data.items():
        with checkpoint.writer(f"s3://data/{key}") as writer:
            writer.write(value)
    found = connector.S3MapDataset.from_prefix(
        "s3://data/crt/", region="us-east-1", endpoint=rig.url, s3client_config=config
    )
    assert {one.key: one.read() for one in (found[at] for at in range(len(found)))} == data
    with checkpoint.reader("s3://data/crt/2") as reader:
        assert reader.read() == data["crt/2"]


def test_pyarrow(rig: Rig) -> None:
    there = fs.S3FileSystem(access_key=WRITER.access_key, secret_key=WRITER.secret, region="us-east-1",
                            endpoint_override=rig.url)  # fmt: skip
    table = pa.table({"n": list(range(100_000)), "text": [f"row {n}" for n in range(100_000)]})
    for part in range(3):
        pq.write_table(table, f"data/arrow/part={part}/x.parquet", filesystem=there)
    assert pq.read_table("data/arrow", filesystem=there).num_rows == 300_000
    with there.open_output_stream("data/arrow-large") as out:
        for _ in range(3):
            out.write(b"x" * (11 << 20))
    assert there.get_file_info("data/arrow-large").size == 33 << 20
    names = [one.base_name for one in there.get_file_info(fs.FileSelector("data/arrow"))]
    assert sorted(names) == ["part=0", "part=1", "part=2"]
    there.copy_file("data/arrow/part=0/x.parquet", "data/arrow-copy")
    there.move("data/arrow-copy", "data/arrow-moved")
    there.delete_dir("data/arrow")
    assert there.get_file_info("data/arrow/part=0/x.parquet").type == fs.FileType.NotFound
    assert pq.read_metadata("data/arrow-moved", filesystem=there).num_rows == 100_000


_DUCKDB = """
import os, duckdb, pathlib, duckdb_extension_httpfs
db = duckdb.connect()
(file,) = pathlib.Path(duckdb_extension_httpfs.__path__[0]).rglob("httpfs.duckdb_extension")
db.execute(f"load '{file}'")
host = os.environ["AWS_ENDPOINT_URL"].removeprefix("http://")
key, secret = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
db.execute(f"create secret (type s3, key_id '{key}', secret '{secret}', region 'us-east-1', endpoint '{host}', "
           "url_style 'path', use_ssl false)")
db.execute("copy (select range as n, range % 3 as kind from range(200000)) to 's3://data/duck' "
           "(format parquet, partition_by (kind), overwrite_or_ignore)")
print(db.execute("select count(*), sum(n) from read_parquet('s3://data/duck/*/*.parquet')").fetchone())
print(db.execute("select count(*) from read_parquet('s3://data/duck/**/*.parquet', hive_partitioning=true) "
                 "where kind = 1").fetchone())
"""


def test_duckdb(rig: Rig) -> None:
    if not (TOOLS / "s3clients" / ".headrace").exists():
        pytest.skip("DuckDB with its extension is not installed: scripts/framework-tools s3clients")
    said = ran(TOOLS / "s3clients/bin/python", "-c", _DUCKDB, rig=rig).split("\n")
    assert said[:2] == [str((200_000, sum(range(200_000)))), "(66667,)"]


def test_tensorboard(rig: Rig, tmp_path: Path) -> None:
    from headrace.tracking.event_writer import EventWriter
    from headrace.tracking.points import Point

    path = trackers_kit.variables()["PATH"]
    file = tmp_path / "events.out.tfevents.1.host"
    writer = EventWriter(str(file))
    writer.add([Point(1_800_000_000_000_000, "accuracy", 0.5, 0), Point(1_800_000_001_000_000, "accuracy", 0.75, 1)])
    rig.client().upload_file(str(file), "data", f"boards/run/{file.name}")
    given = {**os.environ, **rig.variables(READER), "S3_ENDPOINT": rig.url, "PATH": path}
    command = ["tensorboard", "--logdir", "s3://data/boards", "--port", "0", "--host", "127.0.0.1", "--load_fast=false"]
    with subprocess.Popen(command, env=given, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stderr is not None
            address = next(found[0] for line in process.stderr if (found := re.search(r"http://[\d.:]+/", line)))

            def shown() -> object:
                with urllib.request.urlopen(f"{address}data/plugin/scalars/tags", timeout=10) as answer:
                    return json.load(answer)

            assert wait_for(lambda: "accuracy" in str(shown()), 60)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_headrace_trains_through_it(rig: Rig, tmp_path: Path) -> None:
    s3 = rig.client()
    for number in range(50):
        s3.put_object(Bucket="data", Key=f"train/{number:02d}.bin", Body=bytes([number]) * 1000)
    options = rig.options(READER)
    settings = settings_of({"/again": mount("s3://data/train", options)}, tmp_path)
    found = hr.Dataset.open("/again", namespace=hr.Namespace.load(settings))
    assert sorted(int(sample["bin"][0]) for sample in found.loader()) == list(range(50))


@pytest.mark.parametrize("processes", [1, 2])
def test_the_command(seaweedfs: EmbeddedS3, tmp_path: Path, processes: int) -> None:
    url = seaweedfs.create_bucket("clients-of-the-gateway")
    options = mount(url, seaweedfs.options())
    lines = ['[mounts."/data"]'] + [f"{name} = {json.dumps(value)}" for name, value in options.items()]
    (tmp_path / "headrace.toml").write_text("\n".join(lines) + "\n")
    given = {**os.environ, "HEADRACE_CACHE_DIR": str(tmp_path / "cache"), "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "headrace", "gateway", "--write", "--processes", str(processes), "--json"]
    with subprocess.Popen(command, cwd=tmp_path, env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          start_new_session=True) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            told = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")
            assert (told["buckets"], told["endpoint"]) == (["data"], told["id"])
            import boto3

            s3 = boto3.client("s3", endpoint_url=told["endpoint"], aws_access_key_id=told["access_key"],
                              aws_secret_access_key=told["secret_key"], region_name="us-east-1")  # fmt: skip
            s3.put_object(Bucket="data", Key="by-command", Body=b"x")
            assert s3.get_object(Bucket="data", Key="by-command")["Body"].read() == b"x"
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=20)
            assert (process.returncode, said.strip().splitlines()[-1]) == (0, "stopping")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
