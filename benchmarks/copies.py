"""Copies between a bucket and this machine, and long reads: ``python benchmarks/copies.py``

``headrace cp`` against s5cmd, rclone and the AWS command line with its CRT client: one object of 400 MB and 3,000 of
100 kB, down and up, against SeaweedFS on the same machine; each contender in turn, keys and folders never used. Then
``ns.read`` of the large object in one process, the first time, the second, and warm, against eight threads of plain
range GETs into one buffer, and against `pread` of the same bytes in a local file.

Tuned as their documentation advises: s5cmd by its defaults (256 workers); rclone with 16 transfers, 8 streams for one
file, and no checks of what is there; the CRT client by its defaults. Results go to ``benchmarks/results/copies.md``.
"""

from __future__ import annotations

import argparse
import http.client
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np

from headrace.base.settings import Settings
from headrace.fetch import Fetcher
from headrace.namespace import Namespace
from headrace.store import open_store
from headrace.store.embedded import EmbeddedS3
from loader import RESULTS
from report import machine

BUCKET = "copies"
LARGE, SMALL, COUNT = 400_000_000, 100_000, 3000
THREADS, RANGE = 8, 8 << 20
HERE = Path(sys.executable).parent
AWS = Path(__file__).parents[1] / ".tools/peers/bin/aws"
CRT = "[default]\ns3 =\n  preferred_transfer_client = crt\n"


@dataclass(frozen=True)
class Took:
    """Seconds by the clock, and of processor time."""

    seconds: float
    cpu_s: float


@dataclass(frozen=True)
class Place:
    """A server, a folder to work in, and what every client is told."""

    server: EmbeddedS3
    scratch: Path
    environment: Mapping[str, str]

    def url(self, key: str) -> str:
        return f"s3://{BUCKET}/{key}"

    def run(self, command: list[str]) -> Took:
        """To its end; its time includes its start."""
        before, began = _children_s(), time.perf_counter()
        ended = subprocess.run(command, env=dict(self.environment), capture_output=True, text=True, check=False)
        took = Took(time.perf_counter() - began, _children_s() - before)
        if ended.returncode:
            raise SystemExit(f"{' '.join(command)}: {ended.stderr[-2000:]}")
        return took


Command = Callable[[str, str, bool], list[str]]
"""From source, target and whether they are trees."""


def contenders(place: Place) -> dict[str, Command]:
    s5cmd = [str(HERE / "s5cmd"), "--endpoint-url", place.server.endpoint, "--log", "error", "cp"]
    rclone = [str(HERE / "rclone"), "copy", "--config", "", "--no-check-dest", "--ignore-checksum", "--transfers", "16"]
    streams = ["--multi-thread-streams", "8", "--s3-upload-concurrency", "8"]

    def remote(url: str) -> str:
        return url.replace("s3://", ":s3:")

    found: dict[str, Command] = {
        "headrace cp": lambda source, target, tree: [
            str(HERE / "headrace"), "cp", *(["-r"] if tree else []), source, target
        ],
        "s5cmd": lambda source, target, tree: [
            *s5cmd, source + ("*" if tree and source.startswith("s3:") else ""), target
        ],
        "rclone": lambda source, target, tree: [
            *rclone, *streams, remote(source), remote(target if tree else target.rpartition("/")[0])
        ],
    }  # fmt: skip
    if AWS.exists():
        found["aws s3 cp, CRT"] = lambda source, target, tree: [
            str(AWS), "s3", "cp", "--no-progress", "--only-show-errors", *(["--recursive"] if tree else []), source,
            target,
        ]  # fmt: skip
    return found


def copies(place: Place, repeat: int) -> dict[str, dict[str, list[Took]]]:
    """By what is copied, then by who does it."""
    found: dict[str, dict[str, list[Took]]] = {}
    for turn in range(repeat):
        for name, command in contenders(place).items():
            word = "".join(letter for letter in name if letter.isalnum())
            for what, source, target, tree in works(place, f"{word}-{turn}"):
                took = place.run(command(source, target, tree))
                found.setdefault(what, {}).setdefault(name, []).append(took)
                tell(turn, f"{what}: {name}", took)
                check(target, tree)
                clear(place, target)
    return found


def works(place: Place, word: str) -> Iterator[tuple[str, str, str, bool]]:
    """What is copied: its name, source, target, and whether it is a tree."""
    out = place.scratch / "out" / word
    out.mkdir(parents=True)
    yield "one large, down", place.url("large"), f"{out}/large", False
    yield "one large, up", str(place.scratch / "large"), place.url(f"{word}/large"), False
    yield "many small, down", place.url("small/"), f"{out}/small/", True
    yield "many small, up", f"{place.scratch}/small/", place.url(f"{word}/small/"), True


def check(target: str, tree: bool) -> None:
    """That it is there."""
    if target.startswith("s3:"):
        return
    sizes = [path.stat().st_size for path in Path(target).iterdir()] if tree else [Path(target).stat().st_size]
    assert sizes == ([SMALL] * COUNT if tree else [LARGE]), target


def clear(place: Place, target: str) -> None:
    """The next finds the disk as this one did."""
    if target.startswith("s3:"):
        command = [str(HERE / "s5cmd"), "--endpoint-url", place.server.endpoint, "--log", "error", "rm", f"{target}*"]
        subprocess.run(command, env=dict(place.environment), check=True, capture_output=True)
    elif target.endswith("/"):
        shutil.rmtree(target)
    else:
        Path(target).unlink()


