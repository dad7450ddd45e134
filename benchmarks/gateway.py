"""The S3 door against nginx and the store itself: ``python benchmarks/gateway.py``

- *warm*: signed GETs of objects that the cache holds, by wrk on 16 connections a process, against the same files in
  an unsigned nginx with as many processes, and against SeaweedFS's own door; requests a second, CPU of the server's
  process tree a request. In turns.
- *cold*: every object once, by curl on 16 connections, through a gateway with an empty cache and from the store itself.
- *listing*: every key of a bucket, page by page, by the same client.

nginx, wrk and curl are Debian's. Results: ``benchmarks/results/gateway.{md,json}``.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import boto3
import psutil
from botocore.config import Config

from headrace.base.settings import CacheSettings, Settings
from headrace.gateway import Gateway, GatewayOptions, Key
from headrace.store import Store, StoreOptions, open_store
from headrace.testing.servers import EmbeddedS3
from memory import Ballast, ballast
from servers import StaticServer

RESULTS = Path(__file__).parent / "results"
DATA = Path(__file__).parent / "data"
BUCKET = "bench"
KEY = Key("BENCH", "secret-of-the-benchmark")
SIZES = {"4 kB": 4_096, "110 kB": 110_000, "4 MB": 4 << 20}
MANY = 64
CONNECTIONS = 16
_LUA = """
local paths = {}
for line in io.lines("%s") do paths[#paths + 1] = line end
local at = 0
request = function()
  at = at %% #paths + 1
  return wrk.format("GET", paths[at])
end
done = function(summary)
  local errors = summary.errors
  local failed = errors.status + errors.connect + errors.read + errors.write + errors.timeout
  io.write(string.format("RESULT %%d %%d %%d\\n", summary.requests, summary.duration, failed))
end
"""


@dataclass
class Row:
    """One measurement. `rate`: requests (keys) a second; `cpu_us`: of the server, for one."""

    part: str
    size: str
    who: str
    rate: float
    cpu_us: float


@dataclass
class Bench:
    """What all parts use."""

    server: EmbeddedS3
    store: Store
    scratch: Path
    processes: int
    seconds: float

    def settings(self, name: str) -> Settings:
        options = self.server.options()
        fields = ("endpoint", "region", "path_style", "allow_http", "access_key_id", "secret_access_key")
        table = {"url": f"s3://{BUCKET}", **{field: getattr(options, field) for field in fields}}
        given = {"dir": str(self.scratch / name), "size": 20 << 30, "min_free": 0, "ttl": 3600.0}
        cache = dataclasses.replace(CacheSettings(), **given)
        return dataclasses.replace(Settings(), mounts={f"/{BUCKET}": table}, cache=cache)

    @contextlib.contextmanager
    def gateway(self, name: str) -> Iterator[Gateway]:
        options = GatewayOptions(keys=(KEY,), processes=self.processes, spool=str(self.scratch / "spool"))
        with Gateway(options, self.settings(name)) as gateway:
            yield gateway


def urls(endpoint: str, access_key: str, secret: str, keys: Sequence[str]) -> list[str]:
    """Presigned by Signature Version 4."""
    config = Config(signature_version="s3v4", s3={"addressing_style": "path"})
    client = boto3.client("s3", endpoint_url=endpoint, aws_access_key_id=access_key, aws_secret_access_key=secret,
                          region_name="us-east-1", config=config)  # fmt: skip
    given = {"ExpiresIn": 86_400}
    return [client.generate_presigned_url("get_object", {"Bucket": BUCKET, "Key": key}, **given) for key in keys]


def cpu_s(pids: Sequence[int]) -> float:
    """User and system time of processes and all below them."""
    total = 0.0
    for pid in pids:
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                times = one.cpu_times()
                total += times.user + times.system
    return total


def loaded(bench: Bench, found: Sequence[str], pids: Sequence[int]) -> tuple[float, float]:
    """wrk over these URLs, again and again: requests a second, CPU µs a request. Raises SystemExit: one failed."""
    base = "/".join(found[0].split("/")[:3])
    listed, script = bench.scratch / "paths", bench.scratch / "paths.lua"
    listed.write_text("".join(url.removeprefix(base) + "\n" for url in found))
    script.write_text(_LUA % listed)
    command = ["wrk", f"-t{bench.processes}", f"-c{CONNECTIONS * bench.processes}", "-s", str(script), base]
    subprocess.run([*command, "-d1"], capture_output=True, check=True)
    before = cpu_s(pids)
    ended = subprocess.run([*command, f"-d{bench.seconds:g}"], capture_output=True, text=True, check=True)
    spent = cpu_s(pids) - before
    line = next(one for one in ended.stdout.splitlines() if one.startswith("RESULT"))
    count, duration_us, errors = map(int, line.split()[1:])
    if errors or not count:
        raise SystemExit(f"{errors} of {count} requests failed at {base}")
    return count / (duration_us / 1e6), spent / count * 1e6


def warm(bench: Bench, repeat: int, sizes: Sequence[str]) -> list[Row]:
    """In turns."""
    rows: list[Row] = []
    root = bench.scratch / "nginx-root"
    root.mkdir()
    (root / "index.tsv").touch()
    mine, store_pids = [os.getpid()], [bench.server.pid or 0]
    with StaticServer(root, bench.scratch / "nginx", bench.processes) as nginx, bench.gateway("warm") as gateway:
        pids = gateway.pids or mine
        for size in sizes:
            keys = [f"warm/{SIZES[size]}/{number:03d}" for number in range(MANY)]
            for key in keys:
                data = os.urandom(SIZES[size])
                (root / BUCKET / key).parent.mkdir(parents=True, exist_ok=True)
                (root / BUCKET / key).write_bytes(data)
                bench.store.put(key, data)
            ours = urls(gateway.url, KEY.access_key, KEY.secret, keys)
            theirs = urls(bench.server.endpoint, bench.server.access_key, bench.server.secret_key, keys)
            plain = [f"{nginx.plain}/{BUCKET}/{key}" for key in keys]
            for _ in range(4):  # until every process holds all of them
                fetched(bench, ours)
            peers = (("nginx, unsigned", plain, [nginx.pid]), ("headrace gateway", ours, pids),
                     ("SeaweedFS", theirs, store_pids))  # fmt: skip
            for _ in range(repeat):
                rows += [Row("warm", size, who, *loaded(bench, found, tree)) for who, found, tree in peers]
    return rows


def fetched(bench: Bench, found: Sequence[str]) -> float:
    """Every URL once, by curl, 16 at once: seconds. Raises SystemExit: one failed."""
    config = bench.scratch / "curl"
    config.write_text("".join(f'url = "{url}"\noutput = "/dev/null"\n' for url in found))
    command = ["curl", "--no-progress-meter", "--fail", "-Z", "--parallel-immediate"]
    command += ["--parallel-max", str(CONNECTIONS), "-K", str(config)]
    began = time.perf_counter()
    if subprocess.run(command, check=False).returncode:
        raise SystemExit("curl failed")
    return time.perf_counter() - began


def cold(bench: Bench, repeat: int, sizes: Sequence[str], megabytes: int) -> list[Row]:
    """In turns; each time with other objects, which neither has seen, and with free memory full (`memory.py`)."""
    with ballast(bench.scratch / "ballast") as full:
        return _cold(bench, repeat, sizes, megabytes, full)


def _cold(bench: Bench, repeat: int, sizes: Sequence[str], megabytes: int, full: Ballast) -> list[Row]:
    rows: list[Row] = []
    for size in sizes:
        count = max(32, min(2_000, (megabytes << 20) // SIZES[size]))
        for turn in range(repeat):
            sets = [[f"cold/{SIZES[size]}/{turn}/{side}/{number:04d}" for number in range(count)] for side in "ab"]
            put(bench.store, [key for keys in sets for key in keys], SIZES[size])
            with bench.gateway(f"cold-{turn}-{SIZES[size]}") as gateway:
                ours = urls(gateway.url, KEY.access_key, KEY.secret, sets[0])
                theirs = urls(bench.server.endpoint, bench.server.access_key, bench.server.secret_key, sets[1])
                measured = {"headrace gateway": ours, "SeaweedFS": theirs}
                for who in sorted(measured, reverse=bool(turn % 2)):
                    full.fill()
                    rows.append(Row("cold", size, who, count / fetched(bench, measured[who]), 0.0))
            shutil.rmtree(bench.scratch / f"cold-{turn}-{SIZES[size]}", ignore_errors=True)
    return rows


def put(store: Store, keys: Sequence[str], size: int) -> None:
    """Objects of random bytes."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.put(key, os.urandom(size)), keys))


def listing(bench: Bench, repeat: int, keys: int) -> list[Row]:
    """All keys, by the same client."""
    put(bench.store, [f"keys/{number // 1000:04d}/{number:07d}" for number in range(keys)], 1)
    rows: list[Row] = []
    with bench.gateway("listing") as gateway:
        options = StoreOptions(endpoint=gateway.url, region="us-east-1", access_key_id=KEY.access_key, path_style=True,
                               secret_access_key=KEY.secret, allow_http=True)  # fmt: skip
        places = {"headrace gateway": open_store(f"s3://{BUCKET}", options), "SeaweedFS": bench.store}
        for _ in range(repeat):
            for who, store in places.items():
                began = time.perf_counter()
                count = sum(len(page) for page in store.list("keys/"))
                if count != keys:
                    raise SystemExit(f"{who} listed {count} of {keys} keys")
                rows.append(Row("listing", f"{keys:,} keys", who, keys / (time.perf_counter() - began), 0.0))
        places["headrace gateway"].close()
    return rows


def report(rows: Sequence[Row], bench: Bench) -> str:
    """A table for each part, medians, each beside what it is held against."""
    lines = ["# The S3 door", "", f"{bench.processes} processes, {os.cpu_count()} cores.", ""]
    for part, unit in (("warm", "requests/s"), ("cold", "objects/s"), ("listing", "keys/s")):
        some = [row for row in rows if row.part == part]
        if not some:
            continue
        lines += [f"## {part}", "", f"| what | who | {unit} | server CPU µs | headrace ÷ this |"]
        lines += ["|---|---|--:|--:|--:|"]
        for size in dict.fromkeys(row.size for row in some):
            ours = _median(some, size, "headrace gateway", lambda row: row.rate)
            for who in dict.fromkeys(row.who for row in some):
                rate = _median(some, size, who, lambda row: row.rate)
                cpu = _median(some, size, who, lambda row: row.cpu_us)
                lines.append(f"| {size} | {who} | {rate:,.0f} | {cpu:,.0f} | {ours / rate:.2f} |")
        lines.append("")
    lines += [f"Measured {datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC."]
    return "\n".join(lines) + "\n"


def _median(rows: Sequence[Row], size: str, who: str, of: Callable[[Row], float]) -> float:
    return median(of(row) for row in rows if row.size == size and row.who == who)


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="warm,cold,listing", help="which of the three")
    parser.add_argument("--sizes", default=",".join(SIZES), help="of the objects")
    parser.add_argument("--processes", type=int, default=2, help="of the gateway and of nginx")
    parser.add_argument("--seconds", type=float, default=10, help="of each run of wrk")
    parser.add_argument("--megabytes", type=int, default=400, help="of a cold set")
    parser.add_argument("--keys", type=int, default=200_000, help="that are listed")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    DATA.mkdir(exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="gateway-", dir=DATA))
    scratch.chmod(0o755)  # nginx's workers may be another user
    sizes, parts, rows = chosen.sizes.split(","), chosen.parts.split(","), list[Row]()
    try:
        with EmbeddedS3(scratch / "server") as server:
            store = open_store(server.create_bucket(BUCKET), server.options())
            bench = Bench(server, store, scratch, chosen.processes, chosen.seconds)
            if "warm" in parts:
                rows += warm(bench, chosen.repeat, sizes)
            if "cold" in parts:
                rows += cold(bench, chosen.repeat, sizes, chosen.megabytes)
            if "listing" in parts:
                rows += listing(bench, chosen.repeat, chosen.keys)
            store.close()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    text = report(rows, bench)
    print(text)
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "gateway.md").write_text(text)
    told: dict[str, Any] = {"processes": chosen.processes, "rows": [asdict(row) for row in rows]}
    (chosen.out / "gateway.json").write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
