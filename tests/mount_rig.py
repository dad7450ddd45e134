"""A folder to test: ``headrace mount`` over an S3 server, in a process of its own that can be killed and started again.

With ``MOUNT_TEST_FOLDER=plain`` in the environment the same tests run on a plain local folder instead, to see that
they ask for nothing a local disk does not give; what only a mount has (kill, statistics, the store) is then skipped.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest

from headrace.base.errors import UnsupportedError
from headrace.store import open_store
from headrace.testing.http import FaultServer
from headrace.testing.origins import Upstream
from headrace.testing.servers import EmbeddedS3
from headrace.testing.servers.process import ServerProcess, freeze, thaw

PLAIN = os.environ.get("MOUNT_TEST_FOLDER") == "plain"
READY_S = 30.0
UNDER_WAY = {
    f"mount.{name}"
    for name in (
        "open_files", "open_by_kernel", "streams", "stream_bytes", "prefetch_under_way", "fills_under_way",
        "waiting_requests",
    )
}  # fmt: skip
COMMAND = [sys.executable, "-m", "headrace.cli"]


def need_fuse() -> None:
    """Skip (a failure under CI=true) where nothing can be mounted."""
    if not PLAIN and not os.path.exists("/dev/fuse"):
        pytest.skip("there is no /dev/fuse here: mounts need the kernel's FUSE")
    if not PLAIN and os.geteuid() != 0 and shutil.which("fusermount3") is None:
        pytest.skip("fusermount3 is not installed: Debian package fuse3")


def only_a_mount() -> None:
    """Skip a test that means nothing on a plain folder."""
    if PLAIN:
        pytest.skip("a plain folder has no daemon and no store")


@dataclass
class Rig:
    """One mount of one bucket with its own cache and staging folders.

    `folder`: the mount point. `path`: what is mounted, where it is not the bucket. `cache` is its cache; what is being
    written is staged beside it, in `staging`. `keep`: by a keeper, which `process` is then.
    """

    server: EmbeddedS3
    bucket: str
    scratch: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    options: str = ""
    home: Path | None = None
    path: str = ""
    keep: bool = False
    process: ServerProcess | None = None

    @property
    def folder(self) -> str:
        return str(self.scratch / "headrace-test-mnt")

    @property
    def state(self) -> Path:
        """What outlives the daemon: cache and staging."""
        return self.home or self.scratch

    @property
    def cache(self) -> Path:
        return self.state / "cache"

    @property
    def staging(self) -> Path:
        return self.state / "staging"

    @property
    def environment(self) -> dict[str, str]:
        return {
            **self.server.variables(),
            "HEADRACE_CACHE_DIR": str(self.cache),
            "HEADRACE_CACHE_MIN_FREE": "100MB",
            "HEADRACE_FETCH_MEMORY": "128MB",
            "HEADRACE_MOUNT_STAGING": str(self.staging),
            "HEADRACE_MOUNT_RUN_DIR": str(self.scratch / "run"),
            "PYTHONFAULTHANDLER": "1",
            **self.variables,
        }

    def start(self) -> None:
        """Mount, and wait until it answers."""
        with suppress(FileExistsError):  # also where a dead mount lies, which answers nothing
            os.makedirs(self.folder)
        if PLAIN:
            return
        options = ["-o", self.options] if self.options else []
        options += ["--keep"] if self.keep else []
        command = [*COMMAND, "mount", self.path or f"s3://{self.bucket}/", self.folder, "--foreground", *options]
        self.process = ServerProcess("mount", command, folder=self.scratch, environment=self.environment)
        self.process.wait_until(self._answers, READY_S)

    def _answers(self) -> bool:
        try:
            return os.path.ismount(self.folder) and os.listdir(self.folder) is not None
        except OSError:
            return False

    def stop(self) -> None:
        """Drain and unmount, as a user would; the daemon must end by itself."""
        if PLAIN or self.process is None:
            return
        try:
            ended = subprocess.run(
                [*COMMAND, "umount", self.folder],
                env={**os.environ, **self.environment},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        except subprocess.TimeoutExpired:
            os.kill(self.process.pid, signal.SIGABRT)  # it writes what each of its threads is at
            self.gone()
            raise AssertionError("umount did not end:\n" + self.log()) from None
        assert ended.returncode == 0, ended.stderr + self.log()
        self.gone()
        assert not os.path.ismount(self.folder)

    def gone(self, timeout_s: float = 30.0) -> None:
        """Wait until the daemon has ended."""
        assert self.process is not None
        assert wait_for(lambda: self.process is None or self.process._process.poll() is not None, timeout_s), self.log()
        self.process.stop()
        self.process = None

    def refresh(self) -> None:
        """Have the mount look at the store anew."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGHUP)

    def show(self, name: str, data: bytes) -> Path:
        """Put a new object into the store, past the mount, and wait until the mount shows it: its path there."""
        self.store().put(name, data)
        self.refresh()
        path = Path(self.folder, name)
        assert wait_for(path.exists, 5), self.told()
        return path

    def kill(self) -> None:
        """kill -9 of the daemon, nothing else: the mount stays behind, dead."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.stop()
        self.process = None

    def restart(self, *, wipe: bool = False) -> None:
        """Unmount and mount again; `wipe` empties the cache between."""
        self.stop()
        if wipe:
            self.wipe()
        self.start()

    def wipe(self) -> None:
        """Remove the cache, not what waits in staging."""
        if not PLAIN:
            shutil.rmtree(self.cache, ignore_errors=True)

    def staged(self) -> dict[str, int]:
        """What waits to be published, and its sizes."""
        return self._files("files")

    def left(self) -> dict[str, int]:
        """What was neither closed nor synced at a crash, kept beside."""
        return self._files("left")

    def _files(self, kind: str) -> dict[str, int]:
        found = (path for path in self.staging.glob(f"*/{kind}/**/*") if path.is_file())
        return {str(path.relative_to(self.staging)): path.stat().st_size for path in found}

    def stats(self) -> dict[str, Any]:
        """What the mount says of itself."""
        return json.loads(Path(self.folder, ".headrace", "stats.json").read_text())

    def under_way(self) -> dict[str, float]:
        """The gauges of what is going on just now: all zero when nobody reads or writes."""
        return {name: value for name, value in self.stats().items() if name in UNDER_WAY or name.endswith("in_flight")}

    def told(self) -> str:
        """What the mount says of itself just now, and what it has logged: for a test that fails."""
        return json.dumps(self.stats(), indent=1) + self.log()

    def log(self) -> str:
        path = self.scratch / "mount.log"
        return path.read_text(errors="replace")[-4000:] if path.exists() else ""

    def store(self) -> Any:
        """The bucket itself, past the mount."""
        return open_store(f"s3://{self.bucket}", self.server.options())

    def peak_bytes(self) -> int:
        """The daemon's highest resident memory so far."""
        assert self.process is not None
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))

    def close(self) -> None:
        """Leave nothing behind, whatever state it is in."""
        if not PLAIN:
            detach(self.folder)
            if self.process is not None:
                self.process.stop()
            detach(self.folder)
        shutil.rmtree(self.scratch, ignore_errors=True)


