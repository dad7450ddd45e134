"""A process that writes through `Staging`, killed with SIGKILL at random; what it was told is safe is in the bucket."""

from __future__ import annotations

import random
import secrets
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.mount.write_back.staging import Staging
from headrace.store.embedded import EmbeddedS3
from tests.staging_kit import PATIENT, World, bucket_of, world

ROUNDS, MOST_SECONDS = 5, 60.0
THREADS = 3
LARGE = 17 << 20

WRITER = """
import random, sys, threading
from pathlib import Path
from headrace.base.errors import HeadraceError
from headrace.mount.write_back.staging import StagingOptions
from headrace.store import StoreOptions
from tests.staging_kit import FILE, world
from tests.stress.test_staging_kills import LARGE, THREADS, content

folder, url, endpoint, key, secret, seed = sys.argv[1:]
options = StoreOptions(endpoint=endpoint, access_key_id=key, secret_access_key=secret, region="us-east-1")
lock = threading.Lock()

def say(*words):
    with lock:
        print(*words, flush=True)

def work(number, staging, store):
    rng = random.Random(int(seed) * 10 + number)
    names, count = {}, int(seed) * 100_000
    while True:
        count += 1
        store.down = rng.random() < 0.15
        path = f"/d/t{number}/d{rng.randrange(3)}/f{rng.randrange(4)}"
        kind = rng.random()
        if kind < 0.75 or path not in names:
            if staging.find(path) is not None:
                continue  # kept: what is being written over it now has not been promised
            size = LARGE if rng.random() < 0.03 else rng.randrange(60_000)
            say("try", number, "write", path, count, size)
            try:
                file = (staging.open(path, None, truncate=True, attrs=FILE) if path in names
                        else staging.create(path, FILE))
            except HeadraceError:
                say("end", number, "refused", path, 0, 0)
                continue
            data = content(count, size)
            for start in range(0, size, 1 << 20):
                file.write(start, data[start : start + (1 << 20)])
            try:
                file.publish()
                names[path] = count
                say("end", number, "write", path, count, size)
            except HeadraceError:
                names[path] = count
                say("end", number, "kept", path, count, size)
            file.release()
        elif kind < 0.9:
            other = f"/d/t{number}/d{rng.randrange(3)}/f{rng.randrange(4)}"
            say("try", number, "rename", path, other, 0)
            try:
                staging.rename(path, other, folder=False)
            except HeadraceError:
                say("end", number, "refused", path, other, 0)
                continue
            if path != other:
                names[other] = names.pop(path)
            say("end", number, "rename", path, other, 0)
        else:
            say("try", number, "unlink", path, 0, 0)
            try:
                staging.unlink(path)
            except HeadraceError:
                say("end", number, "refused", path, 0, 0)
                continue
            names.pop(path)
            say("end", number, "unlink", path, 0, 0)

with world(Path(folder), url, options, StagingOptions(period_s=0, retry_s=0.5, retry_most_s=1)) as made:
    recovered = made.staging.recover()
    say("recovered", len(recovered.pending), len(recovered.renames), len(recovered.orphans))
    made.staging.drain(30)
    for info in [info for page in made.store.list() for info in page]:
        made.staging.unlink("/d/" + info.key)
    for number in range(THREADS):
        threading.Thread(target=work, args=(number, made.staging, made.store), daemon=True).start()
    say("ready")
    threading.Event().wait()
"""


