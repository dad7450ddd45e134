"""The measured work on a folder, in a process of its own: reads a task from standard input, prints what it took.

The reader is the same for every contender: threads that open, read into a buffer of their own (`readv`, without the
GIL) and close. Nothing but the standard library is imported unless the work needs it; imports are not counted.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Result = dict[str, Any]
SPOT_CHECKS = 20


def _threads(count: int, body: Callable[[Callable[[], str | None]], None], paths: Sequence[str]) -> tuple[float, float]:
    """Run `body` in threads that share one list of paths; the monotonic times of start and end.

    Raises:
        Exception: the first failure of any thread.
    """
    todo = iter(paths)
    lock = threading.Lock()
    failures: list[BaseException] = []

    def take() -> str | None:
        with lock:
            return None if failures else next(todo, None)

    def guarded() -> None:
        try:
            body(take)
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=guarded) for _ in range(count)]
    began = time.monotonic()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    ended = time.monotonic()
    if failures:
        raise failures[0]
    return began, ended


def read(
    folder: str,
    paths: Sequence[str],
    *,
    threads: int,
    buffer: int,
    unit: str,
    check: Mapping[str, str],
    before: int = 0,
    rounds: int = 1,
) -> Result:
    """Read all files `rounds` times, each time in another random order, after doing so `before` times unmeasured.

    `check`: path to SHA-256, compared after the clock has stopped.
    """
    os.chdir(folder)
    sizes: list[int] = []

    def body(take: Callable[[], str | None]) -> None:
        view = [bytearray(buffer)]
        total = 0
        while (path := take()) is not None:
            descriptor = os.open(path, os.O_RDONLY)
            while (got := os.readv(descriptor, view)) > 0:
                total += got
                if got < buffer:
                    break  # a short read of a regular file is its end; checked by the sum below
            os.close(descriptor)
        sizes.append(total)

    def times(count: int, seed: int) -> list[str]:
        each = random.Random(seed)
        return [path for _ in range(count) for path in each.sample(list(paths), len(paths))]

    if before:
        _threads(threads, body, times(before, 5))
        sizes.clear()
    order = times(rounds, 7)
    began, ended = _threads(threads, body, order)
    for path, digest in check.items():
        with open(path, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise SystemExit(f"{path}: wrong bytes")
    size = sum(sizes)
    return {"count": len(order) if unit == "files" else size / 1e6, "seconds": ended - began, "bytes": size}


def lines_of(command: Sequence[str], expect: int) -> Result:
    """Run a program that prints a line an entry; refuse it unless it printed about as many as there are."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "LC_ALL": "C"})
    assert process.stdout is not None
    lines = 0
    while block := process.stdout.read(1 << 20):
        lines += block.count(b"\n")
    if process.wait() != 0 or not expect <= lines <= expect + 2:
        raise SystemExit(f"{command[0]}: status {process.returncode}, {lines} lines, expected {expect}")
    return {"count": expect, "seconds": time.monotonic() - began, "bytes": 0}


def stat(folder: str, paths: Sequence[str], *, window_s: float) -> Result:
    """`stat` of known files, one thread, attributes warm."""
    os.chdir(folder)
    for path in paths:
        os.stat(path)
    count = 0
    began = now = time.monotonic()
    call = os.stat
    while now < began + window_s:
        for path in paths:
            call(path)
        count += len(paths)
        now = time.monotonic()
    return {"count": count, "seconds": now - began, "bytes": 0}


def images(folder: str, root: str, *, rounds: int) -> Result:
    """Epochs of an `ImageFolder` in a PyTorch DataLoader of two workers: list classes, open, decode, batch of 64.

    One epoch takes a second or two, and varies by a fifth: `rounds` of them, each from the listing on.
    """
    from mount_images import epoch

    began = time.monotonic()
    count, size = map(sum, zip(*(epoch(os.path.join(folder, root)) for _ in range(rounds)), strict=True))
    return {"count": count, "seconds": time.monotonic() - began, "bytes": size}