def plain_ranges(place: Place) -> None:
    """Eight threads with a connection each, over presigned GETs, into one buffer."""
    store = open_store(f"s3://{BUCKET}", place.server.options())
    path = store.presigned("large", 600).split("/", 3)[3]
    host, port = place.server.endpoint.removeprefix("http://").split(":")
    into, starts = memoryview(bytearray(LARGE)), iter(range(0, LARGE, RANGE))

    def read() -> None:
        with closing(http.client.HTTPConnection(host, int(port))) as connection:
            for start in starts:
                stop = min(start + RANGE, LARGE)
                connection.request("GET", f"/{path}", headers={"Range": f"bytes={start}-{stop - 1}"})
                response, done = connection.getresponse(), start
                while done < stop:
                    done += response.readinto(into[done:stop])

    threads = [threading.Thread(target=read) for _ in range(THREADS)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()


def local_read(place: Place) -> None:
    """`pread` of the same bytes, which the page cache holds, into fresh memory."""
    with (place.scratch / "large").open("rb", buffering=0) as file:
        buffer, done = memoryview(bytearray(LARGE)), 0
        while done < LARGE:
            done += os.preadv(file.fileno(), [buffer[done:]], done)


def timed(work: Callable[[], object]) -> Took:
    began, cpu = time.perf_counter(), time.process_time()
    work()
    return Took(time.perf_counter() - began, time.process_time() - cpu)


def reads(place: Place, repeat: int) -> dict[str, list[Took]]:
    """Each turn with a cache of its own, empty at first."""
    found: dict[str, list[Took]] = {}
    for turn in range(repeat):
        cache = place.scratch / f"cache-{turn}"
        environ = {**place.environment, "HEADRACE_CACHE_DIR": str(cache), "HEADRACE_CACHE_SIZE": "2GB"}
        settings = Settings.load(environ=environ)
        with closing(Fetcher.open(settings)) as fetcher:
            ns = Namespace(settings, fetcher=lambda fetcher=fetcher: fetcher)
            ns.attach("/data", f"s3://{BUCKET}", **options(place.server))
            for name, work in rows(place, ns):
                took = timed(work)
                if name:
                    found.setdefault(name, []).append(took)
                    tell(turn, name, took)
        shutil.rmtree(cache)
    return found


def rows(place: Place, ns: Namespace) -> list[tuple[str, Callable[[], object]]]:
    """What is timed, in this order; what has no name is not."""

    def read() -> object:
        return ns.read("/data/large")

    return [
        ("eight threads of range GETs", lambda: plain_ranges(place)),
        ("ns.read, first", read),
        ("ns.read, at once again", read),
        ("", ns.fetcher.settle),
        ("ns.read, warm", read),
        ("ns.open().read(), warm", lambda: ns.open("/data/large").read()),
        ("pread of a local file", lambda: local_read(place)),
    ]


def tell(turn: int, name: str, took: Took) -> None:
    print(f"  {turn + 1}  {name:<34} {took.seconds:6.2f} s, {took.cpu_s:.2f} s of CPU", flush=True)


def options(server: EmbeddedS3) -> dict[str, str]:
    given = server.options()
    return {name: value for name, value in asdict(given).items() if value and isinstance(value, str)}


def report(copied: Mapping[str, Mapping[str, list[Took]]], read: Mapping[str, list[Took]]) -> str:
    here = machine()
    lines = ["# Copies", "", f"{here['cores']} cores ({here['cpu']}), Linux {here['kernel']}, Python {here['python']}."]
    lines += ["Medians of turns. Server and client share the cores: ratios hold.", ""]
    lines += ["| what | who | seconds | CPU, seconds | headrace is so many times as fast |", "|---|---|---|---|---|"]
    for what, rows in copied.items():
        ours = median(took.seconds for took in rows["headrace cp"])
        for name, turns in rows.items():
            seconds, cpu = median(took.seconds for took in turns), median(took.cpu_s for took in turns)
            ratio = "" if name == "headrace cp" else f"{seconds / ours:.2f}"
            lines.append(f"| {what} | {name} | {seconds:.2f} | {cpu:.2f} | {ratio} |")
    lines += ["", "| long read, 400 MB in one process | seconds | CPU, seconds |", "|---|---|---|"]
    for name, turns in read.items():
        seconds, cpu = median(took.seconds for took in turns), median(took.cpu_s for took in turns)
        lines.append(f"| {name} | {seconds:.2f} | {cpu:.2f} |")
    return "\n".join([*lines, ""])


def fill(place: Place) -> None:
    rng = np.random.default_rng(1)
    (place.scratch / "small").mkdir()
    (place.scratch / "large").write_bytes(rng.bytes(LARGE))
    for number in range(COUNT):
        (place.scratch / f"small/{number:04}.bin").write_bytes(rng.bytes(SMALL))
    for name in ("large", "small/"):
        command = [str(HERE / "s5cmd"), "--endpoint-url", place.server.endpoint, "--log", "error", "cp"]
        place.run([*command, f"{place.scratch}/{name}", place.url(name)])


def environment(server: EmbeddedS3, scratch: Path) -> dict[str, str]:
    (scratch / "aws").write_text(CRT)
    return {
        **os.environ, **server.variables(), "AWS_ENDPOINT_URL": server.endpoint, "AWS_CONFIG_FILE": f"{scratch}/aws",
        "AWS_DEFAULT_REGION": "us-east-1", "HEADRACE_CACHE_DIR": f"{scratch}/cache",
        "RCLONE_S3_PROVIDER": "Other", "RCLONE_S3_ENDPOINT": server.endpoint, "RCLONE_S3_ENV_AUTH": "true",
        "RCLONE_S3_REGION": "us-east-1",
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    given = parser.parse_args()
    with EmbeddedS3() as server, tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        server.create_bucket(BUCKET)
        place = Place(server, Path(folder), environment(server, Path(folder)))
        fill(place)
        text = report(copies(place, given.repetitions), reads(place, given.repetitions))
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "copies.md").write_text(text)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