def detach(folder: str) -> None:
    """Unmount lazily, dead or alive; nothing if it is no mount."""
    with open("/proc/self/mounts") as mounts:
        if not any(line.split()[1] == folder for line in mounts):
            return
    command = ["umount", "-l", folder] if os.geteuid() == 0 else ["fusermount3", "-u", "-z", folder]
    subprocess.run(command, capture_output=True, check=False, timeout=30)


@contextmanager
def rigged(
    server: EmbeddedS3,
    *,
    bucket: str = "",
    options: str = "",
    keep: bool = False,
    before: Callable[[Rig], object] | None = None,
    **variables: str,
) -> Iterator[Rig]:
    """A mount of a new bucket (or of one that is there), started, and gone at the end.

    `before`: called with the rig before it mounts, to put objects where the mount has not looked yet.
    """
    need_fuse()
    scratch = Path(tempfile.mkdtemp(prefix="headrace-test-"))
    bucket = bucket or f"mount-{secrets.token_hex(4)}"
    if not PLAIN:
        server.create_bucket(bucket)
    rig = Rig(server, bucket, scratch, variables, options, keep=keep)
    try:
        if before is not None:
            before(rig)
        rig.start()
        yield rig
    finally:
        rig.close()


@contextmanager
def own_server() -> Iterator[EmbeddedS3]:
    """A server for one test alone, which may stop or break it."""
    need_fuse()
    data = tempfile.mkdtemp(prefix="headrace-test-s3-")  # its own, so that it comes back with the same identity
    try:
        with EmbeddedS3(data) as server:
            yield server
    except UnsupportedError as error:
        pytest.skip(str(error))
    finally:
        shutil.rmtree(data, ignore_errors=True)


@contextmanager
def silent(server: EmbeddedS3) -> Iterator[None]:
    """The server takes connections and answers none."""
    assert server.pid is not None
    freeze(server.pid)
    try:
        yield
    finally:
        thaw(server.pid)


@contextmanager
def faults_before(server: EmbeddedS3) -> Iterator[FaultServer]:
    """What may fail on purpose, between a mount and its server."""
    only_a_mount()
    with FaultServer(Upstream("127.0.0.1", int(server.endpoint.rpartition(":")[2]))) as between:
        yield between


def wait_for(true: Any, timeout_s: float) -> bool:
    """Poll until `true()`; False when the time is over."""
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@contextmanager
def python(script: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A Python process with pipes, killed at the end if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line(stream: IO[str] | None) -> str:
    """The next line of a child's output, without its end; empty at the end."""
    assert stream is not None
    return stream.readline().rstrip("\n")
