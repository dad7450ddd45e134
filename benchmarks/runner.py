"""Starts one measured process at a time, watches its memory, and leaves nothing behind."""

from __future__ import annotations

import compileall
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from job import ACCESS_KEY, REGION, SECRET_KEY, Job, Result

POLL_S = 0.05
HERE = Path(__file__).parent
compileall.compile_dir(HERE.parent / "src", quiet=2)  # as pip leaves the peers: with bytecode


class PeerError(Exception):
    """A contender did not finish; the message is the end of what it printed."""


def environment(job: Job) -> dict[str, str]:
    """What every contender sees: explicit credentials, nothing of the user's own configuration."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "HEADRACE_", "S3_"))}
    return {
        **kept,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ENDPOINT_URL": job.endpoint,
        "AWS_ENDPOINT_URL_S3": job.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "TMPDIR": job.scratch,
        "PYTHONPATH": f"{HERE}:{HERE.parent / 'src'}",  # this checkout, whatever the environment has installed
        **job.env,
    }


def run(job: Job, *, timeout_s: float = 180.0) -> Result:
    """Run one job in its own process group.

    Raises:
        PeerError: it failed, hung for `timeout_s`, or printed no result.
    """
    scratch = tempfile.mkdtemp(prefix="headrace-bench-", dir=_tmpfs())
    job = dataclasses.replace(job, scratch=scratch)
    errors = Path(scratch) / "stderr"
    try:
        with open(errors, "wb") as stderr:
            process = subprocess.Popen(
                [job.python or sys.executable, str(HERE / "child.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=scratch,
                env=environment(job),
                start_new_session=True,
            )
        try:
            assert process.stdin is not None
            process.stdin.write(job.dumps().encode())
            process.stdin.close()
            rss = _watch(process, time.monotonic() + timeout_s)
        finally:
            _kill_group(process)
        assert process.stdout is not None
        lines = process.stdout.read().decode(errors="replace").splitlines()
        if process.returncode != 0 or not lines:
            raise PeerError(f"{job.peer}: exit {process.returncode}: {errors.read_text(errors='replace')[-1500:]}")
        return dataclasses.replace(Result.loads(lines[-1]), rss=rss)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _tmpfs() -> str | None:
    return "/dev/shm" if os.path.isdir("/dev/shm") else None


def _watch(process: subprocess.Popen[bytes], deadline: float) -> int:
    """Wait for the end; the peak of the root's VmHWM plus its descendants' proportional set size, in bytes."""
    peak = 0
    while process.poll() is None:
        if time.monotonic() > deadline:
            raise PeerError(f"did not finish in time ({process.args})")
        peak = max(peak, _tree_bytes(process.pid))
        time.sleep(POLL_S)
    return peak


def _tree_bytes(pid: int) -> int:
    total = _status_kib(f"/proc/{pid}/status", "VmHWM:")
    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        children = []
    # forked workers share pages with the root: proportional size counts each page once
    return 1024 * (total + sum(_status_kib(f"/proc/{child.pid}/smaps_rollup", "Pss:") for child in children))


def _status_kib(path: str, name: str) -> int:
    try:
        with open(path) as lines:
            return next((int(line.split()[1]) for line in lines if line.startswith(name)), 0)
    except (OSError, ValueError):
        return 0


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End the whole session of a contender, also the workers it forgot."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()