def records(folder: str, root: str) -> Result:
    """One epoch of `tf.data.TFRecordDataset` over all files, two read in parallel, records checked and counted."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf

    names = sorted(os.path.join(folder, root, name) for name in os.listdir(os.path.join(folder, root)))
    empty = tf.data.Dataset.from_tensors(b"").map(tf.strings.length)  # TensorFlow's own start is not counted
    next(iter(empty))
    began = time.monotonic()
    lengths = tf.data.TFRecordDataset(names, buffer_size=1 << 20, num_parallel_reads=2).map(tf.strings.length)
    count = size = 0
    for batch in lengths.batch(256).as_numpy_iterator():
        count += len(batch)
        size += int(batch.sum())
    return {"count": count, "seconds": time.monotonic() - began, "bytes": size}


def write(folder: str, root: str, *, count: int, each: int, threads: int) -> Result:
    """Write files of random bytes, a megabyte at a time, and close them. Publication is awaited by the parent."""
    target = os.path.join(folder, root)
    os.makedirs(target, exist_ok=True)
    block = os.urandom(1_000_000)

    def body(take: Callable[[], str | None]) -> None:
        while (path := take()) is not None:
            with open(path, "xb", buffering=0) as file:
                file.writelines(block[: min(len(block), each - start)] for start in range(0, each, len(block)))

    names = [os.path.join(target, f"{number:06d}.bin") for number in range(count)]
    began, ended = _threads(threads, body, names)
    return {"count": count, "seconds": ended - began, "bytes": count * each, "began": began}


def client(folder: str, root: str, *, program: str, source: str, count: int, each: int) -> Result:
    """Run what people write many small files with. `source`: what it is given. Publication is awaited by the parent.

    With `status` where the program ended badly: perhaps all files are there all the same (s3fs cannot set the mode of a
    folder on every server).
    """
    target = os.path.join(folder, root)
    os.makedirs(target)
    pip = ["install", "--quiet", "--no-index", "--no-deps", "--no-compile", "--find-links", source, "--target", target]
    commands = {
        "tar": ["tar", "xf", source, "-C", target],
        "rsync": ["rsync", "-a", f"{source}/", f"{target}/"],
        "pip": [sys.executable, "-m", "pip", *pip, "headrace-bench-files"],
        "git": ["git", "clone", "--quiet", f"file://{source}", os.path.join(target, "clone")],
    }
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_ROOT_USER_ACTION": "ignore"}
    quiet |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    began = time.monotonic()
    done = subprocess.run(commands[program], env={**os.environ, **quiet}, capture_output=True, text=True, check=False)
    ended = time.monotonic()
    found = {"count": count, "seconds": ended - began, "bytes": count * each, "began": began}
    return found | ({"status": done.returncode, "told": done.stderr[-500:]} if done.returncode else {})


def fio(folder: str, paths: Sequence[str], *, jobs: int, window_s: float, size: int, invalidate: bool) -> Result:
    """fio: random reads of 4 kB over warm files, `jobs` threads, synchronous.

    `invalidate`: fio's own default: the kernel drops what pages it has of these files before. They are warm in the
    mount's cache all the same.
    """
    names = ":".join(os.path.join(folder, path) for path in paths)
    command = [
        "fio", "--name=r", "--rw=randread", "--bs=4k", "--ioengine=psync", f"--invalidate={int(invalidate)}",
        "--thread", "--group_reporting", f"--numjobs={jobs}", f"--filename={names}", f"--size={size * len(paths)}",
        "--time_based", f"--runtime={window_s}", "--ramp_time=0.5", "--output-format=json",
        "--randrepeat=0", "--norandommap", "--readonly",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"fio: {done.stderr[-500:]}")
    told = json.loads(re.sub(r"\A[^{]*", "", done.stdout))["jobs"][0]["read"]
    p99_us = told["clat_ns"]["percentile"]["99.000000"] / 1e3
    return {"count": told["iops"], "seconds": 1.0, "bytes": told["bw_bytes"], "p99_us": p99_us}


WORKS: dict[str, Callable[..., Result]] = {
    "read": read,
    "ls": lambda folder, root, expect: lines_of(["ls", "-l", os.path.join(folder, root)], expect),
    "find": lambda folder, root, expect: lines_of(["find", os.path.join(folder, root)], expect),
    "stat": stat,
    "images": images,
    "records": records,
    "write": write,
    "client": client,
    "fio": fio,
}


def main() -> None:
    task = json.loads(sys.stdin.read())
    print(json.dumps(WORKS[task["work"]](task["folder"], **task["with"])), flush=True)


if __name__ == "__main__":
    main()