def content(number: int, size: int) -> bytes:
    """What file `number` holds: random bytes of `size`."""
    piece = random.Random(number).randbytes(4096)
    return piece * (size // 4096) + piece[: size % 4096]


def said(child: subprocess.Popen[str], seconds: float) -> list[list[str]]:
    """Let it write for a while once it is ready, kill it, and give its lines."""
    assert child.stdout is not None
    lines: list[list[str]] = []
    for line in child.stdout:
        lines.append(line.split())
        if lines[-1] == ["ready"]:
            break
    time.sleep(seconds)
    child.kill()
    lines += [line.split() for line in child.stdout if line.endswith("\n")]
    child.wait(20)
    return lines


def expected(lines: list[list[str]]) -> list[list[dict[str, tuple[int, int]]]]:
    """What the bucket may hold, thread by thread: as after the last operation that ended, or as after one more."""
    states: list[list[dict[str, tuple[int, int]]]] = []
    for thread in range(THREADS):
        before: dict[str, tuple[int, int]] = {}
        under_way: list[str] | None = None
        for when, number, *operation in (line for line in lines if line[0] in ("try", "end")):
            if int(number) != thread:
                continue
            if when == "try":
                under_way = operation
            else:
                before = after(before, operation)
                under_way = None
        states.append([before] if under_way is None else [before, after(before, under_way)])
    return states


def after(state: dict[str, tuple[int, int]], operation: list[str]) -> dict[str, tuple[int, int]]:
    kind, path, second, third = operation
    state = dict(state)
    if kind in ("write", "kept"):
        state[path] = (int(second), int(third))
    elif kind == "rename" and path != second:
        state[second] = state.pop(path)
    elif kind == "unlink":
        state.pop(path, None)
    return state


def is_any(found: dict[str, bytes], states: list[dict[str, tuple[int, int]]]) -> bool:
    return any(
        found.keys() == state.keys() and all(found[path] == content(*which) for path, which in state.items())
        for state in states
    )


def differences(found: dict[str, bytes], states: list[dict[str, tuple[int, int]]]) -> list[str]:
    """What is wrong, state by state, for whoever looks for the reason."""
    told = [f"found {path}: {len(data)} bytes" for path, data in sorted(found.items())]
    for number, state in enumerate(states):
        told += [
            f"state {number}: {path} should be {state.get(path)}"
            for path in sorted(found.keys() | state.keys())
            if path not in state or path not in found or found[path] != content(*state[path])
        ]
    return told


@pytest.mark.server
def test_killed_at_any_instant(tmp_path: Path, seaweedfs: EmbeddedS3):
    url, options = bucket_of(seaweedfs, f"kills-{secrets.token_hex(6)}")
    # The first write into a bucket makes SeaweedFS allocate volumes, for seconds. One whose client was killed meanwhile
    # lands after that, on top of what the next round has written: no client can prevent it, and none is tested by it.
    with world(tmp_path / "first", url, options) as made:
        made.store.put("first", b"x")
        made.store.delete(["first"])
    staged = pending = renames = rounds = 0
    begun = time.monotonic()
    rng = random.Random(7)
    while rounds < ROUNDS or (not (staged and pending) and time.monotonic() < begun + MOST_SECONDS):
        rounds += 1
        arguments = [str(tmp_path), url, seaweedfs.endpoint, seaweedfs.access_key, seaweedfs.secret_key, str(rounds)]
        child = subprocess.Popen([sys.executable, "-c", WRITER, *arguments], stdout=subprocess.PIPE, text=True)
        lines = said(child, rng.uniform(0.05, 0.9))
        assert ["ready"] in lines, lines[-3:]
        staged += sum(1 for each in (tmp_path / "staging" / "files").rglob("*") if each.is_file())
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        with world(tmp_path, url, options) as made:
            recovered = made.staging.recover()
            pending += len(recovered.pending)
            renames += len(recovered.renames)
            assert made.staging.drain(30), made.staging.backlog()
            check(made, lines)
    assert staged > 0, "nothing was ever staged when the process was killed"
    assert pending > 0, "nothing that had failed was ever published by the next mount"


def check(made: World, lines: list[list[str]]) -> None:
    objects = {f"/d/{key}": data for key, data in made.objects().items() if not key.endswith("/")}
    for thread, states in enumerate(expected(lines)):
        mine = {path: data for path, data in objects.items() if path.startswith(f"/d/t{thread}/")}
        assert is_any(mine, states), "\n".join([*differences(mine, states), *(" ".join(line) for line in lines)])
        for path, data in mine.items():
            assert bytes(made.ns.read(path)) == data


def test_a_staging_folder_is_free_again_after_a_kill(tmp_path: Path):
    with world(tmp_path, f"memory://{secrets.token_hex(8)}") as made:
        script = "import sys, time; from tests.staging_kit import *\nfrom pathlib import Path\n"
        script += "with world(Path(sys.argv[1]), 'memory://x') as made: print('ready', flush=True); time.sleep(60)"
        other = tmp_path / "other"
        child = subprocess.Popen([sys.executable, "-c", script, str(other)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.kill()
        child.wait(20)
        child.stdout.close()
        Staging(str(other / "staging"), made.ns, PATIENT).close()
