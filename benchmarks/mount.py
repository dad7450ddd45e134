"""The mount's benchmark: ``python benchmarks/mount.py``, as root, with /dev/fuse.

headrace, rclone, s3fs and `weed mount` show the same bucket of the same SeaweedFS as a folder; native disk is the
limit. One mount a phase, each from an empty cache; repetitions interleaved (A B C A B C); medians. The measured work
runs in a process of its own, the same for all. Results go to ``benchmarks/results/mount.{json,md,svg,png}``.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import obstore

import memory
import mount_clients
import mount_report as report
from mount_data import FULL, QUICK, Server, Shape, prepare, serving
from mount_peers import CONTENDERS, Mounted, MountError, Native, scratch_folder
from mount_rows import OURS, PHASES, PROGRAMS, READS, Row, rows
from mount_work import SPOT_CHECKS

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"
RESULTS = HERE / "results"
TENSORFLOW = HERE.parent / ".tools" / "bench-tf" / "bin" / "python"
PUBLISHED_S = 120.0


class WorkError(Exception):
    """The measured work failed or took too long."""


@dataclass(frozen=True)
class Bench:
    """What all contenders share."""

    server: Server
    shape: Shape
    rows: Sequence[Row]
    wanted: frozenset[int]
    timeout_s: float
    ballast: memory.Ballast

    def phase(self, contender: type[Mounted], phase: str, record: report.Record) -> None:
        """One mount, fresh and cold, and every chosen row of the phase on it, in their order."""
        todo = self._todo(contender, phase)
        if not todo:
            return
        reads = phase in READS
        bucket = self.server.bucket if reads else f"out-{os.urandom(4).hex()}"
        scratch = scratch_folder(DATA / "mounts")
        try:
            if not reads:
                self.server.s3.create_bucket(bucket)
            with contender(self.server, bucket, scratch, read_only=reads, programs=phase in PROGRAMS) as mounted:
                for row, counted in todo:
                    if not row.needs:  # cold, so that its pages are new
                        self.ballast.fill()
                    result = self._one(row, mounted)
                    if counted:
                        result["rss"] = mounted.sample()
                        record.add(row, contender.name, result)
        except (MountError, WorkError, OSError, subprocess.SubprocessError) as error:
            record.fail(contender.name, phase, str(error))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            if not reads:
                _drop(self.server, bucket)

    def _todo(self, contender: type[Mounted], phase: str) -> list[tuple[Row, bool]]:
        def takes(row: Row) -> bool:
            if contender.name.startswith("headrace"):
                return contender.name in row.variants
            return contender is not Native or row.native

        here = [row for row in self.rows if row.phase == phase]
        chosen = [row for row in here if row.number in self.wanted and takes(row)]
        needed = {number for row in chosen for number in row.needs}
        return [(row, row in chosen) for row in here if row in chosen or row.number in needed]

    def _one(self, row: Row, mounted: Mounted) -> dict[str, Any]:
        program = str(TENSORFLOW) if row.work == "records" else sys.executable
        task = {"work": row.work, "folder": mounted.folder, "with": row.task}
        done = subprocess.run(
            [program, str(HERE / "mount_work.py")],
            input=json.dumps(task),
            capture_output=True,
            text=True,
            timeout=self.timeout_s,
            check=False,
        )
        if done.returncode != 0:
            raise WorkError(f"row {row.number}: {done.stderr[-800:]}")
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        if row.work in ("write", "client"):
            if "status" in result and mounted.name in (OURS, Native.name):
                raise WorkError(f"row {row.number}: status {result['status']}: {result['told']}")
            result["closed_s"] = result["seconds"]
            self._published(row, mounted)
            result["seconds"] = time.monotonic() - result.pop("began")
            if row.unit == "MB":
                result["count"] = result["bytes"] / 1e6
        return result

    def _published(self, row: Row, mounted: Mounted) -> None:
        """Wait until the store has every object that was written, whole."""
        if isinstance(mounted, Native):
            return
        store = self.server.store(mounted.bucket)
        wanted, each = row.task["count"], row.task["each"]
        deadline = time.monotonic() + PUBLISHED_S
        while True:
            pages = obstore.list(store, prefix=row.task["root"] + "/", chunk_size=10_000)
            found = [meta for page in pages for meta in page]
            if sum(meta["size"] == each for meta in found) == wanted:
                return
            if time.monotonic() > deadline:
                raise WorkError(f"row {row.number}: {len(found)} of {wanted} objects are there after {PUBLISHED_S:g} s")
            time.sleep(0.1)


def _drop(server: Server, bucket: str) -> None:
    """Delete a bucket and all in it, so that SeaweedFS gives its volumes back."""
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=server.s3.endpoint,
        aws_access_key_id=server.s3.access_key,
        aws_secret_access_key=server.s3.secret_key,
        region_name="us-east-1",
    )
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        keys = [{"Key": found["Key"]} for found in page.get("Contents", [])]
        if keys:
            client.delete_objects(Bucket=bucket, Delete={"Objects": keys})
    client.delete_bucket(Bucket=bucket)


def digests(files: Path, shape: Shape) -> dict[str, str]:
    """SHA-256 of some small files and of one big one."""
    some = [*shape.small_paths[:: max(1, shape.small // SPOT_CHECKS)], shape.big_paths[-1]]
    return {path: hashlib.sha256((files / path).read_bytes()).hexdigest() for path in some}


def tensorflow() -> None:
    """TensorFlow in an environment of its own: its pins would fight with the rest."""
    probe = [TENSORFLOW, "-c", "import tensorflow"]
    if TENSORFLOW.exists() and subprocess.run(probe, capture_output=True, check=False).returncode == 0:
        return
    print("installing TensorFlow for its row (once)", flush=True)
    folder = TENSORFLOW.parent.parent
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    subprocess.run([TENSORFLOW, "-m", "pip", "install", "--quiet", "tensorflow-cpu>=2.17"], check=True)


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rows", default="", help="which rows, comma-separated (default: all)")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions, interleaved (default: 3)")
    parser.add_argument("--window", type=float, default=4.0, help="seconds of the timed rows (default: 4)")
    parser.add_argument("--only", default="", help="only contenders whose name contains this; headrace and native stay")
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, once; writes below benchmarks/data/")
    parser.add_argument("--strict", action="store_true", help="exit 1 unless every requirement is met")
    parser.add_argument("--out", type=Path, help="folder for the results (default: benchmarks/results)")
    return parser.parse_args(given)


def main(given: Sequence[str]) -> int:
    options = arguments(given)
    signal.signal(signal.SIGTERM, _interrupt)
    if not os.path.exists("/dev/fuse"):
        raise SystemExit("there is no /dev/fuse here: nothing can be mounted")
    shape = QUICK if options.quick else FULL
    times, window_s = (1, 1.0) if options.quick else (options.repeat, options.window)
    counts = (200, 100) if options.quick else (10_000, 2_000)
    DATA.mkdir(exist_ok=True)
    files = prepare(DATA / ("mount-quick" if options.quick else "mount"), shape)
    Native.files = files
    many, some = (mount_clients.prepare(DATA / f"mount-clients-{count}", count) for count in counts)
    table = rows(shape, digests(files, shape), many, some, window_s=window_s)
    chosen = map(int, options.rows.split(",")) if options.rows else (row.number for row in table)
    wanted = frozenset(chosen)
    if any(row.work == "records" for row in table if row.number in wanted):
        tensorflow()
    contenders = [one for one in CONTENDERS if options.only in one.name or one.name.startswith(("headrace", "native"))]
    record = report.Record(table)
    with serving(DATA / "seaweedfs-mount", files, shape) as server, memory.ballast(DATA) as ballast:
        bench = Bench(server, shape, table, wanted, 600.0, ballast)
        for turn in range(times):
            print(f"repetition {turn + 1} of {times}", flush=True)
            for phase in PHASES:
                first = turn % len(contenders)  # who comes first after a pause finds other memory than who comes last
                for contender in (*contenders[first:], *contenders[:first]):
                    if not record.failed(contender.name, phase):
                        bench.phase(contender, phase, record)
    when = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC, {times} repetitions"
    out = options.out or (DATA / "quick" if options.quick else RESULTS)
    measured = record.results(when)
    text = report.write(out, measured, contenders)
    print(text)
    missed = any(not outcome["passed"] for row in measured for outcome in row["outcomes"])
    return 1 if missed and options.strict else 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
