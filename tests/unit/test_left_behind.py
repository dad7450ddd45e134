"""A run of tests that leaves something behind fails, and names it; tests are in processes of their own, or not."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
LEAVES = {
    "process": """
        import subprocess
        def test_it(): subprocess.Popen(["sleep", "600"], start_new_session=True)
    """,
    "orphan": """
        import subprocess
        def test_it(): subprocess.run(["sh", "-c", "sleep 600 > /dev/null 2>&1 &"], check=True)
    """,
    "shared memory": """
        import pathlib
        def test_it(): pathlib.Path("/dev/shm/NAME").touch()
    """,
    "socket": """
        import socket
        left = []
        def test_it(): left.append(socket.create_server(("127.0.0.1", 0)))
    """,
    "thread": """
        import threading
        def test_it(): threading.Thread(target=threading.Event().wait, name="NAME", daemon=True).start()
    """,
    "file": """
        import tempfile
        def test_it(): tempfile.mkdtemp(prefix="NAME-")
    """,
    "mount": """
        import os, subprocess
        def test_it():
            os.mkdir("NAME")
            subprocess.run(["mount", "-t", "tmpfs", "NAME", "NAME"], check=True)
    """,
}
NAMED = {name: name for name in LEAVES} | {"orphan": "process"}


@pytest.fixture
def name(tmp_path: Path):
    """What all that a run here may leave is called: other tests run beside it."""
    given = f"left-{secrets.token_hex(4)}"
    yield given
    subprocess.run(["umount", tmp_path / given], check=False, capture_output=True)
    Path(f"/dev/shm/{given}").unlink(missing_ok=True)
    for one in Path(tempfile.gettempdir()).glob(f"{given}-*"):
        shutil.rmtree(one)


def test_nothing_is_said_of_a_run_that_leaves_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / "test_one.py").write_text("def test_it(): pass")
    ended = run(tmp_path, name, "--numprocesses=1")
    assert (ended.returncode, "left behind" in ended.stdout) == (0, False), ended.stdout


@pytest.mark.parametrize("processes", ["--numprocesses=1", "--numprocesses=0"])
def test_each_kind_is_noticed(tmp_path: Path, name: str, processes: str) -> None:
    kinds = [kind for kind in LEAVES if kind != "mount" or os.getuid() == 0]
    for kind in kinds:
        (tmp_path / f"test_{kind.replace(' ', '_')}.py").write_text(textwrap.dedent(LEAVES[kind].replace("NAME", name)))
    ended = run(tmp_path, name, processes)
    said = [line for line in ended.stdout.splitlines() if line.startswith("left behind: ")]
    for line in said:
        if " process " in line:
            os.kill(int(re.findall(r"process (\d+)", line)[0]), signal.SIGKILL)
    assert ended.returncode == 1, ended.stdout
    assert len(said) == len(kinds), said
    for kind in kinds:
        assert any(f" {NAMED[kind]} " in line for line in said), (kind, said)


def run(folder: Path, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    ours = ("-p", "tests.left", f"--left-name={name}", "--left-wait=1")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CI": "true", "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-X", "faulthandler", "-m", "pytest", "-q", "-p", "no:cacheprovider", *ours, *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen([*command, str(folder)], cwd=folder, env=environment, **pipes) as process:
        try:
            said, _ = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            for one in (*psutil.Process(process.pid).children(recursive=True), process):
                one.send_signal(signal.SIGABRT)  # it says where it is
            said, _ = process.communicate(timeout=10)
            pytest.fail(f"it does not end:\n{said}")
    return subprocess.CompletedProcess(command, process.returncode, said)
